"""What surrounds synthetic bodies: backdrop, clutter behind, occluders in front."""

import math

import cv2
import numpy as np

from data_prep.synthetic import shapes
from data_prep.synthetic.pose_canvas import Material, crop, textures

_LEAF = np.array([(0, 0), (0.3, 0.6), (0.6, 0.8), (1, 0), (0.6, -0.8), (0.3, -0.6)])
_WAVES = np.arange(2, 5)[:, None]
_AROUND = _WAVES * shapes.steps(0, 2 * math.pi, 17)[:-1]


def backdrop(rng, height, width, boxes):
    """A wall or sky above a ground, textured and furnished: uint8 [H, W, 3].

    Args:
        rng: source of chance.
        height: pixels.
        width: pixels.
        boxes: [4] xyxy of each body; it stands on the ground and throws a shadow there.
    """
    upper, lower = _colours(rng, 2, 0.4)
    image = np.empty((height, width, 3), np.uint8)
    feet = min((box[3] for box in boxes), default=height)
    horizon = int(np.clip(feet - rng.uniform(0.02, 0.45) * height, 0, height))
    cv2.rectangle(image, (0, 0), (width, height), shapes.rgb(lower), cv2.FILLED)
    cv2.rectangle(image, (0, -1), (width, horizon - 1), shapes.rgb(upper), cv2.FILLED)
    for colour in _colours(rng, rng.integers(1, 5), 0.4):
        _furniture(rng, image, colour)
    coarse = rng.normal(1, rng.uniform(0.03, 0.12), rng.integers(3, 14, 2))
    light = cv2.resize(
        coarse.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR
    )
    texture = crop(rng, textures()[rng.integers(2)], height, width)
    light = cv2.scaleAdd(texture, rng.uniform(0.01, 0.06), light)
    for box in boxes:
        light *= 1 - _shadow(rng, height, width, box)
    return cv2.multiply(image, cv2.merge([light] * 3), dtype=cv2.CV_8U)


def _shadow(rng, height, width, box):
    """What a body takes of the light on the ground: float32 [H, W]."""
    half = (box[2] - box[0]) / 2 * rng.uniform(0.7, 1.1)
    centre = (box[0] + box[2]) / 2 + rng.normal(0, 0.1) * half, box[3] - 0.1 * half
    outline = centre + shapes.circle(24) * (half, half * rng.uniform(0.1, 0.25))
    dark = np.zeros((height, width), np.float32)
    shapes.stencil(dark, shapes.fixed(outline), rng.uniform(0.1, 0.5))
    return cv2.blur(dark, (11, 7))


def clutter(rng, canvas, size, materials, depth):
    """Draws limbs that belong to nobody.

    Args:
        rng: source of chance.
        canvas: Canvas.
        size: pixels, the longer side of the body.
        materials: of the body, so that colours do not tell.
        depth: z of the limbs.
    """
    for _ in range(rng.integers(1, 3)):
        corner = rng.uniform(0, (canvas.width, canvas.height))
        _stray(rng, canvas, corner, size, materials, depth)


def occlude(rng, canvas, size, targets, materials):
    """Puts things in front of a body.

    Args:
        rng: source of chance.
        canvas: Canvas.
        size: pixels, the longer side of the body.
        targets: [N, 2] points, some of which are to be hidden.
        materials: of the body.
    """
    for _ in range(rng.choice(4, p=(0.1, 0.35, 0.35, 0.2))):
        target = targets[rng.integers(len(targets))]
        target = target + rng.normal(0, 0.03 * size, 2)
        kind = rng.integers(6)
        if kind == 0:
            half = size * rng.uniform(0.07, 0.18, 2)
            canvas.cover([target + _box(half, rng.uniform(0, math.pi))], _thing(rng))
        elif kind == 1:
            canvas.cover([target + size * _blob(rng)], _thing(rng))
        elif kind == 2:
            canvas.cover(_plant(rng, target, size), _thing(rng, leafy=True))
        elif kind == 3:
            canvas.cover(_bars(rng, target, size, canvas), _thing(rng))
        else:
            _stray(rng, canvas, target, size, materials, -2.0 * size)


