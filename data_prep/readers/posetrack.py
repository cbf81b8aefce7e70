"""PoseTrack 2018: videos of people, one COCO-style file for each.

Boxes, polygons and keypoints are continuous, as the fractions of its keypoints show,
and nothing is shifted. It does not tell hidden keypoints from visible ones: all that
are labelled count as visible. The `skeleton` in its files is COCO's, whose keypoints
are others, and is not read. The file does not say how fast a video is: a frame lasts
1/25 s.

Source: Andriluka et al., CVPR 2018.
"""

import dataclasses
import functools
import pathlib

import numpy as np

from data_prep.readers import KeypointReading, Source, Tally, coco, keypoints
from data_prep.readers.photos import numbers
from facekp_jax.records import Patch

_FRAMES_PER_SECOND = 25
_MOST_DIGITS = 10  # of a frame's number
_MOST_TRACKS = 2**31  # training counts them in 32 bits


def read(source: Source, tally: Tally) -> KeypointReading:
    """Opens PoseTrack: annotations/SPLIT/*.json, and the pictures that they name.

    --annotations may be a file too, and file names start at the input folder, or at
    --images. A video is a folder of frames, named by their numbers. Frames that are
    said to be unlabelled are left out.

    Raises:
        ValueError: if the files are not there, not PoseTrack's, or of other keypoints.
    """
    paths = _files(source)
    folder = source.image_folder("")
    contents = [coco.load(path) for path in paths]
    kinds = None
    for path, content in zip(paths, contents, strict=True):
        declared = [
            {**category, "skeleton": []} for category in content.get("categories") or []
        ]
        found = coco.types({"categories": declared}, source, path, tally)
        if kinds not in (None, found):
            raise ValueError(f"{path}: categories are not those of {paths[0]}")
        kinds = found
    shift = 0.5 if coco.pixel_indices(contents, tally) else 0.0
    return keypoints.open_photos(
        _entries(contents, tally),
        functools.partial(_instance, shift=shift),
        kinds,
        source,
        tally,
        folder=folder,
        length=sum(len(content["images"]) for content in contents),
    )


def _files(source):
    usual = pathlib.Path(source.folder, "annotations", source.split)
    path = pathlib.Path(source.annotations or usual)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"{path}: no such file or folder; name it with --annotations")
    found = sorted(path.glob("*.json"))
    if not found:
        raise ValueError(f"{path}: no JSON file in it")
    return found


def _entries(contents, tally):
    """The labelled frames, video by video and in time order."""
    frames = []
    for content in contents:
        listed = coco.entries(content, tally, kind="instances")
        for entry, image in zip(listed, content["images"], strict=True):
            if image.get("is_labeled", True):
                frames.append(_frame(entry, image))
            else:
                tally.noted("frames that are not labelled, left out")
                tally.refused(
                    "instances",
                    "on a frame that is not labelled",
                    entry.name,
                    len(entry.annotations),
                )
    frames.sort(key=lambda entry: (entry.video, entry.frame))
    last = None
    for entry in frames:
        if last == (entry.video, entry.frame) and not entry.fault:
            entry = dataclasses.replace(entry, fault="frame number of an earlier frame")
        last = entry.video, entry.frame
        yield entry


def _frame(entry, image):
    path = pathlib.PurePosixPath(entry.name)
    numbered = path.stem.isdecimal() and len(path.stem) <= _MOST_DIGITS
    number = int(path.stem) if numbered else 0
    fault = "" if numbered else "file_name that is no frame number"
    return dataclasses.replace(
        entry,
        fault=entry.fault or fault,
        ignore=_polygons(image),
        video=path.parent.name or str(image.get("vid_id", "")),
        frame=number,
        time=number / _FRAMES_PER_SECOND,
    )


def _polygons(image):
    """x0, y0, x1, y1, ... of each region to ignore; empty where it is none."""
    xs, ys = (image.get(f"ignore_regions_{axis}") or [] for axis in "xy")
    if numbers(xs) and numbers(ys):  # one region
        xs, ys = [xs] if xs else [], [ys] if ys else []
    if not isinstance(xs, list) or not isinstance(ys, list) or len(xs) != len(ys):
        return [[]]
    return [
        [v for point in zip(x, y, strict=True) for v in point]
        if numbers(x) and numbers(y) and len(x) == len(y)
        else []
        for x, y in zip(xs, ys, strict=True)
    ]


def _instance(skeleton, annotation, size, repairs, *, shift):
    found = coco.to_instance(skeleton, annotation, size, repairs, shift=shift)
    if isinstance(found, Patch):
        return found
    points = found.keypoints.copy()
    points[:, 2] = np.where(points[:, 2] > 0, 2, 0)
    track = annotation.get("track_id")
    if type(track) is not int or not 0 <= track < _MOST_TRACKS:
        repairs.append("no track_id that is a number from 0")
        track = None
    scores = annotation.get("scores")
    score = float(np.mean(scores)) if scores and numbers(scores) else 1.0
    return dataclasses.replace(found, keypoints=points, track=track, score=score)
