"""The model of face branches and what it is trained on, at toy size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from untrained import jit, some

from facekp_jax import anchors, face_crops
from facekp_jax import boxes as box_ops
from facekp_jax.losses import face_branches as losses
from facekp_jax.losses import weighted_sum
from facekp_jax.models.backbones import SmallBackbone, standardise
from facekp_jax.models.face_branches import BoxHead, Branch, FaceBranches, MaskHead
from facekp_jax.records import LesionImage, Patch, Region

BRANCHES = ("acne", "mole")
ACNE, MOLE = 0, 1
SIDE, ROOM, MASKS, TRUE = 64, 2, 2, 4
FOUND, DETECTED = 6, 3
ANCHORS = 3 * (16**2 + 8**2 + 4**2)
NAMES = [f"loss/{b}/{c}" for b in BRANCHES for c in ("first", "second")]
NAMES = sorted([*NAMES, "loss/proposals"])
MODEL = FaceBranches(
    BRANCHES,
    backbone=SmallBackbone(features=(8, 8, 8, 8), blocks=(1, 1, 1, 1)),
    features=8,
    box_features=8,
    mask_features=8,
    candidates=FOUND,
    detections=DETECTED,
)


def region(branch, x, y, size=14, masked=True, crowd=False):
    mask = Patch(x, y, np.tri(size, dtype=bool)) if masked else None
    box = np.array([x, y, x + size, y + size], np.float32)
    return Region(branch, box, mask, crowd=crowd)


def record(number, *regions, labelled=BRANCHES):
    image = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    return LesionImage(f"photo {number}", image, regions, labelled)


def batch_of(*records, room=ROOM):
    """Each whole picture as its own face image."""
    samples = []
    for number, one in enumerate(records):
        matrix = face_crops.face_matrix(one, SIDE, 0.0)
        rng = np.random.default_rng(number)
        known = face_crops.truth(one, matrix, SIDE, BRANCHES, room, MASKS, TRUE, rng)
        samples.append({"image": one.image} | known)
    return {key: np.stack([s[key] for s in samples]) for key in samples[0]}


KNOWN = record(0, region("acne", 6, 8), region("mole", 40, 30))
ONLY_ACNE = functools.partial(record, 1, labelled=("acne",))
MIXED = batch_of(
    KNOWN, ONLY_ACNE(region("acne", 30, 30))
)  # moles of the second unknown
EMPTY = batch_of(record(0), record(1))
TERMS = losses.terms(BRANCHES)


@functools.cache
def variables():
    init = functools.partial(MODEL.init, train=True)
    return some(jax.eval_shape(init, jax.random.key(0), MIXED), 0.1)


@jit
def _train(params, batch_stats, batch, weights):
    def loss_of(params):
        outputs, _ = MODEL.apply(
            {"params": params, "batch_stats": batch_stats},
            batch,
            train=True,
            mutable=["batch_stats"],
        )
        loss, values = weighted_sum(TERMS, outputs, losses.targets(outputs, batch))
        weighted = sum(weights[key] * value for key, value in values.items())
        return weighted, (loss, values, outputs)

    (_, aux), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
    return *aux, gradients


def train(batch, only=NAMES, params=None):
    """(loss, values, outputs, gradients of the losses named)."""
    weights = {name: float(name in only) for name in NAMES}
    params = variables()["params"] if params is None else params
    batch_stats = variables()["batch_stats"]
    return jax.device_get(_train(params, batch_stats, batch, weights))


@functools.cache
def outputs():
    return train(MIXED)[2]


LEARNED = ("proposal_logits", "proposal_deltas", "score_logits", "deltas")
LEARNED = (*LEARNED, "mask_logits")


@jit
def _losses(found, rest, batch):
    def loss_of(found):
        predicted = rest | found
        return weighted_sum(TERMS, predicted, losses.targets(predicted, batch))

    (_, values), gradients = jax.value_and_grad(loss_of, has_aux=True)(found)
    return values, gradients


def losses_of(batch, predicted=None):
    """(values, gradients by output) of the losses, without the network."""
    predicted = outputs() if predicted is None else predicted
    found = {key: predicted[key] for key in LEARNED}
    rest = {key: value for key, value in predicted.items() if key not in LEARNED}
    return jax.device_get(_losses(found, rest, batch))


def changed(batch, **arrays):
    return {key: value.copy() for key, value in batch.items()} | arrays


def replaced(array, where, value):
    array = np.array(array)
    array[where] = value
    return array


def assert_same(got, expected):
    jax.tree.map(np.testing.assert_array_equal, got, expected)


def assert_all_finite(tree):
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)


def is_zero(tree):
    return not any(np.any(leaf) for leaf in jax.tree.leaves(tree))


def of_branch(parameters, branch, values=1):
    """The part of the last axis of the proposals' parameters that a branch owns."""
    shape = (*parameters.shape[:-1], -1, len(BRANCHES), values)
    return parameters.reshape(shape)[..., branch, :]


