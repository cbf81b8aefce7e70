"""Pictures of results: regions or keypoints over a photo, sheets of many pictures."""

import collections
import colorsys

import cv2
import numpy as np

from facekp_jax import geometry, masks

FONT = cv2.FONT_HERSHEY_SIMPLEX
FONT_HEIGHT = 22  # pixels of a capital letter at scale 1
BLACK, WHITE = (0, 0, 0), (255, 255, 255)
LEFT, RIGHT, MIDDLE = (255, 128, 0), (0, 160, 255), (70, 210, 70)  # of a body
_SHIFT = 4  # binary digits of the fraction in OpenCV's coordinates
_FARTHEST = 2.0**15  # pixels; OpenCV's coordinates are 32-bit integers


def colours(names):
    """RGB of each name, by its place in names: dict of name -> three ints.

    Hues are spread by the golden ratio: neighbours differ however many there are.
    """
    return {name: _colour(i) for i, name in enumerate(names)}


def overlay(image, regions, *, branches=(), unknown=(), faces=()):
    """Draws regions over a photo, with a legend under it.

    Masks are tinted, the target's own pixels filled, boxes outlined; faces are outlined
    in white. The photo stays in the top-left corner at its own size; the legend gives
    each branch's colour and number of regions and widens a very small picture.

    Args:
        image: [H, W, 3] uint8; it is not changed.
        regions: Regions in the photo's coordinates, none is fine.
        branches: names in the order of their colours, also those without a region;
            names that only the regions know follow in alphabetical order.
        unknown: names of branches that the photo was not labelled for.
        faces: [N, 4] boxes.

    Returns:
        [H', W', 3] uint8, H' >= H and W' >= W.
    """
    others = {region.branch for region in regions} - set(branches)
    palette = colours([*branches, *sorted(others)])
    drawn = np.array(image)
    for region in regions:
        if region.mask is not None:
            _blend(drawn, region.mask, palette[region.branch], 0.4)
    for region in regions:
        if region.pixels is not None:
            _blend(drawn, region.pixels, palette[region.branch], 1.0)
    line, letter = _sizes(image)
    for face in faces:
        _outline(drawn, face, WHITE, line)
    for region in regions:
        _outline(drawn, region.box, palette[region.branch], line)
    numbers = collections.Counter(region.branch for region in regions)
    rows = [
        (colour, f"{name} {'not labelled' if name in unknown else numbers[name]}")
        for name, colour in palette.items()
    ]
    return _stack(drawn, _legend(rows, letter))


def keypoint_overlay(image, instances, *, skeletons, ignore=None, confidence=0.0):
    """Draws people and animals over a photo, with a legend under it.

    Joints are dots in the colour of their side of the body, filled where visible and
    hollow where occluded. Bones and box have the colour of the instance, or of its
    track, whose number is at the box; the bones of a single instance without a track
    have that of their side. Ignored areas are hatched. The legend gives the number of
    instances of each type that is there.

    Args:
        image: [H, W, 3] uint8; it is not changed.
        instances: Instances in the photo's coordinates, none is fine.
        skeletons: Skeletons of the types; others than the instances' are fine.
        ignore: Patch of the photo.
        confidence: a prediction's joints of a lower score are left out.

    Returns:
        [H', W', 3] uint8, H' >= H and W' >= W, the photo in its top-left corner.
    """
    types = {skeleton.name: skeleton for skeleton in skeletons}
    line, letter = _sizes(image)
    drawn = np.array(image)
    if ignore is not None:
        _hatch(drawn, ignore, 4 * line)
    alone = len(instances) == 1 and instances[0].track is None
    for i, instance in enumerate(instances):
        colour = _colour(i if instance.track is None else instance.track)
        _outline(drawn, instance.box, colour, line)
        body = types[instance.skeleton]
        _draw_body(drawn, instance, body, confidence, line, None if alone else colour)
        if instance.track is not None:
            _write_number(drawn, instance, colour, letter)
    numbers = collections.Counter(instance.skeleton for instance in instances)
    rows = [(None, f"{name} {number}") for name, number in numbers.items()]
    if any(LEFT in _sides(types[name]) for name in numbers):
        rows += [(LEFT, "left"), (RIGHT, "right")]
    return _stack(drawn, _legend(rows or [(None, "no instance")], letter))


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


def _colour(number):
    golden = (5**0.5 - 1) / 2
    parts = colorsys.hsv_to_rgb((0.5 + number * golden) % 1, 0.9, 1.0)
    return tuple(round(255 * part) for part in parts)


def _sizes(image):
    """Pixels of a line's width and of a letter's height."""
    longest = max(image.shape[:2])
    return max(1, round(longest / 500)), max(10, round(longest / 50))


