"""Who imports whom: bytes flow data_prep -> facekp_jax -> experiments."""

import ast
import pathlib

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
