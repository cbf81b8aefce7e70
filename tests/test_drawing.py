"""Tests for drawing: what is where, for any size and for nothing at all."""

import itertools

import numpy as np
import pytest

from facekp_jax import drawing
from facekp_jax.records import Instance, Patch, Region
from facekp_jax.skeletons import Skeleton

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


def test_unknown_is_not_drawn_as_none():
    drawn, none = (
        drawing.overlay(picture(), [], branches=["acne"], unknown=unknown)
        for unknown in (["acne"], [])
    )
    # "acne not labelled" is wider than "acne 0" and than the picture.
    assert drawn.shape[1] > none.shape[1] >= 90


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


DOG = Skeleton(
    "dog",
    ("nose", "left_ear", "right_ear", "tail"),
    edges=((0, 1), (0, 2), (0, 3)),
    mirror=(0, 2, 1, 3),
    sigmas=(0.1,) * 4,
)


def dog(keypoints, box=(2, 2, 80, 110), **fields):
    """A dog with the given joints (x, y, visibility); the others are unlabelled."""
    joints = np.zeros((4, 3), np.float32)
    for k, joint in keypoints.items():
        joints[k] = joint
    return Instance("dog", joints, np.float32(box), 1.0, **fields)


def changed(drawn, height=120, width=90):
    """[height, width] how much the photo was changed."""
    return np.abs(drawn[:height, :width].astype(int) - GREY).sum(-1)


def inside(drawn):
    """The same without the box of `dog`."""
    weights = changed(drawn)
    weights[[2, 109]] = weights[:, [2, 79]] = 0
    return weights


def test_image_without_instances_is_a_picture_with_a_legend():
    for skeletons in ([DOG], ()):
        drawn = drawing.keypoint_overlay(picture(), (), skeletons=skeletons)
        np.testing.assert_array_equal(drawn[:120, :90], picture())
        assert drawn[120:].any()


@pytest.mark.parametrize("x, y", [(40.5, 50.5), (40.75, 50.5), (41.0, 50.25)])
@pytest.mark.parametrize("visibility", [1, 2])
def test_joints_are_drawn_at_fractions_of_a_pixel(x, y, visibility):
    drawn = drawing.keypoint_overlay(
        picture(), [dog({1: (x, y, visibility)})], skeletons=[DOG]
    )
    weights = inside(drawn)
    rows, columns = np.indices(weights.shape) + 0.5
    assert (weights * columns).sum() / weights.sum() == pytest.approx(x, abs=0.04)
    assert (weights * rows).sum() / weights.sum() == pytest.approx(y, abs=0.04)


def test_bones_are_drawn_at_fractions_of_a_pixel():
    ends = {0: (20.5, 50.75, 2), 3: (60.5, 50.75, 2)}
    drawn = drawing.keypoint_overlay(picture(), [dog(ends)], skeletons=[DOG])
    weights = inside(drawn)[:, 40]
    middle = (weights * (np.arange(120) + 0.5)).sum() / weights.sum()
    assert middle == pytest.approx(50.75, abs=0.1)


def test_joints_show_side_and_visibility():
    joints = {1: (20.5, 30.5, 2), 2: (60.5, 30.5, 1), 3: (40.5, 80.5, 2)}
    drawn = drawing.keypoint_overlay(picture(), [dog(joints)], skeletons=[DOG])
    np.testing.assert_array_equal(drawn[30, 20], drawing.LEFT)
    np.testing.assert_array_equal(drawn[30, 60], GREY)  # hollow
    assert (drawn[30, 56:65, 2] > 200).any()  # a ring of the right side's blue
    np.testing.assert_array_equal(drawn[80, 40], drawing.MIDDLE)
    # Unlabelled joints are at 0, 0 and have neither dot nor bone.
    assert not inside(drawn)[:20, :].any() and not inside(drawn)[50, :].any()


def test_bones_have_their_sides_colour_or_their_instances():
    joints = {0: (40.5, 60.5, 2), 1: (20.5, 60.5, 2), 3: (40.5, 100.5, 2)}
    alone = drawing.keypoint_overlay(picture(), [dog(joints)], skeletons=[DOG])
    np.testing.assert_array_equal(alone[60, 30], drawing.LEFT)
    np.testing.assert_array_equal(alone[80, 40], drawing.MIDDLE)
    two = drawing.keypoint_overlay(
        picture(), [dog({}), dog(joints)], skeletons=[DOG, DOG]
    )
    second = drawing.colours("ab")["b"]
    np.testing.assert_array_equal(two[60, 30], second)
    np.testing.assert_array_equal(two[80, 40], second)


