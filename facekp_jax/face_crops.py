"""The normalised face image: from a photo's record to a sample, and back.

Training, evaluation and prediction cut the face through the same function, so that a
network is asked about exactly what it has learned.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import cv2
import numpy as np

from facekp_jax import geometry, masks
from facekp_jax.models.face_branches import MASK_CROP
from facekp_jax.pixels import ColourRule, pseudo_mask, target_pixels
from facekp_jax.records import LesionImage, Patch, Region

MASK_CELLS = 2 * MASK_CROP  # a side, of a predicted mask
MIN_VISIBLE = (
    0.5  # of a box's area; what the crop cuts further is ignored, not a target
)


def face_box(record: LesionImage) -> np.ndarray:
    """Box [4] of the record's face; one without a box is all face."""
    height, width = record.image.shape[:2]
    return np.array([0, 0, width, height]) if record.face is None else record.face


def face_matrix(record: LesionImage, side: int, margin: float) -> np.ndarray:
    """Map [2, 3] from the photo to its face image of side x side pixels.

    The face's box is widened by a margin, as a share of its longer side. A face that
    fills the photo is not: there is nothing around it.
    """
    face = face_box(record)
    fills = (face[:2] <= 0).all() and (face[2:] >= record.image.shape[1::-1]).all()
    return geometry.crop_matrix(geometry.square(face, 0.0 if fills else margin), side)


def augmented_matrix(
    record: LesionImage, side: int, margin: float, rng: np.random.Generator
) -> np.ndarray:
    """Like `face_matrix`, mirrored by chance, scaled by a tenth at most, and shifted.

    Prediction sees the boxes of a face detector, which are off by about as much.
    """
    scale = np.exp(rng.uniform(-0.1, 0.1))
    linear = np.diag([scale * rng.choice([-1.0, 1.0]), scale])
    centre = np.full(2, side / 2)
    shift = centre + rng.uniform(-0.05, 0.05, 2) * side - linear @ centre
    matrix = face_matrix(record, side, margin)
    return np.column_stack([linear @ matrix[:, :2], linear @ matrix[:, 2] + shift])


def with_pseudo_masks(
    record: LesionImage, rules: Mapping[str, ColourRule]
) -> LesionImage:
    """The record with a mask, by the branch's rule, where only the box is known."""
    regions = [
        dataclasses.replace(
            region, mask=pseudo_mask(record.image, region.box, rules[region.branch])
        )
        if region.mask is None and not region.crowd and region.branch in rules
        else region
        for region in record.regions
    ]
    return dataclasses.replace(record, regions=tuple(regions))


def cut(
    record: LesionImage,
    matrix: np.ndarray,
    side: int,
    rng: np.random.Generator | None = None,
) -> np.ndarray:
    """The face image, uint8 [side, side, 3]; with `rng`, exposure varied a little.

    All channels change alike: the colour of a lesion against its skin is what tells
    the kinds apart.
    """
    image = geometry.warp(record.image, matrix, side)
    if rng is None:
        return image
    levels = np.arange(256) * rng.uniform(0.85, 1.15) + rng.uniform(-12, 12)
    return cv2.LUT(image, np.rint(levels).clip(0, 255).astype(np.uint8))


