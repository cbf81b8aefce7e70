"""Procedural pictures of several people and quadrupeds, some of which look alike."""

import copy
import dataclasses
from typing import NamedTuple

import numpy as np

from data_prep.synthetic import face_light, pose_scene
from data_prep.synthetic.pose_animals import Animal
from data_prep.synthetic.pose_bodies import Body
from data_prep.synthetic.pose_canvas import Canvas
from data_prep.synthetic.pose_people import Person
from data_prep.synthetic.poses import camera, label, limbs, outer_materials, pose_of
from facekp_jax.records import KeypointImage
from facekp_jax.skeletons import AP10K, COCO, Skeleton

_MOST = 12  # instances; the canvas takes the materials of no more than 17 people
_SIDE = 192  # pixels
_SIDES = 96, 511  # pixels, of what the canvas and the camera's noise can do
_SMALLEST, _RANGE = 0.23, 4  # longer side, of the picture's; the largest over that
_TRIES = 30  # places for one instance before all are placed anew
_CUT = 0.06  # of an instance's longer side, how much of it may lie outside
_MOST_COVERED = 0.6  # of an instance's joints, by boxes of those in front
_LAYER = 4  # between two instances' depths, of the picture's side
_LEAST_SEEN = 0.2  # of an instance's pixels
_LEAST_JOINTS = 4  # that are seen
_MIRROR = np.array([-1.0, 1.0, 1.0])


@dataclasses.dataclass(frozen=True)
class _Scenes:
    """A source of pictures of several instances each; record i depends on (seed, i).

    Box and area are those of a body's outline inside the picture, whether or not
    something hides parts of it. Of each instance a fifth of the outline and four
    keypoints at least are seen.

    A source of a kind says how many there are in a picture (`_count`, the first use of
    its chance), who (`_cast`, the largest first), how far apart (`_apart`, of their
    longer sides) and how often something is put in front of one (`_occluded`).
    """

    length: int
    seed: int = 0

    skeletons = (COCO, AP10K)
    apply_exif = True
    side = _SIDE

    def __len__(self):
        return self.length

    @property
    def instances(self):
        """Record and instance number of each instance, int64 [N, 2]."""
        counts = [self._count(self._rng(index)) for index in range(self.length)]
        pairs = [(i, number) for i, n in enumerate(counts) for number in range(n)]
        return np.reshape(pairs, (-1, 2)).astype(np.int64)

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(f"{self._kind} {index} of a source of {self.length}")
        index = int(index)
        rng = self._rng(index)
        count = self._count(rng)
        while True:
            actors = self._cast(rng, count)
            places = _places(rng, self.side, actors, self._apart)
            if places is not None:
                scene = Scene(rng, self.side, actors, places, self._occluded)
                if scene.fair():
                    break
        face_light.expose(scene, face_light.noise(self.seed)[0])
        return KeypointImage(
            name=f"{self._kind}-{self.seed}-{index:06d}",
            image=scene.image,
            instances=scene.instances,
            labelled=tuple(s.name for s in self.skeletons),
        )

    def _rng(self, index):
        return np.random.default_rng((self.seed, index))

    def _count(self, rng):
        return int(rng.integers(2, self.max_instances + 1))


@dataclasses.dataclass(frozen=True)
class SyntheticCrowds(_Scenes):
    """A source of pictures of people, animals or both.

    Longer sides of instances differ by up to four times. They overlap, the lower one
    mostly in front. Two of five look like another one: the same clothes, or the same
    coat and build, half of those in the same or the mirrored pose too.

    Raises:
        ValueError: for numbers of instances or pixels that cannot be.
    """

    least: int = 1  # instances
    most: int = 6
    side: int = _SIDE  # pixels, of the square picture

    _kind = "crowd"
    _apart = 0.3
    _occluded = 0.5

    def __post_init__(self):
        if not 0 <= self.least <= self.most <= _MOST:
            raise ValueError(
                f"least={self.least}, most={self.most}: crowds take from 0 to {_MOST} "
                "instances, and least is not above most"
            )
        if not _SIDES[0] <= self.side <= _SIDES[1]:
            raise ValueError(
                f"side={self.side}: crowds take pictures of {_SIDES[0]} to {_SIDES[1]} "
                "pixels"
            )

    @property
    def max_instances(self):
        return self.most

    def _count(self, rng):
        return int(rng.integers(self.least, self.most + 1))

    def _cast(self, rng, count):
        people = rng.choice((0.0, 0.5, 1.0))
        # The more there are the smaller most of them must be.
        share = rng.random(count) ** (1 + count / 6)
        sizes = _SMALLEST * self.side * _RANGE**share
        actors = []
        for size in np.sort(sizes)[::-1].tolist():
            kind = rng.random()
            if not actors or kind < 0.6:
                actor = _actor(rng, rng.random() < people, size)
            else:
                actor = actors[rng.integers(len(actors))]._replace(size=size)
                actor = _repeated(rng, actor) if kind < 0.8 else _moved(rng, actor)
            actors.append(actor)
        return actors


