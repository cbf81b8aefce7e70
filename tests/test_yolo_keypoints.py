import re

import cv2
import numpy as np
import pytest

from data_prep.readers import Damaged, Source, Tally, yolo
from facekp_jax import skeletons

HEIGHT, WIDTH = 20, 30
PICTURE = cv2.imencode(".png", np.full((HEIGHT, WIDTH, 3), 90, np.uint8))[1].tobytes()
NAMES = "names: [Dog, cat]\n"
POSE = f"{NAMES}kpt_shape: [3, 3]\n"
BOX = "0 0.5 0.5 0.2 0.4"  # 12..18 across, 6..14 down
LINE = f"{BOX} 0.4 0.5 2 0.6 0.25 1 0 0 0"
DOG = skeletons.from_names(
    "hound", ("nose", "left", "right"), [("nose", "left"), ("nose", "right")], None
)


def dataset(folder, text=LINE, *, yaml=POSE):
    for part in ("images", "labels"):
        (folder / part).mkdir(exist_ok=True)
    (folder / "images" / "a.png").write_bytes(PICTURE)
    (folder / "labels" / "a.txt").write_text(text)
    (folder / "data.yaml").write_text(yaml)
    return folder


def read(folder, *, strict=False, skeleton=DOG, **settings):
    tally = Tally(strict=strict)
    reading = yolo.read(Source(folder, skeleton=skeleton, **settings), tally)
    return reading, [photo for photo, _ in reading.photos], tally


def test_keypoints_are_parts_of_the_size(tmp_path):
    reading, (photo,), tally = read(dataset(tmp_path), strict=True)
    assert photo.labelled == ("dog", "cat")
    assert [s.name for s in reading.skeletons] == ["dog", "cat"]
    (instance,) = photo.instances
    np.testing.assert_allclose(
        instance.keypoints, [[12, 10, 2], [18, 5, 1], [0, 0, 0]], rtol=1e-6
    )
    np.testing.assert_allclose(instance.box, [12, 6, 18, 14], rtol=1e-6)
    assert instance.skeleton == "dog" and instance.area == pytest.approx(48)
    assert tally.counts["keypoints"]["kept"] == 2


def test_of_two_numbers_only_zeros_are_unlabelled(tmp_path):
    line = f"{BOX} 0.4 0.5 0 0 0 0.5"
    dataset(tmp_path, line, yaml=f"{NAMES}kpt_shape: [3, 2]")
    _, (photo,), _ = read(tmp_path, strict=True)
    np.testing.assert_allclose(
        photo.instances[0].keypoints, [[12, 10, 2], [0, 0, 0], [0, 10, 2]], rtol=1e-6
    )


def test_one_type_of_all_classes(tmp_path):
    _, (photo,), _ = read(dataset(tmp_path), group="all:pet")
    assert photo.labelled == ("pet",) and photo.instances[0].skeleton == "pet"
    (tmp_path / "data.yaml").write_text("kpt_shape: [3, 3]")
    _, (photo,), _ = read(tmp_path, group="all:pet")
    assert photo.instances[0].skeleton == "pet"


@pytest.mark.parametrize(
    "line, reason",
    [
        (BOX, "line of 5 numbers instead of 14"),
        (f"{LINE} 0.5", "line of 15 numbers instead of 14"),
        (LINE.replace("0.25", "x"), "something else than numbers"),
        (LINE.replace("0.2 0.4", "0.2 nan", 1), "not four finite numbers"),
        (LINE.replace("0.5 0.5", "12 10", 1), "not in parts of the picture"),
        (LINE.replace("0", "7", 1), "category 7 is not declared"),
        (f"{LINE}\n{LINE}", "the same annotation twice"),
        (f"{BOX[:-8]} 0 0.4" + " 0 0 0" * 3, "box of zero or negative size"),
    ],
)
def test_a_bad_line_is_refused_alone(tmp_path, line, reason):
    dataset(tmp_path, f"1 0.5 0.5 1 1{' 0.5 0.5 2' * 3}\n{line}")
    _, (photo,), tally = read(tmp_path)
    account = tally.counts["instances"]
    assert len(photo.instances) == account["kept"] == account["read"] - 1
    assert reason in tally.table() and "(a.png, line " in tally.table()
    with pytest.raises(Damaged, match=re.escape(reason)):
        read(tmp_path, strict=True)


