"""Splits of data sets on disk, whatever their records are.

Each split of a data set is a folder `DIRECTORY/SPLIT` that TFDS reads too
(`tfds.builder_from_directory`): ArrayRecord files with the pictures as the encoded
bytes they came as, and the split's metadata.
"""

import contextlib
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow_datasets as tfds

_RECORDS_PER_SHARD = 4096
_RECORDS_PER_WRITE = 64


class Form(NamedTuple):
    """What the records of a data set are; the same for all of its splits."""

    name: str  # in TFDS, such as "lesion_images"
    version: str  # of the form on disk; the first number changes when readers must
    features: Callable[[], dict[str, Any]]  # TFDS's, of a record beside its picture
    metadata: frozenset[str]  # what the metadata of each split states
    # Metadata -> the settings in which splits that have them must agree.
    shared: Callable[[Mapping[str, Any]], dict[str, Any]]

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")


def write(
    form: Form,
    directory: str | os.PathLike,
    split: str,
    examples: Iterable[dict[str, Any]],
    settings: Mapping[str, Any],
    summary: Callable[[], Mapping[str, Any]],
    overwrite: bool,
) -> None:
    """Writes one split of a data set; other splits in the folder stay.

    The split appears only when it is whole: an interrupted or failed write leaves
    what was there before.

    Args:
        form: of the data set.
        directory: folder of the data set.
        split: name of the split, such as "train".
        examples: what `form.features` describes, each with its `picture`.
        settings: metadata that is known before the first example.
        summary: gives the rest after the last one.
        overwrite: replace a split of this name.

    Raises:
        ValueError: as `check_writable`, or if there is no example at all.
    """
    directory = pathlib.Path(directory)
    check_writable(form, directory, split, settings, overwrite)
    unfinished = directory / f"{split}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        _write(form, unfinished, split, examples, settings, summary)
        _replace(directory / split, unfinished)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_writable(
    form: Form,
    directory: str | os.PathLike,
    split: str,
    settings: Mapping[str, Any],
    overwrite: bool,
) -> None:
    """Raises the ValueError that `write` would raise before its first example."""
    directory = pathlib.Path(directory)
    if not re.fullmatch(r"[A-Za-z]\w*", split) or split == "all":
        raise ValueError(
            f"split {split!r}: use letters, digits and _, and not the name 'all'"
        )
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory}: a file; name a folder for the data set")
    others = infos(directory) if directory.exists() else {}
    if split in others and not overwrite:
        raise ValueError(
            f"{directory}: split {split!r} exists; name another split or folder, "
            "or add --overwrite"
        )
    if split not in others and (directory / split).exists():
        # Perhaps the pictures that the split is made of.
        raise ValueError(
            f"{directory / split}: is there, but is no split of a data set; name "
            "another folder"
        )
    others.pop(split, None)
    here = form.shared(settings)
    for other, info in others.items():
        if info.name != form.name:
            raise ValueError(
                f"{directory}: split {other!r} holds {_title(info)}, not {form.title}; "
                "name another folder"
            )
        there = form.shared(_checked(form, directory / other, info))
        for key, value in here.items():
            if there.get(key, value) != value:
                raise ValueError(
                    f"{directory}: {key} is {value!r} here but {there[key]!r} in "
                    f"split {other!r}; use the same for all splits of a data set"
                )


def picture(photo, data: bytes) -> dict[str, Any]:
    """What each example says of its photo: `data` are the picture's encoded bytes."""
    height, width = photo.image.shape[:2]
    return {"image": data, "name": photo.name, "width": width, "height": height}


def infos(directory: pathlib.Path) -> dict[str, tfds.core.DatasetInfo]:
    """Split name -> what TFDS knows of it, "train" first, of any form; may be empty."""
    found = {}
    folders = [p for p in directory.iterdir() if (p / "dataset_info.json").is_file()]
    for folder in sorted(folders, key=lambda p: (p.name != "train", p.name)):
        if folder.suffix:  # unfinished, or left behind by a process that was killed
            continue
        try:
            found[folder.name] = tfds.builder_from_directory(folder).info
        except Exception as error:  # of TFDS, of protobuf, of JSON
            raise _damaged(folder, error) from error
    return found


