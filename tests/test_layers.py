"""Layers: values and gradients against `lax` and against hand-derived cases."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from facekp_jax.models import layers


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def reference(x, kernel, stride):
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def assert_close(got, expected):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())


def gradients(function):
    return jax.jit(jax.grad(lambda *args: jnp.sin(function(*args)).sum(), (0, 1)))


@pytest.mark.parametrize("height, width", [(8, 5), (7, 6)])
@pytest.mark.parametrize("size, stride", [(1, 2), (3, 1), (3, 2), (5, 1), (5, 2)])
def test_gradients_equal_lax(height, width, size, stride):
    assert_gradients_equal_lax(height, width, size, stride)


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_where_the_kernel_is_larger_than_the_image(stride):
    assert_gradients_equal_lax(1, 2, 5, stride)


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_with_several_devices(monkeypatch, stride):
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert_gradients_equal_lax(7, 6, 3, stride)


def assert_gradients_equal_lax(height, width, size, stride):
    args = random(2, height, width, 3), random(size, size, 3, 4, seed=1)

    def ours(x, kernel):
        return layers.convolve(x, kernel, stride)

    def plain(x, kernel):
        return reference(x, kernel, stride)

    assert_close(gradients(ours)(*args), gradients(plain)(*args))


@pytest.mark.parametrize("size, stride", [(1, 1), (1, 2), (3, 1), (3, 2), (5, 2)])
def test_conv_has_the_parameters_and_values_of_flax(size, stride):
    x = random(2, 7, 6, 3)
    theirs = nn.Conv(4, (size, size), (stride, stride))
    ours = layers.Conv(4, size, stride)
    variables = theirs.init(jax.random.key(0), x)
    assert_close(ours.init(jax.random.key(0), x), variables)
    variables["params"]["bias"] = jnp.arange(4.0)
    assert_close(ours.apply(variables, x), theirs.apply(variables, x))


def test_conv_refuses_an_even_kernel():
    with pytest.raises(ValueError, match="size 4 is even"):
        layers.Conv(4, 4).init(jax.random.key(0), random(1, 4, 4, 3))


def test_conv_in_bfloat16_keeps_float32_parameters_and_gradients():
    conv = layers.Conv(4, dtype=jnp.bfloat16)
    x = random(2, 6, 6, 3)
    variables = conv.init(jax.random.key(0), x)
    assert conv.apply(variables, x).dtype == jnp.bfloat16
    grads = jax.grad(lambda v: conv.apply(v, x).astype(jnp.float32).sum())(variables)
    assert {leaf.dtype for leaf in jax.tree.leaves(grads)} == {jnp.dtype("float32")}
    # The bias is added to each of the 2 * 6 * 6 pixels.
    np.testing.assert_array_equal(grads["params"]["bias"], np.full(4, 72.0))


def test_vmap_over_examples_is_one_larger_batch():
    x, kernel = random(3, 2, 5, 6, 2), random(3, 3, 2, 4, seed=1)

    def ours(x, kernel):
        examples = jax.vmap(jax.vmap(lambda x: layers.convolve(x[None], kernel)[0]))
        return examples(x)

    def plain(x, kernel):
        return reference(x.reshape(6, 5, 6, 2), kernel, 1).reshape(3, 2, 5, 6, 4)

    assert_close(gradients(ours)(x, kernel), gradients(plain)(x, kernel))
    text = str(jax.make_jaxpr(ours)(x, kernel))
    assert "convolve[stride=1]" in text and "f32[6,5,6,4]" in text


def test_vmap_over_kernels():
    x, kernels = random(2, 5, 6, 2), random(3, 3, 3, 2, 4, seed=1)

    def ours(x, kernels):
        return jax.vmap(layers.convolve, (None, 0))(x, kernels)

    def plain(x, kernels):
        return jnp.stack([reference(x, kernel, 1) for kernel in kernels])

    assert_close(gradients(ours)(x, kernels), gradients(plain)(x, kernels))


def test_gradient_per_example():
    x, kernel = random(3, 1, 5, 4, 2), random(3, 3, 2, 2, seed=1)

    def loss(kernel, x):
        return jnp.sin(layers.convolve(x, kernel, 2)).sum()

    def plain(kernel, x):
        return jnp.sin(reference(x, kernel, 2)).sum()

    got = jax.vmap(jax.grad(loss), (None, 0))(kernel, x)
    assert_close(got, jnp.stack([jax.grad(plain)(kernel, image) for image in x]))


SHARDED = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from facekp_jax.models import layers

mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
x = jax.random.normal(jax.random.key(0), (8, 6, 6, 3))
x = jax.device_put(x, NamedSharding(mesh, P("data")))
kernel = jax.device_put(jnp.ones((3, 3, 3, 4)), NamedSharding(mesh, P()))
step = jax.jit(jax.grad(lambda k, x: layers.convolve(x, k, 2).sum()))
assert "all-gather" not in step.lower(kernel, x).compile().as_text()
# SAME pads below and right only: tap 0 sees rows 0, 2, 4 and tap 1 rows 1, 3, 5.
for tap in (0, 1):
    expected = x[:, tap::2, tap::2].sum((0, 1, 2))[:, None]
    assert jnp.allclose(step(kernel, x)[tap, tap], expected, atol=1e-4)
"""


