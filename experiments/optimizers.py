"""The optimizer of the keypoint recipes."""

import dataclasses

import jax
import optax
import optax.contrib


@dataclasses.dataclass(frozen=True)
class Muon:
    """Muon for the kernels and AdamW for all else, at one rate.

    The rate rises linearly, then falls to zero along a cosine. From scratch, Muon needs
    less than half as many pictures as AdamW alone.

    Source: Jordan et al., Muon, 2024.
    """

    learning_rate: float = 7e-3
    warmup_steps: int = 80
    weight_decay: float = 1e-3
    clip_norm: float = 5.0


MUON = Muon()


def muon(config: Muon, schedule: optax.Schedule) -> optax.GradientTransformation:
    """The optimizer of a config, at the rate that a schedule gives."""
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.contrib.muon(
            schedule,
            ns_steps=3,
            weight_decay=config.weight_decay,
            adam_b2=0.99,
            muon_weight_dimension_numbers=_kernels,
            consistent_rms=0.2,  # of an update, about that of Adam's
        ),
    )


def _kernels(parameters):
    """Which axes of each kernel are its inputs and outputs; None for all else."""

    def of(path, array):
        if path[-1].key != "kernel":
            return None
        inputs = tuple(range(array.ndim - 1))
        return optax.contrib.MuonDimensionNumbers(inputs, array.ndim - 1)

    return jax.tree_util.tree_map_with_path(of, parameters)