def metadata(
    form: Form, directory: str | os.PathLike, split: str
) -> dict[str, Mapping[str, Any]]:
    """Split name -> metadata, of all splits of a data set that has this one.

    Raises:
        ValueError: if there is no such folder, data set of this form or split.
    """
    directory = pathlib.Path(directory)
    found = existing(directory, form.title)
    stated = {
        name: _checked(form, directory / name, info)
        for name, info in found.items()
        if info.name == form.name
    }
    if not stated:
        title = _title(next(iter(found.values())))
        raise ValueError(f"{directory}: holds {title}, not {form.title}")
    if split not in stated:
        raise no_split(directory, split, stated)
    return stated


class Examples:
    """Random access to the examples of one split, which must be there."""

    def __init__(self, directory: str | os.PathLike, split: str):
        self._folder = pathlib.Path(directory) / split
        self._source = tfds.builder_from_directory(self._folder).as_data_source(split)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> dict[str, Any]:
        number = range(len(self))[index]
        try:
            return self._source[number]
        except RuntimeError as error:
            raise ValueError(
                f"{self._folder}: record {number} cannot be read ({error}); build the "
                "split again"
            ) from error


def decoded(example: Mapping[str, Any], decode, apply_exif: bool):
    """An example's name and its picture, uint8 [H, W, 3]; ValueError names it."""
    name = example["name"].decode()
    try:
        image = decode(example["image"], apply_exif=apply_exif)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    size = [int(example["height"]), int(example["width"])]
    if [*image.shape[:2]] != size:
        raise ValueError(
            f"{name}: decodes to {image.shape[:2]} pixels (height, width), but its "
            f"annotations are for {size}"
        )
    return name, image


def existing(directory: pathlib.Path, title: str) -> dict[str, tfds.core.DatasetInfo]:
    """`infos` of what must be a data set; ValueError if it is none."""
    if not directory.is_dir():
        raise ValueError(f"{directory}: no such folder")
    found = infos(directory)
    if not found:
        raise ValueError(
            f"{directory}: not a data set of {title}; make one with "
            "python -m data_prep.build"
        )
    return found


def no_split(directory, split, names) -> ValueError:
    return ValueError(
        f"{directory}: no split {split!r}, only {', '.join(names)}; "
        "make train and val of one split with python -m data_prep.split, or build it "
        f"from other pictures with python -m data_prep.build --split={split}"
    )


def _write(form, folder, split, examples, settings, summary):
    metadata = tfds.core.MetadataDict(settings)
    number = tfds.features.Scalar(np.int32)
    info = tfds.core.DatasetInfo(
        builder=tfds.core.DatasetIdentity(
            name=form.name,
            version=tfds.core.Version(form.version),
            data_dir=str(folder),
            module_name=f"{__package__}.{form.name}",
        ),
        features=tfds.features.FeaturesDict(
            {
                "image": tfds.features.Scalar(np.object_),  # encoded bytes
                "name": tfds.features.Text(),
                "width": number,  # pixels, upright
                "height": number,
                **form.features(),
            }
        ),
        metadata=metadata,
    )
    writer = tfds.core.SequentialWriter(
        info, max_examples_per_shard=_RECORDS_PER_SHARD, file_format="array_record"
    )
    writer.initialize_splits([split])
    empty, pending = True, []
    for example in examples:
        empty = False
        pending.append(example)
        if len(pending) == _RECORDS_PER_WRITE:
            with _writing(folder):
                writer.add_examples({split: pending})
            pending = []
    if empty:
        raise ValueError(f"split {split!r}: not one photo to write")
    metadata.update(summary())
    with _writing(folder):
        writer.add_examples({split: pending})
        writer.close_splits([split])


@contextlib.contextmanager
def _writing(folder):
    try:
        yield
    except RuntimeError as error:  # of ArrayRecord, such as a full disk
        raise OSError(f"{folder}: cannot be written: {error}") from error


def _replace(folder, unfinished):
    """Puts the finished split in the place of one that may be there."""
    replaced = folder.with_suffix(".replaced")
    if folder.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        folder.rename(replaced)
    unfinished.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)


def _title(info):
    return info.name.replace("_", " ")


def _damaged(folder, fault):
    return ValueError(
        f"{folder}: what describes it is damaged ({fault}); remove that folder and "
        "build the split again"
    )


def _checked(form, folder, info):
    """The metadata of a split of this form."""
    if info.version.major != int(form.version.split(".")[0]):
        raise ValueError(
            f"{folder}: written as version {info.version}, this program reads "
            f"{form.version}; build it again"
        )
    metadata = info.metadata or {}
    if missing := form.metadata - metadata.keys():
        raise _damaged(folder, f"no {', '.join(sorted(missing))}")
    return metadata
