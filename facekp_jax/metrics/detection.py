"""How well regions are found: average precision, and the target's own pixels."""

import collections

import numpy as np
from faster_coco_eval import COCO
from faster_coco_eval.core import mask as coco
from faster_coco_eval.core.faster_eval_api import COCOeval_faster

from facekp_jax import masks

NAMES = ("box_ap50", "box_ap", "mask_ap50", "mask_ap", "pixel_iou")
COUNTS = ("regions", "regions_with_mask", "regions_with_pixels")


class DetectionMetrics:
    """Metrics of a model's regions over photos, per branch and averaged.

    - `box_ap50`, `box_ap`: average precision of boxes at IoU 0.5 and averaged over 0.5
      to 0.95 as COCO counts it (Lin et al., ECCV 2014): crowd regions are ignored. The
      number of regions is not limited.
    - `mask_ap50`, `mask_ap`: the same for masks, over the photos whose true regions of
      the branch carry masks. A prediction without a mask finds nothing.
    - `pixel_iou`: mean IoU of the target's own pixels over the true regions that have
      some. A true region's partner is found by box IoU of at least 0.5, one to one, in
      the order of the scores; a region without a partner counts 0.

    A photo that was not labelled for a branch says nothing about it: its predictions of
    that branch are left out. What has nothing to measure is None, and the averages over
    branches leave it out.
    """

    def __init__(self, branches, *, score_threshold=0.5):
        """Makes empty metrics.

        Args:
            branches: names of the branches to measure; regions of others are left out.
            score_threshold: the score that a prediction needs to count for `pixel_iou`;
                average precision takes all predictions.
        """
        self.branches = tuple(branches)
        self.score_threshold = score_threshold
        self._photos = []
        self._truth = []
        self._found = []
        self._without_masks = set()  # (photo, category) left out of mask_ap
        self._labelled = collections.Counter()  # photos of each branch
        self._pixel_ious = {branch: [] for branch in self.branches}

    def update(self, record, regions):
        """Adds one photo.

        Args:
            record: LesionImage with the true regions.
            regions: Regions predicted, in the photo's coordinates, in any order.

        Raises:
            ValueError: if a prediction's score or box is not finite.
        """
        for region in regions:
            if not np.isfinite([region.score, *region.box]).all():
                raise ValueError(
                    f"{record.name}: cannot measure a predicted {region.branch} with "
                    f"score {region.score}, box {np.asarray(region.box).tolist()}"
                )
        height, width = record.image.shape[:2]
        photo = len(self._photos) + 1
        self._photos.append({"id": photo, "height": height, "width": width})
        for category, branch in enumerate(self.branches, 1):
            if branch not in record.labelled:
                continue
            self._labelled[branch] += 1
            truth = [region for region in record.regions if region.branch == branch]
            found = [region for region in regions if region.branch == branch]
            if any(region.mask is None and not region.crowd for region in truth):
                self._without_masks.add((photo, category))
            where = {"image_id": photo, "category_id": category}
            self._truth += [
                where | _annotation(region, height, width) for region in truth
            ]
            self._found += [
                where | _annotation(region, height, width) for region in found
            ]
            self._pixel_ious[branch] += _pixel_ious(truth, found, self.score_threshold)

    def result(self):
        """The metrics so far.

        Returns:
            dict: each of NAMES, averaged over the branches that have something to
            measure, and per branch as "acne/box_ap50": a float in [0, 1] or None. With
            them, in all and per branch, what they were measured on: `photos` (of a
            branch: labelled for it), true `regions` (no crowd) behind box_ap,
            `regions_with_mask` behind mask_ap, `regions_with_pixels` behind pixel_iou.
        """
        masked = [a for a in self._truth if self._has_masks(a)]
        boxes = self._average_precision("bbox", self._truth, self._found)
        segments = self._average_precision(
            "segm", masked, [a for a in self._found if self._has_masks(a)]
        )
        regions, regions_with_mask = (
            collections.Counter(a["category_id"] for a in part if not a["iscrowd"])
            for part in (self._truth, masked)
        )
        values, counts = {}, {"photos": len(self._photos)}
        for category, branch in enumerate(self.branches, 1):
            ious = self._pixel_ious[branch]
            pixel_iou = float(np.mean(ious)) if ious else None
            measured = (*boxes[category - 1], *segments[category - 1], pixel_iou)
            values |= {f"{branch}/{n}": v for n, v in zip(NAMES, measured, strict=True)}
            numbers = regions[category], regions_with_mask[category], len(ious)
            counts[f"{branch}/photos"] = self._labelled[branch]
            counts |= {f"{branch}/{n}": v for n, v in zip(COUNTS, numbers, strict=True)}
        for name in NAMES:
            parts = [values[f"{branch}/{name}"] for branch in self.branches]
            parts = [part for part in parts if part is not None]
            values[name] = float(np.mean(parts)) if parts else None
        for name in COUNTS:
            counts[name] = sum(counts[f"{branch}/{name}"] for branch in self.branches)
        return values | counts

    def _has_masks(self, annotation):
        pair = annotation["image_id"], annotation["category_id"]
        return pair not in self._without_masks

    def _average_precision(self, kind, truth, found):
        """(at 0.5, over 0.5 to 0.95) of every branch."""
        if not truth:
            return [(None, None)] * len(self.branches)
        pairs = collections.Counter((a["image_id"], a["category_id"]) for a in found)
        evaluation = COCOeval_faster(self._coco(truth), self._coco(found), kind)
        evaluation.params.maxDets = [max(pairs.values(), default=1)]
        evaluation.params.areaRng = [[0, 1e10]]
        evaluation.params.areaRngLbl = ["all"]
        evaluation.evaluate()
        evaluation.accumulate()
        precision = evaluation.eval["precision"][..., 0, 0]  # [IoU, recall, branch]
        # COCO writes -1 where there is no true region.
        return [
            (None, None) if (p < 0).any() else (float(p[0].mean()), float(p.mean()))
            for p in np.moveaxis(precision, -1, 0)
        ]

    def _coco(self, annotations):
        # Ids count from 1: to the evaluation an id of 0 means "without a partner".
        return COCO(
            {
                "images": self._photos,
                "categories": [
                    {"id": i, "name": branch}
                    for i, branch in enumerate(self.branches, 1)
                ],
                "annotations": [{**a, "id": i} for i, a in enumerate(annotations, 1)],
            }
        )


