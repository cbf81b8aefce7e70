"""Splits a data set into one part to train on and one to validate with.

    python -m data_prep.split DIR --output=DIR [--val=0.2] [--seed=0]

Which photos are drawn depends on their names and the seed alone. A video is in one part
as a whole; one that is the whole data set is cut in time. Labels and the pictures'
bytes are copied as they are.
"""

import hashlib
import pathlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

from absl import flags
from tqdm import tqdm

from data_prep import forms
from data_prep.readers import Tally
from facekp_jax import array_records, command, datasets, images

_OUTPUT = flags.DEFINE_string("output", None, "folder of the data set to write")
_SPLIT = flags.DEFINE_string(
    "split", None, "the split to take, of a data set that has several"
)
_VAL = flags.DEFINE_float("val", 0.2, "share of the photos, and of the videos, for val")
_SEED = flags.DEFINE_integer("seed", 0, "another number draws other photos")
_STRICT = flags.DEFINE_bool("strict", False, "stop at the first fault in the input")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "replace splits of the same names")


def main(_: Mapping[str, str], directory: str) -> dict[str, Any]:
    started = time.monotonic()
    tally = Tally(strict=_STRICT.value)
    try:
        source = _open(directory)
        form = forms.FORMS[type(source)]
        settings = {
            name: getattr(source, name) for name in (form.labels, *form.settings)
        }
        settings["overwrite"] = _OVERWRITE.value
        for split in ("train", "val"):
            form.check_writable(_OUTPUT.value, split, settings)
        numbers = _numbers(source, tally)
    except ValueError as error:
        raise command.UsageError(str(error)) from error
    tally.expect("photos", form.found)
    with tally.printed():
        for split in numbers:
            photos = _photos(source, numbers[split], form, tally)
            form.module.write(_OUTPUT.value, split, photos, **settings)
    counts = datasets.open_split(_OUTPUT.value, "train").counts
    for split in numbers:
        print(form.line(split, counts[split]))
    return {
        "experiment": None,
        "output": _OUTPUT.value,
        "source": directory,
        "splits": {split: counts[split] for split in numbers},
        "counts": {**tally.counts, "notes": dict(tally.notes)},
        "seconds": round(time.monotonic() - started, 3),
    }


def drawn(names: Iterable[bytes], share: float, seed: int) -> set[bytes]:
    """Draws this share of the names: those with the smallest hashes.

    The number is rounded, but neither none nor all if there are two names or more. A
    name's hash depends on itself and the seed alone, so that where names are added
    some of the others may be drawn as well, or some no longer, but never both.
    """
    names = set(names)

    def key(name):
        return hashlib.sha256(b"%d/%b" % (seed, name)).digest()

    return set(sorted(names, key=key)[: _part(len(names), share)])


def _part(total, share):
    return max(min(max(round(share * total), 1), total - 1), 0)


def _open(directory):
    if not _OUTPUT.value:
        raise ValueError("--output=DIR is missing")
    if not 0 < _VAL.value < 1:
        raise ValueError(f"--val={_VAL.value}: give a share between 0 and 1")
    if pathlib.Path(_OUTPUT.value).resolve() == pathlib.Path(directory).resolve():
        raise ValueError(
            f"--output={_OUTPUT.value} is the data set to split; name another folder"
        )
    split = _SPLIT.value
    if split is None:
        split, *others = datasets.splits(directory)
        if others:
            raise ValueError(
                f"{directory}: has the splits {', '.join([split, *others])}; name the "
                "one to take with --split"
            )
    return datasets.open_split(directory, split, decode=images.decode_strictly)


def _numbers(source, tally):
    """Split -> numbers of the source's records that go there, in their order."""
    photos, videos = {}, {}
    examples = array_records.Examples(source.directory, source.split)
    bar = tqdm(range(len(examples)), desc="names", unit="photo", disable=None)
    for number in bar:
        try:
            example = examples[number]
        except ValueError:
            continue  # refused, and counted, when the others are copied
        if video := example.get("video"):
            videos.setdefault(video, []).append(number)
        else:
            photos.setdefault(example["name"], []).append(number)
    if len(videos) == 1 and not photos:
        (frames,) = videos.values()
        val = frames[len(frames) - _part(len(frames), _VAL.value) :]
        tally.noted("videos cut in time, as there is nothing else")
    else:
        val = [
            number
            for groups in (photos, videos)
            for name in drawn(groups, _VAL.value, _SEED.value)
            for number in groups[name]
        ]
    if not val:
        raise ValueError(
            f"{source.directory}: too small to split; it takes two photos, two videos, "
            "or one video of two frames"
        )
    train = {*range(len(examples))}.difference(val)
    return {"train": sorted(train), "val": sorted(val)}


def _photos(source, numbers, form, tally):
    title = f"{source.split} of {source.directory.resolve().name}"
    for photo, data in forms.readable(source, numbers, title, tally):
        tally.kept("photos")
        tally.kept(form.found, len(getattr(photo, form.found)))
        yield photo, data


if __name__ == "__main__":
    command.run(main, positional=["DIR"])
