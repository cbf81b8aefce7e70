"""COCO annotation files: boxes, polygons, run lengths, crowds.

COCO's coordinates are continuous with (0, 0) at the top-left corner of the top-left
pixel, as here: boxes change from (x, y, width, height) to corners, nothing is shifted.
"""

import collections
import json
import math
import os
import pathlib
import re

import numpy as np

from data_prep.readers import Reading, Tally
from facekp_jax import images, masks
from facekp_jax.records import LesionImage, Region

GROUPS = ("category", "supercategory", "all:NAME")


def read(
    folder: str | os.PathLike,
    tally: Tally,
    *,
    annotations: str | os.PathLike | None = None,
    image_folder: str | os.PathLike | None = None,
    group: str = "category",
    apply_exif: bool = True,
) -> Reading:
    """Opens a COCO data set.

    Every photo counts as labelled for every branch of the file: one without
    annotations is a true negative.

    Args:
        folder: holds annotations.json and images/.
        tally: takes the account.
        annotations: another place of the annotation file.
        image_folder: another place of the pictures.
        group: what makes a branch: each "category", each "supercategory", or
            "all:NAME" for one branch NAME of all categories.
        apply_exif: False if the annotations were made on the raw pixels.

    Raises:
        ValueError: if the files are not there or not COCO's.
    """
    folder = pathlib.Path(folder)
    annotations = pathlib.Path(annotations or folder / "annotations.json")
    image_folder = pathlib.Path(image_folder or folder / "images")
    if not annotations.is_file():
        raise ValueError(f"{annotations}: no such file; name it with --annotations")
    if not image_folder.is_dir():
        raise ValueError(f"{image_folder}: no such folder; name it with --images")
    content = _load(annotations)
    branch_of = _branches(content.get("categories") or [], group, annotations)
    branches = tuple(dict.fromkeys(branch_of.values()))
    return Reading(
        branches=branches,
        length=len(content["images"]),
        photos=_photos(content, branch_of, branches, image_folder, tally, apply_exif),
    )


def _load(path):
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise ValueError(f"{path}: not a COCO file; it has no list of images")
    for key in ("images", "annotations", "categories"):
        if not all(isinstance(entry, dict) for entry in content.get(key) or []):
            raise ValueError(f"{path}: not a COCO file; {key} are not all objects")
    return content


def _branches(categories, group, path):
    """Category id -> branch."""
    kind, _, name = group.partition(":")
    if kind == "all" and name:
        # Also ids that no category declares belong to the one branch.
        branch = _branch_name(name)
        return collections.defaultdict(lambda: branch, {None: branch})
    if group not in GROUPS[:2]:
        raise ValueError(f"--group={group}: use one of {', '.join(GROUPS)}")
    if not categories:
        raise ValueError(
            f"{path}: no categories; --group=all:NAME makes one branch of everything"
        )
    branch_of = {}
    field = "name" if group == "category" else "supercategory"
    for category in categories:
        if "id" not in category or not category.get(field):
            raise ValueError(f"{path}: category {category} has no id or no {field}")
        if category["id"] in branch_of:
            raise ValueError(f"{path}: category id {category['id']} is there twice")
        branch_of[category["id"]] = _branch_name(category[field])
    return branch_of


def _branch_name(name):
    """'Dark circle' -> 'dark_circle', as branches are named in metrics and losses."""
    return re.sub(r"\W+", "_", str(name).strip().lower())


def _photos(content, branch_of, branches, image_folder, tally, apply_exif):
    annotations_of = collections.defaultdict(list)
    for annotation in content.get("annotations") or []:
        annotations_of[annotation.get("image_id")].append(annotation)
    ids, names = set(), set()
    for entry in content["images"]:
        name = str(entry.get("file_name", "?"))
        photo_id = entry.get("id")
        # A second entry of an id has no annotations of its own to lose.
        annotations = [] if photo_id in ids else annotations_of.pop(photo_id, [])
        try:
            _check_entry(entry, ids, names)
            data = _bytes(image_folder, name)
            image = images.decode_strictly(data, apply_exif=apply_exif)
            _check_size(entry, *image.shape[:2])
        except ValueError as error:
            tally.refused("photos", str(error), name)
            tally.refused("regions", "on a refused photo", name, len(annotations))
        else:
            tally.kept("photos")
            regions = _regions(annotations, branch_of, image.shape[:2], name, tally)
            yield LesionImage(name, image, regions, branches), data
        ids.add(photo_id)
        names.add(name)
    for photo_id, annotations in annotations_of.items():
        for annotation in annotations:
            title = f"{_title(annotation)}, image_id {photo_id}"
            tally.refused("regions", "image_id of no image", title)


