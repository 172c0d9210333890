"""Fourier transforms of the runtime, with the plans of the compile stage, beside NumPy's in float64."""

from __future__ import annotations

import ctypes
import itertools
import random
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.stages import harness, native
from tests.xla.hlo import parsed
from tfaot.compile.program.thunks.fourier_plan import Plan, along
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Slice, Sort
from tfaot.compile.program.thunks.marked import placed
from tfaot.core.errors import TfaotError
from tfaot.core.isa import TARGETS
from tfaot.xla.marks import KINDS

Array = npt.NDArray[Any]

METHODS = ("Direct", "One", "Line", "Across", "Chirp", "ChirpAcross")
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 30, 31, 64)
LONG = (37, 60, 97, 100, 127, 128, 225, 257, 512, 625, 1000, 1021, 1024, 1536, 2187)
GUARD = 16
"""Values before and after memory that a call must leave alone."""

POOL = """
#include "tfaot/kernels/calls.h"

#include <atomic>
#include <thread>
#include <vector>

using namespace tfaot::kernels;

struct Pool final : tfaot::ThreadPool {
  int count = 1;
  std::atomic<long> parts{0};
  int threads() const noexcept override { return count; }
  void ParallelFor(int total, void (*run)(void*, int), void* context) noexcept override {
    std::atomic<int> next{0};
    parts += total;
    std::vector<std::thread> others;
    for (int i = 0; i < count; ++i) {
      others.emplace_back([&] { for (int part; (part = next++) < total;) run(context, part); });
    }
    for (auto& other : others) other.join();
  }
};
static Pool pool;
static tfaot::ThreadPool* Threads() { return pool.count > 1 ? &pool : nullptr; }
extern "C" long SetThreads(int count) { pool.count = count; return pool.parts.exchange(0); }
"""
"""A pool of some threads, 1 at first. `SetThreads` returns how many parts there were since the last call."""

SOURCE = """
extern "C" void Run(int bytes, int kind, int inverse, int method, int lanes, const long* sizes, double scale, int stages,
                    const unsigned char* radices, const void* roots, void* scratch, void* data) {
  Fourier fourier{static_cast<Fourier::Kind>(kind), inverse != 0, static_cast<Fourier::Method>(method), lanes,
                  sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], scale, sizes[5], sizes[6], stages, {}};
  for (int i = 0; i < stages; ++i) fourier.radices[i] = radices[i];
  if (bytes == 4) {
    TFAOT_ISA::RunFourier<float>(fourier, roots, scratch, data, Threads());
  } else {
    TFAOT_ISA::RunFourier<double>(fourier, roots, scratch, data, Threads());
  }
}
"""


def sizes_of(plan: Plan) -> ctypes.Array[ctypes.c_long]:
    """Returns a plan's sizes, as `Run` takes them."""
    sizes = plan.outer, plan.length, plan.inner, plan.size, plan.padded, plan.scratch, plan.slots
    return (ctypes.c_long * len(sizes))(*sizes)


def guarded(count: int, dtype: Any) -> Array:
    """Returns memory at a multiple of 64 bytes, with NaN in it, before it, and after it."""
    bytes_ = (count + 2 * GUARD) * np.dtype(dtype).itemsize
    raw = np.zeros(bytes_ + 64, np.uint8)
    start = -raw.ctypes.data % 64
    values: Array = raw[start : start + bytes_].view(dtype)
    values[:] = np.nan
    return values


def untouched(values: Array) -> bool:
    """Returns whether nothing wrote around memory."""
    return bool(np.isnan(values[:GUARD]).all() and np.isnan(values[-GUARD:]).all())


CHANGED = """HloModule m
%order (a: f32[], b: f32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %first = f32[] constant(8191.5)
  %product = f32[] multiply(%a, %first)
  ROOT %less = pred[] compare(%product, %b), direction=LT
}
ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %sorted = f32[8]{0} sort(%x), to_apply=%order
}
"""
"""A mark that XLA has changed: it multiplies where marks add."""


