"""SLEAP's files (.slp): keypoints of animals in videos, by hand or by its models.

SLEAP puts (0, 0) at the centre of the top-left pixel: 0.5 is added. A point that is
not there, or is marked as not visible, is unlabelled.

A frame with instances made by hand has those alone; another has the predicted ones,
with their scores. Only the frames that are in the file are kept, from one pass over
each video. A frame of a video has no encoded bytes of its own, so it is stored as a
JPEG of quality 95. Where the file has no video but pictures, in itself (.pkg.slp) or
beside it, they are read as photos, for nothing tells their times.
"""

import collections
import dataclasses
import functools
import pathlib

import cv2
import numpy as np

from data_prep.readers import KeypointReading, Source, Tally, keypoints
from data_prep.readers.categories import Categories
from data_prep.readers.photos import Annotation, Entry, inside
from facekp_jax import images, video

_QUALITY = 95


def read(source: Source, tally: Tally) -> KeypointReading:
    """Opens the .slp file of the folder, which must be the only one, or --annotations.

    Videos and pictures are looked for beside that file, or in --images, by the end of
    the path that it has for them. Edges, mirror pairs and the type's name are those of
    the file's skeleton, unless --skeleton says them; --group=all:NAME gives another
    name. Tracks are numbered in the file's order.

    Raises:
        ValueError: if sleap-io is not installed, the file is not there or not SLEAP's,
            none of its videos is there, or its skeletons have different nodes.
    """
    path = source.annotation_file("*.slp")
    labels = _load(path)
    skeleton = _skeleton(labels, source, path)
    folder = source.image_folder(path.parent.absolute())
    files = _files(labels, folder, path)
    if surplus := len(files) - len(set(files.values())):
        tally.noted("paths that are the same video or picture as another's", surplus)
    return keypoints.open_photos(
        _entries(labels, files, folder, tally),
        _instance,
        Categories(rest=skeleton),
        source,
        tally,
        folder=folder,
        length=len(labels.labeled_frames),
    )


def _load(path):
    try:
        import sleap_io
    except ImportError as error:
        raise ValueError(
            "--source=sleap needs sleap-io; install it with "
            "pip install 'facekp-jax[sleap]', in a checkout pip install -e '.[sleap]'"
        ) from error
    try:
        return sleap_io.load_slp(str(path), open_videos=False)
    except Exception as error:  # of h5py, of JSON, of sleap-io itself
        raise ValueError(f"{path}: not SLEAP's, or damaged: {error}") from error


def _skeleton(labels, source, path):
    nodes = {tuple(skeleton.node_names) for skeleton in labels.skeletons}
    if len(nodes) != 1:
        raise ValueError(
            f"{path}: {len(nodes)} skeletons of different nodes; one is read"
        )
    found = labels.skeletons[0]
    skeleton = keypoints.type_skeleton(
        keypoints.type_name(source, found.name or "animal"),
        found.node_names,
        found.edge_inds,
        source.skeleton,
        path,
    )
    if source.skeleton or not found.symmetry_inds:
        return skeleton
    mirror = list(range(len(found.node_names)))
    for left, right in found.symmetry_inds:
        mirror[left], mirror[right] = right, left
    return dataclasses.replace(skeleton, mirror=tuple(mirror))


def _files(labels, folder, path):
    """Stored path of each video, or picture, that is a file -> its name in folder."""
    stored = [
        text
        for one in labels.videos
        if not _is_embedded(one)
        for text in one.backend_metadata.get("filenames", [one.filename])
    ]
    files = {text: name for text in stored if (name := _find(folder, text))}
    if stored and not files:
        raise ValueError(
            f"{folder}: no {_parts(stored[0])[-1]} in it, of {path}; name the folder "
            "of its videos with --images"
        )
    return files


def _find(folder, text):
    parts = _parts(text)
    for start in range(len(parts)):
        name = "/".join(parts[start:])
        try:
            if inside(folder, name).is_file():
                return name
        except ValueError:  # an absolute path
            continue
    return None


def _parts(text):
    return pathlib.PurePosixPath(str(text).replace("\\", "/")).parts


