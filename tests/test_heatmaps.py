"""Heatmaps: drawn, decoded and mirrored without a shift, on any map."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from facekp_jax import heatmaps
from facekp_jax.heatmaps import decode, mirror, render

STRIDE = 4
SIGMA = 2.0
draw = jax.jit(render, static_argnums=(1, 2, 3))
read = jax.jit(decode, static_argnums=(1, 2))


def places(size, *, seed=0, count=200):
    """Points on a map: in its corners, on its borders, near them, and anywhere."""
    rng = np.random.default_rng(seed)
    extent = STRIDE * np.array(size[::-1])
    corners = extent * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    points = extent * rng.random((count, 2))
    border = extent * rng.integers(0, 2, (count, 2))
    near = (border + rng.uniform(-3, 3, (count, 2))).clip(0, extent)
    kind = rng.integers(0, 3, (count, 2))  # of each coordinate
    points = np.choose(kind, [points, near, border])
    points[:4] = corners
    return points


def test_render_by_hand():
    # The centres of the cells are at 2, 6 and 10: 1, 3 and 7 pixels from the point, and
    # the logarithms differ by (distance / stride / sigma)^2 / 2.
    got = draw(jnp.array([3.0, 2.0]), (1, 3), 4, 1.0)
    weights = [math.exp(-((d / 4) ** 2) / 2) for d in (1, 3, 7)]
    np.testing.assert_allclose(got, [np.array(weights) / sum(weights)], rtol=1e-6)


def test_render_is_a_product_of_rows_and_columns():
    point = jnp.array([7.3, 2.1])
    got = draw(point, (4, 6), 4, SIGMA)
    assert got.shape == (4, 6)
    column = draw(point, (4, 1), 4, SIGMA)
    np.testing.assert_allclose(got, column * draw(point, (1, 6), 4, SIGMA), rtol=1e-6)


@pytest.mark.parametrize("far", [-3000.0, -30.0, 12.0, 50.0, 3000.0])
def test_points_outside_are_drawn_at_the_border(far):
    got = draw(jnp.array([far, 6.0]), (3, 4), 4, SIGMA)
    np.testing.assert_allclose(got.sum(), 1, rtol=1e-6)
    row, column = np.unravel_index(np.argmax(got), (3, 4))
    assert (row, column) == (1, {-1: 0, 0: 2, 1: 3}[round(np.sign(far - 12))])


def test_render_of_no_points():
    assert draw(jnp.zeros((0, 2)), (3, 4), 4, SIGMA).shape == (0, 3, 4)


@pytest.mark.parametrize("sigma", [heatmaps.SIGMA, SIGMA])
@pytest.mark.parametrize(
    "size", [(64, 48), (33, 17), (9, 7), (3, 5), (2, 2), (1, 6), (5, 1), (1, 1)]
)
def test_decode_of_render(size, sigma):
    points = places(size)
    got, confidence = read(jnp.log(draw(points, size, STRIDE, sigma)), STRIDE, sigma)
    for axis, cells in enumerate(size[::-1]):
        # A single cell tells nothing of the place in it.
        expected = points[:, axis] if cells > 1 else 2.0
        np.testing.assert_allclose(got[:, axis], expected, atol=0.1)
    assert ((confidence > 0.9) & (confidence <= 1)).all()


@pytest.mark.parametrize("stride, sigma", [(1, 3.0), (2, 0.7), (8, 1.5)])
def test_decode_of_other_strides_and_widths(stride, sigma):
    points = places((13, 11)) / STRIDE * stride
    got, _ = read(jnp.log(draw(points, (13, 11), stride, sigma)), stride, sigma)
    np.testing.assert_allclose(got, points, atol=0.1)


@pytest.mark.parametrize("share", [0.4, 0.7, 1.5])
def test_peaks_of_another_width_are_decoded_without_bias(share):
    points = places((24, 17))
    logits = jnp.log(draw(points, (24, 17), STRIDE, share * SIGMA) + 1e-30)
    got, _ = read(logits, STRIDE, SIGMA)
    # In the very corner the blurred wide peak is just too far inside.
    np.testing.assert_allclose(got, points, atol=0.2 if share > 1 else 0.1)


def test_logits_need_no_normalisation():
    logits = jnp.log(draw(places((9, 7)), (9, 7), STRIDE, SIGMA))
    for shift in (-50.0, 1000.0):
        for got, expected in zip(
            read(logits + shift, STRIDE, SIGMA),
            read(logits, STRIDE, SIGMA),
            strict=True,
        ):
            np.testing.assert_allclose(got, expected, atol=1e-2)


def test_any_leading_shape_under_vmap_and_in_low_precision():
    points = places((9, 7), count=24)
    logits = jnp.log(draw(points, (9, 7), STRIDE, SIGMA))
    flat = read(logits, STRIDE, SIGMA)
    stacked = logits.reshape(2, 3, 4, 9, 7)
    shaped = read(stacked, STRIDE, SIGMA)
    mapped = jax.jit(jax.vmap(lambda maps: decode(maps, STRIDE, SIGMA)))(stacked)
    one = [read(m, STRIDE, SIGMA) for m in logits[:2]]
    for part, shape in enumerate([(2, 3, 4, 2), (2, 3, 4)]):
        assert shaped[part].shape == shape
        np.testing.assert_allclose(shaped[part].reshape(flat[part].shape), flat[part])
        np.testing.assert_allclose(mapped[part], shaped[part], atol=1e-4)
        for k in range(2):
            np.testing.assert_allclose(one[k][part], flat[part][k], atol=1e-4)
    low, confidence = read(logits.astype(jnp.bfloat16), STRIDE, SIGMA)
    assert low.dtype == confidence.dtype == jnp.float32
    np.testing.assert_allclose(low, points, atol=1.0)


def test_confidence_is_the_mass_of_the_window():
    # A point at a cell's centre; the window reaches 2 sigma = 4 cells to each side.
    weight = np.exp(-(np.arange(-40, 41) ** 2) / 2 / 2.0**2)
    inside = (weight[36:45].sum() / weight.sum()) ** 2
    sharp = jnp.log(draw(jnp.array([50.0, 50.0]), (32, 32), STRIDE, 2.0))
    flat = jnp.zeros((32, 32))
    half = jnp.log(jnp.exp(sharp) / 2 + 1 / 32**2 / 2)
    _, got = read(jnp.stack([sharp, half]), STRIDE, 2.0)
    expected = [inside, (inside + 81 / 32**2) / 2]
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    assert read(flat[None], STRIDE, 2.0)[1] < 0.1


GRADIENT = jax.jit(
    jax.grad(lambda logits: sum(map(jnp.sum, decode(logits, STRIDE, SIGMA))))
)


@pytest.mark.parametrize(
    "fill, cell",
    [
        (0.0, 0.0),
        (-np.inf, -np.inf),
        (np.nan, np.nan),
        (np.inf, np.inf),
        (-np.inf, 0.0),
        (np.nan, 3.0),
        (0.0, np.inf),
        (0.0, np.nan),
        (0.0, -np.inf),
        (-3e38, 3e38),
        (0.0, 1e4),
    ],
)
def test_points_of_any_map_are_finite_and_on_it(fill, cell):
    logits = np.full((6, 5), fill, np.float32)
    logits[4, 1] = cell
    points, confidence = read(logits[None], STRIDE, SIGMA)
    assert ((points >= 0) & (points <= np.array([20, 24]))).all()
    assert ((confidence >= 0) & (confidence <= 1)).all()
    assert np.isfinite(GRADIENT(jnp.asarray(logits))).all()
    if cell > fill or (np.isnan(fill) and not np.isnan(cell)):
        np.testing.assert_allclose(points[0], [6, 18], atol=STRIDE / 2)
        assert confidence > 0.99
    if not fill > -np.inf and not cell > -np.inf:
        assert confidence == 0


def test_the_mode_with_the_greater_mass_wins():
    # A spike is higher than a wide peak that holds four times as much.
    wide = draw(jnp.array([40.0, 60.0]), (32, 32), STRIDE, 3.0)
    spike = draw(jnp.array([90.0, 102.0]), (32, 32), STRIDE, 0.5)
    both = 0.8 * wide + 0.2 * spike
    assert both[25, 22] == both.max()
    points, _ = read(jnp.log(both)[None], STRIDE, SIGMA)
    np.testing.assert_allclose(points[0], [40, 60], atol=0.5)


@pytest.mark.parametrize("slope", [-0.1, 0.1])
def test_in_a_hollow_the_point_leans_to_the_higher_side(slope):
    # The parabola through it has no top.
    distance = np.arange(9) - 4
    logits = 0.02 * distance**2 + slope * distance + 0.0 * distance[:, None]
    points, _ = read(jnp.asarray(logits)[None], STRIDE, SIGMA)
    assert 8 < (points[0, 0] - 18) * np.sign(slope) <= 18
    np.testing.assert_allclose(points[0, 1], 18, atol=0.1)


@pytest.mark.parametrize("border", [False, True])
@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_noise_moves_points_less_than_the_highest_cell(border, noise):
    size = (24, 24)
    rng = np.random.default_rng(1)
    points = rng.uniform(24, 72, (200, 2))
    if border:
        points[:, 0] = rng.uniform(0, 3, 200)
    logits = jnp.log(draw(points, size, STRIDE, SIGMA))
    logits += noise * rng.standard_normal(logits.shape, np.float32)
    got, _ = read(logits, STRIDE, SIGMA)
    highest = np.argmax(logits.reshape(200, -1), axis=-1)
    highest = (np.stack([highest % 24, highest // 24], -1) + 0.5) * STRIDE

    def mean_error(found):
        return np.hypot(*(found - points).T).mean()

    # Measured: 0.32 and 1.2 pixels inside, 1.0 and 2.8 at the border.
    assert mean_error(got) < {0.3: 0.5, 1.0: 1.6}[noise] * (2.5 if border else 1)
    assert mean_error(got) < 0.55 * mean_error(highest)


def test_gradients_move_the_point():
    point = jnp.array([21.0, 30.0])
    logits = jnp.log(draw(point, (16, 12), STRIDE, SIGMA))

    @jax.jit
    def x(logits):
        return decode(logits, STRIDE, SIGMA)[0][0]

    slope = jax.jit(jax.grad(x))(logits)
    # On a Gaussian the weights of the fit do not matter, so that differences agree.
    change = np.random.default_rng(0).standard_normal((16, 12)).astype(np.float32)
    step = 1e-2
    difference = (x(logits + step * change) - x(logits - step * change)) / (2 * step)
    np.testing.assert_allclose((slope * change).sum(), difference, rtol=2e-2)
    # The peak is in row 7, column 5 or its neighbour; its window ends 4 cells further.
    assert slope[7, 8] > 0.01 and slope[7, 2] < -0.01
    assert (abs(slope[0]) < 1e-6).all() and (abs(slope[:, 11]) < 1e-6).all()


def test_mirror_exchanges_sides_and_keypoints():
    maps = jnp.arange(12.0).reshape(3, 2, 2)
    got = mirror(maps, (0, 2, 1))
    np.testing.assert_array_equal(got[0], [[1, 0], [3, 2]])
    np.testing.assert_array_equal(got[1], [[9, 8], [11, 10]])
    np.testing.assert_array_equal(mirror(got, (0, 2, 1)), maps)
    batch = jnp.stack([maps, maps + 1])
    np.testing.assert_array_equal(mirror(batch, (0, 2, 1))[0], got)


@pytest.mark.parametrize("sigma", [heatmaps.SIGMA, SIGMA])
@pytest.mark.parametrize("cells", [11, 12])
def test_a_mirrored_picture_needs_no_shift(cells, sigma):
    size, width = (9, cells), STRIDE * cells
    points = places(size, count=40).reshape(20, 2, 2)
    # Of the mirrored picture: the first keypoint is where the second was.
    mirrored = np.stack([width - points[..., 0], points[..., 1]], -1)[:, ::-1]
    logits = jnp.log(draw(points, size, STRIDE, sigma))
    flipped = jnp.log(draw(mirrored, size, STRIDE, sigma))
    np.testing.assert_allclose(read(flipped, STRIDE, sigma)[0], mirrored, atol=0.1)
    back = mirror(flipped, (1, 0))
    np.testing.assert_allclose(jnp.exp(back), jnp.exp(logits), atol=1e-5)
    both = jnp.log((jnp.exp(logits) + jnp.exp(back)) / 2)
    np.testing.assert_allclose(read(both, STRIDE, sigma)[0], points, atol=0.2)
