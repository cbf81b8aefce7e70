"""Lesion images on disk.

Each split of a data set is a folder `DIRECTORY/SPLIT` that TFDS reads too
(`tfds.builder_from_directory`): ArrayRecord files with the pictures as the encoded
bytes they came as, and the split's metadata.
"""

import collections
import functools
import os
import pathlib
import re
import shutil
from collections.abc import Iterable

import numpy as np
import tensorflow_datasets as tfds

from facekp_jax import faces, images, masks
from facekp_jax.records import LesionImage, Region

VERSION = "1.0.0"  # of the form on disk; the first number changes when readers must
_NAME = "lesion_images"
_METADATA = {"branches", "face_detector", "apply_exif", "max_regions", "counts"}
_RECORDS_PER_SHARD = 4096
_RECORDS_PER_WRITE = 64


def write(
    directory: str | os.PathLike,
    split: str,
    photos: Iterable[tuple[LesionImage, bytes]],
    *,
    branches: tuple[str, ...],
    face_detector: str,
    apply_exif: bool = True,
    overwrite: bool = False,
) -> None:
    """Writes one split of a data set; other splits in the folder stay.

    The split appears only when it is whole: an interrupted or failed write leaves
    what was there before.

    Args:
        directory: folder of the data set.
        split: name of the split, such as "train".
        photos: records, each with its picture's encoded bytes.
        branches: the branches that this split's photos are labelled for.
        face_detector: the specification that found `face`, for prediction to repeat.
        apply_exif: how the pictures were decoded when they were annotated.
        overwrite: replace a split of this name.

    Raises:
        ValueError: for a wrong name, an existing split, settings that other splits
            of the data set do not share, or no photo at all.
    """
    directory = pathlib.Path(directory)
    check_writable(directory, split, face_detector, apply_exif, overwrite)
    face_detector = faces.absolute(face_detector)
    unfinished = directory / f"{split}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        _write_split(unfinished, split, photos, branches, face_detector, apply_exif)
        shutil.rmtree(directory / split, ignore_errors=True)
        unfinished.rename(directory / split)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_writable(directory, split, face_detector, apply_exif, overwrite) -> None:
    """Raises the ValueError that `write` would raise before its first record."""
    directory = pathlib.Path(directory)
    if not re.fullmatch(r"[A-Za-z]\w*", split) or split == "all":
        raise ValueError(
            f"split {split!r}: use letters, digits and _, and not the name 'all'"
        )
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory}: a file; name a folder for the data set")
    others = _metadata(directory) if directory.exists() else {}
    if others.pop(split, None) is not None and not overwrite:
        raise ValueError(
            f"{directory}: split {split!r} exists; name another split or folder, "
            "or add --overwrite"
        )
    for other, metadata in others.items():
        for key, value in (
            ("face_detector", faces.absolute(face_detector)),
            ("apply_exif", apply_exif),
        ):
            if metadata[key] != value:
                raise ValueError(
                    f"{directory}: {key} is {value!r} here but {metadata[key]!r} in "
                    f"split {other!r}; use the same for all splits of a data set"
                )


def splits(directory: str | os.PathLike) -> tuple[str, ...]:
    """Names of a data set's splits; ValueError if it is none."""
    return tuple(_existing(pathlib.Path(directory)))


class LesionImages:
    """Random access to one split; for threads and, pickled, for processes.

    Attributes:
        branches: of the whole data set, in the same order for each split.
        face_detector: specification of the detector that found the faces.
        apply_exif: how the pictures are decoded.
        splits: names of the data set's splits.
        max_regions: branch -> most regions of it on one photo, over all splits.
        counts: split -> its "photos", "regions" and, by "branches", regions of each.
    """

    def __init__(
        self, directory: str | os.PathLike, split: str, *, decode=images.decode
    ):
        """Opens a split.

        Args:
            directory: folder of the data set.
            split: name of the split.
            decode: decodes the pictures; `images.decode_strictly` finds damage.

        Raises:
            ValueError: if there is no such folder, data set or split.
        """
        self.directory = pathlib.Path(directory)
        self.split = split
        self._decode = decode
        metadata = _existing(self.directory)
        if split not in metadata:
            raise ValueError(
                f"{directory}: no split {split!r}, only {', '.join(metadata)}; "
                f"add it with python -m data_prep.build --split={split}"
            )
        self.splits = tuple(metadata)
        self.branches = tuple(
            dict.fromkeys(b for m in metadata.values() for b in m["branches"])
        )
        self.max_regions = {
            branch: max(m["max_regions"].get(branch, 0) for m in metadata.values())
            for branch in self.branches
        }
        self.counts = {name: m["counts"] for name, m in metadata.items()}
        self.face_detector = metadata[split]["face_detector"]
        self.apply_exif = metadata[split]["apply_exif"]
        self._split_branches = metadata[split]["branches"]
        self._examples = tfds.builder_from_directory(
            self.directory / split
        ).as_data_source(split)

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> LesionImage:
        return self.with_bytes(index)[0]

    def with_bytes(self, index: int) -> tuple[LesionImage, bytes]:
        """A record and its picture's encoded bytes, as `write` takes them."""
        number = range(len(self))[index]
        try:
            example = self._examples[number]
        except RuntimeError as error:
            raise ValueError(
                f"{self.directory / self.split}: record {number} cannot be read "
                f"({error}); build the split again"
            ) from error
        name = example["name"].decode()
        try:
            image = self._decode(example["image"], apply_exif=self.apply_exif)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        size = [int(example["height"]), int(example["width"])]
        if [*image.shape[:2]] != size:
            raise ValueError(
                f"{name}: decodes to {image.shape[:2]} pixels "
                f"(height, width), but its regions are for {size}"
            )
        record = LesionImage(
            name=name,
            image=image,
            regions=tuple(self._regions(example, size)),
            labelled=tuple(self._split_branches[i] for i in example["labelled"]),
            face=example["face"][0] if len(example["face"]) else None,
        )
        return record, example["image"]

    def __reduce__(self):
        opened = functools.partial(LesionImages, decode=self._decode)
        return opened, (self.directory, self.split)

    def _regions(self, example, size):
        for box, branch, crowd, mask, pixels in zip(
            example["boxes"],
            example["branches"],
            example["crowd"],
            example["masks"],
            example["pixels"],
            strict=True,
        ):
            yield Region(
                branch=self._split_branches[branch],
                box=box,
                mask=_patch(mask, size),
                pixels=_patch(pixels, size),
                crowd=bool(crowd),
            )


