"""Tests for geometry: maps, and pictures that land where points do."""

import math

import numpy as np
import pytest

from facekp_jax import geometry


def blob(height, width, point, sigma):
    """Grey picture of one Gaussian dot centred on a continuous point."""
    y, x = np.mgrid[:height, :width] + 0.5
    squared = (x - point[0]) ** 2 + (y - point[1]) ** 2
    dot = np.rint(250 * np.exp(-squared / (2 * sigma**2))).astype(np.uint8)
    return np.repeat(dot[..., None], 3, -1)


def centroid(image):
    weights = image[..., 0].astype(float)
    y, x = np.mgrid[: image.shape[0], : image.shape[1]] + 0.5
    return np.array([(x * weights).sum(), (y * weights).sum()]) / weights.sum()


@pytest.mark.parametrize(
    "box, margin, expected",
    [
        ([10, 20, 30, 30], 0.0, [10, 15, 30, 35]),
        ([10, 20, 30, 30], 0.5, [0, 5, 40, 45]),
        ([0, 0, 8, 8], 0.25, [-2, -2, 10, 10]),
        ([5, 5, 5, 25], 0.0, [-5, 5, 15, 25]),
        ([5, 5, 5, 5], 0.0, [4.5, 4.5, 5.5, 5.5]),
    ],
)
def test_square_keeps_the_centre_and_covers_the_longer_side(box, margin, expected):
    np.testing.assert_allclose(geometry.square(box, margin), expected)


@pytest.mark.parametrize(
    "box, size, margin, expected",
    [
        ([10, 20, 30, 30], (64, 32), 0.0, [10, 5, 30, 45]),  # twice as high as wide
        ([10, 20, 30, 30], (32, 64), 0.0, [10, 20, 30, 30]),
        ([10, 20, 30, 30], (32, 64), 0.25, [5, 17.5, 35, 32.5]),
        ([0, 0, 8, 8], 16, 0.25, [-2, -2, 10, 10]),
        ([5, 5, 5, 5], (64, 32), 0.0, [4.5, 4, 5.5, 6]),
    ],
)
def test_a_frame_keeps_the_centre_and_has_the_aspect_of_the_crop(
    box, size, margin, expected
):
    np.testing.assert_allclose(geometry.frame(box, size, margin), expected)


@pytest.mark.parametrize(
    "box", [[0, 0, math.nan, 5], [0, 0, math.inf, 5], [9, 0, 3, 5], [1, 2, 3]]
)
def test_what_is_no_box_is_refused(box):
    with pytest.raises(ValueError, match="not a box"):
        geometry.square(box)
    with pytest.raises(ValueError, match="not a box"):
        geometry.crop_matrix(box, 32)


@pytest.mark.parametrize("box", [[0, 0, 40, 20], [7, 7, 7, 7]])
def test_crop_matrix_never_stretches(box):
    with pytest.raises(ValueError, match=r"geometry\.frame"):
        geometry.crop_matrix(box, 32)


def test_a_box_of_the_crops_own_aspect_is_not_stretched():
    m = geometry.crop_matrix([10, 20, 90, 60], (20, 40))
    points = geometry.transform_points(m, [[10, 20], [90, 60], [50, 40]])
    np.testing.assert_allclose(points, [[0, 0], [40, 20], [20, 10]])
    with pytest.raises(ValueError, match="aspect of 20 x 40 pixels"):
        geometry.crop_matrix([10, 20, 90, 60], (40, 20))


def test_crop_matrix_maps_the_corners_of_the_box_to_those_of_the_crop():
    m = geometry.crop_matrix([10, 20, 50, 60], 80)
    points = geometry.transform_points(m, [[10, 20], [50, 60], [30, 40], [10.5, 20.5]])
    np.testing.assert_allclose(points, [[0, 0], [80, 80], [40, 40], [1, 1]])


def test_rotation_turns_the_x_axis_towards_the_y_axis():
    m = geometry.crop_matrix([0, 0, 10, 10], 10, rotation=math.pi / 2)
    # Right of the centre goes to below it.
    np.testing.assert_allclose(geometry.transform_points(m, [8, 5]), [5, 8])
    m = geometry.crop_matrix([0, 0, 10, 10], 10, rotation=math.pi / 2, flip=True)
    np.testing.assert_allclose(geometry.transform_points(m, [5, 8]), [8, 5])


@pytest.mark.parametrize("height", [1, 480])
@pytest.mark.parametrize("width", [1, 7, 640, 641])
def test_flip_twice_is_the_identity(width, height):
    m = geometry.crop_matrix([0, 0, width, height], (height, width), flip=True)
    x = np.array([0, 0.5, width - 0.5, width])
    points = np.stack([x, [0, 0.5, height - 0.5, height]], -1)
    flipped = geometry.transform_points(m, points)
    np.testing.assert_array_equal(flipped[:, 0], width - x)
    np.testing.assert_array_equal(geometry.transform_points(m, flipped), points)


def test_invert_undoes_the_map():
    m = geometry.crop_matrix([3, 9, 120, 126], 64, rotation=0.7, flip=True)
    points = np.random.default_rng(0).uniform(-50, 200, (5, 4, 2))
    there = geometry.transform_points(m, points)
    back = geometry.transform_points(geometry.invert(m), there)
    np.testing.assert_allclose(back, points, atol=1e-9)
    with pytest.raises(ValueError, match="without an inverse"):
        geometry.invert(np.zeros((2, 3)))


