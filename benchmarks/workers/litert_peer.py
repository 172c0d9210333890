"""LiteRT as a peer: the converted model with XNNPACK, its default.

A second argument is part of the converted file's name: `.int8` for MODEL.int8.tflite.
"""

from __future__ import annotations

import sys
from importlib import metadata

from ai_edge_litert.interpreter import Interpreter

from benchmarks.workers.worker import THREADS, Array, Case, serve


class LiteRt:
    """An interpreter with its input set."""

    version = metadata.version("ai-edge-litert")

    def __init__(self, case: Case) -> None:
        self._interpreter = Interpreter(
            case.path(f"{sys.argv[2] if len(sys.argv) > 2 else ''}.tflite"), num_threads=THREADS
        )
        self._interpreter.allocate_tensors()
        for detail, value in zip(self._interpreter.get_input_details(), case.arrays(), strict=True):
            self._interpreter.set_tensor(detail["index"], value)
        self.run = self._interpreter.invoke

    def outputs(self) -> list[Array]:
        """Returns copies of the outputs."""
        return [self._interpreter.get_tensor(detail["index"]) for detail in self._interpreter.get_output_details()]


if __name__ == "__main__":
    serve(LiteRt)
