"""One loop of a graph, as passes see and edit it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from tensorflow.core.framework import node_def_pb2, types_pb2

from tfaot.compile.passes.loops.steps import Indices, Steps
from tfaot.graph.attributes import (
    Shape,
    attribute,
    literal,
    shape_of,
    shape_proto,
    type_attribute,
    types_attribute,
)
from tfaot.graph.functions import EditableFunction
from tfaot.graph.names import canonical, take, tensor_name
from tfaot.graph.program import Tensor

if TYPE_CHECKING:
    from tfaot.compile.passes.loops.loops import Loops


@dataclasses.dataclass(frozen=True)
class Popped:
    """A value that a loop pops from a stack, which an earlier loop with the same trip count filled."""

    loop: Loop
    """The earlier loop."""
    index: int
    """The stack's position among the earlier loop's operands."""
    value: str
    """The tensor that the earlier loop's body pushes."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A value that a loop reads from a loop-invariant list."""

    index: int
    """The list's position among the loop's operands."""
    indices: Indices
    """The item that each step reads."""
    shape: str
    """The body's tensor with the item's shape."""


class Loop:
    """A While with its condition and body. Passes edit the body and operands, then call `write`."""

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
        self._copies: dict[str, str] = {}
        self.steps = Steps(self, loops.constant)
        """The trip count, and the integers in the steps."""

    def invariant(self, index: int) -> bool:
        """Returns whether an operand is loop-invariant."""
        return self.body.resolve(self.body.results[index]) == self.body.arguments[index]

    def constant_argument(self, tensor: str) -> int | None:
        """Returns the position of the loop-invariant operand behind a tensor of the body, or None."""
        index = self.body.argument(tensor)
        return index if index is not None and self.invariant(index) else None

    def outside(self, tensor: str) -> str | None:
        """Returns the graph's tensor that equals a loop-invariant tensor of the body, or None. Copies constants."""
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

    def scalar(self, values: Indices, name: str) -> str | None:
        """Returns a scalar int32 tensor of the body with the given value in each step; None if no counter can express them."""
        counter = self.steps.offset(values)
        if counter is None:
            return None
        index, op, offset = counter
        argument = self.body.arguments[index]
        if op == "AddV2" and not offset:
            return argument
        return self.add(op, name, [self.number(offset, name), argument], types_pb2.DT_INT32)

    def add(self, op: str, name: str, inputs: Iterable[str], dtype: int, key: str = "T", **attributes: object) -> str:
        """Adds a node to the body, whose attribute `key` is a `tensorflow.DataType`. Returns its first result."""
        attributes[key] = type_attribute(dtype)
        return f"{self.body.add(op, name, inputs, **attributes).name}:0"

    def number(self, value: int, name: str) -> str:
        """Adds a scalar int32 to the body."""
        return self.add("Const", f"{name}/{value}", (), types_pb2.DT_INT32, "dtype", value=np.array(value, np.int32))

    def vector(self, values: tuple[int, ...], name: str) -> str:
        """Adds an int32 vector to the body."""
        return self.add("Const", name, (), types_pb2.DT_INT32, "dtype", value=np.array(values, np.int32))

    def item(self, tensor: str) -> Item | None:
        """Returns the list item behind a tensor of the body; None if there is none, or its index is unknown."""
        node = self.body.producer(self.body.resolve(tensor))
        if node is None or node.op != "TensorListGetItem":
            return None
        index = self.constant_argument(node.input[0])
        indices = self.steps.values(node.input[1])
        return Item(index, indices, node.input[2]) if index is not None and indices is not None else None

    def popped(self, tensor: str) -> Popped | None:
        """Returns the origin of a value that the body pops from a stack; None if it isn't popped, or the stack isn't understood."""
        node = self.body.producer(self.body.resolve(tensor))
        if node is None or node.op != "TensorListPopBack":
            return None
        index = self.body.argument(node.input[0])
        if index is None or self.body.resolve(self.body.results[index]) != f"{node.name}:0":
            return None
        name, port = tensor_name(self._loops.resolve(self.operands[index]))
        earlier = self._loops.loops.get(name)
        if earlier is None or earlier is self or earlier.steps.trips is None or earlier.steps.trips != self.steps.trips:
            return None
        value = earlier.pushed(port)
        return Popped(earlier, port, value) if value is not None else None

    def pushed(self, index: int) -> str | None:
        """Returns the tensor that each step pushes onto an operand that starts as an empty stack; None for other operands."""
        node = self.body.producer(self.body.resolve(self.body.results[index]))
        if node is None or node.op != "TensorListPushBack" or self.body.argument(node.input[0]) != index:
            return None
        if len(self.body.users(self.body.arguments[index])) != 1:
            return None
        made = self._loops.producer(self.operands[index])
        return node.input[1] if made is not None and made.op == "EmptyTensorList" else None

    def shapes(self) -> dict[str, Tensor]:
        """Returns the dtypes and shapes of the body's tensors, by name. In XLA, a loop's operands keep their shapes."""
        import tensorflow as tf

        graph = self.body.graph()
        tensors: dict[str, Tensor] = {}
        for argument, operand, dtype in zip(self.body.arguments, self.operands, self.body.types, strict=True):
            described = self._loops.tensor(operand)
            tensors[argument] = Tensor(described.shape if described and dtype != types_pb2.DT_RESOURCE else None, dtype)
        renamed: dict[str, str] = {}
        for node in self.body.nodes.values():
            if node.op == "TensorListPopBack" and (popped := self.popped(f"{node.name}:1")):
                shape = self._loops.element_shape(popped.loop.operands[popped.index])
                tensors[f"{node.name}:1"] = Tensor(shape, node.attr["element_dtype"].type)
        for index, (tensor, value) in enumerate(tensors.items()):
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
        return result | tensors

    def give(self, operand: str, dtype: int, name: str) -> str:
        """Makes the body pass on a tensor of the graph unchanged. Returns the body's argument, which gets a name."""
        argument = f"{self.body.unique(name)}:0"
        self.operands.append(canonical(operand))
        for body in (self.body, self.cond):
            unique = argument if body is self.body else f"{body.unique(name)}:0"
            body.arguments.append(unique)
            body.types.append(dtype)
        self.body.results.append(argument)
        self.body.result_types.append(dtype)
        return argument

    def before(self, op: str, name: str, inputs: Iterable[str], shape: Shape, dtype: int, **attributes: object) -> str:
        """Adds a node to the graph around the loop, and returns its result; see `Loops.add`."""
        return self._loops.add(op, f"{self.name}/{name}", inputs, shape, dtype, origin=self.name, **attributes)

    def constant_before(self, name: str, values: int | Iterable[int]) -> str:
        """Adds an int32 constant to the graph around the loop: a scalar or a vector."""
        array = np.array(values if isinstance(values, int) else [*values], np.int32)
        node = self._loops.program.constant(f"{self.name}/{name}", array, origin=self.name)
        self._loops.added(node, Tensor(array.shape, types_pb2.DT_INT32))
        return f"{node.name}:0"

    def reshaped_before(self, name: str, tensor: str, shape: tuple[int, ...], dtype: int) -> str:
        """Changes the shape of a tensor of the graph."""
        operands = [tensor, self.constant_before(f"{name}/shape", shape)]
        return self.before("Reshape", name, operands, shape, dtype, T=type_attribute(dtype), Tshape=np.dtype(np.int32))

    def cut_before(self, name: str, tensor: str, begin: tuple[int, ...], size: tuple[int, ...], dtype: int) -> str:
        """Cuts a part out of a tensor of the graph."""
        operands = [tensor, self.constant_before(f"{name}/begin", begin), self.constant_before(f"{name}/size", size)]
        return self.before("Slice", name, operands, size, dtype, T=type_attribute(dtype), Index=np.dtype(np.int32))

    def after(self) -> list[str]:
        """Returns control inputs that order a node after everything that the loop depends on."""
        names = [tensor_name(operand)[0] for operand in self.operands]
        nodes = self._loops.nodes
        fed = {tensor_name(feed)[0] for feed in self._loops.program.feeds}
        needed = [name for name in names if nodes[name].op not in ("Const", "VarHandleOp") and name not in fed]
        return list(dict.fromkeys([*self.waits, *(f"^{name}" for name in needed)]))

    def write(self) -> None:
        """Writes the edited loop to the graph, without unused operands and nodes."""
        kept = self._drop_unneeded()
        program = self._loops.program
        node = self._loops.nodes[self.name]
        taken = {function.signature.name for function in program.graph.library.function}
        for key, body in (("cond", self.cond), ("body", self.body)):
            name = take(node.attr[key].func.name.removesuffix("_tfaot") + "_tfaot", taken)
            program.graph.library.function.append(body.function(name))
            node.attr[key].func.name = name
        node.input[:] = [*self.operands, *self.waits]
        node.attr["T"].CopyFrom(types_attribute(self.body.types))
        # Without these attributes, results have the shapes of operands, which XLA requires in any case.
        for key in ("output_shapes", "_output_shapes", "_num_original_outputs", "_read_only_resource_inputs"):
            node.attr.pop(key, None)
        ports = {index: port for port, index in enumerate(kept)}
        for user in program.graph.node:
            for position, operand in enumerate(user.input):
                name, port = tensor_name(operand)
                if name == self.name and port >= 0:
                    user.input[position] = f"{name}:{ports[port]}"
        self.steps.read()

    def _drop_unneeded(self) -> list[int]:
        """Drops unused operands and nodes. Returns the former positions of the remaining operands."""
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
        return kept

    def _live(self) -> list[int]:
        """Returns positions of operands that the condition, an effect, or a user needs, directly or in later steps."""
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
