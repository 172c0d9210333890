"""Leaves some ops to XLA's bounded sizes, so that the rest of a program can have a bucket's size."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import numpy as np
from tensorflow.core.framework import node_def_pb2

from tfaot.compile.passes.padding.sized import HANDLES, Sized, Unproven, is_size, port_of
from tfaot.graph.attributes import complete, type_attribute
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import BOUNDED, has_effects
from tfaot.graph.program import Tensor


class Bounded(Sized):
    """A program without some of its ops. Their operands are further outputs, and their results further inputs."""

    def separate(self, names: Collection[str]) -> None:
        """Takes ops out of the program.

        Args:
          names: the ops. `restore` puts them back.

        Raises:
          Unproven: one has an effect.
        """
        self._bounded: dict[str, node_def_pb2.NodeDef] = {}
        """The ops, copies of what they take that is made from shapes alone, and sizes of outputs, by name."""
        self._restored: dict[str, str] = {}
        """What stands for a result of an op: a placeholder, by the result."""
        self._cuts: dict[str, str] = {}
        """What stands for an operand of an op, which is cut to the run's size."""
        if not names:
            return
        self._made = self._from_shapes()
        names = self._grown(names)
        self._bounded = {name: node for name, node in self._nodes.items() if name in names}
        sizes = [tensor_name(fetch)[0] for fetch in self.work.fetches if is_size(fetch, self._nodes)]
        for name in sizes:
            if tensor_name(self._nodes[name].input[0])[0] in names:
                self._bounded[name] = self._nodes[name]
        users, feeds = self.work.users(), dict(self.work.feeds)
        for name, node in self._bounded.items():
            if has_effects(node.op) or any(operand.startswith("^") for operand in node.input):
                raise Unproven(name, f"{node.op} has effects")
        kept = {}
        for name, node in [*self._bounded.items()]:
            kept[name] = node_def_pb2.NodeDef()
            kept[name].CopyFrom(node)
            kept[name].input[:] = [self._operand(operand) for operand in self._data(node)]
        self._bounded |= kept
        for user in (
            user for name in kept if name in names for user in users[name] if user.node.name not in self._bounded
        ):
            operand = user.node.input[user.operand]
            if user.port < 0:
                raise Unproven(operand[1:], "orders others")
            if port_of(operand) not in self._restored:
                feeds |= self._stands_for(port_of(operand))
            user.node.input[user.operand] = self._restored[port_of(operand)]
        self.work.fetches = tuple(fetch for fetch in self.work.fetches if tensor_name(fetch)[0] not in self._bounded)
        self.work.fetches = (*self.work.fetches, *self._cuts.values())
        self.work.feeds = feeds
        whole = [node for node in self.work.graph.node if node.name not in kept]
        rest = [node_def_pb2.NodeDef.FromString(node.SerializeToString()) for node in whole]
        del self.work.graph.node[:]
        self.work.graph.node.extend(rest)
        self._changed()
        for name in self._bounded:
            self.work.unique(name)

    def _grown(self, names: Collection[str]) -> set[str]:
        """Returns the ops, and those that take a result that can't be made as large as the bucket's, or a number from shapes."""
        ops, pending, users = set[str](), [*names], self.work.users()
        while pending:
            name = pending.pop()
            if name in ops or is_size(name, self._nodes):
                continue
            results = {f"{name}:{user.port}" for user in users[name] if user.port >= 0}
            number = self._made.get(name) and not any(map(self._open, results))
            if not number:
                ops.add(name)
            if number or not all(map(self._has_form, results)):
                pending += [user.node.name for user in users[name]]
        return ops

    def _has_form(self, tensor: str) -> bool:
        """Returns whether a tensor's dimensions are fixed, or have as many values as `_open` says."""
        if self._tensors[tensor].dtype in HANDLES:
            return False
        for sizes in self._points():
            with contextlib.suppress(Unproven):  # the model isn't for these sizes
                shape = complete(self._shapes(sizes)[tensor].shape)
                if shape is None or [*shape] != self._shape_at(tensor, sizes):
                    return False
        return True

    def _stands_for(self, result: str) -> dict[str, Tensor]:
        """Adds a placeholder for a result of an op that is taken out."""
        name, tensor = tensor_name(result)[0], self._tensors[result]
        node = self.work.add("Placeholder", f"{name}/padded", [], origin=name, dtype=type_attribute(tensor.dtype))
        self._restored[result] = f"{node.name}:0"
        self._inputs[f"{node.name}:0"] = self._open(result)
        return {f"{node.name}:0": tensor}

    def _operand(self, tensor: str) -> str:
        """Returns what an op takes that XLA gives a bounded size."""
        name, port = tensor_name(tensor)
        if name in self._bounded:
            return tensor
        node = self._nodes[name]
        if self._made.get(name):  # it would be that of the bucket
            copy = node_def_pb2.NodeDef()
            copy.CopyFrom(node)
            copy.name = self.work.unique(f"{name}/bounded")
            self.work.origins[copy.name] = self.work.origins.get(name, name)
            copy.input[:] = [self._operand(operand) for operand in self._data(node)]
            self._bounded[copy.name] = copy
            return f"{copy.name}:{port}"
        tensor = port_of(tensor)
        if tensor not in self._cuts:
            dtype = self._tensors[tensor].dtype
            if dtype in HANDLES:
                raise Unproven(name, f"{node.op} has effects")
            cut = self.work.add("Identity", f"{name}/bounded", [tensor], origin=name, T=type_attribute(dtype))
            self._cuts[tensor] = f"{cut.name}:0"
        return self._cuts[tensor]

    def restore(self) -> None:
        """Puts the ops back. Their results have the bucket's sizes again, with anything behind the end."""
        for node in self._bounded.values():
            self.work.copied(node)
        nodes = self.work.nodes()
        names = "_".join(dict.fromkeys(tensor_name(size)[0] for size in self._sizes))
        for cut in self._cuts.values():
            nodes[tensor_name(cut)[0]].attr[BOUNDED].s = names.encode()
        for result, placeholder in self._restored.items():
            node = nodes.get(tensor_name(placeholder)[0])
            if node is None:  # only numbers took it that the ops make for themselves
                continue
            tensor = self.work.feeds[placeholder]
            whole, dtype = result, type_attribute(tensor.dtype)
            for axis in self._inputs[placeholder]:
                place = self._constant(node, np.array(axis, np.int32))
                whole = self._add(node, "XlaRemoveDynamicDimensionSize", whole, place, T=dtype)
            shape = np.array(tensor.shape, np.int32)
            begin, size = self._constant(node, 0 * shape), self._constant(node, shape)
            self.work.become(node, "Slice", [whole, begin, size], T=dtype, Index=np.dtype("int32"))


MOST = 16
"""How many ops at which the proof ends the pass leaves to XLA, at most."""
