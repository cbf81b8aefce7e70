import json
import re
import struct

import cv2
import numpy as np
import pytest
from commands import result, run

from data_prep.readers import Damaged, Source, Tally, coco
from facekp_jax import keypoint_images, masks, skeletons

HEIGHT, WIDTH = 20, 30
DOG = {
    "id": 0,
    "name": "Dog",
    "supercategory": "pet",
    "keypoints": ["nose", "left_paw", "right_paw"],
    "skeleton": [[1, 2], [1, 3]],
}
CAT = {**DOG, "id": 1, "name": "cat"}
SNAKE = {"id": 2, "name": "snake", "supercategory": "wild"}
SNAKE |= {"keypoints": ["head", "tail"], "skeleton": [[1, 2]]}
NOISE = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
JPEG = cv2.imencode(".jpg", NOISE)[1].tobytes()


def entry(photo_id=0, name="a.jpg", width=WIDTH, height=HEIGHT):
    return {"id": photo_id, "file_name": name, "width": width, "height": height}


def dog(keypoints=(2, 3, 2, 4, 5, 1, 0, 0, 0), annotation_id=0, **fields):
    """An annotation of a dog; a field of None is left out."""
    values = {
        "id": annotation_id,
        "image_id": 0,
        "category_id": 0,
        "keypoints": list(keypoints) if isinstance(keypoints, tuple) else keypoints,
        "bbox": [1, 2, 8, 9],
        "area": 50,
        **fields,
    }
    return {key: value for key, value in values.items() if value is not None}


def dataset(folder, *annotations, pictures=None, **content):
    content = {"images": [entry()], "categories": [DOG], **content}
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for name, data in (pictures or {"a.jpg": JPEG}).items():
        (folder / "images" / name).write_bytes(data)
    text = json.dumps({**content, "annotations": list(annotations)})
    (folder / "annotations.json").write_text(text)
    return folder


def read(folder, *, strict=False, **settings):
    tally = Tally(strict=strict)
    reading = coco.read(Source(folder, **settings), tally)
    return reading, [photo for photo, _ in reading.photos], tally


def only(folder, **settings):
    _, (photo,), tally = read(folder, **settings)
    (instance,) = photo.instances
    return instance, tally


def counts(read, kept, repaired, refused):
    return dict(read=read, kept=kept, repaired=repaired, refused=refused)


def test_whole_numbers_are_indices_of_pixels(tmp_path):
    dataset(tmp_path, dog(), dog((0, 0, 2, 0, 0, 0, 29, 19, 2), 1))
    reading, (photo,), tally = read(tmp_path, strict=True)
    first, second = photo.instances
    np.testing.assert_array_equal(
        first.keypoints, [[2.5, 3.5, 2], [4.5, 5.5, 1], [0, 0, 0]]
    )
    np.testing.assert_array_equal(
        second.keypoints, [[0.5, 0.5, 2], [0, 0, 0], [29.5, 19.5, 2]]
    )
    # Boxes are not moved.
    np.testing.assert_array_equal(first.box, [1, 2, 9, 11])
    assert (first.skeleton, first.area, first.track) == ("dog", 50, None)
    assert first.keypoints.dtype == first.box.dtype == np.float32
    (skeleton,) = reading.skeletons
    assert skeleton.name == "dog" and skeleton.edges == ((0, 1), (0, 2))
    assert skeleton.mirror == (0, 2, 1)
    assert photo.labelled == ("dog",) and photo.ignore is None
    assert tally.counts == {
        "photos": counts(1, 1, 0, 0),
        "instances": counts(2, 2, 0, 0),
        "keypoints": counts(4, 4, 0, 0),
    }
    assert tally.notes == {
        "labelled keypoints of files in whole numbers (indices of pixels, moved by "
        "0.5)": 4
    }


