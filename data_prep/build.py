"""Builds a data set from photos and their annotations.

    python -m data_prep.build --source=coco --input=DIR --output=DIR --split=train

A second call with another --split adds it to the same data set. docs/data.md describes
the sources and what is done with what does not fit.
"""

import collections
import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import flags
from tqdm import tqdm

from data_prep.readers import Tally, coco, voc, yolo
from facekp_jax import command, datasets, faces

READERS = {"coco": coco, "yolo": yolo, "voc": voc}

_SOURCE = flags.DEFINE_string("source", "coco", f"one of {', '.join(READERS)}")
_INPUT = flags.DEFINE_string("input", None, "folder to read")
_OUTPUT = flags.DEFINE_string("output", None, "folder of the data set to write")
_SPLIT = flags.DEFINE_string("split", "train", "name of the split to write")
_ANNOTATIONS = flags.DEFINE_string(
    "annotations",
    None,
    "coco: the file [INPUT/annotations.json]; yolo: the file of names "
    "[INPUT/data.yaml]; voc: the folder [INPUT/Annotations]",
)
_IMAGES = flags.DEFINE_string(
    "images",
    None,
    "folder of pictures [coco: INPUT/images; yolo: what data.yaml says, or "
    "INPUT/SPLIT/images; voc: INPUT/JPEGImages]",
)
_GROUP = flags.DEFINE_string(
    "group",
    "category",
    "what makes a branch: each category, each supercategory, or all:NAME for one "
    "branch NAME of all categories",
)
_NONE = flags.DEFINE_list(
    "none", [], "categories that say that there is nothing: never a branch"
)
_FACE_DETECTOR = flags.DEFINE_string(
    "face_detector", "haar", "haar, yunet:PATH, or whole: the picture is the face"
)
_APPLY_EXIF = flags.DEFINE_bool(
    "apply_exif", True, "turn photos upright; not if annotations are of raw pixels"
)
_STRICT = flags.DEFINE_bool("strict", False, "stop at the first fault in the input")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "replace a split of this name")


def main(_: Mapping[str, str]) -> dict[str, Any]:
    started = time.monotonic()
    tally = Tally(strict=_STRICT.value)
    try:
        detect, reading = _prepare(tally)
    except ValueError as error:
        raise command.UsageError(str(error)) from error
    found = collections.Counter()
    datasets.write(
        _OUTPUT.value,
        _SPLIT.value,
        _with_faces(reading, detect, found),
        branches=reading.branches,
        face_detector=_FACE_DETECTOR.value,
        apply_exif=_APPLY_EXIF.value,
        overwrite=_OVERWRITE.value,
    )
    written = datasets.LesionImages(_OUTPUT.value, _SPLIT.value)
    counts = written.counts[_SPLIT.value]
    print(tally.table())
    print(f"photos without a region (true negatives): {found['empty']:,}")
    print(f"photos without a face found (whole picture taken): {found['no_face']:,}")
    for branch, number in counts["branches"].items():
        print(f"branch {branch}: {number:,} regions")
    return {
        "experiment": None,
        "output": _OUTPUT.value,
        "split": _SPLIT.value,
        "counts": {
            **tally.counts,
            "notes": dict(tally.notes),
            "branches": counts["branches"],
            "photos_without_regions": found["empty"],
            "photos_without_face": found["no_face"],
        },
        "seconds": round(time.monotonic() - started, 3),
    }


def _prepare(tally):
    for name in ("input", "output"):
        if not flags.FLAGS[name].value:
            raise ValueError(f"--{name}=DIR is missing")
    if not pathlib.Path(_INPUT.value).is_dir():
        raise ValueError(f"--input={_INPUT.value}: no such folder")
    if _SOURCE.value not in READERS:
        raise ValueError(f"--source={_SOURCE.value}: use one of {', '.join(READERS)}")
    detect = faces.detector(_FACE_DETECTOR.value)
    datasets.check_writable(
        _OUTPUT.value,
        _SPLIT.value,
        _FACE_DETECTOR.value,
        _APPLY_EXIF.value,
        _OVERWRITE.value,
    )
    reading = READERS[_SOURCE.value].read(
        _INPUT.value,
        tally,
        split=_SPLIT.value,
        annotations=_ANNOTATIONS.value,
        image_folder=_IMAGES.value,
        group=_GROUP.value,
        none=_NONE.value,
        apply_exif=_APPLY_EXIF.value,
    )
    return detect, reading


def _with_faces(reading, detect, found):
    """The photos, each with its largest face; `found` counts what is special."""
    # The reader skips what it refuses, so the bar may end before its length.
    for photo, data in tqdm(
        reading.photos, total=reading.length, unit="photo", disable=None
    ):
        detected = detect(photo.image)
        found["no_face"] += len(detected) == 0
        found["empty"] += not photo.regions
        height, width = photo.image.shape[:2]
        face = detected[0] if len(detected) else np.float32([0, 0, width, height])
        yield dataclasses.replace(photo, face=face), data


if __name__ == "__main__":
    command.run(main)