def softplus(x):
    return np.logaddexp(0, np.asarray(x, np.float64))


def test_shapes_in_training():
    branches, found = len(BRANCHES), FOUND + TRUE
    shapes = {key: value.shape for key, value in outputs().items()}
    assert shapes == {
        "anchors": (ANCHORS, 4),
        "proposal_logits": (2, ANCHORS, branches),
        "proposal_deltas": (2, ANCHORS, branches, 4),
        "candidates": (2, found, 4),
        "candidates_valid": (2, found),
        "objectness": (2, FOUND, branches),
        "score_logits": (2, found, branches),
        "deltas": (2, found, branches, 4),
        "mask_logits": (2, branches, MASKS, 28, 28),
    }
    assert MIXED["mask_targets"].shape == shapes["mask_logits"]


def test_true_boxes_join_the_candidates():
    for key in ("candidates", "candidates_valid"):
        np.testing.assert_array_equal(outputs()[key][:, FOUND:], MIXED[f"true_{key}"])
    assert outputs()["candidates_valid"][:, :FOUND].any()


def test_losses_are_named_and_sum_to_the_loss():
    loss, values, _, gradients = train(MIXED)
    assert sorted(values) == NAMES
    np.testing.assert_allclose(sum(values.values()), loss, rtol=1e-6)
    assert all(value > 0 for value in values.values())
    assert_all_finite(gradients)
    # Every parameter learns: none is left out, none sits behind a wall.
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.any(leaf), jax.tree_util.keystr(path)


def test_weights_of_the_losses():
    terms = losses.terms(
        ("a", "b", "c"), proposal_weight=6.0, first_weight=5.0, second_weight=3.0
    )
    assert [(term.name, term.weight) for term in terms[::2]] == [
        (("proposals",) * 3, 2.0),  # the mean over the branches
        (("a/first", "b/first", "c/first"), 5.0),
        (("a/second", "b/second", "c/second"), 3.0),
    ]
    assert [term[::2] for term in terms[::2]] == [term[::2] for term in terms[1::2]]


@pytest.mark.parametrize(
    "moles",
    [
        [region("mole", 5, 40)],
        [region("mole", 5, 40, masked=False), region("mole", 28, 6, crowd=True)],
        # One more than there is room for, if it were labelled.
        [region("mole", 10 * x, 10 * x) for x in range(3)],
    ],
)
def test_unknown_regions_of_a_record_change_no_gradient(moles):
    batch = batch_of(KNOWN, ONLY_ACNE(*moles[:1], region("acne", 30, 30), *moles[1:]))
    assert_same(train(batch), train(MIXED))


def other_moles(batch):
    """The batch with different moles, of all kinds, in its second image."""
    rng = np.random.default_rng(0)
    found = outputs()["candidates"][1, :2]
    unknown = (1, MOLE)
    noise = rng.integers(0, 256, (MASKS, 28, 28))
    return changed(
        batch,
        boxes=replaced(batch["boxes"], unknown, found),
        valid=replaced(batch["valid"], unknown, True),
        crowd=replaced(batch["crowd"], unknown, [False, True]),
        mask_boxes=replaced(batch["mask_boxes"], unknown, found),
        mask_valid=replaced(batch["mask_valid"], unknown, True),
        mask_targets=replaced(batch["mask_targets"], unknown, noise),
    )


def test_unknown_boxes_in_the_arrays_change_no_gradient():
    got, expected = train(other_moles(MIXED)), train(MIXED)
    for number in (0, 1, 3):  # of the outputs, the unused masks may differ
        assert_same(got[number], expected[number])


def test_the_same_boxes_change_every_loss_where_they_are_known():
    known = changed(MIXED, labelled=np.ones((2, 2), bool))
    got, expected = train(other_moles(known)), train(known)
    for name in ("loss/proposals", "loss/mole/first", "loss/mole/second"):
        assert got[1][name] != expected[1][name]
    for name in ("loss/acne/first", "loss/acne/second"):
        assert got[1][name] == expected[1][name]


