"""Runs a trained experiment on a photo, or on every photo of a folder.

python -m experiments.predict --workdir=DIR --input=PATH --output=DIR
    [--face_detector=haar|whole|yunet:PATH] [--config.score=0.3 ...]

For each photo: `NAME.json`, `NAME.overlay.png`, and in the folder `NAME` the sub-images
that the JSON names.
"""

import json
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax
from absl import flags
from tqdm import tqdm

from experiments import PROCESS_START
from experiments.experiment import Experiment, load_experiment, one, restore
from facekp_jax import command, images
from facekp_jax.input import evaluation_batches
from facekp_jax.training import data_mesh, make_predict_step, shard_batch

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the training.")
_INPUT = flags.DEFINE_string("input", None, "A photo, or a folder of photos.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder to write to.")
_FACE_DETECTOR = flags.DEFINE_string(
    "face_detector", "", "haar, whole or yunet:PATH; default: that of the training."
)


def main(overrides: Mapping[str, str]) -> dict[str, Any]:
    command.use_compilation_cache()
    for flag in (_WORKDIR, _INPUT, _OUTPUT):
        if flag.value is None:
            raise command.UsageError(f"--{flag.name} is missing; give it a path")
    paths = images.list_images(_INPUT.value)
    folder = pathlib.Path(_INPUT.value)
    files = sum(p.is_file() for p in folder.iterdir()) if folder.is_dir() else 1
    others = files - len(paths)  # no pictures, by their suffix
    workdir, output = pathlib.Path(_WORKDIR.value), pathlib.Path(_OUTPUT.value)
    if output.resolve() == paths[0].parent.resolve():
        raise command.UsageError(
            f"--output={output} is the folder of the photos; the overlays would be "
            "photos the next time: name another"
        )
    command.make_folder("output", output)
    name, experiment = load_experiment(workdir, overrides)
    detect = experiment.detector(_FACE_DETECTOR.value)
    mesh = data_mesh()
    state, step = restore(workdir, experiment, mesh)
    predict = make_predict_step(experiment.model, experiment.decode)

    def find(records):
        """Results of each record; as many at once as there are devices."""
        results = []
        batches = evaluation_batches(records, experiment.sample, batch_size=mesh.size)
        for part, batch in batches:
            decoded = jax.device_get(predict(state, shard_batch(batch, mesh)))
            results += [
                experiment.results(record, one(decoded, index))
                for index, record in enumerate(part)
            ]
        return results

    counts = {
        "photos": len(paths),
        "other_files": others,
        "unreadable": 0,
        "without_instance": 0,
        "instances": 0,
    }
    start = time.monotonic()
    for path in tqdm(paths, unit="photo", desc="predict", disable=None):
        try:
            photo = images.read(path, apply_exif=experiment.config.apply_exif)
        except ValueError as error:
            if len(paths) == 1:
                raise
            print(f"skipped: {error}", file=sys.stderr)
            counts["unreadable"] += 1
            continue
        records = list(detect(path.name, photo))
        counts["instances"] += len(records)
        counts["without_instance"] += not records
        _write(output, path, photo, records, find(records), experiment)
    if counts["unreadable"] == len(paths):
        raise ValueError(f"{_INPUT.value}: none of its {len(paths)} photos can be read")
    seconds = time.monotonic() - start
    return {
        "experiment": name,
        "workdir": str(workdir),
        "output": str(output),
        "step": step,
        "seconds": round(time.monotonic() - PROCESS_START, 1),
        "images_per_second": round(len(paths) / seconds, 2),
        "counts": counts,
    }


def _write(output, path, photo, records, results, experiment: Experiment):
    # The whole file name: a.jpg and a.png are two photos.
    stem = path.name
    described, pictures = experiment.describe(photo, records, results)
    folder = output / stem
    for old in folder.glob("*.png"):  # of an earlier run, that found other regions
        old.unlink()
    for picture, pixels in pictures.items():
        folder.mkdir(exist_ok=True)
        (folder / picture).write_bytes(images.encode_png(pixels))
    text = json.dumps({"photo": path.name} | described, allow_nan=False)
    (output / f"{stem}.json").write_text(text + "\n")
    drawn = experiment.draw(photo, records, results)
    (output / f"{stem}.overlay.png").write_bytes(images.encode_png(drawn))


if __name__ == "__main__":
    command.run(main, configures=True)
