"""Tests for drawing: what is where, for any size and for nothing at all."""

import itertools

import numpy as np
import pytest

from facekp_jax import drawing
from facekp_jax.records import Patch, Region

GREY = 100


def picture(height=120, width=90):
    return np.full((height, width, 3), GREY, np.uint8)


def region(x, y, side, branch="acne", **fields):
    box = np.array([x, y, x + side, y + side], np.float32)
    return Region(branch, box, **fields)


def square(x, y, side):
    return Patch(x, y, np.ones((side, side), bool))


def test_colours_depend_on_the_place_and_are_distinct():
    names = [f"branch {i}" for i in range(12)]
    palette = drawing.colours(names)
    assert list(palette) == names
    assert drawing.colours(names[:3]) == {n: palette[n] for n in names[:3]}
    for a, b in itertools.combinations(palette.values(), 2):
        assert np.abs(np.subtract(a, b)).max() >= 40
    assert drawing.colours([]) == {}


def test_nothing_to_draw_is_the_picture_itself():
    image = picture()
    np.testing.assert_array_equal(drawing.overlay(image, []), image)
    drawn = drawing.overlay(image, [], branches=["acne"], faces=np.zeros((0, 4)))
    np.testing.assert_array_equal(drawn[:120, :90], image)
    assert drawn.shape[0] > 120


def test_mask_box_and_pixels_are_drawn_where_they_are():
    image = picture()
    found = region(10, 20, 40, mask=square(20, 30, 20), pixels=square(25, 35, 5))
    drawn = drawing.overlay(image, [found], branches=["acne"])
    colour = np.array(drawing.colours(["acne"])["acne"])
    tint = (0.6 * GREY + 0.4 * colour).astype(np.uint8)
    np.testing.assert_array_equal(drawn[20, 10:50], np.tile(colour, (40, 1)))
    np.testing.assert_array_equal(drawn[59, 10:50], np.tile(colour, (40, 1)))
    np.testing.assert_array_equal(drawn[20:60, [10, 49]], np.tile(colour, (40, 2, 1)))
    np.testing.assert_array_equal(drawn[30, 20], tint)
    np.testing.assert_array_equal(drawn[49, 39], tint)
    np.testing.assert_array_equal(drawn[35:40, 25:30], np.tile(colour, (5, 5, 1)))
    np.testing.assert_array_equal(drawn[[19, 60, 25, 50], [30, 30, 30, 30]], GREY)
    np.testing.assert_array_equal(image, GREY)


def test_face_is_outlined_in_white():
    drawn = drawing.overlay(picture(), [], faces=[[5, 6, 80, 70]])
    np.testing.assert_array_equal(drawn[6, 5:80], 255)
    np.testing.assert_array_equal(drawn[7:69, 6:79], GREY)


def test_what_lies_over_the_border_is_cut():
    found = region(-50, -50, 1000, mask=square(80, 110, 50), pixels=square(-9, -9, 4))
    drawn = drawing.overlay(picture(), [found], branches=["acne"])
    colour = drawing.colours(["acne"])["acne"]
    np.testing.assert_array_equal(drawn[[0, 0, 119, 119], [0, 89, 0, 89]], [colour] * 4)


@pytest.mark.parametrize("shape", [(1, 1), (9, 300), (480, 640), (3000, 2000)])
def test_legend_is_beside_the_photo_at_any_size(shape):
    names = ["acne", "dark_circle", "wrinkle"]
    image = picture(*shape)
    drawn = drawing.overlay(image, [region(0, 0, 1, branch="wrinkle")], branches=names)
    palette = drawing.colours(names)
    below = drawn[shape[0] :]
    for name in names:
        assert (below == palette[name]).all(-1).any()
    # The picture outside the one region's outline is as it was.
    line = max(1, round(max(shape) / 500))
    np.testing.assert_array_equal(drawn[line + 1 : shape[0], line + 1 : shape[1]], GREY)


def test_legend_tells_the_number():
    one = drawing.overlay(picture(), [region(0, 0, 9)], branches=["acne"])
    two = drawing.overlay(picture(), [region(0, 0, 9)] * 2, branches=["acne"])
    assert not np.array_equal(one[120:], two[120:])
    np.testing.assert_array_equal(one[:120], two[:120])


def test_unlisted_branches_get_the_next_colours():
    regions = [region(0, 0, 9, branch="spot"), region(20, 20, 9, branch="mole")]
    drawn = drawing.overlay(picture(), regions, branches=["acne"])
    palette = drawing.colours(["acne", "mole", "spot"])
    np.testing.assert_array_equal(drawn[0, 0], palette["spot"])
    np.testing.assert_array_equal(drawn[20, 20], palette["mole"])


def test_contact_sheet_fits_pictures_of_any_size():
    images = [picture(50, 50), picture(3000, 200), picture(1, 1), picture(40, 400)]
    sheet = drawing.contact_sheet(images, columns=3, side=64)
    assert sheet.shape == (128, 192, 3) and sheet.dtype == np.uint8
    # The middle of each square is its picture; what is not filled is white.
    np.testing.assert_array_equal(sheet[32, [32, 96, 160]], GREY)
    np.testing.assert_array_equal(sheet[96, 32], GREY)
    np.testing.assert_array_equal(sheet[64:, 64:], 255)
    np.testing.assert_array_equal(sheet[0, :128], 255)


def test_contact_sheet_of_few_or_no_pictures():
    assert drawing.contact_sheet([], columns=3, side=64).shape == (64, 64, 3)
    assert drawing.contact_sheet([picture()] * 2, columns=3, side=64).shape == (
        64,
        128,
        3,
    )
