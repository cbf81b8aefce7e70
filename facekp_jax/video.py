"""Videos, frame by frame: one reader for data, training and prediction."""

import math
import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import cv2
import numpy as np

SUFFIXES = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm", ".wmv")
_RATE = 25.0  # frames per second of a video that states neither times nor a rate
# OpenCV fails alike on a damaged frame and at the end; so many in a row are the end.
_FAILURES = 100


class Frame(NamedTuple):
    """One frame of a video."""

    number: int  # in the video, from 0; frames that cannot be decoded have theirs
    time: float  # seconds from the video's start; later than the frame before
    image: np.ndarray  # uint8 [H, W, 3] RGB, upright


def frames(path: str | os.PathLike) -> "Frames":
    """Opens a video file for one pass over its frames.

    Raises:
        ValueError: if there is no such file, or not one frame of it can be decoded.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    if not path.stat().st_size:
        raise ValueError(f"{path}: empty file (0 bytes)")
    return Frames(path)


class Frames(Iterator[Frame]):
    """The frames of a video in order, decoded one at a time, all at their own times.

    Every frame is decoded and none is sought, so that two passes see the same. A frame
    that cannot be decoded is left out.

    Attributes:
        promised: number of frames that the header states; 0 if it states none.
        decoded: number of frames given so far.
    """

    def __init__(self, path: pathlib.Path):
        # FFmpeg alone, since other backends have other ideas of times and rotation; it
        # would take a relative path with a colon for an address.
        self._capture = cv2.VideoCapture(str(path.absolute()), cv2.CAP_FFMPEG)
        # Phones store the sensor's picture and an angle: OpenCV turns each frame by it.
        self._capture.set(cv2.CAP_PROP_ORIENTATION_AUTO, 1)
        self._path = path
        self._rate = self._capture.get(cv2.CAP_PROP_FPS)
        if not 0 < self._rate < math.inf:
            self._rate = _RATE
        self._number, self._last, self._time = -1, -1, -1 / self._rate
        self.promised = max(0, int(self._capture.get(cv2.CAP_PROP_FRAME_COUNT)))
        self.decoded = 0
        self._first = self._read()
        if self._first is None:
            raise ValueError(f"{path}: not a video, or not one frame can be decoded")

    @property
    def shortfall(self) -> str:
        """After the last frame: names a video that has fewer than promised; or ""."""
        if self.decoded >= self.promised:
            return ""
        return (
            f"{self._path}: {self.decoded} frames decoded, but its header promises "
            f"{self.promised}"
        )

    def __next__(self) -> Frame:
        frame = self._first or self._read()
        self._first = None
        if frame is None:
            self._capture.release()
            raise StopIteration
        self.decoded += 1
        return frame

    def _read(self):
        """The next frame that can be decoded; None after the last."""
        for _ in range(_FAILURES):
            self._number += 1
            decoded, pixels = self._capture.read()
            if decoded:
                # After a read, the time of the frame that was read. It stands still
                # in a stream without time stamps: then the rate tells.
                time = max(0.0, self._capture.get(cv2.CAP_PROP_POS_MSEC) / 1000)
                if time <= self._time:
                    time = self._time + (self._number - self._last) / self._rate
                self._last, self._time = self._number, time
                image = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
                return Frame(self._number, time, image)
        return None