def test_fractions_are_continuous_in_the_whole_file(tmp_path):
    # That of an unlabelled keypoint says nothing.
    unlabelled = dog((1, 1, 2, 7.5, 7.5, 0, 0, 0, 0))
    instance, _ = only(dataset(tmp_path, unlabelled))
    np.testing.assert_array_equal(instance.keypoints[0], [1.5, 1.5, 2])
    dataset(tmp_path, dog(), dog((1, 1.25, 2, 0, 0, 0, 0, 0, 0), 1))
    _, (photo,), tally = read(tmp_path)
    np.testing.assert_array_equal(photo.instances[0].keypoints[0], [2, 3, 2])
    assert tally.notes == {"labelled keypoints of files in fractions (not moved)": 3}


def test_skeletons_count_from_1_or_from_0(tmp_path):
    from_0 = {**DOG, "skeleton": [[0, 1], [0, 2]]}
    reading, _, tally = read(dataset(tmp_path, dog(), categories=[from_0]))
    assert reading.skeletons[0].edges == ((0, 1), (0, 2))
    assert tally.notes["skeletons that count keypoints from 0"] == 1


POLYGON = [[2, 3, 6, 3, 6, 8, 2, 8]]  # 4 columns and 5 rows


@pytest.mark.parametrize(
    "fields, area, note",
    [
        ({"segmentation": POLYGON}, 50, 0),
        ({"segmentation": POLYGON, "area": 0}, 20, 0),
        ({}, 50, 0),
        ({"area": 0}, 72, 1),
        ({"area": -3}, 72, 1),
        ({"area": float("nan")}, 72, 1),
        ({"area": 10**400}, 72, 1),
        ({"area": "50"}, 72, 1),
        ({"area": None}, 72, 1),
        ({"segmentation": [], "area": None}, 72, 1),
    ],
)
def test_area_is_the_stated_one_else_of_the_mask_else_of_the_box(
    tmp_path, fields, area, note
):
    instance, tally = only(dataset(tmp_path, dog(**fields)), strict=True)
    assert instance.area == area
    noted = tally.notes["instances without an area (that of their box taken)"]
    assert noted == note


TWO = (10, 5, 2, 0, 0, 0, 20, 15, 1)  # at 10.5, 5.5 and 20.5, 15.5
ONE = (0, 0, 2, 0, 0, 0, 0, 0, 0)  # at 0.5, 0.5


@pytest.mark.parametrize(
    "keypoints, fields, box, repair",
    [
        # A tenth of the longer side, 10 pixels.
        (TWO, {}, [9.5, 4.5, 21.5, 16.5], ""),
        # A hundredth of the picture's longer side.
        (ONE, {}, [0.2, 0.2, 0.8, 0.8], ""),
        ((0, 0, 2, 0, 0, 0, 29, 19, 2), {}, [0, 0, 30, 20], ""),
        (TWO, {"segmentation": POLYGON}, [2, 3, 6, 8], ""),
        (TWO, {"bbox": [1, 1, 0, 5]}, [9.5, 4.5, 21.5, 16.5], "zero or negative"),
        (TWO, {"bbox": [5, 5, -2, 5]}, [9.5, 4.5, 21.5, 16.5], "zero or negative"),
        (TWO, {"bbox": [float("nan")] * 4}, [9.5, 4.5, 21.5, 16.5], "not four finite"),
        (TWO, {"bbox": [1, 2, 3]}, [9.5, 4.5, 21.5, 16.5], "not four finite"),
        (TWO, {"bbox": "1 2 3 4"}, [9.5, 4.5, 21.5, 16.5], "not four finite"),
        (TWO, {"bbox": [40, 2, 3, 3]}, [9.5, 4.5, 21.5, 16.5], "outside the picture"),
        (TWO, {"bbox": [-1, 2, 8, 9]}, [0, 2, 7, 11], "clipped"),
    ],
)
def test_a_box_that_is_missing_or_bad(tmp_path, keypoints, fields, box, repair):
    annotation = dog(keypoints, **{"bbox": None, **fields})
    instance, tally = only(dataset(tmp_path, annotation))
    np.testing.assert_allclose(instance.box, box, rtol=1e-6)
    assert tally.counts["instances"]["repaired"] == bool(repair)
    assert repair in tally.table()
    noted = tally.notes["instances without a box (that of their keypoints taken)"]
    assert noted == (fields == {})


