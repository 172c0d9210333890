"""What the report knows about a compiled program: arithmetic, traffic, and the memory of values."""

from __future__ import annotations

import json
import unittest
from typing import Any

from tests.xla.hlo import parsed
from tfaot.compile.program import plan
from tfaot.xla.memory import Memory, Value
from tfaot.xla.module import Shape

HLO = """\
HloModule m, is_scheduled=true

%fused (p: f32[4,8]) -> f32[4,8] {
  %p = f32[4,8]{1,0} parameter(0)
  %c = f32[] constant(2)
  %b = f32[4,8]{1,0} broadcast(%c), dimensions={}
  ROOT %m = f32[4,8]{1,0} multiply(%p, %b)
}

%body (s: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %s = (s32[], f32[4,8]{1,0}) parameter(0)
  %e = f32[4,8]{1,0} get-tuple-element(%s), index=1
  %t = f32[4,8]{1,0} tanh(%e)
  %i.2 = s32[] get-tuple-element(%s), index=0
  ROOT %next = (s32[], f32[4,8]{1,0}) tuple(%i.2, %t)
}

%less (r: (s32[], f32[4,8])) -> pred[] {
  %r = (s32[], f32[4,8]{1,0}) parameter(0)
  ROOT %more = pred[] constant(true)
}

ENTRY %main (x: f32[4,16], w: f32[16,8], i: f32[1,5,5,3], k: f32[3,3,3,7]) -> f32[4,8] {
  %x = f32[4,16]{1,0} parameter(0)
  %w = f32[16,8]{1,0} parameter(1)
  %i = f32[1,5,5,3]{3,2,1,0} parameter(2)
  %k = f32[3,3,3,7]{3,2,1,0} parameter(3)
  %c.2 = s32[] constant(0)
  %dot.1 = f32[4,8]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="a/MatMul"}
  %fusion.2 = f32[4,8]{1,0} fusion(%dot.1), kind=kLoop, calls=%fused
  %conv = f32[1,3,3,7]{3,2,1,0} convolution(%i, %k), window={size=3x3}, dim_labels=b01f_01io->b01f
  %t.2 = (s32[], f32[4,8]{1,0}) tuple(%c.2, %fusion.2)
  ROOT %while.3 = (s32[], f32[4,8]{1,0}) while(%t.2), condition=%less, body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
"""

MEMORY = Memory(320, 7, (Value("dot.1", Shape("f32", (4, 8), (1, 0), (False, False), ()), 128, 64, 4, 5),))


class PlanTest(unittest.TestCase):
    """Modules and their memory."""

    def steps(self) -> dict[str, dict[str, Any]]:
        """Returns the steps by name."""
        return {step["name"]: step for step in json.loads(plan.plan(parsed(HLO), MEMORY))["steps"]}

    def test_arithmetic(self) -> None:
        """Products count two operations for each multiply-add, fusions what is in them, and loops each of their steps."""
        steps = self.steps()
        self.assertEqual(list(steps), ["dot.1", "fusion.2", "conv", "while.3"])
        self.assertEqual(steps["dot.1"]["flops"], 2 * 4 * 8 * 16)
        self.assertEqual(steps["fusion.2"]["flops"], 32)
        self.assertEqual(steps["conv"]["flops"], 2 * 9 * 7 * 27)
        self.assertEqual(steps["while.3"]["flops"], 5 * 32)

    def test_traffic(self) -> None:
        """Bytes are those of operands and results, and the origin is TensorFlow's op."""
        steps = self.steps()
        self.assertEqual(steps["dot.1"]["bytes"], 4 * (64 + 128 + 32))
        self.assertEqual(steps["dot.1"]["origin"], "a/MatMul")
        self.assertEqual(steps["fusion.2"]["origin"], "")

    def test_memory(self) -> None:
        """Values have a place, a life, and a shape."""
        made = json.loads(plan.plan(parsed(HLO), MEMORY))
        self.assertEqual((made["memory"], made["length"]), (320, 7))
        value = {"name": "dot.1", "shape": "f32[4,8]{1,0}", "bytes": 128, "offset": 64, "first": 4, "last": 5}
        self.assertEqual(made["values"], [value])


if __name__ == "__main__":
    unittest.main()
