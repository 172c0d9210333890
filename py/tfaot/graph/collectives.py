"""Collectives: ops in which the replicas of a model exchange values. Each becomes the mark of a call of the runtime."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, types_pb2

from tfaot.core.errors import TfaotError
from tfaot.graph.attributes import Shape, type_attribute, types_attribute
from tfaot.graph.calls import PLAIN_CALLS
from tfaot.graph.constants import value_of
from tfaot.graph.edits import replace
from tfaot.graph.fixed import Scope
from tfaot.graph.functions import EditableFunction
from tfaot.graph.ops import CALLS, WHILES, Library, definition, functions_of
from tfaot.graph.program import Program
from tfaot.graph.splice import FunctionTarget, GraphTarget, Target, any_node, operands, shapes_in, shapes_of, splice
from tfaot.xla import marks


@dataclasses.dataclass(frozen=True)
class _Op:
    """Where an op says what it computes."""

    kind: marks.Exchange
    group: str | int | None
    """The attribute or the operand that says how many replicas there are, or None: all that run the model."""
    reduction: str = ""
    """The attribute with the reduction's name. Without one, it is a sum."""


_OPS: Mapping[str, _Op] = {
    "AllToAll": _Op("all_to_all", 1),
    "CollectiveAllToAllV2": _Op("all_to_all", 1),
    "CollectiveAllToAllV3": _Op("all_to_all", 2),
    "CollectiveBcastSend": _Op("broadcast", "group_size"),
    "CollectiveBcastSendV2": _Op("broadcast", 1),
    "CollectiveGather": _Op("all_gather", "group_size"),
    "CollectiveGatherV2": _Op("all_gather", 1),
    "CollectivePermute": _Op("permute", None),
    "CollectiveReduce": _Op("all_reduce", "group_size", "merge_op"),
    "CollectiveReduceScatterV2": _Op("reduce_scatter", 1, "merge_op"),
    "CollectiveReduceV2": _Op("all_reduce", 1, "merge_op"),
    "CollectiveReduceV3": _Op("all_reduce", 2, "reduction"),
    "CrossReplicaSum": _Op("all_reduce", 1),
    "NcclAllReduce": _Op("all_reduce", "num_devices", "reduction"),
    "XlaAllReduce": _Op("all_reduce", 1, "reduce_op"),
    "XlaReduceScatter": _Op("reduce_scatter", 1, "reduce_op"),
    "XlaReplicaId": _Op("rank", None),
}
OPS = frozenset(_OPS)

GROUPS = frozenset({"CollectiveAssignGroupV2", "CollectiveInitializeCommunicator"})
"""Ops that say who takes part, of which collectives need only the number."""

_REDUCTIONS = {"add": "Add", "sum": "Add", "mul": "Mul", "prod": "Mul", "min": "Min", "max": "Max", "mean": "Add"}
"""By the lowercase name in an attribute."""

_COUNTERS = frozenset({types_pb2.DT_INT32, types_pb2.DT_INT64, types_pb2.DT_UINT32, types_pb2.DT_UINT64})

REPLICAS = "_tfaot_replicas"
"""An attribute of ops that don't say how many replicas there are."""
IN_GROUPS = "_tfaot_groups"
"""An attribute of ops that say only how large a group is: the ranks of all groups, one group after another."""


@dataclasses.dataclass(frozen=True)
class Collective:
    """What a collective computes."""

    kind: marks.Exchange
    replicas: int
    """Those of a group; 0 if it is for as many as there are."""
    reduction: marks.Reduction = "Add"
    mean: bool = False
    """Whether the result is divided by the number of replicas."""
    split: int = 0
    """The axis that is cut into a part for each replica."""
    concat: int = 0
    """The axis that joins parts of all replicas."""
    pairs: tuple[tuple[int, int], ...] = ()
    """Of a permutation, who sends, and to whom."""
    groups: tuple[tuple[int, ...], ...] = ()
    """The ranks of each group, unless all replicas are one, in order."""

    @property
    def all_replicas(self) -> int:
        """How many replicas all groups have together."""
        return self.replicas * max(len(self.groups), 1)

    def group(self, rank: int) -> tuple[int, ...]:
        """Returns the ranks with which a replica exchanges values, and its own, in order."""
        return next((ranks for ranks in self.groups if rank in ranks), (*range(self.replicas),))


