import re

import cv2
import numpy as np
import pytest

from data_prep.readers import Damaged, Source, Tally, voc

NOISE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
PICTURE = cv2.imencode(".png", NOISE)[1].tobytes()


def thing(name="with mask", corners=(3, 4, 6, 8), extra=""):
    box = "".join(
        f"<{tag}>{value}</{tag}>"
        for tag, value in zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True)
    )
    return f"<object><name>{name}</name>{extra}<bndbox>{box}</bndbox></object>"


def xml(*things, filename="a.png", size=(30, 20)):
    width, height = size
    return (
        f"\n<annotation><filename>{filename}</filename><size><width>{width}</width>"
        f"<height>{height}</height></size>{''.join(things)}</annotation>"
    )


def dataset(folder, files, *, pictures=("a.png",), lists=None):
    for part in ("Annotations", "JPEGImages"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / "Annotations" / f"{name}.xml").write_text(text)
    for name in pictures:
        (folder / "JPEGImages" / name).write_bytes(PICTURE)
    for name, text in (lists or {}).items():
        (folder / "ImageSets" / "Main").mkdir(parents=True, exist_ok=True)
        (folder / "ImageSets" / "Main" / f"{name}.txt").write_text(text)
    return folder


def read(folder, *, strict=False, **settings):
    tally = Tally(strict=strict)
    reading = voc.read(Source(folder, **settings), tally)
    return reading, [photo for photo, _ in reading.photos], tally


def test_pixel_indices_from_one_become_edges(tmp_path):
    # Columns 3 to 6 and rows 4 to 8, counted from 1: 4 columns and 5 rows of pixels.
    # One pixel alone, and the whole picture, are boxes too.
    things = [
        thing(corners=(3, 4, 6, 8)),
        thing("face", (1, 1, 1, 1)),
        thing("face", (1.0, 1, 30, 20)),
    ]
    reading, (photo,), tally = read(dataset(tmp_path, {"1": xml(*things)}), strict=True)
    assert reading.branches == photo.labelled == ("face", "with_mask")
    assert [r.branch for r in photo.regions] == ["with_mask", "face", "face"]
    np.testing.assert_array_equal(
        [r.box for r in photo.regions], [[2, 3, 6, 8], [0, 0, 1, 1], [0, 0, 30, 20]]
    )
    assert tally.counts["regions"]["kept"] == 3


def test_difficult_objects_are_kept_as_areas_to_ignore(tmp_path):
    things = [
        thing(extra="<difficult>1</difficult>"),
        thing("face", extra="<difficult>0</difficult><truncated>1</truncated>"),
        thing("face", (1, 1, 2, 2), "<difficult>Unspecified</difficult>"),
    ]
    _, (photo,), tally = read(dataset(tmp_path, {"1": xml(*things)}), strict=True)
    assert [r.crowd for r in photo.regions] == [True, False, False]
    assert tally.notes == {"areas to ignore (crowd, difficult)": 1}


def test_a_box_of_a_part_is_not_the_objects(tmp_path):
    part = "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"
    _, (photo,), _ = read(dataset(tmp_path, {"1": xml(thing(extra=part))}))
    np.testing.assert_array_equal(photo.regions[0].box, [2, 3, 6, 8])


def test_a_photo_without_objects_is_a_true_negative(tmp_path):
    files = {"1": xml(), "2": xml(thing(), filename="b.png", size=(0, 0))}
    dataset(tmp_path, files, pictures=("a.png", "b.png", "c.png"))
    _, photos, tally = read(tmp_path)
    assert [len(photo.regions) for photo in photos] == [0, 1]
    assert photos[0].labelled == ("with_mask",)
    (note,) = tally.notes.items()
    assert note == ("pictures without an annotation file (unknown), left out", 1)


def test_lists_choose_the_split_but_all_files_name_the_categories(tmp_path):
    dataset(
        tmp_path,
        {"1": xml(thing("mole")), "2": xml(thing("acne"), filename="b.png")},
        pictures=("a.png", "b.png"),
        lists={"train": "1\n", "val": "2 1\n\n", "empty": "\n", "gone": "3\n../1\n"},
    )
    for split, name in (("train", "a.png"), ("val", "b.png")):
        reading, (photo,), tally = read(tmp_path, split=split)
        assert photo.name == name
        assert reading.length == 1 and reading.branches == ("acne", "mole")
        assert tally.notes == {}
    with pytest.raises(ValueError, match=r"--split=test is not of empty, gone, train"):
        read(tmp_path, split="test")
    with pytest.raises(ValueError, match="not one photo in it"):
        read(tmp_path, split="empty")
    _, photos, tally = read(tmp_path, split="gone")
    assert photos == [] and tally.counts["photos"]["refused"] == 2
    assert "cannot read 3.xml" in tally.table()
    assert "leaves the folder" in tally.table()


