"""Readers of annotation files, and the account that they keep of what they read.

A reader is a module with `read(folder, tally, *, split, annotations, image_folder,
group, none, apply_exif)` that gives a `Reading`. Whatever it cannot use it repairs or
refuses, with a reason, through the `Tally`. What readers share is in `categories` and
`photos`.
"""

import collections
import dataclasses
from collections.abc import Iterator

from facekp_jax.records import LesionImage

KINDS = ("photos", "regions")
_NAMES_SHOWN = 3


class Damaged(ValueError):
    """The first fault in the input, where faults are errors (`--strict`)."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a reader found: photos come one by one, each with its encoded bytes."""

    branches: tuple[str, ...]
    length: int  # entries that `photos` goes through, kept or not
    photos: Iterator[tuple[LesionImage, bytes]]


class Tally:
    """Counts of what was read, kept, repaired and refused, with reasons.

    `repaired` is a part of `kept`; read = kept + refused. `notes` counts what is no
    fault, but what a user should know of.
    """

    def __init__(self, *, strict: bool = False):
        self.strict = strict
        self.counts = {
            kind: {"read": 0, "kept": 0, "repaired": 0, "refused": 0} for kind in KINDS
        }
        self.notes = collections.Counter()
        self._names = collections.defaultdict(list)

    def kept(self, kind: str, number: int = 1) -> None:
        self.counts[kind]["read"] += number
        self.counts[kind]["kept"] += number

    def refused(self, kind: str, reason: str, name: str, number: int = 1) -> None:
        self.counts[kind]["read"] += number
        self._fault(kind, "refused", reason, name, number)

    def repaired(self, kind: str, reason: str, name: str) -> None:
        """Notes a repair of something that is counted as kept elsewhere."""
        self._fault(kind, "repaired", reason, name, 1)

    def noted(self, what: str, number: int = 1) -> None:
        """Counts what is no fault; a number of 0 makes it appear with a 0."""
        self.notes[what] += number

    def table(self) -> str:
        """One line per kind, per reason with the first names, and per note."""
        lines = [f"{'':10}" + "".join(f"{h:>10}" for h in self.counts[KINDS[0]])]
        for kind, counts in self.counts.items():
            lines.append(f"{kind:10}" + "".join(f"{n:10,}" for n in counts.values()))
        for (kind, outcome, reason), names in self._names.items():
            shown = ", ".join(list(dict.fromkeys(names))[:_NAMES_SHOWN])
            lines.append(f"{kind} {outcome}, {len(names):,}: {reason} ({shown})")
        lines += [f"{what}: {number:,}" for what, number in self.notes.items()]
        return "\n".join(lines)

    def _fault(self, kind, outcome, reason, name, number):
        if not number:
            return
        if self.strict:
            raise Damaged(f"{name}: {reason} (--strict)")
        self.counts[kind][outcome] += number
        self._names[kind, outcome, reason].extend([name] * number)
