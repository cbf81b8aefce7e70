"""Procedural faces with skin lesions and their exact masks.

A face is drawn in its own frame: the origin lies between the eyes, u points to the
picture's right, v down, and the unit is half the width of the face at the cheekbones.
"""

import dataclasses
import functools
import itertools
import math

import cv2
import numpy as np

from facekp_jax import pixels
from facekp_jax.masks import from_full, patch_box
from facekp_jax.records import LesionImage, Region

BRANCHES = ("acne", "spot", "mole", "wrinkle", "dark_circle")

_SKINS = np.array(
    [
        (246, 214, 194),
        (236, 196, 170),
        (224, 178, 146),
        (208, 158, 122),
        (184, 132, 96),
        (152, 104, 74),
        (120, 80, 58),
        (92, 62, 46),
    ],
    np.float32,
)
_HAIRS = np.array(
    [(24, 20, 20), (48, 32, 24), (84, 56, 36), (140, 100, 60), (196, 164, 110)]
    + [(150, 70, 40), (170, 168, 166), (90, 88, 90)],
    np.float32,
)
_IRISES = np.array([(60, 36, 22), (88, 60, 34), (80, 100, 70), (80, 110, 140)])
_COUNTS = {  # probabilities of 0, 1, 2, ... regions in one face
    "acne": (0.35, 0.10, 0.13, 0.14, 0.12, 0.09, 0.07),
    "spot": (0.40, 0.20, 0.18, 0.13, 0.09),
    "mole": (0.40, 0.20, 0.18, 0.13, 0.09),
    "wrinkle": (0.34, 0.12, 0.18, 0.18, 0.18),
    "dark_circle": (0.48, 0.12, 0.40),
}
_LARGEST_FIRST = ("dark_circle", "wrinkle", "spot", "acne", "mole")
_TRIES = 6  # to find free skin for one region
_SUBPIXEL_BITS = 4
_SHADING_STEP = 4  # pixels of the photo per cell of the shading field
_NOISE_SIDE = 512  # pixels
_FACE_BOX = (-1.13, -0.90, 1.13, 1.36)  # face units; where Haar cascades put it


@dataclasses.dataclass(frozen=True)
class SyntheticFaces:
    """A source of faces whose every lesion is known to the pixel.

    Record i depends on (seed, i) only. Regions of branches a photo is not labelled
    for are drawn, but are not in its record.
    """

    length: int
    seed: int = 0
    partly_labelled: bool = True  # about a third of the photos

    branches = BRANCHES

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        noise = rng.standard_normal((_NOISE_SIDE, _NOISE_SIDE, 3), np.float32)
        grain = noise + 1.5 * noise[..., :1]
        pores = cv2.GaussianBlur(rng.standard_normal(noise.shape[:2]), (0, 0), 1.2)
        pores = np.repeat(pores[..., None] / pores.std(), 3, axis=2)
        object.__setattr__(self, "_grain", grain.astype(np.float32))
        object.__setattr__(self, "_pores", pores.astype(np.float32))

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(f"face {index} of a source of {self.length}")
        rng = np.random.default_rng((self.seed, index))
        face = _Face(rng)
        face.draw_scene()
        face.shade(self._pores)
        regions = face.add_lesions()
        face.expose(self._grain)
        labelled = _labelled(rng) if self.partly_labelled else BRANCHES
        return LesionImage(
            name=f"face-{self.seed}-{index:06d}",
            image=face.image,
            regions=tuple(r for r in regions if r.branch in labelled),
            labelled=labelled,
            face=face.box,
        )


def _labelled(rng):
    if rng.random() < 2 / 3:
        return BRANCHES
    kept = rng.permutation(len(BRANCHES))[: rng.integers(1, len(BRANCHES))]
    return tuple(branch for i, branch in enumerate(BRANCHES) if i in kept)


