"""Joins data sets into one.

    python -m data_prep.merge DIR DIR [DIR ...] --output=DIR

Each split holds the photos of all sources' splits of this name, and the branches, or
the target types, are those of all sources. A photo stays labelled for those of its own
source; the others are unknown there, not empty. Pictures are copied as the bytes that
they are, and a video's frames stay together.
"""

import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import flags

from data_prep import forms
from data_prep.readers import Tally
from facekp_jax import command, datasets, faces, images, skeletons

_OUTPUT = flags.DEFINE_string("output", None, "folder of the data set to write")
_FACE_DETECTOR = flags.DEFINE_string(
    "face_detector",
    None,
    "how prediction finds faces, where sources of lesion images do not agree; the "
    "photos keep the faces that they have",
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
        form = _form(sources)
        settings = _settings(sources, form)
        for split, stated in settings.items():
            form.check_writable(_OUTPUT.value, split, stated)
    except ValueError as error:
        raise command.UsageError(str(error)) from error
    tally = Tally(strict=_STRICT.value)
    tally.expect("photos", form.found)
    with tally.printed():
        for split, parts in sources.items():
            apply_exif = settings[split]["apply_exif"]
            photos = _photos(parts, form.found, apply_exif, tally)
            form.module.write(_OUTPUT.value, split, photos, **settings[split])
    counts = datasets.open_split(_OUTPUT.value, next(iter(sources))).counts
    for split, parts in sources.items():
        for title, part in parts.items():
            print(form.line(f"{split} of {title}", part.counts[split]))
        print(form.line(f"{split} merged", counts[split]))
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
            sources.setdefault(split, {})[title] = datasets.open_split(
                directory, split, decode=images.decode_strictly
            )
    return sources


def _form(sources):
    """The form that all sources have."""
    titles = {}
    for title, part in _parts(sources):
        titles.setdefault(forms.FORMS[type(part)], title)
    if len(titles) > 1:
        said = " but ".join(
            f"{title} holds {form.module.FORM.title}" for form, title in titles.items()
        )
        raise ValueError(f"{said}; merge data sets of one kind")
    return next(iter(titles))


def _settings(sources, form):
    """Split -> what `write` is given for it."""
    for flag in (_FACE_DETECTOR, _APPLY_EXIF):
        if flag.value is not None and flag.name not in form.settings:
            title = form.module.FORM.title
            raise ValueError(f"--{flag.name} says nothing of {title}; leave it out")
    if _FACE_DETECTOR.value is not None:
        faces.detector(_FACE_DETECTOR.value)
    shared = {
        name: _agreed(sources, name, flags.FLAGS[name].value) for name in form.settings
    }
    if form.labels == "skeletons":
        _check_skeletons(sources)
    return {
        split: {
            **shared,
            "overwrite": _OVERWRITE.value,
            form.labels: tuple(
                dict.fromkeys(
                    label
                    for part in parts.values()
                    for label in getattr(part, form.labels)
                )
            ),
        }
        for split, parts in sources.items()
    }


def _check_skeletons(sources):
    first = {}
    for title, part in _parts(sources):
        for skeleton in part.skeletons:
            other, known = first.setdefault(skeleton.name, (title, skeleton))
            if known != skeleton:
                here, there = map(skeletons.to_dict, (skeleton, known))
                unlike = ", ".join(key for key in here if here[key] != there[key])
                raise ValueError(
                    f"{skeleton.name} has other {unlike} in {title} than in {other}; "
                    "build one of them again with the other's --skeleton, or with "
                    "--group=all:NAME for another name"
                )


def _parts(sources):
    """Title and split of each source, one after another."""
    return [item for parts in sources.values() for item in parts.items()]


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
    for title, part in _parts(sources):
        titles.setdefault(getattr(part, setting), title)
    if len(titles) > 1:
        said = " but ".join(f"{value!r} in {title}" for value, title in titles.items())
        raise ValueError(f"{setting} is {said}; choose the merged one with --{setting}")
    return next(iter(titles))


def _photos(parts, found, apply_exif, tally):
    """All photos of a split with their bytes, of names and videos of their own."""
    names, videos = set(), {}
    for title, part in parts.items():
        numbers, bar = range(len(part)), f"{part.split} of {title}"
        for photo, data in forms.readable(part, numbers, bar, tally):
            name, number = photo.name, len(getattr(photo, found))
            if part.apply_exif != apply_exif and _turned(photo, data, apply_exif):
                reason = (
                    f"annotated with apply_exif={part.apply_exif}, and turned by it"
                )
                tally.refused("photos", reason, f"{title}/{name}")
                tally.refused(found, "on a refused photo", f"{title}/{name}", number)
                continue
            tally.kept("photos")
            tally.kept(found, number)
            if name in names:
                tally.noted("photos of a name that was taken, now SOURCE/NAME")
            own = {"name": _free(name, title, names)}
            names.add(own["name"])
            if video := getattr(photo, "video", ""):
                if (title, video) not in videos:
                    if video in videos.values():
                        tally.noted("videos of a name that was taken, now SOURCE/NAME")
                    videos[title, video] = _free(video, title, videos.values())
                own["video"] = videos[title, video]
            yield dataclasses.replace(photo, **own), data


def _free(name, title, taken):
    while name in taken:
        name = f"{title}/{name}"
    return name


def _turned(photo, data, apply_exif):
    """Whether the merged data set would show other pixels than the source does."""
    return not np.array_equal(photo.image, images.decode(data, apply_exif=apply_exif))


if __name__ == "__main__":
    command.run(main, positional=("DIR", "..."))
