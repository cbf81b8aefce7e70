"""Heatmaps of keypoints: drawn from points, decoded to points, mirrored.

Cell (i, j) of a map covers the pixels from j to j + 1 strides in x and from i to i + 1
in y of the network's input; points are (x, y) in these pixels.
"""

import jax
import jax.numpy as jnp

SIGMA = 0.5  # cells, of the Gaussian around a keypoint

# Of a fitted parabola, in sigma: a network that is sure draws narrow peaks, one that is
# not draws wide ones, and what fits an almost flat map could lie anywhere.
_NARROWEST, _WIDEST, _FARTHEST = 0.1, 2.0, 1.5
_PRIOR = 1e-4  # weight of a curvature as drawn, against those of the cells


def render(
    points: jax.Array, size: tuple[int, int], stride: float, sigma: float = SIGMA
) -> jax.Array:
    """Distribution over the cells of a map for where each keypoint is.

    The Gaussian's centre is the point itself, not that of its cell.

    Args:
        points: [..., 2] pixels of the network's input. One outside draws what of its
            Gaussian reaches into the map.
        size: (h, w) of the map, cells.
        stride: pixels per cell.
        sigma: cells.

    Returns:
        [..., h, w] float32, the sum of each map is 1.

    Source: Zhang et al., Distribution-aware coordinate representation, CVPR 2020;
    Huang et al., The devil is in the details, CVPR 2020.
    """
    centres = jnp.asarray(points, jnp.float32) / stride - 0.5

    def along(cells, centre):
        distance = (jnp.arange(cells) - centre[..., None]) / sigma
        return jax.nn.softmax(-(distance**2) / 2)

    height, width = size
    rows, columns = along(height, centres[..., 1]), along(width, centres[..., 0])
    return rows[..., :, None] * columns[..., None, :]


def decode(
    logits: jax.Array, stride: float, sigma: float = SIGMA
) -> tuple[jax.Array, jax.Array]:
    """Sub-pixel points of heatmaps, without bias up to the borders and corners.

    The peak is the highest cell of the blurred map. In the window of two sigma around
    it, cut at the border, a parabola is fitted to the logarithm of the probability in
    each column, and in each row: exact for a Gaussian of any width, also where the
    border cuts it. The blurred map weights the fit. On maps with noise, a background, a
    second peak or another width, this errs less than the highest cell, a Taylor step
    from it (Zhang et al., CVPR 2020) or the mean of the window.

    Args:
        logits: [..., h, w] before a softmax over the cells, or logarithms of
            probabilities. A cell with -inf or NaN cannot be the keypoint's.
        stride: pixels per cell.
        sigma: cells, of the Gaussians that the network learns.

    Returns:
        points: [..., 2] float32, pixels, on the map, in x and in y at most 1.5 sigma
            from the peak. Their gradients reach the logits, not the choice of the peak.
        confidence: [...] float32 in [0, 1]: the probability inside the window.

        Both are finite for every map; the confidence of one without any cell is 0.
    """
    height, width = logits.shape[-2:]
    logits = jnp.asarray(logits, jnp.float32)
    possible = logits > -jnp.inf
    logits = jnp.clip(jnp.where(possible, logits, -jnp.inf), -1e30, 1e30)
    probability = jax.nn.softmax(logits, axis=(-2, -1))
    blurred = jax.lax.stop_gradient(_blur(probability, sigma))
    peak = jnp.argmax(blurred.reshape(*blurred.shape[:-2], -1), axis=-1)
    row, column = peak // width, peak % width

    radius = max(1, round(2 * sigma))
    rows = jnp.abs(jnp.arange(height) - row[..., None]) <= radius
    columns = jnp.abs(jnp.arange(width) - column[..., None]) <= radius
    window = rows[..., :, None] & columns[..., None, :]
    inside = jnp.where(window, probability, 0)
    weights = jnp.where(window, blurred, 0)
    x = _vertex(inside.sum(-2), weights.sum(-2), column, sigma)
    y = _vertex(inside.sum(-1), weights.sum(-1), row, sigma)

    confidence = jnp.minimum(inside.sum((-2, -1)), 1)
    confidence = jnp.where(possible.any((-2, -1)), confidence, 0)
    return (jnp.stack([x, y], axis=-1) + 0.5) * stride, confidence


def mirror(heatmaps: jax.Array, permutation: jax.Array) -> jax.Array:
    """Heatmaps as they are of the mirrored picture.

    The cells of both line up without any shift if the width of the picture is a
    multiple of the stride.

    Args:
        heatmaps: [..., K, h, w].
        permutation: [K] keypoint -> that which it becomes in the mirrored picture.

    Returns:
        [..., K, h, w].
    """
    return jnp.take(heatmaps, jnp.asarray(permutation), axis=-3)[..., ::-1]


def _blur(maps, sigma):
    def kernel(cells):
        distance = (jnp.arange(cells) - jnp.arange(cells)[:, None]) / sigma
        return jnp.exp(-(distance**2) / 2)

    height, width = maps.shape[-2:]
    return kernel(height) @ maps @ kernel(width)


def _vertex(profile, weights, peak, sigma):
    """Top of the parabola through the logarithm of a profile, in cells.

    Args:
        profile: [..., n] probability of the window's columns, or rows; 0 outside.
        weights: [..., n] of the fit, 0 outside the window.
        peak: int [...] the cell from which the top is not far away.
    """
    cells = profile.shape[-1]
    weights = weights / weights.sum(-1, keepdims=True)

    def mean(values):
        return (weights * values).sum(-1)

    def centred(values):
        return values - mean(values)[..., None]

    # level = constant + slope * t - curvature * t^2 / 2, with t in sigma.
    t = (jnp.arange(cells) - peak[..., None]) / sigma
    line, bend = centred(t), centred(-(t**2) / 2)
    level = centred(jnp.log(jnp.maximum(profile, 1e-20)))
    # The small numbers decide only where the map has fewer cells than unknowns.
    line_line, line_bend = mean(line**2) + 1e-6, mean(line * bend)
    bend_bend, bend_level = mean(bend**2) + _PRIOR, mean(bend * level) + _PRIOR
    line_level = mean(line * level)
    curvature = line_line * bend_level - line_bend * line_level
    curvature /= line_line * bend_bend - line_bend**2
    curvature = jnp.clip(curvature, _WIDEST**-2, _NARROWEST**-2)
    slope = (line_level - line_bend * curvature) / line_line
    offset = jnp.clip(slope / curvature, -_FARTHEST, _FARTHEST) * sigma
    return jnp.clip(peak + offset, -0.5, cells - 0.5)