def _stray(rng, canvas, middle, size, materials, depth):
    """Draws two joined limbs that meet near a point."""
    paint = canvas.add(materials[rng.integers(len(materials))], size)
    angles = rng.uniform(0, 2 * math.pi) + np.array([0, rng.uniform(0.8, 5.5)])
    lengths = size * rng.uniform(0.1, 0.28, 2)
    ends = middle + (lengths * (np.cos(angles), np.sin(angles))).T
    thick, thin = size * rng.uniform(0.02, 0.055), size * rng.uniform(0.015, 0.03)
    joint = (*middle, depth)
    for end, radius in zip(ends.tolist(), (thick, thin), strict=True):
        canvas.limb((*end, depth), joint, radius, thin, paint)


def _furniture(rng, image, colour):
    height, width = image.shape[:2]
    size = min(height, width)
    centre = rng.uniform(0, (width, height))
    kind = rng.integers(4)
    if kind == 0:
        half = size * rng.uniform(0.03, 0.4, 2)
        outlines = [centre + _box(half, rng.normal(0, 0.2))]
    elif kind == 1:
        outlines = [centre + size * rng.uniform(0.5, 2.5) * _blob(rng)]
    elif kind == 2:
        half = size * np.array([rng.uniform(0.01, 0.035), rng.uniform(0.2, 1.2)])
        outlines = [
            centre + _box(half, rng.choice((0, math.pi / 2)) + rng.normal(0, 0.3))
        ]
    else:  # a frame, or the legs and top of a table
        half = size * rng.uniform(0.1, 0.35, 2)
        thick = size * rng.uniform(0.008, 0.03)
        upright = centre + _box((thick, half[1]), 0)
        across = centre + _box((half[0], thick), 0)
        side, top = (half[0], 0), (0, half[1])
        outlines = [upright - side, upright + side, across - top]
    for outline in outlines:
        shapes.fill(image, shapes.fixed(outline), colour)


def _thing(rng, leafy=False):
    colour, second = _colours(rng, 2)
    if leafy and rng.random() < 0.7:
        colour = colour * (0.6, 1.0, 0.5)
    kind = rng.random()
    if kind < 0.2:
        return Material(colour, second, ring=rng.uniform(4, 14))
    return Material(colour, second, blotches=0.6 if kind < 0.4 else None)


def _colours(rng, count, most=0.9):
    colours = rng.uniform(20, 235, (count, 3))
    grey = colours.mean(1, keepdims=True)
    return grey + rng.uniform(0.1, most, (count, 1)) * (colours - grey)


def _box(half, angle):
    """Corners [4, 2] around the origin."""
    turn = math.cos(angle), math.sin(angle)
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * half
    return corners @ np.array([turn, (-turn[1], turn[0])])


def _blob(rng):
    """A wavy outline [16, 2] around the origin, about 0.1 in radius."""
    waves = np.cos(_AROUND + rng.uniform(0, 6.3, (3, 1))) / _WAVES
    radius = rng.uniform(0.07, 0.16) * (1 + 0.5 * waves.mean(0))
    return shapes.circle(16) * radius[:, None] * rng.uniform(0.8, 1.25, 2)


def _plant(rng, target, size):
    """Leaves [N, 6, 2] that fan out from a root, through a point."""
    count = rng.integers(6, 16)
    root = target + size * rng.normal((0, 0.12), (0.05, 0.04))
    angle = rng.uniform(0, 2 * math.pi) if rng.random() < 0.3 else -math.pi / 2
    angle = angle + rng.normal(0, 0.7, count)
    length = size * rng.uniform(0.12, 0.34, count)
    leaf = _LEAF * (1, rng.uniform(0.05, 0.14))
    along = length * np.array([np.cos(angle), np.sin(angle)])  # [2, N]
    across = np.array([-along[1], along[0]])
    leaves = leaf[:, :1, None] * along + leaf[:, 1:, None] * across  # [6, 2, N]
    return root + leaves.transpose(2, 0, 1)


def _bars(rng, target, size, canvas):
    """Long parallel boxes [N, 4, 2], one of them at a point."""
    count = rng.integers(1, 4)
    angle = rng.choice((0, math.pi / 2)) + rng.normal(0, 0.15)
    half = size * np.array([rng.uniform(0.3, 1.0), rng.uniform(0.02, 0.055)])
    gap = size * rng.uniform(0.12, 0.3) * np.array([-math.sin(angle), math.cos(angle)])
    first = rng.integers(count)
    return [target + (i - first) * gap + _box(half, angle) for i in range(count)]
