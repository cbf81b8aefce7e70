"""Boxes on the device: overlap, deltas, suppression and pooling, all of fixed shape.

Boxes are `(x1, y1, x2, y2)` in continuous pixels. A box without area (padding, a box
clipped away, corners out of order) is always allowed: it overlaps nothing, and every
value and gradient stays finite.
"""

import math

import jax
import jax.numpy as jnp

# A side grows at most to 1000 pixels from an anchor of 16 (Faster R-CNN's usual limit).
_LARGEST_LOG_SCALE = 4.135
_SMALLEST_SIDE = 1e-3  # pixels; what `encode` takes a side of no length for


def area(boxes):
    """Area in square pixels, 0 where the corners are out of order.

    Args:
        boxes: [..., 4] xyxy, pixels.

    Returns:
        [...] square pixels.
    """
    sides = jnp.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    return sides[..., 0] * sides[..., 1]


def _intersection(a, b):
    a, b = a[..., :, None, :], b[..., None, :, :]
    width = jnp.minimum(a[..., 2], b[..., 2]) - jnp.maximum(a[..., 0], b[..., 0])
    height = jnp.minimum(a[..., 3], b[..., 3]) - jnp.maximum(a[..., 1], b[..., 1])
    return jnp.maximum(width, 0) * jnp.maximum(height, 0)


def _ratio(part, whole):
    positive = whole > 0
    # The inner where keeps the gradient of the unused quotient finite.
    return jnp.where(positive, part / jnp.where(positive, whole, 1), 0)


def iou(a, b):
    """Intersection over union of every box of `a` with every box of `b`.

    Args:
        a: [..., N, 4] xyxy, pixels.
        b: [..., M, 4] xyxy, pixels.

    Returns:
        [..., N, M] in [0, 1]; 0 where both boxes have no area.
    """
    intersection = _intersection(a, b)
    union = area(a)[..., :, None] + area(b)[..., None, :] - intersection
    return _ratio(intersection, union)


def intersection_over_area(a, b):
    """Share of every box of `a` that lies inside every box of `b`.

    Args:
        a: [..., N, 4] xyxy, pixels.
        b: [..., M, 4] xyxy, pixels.

    Returns:
        [..., N, M] in [0, 1]; 0 where the box of `a` has no area.
    """
    return _ratio(_intersection(a, b), area(a)[..., :, None])


def encode(boxes, anchors):
    """Deltas that turn anchors into boxes.

    Args:
        boxes: [..., 4] xyxy, pixels.
        anchors: [..., 4] xyxy, pixels.

    Returns:
        [..., 4] shift of the centre (x, y) in sides of the anchor, then the logarithm
        of the ratio of the sides (width, height). Finite for sides of no length too.

    Source: Ren et al., Faster R-CNN, NeurIPS 2015.
    """
    centres = (boxes[..., :2] + boxes[..., 2:]) / 2
    sides = jnp.maximum(boxes[..., 2:] - boxes[..., :2], _SMALLEST_SIDE)
    anchor_centres = (anchors[..., :2] + anchors[..., 2:]) / 2
    anchor_sides = jnp.maximum(anchors[..., 2:] - anchors[..., :2], _SMALLEST_SIDE)
    shift = (centres - anchor_centres) / anchor_sides
    return jnp.concatenate([shift, jnp.log(sides / anchor_sides)], axis=-1)


def decode(deltas, anchors):
    """Boxes from deltas, the inverse of `encode`.

    Args:
        deltas: [..., 4] as `encode` returns them. Log-scales are clipped from above, so
            that an untrained network cannot overflow.
        anchors: [..., 4] xyxy, pixels.

    Returns:
        [..., 4] xyxy, pixels, not clipped to the image.
    """
    anchor_centres = (anchors[..., :2] + anchors[..., 2:]) / 2
    anchor_sides = anchors[..., 2:] - anchors[..., :2]
    centres = anchor_centres + deltas[..., :2] * anchor_sides
    scales = jnp.exp(jnp.minimum(deltas[..., 2:], _LARGEST_LOG_SCALE))
    half = anchor_sides * scales / 2
    return jnp.concatenate([centres - half, centres + half], axis=-1)


def clip(boxes, height, width):
    """Boxes cut to the image; one that lies outside loses its area.

    Args:
        boxes: [..., 4] xyxy, pixels.
        height: of the image, pixels.
        width: of the image, pixels.

    Returns:
        [..., 4] xyxy, pixels.
    """
    return jnp.clip(boxes, 0, jnp.array([width, height, width, height], boxes.dtype))


