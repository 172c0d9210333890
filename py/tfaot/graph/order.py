"""The order of effects in a graph, which passes keep even where they rewrite what one effect waits for."""

from __future__ import annotations

from collections.abc import Mapping

from tfaot.graph.names import tensor_name
from tfaot.graph.ops import has_effects
from tfaot.graph.program import Program

_NO_EFFECTS = frozenset({"Placeholder", "VarHandleOp"})
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})


class Order:
    """What effects and fetches wait for: all writes, and writes also for reads.

    Often, they wait because a value in between does: `with tf.control_dependencies([v.assign(x)]): y = tf.identity(y)`. A pass
    that replaces such a value by one that doesn't wait would lose the assignment.
    """

    def __init__(self, program: Program) -> None:
        """Remembers the order that a program has."""
        self._program = program
        called = {function.signature.name for function in program.graph.library.function}
        effects = [
            node
            for node in program.graph.node
            if (node.op in called or has_effects(node.op)) and node.op not in _NO_EFFECTS
        ]
        self._bits = {node.name: 1 << index for index, node in enumerate(effects)}
        writes = sum(self._bits[node.name] for node in effects if node.op not in _READS)
        waits = self._waits()
        fetched = {tensor_name(fetch)[0] for fetch in program.fetches}
        self._order: Mapping[str, int] = {
            name: waits[name] & (-1 if self._bits.get(name, 0) & writes else writes)
            for name in dict.fromkeys([*self._bits, *sorted(fetched & waits.keys())])
        }

    def keep(self) -> None:
        """Makes nodes wait for what they no longer wait for."""
        waits, nodes = self._waits(), self._program.nodes()
        for name, before in self._order.items():
            if name in nodes and (lost := before & ~waits[name]):
                missing = [effect for effect, bit in self._bits.items() if lost & bit and effect in nodes]
                nodes[name].input.extend(f"^{effect}" for effect in missing)

    def _waits(self) -> dict[str, int]:
        """Returns the effects that each node waits for, directly or not, as a sum of their bits."""
        waits: dict[str, int] = {}
        if not self._bits:
            return dict.fromkeys(self._program.nodes(), 0)
        # The next iteration of a loop is the only cycle.
        nodes = {
            node.name: [] if node.op == "NextIteration" else [tensor_name(operand)[0] for operand in node.input]
            for node in self._program.graph.node
        }
        pending = [*nodes]
        while pending:
            name = pending[-1]
            missing = [operand for operand in nodes[name] if operand not in waits] if name not in waits else []
            if missing:
                pending += missing
                continue
            pending.pop()
            waits[name] = 0
            for operand in nodes[name]:
                waits[name] |= waits[operand] | self._bits.get(operand, 0)
        return waits
