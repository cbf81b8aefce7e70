"""Label Studio's JSON export: keypoints, and the rectangles that they belong to.

Places are hundredths of the picture's width and height, continuous with (0, 0) at its
top-left corner, as here: they are multiplied by the size and nothing is shifted. All
keypoints are visible, for the export does not tell occluded ones apart.

A rectangle is an instance and its box. A keypoint belongs to the rectangle that is its
parent or that a relation joins it with, else to the smallest around it that has none of
its name yet. Without rectangles, the keypoints of a picture are of one instance.
"""

import pathlib
import re
import urllib.parse
from typing import NamedTuple

import numpy as np

from data_prep.readers import KeypointReading, Source, Tally, keypoints
from data_prep.readers.categories import Categories
from data_prep.readers.files import read_json
from data_prep.readers.photos import Annotation, Entry, inside
from facekp_jax import images

_UPLOAD = re.compile(r"[0-9a-f]{8}-")  # goes before the name of an uploaded picture
_RECTANGLE, _KEYPOINT, _RELATION = "rectanglelabels", "keypointlabels", "relation"


def read(source: Source, tally: Tally) -> KeypointReading:
    """Opens the .json file of the folder, which must be the only one, or --annotations.

    Pictures are looked for by their names alone, in images/, in the folder, or in
    --images. --skeleton says what the keypoints are. Of several annotations of a
    picture the first is read; a picture without any is left out.

    Raises:
        ValueError: if the file is not there or not Label Studio's, or there is no
            --skeleton.
    """
    path = source.annotation_file("*.json")
    tasks = _load(path)
    name = keypoints.type_name(source, "instance")
    skeleton = keypoints.type_skeleton(name, None, (), source.skeleton, path)
    folder = source.image_folder("images", "")
    return keypoints.open_photos(
        _entries(tasks, skeleton, folder, tally),
        _instance,
        Categories(rest=skeleton),
        source,
        tally,
        folder=folder,
        length=len(tasks),
    )


def _load(path):
    tasks = read_json(path)
    if not isinstance(tasks, list) or not all(
        isinstance(task, dict)
        and isinstance(task.get("data"), dict)
        and isinstance(task.get("annotations"), list)
        and all(isinstance(a, dict) for a in task["annotations"])
        for task in tasks
    ):
        raise ValueError(
            f"{path}: not Label Studio's JSON export, a list of tasks with data and "
            "annotations (JSON-MIN and others are not read)"
        )
    return tasks


def _entries(tasks, skeleton, folder, tally):
    for task in tasks:
        done = [a for a in task["annotations"] if not a.get("was_cancelled")]
        if not done:
            tally.noted("tasks without an annotation (unknown), left out")
            continue
        if len(done) > 1:
            tally.noted("further annotations of a task, left out", len(done) - 1)
        name = _picture(task, folder)
        try:
            entry, refused = _entry(name, done[0]["result"], skeleton, tally)
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as e:
            fault = f"annotation that is not Label Studio's ({e!r})"
            entry, refused = Entry(name, fault=fault), ()
        for reason in refused:
            tally.refused("keypoints", reason, name)
        yield entry


def _picture(task, folder):
    """The picture's name in the folder, whatever address the task has for it."""
    names = []
    for text in (task.get("file_upload"), *task["data"].values()):
        try:
            address = urllib.parse.urlsplit(str(text))
        except ValueError:  # a text that is no address
            continue
        local = urllib.parse.parse_qs(address.query).get("d", [address.path])[0]
        name = urllib.parse.unquote(local).replace("\\", "/").split("/")[-1]
        if pathlib.PurePath(name).suffix.lower() in images.SUFFIXES:
            names += [name, _UPLOAD.sub("", name, count=1)]
    there = (name for name in names if inside(folder, name).is_file())
    return next(there, names[0] if names else f"task {task.get('id')}")


