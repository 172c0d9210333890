"""Functions with several implementations, of which TensorFlow chooses one when it runs, put into their caller.

tf-keras writes the LSTM and GRU layers so: a plain one and one for cuDNN implement the same interface, and are called.
The gradient of such a call takes shapes that cross the call's edge, which XLA wants to know when it compiles; inside one
graph it does.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.grappler import tf_optimizer

_INTERFACE = "api_implements"
"""The attribute of a function that names the interface that it implements."""


def inlined(graph: graph_pb2.GraphDef, edges: Iterable[str]) -> graph_pb2.GraphDef:
    """Inlines all calls if some function implements an interface; else returns the graph as it is.

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
