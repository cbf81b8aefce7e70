"""How well keypoints of whole photos are found, and how well they are grouped."""

import collections

import numpy as np
from scipy.optimize import linear_sum_assignment

from facekp_jax.metrics.oks import checked, ignored, with_area

LEAST = 0.5  # similarity of a found keypoint to the true one
NAMES = ("purity", "keypoint_ap")
_TIE = 1e-6  # of the similarity in all, against that of the keypoint


class GroupingMetrics:
    """Metrics of the keypoints of whole photos and of the groups they are found in.

    A found keypoint can be that of a true instance if it has the same name and their
    similarity is at least 0.5: exp(-d^2 / (2 area k^2)), d the distance, k twice the
    skeleton's sigma, as one keypoint of OKS (Lin et al., ECCV 2014; cocodataset.org).

    - `keypoint_ap`: average precision of the keypoints of one name, wherever they are
      grouped, averaged over the names that have something to measure. In the order of
      their scores the found keypoints of a photo take the most similar true one that is
      free; average precision is the area under the best precision at each recall or a
      higher one. After APK of Yang and Ramanan, TPAMI 2013, whose distance is a share
      of the box.
    - `purity`: of the found keypoints that have a true one, the share that belongs to
      the instance which most of their group belong to (Manning et al., Introduction to
      Information Retrieval, 2008, section 16.3). Found and true keypoints are paired
      one to one, those of one name so that their similarities add up to the most; among
      equals, instances that are similar in all go together. A group is a predicted
      instance. Purity alone says nothing about instances that are split: groups of one
      keypoint are pure.

    What nobody can judge is left out: a found keypoint without a true one that is in
    the photo's ignored area, or in the box of a true instance for which that keypoint
    is not labelled; and what was found of a type that the photo was not labelled for.

    Per type as "coco/purity"; without a type, purity is of all types' keypoints
    together, and average precision averaged over types.
    """

    def __init__(self, skeletons):
        """Makes empty metrics of these skeletons."""
        self.skeletons = {skeleton.name: skeleton for skeleton in skeletons}
        counts = {s.name: len(s.keypoints) for s in skeletons}
        self._true = {name: np.zeros(k, int) for name, k in counts.items()}
        # (scores, whether they are right) of each photo
        self._found = {name: [[] for _ in range(k)] for name, k in counts.items()}
        self._matched = collections.Counter()  # keypoints of each type
        self._pure = collections.Counter()

    def update(self, record, found):
        """Adds one photo.

        Args:
            record: KeypointImage with the true instances.
            found: Instances predicted, in the photo's coordinates, in any order. A
                keypoint with visibility 0 was not found; without scores of its own it
                has that of its instance.

        Raises:
            ValueError: if a prediction is not finite or has not its type's number of
                keypoints.
        """
        for name, skeleton in self.skeletons.items():
            if name not in record.labelled:
                continue
            true = [
                with_area(t, skeleton) for t in record.instances if t.skeleton == name
            ]
            mine = [checked(f, skeleton) for f in found if f.skeleton == name]
            self._add(skeleton, true, mine, record.ignore)

    def _add(self, skeleton, true, mine, ignore):
        """Adds the true and the predicted instances of one type in one photo."""
        name, count = skeleton.name, len(skeleton.keypoints)
        truth, found = (
            np.array([i.keypoints for i in instances], float).reshape(-1, count, 3)
            for instances in (true, mine)
        )
        scores = _scores(mine, count)
        similarity = _similarity(found, truth, [t.area for t in true], skeleton.sigmas)
        judged = ~_unknown(found, truth, true, ignore)
        # Where joints of two instances coincide, their other keypoints decide.
        gain = similarity + _TIE * similarity.mean(axis=-1, keepdims=True)
        together = np.zeros(similarity.shape[:2], int)
        for k in range(count):
            seen = np.flatnonzero(found[:, k, 2] > 0)
            seen = seen[np.argsort(-scores[seen, k], kind="stable")]
            right = _right(similarity[seen, :, k])
            counts = right | judged[seen, k]
            self._found[name][k].append((scores[seen[counts], k], right[counts]))
            pairs = linear_sum_assignment(gain[..., k], maximize=True)
            together[pairs] += similarity[..., k][pairs] > 0
        self._true[name] += (truth[..., 2] > 0).sum(axis=0)
        self._matched[name] += int(together.sum())
        self._pure[name] += int(together.max(axis=1, initial=0).sum())

    def result(self):
        """The metrics so far.

        Returns:
            dict: each of NAMES, also per type as "coco/purity": a float in [0, 1], or
            None where there is nothing to measure. With them, in all and per type, what
            they were measured on: true `keypoints` behind keypoint_ap, and
            `keypoints_matched`, found ones, behind purity.
        """
        values = {}
        groups = [("", list(self.skeletons)), *((f"{n}/", [n]) for n in self.skeletons)]
        for prefix, names in groups:
            matched = sum(self._matched[name] for name in names)
            pure = sum(self._pure[name] for name in names)
            precisions = [self._mean_precision(name) for name in names]
            values |= {
                f"{prefix}purity": pure / matched if matched else None,
                f"{prefix}keypoint_ap": _mean(precisions),
                f"{prefix}keypoints": sum(int(self._true[n].sum()) for n in names),
                f"{prefix}keypoints_matched": matched,
            }
        return values

    def _mean_precision(self, name):
        """Mean over the keypoints of a type; None if none is labelled."""
        return _mean(
            _average_precision(*map(np.concatenate, zip(*photos, strict=True)), count)
            for photos, count in zip(self._found[name], self._true[name], strict=True)
            if count
        )


