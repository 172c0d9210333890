"""Gives random ops one state per instance, and the same numbers in TensorFlow and in XLA. Pure: protos in, protos out.

When compiled ahead of time, TensorFlow's stateful random ops start from one fixed state in each instance, and their
floating-point numbers are XLA's own. This rewrite makes each of them draw from a variable, int64[3], which contains the
state of a `tf.random.Generator` that uses Philox. An op reserves counters with `RngReadAndSkip`, as the Generator does,
and computes on integers drawn from them. These are bit-identical in TensorFlow and in XLA. Stateless ops are rewritten
in the same way, with their own keys.

Functions get the variable's handle as an additional last argument. In each body, control edges chain the draws in the
order of the nodes. This makes TensorFlow and XLA draw in the same order.

The cost of the rewrite and the size of its result are linear in the size of the graph.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, types_pb2

from tfaot.core.errors import TfaotError, listed
from tfaot.export.rewrites.random.builder import Builder
from tfaot.export.rewrites.random.control_flow import Anchor, anchors, order
from tfaot.export.rewrites.random.numbers import DRAWS, STATELESS, drawn, stateless
from tfaot.graph.edits import Scope, use_renamed
from tfaot.graph.names import unused
from tfaot.graph.ops import CALLS, functions_of
from tfaot.graph.prune import reached

Array = npt.NDArray[np.int64]

VARIABLE = "tfaot/random_state"
"""The state's `shared_name`, unless another variable has it."""

_ARGUMENT = "tfaot_random_state"
_LEFT = frozenset({"ParameterizedTruncatedNormal"})
"""Stateful ops that XLA compiles, and that keep XLA's fixed state."""

_CONDITION = "it is in a while loop's condition"

_TOP = ""
"""Represents the graph itself among functions' names."""

_SEVERAL = -1
"""Used in place of a run's number."""


@dataclasses.dataclass(frozen=True, order=True)
class Left:
    """A stateful random op that still has XLA's fixed state."""

    name: str
    """`node`, or `function/node` inside functions, as in the map of source lines."""
    op: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Seeded:
    """A graph whose random ops use a variable."""

    graph: graph_pb2.GraphDef
    variable: str | None
    """The `shared_name` of the state, int64[3], which is written. None if nothing draws from it."""
    left: tuple[Left, ...]


def state_of(seed: int) -> Array:
    """Returns the state for a seed: int64[3], two words of counter and one of key, `{0, 0, seed}`.

    `tf.random.Generator.from_key_counter(key=seed, counter=[0, 0], alg="philox")` starts with the same state, and so
    does `from_seed` for a NumPy integer. From a Python integer, `from_seed` makes the counter. Seeds 1 and 2 then give
    the same stream, offset by four numbers.

    Raises:
      OverflowError: the seed is negative or has more than 64 bits.
    """
    return np.array([0, 0, seed], np.uint64).view(np.int64)


def seeded(graph: graph_pb2.GraphDef, runs: Sequence[Collection[str]] = ()) -> Seeded:
    """Makes all random ops that the graph can reach draw from one variable.

    Args:
      graph: a whole graph; stays unchanged. Only functions that its nodes reach are considered.
      runs: for each run that the graph is for, the nodes that it fetches. By default, there is one run for everything.
        Draws of one run aren't chained to another run's, which would then have to run, too. No two runs may need the
        same random op.

    Returns:
      A new graph. Rewritten nodes and functions keep their names, and the nodes that they need are named
      `NODE/random/…`. Functions without random ops keep their bytes. The attributes `seed` and `seed2` no longer mean
      anything.

    Raises:
      ValueError: two runs need the same random op.
    """
    return _Rewriter(graph, runs).run()


def refusal(what: str, left: Sequence[Left], sources: Mapping[str, str]) -> TfaotError:
    """Returns the error for a graph in which some stateful random ops can't use the state.

    Args:
      what: names the model.
      left: not empty.
      sources: `file:line` by the names in `Left`.
    """
    places = [f"{site.op} {sources.get(site.name, site.name)} ({site.reason})" for site in left]
    return TfaotError(
        f"{what}: {len(left)} random op(s) can't use the model's seed",
        exists=listed(places),
        do="draw in the loop's body and not in its condition, build loops with tf.compat.v1.enable_control_flow_v2(), or "
        "draw with tf.random.stateless_uniform and similar functions, which take their seed as an input",
    )


