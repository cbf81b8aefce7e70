"""What `GroupedKeypoints` is trained on: heatmaps, and what tells instances apart.

Labelled keypoints that the picture shows count, visible or occluded, except in areas to
ignore. With no instance, or a single one, every term is finite.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from facekp_jax import grouping
from facekp_jax.losses.keypoints import smooth_l1
from facekp_jax.losses.terms import Term
from facekp_jax.skeletons import Skeleton

LEAST_SIZE = 1.0  # cells, of an instance
MARGIN = 4.0  # bandwidths between the appearances of two instances
CLEAR = 1.0  # cells between two centres whose order is certain
SIZE_BEND = 0.1  # of the logarithm of a size, below which its loss is quadratic

_TYPES_APART = 20.0  # bandwidths: the kernel of two target types is 0 in float32


def targets(
    outputs: Mapping[str, Any],
    batch: Mapping[str, Any],
    *,
    skeletons: Sequence[Skeleton],
    sigma: float = grouping.SIGMA,
) -> dict[str, jax.Array]:
    """Draws the true heatmaps and finds each instance's centre and size.

    Args:
        outputs: of `GroupedKeypoints`.
        batch: what `keypoint_crops.photo_sample` gives, stacked.
        skeletons: of the model.
        sigma: cells, of the Gaussians with peak 1.

    Returns:
        The batch and, with P instances of K keypoints, in cells (the centre of the
        first is at (0, 0)): `heat` [B, C, h, w], `heat_known` bool [B, C, h, w], false
        where areas are to be ignored and for types that the picture is not labelled
        for; `there` bool [B, P, K], the keypoints that count; `cells` int [B, P, K],
        row * w + column of the nearest; `places` [B, P, K, 2], of these; `centres`
        [B, P, 2], the mean of the labelled keypoints, ignored or not; `sizes` [B, P],
        the root of the area.
    """
    height, width = outputs["heatmaps"].shape[-2:]
    stride = batch["image"].shape[1] / height
    points = batch["keypoints"][..., :2] / stride - 0.5
    limits = jnp.array([width, height])
    inside = ((points >= -0.5) & (points <= limits - 0.5)).all(-1)
    shown = batch["valid"][..., None] & (batch["keypoints"][..., 2] > 0) & inside

    def along(count, centre):
        distance = (jnp.arange(count) - centre[..., None]) / sigma
        return jnp.exp(-(distance**2) / 2)

    columns = along(width, points[..., 0])
    rows = jnp.where(shown[..., None], along(height, points[..., 1]), 0.0)
    heat = rows[..., :, None] * columns[..., None, :]
    of_types, known = [], []
    for number, skeleton in enumerate(skeletons):
        count = len(skeleton.keypoints)
        mine = (batch["skeleton"] == number)[..., None, None, None]
        of_types.append(jnp.where(mine, heat[:, :, :count], 0.0).max(axis=1, initial=0))
        known.append(jnp.repeat(batch["labelled"][:, number, None], count, axis=1))
    labelled = jnp.concatenate(known, axis=1)[..., None, None]

    nearest = jnp.clip(jnp.round(points), 0, limits - 1)
    column, row = nearest[..., 0].astype(int), nearest[..., 1].astype(int)
    cells = row * width + column
    ignored = batch["ignore"].reshape(len(cells), -1)
    ignored = jnp.take_along_axis(ignored, cells.reshape(len(cells), -1), axis=1)
    return {
        **batch,
        "heat": jnp.concatenate(of_types, axis=1),
        "heat_known": labelled & (batch["ignore"] == 0)[:, None],
        "there": shown & (ignored.reshape(cells.shape) == 0),
        "cells": cells,
        "places": nearest,
        "centres": _means(points, shown)[0],
        "sizes": jnp.maximum(jnp.sqrt(batch["areas"]) / stride, LEAST_SIZE),
    }


def terms(
    *,
    heatmap: float,
    pull: float,
    push: float,
    ordinal: float,
    instance: float,
    size: float,
    auxiliary_keypoint: float,
    auxiliary_instance: float,
    bandwidths: grouping.Bandwidths,
    iterations: int = grouping.ITERATIONS,
) -> tuple[Term, ...]:
    """All terms with their weights; the last two are the second-class loss.

    - `heatmap`: quality focal loss (Li et al., Generalized focal loss, NeurIPS 2020),
      summed over a map: least where the probability is the Gaussian itself.
    - `pull` and `push` of the keypoint embedding (De Brabandere et al., 2017; Newell et
      al., NeurIPS 2017): keypoints of an instance to their mean, means of two instances
      MARGIN bandwidths apart.
    - `ordinal`: logistic loss of the order of each two instances' means on each map.
    - `instance` and `size`: where an instance's centre is seen from its keypoints, in
      shares of its size, and the logarithm of the size.
    - `auxiliary_keypoint` and `auxiliary_instance`: the fused feature values of all
      keypoints, after the mean shift that inference makes, against their instance's
      mean appearance and its centre; gradients go through all iterations. A class of
      features that the bandwidths leave out has no such loss.
    """

    def auxiliary(outputs, batch):
        types = batch["labelled"].shape[1]

        def one(cells, there, skeleton, *maps):
            values = grouping.features(cells.reshape(-1), *maps, bandwidths)
            kind = jax.nn.one_hot(jnp.repeat(skeleton, cells.shape[1]), types)
            values = jnp.concatenate([_TYPES_APART * kind, values], axis=-1)
            weights = there.reshape(-1).astype(jnp.float32)
            moved = grouping.mean_shift(values, weights, iterations)
            return moved[:, types:].reshape(*cells.shape, -1)

        names = ("keypoint_embedding", "instance_embedding", "log_size")
        maps = (outputs[name] for name in names)
        there = batch["there"]
        moved = jax.vmap(one)(batch["cells"], there, batch["skeleton"], *maps)

        own, _ = _means(_read(outputs["keypoint_embedding"], batch), there)
        # Fixed: of two instances that were taken for one, the mean appearances could
        # come nearer to what both moved to, which is what must not happen.
        own = jax.lax.stop_gradient(own) / bandwidths.ke
        distance = jnp.square(moved[..., :-3] - own[:, :, None]).sum(-1)
        votes = moved[..., -3:-1] * _finite(bandwidths.sie)
        losses = jnp.stack([jnp.log1p(distance), _off_centre(votes, batch).mean(-1)])
        weights = jnp.array([auxiliary_keypoint, auxiliary_instance])
        used = jnp.isfinite(jnp.array(bandwidths))
        each = (slice(None), None, None, None)
        return weights[each] * losses, used[each] & there

    return (
        Term("heatmap", _heatmap, heatmap),
        Term("pull", _pull(bandwidths), pull),
        Term("push", _push(bandwidths), push),
        Term("ordinal", _ordinal, ordinal),
        Term("instance", _instance, instance),
        Term("size", _size, size),
        Term(("auxiliary_keypoint", "auxiliary_instance"), auxiliary),
    )


def _finite(bandwidth):
    return bandwidth if np.isfinite(bandwidth) else 1.0


def _read(maps, batch):
    """[B, h, w, D] at the keypoints' cells: [B, P, K, D]."""
    flat = maps.reshape(maps.shape[0], -1, maps.shape[-1])
    cells = batch["cells"].reshape(maps.shape[0], -1, 1)
    read = jnp.take_along_axis(flat, cells, axis=1)
    return read.reshape(*batch["cells"].shape, maps.shape[-1])


