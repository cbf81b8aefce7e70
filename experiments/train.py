"""Trains an experiment and measures it.

python -m experiments.train --exp=face_branches [--workdir=DIR] [--data=DIR]
    [--config.steps=500 ...] [--resume] [--print_config]
"""

import contextlib
import json
import math
import pathlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import tensorboardX
from absl import flags
from tqdm import tqdm

from experiments import PROCESS_START
from experiments.configs import from_dict, override, to_dict
from experiments.evaluate import DATA, WORKDIR, evaluate
from experiments.experiment import (
    Experiment,
    initial_state,
    load_recipe,
    read_run,
    recorded_name,
    restore,
    write_run,
)
from facekp_jax import command
from facekp_jax.checkpoints import Checkpoints, NoCheckpoint
from facekp_jax.input import training_batches
from facekp_jax.training import data_mesh, make_train_step, shard_batch

PICTURES = 8  # of the validation split, for TensorBoard

_EXP = flags.DEFINE_string(
    "exp", None, "Recipe: its name, a dotted module or the path of a .py file."
)
_RESUME = flags.DEFINE_bool("resume", False, "Go on with the run in --workdir.")
_PRINT_CONFIG = flags.DEFINE_bool("print_config", False, "Print the config and stop.")


def main(overrides: Mapping[str, str]) -> dict[str, Any] | None:
    command.use_compilation_cache()
    workdir = pathlib.Path(WORKDIR.value) if WORKDIR.value else None
    if _RESUME.value:
        name, experiment = _resumed(workdir, overrides)
    else:
        name, experiment = _fresh(workdir, overrides)
    if _PRINT_CONFIG.value:
        print(json.dumps(to_dict(experiment.config), indent=2))
        return None
    if workdir is None:
        workdir = pathlib.Path(tempfile.mkdtemp(prefix=f"{pathlib.Path(name).stem}-"))
    for split in ("train", "val"):  # one that is missing must not be found later
        experiment.source(split)
    command.make_folder("workdir", workdir)
    print(f"workdir: {workdir}", flush=True)
    if not _RESUME.value:
        write_run(workdir, name, DATA.value, experiment.config)
    summary = train(experiment, workdir, resume=_RESUME.value)
    return {"experiment": name, "workdir": str(workdir)} | summary


def _fresh(workdir, overrides):
    if _EXP.value is None:
        raise command.UsageError("no experiment; give --exp, such as face_branches")
    if workdir is not None and (workdir / "config.json").exists():
        recorded, _, _ = read_run(workdir)
        raise command.UsageError(
            f"{workdir} already holds a run of {recorded}; add --resume to go on with "
            "it, or give another --workdir"
        )
    recipe = load_recipe(_EXP.value)
    config = override(recipe.Config(), overrides)
    return _EXP.value, recipe.build(config, DATA.value)


def _resumed(workdir, overrides):
    if workdir is None:
        raise command.UsageError("--resume needs --workdir, the folder of the run")
    name, data, config = read_run(workdir)
    if _EXP.value is not None and recorded_name(_EXP.value) != name:
        raise command.UsageError(
            f"{workdir} holds a run of {name}, not of {_EXP.value}; give --exp={name} "
            "or another --workdir"
        )
    if overrides or DATA.value:
        what = f"config.{next(iter(overrides))}" if overrides else "data"
        raise command.UsageError(
            f"--{what} cannot change in a resumed run; leave it out, or train in "
            "another --workdir"
        )
    recipe = load_recipe(name)
    return name, recipe.build(from_dict(recipe.Config, config), data)


