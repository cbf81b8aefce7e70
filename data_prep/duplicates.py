"""Pictures that are (nearly) the same: found by small fingerprints."""

import itertools

import cv2
import numpy as np
from tqdm import tqdm

_SIDE = 16  # 16 x 16 comparisons of neighbours
_NOISE = 1.0  # grey levels that decide no comparison
_FEWEST = 64  # decided comparisons that it takes to know a picture again
_ALIKE = 0.84  # likeness of near-duplicates: 20 of 256 comparisons may differ
_BLOCK = (1024, 4096)  # pictures compared at a time


def fingerprint(image):
    """What survives resizing, compression and another brightness.

    Args:
        image: [H, W, 3] uint8.

    Returns:
        [256] int8: 1 where the picture is brighter on the right, -1 on the left, 0 if
        the difference is no more than noise, as in an empty background.

    Source: the difference hash of N. Krawetz, "Kind of like that", 2013.
    """
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
    steps = np.diff(cv2.resize(grey, (_SIDE + 1, _SIDE), interpolation=cv2.INTER_AREA))
    return np.where(np.abs(steps) > _NOISE, np.sign(steps), 0).astype(np.int8).ravel()


def stacked(fingerprints):
    """[N, 256] int8 of N fingerprints; none are fine."""
    return np.array(fingerprints, np.int8).reshape(-1, _SIDE**2)


def flat(fingerprints):
    """[N] bool: pictures with so little in them that they are like no other."""
    return np.count_nonzero(fingerprints, axis=1) < _ALIKE * _FEWEST


def across_splits(names, fingerprints):
    """Pictures that have a near-duplicate in another split.

    Args:
        names: split -> list of N names.
        fingerprints: split -> [N, 256] int8.

    Returns:
        List of pairs "split/name": for each two splits, the pictures of the second that
        are (nearly) in the first, each after the one that it is most like there.
    """
    pairs = []
    for a, b in itertools.combinations(fingerprints, 2):
        likeness, partners = _most_alike(fingerprints[a], fingerprints[b], f"{a}, {b}")
        for j in np.flatnonzero(likeness >= _ALIKE):
            pairs.append((f"{a}/{names[a][partners[j]]}", f"{b}/{names[b][j]}"))
    return pairs


def _most_alike(those, these, title):
    """Of each of these, the likeness and the number of the most similar of those."""
    best = np.zeros(len(these), np.float32)
    partners = np.zeros(len(these), int)
    # In blocks: the likeness of all pairs of two large splits would fill the memory.
    blocks = itertools.product(
        range(0, len(those), _BLOCK[0]), range(0, len(these), _BLOCK[1])
    )
    for row, column in tqdm(list(blocks), desc=title, unit="block", disable=None):
        part = slice(column, column + _BLOCK[1])
        likeness = _likeness(those[row : row + _BLOCK[0]], these[part])
        nearest = likeness.argmax(0)
        likeness = likeness.max(0)
        better = likeness > best[part]
        best[part][better] = likeness[better]
        partners[part][better] = row + nearest[better]
    return best, partners


def _likeness(a, b):
    """[A, B] share of the comparisons that agree minus that of those that differ."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    decided = [np.abs(signs).sum(1).clip(_FEWEST) for signs in (a, b)]
    return (a @ b.T) / np.maximum(decided[0][:, None], decided[1])
