"""The pass `gemv_layout`: multiplies one row by a constant matrix by adding up the matrix's rows.

XLA lays the matrix out in columns and adds up along each of them: with ten values, that is a vector, two single values, and a
sum across lanes. The pass writes the transpose of Wᵀ·xᵀ, whose matrix stays in rows.

Applies to MatMul with batch 1 and a constant of 2 to 64 rows and at least 8 columns, or of up to 256 rows and at least 64
columns, also in loops, where the constant comes from outside: a recurrent layer with frozen weights multiplies its state so.
With fewer columns, a row has too few vectors. The 10-64-64-1 net takes 0.33 instead of 0.41 µs (Zen 3, AVX2).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tensorflow.core.framework import node_def_pb2

from tfaot.compile.passes.loops.loop import Loop
from tfaot.compile.passes.loops.loops import Loops
from tfaot.compile.passes.writer import Reader
from tfaot.graph.attributes import FLOATS, Array, constant_of, type_attribute
from tfaot.graph.ops import WHILES
from tfaot.graph.program import Program

_SHORT = 64
"""Up to this many rows, all matrices gain whose columns fill a vector."""
_LONG = 256
"""From this many rows on, both ways take the same time."""
_NARROW = 8
"""The fewest columns that fill a vector."""
_WIDE = 64
"""The fewest columns with which more than `_SHORT` rows gain. A vector of each row is too little work."""

_Add = Callable[..., node_def_pb2.NodeDef]
"""Adds a node: `(op, name, inputs, **attributes)`."""


def gemv_layout(program: Program) -> int:
    """Rewrites products, also in loops, and returns how many."""
    count = _in_loops(program)
    reader = Reader(program)
    for node in filter(_is_product, reader.nodes.values()):
        matrix = reader.constant(node.input[1])
        if matrix is None or not _is_short(matrix) or reader.shape(node.input[0]) != (1, matrix.shape[0]):
            continue

        def add(
            op: str, name: str, inputs: list[str], origin: str = node.name, **attributes: object
        ) -> node_def_pb2.NodeDef:
            return program.add(op, name, inputs, origin=origin, **attributes)

        operands, attributes = _swapped(node, matrix, add)
        program.become(node, "Reshape", operands, **attributes)
        count += 1
    return count


def _in_loops(program: Program) -> int:
    """Rewrites the products in loops whose matrix is a constant in the body, or a constant that the loop passes on."""
    if not any(node.op in WHILES for node in program.graph.node):
        return 0
    loops = Loops(program)
    count = 0
    for loop in loops.loops.values():
        products = [
            (node, matrix)
            for node in loop.body.nodes.values()
            if _is_product(node) and (matrix := _constant(loops, loop, node.input[1])) is not None and _is_short(matrix)
        ]
        if not products:
            continue
        shapes = loop.shapes()
        changed = 0
        for node, matrix in products:
            if shapes[node.input[0]].shape == (1, matrix.shape[0]):
                operands, attributes = _swapped(node, matrix, loop.body.add)
                loop.body.become(node, "Reshape", operands, **attributes)
                changed += 1
        if changed:
            loop.write()
        count += changed
    return count


def _constant(loops: Loops, loop: Loop, tensor: str) -> Array | None:
    """Returns the value of a tensor of a loop's body that is a constant, in the body or outside; otherwise None."""
    index = loop.constant_argument(tensor)
    if index is None:
        return constant_of(loop.body.nodes, tensor)
    return constant_of(loops.nodes, loops.resolve(loop.operands[index]), loops.program.feeds)


def _is_product(node: node_def_pb2.NodeDef) -> bool:
    return (
        node.op == "MatMul"
        and node.attr["T"].type in FLOATS
        and not node.attr["transpose_a"].b
        and not node.attr["transpose_b"].b
    )


def _is_short(matrix: Array) -> bool:
    depth, columns = matrix.shape
    return 1 < depth <= (_LONG if columns >= _WIDE else _SHORT) and columns >= _NARROW


def _swapped(node: node_def_pb2.NodeDef, matrix: Array, add: _Add) -> tuple[list[str], dict[str, object]]:
    """Adds the swapped product. Returns the operands and attributes of the Reshape that takes the product's place."""
    row, right = node.input[0], node.input[1]
    dtype = type_attribute(node.attr["T"].type)
    sizes: dict[str, object] = {"T": dtype, "Tshape": np.dtype("int32")}

    def shape(*values: int) -> str:
        value = np.array(values, np.int32)
        return f"{add('Const', f'{node.name}/shape', [], dtype=value.dtype, value=value).name}:0"

    depth, columns = matrix.shape
    column = add("Reshape", f"{node.name}/column", [row, shape(depth, 1)], **sizes)
    product = add(
        "MatMul", f"{node.name}/product", [right, f"{column.name}:0"], transpose_a=True, transpose_b=False, T=dtype
    )
    return [f"{product.name}:0", shape(1, columns)], sizes
