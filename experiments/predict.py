"""Runs a trained experiment on a photo, on a video, or on all those of a folder.

python -m experiments.predict --workdir=DIR --input=PATH --output=DIR
    [--detector=haar|whole|yunet:PATH] [--config.score=0.3 ...]

For each photo: `NAME.json`, `NAME.overlay.png`, and in the folder `NAME` the sub-images
that the JSON names. Each frame of a video is a photo `VIDEO.000012`. Of keypoints also
`coco_results.json`, those of all photos.
"""

import json
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags
from tqdm import tqdm

from experiments import PROCESS_START
from experiments.experiment import Experiment, load_experiment, one, restore
from facekp_jax import command, images, video
from facekp_jax.input import evaluation_batches
from facekp_jax.training import data_mesh, make_predict_step, shard_batch

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the training.")
_INPUT = flags.DEFINE_string("input", None, "A photo, a video, or a folder of them.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder to write to.")
_DETECTOR = flags.DEFINE_string(
    "detector",
    "",
    "What to look at. Of faces: haar, whole or yunet:PATH; default: that of the "
    "training. Of people and animals: whole, or a COCO file of boxes; default: whole.",
)


def main(overrides: Mapping[str, str]) -> dict[str, Any]:
    command.use_compilation_cache()
    for flag in (_WORKDIR, _INPUT, _OUTPUT):
        if flag.value is None:
            raise command.UsageError(f"--{flag.name} is missing; give it a path")
    paths = images.list_images(_INPUT.value, images.SUFFIXES + video.SUFFIXES)
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
    detect = experiment.detector(_DETECTOR.value)
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
        "files": len(paths),
        "photos": 0,  # and frames of videos
        "other_files": others,
        "unreadable": 0,
        "without_instance": 0,
        "instances": 0,
    }
    coco = []
    start = time.monotonic()
    progress = tqdm(unit="photo", desc="predict", disable=None)
    for path in paths:
        try:
            for photo in _photos(path, experiment.config.apply_exif):
                records = list(detect(photo.name, photo.image))
                found = records, find(records)
                counts["photos"] += 1
                number = experiment.count(*found)
                counts["instances"] += number
                counts["without_instance"] += not number
                _write(output, photo, *found, experiment)
                if experiment.coco:
                    coco += experiment.coco(photo.name, counts["photos"], *found)
                progress.update()
        except Unreadable as error:
            if len(paths) == 1:
                raise
            print(f"skipped: {error}", file=sys.stderr)
            counts["unreadable"] += 1
    progress.close()
    if counts["unreadable"] == len(paths):
        raise ValueError(f"{_INPUT.value}: none of its {len(paths)} files can be read")
    if experiment.coco:
        (output / "coco_results.json").write_text(json.dumps(coco) + "\n")
    seconds = time.monotonic() - start
    return {
        "experiment": name,
        "workdir": str(workdir),
        "output": str(output),
        "step": step,
        "seconds": round(time.monotonic() - PROCESS_START, 1),
        "images_per_second": round(counts["photos"] / seconds, 2),
        "counts": counts,
    }


class Unreadable(ValueError):
    """A file that is no picture and no video, or a damaged one."""


class Photo(NamedTuple):
    """A photo, or a frame of a video."""

    name: str  # of its results
    image: np.ndarray  # uint8 [H, W, 3]
    described: dict[str, Any]  # how its JSON says where it comes from


def _photos(path: pathlib.Path, apply_exif: bool) -> Iterator[Photo]:
    """The photo of a file, or a video's frames."""
    try:
        # The whole file name: a.jpg and a.png are two photos.
        if path.suffix.lower() not in video.SUFFIXES:
            image = images.read(path, apply_exif=apply_exif)
            yield Photo(path.name, image, {"photo": path.name})
            return
        frames = video.frames(path)
    except ValueError as error:
        raise Unreadable(str(error)) from error
    for number, seconds, image in frames:
        where = {"video": path.name, "frame": number, "time": round(seconds, 6)}
        yield Photo(f"{path.name}.{number:06d}", image, where)
    if frames.shortfall:
        print(frames.shortfall, file=sys.stderr)


def _write(output, photo, records, results, experiment: Experiment):
    described, pictures = experiment.describe(photo.image, records, results)
    folder = output / photo.name
    for old in folder.glob("*.png"):  # of an earlier run, that found other regions
        old.unlink()
    for picture, pixels in pictures.items():
        folder.mkdir(exist_ok=True)
        (folder / picture).write_bytes(images.encode_png(pixels))
    text = json.dumps(photo.described | described, allow_nan=False)
    (output / f"{photo.name}.json").write_text(text + "\n")
    drawn = experiment.draw(photo.image, records, results)
    (output / f"{photo.name}.overlay.png").write_bytes(images.encode_png(drawn))


if __name__ == "__main__":
    command.run(main, configures=True)
