"""A network of dense layers in JAX, trained with SGD by several replicas."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

ROWS = 32
"""The rows of a replica's batch."""

mesh = jax.make_mesh((jax.device_count(),), ("replicas",), axis_types=(AxisType.Auto,))


def loss_of(params, images, labels):
    """Returns the mean loss of some rows."""
    hidden = images.reshape(images.shape[0], -1)
    for layer in params["hidden"]:
        hidden = jax.nn.relu(hidden @ layer["kernel"] + layer["bias"])
    logits = hidden @ params["out"]["kernel"] + params["out"]["bias"]
    return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, 10) * jax.nn.log_softmax(logits), -1))


def step(params, images, labels):
    """Returns new parameters, and the loss over all replicas' rows before the step. Each replica has its own rows."""
    loss, gradient = jax.value_and_grad(loss_of)(params, images, labels)
    loss, gradient = jax.lax.pmean((loss, gradient), "replicas")
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradient), loss


def train(params, optimizer, images, labels):
    """A step of all replicas, with the rows of all."""
    rows = P("replicas")
    # Gradients are those of each replica's own rows, until they are averaged.
    of_all = jax.shard_map(step, mesh=mesh, in_specs=(P(), rows, rows), out_specs=(P(), P()), check_vma=False)
    params, loss = of_all(params, images, labels)
    return {"params": params, "optimizer": {"iteration": optimizer["iteration"] + 1}, "loss": loss}


def input_fn():
    """Returns initial values of the parameters, and the shapes of all replicas' rows."""
    rng = np.random.default_rng(1)

    def layer(inputs, outputs):
        kernel = rng.normal(0, (2 / inputs) ** 0.5, (inputs, outputs)).astype(np.float32)
        return {"kernel": kernel, "bias": np.zeros(outputs, np.float32)}

    params = {"hidden": [layer(28 * 28, 256), layer(256, 256)], "out": layer(256, 10)}
    rows = ROWS * jax.device_count()
    images = jax.ShapeDtypeStruct((rows, 28, 28, 1), jnp.float32)
    return params, {"iteration": np.int32(0)}, images, jax.ShapeDtypeStruct((rows,), jnp.int32)


def golden_fn(_step, rng):
    """Returns one replica's rows of noise."""
    return {"images": rng.standard_normal((ROWS, 28, 28, 1)), "labels": rng.integers(0, 10, ROWS)}
