"""Average precision of people and animals by the similarity of their keypoints."""

import dataclasses
import warnings
from typing import NamedTuple

import numpy as np
from faster_coco_eval import COCO
from faster_coco_eval.core.faster_eval_api import COCOeval_faster


class OksMetrics:
    """Average precision of the people and animals of whole photos.

    `oks_ap50` and `oks_ap` are average precision at an object keypoint similarity (OKS)
    of 0.5 and averaged over 0.5 to 0.95 as COCO counts it (Lin et al., ECCV 2014;
    cocodataset.org), per type as "coco/oks_ap" and averaged over the types that have
    something to measure. The sigmas are the skeleton's; the number of instances is not
    limited.

    What COCO ignores is neither right nor wrong: an instance without a labelled
    keypoint, and a prediction that has more than half of its keypoints in the photo's
    ignored area. A photo that was not labelled for a type says nothing about it: its
    predictions of that type are left out, and so are those of other types than given.
    """

    def __init__(self, skeletons):
        """Makes empty metrics of these skeletons."""
        self.skeletons = {skeleton.name: skeleton for skeleton in skeletons}
        self._photos = 0
        self._pairs = []  # of a photo and a type that it is labelled for

    def update(self, record, instances):
        """Adds one photo.

        Args:
            record: KeypointImage with the true instances.
            instances: Instances predicted, in the photo's coordinates, in any order. A
                keypoint with visibility 0 was not found.

        Raises:
            ValueError: if a prediction is not finite or has not its type's number of
                keypoints.
        """
        self.add(record.instances, instances, record.labelled, record.ignore)

    def add(self, truth, found, labelled, ignore=None):
        """Adds one photo as `update` does, given without its record."""
        self._photos += 1
        for category, (name, skeleton) in enumerate(self.skeletons.items(), 1):
            if name not in labelled:
                continue
            true = [with_area(t, skeleton) for t in truth if t.skeleton == name]
            mine = [checked(f, skeleton) for f in found if f.skeleton == name]
            # The evaluation wants the rows of the similarity in this order.
            mine.sort(key=lambda instance: -instance.score)
            similarity = oks(mine, true, skeleton.sigmas)
            if ignore is not None:
                inside = [_mostly_inside(instance, ignore) for instance in mine]
                similarity = np.column_stack([similarity, np.array(inside, float)])
            pair = _Pair(
                photo=self._photos,
                category=category,
                labelled=[int((t.keypoints[:, 2] > 0).sum()) for t in true],
                ignore=ignore is not None,
                scores=[float(instance.score) for instance in mine],
                similarity=similarity,
            )
            self._pairs.append(pair)

    def result(self):
        """The metrics so far.

        Returns:
            dict: `oks_ap`, `oks_ap50` and, per type, "coco/oks_ap" and "coco/oks_ap50":
            a float in [0, 1], or None where there is nothing to measure. With them the
            numbers of `photos` (of a type: labelled for it) and of true `instances`
            that have a labelled keypoint.
        """
        values, counts = {}, {"photos": self._photos, "instances": 0}
        precisions = self._average_precisions()
        for category, name in enumerate(self.skeletons, 1):
            pairs = [pair for pair in self._pairs if pair.category == category]
            instances = sum(n > 0 for pair in pairs for n in pair.labelled)
            values[f"{name}/oks_ap"], values[f"{name}/oks_ap50"] = precisions[category]
            counts[f"{name}/photos"] = len(pairs)
            counts[f"{name}/instances"] = instances
            counts["instances"] += instances
        for metric in ("oks_ap", "oks_ap50"):
            parts = [values[f"{name}/{metric}"] for name in self.skeletons]
            parts = [part for part in parts if part is not None]
            values[metric] = float(np.mean(parts)) if parts else None
        return values | counts

    def _average_precisions(self):
        """Category -> (over 0.5 to 0.95, at 0.5)."""
        nothing = dict.fromkeys(range(1, len(self.skeletons) + 1), (None, None))
        if not any(pair.labelled for pair in self._pairs):
            return nothing
        evaluation = _Evaluation(self._pairs, self._photos, len(self.skeletons))
        evaluation.evaluate()
        evaluation.accumulate()
        precision = evaluation.eval["precision"][..., 0, 0]  # [OKS, recall, category]
        # COCO writes -1 where there is no true instance.
        return nothing | {
            category: (float(p.mean()), float(p[0].mean()))
            for category, p in enumerate(np.moveaxis(precision, -1, 0), 1)
            if (p >= 0).all()
        }


