"""The pass `unroll_loops`: replaces a loop with straight code, without conditions, counters, and copies.

XLA then also knows where each item of a stack or list is.

Applies to loops of at most eight steps.

A Keras LSTM with 64 units over 8 steps takes 4.7 instead of 5.3 µs (AVX-512).
"""

from __future__ import annotations

from tfaot.compile.passes.loops.loop import Loop
from tfaot.compile.passes.loops.loops import Loops
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import WHILES
from tfaot.graph.program import Program

_STEPS = 8
"""The most steps of a loop to unroll."""
_NODES = 512
"""The most nodes in all its steps. The compiler's time grows with their number."""


def unroll_loops(program: Program) -> int:
    """Unrolls loops, and returns how many."""
    loops = Loops(program)
    count = 0
    for loop in loops.loops.values():
        if _pays(loops, loop):
            _unroll(loops, loop)
            count += 1
    return count


def _pays(loops: Loops, loop: Loop) -> bool:
    """Returns whether a loop is short, and does nothing but compute."""
    if loop.steps.trips is None or loop.steps.trips > _STEPS or loop.steps.trips * len(loop.body.nodes) > _NODES:
        return False
    inner = any(node.op in WHILES for node in loop.body.nodes.values())
    return not inner and not loop.body.effects() and not loop.cond.effects() and not loops.fetched(loop.name)


def _unroll(loops: Loops, loop: Loop) -> None:
    program, body = loops.program, loop.body
    needed = body.needed(body.results)
    values = [*loop.operands]
    for step in range(loop.steps.trips or 0):
        bound = dict(zip(body.arguments, values, strict=True))
        names = {name: program.unique(f"{loop.name}/{step}/{name}") for name in body.nodes if name in needed}

        def outside(tensor: str, bound: dict[str, str] = bound, names: dict[str, str] = names) -> str:
            name, port = tensor_name(tensor)
            return bound[tensor] if tensor in bound else f"{names[name]}:{port}"

        for name, copy_name in names.items():
            copy = program.graph.node.add()
            copy.CopyFrom(body.nodes[name])
            copy.name = copy_name
            copy.input[:] = [outside(operand) for operand in copy.input if not operand.startswith("^")]
            program.origins[copy_name] = program.origins.get(loop.name, loop.name)
            loops.added(copy, None)
        values = [outside(result) for result in body.results]
    # What waited for the loop now waits for everything that the loop needed, and for its results.
    waits = list(
        dict.fromkeys([*loop.after(), *(f"^{tensor_name(value)[0]}" for value in values if value not in loop.operands)])
    )
    for node in program.graph.node:
        if f"^{loop.name}" in node.input:
            node.input[:] = [operand for operand in node.input if operand != f"^{loop.name}"]
            node.input.extend(wait for wait in waits if wait not in node.input)
    for index, value in enumerate(values):
        loops.replace(f"{loop.name}:{index}", value)
