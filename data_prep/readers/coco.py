"""COCO annotation files: boxes, polygons, run lengths, crowds, keypoints.

COCO's boxes and polygons are continuous with (0, 0) at the top-left corner of the
top-left pixel, as here: boxes change from (x, y, width, height) to corners, nothing is
shifted. Its keypoints are indices of pixels: 0.5 is added. Files of other origin say
nothing of this. If all labelled keypoints of a file are whole numbers they are taken
for indices, else they are continuous and stay; which it was is noted.
"""

import collections
import contextlib
import functools
import json
import pathlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_prep.readers import KeypointReading, Reading, Source, Tally, keypoints
from data_prep.readers.categories import Categories, categories
from data_prep.readers.files import read_json
from data_prep.readers.photos import (
    Annotation,
    Entry,
    clip_box,
    inside,
    numbers,
    open_photos,
    polygon_mask,
    with_pixels,
)
from facekp_jax import masks
from facekp_jax.records import Instance, Patch, Region
from facekp_jax.skeletons import Skeleton


def read(source: Source, tally: Tally) -> Reading | KeypointReading:
    """Opens a COCO data set: annotations.json and images/.

    Without images/, the pictures may lie beside the annotation file. The file is one
    split, whatever it is called. If a category has keypoints, or --skeleton says them,
    it is read for keypoints, and annotations of categories without are left out.

    Raises:
        ValueError: if the files are not there or not COCO's, or a category's keypoints
            are not joined by anything.
    """
    path = source.annotation_file("annotations.json")
    content = load(path)
    beside = [path.parent] if _holds(path.parent, content) else []
    folder = source.image_folder("images", *beside)
    declared = content.get("categories") or []
    if source.skeleton or any(category.get("keypoints") for category in declared):
        return _keypoint_reading(source, content, path, folder, tally)
    kinds = categories(declared, group=source.group, none=source.none, where=path)
    return open_photos(
        entries(content, tally, kind="regions"),
        _region,
        kinds,
        source,
        tally,
        folder=folder,
        length=len(content["images"]),
    )


def load(path: pathlib.Path) -> dict[str, Any]:
    """The contents of a COCO file; ValueError if it is none."""
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise ValueError(f"{path}: not a COCO file; it has no list of images")
    for key in ("images", "annotations", "categories"):
        values = content.get(key) or []
        if not isinstance(values, list) or not all(isinstance(v, dict) for v in values):
            raise ValueError(f"{path}: not a COCO file; {key} is no list of objects")
    return content


def entries(content: Mapping[str, Any], tally: Tally, *, kind: str) -> Iterator[Entry]:
    """One entry for each image of the file, in its order, with its annotations.

    Annotations of no image are refused, as of this kind.
    """
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
            tally.refused(kind, "image_id of no image", title)


def types(
    content: Mapping[str, Any], source: Source, where: Any, tally: Tally
) -> Categories[Skeleton]:
    """The skeletons of the file's categories.

    COCO counts the keypoints of a `skeleton` from 1. Some files count from 0, which
    shows where a 0 is among them.

    Raises:
        ValueError: names the category whose skeleton is not to be used, or two of a
            group that have other keypoints.
    """
    declared = content.get("categories") or []
    kinds = categories(declared, group=source.group, none=source.none, where=where)
    bearing = [c for c in declared if c.get("keypoints")] or declared
    edges_of = [_edges(category, where) for category in bearing]
    first = 0 if any(0 in edge for edges in edges_of for edge in edges) else 1
    if not first:
        tally.noted("skeletons that count keypoints from 0", len(bearing))
    skeletons, names_of, found = {}, {}, {}
    for category, edges in zip(bearing, edges_of, strict=True):
        kind = kinds.target_of.get(category["id"])
        if kind is None:
            continue
        names = _names(category, where)
        if kind not in skeletons:
            skeletons[kind] = keypoints.type_skeleton(
                kind,
                names,
                [(a - first, b - first) for a, b in edges],
                source.skeleton,
                f"{where}, category {category.get('name')!r}",
            )
            names_of[kind] = category.get("name"), names
        elif names != names_of[kind][1]:
            raise ValueError(
                f"{where}: --group={source.group} makes one type of "
                f"{names_of[kind][0]!r} and {category.get('name')!r}, whose keypoints "
                "are not the same"
            )
        found[category["id"]] = skeletons[kind]
    rest = None
    if kinds.rest:
        rest = keypoints.type_skeleton(kinds.rest, None, (), source.skeleton, where)
    return Categories(found, kinds.none, rest)


def pixel_indices(contents: Sequence[Mapping[str, Any]], tally: Tally) -> bool:
    """Whether all labelled keypoints of the files are whole numbers; noted."""
    total, whole = 0, True
    for content in contents:
        for annotation in content.get("annotations") or []:
            points = _points(annotation.get("keypoints"))
            if points is None:
                continue
            labelled = points[points[:, 2] > 0, :2]
            labelled = labelled[np.isfinite(labelled).all(1)]
            total += len(labelled)
            whole = whole and bool((labelled % 1 == 0).all())
    form = (
        "whole numbers (indices of pixels, moved by 0.5)"
        if whole
        else "fractions (not moved)"
    )
    tally.noted(f"labelled keypoints of files in {form}", total)
    return whole