@dataclasses.dataclass(frozen=True)
class LookAlikes(_Scenes):
    """A source of pictures of two to four identical individuals, far from each other.

    They are of one size and in one pose or its mirror image. What tells them apart is
    where they are.
    """

    max_instances = 4
    _kind = "look-alikes"
    _apart = 1.7
    _occluded = 0.0

    def _cast(self, rng, count):
        size = self.side * rng.uniform(0.23, 0.3)
        actor = _actor(rng, rng.random() < 0.5, size)
        # Of blotches no two drawings are the same.
        plain = [m._replace(blotches=None) for m in actor.body.materials]
        actor.body.materials = plain
        return [actor, *(_repeated(rng, actor) for _ in range(count - 1))]


@dataclasses.dataclass(frozen=True)
class Giants(_Scenes):
    """A source of pictures of one very large instance and one to three small ones.

    All are people or all are animals, and each looks different. What holds the large
    one together is its looks.
    """

    max_instances = 4
    _kind = "giant"
    _apart = 0.3
    _occluded = 0.0

    def _cast(self, rng, count):
        person = rng.random() < 0.5
        sizes = rng.uniform(0.23, 0.32, count)
        sizes[0] = rng.uniform(0.9, 1.0)
        return [_actor(rng, person, self.side * size) for size in sizes]


class _Actor(NamedTuple):
    """An individual in a pose, and how the camera looks at it."""

    who: Person | Animal
    body: Body
    rotation: np.ndarray  # [3, 3]
    distance: float
    size: float  # pixels, its longer side in the picture

    @property
    def person(self):
        return isinstance(self.who, Person)

    @property
    def skeleton(self) -> Skeleton:
        return COCO if self.person else AP10K


def _actor(rng, person, size):
    who = Person(rng) if person else Animal(rng)
    return _Actor(who, who.body(pose_of(rng, who)), *camera(rng, person), size)


def _moved(rng, actor):
    """The same individual in another pose, seen from elsewhere."""
    rotation, distance = camera(rng, actor.person)
    body = actor.who.body(pose_of(rng, actor.who))
    return actor._replace(body=body, rotation=rotation, distance=distance)


def _repeated(rng, actor):
    """The same individual in the same pose, or its mirror image."""
    if rng.random() < 0.5:
        return actor
    body = copy.copy(actor.body)
    body.points = np.array(body.points) * _MIRROR
    body.lump_axes = np.array(body.lump_axes) * _MIRROR
    names, mirror = actor.skeleton.keypoints, actor.skeleton.mirror
    body.keypoints = {
        name: body.keypoints[names[k]] for name, k in zip(names, mirror, strict=True)
    }
    rotation = actor.rotation * np.outer(_MIRROR, _MIRROR)
    return actor._replace(body=body, rotation=rotation)


class _Place(NamedTuple):
    """Where an actor is in the picture."""

    scale: float  # pixels in a unit of the body
    offset: np.ndarray  # [2] of the body's origin, pixels
    nearness: float  # pixels; the larger is in front


