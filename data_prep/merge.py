"""Joins data sets into one.

    python -m data_prep.merge DIR DIR [DIR ...] --output=DIR

Each split holds the photos of all sources' splits of this name, and the branches are
those of all sources. A photo stays labelled for the branches of its own source; the
others are unknown there, not empty. Pictures are copied as the bytes that they are.
"""

import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import flags
from tqdm import tqdm

from data_prep.readers import Tally
from facekp_jax import command, datasets, faces, images

_OUTPUT = flags.DEFINE_string("output", None, "folder of the data set to write")
_FACE_DETECTOR = flags.DEFINE_string(
    "face_detector",
    None,
    "how prediction finds faces, where the sources do not agree; the photos keep the "
    "faces that they have",
)
_APPLY_EXIF = flags.DEFINE_bool(
    "apply_exif",
    None,
    "how the pictures are decoded, where the sources do not agree; photos that their "
    "source decodes to other pixels are refused",
)
_STRICT = flags.DEFINE_bool("strict", False, "stop at the first fault in the input")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "replace splits of the same names")


def main(_: Mapping[str, str], *directories: str) -> dict[str, Any]:
    started = time.monotonic()
    try:
        sources = _open(directories)
        settings = {
            "face_detector": _agreed(sources, "face_detector", _FACE_DETECTOR.value),
            "apply_exif": _agreed(sources, "apply_exif", _APPLY_EXIF.value),
            "overwrite": _OVERWRITE.value,
        }
        if _FACE_DETECTOR.value is not None:
            faces.detector(_FACE_DETECTOR.value)
        for split in sources:
            datasets.check_writable(_OUTPUT.value, split, **settings)
    except ValueError as error:
        raise command.UsageError(str(error)) from error
    tally = Tally(strict=_STRICT.value)
    for split, parts in sources.items():
        branches = dict.fromkeys(b for part in parts.values() for b in part.branches)
        datasets.write(
            _OUTPUT.value,
            split,
            _photos(parts, settings["apply_exif"], tally),
            branches=tuple(branches),
            **settings,
        )
    counts = datasets.LesionImages(_OUTPUT.value, next(iter(sources))).counts
    print(tally.table())
    for split, parts in sources.items():
        for title, part in parts.items():
            _show(f"{split} of {title}", part.counts[split])
        _show(f"{split} merged", counts[split])
    return {
        "experiment": None,
        "output": _OUTPUT.value,
        "sources": list(directories),
        "splits": {split: counts[split] for split in sources},
        "counts": {**tally.counts, "notes": dict(tally.notes)},
        "seconds": round(time.monotonic() - started, 3),
    }


def _open(directories):
    """Split -> title of a source -> the source's split."""
    if not _OUTPUT.value:
        raise ValueError("--output=DIR is missing")
    if len(directories) < 2:
        raise ValueError(f"{directories[0]} alone: name two data sets or more to merge")
    folders = [pathlib.Path(directory).resolve() for directory in directories]
    for folder, directory in zip(folders, directories, strict=True):
        if folders.count(folder) > 1:
            raise ValueError(f"{directory} is there twice")
    if pathlib.Path(_OUTPUT.value).resolve() in folders:
        raise ValueError(f"--output={_OUTPUT.value} is one of the sources")
    sources = {}
    for title, directory in zip(_titles(folders), directories, strict=True):
        for split in datasets.splits(directory):
            sources.setdefault(split, {})[title] = datasets.LesionImages(
                directory, split, decode=images.decode_strictly
            )
    return sources


def _titles(folders):
    """Of each folder as many last parts as it takes to tell all of them apart."""
    for length in range(1, max(len(folder.parts) for folder in folders) + 1):
        titles = ["_".join(folder.parts[-length:]) for folder in folders]
        if len(set(titles)) == len(titles):
            break
    return titles


def _agreed(sources, setting, chosen):
    """The merged data set's setting: the one chosen, or the one that all have."""
    if chosen is not None:
        return chosen
    titles = {}
    for parts in sources.values():
        for title, part in parts.items():
            titles.setdefault(getattr(part, setting), title)
    if len(titles) > 1:
        said = " but ".join(f"{value!r} in {title}" for value, title in titles.items())
        raise ValueError(f"{setting} is {said}; choose the merged one with --{setting}")
    return next(iter(titles))


def _photos(parts, apply_exif, tally):
    """All photos of a split, each with its bytes and a name of its own."""
    names = set()
    for title, part in parts.items():
        numbers = range(len(part))
        bar = f"{part.split} of {title}"
        for i in tqdm(numbers, desc=bar, unit="photo", disable=None):
            try:
                photo, data = part.with_bytes(i)
            except ValueError as error:
                tally.refused("photos", str(error), f"{title}, photo {i}")
                continue
            name, number = photo.name, len(photo.regions)
            if part.apply_exif != apply_exif and _turned(photo, data, apply_exif):
                reason = (
                    f"annotated with apply_exif={part.apply_exif}, and turned by it"
                )
                tally.refused("photos", reason, f"{title}/{name}")
                tally.refused(
                    "regions", "on a refused photo", f"{title}/{name}", number
                )
                continue
            tally.kept("photos")
            tally.kept("regions", number)
            if name in names:
                tally.noted("photos of a name that was taken, now SOURCE/NAME")
            while name in names:
                name = f"{title}/{name}"
            names.add(name)
            yield dataclasses.replace(photo, name=name), data


def _turned(photo, data, apply_exif):
    """Whether the merged data set would show other pixels than the source does."""
    return not np.array_equal(photo.image, images.decode(data, apply_exif=apply_exif))


def _show(title, counts):
    branches = ", ".join(f"{name} {n:,}" for name, n in counts["branches"].items())
    print(
        f"{title}: {counts['photos']:,} photos, {counts['regions']:,} regions "
        f"({branches})"
    )


if __name__ == "__main__":
    command.run(main, positional=("DIR", "..."))
