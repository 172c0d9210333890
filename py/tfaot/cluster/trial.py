"""What the compiler itself says about clusters, where the registry of kernels isn't enough."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from tfaot.cluster.cut import Part
from tfaot.export.batch_independence.hlo import SIZES
from tfaot.export.batch_independence.values import Cause
from tfaot.export.batch_independence.walk import mixed_results
from tfaot.graph import lowering
from tfaot.graph.names import producer, tensor_name

_FIRST = 300
"""How much of the compiler's text the plan keeps."""

_ASIDE = "its rows aren't in the first dimension, which a cluster's edge needs"


def refused(part: Part) -> Mapping[str, str]:
    """Returns the nodes of a cluster that can't be in it, with the reason: what XLA refuses, and what mixes rows of a batch.

    XLA names some of the nodes that it refuses. If it names none, all are refused. Lowering takes a fraction of a second. It
    doesn't generate code.
    """
    if part.cluster.batch and (aside := _aside(part)):
        return aside
    try:
        modules = [_lowered(part, rows) for rows in (SIZES if part.cluster.batch else SIZES[:1])]
    except Exception as error:  # its types say nothing, so use its text
        return blamed(str(error), part.cluster.nodes)
    return _mixing(part, modules) if part.cluster.batch else {}


def _lowered(part: Part, rows: int) -> bytes:
    """Returns the HLO of a cluster, a serialized HloModuleProto, for a number of rows."""
    from tensorflow.python.eager import context

    inputs = [
        lowering.Argument(edge.name, edge.dtype, tuple(rows if size is None else size for size in edge.shape or ()))
        for edge in part.function.inputs
    ]
    outputs = [edge.name for edge in part.function.outputs]
    with context.eager_mode():
        lowered: bytes = lowering.lower(
            part.function.graph, inputs, [], outputs, stage="hlo_serialized", for_shapes=True
        )
    return lowered


def _aside(part: Part) -> dict[str, str]:
    """Returns the nodes at a cluster's edge whose tensors there don't have their rows in the first dimension."""
    if not part.inputs:
        return dict.fromkeys(part.cluster.nodes, "it has rows, and takes none")
    reasons = {}
    for tensor, edge in zip(part.outputs, part.function.outputs, strict=True):
        if not _is_first(part, tensor, edge.shape):
            reasons[producer(tensor)] = _ASIDE if None in (edge.shape or ()) else "it combines the rows of a batch"
    wrong = {
        tensor_name(edge.name)[0]
        for tensor, edge in zip(part.inputs, part.function.inputs, strict=True)
        if None in (edge.shape or ()) and not _is_first(part, tensor, edge.shape)
    }
    inside = set(part.cluster.nodes)
    for node in part.function.graph.node if wrong else ():
        if node.name in inside and any(producer(operand) in wrong for operand in node.input):
            reasons[node.name] = _ASIDE
    return reasons


def _is_first(part: Part, tensor: str, shape: Any) -> bool:
    return bool(shape) and shape[0] is None and part.rows.get(tensor, 0) == 1


def _mixing(part: Part, modules: list[bytes]) -> dict[str, str]:
    """Returns the nodes that may let rows affect each other, which the analysis of batches names, or else the outputs."""
    from tensorflow.compiler.xla.service import hlo_pb2

    first, second = (hlo_pb2.HloModuleProto.FromString(module) for module in modules)
    causes = mixed_results(first, second, [None in (edge.shape or ()) for edge in part.function.inputs])
    return {
        _node(part, cause) or producer(tensor): f"{cause.op} {cause.why} of a batch"
        if cause.why == "combines rows"
        else f"{cause.op} {cause.why}"
        for tensor, cause in zip(part.outputs, causes, strict=True)
        if cause
    }


def _node(part: Part, cause: Cause) -> str:
    """Returns the node of a cluster that a cause names; empty if none fits."""
    fits = [name for name in part.cluster.nodes if cause.node == name or cause.node.endswith(f"/{name}")]
    return max(fits, key=len, default="")


def blamed(message: str, nodes: Collection[str]) -> Mapping[str, str]:
    """Returns the nodes of a cluster that an error of XLA names, or else all, with its first lines."""
    text = " ".join(message.partition("\n\nStack trace")[0].split())[:_FIRST]
    named = set(re.findall(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*", message))
    blamed = [name for name in nodes if name in named] or list(nodes)
    return dict.fromkeys(blamed, f"XLA refuses it: {text}")
