"""Writes formulas of rows as C++, for runtime/tfaot/kernels/row_sweep.h."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tfaot.compile.program.codegen.formula_code import arithmetic, integer
from tfaot.compile.program.thunks.kinds import RowFormula
from tfaot.compile.program.values.formulas import SLOW, Operation, needed, wholes


def code(formula: RowFormula, columns: int) -> dict[str, Any]:
    """Returns the names that the template of a formula uses."""
    whole = wholes(formula.operations)
    results = [value for _, value in (*formula.arrays, *formula.values)]
    live = needed(formula.operations, results)
    # Each product is rounded, as in TensorFlow: where a row's values are its mean m, x * f + (b - m * f) is then b. Fused, it is b
    # and a rounding error of m * f.
    operations = tuple(each if index in live else Operation("cut") for index, each in enumerate(formula.operations))
    depths = _depths(operations)
    sums = [index for index, each in enumerate(operations) if each.opcode == "sum"]
    count = max((depths[each] for each in sums), default=0)
    """The number of stages that add up."""
    by_depth = [[each for each in sums if depths[each] == depth + 1] for depth in range(count)]
    goals = [[operations[each].operands[0] for each in stage] for stage in by_depth]
    goals.append([value for _, value in formula.arrays])
    uses = Counter([*results, *(operand for each in operations for operand in each.operands)])
    products = {
        each
        for stage in goals[:-1]
        for each in stage
        if operations[each].opcode == "multiply" and each in whole and uses[each] == 1
    }
    """What is added to a sum of the row without being rounded."""
    inner = [[each for each in _inside(operations, whole, stage) if each not in products] for stage in goals]
    used = {operand for each in operations for operand in each.operands} | {value for _, value in formula.values}
    used |= {value for stage in goals for value in stage}
    row = [
        index
        for index, each in enumerate(operations)
        if index not in whole and index in used and each.opcode != "integer"
    ]
    stages = []
    for stage in range(count + 1):
        now = [index for index in row if depths[index] == stage]
        read = [
            f"std::memcpy(rows.r{index}, values[{operations[index].place}] + 4 * first, 4 * static_cast<std::size_t>(count));"
            for index in now
            if operations[index].opcode == "row"
        ]
        begin = [
            f"kernels::Store(rows.r{index} + r, V({_row_value(operations, index, by_depth)}));"
            for index in now
            if operations[index].opcode != "row"
        ]
        write = [
            f"std::memcpy(values[{place}] + 4 * first, rows.r{value}, 4 * static_cast<std::size_t>(count));"
            for place, value in (formula.values if stage == count else ())
        ]
        at = [f"const auto v{index} = {_value(operations, whole, index)};" for index in inner[stage]]
        if stage == count:
            at += [
                f"kernels::Put<float>(arrays[{place}], i, {_operand(operations, whole, value)});"
                for place, value in formula.arrays
            ]
        else:
            for number, value in enumerate(goals[stage]):
                if value in products:
                    left, right = (_operand(operations, whole, each) for each in operations[value].operands)
                    at.append(f"sums[{number}] = kernels::MultiplyAdd({left}, {right}, sums[{number}]);")
                else:
                    at.append(f"sums[{number}] += {_operand(operations, whole, value)};")
        stages.append({"read": read, "begin": begin, "write": write, "at": at})
    reads = sum(operations[index].opcode == "array" for stage in inner for index in stage)
    slow = sum(operations[index].opcode in SLOW for stage in inner for index in stage)

    def places(opcode: str, written: Sequence[tuple[int, int]] = ()) -> int:
        found = {each.place for each in operations if each.opcode == opcode} | {place for place, _ in written}
        return 1 + max(found, default=-1)

    return {
        "columns": columns,
        "arrays": places("array", formula.arrays),
        # As for formulas of values. What a row's earlier stages read is in the nearest cache.
        "cost": 2 * (reads + len(formula.arrays) + slow),
        "row": row,
        "scalars": places("scalar"),
        "stages": stages,
        "sums": [len(stage) for stage in by_depth],
        "values": places("row", formula.values),
        "vectors": places("column"),
        "writes": str(bool(formula.arrays)).lower(),
    }


def _inside(operations: Sequence[Operation], whole: set[int], goals: Sequence[int]) -> list[int]:
    """Returns the operations of each column that some goals need, in order."""
    # What a value of the row needs is already computed.
    cut = [each if index in whole else Operation("cut") for index, each in enumerate(operations)]
    return [each for each in needed(cut, goals) if each in whole]


def _depths(operations: Sequence[Operation]) -> list[int]:
    """Returns how many sums each operation waits for, one after another."""
    depths: list[int] = []
    for each in operations:
        depths.append(max((depths[operand] for operand in each.operands), default=0) + (each.opcode == "sum"))
    return depths


def _row_value(operations: Sequence[Operation], index: int, sums: Sequence[Sequence[int]]) -> str:
    each = operations[index]
    if each.opcode == "sum":
        (number,) = (stage.index(index) for stage in sums if index in stage)
        return f"kernels::Load(sums[{number}] + r)"
    if each.opcode == "scalar":
        return f"kernels::All<V>(kernels::Get<float, float>(scalars[{each.place}], 0))"
    if each.opcode == "constant":
        return f"kernels::All<V>({float(each.text)!r}f)"
    return arithmetic(each, [f"kernels::Load(rows.r{operand} + r)" for operand in each.operands], "float", "V")


def _value(operations: Sequence[Operation], whole: set[int], index: int) -> str:
    each = operations[index]
    if each.opcode == "array":
        return f"kernels::Get<V, float>(arrays[{each.place}], i)"
    if each.opcode == "column":
        return f"kernels::Get<V, float>(vectors[{each.place}], j)"
    return arithmetic(each, [_operand(operations, whole, operand) for operand in each.operands], "float", "V")


def _operand(operations: Sequence[Operation], whole: set[int], index: int) -> str:
    if operations[index].opcode == "integer":
        return integer(operations[index])
    return f"v{index}" if index in whole else f"kernels::All<V>(rows.r{index}[r])"
