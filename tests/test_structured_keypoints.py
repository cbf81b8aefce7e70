"""The model of structured keypoints, at toy size."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from untrained import jit, some

from facekp_jax.models.backbones import SmallBackbone
from facekp_jax.models.structured_keypoints import Correction, StructuredKeypoints
from facekp_jax.skeletons import Skeleton

CHAIN = Skeleton("chain", tuple("abcd"), ((0, 1), (1, 2), (3, 2)), None, (0.05,) * 4)
PAIR = Skeleton("pair", ("a", "b"), ((0, 1),), None, (0.05,) * 2)
HEIGHT, WIDTH, BATCH, COUNT = 32, 64, 3, 4
CELLS = (HEIGHT // 4, WIDTH // 4)
MODEL = StructuredKeypoints(
    (CHAIN, PAIR),
    backbone=SmallBackbone(features=(8, 8, 8, 8), blocks=(1, 1, 1, 1)),
    features=8,
    node_features=8,
    rounds=1,
)
CORRECTION = Correction((CHAIN, PAIR), features=8, rounds=1, structure="skeleton")
BATCH_OF_BOTH = {
    "image": np.random.default_rng(0).integers(
        0, 256, (BATCH, HEIGHT, WIDTH, 3), np.uint8
    ),
    "skeleton": np.array([0, 1, 0]),
}


def variables(model=MODEL, batch=BATCH_OF_BOTH):
    init = functools.partial(model.init, train=True)
    return some(jax.eval_shape(init, jax.random.key(0), batch), 0.3)


@functools.cache
def program(model=MODEL):
    return jit(functools.partial(model.apply, train=False))


@functools.cache
def outputs():
    return jax.device_get(program()(variables(), BATCH_OF_BOTH))


@pytest.mark.parametrize("stage", ["first", "second"])
def test_each_stage_gives_heatmaps_points_and_confidences(stage):
    found = outputs()
    assert found[f"{stage}_logits"].shape == (BATCH, COUNT, *CELLS)
    points = found[f"{stage}_points"]
    assert points.shape == (BATCH, COUNT, 2)
    assert (points >= 0).all() and (points <= [WIDTH, HEIGHT]).all()
    confidence = found[f"{stage}_confidence"]
    assert confidence.shape == (BATCH, COUNT)
    assert (confidence >= 0).all() and (confidence <= 1).all()


def test_keypoints_that_a_type_lacks_are_padding():
    found = outputs()
    np.testing.assert_array_equal(
        found["joints"], [[True] * 4, [True, True, False, False], [True] * 4]
    )
    for name, values in found.items():
        assert not values[1, 2:].any(), name
        assert values[1, :2].any(), name


def test_the_graph_corrects():
    found = outputs()
    joints = found["joints"]
    assert (found["second_points"] != found["first_points"])[joints].any()
    assert (found["second_confidence"] != found["first_confidence"])[joints].all()


@functools.cache
def untrained():
    weights = jit(functools.partial(MODEL.init, train=False))(
        jax.random.key(0), BATCH_OF_BOTH
    )
    return jax.device_get(program()(weights, BATCH_OF_BOTH))


def test_before_training_nothing_is_corrected():
    found = untrained()
    assert found["first_logits"].any()
    np.testing.assert_array_equal(found["second_logits"], found["first_logits"])


def test_before_training_keypoints_can_be_anywhere():
    heatmaps = jax.nn.softmax(untrained()["first_logits"], axis=(-2, -1))
    assert (heatmaps * np.prod(CELLS)).max() < 2


def test_flip_test_finds_the_mirrored_points_in_the_mirrored_picture():
    chain = dataclasses.replace(CHAIN, mirror=(3, 2, 1, 0))
    model = MODEL.clone(skeletons=(chain, dataclasses.replace(PAIR, mirror=(0, 1))))
    run = program(model.clone(flip_test=True))
    weights = variables(model)
    found = jax.device_get(run(weights, BATCH_OF_BOTH))
    image = BATCH_OF_BOTH["image"]
    turned = jax.device_get(run(weights, BATCH_OF_BOTH | {"image": image[:, :, ::-1]}))
    once = jax.device_get(program(model)(weights, BATCH_OF_BOTH))
    for stage in ("first", "second"):
        points, mirrored = found[f"{stage}_points"], turned[f"{stage}_points"]
        mirrored = np.where(found["joints"][..., None], [WIDTH, 0] - mirrored, 0)
        mirrored[..., 1] *= -1
        np.testing.assert_allclose(mirrored[::2, ::-1], points[::2], atol=0.01)
        np.testing.assert_allclose(mirrored[1], points[1], atol=0.01)
        assert np.abs(points - once[f"{stage}_points"]).max() > 0.1
        assert not found[f"{stage}_logits"][1, 2:].any()


def test_flip_test_needs_to_know_the_mirror_pairs():
    with pytest.raises(ValueError, match="skeleton 'chain' does not say which"):
        jax.eval_shape(
            functools.partial(MODEL.clone(flip_test=True).apply, train=False),
            variables(),
            BATCH_OF_BOTH,
        )


def test_without_rounds_the_second_points_are_the_first():
    model = MODEL.clone(rounds=0)
    weights = variables()
    assert "correction" not in variables(model)["params"]
    weights["params"].pop("correction")
    found = jax.device_get(program(model)(weights, BATCH_OF_BOTH))
    for name in ("logits", "points", "confidence"):
        np.testing.assert_array_equal(found[f"second_{name}"], found[f"first_{name}"])
        np.testing.assert_allclose(
            found[f"first_{name}"], outputs()[f"first_{name}"], rtol=1e-4, atol=1e-4
        )


@functools.cache
def gradients(stage):
    """Of an arbitrary loss of one stage's heatmaps and points, by all parameters."""
    weights = variables()
    rng = np.random.default_rng(1)
    pull = {
        f"{stage}_{of}": rng.normal(size=outputs()[f"{stage}_{of}"].shape)
        for of in ("logits", "points", "confidence")
    }

    @jit
    def gradients_of(params, batch_stats):
        def loss_of(params):
            found, _ = MODEL.apply(
                {"params": params, "batch_stats": batch_stats},
                BATCH_OF_BOTH,
                train=True,
                mutable=["batch_stats"],
            )
            return sum(jnp.sum(found[name] * pull[name]) for name in pull)

        return jax.grad(loss_of)(params)

    return jax.device_get(gradients_of(weights["params"], weights["batch_stats"]))