def test_labelled_and_empty_pushes_scores_down():
    """Where a mole is unknown its scores are left alone."""
    empty = batch_of(KNOWN, record(1, region("acne", 30, 30)))
    _, unknown = losses_of(MIXED)
    _, negative = losses_of(empty)
    valid = outputs()["candidates_valid"][1]
    assert (negative["score_logits"][1, valid, MOLE] > 0).all()
    assert (negative["proposal_logits"][1, :, MOLE] > 0).all()
    assert is_zero(negative["deltas"][1, :, MOLE])
    assert is_zero(negative["proposal_deltas"][1, :, MOLE])
    for key in LEARNED[:4]:
        assert is_zero(unknown[key][1, :, MOLE])
        # The other branch of the image and the other image stay as they were,
        # but for what their losses are divided by.
        np.testing.assert_array_equal(
            negative[key][1, :, ACNE] != 0, unknown[key][1, :, ACNE] != 0
        )


def test_an_empty_photo_lowers_the_network_s_own_scores():
    _, values, _, gradients = train(EMPTY, only=["loss/mole/first"])
    assert (gradients["branch_mole"]["box"]["score"]["bias"] > 0).all()
    assert is_zero(gradients["branch_mole"]["box"]["deltas"])
    assert is_zero(gradients["branch_acne"]) and is_zero(gradients["proposals"])
    _, _, _, gradients = train(EMPTY, only=["loss/proposals"])
    bias = gradients["proposals"]["objectness"]["bias"]
    assert (of_branch(bias, ACNE) > 0).all() and (of_branch(bias, MOLE) > 0).all()
    assert is_zero(gradients["proposals"]["deltas"])
    assert values["loss/acne/second"] == values["loss/mole/second"] == 0
    assert_all_finite((values, gradients))


def test_negatives_by_hand():
    """The mean cross-entropy of a branch is over the candidates of photos labelled."""
    batch = batch_of(record(0), ONLY_ACNE())
    nonsense = outputs() | {
        key: replaced(outputs()[key], np.s_[1, :, MOLE], np.nan) for key in LEARNED[:4]
    }
    values, _ = losses_of(batch, nonsense)
    valid, scores = outputs()["candidates_valid"], outputs()["score_logits"]
    np.testing.assert_allclose(
        values["loss/mole/first"], softplus(scores[0, valid[0], MOLE]).mean(), rtol=1e-5
    )
    np.testing.assert_allclose(
        values["loss/acne/first"], softplus(scores[valid][:, ACNE]).mean(), rtol=1e-5
    )
    logits = outputs()["proposal_logits"].astype(np.float64)
    focal = 0.75 / (1 + np.exp(-logits)) ** 2 * softplus(logits)
    per_image = focal.sum(axis=1)
    expected = (per_image[0, MOLE] + per_image[:, ACNE].mean()) / 2
    np.testing.assert_allclose(values["loss/proposals"], expected, rtol=1e-4)