def _places(rng, side, actors, apart):
    """Places for all actors, or None if chance found none.

    Args:
        rng: source of chance.
        side: pixels, of the picture.
        actors: those in the picture, the largest first.
        apart: least distance of two boxes' centres, of the mean of their longer sides.
    """
    places = []
    boxes, joints, nearness = np.empty((0, 4)), np.empty((0, 17, 2)), np.empty(0)
    for actor in actors:
        body = actor.body.seen(actor.rotation, actor.distance)
        extent = body.extent()
        points = body.points[[point for point, _ in body.keypoints.values()], :2]
        scale = actor.size / (extent[2:] - extent[:2]).max()
        outside = _CUT * actor.size
        room = side + 2 * outside - scale * (extent[2:] - extent[:2])
        for _ in range(_TRIES):
            offset = rng.uniform(0, 1, 2) * room - outside - scale * extent[:2]
            box = scale * extent + np.tile(offset, 2)
            near = box[3] + rng.normal(0, 0.1) * side
            more = (
                np.concatenate([boxes, [box]]),
                np.concatenate([joints, [scale * points + offset]]),
                np.append(nearness, near),
            )
            if _distinct(box, boxes, apart) and not _buried(*more):
                break
        else:
            return None
        boxes, joints, nearness = more
        places.append(_Place(scale, offset, near))
    return places


def _distinct(box, boxes, apart):
    """Whether a box [4] is far enough from all others [N, 4]."""
    offsets = (boxes[:, :2] + boxes[:, 2:] - box[:2] - box[2:]) / 2
    sides = (boxes[:, 2:] - boxes[:, :2]).max(1) + (box[2:] - box[:2]).max()
    return (np.hypot(*offsets.T) >= apart * sides / 2).all()


def _buried(boxes, joints, nearness):
    """Whether the boxes in front hide most of an instance's joints [N, 17, 2]."""
    low, high = boxes[:, None, None, :2], boxes[:, None, None, 2:]
    inside = ((joints > low) & (joints < high)).all(-1)  # [N, N, 17], a box first
    in_front = nearness[:, None] > nearness
    hidden = (inside & in_front[..., None]).any(0)
    return (hidden.mean(1) > _MOST_COVERED).any()


class Scene:
    """One picture of several bodies.

    Attributes:
        image: uint8 [H, W, 3].
        canvas: Canvas.
        bodies: Body of each actor, in pixels.
        outlines: of each, bool [H, W], its pixels, hidden ones too.
        instances: Instance of each.
    """

    def __init__(self, rng, side, actors, places, occluded):
        self.rng, self.height, self.width = rng, side, side
        self.canvas = Canvas(rng, side, side)
        layer = _LAYER * side
        order = np.argsort([-place.nearness for place in places])
        depths = layer * (1 + np.argsort(order))
        self.bodies = [
            actor.body.seen(
                actor.rotation, actor.distance, place.scale, (*place.offset, depth)
            )
            for actor, place, depth in zip(actors, places, depths, strict=True)
        ]
        self.outlines = [self.canvas.draw(body) for body in self.bodies]
        self._surround(actors, occluded, layer * (len(actors) + 1))
        self.instances = tuple(
            label(actor.skeleton, body, outline, self.canvas)
            for actor, body, outline in zip(
                actors, self.bodies, self.outlines, strict=True
            )
        )
        # Of what lies between an actor's layer and the viewer the depth is less.
        self._fronts = depths - layer / 2

    def _surround(self, actors, occluded, back):
        rng, canvas = self.rng, self.canvas
        boxes = [body.extent() for body in self.bodies]
        backdrop = pose_scene.backdrop(rng, self.height, self.width, boxes)
        if actors:
            chosen = rng.integers(len(actors))
            actor, body = actors[chosen], self.bodies[chosen]
            materials = outer_materials(body, actor.person)
            pose_scene.clutter(rng, canvas, actor.size, materials, back)
            if rng.random() < occluded:
                pose_scene.occlude(rng, canvas, actor.size, limbs(body), materials)
        self.image = canvas.develop(backdrop)

    def fair(self):
        """Whether enough of each instance is seen."""
        for front, outline, instance in zip(
            self._fronts, self.outlines, self.instances, strict=True
        ):
            seen = np.mean(self.canvas.depth[outline] > front)
            joints = np.sum(instance.keypoints[:, 2] == 2)
            if seen < _LEAST_SEEN or joints < _LEAST_JOINTS:
                return False
        return True
