"""The pass `padding`: computes with a bucket's full size where what is behind the end of a run's size changes no result.

The export stage cuts inputs to the open size of a run. After that, sizes are known only at run time: XLA masks what is behind them,
copies, and leaves loops that other passes don't know. The pass takes the cuts away from the inputs, so all sizes are known, and
cuts the outputs instead. Where a sum, a softmax, a product, or a window would take values from behind the end, it masks them there.
Loops make as many steps as a run has, and what is reversed, or padded for windows with strides, begins where the run's values do.

Applies if a proof follows the size from the inputs to all outputs (`xla/padding.py`), and to written variables. If it doesn't, the
cuts stay, and the report names the op that ended it. The example `lengths` takes 113 instead of 155 µs for a sentence of 64 tokens
(Intel Xeon, AVX-512).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph import lowering
from tfaot.graph.attributes import FLOATS, attribute, complete, constant_of, numpy_dtype, type_attribute
from tfaot.graph.edits import replace
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import IDENTITIES, OPEN_SIZE
from tfaot.graph.program import Program, Tensor
from tfaot.xla import module as xla
from tfaot.xla.padding import Cause, Count, prove


def padding(program: Program) -> int:
    """Moves the cuts from the inputs to the outputs. Returns whether it did."""
    cuts = [node for node in program.graph.node if OPEN_SIZE in node.attr]
    if not cuts:
        return 0
    reverses = any(node.op == "ReverseV2" for node in program.graph.node)
    for gathers in (False, True):
        try:
            padded = _Padded(program, cuts)
            padded.number()
            if gathers:
                padded.gather()
            padded.mask()
            padded.cut()
        except _Unproven as error:
            if not gathers and reverses:
                continue
            node = program.nodes().get(error.node, cuts[0])
            program.missed(node, str(error))
            return 0
        program.graph.CopyFrom(padded.work.graph)
        program.origins.update(padded.work.origins)
        return 1
    return 0


class _Unproven(Exception):
    def __init__(self, node: str, why: str) -> None:
        super().__init__(why)
        self.node = node


class _Padded:
    """A copy of a program, whose inputs aren't cut."""

    def __init__(self, program: Program, cuts: Sequence[node_def_pb2.NodeDef]) -> None:
        self.work = Program(graph_pb2.GraphDef(), program.feeds, program.fetches)
        self.work.graph.CopyFrom(program.graph)
        nodes = program.nodes()
        self._inputs: dict[str, list[int]] = {}
        """By feed, the dimensions that have the size."""
        sizes = set[str]()
        for cut in cuts:
            ends = nodes[tensor_name(cut.input[2])[0]].input
            mask = cut.attr["end_mask"].i
            axes = [axis for axis in range(len(ends)) if not mask >> axis & 1]
            sizes |= {ends[axis] for axis in axes}
            self._inputs[cut.input[0]] = axes
        if len(sizes) > 1:
            raise _Unproven(cuts[0].name, "cuts to one of several sizes, and the proof follows one")
        (self._size,) = sizes
        feed = next(iter(self._inputs))
        shape = program.feeds[f"{feed}:0" if ":" not in feed else feed].shape or ()
        self._bucket = shape[self._inputs[feed][0]] or 0
        self._other = 2 * self._bucket + 1
        self._constants: dict[str, bool] = {}
        self._sized: dict[int, dict[str, Tensor]] = {}
        self._places: dict[str, tuple[int, Count]] = {}
        """Constants that count places along a dimension: the dimension and its size, by name."""
        sources = {cut.name: cut.input[0] for cut in cuts}
        for node in self.work.graph.node:
            for index, operand in enumerate(node.input):
                if (source := sources.get(operand.removesuffix(":0"))) and node.name not in sources:
                    node.input[index] = source
                elif operand.startswith("^") and operand[1:] in sources:
                    node.input[index] = f"^{tensor_name(sources[operand[1:]])[0]}"
        self.work.prune()
        self._nodes = self.work.nodes()
        self._stacked: dict[str, int] = {}
        """Nodes that make a tensor of a list, and how many more items than the bucket's size it has."""
        self._stacked = self._stacks()
        self._sized.clear()
        self._constants.clear()
        self.work = self._at(self._bucket)
        self._nodes = self.work.nodes()
        self._tensors = self._shapes(self._bucket)

    def _stacks(self) -> dict[str, int]:
        """Finds the sizes of lists that loops fill, which shape inference doesn't know."""
        reserved = {}
        for node in self._nodes.values():
            source = tensor_name(node.input[0]) if node.op == "TensorListStack" else ("", 0)
            while (made := self._nodes.get(source[0])) is not None and made.op in _LISTS:
                source = tensor_name(made.input[source[1]])
            if made is not None and made.op == "TensorListReserve":
                count = tensor_name(made.input[1])[0]
                if self._is_folded(count):
                    reserved[node.name] = count
        if not reserved:
            return {}
        one, other = (self._folded([*reserved.values()], size) for size in (self._bucket, self._other))
        late = {name: int(size) - self._bucket for name, size in zip(reserved, one, strict=True)}
        return {
            name: late[name] for name, size in zip(reserved, other, strict=True) if size - self._other == late[name]
        }

    def _at(self, size: int) -> Program:
        """Returns the program for another bucket."""
        feeds = dict(self.work.feeds)
        for feed, axes in self._inputs.items():
            name = feed if ":" in feed else f"{feed}:0"
            shape = tuple(size if axis in axes else known for axis, known in enumerate(feeds[name].shape or ()))
            feeds[name] = dataclasses.replace(feeds[name], shape=shape)
        program = Program(graph_pb2.GraphDef(), feeds, self.work.fetches)
        program.graph.CopyFrom(self.work.graph)
        for node in program.graph.node:
            if node.name in self._stacked:
                node.attr["num_elements"].i = size + self._stacked[node.name]
            if node.name in self._places:
                places = [dim.size for dim in node.attr["value"].tensor.tensor_shape.dim]
                axis, count = self._places[node.name]
                places[axis] = count.of(size)
                node.attr["value"].CopyFrom(attribute(np.arange(math.prod(places), dtype=np.int32).reshape(places)))
        return program

    def _open(self, tensor: str) -> dict[int, Count]:
        """Returns the open dimensions of a tensor, and how many of their values are right, which the proof checks."""
        name, port = tensor_name(tensor)
        shapes = [self._shapes(size)[f"{name}:{port}"].shape or () for size in (self._bucket, self._other)]
        counts = {}
        for axis, sizes in enumerate(zip(*shapes, strict=False)):
            if None in sizes or sizes[0] == sizes[1]:
                continue
            if sizes[0] - self._bucket == sizes[1] - self._other:
                counts[axis] = Count(sizes[0] - self._bucket)
                continue
            buckets = [self._bucket, self._other, *range(self._bucket + 1, self._bucket + 4)]
            results = [((self._shapes(size)[f"{name}:{port}"].shape or ())[axis] or 0, size) for size in buckets]
            strided = (Count(add, divide) for divide in range(2, 9) for add in range(-64, divide))
            fitting = (count for count in strided if all(count.of(size) == result for result, size in results))
            if (count := next(fitting, None)) is not None:
                counts[axis] = count
        return counts

    def _shapes(self, bucket: int) -> dict[str, Tensor]:
        """Returns what is known of the tensors for a bucket, before any masks."""
        if bucket not in self._sized:
            self._sized[bucket] = self._at(bucket).tensors()
        return self._sized[bucket]

    def number(self) -> None:
        """Replaces numbers that the program computes with, and makes from shapes, by those of the run's size."""
        uses = [
            (node, index)
            for node in self._nodes.values()
            for index in (range(len(node.input)) if node.op in _LOOPS else _NUMBERS.get(node.op, ()))
            if not node.input[index].startswith("^")
            if not self._is_folded(node.name) or (node.op == "Cast" and node.attr["DstT"].type in FLOATS)
            if self._is_folded(tensor_name(node.input[index])[0])
        ]
        names = sorted({tensor_name(node.input[index])[0] for node, index in uses})
        values = [self._folded(names, size) for size in (self._bucket, self._other)] if names else []
        for node, index in uses:
            name, port = tensor_name(node.input[index])
            one, other = (value[names.index(name)] for value in values)
            if port or one.size != 1 or other.size != 1 or one.dtype.kind not in "iu" or one == other:
                continue
            late = int(one.item()) - self._bucket
            if int(other.item()) - self._other == late:
                number, dtype = self.count(node, Count(late)), np.dtype("int32")
                if one.dtype != dtype:
                    number = self._add(node, "Cast", number, SrcT=dtype, DstT=one.dtype, Truncate=False)
                shape = self._constant(node, np.array(one.shape, np.int32))
                node.input[index] = self._add(node, "Reshape", number, shape, T=one.dtype, Tshape=np.dtype("int32"))

    def _is_folded(self, name: str) -> bool:
        """Returns whether a node's results depend on constants and shapes alone."""
        if name not in self._constants:
            node = self._nodes[name]
            self._constants[name] = node.op == "Const" or (
                complete(self._shapes(self._bucket)[_port(node.input[0])].shape) is not None
                if node.op == "Shape"
                else (
                    node.op in _FOLDED
                    or (node.op in _COMPARISONS and self._shapes(self._bucket)[f"{name}:0"].shape == ())
                )
                and all(self._is_folded(tensor_name(operand)[0]) for operand in node.input)
            )
        return self._constants[name]

    def _folded(self, names: Sequence[str], size: int) -> list[Any]:
        """Returns the first results of such nodes for a bucket."""
        import tensorflow as tf

        graph = graph_pb2.GraphDef(versions=self.work.graph.versions)
        for name in (name for name, folded in self._constants.items() if folded):
            node = graph.node.add()
            node.CopyFrom(self._nodes[name])
            if node.op == "Shape":
                shape = self._shapes(size)[_port(node.input[0])].shape
                dtype = node.attr["out_type"].type
                replace(
                    node, "Const", (), {"dtype": type_attribute(dtype), "value": np.array(shape, numpy_dtype(dtype))}
                )
        with tf.Graph().as_default() as built:
            tf.import_graph_def(graph, name="")
            with tf.compat.v1.Session(graph=built) as session:
                values: list[Any] = session.run([f"{name}:0" for name in names])
        return values

    def gather(self) -> None:
        """Reverses the values of a run only, which come first again. Otherwise, they come last, and some models need no more."""
        for node in [*self._nodes.values()]:
            axes = constant_of(self._nodes, node.input[1], self.work.feeds) if node.op == "ReverseV2" else None
            late = self._open(node.input[0]) if axes is not None else {}
            rank = self._rank(node.input[0]) if late else 1
            if axes is None or axes.size != 1 or (axis := int(axes.item()) % rank) not in late:
                continue
            int32, name = np.dtype("int32"), _port(node.input[0])
            places = self._constant(node, np.arange((self._tensors[name].shape or ())[axis] or 0, dtype=np.int32))
            self._places[places] = (0, late[axis])
            last = self.count(node, late[axis].then(-1))
            indices = self._add(node, "Sub", last, places, T=int32)
            indices = self._add(node, "Maximum", indices, self._constant(node, np.array(0, np.int32)), T=int32)
            types = {"Tparams": type_attribute(node.attr["T"].type), "Tindices": int32, "Taxis": int32, "batch_dims": 0}
            operands = [node.input[0], indices, self._constant(node, np.array(axis, np.int32))]
            self.work.become(node, "GatherV2", operands, **types)

    def mask(self) -> None:
        """Masks operands of operations that combine values along the size."""
        for node in [*self._nodes.values()]:
            rule = _MASKS.get(node.op)
            if rule is not None:
                rule(self, node)

    def masked(self, node: node_def_pb2.NodeDef, operand: int, axes: Sequence[int], value: float) -> None:
        """Gives an operand of a node a value behind the end of some of its dimensions."""
        tensor, late = node.input[operand], self._open(node.input[operand])
        name, port = tensor_name(tensor)
        known = self._tensors[f"{name}:{port}"]
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

    def count(self, node: node_def_pb2.NodeDef, count: Count) -> str:
        """Returns the number of right values, an int32."""
        number: str = self._size
        if count.add:
            number = self._add(
                node, "AddV2", number, self._constant(node, np.array(count.add, np.int32)), T=np.dtype("int32")
            )
        if count.divide > 1:
            divisor = self._constant(node, np.array(count.divide, np.int32))
            number = self._add(node, "Div", number, divisor, T=np.dtype("int32"))
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

    def _rank(self, tensor: str) -> int:
        name, port = tensor_name(tensor)
        return len(self._tensors[f"{name}:{port}"].shape or ())

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
        self.masked(node, 0, range(self._rank(tensor)), value)
        # An average leaves out padding.
        if node.op != "AvgPool" and node.attr["padding"].s == b"SAME" and node.attr["data_format"].s == b"NHWC":
            self._strided(node, self._tensors[_port(tensor)].shape or (), self._open(tensor), value)

    def _strided(
        self, node: node_def_pb2.NodeDef, shape: Sequence[int | None], late: Mapping[int, Count], value: float
    ) -> None:
        """Pads the operand of windows with strides by hand, because where they begin depends on the run's size.

        There is room for padding at both ends, and a slice begins where the first window does.
        """
        strides = node.attr["strides"].list.i
        axes = [axis for axis in (1, 2) if axis in late and strides[axis] > 1]
        kernel = (
            node.attr["ksize"].list.i
            if "ksize" in node.attr
            else (0, *(size or 0 for size in (self._tensors[_port(node.input[1])].shape or (0, 0))[:2]))
        )
        if len(axes) != 1 or 0 in kernel[1:3]:
            return
        (axis,) = axes
        int32, dilations = np.dtype("int32"), node.attr["dilations"].list.i if "dilations" in node.attr else (1,) * 4
        pads = np.zeros((len(shape), 2), np.int32)
        for dim in (1, 2):
            reach = (kernel[dim] - 1) * dilations[dim]
            if dim == axis:
                pads[dim] = reach // 2, reach
                continue
            if dim in late:
                return
            length = shape[dim] or 0
            short = max((-(-length // strides[dim]) - 1) * strides[dim] + reach + 1 - length, 0)
            pads[dim] = short // 2, short - short // 2
        low, reach = (int(number) for number in pads[axis])

        def number(op: str, left: str, right: int) -> str:
            return self._add(node, op, left, self._constant(node, np.array(right, np.int32)), T=int32)

        def chosen(op: str, *operands: str) -> str:
            return self._add(node, op, *operands, T=int32)

        size = self.count(node, late[axis])
        ends = number("Mul", number("FloorDiv", number("Sub", size, 1), strides[axis]), strides[axis])
        total = number("Maximum", chosen("Sub", number("AddV2", ends, reach + 1), size), 0)
        zero = self._constant(node, np.array(0, np.int32))
        first = chosen("Sub", self._constant(node, np.array(low, np.int32)), number("FloorDiv", total, 2))
        dtype = type_attribute(node.attr["T"].type)
        rest = self._constant(node, np.array(value, numpy_dtype(node.attr["T"].type)))
        padded = self._add(node, "PadV2", node.input[0], self._constant(node, pads), rest, T=dtype, Tpaddings=int32)
        begins = self._add(
            node, "Pack", *(first if dim == axis else zero for dim in range(len(shape))), N=len(shape), T=int32, axis=0
        )
        whole = self._add(node, "Shape", padded, T=dtype, out_type=int32)
        cut = [low if dim == axis else 0 for dim in range(len(shape))]
        sizes = chosen("Sub", whole, self._constant(node, np.array(cut, np.int32)))
        node.input[0] = self._add(node, "Slice", padded, begins, sizes, T=dtype, Index=int32)
        node.attr["padding"].s = b"VALID"

    def softmax(self, node: node_def_pb2.NodeDef) -> None:
        """Masks what a softmax normalizes."""
        self.masked(node, 0, [self._rank(node.input[0]) - 1], -math.inf)

    def band(self, node: node_def_pb2.NodeDef) -> None:
        """Gives a matrix's open sides a number that is larger than any size. XLA takes the bucket's."""
        for operand in (1, 2):
            side = constant_of(self._nodes, node.input[operand], self.work.feeds)
            if side is not None and side < 0:
                node.input[operand] = self._constant(node, np.array(2**30, side.dtype))

    def cut(self) -> None:
        """Cuts outputs to their true sizes.

        Raises:
          _Unproven: they may depend on what is behind the end of an input.
        """
        nodes, users = self.work.nodes(), self.work.users()
        sizes = {
            fetch
            for fetch in self.work.fetches
            if nodes[tensor_name(fetch)[0]].op == "Shape" and fetch.partition(":")[0].endswith("/size")
        }
        outputs = [fetch for fetch in self.work.fetches if fetch not in sizes]
        for fetch, (cause, counts) in zip(outputs, self._proven(outputs), strict=True):
            if cause is not None:
                node = cause.node if cause.node in nodes else tensor_name(fetch)[0]
                raise _Unproven(node, f"{cause.op} {cause.why}")
            if counts:
                self._cut(nodes[tensor_name(fetch)[0]], counts, users)

    def _cut(self, node: node_def_pb2.NodeDef, counts: Mapping[int, Count], users: Any) -> None:
        whole = self.work.graph.node.add()
        whole.CopyFrom(node)
        whole.name = self.work.unique(f"{node.name}/padded")
        self.work.origins[whole.name] = self.work.origins.get(node.name, node.name)
        for user in users[node.name]:
            if user.port >= 0 and user.node.op != "Shape":
                user.node.input[user.operand] = whole.name
        known = self._tensors[f"{node.name}:0"]
        rank = len(known.shape or ())
        zero, zeros, ones = (self._constant(node, np.array(value, np.int32)) for value in (0, [0] * rank, [1] * rank))
        ends = [self.count(node, counts[axis]) if axis in counts else zero for axis in range(rank)]
        end = self._add(node, "Pack", *ends, N=rank, T=np.dtype("int32"), axis=0)
        every = (1 << rank) - 1
        masks = {"begin_mask": every, "end_mask": every & ~sum(1 << axis for axis in counts)}
        masks |= dict.fromkeys(("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
        operands = [whole.name, zeros, end, ones]
        self.work.become(
            node, "StridedSlice", operands, T=type_attribute(known.dtype), Index=np.dtype("int32"), **masks
        )

    def _proven(self, outputs: Sequence[str]) -> list[tuple[Cause | None, dict[int, Count]]]:
        """Runs the proof on the program for the bucket and for another one."""
        from tensorflow.compiler.xla.service import hlo_pb2

        variables = [
            lowering.Argument(
                node.attr["shared_name"].s.decode(),
                node.attr["dtype"].type,
                tuple(dim.size for dim in node.attr["shape"].shape.dim),
            )
            for node in self.work.graph.node
            if node.op == "VarHandleOp"
        ]
        modules = []
        # Of a bucket of 1, nothing is behind the end, and a dimension of 1 looks like one that is broadcast.
        for program in (self._at(max(self._bucket, 2)), self._at(self._other)):
            inputs = [
                lowering.Argument(name, feed.dtype, complete(feed.shape) or ()) for name, feed in program.feeds.items()
            ]
            try:
                data = lowering.lower(
                    program.graph, inputs, variables, outputs, stage="hlo_serialized", for_shapes=True
                )
            except Exception as error:  # its types say nothing
                raise _Unproven("", f"XLA refuses it without cuts: {str(error).splitlines()[0]}") from None
            modules.append(xla.read(hlo_pb2.HloModuleProto.FromString(data)))
        names = [name if ":" in name else f"{name}:0" for name in self.work.feeds]
        sized = {names.index(feed if ":" in feed else f"{feed}:0"): axes for feed, axes in self._inputs.items()}
        size = names.index(self._size if ":" in self._size else f"{self._size}:0")
        results = prove((modules[0], modules[1]), sized, size)
        for cause, counts in results[len(outputs) :]:  # written variables
            if cause is not None:
                raise _Unproven(cause.node, f"{cause.op} {cause.why}")
            if counts:
                raise _Unproven("", "a variable that it writes has the size")
        return results[: len(outputs)]


_LOOPS = frozenset({"StatelessWhile", "While"})

_LISTS = frozenset({*IDENTITIES, *_LOOPS, "TensorListSetItem"})
"""Ops that return a list of as many items as they take: result i for operand i."""

_ARITHMETIC = ("AddV2", "FloorDiv", "FloorMod", "Maximum", "Minimum", "Mul", "Sub")
_COMPARISONS = ("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual")

_NUMBERS: Mapping[str, tuple[int, ...]] = {
    "Cast": (0,),
    "GatherV2": (1,),
    **dict.fromkeys(_ARITHMETIC + _COMPARISONS, (0, 1)),
}
"""Ops that compute with numbers, and the operands that can be numbers of values."""

_FOLDED = frozenset(
    {*IDENTITIES, *_ARITHMETIC, "Cast", "ConcatV2", "ExpandDims", "Fill", "GatherV2", "Neg", "Pack", "Prod", "Range"}
    | {"Reshape", "SelectV2", "Squeeze", "StridedSlice", "Sum"}
)
"""Ops that make numbers from shapes."""


def _port(operand: str) -> str:
    name, port = tensor_name(operand)
    return f"{name}:{port}"


_MASKS: Mapping[str, Callable[[_Padded, node_def_pb2.NodeDef], object]] = {
    "All": lambda padded, node: padded.reduced(node, True),
    "Any": lambda padded, node: padded.reduced(node, False),
    "AvgPool": lambda padded, node: padded.windows(node, 0),
    "BatchMatMulV2": _Padded.matrices,
    "BatchMatMulV3": _Padded.matrices,
    "Conv2D": lambda padded, node: padded.windows(node, 0),
    "DepthwiseConv2dNative": lambda padded, node: padded.windows(node, 0),
    "Einsum": _Padded.einsum,
    "LogSoftmax": _Padded.softmax,
    "MatMul": _Padded.matrices,
    "MatrixBandPart": _Padded.band,
    "Max": lambda padded, node: padded.reduced(node, _bound(node, -math.inf)),
    "MaxPool": lambda padded, node: padded.windows(node, -math.inf),
    "Mean": _Padded.averaged,
    "Min": lambda padded, node: padded.reduced(node, _bound(node, math.inf)),
    "Prod": lambda padded, node: padded.reduced(node, 1),
    "Softmax": _Padded.softmax,
    "Sum": lambda padded, node: padded.reduced(node, 0),
}
"""Ops that combine values, and what masks them."""


def _bound(node: node_def_pb2.NodeDef, infinity: float) -> float:
    """Returns the least or the largest number of a node's dtype."""
    dtype = numpy_dtype(node.attr["T"].type)
    if dtype.kind not in "iu":
        return infinity
    return int(np.iinfo(dtype).max if infinity > 0 else np.iinfo(dtype).min)
