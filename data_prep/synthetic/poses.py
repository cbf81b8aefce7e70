"""Procedural people and quadrupeds with exact keypoints, seen and hidden ones."""

import dataclasses

import numpy as np

from data_prep.synthetic import face_light, pose_animals, pose_people, pose_scene
from data_prep.synthetic.pose_animals import Animal
from data_prep.synthetic.pose_bodies import nod, spin, tilt
from data_prep.synthetic.pose_canvas import Canvas
from data_prep.synthetic.pose_people import Person
from facekp_jax.records import Instance, KeypointImage
from facekp_jax.skeletons import AP10K, COCO


@dataclasses.dataclass(frozen=True)
class SyntheticPoses:
    """A source of pictures of one person or one quadruped each.

    Record i depends on (seed, i) only. Of every two consecutive pictures one shows a
    person, in an order without a period. Box and area are those of the body's outline
    inside the picture, whether or not something hides parts of it.
    """

    length: int
    seed: int = 0

    skeletons = (COCO, AP10K)
    apply_exif = True
    max_instances = 1

    def __len__(self):
        return self.length

    @property
    def instances(self):
        """Record and instance number of each instance, int64 [N, 2]."""
        return np.stack([np.arange(self.length), np.zeros(self.length, int)], 1)

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(f"pose {index} of a source of {self.length}")
        index = int(index)
        rng = np.random.default_rng((self.seed, index))
        skeleton = self.skeletons[index.bit_count() % 2]
        scene = Scene(rng, skeleton is COCO)
        scene.draw()
        face_light.expose(scene, face_light.noise(self.seed)[0])
        return KeypointImage(
            name=f"pose-{self.seed}-{index:06d}",
            image=scene.image,
            instances=(scene.instance(skeleton),),
            labelled=tuple(s.name for s in self.skeletons),
        )


class Scene:
    """One picture of a body being drawn.

    Attributes:
        image: uint8 [H, W, 3].
        canvas: Canvas.
        body: Body in pixels.
        outline: bool [H, W], the body's pixels, hidden ones too.
    """

    def __init__(self, rng, person):
        self.rng, self.person = rng, person
        rotation, distance = camera(rng, person)
        who = Person(rng) if person else Animal(rng)
        pose = pose_of(rng, who)
        self.seat = None
        if person and pose.seated and rng.random() < 0.7:
            self.seat = who.seat(rng)
        body = who.body(pose)
        extent = body.seen(rotation, distance).extent()
        self.height, self.width = _sides(rng, extent)
        self.canvas = Canvas(rng, self.height, self.width)
        scale, offset = self._fit(extent)
        self.body = body.seen(rotation, distance, scale, offset)
        if self.seat:
            self.seat = self.seat.seen(rotation, distance, scale, offset)

    def _fit(self, extent):
        """Scale and offset that put a box where the picture wants it."""
        rng, side = self.rng, np.array([self.width, self.height])
        size = extent[2:] - extent[:2]
        scale = rng.uniform(0.62, 0.92) * (side / size).min()
        room = side - scale * size
        corner = rng.uniform(0, 1, 2) * room
        if rng.random() < 0.06:
            axis, outside = rng.integers(2), rng.uniform(0, 0.2) * scale
            corner[axis] = -outside * size[axis]
            if rng.random() < 0.5:
                corner[axis] = room[axis] + outside * size[axis]
        return scale, corner - scale * extent[:2]

    def draw(self):
        rng, canvas, body = self.rng, self.canvas, self.body
        extent = body.extent()
        size = (extent[2:] - extent[:2]).max()
        materials = outer_materials(body, self.person)
        self.image = pose_scene.backdrop(rng, self.height, self.width, [extent])
        self.outline = canvas.draw(body)
        if self.seat:
            canvas.draw(self.seat)
        pose_scene.clutter(rng, canvas, size, materials, 2 * size)
        pose_scene.occlude(rng, canvas, size, limbs(body), materials)
        self.image = canvas.develop(self.image)

    def instance(self, skeleton):
        """The body's Instance."""
        return label(skeleton, self.body, self.outline, self.canvas)


def pose_of(rng, who):
    """A pose for a Person or an Animal."""
    if isinstance(who, Person):
        make = rng.choice(len(pose_people.POSES), p=pose_people.SHARES)
        return pose_people.POSES[make](rng)
    make = rng.choice(len(pose_animals.POSES), p=pose_animals.SHARES)
    return pose_animals.POSES[make](rng, who.build)


def camera(rng, person):
    """Rotation [3, 3] from a body's frame to the camera's, and distance in units."""
    pitch = nod(-rng.uniform(-0.08, 0.4))
    roll = tilt(rng.normal(0, 0.08))
    if person:
        turn = rng.uniform(-0.8, 0.8) + np.pi * (rng.random() < 0.2)  # or from behind
        return roll @ pitch @ spin(turn), rng.uniform(2.5, 6)
    side = rng.choice((-1, 1)) * np.pi / 2
    return roll @ pitch @ spin(side + rng.uniform(-0.6, 0.6)), rng.uniform(3, 8)


def label(skeleton, body, outline, canvas):
    """A body's Instance, once everything in its picture is drawn.

    Args:
        skeleton: COCO or AP10K.
        body: Body in pixels.
        outline: bool [H, W], the body's pixels, hidden ones too; not empty.
        canvas: Canvas.
    """
    named = [body.keypoints[name] for name in skeleton.keypoints]
    points = body.points[[point for point, _ in named]]
    reach = np.array([reach for _, reach in named])
    inside = (points[:, :2] >= 0) & (points[:, :2] < (canvas.width, canvas.height))
    inside = inside.all(1)
    keypoints = np.zeros((len(named), 3), np.float32)
    keypoints[inside, :2] = points[inside, :2]
    keypoints[inside, 2] = 2 - canvas.hidden(points[inside], reach[inside])
    rows = np.flatnonzero(outline.any(1))
    columns = np.flatnonzero(outline.any(0))
    box = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return Instance(
        skeleton=skeleton.name,
        keypoints=keypoints,
        box=np.array(box, np.float32),
        area=float(outline.sum()),
    )


def outer_materials(body, person):
    """Those of skin, hair and clothes, or of the coat."""
    return body.materials[: 4 if person else 2]


def limbs(body):
    """Where the keypoints are that are not of the face, [N, 2] pixels."""
    numbers = [p for name, (p, _) in body.keypoints.items() if not _of_face(name)]
    return body.points[numbers, :2]


def _of_face(name):
    return name.endswith(("nose", "eye", "ear"))


def _sides(rng, extent):
    """Height and width of a picture, mostly upright if what it shows is."""
    short, long = np.sort(rng.integers(120, 177, 2)).tolist()
    upright = extent[3] - extent[1] > extent[2] - extent[0]
    return (long, short) if upright == (rng.random() < 0.8) else (short, long)
