"""Rewriting what is done to variables, wherever their handles go. Pure: protos in, protos out.

A `Rewrite` says which variables it changes, and how it changes the ops that take their handles. Handles are followed here:
through identities, loops of either control flow version, calls, While, If, and Case. A function that is called with
handles of other variables in another place becomes several. Everything is linear in the number of nodes.
"""

from __future__ import annotations

import abc
import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, types_pb2

from tfaot.graph.graph import tensor_name

Label = TypeVar("Label")
"""What is said of an edge that carries a handle. Edges of which there is nothing to say have None."""

_FORWARDS = frozenset({"Enter", "Exit", "Identity", "IdentityN", "NextIteration", "StopGradient"})
"""Ops whose output i is their input i, and whose attribute `T` is its dtype, or all dtypes."""

_BRANCHING = frozenset({"Merge", "Switch"})
"""The other ops of control flow version 1, whose attribute `T` is the dtype of all but a predicate or an index."""


@dataclasses.dataclass(frozen=True)
class _Call:
    """How an op calls functions with its operands, and returns what they return."""

    functions: tuple[str, ...]
    """Attributes that name them."""
    types: str
    """Attribute with the operands' dtypes."""
    results: str
    """Attribute with the results' dtypes."""
    first: int = 0
    """Index of the first operand that the functions get."""


_CALLS: Mapping[str, _Call] = {
    "PartitionedCall": _Call(("f",), "Tin", "Tout"),
    "StatefulPartitionedCall": _Call(("f",), "Tin", "Tout"),
    "RemoteCall": _Call(("f",), "Tin", "Tout", first=1),
    "If": _Call(("then_branch", "else_branch"), "Tin", "Tout", first=1),
    "StatelessIf": _Call(("then_branch", "else_branch"), "Tin", "Tout", first=1),
    "Case": _Call(("branches",), "Tin", "Tout", first=1),
    "StatelessCase": _Call(("branches",), "Tin", "Tout", first=1),
    "While": _Call(("cond", "body"), "T", "T"),
    "StatelessWhile": _Call(("cond", "body"), "T", "T"),
}


def _called(node: node_def_pb2.NodeDef) -> Iterator[Any]:
    """The functions that a node's attributes mention, as `NameAttrList`s of the node itself."""
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func
        elif kind == "list":
            yield from value.list.func


@dataclasses.dataclass(frozen=True)
class Flow(Generic[Label]):
    """What the edges of one body carry, given what its arguments carry."""

    edges: Mapping[tuple[str, int], Label]
    """By node and output port; edges that carry nothing are left out."""
    results: tuple[Label | None, ...]


class _Body:
    """A graph, or a function's body, as it was before."""

    def __init__(self, nodes: Sequence[node_def_pb2.NodeDef], library: Mapping[str, function_pb2.FunctionDef]) -> None:
        self.nodes = nodes
        self.args: tuple[str, ...] = ()
        self.returns: tuple[str, ...] = ()
        self.users: dict[str, list[int]] = defaultdict(list)
        """Indices of the nodes that take an output of a node or of an argument, by its name."""
        self.roots: list[int] = []
        """Indices of handles, and of nodes that call functions: those that may bring in something of interest."""
        self._library = library
        self._calls_by_name: dict[str, str] = {}
        for index, node in enumerate(nodes):
            for operand in node.input:
                if not operand.startswith("^"):
                    self.users[operand.partition(":")[0]].append(index)
            if library and node.op in library:
                self._calls_by_name[node.name] = node.op
                self.roots.append(index)
            elif node.op == "VarHandleOp" or (library and next(_called(node), None) is not None):
                self.roots.append(index)

    @classmethod
    def of(cls, function: function_pb2.FunctionDef, library: Mapping[str, function_pb2.FunctionDef]) -> _Body:
        body = cls(function.node_def, library)
        body.args = tuple(arg.name for arg in function.signature.input_arg)
        body.returns = tuple(function.ret[arg.name] for arg in function.signature.output_arg)
        return body

    def edge(self, operand: str) -> tuple[str, int]:
        """Node and output port of a data input: `node:port` of a graph, `node:output:index` of a function.

        Of ops that yield several outputs, only calls, loops, conditionals, and identities yield handles; they name all
        of their outputs by one name, but a function that is called as an op has a name for each.
        """
        parts = operand.split(":")
        if len(parts) < 3:
            return tensor_name(operand)
        name, output, index = parts
        if name in self._calls_by_name:
            results = self._library[self._calls_by_name[name]].signature.output_arg
            return name, [result.name for result in results].index(output)
        return name, int(index)

    def operands(self, node: node_def_pb2.NodeDef) -> list[tuple[str, int]]:
        """The edges that a node takes, without control inputs."""
        return [self.edge(operand) for operand in node.input if not operand.startswith("^")]


