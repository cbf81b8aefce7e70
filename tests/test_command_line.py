"""The commands as a user runs them, on tiny models."""

import json
import os
import re
import signal

import cv2
import numpy as np
import pytest
from commands import ROOT, losses, result, run

from data_prep.synthetic.faces import SyntheticFaces
from facekp_jax import images, masks

TINY = [
    f"--config.{field}"
    for field in (
        "steps=6",
        "batch_size=2",
        "log_every=1",
        "checkpoint_every=4",
        "train_faces=6",
        "val_faces=3",
        "crop_side=64",
        "backbone.features=[8,8,8,8]",
        "backbone.blocks=[0,0,0,0]",
        "features=8",
        "box_features=8",
        "mask_features=8",
        "candidates=6",
        "detections=4",
        "true_candidates=4",
        "mask_samples=2",
    )
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(workdir, final object) of an unbroken run."""
    workdir = tmp_path_factory.mktemp("runs") / "unbroken"
    done = run(
        "experiments.train", "--exp=face_branches", f"--workdir={workdir}", *TINY
    )
    return workdir, result(done)


@pytest.mark.slow
def test_train_ends_with_one_object_of_stable_names(trained):
    workdir, summary = trained
    assert summary["experiment"] == "face_branches"
    assert summary["workdir"] == str(workdir)
    assert summary["step"] == 6
    assert 0 < summary["first_step_seconds"] <= summary["seconds"]
    assert summary["images_per_second"] > 0
    metrics = summary["metrics"]
    for name in ("box_ap50", "box_ap", "mask_ap50", "mask_ap", "pixel_iou"):
        for key in (name, f"acne/{name}", f"naive/{name}"):
            assert metrics[key] is None or 0 <= metrics[key] <= 1


@pytest.mark.slow
def test_workdir_holds_all_of_the_run(trained):
    workdir, _ = trained
    logged = losses(workdir)
    assert [line["step"] for line in logged] == [1, 2, 3, 4, 5, 6]
    for line in logged:
        terms = {key: v for key, v in line.items() if key.startswith("loss/")}
        assert {"loss/proposals", "loss/acne/first", "loss/acne/second"} <= terms.keys()
        assert sum(terms.values()) == pytest.approx(line["loss"], rel=1e-5)
    config = json.loads((workdir / "config.json").read_text())["config"]
    assert config["steps"] == 6
    assert config["branches"][0]["name"] == "acne"
    assert (workdir / "checkpoints" / "6").is_dir()
    assert any((workdir / "tensorboard").iterdir())


@pytest.mark.slow
def test_evaluate_repeats_the_metrics_of_train(trained):
    workdir, summary = trained
    again = result(run("experiments.evaluate", f"--workdir={workdir}"))
    assert again["metrics"] == summary["metrics"]
    assert again["step"] == 6


KILLER = """
import dataclasses, os, pathlib, signal
from experiments.recipes import face_branches
from facekp_jax import checkpoints

Config = face_branches.Config
ONCE = pathlib.Path(__file__).with_suffix(".killed")
checksums = checkpoints._checksums

def kill():
    if not ONCE.exists():
        ONCE.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def build(config, data):
    experiment = face_branches.build(config, data)
    if WHEN == "saving":
        def killing(folder):
            if folder.name == "6":
                kill()
            return checksums(folder)
        checkpoints._checksums = killing
        return experiment
    def schedule(step):
        if step == 4:  # step 5 is being logged; the checkpoint is of step 4
            kill()
        return experiment.schedule(step)
    return dataclasses.replace(experiment, schedule=schedule)
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["between", "saving"])
def test_killed_and_resumed_equals_the_unbroken_run(trained, tmp_path, when):
    recipe = tmp_path / "killer.py"
    recipe.write_text(f"WHEN = {when!r}\n{KILLER}")
    workdir = tmp_path / "run"
    run(
        "experiments.train",
        f"--exp={recipe}",
        f"--workdir={workdir}",
        *TINY,
        status=-signal.SIGKILL,
    )
    done = run("experiments.train", f"--workdir={workdir}", "--resume")
    if when == "saving":
        assert "killed while saving" in done.stderr
        assert str(workdir / "checkpoints" / "6") in done.stderr
    unbroken, summary = trained
    assert losses(workdir) == losses(unbroken)  # bit for bit
    assert result(done)["metrics"] == summary["metrics"]