class _Form(enum.IntEnum):
    """What a function does with the state."""

    PLAIN = 0
    """It doesn't know the state."""
    IGNORES = 1
    """The handle is its last argument, but it doesn't draw: in XLA's loops, conditions have no effects."""
    TAKES = 2
    """The handle is its last argument, and it draws."""
    RETURNS = 3
    """The handle is also its last result: a loop's body."""


_CALLEES: Mapping[str, Sequence[tuple[str, _Form]]] = {
    op: [("cond", _Form.IGNORES), ("body", _Form.RETURNS)]
    if call.is_loop
    else [(key, _Form.TAKES) for key in call.functions]
    for op, call in CALLS.items()
    if op != "RemoteCall"
}
"""The functions of ops that can pass on one more argument, by their attributes."""


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What to rewrite in the graph or in a function. Nodes are given by name."""

    sites: tuple[str, ...]
    """Draws and calls, in the order in which they run."""
    draws: frozenset[str]
    calls: Mapping[str, tuple[tuple[str, _Form], ...]]
    """For each node that can pass on the state, the functions that would get it."""
    barred: Mapping[str, str]
    """Functions that can't get the state from here, and why."""
    stateless: tuple[str, ...]
    anchors: Mapping[str, Anchor]
    """The draws, calls, and stateless ops that are inside v1 control flow."""
    left: tuple[Left, ...]


def _runs_of(graph: graph_pb2.GraphDef, runs: Sequence[Collection[str]]) -> dict[str, int]:
    """Numbers nodes by the run that needs them, if there are several runs."""
    result: dict[str, int] = {}
    if len(runs) < 2:
        return result
    nodes = {node.name: node for node in graph.node}
    for run, fetches in enumerate(runs):
        for name in reached(nodes, fetches):
            result[name] = run if name not in result else _SEVERAL
    return result


