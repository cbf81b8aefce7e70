"""One train step for every experiment, on one device or many."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from facekp_jax.losses import Term, weighted_sum


class TrainState(flax.struct.PyTreeNode):
    """All that a run needs to go on from where it stopped."""

    step: jax.Array  # [] int32, steps taken
    params: Any
    batch_stats: Any
    opt_state: Any


def data_mesh() -> Mesh:
    """All devices along one axis, `data`."""
    # Auto: vmapped convolutions on a sharded batch do not trace under explicit axes.
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def shard_batch(batch: Mapping[str, Any], mesh: Mesh) -> dict[str, jax.Array]:
    """Puts host arrays on the devices, split along their first axis.

    Raises:
        ValueError: if the batch cannot be split evenly.
    """
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    size = len(next(iter(batch.values())))
    if size % mesh.size:
        raise ValueError(
            f"batch_size {size} cannot be split over {mesh.size} devices; "
            "make it a multiple of their number"
        )
    return {key: jax.device_put(value, sharding) for key, value in batch.items()}


def create_state(
    model: nn.Module,
    optimizer: optax.GradientTransformation,
    batch: Mapping[str, Any],
    seed: int,
    mesh: Mesh,
) -> TrainState:
    """Initial state, replicated over the mesh; `batch` gives a prediction's shapes."""

    def initialise(key, batch):
        variables = model.init(key, batch, train=False)
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=variables["params"],
            batch_stats=variables.get("batch_stats", {}),
            opt_state=optimizer.init(variables["params"]),
        )

    one = {key: value[:1] for key, value in batch.items()}
    # An argument, so that the compiled program serves every seed; and of the generator
    # that compiles in a fraction of the default's time.
    key = jax.random.key(seed, impl="rbg")
    return jax.jit(initialise, out_shardings=replicated(mesh))(key, one)


def make_train_step(
    model: nn.Module,
    targets: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]],
    terms: Sequence[Term],
    optimizer: optax.GradientTransformation,
) -> Callable[[TrainState, Mapping[str, Any]], tuple[TrainState, dict[str, jax.Array]]]:
    """The jitted step (state, batch) -> (state, losses). The old state is consumed.

    Losses are `loss` and `loss/<term>`: scalars, of the whole batch, before the update.
    """

    def step(state, batch):
        def loss_of(params):
            outputs, updated = model.apply(
                {"params": params, "batch_stats": state.batch_stats},
                batch,
                train=True,
                mutable=["batch_stats"],
            )
            loss, values = weighted_sum(terms, outputs, targets(outputs, batch))
            return loss, (values, updated.get("batch_stats", {}))

        gradient = jax.value_and_grad(loss_of, has_aux=True)
        (loss, (values, batch_stats)), gradients = gradient(state.params)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        state = TrainState(
            step=state.step + 1,
            params=optax.apply_updates(state.params, updates),
            batch_stats=batch_stats,
            opt_state=opt_state,
        )
        return state, {"loss": loss} | values

    return jax.jit(step, donate_argnums=0)


def make_predict_step(
    model: nn.Module, decode: Callable[[Mapping[str, Any]], Mapping[str, jax.Array]]
) -> Callable[[TrainState, Mapping[str, Any]], Mapping[str, jax.Array]]:
    """The jitted step (state, batch) -> decoded outputs, for unseen images."""

    def step(state, batch):
        outputs = model.apply(
            {"params": state.params, "batch_stats": state.batch_stats},
            batch,
            train=False,
        )
        return decode(outputs)

    return jax.jit(step)
