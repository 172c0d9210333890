"""The loops of a graph as passes see them: what is the same in every step, which indices steps use, what stacks hold.

A loop is a While of control flow v2 in the graph itself; those in functions are left alone. What a loop's body does in
step k = 0, 1, … is known as far as it is integer arithmetic on counters and constants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2, types_pb2

from tfaot.graph.attributes import (
    Array,
    Shape,
    attribute,
    complete,
    literal,
    shape_proto,
    type_attribute,
    types_attribute,
)
from tfaot.graph.functions import EditableFunction
from tfaot.graph.names import canonical, take, tensor_name
from tfaot.graph.ops import IDENTITIES, WHILES
from tfaot.graph.program import Program, Tensor, shape_of

Indices = npt.NDArray[Any]
"""A scalar of the loop's body in each step, [trips], in its own dtype: integers wrap around as TensorFlow's do."""

_READS = frozenset({"ReadVariableOp", "VariableShape"})
_LONGEST = 1 << 16
"""Steps of the longest loop whose indices are worked out."""
_INTEGERS: dict[int, np.dtype[Any]] = {
    types_pb2.DT_INT32: np.dtype(np.int32),
    types_pb2.DT_INT64: np.dtype(np.int64),
}
"""What counters are made of."""
_LARGEST = 1 << 12
"""Elements of the largest constant that is worked out: shapes and bounds are small."""

_SCALARS: dict[str, Callable[..., Array]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Equal": np.equal,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "LogicalAnd": np.logical_and,
    "LogicalNot": np.logical_not,
    "LogicalOr": np.logical_or,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mul": np.multiply,
    "NotEqual": np.not_equal,
    "Sub": np.subtract,
}
"""What conditions and indices are made of."""

_FOLDED = frozenset(
    {
        *_SCALARS,
        "All",
        "Cast",
        "ConcatV2",
        "ExpandDims",
        "Fill",
        "GatherV2",
        "Max",
        "Min",
        "Pack",
        "Prod",
        "Range",
        "Reshape",
        "Slice",
        "Squeeze",
        "StridedSlice",
        "Sum",
    }
)
"""What bounds of loops and shapes of lists are made of."""


@dataclasses.dataclass(frozen=True)
class Popped:
    """A value that a loop pops from a stack: what an earlier loop of as many steps pushed, last first."""

    loop: Loop
    """The earlier one."""
    index: int
    """The position of the stack among its operands."""
    value: str
    """What its body pushes."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A value that a loop reads from a list that stays the same."""

    index: int
    """The position of the list among the loop's operands."""
    indices: Indices
    """Which item each step reads."""
    shape: str
    """The operand that says the item's shape, in the body."""


