"""Trains beside TensorFlow's MultiWorkerMirroredStrategy, measures overlap, and writes both to docs/guide/distributed.md.

Both train fc.py on the same rows from the same weights, in two processes: the program `train`, and this file, which imports the
model with the Python's own TensorFlow. CMakeLists.txt builds the programs; the folder also has `variables.safetensors`, from the
package's `share`.

    cmake -S examples/distributed -B FOLDER -DCMAKE_PREFIX_PATH=PACKAGE && cmake --build FOLDER
    cp PACKAGE/share/fc/fc.variables.safetensors FOLDER/variables.safetensors
    python3 examples/distributed/compare.py FOLDER --mpiexec mpiexec
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs/guide/distributed.md"
ROWS, PIXELS = 32, 28 * 28
SIZE = 2
SHOWN = 20
"""How many steps the plot has."""


def main() -> None:
    """Runs both, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        worker(options.folder / "variables.safetensors", options.rows, options.rank, options.steps)
        return
    mpi = [options.mpiexec, "-n", str(SIZE)]
    ours = losses(
        subprocess.run([*mpi, options.folder / "train", str(options.steps)], capture_output=True, check=True, text=True)
    )
    theirs = tensorflow(options.folder, options.steps)
    times = subprocess.run([*mpi, options.folder / "measure"], capture_output=True, check=True, text=True).stdout
    text = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- begin: measured -->\n", "<!-- end: measured -->"
    shown = re.sub(f"{begin}.*?{end}", lambda _: begin + page(ours, theirs, times) + end, text, flags=re.DOTALL)
    PAGE.write_text(shown, encoding="utf-8")


def losses(done: subprocess.CompletedProcess[str]) -> list[float]:
    """Returns the loss of each step that a program printed."""
    return [float(line.split()[1]) for line in done.stdout.splitlines() if re.fullmatch(r"\d+ [\d.e+-]+", line)]


def tensorflow(folder: Path, steps: int) -> list[float]:
    """Returns the losses of TensorFlow's own training."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = Path(scratch) / "rows"
        with open(rows, "wb") as file:
            subprocess.run([folder / "write_rows", str(steps), str(SIZE)], check=True, stdout=file)
        workers = [f"localhost:{port}" for port in free_ports(SIZE)]
        processes = []
        for rank in range(SIZE):
            config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
            command = [
                sys.executable,
                "-s",
                __file__,
                folder,
                "--rank",
                str(rank),
                "--rows",
                rows,
                "--steps",
                str(steps),
            ]
            environment = os.environ | {"TF_CONFIG": json.dumps(config), "TF_CPP_MIN_LOG_LEVEL": "3"}
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        texts = [process.communicate()[0] for process in processes]
    return losses(subprocess.CompletedProcess([], 0, texts[0]))


def worker(variables: Path, rows: Path, rank: int, steps: int) -> None:
    """Trains as one of TensorFlow's workers, and prints losses."""
    sys.path.insert(0, str(HERE))
    import fc
    import tensorflow as tf

    values = read(variables)
    for weight in fc.model.network.trainable_variables:
        weight.assign(values[weight.path])
    with open(rows, "rb") as file:
        for step in range(steps):
            for other in range(SIZE):
                images = np.fromfile(file, np.float32, ROWS * PIXELS).reshape(ROWS, 28, 28, 1)
                labels = np.fromfile(file, np.int32, ROWS)
                if other == rank:
                    own = tf.constant(images), tf.constant(labels)
            print(step, f"{fc.model.train(*own)['loss'].numpy():.9g}", flush=True)


def read(path: Path) -> dict[str, np.ndarray]:
    """Returns the float32 tensors of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    result = {}
    for name, tensor in header.items():
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        if tensor["dtype"] == "F32":
            result[name] = np.frombuffer(data[begin:end], np.float32).reshape(tensor["shape"])
    return result


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody uses."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def page(ours: Sequence[float], theirs: Sequence[float], times: str) -> str:
    """Returns the part of the page."""
    last = len(ours) - 1
    far = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
    lines = [
        f"    line [{', '.join(f'{curve[last * index // SHOWN]:.3f}' for index in range(SHOWN + 1))}]"
        for curve in (ours, theirs)
    ]
    return "\n".join(
        [
            f"Losses of `fc` in two processes on the same rows differ by at most {far:.1g} in {len(ours)} steps:",
            "",
            "```mermaid",
            "xychart-beta",
            '    title "Loss: compiled, and TensorFlow (the same line)"',
            f'    x-axis "step" 0 --> {last}',
            '    y-axis "loss"',
            *lines,
            "```",
            "",
            f"The fastest tenth of steps of `fc` in two processes on {os.cpu_count()} cores ({cpu()}), in milliseconds. In shared",
            "memory, the cores that compute also communicate, so overlap gains nothing. The network of 10 Gbit/s and 20 µs is",
            "simulated:",
            "",
            "| `bucket_bytes` | calls | shared memory | with overlap | network | with overlap |",
            "|---:|---:|---:|---:|---:|---:|",
            *times.splitlines(),
            "",
        ]
    )


def cpu() -> str:
    """Returns what the machine has."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    level = "AVX-512" if "avx512f" in text else "AVX2" if "avx2" in text else "SSE"
    return f"{platform.machine()}, {level}"


if __name__ == "__main__":
    main()
