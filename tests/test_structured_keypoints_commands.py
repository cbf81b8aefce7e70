"""The commands of structured_keypoints, on a tiny model."""

import dataclasses
import json

import numpy as np
import pytest
from commands import result, run

from data_prep.synthetic.poses import SyntheticPoses
from experiments.recipes import structured_keypoints as recipe
from facekp_jax import images, keypoint_images
from facekp_jax.skeletons import COCO

# A type that the embedded data set does not have.
RUNNER = dataclasses.replace(COCO, name="runner")
TINY = [
    f"--config.{field}"
    for field in (
        "batch_size=4",
        "log_every=1",
        "crop_height=32",
        "crop_width=64",
        "backbone.features=[8,8,8,8]",
        "backbone.blocks=[0,0,0,0]",
        "features=8",
        "node_features=8",
        "rounds=1",
    )
]


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A data set of people alone, and the photos of its split val."""
    folder = tmp_path_factory.mktemp("people")
    records = [
        dataclasses.replace(
            photo,
            instances=(dataclasses.replace(photo.instances[0], skeleton="runner"),),
            labelled=("runner",),
        )
        for photo in SyntheticPoses(12, seed=3)
        if photo.instances[0].skeleton == "coco"
    ]
    for split, photos in (("train", records[:4]), ("val", records[4:])):
        encoded = [(photo, images.encode_png(photo.image)) for photo in photos]
        keypoint_images.write(folder / "data", split, encoded, skeletons=[RUNNER])
    return folder / "data", records[4:]


@pytest.fixture(scope="module")
def trained(people, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "people"
    done = run(
        "experiments.train",
        "--exp=structured_keypoints",
        f"--data={people[0]}",
        f"--workdir={workdir}",
        "--config.steps=2",
        *TINY,
    )
    return workdir, result(done)


@pytest.mark.slow
def test_training_on_a_data_set_measures_both_points(trained):
    workdir, summary = trained
    metrics = summary["metrics"]
    assert metrics["instances"] == 2
    for stage in ("first", "second"):
        for name in ("pck", "oks_ap", "pck/occluded", "mean_error_px/visible"):
            assert metrics[f"{stage}/{name}"] >= 0
            assert metrics[f"naive/{stage}/{name}"] >= 0
    config = json.loads((workdir / "config.json").read_text())["config"]
    assert [skeleton["name"] for skeleton in config["skeletons"]] == ["runner"]
    logged = (workdir / "metrics.jsonl").read_text().splitlines()
    assert {"loss/first", "loss/second"} <= json.loads(logged[-1]).keys()


@pytest.mark.slow
def test_evaluate_repeats_the_metrics_of_train(trained):
    workdir, summary = trained
    done = run("experiments.evaluate", f"--workdir={workdir}")
    assert result(done)["metrics"] == summary["metrics"]
    rows = [line.split() for line in done.stdout.splitlines()]
    (ankle,) = (row for row in rows if row and row[0] == "right_ankle")
    assert len(ankle) == 6 and 0 <= int(ankle[1]) <= 2


@pytest.mark.slow
def test_predict_looks_at_the_boxes_of_a_coco_file(trained, people, tmp_path):
    workdir, _ = trained
    photos = people[1]
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, photo in enumerate(photos):
        (folder / f"{number:06d}.png").write_bytes(images.encode_png(photo.image))
    boxes = [
        {"image_id": 1, "category_id": 1, "bbox": [10, 20, 100, 60], "score": 0.9},
        {"image_id": 1, "category_id": 1, "bbox": [0, 0, 40, 90], "score": 0.5},
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    predict = "experiments.predict", f"--workdir={workdir}", f"--input={folder}"
    output = tmp_path / "found"
    done = run(*predict, f"--output={output}", f"--detector={tmp_path / 'boxes.json'}")
    counts = result(done)["counts"]
    assert (counts["photos"], counts["instances"]) == (2, 2)
    assert counts["without_instance"] == 1
    assert json.loads((output / "000000.png.json").read_text())["instances"] == []
    first, second = json.loads((output / "000001.png.json").read_text())["instances"]
    assert first["target"] == "runner"
    assert first["box"] == [10, 20, 110, 80]
    assert second["box"] == [0, 0, 40, 90]
    assert list(first["keypoints"]) == list(COCO.keypoints)
    points = np.array(
        [*first["keypoints"].values(), *first["first_keypoints"].values()]
    )
    assert points.shape == (34, 3) and (points[:, 2] <= 1).all()
    coco, other = json.loads((output / "coco_results.json").read_text())
    assert (coco["image_id"], coco["file_name"]) == (1, "000001.png")
    assert (coco["category_id"], coco["category"]) == (1, "runner")
    assert (coco["bbox"], other["bbox"]) == ([10, 20, 100, 60], [0, 0, 40, 90])
    flat = np.reshape(coco["keypoints"], (17, 3))
    named = np.array(list(first["keypoints"].values()))
    np.testing.assert_allclose(flat, named - [0.5, 0.5, 0], atol=0.01)
    overlay = images.read(output / "000001.png.overlay.png")
    assert overlay.shape[0] > photos[1].image.shape[0]

    done = run(*predict, f"--output={output}")  # the whole pictures
    assert result(done)["counts"]["instances"] == 2
    height, width = photos[0].image.shape[:2]
    (whole,) = json.loads((output / "000000.png.json").read_text())["instances"]
    assert whole["box"] == [0, 0, width, height]

    (tmp_path / "boxes.json").write_text("[{}]")
    done = run(
        *predict,
        f"--output={output}",
        f"--detector={tmp_path / 'boxes.json'}",
        status=1,
    )
    assert "boxes.json: not COCO's annotations or results" in done.stderr


def test_both_types_are_not_told_apart_without_a_target():
    experiment = recipe.build(recipe.Config(), None)
    with pytest.raises(ValueError, match=r"--config\.target=: name the target type"):
        experiment.detector("")


@pytest.mark.parametrize("margin", [-0.1, 1.5])
def test_margin_is_a_share(margin):
    with pytest.raises(ValueError, match=f"margin is {margin}; give it 0 to 1"):
        recipe.Config(margin=margin)
