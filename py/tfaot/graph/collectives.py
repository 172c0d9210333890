"""Collectives: ops in which the replicas of a model exchange values. Each becomes the mark of a call of the runtime."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.core.errors import TfaotError
from tfaot.graph.attributes import type_attribute
from tfaot.graph.constants import value_of
from tfaot.graph.edits import replace
from tfaot.graph.functions import EditableFunction
from tfaot.graph.ops import definition, functions_of
from tfaot.graph.program import Program, Tensor
from tfaot.graph.splice import GraphTarget, any_node, operands, splice
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

REPLICAS = "_tfaot_replicas"
"""An attribute of ops that don't say how many replicas there are."""


@dataclasses.dataclass(frozen=True)
class Collective:
    """What a collective computes."""

    kind: marks.Exchange
    replicas: int
    """0 if it is for as many as there are."""
    reduction: marks.Reduction = "Add"
    mean: bool = False
    """Whether the result is divided by the number of replicas."""
    split: int = 0
    """The axis that is cut into a part for each replica."""
    concat: int = 0
    """The axis that joins parts of all replicas."""
    pairs: tuple[tuple[int, int], ...] = ()
    """Of a permutation, who sends, and to whom."""


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


def all_in(program: Program, places: Mapping[str, str] | None = None) -> dict[str, Collective]:
    """Returns the collectives of a graph, whose calls are inlined, by their nodes, in the order of the nodes.

    Args:
      program: the graph; stays unchanged.
      places: `file:line` by node, or `function/node` inside functions, for messages.

    Raises:
      TfaotError: a collective is in a loop or under a condition, or its group isn't known.
    """
    nodes = program.nodes()
    library = {function.signature.name: function for function in program.graph.library.function}
    for node in program.graph.node:
        for inner, function in _reached(node, library):
            raise TfaotError(
                f"{_at(program, inner, places, function)} is in a {'loop' if 'While' in node.op else 'condition'}",
                exists=f"{node.op} {node.name}, with which data could decide how often replicas exchange values; all must do so "
                "equally often, and in the same order",
                do="compute what to exchange inside, and exchange it behind; ask for the rank in front",
            )
    return {
        node.name: _collective(node, nodes, _at(program, node, places)) for node in program.graph.node if node.op in OPS
    }


def _at(
    program: Program, node: node_def_pb2.NodeDef, places: Mapping[str, str] | None = None, function: str = ""
) -> str:
    """Returns how messages show a node, which can be in a function."""
    name = f"{function}/{node.name}" if function else program.origins.get(node.name, node.name)
    place = (places or {}).get(name, "")
    return f"{node.op} {node.name!r}" + (f" at {place}" if place else "")


def _reached(
    node: node_def_pb2.NodeDef, library: Mapping[str, Any], *, seen: frozenset[str] = frozenset()
) -> Iterator[tuple[node_def_pb2.NodeDef, str]]:
    """Yields the collectives in the functions that a node calls, with the function's name."""
    for _, call in functions_of(node):
        if call.name in library and call.name not in seen:
            for inner in library[call.name].node_def:
                if inner.op in OPS:
                    yield inner, call.name
                yield from _reached(inner, library, seen=seen | {call.name})


def _collective(node: node_def_pb2.NodeDef, nodes: Mapping[str, node_def_pb2.NodeDef], shown: str) -> Collective:
    """Reads a collective, which messages call `shown`."""
    op = _OPS[node.op]
    name = node.attr[op.reduction].s.decode().lower() if op.reduction else "add"
    replicas = _replicas(node, op, nodes)
    if replicas is None or name not in _REDUCTIONS:
        raise TfaotError(
            f"{shown} has {'a group that is known only at run time' if replicas is None else f'the reduction {name!r}'}",
            exists="Add, Mul, Min, Max, and Mean over one group of all replicas, whose size is constant, can be compiled",
            do="exchange values of all replicas, with a constant group_size or group_assignment",
        )
    made = Collective(op.kind, replicas, _REDUCTIONS[name], name == "mean" or node.attr["final_op"].s == b"Div")  # type: ignore[arg-type]
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


def _replicas(node: node_def_pb2.NodeDef, op: _Op, nodes: Mapping[str, node_def_pb2.NodeDef]) -> int | None:
    """Returns the size of a collective's only group, or None if it isn't known."""
    if op.group is None or isinstance(op.group, str):
        return int(node.attr[op.group or REPLICAS].i)
    group = value_of(nodes, operands(node)[op.group])
    if group is None:
        return None
    defined = definition(node.op)
    assert defined is not None
    if defined.input_arg[op.group].name == "group_size":
        return int(group) if group.size == 1 else None
    return int(group.shape[1]) if group.ndim == 2 and group.shape[0] == 1 else None


def for_xla(program: Program) -> int:
    """Rewrites all collectives of a graph, whose calls are inlined, and returns how many there were.

    Raises:
      TfaotError: a collective is in a loop or under a condition, or its group or size isn't known.
    """
    import tensorflow as tf

    if not any_in(program.graph):
        return 0
    collectives = all_in(program)
    orders: list[Any] = []
    waiting = dict(collectives)
    while waiting:
        # What depends on a collective can have a shape that only its rewrite says.
        tensors, nodes = program.tensors(), program.nodes()
        shapes = {name: [tensors[operand] for operand in operands(nodes[name])[:1]] for name in waiting}
        ready = [name for name, data in shapes.items() if all(_fixed(value) for value in data)]
        if not ready:
            name, (value,) = next(iter(shapes.items()))
            raise TfaotError(
                f"{_at(program, nodes[name])} has a size that is known only at run time",
                exists=f"an operand of shape {list(value.shape) if value.shape is not None else 'of unknown rank'}",
                do="give the model fixed sizes",
            )
        for name in ready:
            node = nodes[name]
            waits = [operand for operand in node.input if operand.startswith("^")]
            node.input[:] = [*operands(node)[:1], *waits]
            specs = [tf.TensorSpec(value.shape, value.dtype) for value in shapes[name]]
            splice(GraphTarget(program), node, specs, _built(waiting.pop(name), orders))
    program.graph.library.function.extend(orders)
    return len(collectives)


def _fixed(value: Tensor) -> bool:
    return value.shape is not None and None not in value.shape


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
    numbers = (
        marks.COLLECTIVE,
        number,
        marks.EXCHANGES.index(collective.kind),
        marks.REDUCTIONS.index(collective.reduction),
        collective.replicas,
        int(count == 1),
        *(peer + 1 for peer in peers.get(collective.kind, ())),
    )
    with tf.init_scope():
        orders.append(marks.order(name, numbers, values.dtype))
    if count == 1:  # XLA removes sorts of a single value
        values = tf.concat([values, values], 0)
    # XLA sorts constants itself.
    (values,) = gen_xla_ops.xla_optimization_barrier([values])
    (values,) = gen_xla_ops.xla_variadic_sort([values], 0, comparator=name, is_stable=False)
    return values[:count]
