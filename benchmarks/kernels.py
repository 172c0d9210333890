"""Measures single products and convolutions beside oneDNN, MKL, and XNNPACK, for docs/measured/kernels.md.

    python3 benchmarks/kernels.py [--rounds N]

prints a table, on one thread of the last core. Each library chooses its instructions as it runs, so ours are compiled for
the highest level that the CPU has. All may pack the right side or the kernel ahead, as they do for a model's weights.
oneDNN and MKL are those of PyTorch's CPU build, and XNNPACK that of LiteRT, which runs a model of one operation.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

_MODELS = "TFAOT_KERNELS_MODELS"
"""The environment variable with the folder of LiteRT's models."""


@dataclass(frozen=True)
class Product:
    """A product of matrices, of which the right one is constant."""

    model: str
    rows: int
    depth: int
    columns: int

    @property
    def name(self) -> str:
        """Its name in //tests/runtime/kernels:benchmark, which measures ours."""
        return f"{self.model}: {self.rows} x {self.depth} x {self.columns}"

    @property
    def flops(self) -> int:
        """Its arithmetic operations."""
        return 2 * self.rows * self.depth * self.columns


@dataclass(frozen=True)
class Convolution:
    """A convolution of one square image with padding."""

    model: str
    size: int
    channels: int
    taps: int
    filters: int
    stride: int = 1
    groups: int = 1

    @property
    def name(self) -> str:
        """Its name in //tests/runtime/kernels:benchmark, which measures ours."""
        stride = f" / {self.stride}" if self.stride > 1 else ""
        depthwise = " depthwise" if self.groups > 1 else ""
        shape = f"1 x {self.size}^2 x {self.channels} -> {self.filters}, {self.taps}x{self.taps}"
        return f"{self.model}: {shape}{stride}{depthwise}"

    @property
    def flops(self) -> int:
        """Its arithmetic operations, with those on padding."""
        outputs = -(-self.size // self.stride)
        return 2 * outputs * outputs * self.filters * self.taps * self.taps * self.channels // self.groups


SHAPES: tuple[Product | Convolution, ...] = (
    Product("fc", 64, 784, 256),
    Product("fc", 64, 256, 256),
    Product("conv_fc", 64, 2916, 256),
    Product("LSTM(128), training", 16, 128, 512),
    Product("LSTM(128), training", 800, 64, 512),
    Product("LSTM(128)", 50, 64, 512),
    Product("transformer", 32, 64, 64),
    Product("transformer", 32, 64, 256),
    Product("transformer", 32, 256, 64),
    Product("small batch", 4, 512, 512),
    Product("small batch", 32, 512, 512),
    Product("square", 256, 256, 256),
    Product("large", 384, 384, 384),
    Product("large", 128, 768, 3072),
    Product("large", 512, 768, 768),
    Product("large", 1536, 1536, 1536),
    Convolution("MobileNetV2", 224, 3, 3, 32, 2),
    Convolution("MobileNetV2", 112, 32, 1, 16),
    Convolution("MobileNetV2", 112, 16, 1, 96),
    Convolution("MobileNetV2", 56, 96, 1, 24),
    Convolution("MobileNetV2", 56, 24, 1, 144),
    Convolution("MobileNetV2", 28, 144, 1, 32),
    Convolution("MobileNetV2", 28, 32, 1, 192),
    Convolution("MobileNetV2", 14, 384, 1, 96),
    Convolution("MobileNetV2", 14, 96, 1, 576),
    Convolution("MobileNetV2", 7, 160, 1, 960),
    Convolution("MobileNetV2", 7, 960, 1, 320),
    Convolution("MobileNetV2", 112, 32, 3, 32, 1, 32),
    Convolution("MobileNetV2", 112, 96, 3, 96, 2, 96),
    Convolution("MobileNetV2", 56, 144, 3, 144, 1, 144),
    Convolution("MobileNetV2", 28, 192, 3, 192, 1, 192),
    Convolution("MobileNetV2", 14, 576, 3, 576, 1, 576),
    Convolution("MobileNetV2", 7, 960, 3, 960, 1, 960),
    Convolution("ResNet-18", 224, 3, 7, 64, 2),
    Convolution("ResNet-18", 56, 64, 3, 64),
    Convolution("ResNet-18", 56, 64, 3, 128, 2),
    Convolution("ResNet-18", 28, 128, 3, 128),
    Convolution("ResNet-18", 14, 256, 3, 256),
    Convolution("ResNet-18", 7, 512, 3, 512),
)


def seconds(run: Callable[[], Any], *, rounds: int = 5) -> float:
    """Returns the seconds of a call: the smallest mean of several rounds of about 10 ms."""
    run()
    begin = time.perf_counter()
    run()
    calls = max(1, min(5000, int(0.01 / (time.perf_counter() - begin))))
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def measure_torch() -> None:
    """Prints a JSON object for each shape, in the environment that has PyTorch."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    torch.set_num_threads(1)
    onednn = torch.ops.mkldnn
    with torch.inference_mode():
        for shape in SHAPES:
            runs: list[Callable[[], Any]]
            if isinstance(shape, Product):
                left, right = torch.randn(shape.rows, shape.depth), torch.randn(shape.depth, shape.columns)
                packed = onednn._reorder_linear_weight(right.T.contiguous(), shape.rows)
                runs = [
                    functools.partial(torch.mm, left, right, out=torch.empty(shape.rows, shape.columns)),
                    functools.partial(onednn._linear_pointwise, left, packed, None, "none", [], ""),
                ]
            else:
                pad, step, one = [shape.taps // 2] * 2, [shape.stride] * 2, [1, 1]
                image = torch.randn(1, shape.channels, shape.size, shape.size).to(memory_format=torch.channels_last)
                kernel = torch.randn(shape.filters, shape.channels // shape.groups, shape.taps, shape.taps)
                kernel = kernel.to(memory_format=torch.channels_last)
                packed = onednn._reorder_convolution_weight(kernel, pad, step, one, shape.groups, list(image.shape))
                end: tuple[Any, ...] = (None, pad, step, one, shape.groups, "none", [], "")
                runs = [
                    functools.partial(torch.conv2d, image, kernel, None, step, pad, one, shape.groups),
                    functools.partial(onednn._convolution_pointwise, image, packed, *end),
                ]
            print(json.dumps({"name": shape.name, "seconds": min(map(seconds, runs))}), flush=True)


def measure_litert() -> None:
    """Prints a JSON object for each shape, in the environment that has LiteRT."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter  # type: ignore[import-not-found,unused-ignore]

    for index, shape in enumerate(SHAPES):
        interpreter = Interpreter(os.path.join(os.environ[_MODELS], f"{index}.tflite"), num_threads=1)
        interpreter.allocate_tensors()
        (detail,) = interpreter.get_input_details()
        interpreter.set_tensor(detail["index"], np.random.default_rng(1).random(detail["shape"], np.float32))
        print(json.dumps({"name": shape.name, "seconds": seconds(interpreter.invoke)}), flush=True)


def convert() -> None:
    """Writes LiteRT's models, in TensorFlow's environment."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(1)

    def constant(*size: int) -> Any:
        return tf.constant(random.standard_normal(size, np.float32))

    def operation(shape: Product | Convolution) -> Callable[[Any], Any]:
        if isinstance(shape, Product):
            matrix = constant(shape.depth, shape.columns)
            return lambda x: tf.matmul(x, matrix)
        if shape.groups > 1:
            filters = constant(shape.taps, shape.taps, shape.channels, 1)
            return lambda x: tf.nn.depthwise_conv2d(x, filters, [1, shape.stride, shape.stride, 1], "SAME")
        kernel = constant(shape.taps, shape.taps, shape.channels, shape.filters)
        return lambda x: tf.nn.conv2d(x, kernel, shape.stride, "SAME")

    for index, shape in enumerate(SHAPES):
        square = () if isinstance(shape, Product) else (1, shape.size, shape.size, shape.channels)
        size = (shape.rows, shape.depth) if isinstance(shape, Product) else square
        function = tf.function(operation(shape)).get_concrete_function(tf.TensorSpec(size, tf.float32))
        converted = tf.lite.TFLiteConverter.from_concrete_functions([function]).convert()
        pathlib.Path(os.environ[_MODELS], f"{index}.tflite").write_bytes(converted)


def ours(command: list[str], pinned: Callable[[], None]) -> dict[str, float]:
    """Returns the seconds of each shape in our kernels."""
    seconds = {}
    for shape in SHAPES:
        done = subprocess.run(
            [*command, f"--only={shape.name}"], capture_output=True, check=True, text=True, preexec_fn=pinned
        )
        for line in done.stdout.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells[0] == shape.name:
                seconds[shape.name] = float(cells[1]) * 1e-6
    return seconds


def main() -> None:
    """Builds what is needed, and restarts itself in the libraries' environments."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=3, help="how many times each library starts, in turns")
    rounds = parser.parse_args().rounds
    from benchmarks import catalog, environments, harness

    wide = "avx512f" in pathlib.Path("/proc/cpuinfo").read_text()
    build = catalog.Build((), ())
    program = build.program(f"tests/runtime/kernels:benchmark{'_levels' if wide else ''}")
    build.exported(["fc"])  # Bazel links TensorFlow into its folder when an action needs it.
    cpus = harness.last_cpus()

    def pinned() -> None:
        os.sched_setaffinity(0, cpus)

    command = [str(program), "--no_peer", "--packed"]
    best: dict[str, dict[str, float]] = {"ours": {}, "oneDNN, MKL": {}, "XNNPACK": {}}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, _MODELS: folder, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        converter = [sys.executable, __file__, "--convert"]
        path = f"{ROOT}:{build.packages()}"
        subprocess.run(converter, check=True, env={**environment, "PYTHONPATH": path})
        for _ in range(rounds):
            times = {"ours": ours(command, pinned)}
            for library, mode in (("oneDNN, MKL", "torch"), ("XNNPACK", "litert")):
                done = subprocess.run(
                    [environments.python(mode), __file__, f"--{mode}"],
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                    preexec_fn=pinned,
                )
                lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
                times[library] = {line["name"]: line["seconds"] for line in lines}
            for library, seconds in times.items():
                for name, took in seconds.items():
                    best[library][name] = min(took, best[library].get(name, took))
    ratios = []
    print(
        "| shape | ours, us | oneDNN or MKL, us | XNNPACK, us | GFLOP/s | best peer / ours |\n|---|---|---|---|---|---|"
    )
    for shape in SHAPES:
        mine, *peers = (seconds[shape.name] for seconds in best.values())
        cells = [f"{took * 1e6:.1f}" for took in (mine, *peers)]
        ratios.append(min(peers) / mine)
        cells += [f"{shape.flops / mine * 1e-9:.1f}", f"{ratios[-1]:.2f}"]
        print(f"| {shape.name} | {' | '.join(cells)} |")
    print(f"\ngeometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    modes = {"--torch": measure_torch, "--litert": measure_litert, "--convert": convert}
    modes.get(sys.argv[1] if len(sys.argv) == 2 else "", main)()
