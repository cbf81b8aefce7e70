"""Keypoints of people and animals, corrected by the graph of the skeleton.

python -m experiments.train --exp=structured_keypoints

Measured on 400 unseen pictures with seeds 0 and 2 (Python 3.11, JAX 0.10.2): PCK at
0.05 of the box's longer side on visible joints 0.850 and 0.860 (first points), 0.874
and 0.879 (second), the mean pose's 0.149; mean error on occluded joints 6.27 and 6.33
px (first), 5.57 and 5.71 px (second).
"""

import collections
import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from data_prep.synthetic.poses import SyntheticPoses
from experiments.configs import (
    LITTLE_AUGMENTATION,
    RUN,
    SMALL_BACKBONE,
    Backbone,
    check_least,
    check_sides,
    warmup_cosine,
)
from experiments.experiment import Experiment
from experiments.keypoint_results import (
    coco_results,
    mean_pose,
    named,
    numbers,
    of_data_set,
    photo_number,
)
from experiments.optimizers import Muon, muon
from experiments.tables import shown
from facekp_jax import geometry
from facekp_jax.drawing import keypoint_overlay
from facekp_jax.keypoint_crops import (
    Augmentation,
    check_mirrors,
    crop_matrix,
    instance_matrix,
    instance_sample,
)
from facekp_jax.keypoint_images import Instances, KeypointImages
from facekp_jax.losses import structured_keypoints as losses
from facekp_jax.metrics.keypoints import KeypointMetrics
from facekp_jax.models.backbones import SmallBackbone
from facekp_jax.models.structured_keypoints import StructuredKeypoints
from facekp_jax.records import Instance, InstanceOfImage, KeypointImage
from facekp_jax.skeletons import Skeleton

VALIDATION_SEED = 1_000_003  # far from any seed that a training is given
MEAN_POSE_RECORDS = 400  # of the training split, for the naive baseline


@dataclasses.dataclass(frozen=True)
class Optimizer(Muon):
    """Muon, more slowly for the graph: it follows what it corrects."""

    graph: float = 0.5  # of the rate


@dataclasses.dataclass(frozen=True)
class Weights:
    """Of the losses of the first and of the second points."""

    first: float = 1.0
    second: float = 2.0


LEAST = RUN | {
    "train_photos": 1,
    "val_photos": 1,
    "features": 1,
    "node_features": 1,
    "rounds": 0,
}


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 3400
    seed: int = 0
    batch_size: int = 8
    workers: int = 0  # processes that make batches; 0: threads of the training itself
    log_every: int = 50
    checkpoint_every: int = 1000
    train_photos: int = 30_000  # of the embedded data set
    val_photos: int = 400
    skeletons: tuple[Skeleton, ...] = ()  # target types; empty: those of the data set
    apply_exif: bool | None = None  # turn photos upright; None: as the data set did
    crop_height: int = 96  # pixels, multiples of 32
    crop_width: int = 96
    margin: float = 0.05  # around the instance's box, of its side
    augmentation: Augmentation = LITTLE_AUGMENTATION
    backbone: Backbone = SMALL_BACKBONE
    features: int = 48  # channels of the pyramid
    node_features: int = 64
    rounds: int = 3  # of messages along the skeleton; 0: no graph
    structure: str = "skeleton"  # or "full", or "none": each keypoint by itself
    flip_test: bool = False  # measure and predict with the mirrored picture too
    pck: float = 0.05  # a keypoint is right within this share of the normaliser
    normaliser: str = "box"  # the longer side of the box; or "torso" or "head"
    confidence: float = 0.2  # from which a keypoint is drawn
    target: str = ""  # prediction: the type of boxes that do not say it
    optimizer: Optimizer = Optimizer()
    weights: Weights = Weights()

    def __post_init__(self):
        check_least(self, LEAST)
        if not 0 <= self.margin <= 1:
            raise ValueError(f"margin is {self.margin}; give it 0 to 1")
        check_sides(self, ("crop_height", "crop_width"))


class Points(NamedTuple):
    """What was found of one instance."""

    first: Instance
    second: Instance


