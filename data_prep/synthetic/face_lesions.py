"""Lesions on a synthetic face, and their exact masks."""

import itertools
import math

import cv2
import numpy as np

from data_prep.synthetic import shapes
from facekp_jax import pixels
from facekp_jax.masks import from_full, patch_box
from facekp_jax.records import Region

_TRIES = 6  # to find free skin for one region
_INFLAMED = np.float32([0.06, -0.08, -0.06])  # change of colour at a pimple's centre
_TAPER = np.minimum(1, 0.7 + 4 * (0.5 - np.abs(np.linspace(-0.5, 0.5, 24))))
_ORDERS = np.arange(2, 6)[:, None]  # waves around a blob's outline
_WAVES = _ORDERS * np.linspace(0, 2 * np.pi, 24, endpoint=False)


def add(face):
    """Draws the lesions of one face; their Regions."""
    regions = []
    for branch, (make, shares) in _KINDS.items():
        wanted = face.rng.choice(len(shares), p=shares)
        sides = itertools.cycle(face.rng.permutation((-1, 1)))
        for side in itertools.islice(sides, wanted):
            for _ in range(_TRIES):
                region = _place(face, branch, *make(face, side))
                if region is not None:
                    regions.append(region)
                    break
    return regions


def _place(face, branch, outline, softness, paint):
    """Draws one lesion if it lies on free skin.

    Args:
        branch: name.
        outline: [N, 2] polygon, photo pixels.
        softness: standard deviation of its edge, pixels.
        paint: function (window float32 [h, w, 3], coverage [h, w]) -> window.

    Returns:
        The region, or None if it does not lie on free skin.
    """
    pad = 3 + math.ceil(2 * softness) + pixels.MARGIN
    x0, y0 = np.floor(outline.min(0)).astype(int) - pad
    x1, y1 = np.ceil(outline.max(0)).astype(int) + pad
    if x0 < 0 or y0 < 0 or x1 > face.width or y1 > face.height:
        return None
    columns, rows = outline.astype(int).T
    if not face.skin[rows, columns].all():
        return None
    coverage = _coverage(outline - (x0, y0), y1 - y0, x1 - x0, softness)
    target = from_full(coverage > 0.5)
    if not target.pixels.any():
        return None
    target = target._replace(x=int(target.x + x0), y=int(target.y + y0))
    mask = pixels.dilate(target, pixels.MARGIN, face.height, face.width)
    rows = slice(mask.y, mask.y + mask.pixels.shape[0])
    columns = slice(mask.x, mask.x + mask.pixels.shape[1])
    free = face.skin[rows, columns]
    if not free[mask.pixels].all():
        return None
    free[mask.pixels] = 0
    window = face.image[y0:y1, x0:x1]
    painted = paint(window.astype(np.float32), coverage)
    window[:] = np.minimum(painted + 0.5, 255)
    return Region(branch, patch_box(mask), mask, target)


def _somewhere(face, radius):
    """A point [2] with `radius` pixels of free skin around it, if there is luck."""
    span = (-0.88, -0.72), (0.88, face.chin - 0.1)
    points = face.points(face.rng.uniform(*span, (24, 2)))
    ring = (radius + pixels.MARGIN) * shapes.circle(8)
    around = np.concatenate([points[None], points + ring[:, None]]).astype(int)
    x = around[..., 0].clip(0, face.width - 1)
    y = around[..., 1].clip(0, face.height - 1)
    return points[face.skin[y, x].all(0).argmax()]


def _blob(face, radius, raggedness):
    """A wavy outline [24, 2] around the origin, a little longer than wide."""
    rng = face.rng
    waves = np.cos(_WAVES + rng.uniform(0, 6.3, (4, 1)))
    waves *= rng.normal(0, raggedness, (4, 1)) / _ORDERS
    stretch = rng.uniform(0, 2 * raggedness)
    shape = shapes.circle(24) * (radius * (1 + waves.sum(0)))[:, None]
    turn = rng.uniform(0, math.pi)
    along = np.array([math.cos(turn), math.sin(turn)])
    return shape + stretch * np.outer(shape @ along, along)


def _acne(face, side):
    rng = face.rng
    radius = rng.uniform(3.6, 9.0) * face.unit / 90
    centre = _somewhere(face, radius)
    red = rng.uniform(0.75, 1.15)
    ratio = 1 + red * np.float32([0.08, -0.36, -0.34])
    if face.skin_colour[0] < 150:
        ratio = 1 + red * np.float32([0.28, -0.26, -0.26])
    tint = _tint(ratio)
    headed = radius > 5 and rng.random() < 0.4
    size = rng.uniform(0.22, 0.36) * radius
    spread = 2 * (0.45 * radius) ** 2
    pale = np.minimum(face.skin_colour * np.float32([1.15, 1.08, 0.92]), 250)

    def paint(window, coverage):
        window = tint(window, coverage)
        h, w = coverage.shape
        x = np.arange(w, dtype=np.float32) + 0.5 - w / 2
        y = np.arange(h, dtype=np.float32)[:, None] + 0.5 - h / 2
        square = (x * x + y * y)[..., None]
        window = window * (1 + np.exp(square / -spread) * _INFLAMED)
        if headed:
            head = 1 / (1 + np.exp((np.sqrt(square) - size) / 0.5))
            window = window + 0.75 * head * (pale - window)
        return window

    return centre + _blob(face, radius, 0.06), rng.uniform(0.8, 1.3), paint


