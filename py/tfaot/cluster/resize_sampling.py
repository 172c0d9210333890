"""Resizes of images of any size to a known size, which read as many pixels as the result needs, whatever the image's size. Pure.

What comes before the resize and computes each pixel by itself gives the same result on these pixels alone. So a cluster can take
both: its argument is a sample of the image, and all of its sizes are known. The op with which TensorFlow calls the cluster makes
the sample (`runtime/tfaot/sample.h`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.cluster.predicates import Predicate
from tfaot.export.traced import Array
from tfaot.graph.attributes import constant_of
from tfaot.graph.edits import Scope, replace, set_attributes
from tfaot.graph.names import canonical, producer
from tfaot.graph.ops import IDENTITIES
from tfaot.graph.program import Tensor

RESIZES = frozenset({"ResizeBilinear", "ResizeNearestNeighbor"})
"""The ops that can read a sample."""

_POINTWISE = IDENTITIES | {
    "Abs",
    "Add",
    "AddV2",
    "Cast",
    "Div",
    "DivNoNan",
    "Exp",
    "Log",
    "Maximum",
    "Minimum",
    "Mul",
    "Neg",
    "Pow",
    "RealDiv",
    "Relu",
    "Relu6",
    "Rsqrt",
    "Sigmoid",
    "Sqrt",
    "Square",
    "Sub",
    "Tanh",
}
"""Ops that compute each value by itself."""

_FLOAT, _INDEX = types_pb2.DT_FLOAT, types_pb2.DT_INT32


@dataclasses.dataclass(frozen=True)
class Sample:
    """An argument of a cluster: the pixels of an image that a resize reads, and how to weigh them."""

    path: tuple[tuple[str, str], ...]
    """Nodes from the image to the resize, each with the operand that is the image or is computed from it, `node:port`."""
    size: tuple[int, int]
    """The result's height and width."""
    nearest: bool
    """Whether each pixel of the result is one of the image, rather than a mean of four."""
    half_pixel_centers: bool
    align_corners: bool

    @property
    def image(self) -> str:
        """The tensor of which it is a sample."""
        return self.path[0][1]

    @property
    def resize(self) -> str:
        """The node that reads it."""
        return self.path[-1][0]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that compute on it."""
        return tuple(name for name, _ in self.path)

    @property
    def code(self) -> int:
        """Says to the op how to make it. The bits are those in `runtime/tfaot/tensorflow_op.cc`; zero is no sample."""
        return 1 + 2 * self.nearest + 4 * self.half_pixel_centers + 8 * self.align_corners

    def within(self, inside: Collection[str]) -> Sample:
        """Returns the same for a cluster, which may lack the first nodes."""
        return dataclasses.replace(self, path=tuple(step for step in self.path if step[0] in inside))

    def parts(self, image: Tensor) -> list[Tensor]:
        """Returns what the cluster takes: the pixels, and for means, the weights of rows and of columns.

        The pixels of means are four images in one: those above and below each place, and in each of these, those to the left and
        to the right.
        """
        height, width = self.size
        around = 1 if self.nearest else 2
        *first, _, _, channels = image.shape or ()
        pixels = Tensor((*first, around * height, around * width, channels), image.dtype)
        return [pixels] if self.nearest else [pixels, Tensor((height,), _FLOAT), Tensor((width,), _FLOAT)]

    def values(self, image: Array) -> list[Array]:
        """Returns the values of these parts, for tests."""
        axes = [self._places(count, size) for count, size in zip(self.size, image.shape[-3:-1], strict=True)]
        (rows, down), (columns, across) = axes
        pixels = image[..., rows, :, :][..., columns, :]
        return [pixels] if self.nearest else [pixels, down, across]

    def _places(self, count: int, size: int) -> tuple[Array, Array]:
        """Returns which rows or columns of an image a resize reads, and their weights, as TensorFlow computes them."""
        half = np.float32(0.5)
        index = np.arange(count, dtype=np.float32)
        corners = self.align_corners and count > 1
        scale = np.float32(size - corners) / np.float32(count - corners)
        at = (index + half) * scale if self.half_pixel_centers else index * scale
        if self.nearest:
            near = np.floor(at.astype(np.float64) + 0.5) if self.align_corners else np.floor(at)
            return np.clip(near.astype(np.int64), 0, size - 1), np.zeros(0, np.float32)
        at = at - half if self.half_pixel_centers else at
        floor = np.floor(at)
        upper = np.minimum(np.ceil(at).astype(np.int64), size - 1)
        lower = np.minimum(np.maximum(floor.astype(np.int64), 0), upper)
        return np.concatenate([lower, upper]), at - floor

    def interpolate(self, graph: graph_pb2.GraphDef, weights: Sequence[str]) -> None:
        """Replaces the resize by what computes its result from the sample, in a cluster's graph."""
        scope = Scope.graph(graph)
        node = next(candidate for candidate in graph.node if candidate.name == self.resize)
        dtype = node.attr["T"].type
        if self.nearest:
            replace(node, "Identity", node.input[:1], {"T": node.attr["T"]})
            return

        def add(op: str, operands: Sequence[str], types: Mapping[str, int], **numbers: int) -> str:
            return str(scope.add(f"{self.resize}/tfaot_{op}", op, operands, types, **numbers).name)

        def constant(value: object) -> str:
            made = scope.add(f"{self.resize}/tfaot_constant", "Const", [], {"dtype": _INDEX})
            set_attributes(made, {"value": np.array(value, np.int32)})
            return str(made.name)

        def halves(tensor: str, axis: int) -> tuple[str, str]:
            name = add("Split", [constant(axis), tensor], {"T": _FLOAT}, num_split=2)
            return name, f"{name}:1"

        def between(first: str, second: str, weight: str) -> tuple[str, str]:
            difference = add("Sub", [second, first], {"T": _FLOAT})
            return first, add("Mul", [difference, weight], {"T": _FLOAT})

        pixels = node.input[0]
        if dtype != _FLOAT:
            pixels = add("Cast", [pixels], {"SrcT": dtype, "DstT": _FLOAT})
        down, across = (
            add("Reshape", [weight, constant(shape)], {"T": _FLOAT, "Tshape": _INDEX})
            for weight, shape in zip(weights, ([1, -1, 1, 1], [1, 1, -1, 1]), strict=True)
        )
        lines = [add("AddV2", between(*halves(line, 2), across), {"T": _FLOAT}) for line in halves(pixels, 1)]
        replace(node, "AddV2", between(lines[0], lines[1], down), {"T": node.attr["T"]})
        node.attr["T"].type = _FLOAT


