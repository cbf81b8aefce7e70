"""Models that are compiled fast, with variables as after some training."""

import functools

import jax
import numpy as np

# Compiling is all of the time of a tiny model.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def some(shapes, deviation):
    """Variables of a module, no layer of it near zero.

    Args:
        shapes: of the variables, as `jax.eval_shape` gives them.
        deviation: of all that is neither a kernel nor a scale.
    """
    rng = np.random.default_rng(0)

    def leaf(path, shape):
        name = path[-1].key
        if name in ("scale", "var"):
            return np.ones(shape.shape, np.float32)
        spread = np.prod(shape.shape[:-1]) ** -0.5 if name == "kernel" else deviation
        return rng.normal(0, spread, shape.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(leaf, shapes)
