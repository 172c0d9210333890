"""Inlines function calls: a SavedModel's signatures only call the functions that compute."""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from tfaot.graph.attributes import type_attribute, types_attribute
from tfaot.graph.functions import EditableFunction
from tfaot.graph.names import tensor_name
from tfaot.graph.program import Program, Tensor

PLAIN_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
"""Plain calls, which can be inlined."""


def inlined(graph: graph_pb2.GraphDef, feeds: Iterable[str], fetches: Iterable[str]) -> Program:
    """Returns a copy of a graph with all calls inlined. Of its feeds, only the names are known."""
    copy = graph_pb2.GraphDef()
    copy.CopyFrom(graph)
    program = Program(copy, {feed: Tensor(None, 0) for feed in feeds}, [*fetches])
    inline_calls(program)
    return program


def inline_calls(program: Program) -> None:
    """Inlines all calls in a graph, including nested ones. Loops and branches stay functions.

    An inlined node's name starts with the call's name. A node with effects runs after everything that the call waited
    for, and before everything that used the call's results or waited for it. A fetched call becomes an identity of its
    results.
    """
    library = {function.signature.name: function for function in program.graph.library.function}
    fed = {tensor_name(feed)[0] for feed in program.feeds}
    pending = [node for node in program.graph.node if node.name not in fed]
    while pending:
        node = pending.pop()
        function = library.get(node.attr["f"].func.name) if node.op in PLAIN_CALLS else None
        if function is not None and not function.signature.attr:
            pending += _inline(program, node, function, EditableFunction(function, library), fed)
    program.prune()


def _inline(
    program: Program,
    call: node_def_pb2.NodeDef,
    function: function_pb2.FunctionDef,
    body: EditableFunction,
    fed: set[str],
) -> list[node_def_pb2.NodeDef]:
    """Inlines one call. Returns the function's nodes as they are in the graph."""
    operands = [operand for operand in call.input if not operand.startswith("^")]
    waits = [operand for operand in call.input if operand.startswith("^")]
    arguments = dict(zip(body.arguments, operands, strict=True))
    names = {name: program.unique(f"{call.name}/{name}") for name in body.nodes}

    def outside(operand: str) -> list[str]:
        """Returns a function's operand in the graph's notation. Nothing may wait for a feed."""
        name, port = tensor_name(operand)
        if name in names:
            return [f"^{names[name]}" if port < 0 else f"{names[name]}:{port}"]
        if port >= 0:
            return [arguments[operand]]
        producer = tensor_name(arguments[f"{name}:0"])[0]
        return [] if producer in fed else [f"^{producer}"]

    effects = {node.name for node in body.effects()}
    inside = []
    for name, copy_name in names.items():
        copy = program.graph.node.add()
        copy.CopyFrom(body.nodes[name])
        copy.name = copy_name
        copy.input[:] = [renamed for operand in body.nodes[name].input for renamed in outside(operand)]
        if name in effects:
            copy.input.extend(wait for wait in waits if wait not in copy.input)
        program.origins[copy_name] = f"{function.signature.name}/{name}"
        inside.append(copy)
    # The order of a proto's map isn't stable.
    ran = [f"^{names[name]}" for _, name in sorted(function.control_ret.items()) if name in effects]
    dtypes = call.attr["Tout"].list.type
    results = []
    for index, (result, dtype) in enumerate(zip(body.results, dtypes, strict=True)):
        value = [*outside(result), *ran]
        node = program.add("Identity", f"{call.name}/{index}", value, origin=call.name, T=type_attribute(dtype))
        results.append(f"{node.name}:0")
    for node in program.graph.node:
        for position, operand in enumerate(node.input):
            name, port = tensor_name(operand)
            if name == call.name and port >= 0:
                node.input[position] = results[port]
    program.become(
        call, "IdentityN" if results else "NoOp", results, **({"T": types_attribute(dtypes)} if results else {})
    )
    call.input.extend(wait for wait in ran if wait not in call.input)
    return inside