def _check_entry(entry, ids, names):
    for key, seen in (("id", ids), ("file_name", names)):
        if entry.get(key) is None:
            raise ValueError(f"no {key}")
        if entry[key] in seen:
            raise ValueError(f"{key} of an earlier image")


def _bytes(image_folder, name):
    relative = os.path.normpath(name)
    if os.path.isabs(relative) or relative.split(os.sep)[0] == os.pardir:
        raise ValueError("file_name leaves the folder of images")
    try:
        return (image_folder / relative).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read it: {error.strerror}") from error


def _check_size(entry, height, width):
    stated = (entry.get("width") or width, entry.get("height") or height)
    if stated == (width, height):
        return
    sizes = (
        f"annotated as {stated[0]}x{stated[1]}, the picture is {width}x{height} "
        "(width x height)"
    )
    if stated == (height, width):
        raise ValueError(
            f"transposed: {sizes}; annotations of the raw pixels want --noapply_exif"
        )
    raise ValueError(f"another size: {sizes}")


def _regions(annotations, branch_of, size, name, tally):
    regions, seen = [], set()
    for annotation in annotations:
        title = f"{name}, {_title(annotation)}"
        try:
            key = json.dumps(annotation, sort_keys=True)
            if "id" in annotation and key in seen:
                raise ValueError("the same annotation twice")
            seen.add(key)
            region, repairs = _region(annotation, branch_of, size)
        except ValueError as error:
            tally.refused("regions", str(error), title)
            continue
        tally.kept("regions")
        if repairs:
            tally.repaired("regions", "; ".join(repairs), title)
        regions.append(region)
    return tuple(regions)


def _title(annotation):
    return f"annotation {annotation.get('id', 'without id')}"


def _region(annotation, branch_of, size):
    """A Region and a list of what had to be repaired; ValueError if unusable."""
    category = annotation.get("category_id")
    try:
        branch = branch_of[category]
    except (KeyError, TypeError) as error:
        raise ValueError(f"category_id {category!r} is not a category's") from error
    repairs = []
    mask = _mask(annotation.get("segmentation"), size, repairs)
    if annotation.get("bbox"):
        box = _box(annotation["bbox"], size, repairs)
    elif mask is not None:
        box = masks.patch_box(mask)
    else:
        raise ValueError("neither box nor mask")
    crowd = bool(annotation.get("iscrowd", 0))
    return Region(branch, box, mask=mask, crowd=crowd), repairs


def _box(values, size, repairs):
    height, width = size
    if not _numbers(values) or len(values) != 4:
        raise ValueError("box that is not four finite numbers")
    x, y, w, h = values
    if w <= 0 or h <= 0:
        raise ValueError("box of zero or negative size")
    corners = np.array([x, y, x + w, y + h], np.float32)
    box = np.clip(corners, 0, np.array([width, height, width, height], np.float32))
    if box[0] >= box[2] or box[1] >= box[3]:
        raise ValueError("box outside the picture")
    if (box != corners).any():
        repairs.append("box clipped to the picture")
    return box


def _mask(segmentation, size, repairs):
    """The mask as a Patch, or None where there is none that can be used."""
    if not segmentation:
        return None
    if isinstance(segmentation, dict):
        if list(segmentation.get("size") or []) != list(size):
            repairs.append("mask of another size than the picture left out")
            return None
        try:
            patch = masks.from_rle(segmentation)
        except (KeyError, TypeError, ValueError, RuntimeError):
            repairs.append("mask of malformed run lengths left out")
            return None
    else:
        polygons = [p for p in segmentation if _is_polygon(p)]
        if len(polygons) < len(segmentation):
            repairs.append("polygon of fewer than 3 points skipped")
        if not polygons:
            return None
        patch = masks.from_polygons(polygons, *size)
    if not patch.pixels.any():
        repairs.append("mask without a pixel left out")
        return None
    return patch


def _is_polygon(points):
    return _numbers(points) and len(points) >= 6 and len(points) % 2 == 0


def _numbers(values):
    return isinstance(values, list) and all(
        isinstance(v, int | float) and math.isfinite(v) for v in values
    )
