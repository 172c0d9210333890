"""Finds out how many replicas run a model together."""

from __future__ import annotations

from collections.abc import Mapping

from tensorflow.core.framework import graph_pb2

from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import Manifest
from tfaot.graph import collectives
from tfaot.graph.calls import inlined


def count(graph: graph_pb2.GraphDef, manifest: Manifest, places: Mapping[str, str], what: str) -> int:
    """Returns how many replicas the collectives of a graph are for; 1 if there are none.

    Args:
      graph: the graph of all entry points.
      manifest: what is known of the model.
      places: `file:line` by node, or `function/node` inside functions.
      what: names the model's file, for messages.

    Raises:
      TfaotError: replicas could reduce in different orders, or collectives are for different numbers of replicas.
    """
    if not collectives.any_in(graph):
        return 1
    entries = manifest.entry_points
    program = inlined(
        graph,
        (name for entry in entries for name in entry.feeds),
        (name for entry in entries for name in entry.fetches),
    )
    try:
        sizes = {each.replicas for each in collectives.all_in(program, places).values()}
    except TfaotError as error:
        raise TfaotError(f"{what}: {error.asked}", exists=error.exists, do=error.do) from None
    if len(sizes - {1}) > 1:
        raise TfaotError(
            f"{what}: the model reduces over groups of different sizes",
            exists=f"groups of {listed([str(size) for size in sorted(sizes)])}",
            do="reduce over all replicas everywhere",
        )
    replicas = max(sizes, default=1)
    if replicas > 1 and (manifest.max_batch or manifest.weights.names):
        raise TfaotError(
            f"{what}: the model reduces over {replicas} replicas, but has {'batch sizes' if manifest.max_batch else 'rounded weights'}",
            exists="a run in parts would reduce as often as it has parts"
            if manifest.max_batch
            else "weights in another dtype",
            do="fix the batch with dims, without batch_sizes"
            if manifest.max_batch
            else "leave the weights' dtype as it is",
        )
    return replicas
