"""Where shapes get lost: the first op whose operands have known shapes and whose result doesn't."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, tensor_shape_pb2
from tensorflow.python.framework import function_def_to_graph

from tfaot.core.errors import listed
from tfaot.export.traced import Dims, Edge, Shape, shown
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import CALLS, functions_of
from tfaot.preflight.nesting import Nesting

ASSUMED = 2
"""The size that stands for an unknown one. It isn't 1, which would broadcast."""


@dataclasses.dataclass(frozen=True)
class Open:
    """An input whose size the model leaves open."""

    edge: Edge
    assumed: Shape
    """The shape that the check assumes."""

    @property
    def because(self) -> str:
        """What the check assumes."""
        return f"it is {shown(self.edge.shape)}; the check assumes {shown(self.assumed)}"


@dataclasses.dataclass(frozen=True)
class AssumedDims(Dims):
    """Sizes of inputs as the target gives them. Those that it doesn't give are assumed instead of refused."""

    seen: list[Edge] = dataclasses.field(default_factory=list)
    """The inputs of the last entry point, as the model has them."""

    def fix(self, what: str, edges: Sequence[Edge]) -> tuple[Edge, ...]:
        """Returns the inputs with all dimensions known; see `Dims`."""
        self.seen[:] = edges
        return super().fix(what, [self._assume(edge) for edge in edges])

    def opened(self, *, batched: bool) -> list[Open]:
        """Returns the inputs with sizes that had to be assumed.

        Args:
          batched: whether the target says what a first dimension may be.
        """
        edges = [edge for edge in self.seen if self._is_open(edge)]
        if batched:
            edges = [edge for edge in edges if (shape := self._given(edge)) is None or None in shape[1:]]
        return [Open(edge, self._assume(edge).shape or ()) for edge in edges]

    def _given(self, edge: Edge) -> Shape | None:
        asked = self.sizes.get(edge.label)
        if asked is None or edge.shape is None or len(asked) != len(edge.shape):
            return edge.shape if asked is None else asked
        return tuple(a if b is None else b for a, b in zip(edge.shape, asked, strict=True))

    def _is_open(self, edge: Edge) -> bool:
        shape = self._given(edge)
        return shape is None or None in shape

    def _assume(self, edge: Edge) -> Edge:
        if not self._is_open(edge):
            return edge
        shape = self._given(edge)
        assumed = (ASSUMED,) if shape is None else tuple(ASSUMED if size is None else size for size in shape)
        return dataclasses.replace(edge, shape=assumed)


@dataclasses.dataclass(frozen=True)
class Lost:
    """A node that loses a shape."""

    function: str
    node: str
    shape: str
    """What is left of it, for messages."""
    outputs: tuple[str, ...]
    """The labels of the outputs whose shape depends on it."""

    @property
    def because(self) -> str:
        """The outputs."""
        return f"its result is {self.shape}; the output {listed(list(self.outputs))} depends on it"


def lost(graph: graph_pb2.GraphDef, nesting: Nesting, outputs: Mapping[str, str]) -> list[Lost]:
    """Returns the nodes that first lose the shapes of outputs. Empty if TensorFlow can't import the graph.

    Args:
      graph: a pruned graph whose inputs have shapes.
      nesting: the same graph.
      outputs: labels of the outputs, by `node:port`.
    """
    lost: dict[tuple[str, str, str], list[str]] = {}
    typed = _imported(graph)
    for tensor, label in outputs.items() if typed else ():
        for place in _first(nesting, "", typed, [typed.get_tensor_by_name(tensor)], graph.library):
            lost.setdefault(place, []).append(label)
    return [Lost(*place, tuple(dict.fromkeys(labels))) for place, labels in lost.items()]


def inferred(graph: graph_pb2.GraphDef) -> dict[str, Shape | None]:
    """Returns the shapes of a graph's tensors, by `node:port`. Empty if TensorFlow can't import the graph."""
    typed = _imported(graph)
    return {tensor.name: _sizes(tensor) for op in typed.get_operations() for tensor in op.outputs} if typed else {}


def _imported(graph: graph_pb2.GraphDef) -> Any:
    typed = tf.Graph()
    with typed.as_default():
        try:
            tf.import_graph_def(graph, name="")
        except (ValueError, tf.errors.OpError):
            return None
    return typed


def _first(
    nesting: Nesting, function: str, typed: Any, tensors: Sequence[Any], library: Any, depth: int = 0
) -> Iterator[tuple[str, str, str]]:
    """Yields the nodes that first lose the shapes of tensors, with what is left of these."""
    queue = [tensor for tensor in tensors if not tensor.shape.is_fully_defined()]
    seen = set()
    while queue:
        tensor = queue.pop()
        if tensor.op.name in seen:
            continue
        seen.add(tensor.op.name)
        before = [operand for operand in tensor.op.inputs if not _known(operand)]
        if before:
            queue += before
            continue
        inside = list(_inside(nesting, tensor, library, depth)) if depth < 20 else []
        yield from inside or [(function, tensor.op.name, shown(_sizes(tensor)))]


def _known(tensor: Any) -> bool:
    return tensor.dtype in (tf.resource, tf.variant) or tensor.shape.is_fully_defined()


def _sizes(tensor: Any) -> Shape | None:
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())


def _inside(nesting: Nesting, tensor: Any, library: Any, depth: int) -> Iterator[tuple[str, str, str]]:
    """Yields the nodes in the functions that a node calls."""
    node = tensor.op.node_def
    first = CALLS[node.op].first if node.op in CALLS else 0
    callees = [node.op] if node.op in nesting.library else [called.name for _, called in functions_of(node)]
    for name in callees:
        definition = nesting.library.get(name)
        if definition is None:
            continue
        shapes = [operand.shape.as_proto() for operand in list(tensor.op.inputs)[first:]]
        unknown = tensor_shape_pb2.TensorShapeProto(unknown_rank=True)
        shapes = (shapes + [unknown] * len(definition.signature.input_arg))[: len(definition.signature.input_arg)]
        try:
            body, flat = function_def_to_graph.function_def_to_graph_def(definition, shapes)
        except ValueError:  # it isn't valid, and the build says so
            continue
        body.library.CopyFrom(library)
        typed = _imported(body)
        if typed is None:
            continue
        returned = [
            flat.get(definition.ret[arg.name], definition.ret[arg.name]) for arg in definition.signature.output_arg
        ]
        port = tensor.value_index
        if port < len(returned):
            result = typed.get_tensor_by_name(":".join(map(str, tensor_name(returned[port]))))
            yield from _first(nesting, name, typed, [result], library, depth + 1)
