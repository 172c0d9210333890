"""IREE as a peer: inference on its synchronous, single-threaded CPU driver, with reused buffers."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from iree import runtime

from benchmarks.workers.worker import Array, Case, serve


class Iree:
    """A compiled module."""

    version = metadata.version("iree-base-runtime")

    def __init__(self, case: Case) -> None:
        config = runtime.Config("local-sync")
        with open(case.path(".vmfb"), "rb") as file:
            module = runtime.VmModule.copy_buffer(config.vm_instance, file.read())
        self._context = runtime.SystemContext(vm_modules=[module], config=config)
        bound = self._context.modules[module.name]
        self._call = bound["main"]
        self._inputs = [runtime.asdevicearray(config.device, value) for value in case.arrays()]
        self._output: Any = None

    def run(self) -> None:
        """Makes one call."""
        self._output = self._call(*self._inputs)

    def outputs(self) -> list[Array]:
        """Returns copies of the outputs."""
        outputs = self._output if isinstance(self._output, (list, tuple)) else [self._output]
        return [value.to_host() for value in outputs]


if __name__ == "__main__":
    serve(Iree)
