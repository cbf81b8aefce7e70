"""Samples of instances and of whole photos, and the way back."""

import dataclasses

import numpy as np
import pytest

from facekp_jax import geometry, keypoint_crops
from facekp_jax.keypoint_crops import Augmentation
from facekp_jax.records import Instance, KeypointImage, Patch
from facekp_jax.skeletons import Skeleton

# A chain of two arms about a head: left hand, left arm, head, right arm, right hand.
ARMS = Skeleton(
    "arms",
    ("left_hand", "left_arm", "head", "right_arm", "right_hand"),
    ((0, 1), (1, 2), (2, 3), (3, 4)),
    (4, 3, 2, 1, 0),
    (0.05,) * 5,
)
STICK = Skeleton("stick", ("top", "bottom"), ((0, 1),), None, (0.05,) * 2)
SIZE = 64, 48
BORDER = 127  # what the crop shows beyond the photo
OFF = Augmentation(**{field.name: 0 for field in dataclasses.fields(Augmentation)})
MOVES = dataclasses.replace(OFF, scale=0.3, rotation=45.0, shift=0.05, flip=0.5)


def instance_of(points, box, skeleton=ARMS, **options):
    """`points`: keypoint number -> (x, y) or (x, y, visibility); others unlabelled."""
    keypoints = np.zeros((len(skeleton.keypoints), 3), np.float32)
    for number, point in points.items():
        keypoints[number] = (*point, 2)[:3]
    box = np.array(box, np.float32)
    area = float(np.prod(box[2:] - box[:2]))
    return Instance(skeleton.name, keypoints, box, area, **options)


def photo_of(*instances, image=None, size=(120, 160), **options):
    if image is None:
        image = np.full((*size, 3), 90, np.uint8)
    options = {"labelled": ("arms", "stick")} | options
    return KeypointImage("photo", image, instances, **options)


def sample_of(photo, matrix=None, number=0, skeletons=(ARMS,), size=SIZE, **options):
    if matrix is None:
        matrix = keypoint_crops.crop_matrix(photo.instances[number].box, size)
    return keypoint_crops.instance_sample(
        photo, number, matrix, size, skeletons, **options
    )


def whole_of(
    photo, matrix=None, skeletons=(ARMS, STICK), size=(60, 80), room=3, **rest
):
    if matrix is None:
        height, width = photo.image.shape[:2]
        matrix = keypoint_crops.crop_matrix([0, 0, width, height], size)
    return keypoint_crops.photo_sample(photo, matrix, size, skeletons, room, **rest)


def dot(height, width, point, sigma):
    y, x = np.mgrid[:height, :width] + 0.5
    squared = (x - point[0]) ** 2 + (y - point[1]) ** 2
    levels = BORDER + (250 - BORDER) * np.exp(-squared / (2 * sigma**2))
    return np.rint(levels).astype(np.uint8)[..., None].repeat(3, -1)


def centroid(image):
    weights = image[..., 0].astype(float) - BORDER
    y, x = np.mgrid[: image.shape[0], : image.shape[1]] + 0.5
    return np.array([(x * weights).sum(), (y * weights).sum()]) / weights.sum()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("shrink", [0.3, 0.8, 1.0, 2.2, 6.0])
def test_a_drawn_dot_is_where_the_label_says(shrink, seed):
    size = (128, 96) if shrink >= 1 else (192, 160)
    rng = np.random.default_rng(seed)
    extent = np.array(size[::-1]) * shrink
    width, height = np.ceil(extent).astype(int) + rng.integers(0, 9, 2)
    point = extent * rng.uniform(0.45, 0.55, 2)
    image = dot(height, width, point, sigma=max(2.5, 2.5 * shrink))
    person = instance_of({1: point}, [0, 0, *extent])
    matrix = keypoint_crops.instance_matrix(person, ARMS, size, 0.1, MOVES, rng)
    arrays = sample_of(photo_of(person, image=image), matrix, size=size)
    shown = np.flatnonzero(arrays["keypoints"][:, 2])
    assert shown == (3 if np.linalg.det(matrix[:, :2]) < 0 else 1)
    label = arrays["keypoints"][shown[0], :2]
    np.testing.assert_allclose(centroid(arrays["image"]), label, atol=0.05)
    back = geometry.transform_points(geometry.invert(matrix), label)
    np.testing.assert_allclose(back, point, atol=0.01)


