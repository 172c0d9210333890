"""The pass `row_sums`: adds up pieces of rows, which are vectors, for sums and means along rows.

To limit rounding, XLA cuts a row of more than 32 values into windows of 32, and adds these up in a separate kernel, value after
value. The pass adds up the windows first, as vectors, and then the one that is left. A result has as many roundings as before,
and the sums become part of the kernels around them.

Applies to the last axis, with 33 to 1024 values in at most 32 pieces of equal size. A layer norm has two such sums: a row of
256 values takes 97 instead of 192 ns, and one of 768 264 instead of 460 (Zen 3, AVX2).
"""

from __future__ import annotations

from tensorflow.core.framework import node_def_pb2

from tfaot.compile.passes.writer import Reader, Writer
from tfaot.graph.attributes import Shape, attribute
from tfaot.graph.names import tensor_name
from tfaot.graph.program import Program

_WINDOW = 32
"""The longest row that XLA sums in one loop, together with what comes before and after."""
_LONGEST = _WINDOW * _WINDOW


def row_sums(program: Program) -> int:
    """Rewrites sums and means along rows, and returns how many."""
    reader = Reader(program)
    count = 0
    for node in reader.floats("Mean", "Sum"):
        axes = reader.constant(node.input[1])
        if axes is None or axes.size != 1:
            continue
        shape = reader.shape(node.input[0])
        width = _width(shape, int(axes.item()))
        if shape is not None and width and not _is_softmax(reader, node):
            _write(Writer(program, node), shape, width)
            count += 1
    return count


def _is_softmax(reader: Reader, total: node_def_pb2.NodeDef) -> bool:
    """Returns whether a sum is that of a softmax, which the pass `row_fusion` computes with everything else."""
    powers, port = tensor_name(total.input[0])
    if f"{powers}:{port}" in reader.program.feeds or reader.nodes[powers].op != "Exp":
        return False
    return any(
        node.op == "RealDiv" and [tensor_name(name) for name in node.input[:2]] == [(powers, port), (total.name, 0)]
        for node in reader.nodes.values()
    )


def _width(shape: Shape, axis: int) -> int:
    """Returns the width of the pieces for rows along an axis; 0 if they stay whole."""
    if shape is None or axis not in (-1, len(shape) - 1):
        return 0
    columns = shape[-1]
    if columns is None or not _WINDOW < columns <= _LONGEST:
        return 0
    width = max(size for size in range(1, _WINDOW + 1) if columns % size == 0)
    return width if columns // width <= _WINDOW else 0


def _write(writer: Writer, shape: tuple[int | None, ...], width: int) -> None:
    node, columns = writer.node, shape[-1] or 0
    rows = [-1 if size is None else size for size in shape[:-1]]  # all, if only a run knows how many
    pieces = [
        writer.slice(node.input[0], [*(0 for _ in rows), first], [*rows, width]) for first in range(0, columns, width)
    ]
    while len(pieces) > 1:
        added = [writer.add("AddV2", *pair) for pair in zip(pieces[::2], pieces[1::2], strict=False)]
        pieces = added + pieces[2 * len(added) :]
    options = {key: attribute(node.attr[key]) for key in ("Tidx", "keep_dims")}
    if node.op == "Sum":
        writer.become("Sum", pieces[0], node.input[1], **options)
    else:
        writer.become("RealDiv", writer.add("Sum", pieces[0], node.input[1], **options), writer.number(columns))
