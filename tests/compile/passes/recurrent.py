"""Recurrent networks for tests of passes, and their gradients, as graphs that XLA can compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array

Step = Callable[..., Any]
"""Takes a step's input, its state, and its number. Returns the next state."""


def scan(step: Step, x: Any, state: Any, *, backwards: bool = False, bound: Any = None) -> tuple[Any, Any]:
    """Returns a loop over [step, batch, feature], as Keras writes it.

    Args:
      step: computes a state.
      x: the inputs.
      state: the initial state.
      backwards: whether the last step's input comes first.
      bound: the number of steps; by default, all.

    Returns:
      All states in the order in which they were computed, [step, …], and the last one.
    """
    import tensorflow as tf

    steps = x.shape[0]
    inputs = tf.TensorArray(tf.float32, steps, element_shape=x.shape[1:]).unstack(x)
    outputs = tf.TensorArray(tf.float32, steps, element_shape=state.shape)

    def body(k: Any, state: Any, outputs: Any) -> Any:
        after = step(inputs.read(steps - 1 - k if backwards else k), state, k)
        return k + 1, after, outputs.write(k, after)

    _, last, outputs = tf.while_loop(
        lambda k, *_: k < (steps if bound is None else bound),
        body,
        (tf.constant(0), state, outputs),
        maximum_iterations=steps,
    )
    return outputs.stack(), last


def gradients(loss: Any, of: Sequence[Any]) -> list[Any]:
    """Returns gradients of a sum, each with its own name, so that it can be fetched."""
    import tensorflow as tf

    found = tf.gradients(tf.reduce_sum(loss), list(of))
    return [tf.identity(gradient, f"gradient_{index}") for index, gradient in enumerate(found)]


def normal(*shape: int, scale: float = 1.0) -> Array:
    """Returns values from a normal distribution that depend only on the shape."""
    values: Array = (np.random.default_rng(shape).standard_normal(shape) * scale).astype(np.float32)
    return values
