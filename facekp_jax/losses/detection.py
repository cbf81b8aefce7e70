"""Elementwise losses of detection and segmentation, not reduced."""

import jax
import jax.numpy as jnp
import optax

from facekp_jax import boxes
from facekp_jax.losses.terms import check_same_shape


def sigmoid_focal(
    logits: jax.Array, targets: jax.Array, *, balance: float = 0.25, focus: float = 2.0
) -> jax.Array:
    """Focal loss: cross-entropy in which easy examples hardly count.

    Args:
        logits: [...] scores before the sigmoid.
        targets: [...] 0 or 1, same shape.
        balance: weight of the positives; the negatives get 1 - balance.
        focus: exponent; 0 is plain cross-entropy.

    Returns:
        [...] loss in nats.

    Raises:
        ValueError: if the shapes differ.

    Source: Lin et al., ICCV 2017.
    """
    check_same_shape("sigmoid_focal", logits, targets)
    probability = jax.nn.sigmoid(logits)
    miss = jnp.where(targets > 0.5, 1.0 - probability, probability)
    weight = jnp.where(targets > 0.5, balance, 1.0 - balance)
    return weight * miss**focus * optax.sigmoid_binary_cross_entropy(logits, targets)


def giou(predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """Generalised IoU loss: 1 - IoU, plus the empty part of the enclosing box.

    Args:
        predictions: [..., 4] boxes xyxy.
        targets: [..., 4] boxes xyxy in the same frame.

    Returns:
        [...] loss between 0 (equal boxes) and 2 (far apart); 1 for equal boxes without
        area. Values and gradients are finite for every box.

    Raises:
        ValueError: if the shapes differ.

    Source: Rezatofighi et al., CVPR 2019.
    """
    check_same_shape("giou", predictions, targets)
    low = jnp.maximum(predictions[..., :2], targets[..., :2])
    high = jnp.minimum(predictions[..., 2:], targets[..., 2:])
    intersection = jnp.prod(jnp.maximum(high - low, 0.0), axis=-1)
    union = boxes.area(predictions) + boxes.area(targets) - intersection
    hull = jnp.prod(
        jnp.maximum(predictions[..., 2:], targets[..., 2:])
        - jnp.minimum(predictions[..., :2], targets[..., :2]),
        axis=-1,
    )
    tiny = jnp.finfo(jnp.float32).eps
    overlap = intersection / jnp.maximum(union, tiny)
    return 1.0 - overlap + (hull - union) / jnp.maximum(hull, tiny)


def dice(logits: jax.Array, targets: jax.Array, *, smooth: float = 1.0) -> jax.Array:
    """Dice loss of a mask: 1 - the overlap of predicted and true mask.

    Args:
        logits: [..., H, W] mask scores before the sigmoid.
        targets: [..., H, W] coverage in 0..1.
        smooth: cells added to both sums, so that two empty masks agree.

    Returns:
        [...] loss in 0..1, one for each mask.

    Raises:
        ValueError: if the shapes differ.

    Source: Milletari et al., 3DV 2016.
    """
    check_same_shape("dice", logits, targets)
    probability = jax.nn.sigmoid(logits)
    both = jnp.sum(probability * targets, axis=(-2, -1))
    total = jnp.sum(probability, axis=(-2, -1)) + jnp.sum(targets, axis=(-2, -1))
    return 1.0 - (2.0 * both + smooth) / (total + smooth)
