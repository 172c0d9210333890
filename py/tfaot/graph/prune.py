"""Reduces a graph to what its fetches need. Pure, and linear in the number of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.names import producer
from tfaot.graph.ops import called


def reached(nodes: Mapping[str, node_def_pb2.NodeDef], names: Iterable[str], ends: Iterable[str] = ()) -> set[str]:
    """Returns the names of everything that some nodes depend on, including themselves and the nodes that they wait for.

    Args:
      nodes: the nodes of a graph or function, by name.
      names: where to start.
      ends: nodes that the result contains in any case, and whose inputs aren't followed.

    Returns:
      Names, including those of arguments and of nonexistent nodes.
    """
    reachable = set(ends)
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in reachable:
            reachable.add(name)
            if name in nodes:
                pending += [producer(operand) for operand in nodes[name].input]
    return reachable


def prune(graph: graph_pb2.GraphDef, fetches: Iterable[str], feeds: Iterable[str] = ()) -> graph_pb2.GraphDef:
    """Keeps what the fetches need, in the graph's own order, and the functions that it calls.

    Args:
      graph: the whole graph.
      fetches: node names.
      feeds: names of nodes whose inputs aren't followed. The nodes themselves stay even if nothing reads them.

    Returns:
      A new GraphDef, without device and colocation hints, which mean nothing to a compiler.

    Raises:
      KeyError: a node that is needed isn't in the graph.
    """
    feeds = set(feeds)
    nodes = {node.name: node for node in graph.node}
    needed = reached(nodes, fetches, feeds)
    if missing := needed - nodes.keys() - feeds:
        raise KeyError(min(missing))
    result = graph_pb2.GraphDef(versions=graph.versions)
    kept = [node for node in graph.node if node.name in needed]
    result.node.extend(kept)
    _drop_hints(result.node)

    library = {function.signature.name: function for function in graph.library.function}
    gradients = {gradient.function_name: gradient for gradient in graph.library.gradient}
    reachable: set[str] = set()
    pending = [name for node in kept for name in called(node)]
    while pending:
        name = pending.pop()
        if name in reachable or name not in library:
            continue
        reachable.add(name)
        for node in library[name].node_def:
            pending += called(node)
        if name in gradients:
            pending.append(gradients[name].gradient_func)
    result.library.function.extend(f for f in graph.library.function if f.signature.name in reachable)
    result.library.gradient.extend(g for g in graph.library.gradient if g.function_name in reachable)
    for function in result.library.function:
        _drop_hints(function.node_def)
    return result


def _drop_hints(nodes: Any) -> None:
    for node in nodes:
        node.ClearField("device")
        node.attr.pop("_class", None)
        node.ClearField("experimental_debug_info")