class Walk(Generic[Label]):
    """Carries labels from handles along edges, into and out of functions; each body once for each set of arguments."""

    def __init__(self, graph: graph_pb2.GraphDef, label: Callable[[node_def_pb2.NodeDef], Label | None]) -> None:
        """`label` gives a VarHandleOp's."""
        self.library = {function.signature.name: function for function in graph.library.function}
        self._label = label
        self._bodies: dict[str, _Body] = {}
        self._flows: dict[tuple[str, tuple[Label | None, ...]], Flow[Label]] = {}
        self._main = _Body(graph.node, self.library)

    def main(self) -> tuple[_Body, Flow[Label]]:
        """The graph itself."""
        if ("", ()) not in self._flows:
            self._flows["", ()] = self._visit(self._main, ())
        return self._main, self._flows["", ()]

    def function(self, name: str, arguments: Sequence[Label | None]) -> tuple[_Body, Flow[Label]]:
        """A function's body, called with these arguments; of further ones it has, nothing is known."""
        if name not in self._bodies:
            self._bodies[name] = _Body.of(self.library[name], self.library)
        body = self._bodies[name]
        labels: tuple[Label | None, ...] = (*arguments, *[None] * len(body.args))[: len(body.args)]
        if (name, labels) not in self._flows:
            self._flows[name, labels] = Flow({}, ())  # a recursive call adds nothing that this one does not
            self._flows[name, labels] = self._visit(body, labels)
        return body, self._flows[name, labels]

    def flows(self) -> Iterable[tuple[str, _Body, Flow[Label]]]:
        """All that was visited, with the function's name before it; the graph's is empty."""
        for (name, _), flow in self._flows.items():
            yield name, self._bodies[name] if name else self._main, flow

    def _visit(self, body: _Body, arguments: Sequence[Label | None]) -> Flow[Label]:
        edges: dict[tuple[str, int], Label] = {}
        queue: deque[int] = deque(body.roots)

        def carry(name: str, port: int, label: Label | None) -> None:
            if label is not None and (name, port) not in edges:
                edges[name, port] = label
                queue.extend(body.users[name])

        for name, label in zip(body.args, arguments, strict=True):
            carry(name, 0, label)
        for index in body.roots:
            node = body.nodes[index]
            if node.op == "VarHandleOp":
                carry(node.name, 0, self._label(node))
        while queue:
            node = body.nodes[queue.popleft()]
            ins = [edges.get(edge) for edge in body.operands(node)]
            for port, label in enumerate(self._outputs(node, ins)):
                carry(node.name, port, label)
        return Flow(edges, tuple(edges.get(body.edge(result)) for result in body.returns))

    def _outputs(self, node: node_def_pb2.NodeDef, ins: Sequence[Label | None]) -> Sequence[Label | None]:
        if node.op in _FORWARDS:
            return ins
        if node.op == "Switch":
            return (ins[0], ins[0])
        if node.op == "Merge":
            return (next((label for label in ins if label is not None), None),)
        if node.op in self.library:
            return self.function(node.op, ins)[1].results
        call = _CALLS.get(node.op)
        if call is None:
            for function in _called(node):
                if function.name in self.library:
                    self.function(function.name, ())
            return ()
        functions = [f for key in call.functions for f in (node.attr[key].func, *node.attr[key].list.func) if f.name]
        outcomes = [self.function(f.name, ins[call.first :])[1].results for f in functions if f.name in self.library]
        if call.types == call.results:  # a loop, whose body may not change what an operand carries
            return ins
        width = max((len(outcome) for outcome in outcomes), default=0)
        return [
            next((outcome[port] for outcome in outcomes if port < len(outcome) and outcome[port] is not None), None)
            for port in range(width)
        ]