def test_transform_boxes_bounds_the_mapped_corners():
    m = geometry.crop_matrix([0, 0, 10, 10], 20, rotation=math.pi / 2)
    boxes = geometry.transform_boxes(m, [[0, 0, 4, 2]])
    # (x, y) goes to (20 - 2 y, 2 x).
    np.testing.assert_allclose(boxes, [[16, 0, 20, 8]], atol=1e-5)
    assert boxes.dtype == np.float32
    assert geometry.transform_boxes(m, np.zeros((0, 4))).shape == (0, 4)
    assert geometry.transform_points(m, np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("rotation", [0.0, 0.4, -2.0])
@pytest.mark.parametrize("photo", [17, 48, 93, 151, 237, 640, 1201])
def test_a_dot_is_found_where_its_point_is_mapped(photo, rotation, flip):
    side = 96
    point = np.array([0.55 * photo + 0.3, 0.45 * photo - 0.2])
    image = blob(photo, photo, point, sigma=photo / 24)
    box = geometry.square([0.05 * photo, 0.02 * photo, 0.9 * photo, 0.97 * photo], 0.02)
    m = geometry.crop_matrix(box, side, rotation=rotation, flip=flip)
    found = centroid(geometry.warp(image, m, side, border=0))
    np.testing.assert_allclose(found, geometry.transform_points(m, point), atol=0.05)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("rotation", [0.0, 0.4, math.pi / 2, -2.0])
@pytest.mark.parametrize("shrink", [0.3, 0.5, 0.77, 1.0, 1.49, 1.51, 2.0, 3.3, 6.0])
def test_a_dot_is_found_at_any_size_of_photo_and_crop(shrink, rotation, flip):
    rng = np.random.default_rng(round(100 * shrink))
    rows, columns = size = (57, 40) if shrink >= 1 else (191, 130)
    half = shrink * np.array([columns, rows]) / 2
    width, height = np.ceil(3 * half + 24).astype(int) | 1
    centre = np.array([width, height]) / 2 + rng.uniform(-3, 3, 2)
    box = np.concatenate([centre - half, centre + half])
    m = geometry.crop_matrix(box, size, rotation=rotation, flip=flip)
    there = np.array([columns, rows]) / 2 + rng.uniform(-2, 2, 2)
    point = geometry.transform_points(geometry.invert(m), there)
    image = blob(height, width, point, sigma=max(2.5, 2 * shrink))
    found = centroid(geometry.warp(image, m, size, border=0))
    np.testing.assert_allclose(found, there, atol=0.05)


def test_a_picture_of_one_channel_stays_one():
    image = np.zeros((64, 40), np.uint8)
    image[::4, ::4] = 160
    crop = geometry.warp(
        image, geometry.crop_matrix([0, 0, 40, 64], (16, 10)), (16, 10)
    )
    np.testing.assert_array_equal(crop, np.full((16, 10), 10))


def test_warp_by_the_identity_changes_nothing():
    image = np.random.default_rng(1).integers(0, 256, (33, 33, 3), np.uint8)
    box = [0, 0, 33, 33]
    same = geometry.warp(image, geometry.crop_matrix(box, 33), 33)
    np.testing.assert_array_equal(same, image)
    mirrored = geometry.warp(image, geometry.crop_matrix(box, 33, flip=True), 33)
    np.testing.assert_array_equal(mirrored, image[:, ::-1])


def test_shrinking_averages_whole_blocks():
    image = np.zeros((64, 64, 3), np.uint8)
    image[::4, ::4] = 160  # one pixel of every block of 4 x 4
    crop = geometry.warp(image, geometry.crop_matrix([0, 0, 64, 64], 16), 16)
    np.testing.assert_array_equal(crop, 10)


def test_border_is_filled_or_repeated():
    image = np.full((20, 20, 3), 200, np.uint8)
    m = geometry.crop_matrix([-20, -20, 20, 20], 40)
    filled = geometry.warp(image, m, 40, border=(1, 2, 3))
    np.testing.assert_array_equal(
        filled[:19, :19], np.broadcast_to([1, 2, 3], (19, 19, 3))
    )
    np.testing.assert_array_equal(filled[20:, 20:], 200)
    np.testing.assert_array_equal(geometry.warp(image, m, 40, border=None), 200)


@pytest.mark.parametrize("side", [4, 40])
def test_a_crop_outside_the_photo_is_all_border(side):
    image = np.full((20, 20, 3), 200, np.uint8)
    m = geometry.crop_matrix([500, 500, 540, 540], side)
    np.testing.assert_array_equal(geometry.warp(image, m, side, border=7), 7)
    np.testing.assert_array_equal(geometry.warp(image, m, side, border=None), 200)


def test_a_photo_wider_than_opencv_warps_at_once():
    image = np.zeros((8, 40_000, 3), np.uint8)
    image[:, 39_000:] = 255
    m = geometry.crop_matrix([38_996, 0, 39_004, 8], 8)
    crop = geometry.warp(image, m, 8)
    np.testing.assert_array_equal(crop[0, :, 0], [0] * 4 + [255] * 4)