@pytest.mark.parametrize(
    "point, reason",
    [
        ((30, 5, 2), "outside the picture"),
        ((5, -1, 1), "outside the picture"),
        ((1e300, 5, 2), "outside the picture"),
        ((float("nan"), 5, 2), "labelled, but not finite"),
        ((5, float("inf"), 1), "labelled, but not finite"),
        ((5, 5, float("nan")), "labelled, but not finite"),
        ((5, 5, 3), "of a visibility other than 0, 1 and 2"),
        ((5, 5, -1), "of a visibility other than 0, 1 and 2"),
        ((5, 5, 0.5), "of a visibility other than 0, 1 and 2"),
    ],
)
def test_a_bad_keypoint_is_lost_alone(tmp_path, point, reason):
    dataset(tmp_path, dog((2, 3, 2, *point, 0, 0, 0)))
    instance, tally = only(tmp_path)
    np.testing.assert_array_equal(
        instance.keypoints, [[2.5, 3.5, 2], [0, 0, 0], [0, 0, 0]]
    )
    assert tally.counts["keypoints"] == counts(2, 1, 0, 1)
    assert f"keypoints refused, 1: {reason} (a.jpg, annotation 0)" in tally.table()
    with pytest.raises(Damaged, match=reason):
        read(tmp_path, strict=True)


def test_an_unlabelled_keypoint_may_be_anywhere(tmp_path):
    dataset(tmp_path, dog((float("nan"), -5, 0, 99, 99, 0, 5, 5, 2)))
    instance, _ = only(tmp_path, strict=True)
    np.testing.assert_array_equal(
        instance.keypoints, [[0, 0, 0], [0, 0, 0], [5.5, 5.5, 2]]
    )


@pytest.mark.parametrize(
    "broken, reason",
    [
        (dog((1, 1, 2)), "keypoints that are not 9 numbers"),
        (dog((1, 1, 2) * 4), "keypoints that are not 9 numbers"),
        (dog((1, 1, 2) * 3 + (1,)), "keypoints that are not 9 numbers"),
        (dog(("1", 1, 2) * 3), "keypoints that are not 9 numbers"),
        (dog((None, 1, 2) * 3), "keypoints that are not 9 numbers"),
        (dog((10**400, 1, 2) * 3), "keypoints that are not 9 numbers"),
        (dog({"nose": 1}), "keypoints that are not 9 numbers"),
        (dog(None, bbox=None), "neither box nor mask nor labelled keypoint"),
        (dog((0,) * 9, bbox=None), "neither box nor mask nor labelled keypoint"),
        (dog((0,) * 9, bbox=[0, 0, 0, 0]), "box of zero or negative size"),
        (dog(category_id=99), "category 99 is not declared"),
        (dog(category_id=None), "category None is not declared"),
        (dog(image_id=7), "image_id of no image"),
        (dog(iscrowd=1, bbox=None), "crowd with neither box nor mask"),
        (dog(annotation_id=5), "the same annotation twice"),
    ],
)
def test_a_bad_annotation_is_refused_alone(tmp_path, broken, reason):
    dataset(tmp_path, dog(annotation_id=5), broken)
    _, (photo,), tally = read(tmp_path)
    assert len(photo.instances) == 1
    assert tally.counts["instances"] == counts(2, 1, 0, 1)
    assert reason in tally.table()
    with pytest.raises(Damaged, match=re.escape(reason)):
        read(tmp_path, strict=True)


def test_a_wrong_number_of_keypoints_is_repaired(tmp_path):
    dataset(tmp_path, dog(num_keypoints=3), dog(annotation_id=1, num_keypoints=2))
    _, (photo,), tally = read(tmp_path)
    assert len(photo.instances) == 2
    assert tally.counts["instances"] == counts(2, 2, 1, 0)
    assert "num_keypoints is not the number of labelled keypoints" in tally.table()


