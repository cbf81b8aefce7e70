"""YOLO text files, in the layout of Ultralytics: boxes, polygons and keypoints.

A photo `.../images/NAME.jpg` has its labels in `.../labels/NAME.txt`, one per line:
`class cx cy w h` is a box, a class and three or more points `x y` are a polygon. All
are parts of the picture's width and height, continuous with (0, 0) at its top-left
corner, as here: they are multiplied by the size and nothing is shifted. A photo without
a label file has no objects; that is how Ultralytics reads it too.

data.yaml names the classes (`names`) and may say where the splits are. With its
`kpt_shape: [K, 3]` a line is a box and K times `x y visibility`; with `[K, 2]` a
keypoint at (0, 0) is unlabelled and any other visible. `flip_idx` gives the mirror
pairs. YOLO knows no edges: --skeleton has them, unless `kpt_names` are those of a known
skeleton.
"""

import dataclasses
import functools
import os
import pathlib
from typing import NamedTuple

import numpy as np

from data_prep.readers import KeypointReading, Reading, Source, Tally, keypoints
from data_prep.readers.categories import Categories, categories
from data_prep.readers.files import read_yaml
from data_prep.readers.photos import (
    Annotation,
    Entry,
    clip_box,
    inside,
    open_photos,
    with_pixels,
)
from facekp_jax import images, masks
from facekp_jax.records import Region
from facekp_jax.skeletons import Skeleton

_SLACK = 0.01  # of the picture; further outside, a number is no part of it


def read(source: Source, tally: Tally) -> Reading | KeypointReading:
    """Opens one split of a YOLO data set: data.yaml and the splits.

    The pictures are where data.yaml says, if that is in the folder, else in
    SPLIT/images, images/SPLIT, or images. Without data.yaml the group must be
    "all:NAME". With `kpt_shape` there it is read for keypoints.

    Raises:
        ValueError: if the files are not there or not YOLO's, or nothing joins the
            keypoints.
    """
    folder = pathlib.Path(source.folder)
    where = folder / "data.yaml"
    if source.annotations:
        where = source.annotation_file("data.yaml")
    content = _load(where) if where.is_file() else {}
    kinds = categories(
        _declared(content, where), group=source.group, none=source.none, where=where
    )
    pose = _pose(content, kinds, source, where)
    if source.images:
        folders = [source.image_folder()]
    else:
        folders = _image_folders(folder, source.split, content)
    root = pathlib.Path(os.path.commonpath(folders))
    found = [f for part in folders for f in sorted(part.rglob("*"))]
    if links := sum(f.is_symlink() and f.is_dir() for f in found):
        tally.noted("links to other folders, not followed", links)
    files = [f for f in found if f.is_file()]
    photos = [f for f in files if f.suffix.lower() in images.SUFFIXES]
    labels = [_label_file(photo) for photo in photos]
    if not any(label.is_file() for label in labels):
        # Taken for true negatives, all of them would be wrong.
        looked = f"; looked for {labels[0]}" if labels else ""
        raise ValueError(f"{root}: no photo with a label file{looked}")
    if others := set(files) - {*photos, *labels}:
        tally.noted("files that are no pictures, not read", len(others))
    if pose:
        return keypoints.open_photos(
            _entries(photos, labels, root, tally, kind="instances"),
            functools.partial(_instance, dimensions=pose.dimensions),
            pose.skeletons,
            source,
            tally,
            folder=root,
            length=len(photos),
        )
    return open_photos(
        _entries(photos, labels, root, tally, kind="regions"),
        _region,
        kinds,
        source,
        tally,
        folder=root,
        length=len(photos),
    )


def _load(path):
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a YOLO data set's; it has no names")
    return content


def _declared(content, path):
    """The classes in the form of COCO's categories."""
    names = content.get("names") or {}
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict) or not all(_is_class(i) for i in names):
        raise ValueError(f"{path}: names is neither a list nor class: name")
    if names and content.get("nc", len(names)) != len(names):
        raise ValueError(f"{path}: nc is {content['nc']}, but names has {len(names)}")
    return [{"id": int(i), "name": name} for i, name in names.items()]


def _is_class(text):
    return str(text).isdecimal()


