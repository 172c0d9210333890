"""A program of tests/models/stablehlo, from which the StableHLO was exported, in JAX: compiled by `jax.jit`."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.workers.worker import XLA_FLAGS, Array, Case, serve

os.environ["XLA_FLAGS"] = XLA_FLAGS
os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from tests.models.stablehlo import export


class JaxProgram:
    """A function of JAX."""

    version = jax.__version__

    def __init__(self, case: Case) -> None:
        function, shapes = export.PROGRAMS[case.model]()
        inputs = [jax.device_put(value) for value in case.arrays()]
        self._arguments = jax.tree.unflatten(jax.tree.structure(shapes), inputs)
        self._call = jax.jit(function)
        self._results: Any = None

    def run(self) -> None:
        """Makes one call and waits for it."""
        self._results = jax.block_until_ready(self._call(*self._arguments))

    def outputs(self) -> list[Array]:
        """Returns the results."""
        return [jax.device_get(value) for value in jax.tree.leaves(self._results)]


if __name__ == "__main__":
    serve(JaxProgram)
