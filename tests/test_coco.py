import json
import re

import cv2
import numpy as np
import pytest
from commands import result, run
from faster_coco_eval.core import mask as coco_mask

from data_prep.readers import Damaged, Source, Tally, coco
from facekp_jax import lesion_images, masks

CATEGORIES = [
    {"id": 0, "name": "Dark circle", "supercategory": "eye"},
    {"id": 7, "name": "mole", "supercategory": "skin"},
    {"id": 8, "name": "acne", "supercategory": "skin"},
]


def picture(height=20, width=30, seed=0):
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return cv2.imencode(".png", noise)[1].tobytes()


def entry(photo_id=0, name="a.png", width=30, height=20):
    return {"id": photo_id, "file_name": name, "width": width, "height": height}


def annotation(box=(2, 3, 4, 5), annotation_id=0, **fields):
    return {
        "id": annotation_id,
        "image_id": 0,
        "category_id": 7,
        "bbox": box and list(box),
        **fields,
    }


def dataset(folder, *, pictures=None, **content):
    content = {"images": [entry()], "categories": CATEGORIES, **content}
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for name, data in (pictures or {"a.png": picture()}).items():
        (folder / "images" / name).write_bytes(data)
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


def read(folder, *, strict=False, **settings):
    tally = Tally(strict=strict)
    reading = coco.read(Source(folder, **settings), tally)
    return reading, [photo for photo, _ in reading.photos], tally


def only_region(folder):
    _, (photo,), tally = read(folder)
    (region,) = photo.regions
    return region, tally


def test_boxes_become_corners_and_ids_may_start_at_zero(tmp_path):
    dataset(
        tmp_path,
        annotations=[
            annotation((2, 3, 4, 5)),
            annotation((0, 0, 30, 20), 1, category_id=0, iscrowd=1),
        ],
    )
    reading, (photo,), tally = read(tmp_path)
    assert reading.branches == photo.labelled == ("dark_circle", "mole", "acne")
    first, second = photo.regions
    np.testing.assert_array_equal(first.box, [2, 3, 6, 8])
    assert (first.branch, first.crowd, first.mask) == ("mole", False, None)
    assert (second.branch, second.crowd) == ("dark_circle", True)
    assert tally.counts["regions"] == {
        "read": 2,
        "kept": 2,
        "repaired": 0,
        "refused": 0,
    }


def test_a_photo_without_annotations_is_a_true_negative(tmp_path):
    reading, (photo,), tally = read(dataset(tmp_path))
    assert photo.regions == ()
    assert photo.labelled == reading.branches
    assert tally.counts["photos"]["kept"] == 1


@pytest.mark.parametrize(
    "group, branches, branch",
    [
        ("category", ("dark_circle", "mole", "acne"), "mole"),
        ("supercategory", ("eye", "skin"), "skin"),
        ("all:Acne", ("acne",), "acne"),
    ],
)
def test_groups(tmp_path, group, branches, branch):
    dataset(tmp_path, annotations=[annotation()])
    reading, (photo,), _ = read(tmp_path, group=group)
    assert reading.branches == branches
    assert photo.regions[0].branch == branch


def test_categories_that_mean_none(tmp_path):
    annotations = [annotation(), annotation(annotation_id=1, category_id=8)]
    dataset(tmp_path, annotations=[*annotations, annotation((0, 0, 0, 0), 2)])
    for group, branches in (
        ("category", ("dark_circle", "acne")),
        ("supercategory", ("eye", "skin")),
        ("all:spot", ("spot",)),
    ):
        reading, (photo,), tally = read(
            tmp_path, group=group, none=["Mole"], strict=True
        )
        assert reading.branches == photo.labelled == branches
        assert [r.branch for r in photo.regions] == [branches[-1]]
        assert tally.notes == {"annotations of mole, which means none": 2}
        assert tally.counts["regions"]["read"] == 1
    with pytest.raises(ValueError, match=r"--none=no_acne: no such category; .* acne"):
        read(tmp_path, none=["mole", "no acne"])


def test_one_branch_needs_no_categories(tmp_path):
    dataset(tmp_path, categories=None, annotations=[annotation()])
    with pytest.raises(ValueError, match=r"no categories; --group=all:NAME"):
        read(tmp_path)
    _, (photo,), _ = read(tmp_path, group="all:spot")
    assert photo.regions[0].branch == "spot"


