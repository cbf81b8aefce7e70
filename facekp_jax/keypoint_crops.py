"""The crop of one person or animal, or of a whole photo: from a record to a sample.

One affine map cuts the picture, and the same map takes keypoints, boxes and ignored
areas into the crop. Prediction and training cut through the same functions; what was
found comes back by `geometry.transform_points(geometry.invert(matrix), points)`.

The arrays of a sample have fixed shapes: K is the most keypoints that one of the
experiment's skeletons has, those of smaller skeletons are padded with unlabelled ones.
"""

import dataclasses
from collections.abc import Sequence

import cv2
import numpy as np

from facekp_jax import geometry
from facekp_jax.records import Instance, KeypointImage, Patch
from facekp_jax.skeletons import Skeleton

STRIDE = 4  # pixels of the crop for one cell of `ignore`
HALF_BODY_LEAST = 3  # labelled keypoints in a part that is worth a crop of its own
HALF_BODY_MARGIN = 0.2  # around a part's keypoints, of the longer side
LUMA = np.array([0.299, 0.587, 0.114])  # of R, G and B (ITU-R BT.601)


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """How training varies a sample; 0 turns a way off."""

    scale: float = 0.3  # what is shown is up to 1 + scale times larger or smaller
    rotation: float = 40.0  # degrees, either way
    shift: float = 0.08  # of the sides, either way
    flip: float = 0.5  # chance of a mirrored picture
    half_body: float = 0.2  # chance of a crop of one half of the skeleton alone
    occlusion: float = 0.4  # chance that an instance is partly covered
    brightness: float = 30.0  # levels of 255, either way
    contrast: float = 0.3  # a share, either way
    saturation: float = 0.4  # a share, either way
    tint: float = 0.1  # of each channel's gain, either way
    grey: float = 0.05  # chance of a picture without colours
    blur: float = 0.1  # chance
    noise: float = 0.1  # chance

    def __post_init__(self):
        most = {"scale": 10, "rotation": 180, "brightness": 255}
        for field, value in dataclasses.asdict(self).items():
            limit = most.get(field, 1)
            if not 0 <= value <= limit:
                raise ValueError(f"{field} is {value}; give it 0 to {limit}")


def crop_matrix(
    box: np.ndarray,
    size: tuple[int, int],
    margin: float = 0.0,
    augmentation: Augmentation | None = None,
    rng: np.random.Generator | None = None,
) -> np.ndarray:
    """Map [2, 3] from the photo to the crop of a box.

    Args:
        box: [4] xyxy, of an instance or of the whole photo.
        size: (height, width) of the crop, to whose aspect the box is extended.
        margin: on each side, as a share of the extended box.
        augmentation: how far scale, rotation and place vary, and how often the picture
            is mirrored.
        rng: of what varies; None, as for prediction, varies nothing.
    """
    frame = geometry.frame(box, size, margin)
    if rng is None:
        return geometry.crop_matrix(frame, size)
    sides = frame[2:] - frame[:2]
    centre = (frame[:2] + frame[2:]) / 2
    centre += sides * augmentation.shift * rng.uniform(-1, 1, 2)
    half = sides / 2 * (1 + augmentation.scale) ** rng.uniform(-1, 1)
    return geometry.crop_matrix(
        np.concatenate([centre - half, centre + half]),
        size,
        rotation=np.radians(augmentation.rotation * rng.uniform(-1, 1)),
        flip=rng.random() < augmentation.flip,
    )


def instance_matrix(
    instance: Instance,
    skeleton: Skeleton,
    size: tuple[int, int],
    margin: float,
    augmentation: Augmentation | None = None,
    rng: np.random.Generator | None = None,
) -> np.ndarray:
    """`crop_matrix` of an instance's box, by chance of one half of its body.

    Raises:
        ValueError: if pictures are to be mirrored and the skeleton cannot be.
    """
    box = instance.box
    if rng is not None:
        check_mirrors(augmentation, [skeleton])
        if rng.random() < augmentation.half_body:
            part = half_body(instance.keypoints, skeleton, rng)
            box = box if part is None else part
    return crop_matrix(box, size, margin, augmentation, rng)


