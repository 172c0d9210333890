"""Measures products and convolutions in PyTorch's CPU build, with oneDNN and MKL, for docs/measured/kernels.md.

    python3 benchmarks/torch_kernels.py

prints GFLOP/s by shape, on one thread of the last core, out of place. `./bazelw run //tests/runtime/kernels:benchmark` prints
the same for our kernels.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

PRODUCTS = (
    (12544, 16, 96),
    (3136, 96, 24),
    (784, 144, 32),
    (196, 384, 96),
    (49, 160, 960),
    (49, 960, 320),
    (64, 784, 256),
    (32, 64, 64),
    (16, 128, 512),
    (800, 64, 512),
)
"""Rows, depth, columns."""
CONVOLUTIONS = (
    (112, 32, 32, 3, 1, 32),
    (224, 3, 32, 3, 2, 1),
    (224, 3, 64, 7, 2, 1),
    (56, 64, 64, 3, 1, 1),
    (28, 128, 128, 3, 1, 1),
    (14, 256, 256, 3, 1, 1),
    (7, 512, 512, 3, 1, 1),
)
"""Height and width, channels, filters, kernel size, stride, groups."""


def seconds(run: Callable[[], Any], *, rounds: int = 7) -> float:
    """Returns the seconds of a call: the smallest mean of several rounds of about 4 ms."""
    run()
    begin = time.perf_counter()
    run()
    calls = max(1, min(2000, int(0.004 / (time.perf_counter() - begin))))
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def measure() -> None:
    """Measures in the environment that has PyTorch."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    torch.set_num_threads(1)
    with torch.inference_mode():
        for rows, depth, columns in PRODUCTS:
            left, right, out = torch.randn(rows, depth), torch.randn(depth, columns), torch.empty(rows, columns)
            flops = 2 * rows * depth * columns
            speed = flops / seconds(functools.partial(torch.mm, left, right, out=out)) / 1e9
            print(f"{rows} x {depth} x {columns}: {speed:.0f} GFLOP/s", flush=True)
        for size, channels, filters, kernel, stride, groups in CONVOLUTIONS:
            layer = torch.nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False).eval()
            layer = layer.to(memory_format=torch.channels_last)
            image = torch.randn(1, channels, size, size).to(memory_format=torch.channels_last)
            flops = 2 * layer(image).numel() * (channels // groups) * kernel * kernel
            speed = flops / seconds(functools.partial(layer, image)) / 1e9
            what = f"1 x {size}^2 x {channels} -> {filters}, {kernel}x{kernel} / {stride}, {groups} groups"
            print(f"{what}: {speed:.0f} GFLOP/s", flush=True)


def main() -> None:
    """Restarts itself in PyTorch's environment, on one core."""
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=raw).parse_args()
    from benchmarks import environments, harness

    command = [environments.python("torch"), __file__, "--here"]
    cpu = harness.last_cpu()
    subprocess.run(command, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))


if __name__ == "__main__":
    measure() if "--here" in sys.argv else main()
