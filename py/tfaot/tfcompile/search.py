"""Finds the node of a graph that the compiler dies of, by compiling smaller and smaller parts of it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.graph.names import tensor_name
from tfaot.graph.ops import definition, results
from tfaot.graph.prune import prune
from tfaot.graph.variables import variable_uses

_OPAQUE = frozenset({types_pb2.DT_RESOURCE, types_pb2.DT_STRING, types_pb2.DT_VARIANT})
"""Dtypes of tensors that can't be fetched."""

_DONE = "tfaot_done"


@dataclasses.dataclass(frozen=True)
class Found:
    """The result of the search."""

    node: str
    """The first node with which the compiler dies, in an order in which each node comes after its operands."""
    others: tuple[str, ...]
    """Nodes before it that may also be the cause: those that can't be tried separately, and more if time ran out."""
    tries: int


def find(
    graph: graph_pb2.GraphDef,
    config: Any,
    dies: Callable[[graph_pb2.GraphDef, Any], bool],
    *,
    tries: int = 24,
    seconds: float = 300,
) -> Found | None:
    """Searches by halves for the shortest beginning of a graph that the compiler dies of.

    Args:
      graph: the graph of one entry point, which the compiler dies of.
      config: the entry point's `tf2xla.Config`.
      dies: returns whether the compiler dies of a graph with a config. A graph that it refuses doesn't count.
      tries: how often `dies` may be called.
      seconds: after this time, `dies` isn't called again.

    Returns:
      None if no part was found to be at fault: the compiler survives the second time, or dies without any node.
    """
    end = time.monotonic() + seconds
    feeds = {feed.id.node_name for feed in config.feed}
    order = _ordered(prune(graph, [fetch.id.node_name for fetch in config.fetch], feeds), feeds)
    # A beginning is worth a try if it ends in something that can be fetched, or in an effect.
    steps = [0] + [count for count in range(1, len(order) + 1) if _visible(order[count - 1])]
    asked = 0

    def beginning_dies(step: int) -> bool:
        nonlocal asked
        asked += 1
        return dies(*_beginning(graph, config, order[: steps[step]]))

    low, high = 0, len(steps) - 1
    if high == 0 or not beginning_dies(high) or beginning_dies(low):
        return None
    while high - low > 1 and asked < tries and time.monotonic() < end:
        middle = (low + high) // 2
        low, high = (low, middle) if beginning_dies(middle) else (middle, high)
    suspects = order[steps[low] : steps[high]]
    return Found(suspects[-1].name, tuple(node.name for node in suspects[:-1]), asked)


def _ordered(graph: graph_pb2.GraphDef, feeds: Collection[str]) -> list[node_def_pb2.NodeDef]:
    """Returns the nodes that compute something, each after its operands, without fed nodes and handles of variables."""
    nodes = {node.name: node for node in graph.node}
    done: set[str] = set()
    order = []
    for start in graph.node:
        stack = [(start.name, False)]
        while stack:
            name, ready = stack.pop()
            if ready:
                order.append(nodes[name])
            elif name not in done:
                done.add(name)
                stack.append((name, True))
                if name not in feeds:
                    stack += [(tensor_name(operand)[0], False) for operand in nodes[name].input]
    return [node for node in order if node.name not in feeds and node.op != "VarHandleOp"]


def _visible(node: node_def_pb2.NodeDef) -> bool:
    dtypes = _dtypes(node)
    return not dtypes or any(dtype not in _OPAQUE for dtype in dtypes)


def _dtypes(node: node_def_pb2.NodeDef) -> list[int]:
    """Returns the dtypes of a node's results; an opaque one if TensorFlow doesn't know the op, such as a function."""
    defined = definition(node.op)
    return [types_pb2.DT_RESOURCE] if defined is None else [result.dtype for result in results(node, defined)]


def _beginning(
    graph: graph_pb2.GraphDef, config: Any, order: Sequence[node_def_pb2.NodeDef]
) -> tuple[graph_pb2.GraphDef, Any]:
    """Returns a graph that computes the first nodes, and a config that fetches the results that none of them uses."""
    taken = {operand if ":" in operand else f"{operand}:0" for node in order for operand in node.input}
    fetches = [
        (node.name, port, dtype)
        for node in order
        for port, dtype in enumerate(_dtypes(node))
        if dtype not in _OPAQUE and f"{node.name}:{port}" not in taken
    ]
    part = graph_pb2.GraphDef()
    part.CopyFrom(graph)
    # Gives the config something to fetch even without nodes. It waits for nodes that only have effects.
    done = part.node.add(name=_DONE, op="Const")
    done.attr["dtype"].type = types_pb2.DT_INT32
    done.attr["value"].tensor.dtype = types_pb2.DT_INT32
    done.attr["value"].tensor.tensor_shape.SetInParent()
    done.attr["value"].tensor.int_val.append(0)
    done.input.extend(f"^{node.name}" for node in order if not _dtypes(node))
    fetches.append((_DONE, 0, types_pb2.DT_INT32))

    feeds = {feed.id.node_name for feed in config.feed}
    part = prune(part, [name for name, _, _ in fetches], feeds)
    changed = type(config)()
    changed.feed.extend(config.feed)
    for index, (name, port, dtype) in enumerate(fetches):
        fetch = changed.fetch.add(name=f"fetch{index}", type=dtype)
        fetch.id.node_name, fetch.id.output_index = name, port
        fetch.shape.SetInParent()
    written = {use.shared_name: use.written for use in variable_uses(part)}
    for variable in config.variable:
        if variable.node_name in written:
            changed.variable.add().CopyFrom(variable)
            changed.variable[-1].readonly = not written[variable.node_name]
    return part, changed
