"""Variants of an experiment, side by side."""

import json

import pytest
from commands import result, run

from experiments.tables import comparison

COMPARE = "experiments.compare", "--exp=structured_keypoints"


def test_table_by_hand():
    lines = comparison(
        {
            "a": {"second/pck": [0.5, 0.7], "first/pck": [0.25, None]},
            "b": {"second/pck": [0.5], "first/pck": [1.0]},
        }
    ).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["second/pck", "a", "0.6000", "0.1414", "0.5000", "0.7000"],
        ["second/pck", "b", "0.5000", "0.5000"],
        ["first/pck", "a", "n/a", "0.2500", "n/a"],
        ["first/pck", "b", "1.0000", "1.0000"],
    ]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "no workdir to compare; give --workdir"),
        (["--workdir=runs"], "no variant to compare; give --variant"),
        (["--workdir=runs", "--variant=a"], "no metric to compare; give --metric"),
        (
            ["--workdir=runs", "--variant=a: rounds", "--metric=second/pck"],
            "--variant='a: rounds' is not",
        ),
        (
            ["--workdir=runs", "--variant=a", "--variant=a:", "--metric=second/pck"],
            "--variant=a comes twice",
        ),
    ],
)
def test_wrong_usage(arguments, message):
    assert message in run(*COMPARE, *arguments, status=2).stderr


@pytest.mark.slow
def test_runs_are_kept_and_reused(tmp_path):
    tiny = ["crop_height=32", "crop_width=32", "backbone.features=[8,8,8,8]"]
    tiny += ["backbone.blocks=[0,0,0,0]", "features=8", "node_features=8", "steps=1"]
    tiny += ["batch_size=2", "train_photos=2", "val_photos=2"]
    compare = [
        *COMPARE,
        f"--workdir={tmp_path}",
        "--seeds=3",
        "--variant=no graph: rounds=0",
        "--metric=second/pck",
        *(f"--config.{field}" for field in tiny),
    ]
    first = result(run(*compare))
    (pck,) = first["variants"]["no graph"]["second/pck"]
    kept = json.loads((tmp_path / "no-graph-3.json").read_text())
    assert kept["metrics"]["second/pck"] == pck
    config = json.loads((tmp_path / "no-graph-3" / "config.json").read_text())["config"]
    assert (config["rounds"], config["seed"], config["steps"]) == (0, 3, 1)

    kept["metrics"]["second/pck"] = 0.125  # what a training would not give again
    (tmp_path / "no-graph-3.json").write_text(json.dumps(kept))
    again = result(run(*compare))
    assert again["variants"]["no graph"]["second/pck"] == [0.125]
    other = run(*compare, "--config.steps=2", status=2)
    assert "no-graph-3 was trained with" in other.stderr
    unknown = run(*compare, "--metric=third/pck", status=2)
    assert "--metric=third/pck is not measured" in unknown.stderr
