"""Loops and branches of TensorFlow 2 that don't compile whole, as TensorFlow 1's: their bodies are cut, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.grappler import tf_optimizer

FUNCTIONAL = frozenset({"Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"})
"""Ops whose bodies are functions."""

_LOWER = "_lower_using_switch_merge"
"""The attribute of ops that TensorFlow replaces with Switch, Merge, Enter, and Exit before it runs them."""


def lowered(graph: graph_pb2.GraphDef, names: Collection[str], edges: Iterable[str]) -> graph_pb2.GraphDef:
    """Replaces loops and branches with the ops of TensorFlow 1, as TensorFlow itself does it.

    Args:
      graph: all calls are inlined.
      names: the loops and branches. Others stay.
      edges: nodes of inputs and outputs, which stay.
    """
    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(graph)
    for node in meta.graph_def.node:
        if node.op in FUNCTIONAL:
            node.attr[_LOWER].b = node.name in names
    for function in meta.graph_def.library.function:
        for node in function.node_def:
            if node.op in FUNCTIONAL:
                node.attr[_LOWER].b = False
    meta.collection_def["train_op"].node_list.value.extend(sorted({*edges}))
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    rewrite.optimizers.append("function")
    result: graph_pb2.GraphDef = tf_optimizer.OptimizeGraph(config, meta)
    return result
