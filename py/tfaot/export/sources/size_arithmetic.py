"""What a program in StableHLO computes from the open sizes of its inputs: sizes of shapes, and what it asserts of them.

Programs of JAX compute all sizes from those of inputs, as integers, at the start of `main`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core.stablehlo_text import STRING
from tfaot.export.sources import mlir
from tfaot.export.sources.mlir import Signature

Numbers = npt.NDArray[np.int64]

_INTEGER = r"tensor<(?:1x)?(?:i1|i32|i64|ui32|ui64)>"
_SCALAR = re.compile(rf"\s*(%[\w$.#-]+) = stablehlo\.(\w+)\b(.*?) : .*?({_INTEGER})(?: loc\(.*)?$")
_ASSERTION = re.compile(rf"\s*stablehlo\.custom_call @shape_assertion\((%[\w$.#-]+).*error_message = ({STRING})")
_SIZE = re.compile(r"\s*(%[\w$.#-]+), dim = (\d+)")
_LONGEST = 500
"""Characters of a line that computes a size."""


def _quotient(a: Numbers, b: Numbers) -> Numbers:
    return np.asarray(np.sign(a) * np.sign(b) * (abs(a) // np.maximum(abs(b), 1)))


OPERATIONS: Mapping[str, Callable[..., Numbers]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "clamp": lambda least, x, most: np.minimum(np.maximum(x, least), most),
    "convert": lambda x: x,
    "divide": _quotient,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negate": np.negative,
    "not": lambda x: 1 - x,
    "or": np.bitwise_or,
    "remainder": lambda a, b: a - b * _quotient(a, b),
    "reshape": lambda x: x,
    "select": lambda condition, a, b: np.where(condition != 0, a, b),
    "sign": np.sign,
    "subtract": np.subtract,
    "xor": np.bitwise_xor,
}
"""Operations on integers. Booleans are 0 and 1."""
_COMPARISONS: Mapping[str, Callable[..., Any]] = {
    "EQ": np.equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
    "NE": np.not_equal,
}


@dataclasses.dataclass(frozen=True)
class Step:
    """An integer that a program computes."""

    operation: str
    """One of `OPERATIONS`, `compare`, `constant`, or `size`."""
    operands: tuple[str, ...] = ()
    number: int = 0
    """The value of a constant, or the index of a size."""
    direction: str = ""
    """Of a comparison: `GE`."""


@dataclasses.dataclass(frozen=True)
class Assertion:
    """What must be true of the sizes."""

    condition: str
    message: str


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """The integers that a program computes from sizes, in order, and what it asserts."""

    steps: Mapping[str, Step]
    assertions: tuple[Assertion, ...]

    @classmethod
    def of(cls, text: str, size_of: Callable[[int, int], int | None]) -> Arithmetic:
        """Reads a program.

        Args:
          text: the program.
          size_of: returns the index of the size that an argument's dimension has, or None.
        """
        steps: dict[str, Step] = {}
        assertions = []
        arguments: dict[str, int] | None = None
        lines = mlir.run(text, "inline{default-pipeline=},symbol-dce").splitlines()
        for line in lines:
            if signature := Signature.of(line):
                if arguments is not None:
                    break
                if signature.name == "main":
                    arguments = {argument.value: index for index, argument in enumerate(signature.arguments)}
            elif arguments is None or line[4:5] in ("", " "):  # inside of another operation
                continue
            elif match := _ASSERTION.match(line):
                if match[1] in steps:
                    assertions.append(Assertion(match[1], _message(match[2])))
            elif len(line) < _LONGEST and (match := _SCALAR.match(line)):
                step = _step(match[2], match[3], arguments, size_of)
                if step is not None and all(operand in steps for operand in step.operands):
                    steps[match[1]] = step
        return cls(steps, tuple(assertions))

    def values(self, points: Numbers) -> dict[str, Numbers]:
        """Returns all integers for some values of the sizes, a row for each."""
        done: dict[str, Numbers] = {}
        for name, step in self.steps.items():
            operands = [done[operand] for operand in step.operands]
            if step.operation == "constant":
                done[name] = np.full(len(points), step.number, np.int64)
            elif step.operation == "size":
                done[name] = points[:, step.number]
            elif step.operation == "compare":
                done[name] = _COMPARISONS[step.direction](*operands).astype(np.int64)
            else:
                done[name] = OPERATIONS[step.operation](*operands)
        return done


def _step(
    operation: str, rest: str, arguments: Mapping[str, int], size_of: Callable[[int, int], int | None]
) -> Step | None:
    if operation == "constant":
        constant = re.match(r" dense<(-?\d+|true|false)>", rest)
        if constant is None:
            return None
        booleans = {"true": 1, "false": 0}
        return Step("constant", number=booleans[constant[1]] if constant[1] in booleans else int(constant[1]))
    if operation == "get_dimension_size":
        match = _SIZE.match(rest)
        index = size_of(arguments[match[1]], int(match[2])) if match and match[1] in arguments else None
        return None if index is None else Step("size", number=index)
    operands = tuple(mlir.operands(rest))
    if operation == "compare":
        return Step(operation, operands, direction=rest.split(",")[0].strip())
    return Step(operation, operands) if operation in OPERATIONS else None


def _message(text: str) -> str:
    """Returns what JAX says of a constraint: `t <= s`."""
    match = re.search(r"symbolic shape constraint (.*?)\. Expected|(Found inconsistency .*?)\. Using", text)
    return (match[1] or match[2]) if match else text.strip('"')[:120]