class Loop:
    """A While, its condition, and its body. Passes change the body and operands, and then call `write`."""

    def __init__(self, loops: Loops, node: node_def_pb2.NodeDef) -> None:
        """Reads a loop of a program."""
        library = {function.signature.name: function for function in loops.program.graph.library.function}
        self.name = node.name
        self.operands = [canonical(operand) for operand in node.input if not operand.startswith("^")]
        """Tensors of the graph, by position."""
        self.waits = [operand for operand in node.input if operand.startswith("^")]
        """Its control inputs."""
        self.cond = EditableFunction(library[node.attr["cond"].func.name], library)
        self.body = EditableFunction(library[node.attr["body"].func.name], library)
        self._loops = loops
        self._counters: dict[int, tuple[Array, Array]] = {}
        self._values: dict[str, Indices | None] = {}
        self._copies: dict[str, str] = {}
        self._find_counters()
        self.trips: int | None = self._trips()
        """How often the body runs; None if that is not known, never, or more than a few ten thousand times."""

    def invariant(self, index: int) -> bool:
        """Whether an operand is the same in every step."""
        return self.body.resolve(self.body.results[index]) == self.body.arguments[index]

    def constant_argument(self, tensor: str) -> int | None:
        """The position of the operand that a tensor of the body is, if it is the same in every step; else None."""
        index = self.body.argument(tensor)
        return index if index is not None and self.invariant(index) else None

    def outside(self, tensor: str) -> str | None:
        """The graph's tensor that a tensor of the body is in every step; None if it is none. A constant is copied there."""
        index = self.constant_argument(tensor)
        if index is not None:
            return self.operands[index]
        node = self.body.producer(self.body.resolve(tensor))
        if node is None or node.op != "Const":
            return None
        if node.name not in self._copies:
            value = literal(node)
            copy = self._loops.program.constant(f"{self.name}/{node.name}", value, origin=self.name)
            self._loops.added(copy, Tensor(value.shape, node.attr["dtype"].type))
            self._copies[node.name] = f"{copy.name}:0"
        return self._copies[node.name]

    def _find_counters(self) -> None:
        """Fills `_counters` with start and step of each operand that grows by a constant."""
        for index, result in enumerate(self.body.results):
            node = self.body.producer(self.body.resolve(result))
            if self.body.types[index] not in _INTEGERS or node is None or node.op not in ("Add", "AddV2", "Sub"):
                continue
            first, second = (self.body.resolve(operand) for operand in node.input[:2])
            if node.op != "Sub" and second == self.body.arguments[index]:
                first, second = second, first
            step = self._constant(self.body, second)
            start = self._loops.constant(self.operands[index])
            if first == self.body.arguments[index] and step is not None and start is not None and start.ndim == 0:
                # An array of one element wraps around in silence, where a scalar warns.
                self._counters[index] = (start.reshape(1), -step.reshape(1) if node.op == "Sub" else step.reshape(1))

    def _counted(self, index: int, steps: Array) -> Indices:
        """What a counter is before given steps."""
        start, step = self._counters[index]
        result: Indices = start + step * steps.astype(_INTEGERS[self.body.types[index]])
        return result

    def _constant(self, body: EditableFunction, tensor: str) -> Array | None:
        """A scalar of the condition or body, an integer or a bool, that is the same in every step, and known."""
        node = body.producer(body.resolve(tensor))
        value = None
        if node is not None and node.op == "Const":
            value = literal(node)
        elif node is None and (index := body.argument(tensor)) is not None and self.invariant(index):
            value = self._loops.constant(self.operands[index])
        return value if value is not None and value.ndim == 0 and value.dtype.kind in "ib" else None

    def _evaluate(
        self, body: EditableFunction, tensor: str, steps: Array, memo: dict[str, Array | None]
    ) -> Array | None:
        """A scalar of the condition or body in given steps, if it is integer arithmetic; else None."""
        tensor = body.resolve(tensor)
        if tensor not in memo:
            memo[tensor] = self._compute(body, tensor, steps, memo)
        return memo[tensor]

    def _compute(
        self, body: EditableFunction, tensor: str, steps: Array, memo: dict[str, Array | None]
    ) -> Array | None:
        constant = self._constant(body, tensor)
        if constant is not None:
            return np.full(steps.shape, constant)
        node = body.producer(tensor)
        if node is None:
            index = body.arguments.index(tensor)
            return self._counted(index, steps) if index in self._counters else None
        if body is self.body and node.op == "TensorListPopBack" and tensor_name(tensor)[1] == 1:
            popped = self.popped(tensor)
            pushed = popped.loop.values(popped.value) if popped else None
            return pushed[::-1][steps] if pushed is not None else None
        if node.op not in _SCALARS or tensor_name(tensor)[1] != 0:
            return None
        operands = [self._evaluate(body, each, steps, memo) for each in node.input if not each.startswith("^")]
        if any(operand is None for operand in operands):
            return None
        # TensorFlow refuses a division by zero, and what XLA then computes is its own affair.
        if node.op in ("FloorDiv", "FloorMod") and not np.asarray(operands[1]).all():
            return None
        return _SCALARS[node.op](*operands)

    def _trips(self) -> int | None:
        going = self._evaluate(self.cond, self.cond.results[0], np.arange(_LONGEST + 1), {})
        if going is None or going.all() or not going[0]:
            return None
        return int(np.argmin(going))

    def values(self, tensor: str) -> Indices | None:
        """What a scalar integer of the body is in each step; None if that is not known."""
        if self.trips is None:
            return None
        tensor = self.body.resolve(tensor)
        if tensor not in self._values:
            value = self._evaluate(self.body, tensor, np.arange(self.trips), {})
            self._values[tensor] = value if value is not None and value.dtype.kind == "i" else None
        return self._values[tensor]

    def last(self, index: int) -> Array | None:
        """What a counter is after the loop; None if the operand is no counter, or the trips are not known."""
        if self.trips is None or index not in self._counters:
            return None
        return self._counted(index, np.array([self.trips])).reshape(())

    def scalar(self, values: Indices, name: str) -> str | None:
        """A tensor of the body, a scalar int32, that has given values in the steps; None if no counter gives them.

        Args:
          values: [trips]
          name: of new nodes.
        """
        for index in self._counters:
            if self.body.types[index] != types_pb2.DT_INT32:
                continue
            argument = self.body.arguments[index]
            counted = self._counted(index, np.arange(len(values)))
            for op, signed in (("AddV2", counted), ("Sub", -counted)):
                offset = values[:1].astype(np.int32) - signed[:1]
                if not np.array_equal(values, offset + signed):
                    continue
                if op == "AddV2" and not offset.any():
                    return argument
                made = self.body.add(op, name, [self.number(int(offset[0]), name), argument], T=np.dtype(np.int32))
                return f"{made.name}:0"
        return None

    def number(self, value: int, name: str) -> str:
        """Adds a scalar int32 to the body."""
        constant = self.body.add(
            "Const", f"{name}/{value}", (), dtype=np.dtype(np.int32), value=np.array(value, np.int32)
        )
        return f"{constant.name}:0"

    def vector(self, values: tuple[int, ...], name: str) -> str:
        """Adds a vector int32 to the body."""
        constant = self.body.add("Const", name, (), dtype=np.dtype(np.int32), value=np.array(values, np.int32))
        return f"{constant.name}:0"

    def item(self, tensor: str) -> Item | None:
        """The item of a list that a tensor of the body is; None if it is none, or the indices are not known."""
        node = self.body.producer(self.body.resolve(tensor))
        if node is None or node.op != "TensorListGetItem":
            return None
        index = self.constant_argument(node.input[0])
        indices = self.values(node.input[1])
        return Item(index, indices, node.input[2]) if index is not None and indices is not None else None

    def popped(self, tensor: str) -> Popped | None:
        """Where a value comes from that the body pops from a stack; None if it is none, or the stack is not understood."""
        node = self.body.producer(self.body.resolve(tensor))
        if node is None or node.op != "TensorListPopBack":
            return None
        index = self.body.argument(node.input[0])
        if index is None or self.body.resolve(self.body.results[index]) != f"{node.name}:0":
            return None
        name, port = tensor_name(self._loops.resolve(self.operands[index]))
        earlier = self._loops.loops.get(name)
        if earlier is None or earlier is self or earlier.trips is None or earlier.trips != self.trips:
            return None
        value = earlier.pushed(port)
        return Popped(earlier, port, value) if value is not None else None

    def pushed(self, index: int) -> str | None:
        """What each step pushes onto an operand that is an empty stack at first; None if it is no such stack."""
        node = self.body.producer(self.body.resolve(self.body.results[index]))
        if node is None or node.op != "TensorListPushBack" or self.body.argument(node.input[0]) != index:
            return None
        if len(self.body.users(self.body.arguments[index])) != 1:
            return None
        made = self._loops.producer(self.operands[index])
        return node.input[1] if made is not None and made.op == "EmptyTensorList" else None

    def shapes(self) -> dict[str, Tensor]:
        """What is known of each tensor of the body, by name; loops in XLA keep the shapes that their operands have."""
        import tensorflow as tf

        graph = self.body.graph()
        known: dict[str, Tensor] = {}
        for argument, operand, dtype in zip(self.body.arguments, self.operands, self.body.types, strict=True):
            found = self._loops.tensor(operand)
            known[argument] = Tensor(found.shape if found and dtype != types_pb2.DT_RESOURCE else None, dtype)
        renamed: dict[str, str] = {}
        for node in self.body.nodes.values():
            if node.op == "TensorListPopBack" and (popped := self.popped(f"{node.name}:1")):
                shape = self._loops.element_shape(popped.loop.operands[popped.index])
                known[f"{node.name}:1"] = Tensor(shape, node.attr["element_dtype"].type)
        for index, (tensor, value) in enumerate(known.items()):
            name = tensor_name(tensor)[0]
            if name in self.body.nodes:
                name = renamed[tensor] = f"{name}/tfaot_{index}"
            placeholder = graph.node.add(op="Placeholder", name=name)
            placeholder.attr["dtype"].type = value.dtype
            placeholder.attr["shape"].CopyFrom(attribute(shape_proto(value.shape)))
        for node in graph.node:
            node.input[:] = [renamed.get(operand, operand) for operand in node.input]
        graph.library.CopyFrom(self._loops.program.graph.library)
        with tf.Graph().as_default() as built:
            tf.import_graph_def(graph, name="")
            result = {
                tensor.name: Tensor(shape_of(tensor.shape), tensor.dtype.as_datatype_enum)
                for operation in built.get_operations()
                for tensor in operation.outputs
            }
        return result | known

    def give(self, operand: str, dtype: int, name: str) -> str:
        """Adds an operand, which stays the same in every step as long as nobody changes its result; returns the argument.

        Args:
          operand: a tensor of the graph.
          dtype: its `tensorflow.DataType`.
          name: of the argument.
        """
        argument = f"{self.body.unique(name)}:0"
        self.operands.append(canonical(operand))
        for body in (self.body, self.cond):
            unique = argument if body is self.body else f"{body.unique(name)}:0"
            body.arguments.append(unique)
            body.types.append(dtype)
        self.body.results.append(argument)
        self.body.result_types.append(dtype)
        return argument

    def hoist_reads(self) -> int:
        """Reads variables before the loop that it does not write; returns how many.

        The read follows whatever the loop follows, and what follows the loop follows the read.
        """
        written = set()
        if any(node.op == "VarHandleOp" for node in self.body.nodes.values()):
            return 0
        for node in self.body.effects():
            if node.op not in _READS:
                for operand in node.input:
                    index = self.body.argument(operand)
                    if index is not None and self.body.types[index] == types_pb2.DT_RESOURCE:
                        written.add(self._loops.variable(self.operands[index]))
        count = 0
        if None in written:
            return 0
        given: dict[int, str] = {}
        for node in [node for node in self.body.nodes.values() if node.op == "ReadVariableOp"]:
            index = self.constant_argument(node.input[0])
            if index is None or self._loops.variable(self.operands[index]) in written | {None}:
                continue
            dtype = node.attr["dtype"].type
            if index not in given:
                read = self._loops.program.add(
                    "ReadVariableOp",
                    f"{self.name}/{node.name}",
                    [self.operands[index], *self.after()],
                    origin=self.name,
                    dtype=type_attribute(dtype),
                )
                self._loops.added(read, self._loops.tensor_of_variable(self.operands[index]))
                given[index] = self.give(f"{read.name}:0", dtype, f"{node.name}/value")
            self.body.become(node, "Identity", [given[index]], T=type_attribute(dtype))
            count += 1
        return count

    def after(self) -> list[str]:
        """Control inputs that order a node after all that the loop follows."""
        names = [tensor_name(operand)[0] for operand in self.operands]
        nodes = self._loops.nodes
        fed = {tensor_name(feed)[0] for feed in self._loops.program.feeds}
        needed = [name for name in names if nodes[name].op not in ("Const", "VarHandleOp") and name not in fed]
        return list(dict.fromkeys([*self.waits, *(f"^{name}" for name in needed)]))

    def write(self) -> None:
        """Writes the loop into the graph, without operands that nothing needs and nodes that compute nothing."""
        program = self._loops.program
        if not self.body.effects():
            for node in self.body.nodes.values():
                node.input[:] = [operand for operand in node.input if not operand.startswith("^")]
        kept = self._live()
        for body in (self.body, self.cond):
            body.arguments = [body.arguments[index] for index in kept]
            body.types = [body.types[index] for index in kept]
        self.operands = [self.operands[index] for index in kept]
        self.body.results = [self.body.results[index] for index in kept]
        self.body.result_types = [*self.body.types]
        for body in (self.body, self.cond):
            effects = [f"^{node.name}" for node in body.effects()]
            needed = body.needed([*body.results, *effects])
            body.nodes = {name: node for name, node in body.nodes.items() if name in needed}
        node = self._loops.nodes[self.name]
        taken = {function.signature.name for function in program.graph.library.function}
        for key, body in (("cond", self.cond), ("body", self.body)):
            name = take(node.attr[key].func.name.removesuffix("_tfaot") + "_tfaot", taken)
            program.graph.library.function.append(body.function(name))
            node.attr[key].func.name = name
        node.input[:] = [*self.operands, *self.waits]
        node.attr["T"].CopyFrom(types_attribute(self.body.types))
        # Without them, shapes of results are those of operands, which XLA wants in any case.
        for key in ("output_shapes", "_output_shapes", "_num_original_outputs", "_read_only_resource_inputs"):
            node.attr.pop(key, None)
        ports = {index: port for port, index in enumerate(kept)}
        for user in program.graph.node:
            for position, operand in enumerate(user.input):
                name, port = tensor_name(operand)
                if name == self.name and port >= 0:
                    user.input[position] = f"{name}:{ports[port]}"
        self._values.clear()
        self._counters.clear()
        self._find_counters()

    def _live(self) -> list[int]:
        """Positions of operands that the condition, an effect, or somebody outside needs, directly or in later steps."""
        count = len(self.operands)
        if self.name in self._loops.program.kept():
            return list(range(count))
        live = {
            port
            for node in self._loops.program.graph.node
            for name, port in map(tensor_name, node.input)
            if name == self.name
        } - {-1}
        needed = self.cond.needed(self.cond.results)
        live |= {index for index in range(count) if tensor_name(self.cond.arguments[index])[0] in needed}
        effects = [f"^{node.name}" for node in self.body.effects()]
        while True:
            needed = self.body.needed([*(self.body.results[index] for index in live), *effects])
            more = {index for index in range(count) if tensor_name(self.body.arguments[index])[0] in needed} - live
            if not more:
                return sorted(live)
            live |= more


