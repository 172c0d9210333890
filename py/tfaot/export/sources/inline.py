"""Inlines functions that have several implementations, among which TensorFlow chooses at run time.

tf-keras writes the LSTM and GRU layers this way: a plain implementation and one for cuDNN share an interface, and are called.
The gradient of such a call needs shapes that cross the call's boundary. XLA must know them at compile time, and does so only
within a single graph.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.grappler import tf_optimizer

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
    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(graph)
    for function in meta.graph_def.library.function:
        function.attr.pop(_INTERFACE, None)
        function.attr.pop("api_preferred_device", None)
    meta.collection_def["train_op"].node_list.value.extend(edges)
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.optimizers.append("function")
    rewrite.function_optimization = rewriter_config_pb2.RewriterConfig.AGGRESSIVE
    result: graph_pb2.GraphDef = tf_optimizer.OptimizeGraph(config, meta)
    return result
