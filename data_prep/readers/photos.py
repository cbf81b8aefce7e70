"""From a source's list of photos to records: what all readers do alike.

A reader lists `Entry`s and says how one annotation becomes a `Region`; opening the
picture, comparing sizes, categories and the account are here.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data_prep.readers import Tally
from data_prep.readers.categories import Categories
from facekp_jax import images
from facekp_jax.records import LesionImage, Patch, Region


class Annotation(NamedTuple):
    """One annotation of a photo, in its source's own form."""

    title: str  # names it to the user
    category: Any  # its id
    value: Any
    key: Hashable = None  # equal if written twice; None: it cannot be told


@dataclasses.dataclass(frozen=True)
class Entry:
    """A photo as its source lists it."""

    name: str  # path in the folder of pictures
    annotations: Sequence[Annotation] = ()
    size: tuple[int | None, int | None] = (None, None)  # (width, height) if stated
    fault: str = ""  # why it cannot be used


# (branch, annotation's value, (height, width), repairs) -> region. What had to be
# repaired is appended to `repairs`; a ValueError says why it cannot be used.
ToRegion = Callable[[str, Any, tuple[int, int], list[str]], Region]


def open_photos(
    entries: Iterable[Entry],
    to_region: ToRegion,
    *,
    folder: pathlib.Path,
    categories: Categories,
    tally: Tally,
    apply_exif: bool,
) -> Iterator[tuple[LesionImage, bytes]]:
    """The entries' records, each with its picture's encoded bytes.

    Every photo counts as labelled for every branch of the source: one without
    annotations is a true negative, and so is one of a category that means none.

    Args:
        entries: what the source lists.
        to_region: makes the region of an annotation.
        folder: of the pictures; no entry may leave it.
        categories: what the source's categories become.
        tally: takes the account.
        apply_exif: False if the annotations were made on the raw pixels.
    """
    for name in categories.none.values():
        tally.noted(_means_none(name), 0)
    names = set()
    for entry in entries:
        name = entry.name
        try:
            if entry.fault:
                raise ValueError(entry.fault)
            if name in names:
                raise ValueError("file_name of an earlier image")
            data = _read(inside(folder, name))
            image = images.decode_strictly(data, apply_exif=apply_exif)
            _check_size(entry, *image.shape[:2])
        except ValueError as error:
            tally.refused("photos", str(error), name)
            tally.refused("regions", "on a refused photo", name, len(entry.annotations))
        else:
            tally.kept("photos")
            regions = _regions(entry, to_region, image.shape[:2], categories, tally)
            yield LesionImage(name, image, regions, categories.branches), data
        names.add(name)


def inside(folder: pathlib.Path, name: str | os.PathLike) -> pathlib.Path:
    """folder/name; a ValueError if that is not in the folder."""
    relative = os.path.normpath(name)
    if os.path.isabs(relative) or relative.split(os.sep)[0] == os.pardir:
        raise ValueError("file_name leaves the folder of images")
    return folder / relative


def clip_box(
    corners: Sequence[float], size: tuple[int, int], repairs: list[str]
) -> np.ndarray:
    """The part of a box that is in the picture, float32 [4] xyxy.

    Args:
        corners: x0, y0, x1, y1 in pixels.
        size: (height, width) of the picture.
        repairs: is told if something was cut off.

    Raises:
        ValueError: if the box is not finite, or nothing of it is left.
    """
    height, width = size
    if not np.isfinite(corners).all():
        raise ValueError("box that is not four finite numbers")
    if corners[0] >= corners[2] or corners[1] >= corners[3]:
        raise ValueError("box of zero or negative size")
    with np.errstate(over="ignore"):  # infinity is clipped too
        corners = np.asarray(corners).astype(np.float32)
    box = corners.clip(0, np.array([width, height, width, height], np.float32))
    if box[0] >= box[2] or box[1] >= box[3]:
        raise ValueError("box outside the picture")
    if (box != corners).any():
        repairs.append("box clipped to the picture")
    return box


def with_pixels(mask: Patch, repairs: list[str]) -> Patch | None:
    """The mask, or None if it is empty, which `repairs` is told."""
    if mask.pixels.any():
        return mask
    repairs.append("mask without a pixel left out")
    return None


def _read(path):
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read it: {error.strerror}") from error


def _check_size(entry, height, width):
    stated = (entry.size[0] or width, entry.size[1] or height)
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


def _regions(entry, to_region, size, categories, tally):
    regions, seen = [], set()
    for annotation in entry.annotations:
        title, repairs = f"{entry.name}, {annotation.title}", []
        try:
            if annotation.key is not None and annotation.key in seen:
                raise ValueError("the same annotation twice")
            seen.add(annotation.key)
            branch = categories.branch(annotation.category)
            if branch is None:
                tally.noted(_means_none(categories.none[annotation.category]))
                continue
            region = to_region(branch, annotation.value, size, repairs)
        except ValueError as error:
            tally.refused("regions", str(error), title)
            continue
        tally.kept("regions")
        if repairs:
            tally.repaired("regions", "; ".join(repairs), title)
        if region.crowd:
            tally.noted("areas to ignore (crowd, difficult)")
        regions.append(region)
    return tuple(regions)


def _means_none(name):
    return f"annotations of {name}, which means none"
