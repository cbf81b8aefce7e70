"""Data sets on disk, of lesion images or of keypoint images."""

import os
import pathlib

from facekp_jax import array_records, images, keypoint_images, lesion_images
from facekp_jax.keypoint_images import KeypointImages
from facekp_jax.lesion_images import LesionImages

_SOURCES = {
    lesion_images.FORM.name: LesionImages,
    keypoint_images.FORM.name: KeypointImages,
}
_TITLE = "lesion or keypoint images"


def splits(directory: str | os.PathLike) -> tuple[str, ...]:
    """Names of a data set's splits, "train" first; ValueError if it is none."""
    return tuple(_existing(pathlib.Path(directory)))


def open_split(
    directory: str | os.PathLike, split: str, *, decode=images.decode
) -> LesionImages | KeypointImages:
    """Opens a split as what it holds.

    Raises:
        ValueError: if there is no such folder, data set or split.
    """
    directory = pathlib.Path(directory)
    found = _existing(directory)
    if split not in found:
        raise array_records.no_split(directory, split, found)
    return _SOURCES[found[split].name](directory, split, decode=decode)


def _existing(directory):
    """Split name -> what TFDS knows of it, of the splits that this program reads."""
    found = array_records.existing(directory, _TITLE)
    known = {split: info for split, info in found.items() if info.name in _SOURCES}
    if not known:
        names = ", ".join(sorted({info.name for info in found.values()}))
        raise ValueError(f"{directory}: holds {names}, not {_TITLE}")
    return known
