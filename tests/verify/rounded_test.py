"""What rounded weights change, beside the model's own weights."""

from __future__ import annotations

import re
import unittest

import numpy as np

from tests.stages.harness import StageTest
from tfaot.core.manifest import TOLERANCE
from tfaot.export.rewrites.narrow import to_int8
from tfaot.render.render import deviations

MODEL = """\
import numpy as np
import tensorflow as tf

kernel = tf.Variable(np.random.default_rng(3).standard_normal((64, 80), np.float32), name="kernel")
count = tf.Variable(1.0, name="count")


@tf.function(input_signature=[tf.TensorSpec((1, 64), name="x")])
def model(x):
    y = tf.matmul(x, kernel)
    return {"best": tf.argmax(y, 1), "same": x + 1.0, "y": y * count.assign_add(1.0)}
"""
"""Writes a variable, so that calls differ."""


class RoundedTest(StageTest):
    """The verify stage, for a target with weights in another dtype."""

    def test_deviations(self) -> None:
        """Protects the figure: the largest change of any call, for outputs that are floats. Results have rounded weights."""
        exported = self.export(
            MODEL, frozen=("kernel",), golden_steps=2, weights_dtype="int8", weights_tolerance="0.03"
        )
        goldens = exported.goldens()
        kernel = np.random.default_rng(3).standard_normal((64, 80), np.float32)
        rounded = to_int8(kernel, (0,))
        assert rounded is not None
        wanted = 0.0
        for step in (0, 1):
            x = exported.golden_inputs[f"step{step}/x"].astype(np.float64)
            exact, changed = x @ kernel, x @ rounded
            wanted = max(wanted, float(np.abs(exact - changed).max() / np.abs(exact).max()))
            np.testing.assert_allclose(goldens[f"step{step}/y"], changed * (step + 2), rtol=1e-4, atol=1e-4)
        deviations = {name: value for name, value in goldens.items() if name.endswith("/deviation")}
        self.assertEqual(set(deviations), {"Run/same/deviation", "Run/y/deviation"})
        self.assertEqual(deviations["Run/same/deviation"].tolist(), [0, 0.03])
        self.assertEqual(deviations["Run/y/deviation"][1], 0.03)
        np.testing.assert_allclose(deviations["Run/y/deviation"][0], wanted, rtol=1e-3)
        self.assertTrue(0.001 < wanted < 0.03)
        # The generated test reads them last, in this order.
        self.assertEqual([*goldens][-4:], [*deviations, "unverified/size", "unverified"])

    def test_the_generated_test(self) -> None:
        """Protects readers of the test: it reads each figure, in the goldens' order, and only if weights are rounded."""
        exported = self.export(MODEL, frozen=("kernel",), weights_dtype="bfloat16")
        goldens = exported.goldens()
        names = [re.sub("/deviation$", "", name) for name in goldens if name.endswith("/deviation")]
        self.assertEqual(deviations(exported.manifest), names)
        self.assertEqual(exported.manifest.weights.tolerance, TOLERANCE)
        self.assertEqual(deviations(self.export(MODEL).manifest), [])


if __name__ == "__main__":
    unittest.main()