def build(config: Config, data: str | None) -> Experiment:
    config, source = _with_data(config, data)
    types = {skeleton.name: skeleton for skeleton in config.skeletons}
    size = config.crop_height, config.crop_width
    check_mirrors(config.augmentation, config.skeletons)
    picture = np.zeros((*size, 3), np.uint8)
    (blank,) = _unseen("", picture, types, [(next(iter(types)), [0, 0, *size[::-1]])])

    def sample(record: InstanceOfImage, rng: np.random.Generator | None):
        varied = config.augmentation, rng
        instance = record.instance
        matrix = instance_matrix(
            instance, types[instance.skeleton], size, config.margin, *varied
        )
        return instance_sample(
            record.photo, record.number, matrix, size, config.skeletons, *varied
        )

    def results(record: InstanceOfImage, found: Mapping[str, np.ndarray]) -> Points:
        instance = record.instance
        to_photo = geometry.invert(crop_matrix(instance.box, size, config.margin))
        count = len(types[instance.skeleton].keypoints)

        def stage(name):
            points = geometry.transform_points(to_photo, found[f"{name}_points"])
            scores = np.asarray(found[f"{name}_confidence"], np.float32)[:count]
            keypoints = np.column_stack([points[:count], np.full(count, 2.0)])
            return dataclasses.replace(
                instance,
                keypoints=keypoints.astype(np.float32),
                score=float(scores.mean()),
                keypoint_scores=scores,
            )

        return Points(stage("first"), stage("second"))

    @functools.cache
    def mean():
        instances = source("train")
        chosen = np.linspace(0, len(instances) - 1, MEAN_POSE_RECORDS).round()
        chosen = np.unique(chosen.astype(int))
        return mean_pose((instances[index].instance for index in chosen), types)

    def naive(record: InstanceOfImage) -> Points:
        instance = record.instance
        low, sides = instance.box[:2], instance.box[2:] - instance.box[:2]
        pose = mean()[instance.skeleton]
        keypoints = np.column_stack([low + sides * pose, np.full(len(pose), 2.0)])
        found = dataclasses.replace(instance, keypoints=keypoints.astype(np.float32))
        return Points(found, found)

    schedule = warmup_cosine(config)
    return Experiment(
        config=config,
        source=source,
        blank=blank,
        sample=sample,
        model=StructuredKeypoints(
            config.skeletons,
            backbone=SmallBackbone(config.backbone.features, config.backbone.blocks),
            features=config.features,
            node_features=config.node_features,
            rounds=config.rounds,
            structure=config.structure,
            flip_test=config.flip_test,
        ),
        schedule=schedule,
        optimizer=optax.chain(
            muon(config.optimizer, schedule),
            optax.masked(optax.scale(config.optimizer.graph), _of_graph),
        ),
        targets=losses.targets,
        losses=losses.terms(
            first_weight=config.weights.first, second_weight=config.weights.second
        ),
        decode=decode,
        results=results,
        metrics=lambda: _Metrics(config.skeletons, config.pck, config.normaliser),
        naive=naive,
        detector=functools.partial(_detector, config=config, types=types),
        draw=functools.partial(_draw, config=config),
        describe=functools.partial(_describe, types=types),
        coco=functools.partial(_coco, types=types),
        details=_details,
    )


def decode(outputs: Mapping[str, Any]) -> dict[str, jax.Array]:
    """First and second points of each crop, in its own pixels, with confidences."""
    stages = ("first", "second")
    return {
        f"{stage}_{what}": outputs[f"{stage}_{what}"]
        for stage in stages
        for what in ("points", "confidence")
    }


class _Metrics(KeypointMetrics):
    def __init__(self, skeletons, threshold, normaliser):
        super().__init__(skeletons, threshold=threshold, normaliser=normaliser)

    def update(self, record: InstanceOfImage, found: Points):
        super().update(record.instance, *found)


def _of_graph(parameters):
    return {module: module == "correction" for module in parameters}


