"""YOLO text files, in the layout of Ultralytics: boxes and polygons.

A photo `.../images/NAME.jpg` has its labels in `.../labels/NAME.txt`, one per line:
`class cx cy w h` is a box, a class and three or more points `x y` are a polygon. All
are parts of the picture's width and height, continuous with (0, 0) at its top-left
corner, as here: they are multiplied by the size and nothing is shifted. A photo without
a label file has no objects; that is how Ultralytics reads it too.

data.yaml names the classes (`names`) and may say where the splits are.
"""

import functools
import os
import pathlib
from collections.abc import Sequence

import numpy as np
import yaml

from data_prep.readers import Reading, Tally
from data_prep.readers.categories import categories
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

_SLACK = 0.01  # of the picture; further outside, a number is no part of it


def read(
    folder: str | os.PathLike,
    tally: Tally,
    *,
    split: str = "train",
    annotations: str | os.PathLike | None = None,
    image_folder: str | os.PathLike | None = None,
    group: str = "category",
    none: Sequence[str] = (),
    apply_exif: bool = True,
) -> Reading:
    """Opens one split of a YOLO data set.

    The pictures are where data.yaml says, if that is in the folder, else in
    SPLIT/images, images/SPLIT, or images.

    Args:
        folder: holds data.yaml and the splits.
        tally: takes the account.
        split: name of the split.
        annotations: another place of data.yaml.
        image_folder: another place of the split's pictures.
        group: see `categories`; without data.yaml only "all:NAME" works.
        none: names of classes that say that there is nothing.
        apply_exif: False if the annotations were made on the raw pixels.

    Raises:
        ValueError: if the files are not there or not YOLO's.
    """
    folder = pathlib.Path(folder)
    where = pathlib.Path(annotations or folder / "data.yaml")
    if annotations and not where.is_file():
        raise ValueError(f"{where}: no such file; name it with --annotations")
    content = _load(where) if where.is_file() else {}
    kinds = categories(_declared(content, where), group=group, none=none, where=where)
    if image_folder:
        folders = [pathlib.Path(image_folder)]
        if not folders[0].is_dir():
            raise ValueError(f"{image_folder}: no such folder; name it with --images")
    else:
        folders = _image_folders(folder, split, content)
    root = pathlib.Path(os.path.commonpath(folders))
    files = [f for part in folders for f in sorted(part.rglob("*")) if f.is_file()]
    photos = [f for f in files if f.suffix.lower() in images.SUFFIXES]
    labels = [_label_file(photo) for photo in photos]
    if not any(label.is_file() for label in labels):
        # Taken for true negatives, all of them would be wrong.
        looked = f"; looked for {labels[0]}" if labels else ""
        raise ValueError(f"{root}: no photo with a label file{looked}")
    if others := set(files) - {*photos, *labels}:
        tally.noted("files that are no pictures, not read", len(others))
    return Reading(
        branches=kinds.branches,
        length=len(photos),
        photos=open_photos(
            _entries(photos, labels, root, tally),
            functools.partial(_region, pose=_pose_length(content, where)),
            folder=root,
            categories=kinds,
            tally=tally,
            apply_exif=apply_exif,
        ),
    )


def _load(path):
    try:
        content = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path}: not YAML: {error}") from error
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


def _pose_length(content, path):
    """Numbers in a line of a pose data set; 0 if it is none."""
    shape = content.get("kpt_shape")
    if shape is None:
        return 0
    if isinstance(shape, list) and len(shape) == 2 and all(map(_is_class, shape)):
        return 5 + int(shape[0]) * int(shape[1])
    raise ValueError(f"{path}: kpt_shape is {shape}; it is [keypoints, 2 or 3]")


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


def _entries(photos, labels, root, tally):
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
            tally.refused("regions", "label file of no photo", label.name, number)


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


def _region(branch, fields, size, repairs, *, pose):
    if len(fields) == pose:
        raise ValueError("pose line (kpt_shape in data.yaml); keypoints are not read")
    if len(fields) < 5 or len(fields) % 2 == 0:
        raise ValueError(
            "line that is neither a box (5 numbers) nor a polygon (7, 9, ...); "
            "keypoints and scores are not read"
        )
    try:
        kind, *numbers = map(float, fields)
    except ValueError as error:
        raise ValueError("line with something else than numbers") from error
    if not np.isfinite([kind, *numbers]).all():
        raise ValueError("line with a number that is not finite")
    if not -_SLACK <= min(numbers) <= max(numbers) <= 1 + _SLACK:
        raise ValueError("line that is not in parts of the picture, 0 to 1")
    if not _is_class(str(_class(fields[0]))):
        raise ValueError(f"class {fields[0]!r} is no number from 0")
    height, width = size
    if len(numbers) == 4:
        middle, extent = np.reshape(numbers, (2, 2)) * [width, height]
        corners = [*(middle - extent / 2), *(middle + extent / 2)]
        return Region(branch, clip_box(corners, size, repairs))
    points = np.reshape(numbers, (-1, 2)) * [width, height]
    box = clip_box([*points.min(0), *points.max(0)], size, repairs)
    mask = with_pixels(masks.from_polygons([points], height, width), repairs)
    return Region(branch, box, mask=mask)
