"""Dense maps of all people and animals of a picture: which keypoints, and whose.

The maps have a quarter of the picture's height and width, and so has everything after
the pyramid: where one instance ends and the next begins is a matter of few pixels.
"""

import math
from collections.abc import Mapping, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from facekp_jax.models.backbones import (
    ConvNorm,
    FeaturePyramid,
    ResidualBlock,
    SmallBackbone,
    standardise,
)
from facekp_jax.models.layers import Conv
from facekp_jax.skeletons import Skeleton

RELATIONS = 6  # ordinal: left-right, top-bottom, near-far and their opposites
_RARE = 0.01  # probability of a keypoint before anything is learned
_SIZE = 8.0  # cells, size of an instance before anything is learned


class GroupedKeypoints(nn.Module):
    """From a picture to what finds keypoints and tells their instances apart.

    Heatmaps, appearance and place have a last 3x3 convolution each of their own.
    """

    skeletons: Sequence[Skeleton]
    backbone: nn.Module = SmallBackbone()
    features: int = 64  # channels of the pyramid and the head
    blocks: int = 2  # of the head
    embedding: int = 8  # numbers that tell appearances apart

    @nn.compact
    def __call__(
        self, batch: Mapping[str, jax.Array], train: bool
    ) -> dict[str, jax.Array]:
        """Runs the network; h = H / 4, w = W / 4.

        Args:
            batch: `image` uint8 [B, H, W, 3], sides multiples of 32.
            train: use (and update) batch statistics.

        Returns:
            `heatmaps` [B, C, h, w], logits (a sigmoid each) of the keypoints of one
            skeleton after the other; `keypoint_embedding` [B, h, w, E];
            `instance_embedding` [B, h, w, 2], (x, y) in cells from the cell to the
            centre of its instance, of any length; `log_size` [B, h, w], logarithm of
            that instance's size in cells; `ordinal_maps` [B, h, w, RELATIONS], a 1x1
            convolution of the keypoint embedding, for training only. All float32.
        """
        maps = self.backbone(standardise(batch["image"]), train)
        (x,) = FeaturePyramid(self.features, 1, name="pyramid")(maps, train)
        for block in range(self.blocks):
            x = ResidualBlock(name=f"block{block}")(x, train)

        def last(name):
            return nn.relu(ConvNorm(self.features, name=name)(x, train))

        # Nearly zero: before anything is learned the bias decides.
        small = nn.initializers.normal(0.01)
        rare = nn.initializers.constant(math.log(_RARE / (1 - _RARE)))
        count = sum(len(skeleton.keypoints) for skeleton in self.skeletons)
        heatmaps = Conv(count, 1, kernel_init=small, bias_init=rare, name="heatmaps")
        looks = Conv(self.embedding, 1, name="keypoint_embedding")(last("appearance"))
        # Offsets in units of the usual size: in cells they would take long to grow.
        place = Conv(3, 1, kernel_init=small, name="place")(last("where"))
        return {
            "heatmaps": jnp.moveaxis(heatmaps(last("keypoints")), -1, 1),
            "keypoint_embedding": looks,
            "instance_embedding": _SIZE * place[..., :2],
            "log_size": math.log(_SIZE) + place[..., 2],
            "ordinal_maps": Conv(RELATIONS, 1, name="ordinal_maps")(looks),
        }
