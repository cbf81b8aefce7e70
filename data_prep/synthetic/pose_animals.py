"""Synthetic quadrupeds: their proportions and coats, and what joints do in a pose.

The unit is the length of the trunk, from the shoulders to the hips; the origin lies
halfway between them.
"""

import math
from typing import NamedTuple

import numpy as np

from data_prep.synthetic.pose_bodies import Body, nod, spin, tilt
from data_prep.synthetic.pose_canvas import Material

_DOWN = np.array([0.0, 1.0, 0.0])
_COAT, _LEGS, _DARK, _EYE = range(4)


class Build(NamedTuple):
    """Proportions, in lengths of the trunk."""

    leg: float  # all of it
    girth: float  # radius of the chest
    waist: float  # radius before the hips
    neck: float
    rise: float  # of the neck that is held up, radians above the horizontal
    head: float  # radius
    snout: float
    ear: float
    flop: float  # how far the ears hang, from 0 to 1
    tail: float
    limb: float  # radius of the lower leg


BUILDS = {
    "dog": Build(0.95, 0.22, 0.16, 0.32, 0.8, 0.13, 0.19, 0.16, 0.6, 0.55, 0.035),
    "cat": Build(0.75, 0.18, 0.16, 0.2, 0.6, 0.125, 0.07, 0.12, 0.0, 0.85, 0.035),
    "horse": Build(1.15, 0.25, 0.23, 0.6, 0.85, 0.13, 0.34, 0.12, 0.0, 0.6, 0.035),
    "cow": Build(0.85, 0.29, 0.27, 0.35, 0.35, 0.14, 0.26, 0.15, 0.75, 0.6, 0.045),
    "deer": Build(1.15, 0.2, 0.17, 0.48, 1.0, 0.105, 0.18, 0.18, 0.25, 0.12, 0.028),
    "sheep": Build(0.65, 0.31, 0.3, 0.25, 0.6, 0.12, 0.15, 0.13, 0.7, 0.15, 0.035),
    "bear": Build(0.75, 0.31, 0.3, 0.25, 0.15, 0.17, 0.16, 0.08, 0.0, 0.06, 0.075),
}
_COATS = np.array(
    [
        (40, 34, 32),
        (92, 62, 42),
        (150, 104, 64),
        (206, 170, 120),
        (226, 220, 208),
        (130, 126, 122),
    ]
)


class AnimalPose(NamedTuple):
    """Angles of the joints in radians; of a pair, the left one first."""

    pitch: float  # trunk: front raised
    neck: float  # above the horizontal
    look: float  # neck and head to the right
    nose: float  # below the neck's direction
    tail: tuple[float, float]  # above the horizontal, to the right
    # Upper leg, lower leg and foot: each to the front of straight down.
    front_legs: tuple[tuple[float, float, float], ...]
    hind_legs: tuple[tuple[float, float, float], ...]


_FRONT_REST, _HIND_REST = np.array([-0.35, 0.08, 0.05]), np.array([0.4, -0.5, 0.08])


def standing(rng, build):
    legs = rng.normal(0, 0.1, (4, 1)) + rng.normal(0, 0.05, (4, 3))
    return _pose(rng, build, legs)


def stepping(rng, build):
    """Walks or trots."""
    return gait(rng, build, rng.uniform(0, 2 * math.pi), rng.uniform(0.25, 0.5))


def running(rng, build):
    return gait(rng, build, rng.uniform(0, 2 * math.pi), rng.uniform(0.7, 1.0))


def grazing(rng, build):
    legs = rng.normal(0, 0.18, (4, 1)) + rng.normal(0, 0.05, (4, 3))
    pose = _pose(rng, build, legs)
    neck = rng.uniform(-1.1, -0.5)
    return pose._replace(neck=neck, nose=rng.uniform(0.0, 0.5), pitch=-0.1)


def sitting(rng, build):
    """Rests on its haunches."""
    legs = rng.normal(0, 0.07, (4, 1)) + rng.normal(0, 0.04, (4, 3))
    pitch = rng.uniform(0.6, 0.95)
    legs[:2] += (0.2 - pitch, 0.0, 0.0)
    legs[2:] += (1.05 - pitch, -0.5, 1.3)
    return _pose(rng, build, legs)._replace(pitch=pitch)


