"""dlib's XML, as its imglab writes it: boxes, and in them parts, which are keypoints.

Parts are indices of pixels: 0.5 is added. A box is (left, top, width, height) of whole
pixels, and covers left to left + width here. Boxes marked `ignore` are areas to ignore.
"""

import functools
import xml.etree.ElementTree as ElementTree

import numpy as np

from data_prep.readers import KeypointReading, Source, Tally, keypoints
from data_prep.readers.categories import Categories
from data_prep.readers.files import xml_key
from data_prep.readers.photos import Annotation, Entry, clip_box
from facekp_jax import skeletons


def read(source: Source, tally: Tally) -> KeypointReading:
    """Opens the XML file of the folder, which must be the only one, or --annotations.

    File names start at its folder, or at --images. Parts 00 to 67 are the landmarks of
    a face, and the type is `face`; others want --skeleton, in which a part is found by
    its name or by its number.

    Raises:
        ValueError: if the file is not there, not dlib's, or its parts are unknown.
    """
    path = source.annotation_file("*.xml")
    items = _images(path)
    names = {p.get("name") for item in items for p in item.iterfind("box/part")}
    given = source.skeleton or skeletons.FACE68
    numbers = _numbers(names, given, path, bool(source.skeleton))
    skeleton = keypoints.type_skeleton(
        keypoints.type_name(source, "face"), None, (), given, path
    )
    return keypoints.open_photos(
        map(_entry, items),
        functools.partial(_instance, numbers=numbers),
        Categories(rest=skeleton),
        source,
        tally,
        folder=source.image_folder(path.parent.absolute()),
        length=len(items),
    )


def _images(path):
    try:
        root = ElementTree.fromstring(path.read_bytes())
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise ValueError(f"{path}: not XML: {error}") from error
    if root.tag != "dataset":
        raise ValueError(f"{path}: not dlib's; <{root.tag}> instead of <dataset>")
    return root.findall("images/image")


def _numbers(names, skeleton, path, given):
    """Name of a part -> number of its keypoint."""
    if not names:
        raise ValueError(f"{path}: no box in it has parts")
    by_name = {name.casefold(): k for k, name in enumerate(skeleton.keypoints)}
    numbers = {}
    for name in sorted(names, key=str):
        text = str(name)
        number = _whole(text)
        if number is None:
            number = len(by_name)
        numbers[name] = by_name.get(text.casefold(), number)
        if numbers[name] >= len(by_name):
            cure = (
                f"which is none of --skeleton's {len(by_name)} keypoints"
                if given
                else "which is no landmark 00 to 67; say with --skeleton what it is"
            )
            raise ValueError(f"{path}: part {text!r}, {cure}")
    return numbers


def _entry(item):
    name = item.get("file")
    return Entry(
        name=name or "?",
        annotations=[
            Annotation(f"box {number}", None, box, xml_key(box))
            for number, box in enumerate(item.findall("box"), 1)
        ],
        size=(_whole(item.get("width")), _whole(item.get("height"))),
        fault="" if name else "no file",
    )


def _whole(text):
    """The number from 0 that a text is, or None."""
    try:
        return int(text) if text and text.isdecimal() else None
    except ValueError:  # of thousands of digits
        return None


def _instance(skeleton, item, size, repairs, *, numbers):
    left, top, width, height = (
        _number(item, key) for key in ("left", "top", "width", "height")
    )
    box = [left, top, left + width, top + height]
    if item.get("ignore") == "1":
        return keypoints.box_patch(clip_box(box, size, repairs))
    points = np.zeros((len(skeleton.keypoints), 3))
    for part in item.findall("part"):
        point = points[numbers[part.get("name")]]
        if point[2]:
            raise ValueError(f"part {part.get('name')} twice")
        point[:] = _number(part, "x") + 0.5, _number(part, "y") + 0.5, 2
    keypoints.check_finite(points, repairs)
    return keypoints.instance(skeleton, points, size, repairs, box=box)


def _number(item, key):
    """The attribute as a number; not a number where it is none."""
    try:
        return float(item.get(key, "nan"))
    except ValueError:
        return np.nan
