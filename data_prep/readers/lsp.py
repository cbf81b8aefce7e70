"""Leeds Sports Pose and its extended form: joints.mat and pictures of one person each.

Coordinates are MATLAB's: indices of pixels from 1. The pixel of index i has its centre
at i - 0.5 here. Joints are all labelled in Leeds Sports Pose, where the third number is
1 if one is hidden; in the extended form it is 1 if it is labelled, and hidden ones are
not told apart. Boxes are those of the keypoints.

Source: Johnson and Everingham, BMVC 2010; extended: CVPR 2011.
"""

import re

import numpy as np
import scipy.io

from data_prep.readers import KeypointReading, Source, Tally, keypoints
from data_prep.readers.categories import Categories
from data_prep.readers.photos import Annotation, Entry
from facekp_jax import images, skeletons

_COUNT = len(skeletons.LSP.keypoints)
_NAME = re.compile(r"im0*(\d+)")


def read(source: Source, tally: Tally) -> KeypointReading:
    """Opens Leeds Sports Pose: joints.mat and images/im0001.jpg or im00001.jpg.

    The pictures in the folder are the split. If they are as many as the joints, they
    belong together in order; else the number of a picture says which are its joints,
    and joints without a picture are left out. The type is `person`, or as
    --skeleton says.

    Raises:
        ValueError: if the files are not there, not Leeds Sports Pose's, or there are
            pictures without joints.
    """
    path = source.annotation_file("joints.mat")
    folder = source.image_folder("images")
    skeleton = keypoints.type_skeleton(
        keypoints.type_name(source, "person"),
        skeletons.LSP.keypoints,
        (),
        source.skeleton,
        path,
    )
    joints = _joints(path)
    pictures = _pictures(folder)
    numbers = list(pictures)
    columns = range(len(joints))
    if len(joints) != len(numbers):
        columns = [number - 1 for number in numbers]
        if min(columns) < 0 or max(columns) >= len(joints):
            raise ValueError(
                f"{folder}: {len(numbers):,} pictures up to number {max(numbers)}, but "
                f"{path} has joints of {len(joints):,}; they must be as many, or the "
                "numbers within them"
            )
        tally.noted("joints without a picture, left out", len(joints) - len(numbers))
    return keypoints.open_photos(
        (
            Entry(name, [Annotation(f"joints {column + 1}", None, joints[column])])
            for name, column in zip(pictures.values(), columns, strict=True)
        ),
        _instance,
        Categories(rest=skeleton),
        source,
        tally,
        folder=folder,
        length=len(numbers),
    )


def _joints(path):
    """[N, K, 3] x, y, visibility, in our pixels and our visibilities."""
    try:
        joints = np.asarray(scipy.io.loadmat(path)["joints"], np.float64)
    except Exception as error:  # of the system, SciPy, zlib, or no joints
        raise ValueError(f"{path}: not joints of MATLAB: {error}") from error
    if joints.ndim == 3 and joints.shape[:2] == (3, _COUNT):
        joints = joints.transpose(2, 1, 0).copy()
        visibility = _visibility(joints[..., 2], [2, 1])
    elif joints.ndim == 3 and joints.shape[:2] == (_COUNT, 3):
        joints = joints.transpose(2, 0, 1).copy()
        visibility = _visibility(joints[..., 2], [0, 2])
    else:
        raise ValueError(
            f"{path}: joints of shape {joints.shape}; they are (3, {_COUNT}, N) or, "
            f"extended, ({_COUNT}, 3, N)"
        )
    return np.concatenate([joints[..., :2] - 0.5, visibility[..., None]], axis=-1)


def _visibility(third, meanings):
    """Our visibilities of 0 and of 1; of what is neither, one that there is not."""
    return np.select([third == 0, third == 1], meanings, np.nan)


def _pictures(folder):
    """Number -> file name, in order."""
    found = {}
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.stem)
        if match and path.suffix.lower() in images.SUFFIXES:
            number = int(match[1])
            if number in found:
                raise ValueError(
                    f"{folder}: {found[number]} and {path.name} have the same number"
                )
            found[number] = path.name
    if not found:
        raise ValueError(f"{folder}: no picture im0001.jpg, im0002.jpg, ... in it")
    return dict(sorted(found.items()))


def _instance(skeleton, joints, size, repairs):
    keypoints.check_finite(joints, repairs)
    return keypoints.instance(skeleton, joints, size, repairs)
