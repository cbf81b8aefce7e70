"""Synthetic people: their proportions and clothes, and what joints do in a pose.

The unit is a person's height; the origin lies between the hips.
"""

import math
from typing import NamedTuple

import numpy as np

from data_prep.synthetic.pose_bodies import Body, nod, spin, tilt
from data_prep.synthetic.pose_canvas import Material

_SKINS = np.array(
    [
        (240, 206, 184),
        (226, 184, 152),
        (204, 154, 118),
        (172, 120, 86),
        (128, 86, 62),
        (88, 60, 46),
    ]
)
_HAIRS = np.array(
    [(26, 22, 20), (60, 40, 28), (110, 74, 44), (190, 156, 100), (150, 146, 142)]
)
_DOWN = np.array([0.0, 1.0, 0.0])
_SKIN, _HAIR, _SHIRT, _TROUSERS, _SHOE, _EYE, _MOUTH = range(7)


class PersonPose(NamedTuple):
    """Angles of the joints in radians; of a pair, the left one first."""

    lean: tuple[float, float, float]  # trunk: to the front, to the right, turned right
    head: tuple[float, float, float]  # up, to the right, turned right
    # Upper arm to the front, away from the body, turned inwards; elbow bent.
    arms: tuple[tuple[float, float, float, float], ...]
    # Thigh to the front, away from the body; knee bent; toes lowered.
    legs: tuple[tuple[float, float, float, float], ...]
    seated: bool = False


# Low and high of the four angles of an arm.
_ARMS = np.array(
    [
        [(-0.5, 0.05, -0.4, 0.05), (0.4, 0.4, 0.6, 0.8)],  # hangs
        [(1.9, -0.7, -0.6, 0.0), (3.0, 0.1, 0.6, 1.0)],  # raised
        [(-0.3, 0.8, -1.6, 0.0), (0.4, 2.4, 1.2, 1.6)],  # out to the side
        [(0.7, -0.2, -0.4, 0.0), (1.7, 0.4, 0.7, 1.4)],  # reaches forward
        [(-0.6, 0.45, 0.8, 1.4), (-0.2, 0.8, 1.3, 2.0)],  # hand on the hip
        [(0.3, 0.0, 0.1, 1.8), (1.2, 0.5, 0.8, 2.4)],  # hand at the face or chest
    ]
)
_ARM_SHARES = np.cumsum([0.36, 0.16, 0.26, 0.06, 0.12, 0.04])


def standing(rng):
    legs = rng.uniform((-0.15, 0.0, 0.0, -0.1), (0.2, 0.25, 0.25, 0.2), (2, 4))
    return _pose(rng, _trunk(rng, -0.1, 0.25), _arms(rng), legs)


def stepping(rng):
    """Walks or runs."""
    pace = rng.uniform(0.3, 1.0)
    return stride(rng, rng.uniform(0, 2 * math.pi), pace)


def stride(rng, phase, pace):
    """A moment of walking or running.

    Args:
        rng: of the trunk's and head's attitude.
        phase: radians; at 0 the left leg swings to the front.
        pace: from 0.3, a slow walk, to 1, a sprint.
    """
    legs, arms = [], []
    for start in (0.0, math.pi):
        swing, lift = math.sin(phase + start), math.cos(phase + start)
        flex = 0.25 * pace + (0.25 + 0.5 * pace) * swing
        knee = 0.15 + (0.6 + 1.1 * pace) * max(0.0, lift)
        legs.append((flex, 0.03, knee, 0.3 * max(0.0, -swing)))
        arms.append((-(0.2 + 0.7 * pace) * swing, 0.15, 0.3, 0.2 + 1.4 * pace))
    if rng.random() < 0.25:
        arms[rng.integers(2)] = _arm(rng)
    return _pose(rng, _trunk(rng, 0, 0.1 + 0.3 * pace), arms, legs)


def sitting(rng):
    legs = rng.uniform((1.1, 0.0, 0.7, -0.2), (1.75, 0.5, 1.9, 0.5), (2, 4))
    return _pose(rng, _trunk(rng, -0.2, 0.5), _arms(rng), legs, seated=True)


def crouching(rng):
    legs = rng.uniform((1.0, 0.05, 1.5, -0.3), (2.2, 0.5, 2.4, 0.2), (2, 4))
    if rng.random() < 0.5:  # on one knee
        legs[rng.integers(2)] = rng.uniform((-0.3, 0.0, 1.4, 0.6), (0.2, 0.2, 1.9, 1.2))
    return _pose(rng, _trunk(rng, 0.0, 0.8), _arms(rng), legs)


