"""Typed configs from and to JSON, and their fields as command-line flags.

What recipes have in common in their configs is here too.
"""

import dataclasses
import difflib
import json
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import optax

from facekp_jax.command import UsageError
from facekp_jax.keypoint_crops import Augmentation

PREFIX = "config."
RUN = {
    "steps": 0,
    "seed": 0,
    "batch_size": 1,
    "workers": 0,
    "log_every": 1,
    "checkpoint_every": 1,
}


@dataclasses.dataclass(frozen=True)
class Backbone:
    """The small residual network, at strides 4, 8, 16 and 32."""

    features: tuple[int, ...] = (32, 64, 96, 128)  # channels
    blocks: tuple[int, ...] = (1, 2, 2, 1)


SMALL_BACKBONE = Backbone()

# The embedded data sets have as many pictures as a training takes. A data set of photos
# wants more, such as the defaults of `Augmentation`.
LITTLE_AUGMENTATION = Augmentation(
    scale=0.1,
    rotation=0,
    shift=0.03,
    half_body=0,
    occlusion=0,
    brightness=0,
    contrast=0,
    saturation=0,
    tint=0,
    grey=0,
    blur=0,
    noise=0,
)


def warmup_cosine(config: Any) -> optax.Schedule:
    """The rate of `config.optimizer`: rises linearly, then falls along a cosine.

    It is 0 at the first step, and would be 0 again at the step after the last.
    """
    return optax.warmup_cosine_decay_schedule(
        0.0,
        config.optimizer.learning_rate,
        min(config.optimizer.warmup_steps, config.steps),
        config.steps + 1,
    )


def check_least(config: Any, least: Mapping[str, float]) -> None:
    """Raises ValueError for a field below its least value; RUN: those of every run."""
    for field, limit in least.items():
        value = getattr(config, field)
        if value < limit:
            raise ValueError(f"{field} is {value}; give it at least {limit}")


def check_sides(config: Any, names: Iterable[str]) -> None:
    """Raises ValueError for a picture's side that the backbone cannot halve evenly."""
    for name in names:
        side = getattr(config, name)
        if side < 32 or side % 32:
            raise ValueError(f"{name} is {side}; take a multiple of 32")


def to_dict(config: Any) -> dict[str, Any]:
    """A config as JSON-ready values."""
    return dataclasses.asdict(config)


def from_dict(kind: Any, value: Any, path: str = "config") -> Any:
    """JSON values as the typed config they came from.

    Args:
        kind: a dataclass, tuple[X, ...], a simple type, or a union of simple types or
            of a tuple and None.
        value: dictionaries, lists, numbers, strings.
        path: where the value stands, for messages.

    Raises:
        UsageError: if a field is unknown (the nearest one is named), missing, of
            another type, or refused by its dataclass.
    """
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise UsageError(f"{path} is {value!r}; give an object with its fields")
        hints = typing.get_type_hints(kind)
        for name in value:
            if name not in hints:
                raise UsageError(_unknown(f"{path}.{name}", name, path, hints))
        fields = {
            name: from_dict(hints[name], v, f"{path}.{name}")
            for name, v in value.items()
        }
        missing = [name for name in _required(kind) if name not in fields]
        if missing:
            raise UsageError(f"{path} is {value!r}; it lacks {', '.join(missing)}")
        try:
            return kind(**fields)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
    if value is None and type(None) in typing.get_args(kind):
        return None
    tuples = [
        k for k in (kind, *typing.get_args(kind)) if typing.get_origin(k) is tuple
    ]
    if tuples:
        if not isinstance(value, list | tuple):
            raise UsageError(f"{path} is {value!r}; give a list in brackets")
        item = typing.get_args(tuples[0])[0]
        return tuple(
            from_dict(item, v, f"{path}[{number}]") for number, v in enumerate(value)
        )
    kinds = typing.get_args(kind) or (kind,)
    if isinstance(value, bool) and bool not in kinds:
        raise UsageError(f"{path} is {value!r}; it takes {_names(kinds)}")
    if isinstance(value, kinds):
        return value
    if float in kinds and isinstance(value, int):
        return float(value)
    raise UsageError(f"{path} is {value!r}; it takes {_names(kinds)}")


def override(config: Any, arguments: Mapping[str, str]) -> Any:
    """A config with fields replaced, `{"optimizer.learning_rate": "3e-4"}`.

    Raises:
        UsageError: for an unknown field, naming the nearest, or a value that does not
            fit.
    """
    for path, text in arguments.items():
        config = _override_one(config, path.split("."), text, PREFIX + path)
    return config


def _override_one(config, names, text, path):
    name, *rest = names
    hints = typing.get_type_hints(type(config))
    if name not in hints:
        at = path.rsplit(".", len(rest) + 1)[0]
        raise UsageError(_unknown(f"--{path}", name, f"--{at}", hints))
    if rest:
        inner = getattr(config, name)
        if not dataclasses.is_dataclass(inner):
            raise UsageError(f"--{path}: {name} has no fields; set it as a whole")
        value = _override_one(inner, rest, text, path)
    else:
        value = from_dict(hints[name], _parse(hints[name], text), f"--{path}")
    try:
        return dataclasses.replace(config, **{name: value})
    except ValueError as error:
        raise UsageError(f"--{path}: {error}") from None


def _parse(kind, text):
    """JSON where it is JSON; a plain string where the field takes one."""
    if kind is str:
        return text
    takes_bool = bool in (kind, *typing.get_args(kind))
    try:
        return json.loads(text.lower() if takes_bool else text)
    except json.JSONDecodeError:
        return text


def _required(kind):
    """Names of the fields without a default."""
    nothing = dataclasses.MISSING
    return [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is nothing and field.default_factory is nothing
    ]


def _unknown(path, name, parent, hints):
    near = difflib.get_close_matches(name, hints, 1, 0.0)
    return f"unknown field {path}; the nearest is {parent}.{near[0]}"


def _names(kinds):
    return " or ".join("null" if k is type(None) else k.__name__ for k in kinds)
