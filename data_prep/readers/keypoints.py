"""From a source's annotations to keypoint records: what its readers do alike.

A keypoint is labelled if its visibility is 1 or 2; the account counts labelled
keypoints, of the instances that are kept.
"""

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from data_prep.readers import KeypointReading, Source, Tally
from data_prep.readers.categories import Categories, branch_name
from data_prep.readers.photos import (
    Entry,
    clip_box,
    converted,
    pictures,
    polygon_mask,
)
from facekp_jax import masks, skeletons
from facekp_jax.records import Instance, KeypointImage, Patch
from facekp_jax.skeletons import Skeleton

_MARGIN = 0.1  # of the longer side of the keypoints' rectangle, for a box around them
_LEAST_MARGIN = 0.01  # of the picture's longer side
_LARGEST = 1e12  # pixels; more is no area

# Told among the repairs, but counted as refused keypoints, and as notes.
_NOT_FINITE = "labelled, but not finite"
_OUTSIDE = "outside the picture"
_VISIBILITY = "of a visibility other than 0, 1 and 2"
_BOX_OF_KEYPOINTS = "instances without a box (that of their keypoints taken)"
_AREA_OF_BOX = "instances without an area (that of their box taken)"

# (skeleton, annotation's value, (height, width), repairs) -> an instance, or an area
# that joins the photo's `ignore`. As `photos.ToRegion` otherwise.
ToInstance = Callable[[Skeleton, Any, tuple[int, int], list[str]], Instance | Patch]


def open_photos(
    entries: Iterable[Entry],
    to_instance: ToInstance,
    categories: Categories[Skeleton],
    source: Source,
    tally: Tally,
    *,
    folder: pathlib.Path,
    length: int,
) -> KeypointReading:
    """What a reader gives: the entries' records, made while one goes through them.

    Every photo counts as labelled for every type of the source.

    Args:
        entries: what the source lists; a video's frames together and in time order.
        to_instance: makes the instance, or the area to ignore, of an annotation.
        categories: the source's skeletons, whose names are the target types'.
        source: says whether the annotations were made on the raw pixels.
        tally: takes the account.
        folder: of the pictures; no entry may leave it.
        length: number of entries.
    """
    found = pictures(
        entries, folder, tally, kind="instances", apply_exif=source.apply_exif
    )
    records = _records(found, to_instance, categories, tally)
    return KeypointReading(categories.targets, length, records)


def _records(pictures, to_instance, categories, tally):
    tally.expect("photos", "instances", "keypoints")
    labelled = tuple(skeleton.name for skeleton in categories.targets)
    for entry, image, data in pictures:
        size = image.shape[:2]
        instances, ignored = [], _ignored(entry, size, tally)
        for found, repairs, title in converted(
            entry, to_instance, size, categories, tally, kind="instances"
        ):
            if isinstance(found, Patch):
                ignored.append(found)
            else:
                _account(found, repairs, title, tally)
                instances.append(found)
        if not instances:
            tally.noted("photos without an instance")
        if ignored:
            tally.noted("areas to ignore (crowd, without labels)", len(ignored))
        record = KeypointImage(
            name=entry.name,
            image=image,
            instances=tuple(instances),
            labelled=labelled,
            ignore=_union(ignored, size),
            video=entry.video,
            frame=entry.frame,
            time=entry.time,
        )
        yield record, data


def instance(
    skeleton: Skeleton,
    keypoints: Any,
    size: tuple[int, int],
    repairs: list[str],
    *,
    box: Sequence[float] | None = None,
    area: float | None = None,
    mask: Patch | None = None,
    track: int | None = None,
    score: float = 1.0,
) -> Instance:
    """The record of one person or animal.

    Labelled keypoints outside the picture become unlabelled. Without a usable box, the
    mask's is taken, or the rectangle of the labelled keypoints, widened on each side
    by a tenth of its longer side, at least by a hundredth of the picture's. The area
    is the stated one, by which COCO evaluates, else the mask's, else the box's.

    Args:
        skeleton: of the target type, with K keypoints.
        keypoints: [K, 3] x, y, visibility, in pixels of the photo; not a number means
            unlabelled.
        size: (height, width) of the photo.
        repairs: is told what had to be repaired, and what is missing.
        box: xyxy, not yet clipped.
        area: pixels.
        mask: not empty.
        track: the same in all frames of a video.
        score: of a prediction.

    Raises:
        ValueError: if the keypoints have another shape, or nothing says where it is.
    """
    points = np.array(keypoints, np.float64)
    if points.shape != (len(skeleton.keypoints), 3):
        raise ValueError(
            f"keypoints of shape {points.shape} instead of "
            f"{(len(skeleton.keypoints), 3)}"
        )
    points[~np.isfinite(points).all(1)] = 0
    height, width = size
    x, y, visibility = points.T
    unknown = ~np.isin(visibility, (0, 1, 2))
    beyond = (x < 0) | (x > width) | (y < 0) | (y > height)
    outside = (visibility != 0) & ~unknown & beyond
    repairs += [_VISIBILITY] * unknown.sum() + [_OUTSIDE] * outside.sum()
    points[(visibility == 0) | unknown | outside] = 0
    box = _box(box, mask, points, size, repairs)
    return Instance(
        skeleton=skeleton.name,
        keypoints=points.astype(np.float32),
        box=box,
        area=_area(mask, area, box, repairs),
        track=track,
        score=score,
    )


