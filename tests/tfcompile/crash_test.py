"""A compiler that crashes: the error names the node and the user's line."""

from __future__ import annotations

import os
import unittest
from unittest import mock

from tests.stages.harness import PREAMBLE, StageTest
from tfaot.tfcompile import compiler
from tfaot.tfcompile.inputs import Inputs

LAYERS = """\
def model_fn(x, n):
    y = tf.tanh(x)
    z = tf.sin(y)
    v = tf.compat.v1.get_variable("v", [2])
    with tf.control_dependencies([v.assign_add(z)]):
        return tf.cos(z) + tf.exp(y)
"""


class MessageTest(StageTest):
    """What the user sees."""

    def refused(self, fatal: str) -> str:
        """Compiles with a compiler that aborts if a graph has an op of this type."""
        exported = self.export(PREAMBLE + LAYERS)
        run = compiler.run

        def aborts(isa: str, given: Inputs, outputs: compiler.Outputs) -> compiler.Texts:
            if any(node.op == fatal for node in given.read_graph().node):
                os.write(2, b"last words\n")
                os.kill(os.getpid(), 6)
            return run(isa, given, outputs)

        with mock.patch.object(compiler, "run", aborts):
            text = self.error_of(self.compile, exported)
        return "\n".join(line for line in text.splitlines() if "last words" in line or not line.startswith("    "))

    def test_node_and_line(self) -> None:
        """The node and its line are named, for a node that computes and for one that only writes."""
        for op, name, line in (("Sin", "Sin", 12), ("AssignAddVariableOp", "AssignAddVariableOp", 14)):
            with self.subTest(op):
                text = self.refused(op)
                self.assertIn(
                    f"compiling t::Model for x86-64-v3: the compiler was killed by SIGABRT, by {op} {name!r} "
                    f"at model.py:{line}\n",
                    text,
                )
                self.assertIn("    last words\n", text)
                self.assertIn(
                    "  found: without it, what comes before it compiles\n"
                    "  to do: write in another way what the model computes there, and report the model: "
                    "a compiler should not die",
                    text,
                )

    def test_not_the_graph(self) -> None:
        """If a part that computes nothing also crashes, no node is blamed."""
        text = self.refused("Placeholder")
        self.assertIn("for x86-64-v3: the compiler was killed by SIGABRT\n", text)
        self.assertIn("  to do: look for an unknown flag or an op that XLA cannot take", text)


if __name__ == "__main__":
    unittest.main()