def test_the_loss_of_the_first_points_leaves_the_graph_alone():
    found = gradients("first")
    assert not any(x.any() for x in jax.tree.leaves(found["correction"]))
    assert (
        found["channels"].any() and found["backbone"]["enter0"]["conv"]["kernel"].any()
    )


def test_the_loss_of_the_second_points_reaches_everything():
    paths = jax.tree_util.tree_leaves_with_path(gradients("second"))
    # A convolution in front of batch normalisation has no bias; nothing else is idle.
    assert not [jax.tree_util.keystr(path) for path, x in paths if not x.any()]
    assert all(np.isfinite(x).all() for _, x in paths)


def test_padding_has_no_gradient():
    found = gradients("second")
    assert not found["channels"][1, :, 2:].any()
    assert not found["correction"]["keypoints"][1, 2:].any()
    assert not found["correction"]["graph"]["edges"][1, 4:].any()


@functools.cache
def influence(structure):
    """bool [B, second, first]: which first heatmaps a second one depends on."""
    model = CORRECTION.clone(structure=structure)
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    levels = [normal(BATCH, CELLS[0] // f, CELLS[1] // f, 8) for f in (1, 2, 4)]
    logits, points = normal(BATCH, COUNT, *CELLS), normal(BATCH, COUNT, 2)
    rest = points, normal(BATCH, COUNT), BATCH_OF_BOTH["skeleton"]
    shapes = jax.eval_shape(model.init, jax.random.key(0), levels, logits, *rest)
    weights = some(shapes, 0.3)

    @jit
    def slopes(logits):
        _, pull = jax.vjp(lambda x: model.apply(weights, levels, x, *rest), logits)
        each = jnp.eye(COUNT)[:, None, :, None, None] * normal(*CELLS)
        each = jnp.broadcast_to(each, (COUNT, *logits.shape))
        return jax.vmap(pull)(each)[0]

    return np.asarray(slopes(logits)).any((-2, -1)).swapaxes(0, 1)


def test_second_heatmaps_depend_on_those_of_direct_neighbours():
    chain, pair, _ = influence("skeleton")
    np.testing.assert_array_equal(
        chain, [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    )
    assert pair[:2, :2].all() and not pair[:2, 2:].any()


def test_without_structure_second_heatmaps_depend_on_their_own_alone():
    chain, pair, _ = influence("none")
    np.testing.assert_array_equal(chain, np.eye(COUNT))
    np.testing.assert_array_equal(pair[:2], np.eye(2, COUNT))


def test_the_order_of_keypoints_does_not_matter():
    order = np.array([2, 0, 3, 1])
    place = np.argsort(order)
    chain = dataclasses.replace(CHAIN, mirror=(3, 2, 1, 0))
    renumbered = Skeleton(
        "renumbered",
        tuple(chain.keypoints[k] for k in order),
        tuple((int(place[a]), int(place[b])) for a, b in chain.edges),
        tuple(int(place[chain.mirror[k]]) for k in order),
        chain.sigmas,
    )
    model = MODEL.clone(skeletons=(chain, PAIR))
    chains = BATCH_OF_BOTH | {"skeleton": np.zeros(BATCH, int)}
    weights = variables(model)
    expected = jax.device_get(program(model)(weights, chains))

    params = weights["params"]
    correction = params["correction"]
    edges = correction["graph"]["edges"]
    params["channels"] = params["channels"][..., order]
    correction["keypoints"] = correction["keypoints"][:, order]
    edges[:, -COUNT:] = edges[:, -COUNT:][:, order]  # self edges
    found = program(MODEL.clone(skeletons=(renumbered, PAIR)))(weights, chains)
    for name in found:
        np.testing.assert_allclose(
            found[name], expected[name][:, order], rtol=1e-3, atol=1e-4
        )


def test_a_type_learns_the_same_among_others():
    alone = MODEL.clone(skeletons=(PAIR,))
    pairs = BATCH_OF_BOTH | {"skeleton": np.zeros(BATCH, int)}
    weights = variables(alone, pairs)

    def among_others(own, padded):
        if own.shape == padded.shape:
            return own
        padded[(1, *(slice(length) for length in own.shape[1:]))] = own[0]
        return padded

    together = jax.tree.map(among_others, weights, variables())
    expected = program(alone)(weights, pairs)
    found = program()(together, BATCH_OF_BOTH | {"skeleton": np.ones(BATCH, int)})
    for name in found:
        np.testing.assert_allclose(
            found[name][:, :2], expected[name], rtol=1e-3, atol=1e-4
        )


def test_one_program_serves_every_mixture_of_types():
    outputs()
    compiled = program()._cache_size()
    others = BATCH_OF_BOTH | {"skeleton": np.array([1, 1, 0])}
    found = program()(variables(), others)
    assert program()._cache_size() == compiled
    for name in found:
        np.testing.assert_allclose(found[name][1], outputs()[name][1], rtol=1e-5)


def test_unknown_structure():
    with pytest.raises(ValueError, match="structure 'tree' is none of"):
        variables(MODEL.clone(structure="tree"))
