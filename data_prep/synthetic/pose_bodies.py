"""A body of bones and lumps in space, and how a camera sees it.

A body's own frame: x points to its left, y down, z to its back, in units of its size. A
camera that looks at its front sees the same axes as right, down and away.
"""

import math

import numpy as np

_UPRIGHT = np.eye(3)


class Body:
    """What one person, animal or thing is made of.

    Attributes:
        points: [P, 3].
        bones: pairs of points, joined by spheres that taper from one to the other.
        radii: [N, 2] of the bones' ends.
        lumps: points with an ellipsoid around them.
        lump_axes: [M, 3, 3] half axes, a row each.
        bone_materials, lump_materials: numbers of `materials`.
        keypoints: name -> (its point, how far in front of it its own surface may be).
        unit: size of the body's unit in the frame of the points.
    """

    def __init__(self, materials):
        self.materials = materials
        self.points, self.bones, self.radii, self.bone_materials = [], [], [], []
        self.lumps, self.lump_axes, self.lump_materials = [], [], []
        self.keypoints = {}
        self.unit = 1.0

    def point(self, position, name=None, reach=0.0):
        """Adds a point, a keypoint if it has a name; its number."""
        self.points.append(position)
        if name is not None:
            self.keypoints[name] = len(self.points) - 1, reach
        return len(self.points) - 1

    def bone(self, a, b, ra, rb, material):
        self.bones.append((a, b))
        self.radii.append((ra, rb))
        self.bone_materials.append(material)

    def lump(self, position, frame, sizes, material, name=None, reach=0.0):
        """Adds an ellipsoid; its half axes: a frame's columns [3, 3], times sizes."""
        self.lumps.append(self.point(position, name, reach))
        self.lump_axes.append((frame * sizes).T)
        self.lump_materials.append(material)

    def ball(self, position, radius, material, name=None, reach=0.0):
        self.lump(position, _UPRIGHT, radius, material, name, reach)

    def seen(self, rotation, distance, scale=1.0, offset=(0.0, 0.0)):
        """The body as a camera sees it.

        Args:
            rotation: [3, 3], from the body's frame to the camera's.
            distance: from the camera to the body's origin, body units.
            scale: pixels in one unit at the origin.
            offset: (x, y) of the origin in the picture, or (x, y, z), pixels.

        Returns:
            Body in pixels.
        """
        seen = Body(self.materials)
        points = np.array(self.points) @ rotation.T
        shrink = distance / (distance + points[:, 2:])
        seen.points = scale * points
        seen.points[:, :2] *= shrink
        seen.points[:, : len(offset)] += offset
        shrink = scale * shrink
        ends = np.array(self.bones, int).reshape(-1, 2)
        seen.radii = np.reshape(self.radii, (-1, 2)) * shrink[ends, 0]
        axes = np.reshape(self.lump_axes, (-1, 3, 3)) @ rotation.T
        seen.lump_axes = axes * shrink[self.lumps][:, None]
        seen.bones, seen.bone_materials = self.bones, self.bone_materials
        seen.lumps, seen.lump_materials = self.lumps, self.lump_materials
        seen.keypoints = {
            name: (point, reach * shrink[point, 0])
            for name, (point, reach) in self.keypoints.items()
        }
        seen.unit = scale
        return seen

    def extent(self):
        """Box [4] xyxy around a body that a camera sees."""
        points = self.points[:, :2]
        ends = points[np.array(self.bones, int).reshape(-1, 2)].reshape(-1, 2)
        radii = self.radii.reshape(-1, 1)
        half = np.sqrt((self.lump_axes**2).sum(1))[:, :2]
        centres = points[self.lumps]
        low = np.concatenate([ends - radii, centres - half]).min(0)
        high = np.concatenate([ends + radii, centres + half]).max(0)
        return np.concatenate([low, high])


def nod(angle):
    """Rotation about x: what points down turns to the front."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[1, 0, 0], [0, c, s], [0, -s, c]])


def spin(angle):
    """Rotation about y: the front turns to the body's right."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])


def tilt(angle):
    """Rotation about z: what points down turns to the body's right."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
