"""A program whose inputs have a bucket's size, and what it would be for other sizes."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.graph.attributes import (
    attribute,
    complete,
    numpy_dtype,
    type_attribute,
    types_attribute,
)
from tfaot.graph.edits import replace
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import IDENTITIES, LEAST_SIZES, has_effects
from tfaot.graph.program import Program, Tensor
from tfaot.xla.padding import DIFFERS, Count


@dataclasses.dataclass(frozen=True)
class Form:
    """A tensor that is made from shapes, for all sizes of a run."""

    kept: bool
    """Whether it is always the first part of what it is for the buckets."""
    shape: tuple[int, ...]
    dtype: Any
    elements: Sequence[Count | int] | None
    """If its shape is fixed, and it isn't kept: its elements, if all of them have a form."""


class Unproven(Exception):
    """The proof ends at a node, "" for none in particular."""

    def __init__(self, node: str, why: str, refused: bool = False) -> None:
        super().__init__(why)
        self.node = node
        self.refused = refused
        """Whether the model may not be for sizes that are larger than the bucket."""


class Sized:
    """A copy of a program, whose inputs aren't cut."""

    def __init__(self, program: Program, cuts: Sequence[node_def_pb2.NodeDef], other: str) -> None:
        self.work = Program(graph_pb2.GraphDef(), program.feeds, program.fetches)
        self.work.graph.CopyFrom(program.graph)
        nodes = program.nodes()
        self._inputs: dict[str, dict[int, Count]] = {}
        """By feed, the dimensions that have a size, and how many values a run has."""
        sizes, smallest = dict[str, int](), dict[str, int]()
        self._sizes: list[str] = []
        for cut in cuts:
            ends = nodes[tensor_name(cut.input[2])[0]].input
            mask = cut.attr["end_mask"].i
            feed = program.feed_of(cut.input[0])
            shape = program.feeds[feed].shape or ()
            self._inputs[feed] = {}
            for axis in (axis for axis in range(len(ends)) if not mask >> axis & 1):
                sizes.setdefault(ends[axis], shape[axis] or 0)
                smallest[ends[axis]] = cut.attr[LEAST_SIZES].list.i[axis] if LEAST_SIZES in cut.attr else 1
                self._inputs[feed][axis] = Count(size=[*sizes].index(ends[axis]))
        self._sizes = [*sizes]
        self._buckets = (*sizes.values(),)
        self._smallest = (*map(smallest.__getitem__, sizes),)
        self._others = _others(self._buckets, other)
        self._opened: dict[str, dict[int, Count]] = {}
        self._sized: dict[tuple[int, ...], dict[str, Tensor]] = {}
        self._forms: dict[str, Form] = {}
        """What tensors that are made from shapes alone are for all sizes."""
        self._settled: dict[str, str] = {}
        """Their values for a run, which the program computes."""
        self._places: dict[str, tuple[int, Count]] = {}
        """Constants that count places along a dimension: the dimension and its size, by name."""
        self._ends: dict[str, dict[int, Count]] = {}
        """Nodes that pad or slice by a number that depends on a size, and how many values a run has after that."""
        self._tables: dict[str, Callable[[int], Any]] = {}
        """Constants that have a row for each size: what makes them for a bucket, by name."""
        fetched = {tensor_name(fetch)[0] for fetch in program.fetches}
        sizes_of = [nodes[tensor_name(fetch)[0]].input[0] for fetch in program.fetches if is_size(fetch, nodes)]
        # An output that crosses the edge in another dtype has the size of what it is made of.
        self.work.fetches += tuple(port_of(tensor) for tensor in sizes_of if tensor_name(tensor)[0] not in fetched)
        sources = {cut.name: cut.input[0] for cut in cuts}
        for node in self.work.graph.node:
            for index, operand in enumerate(node.input):
                if (source := sources.get(operand.removesuffix(":0"))) and node.name not in sources:
                    node.input[index] = source
                elif operand.startswith("^") and operand[1:] in sources:
                    node.input[index] = f"^{tensor_name(sources[operand[1:]])[0]}"
        self.work.prune()
        self._nodes = self.work.nodes()
        self._stacked: dict[str, Count] = {}
        """Nodes that make a tensor of a list, and how many items it has."""
        self._stacked = self._stacks()
        self._sized.clear()
        self._opened.clear()
        self.work = self._at(self._buckets)
        self._nodes = self.work.nodes()
        self._tensors = self._shapes(self._buckets)

    def _stacks(self) -> dict[str, Count]:
        """Finds the sizes of lists that loops fill, which shape inference doesn't know."""
        reserved = {}
        made_from_shapes = self._from_shapes()
        for node in self._nodes.values():
            source = tensor_name(node.input[0]) if node.op == "TensorListStack" else ("", 0)
            while (made := self._nodes.get(source[0])) is not None and made.op in _LISTS:
                source = tensor_name(made.input[source[1]])
            if made is not None and made.op == "TensorListReserve":
                count = tensor_name(made.input[1])[0]
                if count in made_from_shapes:
                    reserved[node.name] = f"{count}:0"
        if not reserved:
            return {}
        run, points, counts = self._evaluation(made_from_shapes), self._points(), {}
        results = [run([*reserved.values()], sizes) for sizes in points]
        for name, values in zip(reserved, zip(*results, strict=True), strict=True):
            if (items := self._fitting(points, [int(value) for value in values])) is not None:
                counts[name] = items
        return counts

    def _changed(self) -> None:
        """Forgets what was known about the program."""
        self.work.prune()
        self._sized.clear()
        self._opened.clear()
        self._nodes = self.work.nodes()
        self._tensors = self._shapes(self._buckets)

    def _at(self, sizes: tuple[int, ...]) -> Program:
        """Returns the program for other buckets."""
        feeds = dict(self.work.feeds)
        for feed, axes in self._inputs.items():
            name = feed if ":" in feed else f"{feed}:0"
            shape = tuple(
                max(axes[axis].of(sizes[axes[axis].size]), 0) if axis in axes else dim
                for axis, dim in enumerate(feeds[name].shape or ())
            )
            feeds[name] = dataclasses.replace(feeds[name], shape=shape)
        graph = graph_pb2.GraphDef()
        graph.CopyFrom(self.work.graph)
        program = Program(graph, feeds, self.work.fetches)
        for node in graph.node:
            if node.name in self._stacked:
                count = self._stacked[node.name]
                node.attr["num_elements"].i = max(count.of(sizes[count.size]), 0)
            if node.name in self._places:
                places = [dim.size for dim in node.attr["value"].tensor.tensor_shape.dim]
                axis, count = self._places[node.name]
                places[axis] = max(count.of(sizes[count.size]), 0)
                node.attr["value"].CopyFrom(attribute(np.arange(math.prod(places), dtype=np.int32).reshape(places)))
            if node.name in self._tables:
                node.attr["value"].CopyFrom(attribute(self._tables[node.name](sizes[0])))
        return program

    def _open(self, tensor: str) -> dict[int, Count]:
        """Returns the open dimensions of a tensor, and how many of their values are right, which the proof checks."""
        if tensor in self._opened:
            return self._opened[tensor]
        sign = 1 if self._others > self._buckets else -1
        beside = tuple(bucket + sign for bucket in self._buckets)
        with contextlib.suppress(Unproven):  # the model isn't for these sizes
            self._shapes(beside)
        points = [self._buckets, self._others, *([beside] if beside in self._sized else [])]
        shapes = [self._shapes(sizes)[port_of(tensor)].shape or () for sizes in points]
        counts = self._opened[tensor] = {}
        for axis, (one, other, *others) in enumerate(zip(*shapes, strict=False)):
            if None in (one, other) or one == other:
                continue
            late = [
                Count(one - bucket, size=size)
                for size, (bucket, larger) in enumerate(zip(self._buckets, self._others, strict=True))
                if one - bucket == other - larger and others in ([], [one + sign])
            ]
            if late:
                counts[axis] = late[0]
                continue
            results = dict[tuple[int, ...], int]()
            for sizes in self._points():
                with contextlib.suppress(Unproven):  # the model isn't for these sizes
                    results[sizes] = (self._shapes(sizes)[port_of(tensor)].shape or ())[axis] or 0
            count = self._fitting([*results], [*results.values()])
            for size in range(len(self._buckets)) if count is None else ():
                results |= self._steps(tensor, axis, size)
                count = count or self._fitting([*results], [*results.values()])
            if count is not None:
                counts[axis] = count
        return counts

    def _steps(self, tensor: str, axis: int, size: int) -> dict[tuple[int, ...], int]:
        """Returns how many values a dimension has on both sides of two consecutive steps, given the number of a size."""
        found = dict[tuple[int, ...], int]()

        def at(place: int) -> int:
            if place < 1:
                raise Unproven("", DIFFERS)
            point = (*self._buckets[:size], place, *self._buckets[size + 1 :])
            found[point] = (self._shapes(point)[port_of(tensor)].shape or ())[axis] or 0
            return found[point]

        first, sign = self._buckets[size], 1 if self._others > self._buckets else -1
        with contextlib.suppress(Unproven):  # the model isn't for these sizes
            for _ in range(2):
                step, value = 1, at(first)
                while at(first + sign * step) == value and step < _LONGEST_STEP:
                    step *= 2
                last = first + sign * step
                while abs(last - first) > 1:
                    middle = (first + last) // 2
                    first, last = (middle, last) if at(middle) == value else (first, middle)
                first = last
        return found

    def _check(self, made: Mapping[str, bool]) -> None:
        """Checks that small sizes have shapes of the same form, except of what is made from shapes alone.

        Raises:
          Unproven: one has another one.
        """
        shapes, others = self._shapes(self._buckets), self._shapes(self._others)
        for sizes in self._small():
            try:
                small = self._shapes(sizes)
            except Unproven:  # the model isn't for this size
                continue
            for node in self._nodes.values():
                for tensor in self._results(node.name, shapes) if node.name not in made else ():
                    shape, counts = complete(small[tensor].shape), self._open(tensor)
                    if shape is None:
                        continue
                    both = (of[tensor].shape or () for of in (shapes, others))
                    sides = zip(shape, self._shape_at(tensor, sizes), *both, strict=False)
                    for axis, (size, expected, one, other) in enumerate(sides):
                        if size != expected and (axis in counts or one == other):
                            raise Unproven(node.name, f"{node.op} {DIFFERS}")

    def _small(self) -> list[tuple[int, ...]]:
        """Returns small sizes, at which a number may have another form."""
        pairs = [*zip(self._buckets, self._smallest, strict=True)]
        return [tuple(max(min(size // 2, most), least) for size, least in pairs) for most in (1 << 30, 3, 1)]

    def _points(self) -> list[tuple[int, ...]]:
        """Returns sizes that show which one a number depends on, and how."""
        sign = 1 if self._others > self._buckets else -1
        most = 1 << 30 if sign > 0 else min(self._buckets)
        return [
            self._buckets,
            self._others,
            *self._small(),
            *(tuple(size + sign * more for size in self._buckets) for more in (*range(1, 9), 16) if more < most),
            *(
                tuple(size + sign * (other == index) for other, size in enumerate(self._buckets))
                for index in range(len(self._buckets) if len(self._buckets) > 1 else 0)
            ),
        ]

    @staticmethod
    def _fitting(points: Sequence[Sequence[int]], results: Sequence[int]) -> Count | None:
        """Returns the number of values that a size has if some sizes have so many, or None."""
        largest = max(range(len(points)), key=results.__getitem__)  # others may be 0 for a negative number
        for size in range(len(points[0])):
            first = results[largest] - points[largest][size]
            if all(result == max(point[size] + first, 0) for point, result in zip(points, results, strict=True)):
                return Count(first, size=size)
        for size in range(len(points[0])):
            for divide in range(2, 9):
                lowest = divide * results[largest] - points[largest][size]
                for add in range(lowest, lowest + divide):
                    count = Count(add, divide, size)
                    pairs = zip(points, results, strict=True)
                    if all(result == max(count.of(point[size]), 0) for point, result in pairs):
                        return count
        for size in range(len(points[0])):
            sized = [(point[size], result) for point, result in zip(points, results, strict=True)]
            (low, least), (high, most) = min(sized), max(sized)
            for divide in range(1, 17) if high > low else ():
                whole = (high - low) // divide
                for steps in (whole, whole + 1):
                    if steps == 0 or (most - least) % steps or (times := (most - least) // steps) < 2:
                        continue
                    for add in range(divide):
                        count = Count(add, divide, size, times, most - (high + add) // divide * times)
                        if all(result == max(count.of(point), 0) for point, result in sized):
                            return count
            rises = [
                (place, more, more - less)
                for (before, less), (place, more) in itertools.pairwise(sorted({*sized}))
                if place - before == 1 and more != less
            ]
            for (before, *_), (place, more, times) in itertools.pairwise(rises[-2:]):
                count = Count(-place % (place - before), place - before, size).by(times)
                count = count.then(more - count.of(place))
                if all(result == max(count.of(point), 0) for point, result in sized):
                    return count
        return None

    def _shapes(self, sizes: tuple[int, ...]) -> dict[str, Tensor]:
        """Returns what is known of the tensors for buckets, before any masks."""
        if sizes not in self._sized:
            try:
                self._sized[sizes] = self._at(sizes).tensors()
            except ValueError as error:
                raise Unproven("", f"isn't for sizes {sizes}: {str(error).splitlines()[0]}", refused=True) from None
        return self._sized[sizes]

    def _data(self, node: node_def_pb2.NodeDef) -> list[str]:
        return [operand for operand in node.input if not operand.startswith("^")]

    def _shape_at(self, tensor: str, sizes: Sequence[int]) -> list[int]:
        """Returns a tensor's shape for other sizes."""
        counts = self._open(tensor)
        shape = self._shapes(self._buckets)[port_of(tensor)].shape or ()
        return [
            max(counts[axis].of(sizes[counts[axis].size]), 0) if axis in counts else dim or 0
            for axis, dim in enumerate(shape)
        ]

    def _results(self, name: str, tensors: Mapping[str, Tensor]) -> list[str]:
        """Returns the tensors that a node makes."""
        ports = itertools.takewhile(tensors.__contains__, (f"{name}:{port}" for port in itertools.count()))
        return [*ports]

    def _from_shapes(self) -> dict[str, bool]:
        """Finds nodes whose results depend on constants and shapes alone.

        Returns:
          For each in the order of the graph, whether it depends on shapes.

        Raises:
          Unproven: a function computes with shapes in a way that depends on more than their order.
        """
        shapes = self._shapes(self._buckets)
        fed = {tensor_name(feed)[0] for feed in self.work.feeds}
        missing = {node.name: len(node.input) for node in self._nodes.values()}
        users = self.work.users()
        ready = [name for name, count in missing.items() if not count or self._nodes[name].op in SHAPES]
        made: dict[str, bool] = {}
        while ready:
            node = self._nodes[ready.pop()]
            results = [shapes[tensor] for tensor in self._results(node.name, shapes)]
            if node.name in made or node.name in fed or has_effects(node.op) or node.op in _ENTERS or not results:
                continue
            if any(result.dtype in HANDLES for result in results):
                continue
            if node.op in SHAPES:
                if any(complete(shapes[port_of(operand)].shape) is None for operand in node.input if operand[0] != "^"):
                    continue
                made[node.name] = True
            else:
                made[node.name] = any(made[tensor_name(operand)[0]] for operand in node.input)
            for user in users[node.name]:
                missing[user.node.name] -= 1
                if not missing[user.node.name] and user.node.op not in SHAPES:
                    ready.append(user.node.name)
        return made

    def _evaluation(self, made: Mapping[str, bool]) -> Callable[[Sequence[str], Sequence[int]], list[Any]]:
        """Returns a function that computes tensors that are made from shapes, for some sizes."""
        import tensorflow as tf

        graph = graph_pb2.GraphDef(versions=self.work.graph.versions)
        graph.library.CopyFrom(self.work.graph.library)
        fed: dict[str, tuple[str, str, Any]] = {}
        for name in made:
            node = graph.node.add()
            node.CopyFrom(self._nodes[name])
            if node.op not in SHAPES:
                continue
            dtype = type_attribute(node.attr["out_type"].type or types_pb2.DT_INT32)
            placeholders = []
            for operand in self._data(node):
                placeholder = graph.node.add(op="Placeholder", name=self.work.unique(f"{name}/fed"))
                placeholder.attr["dtype"].CopyFrom(dtype)
                fed[f"{placeholder.name}:0"] = (node.op, operand, numpy_dtype(dtype.type))
                placeholders.append(placeholder.name)
            replace(node, "IdentityN", placeholders, {"T": types_attribute([dtype.type] * len(placeholders))})
        built = tf.Graph()
        with built.as_default():
            tf.import_graph_def(graph, name="")
        session = tf.compat.v1.Session(graph=built)

        def run(tensors: Sequence[str], sizes: Sequence[int]) -> list[Any]:
            feeds = {}
            for placeholder, (op, operand, dtype) in fed.items():
                shape = self._shape_at(operand, sizes)
                feeds[placeholder] = np.array({"Size": math.prod(shape), "Rank": len(shape)}.get(op, shape), dtype)
            try:
                values: list[Any] = session.run([*tensors], feeds)
            except tf.errors.OpError as error:
                raise Unproven("", f"isn't for sizes {(*sizes,)}: {error.op and error.op.type}") from None
            return values

        return run

    def count(self, node: node_def_pb2.NodeDef, count: Count) -> str:
        """Returns the number of right values, an int32."""
        number: str = self._sizes[count.size]
        if count.add:
            number = self._add(
                node, "AddV2", number, self._constant(node, np.array(count.add, np.int32)), T=np.dtype("int32")
            )
        for op, other, none in (("Div", count.divide, 1), ("Mul", count.times, 1), ("AddV2", count.plus, 0)):
            if other != none:
                number = self._add(
                    node, op, number, self._constant(node, np.array(other, np.int32)), T=np.dtype("int32")
                )
        if count.least < 0:
            zero = self._constant(node, np.array(0, np.int32))
            number = self._add(node, "Maximum", number, zero, T=np.dtype("int32"))
        return number

    def _add(self, node: node_def_pb2.NodeDef, op: str, *operands: str, **attributes: object) -> str:
        name: str = self.work.add(op, f"{node.name}/{op}", operands, origin=node.name, **attributes).name
        return name

    def _constant(self, node: node_def_pb2.NodeDef, value: Any) -> str:
        name: str = self.work.constant(f"{node.name}/constant", value, origin=node.name).name
        return name

    def _rank(self, tensor: str) -> int:
        name, port = tensor_name(tensor)
        return len(self._tensors[f"{name}:{port}"].shape or ())


_LONGEST_STEP = 4096
"""How many sizes may have the same number of values."""

LOOPS = frozenset({"StatelessWhile", "While"})

_LISTS = frozenset({*IDENTITIES, *LOOPS, "TensorListSetItem"})
"""Ops that return a list of as many items as they take: result i for operand i."""

SHAPES = frozenset({"Rank", "Shape", "ShapeN", "Size"})
_ENTERS = frozenset({"Placeholder", "PlaceholderWithDefault", "VarHandleOp", "_Arg"})
HANDLES = frozenset({types_pb2.DT_RESOURCE, types_pb2.DT_STRING, types_pb2.DT_VARIANT})


def _others(buckets: Sequence[int], kind: str) -> tuple[int, ...]:
    """Returns sizes other than the buckets, whose differences to them aren't the same.

    Args:
      buckets: the buckets.
      kind: `larger`; `smaller`; or `multiple`, for models of sizes that are multiples of a number.

    Raises:
      Unproven: there are none that are smaller.
    """
    others, taken = [], set[int]()
    for bucket in buckets:
        other, step = {
            "larger": (2 * bucket + 1, 2),
            "smaller": (bucket // 2 - 1, -1),
            "multiple": (2 * bucket, bucket),
        }[kind]
        while other - bucket in taken:
            other += step
        if other < 3:
            raise Unproven("", "has no smaller sizes")
        taken.add(other - bucket)
        others.append(other)
    return tuple(others)


def port_of(operand: str) -> str:
    """Returns the tensor that an operand names, always with its port."""
    name, port = tensor_name(operand)
    return f"{name}:{port}"


def is_size(fetch: str, nodes: Mapping[str, node_def_pb2.NodeDef]) -> bool:
    """Returns whether a fetch is the size of an output."""
    name = tensor_name(fetch)[0]
    return nodes[name].op == "Shape" and name.endswith("/size")
