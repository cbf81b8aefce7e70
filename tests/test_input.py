"""Batches: seeded, resumable, padded, from any number of processes and hosts."""

import contextlib
import itertools
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from facekp_jax.input import evaluation_batches, training_batches

ROOT = pathlib.Path(__file__).parents[1]
RECORDS = [10 * number for number in range(5)]


def sample(record, rng):
    # Names of different lengths, as those of photos are.
    name = np.array("photo" * (1 + record // 20))
    noise = np.zeros(()) if rng is None else rng.random()
    return {"name": name, "record": np.array(record), "noise": np.array(noise)}


def take(count, *, source=RECORDS, sample=sample, batch_size=2, seed=3, **options):
    batches = training_batches(
        source, sample, batch_size=batch_size, seed=seed, **options
    )
    with contextlib.closing(batches):
        return list(itertools.islice(batches, count))


def assert_same(got, expected):
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])


def together(batches, key):
    return np.concatenate([batch[key] for batch in batches])


def test_a_batch_is_a_function_of_seed_and_step():
    assert_same(take(6), take(6))


@pytest.mark.parametrize("first_step", [1, 2, 5, 7])
def test_a_resumed_stream_is_the_unbroken_one(first_step):
    assert_same(take(5, first_step=first_step), take(5 + first_step)[first_step:])


def test_every_epoch_holds_every_record_once_in_another_order():
    batches = take(15)  # 30 records: six epochs of five
    assert {batch["record"].shape for batch in batches} == {(2,)}
    epochs = together(batches, "record").reshape(6, 5)
    np.testing.assert_array_equal(np.sort(epochs), [RECORDS] * 6)
    assert len({tuple(epoch) for epoch in epochs.tolist()}) > 1


def test_every_augmentation_is_another():
    noise = together(take(15), "noise")
    assert len(np.unique(noise)) == 30


def test_another_seed_is_another_stream():
    a, b = take(15), take(15, seed=4)
    assert (together(a, "noise") != together(b, "noise")).all()
    assert (together(a, "record") != together(b, "record")).any()


@pytest.mark.parametrize("batch_size", [1, 5, 8])
def test_a_batch_may_be_larger_than_the_source(batch_size):
    (batch,) = take(1, batch_size=batch_size)
    assert batch["record"].shape == batch["name"].shape == (batch_size,)


