"""An acyclic graph whose nodes can be merged, as long as no cycle appears. Pure.

It keeps a topological order up to date (Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic
graphs", 2006), so it looks for cycles only between the two places in the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


class Merging:
    """The graph. Nodes are numbers. A merged node goes by the number of the one that it was merged into."""

    def __init__(self, count: int, edges: Iterable[tuple[int, int]]) -> None:
        """Takes an acyclic graph.

        Args:
          count: the number of nodes.
          edges: pairs of a node and one that depends on it, in any order, possibly repeated.

        Raises:
          ValueError: there is a cycle.
        """
        self._after: list[set[int]] = [set() for _ in range(count)]
        self._before: list[set[int]] = [set() for _ in range(count)]
        for first, second in edges:
            self._after[first].add(second)
            self._before[second].add(first)
        self._rank = [0] * count
        """Each node's place in a topological order. The places differ, and merging leaves gaps."""
        self._into = list(range(count))
        waiting = [len(before) for before in self._before]
        ready = [node for node in reversed(range(count)) if not waiting[node]]
        placed = 0
        while ready:
            node = ready.pop()
            self._rank[node] = placed
            placed += 1
            for after in sorted(self._after[node], reverse=True):
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
        if placed < count:
            raise ValueError("the graph has a cycle")

    def find(self, node: int) -> int:
        """Returns the number that a node goes by now."""
        while self._into[node] != node:
            self._into[node] = self._into[self._into[node]]
            node = self._into[node]
        return node

    def rank(self, node: int) -> int:
        """Returns a node's place in a topological order."""
        return self._rank[self.find(node)]

    def after(self, node: int) -> Sequence[int]:
        """Returns the nodes that depend on a node, first to last."""
        return sorted(self._after[self.find(node)], key=self._rank.__getitem__)

    def join(self, first: int, second: int) -> bool:
        """Merges the second node into the first, if neither depends on the other. Returns whether they are merged."""
        first, second = self.find(first), self.find(second)
        low, high = sorted((first, second), key=self._rank.__getitem__)
        if low == high or high in self._after[low] or self._other_path(low, high):
            return False
        self._connect(first, second)
        return self.merge(first, second)

    def merge(self, first: int, second: int) -> bool:
        """Merges the second node into the first, which it depends on directly, unless that would close a cycle.

        Returns:
          Whether they are merged: they aren't if there is another path between them.
        """
        first, second = self.find(first), self.find(second)
        if first == second or second not in self._after[first] or self._other_path(first, second):
            return False
        self._after[first].discard(second)
        self._before[second].discard(first)
        before, after = self._before[second], self._after[second]
        for node in before:
            self._after[node].discard(second)
        for node in after:
            self._before[node].discard(second)
        self._before[second], self._after[second] = set(), set()
        self._into[second] = first
        for node in sorted(before):
            self._connect(node, first)
        for node in sorted(after):
            self._connect(first, node)
        return True

    def _other_path(self, first: int, second: int) -> bool:
        """Returns whether a path other than their edge leads from one node to another."""
        limit = self._rank[second]
        pending = [node for node in self._after[first] if node != second and self._rank[node] < limit]
        seen = set(pending)
        while pending:
            for node in self._after[pending.pop()]:
                if node == second:
                    return True
                if self._rank[node] < limit and node not in seen:
                    seen.add(node)
                    pending.append(node)
        return False

    def _connect(self, first: int, second: int) -> None:
        """Adds an edge, which closes no cycle, and mends the order."""
        self._after[first].add(second)
        self._before[second].add(first)
        low, high = self._rank[second], self._rank[first]
        if high < low:
            return
        forward = self._reached(second, self._after, lambda rank: rank <= high)
        backward = self._reached(first, self._before, lambda rank: rank >= low)
        by_rank = self._rank.__getitem__
        moved = sorted(backward, key=by_rank) + sorted(forward, key=by_rank)
        for node, rank in zip(moved, sorted(self._rank[node] for node in moved), strict=True):
            self._rank[node] = rank

    def _reached(self, start: int, edges: Sequence[set[int]], within: Callable[[int], bool]) -> set[int]:
        reached, pending = {start}, [start]
        while pending:
            for node in edges[pending.pop()]:
                if node not in reached and within(self._rank[node]):
                    reached.add(node)
                    pending.append(node)
        return reached
