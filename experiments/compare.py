"""Trains variants of an experiment, each with several seeds, and prints one table.

python -m experiments.compare --exp=NAME --workdir=DIR [--data=DIR] [--seeds=0,1,2]
    --variant="NAME: FIELD=VALUE FIELD=VALUE" [--variant=...] --metric=NAME [...]
    [--config.steps=500 ...]

The runs are kept in the workdir: called again, it goes on where it was stopped.
"""

import json
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from absl import flags

from experiments import PROCESS_START
from experiments.tables import comparison
from facekp_jax import command

_EXP = flags.DEFINE_string("exp", None, "Recipe, as `train` takes it.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of all runs.")
_DATA = flags.DEFINE_string("data", None, "Data set; default: the embedded one.")
_SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds of each variant.")
_VARIANTS = flags.DEFINE_multi_string(
    "variant", [], 'Name and fields of the config, "no graph: rounds=0"; may repeat.'
)
_METRICS = flags.DEFINE_multi_string(
    "metric", [], "Of the evaluation, a column of the table; may repeat."
)


def main(overrides: Mapping[str, str]) -> dict[str, Any]:
    for name, value in (
        ("exp", _EXP.value),
        ("workdir", _WORKDIR.value),
        ("variant", _VARIANTS.value),
        ("metric", _METRICS.value),
    ):
        if not value:
            raise command.UsageError(f"no {name} to compare; give --{name}")
    variants = {}
    for text in _VARIANTS.value:
        name, fields = _variant(text)
        if name in variants:
            raise command.UsageError(f"--variant={name} comes twice; rename one")
        variants[name] = dict(overrides) | fields
    workdir = pathlib.Path(_WORKDIR.value)
    command.make_folder("workdir", workdir)
    runs = {name: {metric: [] for metric in _METRICS.value} for name in variants}
    for seed in _SEEDS.value:
        for name, fields in variants.items():
            folder = workdir / re.sub(r"\W+", "-", f"{name}-{seed}")
            print(f"{name}, seed {seed}: {folder}", flush=True)
            metrics = _metrics(folder, fields | {"seed": seed})
            for metric in _METRICS.value:
                if metric not in metrics:
                    raise command.UsageError(
                        f"--metric={metric} is not measured; take some of "
                        f"{', '.join(metrics)}"
                    )
                runs[name][metric].append(metrics[metric])
        print(comparison(runs), flush=True)
    return {
        "experiment": _EXP.value,
        "workdir": str(workdir),
        "seconds": round(time.monotonic() - PROCESS_START, 1),
        "seeds": _SEEDS.value,
        "variants": runs,
    }


def _variant(text):
    name, _, fields = text.partition(":")
    pairs = [field.partition("=") for field in fields.split()]
    if not name.strip() or not all(key and found for key, found, _ in pairs):
        raise command.UsageError(
            f'--variant={text!r} is not "NAME: FIELD=VALUE FIELD=VALUE"'
        )
    return name.strip(), {key: value for key, _, value in pairs}


def _metrics(folder, fields):
    """Metrics of the run in a folder, which is trained, or trained on, if need be."""
    arguments = [f"--exp={_EXP.value}"]
    if _DATA.value is not None:
        arguments.append(f"--data={_DATA.value}")
    arguments += [f"{command.CONFIG}{key}={value}" for key, value in fields.items()]
    path = folder.with_name(f"{folder.name}.json")
    record = {"arguments": arguments}
    if path.exists():
        record = json.loads(path.read_text())
        if record["arguments"] != arguments:
            raise command.UsageError(
                f"{folder} was trained with {' '.join(record['arguments'])}; give "
                "another --workdir, or delete it"
            )
    if "metrics" not in record:
        if (folder / "config.json").exists():
            arguments = ["--resume"]
        path.write_text(json.dumps(record) + "\n")
        train = [sys.executable, "-m", "experiments.train", f"--workdir={folder}"]
        done = subprocess.run([*train, *arguments], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise ValueError(f"the training in {folder} failed; see above")
        record |= json.loads(done.stdout.splitlines()[-1])
        path.write_text(json.dumps(record) + "\n")
    return record["metrics"]


if __name__ == "__main__":
    command.run(main, configures=True)
