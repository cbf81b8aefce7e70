"""Skin regions of a face: proposals, then one prediction branch per kind.

A first network (backbone and feature pyramid) reads the normalised face image. A second
network proposes candidate boxes, and every candidate box goes into every branch, which
gives a score, a refined box and a mask. Two stages after Ren et al. (NeurIPS 2015) and
He et al. (ICCV 2017); what differs is that objectness, deltas and heads belong to the
branch, so that a photo can be labelled for some branches only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from facekp_jax import anchors, boxes
from facekp_jax.models.backbones import FeaturePyramid, SmallBackbone, standardise
from facekp_jax.models.layers import Conv, Upsample

STRIDES = (4, 8, 16)  # pixels of the face image, of the levels that carry anchors
PRIOR = 0.02  # probability of an object before anything is learned
BOX_CROP = 7  # cells a side
MASK_CROP = 14  # cells a side; masks have twice as many


class ProposalHead(nn.Module):
    """Objectness and box deltas of each branch at every anchor of one level."""

    features: int
    ratios: int  # anchors at each position
    branches: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """[B, H, W, C] -> logits [B, H*W*A, S] and deltas [B, H*W*A, S, 4]."""
        x = nn.relu(Conv(self.features, 3, name="conv")(x))
        # Nearly zero: at first nothing is an object and no anchor is moved.
        logits = nn.Dense(
            self.ratios * self.branches,
            kernel_init=nn.initializers.normal(0.01),
            bias_init=nn.initializers.constant(np.log(PRIOR / (1 - PRIOR))),
            name="objectness",
        )(x)
        deltas = nn.Dense(
            self.ratios * self.branches * 4,
            kernel_init=nn.initializers.normal(0.01),
            name="deltas",
        )(x)
        batch = x.shape[0]
        return (
            logits.reshape(batch, -1, self.branches),
            deltas.reshape(batch, -1, self.branches, 4),
        )


class BoxHead(nn.Module):
    """Score and box deltas of one branch for one candidate box."""

    features: int

    @nn.compact
    def __call__(self, crop: jax.Array) -> tuple[jax.Array, jax.Array]:
        """[7, 7, C] -> score logit [] and deltas [4]."""
        # Thousands of inputs, none negative: without the normalisation one step of Adam
        # can switch all of a rare branch's units off for good.
        x = nn.Dense(self.features, name="hidden")(crop.reshape(-1))
        x = nn.relu(nn.LayerNorm(name="norm")(x))
        score = nn.Dense(
            1,
            kernel_init=nn.initializers.normal(0.01),
            bias_init=nn.initializers.constant(np.log(PRIOR / (1 - PRIOR))),
            name="score",
        )(x)
        deltas = nn.Dense(4, kernel_init=nn.initializers.normal(0.01), name="deltas")(x)
        return score[0], deltas


class MaskHead(nn.Module):
    """Mask logits of one branch for one candidate box."""

    features: int

    @nn.compact
    def __call__(self, crop: jax.Array) -> jax.Array:
        """[14, 14, C] -> [28, 28] mask logits."""
        x = nn.relu(Conv(self.features, 1, name="reduce")(crop[None]))
        x = Conv(self.features, 3, name="conv")(x)
        x = nn.relu(nn.LayerNorm(name="norm")(x))
        x = nn.relu(Upsample(self.features // 2, name="upsample")(x))
        # Until a branch has seen a mask, its masks are their whole boxes.
        logits = nn.Dense(
            1,
            kernel_init=nn.initializers.normal(0.01),
            bias_init=nn.initializers.constant(1.0),
            name="logits",
        )
        return logits(x)[0, ..., 0]


def over_boxes(head: type[nn.Module]) -> type[nn.Module]:
    """Maps a head for one candidate box over the leading axis, weights shared."""
    return nn.vmap(head, variable_axes={"params": None}, split_rngs={"params": False})


class Branch(nn.Module):
    """What one kind of region owns: a box head and a mask head."""

    box_features: int
    mask_features: int

    def setup(self):
        self.box = over_boxes(BoxHead)(self.box_features)
        self.mask = over_boxes(MaskHead)(self.mask_features)

    def classify(self, crops: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Crops [B, R, 7, 7, C] -> score logits [B, R] and deltas [B, R, 4]."""
        score, deltas = self.box(crops.reshape(-1, *crops.shape[2:]))
        return score.reshape(crops.shape[:2]), deltas.reshape(*crops.shape[:2], 4)

    def segment(self, crops: jax.Array) -> jax.Array:
        """Crops [B, M, 14, 14, C] -> mask logits [B, M, 28, 28]."""
        logits = self.mask(crops.reshape(-1, *crops.shape[2:]))
        return logits.reshape(*crops.shape[:2], *logits.shape[1:])


