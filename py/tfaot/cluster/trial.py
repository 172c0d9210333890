"""What the compiler itself says about clusters, where the registry of kernels isn't enough."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from tfaot.cluster.cut import Part
from tfaot.graph import lowering

_FIRST = 300
"""How much of the compiler's text the plan keeps."""


def refused(part: Part) -> Mapping[str, str]:
    """Returns the nodes of a cluster that XLA refuses, with its words: those that it names, or else all.

    Lowering takes a fraction of a second. It doesn't generate code.
    """
    from tensorflow.python.eager import context

    inputs = [
        lowering.Argument(edge.name, edge.dtype, tuple(size or 0 for size in edge.shape or ()))
        for edge in part.function.inputs
    ]
    outputs = [edge.name for edge in part.function.outputs]
    try:
        with context.eager_mode():
            lowering.lower(part.function.graph, inputs, [], outputs, stage="hlo_serialized", for_shapes=True)
    except Exception as error:  # its types say nothing, so use its text
        return blamed(str(error), part.cluster.nodes)
    return {}


def blamed(message: str, nodes: Collection[str]) -> Mapping[str, str]:
    """Returns the nodes of a cluster that an error of XLA names, or else all, with its first lines."""
    text = " ".join(message.partition("\n\nStack trace")[0].split())[:_FIRST]
    named = set(re.findall(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*", message))
    found = [name for name in nodes if name in named] or list(nodes)
    return dict.fromkeys(found, f"XLA refuses it: {text}")
