"""What the benchmark measures, on a clock of its own, and as a command."""

import itertools

import pytest
from commands import result, run

from experiments import benchmark


class Clock:
    """Stands in for the module `time`: goes on only when told."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def process_time(self):
        return self.now / 4

    def passing(self, seconds):
        """Endless batches, each of which takes so long."""
        for number in itertools.count():
            self.now += seconds
            yield {"number": number}


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(benchmark, "time", clock)
    return clock


def test_a_stretch_counts_images_for_its_time(clock):
    # 2 s of batches of 6 that take 0.5 s each: 12 images in a second.
    assert benchmark._stretch(clock.passing(0.5), 6) == (12, 0.25 / 12)
    # A batch that takes longer than the stretch is counted whole.
    assert benchmark._stretch(clock.passing(8.0), 6) == (6 / 8, 2 / 6)


@pytest.mark.parametrize("batch, step, expected", [(3, 1, 0.75), (0, 1, 0), (1, 0, 1)])
def test_waiting_is_a_share_of_the_trainings_time(clock, batch, step, expected):
    taken = []

    def take(arrays):
        clock.now += step
        taken.append(arrays["number"])

    assert benchmark._wait(take, clock.passing(batch)) == expected
    assert taken == list(range(benchmark.WARM_UP + benchmark.STEPS))


RECIPE = """
import dataclasses
import flax.linen as nn
import cv2
import jax.numpy as jnp
import numpy as np
import optax
from experiments.configs import RUN, check_least
from experiments.experiment import Experiment
from facekp_jax import images, keypoint_crops
from facekp_jax.keypoint_crops import Augmentation
from facekp_jax.losses import Term
from facekp_jax.records import Instance, KeypointImage
from facekp_jax.skeletons import Skeleton

CHAIN = Skeleton(
    "chain",
    tuple("abcdefg"),
    tuple((k, k + 1) for k in range(6)),
    tuple(range(6, -1, -1)),
    (0.05,) * 7,
)

@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 1
    seed: int = 0
    batch_size: int = 16
    workers: int = 0
    log_every: int = 1
    checkpoint_every: int = 1
    photos: int = 40
    width: int = 640
    height: int = 480
    crop_side: int = 256
    augmentation: Augmentation = Augmentation()

    def __post_init__(self):
        check_least(self, RUN)

class Photos:
    def __init__(self, config):
        rng = np.random.default_rng(config.seed)
        size = config.width, config.height
        self.photos = []
        for number in range(config.photos):
            coarse = rng.integers(0, 256, (60, 80, 3), np.uint8)
            photo = cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC)
            grain = rng.integers(0, 256, photo.shape, np.uint8)
            photo = cv2.addWeighted(photo, 0.8, grain, 0.12, 0)
            options = [cv2.IMWRITE_JPEG_QUALITY, 90]
            data = cv2.imencode(".jpg", photo, options)[1].tobytes()
            extent = rng.uniform(0.3, 0.95, 2) * size
            corner = rng.uniform(0, size - extent)
            keypoints = np.ones((7, 3), np.float32) * 2
            keypoints[:, :2] = rng.uniform(corner, corner + extent, (7, 2))
            box = np.concatenate([corner, corner + extent]).astype(np.float32)
            instance = Instance("chain", keypoints, box, float(extent.prod()))
            self.photos.append((str(number), data, instance))

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, number):
        name, data, instance = self.photos[number]
        return KeypointImage(name, images.decode(data), (instance,), ("chain",))

class Mean(nn.Module):
    @nn.compact
    def __call__(self, batch, train):
        colour = batch["image"].astype(jnp.float32).mean(axis=(1, 2)) / 255
        return {"points": nn.Dense(14)(colour).reshape(-1, 7, 2)}

def error(outputs, batch):
    points = batch["keypoints"]
    return jnp.abs(outputs["points"] - points[..., :2]), points[..., 2:] > 0

def build(config, data):
    size = config.crop_side, config.crop_side

    def sample(photo, rng):
        matrix = keypoint_crops.instance_matrix(
            photo.instances[0], CHAIN, size, 0.1, config.augmentation, rng
        )
        return keypoint_crops.instance_sample(
            photo, 0, matrix, size, [CHAIN], config.augmentation, rng
        )

    other = {field.name: None for field in dataclasses.fields(Experiment)}
    return Experiment(**other | dict(
        config=config,
        source=lambda split: Photos(config),
        blank=Photos(config)[0],
        sample=sample,
        model=Mean(),
        optimizer=optax.sgd(1e-3),
        targets=lambda outputs, batch: batch,
        losses=[Term("error", error)],
    ))
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_the_input_of_keypoint_crops(tmp_path, workers):
    recipe = tmp_path / "crops.py"
    recipe.write_text(RECIPE)
    config = "--config.photos=8", f"--config.workers={workers}"
    measured = result(run("experiments.benchmark", f"--exp={recipe}", *config))
    assert measured["experiment"] == str(recipe)
    assert (measured["what"], measured["workers"]) == ("input", workers)
    assert measured["images_per_second"] > 0 and measured["step_seconds"] > 0
    assert 0 <= measured["input_wait"] <= 1
    if workers:
        assert measured["cpu_seconds_per_image"] is None
        assert measured["worker_memory_mib"] > 10
    else:
        # Generous: the machine may be busy.
        assert 0 < measured["cpu_seconds_per_image"] < 0.05


@pytest.mark.slow
def test_the_step_alone(tmp_path):
    recipe = tmp_path / "crops.py"
    recipe.write_text(RECIPE)
    arguments = f"--exp={recipe}", "--what=step", "--config.photos=2"
    measured = result(run("experiments.benchmark", *arguments))
    assert measured["compile_seconds"] > 0
    assert measured["images_per_second"] == pytest.approx(
        16 / measured["step_seconds"], rel=0.01, abs=0.1
    )


def test_what_is_measured_must_be_named():
    for arguments in ([], ["--exp=face_branches", "--workdir=run"]):
        done = run("experiments.benchmark", *arguments, status=2)
        assert (
            done.stderr.startswith("error: give --exp") and done.stderr.count("\n") == 1
        )