def rle(mask):
    encoded = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": list(mask.shape), "counts": encoded["counts"].decode()}


def test_polygons_and_both_run_lengths_in_one_file(tmp_path):
    # A rectangle of rows 3 to 7 and columns 2 to 5, three times. Uncompressed run
    # lengths go down the columns: 2 columns of 20 and 3 rows, then 5 on and 15 off.
    expected = np.zeros((20, 30), bool)
    expected[3:8, 2:6] = True
    runs = [43, 5, 15, 5, 15, 5, 15, 5]
    runs.append(600 - sum(runs))
    segmentations = [
        [[2, 3, 6, 3, 6, 8, 2, 8]],
        {"size": [20, 30], "counts": runs},
        rle(expected),
    ]
    dataset(
        tmp_path,
        annotations=[
            annotation(annotation_id=i, segmentation=s)
            for i, s in enumerate(segmentations)
        ],
    )
    _, (photo,), tally = read(tmp_path)
    for region in photo.regions:
        np.testing.assert_array_equal(masks.to_full(region.mask, 20, 30), expected)
    assert len(photo.regions) == 3
    assert tally.counts["regions"]["repaired"] == 0


def test_box_from_the_mask_where_there_is_none(tmp_path):
    polygon = [[2, 3, 6, 3, 6, 8, 2, 8]]
    dataset(tmp_path, annotations=[annotation(None, segmentation=polygon)])
    region, _ = only_region(tmp_path)
    np.testing.assert_array_equal(region.box, [2, 3, 6, 8])


@pytest.mark.parametrize(
    "box, clipped",
    [
        ((-0.5, 2, 10, 10), (0, 2, 9.5, 12)),
        ((20, 10, 10.02, 10.5), (20, 10, 30, 20)),
    ],
)
def test_boxes_over_the_border_are_clipped(tmp_path, box, clipped):
    region, tally = only_region(dataset(tmp_path, annotations=[annotation(box)]))
    np.testing.assert_array_equal(region.box, np.float32(clipped))
    assert tally.counts["regions"]["repaired"] == 1
    assert "box clipped to the picture (a.png, annotation 0)" in tally.table()


@pytest.mark.parametrize(
    "segmentation, reason",
    [
        ([[2, 3, 6, 8]], "fewer than 3 points"),
        ([[1, 1, 5, 1, 5]], "fewer than 3 points"),
        ([[1, 1, float("nan"), 5, 5, 5]], "fewer than 3 points"),
        ({"size": [30, 20], "counts": [600]}, "another size"),
        ({"counts": [600]}, "another size"),
        ({"size": [20, 30], "counts": "~~~~~~~"}, "malformed"),
        ({"size": [20, 30], "counts": [5, -3]}, "malformed"),
        ({"size": [20, 30]}, "malformed"),
        ({"size": [20, 30], "counts": [600]}, "without a pixel"),
        ({"size": 600, "counts": [600]}, "another size"),
        ([[0, 0, 1e8, 0, 1e8, 1e8]], "fewer than 3 points"),
        (5, "neither polygons nor run lengths"),
        ("[[1, 1, 5, 1, 5, 5]]", "neither polygons nor run lengths"),
    ],
)
def test_an_unusable_mask_leaves_the_box(tmp_path, segmentation, reason):
    dataset(tmp_path, annotations=[annotation(segmentation=segmentation)])
    region, tally = only_region(tmp_path)
    assert region.mask is None
    np.testing.assert_array_equal(region.box, [2, 3, 6, 8])
    assert tally.counts["regions"]["repaired"] == 1
    assert reason in tally.table()


def test_a_good_polygon_survives_a_bad_one(tmp_path):
    polygons = [[1, 1, 2, 2], [2, 3, 6, 3, 6, 8, 2, 8]]
    dataset(tmp_path, annotations=[annotation(segmentation=polygons)])
    region, tally = only_region(tmp_path)
    assert region.mask.pixels.shape == (5, 4)
    assert tally.counts["regions"]["repaired"] == 1