class Loops:
    """A program's graph, with its loops."""

    def __init__(self, program: Program) -> None:
        """Reads the loops of a program. Passes add nodes to the graph through `add`, `constant`, and `added`."""
        self.program = program
        self.nodes = program.nodes()
        self._tensors = program.tensors() if any(node.op in WHILES for node in program.graph.node) else {}
        self._constants: dict[str, Array | None] = {}
        self.loops: dict[str, Loop] = {}
        """By name, in an order in which none takes results of a later one."""
        for node in self._ordered():
            self.loops[node.name] = Loop(self, node)

    def _ordered(self) -> list[node_def_pb2.NodeDef]:
        """The While nodes, each after those that it takes something from."""
        order: list[node_def_pb2.NodeDef] = []
        seen: set[str] = set()
        stack = [(node.name, False) for node in self.program.graph.node if node.op in WHILES]
        while stack:
            name, done = stack.pop()
            node = self.nodes[name]
            if done:
                order += [node] if node.op in WHILES else []
            elif name not in seen:
                seen.add(name)
                stack.append((name, True))
                stack += [(tensor_name(operand)[0], False) for operand in node.input]
        return order

    def add(
        self, op: str, name: str, inputs: Iterable[str], shape: Shape, dtype: int, *, origin: str, **attributes: object
    ) -> str:
        """Adds a node of one result to the graph, and returns the result.

        Args:
          op: the op's type.
          name: of the node; made unique.
          inputs: operands.
          shape: of the result.
          dtype: its `tensorflow.DataType`.
          origin: the node that it stands for.
          **attributes: as of `program.attribute`.
        """
        node = self.program.add(op, name, inputs, origin=origin, **attributes)
        self.added(node, Tensor(shape, dtype))
        return f"{node.name}:0"

    def constant_vector(self, name: str, values: Iterable[int], *, origin: str) -> str:
        """Adds a constant int32 vector to the graph."""
        array = np.array([*values], np.int32)
        node = self.program.constant(name, array, origin=origin)
        self.added(node, Tensor(array.shape, types_pb2.DT_INT32))
        return f"{node.name}:0"

    def constant_scalar(self, name: str, value: int, *, origin: str) -> str:
        """Adds a constant int32 scalar to the graph."""
        node = self.program.constant(name, np.array(value, np.int32), origin=origin)
        self.added(node, Tensor((), types_pb2.DT_INT32))
        return f"{node.name}:0"

    def added(self, node: node_def_pb2.NodeDef, tensor: Tensor | None) -> None:
        """Notes a node that is new in the graph, and what is known of its first result."""
        self.nodes[node.name] = node
        if tensor is not None:
            self._tensors[f"{node.name}:0"] = tensor

    def producer(self, tensor: str) -> node_def_pb2.NodeDef | None:
        """The node that computes a tensor, perhaps behind identities; None for what is fed."""
        resolved = self.resolve(tensor)
        return None if resolved in self.program.feeds else self.nodes[tensor_name(resolved)[0]]

    def resolve(self, tensor: str) -> str:
        """The tensor behind identities, and behind loops that only hand it on."""
        while True:
            tensor = canonical(tensor)
            name, port = tensor_name(tensor)
            node = self.nodes[name]
            loop = self.loops.get(name)
            if tensor in self.program.feeds:
                return tensor
            if node.op in IDENTITIES:
                tensor = node.input[0]
            elif loop is not None and loop.body.types[port] != types_pb2.DT_RESOURCE and loop.invariant(port):
                tensor = loop.operands[port]
            else:
                return tensor

    def tensor(self, tensor: str) -> Tensor | None:
        """What is known of a tensor of the graph."""
        tensor = canonical(tensor)
        known = self._tensors.get(self.resolve(tensor)) or self._tensors.get(tensor)
        name, port = tensor_name(tensor)
        if (known is None or known.shape is None) and name in self.loops:
            known = self.tensor(self.loops[name].operands[port]) or known
        return known

    def dtype(self, tensor: str) -> int:
        """The `tensorflow.DataType` of a tensor of the graph."""
        known = self._tensors[canonical(tensor)]
        return known.dtype

    def shape(self, tensor: str) -> tuple[int, ...] | None:
        """The shape of a tensor of the graph; None if a size is not known."""
        known = self.tensor(tensor)
        return complete(known.shape) if known else None

    def variable(self, handle: str) -> str | None:
        """The shared name of the variable whose handle a tensor is; None if that is not known."""
        node = self.nodes[tensor_name(handle)[0]]
        while node.op in IDENTITIES or node.name in self.loops:
            name, port = tensor_name(handle)
            loop = self.loops.get(name)
            if loop is not None and not loop.invariant(port):
                return None
            handle = canonical(loop.operands[port] if loop is not None else node.input[0])
            node = self.nodes[tensor_name(handle)[0]]
        return node.attr["shared_name"].s.decode() if node.op == "VarHandleOp" else None

    def tensor_of_variable(self, handle: str) -> Tensor | None:
        """What is known of the value of the variable whose handle a tensor is."""
        wanted = self.variable(handle)
        for node in self.nodes.values():
            if node.op == "VarHandleOp" and node.attr["shared_name"].s.decode() == wanted:
                sizes = node.attr["shape"].shape
                shape = None if sizes.unknown_rank else tuple(dim.size if dim.size >= 0 else None for dim in sizes.dim)
                return Tensor(shape, node.attr["dtype"].type)
        return None

    def element_shape(self, tensor: str) -> Shape:
        """The shape of the elements of a list, as it was made."""
        made = self.producer(tensor)
        if made is None or made.op not in ("EmptyTensorList", "TensorListReserve", "TensorListFromTensor"):
            return None
        sizes = self.constant(made.input[1 if made.op == "TensorListFromTensor" else 0])
        if sizes is None or sizes.ndim != 1:
            return None
        return tuple(int(size) if size >= 0 else None for size in sizes)

    def constant(self, tensor: str) -> Array | None:
        """The value of a tensor of the graph that is made of constants and known shapes; None for others, and large ones."""
        tensor = self.resolve(tensor)
        if tensor not in self._constants:
            self._constants[tensor] = None
            self._constants[tensor] = self._fold(tensor)
        return self._constants[tensor]

    def _fold(self, tensor: str) -> Array | None:
        import tensorflow as tf

        graph = graph_pb2.GraphDef()
        made: dict[str, bool] = {}

        def collect(tensor: str) -> str | None:
            """Copies what a tensor is computed from; returns the copy's name, or None if it is not known."""
            tensor = self.resolve(tensor)
            name, port = tensor_name(tensor)
            node = self.nodes[name]
            if tensor in self.program.feeds or tensor in made:
                return tensor if made.get(tensor) else None
            made[tensor] = False
            value = None
            if node.op == "Const":
                value = literal(node)
            elif node.op in ("Shape", "Size"):
                shape = self.shape(node.input[0])
                dtype = np.int64 if node.attr["out_type"].type == types_pb2.DT_INT64 else np.int32
                if shape is None:
                    return None
                value = np.array(shape if node.op == "Shape" else int(np.prod(shape)), dtype)
            elif name in self.loops:
                last = self.loops[name].last(port)
                if last is None:
                    return None
                value = last
            if value is not None:
                if value.size > _LARGEST or value.dtype == object:
                    return None
                copy = graph.node.add(op="Const", name=f"{name}/{port}")
                copy.attr["dtype"].CopyFrom(attribute(value.dtype))
                copy.attr["value"].CopyFrom(attribute(value))
            else:
                if node.op not in _FOLDED:
                    return None
                operands = [collect(operand) for operand in node.input if not operand.startswith("^")]
                if any(operand is None for operand in operands):
                    return None
                copy = graph.node.add(op=node.op, name=f"{name}/{port}")
                copy.input.extend(f"{each.replace(':', '/')}" for each in operands if each)
                for key, attr in node.attr.items():
                    if not key.startswith("_"):
                        copy.attr[key].CopyFrom(attr)
            made[tensor] = port == 0 or name in self.loops
            return tensor if made[tensor] else None

        if collect(tensor) is None:
            return None
        if len(graph.node) == 1 and graph.node[0].op == "Const":
            return literal(graph.node[0])
        with tf.Graph().as_default() as built:
            tf.import_graph_def(graph, name="")
            fetched = built.get_tensor_by_name(tensor.replace(":", "/") + ":0")
            if fetched.shape.num_elements() is None or fetched.shape.num_elements() > _LARGEST:
                return None
            with tf.compat.v1.Session(graph=built) as session:
                try:
                    return np.asarray(session.run(fetched))
                except tf.errors.OpError:  # a division by zero, an index out of range: running the model says so
                    return None

    def zero(self, tensor: str) -> bool:
        """Whether a tensor of the graph is zeros, or a list of zeros."""
        node = self.producer(tensor)
        if node is None:
            return False
        if node.op in ("ZerosLike", "TensorListReserve"):
            return True
        if node.op == "Fill":
            return self.zero(node.input[1])
        if node.op != "Const" or node.attr["dtype"].type == types_pb2.DT_STRING:
            return False
        return not literal(node).any()

    def replace(self, tensor: str, by: str, besides: str = "") -> None:
        """Makes all nodes that take a tensor of the graph take another one; what is fetched must not be replaced.

        Args:
          tensor: the tensor.
          by: what they get instead.
          besides: a result of a node that goes on taking it.
        """
        tensor = canonical(tensor)
        for node in self.program.graph.node:
            if node.name == tensor_name(besides)[0]:
                continue
            for position, operand in enumerate(node.input):
                if not operand.startswith("^") and canonical(operand) == tensor:
                    node.input[position] = by
        for loop in self.loops.values():
            loop.operands = [by if operand == tensor else operand for operand in loop.operands]

    def fetched(self, tensor: str) -> bool:
        """Whether somebody outside sees the node of a tensor."""
        return tensor_name(tensor)[0] in self.program.kept()


def list_attributes(dtype: int) -> dict[str, attr_value_pb2.AttrValue]:
    """Attributes of an op that makes a list, whose shapes are int32."""
    return {"element_dtype": type_attribute(dtype), "shape_type": type_attribute(types_pb2.DT_INT32)}