def any_in(graph: graph_pb2.GraphDef) -> bool:
    """Returns whether a graph has collectives, also in functions."""
    return any_node(graph, OPS.__contains__)


def settle(graph: graph_pb2.GraphDef, replicas: int) -> None:
    """Notes the number of replicas in ops that don't say it. If there is only one, no collective is left."""
    if replicas > 1:
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            for node in nodes:
                if node.op in _OPS and _OPS[node.op].group is None:
                    node.attr[REPLICAS].i = replicas
        return
    library = {function.signature.name: function for function in graph.library.function}
    for function in graph.library.function:
        if any(node.op in OPS | GROUPS for node in function.node_def):
            body = EditableFunction(function, library)
            _fold(body.nodes.values(), body.become)
            function.CopyFrom(body.function(function.signature.name))
    _fold(graph.node, lambda node, op, inputs, **attributes: replace(node, op, inputs, attributes))


def _fold(nodes: Iterable[node_def_pb2.NodeDef], become: Callable[..., None]) -> None:
    """Makes collectives what their only replica gets."""
    for node in nodes:
        if node.op == "XlaReplicaId":
            become(node, "Const", [], dtype=np.dtype(np.int32), value=np.array(0, np.int32))
        elif node.op in OPS:
            become(node, "Identity", [node.input[0]], T=type_attribute(node.attr["T"].type))
        elif node.op in GROUPS:
            become(node, "NoOp", [])


def all_in(program: Program, places: Mapping[str, str] | None = None) -> dict[tuple[str, str], Collective]:
    """Returns the collectives of a graph, whose calls are inlined, by the function that they are in, or nothing, and their nodes.

    Args:
      program: the graph; stays unchanged.
      places: `file:line` by node, or `function/node` inside functions, for messages.

    Raises:
      TfaotError: data decides how often replicas exchange values, or the group of a collective isn't known.
    """
    library = {function.signature.name: function for function in program.graph.library.function}
    made: dict[tuple[str, str], Collective] = {}

    def add(scope: Scope) -> None:
        for node in scope.nodes.values():
            if node.op in OPS:
                shown = _at(program, node, places, scope.function)
                made[scope.function, node.name] = _collective(node, scope.nodes, shown)
                continue
            if next(_reached(node, library), None) is None:
                continue
            if node.op in PLAIN_CALLS:
                add(scope.called(node.attr["f"].func.name, scope.fixed_operands(node)))
                continue
            counted = node.op in WHILES and scope.is_counted(node)
            for inner, function in _reached(node, library, attributes=("cond",) if counted else ()):
                raise _uncertain(node, _at(program, inner, places, function))
            add(scope.called(node.attr["body"].func.name, scope.fixed_results(node)))

    add(Scope(program.nodes(), library, differing=OPS))
    return made


def _uncertain(node: node_def_pb2.NodeDef, shown: str) -> TfaotError:
    """Returns the error of a collective in a loop or under a condition."""
    loop = node.op in WHILES
    return TfaotError(
        f"{shown} is in a loop whose number of rounds depends on data" if loop else f"{shown} is under a condition",
        exists=f"{node.op} {node.name}, with which data could decide how often replicas exchange values; all must do so "
        "equally often, and in the same order",
        do="make the number of rounds a constant, as in tf.range(4), and choose between values with tf.where"
        if loop
        else "exchange values in front of the condition or behind it, and choose between values with tf.where",
    )


