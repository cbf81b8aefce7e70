"""Purity of groups and average precision of keypoints, by hand."""

import dataclasses
import json
import math

import numpy as np
import pytest

from facekp_jax.metrics.grouping import NAMES, GroupingMetrics
from facekp_jax.records import Instance, KeypointImage, Patch
from facekp_jax.skeletons import from_names

# k = 0.2 and an area of 100: the similarity exp(-d^2 / 8) is 0.5 at this distance.
LIMIT = math.sqrt(8 * math.log(2))  # 2.35 pixels
DOT = from_names("dot", ["a", "b", "c"], [("a", "b"), ("b", "c")], None, [0.1] * 3)
FLY = from_names("fly", ["head", "tail"], [("head", "tail")], None, [0.1, 0.2])


def instance(*xs, y=10.0, skeleton=DOT, **fields):
    """Keypoints in a row; None is not labelled, or not found."""
    keypoints = np.array([(0, 0, 0) if x is None else (x, y, 2) for x in xs], "f4")
    box = np.array([0, y - 5, 50, y + 5], np.float32)
    return Instance(skeleton.name, keypoints, box, **{"area": 100.0} | fields)


def found(*xs, scores=None, **fields):
    scores = None if scores is None else np.array(scores, np.float32)
    return instance(*xs, keypoint_scores=scores, **fields)


def photo(*instances, labelled=("dot",), ignore=None):
    image = np.zeros((4, 4, 3), np.uint8)
    return KeypointImage("photo", image, tuple(instances), labelled, ignore)


def scored(pairs, skeletons=(DOT,)):
    metrics = GroupingMetrics(skeletons)
    for record, instances in pairs:
        metrics.update(record, instances)
    result = metrics.result()
    json.dumps(result, allow_nan=False)
    assert result == metrics.result()
    return result


def values(result, prefix=""):
    return tuple(result[prefix + name] for name in NAMES)


ONE = instance(10, 20, 30)
TWO = instance(10, 20, 30, y=100)


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [(photo(), [])],
        [(photo(), [ONE])],
        [(photo(instance(None, None, None)), [ONE])],
        [(photo(ONE, labelled=()), [ONE])],
        [(photo(dataclasses.replace(ONE, skeleton="fly")), [])],
    ],
)
def test_nothing_to_measure_is_none(pairs):
    result = scored(pairs)
    assert values(result) == values(result, "dot/") == (None, None)
    assert result["keypoints"] == result["dot/keypoints_matched"] == 0


def test_nothing_found():
    result = scored([(photo(ONE), []), (photo(TWO), [instance(None, None, None)])])
    assert values(result) == (None, 0.0)
    assert (result["keypoints"], result["keypoints_matched"]) == (6, 0)


@pytest.mark.parametrize(
    "instances",
    [
        [ONE],
        [ONE, TWO],
        [ONE] * 3,
        [
            instance(30 * i, 30 * i + 9, 30 * i + 18, y=25 * j)
            for i, j in np.ndindex(9, 5)
        ],
        [instance(None, 20, None), instance(None, None, None, y=100)],
        [dataclasses.replace(ONE, keypoints=ONE.keypoints - np.array([0, 0, 1], "f4"))],
    ],
    ids=["one", "two", "triplets", "45", "unlabelled", "occluded"],
)
@pytest.mark.parametrize("photos", [1, 3])
def test_truth_against_itself_is_exactly_one(instances, photos):
    result = scored([(photo(*instances), instances)] * photos)
    assert values(result) == values(result, "dot/") == (1.0, 1.0)
    labelled = sum(np.count_nonzero(i.keypoints[:, 2]) for i in instances)
    assert result["keypoints"] == result["keypoints_matched"] == photos * labelled


def test_purity_is_the_share_in_the_majority_of_its_group():
    # 2 of 3 in the first group and 1 of 1 in the second, of 4 that have a true one.
    mixed = instance(10, 20, None)
    mixed.keypoints[2] = TWO.keypoints[2]
    lone, wrong = instance(None, 20, None, y=100), instance(70, None, None)
    result = scored([(photo(ONE, TWO), [mixed, lone, wrong])])
    assert result["purity"] == 3 / 4
    assert result["keypoints_matched"] == 4
    # Over photos keypoints count, not groups: 3 + 6 of 4 + 6.
    result = scored([(photo(ONE, TWO), [mixed, lone]), (photo(ONE, TWO), [TWO, ONE])])
    assert result["purity"] == 9 / 10


def test_split_instances_are_pure():
    parts = [instance(10, None, None), instance(None, 20, 30)]
    assert values(scored([(photo(ONE), parts)])) == (1, 1)


def test_one_group_of_all_is_not_pure():
    # Of both instances one keypoint each: half is in the majority.
    both = instance(10, None, None)
    both.keypoints[1] = TWO.keypoints[1]
    assert scored([(photo(ONE, TWO), [both])])["purity"] == 1 / 2


