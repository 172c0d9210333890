"""Writes formulas as C++, for runtime/tfaot/kernels/sweep.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfaot.compile.program.values.formulas import SLOW, Formula, Operation

_CODE = {
    "abs": "kernels::Abs({0})",
    "add": "{0} + {1}",
    "and": "{0} & {1}",
    "bitcast-convert f32": "kernels::BitCast<{vector}>({0})",
    "bitcast-convert s32": "kernels::BitCast<kernels::Bits<{vector}>>({0})",
    "clamp": "kernels::Minimum(kernels::Maximum({1}, {0}), {2})",
    "compare EQ": "{0} == {1}",
    "compare GE": "{0} >= {1}",
    "compare GT": "{0} > {1}",
    "compare LE": "{0} <= {1}",
    "compare LT": "{0} < {1}",
    "compare NE": "{0} != {1}",
    **{
        f"compare {name} s32": f"kernels::Signed({{0}}) {sign} kernels::Signed({{1}})"
        for name, sign in (("EQ", "=="), ("GE", ">="), ("GT", ">"), ("LE", "<="), ("LT", "<"), ("NE", "!="))
    },
    "convert pred": "{0} ? kernels::All<{vector}>({dtype}(1)) : kernels::All<{vector}>({dtype}(0))",
    "convert s32": "kernels::FromInteger<{vector}>({0})",
    "divide": "{0} / {1}",
    "exponential": "kernels::Exp({0})",
    "is-finite": "{0} - {0} == kernels::All<{vector}>({dtype}(0))",
    "log": "kernels::Log({0})",
    "maximum": "kernels::Maximum({0}, {1})",
    "minimum": "kernels::Minimum({0}, {1})",
    "multiply": "{0} * {1}",
    "multiply_add": "kernels::MultiplyAdd({0}, {1}, {2})",
    "multiply_subtract": "kernels::MultiplyAdd({0}, {1}, -{2})",
    "negate": "-{0}",
    "not": "kernels::Not({0})",
    "or": "{0} | {1}",
    "rsqrt": "kernels::All<{vector}>({dtype}(1)) / kernels::Sqrt({0})",
    "select": "{0} ? {1} : {2}",
    "shift-left": "{0} << {1}",
    "sqrt": "kernels::Sqrt({0})",
    "stored": "{0}",
    "subtract": "{0} - {1}",
    "subtract_product": "kernels::MultiplyAdd(-{0}, {1}, {2})",
    "tanh": "kernels::Tanh({0})",
}
"""C++ of operations, with the places of their operands."""


def code(formula: Formula) -> dict[str, Any]:
    """Returns the names that the template of a formula uses."""
    dtype = formula.dtype
    places = {operation.place for operation in formula.operations if operation.opcode == "scalar"}
    read = {operation.place for operation in formula.operations if operation.opcode == "array"}
    slow = sum(operation.opcode in SLOW for operation in formula.operations)
    return {
        "arrays": 1 + max(read | {place for place, _ in formula.results}),
        # A multiply-add for each two bytes of a float that move, as measured. Slow operations take as long.
        "cost": 2 * (len(read) + len(formula.results) + slow),
        "dtype": dtype,
        "results": formula.results,
        "scalars": sorted(places),
        "scalar_count": 1 + max(places, default=-1),
        "values": [_value(operation, dtype) for operation in formula.operations],
    }


def _value(operation: Operation, dtype: str) -> str:
    """Returns an operation in C++."""
    opcode = operation.opcode
    if opcode == "array":
        return f"kernels::Get<V, {dtype}>(arrays[{operation.place}], i)"
    if opcode == "scalar":
        return f"kernels::All<V>(s{operation.place})"
    if opcode == "constant":
        return constant(operation, dtype)
    if opcode == "integer":
        return integer(operation)
    return arithmetic(operation, [f"v{operand}" for operand in operation.operands], dtype, "V")


def constant(operation: Operation, dtype: str) -> str:
    """Returns a constant in C++."""
    text = repr(float(operation.text))
    return f"kernels::All<V>({text.replace('inf', 'INFINITY')}{'f' if dtype == 'float' and 'inf' not in text else ''})"


def integer(operation: Operation) -> str:
    """Returns a constant integer in C++, as its bits."""
    return f"kernels::All<kernels::Bits<V>>({int(operation.text) % 2**32}u)"


def arithmetic(operation: Operation, operands: Sequence[str], dtype: str, vector: str) -> str:
    """Returns an operation on values in C++, given that of its operands, their dtype, and the type of vectors of them."""
    code = _CODE[f"{operation.opcode} {operation.text}".rstrip()]
    return code.format(*operands, dtype=dtype, vector=vector)
