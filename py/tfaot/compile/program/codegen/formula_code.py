"""Writes formulas as C++, for runtime/tfaot/kernels/sweep.h, and those of rows for row_sweep.h."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tfaot.compile.program.values.formulas import REDUCTIONS, SLOW, Formula, Operation, floats, wholes
from tfaot.compile.program.values.stages import Stage, stages

_SIGNS = {"EQ": "==", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<", "NE": "!="}
_CODE = {
    "abs": "kernels::Abs({0})",
    "add": "{0} + {1}",
    "and": "{0} & {1}",
    "bitcast-convert f32": "kernels::BitCast<V>({0})",
    "bitcast-convert s32": "kernels::BitCast<kernels::Bits<V>>({0})",
    "clamp": "kernels::Minimum(kernels::Maximum({1}, {0}), {2})",
    **{f"compare {name}": f"{{0}} {sign} {{1}}" for name, sign in _SIGNS.items()},
    **{f"compare {name} s32": f"kernels::Signed({{0}}) {sign} kernels::Signed({{1}})" for name, sign in _SIGNS.items()},
    "convert pred": "{0} ? kernels::All<V>({dtype}(1)) : kernels::All<V>({dtype}(0))",
    "convert s32": "kernels::FromInteger<V>({0})",
    "divide": "{0} / {1}",
    "exponential": "kernels::Exp({0})",
    "is-finite": "{0} - {0} == kernels::All<V>({dtype}(0))",
    "log": "kernels::Log({0})",
    "maximum": "kernels::Maximum({0}, {1})",
    "minimum": "kernels::Minimum({0}, {1})",
    "multiply": "{0} * {1}",
    "multiply_add": "kernels::MultiplyAdd({0}, {1}, {2})",
    "multiply_subtract": "kernels::MultiplyAdd({0}, {1}, -{2})",
    "negate": "-{0}",
    "not": "kernels::Not({0})",
    "or": "{0} | {1}",
    "rsqrt": "kernels::All<V>({dtype}(1)) / kernels::Sqrt({0})",
    "select": "{0} ? {1} : {2}",
    "shift-left": "{0} << {1}",
    "sqrt": "kernels::Sqrt({0})",
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
        "arrays": 1 + max(read | {place for place, _ in formula.arrays}),
        # A multiply-add for each two bytes of a float that move, as measured. Slow operations take as long.
        "cost": 2 * (len(read) + len(formula.arrays) + slow),
        "dtype": dtype,
        "results": formula.arrays,
        "scalars": sorted(places),
        "scalar_count": 1 + max(places, default=-1),
        "values": [_value(operation, dtype) for operation in formula.operations],
    }


def _value(operation: Operation, dtype: str) -> str:
    """Returns an operation in C++."""
    if operation.opcode == "array":
        return f"kernels::Get<V, {dtype}>(arrays[{operation.place}], i)"
    if operation.opcode == "scalar":
        return f"kernels::All<V>(s{operation.place})"
    return arithmetic(operation, [f"v{operand}" for operand in operation.operands], dtype)


def arithmetic(operation: Operation, operands: Sequence[str], dtype: str = "float") -> str:
    """Returns an operation or a constant in C++, given that of its operands and their dtype, of which `V` is a vector."""
    if operation.opcode == "constant":
        text = repr(float(operation.text))
        suffix = "f" if dtype == "float" and "inf" not in text else ""
        return f"kernels::All<V>({text.replace('inf', 'INFINITY')}{suffix})"
    if operation.opcode == "integer":
        return f"kernels::All<kernels::Bits<V>>({int(operation.text) % 2**32}u)"
    return _CODE[f"{operation.opcode} {operation.text}".rstrip()].format(*operands, dtype=dtype)


_COMBINED = {"sum": "Add", "largest": "Larger", "peak": "Peak", "smallest": "Smaller"}
"""The runtime's names of reductions."""