@pytest.mark.parametrize("factor, right", [(0.99, True), (1.01, False)])
@pytest.mark.parametrize("area, scale", [(100.0, 1), (400.0, 2)])
def test_distance_limit_is_that_of_a_similarity_of_half(factor, right, area, scale):
    truth = instance(10, None, None, area=area)
    moved = instance(10 + factor * LIMIT * scale, None, None)
    # The type's two other names have nothing to measure.
    result = scored([(photo(truth), [moved])])
    assert values(result) == ((1.0, 1.0) if right else (None, 0.0))


def test_distance_limit_is_by_the_sigma_of_the_keypoint():
    truth = instance(10, 20, skeleton=FLY)
    moved = instance(10 + 1.5 * LIMIT, 20 + 1.5 * LIMIT, skeleton=FLY)
    result = scored([(photo(truth, labelled=("fly",)), [moved])], [FLY])
    assert result["keypoint_ap"] == 1 / 2


def test_matching_for_purity_is_the_best_overall():
    # The better score is the worse of two, 1.1 from one and 0.9 from the other.
    left, right = instance(10, 30, None), instance(12, 32, None)
    greedy = found(11.1, 30, None, scores=[0.9, 0.9, 0], score=0.9)
    truth = found(12, 32, None, scores=[0.8, 0.8, 0], score=0.8)
    result = scored([(photo(left, right), [greedy, truth])])
    assert values(result) == (1.0, 1.0)


def test_where_joints_coincide_the_other_keypoints_decide():
    left, right = instance(10, 20, 30), instance(10, 45, 50)
    for instances in ([left, right], [right, left]):
        assert values(scored([(photo(left, right), instances)])) == (1, 1)
    # But the nearer one is the one, by however little, even for an impure group.
    near, far = instance(9.9, 45, 50), instance(10.1, 20, 30)
    result = scored(
        [(photo(instance(9.9, 20, 30), instance(10.1, 45, 50)), [near, far])]
    )
    assert result["purity"] == 4 / 6


def ap(*detections, truth=(10, 60)):
    """Of keypoint a alone: (x, score) against true ones at these x."""
    record = photo(*[instance(x, None, None) for x in truth])
    return scored(
        [(record, [found(x, None, None, score=score) for x, score in detections])]
    )["keypoint_ap"]


def test_average_precision_by_hand():
    assert ap((10, 0.9), (60, 0.8)) == 1
    assert ap((10, 0.9)) == 1 / 2
    # Precision 1/2 at recall 1/2.
    assert ap((90, 0.9), (10, 0.8)) == 1 / 4
    # Precision 1 at recall 1/2, 2/3 at recall 1.
    assert ap((10, 0.9), (90, 0.8), (60, 0.7)) == pytest.approx(1 / 2 + 1 / 3)
    # 1/2 at 1/2, but 2/3 at 1, which counts for both.
    assert ap((90, 0.9), (10, 0.8), (60, 0.7)) == pytest.approx(2 / 3)
    # What comes after the last right one costs nothing.
    assert ap((10, 0.9), (60, 0.8), (90, 0.7)) == 1
    # The second on one true keypoint is wrong.
    assert ap((10, 0.9), (10.5, 0.8)) == 1 / 2
    assert ap((10, 0.9), (10.5, 0.8), (60, 0.7)) == pytest.approx(1 / 2 + 1 / 3)


def test_equal_scores_pass_together():
    for detections in [[(10, 0.5), (90, 0.5)], [(90, 0.5), (10, 0.5)]]:
        assert ap(*detections) == 1 / 4


def test_a_found_keypoint_takes_the_most_similar_that_is_free():
    # 11.9 could take 10 too, which alone is within reach of 8.
    assert ap((8, 0.8), (11.9, 0.9), truth=(10, 12)) == 1
    # In the order of scores: 12 takes 12, so that 11.5 has to take 10.
    assert ap((11.5, 0.8), (12, 0.9), truth=(10, 12)) == 1
    # 9.5 takes 10; 11.5 has only 14 left, which is out of reach.
    assert ap((9.5, 0.9), (11.5, 0.8), truth=(10, 14)) == 1 / 2


def test_average_precision_is_of_keypoints_in_any_group():
    # Keypoint a: both right; b: one of two found; c: wrong before right.
    truth = photo(instance(10, 20, 30), instance(110, 120, 130))
    groups = [
        found(110, 20, 200, scores=[0.2, 0.3, 0.9]),
        found(10, None, 30, scores=[0.7, 0, 0.4]),
    ]
    result = scored([(truth, groups)])
    assert result["keypoint_ap"] == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)
    # The first group has one of each instance, the second two of one.
    assert result["purity"] == 3 / 4


def test_ranks_are_over_all_photos():
    wrong = [instance(90, None, None, score=0.9)]
    right = [instance(10, None, None, score=0.8)]
    truth = photo(instance(10, None, None))
    expected = 1 / 4  # precision 1/2 at recall 1/2
    for pairs in [(wrong, right), (right, wrong)]:
        result = scored([(truth, instances) for instances in pairs])
        assert result["keypoint_ap"] == pytest.approx(expected)