@pytest.mark.slow
def test_resumed_before_its_first_checkpoint(trained, tmp_path):
    unbroken, summary = trained
    workdir = tmp_path / "run"
    (workdir / "checkpoints").mkdir(parents=True)
    (workdir / "config.json").write_text((unbroken / "config.json").read_text())
    (workdir / "metrics.jsonl").write_text('{"step": 1, "loss": 7}\n{"step": 2, "lo')
    done = run("experiments.train", f"--workdir={workdir}", "--resume")
    assert losses(workdir) == losses(unbroken)
    assert result(done)["metrics"] == summary["metrics"]


BROKEN = """
from __future__ import annotations  # types as text, looked up in the recipe's module
import dataclasses
import optax
from experiments.recipes import face_branches

@dataclasses.dataclass(frozen=True)
class Step:
    rate: float = float("nan")

@dataclasses.dataclass(frozen=True)
class Config(face_branches.Config):
    step: Step = Step()

def build(config, data):
    experiment = face_branches.build(config, data)
    optimizer = optax.sgd(config.step.rate)
    return dataclasses.replace(experiment, optimizer=optimizer)
"""


@pytest.mark.slow
def test_parameters_that_are_not_finite_are_never_saved(tmp_path):
    recipe = tmp_path / "broken.py"
    recipe.write_text(BROKEN)
    workdir = tmp_path / "run"
    train = "experiments.train", f"--exp={os.path.relpath(recipe, ROOT)}"
    done = run(*train, f"--workdir={workdir}", *TINY, "--config.steps=1", status=1)
    assert "step 1: a parameter is not finite" in done.stderr
    assert not any((workdir / "checkpoints").iterdir())
    # The recipe's path may be given as before.
    done = run(*train, f"--workdir={workdir}", "--resume", status=1)
    assert "step 1: a parameter is not finite" in done.stderr


@pytest.mark.slow
def test_predict_on_a_folder(trained, tmp_path):
    workdir, _ = trained
    folder = tmp_path / "photos of a día"
    folder.mkdir()
    face = SyntheticFaces(3, seed=5)[0].image
    (folder / "face.png").write_bytes(images.encode_png(face))
    (folder / "nobody.png").write_bytes(
        images.encode_png(np.full((90, 120, 3), 128, np.uint8))
    )
    (folder / "text.jpg").write_text("not a picture")
    (folder / "notes.txt").write_text("no picture by its name")
    clip = cv2.VideoWriter(
        str(folder / "clip.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48)
    )
    for level in (60, 120):
        clip.write(np.full((48, 64, 3), level, np.uint8))
    clip.release()
    output = tmp_path / "found"
    # Untrained scores are low: what is shown is set by the run's own config.
    config = json.loads((workdir / "config.json").read_text())
    config["config"]["score"] = 0.0
    config["config"]["min_score"] = 0.0
    # Truth has no part in a prediction: a data set may have fewer regions on a photo
    # than the embedded one.
    config["config"]["max_boxes"] = 1
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "config.json").write_text(json.dumps(config))
    (shown / "checkpoints").symlink_to(workdir / "checkpoints")
    done = run(
        "experiments.predict",
        f"--workdir={shown}",
        f"--input={folder}",
        f"--output={output}",
    )
    assert result(done)["counts"] == {
        "files": 4,
        "photos": 4,  # two of them frames
        "other_files": 1,
        "unreadable": 1,
        "without_instance": 3,
        "instances": 1,
    }
    frame = json.loads((output / "clip.avi.000001.json").read_text())
    assert (frame["video"], frame["frame"], frame["time"]) == ("clip.avi", 1, 0.1)
    assert (frame["width"], frame["height"], frame["faces"]) == (64, 48, [])
    assert "text.jpg" in done.stderr
    nobody = json.loads((output / "nobody.png.json").read_text())
    assert nobody["faces"] == []
    assert (nobody["width"], nobody["height"]) == (120, 90)
    found = json.loads((output / "face.png.json").read_text())
    height, width = face.shape[:2]
    overlay = images.read(output / "face.png.overlay.png")
    assert overlay.shape[0] > height  # the legend is under the photo
    regions = [
        region for branch in found["faces"][0]["branches"].values() for region in branch
    ]
    assert regions
    for region in regions:
        mask = masks.to_full(masks.from_rle(region["mask"]), height, width)
        assert mask.sum() == region["mask_area"]
        assert len(region["pixels"]) == region["pixel_count"]
        for x, y in region["pixels"]:
            assert mask[y, x]
        cut = cv2.imread(
            str(output / "face.png" / region["sub_image"]), cv2.IMREAD_UNCHANGED
        )
        assert (cut[..., 3] > 0).sum() == region["mask_area"]


