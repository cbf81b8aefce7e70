"""Pascal VOC's annotation files: one XML file with boxes for each photo.

VOC's boxes are indices of pixels, the first one 1 and the last one included. The pixel
of index i covers [i - 1, i] here, so that (xmin, ymin, xmax, ymax) becomes
(xmin - 1, ymin - 1, xmax, ymax). Objects marked `difficult` are kept as areas to
ignore, as VOC's own evaluation does: never a target, and no negative either.
Segmentation masks of VOC are not read.
"""

import pathlib
import xml.etree.ElementTree as ElementTree

from data_prep.readers import Reading, Source, Tally
from data_prep.readers.categories import branch_name, categories
from data_prep.readers.files import xml_key
from data_prep.readers.photos import (
    Annotation,
    Entry,
    clip_box,
    inside,
    open_photos,
)
from facekp_jax import images
from facekp_jax.records import Region

_CORNERS = ("xmin", "ymin", "xmax", "ymax")


def read(source: Source, tally: Tally) -> Reading:
    """Opens a Pascal VOC data set: Annotations/*.xml and JPEGImages/.

    With ImageSets/Main/, the split is the list of its name there; without, all files.
    The categories are the names of all objects of all files, in alphabetical order,
    also of files that are not in the split: what is never found there is a true
    negative. VOC knows no supercategories, and what means none need not occur.

    Raises:
        ValueError: if the files are not there, or name no object.
    """
    annotations = source.annotation_folder("Annotations")
    image_folder = source.image_folder("JPEGImages")
    everything = sorted(path.name for path in annotations.glob("*.xml"))
    if not everything:
        raise ValueError(f"{annotations}: no XML file in it")
    lists = pathlib.Path(source.folder, "ImageSets", "Main")
    names = _listed(lists, source.split) or everything
    declared = _declared(annotations, everything, source.none)
    kinds = categories(
        declared, group=source.group, none=source.none, where=annotations
    )
    return open_photos(
        _entries(annotations, names, image_folder, names is everything, tally),
        _region,
        kinds,
        source,
        tally,
        folder=image_folder,
        length=len(names),
    )


def _listed(lists, split):
    """Names of the split's XML files, or None if there are no lists."""
    if not lists.is_dir():
        return None
    path = lists / f"{split}.txt"
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in lists.glob("*.txt"))) or "none"
        raise ValueError(f"{path}: no such list; --split={split} is not of {there}")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except ValueError as error:
        raise ValueError(f"{path}: not a list of names in UTF-8: {error}") from error
    names = [line.split()[0] for line in lines if line.strip()]
    if not names:
        raise ValueError(f"{path}: not one photo in it")
    return [f"{name}.xml" for name in names]


def _declared(folder, files, none):
    """The names of all objects in the form of COCO's categories."""
    names = set()
    for file in files:
        try:
            names |= {_text(o, "name") for o in _parse(folder, file).findall("object")}
        except ValueError:
            continue  # told of when its photo comes
    # What means none may be missing in one part of the data and not in another.
    known = {branch_name(name) for name in names if name}
    names |= {name for name in none if branch_name(name) not in known}
    return [{"id": name, "name": name} for name in sorted(names) if name]


def _entries(folder, files, image_folder, whole, tally):
    named = set()
    for file in files:
        try:
            root = _parse(folder, file)
            entry = Entry(
                name=_text(root, "filename") or file,
                annotations=[
                    Annotation(
                        f"object {number}",
                        _text(item, "name"),
                        item,
                        xml_key(item),
                    )
                    for number, item in enumerate(root.findall("object"), 1)
                ],
                size=(_pixels(root, "width"), _pixels(root, "height")),
                fault="" if _text(root, "filename") else "no filename",
            )
        except ValueError as error:
            entry = Entry(file, fault=str(error))
        named.add(entry.name)
        yield entry
    if whole:
        pictures = [
            p for p in image_folder.iterdir() if p.suffix.lower() in images.SUFFIXES
        ]
        without = sum(p.name not in named for p in pictures)
        if without:
            tally.noted(
                "pictures without an annotation file (unknown), left out", without
            )


def _parse(folder, file):
    try:
        root = ElementTree.fromstring(inside(folder, file).read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from error
    except (ElementTree.ParseError, LookupError) as error:
        raise ValueError(f"not XML: {error}") from error
    if root.tag != "annotation":
        raise ValueError(f"not VOC's XML: <{root.tag}> instead of <annotation>")
    return root


def _text(item, tag):
    return (item.findtext(tag) or "").strip()


def _pixels(root, key):
    """A side of the picture as stated; 0, which some programs write, states nothing."""
    text = _text(root, f"size/{key}")
    try:
        return int(float(text or 0))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{key} {text!r} is no number of pixels") from error


def _region(branch, item, size, repairs):
    try:
        x0, y0, x1, y1 = (float(_text(item, f"bndbox/{key}")) for key in _CORNERS)
    except ValueError as error:
        raise ValueError("box that is not four finite numbers") from error
    box = clip_box([x0 - 1, y0 - 1, x1, y1], size, repairs)
    return Region(branch, box, crowd=_text(item, "difficult") == "1")
