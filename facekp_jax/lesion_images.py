"""Lesion images on disk: photos of faces with the regions of their skin."""

import collections
import functools
import os
import pathlib
from collections.abc import Iterable

import numpy as np
import tensorflow_datasets as tfds

from facekp_jax import array_records, faces, images, masks
from facekp_jax.records import LesionImage, Region


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
    settings = {**_settings(face_detector, apply_exif), "branches": list(branches)}
    summary = _Summary(branches)
    examples = (_example(photo, data, branches) for photo, data in summary.of(photos))
    array_records.write(
        FORM, directory, split, examples, settings, summary.metadata, overwrite
    )


def check_writable(
    directory: str | os.PathLike,
    split: str,
    *,
    face_detector: str,
    apply_exif: bool = True,
    overwrite: bool = False,
) -> None:
    """Raises the ValueError that `write` would raise before its first record."""
    settings = _settings(face_detector, apply_exif)
    array_records.check_writable(FORM, directory, split, settings, overwrite)


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
        metadata = array_records.metadata(FORM, directory, split)
        self._examples = array_records.Examples(directory, split)
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

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> LesionImage:
        return self.with_bytes(index)[0]

    def with_bytes(self, index: int) -> tuple[LesionImage, bytes]:
        """A record and its picture's encoded bytes, as `write` takes them."""
        example = self._examples[index]
        name, image = array_records.decoded(example, self._decode, self.apply_exif)
        record = LesionImage(
            name=name,
            image=image,
            regions=tuple(self._regions(example, [*image.shape[:2]])),
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
    indices = tfds.features.Tensor(shape=(None,), dtype=np.int32)
    boxes = tfds.features.Tensor(shape=(None, 4), dtype=np.float32)
    run_lengths = tfds.features.Tensor(shape=(None,), dtype=np.object_)
    return {
        "face": boxes,  # none or one
        "labelled": indices,  # into the metadata's branches
        "branches": indices,  # of each region, likewise
        "boxes": boxes,
        "crowd": tfds.features.Tensor(shape=(None,), dtype=np.bool_),
        "masks": run_lengths,  # COCO run lengths, empty where there is no mask
        "pixels": run_lengths,
    }


def _settings(face_detector, apply_exif):
    return {"face_detector": faces.absolute(face_detector), "apply_exif": apply_exif}


def _shared(metadata):
    return {key: metadata[key] for key in ("face_detector", "apply_exif")}


FORM = array_records.Form(
    name="lesion_images",
    version="1.0.0",
    features=_features,
    metadata=frozenset(
        {"branches", "face_detector", "apply_exif", "max_regions", "counts"}
    ),
    shared=_shared,
)


class _Summary:
    """Counts the photos that pass through it."""

    def __init__(self, branches):
        self._branches = branches
        self._photos = 0
        self._total, self._most = collections.Counter(), collections.Counter()

    def of(self, photos):
        for photo, data in photos:
            here = collections.Counter(region.branch for region in photo.regions)
            self._photos += 1
            self._total += here
            self._most |= here
            yield photo, data

    def metadata(self):
        return {
            "max_regions": {branch: self._most[branch] for branch in self._branches},
            "counts": {
                "photos": self._photos,
                "regions": self._total.total(),
                "branches": {branch: self._total[branch] for branch in self._branches},
            },
        }


def _example(photo, data, branches):
    height, width = photo.image.shape[:2]
    regions = photo.regions
    face = [] if photo.face is None else [photo.face]
    return {
        **array_records.picture(photo, data),
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
