"""Linear algebra of the runtime beside NumPy in float64: what factors multiply to, and not the factors."""

from __future__ import annotations

import ctypes
import itertools
import random
import subprocess
import tempfile
import types
import unittest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tests.compile.program.fourier_test import GUARD, POOL, guarded, untouched
from tests.stages import harness, native
from tfaot.compile.program.thunks import linear as thunks
from tfaot.compile.program.thunks.kinds import Slice
from tfaot.xla.linear import Linear

Array = npt.NDArray[Any]

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 25, 31, 33, 48, 65, 100, 130)
DTYPES = (np.float32, np.float64, np.complex64, np.complex128)
UNITS = 60
"""The error of products of factors, in units in the last place of the largest singular value, times the root of the size."""

SOURCE = """
#include "tfaot/kernels/linear_scratch.h"

static Linear Of(const long* n) {
  return {static_cast<Linear::Op>(n[0]), n[8], n[1], n[2], n[3], n[4] != 0, n[5] != 0, n[6] != 0, n[7] != 0};
}
extern "C" long Row(const long* numbers) { return LinearRow(Of(numbers)); }
extern "C" long Scratch(const long* numbers, long size) { return static_cast<long>(LinearScratchBytes(Of(numbers), size)); }
extern "C" void Run(const long* numbers, int is_float, int is_complex, void* scratch, void* data) {
  if (is_float) {
    TFAOT_ISA::RunLinear<float>(Of(numbers), is_complex != 0, scratch, data, Threads());
  } else {
    TFAOT_ISA::RunLinear<double>(Of(numbers), is_complex != 0, scratch, data, Threads());
  }
}
"""


def library(folder: Path, level: str, *options: str) -> ctypes.CDLL:
    """Returns the kernels for a CPU level."""
    sources = ("linear_f32.cc", "linear_f64.cc", "products_f32.cc", "products_f64.cc")
    result = native.shim(folder, level, POOL + SOURCE, sources, *options)
    result.Row.restype = result.Scratch.restype = ctypes.c_long
    return result


class Call:
    """A call with guarded memory."""

    def __init__(self, kernels: ctypes.CDLL, call: Linear, operands: Array | tuple[Array, ...]) -> None:
        """Takes the operands, of which each batch item is one row."""
        operands = operands if isinstance(operands, tuple) else (operands,)
        self.kernels, self.call, self.dtype = kernels, call, operands[0].dtype
        self.batch = len(operands[0])
        self.numbers = (ctypes.c_long * 9)(*call.numbers(), self.batch)
        self.rows = np.concatenate([operand.reshape(self.batch, -1) for operand in operands], 1)
        size = kernels.Scratch(self.numbers, self.dtype.itemsize) // self.dtype.itemsize
        self.scratch, self.data = guarded(size, self.dtype), guarded(self.batch * call.row, self.dtype)

    def run(self) -> tuple[Array, ...]:
        """Returns the results."""
        data = self.data[GUARD:-GUARD].reshape(self.batch, self.call.row)
        data[:, : self.rows.shape[1]] = self.rows
        self.kernels.Run(
            self.numbers,
            int(self.dtype in (np.float32, np.complex64)),
            int(self.dtype.kind == "c"),
            ctypes.c_void_p(self.scratch[GUARD:].ctypes.data),
            ctypes.c_void_p(data.ctypes.data),
        )
        assert untouched(self.scratch) and untouched(self.data), (self.call, self.dtype)
        results, at = [], 0
        for shape in self.call.results:
            size = int(np.prod(shape))
            results.append(data[:, at : at + size].reshape(self.batch, *shape).copy())
            at += size
        return tuple(results)


