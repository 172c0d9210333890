"""Looks for cliffs: sizes at which a row operation costs more for each value than at the sizes beside it.

    python3 benchmarks/cliffs.py [--levels x86-64-v3 x86-64-v4] [--threads 1 2] [--only softmax …] [--rows 128] [--page]

It compiles each operation for a grid of rows and columns, checks the numbers beside NumPy's in float64, and measures the least CPU
time of interleaved rounds. It prints the cliffs and, as JSON, all nanoseconds per value. With `--page`, it also draws the lines of
the operations for 128 rows on docs/measured/kernels.md.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "py")]

ROWS = (1, 2, 7, 8, 9, 31, 64, 128, 509, 1024)
COLUMNS = (1, 2, 3, 7, 8, 9, 15, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 251, 256, 257, 509, 512, 520, 768, 1016)
LONG = (1021, 1024, 1025, 1280, 2039, 2048, 2056, 4093, 4096, 4104, 8191, 8192)
MOST = 1 << 20
"""The values of the largest arrays, 4 MB, which fit into a core's L2 cache or its share of L3."""
LIMIT = 1.3
"""From this ratio to both neighbors on, a point is a cliff."""

Array = npt.NDArray[np.float64]


def _softmax(x: Array) -> Array:
    exps: Array = np.exp(x - x.max(-1, keepdims=True))
    result: Array = exps / exps.sum(-1, keepdims=True)
    return result


def _normalized(x: Array, mean: Array | float) -> Array:
    result: Array = (x - mean) / np.sqrt(np.square(x - mean).mean(-1, keepdims=True) + 1e-5)
    return result


def _gelu(x: Array) -> Array:
    result: Array = 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
    return result


OPERATIONS: Mapping[str, tuple[str, Callable[[Array], Array]]] = {
    "softmax": ("tf.nn.softmax(x)", _softmax),
    "log_softmax": ("tf.nn.log_softmax(x)", lambda x: np.log(_softmax(x))),
    "layer_norm": (
        "(x - tf.reduce_mean(x, -1, True)) * tf.math.rsqrt(tf.math.reduce_variance(x, -1, True) + 1e-5)",
        lambda x: _normalized(x, x.mean(-1, keepdims=True)),
    ),
    "rms_norm": ("x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, True) + 1e-5)", lambda x: _normalized(x, 0.0)),
    "row_sums": ("tf.reduce_sum(x, -1)", lambda x: x.sum(-1)),
    "column_sums": ("tf.reduce_sum(x, 0)", lambda x: x.sum(0)),
    "gelu": ("tf.nn.gelu(x, approximate=True)", _gelu),
    "product": ("x @ tf.ones([x.shape[1], 64]) + 1.0", lambda x: np.repeat(x.sum(-1, keepdims=True), 64, 1) + 1.0),
}
"""In TensorFlow and in NumPy."""


PAGE = ROOT / "docs/measured/kernels.md"
DRAWN = 128
"""The rows of the page's lines."""
BEGIN, END = "<!-- begin: cliffs -->\n", "<!-- end: cliffs -->\n"


