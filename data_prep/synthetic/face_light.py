"""Light on a synthetic face, the skin's texture, and the camera's blur and noise."""

import functools
import math

import cv2
import numpy as np

_SHADING_STEP = 4  # pixels of the photo per cell of the shading field
_NOISE_SIDE = 512  # pixels
_REDNESS = np.float32([0.35, -1.0, -0.9])  # what blood adds to each channel's light


@functools.lru_cache(4)
def noise(seed):
    """The camera's grain and the skin's pores, float32 [512, 512, 3], of a source."""
    rng = np.random.default_rng(seed)
    white = rng.standard_normal((_NOISE_SIDE, _NOISE_SIDE, 3), np.float32)
    grain = white + 1.5 * white[..., :1]
    pores = cv2.GaussianBlur(rng.standard_normal(white.shape[:2]), (0, 0), 1.2)
    pores = np.repeat(pores[..., None] / pores.std(), 3, axis=2)
    return grain.astype(np.float32), pores.astype(np.float32)


def shade(face, pores):
    """Multiplies the flat colours by light, skin redness and skin texture."""
    rng = face.rng
    h, w = -(-face.height // _SHADING_STEP), -(-face.width // _SHADING_STEP)
    centre = face.centre.astype(np.float32)
    x = (np.arange(w, dtype=np.float32) + 0.5) * _SHADING_STEP - centre[0]
    y = (np.arange(h, dtype=np.float32)[:, None] + 0.5) * _SHADING_STEP - centre[1]
    (a, b), (c, d) = np.linalg.inv(face.axes).astype(np.float32)
    u, v = a * x + b * y, c * x + d * y
    light = np.array([rng.normal(0, 0.3), rng.normal(-0.2, 0.2), 1.0], np.float32)
    ambient = rng.uniform(0.45, 0.8)
    nu, nv = u / 1.18, (v - 0.1) / 1.7
    nz = np.sqrt(np.maximum(0.08, 1 - nu**2 - nv**2))
    lambert = np.maximum(0, nu * light[0] + nv * light[1] + nz * light[2])
    gain = ambient + (1 - ambient) * lambert
    u = u - face.turn * np.maximum(1 - u * u, 0)
    half, base = face.nose
    relief = rng.uniform(0.7, 1.3)
    for centre_u, centre_v, size_u, size_v, amount in (
        (-face.eye, -0.06, 0.22, 0.13, -0.17),
        (face.eye, -0.06, 0.22, 0.13, -0.17),
        (0.0, 0.1, 0.08, 0.3, 0.13),
        (0.0, base - 0.08, 0.09, 0.08, 0.12),
        (-half - 0.02, base - 0.2, 0.07, 0.2, -0.11),
        (half + 0.02, base - 0.2, 0.07, 0.2, -0.11),
        (0.0, base + 0.1, 0.18, 0.06, -0.14),
        (-0.52, 0.38, 0.22, 0.18, 0.09),
        (0.52, 0.38, 0.22, 0.18, 0.09),
        (0.0, -0.5, 0.45, 0.2, 0.07),
        (0.0, face.mouth[1] + 0.17, 0.18, 0.05, -0.12),
        (0.0, face.chin + 0.14, 0.7, 0.1, -0.35),
    ):
        bump = _bump(u, v, (centre_u, centre_v), (size_u, size_v))
        gain += (amount * relief) * bump
    if rng.random() < 0.3:
        angle, offset = rng.uniform(0, 2 * math.pi), rng.uniform(0.2, 0.8)
        beyond = u * math.cos(angle) + (v - 0.2) * math.sin(angle) - offset
        gain *= 1 - rng.uniform(0.15, 0.4) / (1 + np.exp(-beyond / 0.06))
    if face.bearded:
        gain -= 0.12 * _bump(u, v, (0, face.mouth[1] + 0.15), (0.6, 0.35))
    red = np.zeros_like(gain)
    flushed = rng.uniform(0.0, 0.12) if rng.random() < 0.75 else 0.17
    for centre in ((-0.55, 0.42), (0.55, 0.42), (0.0, base - 0.05)):
        red += flushed * _bump(u, v, centre, (0.2, 0.15))
    if rng.random() < 0.3:
        centre = rng.uniform(-0.7, 0.7), rng.uniform(-0.5, 1.2)
        red += rng.uniform(0.08, 0.18) * _bump(u, v, centre, (0.22, 0.16))
    mottle = cv2.resize(
        rng.normal(0, 0.02, (h // 3, w // 3, 3)).astype(np.float32), (w, h)
    )
    field = gain[..., None] * (1 + red[..., None] * _REDNESS) + mottle
    field *= rng.uniform(0.82, 1.12) * rng.uniform(0.95, 1.05, 3)
    field = cv2.resize(
        field,
        None,
        fx=_SHADING_STEP,
        fy=_SHADING_STEP,
        interpolation=cv2.INTER_LINEAR,
    )[: face.height, : face.width]
    window = _window(rng, pores, face.height, face.width)
    cv2.scaleAdd(window, rng.uniform(0.008, 0.028), field, dst=field)
    lit = cv2.multiply(face.image, field, dtype=cv2.CV_8U)
    # One pixel more: the edges are antialiased.
    cv2.copyTo(lit, cv2.dilate(face.head, np.ones((3, 3), np.uint8)), face.image)


def expose(face, grain):
    """The camera: a little blur and sensor noise."""
    rng = face.rng
    if rng.random() < 0.5:
        face.image = cv2.GaussianBlur(face.image, (3, 3), rng.uniform(0.3, 0.6))
    window = _window(rng, grain, face.height, face.width)
    strength = rng.uniform(0.4, 2.0)
    face.image = cv2.addWeighted(
        face.image, 1.0, window, strength, 0.0, dtype=cv2.CV_8U
    )


def _bump(u, v, centre, size):
    return np.exp(
        -(((u - centre[0]) / size[0]) ** 2 + ((v - centre[1]) / size[1]) ** 2) / 2
    )


def _window(rng, noise, height, width):
    y, x = rng.integers(0, (_NOISE_SIDE - height, _NOISE_SIDE - width))
    return noise[y : y + height, x : x + width]
