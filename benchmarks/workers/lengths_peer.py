"""The process of a peer of `lengths.py`: one model, whose inputs get another length in each command.

    lengths_peer.py PEER FILE INPUTS

PEER is onnxruntime, openvino, or litert, FILE its model, and INPUTS the number of inputs: tokens, and a mask of ones. A line of
standard input is `LENGTH CALLS`. The answer is the shortest nanoseconds of a call in several batches of so many calls. For
`0 PATH`, the outputs of the last call go to that file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

BATCHES = 5


def onnxruntime(path: str) -> Callable[[Sequence[Any]], tuple[Callable[[], object], Callable[[], Sequence[Any]]]]:
    """Returns what sets inputs, with all values bound: a call copies nothing."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def bound(inputs: Sequence[Any]) -> tuple[Callable[[], object], Callable[[], Sequence[Any]]]:
        binding = session.io_binding()
        for argument, value in zip(session.get_inputs(), inputs, strict=True):
            binding.bind_ortvalue_input(argument.name, ort.OrtValue.ortvalue_from_numpy(value))
        for result in session.get_outputs():
            binding.bind_output(result.name)
        return lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu

    return bound


def openvino(path: str) -> Callable[[Sequence[Any]], tuple[Callable[[], object], Callable[[], Sequence[Any]]]]:
    """Returns what sets inputs, as shared memory."""
    import openvino as ov

    config = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    config |= {"INFERENCE_PRECISION_HINT": "f32"}
    request = ov.Core().compile_model(path, "CPU", config).create_infer_request()

    def bound(inputs: Sequence[Any]) -> tuple[Callable[[], object], Callable[[], Sequence[Any]]]:
        for index, value in enumerate(inputs):
            request.set_input_tensor(index, ov.Tensor(value, shared_memory=True))

        def run() -> None:
            request.start_async()
            request.wait()

        return run, lambda: [tensor.data.copy() for tensor in request.output_tensors]

    return bound


def litert(path: str) -> Callable[[Sequence[Any]], tuple[Callable[[], object], Callable[[], Sequence[Any]]]]:
    """Returns what resizes and sets inputs."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=1)

    def bound(inputs: Sequence[Any]) -> tuple[Callable[[], object], Callable[[], Sequence[Any]]]:
        for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.resize_tensor_input(detail["index"], value.shape)
        interpreter.allocate_tensors()
        for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        results = interpreter.get_output_details()
        return interpreter.invoke, lambda: [interpreter.get_tensor(detail["index"]) for detail in results]

    return bound


def main() -> None:
    """Answers commands until standard input ends."""
    peer, path, count = sys.argv[1:]
    bound = {"litert": litert, "onnxruntime": onnxruntime, "openvino": openvino}[peer](path)
    outputs: Callable[[], Sequence[Any]] = list
    for line in sys.stdin:
        first, second = line.split()
        if first == "0":
            np.savez(second, *outputs())
            print(flush=True)
            continue
        length, calls = int(first), int(second)
        values = [np.arange(length, dtype=np.int32)[None] % 100, np.ones((1, length), np.float32)]
        inputs = values[: int(count)]  # which OpenVINO doesn't keep
        run, outputs = bound(inputs)
        run()
        best = float("inf")
        for _ in range(BATCHES):
            begin = time.perf_counter_ns()
            for _ in range(calls):
                run()
            best = min(best, (time.perf_counter_ns() - begin) / calls)
        print(best, flush=True)


if __name__ == "__main__":
    main()
