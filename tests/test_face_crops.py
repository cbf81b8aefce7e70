"""From a photo's record to a sample, and back."""

import dataclasses

import cv2
import numpy as np
import pytest

from facekp_jax import boxes as box_ops
from facekp_jax import face_crops, geometry, masks
from facekp_jax.pixels import ColourRule
from facekp_jax.records import LesionImage, Patch, Region

SKIN, DARK = 190, 40
SIDE = 96
BRANCHES = ("acne", "mole")
RULE = ColourRule("grey", "darker", minimum=10.0)
RULES = dict.fromkeys(BRANCHES, RULE)


def angle(x, y, height, width, turned=False):
    """An L: no mirror image of itself."""
    pixels = np.ones((height, width), bool)
    pixels[: height // 2, width // 2 :] = False
    return Patch(x, y, pixels[:, ::-1] if turned else pixels)


def record_of(patches, *, labelled=BRANCHES, face=(40, 20, 200, 180), **options):
    """A photo of dark patches on skin, `patches` being (branch, Patch) pairs."""
    image = np.full((220, 240, 3), SKIN, np.uint8)
    for _, patch in patches:
        height, width = patch.pixels.shape
        window = image[patch.y : patch.y + height, patch.x : patch.x + width]
        window[patch.pixels] = DARK
    regions = tuple(
        Region(branch, masks.patch_box(patch), patch, **options)
        for branch, patch in patches
    )
    return LesionImage("photo", image, regions, labelled, np.array(face, np.float32))


def boxed(*boxes, labelled=BRANCHES, branch="acne", **options):
    """A photo whose face image of 64 x 64 pixels is a shift by (-32, -32)."""
    regions = tuple(
        Region(branch, np.array(box, np.float32), **options) for box in boxes
    )
    image = np.zeros((128, 128, 3), np.uint8)
    return LesionImage("boxed", image, regions, labelled, np.array([32, 32, 96, 96]))


def truth_of(record, matrix=None, side=64, rng=0, branches=BRANCHES, room=(3, 2, 4)):
    if matrix is None:
        matrix = face_crops.face_matrix(record, side, 0.0)
    rng = np.random.default_rng(rng)
    return face_crops.truth(record, matrix, side, branches, *room, rng)


def overlap(a, b):
    return float(box_ops.iou(np.asarray(a)[None], np.asarray(b)[None])[0, 0])


def dark_pixels(crop):
    """Full mask of what is nearer to the patches' colour than to the skin's."""
    grey = crop[..., 0].astype(float)
    return grey < (np.median(grey) + grey.min()) / 2


def test_face_matrix_maps_the_widened_face_onto_the_crop():
    record = record_of([], face=(40, 20, 140, 70))
    # 100 wide, a tenth more on each side: 120 pixels about (90, 45).
    got = geometry.transform_points(
        face_crops.face_matrix(record, 60, 0.1), [[30, -15], [90, 45], [150, 105]]
    )
    np.testing.assert_allclose(got, [[0, 0], [30, 30], [60, 60]], atol=1e-4)


def test_a_record_without_a_face_is_all_face():
    record = LesionImage("whole", np.zeros((50, 100, 3), np.uint8), (), ())
    matrix = face_crops.face_matrix(record, 100, 0.0)
    np.testing.assert_allclose(matrix, [[1, 0, 0], [0, 1, 25]], atol=1e-6)


def test_augmented_matrices_stay_near_the_face():
    record, side = record_of([]), 100
    plain = face_crops.face_matrix(record, side, 0.1)
    mirrored = []
    for seed in range(60):
        matrix = face_crops.augmented_matrix(
            record, side, 0.1, np.random.default_rng(seed)
        )
        change = np.linalg.solve(plain[:, :2].T, matrix[:, :2].T).T
        scale = change[1, 1]
        assert np.exp(-0.1) <= scale <= np.exp(0.1)
        np.testing.assert_allclose(np.abs(change), np.diag([scale, scale]), atol=1e-9)
        mirrored.append(change[0, 0] < 0)
        centre = geometry.transform_points(matrix, [120, 100])  # of the face
        assert np.abs(centre - side / 2).max() <= 0.05 * side + 1e-4
    assert 10 < sum(mirrored) < 50


@pytest.mark.parametrize("seed", range(8))
def test_crop_and_truth_agree(seed):
    rng = np.random.default_rng(seed)
    record = record_of([("mole", angle(150, 60, 30, 24))])
    matrix = face_crops.augmented_matrix(record, SIDE, 0.1, rng)
    crop = face_crops.cut(record, matrix, SIDE, rng)
    dark = dark_pixels(crop)
    known = truth_of(record, matrix, SIDE, rng=seed)
    np.testing.assert_array_equal(known["valid"], [[0, 0, 0], [1, 0, 0]])
    seen = masks.patch_box(masks.from_full(dark))
    np.testing.assert_allclose(known["boxes"][1, 0], seen, atol=1.0)

    # Its mask, too, is that of the crop, within the box that it is trained in.
    np.testing.assert_array_equal(known["mask_valid"], [[0, 0], [1, 0]])
    box = known["mask_boxes"][1, 0]
    target = masks.paste(known["mask_targets"][1, 0] / 255, box, SIDE, SIDE)
    inside = masks.paste(np.ones((2, 2)), box, SIDE, SIDE)
    there = masks.from_full(dark & masks.to_full(inside, SIDE, SIDE))
    assert masks.iou(target, there) > 0.85


def test_the_seeds_above_see_both_sides():
    record = record_of([])
    signs = {
        np.sign(face_crops.augmented_matrix(record, SIDE, 0.1, rng)[0, 0])
        for rng in map(np.random.default_rng, range(8))
    }
    assert signs == {-1.0, 1.0}


def test_prediction_cuts_without_changing_colours():
    record = record_of([("mole", angle(100, 60, 30, 24))])
    matrix = face_crops.face_matrix(record, SIDE, 0.0)
    crop = face_crops.cut(record, matrix, SIDE)
    assert crop.shape == (SIDE, SIDE, 3) and crop.dtype == np.uint8
    assert (crop.min(), crop.max()) == (DARK, SKIN)


def test_training_varies_exposure_and_keeps_hue():
    record = record_of([])
    matrix = face_crops.face_matrix(record, SIDE, 0.0)
    levels = set()
    for seed in range(5):
        crop = face_crops.cut(record, matrix, SIDE, np.random.default_rng(seed))
        assert crop.min() == crop.max()
        levels.add(int(crop.max()))
        assert 0.85 * SKIN - 13 <= crop.max() <= 1.15 * SKIN + 13
    assert len(levels) > 2


@pytest.mark.parametrize("seed", range(6))
def test_exposure_keeps_the_order_of_levels(seed):
    """Also where black would turn negative, or white pass 255."""
    image = np.tile(np.arange(256, dtype=np.uint8)[None, :, None], (256, 1, 3))
    record = LesionImage("levels", image, (), ())
    matrix = face_crops.face_matrix(record, 256, 0.0)
    crop = face_crops.cut(record, matrix, 256, np.random.default_rng(seed))
    levels = crop[0, :, 0].astype(int)
    assert (np.diff(levels) >= 0).all() and len(np.unique(levels)) > 200


def test_pseudo_masks_are_for_boxes_alone():
    record = record_of(
        [("mole", angle(100, 60, 30, 24)), ("acne", angle(60, 60, 9, 9))]
    )
    mole, acne = record.regions
    bare = dataclasses.replace(mole, mask=None)
    crowd = dataclasses.replace(bare, crowd=True)
    record = dataclasses.replace(record, regions=(bare, acne, crowd))
    got = face_crops.with_pseudo_masks(record, RULES).regions
    assert got[1] is acne and got[2] is crowd
    assert masks.overlap(got[0].mask, mole.mask) == mole.mask.pixels.sum()
    np.testing.assert_array_equal(got[0].box, mole.box)
    assert face_crops.with_pseudo_masks(record, {"acne": RULE}).regions[0] is bare


def test_no_regions_is_a_true_negative():
    known = truth_of(boxed())
    np.testing.assert_array_equal(known.pop("labelled"), [True, True])
    shapes = {key: (value.shape, value.dtype) for key, value in known.items()}
    assert shapes == {
        "boxes": ((2, 3, 4), np.float32),
        "valid": ((2, 3), bool),
        "crowd": ((2, 3), bool),
        "mask_boxes": ((2, 2, 4), np.float32),
        "mask_valid": ((2, 2), bool),
        "mask_targets": ((2, 2, 28, 28), np.uint8),
        "true_candidates": ((4, 4), np.float32),
        "true_candidates_valid": ((4,), bool),
    }
    assert not any(value.any() for value in known.values())


def test_regions_of_an_unlabelled_branch_are_in_no_array():
    moles = [("mole", angle(60, 60, 20, 20)), ("mole", angle(90, 60, 20, 20))]
    acne = [("acne", angle(150, 100, 16, 16))]
    labelled = ("acne",)
    with_moles = record_of(moles[:1] + acne + moles[1:], labelled=labelled)
    without = record_of(acne, labelled=labelled)
    got, expected = truth_of(with_moles), truth_of(without)
    np.testing.assert_array_equal(got["labelled"], [True, False])
    assert expected["true_candidates_valid"].sum() == 1
    for key, value in expected.items():
        np.testing.assert_array_equal(got[key], value, err_msg=key)


def test_branches_come_in_the_order_asked_for():
    record = record_of(
        [("acne", angle(60, 60, 20, 20)), ("other", angle(90, 90, 9, 9))],
        labelled=("other", "acne"),
    )
    known = truth_of(record, branches=("mole", "acne"))
    np.testing.assert_array_equal(known["labelled"], [False, True])
    np.testing.assert_array_equal(known["valid"].sum(axis=1), [0, 1])
    assert known["true_candidates_valid"].sum() == 1


def test_a_full_array_is_fine_and_one_more_is_an_error():
    four = [(40 + 10 * i, 40, 48 + 10 * i, 48) for i in range(4)]
    assert truth_of(boxed(*four[:3]))["valid"][0].all()
    with pytest.raises(
        ValueError, match=r"boxed: 4 regions of acne.*room for 3.*max_boxes"
    ):
        truth_of(boxed(*four))
    assert not truth_of(boxed(*four, labelled=("mole",)))["valid"].any()


@pytest.mark.parametrize(
    "box, expected, is_target",
    [
        ((40, 40, 50, 50), (8, 8, 18, 18), True),
        ((26, 40, 36, 50), (0, 8, 4, 18), False),  # 40 % inside
        ((28, 40, 38, 50), (0, 8, 6, 18), True),  # 60 %
        ((90, 92, 98, 100), (58, 60, 64, 64), False),  # a corner, 3/4 times 1/2
        ((20, 40, 32, 50), None, None),  # touches from outside
        ((100, 100, 110, 110), None, None),
        ((40, 40, 40, 50), None, None),  # without area
    ],
)
def test_what_the_crop_cuts_is_ignored_and_what_it_leaves_out_is_gone(
    box, expected, is_target
):
    mask = Patch(0, 0, np.ones((128, 128), bool))
    known = truth_of(boxed(box, mask=mask))
    assert known["valid"].sum() == (expected is not None)
    if expected is not None:
        np.testing.assert_allclose(known["boxes"][0, 0], expected, atol=1e-4)
        assert known["crowd"][0, 0] == (not is_target)
    targets = int(bool(is_target))
    assert known["mask_valid"].sum() == targets
    assert known["true_candidates_valid"].sum() == targets


def test_a_crowd_is_never_a_target():
    mask = Patch(40, 40, np.ones((10, 10), bool))
    known = truth_of(boxed((40, 40, 50, 50), mask=mask, crowd=True))
    np.testing.assert_array_equal(known["valid"], known["crowd"])
    assert known["crowd"].sum() == 1
    assert not known["mask_valid"].any()
    assert not known["true_candidates_valid"].any()


def test_a_region_without_mask_is_a_target_without_mask():
    known = truth_of(boxed((40, 40, 50, 50)))
    assert known["valid"].sum() == known["true_candidates_valid"].sum() == 1
    assert not known["crowd"].any() and not known["mask_valid"].any()


@pytest.mark.parametrize("seed", range(10))
def test_shaken_boxes_still_hold_their_region(seed):
    box = np.array([33, 40, 53, 52], np.float32)  # one pixel from the crop's border
    mask = Patch(33, 40, np.ones((12, 20), bool))
    known = truth_of(boxed(box, mask=mask), rng=seed)
    shift = box - 32
    # Both borders moved inwards by 8 and by 12 percent of the sides, at the worst.
    assert overlap(known["mask_boxes"][0, 0], shift) >= 0.84**2 - 1e-6
    assert overlap(known["true_candidates"][0], shift) >= 0.76**2 - 1e-6
    assert (known["mask_boxes"][0, 0] != shift).any()
    assert known["true_candidates"].min() >= 0


def test_more_masks_than_room_are_a_varying_choice():
    patches = [("acne", angle(50 + 20 * i, 60, 14, 14)) for i in range(3)]
    record = record_of(patches)
    chosen = set()
    for seed in range(12):
        known = truth_of(record, rng=seed, room=(3, 1, 2))
        assert known["mask_valid"].sum() == 1
        assert known["true_candidates_valid"].sum() == 2
        mask_box = known["mask_boxes"][0, 0]
        candidates = known["true_candidates"]
        nearest = [
            int(np.argmax([overlap(box, true) for true in known["boxes"][0]]))
            for box in (mask_box, *candidates)
        ]
        assert nearest[1] != nearest[2]
        chosen.add(nearest[0])
    assert chosen == {0, 1, 2}


MOLES = [
    ("mole", angle(60, 40, 30, 24)),
    ("mole", angle(150, 120, 21, 33, turned=True)),
]
ACNE = [("acne", angle(120, 70, 18, 18))]


def found_of(record, matrix, side=SIDE, **replaced):
    """The truth as if it had been predicted, the second region of a branch better."""
    known = truth_of(record, matrix, side)
    shape = known["valid"].shape
    found = {
        "boxes": known["boxes"],
        "scores": np.broadcast_to([0.7, 0.9, 0.3], shape),
        "valid": known["valid"],
        "masks": np.zeros((*shape, 28, 28), np.float32),
    }
    for row, branch in enumerate(BRANCHES):
        here = [region for region in record.regions if region.branch == branch]
        for slot, region in enumerate(here):
            found["masks"][row, slot] = masks.coverage(region.mask, region.box, 28)
    return found | replaced


def test_found_regions_undo_the_crop():
    record = record_of(MOLES + ACNE)
    matrix = face_crops.face_matrix(record, SIDE, 0.1)
    found = found_of(record, matrix)
    got = face_crops.found_regions(record, found, matrix, RULES, 0.05, 0.8)
    assert [(r.branch, r.score) for r in got] == [
        ("acne", 0.7),
        ("mole", 0.9),
        ("mole", 0.7),
    ]
    expected = [record.regions[number] for number in (2, 1, 0)]
    for region, true in zip(got, expected, strict=True):
        np.testing.assert_allclose(region.box, true.box, atol=0.1)
        assert masks.iou(region.mask, true.mask) > 0.9
    assert [r.pixels is None for r in got] == [True, False, True]
    np.testing.assert_array_equal(
        masks.to_full(got[1].pixels, 220, 240),
        masks.to_full(got[1].mask, 220, 240) & (record.image[..., 0] == DARK),
    )


def test_mask_targets_come_back_as_the_masks():
    record = record_of(MOLES + ACNE)
    matrix = face_crops.face_matrix(record, SIDE, 0.1)
    known = truth_of(record, matrix, SIDE, room=(3, 3, 4))
    found = {
        "boxes": known["mask_boxes"],
        "scores": np.ones((2, 3)),
        "valid": known["mask_valid"],
        "masks": known["mask_targets"] / 255,
    }
    got = face_crops.found_regions(record, found, matrix, RULES, 0.05, 2.0)
    assert len(got) == 3
    for region in got:
        true = max(record.regions, key=lambda r: masks.overlap(r.mask, region.mask))
        assert true.branch == region.branch
        box = masks.paste(np.ones((2, 2)), region.box, 220, 240)
        inside = masks.to_full(true.mask, 220, 240) & masks.to_full(box, 220, 240)
        assert masks.iou(region.mask, masks.from_full(inside)) > 0.9


def test_a_lesion_beside_a_region_is_not_compared_with_it():
    rows, columns = np.ogrid[:220, :240]
    faint = (columns - 120) ** 2 + (rows - 100) ** 2 <= 49
    ring = (columns - 120) ** 2 + (rows - 100) ** 2 <= 400
    dark = ring & ~cv2.dilate(faint.view(np.uint8), np.ones((5, 5))).astype(bool)
    record = record_of([("mole", masks.from_full(faint)), ("acne", Patch(0, 0, dark))])
    record.image[faint] = SKIN - 40
    matrix = face_crops.face_matrix(record, SIDE, 0.1)
    found = found_of(record, matrix, scores=np.ones((2, 3)))
    mole = face_crops.found_regions(record, found, matrix, RULES, 0.05, 0.5)[1]
    pixels = masks.to_full(mole.pixels, 220, 240)
    assert (pixels & faint).sum() > 0.9 * faint.sum()
    assert (pixels & ~faint).sum() == 0


@pytest.mark.parametrize(
    "replaced",
    [
        {"valid": np.zeros((2, 3), bool)},
        {"scores": np.full((2, 3), 0.01)},
        {"masks": np.zeros((2, 3, 28, 28))},
        {"boxes": np.zeros((2, 3, 4))},
        {"boxes": np.full((2, 3, 4), [-90, -90, -80, -80])},
    ],
    ids=["not valid", "low score", "empty mask", "no area", "outside the photo"],
)
def test_what_is_no_region_is_left_out(replaced):
    record = record_of(MOLES)
    matrix = face_crops.face_matrix(record, SIDE, 0.0)
    found = found_of(record, matrix, **replaced)
    assert face_crops.found_regions(record, found, matrix, RULES, 0.05, 0.5) == []


def test_found_boxes_are_cut_to_the_photo():
    record = record_of([], face=(0, 0, 100, 100))
    matrix = face_crops.face_matrix(record, 100, 0.1)
    found = {
        "boxes": np.array([[[0, 0, 50, 50]]]),
        "scores": np.array([[0.6]]),
        "valid": np.array([[True]]),
        "masks": np.ones((1, 1, 28, 28)),
    }
    (got,) = face_crops.found_regions(record, found, matrix, {"acne": RULE}, 0.05, 0.9)
    # The crop's corner is at (-10, -10) in the photo, a pixel of it 1.2 pixels.
    np.testing.assert_allclose(got.box, [0, 0, 50, 50], atol=1e-3)
    assert (got.mask.x, got.mask.y, got.mask.pixels.shape) == (0, 0, (50, 50))