def test_the_seeds_above_see_both_sides():
    person = instance_of({1: (9, 9)}, [0, 0, 40, 40])
    signs = {
        np.sign(np.linalg.det(matrix[:, :2]))
        for rng in map(np.random.default_rng, range(12))
        for matrix in [
            keypoint_crops.instance_matrix(person, ARMS, SIZE, 0.1, MOVES, rng)
        ]
    }
    assert signs == {-1.0, 1.0}


def test_prediction_cuts_the_box_with_its_margin():
    # 20 wide, 40 high: of the aspect 48 to 64, 30 wide; a tenth more on each side.
    matrix = keypoint_crops.crop_matrix([50, 20, 70, 60], SIZE, 0.1)
    corners = geometry.transform_points(matrix, [[42, 16], [78, 64], [60, 40]])
    np.testing.assert_allclose(corners, [[0, 0], [48, 64], [24, 32]], atol=1e-9)


def test_augmented_matrices_stay_in_their_ranges():
    plain = keypoint_crops.crop_matrix([50, 20, 70, 60], SIZE)
    scales, angles, mirrored = [], [], []
    for seed in range(80):
        matrix = keypoint_crops.crop_matrix(
            [50, 20, 70, 60], SIZE, 0.0, MOVES, np.random.default_rng(seed)
        )
        change = matrix[:, :2] @ np.linalg.inv(plain[:, :2])
        sign = np.sign(np.linalg.det(change))
        turn = np.diag([sign, 1.0]) @ change
        scales.append(np.sqrt(np.linalg.det(turn)))
        angles.append(np.degrees(np.arctan2(turn[1, 0], turn[0, 0])))
        mirrored.append(sign < 0)
        np.testing.assert_allclose(
            turn @ turn.T, np.eye(2) * scales[-1] ** 2, atol=1e-9
        )
        # The crop's centre is that of the box, shifted by a share of the framed box.
        there = geometry.transform_points(geometry.invert(matrix), [24, 32])
        assert (np.abs(there - [60, 40]) <= 0.05 * np.array([30, 40]) + 1e-9).all()
    assert 1 / 1.3 <= min(scales) < 0.85 and 1.15 < max(scales) <= 1.3
    assert -45 <= min(angles) < -30 and 30 < max(angles) <= 45
    assert 20 < sum(mirrored) < 60


def test_a_mirrored_picture_exchanges_left_and_right():
    size = 40, 80
    person = instance_of(
        {0: (0, 5), 1: (0.5, 6), 2: (40, 7, 1), 3: (79.5, 8), 4: (80, 9)},
        [0, 0, 80, 40],
    )
    matrix = geometry.crop_matrix([0, 0, 80, 40], size, flip=True)
    photo = photo_of(person, size=size)
    once = sample_of(photo, matrix, size=size)["keypoints"]
    expected = [[0, 9, 2], [0.5, 8, 2], [40, 7, 1], [79.5, 6, 2], [80, 5, 2]]
    np.testing.assert_array_equal(once, expected)
    turned = dataclasses.replace(person, keypoints=once)
    twice = sample_of(photo_of(turned, size=size), matrix, size=size)["keypoints"]
    np.testing.assert_array_equal(twice, person.keypoints)


def test_a_skeleton_without_mirror_pairs_is_never_mirrored():
    person = instance_of({0: (9, 9)}, [0, 0, 40, 40], STICK)
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"'stick'.*mirror pairs.*flip=0"):
        keypoint_crops.instance_matrix(person, STICK, SIZE, 0.1, MOVES, rng)
    with pytest.raises(ValueError, match="'stick'"):
        keypoint_crops.check_mirrors(MOVES, [ARMS, STICK])
    with pytest.raises(ValueError, match="'stick'"):
        matrix = geometry.crop_matrix([0, 0, 48, 64], SIZE, flip=True)
        sample_of(photo_of(person), matrix, skeletons=[STICK])
    still = dataclasses.replace(MOVES, flip=0.0)
    keypoint_crops.check_mirrors(still, [STICK])
    matrix = keypoint_crops.instance_matrix(person, STICK, SIZE, 0.1, still, rng)
    assert np.linalg.det(matrix[:, :2]) > 0


