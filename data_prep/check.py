"""Reads a whole data set again, reports faults, and draws what is in it.

    python -m data_prep.check DIR [--contact_sheet=sheet.png]

Faults are pictures that do not decode, and labels that do not fit their photo or its
video. Pictures that are (nearly) the same in two splits are reported beside them.
"""

import collections
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np
from absl import flags
from tqdm import tqdm

from data_prep import duplicates, forms
from facekp_jax import command, datasets, drawing, images, masks
from facekp_jax.keypoint_images import KeypointImages
from facekp_jax.lesion_images import LesionImages

_CONTACT_SHEET = flags.DEFINE_string(
    "contact_sheet", None, "picture file to draw annotated photos into"
)
_SAMPLES = 24  # photos on the contact sheet
_TILE = 480  # pixels
_NAMES_SHOWN = 5


def main(_: Mapping[str, str], directory: str) -> dict[str, Any]:
    sheet = _CONTACT_SHEET.value
    if sheet and pathlib.Path(sheet).suffix.lower() not in images.SUFFIXES:
        raise command.UsageError(
            f"--contact_sheet={sheet}: end in {', '.join(images.SUFFIXES)}"
        )
    try:
        sources = {
            split: datasets.open_split(directory, split, decode=images.decode_strictly)
            for split in datasets.splits(directory)
        }
    except ValueError as error:
        raise command.UsageError(str(error)) from error
    checks = {split: FORMS[type(source)](source) for split, source in sources.items()}
    faults, names, fingerprints = [], {}, {}
    for split, check in checks.items():
        names[split], fingerprints[split] = read_split(check, faults)
        print("\n".join(check.table()))
    pairs = duplicates.across_splits(names, fingerprints)
    flat = sum(int(duplicates.flat(f).sum()) for f in fingerprints.values())
    for heading, lines in (
        ("faults", faults),
        ("near-duplicates across splits", [f"{a} = {b}" for a, b in pairs]),
    ):
        print(f"{heading}: {len(lines):,}")
        for line in lines[:_NAMES_SHOWN]:
            print(f"  {line}")
        if len(lines) > _NAMES_SHOWN:
            print(f"  and {len(lines) - _NAMES_SHOWN:,} more")
    print(f"photos too flat to have a near-duplicate: {flat:,}")
    if sheet:
        drawn = drawing.contact_sheet(list(samples(checks.values())), side=_TILE)
        if not cv2.imwrite(sheet, cv2.cvtColor(drawn, cv2.COLOR_RGB2BGR)):
            raise ValueError(f"--contact_sheet={sheet}: cannot write there")
        print(f"contact sheet: {sheet}")
    summary = {
        "directory": directory,
        "splits": {split: check.counts() for split, check in checks.items()},
        "faults": len(faults),
        "near_duplicates": len(pairs),
    }
    if faults:
        raise command.Failed(
            f"{directory}: faults found: {len(faults):,}, as above", summary
        )
    return summary


def samples(checks):
    """Annotated photos taken evenly from all splits, without the unreadable ones."""
    everything = [(check, i) for check in checks for i in range(len(check.source))]
    chosen = np.linspace(0, len(everything) - 1, _SAMPLES).round().astype(int)
    for index in np.unique(chosen):
        check, i = everything[index]
        try:
            photo = check.source[i]
        except ValueError:
            continue  # among the faults already
        yield check.draw(photo)


def read_split(check, faults):
    """Names and fingerprints of the photos that can be read; appends to faults."""
    source, names, fingerprints = check.source, [], []
    seen = set()
    for i in tqdm(range(len(source)), desc=source.split, unit="photo", disable=None):
        try:
            photo = source[i]
        except ValueError as error:
            faults.append(f"{source.split}, photo {i}: {error}")
            continue
        name = photo.name
        faults += [f"{source.split}/{name}: {fault}" for fault in check.faults(photo)]
        if name in seen:
            faults.append(f"{source.split}/{name}: name is there twice")
        seen.add(name)
        names.append(name)
        fingerprints.append(duplicates.fingerprint(photo.image))
    return names, duplicates.stacked(fingerprints)


