"""The places and lives of a module's values in memory, read from XLA's buffer assignment.

The proto has places and no lives. So this computes lives as XLA's `HloLiveRange` does, over a sequence of the instructions in
which loops and branches stand before the instruction that has them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfaot.xla.module import Computation, Instruction, Module, Shape

if TYPE_CHECKING:
    from tensorflow.compiler.xla.service import hlo_pb2

Index = tuple[int, ...]
"""Where a value is in a tuple."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A value in working memory."""

    name: str
    shape: Shape
    bytes: int
    offset: int
    first: int
    """The indices in the sequence of the instructions between which it is in use."""
    last: int


@dataclasses.dataclass(frozen=True)
class Memory:
    """A module's working memory."""

    size: int
    length: int
    """The number of instructions in the sequence."""
    values: tuple[Value, ...]


def read(proto: hlo_pb2.BufferAssignmentProto, module: Module) -> Memory:
    """Reads the working memory of a module that has a schedule, without tuples, and without what loops and branches join."""
    lives = _Lives(module)
    instructions = {
        each.attributes.id: each for one in module.computations.values() for each in one.instructions.values()
    }
    defined = {buffer.id: buffer.defined_at for buffer in proto.logical_buffers}
    size, values = 0, []
    for allocation in proto.buffer_allocations:
        if (
            allocation.is_thread_local
            or allocation.is_entry_computation_parameter
            or allocation.is_constant
            or allocation.maybe_live_out
        ):
            continue
        size = allocation.size
        for assigned in allocation.assigned:
            at = defined[assigned.logical_buffer_id]
            instruction, index = instructions[at.instruction_id], tuple(at.shape_index)
            shape = instruction.type.at(index)
            if shape.arrays != (shape,) or instruction.opcode in ("conditional", "parameter", "while"):
                continue
            name = instruction.name + (f"{{{','.join(map(str, index))}}}" if index else "")
            first, last = lives.order[instruction.name], lives.last(instruction.name, index)
            values.append(Value(name, shape, assigned.size, assigned.offset, first, last))
    return Memory(size, len(lives.order), tuple(values))


class _Lives:
    """When values are used last. Names of instructions are unique in a module."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self.order: dict[str, int] = {}
        """The sequence: the index of each instruction."""
        self._owner: dict[str, Computation] = {}
        self._callers: dict[str, list[Instruction]] = {}
        self._same: dict[tuple[str, Index], bool] = {}
        self._run(module.entry)

    def _run(self, computation: Computation) -> None:
        for each in computation.instructions.values():
            if each.opcode in ("call", "conditional", "while"):
                for name in reversed(each.called) if each.opcode == "while" else each.called:  # the condition first
                    self._callers.setdefault(name, []).append(each)
                    self._run(self._module.computations[name])
            self._owner[each.name] = computation
            self.order[each.name] = len(self.order)

    def last(self, name: str, index: Index) -> int:
        """Returns where a value is used last, given by the instruction that has it and its index in a tuple."""
        computation = self._owner[name]
        end = self.order[name]
        if name == computation.root.name:
            callers = [each.name for each in self._callers.get(computation.name, ()) if each.opcode == "call"]
            end = max([end + 1, *(self.last(each, index) for each in callers)])
        return max([end, *(self._used(user, operand, index) for user, operand in computation.users[name])])

    def _used(self, user: Instruction, operand: int, index: Index) -> int:
        """Returns where an instruction, or what has the same value, uses one of its operands last."""
        if user.opcode == "bitcast":
            return self.last(user.name, index)
        if user.opcode == "tuple":
            return self.last(user.name, (operand, *index))
        if user.opcode == "get-tuple-element" and index:
            return self.last(user.name, index[1:]) if index[0] == user.attributes.tuple_index else 0
        if user.opcode == "while":
            body, condition = (self._parameter(each) for each in user.called)
            if index and self._unchanged(user.name, index):
                return max(self.last(each, index) for each in (condition, body, user.name))
            return self.order[condition]  # from there on, another value has its memory
        return self.order[user.name]

    def _parameter(self, computation: str) -> str:
        return next(
            each.name
            for each in self._module.computations[computation].instructions.values()
            if each.opcode == "parameter"
        )

    def _unchanged(self, loop: str, index: Index) -> bool:
        """Returns whether each step of a loop passes a value on as it is."""
        if (loop, index) not in self._same:
            body = self._owner[loop].instructions[loop].called[0]
            last = self._module.computations[body].root.name
            self._same[loop, index] = self._source(last, index) == (self._parameter(body), index)
        return self._same[loop, index]

    def _source(self, name: str, index: Index) -> tuple[str, Index]:
        """Returns where a value comes from."""
        each = self._owner[name].instructions[name]
        if each.opcode == "bitcast":
            return self._source(each.operands[0], index)
        if each.opcode == "tuple" and index:
            return self._source(each.operands[index[0]], index[1:])
        if each.opcode == "get-tuple-element":
            return self._source(each.operands[0], (int(each.attributes.tuple_index), *index))
        if each.opcode == "while" and index and self._unchanged(name, index):
            return self._source(each.operands[0], index)
        return name, index