def _at(
    program: Program, node: node_def_pb2.NodeDef, places: Mapping[str, str] | None = None, function: str = ""
) -> str:
    """Returns how messages show a node, which can be in a function."""
    name = f"{function}/{node.name}" if function else program.origins.get(node.name, node.name)
    place = (places or {}).get(name, "")
    return f"{node.op} {node.name!r}" + (f" at {place}" if place else "")


def _reached(
    node: node_def_pb2.NodeDef,
    library: Library,
    *,
    attributes: Collection[str] = (),
    seen: frozenset[str] = frozenset(),
) -> Iterator[tuple[node_def_pb2.NodeDef, str]]:
    """Yields the collectives in the functions that a node calls, or that some attributes name, with the function's name."""
    for attribute, call in functions_of(node):
        if call.name in library and call.name not in seen and (not attributes or attribute in attributes):
            for inner in library[call.name].node_def:
                if inner.op in OPS:
                    yield inner, call.name
                yield from _reached(inner, library, seen=seen | {call.name})


def _collective(node: node_def_pb2.NodeDef, nodes: Mapping[str, node_def_pb2.NodeDef], shown: str) -> Collective:
    """Reads a collective, which messages call `shown`."""
    op = _OPS[node.op]
    name = node.attr[op.reduction].s.decode().lower() if op.reduction else "add"
    replicas, ranks = _group(node, op, nodes)
    uneven = bool(ranks) and sorted(ranks) != [*range(len(ranks))]
    if name not in _REDUCTIONS or replicas is None or uneven:
        raise TfaotError(
            f"{shown} has the reduction {name!r}"
            if name not in _REDUCTIONS
            else f"{shown} has a group that is known only at run time"
            if replicas is None
            else f"{shown} has groups in which not every replica is once",
            exists="Add, Mul, Min, Max, and Mean over groups of constant ranks that are equally large can be compiled",
            do="exchange values with a constant group_size, or a constant group_assignment that has all ranks",
        )
    mean = name == "mean" or node.attr["final_op"].s == b"Div"
    made = Collective(op.kind, replicas, _REDUCTIONS[name], mean)  # type: ignore[arg-type]
    if ranks and ranks != [*range(replicas)]:
        groups = tuple(tuple(ranks[start : start + replicas]) for start in range(0, len(ranks), replicas))
        made = dataclasses.replace(made, groups=groups)
    if node.op == "AllToAll":
        axes = {key: int(node.attr[f"{key}_dimension"].i) for key in ("split", "concat")}
        return dataclasses.replace(made, **axes)  # type: ignore[arg-type]
    if node.op == "XlaReduceScatter":
        return dataclasses.replace(made, split=int(_constant(node, nodes, 2, shown)))
    if node.op == "CollectivePermute":
        pairs = tuple((int(source), int(target)) for source, target in _constant(node, nodes, 1, shown))
        return dataclasses.replace(made, pairs=pairs)
    return made


def _constant(node: node_def_pb2.NodeDef, nodes: Mapping[str, node_def_pb2.NodeDef], index: int, shown: str) -> Any:
    value = value_of(nodes, operands(node)[index])
    if value is None:
        raise TfaotError(
            f"{shown} has an operand that is known only at run time",
            exists=operands(node)[index],
            do="make it a constant",
        )
    return value


def _group(
    node: node_def_pb2.NodeDef, op: _Op, nodes: Mapping[str, node_def_pb2.NodeDef]
) -> tuple[int | None, list[int]]:
    """Returns the size of a collective's groups, or None if it isn't known, and the ranks of all groups if the op says them."""
    ranks = [*node.attr[IN_GROUPS].list.i] if IN_GROUPS in node.attr else []
    if op.group is None or isinstance(op.group, str):
        return int(node.attr[op.group or REPLICAS].i), ranks
    group = value_of(nodes, operands(node)[op.group])
    defined = definition(node.op)
    assert defined is not None
    if group is not None and defined.input_arg[op.group].name == "group_size":
        return int(group) if group.size == 1 else None, ranks
    if group is None or group.ndim != 2:
        return None, []
    return int(group.shape[1]), group.reshape(-1).tolist()


