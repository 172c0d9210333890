"""What the report knows about a compiled program: its steps, their arithmetic, and their memory."""

from __future__ import annotations

import json
import unittest
from typing import Any

from tests.xla.hlo import parsed
from tfaot.compile.program import steps
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Dot, For, Kernel, SizedSlice, Slice

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
    kernel = Kernel("m_fusion_2", (SizedSlice(at[2], 128), SizedSlice(at[3], 128)), (1, 1, 1))
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


if __name__ == "__main__":
    unittest.main()
