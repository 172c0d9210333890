"""The steps of a loop: how many there are, and the integer values in each. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import types_pb2

from tfaot.graph.attributes import Array, literal
from tfaot.graph.functions import EditableFunction
from tfaot.graph.names import tensor_name

if TYPE_CHECKING:
    from tfaot.compile.passes.loops.loop import Loop

Indices = npt.NDArray[Any]
"""A scalar of the loop's body in each step, [trips], in its own dtype. It wraps around like TensorFlow's integers."""

_LONGEST = 1 << 16
"""The most steps for which to compute indices."""
_INTEGERS: dict[int, np.dtype[Any]] = {
    types_pb2.DT_INT32: np.dtype(np.int32),
    types_pb2.DT_INT64: np.dtype(np.int64),
}
"""The dtypes of counters."""
SCALARS: dict[str, Callable[..., Array]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Equal": np.equal,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "LogicalAnd": np.logical_and,
    "LogicalNot": np.logical_not,
    "LogicalOr": np.logical_or,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mul": np.multiply,
    "NotEqual": np.not_equal,
    "Sub": np.subtract,
}
"""The ops that conditions and indices may use."""


class Steps:
    """The steps of one loop, as far as integer arithmetic on counters and constants determines them.

    A counter is an operand that grows by a constant in each step.
    """

    def __init__(self, loop: Loop, constant: Callable[[str], Array | None]) -> None:
        """Reads a loop. If its body or condition changes later, call `read` again."""
        self._loop = loop
        self._outside = constant
        self._counters: dict[int, tuple[Array, Array]] = {}
        self._values: dict[str, Indices | None] = {}
        self.read()
        self.trips: int | None = self._trips()
        """How often the body runs; None if this is unknown, zero, or more than `_LONGEST`."""

    def read(self) -> None:
        """Finds the counters, with the start and step of each."""
        body = self._loop.body
        self._values.clear()
        self._counters.clear()
        for index, result in enumerate(body.results):
            node = body.producer(body.resolve(result))
            if body.types[index] not in _INTEGERS or node is None or node.op not in ("Add", "AddV2", "Sub"):
                continue
            first, second = (body.resolve(operand) for operand in node.input[:2])
            if node.op != "Sub" and second == body.arguments[index]:
                first, second = second, first
            step = self._constant(body, second)
            start = self._outside(self._loop.operands[index])
            if first == body.arguments[index] and step is not None and start is not None and start.ndim == 0:
                # A one-element array wraps around silently; a scalar causes a warning.
                self._counters[index] = (start.reshape(1), -step.reshape(1) if node.op == "Sub" else step.reshape(1))

    def _counted(self, index: int, steps: Array) -> Indices:
        """Returns a counter's values before given steps."""
        start, step = self._counters[index]
        result: Indices = start + step * steps.astype(_INTEGERS[self._loop.body.types[index]])
        return result

    def _constant(self, body: EditableFunction, tensor: str) -> Array | None:
        """Returns the value of a loop-invariant integer or bool in the condition or body, or None if it is unknown."""
        node = body.producer(body.resolve(tensor))
        value = None
        if node is not None and node.op == "Const":
            value = literal(node)
        elif node is None and (index := body.argument(tensor)) is not None and self._loop.invariant(index):
            value = self._outside(self._loop.operands[index])
        return value if value is not None and value.ndim == 0 and value.dtype.kind in "ib" else None

    def _evaluate(
        self, body: EditableFunction, tensor: str, steps: Array, memo: dict[str, Array | None]
    ) -> Array | None:
        """Evaluates a scalar of the condition or body in given steps. Returns None if the values are unknown."""
        tensor = body.resolve(tensor)
        if tensor not in memo:
            memo[tensor] = self._compute(body, tensor, steps, memo)
        return memo[tensor]

    def _compute(
        self, body: EditableFunction, tensor: str, steps: Array, memo: dict[str, Array | None]
    ) -> Array | None:
        constant = self._constant(body, tensor)
        if constant is not None:
            return np.full(steps.shape, constant)
        node = body.producer(tensor)
        if node is None:
            index = body.arguments.index(tensor)
            return self._counted(index, steps) if index in self._counters else None
        if body is self._loop.body and node.op == "TensorListPopBack" and tensor_name(tensor)[1] == 1:
            popped = self._loop.popped(tensor)
            pushed = popped.loop.steps.values(popped.value) if popped else None
            return pushed[::-1][steps] if pushed is not None else None
        if node.op not in SCALARS or tensor_name(tensor)[1] != 0:
            return None
        operands = [self._evaluate(body, operand, steps, memo) for operand in node.input if not operand.startswith("^")]
        if any(operand is None for operand in operands):
            return None
        # TensorFlow refuses to divide by zero. XLA computes a result of its own.
        if node.op in ("FloorDiv", "FloorMod") and not np.asarray(operands[1]).all():
            return None
        return SCALARS[node.op](*operands)

    def _trips(self) -> int | None:
        going = self._evaluate(self._loop.cond, self._loop.cond.results[0], np.arange(_LONGEST + 1), {})
        if going is None or going.all() or not going[0]:
            return None
        return int(np.argmin(going))

    def values(self, tensor: str) -> Indices | None:
        """Returns the values of an integer scalar of the body in all steps, or None if they are unknown."""
        if self.trips is None:
            return None
        tensor = self._loop.body.resolve(tensor)
        if tensor not in self._values:
            value = self._evaluate(self._loop.body, tensor, np.arange(self.trips), {})
            self._values[tensor] = value if value is not None and value.dtype.kind == "i" else None
        return self._values[tensor]

    def last(self, index: int) -> Array | None:
        """Returns a counter's value after the loop; None if the operand isn't a counter, or the trip count is unknown."""
        if self.trips is None or index not in self._counters:
            return None
        return self._counted(index, np.array([self.trips])).reshape(())

    def offset(self, values: Indices) -> tuple[int, str, int] | None:
        """Returns a counter's position, `AddV2` or `Sub`, and the number that the op takes besides it, which give wanted values."""
        for index in self._counters:
            if self._loop.body.types[index] != types_pb2.DT_INT32:
                continue
            counted = self._counted(index, np.arange(len(values)))
            for op, signed in (("AddV2", counted), ("Sub", -counted)):
                offset = values[:1].astype(np.int32) - signed[:1]
                if np.array_equal(values, offset + signed):
                    return index, op, int(offset[0])
        return None