def test_instances_without_a_labelled_keypoint_are_kept(tmp_path):
    dataset(tmp_path, dog((0,) * 9), dog(None, 1))
    _, (photo,), tally = read(tmp_path, strict=True)
    assert [i.keypoints.any() for i in photo.instances] == [False, False]
    assert tally.notes["instances without a labelled keypoint"] == 2


def test_a_photo_without_instances_is_a_true_negative(tmp_path):
    _, (photo,), tally = read(dataset(tmp_path), strict=True)
    assert photo.instances == () and photo.labelled == ("dog",)
    assert tally.notes["photos without an instance"] == 1


def test_crowds_are_areas_to_ignore(tmp_path):
    # Run lengths go down the columns: 2 columns of 20 and 3 rows, then 5 on, 15 off.
    runs = [43, 5, 15, 5, 15, 5, 15, 5]
    run_lengths = {"size": [20, 30], "counts": [*runs, 600 - sum(runs)]}
    crowds = [
        dog(None, 1, iscrowd=1, segmentation=run_lengths),
        dog(None, 2, iscrowd=1, segmentation=[[10, 3, 14, 3, 14, 8, 10, 8]]),
        dog(None, 3, iscrowd=1, bbox=[19.5, 10.5, 4, 50], num_keypoints=0),
    ]
    expected = np.zeros((HEIGHT, WIDTH), bool)
    expected[3:8, 2:6] = expected[3:8, 10:14] = expected[10:, 19:24] = True
    _, (photo,), tally = read(dataset(tmp_path, dog(), *crowds), strict=False)
    np.testing.assert_array_equal(masks.to_full(photo.ignore, HEIGHT, WIDTH), expected)
    assert len(photo.instances) == 1
    assert tally.counts["instances"] == counts(1, 1, 0, 0)
    assert tally.notes["areas to ignore (crowd, without labels)"] == 3


@pytest.mark.parametrize(
    "group, names", [("category", ("dog", "cat")), ("all:Pet", ("pet",))]
)
def test_groups_are_types(tmp_path, group, names):
    dataset(tmp_path, dog(), dog(annotation_id=1, category_id=1), categories=[DOG, CAT])
    reading, (photo,), _ = read(tmp_path, group=group)
    assert tuple(s.name for s in reading.skeletons) == photo.labelled == names
    assert [i.skeleton for i in photo.instances] == [names[0], names[-1]]


def test_a_group_has_the_same_keypoints(tmp_path):
    everything = [DOG, CAT, SNAKE]
    dataset(tmp_path, dog(), categories=everything)
    reading, *_ = read(tmp_path, group="supercategory")
    assert [s.name for s in reading.skeletons] == ["pet", "wild"]
    message = "--group=all:animal makes one type of 'Dog' and 'snake', whose keypoints"
    with pytest.raises(ValueError, match=message):
        read(tmp_path, group="all:animal")


def test_categories_without_keypoints_are_left_out(tmp_path):
    ball = {"id": 9, "name": "ball"}
    dataset(tmp_path, dog(), dog(None, 1, category_id=9), categories=[DOG, ball])
    _, (photo,), tally = read(tmp_path, strict=True)
    assert photo.labelled == ("dog",) and len(photo.instances) == 1
    noted = tally.notes["annotations of categories without keypoints, left out"]
    assert noted == 1


def test_categories_that_mean_none(tmp_path):
    dataset(tmp_path, dog(), dog(annotation_id=1, category_id=1), categories=[DOG, CAT])
    _, (photo,), tally = read(tmp_path, none=["cat"], strict=True)
    assert photo.labelled == ("dog",) and len(photo.instances) == 1
    assert tally.notes["annotations of cat, which means none"] == 1