@pytest.mark.parametrize(
    "point, reason",
    [
        ("1.1 0.5 2", "outside the picture"),
        ("-0.001 0.5 1", "outside the picture"),
        ("nan 0.5 2", "labelled, but not finite"),
        ("0.5 0.5 0.9", "of a visibility other than"),
    ],
)
def test_a_bad_keypoint_is_lost_alone(tmp_path, point, reason):
    dataset(tmp_path, LINE.replace("0.4 0.5 2", point))
    _, (photo,), tally = read(tmp_path)
    np.testing.assert_allclose(
        photo.instances[0].keypoints, [[0, 0, 0], [18, 5, 1], [0, 0, 0]], rtol=1e-6
    )
    assert f"keypoints refused, 1: {reason}" in tally.table()


@pytest.mark.parametrize(
    "yaml, mirror",
    [
        (POSE, None),
        (f"{POSE}flip_idx: [0, 1, 2]", None),
        (f"{POSE}flip_idx: [0, 2, 1]", (0, 2, 1)),
    ],
)
def test_mirror_pairs(tmp_path, yaml, mirror):
    reading, *_ = read(dataset(tmp_path, yaml=yaml))
    assert [s.mirror for s in reading.skeletons] == [mirror, mirror]


def test_names_of_a_known_skeleton_need_no_other(tmp_path):
    names = list(skeletons.COCO.keypoints)
    line = BOX + " 0.5 0.5 2" * 17
    for said in (names, {0: names, 1: names}):
        yaml = f"{NAMES}kpt_shape: [17, 3]\nkpt_names: {said}"
        reading, *_ = read(dataset(tmp_path, line, yaml=yaml), skeleton=None)
        assert reading.skeletons[1].edges == skeletons.COCO.edges
        assert reading.skeletons[1].mirror == skeletons.COCO.mirror


@pytest.mark.parametrize(
    "yaml, skeleton, message",
    [
        (POSE, None, "keypoints of dog have no names; .* --skeleton"),
        (NAMES, DOG, "no kpt_shape, so that .* leave out --skeleton"),
        (POSE, skeletons.COCO, "kpt_shape has 3 keypoints, but the skeleton has 17"),
        (f"{POSE}flip_idx: [0, 2]", DOG, "flip_idx is .0, 2.; it orders 3"),
        (f"{POSE}flip_idx: [0, 1, 1]", DOG, "it orders 3 keypoints"),
        (f"{POSE}flip_idx: [1, 2, 0]", DOG, "flip_idx .* must exchange pairs"),
        (f"{POSE}flip_idx: left", DOG, "flip_idx is left; it orders 3"),
        (f"{POSE}kpt_names: [nose, l, r]", DOG, "keypoint 1 is 'l', but .* 'left'"),
        (f"{POSE}kpt_names: nose", DOG, "kpt_names is nose; it is one list"),
        (f"{POSE}kpt_names: {{0: [a], 1: [b]}}", DOG, "it is one list of names"),
    ],
)
def test_a_skeleton_that_does_not_fit(tmp_path, yaml, skeleton, message):
    with pytest.raises(ValueError, match=message):
        read(dataset(tmp_path, yaml=yaml), skeleton=skeleton)


def test_mirror_pairs_that_disagree(tmp_path):
    skeleton = skeletons.from_names(
        "hound", DOG.keypoints, [("nose", "left")], [("left", "right")]
    )
    dataset(tmp_path, yaml=f"{POSE}flip_idx: [1, 0, 2]")
    with pytest.raises(ValueError, match=r"flip_idx is \[1, 0, 2\], but .*\[0, 2, 1\]"):
        read(tmp_path, skeleton=skeleton)


def test_numbers_beyond_all_pictures(tmp_path):
    dataset(tmp_path, f"{BOX} 1e308 0.5 2 inf 0.25 1 0.5 0.5 2")
    _, (photo,), tally = read(tmp_path)
    assert photo.instances[0].keypoints[:, 2].tolist() == [0, 0, 2]
    assert tally.counts["keypoints"]["refused"] == 2


@pytest.mark.parametrize(
    "yaml, message",
    [
        ("names: " + "[" * 5000, "data.yaml: not YAML"),
        ("a: !!int ''", "data.yaml: not YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, yaml, message):
    with pytest.raises(ValueError, match=message):
        read(dataset(tmp_path, yaml=yaml))
