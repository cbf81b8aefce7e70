"""From dense maps to instances: peaks, their feature values, clusters, assignment.

Points are (x, y) in pixels of the network's input; cell (i, j) of a map covers those
from j to j + 1 strides in x and from i to i + 1 in y. Offsets, votes and sizes on the
maps are in cells, with the centre of the first cell at (0, 0). All shapes are fixed: a
candidate, a keypoint or an instance whose score is 0 is none.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from facekp_jax.skeletons import Skeleton

SIGMA = 1.0  # cells, of the Gaussians with peak 1 that the heatmaps are learnt from
LEAST = 0.1  # probability of a candidate
ITERATIONS = 8  # of the mean shift

_APART = 1.5  # cells, the least between two candidates of one keypoint
_BEYOND = 0.1  # cells by which a top may seem to lie outside its cell
_DEVIATION = 0.03  # of the logarithm of a curvature from that of the Gaussians
_CENTRE = 4.0  # trust in the cells around, if that in those on one side is 1
_PAIR = 0.1  # trust in two cells at the border
_DARKEST = 1e-6  # probability; the logarithms of lower ones tell nothing
_SIZES = (1.0, 1000.0)  # cells, of instances
_MEMBER = 0.5  # least affinity to the mode of an instance


class Bandwidths(NamedTuple):
    """Standard deviations of the kernel; infinity leaves a feature class out."""

    ke: float = 1.0  # in units of the keypoint embedding
    sie: float = 0.2  # of the centre vote, as a share of the instance's size


class Peaks(NamedTuple):
    """Candidates of each keypoint, best first."""

    points: jax.Array  # [C, M, 2] pixels
    scores: jax.Array  # [C, M]
    cells: jax.Array  # [C, M] int, row * w + column of the cell that the point is in


class Groups(NamedTuple):
    """Instances; each has at most one candidate of a keypoint, none is in two."""

    points: jax.Array  # [P, K, 2] pixels
    scores: jax.Array  # [P, K]
    valid: jax.Array  # [P] bool
    score: jax.Array  # [P] mean over the keypoints of the type, found or not
    skeleton: jax.Array  # [P] int, number of the target type


def peaks(
    probabilities: jax.Array,
    candidates: int,
    *,
    stride: float = 4,
    sigma: float = SIGMA,
    least: float = LEAST,
) -> Peaks:
    """The most probable places of each keypoint.

    Where two points of a keypoint are 2 cells apart, one of them may have no cell that
    is higher than those around it. So a cell is a candidate if it is almost as high as
    they are and contains the top that parabolas through the logarithms show. Only in
    the outer half of the map's outermost cells may another point, 2 cells inwards, hide
    or shift one: no cell there is the point's alone.

    Args:
        probabilities: [C, h, w], of each keypoint at each cell. NaN is none.
        candidates: M, the most of one keypoint.
        stride: pixels per cell.
        sigma: cells, of the Gaussians that the network learns.
        least: probability of a candidate.

    Raises:
        ValueError: if the maps are smaller than 3 x 3 cells.
    """
    channels, height, width = probabilities.shape
    if min(height, width) < 3:
        raise ValueError(f"maps of {height} x {width} cells; a peak needs 3 x 3")
    maps = jnp.asarray(probabilities, jnp.float32)
    maps = jnp.where(maps > _DARKEST, jnp.minimum(maps, 1), _DARKEST)
    # A top is at most sqrt(1/2) from the centre of its cell, and another may be at that
    # of the next.
    share = 0.99 * math.exp(-0.25 / sigma**2)
    likely = (maps >= least) & (maps >= share * _highest_around(maps))
    maps = maps.reshape(channels, -1)
    room = min(4 * candidates, height * width)  # a top may have four such cells
    heights, cells = jax.lax.top_k(jnp.where(likely.reshape(maps.shape), maps, 0), room)
    row, column = cells // width, cells % width

    position = jnp.stack([column, row])
    steps = jnp.arange(-2, 3)
    along = position[..., None] + steps
    inside = (along >= 0) & (along < jnp.array([width, height])[:, None, None, None])
    step = jnp.array([1, width])[:, None, None, None] * steps
    around = cells[..., None] + jnp.where(inside, step, 0)
    levels = jnp.log(maps[jnp.arange(channels)[:, None, None], around])
    offset, rise = _tops(levels, inside, sigma)
    here = (jnp.abs(offset) <= 0.5 + _BEYOND).all(0)
    scores = jnp.where(here, jnp.minimum(heights * jnp.exp(rise), 1), 0)
    x, y = position + offset

    scores = jnp.where(_near_better(x, y, scores), 0, scores)
    scores, chosen = jax.lax.top_k(scores, min(candidates, room))
    x, y = (
        jnp.where(scores > 0, jnp.take_along_axis(values, chosen, axis=1), 0)
        for values in (x, y)
    )
    nearest_row = jnp.clip(jnp.round(y), 0, height - 1).astype(int)
    nearest_column = jnp.clip(jnp.round(x), 0, width - 1).astype(int)
    points = (jnp.stack([x, y], axis=-1) + 0.5) * stride
    found = Peaks(
        jnp.where(scores[..., None] > 0, points, 0),
        scores,
        nearest_row * width + nearest_column,
    )
    missing = candidates - scores.shape[1]

    def fill(values):
        return jnp.pad(values, ((0, 0), (0, missing)) + ((0, 0),) * (values.ndim - 2))

    return jax.tree.map(fill, found)


def _highest_around(maps):
    """The highest of each 3 x 3 cells of [C, h, w]; much faster than a window's."""
    for axis in (1, 2):
        size = maps.shape[axis]
        padding = [(0, 0)] * 3
        padding[axis] = (1, 1)
        padded = jnp.pad(maps, padding)
        left, right = (
            jax.lax.slice_in_dim(padded, k, k + size, axis=axis) for k in (0, 2)
        )
        maps = jnp.maximum(jnp.maximum(left, right), maps)
    return maps