def test_a_known_skeletons_names_give_what_the_file_lacks(tmp_path):
    person = {"id": 0, "name": "person", "keypoints": list(skeletons.COCO.keypoints)}
    annotation = dog((2, 3, 2) * 17)
    dataset(tmp_path, annotation, categories=[{**person, "skeleton": []}])
    reading, _, _ = read(tmp_path)
    (skeleton,) = reading.skeletons
    assert skeleton.name == "person"
    assert skeleton.edges == skeletons.COCO.edges
    assert skeleton.sigmas == skeletons.COCO.sigmas


def without_edges(**fields):
    return [{**DOG, "skeleton": [], **fields}]


GIVEN = skeletons.from_names(
    "hound", ["Nose", "left-paw", "right paw"], [("Nose", "left-paw")], None
)


@pytest.mark.parametrize("categories", [[DOG], without_edges(), without_edges(id=0)])
def test_a_skeleton_of_the_users_goes_first(tmp_path, categories):
    dataset(tmp_path, dog(), categories=categories)
    reading, (photo,), _ = read(tmp_path, skeleton=GIVEN)
    (skeleton,) = reading.skeletons
    assert skeleton.name == photo.instances[0].skeleton == "dog"
    assert skeleton.edges == GIVEN.edges and skeleton.mirror is None


def test_categories_may_be_missing_or_say_nothing_of_keypoints(tmp_path):
    dataset(tmp_path, dog(), categories=None)
    with pytest.raises(ValueError, match=r"no categories; --group=all:NAME"):
        read(tmp_path, skeleton=GIVEN)
    instance, _ = only(tmp_path, skeleton=GIVEN, group="all:Dog")
    assert instance.skeleton == "dog"
    dataset(tmp_path, dog(), categories=[{"id": 0, "name": "wolf"}])
    instance, _ = only(tmp_path, skeleton=GIVEN)
    assert instance.skeleton == "wolf"


@pytest.mark.parametrize(
    "categories, skeleton, message",
    [
        (without_edges(), None, "'dog' has no edges.* --skeleton"),
        (without_edges(keypoints=["nose", "a", "b"]), GIVEN, "keypoint 1 is 'a', but"),
        ([SNAKE], GIVEN, "2 keypoints, but --skeleton has 3"),
        (without_edges(keypoints=["nose", 3]), None, "keypoints of 'Dog' are no names"),
        (without_edges(keypoints="nose"), None, "keypoints of 'Dog' are no names"),
        (without_edges(skeleton=[[1, 2, 3]]), None, "skeleton of 'Dog' is no list"),
        (without_edges(skeleton=[["nose", "x"]]), None, "skeleton of 'Dog' is no list"),
        (without_edges(skeleton=5), None, "skeleton of 'Dog' is no list"),
        (without_edges(skeleton=[[1, 4]]), None, "does not join two of the 3"),
        (without_edges(keypoints=["a", "a", "b"], skeleton=[[1, 2]]), None, "twice"),
    ],
)
def test_a_skeleton_that_does_not_fit(tmp_path, categories, skeleton, message):
    with pytest.raises(ValueError, match=message):
        read(dataset(tmp_path, categories=categories), skeleton=skeleton)


def test_keypoints_of_hands_and_feet_are_noted(tmp_path):
    dataset(tmp_path, dog(foot_kpts=[1, 1, 2]), dog(annotation_id=1))
    _, (photo,), tally = read(tmp_path, strict=True)
    assert len(photo.instances) == 2
    assert tally.notes["annotations with foot_kpts, which are not read"] == 1


