"""Elementwise losses of heatmaps and of points, not reduced."""

import jax
import jax.numpy as jnp
import optax

from facekp_jax.losses.terms import check_same_shape

# A cell of the target itself: at least this share of its highest, that is, in a
# Gaussian, within three sigma.
_TARGET_SHARE = 0.01


def heatmap_cross_entropy(
    logits: jax.Array, targets: jax.Array, *, ignored: jax.Array | None = None
) -> jax.Array:
    """Cross-entropy of heatmaps that are a softmax over all cells.

    The entropy of the targets, which nothing can change, is taken off: a perfect map
    has loss 0.

    Args:
        logits: [..., K, h, w] before the softmax, finite.
        targets: [..., K, h, w] distributions, as `heatmaps.render` draws them.
        ignored: [..., h, w], true or 1 in crowds and where nothing is labelled. Such
            cells are no part of the softmax, except those that are the target itself.

    Returns:
        [..., K] loss in nats.

    Raises:
        ValueError: if the shapes of logits and targets differ.

    Source: He et al., Mask R-CNN, ICCV 2017, there with one cell as the target.
    """
    check_same_shape("heatmap_cross_entropy", logits, targets)
    logits = logits.astype(jnp.float32)
    if ignored is not None:
        peak = jnp.max(targets, axis=(-2, -1), keepdims=True)
        counts = (targets >= _TARGET_SHARE * peak) | (ignored == 0)[..., None, :, :]
        logits = jnp.where(counts, logits, -1e30)
        targets = jnp.where(counts, targets, 0.0)
        targets /= jnp.sum(targets, axis=(-2, -1), keepdims=True)
    cells = (*logits.shape[:-2], -1)
    predicted = jax.nn.log_softmax(logits.reshape(cells))
    return optax.losses.kl_divergence(predicted, targets.reshape(cells))


def smooth_l1(
    predictions: jax.Array, targets: jax.Array, size: jax.Array, *, bend: float = 0.05
) -> jax.Array:
    """Smooth L1 loss of points or vectors: quadratic below the bend, linear above.

    Args:
        predictions: [..., 2] pixels.
        targets: [..., 2] pixels in the same frame.
        size: [...] pixels, of the instance; at least 1 is taken.
        bend: share of the size.

    Returns:
        [..., 2] loss in shares of the size.

    Raises:
        ValueError: if the shapes of predictions and targets differ.

    Source: Girshick, Fast R-CNN, ICCV 2015.
    """
    error = _error("smooth_l1", predictions, targets, size)
    return optax.losses.huber_loss(error, delta=bend) / bend


def wing(
    predictions: jax.Array,
    targets: jax.Array,
    size: jax.Array,
    *,
    width: float = 0.04,
    curvature: float = 0.008,
) -> jax.Array:
    """Wing loss: logarithmic near zero, so that small errors still pull.

    Args:
        predictions: [..., 2] pixels.
        targets: [..., 2] pixels in the same frame.
        size: [...] pixels, of the instance; at least 1 is taken.
        width: share of the size; below this error the logarithm applies.
        curvature: share of the size; smaller bends harder.

    Returns:
        [..., 2] loss in shares of the size.

    Raises:
        ValueError: if the shapes of predictions and targets differ.

    Source: Feng et al., CVPR 2018, whose 10 and 2 of 256 pixels are the defaults.
    """
    error = jnp.abs(_error("wing", predictions, targets, size))
    bent = width * jnp.log1p(error / curvature)
    offset = width - width * jnp.log1p(width / curvature)
    return jnp.where(error < width, bent, error - offset)


def _error(name, predictions, targets, size):
    check_same_shape(name, predictions, targets)
    return (predictions - targets) / jnp.maximum(size, 1.0)[..., None]
