"""Short loops as straight code."""

from __future__ import annotations

from tfaot.compile.passes.loops.loop import Loop
from tfaot.compile.passes.loops.loops import Loops
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import WHILES
from tfaot.graph.program import Program

_STEPS = 8
"""Steps of the longest loop that is unrolled."""
_NODES = 512
"""Nodes that all its steps may have: the compiler's time grows with them."""


def unroll_loops(program: Program) -> int:
    """Writes down the steps of short loops one after the other.

    That saves the loop's own work in each step: its condition, its counters, and copies of what it hands on; of stacks and
    lists, XLA then knows where each item is. The code grows with the number of steps, and the compiler's time with it.

    Returns:
      The number of loops that are gone.
    """
    loops = Loops(program)
    count = 0
    for loop in loops.loops.values():
        if _pays(loops, loop):
            _unroll(loops, loop)
            count += 1
    return count


def _pays(loops: Loops, loop: Loop) -> bool:
    """Whether a loop is short, and does nothing but compute."""
    if loop.steps.trips is None or loop.steps.trips > _STEPS or loop.steps.trips * len(loop.body.nodes) > _NODES:
        return False
    inner = any(node.op in WHILES for node in loop.body.nodes.values())
    return not inner and not loop.body.effects() and not loop.cond.effects() and not loops.fetched(loop.name)


def _unroll(loops: Loops, loop: Loop) -> None:
    program, body = loops.program, loop.body
    needed = body.needed(body.results)
    values = [*loop.operands]
    for step in range(loop.steps.trips or 0):
        known = dict(zip(body.arguments, values, strict=True))
        names = {name: program.unique(f"{loop.name}/{step}/{name}") for name in body.nodes if name in needed}

        def outside(tensor: str, known: dict[str, str] = known, names: dict[str, str] = names) -> str:
            name, port = tensor_name(tensor)
            return known[tensor] if tensor in known else f"{names[name]}:{port}"

        for name, copy_name in names.items():
            copy = program.graph.node.add()
            copy.CopyFrom(body.nodes[name])
            copy.name = copy_name
            copy.input[:] = [outside(operand) for operand in copy.input if not operand.startswith("^")]
            program.origins[copy_name] = program.origins.get(loop.name, loop.name)
            loops.added(copy, None)
        values = [outside(result) for result in body.results]
    # What waited for the loop waits for all that it needed, and for what it gives.
    waits = list(
        dict.fromkeys([*loop.after(), *(f"^{tensor_name(value)[0]}" for value in values if value not in loop.operands)])
    )
    for node in program.graph.node:
        if f"^{loop.name}" in node.input:
            node.input[:] = [operand for operand in node.input if operand != f"^{loop.name}"]
            node.input.extend(wait for wait in waits if wait not in node.input)
    for index, value in enumerate(values):
        loops.replace(f"{loop.name}:{index}", value)
