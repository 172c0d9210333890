"""Reads the optimized HLO to find the XLA kernels that only multiply one row by a matrix, once or in a batch.

XLA doesn't call the runtime for such products. It computes them in kernels of its own, which may also add another row.
The reader is strict: any other kernel isn't listed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tfaot.compile.program.instructions import Computation, Instruction, computations, numbers, symbol


@dataclass(frozen=True)
class VectorProduct:
    """What a kernel computes: row[depth] * matrix[depth][columns] + addend. Arguments are given by their indices."""

    row: int
    matrix: int
    addend: int | None
    """Has one value for each column."""
    depth: int
    columns: int
    transposed: bool
    """Whether the matrix is stored as [columns][depth]."""
    arguments: int
    """The number of arguments. The last one is the result."""
    batch: int = 1
    """The number of such products. Each has its own row and matrix, one after another, and no addend."""


_CONTRACTING = re.compile(
    r"^(?:, lhs_batch_dims=\{([\d,]+)\})?, lhs_contracting_dims=\{(\d)\}(?:, rhs_batch_dims=\{([\d,]+)\})?, "
    r"rhs_contracting_dims=\{(\d)\}(?!, \w+_batch)"
)
_CALLS = re.compile(r", kind=kOutput, calls=%([^\s,]+)")


def vector_products(hlo: str) -> dict[str, VectorProduct]:
    """Finds a module's kernels that multiply one row of floats by a matrix.

    Args:
      hlo: the text of a module after XLA's optimizations.

    Returns:
      What each kernel computes, by its symbol.
    """
    found_in = computations(hlo)
    found: dict[str, VectorProduct] = {}
    twice = set()
    for computation in found_in.values():
        for instruction in computation.instructions.values():
            called = _CALLS.search(instruction.rest) if instruction.opcode == "fusion" else None
            if called:
                name, product = instruction.name, _fused(found_in[called[1]])
            elif instruction.opcode == "dot":
                name, product = f"{instruction.name}_kernel", _plain(computation, instruction)
            else:
                continue
            kernel = symbol(hlo, name)
            if kernel in found:
                twice.add(kernel)  # two names map to one symbol
            if product is not None:
                found[kernel] = product
    return {kernel: product for kernel, product in found.items() if kernel not in twice}


def _plain(computation: Computation, dot: Instruction) -> VectorProduct | None:
    """Returns what a product that is a kernel of its own computes."""
    return _product(computation, dot, {operand: index for index, operand in enumerate(dot.operands)}, None, 3)


def _fused(computation: Computation) -> VectorProduct | None:
    """Returns what a fusion computes if it is a product plus a row."""
    parameters = {
        each.name: int(each.operands[0]) for each in computation.instructions.values() if each.opcode == "parameter"
    }
    root = computation.instructions.get(computation.root)
    if not computation.complete or root is None or root.opcode != "add" or root.dtype != "f32":
        return None
    if len(computation.instructions) != len(parameters) + 2:
        return None  # anything but the parameters, the product, and the sum
    terms = [computation.instructions[operand] for operand in root.operands]
    for dot, addend in (terms, reversed(terms)):
        if dot.opcode == "dot" and addend.opcode == "parameter" and addend.count == dot.count == root.count:
            return _product(computation, dot, parameters, parameters[addend.name], len(parameters) + 1)
    return None


def _product(
    computation: Computation, dot: Instruction, places: dict[str, int], addend: int | None, arguments: int
) -> VectorProduct | None:
    contracting = _CONTRACTING.match(dot.rest)
    sides = [computation.instructions.get(operand) for operand in dot.operands]
    if not contracting or len(sides) != 2 or any(operand not in places for operand in dot.operands):
        return None
    batches = [numbers(dimensions or "") for dimensions in contracting.group(1, 3)]
    outer = len(batches[0])
    if any(dimensions != tuple(range(outer)) for dimensions in batches):
        return None
    for row, matrix, dimension in (
        (sides[0], sides[1], int(contracting[4])),
        (sides[1], sides[0], int(contracting[2])),
    ):
        if row is None or matrix is None or {dot.dtype, row.dtype, matrix.dtype} != {"f32"}:
            continue
        # A matrix of one column has the shape of a row.
        if len(matrix.shape) not in ((outer + 2,) if outer else (1, 2)) or len(matrix.layout) != len(matrix.shape):
            continue
        if outer and (addend is not None or any(not _in_order(each, outer) for each in (dot, row, matrix))):
            continue
        batch, depth = math.prod(matrix.shape[:outer]), matrix.shape[dimension]
        columns = matrix.count // max(batch * depth, 1)
        if row.count == batch * depth and dot.count == batch * columns and row.name != matrix.name:
            return VectorProduct(
                places[row.name],
                places[matrix.name],
                addend,
                depth,
                columns,
                matrix.layout[0] == dimension,
                arguments,
                batch,
            )
    return None


def _in_order(value: Instruction, outer: int) -> bool:
    """Returns whether the first dimensions of a value are its slowest in memory, in order."""
    return value.layout[len(value.layout) - outer :] == tuple(reversed(range(outer)))