class Scope:
    """A graph, or a function's body, that is being rewritten in place."""

    def __init__(self, nodes: Any, name: str, args: Iterable[str]) -> None:
        self.name = name
        """The function's before, empty for the graph."""
        self._nodes = nodes
        self._args = tuple(args)
        self._ops: dict[str, str] = {}
        """By node; empty for arguments."""
        self.renamed: dict[tuple[str, str], str] = {}
        """New names of outputs, by node and old name: functions name the outputs of their nodes."""

    def add(
        self, name: str, op: str, inputs: Sequence[str], types: Mapping[str, int], **numbers: int
    ) -> node_def_pb2.NodeDef:
        """Adds a node, under this name or one like it, with attributes that are dtypes, and such that are numbers."""
        node = self._nodes.add(name=self._unused(name))
        node.input.extend(inputs)
        become(node, op, types, **numbers)
        return node

    def move(self, node: node_def_pb2.NodeDef, name: str) -> node_def_pb2.NodeDef:
        """Copies a node under another name, and empties the old one, whose users shall get something else by its name."""
        copy = self._nodes.add()
        copy.CopyFrom(node)
        copy.name = self._unused(name)
        copy.attr.pop("_output_shapes", None)
        for key in [key for key in node.attr if key != "_output_shapes"]:
            del node.attr[key]
        node.ClearField("input")
        return copy

    def wait_for(self, operand: str) -> list[str]:
        """Control inputs that wait for what gives an operand: none for arguments and feeds, which are always there.

        The compiler cannot wait for a feed: it takes the Placeholder's data from elsewhere, and then finds the node itself
        still in use.
        """
        name = operand.partition(":")[0]
        return [] if self._known().get(name) in ("", "Placeholder") else [f"^{name}"]

    def output(self, node: node_def_pb2.NodeDef, output: str, index: int = 0) -> str:
        """How other nodes refer to an output: its name and its index under that name."""
        if self.name:
            return f"{node.name}:{output}:{index}"
        return f"{node.name}:{index}" if index else node.name

    def rename_output(self, node: node_def_pb2.NodeDef, before: str, after: str) -> None:
        """Users of a node's output shall find it under the name that its new op gives it."""
        self.renamed[node.name, before] = after

    def _known(self) -> dict[str, str]:
        if not self._ops:
            self._ops.update(dict.fromkeys(self._args, ""))
            self._ops.update((node.name, node.op) for node in self._nodes)
        return self._ops

    def _unused(self, name: str) -> str:
        taken = self._known()
        unused, number = name, 0
        while unused in taken:
            number += 1
            unused = f"{name}_{number}"
        taken[unused] = "?"
        return unused


def become(node: node_def_pb2.NodeDef, op: str, types: Mapping[str, int], **numbers: int) -> None:
    """Makes a node another op with the same inputs; of its attributes it keeps those that belong to no op."""
    node.op = op
    for key in [key for key in node.attr if not key.startswith("_")]:
        del node.attr[key]
    for key, dtype in types.items():
        node.attr[key].type = dtype
    for key, number in numbers.items():
        node.attr[key].i = number


@dataclasses.dataclass(frozen=True)
class Refused:
    """A use of a variable's handle that a rewrite does not know."""

    function: str
    """Where it is, under the name before; empty for the graph."""
    node: str
    op: str
    variables: tuple[str, ...]
    """Shared names of the variables that may get there, sorted."""

    def shown(self, sources: Mapping[str, str]) -> str:
        """`op 'node' on variables at file:line`, for messages."""
        name = f"{self.function}/{self.node}" if self.function else self.node
        place = f" at {sources[name]}" if name in sources else ""
        return f"{self.op} {name!r} on {', '.join(self.variables)}{place}"


class Rewrite(abc.ABC):
    """A change to some variables of a graph. One object makes one change."""

    @abc.abstractmethod
    def changes(self, handle: node_def_pb2.NodeDef) -> bool:
        """Whether a VarHandleOp's variable is one of those to be changed."""

    @abc.abstractmethod
    def declare(self, handle: node_def_pb2.NodeDef, scope: Scope) -> None:
        """Changes such a VarHandleOp in place."""

    @abc.abstractmethod
    def use(self, node: node_def_pb2.NodeDef, dtype: int, scope: Scope) -> bool:
        """Changes in place an op whose first input is the handle of such a variable, and no other input is.

        Args:
          node: any op but those that only hand handles on.
          dtype: the variable's before, `tensorflow.DataType`.
          scope: where the node is.

        Returns:
          Whether it could. If not, the node stays as it was, and is among those that `apply` returns.
        """

    @abc.abstractmethod
    def carried(self, dtype: int) -> int:
        """The dtype of the edges that carried handles of changed variables: DT_RESOURCE if they still do."""

    def apply(self, graph: graph_pb2.GraphDef) -> tuple[graph_pb2.GraphDef, tuple[Refused, ...]]:
        """Returns the changed graph, which is of use only if no node refused it; the given one stays as it is."""
        return _Application(self, graph).run()


@dataclasses.dataclass(frozen=True)
class _Version:
    """A function as it is after a rewrite, for calls with certain handles."""

    name: str
    results: tuple[int | None, ...]


