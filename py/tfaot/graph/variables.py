"""The variables of a graph: their names, and which ones a run assigns. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.bodies import Body
from tfaot.graph.flow import Labels, Walk
from tfaot.graph.names import producer, take, underscored
from tfaot.graph.ops import CALLS, functions_of

READS = frozenset(
    {
        "ReadVariableOp",
        "_ReadVariablesOp",
        "ResourceGather",
        "ResourceGatherNd",
        "VariableShape",
        "VarIsInitializedOp",
        "DestroyResourceOp",
        "DisableCopyOnRead",
    }
)
"""Ops that take a variable's handle but don't change its value. Every other op that takes one counts as a write."""

_COPIES = frozenset(
    {
        "BroadcastTo",
        "Cast",
        "CheckNumerics",
        "EnsureShape",
        "Enter",
        "Identity",
        "PreventGradient",
        "Reshape",
        "Slice",
        "Snapshot",
        "StopGradient",
        "Tile",
        "Transpose",
    }
)
"""Ops that may return their first operand unchanged."""

_BRINGS = frozenset({*CALLS, "Exit", "IdentityN", "Merge", "ReadVariableOp", "Switch", "XlaLaunch", "_ReadVariablesOp"})
"""Ops that may return a variable's previous value."""


@dataclasses.dataclass(frozen=True)
class VariableUse:
    """A VarHandleOp in the graph, and whether anything assigns its variable."""

    node: str
    shared_name: str
    dtype: int
    """`tensorflow.DataType`."""
    shape: tuple[int, ...] | None
    """None if the rank is unknown. An unknown dimension is -1."""
    written: bool
    doubtful: bool
    """Whether the compiler may find that no run changes it, as in `v.assign(v.read_value())`. Only the compiler can tell."""


def name_variables(graph: graph_pb2.GraphDef) -> None:
    """Sets each missing `shared_name` of a VarHandleOp to the node's name. The config finds variables by it."""
    used = {node.attr["shared_name"].s.decode() for node in graph.node if node.op == "VarHandleOp"}
    for node in graph.node:
        if node.op == "VarHandleOp" and not node.attr["shared_name"].s:
            node.attr["shared_name"].s = take(node.name, used, underscored).encode()


def variable_uses(graph: graph_pb2.GraphDef) -> tuple[VariableUse, ...]:
    """Returns the variables of a pruned graph, each once, in the graph's order."""
    walk = _Uses(graph)
    walk.main()
    uses: dict[str, VariableUse] = {}
    for node in graph.node:
        if node.op != "VarHandleOp":
            continue
        name = node.attr["shared_name"].s.decode()
        if name not in uses:
            shape = node.attr["shape"].shape
            dims = None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
            uses[name] = VariableUse(
                node.name, name, node.attr["dtype"].type, dims, name in walk.written, name in walk.doubtful
            )
    return tuple(uses.values())


class _Uses(Walk[frozenset[str]]):
    """The walk that finds assigned variables. Labels are sets of variables, by shared name."""

    def __init__(self, graph: graph_pb2.GraphDef) -> None:
        super().__init__(graph)
        self.written: set[str] = set()
        """Names of the variables that some reachable op assigns."""
        self.doubtful: set[str] = set()
        """Variables that may be assigned their own value, or only in a branch that the compiler drops."""

    def label(self, handle: node_def_pb2.NodeDef, body: Body) -> frozenset[str]:
        return frozenset({handle.attr["shared_name"].s.decode()})

    def joined(self, before: frozenset[str], after: frozenset[str]) -> frozenset[str]:
        return before | after

    def stepped(
        self, operands: Labels[frozenset[str]], results: Labels[frozenset[str]]
    ) -> Sequence[frozenset[str] | None]:
        return self.either([operands, results[: len(operands)]])

    def outputs(self, body: Body, node: node_def_pb2.NodeDef, ins: Labels[frozenset[str]]) -> Labels[frozenset[str]]:
        if node.op in READS or not any(ins):
            return ()
        if node.op == "AssignVariableOp" and self._may_copy(node, body):
            self.doubtful |= ins[0] or frozenset()
        before = set(self.written)
        result = super().outputs(body, node, ins)
        if node.op in ("Case", "StatelessCase"):
            self.doubtful |= self.written - before  # if a Case has a constant index, the compiler keeps only one branch
        return result

    def other(self, node: node_def_pb2.NodeDef, ins: Labels[frozenset[str]]) -> Labels[frozenset[str]]:
        if node.op == "SymbolicGradient" or next(functions_of(node), None) is not None:
            return self.either([self.function(name, ins)[1].results for name in self.functions(node)])
        for variables in ins:
            self.written |= variables or frozenset()
        return ()

    def _may_copy(self, assign: node_def_pb2.NodeDef, body: Body) -> bool:
        """Returns whether an assigned value may be a variable's previous value, without any computation."""
        source = body.by_name.get(producer(assign.input[1]))
        while source is not None and source.op in _COPIES:
            source = body.by_name.get(producer(source.input[0]))
        # A function's argument has no node.
        return source is None or source.op in _BRINGS or source.op in self.library