def _blend(image, patch, colour, weight):
    x, y, pixels = masks.clip(patch, *image.shape[:2])
    window = image[y : y + pixels.shape[0], x : x + pixels.shape[1]]
    window[pixels] = window[pixels] * (1 - weight) + np.array(colour) * weight


def _hatch(image, patch, width):
    """Light and dark stripes, to be seen on any picture."""
    rows, columns = np.indices(patch.pixels.shape, sparse=True)
    light = (patch.x + columns + patch.y + rows) // width % 2 == 0
    _blend(image, patch._replace(pixels=patch.pixels & light), WHITE, 0.5)
    _blend(image, patch._replace(pixels=patch.pixels & ~light), BLACK, 0.5)


def _outline(image, box, colour, line):
    if not np.isfinite(box).all():
        return
    # Drawn on the box's outermost pixels, or on the photo's where the box goes further.
    last = np.array(image.shape[1::-1]) - 1
    low = np.clip(np.floor(box[:2]), 0, last).astype(int).tolist()
    high = np.clip(np.ceil(box[2:]) - 1, 0, last).astype(int).tolist()
    cv2.rectangle(image, low, high, colour, line)


def _draw_body(image, instance, skeleton, confidence, line, colour):
    """Bones, in `colour` or that of their side, and joints over them."""
    keypoints, scores = instance.keypoints, instance.keypoint_scores
    side = np.nan_to_num(instance.box[2:] - instance.box[:2]).max()
    # A small body is not to be covered by its joints.
    radius = min(3 * line, max(1.5, side / 35))
    line = max(1, min(line, round(side / 100)))
    shown = (keypoints[:, 2] > 0) & np.isfinite(keypoints).all(1)
    if scores is not None:
        shown &= scores >= confidence
    # OpenCV counts from pixel centres: its (0, 0) is our (0.5, 0.5).
    places = np.where(shown[:, None], keypoints[:, :2] - 0.5, 0)
    places = np.clip(places, -_FARTHEST, _FARTHEST) * 2**_SHIFT
    places = places.round().astype(int).tolist()
    sides = _sides(skeleton)
    for a, b in skeleton.edges:
        if shown[a] and shown[b]:
            one = {sides[a], sides[b]} - {MIDDLE}
            side = one.pop() if len(one) == 1 else MIDDLE
            ends, bone = (places[a], places[b]), colour or side
            cv2.line(image, *ends, bone, line + 1, cv2.LINE_AA, _SHIFT)
    for k in np.flatnonzero(shown):
        fill = cv2.FILLED if keypoints[k, 2] == 2 else line
        size = round(radius * 2**_SHIFT)
        cv2.circle(image, places[k], size, sides[k], fill, cv2.LINE_AA, _SHIFT)


def _sides(skeleton):
    """Colour of each keypoint, by the l and the r that a pair's names differ in."""
    names = [name.lower() for name in skeleton.keypoints]
    side = {("l", "r"): LEFT, ("r", "l"): RIGHT}
    sides = []
    for name, k in zip(names, skeleton.mirror or range(len(names)), strict=True):
        letters = zip(name, names[k], strict=False)
        sides.append(next((side[two] for two in letters if two in side), MIDDLE))
    return sides


def _write_number(image, instance, colour, size):
    """The track's number above the box, or in it where that is the photo's border."""
    x, y = np.nan_to_num(instance.box[:2]).clip(0, _FARTHEST).astype(int).tolist()
    gap, text = size // 4, str(instance.track)
    place = x, y - gap if y > size + gap else y + size + gap
    for shade, line in ((BLACK, size // 3), (colour, max(1, size // 10))):
        cv2.putText(
            image, text, place, FONT, size / FONT_HEIGHT, shade, line, cv2.LINE_AA
        )


def _legend(rows, size):
    """Rows of a colour (None: no field) and a text; [rows, as wide as needed, 3]."""
    scale, line = size / FONT_HEIGHT, max(1, size // 10)
    widths = [cv2.getTextSize(text, FONT, scale, line)[0][0] for _, text in rows]
    row = 2 * size
    legend = np.zeros((row * len(rows), 3 * size + max(widths, default=0), 3), np.uint8)
    for i, (colour, text) in enumerate(rows):
        middle = i * row + size
        corner = size // 2, middle - size // 2
        opposite = corner[0] + size, corner[1] + size
        if colour is not None:
            cv2.rectangle(legend, corner, opposite, colour, cv2.FILLED)
        place = (corner[0] if colour is None else 2 * size), middle + size // 2
        cv2.putText(legend, text, place, FONT, scale, WHITE, line, cv2.LINE_AA)
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