def half_body(
    keypoints: np.ndarray, skeleton: Skeleton, rng: np.random.Generator
) -> np.ndarray | None:
    """Box [4] of a connected half of the labelled keypoints, or None if they are few.

    The half are those nearest along the skeleton's edges to one drawn at random: of a
    person one arm and the head, or both legs, and it needs no names.
    """
    labelled = keypoints[:, 2] > 0
    half = (np.count_nonzero(labelled) + 1) // 2
    if half < HALF_BODY_LEAST:
        return None
    order = [rng.choice(np.flatnonzero(labelled))]
    for keypoint in order:  # grows behind: nearest first
        for edge in skeleton.edges:
            if keypoint in edge:
                order += [other for other in edge if other not in order]
    part = [keypoint for keypoint in order if labelled[keypoint]][:half]
    if len(part) < HALF_BODY_LEAST:
        return None
    points = keypoints[part, :2].astype(np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    margin = HALF_BODY_MARGIN * (high - low).max()
    return np.concatenate([low - margin, high + margin])


def check_mirrors(augmentation: Augmentation, skeletons: Sequence[Skeleton]) -> None:
    """Raises ValueError if pictures are to be mirrored and a skeleton cannot be."""
    if augmentation.flip:
        for skeleton in skeletons:
            _mirror(skeleton)


def instance_sample(
    photo: KeypointImage,
    number: int,
    matrix: np.ndarray,
    size: tuple[int, int],
    skeletons: Sequence[Skeleton],
    augmentation: Augmentation | None = None,
    rng: np.random.Generator | None = None,
) -> dict[str, np.ndarray]:
    """The crop of one instance and what is known of it, in pixels of the crop.

    Args:
        photo: the record.
        number: of the instance in it.
        matrix: [2, 3], the map that cuts the crop.
        size: (height, width), multiples of 4.
        skeletons: of the experiment.
        augmentation: how colours vary, and what is covered.
        rng: of what varies; None, as for prediction, varies nothing.

    Returns:
        `image` uint8 [height, width, 3]; `keypoints` float32 [K, 3], unlabelled where
        the crop does not show them; `skeleton` int32 [], a number in `skeletons`; `box`
        float32 [4], which may reach over the border; `ignore` uint8 [height / 4, width
        / 4], 1 where nothing is known; with an `rng`, the photo's `name`.

    Raises:
        ValueError: if the instance is of no skeleton of the experiment, if the matrix
            mirrors one that cannot be, or for a size that is no multiple of 4.
    """
    instance = photo.instances[number]
    names = [skeleton.name for skeleton in skeletons]
    if instance.skeleton not in names:
        raise ValueError(
            f"{photo.name}: an instance of {instance.skeleton!r}, but the experiment "
            f"knows only {', '.join(names)}; leave it out or add its skeleton"
        )
    index = names.index(instance.skeleton)
    image = geometry.warp(photo.image, matrix, size)
    keypoints = np.zeros((_most_keypoints(skeletons), 3), np.float32)
    seen = _seen(instance.keypoints, skeletons[index], matrix, size)
    keypoints[: len(seen)] = seen
    box = geometry.transform_boxes(matrix, instance.box)
    arrays = {
        "image": image,
        "keypoints": keypoints,
        "skeleton": np.array(index, np.int32),
        "box": box,
        "ignore": _ignored([photo.ignore], matrix, size),
    }
    if rng is None:
        return arrays
    return arrays | _varied(photo, image, keypoints, box[None], augmentation, rng)


def photo_sample(
    photo: KeypointImage,
    matrix: np.ndarray,
    size: tuple[int, int],
    skeletons: Sequence[Skeleton],
    room: int,
    augmentation: Augmentation | None = None,
    rng: np.random.Generator | None = None,
) -> dict[str, np.ndarray]:
    """The photo and all that is known of its instances, in pixels of the crop.

    An instance of which the crop shows no labelled keypoint is left out. One without
    any labelled keypoint is an area to ignore. Those of other skeletons than the
    experiment's are no part of it.

    Args:
        photo: the record.
        matrix: [2, 3], the map that cuts the crop, such as `crop_matrix` of the photo.
        size: (height, width), multiples of 4.
        skeletons: of the experiment.
        room: P, the most instances.
        augmentation: how colours vary, and what is covered.
        rng: of what varies; None, as for prediction, varies nothing.

    Returns:
        `image` and `ignore` as `instance_sample` gives them; `labelled` bool [number of
        skeletons]; and, of the instances, `valid` bool [P], `keypoints` float32 [P, K,
        3], `skeleton` int32 [P], `boxes` float32 [P, 4], `areas` float32 [P], pixels of
        the crop, `tracks` int32 [P], -1 where there is none; with an `rng`, the photo's
        `name`.

    Raises:
        ValueError: if there are more instances than room, if the matrix mirrors a
            skeleton that cannot be, or for a size that is no multiple of 4.
    """
    names = [skeleton.name for skeleton in skeletons]
    unknown, shown = [], []
    for instance in photo.instances:
        if instance.skeleton not in names:
            continue
        if not instance.keypoints[:, 2].any():
            unknown.append(_whole_box(instance))
            continue
        index = names.index(instance.skeleton)
        seen = _seen(instance.keypoints, skeletons[index], matrix, size)
        if seen[:, 2].any():
            shown.append((instance, index, seen))
    if len(shown) > room:
        raise ValueError(
            f"{photo.name}: {len(shown)} instances but room for {room}; raise "
            "--config.max_instances"
        )
    count = len(shown)
    image = geometry.warp(photo.image, matrix, size)
    keypoints = np.zeros((room, _most_keypoints(skeletons), 3), np.float32)
    arrays = {
        "image": image,
        "ignore": _ignored([photo.ignore, *unknown], matrix, size),
        "labelled": np.array([name in photo.labelled for name in names]),
        "valid": np.arange(room) < count,
        "keypoints": keypoints,
        "skeleton": np.zeros(room, np.int32),
        "boxes": np.zeros((room, 4), np.float32),
        "areas": np.zeros(room, np.float32),
        "tracks": np.full(room, -1, np.int32),
    }
    zoom = abs(np.linalg.det(matrix[:, :2]))
    for slot, (instance, index, seen) in enumerate(shown):
        keypoints[slot, : len(seen)] = seen
        arrays["skeleton"][slot] = index
        arrays["boxes"][slot] = geometry.transform_boxes(matrix, instance.box)
        arrays["areas"][slot] = zoom * instance.area
        if instance.track is not None:
            arrays["tracks"][slot] = instance.track
    if rng is None:
        return arrays
    boxes = arrays["boxes"][:count]
    return arrays | _varied(photo, image, keypoints, boxes, augmentation, rng)


def _mirror(skeleton):
    if skeleton.mirror is None:
        raise ValueError(
            f"skeleton {skeleton.name!r} does not say which keypoints a mirrored "
            "picture exchanges; add the mirror pairs to its skeleton file, or set "
            "--config.augmentation.flip=0"
        )
    return list(skeleton.mirror)


def _most_keypoints(skeletons):
    return max(len(skeleton.keypoints) for skeleton in skeletons)


def _seen(keypoints, skeleton, matrix, size):
    """Keypoints [k, 3] in the crop; visibility 0 where it does not show them."""
    height, width = size
    points = geometry.transform_points(matrix, keypoints[:, :2])
    shown = (points >= 0).all(axis=1) & (points <= [width, height]).all(axis=1)
    shown &= keypoints[:, 2] > 0
    seen = np.column_stack([points, keypoints[:, 2]]) * shown[:, None]
    mirrored = np.linalg.det(matrix[:, :2]) < 0
    return seen[_mirror(skeleton)] if mirrored else seen


def _ignored(patches, matrix, size):
    """Mask of the cells of the crop that patches of the photo cover by half or more."""
    height, width = size
    if height % STRIDE or width % STRIDE:
        raise ValueError(
            f"a crop of {height} x {width} pixels; take multiples of {STRIDE}"
        )
    cells = height // STRIDE, width // STRIDE
    ignored = np.zeros(cells, np.uint8)
    for patch in patches:
        if patch is None or not patch.pixels.size:
            continue
        corner = geometry.transform_points(matrix, [patch.x, patch.y])
        to_cells = np.column_stack([matrix[:, :2], corner]) / STRIDE
        pixels = patch.pixels.astype(np.uint8) * 255
        ignored |= geometry.warp(pixels, to_cells, cells, border=0) >= 128
    return ignored


def _whole_box(instance):
    x0, y0 = np.floor(instance.box[:2]).astype(int)
    x1, y1 = np.ceil(instance.box[2:]).astype(int)
    return Patch(x0, y0, np.ones((y1 - y0, x1 - x0), bool))


def _varied(photo, image, keypoints, boxes, augmentation, rng):
    """What training changes of a sample: covers parts of instances, varies colours.

    `image` and `keypoints` [..., 3] are written to.
    """
    for box in boxes:
        if rng.random() < augmentation.occlusion:
            _cover(image, keypoints, box, rng)
    return {
        "image": _recoloured(image, augmentation, rng),
        "name": np.array(photo.name),
    }


def _cover(image, keypoints, box, rng):
    """Covers a part of a box; keypoints under it are no longer visible."""
    height, width = image.shape[:2]
    limits = np.array([width, height])
    low, high = np.clip(box.reshape(2, 2), 0, limits)
    half = (high - low) * rng.uniform(0.1, 0.25, 2)
    centre = rng.uniform(low, high)
    x0, y0 = np.clip(np.floor(centre - half), 0, limits).astype(int)
    x1, y1 = np.clip(np.ceil(centre + half), 0, limits).astype(int)
    rows, columns = y1 - y0, x1 - x0
    if not rows or not columns:
        return
    covered = np.ones((rows, columns), bool)
    if rng.random() < 0.5:
        y, x = np.ogrid[:rows, :columns]
        covered = ((2 * x + 1) / columns - 1) ** 2 + ((2 * y + 1) / rows - 1) ** 2 <= 1
    kind = rng.integers(3)
    if kind == 0:
        cover = rng.integers(0, 256, (rows, columns, 3), np.uint8)
    elif kind == 1:
        cover = np.array(cv2.mean(image)[:3], np.uint8)
    else:
        x, y = rng.integers(0, [width - columns + 1, height - rows + 1])
        cover = image[y : y + rows, x : x + columns].copy()
    np.copyto(image[y0:y1, x0:x1], cover, where=covered[..., None])
    cells = keypoints[..., :2].astype(int) - [x0, y0]
    column, row = cells[..., 0], cells[..., 1]
    under = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
    under[under] = covered[row[under], column[under]]
    keypoints[under & (keypoints[..., 2] == 2), 2] = 1


def _recoloured(image, augmentation, rng):
    """The picture in other light; a grey one by chance, or blurred, or noisy."""
    contrast, saturation = 1 + rng.uniform(-1, 1, 2) * [
        augmentation.contrast,
        augmentation.saturation,
    ]
    gains = 1 + augmentation.tint * rng.uniform(-1, 1, 3)
    if rng.random() < augmentation.grey:
        saturation, gains = 0.0, np.ones(3)
    linear = (
        contrast * gains[:, None] * (saturation * np.eye(3) + (1 - saturation) * LUMA)
    )
    offset = 128 * (1 - contrast) + augmentation.brightness * rng.uniform(-1, 1)
    image = cv2.transform(image, np.column_stack([linear, np.full(3, offset)]))
    if rng.random() < augmentation.blur:
        image = cv2.GaussianBlur(image, (0, 0), rng.uniform(0.5, 1.5))
    if rng.random() < augmentation.noise:
        amplitude = rng.uniform(5, 25)  # levels
        noise = rng.integers(0, 256, image.shape, np.uint8)
        image = cv2.addWeighted(image, 1, noise, amplitude / 127.5, -amplitude)
    return image