def find(
    graph: graph_pb2.GraphDef,
    tensors: Mapping[str, Tensor],
    when: Mapping[str, Predicate],
    could: Collection[str],
    fetched: Collection[str],
) -> dict[str, Sample]:
    """Returns the resizes that can read a sample, by node.

    Args:
      graph: all calls are inlined.
      tensors: what TensorFlow infers, by `node:port`.
      when: when each node runs.
      could: the nodes that could be in a cluster if their sizes were known.
      fetched: the nodes of the outputs.
    """
    nodes = {node.name: node for node in graph.node}
    users = Counter(producer(operand) for node in graph.node for operand in node.input) + Counter(fetched)
    samples: dict[str, Sample] = {}
    for node in graph.node:
        if node.op not in RESIZES or node.name not in could:
            continue
        size = constant_of(nodes, node.input[1])
        half, corners = node.attr["half_pixel_centers"].b, node.attr["align_corners"].b
        if size is None or size.size != 2 or size.min() < 1 or (half and corners):
            continue
        path = [(node.name, canonical(node.input[0]))]
        while (operand := path[0][1]) and _fits(tensors[operand]):
            before = nodes[producer(operand)]
            position = _image(nodes, tensors, before) if before.name in could and users[before.name] == 1 else None
            if position is None or when[before.name] != when[node.name]:
                break
            path.insert(0, (before.name, canonical(before.input[position])))
        path = path if _fits(tensors[path[0][1]]) else path[1:]
        if path:
            height, width = map(int, size)
            samples[node.name] = Sample(tuple(path), (height, width), node.op != "ResizeBilinear", half, corners)
    return samples


def _fits(tensor: Tensor) -> bool:
    """Returns whether only the height and the width of an image are unknown."""
    return (
        tensor.shape is not None and len(tensor.shape) in (3, 4) and None not in (*tensor.shape[:-3], tensor.shape[-1])
    )


def _image(
    nodes: Mapping[str, node_def_pb2.NodeDef], tensors: Mapping[str, Tensor], node: node_def_pb2.NodeDef
) -> int | None:
    """Returns the operand of which a node computes each pixel by itself, or None if it does something else."""
    if any(operand.startswith("^") for operand in node.input):
        return None
    shapes = [tensors[canonical(operand)].shape for operand in node.input]
    if node.op in _POINTWISE:
        images = [index for index, shape in enumerate(shapes) if not _is_one_pixel(shape)]
        rank = len(shapes[images[0]] or ()) if len(images) == 1 else 0
        return images[0] if rank > 2 and all(shape is not None and len(shape) <= rank for shape in shapes) else None
    if len(shapes[0] or ()) != 3:
        return None
    if node.op == "ExpandDims":
        axis = constant_of(nodes, node.input[1])
        return 0 if axis is not None and int(axis) in (0, -4) else None
    if node.op == "StridedSlice":  # x[tf.newaxis]
        masks = [node.attr[f"{mask}_mask"].i for mask in ("new_axis", "begin", "end", "ellipsis", "shrink_axis")]
        return 0 if masks == [1, 0, 0, 0, 0] and shapes[1] == (1,) else None
    return None


def _is_one_pixel(shape: Sequence[int | None] | None) -> bool:
    """Returns whether all pixels of an image have the same operand of this shape."""
    return shape is not None and None not in shape and all(size == 1 for size in shape[-3:-1])
