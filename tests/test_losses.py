"""Losses and their reduction, against values derived by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from facekp_jax.losses import Term, dice, giou, masked_mean, sigmoid_focal, weighted_sum

LN2 = math.log(2)
SURE = 40.0  # a logit whose sigmoid is 1 in float32


@pytest.mark.parametrize(
    "values, mask, expected",
    [
        ([1.0, 2.0, 6.0], [True, False, True], 3.5),
        ([1.0, 2.0, 6.0], [False, False, False], 0.0),
        ([1.0, math.nan, 6.0], [True, False, True], 3.5),
        ([math.inf, math.nan, math.nan], [False, False, False], 0.0),
        ([1.0, 2.0, 6.0], [1, 0, 0], 1.0),
        ([[1.0, 2.0, 3.0], [9.0, 9.0, 9.0]], [[True], [False]], 2.0),
        ([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]], True, 3.0),
        ([], [], 0.0),
    ],
)
def test_masked_mean(values, mask, expected):
    got = masked_mean(jnp.array(values), jnp.array(mask))
    assert got.dtype == jnp.float32 and got.shape == ()
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_masked_mean_shows_a_nan_that_counts():
    assert math.isnan(masked_mean(jnp.array([math.nan, 1.0]), jnp.array([True, False])))


def test_masked_mean_adds_up_in_float32():
    # 257 is no bfloat16: the nearest are 256 and 258.
    assert masked_mean(jnp.ones(257, jnp.bfloat16), jnp.array(True)) == 1.0


@pytest.mark.parametrize(
    "mask, expected",
    [([True, False, True], [0.5, 0.0, 0.5]), ([False] * 3, [0.0] * 3)],
)
def test_masked_mean_gives_masked_values_no_gradient(mask, expected):
    values = jnp.array([1.0, math.nan, 3.0])
    np.testing.assert_array_equal(
        jax.grad(masked_mean)(values, jnp.array(mask)), expected
    )


def test_weighted_sum_adds_up_terms_of_one_name():
    def values(outputs, batch):
        return outputs["x"], batch["seen"]

    def twice(outputs, batch):
        return 2 * outputs["x"], batch["seen"]

    def unseen(outputs, batch):
        return outputs["x"] / 0, jnp.zeros(3, bool)

    terms = [
        Term("near", values, 10.0),
        Term("far", values),
        Term("near", twice, 0.5),
        Term("never", unseen, 7.0),
    ]
    outputs = {"x": jnp.array([1.0, 2.0, 3.0])}
    batch = {"seen": jnp.array([True, False, True])}
    loss, parts = weighted_sum(terms, outputs, batch)
    # The mean is 2; near is 10 * 2 + 0.5 * 4.
    assert parts == {"loss/near": 22.0, "loss/far": 2.0, "loss/never": 0.0}
    assert loss == 24.0


def test_a_term_of_several_names_is_reduced_name_by_name():
    def rows(outputs, batch):
        return outputs["x"], batch["seen"]

    outputs = {"x": jnp.array([[1.0, 2.0, 6.0], [5.0, 7.0, jnp.nan], [9.0, 9.0, 9.0]])}
    seen = jnp.array([[True, True, True], [True, True, False], [False, False, False]])
    terms = [Term(("a", "b", "c"), rows, 10.0), Term(("same", "same", "b"), rows)]
    loss, parts = weighted_sum(terms, outputs, {"seen": seen})
    assert parts == {
        "loss/a": 30.0,
        "loss/b": 60.0,  # ten times its own row, and the last
        "loss/c": 0.0,
        "loss/same": 3.0 + 6.0,
    }
    assert loss == 99.0
    with pytest.raises(ValueError):
        weighted_sum([Term(("a", "b"), rows)], outputs, {"seen": seen})


def test_weighted_sum_of_nothing():
    loss, parts = weighted_sum([], {}, {})
    assert (loss, loss.dtype, parts) == (0.0, jnp.float32, {})


@pytest.mark.parametrize(
    "logit, target, options, expected",
    [
        (0.0, 1.0, {}, 0.25 * 0.25 * LN2),
        (0.0, 0.0, {}, 0.75 * 0.25 * LN2),
        # sigmoid(ln 3) = 3/4
        (math.log(3), 1.0, {}, 0.25 / 16 * math.log(4 / 3)),
        (math.log(3), 0.0, {}, 0.75 * 9 / 16 * math.log(4)),
        (math.log(3), 0.0, {"focus": 0.0, "balance": 0.5}, 0.5 * math.log(4)),
        (math.log(3), 1.0, {"focus": 1.0, "balance": 0.9}, 0.225 * math.log(4 / 3)),
        (-1e4, 1.0, {}, 0.25 * 1e4),
        (1e4, 0.0, {}, 0.75 * 1e4),
        (1e4, 1.0, {}, 0.0),
        (-1e4, 0.0, {}, 0.0),
    ],
)
def test_sigmoid_focal(logit, target, options, expected):
    def loss(logit):
        return sigmoid_focal(logit, jnp.array([target]), **options)[0]

    got, slope = jax.value_and_grad(loss)(jnp.array([logit]))
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert np.isfinite(slope).all()


def test_slope_of_sigmoid_focal():
    # Of 0.75 p^2 softplus(x) at 0, with p = 1/2 and p' = 1/4.
    slope = jax.grad(lambda x: sigmoid_focal(x, jnp.zeros(())))(0.0)
    np.testing.assert_allclose(slope, 0.75 * (0.25 * LN2 + 0.125), rtol=1e-6)


@pytest.mark.parametrize(
    "a, b, expected",
    [
        ([1, 2, 4, 6], [1, 2, 4, 6], 0.0),
        ([0, 0, 2, 2], [1, 1, 3, 3], 1 - 1 / 7 + 2 / 9),
        ([0, 0, 4, 4], [1, 1, 3, 3], 0.75),  # inside: the hull is the union
        ([0, 0, 1, 1], [1, 0, 2, 1], 1.0),  # touching
        ([0, 0, 1, 1], [2, 0, 3, 1], 1 + 1 / 3),
        ([0, 0, 1, 1], [999, 999, 1000, 1000], 2 - 2e-6),
        ([3, 3, 3, 3], [0, 0, 2, 2], 2 - 4 / 9),  # a point beside a box
    ],
)
def test_giou(a, b, expected):
    for first, second in ((a, b), (b, a)):
        got = giou(jnp.array(first, jnp.float32), jnp.array(second, jnp.float32))
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_giou_pulls_boxes_that_do_not_meet():
    # 2 - union / hull, with union 2 + x2 - x1 - 1 and hull 3 - x1.
    target = jnp.array([2.0, 0.0, 3.0, 1.0])
    slope = jax.grad(giou)(jnp.array([0.0, 0.1, 1.0, 0.9]), target)
    union, hull = 1.8, 3.0
    np.testing.assert_allclose(slope[2], -0.8 / hull, rtol=1e-5)
    np.testing.assert_allclose(slope[0], 0.8 / hull - union / hull**2, rtol=1e-5)


POINT, LINE, BOX = [5, 5, 5, 5], [2, 5, 8, 5], [1, 1, 9, 9]
TURNED, FAR = [9, 9, 1, 1], [1e6, 1e6, 2e6, 2e6]


@pytest.mark.parametrize("a", [POINT, LINE, BOX, TURNED, FAR])
@pytest.mark.parametrize("b", [POINT, LINE, [0, 0, 0, 0], BOX])
def test_giou_of_degenerate_boxes_is_finite(a, b):
    a, b = jnp.array(a, jnp.float32), jnp.array(b, jnp.float32)
    loss, slopes = jax.value_and_grad(giou, argnums=(0, 1))(a, b)
    assert 0 <= loss <= 2
    assert np.isfinite(slopes).all()


HALF = [[0.0, 0.0], [0.0, 0.0]]  # probabilities of 1/2
TOP = [[1.0, 1.0], [0.0, 0.0]]
FULL, NONE = np.full((2, 2), SURE), np.full((2, 2), -SURE)


@pytest.mark.parametrize(
    "logits, targets, options, expected",
    [
        (FULL, np.ones((2, 2)), {}, 0.0),
        (NONE, np.zeros((2, 2)), {}, 0.0),
        (NONE, np.ones((2, 2)), {}, 1 - 1 / 5),
        (FULL, np.zeros((2, 2)), {}, 1 - 1 / 5),
        (HALF, TOP, {}, 1 - (2 * 1 + 1) / (2 + 2 + 1)),
        (HALF, TOP, {"smooth": 4.0}, 1 - (2 * 1 + 4) / (2 + 2 + 4)),
        (FULL, np.full((2, 2), 0.5), {}, 1 - (2 * 2 + 1) / (4 + 2 + 1)),
    ],
)
def test_dice(logits, targets, options, expected):
    def loss(logits):
        return dice(logits, jnp.array(targets), **options)

    got, slope = jax.value_and_grad(loss)(jnp.array(logits))
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert np.isfinite(slope).all()


def test_dice_is_one_number_for_each_mask():
    logits = jnp.array([[FULL, NONE, FULL]])
    targets = jnp.array([[np.ones((2, 2)), np.ones((2, 2)), np.zeros((2, 2))]])
    np.testing.assert_allclose(dice(logits, targets), [[0, 0.8, 0.8]], atol=1e-6)


@pytest.mark.parametrize("loss", [sigmoid_focal, giou, dice])
def test_different_shapes_raise(loss):
    with pytest.raises(ValueError, match=rf"{loss.__name__}.*\(2, 4, 4\).*\(1, 4, 4\)"):
        loss(jnp.zeros((2, 4, 4)), jnp.zeros((1, 4, 4)))