def _features():
    # An empty Sequence loses its shape in TFDS; a Tensor with a free axis keeps it.
    number = tfds.features.Scalar(np.int32)
    indices = tfds.features.Tensor(shape=(None,), dtype=np.int32)
    boxes = tfds.features.Tensor(shape=(None, 4), dtype=np.float32)
    run_lengths = tfds.features.Tensor(shape=(None,), dtype=np.object_)
    return tfds.features.FeaturesDict(
        {
            "image": tfds.features.Scalar(np.object_),  # encoded bytes
            "name": tfds.features.Text(),
            "width": number,  # pixels, upright
            "height": number,
            "face": boxes,  # none or one
            "labelled": indices,  # into the metadata's branches
            "branches": indices,  # of each region, likewise
            "boxes": boxes,
            "crowd": tfds.features.Tensor(shape=(None,), dtype=np.bool_),
            "masks": run_lengths,  # COCO run lengths, empty where there is no mask
            "pixels": run_lengths,
        }
    )


def _write_split(folder, split, photos, branches, face_detector, apply_exif):
    metadata = tfds.core.MetadataDict(
        branches=list(branches), face_detector=face_detector, apply_exif=apply_exif
    )
    info = tfds.core.DatasetInfo(
        builder=tfds.core.DatasetIdentity(
            name=_NAME,
            version=tfds.core.Version(VERSION),
            data_dir=str(folder),
            module_name=__name__,
        ),
        features=_features(),
        metadata=metadata,
    )
    writer = tfds.core.SequentialWriter(
        info, max_examples_per_shard=_RECORDS_PER_SHARD, file_format="array_record"
    )
    writer.initialize_splits([split])
    total, most, count = collections.Counter(), collections.Counter(), 0
    pending = []
    for photo, data in photos:
        here = collections.Counter(region.branch for region in photo.regions)
        total += here
        most |= here
        count += 1
        pending.append(_example(photo, data, branches))
        if len(pending) == _RECORDS_PER_WRITE:
            writer.add_examples({split: pending})
            pending = []
    if not count:
        raise ValueError(f"split {split!r}: not one photo to write")
    writer.add_examples({split: pending})
    metadata["max_regions"] = {branch: most[branch] for branch in branches}
    metadata["counts"] = {
        "photos": count,
        "regions": total.total(),
        "branches": {branch: total[branch] for branch in branches},
    }
    writer.close_splits([split])


def _example(photo, data, branches):
    height, width = photo.image.shape[:2]
    regions = photo.regions
    face = [] if photo.face is None else [photo.face]
    return {
        "image": data,
        "name": photo.name,
        "width": width,
        "height": height,
        "face": np.reshape(face, (-1, 4)).astype(np.float32),
        "labelled": np.array([branches.index(b) for b in photo.labelled], np.int32),
        "branches": np.array([branches.index(r.branch) for r in regions], np.int32),
        "boxes": np.reshape([r.box for r in regions], (-1, 4)).astype(np.float32),
        "crowd": np.array([r.crowd for r in regions], bool),
        "masks": [_run_lengths(r.mask, height, width) for r in regions],
        "pixels": [_run_lengths(r.pixels, height, width) for r in regions],
    }


def _run_lengths(patch, height, width):
    return "" if patch is None else masks.to_rle(patch, height, width)["counts"]


def _patch(run_lengths, size):
    if not run_lengths:
        return None
    return masks.from_rle({"size": size, "counts": run_lengths})


def _existing(directory):
    """`_metadata` of what must be a data set."""
    if not directory.is_dir():
        raise ValueError(f"{directory}: no such folder")
    metadata = _metadata(directory)
    if not metadata:
        raise ValueError(
            f"{directory}: not a data set of lesion images; make one with "
            "python -m data_prep.build"
        )
    return metadata


def _damaged(folder, fault):
    return ValueError(
        f"{folder}: what describes it is damaged ({fault}); remove that folder and "
        "build the split again"
    )


def _metadata(directory):
    """Split name -> metadata of a data set's splits, "train" first; may be empty."""
    found = {}
    folders = [p for p in directory.iterdir() if (p / "dataset_info.json").is_file()]
    for folder in sorted(folders, key=lambda p: (p.name != "train", p.name)):
        if folder.suffix == ".unfinished":
            continue
        try:
            info = tfds.builder_from_directory(folder).info
        except Exception as error:  # of TFDS, of protobuf, of JSON
            raise _damaged(folder, error) from error
        if info.name != _NAME:
            continue
        if info.version.major != int(VERSION.split(".")[0]):
            raise ValueError(
                f"{folder}: written as version {info.version}, this program reads "
                f"{VERSION}; build it again"
            )
        metadata = info.metadata or {}
        if missing := _METADATA - metadata.keys():
            raise _damaged(folder, f"no {', '.join(sorted(missing))}")
        found[folder.name] = metadata
    return found