class _Face:
    """One face being drawn.

    Attributes:
        image: uint8 [H, W, 3].
        box: float32 [4], the face's rectangle.
        skin: uint8 [H, W], 1 where a lesion may lie.
        head: uint8 [H, W], 1 where the picture shows head, neck or hair.
    """

    def __init__(self, rng):
        self.rng = rng
        self.unit = rng.uniform(70, 101)  # pixels
        side = (_FACE_BOX[2] - _FACE_BOX[0]) * self.unit
        self.width = int(np.clip(side * rng.uniform(1.15, 1.6), 240, 340))
        self.height = int(np.clip(side * rng.uniform(1.2, 1.65), 240, 340))
        angle = np.clip(rng.normal(0, 0.07), -0.25, 0.25)
        self.axes = self.unit * np.array(
            [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        )
        room = np.array([self.width, self.height]) - 1.04 * side
        corner = np.clip(rng.normal(0.5, 0.17, 2), 0, 1) * np.maximum(room, 0)
        self.centre = corner + 0.02 * side - self.unit * np.array(_FACE_BOX[:2])
        # The rectangle that a face detector would give.
        corners = np.reshape(_FACE_BOX, (2, 2)) + rng.normal(0, 0.025, 2)
        corners = np.clip(
            corners * self.unit + self.centre, 0, (self.width, self.height)
        )
        self.box = corners.reshape(4).astype(np.float32)
        self.image = np.empty((self.height, self.width, 3), np.uint8)
        self.skin = np.zeros((self.height, self.width), np.uint8)
        self.head = np.zeros((self.height, self.width), np.uint8)

        tone = rng.uniform(0, len(_SKINS) - 1)
        low = int(tone)
        self.skin_colour = _SKINS[low] + (tone - low) * (
            _SKINS[min(low + 1, len(_SKINS) - 1)] - _SKINS[low]
        )
        self.skin_colour *= rng.uniform(0.96, 1.04, 3)
        self.hair_colour = _HAIRS[rng.choice(len(_HAIRS))] * rng.uniform(0.8, 1.15)
        if tone > 3.5 and rng.random() < 0.85:
            self.hair_colour = _HAIRS[0] * rng.uniform(0.8, 1.6)

        self.turn = np.clip(rng.normal(0, 0.06), -0.14, 0.14)  # face units
        self.chin = rng.uniform(1.3, 1.48)
        self.jaw = rng.uniform(2.0, 3.2), rng.uniform(1.7, 2.3)
        self.eye = rng.uniform(0.385, 0.44)
        self.eye_size = rng.uniform(0.17, 0.215), rng.uniform(0.06, 0.095)
        self.brow = rng.uniform(-0.31, -0.23)
        self.nose = rng.uniform(0.17, 0.24), rng.uniform(0.46, 0.56)
        self.mouth = rng.uniform(0.31, 0.43), rng.uniform(0.80, 0.9)
        self.hair_style = rng.choice(
            ["bald", "short", "fringe", "parted", "long", "long fringe"],
            p=[0.08, 0.24, 0.14, 0.2, 0.22, 0.12],
        )
        self.bearded = rng.random() < 0.22
        self.hairline = rng.uniform(-0.82, -0.68), rng.uniform(2.5, 5)
        if "fringe" in self.hair_style:
            self.hairline = rng.uniform(-0.62, -0.45), rng.uniform(3, 8)
        self.parting = rng.uniform(-0.5, 0.5) if "parted" in self.hair_style else 0.0

    def points(self, uv):
        """Maps face units [..., 2] to photo pixels, turning the head a little."""
        turned = np.array(uv, np.float64)
        turned[..., 0] += self.turn * np.maximum(1 - turned[..., 0] ** 2, 0)
        return turned @ self.axes.T + self.centre

    # Drawing in face units

    def polygon(self, uv, colour, skin=None, head=True):
        fixed = _fixed(self.points(uv))
        _fill(self.image, fixed, colour)
        if head:
            cv2.fillPoly(self.head, [fixed], 1, cv2.LINE_8, _SUBPIXEL_BITS)
        if skin is not None:
            cv2.fillPoly(self.skin, [fixed], skin, cv2.LINE_8, _SUBPIXEL_BITS)

    def strokes(self, curves, colour, thickness=1, clear=0):
        """Draws polylines [N, P, 2] and keeps lesions `clear` pixels away from them."""
        fixed = list(_fixed(self.points(curves)))
        bits = _SUBPIXEL_BITS
        cv2.polylines(
            self.image, fixed, False, _rgb(colour), thickness, cv2.LINE_AA, bits
        )
        if clear:
            cv2.polylines(
                self.skin, fixed, False, 0, thickness + 2 * clear, cv2.LINE_8, bits
            )

    def ellipse(self, centre, radii, colour, head=True):
        self.polygon(centre + _circle(20) * radii, colour, head=head)

    # The scene

    def draw_scene(self):
        self._background()
        self._body()
        self._head()
        self._eyes()
        self._nose()
        self._mouth()
        if self.bearded:
            self._beard()
        if self.rng.random() < 0.2:
            self._freckles()
        self._hair()
        if self.rng.random() < 0.18:
            self._glasses()

    def _background(self):
        rng = self.rng
        grey = rng.uniform(40, 220) + rng.normal(0, rng.uniform(5, 35), (5, 5, 1))
        coarse = grey + rng.normal(0, 22, 3) + rng.normal(0, 9, (5, 5, 3))
        coarse = np.clip(coarse, 0, 255).astype(np.uint8)
        size = (self.width, self.height)
        cv2.resize(coarse, size, dst=self.image, interpolation=cv2.INTER_CUBIC)
        for _ in range(rng.integers(0, 9)):
            shape = rng.uniform(-0.9, 0.9, 2) * 2.2 + _circle(rng.integers(3, 8)) * (
                rng.uniform(0.05, 0.7, 2)
            )
            self.polygon(shape, rng.uniform(10, 250, 3), head=False)
        for _ in range(rng.integers(0, 8)):  # dots of lesion colours, off the skin
            colour = rng.uniform(0.5, 1.3) * np.array(
                [(190, 60, 60), (120, 80, 50), (50, 35, 30)][rng.integers(3)]
            )
            self.ellipse(
                rng.uniform(-2, 2, 2), rng.uniform(0.03, 0.1), colour, head=False
            )

    def _body(self):
        rng = self.rng
        if "long" in self.hair_style:
            wide, low = rng.uniform(1.2, 1.45), rng.uniform(1.1, 2.2)
            upper = _arc(-np.pi, 0, 16) * (wide, 1.35) + (0, -0.1)
            lower = [(wide * 1.05, low * 0.6), (wide * 0.9, low)]
            mirrored = [(-u, v) for u, v in lower[::-1]]
            self.polygon(np.concatenate([upper, lower, mirrored]), self.hair_colour)
            for shade in (0.7, 1.3):
                u = rng.choice([-1, 1], 12) * rng.uniform(0.95, wide, 12)
                curves = _curves((u, 0.1), (u * 1.07, low * 0.55), (u * 0.95, low))
                self.strokes(curves, self.hair_colour * shade)
        neck = rng.uniform(0.52, 0.7)
        self.polygon(
            [(-neck, 0.7), (neck, 0.7), (neck * 1.15, 2.4), (-neck * 1.15, 2.4)],
            self.skin_colour * 0.86,
        )
        colour = rng.uniform(15, 240, 3)
        collar, drop = rng.uniform(1.62, 1.95), rng.uniform(0.02, 0.5)
        shoulders = [(-neck * 1.1, collar), (0, collar + drop), (neck * 1.1, collar)]
        shoulders += [(1.9, collar + 0.35), (2.4, 3), (-2.4, 3), (-1.9, collar + 0.35)]
        self.polygon(shoulders, colour, head=False)
        for side in (-1, 1):
            ear = np.array([side * 1.01, rng.uniform(0.08, 0.14)])
            self.ellipse(ear, (0.13, 0.26), self.skin_colour * 0.9)
            self.ellipse(ear, (0.06, 0.15), self.skin_colour * 0.72)
        if rng.random() < 0.2:
            for side in (-1, 1):
                colour = [(200, 60, 60), (220, 200, 120), (70, 50, 40)][rng.integers(3)]
                self.ellipse((side * 1.04, 0.42), rng.uniform(0.03, 0.06), colour)

    def _jaw(self, down):
        """Half-width of the lower face; `down` runs from 0 at the cheeks to 1."""
        p, q = self.jaw
        return (1 - down**p) ** (1 / q)

    def _head(self):
        upper = _arc(-np.pi, 0, 24) * (1, 1.15) + (0, -0.1)
        t = np.linspace(0, 1, 20)[1:]
        right = np.stack([self._jaw(t), -0.1 + t * (self.chin + 0.1)], -1)
        outline = np.concatenate([upper, right, right[::-1] * (-1, 1)])
        self.polygon(outline, self.skin_colour)
        self.polygon((outline - (0, 0.3)) * 0.96 + (0, 0.3), self.skin_colour, 1)

    def _eyes(self):
        rng = self.rng
        half, opening = self.eye_size
        iris_colour = _IRISES[rng.integers(len(_IRISES))] * rng.uniform(0.7, 1.1)
        gaze = rng.normal(0, 0.02, 2)
        makeup = rng.random() < 0.2
        lash = rng.integers(2, 4)
        t = np.linspace(-1, 1, 13)
        tilt = rng.normal(0.015, 0.015)
        thick, bend = rng.uniform(0.03, 0.065), rng.uniform(0.04, 0.1)
        for side in (-1, 1):
            u = side * self.eye + half * t
            slant = -side * tilt * t
            top = np.stack([u, slant - opening * (1 - np.abs(t) ** 2.2)], -1)
            low = np.stack([u, slant + 0.7 * opening * (1 - t**2)], -1)
            if makeup:
                shadow = np.concatenate([top - (0, 0.07), top[::-1]])
                self.polygon(shadow, self.skin_colour * (0.62, 0.5, 0.58))
            self.strokes([top - (0, 0.045)], self.skin_colour * 0.66)
            almond = np.concatenate([top, low[::-1]])
            wide = (almond - (side * self.eye, 0)) * (1.2, 1.5) + (side * self.eye, 0)
            cv2.fillPoly(
                self.skin, [_fixed(self.points(wide))], 0, cv2.LINE_8, _SUBPIXEL_BITS
            )
            self._eyeball(almond, (side * self.eye + gaze[0], gaze[1]), iris_colour)
            inner = (side * (self.eye - half * 0.9), 0.012)
            self.ellipse(inner, (0.024, 0.02), self.skin_colour * (0.95, 0.6, 0.6))
            self.strokes([low], self.skin_colour * 0.6)
            self.strokes([top], self.skin_colour * 0.2, int(lash))

            u = side * (self.eye + 0.02) + 0.25 * t
            arch = self.brow - bend * (1 - (t * side - 0.25) ** 2) + 0.03
            weight = thick * np.clip(1.2 - (t * side + 0.3) ** 2, 0.3, 1)
            upper = np.stack([u, arch - weight / 2], -1)
            lower = np.stack([u, arch + weight / 2], -1)
            colour = 0.75 * self.hair_colour + 0.12 * self.skin_colour
            self.polygon(np.concatenate([upper, lower[::-1]]), colour)
            self.strokes([(upper + lower) / 2], colour, 2, clear=5)
            at = rng.uniform(-1, 1, 18)
            base = np.stack(
                [np.interp(at, t, u), np.interp(at, t, arch) + 0.4 * thick], -1
            )
            tips = base + (side * 0.05, -0.8) * rng.uniform(0.03, 0.08, (18, 1))
            self.strokes(np.stack([base, tips], 1), colour * 0.8)

    def _eyeball(self, almond, iris, iris_colour):
        points = self.points(almond)
        x0, y0 = np.maximum(np.floor(points.min(0)).astype(int) - 2, 0)
        x1, y1 = np.ceil(points.max(0)).astype(int) + 2
        window = self.image[y0:y1, x0:x1]
        origin = (x0, y0)
        ball = np.empty_like(window)
        ball[:] = _rgb(np.minimum(self.skin_colour * 0.3 + 135, 225))
        for radius, colour in (
            (0.088, iris_colour * 0.6),
            (0.074, iris_colour),
            (0.036, np.zeros(3)),
        ):
            _fill(
                ball, _fixed(self.points(iris + radius * _circle(16)) - origin), colour
            )
        glint = np.add(iris, (-0.03, -0.03)) + 0.016 * _circle(8)
        _fill(ball, _fixed(self.points(glint) - origin), (240, 240, 240))
        inside = np.zeros(window.shape[:2], np.uint8)
        _fill(inside, _fixed(points - origin), 255)
        weight = (inside * np.float32(1 / 255))[..., None]
        window[:] = window + weight * (ball - window.astype(np.float32))

    def _nose(self):
        half, base = self.nose
        dark = self.skin_colour * 0.55
        for side in (-1, 1):
            wing = [(0.6, -0.16), (0.98, -0.1), (1.05, -0.02), (0.8, 0.04)]
            curve = np.array(wing) * (side * half, 1) + (0, base)
            self.strokes([_smooth(curve)], dark, 1, clear=4)
            self.ellipse(
                (side * half * 0.48, base + 0.01),
                (half * 0.28, 0.028),
                self.skin_colour * (0.3, 0.2, 0.2),
            )
        tip = np.array([(-0.7, 0.02), (0, 0.05), (0.7, 0.02)]) * (half, 1) + (0, base)
        self.strokes([_smooth(tip)], self.skin_colour * 0.72, 1, clear=6)

    def _mouth(self):
        rng = self.rng
        half, v = self.mouth
        upper, lower = rng.uniform(0.05, 0.09), rng.uniform(0.07, 0.13)
        red = rng.uniform(0.2, 1)
        lips = self.skin_colour * (1 - red * 0.1, 1 - 0.42 * red, 1 - 0.36 * red)
        smile = rng.uniform(-0.03, 0.06)
        t = np.linspace(-1, 1, 15)
        line = np.stack([half * t, v - smile * t**2], -1)
        bow = upper * (1 - np.abs(t) ** 1.8) - 0.025 * np.exp(-((t / 0.15) ** 2))
        top = line - np.stack([0 * t, bow], -1)
        bottom = line + np.stack([0 * t, lower * (1 - t**2)], -1)
        shape = np.concatenate([top, bottom[::-1]])
        self.polygon(shape, lips)
        self.polygon(np.concatenate([top, line[::-1]]), lips * 0.86)
        spread = (shape - (0, v)) * (1.15, 1.35) + (0, v)
        cv2.fillPoly(
            self.skin, [_fixed(self.points(spread))], 0, cv2.LINE_8, _SUBPIXEL_BITS
        )
        if rng.random() < 0.2:
            gap = np.stack([0 * t, 0.06 * (1 - t**2)], -1)
            self.polygon(
                np.concatenate([line * (0.9, 1), (line + gap)[::-1] * (0.9, 1)]),
                (225, 220, 208) if rng.random() < 0.7 else (60, 25, 25),
            )
        self.strokes([line], self.skin_colour * (0.45, 0.28, 0.28), 2)

    def _beard(self):
        rng = self.rng
        count = rng.integers(150, 500)
        u = rng.uniform(-0.85, 0.85, count)
        v = rng.uniform(0.62, self.chin - 0.02, count)
        inside = np.abs(u) < 0.95 * self._jaw((v + 0.1) / (self.chin + 0.1))
        base = np.stack([u, v], -1)[inside]
        tips = base + (0.0, 1.0) * rng.uniform(0.01, 0.04, (len(base), 1))
        colour = 0.55 * self.skin_colour + 0.35 * self.hair_colour
        colour = np.minimum(colour, 0.8 * self.skin_colour)
        self.strokes(np.stack([base, tips], 1), colour, 1, clear=2)

    def _freckles(self):
        u, v = self.rng.normal((0, 0.3), (0.42, 0.18), (60, 2)).T.clip(-0.8, 0.8)
        colour = self.skin_colour * (0.84, 0.76, 0.68)
        self.strokes(_curves((u, v), (u + 0.01, v)), colour)

    def _hair(self):
        rng = self.rng
        if self.hair_style == "bald":
            return
        top, power = self.hairline
        volume = rng.uniform(1.04, 1.22)
        side = rng.uniform(-0.2, 0.15)
        u = np.linspace(0.99, -0.99, 31)

        def hairline(u):
            ragged = 0.02 * np.sin(u * phases[0] + phases[1])
            lifted = 0.3 * self.parting * u * (1 - np.abs(u))
            return top + (side - top) * np.abs(u) ** power + ragged + lifted

        phases = rng.uniform(8, 30), rng.uniform(0, 6)
        outer = _arc(-np.pi, 0, 24) * (1.0 + 0.6 * (volume - 1), 1.15 * volume)
        inner = np.stack([u, hairline(u)], -1)
        shape = np.concatenate([outer + (0, -0.1), inner])
        self.polygon(shape, self.hair_colour, 0)
        self.strokes([inner], self.hair_colour, 2, clear=4)
        for shade in (0.65, 0.85, 1.15, 1.4):
            start = rng.uniform(-0.95, 0.95, 10)
            end = np.clip(start + rng.normal(0, 0.1, 10), -0.97, 0.97)
            crown = start * 0.75 + 0.25 * self.parting
            curves = _curves(
                (crown, -0.1 - 1.12 * volume * np.sqrt(1 - crown**2)),
                ((crown + end) / 2 * 1.1, (hairline(end) - 1.05) / 2),
                (end, hairline(end)),
            )
            self.strokes(curves, np.minimum(self.hair_colour * shade, 235))
        loose = rng.integers(1, 6) if rng.random() < 0.45 else 0
        start = rng.uniform(-0.8, 0.8, loose)
        v = hairline(start)
        curves = _curves(
            (start, v - 0.1),
            (start + rng.normal(0, 0.1, loose), v + 0.1),
            (start + rng.normal(0, 0.22, loose), v + rng.uniform(0.15, 0.5, loose)),
        )
        self.strokes(curves, self.hair_colour, int(rng.integers(1, 3)), clear=4)
        for _ in range(rng.integers(1, 4) if rng.random() < 0.15 else 0):  # hair clips
            centre = rng.uniform((-0.6, -1.15), (0.6, -1.0))
            colour = rng.uniform((120, 20, 20), (220, 90, 60))
            self.ellipse(centre, rng.uniform(0.03, 0.08, 2), colour)

    def _glasses(self):
        rng = self.rng
        colour = [(20, 20, 22), (70, 40, 24), (150, 150, 155), (120, 30, 30)][
            rng.integers(4)
        ]
        power = rng.uniform(0.5, 1)
        ring = _circle(28)
        ring = np.sign(ring) * np.abs(ring) ** power * (0.31, rng.uniform(0.2, 0.27))
        thickness = int(rng.integers(2, 4))
        for side in (-1, 1):
            rim = ring + (side * (self.eye + 0.01), 0.06)
            self.strokes([np.concatenate([rim, rim[:1]])], colour, thickness, 4)
            temple = [(side * (self.eye + 0.31), 0.0), (side * 1.02, -0.03)]
            self.strokes([temple], colour, thickness, 4)
        gap = self.eye - 0.3
        bridge = [(-gap, 0.0), (0, -0.04), (gap, 0.0)]
        self.strokes([_smooth(bridge)], colour, thickness, 4)

    # Light

    def shade(self, pores):
        """Multiplies the flat colours by light, skin redness and skin texture."""
        rng = self.rng
        h, w = -(-self.height // _SHADING_STEP), -(-self.width // _SHADING_STEP)
        x = (np.arange(w, dtype=np.float32) + 0.5) * _SHADING_STEP - self.centre[0]
        y = (np.arange(h, dtype=np.float32) + 0.5) * _SHADING_STEP - self.centre[1]
        a, b = np.linalg.inv(self.axes).astype(np.float32)
        u = a[0] * x + a[1] * y[:, None]
        v = b[0] * x + b[1] * y[:, None]
        light = np.array([rng.normal(0, 0.3), rng.normal(-0.2, 0.2), 1.0], np.float32)
        ambient = rng.uniform(0.45, 0.8)
        nu, nv = u / 1.18, (v - 0.1) / 1.7
        nz = np.sqrt(np.maximum(0.08, 1 - nu**2 - nv**2))
        lambert = np.maximum(0, nu * light[0] + nv * light[1] + nz * light[2])
        gain = ambient + (1 - ambient) * lambert
        u = u - self.turn * np.maximum(1 - u * u, 0)
        half, base = self.nose
        relief = rng.uniform(0.7, 1.3)
        for centre_u, centre_v, size_u, size_v, amount in (
            (-self.eye, -0.06, 0.22, 0.13, -0.17),
            (self.eye, -0.06, 0.22, 0.13, -0.17),
            (0.0, 0.1, 0.08, 0.3, 0.13),
            (0.0, base - 0.08, 0.09, 0.08, 0.12),
            (-half - 0.02, base - 0.2, 0.07, 0.2, -0.11),
            (half + 0.02, base - 0.2, 0.07, 0.2, -0.11),
            (0.0, base + 0.1, 0.18, 0.06, -0.14),
            (-0.52, 0.38, 0.22, 0.18, 0.09),
            (0.52, 0.38, 0.22, 0.18, 0.09),
            (0.0, -0.5, 0.45, 0.2, 0.07),
            (0.0, self.mouth[1] + 0.17, 0.18, 0.05, -0.12),
            (0.0, self.chin + 0.14, 0.7, 0.1, -0.35),
        ):
            gain += (amount * relief) * _bump(
                u, v, (centre_u, centre_v), (size_u, size_v)
            )
        if rng.random() < 0.3:
            angle, offset = rng.uniform(0, 2 * np.pi), rng.uniform(0.2, 0.8)
            beyond = u * np.cos(angle) + (v - 0.2) * np.sin(angle) - offset
            gain *= 1 - rng.uniform(0.15, 0.4) / (1 + np.exp(-beyond / 0.06))
        if self.bearded:
            gain -= 0.12 * _bump(u, v, (0, self.mouth[1] + 0.15), (0.6, 0.35))
        red = np.zeros_like(gain)
        flushed = rng.uniform(0.0, 0.12) if rng.random() < 0.75 else 0.17
        for centre in ((-0.55, 0.42), (0.55, 0.42), (0.0, base - 0.05)):
            red += flushed * _bump(u, v, centre, (0.2, 0.15))
        if rng.random() < 0.3:
            centre = rng.uniform((-0.7, -0.5), (0.7, 1.2))
            red += rng.uniform(0.08, 0.18) * _bump(u, v, centre, (0.22, 0.16))
        mottle = cv2.resize(
            rng.normal(0, 0.02, (h // 3, w // 3, 3)).astype(np.float32), (w, h)
        )
        field = gain[..., None] * (1 + red[..., None] * (0.35, -1.0, -0.9)) + mottle
        field *= rng.uniform(0.82, 1.12) * rng.uniform(0.95, 1.05, 3)
        field = cv2.resize(
            field.astype(np.float32),
            None,
            fx=_SHADING_STEP,
            fy=_SHADING_STEP,
            interpolation=cv2.INTER_LINEAR,
        )[: self.height, : self.width]
        window = _window(rng, pores, self.height, self.width)
        field = cv2.scaleAdd(window, rng.uniform(0.008, 0.028), field)
        lit = cv2.multiply(self.image, field, dtype=cv2.CV_8U)
        # One pixel more: the edges are antialiased.
        cv2.copyTo(lit, cv2.dilate(self.head, np.ones((3, 3), np.uint8)), self.image)

    def expose(self, grain):
        """The camera: a little blur and sensor noise."""
        rng = self.rng
        if rng.random() < 0.5:
            self.image = cv2.GaussianBlur(self.image, (3, 3), rng.uniform(0.3, 0.6))
        window = _window(rng, grain, self.height, self.width)
        strength = rng.uniform(0.4, 2.0)
        self.image = cv2.addWeighted(
            self.image, 1.0, window, strength, 0.0, dtype=cv2.CV_8U
        )

    # Lesions

    def add_lesions(self):
        regions = []
        for branch in _LARGEST_FIRST:
            shares = _COUNTS[branch]
            wanted = self.rng.choice(len(shares), p=shares)
            make = getattr(self, f"_{branch}")
            order = itertools.cycle(self.rng.permutation(2))
            for _ in range(wanted):
                side = (-1, 1)[next(order)]
                for _ in range(_TRIES):
                    region = self._place(branch, *make(side))
                    if region is not None:
                        regions.append(region)
                        break
        return regions

    def _place(self, branch, outline, softness, paint):
        """Draws one lesion if it lies on free skin.

        Args:
            branch: name.
            outline: [N, 2] polygon, photo pixels.
            softness: standard deviation of its edge, pixels.
            paint: function (window float32 [h, w, 3], coverage [h, w]) -> window.

        Returns:
            The region, or None if it does not lie on free skin.
        """
        pad = 3 + int(np.ceil(2 * softness)) + pixels.MARGIN
        x0, y0 = np.floor(outline.min(0)).astype(int) - pad
        x1, y1 = np.ceil(outline.max(0)).astype(int) + pad
        if x0 < 0 or y0 < 0 or x1 > self.width or y1 > self.height:
            return None
        columns, rows = outline.astype(int).T
        if not self.skin[rows, columns].all():
            return None
        coverage = _coverage(outline - (x0, y0), y1 - y0, x1 - x0, softness)
        target = from_full(coverage > 0.5)
        if not target.pixels.any():
            return None
        target = target._replace(x=int(target.x + x0), y=int(target.y + y0))
        mask = pixels.dilate(target, pixels.MARGIN, self.height, self.width)
        rows = slice(mask.y, mask.y + mask.pixels.shape[0])
        columns = slice(mask.x, mask.x + mask.pixels.shape[1])
        free = self.skin[rows, columns]
        if not free[mask.pixels].all():
            return None
        free[mask.pixels] = 0
        window = self.image[y0:y1, x0:x1]
        painted = paint(window.astype(np.float32), coverage)
        window[:] = np.clip(painted + 0.5, 0, 255)
        return Region(branch, patch_box(mask), mask, target)

    def _somewhere(self, radius):
        """A point [2] with `radius` pixels of free skin around it, if there is luck."""
        span = (-0.88, -0.72), (0.88, self.chin - 0.1)
        points = self.points(self.rng.uniform(*span, (24, 2)))
        rings = np.multiply.outer((0, radius + pixels.MARGIN), _circle(8))
        around = points + rings[:, :, None]
        x, y = np.moveaxis(around, -1, 0).astype(int)
        x, y = x.clip(0, self.width - 1), y.clip(0, self.height - 1)
        return points[np.argmax(self.skin[y, x].all((0, 1)))]

    def _blob(self, radius, raggedness):
        rng = self.rng
        angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        order = np.arange(2, 6)[:, None]
        waves = np.cos(order * angle + rng.uniform(0, 6.3, (4, 1))) / order
        waves = rng.normal(0, raggedness, (4, 1)) * waves
        stretch = 1 + rng.uniform(0, 2 * raggedness)
        shape = _circle(24) * (radius * (1 + waves.sum(0)))[:, None]
        turn = rng.uniform(0, np.pi)
        along = np.array([np.cos(turn), np.sin(turn)])
        return shape + (stretch - 1) * np.outer(shape @ along, along)

    def _acne(self, side):
        rng = self.rng
        radius = rng.uniform(3.6, 9.0) * self.unit / 90
        centre = self._somewhere(radius)
        red = rng.uniform(0.75, 1.15)
        ratio = 1 + red * np.array([0.08, -0.36, -0.34])
        if self.skin_colour[0] < 150:
            ratio = 1 + red * np.array([0.28, -0.26, -0.26])
        headed = radius > 5 and rng.random() < 0.4
        size = rng.uniform(0.22, 0.36) * radius

        def paint(window, coverage):
            window = window * (1 + coverage[..., None] * (ratio - 1))
            h, w = coverage.shape
            y, x = np.ogrid[:h, :w]
            square = (x + 0.5 - w / 2) ** 2 + (y + 0.5 - h / 2) ** 2
            centre = np.exp(-square / (2 * (0.45 * radius) ** 2))[..., None]
            window = window * (1 + centre * (0.06, -0.08, -0.06))
            if headed:
                head = 1 / (1 + np.exp((np.sqrt(square) - size) / 0.5))[..., None]
                pale = np.minimum(self.skin_colour * (1.15, 1.08, 0.92), 250)
                window = window + 0.75 * head * (pale - window)
            return window

        return centre + self._blob(radius, 0.06), rng.uniform(0.8, 1.3), paint

    def _spot(self, side):
        rng = self.rng
        radius = rng.uniform(5.2, 12.5) * self.unit / 90
        deep = rng.uniform(0.7, 1.15)
        ratio = 1 - deep * np.array([0.24, 0.34, 0.43])
        outline = self._somewhere(1.2 * radius) + self._blob(radius, 0.22)
        return outline, rng.uniform(1.1, 1.9), _tint(ratio)

    def _mole(self, side):
        rng = self.rng
        radius = rng.uniform(3.0, 5.6) * self.unit / 90
        ratio = rng.uniform(0.75, 1.2) * np.array([0.36, 0.29, 0.27])
        outline = self._somewhere(radius) + self._blob(radius, 0.08)
        return outline, rng.uniform(0.5, 0.7), _tint(ratio)

    def _wrinkle(self, side):
        rng = self.rng
        kind = rng.choice(3, p=[0.5, 0.25, 0.25])
        if kind == 0:
            highest = max(self.hairline[0] + 0.12, -0.74)
            half = rng.uniform(0.16, 0.42)
            v = rng.uniform(min(highest, -0.45), -0.42)
            u, bend = rng.normal(0, 0.14), rng.normal(-0.03, 0.03)
            curve = [(u - half, v), (u, v + bend), (u + half, v + rng.normal(0, 0.02))]
        elif kind == 1:
            corner = self.eye + 1.2 * self.eye_size[0] + 0.045
            v, end = rng.uniform(-0.08, 0.14), rng.uniform(0.85, 0.9)
            rise = rng.choice([-1, 1]) * rng.uniform(0.04, 0.14)
            curve = [(corner, v * 0.6), ((corner + end) / 2, v), (end, v + rise)]
            curve = np.array(curve) * (side, 1)
        else:
            wing, base = self.nose
            half, mouth = self.mouth
            curve = [
                (wing + rng.uniform(0.14, 0.18), base - 0.06),
                (1.1 * half + 0.06, (base + mouth) / 2 - 0.05),
                (1.15 * half + rng.uniform(0.1, 0.16), mouth + rng.uniform(0, 0.15)),
            ]
            curve = np.array(curve) * (side, 1)
        line = self.points(_smooth(curve, 24))
        width = rng.uniform(1.9, 3.0) * np.sqrt(self.unit / 90)
        along = np.gradient(line, axis=0)
        normal = along[:, ::-1] * (1, -1) / np.linalg.norm(along, axis=1)[:, None]
        taper = np.minimum(1, 0.7 + 4 * (0.5 - np.abs(np.linspace(-0.5, 0.5, 24))))
        offset = normal * (width / 2 * taper)[:, None]
        outline = np.concatenate([line + offset, (line - offset)[::-1]])
        ratio = 1 - rng.uniform(0.85, 1.3) * np.array([0.34, 0.40, 0.40])
        return outline, rng.uniform(0.3, 0.5), _tint(ratio)

    def _dark_circle(self, side):
        rng = self.rng
        half, opening = self.eye_size
        half = half * rng.uniform(0.95, 1.2)
        depth, start = rng.uniform(0.1, 0.16), 0.7 * opening + rng.uniform(0.07, 0.09)
        t = np.linspace(-1, 1, 16)
        u = side * (self.eye - 0.02) + half * t
        curve = start + 0.03 - 0.1 * t**2
        upper = np.stack([u, curve], -1)
        lower = np.stack([u, curve + depth * (1 - t**2)], -1)
        outline = self.points(np.concatenate([upper, lower[::-1]]))
        hue = np.array([(0.34, 0.33, 0.22), (0.30, 0.36, 0.36), (0.30, 0.36, 0.26)])
        ratio = 1 - rng.uniform(0.7, 1.1) * hue[rng.integers(3)]
        return outline, rng.uniform(1.0, 1.6), _tint(ratio)


def _tint(ratio):
    def paint(window, coverage):
        return window * (1 + coverage[..., None] * (ratio - 1))

    return paint


def _coverage(outline, height, width, softness):
    """Share of each pixel [height, width] that a soft-edged polygon covers."""
    scale = 4
    fine = np.zeros((scale * height, scale * width), np.uint8)
    _fill(fine, _fixed(scale * outline), 255, cv2.LINE_8)
    coverage = cv2.resize(fine, (width, height), interpolation=cv2.INTER_AREA)
    coverage = coverage.astype(np.float32) / 255
    return cv2.GaussianBlur(coverage, (0, 0), softness)


def _fill(image, fixed, colour, kind=cv2.LINE_AA):
    colour = _rgb(colour) if image.ndim == 3 else colour
    cv2.fillPoly(image, [fixed], colour, kind, _SUBPIXEL_BITS)


def _rgb(colour):
    return tuple(float(c) for c in np.clip(colour, 0, 255))


def _fixed(points):
    # OpenCV counts from the centre of the first pixel, we count from its corner.
    return np.rint((points - 0.5) * 2**_SUBPIXEL_BITS).astype(np.int32)


@functools.cache
def _circle(count):
    return _arc(0, 2 * np.pi * (1 - 1 / count), count)


def _arc(start, stop, count):
    angle = np.linspace(start, stop, count)
    return np.stack([np.cos(angle), np.sin(angle)], -1)


def _smooth(control, count=12):
    """The Bezier curve [count, 2] of control points [3, 2] or [4, 2]."""
    return _bezier(len(control), count) @ np.asarray(control, np.float64)


def _curves(*control):
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


def _bump(u, v, centre, size):
    return np.exp(
        -(((u - centre[0]) / size[0]) ** 2 + ((v - centre[1]) / size[1]) ** 2) / 2
    )


def _window(rng, noise, height, width):
    y, x = rng.integers(0, (_NOISE_SIDE - height, _NOISE_SIDE - width))
    return noise[y : y + height, x : x + width]
