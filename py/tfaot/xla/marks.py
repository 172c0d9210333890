"""Marks of calls that the runtime computes, in a form that passes through the compiler: sorts by an order that nobody wants.

tfcompile refuses custom calls. XLA neither fuses a sort nor changes one by an order that it doesn't know. It runs a sort in
place, on a buffer that nothing else needs afterwards. The order of a mark adds numbers and takes sines in turns: these numbers
say what the call is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from tfaot.xla.module import Computation, Instruction, Module

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2

Kind = Literal["Complex", "RealToComplex", "ComplexToReal"]
"""What a Fourier transform makes of what."""
FOURIER = 1
"""A mark's first number, for a Fourier transform. The others are its kind (`KINDS`), whether it is inverse, and its lengths."""
KINDS: tuple[Kind, ...] = ("Complex", "RealToComplex", "ComplexToReal")

LINEAR = 2
"""The first number of linear algebra. The others are those of `tfaot.xla.linear`."""

Reduction = Literal["Add", "Mul", "Min", "Max"]
Exchange = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "permute", "rank"]
"""What replicas do with their values. The rank is each one's own, for which they exchange nothing."""
COLLECTIVE = 3
"""A mark's first number, for a collective. The others are its number, which no other one of the program has, its kind
(`EXCHANGES`), its reduction (`REDUCTIONS`), how many replicas there are, how many of them are a group (0 if all are one), whether
it is of one value, which the sort has twice, and the ranks of all groups or its peers, each plus 1: see
runtime/tfaot/collectives.h."""
EXCHANGES: tuple[Exchange, ...] = get_args(Exchange)
REDUCTIONS: tuple[Reduction, ...] = ("Add", "Mul", "Min", "Max")

_FIRST = 8191.5
"""The first number of each mark."""
_BEYOND = 0.5
"""What is added to each of the others, so that none is zero, which XLA wouldn't add."""


def order(name: str, numbers: Sequence[int], dtype: Any) -> function_pb2.FunctionDef:
    """Returns the order of a mark.

    Args:
      name: the function's name.
      numbers: nonnegative integers below 2²³.
      dtype: the `tf.DType` of what the call works on, real or complex.
    """
    import tensorflow as tf
    from tensorflow.core.framework import function_pb2

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def before(left: Any, right: Any) -> Any:
        value, other = (tf.math.real(side) if dtype.is_complex else side for side in (left, right))
        if value.dtype not in (tf.float32, tf.float64):  # others don't have all numbers
            value, other = (tf.cast(side, tf.float32) for side in (value, other))
        for number in (_FIRST, *(number + _BEYOND for number in numbers)):
            value = tf.sin(value + tf.constant(number, value.dtype))
        return value < other

    scalar = tf.TensorSpec((), dtype)
    result = function_pb2.FunctionDef()
    result.CopyFrom(before.get_concrete_function(scalar, scalar).function_def)
    result.signature.name = name
    return result


def numbers(module: Module, order: Computation) -> tuple[int, ...] | None:
    """Returns the numbers of a mark, given its order, or None if it is another one. They are empty if XLA has changed them."""
    computation = order
    if computation.root.opcode in ("call", "fusion"):  # before and after optimization
        (called,) = computation.root.called
        computation = module.computations[called]
    if not any(instruction.value == _FIRST for instruction in computation.instructions.values()):
        return None

    def operand(instruction: Instruction, index: int) -> Instruction:
        return computation.instructions[instruction.operands[index]]

    if computation.root.opcode != "compare":
        return ()
    constants = []
    value = operand(computation.root, 0)
    while value.opcode == "sine":
        total = operand(value, 0)
        if total.opcode != "add":
            return ()
        sides = [operand(total, 0), operand(total, 1)]
        value, constant = sides if sides[1].opcode == "constant" else sides[::-1]
        if constant.value is None:
            return ()
        constants.append(constant.value)
    if not constants or constants.pop() != _FIRST:
        return ()
    return tuple(int(constant - _BEYOND) for constant in reversed(constants))