def test_a_keypoint_without_a_score_of_its_own_has_that_of_its_instance():
    truth = photo(instance(10, None, None))
    own = found(10, None, None, scores=[0.5, math.nan, math.nan], score=0.1)
    wrong = instance(90, None, None, score=0.4)
    assert scored([(truth, [own, wrong])])["keypoint_ap"] == 1
    own = dataclasses.replace(own, keypoint_scores=None)
    assert scored([(truth, [own, wrong])])["keypoint_ap"] == 1 / 2


def test_unlabelled_keypoints_are_neither_right_nor_wrong():
    # Without a label for a; the box reaches from 0 to 50 in x and from 5 to 15 in y.
    truth = photo(instance(None, 20, 30), instance(10, 20, 30, y=100))
    right = [found(10, 20, 30, y=100, score=0.5), found(None, 20, 30, score=0.5)]
    inside = found(45, None, None, score=0.9)
    assert values(scored([(truth, [*right, inside])])) == (1, 1)
    for outside in [
        found(51, None, None, score=0.9),
        found(45, None, None, score=0.9, y=16),
        found(None, 45, None, score=0.9),  # b is labelled
    ]:
        result = scored([(truth, [*right, outside])])
        assert result["purity"] == 1 and result["keypoint_ap"] < 1
    # They are written at (0, 0), where nothing must be found.
    corner = instance(None, 0.5, 0.5, y=0.5)
    result = scored([(photo(corner), [found(0.1, 0.5, 0.5, y=0.5)])])
    assert values(result) == (1, 1) and result["keypoints_matched"] == 2


def test_an_instance_without_labels_is_ignored():
    bare = instance(None, None, None, y=100)
    assert values(scored([(photo(ONE, bare), [TWO, ONE])])) == (1, 1)


def test_ignored_areas_are_neither_right_nor_wrong():
    pixels = np.ones((20, 25), bool)
    pixels[:, 10:] = False  # of the window, only x from 95 to 105
    area = Patch(95, 90, pixels)
    truth = photo(instance(10, None, None), ignore=area)

    def found_at(x, y):
        extra = instance(x, None, None, y=y, score=2.0)
        right = instance(10, None, None, score=1.0)
        return scored([(truth, [extra, right])])["keypoint_ap"]

    assert found_at(95, 90) == found_at(104.9, 109.9) == 1
    for x, y in [(94.9, 100), (105, 100), (100, 89.9), (100, 110), (-1e30, 1e30)]:
        assert found_at(x, y) == 1 / 2
    # A true keypoint in the area is missed, and found, as anywhere.
    truth = photo(
        instance(10, None, None), instance(100, None, None, y=100), ignore=area
    )
    assert found_at(98, 100) == 1 and found_at(97, 100) == 1 / 2


def test_photos_not_labelled_for_a_type_are_left_out():
    result = scored([(photo(labelled=()), [TWO]), (photo(ONE), [ONE])])
    assert values(result) == (1, 1) and result["keypoints"] == 3
    # One that is labelled and empty counts: what is found there is wrong.
    noise = dataclasses.replace(TWO, score=2.0)
    result = scored([(photo(), [noise]), (photo(ONE), [ONE])])
    assert values(result) == (1, 1 / 2)


def test_types_are_apart():
    mouse = from_names("mouse", ["a", "b"], [("a", "b")], None)
    fly = instance(10, 20, skeleton=FLY)
    both = photo(ONE, fly, labelled=("dot", "fly", "mouse"))
    other = from_names("cat", ["a", "b"], [("a", "b")], None)
    dot = instance(10, 20, None)
    result = scored([(both, [dot, instance(9, 9, skeleton=other)])], (mouse, FLY, DOT))
    assert values(result, "dot/") == (1, pytest.approx(2 / 3))
    assert values(result, "fly/") == (None, 0)
    assert values(result, "mouse/") == (None, None)
    assert values(result) == (1, pytest.approx(1 / 3))
    assert (result["keypoints"], result["fly/keypoints"]) == (5, 2)


@pytest.mark.parametrize("none", [math.nan, math.inf])
def test_what_was_not_found_may_be_anything(none):
    some = found(10, 20, None, scores=[1, 1, none])
    some.keypoints[2, :2] = none
    assert values(scored([(photo(ONE), [some])])) == (1, pytest.approx(2 / 3))


@pytest.mark.parametrize(
    "bad, message",
    [
        (found(10, 20, 30, score=math.nan), "with score nan"),
        (found(10, math.inf, 30), "with score 1.0, keypoints"),
        (found(10, 20, 30, scores=[1, 1, math.nan]), "with keypoint scores .*nan"),
        (instance(10, 20), r"\(2, 3\)"),
    ],
)
def test_what_cannot_be_measured_is_refused(bad, message):
    with pytest.raises(ValueError, match=f"cannot measure a .*dot.*{message}"):
        GroupingMetrics([DOT]).update(photo(ONE), [bad])


def test_an_instance_without_area_has_that_of_its_box():
    truth = dataclasses.replace(ONE, area=0.0)
    with pytest.warns(UserWarning, match="no area"):
        assert values(scored([(photo(truth), [truth])])) == (1, 1)
