"""DeepLabCut's projects and tables: keypoints of one animal, or of several.

A project is a folder with config.yaml, which names the bodyparts and joins them by its
`skeleton`, and with the frames that were picked for labelling: for each video,
labeled-data/VIDEO/CollectedData_SCORER.csv and the pictures beside it. The frames are
read as photos, for they do not follow one another.

The programs that make the labels (matplotlib's imshow, napari) put (0, 0) at the centre
of the top-left pixel: 0.5 is added. An empty cell or NaN is not labelled; what has a
place is visible, for the tables do not tell occluded bodyparts apart.
"""

import contextlib
import csv
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from data_prep.readers import KeypointReading, Source, Tally, keypoints
from data_prep.readers.categories import Categories
from data_prep.readers.files import read_yaml
from data_prep.readers.photos import Annotation, Entry, inside
from facekp_jax import images

_HEADER = ("scorer", "individuals", "bodyparts", "coords")
_OF_NO_ANIMAL = "single"  # the individual of bodyparts that are of none, as objects


class _Table(NamedTuple):
    path: pathlib.Path
    start: int  # number of columns that name the picture
    # individual -> bodypart -> columns of x and y
    columns: Mapping[str, Mapping[str, Sequence[int]]]
    rows: Sequence[Sequence[str]]


def read(source: Source, tally: Tally) -> KeypointReading:
    """Opens a project, or with --annotations one table, which needs no project.

    Pictures are named from the project's folder, or from --images. Edges are those of
    config.yaml's `skeleton`, or of --skeleton, and so is the type's name, else `Task`.
    Individuals are tracks where config.yaml says `identity: true`.

    Raises:
        ValueError: if the files are not there or not DeepLabCut's, or nothing joins
            the bodyparts.
    """
    path = pathlib.Path(source.folder, "config.yaml")
    config = _load(path) if path.is_file() else {}
    tables = [_table(file) for file in _files(source, config)]
    bodyparts = _listed(config, path) if config else _named(tables)
    skeleton = keypoints.type_skeleton(
        keypoints.type_name(source, config.get("Task") or "animal"),
        bodyparts,
        _edges(config, bodyparts, path),
        source.skeleton,
        path if config else tables[0].path,
    )
    individuals = [str(name) for name in config.get("individuals") or []]
    tracks = individuals if config.get("identity") else []
    folder = source.image_folder("")
    return keypoints.open_photos(
        _entries(tables, bodyparts, tracks, folder, tally),
        _instance,
        Categories(rest=skeleton),
        source,
        tally,
        folder=folder,
        length=sum(len(table.rows) for table in tables),
    )


def _load(path):
    config = read_yaml(path)
    if not isinstance(config, dict) or not config.get("bodyparts"):
        raise ValueError(f"{path}: not DeepLabCut's; it has no bodyparts")
    for key in ("individuals", "uniquebodyparts", "skeleton"):
        if not isinstance(config.get(key) or [], list):
            raise ValueError(f"{path}: {key} is {config[key]!r}; write a list")
    return config


def _listed(config, path):
    """The names of an animal's bodyparts in config.yaml."""
    key = "multianimalbodyparts" if config.get("multianimalproject") else "bodyparts"
    names = config.get(key)
    if not isinstance(names, list) or not names:
        raise ValueError(f"{path}: {key} is {names!r}; write a list of names")
    return list(map(str, names))


def _named(tables):
    """The names of an animal's bodyparts in the tables, in their order."""
    return list(
        dict.fromkeys(
            bodypart
            for table in tables
            for individual, bodyparts in table.columns.items()
            if individual != _OF_NO_ANIMAL
            for bodypart in bodyparts
        )
    )


def _edges(config, bodyparts, path):
    """Pairs of numbers of bodyparts; those with unique bodyparts are left out."""
    unique = set(map(str, config.get("uniquebodyparts") or []))
    edges = []
    for pair in config.get("skeleton") or []:
        names = [str(name) for name in pair] if isinstance(pair, list) else []
        if len(names) != 2 or not set(names) <= {*bodyparts, *unique}:
            raise ValueError(f"{path}: skeleton has {pair}, which are no two bodyparts")
        if unique.isdisjoint(names):
            edges.append(tuple(map(bodyparts.index, names)))
    return edges