def leaping(rng):
    """Jumps, kicks or dances."""
    legs = rng.uniform((-0.8, 0.0, 0.0, 0.1), (1.2, 0.8, 1.5, 0.8), (2, 4))
    return _pose(rng, _trunk(rng, -0.3, 0.5), _arms(rng), legs)


POSES = standing, stepping, sitting, crouching, leaping
SHARES = 0.42, 0.34, 0.08, 0.04, 0.12


def _pose(rng, lean, arms, legs, seated=False):
    head = rng.uniform((-0.3, -0.2, -0.4), (0.3, 0.2, 0.4))
    return PersonPose(lean, head, arms, legs, seated)


def _trunk(rng, low, high):
    return rng.uniform((low, -0.2, -0.4), (high, 0.2, 0.4))


def _arm(rng):
    return rng.uniform(*_ARMS[np.searchsorted(_ARM_SHARES[:-1], rng.random())])


def _arms(rng):
    left = _arm(rng)
    if rng.random() < 0.25:
        return left, left + rng.normal(0, 0.15, 4)
    return left, _arm(rng)


class Person:
    """One person's proportions and clothes; `body` puts them into a pose."""

    def __init__(self, rng):
        self.girth = rng.uniform(0.85, 1.3)
        self.arm = rng.uniform(0.94, 1.06) * np.array([0.17, 0.15, 0.055])
        self.leg = rng.uniform(0.93, 1.07) * np.array([0.245, 0.245, 0.1])
        self.shoulder = rng.uniform(0.1, 0.125) * (0.7 + 0.3 * self.girth)
        self.hip = rng.uniform(0.075, 0.09)
        self.head = rng.uniform(1.1, 1.3)
        self.long_hair = rng.random() < 0.4
        skin = _between(rng, _SKINS)
        short_sleeves, shorts = rng.random(2) < (0.75, 0.6)
        self.sleeve = _SKIN if short_sleeves else _SHIRT
        self.shank = _SKIN if shorts else _TROUSERS
        self.foot = _SKIN if rng.random() < 0.1 else _SHOE
        self.materials = [
            Material(skin),
            Material(_HAIRS[rng.integers(len(_HAIRS))] * rng.uniform(0.7, 1.2)),
            cloth(rng),
            cloth(rng),
            Material(rng.uniform(20, 230, 3)),
            Material(rng.uniform(15, 60, 3)),
            Material(skin * (0.75, 0.5, 0.5)),
        ]

    def body(self, pose):
        """The person in a pose.

        Args:
            pose: PersonPose.

        Returns:
            Body with the keypoints of COCO.
        """
        body, wide = Body(self.materials), self.girth
        front, side, turn = pose.lean
        pelvis = nod(-0.4 * front)
        chest = pelvis @ tilt(side) @ spin(turn) @ nod(-0.6 * front)
        waist = pelvis @ (0, -0.1, 0)
        neck = waist + chest @ (0, -0.2, 0)
        depth = 0.4 + 0.6 * wide
        sizes = 0.112 * wide, 0.09, 0.08 * depth
        body.lump([0, 0, 0], pelvis, sizes, _TROUSERS)
        body.lump(waist, chest, (0.1 * wide, 0.12, 0.07 * depth), _SHIRT)
        ribs = waist + chest @ (0, -0.1, 0)
        sizes = self.shoulder + 0.012, 0.125, 0.078 * depth
        body.lump(ribs, chest, sizes, _SHIRT)
        for name, s, arm, leg in zip(
            ("left", "right"), (1, -1), pose.arms, pose.legs, strict=True
        ):
            start = waist + chest @ (s * self.shoulder, -0.178, 0)
            self._arm(body, name, s, start, neck, chest, arm)
            self._leg(body, name, s, pelvis, leg)
        self._head(body, neck, chest, pose.head)
        return body

    def seat(self, rng):
        """Something to sit on, in the same frame."""
        seat = Body([cloth(rng)])
        half, top = rng.uniform(0.14, 0.2), 0.1 * self.girth
        thick, drop = rng.uniform(0.012, 0.05), rng.uniform(0.3, 0.42)
        seat.lump([0, top + thick, -0.04], np.eye(3), (half, thick, half), 0)
        leg = rng.uniform(0.008, 0.02)
        for x in (-0.75, 0.75):
            for z in (-0.75, 0.75):
                upper = seat.point([x * half, top + thick, z * half - 0.04])
                lower = seat.point([1.1 * x * half, top + drop, 1.1 * z * half - 0.04])
                seat.bone(upper, lower, leg, leg, 0)
        return seat

    def _arm(self, body, name, s, start, neck, chest, angles):
        front, out, inwards, bend = angles
        upper = chest @ tilt(-s * out) @ nod(front) @ spin(s * inwards)
        lower = upper @ nod(bend)
        wide = 0.5 + 0.5 * self.girth
        lengths = self.arm
        elbow_at = start + lengths[0] * upper @ _DOWN
        wrist_at = elbow_at + lengths[1] * lower @ _DOWN
        shoulder = body.point(start, f"{name}_shoulder", 0.1 * wide)
        elbow = body.point(elbow_at, f"{name}_elbow", 0.065 * wide)
        wrist = body.point(wrist_at, f"{name}_wrist", 0.055)
        hand = body.point(wrist_at + lengths[2] * lower @ _DOWN)
        collar = body.point(neck + (start - neck) * 0.3)
        body.bone(collar, shoulder, 0.04, 0.042 * wide, _SHIRT)
        body.bone(shoulder, elbow, 0.038 * wide, 0.029 * wide, _SHIRT)
        body.bone(elbow, wrist, 0.029 * wide, 0.02 * wide, self.sleeve)
        body.bone(wrist, hand, 0.02, 0.024, _SKIN)

    def _leg(self, body, name, s, pelvis, angles):
        front, out, bend, toes = angles
        upper = pelvis @ tilt(-s * out) @ nod(front)
        lower = upper @ nod(-bend)
        wide = 0.4 + 0.6 * self.girth
        lengths = self.leg
        hip_at = pelvis @ (s * self.hip, 0.02, 0)
        knee_at = hip_at + lengths[0] * upper @ _DOWN
        ankle_at = knee_at + lengths[1] * lower @ _DOWN
        hip = body.point(hip_at, f"{name}_hip", 0.15 * wide)
        knee = body.point(knee_at, f"{name}_knee", 0.075 * wide)
        ankle = body.point(ankle_at, f"{name}_ankle", 0.045)
        heel = body.point(ankle_at + lower @ (0, 0.016, 0.012))
        tip = lengths[2] * lower @ nod(math.pi / 2 - 0.15 - toes) @ _DOWN
        toe = body.point(ankle_at + lower @ (0, 0.016, 0) + tip)
        body.bone(hip, knee, 0.07 * wide, 0.043 * wide, _TROUSERS)
        body.bone(knee, ankle, 0.044 * wide, 0.025 * wide, self.shank)
        body.bone(heel, toe, 0.026, 0.02, self.foot)

    def _head(self, body, neck, chest, angles):
        up, side, turn = angles
        head = chest @ tilt(side) @ spin(turn) @ nod(up)
        size = self.head
        centre = neck + chest @ (0, -0.05, -0.005) + head @ (0, -0.055 * size, -0.01)
        throat = body.point(neck + chest @ (0, 0.02, 0.005))
        body.bone(throat, body.point(centre), 0.04, 0.034, _SKIN)

        def at(x, y, z):
            return centre + size * head @ (x, y, z)

        frame = size * head
        body.lump(centre, frame, (0.06, 0.083, 0.075), _SKIN)
        body.lump(at(0, -0.022, 0.022), frame, (0.066, 0.08, 0.077), _HAIR)
        if self.long_hair:
            lower = body.point(at(0, 0.12, 0.06))
            body.bone(body.point(at(0, 0, 0.04)), lower, 0.062, 0.05, _HAIR)
        for name, s in (("left", 1), ("right", -1)):
            eye = at(s * 0.027, -0.008, -0.066)
            body.ball(eye, 0.0105 * size, _EYE, f"{name}_eye", 0.022)
            ear = at(s * 0.064, 0.004, -0.002)
            sizes = 0.01, 0.022, 0.014
            body.lump(ear, frame, sizes, _SKIN, f"{name}_ear", 0.022)
        body.ball(at(0, 0.02, -0.079), 0.013 * size, _SKIN, "nose", 0.025)
        body.lump(at(0, 0.045, -0.061), frame, (0.024, 0.007, 0.01), _MOUTH)


def cloth(rng):
    """A Material of some colour, in a third of all with a pattern."""
    colour, second = rng.uniform(25, 235, (2, 3))
    grey = colour.mean()
    colour = grey + rng.uniform(0.4, 1.0) * (colour - grey)
    kind = rng.random()
    if kind < 0.2:
        return Material(colour, second, ring=rng.uniform(0.025, 0.06))
    return Material(colour, second, blotches=0.7 if kind < 0.33 else None)


def _between(rng, colours):
    tone = rng.uniform(0, len(colours) - 1)
    low = int(tone)
    return colours[low] + (tone - low) * (colours[low + 1] - colours[low])