class _Pose(NamedTuple):
    skeletons: Categories[Skeleton]
    dimensions: int  # numbers of a keypoint, 2 or 3


def _pose(content, kinds, source, where):
    """What data.yaml says of keypoints; None if nothing."""
    shape = content.get("kpt_shape")
    if shape is None:
        if source.skeleton:
            raise ValueError(
                f"{where}: no kpt_shape, so that its labels have no keypoints; leave "
                "out --skeleton, or write kpt_shape: [keypoints, 2 or 3]"
            )
        return None
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or not all(map(_is_class, shape))
        or int(shape[1]) not in (2, 3)
    ):
        raise ValueError(f"{where}: kpt_shape is {shape}; it is [keypoints, 2 or 3]")
    count, dimensions = map(int, shape)
    skeleton_of = {
        name: _skeleton(name, count, content, source, where) for name in kinds.targets
    }
    found = {i: skeleton_of[name] for i, name in kinds.target_of.items()}
    rest = skeleton_of[kinds.rest] if kinds.rest else None
    return _Pose(Categories(found, kinds.none, rest), dimensions)


def _skeleton(name, count, content, source, where):
    names = _keypoint_names(content, where)
    skeleton = keypoints.type_skeleton(name, names, (), source.skeleton, where)
    if len(skeleton.keypoints) != count:
        raise ValueError(
            f"{where}: kpt_shape has {count} keypoints, but the skeleton has "
            f"{len(skeleton.keypoints)} ({', '.join(skeleton.keypoints)})"
        )
    mirror = content.get("flip_idx")
    # The identity is what programs write that do not know it.
    if mirror is None or mirror == list(range(count)):
        return skeleton
    if (
        not isinstance(mirror, list)
        or not all(isinstance(k, int) for k in mirror)
        or sorted(mirror) != list(range(count))
    ):
        raise ValueError(f"{where}: flip_idx is {mirror}; it orders {count} keypoints")
    if any(mirror[other] != k for k, other in enumerate(mirror)):
        raise ValueError(f"{where}: flip_idx is {mirror}; it must exchange pairs")
    if skeleton.mirror not in (None, tuple(mirror)):
        raise ValueError(
            f"{where}: flip_idx is {mirror}, but the mirror pairs of the skeleton make "
            f"{list(skeleton.mirror)}; correct one of them"
        )
    return dataclasses.replace(skeleton, mirror=tuple(mirror))


def _keypoint_names(content, where):
    """Names in `kpt_names`, which is a list, or one and the same for each class."""
    named = content.get("kpt_names") or []
    lists = list(named.values()) if isinstance(named, dict) else [named]
    if any(
        names != lists[0]
        or not isinstance(names, list)
        or not all(isinstance(name, str) for name in names)
        for names in lists
    ):
        raise ValueError(f"{where}: kpt_names is {named}; it is one list of names")
    return lists[0]


def _image_folders(folder, split, content):
    listed = content.get(split)
    if listed is not None:
        listed = listed if isinstance(listed, list) else [listed]
        if any(str(part).endswith(".txt") for part in listed):
            raise ValueError(
                f"data.yaml's {split}: {listed} is a list of files, which is not read; "
                "name the folder of pictures with --images"
            )
        found = [_listed_folder(folder, str(part), content) for part in listed]
        if found and all(found):
            return found
    for usual in (folder / split / "images", folder / "images" / split):
        if usual.is_dir():
            return [usual]
    usual = folder / "images"
    # Not if it only holds the folders of other splits.
    if usual.is_dir() and any(
        f.suffix.lower() in images.SUFFIXES for f in usual.iterdir()
    ):
        return [usual]
    said = f"data.yaml says {', '.join(map(str, listed))}; " if listed else ""
    raise ValueError(
        f"{folder}: no folder of pictures of split {split!r}; {said}"
        "name it with --images"
    )


def _listed_folder(folder, text, content):
    """The folder that data.yaml means, if it is one inside `folder`."""
    # Roboflow writes ../train/images for train/images; Ultralytics drops the ../ too.
    for start in (str(content.get("path") or ""), ""):
        for part in (text, text.removeprefix("../")):
            try:
                found = inside(folder, os.path.join(start, part))
            except ValueError:
                continue
            if found.is_dir():
                return found
    return None


