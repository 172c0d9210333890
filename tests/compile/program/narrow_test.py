"""Which weights are stored in fewer bits, and as what."""

from __future__ import annotations

import dataclasses
import json
import re
import unittest
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.compile.program.changed import stored
from tests.compile.program.prepack_test import dot, function
from tests.stages.harness import StageTest
from tests.xla.hlo import parsed
from tfaot.compile.program.packing import narrow
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import Copy, Dot, Epilogue, Kernel, Slice, Thunk
from tfaot.compile.program.values.gemv import product
from tfaot.export.rewrites.narrow import SMALLEST, to_bfloat16, to_int8

Matrix = npt.NDArray[np.float32]

DEPTH, COLUMNS = 67, 90
"""Neither a whole block nor a whole panel."""


def matrix(dtype: str, depth: int = DEPTH, columns: int = COLUMNS) -> Matrix:
    """Returns weights that have been rounded for a dtype."""
    values = np.random.default_rng(5).standard_normal((depth, columns)).astype(np.float32)
    rounded = to_bfloat16(values) if dtype == "bfloat16" else to_int8(values, (0,))
    assert rounded is not None
    return rounded


def unpacked(dtype: str, contents: bytes, depth: int, columns: int) -> Matrix:
    """Reads what kernels read, by the definition in runtime/tfaot/kernels/stream.h."""
    panels = -(-columns // 32)
    result = np.zeros((depth, columns), np.float32)
    factors = np.ones(panels * 32, np.float32)
    if dtype == "int8":
        factors = np.frombuffer(contents, np.float32, panels * 32)
        contents = contents[panels * 128 :]
    rows = 1 if dtype == "bfloat16" else 2
    words = np.frombuffer(contents, np.uint32).reshape(panels, -(-depth // rows), 16)
    for k in range(depth):
        for j in range(columns):
            word = int(words[j // 32, k // rows, j % 16])
            half = j % 32 // 16
            if dtype == "bfloat16":
                bits = np.uint32((word >> 16 if half else word & 0xFFFF) << 16)
                result[k, j] = bits.view(np.float32)
            else:
                byte = word >> 8 * (2 * (k % 2) + half) & 0xFF
                result[k, j] = np.float32((byte - 256 if byte > 127 else byte) * 2.0**24) * factors[j]
    return result


HLO = """\
HloModule a.b, is_scheduled=true

%sum (p0: f32[90], p1: f32[67], p2: f32[67,90]) -> f32[90] {
  %p1 = f32[67]{0} parameter(1)
  %p2 = f32[67,90]{1,0} parameter(2)
  %dot.4 = f32[90]{0} dot(%p1, %p2), lhs_contracting_dims={0}, rhs_contracting_dims={0}, metadata={op_type="MatMul"}
  %p0 = f32[90]{0} parameter(0)
  ROOT %add = f32[90]{0} add(%dot.4, %p0)
}

%scaled (q0: f32[90], q1: f32[67], q2: f32[67,90]) -> f32[90] {
  %q1 = f32[67]{0} parameter(1)
  %q2 = f32[67,90]{1,0} parameter(2)
  %dot.5 = f32[90]{0} dot(%q1, %q2), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %q0 = f32[90]{0} parameter(0)
  %tanh = f32[90]{0} tanh(%q0)
  ROOT %add.2 = f32[90]{0} add(%dot.5, %tanh)
}

ENTRY %main (x: f32[67], m: f32[67,90], b: f32[90]) -> f32[90] {
  %x = f32[67]{0} parameter(0)
  %m = f32[67,90]{0,1} constant({...})
  %n = f32[67,90]{1,0} constant({...})
  %d = f64[67,90]{1,0} constant({...})
  %b = f32[90]{0} parameter(2)
  %c = f32[90]{0} constant({...})
  %one = f32[90]{0} fusion(%b, %x, %n), kind=kOutput, calls=%sum
  %two = f32[90]{0} fusion(%b, %x, %n), kind=kOutput, calls=%scaled
  %dot.1 = f32[90]{0} dot(%x, %m), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %dot.2 = f32[90]{0} dot(%n, %x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %dot.3 = f32[67]{0} dot(%b, %n), lhs_contracting_dims={0}, rhs_contracting_dims={1}
  %square = f32[] dot(%b, %b), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %one.2 = f32[] dot(%b, %c), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %dot.6 = f64[90]{0} dot(%x, %d), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %dot.7 = f32[67,67]{1,0} dot(%n, %n), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT %dot.8 = f32[90]{0} dot(%x, %n), lhs_batch_dims={0}, lhs_contracting_dims={0}, rhs_batch_dims={0}, rhs_contracting_dims={0}
}
"""


class ProductTest(unittest.TestCase):
    """Reading XLA's kernels."""

    def test_kernels(self) -> None:
        """Protects the reader: products of one row with a matrix in any order and layout, and nothing else."""
        # Row, matrix, sum, depth, columns, and whether the matrix is stored by columns.
        for symbol, wanted in {
            "one": (1, 2, 0, 67, 90, False),
            "dot_1_kernel": (0, 1, None, 67, 90, True),
            "dot_2_kernel": (1, 0, None, 67, 90, False),
            "dot_3_kernel": (0, 1, None, 90, 67, True),
            "one_2_kernel": (0, 1, None, 90, 1, True),  # a matrix of one column
            **dict.fromkeys(("two", "square_kernel", "dot_4_kernel", "dot_6_kernel", "dot_7_kernel", "dot_8_kernel")),
        }.items():
            with self.subTest(symbol):
                kernel = stored(HLO, f"a_b_{symbol}")
                got = product(kernel) if kernel else None
                if got is None or wanted is None:
                    self.assertIs(got, wanted)
                    continue
                addend = got.epilogue.addend.buffer if got.epilogue and got.epilogue.addend else None
                sides = got.rhs.buffer, got.lhs.buffer, addend
                self.assertEqual((*sides, got.k, got.m, got.transpose_lhs), wanted)
                self.assertEqual(got.out.buffer, 3 if addend == 0 else 2)


class NarrowTest(unittest.TestCase):
    """The pass on thunks."""

    def run_pass(self, dtype: str, values: Matrix, *thunks: Thunk) -> tuple[Compiled, tuple[Thunk, ...]]:
        """Returns the pass's result for a function with one constant."""
        compiled = Compiled(
            {"v3": function(*thunks, sizes=(values.nbytes,))},
            {"c1": memoryview(values.tobytes())},
            (parsed(HLO),),
            weights=dtype,
        )
        self.assertEqual(narrow.narrow(compiled), len(compiled.packed))
        return compiled, compiled.functions["v3"].thunks

    def test_values(self) -> None:
        """Protects numbers: from the bytes, kernels get exactly the rounded weights, wherever XLA stores columns or rows."""
        for dtype in ("bfloat16", "int8"):
            for transposed in (False, True):
                with self.subTest(dtype, transposed=transposed):
                    values = matrix(dtype)
                    in_memory = np.ascontiguousarray(values.T) if transposed else values
                    multiplied = dataclasses.replace(dot(depth=DEPTH, columns=COLUMNS), transpose_lhs=transposed)
                    compiled, (got,) = self.run_pass(dtype, in_memory, multiplied)
                    assert isinstance(got, Dot)
                    self.assertEqual(got.packing, dtype)
                    contents = compiled.replaced["c1"]
                    np.testing.assert_array_equal(unpacked(dtype, contents, DEPTH, COLUMNS), values)
                    (constant,) = compiled.packed.values()
                    self.assertEqual((constant.before, constant.after), (values.nbytes, len(contents)))
                    self.assertLess(constant.after, constant.before * (0.56 if dtype == "bfloat16" else 0.31))

    def test_parts_of_a_weight(self) -> None:
        """Protects weights that a pass cuts in two: a column need not have its largest value anymore."""
        whole = matrix("int8", 200, 64)
        for part in (whole[:90], whole[150:], np.concatenate([whole[:, 40:], whole[:, :40]], axis=1)):
            found = narrow.int8_of(part)
            assert found is not None
            integers, factors = found
            np.testing.assert_array_equal(integers.astype(np.float32) * factors, part)

    def test_what_is_not_exact(self) -> None:
        """Protects numbers: values that the dtype doesn't have stay as they are, one such value in a matrix too."""
        for dtype in ("bfloat16", "int8"):
            values = matrix(dtype)
            values[3, 4] = np.nextafter(values[3, 4], np.float32(9))
            compiled, thunks = self.run_pass(dtype, values, dot(depth=DEPTH, columns=COLUMNS))
            self.assertEqual((compiled.packed, thunks), ({}, (dot(depth=DEPTH, columns=COLUMNS),)))
        values = matrix("int8").T.copy()  # factors along the wrong dimension
        self.assertIsNone(narrow.int8_of(values))
        self.assertIsNone(narrow.int8_of(np.full((2, 2), np.inf, np.float32)))

    def test_where_it_applies(self) -> None:
        """Protects other constants: small ones, those that something else reads, and all of a target without the dtype."""
        values = matrix("bfloat16")
        product = dot(depth=DEPTH, columns=COLUMNS)
        copy = Copy(Slice(0, 0), Slice(1, 0), 64)
        self.assertEqual(self.run_pass("bfloat16", values, product, copy)[0].packed, {})
        self.assertEqual(self.run_pass("", values, product)[0].packed, {})
        self.assertEqual(self.run_pass("bfloat16", matrix("bfloat16", 63, 65), dot(depth=63, columns=65))[0].packed, {})
        self.assertEqual(
            len(self.run_pass("bfloat16", matrix("bfloat16", 64, 64), dot(depth=64, columns=64))[0].packed), 1
        )
        # 16 columns would fill half of a panel.
        few = self.run_pass("bfloat16", matrix("bfloat16", 512, 16), dot(depth=512, columns=16))
        self.assertEqual(few[0].packed, {})
        self.assertEqual(narrow.SMALLEST, SMALLEST)

    def kernel(self, name: str, *places: tuple[Slice, int]) -> Kernel:
        """Returns a call of a kernel of XLA's."""
        return Kernel(f"a_b_{name}", tuple((at, 4 * size) for at, size in places), (1, 1, 1), single=True)

    def test_kernels(self) -> None:
        """Protects XLA's kernels: they become products, with their addend, if the result overlaps nothing else."""
        weights, x, out = (Slice(1, 0), DEPTH * COLUMNS), (Slice(0, 0), DEPTH), (Slice(0, 4096), COLUMNS)
        plain = self.kernel("dot_2_kernel", weights, x, out)
        added = self.kernel("one", out, x, weights, out)
        for kernel, addend in ((plain, None), (added, out[0])):
            compiled, (got,) = self.run_pass("bfloat16", matrix("bfloat16"), kernel)
            assert isinstance(got, Dot)
            self.assertEqual(
                (got.m, got.n, got.k, got.rhs, got.out, got.packing), (90, 1, 67, x[0], out[0], "bfloat16")
            )
            self.assertEqual(got.epilogue and got.epilogue.addend, addend)
            self.assertEqual(len(compiled.packed), 1)
        wanted = Epilogue(None, out[0], None, out[0], float("-inf"), float("inf"))
        assert isinstance(got, Dot)
        self.assertEqual(got.epilogue, wanted)
        for kept in (
            self.kernel("dot_2_kernel", weights, (Slice(0, 4096), DEPTH), out),
            self.kernel("two", out, x, weights, out),
            self.kernel("one", (Slice(0, 4100), COLUMNS), x, weights, out),
            self.kernel("dot_2_kernel", weights, x, x, out),
        ):
            self.assertEqual(self.run_pass("bfloat16", matrix("bfloat16"), kept)[1], (kept,))
        # A matrix that stays in float32 stays XLA's.
        self.assertEqual(self.run_pass("int8", matrix("bfloat16"), plain)[1], (plain,))

    def test_levels(self) -> None:
        """Protects CPUs without a level's instructions: kernels that stay XLA's are those of their own level."""
        values = matrix("bfloat16")
        places = ((Slice(1, 0), DEPTH * COLUMNS), (Slice(0, 0), DEPTH), (Slice(0, 4096), COLUMNS))
        kernels = {
            isa: Kernel(f"{isa}_b_dot_2_kernel", self.kernel("", *places).args, (1, 1, 1), single=True)
            for isa in ("v3", "v4")
        }
        functions = {isa: function(kernel, sizes=(values.nbytes,)) for isa, kernel in kernels.items()}
        texts = [parsed(HLO.replace("HloModule a.", f"HloModule {isa}.")) for isa in kernels]
        compiled = Compiled(functions, {"c1": memoryview(values.tobytes())}, texts, weights="int8")
        self.assertEqual(narrow.narrow(compiled), 0)
        self.assertEqual(
            {isa: each.thunks for isa, each in compiled.functions.items()},
            {isa: (kernel,) for isa, kernel in kernels.items()},
        )


MODEL = """\
import numpy as np
import tensorflow as tf

draw = np.random.default_rng(4)
state = tf.Variable(draw.standard_normal((64, 64), np.float32) / 8, name="state")
scaled = tf.Variable(draw.standard_normal((64, 96), np.float32) / 8, name="scaled")
factor = tf.Variable(draw.standard_normal(96, np.float32), name="factor")


@tf.function(input_signature=[tf.TensorSpec((1, 64), name="x")])
def model(x):
    for _ in tf.range(20):
        x = tf.tanh(tf.matmul(x, state))
    return tf.matmul(x, scaled) * factor
"""


class ModelTest(StageTest):
    """A compiled model."""

    def test_model(self) -> None:
        """Protects whole models: kernels in loops read narrow weights, and no pass spoils the rounding."""
        for dtype in ("bfloat16", "int8"):
            exported = self.export(MODEL, weights_dtype=dtype)
            self.compile(exported)
            passes = json.loads(Path(exported.path("passes")).read_text())
            self.assertEqual((passes["narrow"], passes["fold_batch_norm"]), (2, 0))
            self.assertEqual({each["packing"] for each in passes["packed"]}, {dtype})
            self.assertEqual(passes["kernels"], ["tfaot/kernels/stream_f32.cc"])
            source = Path(exported.path("source")).read_text()
            self.assertEqual(len(re.findall(r"RunStream<float>\(", source)), 2)
        plain = self.export(MODEL)
        self.compile(plain)
        passes = json.loads(Path(plain.path("passes")).read_text())
        self.assertEqual((passes["narrow"], passes["fold_batch_norm"], passes["kernels"]), (0, 1, []))


if __name__ == "__main__":
    unittest.main()