def oks(found, truth, sigmas):
    """Object keypoint similarity of every prediction with every true instance.

    Args:
        found: D Instances predicted; a keypoint with visibility 0 is like none.
        truth: G true Instances of the same skeleton, each with an area.
        sigmas: of the skeleton.

    Returns:
        float64 [D, G] in [0, 1]. For a true instance without a labelled keypoint it
        tells how near the prediction is to its box, widened by its sides.

    Source: Lin et al., ECCV 2014; cocodataset.org.
    """
    similarity = np.zeros((len(found), len(truth)))
    if not found:
        return similarity
    keypoints = np.array([instance.keypoints for instance in found], np.float64)
    points = keypoints[..., :2]
    for column, instance in enumerate(truth):
        labelled = instance.keypoints[:, 2] > 0
        if labelled.any():
            distance = points - instance.keypoints[:, :2]
        else:
            low, high = np.split(instance.box.astype(np.float64), 2)
            side = high - low
            distance = np.maximum(low - side - points, points - high - side).clip(0)
            labelled[:] = True
        square = np.where(keypoints[..., 2] > 0, (distance**2).sum(-1), np.inf)
        width = (2 * np.array(sigmas)) ** 2 * instance.area
        parts = np.exp(-square / width / 2)
        similarity[:, column] = parts[:, labelled].mean(-1)
    return similarity


def checked(found, skeleton):
    """The prediction; ValueError if it is not finite or not of the skeleton."""
    _check_shape(found, skeleton)
    if found.skeleton != skeleton.name:
        raise ValueError(
            f"cannot measure a predicted {found.skeleton} against a {skeleton.name}"
        )
    seen = found.keypoints[found.keypoints[:, 2] > 0]
    if not (np.isfinite(found.score) and np.isfinite(seen).all()):
        raise ValueError(
            f"cannot measure a predicted {skeleton.name} with score {found.score}, "
            f"keypoints {found.keypoints.tolist()}"
        )
    return found


def ignored(points, ignore):
    """Which points [..., 2], pixels of the photo, are in ignored pixels: bool [...]."""
    x, y = np.moveaxis(np.floor(points), -1, 0)
    column, row = x - ignore.x, y - ignore.y
    height, width = ignore.pixels.shape
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    inside[inside] = ignore.pixels[row[inside].astype(int), column[inside].astype(int)]
    return inside


def with_area(truth, skeleton):
    """The true instance, with an area that OKS can divide by.

    Raises:
        ValueError: if it has not the skeleton's number of keypoints.
    """
    _check_shape(truth, skeleton)
    if truth.area > 0:
        return truth
    warnings.warn(
        "an instance has no area: OKS takes that of its box, or else of the rectangle "
        "around its keypoints",
        stacklevel=3,
    )
    labelled = truth.keypoints[truth.keypoints[:, 2] > 0, :2]
    area = np.prod(truth.box[2:] - truth.box[:2])
    if not area > 0 and len(labelled):
        area = np.prod(np.ptp(labelled, axis=0))
    # The keypoints are one, or in a row: one pixel.
    return dataclasses.replace(truth, area=float(area) if area > 0 else 1.0)


class _Pair(NamedTuple):
    """A photo and a type that it is labelled for."""

    photo: int
    category: int
    labelled: list[int]  # keypoints of each true instance
    ignore: bool  # an ignored area is the last column of the similarity
    scores: list[float]  # of the predictions, falling
    similarity: np.ndarray


class _Evaluation(COCOeval_faster):
    """COCO's matching and averaging of similarities that are already there."""

    def __init__(self, pairs, photos, categories):
        truth, found = [], []
        for pair in pairs:
            where = {"image_id": pair.photo, "category_id": pair.category}
            where |= {"bbox": [0, 0, 1, 1], "area": 1}
            truth += [where | {"num_keypoints": n, "iscrowd": 0} for n in pair.labelled]
            if pair.ignore:
                truth.append(where | {"num_keypoints": 0, "iscrowd": 1})
            found += [where | {"score": score} for score in pair.scores]

        def coco(annotations):
            # Ids count from 1: to the evaluation an id of 0 means "without a partner".
            return COCO(
                {
                    "images": [{"id": i} for i in range(1, photos + 1)],
                    "categories": [{"id": i} for i in range(1, categories + 1)],
                    "annotations": [
                        annotation | {"id": i}
                        for i, annotation in enumerate(annotations, 1)
                    ],
                }
            )

        super().__init__(coco(truth), coco(found), "keypoints")
        self._similarity = {(p.photo, p.category): p.similarity for p in pairs}
        # COCO's takes only categories that have a true instance.
        self.params.catIds = list(range(1, categories + 1))
        self.params.maxDets = [max(1, *(len(pair.scores) for pair in pairs))]

    def computeOks(self, imgId, catId):
        similarity = self._similarity[imgId, catId]
        return similarity if similarity.size else []


def _check_shape(instance, skeleton):
    shape, expected = np.shape(instance.keypoints), (len(skeleton.keypoints), 3)
    if shape != expected:
        raise ValueError(
            f"cannot measure a {skeleton.name} with keypoints of shape {shape}; its "
            f"skeleton needs {expected}"
        )


def _mostly_inside(instance, ignore):
    """Whether more than half of the keypoints that were found are in ignored pixels."""
    found = instance.keypoints[instance.keypoints[:, 2] > 0, :2]
    return 2 * ignored(found, ignore).sum() > len(found)
