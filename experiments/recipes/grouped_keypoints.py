"""All people and animals of a picture at once, told apart by appearance and by place.

python -m experiments.train --exp=grouped_keypoints
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from data_prep.synthetic.crowds import SyntheticCrowds
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
)
from experiments.optimizers import MUON, Muon, muon
from facekp_jax import geometry, grouping
from facekp_jax.drawing import keypoint_overlay
from facekp_jax.keypoint_crops import (
    Augmentation,
    check_mirrors,
    crop_matrix,
    photo_sample,
)
from facekp_jax.keypoint_images import KeypointImages
from facekp_jax.losses import grouped_keypoints as losses
from facekp_jax.metrics.grouping import GroupingMetrics
from facekp_jax.metrics.oks import OksMetrics
from facekp_jax.models.backbones import SmallBackbone
from facekp_jax.models.grouped_keypoints import GroupedKeypoints
from facekp_jax.records import Instance, KeypointImage
from facekp_jax.skeletons import Skeleton

VALIDATION_SEED = 1_000_003  # far from any seed that a training is given
MEAN_POSE_RECORDS = 200  # of the training split, for the naive baseline


@dataclasses.dataclass(frozen=True)
class Weights:
    """Of the first-class losses and, the last two, of the second-class loss."""

    heatmap: float = 1.0
    pull: float = 0.1
    push: float = 0.1
    ordinal: float = 0.1
    instance: float = 1.0
    size: float = 0.3
    auxiliary_keypoint: float = 0.1
    auxiliary_instance: float = 0.3


@dataclasses.dataclass(frozen=True)
class Bandwidths:
    """Of the grouping's kernel; null leaves a class of features out."""

    ke: float | None = 1.0  # of the keypoint embedding
    sie: float | None = 0.2  # of the votes for the centre, of the instance's size


LEAST = RUN | {
    "train_photos": 1,
    "val_photos": 1,
    "features": 1,
    "blocks": 0,
    "embedding": 1,
    "max_instances": 1,
    "candidates": 1,
    "iterations": 1,
}


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 2000
    seed: int = 0
    batch_size: int = 4
    workers: int = 0  # processes that make batches; 0: threads of the training itself
    log_every: int = 50
    checkpoint_every: int = 1000
    train_photos: int = 12_000  # of the embedded data set
    val_photos: int = 200
    skeletons: tuple[Skeleton, ...] = ()  # target types; empty: those of the data set
    apply_exif: bool | None = None  # turn photos upright; None: as the data set did
    height: int = 192  # pixels that a photo is fitted into, multiples of 32
    width: int = 192
    augmentation: Augmentation = LITTLE_AUGMENTATION
    backbone: Backbone = SMALL_BACKBONE
    features: int = 64  # channels of the pyramid and the head
    blocks: int = 1  # of the head
    embedding: int = 8  # numbers that tell appearances apart
    max_instances: int = 16  # on a photo
    candidates: int = 24  # of one keypoint on a photo
    least: float = 0.1  # probability of a candidate
    bandwidths: Bandwidths = Bandwidths()
    iterations: int = grouping.ITERATIONS  # of the mean shift
    score: float = 0.1  # from which an instance is given
    confidence: float = 0.2  # from which a keypoint is drawn
    optimizer: Muon = MUON
    weights: Weights = Weights()

    def __post_init__(self):
        check_least(self, LEAST)
        check_sides(self, ("height", "width"))


