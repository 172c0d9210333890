"""The sizes of tensors, and which dimensions count the rows of a batch.

A model that leaves the first dimension of its inputs open doesn't say which other dimensions have as many elements. TensorFlow's
inference does: it runs for two numbers of rows, and a dimension that differs is a multiple of that number. If an op's result has
a first size that only values decide, such as that of `tf.unique`, the result starts a batch of its own.

`tfaot.export.batch_independence` then proves for each cluster that its rows are independent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from tensorflow.core.framework import graph_pb2, types_pb2

from tfaot.core.errors import TfaotError
from tfaot.export.sources.subgraph import add_placeholder, imported
from tfaot.graph.attributes import Shape, shape_of, shape_proto
from tfaot.graph.edits import replace
from tfaot.graph.names import canonical, tensor_name
from tfaot.graph.program import Tensor

INPUTS = "the inputs"
"""The batch that the model's inputs have."""

_PRIMES = ((2, 1009), (3, 1013), (5, 1019), (7, 1021), (11, 1031), (13, 1033), (17, 1039), (19, 1049))
"""Numbers of rows to compare, for each batch of a graph."""

_HANDLES = (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)


@dataclasses.dataclass(frozen=True)
class Rows:
    """A dimension that counts rows."""

    batch: str
    """What has these rows: `INPUTS`, or the tensor in which their number first appears."""
    axis: int
    width: int
    """How many elements of the dimension a row has."""


@dataclasses.dataclass(frozen=True)
class Inferred:
    """What TensorFlow infers about tensors, by `node:port`."""

    tensors: Mapping[str, Tensor]
    rows: Mapping[str, Rows]
    """The tensors of which one dimension counts rows, and all other dimensions have known sizes."""


def static(shape: Shape) -> bool:
    """Returns whether all sizes are known."""
    return shape is not None and None not in shape


def infer(graph: graph_pb2.GraphDef, what: str, inputs: Collection[str], *, batched: bool) -> Inferred:
    """Infers the sizes of tensors.

    Args:
      graph: each node comes after its operands.
      what: the model, for messages.
      inputs: the nodes of its inputs.
      batched: whether first dimensions that are open count the rows of batches.

    Raises:
      TfaotError: TensorFlow rejects the graph, or rejects it for some number of rows.
    """
    tensors = _tensors(graph, what)
    opened = {
        f"{name}:0"
        for name in inputs
        if (shape := tensors[f"{name}:0"].shape) and shape[0] is None and static(shape[1:])
    }
    if not batched:
        return Inferred(tensors, {})
    batches = dict.fromkeys(sorted(opened), 0)
    names = [INPUTS]
    runs = [_sized(graph, tensors, batches, run, what) for run in (0, 1)]
    while True:
        inferred = {name: _compared(runs[0][name], runs[1][name], names) for name in tensors}
        fresh = _fresh(graph, tensors, inferred)[: len(_PRIMES) - len(names)]
        if not fresh:
            break
        more = batches | {tensor: len(names) + index for index, tensor in enumerate(fresh)}
        try:
            runs = [_sized(graph, tensors, more, run, what) for run in (0, 1)]
        except TfaotError:
            break  # two of them are the same number, which only values show; their sizes stay open
        batches, names = more, [*names, *fresh]
    return Inferred(
        {name: Tensor(shape, tensors[name].dtype) for name, (shape, _) in inferred.items()},
        {name: rows for name, (_, rows) in inferred.items() if rows is not None},
    )


def _sized(
    graph: graph_pb2.GraphDef, tensors: Mapping[str, Tensor], batches: Mapping[str, int], run: int, what: str
) -> dict[str, Tensor]:
    """Returns what TensorFlow infers if each batch has one of its numbers of rows."""
    sized = graph_pb2.GraphDef()
    sized.CopyFrom(graph)
    nodes = {node.name: node for node in sized.node}
    moved: dict[str, str] = {}
    shapes: dict[str, Tensor] = {}
    for tensor, batch in batches.items():
        name, port = tensor_name(tensor)
        shape = (_PRIMES[batch][run], *(tensors[tensor].shape or ())[1:])
        shapes[tensor] = Tensor(shape, tensors[tensor].dtype)
        if nodes[name].op == "Placeholder":
            nodes[name].attr["shape"].shape.CopyFrom(shape_proto(shape))
        else:
            moved[tensor] = f"{name}/tfaot_rows_{port}"
            add_placeholder(sized, moved[tensor], tensors[tensor].dtype, shape)
    for node in graph.node:
        nodes[node.name].input[:] = [
            operand if operand.startswith("^") else moved.get(canonical(operand), operand) for operand in node.input
        ]
    try:
        return {**_tensors(sized, what), **shapes}
    except TfaotError as error:
        raise TfaotError(
            f"{what}: the model can't take a batch of {_PRIMES[0][run]} rows",
            details=error.details,
            exists="batch_sizes: the first dimension of inputs, where it is open, is the same number of rows, whatever that is",
            do="fix the first dimension of inputs that have no rows with dims, or remove batch_sizes",
        ) from None


