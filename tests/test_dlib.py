import cv2
import numpy as np
import pytest

from data_prep.readers import Damaged, Source, Tally, dlib
from facekp_jax import masks, skeletons

NOISE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
JPEG = cv2.imencode(".jpg", NOISE)[1].tobytes()
MOUSE = skeletons.from_names(
    "mouse", ("snout", "tail", "paw"), [("snout", "tail"), ("tail", "paw")], None
)


def part(name, x, y):
    return f"<part name='{name}' x='{x}' y='{y}'/>"


def box(*parts, left=3, top=4, width=10, height=8, extra=""):
    return (
        f"<box top='{top}' left='{left}' width='{width}' height='{height}' {extra}>"
        f"{''.join(parts)}</box>"
    )


def image(*boxes, file="a.jpg", size="width='30' height='20'"):
    return f"<image file='{file}' {size}>{''.join(boxes)}</image>"


def dataset(folder, *images):
    body = f"<dataset><images>{''.join(images)}</images></dataset>"
    text = f"<?xml version='1.0' encoding='ISO-8859-1'?>{body}"
    (folder / "faces.xml").write_bytes(text.encode("iso-8859-1"))
    (folder / "a.jpg").write_bytes(JPEG)
    return folder


def read(folder, *, strict=False, **settings):
    tally = Tally(strict=strict)
    reading = dlib.read(Source(folder, **settings), tally)
    return reading, [photo for photo, _ in reading.photos], tally


def test_parts_are_indices_of_pixels_and_boxes_are_edges(tmp_path):
    dataset(tmp_path, image(box(part("00", 4, 5), part("67", 12, 11))))
    reading, (photo,), tally = read(tmp_path, strict=True)
    (skeleton,) = reading.skeletons
    assert skeleton.name == "face" and skeleton.edges == skeletons.FACE68.edges
    (face,) = photo.instances
    np.testing.assert_array_equal(face.box, [3, 4, 13, 12])
    np.testing.assert_array_equal(
        face.keypoints[[0, 67]], [[4.5, 5.5, 2], [12.5, 11.5, 2]]
    )
    assert np.count_nonzero(face.keypoints[:, 2]) == 2
    assert tally.counts["keypoints"]["kept"] == 2


def test_boxes_to_ignore_and_photos_without_a_box(tmp_path):
    ignored = box(part("00", 4, 5), extra="ignore='1'")
    photos = image(ignored, box(part("01", 4, 5), extra="ignore='0'"))
    (tmp_path / "b.jpg").write_bytes(JPEG)
    _, (first, second), tally = read(dataset(tmp_path, photos, image(file="b.jpg")))
    expected = np.zeros((20, 30), bool)
    expected[4:12, 3:13] = True
    np.testing.assert_array_equal(masks.to_full(first.ignore, 20, 30), expected)
    assert len(first.instances) == 1 and second.instances == ()
    assert tally.notes["photos without an instance"] == 1


@pytest.mark.parametrize("names", [("snout", "Paw"), ("0", "2"), ("00", "02")])
def test_parts_of_a_users_skeleton(tmp_path, names):
    parts = [part(name, 4 + i, 5) for i, name in enumerate(names)]
    reading, (photo,), _ = read(dataset(tmp_path, image(box(*parts))), skeleton=MOUSE)
    assert reading.skeletons == (MOUSE,)
    np.testing.assert_array_equal(
        photo.instances[0].keypoints, [[4.5, 5.5, 2], [0, 0, 0], [5.5, 5.5, 2]]
    )


@pytest.mark.parametrize(
    "bad, reason",
    [
        (box(part("00", 4, 5), part("00", 6, 7)), "part 00 twice"),
        ("<box/>", "box that is not four finite numbers"),
        (box(width=0), "box of zero or negative size"),
        (box(width="abc", extra="ignore='1'"), "box that is not four finite numbers"),
        (box(left=40, extra="ignore='1'"), "box outside the picture"),
    ],
)
def test_a_bad_box_is_refused_alone(tmp_path, bad, reason):
    dataset(tmp_path, image(box(part("01", 1, 1)), bad))
    _, (photo,), tally = read(tmp_path)
    assert len(photo.instances) == 1
    assert f"instances refused, 1: {reason} (a.jpg, box 2)" in tally.table()
    with pytest.raises(Damaged, match=reason):
        read(tmp_path, strict=True)


