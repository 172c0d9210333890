"""Which matrices of products of one row are packed as one stream, and how."""

from __future__ import annotations

import dataclasses
import json
import unittest
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.compile.program.prepack_test import dot, function
from tests.stages.harness import StageTest
from tests.xla.hlo import parsed
from tfaot.compile.program.packing import gemv_packing
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import Call, Copy, Dot, For, Kernel, Slice, Thunk, While

DEPTH, COLUMNS = 530, 500
"""Not a whole panel, and more than `gemv_packing.SMALLEST` values."""

HLO = f"""\
HloModule a.b, is_scheduled=true

ENTRY %main (x: f32[{DEPTH}], m: f32[{DEPTH},{COLUMNS}]) -> f32[{COLUMNS}] {{
  %x = f32[{DEPTH}]{{0}} parameter(0)
  %m = f32[{DEPTH},{COLUMNS}]{{1,0}} constant({{...}})
  ROOT %dot.1 = f32[{COLUMNS}]{{0}} dot(%x, %m), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
}}
"""


def matrix(depth: int = DEPTH, columns: int = COLUMNS) -> npt.NDArray[np.float32]:
    """Returns weights."""
    return np.random.default_rng(6).standard_normal((depth, columns)).astype(np.float32)


def product(depth: int = DEPTH, columns: int = COLUMNS) -> Dot:
    """Returns a product of one row."""
    return dot(rows=1, depth=depth, columns=columns)


class RowProductsTest(unittest.TestCase):
    """The pass on thunks."""

    def run_pass(
        self, values: npt.NDArray[np.float32], *thunks: Thunk, isa: str = "x86-64-v3"
    ) -> tuple[Compiled, tuple[Thunk, ...]]:
        """Returns the pass's result for a function with one constant."""
        compiled = Compiled(
            {isa: function(*thunks, sizes=(values.nbytes,))}, {"c1": memoryview(values.tobytes())}, (parsed(HLO),)
        )
        self.assertEqual(gemv_packing.gemv_packing(compiled), len(compiled.packed))
        return compiled, compiled.functions[isa].thunks

    def test_values(self) -> None:
        """Protects numbers: a panel has 32 columns, row by row, with zeros past the last, wherever XLA stores columns."""
        for transposed in (False, True):
            values = matrix()
            compiled, (got,) = self.run_pass(
                np.ascontiguousarray(values.T) if transposed else values,
                dataclasses.replace(product(), transpose_lhs=transposed),
            )
            assert isinstance(got, Dot)
            self.assertEqual(got.packing, "float32")
            panels = np.frombuffer(compiled.replaced["c1"], np.float32).reshape(-1, DEPTH, 32)
            wide = panels.transpose(1, 0, 2).reshape(DEPTH, -1)
            np.testing.assert_array_equal(wide[:, :COLUMNS], values)
            self.assertEqual((wide.shape[1], np.abs(wide[:, COLUMNS:]).max()), (512, 0))

    def test_kernels(self) -> None:
        """Protects XLA's kernels: they become products if their matrix is large, and stay as they are otherwise."""
        sizes = ((Slice(0, 0), DEPTH), (Slice(1, 0), DEPTH * COLUMNS), (Slice(0, 1 << 16), COLUMNS))
        kernel = Kernel("a_b_dot_1_kernel", tuple((at, 4 * size) for at, size in sizes), (1, 1, 1), single=True)
        _, (got,) = self.run_pass(matrix(), kernel)
        assert isinstance(got, Dot)
        self.assertEqual((got.m, got.n, got.k, got.packing), (COLUMNS, 1, DEPTH, "float32"))
        other = dataclasses.replace(kernel, symbol="a_b_dot_2_kernel")
        self.assertEqual(self.run_pass(matrix(), other)[1], (other,))
        copy = Copy(Slice(1, 0), Slice(0, 0), 64)
        self.assertEqual(self.run_pass(matrix(), kernel, copy)[1], (kernel, copy))

    def test_where_it_applies(self) -> None:
        """Protects speed: several rows, a matrix in the cache, and mostly empty panels are faster as they are."""
        self.assertEqual(gemv_packing.SMALLEST, 512 * 512)
        for depth, columns, packed in ((512, 512, 1), (511, 512, 0), (1024, 256, 1), (4096, 65, 0), (16384, 17, 0)):
            compiled, _ = self.run_pass(matrix(depth, columns), product(depth, columns))
            self.assertEqual(len(compiled.packed), packed, (depth, columns))
        for change in ({"n": 2}, {"dtype": "int32_t"}):
            compiled, _ = self.run_pass(matrix(), dataclasses.replace(product(), **change))
            self.assertEqual(compiled.packed, {})

    def test_loops(self) -> None:
        """Protects recurrent layers: with AVX-512, a loop's matrix is a stream from 128 KB on, which the first level can't keep."""
        self.assertEqual(gemv_packing.SMALLEST_IN_LOOP, 128 * 256)
        inside = While(Slice(0, 0), (), (product(128, 256),))
        for thunk, isa, packed in (
            (inside, "x86-64-v4", 1),
            (For(3, (Call((product(128, 256),)),)), "x86-64-v4", 1),
            (inside, "x86-64-v3", 0),
            (product(128, 256), "x86-64-v4", 0),
        ):
            compiled, _ = self.run_pass(matrix(128, 256), thunk, isa=isa)
            self.assertEqual(len(compiled.packed), packed, (thunk, isa))
        compiled, _ = self.run_pass(matrix(127, 256), While(Slice(0, 0), (), (product(127, 256),)), isa="x86-64-v4")
        self.assertEqual(compiled.packed, {})


MODEL = """\
import numpy as np
import tensorflow as tf

draw = np.random.default_rng(4)
large = tf.Variable(draw.standard_normal((512, 520), np.float32) / 30, name="large")
small = tf.Variable(draw.standard_normal((520, 64), np.float32) / 30, name="small")


@tf.function(input_signature=[tf.TensorSpec((1, 512), name="x")])
def model(x):
    return tf.matmul(tf.nn.relu(tf.matmul(x, large) + 0.5), small)
"""


class ModelTest(StageTest):
    """A compiled model."""

    def test_model(self) -> None:
        """Protects whole models: the large matrix's product becomes a call of the runtime, and the small one stays."""
        exported = self.export(MODEL)
        self.compile(exported)
        passes = json.loads(Path(exported.path("passes")).read_text())
        self.assertEqual(passes["gemv_packing"], 1)
        self.assertEqual(passes["kernels"], ["tfaot/kernels/stream_f32.cc"])
        self.assertEqual(Path(exported.path("source")).read_text().count("RunStream<float>("), 1)


if __name__ == "__main__":
    unittest.main()