class MarksTest(unittest.TestCase):
    """What XLA makes of marks."""

    def test_changed(self) -> None:
        """Protects numbers from a later XLA: a mark that can't be read is an error, and isn't taken for a sort."""
        sort = Sort("m_order", (Slice(0, 0),), (4,), (1, 8, 1), stable=False)
        function = CompiledFunction((Buffer(32, "temp", None, None),), (), (), (), (), (sort,))
        with self.assertRaisesRegex(TfaotError, "m: XLA changed the mark of a call"):
            placed(function, parsed(CHANGED), "x86-64")
        other = parsed(CHANGED.replace("8191.5", "8191"))
        self.assertEqual(placed(function, other, "x86-64"), (function, {}))


class PlanTest(unittest.TestCase):
    """Plans."""

    def test_tables(self) -> None:
        """Protects transforms of one value: each has a table, as the compiler has no symbol for a constant without bytes."""
        for kind, rows, length in itertools.product(KINDS, (1, 64), (1, 2, 3)):
            for plan in along(kind, False, rows, [length], 8, 4):
                self.assertTrue(plan.roots().size, plan)


class FourierTest(unittest.TestCase):
    """The kernels at each level."""

    libraries: dict[str, ctypes.CDLL]

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        sources = ("fourier_f32.cc", "fourier_f64.cc")
        cls.libraries = {
            level: native.shim(Path(temporary.name), level, POOL + SOURCE, sources) for level in native.levels()
        }

    def transformed(self, level: str, plans: Sequence[Plan], values: Array) -> Array:
        """Runs the plans in place on a copy of values."""
        data = guarded(values.size, values.dtype)
        data[GUARD:-GUARD] = values.ravel()
        for plan in plans:
            roots = guarded(plan.roots().size, values.dtype)
            scratch = guarded(plan.slots * plan.scratch, values.dtype)
            roots[GUARD:-GUARD] = plan.roots()
            self.libraries[level].Run(
                plan.itemsize,
                KINDS.index(plan.kind),
                int(plan.inverse),
                METHODS.index(plan.method),
                plan.lanes,
                sizes_of(plan),
                ctypes.c_double(plan.scale),
                len(plan.radices),
                (ctypes.c_ubyte * len(plan.radices))(*plan.radices),
                *(ctypes.c_void_p(memory[GUARD:].ctypes.data) for memory in (roots, scratch, data)),
            )
            self.assertTrue(all(map(untouched, (roots, scratch, data))), (level, plan, plan.method))
        return data[GUARD:-GUARD]

    @harness.wide
    def test_random(self) -> None:
        """Protects numbers and memory: any kind, length, and number of axes and rows, in both precisions, at each level."""
        methods = set()
        for level in self.libraries:
            draw, normal = random.Random(level), np.random.default_rng(1).standard_normal
            for _ in range(400):
                real = np.dtype(draw.choice(["float32", "float64"]))
                whole = np.dtype(f"complex{16 * real.itemsize}")
                kind = draw.choice(KINDS)
                inverse = kind == "ComplexToReal" or (kind == "Complex" and draw.random() < 0.5)
                rank = draw.choice([1, 1, 1, 2, 3])
                lengths = [draw.choice(LENGTHS if rank > 1 else LENGTHS + LONG) for _ in range(rank)]
                lengths = [min(length, 24) for length in lengths] if rank == 3 else lengths
                batch = draw.choice([1, 1, 2, 3, 5, 8, 9, 16, 17, 33])
                axes, row = tuple(range(1, rank + 1)), lengths[-1] // 2 + 1
                plans = along(
                    kind, inverse, batch, lengths, TARGETS[level].vector_bytes // real.itemsize, real.itemsize
                )
                methods |= {plan.method for plan in plans}
                if kind == "RealToComplex":
                    x = normal([batch, *lengths]).astype(real)
                    want: Array = np.fft.rfftn(x.astype(np.float64), axes=axes)
                    room = [(0, 0)] * rank + [(0, 2 * row - lengths[-1])]
                    got = self.transformed(level, plans, np.pad(x, room)).view(whole).reshape(want.shape)
                else:
                    shape = [batch, *lengths[:-1], lengths[-1] if kind == "Complex" else row]
                    x = (normal(shape) + 1j * normal(shape)).astype(whole)
                    got = self.transformed(level, plans, x.view(real))
                    if kind == "Complex":
                        want = (np.fft.ifftn if inverse else np.fft.fftn)(x.astype(complex), axes=axes)
                        got = got.view(whole).reshape(shape)
                    else:
                        want = np.fft.irfftn(x.astype(complex), s=lengths, axes=axes)
                        got = got.reshape(*shape[:-1], 2 * row)[..., : lengths[-1]]
                error = np.abs(got - want).max() / np.sqrt(np.mean(np.abs(want) ** 2))
                self.assertLess(error, 20 * np.finfo(real).eps, (level, kind, real, batch, lengths, plans))
        self.assertEqual(methods, {*METHODS})

    def test_threads(self) -> None:
        """Protects bits from the number of threads, which share rows, and vectors along other axes."""
        shapes = (
            (100, 1024),
            (6, 16384),
            (50, 1021),
            (20, 2187),
            (300, 257),
            (2, 128, 1000),
            (8, 37, 300),
            (2, 20, 24, 96),
        )
        for level, library in self.libraries.items():
            normal = np.random.default_rng(2).standard_normal
            for real, kind, (batch, *lengths) in itertools.product((np.float32, np.float64), KINDS, shapes):
                row = lengths[-1] if kind == "Complex" else lengths[-1] // 2 + 1
                x = normal((batch, *lengths[:-1], 2 * row)).astype(real)
                lanes = TARGETS[level].vector_bytes // x.itemsize
                plans = along(kind, kind == "ComplexToReal", batch, lengths, lanes, x.itemsize)
                results, parts = [], []
                for threads in (1, 2, 4):
                    library.SetThreads(threads)
                    results.append(self.transformed(level, plans, x).tobytes())
                    parts.append(library.SetThreads(1))
                case = (level, real, kind, batch, lengths)
                self.assertTrue(results[0] == results[1] == results[2], case)
                self.assertEqual(parts[0], 0, case)
                self.assertGreaterEqual(parts[2], 2, case)

    @harness.wide
    def test_other_rows(self) -> None:
        """Protects rows from each other: NaN, infinity, and huge values in one row change no bit of another, nor of zeros."""
        for level in self.libraries:
            for kind, inverse in (
                ("Complex", False),
                ("Complex", True),
                ("RealToComplex", False),
                ("ComplexToReal", True),
            ):
                for real in (np.dtype("float32"), np.dtype("float64")):
                    for length in (*LENGTHS, *LONG[:9]):
                        self.rows_apart(level, kind, inverse, real, length)

    def rows_apart(self, level: str, kind: Any, inverse: bool, real: Any, length: int) -> None:
        lanes = TARGETS[level].vector_bytes // real.itemsize
        plans = along(kind, inverse, 19, [length], lanes, real.itemsize)
        width = 2 * (length if kind == "Complex" else length // 2 + 1)
        rows = np.random.default_rng(length).standard_normal([19, width]).astype(real)
        rows[4] = 0
        clean = self.transformed(level, plans, rows).reshape(rows.shape)
        rows[1], rows[5, 0], rows[18, -1], rows[9] = np.nan, np.inf, -np.inf, np.finfo(real).max
        spoiled = self.transformed(level, plans, rows).reshape(rows.shape)
        others = [row for row in range(19) if row not in (1, 5, 9, 18)]
        used = length if kind == "ComplexToReal" else width
        case = (level, kind, inverse, real, length)
        self.assertEqual(clean[others, :used].tobytes(), spoiled[others, :used].tobytes(), case)
        self.assertFalse(clean[4, :used].any(), case)
        self.assertTrue(np.isnan(spoiled[1, :used]).any(), case)


if __name__ == "__main__":
    unittest.main()
