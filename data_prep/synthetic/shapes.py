"""Curves, and shapes drawn to a fraction of a pixel."""

import functools
import math

import cv2
import numpy as np

SUBPIXEL_BITS = 4  # of the whole numbers that OpenCV takes for positions


def fill(image, fixed, colour, kind=cv2.LINE_AA):
    colour = rgb(colour) if image.ndim == 3 else colour
    cv2.fillPoly(image, [fixed], colour, kind, SUBPIXEL_BITS)


def rgb(colour):
    return tuple(float(c) for c in np.clip(colour, 0, 255))


def fixed(points):
    # OpenCV counts from the centre of the first pixel, we count from its corner.
    return np.rint((points - 0.5) * 2**SUBPIXEL_BITS).astype(np.int32)


@functools.cache
def circle(count):
    return arc(0, 2 * np.pi * (1 - 1 / count), count)


def arc(start, stop, count):
    angle = np.linspace(start, stop, count)
    return np.stack([np.cos(angle), np.sin(angle)], -1)


def smooth(control, count=12):
    """The Bezier curve [count, 2] of control points [3, 2] or [4, 2]."""
    return _bezier(len(control), count) @ np.asarray(control, np.float64)


def curves(*control):
    """Bezier curves [N, 12, 2] of control points (u, v), each [N] or a number."""
    points = [np.stack(np.broadcast_arrays(u, v), -1) for u, v in control]
    return _bezier(len(control), 12) @ np.stack(points, -2)


@functools.cache
def _bezier(order, count):
    t = np.linspace(0, 1, count)
    return np.stack(
        [
            math.comb(order - 1, k) * t**k * (1 - t) ** (order - 1 - k)
            for k in range(order)
        ],
        -1,
    )
