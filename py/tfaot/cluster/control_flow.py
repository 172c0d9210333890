"""Loops and branches of TensorFlow 2 that don't compile whole, as TensorFlow 1's: their bodies are cut, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tensorflow.core.framework import graph_pb2

from tfaot.graph.grappler import without_functions
from tfaot.graph.ops import CALLS

FUNCTIONAL = frozenset(op for op, call in CALLS.items() if call.functions != ("f",))
"""Loops and branches whose bodies are functions; the other calls have one function, `f`."""

_LOWER = "_lower_using_switch_merge"
"""The attribute of ops that TensorFlow replaces with Switch, Merge, Enter, and Exit before it runs them."""


def lowered(graph: graph_pb2.GraphDef, names: Collection[str], edges: Iterable[str]) -> graph_pb2.GraphDef:
    """Replaces loops and branches with the ops of TensorFlow 1, as TensorFlow itself does it.

    Args:
      graph: all calls are inlined.
      names: the loops and branches. Others stay, as do those in functions.
      edges: nodes of inputs and outputs, which stay.
    """
    marked = graph_pb2.GraphDef()
    marked.CopyFrom(graph)
    inside = (node for function in marked.library.function for node in function.node_def)
    for node, wanted in [*((node, node.name in names) for node in marked.node), *((node, False) for node in inside)]:
        if node.op in FUNCTIONAL:
            node.attr[_LOWER].b = wanted
    return without_functions(marked, sorted({*edges}))
