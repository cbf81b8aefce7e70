"""Exact positions: a target's own pixels, by colour or grey value, in the photo.

Everything runs at the photo's resolution and on the window that it needs.
"""

import dataclasses

import cv2
import numpy as np

from facekp_jax.masks import EMPTY, from_full, patch_box, to_full
from facekp_jax.records import Patch, Region

CHANNELS = ("grey", "L", "a", "b", "redness")
MARGIN = 3  # pixels by which a region's mask reaches beyond its target pixels
_RING = 5  # pixels; width of the ring of skin around a mask
_OUTLIER = 4.5  # median absolute deviations; about 3 standard deviations
_EXTREME = 0.1  # share of a mask's pixels beyond its extreme value
_SMALLEST = 8  # pixels of a component that is no noise
_LARGEST = 0.04  # share of the face's box; larger components are hair or shadow


@dataclasses.dataclass(frozen=True)
class ColourRule:
    """How the target of a branch stands out from the skin.

    Channels: `grey` [0, 255]; CIE `L` [0, 100], `a` (green to red) and `b` (blue to
    yellow) in Lab units; `redness`, the erythema index
    100 log10((R + 1) / (G + 1)), which the strength of the light hardly changes (Diffey
    et al., British Journal of Dermatology, 1984).

    Thresholds: a number in the channel's units; "otsu", between the mask's two classes;
    "contrast", half-way from the surrounding skin to the mask's extreme value (its 90th
    percentile). The skin under a region is a plane fitted to the ring around it.
    """

    channel: str
    polarity: str  # "brighter" or "darker": the side of the threshold the target is on
    threshold: float | str = "contrast"
    minimum: float = 0.0  # channel units; "contrast" takes no smaller one for a target

    def __post_init__(self):
        if self.channel not in CHANNELS:
            raise ValueError(f"channel {self.channel!r} is none of {CHANNELS}")
        if self.polarity not in ("brighter", "darker"):
            raise ValueError(
                f"polarity {self.polarity!r} is neither 'brighter' nor 'darker'"
            )
        known = ("otsu", "contrast")
        if isinstance(self.threshold, str) and self.threshold not in known:
            raise ValueError(
                f"threshold {self.threshold!r} is no number, 'otsu' or 'contrast'"
            )


def channel(image, name):
    """One channel, float32 [H, W], of an RGB image [H, W, 3] uint8; see ColourRule."""
    if name == "grey":
        return cv2.cvtColor(image.astype(np.float32), cv2.COLOR_RGB2GRAY)
    if name == "redness":
        logs = cv2.LUT(np.ascontiguousarray(image), _LOGARITHMS)
        return logs[..., 0] - logs[..., 1]
    unit = image.astype(np.float32) / 255
    return cv2.cvtColor(unit, cv2.COLOR_RGB2LAB)[..., "Lab".index(name)]


_LOGARITHMS = (100 * np.log10(np.arange(256) + 1)).astype(np.float32)


def target_pixels(image, mask, rule, excluded=()):
    """Pixels of a mask that are the target's own.

    Args:
        image: uint8 [H, W, 3] RGB photo.
        mask: Patch of the photo.
        rule: ColourRule.
        excluded: Patches that are not skin: the other regions' masks. Where they leave
            no ring, a "contrast" rule takes the skin from the mask itself.

    Returns:
        Tight Patch. Empty if the mask is empty, or if it is of one colour and the
        threshold is relative ("otsu" or "contrast").
    """
    around = dilate(mask, _RING, *image.shape[:2])
    inside = _within(mask, around)
    if not inside.any():
        return EMPTY
    sign = 1 if rule.polarity == "brighter" else -1
    values = sign * channel(image[_slices(around)], rule.channel)
    if rule.threshold == "contrast":
        ring = around.pixels & ~inside
        for other in excluded:
            ring &= ~_within(other, around)
        values = values - _skin(values, ring if ring.any() else inside)
        extreme = np.quantile(values[inside], 1 - _EXTREME)
        chosen = values > max(extreme / 2, rule.minimum)
    elif rule.threshold == "otsu":
        chosen = values > _otsu(values[inside])
    else:
        chosen = values >= sign * rule.threshold
    chosen &= inside
    return _shifted(from_full(chosen), around.x, around.y)


def pseudo_mask(image, box, rule):
    """A mask for a region of which only the box is known, by its branch's own rule.

    Args:
        image: uint8 [H, W, 3] RGB photo.
        box: [4] xyxy in the photo.
        rule: ColourRule.

    Returns:
        Patch: the target's pixels in the box, grown by MARGIN inside it. All of the box
        where the rule finds nothing.
    """
    height, width = image.shape[:2]
    limit = np.array([width, height])
    low = np.clip(np.rint(box[:2]), 0, limit - 1).astype(int)
    # A box thinner than a pixel still has one.
    high = np.clip(np.rint(box[2:]), low + 1, limit).astype(int)
    (x0, y0), (x1, y1) = low.tolist(), high.tolist()
    whole = Patch(x0, y0, np.ones((y1 - y0, x1 - x0), bool))
    grown = dilate(target_pixels(image, whole, rule), MARGIN, height, width)
    inside = _within(grown, whole)
    return Patch(x0, y0, inside) if inside.any() else whole


