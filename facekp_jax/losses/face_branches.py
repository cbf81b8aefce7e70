"""What `FaceBranches` is trained on, branch by branch.

An image says which branches it was labelled for. Where a branch is unknown, nothing of
the image reaches that branch: no positive, no negative, no normaliser.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from facekp_jax import anchors, boxes
from facekp_jax.losses.detection import dice, giou, sigmoid_focal
from facekp_jax.losses.terms import Term

ANCHOR_POSITIVE, ANCHOR_NEGATIVE = 0.5, 0.4  # IoU with a true box
CANDIDATE_POSITIVE, CANDIDATE_NEGATIVE = 0.5, 0.4


def targets(
    outputs: Mapping[str, Any], batch: Mapping[str, Any]
) -> dict[str, jax.Array]:
    """Matches anchors and candidate boxes to each branch's true boxes.

    Args:
        outputs: of `FaceBranches` in training.
        batch: `boxes` [B, S, G, 4], `valid` and `crowd` bool [B, S, G], `labelled`
            bool [B, S], `mask_targets` uint8 [B, S, M, 28, 28] with `mask_valid` bool
            [B, S, M], besides what the model reads.

    Returns:
        The batch, and for anchors (`anchor_`, N of them) and candidate boxes
        (`candidate_`, R): `label` int32 [B, S, N or R] (1 region, 0 none, -1 left out)
        and `index`, of the same shape, of the true box.
    """

    def match_all(found, found_valid, **limits):  # [B, N, 4], [B, N]
        def one(found, found_valid, truth, valid, crowd, labelled):
            index, label = anchors.match(found, truth, valid, crowd, **limits)
            return index, jnp.where(labelled & found_valid, label, -1)

        over_branches = jax.vmap(one, in_axes=(None, None, 0, 0, 0, 0))
        return jax.vmap(over_branches)(
            found,
            found_valid,
            batch["boxes"],
            batch["valid"],
            batch["crowd"],
            batch["labelled"],
        )

    grid = outputs["anchors"]
    size = batch["image"].shape[0]
    anchor_index, anchor_label = match_all(
        jnp.broadcast_to(grid, (size, *grid.shape)),
        jnp.ones((size, grid.shape[0]), bool),
        positive=ANCHOR_POSITIVE,
        negative=ANCHOR_NEGATIVE,
        force_best=True,
    )
    candidate_index, candidate_label = match_all(
        outputs["candidates"],
        outputs["candidates_valid"],
        positive=CANDIDATE_POSITIVE,
        negative=CANDIDATE_NEGATIVE,
        force_best=False,
    )
    return dict(batch) | {
        "anchor_index": anchor_index,
        "anchor_label": anchor_label,
        "candidate_index": candidate_index,
        "candidate_label": candidate_label,
    }


def terms(
    branches: tuple[str, ...],
    *,
    proposal_weight: float = 1.0,
    first_weight: float = 1.0,
    second_weight: float = 1.0,
) -> tuple[Term, ...]:
    """Proposal loss, and each branch's first-class and second-class loss.

    The terms are functions of all branches at once: values and mask [S, B, ...].
    """
    proposals = ("proposals",) * len(branches)
    first = tuple(f"{name}/first" for name in branches)
    second = tuple(f"{name}/second" for name in branches)
    share = proposal_weight / len(branches)
    return (
        Term(proposals, objectness, share),
        Term(proposals, anchor_boxes, share),
        Term(first, scores, first_weight),
        Term(first, refined_boxes, first_weight),
        Term(second, mask_pixels, second_weight),
        Term(second, mask_overlap, second_weight),
    )


def objectness(outputs, batch):
    """Focal loss of the anchors, for each image per true anchor: [S, B]."""
    logits = jnp.moveaxis(outputs["proposal_logits"], -1, 0)
    label = jnp.swapaxes(batch["anchor_label"], 0, 1)
    loss = sigmoid_focal(logits, (label == 1).astype(logits.dtype))
    positives = jnp.sum(label == 1, axis=-1)
    values = jnp.sum(jnp.where(label >= 0, loss, 0.0), axis=-1)
    return values / jnp.maximum(positives, 1), batch["labelled"].T


def anchor_boxes(outputs, batch):
    """GIoU of the moved anchors that match a region: [S, B, N]."""
    return _box_loss(
        outputs["proposal_deltas"],
        outputs["anchors"],
        batch["boxes"],
        batch["anchor_index"],
        batch["anchor_label"],
    )


def scores(outputs, batch):
    """Is there a region of the kind in the candidate box? Cross-entropy: [S, B, R]."""
    logits = jnp.moveaxis(outputs["score_logits"], -1, 0)
    label = jnp.swapaxes(batch["candidate_label"], 0, 1)
    loss = optax.sigmoid_binary_cross_entropy(logits, (label == 1).astype(logits.dtype))
    return loss, label >= 0


def refined_boxes(outputs, batch):
    """GIoU of the refined candidate boxes that hold a region: [S, B, R]."""
    return _box_loss(
        outputs["deltas"],
        outputs["candidates"],
        batch["boxes"],
        batch["candidate_index"],
        batch["candidate_label"],
    )


def mask_pixels(outputs, batch):
    """Cross-entropy of the masks' cells: [S, B, M, 28, 28]."""
    logits, coverage, valid = _masks(outputs, batch)
    loss = optax.sigmoid_binary_cross_entropy(logits, coverage)
    return loss, valid[..., None, None]


def mask_overlap(outputs, batch):
    """Dice loss of the masks: [S, B, M]."""
    logits, coverage, valid = _masks(outputs, batch)
    return dice(logits, coverage), valid


def _box_loss(deltas, start, truth, index, label):
    moved = boxes.decode(jnp.moveaxis(deltas, -2, 0), start)  # [S, B, N, 4]
    target = jnp.take_along_axis(truth, index[..., None], axis=2)
    return giou(moved, jnp.swapaxes(target, 0, 1)), jnp.swapaxes(label == 1, 0, 1)


def _masks(outputs, batch):
    names = "mask_targets", "mask_valid", "labelled"
    coverage, valid, labelled = (jnp.swapaxes(batch[name], 0, 1) for name in names)
    logits = jnp.swapaxes(outputs["mask_logits"], 0, 1)
    return logits, coverage.astype(jnp.float32) / 255.0, valid & labelled[..., None]
