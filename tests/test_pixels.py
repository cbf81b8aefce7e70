"""Exact positions by colour and grey value."""

import numpy as np
import pytest

from facekp_jax import masks, pixels
from facekp_jax.pixels import ColourRule
from facekp_jax.records import Patch

DARKER = ColourRule("grey", "darker", "contrast")
RELATIVE = [DARKER, ColourRule("grey", "darker", "otsu")]
EMPTY = Patch(3, 3, np.zeros((0, 0), bool))


def grey_photo(values):
    return np.repeat(np.asarray(values, np.uint8)[..., None], 3, axis=2)


def disc(x, y, radius, height, width):
    rows, columns = np.ogrid[:height, :width]
    return (columns - x) ** 2 + (rows - y) ** 2 <= radius**2


def assert_same_pixels(patch, expected):
    np.testing.assert_array_equal(masks.to_full(patch, *expected.shape), expected)


@pytest.mark.parametrize(
    "name, colour, expected",
    [
        ("grey", (200, 100, 50), 0.299 * 200 + 0.587 * 100 + 0.114 * 50),
        ("L", (255, 255, 255), 100.0),
        ("a", (128, 128, 128), 0.0),
        ("a", (255, 0, 0), 80.1),  # CIE 1976, sRGB red
        ("b", (255, 0, 0), 67.2),
        ("redness", (99, 9, 77), 100.0),  # 100 log10((99 + 1) / (9 + 1))
        ("redness", (0, 0, 0), 0.0),
    ],
)
def test_channels(name, colour, expected):
    image = np.full((2, 3, 3), colour, np.uint8)
    got = pixels.channel(image, name)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.full((2, 3), expected), atol=0.15)


@pytest.mark.parametrize(
    "arguments, named",
    [
        (("hue", "darker"), "'hue'"),
        (("grey", "dark"), "'dark'"),
        (("grey", "darker", "mean"), "'mean'"),
    ],
)
def test_rule_names_what_is_wrong(arguments, named):
    with pytest.raises(ValueError, match=named):
        ColourRule(*arguments)


@pytest.mark.parametrize(
    "polarity, expected", [("darker", [1, 1, 0]), ("brighter", [0, 1, 1])]
)
def test_number_includes_its_own_value(polarity, expected):
    image = grey_photo([[90, 100, 110]])
    mask = Patch(0, 0, np.ones((1, 3), bool))
    rule = ColourRule("grey", polarity, 100)
    assert_same_pixels(
        pixels.target_pixels(image, mask, rule), np.array([expected]) > 0
    )


def test_contrast_is_half_way_between_skin_and_target():
    values = np.full((20, 20), 100)
    values[8:12, 8:12] = 60
    values[8, 8], values[11, 11] = 85, 75  # half-way is 80
    mask = Patch(6, 6, np.ones((8, 8), bool))
    expected = values < 80
    got = pixels.target_pixels(grey_photo(values), mask, DARKER)
    assert_same_pixels(got, expected)
    np.testing.assert_array_equal(masks.patch_box(got), [8, 8, 12, 12])
    assert got.pixels.shape == (4, 4)


def test_contrast_follows_light_that_changes_over_the_skin():
    _, columns = np.mgrid[:40, :40]
    target = disc(20, 20, 6, 40, 40)
    values = 80 + 3 * columns - 30 * target  # across the disc skin changes more
    mask = pixels.dilate(masks.from_full(target), 3, 40, 40)
    got = pixels.target_pixels(grey_photo(values), mask, DARKER)
    assert_same_pixels(got, target)


def test_contrast_below_the_minimum_is_skin():
    values = np.full((20, 20), 100)
    values[8:12, 8:12] = 90
    mask = Patch(6, 6, np.ones((8, 8), bool))
    for minimum, count in ((9, 16), (11, 0)):
        rule = ColourRule("grey", "darker", "contrast", minimum)
        got = pixels.target_pixels(grey_photo(values), mask, rule)
        assert got.pixels.sum() == count


def test_other_regions_are_no_skin():
    values = np.full((30, 30), 150)
    values[:22] = 30  # another lesion, on three sides of the mask
    values[8:22, 8:22] = 150
    values[11:19, 11:19] = 90
    other = masks.from_full(values == 30)
    image, mask = grey_photo(values), Patch(8, 8, np.ones((14, 14), bool))
    assert pixels.target_pixels(image, mask, DARKER).pixels.size == 0
    got = pixels.target_pixels(image, mask, DARKER, [other])
    assert_same_pixels(got, values == 90)


def test_without_a_ring_the_skin_is_in_the_mask():
    values = np.full((10, 10), 100)
    values[4:6, 4:6] = 40
    whole = Patch(0, 0, np.ones((10, 10), bool))
    got = pixels.target_pixels(grey_photo(values), whole, DARKER)
    # 4 of 100 pixels lie beyond the 90th percentile, whose contrast is 0.
    assert_same_pixels(got, values == 40)