def test_keypoints_keep_their_number_and_their_visibility():
    person = instance_of(
        {0: (50, 20), 1: (60, 30, 1), 3: (70.5, 30), 4: (60, 60, 1)}, [50, 20, 70, 60]
    )
    photo = photo_of(person)
    matrix = keypoint_crops.crop_matrix([50, 20, 80, 60], SIZE)  # 1.6 times larger
    arrays = sample_of(photo, matrix, skeletons=[STICK, ARMS])
    np.testing.assert_allclose(
        arrays["keypoints"],
        [[0, 0, 2], [16, 16, 1], [0, 0, 0], [32.8, 16, 2], [16, 64, 1]],
        atol=1e-5,
    )
    assert arrays["skeleton"] == 1
    np.testing.assert_allclose(arrays["box"], [0, 0, 32, 64], atol=1e-5)
    cut = keypoint_crops.crop_matrix([50, 20, 65, 40], SIZE)
    seen = sample_of(photo, cut)["keypoints"]
    np.testing.assert_array_equal(seen[:, 2], [2, 1, 0, 0, 0])
    np.testing.assert_array_equal(seen[2:], 0)


def test_shapes_are_those_of_the_largest_skeleton():
    stick = instance_of({1: (50, 40)}, [30, 20, 70, 60], STICK)
    arrays = sample_of(photo_of(stick), skeletons=[ARMS, STICK])
    assert {key: (value.shape, value.dtype) for key, value in arrays.items()} == {
        "image": ((64, 48, 3), np.uint8),
        "keypoints": ((5, 3), np.float32),
        "skeleton": ((), np.int32),
        "box": ((4,), np.float32),
        "ignore": ((16, 12), np.uint8),
    }
    np.testing.assert_array_equal(arrays["keypoints"][:, 2], [0, 2, 0, 0, 0])


@pytest.mark.parametrize(
    "points", [{}, {2: (60, 40)}, {2: (0, 0)}], ids=["none", "one", "at the corner"]
)
@pytest.mark.parametrize("box", [(50, 20, 70, 60), (60, 40, 60, 40), (-9, -9, 5, 5)])
def test_few_keypoints_and_odd_boxes_are_valid(points, box):
    person = instance_of(points, box)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        always = dataclasses.replace(Augmentation(), half_body=1, occlusion=1)
        matrix = keypoint_crops.instance_matrix(person, ARMS, SIZE, 0.1, always, rng)
        arrays = sample_of(photo_of(person), matrix, augmentation=always, rng=rng)
        assert arrays["image"].shape == (*SIZE, 3)
        assert all(
            np.isfinite(value).all() for k, value in arrays.items() if k != "name"
        )
        assert np.count_nonzero(arrays["keypoints"][:, 2]) <= len(points)


def test_an_instance_outside_of_the_photo_sees_the_border():
    person = instance_of({}, [500, 500, 560, 580])
    arrays = sample_of(photo_of(person))
    np.testing.assert_array_equal(arrays["image"], BORDER)
    assert not arrays["keypoints"].any()


def test_an_unknown_skeleton_is_named():
    person = instance_of({0: (9, 9)}, [0, 0, 40, 40], STICK)
    with pytest.raises(ValueError, match=r"photo: an instance of 'stick'.*only arms"):
        sample_of(photo_of(person))


def test_a_crop_is_a_multiple_of_four():
    person = instance_of({0: (9, 9)}, [0, 0, 40, 40])
    with pytest.raises(ValueError, match="62 x 48"):
        sample_of(photo_of(person), size=(62, 48))


def test_half_of_a_body_is_connected_and_compact():
    points = {0: (10, 50), 1: (20, 40), 2: (30, 10), 3: (40, 40), 4: (50, 50)}
    person = instance_of(points, [0, 0, 60, 60])
    boxes = {
        tuple(keypoint_crops.half_body(person.keypoints, ARMS, rng))
        for rng in map(np.random.default_rng, range(30))
    }
    # Three neighbours of the chain of five, from any start: the left arm and the head,
    # the head and an arm at each side, the right arm and the head; widened by a fifth.
    assert boxes == {(2, 2, 38, 58), (14, 4, 46, 46), (22, 2, 58, 58)}