def gait(rng, build, phase, pace):
    """A moment of walking, trotting or galloping.

    Args:
        rng: of the head's and tail's attitude.
        build: Build.
        phase: radians; at 0 the left front leg swings to the front.
        pace: from 0.25, a slow walk, to 1, a gallop.
    """
    pairs = (0.0, 0.5, 0.25, 0.75) if pace < 0.4 else (0.0, 0.5, 0.5, 0.0)
    if pace > 0.6:
        pairs = 0.0, 0.1, 0.45, 0.55
    legs = []
    for number, start in enumerate(pairs):
        at = phase + 2 * math.pi * start
        swing, lift = math.sin(at), max(0.0, math.cos(at))
        upper = (0.15 + 0.5 * pace) * swing
        fold = (0.4 + 0.9 * pace) * lift
        if number < 2:
            legs.append((upper + 0.4 * fold, upper - 0.6 * fold, upper - 1.1 * fold))
        else:
            legs.append((upper + 0.3 * fold, upper - 0.4 * fold, upper - 0.3 * fold))
    pitch = 0.12 * pace * math.cos(phase + 1.0)
    return _pose(rng, build, np.array(legs))._replace(pitch=pitch)


POSES = standing, stepping, running, grazing, sitting
SHARES = 0.32, 0.3, 0.16, 0.14, 0.08


def _pose(rng, build, legs):
    return AnimalPose(
        pitch=rng.normal(0, 0.05),
        neck=build.rise + rng.uniform(-0.45, 0.3),
        look=rng.uniform(-0.5, 0.5),
        nose=build.rise + rng.uniform(-0.1, 0.6),
        tail=rng.uniform((-1.4, -0.6), (0.9, 0.6)),
        front_legs=_FRONT_REST + legs[:2],
        hind_legs=_HIND_REST + legs[2:],
    )


