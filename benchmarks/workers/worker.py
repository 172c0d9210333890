"""The process of every peer: makes one call, then reads commands on standard input and answers on standard output, as JSON lines.

The first call comes before any command, so the time from the process's start to the first answer is a cold start.

    run                    makes one call; answers {}
    outputs PATH           writes the latest call's outputs as float32, concatenated
    time BATCHES CALLS     answers {"ns": [...]}: nanoseconds for each batch of calls
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

THREADS = int(os.environ.get("BENCHMARK_THREADS", "1"))
"""How many threads a peer uses. The harness sets it (process.py), and each worker tells its framework in the usual way."""

XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1" if THREADS == 1 else ""
"""For JAX. Without flags, XLA has a thread for each core that the process can use, and the harness has pinned it to as many."""


@dataclasses.dataclass(frozen=True)
class Case:
    """The files that a process starts with, as JSON in its first argument."""

    model: str
    inputs: tuple[dict[str, Any], ...]
    """`path` of raw values, `dtype`, and `shape` of each."""
    files: dict[str, str]
    """By kind: `graph`, `manifest`, `variables`, `hlo`, and `stablehlo`, as far as they exist."""
    folder: str
    """A peer's folder for converted models, `MODEL.onnx` and the like."""

    def arrays(self) -> list[Array]:
        """Returns the inputs."""
        return [np.fromfile(i["path"], i["dtype"]).reshape(i["shape"]) for i in self.inputs]

    def path(self, ending: str) -> str:
        """Returns the path of one of this model's files in `folder`."""
        return os.path.join(self.folder, self.model + ending)


class Runner(Protocol):
    """A model in a framework, with its inputs in place."""

    version: str

    def run(self) -> None:
        """Makes one call, and returns when it is finished."""
        ...

    def outputs(self) -> Sequence[Array]:
        """Returns the latest call's outputs."""
        ...


def case() -> Case:
    """Returns the files that this process was started with."""
    return Case(**json.loads(sys.argv[1]))


def serve(make: Callable[[Case], Runner]) -> None:
    """Makes the runner, calls it once, and answers commands until standard input ends."""
    # Output of libraries must not appear between answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    try:
        runner = make(case())
        runner.run()
        answers.write(json.dumps({"ready": True, "version": runner.version}) + "\n")
        for line in sys.stdin:
            command, *arguments = line.split()
            answer: dict[str, Any] = {}
            if command == "run":
                runner.run()
            elif command == "outputs":
                with open(arguments[0], "wb") as file:
                    for value in runner.outputs():
                        file.write(np.ascontiguousarray(value, np.float32).tobytes())
            elif command == "time":
                answer["ns"] = _time(runner.run, int(arguments[0]), int(arguments[1]))
            else:
                raise ValueError(f"unknown command {command!r}")
            answers.write(json.dumps(answer) + "\n")
    except Exception as error:
        traceback.print_exc()
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        sys.exit(1)


def _time(run: Callable[[], None], batches: int, calls: int) -> list[int]:
    clock, times = time.perf_counter_ns, []
    for _ in range(batches):
        begin = clock()
        for _ in range(calls):
            run()
        times.append(clock() - begin)
    return times
