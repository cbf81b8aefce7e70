"""What `GroupedKeypoints` is trained on: heatmaps, and what tells instances apart.

Labelled keypoints that the picture shows count, visible or occluded. Nothing is defined
by instances alone: with none, or a single one, every term is finite.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from facekp_jax import grouping
from facekp_jax.losses.keypoints import smooth_l1
from facekp_jax.losses.terms import Term
from facekp_jax.skeletons import Skeleton

LEAST_SIZE = 1.0  # cells, of an instance
MARGIN = 4.0  # bandwidths between the appearances of two instances
CLEAR = 1.0  # cells between two centres whose order is certain


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
        for; `there` bool [B, P, K]; `cells` int [B, P, K], row * w + column of the
        nearest; `places` [B, P, K, 2], of these; `centres` [B, P, 2], the mean of the
        labelled keypoints; `sizes` [B, P], the root of the area.
    """
    height, width = outputs["heatmaps"].shape[-2:]
    stride = batch["image"].shape[1] / height
    points = batch["keypoints"][..., :2] / stride - 0.5
    limits = jnp.array([width, height])
    inside = ((points >= -0.5) & (points <= limits - 0.5)).all(-1)
    there = batch["valid"][..., None] & (batch["keypoints"][..., 2] > 0) & inside

    def along(count, centre):
        distance = (jnp.arange(count) - centre[..., None]) / sigma
        return jnp.exp(-(distance**2) / 2)

    columns = along(width, points[..., 0])
    rows = jnp.where(there[..., None], along(height, points[..., 1]), 0.0)
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
    number = jnp.maximum(there.sum(-1), 1)[..., None]
    centres = jnp.where(there[..., None], points, 0.0).sum(2) / number
    return {
        **batch,
        "heat": jnp.concatenate(of_types, axis=1),
        "heat_known": labelled & (batch["ignore"] == 0)[:, None],
        "there": there,
        "cells": row * width + column,
        "places": nearest,
        "centres": centres,
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
      mean appearance and its centre; gradients go through all iterations.
    """

    def shifted(outputs, batch):
        """Appearance and vote of each keypoint, in bandwidths, after the mean shift."""

        def one(cells, there, skeleton, *maps):
            moved = grouping.features(cells.reshape(-1), *maps, bandwidths)
            for kind in range(batch["labelled"].shape[1]):  # types are grouped apart
                weights = there & (skeleton == kind)[:, None]
                weights = weights.reshape(-1).astype(jnp.float32)
                moved = grouping.mean_shift(moved, weights, iterations)
            return moved.reshape(*cells.shape, -1)

        names = ("keypoint_embedding", "instance_embedding", "log_size")
        maps = (outputs[name] for name in names)
        of_batch = (batch[name] for name in ("cells", "there", "skeleton"))
        moved = jax.vmap(one)(*of_batch, *maps)
        return moved[..., :-3], moved[..., -3:-1]

    def auxiliary_keypoint_loss(outputs, batch):
        looks, _ = shifted(outputs, batch)
        own, _ = _means(_read(outputs["keypoint_embedding"], batch), batch["there"])
        own = own / _finite(bandwidths.ke)
        distance = jnp.square(looks - own[:, :, None]).sum(-1)
        return jnp.log1p(distance), batch["there"]

    def auxiliary_instance_loss(outputs, batch):
        _, votes = shifted(outputs, batch)
        votes = votes * _finite(bandwidths.sie)
        return _off_centre(votes, batch), batch["there"][..., None]

    return (
        Term("heatmap", _heatmap, heatmap),
        Term("pull", _pull(bandwidths), pull),
        Term("push", _push(bandwidths), push),
        Term("ordinal", _ordinal, ordinal),
        Term("instance", _instance, instance),
        Term("size", _size, size),
        Term("auxiliary_keypoint", auxiliary_keypoint_loss, auxiliary_keypoint),
        Term("auxiliary_instance", auxiliary_instance_loss, auxiliary_instance),
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
    return jnp.abs(logs - true), batch["there"]