def test_unlabelled_keypoints_are_crossed_and_do_not_count():
    points = {0: (10, 10), 1: (20, 10), 2: (30, 10), 4: (60, 10)}
    person = instance_of(points, [0, 0, 60, 60])
    assert (
        keypoint_crops.half_body(person.keypoints, ARMS, np.random.default_rng(0))
        is None
    )  # two of four
    points = {0: (10, 10), 1: (20, 10), 2: (30, 10), 3: (40, 10), 4: (60, 10)}
    split = dataclasses.replace(ARMS, edges=((0, 1), (2, 3), (3, 4)))
    person = instance_of(points, [0, 0, 60, 60])
    boxes = {
        None if box is None else tuple(box)
        for rng in map(np.random.default_rng, range(20))
        for box in [keypoint_crops.half_body(person.keypoints, split, rng)]
    }
    assert boxes == {None, (24, 4, 66, 16)}


def test_a_half_body_crop_shows_the_half():
    points = {0: (10, 50), 1: (20, 40), 2: (30, 10), 3: (140, 40), 4: (150, 50)}
    person = instance_of(points, [0, 0, 160, 60])
    half = dataclasses.replace(OFF, half_body=1.0)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        matrix = keypoint_crops.instance_matrix(person, ARMS, SIZE, 0.0, half, rng)
        seen = sample_of(photo_of(person), matrix)["keypoints"]
        assert np.count_nonzero(seen[:, 2]) >= 3
    assert {np.count_nonzero(seen[:, 2])} <= {3, 4, 5}


def test_covered_keypoints_are_no_longer_visible():
    points = {number: (52 + 4 * number, 40, 2 - number % 2) for number in range(5)}
    person = instance_of(points, [50, 20, 74, 60])
    cover = dataclasses.replace(OFF, occlusion=1.0)
    image = np.random.default_rng(0).integers(0, 120, (120, 160, 3), np.uint8)
    photo = photo_of(person, image=image)
    plain = sample_of(photo)
    hidden = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        arrays = sample_of(photo, augmentation=cover, rng=rng)
        changed = (arrays["image"] != plain["image"]).any(axis=-1)
        assert changed.mean() < 0.25
        for before, after in zip(plain["keypoints"], arrays["keypoints"], strict=True):
            np.testing.assert_array_equal(after[:2], before[:2])
            x, y = after[:2].astype(int)
            if after[2] != before[2]:
                assert (before[2], after[2]) == (2, 1)
                # A pixel may keep its colour by chance, its neighbours do not.
                assert changed[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2].any()
                hidden += 1
            elif before[2] == 2:
                assert not changed[y, x]
    assert 10 < hidden < 100


def test_colours_vary_around_those_of_the_photo():
    image = np.zeros((64, 48, 3), np.uint8)
    image[:] = 150, 100, 60
    person = instance_of({}, [0, 0, 48, 64])
    photo = photo_of(person, image=image)
    light = dataclasses.replace(
        OFF, brightness=30.0, contrast=0.3, saturation=0.4, tint=0.1
    )
    means = []
    for seed in range(40):
        crop = sample_of(photo, augmentation=light, rng=np.random.default_rng(seed))
        means.append(crop["image"].reshape(-1, 3).mean(axis=0))
    means = np.array(means)
    assert (means.std(axis=0) > 8).all()
    np.testing.assert_allclose(means.mean(axis=0), [150, 100, 60], atol=12)
    ratios = means[:, 0] - means[:, 2]
    assert ratios.max() > 1.3 * 90 and ratios.min() < 0.75 * 90

    grey = dataclasses.replace(light, grey=1.0)
    crop = sample_of(photo, augmentation=grey, rng=np.random.default_rng(0))["image"]
    assert np.ptp(crop, axis=-1).max() == 0


