"""Loops and branches of TensorFlow 2 that don't compile whole, as TensorFlow 1's: their bodies are cut, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.functions import EditableFunction
from tfaot.graph.grappler import without_functions
from tfaot.graph.names import producer, take
from tfaot.graph.ops import CALLS, IDENTITIES, functions_of

FUNCTIONAL = frozenset(op for op, call in CALLS.items() if call.functions != ("f",))
"""Loops and branches whose bodies are functions; the other calls have one function, `f`."""

_LOWER = "_lower_using_switch_merge"
"""The attribute of ops that TensorFlow replaces with Switch, Merge, Enter, and Exit before it runs them."""

_MOST_BYTES = 1 << 29
"""The most bytes of constants that bodies get copies of. A graph has to stay below 2 GiB."""


def lowered(graph: graph_pb2.GraphDef, names: Collection[str], edges: Iterable[str]) -> graph_pb2.GraphDef:
    """Replaces loops and branches with the ops of TensorFlow 1, as TensorFlow itself does it.

    Args:
      graph: all calls are inlined.
      names: the loops and branches. Others stay, as do those in functions.
      edges: nodes of inputs and outputs, which stay.
    """
    marked = graph_pb2.GraphDef()
    marked.CopyFrom(graph)
    _copy_constants(marked, names)
    inside = (node for function in marked.library.function for node in function.node_def)
    for node, wanted in [*((node, node.name in names) for node in marked.node), *((node, False) for node in inside)]:
        if node.op in FUNCTIONAL:
            node.attr[_LOWER].b = wanted
    return without_functions(marked, sorted({*edges}))


def _copy_constants(graph: graph_pb2.GraphDef, names: Collection[str]) -> None:
    """Gives bodies their own copies of the constants that they take, unless a step changes them, in place.

    The ops of TensorFlow 1 would pass such a constant from step to step, and no cluster in the body would know its value.
    """
    nodes = {node.name: node for node in graph.node}
    library = {function.signature.name: function for function in graph.library.function}
    taken = set(library)
    left = _MOST_BYTES
    for node in graph.node:
        if node.name not in names or node.op not in FUNCTIONAL:
            continue
        call = CALLS[node.op]
        bodies = [(named, EditableFunction(library[named.name], library)) for _, named in functions_of(node)]
        operands = [operand for operand in node.input if not operand.startswith("^")][call.first :]
        constants = {index: value for index, operand in enumerate(operands) if (value := _constant(nodes, operand))}
        if call.is_loop:
            steps = [body for named, body in bodies if named.name == node.attr["body"].func.name]
            constants = {index: constant for index, constant in constants.items() if _passes(steps[0], index)}
        size = len(bodies) * sum(constant.ByteSize() for constant in constants.values())
        if not constants or size > left:
            continue
        left -= size
        for named, function in bodies:
            for index, constant in constants.items():
                _copy(function, index, constant)
            named.name = take(f"{named.name}_tfaot", taken)
            graph.library.function.append(function.function(named.name))


def _passes(step: EditableFunction, index: int) -> bool:
    """Returns whether a loop's body returns an argument unchanged."""
    return step.argument(step.results[index]) == index


def _constant(nodes: Mapping[str, node_def_pb2.NodeDef], operand: str) -> node_def_pb2.NodeDef | None:
    """Returns the constant behind a tensor, past identities, or None."""
    node = nodes[producer(operand)]
    while node.op in IDENTITIES:
        node = nodes[producer(node.input[0])]
    return node if node.op == "Const" else None


def _copy(function: EditableFunction, index: int, constant: node_def_pb2.NodeDef) -> None:
    """Replaces the uses of an argument by a copy of a constant."""
    argument = function.arguments[index]
    users = [node for node in function.nodes.values() if argument in node.input]
    copy = function.add("Const", constant.name, [])
    copy.attr.MergeFrom(constant.attr)
    for node in users:
        node.input[:] = [f"{copy.name}:0" if operand == argument else operand for operand in node.input]
