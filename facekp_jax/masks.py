"""Sets of a photo's pixels (`Patch`): pasting, measuring, and COCO's encodings."""

import warnings

import cv2
import numpy as np
from faster_coco_eval.core import mask as coco

from facekp_jax.records import Patch

EMPTY = Patch(0, 0, np.zeros((0, 0), bool))


def paste(probabilities, box, height, width, threshold=0.5):
    """Mask of a region at the photo's resolution.

    The m x m probabilities sit at the centres of the box's m x m cells; between them
    they are interpolated bilinearly, beyond the outermost centres the edge is repeated.
    A pixel belongs to the box if its centre does (left and top border included, right
    and bottom not).

    Args:
        probabilities: [m, m] mask of the box it was pooled from.
        box: [4] xyxy in the photo; it may reach over the photo's border.
        height: pixels of the photo.
        width: pixels of the photo.
        threshold: a pixel of at least this probability is in the mask.

    Returns:
        Tight Patch; empty if the box has no area or lies outside the photo.

    Raises:
        ValueError: if the box is not finite.
    """
    x0, y0, x1, y1 = np.asarray(box, np.float64)
    if not np.isfinite([x0, y0, x1, y1]).all():
        raise ValueError(f"cannot paste a mask in the box {[x0, y0, x1, y1]}")
    probabilities = np.asarray(probabilities, np.float32)
    top, rows = _cells(y0, y1, height, probabilities.shape[0])
    left, columns = _cells(x0, x1, width, probabilities.shape[1])
    if not len(rows) or not len(columns):
        return EMPTY
    # OpenCV's product keeps to this thread: NumPy's wakes others for these few numbers
    # and waits long for them where workers share the cores.
    pasted = cv2.gemm(rows, probabilities, 1, None, 0)
    pasted = cv2.gemm(pasted, columns, 1, None, 0, flags=cv2.GEMM_2_T)
    return _tight(pasted >= threshold, left, top)


def _cells(start, stop, limit, cells):
    """First pixel between start and stop, and each pixel's weights [n, cells]."""
    first, end = np.clip(np.ceil(np.array([start, stop]) - 0.5), 0, limit).astype(int)
    if end <= first:
        return int(first), np.zeros((0, cells), np.float32)
    centres = np.arange(first, end) + 0.5
    position = (centres - start) / (stop - start) * cells - 0.5
    distance = np.abs(position.clip(0, cells - 1)[:, None] - np.arange(cells))
    return int(first), np.maximum(1 - distance, 0).astype(np.float32)


def coverage(patch, box, cells):
    """How much of each cell of a box a patch covers: the inverse of `paste`.

    Args:
        patch: Patch of the photo.
        box: [4] xyxy in the photo, with an area.
        cells: m, cells along each side of the box.

    Returns:
        [m, m] float32 in 0..1.
    """
    x0, y0, x1, y1 = np.asarray(box, np.float64)
    height, width = patch.pixels.shape
    rows = _shares(y0 - patch.y, y1 - patch.y, cells, height)
    columns = _shares(x0 - patch.x, x1 - patch.x, cells, width)
    return rows @ patch.pixels.astype(np.float32) @ columns.T


def _shares(start, stop, cells, pixels):
    """[cells, pixels]: share of each cell between start and stop that a pixel fills."""
    edges = np.linspace(start, stop, cells + 1)[:, None]
    low, high = np.arange(pixels), np.arange(1, pixels + 1)
    filled = np.minimum(edges[1:], high) - np.maximum(edges[:-1], low)
    return (filled.clip(0) / np.diff(edges, axis=0)).astype(np.float32)


def patch_box(patch):
    """Tight box of a patch's true pixels: [4] float32 xyxy, zeros if there are none."""
    x, y, pixels = _tight(patch.pixels, patch.x, patch.y)
    height, width = pixels.shape
    return np.array([x, y, x + width, y + height], np.float32)


def from_full(mask):
    """Tight Patch of the true pixels of a photo-sized mask [H, W]."""
    return _tight(np.asarray(mask, bool), 0, 0)