@pytest.mark.parametrize(
    "broken, reason",
    [
        (annotation((1, 1, 0, 5)), "zero or negative size"),
        (annotation((5, 5, -2, 5)), "zero or negative size"),
        (annotation((float("nan"), 1, 2, 3)), "not four finite numbers"),
        (annotation((1, 1, float("inf"), 3)), "not four finite numbers"),
        (annotation((1, 2, 3)), "not four finite numbers"),
        (annotation((1, 1, 10**400, 3)), "not four finite numbers"),
        (annotation((1, 2, 3, None)), "not four finite numbers"),
        (annotation((40, 2, 3, 3)), "box outside the picture"),
        (annotation(None), "neither box nor mask"),
        (annotation(category_id=99), "category 99 is not declared"),
        ({"image_id": 0, "bbox": [1, 1, 2, 2]}, "category None is not declared"),
        (annotation(category_id=[7]), "category [7] is not declared"),
        (annotation(image_id=5), "image_id of no image"),
        (annotation(image_id=[0]), "image_id of no image"),
        ({"id": 1, "category_id": 7, "bbox": [1, 1, 2, 2]}, "image_id of no image"),
    ],
)
def test_a_bad_annotation_is_refused_alone(tmp_path, broken, reason):
    good = annotation(annotation_id=5)
    dataset(tmp_path, annotations=[broken, good])
    _, (photo,), tally = read(tmp_path)
    assert len(photo.regions) == 1
    counts = tally.counts["regions"]
    assert (counts["read"], counts["kept"], counts["refused"]) == (2, 1, 1)
    assert reason in tally.table()
    with pytest.raises(Damaged, match=re.escape(reason)):
        read(tmp_path, strict=True)


def test_the_same_annotation_twice_counts_once(tmp_path):
    # The same id on another annotation is harmless: nothing refers to it.
    dataset(
        tmp_path, annotations=[annotation(), annotation(), annotation((1, 1, 3, 3))]
    )
    _, (photo,), tally = read(tmp_path)
    assert len(photo.regions) == 2
    assert "the same annotation twice" in tally.table()


LONG = "é" * 60 + ".png"


@pytest.mark.parametrize(
    "image, data, reason",
    [
        (entry(1, "b.png", 20, 30), picture(20, 30), "transposed: annotated as 20x30"),
        (entry(1, "b.png", 60, 40), picture(20, 30), "another size: annotated as 60x"),
        (entry(1, "b.png"), b"", "0 bytes"),
        (entry(1, "b.png"), b"hello", "not a picture"),
        (entry(1, "b.png"), None, "cannot read it"),
        (entry(1, "../annotations.json"), None, "leaves the folder of images"),
        (entry(1, "x/../../annotations.json"), None, "leaves the folder of images"),
        (entry(1, "/etc/passwd"), None, "leaves the folder of images"),
        (entry(None, "b.png"), picture(), "no id"),
        (entry(1, None), picture(), "no file_name"),
        (entry([1], ["b.png"]), picture(), "cannot read it"),
        (entry(0, "b.png"), picture(), "id of an earlier image"),
        (entry(1, "a.png"), None, "file_name of an earlier image"),
    ],
)
def test_a_bad_photo_is_refused_alone(tmp_path, image, data, reason):
    pictures = {"a.png": picture()} | ({"b.png": data} if data is not None else {})
    dataset(
        tmp_path,
        pictures=pictures,
        images=[entry(), image],
        annotations=[annotation(), annotation(image_id=image["id"], annotation_id=9)],
    )
    _, (photo,), tally = read(tmp_path)
    assert photo.name == "a.png"
    assert tally.counts["photos"]["refused"] == 1
    assert reason in tally.table()
    counts = tally.counts["regions"]
    assert counts["read"] == 2 == counts["kept"] + counts["refused"]


@pytest.mark.parametrize("name", ["a b.png", "写真 ñ.png", LONG])
def test_unusual_names(tmp_path, name):
    folder = tmp_path / "Ordner mit Leerzeichen ß"
    dataset(folder, pictures={name: picture()}, images=[entry(name=name)])
    _, (photo,), _ = read(folder)
    assert photo.name == name


