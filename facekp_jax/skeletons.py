"""What a target type is: its keypoints, how they are joined, mirrored and scored.

A `Skeleton` is the one truth for data, augmentation, graph, loss, decoder, metrics and
drawing.
"""

import dataclasses
import json
import math
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from facekp_jax import known_skeletons

UNKNOWN_SIGMA = 0.05  # OKS: a keypoint of a user's skeleton that states none
_FIELDS = ("name", "keypoints", "edges", "mirror", "sigmas")  # of a skeleton file


@dataclasses.dataclass(frozen=True)
class Skeleton:
    """Keypoints of one target type (person, dog, mouse, ...) and their structure."""

    name: str
    keypoints: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]  # each pair once, in either direction
    # Keypoint -> that which it becomes in a mirrored picture, itself on the body's
    # axis; None: not known, so that pictures must not be mirrored.
    mirror: tuple[int, ...] | None
    sigmas: tuple[float, ...]  # of OKS, a share of the square root of the area

    def __post_init__(self):
        where = f"skeleton {self.name!r}"
        count = len(self.keypoints)
        if not count:
            raise ValueError(f"{where} has no keypoint; name at least two")
        doubles = {k for k in self.keypoints if self.keypoints.count(k) > 1}
        if doubles:
            raise ValueError(f"{where}: keypoints named twice: {sorted(doubles)}")
        if not self.edges:
            raise ValueError(
                f"{where} has no edges, but the graph needs them; list pairs of joined "
                "keypoints in a skeleton file and give it to --skeleton"
            )
        for edge in self.edges:
            if len(set(edge)) != 2 or not all(0 <= k < count for k in edge):
                raise ValueError(
                    f"{where}: edge {edge} does not join two of the {count} keypoints"
                )
        if len({frozenset(edge) for edge in self.edges}) < len(self.edges):
            raise ValueError(f"{where}: an edge is there twice; list each pair once")
        if self.mirror is not None and (
            len(self.mirror) != count
            or any(self.mirror[other] != k for k, other in enumerate(self.mirror))
        ):
            raise ValueError(f"{where}: mirror {self.mirror} does not exchange pairs")
        if len(self.sigmas) != count:
            raise ValueError(
                f"{where}: {len(self.sigmas)} sigmas for {count} keypoints; give one "
                "of each"
            )
        if not all(math.isfinite(s) and s > 0 for s in self.sigmas):
            raise ValueError(f"{where}: sigmas {self.sigmas} must be above 0")


def from_names(
    name: str,
    keypoints: Sequence[str],
    edges: Iterable[Sequence[str]],
    mirror_pairs: Iterable[Sequence[str]] | None,
    sigmas: Sequence[float] | Mapping[str, float] | None = None,
) -> Skeleton:
    """A skeleton whose edges and mirror pairs are written with keypoint names.

    Args:
        name: of the target type.
        keypoints: names, in the order of the annotations.
        edges: pairs of joined keypoints.
        mirror_pairs: pairs that exchange in a mirrored picture, the other keypoints
            stay; an empty list if all stay, None if it is not known.
        sigmas: one of each keypoint, or by name; `UNKNOWN_SIGMA` where none is given.

    Raises:
        ValueError: names the keypoint that is not there, or what is wrong.
    """
    keypoints = tuple(keypoints)

    def pairs(kind, named):
        for pair in named:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise ValueError(f"skeleton {name!r}: {kind} {pair!r} is not two names")
            yield tuple(index(kind, keypoint) for keypoint in pair)

    def index(kind, keypoint):
        if keypoint not in keypoints:
            raise ValueError(
                f"skeleton {name!r}: {kind} names {keypoint!r}, which is none of its "
                f"keypoints {', '.join(map(str, keypoints))}"
            )
        return keypoints.index(keypoint)

    mirror = None
    if mirror_pairs is not None:
        mirror = list(range(len(keypoints)))
        for left, right in pairs("a mirror pair", mirror_pairs):
            if left == right or (mirror[left], mirror[right]) != (left, right):
                raise ValueError(
                    f"skeleton {name!r}: {keypoints[left]!r} or {keypoints[right]!r} "
                    "is twice among the mirror pairs; list each pair once"
                )
            mirror[left], mirror[right] = right, left
    if sigmas is None:
        sigmas = {}
    if isinstance(sigmas, Mapping):
        given = {index("a sigma", keypoint): s for keypoint, s in sigmas.items()}
        sigmas = [given.get(k, UNKNOWN_SIGMA) for k in range(len(keypoints))]
    return Skeleton(
        name=name,
        keypoints=keypoints,
        edges=tuple(pairs("an edge", edges)),
        mirror=None if mirror is None else tuple(mirror),
        sigmas=tuple(map(float, sigmas)),
    )


