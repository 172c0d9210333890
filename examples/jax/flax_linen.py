"""A recurrent network of Flax (linen), and a step of Adam from Optax with clipped gradients."""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

LENGTH, SIZE = 12, 3


class Forecaster(nn.Module):
    """Predicts the next value of a sequence."""

    @nn.compact
    def __call__(self, x):
        """Returns what is predicted from the last step."""
        x = nn.RNN(nn.GRUCell(16))(x)
        return nn.Dense(SIZE)(x[:, -1])


net = Forecaster()
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))
start = net.init(jax.random.key(0), jnp.zeros((1, LENGTH, SIZE)))


def model(params, opt, x, y):
    """A step on a batch."""
    loss, gradient = jax.value_and_grad(lambda p: optax.l2_loss(net.apply(p, x), y).mean())(params)
    updates, opt = optimizer.update(gradient, opt, params)
    return optax.apply_updates(params, updates), opt, loss


def input_fn():
    """Returns the state and shapes."""
    x, y = jax.ShapeDtypeStruct((8, LENGTH, SIZE), jnp.float32), jax.ShapeDtypeStruct((8, SIZE), jnp.float32)
    return start, optimizer.init(start), x, y
