"""What `StructuredKeypoints` is trained on: first and second heatmaps.

Labelled keypoints count, visible or occluded; unlabelled ones and padding do not, and
neither do cells of areas to ignore.
"""

from collections.abc import Mapping
from typing import Any

import jax

from facekp_jax import heatmaps
from facekp_jax.losses.keypoints import heatmap_cross_entropy
from facekp_jax.losses.terms import Term


def targets(
    outputs: Mapping[str, Any], batch: Mapping[str, Any]
) -> dict[str, jax.Array]:
    """Draws the true heatmaps.

    Args:
        outputs: of `StructuredKeypoints`.
        batch: `keypoints` [B, K, 3] and `ignore` [B, h, w], besides what the model
            reads.

    Returns:
        The batch, `heatmaps` [B, K, h, w] and `labelled` bool [B, K].
    """
    height, width = outputs["first_logits"].shape[-2:]
    stride = batch["image"].shape[1] / height
    points, visibility = batch["keypoints"][..., :2], batch["keypoints"][..., 2]
    drawn = heatmaps.render(points, (height, width), stride)
    return {**batch, "heatmaps": drawn, "labelled": visibility > 0}


def terms(*, first_weight: float, second_weight: float) -> tuple[Term, ...]:
    """The losses of the first and of the second heatmaps."""

    def of(stage):
        def cross_entropy(outputs, batch):
            logits, ignored = outputs[f"{stage}_logits"], batch["ignore"]
            losses = heatmap_cross_entropy(logits, batch["heatmaps"], ignored=ignored)
            return losses, batch["labelled"]

        return cross_entropy

    return (
        Term("first", of("first"), first_weight),
        Term("second", of("second"), second_weight),
    )
