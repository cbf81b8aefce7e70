"""Anchors: the boxes a detection network starts from, and what each answers for."""

import jax
import jax.numpy as jnp
import numpy as np

from facekp_jax import boxes as box_ops

_TIE = 1e-5  # overlaps that differ by less, relatively, are equal


def grid(height, width, stride, size, ratios):
    """Anchors centred on every cell of a feature map.

    Args:
        height: of the map, cells.
        width: of the map, cells.
        stride: pixels of the image per cell.
        size: pixels; every anchor has the area size * size.
        ratios: height over width of each anchor of a cell.

    Returns:
        [height * width * len(ratios), 4] float32 xyxy, pixels, ordered by y, x, ratio.
    """
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    centres = (np.stack([x, y], axis=-1)[:, :, None] + 0.5) * stride
    root = np.sqrt(np.asarray(ratios, np.float64))
    half = size * np.stack([1 / root, root], axis=-1) / 2  # [ratios, 2]
    corners = np.concatenate([centres - half, centres + half], axis=-1)
    return corners.reshape(-1, 4).astype(np.float32)


def match(boxes, truth, valid, crowd, *, positive, negative, force_best):
    """Which true box every anchor answers for.

    Args:
        boxes: [N, 4] anchors, xyxy, pixels.
        truth: [G, 4] true boxes, padded; one without area matches nothing.
        valid: [G] bool, false for padding.
        crowd: [G] bool, a region of many objects: never a target, but an anchor at
            least half inside it is no negative either.
        positive: IoU from which an anchor is positive.
        negative: IoU below which an anchor is negative; between the two it is ignored.
        force_best: whether the anchor that overlaps a true box best (all of them in a
            tie) is positive at any IoU above 0. It still answers for the true box that
            it overlaps most itself.

    Returns:
        index: [N] int32 into truth, meaningful where the label is 1.
        label: [N] int32, 1 positive, 0 negative, -1 ignored.
    """
    boxes, truth = jax.lax.stop_gradient((boxes, truth))

    # One true box after the other: faster than whole [N, G] tables, and their memory.
    def compare(found, one):
        best, index, forced, in_crowd = found
        number, box, is_target, is_crowd = one
        overlap = jnp.where(is_target, box_ops.iou(boxes, box[None])[:, 0], 0)
        # Equal overlaps differ in their last bits: an anchor that holds a whole region
        # overlaps it by the ratio of the areas, wherever it stands.
        forced |= (overlap > 0) & (overlap >= overlap.max() * (1 - _TIE))
        share = box_ops.intersection_over_area(boxes, box[None])[:, 0]
        in_crowd |= is_crowd & (share >= 0.5)
        index = jnp.where(overlap > best, number, index)
        return (jnp.maximum(best, overlap), index, forced, in_crowd), None

    zeros = jnp.zeros_like(boxes[:, 0])
    start = zeros, zeros.astype(jnp.int32), zeros > 0, zeros > 0
    number = jnp.arange(len(truth), dtype=jnp.int32)
    each = number, truth, valid & ~crowd, valid & crowd
    (best, index, forced, in_crowd), _ = jax.lax.scan(compare, start, each)

    is_positive = (best > 0) & (best >= positive)
    if force_best:
        is_positive |= forced
    label = jnp.where(in_crowd | (best >= negative), -1, 0)
    return index, jnp.where(is_positive, 1, label).astype(jnp.int32)
