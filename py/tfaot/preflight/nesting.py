"""Which functions an entry point's graph calls, by way of which nodes, and how often. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict, deque
from collections.abc import Iterator

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.bodies import Body
from tfaot.graph.ops import Library, called

LIMIT = 10**9
"""The largest number of calls that is counted. Functions that call functions can be called exponentially often."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A node that calls a function."""

    function: str
    """The function that contains the node; empty for the graph."""
    node: node_def_pb2.NodeDef


_TRACED = re.compile(r"__(?:inference|forward|backward)_(?:signature_wrapper_)?(.+?)_\d+")
"""The names that TensorFlow gives to functions, around the user's own name."""


def _shown(node: str, function: str) -> str:
    """Returns a call as messages show it: the node, with the function's own name if it has one."""
    own = _TRACED.fullmatch(function)
    return f"{node}({own[1]})" if own else node


class Nesting:
    """A pruned graph with the functions that it reaches."""

    def __init__(self, graph: graph_pb2.GraphDef) -> None:
        """Walks the graph, which must not change afterwards. Functions that are missing are left out."""
        self.library: Library = {function.signature.name: function for function in graph.library.function}
        self.bodies: dict[str, Body] = {"": Body.graph(graph, self.library)}
        """Bodies by function, the graph first, callers before what only they call."""
        self.calls: dict[str, list[Call]] = defaultdict(list)
        """The calls of each function."""
        self._chains: dict[str, tuple[str, ...]] = {"": ()}
        self._callees: dict[str, list[str]] = {}
        queue = deque([""])
        while queue:
            name = queue.popleft()
            self._callees[name] = []
            for node in self.bodies[name].nodes:
                for callee in called(node):
                    if callee not in self.library:
                        continue
                    self.calls[callee].append(Call(name, node))
                    self._callees[name].append(callee)
                    if callee not in self.bodies:
                        self.bodies[callee] = Body.function(self.library[callee], self.library)
                        self._chains[callee] = (*self._chains[name], _shown(node.name, callee))
                        queue.append(callee)
        self.recursive = self._in_cycles()
        """Functions that call themselves, directly or not."""
        self._counts = self._counted()

    def nodes(self) -> Iterator[tuple[str, node_def_pb2.NodeDef]]:
        """Yields every node with its function."""
        for name, body in self.bodies.items():
            for node in body.nodes:
                yield name, node

    def chain(self, function: str) -> tuple[str, ...]:
        """Returns the names of the nodes that lead to a function, the shortest way."""
        return self._chains[function]

    def count(self, function: str) -> int:
        """Returns in how many ways the graph calls a function, at most `LIMIT`; 1 for one that calls itself."""
        return self._counts.get(function, 1)

    def _order(self) -> tuple[list[str], set[str]]:
        """Returns functions that aren't in or below a cycle, callers first, and the others."""
        waiting = {name: len(self.calls[name]) for name in self.bodies}
        ready = [""]
        order = []
        while ready:
            name = ready.pop()
            order.append(name)
            for callee in self._callees[name]:
                waiting[callee] -= 1
                if not waiting[callee]:
                    ready.append(callee)
        return order, set(self.bodies) - set(order)

    def _in_cycles(self) -> list[str]:
        """Returns functions in cycles: those that are left when what none of the others calls or is called by is removed."""
        left = self._order()[1]
        changed = True
        while changed:  # some are only below a cycle
            ending = {name for name in left if not set(self._callees[name]) & left}
            left -= ending
            changed = bool(ending)
        return [name for name in self.bodies if name in left]

    def _counted(self) -> dict[str, int]:
        counts: dict[str, int] = defaultdict(int)
        counts[""] = 1
        for name in self._order()[0]:
            for callee in self._callees[name]:
                counts[callee] = min(LIMIT, counts[callee] + counts[name])
        return {name: max(1, count) for name, count in counts.items()}
