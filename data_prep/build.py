"""Builds a data set from photos and their annotations.

    python -m data_prep.build --source=coco --input=DIR --output=DIR --split=train

A second call with another --split adds it to the same data set. Annotations with
keypoints make a data set of keypoint images, others one of lesion images. docs/data.md
describes the sources and what is done with what does not fit.
"""

import collections
import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import flags
from tqdm import tqdm

from data_prep import forms
from data_prep.readers import (
    KeypointReading,
    Source,
    Tally,
    coco,
    deeplabcut,
    dlib,
    labelstudio,
    lsp,
    posetrack,
    sleap,
    voc,
    yolo,
)
from facekp_jax import command, faces, keypoint_images, lesion_images, skeletons

READERS = {
    "coco": coco,
    "yolo": yolo,
    "voc": voc,
    "lsp": lsp,
    "posetrack": posetrack,
    "deeplabcut": deeplabcut,
    "sleap": sleap,
    "labelstudio": labelstudio,
    "dlib": dlib,
}

_SOURCE = flags.DEFINE_string("source", "coco", f"one of {', '.join(READERS)}")
_INPUT = flags.DEFINE_string("input", None, "folder to read")
_OUTPUT = flags.DEFINE_string("output", None, "folder of the data set to write")
_SPLIT = flags.DEFINE_string("split", "train", "name of the split to write")
_ANNOTATIONS = flags.DEFINE_string(
    "annotations",
    None,
    "another place of the annotations, a file or a folder [coco: "
    "INPUT/annotations.json; of each source: docs/data.md]",
)
_IMAGES = flags.DEFINE_string(
    "images",
    None,
    "another folder of the pictures [coco: INPUT/images; of each source: docs/data.md]",
)
_GROUP = flags.DEFINE_string(
    "group",
    "category",
    "what makes a branch or a target type: each category, each supercategory, or "
    "all:NAME for one, NAME, of all categories",
)
_NONE = flags.DEFINE_list(
    "none", [], "categories that say that there is nothing: never a branch or a type"
)
_SKELETON = flags.DEFINE_string(
    "skeleton",
    None,
    f"what the keypoints are and what joins them: {', '.join(skeletons.KNOWN)}, or a "
    "skeleton file [what the source says]",
)
_FACE_DETECTOR = flags.DEFINE_string(
    "face_detector",
    "haar",
    "of lesion images: haar, yunet:PATH, or whole: the picture is the face",
)
_APPLY_EXIF = flags.DEFINE_bool(
    "apply_exif", True, "turn photos upright; not if annotations are of raw pixels"
)
_STRICT = flags.DEFINE_bool("strict", False, "stop at the first fault in the input")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "replace a split of this name")


def main(_: Mapping[str, str]) -> dict[str, Any]:
    started = time.monotonic()
    tally = Tally(strict=_STRICT.value)
    with _usage():
        detect = faces.detector(_FACE_DETECTOR.value)
        reading = _read(tally)
    if isinstance(reading, KeypointReading):
        counts = _write_keypoints(reading, tally)
    else:
        counts = _write_regions(reading, tally, detect)
    return {
        "experiment": None,
        "output": _OUTPUT.value,
        "split": _SPLIT.value,
        "counts": {**tally.counts, "notes": dict(tally.notes), **counts},
        "seconds": round(time.monotonic() - started, 3),
    }


@contextlib.contextmanager
def _usage():
    """A ValueError in it is a mistake of the command line."""
    try:
        yield
    except ValueError as error:
        raise command.UsageError(str(error)) from error


