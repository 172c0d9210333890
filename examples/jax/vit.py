"""A vision transformer, and a step of Adam. Its state is parameters and moments."""

import jax
import jax.numpy as jnp
import numpy as np

BATCH, SIDE, PATCH, WIDTH, HEADS, BLOCKS, CLASSES = 16, 16, 4, 32, 4, 2, 4
TOKENS = (SIDE // PATCH) ** 2 + 1
rng = np.random.default_rng(8)


def drawn(*shape):
    """Returns initial values."""
    return (rng.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32)


start = {
    "patch": drawn(PATCH * PATCH, WIDTH),
    "class": drawn(1, WIDTH),
    "position": drawn(TOKENS, WIDTH),
    "head": drawn(WIDTH, CLASSES),
    "blocks": [
        {
            "attend": drawn(WIDTH, 3 * WIDTH),
            "join": drawn(WIDTH, WIDTH),
            "up": drawn(WIDTH, 2 * WIDTH),
            "down": drawn(2 * WIDTH, WIDTH),
        }
        for _ in range(BLOCKS)
    ],
}


def logits(params, images):
    """Returns what the class token has become."""
    patches = images.reshape(BATCH, SIDE // PATCH, PATCH, SIDE // PATCH, PATCH).swapaxes(2, 3)
    x = patches.reshape(BATCH, -1, PATCH * PATCH) @ params["patch"]
    x = jnp.concatenate([jnp.broadcast_to(params["class"], (BATCH, 1, WIDTH)), x], 1) + params["position"]
    for block in params["blocks"]:
        heads = (jax.nn.standardize(x) @ block["attend"]).reshape(BATCH, TOKENS, 3, HEADS, -1)
        x = x + jax.nn.dot_product_attention(*jnp.moveaxis(heads, 2, 0)).reshape(x.shape) @ block["join"]
        x = x + jax.nn.gelu(jax.nn.standardize(x) @ block["up"]) @ block["down"]
    return jax.nn.standardize(x[:, 0]) @ params["head"]


def train(params, moments, step, images, labels):
    """A step on a batch."""

    def loss_of(params):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits(params, images)), labels[:, None], 1).mean()

    loss, gradient = jax.value_and_grad(loss_of)(params)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments["first"], gradient)
    second = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, moments["second"], gradient)
    rate = 3e-3 * jnp.sqrt(1 - 0.99 ** (step + 1)) / (1 - 0.9 ** (step + 1))
    params = jax.tree.map(lambda p, m, s: p - rate * m / (jnp.sqrt(s) + 1e-6), params, first, second)
    return {"params": params, "moments": {"first": first, "second": second}, "step": step + 1, "loss": loss}


def predict(params, images):
    """The class of each image."""
    return {"label": jnp.argmax(logits(params, images), 1)}


def input_fn(entry_point):
    """Returns the state and shapes."""
    images = jax.ShapeDtypeStruct((BATCH, SIDE, SIDE), jnp.float32)
    if entry_point == "predict":
        return start, images
    zeros = jax.tree.map(np.zeros_like, start)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    return start, {"first": zeros, "second": zeros}, jnp.float32(0), images, labels


def golden_fn(step, rng, entry_point):
    """Returns inputs to verify: labels are classes."""
    images = {"images": rng.standard_normal((BATCH, SIDE, SIDE))}
    return images if entry_point == "predict" else images | {"labels": rng.integers(0, CLASSES, BATCH)}