def to_dict(skeleton: Skeleton) -> dict[str, Any]:
    """What `from_dict` reads: the form of a skeleton file, fit for JSON and YAML."""
    names, mirror = skeleton.keypoints, skeleton.mirror
    pairs = [(k, other) for k, other in enumerate(mirror or ()) if k < other]
    return {
        "name": skeleton.name,
        "keypoints": list(names),
        "edges": [[names[a], names[b]] for a, b in skeleton.edges],
        "mirror": None if mirror is None else [[names[a], names[b]] for a, b in pairs],
        "sigmas": list(skeleton.sigmas),
    }


def from_dict(values: Mapping[str, Any]) -> Skeleton:
    """The skeleton of a skeleton file's contents.

    Args:
        values: "name"; "keypoints", a list of names; "edges" and, if known, "mirror",
            lists of pairs of names; perhaps "sigmas", a list or name -> sigma.

    Raises:
        ValueError: for what is missing, unknown or of the wrong kind.
    """
    if not isinstance(values, Mapping):
        raise ValueError("not a skeleton: write name:, keypoints: and edges:")
    if unknown := sorted(map(str, values.keys() - _FIELDS)):
        raise ValueError(f"unknown {', '.join(unknown)}; use {', '.join(_FIELDS)}")
    if missing := [field for field in _FIELDS[:3] if not values.get(field)]:
        raise ValueError(f"no {', '.join(missing)}; write name:, keypoints: and edges:")
    for field in _FIELDS[1:4]:
        if not isinstance(values.get(field), list | tuple | None):
            raise ValueError(f"{field} is {values[field]!r}; write a list")
    for name in (values["name"], *values["keypoints"]):
        if not isinstance(name, str):
            raise ValueError(f"the name {name!r} is not text; put it in quotes")
    return from_names(
        *(values[field] for field in _FIELDS[:3]),
        values.get("mirror"),
        _numbers(values.get("sigmas")),
    )


def _numbers(sigmas):
    try:
        if isinstance(sigmas, Mapping):
            return {keypoint: float(s) for keypoint, s in sigmas.items()}
        return None if sigmas is None else [float(s) for s in sigmas]
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"sigmas is {sigmas!r}; write a list of numbers, or keypoint: number"
        ) from error


def load(name_or_path: str | os.PathLike) -> Skeleton:
    """A skeleton of `KNOWN`, by its name, or of a user's YAML or JSON file.

    Raises:
        ValueError: if there is neither, or the file is not what `from_dict` reads.
    """
    if name_or_path in KNOWN:
        return KNOWN[name_or_path]
    path = pathlib.Path(name_or_path)
    if not path.is_file():
        raise ValueError(
            f"{name_or_path}: no such skeleton; use one of {', '.join(KNOWN)}, or a "
            "file"
        )
    # YAML holds JSON too, unless it is indented with tabs.
    is_json = path.suffix.lower() == ".json"
    data = path.read_bytes()
    try:
        values = json.loads(data) if is_json else yaml.safe_load(data)
    except Exception as error:  # of them, or of what Python cannot make of a value
        title, fault = "JSON" if is_json else "YAML", " ".join(str(error).split())
        raise ValueError(f"{path}: not {title}: {fault}") from error
    try:
        return from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def normalized_name(keypoint: str) -> str:
    """'Left Eye', 'left-eye' and 'left_eye' alike: the form to compare names in."""
    return re.sub(r"[\s_-]+", "", keypoint).casefold()


