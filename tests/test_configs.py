"""Typed configs: from the command line, to JSON and back."""

import dataclasses
import json

import pytest

from experiments.configs import from_dict, override, to_dict
from facekp_jax.command import UsageError


@dataclasses.dataclass(frozen=True)
class Rule:
    channel: str
    threshold: float | str = "contrast"

    def __post_init__(self):
        if self.channel not in ("grey", "L"):
            raise ValueError(f"channel {self.channel!r} is none of grey, L")


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    rule: Rule = Rule("L")


@dataclasses.dataclass(frozen=True)
class Optimizer:
    learning_rate: float = 1e-3
    nesterov: bool = False


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 10
    data: str = ""
    margin: float | None = None
    sizes: tuple[float, ...] = (8.0, 16.0)
    kinds: tuple[Kind, ...] = (Kind("acne"),)
    optimizer: Optimizer = Optimizer()
    upright: bool | None = None

    def __post_init__(self):
        if self.steps > 10**6:
            raise ValueError(f"steps is {self.steps}; a million is enough")


def optimizer(**values):
    return Config(optimizer=Optimizer(**values))


@pytest.mark.parametrize(
    "path, text, expected",
    [
        ("steps", "500", Config(steps=500)),
        ("steps", "-1", Config(steps=-1)),
        ("data", "a b/ü=1.csv", Config(data="a b/ü=1.csv")),
        ("data", "12", Config(data="12")),
        ("data", "null", Config(data="null")),
        ("data", "", Config(data="")),
        ("margin", "0.25", Config(margin=0.25)),
        ("margin", "1", Config(margin=1.0)),
        ("margin", "null", Config()),
        ("sizes", "[1, 2.5]", Config(sizes=(1.0, 2.5))),
        ("sizes", "[]", Config(sizes=())),
        ("optimizer.learning_rate", "3e-4", optimizer(learning_rate=3e-4)),
        ("optimizer.learning_rate", "1", optimizer(learning_rate=1.0)),
        ("optimizer.nesterov", "true", optimizer(nesterov=True)),
        ("optimizer.nesterov", "False", Config()),
        ("upright", "True", Config(upright=True)),
        ("upright", "null", Config()),
        (
            "kinds",
            '[{"name": "spot"}, {"name": "mole", "rule": {"channel": "grey", '
            '"threshold": 3}}]',
            Config(kinds=(Kind("spot"), Kind("mole", Rule("grey", 3.0)))),
        ),
        (
            "kinds",
            '[{"name": "mole", "rule": {"channel": "L", "threshold": "otsu"}}]',
            Config(kinds=(Kind("mole", Rule("L", "otsu")),)),
        ),
        (
            "optimizer",
            '{"learning_rate": 2}',
            optimizer(learning_rate=2.0),
        ),
    ],
)
def test_override(path, text, expected):
    got = override(Config(), {path: text})
    assert got == expected
    # 1 == 1.0, but a JSON reader of another language sees the difference.
    assert json.dumps(to_dict(got)) == json.dumps(to_dict(expected))


def test_overrides_keep_all_other_fields():
    start = Config(steps=7, optimizer=Optimizer(learning_rate=0.5))
    got = override(start, {"optimizer.nesterov": "true", "margin": "2"})
    assert got == Config(steps=7, margin=2.0, optimizer=Optimizer(0.5, True))
    assert start == Config(steps=7, optimizer=Optimizer(learning_rate=0.5))


@pytest.mark.parametrize(
    "path, text, words",
    [
        ("step", "1", ["--config.step;", "--config.steps"]),
        ("optimiser.nesterov", "true", ["optimiser", "--config.optimizer"]),
        (
            "optimizer.learningrate",
            "1",
            ["--config.optimizer.learningrate", "--config.optimizer.learning_rate"],
        ),
        ("", "1", ["--config."]),
        ("steps.more", "1", ["--config.steps.more", "steps has no fields"]),
        ("steps", "many", ["--config.steps", "'many'", "int"]),
        ("steps", "1.5", ["--config.steps", "1.5", "int"]),
        ("steps", "true", ["--config.steps", "True", "int"]),
        ("steps", "null", ["--config.steps", "None", "int"]),
        ("steps", "", ["--config.steps", "''", "int"]),
        ("margin", "wide", ["--config.margin", "'wide'", "float or null"]),
        ("margin", "false", ["--config.margin", "False", "float or null"]),
        ("sizes", "8", ["--config.sizes", "8", "brackets"]),
        ("sizes", "8,16", ["--config.sizes", "'8,16'", "brackets"]),
        ("sizes", '[8, "big"]', ["--config.sizes[1]", "'big'", "float"]),
        ("steps", "1000001", ["--config.steps", "steps is 1000001; a million"]),
        ("optimizer", "adam", ["--config.optimizer", "'adam'", "fields"]),
        ("optimizer.nesterov", "1", ["--config.optimizer.nesterov", "1", "bool"]),
        ("optimizer.nesterov", "yes", ["--config.optimizer.nesterov", "yes", "bool"]),
        ("kinds", '[{"nam": "a"}]', ["--config.kinds[0].nam;", "kinds[0].name"]),
        ("kinds", "[{}]", ["--config.kinds[0]", "name"]),
        (
            "kinds",
            '[{"name": "a", "rule": {"channel": "hue"}}]',
            ["--config.kinds[0].rule", "'hue'", "grey, L"],
        ),
    ],
)
def test_a_wrong_override_is_wrong_usage(path, text, words):
    with pytest.raises(UsageError) as caught:
        override(Config(), {path: text})
    for word in words:
        assert word in str(caught.value)


def test_json_round_trip():
    config = Config(
        steps=3,
        data="ü",
        margin=0.1,
        sizes=(1.0, 1 / 3),
        kinds=(Kind("a", Rule("grey", 2.5)), Kind("b", Rule("L", "otsu"))),
        optimizer=Optimizer(0.1, True),
    )
    for one in (config, Config(), Config(sizes=(), kinds=())):
        got = from_dict(Config, json.loads(json.dumps(to_dict(one))))
        assert got == one
        assert type(got.sizes) is type(got.kinds) is tuple


def test_a_config_of_an_older_version_takes_the_new_defaults():
    assert from_dict(Config, {"steps": 5}) == Config(steps=5)


@pytest.mark.parametrize(
    "value, words",
    [
        ({"stepz": 1}, ["config.stepz", "config.steps"]),
        ({"optimizer": {"learning_rate": "fast"}}, ["config.optimizer.learning_rate"]),
        ([], ["config is []"]),
        ({"kinds": [3]}, ["config.kinds[0] is 3"]),
    ],
)
def test_a_wrong_config_names_where(value, words):
    with pytest.raises(UsageError) as caught:
        from_dict(Config, value)
    for word in words:
        assert word in str(caught.value)


@dataclasses.dataclass(frozen=True)
class Optional:
    mirror: tuple[int, ...] | None = None
    edges: tuple[tuple[int, int], ...] = ()


@pytest.mark.parametrize("mirror", [None, (1, 0)])
def test_a_tuple_may_be_missing(mirror):
    config = Optional(mirror, ((0, 1), (1, 2)))
    assert from_dict(Optional, json.loads(json.dumps(to_dict(config)))) == config


def test_a_tuple_that_may_be_missing_is_not_a_number():
    with pytest.raises(UsageError, match="mirror is 3; give a list"):
        from_dict(Optional, {"mirror": 3})
