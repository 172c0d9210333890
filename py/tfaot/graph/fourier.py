"""Rewrites Fourier transforms for XLA: each becomes the mark of a call of the runtime (`tfaot.xla.marks`).

A call transforms its rows in place. A row of real values is stored in the place of its transform's complex values, which are one
or two values more.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.core.errors import TfaotError
from tfaot.graph.attributes import Shape, shape_of
from tfaot.graph.functions import EditableFunction
from tfaot.graph.ops import IDENTITIES
from tfaot.graph.program import Program
from tfaot.graph.splice import FunctionTarget, GraphTarget, Target, splice
from tfaot.xla import marks

CALL = 1
"""The first number of the mark. The others are the kind (`KINDS`), whether the transform is inverse, and the axes' lengths."""
KINDS = ("Complex", "RealToComplex", "ComplexToReal")

_OP = re.compile(r"(I?)(R?)FFT(|2D|3D|ND)")
_RANKS = {"": 1, "2D": 2, "3D": 3}


def any_transform(graph: graph_pb2.GraphDef) -> bool:
    """Returns whether a graph has Fourier transforms."""
    return any(
        _OP.fullmatch(node.op)
        for nodes in (graph.node, *(function.node_def for function in graph.library.function))
        for node in nodes
    )


def for_xla(program: Program) -> int:
    """Rewrites all transforms, also in functions, and returns how many there were.

    Raises:
      TfaotError: a transform's size isn't known.
    """
    from tensorflow.python.framework import function_def_to_graph

    graph = program.graph
    if not any_transform(graph):
        return 0
    orders: dict[str, Any] = {}
    tensors = program.tensors()
    count = _rewrite(GraphTarget(program), program.nodes(), lambda name: tensors[name].shape, orders)
    library = {function.signature.name: function for function in graph.library.function}
    for function in graph.library.function:
        if any(_OP.fullmatch(node.op) for node in function.node_def):
            body = EditableFunction(function, library)
            inner = function_def_to_graph.function_def_to_graph(function)
            shapes = {
                tensor.name: shape_of(tensor.shape) for operation in inner.get_operations() for tensor in operation.outputs
            }
            count += _rewrite(FunctionTarget(body), body.nodes, shapes.get, orders)
            function.CopyFrom(body.function(function.signature.name))
    graph.library.function.extend(orders[name] for name in sorted(orders))
    return count


def _rewrite(
    target: Target, nodes: Mapping[str, node_def_pb2.NodeDef], shape: Callable[[str], Shape], orders: dict[str, Any]
) -> int:
    import tensorflow as tf

    count = 0
    for node in [*nodes.values()]:
        match = _OP.fullmatch(node.op)
        if match is None:
            continue
        operands = [name if ":" in name else f"{name}:0" for name in node.input if not name.startswith("^")]
        sizes = shape(operands[0])
        constants = [_constant(nodes, name) for name in operands[1:]]
        if sizes is None or None in sizes or any(constant is None for constant in constants):
            raise TfaotError(
                f"{node.name}: {node.op} of a size that is known only at run time",
                exists=f"an input of shape {list(sizes) if sizes is not None else 'of unknown rank'}",
                do="give the model fixed sizes along the transform's axes, and a constant fft_length",
            )
        transform = _Transform.of(match, [size or 0 for size in sizes], constants)
        types = [node.attr["Treal" if transform.kind == "RealToComplex" else "Tcomplex"].type]
        specs = [tf.TensorSpec(sizes, types[0]), *(tf.TensorSpec(None, tf.int32) for _ in operands[1:])]
        splice(target, node, specs, lambda x, *_, transform=transform: transform.built(x, orders))
        count += 1
    return count


def _constant(nodes: Mapping[str, node_def_pb2.NodeDef], tensor: str) -> list[int] | None:
    import tensorflow as tf

    node = nodes.get(tensor.partition(":")[0])
    while node is not None and node.op in IDENTITIES:
        node = nodes.get(node.input[0].partition(":")[0])
    if node is None or node.op != "Const":
        return None
    return [int(value) for value in tf.make_ndarray(node.attr["value"].tensor).ravel()]


@dataclasses.dataclass(frozen=True)
class _Transform:
    """A transform along some axes, the last of which has half of a real transform's result."""

    kind: str
    inverse: bool
    axes: tuple[int, ...]
    lengths: tuple[int, ...]
    """The number of values along each axis, of the real side of a real transform."""

    @staticmethod
    def of(match: re.Match[str], sizes: list[int], constants: list[list[int] | None]) -> _Transform:
        """Reads an op, given its input's shape and the values of its other operands."""
        inverse, real, suffix = match.groups()
        rank = len(sizes)
        if suffix == "ND":
            axes = tuple(axis % rank for axis in constants[1] or ())
        else:
            axes = tuple(range(rank - _RANKS[suffix], rank))
        lengths = tuple(constants[0] or ()) if constants else tuple(sizes[axis] for axis in axes)
        kind = KINDS[(2 if inverse else 1) if real else 0]
        return _Transform(kind, bool(inverse), axes, lengths)

    def built(self, x: Any, orders: dict[str, Any]) -> Any:
        """Returns the transform in terms of its input, and adds the orders of its marks to `orders`."""
        import tensorflow as tf

        rank = x.shape.rank
        others = [axis for axis in range(rank) if axis not in self.axes]
        order = [*others, *self.axes]
        x = tf.transpose(x, order) if order != [*range(rank)] else x
        x = self._sized(x)
        row = self.lengths[-1] // 2 + 1
        if self.kind == "RealToComplex":
            x = tf.pad(x, [(0, 0)] * (rank - 1) + [(0, 2 * row - self.lengths[-1])])
            pairs = tf.reshape(x, [*x.shape[:-1], row, 2])
            x = tf.complex(pairs[..., 0], pairs[..., 1])
        if 0 not in x.shape:
            x = self._marked(x, orders)
        if self.kind == "ComplexToReal":
            pairs = tf.stack([tf.math.real(x), tf.math.imag(x)], -1)
            x = tf.reshape(pairs, [*x.shape[:-1], 2 * row])[..., : self.lengths[-1]]
        back = [order.index(axis) for axis in range(rank)]
        return tf.transpose(x, back) if order != [*range(rank)] else x

    def _sized(self, x: Any) -> Any:
        """Cuts off or adds zeros, so that the axes have their lengths."""
        import tensorflow as tf

        wanted = [*x.shape[: -len(self.axes)], *self.lengths]
        if self.kind == "ComplexToReal":
            wanted[-1] = self.lengths[-1] // 2 + 1
        x = x[tuple(slice(0, size) for size in wanted)]
        return tf.pad(x, [(0, size - has) for size, has in zip(wanted, x.shape, strict=True)])

    def _marked(self, x: Any, orders: dict[str, Any]) -> Any:
        import tensorflow as tf
        from tensorflow.compiler.tf2xla.ops import gen_xla_ops

        sizes = [*x.shape]
        axis = max(range(len(sizes)), key=lambda axis: (sizes[axis] > 1, axis))
        numbers = (CALL, KINDS.index(self.kind), int(self.inverse), *self.lengths)
        name = "_".join(["tfaot_fourier", x.dtype.name, *map(str, numbers[1:])])
        if math.prod(sizes) == 1:
            return tf.reshape(x, sizes)
        if name not in orders:
            with tf.init_scope():
                orders[name] = marks.order(name, numbers, x.dtype)
        (result,) = gen_xla_ops.xla_variadic_sort([x], axis, comparator=name, is_stable=False)
        return result