@pytest.mark.parametrize("kind", ["blur", "noise"])
def test_blur_smooths_and_noise_roughens(kind):
    rng = np.random.default_rng(2)
    image = np.where(rng.random((64, 48, 1)) < 0.5, 90, 170).astype(np.uint8)
    photo = photo_of(instance_of({}, [0, 0, 48, 64]), image=image.repeat(3, 2))
    change = dataclasses.replace(OFF, **{kind: 1.0})
    plain = sample_of(photo)["image"].astype(float)
    got = sample_of(photo, augmentation=change, rng=rng)["image"].astype(float)
    assert abs(got.mean() - plain.mean()) < 2
    if kind == "blur":
        assert got.std() < 0.9 * plain.std()
    else:
        assert 1 < (got - plain).std() < 16 and len(np.unique(got)) > 20


def test_nothing_varies_where_all_is_off():
    rng = np.random.default_rng(3)
    image = rng.integers(0, 256, (120, 160, 3), np.uint8)
    person = instance_of({0: (55, 30), 4: (62, 50)}, [50, 20, 74, 60])
    photo = photo_of(person, image=image)
    matrix = keypoint_crops.instance_matrix(person, ARMS, SIZE, 0.1, OFF, rng)
    np.testing.assert_allclose(
        matrix, keypoint_crops.crop_matrix(person.box, SIZE, 0.1), atol=1e-9
    )
    got = sample_of(photo, matrix, augmentation=OFF, rng=rng)
    assert got.pop("name") == "photo"
    for key, value in sample_of(photo, matrix).items():
        np.testing.assert_array_equal(got[key], value, err_msg=key)


def test_the_same_generator_gives_the_same_sample():
    rng = np.random.default_rng(3)
    image = rng.integers(0, 256, (120, 160, 3), np.uint8)
    person = instance_of({0: (55, 30), 4: (62, 50)}, [50, 20, 74, 60])
    photo = photo_of(person, image=image)
    always = Augmentation(occlusion=1, blur=1, noise=1)
    a, b = (
        sample_of(photo, augmentation=always, rng=np.random.default_rng(5))
        for _ in range(2)
    )
    for key, value in a.items():
        np.testing.assert_array_equal(b[key], value)
    assert (photo.image == image).all() and person.keypoints[0, 2] == 2


@pytest.mark.parametrize("flip", [False, True])
def test_ignored_areas_follow_the_map(flip):
    pixels = np.ones((40, 20), bool)
    pixels[:20, 10:] = False
    person = instance_of({}, [0, 0, 48, 64])
    photo = photo_of(person, ignore=Patch(8, 16, pixels))
    matrix = geometry.crop_matrix([0, 0, 48, 64], SIZE, flip=flip)
    expected = np.zeros((16, 12), np.uint8)
    expected[4:14, 2:7] = 1
    expected[4:9, 4:7] = 0  # a column of cells is half covered: 10 of 20 pixels
    expected[4:9, 4] = 1
    got = sample_of(photo, matrix)["ignore"]
    np.testing.assert_array_equal(got, expected[:, ::-1] if flip else expected)


def test_ignored_areas_of_large_photos_and_beyond_the_border():
    pixels = np.ones((300, 400), bool)
    person = instance_of({}, [0, 0, 480, 640])
    photo = photo_of(person, ignore=Patch(0, 200, pixels), size=(500, 400))
    ignore = sample_of(photo)["ignore"]  # a cell is 40 pixels of the photo
    expected = np.zeros((16, 12), np.uint8)
    expected[5:12, :10] = 1  # the last row, of 20 pixels, by half
    expected[12, :10] = ignore[12, :10]
    np.testing.assert_array_equal(ignore, expected)
    empty = dataclasses.replace(photo, ignore=Patch(0, 0, np.zeros((0, 0), bool)))
    assert not sample_of(empty)["ignore"].any()


TWO = (
    instance_of({0: (20, 20), 2: (40, 30, 1)}, [10, 10, 50, 50], track=7),
    instance_of({0: (100, 60), 1: (100, 90)}, [90, 50, 110, 100], STICK),
)


