"""From a source's list of photos to records: what all readers do alike.

A reader lists `Entry`s and says how one annotation becomes a `Region` (or, in
`keypoints`, an `Instance`); opening the picture, comparing sizes, categories and the
account are here.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from data_prep.readers import Reading, Source, Tally
from data_prep.readers.categories import Categories, Target
from facekp_jax import images, masks
from facekp_jax.records import LesionImage, Patch, Region

_FARTHEST = 1e6  # pixels; to draw a polygon from beyond takes gigabytes

Found = TypeVar("Found")  # what an annotation becomes


class Annotation(NamedTuple):
    """One annotation of a photo, in its source's own form."""

    title: str  # names it to the user
    category: Any  # its id
    value: Any
    key: Hashable = None  # equal if written twice; None: it cannot be told


@dataclasses.dataclass(frozen=True)
class Entry:
    """A photo, or a frame of a video, as its source lists it."""

    name: str  # path in the folder of pictures
    annotations: Sequence[Annotation] = ()
    size: tuple[int | None, int | None] = (None, None)  # (width, height) if stated
    fault: str = ""  # why it cannot be used
    data: Callable[[], bytes] | None = None  # the picture, if it is no file
    ignore: Sequence[Sequence[float]] = ()  # polygons x0, y0, ...: labelled for nothing
    video: str = ""  # its name; empty for a photo
    frame: int = 0  # number in the video, from 0
    time: float = 0.0  # seconds from the video's start


# (branch, annotation's value, (height, width), repairs) -> region. What had to be
# repaired is appended to `repairs`; a ValueError says why it cannot be used.
ToRegion = Callable[[str, Any, tuple[int, int], list[str]], Region]


def open_photos(
    entries: Iterable[Entry],
    to_region: ToRegion,
    categories: Categories[str],
    source: Source,
    tally: Tally,
    *,
    folder: pathlib.Path,
    length: int,
) -> Reading:
    """What a reader gives: the entries' records, made while one goes through them.

    Every photo counts as labelled for every branch of the source: one without
    annotations is a true negative, and so is one of a category that means none.

    Args:
        entries: what the source lists.
        to_region: makes the region of an annotation.
        categories: what the source's categories become.
        source: says whether the annotations were made on the raw pixels.
        tally: takes the account.
        folder: of the pictures; no entry may leave it.
        length: number of entries.
    """
    found = pictures(
        entries, folder, tally, kind="regions", apply_exif=source.apply_exif
    )
    records = _records(found, to_region, categories, tally)
    return Reading(categories.targets, length, records)


def _records(pictures, to_region, categories, tally):
    tally.expect("photos", "regions")
    for entry, image, data in pictures:
        regions = []
        for region, repairs, title in converted(
            entry, to_region, image.shape[:2], categories, tally, kind="regions"
        ):
            tally.kept("regions")
            if repairs:
                tally.repaired("regions", "; ".join(repairs), title)
            if region.crowd:
                tally.noted("areas to ignore (crowd, difficult)")
            regions.append(region)
        yield LesionImage(entry.name, image, tuple(regions), categories.targets), data


def pictures(
    entries: Iterable[Entry],
    folder: pathlib.Path,
    tally: Tally,
    *,
    kind: str,
    apply_exif: bool,
) -> Iterator[tuple[Entry, np.ndarray, bytes]]:
    """The entries whose picture can be used: uint8 [H, W, 3] RGB and encoded bytes.

    The others are refused, and with them their annotations, of this kind.
    """
    names = set()
    for entry in entries:
        name = entry.name
        try:
            if entry.fault:
                raise ValueError(entry.fault)
            _check_text(name, entry.video)
            if name in names:
                raise ValueError("file_name of an earlier image")
            data = entry.data() if entry.data else _read(inside(folder, name))
            image = images.decode_strictly(data, apply_exif=apply_exif)
            _check_size(entry, *image.shape[:2])
        except ValueError as error:
            tally.refused("photos", str(error), name)
            tally.refused(kind, "on a refused photo", name, len(entry.annotations))
        else:
            tally.kept("photos")
            yield entry, image, data
        names.add(name)


def converted(
    entry: Entry,
    convert: Callable[[Target, Any, tuple[int, int], list[str]], Found],
    size: tuple[int, int],
    categories: Categories[Target],
    tally: Tally,
    *,
    kind: str,
) -> Iterator[tuple[Found, list[str], str]]:
    """What each annotation becomes, with its repairs and what names it to the user.

    Those that cannot be used are refused, as of this kind; those that mean none are
    noted.
    """
    for name in categories.none.values():
        tally.noted(_means_none(name), 0)
    seen = set()
    for annotation in entry.annotations:
        title, repairs = f"{entry.name}, {annotation.title}", []
        try:
            if annotation.key is not None and annotation.key in seen:
                raise ValueError("the same annotation twice")
            seen.add(annotation.key)
            target = categories.target(annotation.category)
            if target is None:
                tally.noted(_means_none(categories.none[annotation.category]))
                continue
            found = convert(target, annotation.value, size, repairs)
        except ValueError as error:
            tally.refused(kind, str(error), title)
            continue
        yield found, repairs, title


def inside(folder: pathlib.Path, name: str | os.PathLike) -> pathlib.Path:
    """folder/name; a ValueError if that is not in the folder.

    Links that are in the folder are the user's own, and are followed.
    """
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


def polygon_mask(
    polygons: Sequence[Any], size: tuple[int, int], repairs: list[str]
) -> Patch | None:
    """The union of polygons x0, y0, x1, y1, ..., or None if nothing is left of it.

    What is no polygon is skipped, which `repairs` is told.
    """
    usable = [p for p in polygons if numbers(p) and len(p) >= 6 and len(p) % 2 == 0]
    if len(usable) < len(polygons):
        repairs.append("polygon of fewer than 3 points skipped")
    if not usable:
        return None
    return with_pixels(masks.from_polygons(usable, *size), repairs)


def numbers(values: Any) -> bool:
    """Whether this is a list of numbers that could be pixels."""
    return isinstance(values, list) and all(
        isinstance(v, int | float) and abs(v) <= _FARTHEST for v in values
    )


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


def _check_text(*names):
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"name {name!a} that is no Unicode text") from error


def _check_size(entry, height, width):
    if not all(side is None or isinstance(side, int | float) for side in entry.size):
        raise ValueError(
            f"annotated as {entry.size[0]!r} x {entry.size[1]!r}, which are no numbers "
            "of pixels"
        )
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


def _means_none(name):
    return f"annotations of {name}, which means none"