def _scores(instances, count):
    """Of the keypoints, [D, K]; ValueError if that of a found one is not finite."""
    scores = np.zeros((len(instances), count))
    for row, instance in zip(scores, instances, strict=True):
        own = instance.keypoint_scores
        row[:] = instance.score if own is None else own
        seen = instance.keypoints[:, 2] > 0
        if not np.isfinite(row[seen]).all():
            raise ValueError(
                f"cannot measure a predicted {instance.skeleton} with keypoint scores "
                f"{row.tolist()}"
            )
    return scores


def _similarity(found, truth, areas, sigmas):
    """Of found [D, K, 3] and true [G, K, 3] keypoints, [D, G, K]; 0: below LEAST."""
    seen, labelled = found[..., 2] > 0, truth[..., 2] > 0
    both = seen[:, None] & labelled
    difference = np.where(both[..., None], found[:, None, :, :2] - truth[..., :2], 0)
    width = (2 * np.array(sigmas)) ** 2 * np.array(areas).reshape(-1, 1)
    similarity = np.exp(-(difference**2).sum(-1) / width / 2)
    return np.where(both & (similarity >= LEAST), similarity, 0)


def _unknown(found, truth, true, ignore):
    """Whether found keypoints are where nobody has labelled their name, [D, K]."""
    x, y = np.moveaxis(found[..., :2], -1, 0)
    unknown = np.zeros(x.shape, bool)
    for keypoints, instance in zip(truth, true, strict=True):
        left, top, right, bottom = instance.box
        inside = (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
        unknown |= inside & ~(keypoints[:, 2] > 0)
    if ignore is not None:
        unknown |= ignored(found[..., :2], ignore)
    return unknown


def _right(similarity):
    """Whether found keypoints, best first, take a true one: [D, G] -> bool [D]."""
    free = similarity.copy()
    right = np.zeros(len(free), bool)
    for row in range(len(free)):
        if free[row].any():
            right[row] = True
            free[:, free[row].argmax()] = 0
    return right


def _average_precision(scores, right, count):
    """Area under the best precision at each of `count` recalls or a higher one.

    Equal scores pass a threshold together, so that their order does not matter.
    """
    order = np.argsort(-scores)
    last = np.diff(scores[order], append=-np.inf) != 0
    hits = np.cumsum(right[order])[last]
    precision = hits / (np.flatnonzero(last) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float((np.diff(hits, prepend=0) * best).sum() / count)


def _mean(values):
    """Mean of those that are not None; None if there are none."""
    values = [value for value in values if value is not None]
    return float(np.mean(values)) if values else None