def box_patch(box: np.ndarray) -> Patch:
    """The pixels that a box touches, to ignore them."""
    x0, y0 = np.floor(box[:2]).astype(int)
    x1, y1 = np.ceil(box[2:]).astype(int)
    return Patch(int(x0), int(y0), np.ones((y1 - y0, x1 - x0), bool))


def check_finite(points: np.ndarray, repairs: list[str]) -> None:
    """Tells of labelled keypoints [K, 3] that are not finite, where that is damage."""
    lost = (points[:, 2] != 0) & ~np.isfinite(points).all(1)
    repairs += [_NOT_FINITE] * lost.sum()


def type_name(source: Source, usual: str) -> str:
    """The target type's name where a source has only one, and no categories.

    It is the NAME of --group=all:NAME, else that of --skeleton, else the usual one.

    Raises:
        ValueError: for another --group, or for --none, which only categories have.
    """
    if source.none:
        raise ValueError(
            f"--none={','.join(source.none)}: this source has no categories; leave it "
            "out"
        )
    kind, _, name = source.group.partition(":")
    if kind == "all" and name:
        return branch_name(name)
    if source.group != "category":
        raise ValueError(
            f"--group={source.group}: this source has one type; --group=all:NAME names "
            "it"
        )
    return branch_name(source.skeleton.name if source.skeleton else usual)


def type_skeleton(
    name: str,
    keypoints: Sequence[str] | None,
    edges: Sequence[tuple[int, int]],
    given: Skeleton | None,
    where: Any,
) -> Skeleton:
    """A target type's skeleton, from what its source says or from --skeleton.

    Args:
        name: of the type.
        keypoints: their names, in the source's order; None if it has none.
        edges: pairs of numbers of keypoints, from 0; perhaps none.
        given: of --skeleton: goes before what the source says.
        where: names the source in messages.

    Raises:
        ValueError: if `given` has other keypoints, or another order, or there is
            nothing to join them by.
    """
    if given is None:
        if not keypoints:
            raise ValueError(
                f"{where}: the keypoints of {name} have no names; say with --skeleton "
                "what they are"
            )
        try:
            return skeletons.guess(name, tuple(keypoints), tuple(edges))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    if keypoints:
        _check_keypoints(given, keypoints, f"{where}, {name}")
    return dataclasses.replace(given, name=name)


def _check_keypoints(skeleton, keypoints, where):
    """ValueError if --skeleton has other keypoints than the source, or another order.

    Case makes no difference, and neither do `_`, `-` and spaces.
    """
    if len(keypoints) != len(skeleton.keypoints):
        raise ValueError(
            f"{where}: {len(keypoints)} keypoints, but --skeleton has "
            f"{len(skeleton.keypoints)} ({', '.join(skeleton.keypoints)})"
        )
    for number, (ours, theirs) in enumerate(
        zip(skeleton.keypoints, keypoints, strict=True)
    ):
        if skeletons.normalized_name(ours) != skeletons.normalized_name(theirs):
            raise ValueError(
                f"{where}: keypoint {number} is {theirs!r}, but in --skeleton it is "
                f"{ours!r}; give one that has the source's keypoints in its order"
            )


def _ignored(entry, size, tally):
    """The entry's own areas to ignore, as a list of patches."""
    repairs, found = [], []
    for polygon in entry.ignore:
        patch = polygon_mask([polygon], size, repairs)
        found += [patch] if patch else []
    for repair in repairs:
        tally.repaired("photos", f"area to ignore: {repair}", entry.name)
    return found


def _account(found, repairs, title, tally):
    times = collections.Counter(repairs)
    labelled = int(np.count_nonzero(found.keypoints[:, 2]))
    tally.kept("instances")
    tally.kept("keypoints", labelled)
    if not labelled:
        tally.noted("instances without a labelled keypoint")
    for reason in (_NOT_FINITE, _OUTSIDE, _VISIBILITY):
        tally.refused("keypoints", reason, title, times.pop(reason, 0))
    for what in (_BOX_OF_KEYPOINTS, _AREA_OF_BOX):
        if times.pop(what, 0):
            tally.noted(what)
    if times:
        tally.repaired("instances", "; ".join(times), title)


def _union(patches, size):
    if not patches:
        return None
    together = np.logical_or.reduce([masks.to_full(p, *size) for p in patches])
    return masks.from_full(together)


def _box(box, mask, points, size, repairs):
    fault = ""
    if box is not None:
        try:
            return clip_box(box, size, repairs)
        except ValueError as error:
            fault = str(error)
    labelled = points[points[:, 2] > 0, :2]
    if mask is None and not len(labelled):
        raise ValueError(fault or "neither box nor mask nor labelled keypoint")
    if fault:
        repairs.append(f"{fault} left out")
    elif mask is None:
        repairs.append(_BOX_OF_KEYPOINTS)
    return _around(labelled, size) if mask is None else masks.patch_box(mask)


def _around(points, size):
    """Box around one point or more [n, 2], with a margin."""
    corners = np.concatenate([points.min(0), points.max(0)])
    margin = max(_MARGIN * (corners[2:] - corners[:2]).max(), _LEAST_MARGIN * max(size))
    return clip_box(corners + margin * np.array([-1, -1, 1, 1]), size, [])


def _area(mask, area, box, repairs):
    if isinstance(area, int | float | np.number) and 0 < area < _LARGEST:
        return float(area)
    if mask is not None:
        return float(np.count_nonzero(mask.pixels))
    repairs.append(_AREA_OF_BOX)
    return float(np.prod(box[2:] - box[:2]))