def sub_image(image, mask):
    """Sub-image of a region: RGBA uint8 [h, w, 4], black and transparent outside it.

    Args:
        image: uint8 [H, W, 3] RGB photo.
        mask: Patch of the photo.
    """
    tight = _shifted(from_full(mask.pixels), mask.x, mask.y)
    inside = tight.pixels[..., None]
    return np.concatenate([image[_slices(tight)] * inside, inside * np.uint8(255)], -1)


def dilate(patch, radius, height, width):
    """A patch grown by a disc of `radius` pixels, inside a photo of height x width."""
    if not patch.pixels.size:
        return EMPTY
    reach = int(radius)
    grown = cv2.copyMakeBorder(
        patch.pixels.view(np.uint8), reach, reach, reach, reach, cv2.BORDER_CONSTANT
    )
    grown = cv2.dilate(grown, _disc(radius))
    x0, y0 = patch.x - reach, patch.y - reach
    left, top = max(x0, 0), max(y0, 0)
    grown = grown[top - y0 : max(height - y0, 0), left - x0 : max(width - x0, 0)]
    return Patch(left, top, np.ascontiguousarray(grown).view(bool))


def naive_regions(image, face, rule, branch):
    """Baseline without learning: a colour rule on the face, connected components.

    The skin's value at a pixel is the median of the face's coarse surroundings there. A
    component becomes a region as annotations are made: its mask reaches MARGIN pixels
    beyond its pixels. Components of fewer than 8 pixels or of more than 4 % of the face
    are dropped.

    Args:
        image: uint8 [H, W, 3] RGB photo.
        face: [4] xyxy box.
        rule: ColourRule; a "contrast" rule's `minimum` is the threshold here.
        branch: name given to the regions.

    Returns:
        Regions, highest score first; the score rises with the mean contrast.
    """
    height, width = image.shape[:2]
    x0, y0, x1, y1 = np.clip(np.rint(face), 0, [width, height] * 2).astype(int)
    if x1 <= x0 or y1 <= y0:
        return []
    sign = 1 if rule.polarity == "brighter" else -1
    values = sign * channel(image[y0:y1, x0:x1], rule.channel)
    coarse = cv2.resize(values, (24, 24), interpolation=cv2.INTER_AREA)
    skin = cv2.resize(cv2.medianBlur(coarse, 5), (x1 - x0, y1 - y0))
    contrast = values - skin
    if rule.threshold == "contrast":
        chosen = contrast > rule.minimum
    elif rule.threshold == "otsu":
        chosen = contrast > _otsu(contrast.ravel())
    else:
        chosen = values >= sign * rule.threshold
    count, labels, stats, _ = cv2.connectedComponentsWithStats(chosen.view(np.uint8))
    regions = []
    for label in range(1, count):
        x, y, w, h, area = stats[label]
        if not _SMALLEST <= area <= _LARGEST * chosen.size:
            continue
        window = slice(y, y + h), slice(x, x + w)
        own = np.ascontiguousarray(labels[window] == label)
        pixels = Patch(int(x0 + x), int(y0 + y), own)
        mask = dilate(pixels, MARGIN, height, width)
        excess = max(float(contrast[window][own].mean()), 0.0)
        score = excess / (1 + excess)
        regions.append(Region(branch, patch_box(mask), mask, pixels, score=score))
    return sorted(regions, key=lambda region: -region.score)


def _skin(values, ring):
    """Skin's value under a region: a plane through its ring, outliers left out.

    Args:
        values: [h, w] channel.
        ring: [h, w] bool pixels of skin around the region.

    Returns:
        [h, w].
    """
    rows, columns = np.nonzero(ring)
    middle = np.median(values[ring])
    excess = values[ring] - middle
    spread = np.median(np.abs(excess))
    skin = np.abs(excess) <= _OUTLIER * spread
    y0, x0 = rows[skin].mean(), columns[skin].mean()
    design = np.stack([rows[skin] - y0, columns[skin] - x0, np.ones(skin.sum())])
    # The ridge keeps the plane level where the ring is a point or a line.
    normal = design @ design.T + design.shape[1] * np.diag([1.0, 1.0, 0.0])
    down, right, offset = np.linalg.solve(normal, design @ excess[skin])
    y, x = np.ogrid[: values.shape[0], : values.shape[1]]
    return middle + down * (y - y0) + right * (x - x0) + offset


def _otsu(values):
    """Level that best parts values [n] in two classes (Otsu, 1979)."""
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return high
    scale = 255 / (high - low)
    grey = ((values - low) * scale).astype(np.uint8)
    level, _ = cv2.threshold(grey, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
    return low + (level + 1) / scale


def _disc(radius):
    reach = np.arange(-int(radius), int(radius) + 1)
    return (reach**2 + reach[:, None] ** 2 <= radius**2).astype(np.uint8)


def _slices(patch):
    h, w = patch.pixels.shape
    return slice(patch.y, patch.y + h), slice(patch.x, patch.x + w)


def _shifted(patch, x, y):
    return patch._replace(x=patch.x + x, y=patch.y + y)


def _within(patch, frame):
    moved = patch._replace(x=patch.x - frame.x, y=patch.y - frame.y)
    return to_full(moved, *frame.pixels.shape)