def test_positives_by_hand():
    """A candidate on a true box is pulled up, and its box towards the true one."""
    box = outputs()["candidates"][0, 0]
    batch = changed(EMPTY)
    batch["boxes"][0, MOLE, 1], batch["valid"][0, MOLE, 1] = box, True
    values, gradients = losses_of(batch)
    valid = outputs()["candidates_valid"]
    overlaps = np.array(box_ops.iou(outputs()["candidates"][0], box[None])[:, 0])
    signs = np.select([overlaps >= 0.5, overlaps < 0.4], [-1, 1], 0) * valid[0]
    assert (signs == -1).any() and (signs == 1).any()
    np.testing.assert_array_equal(np.sign(gradients["score_logits"][0, :, MOLE]), signs)
    positive = signs == -1
    np.testing.assert_array_equal(
        gradients["deltas"][0, :, MOLE].any(axis=-1), positive
    )
    logits = outputs()["score_logits"][..., MOLE]
    targets = np.stack([positive, np.zeros_like(positive)])
    counted = np.stack([signs != 0, valid[1]])
    scored = (softplus(logits) - targets * logits)[counted].mean()
    moved = box_ops.decode(outputs()["deltas"][0, :, MOLE], outputs()["candidates"][0])
    refined = np.mean([giou_loss(b, box) for b in np.asarray(moved)[positive]])
    np.testing.assert_allclose(values["loss/mole/first"], scored + refined, rtol=1e-4)

    def of_anchors(*truth):
        index, label = anchors.match(
            outputs()["anchors"], *truth, positive=0.5, negative=0.4, force_best=True
        )
        return np.asarray(index), np.asarray(label)

    truth = [batch[key][0, MOLE] for key in ("boxes", "valid", "crowd")]
    index, label = of_anchors(*truth)
    positive = label == 1
    assert positive.any() and (index[positive] == 1).all()
    logits = outputs()["proposal_logits"][0, :, MOLE].astype(np.float64)
    p = 1 / (1 + np.exp(-logits))
    focal = np.select(
        [label == 1, label == 0],
        [0.25 * (1 - p) ** 2 * softplus(-logits), 0.75 * p**2 * softplus(logits)],
    )
    deltas = outputs()["proposal_deltas"][0, :, MOLE]
    moved = np.asarray(box_ops.decode(deltas, outputs()["anchors"]))
    pulled = np.mean([giou_loss(found, box) for found in moved[positive]])
    # The rest of the proposal loss is as of two empty photos.
    change = values["loss/proposals"] - losses_of(EMPTY)[0]["loss/proposals"]
    negative = (0.75 * p**2 * softplus(logits)).sum()
    expected = (focal.sum() / positive.sum() - negative) / 2 + pulled
    np.testing.assert_allclose(change, expected / len(BRANCHES), rtol=1e-3)


def giou_loss(a, b):
    a, b = np.float64(a), np.float64(b)
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - np.prod(sides)
    hull = np.prod(np.maximum(a[2:], b[2:]) - np.minimum(a[:2], b[:2]))
    return 1 - np.prod(sides) / union + (hull - union) / hull


def test_masks_by_hand():
    """Logits of 0 against coverages c: cross-entropy ln 2, Dice from the sums."""
    coverage = MIXED["mask_targets"][:, ACNE, 0] / 255
    assert MIXED["mask_valid"][:, ACNE, 0].all() and 0.3 < coverage.mean() < 0.7
    zeros = outputs() | {"mask_logits": np.zeros_like(outputs()["mask_logits"])}
    values, gradients = losses_of(MIXED, zeros)
    sums = coverage.sum(axis=(1, 2))
    dice = 1 - (sums + 1) / (28 * 28 / 2 + sums + 1)
    np.testing.assert_allclose(
        values["loss/acne/second"], np.log(2) + dice.mean(), rtol=1e-5
    )
    used = gradients["mask_logits"].any(axis=(-1, -2))
    np.testing.assert_array_equal(used, MIXED["mask_valid"])


def test_a_crowd_over_the_whole_face_leaves_nothing_to_learn():
    crowd = region("mole", 0, 0, size=SIDE, crowd=True)
    values, gradients = losses_of(batch_of(record(0, crowd), record(1, crowd)))
    assert values["loss/mole/first"] == values["loss/mole/second"] == 0
    assert is_zero([gradients[key][:, :, MOLE] for key in LEARNED[2:4]])
    # Of the anchors, at the borders some are more outside the picture than in it.
    grid = outputs()["anchors"]
    seen = box_ops.area(box_ops.clip(grid, SIDE, SIDE))
    inside = seen >= 0.5 * box_ops.area(grid)
    learn = gradients["proposal_logits"][:, :, MOLE] != 0
    np.testing.assert_array_equal(learn, np.stack([~inside] * 2))
    assert values["loss/acne/first"] > 0


def test_padding_changes_nothing():
    records = KNOWN, ONLY_ACNE(region("acne", 30, 30))
    got, expected = losses_of(batch_of(*records, room=ROOM + 3)), losses_of(MIXED)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5), got, expected
    )


def test_a_branch_labelled_nowhere_costs_nothing():
    records = (ONLY_ACNE(region("acne", 6, 8)), ONLY_ACNE(region("acne", 30, 30)))
    _, values, _, gradients = train(batch_of(*records))
    assert values["loss/mole/first"] == values["loss/mole/second"] == 0
    assert values["loss/acne/first"] > 0 and values["loss/proposals"] > 0
    assert_all_finite((values, gradients))
    assert is_zero(gradients["branch_mole"]) and not is_zero(gradients["branch_acne"])
    objectness = gradients["proposals"]["objectness"]
    assert is_zero([of_branch(leaf, MOLE) for leaf in objectness.values()])
    assert not is_zero([of_branch(leaf, ACNE) for leaf in objectness.values()])


