"""Where values are in memory, and how long."""

from __future__ import annotations

import unittest

from tensorflow.compiler.xla.service import hlo_pb2

from tests.xla.hlo import parsed
from tfaot.xla import memory

TEXT = """\
HloModule m, is_scheduled=true

%condition (c: (s32[], f32[4], f32[4])) -> pred[] {
  %c = (s32[], f32[4]{0}, f32[4]{0}) parameter(0)
  %step = s32[] get-tuple-element(%c), index=0
  %five = s32[] constant(5)
  ROOT %less = pred[] compare(%step, %five), direction=LT
}

%body (b: (s32[], f32[4], f32[4])) -> (s32[], f32[4], f32[4]) {
  %b = (s32[], f32[4]{0}, f32[4]{0}) parameter(0)
  %old = s32[] get-tuple-element(%b), index=0
  %new = s32[] negate(%old)
  %sum = f32[4]{0} get-tuple-element(%b), index=1
  %kept = f32[4]{0} get-tuple-element(%b), index=2
  %total = f32[4]{0} add(%sum, %kept)
  ROOT %next = (s32[], f32[4]{0}, f32[4]{0}) tuple(%new, %total, %kept)
}

%left (l: f32[4]) -> f32[4] {
  %l = f32[4]{0} parameter(0)
  %tanh = f32[4]{0} tanh(%l)
  ROOT %exp = f32[4]{0} exponential(%tanh)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %one = s32[] constant(1)
  %first = s32[] copy(%one)
  %start = f32[4]{0} negate(%x)
  %rest = f32[4]{0} sine(%start)
  %all = (s32[], f32[4]{0}, f32[4]{0}) tuple(%first, %start, %rest)
  %loop = (s32[], f32[4]{0}, f32[4]{0}) while(%all), condition=%condition, body=%body
  %result = f32[4]{0} get-tuple-element(%loop), index=1
  %same = f32[4]{0} get-tuple-element(%loop), index=2
  %flat = f32[4]{0} bitcast(%result)
  %called = f32[4]{0} call(%flat), to_apply=%left
  ROOT %end = f32[4]{0} add(%called, %same)
}
"""


class MemoryTest(unittest.TestCase):
    """Working memory."""

    def test_lives(self) -> None:
        """Protects the picture of memory: values live as in XLA's `HloLiveRange`, also through tuples, loops, and calls."""
        module = parsed(TEXT)
        assignment = hlo_pb2.BufferAssignmentProto()
        for kind in ("is_constant", "is_thread_local", "maybe_live_out", "is_entry_computation_parameter"):
            setattr(assignment.buffer_allocations.add(size=1, assigned=[{"logical_buffer_id": 0}]), kind, True)
        working = assignment.buffer_allocations.add(size=256)
        values = {each.name: each for one in module.computations.values() for each in one.instructions.values()}
        for number, (name, index) in enumerate(
            [
                ("first", ()),
                ("start", ()),
                ("rest", ()),
                ("total", ()),
                ("tanh", ()),
                ("exp", ()),
                ("all", ()),
                ("loop", (1,)),
            ]
        ):
            at = {"instruction_id": values[name].attributes.id, "shape_index": index}
            assignment.logical_buffers.add(id=number, defined_at=at)
            working.assigned.add(logical_buffer_id=number, size=16, offset=16 * number)
        read = memory.read(assignment, module)
        order = "x one first start rest all c step five less b old new sum kept total next loop result same flat "
        order += "l tanh exp called end"
        self.assertEqual((read.size, read.length), (256, len(order.split())))

        def lives(first: str, last: str) -> tuple[int, int]:
            return order.split().index(first), order.split().index(last)

        self.assertEqual(
            [(value.name, (value.first, value.last)) for value in read.values],
            [
                ("first", lives("first", "c")),  # the loop has another value in its memory
                ("start", lives("start", "c")),
                ("rest", lives("rest", "end")),  # which the loop passes on
                ("total", lives("total", "loop")),
                ("tanh", lives("tanh", "exp")),
                ("exp", lives("exp", "end")),
            ],
        )
        self.assertEqual(
            [(each.bytes, each.offset, str(each.shape)) for each in read.values][-1], (16, 80, "f32[4]{0}")
        )


if __name__ == "__main__":
    unittest.main()
