"""Speeds up products of one row with a constant matrix of few rows."""

from __future__ import annotations

import numpy as np

from tfaot.graph.attributes import FLOATS, constant_of, type_attribute
from tfaot.graph.names import tensor_name
from tfaot.graph.program import Program

_SHORT = 64
"""From this many rows of the matrix on, both ways take the same time."""
_NARROW = 8
"""The fewest columns that fill a vector."""


def short_products(program: Program) -> int:
    """Rewrites x·W, for one row and a constant matrix of few rows, as the transpose of Wᵀ·xᵀ.

    XLA stores a constant matrix on a product's right side by columns, and adds along each column, which is short. Sums
    across vectors, and partly filled vectors, then cost more than the product. On the left side, the matrix stays in
    rows, which XLA adds in their stored order.

    Returns:
      The number of products.
    """
    nodes, tensors = program.nodes(), None
    count = 0
    for node in nodes.values():
        if node.op != "MatMul" or node.attr["T"].type not in FLOATS:
            continue
        matrix = constant_of(nodes, node.input[1], program.feeds)
        if matrix is None or node.attr["transpose_a"].b or node.attr["transpose_b"].b:
            continue
        depth, columns = matrix.shape
        if not 1 < depth <= _SHORT or columns < _NARROW:
            continue
        tensors = tensors or program.tensors()
        name, port = tensor_name(node.input[0])
        if tensors[f"{name}:{port}"].shape == (1, depth):
            _write(program, node.name, depth, columns)
            count += 1
    return count


def _write(program: Program, name: str, depth: int, columns: int) -> None:
    node = program.nodes()[name]
    row, matrix = node.input[0], node.input[1]
    options = {"T": type_attribute(node.attr["T"].type)}
    shapes = {**options, "Tshape": np.dtype("int32")}

    def shape(*sizes: int) -> str:
        added: str = program.constant(f"{name}/shape", np.array(sizes, np.int32), origin=name).name
        return added

    column = program.add("Reshape", f"{name}/column", (row, shape(depth, 1)), origin=name, **shapes)
    product = program.add(
        "MatMul",
        f"{name}/product",
        (matrix, column.name),
        origin=name,
        transpose_a=True,
        transpose_b=False,
        **options,
    )
    program.become(node, "Reshape", (product.name, shape(1, columns)), **shapes)
