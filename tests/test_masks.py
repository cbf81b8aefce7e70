"""Tests for masks: pasting against pixels counted by hand, encodings against COCO."""

import math
import time

import numpy as np
import pytest
from faster_coco_eval.core import mask as coco

from facekp_jax import masks
from facekp_jax.records import Patch


def filled(x, y, height, width):
    return Patch(x, y, np.ones((height, width), bool))


def random_mask(seed, height=23, width=31):
    return np.random.default_rng(seed).random((height, width)) < 0.4


@pytest.mark.parametrize(
    "box, expected",
    [
        ([2, 3, 5, 4], (2, 3, 1, 3)),
        ([2.5, 3.5, 4.5, 4.5], (2, 3, 1, 2)),  # a centre on the left border is in
        ([2.51, 3.51, 4.51, 4.51], (3, 4, 1, 2)),
        ([2.49, 3.49, 4.49, 4.49], (2, 3, 1, 2)),
        ([-4, -4, 1.6, 2.4], (0, 0, 2, 2)),
        ([8.4, 5.4, 30, 30], (8, 5, 3, 2)),
        ([-9, -9, 99, 99], (0, 0, 8, 10)),
    ],
)
@pytest.mark.parametrize("side", [1, 28])
def test_ones_fill_the_pixels_whose_centre_is_in_the_box(box, expected, side):
    x, y, pixels = masks.paste(np.ones((side, side)), box, 8, 10)
    assert (x, y, *pixels.shape) == expected
    assert pixels.all() and pixels.dtype == bool


@pytest.mark.parametrize(
    "box",
    [
        [3, 3, 3, 6],
        [5, 5, 4, 4],
        [3.6, 3, 4.4, 6],  # between two centres
        [20, 20, 30, 30],
        [-9, -9, -1, -1],
    ],
)
def test_paste_of_an_empty_box_is_an_empty_patch(box):
    patch = masks.paste(np.ones((4, 4)), box, 8, 10)
    assert patch.pixels.shape == (0, 0)
    np.testing.assert_array_equal(masks.patch_box(patch), 0)


def test_paste_of_zeros_is_empty_and_of_nan_refused():
    assert masks.paste(np.zeros((4, 4)), [0, 0, 8, 8], 8, 8).pixels.size == 0
    with pytest.raises(ValueError, match="nan"):
        masks.paste(np.ones((4, 4)), [0, 0, math.nan, 8], 8, 8)


def test_paste_interpolates_a_ramp_between_the_cell_centres():
    # Over a box from 10 to 50 in 4 cells, the ramp i / 4 at cell centres 15, 25, 35, 45
    # is (x - 15) / 40 at x: at least 0.5 from x = 35 on, so from the pixel centre 35.5.
    ramp = np.tile(np.arange(4) / 4, (4, 1))
    patch = masks.paste(ramp, [10, 0, 50, 40], 40, 60)
    assert (patch.x, patch.y, *patch.pixels.shape) == (35, 0, 40, 15)
    patch = masks.paste(ramp.T, [0, 10, 40, 50], 60, 40)
    assert (patch.x, patch.y, *patch.pixels.shape) == (0, 35, 15, 40)


def test_paste_repeats_the_edge_beyond_the_outermost_centres():
    # Columns 1, 0 of a box of width 8: 1 up to x = 2, then (6 - x) / 4: 0.5 at x = 4.
    patch = masks.paste([[1, 0], [1, 0]], [0, 0, 8, 2], 2, 8, threshold=1.0)
    assert patch.pixels.shape == (2, 2)
    patch = masks.paste([[1, 0], [1, 0]], [0, 0, 8, 2], 2, 8)
    assert patch.pixels.shape == (2, 4)


def test_paste_clipped_by_the_photo_keeps_its_place():
    probabilities = np.random.default_rng(0).random((28, 28))
    whole = masks.paste(probabilities, [10.3, 12.7, 60.2, 71.1], 100, 100)
    moved = masks.paste(probabilities, [-9.7, -7.3, 40.2, 51.1], 30, 30)
    expected = masks.to_full(whole, 100, 100)[20:50, 20:50]
    np.testing.assert_array_equal(masks.to_full(moved, 30, 30), expected)


def test_paste_is_fast():
    probabilities = np.random.default_rng(0).random((28, 28)).astype(np.float32)
    masks.paste(probabilities, [10, 10, 110, 110], 2000, 2000)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        masks.paste(probabilities, [10.3, 10.4, 110.2, 109.7], 2000, 2000)
        times.append(time.perf_counter() - start)
    assert min(times) < 1e-3


