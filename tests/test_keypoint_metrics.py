"""Right points and errors of first and second points, by hand."""

import dataclasses
import json
import math
import time

import numpy as np
import pytest

from facekp_jax.metrics.keypoints import NAMES, STAGES, SUBSETS, KeypointMetrics
from facekp_jax.records import Instance
from facekp_jax.skeletons import AP10K, COCO, LSP, MPII, POSETRACK, from_names

DOT = from_names(
    "dot", ["a", "b", "c", "d"], [("a", "b"), ("b", "c"), ("c", "d")], None
)
FLY = from_names("fly", ["head", "tail"], [("head", "tail")], None)


def instance(*keypoints, skeleton=DOT, side=100.0, **fields):
    keypoints = np.array(keypoints, np.float32)
    box = np.array([0, 0, side, side / 2], np.float32)
    return Instance(skeleton.name, keypoints, box, 5000.0, **fields)


# Visible, occluded, not labelled, visible.
TRUTH = instance((10, 10, 2), (50, 20, 1), (0, 0, 0), (90, 40, 2))


def found(*errors, truth=TRUTH, **fields):
    """Points to the right of the true ones, by so many pixels; None: not found."""
    keypoints = truth.keypoints.copy()
    for keypoint, error in zip(keypoints, errors, strict=True):
        if error is None:
            keypoint[:] = 0
        else:
            keypoint[:] += [error, 0, 0]
            keypoint[2] = 2
    return dataclasses.replace(truth, keypoints=keypoints, **fields)


PERFECT = found(0, 0, 0, 0)


def scored(triples, skeletons=(DOT,), **options):
    metrics = KeypointMetrics(skeletons, **options)
    for triple in triples:
        metrics.update(*triple)
    result = metrics.result()
    json.dumps([result, metrics.table()], allow_nan=False)
    return result


def values(result, prefix):
    return [result[f"{prefix}{name}"] for name in NAMES]


def test_names():
    measured = {f"{s}/{n}{x}" for s in STAGES for n in NAMES for x in SUBSETS}
    assert {"first/pck", "second/mean_error_px/occluded", "second/oks_ap"} <= measured
    result = scored([], skeletons=(DOT, FLY))
    for prefix in ("", "dot/", "fly/"):
        assert {prefix + name for name in measured} <= result.keys()
    assert all(name == name.lower() for name in result)


@pytest.mark.parametrize("unlabelled", [0, 2])
def test_nothing_to_measure_is_none(unlabelled):
    truth = instance(*[(0, 0, 0)] * 4)
    result = scored([(truth, PERFECT, None)] * unlabelled)
    for prefix in ("first/", "second/", "dot/first/", "dot/second/"):
        assert values(result, prefix) == [None] * len(NAMES)
    assert result["second/error_reduction"] is None
    assert result["instances_unlabelled"] == unlabelled
    assert result["instances"] == result["keypoints"] == 0


def test_truth_against_itself():
    bare = instance((10, 10, 2), (0, 0, 0), (0, 0, 0), (0, 0, 0))
    result = scored([(TRUTH, TRUTH, TRUTH), (bare, bare, bare)] * 15)
    for stage in STAGES:
        for suffix in SUBSETS:
            got = [result[f"{stage}/{name}{suffix}"] for name in NAMES]
            assert got == [1, 0, 0, 0, 1, 1]
    assert result["instances"] == 30


def test_errors_by_hand():
    # 5 % of the longer side are 5 pixels.
    result = scored([(TRUTH, found(3, 5, 99, 5.5), found(0, 8, 99, 4))])
    assert result["first/pck"] == pytest.approx(2 / 3)
    assert result["second/pck"] == pytest.approx(2 / 3)
    assert result["first/pck/visible"] == 0.5
    assert result["first/pck/occluded"] == 1
    assert result["second/pck/visible"] == 1
    assert result["second/pck/occluded"] == 0
    assert result["first/mean_error_px"] == pytest.approx(13.5 / 3)
    assert result["first/mean_error_px/visible"] == pytest.approx(8.5 / 2)
    assert result["second/mean_error_px/occluded"] == 8
    assert result["second/error_reduction/occluded"] == pytest.approx(1 - 8 / 5)
    assert result["second/error_reduction/visible"] == pytest.approx(1 - 4 / 8.5)
    assert result["second/rmse_px"] == pytest.approx(math.sqrt(80 / 3))
    assert result["first/nme"] == pytest.approx(0.135 / 3)
    assert result["second/nme/visible"] == pytest.approx(0.02)
    counts = [result[f"keypoints{suffix}"] for suffix in SUBSETS]
    assert counts == [3, 2, 1]


