"""Checks for tensor lists that grow. TensorFlow's lists can; XLA's keep their initial size. Pure.

Compiled code silently loses what is written beyond that size.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorflow.core.framework import graph_pb2

from tfaot.core import knowledge
from tfaot.core.errors import TfaotError


def check(graph: graph_pb2.GraphDef, sources: Mapping[str, str], what: str) -> None:
    """Refuses writes that may make a list larger.

    Args:
      graph: a pruned graph.
      sources: `file:line` by node name, or `function/node` inside functions.
      what: names the model or its file, for messages.

    Raises:
      TfaotError: there are such writes. The error lists them.
    """
    bodies = [("", graph.node), *((f"{f.signature.name}/", f.node_def) for f in graph.library.function)]
    key = "resize_if_index_out_of_bounds"
    # Check before reading: reading a missing attribute would create one without a value, which the compiler refuses.
    growing = [
        prefix + node.name
        for prefix, nodes in bodies
        for node in nodes
        if node.op == "TensorListSetItem" and key in node.attr and node.attr[key].b
    ]
    if not growing:
        return
    shown = [f"{name!r} at {sources[name]}" if name in sources else repr(name) for name in growing]
    raise TfaotError(
        f"{what}: {len(growing)} write(s) can make a TensorArray grow, which compiled code doesn't support",
        details="\n".join(shown),
        do="; ".join(dict.fromkeys(map(knowledge.fixed_list, growing))),
    )