def build(config: Config, data: str | None) -> Experiment:
    config, source = _with_data(config, data)
    types = {skeleton.name: skeleton for skeleton in config.skeletons}
    size = config.height, config.width
    check_mirrors(config.augmentation, config.skeletons)
    bandwidths = grouping.Bandwidths(
        *(
            np.inf if width is None else width
            for width in (config.bandwidths.ke, config.bandwidths.sie)
        )
    )

    def matrix(photo, *varied):
        height, width = photo.image.shape[:2]
        return crop_matrix(np.array([0, 0, width, height]), size, 0.0, *varied)

    def sample(record: KeypointImage, rng: np.random.Generator | None):
        varied = config.augmentation, rng
        return photo_sample(
            record,
            matrix(record, *varied),
            size,
            config.skeletons,
            config.max_instances,
            *varied,
        )

    def decode(outputs: Mapping[str, Any]) -> dict[str, jax.Array]:
        def one(heatmaps, *maps):
            return grouping.group(
                jax.nn.sigmoid(heatmaps),
                *maps,
                config.skeletons,
                instances=config.max_instances,
                candidates=config.candidates,
                bandwidths=bandwidths,
                iterations=config.iterations,
                least=config.least,
            )

        names = ("heatmaps", "keypoint_embedding", "instance_embedding", "log_size")
        return jax.vmap(one)(*(outputs[name] for name in names))._asdict()

    def results(record: KeypointImage, found: Mapping[str, np.ndarray]):
        to_photo = geometry.invert(matrix(record))
        instances = []
        for number in np.flatnonzero(found["valid"] & (found["score"] >= config.score)):
            skeleton = config.skeletons[found["skeleton"][number]]
            count = len(skeleton.keypoints)
            points = found["points"][number, :count]
            points = geometry.transform_points(to_photo, points)
            scores = np.asarray(found["scores"][number, :count], np.float32)
            instances.append(
                _instance(skeleton, points, scores, float(found["score"][number]))
            )
        return instances

    @functools.cache
    def mean():
        photos = source("train")
        chosen = np.unique(np.linspace(0, len(photos) - 1, MEAN_POSE_RECORDS).round())
        instances = [i for n in chosen.astype(int) for i in photos[n].instances]
        return mean_pose(instances, types), {
            name: np.mean([i.box for i in instances if i.skeleton == name], axis=0)
            for name in {i.skeleton for i in instances}
        }

    def naive(record: KeypointImage):
        poses, boxes = mean()
        return [
            _instance(
                types[name],
                box[:2] + (box[2:] - box[:2]) * poses[name],
                np.ones(len(poses[name]), np.float32),
                1.0,
            )
            for name, box in boxes.items()
        ]

    schedule = warmup_cosine(config)
    blank = KeypointImage("", np.zeros((*size, 3), np.uint8), (), tuple(types))
    return Experiment(
        config=config,
        source=source,
        blank=blank,
        sample=sample,
        model=GroupedKeypoints(
            config.skeletons,
            backbone=SmallBackbone(config.backbone.features, config.backbone.blocks),
            features=config.features,
            blocks=config.blocks,
            embedding=config.embedding,
        ),
        schedule=schedule,
        optimizer=muon(config.optimizer, schedule),
        targets=functools.partial(losses.targets, skeletons=config.skeletons),
        losses=losses.terms(
            **dataclasses.asdict(config.weights),
            bandwidths=bandwidths,
            iterations=config.iterations,
        ),
        decode=decode,
        results=results,
        metrics=lambda: _Metrics(config.skeletons),
        naive=naive,
        detector=functools.partial(_detector, types=types),
        draw=functools.partial(_draw, config=config),
        describe=functools.partial(_describe, types=types),
        coco=functools.partial(_coco, types=types),
        count=lambda records, found: sum(map(len, found)),
    )


class _Metrics:
    def __init__(self, skeletons: Sequence[Skeleton]):
        self._parts = OksMetrics(skeletons), GroupingMetrics(skeletons)

    def update(self, record: KeypointImage, found: Sequence[Instance]):
        for part in self._parts:
            part.update(record, found)

    def result(self):
        return {k: v for part in self._parts for k, v in part.result().items()}


def _instance(skeleton, points, scores, score):
    """A prediction, with the box of the keypoints that were found."""
    found = scores > 0
    keypoints = np.column_stack([points, np.where(found, 2.0, 0.0)])
    keypoints = np.where(found[:, None], keypoints, 0).astype(np.float32)
    low, high = keypoints[found, :2].min(0), keypoints[found, :2].max(0)
    return Instance(
        skeleton.name,
        keypoints,
        np.concatenate([low, high]),
        float(np.prod(high - low)),
        score=score,
        keypoint_scores=scores,
    )


def _with_data(config, data):
    """The config with what the data set decides, and the data set's splits."""

    def source(split):
        if data is not None:
            return KeypointImages(data, split)
        if split == "train":
            return SyntheticCrowds(config.train_photos, config.seed)
        return SyntheticCrowds(config.val_photos, VALIDATION_SEED)

    return of_data_set(config, source), source


def _detector(specification, *, types):
    """Whole pictures: all of their instances are found at once."""
    if specification not in ("", "whole"):
        raise ValueError(f"--detector={specification}: only whole pictures are taken")

    def detect(name: str, photo: np.ndarray) -> list[KeypointImage]:
        return [KeypointImage(name, photo, (), tuple(types))]

    return detect


def _draw(photo, records, found, *, config):
    return keypoint_overlay(
        photo, found[0], skeletons=config.skeletons, confidence=config.confidence
    )


def _describe(photo, records, found, *, types):
    height, width = photo.shape[:2]
    instances = [
        {
            "target": instance.skeleton,
            "box": numbers(instance.box),
            "score": round(instance.score, 4),
            "keypoints": named(types[instance.skeleton], instance),
        }
        for instance in found[0]
    ]
    return {"width": width, "height": height, "instances": instances}, {}


def _coco(name, number, records, found, *, types):
    return coco_results(name, number, found[0], list(types))
