"""ONNX Runtime as a peer, with inputs and outputs bound once, so a call copies nothing."""

from __future__ import annotations

import onnxruntime as ort

from benchmarks.adapters import onnx_ops
from benchmarks.workers.worker import THREADS, Array, Case, serve


class OnnxRuntime:
    """The ONNX model with all of the runtime's optimizations."""

    version = ort.__version__

    def __init__(self, case: Case) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = THREADS
        options.inter_op_num_threads = 1  # nodes run one after the other, which is the default
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        session = ort.InferenceSession(case.path(".onnx"), options, providers=["CPUExecutionProvider"])
        self._binding = session.io_binding()
        self._values = [ort.OrtValue.ortvalue_from_numpy(onnx_ops.to_edge(value)) for value in case.arrays()]
        for argument, value in zip(session.get_inputs(), self._values, strict=True):
            self._binding.bind_ortvalue_input(argument.name, value)
        for result in session.get_outputs():
            self._binding.bind_output(result.name)
        self._session = session

    def run(self) -> None:
        """Makes one call."""
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[Array]:
        """Returns the outputs as NumPy arrays."""
        return list(self._binding.copy_outputs_to_cpu())


if __name__ == "__main__":
    serve(OnnxRuntime)
