"""Rewrites gradients of convolutions in terms of ops that the compiler or TensorFlow supports.

XLA for CPUs can't compile the gradient with respect to the kernel of a grouped convolution, or of a depthwise one whose
multiplier is above 1. TensorFlow's own kernels, without oneDNN, have no gradients of grouped or dilated convolutions.
Each such gradient equals a handful of convolutions that both support.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.attributes import Shape, shape_of
from tfaot.graph.functions import EditableFunction
from tfaot.graph.program import Program
from tfaot.graph.splice import Build, FunctionTarget, GraphTarget, Target, splice

_BY_KERNEL = "Conv2DBackpropFilter"
_BY_INPUT = "Conv2DBackpropInput"
_DEPTHWISE = "DepthwiseConv2dNativeBackpropFilter"


def for_xla(program: Program) -> int:
    """Rewrites gradients with respect to kernels that XLA can't compile, and returns how many there were."""
    count = 0
    if any_by_kernel(program.graph):
        tensors = program.tensors()
        for node in [*program.graph.node]:
            if node.op not in (_BY_KERNEL, _DEPTHWISE):
                continue
            build = _Gradient.of(node, _shapes(node, lambda tensor: tensors[tensor].shape), dilated=True)
            if build is not None and not build.native:
                _splice(GraphTarget(program), node, build.rewritten)
                count += 1
    return count


def any_by_kernel(graph: graph_pb2.GraphDef) -> bool:
    """Returns whether a graph has gradients with respect to kernels, which `for_xla` may have to rewrite."""
    return _any(graph, {_BY_KERNEL, _DEPTHWISE})


def for_tensorflow(graph: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """Rewrites gradients of grouped and dilated convolutions, also in functions. Returns a new graph, or the given one."""
    import tensorflow as tf
    from tensorflow.python.framework import function_def_to_graph

    if not _any(graph, {_BY_KERNEL, _BY_INPUT}):
        return graph
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph)
    with tf.Graph().as_default() as built:
        tf.import_graph_def(graph, name="")
        shapes = _known(built)
        _rewrite_all(GraphTarget(Program(result, {}, ())), shapes)
        library = {function.signature.name: function for function in graph.library.function}
        for function in result.library.function:
            if any(node.op in (_BY_KERNEL, _BY_INPUT) for node in function.node_def):
                body = EditableFunction(function, library)
                inner = function_def_to_graph.function_def_to_graph(function)
                if _rewrite_all(FunctionTarget(body), _known(inner)):
                    function.CopyFrom(body.function(function.signature.name))
    return result


def _any(graph: graph_pb2.GraphDef, ops: set[str]) -> bool:
    return any(
        node.op in ops for nodes in (graph.node, *(f.node_def for f in graph.library.function)) for node in nodes
    )


def _known(built: Any) -> dict[str, Shape]:
    return {tensor.name: shape_of(tensor.shape) for operation in built.get_operations() for tensor in operation.outputs}


def _rewrite_all(target: Target, shapes: Mapping[str, Shape]) -> int:
    count = 0
    for node in [*target.nodes()]:
        if node.op in (_BY_KERNEL, _BY_INPUT):
            build = _Gradient.of(node, _shapes(node, shapes.get), dilated=False)
            if build is not None and (build.groups > 1 or build.dilations != (1, 1)):
                _splice(target, node, build.rewritten)
                count += 1
    return count


def _shapes(node: node_def_pb2.NodeDef, shape: Callable[[str], Shape]) -> tuple[Shape, ...]:
    """Returns the shapes of a node's operands, then the shape of its result."""
    names = [*(operand for operand in node.input if not operand.startswith("^")), node.name]
    return tuple(shape(name if ":" in name else f"{name}:0") for name in names)