def nms(boxes, scores, valid, *, iou_threshold, keep):
    """Greedy non-maximum suppression of one image; `vmap` it over a batch.

    The best box left is taken and those that overlap it are dropped, `keep` times: a
    fixed number of steps, so that no device waits for another's condition.

    Args:
        boxes: [N, 4] xyxy, pixels, in any order.
        scores: [N]; equal scores are taken in order of their index, NaN and -inf never.
        valid: [N] bool.
        iou_threshold: a box is dropped if it overlaps a better one by more than this.
        keep: number of boxes returned.

    Returns:
        indices: [keep] int32 by falling score, 0 where not valid.
        valid: [keep] bool.
    """
    boxes, scores = jax.lax.stop_gradient((boxes, scores))

    def take_best(alive, _):
        best = jnp.argmax(jnp.where(alive, scores, -jnp.inf)).astype(jnp.int32)
        found = alive[best]
        overlap = iou(boxes[best][None], boxes)[0]
        # A box without area does not overlap even itself.
        alive &= (overlap <= iou_threshold) & (jnp.arange(len(scores)) != best)
        return alive, (jnp.where(found, best, 0), found)

    alive = valid & (scores > -jnp.inf)
    _, kept = jax.lax.scan(take_best, alive, length=keep)
    return kept


def _mean_weights(start, stop, bins, cells):
    """Weight of every cell in the exact mean of the interpolated map over each bin.

    A cell's weight at a position is `1 - distance` to its centre, 0 beyond 1; the first
    and the last cell keep weight 1 outside the map. A bin is cut at these limits, its
    parts are averaged and added up by their lengths.

    Args:
        start: [...] in cells, the centre of cell 0 is 0.
        stop: [...] at least start.
        bins: number of equal bins between start and stop.
        cells: number of cells of the map.

    Returns:
        [..., bins, cells], each bin's weights sum to 1.
    """
    edges = jnp.linspace(start, stop, bins + 1, axis=-1)[..., None]
    index = jnp.arange(cells)
    low = jnp.where(index == 0, 0.0, -1.0)
    high = jnp.where(index == cells - 1, 0.0, 1.0)
    position = edges - index
    inside = jnp.clip(position, low, high)
    before = jnp.diff(jnp.minimum(position - low, 0), axis=-2)
    within = jnp.diff(inside, axis=-2)
    after = jnp.diff(jnp.maximum(position - high, 0), axis=-2)

    # The mean of |t| over [a, b] is |a + b| / 2 on one side of 0: exact for a bin of
    # any length, even none, where a difference of integrals loses all its digits.
    a, b = inside[..., :-1, :], inside[..., 1:, :]
    crosses = a * b < 0
    across = (a * a + b * b) / jnp.where(crosses, 2 * (b - a), 1)
    at_inside = 1 - jnp.where(crosses, across, jnp.abs(a + b) / 2)

    length = before + within + after
    total = before * (1 + low) + within * at_inside + after * (1 - high)
    return jnp.where(length > 0, total / jnp.where(length > 0, length, 1), at_inside)


def _pool(rows, columns, features):
    # [B, R, p, H], [B, R, p, W], [B, H, W, C] -> [B, R, p, p, C]
    pooled = jnp.einsum("brih,bhwc->briwc", rows, features)
    # Repeated for every row, the second product needs no transposed copy of `pooled`.
    columns = jnp.broadcast_to(
        columns[:, :, None], (*pooled.shape[:3], *columns.shape[2:])
    )
    return columns @ pooled


def _pool_in_turn(rows, columns, features):
    """`_pool`, image after image: the first product then stays in the cache."""
    batch = features.shape[0]
    # One image of every device at a time: a split batch stays where it is.
    together = math.gcd(batch, jax.device_count()) if isinstance(batch, int) else 1

    def split(x):
        return x.reshape(together, batch // together, *x.shape[1:]).swapaxes(0, 1)

    pooled = jax.lax.map(
        lambda turn: _pool(*turn), jax.tree.map(split, (rows, columns, features))
    )
    return pooled.swapaxes(0, 1).reshape(batch, *pooled.shape[2:])


def roi_align(features, boxes, *, size, stride):
    """Features of every box on a grid of `size` x `size` bins.

    Each bin holds the exact mean, over its area, of the bilinearly interpolated map; a
    large box therefore does not alias and there is no sampling ratio. Cell (i, j) has
    its centre at ((j + 0.5) * stride, (i + 0.5) * stride) pixels. Outside the centres
    of the border cells the map continues with their values. A box without area gives
    the interpolated value at its point. Boxes get no gradient.

    Args:
        features: [B, H, W, C].
        boxes: [B, R, 4] xyxy, pixels of the image.
        size: bins along each side.
        stride: pixels of the image per cell of the map.

    Returns:
        [B, R, size, size, C], the dtype of the features.

    Source: Jiang et al., Precise RoI Pooling, ECCV 2018.
    """
    height, width = features.shape[1:3]
    start = jax.lax.stop_gradient(boxes[..., :2])
    stop = jnp.maximum(start, jax.lax.stop_gradient(boxes[..., 2:]))
    start, stop = start / stride - 0.5, stop / stride - 0.5
    rows = _mean_weights(start[..., 1], stop[..., 1], size, height)
    columns = _mean_weights(start[..., 0], stop[..., 0], size, width)
    rows, columns = rows.astype(features.dtype), columns.astype(features.dtype)
    return jax.lax.platform_dependent(
        rows, columns, features, cpu=_pool_in_turn, default=_pool
    )
