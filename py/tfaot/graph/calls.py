"""Calls of functions, put into their caller: what a SavedModel's signatures compute lies in functions that they call."""

from __future__ import annotations

from tensorflow.core.framework import function_pb2, node_def_pb2

from tfaot.graph.attributes import type_attribute, types_attribute
from tfaot.graph.functions import EditableFunction
from tfaot.graph.names import tensor_name
from tfaot.graph.program import Program

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
"""Calls that are nothing else: what they call can take their place."""


def inline_calls(program: Program) -> None:
    """Puts what a graph calls into it, and what that calls in turn; loops and branches stay functions.

    A node of the function gets the call's name before its own. It runs after all that the call waited for, if it has effects,
    and before whatever took a result of the call or waited for it. A call that is fetched hands on what it returned.
    """
    library = {function.signature.name: function for function in program.graph.library.function}
    fed = {tensor_name(feed)[0] for feed in program.feeds}
    pending = [node for node in program.graph.node if node.name not in fed]
    while pending:
        node = pending.pop()
        function = library.get(node.attr["f"].func.name) if node.op in _CALLS else None
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
    """Puts a function's nodes in place of a call, and returns them."""
    operands = [operand for operand in call.input if not operand.startswith("^")]
    waits = [operand for operand in call.input if operand.startswith("^")]
    known = dict(zip(body.arguments, operands, strict=True))
    names = {name: program.unique(f"{call.name}/{name}") for name in body.nodes}

    def outside(operand: str) -> list[str]:
        """An operand of the function, in the graph; nothing waits for a feed."""
        name, port = tensor_name(operand)
        if name in names:
            return [f"^{names[name]}" if port < 0 else f"{names[name]}:{port}"]
        if port >= 0:
            return [known[operand]]
        producer = tensor_name(known[f"{name}:0"])[0]
        return [] if producer in fed else [f"^{producer}"]

    effects = {node.name for node in body.effects()}
    inside = []
    for name, copy_name in names.items():
        copy = program.graph.node.add()
        copy.CopyFrom(body.nodes[name])
        copy.name = copy_name
        copy.input[:] = [each for operand in body.nodes[name].input for each in outside(operand)]
        if name in effects:
            copy.input.extend(wait for wait in waits if wait not in copy.input)
        program.origins[copy_name] = f"{function.signature.name}/{name}"
        inside.append(copy)
    ran = [f"^{names[name]}" for name in function.control_ret.values() if name in effects]
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