@dataclasses.dataclass(frozen=True)
class _Gradient:
    """A gradient of a convolution with respect to its kernel or input."""

    node: node_def_pb2.NodeDef
    kernel: tuple[int, int, int, int]
    """The kernel's sizes. Convolution: height, width, channels per group, results. Depthwise: channels, multiplier."""
    groups: int
    axis: int
    """The axis of the channels."""
    dilated: bool
    """Whether the op itself handles dilation."""

    @staticmethod
    def of(node: node_def_pb2.NodeDef, shapes: tuple[Shape, ...], *, dilated: bool) -> _Gradient | None:
        """Reads a node. Returns None if its shapes aren't known well enough."""
        axis = 1 if node.attr["data_format"].s == b"NCHW" else 3
        first, second, _, result = shapes
        kernel, image = (second, result) if node.op == _BY_INPUT else (result, first)
        if kernel is None or image is None or len(kernel) != 4 or len(image) != 4:
            return None
        height, width, channels, results = kernel
        depth = image[axis]
        if height is None or width is None or not channels or not results or not depth:
            return None
        groups = depth if node.op == _DEPTHWISE else depth // channels
        return _Gradient(node, (height, width, channels, results), groups, axis, dilated)

    @property
    def native(self) -> bool:
        """Whether XLA compiles it as is."""
        if self.node.op == _DEPTHWISE:
            return self.kernel[3] == 1
        return self.groups == 1 or (self.kernel[2] == 1 and self.kernel[3] == self.groups)

    @property
    def dilations(self) -> tuple[int, int]:
        """The dilation of rows and columns."""
        return self._along("dilations")

    def _along(self, key: str) -> tuple[int, int]:
        values = [*self.node.attr[key].list.i] or [1, 1, 1, 1]
        return (values[1], values[2]) if self.axis == 3 else (values[2], values[3])

    def rewritten(self, *operands: Any) -> Any:
        """Returns the gradient in terms of its operands."""
        if self.node.op == _BY_INPUT:
            return self._by_input(*operands)
        if self.node.op == _DEPTHWISE:
            return self._by_multipliers(*operands)
        return self._by_kernel(*operands)

    def _by_kernel(self, image: Any, _: Any, gradient: Any) -> Any:
        import tensorflow as tf

        height, width, channels, results = self.kernel
        multiplier = results // self.groups
        rows, columns = self._along("strides")
        # TensorFlow's depthwise convolutions require equal strides.
        if channels * multiplier < self.groups and rows == columns:
            parts = [
                tf.concat(
                    [
                        self._one(
                            _DEPTHWISE,
                            self._every(image, i, channels),
                            (self.groups, 1),
                            self._every(gradient, o, multiplier),
                        )
                        for o in range(multiplier)
                    ],
                    3,
                )
                for i in range(channels)
            ]
            return tf.concat([tf.reshape(part, (height, width, 1, results)) for part in parts], 2)
        images, gradients = (tf.split(tensor, self.groups, self.axis) for tensor in (image, gradient))
        of_groups = [
            self._one(_BY_KERNEL, x, (channels, multiplier), dy) for x, dy in zip(images, gradients, strict=True)
        ]
        return tf.concat(of_groups, 3)

    def _by_multipliers(self, image: Any, _: Any, gradient: Any) -> Any:
        import tensorflow as tf

        multiplier = self.kernel[3]
        parts = [self._every(gradient, m, multiplier) for m in range(multiplier)]
        return tf.concat([self._one(_DEPTHWISE, image, (self.groups, 1), part) for part in parts], 3)

    def _by_input(self, sizes: Any, kernel: Any, gradient: Any) -> Any:
        import tensorflow as tf

        if not self.dilated:
            kernel = self._spread(kernel)
        channels = tf.constant([self.kernel[2]], sizes.dtype)
        part = tf.concat([sizes[: self.axis], channels, sizes[self.axis + 1 :]], 0)
        pairs = zip(tf.split(kernel, self.groups, 3), tf.split(gradient, self.groups, self.axis), strict=True)
        parts = [
            tf.raw_ops.Conv2DBackpropInput(input_sizes=part, filter=w, out_backprop=dy, **self._attributes())
            for w, dy in pairs
        ]
        return tf.concat(parts, self.axis)

    def _one(self, op: str, image: Any, last: tuple[int, int], gradient: Any) -> Any:
        """Returns a gradient without groups, for a kernel whose last two sizes are given."""
        import tensorflow as tf

        sizes = [*self.kernel[:2], *last]
        step = (1, 1)
        if not self.dilated:
            # The gradient with respect to a kernel with zeros between its values. Only the places of the values are kept.
            step = self.dilations
            sizes[:2] = [(size - 1) * dilation + 1 for size, dilation in zip(sizes, step, strict=False)]
        raw = getattr(tf.raw_ops, op)
        result = raw(input=image, filter_sizes=sizes, out_backprop=gradient, **self._attributes())
        return result[:: step[0], :: step[1]] if step != (1, 1) else result

    def _spread(self, kernel: Any) -> Any:
        """Inserts zeros between a kernel's values."""
        import tensorflow as tf

        height, width, *last = self.kernel
        rows, columns = self.dilations
        wide = tf.pad(
            tf.reshape(kernel, (height, 1, width, 1, *last)),
            ((0, 0), (0, rows - 1), (0, 0), (0, columns - 1), (0, 0), (0, 0)),
        )
        whole = tf.reshape(wide, (height * rows, width * columns, *last))
        return whole[: (height - 1) * rows + 1, : (width - 1) * columns + 1]

    def _every(self, tensor: Any, first: int, step: int) -> Any:
        """Takes every `step`-th channel of an image, starting at `first`."""
        index = (*[slice(None)] * self.axis, slice(first, None, step))
        return tensor[index] if step > 1 else tensor

    def _attributes(self) -> dict[str, Any]:
        """Returns the attributes of the ops that replace this one."""
        attributes = self.node.attr
        return {
            "strides": [*attributes["strides"].list.i],
            "padding": attributes["padding"].s.decode(),
            "explicit_paddings": [*attributes["explicit_paddings"].list.i],
            "data_format": attributes["data_format"].s.decode() or "NHWC",
            "dilations": [*attributes["dilations"].list.i] if self.dilated else [1, 1, 1, 1],
        }


_SIZES: Mapping[str, int] = {_BY_KERNEL: 1, _BY_INPUT: 0, _DEPTHWISE: 1}
"""The index of the operand that gives the shape of a gradient's result."""


def _splice(target: Target, node: node_def_pb2.NodeDef, build: Build) -> None:
    import tensorflow as tf

    count = sum(not operand.startswith("^") for operand in node.input)
    types = [tf.int32 if index == _SIZES[node.op] else node.attr["T"].type for index in range(count)]
    splice(target, node, [tf.TensorSpec(None, dtype) for dtype in types], build)
