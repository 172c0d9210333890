"""The pass `hoist_projections`: multiplies a loop's inputs by their weight for all steps at once, before the loop.

Applies to recurrent layers whose steps multiply an item of a sequence by a constant weight. The weight is then read once
instead of in each step.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from tensorflow.core.framework import node_def_pb2, types_pb2

from tfaot.compile.passes.loops.loop import Loop
from tfaot.compile.passes.loops.loops import Loops, list_attributes
from tfaot.compile.passes.loops.steps import Indices
from tfaot.graph.attributes import type_attribute
from tfaot.graph.program import Program

_CACHED = 1 << 20
"""The bytes of a weight that stays in the cache from step to step."""
_LARGEST = 1 << 26
"""The most bytes of a product of all steps that are worth storing."""
_FLOATS = frozenset({types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_HALF, types_pb2.DT_BFLOAT16})


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The inputs of a loop's steps, as items of a list made from one tensor."""

    tensor: str
    """A tensor of the graph, [steps, batch, features]."""
    sizes: tuple[int, int, int]
    indices: Indices
    """The item that each step reads. They are consecutive, from the first or from the last."""

    @property
    def slope(self) -> int:
        """The difference between the items of consecutive steps."""
        return int(self.indices[1] - self.indices[0])


@dataclasses.dataclass(frozen=True)
class _Joined:
    """A step's input concatenated with other values, as in TensorFlow 1 cells: [batch, features + others]."""

    rows: _Rows
    others: tuple[str, ...]
    """Tensors of the body."""
    first: bool
    """Whether the input comes before the others."""
    axis: str
    """The operand that gives the concatenation axis."""


def hoist_projections(program: Program) -> int:
    """Moves products out of loops, and returns how many.

    If the input is concatenated with a state, [x, h]·W, only the part of x moves: x·Wx before the loop, and + h·Wh in it. The pass
    does that if it costs less than cutting W in two.
    """
    loops = Loops(program)
    count = 0
    for loop in loops.loops.values():
        hoisted = sum(_hoist(loops, loop, node) for node in [*loop.body.nodes.values()] if node.op == "MatMul")
        if hoisted:
            loop.write()
        count += hoisted
    return count


def _hoist(loops: Loops, loop: Loop, node: node_def_pb2.NodeDef) -> bool:
    dtype = node.attr["T"].type
    if node.attr["transpose_a"].b or dtype not in _FLOATS or (loop.steps.trips or 0) < 2:
        return False
    rows = _rows(loops, loop, node.input[0])
    joined = None if rows is not None else _joined(loops, loop, node.input[0])
    if rows is None and joined is None:
        return False
    weight = loop.outside(node.input[1])
    sizes = loops.shape(weight) if weight is not None else None
    if weight is None or sizes is None:
        return False
    transposed = node.attr["transpose_b"].b
    if rows is not None:
        if not _pays(rows, sizes, transposed=transposed):
            return False
        product = _product(loops, loop, node, rows, weight, transposed)
        _read(loops, loop, node, product, rows, sizes[0 if transposed else 1])
        return True
    if joined is None or transposed or not _pays(joined.rows, sizes, transposed=False):
        return False
    features = joined.rows.sizes[2]
    rest, out = sizes[0] - features, sizes[1]
    # A step saves reading Wx. Cutting costs one write and one read of Wh.
    if (loop.steps.trips or 0) * features < 2 * rest:
        return False
    begin = 0 if joined.first else rest
    cut = [
        loop.cut_before(f"{node.name}/rows", weight, (first, 0), (count, out), dtype)
        for first, count in ((begin, features), (features if joined.first else 0, rest))
    ]
    product = _product(loops, loop, node, joined.rows, cut[0], transposed=False)
    others = loop.give(cut[1], dtype, f"{node.name}/rest")
    state = joined.others[0]
    if len(joined.others) > 1:
        parts = [*joined.others, joined.axis]
        int32 = np.dtype(np.int32)
        state = loop.add("ConcatV2", f"{node.name}/state", parts, dtype, N=len(joined.others), Tidx=int32)
    recurrent = loop.add(
        "MatMul", f"{node.name}/recurrent", [state, others], dtype, transpose_a=False, transpose_b=False
    )
    read = loop.body.add("NoOp", f"{node.name}/projected", ())
    _read(loops, loop, read, product, joined.rows, out)
    loop.body.become(node, "AddV2", [f"{read.name}:0", recurrent], T=type_attribute(dtype))
    return True


def _pays(rows: _Rows, weight: tuple[int, ...], *, transposed: bool) -> bool:
    """Returns whether one product for all steps is faster than one in each.

    A step no longer reads in·out weights. Instead, it writes and reads batch·out results twice more, from more distant
    memory. Measured with LSTM(128) over 50 steps of 64, relative to the original time: 0.73 for batch 1, 0.9 for 4,
    1.01 for 16, 1.08 for 64.
    """
    steps, batch, features = rows.sizes
    if 4 * steps * batch * weight[0 if transposed else 1] > _LARGEST:
        return False
    return features >= (8 if 4 * weight[0] * weight[1] <= _CACHED else 4) * batch