def test_a_sharded_batch_stays_on_its_devices():
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    subprocess.run([sys.executable, "-c", SHARDED], env=environment, check=True)


def test_space_to_depth_orders_by_row_column_channel():
    x = jnp.arange(2 * 4 * 2).reshape(1, 2, 4, 2)
    got = layers.space_to_depth(x, 2)
    np.testing.assert_array_equal(got[0, 0, 0], [0, 1, 2, 3, 8, 9, 10, 11])
    np.testing.assert_array_equal(layers.depth_to_space(got, 2), x)


def test_blocks_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="block 2 does not divide"):
        layers.space_to_depth(jnp.zeros((1, 3, 4, 1)), 2)
    with pytest.raises(ValueError, match="block 2 does not divide"):
        layers.depth_to_space(jnp.zeros((1, 3, 4, 6)), 2)


def test_upsample_nearest_repeats_pixels():
    x = jnp.array([[1, 2], [3, 4]])[None, :, :, None]
    expected = [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]
    np.testing.assert_array_equal(layers.upsample_nearest(x, 2)[0, ..., 0], expected)


def test_upsample_doubles_and_places_phases():
    upsample = layers.Upsample(1, size=1)
    x = jnp.ones((1, 1, 2, 1))
    variables = upsample.init(jax.random.key(0), x)
    variables["params"]["phases"]["kernel"] = jnp.arange(4.0).reshape(1, 1, 1, 4)
    got = upsample.apply(variables, x)
    np.testing.assert_array_equal(got[0, ..., 0], [[0, 1, 0, 1], [2, 3, 2, 3]])


def test_norm_standardises_and_keeps_running_statistics():
    norm = layers.Norm()
    x = 3.0 + 2.0 * random(4, 5, 5, 2)
    variables = norm.init(jax.random.key(0), x, use_running_average=True)
    y, updated = norm.apply(
        variables, x, use_running_average=False, mutable=["batch_stats"]
    )
    np.testing.assert_allclose(y.mean((0, 1, 2)), 0.0, atol=1e-5)
    np.testing.assert_allclose(y.std((0, 1, 2)), 1.0, atol=1e-5)
    running = updated["batch_stats"]
    np.testing.assert_allclose(running["mean"], 0.1 * x.mean((0, 1, 2)), rtol=1e-5)
    expected = 0.9 + 0.1 * x.var((0, 1, 2))
    np.testing.assert_allclose(running["var"], expected, rtol=1e-5)
