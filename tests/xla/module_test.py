"""Reading HLO modules."""

from __future__ import annotations

import unittest

from tensorflow.compiler.xla.service import hlo_pb2

from tests.xla.hlo import parsed, proto
from tfaot.xla import module

TEXT = """\
HloModule m, is_scheduled=true

%square (p: f32[2,3]) -> f32[2,3] {
  %p = f32[2,3]{0,1} parameter(0)
  ROOT %square.1 = f32[2,3]{0,1} multiply(%p, %p)
}

ENTRY %main (x: f32[2,3]) -> (f32[2,3], f32[2,3]) {
  %x = f32[2,3]{0,1} parameter(0)
  %tenth = f32[] constant(0.1)
  %digits = f32[] constant(0.123456789)
  %bound = f64[] constant(-inf)
  %seven = s32[] constant(7)
  %no = pred[] constant(false)
  %weights = f32[2]{0} constant({...})
  %fused = f32[2,3]{0,1} fusion(%x), kind=kLoop, calls=%square
  ROOT %both = (f32[2,3]{0,1}, f32[2,3]{0,1}) tuple(%x, %fused)
}
"""


class ModuleTest(unittest.TestCase):
    """Modules as the rest of the code sees them."""

    def test_parts(self) -> None:
        """Protects all readers: names, operands, shapes, and what a fusion calls."""
        read = parsed(TEXT)
        self.assertEqual((read.name, read.entry.name, [*read.computations]), ("m", "main", ["square", "main"]))
        self.assertEqual([one.fused for one in read.computations.values()], [True, False])
        fused = read.entry.instructions["fused"]
        self.assertEqual((fused.operands, fused.called, fused.attributes.fusion_kind), (("x",), ("square",), "kLoop"))
        self.assertEqual((fused.dtype, fused.shape, fused.layout, fused.count), ("f32", (2, 3), (0, 1), 6))
        root = read.entry.root
        self.assertEqual(str(root.type), "(f32[2,3]{0,1}, f32[2,3]{0,1})")
        self.assertEqual((root.type.bytes, root.type.plain, root.type.parts[1].plain), (48, False, True))

    def test_values(self) -> None:
        """Protects generated code: a float32 has the digits that HLO's text has, and other constants their values."""
        instructions = parsed(TEXT).entry.instructions
        names = ("tenth", "digits", "bound", "seven", "no", "weights", "x")
        values = [instructions[name].value for name in names]
        self.assertEqual(values, [0.1, 0.123456791, float("-inf"), 7, False, None, None])
        self.assertIsNone(instructions["weights"].literal)

    def test_sizes_at_run_time(self) -> None:
        """Protects the numbers: an array whose size isn't known is no plain one."""
        made = proto(TEXT)
        made.computations[1].instructions[0].shape.is_dynamic_dimension[0] = True
        shape = module.read(made).entry.instructions["x"].type
        self.assertEqual((str(shape), shape.plain, shape.dynamic), ("f32[<=2,3]{0,1}", False, (True, False)))

    def test_operands_without_the_computation(self) -> None:
        """Protects other versions, in which operands are only the part of a number that is the instruction's own."""
        made = proto(TEXT)
        for instruction in made.computations[1].instructions:
            instruction.operand_ids[:] = [operand & 0xFFFFFFFF for operand in instruction.operand_ids]
        self.assertEqual(module.read(made).entry.root.operands, ("x", "fused"))

    def test_order(self) -> None:
        """Protects the plan: instructions are in the order in which they run, which can be another than the proto's."""
        made = proto(TEXT)
        order = made.schedule.sequences[2].instruction_ids
        order[:] = [order[1], order[0], *order[2:]]
        self.assertEqual([*module.read(made).entry.instructions][:2], ["tenth", "x"])

    def test_without_arrays(self) -> None:
        """Protects memory: weights don't go from one process to another, but single values stay."""
        made = proto(TEXT)
        made.computations[1].instructions[6].literal.f32s.extend([1.0, 2.0])
        self.assertEqual(module.read(made).entry.instructions["weights"].literal.tolist(), [1, 2])  # type: ignore[union-attr]
        data = module.without_arrays(hlo_pb2.HloProto(hlo_module=made).SerializeToString())
        instructions = module.read(hlo_pb2.HloProto.FromString(data).hlo_module).entry.instructions
        self.assertEqual((instructions["weights"].literal, instructions["tenth"].value), (None, 0.1))


if __name__ == "__main__":
    unittest.main()
