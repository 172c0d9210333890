"""Gradients between two entry points: which output and which input belong to which variable."""

from __future__ import annotations

import unittest

from tests.stages.harness import StageTest

PAIR = """\
import tensorflow as tf


class Pair(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = [tf.Variable(tf.ones([3, 3]) * (1 + i), name=name) for i, name in enumerate(["a", "b", "c"])]
        self.momentum = [tf.Variable(tf.zeros([3, 3]), name=f"m_{{w.name[0]}}") for w in self.w]
        spec = tf.TensorSpec([3, 3])
        self.apply = tf.function(self._apply, input_signature=[{signature}])

    @tf.function(input_signature=[tf.TensorSpec([3, 3], name="x")])
    def grad(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(x @ self.w[0] @ self.w[1]) @ self.w[2])
        a, b, c = tape.gradient(loss, self.w)
        return {{"loss": loss, {outputs}}}

    def _apply(self, {parameters}):
        gradients, norm = tf.clip_by_global_norm({gradients}, 1.0)
        for w, m, g in zip(self.w, self.momentum, gradients):
            m.assign(0.9 * m + g)
            w.assign_sub(0.1 * m)
        return norm


model = Pair()
"""
ENTRIES = (("grad", "grad"), ("apply", "apply"))


class GradientsTest(StageTest):
    """Models whose gradients have the same shape, so that only names tell them apart."""

    def pairs(self, **parts: str) -> dict[str, tuple[str, str]]:
        """Returns the output and the input of each variable's gradient."""
        manifest = self.export(PAIR.format(**parts), entry_points=ENTRIES).manifest
        entries = manifest.entry_points
        return {
            manifest.variables[gradient.variable].name: (
                entries[gradient.computed_by].outputs[gradient.output].cpp_name,
                entries[gradient.applied_by].inputs[gradient.input].cpp_name,
            )
            for gradient in manifest.gradients
        }

    def test_list(self) -> None:
        """A list that an entry point returns, and another one takes as its only parameter, has a gradient for each variable.

        Momentum that a gradient passes through isn't what it is the gradient of, and neither are variables that only a norm of all
        gradients changes.
        """
        pairs = self.pairs(
            signature="[spec] * 3", outputs='"gradients": [a, b, c]', parameters="gradients", gradients="gradients"
        )
        self.assertEqual(pairs, {name: (f"grad_gradients_{i}", f"apply_{i}") for i, name in enumerate("abc")})

    def test_order(self) -> None:
        """The input decides which variable a gradient is of, and the name which output that is."""
        pairs = self.pairs(
            signature="spec, spec, spec",
            outputs='"c": c, "b": b, "a": a',
            parameters="b, a, c",
            gradients="[a, b, c]",
        )
        self.assertEqual(pairs, {name: (f"grad_{name}", f"apply_{name}") for name in "abc"})

    def test_other_names(self) -> None:
        """What has another name, or changes two variables, isn't a gradient."""
        pairs = self.pairs(
            signature="spec, spec, spec",
            outputs='"a": a, "b": b, "d": c',
            parameters="a, b, c",
            gradients="[a, b + a, c]",
        )
        self.assertEqual(pairs, {"b": ("grad_b", "apply_b")})


if __name__ == "__main__":
    unittest.main()
