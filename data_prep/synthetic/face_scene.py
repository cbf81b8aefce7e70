"""What a synthetic photo of a face shows: the face, its surroundings, flat colours.

A face is drawn in its own frame: the origin lies between the eyes, u points to the
picture's right, v down, and the unit is half the width of the face at the cheekbones.
"""

import math

import cv2
import numpy as np

from data_prep.synthetic import shapes

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
    [
        (24, 20, 20),
        (48, 32, 24),
        (84, 56, 36),
        (140, 100, 60),
        (196, 164, 110),
        (150, 70, 40),
        (170, 168, 166),
        (90, 88, 90),
    ],
    np.float32,
)
_IRISES = np.array([(60, 36, 22), (88, 60, 34), (80, 100, 70), (80, 110, 140)])
_FACE_BOX = (-1.13, -0.90, 1.13, 1.36)  # face units; where Haar cascades put it


class Face:
    """One face being drawn.

    Attributes:
        unit: pixels of the photo in one face unit.
        centre: [2], the origin of the face's frame in the photo.
        axes: [2, 2], from face units to pixels, but for the turn of the head.
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
        angle = min(max(rng.normal(0, 0.07), -0.25), 0.25)
        right, down = self.unit * math.cos(angle), self.unit * math.sin(angle)
        self.axes = np.array([[right, -down], [down, right]])
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

        self.turn = min(max(rng.normal(0, 0.06), -0.14), 0.14)  # face units
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
        u = turned[..., 0]
        u += self.turn * np.maximum(1 - u * u, 0)
        return turned @ self.axes.T + self.centre

    # Drawing in face units

    def polygon(self, uv, colour, skin=None, head=True):
        """Fills a polygon [N, 2]; `skin`: 1 lesions may lie there, 0 they may not."""
        outline = shapes.fixed(self.points(uv))
        shapes.fill(self.image, outline, colour)
        if head:
            shapes.stencil(self.head, outline, 1)
        if skin is not None:
            shapes.stencil(self.skin, outline, skin)

    def keep_clear(self, uv):
        """No lesion may lie in this polygon [N, 2]."""
        shapes.stencil(self.skin, shapes.fixed(self.points(uv)), 0)

    def strokes(self, curves, colour, thickness=1, clear=0):
        """Draws polylines [N, P, 2] and keeps lesions `clear` pixels away from them."""
        curves = shapes.fixed(self.points(curves))
        shapes.lines(self.image, curves, colour, thickness)
        if clear:
            shapes.stencil_lines(self.skin, curves, 0, thickness + 2 * clear)

    def ellipse(self, centre, radii, colour, head=True):
        self.polygon(centre + shapes.circle(20) * radii, colour, head=head)

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
            centre, corners = rng.uniform(-0.9, 0.9, 2) * 2.2, rng.integers(3, 8)
            shape = centre + shapes.circle(corners) * rng.uniform(0.05, 0.7, 2)
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
            upper = shapes.arc(-np.pi, 0, 16) * (wide, 1.35) + (0, -0.1)
            lower = [(wide * 1.05, low * 0.6), (wide * 0.9, low)]
            mirrored = [(-u, v) for u, v in lower[::-1]]
            self.polygon(np.concatenate([upper, lower, mirrored]), self.hair_colour)
            for shade in (0.7, 1.3):
                u = rng.choice([-1, 1], 12) * rng.uniform(0.95, wide, 12)
                curves = shapes.curves(
                    (u, 0.1), (u * 1.07, low * 0.55), (u * 0.95, low)
                )
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
        upper = shapes.arc(-np.pi, 0, 24) * (1, 1.15) + (0, -0.1)
        t = shapes.steps(0, 1, 20)[1:]
        right = shapes.path(self._jaw(t), -0.1 + t * (self.chin + 0.1))
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
        t = shapes.steps(-1, 1, 13)
        tilt = rng.normal(0.015, 0.015)
        thick, bend = rng.uniform(0.03, 0.065), rng.uniform(0.04, 0.1)
        for side in (-1, 1):
            u = side * self.eye + half * t
            slant = -side * tilt * t
            top = shapes.path(u, slant - opening * (1 - np.abs(t) ** 2.2))
            low = shapes.path(u, slant + 0.7 * opening * (1 - t**2))
            if makeup:
                shadow = np.concatenate([top - (0, 0.07), top[::-1]])
                self.polygon(shadow, self.skin_colour * (0.62, 0.5, 0.58))
            self.strokes([top - (0, 0.045)], self.skin_colour * 0.66)
            almond = np.concatenate([top, low[::-1]])
            wide = (almond - (side * self.eye, 0)) * (1.2, 1.5) + (side * self.eye, 0)
            self.keep_clear(wide)
            self._eyeball(almond, (side * self.eye + gaze[0], gaze[1]), iris_colour)
            inner = (side * (self.eye - half * 0.9), 0.012)
            self.ellipse(inner, (0.024, 0.02), self.skin_colour * (0.95, 0.6, 0.6))
            self.strokes([low], self.skin_colour * 0.6)
            self.strokes([top], self.skin_colour * 0.2, int(lash))

            u = side * (self.eye + 0.02) + 0.25 * t
            arch = self.brow - bend * (1 - (t * side - 0.25) ** 2) + 0.03
            weight = thick * np.clip(1.2 - (t * side + 0.3) ** 2, 0.3, 1)
            upper = shapes.path(u, arch - weight / 2)
            lower = shapes.path(u, arch + weight / 2)
            colour = 0.75 * self.hair_colour + 0.12 * self.skin_colour
            self.polygon(np.concatenate([upper, lower[::-1]]), colour)
            self.strokes([(upper + lower) / 2], colour, 2, clear=5)
            at = rng.uniform(-1, 1, 18)
            base = shapes.path(
                np.interp(at, t, u), np.interp(at, t, arch) + 0.4 * thick
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
        ball[:] = shapes.rgb(np.minimum(self.skin_colour * 0.3 + 135, 225))
        for radius, colour in (
            (0.088, iris_colour * 0.6),
            (0.074, iris_colour),
            (0.036, np.zeros(3)),
        ):
            shapes.fill(
                ball,
                shapes.fixed(self.points(iris + radius * shapes.circle(16)) - origin),
                colour,
            )
        glint = np.add(iris, (-0.03, -0.03)) + 0.016 * shapes.circle(8)
        shapes.fill(ball, shapes.fixed(self.points(glint) - origin), (240, 240, 240))
        inside = np.zeros(window.shape[:2], np.uint8)
        shapes.fill(inside, shapes.fixed(points - origin), 255)
        weight = (inside * np.float32(1 / 255))[..., None]
        window[:] = window + weight * (ball - window.astype(np.float32))

    def _nose(self):
        half, base = self.nose
        dark = self.skin_colour * 0.55
        for side in (-1, 1):
            wing = [(0.6, -0.16), (0.98, -0.1), (1.05, -0.02), (0.8, 0.04)]
            curve = np.array(wing) * (side * half, 1) + (0, base)
            self.strokes([shapes.smooth(curve)], dark, 1, clear=4)
            self.ellipse(
                (side * half * 0.48, base + 0.01),
                (half * 0.28, 0.028),
                self.skin_colour * (0.3, 0.2, 0.2),
            )
        tip = np.array([(-0.7, 0.02), (0, 0.05), (0.7, 0.02)]) * (half, 1) + (0, base)
        self.strokes([shapes.smooth(tip)], self.skin_colour * 0.72, 1, clear=6)

    def _mouth(self):
        rng = self.rng
        half, v = self.mouth
        upper, lower = rng.uniform(0.05, 0.09), rng.uniform(0.07, 0.13)
        red = rng.uniform(0.2, 1)
        lips = self.skin_colour * (1 - red * 0.1, 1 - 0.42 * red, 1 - 0.36 * red)
        smile = rng.uniform(-0.03, 0.06)
        t = shapes.steps(-1, 1, 15)
        line = shapes.path(half * t, v - smile * t**2)
        bow = upper * (1 - np.abs(t) ** 1.8) - 0.025 * np.exp(-((t / 0.15) ** 2))
        top = line - shapes.path(0 * t, bow)
        bottom = line + shapes.path(0 * t, lower * (1 - t**2))
        shape = np.concatenate([top, bottom[::-1]])
        self.polygon(shape, lips)
        self.polygon(np.concatenate([top, line[::-1]]), lips * 0.86)
        spread = (shape - (0, v)) * (1.15, 1.35) + (0, v)
        self.keep_clear(spread)
        if rng.random() < 0.2:
            gap = shapes.path(0 * t, 0.06 * (1 - t**2))
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
        base = shapes.path(u, v)[inside]
        tips = base + (0.0, 1.0) * rng.uniform(0.01, 0.04, (len(base), 1))
        colour = 0.55 * self.skin_colour + 0.35 * self.hair_colour
        colour = np.minimum(colour, 0.8 * self.skin_colour)
        self.strokes(np.stack([base, tips], 1), colour, 1, clear=2)

    def _freckles(self):
        u, v = self.rng.normal((0, 0.3), (0.42, 0.18), (60, 2)).T.clip(-0.8, 0.8)
        colour = self.skin_colour * (0.84, 0.76, 0.68)
        self.strokes(shapes.curves((u, v), (u + 0.01, v)), colour)

    def _hair(self):
        rng = self.rng
        if self.hair_style == "bald":
            return
        top, power = self.hairline
        volume = rng.uniform(1.04, 1.22)
        side = rng.uniform(-0.2, 0.15)
        u = shapes.steps(0.99, -0.99, 31)

        def hairline(u):
            ragged = 0.02 * np.sin(u * phases[0] + phases[1])
            lifted = 0.3 * self.parting * u * (1 - np.abs(u))
            return top + (side - top) * np.abs(u) ** power + ragged + lifted

        phases = rng.uniform(8, 30), rng.uniform(0, 6)
        outer = shapes.arc(-np.pi, 0, 24) * (1 + 0.6 * (volume - 1), 1.15 * volume)
        outer -= (0, 0.1)
        inner = shapes.path(u, hairline(u))
        shape = np.concatenate([outer, inner])
        self.polygon(shape, self.hair_colour, 0)
        self.strokes([inner], self.hair_colour, 2, clear=4)
        for shade in (0.65, 0.85, 1.15, 1.4):
            start = rng.uniform(-0.95, 0.95, 10)
            end = np.clip(start + rng.normal(0, 0.1, 10), -0.97, 0.97)
            crown = start * 0.75 + 0.25 * self.parting
            curves = shapes.curves(
                (crown, -0.1 - 1.12 * volume * np.sqrt(1 - crown**2)),
                ((crown + end) / 2 * 1.1, (hairline(end) - 1.05) / 2),
                (end, hairline(end)),
            )
            self.strokes(curves, np.minimum(self.hair_colour * shade, 235))
        loose = rng.integers(1, 6) if rng.random() < 0.45 else 0
        start = rng.uniform(-0.8, 0.8, loose)
        v = hairline(start)
        curves = shapes.curves(
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
        ring = shapes.circle(28)
        ring = np.sign(ring) * np.abs(ring) ** power * (0.31, rng.uniform(0.2, 0.27))
        thickness = int(rng.integers(2, 4))
        for side in (-1, 1):
            rim = np.add(ring, (side * (self.eye + 0.01), 0.06))
            self.strokes([np.concatenate([rim, rim[:1]])], colour, thickness, 4)
            temple = [(side * (self.eye + 0.31), 0.0), (side * 1.02, -0.03)]
            self.strokes([temple], colour, thickness, 4)
        gap = self.eye - 0.3
        bridge = [(-gap, 0.0), (0, -0.04), (gap, 0.0)]
        self.strokes([shapes.smooth(bridge)], colour, thickness, 4)
