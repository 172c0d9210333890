"""The pass `loop_invariants`: a loop reads variables once, and its gradient gets what doesn't change without a stack.

Applies to loops that read variables, and to gradients of loops: weights, indices, and list items reach the gradient as they
are, instead of through a stack with a copy for each step.
"""

from __future__ import annotations

import numpy as np
from tensorflow.core.framework import node_def_pb2, types_pb2

from tfaot.compile.passes.loops.loop import Loop, Popped
from tfaot.compile.passes.loops.loops import Loops
from tfaot.graph.attributes import type_attribute
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import WHILES
from tfaot.graph.program import Program

_READS = frozenset({"ReadVariableOp", "VariableShape"})


def loop_invariants(program: Program) -> int:
    """Moves out of loops what is the same in every step or available elsewhere.

    - A variable that a loop reads but doesn't write is read before the loop.
    - The stacks between a loop and its gradient lose what the gradient can get otherwise: values that are the same in every
      step (above all weights, with one copy for each step), indices, and items of a list that is an operand.
    - A gradient loop zeroes each item of a list after reading it. If nothing reads the list again, it stays as it is.

    Returns:
      The number of removed reads, pops, and writes.
    """
    if not any(node.op in WHILES for node in program.graph.node):
        return 0
    _wait_for_loops(program)
    program.prune()
    loops = Loops(program)
    count = 0
    for loop in loops.loops.values():
        _use_operands(loops, loop)
        count += _hoist_reads(loops, loop) + _unstack(loops, loop) + _keep_lists(loops, loop)
    if count:
        # Gradient loops come first. They determine which stacks the loops before them don't need to fill.
        for loop in reversed(loops.loops.values()):
            loop.write()
    return count


def _wait_for_loops(program: Program) -> None:
    """Makes nodes that wait for an identity of a loop's result wait for the loop, which makes the result unneeded.

    TensorFlow 1 puts such identities after every result of a gradient.
    """
    nodes = program.nodes()
    for node in program.graph.node:
        waits = [operand for operand in node.input if operand.startswith("^")]
        for wait in waits:
            waited = nodes[wait[1:]]
            if waited.op == "Identity" and len(waited.input) == 1 and f"{waited.name}:0" not in program.feeds:
                producer = tensor_name(waited.input[0])[0]
                if nodes[producer].op in WHILES:
                    waits[waits.index(wait)] = f"^{producer}"
        data = [operand for operand in node.input if not operand.startswith("^")]
        node.input[:] = [*data, *dict.fromkeys(waits)]


def _use_operands(loops: Loops, loop: Loop) -> None:
    """Replaces loop results that the loop only passes on with their original operands."""
    users = loops.program.users()[loop.name]
    for user in users:
        if user.port >= 0 and loop.invariant(user.port) and user.node.name not in loops.loops:
            resource = loop.body.types[user.port] == types_pb2.DT_RESOURCE
            if not resource or user.node.op == "VariableShape":
                user.node.input[user.operand] = loop.operands[user.port]


def _hoist_reads(loops: Loops, loop: Loop) -> int:
    """Moves reads of variables that a loop doesn't assign in front of the loop. Returns how many.

    The read runs after whatever the loop runs after, and whatever runs after the loop runs after the read.
    """
    written = set()
    if any(node.op == "VarHandleOp" for node in loop.body.nodes.values()):
        return 0
    for node in loop.body.effects():
        if node.op not in _READS:
            for operand in node.input:
                index = loop.body.argument(operand)
                if index is not None and loop.body.types[index] == types_pb2.DT_RESOURCE:
                    written.add(loops.variable(loop.operands[index]))
    count = 0
    if None in written:
        return 0
    arguments: dict[int, str] = {}
    for node in [node for node in loop.body.nodes.values() if node.op == "ReadVariableOp"]:
        index = loop.constant_argument(node.input[0])
        if index is None or loops.variable(loop.operands[index]) in written | {None}:
            continue
        dtype = node.attr["dtype"].type
        if index not in arguments:
            read = loops.program.add(
                "ReadVariableOp",
                f"{loop.name}/{node.name}",
                [loop.operands[index], *loop.after()],
                origin=loop.name,
                dtype=type_attribute(dtype),
            )
            loops.added(read, loops.tensor_of_variable(loop.operands[index]))
            arguments[index] = loop.give(f"{read.name}:0", dtype, f"{node.name}/value")
        loop.body.become(node, "Identity", [arguments[index]], T=type_attribute(dtype))
        count += 1
    return count


def _unstack(loops: Loops, loop: Loop) -> int:
    count = 0
    for node in [node for node in loop.body.nodes.values() if node.op == "TensorListPopBack"]:
        popped = loop.popped(f"{node.name}:1")
        if popped is None:
            continue
        value = _at_hand(loops, loop, node, popped)
        if value is None:
            continue
        handle = loop.body.arguments[int(loop.body.argument(node.input[0]) or 0)]
        replaced = {f"{node.name}:1": value, f"{node.name}:0": handle}
        loop.body.results = [replaced.get(result, result) for result in loop.body.results]
        for other in loop.body.nodes.values():
            inputs = [operand for operand in other.input if operand != f"^{node.name}"]
            other.input[:] = [replaced.get(operand, operand) for operand in inputs]
        del loop.body.nodes[node.name]
        count += 1
    return count


def _at_hand(loops: Loops, loop: Loop, node: node_def_pb2.NodeDef, popped: Popped) -> str | None:
    """Returns a tensor of the body that equals the popped value without a stack, or None."""
    earlier = popped.loop
    dtype = node.attr["element_dtype"].type
    index = earlier.constant_argument(popped.value)
    if index is not None:
        return loop.give(earlier.operands[index], dtype, f"{node.name}/value")
    indices = loop.steps.values(f"{node.name}:1")
    if indices is not None and dtype == types_pb2.DT_INT32:
        return loop.scalar(indices, f"{node.name}/index")
    item = earlier.item(popped.value)
    if item is None:
        return None
    place = loop.scalar(item.indices[::-1], f"{node.name}/index")
    shape = loops.element_shape(earlier.operands[popped.index])
    if place is None or shape is None or None in shape:
        return None
    sizes = loop.vector(tuple(size or 0 for size in shape), f"{node.name}/shape")
    outer = loop.give(earlier.operands[item.index], types_pb2.DT_VARIANT, f"{node.name}/list")
    return loop.add("TensorListGetItem", f"{node.name}/item", [outer, place, sizes], dtype, "element_dtype")


def _keep_lists(loops: Loops, loop: Loop) -> int:
    """Removes writes to a list if each item is read once, before it is written, and never after the loop."""
    count = 0
    users = loops.program.users()[loop.name]
    for index, argument in enumerate(loop.body.arguments):
        node = loop.body.producer(loop.body.resolve(loop.body.results[index]))
        if node is None or node.op != "TensorListSetItem" or loop.body.argument(node.input[0]) != index:
            continue
        if any(user.port == index for user in users) or loops.fetched(loop.name):
            continue
        written = loop.steps.values(node.input[1])
        readers = [user for user, _ in loop.body.users(argument) if user is not node]
        if written is None or len(np.unique(written)) != len(written):
            continue
        places = [loop.steps.values(reader.input[1]) for reader in readers if reader.op == "TensorListGetItem"]
        if len(places) != len(readers) or any(place is None or not np.array_equal(place, written) for place in places):
            continue
        if loop.body.users(f"{node.name}:0") or len(loop.body.returned(f"{node.name}:0")) != 1:
            continue
        loop.body.results[index] = argument
        count += 1
    return count
