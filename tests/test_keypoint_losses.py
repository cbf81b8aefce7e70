"""Losses of heatmaps and points, against values derived by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from facekp_jax import heatmaps, losses
from facekp_jax.losses import Term, weighted_sum

render = jax.jit(heatmaps.render, static_argnums=(1, 2, 3))
heatmap_cross_entropy = jax.jit(losses.heatmap_cross_entropy)
smooth_l1 = jax.jit(losses.smooth_l1, static_argnames="bend")
wing = jax.jit(losses.wing)

LN3 = math.log(3)
LN3_LESS = math.log(0.5) - math.log(3 / 16) / 2  # halves, predicted 3/4 and 1/4


@pytest.mark.parametrize(
    "logits, target, ignored, expected",
    [
        ([0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], math.log(4)),
        ([LN3, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], math.log(6 / 3)),
        # Two halves of a target, predicted with 1/2 and 1/6: 1/2 ln 1 + 1/2 ln 3.
        ([LN3, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 0], LN3 / 2),
        ([LN3, LN3, 0, 0], [0.375, 0.375, 0.125, 0.125], [0, 0, 0, 0], 0.0),
        # An ignored cell is no part of the sum, unless it is the target.
        ([0, 9, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], LN3),
        ([LN3, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 1], math.log(4)),
        ([7, 7, 7, 7], [0, 1, 0, 0], [1, 1, 1, 1], 0.0),
        # What an ignored cell has of the target's tail goes with it.
        ([LN3, 0, 5, 0], [0.498, 0.498, 0.004, 0], [0, 0, 1, 1], LN3_LESS),
        ([0, 0, 0, 1e4], [1, 0, 0, 0], [0, 0, 0, 0], 1e4),
        ([0, 0, 0, 1e4], [1, 0, 0, 0], [0, 0, 0, 1], LN3),
    ],
)
def test_heatmap_cross_entropy(logits, target, ignored, expected):
    logits, target = jnp.array([[logits]]) * 1.0, jnp.array([[target]]) * 1.0

    for kind in (bool, np.uint8):
        mask = jnp.array([ignored], kind)
        got = heatmap_cross_entropy(logits, target, ignored=mask)
        assert got.shape == (1,)
        np.testing.assert_allclose(got, [expected], rtol=1e-5, atol=1e-6)
    if not any(ignored):
        np.testing.assert_allclose(
            heatmap_cross_entropy(logits, target), [expected], rtol=1e-5, atol=1e-6
        )


def test_slope_of_heatmap_cross_entropy_is_prediction_minus_target():
    logits = jnp.array([[[LN3, 0.0, 5.0], [0.0, 0.0, 5.0]]])
    target = jnp.array([[[0.25, 0.75, 0.0], [0.0, 0.0, 0.0]]])
    ignored = jnp.array([[False, False, True], [False, False, True]])

    def loss(logits):
        return heatmap_cross_entropy(logits, target, ignored=ignored)[0]

    slope = jax.grad(loss)(logits)
    expected = [[[0.5 - 0.25, 1 / 6 - 0.75, 0.0], [1 / 6, 1 / 6, 0.0]]]
    np.testing.assert_allclose(slope, expected, atol=1e-6)


def test_each_sample_has_its_own_ignored_area():
    logits = jnp.zeros((2, 3, 2, 2))
    target = jnp.zeros((2, 3, 2, 2)).at[..., 0, 0].set(1.0)
    ignored = jnp.array([[[0, 0], [0, 0]], [[0, 1], [0, 1]]], jnp.uint8)
    got = heatmap_cross_entropy(logits, target, ignored=ignored)
    np.testing.assert_allclose(got, [[math.log(4)] * 3, [math.log(2)] * 3], rtol=1e-6)


@pytest.mark.parametrize("ignored", [0, 1])
def test_heatmaps_of_points_anywhere_have_a_least_loss_of_zero(ignored):
    points = jnp.array([[0.0, 0.0], [255.0, 3.0], [128.0, 100.0], [1e6, -1e6]])
    target = render(points, (64, 64), 4, 1.0)
    mask = jnp.full((64, 64), ignored, jnp.uint8)

    def loss(logits):
        return heatmap_cross_entropy(logits, target, ignored=mask).sum()

    perfect = jnp.log(jnp.maximum(target, 1e-30))
    for logits, low in ((perfect, -1e-4), (jnp.zeros_like(target), 0.5)):
        value, slope = jax.jit(jax.value_and_grad(loss))(logits)
        assert low < value < (1e-4 if low < 0 else 40)
        assert np.isfinite(slope).all()
        if low < 0:
            np.testing.assert_allclose(slope, 0, atol=1e-5)


def test_low_precision_logits_are_summed_in_float32():
    target = render(jnp.array([[30.0, 30.0]]), (16, 16), 4)
    logits = jnp.log(jnp.maximum(target, 1e-30)).astype(jnp.bfloat16)
    got = heatmap_cross_entropy(logits, target)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, 0, atol=1e-3)


def heatmap_term(outputs, batch):
    target = render(batch["keypoints"][..., :2], (4, 4), 4)
    values = heatmap_cross_entropy(outputs["logits"], target, ignored=batch["ignore"])
    return values, batch["keypoints"][..., 2] > 0


def point_term(outputs, batch):
    values = wing(outputs["points"], batch["keypoints"][..., :2], batch["size"])
    return values, batch["keypoints"][..., 2:] > 0


@pytest.mark.parametrize(
    "visibility", [[0, 0, 0], [0, 1, 2]], ids=["nothing", "occluded and visible"]
)
def test_labelled_joints_are_trained_and_no_others(visibility):
    keypoints = jnp.array([[[0, 0, 0], [5, 9, 0], [14, 2, 0]]], jnp.float32)
    visible = jnp.array([visibility])
    batch = {
        "keypoints": keypoints.at[..., 2].set(visible),
        "ignore": jnp.zeros((1, 4, 4), jnp.uint8),
        "size": jnp.zeros((1, 3)),
    }
    logits = jnp.zeros((1, 3, 4, 4)).at[0, 0].set(jnp.nan)
    points = jnp.full((1, 3, 2), 7.0).at[0, 0].set(jnp.inf)
    terms = [Term("heatmap", heatmap_term), Term("point", point_term)]
    outputs = {"logits": logits, "points": points}
    loss, slopes = jax.jit(
        jax.value_and_grad(lambda outputs: weighted_sum(terms, outputs, batch)[0])
    )(outputs)
    labelled = np.array(visibility) > 0
    assert (loss > 0) == labelled.any() and np.isfinite(loss)
    for slope in slopes.values():
        assert np.isfinite(slope[0, 1:]).all()
        moved = np.asarray(slope[0, 1:]).reshape(2, -1).any(-1)
        np.testing.assert_array_equal(moved, labelled[1:])


@pytest.mark.parametrize(
    "error, size, expected",
    [
        (0.0, 100.0, 0.0),
        (4.0, 100.0, 0.04**2 / 2 / 0.05),
        (-5.0, 100.0, 0.025),
        (30.0, 100.0, 0.3 - 0.025),
        (30.0, 200.0, 0.15 - 0.025),
        (2.0, 0.0, 2.0 - 0.025),  # an instance is at least one pixel
    ],
)
def test_smooth_l1(error, size, expected):
    points = jnp.array([[error, 0.0]]) + 3.0
    got = smooth_l1(points, jnp.full((1, 2), 3.0), jnp.array([size]))
    np.testing.assert_allclose(got, [[expected, 0.0]], rtol=1e-4, atol=1e-6)


def test_slope_of_smooth_l1():
    def loss(x):
        return smooth_l1(x, jnp.zeros(2), jnp.array(10.0), bend=0.1)[0]

    for error, expected in [(0.0, 0.0), (0.5, 0.05), (3.0, 0.1), (-3.0, -0.1)]:
        np.testing.assert_allclose(
            jax.grad(loss)(jnp.array([error, 0.0])), [expected, 0.0], rtol=1e-6
        )


@pytest.mark.parametrize(
    "error, size, expected",
    [
        (0.0, 256.0, 0.0),
        (10.0, 256.0, 10 * math.log(6)),
        (-4.0, 256.0, 10 * math.log(3)),
        (30.0, 256.0, 30 - (10 - 10 * math.log(6))),
        (60.0, 512.0, 30 - (10 - 10 * math.log(6))),
    ],
)
def test_wing_has_the_paper_s_values_at_256_pixels(error, size, expected):
    points = jnp.array([[error, 0.0]])
    widths = {"width": 10 / 256, "curvature": 2 / 256}
    got = wing(points, jnp.zeros((1, 2)), jnp.array([size]), **widths)
    np.testing.assert_allclose(256 * got, [[expected, 0.0]], rtol=1e-4, atol=1e-5)


def test_wing_pulls_small_errors_and_is_continuous():
    def loss(x, **widths):
        return wing(jnp.array([x, 0.0]), jnp.zeros(2), jnp.array(100.0), **widths)[0]

    np.testing.assert_allclose(loss(3.999), loss(4.001), atol=1e-4)
    # 0.04 / (0.008 + error) in shares of the size, and 1 above the width.
    for x, expected in [(0.1, 0.04 / 0.009), (-0.1, -0.04 / 0.009), (5.0, 1.0)]:
        np.testing.assert_allclose(jax.grad(loss)(x), expected / 100, rtol=1e-4)


@pytest.mark.parametrize("loss", [smooth_l1, wing])
def test_a_point_loss_of_no_size_is_finite(loss):
    def total(points, size):
        return loss(points, jnp.zeros((3, 2)), size).sum()

    value, slopes = jax.value_and_grad(total, argnums=(0, 1))(
        jnp.ones((3, 2)), jnp.zeros(3)
    )
    assert np.isfinite(value) and all(np.isfinite(s).all() for s in slopes)


def test_different_shapes_raise():
    a, b = jnp.zeros((2, 4, 4)), jnp.zeros((1, 4, 4))
    with pytest.raises(ValueError, match=r"heatmap_cross_entropy.*\(2, 4, 4\).*\(1,"):
        heatmap_cross_entropy(a, b)
    for loss in (smooth_l1, wing):
        with pytest.raises(ValueError, match=rf"{loss.__name__}.*\(2, 4, 4\).*\(1,"):
            loss(a, b, jnp.ones(()))