def test_errors_are_distances():
    truth = instance((10, 10, 2), (0, 0, 0), (0, 0, 0), (0, 0, 0))
    points = instance((13, 14, 2), (0, 0, 0), (0, 0, 0), (0, 0, 0))
    result = scored([(truth, points, points)])
    assert result["first/mean_error_px"] == 5


@pytest.mark.parametrize("threshold, right", [(0.029, 0), (0.03, 1), (0.054, 2)])
def test_pck_within_the_threshold(threshold, right):
    result = scored([(TRUTH, found(3, 5, 0, 5.5), PERFECT)], threshold=threshold)
    assert result["first/pck"] == pytest.approx(right / 3)
    assert result["second/pck"] == 1


def test_nothing_found_is_wrong_and_without_an_error():
    result = scored([(TRUTH, None, found(None, 4, 0, 0))])
    assert values(result, "first/") == [0, None, None, None, 0, 0]
    assert result["second/pck"] == pytest.approx(2 / 3)
    assert result["second/mean_error_px"] == 2
    assert result["first/keypoints_found"] == 0
    assert result["second/keypoints_found"] == 2
    assert result["second/keypoints_found/occluded"] == 1


def test_a_point_that_was_not_found_may_be_nan():
    points = found(None, 4, None, 0)
    points.keypoints[0, :2] = math.nan
    assert scored([(TRUTH, points, points)])["first/mean_error_px"] == 2


def test_oks_ap_of_subsets():
    # The occluded keypoint is far off, the visible ones are right.
    result = scored([(TRUTH, found(0, 90, 0, 0), PERFECT)])
    assert result["first/oks_ap/visible"] == 1
    assert result["first/oks_ap/occluded"] == 0
    assert result["first/oks_ap"] == pytest.approx(0.4)  # 2/3 is above 0.5 ... 0.65
    assert result["first/oks_ap50"] == result["second/oks_ap/occluded"] == 1


def test_a_prediction_is_only_right_about_its_own_instance():
    other = instance((15, 10, 2), (55, 20, 1), (0, 0, 0), (95, 40, 2))
    wrong = found(900, 900, 900, 900, score=0.9)
    near = dataclasses.replace(PERFECT, score=0.8)
    result = scored([(TRUTH, wrong, near), (other, near, wrong)])
    assert result["second/oks_ap50"] == pytest.approx(0.5 * 51 / 101)


def person(skeleton, **places):
    keypoints = np.zeros((len(skeleton.keypoints), 3))
    for name, place in places.items():
        keypoints[skeleton.keypoints.index(name)] = (*place, 2)
    return instance(*keypoints, skeleton=skeleton)


@pytest.mark.parametrize(
    "skeleton, normaliser, places",
    [
        (COCO, "torso", {"left_shoulder": (50, 10), "right_hip": (20, 50)}),
        (AP10K, "torso", {"right_shoulder": (50, 10), "left_hip": (20, 50)}),
        (LSP, "head", {"head_top": (50, 10), "neck": (20, 50)}),
        (MPII, "head", {"head_top": (50, 10), "upper_neck": (20, 50)}),
        (POSETRACK, "head", {"head_top": (50, 10), "head_bottom": (20, 50)}),
    ],
)
def test_sizes_of_segments(skeleton, normaliser, places):
    truth = person(skeleton, **places)  # 50 pixels
    points = found(*[10] * len(skeleton.keypoints), truth=truth)
    result = scored(
        [(truth, points, points)], (skeleton,), threshold=0.2, normaliser=normaliser
    )
    assert (result["first/nme"], result["first/pck"]) == (pytest.approx(0.2), 1)


def test_an_instance_whose_size_is_not_known_has_errors_but_no_pck():
    truth = person(COCO, left_shoulder=(50, 10), left_hip=(50, 50))
    whole = person(COCO, left_shoulder=(50, 10), right_hip=(20, 50))
    points = [found(*[10] * 17, truth=t) for t in (truth, whole)]
    result = scored([(truth, points[0], None)], (COCO,), normaliser="torso")
    assert values(result, "first/")[:3] == [None, None, 10]
    assert (result["keypoints"], result["keypoints_scaled"]) == (2, 0)
    both = [(t, p, None) for t, p in zip((truth, whole), points, strict=True)]
    result = scored(both, (COCO,), normaliser="torso", threshold=0.1)
    assert values(result, "first/")[:3] == [0, pytest.approx(0.2), 10]
    assert (result["keypoints"], result["keypoints_scaled"]) == (4, 2)