def test_names_are_whole():
    for batch in take(5):
        lengths = [len(name) for name in batch["name"]]
        assert lengths == [5 * (1 + record // 20) for record in batch["record"]]


def test_an_empty_source_is_an_error():
    with pytest.raises(ValueError, match="holds no record"):
        take(1, source=[])


@pytest.mark.parametrize("first_step", [0, 3])
@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_hosts_share_the_batch_of_one(hosts, first_step):
    whole = take(7, batch_size=4, first_step=first_step)
    shares = [
        take(7, batch_size=4, first_step=first_step, host=host, hosts=hosts)
        for host in range(hosts)
    ]
    for step, batch in enumerate(whole):
        for host in range(hosts):
            share = shares[host][step]
            for key in batch:
                np.testing.assert_array_equal(share[key], batch[key][host::hosts])


def test_a_batch_that_the_hosts_cannot_share_is_an_error():
    with pytest.raises(ValueError, match="batch_size 4 cannot be split over 3 hosts"):
        take(1, batch_size=4, hosts=3)


class Reopened:
    """Records of a file that is open in the process that reads it."""

    def __init__(self, path):
        self.path = path
        self._file = open(path)  # noqa: SIM115

    def __reduce__(self):
        return Reopened, (self.path,)

    def __len__(self):
        return 5

    def __getitem__(self, number):
        self._file.seek(0)
        return int(self._file.readlines()[number])


def test_workers_give_the_same_batches_and_end(tmp_path):
    path = tmp_path / "records"
    path.write_text("".join(f"{record}\n" for record in RECORDS))
    ours = os.getpid()

    def inner(record, rng):  # as a recipe's, a function inside a function
        assert os.getpid() != ours
        return sample(record, rng)

    source = Reopened(path)
    got = take(5, source=source, sample=inner, first_step=3, workers=2)
    assert_same(got, take(5, first_step=3))
    assert {type(value) for batch in got for value in batch.values()} == {np.ndarray}
    assert not multiprocessing.active_children()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same_batches(workers):
    options = {"batch_size": 4, "first_step": 2, "host": 1, "hosts": 2}
    assert_same(take(9, workers=workers, **options), take(9, **options))


def broken(record, rng):
    raise ValueError(f"record {record} is broken")


@pytest.mark.slow
def test_an_error_keeps_its_message_and_ends_the_workers():
    with pytest.raises(ValueError, match="record 0 is broken"):
        take(1, source=[0], sample=broken, workers=1)
    assert not multiprocessing.active_children()


def large(record, rng):
    return {"image": rng.integers(0, 256, (256, 256, 3), np.uint8)}


def resident(process):
    pages = pathlib.Path(f"/proc/{process}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20  # MiB


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_flat_after_the_first_epoch():
    epoch = 64  # samples; 12 MiB
    batches = training_batches(range(epoch), large, batch_size=8, seed=0, workers=2)
    used = []
    with contextlib.closing(batches):
        for _ in range(5):
            for _ in range(epoch // 8):
                next(batches)
            workers = multiprocessing.active_children()
            assert len(workers) == 2
            used.append([resident(p) for p in (os.getpid(), *(w.pid for w in workers))])
    growth = np.array(used[2:]).max(axis=0) - np.array(used[1])
    assert (growth < 6).all(), used


KILLED = """
import itertools, multiprocessing, os, signal
from facekp_jax.input import training_batches

def sample(record, rng):
    return {"record": record}

if __name__ == "__main__":
    batches = training_batches(range(5), sample, batch_size=2, seed=0, workers=2)
    next(batches)
    print(*(p.pid for p in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def alive(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    except FileNotFoundError:
        return False
    return state.split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_do_not_outlive_a_killed_training(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the workers hold it open
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL
    workers = done.stdout.split()
    assert len(workers) == 2
    end = time.monotonic() + 30
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(alive, workers))


RECIPE = """
import dataclasses
import numpy as np
from experiments.recipes import face_branches

@dataclasses.dataclass(frozen=True)
class Config(face_branches.Config):
    shade: int = 3

def build(config, data):
    experiment = face_branches.build(config, data)

    def sample(record, rng):
        arrays = experiment.sample(record, rng)
        shaded = dataclasses.replace(config, shade=config.shade + 1).shade
        return arrays | {"image": arrays["image"] // np.uint8(shaded)}

    return dataclasses.replace(experiment, sample=sample)
"""


@pytest.mark.slow
def test_a_training_with_workers_has_the_same_losses(tmp_path):
    recipe = tmp_path / "shaded.py"
    recipe.write_text(RECIPE)
    tiny = (
        "steps=3 batch_size=2 log_every=1 train_faces=6 val_faces=1 crop_side=64 "
        "backbone.features=[8,8,8,8] backbone.blocks=[0,0,0,0] features=8 "
        "box_features=8 mask_features=8 candidates=6 detections=4 true_candidates=4 "
        "mask_samples=2"
    )
    logged = []
    for workers in (0, 2):
        workdir = tmp_path / str(workers)
        done = subprocess.run(
            [sys.executable, "-m", "experiments.train", f"--exp={recipe}"]
            + [f"--workdir={workdir}", f"--config.workers={workers}"]
            + [f"--config.{field}" for field in tiny.split()],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert not done.stderr.count("Traceback"), done.stderr[-3000:]
        lines = (workdir / "metrics.jsonl").read_text().splitlines()
        logged.append([json.loads(line) for line in lines])
        for line in logged[-1]:
            del line["images_per_second"]
    assert logged[0] == logged[1]


@pytest.mark.parametrize(
    "length, batch_size, sizes",
    [(0, 4, []), (1, 4, [1]), (4, 4, [4]), (5, 4, [4, 1]), (5, 1, [1] * 5)],
)
def test_evaluation_sees_every_record_once_in_order(length, batch_size, sizes):
    batches = list(evaluation_batches(RECORDS[:length], sample, batch_size=batch_size))
    assert [len(records) for records, _ in batches] == sizes
    assert [r for records, _ in batches for r in records] == RECORDS[:length]
    for records, arrays in batches:
        assert {value.shape for value in arrays.values()} == {(batch_size,)}
        np.testing.assert_array_equal(arrays["record"][: len(records)], records)
        assert not arrays["noise"].any()


def test_evaluation_makes_samples_ahead_of_their_use():
    waiting = threading.Event()

    def seen(record, rng):
        if record == RECORDS[2]:
            waiting.set()
        return sample(record, rng)

    batches = evaluation_batches(RECORDS, seen, batch_size=2)
    next(batches)
    assert waiting.wait(timeout=30)
    batches.close()


def test_an_error_of_evaluation_keeps_its_message():
    with pytest.raises(ValueError, match="record 0 is broken"):
        list(evaluation_batches(RECORDS, broken, batch_size=2))
