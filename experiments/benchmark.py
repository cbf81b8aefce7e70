"""Measures what a training's speed depends on.

python -m experiments.benchmark --exp=face_branches [--what=input] [--data=DIR]
    [--config.workers=2 ...]

`input`: images per second of the input pipeline alone, then the time of a train step
with its batch at hand, then the share of a training's time that it waits for batches.
`step`: seconds to compile the train step, without a cache, and to run it.

`--workdir=DIR` instead of `--exp` takes the recipe and the settings of a run.
"""

import contextlib
import pathlib
import resource
import statistics
import sys
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

import jax
from absl import flags

from experiments import PROCESS_START
from experiments.configs import override
from experiments.evaluate import DATA, WORKDIR
from experiments.experiment import (
    Experiment,
    initial_state,
    load_experiment,
    load_recipe,
)
from facekp_jax import command
from facekp_jax.input import training_batches
from facekp_jax.training import data_mesh, make_train_step, shard_batch

STRETCHES = 5  # of a measurement; the median counts
SECONDS = 2.0  # of a stretch of the input alone
STEPS = 10  # of the training whose waiting is measured
WARM_UP = 8  # steps before them, which use up what was made ahead

# Of train too; a process that imports both defines it once more.
_EXP = flags.DEFINE_string(
    "exp",
    None,
    "Recipe: its name, a dotted module or the path of a .py file.",
    allow_override=True,
)
_WHAT = flags.DEFINE_enum("what", "input", ["input", "step"], "What is measured.")


def main(overrides: Mapping[str, str]) -> dict[str, Any]:
    if (_EXP.value is None) == (WORKDIR.value is None):
        raise command.UsageError(
            "give --exp, such as face_branches, or --workdir, the folder of a run"
        )
    if WORKDIR.value is None:
        recipe, name = load_recipe(_EXP.value), _EXP.value
        experiment = recipe.build(override(recipe.Config(), overrides), DATA.value)
    else:
        name, experiment = load_experiment(
            pathlib.Path(WORKDIR.value),
            overrides,
            lambda recorded: DATA.value or recorded,
        )
    measure = {"input": measure_input, "step": measure_step}[_WHAT.value]
    return {
        "experiment": name,
        "what": _WHAT.value,
        "batch_size": experiment.config.batch_size,
        "workers": experiment.config.workers,
        **measure(experiment),
        **_memory(),
        "seconds": round(time.monotonic() - PROCESS_START, 1),
    }


def measure_input(experiment: Experiment) -> dict[str, float | None]:
    """Speed of the input alone and of the step alone, and how they go together.

    `cpu_seconds_per_image` is of this process, which is all only without workers.
    """
    command.use_compilation_cache()
    workers = experiment.config.workers
    with contextlib.closing(_batches(experiment)) as batches:
        next(batches)
        speeds, costs = zip(
            *(
                _stretch(batches, experiment.config.batch_size)
                for _ in range(STRETCHES)
            ),
            strict=True,
        )
        speed, cost = statistics.median(speeds), statistics.median(costs)
        print(f"input alone: {speed:.1f} images/s", flush=True)
        step = Step(experiment, next(batches))
        seconds = step.seconds()
        print(f"step alone: {seconds:.4f} s", flush=True)
        wait = _wait(step, batches)
        print(f"together: steps wait {wait:.1%} of the time", flush=True)
    return {
        "images_per_second": round(speed, 1),
        "cpu_seconds_per_image": None if workers else round(cost, 6),
        "step_seconds": round(seconds, 5),
        "input_wait": round(wait, 4),
    }


def measure_step(experiment: Experiment) -> dict[str, float | None]:
    """Seconds to compile the train step and to run it, and images per second."""
    with contextlib.closing(_batches(experiment)) as batches:
        step = Step(experiment, next(batches))
    seconds = step.seconds()
    return {
        "images_per_second": round(experiment.config.batch_size / seconds, 1),
        "compile_seconds": round(step.compile_seconds, 2),
        "step_seconds": round(seconds, 5),
    }


class Step:
    """The compiled train step, and the state that it changes.

    Attributes:
        compile_seconds: of it.
    """

    def __init__(self, experiment: Experiment, batch: Mapping[str, Any]):
        self._mesh = data_mesh()
        self._state = initial_state(experiment, self._mesh)
        self._batch = self._on_devices(batch)
        step = make_train_step(
            experiment.model,
            experiment.targets,
            experiment.losses,
            experiment.optimizer,
        )
        start = time.monotonic()
        self._step = step.lower(self._state, self._batch).compile()
        self.compile_seconds = time.monotonic() - start

    def __call__(self, batch: Mapping[str, Any]) -> None:
        """Takes a step and waits for its end."""
        self._run(self._on_devices(batch))

    def seconds(self) -> float:
        """Median time of a step on the batch at hand."""
        self._run(self._batch)
        times = []
        for _ in range(STRETCHES):
            start = time.monotonic()
            self._run(self._batch)
            times.append(time.monotonic() - start)
        return statistics.median(times)

    def _run(self, batch):
        self._state, losses = self._step(self._state, batch)
        jax.block_until_ready(losses)

    def _on_devices(self, batch):
        arrays = {key: value for key, value in batch.items() if key != "name"}
        return shard_batch(arrays, self._mesh)


def _batches(experiment) -> Generator[dict[str, Any], None, None]:
    config = experiment.config
    return training_batches(
        experiment.source("train"),
        experiment.sample,
        batch_size=config.batch_size,
        seed=config.seed,
        workers=config.workers,
    )


def _stretch(batches, batch_size):
    """(images per second, CPU seconds of this process per image)."""
    images, start, cpu = 0, time.monotonic(), time.process_time()
    while time.monotonic() - start < SECONDS:
        next(batches)
        images += batch_size
    seconds, cpu = time.monotonic() - start, time.process_time() - cpu
    return images / seconds, cpu / images


def _wait(step: Callable[[Mapping[str, Any]], None], batches) -> float:
    """Share of the time that finished steps wait for the next batch."""
    for _ in range(WARM_UP):
        step(next(batches))
    waited, start = 0.0, time.monotonic()
    for _ in range(STEPS):
        asked = time.monotonic()
        batch = next(batches)
        waited += time.monotonic() - asked
        step(batch)
    return waited / (time.monotonic() - start)


def _memory():
    """Most memory in MiB: of this process, its largest worker, a device that tells."""
    unit = 2**20 if sys.platform == "darwin" else 2**10

    def resident(who):
        return round(resource.getrusage(who).ru_maxrss / unit)

    device = jax.local_devices()[0].memory_stats() or {}
    peak = device.get("peak_bytes_in_use")
    return {
        "memory_mib": resident(resource.RUSAGE_SELF),
        "worker_memory_mib": resident(resource.RUSAGE_CHILDREN) or None,
        "device_memory_mib": peak and round(peak / 2**20),
    }


if __name__ == "__main__":
    command.run(main, configures=True)
