"""The train step: what it computes, and that it is the same on many devices.

As a program it prints the first losses of the run that `test_many_devices` repeats.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from facekp_jax import command, face_crops, masks
from facekp_jax.losses import Term, face_branches
from facekp_jax.models.backbones import SmallBackbone
from facekp_jax.models.face_branches import FaceBranches
from facekp_jax.models.layers import Norm
from facekp_jax.records import LesionImage, Region
from facekp_jax.training import (
    create_state,
    data_mesh,
    make_predict_step,
    make_train_step,
    shard_batch,
)

BRANCHES = ("acne", "mole")
COLOURS = {"acne": (205, 90, 80), "mole": (70, 45, 35)}
SIDE = 64
DEVICES = 8


class Line(nn.Module):
    """y = w x + b, from 0."""

    @nn.compact
    def __call__(self, batch, train):
        dense = nn.Dense(1, kernel_init=nn.initializers.zeros, name="line")
        return {"y": dense(batch["x"][:, None])[:, 0]}


class Standardised(nn.Module):
    """x by the statistics of the batch, or of the batches seen."""

    @nn.compact
    def __call__(self, batch, train):
        x = Norm(use_running_average=not train, name="norm")(batch["x"][:, None])
        return {"y": nn.Dense(1, name="line")(x)[:, 0]}


def errors(outputs, batch):
    return (outputs["y"] - batch["target"]) ** 2, batch["seen"]


def with_target(outputs, batch):
    # Outputs at hand, for targets that depend on what was predicted.
    return dict(batch) | {"target": batch["t"] + 0 * outputs["y"]}


X = {
    "x": np.array([1, 2, 50], np.float32),
    "t": np.array([3, 5, 90], np.float32),
    "seen": np.array([True, True, False]),
}
TERMS = (Term("error", errors),)


def start(model=None, optimizer=None, batch=None, seed=0):
    optimizer = optax.sgd(0.1) if optimizer is None else optimizer
    model = Line() if model is None else model
    state = create_state(
        model, optimizer, X if batch is None else batch, seed, data_mesh()
    )
    return state, make_train_step(model, with_target, TERMS, optimizer)


def test_one_step_by_hand():
    state, step = start()
    state, losses = step(state, X)
    # Of the mean of (w x + b - t)^2 over the two that are seen, at w = b = 0.
    assert losses == {"loss": (9 + 25) / 2, "loss/error": (9 + 25) / 2}
    slope = -(2 * 3 * 1 + 2 * 5 * 2) / 2, -(2 * 3 + 2 * 5) / 2
    line = state.params["line"]
    np.testing.assert_allclose(line["kernel"][0, 0], -0.1 * slope[0], rtol=1e-6)
    np.testing.assert_allclose(line["bias"][0], -0.1 * slope[1], rtol=1e-6)
    assert state.batch_stats == {}
    assert (state.step, state.step.dtype) == (1, jnp.int32)
    state, losses = step(state, X)
    # y = 1.3 x + 0.8 misses by 0.9 and by 1.6.
    np.testing.assert_allclose(losses["loss"], (0.9**2 + 1.6**2) / 2, rtol=1e-5)
    assert state.step == 2


def test_the_optimizer_follows_its_schedule():
    state, step = start(optimizer=optax.sgd(lambda step: jnp.where(step < 1, 0.0, 0.1)))
    state, first = step(state, X)
    state, second = step(state, X)
    _, third = step(state, X)
    assert first["loss"] == second["loss"] > third["loss"]


def test_the_old_state_is_consumed():
    state, step = start(optimizer=optax.adam(0.1))
    new, _ = step(state, X)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(new))


def test_running_statistics_are_learned_and_then_used():
    state, step = start(model=Standardised())
    predict = make_predict_step(
        Standardised(), lambda outputs: {"twice": 2 * outputs["y"]}
    )
    state, _ = step(state, X)
    mean, variance = np.mean(X["x"]), np.var(X["x"])
    norm = state.batch_stats["norm"]
    np.testing.assert_allclose(norm["mean"], [0.1 * mean], rtol=1e-5)
    np.testing.assert_allclose(norm["var"], [0.9 + 0.1 * variance], rtol=1e-5)
    got = predict(state, {"x": X["x"][:1]})["twice"]
    params = jax.device_get(state.params)
    x = (1 - norm["mean"]) / np.sqrt(norm["var"] + 1e-5)
    x = x * params["norm"]["scale"] + params["norm"]["bias"]
    expected = 2 * (x * params["line"]["kernel"][0] + params["line"]["bias"])
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_the_first_state_is_a_function_of_seed_and_shapes():
    def kernel(**options):
        return np.asarray(start(Standardised(), **options)[0].params["line"]["kernel"])

    other = {
        key: np.zeros_like(np.concatenate([value] * 2)) for key, value in X.items()
    }
    np.testing.assert_array_equal(kernel(seed=3), kernel(seed=3, batch=other))
    assert kernel(seed=3) != kernel(seed=4)


def test_a_batch_that_cannot_be_split_is_an_error():
    mesh = jax.sharding.AbstractMesh((8,), ("data",))
    with pytest.raises(ValueError, match=r"batch_size 12 .* 8 devices.* multiple"):
        shard_batch({"x": np.zeros(12)}, mesh)


def photo(number):
    """A lesion of each kind on uneven skin."""
    rng = np.random.default_rng(number)
    image = rng.normal((215, 170, 150), 6, (SIDE, SIDE, 3))
    rows, columns = np.mgrid[:SIDE, :SIDE]
    regions = []
    for row, branch in enumerate(BRANCHES):
        x, y = rng.integers(14, SIDE - 14), 16 + 32 * row
        disc = (columns - x) ** 2 + (rows - y) ** 2 <= rng.integers(5, 9) ** 2
        image[disc] = COLOURS[branch]
        patch = masks.from_full(disc)
        regions.append(Region(branch, masks.patch_box(patch), patch))
    image = image.clip(0, 255).astype(np.uint8)
    return LesionImage(f"photo {number}", image, tuple(regions), BRANCHES)


@functools.cache
def few_photos():
    samples = []
    for number in range(DEVICES):
        record, rng = photo(number), np.random.default_rng(number)
        matrix = face_crops.face_matrix(record, SIDE, 0.0)
        known = face_crops.truth(record, matrix, SIDE, BRANCHES, 1, 1, 4, rng)
        samples.append({"image": record.image} | known)
    return {key: np.stack([s[key] for s in samples]) for key in samples[0]}


def losses_of_first_steps(count):
    """The losses before each step, and the shape of the images on each device."""
    model = FaceBranches(
        BRANCHES,
        backbone=SmallBackbone(features=(8, 8, 8, 8), blocks=(1, 0, 0, 0)),
        features=8,
        box_features=8,
        mask_features=8,
        candidates=6,
        detections=3,
    )
    # Gentle at first: Adam's first steps make much of gradients that are all rounding.
    optimizer, mesh = optax.adam(optax.linear_schedule(1e-3, 1e-2, 10)), data_mesh()
    batch = shard_batch(few_photos(), mesh)
    state = create_state(model, optimizer, batch, 0, mesh)
    step = make_train_step(
        model, face_branches.targets, face_branches.terms(BRANCHES), optimizer
    )
    step = step.lower(state, batch).compile({"xla_backend_optimization_level": 0})
    losses = []
    for _ in range(count):
        state, values = step(state, batch)
        losses.append({name: float(value) for name, value in values.items()})
    shapes = [shard.data.shape for shard in batch["image"].addressable_shards]
    return losses, shapes


@functools.cache
def overfitted():
    return losses_of_first_steps(80)[0]


@pytest.mark.slow
def test_a_few_photos_are_learned():
    first, last = overfitted()[0], overfitted()[-1]
    assert last["loss"] < 0.4 * first["loss"]
    for name in first:
        assert last[name] < 0.75 * first[name], name


@pytest.mark.slow
def test_many_devices():
    """The same losses on one device and on eight, and each holds its share."""
    root = pathlib.Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, __file__],
        env=os.environ
        | {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(DEVICES),
            "PYTHONPATH": str(root),
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
        },
        stdout=subprocess.PIPE,
        check=True,
    )
    losses, shapes = json.loads(done.stdout)
    assert shapes == [[1, SIDE, SIDE, 3]] * DEVICES
    for got, expected in zip(losses, overfitted(), strict=False):
        assert got == pytest.approx(expected, rel=1e-5)


if __name__ == "__main__":
    command.use_compilation_cache()
    print(json.dumps(losses_of_first_steps(3)))