def test_sides_come_from_the_names_of_mirrored_pairs():
    names = ("jaw_1", "jaw_2", "L_eye", "R_eye", "leg4RH", "leg1LH", "left", "chin")
    mirror = (1, 0, 3, 2, 5, 4, 6, 7)
    face = Skeleton("face", names, ((0, 1),), mirror, (0.1,) * 8)
    places = [(20.5 + 8 * k, 60.5, 2) for k in range(8)]
    joints = Instance("face", np.float32(places), np.float32([2, 2, 80, 110]), 1.0)
    drawn = drawing.keypoint_overlay(picture(), [joints], skeletons=[face])
    expected = {2: drawing.LEFT, 3: drawing.RIGHT, 4: drawing.RIGHT, 5: drawing.LEFT}
    for k in range(8):
        colour = expected.get(k, drawing.MIDDLE)
        np.testing.assert_array_equal(drawn[60, 20 + 8 * k], colour)


def test_small_bodies_are_not_covered_by_their_dots():
    def covered(side):
        joints = {0: (500.5, 500.5, 2)}
        one = dog(joints, box=(5, 5, 5 + side, 55))
        drawn = drawing.keypoint_overlay(picture(1500, 600), [one], skeletons=[DOG])
        return np.count_nonzero(changed(drawn, 1500, 600)[450:550, 450:550])

    assert covered(50) * 5 < covered(600)


def test_a_tracks_colour_depends_on_its_number_only():
    joints, palette = {0: (40.5, 60.5, 2), 1: (20.5, 60.5, 2)}, drawing.colours("abcd")
    for instances in ([dog(joints, track=3)], [dog({}, track=0), dog(joints, track=3)]):
        drawn = drawing.keypoint_overlay(picture(), instances, skeletons=[DOG])
        np.testing.assert_array_equal(drawn[60, 30], palette["d"])
    np.testing.assert_array_equal(drawn[109, 50], palette["d"])  # the box, drawn last


def test_a_tracks_number_is_written():
    first, second = (
        drawing.keypoint_overlay(picture(), [dog({}, track=t)], skeletons=[DOG])
        for t in (1, 27)
    )
    assert inside(second)[:20, :30].sum() > inside(first)[:20, :30].sum() > 0


def test_joints_of_low_confidence_are_left_out():
    joints = {0: (40.5, 60.5, 2), 1: (20.5, 60.5, 2), 3: (40.5, 100.5, 2)}
    scores = np.float32([0.5, 0.49, 0.0, 1.0])
    drawn = drawing.keypoint_overlay(
        picture(),
        [dog(joints, keypoint_scores=scores)],
        skeletons=[DOG],
        confidence=0.5,
    )
    assert not inside(drawn)[50:71, :36].any()
    np.testing.assert_array_equal(drawn[[60, 80, 100], 40], [drawing.MIDDLE] * 3)


def test_ignored_area_is_hatched_and_cut_at_the_border():
    area = Patch(70, 100, np.ones((50, 50), bool))
    drawn = drawing.keypoint_overlay(picture(), (), skeletons=[DOG], ignore=area)
    weights = changed(drawn)
    assert (weights[100:, 70:] > 0).all()
    assert not weights[:100].any() and not weights[:, :70].any()
    assert len(np.unique(drawn[100:120, 70:90])) == 2  # light and dark


@pytest.mark.parametrize("shape", [(1, 1), (9, 300), (3000, 20)])
def test_any_coordinates_and_sizes_can_be_drawn(shape):
    joints = {0: (np.nan, 5, 2), 1: (1e30, -1e30, 2), 2: (-3, 4, 1), 3: (0, np.inf, 2)}
    strange = dog(joints, box=(np.nan, 1, 2, 3), track=1)
    far = dog({0: (1, 1, 2), 1: (1e30, 5, 2)}, box=(-1e30, -5, 1e30, 9), track=123456)
    drawn = drawing.keypoint_overlay(
        picture(*shape),
        [strange, far],
        skeletons=[DOG],
        ignore=Patch(5, 5, np.ones((2, 2), bool)),
    )
    assert drawn.shape[0] > shape[0] and drawn.shape[1] >= shape[1]


def test_legend_counts_each_type_that_is_there():
    cat = Skeleton("cat", ("head", "tail"), ((0, 1),), (0, 1), (0.1, 0.1))
    lying = Instance("cat", np.zeros((2, 3), np.float32), np.float32([2, 2, 9, 9]), 1.0)

    def below(*instances):
        drawn = drawing.keypoint_overlay(picture(), instances, skeletons=[DOG, cat])
        return drawn[120:]

    # A row for each type, and two for the sides where there are any.
    rows = [below(), below(lying), below(dog({})), below(dog({}), lying, lying)]
    assert [len(legend) // len(rows[0]) for legend in rows] == [1, 1, 3, 4]
    assert not np.array_equal(below(dog({}), lying), rows[3])
    for colour in (drawing.LEFT, drawing.RIGHT):
        there = [(legend == colour).all(-1).any() for legend in rows]
        assert there == [False, False, True, True]


def test_regions_that_are_not_finite_are_left_out():
    drawn = drawing.overlay(picture(), [region(np.nan, 5, 10)], branches=["acne"])
    np.testing.assert_array_equal(drawn[:120, :90], picture())


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