def _tops(levels, inside, sigma):
    """Top of the parabolas through the cells around a candidate, in x and in y.

    Those through three cells to one side of it count as much as the one around it where
    only their curvature is that of the Gaussians: on the other side is another peak,
    which can but make it flatter, or the border. At the border two cells with the
    curvature of the other axis help out.

    Args:
        levels: [2, ..., 5] logarithms of the probabilities in x and in y.
        inside: bool [2, ..., 5], whether the cell is on the map.
        sigma: cells, of the Gaussians.

    Returns:
        [2, ...] cells from the middle to the top; far away if there is none.
        [...] by how much the logarithm is higher there.
    """
    slope = levels[..., 1:] - levels[..., :-1]
    curvature = slope[..., :-1] - slope[..., 1:]
    curved = (curvature > 1e-3) & inside[..., :3] & inside[..., 2:]
    curvature = jnp.where(curved, curvature, 1)
    offset = jnp.arange(-1, 2) + (slope[..., :-1] + slope[..., 1:]) / 2 / curvature
    deviation = jnp.log(curvature * sigma**2) / _DEVIATION
    trust = jnp.array([1, _CENTRE, 1]) / (1 + deviation**2)
    trust = jnp.where(curved, trust, 0)
    total = trust.sum(-1)
    mean = (trust * curvature).sum(-1) / jnp.where(total > 0, total, 1)
    mean = jnp.where(total > 0, mean, sigma**-2)

    # Of the first two cells, or the last two.
    pair = inside[..., 1:4:2] & ~(inside[..., 0:5:4] & inside[..., 3:0:-2])
    pair &= (total > 0)[::-1, ..., None]
    pair_offset = jnp.array([-0.5, 0.5]) + slope[..., 1:3] / mean[::-1, ..., None]
    trust = jnp.concatenate([trust, jnp.where(pair, _PAIR, 0)], axis=-1)
    offset = jnp.concatenate([offset, pair_offset], axis=-1)
    total = trust.sum(-1)
    trust /= jnp.where(total > 0, total, 1)[..., None]
    offset = (trust * jnp.clip(offset, -2, 2)).sum(-1)
    rise = jnp.minimum(mean, sigma**-2) * offset**2 / 2
    return jnp.where(total > 0, offset, 9), rise.sum(0)


def _near_better(x, y, scores):
    """Whether another candidate of the keypoint is near and better; [C, M]."""
    distance = (x[:, :, None] - x[:, None]) ** 2 + (y[:, :, None] - y[:, None]) ** 2
    order = jnp.arange(scores.shape[1])
    one, other = scores[:, :, None], scores[:, None]
    better = (other > one) | ((other == one) & (order < order[:, None]) & (other > 0))
    return (better & (distance < _APART**2)).any(-1)


