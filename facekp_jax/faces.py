"""Finding the face's rectangle in a photo.

A detector is a function from an RGB photo [H, W, 3] uint8 to boxes [N, 4] float32 xyxy
inside the photo, the largest face first, none if nobody is there. It may be called from
several threads and sent to other processes; OpenCV's own objects may not, so each
thread makes its own.
"""

import dataclasses
import os
import threading

import cv2
import numpy as np

from facekp_jax import geometry

YUNET_SIDE = 640  # pixels; the published model's input is fixed


def detector(spec):
    """Face detector by its name.

    Args:
        spec: "haar" (OpenCV's frontal cascade), "yunet:PATH" (a YuNet ONNX file, which
            finds far more faces) or "whole" (the photo is a face already).

    Returns:
        Function image -> boxes.

    Raises:
        ValueError: if there is no such detector, or no such file.
    """
    kind, _, path = spec.partition(":")
    if kind == "yunet" and path:
        if not os.path.isfile(path):
            raise ValueError(
                f"face detector {spec!r}: there is no file {path!r}; YuNet's ONNX file "
                "is in OpenCV's model zoo, github.com/opencv/opencv_zoo"
            )
        network = YuNet(path)
        network.check()
        return network
    if spec == "haar":
        if not hasattr(cv2, "CascadeClassifier"):
            raise ValueError(
                f"face detector 'haar' is not in OpenCV {cv2.__version__}: install "
                "'opencv-python-headless<5' or use 'yunet:PATH'"
            )
        return Haar()
    if spec == "whole":
        return whole
    raise ValueError(
        f"unknown face detector {spec!r}: use 'haar', 'whole' or 'yunet:PATH'"
    )


def absolute(spec):
    """A specification with its file's whole path: good in any working directory."""
    kind, found, path = spec.partition(":")
    return f"{kind}:{os.path.abspath(path)}" if found and path else spec


def whole(image):
    """The whole photo as the one face: [1, 4] float32."""
    height, width = image.shape[:2]
    return np.array([[0, 0, width, height]], np.float32)


@dataclasses.dataclass(frozen=True)
class Haar:
    """OpenCV's frontal cascade (Viola and Jones, CVPR 2001).

    Needs no model file, but misses most faces that are turned, covered or small.
    """

    smallest: float = 0.05  # of the photo's shorter side
    neighbours: int = 5

    def __call__(self, image):
        cascade = _of_this_thread("haar", _cascade)
        size = max(20, round(self.smallest * min(image.shape[:2])))
        found = cascade.detectMultiScale(
            cv2.cvtColor(image, cv2.COLOR_RGB2GRAY),
            scaleFactor=1.1,
            minNeighbors=self.neighbours,
            minSize=(size, size),
        )
        boxes = np.array(found, np.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        return _largest_first(boxes, image)


@dataclasses.dataclass(frozen=True)
class YuNet:
    """YuNet (Wu et al., Machine Intelligence Research 2023), run by OpenCV.

    Small and turned faces score low: at OpenCV's default of 0.9 most of them are lost.
    """

    path: str
    score: float = 0.6

    def __call__(self, image):
        network = _of_this_thread((self.path, self.score), self._network)
        height, width = image.shape[:2]
        frame = geometry.square([0, 0, width, height])
        m = geometry.crop_matrix(frame, YUNET_SIDE)
        letterbox = geometry.warp(image, m, YUNET_SIDE, border=0)
        _, found = network.detect(cv2.cvtColor(letterbox, cv2.COLOR_RGB2BGR))
        boxes = np.zeros((0, 4)) if found is None else found[:, :4].copy()
        boxes[:, 2:] += boxes[:, :2]
        boxes = geometry.transform_boxes(geometry.invert(m), boxes)
        return _largest_first(boxes, image)

    def check(self):
        """Raises a ValueError if the file is no YuNet network."""
        blank = np.zeros((YUNET_SIDE, YUNET_SIDE, 3), np.uint8)
        try:
            self._network().detect(blank)
        except cv2.error as error:
            raise ValueError(
                f"face detector 'yunet:{self.path}': OpenCV cannot run it as YuNet "
                f"({error.err}); take the ONNX file of OpenCV's model zoo, "
                "github.com/opencv/opencv_zoo"
            ) from error

    def _network(self):
        return cv2.FaceDetectorYN.create(
            self.path, "", (YUNET_SIDE, YUNET_SIDE), score_threshold=self.score
        )


def _cascade():
    return cv2.CascadeClassifier(
        os.path.join(cv2.data.haarcascades, "haarcascade_frontalface_default.xml")
    )


def _largest_first(boxes, image):
    height, width = image.shape[:2]
    boxes = boxes.clip(0, [width, height, width, height])
    sizes = boxes[:, 2:] - boxes[:, :2]
    order = np.argsort(-sizes.prod(-1), kind="stable")
    return boxes[order[sizes[order].min(-1) > 0]].astype(np.float32)


_thread = threading.local()


def _of_this_thread(key, make):
    made = _thread.__dict__.setdefault("made", {})
    if key not in made:
        made[key] = make()
    return made[key]