@pytest.mark.slow
def test_annotated_photos_from_build_to_predict(tmp_path):
    photos = tmp_path / "input" / "images"
    photos.mkdir(parents=True)
    annotations = {"images": [], "annotations": [], "categories": []}
    annotations["categories"] = [{"id": 7, "name": "acne"}, {"id": 9, "name": "scar"}]
    for number in range(4):
        record = SyntheticFaces(4, seed=8, partly_labelled=False)[number]
        name = f"{number}.png"
        (photos / name).write_bytes(images.encode_png(record.image))
        height, width = record.image.shape[:2]
        annotations["images"].append(
            {"id": number, "file_name": name, "width": width, "height": height}
        )
        for region in record.regions:
            x0, y0, x1, y1 = region.box.tolist()
            annotations["annotations"].append(
                {
                    "id": len(annotations["annotations"]),
                    "image_id": number,
                    "category_id": 7,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0,
                }
            )
    (tmp_path / "input" / "annotations.json").write_text(json.dumps(annotations))
    data = tmp_path / "data"
    for split in ("train", "val"):
        run(
            "data_prep.build",
            "--source=coco",
            f"--input={tmp_path / 'input'}",
            f"--output={data}",
            f"--split={split}",
            "--face_detector=whole",
        )
    workdir = tmp_path / "run"
    summary = result(
        run(
            "experiments.train",
            "--exp=face_branches",
            f"--data={data}",
            f"--workdir={workdir}",
            *TINY,
            "--config.steps=1",
        )
    )
    config = json.loads((workdir / "config.json").read_text())["config"]
    assert [branch["name"] for branch in config["branches"]] == ["acne", "scar"]
    assert config["face_detector"] == "whole"
    # Boxes without masks, and a branch without a region: nothing to measure.
    assert summary["metrics"]["acne/box_ap50"] is not None
    assert summary["metrics"]["acne/mask_ap50"] is None
    assert summary["metrics"]["scar/box_ap50"] is None
    assert losses(workdir)[0]["loss/acne/second"] == 0
    assert losses(workdir)[0]["loss/acne/first"] > 0
    (data / "val").rename(tmp_path / "val")
    done = run(
        "experiments.train",
        "--exp=face_branches",
        f"--data={data}",
        f"--workdir={tmp_path / 'unmeasured'}",
        *TINY,
        status=1,
    )
    assert "no split 'val'" in done.stderr and "data_prep.split" in done.stderr
    # The same command works once the split is there.
    assert not (tmp_path / "unmeasured").exists()
    assert "step 1" not in done.stdout
    # Prediction works where the data set is gone.
    data.rename(tmp_path / "moved")
    done = run(
        "experiments.predict",
        f"--workdir={workdir}",
        f"--input={photos / '0.png'}",
        f"--output={tmp_path / 'found'}",
    )
    assert result(done)["counts"]["instances"] == 1