def test_nothing_labelled_at_all_teaches_nothing():
    unknown = batch_of(record(0, labelled=()), record(1, labelled=()))
    loss, values, _, gradients = train(unknown)
    assert loss == 0 and is_zero(values) and is_zero(gradients)


def test_boxes_without_masks_train_the_first_loss_only():
    first = record(0, region("acne", 6, 8), region("mole", 40, 30, masked=False))
    batch = batch_of(first, ONLY_ACNE(region("acne", 30, 30)))
    _, values, _, gradients = train(batch)
    expected = train(MIXED)[1]
    assert values["loss/mole/second"] == 0
    assert values["loss/mole/first"] > 0 and values["loss/acne/second"] > 0
    assert values["loss/proposals"] == expected["loss/proposals"]
    assert is_zero(gradients["branch_mole"]["mask"])
    assert not is_zero(gradients["branch_mole"]["box"]["deltas"])


def test_box_coordinates_carry_no_gradient():
    # True boxes on the proposals themselves, so that these are refined and segmented.
    batch = changed(MIXED, labelled=np.ones((2, 2), bool))
    batch["boxes"] = np.stack([outputs()["candidates"][:, :2] + 1.0] * 2, axis=1)
    batch["valid"][:] = True
    branches = [name for name in NAMES if name != "loss/proposals"]
    _, values, _, gradients = train(batch, only=branches)
    assert all(values[name] > 0 for name in branches)
    assert is_zero(gradients["proposals"])
    for name in ("backbone", "pyramid", "branch_acne", "branch_mole"):
        assert not is_zero(gradients[name])
    _, _, _, gradients = train(batch, only=["loss/proposals"])
    assert not is_zero(gradients["proposals"])
    assert is_zero([gradients["branch_acne"], gradients["branch_mole"]])


def test_exchanged_branches_exchange_their_losses():
    def exchange(path, leaf):
        if "objectness" in (names := [key.key for key in path]):
            parts = leaf.reshape(*leaf.shape[:-1], -1, len(BRANCHES), 1)
        elif names[0] == "proposals" and "deltas" in names:
            parts = leaf.reshape(*leaf.shape[:-1], -1, len(BRANCHES), 4)
        else:
            return leaf
        return parts[..., ::-1, :].reshape(leaf.shape)

    params = jax.tree_util.tree_map_with_path(exchange, variables()["params"])
    params["branch_acne"], params["branch_mole"] = (
        params["branch_mole"],
        params["branch_acne"],
    )
    batch = {
        key: value if key == "image" or key.startswith("true_") else value[:, ::-1]
        for key, value in MIXED.items()
    }
    got, expected = train(batch, params=params)[1], train(MIXED)[1]
    other = {"acne": "mole", "mole": "acne"}
    for name, value in expected.items():
        parts = [other.get(part, part) for part in name.split("/")]
        np.testing.assert_allclose(got["/".join(parts)], value, rtol=1e-5)
    assert got["loss/acne/first"] != expected["loss/acne/first"]


@pytest.fixture(scope="module")
def heads():
    branch = Branch(box_features=4, mask_features=4)
    rng = np.random.default_rng(0)
    small = rng.standard_normal((2, 3, 7, 7, 5)).astype(np.float32)
    large = rng.standard_normal((2, 3, 14, 14, 5)).astype(np.float32)

    def both(branch, small, large):
        return branch.classify(small), branch.segment(large)

    init = functools.partial(branch.init, method=both)
    variables = some(jax.eval_shape(init, jax.random.key(0), small, large), 0.1)
    apply = jit(functools.partial(branch.apply, method=both))
    found = jax.device_get(apply(variables, small, large))
    return variables["params"], small, large, found


