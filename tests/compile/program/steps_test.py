"""What the report knows about a compiled program: its steps, their arithmetic, and their memory."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

from tests.stages.harness import StageTest
from tests.xla.hlo import parsed
from tfaot.compile.program import steps
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Dot, For, Kernel, Slice

HLO = """\
HloModule m, is_scheduled=true

%fused (p: f32[4,8]) -> f32[4,8] {
  %p = f32[4,8]{1,0} parameter(0)
  %c = f32[] constant(2)
  %b = f32[4,8]{1,0} broadcast(%c), dimensions={}
  ROOT %m = f32[4,8]{1,0} multiply(%p, %b)
}

ENTRY %main (x: f32[4,16], w: f32[16,8]) -> f32[4,8] {
  %x = f32[4,16]{1,0} parameter(0)
  %w = f32[16,8]{1,0} parameter(1)
  %dot.1 = f32[4,8]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="a/MatMul"}
  ROOT %fusion.2 = f32[4,8]{1,0} fusion(%dot.1), kind=kLoop, calls=%fused, metadata={op_name="a/Mul"}
}
"""


def program() -> CompiledFunction:
    """Returns a product, and a loop of five rounds with a kernel. The second argument has no name."""
    at = [Slice(index, 0) for index in range(4)]
    product = Dot("float", 1, at[2], at[1], at[0], (0, 0, 0), 8, 4, 16, False, False)
    kernel = Kernel("m_fusion_2", ((at[2], 128), (at[3], 128)), (1, 1, 1))
    buffers = [Buffer(256, "parameter", 0, None), Buffer(512, "parameter", 1, None)]
    buffers += [Buffer(128, "temp", None, None), Buffer(128, "temp", None, 0)]
    return CompiledFunction(tuple(buffers), (0, 1), (3,), (), (), (product, For(5, (kernel,))))


class StepsTest(unittest.TestCase):
    """A small program."""

    def described(self) -> dict[str, Any]:
        """Returns what the compile stage writes."""
        made: dict[str, Any] = json.loads(steps.describe(program(), parsed(HLO), ["x"]))
        return made

    def test_arithmetic(self) -> None:
        """Protects the report's sums: products count multiply-adds twice, kernels what HLO has, and loops their rounds."""
        product, kernel = self.described()["steps"]
        self.assertEqual((product["kernel"], product["origin"]), ("dot 1x4x16x8", "a/MatMul"))
        self.assertEqual((product["operations"], product["times"]), (2 * 4 * 8 * 16, 1))
        self.assertEqual((kernel["kernel"], kernel["origin"]), ("m_fusion_2", "a/Mul"))
        self.assertEqual((kernel["operations"], kernel["times"]), (32, 5))

    def test_memory(self) -> None:
        """Protects the report's memory: what steps read and write has the address that instances give it, or an argument's name."""
        made = self.described()
        product, kernel = made["steps"]
        self.assertEqual(made["memory"], 256)
        self.assertEqual([place["of"] for place in product["reads"]], ["argument 1", "x"])
        self.assertEqual(product["writes"], [{"of": "memory", "offset": 0, "bytes": 128}])
        self.assertEqual(kernel["reads"], product["writes"])
        self.assertEqual(kernel["writes"], [{"of": "memory", "offset": 128, "bytes": 128}])
        self.assertEqual((made["loops"], made["results"]), ([[1, 1]], kernel["writes"]))


NET = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return v1.placeholder(tf.float32, [1, 20], "x"), ()


def model_fn(x, _):
    for index, (rows, columns) in enumerate(((20, 50), (50, 30), (30, 10))):
        kernel = v1.get_variable(f"kernel{index}", [rows, columns])
        x = tf.nn.relu(tf.matmul(x, kernel))
    return x
"""


class NetTest(StageTest):
    """A compiled net."""

    def test_passes(self) -> None:
        """Protects from sums that lose what passes change: a net has its arithmetic in one call, and as XLA compiled it."""
        exported = self.export(NET)
        products = 2 * (20 * 50 + 50 * 30 + 30 * 10)
        for passes, joined in ((("*",), True), ((), False)):
            self.compile(exported, passes=passes)
            made = json.loads(Path(exported.path("program")).read_text())["steps"]
            self.assertEqual(any(step["kernel"] == "dense_net 20x50x30x10" for step in made), joined)
            total = sum(step["operations"] * step["times"] for step in made)
            self.assertGreaterEqual(total, products)
            self.assertLess(total, products + 200)


if __name__ == "__main__":
    unittest.main()
