"""Pictures and what is in them: regions, or people and animals with keypoints."""

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


@dataclasses.dataclass(frozen=True)
class Instance:
    """One person or animal, of the ground truth or predicted."""

    skeleton: str  # name of its target type
    keypoints: np.ndarray  # [K, 3] float32: x, y in the photo; visibility 0, 1 or 2
    box: np.ndarray  # [4] xyxy, float32, pixels of the photo
    area: float  # pixels; the stated one, else of the mask, else of the box
    track: int | None = None  # the same in all frames of a video
    score: float = 1.0
    keypoint_scores: np.ndarray | None = None  # [K] float32, of a prediction


@dataclasses.dataclass(frozen=True)
class KeypointImage:
    """A photo, or a frame of a video, with its people and animals.

    A type in `labelled` of which there is no instance is a true negative; a type that
    is not in `labelled` is unknown.
    """

    name: str
    image: np.ndarray  # uint8 [H, W, 3] RGB
    instances: tuple[Instance, ...]
    labelled: tuple[str, ...]  # names of target types
    ignore: Patch | None = None  # crowds and regions without labels: neither learned
    video: str = ""  # the video's name; empty for a photo
    frame: int = 0  # number in the video, from 0
    time: float = 0.0  # seconds from the video's start


class InstanceOfImage(NamedTuple):
    """One instance of a photo, for a network that looks at one at a time."""

    photo: KeypointImage
    number: int  # of the instance in the photo

    @property
    def name(self) -> str:
        return self.photo.name

    @property
    def image(self) -> np.ndarray:
        return self.photo.image

    @property
    def instance(self) -> Instance:
        return self.photo.instances[self.number]