def _annotation(region, height, width):
    mask = region.mask or masks.EMPTY
    if region.mask is None and region.crowd:
        mask = masks.paste(np.ones((1, 1)), region.box, height, width)
    x0, y0, x1, y1 = np.asarray(region.box, np.float64).tolist()
    return {
        "bbox": [x0, y0, x1 - x0, y1 - y0],
        "area": (x1 - x0) * (y1 - y0),
        "segmentation": masks.to_rle(mask, height, width),
        "iscrowd": int(region.crowd),
        "score": float(region.score),
    }


def _pixel_ious(truth, found, score_threshold):
    """IoU of the target's pixels for each true region of one branch that has some."""
    truth = [region for region in truth if not region.crowd]
    found = [region for region in found if region.score >= score_threshold]
    found.sort(key=lambda region: -region.score)
    partners = [None] * len(truth)
    if truth and found:
        ious = np.array(coco.iou(_xywh(found), _xywh(truth), [0] * len(truth)))
        for region, row in zip(found, ious, strict=True):
            best = row.argmax()
            if row[best] >= 0.5:
                partners[best] = region
                ious[:, best] = 0
    return [
        masks.iou(region.pixels, (partner and partner.pixels) or masks.EMPTY)
        for region, partner in zip(truth, partners, strict=True)
        if region.pixels is not None and region.pixels.pixels.any()
    ]


def _xywh(regions):
    boxes = np.array([region.box for region in regions], np.float64)
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], -1)
