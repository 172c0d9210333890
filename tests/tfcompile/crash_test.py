"""A compiler that crashes: the error names the node and the user's line."""

from __future__ import annotations

import os
import unittest
from collections.abc import Callable
from unittest import mock

from tests.stages.harness import PREAMBLE, Exported, StageTest
from tfaot.hlo import hlo
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

    def extract(self, exported: Exported) -> None:
        """Runs the HLO stage."""
        hlo.extract(
            hlo.Request(
                name="model",
                cpu="x86-64-v3",
                xla_flags=(),
                out_hlo=exported.path("hlo.pb"),
                out_hlo_text=exported.path("hlo.txt"),
                out_optimized_hlo=exported.path("optimized_hlo.txt"),
                out_drawing=exported.path("hlo.dot"),
                config=exported.config_path(),
                **{name: exported.path(name) for name in ("manifest", "graph", "sources")},
            )
        )

    def refused(self, fatal: str, stage: Callable[[Exported], None] | None = None) -> str:
        """Compiles with a compiler that aborts if a graph has an op of this type."""
        exported = self.export(PREAMBLE + LAYERS)
        run = compiler.run

        def aborts(isa: str, inputs: Inputs, outputs: compiler.Outputs) -> compiler.Made:
            if any(node.op == fatal for node in inputs.read_graph().node):
                os.write(2, b"last words\n")
                os.kill(os.getpid(), 6)
            return run(isa, inputs, outputs)

        with mock.patch.object(compiler, "run", aborts):
            text = self.error_of(stage or self.compile, exported)
        return "\n".join(line for line in text.splitlines() if "last words" in line or not line.startswith("    "))

    def test_node_and_line(self) -> None:
        """The error names the node and its line, for a node that computes and for one that only writes."""
        for op, name, line in (("Sin", "Sin", 12), ("AssignAddVariableOp", "AssignAddVariableOp", 14)):
            with self.subTest(op):
                text = self.refused(op)
                self.assertIn(
                    f"compiling t::Model for x86-64-v3: the compiler was killed by SIGABRT on {op} {name!r} "
                    f"at model.py:{line}\n",
                    text,
                )
                self.assertIn("    last words\n", text)
                self.assertIn(
                    "  found: everything before it compiles\n"
                    "  to do: rewrite what the model computes there, and report the model: "
                    "a compiler shouldn't crash",
                    text,
                )

    def test_other_stage(self) -> None:
        """The HLO stage also names the node, and doesn't mistake a part that compiles for the model."""
        text = self.refused("Sin", self.extract)
        self.assertIn("the compiler was killed by SIGABRT on Sin 'Sin' at model.py:12\n", text)

    def test_not_the_graph(self) -> None:
        """If a part that computes nothing also crashes, no node is blamed."""
        text = self.refused("Placeholder")
        self.assertIn("for x86-64-v3: the compiler was killed by SIGABRT\n", text)
        self.assertIn("  to do: look for an unknown flag, or for an op that XLA can't compile", text)


if __name__ == "__main__":
    unittest.main()
