"""Reads the optimized HLO to find the XLA kernels that only multiply one row by a matrix, once or in a batch.

XLA doesn't call the runtime for such products. It computes them in kernels of its own, which may also add another row.
The reader is strict: any other kernel isn't listed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tfaot.compile.program.values.instructions import complete, symbol
from tfaot.xla.module import Computation, Instruction, Module


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


def vector_products(module: Module) -> dict[str, VectorProduct]:
    """Finds a module's kernels that multiply one row of floats by a matrix.

    Args:
      module: the module after XLA's optimizations.

    Returns:
      What each kernel computes, by its symbol.
    """
    found: dict[str, VectorProduct] = {}
    twice = set()
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            if not instruction.type.plain:
                continue
            if instruction.opcode == "fusion" and instruction.attributes.fusion_kind == "kOutput":
                name, product = instruction.name, _fused(module.computations[instruction.called[0]])
            elif instruction.opcode == "dot":
                name, product = f"{instruction.name}_kernel", _plain(computation, instruction)
            else:
                continue
            kernel = symbol(module, name)
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
    parameters = {each.name: each.number for each in computation.instructions.values() if each.opcode == "parameter"}
    root = computation.root
    if not complete(computation) or root.opcode != "add" or root.dtype != "f32":
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
    numbers = dot.attributes.dot_dimension_numbers
    left, right = (computation.instructions[operand] for operand in dot.operands)
    outer = len(numbers.lhs_batch_dimensions)
    contracted = [*numbers.lhs_contracting_dimensions, *numbers.rhs_contracting_dimensions]
    if len(contracted) != 2 or any(operand not in places for operand in dot.operands):
        return None
    if any([*batch] != [*range(outer)] for batch in (numbers.lhs_batch_dimensions, numbers.rhs_batch_dimensions)):
        return None
    if {dot.dtype, left.dtype, right.dtype} != {"f32"}:
        return None
    for row, matrix, dimension in ((left, right, contracted[1]), (right, left, contracted[0])):
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