def _files(source, config):
    """The tables; of two scorers in a folder, that of config.yaml comes first."""
    if source.annotations:
        return [source.annotation_file("")]
    folder = pathlib.Path(source.folder, "labeled-data")
    found = list(folder.glob("*/CollectedData*.csv"))
    if not found:
        raise ValueError(
            f"{folder}: no VIDEO/CollectedData_SCORER.csv in it (a .h5 is not read: "
            "DeepLabCut writes the same as .csv); name a table with --annotations"
        )
    first = f"CollectedData_{config.get('scorer')}"
    return sorted(found, key=lambda path: (path.parent, path.stem != first, path))


def _table(path):
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if any(row)]
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{path}: not a table of text: {error}") from error
    header = {
        row[0]: row for row in itertools.takewhile(lambda row: row[0] in _HEADER, rows)
    }
    if not {"bodyparts", "coords"} <= header.keys():
        raise ValueError(
            f"{path}: not DeepLabCut's; its first rows are scorer, bodyparts, coords"
        )
    coords = header["coords"]
    start = next((i for i, name in enumerate(coords) if i and name), len(coords))
    if others := sorted(set(coords[start:]) - {"x", "y"}):
        raise ValueError(
            f"{path}: a column of {others[0]!r} is no label's; predictions on a video "
            "are not read, but CollectedData_SCORER.csv is"
        )
    columns = {}
    whose = header.get("individuals", [""] * len(coords))
    names = zip(whose, header["bodyparts"], coords, strict=False)
    for i, (individual, bodypart, axis) in enumerate(names):
        if i >= start:
            pair = columns.setdefault(individual, {}).setdefault(bodypart, {})
            if axis in pair:
                raise ValueError(f"{path}: two columns of {bodypart} {axis}")
            pair[axis] = i
    for individual, bodyparts in columns.items():
        for bodypart, pair in bodyparts.items():
            if len(pair) < 2:
                raise ValueError(f"{path}: {bodypart} has no column of x or none of y")
            columns[individual][bodypart] = pair["x"], pair["y"]
    if not columns:
        raise ValueError(f"{path}: no column of a bodypart")
    return _Table(path, start, columns, rows[len(header) :])


def _entries(tables, bodyparts, tracks, folder, tally):
    pictures = set()
    for table in tables:
        for row in table.rows:
            name = _name(row[: table.start])
            with contextlib.suppress(ValueError):
                pictures.add(inside(folder, name))
            yield _entry(name, row, table, bodyparts, tracks, tally)
    there = {
        path
        for parent in {picture.parent for picture in pictures}
        if parent.is_dir()
        for path in parent.iterdir()
        if path.suffix.lower() in images.SUFFIXES
    }
    if without := there - pictures:
        tally.noted("pictures without a row (unknown), left out", len(without))


def _name(cells):
    """labeled-data/VIDEO/PICTURE; older tables name the whole path, of any system."""
    parts = "/".join(cells).replace("\\", "/").split("/")
    places = [i for i, part in enumerate(parts) if part == "labeled-data"]
    return "/".join(parts[places[-1] :] if places else parts)


def _entry(name, row, table, bodyparts, tracks, tally):
    try:
        cells = [float(c) if c.strip() else np.nan for c in row[table.start :]]
    except ValueError as error:
        return Entry(name, fault=f"row of {table.path.name}: {error}")
    cells = np.array([np.nan] * table.start + cells)
    annotations = []
    for individual, columns in table.columns.items():
        points = np.zeros((len(bodyparts), 3))
        for bodypart, pair in columns.items():
            x, y = (cells[i] if i < len(cells) else np.nan for i in pair)
            if np.isnan([x, y]).all():
                continue
            if individual == _OF_NO_ANIMAL or bodypart not in bodyparts:
                reason = f"{bodypart} is no bodypart of the animal"
                tally.refused("keypoints", reason, name)
            else:
                points[bodyparts.index(bodypart)] = x + 0.5, y + 0.5, 2
        if points.any():
            track = tracks.index(individual) if individual in tracks else None
            title = individual or "row"
            annotations.append(Annotation(title, None, (points, track)))
    return Entry(name, annotations)


def _instance(skeleton, value, size, repairs):
    points, track = value
    keypoints.check_finite(points, repairs)
    return keypoints.instance(skeleton, points, size, repairs, track=track)
