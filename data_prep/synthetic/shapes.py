"""Curves, and shapes drawn to a fraction of a pixel."""

import functools
import math

import cv2
import numpy as np

_SUBPIXEL_BITS = 4  # of the whole numbers that OpenCV takes for positions


def fixed(points):
    """Points [..., 2] in pixels as OpenCV's whole numbers."""
    # OpenCV counts from the centre of the first pixel, we count from its corner.
    return np.rint((points - 0.5) * 2**_SUBPIXEL_BITS).astype(np.int32)


def fill(image, outline, colour):
    """Fills an outline (`fixed`) with a smooth edge."""
    colour = rgb(colour) if image.ndim == 3 else colour
    cv2.fillPoly(image, [outline], colour, cv2.LINE_AA, _SUBPIXEL_BITS)


def stencil(mask, outline, value):
    """Sets the pixels [H, W] inside an outline (`fixed`) to a value."""
    cv2.fillPoly(mask, [outline], value, cv2.LINE_8, _SUBPIXEL_BITS)


def lines(image, curves, colour, thickness):
    """Draws polylines (`fixed`) [N, P, 2], smooth; `thickness` in pixels."""
    _polylines(image, curves, rgb(colour), thickness, cv2.LINE_AA)


def stencil_lines(mask, curves, value, thickness):
    """Sets the pixels [H, W] on polylines (`fixed`) to a value."""
    _polylines(mask, curves, value, thickness, cv2.LINE_8)


def _polylines(image, curves, colour, thickness, kind):
    cv2.polylines(image, [*curves], False, colour, thickness, kind, _SUBPIXEL_BITS)


def rgb(colour):
    """A colour as OpenCV takes it."""
    return tuple(min(max(float(c), 0.0), 255.0) for c in colour)


@functools.cache
def steps(start, stop, count):
    """Evenly spaced numbers [count], kept: not to be changed."""
    numbers = np.linspace(start, stop, count)
    numbers.setflags(write=False)
    return numbers


@functools.cache
def arc(start, stop, count):
    """Points [count, 2] of the unit circle, kept: not to be changed."""
    angle = np.linspace(start, stop, count)
    points = np.stack([np.cos(angle), np.sin(angle)], -1)
    points.setflags(write=False)
    return points


def circle(count):
    """Corners [count, 2] of a regular polygon in the unit circle."""
    return arc(0, 2 * math.pi * (1 - 1 / count), count)


def path(u, v):
    """Points [N, 2] of two coordinates [N]."""
    return np.array([u, v]).T


def smooth(control, count=12):
    """The Bezier curve [count, 2] of control points [3, 2] or [4, 2]."""
    return _bezier(len(control), count) @ np.asarray(control, np.float64)


def curves(*control):
    """Bezier curves [N, 12, 2] of control points (u, v): u [N], v [N] or a number."""
    points = np.empty((len(control[0][0]), len(control), 2))
    for i, (u, v) in enumerate(control):
        points[:, i, 0], points[:, i, 1] = u, v
    return _bezier(len(control), 12) @ points


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
