"""Pruning a GraphDef, and finding out what a run does with each variable. Pure: protos in, values out.

Everything here is linear in the number of nodes, and nothing copies a node that it keeps.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, types_pb2

_READS = frozenset(
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
"""Ops that take a variable's handle and leave its value alone. Every other op that takes one counts as a write."""

_FORWARDS = frozenset({"Identity", "IdentityN", "Enter", "RefEnter", "Exit", "NextIteration", "StopGradient"})
"""Ops whose output i is their input i."""

_CALLS = {"PartitionedCall": "f", "StatefulPartitionedCall": "f", "RemoteCall": "f", "XlaLaunch": "function"}
"""Ops that call the function of an attribute with all of their operands, and return what it returns."""

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
"""Ops that may return their first operand as it is."""

_BRINGS = frozenset(
    {
        "Case",
        "Exit",
        "IdentityN",
        "If",
        "Merge",
        "ReadVariableOp",
        "StatelessCase",
        "StatelessIf",
        "StatelessWhile",
        "Switch",
        "While",
        "_ReadVariablesOp",
    }
)
"""Ops that may return what a variable held, other than calls."""


def tensor_name(name: str) -> tuple[str, int]:
    """Splits an input of a GraphDef's node, `node` or `node:port`; a control input `^node` has port -1."""
    if name.startswith("^"):
        return name[1:], -1
    node, _, port = name.partition(":")
    return node, int(port or 0)


def _functions_of(node: node_def_pb2.NodeDef) -> Iterable[str]:
    """Names of the functions that a node's attributes mention."""
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func.name
        elif kind == "list":
            for func in value.list.func:
                yield func.name


def prune(graph: graph_pb2.GraphDef, fetches: Iterable[str], feeds: Iterable[str] = ()) -> graph_pb2.GraphDef:
    """Keeps what the fetches need, in the graph's own order, and the functions that it calls.

    Args:
      graph: the whole graph.
      fetches: node names.
      feeds: node names whose inputs are not followed; the nodes themselves stay even if nothing reads them.

    Returns:
      A new GraphDef, without device and colocation hints, which mean nothing to a compiler.
    """
    nodes = {node.name: node for node in graph.node}
    feeds = set(feeds)
    reached = set(feeds)
    queue = deque(fetches)
    while queue:
        name = queue.popleft()
        if name in reached:
            continue
        reached.add(name)
        queue.extend(tensor_name(operand)[0] for operand in nodes[name].input)
    result = graph_pb2.GraphDef(versions=graph.versions)
    kept = [node for node in graph.node if node.name in reached]
    result.node.extend(kept)
    for node in result.node:
        node.ClearField("device")
        node.attr.pop("_class", None)
        node.ClearField("experimental_debug_info")

    library = {function.signature.name: function for function in graph.library.function}
    gradients = {gradient.function_name: gradient for gradient in graph.library.gradient}
    called: set[str] = set()
    pending = [name for node in kept for name in (node.op, *_functions_of(node))]
    while pending:
        name = pending.pop()
        if name in called or name not in library:
            continue
        called.add(name)
        for node in library[name].node_def:
            pending += (node.op, *_functions_of(node))
        if name in gradients:
            pending.append(gradients[name].gradient_func)
    result.library.function.extend(f for f in graph.library.function if f.signature.name in called)
    result.library.gradient.extend(g for g in graph.library.gradient if g.function_name in called)
    for function in result.library.function:
        for node in function.node_def:
            node.ClearField("device")
            node.attr.pop("_class", None)
            node.ClearField("experimental_debug_info")
    return result


@dataclasses.dataclass(frozen=True)
class VariableUse:
    """A VarHandleOp that the graph holds, and whether something assigns it."""

    node: str
    shared_name: str
    dtype: int
    """`tensorflow.DataType`."""
    shape: tuple[int, ...] | None
    """None if the rank is unknown; an unknown dimension is -1."""
    written: bool
    doubtful: bool
    """Whether the compiler may find that no run changes it, as in `v.assign(v.read_value())`: it must be asked."""


