"""Finds out how many replicas run a model together."""

from __future__ import annotations

from collections.abc import Mapping

from tensorflow.core.framework import graph_pb2

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import Manifest
from tfaot.graph import collectives
from tfaot.graph.calls import inlined


def count(
    graph: graph_pb2.GraphDef, manifest: Manifest, places: Mapping[str, str], what: str, *, wanted: int = 0
) -> int:
    """Returns how many replicas the collectives of a graph are for; 1 if there are none.

    Args:
      graph: the graph of all entry points.
      manifest: what is known of the model.
      places: `file:line` by node, or `function/node` inside functions.
      what: names the model's file, for messages.
      wanted: the number that the target says; 0 if it says none.

    Raises:
      TfaotError: replicas could exchange values in different orders, or collectives are for another number of replicas.
    """
    number = _count(graph, manifest, places, what, wanted)
    if wanted > 1 and number != wanted:
        raise TfaotError(
            f"{what}: {caller.setting('replicas', wanted)}, but the model exchanges values of {number}",
            exists="collectives outside of a strategy" if number > 1 else "nothing that exchanges values of replicas",
            do="use a tf.distribute strategy or jax.shard_map, as docs/guide/distributed.md shows, or remove "
            f"{caller.option('replicas')}",
        )
    collectives.settle(graph, number)
    return number


def _count(graph: graph_pb2.GraphDef, manifest: Manifest, places: Mapping[str, str], what: str, wanted: int) -> int:
    if not collectives.any_in(graph):
        return 1
    entries = manifest.entry_points
    program = inlined(
        graph,
        (name for entry in entries for name in entry.feeds),
        (name for entry in entries for name in entry.fetches),
    )
    try:
        made = collectives.all_in(program, places)
    except TfaotError as error:
        raise TfaotError(f"{what}: {error.asked}", exists=error.exists, do=error.do) from None
    sizes = {collective.all_replicas for collective in made.values()} - {0}
    if len(sizes - {1}) > 1:
        raise TfaotError(
            f"{what}: the model exchanges values of different numbers of replicas",
            exists=listed([str(size) for size in sorted(sizes)]),
            do="exchange values of all replicas everywhere. For those of a part, use the ops of "
            "tensorflow.compiler.tf2xla.ops.gen_xla_ops, such as xla_all_reduce, with a group_assignment that has all ranks",
        )
    unknown = [name for (_, name), collective in made.items() if not collective.replicas]
    replicas = max(sizes, default=max(wanted, 1) if unknown else 1)
    if unknown and replicas == 1 and not wanted:
        raise TfaotError(
            f"{what}: {listed(unknown)} is for several replicas, but nothing says how many there are",
            exists="one replica",
            do=f"say it: {caller.setting('replicas', 4)}",
        )
    if replicas > 1 and manifest.max_batch:
        raise TfaotError(
            f"{what}: the model is for {replicas} replicas, but has batch sizes",
            exists="a run in parts would exchange values as often as it has parts",
            do=f"fix the batch with {caller.option('dims')}, without {caller.option('batch_sizes')}",
        )
    if replicas > 1 and any(entry.sizes for entry in entries):
        raise TfaotError(
            f"{what}: the model is for {replicas} replicas, but has {caller.option('sizes')}",
            exists="replicas with other sizes would run other code, and their exchanges could differ",
            do=f"fix each size with a number in {caller.option('dims')}, without {caller.option('sizes')}",
        )
    if replicas > 1 and manifest.weights.names:
        raise TfaotError(
            f"{what}: the model is for {replicas} replicas, but has rounded weights",
            exists=f"weights in {manifest.weights.rounded_to}",
            do="leave the weights' dtype as it is",
        )
    return replicas