def _label_file(photo):
    """images/a/b.jpg -> labels/a/b.txt, by the last "images"; else beside the photo."""
    parts = list(photo.parts)
    places = [i for i, part in enumerate(parts[:-1]) if part == "images"]
    if places:
        parts[places[-1]] = "labels"
    return pathlib.Path(*parts).with_suffix(".txt")


def _entries(photos, labels, root, tally, *, kind):
    for photo, label in zip(photos, labels, strict=True):
        name, fault, lines = photo.relative_to(root).as_posix(), "", []
        if label.is_file():
            try:
                lines = _lines(label)
            except (OSError, ValueError) as error:
                # Its labels are unknown, which is not the same as none.
                fault = f"cannot read its label file: {error}"
        else:
            tally.noted("photos without a label file (true negatives)")
        yield Entry(name, lines, fault=fault)
    found = {f for parent in {f.parent for f in labels} for f in parent.glob("*.txt")}
    for label in sorted(found - set(labels)):
        if label.name != "classes.txt":  # which labelling programs put there
            number = sum(bool(line.strip()) for line in label.read_bytes().splitlines())
            tally.refused(kind, "label file of no photo", label.name, number)


def _lines(label):
    text = label.read_text(encoding="utf-8-sig")
    return [
        Annotation(f"line {number}", _class(fields[0]), fields, tuple(fields))
        for number, line in enumerate(text.splitlines(), 1)
        if (fields := line.split())
    ]


def _class(text):
    """The class as a number, where it is one: some programs write 3.0."""
    return int(text.removesuffix(".0")) if _is_class(text.removesuffix(".0")) else text


def _region(branch, fields, size, repairs):
    if len(fields) < 5 or len(fields) % 2 == 0:
        raise ValueError(
            "line that is neither a box (5 numbers) nor a polygon (7, 9, ...); "
            "keypoints want kpt_shape in data.yaml, scores are not read"
        )
    parts = _parts(fields)
    if not np.isfinite(parts).all():
        raise ValueError("line with a number that is not finite")
    _check_parts(parts)
    height, width = size
    if len(parts) == 4:
        return Region(branch, clip_box(_corners(parts, size), size, repairs))
    points = np.reshape(parts, (-1, 2)) * [width, height]
    box = clip_box([*points.min(0), *points.max(0)], size, repairs)
    mask = with_pixels(masks.from_polygons([points], height, width), repairs)
    return Region(branch, box, mask=mask)


def _instance(skeleton, fields, size, repairs, *, dimensions):
    count = len(skeleton.keypoints)
    if len(fields) != 5 + count * dimensions:
        raise ValueError(
            f"line of {len(fields)} numbers instead of {5 + count * dimensions} "
            "(class, box, keypoints)"
        )
    parts = _parts(fields)
    if not np.isfinite(parts[:4]).all():
        raise ValueError("box that is not four finite numbers")
    _check_parts(parts[:4])
    points = np.reshape(parts[4:], (count, dimensions))
    if dimensions == 2:
        visibility = np.where((points == 0).all(1), 0, 2)
        points = np.column_stack([points, visibility])
    height, width = size
    with np.errstate(over="ignore"):  # infinity is told below
        points = points * [width, height, 1]
    keypoints.check_finite(points, repairs)
    return keypoints.instance(
        skeleton,
        points,
        size,
        repairs,
        box=_corners(parts[:4], size),
    )


def _parts(fields):
    """The numbers after the class."""
    try:
        _, *parts = map(float, fields)
    except ValueError as error:
        raise ValueError("line with something else than numbers") from error
    if not _is_class(str(_class(fields[0]))):
        raise ValueError(f"class {fields[0]!r} is no number from 0")
    return parts


def _check_parts(parts):
    if not -_SLACK <= min(parts) <= max(parts) <= 1 + _SLACK:
        raise ValueError("line that is not in parts of the picture, 0 to 1")


def _corners(parts, size):
    middle, extent = np.reshape(parts, (2, 2)) * size[::-1]
    return [*(middle - extent / 2), *(middle + extent / 2)]