def row_code(formula: Formula, columns: int) -> dict[str, Any]:
    """Returns the names that the template of a formula of rows uses."""
    operations = formula.operations
    # Each product is rounded, as in TensorFlow: where a row's values are its mean m, x * f + (b - m * f) is then b. Fused, it is b
    # and a rounding error of m * f.
    whole = wholes(operations)
    parts = stages(formula)
    number = {index: place for part in parts for place, index in enumerate(part.reductions)}
    """The place of each reduction in its stage."""
    uses = Counter(value for _, value in (*formula.arrays, *formula.values))
    uses.update(operand for operation in operations for operand in operation.operands)
    used = {operand for operation in operations for operand in operation.operands} | {
        value for _, value in formula.values
    }
    used |= {value for part in parts for value in part.goals}
    rows = [index for index in sorted(floats(operations) & used) if index not in whole]
    ready = _ready(operations, parts)
    written, reads, slow = [], 0, 0
    for stage, part in enumerate(parts):
        now = [index for index in rows if ready[index] == stage]
        last = part is parts[-1]
        read = [
            f"std::memcpy(rows.r{index}, values[{operations[index].place}] + 4 * first, 4 * static_cast<std::size_t>(count));"
            for index in now
            if operations[index].opcode == "row"
        ]
        begin = [
            f"kernels::Store(rows.r{index} + r, V({_row_value(operations, index, number)}));"
            for index in now
            if operations[index].opcode != "row"
        ]
        write = [
            f"std::memcpy(values[{place}] + 4 * first, rows.r{value}, 4 * static_cast<std::size_t>(count));"
            for place, value in (formula.values if last else ())
        ]
        products = set[int]()
        """What is added to a sum of the row without being rounded."""
        for index, value in zip(part.reductions, part.goals, strict=False):
            product = part.operations[value].opcode == "multiply" and value in whole and uses[value] == 1
            if operations[index].opcode == "sum" and product:
                products.add(value)
        inner = [index for index in part.computed if index not in products]
        at = [f"const auto v{index} = {_row_step(formula, part.operations, whole, index)};" for index in inner]
        stored = [*part.keeps, *(formula.arrays if last else ())]
        at += [
            f"kernels::Put<float>(arrays[{place}], i, {_operand(operations, whole, value)});" for place, value in stored
        ]
        for index, value in zip(part.reductions, part.goals, strict=False):
            sum_ = f"sums[{number[index]}]"
            if value in products:
                left, right = (_operand(operations, whole, operand) for operand in operations[value].operands)
                at.append(f"{sum_} = kernels::MultiplyAdd({left}, {right}, {sum_});")
            else:
                combine = f"kernels::{_COMBINED[operations[index].opcode]}()"
                at.append(f"{sum_} = {combine}(V({_operand(operations, whole, value)}), {sum_});")
        written.append({"read": read, "begin": begin, "write": write, "at": at})
        reads += sum(part.operations[index].opcode == "array" for index in inner) + len(part.keeps)
        slow += sum(part.operations[index].opcode in SLOW for index in inner)

    def places(opcode: str, results: Sequence[tuple[int, int]] = ()) -> int:
        numbers = {operation.place for operation in operations if operation.opcode == opcode} | {
            place for place, _ in results
        }
        return 1 + max(numbers, default=-1)

    combined = (
        ", ".join(f"kernels::{_COMBINED[operations[index].opcode]}" for index in part.reductions) for part in parts[:-1]
    )
    return {
        "columns": columns,
        "arrays": places("array", formula.arrays),
        # As for formulas of values. What a row's earlier stages read is in the nearest cache.
        "cost": 2 * (reads + len(formula.arrays) + slow),
        "row": rows,
        "scalars": places("scalar"),
        "stages": written,
        "sums": [f"std::tuple<{types}>" for types in combined],
        "values": places("row", formula.values),
        "vectors": len(formula.vectors),
        "writes": str(bool(formula.arrays)).lower(),
    }


def _ready(operations: Sequence[Operation], parts: Sequence[Stage]) -> list[int]:
    """Returns the stage that can use each operation."""
    after = {index: stage + 1 for stage, part in enumerate(parts) for index in part.reductions}
    ready: list[int] = []
    for index, operation in enumerate(operations):
        ready.append(after.get(index) or max((ready[operand] for operand in operation.operands), default=0))
    return ready


def _row_value(operations: Sequence[Operation], index: int, number: Mapping[int, int]) -> str:
    operation = operations[index]
    if operation.opcode in REDUCTIONS:
        return f"kernels::Load(sums[{number[index]}] + r)"
    if operation.opcode == "scalar":
        return f"kernels::All<V>(kernels::Get<float, float>(scalars[{operation.place}], 0))"
    float_values = floats(operations)
    operands = [
        f"kernels::Load(rows.r{operand} + r)"
        if operand in float_values
        else f"({_row_value(operations, operand, number)})"
        for operand in operation.operands
    ]
    return arithmetic(operation, operands)


def _row_step(formula: Formula, operations: Sequence[Operation], whole: set[int], index: int) -> str:
    operation = operations[index]
    if operation.opcode == "iota":
        if not operation.text:
            return "kernels::Numbers<V>(j)"
        by, count = operation.text.split()
        return f"kernels::All<kernels::Bits<V>>(static_cast<std::uint32_t>(row / {by} % {count}))"
    if operation.opcode == "array":
        return _read(operation.text).format(f"arrays[{operation.place}], i")
    if operation.opcode == "column":
        vector = formula.vectors[operation.place]
        row = f"kernels::Repeated<{vector.group}, {vector.period}>(row)"
        if vector.single:
            value, scalar = ("kernels::Bits<V>", "std::uint32_t") if operation.text else ("V", "float")
            return f"kernels::All<{value}>(kernels::Get<{scalar}, {scalar}>(vectors[{operation.place}], {row}))"
        index_ = "j" if vector.period == 1 and not vector.group else f"j + kColumns * {row}"
        return _read(operation.text).format(f"vectors[{operation.place}], {index_}")
    return arithmetic(operation, [_operand(operations, whole, operand) for operand in operation.operands])


def _read(dtype: str) -> str:
    """Returns how values of a dtype are read."""
    if dtype == "pred":
        return "kernels::GetMask<V>({0})"
    return "kernels::Get<kernels::Bits<V>, std::uint32_t>({0})" if dtype else "kernels::Get<V, float>({0})"


def _operand(operations: Sequence[Operation], whole: set[int], index: int) -> str:
    operation = operations[index]
    if index in whole:
        return f"v{index}"
    if index in floats(operations):
        return f"kernels::All<V>(rows.r{index}[r])"
    text = arithmetic(operation, [_operand(operations, whole, operand) for operand in operation.operands])
    return text if operation.opcode == "integer" else f"({text})"