def guess(
    name: str, keypoints: Sequence[str], edges: Iterable[Sequence[int]]
) -> Skeleton:
    """The skeleton of an annotation file's category, which tells no more than this.

    If the keypoints are those of a known skeleton (upper and lower case, blanks and
    hyphens aside), it gives the mirror pairs and the sigmas, and the edges if there are
    none. Otherwise mirror pairs come from names that differ in their side alone, and
    are unknown if there are none or a side lacks its partner.

    Args:
        name: of the category.
        keypoints: its names, in order.
        edges: pairs of numbers from 0; a pair may be there more than once.

    Raises:
        ValueError: for edges that do not fit, or without edges.
    """
    keypoints = tuple(keypoints)
    edges = tuple({frozenset(e): tuple(map(int, e)) for e in edges}.values())
    wanted = [normalized_name(keypoint) for keypoint in keypoints]
    for known in KNOWN.values():
        names = [normalized_name(keypoint) for keypoint in known.keypoints]
        if sorted(names) == sorted(wanted):
            here = [wanted.index(n) for n in names]  # known -> its number in the file
            order = [names.index(w) for w in wanted]
            return Skeleton(
                name=name,
                keypoints=keypoints,
                edges=edges or tuple((here[a], here[b]) for a, b in known.edges),
                mirror=known.mirror and tuple(here[known.mirror[k]] for k in order),
                sigmas=tuple(known.sigmas[k] for k in order),
            )
    sigmas = (UNKNOWN_SIGMA,) * len(keypoints)
    return Skeleton(name, keypoints, edges, _mirror(keypoints), sigmas)


# What says left or right in a name: left_eye, rightear, l_eye, eyeL, forelegR1, LEye,
# lEye, LF_paw, FL.
_SIDE = re.compile(
    r"(?i:left|right)"
    r"|(?<![A-Za-z])[LRlr](?![A-Za-z])"
    r"|(?<=[a-z0-9])[LR](?![a-z])"
    r"|(?<![A-Za-z])[LR](?=[A-Z](?![A-Z]))"
    r"|(?<![A-Za-z])[lr](?=[A-Z])"
    r"|(?<=[FBH])[LR](?![A-Za-z])"
)
_OTHER_SIDE = {"left": "right", "right": "left", "l": "r", "r": "l"}


def _other_side(name):
    """The name with its sides exchanged; itself if it has none."""

    def exchange(match):
        other = _OTHER_SIDE[match[0].lower()]
        if match[0].isupper():
            return other.upper()
        return other.title() if match[0][0].isupper() else other

    return _SIDE.sub(exchange, name)


def _mirror(keypoints):
    """What the names' sides say; None if there are none, or one without its partner."""
    others = [_other_side(keypoint) for keypoint in keypoints]
    if others == list(keypoints) or sorted(others) != sorted(keypoints):
        return None
    return tuple(keypoints.index(other) for other in others)


def components(skeleton: Skeleton) -> int:
    """How many parts the edges leave unjoined; 1 if every keypoint reaches all."""
    part = list(range(len(skeleton.keypoints)))
    for a, b in skeleton.edges:
        part = [part[a] if p == part[b] else p for p in part]
    return len(set(part))


KNOWN = {
    name: from_dict({"name": name, **facts})
    for name, facts in known_skeletons.FACTS.items()
}
COCO = KNOWN["coco"]
LSP = KNOWN["lsp"]
MPII = KNOWN["mpii"]
POSETRACK = KNOWN["posetrack"]
POSETRACK15 = KNOWN["posetrack15"]
AP10K = KNOWN["ap10k"]
ANIMALPOSE = KNOWN["animalpose"]
ATRW = KNOWN["atrw"]
MACAQUE = KNOWN["macaque"]
HORSE10 = KNOWN["horse10"]
ZEBRA = KNOWN["zebra"]
FLY = KNOWN["fly"]
LOCUST = KNOWN["locust"]
FACE68 = KNOWN["face68"]
