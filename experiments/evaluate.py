"""Measures a trained run, beside a naive baseline, on pictures that it has not seen.

python -m experiments.evaluate --workdir=DIR [--data=DIR] [--config.score=0.3 ...]
"""

import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
from absl import flags
from jax.sharding import Mesh
from tqdm import tqdm

from experiments import PROCESS_START
from experiments.experiment import Experiment, load_experiment, one, restore
from experiments.tables import shown
from facekp_jax import command
from facekp_jax.input import evaluation_batches
from facekp_jax.training import TrainState, data_mesh, make_predict_step, shard_batch

WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of the run; train makes and names a fresh one by default."
)
DATA = flags.DEFINE_string(
    "data",
    None,
    "Data set made by data_prep.build; default: the run's own, or the embedded one.",
)


def evaluate(
    experiment: Experiment,
    state: TrainState,
    mesh: Mesh,
    show: Callable[[Any, Any], None] = lambda record, results: None,
) -> tuple[dict[str, float | None], float | None]:
    """Metrics on the split `val`, the baseline's as `naive/...`, and images per second.

    `show` is called with every record and its results.
    """
    predict = make_predict_step(experiment.model, experiment.decode)
    metrics, naive = experiment.metrics(), experiment.metrics()
    source = experiment.source("val")
    seconds = 0.0
    progress = tqdm(total=len(source), unit="image", desc="evaluate", disable=None)
    batches = evaluation_batches(
        source, experiment.sample, batch_size=experiment.config.batch_size
    )
    for number, (records, batch) in enumerate(batches):
        start = time.monotonic()
        decoded = jax.device_get(predict(state, shard_batch(batch, mesh)))
        if number:  # the first one compiles
            seconds += time.monotonic() - start
        for index, record in enumerate(records):
            results = experiment.results(record, one(decoded, index))
            metrics.update(record, results)
            naive.update(record, experiment.naive(record))
            show(record, results)
        progress.update(len(records))
    progress.close()
    measured = metrics.result()
    # Counts are of the truth, the same for both.
    baseline = {k: v for k, v in naive.result().items() if not isinstance(v, int)}
    print(_table(measured, baseline))
    print(experiment.details(metrics), end="")
    measured |= {f"naive/{key}": value for key, value in baseline.items()}
    rest = max(len(source) - experiment.config.batch_size, 0)
    return measured, rest / seconds if seconds else None


def _table(metrics, naive):
    """One line for each metric: the model's value, the baseline's."""
    rows = [("", "model", "naive")]
    rows += [
        (k, shown(v), shown(naive[k]) if k in naive else "") for k, v in metrics.items()
    ]
    longest = max(len(name) for name, _, _ in rows) + 2
    return "\n".join(
        f"{name:{longest}}{ours:>10}{theirs:>10}" for name, ours, theirs in rows
    )


def main(overrides: Mapping[str, str]) -> dict[str, Any]:
    command.use_compilation_cache()
    if WORKDIR.value is None:
        raise command.UsageError("no workdir; give --workdir the folder of a training")
    workdir = pathlib.Path(WORKDIR.value)
    name, experiment = load_experiment(
        workdir, overrides, lambda recorded: DATA.value or recorded
    )
    mesh = data_mesh()
    state, step = restore(workdir, experiment, mesh)
    metrics, images_per_second = evaluate(experiment, state, mesh)
    return {
        "experiment": name,
        "workdir": str(workdir),
        "step": step,
        "seconds": round(time.monotonic() - PROCESS_START, 1),
        "first_step_seconds": None,
        "images_per_second": images_per_second and round(images_per_second, 2),
        "metrics": metrics,
    }


if __name__ == "__main__":
    command.run(main, configures=True)