def fuse(
    keypoint_embedding: jax.Array,
    vote: jax.Array,
    log_size: jax.Array,
    bandwidths: Bandwidths,
) -> jax.Array:
    """Feature values of keypoints: appearance and place, each by its bandwidth.

    A vote scatters in proportion to the size of the instance, so the size belongs to
    the feature value: `affinity` measures votes by the sizes of both keypoints.

    Args:
        keypoint_embedding: [..., E].
        vote: [..., 2] where the keypoint sees its instance's centre, (x, y) in cells.
        log_size: [...] logarithm of the instance's size in cells.
        bandwidths: of both.

    Returns:
        [..., E + 3], the vote at -3 and -2, the size at -1.
    """
    return jnp.concatenate(
        [
            keypoint_embedding.astype(jnp.float32) / bandwidths.ke,
            vote.astype(jnp.float32) / bandwidths.sie,
            log_size.astype(jnp.float32)[..., None],
        ],
        axis=-1,
    )


def features(
    cells: jax.Array,
    keypoint_embedding: jax.Array,
    instance_embedding: jax.Array,
    log_size: jax.Array,
    bandwidths: Bandwidths,
) -> jax.Array:
    """Feature values that the maps have for keypoints in given cells.

    Args:
        cells: int [...], row * w + column.
        keypoint_embedding: [h, w, E].
        instance_embedding: [h, w, 2] from each cell to the centre of its instance,
            (x, y) in cells.
        log_size: [h, w] logarithm of that instance's size in cells.
        bandwidths: of both embeddings.

    Returns:
        [..., E + 3], see `fuse`.
    """
    row, column = cells // log_size.shape[1], cells % log_size.shape[1]
    vote = jnp.stack([column, row], axis=-1) + instance_embedding[row, column]
    return fuse(
        keypoint_embedding[row, column], vote, log_size[row, column], bandwidths
    )