def _read(tally):
    for name in ("input", "output"):
        if not flags.FLAGS[name].value:
            raise ValueError(f"--{name}=DIR is missing")
    if not pathlib.Path(_INPUT.value).is_dir():
        raise ValueError(f"--input={_INPUT.value}: no such folder")
    if _SOURCE.value not in READERS:
        raise ValueError(f"--source={_SOURCE.value}: use one of {', '.join(READERS)}")
    source = Source(
        folder=_INPUT.value,
        split=_SPLIT.value,
        annotations=_ANNOTATIONS.value,
        images=_IMAGES.value,
        group=_GROUP.value,
        none=_NONE.value,
        skeleton=skeletons.load(_SKELETON.value) if _SKELETON.value else None,
        apply_exif=_APPLY_EXIF.value,
    )
    reading = READERS[_SOURCE.value].read(source, tally)
    read_for_keypoints = isinstance(reading, KeypointReading)
    unused = _FACE_DETECTOR if read_for_keypoints else _SKELETON
    if unused.present:
        why = "is read for keypoints" if read_for_keypoints else "has no keypoints"
        raise ValueError(
            f"--{unused.name}={unused.value}: --source={_SOURCE.value} {why}; leave it "
            "out"
        )
    return reading


def _write_regions(reading, tally, detect):
    settings = {
        "face_detector": _FACE_DETECTOR.value,
        "apply_exif": _APPLY_EXIF.value,
        "overwrite": _OVERWRITE.value,
    }
    with _usage():
        lesion_images.check_writable(_OUTPUT.value, _SPLIT.value, **settings)
    found = collections.Counter()
    with tally.printed():
        lesion_images.write(
            _OUTPUT.value,
            _SPLIT.value,
            _with_faces(_shown(reading), detect, found),
            branches=reading.branches,
            **settings,
        )
    written = lesion_images.LesionImages(_OUTPUT.value, _SPLIT.value)
    branches = written.counts[_SPLIT.value]["branches"]
    print(f"photos without a region (true negatives): {found['empty']:,}")
    print(f"photos without a face found (whole picture taken): {found['no_face']:,}")
    for branch, number in branches.items():
        print(f"branch {branch}: {number:,} regions")
    return {
        "branches": branches,
        "photos_without_regions": found["empty"],
        "photos_without_face": found["no_face"],
    }


def _with_faces(photos, detect, found):
    """The photos, each with its largest face; `found` counts what is special."""
    for photo, data in photos:
        detected = detect(photo.image)
        found["no_face"] += len(detected) == 0
        found["empty"] += not photo.regions
        height, width = photo.image.shape[:2]
        face = detected[0] if len(detected) else np.float32([0, 0, width, height])
        yield dataclasses.replace(photo, face=face), data


def _write_keypoints(reading, tally):
    settings = {
        "skeletons": reading.skeletons,
        "apply_exif": _APPLY_EXIF.value,
        "overwrite": _OVERWRITE.value,
    }
    with _usage():
        keypoint_images.check_writable(_OUTPUT.value, _SPLIT.value, **settings)
    with tally.printed():
        keypoint_images.write(_OUTPUT.value, _SPLIT.value, _shown(reading), **settings)
    written = keypoint_images.KeypointImages(_OUTPUT.value, _SPLIT.value)
    counts = written.counts[_SPLIT.value]
    if counts["videos"]:
        print(f"videos: {counts['videos']:,}")
    for skeleton in reading.skeletons:
        _describe(skeleton, counts["skeletons"][skeleton.name])
    return {"videos": counts["videos"], "skeletons": counts["skeletons"]}


def _describe(skeleton, counts):
    """Prints what was found of a target type, and what its skeleton lacks."""
    print(f"type {skeleton.name}: {counts['instances']:,} instances")
    parts = skeletons.components(skeleton)
    if parts > 1:
        print(f"  its skeleton is in {parts} parts that no edge joins")
    if skeleton.mirror is None:
        print("  its mirror pairs are not known, so that pictures cannot be mirrored")
    for line in forms.keypoint_table(counts):
        print(f"  {line}")


def _shown(reading):
    # The reader skips what it refuses, so the bar may end before its length.
    return tqdm(reading.photos, total=reading.length, unit="photo", disable=None)


if __name__ == "__main__":
    command.run(main)