def grid(only: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Returns rows and columns."""
    for rows in only:
        for columns in (*COLUMNS, *LONG):
            if rows * columns <= MOST and (columns <= 1024 or rows in (1, 8, 128)):
                yield rows, columns


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", nargs="+", default=["x86-64-v3"], help="the CPU levels")
    parser.add_argument("--threads", nargs="+", type=int, default=[1], help="how many threads a run uses")
    parser.add_argument("--only", nargs="+", default=list(OPERATIONS), choices=list(OPERATIONS), help="the operations")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, choices=ROWS, help="the numbers of rows")
    parser.add_argument(
        "--page", action="store_true", help="write the lines of the operations on docs/measured/kernels.md"
    )
    parser.add_argument("--json", type=Path, help="where to write all results")
    flags = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for operation in flags.only:
        with tempfile.TemporaryDirectory() as folder:
            sizes = [*grid(flags.rows)]
            library = compiled(Path(folder), operation, flags.levels, sizes)
            for level in flags.levels:
                for threads in flags.threads:
                    name = f"{operation}, {level}, {threads} thread{'s' * (threads > 1)}"
                    results[name] = measured(library, operation, level, threads, sizes)
                    print(f"{name}: {len(results[name])} points", flush=True)
                    for line in cliffs(results[name]):
                        print(f"  {line}", flush=True)
    if flags.json:
        flags.json.write_text(json.dumps(results, indent=1) + "\n")
    if flags.page:
        text = PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        charts = "\n".join(chart(name, points) for name, points in results.items())
        PAGE.write_text(f"{before}{BEGIN}\n{charts}\n{end}{after}", encoding="utf-8")


def chart(name: str, points: Mapping[str, float]) -> str:
    """Returns a plot of an operation's costs by the number of columns, in Markdown."""
    lengths = [int(point.split(" x ")[1]) for point in points if point.startswith(f"{DRAWN} x ")]
    long = [columns for columns in lengths if columns >= 15]
    costs = [points[f"{DRAWN} x {columns}"] for columns in long]
    return f"""\
```mermaid
xychart-beta
    title "{name}: ns for each value of {DRAWN} rows"
    x-axis "columns" [{", ".join(map(str, long))}]
    y-axis 0 --> {max(costs) * 1.1:.2f}
    line [{", ".join(map(str, costs))}]
```
"""


def compiled(folder: Path, operation: str, levels: Sequence[str], sizes: Sequence[tuple[int, int]]) -> Path:
    """Compiles an operation for all sizes, and returns the shared library."""
    functions = [
        f"    @tf.function(input_signature=[tf.TensorSpec([{rows}, {columns}], name='x')])\n"
        f"    def n{rows}_{columns}(self, x):\n        return {OPERATIONS[operation][0]}\n"
        for rows, columns in sizes
    ]
    model = "import tensorflow as tf\n\n\nclass Grid(tf.Module):\n" + "\n".join(functions) + "\n\nmodel = Grid()\n"
    (folder / "model.py").write_text(model)
    entry_points = [f"--entry-points=N{rows}_{columns}=n{rows}_{columns}" for rows, columns in sizes]
    subprocess.check_call(
        [
            *(sys.executable, "-s", "-m", "tfaot.command.cli", "compile", "model.py", "--cpp-class=t::Grid"),
            *(f"--cpu={level}" for level in levels),
            *(*entry_points, "--no-verify", "--out=package"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.DEVNULL,
    )
    return folder / "package/lib/libgrid_shared.so"


def measured(
    library: Path, operation: str, level: str, threads: int, sizes: Sequence[tuple[int, int]]
) -> dict[str, float]:
    """Returns the nanoseconds per value, by the size."""
    from tfaot import run

    random = np.random.default_rng(0)
    clock = time.process_time if threads == 1 else time.perf_counter
    runs: dict[tuple[int, int], Callable[[], int]] = {}
    repeats: dict[tuple[int, int], int] = {}
    least: dict[tuple[int, int], float] = {}

    def timed(run: Callable[[], int], count: int) -> float:
        start = clock()
        for _ in range(count):
            run()
        return (clock() - start) / count

    model = run.load(library, isa=level, threads=threads)
    for rows, columns in sizes:
        entry_point = getattr(model, f"N{rows}_{columns}")
        x = random.standard_normal((rows, columns)).astype(np.float32)
        (result,) = entry_point(x=x).values()
        expected = OPERATIONS[operation][1](x.astype(np.float64))
        scale = max(1, np.abs(expected).max()) * max(columns, rows) ** 0.5
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6 * scale)
        # The library's function itself: a call of an entry point also copies its results.
        instance = entry_point._state.instance
        runs[rows, columns] = functools.partial(instance.api.run, instance.handle, entry_point.signature.index, 0)
        repeats[rows, columns] = max(1, int(1e-3 / max(timed(runs[rows, columns], 3), 1e-7)))
    for _ in range(9):
        for size, count in repeats.items():
            seconds = timed(runs[size], count)
            least[size] = min(seconds, least.get(size, seconds))
    call = min(least.values())
    return {
        f"{rows} x {columns}": round(1e9 * (seconds - call) / (rows * columns), 3)
        for (rows, columns), seconds in least.items()
    }


def cliffs(points: Mapping[str, float]) -> list[str]:
    """Returns the points that cost more than both neighbors, in a row or in a column of the grid."""
    costs = {tuple(int(side) for side in name.split(" x ")): cost for name, cost in points.items()}
    lines = []
    for axis in (0, 1):
        for fixed in sorted({size[1 - axis] for size in costs}):
            line = sorted(size for size in costs if size[1 - axis] == fixed)
            for before, size, after in zip(line, line[1:], line[2:], strict=False):
                beside = max(costs[before], costs[after])
                if costs[size] > LIMIT * beside and costs[size] * size[0] * size[1] > 500:
                    lines.append(
                        f"{size[0]} x {size[1]}: {costs[size]} ns, {costs[size] / beside:.2f} of its neighbors"
                    )
    return lines


if __name__ == "__main__":
    main()
