"""Readers of annotation files, and the account that they keep of what they read.

A reader is a module with `read(source, tally)`: it takes a `Source` and gives a
`Reading` of regions or a `KeypointReading`. Whatever it cannot use it repairs or
refuses, with a reason, through the `Tally`. What readers share is in `categories`,
`photos` and `keypoints`.
"""

import collections
import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator, Sequence

from facekp_jax.records import KeypointImage, LesionImage
from facekp_jax.skeletons import Skeleton

_COLUMNS = ("read", "kept", "repaired", "refused")
_NAMES_SHOWN = 3


class Damaged(ValueError):
    """The first fault in the input, where faults are errors (`--strict`)."""


@dataclasses.dataclass(frozen=True)
class Source:
    """What to read: the flags of `data_prep.build`.

    A reader says in its docstring what it looks for in the folder, and which of the
    other fields make a difference.
    """

    folder: str | os.PathLike
    split: str = "train"
    annotations: str | os.PathLike | None = None  # another place of the annotations
    images: str | os.PathLike | None = None  # another place of the pictures
    group: str = "category"  # what makes a branch or a type: see `categories`
    none: Sequence[str] = ()  # names of categories that say that there is nothing
    skeleton: Skeleton | None = None  # of --skeleton
    apply_exif: bool = True  # False if the annotations were made on the raw pixels

    def annotation_file(self, usual: str) -> pathlib.Path:
        """--annotations, or the one file of the folder that matches usual, a pattern.

        Raises:
            ValueError: if there is no such file, or more than one.
        """
        path = pathlib.Path(self.annotations or pathlib.Path(self.folder, usual))
        if not self.annotations:
            found = sorted(pathlib.Path(self.folder).glob(usual))
            if len(found) > 1:
                raise ValueError(
                    f"{path}: is {', '.join(other.name for other in found)}; name one "
                    "with --annotations"
                )
            path = next(iter(found), path)
        if not path.is_file():
            raise ValueError(f"{path}: no such file; name it with --annotations")
        return path

    def annotation_folder(self, usual: str) -> pathlib.Path:
        """--annotations, or FOLDER/usual; ValueError if that is no folder."""
        path = pathlib.Path(self.annotations or pathlib.Path(self.folder, usual))
        if not path.is_dir():
            raise ValueError(f"{path}: no such folder; name it with --annotations")
        return path

    def image_folder(self, *usual: str | os.PathLike) -> pathlib.Path:
        """--images, or the first FOLDER/usual that is there; ValueError if none is."""
        usual = [pathlib.Path(self.folder, path) for path in usual]
        paths = [pathlib.Path(self.images)] if self.images else usual
        for path in paths:
            if path.is_dir():
                return path
        raise ValueError(f"{paths[0]}: no such folder; name it with --images")


@dataclasses.dataclass(frozen=True)
class Reading:
    """Regions that a reader found: photos come one by one, with their encoded bytes."""

    branches: tuple[str, ...]
    length: int  # entries that `photos` goes through, kept or not
    photos: Iterator[tuple[LesionImage, bytes]]


@dataclasses.dataclass(frozen=True)
class KeypointReading:
    """Keypoints that a reader found, likewise."""

    skeletons: tuple[Skeleton, ...]  # of the target types, each of another name
    length: int
    photos: Iterator[tuple[KeypointImage, bytes]]


class Tally:
    """Counts of what was read, kept, repaired and refused, with reasons.

    `repaired` is a part of `kept`; read = kept + refused. `notes` counts what is no
    fault, but what a user should know of.
    """

    def __init__(self, *, strict: bool = False):
        self.strict = strict
        self.counts = {}
        self.notes = collections.Counter()
        self._names = collections.defaultdict(list)

    def expect(self, *kinds: str) -> None:
        """Makes these kinds appear, in this order, even if there is none of them."""
        for kind in kinds:
            self._of(kind)

    def kept(self, kind: str, number: int = 1) -> None:
        self._of(kind)["read"] += number
        self._of(kind)["kept"] += number

    def refused(self, kind: str, reason: str, name: str, number: int = 1) -> None:
        self._of(kind)["read"] += number
        self._fault(kind, "refused", reason, name, number)

    def repaired(self, kind: str, reason: str, name: str) -> None:
        """Notes a repair of something that is counted as kept elsewhere."""
        self._fault(kind, "repaired", reason, name, 1)

    def noted(self, what: str, number: int = 1) -> None:
        """Counts what is no fault; a number of 0 makes it appear with a 0."""
        self.notes[what] += number

    @contextlib.contextmanager
    def printed(self) -> Iterator[None]:
        """Prints the table at its end, and also where an error ends it: it says why."""
        try:
            yield
        finally:
            print(self.table(), flush=True)

    def table(self) -> str:
        """One line per kind, per reason with the first names, and per note."""
        lines = [f"{'':10}" + "".join(f"{heading:>10}" for heading in _COLUMNS)]
        for kind, counts in self.counts.items():
            lines.append(f"{kind:10}" + "".join(f"{n:10,}" for n in counts.values()))
        for (kind, outcome, reason), names in self._names.items():
            shown = ", ".join(list(dict.fromkeys(names))[:_NAMES_SHOWN])
            lines.append(f"{kind} {outcome}, {len(names):,}: {reason} ({shown})")
        lines += [f"{what}: {number:,}" for what, number in self.notes.items()]
        # A name may hold anything, also what no terminal can or should be given.
        return "\n".join(
            line if line.isprintable() else ascii(line)[1:-1] for line in lines
        )

    def _of(self, kind):
        return self.counts.setdefault(kind, dict.fromkeys(_COLUMNS, 0))

    def _fault(self, kind, outcome, reason, name, number):
        if not number:
            return
        if self.strict:
            raise Damaged(f"{name}: {reason} (--strict)")
        self._of(kind)[outcome] += number
        self._names[kind, outcome, reason].extend([name] * number)
