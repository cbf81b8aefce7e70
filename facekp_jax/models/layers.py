"""Layers that everything is built from: plain on accelerators, fast on CPU.

XLA's CPU back end is quick at forward convolutions and matrix products, but slow at the
gradients of a convolution. The layers here have the parameters and values of Flax's own
and replace only the gradients, and only where the program runs on CPU.

All arrays are NHWC. `dtype` is the type computed in; parameters stay float32.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_LAYOUT = ("NHWC", "HWIO", "NHWC")


def space_to_depth(x, block):
    """[B, H, W, C] -> [B, H/block, W/block, block*block*C], channels by (y, x, c).

    Raises:
        ValueError: if the block does not divide the height and the width.
    """
    batch, height, width, channels = x.shape
    if height % block or width % block:
        raise ValueError(f"space_to_depth: block {block} does not divide {x.shape}")
    x = x.reshape(batch, height // block, block, width // block, block, channels)
    x = x.transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(batch, height // block, width // block, block * block * channels)


def depth_to_space(x, block):
    """[B, H, W, block*block*C] -> [B, H*block, W*block, C]; undoes `space_to_depth`.

    Raises:
        ValueError: if block squared does not divide the channels.
    """
    batch, height, width, channels = x.shape
    if channels % block**2:
        raise ValueError(f"depth_to_space: block {block} does not divide {x.shape}")
    x = x.reshape(batch, height, width, block, block, channels // block**2)
    x = x.transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(batch, height * block, width * block, channels // block**2)


def upsample_nearest(x, factor):
    """[B, H, W, C] -> [B, H*factor, W*factor, C], every pixel repeated."""
    batch, height, width, channels = x.shape
    shape = (batch, height, factor, width, factor, channels)
    x = jnp.broadcast_to(x[:, :, None, :, None], shape)
    return x.reshape(batch, height * factor, width * factor, channels)


def convolve(x, kernel, stride=1):
    """SAME-padded convolution with gradients that are fast on CPU.

    Args:
        x: [B, H, W, C].
        kernel: [k, k, C, F], k odd.
        stride: pixels.

    Returns:
        [B, ceil(H / stride), ceil(W / stride), F].
    """
    return _convolve.bind(x, kernel, stride=stride)


def _plain(x, kernel, *, stride):
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=_LAYOUT
    )


def _plain_input_gradient(gradient, kernel, *, shape, stride):
    x = jax.ShapeDtypeStruct(shape, gradient.dtype)
    return jax.linear_transpose(lambda x: _plain(x, kernel, stride=stride), x)(
        gradient
    )[0]


def _plain_kernel_gradient(x, gradient, *, shape, stride):
    kernel = jax.ShapeDtypeStruct(shape, gradient.dtype)
    return jax.linear_transpose(lambda k: _plain(x, k, stride=stride), kernel)(
        gradient
    )[0]


def _input_gradient(gradient, kernel, *, shape, stride):
    """One forward convolution that computes the stride's phases as channels."""
    size, _, inputs, outputs = kernel.shape
    taps = -(-size // stride)  # per phase
    extra = taps * stride - size
    kernel = jnp.pad(kernel, ((0, extra), (0, extra), (0, 0), (0, 0)))
    kernel = kernel.reshape(taps, stride, taps, stride, inputs, outputs)
    kernel = kernel[::-1, :, ::-1].transpose(0, 2, 5, 1, 3, 4)
    kernel = kernel.reshape(taps, taps, outputs, stride * stride * inputs)
    padding, crop = [], []
    for length, (low, _) in zip(shape[1:3], _same(shape, size, stride), strict=True):
        cells = -(-(low + length) // stride) - low // stride
        before = taps - 1 - low // stride
        padding.append((before, cells + taps - 1 - before - -(-length // stride)))
        crop.append(slice(low % stride, low % stride + length))
    phases = lax.conv_general_dilated(
        gradient, kernel, (1, 1), padding, dimension_numbers=_LAYOUT
    )
    return depth_to_space(phases, stride)[:, crop[0], crop[1]]


def _kernel_gradient(x, gradient, *, shape, stride):
    """One matrix product per tap of the kernel, over shifted views of the input."""
    size, _, inputs, outputs = shape
    height, width = gradient.shape[1:3]
    padding = ((0, 0), *_same(x.shape, size, stride), (0, 0))

    def add_products(total, images):
        x, gradient = images
        x = jnp.pad(x, padding)
        gradient = gradient.reshape(-1, outputs)
        taps = []
        for row, column in np.ndindex(size, size):
            rows = slice(row, row + stride * (height - 1) + 1, stride)
            columns = slice(column, column + stride * (width - 1) + 1, stride)
            view = x[:, rows, columns].reshape(-1, inputs)
            taps.append(
                jnp.matmul(view.T, gradient, preferred_element_type=total.dtype)
            )
        return total + jnp.stack(taps).reshape(shape), None

    # Image by image the views stay in the cache (half the time), but a loop over a
    # batch that is sharded would gather it on every device.
    axis = 1 if jax.device_count() == 1 else 0
    images = (jnp.expand_dims(x, axis), jnp.expand_dims(gradient, axis))
    total, _ = lax.scan(add_products, jnp.zeros(shape, jnp.float32), images)
    return total.astype(x.dtype)


def _same(shape, size, stride):
    padding = []
    for length in shape[1:3]:
        total = max((-(-length // stride) - 1) * stride + size - length, 0)
        padding.append((total // 2, total - total // 2))
    return padding


def _transpose_input(gradient, x, kernel, *, stride):
    options = {"shape": x.aval.shape, "stride": stride}
    return lax.platform_dependent(
        gradient,
        kernel,
        cpu=partial(_input_gradient, **options),
        default=partial(_plain_input_gradient, **options),
    )


def _transpose_kernel(gradient, x, kernel, *, stride):
    options = {"shape": kernel.aval.shape, "stride": stride}
    return lax.platform_dependent(
        x,
        gradient,
        cpu=partial(_kernel_gradient, **options),
        default=partial(_plain_kernel_gradient, **options),
    )


def _batch(arrays, axes, *, stride):
    x, kernel = arrays
    if axes[1] is not None:
        return jax.vmap(partial(_plain, stride=stride), axes)(x, kernel), 0
    x = jnp.moveaxis(x, axes[0], 0)
    y = convolve(x.reshape(-1, *x.shape[2:]), kernel, stride)
    return y.reshape(*x.shape[:2], *y.shape[1:]), 0


def _shape(x, kernel, *, stride):
    height, width = (-(-length // stride) for length in x.shape[1:3])
    return x.update(shape=(x.shape[0], height, width, kernel.shape[3]))


# A primitive, not a `custom_vjp`: under vmap that would compute and add up one kernel
# gradient per example, where a primitive folds the examples into the batch.
_convolve = Primitive("convolve")
_convolve.def_impl(jax.jit(_plain, static_argnames="stride"))
_convolve.def_abstract_eval(_shape)
mlir.register_lowering(_convolve, mlir.lower_fun(_plain, multiple_results=False))
ad.defbilinear(_convolve, _transpose_input, _transpose_kernel)
batching.primitive_batchers[_convolve] = _batch


class Conv(nn.Module):
    """Convolution with SAME padding; parameters as those of `nn.Conv`."""

    features: int  # channels
    size: int = 3  # pixels, odd
    stride: int = 1  # pixels
    use_bias: bool = True
    dtype: jnp.dtype | None = None
    kernel_init: Callable = nn.initializers.lecun_normal()
    bias_init: Callable = nn.initializers.zeros

    @nn.compact
    def __call__(self, x):  # [B, H, W, C]
        if self.size % 2 == 0:
            raise ValueError(f"Conv: size {self.size} is even; use an odd one")
        shape = (self.size, self.size, x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape)
        bias = None
        if self.use_bias:
            bias = self.param("bias", self.bias_init, (self.features,))
        x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
        if self.size == 1:
            x = x[:, :: self.stride, :: self.stride] @ kernel[0, 0]
        else:
            x = convolve(x, kernel, self.stride)
        return x if bias is None else x + bias


class Upsample(nn.Module):
    """Twice the height and width: convolution to 4 phases, then depth to space."""

    features: int  # channels
    size: int = 3  # pixels, odd; 1 is a matrix product
    use_bias: bool = True
    dtype: jnp.dtype | None = None
    kernel_init: Callable = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, x):  # [B, H, W, C] -> [B, 2H, 2W, features]
        phases = Conv(
            4 * self.features,
            self.size,
            use_bias=self.use_bias,
            dtype=self.dtype,
            kernel_init=self.kernel_init,
            name="phases",
        )
        return depth_to_space(phases(x), 2)


# Flax's own: one written by hand saved at most a millisecond a layer. Statistics are
# float32 and, under jit on a sharded batch, global.
Norm = partial(nn.BatchNorm, momentum=0.9, epsilon=1e-5)
