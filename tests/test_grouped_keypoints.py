"""The model of grouped keypoints, at toy size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from untrained import jit, some

from facekp_jax.models.backbones import SmallBackbone
from facekp_jax.models.grouped_keypoints import GroupedKeypoints
from facekp_jax.skeletons import Skeleton

CHAIN = Skeleton("chain", tuple("abcd"), ((0, 1), (1, 2), (3, 2)), None, (0.05,) * 4)
PAIR = Skeleton("pair", ("a", "b"), ((0, 1),), None, (0.05,) * 2)
CELLS = (8, 16)
MODEL = GroupedKeypoints(
    (CHAIN, PAIR),
    backbone=SmallBackbone(features=(8, 8, 8, 8), blocks=(1, 1, 1, 1)),
    features=8,
    blocks=1,
    embedding=5,
)
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 32, 64, 3), np.uint8)
SHAPES = {
    "heatmaps": (3, 4 + 2, *CELLS),
    "keypoint_embedding": (3, *CELLS, 5),
    "instance_embedding": (3, *CELLS, 2),
    "log_size": (3, *CELLS),
    "ordinal_maps": (3, *CELLS, 6),
}


@functools.cache
def variables():
    init = functools.partial(MODEL.init, train=True)
    return some(jax.eval_shape(init, jax.random.key(0), {"image": IMAGES}), 0.3)


run = jit(functools.partial(MODEL.apply, train=False))


@functools.cache
def outputs():
    return jax.device_get(run(variables(), {"image": IMAGES}))


@functools.cache
def untrained():
    init = jit(functools.partial(MODEL.init, train=False))
    return jax.device_get(
        run(init(jax.random.key(0), {"image": IMAGES}), {"image": IMAGES})
    )


@pytest.mark.parametrize("name", SHAPES)
def test_maps_are_at_a_quarter_of_the_picture(name):
    values = outputs()[name]
    assert values.shape == SHAPES[name] and values.dtype == np.float32
    # They see the picture, and everywhere something else.
    assert np.isfinite(values).all() and (values[0] != values[1]).any()
    assert np.unique(values[0]).size > 100
    assert outputs().keys() == SHAPES.keys()


def test_a_picture_does_not_depend_on_its_neighbours():
    turned = jax.device_get(run(variables(), {"image": IMAGES[::-1]}))
    for name, values in outputs().items():
        np.testing.assert_allclose(turned[name][::-1], values, rtol=1e-4, atol=1e-4)


def test_before_training_keypoints_are_rare():
    probability = jax.nn.sigmoid(untrained()["heatmaps"])
    np.testing.assert_allclose(probability, 0.01, rtol=0.5)
    assert np.mean(probability) == pytest.approx(0.01, rel=0.1)


def test_before_training_instances_are_around_their_keypoints():
    np.testing.assert_allclose(np.exp(untrained()["log_size"]), 8, rtol=0.5)
    assert np.abs(untrained()["instance_embedding"]).max() < 4
    assert 0.1 < untrained()["keypoint_embedding"].std() < 10


def test_ordinal_maps_are_a_1x1_convolution_of_the_keypoint_embedding():
    convolution = variables()["params"]["ordinal_maps"]
    expected = (
        outputs()["keypoint_embedding"] @ convolution["kernel"][0, 0]
        + convolution["bias"]
    )
    np.testing.assert_allclose(outputs()["ordinal_maps"], expected, atol=1e-4)


def test_offsets_have_no_bound():
    weights = variables()
    params = weights["params"]
    far = params | {"place": params["place"] | {"bias": np.array([1e3, -1e3, 0], "f4")}}
    offsets = run(weights | {"params": far}, {"image": IMAGES})["instance_embedding"]
    # In cells, 8 at a time.
    np.testing.assert_allclose(offsets[..., 0], 8e3, rtol=0.1)
    np.testing.assert_allclose(offsets[..., 1], -8e3, rtol=0.1)


@jit
def _gradients(params, pulls):
    def loss(params):
        found, _ = MODEL.apply(
            {"params": params, "batch_stats": variables()["batch_stats"]},
            {"image": IMAGES},
            train=True,
            mutable=["batch_stats"],
        )
        return sum(jnp.sum(found[name] * pull) for name, pull in pulls.items())

    return jax.grad(loss)(params)


@functools.cache
def gradients(*names):
    """Of an arbitrary loss of some of the maps, by all parameters."""
    rng = np.random.default_rng(1)
    pulls = {
        name: rng.normal(size=shape).astype(np.float32) * (name in names)
        for name, shape in SHAPES.items()
    }
    return jax.device_get(_gradients(variables()["params"], pulls))


def moved(found):
    return {
        name
        for name, part in found.items()
        if any(x.any() for x in jax.tree.leaves(part))
    }


SHARED = {"backbone", "pyramid", "block0"}


@pytest.mark.parametrize(
    "name, own",
    [
        ("heatmaps", {"keypoints", "heatmaps"}),
        ("keypoint_embedding", {"appearance", "keypoint_embedding"}),
        ("instance_embedding", {"where", "place"}),
        ("log_size", {"where", "place"}),
        # The ordinal loss shapes the keypoint embedding.
        ("ordinal_maps", {"appearance", "keypoint_embedding", "ordinal_maps"}),
    ],
)
def test_the_loss_of_a_map_reaches_what_makes_it(name, own):
    assert moved(gradients(name)) == SHARED | own


def test_no_parameter_is_idle():
    paths = jax.tree_util.tree_leaves_with_path(gradients(*SHAPES))
    assert not [jax.tree_util.keystr(path) for path, x in paths if not x.any()]
    assert all(np.isfinite(x).all() for _, x in paths)


def test_types_have_their_channels_one_after_the_other():
    # The rest of the network knows neither how many there are nor whose.
    alone = MODEL.clone(skeletons=(CHAIN,))
    weights = variables()
    last = weights["params"]["heatmaps"]
    params = weights["params"] | {
        "heatmaps": {"kernel": last["kernel"][..., :4], "bias": last["bias"][:4]}
    }
    found = jit(functools.partial(alone.apply, train=False))(
        weights | {"params": params}, {"image": IMAGES}
    )
    np.testing.assert_allclose(
        found["heatmaps"], outputs()["heatmaps"][:, :4], rtol=1e-4, atol=1e-4
    )
