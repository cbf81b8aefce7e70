"""A picture with its regions, the ground truth's or predicted."""

import dataclasses
from typing import NamedTuple

import numpy as np


class Patch(NamedTuple):
    """A set of pixels of a photo: those true in a window with its corner at (x, y)."""

    x: int  # column of the window's top-left pixel in the photo
    y: int  # row
    pixels: np.ndarray  # bool [h, w]


@dataclasses.dataclass(frozen=True)
class Region:
    """One target region, of the ground truth or predicted."""

    branch: str
    box: np.ndarray  # [4] xyxy, float32, pixels of the photo
    mask: Patch | None = None
    pixels: Patch | None = None  # the target's own pixels inside the mask
    crowd: bool = False  # an area to ignore, never a target
    score: float = 1.0


@dataclasses.dataclass(frozen=True)
class LesionImage:
    """A photo, its face, its regions, and the branches that it was labelled for.

    A branch in `labelled` without a region is a true negative; a branch that is not in
    `labelled` is unknown.
    """

    name: str
    image: np.ndarray  # uint8 [H, W, 3] RGB
    regions: tuple[Region, ...]
    labelled: tuple[str, ...]
    face: np.ndarray | None = None  # [4] xyxy, float32