def name_variables(graph: graph_pb2.GraphDef) -> None:
    """Gives every VarHandleOp without a `shared_name` its node's name: the config finds variables by it."""
    used = {node.attr["shared_name"].s for node in graph.node if node.op == "VarHandleOp"}
    for node in graph.node:
        if node.op == "VarHandleOp" and not node.attr["shared_name"].s:
            name = node.name.encode()
            while name in used:
                name += b"_"
            used.add(name)
            node.attr["shared_name"].s = name


def variable_uses(graph: graph_pb2.GraphDef) -> tuple[VariableUse, ...]:
    """Returns the variables of a pruned graph, in the graph's order, each once.

    Handles are followed through identities, loops of either control flow version, calls, While, If, and Case, to the
    ops that read or assign.
    """
    walk = _Walk(graph)
    walk.run()
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


@dataclasses.dataclass(frozen=True)
class _Body:
    """A graph or a function's body, with its edges by node and flat output port."""

    nodes: Sequence[node_def_pb2.NodeDef]
    args: tuple[str, ...]
    """Names of the arguments' nodes; they stand for nodes of their own."""
    returns: tuple[str, ...]
    """Inputs in GraphDef notation that the function returns, in order."""


class _Walk:
    """One pass that carries sets of variables along edges of resource type, into and out of functions.

    A set per edge only grows, so that loops end; a function's body is visited again only when an argument's set grew.
    """

    def __init__(self, graph: graph_pb2.GraphDef) -> None:
        self._graph = graph
        self._library = {function.signature.name: function for function in graph.library.function}
        self._bodies: dict[str, _Body] = {}
        self._memo: dict[tuple[str, tuple[frozenset[str], ...]], tuple[frozenset[str], ...]] = {}
        self.written: set[str] = set()
        """Names of the variables that some reachable op assigns."""
        self.doubtful: set[str] = set()
        """Those that may be assigned what they held, or in a branch that the compiler drops."""

    def run(self) -> None:
        """Fills `written` and `doubtful`."""
        self._visit(_Body(self._graph.node, (), ()), ())

    def _body(self, name: str) -> _Body:
        if name not in self._bodies:
            self._bodies[name] = _function_body(self._library[name])
        return self._bodies[name]

    def _call(self, name: str, operands: Sequence[frozenset[str]]) -> tuple[frozenset[str], ...]:
        """Visits a function with what its arguments may hold, and returns what its results may hold."""
        key = (name, tuple(operands))
        if name not in self._library or not any(operands):
            return ()
        if key not in self._memo:
            self._memo[key] = ()  # a recursive call adds nothing that this one does not
            self._memo[key] = self._visit(self._body(name), tuple(operands))
        return self._memo[key]

    def _visit(self, body: _Body, operands: tuple[frozenset[str], ...]) -> tuple[frozenset[str], ...]:
        """Spreads handles through one body until nothing changes."""
        held: dict[tuple[str, int], frozenset[str]] = {}
        users: dict[str, list[node_def_pb2.NodeDef]] = defaultdict(list)
        nodes: dict[str, node_def_pb2.NodeDef] = {}
        for node in body.nodes:
            nodes[node.name] = node
            for operand in node.input:
                users[tensor_name(operand)[0]].append(node)
        queue: deque[node_def_pb2.NodeDef] = deque()

        def hold(name: str, port: int, variables: frozenset[str]) -> None:
            before = held.get((name, port), frozenset())
            if variables - before:
                held[name, port] = before | variables
                queue.extend(users[name])

        for arg, variables in zip(body.args, operands, strict=False):
            hold(arg, 0, variables)
        for node in body.nodes:
            if node.op == "VarHandleOp":
                hold(node.name, 0, frozenset({node.attr["shared_name"].s.decode()}))
        while queue:
            node = queue.popleft()
            ins = [held.get(tensor_name(i), frozenset()) for i in node.input if not i.startswith("^")]
            if node.op == "AssignVariableOp" and self._may_copy(node, nodes):
                self.doubtful |= ins[0]
            for port, variables in enumerate(self._transfer(node, ins)):
                if variables:
                    hold(node.name, port, variables)
        return tuple(held.get(tensor_name(result), frozenset()) for result in body.returns)

    def _transfer(self, node: node_def_pb2.NodeDef, ins: Sequence[frozenset[str]]) -> Sequence[frozenset[str]]:
        """What a node's outputs hold, given what its inputs hold; notes writes on the way."""
        op = node.op
        if op in _READS or op == "VarHandleOp" or not any(ins):
            return ()
        if op in _FORWARDS:
            return ins
        if op == "Switch":
            return (ins[0], ins[0])
        if op == "Merge":
            return (frozenset().union(*ins),)
        if op in _CALLS:
            return self._call(node.attr[_CALLS[op]].func.name, ins)
        if op in self._library:
            return self._call(op, ins)
        if op in ("While", "StatelessWhile"):
            self._call(node.attr["cond"].func.name, ins)
            outs = list(ins)
            while True:  # a variable may move from one loop operand to another
                results = self._call(node.attr["body"].func.name, outs)
                grown = [a | b for a, b in zip(outs, results, strict=False)]
                if grown == outs or not results:
                    return outs
                outs = grown
        if op in ("If", "StatelessIf"):
            branches = [node.attr["then_branch"].func.name, node.attr["else_branch"].func.name]
            return _union([self._call(branch, ins[1:]) for branch in branches])
        if op in ("Case", "StatelessCase"):
            before = set(self.written)
            outcomes = [self._call(branch.name, ins[1:]) for branch in node.attr["branches"].list.func]
            self.doubtful |= self.written - before  # of a Case whose index is constant, the compiler keeps one branch
            return _union(outcomes)
        functions = list(_functions_of(node))
        if op == "SymbolicGradient" or functions:
            return _union([self._call(function, ins) for function in functions])
        for variables in ins:
            self.written |= variables
        return ()

    def _may_copy(self, assign: node_def_pb2.NodeDef, nodes: Mapping[str, node_def_pb2.NodeDef]) -> bool:
        """Whether an assignment's value may be what a variable held before, and nothing that was computed."""
        producer = nodes.get(tensor_name(assign.input[1])[0])
        while producer is not None and producer.op in _COPIES:
            producer = nodes.get(tensor_name(producer.input[0])[0])
        # A function's argument has no node.
        return producer is None or producer.op in _BRINGS or producer.op in _CALLS or producer.op in self._library


