"""Tests of merging the nodes of an acyclic graph."""

import random
import unittest

from tfaot.cluster.order import Merging


def _acyclic(count: int, edges: set[tuple[int, int]]) -> bool:
    """Answers by Kahn's algorithm, without the code that is tested."""
    before = {node: {a for a, b in edges if b == node} for node in range(count)}
    done: set[int] = set()
    while ready := [node for node in before if node not in done and before[node] <= done]:
        done.update(ready)
    return len(done) == count


class MergingTest(unittest.TestCase):
    def test_merges_a_chain(self) -> None:
        """A chain becomes one node."""
        merging = Merging(3, [(0, 1), (1, 2)])
        self.assertTrue(merging.merge(0, 1))
        self.assertTrue(merging.merge(1, 2))
        self.assertEqual({merging.find(node) for node in range(3)}, {0})

    def test_refuses_a_cycle(self) -> None:
        """Two nodes with a third between them stay apart: the third would run before and after both."""
        merging = Merging(3, [(0, 1), (1, 2), (0, 2)])
        self.assertFalse(merging.merge(0, 2))
        self.assertNotEqual(merging.find(0), merging.find(2))

    def test_refuses_nodes_without_an_edge(self) -> None:
        """Nodes that don't depend on each other aren't merged."""
        merging = Merging(2, [])
        self.assertFalse(merging.merge(0, 1))

    def test_joins_only_independent_nodes(self) -> None:
        """Nodes join if there is no path between them, either way, and the order stays right."""
        for seed in range(100):
            draw = random.Random(seed)
            count = draw.randrange(2, 15)
            edges = {(a, b) for a in range(count) for b in range(a + 1, count) if draw.random() < 0.15}
            merging = Merging(count, edges)
            for _ in range(count):
                first, second = merging.find(draw.randrange(count)), merging.find(draw.randrange(count))
                merged = {(merging.find(x), merging.find(y)) for x, y in edges}
                both_ways = _acyclic(count, {*merged, (first, second)}) and _acyclic(count, {*merged, (second, first)})
                self.assertEqual(merging.join(first, second), first != second and both_ways, seed)
                after = {(merging.find(x), merging.find(y)) for x, y in edges}
                self.assertTrue(_acyclic(count, after), seed)
                for x, y in after:
                    self.assertLess(merging.rank(x), merging.rank(y), seed)

    def test_a_cycle_is_an_error(self) -> None:
        """A graph with a cycle isn't accepted, rather than ordered wrongly."""
        with self.assertRaisesRegex(ValueError, "cycle"):
            Merging(2, [(0, 1), (1, 0)])

    def test_random_graphs_stay_acyclic(self) -> None:
        """Any merges leave the graph acyclic, refuse only those that would close a cycle, and keep the order right."""
        for seed in range(150):
            draw = random.Random(seed)
            count = draw.randrange(2, 25)
            place = list(range(count))
            draw.shuffle(place)  # so that numbers say nothing about the order
            edges = {
                (place[a], place[b])
                for a, b in ((draw.randrange(count), draw.randrange(count)) for _ in range(draw.randrange(3 * count)))
                if a < b
            }
            merging = Merging(count, edges)
            for first, second in draw.sample(sorted(edges), len(edges)):
                a, b = merging.find(first), merging.find(second)
                contracted = {
                    (x, y)
                    for x, y in (tuple(a if merging.find(n) == b else merging.find(n) for n in edge) for edge in edges)
                    if x != y
                }
                self.assertEqual(merging.merge(first, second), a != b and _acyclic(count, contracted), seed)
                merged = {(merging.find(x), merging.find(y)) for x, y in edges}
                merged = {(x, y) for x, y in merged if x != y}
                self.assertTrue(_acyclic(count, merged), seed)
                for x, y in merged:
                    self.assertLess(merging.rank(x), merging.rank(y), seed)
                    self.assertIn(y, merging.after(x))


if __name__ == "__main__":
    unittest.main()