def test_heads_over_boxes_are_the_heads_of_each_box(heads):
    params, small, large, ((scores, deltas), logits) = heads
    box = jit(functools.partial(BoxHead(4).apply, {"params": params["box"]}))
    mask = jit(functools.partial(MaskHead(4).apply, {"params": params["mask"]}))
    assert scores.shape == (2, 3) and deltas.shape == (2, 3, 4)
    assert logits.shape == (2, 3, 28, 28)
    for index in np.ndindex(2, 3):
        score, delta = box(small[index])
        assert score.shape == () and delta.shape == (4,)
        np.testing.assert_allclose(scores[index], score, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(deltas[index], delta, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            logits[index], mask(large[index]), rtol=1e-4, atol=1e-5
        )


def _again(model, batch):
    """The outputs, and the masks of the detections, each branch by itself."""
    found = model(batch, train=False)
    levels = model.pyramid(model.backbone(standardise(batch["image"]), False), False)
    again = [
        model.heads[name].segment(
            box_ops.roi_align(levels[0], found["boxes"][:, row], size=14, stride=4)
        )
        for row, name in enumerate(BRANCHES)
    ]
    return found, jnp.stack(again, axis=1)


@pytest.fixture(scope="module")
def detected():
    """Of proposals so large that they overlap, and that some find no place."""
    params = jax.tree.map(np.array, variables()["params"])
    deltas = params["proposals"]["deltas"]
    deltas["bias"] = np.tile(np.float32([0, 0, 2, 2]), 3 * len(BRANCHES))
    deltas["kernel"] = 0.2 * deltas["kernel"]
    for name in ("branch_acne", "branch_mole"):
        params[name]["box"]["deltas"]["kernel"] *= 0.3
    apply = jit(functools.partial(MODEL.apply, method=_again))
    state = {"params": params, "batch_stats": variables()["batch_stats"]}
    return jax.device_get(apply(state, {"image": MIXED["image"]}))


def test_shapes_in_inference(detected):
    found, _ = detected
    shapes = {key: value.shape for key, value in found.items()}
    branches = len(BRANCHES)
    assert shapes == {
        "anchors": (ANCHORS, 4),
        "proposal_logits": (2, ANCHORS, branches),
        "proposal_deltas": (2, ANCHORS, branches, 4),
        "candidates": (2, FOUND, 4),
        "candidates_valid": (2, FOUND),
        "objectness": (2, FOUND, branches),
        "score_logits": (2, FOUND, branches),
        "deltas": (2, FOUND, branches, 4),
        "boxes": (2, branches, DETECTED, 4),
        "scores": (2, branches, DETECTED),
        "valid": (2, branches, DETECTED),
        "mask_logits": (2, branches, DETECTED, 28, 28),
    }


def test_detections_are_refined_candidates_without_doubles(detected):
    found, _ = detected
    moved = box_ops.decode(found["deltas"], found["candidates"][:, :, None])
    moved = np.clip(moved, 0, SIDE)
    dropped = 0
    for image, branch in np.ndindex(2, len(BRANCHES)):
        boxes, logits = moved[image, :, branch], found["score_logits"][image, :, branch]
        objectness = found["objectness"][image, :, branch]
        scores = np.sqrt(objectness / (1 + np.exp(-logits)))
        overlaps = np.asarray(box_ops.iou(boxes, boxes))
        kept = []
        for number in np.argsort(-scores):
            if found["candidates_valid"][image, number]:
                kept.append(number)
                if (overlaps[number, kept[:-1]] > 0.5).any():
                    dropped += 1
                    kept.pop()
        kept = kept[:DETECTED]
        padding = DETECTED - len(kept)
        np.testing.assert_array_equal(
            found["valid"][image, branch], [True] * len(kept) + [False] * padding
        )
        np.testing.assert_allclose(
            found["boxes"][image, branch],
            np.pad(boxes[kept], ((0, padding), (0, 0))),
            atol=1e-3,
        )
        np.testing.assert_allclose(
            found["scores"][image, branch],
            np.pad(scores[kept], (0, padding)),
            rtol=1e-5,
        )
    assert dropped > 2
    assert not found["valid"].all() and not found["candidates_valid"].all()


def test_objectness_is_that_of_the_anchor_proposed(detected):
    found, _ = detected
    for image in range(2):
        logits, deltas = (
            np.asarray(found[key][image])
            for key in ("proposal_logits", "proposal_deltas")
        )
        branch = logits.argmax(axis=-1)
        moved = box_ops.decode(deltas[range(ANCHORS), branch], found["anchors"])
        moved = np.clip(moved, 0, SIDE)
        for number in np.flatnonzero(found["candidates_valid"][image]):
            box = found["candidates"][image, number]
            anchor = np.abs(moved - box).max(axis=-1).argmin()
            expected = 1 / (1 + np.exp(-logits[anchor]))
            got = found["objectness"][image, number]
            np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_masks_are_pooled_from_the_refined_boxes(detected):
    found, again = detected
    np.testing.assert_allclose(found["mask_logits"], again, rtol=1e-4, atol=1e-5)
    assert np.std(again) > 0