@pytest.mark.parametrize("rule", [*RELATIVE, ColourRule("redness", "brighter", 1.0)])
def test_empty_mask_has_no_pixels(rule):
    image = grey_photo(np.full((10, 10), 100))
    for mask in (EMPTY, Patch(2, 2, np.zeros((4, 4), bool))):
        assert pixels.target_pixels(image, mask, rule).pixels.size == 0
        assert pixels.sub_image(image, mask).shape == (0, 0, 4)
        assert pixels.dilate(mask, 3, 10, 10).pixels.sum() == 0


@pytest.mark.parametrize("channel", pixels.CHANNELS)
@pytest.mark.parametrize("threshold", ["otsu", "contrast"])
def test_flat_colour_has_no_target(channel, threshold):
    image = np.full((20, 20, 3), (180, 120, 90), np.uint8)
    mask = Patch(5, 5, np.ones((6, 6), bool))
    rule = ColourRule(channel, "brighter", threshold)
    assert pixels.target_pixels(image, mask, rule).pixels.size == 0


def test_flat_colour_against_a_number_is_all_or_nothing():
    image = grey_photo(np.full((20, 20), 100))
    mask = Patch(5, 5, np.ones((6, 6), bool))
    for threshold, count in ((101, 36), (99, 0)):
        rule = ColourRule("grey", "darker", threshold)
        assert pixels.target_pixels(image, mask, rule).pixels.sum() == count


@pytest.mark.parametrize("rule", RELATIVE)
@pytest.mark.parametrize("x, y", [(0, 0), (29, 0), (0, 19), (29, 19)])
def test_targets_at_the_photo_corners(rule, x, y):
    target = disc(x, y, 4, 20, 30)
    image = grey_photo(160 - 70 * target)
    mask = pixels.dilate(masks.from_full(target), 3, 20, 30)
    assert_same_pixels(pixels.target_pixels(image, mask, rule), target)


@pytest.mark.parametrize("rule", RELATIVE)
def test_a_mask_over_the_border_counts_inside_only(rule):
    target = disc(0, 0, 4, 20, 30)
    image = grey_photo(160 - 70 * target)
    over = Patch(-6, -6, np.ones((13, 13), bool))
    assert_same_pixels(pixels.target_pixels(image, over, rule), target)
    for x, y in ((40, 5), (5, 40), (-20, 5)):
        beside = Patch(x, y, np.ones((4, 4), bool))
        assert pixels.target_pixels(image, beside, rule).pixels.size == 0


def test_sub_image_excludes_what_is_outside_the_mask():
    image = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    mask = Patch(1, 1, np.array([[1, 0, 0], [0, 1, 0]], bool))
    got = pixels.sub_image(image, mask)
    expected = np.zeros((2, 2, 4), np.uint8)
    expected[0, 0], expected[1, 1] = [*image[1, 1], 255], [*image[2, 2], 255]
    np.testing.assert_array_equal(got, expected)


def test_dilation_is_a_disc_cut_at_the_border():
    point = Patch(10, 10, np.ones((1, 1), bool))
    grown = pixels.dilate(point, 3, 21, 21)
    assert grown.pixels.sum() == 29  # lattice points within 3 of the origin
    assert_same_pixels(grown, disc(10, 10, 3, 21, 21))
    corner = pixels.dilate(Patch(0, 0, point.pixels), 3, 21, 21)
    assert corner.pixels.sum() == 11  # a quarter with both axes: (29 - 13) / 4 + 7
    np.testing.assert_array_equal(masks.patch_box(corner), [0, 0, 4, 4])


def test_naive_regions_are_annotated_like_the_truth():
    tiny, blob, faint = (
        disc(20, 20, 1, 120, 120),
        disc(60, 70, 5, 120, 120),
        disc(90, 30, 5, 120, 120),
    )
    values = 150 - 60 * blob - 30 * faint - 60 * tiny
    values[10:110, 105:115] = 40  # hair: 7 % of the face
    rule = ColourRule("grey", "darker", "contrast", 15)
    got = pixels.naive_regions(grey_photo(values), (0, 0, 120, 120), rule, "mole")
    assert [region.branch for region in got] == ["mole"] * 2
    assert 1 > got[0].score > got[1].score > 0
    for region, truth in zip(got, (blob, faint), strict=True):
        assert_same_pixels(region.pixels, truth)
        mask = pixels.dilate(masks.from_full(truth), pixels.MARGIN, 120, 120)
        np.testing.assert_array_equal(region.box, masks.patch_box(mask))
        assert region.box.dtype == np.float32


@pytest.mark.parametrize("face", [(30, 5, 30, 10), (50, 50, 60, 60)])
def test_naive_regions_of_no_face(face):
    image = grey_photo(np.full((20, 40), 100))
    assert pixels.naive_regions(image, face, DARKER, "spot") == []


@pytest.mark.parametrize(
    "box, pixel",
    [((10.6, 5.2, 11.2, 5.4), (11, 5)), ((39.7, 29.8, 40.0, 30.0), (39, 29))],
)
def test_a_pseudo_mask_of_a_box_thinner_than_a_pixel_has_one(box, pixel):
    mask = pixels.pseudo_mask(
        grey_photo(np.full((30, 40), 90)), np.float32(box), DARKER
    )
    assert (mask.x, mask.y) == pixel
    np.testing.assert_array_equal(mask.pixels, [[True]])