@pytest.mark.parametrize(
    "bad, reason",
    [
        (part("05", 30, 5), "outside the picture"),
        (part("05", "nan", 5), "labelled, but not finite"),
        (part("05", "four", 5), "labelled, but not finite"),
        ("<part name='05' x='3'/>", "labelled, but not finite"),
    ],
)
def test_a_bad_part_is_lost_alone(tmp_path, bad, reason):
    dataset(tmp_path, image(box(part("01", 1, 1), bad)))
    _, (photo,), tally = read(tmp_path)
    assert np.count_nonzero(photo.instances[0].keypoints[:, 2]) == 1
    assert f"keypoints refused, 1: {reason} (a.jpg, box 1)" in tally.table()


@pytest.mark.parametrize(
    "other, reason",
    [
        (image(file="nowhere.jpg"), "cannot read it"),
        (image(file="../a.jpg"), "leaves the folder of images"),
        (image(file="b.jpg", size="width='20' height='30'"), "transposed"),
        (image(file="a.jpg"), "file_name of an earlier image"),
        ("<image/>", "no file"),
    ],
)
def test_a_bad_photo_is_refused_alone(tmp_path, other, reason):
    (tmp_path / "b.jpg").write_bytes(JPEG)
    _, photos, tally = read(dataset(tmp_path, image(box(part("01", 1, 1))), other))
    assert [photo.name for photo in photos] == ["a.jpg"]
    assert reason in tally.table()


def test_letters_of_the_files_own_encoding(tmp_path):
    (tmp_path / "é b.jpg").write_bytes(JPEG)
    photo = image(box(part("01", 1, 1)), file="é b.jpg", size="")
    _, photos, _ = read(dataset(tmp_path, photo))
    assert [photo.name for photo in photos] == ["é b.jpg"]


@pytest.mark.parametrize(
    "images, settings, message",
    [
        ([image(box(part("68", 1, 1)))], {}, "part '68', which is no landmark 00 to"),
        ([image(box(part("nose", 1, 1)))], {}, "say with --skeleton what it is"),
        (
            [image(box(part("nose", 1, 1)))],
            {"skeleton": MOUSE},
            "part 'nose', which is none of --skeleton's 3",
        ),
        ([image(box())], {}, "no box in it has parts"),
        ([image(box("<part/>"))], {}, "part 'None'"),
        (["<image"], {}, "not XML"),
    ],
)
def test_what_does_not_fit(tmp_path, images, settings, message):
    with pytest.raises(ValueError, match=message):
        read(dataset(tmp_path, *images), **settings)


def test_the_file_is_the_only_one_or_named(tmp_path):
    with pytest.raises(ValueError, match=r"\*\.xml: no such file; .*--annotations"):
        read(tmp_path)
    dataset(tmp_path, image(box(part("01", 1, 1))))
    (tmp_path / "other.xml").write_text("<annotation/>")
    with pytest.raises(ValueError, match=r"is faces\.xml, other\.xml; .*--annotations"):
        read(tmp_path)
    with pytest.raises(ValueError, match="<annotation> instead of <dataset>"):
        read(tmp_path, annotations=tmp_path / "other.xml")
    _, photos, _ = read(tmp_path, annotations=tmp_path / "faces.xml")
    assert len(photos) == 1


def test_numbers_and_nesting_without_end(tmp_path):
    extra = "<x>" * 3000 + "</x>" * 3000
    deep = (
        f"<box top='4' left='3' width='10' height='8'>{part('01', 5, 6)}{extra}</box>"
    )
    size = f"width='{'9' * 5000}' height='20'"
    _, (photo,), _ = read(dataset(tmp_path, image(deep, size=size)), strict=True)
    assert len(photo.instances) == 1
    dataset(tmp_path, image(box(part("9" * 5000, 5, 6))))
    with pytest.raises(ValueError, match="no landmark 00 to 67"):
        read(tmp_path)