def _means(values, there):
    """Mean [B, P, D] over each instance's keypoints, and which instances have one."""
    weights = there[..., None].astype(jnp.float32)
    count = weights.sum(2)
    return (weights * values).sum(2) / jnp.maximum(count, 1), count[..., 0] > 0


def _pairs(shown):
    """bool [B, P, P]: each two instances that are there, once."""
    upper = jnp.arange(shown.shape[1])[:, None] < jnp.arange(shown.shape[1])
    return shown[:, :, None] & shown[:, None] & upper


def _heatmap(outputs, batch):
    logits, heat = outputs["heatmaps"], batch["heat"]
    probability = jax.nn.sigmoid(logits)
    entropy = jax.nn.softplus(logits) - heat * logits
    losses = jnp.square(heat - probability) * entropy
    known = batch["heat_known"]
    return jnp.where(known, losses, 0.0).sum((-2, -1)), known.any((-2, -1))


def _pull(bandwidths):
    def pull(outputs, batch):
        values = _read(outputs["keypoint_embedding"], batch) / _finite(bandwidths.ke)
        means, _ = _means(values, batch["there"])
        distance = jnp.square(values - means[:, :, None]).sum(-1)
        return distance, batch["there"]

    return pull


def _push(bandwidths):
    def push(outputs, batch):
        values = _read(outputs["keypoint_embedding"], batch) / _finite(bandwidths.ke)
        means, shown = _means(values, batch["there"])
        square = jnp.square(means[:, :, None] - means[:, None]).sum(-1)
        # The root of 0 has no gradient: two instances that look alike would stay so.
        distance = jnp.sqrt(square + 1e-6)
        return jnp.square(jnp.maximum(MARGIN - distance, 0.0)), _pairs(shown)

    return push


def _ordinal(outputs, batch):
    means, shown = _means(_read(outputs["ordinal_maps"], batch), batch["there"])
    difference = means[:, :, None] - means[:, None]  # [B, P, P, 6]
    apart = batch["centres"][:, :, None] - batch["centres"][:, None]
    depths = batch.get("depths")
    if depths is None:
        depth = jnp.zeros_like(apart[..., :1])
    else:
        depth = depths[:, :, None, None] - depths[:, None, :, None]
    # Left-right, right-left, top-bottom, bottom-top, near-far, far-near.
    order = jnp.concatenate([apart, depth], axis=-1)
    order = jnp.stack([order, -order], axis=-1).reshape(*order.shape[:-1], -1)
    least = jnp.array([CLEAR, CLEAR, CLEAR, CLEAR, 0.0, 0.0])
    certain = _pairs(shown)[..., None] & (jnp.abs(order) > least)
    return jax.nn.softplus(-jnp.sign(order) * difference), certain


def _off_centre(votes, batch):
    """Loss [B, P, K, 2] of where keypoints see their instance's centre, cells."""
    centres = jnp.broadcast_to(batch["centres"][:, :, None], votes.shape)
    sizes = jnp.broadcast_to(batch["sizes"][:, :, None], votes.shape[:-1])
    return smooth_l1(votes, centres, sizes)


def _instance(outputs, batch):
    votes = batch["places"] + _read(outputs["instance_embedding"], batch)
    return _off_centre(votes, batch), batch["there"][..., None]


def _size(outputs, batch):
    logs = _read(outputs["log_size"][..., None], batch)[..., 0]
    true = jnp.log(batch["sizes"])[..., None]
    losses = optax.losses.huber_loss(logs - true, delta=SIZE_BEND) / SIZE_BEND
    return losses, batch["there"]