@pytest.mark.parametrize(
    "image, data, reason",
    [
        (entry(1, "b.jpg"), JPEG[:-20], "truncated JPEG"),
        (entry(1, "b.jpg"), b"", "0 bytes"),
        (entry(1, "b.jpg"), b"this is text", "not a picture"),
        (entry(1, "b.jpg", HEIGHT, WIDTH), JPEG, "transposed: annotated as 20x30"),
        (entry(1, "b.jpg", 640, 480), JPEG, "another size: annotated as 640x480"),
        (entry(1, "../../etc/passwd"), None, "leaves the folder of images"),
        (entry(1, "b.jpg"), None, "cannot read it"),
        (entry(0, "b.jpg"), JPEG, "id of an earlier image"),
    ],
)
def test_a_bad_photo_is_refused_alone(tmp_path, image, data, reason):
    pictures = {"a.jpg": JPEG} | ({} if data is None else {"b.jpg": data})
    annotations = [dog(), dog(annotation_id=1, image_id=image["id"])]
    images = [entry(), image]
    dataset(tmp_path, *annotations, pictures=pictures, images=images)
    _, (photo,), tally = read(tmp_path)
    assert photo.name == "a.jpg"
    assert tally.counts["photos"] == counts(2, 1, 0, 1)
    assert reason in tally.table()
    instances = tally.counts["instances"]
    assert instances["read"] == 2 == instances["kept"] + instances["refused"]
    with pytest.raises(Damaged, match=re.escape(reason)):
        read(tmp_path, strict=True)


