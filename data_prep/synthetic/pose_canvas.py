"""A picture of solid shapes with depth: tapered limbs, ellipsoids and flat outlines.

Positions are (x, y) in pixels of the picture and z away from the viewer, in pixels too.
"""

import functools
import math
from typing import NamedTuple

import cv2
import numpy as np

from data_prep.synthetic import shapes

_TEXTURE_SIDE = 512  # pixels
_MOST_PAINTS = 256  # 0: the backdrop
_FADE = 1.0  # how much light is lost over a body's unit of depth
_NEAR = np.float32(-1e6)  # in front of everything that has a depth of its own


class Material(NamedTuple):
    """What a surface looks like."""

    colour: tuple[float, float, float]  # RGB
    second: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of its pattern
    ring: float = 0.0  # width of a ring around a limb, units of the Paint; 0: none
    blotches: float | None = None  # standard deviations of noise; less: more of them


class Paint(NamedTuple):
    """A material in one picture."""

    number: int  # of its colour; its pattern's is the next
    material: Material
    unit: float  # pixels in a unit of the pattern


class Canvas:
    """One picture being drawn, at most 512 x 512 pixels.

    Attributes:
        depth: float32 [H, W], z of what is in front; infinite where nothing is.
        paints: uint8 [H, W], its Paint's number; 0 where nothing is.
        shade: float32 [H, W], what the light does to the colour.
    """

    def __init__(self, rng, height, width):
        self.rng = rng
        self.height, self.width = height, width
        self.depth = np.full((height, width), np.inf, np.float32)
        self.shade = np.ones((height, width), np.float32)
        self.paints = np.zeros((height, width), np.uint8)
        self._colours = [(0.0, 0.0, 0.0)]
        towards = rng.normal((0, -0.55, 1), (0.5, 0.25, 0.1))
        self._light = (towards / np.sqrt(towards @ towards)).tolist()
        self._contrast = rng.uniform(0.3, 0.48)
        self._ambient = rng.uniform(0.95, 1.1) - self._contrast
        self._fade = 0.0, 0.0

    def add(self, material, unit=1.0):
        """Paint of a material; `unit`: pixels in one unit of its pattern."""
        number = len(self._colours)
        if number + 2 > _MOST_PAINTS:
            raise ValueError(
                f"a picture takes {_MOST_PAINTS // 2 - 1} materials at most; draw "
                "fewer bodies or things"
            )
        self._colours += [material.colour, material.second]
        return Paint(number, material, unit)

    def draw(self, body):
        """Draws a body behind and in front of what there is.

        Args:
            body: `pose_bodies.Body` seen by a camera.

        Returns:
            bool [H, W]: the body's pixels, those too that something else hides.
        """
        outline = np.zeros(self.paints.shape, bool)
        # What is nearer shades the rest: by that the left and the right leg differ.
        self._fade = _FADE / body.unit, body.points[:, 2].mean()
        paints = [self.add(material, body.unit) for material in body.materials]
        points = body.points.tolist()
        for (a, b), radii, material in zip(
            body.bones, body.radii.tolist(), body.bone_materials, strict=True
        ):
            self.limb(points[a], points[b], *radii, paints[material], outline)
        for centre, axes, material in zip(
            body.lumps, body.lump_axes, body.lump_materials, strict=True
        ):
            self.ellipsoid(points[centre], axes, paints[material], outline)
        self._fade = 0.0, 0.0
        return outline

    def limb(self, a, b, ra, rb, paint, outline=None):
        """Draws the spheres that taper along a line.

        Args:
            a: (x, y, z) of one end's centre.
            b: of the other end's.
            ra: radius at a.
            rb: radius at b.
            paint: Paint.
            outline: bool [H, W]; the limb's pixels become true, if it is given.
        """
        # NumPy's numbers would turn the arrays below into float64, which OpenCV does
        # not copy into the picture's float32.
        ax, ay, az, bx, by, bz, ra, rb = map(float, (*a, *b, ra, rb))
        window = self._window(
            min(ax - ra, bx - rb),
            min(ay - ra, by - rb),
            max(ax + ra, bx + rb),
            max(ay + ra, by + rb),
        )
        if window is None:
            return
        x, y = _offsets(window, ax, ay)
        dz, length = bz - az, math.hypot(bx - ax, by - ay) + 1e-3
        cosine, sine = (bx - ax) / length, (by - ay) / length
        light_x, light_y, light_z = self._light
        along, across = cosine * x + sine * y, cosine * y - sine * x
        radius = along * ((rb - ra) / length)
        np.maximum(radius, min(0.0, rb - ra), out=radius)
        np.minimum(radius, max(0.0, rb - ra), out=radius)
        radius += ra
        room = radius * radius
        room -= across * across
        # The sphere in front at a pixel is not that nearest to it if the limb is seen
        # from its end.
        t = np.sqrt(np.maximum(room, 0))
        t *= -dz / math.hypot(length, dz)
        t += along
        t *= 1 / length
        np.maximum(t, 0, out=t)
        np.minimum(t, 1, out=t)
        along -= t * length
        room -= along * along
        inside = room > 0
        height = np.sqrt(np.maximum(room, 0, out=room), out=room)
        z = t * dz
        z += az
        z -= height
        rings = None
        if paint.material.ring:
            rings = t * (math.hypot(length, dz) / (paint.material.ring * paint.unit))
        along *= cosine * light_x + sine * light_y
        across *= cosine * light_y - sine * light_x
        height *= light_z
        height += along
        height += across
        height /= radius
        self._put(window, inside, z, height, paint, rings, outline)

    def ellipsoid(self, centre, axes, paint, outline=None):
        """Draws an ellipsoid.

        Args:
            centre: (x, y, z).
            axes: [3, 3], its half axes, at right angles.
            paint: Paint; rings lie across the second axis.
            outline: bool [H, W]; its pixels become true, if it is given.
        """
        cx, cy, cz = map(float, centre)
        square = (axes * axes).sum(1)
        half_x, half_y, _ = np.sqrt((axes * axes).sum(0)).tolist()
        window = self._window(cx - half_x, cy - half_y, cx + half_x, cy + half_y)
        if window is None:
            return
        x, y = _offsets(window, cx, cy)
        inverse = (axes / square[:, None]).T
        (xx, xy, xz), (_, yy, yz), (_, _, zz) = (inverse @ inverse.T).tolist()
        room = (zz + (xz * xz - zz * xx) * x * x) + (yz * yz - zz * yy) * y * y
        room += ((2 * (xz * yz - zz * xy)) * x) * y
        inside = room > 0
        z = np.sqrt(np.maximum(room, 0, out=room), out=room)
        z += xz * x + yz * y
        z *= -1 / zz
        light = np.array([*self._light[:2], -self._light[2]])
        facing = inverse @ ((axes @ light) / np.sqrt(square))
        light_x, light_y, light_z = facing.tolist()
        glow = light_x * x + light_y * y
        glow += light_z * z
        rings = None
        if paint.material.ring:
            across_x, across_y, across_z = inverse[:, 1].tolist()
            rings = across_x * x + across_y * y + across_z * z
            rings *= math.sqrt(square[1]) / (paint.material.ring * paint.unit)
        z += cz
        self._put(window, inside, z, glow, paint, rings, outline)

    def cover(self, outlines, material):
        """Puts flat outlines [N, P, 2] in front of everything."""
        paint = self.add(material)
        mask = np.zeros(self.paints.shape, np.uint8)
        for outline in shapes.fixed(np.asarray(outlines)):
            shapes.stencil(mask, outline, 1)
        left, top, width, height = cv2.boundingRect(mask)
        if not width:
            return
        window = left, top, left + width, top + height
        x, y = _offsets(window, left + width / 2, top + height / 2)
        slope_x, slope_y = self.rng.uniform(-0.8, 0.8, 2)
        glow = (slope_x / width) * x + (slope_y / height) * y + 0.8
        z = np.full(glow.shape, _NEAR)
        inside = mask[top : top + height, left : left + width] > 0
        rings = None
        if material.ring:
            angle = self.rng.uniform(0, math.pi)
            rings = (math.cos(angle) * x + math.sin(angle) * y) / material.ring
        self._put(window, inside, z, glow, paint, rings, None)

    def hidden(self, points, reach):
        """Which points something lies in front of.

        Args:
            points: [K, 3] inside the picture.
            reach: [K], how far in front of a point its own surface may be.

        Returns:
            bool [K].
        """
        x, y = points[:, :2].astype(int).T
        return self.depth[y, x] < points[:, 2] - reach

    def develop(self, backdrop):
        """The picture, uint8 [H, W, 3], on a backdrop of the same form."""
        lookup = np.zeros((_MOST_PAINTS, 1, 3), np.uint8)
        colours = np.clip(self._colours, 0, 255)
        lookup[: len(colours), 0] = np.rint(colours)
        weave = textures()[self.rng.integers(2)]
        weave = crop(self.rng, weave, self.height, self.width)
        light = cv2.scaleAdd(weave, self.rng.uniform(0.02, 0.06), self.shade)
        colour = cv2.applyColorMap(self.paints, lookup)
        colour = cv2.multiply(colour, cv2.merge([light] * 3), dtype=cv2.CV_8U)
        picture = backdrop.copy()
        cv2.copyTo(colour, self.paints, picture)
        return cv2.GaussianBlur(picture, (3, 3), self.rng.uniform(0.45, 0.75))

    def _window(self, x0, y0, x1, y1):
        x0, y0 = max(math.floor(x0), 0), max(math.floor(y0), 0)
        x1, y1 = min(math.ceil(x1), self.width), min(math.ceil(y1), self.height)
        return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None

    def _put(self, window, inside, z, glow, paint, rings, outline):
        x0, y0, x1, y1 = window
        rows, columns = slice(y0, y1), slice(x0, x1)
        if outline is not None:
            part = outline[rows, columns]
            np.logical_or(part, inside, out=part)
        depth = self.depth[rows, columns]
        front = z < depth
        front &= inside
        mask = front.view(np.uint8)
        glow *= self._contrast
        glow += self._ambient
        fade, middle = self._fade
        if fade:
            glow *= np.clip(1 - fade * (z - middle), 0.6, 1.2)
        cv2.copyTo(z, mask, depth)
        cv2.copyTo(glow, mask, self.shade[rows, columns])
        number = paint.number
        if rings is not None:
            number = (np.floor(rings).astype(np.int32) & 1).astype(np.uint8) + number
        elif paint.material.blotches is not None:
            height, width = front.shape
            y = 91 * number % (_TEXTURE_SIDE - height + 1)
            x = 37 * number % (_TEXTURE_SIDE - width + 1)
            noise = textures()[2, y : y + height, x : x + width]
            number = (noise > paint.material.blotches).astype(np.uint8) + number
        np.copyto(self.paints[rows, columns], number, where=front)


@functools.cache
def textures():
    """Noise of unit variance, float32 [3, 512, 512]: fine, streaks, blotches."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((3, _TEXTURE_SIDE, _TEXTURE_SIDE), np.float32)
    for layer, (wide, high) in zip(
        noise, ((0.8, 0.8), (0.7, 3.0), (4.5, 4.5)), strict=True
    ):
        layer[:] = cv2.GaussianBlur(layer, (0, 0), wide, sigmaY=high)
        layer /= layer.std()
    noise.setflags(write=False)
    return noise


def crop(rng, texture, height, width):
    """A window [height, width] of a texture, anywhere."""
    y, x = rng.integers(0, (_TEXTURE_SIDE - height + 1, _TEXTURE_SIDE - width + 1))
    return np.ascontiguousarray(texture[y : y + height, x : x + width])


def _offsets(window, x, y):
    """Of the pixels' centres from a point: float32 [w] and [h, 1]."""
    x0, y0, x1, y1 = window
    columns = np.arange(x0, x1, dtype=np.float32) + np.float32(0.5 - x)
    rows = np.arange(y0, y1, dtype=np.float32) + np.float32(0.5 - y)
    return columns, rows[:, None]
