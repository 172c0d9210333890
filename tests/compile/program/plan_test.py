"""What the report knows about a compiled program: arithmetic, traffic, and the memory of values."""

from __future__ import annotations

import json
import unittest
from typing import Any

from tfaot.compile.program import plan

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
  ROOT %t = f32[4,8]{1,0} tanh(%e)
}

ENTRY %main (x: f32[4,16], w: f32[16,8], i: f32[1,5,5,3], k: f32[3,3,3,7]) -> f32[4,8] {
  %x = f32[4,16]{1,0} parameter(0)
  %w = f32[16,8]{1,0} parameter(1)
  %i = f32[1,5,5,3]{3,2,1,0} parameter(2)
  %k = f32[3,3,3,7]{3,2,1,0} parameter(3)
  %dot.1 = f32[4,8]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="a/MatMul"}
  %fusion.2 = f32[4,8]{1,0} fusion(%dot.1), kind=kLoop, calls=%fused
  %conv = f32[1,3,3,7]{3,2,1,0} convolution(%i, %k), window={size=3x3}, dim_labels=b01f_01io->b01f
  ROOT %while.3 = (s32[], f32[4,8]{1,0}) while(%fusion.2), body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
"""

BUFFERS = """\
BufferAssignment:
allocation 0: size 256, parameter 0, shape |f32[4,16]| at ShapeIndex {}:
 value: <1 x @0> (size=256,offset=0): f32[4,16]{1,0}
allocation 1: size 320, preallocated-temp:
 value: <2 dot.1 @0> (size=128,offset=64): f32[4,8]{1,0}
 value: <3 fusion.2 @0> (size=128,offset=192): f32[4,8]{1,0}

HloLiveRange (max 7):
  InstructionSequence:
    0:x
    4:dot.1
    5:fusion.2
    6:while.3
  BufferLiveRange:
    x{}:0-7
    dot.1{}:4-5
    fusion.2{}:5-6
"""


class PlanTest(unittest.TestCase):
    """Texts of the compiler."""

    def steps(self) -> dict[str, dict[str, Any]]:
        """Returns the steps by name."""
        return {step["name"]: step for step in json.loads(plan.plan(HLO, BUFFERS))["steps"]}

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
        """Only values of the working memory have a place and a life in the plan."""
        made = json.loads(plan.plan(HLO, BUFFERS))
        self.assertEqual((made["memory"], made["length"]), (320, 7))
        self.assertEqual(
            [(v["name"], v["offset"], v["first"], v["last"]) for v in made["values"]],
            [("dot.1", 64, 4, 5), ("fusion.2", 192, 5, 6)],
        )

    def test_nothing(self) -> None:
        """If XLA wrote its texts elsewhere, the plan is empty."""
        self.assertEqual(json.loads(plan.plan("", "")), {"steps": [], "memory": 0, "length": 0, "values": []})


if __name__ == "__main__":
    unittest.main()