def test_a_photo_on_its_side(tmp_path):
    tag = struct.pack("<IHHHIHHI", 8, 1, 0x112, 3, 1, 6, 0, 0)  # a quarter turn
    block = b"Exif\0\0II*\0" + tag
    turned = JPEG[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block
    pictures = {"a.jpg": turned + JPEG[2:]}
    upright = [entry(width=HEIGHT, height=WIDTH)]
    dataset(tmp_path, dog((2, 25, 2) * 3), pictures=pictures, images=upright)
    instance, _ = only(tmp_path)
    np.testing.assert_array_equal(instance.keypoints, [[2.5, 25.5, 2]] * 3)
    dataset(tmp_path, dog((25, 2, 2) * 3), pictures=pictures)
    _, photos, tally = read(tmp_path)
    assert not photos and "want --noapply_exif" in tally.table()
    instance, _ = only(tmp_path, apply_exif=False)
    np.testing.assert_array_equal(instance.keypoints, [[25.5, 2.5, 2]] * 3)


@pytest.mark.parametrize("name", ["a b.jpg", "写真 ñ.jpg"])
def test_pictures_may_lie_beside_the_annotations(tmp_path, name):
    dataset(tmp_path, dog(), pictures={name: JPEG}, images=[entry(name=name)])
    (tmp_path / "images" / name).rename(tmp_path / name)
    (tmp_path / "images").rmdir()
    _, (photo,), _ = read(tmp_path)
    assert photo.name == name


def build(*arguments, status=0):
    return run("data_prep.build", *arguments, status=status)


def test_command_line_writes_what_was_read(tmp_path):
    folder = dataset(
        tmp_path / "in",
        dog(bbox=[-1, 2, 8, 9]),
        dog((2, 3, 2, 99, 5, 2, 6, 6, 1), 1, category_id=2),
        pictures={"a.jpg": JPEG, "b.jpg": b"hello"},
        images=[entry(), entry(1, "b.jpg")],
        categories=[{**DOG, "keypoints": ["nose", "neck", "tail"]}, SNAKE],
    )
    arguments = (f"--input={folder}", f"--output={tmp_path / 'out'}")
    done = build(*arguments)
    summary = result(done)
    assert summary.pop("seconds") > 0
    note = "labelled keypoints of files in whole numbers (indices of pixels, moved by "
    assert summary == {
        "experiment": None,
        "output": str(tmp_path / "out"),
        "split": "train",
        "counts": {
            "photos": counts(2, 1, 0, 1),
            "instances": counts(2, 1, 1, 1),
            "keypoints": counts(2, 2, 0, 0),
            "notes": {f"{note}0.5)": 5},
            "videos": 0,
            "skeletons": {
                "dog": {
                    "instances": 1,
                    "keypoints": {
                        "nose": [0, 0, 1],
                        "neck": [0, 1, 0],
                        "tail": [1, 0, 0],
                    },
                },
                "snake": {
                    "instances": 0,
                    "keypoints": {"head": [0] * 3, "tail": [0] * 3},
                },
            },
        },
    }
    for text in (
        "keypoints that are not 6 numbers (a.jpg, annotation 1)",
        "not a picture, or a damaged one (b.jpg)",
        "type dog: 1 instances",
        "mirror pairs are not known",
    ):
        assert text in done.stdout
    assert "parts that no edge joins" not in done.stdout
    source = keypoint_images.KeypointImages(tmp_path / "out", "train")
    (instance,) = source[0].instances
    np.testing.assert_array_equal(
        instance.keypoints, [[2.5, 3.5, 2], [4.5, 5.5, 1], [0, 0, 0]]
    )

    again = build(*arguments, status=2)
    assert "add --overwrite" in again.stderr
    strict = build(*arguments, "--split=val", "--strict", status=1)
    assert strict.stderr.startswith("error: a.jpg, annotation 0: box clipped")


def test_command_line_has_no_use_for_a_skeleton_without_keypoints(tmp_path):
    thing = "<object><name>dog</name></object>"
    for part, name, data in (
        ("Annotations", "a.xml", f"<annotation>{thing}</annotation>".encode()),
        ("JPEGImages", "a.jpg", JPEG),
    ):
        (tmp_path / part).mkdir()
        (tmp_path / part / name).write_bytes(data)
    arguments = "--source=voc", f"--input={tmp_path}", "--output=x", "--skeleton=coco"
    done = build(*arguments, status=2)
    (line,) = done.stderr.splitlines()
    assert line == "error: --skeleton=coco: --source=voc has no keypoints; leave it out"


def test_command_line_has_no_use_for_a_face_detector_with_keypoints(tmp_path):
    dataset(tmp_path, dog())
    arguments = f"--input={tmp_path}", f"--output={tmp_path / 'out'}"
    done = build(*arguments, "--face_detector=whole", status=2)
    assert not (tmp_path / "out").exists()
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: --face_detector=whole: --source=coco is read for ")
    assert line.endswith("; leave it out")


@pytest.mark.parametrize("crowd", ["0", "1", 2, [], float("nan")])
def test_a_crowd_is_0_or_1(tmp_path, crowd):
    _, (photo,), tally = read(dataset(tmp_path, dog(iscrowd=crowd)))
    assert photo.instances == () and photo.ignore is None
    assert "instances refused, 1: iscrowd" in tally.table()


def test_nesting_without_end(tmp_path):
    text = dataset(tmp_path, dog(extra="here")).joinpath("annotations.json").read_text()
    (tmp_path / "annotations.json").write_text(
        text.replace('"here"', "[" * 900 + "]" * 900)
    )
    _, (photo,), _ = read(tmp_path, strict=True)
    assert len(photo.instances) == 1
    (tmp_path / "annotations.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"annotations\.json: not JSON"):
        read(tmp_path)


@pytest.mark.parametrize("width", [str(WIDTH), [], {}])
def test_a_size_that_is_no_number(tmp_path, width):
    _, photos, tally = read(dataset(tmp_path, images=[entry(width=width)]))
    assert photos == [] and "no numbers of pixels (a.jpg)" in tally.table()


@pytest.mark.parametrize("name", ["\ud800.jpg", "\udce9.jpg", "a\n\x1b[2J.jpg"])
def test_names_that_no_terminal_should_be_given(tmp_path, name):
    _, photos, tally = read(dataset(tmp_path, dog(), images=[entry(name=name)]))
    assert photos == [] and tally.counts["photos"]["refused"] == 1
    assert all(line.isprintable() for line in tally.table().splitlines())
    assert ascii(name)[1:-1] in tally.table()


def test_command_line_says_why_there_is_no_photo(tmp_path):
    dataset(tmp_path, dog(), images=[entry(name="b.jpg")])
    done = build(f"--input={tmp_path}", f"--output={tmp_path}/out", status=1)
    assert "Traceback" not in done.stderr
    assert "not one photo" in done.stderr
    assert "cannot read it: No such file or directory (b.jpg)" in done.stdout