def _spot(face, side):
    rng = face.rng
    radius = rng.uniform(5.2, 12.5) * face.unit / 90
    deep = rng.uniform(0.7, 1.15)
    ratio = 1 - deep * np.float32([0.24, 0.34, 0.43])
    outline = _somewhere(face, 1.2 * radius) + _blob(face, radius, 0.22)
    return outline, rng.uniform(1.1, 1.9), _tint(ratio)


def _mole(face, side):
    rng = face.rng
    radius = rng.uniform(3.0, 5.6) * face.unit / 90
    ratio = rng.uniform(0.75, 1.2) * np.float32([0.36, 0.29, 0.27])
    outline = _somewhere(face, radius) + _blob(face, radius, 0.08)
    return outline, rng.uniform(0.5, 0.7), _tint(ratio)


def _wrinkle(face, side):
    rng = face.rng
    kind = rng.choice(3, p=[0.5, 0.25, 0.25])
    if kind == 0:
        highest = max(face.hairline[0] + 0.12, -0.74)
        half = rng.uniform(0.16, 0.42)
        v = rng.uniform(min(highest, -0.45), -0.42)
        u, bend = rng.normal(0, 0.14), rng.normal(-0.03, 0.03)
        curve = [(u - half, v), (u, v + bend), (u + half, v + rng.normal(0, 0.02))]
    elif kind == 1:
        corner = face.eye + 1.2 * face.eye_size[0] + 0.045
        v, end = rng.uniform(-0.08, 0.14), rng.uniform(0.85, 0.9)
        rise = rng.choice([-1, 1]) * rng.uniform(0.04, 0.14)
        curve = [(corner, v * 0.6), ((corner + end) / 2, v), (end, v + rise)]
        curve = np.array(curve) * (side, 1)
    else:
        wing, base = face.nose
        half, mouth = face.mouth
        curve = [
            (wing + rng.uniform(0.14, 0.18), base - 0.06),
            (1.1 * half + 0.06, (base + mouth) / 2 - 0.05),
            (1.15 * half + rng.uniform(0.1, 0.16), mouth + rng.uniform(0, 0.15)),
        ]
        curve = np.array(curve) * (side, 1)
    line = face.points(shapes.smooth(curve, 24))
    width = rng.uniform(1.9, 3.0) * math.sqrt(face.unit / 90)
    along = np.gradient(line, axis=0)
    normal = along[:, ::-1] * (1, -1) / np.hypot(*along.T)[:, None]
    offset = normal * (width / 2 * _TAPER)[:, None]
    outline = np.concatenate([line + offset, (line - offset)[::-1]])
    ratio = 1 - rng.uniform(0.85, 1.3) * np.float32([0.34, 0.40, 0.40])
    return outline, rng.uniform(0.3, 0.5), _tint(ratio)


def _dark_circle(face, side):
    rng = face.rng
    half, opening = face.eye_size
    half = half * rng.uniform(0.95, 1.2)
    depth, start = rng.uniform(0.1, 0.16), 0.7 * opening + rng.uniform(0.07, 0.09)
    t = shapes.steps(-1, 1, 16)
    u = side * (face.eye - 0.02) + half * t
    curve = start + 0.03 - 0.1 * t**2
    upper = shapes.path(u, curve)
    lower = shapes.path(u, curve + depth * (1 - t**2))
    outline = face.points(np.concatenate([upper, lower[::-1]]))
    hue = np.float32([(0.34, 0.33, 0.22), (0.30, 0.36, 0.36), (0.30, 0.36, 0.26)])
    ratio = 1 - rng.uniform(0.7, 1.1) * hue[rng.integers(3)]
    return outline, rng.uniform(1.0, 1.6), _tint(ratio)


# Largest first. Of each kind how to make one, and the probabilities of 0, 1, 2, ... in
# one face.
_KINDS = {
    "dark_circle": (_dark_circle, (0.48, 0.12, 0.40)),
    "wrinkle": (_wrinkle, (0.34, 0.12, 0.18, 0.18, 0.18)),
    "spot": (_spot, (0.40, 0.20, 0.18, 0.13, 0.09)),
    "acne": (_acne, (0.35, 0.10, 0.13, 0.14, 0.12, 0.09, 0.07)),
    "mole": (_mole, (0.40, 0.20, 0.18, 0.13, 0.09)),
}
MOST = {branch: len(shares) - 1 for branch, (_, shares) in _KINDS.items()}  # in a face


def _tint(ratio):
    def paint(window, coverage):
        return window * (1 + coverage[..., None] * (ratio - 1))

    return paint


def _coverage(outline, height, width, softness):
    """Share of each pixel [height, width] that a soft-edged polygon covers."""
    scale = 4
    fine = np.zeros((scale * height, scale * width), np.uint8)
    shapes.stencil(fine, shapes.fixed(scale * outline), 255)
    coverage = cv2.resize(fine, (width, height), interpolation=cv2.INTER_AREA)
    coverage = coverage.astype(np.float32) / 255
    return cv2.GaussianBlur(coverage, (0, 0), softness)
