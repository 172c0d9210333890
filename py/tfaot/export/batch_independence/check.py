"""Checks that the rows of a batch are independent: row i of every result depends on row i of the inputs, and on nothing else.

A class with `batch_sizes` splits a batch into parts and pads the last one. This gives TensorFlow's results only if the
model computes each row by itself, regardless of its position and of the number of rows. This module decides that by
analysis, not by sampling.

It analyzes the HLO to which XLA lowers the graph. HLO has few operations with exact meanings, and all its shapes and
shape arithmetic are plain numbers. The graph is lowered twice, for batches of `SIZES` rows. The differences show what
depends on the batch size: a dimension of 2 and 1009 is the batch, one of 6 and 3027 has three elements per row, and a
constant that differs counts rows. One walk visits both programs together and gives each value a `Kind`. An operation
that may let rows affect each other gives `MIXED`, which records the operation. So does an operation without a rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot.core import caller, manifest
from tfaot.core.errors import TfaotError, listed
from tfaot.export.batch_independence.hlo import SIZES
from tfaot.export.batch_independence.walk import mixed_results
from tfaot.graph import linear, lowering
from tfaot.graph.calls import inline_calls
from tfaot.graph.names import tensor_name
from tfaot.graph.program import Program, Tensor
from tfaot.graph.splice import any_node


def check(
    graph: graph_pb2.GraphDef,
    entry: manifest.EntryPoint,
    variables: Sequence[manifest.Variable],
    *,
    what: str,
    sources: Mapping[str, str],
) -> None:
    """Checks that an entry point with `batch_sizes` computes each row by itself.

    Args:
      graph: the whole graph. Its placeholders leave the batch size open.
      entry: an entry point with `batch_sizes`.
      variables: the manifest's variables.
      what: names the model, for messages.
      sources: `file:line` by node, for messages.

    Raises:
      TfaotError: the analysis can't show it.
    """
    modules = _lowered(graph, entry, variables, what)
    causes = mixed_results(modules[0], modules[1], [tensor.batched for tensor in entry.inputs])
    wrong = [cause for cause in causes if cause]
    if not wrong:
        return
    first = min(wrong, key=lambda cause: cause.order)
    decided = [output.cpp_name for output, cause in zip(entry.outputs, causes, strict=True) if cause == first]
    raise TfaotError(
        f"{what}: the rules can't show that {entry.name} computes each row of a batch independently",
        details=f"{first.op} {_located(first.node, sources)}{first.why}",
        exists=f"{caller.setting('batch_sizes', entry.batch_sizes)}: a batch runs in parts, with padding; that op affects "
        + listed(decided),
        do="compute each row independently, with batch norm in inference mode and no sums over the batch; or remove "
        f"{caller.option('batch_sizes')}; or, if no row affects another row's results, declare it: {_declared()}",
    )


def _declared() -> str:
    return caller.setting("rows_independent", True)


def _with_marks(
    graph: graph_pb2.GraphDef, inputs: Sequence[lowering.Argument], fetches: Sequence[str]
) -> graph_pb2.GraphDef:
    """Returns a graph whose linear algebra is marks, which keep rows apart. XLA has loops for a part of it."""
    if not any_node(graph, linear.OPS.__contains__):
        return graph
    feeds = {feed.name: Tensor(tuple(feed.shape), tf.as_dtype(feed.dtype).as_datatype_enum) for feed in inputs}
    program = Program(graph_pb2.GraphDef(), feeds, fetches)
    program.graph.CopyFrom(graph)
    inline_calls(program)
    linear.for_xla(program)
    return program.graph


def _lowered(
    graph: graph_pb2.GraphDef, entry: manifest.EntryPoint, variables: Sequence[manifest.Variable], what: str
) -> list[Any]:
    """Lowers an entry point to an HloModuleProto for each of `SIZES`."""
    from tensorflow.compiler.xla.service import hlo_pb2
    from tensorflow.python.eager import context

    nodes = {node.name: node for node in graph.node}
    modules = []
    try:
        for rows in SIZES:
            inputs = []
            for tensor in entry.inputs:
                attr = nodes[tensor_name(tensor.name)[0]].attr
                sizes = [dim.size for dim in attr["shape"].shape.dim]
                inputs.append(
                    lowering.Argument(
                        tensor.name, attr["dtype"].type, tuple([rows, *sizes[1:]] if tensor.batched else sizes)
                    )
                )
            held = [lowering.Argument(variable.name, variable.dtype, variable.shape) for variable in variables]
            names = [output.name for output in entry.outputs]
            with context.eager_mode():  # which models of TensorFlow 1 switch off
                lowered = lowering.lower(
                    _with_marks(graph, inputs, names), inputs, held, names, stage="hlo_serialized", for_shapes=True
                )
            modules.append(hlo_pb2.HloModuleProto.FromString(lowered))
    except Exception as error:  # its types say nothing, so use its text
        raise TfaotError(
            f"{what}: the rules can't analyze {entry.name} for batches",
            details=str(error).partition("\nStack trace")[0],
            exists=f"{caller.setting('batch_sizes', entry.batch_sizes)}; "
            "the compiler accepts the model only for other sizes, or not at all",
            do=f"fix what it names; or, if no row affects another row's results, declare it: {_declared()}",
        ) from None
    return modules


def _located(node: str, sources: Mapping[str, str]) -> str:
    """Returns the node's name and source line, as far as they are known, followed by a space."""
    if not node:
        return ""
    parts = node.split("/")
    for start in range(len(parts)):
        tail = "/".join(parts[start:])
        places = {place for name, place in sources.items() if name == tail or name.endswith("/" + tail)}
        if node in sources:
            places = {sources[node]}
        if places:
            return f"{node!r} at {' or '.join(sorted(places))} "
    return f"{node!r} "
