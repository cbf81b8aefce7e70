"""The commands of grouped_keypoints, on a tiny model."""

import json

import numpy as np
import pytest
from commands import result, run

from data_prep.synthetic.crowds import SyntheticCrowds
from experiments.recipes import grouped_keypoints as recipe
from facekp_jax import images
from facekp_jax.skeletons import COCO

TINY = [
    f"--config.{field}"
    for field in (
        "steps=2",
        "batch_size=2",
        "log_every=1",
        "train_photos=4",
        "val_photos=3",
        "height=64",
        "width=96",
        "backbone.features=[8,8,8,8]",
        "backbone.blocks=[0,0,0,0]",
        "features=8",
        "blocks=0",
        "candidates=4",
    )
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "crowds"
    done = run(
        "experiments.train", "--exp=grouped_keypoints", f"--workdir={workdir}", *TINY
    )
    return workdir, result(done)


@pytest.mark.slow
def test_training_measures_instances_and_groups(trained):
    workdir, summary = trained
    metrics = summary["metrics"]
    for name in ("oks_ap", "oks_ap50", "keypoint_ap"):
        assert 0 <= metrics[name] <= 1
        assert 0 <= metrics[f"naive/{name}"] <= 1
    assert {"purity", "naive/purity"} <= metrics.keys()
    logged = json.loads((workdir / "metrics.jsonl").read_text().splitlines()[-1])
    names = ("heatmap", "pull", "push", "ordinal", "instance", "size")
    names += ("auxiliary_keypoint", "auxiliary_instance")
    assert {f"loss/{name}" for name in names} <= logged.keys()


@pytest.mark.slow
def test_predict_gives_every_instance_of_a_photo(trained, tmp_path):
    workdir, _ = trained
    photo = SyntheticCrowds(1, seed=9)[0]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "000007.png").write_bytes(images.encode_png(photo.image))
    output = tmp_path / "found"
    done = run(
        "experiments.predict",
        f"--workdir={workdir}",
        f"--input={tmp_path / 'photos'}",
        f"--output={output}",
        "--config.least=0.0001",  # hardly trained, it is sure of nothing
        "--config.score=0",
    )
    found = json.loads((output / "000007.png.json").read_text())["instances"]
    coco = json.loads((output / "coco_results.json").read_text())
    assert result(done)["counts"]["instances"] == len(found) == len(coco) > 0
    assert {entry["image_id"] for entry in coco} == {7}
    assert images.read(output / "000007.png.overlay.png").shape[1] >= 192


def experiment(**fields):
    return recipe.build(recipe.Config(height=64, width=96, **fields), None)


def test_results_are_in_the_photo_without_what_was_not_found():
    built = experiment(max_instances=2)
    scores = np.zeros((2, 17), np.float32)
    scores[0, :2] = 0.5, 1.0
    points = np.zeros((2, 17, 2), np.float32)
    points[0, 1] = 24, 32
    # 96 x 64 pixels show a photo of 192 x 192 at a third, 16 pixels from the left.
    points[0, 0] = 16, 0
    found = {
        "points": points,
        "scores": scores,
        "valid": np.array([True, False]),
        "score": scores.mean(-1),
        "skeleton": np.zeros(2, np.int32),
    }
    record = SyntheticCrowds(1)[0]
    assert record.image.shape == (192, 192, 3)
    assert built.results(record, found) == []  # a score of 1.5 / 17 is too low
    (instance,) = experiment(max_instances=2, score=0.05).results(record, found)
    assert instance.skeleton == COCO.name
    np.testing.assert_allclose(instance.keypoints[:2], [[0, 0, 2], [24, 96, 2]])
    assert not instance.keypoints[2:].any()
    np.testing.assert_allclose(instance.box, [0, 0, 24, 96])
    assert instance.score == pytest.approx(1.5 / 17)


def test_other_detectors_are_refused():
    with pytest.raises(ValueError, match="--detector=haar: only whole pictures"):
        experiment().detector("haar")


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"height": 100}, "height is 100; take a multiple of 32"),
        ({"candidates": 0}, "candidates is 0; give it at least 1"),
    ],
)
def test_settings_that_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        recipe.Config(**fields)
