"""Keypoint images on disk: photos and video frames with their people and animals."""

import functools
import itertools
import math
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow_datasets as tfds

from facekp_jax import array_records, images, masks, skeletons
from facekp_jax.records import Instance, InstanceOfImage, KeypointImage
from facekp_jax.skeletons import Skeleton


def write(
    directory: str | os.PathLike,
    split: str,
    photos: Iterable[tuple[KeypointImage, bytes]],
    *,
    skeletons: Sequence[Skeleton],
    apply_exif: bool = True,
    overwrite: bool = False,
) -> None:
    """Writes one split of a data set; other splits in the folder stay.

    The split appears only when it is whole: an interrupted or failed write leaves
    what was there before. A video's frames follow one another, in the order of time.

    Args:
        directory: folder of the data set.
        split: name of the split, such as "train".
        photos: records, each with its picture's encoded bytes.
        skeletons: the target types that this split's photos are labelled for.
        apply_exif: how the pictures were decoded when they were annotated.
        overwrite: replace a split of this name.

    Raises:
        ValueError: for a wrong name, an existing split, settings or a skeleton that
            other splits of the data set have otherwise, no photo at all, or a record
            that is not as `records` describes it; names the record.
    """
    settings = _settings(skeletons, apply_exif)
    summary = _Summary(skeletons)
    examples = (_example(photo, data, skeletons) for photo, data in summary.of(photos))
    array_records.write(
        FORM, directory, split, examples, settings, summary.metadata, overwrite
    )


def check_writable(
    directory: str | os.PathLike,
    split: str,
    *,
    skeletons: Sequence[Skeleton],
    apply_exif: bool = True,
    overwrite: bool = False,
) -> None:
    """Raises the ValueError that `write` would raise before its first record."""
    settings = _settings(skeletons, apply_exif)
    array_records.check_writable(FORM, directory, split, settings, overwrite)


class KeypointImages:
    """Random access to one split; for threads and, pickled, for processes.

    Attributes:
        skeletons: of the whole data set, in the same order for each split.
        apply_exif: how the pictures are decoded.
        splits: names of the data set's splits.
        max_instances: most instances on one photo, over all splits.
        counts: split -> its "photos", "instances", "videos" and, by "skeletons",
            "instances" and, by "keypoints", numbers [unlabelled, occluded, visible].
        instances: [N, 2] int64, record and number in it of each instance of this split
            with a labelled keypoint.
        videos: name -> range of the records that are its frames, of this split.
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
        by_split = {
            name: tuple(map(skeletons.from_dict, m["skeletons"]))
            for name, m in metadata.items()
        }
        self._split_skeletons = by_split[split]
        self.skeletons = tuple(
            {s.name: s for s in itertools.chain(*by_split.values())}.values()
        )
        self.max_instances = max(m["max_instances"] for m in metadata.values())
        self.counts = {name: m["counts"] for name, m in metadata.items()}
        self.apply_exif = metadata[split]["apply_exif"]
        self.instances = np.reshape(metadata[split]["instances"], (-1, 2)).astype(int)
        self.videos = {
            name: range(*ends) for name, ends in metadata[split]["videos"].items()
        }

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> KeypointImage:
        return self.with_bytes(index)[0]

    def with_bytes(self, index: int) -> tuple[KeypointImage, bytes]:
        """A record and its picture's encoded bytes, as `write` takes them."""
        example = self._examples[index]
        name, image = array_records.decoded(example, self._decode, self.apply_exif)
        ignore = example["ignore"]
        record = KeypointImage(
            name=name,
            image=image,
            instances=tuple(self._instances(example)),
            labelled=tuple(self._split_skeletons[i].name for i in example["labelled"]),
            ignore=masks.from_rle({"size": [*image.shape[:2]], "counts": ignore})
            if ignore
            else None,
            video=example["video"].decode(),
            frame=int(example["frame"]),
            time=float(example["time"]),
        )
        return record, example["image"]

    def __reduce__(self):
        opened = functools.partial(KeypointImages, decode=self._decode)
        return opened, (self.directory, self.split)

    def _instances(self, example):
        start = 0
        for kind, box, area, track, score in zip(
            example["types"],
            example["boxes"],
            example["areas"],
            example["tracks"],
            example["scores"],
            strict=True,
        ):
            skeleton = self._split_skeletons[kind]
            end = start + len(skeleton.keypoints)
            yield Instance(
                skeleton=skeleton.name,
                keypoints=example["keypoints"][start:end],
                box=box,
                area=float(area),
                track=None if track == _NO_TRACK else int(track),
                score=float(score),
            )
            start = end