def _is_embedded(one):
    return one.backend_metadata.get("filename") == "."


def _entries(labels, files, folder, tally):
    """Photos first, then video by video, in the order of time."""
    tracks = {id(track): number for number, track in enumerate(labels.tracks)}
    videos = {id(one): number for number, one in enumerate(labels.videos)}
    of_video = collections.defaultdict(list)
    for frame in labels.labeled_frames:
        one, number = frame.video, int(frame.frame_idx)
        annotations = _annotations(frame, tracks, tally)
        if _is_embedded(one):
            yield Entry(
                f"video{videos[id(one)]}/{number:06d}",
                annotations,
                data=functools.partial(_embedded, one, number),
            )
        elif "filenames" in one.backend_metadata:
            yield _picture(
                one.backend_metadata["filenames"], number, files, annotations
            )
        else:
            entry = Entry("", annotations, _size(one), frame=number)
            name = files.get(one.filename)
            of_video[name, None if name else one.filename].append(entry)
    for (name, stored), entries in of_video.items():
        entries.sort(key=lambda entry: entry.frame)
        if name:
            yield from _frames(name, folder / name, entries)
        else:
            name = _parts(stored)[-1]
            fault = "no such video; name the folder of the videos with --images"
            for entry in entries:
                yield _refused(entry, name, fault)


def _picture(names, number, files, annotations):
    if number not in range(len(names)):
        fault = f"no such picture: the file names {len(names):,}"
        return Entry(f"picture {number}", annotations, fault=fault)
    return Entry(files.get(names[number], names[number]), annotations)


def _frames(name, path, entries):
    """Completes the entries of a video by its frames."""
    try:
        frames = video.frames(path)
    except ValueError as error:
        for entry in entries:
            yield _refused(entry, name, str(error))
        return
    frame = next(frames)
    for entry in entries:
        while frame and frame.number < entry.frame:
            frame = next(frames, None)
        if not frame:
            fault = f"no such frame: the last of {frames.decoded:,} is before it"
            yield _refused(entry, name, fault)
        elif frame.number > entry.frame:
            yield _refused(entry, name, "frame that cannot be decoded")
        else:
            yield dataclasses.replace(
                entry,
                name=f"{name}/{entry.frame:06d}",
                data=functools.partial(_jpeg, frame.image),
                video=name,
                time=frame.time,
            )


def _refused(entry, name, fault):
    return dataclasses.replace(entry, name=f"{name}/{entry.frame:06d}", fault=fault)


def _size(one):
    """(width, height) of a video, if stated."""
    shape = one.backend_metadata.get("shape") or (None,) * 4
    return shape[2], shape[1]


def _annotations(frame, tracks, tally):
    made, predicted = frame.user_instances, frame.predicted_instances
    if made and predicted:
        what = "predicted instances beside those made by hand, left out"
        tally.noted(what, len(predicted))
    elif predicted:
        tally.noted("frames with predicted instances alone")
    annotations = []
    for number, instance in enumerate(made or predicted, 1):
        places = instance.numpy() + 0.5
        labelled = np.where(np.isnan(places).any(1), 0, 2)
        track = tracks.get(id(instance.track))
        score = 1.0 if made else float(instance.score)
        value = np.column_stack([places, labelled]), track, score
        annotations.append(Annotation(f"instance {number}", None, value))
    return annotations


def _jpeg(image):
    pixels = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    settings = [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]
    return cv2.imencode(".jpg", pixels, settings)[1].tobytes()


def _embedded(one, number):
    """A picture of the file itself, which is stored as a PNG."""
    try:
        if one.backend is None:
            one.open()
        image = one[number]
    except Exception as error:  # of h5py, of OpenCV, of sleap-io itself
        raise ValueError(f"not to be read from the file: {error}") from error
    return images.encode_png(image.repeat(3 // image.shape[2], axis=2))


def _instance(skeleton, value, size, repairs):
    points, track, score = value
    keypoints.check_finite(points, repairs)
    return keypoints.instance(skeleton, points, size, repairs, track=track, score=score)
