"""From a source of records to batches: shuffled, augmented, padded, seeded."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grain
import numpy as np

THREADS = 2  # decoding and warping release the interpreter's lock


def training_batches(
    source: Any,
    sample: Callable[[Any, np.random.Generator], Mapping[str, np.ndarray]],
    *,
    batch_size: int,
    seed: int,
    first_step: int = 0,
) -> Iterator[dict[str, np.ndarray]]:
    """Endless batches, a function of the seed and the step alone.

    Args:
        source: records with random access, `len` and `[]`.
        sample: makes a record's arrays, of the same shapes for every record.
        batch_size: records in a batch, of all hosts together.
        seed: of order and augmentation.
        first_step: the first batch to give, as if those before it had been taken.

    Raises:
        ValueError: if the source is empty.
    """
    if not len(source):
        raise ValueError("the training split holds no record; build it with records")
    # Endless, so without a remainder: to count one would overflow.
    batches = (
        grain.MapDataset.source(source)
        .seed(seed)
        .shuffle()
        .repeat()
        .random_map(sample)
        .batch(batch_size, drop_remainder=True)
    )
    options = grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2 * THREADS)
    return iter(batches[first_step:].to_iter_dataset(options))


def evaluation_batches(
    source: Any,
    sample: Callable[[Any, None], Mapping[str, np.ndarray]],
    *,
    batch_size: int,
) -> Iterator[tuple[list[Any], dict[str, np.ndarray]]]:
    """Every record once, in order: (records, arrays). The last arrays are padded."""
    for first in range(0, len(source), batch_size):
        numbers = range(first, min(first + batch_size, len(source)))
        records = [source[number] for number in numbers]
        samples = [sample(record, None) for record in records]
        samples += samples[:1] * (batch_size - len(samples))
        yield records, {key: np.stack([s[key] for s in samples]) for key in samples[0]}
