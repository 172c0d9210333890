"""Numbers that a model makes from shapes: what they are for all sizes of a run, and how a run computes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow.core.framework import node_def_pb2

from tfaot.compile.passes.conv1d import Finder
from tfaot.compile.passes.padding.bounded import Bounded
from tfaot.compile.passes.padding.sized import LOOPS, SHAPES, Form, Unproven, is_size, port_of
from tfaot.graph.attributes import (
    complete,
)
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import IDENTITIES
from tfaot.xla.padding import DIFFERS, Count, is_prefix


class Numbered(Bounded):
    """Its numbers are those of a run."""

    _run: Callable[[Sequence[str], Sequence[int]], list[Any]]
    """Computes tensors that are made from shapes, for some sizes."""

    def dilate(self) -> None:
        """Writes dilated convolutions as one op, where their zeros at both ends are as many for all sizes.

        TensorFlow splits rows into as many as the distance of taps, with room for a multiple of it, which depends on the size.
        """
        while True:
            made = self._from_shapes()
            numbers = {
                port_of(tensor)
                for node in self._nodes.values()
                if node.op in ("BatchToSpaceND", "SpaceToBatchND")
                for tensor in node.input[1:3]
                if made.get(tensor_name(tensor)[0])
            }
            if not numbers:
                return
            run, points, tensors = self._evaluation(made), self._all(few=True) + self._larger(), sorted(numbers)
            finders = [Finder(self.work, dict(zip(tensors, run(tensors, sizes), strict=True))) for sizes in points]
            written = 0
            for node in [node for node in self._nodes.values() if node.op == "Conv2D"]:
                matches = [finder.match(node) for finder in finders]
                if matches[0] and all(match and match.edges == matches[0].edges for match in matches):
                    finders[0].write(matches[0])
                    written += 1
            if not written:
                return
            self._changed()  # the next ones can be made from the shapes of these

    def number(self) -> None:
        """Replaces numbers that the program computes with, and makes from shapes, by those of the run's sizes.

        The proof sees the program for two sizes, where the compiler has computed such numbers. This looks at all sizes: what is
        other than the proof assumes is computed when the model runs.

        Raises:
          Unproven: a shape depends on such a number.
        """
        made = self._from_shapes()
        varying = [name for name, varies in made.items() if varies]
        self._check(made)
        self._bodies()
        if not varying:
            return
        self._forms = self._formed(made, [tensor for name in varying for tensor in self._results(name, self._tensors)])
        for name in varying:
            if self._nodes[name].op in SHAPES:
                for operand in self._data(self._nodes[name]):
                    self._shown(name, operand)
        for node in [*self._nodes.values()]:
            if node.name in made:
                continue
            for index, operand in enumerate(node.input):
                if not operand.startswith("^") and port_of(operand) in self._forms:
                    node.input[index] = self._used(node, node.op, index, operand)
        for fetch in self.work.fetches:
            form, node = self._forms.get(port_of(fetch)), self._nodes[tensor_name(fetch)[0]]
            if form is not None and not form.kept and not is_size(fetch, self._nodes):
                if node.op not in IDENTITIES or port_of(node.input[0]) not in self._forms:
                    raise Unproven(node.name, f"{node.op} {DIFFERS}")
                node.input[0] = self._computed(node, port_of(node.input[0]))

    def _shown(self, name: str, tensor: str) -> None:
        """Checks that a tensor's shape has one form for all sizes.

        Raises:
          Unproven: it hasn't.
        """
        half, few = (tuple(max(min(size // 2, most), 1) for size in self._buckets) for most in (1 << 30, 3))
        for sizes in (self._others, half, few):
            try:
                shape = complete(self._shapes(sizes)[port_of(tensor)].shape)
            except Unproven:  # the model isn't for this size
                continue
            if shape is not None and [*shape] != self._shape_at(tensor, sizes):
                raise Unproven(name, f"{self._nodes[name].op} {DIFFERS}")

    def _bodies(self) -> None:
        """Looks into functions.

        Raises:
          Unproven: one computes other numbers with shapes than sums and products.
        """
        for function in self.work.graph.library.function:
            made = set[str]()
            constant = {node.name for node in function.node_def if node.op == "Const"}
            pending = True
            while pending:
                pending = False
                for node in function.node_def:
                    operands = {operand.removeprefix("^").partition(":")[0] for operand in node.input}
                    if node.name in made or not (
                        node.op in SHAPES or (operands & made and operands <= made | constant)
                    ):
                        continue
                    made.add(node.name)
                    pending = True
                    if node.op not in SHAPES and node.op not in _SMOOTH:
                        raise Unproven("", f"{node.op} {DIFFERS}")

    def _formed(self, made: Mapping[str, bool], tensors: Sequence[str]) -> dict[str, Form]:
        """Finds out what tensors that are made from shapes are for all sizes."""
        run = self._run = self._evaluation(made)
        wholes = dict(zip(tensors, run(tensors, self._buckets), strict=True))
        forms = {}
        for large in (False, True):
            chosen = [tensor for tensor, whole in wholes.items() if (whole.size > _SMALL) == large]
            points = self._all(few=large and sum(wholes[tensor].size for tensor in chosen) > _SMALL * _SMALL)
            points += self._larger() if not large else []
            kept, series = dict.fromkeys(chosen, True), {tensor: list[Any]() for tensor in chosen}
            for sizes in points if chosen else ():
                for tensor, value in zip(chosen, run(chosen, sizes), strict=True):
                    if all(size <= bucket for size, bucket in zip(sizes, self._buckets, strict=True)):
                        kept[tensor] &= is_prefix(value, wholes[tensor])
                    if value.shape == wholes[tensor].shape and value.size <= _SMALL:
                        series[tensor].append(value.reshape(-1))
            for tensor in chosen:
                whole, elements = wholes[tensor], None
                if not kept[tensor] and len(series[tensor]) == len(points) and whole.dtype.kind in "iu":
                    fitted = [self._element(points, values) for values in np.stack(series[tensor]).T.tolist()]
                    elements = [element for element in fitted if element is not None]
                    elements = elements if len(elements) == len(fitted) else None
                forms[tensor] = Form(kept[tensor], whole.shape, whole.dtype, elements)
        return forms

    def _all(self, few: bool) -> list[tuple[int, ...]]:
        """Returns all sizes, or a few of them; of several, all of each, and many together."""
        of_each = [
            sorted({*range(1, min(size, 17)), *range(size, 1, -(size // 16 or 1)), size - 1 or 1})
            if few
            else range(1, size + 1)
            for size in self._buckets
        ]
        if math.prod(map(len, of_each)) <= _POINTS:
            return [*itertools.product(*of_each)]
        points = {
            tuple(size if other == index else bucket for other, bucket in enumerate(self._buckets))
            for index, sizes in enumerate(of_each)
            for size in sizes
        }
        if len(self._buckets) > 1:
            rng = np.random.default_rng(0)
            points |= {tuple(int(rng.choice(sizes)) for sizes in of_each) for _ in range(_POINTS)}
        return sorted(points)

    def _larger(self) -> list[tuple[int, ...]]:
        """Returns sizes above small buckets, with which numbers have one form."""
        return [tuple(size + more for size in self._buckets) for more in range(1, _FORM + 1 - min(self._buckets))]

    def _element(self, points: Sequence[Sequence[int]], values: Sequence[int]) -> Count | int | None:
        return values[0] if len({*values}) == 1 else self._fitting(points, values)

    def _used(self, node: node_def_pb2.NodeDef, op: str, index: int, tensor: str) -> str:
        """Returns what an operand becomes that is made from shapes.

        Raises:
          Unproven: it must be known before the model runs, and the proof wouldn't see what it is for other sizes.
        """
        form = self._forms[port_of(tensor)]
        if form.kept:
            return tensor
        if index in (range(64) if op in _ANY else _NUMBERS.get(op, ())):
            return self._computed(node, port_of(tensor))
        if op in ("Pad", "PadV2") and index == 1 and self._pads(node):
            return tensor
        if form.elements is None:
            name = tensor_name(tensor)[0]
            raise Unproven(name, f"{self._nodes[name].op} {DIFFERS}")
        return tensor

    def _computed(self, node: node_def_pb2.NodeDef, tensor: str) -> str:
        """Returns a tensor that is made from shapes, as the program computes it for a run."""
        if tensor in self._settled:
            return self._settled[tensor]
        form, int32 = self._forms[tensor], np.dtype("int32")
        name, _ = tensor_name(tensor)
        if form.elements is not None:
            numbers = [
                self.count(node, element)
                if isinstance(element, Count)
                else self._constant(node, np.array(element, np.int32))
                for element in form.elements
            ]
            number = (
                numbers[0] if len(numbers) == 1 else self._add(node, "Pack", *numbers, N=len(numbers), T=int32, axis=0)
            )
            if form.dtype != int32:
                number = self._add(node, "Cast", number, SrcT=int32, DstT=form.dtype, Truncate=False)
            shape = self._constant(node, np.array(form.shape, np.int32))
            self._settled[tensor] = self._add(node, "Reshape", number, shape, T=form.dtype, Tshape=int32)
        else:
            source = self._nodes[name]
            if source.op == "Size":
                number = self._total(node, source.input[0])
                self._settled[tensor] = self._add(node, "Cast", number, SrcT=int32, DstT=form.dtype, Truncate=False)
                return self._settled[tensor]
            try:
                self._copied(node, source)
            except Unproven:
                if not self._listed(node, tensor):
                    raise
        return self._settled[tensor]

    def _copied(self, node: node_def_pb2.NodeDef, source: node_def_pb2.NodeDef) -> None:
        """Computes the results of a node that is made from shapes for a run.

        Raises:
          Unproven: one of its operands must be known before.
        """
        if source.op in SHAPES:
            raise Unproven(source.name, f"{source.op} {DIFFERS}")
        operands = [
            self._used(node, source.op, index, operand) if port_of(operand) in self._forms else operand
            for index, operand in enumerate(self._data(source))
        ]
        if operands == self._data(source):  # it would still be computed for the bucket
            raise Unproven(source.name, f"{source.op} {DIFFERS}")
        copy = self._add(node, source.op, *operands, **source.attr)
        results = self._results(source.name, self._tensors)
        self._settled |= {result: copy + result[len(source.name) :] for result in results}

    def _listed(self, node: node_def_pb2.NodeDef, tensor: str) -> bool:
        """Takes a tensor that is made from shapes from a table of its values for all sizes. Returns whether that is small."""
        form, run, int32 = self._forms[tensor], self._run, np.dtype("int32")
        if len(self._buckets) > 1 or math.prod((*self._buckets, *form.shape)) > _TABLE or form.dtype.kind not in "biuf":
            return False

        def table(bucket: int) -> Any:
            values = [run([tensor], (size,))[0] for size in range(1, bucket + 1)]
            rows = np.zeros((bucket, *map(max, zip(*(value.shape for value in values), strict=True))), form.dtype)
            for place, value in enumerate(values):
                part: Any = (place, *map(slice, value.shape))
                rows[part] = value
            return rows

        rows = table(*self._buckets)
        if rows.shape[1:] != form.shape:
            return False
        constant = self._constant(node, rows)
        self._tables[constant] = table
        place, axis = self.count(node, Count(-1)), self._constant(node, np.array(0, np.int32))
        types = {"Tparams": form.dtype, "Tindices": int32, "Taxis": int32, "batch_dims": 0}
        self._settled[tensor] = self._add(node, "GatherV2", constant, place, axis, **types)
        return True

    def _pads(self, node: node_def_pb2.NodeDef) -> bool:
        """Returns whether a run has a number of values after padding that follows its size, and notes it."""
        points = self._all(few=False) + self._larger()
        pads = [self._run([port_of(node.input[1])], sizes)[0] for sizes in points]
        counts = dict[int, Count]()
        for axis, (low, high) in enumerate(np.stack(pads, -1).tolist()):
            if len({*low}) == len({*high}) == 1:
                continue
            before = [self._shape_at(node.input[0], sizes)[axis] for sizes in points]
            count = self._fitting(points, [sum(parts) for parts in zip(before, low, high, strict=True)])
            if count is None or len({*low}) > 1:
                return False
            counts[axis] = count
        self._ends[node.name] = counts
        return True

    def _total(self, node: node_def_pb2.NodeDef, tensor: str) -> str:
        """Returns how many values a tensor has in a run."""
        counts, shape = self._open(tensor), self._tensors[port_of(tensor)].shape or ()
        closed = math.prod(size or 0 for axis, size in enumerate(shape) if axis not in counts)
        number = self._constant(node, np.array(closed, np.int32))
        for count in counts.values():
            number = self._add(node, "Mul", number, self.count(node, count), T=np.dtype("int32"))
        return number


_FORM = 24
"""How many sizes a form must be for, at least."""
_TABLE = 1 << 16
"""How many values a table of a tensor for all sizes has at most."""
_SMALL = 64
"""How many values a tensor has that can be a shape."""
_POINTS = 2048
"""For how many combinations of several sizes the pass looks at what is made from shapes."""

_BINARY = (
    "AddV2",
    "Div",
    "FloorDiv",
    "FloorMod",
    "Maximum",
    "Minimum",
    "Mul",
    "Pow",
    "RealDiv",
    "SquaredDifference",
    "Sub",
)
_COMPARISONS = ("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "NotEqual")
_UNARY = (
    "Abs",
    "Cast",
    "Ceil",
    "Exp",
    "Floor",
    "Log",
    "LogicalNot",
    "Neg",
    "Reciprocal",
    "Round",
    "Rsqrt",
    "Sign",
    "Sqrt",
    "Square",
)
_REARRANGED = ("ExpandDims", "Max", "Min", "Prod", "Reshape", "Squeeze", "StridedSlice", "Sum")

_ANY = frozenset({*IDENTITIES, *LOOPS, "If", "Pack", "StatelessIf"})
"""Ops all of whose operands can be numbers."""

_NUMBERS: Mapping[str, tuple[int, ...]] = {
    "GatherV2": (0, 1),
    "SelectV2": (0, 1, 2),
    **dict.fromkeys(_UNARY + _REARRANGED, (0,)),
    **dict.fromkeys(_BINARY + _COMPARISONS, (0, 1)),
}
"""Other ops that compute with numbers, and the operands that can be numbers of values."""

_SMOOTH = frozenset(
    {*IDENTITIES, "AddV2", "Cast", "ConcatV2", "ExpandDims", "Fill", "GatherV2", "Mul", "Neg", "Pack", "Prod", "Range"}
    | {"Reshape", "Squeeze", "StridedSlice", "Sub", "Sum"}
)
"""Ops whose numbers have one form for all sizes."""
