"""Finds gradients that one entry point returns and another one takes, so that a program can combine them with other replicas'."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from tensorflow.core.framework import graph_pb2

from tfaot.core.manifest import Gradient, Input, Manifest, Output
from tfaot.export.traced import Edge
from tfaot.graph.calls import inlined
from tfaot.graph.names import tensor_name
from tfaot.graph.program import Program, Tensor

Labels = Sequence[tuple[Sequence[Edge], Sequence[Edge]]]
"""The inputs and outputs of each entry point, with the user's names."""


def pairs(graph: graph_pb2.GraphDef, manifest: Manifest, labels: Labels) -> tuple[Gradient, ...]:
    """Returns the gradients of variables, in the variables' order.

    An output and an input are a gradient if they have the same name, dtype, and shape; if the input changes a variable of the same
    shape, and no other one; and if the entry point that has the output reads that variable.
    """
    entries = manifest.entry_points
    matches = [
        (computing, output, applying, taken)
        for computing, applying in itertools.permutations(range(len(entries)), 2)
        for output, taken in _matches(
            entries[computing].outputs, labels[computing][1], entries[applying].inputs, labels[applying][0]
        )
    ]
    if not matches:
        return ()
    program = inlined(
        graph,
        (name for entry in entries for name in entry.feeds),
        (name for entry in entries for name in entry.fetches),
    )
    nodes = program.nodes()
    program.feeds = {
        tensor.name: Tensor(tensor.stored_shape, nodes[tensor_name(tensor.name)[0]].attr["dtype"].type)
        for entry in entries
        for tensor in entry.inputs
    }
    tensors = program.tensors()
    by_variable: dict[int, list[Gradient]] = {}
    for computing, output, applying, taken in matches:
        tensor = entries[applying].inputs[taken]
        changed = _changed(program, tensors, tensor.name)
        used = ({use.variable for use in entries[index].variables} for index in (computing, applying))
        variables = [
            index
            for index in set.intersection(*used)
            if manifest.variables[index].name in changed and manifest.variables[index].shape == tensor.shape
        ]
        if len(variables) == 1:
            gradient = Gradient(variables[0], computing, output, applying, taken)
            by_variable.setdefault(variables[0], []).append(gradient)
    return tuple(gradients[0] for _, gradients in sorted(by_variable.items()) if len(gradients) == 1)


def _matches(
    outputs: Sequence[Output], computed: Sequence[Edge], inputs: Sequence[Input], applied: Sequence[Edge]
) -> list[tuple[int, int]]:
    """Returns the outputs and inputs that have the same name. A function with a single parameter doesn't name it."""
    result = []
    for taken, (tensor, edge) in enumerate(zip(inputs, applied, strict=True)):
        same = [
            index
            for index, (output, made) in enumerate(zip(outputs, computed, strict=True))
            if f"/{made.label}".endswith(f"/{edge.label}")
            and (output.dtype, output.shape) == (tensor.dtype, tensor.shape)
        ]
        result += [(same[0], taken)] if len(same) == 1 else []
    return result


def _changed(program: Program, tensors: Mapping[str, Tensor], feed: str) -> set[str]:
    """Returns the variables that an input changes by values of its own shape, also by way of other variables. A norm isn't one."""
    nodes, users = program.nodes(), program.users()
    reads: dict[str, list[str]] = {}
    for node in program.graph.node:
        if node.op == "ReadVariableOp":
            reads.setdefault(tensor_name(node.input[0])[0], []).append(f"{node.name}:0")
    shape = tensors[feed].shape
    result: set[str] = set()
    ready, seen = [feed], {feed}
    while ready:
        name, port = tensor_name(ready.pop())
        for user in users[name]:
            if user.port != port:
                continue
            handles = [
                operand for operand, _ in map(tensor_name, user.node.input) if nodes[operand].op == "VarHandleOp"
            ]
            result |= {nodes[handle].attr["shared_name"].s.decode() for handle in handles}
            made = [f"{user.node.name}:{user.operand if user.node.op == 'IdentityN' else 0}"]
            made += [read for handle in handles for read in reads.get(handle, ())]
            for tensor in made:
                if tensor in tensors and tensors[tensor].shape == shape and tensor not in seen:
                    seen.add(tensor)
                    ready.append(tensor)
    return result
