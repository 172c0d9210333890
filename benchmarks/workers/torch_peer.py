"""PyTorch as a peer: eager, or with `torch.compile`."""

from __future__ import annotations

import sys
from typing import Any

import torch

from benchmarks import definitions
from benchmarks.adapters import torch_ops
from benchmarks.workers.worker import THREADS, Array, Case, serve

torch.set_num_threads(THREADS)
torch.set_num_interop_threads(THREADS)


class Torch:
    """A definition in PyTorch."""

    version = torch.__version__

    def __init__(self, case: Case) -> None:
        compiled = sys.argv[2] == "torch_compile"
        compiler: Any = torch.compile if compiled else lambda function: function
        model = definitions.MODELS[case.model]
        self._inputs = [torch_ops.to_edge(value) for value in case.arrays()]
        self._training = bool(model.optimizer)
        if self._training:
            self._call = torch_ops.training(model, compiler)
        else:
            self._call = compiler(torch_ops.inference(model))
            torch.inference_mode().__enter__()
        self._output: Any = None

    def run(self) -> None:
        """Makes one call."""
        self._output = self._call(*self._inputs)

    def outputs(self) -> list[Array]:
        """Returns the output, or the loss."""
        return [self._output.detach().numpy()]


if __name__ == "__main__":
    serve(Torch)