def to_instance(
    skeleton: Skeleton,
    annotation: Mapping[str, Any],
    size: tuple[int, int],
    repairs: list[str],
    *,
    shift: float,
) -> Instance | Patch:
    """`keypoints.ToInstance` of a COCO annotation; its keypoints are moved by shift."""
    mask = _mask(annotation.get("segmentation"), size, repairs)
    box = _corners(annotation["bbox"]) if annotation.get("bbox") else None
    if _is_crowd(annotation):
        if mask is None and box is None:
            raise ValueError("crowd with neither box nor mask")
        return mask or keypoints.box_patch(clip_box(box, size, repairs))
    count = len(skeleton.keypoints)
    points = np.zeros((count, 3))
    if annotation.get("keypoints"):
        points = _points(annotation["keypoints"])
        if points is None or len(points) != count:
            raise ValueError(f"keypoints that are not {3 * count} numbers")
    labelled = points[:, 2] != 0
    stated = annotation.get("num_keypoints", labelled.sum())
    if stated != labelled.sum():
        repairs.append("num_keypoints is not the number of labelled keypoints")
    keypoints.check_finite(points, repairs)
    return keypoints.instance(
        skeleton,
        points + np.array([shift, shift, 0]),
        size,
        repairs,
        box=box,
        area=annotation.get("area"),
        mask=mask,
    )


def _keypoint_reading(source, content, path, folder, tally):
    kinds = types(content, source, path, tally)
    declared = {_id(category, "id") for category in content.get("categories") or []}
    without = declared - kinds.target_of.keys() - kinds.none.keys()
    annotations = content.get("annotations") or []
    kept = [a for a in annotations if _id(a, "category_id") not in without]
    if without:
        left = len(annotations) - len(kept)
        tally.noted("annotations of categories without keypoints, left out", left)
    extras = collections.Counter(
        key for a in kept for key in a if key.endswith("_kpts")
    )
    for key, number in extras.items():
        tally.noted(f"annotations with {key}, which are not read", number)
    content = {**content, "annotations": kept}
    shift = 0.5 if pixel_indices([content], tally) else 0.0
    return keypoints.open_photos(
        entries(content, tally, kind="instances"),
        functools.partial(to_instance, shift=shift),
        kinds,
        source,
        tally,
        folder=folder,
        length=len(content["images"]),
    )


def _holds(folder, content):
    """Whether one of the pictures is in the folder."""
    for image in content["images"]:
        try:
            if inside(folder, str(image.get("file_name"))).is_file():
                return True
        except (OSError, ValueError):
            continue
    return False


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
    key = None  # without an id, two that are equal may well be meant
    if "id" in value:
        with contextlib.suppress(RecursionError):
            key = json.dumps(value, sort_keys=True)
    return Annotation(_title(value), value.get("category_id"), value, key)


def _title(annotation):
    return f"annotation {annotation.get('id', 'without id')}"


def _names(category, where):
    names = category.get("keypoints")
    if not names:
        return None
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{where}: keypoints of {category.get('name')!r} are no names")
    return names


def _edges(category, where):
    edges = category.get("skeleton") or []
    if not isinstance(edges, list) or not all(
        isinstance(e, list) and len(e) == 2 and all(isinstance(k, int) for k in e)
        for e in edges
    ):
        raise ValueError(
            f"{where}: skeleton of {category.get('name')!r} is no list of pairs of "
            "keypoint numbers"
        )
    return edges


def _points(values):
    """[K, 3] float64, or None if they are no triples of numbers."""
    if not isinstance(values, list) or len(values) % 3:
        return None
    if not all(isinstance(v, int | float) for v in values):
        return None
    try:
        return np.reshape(np.array(values, np.float64), (-1, 3))
    except OverflowError:
        return None


def _region(branch, annotation, size, repairs):
    mask = _mask(annotation.get("segmentation"), size, repairs)
    if annotation.get("bbox"):
        box = clip_box(_corners(annotation["bbox"]), size, repairs)
    elif mask is not None:
        box = masks.patch_box(mask)
    else:
        raise ValueError("neither box nor mask")
    return Region(branch, box, mask=mask, crowd=_is_crowd(annotation))


def _is_crowd(annotation):
    crowd = annotation.get("iscrowd")
    if crowd not in (None, 0, 1):  # "0" would be taken for true
        raise ValueError(f"iscrowd {crowd!r} is neither 0 nor 1")
    return bool(crowd)


def _corners(values):
    """xyxy of a COCO box; not a number if it is no box."""
    if not numbers(values) or len(values) != 4:
        return [np.nan] * 4
    x, y, w, h = values
    return [x, y, x + w, y + h]


def _mask(segmentation, size, repairs):
    """The mask as a Patch, or None where there is none that can be used."""
    if not segmentation:
        return None
    if isinstance(segmentation, list):
        return polygon_mask(segmentation, size, repairs)
    if not isinstance(segmentation, dict):
        repairs.append("mask that is neither polygons nor run lengths left out")
        return None
    if segmentation.get("size") != list(size):
        repairs.append("mask of another size than the picture left out")
        return None
    try:
        patch = masks.from_rle(segmentation)
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError):
        repairs.append("mask of malformed run lengths left out")
        return None
    return with_pixels(patch, repairs)
