"""Rewrites the ops that use variables, wherever their handles go. Pure: protos in, protos out.

A `Rewrite` selects the variables to change, and changes the ops that take their handles. If some calls pass a function
handles of changed variables and others don't, the function is split into versions. The cost is linear in the number of
nodes.
"""

from __future__ import annotations

import abc
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, types_pb2

from tfaot.graph.bodies import Body
from tfaot.graph.edits import Scope, use_renamed
from tfaot.graph.flow import Flow, Label, Walk
from tfaot.graph.names import take
from tfaot.graph.ops import BRANCHING, CALLS, FORWARDS, Call, functions_of


@dataclasses.dataclass(frozen=True)
class Refused:
    """A use of a variable's handle that a rewrite doesn't support."""

    function: str
    """The function that contains it, by its original name; empty for the graph itself."""
    node: str
    op: str
    variables: tuple[str, ...]
    """Shared names of the variables whose handles may reach it, sorted."""

    def shown(self, sources: Mapping[str, str]) -> str:
        """Describes the use for messages: `op 'node' on variables at file:line`."""
        name = f"{self.function}/{self.node}" if self.function else self.node
        place = f" at {sources[name]}" if name in sources else ""
        return f"{self.op} {name!r} on {', '.join(self.variables)}{place}"


class Rewrite(abc.ABC):
    """A change to some variables of a graph. One object makes one change."""

    @abc.abstractmethod
    def changes(self, handle: node_def_pb2.NodeDef) -> bool:
        """Returns whether to change the variable of this VarHandleOp."""

    @abc.abstractmethod
    def declare(self, handle: node_def_pb2.NodeDef, scope: Scope) -> None:
        """Changes in place the VarHandleOp of a variable that `changes` selected."""

    @abc.abstractmethod
    def use(self, node: node_def_pb2.NodeDef, dtype: int, scope: Scope) -> bool:
        """Changes in place an op whose only handle of a changed variable is its first input.

        Args:
          node: any op that doesn't just pass handles on.
          dtype: the variable's original `tensorflow.DataType`.
          scope: the graph or function that contains the node.

        Returns:
          Whether the op is supported. If not, the node must stay unchanged; `apply` reports it.
        """

    @abc.abstractmethod
    def carried(self, dtype: int) -> int:
        """Returns the new dtype of edges that carried changed variables' handles; DT_RESOURCE if they still carry handles."""

    def apply(self, graph: graph_pb2.GraphDef) -> tuple[graph_pb2.GraphDef, tuple[Refused, ...]]:
        """Returns a changed graph, and the uses that it couldn't rewrite.

        The new graph is usable only if there are no such uses. The given graph isn't modified.
        """
        return _Application(self, graph).run()


class _Changed(Walk[Label]):
    """Follows the handles of variables that a rewrite changes."""

    def __init__(
        self, graph: graph_pb2.GraphDef, rewrite: Rewrite, label: Callable[[node_def_pb2.NodeDef], Label]
    ) -> None:
        super().__init__(graph)
        self._rewrite = rewrite
        self._said = label

    def label(self, handle: node_def_pb2.NodeDef, body: Body) -> Label | None:
        return self._said(handle) if self._rewrite.changes(handle) else None


@dataclasses.dataclass(frozen=True)
class _Version:
    """A rewritten function, for calls with certain handles."""

    name: str
    results: tuple[int | None, ...]