class Instances:
    """The instances of a source that have a labelled keypoint, one by one.

    Attributes:
        photos: the source, `KeypointImages` or another with such `instances`.
    """

    def __init__(self, photos):
        self.photos = photos
        self.numbers = photos.instances

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> InstanceOfImage:
        photo, number = self.numbers[index]
        return InstanceOfImage(self.photos[int(photo)], int(number))


class KeypointVideo(NamedTuple):
    """A video: the frames of it that are annotated, in the order of time."""

    name: str
    frames: Sequence[KeypointImage]  # each decoded when it is asked for


class KeypointVideos:
    """The videos of a split, by number; photos that are of none are left out.

    Attributes:
        images: all records of the split.
    """

    def __init__(
        self, directory: str | os.PathLike, split: str, *, decode=images.decode
    ):
        """Opens a split, as `KeypointImages` does."""
        self.images = KeypointImages(directory, split, decode=decode)
        self._names = tuple(self.images.videos)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> KeypointVideo:
        name = self._names[index]
        return KeypointVideo(name, _Frames(self.images, self.images.videos[name]))


class _Frames(Sequence):
    def __init__(self, source, records):
        self._source, self._records = source, records

    def __len__(self):
        return len(self._records)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return _Frames(self._source, self._records[index])
        return self._source[self._records[index]]


_NO_TRACK = -1


def _features():
    # An empty Sequence loses its shape in TFDS; a Tensor with a free axis keeps it.
    def numbers(dtype, *columns):
        return tfds.features.Tensor(shape=(None, *columns), dtype=dtype)

    def exact(*shape):  # TFDS keeps floats in 32 bits unless they are bytes
        return tfds.features.Tensor(shape=shape, dtype=np.float64, encoding="bytes")

    return {
        "labelled": numbers(np.int32),  # into the metadata's skeletons
        "types": numbers(np.int32),  # of each instance, likewise
        "boxes": numbers(np.float32, 4),
        "areas": exact(None),
        "tracks": numbers(np.int64),
        "scores": exact(None),
        "keypoints": numbers(np.float32, 3),  # of all instances, one after another
        "ignore": tfds.features.Text(),  # COCO run lengths, empty if there is none
        "video": tfds.features.Text(),
        "frame": tfds.features.Scalar(np.int64),
        "time": exact(),  # seconds
    }


def _settings(types, apply_exif):
    if not types:
        raise ValueError("no skeleton to write photos for; name a target type or more")
    names = [skeleton.name for skeleton in types]
    if doubles := sorted({n for n in names if names.count(n) > 1}):
        raise ValueError(f"two skeletons of the name {doubles[0]!r}; rename one")
    return {
        "skeletons": [skeletons.to_dict(skeleton) for skeleton in types],
        "apply_exif": apply_exif,
    }


def _shared(metadata):
    parts = {
        f"{part} of the skeleton {skeleton['name']!r}": value
        for skeleton in metadata["skeletons"]
        for part, value in skeleton.items()
        if part != "name"
    }
    return {"apply_exif": metadata["apply_exif"], **parts}


FORM = array_records.Form(
    name="keypoint_images",
    version="1.0.0",
    features=_features,
    metadata=frozenset(
        {"skeletons", "apply_exif", "max_instances", "counts", "instances", "videos"}
    ),
    shared=_shared,
)


