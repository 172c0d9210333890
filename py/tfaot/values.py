"""Lists the values that a generated test wrote with `--values=FILE`, and compares two such files."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core import safetensors
from tfaot.core.errors import TfaotError, listed

Array = npt.NDArray[Any]

TOLERANCE = 1e-5
"""The largest difference, relative to the largest value of a tensor, that isn't a divergence."""


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What a list says about a tensor. Numbers are of its finite values, and NaN if there are none."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    least: float
    greatest: float
    mean: float
    deviation: float
    nans: int
    infinities: int


def statistics(name: str, value: Array) -> Statistics:
    """Returns the statistics of a tensor. Those of complex numbers are of their magnitudes."""
    wide = _wide(value)
    finite = wide[np.isfinite(wide)]
    least, greatest, mean, deviation = (
        (float(finite.min()), float(finite.max()), float(finite.mean()), float(finite.std()))
        if finite.size
        else (float("nan"),) * 4
    )
    nans, infinities = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    return Statistics(name, str(value.dtype), value.shape, least, greatest, mean, deviation, nans, infinities)


def _wide(value: Array) -> Array:
    if np.iscomplexobj(value):
        return np.abs(value.astype(np.complex128))
    return np.asarray(value).astype(np.float64)


def lines(path: str) -> list[str]:
    """Returns a table of a file's tensors in its order, which is that of execution.

    Raises:
      TfaotError: the file isn't a safetensors file.
    """
    rows = [statistics(name, value) for name, value in _read(path).items()]
    head = ("name", "type", "min", "max", "mean", "std", "NaN", "inf")
    table = [
        (
            row.name,
            f"{row.dtype}[{', '.join(map(str, row.shape))}]",
            *(f"{number:.6g}" for number in (row.least, row.greatest, row.mean, row.deviation)),
            str(row.nans or "-"),
            str(row.infinities or "-"),
        )
        for row in rows
    ]
    lines = _table(head, table, left=2)
    strange = next((row for row in rows if row.nans or row.infinities), None)
    if strange is not None:
        lines.append(f"first with NaN or infinity: {strange.name}")
    return lines


def compared(path: str, other: str, *, tolerance: float = TOLERANCE) -> tuple[list[str], str]:
    """Compares the tensors of two files, in the order of the first one.

    Args:
      path: a file of values.
      other: the file to compare with.
      tolerance: the largest difference relative to the largest finite value of the other file's tensor.

    Returns:
      A table, and the first tensor that diverges; empty if none does.

    Raises:
      TfaotError: a file isn't a safetensors file, or the two have no tensor in common.
    """
    ours, theirs = _read(path), _read(other)
    common = [name for name in ours if name in theirs]
    if not common:
        raise TfaotError(
            f"{path} and {other} have no tensor in common",
            exists=f"{listed(list(ours), limit=3)}; and {listed(list(theirs), limit=3)}",
            do="compare files of the same model",
        )
    first = ""
    table = []
    for name in common:
        difference, share = _difference(ours[name], theirs[name])
        diverges = not share <= tolerance
        first = first or (name if diverges else "")
        table.append((name, f"{difference:.3g}", f"{share:.3g}", "DIVERGES" if diverges else ""))
    lines = _table(("name", "max abs", "relative", ""), table, left=1)
    for name, only in ((path, set(ours) - set(theirs)), (other, set(theirs) - set(ours))):
        if only:
            lines.append(f"only in {name}: {listed(sorted(only), limit=5)}")
    return lines, first


def _difference(ours: Array, theirs: Array) -> tuple[float, float]:
    """Returns the largest difference, absolute and relative. NaN equals NaN, and an infinity only itself."""
    if ours.shape != theirs.shape:
        return float("inf"), float("inf")
    if np.iscomplexobj(ours) or np.iscomplexobj(theirs):
        pairs = [_difference(part(ours), part(theirs)) for part in (np.real, np.imag)]
        return max(pairs[0][0], pairs[1][0]), max(pairs[0][1], pairs[1][1])
    a, b = _wide(ours), _wide(theirs)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
    apart = np.where(np.isnan(apart), np.inf, apart)
    difference = float(apart.max(initial=0.0))
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    return difference, 0.0 if difference == 0 else difference / scale if scale else float("inf")


def _read(path: str) -> dict[str, Array]:
    if not os.path.isfile(path):
        raise TfaotError(
            f"{path} isn't a file",
            do="write one: bazel run //your:target_taps_test -- --values=/tmp/values.safetensors",
        )
    return safetensors.read(path)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Returns lines with aligned columns: the first ones on the left, the others on the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]


def main(arguments: Sequence[str] | None = None, *, prog: str = "values", description: str | None = None) -> None:
    """Parses the flags, and prints a list or a comparison. Exits with 1 if two files diverge.

    Args:
      arguments: the command's; by default, those of this process.
      prog: the command's name, for its help.
      description: the text of its help.
    """
    parser = argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", metavar="FILE", help="what a generated test wrote for --values")
    parser.add_argument("other", metavar="OTHER", nargs="?", help="a second file, to compare with")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        help=f"the largest difference, relative to a tensor's largest value (default: {TOLERANCE:g})",
    )
    flags = parser.parse_args(arguments)
    here = os.environ.get("BUILD_WORKING_DIRECTORY", ".")
    paths = [os.path.join(here, path) for path in (flags.file, flags.other) if path]
    if len(paths) == 1:
        print("\n".join(lines(paths[0])))
        return
    table, first = compared(*paths, tolerance=flags.tolerance)
    print("\n".join(table))
    print(f"first to diverge: {first}" if first else "no tensor diverges")
    if first:
        sys.exit(1)
