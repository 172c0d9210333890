"""How passes look at a graph, and write the nodes that take the place of one."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import node_def_pb2

from tfaot.graph.attributes import FLOATS, Array, Shape, complete, constant_of, numpy_dtype, type_attribute
from tfaot.graph.names import canonical
from tfaot.graph.program import Program, Tensor


@dataclasses.dataclass(frozen=True)
class Writer:
    """Adds nodes to a graph, which are named after the one that they replace."""

    program: Program
    node: node_def_pb2.NodeDef

    def add(self, op: str, *operands: str, **attributes: object) -> str:
        """Adds a node of the replaced node's dtype, unless attributes say something else. Returns its name."""
        if "T" not in attributes:
            attributes["T"] = type_attribute(self.node.attr["T"].type)
        return self.op(op, *operands, **attributes)

    def op(self, op: str, *operands: str, **attributes: object) -> str:
        """Adds a node with just these attributes. Returns its name."""
        name = f"{self.node.name}/{op}"
        added: str = self.program.add(op, name, operands, origin=self.node.name, **attributes).name
        return added

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.int32) -> str:
        """Adds a constant. Returns its name."""
        name, array = f"{self.node.name}/constant", np.array(value, dtype)
        added: str = self.program.constant(name, array, origin=self.node.name).name
        return added

    def number(self, value: npt.ArrayLike) -> str:
        """Adds a constant of the replaced node's dtype. Returns its name."""
        return self.constant(value, numpy_dtype(self.node.attr["T"].type))

    def reshape(self, tensor: str, shape: npt.ArrayLike) -> str:
        """Adds a change of shape. Returns its name."""
        return self.add("Reshape", tensor, self.constant(shape), Tshape=np.dtype("int32"))

    def slice(self, tensor: str, begin: npt.ArrayLike, size: npt.ArrayLike) -> str:
        """Adds a cut. Returns its name."""
        return self.add("Slice", tensor, self.constant(begin), self.constant(size), Index=np.dtype("int32"))

    def strided(self, tensor: str, begin: npt.ArrayLike, end: npt.ArrayLike, strides: npt.ArrayLike) -> str:
        """Adds a cut with strides. Returns its name."""
        masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
        places = map(self.constant, (begin, end, strides))
        return self.add("StridedSlice", tensor, *places, Index=np.dtype("int32"), **masks)

    def become(self, op: str, *operands: str, **attributes: object) -> None:
        """Turns the node itself into another one of its dtype."""
        self.program.become(self.node, op, operands, T=type_attribute(self.node.attr["T"].type), **attributes)

    def become_reshape(self, tensor: str, shape: npt.ArrayLike) -> None:
        """Turns the node itself into a change of shape."""
        self.become("Reshape", tensor, self.constant(shape), Tshape=np.dtype("int32"))


class Reader:
    """A graph as it is when a pass begins, and what is known about it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes = program.nodes()

    def floats(self, *ops: str) -> list[node_def_pb2.NodeDef]:
        """Returns the nodes of some ops on float32 or float64."""
        return [node for node in self.nodes.values() if node.op in ops and node.attr["T"].type in FLOATS]

    def shape(self, tensor: str) -> Shape:
        """Returns the shape of a tensor, as far as it is known."""
        return self._tensors[canonical(tensor)].shape

    def constant(self, tensor: str) -> Array | None:
        """Returns the value of a constant, or None for other tensors."""
        return constant_of(self.nodes, tensor, self.program.feeds)

    def images(self, op: str) -> list[tuple[node_def_pb2.NodeDef, tuple[int, ...]]]:
        """Returns nodes on floats with channels last, and the shape of their first operand, if it is known."""
        nodes = [node for node in self.floats(op) if node.attr["data_format"].s == b"NHWC"]
        shapes = ((node, complete(self.shape(node.input[0]))) for node in nodes)
        return [(node, shape) for node, shape in shapes if shape is not None]

    @functools.cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return self.program.tensors()