def test_a_whole_photo_is_letterboxed():
    arrays = whole_of(photo_of(*TWO), size=(80, 80))
    np.testing.assert_array_equal(arrays["image"][:9], BORDER)
    np.testing.assert_array_equal(arrays["image"][11:69], 90)
    np.testing.assert_array_equal(arrays["valid"], [True, True, False])
    np.testing.assert_array_equal(arrays["skeleton"], [0, 1, 0])
    np.testing.assert_array_equal(arrays["tracks"], [7, -1, -1])
    np.testing.assert_allclose(arrays["areas"], [400, 250, 0])
    np.testing.assert_allclose(
        arrays["boxes"], [[5, 15, 25, 35], [45, 35, 55, 60], [0, 0, 0, 0]]
    )
    expected = np.zeros((3, 5, 3))
    expected[0, [0, 2]] = [[10, 20, 2], [20, 25, 1]]
    expected[1, [0, 1]] = [[50, 40, 2], [50, 55, 2]]
    np.testing.assert_allclose(arrays["keypoints"], expected)
    assert not arrays["ignore"].any()


def test_an_empty_photo_is_valid():
    arrays = whole_of(photo_of(labelled=("stick",)))
    image = arrays.pop("image")
    assert image.shape == (60, 80, 3)
    np.testing.assert_array_equal(arrays.pop("labelled"), [False, True])
    np.testing.assert_array_equal(arrays.pop("tracks"), -1)
    assert {key: (value.shape, value.dtype) for key, value in arrays.items()} == {
        "valid": ((3,), bool),
        "keypoints": ((3, 5, 3), np.float32),
        "skeleton": ((3,), np.int32),
        "boxes": ((3, 4), np.float32),
        "areas": ((3,), np.float32),
        "ignore": ((15, 20), np.uint8),
    }
    assert not any(value.any() for value in arrays.values())
    whole_of(
        photo_of(), room=0, augmentation=Augmentation(), rng=np.random.default_rng()
    )


def test_what_the_crop_leaves_out_leaves_no_labels():
    matrix = keypoint_crops.crop_matrix([80, 0, 160, 60], (60, 80))
    arrays = whole_of(photo_of(*TWO), matrix)
    np.testing.assert_array_equal(arrays["valid"], [True, False, False])
    np.testing.assert_array_equal(arrays["skeleton"], [1, 0, 0])
    # Its lower end is below the crop.
    np.testing.assert_array_equal(arrays["keypoints"][0, :2, 2], [2, 0])


def test_more_instances_than_room_is_an_error():
    assert whole_of(photo_of(*TWO), room=2)["valid"].all()
    with pytest.raises(ValueError, match=r"photo: 2 inst.*room for 1.*max_instances"):
        whole_of(photo_of(*TWO), room=1)
    matrix = keypoint_crops.crop_matrix([80, 0, 160, 60], (60, 80))
    assert whole_of(photo_of(*TWO), matrix, room=1)["valid"].all()


def test_instances_without_a_label_are_ignored_and_other_types_no_part():
    bare = instance_of({}, [40, 40, 80, 80])
    photo = photo_of(bare, TWO[1], ignore=Patch(120, 0, np.ones((40, 40), bool)))
    arrays = whole_of(photo, skeletons=[ARMS], size=(120, 160))
    assert not arrays["valid"].any()
    expected = np.zeros((30, 40), np.uint8)
    expected[10:20, 10:20] = 1
    expected[:10, 30:] = 1
    np.testing.assert_array_equal(arrays["ignore"], expected)


@pytest.mark.parametrize("seed", range(6))
def test_whole_photos_move_with_their_points(seed):
    rng = np.random.default_rng(seed)
    photo = photo_of(TWO[0], TWO[0], size=(241, 319))
    size = 120, 160
    matrix = keypoint_crops.crop_matrix([0, 0, 319, 241], size, 0.0, MOVES, rng)
    arrays = whole_of(photo, matrix, [ARMS], size, augmentation=Augmentation(), rng=rng)
    seen = arrays["keypoints"][arrays["valid"]]
    mirrored = np.linalg.det(matrix[:, :2]) < 0
    truth = TWO[0].keypoints[::-1] if mirrored else TWO[0].keypoints
    for person in seen:
        labelled = person[:, 2] > 0
        back = geometry.transform_points(geometry.invert(matrix), person[labelled, :2])
        np.testing.assert_allclose(back, truth[labelled, :2], atol=0.01)


@pytest.mark.parametrize(
    "field, value", [("flip", 1.5), ("scale", -0.1), ("rotation", 181)]
)
def test_augmentation_out_of_range_is_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}; give it 0 to"):
        Augmentation(**{field: value})
