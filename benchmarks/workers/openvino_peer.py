"""OpenVINO as a peer: the ONNX model, float32, tuned for latency."""

from __future__ import annotations

import openvino as ov

from benchmarks.workers.worker import THREADS, Array, Case, serve


class OpenVino:
    """An inference request with its input set."""

    version = ov.__version__

    def __init__(self, case: Case) -> None:
        import numpy as np

        config = {"INFERENCE_NUM_THREADS": THREADS, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        config |= {"INFERENCE_PRECISION_HINT": "f32"}
        self._request = ov.Core().compile_model(case.path(".onnx"), "CPU", config).create_infer_request()
        self._inputs = [
            np.ascontiguousarray(value.transpose(0, 3, 1, 2)) if value.ndim == 4 else value for value in case.arrays()
        ]
        for index, value in enumerate(self._inputs):
            self._request.set_input_tensor(index, ov.Tensor(value, shared_memory=True))

    def run(self) -> None:
        """Runs one inference."""
        self._request.start_async()
        self._request.wait()

    def outputs(self) -> list[Array]:
        """Returns copies of the outputs."""
        return [np_tensor.data.copy() for np_tensor in self._request.output_tensors]


if __name__ == "__main__":
    serve(OpenVino)
