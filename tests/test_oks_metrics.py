"""Average precision by OKS: truth against itself is 1, the rest by hand."""

import dataclasses
import json
import math

import numpy as np
import pytest
from faster_coco_eval import COCO
from faster_coco_eval.core.faster_eval_api import COCOeval_faster

from facekp_jax.metrics.oks import OksMetrics, oks
from facekp_jax.records import Instance, KeypointImage, Patch
from facekp_jax.skeletons import COCO as PERSON
from facekp_jax.skeletons import from_names

DOT = from_names("dot", ["a", "b", "c"], [("a", "b"), ("b", "c")], None, [0.1] * 3)
FLY = from_names("fly", ["head", "tail"], [("head", "tail")], None, [0.05, 0.2])


def instance(x=10.0, y=10.0, *, skeleton=DOT, visibility=2, **fields):
    """Keypoints in a row, ten pixels apart, in a box of area 100."""
    count = len(skeleton.keypoints)
    keypoints = np.zeros((count, 3), np.float32)
    keypoints[:, 0] = x + 10 * np.arange(count)
    keypoints[:, 1] = y
    keypoints[:, 2] = visibility
    keypoints[keypoints[:, 2] == 0] = 0
    box = np.array([x, y, x + 20, y + 5], np.float32)
    values = {"keypoints": keypoints, "box": box, "area": 100.0} | fields
    return Instance(skeleton.name, **values)


def moved(truth, distance, **fields):
    keypoints = truth.keypoints + np.array([0, distance, 0], np.float32)
    return dataclasses.replace(truth, keypoints=keypoints, **fields)


def photo(*instances, labelled=("dot",), ignore=None):
    image = np.zeros((4, 4, 3), np.uint8)
    return KeypointImage("photo", image, tuple(instances), labelled, ignore)


def scored(pairs, skeletons=(DOT,)):
    metrics = OksMetrics(skeletons)
    for record, found in pairs:
        metrics.update(record, found)
    result = metrics.result()
    json.dumps(result, allow_nan=False)
    return result


def aps(result, prefix=""):
    return result[f"{prefix}oks_ap"], result[f"{prefix}oks_ap50"]


# d^2 / (2 sigma)^2 / area / 2 with sigma 0.1 and area 100 is d^2 / 8.
def distance_for(similarity):
    return math.sqrt(-8 * math.log(similarity))


def test_oks_by_hand():
    truth = instance(visibility=[2, 1, 0])
    found = instance()
    found.keypoints[0, 0] += 2.0  # e^(-4/8)
    found.keypoints[1, 1] += 4.0  # e^(-16/8)
    found.keypoints[2] = 1e6  # nobody knows
    expected = (math.exp(-0.5) + math.exp(-2.0)) / 2
    far = moved(found, 1e9)
    got = oks([found, far, truth], [truth], DOT.sigmas)
    np.testing.assert_allclose(got, [[expected], [0], [1]], rtol=1e-6)


def test_sigmas_are_those_of_the_skeleton():
    truth = instance(skeleton=FLY)
    got = oks([moved(truth, 3.0)], [truth], FLY.sigmas)
    # 9 / (2 * 0.05)^2 / 100 / 2 = 4.5 for the head, 9 / 0.16 / 200 for the tail.
    np.testing.assert_allclose(got, [[(math.exp(-4.5) + math.exp(-9 / 32)) / 2]])


def test_a_keypoint_that_was_not_found_is_nowhere():
    truth = instance(0, 0)  # the first keypoint is where unlabelled ones are written
    found = instance(0, 0, visibility=[0, 2, 2])
    found.keypoints[0] = [math.nan, math.nan, 0]
    np.testing.assert_allclose(oks([found], [truth], DOT.sigmas), [[2 / 3]])


def test_nothing_at_all_is_none():
    for pairs in [
        [],
        [(photo(), [])],
        [(photo(), [instance()])],
        [(photo(instance(visibility=0)), [instance()])],
        [(photo(instance(), labelled=()), [instance()])],
    ]:
        result = scored(pairs)
        assert aps(result) == aps(result, "dot/") == (None, None)
        assert (result["photos"], result["instances"]) == (len(pairs), 0)


def test_no_detections_score_zero():
    result = scored([(photo(instance()), [])])
    assert aps(result) == (0, 0) and result["dot/instances"] == 1


