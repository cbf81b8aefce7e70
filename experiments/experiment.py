"""The seam between commands and recipes: what an experiment is.

A recipe is a module with a frozen dataclass `Config` and a function
`build(config, data) -> Experiment`, where `data` is a data set's folder or None for the
embedded default. Commands know nothing else of it.
"""

import dataclasses
import importlib
import importlib.util
import json
import pathlib
import pkgutil
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle
import flax.linen as nn
import numpy as np
import optax
from jax.sharding import Mesh

from experiments import recipes
from experiments.configs import from_dict, override, to_dict
from facekp_jax.checkpoints import Checkpoints
from facekp_jax.command import UsageError
from facekp_jax.losses import Term
from facekp_jax.training import TrainState, create_state


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything that train, evaluate and predict need."""

    config: Any  # resolved: what the data set decides is filled in
    source: Callable[[str], Any]  # split ("train", "val") -> records, len and []
    blank: Any  # a record without truth, for the shapes; it needs no data set
    # (record, rng) -> arrays; with an rng for training: augmented, and the `name`.
    sample: Callable[[Any, np.random.Generator | None], Mapping[str, np.ndarray]]
    model: (
        nn.Module
    )  # model(batch, train) -> outputs; the parameters do not depend on it
    schedule: optax.Schedule  # step -> learning rate
    optimizer: optax.GradientTransformation
    targets: Callable[[Mapping, Mapping], Mapping]  # (outputs, batch) -> batch
    losses: Sequence[Term]
    decode: Callable[[Mapping], Mapping]  # outputs -> arrays of fixed shape, in jit
    results: Callable[[Any, Mapping], Any]  # (record, decoded of one) -> in the photo
    metrics: Callable[[], Any]  # -> accumulator: update(record, results), result()
    naive: Callable[[Any], Any]  # record -> results of the baseline
    # Prediction: for a detector's specification, "" for that of the training, a
    # function (name, photo) -> records to run; then of (photo, records, results of
    # each) the overlay, and JSON with more pictures by their file name.
    detector: Callable[[str], Callable[[str, np.ndarray], Sequence[Any]]]
    draw: Callable[[np.ndarray, Sequence, Sequence], np.ndarray]
    describe: Callable[[np.ndarray, Sequence, Sequence], tuple[dict, Mapping]]
    # Of (photo's name, its number from 1, records, results): entries of one file of
    # COCO results for all photos; None: there is no such file.
    coco: Callable[[str, int, Sequence, Sequence], list[dict]] | None = None
    # Of (records, results): how many instances were found.
    count: Callable[[Sequence, Sequence], int] = lambda records, results: len(records)
    details: Callable[[Any], str] = lambda metrics: ""  # what `evaluate` also prints


def load_recipe(name: str) -> types.ModuleType:
    """The recipe of a name, a dotted module or the path of a `.py` file.

    Raises:
        UsageError: if there is no such recipe; the message lists those that exist.
    """
    if name.endswith(".py"):
        path = pathlib.Path(name)
        if not path.is_file():
            raise UsageError(f"no recipe file {name}; give the path of one to --exp")
        spec = importlib.util.spec_from_file_location(f"recipe {path}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where dataclasses look their types up
        spec.loader.exec_module(module)
        # A worker process cannot import it by that name.
        cloudpickle.register_pickle_by_value(module)
    else:
        known = sorted(info.name for info in pkgutil.iter_modules(recipes.__path__))
        dotted = name if "." in name else f"{recipes.__name__}.{name}"
        # A path that lacks its suffix, such as ./my_recipe, is no relative import.
        dotted = dotted.lstrip(".")
        try:
            module = importlib.import_module(dotted)
        except ModuleNotFoundError as error:
            if error.name is None or not dotted.startswith(error.name):
                raise
            raise UsageError(
                f"unknown experiment {name!r}; --exp takes one of {', '.join(known)}, "
                "a dotted module or the path of a .py file"
            ) from None
    for part in ("Config", "build"):
        if not hasattr(module, part):
            raise UsageError(f"{name} is no recipe: it defines no {part}")
    return module


def recorded_name(name: str) -> str:
    """A recipe's name as a run keeps it: a file by its whole path."""
    return str(pathlib.Path(name).absolute()) if name.endswith(".py") else name


def write_run(workdir: pathlib.Path, name: str, data: str | None, config: Any) -> None:
    """Writes `config.json`, enough to rebuild the run."""
    if data is not None:
        data = str(pathlib.Path(data).absolute())
    run = {
        "experiment": recorded_name(name),
        "data": data,
        "config": to_dict(config),
    }
    (workdir / "config.json").write_text(json.dumps(run, indent=2) + "\n")


def read_run(workdir: pathlib.Path) -> tuple[str, str | None, dict[str, Any]]:
    """(recipe name, data folder or None, config as a dictionary) of a run.

    Raises:
        UsageError: if the folder holds no run.
    """
    path = workdir / "config.json"
    if not path.is_file():
        raise UsageError(
            f"{workdir} is no workdir: it has no config.json; "
            "give --workdir the folder that a training made"
        )
    try:
        run = json.loads(path.read_text())
        return str(run["experiment"]), run["data"], run["config"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is damaged ({error!r}); train again") from None


def load_experiment(
    workdir: pathlib.Path,
    overrides: Mapping[str, str],
    choose: Callable[[str | None], str | None] = lambda recorded: None,
) -> tuple[str, Experiment]:
    """(name, experiment) of a trained workdir, fields of its config overridden.

    `choose` is given the folder of the training's data set, or None, and gives the one
    to open; by default none, for prediction must work where the data is not.
    """
    name, recorded, config = read_run(workdir)
    recipe = load_recipe(name)
    config = override(from_dict(recipe.Config, config), overrides)
    return name, recipe.build(config, choose(recorded))


def initial_state(experiment: Experiment, mesh: Mesh) -> TrainState:
    """State before the first step."""
    sample = experiment.sample(experiment.blank, None)
    batch = {key: value[None] for key, value in sample.items()}
    return create_state(
        experiment.model, experiment.optimizer, batch, experiment.config.seed, mesh
    )


def restore(
    workdir: pathlib.Path, experiment: Experiment, mesh: Mesh
) -> tuple[TrainState, int]:
    """(state, step) of a run's newest whole checkpoint; says which were damaged."""
    checkpoints = Checkpoints(workdir / "checkpoints")
    state, step, messages = checkpoints.restore_latest(initial_state(experiment, mesh))
    checkpoints.close()
    for message in messages:
        print(message, file=sys.stderr)
    return state, step


def one(decoded: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Of a decoded batch, the arrays of one image."""
    return {key: value[index] for key, value in decoded.items()}