class _Application:
    """One rewrite of one graph. Labels are the dtypes of the changed variables."""

    def __init__(self, rewrite: Rewrite, graph: graph_pb2.GraphDef) -> None:
        self._rewrite = rewrite
        self._graph = graph
        self._walk = _Changed[int](graph, rewrite, lambda node: node.attr["dtype"].type)
        self._versions: dict[tuple[str, tuple[int | None, ...]], _Version] = {}
        self._made: dict[str, list[function_pb2.FunctionDef]] = defaultdict(list)
        """Versions of a function, by its original name."""
        self._names = set(self._walk.library)
        self._refused: list[tuple[str, str]] = []
        """The function and node of each refusal."""

    def run(self) -> tuple[graph_pb2.GraphDef, tuple[Refused, ...]]:
        result = graph_pb2.GraphDef(versions=self._graph.versions)
        result.node.extend(self._graph.node)
        result.library.gradient.extend(self._graph.library.gradient)
        scope = Scope(result.node)
        self._change(*self._walk.main(), result.node, scope)
        for gradient in self._graph.library.gradient:
            for name in (gradient.function_name, gradient.gradient_func):
                if name in self._walk.library and name not in self._made:
                    self._version(name, ())
        for function in self._graph.library.function:
            name = function.signature.name
            result.library.function.extend(self._made.get(name, [function]))
        return result, tuple(self._explained())

    def _explained(self) -> Iterator[Refused]:
        """Finds the variables behind each refusal. Repeats the walk, with variables' names as labels."""
        if not self._refused:
            return
        walk = _Changed[str](self._graph, self._rewrite, lambda node: node.attr["shared_name"].s.decode())
        walk.main()
        refusals: dict[tuple[str, str], tuple[str, set[str]]] = {}
        refused = set(self._refused)
        for body, flow in walk.flows():
            for node in body.nodes:
                if (body.name, node.name) in refused:
                    names = {flow.edges[edge] for edge in body.operands(node) if edge in flow.edges}
                    refusals.setdefault((body.name, node.name), (node.op, set()))[1].update(names)
        for function, name in dict.fromkeys(self._refused):
            op, variables = refusals[function, name]
            yield Refused(function, name, op, tuple(sorted(variables)))

    def _version(self, name: str, arguments: Sequence[int | None]) -> _Version:
        """Rewrites a function for calls with these arguments, once. The first version keeps the function's name."""
        body, flow = self._walk.function(name, arguments)
        labels = (*arguments, *[None] * len(body.arguments))[: len(body.arguments)]
        if (name, labels) in self._versions:
            return self._versions[name, labels]
        function = function_pb2.FunctionDef()
        function.CopyFrom(self._walk.library[name])
        made = self._made[name]
        if made:
            function.signature.name = take(name, self._names)
        made.append(function)
        version = self._versions[name, labels] = _Version(function.signature.name, flow.results)

        scope = Scope(function.node_def, name, body.arguments)
        self._change(body, flow, function.node_def, scope)
        use_renamed(function, scope.renamed)
        for index, label in enumerate(labels):
            if label is not None:
                self._retype(function, index, label)
        for arg, label in zip(function.signature.output_arg, flow.results, strict=True):
            if label is not None:
                arg.type = self._rewrite.carried(label)
                arg.ClearField("handle_data")
        return version

    def _retype(self, function: function_pb2.FunctionDef, index: int, label: int) -> None:
        """Changes an argument's dtype, and drops what the function records about its handle, which is out of date."""
        arg = function.signature.input_arg[index]
        arg.type = self._rewrite.carried(label)
        arg.ClearField("handle_data")
        if index in function.arg_attr:
            for key in ("_handle_dtypes", "_handle_shapes", "_output_shapes"):
                function.arg_attr[index].attr.pop(key, None)
        if arg.type == types_pb2.DT_RESOURCE:
            return
        function.resource_arg_unique_id.pop(index, None)
        if "_input_shapes" in function.attr:
            _forget(function.attr["_input_shapes"].list.shape, index)

    def _change(self, body: Body, flow: Flow[int], nodes: Any, scope: Scope) -> None:
        """Changes a copy of a body: its handles, the ops that take them, and all calls."""
        touched = set(body.roots)
        for name, _ in flow.edges:
            touched.update(body.users.get(name, ()))
        for index in sorted(touched):
            before, node = body.nodes[index], nodes[index]
            ins = [flow.edges.get(edge) for edge in body.operands(before)]
            if node.op == "VarHandleOp":
                if (node.name, 0) in flow.edges:
                    self._rewrite.declare(node, scope)
            elif not self._hand_on(node, ins, flow) and (
                not ins
                or ins[0] is None
                or any(label is not None for label in ins[1:])
                or not self._rewrite.use(node, ins[0], scope)
            ):
                self._refused.append((scope.name, before.name))

    def _hand_on(self, node: node_def_pb2.NodeDef, ins: Sequence[int | None], flow: Flow[int]) -> bool:
        """Updates dtypes and functions of a node that passes operands on. Returns False if it can't, or the node does more."""
        if node.op in FORWARDS or node.op in BRANCHING:
            data = {label for label in ins[: 1 if node.op == "Switch" else len(ins)]}
            if node.op != "IdentityN" and len(data) > 1:
                return False  # a handle of either kind may get here
            self._set_types(node, "T", 0, ins)
            return True
        if node.op in self._walk.library:
            node.op = self._version(node.op, ins).name
            return True
        if (call := CALLS.get(node.op)) is not None:
            return self._hand_to(node, call, ins)
        if any(label is not None for label in ins):
            return False
        for _, function in functions_of(node):
            if function.name in self._walk.library:
                function.name = self._version(function.name, ()).name
        return True

    def _hand_to(self, node: node_def_pb2.NodeDef, call: Call, ins: Sequence[int | None]) -> bool:
        """Makes a node call the function versions for these operands. Returns False if the versions' results disagree."""
        if any(label is not None for label in ins[: call.first]):
            return False
        outcomes = []
        for key in call.functions:
            for function in (node.attr[key].func, *node.attr[key].list.func):
                if function.name in self._walk.library:
                    version = self._version(function.name, ins[call.first :])
                    function.name = version.name
                    if key != "cond":
                        outcomes.append(version.results)
        if any(outcome != (tuple(ins) if call.is_loop else outcomes[0]) for outcome in outcomes if outcome):
            return False  # a handle of either kind may come out
        self._set_types(node, call.types, call.first, ins)
        if not call.is_loop:
            self._set_types(node, call.results, 0, outcomes[0] if outcomes else ())
        return True

    def _set_types(self, node: node_def_pb2.NodeDef, key: str, first: int, labels: Sequence[int | None]) -> None:
        """Writes the dtypes of operands or results to an attribute, and drops shapes that are out of date."""
        for index, label in enumerate(labels):
            dtype = types_pb2.DT_RESOURCE if label is None else self._rewrite.carried(label)
            if dtype == types_pb2.DT_RESOURCE or index < first:
                continue
            if node.attr[key].HasField("list"):
                node.attr[key].list.type[index - first] = dtype
            else:
                node.attr[key].type = dtype
            node.attr.pop("_output_shapes", None)
            if key in ("T", "Tout") and "output_shapes" in node.attr:
                _forget(node.attr["output_shapes"].list.shape, index)


def _forget(shapes: Any, index: int) -> None:
    """Marks one shape in a list as unknown."""
    if index < len(shapes):
        shapes[index].Clear()
        shapes[index].unknown_rank = True
