"""How well keypoints are found: right ones, errors in pixels, average precision."""

import collections
import dataclasses

import numpy as np

from facekp_jax.metrics.oks import OksMetrics, checked, with_area

STAGES = ("first", "second")
NAMES = ("pck", "nme", "mean_error_px", "rmse_px", "oks_ap", "oks_ap50")
# Suffix of a name -> visibilities of the true keypoints that it measures.
SUBSETS = {"": (1, 2), "/visible": (2,), "/occluded": (1,)}
# Segments of the body that errors are measured in: of the pairs of keypoints, the first
# that is labelled.
SEGMENTS = {
    "torso": (("left_shoulder", "right_hip"), ("right_shoulder", "left_hip")),
    "head": (
        ("head_top", "neck"),
        ("head_top", "upper_neck"),
        ("head_top", "head_bottom"),
    ),
}


class KeypointMetrics:
    """Metrics of the first and the second points of instances whose box was given.

    - `pck`: share of the labelled keypoints that were found within `threshold` times
      the instance's size (Yang and Ramanan, TPAMI 2013). The size is the longer side of
      its box, or its torso or head.
    - `nme`: mean error in shares of the size; `mean_error_px` and `rmse_px`: mean error
      and root of the mean squared error in pixels of the photo. All three over the
      labelled keypoints that were found.
    - `oks_ap`, `oks_ap50`: as `OksMetrics`, each instance by itself: a prediction can
      only be right about the instance in whose box it was made.

    - `error_reduction`, of the second points only: the share by which their mean error
      is below that of the first.

    Each for the first and the second points, over all labelled keypoints, the visible
    and the occluded ones: "first/pck", "first/pck/visible", "second/oks_ap/occluded".
    Per type "coco/first/pck"; without a type, all types' keypoints together, and
    average precision averaged over types.
    """

    def __init__(self, skeletons, *, threshold=0.05, normaliser="box"):
        """Makes empty metrics.

        Args:
            skeletons: Skeletons of the types to measure.
            threshold: of pck, share of the size.
            normaliser: the size: "box", "torso" (a shoulder to the opposite hip) or
                "head" (its top to the neck).

        Raises:
            ValueError: if a skeleton does not have the normaliser's keypoints.
        """
        self.skeletons = {skeleton.name: skeleton for skeleton in skeletons}
        self.threshold = threshold
        self._segments = {
            skeleton.name: _segments(skeleton, normaliser) for skeleton in skeletons
        }
        self._rows = {name: [] for name in self.skeletons}
        self._oks = {(s, x): OksMetrics(skeletons) for s in STAGES for x in SUBSETS}
        self._unlabelled = collections.Counter()
        self._without_area = collections.Counter()

    def update(self, truth, first, second):
        """Adds one instance.

        Args:
            truth: the true Instance.
            first: Instance of the first points, in the same coordinates, or None if
                nothing was found. A keypoint with visibility 0 was not found.
            second: the same of the second points.

        Raises:
            ValueError: if a prediction is not finite, is of another type or has not its
                type's number of keypoints, or for a type that is not measured.
        """
        name = truth.skeleton
        if name not in self.skeletons:
            raise ValueError(
                f"cannot measure a {name}, only {', '.join(self.skeletons)}; give its "
                "skeleton too"
            )
        skeleton = self.skeletons[name]
        area, truth = truth.area, with_area(truth, skeleton)
        visibility = truth.keypoints[:, 2]
        if not (visibility > 0).any():
            self._unlabelled[name] += 1
            return
        self._without_area[name] += not area > 0
        errors = []
        for stage, found in zip(STAGES, (first, second), strict=True):
            found = [] if found is None else [checked(found, skeleton)]
            errors.append(_errors(truth, *found))
            for suffix, visibilities in SUBSETS.items():
                part = np.isin(visibility, visibilities)
                if part.any():
                    keypoints = np.where(part[:, None], truth.keypoints, 0)
                    true = dataclasses.replace(truth, keypoints=keypoints)
                    self._oks[stage, suffix].add([true], found, [name])
        size = _size(truth, self._segments[name])
        self._rows[name].append((visibility, size, *errors))

    def result(self):
        """The metrics so far.

        Returns:
            dict: for each of STAGES, NAMES and SUBSETS a float, or None where there is
            nothing to measure, and what it was measured on: `instances` with a labelled
            keypoint and `instances_unlabelled`, which are left out;
            `instances_without_area`, for which OKS takes that of the box; labelled
            `keypoints`, `keypoints_scaled` behind pck and nme (the size is known) and
            "first/keypoints_found" behind the errors, with the same suffixes. All also
            per type.
        """
        precisions = {key: oks.result() for key, oks in self._oks.items()}
        values = {}
        groups = [("", list(self.skeletons)), *((f"{n}/", [n]) for n in self.skeletons)]
        for prefix, names in groups:
            rows = [row for name in names for row in self._rows[name]]
            for count, of in (
                ("instances", {name: len(self._rows[name]) for name in names}),
                ("instances_unlabelled", self._unlabelled),
                ("instances_without_area", self._without_area),
            ):
                values[prefix + count] = sum(of[name] for name in names)
            visibility, size, *errors = _columns(rows)
            for suffix, visibilities in SUBSETS.items():
                part = np.isin(visibility, visibilities)
                values[f"{prefix}keypoints{suffix}"] = int(part.sum())
                scaled = int((size[part] > 0).sum())
                values[f"{prefix}keypoints_scaled{suffix}"] = scaled
                for stage, error in zip(STAGES, errors, strict=True):
                    found = int(np.isfinite(error[part]).sum())
                    values[f"{prefix}{stage}/keypoints_found{suffix}"] = found
                    measured = _measure(error[part], size[part], self.threshold)
                    measured |= {
                        name: precisions[stage, suffix][prefix + name]
                        for name in ("oks_ap", "oks_ap50")
                    }
                    values |= {
                        f"{prefix}{stage}/{name}{suffix}": measured[name]
                        for name in NAMES
                    }
                before, after = (
                    values[f"{prefix}{stage}/mean_error_px{suffix}"] for stage in STAGES
                )
                values[f"{prefix}second/error_reduction{suffix}"] = (
                    1 - after / before if before and after is not None else None
                )
        return values

    def table(self):
        """The metrics so far of each keypoint.

        Returns:
            dict: type -> keypoint -> its number of labels, `keypoints`, and for both
            stages "first/pck", "first/nme", "first/mean_error_px", "first/rmse_px", as
            in `result`.
        """
        tables = {}
        for name, skeleton in self.skeletons.items():
            tables[name] = {}
            for k, keypoint in enumerate(skeleton.keypoints):
                rows = [
                    (v[k : k + 1], s, *(e[k : k + 1] for e in errors))
                    for v, s, *errors in self._rows[name]
                ]
                visibility, size, *errors = _columns(rows)
                part = visibility > 0
                values = {"keypoints": int(part.sum())}
                for stage, error in zip(STAGES, errors, strict=True):
                    measured = _measure(error[part], size[part], self.threshold)
                    values |= {f"{stage}/{n}": value for n, value in measured.items()}
                tables[name][keypoint] = values
        return tables