class LesionCheck:
    """A split of lesion images: what is wrong with a photo, what to count and draw."""

    def __init__(self, source):
        self.source = source

    def faults(self, photo):
        height, width = photo.image.shape[:2]
        beside = f"is not in the photo of {width}x{height}"
        if photo.face is not None and not _fits(photo.face, height, width):
            yield f"face {photo.face.tolist()} {beside}"
        for region in photo.regions:
            title = f"{region.branch} {region.box.tolist()}"
            if not _fits(region.box, height, width):
                yield f"{title} {beside}"
            if region.branch not in photo.labelled:
                yield f"{title}, but the photo is not labelled for {region.branch}"
            for part in ("mask", "pixels"):
                patch = getattr(region, part)
                if patch is not None and not patch.pixels.any():
                    yield f"{title}: its {part} is empty"

    def counts(self):
        return self.source.counts[self.source.split]

    def table(self):
        counts = self.counts()
        yield (
            f"{self.source.split}: {counts['photos']:,} photos, "
            f"{counts['regions']:,} regions"
        )
        for branch, number in counts["branches"].items():
            yield f"  {branch}: {number:,}"

    def draw(self, photo):
        faces = [] if photo.face is None else [photo.face]
        branches = self.source.branches
        return drawing.overlay(
            photo.image,
            photo.regions,
            branches=branches,
            unknown=set(branches) - set(photo.labelled),
            faces=faces,
        )


class KeypointCheck:
    """A split of keypoint images, likewise; `faults` takes its photos in order."""

    def __init__(self, source):
        self.source = source
        self._skeletons = {skeleton.name: skeleton for skeleton in source.skeletons}
        self._types = {}  # (video, track) -> target type
        self._videos = set()
        self._last = None

    def faults(self, photo):
        yield from self._frame_faults(photo)
        height, width = photo.image.shape[:2]
        for number, instance in enumerate(photo.instances):
            title = f"{instance.skeleton}, instance {number}"
            if instance.skeleton not in photo.labelled:
                yield f"{title}: the photo is not labelled for {instance.skeleton}"
            if not _fits(instance.box, height, width):
                box = instance.box.tolist()
                yield f"{title}: box {box} is not in the photo of {width}x{height}"
            if not (math.isfinite(instance.area) and instance.area > 0):
                yield f"{title}: its area is {instance.area}"
            for fault in self._keypoint_faults(instance, height, width):
                yield f"{title}: {fault}"
        ignore = photo.ignore
        if ignore is not None:
            there = np.count_nonzero(ignore.pixels)
            inside = np.count_nonzero(masks.clip(ignore, height, width).pixels)
            if not there:
                yield "its ignored area is empty"
            if inside < there:
                yield f"{there - inside:,} ignored pixels are not in the photo"

    def _keypoint_faults(self, instance, height, width):
        names = self._skeletons[instance.skeleton].keypoints
        if instance.keypoints.shape != (len(names), 3):
            yield f"keypoints {instance.keypoints.shape}, not {(len(names), 3)}"
            return
        for name, (x, y, visibility) in zip(
            names, instance.keypoints.tolist(), strict=True
        ):
            if visibility not in (0, 1, 2):
                yield f"{name}: visibility {visibility} is not 0, 1 or 2"
            elif visibility == 0 and (x, y) != (0, 0):
                yield f"{name}: unlabelled, but at {x}, {y}"
            elif not (0 <= x <= width and 0 <= y <= height):
                yield f"{name}: {x}, {y} is not in the photo of {width}x{height}"

    def _frame_faults(self, photo):
        last, self._last = self._last, photo
        video = photo.video
        if video and last is not None and last.video == video:
            if photo.frame <= last.frame or not photo.time > last.time:
                yield (
                    f"frame {photo.frame} at {photo.time} s of {video} after frame "
                    f"{last.frame} at {last.time} s"
                )
        elif video in self._videos:
            yield f"frame {photo.frame} of {video} is apart from the video's others"
        if video:
            self._videos.add(video)
        tracks = collections.Counter(i.track for i in photo.instances)
        for track, number in tracks.items():
            if track is not None and number > 1:
                yield f"track {track} is there {number} times"
        for instance in photo.instances:
            track, kind = instance.track, instance.skeleton
            before = self._types.setdefault((video, track), kind)
            if video and track is not None and kind != before:
                yield f"track {track} is {kind}, and was {before}"

    def counts(self):
        counts = self.source.counts[self.source.split]
        tracks = [track for _, track in self._types if track is not None]
        return {**counts, "tracks": len(tracks)}

    def table(self):
        counts = self.counts()
        numbers = (
            f"{counts[k]:,} {k}" for k in ("photos", "instances", "videos", "tracks")
        )
        yield f"{self.source.split}: {', '.join(numbers)}"
        for name, of_type in counts["skeletons"].items():
            yield f"  {name}: {of_type['instances']:,} instances"
            for line in forms.keypoint_table(of_type):
                yield f"    {line}"

    def draw(self, photo):
        return drawing.keypoint_overlay(
            photo.image,
            photo.instances,
            skeletons=self.source.skeletons,
            ignore=photo.ignore,
        )


FORMS = {LesionImages: LesionCheck, KeypointImages: KeypointCheck}


def _fits(box, height, width):
    """Whether the box is finite, has an area and is in the photo."""
    x0, y0, x1, y1 = box
    return 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height


if __name__ == "__main__":
    command.run(main, positional=["DIR"])
