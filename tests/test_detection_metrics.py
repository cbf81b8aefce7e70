"""Tests for the detection metrics: truth against itself is 1, the rest by hand."""

import dataclasses
import json
import time

import numpy as np
import pytest

from facekp_jax.metrics.detection import COUNTS, NAMES, DetectionMetrics
from facekp_jax.records import LesionImage, Patch, Region


def patch(x, y, width, height):
    return Patch(x, y, np.ones((height, width), bool))


def region(x, y, width=10, height=10, *, branch="acne", bare=False, **fields):
    """A region whose mask and target pixels fill its box, or that has only the box."""
    box = np.array([x, y, x + width, y + height], np.float32)
    mask = None if bare else patch(x, y, width, height)
    return Region(branch, box, **({"mask": mask, "pixels": mask} | fields))


def photo(*regions, labelled=("acne",), side=200):
    image = np.zeros((side, side, 3), np.uint8)
    return LesionImage("photo", image, tuple(regions), labelled)


def scored(pairs, branches=("acne",), **options):
    metrics = DetectionMetrics(branches, **options)
    for record, regions in pairs:
        metrics.update(record, regions)
    result = metrics.result()
    json.dumps(result, allow_nan=False)
    return result


def values(result, prefix=""):
    return {name: result[prefix + name] for name in NAMES}


def test_nothing_at_all_is_none():
    for pairs in [[], [(photo(), [])], [(photo(), [region(0, 0)])]]:
        result = scored(pairs)
        assert values(result) == values(result, "acne/") == dict.fromkeys(NAMES)
        assert [result[name] for name in COUNTS] == [0, 0, 0]
        assert result["photos"] == len(pairs)


def test_no_detections_score_zero():
    result = scored([(photo(region(5, 5)), [])])
    assert values(result) == dict.fromkeys(NAMES, 0.0)


@pytest.mark.parametrize(
    "regions",
    [
        [region(5, 5)],
        [region(5, 5)] * 3,
        [region(x, y, 3, 4) for x in range(0, 80, 4) for y in range(0, 80, 5)],
        [region(5, 5), region(50, 50, 100, 100, crowd=True), region(70, 80)],
        [region(5, 5), region(5, 5, crowd=True, bare=True)],
    ],
    ids=["one", "duplicates", "320 objects", "crowd", "bare crowd"],
)
@pytest.mark.parametrize("photos", [1, 3])
def test_truth_against_itself_is_exactly_one(regions, photos):
    result = scored([(photo(*regions), regions)] * photos)
    assert values(result) == values(result, "acne/") == dict.fromkeys(NAMES, 1.0)
    assert result["regions"] == photos * sum(not r.crowd for r in regions)


def test_average_precision_by_hand():
    # Best score wrong, second right, one of two found: precision 1/2 up to recall 1/2,
    # that is at 51 of COCO's 101 recalls.
    truth = photo(region(5, 5), region(50, 50))
    found = [region(100, 100, score=0.9), region(5, 5, score=0.8)]
    result = scored([(truth, found)])
    for name in NAMES[:4]:
        assert result[name] == pytest.approx(0.5 * 51 / 101)
    assert result["pixel_iou"] == 0.5


def test_box_ap_averages_over_thresholds():
    # IoU 8 / 10 passes 0.5, 0.55, ..., 0.75: 6 of 10, and 0.8 itself.
    result = scored([(photo(region(0, 0, 10, 10)), [region(0, 0, 8, 10)])])
    assert result["box_ap50"] == result["mask_ap50"] == 1
    assert result["box_ap"] == result["mask_ap"] == pytest.approx(0.7)
    assert result["pixel_iou"] == pytest.approx(0.8)


def test_photos_not_labelled_for_a_branch_are_left_out():
    known = photo(region(5, 5), labelled=("acne",))
    unknown = photo(labelled=("mole",))
    noise = [region(x, 90, score=1.0) for x in range(0, 90, 10)]
    result = scored([(unknown, noise), (known, [region(5, 5, score=0.5)])])
    assert values(result) == dict.fromkeys(NAMES, 1.0)
    assert result["photos"] == 2 and result["acne/photos"] == 1


def test_predictions_on_a_true_negative_count_against():
    noise = [region(x, 90, score=1.0) for x in range(0, 30, 10)]
    result = scored(
        [(photo(), noise), (photo(region(5, 5)), [region(5, 5, score=0.5)])]
    )
    assert result["box_ap50"] == pytest.approx(1 / 4)
    assert result["mask_ap50"] == pytest.approx(1 / 4)
    assert result["pixel_iou"] == 1


def test_averages_skip_branches_without_truth():
    both = ("acne", "mole", "spot")
    truth = photo(region(5, 5), region(50, 50, branch="mole"), labelled=both)
    found = [region(5, 5), region(90, 90, branch="spot")]
    result = scored([(truth, found)], branches=both)
    assert result["acne/box_ap"] == 1
    assert result["mole/box_ap"] == 0
    assert result["spot/box_ap"] is None
    assert values(result) == dict.fromkeys(NAMES, 0.5)


