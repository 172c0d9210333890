"""JAX as a peer: a definition in JAX, compiled by `jax.jit`. For a model without a definition, it runs our HLO."""

from __future__ import annotations

import json
import os
from typing import Any

from benchmarks.workers.worker import XLA_FLAGS, Array, Case, serve

os.environ["XLA_FLAGS"] = XLA_FLAGS
os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from benchmarks import definitions


class Jax:
    """A definition in JAX."""

    version = jax.__version__

    def __init__(self, case: Case) -> None:
        from benchmarks.adapters import jax_ops

        model = definitions.MODELS[case.model]
        self._inputs = [jax.device_put(value) for value in case.arrays()]
        self._state: Any = None
        self._call: Any
        if model.optimizer:
            self._call, self._state = jax_ops.training(model)
            self.run = self._train  # type: ignore[method-assign]
        else:
            # Not `.lower(…).compile()`: its result is called through Python, four times slower on small networks.
            self._call = jax_ops.inference(model)
        self._output: Any = None

    def run(self) -> None:
        """Makes one call and waits for it."""
        self._output = self._call(*self._inputs).block_until_ready()

    def _train(self) -> None:
        self._output, self._state = self._call(self._state, *self._inputs)
        self._output.block_until_ready()

    def outputs(self) -> list[Array]:
        """Returns the output, or the loss."""
        return [jax.device_get(self._output)]


class JaxHlo:
    """Our hlo stage's HLO, through JAX's compiler. Results for variables become the next call's arguments."""

    version = jax.__version__

    def __init__(self, case: Case) -> None:
        from jaxlib import xla_client
        from jaxlib._jax import mlir

        from benchmarks import tensors

        with open(case.files["manifest"], encoding="utf-8") as file:
            manifest = json.load(file)
        with open(case.files["hlo"], "rb") as binary:
            code = mlir.hlo_to_stablehlo(binary.read())
        entry = manifest["entry_points"][0]
        self._device = jax.devices("cpu")[0]
        self._executable: Any = self._device.client.compile_and_load(
            code, xla_client.DeviceList((self._device,)), xla_client.CompileOptions()
        )
        values = tensors.read(case.files["variables"])
        self._inputs = [jax.device_put(value, self._device) for value in case.arrays()]
        used = [manifest["variables"][use["variable"]] for use in entry["variables"]]
        self._variables = [jax.device_put(values[v["name"]].numpy(), self._device) for v in used]
        self._written = [index for index, use in enumerate(entry["variables"]) if use["written"]]
        self._count = len(entry["outputs"])
        self._outputs: list[Any] = []

    def run(self) -> None:
        """Takes one step and waits for it."""
        results = self._executable.execute([*self._inputs, *self._variables])
        for index, value in zip(self._written, results[self._count :], strict=True):
            self._variables[index] = value
        self._outputs = results[: self._count]
        for value in results:
            value.block_until_ready()

    def outputs(self) -> list[Array]:
        """Returns the results."""
        return [jax.device_get(value) for value in self._outputs]


if __name__ == "__main__":
    serve(lambda case: Jax(case) if case.model in definitions.MODELS else JaxHlo(case))
