"""What TensorFlow's own optimizer, Grappler, does to functions before it runs a graph."""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.grappler import tf_optimizer


def without_functions(graph: graph_pb2.GraphDef, edges: Iterable[str]) -> graph_pb2.GraphDef:
    """Inlines all calls, and replaces loops and branches that ask for it with the ops of TensorFlow 1.

    Args:
      graph: not pruned.
      edges: nodes of inputs and outputs, which stay.
    """
    meta = meta_graph_pb2.MetaGraphDef(graph_def=graph)
    meta.collection_def["train_op"].node_list.value.extend(edges)
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.optimizers.append("function")
    rewrite.function_optimization = rewriter_config_pb2.RewriterConfig.AGGRESSIVE
    result: graph_pb2.GraphDef = tf_optimizer.OptimizeGraph(config, meta)
    return result