def test_from_full_is_tight_and_to_full_undoes_it():
    mask = np.zeros((7, 9), bool)
    mask[2, 3] = mask[4, 6] = True
    patch = masks.from_full(mask)
    assert (patch.x, patch.y, patch.pixels.shape) == (3, 2, (3, 4))
    np.testing.assert_array_equal(masks.patch_box(patch), [3, 2, 7, 5])
    np.testing.assert_array_equal(masks.to_full(patch, 7, 9), mask)
    assert masks.from_full(np.zeros((7, 9), bool)).pixels.shape == (0, 0)


def test_patch_box_ignores_a_false_frame():
    pixels = np.zeros((5, 5), bool)
    pixels[1:3, 2:4] = True
    np.testing.assert_array_equal(
        masks.patch_box(Patch(10, 20, pixels)), [12, 21, 14, 23]
    )


@pytest.mark.parametrize(
    "x, y, inside", [(-1, -2, 2), (8, 5, 4), (-9, 0, 0), (0, 99, 0)]
)
def test_to_full_cuts_a_patch_at_the_border(x, y, inside):
    full = masks.to_full(filled(x, y, 3, 3), 7, 10)
    assert full.shape == (7, 10) and full.sum() == inside


@pytest.mark.parametrize(
    "mask",
    [
        random_mask(0),
        np.ones((4, 5), bool),
        np.zeros((4, 5), bool),
        np.eye(1, dtype=bool),
        np.arange(20).reshape(5, 4).T % 20 > 6,  # a run over several columns
        np.arange(20).reshape(5, 4).T % 20 < 6,
    ],
)
def test_rle_is_coco_s_own_and_comes_back(mask):
    height, width = mask.shape
    rle = masks.to_rle(masks.from_full(mask), height, width)
    expected = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    assert rle == {"size": [height, width], "counts": expected["counts"].decode()}
    np.testing.assert_array_equal(
        masks.to_full(masks.from_rle(rle), height, width), mask
    )


def test_rle_of_a_patch_over_the_border_is_cut():
    rle = masks.to_rle(filled(-2, -1, 4, 4), 5, 6)
    patch = masks.from_rle(rle)
    assert (patch.x, patch.y, *patch.pixels.shape) == (0, 0, 3, 2)
    assert masks.from_rle(masks.to_rle(filled(50, 0, 2, 2), 5, 6)).pixels.size == 0


@pytest.mark.parametrize("counts", ["35<", b"35<", [3, 5, 12], np.array([3, 5, 12])])
def test_from_rle_reads_every_kind_of_counts(counts):
    # 3 off, 5 on, down the columns of 4: the last of column 0 and all of column 1.
    patch = masks.from_rle({"size": [4, 5], "counts": counts})
    assert (patch.x, patch.y) == (0, 0)
    np.testing.assert_array_equal(patch.pixels, [[0, 1], [0, 1], [0, 1], [1, 1]])


def test_from_polygons_unites_them():
    squares = [[1, 1, 4, 1, 4, 3, 1, 3], [6, 5, 8, 5, 8, 6, 6, 6]]
    patch = masks.from_polygons(squares, 10, 12)
    np.testing.assert_array_equal(masks.patch_box(patch), [1, 1, 8, 6])
    assert patch.pixels.sum() == 2 * 3 + 1 * 2
    points = [np.reshape(square, (-1, 2)) for square in squares]
    np.testing.assert_array_equal(
        masks.from_polygons(points, 10, 12).pixels, patch.pixels
    )


@pytest.mark.parametrize("bad", [[1, 1, 4, 4], [1, 1], [], [1, 1, 4, 4, 5]])
def test_polygons_without_three_points_are_skipped_with_a_warning(bad):
    with pytest.warns(UserWarning, match="1 polygons"):
        assert masks.from_polygons([bad], 10, 12).pixels.size == 0
    with pytest.warns(UserWarning, match="1 polygons"):
        patch = masks.from_polygons([bad, [0, 0, 2, 0, 2, 2, 0, 2]], 10, 12)
    assert patch.pixels.sum() == 4


def test_no_polygons_are_an_empty_patch():
    assert masks.from_polygons([], 10, 12).pixels.size == 0


@pytest.mark.parametrize(
    "x, y, shared", [(5, 5, 9), (6, 7, 2), (8, 5, 0), (4, 4, 4), (90, 90, 0)]
)
def test_overlap_of_two_squares(x, y, shared):
    a, b = filled(5, 5, 3, 3), filled(x, y, 3, 3)
    assert masks.overlap(a, b) == masks.overlap(b, a) == shared
    assert masks.iou(a, b) == shared / (18 - shared)


def test_iou_counts_pixels_not_windows():
    mask, other = random_mask(1), random_mask(2)
    got = masks.iou(masks.from_full(mask), masks.from_full(other))
    assert got == (mask & other).sum() / (mask | other).sum()
    assert masks.iou(masks.EMPTY, masks.from_full(mask)) == 0
    assert masks.iou(masks.EMPTY, masks.EMPTY) == 0
