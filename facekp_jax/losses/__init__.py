"""Elementwise losses and the terms that an experiment is trained on."""

from facekp_jax.losses.detection import dice, giou, sigmoid_focal
from facekp_jax.losses.keypoints import heatmap_cross_entropy, smooth_l1, wing
from facekp_jax.losses.terms import Term, check_same_shape, masked_mean, weighted_sum

__all__ = [
    "Term",
    "check_same_shape",
    "dice",
    "giou",
    "heatmap_cross_entropy",
    "masked_mean",
    "sigmoid_focal",
    "smooth_l1",
    "weighted_sum",
    "wing",
]