class FaceBranches(nn.Module):
    """From a normalised face image to the regions of every branch."""

    branches: Sequence[str]
    backbone: nn.Module = SmallBackbone()
    features: int = 48  # channels of the pyramid
    box_features: int = 96
    mask_features: int = 32
    anchor_sizes: Sequence[float] = (14.0, 28.0, 56.0)  # square root of area, pixels
    anchor_ratios: Sequence[float] = (0.3, 1.0, 2.5)  # height / width
    candidates: int = 48  # proposals kept by NMS, of four times as many
    proposal_overlap: float = 0.7  # IoU at which the better proposal wins
    detections: int = 12  # kept in each branch
    detection_overlap: float = 0.5  # IoU at which the better detection wins

    def setup(self):
        self.pyramid = FeaturePyramid(self.features, len(STRIDES))
        self.proposals = ProposalHead(
            self.features, len(self.anchor_ratios), len(self.branches)
        )
        self.heads = {
            name: Branch(self.box_features, self.mask_features, name=f"branch_{name}")
            for name in self.branches
        }

    def __call__(self, batch: Mapping[str, jax.Array], train: bool) -> dict[str, Any]:
        """Runs both networks.

        Args:
            batch: `image` uint8 [B, H, W, 3], sides multiples of 32; in training also
                `true_candidates` [B, T, 4] with `true_candidates_valid` [B, T], boxes
                near true ones that join the proposals, and `mask_boxes` [B, S, M, 4],
                the boxes whose masks are trained. Boxes in pixels of the face image.
            train: use (and update) batch statistics, and predict at those boxes;
                otherwise refine the candidates and segment what was detected.

        Returns:
            `anchors` [N, 4]; `proposal_logits` [B, N, S]; `proposal_deltas`
            [B, N, S, 4]; `candidates` [B, R, 4] with `candidates_valid` [B, R], and of
            those proposed `objectness` [B, R, S], probabilities;
            `score_logits` [B, R, S]; `deltas` [B, R, S, 4]; `mask_logits`
            [B, S, M, 28, 28] at the mask boxes. When not training, the mask boxes are
            the detections: `boxes` [B, S, D, 4], `scores` [B, S, D], `valid` [B, S, D].
        """
        images = standardise(batch["image"])
        levels = self.pyramid(self.backbone(images, train), train)
        outputs = self._propose(levels, images.shape[1:3])
        if train:
            for key in ("candidates", "candidates_valid"):
                outputs[key] = jnp.concatenate(
                    [outputs[key], batch[f"true_{key}"]], axis=1
                )
        finest = levels[0]
        outputs |= self._classify(finest, outputs["candidates"])
        if train:
            mask_boxes = batch["mask_boxes"]
        else:
            outputs |= self._detect(outputs, images.shape[1:3])
            mask_boxes = outputs["boxes"]
        return outputs | {"mask_logits": self._segment(finest, mask_boxes)}

    def _propose(self, levels, image_shape):
        """Anchors, what each branch makes of them, and the candidate boxes."""
        grid = jnp.concatenate(
            [
                anchors.grid(*x.shape[1:3], stride, size, self.anchor_ratios)
                for x, stride, size in zip(
                    levels, STRIDES, self.anchor_sizes, strict=True
                )
            ]
        )
        logits, deltas = (
            jnp.concatenate(parts, axis=1)
            for parts in zip(*map(self.proposals, levels), strict=True)
        )

        def best(logits, deltas):  # of one image: [N, S], [N, S, 4]
            before = min(4 * self.candidates, len(grid))
            scores, chosen = jax.lax.top_k(logits.max(axis=-1), before)
            branch = logits[chosen].argmax(axis=-1)
            moved = boxes.decode(deltas[chosen, branch], grid[chosen])
            moved = boxes.clip(moved, *image_shape)
            kept, valid = boxes.nms(
                moved,
                scores,
                boxes.area(moved) > 0,
                iou_threshold=self.proposal_overlap,
                keep=self.candidates,
            )
            moved = jnp.where(valid[:, None], moved[kept], 0.0)
            return moved, valid, nn.sigmoid(logits[chosen[kept]])

        candidates, valid, objectness = jax.vmap(best)(
            *jax.lax.stop_gradient((logits, deltas))
        )
        return {
            "anchors": grid,
            "proposal_logits": logits,
            "proposal_deltas": deltas,
            "candidates": candidates,
            "candidates_valid": valid,
            "objectness": objectness,
        }

    def _classify(self, finest, candidates):
        """Every candidate box goes into every branch."""
        crops = boxes.roi_align(finest, candidates, size=BOX_CROP, stride=STRIDES[0])
        scores, deltas = zip(
            *(self.heads[name].classify(crops) for name in self.branches), strict=True
        )
        return {
            "score_logits": jnp.stack(scores, axis=-1),
            "deltas": jnp.stack(deltas, axis=-2),
        }

    def _detect(self, outputs, image_shape):
        """Refined boxes of each branch, without doubles, best first."""
        refined = boxes.decode(outputs["deltas"], outputs["candidates"][:, :, None])
        refined = boxes.clip(refined, *image_shape)  # [B, R, S, 4]

        def best(moved, scores, valid):  # of one branch in one image
            kept, valid = boxes.nms(
                moved,
                scores,
                valid & (boxes.area(moved) > 0),
                iou_threshold=self.detection_overlap,
                keep=self.detections,
            )
            return (
                jnp.where(valid[:, None], moved[kept], 0.0),
                jnp.where(valid, scores[kept], 0.0),
                valid,
            )

        # Both stages must agree: the heads alone are too sure of poor candidates.
        scores = jnp.sqrt(nn.sigmoid(outputs["score_logits"]) * outputs["objectness"])
        over_branches = jax.vmap(best, in_axes=(1, 1, None))
        found, scores, valid = jax.vmap(over_branches)(
            refined, scores, outputs["candidates_valid"]
        )
        return {"boxes": found, "scores": scores, "valid": valid}

    def _segment(self, finest, mask_boxes):
        """Masks [B, S, M, 28, 28] of each branch, pooled from its own boxes."""
        batch, branches, count = mask_boxes.shape[:3]
        crops = boxes.roi_align(
            finest,
            mask_boxes.reshape(batch, branches * count, 4),
            size=MASK_CROP,
            stride=STRIDES[0],
        )
        crops = crops.reshape(batch, branches, count, *crops.shape[2:])
        return jnp.stack(
            [
                self.heads[name].segment(crops[:, index])
                for index, name in enumerate(self.branches)
            ],
            axis=1,
        )
