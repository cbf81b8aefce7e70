"""Pictures of results: regions drawn over a photo, and sheets of many pictures."""

import collections
import colorsys

import cv2
import numpy as np

from facekp_jax import geometry, masks

FONT = cv2.FONT_HERSHEY_SIMPLEX
FONT_HEIGHT = 22  # pixels of a capital letter at scale 1
WHITE = (255, 255, 255)


def colours(names):
    """RGB of each name, by its place in names: dict of name -> three ints.

    Hues are spread by the golden ratio: neighbours differ however many there are.
    """
    golden = (5**0.5 - 1) / 2
    hues = [(0.5 + i * golden) % 1 for i in range(len(names))]
    return {
        name: tuple(round(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.9, 1.0))
        for name, hue in zip(names, hues, strict=True)
    }


def overlay(image, regions, *, branches=(), faces=()):
    """Draws regions over a photo, with a legend under it.

    Masks are tinted, the target's own pixels filled, boxes outlined; faces are outlined
    in white. The photo stays in the top-left corner at its own size; the legend gives
    each branch's colour and number of regions and widens a very small picture.

    Args:
        image: [H, W, 3] uint8; it is not changed.
        regions: Regions in the photo's coordinates, none is fine.
        branches: names in the order of their colours, also those without a region;
            names that only the regions know follow in alphabetical order.
        faces: [N, 4] boxes.

    Returns:
        [H', W', 3] uint8, H' >= H and W' >= W.
    """
    height, width = image.shape[:2]
    others = {region.branch for region in regions} - set(branches)
    palette = colours([*branches, *sorted(others)])
    drawn = np.array(image)
    for region in regions:
        if region.mask is not None:
            _blend(drawn, region.mask, palette[region.branch], 0.4)
    for region in regions:
        if region.pixels is not None:
            _blend(drawn, region.pixels, palette[region.branch], 1.0)
    line = max(1, round(max(height, width) / 500))
    for face in faces:
        _outline(drawn, face, WHITE, line)
    for region in regions:
        _outline(drawn, region.box, palette[region.branch], line)
    numbers = collections.Counter(region.branch for region in regions)
    legend = _legend(palette, numbers, max(10, round(max(height, width) / 50)))
    return _stack(drawn, legend)


def contact_sheet(images, *, columns=6, side=256):
    """Sheet of pictures in rows, each fitted into a square without stretching.

    Args:
        images: sequence of [H, W, 3] uint8 of any sizes; without any the sheet is one
            empty square.
        columns: pictures in a row.
        side: pixels of a square.

    Returns:
        [rows * side, min(columns, number of pictures) * side, 3] uint8.
    """
    across = max(1, min(columns, len(images)))
    down = max(1, -(-len(images) // across))
    sheet = np.full((down, side, across, side, 3), 255, np.uint8)
    for i, image in enumerate(images):
        frame = geometry.square([0, 0, image.shape[1], image.shape[0]], margin=0.02)
        m = geometry.crop_matrix(frame, side)
        sheet[i // across, :, i % across] = geometry.warp(image, m, side, border=255)
    return sheet.reshape(down * side, across * side, 3)


def _blend(image, patch, colour, weight):
    x, y, pixels = masks.clip(patch, *image.shape[:2])
    window = image[y : y + pixels.shape[0], x : x + pixels.shape[1]]
    window[pixels] = window[pixels] * (1 - weight) + np.array(colour) * weight


def _outline(image, box, colour, line):
    # Drawn on the box's outermost pixels, or on the photo's where the box goes further.
    last = np.array(image.shape[1::-1]) - 1
    low = np.clip(np.floor(box[:2]), 0, last).astype(int).tolist()
    high = np.clip(np.ceil(box[2:]) - 1, 0, last).astype(int).tolist()
    cv2.rectangle(image, low, high, colour, line)


def _legend(palette, numbers, size):
    """One row per branch: colour, name, number; [rows, as wide as needed, 3]."""
    scale, line = size / FONT_HEIGHT, max(1, size // 10)
    texts = {name: f"{name} {numbers[name]}" for name in palette}
    widths = [cv2.getTextSize(t, FONT, scale, line)[0][0] for t in texts.values()]
    row = 2 * size
    legend = np.zeros(
        (row * len(texts), 3 * size + max(widths, default=0), 3), np.uint8
    )
    for i, (name, text) in enumerate(texts.items()):
        middle = i * row + size
        corner = size // 2, middle - size // 2
        opposite = corner[0] + size, corner[1] + size
        cv2.rectangle(legend, corner, opposite, palette[name], cv2.FILLED)
        cv2.putText(
            legend,
            text,
            (2 * size, middle + size // 2),
            FONT,
            scale,
            WHITE,
            line,
            cv2.LINE_AA,
        )
    return legend


def _stack(picture, legend):
    if not legend.size:
        return picture
    width = max(picture.shape[1], legend.shape[1])
    padded = [
        np.pad(part, ((0, 0), (0, width - part.shape[1]), (0, 0)))
        for part in (picture, legend)
    ]
    return np.concatenate(padded)