def _entry(name, results, skeleton, tally):
    """The picture's entry, and of each keypoint that cannot be used the reason."""
    kinds = {kind: [] for kind in (_RECTANGLE, _KEYPOINT, _RELATION)}
    for result in results:
        if result["type"] in kinds:
            kinds[result["type"]].append(result)
        else:
            tally.noted(f"results of type {result['type']}, not read")
    rectangles = {mark["id"]: _Rectangle.of(mark) for mark in kinds[_RECTANGLE]}
    if len(rectangles) < len(kinds[_RECTANGLE]):
        raise ValueError("two rectangles of one id")
    found, refused = _grouped(kinds, rectangles, skeleton)
    marks = kinds[_RECTANGLE] + kinds[_KEYPOINT]
    turned = any(mark.get("image_rotation") for mark in marks)
    sizes = [(mark["original_width"], mark["original_height"]) for mark in marks]
    annotations = [
        Annotation(
            f"rectangle {owner}" if owner else "keypoints",
            None,
            (points, rectangles.get(owner)),
        )
        for owner, points in found.items()
    ]
    entry = Entry(
        name,
        annotations,
        size=sizes[0] if sizes else (None, None),
        fault="picture that was turned in Label Studio" if turned else "",
    )
    return entry, refused


class _Rectangle(NamedTuple):
    """Hundredths of the picture's width and height."""

    left: float
    top: float
    width: float
    height: float
    turned: bool

    @classmethod
    def of(cls, mark):
        value = mark["value"]
        sides = (float(value[key]) for key in ("x", "y", "width", "height"))
        return cls(*sides, turned=bool(value.get("rotation")))

    def holds(self, x, y):
        return 0 <= x - self.left <= self.width and 0 <= y - self.top <= self.height

    def area(self):
        return self.width * self.height


def _grouped(kinds, rectangles, skeleton):
    """Rectangle's id, or None -> keypoint's name -> (x, y) in hundredths; refusals."""
    joined = {}
    for relation in kinds[_RELATION]:
        ends = relation["from_id"], relation["to_id"]
        joined |= {a: b for a, b in (ends, ends[::-1]) if b in rectangles}
    if not rectangles and not kinds[_KEYPOINT]:
        return {}, []
    found, refused = {owner: {} for owner in rectangles or (None,)}, []
    for mark in kinds[_KEYPOINT]:
        value, (label, *others) = mark["value"], mark["value"]["keypointlabels"]
        x, y = float(value["x"]), float(value["y"])
        parent = mark.get("parentID") or joined.get(mark["id"])
        owners = [parent] if parent in rectangles else _around(x, y, rectangles)
        free = [owner for owner in owners if label not in found[owner]]
        if others or label not in skeleton.keypoints:
            refused.append(f"{', '.join([label, *others])}: no name in --skeleton")
        elif not owners:
            refused.append("in no rectangle")
        elif not free:
            refused.append(f"second {label} of an instance")
        else:
            found[free[0]][label] = x, y
    return found, refused


def _around(x, y, rectangles):
    """Ids of the rectangles that the point is in, the smallest first."""
    if not rectangles:
        return [None]
    around = [owner for owner, sides in rectangles.items() if sides.holds(x, y)]
    return sorted(around, key=lambda owner: rectangles[owner].area())


def _instance(skeleton, value, size, repairs):
    places, rectangle = value
    unit = np.array(size[::-1]) / 100
    points = np.zeros((len(skeleton.keypoints), 3))
    for name, place in places.items():
        with np.errstate(over="ignore"):  # infinity is told below
            points[skeleton.keypoints.index(name)] = *(place * unit), 2
    keypoints.check_finite(points, repairs)
    box = None
    if rectangle and rectangle.turned:
        repairs.append("turned rectangle left out")
    elif rectangle:
        corner = np.array([rectangle.left, rectangle.top])
        sides = np.array([rectangle.width, rectangle.height])
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers beyond all
            box = [*(corner * unit), *((corner + sides) * unit)]
    return keypoints.instance(skeleton, points, size, repairs, box=box)
