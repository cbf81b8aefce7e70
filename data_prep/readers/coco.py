"""COCO annotation files: boxes, polygons, run lengths, crowds.

COCO's coordinates are continuous with (0, 0) at the top-left corner of the top-left
pixel, as here: boxes change from (x, y, width, height) to corners, nothing is shifted.
"""

import collections
import json
import os
import pathlib
from collections.abc import Hashable, Sequence

from data_prep.readers import Reading, Tally
from data_prep.readers.categories import categories
from data_prep.readers.photos import (
    Annotation,
    Entry,
    clip_box,
    open_photos,
    with_pixels,
)
from facekp_jax import masks
from facekp_jax.records import Region

_FARTHEST = 1e6  # pixels; to draw a polygon from beyond takes gigabytes


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
    """Opens a COCO data set.

    Args:
        folder: holds annotations.json and images/.
        tally: takes the account.
        split: makes no difference: a file is one split, whatever it is called.
        annotations: another place of the annotation file.
        image_folder: another place of the pictures.
        group: see `categories`.
        none: names of categories that say that there is nothing.
        apply_exif: False if the annotations were made on the raw pixels.

    Raises:
        ValueError: if the files are not there or not COCO's.
    """
    del split
    folder = pathlib.Path(folder)
    annotations = pathlib.Path(annotations or folder / "annotations.json")
    image_folder = pathlib.Path(image_folder or folder / "images")
    if not annotations.is_file():
        raise ValueError(f"{annotations}: no such file; name it with --annotations")
    if not image_folder.is_dir():
        raise ValueError(f"{image_folder}: no such folder; name it with --images")
    content = _load(annotations)
    declared = content.get("categories") or []
    kinds = categories(declared, group=group, none=none, where=annotations)
    return Reading(
        branches=kinds.branches,
        length=len(content["images"]),
        photos=open_photos(
            _entries(content, tally),
            _region,
            folder=image_folder,
            categories=kinds,
            tally=tally,
            apply_exif=apply_exif,
        ),
    )


def _load(path):
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise ValueError(f"{path}: not a COCO file; it has no list of images")
    for key in ("images", "annotations", "categories"):
        entries = content.get(key) or []
        if not isinstance(entries, list) or not all(
            isinstance(entry, dict) for entry in entries
        ):
            raise ValueError(f"{path}: not a COCO file; {key} is no list of objects")
    return content


def _entries(content, tally):
    annotations_of = collections.defaultdict(list)
    for annotation in content.get("annotations") or []:
        annotations_of[_id(annotation, "image_id")].append(annotation)
    ids = set()
    for image in content["images"]:
        photo_id = _id(image, "id")
        # A second entry of an id has no annotations of its own to lose.
        found = [] if photo_id in ids else annotations_of.pop(photo_id, [])
        yield Entry(
            name=str(image.get("file_name", "?")),
            annotations=[_annotation(a) for a in found],
            size=(image.get("width"), image.get("height")),
            fault=_fault(image, photo_id in ids),
        )
        ids.add(photo_id)
    for photo_id, found in annotations_of.items():
        for annotation in found:
            title = f"{_title(annotation)}, image_id {photo_id}"
            tally.refused("regions", "image_id of no image", title)


def _id(entry, key):
    """The id, in a form that can be looked up whatever was written."""
    value = entry.get(key)
    return value if isinstance(value, Hashable) else repr(value)


def _fault(image, earlier):
    for key in ("id", "file_name"):
        if image.get(key) is None:
            return f"no {key}"
    return "id of an earlier image" if earlier else ""


def _annotation(value):
    # Without an id, two that are equal may well be meant.
    key = json.dumps(value, sort_keys=True) if "id" in value else None
    return Annotation(_title(value), value.get("category_id"), value, key)


def _title(annotation):
    return f"annotation {annotation.get('id', 'without id')}"


def _region(branch, annotation, size, repairs):
    mask = _mask(annotation.get("segmentation"), size, repairs)
    if annotation.get("bbox"):
        box = _box(annotation["bbox"], size, repairs)
    elif mask is not None:
        box = masks.patch_box(mask)
    else:
        raise ValueError("neither box nor mask")
    return Region(branch, box, mask=mask, crowd=bool(annotation.get("iscrowd", 0)))


def _box(values, size, repairs):
    if not _numbers(values) or len(values) != 4:
        raise ValueError("box that is not four finite numbers")
    x, y, w, h = values
    return clip_box([x, y, x + w, y + h], size, repairs)


def _mask(segmentation, size, repairs):
    """The mask as a Patch, or None where there is none that can be used."""
    if not segmentation:
        return None
    if isinstance(segmentation, dict):
        if segmentation.get("size") != list(size):
            repairs.append("mask of another size than the picture left out")
            return None
        try:
            patch = masks.from_rle(segmentation)
        except (KeyError, TypeError, ValueError, OverflowError, RuntimeError):
            repairs.append("mask of malformed run lengths left out")
            return None
    elif isinstance(segmentation, list):
        polygons = [p for p in segmentation if _is_polygon(p)]
        if len(polygons) < len(segmentation):
            repairs.append("polygon of fewer than 3 points skipped")
        if not polygons:
            return None
        patch = masks.from_polygons(polygons, *size)
    else:
        repairs.append("mask that is neither polygons nor run lengths left out")
        return None
    return with_pixels(patch, repairs)


def _is_polygon(points):
    return _numbers(points) and len(points) >= 6 and len(points) % 2 == 0


def _numbers(values):
    return isinstance(values, list) and all(
        isinstance(v, int | float) and abs(v) <= _FARTHEST for v in values
    )