def for_xla(program: Program) -> int:
    """Rewrites all collectives of a graph, whose calls are inlined, and returns how many there were.

    Raises:
      TfaotError: data decides how often replicas exchange values, or the group or the size of a collective isn't known.
    """
    if not any_in(program.graph):
        return 0
    collectives = all_in(program)
    library = {function.signature.name: function for function in program.graph.library.function}
    _Rewrite(program, collectives, library).rewrite("", (), {})
    return len(collectives)


@dataclasses.dataclass(frozen=True)
class _Rewrite:
    """Puts marks in the places of collectives."""

    program: Program
    collectives: Mapping[tuple[str, str], Collective]
    """By function ("" is the graph) and node."""
    library: dict[str, function_pb2.FunctionDef]
    orders: list[Any] = dataclasses.field(default_factory=list)
    """The functions that the marks call."""

    def rewrite(self, function: str, arguments: Sequence[Shape], variables: Mapping[str, node_def_pb2.NodeDef]) -> None:
        """Rewrites a function, or the graph if its name is "", and the bodies of its loops.

        Args:
          function: its name.
          arguments: the shapes of its arguments.
          variables: the VarHandleOp that an argument is, by the argument's name.
        """
        body = EditableFunction(self.library[function], self.library) if function else None
        target = FunctionTarget(body) if body else GraphTarget(self.program)
        waiting = {name: collective for (place, name), collective in self.collectives.items() if place == function}
        while True:
            nodes = body.nodes if body else self.program.nodes()
            shape = (
                shapes_in(self.program, body.function(function), arguments, variables)
                if body
                else shapes_of(self.program)
            )
            if not waiting:
                break
            # What depends on a collective can have a shape that only its rewrite says.
            ready = [
                name for name in waiting if all(_is_known(shape(operand)) for operand in operands(nodes[name])[:1])
            ]
            if not ready:
                node = nodes[next(iter(waiting))]
                raise TfaotError(
                    f"{_at(self.program, node, function=function)} has a size that is known only at run time",
                    exists=f"an operand of shape {shape(operands(node)[0])}",
                    do="give the model fixed sizes",
                )
            for name in ready:
                self._splice(target, nodes[name], shape, waiting.pop(name))
        for node in [*nodes.values()]:
            if any(_reached(node, self.library)):
                self._rewrite_loop(
                    node, shape, variables or {n.name: n for n in nodes.values() if n.op == "VarHandleOp"}
                )
                _hide_rounds(target, node)
        if body:
            self.library[function].CopyFrom(body.function(function))

    def _splice(
        self, target: Target, node: node_def_pb2.NodeDef, shape: Callable[[str], Shape], collective: Collective
    ) -> None:
        """Replaces a collective."""
        import tensorflow as tf

        own = operands(node)[:1]
        node.input[:] = [*own, *(operand for operand in node.input if operand.startswith("^"))]
        specs = [tf.TensorSpec(shape(operand), node.attr["T"].type) for operand in own]
        made = len(self.orders)
        splice(target, node, specs, _built(collective, self.orders))
        self.program.graph.library.function.extend(self.orders[made:])

    def _rewrite_loop(
        self, node: node_def_pb2.NodeDef, shape: Callable[[str], Shape], handles: Mapping[str, node_def_pb2.NodeDef]
    ) -> None:
        """Rewrites what a node calls. `handles` has the variables that may be its operands."""
        called = node.attr["body" if node.op in WHILES else "f"].func.name
        arguments = zip(self.library[called].signature.input_arg, operands(node), strict=True)
        sources = {argument.name: operand.partition(":")[0] for argument, operand in arguments}
        variables = {name: handles[source] for name, source in sources.items() if source in handles}
        self.rewrite(called, [shape(operand) for operand in operands(node)], variables)


