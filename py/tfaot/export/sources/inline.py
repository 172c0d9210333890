"""Inlines functions that have several implementations, among which TensorFlow chooses at run time.

tf-keras writes the LSTM and GRU layers this way: a plain implementation and one for cuDNN share an interface, and are called.
The gradient of such a call needs shapes that cross the call's boundary. XLA must know them at compile time, and does so only
within a single graph.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.core.framework import graph_pb2

from tfaot.graph.grappler import without_functions

_INTERFACE = "api_implements"
"""The attribute that names the interface that a function implements."""


def inlined(graph: graph_pb2.GraphDef, edges: Iterable[str]) -> graph_pb2.GraphDef:
    """Inlines all calls if any function implements an interface. Otherwise, returns the graph as it is.

    Args:
      graph: not pruned.
      edges: nodes of inputs and outputs, which stay.
    """
    if not any(_INTERFACE in function.attr for function in graph.library.function):
        return graph
    without = graph_pb2.GraphDef()
    without.CopyFrom(graph)
    for function in without.library.function:
        function.attr.pop(_INTERFACE, None)
        function.attr.pop("api_preferred_device", None)
    return without_functions(without, edges)