@pytest.mark.parametrize(
    "normaliser, message",
    [("torso", "'dot' has no torso: it lacks left_shoulder-right"), ("arm", "'arm'")],
)
def test_normalisers_that_do_not_fit(normaliser, message):
    with pytest.raises(ValueError, match=f"{message}.*use.* box"):
        KeypointMetrics([DOT], normaliser=normaliser)


def test_types_are_apart_and_together():
    fly = instance((10, 10, 2), (50, 20, 1), skeleton=FLY)
    wrong = found(7, 9, truth=fly)
    result = scored([(TRUTH, PERFECT, PERFECT), (fly, wrong, None)], (DOT, FLY))
    assert result["dot/first/pck"] == 1
    assert result["fly/first/pck"] == 0
    assert result["first/pck"] == pytest.approx(3 / 5)  # keypoints, not types
    assert result["first/mean_error_px"] == pytest.approx(16 / 5)
    assert result["fly/first/mean_error_px"] == 8
    assert result["second/oks_ap"] == 0.5  # types
    assert result["fly/second/oks_ap"] == 0
    assert (result["dot/keypoints"], result["fly/keypoints"]) == (3, 2)
    assert (result["fly/keypoints/occluded"], result["fly/instances"]) == (1, 1)


def test_the_table_has_a_row_for_each_keypoint():
    metrics = KeypointMetrics([DOT, FLY])
    metrics.update(TRUTH, found(3, 6, 0, 0), PERFECT)
    metrics.update(TRUTH, found(4, None, 0, 0), None)
    table = metrics.table()
    assert list(table) == ["dot", "fly"]
    assert list(table["dot"]) == list(DOT.keypoints)
    row = table["dot"]["a"]
    assert (row["keypoints"], row["first/pck"], row["second/pck"]) == (2, 1, 0.5)
    assert (row["first/mean_error_px"], row["second/mean_error_px"]) == (3.5, 0)
    row = table["dot"]["b"]
    assert (row["keypoints"], row["first/pck"], row["first/mean_error_px"]) == (2, 0, 6)
    for row in (table["dot"]["c"], *table["fly"].values()):
        assert row.pop("keypoints") == 0
        assert set(row.values()) == {None}


def test_an_area_of_zero_is_that_of_the_box_and_counted():
    bare = dataclasses.replace(TRUTH, area=0.0)
    points = found(6, 6, 6, 6)
    with pytest.warns(UserWarning, match="no area") as warned:
        result = scored([(bare, points, bare), (TRUTH, points, TRUTH)])
    assert len(warned) == 1
    assert result["instances_without_area"] == result["dot/instances_without_area"] == 1
    # The box's area is the instance's, 5000: as if it had been given.
    assert result["first/oks_ap"] == scored([(TRUTH, points, TRUTH)])["first/oks_ap"]
    assert result["second/oks_ap"] == 1


@pytest.mark.parametrize(
    "truth, points, message",
    [
        (TRUTH, found(math.nan, 0, 0, 0), "a predicted dot with score 1.0"),
        (TRUTH, found(0, 0, 0, 0, score=math.inf), "a predicted dot with score inf"),
        (TRUTH, dataclasses.replace(TRUTH, skeleton="fly"), "predicted fly against"),
        (dataclasses.replace(TRUTH, skeleton="cow"), TRUTH, "a cow, only dot"),
    ],
)
def test_what_cannot_be_measured_is_refused(truth, points, message):
    metrics = KeypointMetrics([DOT])
    for pair in ((points, PERFECT), (PERFECT, points)):
        with pytest.raises(ValueError, match=f"cannot measure .*{message}"):
            metrics.update(truth, *pair)


def test_a_thousand_instances_take_seconds():
    rng = np.random.default_rng(0)
    metrics = KeypointMetrics([COCO])
    start = time.process_time()
    for _ in range(1000):
        keypoints = np.column_stack([rng.uniform(0, 100, (17, 2)), np.full(17, 2)])
        truth = instance(*keypoints, skeleton=COCO)
        metrics.update(truth, truth, truth)
    assert metrics.result()["second/oks_ap"] == 1
    metrics.table()
    assert time.process_time() - start < 10
