"""What the keypoint recipes share, from the data set's settings to the results."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from facekp_jax.records import Instance
from facekp_jax.skeletons import Skeleton


def of_data_set(config: Any, photos: Callable[[str], Any]) -> Any:
    """The config with what it leaves to the data set: target types, EXIF rule.

    Args:
        config: with `skeletons` and `apply_exif`.
        photos: opens a split; a run's own config needs none.
    """
    if config.skeletons and config.apply_exif is not None:
        return config
    train = photos("train")
    return dataclasses.replace(
        config,
        skeletons=config.skeletons or train.skeletons,
        apply_exif=train.apply_exif if config.apply_exif is None else config.apply_exif,
    )


def numbers(values: Iterable[float]) -> list[float]:
    """Pixels for JSON."""
    return [round(float(value), 2) for value in values]


def named(skeleton: Skeleton, instance: Instance) -> dict[str, list[float]]:
    """Keypoint -> [x, y, score] of a prediction."""
    return {
        name: [*numbers(point), round(float(score), 4)]
        for name, point, score in zip(
            skeleton.keypoints,
            instance.keypoints[:, :2],
            instance.keypoint_scores,
            strict=True,
        )
    }


def photo_number(name: str) -> int | None:
    """785 of 000000000785.jpg, as COCO's photos are named; None: it is no number."""
    stem = pathlib.Path(name).stem
    return int(stem) if stem.isdecimal() else None


def coco_results(
    name: str, number: int, instances: Sequence[Instance], types: Sequence[str]
) -> list[dict[str, Any]]:
    """Predicted instances of a photo as COCO keypoint results.

    Args:
        name: of the photo's file.
        number: what the photo is called if its name is no number.
        instances: in the photo's coordinates, with the scores of their keypoints.
        types: names of the target types; the first is category 1.
    """
    known = photo_number(name)
    entries = []
    for instance in instances:
        low, high = instance.box[:2], instance.box[2:]
        # COCO's keypoints count from the centre of the first pixel.
        keypoints = instance.keypoints - [0.5, 0.5, 0]
        keypoints[:, 2] = instance.keypoint_scores
        entries.append(
            {
                "image_id": number if known is None else known,
                "file_name": name,
                "category_id": 1 + types.index(instance.skeleton),
                "category": instance.skeleton,
                "bbox": numbers([*low, *(high - low)]),
                "keypoints": [round(float(v), 4) for v in keypoints.ravel()],
                "score": round(instance.score, 4),
            }
        )
    return entries


def mean_pose(
    instances: Iterable[Instance], types: Mapping[str, Skeleton]
) -> dict[str, np.ndarray]:
    """Per type, [K, 2]: the mean place of each keypoint in the box, of its sides."""
    total = {name: np.zeros((len(s.keypoints), 3)) for name, s in types.items()}
    for instance in instances:
        low, sides = instance.box[:2], instance.box[2:] - instance.box[:2]
        labelled = instance.keypoints[:, 2:] > 0
        places = np.where(labelled, (instance.keypoints[:, :2] - low) / sides, 0)
        total[instance.skeleton] += np.column_stack([places, labelled])
    return {
        name: np.where(t[:, 2:], t[:, :2] / np.maximum(t[:, 2:], 1), 0.5)
        for name, t in total.items()
    }
