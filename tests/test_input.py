"""Batches: seeded, resumable, padded."""

import itertools

import numpy as np
import pytest

from facekp_jax.input import evaluation_batches, training_batches

RECORDS = [10 * number for number in range(5)]


def sample(record, rng):
    # Names of different lengths, as those of photos are.
    name = np.array("photo" * (1 + record // 20))
    noise = np.zeros(()) if rng is None else rng.random()
    return {"name": name, "record": np.array(record), "noise": np.array(noise)}


def take(count, *, batch_size=2, seed=3, first_step=0, source=RECORDS):
    batches = training_batches(
        source, sample, batch_size=batch_size, seed=seed, first_step=first_step
    )
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
