"""Reads a whole data set again, reports faults, and draws what is in it.

    python -m data_prep.check DIR [--contact_sheet=sheet.png]

Faults are pictures that do not decode, and regions or faces that do not fit their
photo. Pictures that are (nearly) the same in two splits are reported beside them.
"""

import itertools
import pathlib
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np
from absl import flags
from tqdm import tqdm

from facekp_jax import command, datasets, drawing, images

_CONTACT_SHEET = flags.DEFINE_string(
    "contact_sheet", None, "picture file to draw annotated photos into"
)
_HASH_SIDE = 16  # 16 x 16 comparisons of neighbours
_MOST_BITS = 20  # of 256 that may differ between near-duplicates
_HASH_ROWS = 1024  # compared at a time
_SAMPLES = 24  # photos on the contact sheet
_TILE = 320  # pixels
_NAMES_SHOWN = 5


def main(_: Mapping[str, str], directory: str) -> dict[str, Any]:
    sheet = _CONTACT_SHEET.value
    if sheet and pathlib.Path(sheet).suffix.lower() not in images.SUFFIXES:
        raise command.UsageError(
            f"--contact_sheet={sheet}: end in {', '.join(images.SUFFIXES)}"
        )
    try:
        sources = {
            split: datasets.LesionImages(
                directory, split, decode=images.decode_strictly
            )
            for split in datasets.splits(directory)
        }
    except ValueError as error:
        raise command.UsageError(str(error)) from error
    faults, names, hashes = [], {}, {}
    for split, source in sources.items():
        names[split], hashes[split] = read_split(source, faults)
        counts = source.counts[split]
        print(f"{split}: {counts['photos']:,} photos, {counts['regions']:,} regions")
        for branch, number in counts["branches"].items():
            print(f"  {branch}: {number:,}")
    pairs = duplicates(names, hashes)
    for heading, lines in (
        ("faults", faults),
        ("near-duplicates across splits", [f"{a} = {b}" for a, b in pairs]),
    ):
        print(f"{heading}: {len(lines):,}")
        for line in lines[:_NAMES_SHOWN]:
            print(f"  {line}")
        if len(lines) > _NAMES_SHOWN:
            print(f"  and {len(lines) - _NAMES_SHOWN:,} more")
    if sheet:
        drawn = drawing.contact_sheet(list(samples(sources.values())), side=_TILE)
        if not cv2.imwrite(sheet, cv2.cvtColor(drawn, cv2.COLOR_RGB2BGR)):
            raise ValueError(f"--contact_sheet={sheet}: cannot write there")
        print(f"contact sheet: {sheet}")
    summary = {
        "directory": directory,
        "splits": {split: source.counts[split] for split, source in sources.items()},
        "faults": len(faults),
        "near_duplicates": len(pairs),
    }
    if faults:
        raise command.Failed(
            f"{directory}: faults found: {len(faults):,}, as above", summary
        )
    return summary


def duplicates(names, hashes):
    """Pairs of near-duplicates in two splits.

    Args:
        names: split -> list of N names.
        hashes: split -> [N, bits] bool, by `fingerprint`.

    Returns:
        List of pairs "split/name".
    """
    pairs = []
    for (a, bits_a), (b, bits_b) in itertools.combinations(hashes.items(), 2):
        signs_b = np.where(bits_b, 1, -1).astype(np.float32)
        for start in range(0, len(bits_a), _HASH_ROWS):
            signs_a = np.where(bits_a[start : start + _HASH_ROWS], 1, -1)
            # The product is the bits that agree minus those that differ.
            differ = (bits_a.shape[1] - signs_a.astype(np.float32) @ signs_b.T) / 2
            for i, j in np.argwhere(differ <= _MOST_BITS):
                pairs.append((f"{a}/{names[a][start + i]}", f"{b}/{names[b][j]}"))
    return pairs


def fingerprint(image):
    """Bits [256] bool that survive resizing and compression: is the right one brighter?

    Source: the difference hash of N. Krawetz, "Kind of like that", 2013.
    """
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    size = (_HASH_SIDE + 1, _HASH_SIDE)
    small = cv2.resize(grey, size, interpolation=cv2.INTER_AREA).astype(int)
    return (small[:, 1:] > small[:, :-1]).ravel()


def samples(sources):
    """Annotated photos taken evenly from all sources, without the unreadable ones."""
    everything = [(s, i) for s in sources for i in range(len(s))]
    chosen = np.linspace(0, len(everything) - 1, _SAMPLES).round().astype(int)
    for index in np.unique(chosen):
        source, i = everything[index]
        try:
            photo = source[i]
        except ValueError:
            continue  # among the faults already
        faces = [] if photo.face is None else [photo.face]
        yield drawing.overlay(
            photo.image, photo.regions, branches=source.branches, faces=faces
        )


def read_split(source, faults):
    """Names and fingerprints of the photos that can be read; appends to faults."""
    names, bits, seen = [], [], set()
    for i in tqdm(range(len(source)), desc=source.split, unit="photo", disable=None):
        try:
            photo = source[i]
        except ValueError as error:
            faults.append(f"{source.split}, photo {i}: {error}")
            continue
        name = photo.name
        faults += [f"{source.split}/{name}: {fault}" for fault in _faults(photo)]
        if name in seen:
            faults.append(f"{source.split}/{name}: name is there twice")
        seen.add(name)
        names.append(name)
        bits.append(fingerprint(photo.image))
    return names, np.reshape(bits, (len(bits), _HASH_SIDE**2)).astype(bool)


def _faults(photo):
    height, width = photo.image.shape[:2]
    if photo.face is not None and not _fits(photo.face, height, width):
        yield f"face {photo.face.tolist()} is not in the photo of {width}x{height}"
    for region in photo.regions:
        title = f"{region.branch} {region.box.tolist()}"
        if not _fits(region.box, height, width):
            yield f"{title} is not in the photo of {width}x{height}"
        if region.branch not in photo.labelled:
            yield f"{title}, but the photo is not labelled for {region.branch}"
        for part in ("mask", "pixels"):
            patch = getattr(region, part)
            if patch is not None and not patch.pixels.any():
                yield f"{title}: its {part} is empty"


def _fits(box, height, width):
    """Whether the box is finite, has an area and is in the photo."""
    x0, y0, x1, y1 = box
    return 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height


if __name__ == "__main__":
    command.run(main, positional=["DIR"])
