"""Takes the pixels that a resize reads out of an image of any size, so that the rest of the resize compiles. Pure.

Each pixel of a resized image is a mean of four pixels of the original. TensorFlow gathers those, and there are as many as the
resized image needs, whatever the size of the original. What comes before the resize, such as a conversion, then compiles, too.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.cluster.batches import static
from tfaot.cluster.predicates import ALWAYS, Predicate
from tfaot.export.traced import Array
from tfaot.graph.attributes import constant_of, type_attribute
from tfaot.graph.edits import Scope, replace, set_attributes
from tfaot.graph.names import canonical, producer
from tfaot.graph.program import Tensor

RESIZES = frozenset({"ResizeBilinear"})
"""The ops that are taken apart."""

_POINTWISE = frozenset({"Add", "AddV2", "Cast", "Maximum", "Minimum", "Mul", "RealDiv", "Sub"})
_FLOAT, _INDEX = types_pb2.DT_FLOAT, types_pb2.DT_INT32


def sample(
    graph: graph_pb2.GraphDef,
    tensors: Mapping[str, Tensor],
    when: Mapping[str, Predicate],
    fetched: Collection[str],
) -> Mapping[str, tuple[str, ...]]:
    """Takes the resizes of images of open size to a known size apart, in place.

    Args:
      graph: all calls are inlined, and each node comes after its operands.
      tensors: what TensorFlow infers, by `node:port`.
      when: when each node runs. Resizes in branches and loops stay as they are.
      fetched: the nodes of the outputs.

    Returns:
      The nodes that compute on pixels, and the node of the model that each stands for.
    """
    found: dict[str, tuple[str, ...]] = {}
    nodes = {node.name: node for node in graph.node}
    users = Counter(producer(operand) for node in graph.node for operand in node.input) + Counter(fetched)
    for node in list(graph.node):
        shape = tensors[canonical(node.input[0])].shape if node.op in RESIZES else None
        if not shape or when[node.name] != ALWAYS or node.attr["align_corners"].b:
            continue
        size = constant_of(nodes, node.input[1])
        if size is None or static(shape) or shape[0] is None or shape[3] is None:
            continue
        before = _Before(nodes, tensors, users).of(node.input[0])
        found |= _Resize(graph, node, tensors, [int(each) for each in size]).taken_apart(before)
    return found


@dataclasses.dataclass
class _Before:
    """Finds what computes an image from another, each pixel by itself."""

    nodes: Mapping[str, node_def_pb2.NodeDef]
    tensors: Mapping[str, Tensor]
    users: Mapping[str, int]

    def of(self, operand: str) -> list[tuple[node_def_pb2.NodeDef, int]]:
        """Returns nodes and the position of their image, the last one first. Nothing else uses what they compute."""
        found = []
        while True:
            node = self.nodes[producer(operand)]
            position = self._image(node)
            if position is None or self.users[node.name] > 1 or any(each.startswith("^") for each in node.input):
                return found
            found.append((node, position))
            operand = node.input[position]

    def _image(self, node: node_def_pb2.NodeDef) -> int | None:
        if node.op in _POINTWISE:
            ranks = [len(self.tensors[canonical(operand)].shape or ()) for operand in node.input]
            return ranks.index(max(ranks)) if sum(rank > 0 for rank in ranks) == 1 and max(ranks) > 2 else None
        if node.op == "ExpandDims":
            axis = constant_of(self.nodes, node.input[1])
            return 0 if axis is not None and int(axis) == 0 and self._rank(node) == 3 else None
        if node.op == "StridedSlice":  # x[tf.newaxis]
            masks = [node.attr[f"{mask}_mask"].i for mask in ("new_axis", "begin", "end", "ellipsis", "shrink_axis")]
            begin = self.tensors[canonical(node.input[1])].shape
            return 0 if masks == [1, 0, 0, 0, 0] and begin == (1,) and self._rank(node) == 3 else None
        return None

    def _rank(self, node: node_def_pb2.NodeDef) -> int:
        return len(self.tensors[canonical(node.input[0])].shape or ())


class _Resize:
    """Writes the nodes for one resize, as TensorFlow's kernel computes it."""

    def __init__(
        self,
        graph: graph_pb2.GraphDef,
        node: node_def_pb2.NodeDef,
        tensors: Mapping[str, Tensor],
        size: Sequence[int],
    ) -> None:
        self._scope = Scope.graph(graph)
        self._node = node
        self._tensors = tensors
        self._size = size

    def taken_apart(self, before: Sequence[tuple[node_def_pb2.NodeDef, int]]) -> dict[str, tuple[str, ...]]:
        """Replaces the node. Returns the nodes that compute on pixels, and what each stands for."""
        source = before[-1][0].input[before[-1][1]] if before else self._node.input[0]
        image = self._tensors[canonical(source)]
        axis = len(image.shape or ()) - 3
        sizes = self._add("Shape", [source], {"T": image.dtype, "out_type": _INDEX})
        rows, down = self._places(sizes, axis, self._size[0])
        columns, across = self._places(sizes, axis + 1, self._size[1])
        pixels = self._gather(self._gather(source, rows, axis, image.dtype), columns, axis + 1, image.dtype)
        stands: dict[str, tuple[str, ...]] = {}
        for node, position in reversed(before):
            copy = self._scope.nodes.add()
            copy.CopyFrom(node)
            copy.name = self._scope.take(f"{node.name}/tfaot_pixels")
            copy.input[position] = pixels
            stands[copy.name] = (node.name,)
            pixels = copy.name
        given = self._node.attr["T"].type
        if given != _FLOAT:
            pixels = self._add("Cast", [pixels], {"SrcT": given, "DstT": _FLOAT})
            stands[pixels] = (self._node.name,)
        halves = self._split(pixels, 1)
        (left, right), (low_left, low_right) = self._split(halves[0], 2), self._split(halves[1], 2)
        ways = [self._reshaped(across, [1, 1, -1, 1]), self._reshaped(down, [1, -1, 1, 1])]
        made: list[str] = []

        def between(first: str, second: str, way: str) -> str:
            for op, operands in (("Sub", (second, first)), ("Mul", (None, way)), ("AddV2", (first, None))):
                made.append(self._add(op, [each or made[-1] for each in operands], {"T": _FLOAT}))
            return made[-1]

        result = between(between(left, right, ways[0]), between(low_left, low_right, ways[0]), ways[1])
        replace(self._node, "Identity", [result], {"T": type_attribute(_FLOAT)})
        return {**stands, **dict.fromkeys(made, (self._node.name,))}

    def _places(self, sizes: str, axis: int, count: int) -> tuple[str, str]:
        """Returns the places of the pixels on both sides of each resized one, and how far it is from the first of them."""
        half = self._node.attr["half_pixel_centers"].b
        size = self._gather(sizes, self._constant(np.int32(axis)), 0, _INDEX)
        scale = self._floats("RealDiv", self._cast(size, _INDEX, _FLOAT), self._constant(np.float32(count)))
        at = self._floats("Mul", self._constant(np.arange(count, dtype=np.float32) + np.float32(half / 2)), scale)
        if half:
            at = self._floats("Sub", at, self._constant(np.float32(0.5)))
        floor = self._floats("Floor", at)
        lower = self._integers("Maximum", self._cast(floor, _FLOAT, _INDEX), self._constant(np.int32(0)))
        last = self._integers("Sub", size, self._constant(np.int32(1)))
        upper = self._integers("Minimum", self._cast(self._floats("Ceil", at), _FLOAT, _INDEX), last)
        places = self._add(
            "ConcatV2", [lower, upper, self._constant(np.int32(0))], {"T": _INDEX, "Tidx": _INDEX}, N=2
        )
        return places, self._floats("Sub", at, floor)

    def _gather(self, tensor: str, places: str, axis: int, dtype: int) -> str:
        types = {"Tparams": dtype, "Tindices": _INDEX, "Taxis": _INDEX}
        return self._add("GatherV2", [tensor, places, self._constant(np.int32(axis))], types)

    def _split(self, tensor: str, axis: int) -> tuple[str, str]:
        name = self._add("Split", [self._constant(np.int32(axis)), tensor], {"T": _FLOAT}, num_split=2)
        return name, f"{name}:1"

    def _reshaped(self, tensor: str, shape: Sequence[int]) -> str:
        return self._add("Reshape", [tensor, self._constant(np.array(shape, np.int32))], {"T": _FLOAT, "Tshape": _INDEX})

    def _cast(self, tensor: str, source: int, result: int) -> str:
        return self._add("Cast", [tensor], {"SrcT": source, "DstT": result})

    def _floats(self, op: str, *operands: str) -> str:
        return self._add(op, operands, {"T": _FLOAT})

    def _integers(self, op: str, *operands: str) -> str:
        return self._add(op, operands, {"T": _INDEX})

    def _constant(self, value: Array | np.generic) -> str:
        node = self._scope.add(f"{self._node.name}/tfaot_constant", "Const", [], {})
        set_attributes(node, {"dtype": value.dtype, "value": np.asarray(value)})
        return node.name

    def _add(self, op: str, operands: Sequence[str], types: Mapping[str, int], **numbers: int) -> str:
        return self._scope.add(f"{self._node.name}/tfaot_{op}", op, operands, types, **numbers).name