def _segments(skeleton, normaliser):
    """Pairs of keypoint numbers whose distance is the size; None: the box is."""
    if normaliser == "box":
        return None
    if normaliser not in SEGMENTS:
        raise ValueError(
            f"unknown normaliser {normaliser!r}; use box, {', '.join(SEGMENTS)}"
        )
    names = skeleton.keypoints
    pairs = [p for p in SEGMENTS[normaliser] if set(p) <= set(names)]
    if not pairs:
        raise ValueError(
            f"skeleton {skeleton.name!r} has no {normaliser}: it lacks "
            f"{' or '.join('-'.join(p) for p in SEGMENTS[normaliser])}; use normaliser "
            "box"
        )
    return [(names.index(a), names.index(b)) for a, b in pairs]


def _size(truth, segments):
    """Pixels of the instance that pck and nme are measured in; 0: not known."""
    if segments is None:
        return float(max(truth.box[2:] - truth.box[:2]))
    for pair in segments:
        a, b = truth.keypoints[list(pair)].astype(np.float64)
        if a[2] > 0 and b[2] > 0:
            return float(np.hypot(*(a - b)[:2]))
    return 0.0


def _errors(truth, found=None):
    """Pixels between the true and the found keypoints [K]; infinite: not found."""
    if found is None:
        return np.full(len(truth.keypoints), np.inf)
    distance = found.keypoints.astype(np.float64) - truth.keypoints
    seen = found.keypoints[:, 2] > 0
    return np.where(seen, np.hypot(distance[:, 0], distance[:, 1]), np.inf)


def _columns(rows):
    """Visibility, size and errors of all keypoints of rows, [M] each."""
    visibility = [row[0] for row in rows]
    sizes = [np.full(len(row[0]), row[1]) for row in rows]
    errors = ([row[2 + s] for row in rows] for s in range(len(STAGES)))
    return [np.concatenate([[], *column]) for column in (visibility, sizes, *errors)]


def _measure(error, size, threshold):
    """Metrics of the keypoints with these errors and sizes, [M] pixels each."""
    found, scaled = np.isfinite(error), size > 0

    def mean(values):
        return float(np.mean(values)) if len(values) else None

    square = mean(error[found] ** 2)
    both = found & scaled
    return {
        "pck": mean(error[scaled] <= threshold * size[scaled]),
        "nme": mean(error[both] / size[both]),
        "mean_error_px": mean(error[found]),
        "rmse_px": None if square is None else square**0.5,
    }
