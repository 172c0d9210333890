"""Which integers a graph accepts as inputs: indices below a table's size, lengths up to a mask's, and seeds of any size."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot.core import dtypes
from tfaot.core.drawn import Range
from tfaot.core.manifest import Manifest
from tfaot.core.session import session_config
from tfaot.verify.digest import Array

v1 = tf.compat.v1

ANY = 100
"""Where any integer will do, they are this large at most."""

_MOVES: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys(
        (
            "Bitcast",
            "BroadcastTo",
            "EnsureShape",
            "ExpandDims",
            "Identity",
            "MirrorPad",
            "Pad",
            "PadV2",
            "PreventGradient",
        ),
        (0,),
    ),
    **dict.fromkeys(
        ("Gather", "GatherNd", "GatherV2", "Reshape", "ReverseV2", "Roll", "Slice", "Snapshot", "Squeeze"), (0,)
    ),
    **dict.fromkeys(("SplitV", "StopGradient", "StridedSlice", "Tile", "Transpose", "Unpack"), (0,)),
    **dict.fromkeys(("Cast", "TopK", "TopKV2"), (0,)),
    **dict.fromkeys(("Select", "SelectV2"), (1, 2)),
    **dict.fromkeys(("ConcatV2", "IdentityN", "Pack"), None),
    "Split": (1,),
}
"""Ops that only move values, and the operands that these come from; None for all."""

_COMPARES = frozenset(
    [
        "Equal",
        "Greater",
        "GreaterEqual",
        "Less",
        "LessEqual",
        "LowerBound",
        "Maximum",
        "Minimum",
        "NotEqual",
        "UpperBound",
    ]
)

_COMPUTES = frozenset(
    """
    Abs Add AddN AddV2 All Any ArgMax ArgMin BitwiseAnd BitwiseOr BitwiseXor Cumsum Div FloorDiv FloorMod Invert LeftShift
    Max Mean Min Mod Mul Neg Prod RealDiv RightShift Sign Square SquaredDifference Sub Sum TruncateDiv TruncateMod
    ZerosLike OnesLike Shape Size Rank Bucketize
    """.split()  # noqa: SIM905
)
"""Ops that accept any integer, and whose results are others."""

_SEEDS = {"StatelessRandomGetKey": 0, "StatelessRandomUniformFullIntV2": 2}
"""The operand that is a seed. The export stage makes keys of seeds by drawing with them as the counter."""


@dataclasses.dataclass
class _Uses:
    """What is known about the uses of an input."""

    bounds: list[Range] = dataclasses.field(default_factory=list)
    """What indices must be in."""
    compared: list[Range] = dataclasses.field(default_factory=list)
    """The surroundings of what the input is compared with."""
    seed: bool = False
    unknown: bool = False


def ranges(graph: graph_pb2.GraphDef, manifest: Manifest) -> dict[str, Range | None]:
    """Returns the integers to draw for each integer input, by its TensorFlow name. None if a use is unknown.

    It follows values through ops that move them, and through additions of constants, but not into functions.
    """
    inputs = {
        tensor.name: tensor.dtype
        for entry in manifest.entry_points
        for tensor in entry.inputs
        if np.dtype(dtypes.BY_NAME[tensor.dtype].numpy()).kind in "iu"
    }
    if not inputs:
        return {}
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
        with v1.Session(graph=imported, config=session_config()) as session:
            return {name: _range(_Walk(imported, session).uses(name), dtype) for name, dtype in inputs.items()}


def _range(uses: _Uses, dtype: str) -> Range | None:
    info = np.iinfo(dtypes.BY_NAME[dtype].numpy())
    low, high = int(info.min), int(info.max) + 1
    if uses.bounds:
        low, high = max(low, *(bound.low for bound in uses.bounds)), min(high, *(bound.high for bound in uses.bounds))
        return Range(low, high) if low < high else None
    if uses.unknown:
        return None
    if uses.seed:
        return Range(low, high)
    if uses.compared:
        return Range(
            max(low, min(compared.low for compared in uses.compared)),
            min(high, max(compared.high for compared in uses.compared)),
        )
    return Range(max(low, -ANY), min(high, ANY))


class _Walk:
    """Follows one input."""

    def __init__(self, graph: tf.Graph, session: Any) -> None:
        self._graph = graph
        self._session = session

    def uses(self, name: str) -> _Uses:
        """Returns the uses of an input."""
        uses = _Uses()
        start = (name, 0)
        seen = {start}
        left = [start]
        while left:
            place, shift = left.pop()
            tensor = self._graph.get_tensor_by_name(place)
            for op in tensor.consumers():
                for index, operand in enumerate(op.inputs):
                    if operand is tensor:
                        for new in self._use(uses, op, index, shift):
                            if new not in seen:
                                seen.add(new)
                                left.append(new)
        return uses

    def _use(self, uses: _Uses, op: tf.Operation, index: int, shift: int) -> Iterator[tuple[str, int]]:
        """Notes what an op's operand may be: the input plus `shift`. Yields results that contain its values, as in `uses`."""
        size = self._size(op, index)
        if size is not None:
            uses.bounds.append(Range(-shift, size - shift))
        elif _SEEDS.get(op.type) == index:
            uses.seed = True
        elif op.type in _MOVES and ((moved := _MOVES[op.type]) is None or index in moved):
            if op.type != "Cast" or op.outputs[0].dtype.is_integer:
                yield from ((output.name, shift) for output in op.outputs if output.dtype.is_integer)
        elif op.type in _COMPARES:
            other = self._value(op.inputs[1 - index])
            if other is not None and other.size and other.dtype.kind in "iu":
                uses.compared.append(Range(min(0, int(other.min()) - 1) - shift, int(other.max()) + 2 - shift))
        elif op.type in ("Add", "AddV2", "Sub") and (added := self._value(op.inputs[1 - index])) is not None:
            if added.size == 1 and (op.type != "Sub" or index == 0):
                step = int(added.reshape(-1)[0])
                yield op.outputs[0].name, shift + (-step if op.type == "Sub" else step)
        elif op.type not in _COMPUTES:
            uses.unknown = True

    def _size(self, op: tf.Operation, index: int) -> int | None:
        """Returns what an operand must be below, if it is an index, and that is known."""
        kind = op.type
        if kind in ("Gather", "GatherV2") and index == 1:
            axis = self._number(op.inputs[2]) if kind == "GatherV2" else 0
            return None if axis is None else _dimension(op.inputs[0].shape, axis)
        if kind == "ResourceGather" and index == 1 and op.inputs[0].op.type == "VarHandleOp":
            return _dimension(tf.TensorShape(op.inputs[0].op.get_attr("shape")), 0)
        if kind in ("GatherNd", "TensorScatterAdd", "TensorScatterUpdate", "TensorScatterSub") and index == 1:
            depth = _dimension(op.inputs[1].shape, -1)
            sizes = [_dimension(op.inputs[0].shape, axis) for axis in range(depth or 0)]
            fixed = [size for size in sizes if size is not None]
            return min(fixed) if fixed and len(fixed) == len(sizes) else None
        if kind == "ScatterNd" and index == 0:
            shape = self._value(op.inputs[2])
            depth = _dimension(op.inputs[0].shape, -1)
            return int(shape[:depth].min()) if shape is not None and depth else None
        if kind == "OneHot" and index == 0:
            return self._number(op.inputs[1])
        if kind.startswith("UnsortedSegment") and index == 1:
            return self._number(op.inputs[2])
        if kind in ("Bincount", "DenseBincount") and index == 0:
            return self._number(op.inputs[1])
        if kind == "SparseSoftmaxCrossEntropyWithLogits" and index == 1:
            return _dimension(op.inputs[0].shape, -1)
        if kind in ("InTopK", "InTopKV2") and index == 1:
            return _dimension(op.inputs[0].shape, -1)
        if kind in ("Case", "StatelessCase") and index == 0:
            return len(op.get_attr("branches"))
        return None

    def _number(self, tensor: tf.Tensor) -> int | None:
        value = self._value(tensor)
        return int(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def _value(self, tensor: tf.Tensor) -> Array | None:
        """Returns a tensor's value if it depends on no input or variable."""
        value = tf.get_static_value(tensor)
        if value is None:
            try:
                value = self._session.run(tensor)
            except (tf.errors.OpError, ValueError, TypeError):
                return None
        return np.asarray(value)


def _dimension(shape: tf.TensorShape, axis: int) -> int | None:
    if shape.rank is None or not -shape.rank <= axis < shape.rank:
        return None
    size: int | None = shape[axis]
    return size
