"""Joins all replicas of a model in one graph, so that TensorFlow runs them in one session, and collectives are plain ops in it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.core.errors import TfaotError
from tfaot.core.manifest import EntryPoint, Manifest, Tensor, Use
from tfaot.graph import collectives
from tfaot.graph.calls import inlined
from tfaot.graph.program import Program
from tfaot.graph.splice import GraphTarget, operands, splice
from tfaot.verify.digest import Array

MOST = 8
"""The most replicas that a test runs at the same time."""

_T = TypeVar("_T", bound=Tensor)
_OPS = {"Add": tf.add, "Mul": tf.multiply, "Min": tf.minimum, "Max": tf.maximum}


def check(manifest: Manifest) -> None:
    """Checks that there aren't too many replicas for a test.

    Raises:
      TfaotError: there are.
    """
    if manifest.replicas > MOST:
        raise TfaotError(
            f"{manifest.cpp_class}: a test of {manifest.replicas} replicas",
            exists=f"the generated test runs all replicas as threads, up to {MOST}",
            do="test the same model with fewer replicas, in a target of its own",
        )


def joined(manifest: Manifest, graph: graph_pb2.GraphDef) -> tuple[Manifest, graph_pb2.GraphDef]:
    """Returns the manifest and the graph of all replicas together: each has its own inputs, outputs, and variables."""
    entries = manifest.entry_points
    program = inlined(
        graph,
        (name for entry in entries for name in entry.feeds),
        (name for entry in entries for name in entry.fetches),
    )
    exchanges = collectives.all_in(program)
    result = Program(graph_pb2.GraphDef(versions=graph.versions, library=graph.library), {}, ())
    for rank in range(manifest.replicas):
        for node in program.graph.node:
            if node.name in exchanges:
                _exchange(result, node, exchanges[node.name], rank)
            else:
                _copy(result.graph, node, rank)
    replaced = dataclasses.replace(
        manifest,
        entry_points=tuple(_entry(entry, manifest) for entry in entries),
        variables=tuple(_of(variable, rank) for rank in range(manifest.replicas) for variable in manifest.variables),
        replicas=1,
    )
    return replaced, result.graph


def joined_values(manifest: Manifest, initial: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the initial values of all replicas' variables, which are the same."""
    return {prefixed(name, rank): value for rank in range(manifest.replicas) for name, value in initial.items()}


def joined_inputs(stored: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the user's inputs with the names of the joined manifest, given those with the names of the export stage."""
    result: dict[str, Array] = {}
    for name, value in stored.items():
        step, _, own = name.partition("/")
        tensor, _, rank = own.partition("/replica")
        result[f"{step}/{shown(tensor, int(rank or 0))}"] = value
    return result


def patterns(unseen: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the target's patterns of names, for those of the joined manifest."""
    return tuple(pattern for name in unseen for pattern in (f"replica*/{name}", shown(name, "?")))


def prefixed(name: str, rank: int) -> str:
    """Returns the name of a replica's node or variable."""
    return f"replica{rank}/{name}"


def shown(name: str, rank: int | str) -> str:
    """Returns how messages show a replica's tensor, given its C++ name."""
    return f"{name} (replica {rank})"


def _of(tensor: _T, rank: int) -> _T:
    return dataclasses.replace(tensor, name=prefixed(tensor.name, rank), cpp_name=shown(tensor.cpp_name, rank))


def _entry(entry: EntryPoint, manifest: Manifest) -> EntryPoint:
    ranks = range(manifest.replicas)
    return dataclasses.replace(
        entry,
        inputs=tuple(_of(tensor, rank) for rank in ranks for tensor in entry.inputs),
        outputs=tuple(
            dataclasses.replace(_of(tensor, rank), size=prefixed(tensor.size, rank) if tensor.size else "")
            for rank in ranks
            for tensor in entry.outputs
        ),
        variables=tuple(
            Use(rank * len(manifest.variables) + use.variable, use.written) for rank in ranks for use in entry.variables
        ),
    )


def _copy(graph: graph_pb2.GraphDef, node: node_def_pb2.NodeDef, rank: int) -> None:
    """Adds a replica's copy of a node."""
    copy = graph.node.add()
    copy.CopyFrom(node)
    copy.name = prefixed(node.name, rank)
    copy.input[:] = [_operand(name, rank) for name in node.input]
    copy.attr.pop("_class", None)  # names other nodes
    if node.op == "VarHandleOp":
        copy.attr["shared_name"].s = prefixed(node.attr["shared_name"].s.decode(), rank).encode()


def _operand(name: str, rank: int) -> str:
    return f"^{prefixed(name[1:], rank)}" if name.startswith("^") else prefixed(name, rank)


def _exchange(program: Program, node: node_def_pb2.NodeDef, collective: collectives.Collective, rank: int) -> None:
    """Adds what a replica gets from a collective."""
    dtype = node.attr["T"].type
    alone = collective.replicas == 1
    own = [
        _operand(operand, other)
        for operand in operands(node)[: collective.kind != "rank"]
        for other in ([rank] if alone else range(collective.replicas))
    ]
    waits = [_operand(operand, rank) for operand in node.input if operand.startswith("^")]
    added = program.graph.node.add(name=prefixed(node.name, rank), input=[*own, *waits])
    specs = [tf.TensorSpec(None, dtype) for _ in own]
    splice(GraphTarget(program), added, specs, lambda *values: _result(collective, values, 0 if alone else rank))


def _result(collective: collectives.Collective, values: Sequence[Any], rank: int) -> Any:
    """Returns what the replica of a rank gets from the values of all."""

    def part(value: Any) -> Any:
        return tf.split(value, len(values), collective.split)[rank]

    match collective.kind:
        case "all_gather":
            return tf.concat(values, 0)
        case "all_to_all":
            return tf.concat([part(value) for value in values], collective.concat)
        case "broadcast":
            return tf.identity(values[0])
        case "permute":
            sources = {target: source for source, target in collective.pairs}
            return tf.identity(values[sources[rank]]) if rank in sources else tf.zeros_like(values[rank])
        case "rank":
            return tf.constant(rank)
    # In the order of ranks.
    total = functools.reduce(_OPS[collective.reduction], values)
    total = total / tf.cast(collective.replicas, total.dtype) if collective.mean else total
    return tf.split(total, len(values), collective.split)[rank] if collective.kind == "reduce_scatter" else total