def clip(patch, height, width):
    """The part of a patch that lies in a photo of height x width."""
    left, top = max(patch.x, 0), max(patch.y, 0)
    rows = slice(top - patch.y, max(height - patch.y, 0))
    columns = slice(left - patch.x, max(width - patch.x, 0))
    return Patch(left, top, patch.pixels[rows, columns])


def to_full(patch, height, width):
    """Photo-sized mask [H, W] bool of a patch, cut off at the photo's border."""
    full = np.zeros((height, width), bool)
    x, y, pixels = clip(patch, height, width)
    full[y : y + pixels.shape[0], x : x + pixels.shape[1]] = pixels
    return full


def to_rle(patch, height, width):
    """COCO's compressed run-length encoding of a patch in a photo of height x width.

    Returns:
        {"size": [height, width], "counts": str}, fit for JSON.
    """
    x, y, pixels = clip(patch, height, width)
    # COCO runs down the columns: a change in a column is the start or the end of a run.
    columns = np.pad(pixels.T, ((0, 0), (1, 1))).view(np.int8)
    column, row = np.nonzero(np.diff(columns))
    changes = (x + column) * height + y + row
    # A run that goes on in the next column ends where that one starts: no change.
    changes, times = np.unique(changes, return_counts=True)
    changes = np.concatenate([[0], changes[times == 1], [height * width]])
    counts = np.diff(changes).tolist()
    if counts[-1] == 0:
        counts.pop()
    rle = {"size": [height, width], "counts": counts}
    rle = coco.frPyObjects(rle, height, width)
    return {"size": [height, width], "counts": _text(rle["counts"])}


def from_rle(rle):
    """Tight Patch of a COCO run-length encoding.

    Its counts may be compressed (str, bytes) or a list of numbers.
    """
    if isinstance(rle["counts"], (list, tuple, np.ndarray)):
        counts = [int(count) for count in rle["counts"]]
        rle = coco.frPyObjects({**rle, "counts": counts}, *map(int, rle["size"]))
    mask = coco.decode({**rle, "counts": _text(rle["counts"])})
    # Decoded column by column: turned, it need not be copied to be measured.
    turned = from_full(mask.T)
    return Patch(turned.y, turned.x, np.ascontiguousarray(turned.pixels.T))


def from_polygons(polygons, height, width):
    """Tight Patch of the union of polygons, drawn as COCO draws them.

    Args:
        polygons: per polygon one sequence x0, y0, x1, y1, ... or an array [n, 2], in
            pixels. One of fewer than three points is skipped with a warning.
        height: pixels of the photo.
        width: pixels of the photo.
    """
    flat = [np.asarray(polygon, np.float64).ravel() for polygon in polygons]
    usable = [p.tolist() for p in flat if p.size >= 6 and p.size % 2 == 0]
    if len(usable) < len(flat):
        skipped = len(flat) - len(usable)
        warnings.warn(f"{skipped} polygons without three points skipped", stacklevel=2)
    if not usable:
        return EMPTY
    return from_rle(coco.merge(coco.frPyObjects(usable, height, width)))


def overlap(a, b):
    """Number of pixels that two patches share."""
    left, top = max(a.x, b.x), max(a.y, b.y)
    right = min(a.x + a.pixels.shape[1], b.x + b.pixels.shape[1])
    bottom = min(a.y + a.pixels.shape[0], b.y + b.pixels.shape[0])
    if right <= left or bottom <= top:
        return 0
    shared = [
        p.pixels[top - p.y : bottom - p.y, left - p.x : right - p.x] for p in (a, b)
    ]
    return int(np.count_nonzero(shared[0] & shared[1]))


def iou(a, b):
    """Intersection over union of two patches; 0 if both are empty."""
    shared = overlap(a, b)
    union = np.count_nonzero(a.pixels) + np.count_nonzero(b.pixels) - shared
    return shared / union if union else 0.0


def _tight(pixels, x, y):
    left, top, width, height = cv2.boundingRect(
        np.ascontiguousarray(pixels).view(np.uint8)
    )
    if not width:
        return EMPTY
    pixels = pixels[top : top + height, left : left + width]
    return Patch(int(x) + left, int(y) + top, np.ascontiguousarray(pixels))


def _text(counts):
    return counts.decode("ascii") if isinstance(counts, bytes) else counts