def test_regions_of_other_branches_are_nobody_s():
    truth = photo(
        region(5, 5), region(50, 50, branch="mole"), labelled=("acne", "mole")
    )
    found = [region(5, 5), region(5, 5, branch="mole")]
    assert scored([(truth, found)])["box_ap"] == 1


def test_boxes_without_masks_leave_mask_metrics_open():
    result = scored([(photo(region(5, 5, bare=True)), [region(5, 5)])])
    assert result["box_ap"] == 1
    assert result["mask_ap"] is result["mask_ap50"] is result["pixel_iou"] is None
    assert (result["regions"], result["regions_with_mask"]) == (1, 0)


def test_masks_are_measured_where_the_truth_has_them():
    bare = photo(region(5, 5, bare=True), region(50, 50))
    full = photo(region(5, 5))
    result = scored([(bare, [region(99, 99, score=1.0)]), (full, [region(5, 5)])])
    assert result["mask_ap"] == 1
    assert result["regions_with_mask"] == 1


def test_a_prediction_without_a_mask_finds_no_mask():
    result = scored([(photo(region(5, 5)), [region(5, 5, bare=True)])])
    assert result["box_ap"] == 1
    assert result["mask_ap"] == result["pixel_iou"] == 0


def test_mask_ap_is_about_masks_not_boxes():
    wrong = dataclasses.replace(region(5, 5), mask=patch(5, 5, 4, 10))
    result = scored([(photo(region(5, 5)), [wrong])])
    assert result["box_ap50"] == 1 and result["mask_ap50"] == 0


def test_predictions_in_a_crowd_are_neither_right_nor_wrong():
    truth = photo(region(5, 5), region(100, 100, 80, 80, crowd=True))
    found = [region(110, 110, score=0.9), region(130, 130, score=0.8), region(5, 5)]
    assert values(scored([(truth, found)])) == dict.fromkeys(NAMES, 1.0)


def test_pixel_iou_needs_score_and_box():
    truth = photo(region(0, 0), region(50, 50))
    found = [region(0, 0, score=0.5), region(50, 50, score=0.49)]
    assert scored([(truth, found)])["pixel_iou"] == 0.5
    assert scored([(truth, found)], score_threshold=0.4)["pixel_iou"] == 1
    assert scored([(truth, [region(4, 0)])])["pixel_iou"] == 0  # box IoU 6 / 14


def test_pixel_iou_is_one_to_one_in_the_order_of_scores():
    half = patch(0, 0, 5, 10)
    rivals = [region(0, 0, score=0.6), region(0, 0, score=0.9, pixels=half)]
    assert scored([(photo(region(0, 0)), rivals)])["pixel_iou"] == 0.5
    # Two neighbours: the better score takes the better fit, the other what is left.
    truth = photo(region(0, 0), region(2, 0))
    found = [region(2, 0, score=0.7), region(2, 0, score=0.9)]
    assert scored([(truth, found)])["pixel_iou"] == pytest.approx((1 + 8 / 12) / 2)


def test_regions_without_target_pixels_are_no_part_of_pixel_iou():
    nothing = Patch(0, 0, np.zeros((0, 0), bool))
    truth = photo(
        region(0, 0), region(50, 50, pixels=None), region(90, 0, pixels=nothing)
    )
    result = scored([(truth, [region(0, 0)])])
    assert result["pixel_iou"] == 1 and result["regions_with_pixels"] == 1


@pytest.mark.parametrize("bad", [{"score": float("nan")}, {"box": np.full(4, np.inf)}])
def test_what_is_not_finite_is_refused_by_name(bad):
    found = dataclasses.replace(region(0, 0), **bad)
    with pytest.raises(ValueError, match="photo: cannot measure a predicted acne"):
        DetectionMetrics(["acne"]).update(photo(), [found])


def test_a_box_without_area_makes_no_nan():
    point = region(5, 5, 0, 0)
    result = scored([(photo(region(5, 5)), [point])])
    assert values(result) == dict.fromkeys(NAMES, 0.0)


def test_result_can_be_asked_for_between_photos(capfd):
    metrics = DetectionMetrics(["acne"])
    metrics.update(photo(region(5, 5)), [])
    assert metrics.result()["box_ap"] == 0
    metrics.update(photo(region(5, 5)), [region(5, 5)])
    assert metrics.result() == metrics.result()
    assert metrics.result()["box_ap"] == pytest.approx(51 / 101)
    assert capfd.readouterr() == ("", "")


def test_two_hundred_faces_take_seconds():
    rng = np.random.default_rng(0)
    names = ("acne", "mole", "wrinkle")
    metrics = DetectionMetrics(names)
    start = time.perf_counter()
    for _ in range(200):
        truth = [
            region(
                *rng.integers(0, 580, 2), *rng.integers(5, 60, 2), branch=names[i % 3]
            )
            for i in range(15)
        ]
        found = [dataclasses.replace(r, score=rng.random()) for r in truth]
        metrics.update(photo(*truth, labelled=names, side=640), found)
    result = metrics.result()
    assert time.perf_counter() - start < 5
    assert values(result) == dict.fromkeys(NAMES, pytest.approx(1, abs=0.6))