@pytest.mark.parametrize(
    "instances",
    [
        [instance()],
        [instance()] * 3,
        [instance(40 * i, 30 * j) for i in range(15) for j in range(9)],
        [instance(), instance(60, 60, visibility=0), instance(99, visibility=1)],
        [instance(visibility=[0, 1, 0])],
        [instance(0, 0, visibility=[2, 0, 0])],
    ],
    ids=["one", "duplicates", "135 instances", "unlabelled", "one keypoint", "corner"],
)
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("photos", [1, 3])
def test_truth_against_itself_is_exactly_one(instances, ignored, photos):
    ignore = Patch(0, 0, np.ones((300, 700), bool)) if ignored else None
    record = photo(*instances, ignore=ignore)
    found = [i for i in instances if i.keypoints[:, 2].any()]
    result = scored([(record, found)] * photos)
    assert aps(result) == aps(result, "dot/") == (1.0, 1.0)
    assert result["instances"] == photos * len(found)


@pytest.mark.parametrize("similarity, passed", [(0.97, 10), (0.72, 5), (0.49, 0)])
def test_oks_ap_averages_over_thresholds(similarity, passed):
    truth = instance()
    result = scored([(photo(truth), [moved(truth, distance_for(similarity))])])
    assert aps(result) == (pytest.approx(passed / 10), float(passed > 0))


def test_scores_of_any_fineness_order_the_predictions():
    # The better score wrong, one of two found: precision 1/2 up to recall 1/2.
    truth = photo(instance(), instance(200))
    wrong, right = instance(400, score=0.500001), instance(score=0.5)
    assert aps(scored([(truth, [right, wrong])])) == pytest.approx(
        (0.5 * 51 / 101,) * 2
    )
    wrong = dataclasses.replace(wrong, score=0.499999)
    assert aps(scored([(truth, [wrong, right])])) == pytest.approx((51 / 101,) * 2)


def test_an_instance_without_keypoints_is_ignored():
    # Its neighbour is found, and so is it itself, which nobody can judge.
    bare = instance(100, 100, visibility=0)
    found = [instance(100, 100, score=0.9), instance(score=0.5)]
    assert aps(scored([(photo(instance(), bare), found)])) == (1, 1)


def test_predictions_in_an_ignored_area_are_neither_right_nor_wrong():
    pixels = np.ones((20, 25), bool)
    pixels[:, 10:] = False  # of the window, only x from 95 to 105
    area = Patch(95, 90, pixels)
    inside = [instance(104.6, 100, visibility=[2, 0, 0], score=s) for s in (2, 3)]
    record = photo(instance(), ignore=area)
    assert aps(scored([(record, [*inside, instance()])])) == (1, 1)
    # Of these keypoints half or fewer are inside: they are wrong.
    for x, visibility in [(100, 2), (100, [2, 2, 0]), (105.1, [2, 0, 0]), (94.9, 2)]:
        outside = instance(x, 100, visibility=visibility, score=2.0)
        result = scored([(record, [outside, instance()])])
        assert result["oks_ap50"] == pytest.approx(0.5)
    # A true instance in the area is missed as anywhere.
    record = photo(instance(), instance(95, 100), ignore=area)
    result = scored([(record, [*inside, instance()])])
    assert result["oks_ap50"] == pytest.approx(51 / 101)


def test_photos_not_labelled_for_a_type_are_left_out():
    noise = [instance(100 * x, score=2.0) for x in range(9)]
    result = scored([(photo(labelled=()), noise), (photo(instance()), [instance()])])
    assert aps(result) == (1, 1)
    assert (result["photos"], result["dot/photos"]) == (2, 1)


def test_types_are_apart_and_averaged():
    both = ("dot", "fly", "mouse")
    mouse = from_names("mouse", ["a", "b"], [("a", "b")], None)
    truth = photo(instance(), instance(50, skeleton=FLY), labelled=both)
    found = [instance(), instance(50), instance(9, skeleton=mouse)]
    result = scored([(truth, found)], skeletons=(mouse, FLY, DOT))
    assert aps(result, "dot/") == (1, 1)
    assert aps(result, "fly/") == (0, 0)
    assert aps(result, "mouse/") == (None, None)
    assert aps(result) == (0.5, 0.5)
    assert scored([(truth, found)], skeletons=(DOT,))["oks_ap"] == 1