def _compared(first: Tensor, second: Tensor, names: list[str]) -> tuple[Shape, Rows | None]:
    """Returns a tensor's shape, in which sizes that differ between two runs are open, and the one that counts rows."""
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return None, None
    shape: list[int | None] = []
    rows: list[Rows | None] = []
    for axis, (one, other) in enumerate(zip(first.shape, second.shape, strict=True)):
        shape.append(one if one == other else None)
        if one is None or other is None:
            rows.append(None)
        elif one != other:
            rows.append(
                next(
                    (
                        Rows(name, axis, one // few)
                        for name, (few, many) in zip(names, _PRIMES, strict=False)
                        if one % few == 0 and other % many == 0 and one // few == other // many
                    ),
                    None,
                )
            )
    return tuple(shape), rows[0] if len(rows) == 1 else None


def _fresh(
    graph: graph_pb2.GraphDef, tensors: Mapping[str, Tensor], inferred: Mapping[str, tuple[Shape, Rows | None]]
) -> list[str]:
    """Returns the tensors that have a first size of their own, though all sizes are known on which they depend."""

    def settled(tensor: str) -> bool:
        shape, rows = inferred[tensor]
        return static(shape) or rows is not None or tensors[tensor].dtype in _HANDLES

    results: dict[str, list[str]] = {}
    for tensor in tensors:
        results.setdefault(tensor_name(tensor)[0], []).append(tensor)
    unsettled: set[str] = set()
    fresh = []
    for node in graph.node:
        operands = {tensor_name(operand)[0] for operand in node.input if not operand.startswith("^")}
        opened = [tensor for tensor in results.get(node.name, []) if not settled(tensor)]
        if opened and node.op != "Placeholder" and not operands & unsettled:
            shapes = {tensor: inferred[tensor][0] for tensor in opened}
            fresh += [tensor for tensor, shape in shapes.items() if shape and shape[0] is None and static(shape[1:])]
        if opened or operands & unsettled:
            unsettled.add(node.name)
    return fresh


def _tensors(graph: graph_pb2.GraphDef, what: str) -> dict[str, Tensor]:
    """Returns what TensorFlow infers. A loop's variable has the same shape in all steps if its first step keeps it."""
    changing: set[str] = set()
    while True:
        loops = graph_pb2.GraphDef()
        loops.CopyFrom(graph)
        back: dict[str, str] = {}
        nodes = {node.name: node for node in loops.node}
        steps = {name: node for name, node in nodes.items() if node.op == "NextIteration"}
        for node in loops.node:
            if node.op == "Merge" and node.name not in changing and (ways := [i for i in node.input if i in steps]):
                back[node.name] = steps[ways[0]].input[0]
                kept = [operand for operand in node.input if operand not in steps]
                node.input[:] = kept
                node.attr["N"].i = len(kept)
                for enter in (nodes[tensor_name(operand)[0]] for operand in kept):
                    if enter.op == "Enter":  # its result has no shape, because a step may change it
                        replace(enter, "Identity", enter.input[:1], {"T": enter.attr["T"]})
        typed = imported(loops, what)
        shapes = {tensor.name: tensor.shape for operation in typed.get_operations() for tensor in operation.outputs}
        wrong = {
            name
            for name, operand in back.items()
            if shape_of(shapes[f"{name}:0"]) != shape_of(shapes[canonical(operand)])
        }
        if not wrong:
            return {
                tensor.name: Tensor(shape_of(tensor.shape), tensor.dtype.as_datatype_enum)
                for operation in typed.get_operations()
                for tensor in operation.outputs
            }
        changing |= wrong
