"""Masks operands of operations that combine values along an open size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tensorflow.core.framework import node_def_pb2

from tfaot.compile.passes.padding.numbers import Numbered
from tfaot.compile.passes.padding.sized import port_of
from tfaot.graph.attributes import (
    FLOATS,
    attribute,
    constant_of,
    numpy_dtype,
    type_attribute,
)
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import IDENTITIES
from tfaot.xla.padding import Count

_INT32 = np.dtype("int32")


class Masked(Numbered):
    """What is behind the end changes none of its values before it."""

    def gather(self) -> None:
        """Reverses the values of a run only, which come first again. Otherwise, they come last, and some models need no more."""
        for node in [*self._nodes.values()]:
            axes = constant_of(self._nodes, node.input[1], self.work.feeds) if node.op == "ReverseV2" else None
            late = self._open(node.input[0]) if axes is not None else {}
            rank = self._rank(node.input[0]) if late else 1
            if axes is None or axes.size != 1 or (axis := int(axes.item()) % rank) not in late:
                continue
            int32, name = np.dtype("int32"), port_of(node.input[0])
            places = self._constant(node, np.arange((self._tensors[name].shape or ())[axis] or 0, dtype=np.int32))
            self._places[places] = (0, late[axis])
            last = self.count(node, late[axis].then(-1))
            indices = self._add(node, "Sub", last, places, T=int32)
            indices = self._add(node, "Maximum", indices, self._constant(node, np.array(0, np.int32)), T=int32)
            operands = self._taken(node, node.input[0], indices, axis)
            self.work.become(node, "GatherV2", operands, **self._taking(node))

    def join(self) -> None:
        """Takes the values of a run from what is joined or repeated along its size, so that they come first."""
        for node in [*self._nodes.values()]:
            if node.op not in ("ConcatV2", "Tile") or f"{node.name}:0" in self._forms:
                continue
            parts = self._data(node)[:-1]
            number = constant_of(self._nodes, self._data(node)[-1], self.work.feeds)
            total, opened = self._open(node.name), [self._open(part) for part in parts]
            rank = self._rank(node.name)
            if number is None or not rank or number.size != (rank if node.op == "Tile" else 1):
                continue
            if node.op == "Tile":
                axes = [axis for axis, times in enumerate(number) if times > 1 and axis in opened[0]]
                if len(axes) == 1 and axes[0] in total and {*number.tolist()} == {1, int(number[axes[0]])}:
                    places = self._along(node, axes[0], total[axes[0]])
                    size = self._add(
                        node, "Maximum", self.count(node, opened[0][axes[0]]), self._number(node, 1), T=_INT32
                    )
                    places = self._add(node, "FloorMod", places, size, T=_INT32)
                    operands = self._taken(node, parts[0], places, axes[0])
                    self.work.become(node, "GatherV2", operands, **self._taking(node))
                continue
            axis = int(number.item()) % rank
            if axis not in total or not any(axis in counts for counts in opened[:-1]):
                continue
            places, first = self._along(node, axis, total[axis]), self._number(node, 0)
            parts_of_run: list[tuple[str, str]] = []
            for part, counts in zip(parts, opened, strict=True):
                whole = (self._tensors[port_of(part)].shape or ())[axis] or 0
                size = self.count(node, counts[axis]) if axis in counts else self._number(node, whole)
                place = self._add(node, "Sub", places, first, T=_INT32)
                place = self._add(
                    node, "Minimum", place, self._add(node, "Sub", size, self._number(node, 1), T=_INT32), T=_INT32
                )
                place = self._add(node, "Maximum", place, self._number(node, 0), T=_INT32)
                first = self._add(node, "AddV2", first, size, T=_INT32)
                shape = self._constant(node, np.array([-1 if dim == axis else 1 for dim in range(rank)], np.int32))
                before = self._add(node, "Less", places, first, T=_INT32)
                before = self._add(node, "Reshape", before, shape, T=np.dtype("bool"), Tshape=_INT32)
                gathered = self._add(node, "GatherV2", *self._taken(node, part, place, axis), **self._taking(node))
                parts_of_run.append((before, gathered))
            result = parts_of_run[-1][1]
            for before, gathered in reversed(parts_of_run[1:-1]):
                result = self._add(node, "SelectV2", before, gathered, result, T=node.attr["T"])
            self.work.become(node, "SelectV2", [*parts_of_run[0], result], T=node.attr["T"])

    def _number(self, node: node_def_pb2.NodeDef, value: int) -> str:
        return self._constant(node, np.array(value, np.int32))

    def _along(self, node: node_def_pb2.NodeDef, axis: int, count: Count) -> str:
        """Returns the places along a dimension of a node's result."""
        size = (self._tensors[f"{node.name}:0"].shape or ())[axis] or 0
        places = self._constant(node, np.arange(size, dtype=np.int32))
        self._places[places] = (0, count)
        return places

    def _taken(self, node: node_def_pb2.NodeDef, tensor: str, places: str, axis: int) -> list[str]:
        """Returns the operands of an op that takes values at some places of a tensor."""
        return [tensor, places, self._number(node, axis)]

    def _taking(self, node: node_def_pb2.NodeDef) -> dict[str, object]:
        """Returns the attributes of such an op, for a node's dtype."""
        dtype = type_attribute(node.attr["T"].type)
        return {"Tparams": dtype, "Tindices": _INT32, "Taxis": _INT32, "batch_dims": 0}

    def mask(self) -> None:
        """Masks operands of operations that combine values along the size."""
        for node in [*self._nodes.values()]:
            rule = MASKS.get(node.op)
            if rule is not None:
                rule(self, node)

    def masked(
        self, node: node_def_pb2.NodeDef, operand: int, axes: Sequence[int], value: float, before_end: str = ""
    ) -> None:
        """Gives an operand of a node a value behind the end of some of its dimensions, and others before it if they are given."""
        late, known = self._open(node.input[operand]), self._tensors[port_of(node.input[operand])]
        tensor = before_end or node.input[operand]
        assert known.shape is not None
        for axis in axes:
            if axis not in late:
                continue
            shape = [size if dim == axis else 1 for dim, size in enumerate(known.shape)]
            places = self._constant(node, np.arange(shape[axis] or 0, dtype=np.int32).reshape(shape))
            self._places[places] = (axis, late[axis])
            before = self._add(node, "Less", places, self.count(node, late[axis]), T=np.dtype("int32"))
            rest = self._constant(node, np.array(value, numpy_dtype(known.dtype)))
            tensor = self._add(node, "SelectV2", before, tensor, rest, T=type_attribute(known.dtype))
        node.input[operand] = tensor

    def reduced(self, node: node_def_pb2.NodeDef, value: float) -> list[int]:
        """Masks what a reduction reduces. Returns the open dimensions that it reduces."""
        axes = constant_of(self._nodes, node.input[1], self.work.feeds)
        if axes is None:
            return []
        name, port = tensor_name(node.input[0])
        rank = len(self._tensors[f"{name}:{port}"].shape or ())
        late = self._open(node.input[0])
        gone = [axis for axis in sorted({int(axis) % rank for axis in axes.reshape(-1)}) if axis in late]
        self.masked(node, 0, gone, value)
        return gone

    def averaged(self, node: node_def_pb2.NodeDef) -> None:
        """Replaces a mean along the size by a sum, and divides by the number of right values."""
        tensor = node.input[0]
        if not (gone := self.reduced(node, 0)) or node.attr["T"].type not in FLOATS:
            return
        late, (name, port) = self._open(tensor), tensor_name(tensor)
        axes, shape = (
            constant_of(self._nodes, node.input[1], self.work.feeds),
            self._tensors[f"{name}:{port}"].shape or (),
        )
        assert axes is not None
        others = {int(axis) % len(shape) for axis in axes.reshape(-1)} - {*gone}
        dtype = type_attribute(node.attr["T"].type)
        number = self._constant(node, np.array(math.prod(shape[axis] or 0 for axis in others), numpy_dtype(dtype.type)))
        for axis in gone:
            count = self.count(node, late[axis])
            cast = self._add(node, "Cast", count, SrcT=np.dtype("int32"), DstT=dtype, Truncate=False)
            number = self._add(node, "Mul", number, cast, T=dtype)
        options = {key: attribute(node.attr[key]) for key in ("Tidx", "keep_dims")}
        total = self._add(node, "Sum", node.input[0], node.input[1], T=dtype, **options)
        self.work.become(node, "RealDiv", [total, number], T=dtype)

    def multiplied(self, node: node_def_pb2.NodeDef, contracted: Sequence[Sequence[int]]) -> None:
        """Masks operands of a product, given the dimensions along which it sums."""
        for operand, axes in enumerate(contracted):
            if not self._is_softmax(node.input[operand], axes):
                self.masked(node, operand, axes, 0)

    def _is_softmax(self, tensor: str, axes: Sequence[int]) -> bool:
        """Returns whether a tensor is a softmax along a dimension: 0 behind the end."""
        node = self._nodes.get(tensor_name(tensor)[0])
        while node is not None and node.op in (*IDENTITIES, "Cast"):
            node = self._nodes.get(tensor_name(node.input[0])[0])
        return node is not None and node.op == "Softmax" and [*axes] == [self._rank(tensor) - 1]

    def matrices(self, node: node_def_pb2.NodeDef) -> None:
        """Masks a matrix product."""
        first = "transpose_a" if node.op == "MatMul" else "adj_x"
        second = "transpose_b" if node.op == "MatMul" else "adj_y"
        left, right = self._rank(node.input[0]), self._rank(node.input[1])
        self.multiplied(
            node,
            (
                [left - 2 if node.attr[first].b else left - 1],
                [right - 1 if node.attr[second].b else right - 2],
            ),
        )

    def einsum(self, node: node_def_pb2.NodeDef) -> None:
        """Masks a sum of products."""
        terms, _, result = node.attr["equation"].s.decode().replace(" ", "").partition("->")
        terms = terms.split(",")
        if "." not in terms[0] and len(terms) == len(node.input):
            self.multiplied(node, [[a for a, label in enumerate(term) if label not in result] for term in terms])

    def windows(self, node: node_def_pb2.NodeDef, value: float) -> None:
        """Masks what windows with padding reach behind the end."""
        if node.attr["padding"].s == b"VALID":
            return
        tensor: str = node.input[0]
        rank, late = range(self._rank(tensor)), self._open(tensor)
        strides = node.attr["strides"].list.i
        strided = [axis for axis in (1, 2) if axis in late and strides[axis] > 1]
        if node.attr["padding"].s != b"SAME" or node.attr["data_format"].s != b"NHWC" or not strided:
            self.masked(node, 0, rank, value)
            return
        if node.op != "AvgPool":
            self.masked(node, 0, rank, value)
            self._strided(node, tensor, strided, value)
            return
        # An average leaves out padding, so it is divided by that of ones.
        averages, attributes = [], dict(node.attr)
        ones = self._add(node, "OnesLike", tensor, T=node.attr["T"])
        for values in (tensor, ones):
            average = self.work.add("AvgPool", f"{node.name}/AvgPool", [tensor], origin=node.name, **attributes)
            self.masked(average, 0, rank, 0, values)
            self._strided(average, tensor, strided, 0)
            averages.append(average.name)
        self.work.become(node, "RealDiv", averages, T=attributes["T"])

    def _strided(self, node: node_def_pb2.NodeDef, tensor: str, axes: Sequence[int], value: float) -> None:
        """Pads the operand of windows with strides by hand, because where they begin depends on the run's size.

        There is room for padding at both ends, and a slice begins where the first window does.
        """
        shape, late = self._tensors[port_of(tensor)].shape or (), self._open(tensor)
        strides = node.attr["strides"].list.i
        kernel = (
            node.attr["ksize"].list.i
            if "ksize" in node.attr
            else (0, *(size or 0 for size in (self._tensors[port_of(node.input[1])].shape or (0, 0))[:2]))
        )
        if 0 in kernel[1:3]:
            return
        int32, dilations = np.dtype("int32"), node.attr["dilations"].list.i if "dilations" in node.attr else (1,) * 4
        pads, zero = np.zeros((len(shape), 2), np.int32), self._constant(node, np.array(0, np.int32))
        begins, cut = [zero] * len(shape), [0] * len(shape)

        def number(op: str, left: str, right: int) -> str:
            return self._add(node, op, left, self._constant(node, np.array(right, np.int32)), T=int32)

        def chosen(op: str, *operands: str) -> str:
            return self._add(node, op, *operands, T=int32)

        for dim in (1, 2):
            reach = (kernel[dim] - 1) * dilations[dim]
            if dim not in axes:
                length = shape[dim] or 0
                short = max((-(-length // strides[dim]) - 1) * strides[dim] + reach + 1 - length, 0)
                pads[dim] = short // 2, short - short // 2  # with strides of 1, these are the same for all sizes
                continue
            pads[dim] = low, _ = reach // 2, reach
            size = self.count(node, late[dim])
            ends = number("Mul", number("FloorDiv", number("Sub", size, 1), strides[dim]), strides[dim])
            total = number("Maximum", chosen("Sub", number("AddV2", ends, reach + 1), size), 0)
            cut[dim] = low
            begins[dim] = chosen("Sub", self._constant(node, np.array(low, np.int32)), number("FloorDiv", total, 2))
        dtype = type_attribute(node.attr["T"].type)
        rest = self._constant(node, np.array(value, numpy_dtype(node.attr["T"].type)))
        padded = self._add(node, "PadV2", node.input[0], self._constant(node, pads), rest, T=dtype, Tpaddings=int32)
        first = self._add(node, "Pack", *begins, N=len(shape), T=int32, axis=0)
        whole = self._add(node, "Shape", padded, T=dtype, out_type=int32)
        sizes = chosen("Sub", whole, self._constant(node, np.array(cut, np.int32)))
        node.input[0] = self._add(node, "Slice", padded, first, sizes, T=dtype, Index=int32)
        node.attr["padding"].s = b"VALID"

    def padded(self, node: node_def_pb2.NodeDef) -> None:
        """Gives what is behind the end the value of the padding that follows it."""
        pads = constant_of(self._nodes, node.input[1], self.work.feeds)
        value = constant_of(self._nodes, node.input[2], self.work.feeds) if node.op == "PadV2" else np.array(0)
        if value is not None and node.name in self._ends:
            self.masked(node, 0, range(self._rank(node.input[0])), value.item())
        elif pads is not None and value is not None:
            self.masked(node, 0, [axis for axis, (_, high) in enumerate(pads) if high > 0], value.item())

    def softmax(self, node: node_def_pb2.NodeDef) -> None:
        """Masks what a softmax normalizes."""
        self.masked(node, 0, [self._rank(node.input[0]) - 1], -math.inf)

    def band(self, node: node_def_pb2.NodeDef) -> None:
        """Gives a matrix's open sides a number that is larger than any size. XLA takes the bucket's."""
        for operand in (1, 2):
            side = constant_of(self._nodes, node.input[operand], self.work.feeds)
            if side is not None and side < 0:
                node.input[operand] = self._constant(node, np.array(2**30, side.dtype))


def _bound(node: node_def_pb2.NodeDef, infinity: float) -> float:
    """Returns the least or the largest number of a node's dtype."""
    dtype = numpy_dtype(node.attr["T"].type)
    if dtype.kind not in "iu":
        return infinity
    return int(np.iinfo(dtype).max if infinity > 0 else np.iinfo(dtype).min)


MASKS: Mapping[str, Callable[[Masked, node_def_pb2.NodeDef], object]] = {
    "All": lambda padded, node: padded.reduced(node, True),
    "ArgMax": lambda padded, node: padded.reduced(node, _bound(node, -math.inf)),
    "ArgMin": lambda padded, node: padded.reduced(node, _bound(node, math.inf)),
    "Any": lambda padded, node: padded.reduced(node, False),
    "AvgPool": lambda padded, node: padded.windows(node, 0),
    "BatchMatMulV2": Masked.matrices,
    "BatchMatMulV3": Masked.matrices,
    "Conv2D": lambda padded, node: padded.windows(node, 0),
    "DepthwiseConv2dNative": lambda padded, node: padded.windows(node, 0),
    "Einsum": Masked.einsum,
    "LogSoftmax": Masked.softmax,
    "MatMul": Masked.matrices,
    "MatrixBandPart": Masked.band,
    "Max": lambda padded, node: padded.reduced(node, _bound(node, -math.inf)),
    "MaxPool": lambda padded, node: padded.windows(node, -math.inf),
    "Mean": Masked.averaged,
    "Min": lambda padded, node: padded.reduced(node, _bound(node, math.inf)),
    "Pad": Masked.padded,
    "PadV2": Masked.padded,
    "Prod": lambda padded, node: padded.reduced(node, 1),
    "Softmax": Masked.softmax,
    "Sum": lambda padded, node: padded.reduced(node, 0),
    "TopKV2": lambda padded, node: padded.masked(node, 0, [padded._rank(node.input[0]) - 1], _bound(node, -math.inf)),
}
"""Ops that combine values, and what masks them."""
