"""Programs of JAX as compiled libraries, beside JAX's own client for CPUs, which runs the functions that they came from."""

from __future__ import annotations

import os
import unittest
from typing import Any

import numpy as np

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from export import PROGRAMS

import tfaot

FOLDER = "tests/models/stablehlo"
LIMITS = {"number": 9, "labels": 4, "tokens": 50}
"""Integers are smaller than these: a step, classes, and rows of a table."""


def drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns values for an input. Floats are positive, because Adam takes roots."""
    if jax.numpy.issubdtype(dtype, np.floating):
        return np.abs(rng.standard_normal(shape)).astype(dtype)
    return rng.integers(0, LIMITS.get(name, 2), shape).astype(dtype)


class JaxTest(unittest.TestCase):
    """The programs of export.py."""

    def test_results(self) -> None:
        """Protects users of JAX: a compiled program computes what JAX computes, in all its results."""
        for name, make in PROGRAMS.items():
            model = tfaot.load(f"{FOLDER}/lib{name}_aot_shared.so")
            signature = model.run.signature
            function, shapes = make()
            jitted = jax.jit(function)
            for seed in range(3):
                with self.subTest(name, seed=seed):
                    rng = np.random.default_rng(seed)
                    values = [drawn(rng, edge.member, edge.shape, edge.numpy()) for edge in signature.inputs]
                    arguments = jax.tree.unflatten(jax.tree.structure(shapes), values)
                    wanted = [jax.device_get(value) for value in jax.tree.leaves(jitted(*arguments))]
                    results = model.run(
                        {edge.name: value for edge, value in zip(signature.inputs, values, strict=True)}
                    )
                    self.assertEqual(len(results), len(wanted))
                    for (output, got), want in zip(results.items(), wanted, strict=True):
                        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), output)
                        # In bfloat16, one rounding is 2^-9.
                        close = 1e-5 if want.dtype == np.float32 else 2.0**-7 if want.dtype == jax.numpy.bfloat16 else 0
                        np.testing.assert_allclose(
                            got.astype(np.float64), want.astype(np.float64), rtol=close, atol=close / 10, err_msg=output
                        )


if __name__ == "__main__":
    unittest.main()