class _Summary:
    """Checks, counts and indexes the photos that pass through it."""

    def __init__(self, types):
        self._types = {skeleton.name: skeleton for skeleton in types}
        self._visibilities = {
            name: np.zeros((len(skeleton.keypoints), 3), int)
            for name, skeleton in self._types.items()
        }
        self._of_type = dict.fromkeys(self._types, 0)
        self._photos = self._most = 0
        self._instances = []
        self._videos = {}
        self._last = None

    def of(self, photos):
        for photo, data in photos:
            if fault := next(_faults(photo, self._types), None):
                raise ValueError(f"{photo.name}: {fault}")
            self._frame(photo)
            for number, instance in enumerate(photo.instances):
                seen = instance.keypoints[:, 2, None] == (0, 1, 2)
                self._visibilities[instance.skeleton] += seen
                self._of_type[instance.skeleton] += 1
                if instance.keypoints[:, 2].any():
                    self._instances.append([self._photos, number])
            self._most = max(self._most, len(photo.instances))
            self._photos += 1
            yield photo, data

    def _frame(self, photo):
        last, self._last = self._last, photo
        if not photo.video:
            return
        if photo.video not in self._videos:
            self._videos[photo.video] = [self._photos, self._photos + 1]
            return
        if last.video != photo.video:
            raise ValueError(
                f"{photo.name}: video {photo.video!r} goes on after {last.name}; its "
                "frames must follow one another"
            )
        if photo.frame <= last.frame or photo.time <= last.time:
            raise ValueError(
                f"{photo.name}: frame {photo.frame} at {photo.time} s of "
                f"{photo.video!r} comes after frame {last.frame} at {last.time} s; "
                "frames must be in the order of time"
            )
        self._videos[photo.video][1] += 1

    def metadata(self):
        return {
            "max_instances": self._most,
            "instances": self._instances,
            "videos": self._videos,
            "counts": {
                "photos": self._photos,
                "instances": sum(self._of_type.values()),
                "videos": len(self._videos),
                "skeletons": {
                    name: {
                        "instances": self._of_type[name],
                        "keypoints": dict(
                            zip(
                                skeleton.keypoints,
                                self._visibilities[name].tolist(),
                                strict=True,
                            )
                        ),
                    }
                    for name, skeleton in self._types.items()
                },
            },
        }


def _faults(photo, types):
    """What of a record is not as `records` describes it."""
    for name in photo.labelled:
        if name not in types:
            yield f"labelled for {name!r}, none of the skeletons {', '.join(types)}"
    if not math.isfinite(photo.time):
        yield f"its time is {photo.time} s"
    for number, instance in enumerate(photo.instances):
        for fault in _instance_faults(instance, photo.labelled, types):
            yield f"instance {number}: {fault}"
    if photo.ignore is not None:
        height, width = photo.image.shape[:2]
        inside = masks.clip(photo.ignore, height, width).pixels
        if np.count_nonzero(inside) < np.count_nonzero(photo.ignore.pixels):
            yield f"ignored pixels outside its {width} x {height} pixels"


def _instance_faults(instance, labelled, types):
    kind, keypoints = instance.skeleton, np.asarray(instance.keypoints)
    if kind not in labelled:
        yield f"is {kind!r}, but the photo is labelled for {', '.join(labelled) or '-'}"
        return
    names = types[kind].keypoints
    if keypoints.shape != (len(names), 3):
        yield f"keypoints {keypoints.shape}; those of {kind!r} are {(len(names), 3)}"
        return
    points, visibility = keypoints[:, :2], keypoints[:, 2]
    for wrong, cure in (
        (~np.isin(visibility, (0, 1, 2)), "visibility is 0, 1 or 2"),
        (~np.isfinite(points).all(1), "a position is finite"),
        ((visibility == 0) & points.any(1), "an unlabelled keypoint lies at 0, 0"),
    ):
        for k in np.flatnonzero(wrong):
            yield f"keypoint {names[k]!r} is {keypoints[k].tolist()}; {cure}"
    box = np.asarray(instance.box)
    if box.shape != (4,) or not np.isfinite(box).all():
        yield f"box {box.tolist()} is not four finite numbers"
    if not math.isfinite(instance.area) or instance.area < 0:
        yield f"area {instance.area}"
    if instance.track is not None and instance.track < 0:
        yield f"track {instance.track}; tracks count from 0"
    if instance.keypoint_scores is not None:
        yield "scores of keypoints are a prediction's, and not kept"


def _example(photo, data, types):
    names = [skeleton.name for skeleton in types]
    instances = photo.instances
    tracks = [_NO_TRACK if i.track is None else i.track for i in instances]
    keypoints = [np.zeros((0, 3)), *(i.keypoints for i in instances)]
    height, width = photo.image.shape[:2]
    return {
        **array_records.picture(photo, data),
        "labelled": np.array([names.index(n) for n in photo.labelled], np.int32),
        "types": np.array([names.index(i.skeleton) for i in instances], np.int32),
        "boxes": np.reshape([i.box for i in instances], (-1, 4)).astype(np.float32),
        "areas": np.array([i.area for i in instances], np.float64),
        "tracks": np.array(tracks, np.int64),
        "scores": np.array([i.score for i in instances], np.float64),
        "keypoints": np.concatenate(keypoints).astype(np.float32),
        "ignore": ""
        if photo.ignore is None
        else masks.to_rle(photo.ignore, height, width)["counts"],
        "video": photo.video,
        "frame": photo.frame,
        "time": photo.time,
    }