def test_a_name_that_means_none_may_be_missing(tmp_path):
    files = {"1": xml(thing("Nothing"), thing("mole"))}
    for none, count in ((["nothing"], 1), (["nothing", "no_mole"], 1), (["x"], 0)):
        folder = dataset(tmp_path, files)
        reading, (photo,), tally = read(folder, none=none)
        assert "nothing" not in reading.branches or count == 0
        assert "mole" in reading.branches and "no_mole" not in reading.branches
        assert len(photo.regions) == 2 - count
        assert sum(tally.notes.values()) == count and len(tally.notes) == len(none)
    reading, (photo,), _ = read(tmp_path, none=["nothing", "mole"], group="all:spot")
    assert (reading.branches, photo.regions) == (("spot",), ())


@pytest.mark.parametrize(
    "broken, reason",
    [
        (thing(corners=(3, 4, 2, 8)), "zero or negative size"),
        (thing(corners=(31, 4, 35, 8)), "box outside the picture"),
        (thing(corners=("nan", 4, 6, 8)), "not four finite numbers"),
        (thing(corners=("3px", 4, 6, 8)), "not four finite numbers"),
        (thing(corners=("", 4, 6, 8)), "not four finite numbers"),
        ("<object><name>face</name></object>", "not four finite numbers"),
        (thing("  "), "category '' is not declared"),
        (thing("face", (1, 1, 9, 9)), "the same annotation twice"),
    ],
)
def test_a_bad_object_is_refused_alone(tmp_path, broken, reason):
    good = thing("face", (1, 1, 9, 9))
    dataset(tmp_path, {"1": xml(good, broken)})
    _, (photo,), tally = read(tmp_path)
    assert len(photo.regions) == 1
    counts = tally.counts["regions"]
    assert (counts["read"], counts["kept"], counts["refused"]) == (2, 1, 1)
    assert f"{reason} (a.png, object 2)" in tally.table()
    with pytest.raises(Damaged, match=re.escape(reason)):
        read(tmp_path, strict=True)


@pytest.mark.parametrize(
    "corners, clipped",
    [((0, 4, 6, 8), (0, 3, 6, 8)), ((3, 4, 31, "1e39"), (2, 3, 30, 20))],
)
def test_boxes_over_the_border_are_clipped(tmp_path, corners, clipped):
    _, (photo,), tally = read(dataset(tmp_path, {"1": xml(thing(corners=corners))}))
    np.testing.assert_array_equal(photo.regions[0].box, clipped)
    assert tally.counts["regions"]["repaired"] == 1


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "not XML"),
        ("<annotation>", "not XML"),
        ("<html></html>", "not VOC's XML: <html>"),
        ('<?xml version="1.0" encoding="nosuch"?><annotation/>', "not XML"),
        ("<annotation></annotation>", "no filename"),
        (xml(filename="../Annotations/0.xml"), "leaves the folder"),
        (xml(filename="gone.png"), "cannot read it"),
        (xml(filename="a.png"), "file_name of an earlier image"),
        (xml(thing(), filename="b.png", size=(20, 30)), "transposed: annotated as 20"),
        (xml(filename="b.png", size=(60, 40)), "another size: annotated as 60x40"),
        (xml(filename="b.png", size=("wide", 40)), "'wide' is no number of pixels"),
    ],
)
def test_a_bad_file_is_refused_alone(tmp_path, text, reason):
    files = {"0": xml(thing()), "1": text}
    _, (photo,), tally = read(dataset(tmp_path, files, pictures=("a.png", "b.png")))
    assert photo.name == "a.png"
    assert tally.counts["photos"]["refused"] == 1
    assert reason in tally.table()


def test_entities_are_not_expanded_without_end(tmp_path):
    levels = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
    bomb = f'<!DOCTYPE x [<!ENTITY e0 "ha">{levels}]>'
    text = bomb + xml(thing("&e9;"))
    _, photos, tally = read(
        dataset(tmp_path, {"0": xml(thing(), filename="a.png"), "1": text})
    )
    assert len(photos) == 1
    assert "not XML" in tally.table()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"annotations": "nowhere"}, "nowhere: no such folder; .* --annotations"),
        ({"images": "nowhere"}, "nowhere: no such folder; .* --images"),
        ({"group": "supercategory"}, "no id or no supercategory"),
        ({"none": ["with mask"]}, "no category is left"),
    ],
)
def test_settings_that_do_not_fit(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        read(dataset(tmp_path, {"1": xml(thing())}), **settings)


def test_no_file_or_no_object_at_all(tmp_path):
    with pytest.raises(ValueError, match="no XML file in it"):
        read(dataset(tmp_path, {}))
    dataset(tmp_path, {"1": xml()})
    with pytest.raises(ValueError, match="no categories; --group=all:NAME"):
        read(tmp_path)
    _, (photo,), _ = read(tmp_path, group="all:face")
    assert photo.labelled == ("face",) and photo.regions == ()


def test_nesting_without_end(tmp_path):
    deep = thing(extra="<x>" * 3000 + "</x>" * 3000)
    _, (photo,), tally = read(dataset(tmp_path, {"a": xml(deep, deep)}))
    assert len(photo.regions) == 1
    assert "the same annotation twice (a.png, object 2)" in tally.table()


def test_a_list_of_another_encoding_is_named(tmp_path):
    dataset(tmp_path, {"a": xml(thing())}, lists={"train": "a"})
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_bytes(b"\xe9\n")
    with pytest.raises(ValueError, match=r"train\.txt: not a list of names in UTF-8"):
        read(tmp_path)