class Animal:
    """One animal's proportions and coat; `body` puts them into a pose."""

    def __init__(self, rng):
        builds = [*BUILDS.values()]
        build = np.array(builds[rng.integers(len(builds))])
        self.build = Build(*(build * rng.uniform(0.88, 1.14, len(build))))
        self.bushy = rng.uniform(0.02, 0.06)
        colours = _COATS[rng.integers(len(_COATS), size=3)] * rng.uniform(0.8, 1.12)
        coat, second, legs = colours + rng.normal(0, 8, (3, 3))
        kind = rng.random()
        pattern = {}
        if kind < 0.12:
            pattern = {"ring": rng.uniform(0.05, 0.12)}
        elif kind < 0.4:
            pattern = {"blotches": rng.uniform(0.0, 1.2)}
        main = Material(coat, second, **pattern)
        self.materials = [
            main,
            Material(legs) if rng.random() < 0.25 else main,
            Material(coat * 0.3),
            Material(rng.uniform(8, 40, 3)),
        ]

    def body(self, pose):
        """The animal in a pose.

        Args:
            pose: AnimalPose.

        Returns:
            Body with the keypoints of AP-10K.
        """
        body, build = Body(self.materials), self.build
        girth, waist = build.girth, build.waist
        trunk = nod(pose.pitch)
        fore, rear = trunk @ (0, 0, -0.5), trunk @ (0, 0, 0.5)
        chest = body.point(trunk @ (0, 0.02, -0.42))
        loin = body.point(trunk @ (0, -0.02, 0.32))
        body.bone(chest, loin, girth, waist, _COAT)
        rump = trunk @ (0, 0, 0.38)
        body.lump(rump, trunk, (0.95 * waist, 1.05 * waist, 0.2), _COAT)
        neck_at = fore + trunk @ (0, -0.5 * girth, 0.02)
        base = body.point(neck_at, "neck", 1.25 * girth)
        self._head(body, base, neck_at, trunk, pose)
        tail_at = rear + trunk @ (0, -0.55 * waist, 0.03)
        self._tail(body, tail_at, waist, trunk, pose)
        for name, s, front, hind in zip(
            ("left", "right"), (1, -1), pose.front_legs, pose.hind_legs, strict=True
        ):
            start = fore + trunk @ (s * 0.62 * girth, 0.25 * girth, 0.06)
            labels = "shoulder", "elbow", "front_paw"
            spread, shares = s * 0.06, (0.3, 0.36, 0.22)
            self._leg(body, name, labels, start, front, spread, shares, trunk)
            start = rear + trunk @ (s * 0.6 * waist, 0.1 * waist, -0.1)
            labels = "hip", "knee", "back_paw"
            shares = 0.34, 0.36, 0.24
            self._leg(body, name, labels, start, hind, spread, shares, trunk)
        return body

    def _leg(self, body, name, labels, start, angles, spread, shares, trunk):
        upper, lower, foot = angles
        lengths = self.build.leg * np.array(shares)
        out = tilt(-spread)
        # A trunk that is raised takes only the upper legs along.
        elbow_at = start + lengths[0] * trunk @ out @ nod(upper) @ _DOWN
        wrist_at = elbow_at + lengths[1] * out @ nod(lower) @ _DOWN
        paw_at = wrist_at + lengths[2] * out @ nod(foot) @ _DOWN
        thin = self.build.limb
        thick = 0.5 * self.build.girth if labels[0] == "shoulder" else 0.15
        top = body.point(start, f"{name}_{labels[0]}", 1.3 * thick + 0.05)
        middle = body.point(elbow_at, f"{name}_{labels[1]}", 3.2 * thin)
        wrist = body.point(wrist_at)
        paw = body.point(paw_at, f"{name}_{labels[2]}", 2.2 * thin)
        body.bone(top, middle, thick, 2.0 * thin, _COAT)
        body.bone(middle, wrist, 1.9 * thin, 1.1 * thin, _LEGS)
        body.bone(wrist, paw, 1.05 * thin, 1.1 * thin, _LEGS)
        toe = body.point(paw_at + thin * np.array([0, 0.3, -1.3]))
        body.bone(paw, toe, 1.2 * thin, thin, _DARK)

    def _head(self, body, base, neck_at, trunk, pose):
        build = self.build
        turn = trunk @ spin(pose.look)
        neck = turn @ nod(math.pi / 2 + pose.neck)
        size = build.head
        centre = neck_at + (build.neck + 0.4 * build.girth) * neck @ _DOWN
        head = turn @ spin(0.3 * pose.look) @ nod(pose.neck - pose.nose)
        skull = body.point(centre)
        body.bone(base, skull, 0.62 * build.girth, 0.75 * size, _COAT)

        def at(x, y, z):
            return centre + head @ (x, y, z)

        body.lump(centre, size * head, (0.85, 0.9, 1.1), _COAT)
        tip = at(0, 0.3 * size, -size - build.snout)
        root = body.point(at(0, 0.15 * size, -0.5 * size))
        body.bone(root, body.point(tip), 0.7 * size, 0.42 * size, _COAT)
        nose = tip + head @ (0, -0.15 * size, -0.36 * size)
        body.ball(nose, 0.2 * size, _DARK, "nose", 0.6 * size)
        for name, s in (("left", 1), ("right", -1)):
            eye = at(s * 0.66 * size, -0.3 * size, -0.62 * size)
            body.ball(eye, 0.15 * size, _EYE, f"{name}_eye", 0.35 * size)
            ear = body.point(at(s * 0.5 * size, -0.65 * size, 0.3 * size))
            rise = build.ear * math.cos(2.6 * build.flop)
            reach = build.ear * (0.35 + 0.5 * math.sin(2.6 * build.flop))
            end = at(s * (0.55 * size + reach), -0.7 * size - rise, 0.4 * size)
            body.bone(ear, body.point(end), 0.35 * size, 0.1 * size, _LEGS)

    def _tail(self, body, start, waist, trunk, pose):
        up, side = pose.tail
        root = body.point(start, "root_of_tail", 0.9 * waist)
        third = self.build.tail / 2
        at = start + third * trunk @ spin(-side) @ nod(-math.pi / 2 - up) @ _DOWN
        middle = body.point(at)
        droop = spin(-1.5 * side) @ nod(-math.pi / 2 - up + 0.7)
        end = body.point(at + third * trunk @ droop @ _DOWN)
        body.bone(root, middle, 0.05, self.bushy, _COAT)
        body.bone(middle, end, self.bushy, 0.7 * self.bushy, _LEGS)
