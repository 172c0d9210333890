"""Constant folding for tensors made of constants and known shapes, such as loop bounds and list shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tensorflow.core.framework import graph_pb2, types_pb2

from tfaot.compile.passes.loops.steps import SCALARS
from tfaot.graph.attributes import Array, attribute, literal
from tfaot.graph.names import tensor_name

if TYPE_CHECKING:
    from tfaot.compile.passes.loops.loops import Loops

_LARGEST = 1 << 12
"""The most elements to evaluate. Shapes and bounds are small."""

_SHAPES = {"ConcatV2", "ExpandDims", "GatherV2", "Pack", "Reshape", "Slice", "Squeeze", "StridedSlice"}
_FOLDED = frozenset({*SCALARS, *_SHAPES, "All", "Cast", "Fill", "Max", "Min", "Prod", "Range", "Sum"})
"""The ops that loop bounds and list shapes may use."""


class Constants:
    """Evaluates tensors, each at most once."""

    def __init__(self, loops: Loops) -> None:
        """Takes the loops, which give access to the graph."""
        self._loops = loops
        self._values: dict[str, Array | None] = {}

    def value(self, tensor: str) -> Array | None:
        """Returns the value of a tensor, or None if it is unknown or large."""
        tensor = self._loops.resolve(tensor)
        if tensor not in self._values:
            self._values[tensor] = None
            self._values[tensor] = self._fold(tensor)
        return self._values[tensor]

    def _fold(self, tensor: str) -> Array | None:
        import tensorflow as tf

        graph = graph_pb2.GraphDef()
        if not self._collect(tensor, graph, {}):
            return None
        if len(graph.node) == 1 and graph.node[0].op == "Const":
            return literal(graph.node[0])
        with tf.Graph().as_default() as built:
            tf.import_graph_def(graph, name="")
            fetched = built.get_tensor_by_name(tensor.replace(":", "/") + ":0")
            if fetched.shape.num_elements() is None or fetched.shape.num_elements() > _LARGEST:
                return None
            with tf.compat.v1.Session(graph=built) as session:
                try:
                    return np.asarray(session.run(fetched))
                except tf.errors.OpError:  # a division by zero or an index out of range: running the model reports it
                    return None

    def _collect(self, tensor: str, graph: graph_pb2.GraphDef, made: dict[str, bool]) -> bool:
        """Copies the nodes that compute a resolved tensor, named `node/port`, and returns whether it can be evaluated."""
        if tensor in self._loops.program.feeds or tensor in made:
            return made.get(tensor, False)
        made[tensor] = False
        name, port = tensor_name(tensor)
        node = self._loops.nodes[name]
        value = self._known(tensor)
        if value is not None:
            if value.size > _LARGEST or value.dtype == object:
                return False
            copy = graph.node.add(op="Const", name=f"{name}/{port}")
            copy.attr["dtype"].CopyFrom(attribute(value.dtype))
            copy.attr["value"].CopyFrom(attribute(value))
        else:
            if node.op not in _FOLDED:
                return False
            operands = [self._loops.resolve(operand) for operand in node.input if not operand.startswith("^")]
            # A list rather than a generator: an operand may appear twice, and must be known the second time.
            if not all([self._collect(operand, graph, made) for operand in operands]):
                return False
            copy = graph.node.add(op=node.op, name=f"{name}/{port}")
            copy.input.extend(operand.replace(":", "/") for operand in operands)
            for key, attr in node.attr.items():
                if not key.startswith("_"):
                    copy.attr[key].CopyFrom(attr)
        made[tensor] = port == 0 or name in self._loops.loops
        return made[tensor]

    def _known(self, tensor: str) -> Array | None:
        """Returns the value of a tensor that needs no evaluation, or None."""
        name, port = tensor_name(tensor)
        node = self._loops.nodes[name]
        if node.op == "Const":
            return literal(node)
        if node.op in ("Shape", "Size"):
            shape = self._loops.shape(node.input[0])
            dtype = np.int64 if node.attr["out_type"].type == types_pb2.DT_INT64 else np.int32
            return None if shape is None else np.array(shape if node.op == "Shape" else int(np.prod(shape)), dtype)
        return self._loops.loops[name].steps.last(port) if name in self._loops.loops else None
