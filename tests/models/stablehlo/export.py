"""Exports real JAX models: `export.py FOLDER`. The networks and the optimizer are those of JAX's own example libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.example_libraries import optimizers, stax


def conv_net() -> tuple[Any, Any]:
    """Returns a convolutional network with random weights, as LeNet: its function, and its weights."""
    init, apply = stax.serial(
        stax.Conv(16, (3, 3), padding="SAME"),
        stax.Relu,
        stax.MaxPool((2, 2), (2, 2)),
        stax.Conv(32, (3, 3), strides=(2, 2), padding="SAME"),
        stax.Relu,
        stax.AvgPool((2, 2), (2, 2)),
        stax.Flatten,
        stax.Dense(64),
        stax.Gelu,
        stax.Dense(10),
        stax.LogSoftmax,
    )
    _, weights = init(jax.random.key(0), (-1, 28, 28, 1))
    return apply, weights


Program = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function, and the shapes of its arguments."""


def classifier() -> Program:
    """A network whose weights are constants of the program, for any batch."""
    apply, weights = conv_net()
    (batch,) = export.symbolic_shape("batch")

    def classify(images: Any) -> Any:
        return {"scores": apply(weights, images)}

    return classify, (jax.ShapeDtypeStruct((batch, 28, 28, 1), np.float32),)


def training_step() -> Program:
    """A step of Adam, which takes and returns all its state."""
    init, apply = stax.serial(stax.Dense(32), stax.Tanh, stax.Dense(4), stax.LogSoftmax)
    _, weights = init(jax.random.key(0), (-1, 8))
    start, update, current = optimizers.adam(1e-2)

    def loss_of(weights: Any, features: Any, labels: Any) -> Any:
        return -jnp.mean(jnp.take_along_axis(apply(weights, features), labels[:, None], axis=1))

    def step(state: Any, number: Any, features: Any, labels: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(current(state), features, labels)
        return {"loss": loss, "state": update(number, gradient, state)}

    shapes = jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype), start(weights))
    number = jax.ShapeDtypeStruct((), np.int32)
    features, labels = jax.ShapeDtypeStruct((16, 8), np.float32), jax.ShapeDtypeStruct((16,), np.int32)
    return step, (shapes, number, features, labels)


def decoder() -> Program:
    """A recurrent decoder with loops, branches, sorting, random numbers, and dtypes that C++ lacks."""

    def decode(seed: Any, tokens: Any, table: Any, greedy: Any) -> Any:
        def advance(state: Any, token: Any) -> Any:
            state = jnp.tanh(state * jnp.bfloat16(0.5) + table[token])
            return state, jnp.sort(state)[-3:]

        last, best = jax.lax.scan(advance, jnp.zeros(table.shape[1], table.dtype), tokens)
        noise = jax.random.gumbel(jax.random.key(seed), last.shape)
        score = jax.lax.cond(greedy, lambda: last.astype(np.float32), lambda: last.astype(np.float32) + noise)
        values, tokens = jax.lax.top_k(score, 4)
        return {"best": best, "values": values, "tokens": tokens, "odd": tokens % 2 == 1}

    return decode, (
        jax.ShapeDtypeStruct((), np.uint32),
        jax.ShapeDtypeStruct((6,), np.int32),
        jax.ShapeDtypeStruct((50, 12), jnp.bfloat16),
        jax.ShapeDtypeStruct((), np.bool_),
    )


PROGRAMS = {"classifier": classifier, "training_step": training_step, "decoder": decoder}


def main(folder: Path) -> None:
    """Writes two programs as text, which has what newer versions of StableHLO have, and one as a portable artifact."""
    for name, make in PROGRAMS.items():
        function, shapes = make()
        exported = export.export(jax.jit(function), platforms=["cpu"])(*shapes)
        if name == "classifier":
            (folder / f"{name}.mlirbc").write_bytes(exported.mlir_module_serialized)
        else:
            (folder / f"{name}.mlir").write_text(exported.mlir_module())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