def wide(x: Array) -> Array:
    """Returns values in float64."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def adjoint(x: Array) -> Array:
    """Returns the conjugate transposes."""
    turned: Array = np.conj(np.swapaxes(x, -1, -2))
    return turned


class LinearTest(unittest.TestCase):
    """The kernels at each level."""

    kernels: ClassVar[dict[str, ctypes.CDLL]]
    dtype: np.dtype[Any]

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.kernels = {level: library(Path(temporary.name), level) for level in native.levels()}

    def setUp(self) -> None:
        self.normal = np.random.default_rng(1).standard_normal

    def drawn(self, dtype: Any, *shape: int) -> Array:
        """Draws a matrix."""
        x = self.normal(shape)
        return (x + 1j * self.normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)

    def assert_close(self, got: Array, want: Array, case: object, scale: Array | float | None = None) -> None:
        """Compares matrices with a tolerance relative to the norms of what is wanted."""
        scale = np.linalg.norm(want, axis=(-2, -1)) if scale is None else scale
        unit = np.finfo(self.dtype.type).eps * UNITS * max(got.shape[-2:]) ** 0.5
        self.assertTrue((np.linalg.norm(got - want, axis=(-2, -1)) <= unit * scale).all(), case)

    def assert_orthogonal(self, columns: Array, case: object) -> None:
        """Checks that columns are orthogonal, and of length 1."""
        self.assert_close(adjoint(columns) @ columns, np.eye(columns.shape[-1]), case, columns.shape[-1] ** 0.5)

    def cases(self, *, draws: int) -> Any:
        """Iterates over levels, with draws of dtypes and sizes."""
        for level, kernels in self.kernels.items():
            draw = random.Random(level)
            for _ in range(draws):
                dtype, rows, columns = draw.choice(DTYPES), draw.choice(SIZES), draw.choice(SIZES)
                batch = draw.choice([1, 1, 2, 5])
                self.dtype = np.dtype(dtype)
                yield kernels, draw, dtype, batch, rows, columns, (level, dtype, batch, rows, columns)

    def test_cholesky(self) -> None:
        """Protects Cholesky factors: their product is the matrix, of which only one half is read."""
        for kernels, draw, dtype, batch, size, _, case in self.cases(draws=60):
            x = self.drawn(dtype, batch, size, size)
            matrix = (x @ adjoint(x) + np.eye(size)).astype(dtype)
            is_lower = draw.random() < 0.5
            half = np.tril(matrix) + np.triu(np.full_like(matrix, np.nan), 1)
            half = half if is_lower else adjoint(half)
            (factor,) = Call(kernels, Linear("Cholesky", size, size, lower=is_lower), half).run()
            factor = factor if is_lower else adjoint(factor)
            self.assertFalse(np.triu(factor, 1).any(), case)
            self.assertTrue((factor.real.diagonal(0, 1, 2) > 0).all(), case)
            self.assert_close(wide(factor) @ adjoint(wide(factor)), wide(matrix), case)

    def test_triangle(self) -> None:
        """Protects triangular solutions: lower and upper, adjoint, with ones on the diagonal, of one and of more columns."""
        for kernels, draw, dtype, batch, size, columns, case in self.cases(draws=150):
            lower, adjoint_, unit = (draw.random() < 0.5 for _ in range(3))
            columns = draw.choice([1, columns])
            stored = (self.drawn(dtype, batch, size, size) * 0.5 / size**0.5 + 1.5 * np.eye(size)).astype(dtype)
            rhs = self.drawn(dtype, batch, size, columns)
            call = Linear("Triangle", size, size, columns, lower, adjoint_, unit)
            _, x = Call(kernels, call, (stored, rhs)).run()
            matrix = np.tril(wide(stored)) if lower else np.triu(wide(stored))
            matrix = matrix * (1 - np.eye(size)) + np.eye(size) if unit else matrix
            matrix = adjoint(matrix) if adjoint_ else matrix
            scale = np.linalg.norm(matrix, axis=(-2, -1)) * np.linalg.norm(wide(x), axis=(-2, -1))
            self.assert_close(matrix @ wide(x), wide(rhs), (*case, call), scale)

    def test_lu(self) -> None:
        """Protects LU decompositions and solutions: L times U has the matrix's rows in their new order; pivots are the largest."""
        for kernels, draw, dtype, batch, rows, columns, case in self.cases(draws=100):
            x = self.drawn(dtype, batch, rows, columns)
            packed, order, swaps, sign = Call(kernels, Linear("Lu", rows, columns), x).run()
            least = min(rows, columns)
            lower = np.tril(wide(packed)[..., :least], -1) + np.eye(rows, least)
            orders = order.real.astype(int)
            turned = np.stack([item[at] for item, at in zip(x, orders, strict=True)])
            self.assert_close(lower @ np.triu(wide(packed)[:, :least]), wide(turned), case)
            self.assertLessEqual(np.abs(lower).max(), 1.5, case)
            for item, (at, swapped) in enumerate(zip(orders, swaps.real.astype(int), strict=True)):
                rebuilt, parity = [*range(rows)], 1
                for i, j in enumerate(swapped):
                    rebuilt[i], rebuilt[j] = rebuilt[j], rebuilt[i]
                    parity = parity if i == j else -parity
                self.assertEqual((rebuilt, parity), (at.tolist(), sign.real[item, 0]), case)
            matrix, rhs = (
                self.drawn(dtype, batch, rows, rows),
                self.drawn(dtype, batch, rows, draw.choice([1, 3, rows])),
            )
            _, solution = Call(kernels, Linear("Solve", rows, rows, rhs.shape[-1]), (matrix, rhs)).run()
            scale = np.linalg.norm(matrix, axis=(-2, -1)) * np.linalg.norm(wide(solution), axis=(-2, -1))
            self.assert_close(wide(matrix) @ wide(solution), wide(rhs), case, scale)

    @harness.wide
    def test_qr(self) -> None:
        """Protects QR decompositions: Q is orthogonal, R has a real diagonal, and their product is the matrix."""
        for kernels, draw, dtype, batch, rows, columns, case in self.cases(draws=100):
            x = self.drawn(dtype, batch, rows, columns)
            x[0] *= draw.choice([0, 1, 1e-20, 1e20])
            least = min(rows, columns)
            packed, tau = Call(kernels, Linear("Reflectors", rows, columns), x).run()
            wanted = draw.choice([least, rows])
            (q,) = Call(kernels, Linear("Orthogonal", rows, least, wanted), (packed[..., :least], tau)).run()
            r = np.triu(wide(packed)[:, :least])
            self.assertFalse(r.imag.diagonal(0, 1, 2).any(), case)
            self.assert_orthogonal(wide(q), case)
            self.assert_close(wide(q)[..., :least] @ r, wide(x), case)

    @harness.wide
    def test_eigen(self) -> None:
        """Protects eigenvalues and vectors, also equal ones and those of matrices of any scale, of which the lower half is read."""
        for kernels, draw, dtype, batch, size, _, case in self.cases(draws=80):
            x = self.drawn(dtype, batch, size, size)
            matrix = (x + adjoint(x)) * draw.choice([1, 1, 1e-30, 1e30])
            matrix[0] = draw.choice(
                [
                    np.eye(size),
                    np.ones([size, size]),
                    np.zeros([size, size]),
                    x[0] @ adjoint(x[0]) * (np.arange(size) < 3),
                    np.diag(np.abs(np.arange(size) - size // 2)) + np.eye(size, k=1) + np.eye(size, k=-1),
                    matrix[0],
                ]
            )
            matrix = ((matrix + adjoint(matrix)) / 2).astype(dtype)
            lower = np.tril(matrix) + np.triu(np.full_like(matrix, np.nan), 1)
            vectors, values = Call(kernels, Linear("Eigen", size, size), lower).run()
            _, alone = Call(kernels, Linear("Eigen", size, size, vectors=False), lower).run()
            self.assert_close(alone[:, None], values[:, None], case, np.linalg.norm(matrix, axis=(-2, -1)))
            self.assertTrue((np.diff(values.real) >= 0).all() and not values.imag.any(), case)
            self.assert_orthogonal(wide(vectors), case)
            self.assert_close(wide(vectors) * wide(values)[:, None] @ adjoint(wide(vectors)), wide(matrix), case)

    def test_singular(self) -> None:
        """Protects singular values and vectors of any scale: tall, wide, rank-deficient, and graded matrices, and equal values."""
        for kernels, draw, dtype, batch, rows, columns, case in self.cases(draws=80):
            x = self.drawn(dtype, batch, rows, columns) * draw.choice([1, 1, 1e-30, 1e30])
            rank, least = draw.choice([0, 1, 3]), min(rows, columns)
            hard = [x[0], np.eye(rows, columns), self.drawn(dtype, rows, rank) @ self.drawn(dtype, rank, columns)]
            hard += [np.ones((rows, columns)), np.roll(np.eye(rows, columns), 1, 0), np.eye(rows, columns, 1)]
            hard += [x[0] * np.logspace(0, power, rows)[:, None] for power in (-15, -30)]
            hard.append(np.linalg.qr(x[0])[0] @ (np.arange(least)[:, None] // 8 * np.eye(least, columns)))
            x[0] = draw.choice(hard)
            x = x.astype(dtype)
            call = Linear("Singular", rows, columns, int(draw.random() < 0.5))
            left, values, right = Call(kernels, call, x).run()
            self.assertTrue((np.diff(values.real) <= 0).all() and (values.real >= 0).all(), case)
            self.assert_orthogonal(wide(left), case)
            self.assert_orthogonal(adjoint(wide(right)), case)
            product = wide(left)[..., :least] * wide(values)[:, None] @ wide(right)[:, :least]
            self.assert_close(product, wide(x), case)
            alone = Call(kernels, Linear("Singular", rows, columns, vectors=False), x).run()[1]
            self.assert_close(alone[:, None], values[:, None], case)

    def test_undefined(self) -> None:
        """Protects results from NaN and infinity as LAPACK has them: only what is computed from such a value is one."""
        for level, kernels in self.kernels.items():
            draw = random.Random(level)
            for dtype in DTYPES:
                for size in (1, 3, 8, 30, 70):
                    x = self.drawn(dtype, 1, size, size)
                    x = (x @ adjoint(x) + size * np.eye(size)).astype(dtype)
                    row = draw.randrange(size)
                    column, value = draw.choice([row, draw.randrange(row + 1)]), draw.choice([np.nan, np.inf])
                    x[0, row, column] = value
                    (factor,) = Call(kernels, Linear("Cholesky", size, size), x).run()
                    want = np.tril(wide(x[0]))
                    with np.errstate(all="ignore"):
                        for k in range(size):
                            if want[k, k].real <= 0:  # minus infinity, so there is no factor
                                want[np.tril_indices(size)] = np.nan
                            want[k, k] = np.sqrt(want[k, k].real)
                            want[k + 1 :, k] /= want[k, k].real
                            for j in range(k + 1, size):
                                want[j:, j] -= want[j:, k] * np.conj(want[j, k])
                    defined, case = np.isfinite(want), (level, dtype, size, row, column, value)
                    self.assertEqual(np.isfinite(factor[0]).tolist(), defined.tolist(), case)
                    self.dtype = np.dtype(dtype)
                    self.assert_close(np.where(defined, factor[0], 0)[None], np.where(defined, want, 0)[None], case)

    def test_threads(self) -> None:
        """Protects bits from the number of threads, which share a batch, and products of large matrices."""
        for level, kernels in self.kernels.items():
            for dtype, (batch, rows, columns) in itertools.product(
                DTYPES, ((5, 48, 48), (40, 16, 16), (1, 130, 130), (3, 70, 40))
            ):
                x = self.drawn(dtype, batch, rows, columns)
                if rows == columns:
                    x = (x @ adjoint(x) + rows * np.eye(rows)).astype(dtype)
                calls = [Linear(op, rows, columns) for op in ("Lu", "Reflectors", "Singular")]
                if rows == columns:
                    general = ("General", "Root") if np.dtype(dtype).kind == "c" else ()
                    calls += [Linear(op, rows, rows) for op in ("Cholesky", "Eigen", *general)]
                    calls += [Linear(op, rows, rows, rows) for op in ("Solve", "Triangle")]
                for call in calls:
                    results, shared = [], 0
                    for threads in (1, 2, 4):
                        kernels.SetThreads(threads)
                        operands = (x, x) if call.op in ("Solve", "Triangle") else x
                        results.append([result.tobytes() for result in Call(kernels, call, operands).run()])
                        shared += kernels.SetThreads(1)
                    self.assertTrue(results[0] == results[1] == results[2], (level, dtype, batch, call))
                    if batch > 1 and call.op in ("Eigen", "Singular"):
                        self.assertGreaterEqual(shared, 4, (level, dtype, batch, call))

    def test_sources(self) -> None:
        """Protects programs of the command: the files that a call names define all that they use."""
        thunk = thunks.Linear(Linear("Eigen", 3, 3), 1, 4, False, Slice(0, 0))
        program: Any = types.SimpleNamespace(needs=set(), sources=set(), scratch={}, facts={}, at=lambda _: "data")
        thunk.emit(program)
        names = {Path(source).stem for source in program.sources}
        objects = [path for path in native.kernels("x86-64-v3") if Path(path).name.split(".")[0] in names]
        self.assertEqual(len(objects), len(names))
        with tempfile.TemporaryDirectory() as folder:
            subprocess.check_call(["c++", "-shared", "-Wl,-z,defs", *objects, "-o", f"{folder}/kernels.so"])

    def general(self, draw: random.Random, dtype: Any, batch: int, size: int) -> Array:
        """Draws matrices, half of them real. The first may be hard: defective, unitary, of any scale, or with values far apart."""
        x = self.drawn(dtype, batch, size, size) * draw.choice([1, 1, 1e-20, 1e20])
        x = x.real if draw.random() < 0.5 else x
        jordan = 2 * np.eye(size) + np.eye(size, k=1)
        hard = [x[0], np.zeros((size, size)), jordan, jordan.T, np.roll(np.eye(size), 1, 0), np.triu(x[0])]
        hard.append(x[0] * np.logspace(0, -12, size)[:, None])
        x[0] = draw.choice(hard)
        return x.astype(dtype)

    def test_schur(self) -> None:
        """Protects Schur decompositions, also of defective matrices and of any scale: unitary times triangular is the matrix."""
        for kernels, draw, dtype, batch, size, _, case in self.cases(draws=80):
            if np.dtype(dtype).kind != "c":
                continue
            x = self.general(draw, dtype, batch, size)
            unitary, values = Call(kernels, Linear("General", size, size, 1), x).run()
            self.assert_orthogonal(wide(unitary), case)
            upper = adjoint(wide(unitary)) @ wide(x) @ wide(unitary)
            triangle = np.triu(upper, 1) + values[:, None] * np.eye(size)
            self.assert_close(upper, triangle, case, np.linalg.norm(upper, axis=(-2, -1)))

    @harness.wide
    def test_general(self) -> None:
        """Protects eigenvectors of any matrices, also defective ones. Those of real matrices are conjugate pairs, to the bit."""
        for kernels, draw, dtype, batch, size, _, case in self.cases(draws=80):
            if np.dtype(dtype).kind != "c":
                continue
            x = self.general(draw, dtype, batch, size)
            vectors, values = Call(kernels, Linear("General", size, size), x).run()
            lengths = np.linalg.norm(wide(vectors), axis=-2)
            self.assert_close(lengths, np.ones_like(lengths), case, 1.0)
            large = np.abs(wide(vectors)) >= 0.7 * np.abs(wide(vectors)).max(-2, keepdims=True)
            self.assertTrue((large & (vectors.imag == 0) & (vectors.real > 0)).any(-2).all(), case)
            scale = np.linalg.norm(wide(x), axis=(-2, -1)) * size**0.5
            self.assert_close(wide(x) @ wide(vectors), wide(vectors) * wide(values)[:, None], case, scale)
            _, alone = Call(kernels, Linear("General", size, size, vectors=False), x).run()
            trace = np.trace(wide(x), axis1=-2, axis2=-1)[:, None, None]
            for each in (wide(values), wide(alone)):
                self.assert_close(each.sum(-1)[:, None, None], trace, case, scale)
                some = each[:, [draw.randrange(size) for _ in range(3)]]  # a decomposition for all takes long
                moved = wide(x)[:, None] - some[..., None, None] * np.eye(size)
                least = np.linalg.svd(moved, compute_uv=False)[..., -1].max(-1)
                self.assert_close(least[:, None, None], np.zeros((batch, 1, 1)), case, scale)
            if not x.imag.any():
                item, below = np.nonzero(values.imag < 0)
                self.assertTrue((values[item, below] == values[item, below - 1].conj()).all(), case)
                pairs = vectors[item, :, below], vectors[item, :, below - 1].conj()
                self.assertEqual(pairs[0].tobytes(), pairs[1].tobytes(), case)

    def test_hard(self) -> None:
        """Protects matrices on which iterations take long, or rounding errors are all that is left of a value."""
        ramp = np.arange(1.0, 65) / 64
        pairs = np.kron(np.eye(24), [[0, -1], [1, 0]])
        turned = np.linalg.qr(self.normal((48, 48)))[0]
        tiny = [[-6.7e-22, 7.5, -1.3e-28], [1.3e-27, 9e-19, 7.9e-26], [-7.5, -2.6e-22, 5.3e-29]]
        off = 1.6090935990872574e-18 + 5.1973080672616535e-17j
        hard = (
            (turned @ pairs @ turned.T, np.complex128),
            (np.array([[1, 1], [1e-20, 1]]), np.complex64),
            (1j * np.roll(np.eye(96), 1, 0), np.complex64),
            (np.array(tiny), np.complex64),
            (np.array([[1, off], [off.conjugate(), 1]]), np.complex128),
        )
        skew = np.array([[0, 2.1103799804090246, -1.7224880342329933], [0, 0, 1.2224112479369114], [0, 0, 0]])
        equal = np.linalg.qr(self.normal((500, 3, 3)))[0]
        equal[0], equal[1] = (
            skew - skew.T,
            [[1.110331691253668, -3.8402862981229755e-16, 0], [0, 1.110331691253668, 0], [0, 0, 1]],
        )
        for level, kernels in self.kernels.items():
            self.dtype = np.dtype(np.float64)
            values = Call(kernels, Linear("Eigen", 64, 64, vectors=False), np.outer(ramp, ramp)[None]).run()[1]
            self.assert_close(values[:, None], np.append(np.zeros(63), ramp @ ramp)[None, None], level)
            twos = np.where(np.arange(150) % 2, 1.0, 1e-3)
            clustered = np.linalg.qr(self.normal((150, 150)))[0] * twos @ np.linalg.qr(self.normal((150, 150)))[0]
            values = Call(kernels, Linear("Singular", 150, 150, vectors=False), clustered[None]).run()[1]
            self.assert_close(values[:, None], -np.sort(-twos)[None, None], level)
            values = Call(kernels, Linear("Singular", 3, 3, vectors=False), equal).run()[1]
            self.assert_close(values[:, None], np.linalg.svd(equal)[1][:, None], level)
            for number, (matrix, dtype) in enumerate(hard):
                self.dtype, case, size = np.dtype(dtype), (level, number), len(matrix)
                x = matrix.astype(dtype)[None]
                unitary, values = Call(kernels, Linear("General", size, size, 1), x).run()
                self.assert_orthogonal(wide(unitary), case)
                self.assert_close(
                    values.sum(-1)[:, None, None], np.trace(x[0]).reshape(1, 1, 1), case, float(np.linalg.norm(x[0]))
                )
                vectors, values = Call(kernels, Linear("General", size, size), x).run()
                scale = float(np.linalg.norm(x[0]))
                self.assert_close(wide(x) @ wide(vectors), wide(vectors) * wide(values)[:, None], case, scale)
            pivots = 1e-40 * np.array([[[1, 1], [1, 3]]], np.complex64)
            self.assertFalse(np.isnan(Call(kernels, Linear("Lu", 2, 2), pivots).run()[0]).any(), level)
            for dtype in DTYPES:
                (vectors, _), nan = Call(kernels, Linear("Eigen", 1, 1), np.array([[[np.nan]]], dtype)).run(), np.isnan
                self.assertTrue(nan(vectors).all(), (level, dtype))

    def test_small_floats(self) -> None:
        """Protects float32 of up to 16 rows: roots and eigenvalues are as exact as their storage."""
        eps = np.finfo(np.float32).eps
        for level, kernels in self.kernels.items():
            for size in (2, 6, 16):
                x = self.normal((20, size, size)).astype(np.float32)
                positive = (x @ adjoint(x) + np.eye(size)).astype(np.complex64)
                (root,) = Call(kernels, Linear("Root", size, size), positive).run()
                values, vectors = np.linalg.eigh(wide(positive))
                want = (vectors * np.sqrt(values)[:, None]) @ adjoint(vectors)
                self.assertLessEqual(np.abs(root - want).max(), eps * np.abs(want).max(), (level, size))
                values = Call(kernels, Linear("General", size, size, vectors=False), x.astype(np.complex64)).run()[1]
                far = np.abs(values[:, :, None] - np.linalg.eigvals(wide(x))[:, None]).min(-1).max()
                self.assertLessEqual(far, eps * np.abs(values).max(), (level, size))

    @harness.wide
    def test_root(self) -> None:
        """Protects square roots: squared, they are the matrix, and their eigenvalues aren't left of the imaginary axis."""
        for kernels, draw, dtype, batch, size, _, case in self.cases(draws=80):
            if np.dtype(dtype).kind != "c":
                continue
            x = self.drawn(dtype, batch, size, size)
            x = x.real if draw.random() < 0.5 else x
            x = x @ adjoint(x) / np.linalg.norm(x, axis=(-2, -1), keepdims=True) + x / 8
            defective = 3 * np.eye(size) + np.triu(np.ones((size, size)), 1) / size
            x[0] = draw.choice([x[0], np.eye(size), np.zeros((size, size)), defective])
            x = (x * draw.choice([1, 1e-20, 1e20])).astype(dtype)
            (root,) = Call(kernels, Linear("Root", size, size), x).run()
            scale = np.linalg.norm(wide(root), axis=(-2, -1)) ** 2
            self.assert_close(wide(root) @ wide(root), wide(x), case, scale)
            least = np.linalg.eigvals(wide(root)).real.min(-1)
            self.assertTrue((least >= -1e-3 * scale**0.5).all(), case)

    def test_other_items(self) -> None:
        """Protects batch items from each other: NaN, infinity, or a singular matrix in one changes no bit of another."""
        for level, kernels in self.kernels.items():
            for dtype in DTYPES:
                for size in (3, 8, 16, 20, 48):
                    x = self.drawn(dtype, 5, size, size)
                    x = (x @ adjoint(x) + np.eye(size)).astype(dtype)
                    spoiled = x.copy()
                    spoiled[1], spoiled[2, 0, 0], spoiled[3] = np.nan, np.inf, -np.eye(size)
                    general = ("General", "Root") if np.dtype(dtype).kind == "c" else ()
                    for op in ("Cholesky", "Lu", "Reflectors", "Eigen", "Singular", *general):
                        call = Linear(op, size, size)
                        clean, bad = Call(kernels, call, x).run(), Call(kernels, call, spoiled).run()
                        for one, other in zip(clean, bad, strict=True):
                            case = level, dtype, size, op
                            self.assertEqual(one[[0, 4]].tobytes(), other[[0, 4]].tobytes(), case)
                        if op in ("Cholesky", "Eigen", "Singular", *general):
                            self.assertFalse(np.isfinite(bad[0][1:3]).all((1, 2)).any(), case)
                    (factor,) = Call(kernels, Linear("Cholesky", size, size), spoiled).run()
                    self.assertTrue(np.isnan(factor[3][np.tril_indices(size)]).all(), (level, dtype, size))
                    self.assertFalse(np.triu(factor, 1).any(), (level, dtype, size))


if __name__ == "__main__":
    unittest.main()