def _rows(loops: Loops, loop: Loop, tensor: str) -> _Rows | None:
    """Returns the inputs of all steps if a tensor of the body is an item in a list of them, otherwise None."""
    item = loop.item(tensor)
    if item is None:
        return None
    made = loops.producer(loop.operands[item.index])
    if made is None or made.op != "TensorListFromTensor":
        return None
    sizes = loops.shape(made.input[0])
    # Each item exactly once. Otherwise the product would compute rows that no step reads.
    if sizes is None or len(sizes) != 3 or sorted(item.indices) != [*range(sizes[0])]:
        return None
    rows = _Rows(made.input[0], (sizes[0], sizes[1], sizes[2]), item.indices)
    return rows if loop.scalar(item.indices, "step") is not None else None


def _joined(loops: Loops, loop: Loop, tensor: str) -> _Joined | None:
    node = loop.body.producer(loop.body.resolve(tensor))
    if node is None or node.op != "ConcatV2":
        return None
    *parts, axis = (operand for operand in node.input if not operand.startswith("^"))
    along = loop.steps.values(axis)
    if along is None or along[0] not in (1, -1) or len(parts) < 2:
        return None
    for part, others, first in ((parts[0], parts[1:], True), (parts[-1], parts[:-1], False)):
        rows = _rows(loops, loop, part)
        if rows is not None:
            return _Joined(rows, tuple(others), first, axis)
    return None


def _product(loops: Loops, loop: Loop, node: node_def_pb2.NodeDef, rows: _Rows, weight: str, transposed: bool) -> str:
    """Adds the product of all steps to the graph, [steps, …] with the shape from `_row`, and returns it."""
    steps, batch, features = rows.sizes
    dtype = node.attr["T"].type
    sizes = loops.shape(weight) or (0, 0)
    out = sizes[0 if transposed else 1]
    product = loop.before(
        "MatMul",
        f"{node.name}/all_steps",
        [loop.reshaped_before(f"{node.name}/rows", rows.tensor, (steps * batch, features), dtype), weight],
        (steps * batch, out),
        dtype,
        T=type_attribute(dtype),
        transpose_a=False,
        transpose_b=transposed,
    )
    return loop.reshaped_before(f"{node.name}/steps", product, (steps, *_row(batch, out)), dtype)


def _row(batch: int, out: int) -> tuple[int, ...]:
    """Returns the shape in which a step's rows enter the body.

    A single row enters as a vector. XLA then adds it during the product of the state, also a vector, and its matrix.
    """
    return (batch, out) if batch > 1 else (out,)


def _read(loops: Loops, loop: Loop, node: node_def_pb2.NodeDef, product: str, rows: _Rows, out: int) -> None:
    """Turns a node of the body into a step's rows of a product of all steps.

    A step gets its rows as an operand and reads those of the next step. If it read its own rows, XLA would do so within
    the arithmetic that follows, once for each use, and LLVM doesn't vectorize such code.
    """
    steps, batch, _ = rows.sizes
    dtype = loops.dtype(product)
    shape = _row(batch, out)
    begin = int(rows.indices[0]), *(0 for _ in shape)
    block = loop.cut_before(f"{node.name}/first/rows", product, begin, (1, *shape), dtype)
    row = loop.reshaped_before(f"{node.name}/first", block, shape, dtype)
    products = loop.before(
        "TensorListFromTensor",
        f"{node.name}/projected",
        [product, loop.constant_before(f"{node.name}/element_shape", shape)],
        (),
        types_pb2.DT_VARIANT,
        **list_attributes(dtype),
    )
    list_ = loop.give(products, types_pb2.DT_VARIANT, f"{node.name}/all_steps")
    now = loop.give(row, dtype, f"{node.name}/now")
    position = len(loop.operands) - 1
    following = [loop.scalar(rows.indices, f"{node.name}/step") or "", loop.number(rows.slope, f"{node.name}/next")]
    place = loop.add("AddV2", f"{node.name}/next", following, types_pb2.DT_INT32)
    # The last step has no next rows to read.
    for op, bound in (("Minimum", steps - 1), ("Maximum", 0)):
        limit = loop.number(bound, f"{node.name}/{op}")
        place = loop.add(op, f"{node.name}/next/{op}", [place, limit], types_pb2.DT_INT32)
    operands = [list_, place, loop.vector(shape, f"{node.name}/next/shape")]
    read = loop.add("TensorListGetItem", f"{node.name}/next/rows", operands, dtype, "element_dtype")
    loop.body.results[position] = read
    reshape = {"T": type_attribute(dtype), "Tshape": np.dtype(np.int32)}
    loop.body.become(node, "Reshape", [now, loop.vector((batch, out), f"{node.name}/shape")], **reshape)
