"""Backbones and the feature pyramid."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from facekp_jax.models.layers import Conv, Norm, space_to_depth, upsample_nearest

# Of ImageNet, in 0..255: the range that published weights know.
PIXEL_MEAN = (123.675, 116.28, 103.53)
PIXEL_DEVIATION = (58.395, 57.12, 57.375)


def standardise(images: jax.Array) -> jax.Array:
    """uint8 RGB images [..., 3] -> float32 with about zero mean and unit deviation."""
    return (images.astype(jnp.float32) - jnp.array(PIXEL_MEAN)) / jnp.array(
        PIXEL_DEVIATION
    )


class ConvNorm(nn.Module):
    """Convolution and batch normalisation; the bias is the normalisation's."""

    features: int
    kernel: int = 3
    stride: int = 1

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        x = Conv(
            self.features, self.kernel, stride=self.stride, use_bias=False, name="conv"
        )(x)
        return Norm(use_running_average=not train, name="norm")(x)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and the identity. Source: He et al., CVPR 2016."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:  # [B, H, W, C]
        y = nn.relu(ConvNorm(x.shape[-1], name="first")(x, train))
        return nn.relu(x + ConvNorm(x.shape[-1], name="second")(y, train))


class SmallBackbone(nn.Module):
    """A small residual network for training from scratch on a few cores.

    The stem folds 4x4 pixels into channels, so that no layer works at the image's own
    resolution, where a pass over memory costs more than the arithmetic.
    """

    features: Sequence[int] = (32, 64, 96, 128)  # channels at strides 4, 8, 16, 32
    blocks: Sequence[int] = (1, 2, 2, 1)

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> list[jax.Array]:
        """[B, H, W, 3] standardised images -> maps at strides 4, 8, 16 and 32."""
        x = space_to_depth(images, 4)
        maps = []
        for level, (features, blocks) in enumerate(
            zip(self.features, self.blocks, strict=True)
        ):
            stride = 1 if level == 0 else 2
            x = ConvNorm(features, stride=stride, name=f"enter{level}")(x, train)
            x = nn.relu(x)
            for block in range(blocks):
                x = ResidualBlock(name=f"block{level}_{block}")(x, train)
            maps.append(x)
        return maps


class FeaturePyramid(nn.Module):
    """Top-down pathway: every level sees what the coarser ones know.

    Source: Lin et al., CVPR 2017.
    """

    features: int
    levels: int  # of the maps, from the finest, that are given back

    @nn.compact
    def __call__(self, maps: Sequence[jax.Array], train: bool) -> list[jax.Array]:
        """Maps from fine to coarse, each half the size -> the finest, of one width."""
        lateral = [
            Conv(self.features, 1, name=f"lateral{level}")(x)
            for level, x in enumerate(maps)
        ]
        for level in reversed(range(len(maps) - 1)):
            lateral[level] += upsample_nearest(lateral[level + 1], 2)
        return [
            nn.relu(ConvNorm(self.features, name=f"output{level}")(x, train))
            for level, x in enumerate(lateral[: self.levels])
        ]
