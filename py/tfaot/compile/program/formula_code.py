"""Writes formulas as C++, for runtime/tfaot/kernels/sweep.h."""

from __future__ import annotations

from typing import Any

from tfaot.compile.program.formulas import Formula, Operation

_OPERATORS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_COMPARISONS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}
_FUNCTIONS = {"abs": "Abs", "maximum": "Maximum", "minimum": "Minimum", "sqrt": "Sqrt", "stored": "Rounded"}


def code(formula: Formula) -> dict[str, Any]:
    """Returns the names that the template of a formula uses."""
    dtype = formula.dtype
    places = {each.place for each in formula.operations if each.opcode == "scalar"}
    read = {each.place for each in formula.operations if each.opcode == "array"}
    slow = sum(each.opcode in ("divide", "sqrt", "rsqrt") for each in formula.operations)
    values = [_value(each, dtype) for each in formula.operations]
    # The C++ compiler must not fuse a product that XLA's compiler rounds.
    summed = {
        operand
        for each in formula.operations
        if each.opcode not in ("multiply", "divide")
        for operand in each.operands
        if formula.operations[operand].opcode == "multiply"
    }
    return {
        "arrays": 1 + max(read | {place for place, _ in formula.results}),
        # A multiply-add for each two bytes of a float that move, as measured. Slow operations take as long.
        "cost": 2 * (len(read) + len(formula.results) + slow),
        "dtype": dtype,
        "results": formula.results,
        "scalars": sorted(places),
        "scalar_count": 1 + max(places, default=-1),
        "values": [f"kernels::Rounded({value})" if index in summed else value for index, value in enumerate(values)],
    }


def _value(operation: Operation, dtype: str) -> str:
    """Returns an operation in C++."""
    v = [f"v{operand}" for operand in operation.operands]
    opcode = operation.opcode
    if opcode == "array":
        return f"kernels::Get<V, {dtype}>(arrays[{operation.place}], i)"
    if opcode == "scalar":
        return f"kernels::All<V>(s{operation.place})"
    if opcode == "constant":
        suffix = "f" if dtype == "float" else ""
        return f"kernels::All<V>({float(operation.text)!r}{suffix})"
    if opcode == "multiply_add":
        return f"{v[0]} * {v[1]} + {v[2]}"
    if opcode == "multiply_subtract":
        return f"{v[0]} * {v[1]} - {v[2]}"
    if opcode == "subtract_product":
        return f"{v[2]} - {v[0]} * {v[1]}"
    if opcode == "compare":
        return f"{v[0]} {_COMPARISONS[operation.text]} {v[1]}"
    if opcode == "select":
        return f"{v[0]} ? {v[1]} : {v[2]}"
    if opcode == "clamp":
        return f"kernels::Minimum(kernels::Maximum({v[1]}, {v[0]}), {v[2]})"
    if opcode == "negate":
        return "-" + v[0]
    if opcode == "rsqrt":
        return f"kernels::All<V>({dtype}(1)) / kernels::Sqrt({v[0]})"
    if opcode in _OPERATORS:
        return f"{v[0]} {_OPERATORS[opcode]} {v[1]}"
    return f"kernels::{_FUNCTIONS[opcode]}({', '.join(v)})"
