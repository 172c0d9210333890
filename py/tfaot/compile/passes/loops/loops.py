"""A graph's loops as passes see them: loop-invariant values, indices that steps use, and contents of stacks.

A loop is a control flow v2 While in the graph itself. Passes don't touch those in functions. The scalars of step k = 0,
1, … are known if they are integer arithmetic on counters and constants.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.core.framework import attr_value_pb2, node_def_pb2, types_pb2

from tfaot.compile.passes.loops.constants import Constants
from tfaot.compile.passes.loops.loop import Loop
from tfaot.graph.attributes import Array, Shape, complete, literal, type_attribute
from tfaot.graph.names import canonical, tensor_name
from tfaot.graph.ops import IDENTITIES, WHILES
from tfaot.graph.program import Program, Tensor


class Loops:
    """A program's graph, with its loops."""

    def __init__(self, program: Program) -> None:
        """Reads a program's loops. Passes must add nodes through this object, or announce them with `added`."""
        self.program = program
        self.nodes = program.nodes()
        self._tensors = program.tensors() if any(node.op in WHILES for node in program.graph.node) else {}
        self._constants = Constants(self)
        self.loops: dict[str, Loop] = {}
        """Loops by name. Each comes after the loops whose results it takes."""
        for node in self._ordered():
            self.loops[node.name] = Loop(self, node)

    def _ordered(self) -> list[node_def_pb2.NodeDef]:
        """Returns the While nodes, each after those that it depends on."""
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
        """Adds a node to the graph, and returns its only result, which has a shape and a `tensorflow.DataType`."""
        node = self.program.add(op, name, inputs, origin=origin, **attributes)
        self.added(node, Tensor(shape, dtype))
        return f"{node.name}:0"

    def added(self, node: node_def_pb2.NodeDef, tensor: Tensor | None) -> None:
        """Announces a new node of the graph, and what is known about its first result."""
        self.nodes[node.name] = node
        if tensor is not None:
            self._tensors[f"{node.name}:0"] = tensor

    def producer(self, tensor: str) -> node_def_pb2.NodeDef | None:
        """Returns the node that computes a tensor, past identities, or None if the tensor is fed."""
        resolved = self.resolve(tensor)
        return None if resolved in self.program.feeds else self.nodes[tensor_name(resolved)[0]]

    def resolve(self, tensor: str) -> str:
        """Returns the tensor behind identities and behind loops that only pass it on."""
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
        """Returns the known dtype and shape of a tensor of the graph."""
        tensor = canonical(tensor)
        described = self._tensors.get(self.resolve(tensor)) or self._tensors.get(tensor)
        name, port = tensor_name(tensor)
        if (described is None or described.shape is None) and name in self.loops:
            described = self.tensor(self.loops[name].operands[port]) or described
        return described

    def dtype(self, tensor: str) -> int:
        """Returns the `tensorflow.DataType` of a tensor of the graph."""
        described = self._tensors[canonical(tensor)]
        return described.dtype

    def shape(self, tensor: str) -> tuple[int, ...] | None:
        """Returns the shape of a tensor of the graph, or None if a size isn't known."""
        described = self.tensor(tensor)
        return complete(described.shape) if described else None

    def variable(self, handle: str) -> str | None:
        """Returns the shared name of the variable that a handle belongs to, or None if it is unknown."""
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
        """Returns the dtype and shape of the variable that a handle belongs to, or None if it is unknown."""
        wanted = self.variable(handle)
        for node in self.nodes.values():
            if node.op == "VarHandleOp" and node.attr["shared_name"].s.decode() == wanted:
                sizes = node.attr["shape"].shape
                shape = None if sizes.unknown_rank else tuple(dim.size if dim.size >= 0 else None for dim in sizes.dim)
                return Tensor(shape, node.attr["dtype"].type)
        return None

    def element_shape(self, tensor: str) -> Shape:
        """Returns the element shape that a list was created with, or None if it is unknown."""
        made = self.producer(tensor)
        if made is None or made.op not in ("EmptyTensorList", "TensorListReserve", "TensorListFromTensor"):
            return None
        sizes = self.constant(made.input[1 if made.op == "TensorListFromTensor" else 0])
        if sizes is None or sizes.ndim != 1:
            return None
        return tuple(int(size) if size >= 0 else None for size in sizes)

    def constant(self, tensor: str) -> Array | None:
        """Returns the value of a small tensor made of constants and known shapes, or None for others."""
        return self._constants.value(tensor)

    def zero(self, tensor: str) -> bool:
        """Returns whether a tensor of the graph is all zeros, or a list of zeros."""
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
        """Replaces a tensor, which must not be fetched, in all its uses but that of the node with the result `besides`."""
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
        """Returns whether a tensor's node is fed or fetched."""
        return tensor_name(tensor)[0] in self.program.kept()


def list_attributes(dtype: int) -> dict[str, attr_value_pb2.AttrValue]:
    """Returns attributes for an op that creates a list, with int32 shapes."""
    return {"element_dtype": type_attribute(dtype), "shape_type": type_attribute(types_pb2.DT_INT32)}