def _hide_rounds(target: Target, node: node_def_pb2.NodeDef) -> None:
    """Hides the initial values of a loop's counters from XLA, which would copy the collectives of each round otherwise."""
    for index, operand in enumerate(operands(node)):
        dtype = node.attr[CALLS[node.op].types].list.type[index]
        if node.op in WHILES and dtype in _COUNTERS:
            barrier = node_def_pb2.NodeDef(op="XlaOptimizationBarrier")
            barrier.attr["T"].CopyFrom(types_attribute([dtype]))
            node.input[index] = f"{target.add(barrier, f'{node.name}/counter', [operand], node.name)}:0"


def _is_known(shape: Shape) -> bool:
    return shape is not None and None not in shape


def _built(collective: Collective, orders: list[Any]) -> Callable[..., Any]:
    """Returns a function that returns a collective's result, and adds the order of its mark to `orders`."""
    import tensorflow as tf

    kind, replicas = collective.kind, collective.replicas

    def build(*own: Any) -> Any:
        if replicas == 1:
            return _alone(collective, *own)
        if kind == "rank":
            return tf.reshape(_exchanged(collective, tf.zeros([1], tf.int32), orders), [])
        (x,) = own
        if kind == "all_gather":
            gathered = _exchanged(collective, tf.tile(tf.reshape(x, [-1]), [replicas]), orders)
            return tf.reshape(gathered, [replicas * x.shape[0], *x.shape[1:]])
        if kind == "permute":
            values = tf.reshape(x, [-1])
            both = _exchanged(collective, tf.concat([values, tf.zeros_like(values)], 0), orders)
            return tf.reshape(both[values.shape[0] :], x.shape)
        if kind in ("all_reduce", "broadcast"):
            result = tf.reshape(_exchanged(collective, tf.reshape(x, [-1]), orders), x.shape)
        else:
            parts = tf.stack(tf.split(x, replicas, collective.split))
            blocks = tf.reshape(_exchanged(collective, tf.reshape(parts, [-1]), orders), parts.shape)
            if kind == "all_to_all":
                return tf.concat(tf.unstack(blocks), collective.concat)
            result = blocks[0]
        return result / tf.cast(replicas, x.dtype) if collective.mean else result

    return build


def _alone(collective: Collective, *own: Any) -> Any:
    """Returns what the only replica of a group gets."""
    import tensorflow as tf

    if collective.kind == "rank":
        return tf.constant(0)
    (x,) = own
    return tf.zeros_like(x) if collective.kind == "permute" and not collective.pairs else tf.identity(x)


def _exchanged(collective: Collective, values: Any, orders: list[Any]) -> Any:
    """Returns the result of the mark of a collective, in the place of its values."""
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    count = math.prod(values.shape)
    if count == 0:
        return values
    number = len(orders)
    name = f"tfaot_collective_{number}"
    targets = dict(collective.pairs)
    peers = {"broadcast": [0], "permute": [targets.get(rank, -1) for rank in range(collective.replicas)]}
    ranks = [rank for group in collective.groups for rank in group]
    numbers = (
        marks.COLLECTIVE,
        number,
        marks.EXCHANGES.index(collective.kind),
        marks.REDUCTIONS.index(collective.reduction),
        collective.all_replicas,
        collective.replicas if ranks else 0,
        int(count == 1),
        *(peer + 1 for peer in ranks or peers.get(collective.kind, [])),
    )
    with tf.init_scope():
        orders.append(marks.order(name, numbers, values.dtype))
    if count == 1:  # XLA removes sorts of a single value
        values = tf.concat([values, values], 0)
    # XLA sorts constants itself.
    (values,) = gen_xla_ops.xla_optimization_barrier([values])
    (values,) = gen_xla_ops.xla_variadic_sort([values], 0, comparator=name, is_stable=False)
    return values[:count]
