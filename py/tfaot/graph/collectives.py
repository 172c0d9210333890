"""Collectives: ops in which the replicas of a model exchange values. Each becomes the mark of a call of the runtime."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.core.errors import TfaotError
from tfaot.graph.constants import value_of
from tfaot.graph.ops import functions_of
from tfaot.graph.program import Program
from tfaot.graph.splice import GraphTarget, any_node, operands, splice
from tfaot.xla import marks

OPS = frozenset({"CollectiveReduce", "CollectiveReduceV2", "CollectiveReduceV3", "NcclAllReduce", "XlaAllReduce"})
"""Sums, and other reductions, over all replicas, of which each one gets the result."""

GROUPS = frozenset({"CollectiveAssignGroupV2", "CollectiveInitializeCommunicator"})
"""Ops that say who takes part, of which collectives need only the number."""

_REDUCTIONS = {"add": "Add", "sum": "Add", "mul": "Mul", "prod": "Mul", "min": "Min", "max": "Max", "mean": "Add"}
"""By the lowercase name in an attribute."""


@dataclasses.dataclass(frozen=True)
class Collective:
    """What a collective computes."""

    reduction: marks.Reduction
    mean: bool
    """Whether the result is divided by the number of replicas."""
    replicas: int


def any_in(graph: graph_pb2.GraphDef) -> bool:
    """Returns whether a graph has collectives, also in functions."""
    return any_node(graph, OPS.__contains__)


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
                exists=f"{node.op} {node.name}, with which data could decide how often a replica reduces; all must do so equally "
                "often, and in the same order",
                do="compute what to reduce inside, and reduce it behind",
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
    names = {"CollectiveReduceV3": "reduction", "NcclAllReduce": "reduction", "XlaAllReduce": "reduce_op"}
    name = node.attr[names.get(node.op, "merge_op")].s.decode().lower()
    mean = name == "mean" or node.attr["final_op"].s == b"Div"
    replicas = _replicas(node, nodes)
    if replicas is None or name not in _REDUCTIONS:
        raise TfaotError(
            f"{shown} has {f'the reduction {name!r}' if replicas else 'a group that is known only at run time'}",
            exists="Add, Mul, Min, Max, and Mean over one group of all replicas, whose size is constant, can be compiled",
            do="reduce over all replicas, with a constant group_size or group_assignment",
        )
    return Collective(_REDUCTIONS[name], mean, replicas)  # type: ignore[arg-type]


def _replicas(node: node_def_pb2.NodeDef, nodes: Mapping[str, node_def_pb2.NodeDef]) -> int | None:
    """Returns the size of a collective's only group."""
    if node.op == "NcclAllReduce":
        return int(node.attr["num_devices"].i)
    if node.op == "CollectiveReduce":
        return int(node.attr["group_size"].i)
    group = value_of(nodes, operands(node)[2 if node.op == "CollectiveReduceV3" else 1])
    if group is None:
        return None
    if node.op == "CollectiveReduceV2":
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
    tensors = program.tensors()
    nodes = program.nodes()
    orders: list[Any] = []
    for name, collective in collectives.items():
        node = nodes[name]
        data = tensors[operands(node)[0]]
        if data.shape is None or None in data.shape:
            raise TfaotError(
                f"{_at(program, node)} has a size that is known only at run time",
                exists=f"an operand of shape {list(data.shape) if data.shape is not None else 'of unknown rank'}",
                do="give the model fixed sizes",
            )
        node.input[:] = [node.input[0], *(operand for operand in node.input if operand.startswith("^"))]
        splice(
            GraphTarget(program), node, [tf.TensorSpec(data.shape, data.dtype)], _built(collective, len(orders), orders)
        )
    program.graph.library.function.extend(order for order in orders if order is not None)
    return len(collectives)


def _built(collective: Collective, number: int, orders: list[Any]) -> Callable[[Any], Any]:
    """Returns a function that returns a collective's result, and adds the order of its mark to `orders`."""
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    def build(x: Any) -> Any:
        count = math.prod(x.shape)
        if collective.replicas == 1 or count == 0:
            orders.append(None)
            return tf.identity(x)
        name = f"tfaot_collective_{number}"
        numbers = (
            marks.COLLECTIVE,
            number,
            marks.REDUCTIONS.index(collective.reduction),
            collective.replicas,
            int(count == 1),
        )
        with tf.init_scope():
            orders.append(marks.order(name, numbers, x.dtype))
        values = tf.reshape(x, [-1])
        if count == 1:  # XLA removes sorts of a single value
            values = tf.concat([values, values], 0)
        # XLA sorts constants itself.
        (values,) = gen_xla_ops.xla_optimization_barrier([values])
        (values,) = gen_xla_ops.xla_variadic_sort([values], 0, comparator=name, is_stable=False)
        result = tf.reshape(values[:count], x.shape)
        return result / tf.cast(collective.replicas, x.dtype) if collective.mean else result

    return build
