"""A classifier of Flax (nnx), and a step of AdamW from Optax. Its state is parameters, statistics, and moments."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

BATCH, SIZE, CLASSES = 16, 8, 4


class Net(nnx.Module):
    """A convolution with batch normalization, and a dense layer."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dense = nnx.Linear(8 * (SIZE // 2) ** 2, CLASSES, rngs=rngs)

    def __call__(self, images):
        """Returns the logits."""
        x = nnx.relu(self.norm(self.conv(images)))
        x = nnx.avg_pool(x, (2, 2), (2, 2))
        return self.dense(x.reshape(x.shape[0], -1))


net = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adamw(1e-2), wrt=nnx.Param)
graph, start = nnx.split((net, optimizer))


def train(state, images, labels):
    """A step on a batch."""
    net, optimizer = nnx.merge(graph, state)
    net.train()

    def loss_of(net):
        return optax.softmax_cross_entropy_with_integer_labels(net(images), labels).mean()

    loss, gradient = nnx.value_and_grad(loss_of)(net)
    optimizer.update(net, gradient)
    return {"state": nnx.split((net, optimizer))[1], "loss": loss}


def predict(state, images):
    """The class of each image."""
    net, _ = nnx.merge(graph, state)
    net.eval()
    return {"label": jnp.argmax(net(images), 1)}


def input_fn(entry_point):
    """Returns the state and shapes."""
    images = jax.ShapeDtypeStruct((BATCH, SIZE, SIZE, 1), jnp.float32)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    return (start, images, labels) if entry_point == "train" else (start, images)


def golden_fn(step, rng, entry_point):
    """Returns inputs to verify: labels are classes."""
    images = rng.standard_normal((BATCH, SIZE, SIZE, 1))
    return (
        {"images": images, "labels": rng.integers(0, CLASSES, BATCH)} if entry_point == "train" else {"images": images}
    )