class _Rewriter:
    """Visits all reachable bodies, finds those that draw, and rewrites them."""

    def __init__(self, graph: graph_pb2.GraphDef, runs: Sequence[Collection[str]]) -> None:
        self._graph = graph
        self._runs = _runs_of(graph, runs)
        """For each node of the graph, the run that needs it."""
        self._library = {function.signature.name: function for function in graph.library.function}
        self._bodies: dict[str, _Plan] = {}
        self._drawing: set[str] = set()
        self._names: dict[tuple[str, _Form], str] = {}
        """Names of the functions to write, by their original names and forms."""
        variables = {
            node.attr["shared_name"].s.decode()
            for node in graph.node
            if node.op == "VarHandleOp" and "shared_name" in node.attr
        }
        self._variable = unused(VARIABLE, {*variables, *(node.name for node in graph.node)})

    def run(self) -> Seeded:
        """Does the whole rewrite. Call it once."""
        pending = [_TOP]
        while pending:
            name = pending.pop()
            if name not in self._bodies:
                body = self._bodies[name] = self._look(name)
                pending += [callee for callees in body.calls.values() for callee, _ in callees]
                pending += body.barred
        self._find_drawing()
        reasons = self._choose_forms()
        left = [site for body in self._bodies.values() for site in body.left]
        for (name, form), reason in reasons.items():
            if form < _Form.TAKES and (kept := self._bodies[name].draws):
                sites = [node for node in self._nodes(name) if node.name in kept]
                left += [Left(_qualified(name, node.name), node.op, reason) for node in sites]
        draws = _TOP in self._drawing
        nodes, _, _ = self._write(_TOP, _Form.TAKES if draws else _Form.PLAIN, self._variable)
        result = graph_pb2.GraphDef()
        result.CopyFrom(self._graph)
        del result.node[:]
        result.node.extend([_handle(self._variable), *nodes] if draws else nodes)
        del result.library.function[:]
        for function in self._graph.library.function:
            forms = [form for form in _Form if (function.signature.name, form) in self._names]
            result.library.function.extend(self._function(function, form) for form in forms or [_Form.PLAIN])
        return Seeded(result, self._variable if draws else None, tuple(sorted(set(left))))

    def _nodes(self, name: str) -> Sequence[node_def_pb2.NodeDef]:
        nodes: Sequence[node_def_pb2.NodeDef] = self._graph.node if name == _TOP else self._library[name].node_def
        return nodes

    def _callees(self, node: node_def_pb2.NodeDef) -> tuple[tuple[str, _Form], ...]:
        """Returns the functions that would get the state through a node, with the forms that they need."""
        if node.op in self._library:
            return ((node.op, _Form.TAKES),)
        forms = dict(_CALLEES.get(node.op, ()))
        return tuple((func.name, forms[key]) for key, func in functions_of(node) if key in forms)

    def _look(self, name: str) -> _Plan:
        """Separates the nodes of a body that must be rewritten from those that are left."""
        nodes = self._nodes(name)
        interesting = [
            node
            for node in nodes
            if node.op in DRAWS
            or node.op in _LEFT
            or node.op in STATELESS
            or node.op in self._library
            or any(func.name in self._library for _, func in functions_of(node))
        ]
        if not interesting:
            return _Plan((), frozenset(), {}, {}, (), {}, ())
        running = order(nodes)
        places = anchors(nodes, running)
        draws: set[str] = set()
        calls: dict[str, tuple[tuple[str, _Form], ...]] = {}
        barred: dict[str, str] = {}
        left: list[Left] = []
        for node in interesting:
            if node.op in _LEFT:
                left.append(
                    Left(_qualified(name, node.name), node.op, "TensorFlow and XLA have no common way to draw it")
                )
            elif node.op in DRAWS and node.name in places and places[node.name].place.looped:
                left.append(Left(_qualified(name, node.name), node.op, "it is in a TensorFlow 1 while loop"))
            elif node.op in DRAWS:
                draws.add(node.name)
            callees = self._callees(node)
            if callees and node.name not in places:
                calls[node.name] = callees
            elif callees:
                barred |= {callee: "its caller is in TensorFlow 1 control flow" for callee, _ in callees}
            handed = {callee for callee, _ in callees}
            for _, func in functions_of(node):
                if func.name in self._library and func.name not in handed:
                    barred[func.name] = f"{node.op} calls its function"
        rest = tuple(node.name for node in interesting if node.op in STATELESS)
        return _Plan(
            tuple(nodes[i].name for i in running if nodes[i].name in draws or nodes[i].name in calls),
            frozenset(draws),
            calls,
            barred,
            rest,
            {site: places[site] for site in (*draws, *rest) if site in places},
            tuple(left),
        )

    def _find_drawing(self) -> None:
        """Fills `_drawing` with the bodies that draw, directly or through calls."""
        callers: dict[str, list[str]] = defaultdict(list)
        for name, body in self._bodies.items():
            for callees in body.calls.values():
                for callee, form in callees:
                    if form != _Form.IGNORES:
                        callers[callee].append(name)
        pending = [name for name, body in self._bodies.items() if body.draws]
        while pending:
            name = pending.pop()
            if name not in self._drawing:
                self._drawing.add(name)
                pending += callers[name]

    def _hands_on(self, callees: Sequence[tuple[str, _Form]]) -> bool:
        return any(callee in self._drawing for callee, form in callees if form != _Form.IGNORES)

    def _choose_forms(self) -> dict[tuple[str, _Form], str]:
        """Fills `_names`. Returns the forms that each body is needed in, each with the reason if it lacks the state."""
        reasons: dict[tuple[str, _Form], str] = {}
        todo = [(_TOP, _Form.TAKES if _TOP in self._drawing else _Form.PLAIN, "")]
        while todo:
            name, form, reason = todo.pop()
            if (name, form) in reasons:
                continue
            reasons[name, form] = reason
            body = self._bodies[name]
            todo += [(callee, _Form.PLAIN, why) for callee, why in body.barred.items()]
            for callees in body.calls.values():
                handed = form >= _Form.TAKES and self._hands_on(callees)
                for callee, wanted in callees:
                    why = reason or (_CONDITION if wanted == _Form.IGNORES else "")
                    todo.append((callee, wanted if handed else _Form.PLAIN, why))
        used = set(self._library)
        for name, form in sorted(reasons):
            if name != _TOP:
                # The first form keeps the name, which leaves the functions that call it byte-identical.
                first = not any((name, other) in self._names for other in _Form)
                self._names[name, form] = name if first else unused(f"{name}_random", used)
                used.add(self._names[name, form])
        return reasons

    def _write(
        self, name: str, form: _Form, state: str
    ) -> tuple[Sequence[node_def_pb2.NodeDef], str, Mapping[tuple[str, str], tuple[str, int]]]:
        """Returns the nodes of a body whose state handle is `state`, the last node that draws, and renamed outputs."""
        nodes, body = self._nodes(name), self._bodies[name]
        by_name = {node.name: node for node in nodes}
        arguments = () if name == _TOP else (arg.name for arg in self._library[name].signature.input_arg)
        build = Builder(Scope(nodes, name, (*arguments, state)))
        written: dict[str, list[node_def_pb2.NodeDef]] = {}
        last: dict[int, str] = defaultdict(str)
        for site in body.sites if form >= _Form.TAKES else ():
            node = by_name[site]
            run = self._runs.get(site, 0) if name == _TOP else 0
            if run == _SEVERAL and (site in body.draws or self._hands_on(body.calls[site])):
                raise ValueError(f"{site} draws for two runs")
            if site in body.draws:
                written[site], last[run] = drawn(build, node, state, last[run], body.anchors.get(site))
            elif self._hands_on(body.calls[site]):
                written[site] = [self._handing_on(node, state, last[run])]
                last[run] = site
        for site in body.stateless:
            written[site] = stateless(build, by_name[site], body.anchors.get(site))
        if not written:
            return nodes, "", {}
        result = [new for node in nodes for new in written.get(node.name, [node])]
        return [*build.constants, *result], last[0], build.scope.renamed

    def _handing_on(self, node: node_def_pb2.NodeDef, state: str, last: str) -> node_def_pb2.NodeDef:
        """Returns a call, loop, or conditional with one more operand, after the draw before it."""
        result = node_def_pb2.NodeDef()
        result.CopyFrom(node)
        data = sum(not operand.startswith("^") for operand in node.input)
        controls = list(node.input[data:])
        del result.input[data:]
        result.input.extend([state, *controls])
        if last and f"^{last}" not in controls:
            result.input.append(f"^{last}")
        if node.op in self._library:
            result.op = self._names[node.op, _Form.TAKES]
            return result
        forms = dict(_CALLEES[node.op])
        for key, func in functions_of(result):
            if key in forms:
                func.name = self._names[func.name, forms[key]]
        result.op = CALLS[node.op].stateful
        loop = result.op == "While"
        result.attr["T" if loop else "Tin"].list.type.append(types_pb2.DT_RESOURCE)
        for key in ("output_shapes", "_output_shapes"):
            if loop and key in result.attr and result.attr[key].list.shape:
                result.attr[key].list.shape.add()
        return result

    def _function(self, function: function_pb2.FunctionDef, form: _Form) -> function_pb2.FunctionDef:
        """Returns a function in one of the forms that it is needed in."""
        name = function.signature.name
        if (name, form) not in self._names or (form == _Form.PLAIN and not self._bodies[name].stateless):
            return function
        signature = function.signature
        outputs = {arg.name for arg in signature.output_arg}
        used = {arg.name for arg in signature.input_arg} | outputs | {node.name for node in function.node_def}
        argument = unused(_ARGUMENT, used)
        nodes, last, renamed = self._write(name, form, argument)
        result = function_pb2.FunctionDef()
        result.CopyFrom(function)
        result.signature.name = self._names[name, form]
        del result.node_def[:]
        result.node_def.extend(nodes)
        use_renamed(result, renamed)
        if form == _Form.PLAIN:
            return result
        result.signature.input_arg.add(name=argument, type=types_pb2.DT_RESOURCE)
        if "_input_shapes" in result.attr:
            result.attr["_input_shapes"].list.shape.add()
        if last:
            result.signature.is_stateful = True
            # No result of a function needs its last draw. Without this, it might not run, or might run too late.
            effect = unused(_ARGUMENT, signature.control_output)
            result.signature.control_output.append(effect)
            result.control_ret[effect] = last
        if form == _Form.RETURNS:
            output = unused(f"{argument}_out", used)
            result.signature.output_arg.add(name=output, type=types_pb2.DT_RESOURCE)
            result.ret[output] = argument
            if last:
                # The next round gets the handle after this round's last draw, no matter how the loop runs.
                build = Builder(Scope(result.node_def, name, {*used, argument}))
                result.ret[output] = build.add("Identity", argument, f"^{last}", T=types_pb2.DT_RESOURCE)
                result.node_def.extend(build.nodes)
        return result


def _handle(name: str) -> node_def_pb2.NodeDef:
    """Creates the handle of the state's variable."""
    build = Builder(Scope([]))
    build.add("VarHandleOp", dtype=types_pb2.DT_INT64, shape=(3,), shared_name=name)
    build.nodes[0].name = name
    return build.nodes[0]


def _qualified(function: str, node: str) -> str:
    return f"{function}/{node}" if function != _TOP else node
