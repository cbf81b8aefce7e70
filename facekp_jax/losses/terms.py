"""Loss terms are data: what an experiment is trained on, and how it is reduced."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Term(NamedTuple):
    """One term of the training loss, or one for each of several things at once.

    `function(outputs, batch)` takes the model's outputs and the batch with its
    targets, both dictionaries of arrays, and returns (values, mask): an elementwise
    loss and a boolean mask that broadcasts to it. With a tuple of names, the first axis
    of both runs over the names, and each is reduced on its own. Terms of one name are
    logged as their sum, `loss/<name>`.
    """

    name: str | tuple[str, ...]
    function: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Any, Any]]
    weight: float = 1.0


def check_same_shape(name: str, predictions: jax.Array, targets: jax.Array) -> None:
    """Raises ValueError if the shapes differ: broadcasting would hide the mistake."""
    if predictions.shape != targets.shape:
        raise ValueError(
            f"{name}: predictions have shape {predictions.shape} but targets "
            f"{targets.shape}; give both the same shape"
        )


def masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean in float32 of values where mask is true; 0 if the mask is empty."""
    mask = jnp.broadcast_to(mask, values.shape).astype(bool)
    total = jnp.sum(jnp.where(mask, values.astype(jnp.float32), 0.0))
    return total / jnp.maximum(jnp.sum(mask, dtype=jnp.float32), 1.0)


def weighted_sum(
    terms: Sequence[Term], outputs: Mapping[str, Any], batch: Mapping[str, Any]
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Reduces every term and adds them up.

    Returns:
        The training loss, and `{"loss/<name>": weighted value}` whose sum it is.
    """
    values: dict[str, jax.Array] = {}
    for term in terms:
        losses, mask = term.function(outputs, batch)
        if isinstance(term.name, str):
            reduced = {term.name: masked_mean(losses, mask)}.items()
        else:
            means = jax.vmap(masked_mean)(losses, mask)
            reduced = zip(term.name, means, strict=True)
        for name, value in reduced:
            key = f"loss/{name}"
            values[key] = values.get(key, 0.0) + term.weight * value
    return sum(values.values(), jnp.float32(0.0)), values