def affinity(some: jax.Array, others: jax.Array) -> jax.Array:
    """Gaussian kernel of the feature values of `fuse`: 1 alike, 0 far apart.

    The distance of two votes is measured by the geometric mean of their sizes: a large
    instance's scattered votes are near each other, a small one's in the midst of them
    are not near to those, and the kernel is symmetric.

    Args:
        some: [N, F].
        others: [M, F].

    Returns:
        [N, M].
    """

    origin = jax.lax.stop_gradient(others[:, -3:-1].mean(0))  # spares digits

    def parts(values):
        looks, vote = values[:, :-3], values[:, -3:-1] - origin
        size = jnp.clip(values[:, -1:], *map(math.log, _SIZES))
        share = jnp.exp(-size)
        place = vote * share
        return (
            jnp.concatenate([looks, place], axis=-1),
            (looks**2).sum(-1, keepdims=True) / -2,
            (place * vote).sum(-1, keepdims=True) / -2,
            share,
        )

    # Of a - b and the sizes s and t: ab - aa/2 - bb/2, and of votes, over st,
    # (a/s)(b/t) - (aa/s)(1/t)/2 - (1/s)(bb/t)/2: one product of matrices.
    product, looks, place, share = parts(some)
    left = jnp.concatenate([product, looks, jnp.ones_like(looks), place, share], -1)
    product, looks, place, share = parts(others)
    right = jnp.concatenate([product, jnp.ones_like(looks), looks, share, place], -1)
    exponents = jnp.matmul(left, right.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.exp(jnp.minimum(exponents, 0))


def mean_shift(
    values: jax.Array, weights: jax.Array, iterations: int = ITERATIONS
) -> jax.Array:
    """Moves feature values to the modes of their density.

    In each iteration all values move at once to the mean of those around them, as the
    kernel sees them (blurring mean shift): a cluster shrinks to a point in a few steps.

    Args:
        values: [N, F] feature values of `fuse`.
        weights: [N], not negative. One of weight 0 neither moves nor draws others.
        iterations: how many; gradients flow through all of them.

    Returns:
        [N, F].

    Source: Fukunaga and Hostetler, IEEE Trans. Information Theory 1975; unrolled in a
    network: Kong and Fowlkes, Recurrent pixel embedding for instance grouping, CVPR
    2018.
    """
    there = (weights > 0)[:, None]

    def move(_, moved):
        weighted = jnp.concatenate([moved, jnp.ones_like(moved[:, :1])], axis=-1)
        sums = jnp.matmul(
            affinity(moved, moved),
            weighted * weights[:, None],
            precision=jax.lax.Precision.HIGHEST,
        )
        return jnp.where(there, sums[:, :-1] / jnp.where(there, sums[:, -1:], 1), moved)

    moved = jax.lax.fori_loop(0, iterations, move, jnp.where(there, values, 0))
    return jnp.where(there, moved, values)


def assign(found: Peaks, modes: jax.Array, instances: int, skeleton: int = 0) -> Groups:
    """Instances of one target type, the one with the most evidence first.

    The free candidate with the most free evidence around its mode founds an instance,
    which takes of each keypoint the best free candidate at that mode.

    Args:
        found: the candidates of the type's K keypoints.
        modes: [K, M, F] feature values after `mean_shift`.
        instances: P, the most.
        skeleton: number of the type.
    """
    keypoints, candidates = found.scores.shape
    modes = jnp.where(found.scores[..., None] > 0, modes, 0)
    modes = modes.reshape(keypoints * candidates, -1)
    near = affinity(modes, modes)
    near = jnp.where(near >= _MEMBER, near, 0)
    first = jnp.arange(keypoints) * candidates

    def found_one(state, _):
        free, evidence = state  # [K * M] scores, 0 where taken
        founder = jnp.argmax(jnp.where(free > 0, evidence, -1))
        close = (near[founder] * free).reshape(keypoints, candidates)
        member = first + jnp.argmax(close, axis=-1)
        score = jnp.where(close.max(-1) > 0, free[member], 0)
        evidence -= score @ near[member]
        free = free.at[member].set(jnp.where(score > 0, 0, free[member]))
        return (free, evidence), (member, score)

    free = found.scores.reshape(-1)
    evidence = jnp.matmul(near, free, precision=jax.lax.Precision.HIGHEST)
    _, (member, scores) = jax.lax.scan(found_one, (free, evidence), length=instances)
    points = found.points.reshape(-1, 2)[member]
    return Groups(
        points=jnp.where(scores[..., None] > 0, points, 0),
        scores=scores,
        valid=scores.any(-1),
        score=scores.mean(-1),
        skeleton=jnp.full(instances, skeleton),
    )


def group(
    probabilities: jax.Array,
    keypoint_embedding: jax.Array,
    instance_embedding: jax.Array,
    log_size: jax.Array,
    skeletons: Sequence[Skeleton],
    *,
    instances: int,
    candidates: int,
    bandwidths: Bandwidths | None = None,
    iterations: int = ITERATIONS,
    stride: float = 4,
    sigma: float = SIGMA,
    least: float = LEAST,
) -> Groups:
    """The instances on one picture, of all target types, best first.

    Args:
        probabilities: [C, h, w], of the keypoints of all types, one after another.
        keypoint_embedding: [h, w, E].
        instance_embedding: [h, w, 2] from each cell to the centre of its instance,
            (x, y) in cells.
        log_size: [h, w] logarithm of that instance's size in cells.
        skeletons: the types.
        instances: P, the most of all types together.
        candidates: M, the most of one keypoint.
        bandwidths: of both embeddings.
        iterations: of the mean shift.
        stride: pixels per cell.
        sigma: cells, of the Gaussians that the network learns.
        least: probability of a candidate.

    Returns:
        Groups with the K of the largest type; smaller ones have their keypoints first.

    Raises:
        ValueError: if the channels are not the keypoints of the skeletons.
    """
    counts = [len(skeleton.keypoints) for skeleton in skeletons]
    if sum(counts) != len(probabilities):
        names = ", ".join(skeleton.name for skeleton in skeletons)
        raise ValueError(
            f"{len(probabilities)} heatmaps for the {sum(counts)} keypoints of {names}"
        )
    found = peaks(probabilities, candidates, stride=stride, sigma=sigma, least=least)
    values = features(
        found.cells,
        keypoint_embedding,
        instance_embedding,
        log_size,
        bandwidths or Bandwidths(),
    )
    groups, end = [], 0
    for number, count in enumerate(counts):
        start, end = end, end + count
        own, part = jax.tree.map(lambda a, s=start, e=end: a[s:e], (found, values))
        modes = mean_shift(
            part.reshape(-1, part.shape[-1]), own.scores.reshape(-1), iterations
        ).reshape(part.shape)
        groups.append(_pad(assign(own, modes, instances, number), max(counts) - count))
    groups = jax.tree.map(lambda *parts: jnp.concatenate(parts), *groups)
    _, best = jax.lax.top_k(groups.score, instances)
    return jax.tree.map(lambda a: a[best], groups)


def _pad(groups, missing):
    return groups._replace(
        points=jnp.pad(groups.points, ((0, 0), (0, missing), (0, 0))),
        scores=jnp.pad(groups.scores, ((0, 0), (0, missing))),
    )