class _Application:
    """One rewrite of one graph. Labels are the dtypes of the changed variables."""

    def __init__(self, rewrite: Rewrite, graph: graph_pb2.GraphDef) -> None:
        self._rewrite = rewrite
        self._graph = graph
        self._walk = Walk[int](graph, lambda node: node.attr["dtype"].type if rewrite.changes(node) else None)
        self._versions: dict[tuple[str, tuple[int | None, ...]], _Version] = {}
        self._made: dict[str, list[function_pb2.FunctionDef]] = defaultdict(list)
        """Versions by the function's name before."""
        self._names = set(self._walk.library)
        self._refused: list[tuple[str, str]] = []
        """Function and node."""

    def run(self) -> tuple[graph_pb2.GraphDef, tuple[Refused, ...]]:
        result = graph_pb2.GraphDef(versions=self._graph.versions)
        result.node.extend(self._graph.node)
        result.library.gradient.extend(self._graph.library.gradient)
        scope = Scope(result.node, "", ())
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
        """Says of the refused nodes which variables get there: the same walk, with names in place of dtypes."""
        if not self._refused:
            return
        walk = Walk[str](
            self._graph, lambda node: node.attr["shared_name"].s.decode() if self._rewrite.changes(node) else None
        )
        walk.main()
        found: dict[tuple[str, str], tuple[str, set[str]]] = {}
        refused = set(self._refused)
        for function, body, flow in walk.flows():
            for node in body.nodes:
                if (function, node.name) in refused:
                    names = {flow.edges[edge] for edge in body.operands(node) if edge in flow.edges}
                    found.setdefault((function, node.name), (node.op, set()))[1].update(names)
        for function, name in dict.fromkeys(self._refused):
            op, variables = found[function, name]
            yield Refused(function, name, op, tuple(sorted(variables)))

    def _version(self, name: str, arguments: Sequence[int | None]) -> _Version:
        """Rewrites a function for calls with these arguments, once. The first one keeps the function's name."""
        body, flow = self._walk.function(name, arguments)
        labels = (*arguments, *[None] * len(body.args))[: len(body.args)]
        if (name, labels) in self._versions:
            return self._versions[name, labels]
        function = function_pb2.FunctionDef()
        function.CopyFrom(self._walk.library[name])
        made = self._made[name]
        unique = name
        if made:
            number = 1
            while (unique := f"{name}_{number}") in self._names:
                number += 1
            self._names.add(unique)
            function.signature.name = unique
        made.append(function)
        version = self._versions[name, labels] = _Version(unique, flow.results)

        scope = Scope(function.node_def, name, body.args)
        self._change(body, flow, function.node_def, scope)
        if scope.renamed:
            for node in function.node_def:
                for index, operand in enumerate(node.input):
                    node.input[index] = _renamed(operand, scope.renamed)
            for key in function.ret:
                function.ret[key] = _renamed(function.ret[key], scope.renamed)
        for index, label in enumerate(labels):
            if label is not None:
                self._retype(function, index, label)
        for arg, label in zip(function.signature.output_arg, flow.results, strict=True):
            if label is not None:
                arg.type = self._rewrite.carried(label)
                arg.ClearField("handle_data")
        return version

    def _retype(self, function: function_pb2.FunctionDef, index: int, label: int) -> None:
        """Changes an argument's dtype; what was said of its handle is no longer true."""
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

    def _change(self, body: _Body, flow: Flow[int], nodes: Any, scope: Scope) -> None:
        """Changes a copy of a body: its handles, those who take them, and all calls."""
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
        """Changes dtypes and functions of a node that hands on what it takes; returns whether it is none of the others."""
        if node.op in _FORWARDS or node.op in _BRANCHING:
            data = {label for label in ins[: 1 if node.op == "Switch" else len(ins)]}
            if node.op != "IdentityN" and len(data) > 1:
                return False  # a handle of either kind may get here
            self._set_types(node, "T", 0, ins)
            return True
        if node.op in self._walk.library:
            node.op = self._version(node.op, ins).name
            return True
        call = _CALLS.get(node.op)
        if call is None:
            if any(label is not None for label in ins):
                return False
            for function in _called(node):
                if function.name in self._walk.library:
                    function.name = self._version(function.name, ()).name
            return True
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
        loop = call.types == call.results
        if any(outcome != (tuple(ins) if loop else outcomes[0]) for outcome in outcomes if outcome):
            return False  # a handle of either kind may come out
        self._set_types(node, call.types, call.first, ins)
        if not loop:
            self._set_types(node, call.results, 0, outcomes[0] if outcomes else ())
        return True

    def _set_types(self, node: node_def_pb2.NodeDef, key: str, first: int, labels: Sequence[int | None]) -> None:
        """Writes the dtypes of operands, or results, into an attribute, and forgets shapes that are no longer true."""
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
    """Makes one of a list of shapes unknown."""
    if index < len(shapes):
        shapes[index].Clear()
        shapes[index].unknown_rank = True


def _renamed(operand: str, renamed: Mapping[tuple[str, str], str]) -> str:
    node, separator, rest = operand.partition(":")
    output, _, index = rest.partition(":")
    new = renamed.get((node, output)) if separator else None
    return operand if new is None else f"{node}:{new}:{index}"