def train(
    experiment: Experiment, workdir: pathlib.Path, resume: bool
) -> dict[str, Any]:
    """Runs all steps that are left, saves, and measures on the validation split."""
    config = experiment.config
    mesh = data_mesh()
    restored = None
    if resume:
        with contextlib.suppress(NoCheckpoint):  # stopped before there was one
            restored = restore(workdir, experiment, mesh)
    state, first = restored or (initial_state(experiment, mesh), 0)
    checkpoints = Checkpoints(workdir / "checkpoints")
    train_step = make_train_step(
        experiment.model, experiment.targets, experiment.losses, experiment.optimizer
    )
    batches = training_batches(
        experiment.source("train"),
        experiment.sample,
        batch_size=config.batch_size,
        seed=config.seed,
        first_step=first,
        workers=config.workers,
    )
    log = Log(workdir, first, config)
    first_step_seconds = None
    previous = None
    with contextlib.closing(batches):
        for done in range(first + 1, config.steps + 1):
            batch = next(batches)
            names = batch.pop("name")
            state, losses = train_step(state, shard_batch(batch, mesh))
            if first_step_seconds is None:
                jax.block_until_ready(losses)
                first_step_seconds = round(time.monotonic() - PROCESS_START, 1)
            # One step late, so that the device need not wait for the host.
            if previous:
                _check_finite(*previous)
            previous = losses, done, names
            saves = done % config.checkpoint_every == 0 or done == config.steps
            log.advance()
            if saves or done == 1 or done % config.log_every == 0:
                _check_finite(*previous)
                log.write(done, losses, experiment.schedule(done - 1))
            if saves:
                _check_parameters(state, done, names)
                checkpoints.save(done, state)
    checkpoints.close()
    log.close_bar()
    pictures = []

    def show(record, results):
        if len(pictures) < PICTURES:
            pictures.append(experiment.draw(record.image, [record], [results]))

    metrics, _ = evaluate(experiment, state, mesh, show)
    log.write_evaluation(config.steps, metrics, pictures)
    return {
        "step": config.steps,
        "seconds": round(time.monotonic() - PROCESS_START, 1),
        "first_step_seconds": first_step_seconds,
        "images_per_second": log.images_per_second,
        "metrics": metrics,
    }


def _check_finite(losses, step, names):
    broken = [key for key, value in losses.items() if not math.isfinite(value)]
    if broken:
        _stop(f"{broken[-1]} is {float(losses[broken[-1]])}", step, names)


def _check_parameters(state, step, names):
    # A loss can be finite and its gradient not: the next loss would tell, too late.
    values = jax.device_get((state.params, state.batch_stats))
    if not all(np.isfinite(value).all() for value in jax.tree.leaves(values)):
        _stop("a parameter is not finite", step, names)


def _stop(what, step, names):
    raise ValueError(
        f"step {step}: {what}; the last good checkpoint stays; lower "
        "--config.optimizer.learning_rate or look at the records "
        f"{', '.join(map(str, names))}"
    )


class Log:
    """Progress on the terminal, `metrics.jsonl` and TensorBoard.

    Attributes:
        images_per_second: since the first step, which compiles; None before.
    """

    def __init__(self, workdir: pathlib.Path, first: int, config: Any):
        path = workdir / "metrics.jsonl"
        kept = []
        if path.exists():
            # What an interrupted run logged after its last checkpoint is run again.
            lines = path.read_text().splitlines()
            kept = [line for line in lines if _step_of(line) <= first]
        path.write_text("".join(f"{line}\n" for line in kept))
        self._file = path.open("a")
        self._board = tensorboardX.SummaryWriter(
            str(workdir / "tensorboard"), purge_step=first or None
        )
        self._bar = tqdm(
            total=config.steps, initial=first, unit="step", desc="train", disable=None
        )
        self._batch_size = config.batch_size
        self._steps = -1
        self._start = None
        self.images_per_second = None

    def advance(self) -> None:
        now = time.monotonic()
        self._steps += 1
        if self._start is None:
            self._start = now
        else:
            speed = self._steps * self._batch_size / (now - self._start)
            self.images_per_second = round(speed, 2)
        self._bar.update()

    def write(self, step: int, losses: Mapping[str, Any], rate: Any) -> None:
        values = {key: float(value) for key, value in losses.items()}
        values["learning_rate"] = float(rate)
        values["images_per_second"] = self.images_per_second
        self._file.write(json.dumps({"step": step} | values) + "\n")
        self._file.flush()
        for key, value in values.items():
            if value is not None:
                self._board.add_scalar(key, value, step)
        text = f"loss {values['loss']:.4f}, {self.images_per_second} images/s"
        self._bar.set_postfix_str(text)
        if self._bar.disable:
            print(f"step {step}: {text}", flush=True)

    def close_bar(self) -> None:
        self._bar.close()

    def write_evaluation(
        self, step: int, metrics: Mapping[str, float | None], pictures: Sequence[Any]
    ) -> None:
        for key, value in metrics.items():
            if value is not None:
                self._board.add_scalar(f"val/{key}", value, step)
        for number, picture in enumerate(pictures):
            self._board.add_image(f"val/{number}", picture, step, dataformats="HWC")
        self._board.close()
        self._file.close()


def _step_of(line):
    """Step of a logged line; one cut short by a kill counts as after every step."""
    try:
        return json.loads(line)["step"]
    except json.JSONDecodeError:
        return math.inf


if __name__ == "__main__":
    command.run(main, configures=True)
