"""Affine maps between a photo and a crop of it.

A map is a float64 [2, 3] matrix: p' = m[:, :2] @ p + m[:, 2]. Points are (x, y) in
continuous pixels, the centre of the top-left pixel is (0.5, 0.5), on both sides. The
size of a crop is its side, if it is square, or (height, width), in pixels.
"""

import cv2
import numpy as np


def frame(box, size, margin=0.0):
    """Smallest box of a crop's aspect around a box, about its centre, widened.

    Args:
        box: [4] xyxy, pixels. A line or a point is a box too: the frame is at least one
            pixel wide and high.
        size: of the crop that the frame is to become.
        margin: added on each of the four sides, as a fraction of the frame's side.

    Returns:
        [4] float64 xyxy; it may reach over the border of the photo.

    Raises:
        ValueError: if the box is not finite or its corners are exchanged.
    """
    box = _checked_box(box)
    crop = np.array(_height_width(size)[::-1])
    centre = (box[:2] + box[2:]) / 2
    pixel = max(((box[2:] - box[:2]) / crop).max(), 1 / crop.min())
    half = crop * pixel * (0.5 + margin)
    return np.concatenate([centre - half, centre + half])


def square(box, margin=0.0):
    """Smallest square around a box, widened as by `frame`: [4] float32 xyxy."""
    return frame(box, 1, margin).astype(np.float32)


def crop_matrix(box, size, *, rotation=0.0, flip=False):
    """Map from the photo to a crop.

    Args:
        box: [4] xyxy, the rectangle of the photo that becomes the crop.
        size: of the crop.
        rotation: radians about the box's centre, from the x axis towards the y axis
            (clockwise as seen); what is drawn turns, the crop's frame stands.
        flip: mirror left and right, after the rotation.

    Returns:
        [2, 3] float64.

    Raises:
        ValueError: if the box has no area or another aspect than the crop: what is in
            it would be stretched.
    """
    box = _checked_box(box)
    rows, columns = _height_width(size)
    width, height = box[2:] - box[:2]
    aspects = width * rows, height * columns
    if min(aspects) <= 0 or np.ptp(aspects) > 1e-3 * max(aspects):
        raise ValueError(
            f"crop_matrix needs a box with the aspect of {columns} x {rows} pixels, "
            f"got {box.tolist()}; geometry.frame makes one of any box"
        )
    scale = columns / width
    cos, sin = np.cos(rotation) * scale, np.sin(rotation) * scale
    mirror = -1.0 if flip else 1.0
    linear = np.array([[mirror * cos, -mirror * sin], [sin, cos]])
    centre = (box[:2] + box[2:]) / 2
    middle = np.array([columns, rows]) / 2
    return np.column_stack([linear, middle - linear @ centre])


def invert(m):
    """Inverse of an affine map [2, 3].

    Raises:
        ValueError: if the map flattens the plane.
    """
    m = np.asarray(m, np.float64)
    if np.linalg.det(m[:, :2]) == 0:
        raise ValueError(f"an affine map without an inverse: {m.tolist()}")
    linear = np.linalg.inv(m[:, :2])
    return np.column_stack([linear, -linear @ m[:, 2]])


def transform_points(m, points):
    """Map points [..., 2] by m [2, 3]; float64 [..., 2]."""
    m = np.asarray(m, np.float64)
    return np.asarray(points, np.float64) @ m[:, :2].T + m[:, 2]


def transform_boxes(m, boxes):
    """Bounding boxes of boxes [..., 4] xyxy mapped by m [2, 3]; float32 [..., 4]."""
    boxes = np.asarray(boxes, np.float64)
    corners = boxes[..., [0, 1, 2, 1, 2, 3, 0, 3]].reshape(*boxes.shape[:-1], 4, 2)
    corners = transform_points(m, corners)
    return np.concatenate([corners.min(-2), corners.max(-2)], -1).astype(np.float32)


def warp(image, m, size, *, border=127):
    """Cut a crop out of a photo by one bilinear warp.

    Where the map shrinks by more than 1.5, the photo is first averaged over whole
    blocks of pixels, so that no detail falls between the samples.

    Args:
        image: [H, W, 3] or [H, W] uint8.
        m: [2, 3] map from the photo to the crop, as `crop_matrix` gives it.
        size: of the crop.
        border: colour outside the photo, one value or three; None repeats its edge.

    Returns:
        uint8, of the size of the crop and the channels of the image.
    """
    height, width = _height_width(size)
    inverse = invert(m)
    block = max(1, round(np.sqrt(abs(np.linalg.det(inverse[:, :2])))))
    window, origin = _window(image, inverse, height, width, block)
    mode = cv2.BORDER_REPLICATE if border is None else cv2.BORDER_CONSTANT
    colour = np.broadcast_to(0 if border is None else border, 3).tolist()
    if block > 1:
        rows, columns = window.shape[:2]
        window = cv2.copyMakeBorder(
            window, 0, -rows % block, 0, -columns % block, mode, value=colour
        )
        blocks = window.shape[1] // block, window.shape[0] // block
        window = cv2.resize(window, blocks, interpolation=cv2.INTER_AREA)
    linear = np.asarray(m, np.float64)[:, :2]
    # OpenCV counts from pixel centres: its (0, 0) is our (0.5, 0.5) on both sides.
    shift = linear @ (origin + block / 2) + np.asarray(m)[:, 2] - 0.5
    return cv2.warpAffine(
        window,
        np.column_stack([linear * block, shift]),
        (width, height),
        flags=cv2.INTER_LINEAR,
        borderMode=mode,
        borderValue=colour,
    )


def _window(image, inverse, height, width, block):
    """The part of a photo that a crop needs, and its top-left corner (x, y)."""
    needed = transform_boxes(inverse, [0, 0, width, height])
    size = np.array(image.shape[1::-1])
    # One sample further on each side for the interpolation; never empty, so that a crop
    # outside the photo still has an edge to repeat.
    low = np.clip(np.floor(needed[:2]) - 2 * block, 0, size - 1).astype(int)
    high = np.clip(np.ceil(needed[2:]) + 2 * block, low + 1, size).astype(int)
    return image[low[1] : high[1], low[0] : high[0]], low


def _height_width(size):
    return (size, size) if np.ndim(size) == 0 else size


def _checked_box(box):
    box = np.asarray(box, np.float64)
    if box.shape != (4,) or not np.isfinite(box).all() or (box[2:] < box[:2]).any():
        raise ValueError(f"not a box x0, y0, x1, y1: {box.tolist()}")
    return box
