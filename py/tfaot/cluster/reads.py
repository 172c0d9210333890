"""Reads of variables: what they wait for, and which of them return what was just written. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.cluster.predicates import ALWAYS, Predicate
from tfaot.graph.edits import replace
from tfaot.graph.names import producer
from tfaot.graph.ops import BRANCHING, CONTROL_FLOW_V1, FORWARDS, IDENTITIES, has_effects
from tfaot.graph.variables import READS


def hoist(graph: graph_pb2.GraphDef, when: Mapping[str, Predicate], fetched: Collection[str]) -> None:
    """Makes reads of variables wait only for the writes of their own variables before them, and constants for nothing.

    What else they wait for, such as writes of other variables, would keep what uses their values from sharing a cluster
    with what computes these writes. Effects and outputs behind them wait for that instead.

    Args:
      graph: all calls are inlined. It changes in place.
      when: when each node runs. Nodes in branches and loops stay as they are.
      fetched: the nodes of the outputs.
    """
    handles, writers = accesses(graph)
    before = Before(graph, writers)
    reads: dict[str, list[str]] = {}
    for node in graph.node:
        if node.op == "Const" and node.input and when[node.name] == ALWAYS:
            reads[node.name] = []
        variables = handles.get(producer(node.input[0])) if node.op == "ReadVariableOp" else None
        if variables is None or len(variables) != 1 or when[node.name] != ALWAYS:
            continue
        waits = [name for name in writers[next(iter(variables))] if before(name, node.name)]
        if all(when[name] == ALWAYS for name in waits):
            reads[node.name] = waits
    _wait_only(graph, reads, fetched)


def forward(graph: graph_pb2.GraphDef, when: Mapping[str, Predicate], fetched: Collection[str]) -> None:
    """Makes reads return what was just written, in place, and drops writes whose value nothing else reads.

    A read behind a write would keep the write's cluster from computing on. The outputs and effects behind such a read wait for
    the write instead. Updates, which change a variable in place, aren't writes of a value.

    Args:
      graph: all calls are inlined.
      when: when each node runs. Nodes in branches and loops stay as they are.
      fetched: the nodes of the outputs.
    """
    handles, writers = accesses(graph)
    before = Before(graph, writers)
    nodes = {node.name: node for node in graph.node}

    def variable(node: node_def_pb2.NodeDef, op: str) -> str | None:
        """Returns the one variable of a node with this op that always runs."""
        if node.op != op or when[node.name] != ALWAYS:
            return None
        names = handles.get(producer(node.input[0]), frozenset())
        return next(iter(names)) if len(names) == 1 else None

    values: dict[str, str] = {}
    for node in graph.node:
        if (name := variable(node, "ReadVariableOp")) is None:
            continue
        earlier = [write for write in writers[name] if before(write, node.name)]
        last = [write for write in earlier if all(other == write or before(other, write) for other in earlier)]
        if last and variable(nodes[last[0]], "AssignVariableOp") == name:
            values[node.name] = nodes[last[0]].input[1]
    _wait_only(graph, dict.fromkeys(values, ()), fetched)
    for name, value in values.items():
        replace(nodes[name], "Identity", [value], {"T": nodes[name].attr["dtype"]})
    _drop_unread(graph, variable)


def _drop_unread(graph: graph_pb2.GraphDef, variable: Callable[[node_def_pb2.NodeDef, str], str | None]) -> None:
    """Drops writes after which another write comes, before anything else uses the variable. What computes the value stays."""
    handles, _ = accesses(graph)
    users: dict[str, list[str]] = defaultdict(list)
    writes: dict[str, list[node_def_pb2.NodeDef]] = defaultdict(list)
    for node in graph.node:
        for operand in node.input:
            for name in handles.get(producer(operand), frozenset()) if operand[0] != "^" else ():
                users[name].append(node.name)
        if (written := variable(node, "AssignVariableOp")) is not None:
            writes[written].append(node)
    before = Before(graph, users)
    for name, nodes in writes.items():
        for node in nodes:
            if any(
                all(
                    user in (node.name, later.name) or before(user, node.name) or before(later.name, user)
                    for user in users[name]
                )
                for later in nodes
                if before(node.name, later.name)
            ):
                waits = dict.fromkeys([f"^{producer(node.input[1])}", *node.input[2:]])
                del node.input[:]
                replace(node, "NoOp", [], {})
                node.input.extend(waits)


def _wait_only(graph: graph_pb2.GraphDef, reads: Mapping[str, Sequence[str]], fetched: Collection[str]) -> None:
    """Makes nodes wait only for given ones, in place. Outputs and effects behind them wait for what else they waited for."""
    users: dict[str, list[node_def_pb2.NodeDef]] = defaultdict(list)
    for node in graph.node:
        for name in {producer(operand) for operand in node.input}:
            users[name].append(node)
    added: dict[str, dict[str, None]] = defaultdict(dict)
    for node in [node for node in graph.node if node.name in reads]:
        wanted = [f"^{name}" for name in reads[node.name]]
        data = [operand for operand in node.input if not operand.startswith("^")]
        dropped = [operand for operand in node.input[len(data) :] if operand not in wanted]
        if not dropped:
            continue
        node.input[:] = [*data, *wanted]
        for end in _ends(node.name, users, {*reads} - {*fetched}, fetched):
            added[end].update(dict.fromkeys(dropped))
    for node in graph.node:
        node.input.extend(operand for operand in added[node.name] if operand not in node.input)


def _ends(
    start: str, users: Mapping[str, Sequence[node_def_pb2.NodeDef]], reads: Collection[str], fetched: Collection[str]
) -> list[str]:
    """Returns the first nodes behind a read whose place in the order matters: outputs, effects, and what decides what runs."""
    if start in fetched:
        return [start]
    first, seen, pending = [], {start}, [start]
    while pending:
        for user in users[pending.pop()]:
            if user.name in seen:
                continue
            seen.add(user.name)
            if user.name not in reads and (user.name in fetched or user.op in CONTROL_FLOW_V1 or has_effects(user.op)):
                first.append(user.name)
            else:
                pending.append(user.name)
    return first


def share_reads(graph: graph_pb2.GraphDef, fetched: Collection[str]) -> None:
    """Makes one read of those that return the same value, in place."""
    first: dict[tuple[str, ...], str] = {}
    same: dict[str, str] = {}
    for node in graph.node:
        if node.op == "ReadVariableOp" and node.name not in fetched:
            kept = first.setdefault((node.input[0], *sorted(node.input[1:])), node.name)
            if kept != node.name:
                same[node.name] = kept
    for node in graph.node:
        data = [operand for operand in node.input if not operand.startswith("^")]
        waits = dict.fromkeys(
            f"^{same.get(operand[1:], operand[1:])}" for operand in node.input if operand.startswith("^")
        )
        node.input[:] = [*(same.get(operand.removesuffix(":0"), operand) for operand in data), *waits]
    left = [node for node in graph.node if node.name not in same]
    del graph.node[:]
    graph.node.extend(left)


def accesses(graph: graph_pb2.GraphDef) -> tuple[dict[str, frozenset[str]], dict[str, list[str]]]:
    """Returns the variables whose handle each node returns, and the nodes that may change each variable."""
    handles: dict[str, frozenset[str]] = {}
    writers: dict[str, list[str]] = defaultdict(list)
    for node in graph.node:
        if node.op == "VarHandleOp":
            handles[node.name] = frozenset({node.attr["shared_name"].s.decode()})
            continue
        taken = [
            handles[name] for operand in node.input if (name := producer(operand)) in handles and operand[0] != "^"
        ]
        if not taken:
            continue
        if node.op in FORWARDS or node.op in BRANCHING or node.op in IDENTITIES:
            handles[node.name] = frozenset().union(*taken)
        elif node.op not in READS:
            for name in frozenset().union(*taken):
                writers[name].append(node.name)
    return handles, writers


class Before:
    """Answers which writes always end before a node starts."""

    def __init__(self, graph: graph_pb2.GraphDef, writers: Mapping[str, Sequence[str]]) -> None:
        """Takes a graph whose nodes are in order, but for the ways back of loops."""
        self._bits = {name: 1 << bit for bit, name in enumerate({name for names in writers.values() for name in names})}
        self._found: dict[str, int] = {}
        for node in graph.node:
            bits = 0
            for operand in node.input:
                name = producer(operand)
                bits |= self._found.get(name, 0) | self._bits.get(name, 0)
            self._found[node.name] = bits

    def __call__(self, write: str, node: str) -> bool:
        """Returns whether a write ends before a node starts."""
        return bool(self._bits[write] & self._found[node])
