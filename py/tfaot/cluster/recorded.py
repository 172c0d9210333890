"""What a pipeline's test compares: TensorFlow's values of the uncut graph, at each place where the pipeline shows one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2

from tfaot.cluster.candidates import Nodes
from tfaot.cluster.compare import allowed
from tfaot.cluster.host_model import Running, Whole
from tfaot.cluster.pipeline import Pipeline
from tfaot.core import drawn
from tfaot.core.session import session_config
from tfaot.export.traced import Array, Edge
from tfaot.graph.edits import Scope
from tfaot.graph.names import canonical, producer
from tfaot.verify.digest import digest, reals


def record(
    pipeline: Pipeline,
    nodes: Nodes,
    inputs: Sequence[Edge],
    outputs: Sequence[Edge],
    values: Mapping[str, Array],
    steps: Sequence[Sequence[Array]],
) -> dict[str, Array]:
    """Runs the uncut graph in TensorFlow, and returns the test's goldens, in the order in which the test reads them."""
    graph = graph_pb2.GraphDef()
    graph.CopyFrom(nodes.uncut)
    whole = Whole(graph, tuple(inputs), tuple(outputs), values)
    reads = _add_reads(pipeline, nodes, whole)
    running = Running(whole, session_config())
    wanted = [canonical(edge.name) for edge in outputs]
    wanted += list(reads.values())
    wanted += [argument.tensor for host in pipeline.hosts for argument in host.arguments if argument.tensor]
    goldens: dict[str, Array] = {}
    for step, values_of_inputs in enumerate(steps):
        before = running.variables()
        recorded = dict(zip(wanted, running.inside(wanted, values_of_inputs), strict=True))
        recorded |= {canonical(edge.name): value for edge, value in zip(inputs, values_of_inputs, strict=True)}
        after = running.variables()
        prefix = f"step{step}"
        if step:
            for name, _ in pipeline.variables:
                goldens |= _fed(f"{prefix}/before/{name}", before[name])
        for edge, _ in pipeline.inputs:
            goldens |= _fed(f"{prefix}/input/{edge.label}", recorded[canonical(edge.name)])
        for host in pipeline.hosts:
            for argument in host.arguments:
                tensor = argument.tensor or reads[host.name, argument.label]
                name = f"{prefix}/{host.name}/{argument.label}"
                goldens |= _fed(name, recorded[tensor]) if argument.written else dict(_checked(name, recorded[tensor]))
        for edge, _ in pipeline.outputs:
            goldens |= dict(_checked(f"{prefix}/output/{edge.label}", recorded[canonical(edge.name)]))
        for name, _ in pipeline.variables:
            goldens |= dict(_checked(f"{prefix}/after/{name}", after[name]))
    return goldens | {"unverified/size": np.array(0, np.uint64)}


def _add_reads(pipeline: Pipeline, nodes: Nodes, whole: Whole) -> dict[tuple[str, str], str]:
    """Adds reads of variables as callbacks leave them. Returns their tensors, by callback and variable."""
    updates = {write: update for update, made in nodes.updates.items() for write in made.writes}
    by_name = {node.name: node for node in whole.graph.node}
    handles = whole.handles()
    scope = Scope.graph(whole.graph)
    reads = {}
    for host in pipeline.hosts:
        for argument in host.arguments:
            if argument.tensor:
                continue
            read = scope.add(
                f"tfaot/{host.name}/{argument.label}",
                "ReadVariableOp",
                [handles[argument.label]],
                {"dtype": argument.place.tensor.dtype},
            )
            users = [
                name
                for name in host.nodes
                if any(producer(operand) in nodes_of(nodes, argument.label) for operand in by_name[name].input)
            ]
            read.input.extend(f"^{name}" for name in users)
            reads[host.name, argument.label] = f"{read.name}:0"
            for later in host.later:
                if later[0] == argument.label:
                    by_name[updates.get(later[1], later[1])].input.append(f"^{read.name}")
    return reads


def nodes_of(nodes: Nodes, variable: str) -> set[str]:
    """Returns the handles of a variable."""
    return {
        node.name
        for node in nodes.uncut.node
        if node.op == "VarHandleOp" and node.attr["shared_name"].s.decode() == variable
    }


def _fed(name: str, value: Array) -> dict[str, Array]:
    """Returns what the test feeds."""
    return {name + drawn.DRAWN: np.zeros(2, np.uint64), name: np.ascontiguousarray(value)}


def _checked(name: str, value: Array) -> Iterator[tuple[str, Array]]:
    """Yields what the test compares with. A comparison sees how far zeros would be off, in tolerances."""
    limit = allowed(np.asarray(value))
    for part, some in digest(np.asarray(value)).items():
        floating = some.dtype.kind not in "iub"
        within = limit * (8.0 if part else 1.0) if floating else 0.0
        yield name + part, some
        yield f"{name}{part}/tolerance", np.full(some.shape, within, np.float32)
        wide = np.abs(reals(some).astype(np.float64))
        largest = float(np.max(wide, where=np.isfinite(wide), initial=0.0))
        sees = largest / within if within else np.inf if largest else 0.0
        yield f"{name}{part}/sees", np.array((sees, some.size if sees else 0), np.float64)