def _union(results: Sequence[Sequence[frozenset[str]]]) -> list[frozenset[str]]:
    width = max((len(result) for result in results), default=0)
    return [frozenset().union(*(result[port] for result in results if port < len(result))) for port in range(width)]


def _function_body(function: function_pb2.FunctionDef) -> _Body:
    """A function's body in GraphDef notation: `node:output:index` becomes a port of resource outputs.

    Only resource tensors matter here. Ops that yield several named outputs of which a later one is a resource are
    calls, loops, and conditionals, whose single output list makes the index the port.
    """
    nodes = []
    for node in function.node_def:
        copy = node_def_pb2.NodeDef(name=node.name, op=node.op)
        for key in ("shared_name", "f", "function", "cond", "body", "then_branch", "else_branch", "branches"):
            if key in node.attr:
                copy.attr[key].CopyFrom(node.attr[key])
        copy.input.extend(_flat(operand) for operand in node.input)
        nodes.append(copy)
    return _Body(
        nodes,
        tuple(arg.name for arg in function.signature.input_arg),
        tuple(_flat(function.ret[arg.name]) for arg in function.signature.output_arg),
    )


def _flat(name: str) -> str:
    if name.startswith("^"):
        return name
    node, _, rest = name.partition(":")
    return f"{node}:{rest.rpartition(':')[2]}" if rest else node


def dtype_name(enum: int) -> str:
    """`DT_FLOAT` and the like, for messages."""
    return str(types_pb2.DataType.Name(enum))
