"""From a source of records to batches: shuffled, augmented, padded, seeded."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import cv2
import grain
import numpy as np
from absl import flags

THREADS = 2  # decoding and warping release the interpreter's lock
AHEAD = 2  # batches that a worker holds ready


def training_batches(
    source: Any,
    sample: Callable[[Any, np.random.Generator], Mapping[str, np.ndarray]],
    *,
    batch_size: int,
    seed: int,
    first_step: int = 0,
    workers: int = 0,
    host: int = 0,
    hosts: int = 1,
) -> Generator[dict[str, np.ndarray], None, None]:
    """Endless batches, each a function of the seed and the step alone.

    Row r of host h is row r * hosts + h of the batch that one host alone would be
    given: the hosts' shares are disjoint, and together they are that batch.

    Workers are fresh processes that import the main module: a script that asks for
    them starts under `if __name__ == "__main__"`. The source and `sample` are pickled
    to them, functions inside functions too; a source opens its files again.

    Args:
        source: records with random access, `len` and `[]`.
        sample: makes a record's arrays, of the same shapes for every record.
        batch_size: records in a batch, of all hosts together.
        seed: of order and augmentation.
        first_step: the first batch to give, as if those before it had been taken.
        workers: processes that make batches ahead; 0: threads of this process.
        host: which of the hosts this is.
        hosts: how many share a batch.

    Returns:
        A generator; its `close` ends threads and workers.

    Raises:
        ValueError: if the source is empty, or a batch cannot be split between the
            hosts.
    """
    if not len(source):
        raise ValueError("the training split holds no record; build it with records")
    if batch_size % hosts:
        raise ValueError(
            f"batch_size {batch_size} cannot be split over {hosts} hosts; make it a "
            "multiple of their number"
        )
    # Endless, so without a remainder: to count one would overflow. Split between the
    # hosts after `random_map`, which seeds by a sample's place in the whole stream.
    batches = (
        grain.MapDataset.source(source)
        .seed(seed)
        .shuffle()
        .repeat()
        .random_map(sample)[host::hosts]
        .batch(batch_size // hosts, drop_remainder=True)[first_step:]
    )
    threads = 1 if workers else THREADS
    ahead = batches.to_iter_dataset(grain.ReadOptions(threads, 2 * threads))
    if workers:
        if not flags.FLAGS.is_parsed():  # Grain asks, for its workers
            flags.FLAGS.mark_as_parsed()
        options = grain.MultiprocessingOptions(workers, per_worker_buffer_size=AHEAD)
        ahead = ahead.mp_prefetch(options, _start_worker).map(_copied)
    return _closing(iter(ahead))


def evaluation_batches(
    source: Any,
    sample: Callable[[Any, None], Mapping[str, np.ndarray]],
    *,
    batch_size: int,
) -> Iterator[tuple[list[Any], dict[str, np.ndarray]]]:
    """Every record once, in order: (records, arrays). The last arrays are padded.

    A batch is decoded while the one before it is used.
    """

    def pair(number):
        record = source[number]
        return record, sample(record, None)

    pairs = grain.MapDataset.range(len(source)).map(pair)
    options = grain.ReadOptions(THREADS, max(THREADS, batch_size))
    with contextlib.closing(iter(pairs.to_iter_dataset(options))) as ahead:
        for first in range(0, len(source), batch_size):
            size = min(batch_size, len(source) - first)
            records, samples = zip(*(next(ahead) for _ in range(size)), strict=True)
            samples += samples[:1] * (batch_size - size)
            arrays = {key: np.stack([s[key] for s in samples]) for key in samples[0]}
            yield list(records), arrays


def _closing(iterator):
    # Grain's own must be gone, not only closed, when the interpreter ends.
    with contextlib.closing(iterator):
        yield from iterator


def _copied(batch):
    # A worker's arrays lie in shared memory, each a file that is open while it lives.
    return {key: np.array(value) for key, value in batch.items()}


def _start_worker(number, count):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the keyboard stops the training
    cv2.setNumThreads(1)
    threading.Thread(target=_end_with_the_training, daemon=True).start()


def _end_with_the_training():
    # A training that is killed tells its workers nothing, and they would wait for ever.
    multiprocessing.parent_process().join()
    os._exit(1)