def test_a_size_that_is_not_stated_is_the_pictures(tmp_path):
    dataset(tmp_path, images=[{"id": 0, "file_name": "a.png"}])
    _, (photo,), _ = read(tmp_path)
    assert photo.image.shape == (20, 30, 3)


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "not JSON"),
        ("[]", "no list of images"),
        ('{"images": [3]}', "images is no list of objects"),
        ('{"images": [], "annotations": 5}', "annotations is no list of objects"),
        ('{"images": [], "categories": {"a": 1}}', "categories is no list of objects"),
        (
            '{"images": [], "categories": [{"id": 1, "name": " "}]}',
            "no letter or digit",
        ),
        ('{"images": [], "categories": [{"name": "x"}]}', "has no id or no name"),
        (
            '{"images": [], "categories": [{"id": 1, "name": "x"},'
            '{"id": 1, "name": "y"}]}',
            "category id 1 is there twice",
        ),
    ],
)
def test_a_file_that_is_not_cocos(tmp_path, text, message):
    dataset(tmp_path)
    (tmp_path / "annotations.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_files_in_other_places(tmp_path):
    dataset(tmp_path / "x")
    (tmp_path / "x" / "annotations.json").rename(tmp_path / "train.json")
    with pytest.raises(ValueError, match=r"annotations\.json: no such file; .*--annot"):
        read(tmp_path / "x")
    with pytest.raises(ValueError, match=r"images: no such folder; .*--images"):
        read(tmp_path, annotations=tmp_path / "train.json")
    _, photos, _ = read(
        tmp_path,
        annotations=tmp_path / "train.json",
        images=tmp_path / "x" / "images",
    )
    assert len(photos) == 1


def build(*arguments, **options):
    return run("data_prep.build", *arguments, **options)


def test_command_line_builds_two_splits_and_counts(tmp_path):
    folder = dataset(
        tmp_path / "in",
        pictures={"a.png": picture(), "é.png": b"hello"},
        images=[entry(), entry(1, "é.png")],
        annotations=[annotation((-1, 3, 4, 5)), annotation((1, 1, 0, 0), 1)],
    )
    arguments = (f"--input={folder}", f"--output={tmp_path / 'out'}")
    arguments += ("--face_detector=whole", "--group=all:acne")
    for split in ("train", "val"):
        # The terminal of few letters.
        done = build(*arguments, f"--split={split}", PYTHONIOENCODING="ascii")
    summary = result(done)
    assert summary.pop("seconds") > 0
    assert summary == {
        "experiment": None,
        "output": str(tmp_path / "out"),
        "split": "val",
        "counts": {
            "photos": {"read": 2, "kept": 1, "repaired": 0, "refused": 1},
            "regions": {"read": 2, "kept": 1, "repaired": 1, "refused": 1},
            "notes": {},
            "branches": {"acne": 1},
            "photos_without_regions": 0,
            "photos_without_face": 0,
        },
    }
    assert "not a picture, or a damaged one (\\xe9.png)" in done.stdout
    source = lesion_images.LesionImages(tmp_path / "out", "train")
    assert source.splits == ("train", "val")
    np.testing.assert_array_equal(source[0].face, [0, 0, 30, 20])

    again = build(*arguments, "--split=val", status=2)
    assert "add --overwrite" in again.stderr
    strict = build(*arguments, "--split=test", "--strict", status=1)
    assert strict.stderr.splitlines()[-1].startswith("error: a.png, annotation 0: box")
    assert not (tmp_path / "out" / "test").exists()


def test_command_line_without_a_face(tmp_path):
    folder = dataset(tmp_path / "in", annotations=[])
    done = build(f"--input={folder}", f"--output={tmp_path / 'out'}")
    counts = result(done)["counts"]
    assert counts["photos_without_face"] == counts["photos_without_regions"] == 1
    face = lesion_images.LesionImages(tmp_path / "out", "train")[0].face
    np.testing.assert_array_equal(face, [0, 0, 30, 20])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--nosuch=1"], "nosuch"),
        (["--output=x"], "--input=DIR is missing"),
        (["--input=nowhere", "--output=x"], "--input=nowhere: no such folder"),
        (["--input=.", "--output=x", "--source=abc"], "--source=abc: use one of coco"),
        (["--input=.", "--output=x", "--face_detector=abc"], "'abc'"),
        (["here"], "'here' is no flag; settings are given as --name=value"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(arguments, message):
    done = build(*arguments, status=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and message in line
