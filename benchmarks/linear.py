"""Linear algebra of the runtime beside SciPy's LAPACK, which is JAX's on CPUs, on one core.

    OPENBLAS_NUM_THREADS=1 taskset -c 1 python3 benchmarks/linear.py [--level x86-64-v4]

It needs NumPy and SciPy, and prints the table of docs/measured/kernels.md: the least time of interleaved rounds, and LAPACK's as a
multiple of it. Both copy their operands first.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import lapack

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "py")]

from tests.compile.program import linear_test  # noqa: E402
from tests.compile.program.fourier_test import GUARD  # noqa: E402
from tests.stages.native import LEVELS  # noqa: E402
from tfaot.xla.linear import Linear  # noqa: E402

SIZES = (4, 8, 16, 32, 64, 128, 256, 512)
ROUNDS = 7
TIMED = """
#include <cstring>
#include <time.h>

#include "tfaot/flush_denormals.h"

static double Now() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

// As classes and JAX do.
extern "C" void Flush() { tfaot::SetFloatMode(tfaot::Flushing(tfaot::GetFloatMode())); }

extern "C" double Time(const long* numbers, int is_float, void* scratch, void* data, const void* from, long bytes, int count) {
  const double start = Now();
  for (int i = 0; i < count; ++i) {
    std::memcpy(data, from, bytes);
    Run(numbers, is_float, 0, scratch, data);
  }
  return (Now() - start) / count;
}
"""


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="x86-64-v3", choices=sorted(LEVELS), help="the CPU level")
    level = parser.parse_args().level
    linear_test.SOURCE += TIMED
    with tempfile.TemporaryDirectory() as folder:
        kernels = linear_test.library(Path(folder), level, "-O3")
    kernels.Time.restype = ctypes.c_double
    kernels.Flush()
    names = ("Cholesky", "LU", "solve", "inverse", "triangular", "QR", "eigh", "SVD")
    for dtype, letter in ((np.float32, "s"), (np.float64, "d")):
        print(f"| {np.dtype(dtype).name} | {' | '.join(f'{name}, µs | / LAPACK' for name in names)} |")
        print("|---" * (2 * len(names) + 1) + "|")
        for size in SIZES:
            cells = [
                f"{1e6 * ours:.{max(0, 1 - int(np.log10(1e6 * ours)))}f} | {theirs / ours:.2f}"
                for ours, theirs in measured(kernels, np.dtype(dtype), letter, size)
            ]
            print(f"| {size} | {' | '.join(cells)} |", flush=True)


def measured(kernels: ctypes.CDLL, dtype: np.dtype[Any], letter: str, size: int) -> list[tuple[float, float]]:
    """Returns the seconds that each function takes here and in LAPACK."""
    normal = np.random.default_rng(size).standard_normal
    x = normal((size, size)).astype(dtype)
    positive = (x @ x.T + size * np.eye(size)).astype(dtype)
    symmetric, lower = x + x.T, np.tril(positive)
    column, identity = normal((size, 1)).astype(dtype), np.eye(size, dtype=dtype)
    fortran = {id(matrix): np.asfortranarray(matrix) for matrix in (x, positive, symmetric, lower, column)}
    count = max(1, 3_000_000 // (size**3 + 1000))

    def ours(*calls: tuple[Linear, tuple[Any, ...]]) -> Callable[[], float]:
        prepared = []
        for call, operands in calls:
            run = linear_test.Call(kernels, call, tuple(operand[None] for operand in operands))
            rows = np.zeros(call.row, dtype)
            rows[: run.rows.size] = run.rows[0]
            prepared.append((run, rows))

        def once() -> float:
            times: list[float] = [
                kernels.Time(
                    run.numbers,
                    int(dtype == np.float32),
                    *(ctypes.c_void_p(part[GUARD:].ctypes.data) for part in (run.scratch, run.data)),
                    ctypes.c_void_p(rows.ctypes.data),
                    rows.nbytes,
                    count,
                )
                for run, rows in prepared
            ]
            return sum(times)

        return once

    def theirs(name: str, *operands: Any, then: str = "", **options: Any) -> Callable[[], float]:
        function = getattr(lapack, letter + name)
        matrices = [fortran[id(operand)] for operand in operands]

        def once() -> float:
            start = time.process_time()
            for _ in range(count):
                result = function(*matrices, **options)
                if then:
                    getattr(lapack, letter + then)(result[0], result[1])
            return (time.process_time() - start) / count

        return once

    packed, tau = linear_test.Call(kernels, Linear("Reflectors", size, size), x[None]).run()
    pairs = (
        (ours((Linear("Cholesky", size, size), (positive,))), theirs("potrf", positive, lower=1)),
        (ours((Linear("Lu", size, size), (x,))), theirs("getrf", x)),
        (ours((Linear("Solve", size, size, 1), (x, column))), theirs("gesv", x, column)),
        (ours((Linear("Solve", size, size, size), (x, identity))), theirs("getrf", x, then="getri")),
        (ours((Linear("Triangle", size, size, size), (lower, x))), theirs("trtrs", lower, x, lower=1)),
        (
            ours(
                (Linear("Reflectors", size, size), (x,)), (Linear("Orthogonal", size, size, size), (packed[0], tau[0]))
            ),
            theirs("geqrf", x, then="orgqr"),
        ),
        (ours((Linear("Eigen", size, size), (symmetric,))), theirs("syevd", symmetric)),
        (ours((Linear("Singular", size, size), (x,))), theirs("gesdd", x)),
    )
    rounds = [[(mine(), other()) for mine, other in pairs] for _ in range(ROUNDS)]
    return [(min(time[0] for time in times), min(time[1] for time in times)) for times in zip(*rounds, strict=True)]


if __name__ == "__main__":
    main()
