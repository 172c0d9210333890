"""Functions of rows: softmaxes, their logarithms, masks, norms, and extrema of values of every kind, at two levels, on threads."""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
import unittest
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from running import run

from tfaot import run as tfaot_run

Array = npt.NDArray[Any]

LEVELS = ("x86-64-v3", "x86-64-v4")
SIZES = ((1, 2100), (3, 5), (30, 33), (4, 257), (2000, 20))
"""Rows and columns."""
LEAST = float(np.finfo(np.float32).min)

HEAD = '''\
import tensorflow as tf


class Rows(tf.Module):
    """Functions of every size."""
'''


def softmax(x: Array) -> Array:
    """Returns shares of each row."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def log_softmax(x: Array) -> Array:
    """Returns their logarithms."""
    less = x - x.max(-1, keepdims=True)
    return np.asarray(less - np.log(np.exp(less).sum(-1, keepdims=True)))


FUNCTIONS: Mapping[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "softmax": ("tf.nn.softmax(x)", lambda x, m: softmax(x)),
    "masked": ("tf.nn.softmax(x + (1.0 - m) * -1e9)", lambda x, m: softmax(_rounded(x + (1 - m) * -1e9))),
    "largest": ("tf.reduce_max(x * 3.0, -1)", lambda x, m: _rounded(x * 3).max(-1)),
    "smallest": ("tf.reduce_min(x * 3.0, -1)", lambda x, m: _rounded(x * 3).min(-1)),
    "log_softmax": (
        "tf.nn.log_softmax(x * 0.17677669)",
        lambda x, m: log_softmax(_rounded(x * np.float32(0.17677669))),
    ),
    "chosen": ("tf.nn.softmax(tf.where(m > 0.5, x, x.dtype.min))", lambda x, m: softmax(np.where(m > 0.5, x, LEAST))),
    "centered": ("x - tf.reduce_mean(x, -1, True)", lambda x, m: x - x.mean(-1, keepdims=True)),
}
"""In TensorFlow and in NumPy, of values and masks."""
TOGETHER = {"A": ("softmax", "masked", "largest", "smallest"), "B": ("log_softmax", "chosen", "centered")}
"""The functions that an entry point computes."""


HEADS, QUERIES = (2, 3), 8
KEYS = (5, 130)
"""Columns of scores, of which each sample and head has as many rows as queries."""
SPECS = {
    "x": "[2, 3, 8, {0}]",
    "sample": "[2, 1, 1, {0}], tf.bool",
    "pair": "[2, 1, 8, {0}]",
    "query": "[8, {0}], tf.bool",
    "lengths": "[2], tf.int32",
    "at": "[], tf.int32",
}
MASKS: Mapping[str, tuple[str, Callable[..., Array]]] = {
    "sample": ("tf.where(sample, x, x.dtype.min)", lambda x, columns, sample, **_: np.where(sample, x, LEAST)),
    "pair": ("x * 0.5 + (1.0 - pair) * -1e9", lambda x, columns, pair, **_: _rounded(x / 2 + (1 - pair) * -1e9)),
    "query": ("tf.where(query, x, -float('inf'))", lambda x, columns, query, **_: np.where(query, x, -np.inf)),
    "both": (
        "tf.where(tf.logical_and(query, tf.logical_not(sample)), x, -1e9)",
        lambda x, columns, query, sample, **_: np.where(query & ~sample, x, -1e9),
    ),
    "lengths": (
        "tf.where(tf.sequence_mask(lengths, x.shape[-1])[:, None, None], x, -1e9)",
        lambda x, columns, lengths, **_: np.where(columns < lengths[:, None, None, None], x, -1e9),
    ),
    "causal": (
        "x - 1e9 * (1.0 - tf.linalg.band_part(tf.ones(x.shape[2:]), -1, 0))",
        lambda x, columns, **_: _rounded(x - 1e9 * (columns > np.arange(QUERIES)[:, None])),
    ),
    "at": (
        "tf.where(tf.range(x.shape[-1]) <= at, x, -1e9)",
        lambda x, columns, at, **_: np.where(columns <= at, x, -1e9),
    ),
}
"""Scores with a mask, in TensorFlow and in NumPy."""


def numbered(code: str, number: int) -> str:
    """Returns a function's code whose inputs' names end with a number."""
    return re.sub(rf"(?<![.\w])({'|'.join([*SPECS, 'm'])})\b", rf"\g<1>{number}", code)


def _rounded(values: Array) -> Array:
    return values.astype(np.float32).astype(np.float64)


def inputs(rows: int, columns: int) -> Mapping[str, Array]:
    """Returns rows of every kind."""
    rng = np.random.default_rng(rows * columns)
    normal = rng.standard_normal((rows, columns))
    some = rng.random((rows, columns)) < 0.3
    holes = np.where(some, -np.inf, normal)
    holes[::3] = -np.inf
    one = normal.copy()
    one[rows // 2, columns // 2] = np.nan
    high = normal.copy()
    high[-1, -1] = np.inf
    return {
        "normal": normal,
        "zeros": np.zeros((rows, columns)),
        "equal": np.full((rows, columns), -7.25),
        "large": normal * 60,
        "huge": np.where(some, normal * 1e30, -1e37),
        "negative": np.full((rows, columns), LEAST),
        "small": normal * 1e-30,
        "masked": holes,
        "NaN": one,
        "infinite": high,
    }


class RowsTest(unittest.TestCase):
    """A library with the pass `row_fusion`, and one without it."""

    def library(self, name: str, *flags: str, levels: Sequence[str] = LEVELS[:1], masks: bool = False) -> Path:
        """Compiles the functions of values, or those of masks, and returns the shared library."""
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        text, entry_points = HEAD, []
        for group, (code, _) in MASKS.items() if masks else ():
            names = [f"{name}{keys}" for keys, name in itertools.product(KEYS, SPECS)]
            specs = [
                f"tf.TensorSpec({spec.format(keys)}, name='{name}{keys}')"
                for keys, (name, spec) in itertools.product(KEYS, SPECS.items())
            ]
            results = [f"'y{keys}': tf.nn.softmax({numbered(code, keys)})" for keys in KEYS]
            text += f"\n    @tf.function(input_signature=[{', '.join(specs)}])\n"
            text += f"    def {group}(self, {', '.join(names)}):\n        return {{{', '.join(results)}}}\n"
            entry_points.append(f"--entry-points={group.capitalize()}={group}")
        for group, functions in TOGETHER.items() if not masks else ():
            names = [f"{name}{index}" for index in range(len(SIZES)) for name in "xm"]
            specs = [
                f"tf.TensorSpec({[*size]}, name='{name}{index}')" for index, size in enumerate(SIZES) for name in "xm"
            ]
            results = [
                f"'{name}{index}': {numbered(FUNCTIONS[name][0], index)}"
                for index in range(len(SIZES))
                for name in functions
            ]
            text += f"\n    @tf.function(input_signature=[{', '.join(specs)}])\n"
            text += f"    def {group}(self, {', '.join(names)}):\n        return {{{', '.join(results)}}}\n"
            entry_points.append(f"--entry-points={group}={group}")
        (Path(folder.name) / "model.py").write_text(f"{text}\n\nmodel = Rows()\n")
        flags = (*entry_points, "--cpp-class=t::Rows", "--no-verify", f"--name={name}", "--out=out", *flags)
        flags = (*flags, *(f"--cpu={level}" for level in levels))
        done = run("compile", "model.py", *flags, cwd=Path(folder.name), env={"TMPDIR": folder.name})
        self.assertEqual(done.returncode, 0, done.stderr)
        return Path(folder.name) / f"out/lib/lib{name}_shared.so"

    def test_rows(self) -> None:
        """Protects numbers: at each level and on any number of threads, those of float64, and NaN where XLA's kernels have it."""
        fused, plain = self.library("fused", levels=LEVELS), self.library("plain", "--passes=*", "--passes=!row_fusion")
        for level in self.levels(fused):
            models = [tfaot_run.load(str(fused), isa=level, threads=threads) for threads in (1, 2, 4)]
            models.append(tfaot_run.load(str(plain)))
            for kind in inputs(1, 1):
                given = {}
                for index, size in enumerate(SIZES):
                    given[f"x{index}"] = inputs(*size)[kind].astype(np.float32)
                    given[f"m{index}"] = mask = np.ones(size, np.float32)
                    mask[:, 1::2] = 0
                    mask[::4] = 0
                for group, names in TOGETHER.items():
                    results = [getattr(model, group)(**given) for model in models]
                    for name, (index, size) in itertools.product(names, enumerate(SIZES)):
                        if name == "centered" and kind in ("huge", "negative"):
                            continue  # the sum overflows
                        with self.subTest(function=name, size=size, kind=kind, level=level):
                            computed = [values[f"{name}{index}"] for values in results]
                            self._compare(computed, FUNCTIONS[name][1], given[f"x{index}"], given[f"m{index}"])

    def test_masks(self) -> None:
        """Protects attention: masks of any shape, and those that are computed from numbers, are a part of the softmax."""
        library = self.library("masked", masks=True)
        for passes in library.parents[1].rglob("*.passes.json"):
            made = json.loads(passes.read_text())
            self.assertEqual((made["row_fusion"], {*made["remaining"].values()}), (len(KEYS), {0}), passes.name)
        rng = np.random.default_rng(1)
        model = tfaot_run.load(str(library), threads=2)
        for (group, (_, expected)), draw in itertools.product(MASKS.items(), range(3)):
            given: dict[int, dict[str, Any]] = {
                keys: {
                    "x": rng.standard_normal((*HEADS, QUERIES, keys)).astype(np.float32),
                    "sample": rng.random((2, 1, 1, keys)) < 0.7 * draw,
                    "pair": (rng.random((2, 1, QUERIES, keys)) < 0.5).astype(np.float32),
                    "query": rng.random((QUERIES, keys)) < 0.6,
                    "lengths": rng.integers(-1, keys + 2, 2, np.int32),
                    "at": np.int32(rng.integers(-1, keys)),
                }
                for keys in KEYS
            }
            every = {f"{name}{keys}": value for keys, values in given.items() for name, value in values.items()}
            results = getattr(model, group.capitalize())(**every)
            for keys, values in given.items():
                with self.subTest(mask=group, keys=keys, draw=draw), np.errstate(all="ignore"):
                    x = values["x"].astype(np.float64)
                    want = softmax(expected(columns=np.arange(keys), **{**values, "x": x}))
                    np.testing.assert_allclose(results[f"y{keys}"], want, rtol=3e-6, atol=1e-7)

    def levels(self, library: Path) -> list[str]:
        """Returns the levels that this CPU can run."""
        return [level for level in LEVELS if level <= tfaot_run.load(str(library)).isa]

    def _compare(self, results: list[Array], expected: Callable[[Array, Array], Array], x: Array, m: Array) -> None:
        first, *others, plain = results
        for other in others:
            np.testing.assert_array_equal(first.view(np.int32), other.view(np.int32))
        with np.errstate(all="ignore"):
            want = expected(x.astype(np.float64), m.astype(np.float64))
            size = np.abs(x[np.isfinite(x)]).max(initial=0)
        for near in (want, plain):
            np.testing.assert_allclose(first, near, rtol=3e-6, atol=1e-6 * max(1, min(size, 1e30)))


if __name__ == "__main__":
    unittest.main()