@pytest.mark.parametrize(
    "fields, visibility, area",
    [
        ({}, 2, 20 * 5),
        ({"box": np.zeros(4, np.float32)}, [2, 0, 2], 20 * 6),
        ({"box": np.zeros(4, np.float32)}, [2, 0, 0], 1),
    ],
    ids=["box", "keypoints", "one keypoint"],
)
@pytest.mark.parametrize("none", [0.0, -1.0, math.nan])
def test_area_of_box_or_of_keypoints(fields, visibility, area, none):
    truth = instance(visibility=visibility, area=none, **fields)
    truth.keypoints[2, 1] += 6 * (truth.keypoints[2, 2] > 0)
    same = dataclasses.replace(truth, area=float(area))
    # At 0.72 of OKS half the thresholds are passed: the area decides.
    scale = math.sqrt(area / 100)
    near = moved(same, distance_for(0.72) * scale)
    assert scored([(photo(same), [near])])["oks_ap"] == pytest.approx(0.5)
    with pytest.warns(UserWarning, match="no area"):
        assert scored([(photo(truth), [near])])["oks_ap"] == pytest.approx(0.5)
    with pytest.warns(UserWarning, match="no area"):
        assert scored([(photo(truth), [truth])])["oks_ap"] == 1


@pytest.mark.parametrize(
    "bad, message",
    [
        (instance(score=math.nan), "predicted dot with score nan"),
        (moved(instance(), math.inf), "predicted dot with score 1.0, keypoints"),
        (dataclasses.replace(instance(skeleton=FLY), skeleton="dot"), r"\(2, 3\)"),
    ],
)
def test_what_cannot_be_measured_is_refused(bad, message):
    with pytest.raises(ValueError, match=f"cannot measure a .*{message}"):
        OksMetrics([DOT]).update(photo(), [bad])


def test_a_truth_of_another_size_is_refused():
    truth = dataclasses.replace(instance(skeleton=FLY), skeleton="dot")
    with pytest.raises(ValueError, match=r"its skeleton needs \(3, 3\)"):
        OksMetrics([DOT]).update(photo(truth), [])


def test_result_can_be_asked_for_between_photos(capfd):
    metrics = OksMetrics([DOT])
    metrics.update(photo(instance()), [])
    assert aps(metrics.result()) == (0, 0)
    metrics.update(photo(instance()), [instance()])
    assert metrics.result() == metrics.result()
    assert metrics.result()["oks_ap"] == pytest.approx(51 / 101)
    assert capfd.readouterr() == ("", "")


def test_agrees_with_coco_s_own_evaluation():
    rng = np.random.default_rng(0)
    metrics, truth, results = OksMetrics([PERSON]), [], []
    for number in range(1, 9):
        true, found = [], []
        for _ in range(rng.integers(0, 6)):
            corner = rng.uniform(0, 300, 2)
            box = np.tile(corner, 2) + np.array([0, 0, 60, 80], np.float32)
            keypoints = np.zeros((17, 3), np.float32)
            keypoints[:, :2] = rng.uniform(box[:2], box[2:], (17, 2))
            keypoints[:, 2] = rng.integers(0, 3, 17) * (rng.random() < 0.8)
            area = float(rng.uniform(2000, 4800))
            true.append(Instance("coco", keypoints, box, area))
            for _ in range(rng.integers(0, 3)):
                noise = rng.normal(0, rng.uniform(0, 5), (17, 3)).astype(np.float32)
                noise[:, 2] = 0
                place = np.column_stack([keypoints[:, :2], np.full(17, 2)]) + noise
                score = float(rng.random())
                found.append(Instance("coco", place, box, area, score=score))
        image = np.zeros((4, 4, 3), np.uint8)
        metrics.update(KeypointImage("", image, tuple(true), ("coco",)), found)
        for instances, annotations in ((true, truth), (found, results)):
            for i in instances:
                x0, y0, x1, y1 = i.box.tolist()
                annotation = {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": 1,
                    "keypoints": i.keypoints.astype(float).ravel().tolist(),
                    "num_keypoints": int((i.keypoints[:, 2] > 0).sum()),
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": i.area,
                    "iscrowd": 0,
                    "score": i.score,
                }
                annotations.append(annotation)
    head = {
        "images": [{"id": n} for n in range(1, 9)],
        "categories": [{"id": 1, "name": "person"}],
    }
    reference = COCOeval_faster(
        COCO(head | {"annotations": truth}),
        COCO(head | {"annotations": results}),
        "keypoints",
        kpt_oks_sigmas=list(PERSON.sigmas),
    )
    reference.evaluate()
    reference.accumulate()
    precision = reference.eval["precision"][:, :, 0, 0, 0]
    result = metrics.result()
    assert 0.1 < result["oks_ap"] < 0.9
    assert aps(result) == pytest.approx((precision.mean(), precision[0].mean()))
