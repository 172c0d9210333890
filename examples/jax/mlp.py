"""A network that fits a function: two entry points over one set of parameters, of which `train` returns new ones."""

import jax
import jax.numpy as jnp
import numpy as np


def predict(params, x):
    """Returns y for each row."""
    hidden = jnp.tanh(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return {"y": hidden @ params["out"]["kernel"] + params["out"]["bias"]}


@jax.jit
def train(params, momentum, x, y):
    """A step of gradient descent."""

    def loss_of(params):
        return jnp.mean((predict(params, x)["y"] - y) ** 2)

    loss, gradient = jax.value_and_grad(loss_of)(params)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    params = jax.tree.map(lambda p, m: p - 0.02 * m, params, momentum)
    return {"params": params, "momentum": momentum, "loss": loss}


def input_fn(entry_point):
    """Returns the shapes of the arguments, and initial values of the parameters."""
    rng = np.random.default_rng(1)
    layers = {"hidden": (4, 32), "out": (32, 1)}
    params = {
        name: {
            "kernel": rng.normal(0, size[0] ** -0.5, size).astype(np.float32),
            "bias": np.zeros(size[1], np.float32),
        }
        for name, size in layers.items()
    }
    if entry_point == "predict":
        return params, jax.ShapeDtypeStruct((16, 4), jnp.float32)
    momentum = jax.tree.map(np.zeros_like, params)
    return params, momentum, jax.ShapeDtypeStruct((16, 4), jnp.float32), jax.ShapeDtypeStruct((16, 1), jnp.float32)
