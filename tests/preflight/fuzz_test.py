"""Broken graphs never crash the check: a sample of what //tests/preflight:fuzz tries."""

from __future__ import annotations

import unittest
from pathlib import Path

from tests.preflight import fuzz
from tests.stages.harness import StageTest
from tfaot.core import isolate
from tfaot.preflight import run

COUNT = 100


class FuzzTest(StageTest):
    """Mutants of graphs with functions, loops, and branches."""

    def test_mutants(self) -> None:
        """Protects users with broken files: each gets a report, and no exception."""
        counts, wrong = fuzz.run(COUNT)
        self.assertEqual("\n".join(wrong), "")
        self.assertEqual(sum(counts.values()), COUNT)
        self.assertGreater(min(counts[verdict] for verdict in ("blocked", "compiles", "unreadable")), 0)

    def test_missing_function(self) -> None:
        """Protects users of incomplete graphs: a call of a function that the graph lacks is a finding with its name."""
        path = self.folder / "graph.pb"

        def write() -> None:
            import tensorflow as tf

            with tf.Graph().as_default() as graph:
                x = tf.compat.v1.placeholder(tf.float32, [3], "x")
                tf.identity(tf.function(tf.sin, autograph=False)(x), name="result")
            proto = graph.as_graph_def()
            proto.ClearField("library")
            Path(path).write_bytes(proto.SerializeToString())

        isolate.run_isolated(write, what="writing")
        (entry,) = run.of_path(str(path), shown="graph.pb").entry_points
        (finding,) = entry.findings
        self.assertEqual((finding.kind, finding.op), ("missing_function", "PartitionedCall"))
        self.assertRegex(finding.what, r"the graph lacks the function __inference_\S+")


if __name__ == "__main__":
    unittest.main()