@pytest.mark.slow
def test_a_loss_of_ones_own_as_the_readme_shows(tmp_path):
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    recipe = tmp_path / "my_recipe.py"
    recipe.write_text(block[1])
    workdir = tmp_path / "run"
    run(
        "experiments.train",
        f"--exp={recipe}",
        f"--workdir={workdir}",
        *TINY,
        "--config.steps=1",
    )
    assert losses(workdir)[0]["loss/large_scores"] > 0


MISTAKES = {
    "no experiment": (["experiments.train"], 2, "--exp"),
    "unknown experiment": (
        ["experiments.train", "--exp=face_brunches"],
        2,
        "'face_brunches'; --exp takes one of face_branches",
    ),
    "missing recipe file": (["experiments.train", "--exp=no/such.py"], 2, "no/such.py"),
    "unknown field": (
        ["experiments.train", "--exp=face_branches", "--config.batch_sise=2"],
        2,
        "--config.batch_size",
    ),
    "unknown nested field": (
        ["experiments.train", "--exp=face_branches", "--config.optimizer.rate=2"],
        2,
        "--config.optimizer.learning_rate",
    ),
    "value of another type": (
        ["experiments.train", "--exp=face_branches", "--config.steps=many"],
        2,
        "'many'",
    ),
    "value out of range": (
        ["experiments.train", "--exp=face_branches", "--config.batch_size=0"],
        2,
        "--config.batch_size: batch_size is 0",
    ),
    "recipe file without its suffix": (
        ["experiments.train", "--exp=./my_recipe"],
        2,
        "'./my_recipe'; --exp takes one of",
    ),
    "unknown flag": (["experiments.train", "--exps=face_branches"], 2, "exps"),
    "a file for a folder": (
        ["experiments.train", "--exp=face_branches", "--workdir=README.md"],
        2,
        "--workdir=README.md cannot be made a folder",
    ),
    "no data": (
        ["experiments.train", "--exp=face_branches", "--data=no/data"],
        1,
        "no/data",
    ),
    "resume without a run": (
        ["experiments.train", "--resume", "--workdir=no/run"],
        2,
        "no/run",
    ),
    "evaluate without a run": (
        ["experiments.evaluate", "--workdir=no/run"],
        2,
        "no/run",
    ),
    "predict a missing photo": (
        ["experiments.predict", "--workdir=W", "--input=no.jpg", "--output=O"],
        1,
        "no.jpg",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_the_cure(mistake):
    arguments, status, expected = MISTAKES[mistake]
    done = run(*arguments, status=status)
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")
    assert expected in done.stderr


@pytest.mark.slow
def test_mistakes_with_a_trained_workdir(trained, tmp_path):
    workdir, _ = trained
    empty = tmp_path / "empty"
    empty.mkdir()
    text = tmp_path / "text.jpg"
    text.write_text("not a picture")
    output = tmp_path / "found"
    predict = ["experiments.predict", f"--workdir={workdir}", f"--output={output}"]
    train = ["experiments.train", f"--workdir={workdir}"]
    for arguments, status, expected in (
        ([*predict, f"--input={empty}"], 1, str(empty)),
        ([*predict, f"--input={text}"], 1, "text.jpg"),
        ([*predict, f"--input={text}", "--detector=dlib"], 1, "dlib"),
        ([*predict, f"--input={text}", f"--output={tmp_path}"], 2, "of the photos"),
        ([*train, "--exp=face_branches"], 2, "--resume"),
        ([*train, "--resume", "--exp=other"], 2, "not of other"),
        ([*train, "--resume", "--config.steps=9"], 2, "config.steps"),
    ):
        done = run(*arguments, status=status)
        assert done.stderr.count("\n") == 1, done.stderr
        assert expected in done.stderr
