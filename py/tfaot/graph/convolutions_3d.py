"""Rewrites convolutions in three dimensions, and their gradients, as ones in two, the only ones that tfcompile takes.

The slices of the input that meet a kernel's depth become channels. A gradient is that of the convolution in two dimensions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.core.framework import node_def_pb2

from tfaot.core.errors import TfaotError
from tfaot.graph.attributes import Shape
from tfaot.graph.program import Program
from tfaot.graph.splice import Target, operands, rewrite_nodes, splice

OPS = ("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")


def for_xla(program: Program) -> int:
    """Rewrites all convolutions, also in functions, and returns how many there were.

    Raises:
      TfaotError: a size isn't known.
    """
    return rewrite_nodes(program, OPS.__contains__, _rewrite)


def _rewrite(
    target: Target, node: node_def_pb2.NodeDef, nodes: Mapping[str, node_def_pb2.NodeDef], shape: Callable[[str], Shape]
) -> None:
    import tensorflow as tf

    del nodes
    names = operands(node)
    # The operand that has a gradient gives only its sizes.
    place = {"Conv3DBackpropInputV2": 0, "Conv3DBackpropFilterV2": 1}.get(node.op)
    shapes = [shape(f"{node.name}:0" if index == place else name) for index, name in enumerate(names)]
    if any(sizes is None or None in sizes for sizes in shapes):
        raise TfaotError(
            f"{node.name}: {node.op} of a size that is known only at run time",
            exists=", ".join(map(str, shapes)),
            do="give the model fixed sizes",
        )
    dtype = node.attr["T"].type
    specs = [
        tf.TensorSpec(None, tf.int32) if index == place else tf.TensorSpec(sizes, dtype)
        for index, sizes in enumerate(shapes)
    ]
    convolution = _Convolution.of(node)

    def gradient(*values: Any) -> Any:
        operands = [tf.zeros(shapes[index], dtype) if index == place else value for index, value in enumerate(values)]
        image, kernel, outer = operands
        (result,) = tf.gradients(convolution.built(image, kernel), image if place == 0 else kernel, outer)
        return result

    splice(target, node, specs, convolution.built if place is None else gradient)


@dataclasses.dataclass(frozen=True)
class _Convolution:
    """A convolution's attributes, for depth, height, and width."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: str
    channels_first: bool

    @staticmethod
    def of(node: node_def_pb2.NodeDef) -> _Convolution:
        """Reads a node."""
        first = node.attr["data_format"].s == b"NCDHW"
        spatial = slice(2, 5) if first else slice(1, 4)
        strides, dilations = ([*node.attr[key].list.i] or [1] * 5 for key in ("strides", "dilations"))
        return _Convolution(tuple(strides[spatial]), tuple(dilations[spatial]), node.attr["padding"].s.decode(), first)

    def built(self, image: Any, kernel: Any) -> Any:
        """Returns the convolution of an image [batch, depth, height, width, channels] with a kernel."""
        import tensorflow as tf

        if self.channels_first:
            image = tf.transpose(image, [0, 2, 3, 4, 1])
        batch, depth, *size, channels = image.shape
        taps, *window, inputs, filters = kernel.shape
        step, spread = self.strides[0], self.dilations[0]
        reach = (taps - 1) * spread + 1
        steps = -(-(depth if self.padding == "SAME" else depth - reach + 1) // step)
        total = max((steps - 1) * step + reach - depth, 0) if self.padding == "SAME" else 0
        image = tf.pad(image, [(0, 0), (total // 2, total - total // 2), *[(0, 0)] * 3])
        # Groups stay together: [batch, steps, height, width, group, tap, channel].
        image = tf.reshape(image, [batch, image.shape[1], *size, channels // inputs, inputs])
        slices = [image[:, tap * spread : tap * spread + (steps - 1) * step + 1 : step] for tap in range(taps)]
        flat = tf.reshape(tf.stack(slices, -2), [batch * steps, *size, taps * channels])
        kernel = tf.reshape(tf.transpose(kernel, [1, 2, 0, 3, 4]), [*window, taps * inputs, filters])
        result = tf.nn.conv2d(flat, kernel, self.strides[1:], self.padding, dilations=self.dilations[1:])
        result = tf.reshape(result, [batch, steps, *result.shape[1:]])
        return tf.transpose(result, [0, 4, 1, 2, 3]) if self.channels_first else result