def truth(
    record: LesionImage,
    matrix: np.ndarray,
    side: int,
    branches: Sequence[str],
    max_boxes: int,
    max_masks: int,
    max_candidates: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Padded arrays of what a record knows, in pixels of its face image.

    Regions of a branch that the record was not labelled for are no part of it. A region
    that the crop cuts by more than half is ignored, as a crowd is.

    Args:
        record: the photo.
        matrix: [2, 3], the map that cuts the face image.
        side: pixels of the face image.
        branches: names, in the order of the model's.
        max_boxes: G, room for the regions of a branch.
        max_masks: M, masks drawn at random of each branch.
        max_candidates: T, boxes drawn at random of all branches together.
        rng: of what is drawn, and of how far boxes are shaken.

    Returns:
        `labelled` bool [S]; `boxes` float32 [S, G, 4] with `valid` and `crowd` bool
        [S, G]; `mask_boxes` float32 [S, M, 4], shaken true boxes, with `mask_valid`
        bool [S, M] and `mask_targets` uint8 [S, M, 28, 28], coverage of 255;
        `true_candidates` float32 [T, 4] with `true_candidates_valid` bool [T].

    Raises:
        ValueError: if a branch has more regions than `max_boxes`.
    """
    count = len(branches)
    arrays = {
        "labelled": np.array([name in record.labelled for name in branches]),
        "boxes": np.zeros((count, max_boxes, 4), np.float32),
        "valid": np.zeros((count, max_boxes), bool),
        "crowd": np.zeros((count, max_boxes), bool),
        "mask_boxes": np.zeros((count, max_masks, 4), np.float32),
        "mask_valid": np.zeros((count, max_masks), bool),
        "mask_targets": np.zeros((count, max_masks, MASK_CELLS, MASK_CELLS), np.uint8),
        "true_candidates": np.zeros((max_candidates, 4), np.float32),
        "true_candidates_valid": np.zeros(max_candidates, bool),
    }
    to_photo = geometry.invert(matrix)
    targets = []
    for row, name in enumerate(branches):
        if name not in record.labelled:
            continue
        regions = [region for region in record.regions if region.branch == name]
        if len(regions) > max_boxes:
            raise ValueError(
                f"{record.name}: {len(regions)} regions of {name} but room for "
                f"{max_boxes}; raise --config.max_boxes"
            )
        visible = [seen for region in regions if (seen := _seen(region, matrix, side))]
        for slot, (_, box, is_target) in enumerate(visible):
            arrays["boxes"][row, slot] = box
            arrays["valid"][row, slot] = True
            arrays["crowd"][row, slot] = not is_target
        here = [(region, box) for region, box, is_target in visible if is_target]
        targets += [box for _, box in here]
        masked = [(region, box) for region, box in here if region.mask is not None]
        order = rng.permutation(len(masked))[:max_masks]
        for slot, (region, box) in enumerate(masked[number] for number in order):
            shaken = _shaken(box, 0.08, side, rng)
            arrays["mask_boxes"][row, slot] = shaken
            arrays["mask_valid"][row, slot] = True
            arrays["mask_targets"][row, slot] = _coverage(
                region.mask, to_photo, shaken, matrix
            )
    for slot, number in enumerate(rng.permutation(len(targets))[:max_candidates]):
        arrays["true_candidates"][slot] = _shaken(targets[number], 0.12, side, rng)
        arrays["true_candidates_valid"][slot] = True
    return arrays


def found_regions(
    record: LesionImage,
    found: Mapping[str, np.ndarray],
    matrix: np.ndarray,
    rules: Mapping[str, ColourRule],
    min_score: float,
    pixel_score: float,
) -> list[Region]:
    """Predictions of one face image, as regions of its photo.

    Args:
        record: the photo.
        found: of one image, `boxes` [S, D, 4] in pixels of the face image, `scores`
            and `valid` [S, D], and `masks` [S, D, m, m], probabilities in those boxes.
        matrix: [2, 3], the map that cut the face image.
        rules: colour rule of each branch, in the order of the model's branches.
        min_score: regions below it are left out.
        pixel_score: from this score on, the target's own pixels are found as well.

    Returns:
        Regions by branch, best first. A region whose mask is empty is none.
    """
    height, width = record.image.shape[:2]
    to_photo = geometry.invert(matrix)
    limits = np.array([width, height, width, height], np.float32)
    regions = []
    for row, branch in enumerate(rules):
        boxes = geometry.transform_boxes(to_photo, found["boxes"][row])
        for slot in np.argsort(-found["scores"][row], kind="stable"):
            score = float(found["scores"][row, slot])
            if not found["valid"][row, slot] or score < min_score:
                continue
            mask = masks.paste(found["masks"][row, slot], boxes[slot], height, width)
            if mask.pixels.any():
                box = np.clip(boxes[slot], 0, limits)
                regions.append(Region(branch, box, mask, score=score))
    sure = [region for region in regions if region.score >= pixel_score]
    return [
        dataclasses.replace(
            region,
            pixels=target_pixels(
                record.image,
                region.mask,
                rules[region.branch],
                excluded=[other.mask for other in sure if other is not region],
            ),
        )
        if region.score >= pixel_score
        else region
        for region in regions
    ]


def _seen(region, matrix, side):
    """(region, box in the crop, whether it is a target), or None outside the crop."""
    whole = geometry.transform_boxes(matrix, region.box)
    box = np.clip(whole, 0, side)
    area, visible = np.prod(whole[2:] - whole[:2]), np.prod(box[2:] - box[:2])
    if visible <= 0:
        return None
    return region, box, not region.crowd and bool(visible >= MIN_VISIBLE * area)


def _shaken(box, amount, side, rng):
    """A box whose borders are moved by up to a share of its size."""
    size = np.tile(box[2:] - box[:2], 2)
    return np.clip(box + rng.uniform(-amount, amount, 4) * size, 0, side)


def _coverage(mask: Patch, to_photo, box, matrix):
    """uint8 [28, 28], how much of each cell of a box of the crop the mask covers."""
    cells = masks.coverage(mask, geometry.transform_boxes(to_photo, box), MASK_CELLS)
    if matrix[0, 0] < 0:
        cells = cells[:, ::-1]
    return np.rint(cells * 255).astype(np.uint8)