def _with_data(config, data):
    """The config with what the data set decides, and the data set's splits."""

    def synthetic(split):
        if split == "train":
            return SyntheticPoses(config.train_photos, config.seed)
        return SyntheticPoses(config.val_photos, VALIDATION_SEED)

    def recorded(split):
        return KeypointImages(data, split)

    photos = synthetic if data is None else recorded

    def source(split):
        return Instances(photos(split))

    return of_data_set(config, photos), source


def _detector(specification, *, config, types):
    """Whole pictures, or the boxes of a COCO file, as instances to look at."""
    if specification in ("", "whole"):
        kind = _target(config, types)

        def boxes_of(name, photo):
            return [(kind, [0, 0, *photo.shape[1::-1]])]

    else:
        found = _read_boxes(pathlib.Path(specification), config, types)

        def boxes_of(name, photo):
            return found.get(name, []) or found.get(photo_number(name), [])

    def detect(name: str, photo: np.ndarray) -> list[InstanceOfImage]:
        return _unseen(name, photo, types, boxes_of(name, photo))

    return detect


def _target(config, types):
    if config.target in types:
        return config.target
    if not config.target and len(types) == 1:
        return next(iter(types))
    raise ValueError(
        f"--config.target={config.target}: name the target type of the boxes, one of "
        f"{', '.join(types)}"
    )


def _read_boxes(path, config, types):
    """Photo, by its name or else its number -> (type, box) of each of its instances.

    A COCO annotation file names photos and categories: one that is a target type
    decides the box's. A list of results numbers them as COCO's photos are named.
    """
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"--detector={path}: no file of boxes ({error})") from error
    named = isinstance(content, dict)
    try:
        kinds = {c["id"]: c["name"] for c in content["categories"]} if named else {}
        photos = {p["id"]: p["file_name"] for p in content["images"]} if named else {}
        boxes = collections.defaultdict(list)
        for entry in content["annotations"] if named else content:
            kind = kinds.get(entry["category_id"])
            kind = kind if kind in types else _target(config, types)
            x, y, width, height = map(float, entry["bbox"])
            photo = photos[entry["image_id"]] if named else int(entry["image_id"])
            boxes[photo].append((kind, [x, y, x + width, y + height]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"--detector={path}: not COCO's annotations or results ({error!r})"
        ) from error
    return boxes


def _unseen(name, photo, types, boxes):
    """The instances of a photo of which only (type, box) are known, one by one."""
    instances = []
    for kind, box in boxes:
        box = np.array(box, np.float32)
        keypoints = np.zeros((len(types[kind].keypoints), 3), np.float32)
        area = float(np.prod(box[2:] - box[:2]))
        instances.append(Instance(kind, keypoints, box, area))
    record = KeypointImage(name, photo, tuple(instances), tuple(types))
    return [InstanceOfImage(record, number) for number in range(len(instances))]


def _draw(photo, records, found, *, config):
    return keypoint_overlay(
        photo,
        [points.second for points in found],
        skeletons=config.skeletons,
        confidence=config.confidence,
    )


def _describe(photo, records, found, *, types):
    height, width = photo.shape[:2]
    instances = []
    for record, points in zip(records, found, strict=True):
        skeleton = types[record.instance.skeleton]
        instances.append(
            {
                "target": skeleton.name,
                "box": numbers(record.instance.box),
                "score": round(points.second.score, 4),
                "keypoints": named(skeleton, points.second),
                "first_keypoints": named(skeleton, points.first),
            }
        )
    return {"width": width, "height": height, "instances": instances}, {}


def _coco(name, number, records, found, *, types):
    instances = [points.second for points in found]
    return coco_results(name, number, instances, list(types))


def _details(metrics):
    """The metrics of each keypoint, those of the first points beside the second's."""
    columns = ("keypoints", "first/pck", "second/pck")
    columns += ("first/mean_error_px", "second/mean_error_px")
    lines = []
    for kind, keypoints in metrics.table().items():
        lines.append(f"{kind:32}" + "".join(f"{name:>22}" for name in columns))
        for keypoint, values in keypoints.items():
            row = "".join(f"{shown(values[name]):>22}" for name in columns)
            lines.append(f"{keypoint:32}{row}")
    return "".join(f"{line}\n" for line in lines)
