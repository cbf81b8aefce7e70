"""Who imports whom: bytes flow data_prep -> facekp_jax -> experiments."""

import ast
import configparser
import importlib.metadata
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted(
    path
    for package in ("facekp_jax", "data_prep", "experiments", "tests")
    for path in (ROOT / package).rglob("*.py")
)
OURS = ("facekp_jax", "data_prep", "experiments", "tests")
MAY_IMPORT = {
    "facekp_jax": ("facekp_jax",),
    "data_prep": ("data_prep", "facekp_jax"),
    "experiments": ("experiments", "facekp_jax", "data_prep.synthetic"),
    "tests": OURS,
}
BANNED = ("tensorflow", "torch", "torchvision", "keras")
OF_AN_EXTRA = {"sleap_io": "sleap"}  # modules that are imported where they are needed


def imported(tree):
    """Dotted names of all modules (and what is taken from them) in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inside(name, packages):
    return any(name == p or name.startswith(f"{p}.") for p in packages)


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_keep_to_their_layer(path):
    allowed = MAY_IMPORT[path.relative_to(ROOT).parts[0]]
    names = list(imported(parse(path)))
    assert [n for n in names if inside(n, OURS) and not inside(n, allowed)] == []
    assert [n for n in names if inside(n, BANNED)] == []


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if {"models", "losses"} & set(p.relative_to(ROOT).parts)],
    ids=name_of,
)
def test_models_and_losses_know_no_devices(path):
    nodes = list(ast.walk(parse(path)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.arg for node in nodes if isinstance(node, ast.arg | ast.keyword)}
    assert not names & {"pmean", "psum", "axis_name", "pmap", "shard_map"}


def normalized(distribution):
    return re.sub(r"[-_.]+", "-", distribution).lower()


def requirements():
    """Extra ("" for the packages themselves) -> names of distributions."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lists = {"": config["options"]["install_requires"]}
    lists |= config["options.extras_require"]
    return {
        extra: [normalized(re.match(r"[\w.-]+", line)[0]) for line in text.split()]
        for extra, text in lists.items()
    }


def test_what_is_imported_is_required():
    found = importlib.metadata.packages_distributions()
    required = requirements()
    modules = {
        name.split(".")[0]
        for path in FILES
        if path.relative_to(ROOT).parts[0] != "tests"
        for name in imported(parse(path))
    }
    for module in modules - sys.stdlib_module_names - set(OURS):
        names = {normalized(name) for name in found.get(module, [module])}
        assert names & set(required[OF_AN_EXTRA.get(module, "")]), module


def test_what_is_required_has_its_reason():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w, -]+) \|", text, re.M)
    reasons = {normalized(name) for row in rows for name in row.split(", ")}
    assert {name for names in requirements().values() for name in names} <= reasons


def test_every_package_is_looked_at():
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(OURS)
    assert any("losses" in path.parts for path in FILES)


@pytest.mark.parametrize(
    "text, names",
    [
        ("import torch.nn as nn", ["torch.nn"]),
        ("from data_prep import build, check", ["data_prep.build", "data_prep.check"]),
        ("def f():\n    import jax", ["jax"]),
        ("'import torch'  # import torch", []),
    ],
)
def test_imports_are_found(text, names):
    assert list(imported(ast.parse(text))) == names
