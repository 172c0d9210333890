"""A few hundred small models: everything that XLA can compile gives TensorFlow's numbers, or a clear error."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np

from tests.breadth import breadth, engine, recipes, structures
from tests.breadth.engine import Case, Operand
from tests.stages import harness
from tfaot.core import isolate

LENGTHS = (6, 5, 2, 0, 9)
"""At the bound, below it, zero, and beyond it, where TensorFlow takes all there is."""

OPEN = """
    tf.cumsum(X, 1)
    tf.cumsum(X[0], exclusive=True)
    tf.math.cumprod(X, -1, reverse=True)
    tf.math.cumulative_logsumexp(X, 1, exclusive=True, reverse=True)
    tf.cumsum(X, 0)
    tf.reduce_sum(tf.cumsum(tf.cumsum(X, 1), 1), 1)
    tf.ones_like(X)
    tf.reduce_sum(tf.ones_like(X), 1)
    tf.sort(X, 1)
    tf.argsort(X, 1)
    tf.reverse(X, [1])
    tf.concat([X, X], 1)
    tf.concat([X, tf.ones([3, 2])], 1)
    tf.pad(X, [[0, 0], [2, 1]])
    tf.tile(X, [1, 2])
    tf.reshape(X, [-1])
    tf.nn.softmax(X, 1)
    X @ tf.transpose(X)
    X[:, 2:5]
    X[:, -3:]
    X[:, 1:-1]
    X[:, tf.newaxis, 3:0:-1]
    X[..., ::-1]
    tf.roll(X, 1, 1)
    tf.concat(tf.split(X, [tf.shape(X)[1] // 2, -1], 1)[::-1], 1)
    {0}[:, 1:{1}]
    tf.nn.max_pool1d(tf.expand_dims(X, 2), 2, 1, 'SAME')
    tf.nn.avg_pool1d(tf.expand_dims(X, 2), 3, 1, 'SAME')
    tf.nn.avg_pool1d(tf.expand_dims(X, 2), 2, 2, 'VALID')
    tf.nn.conv1d(tf.expand_dims(X, 2), tf.ones([3, 1, 2]), 2, 'SAME')
    tf.where(tf.transpose(X) > 0)
    tf.abs(tf.signal.rfft(tf.transpose(X), [4]))
    tf.math.real(tf.signal.ifft2d(tf.reshape(tf.complex(tf.transpose(X), 1.0), [-1, 3, 1])))
    tf.abs(tf.signal.rfft(tf.ones_like(tf.transpose(X))))
    tf.function(lambda x: tf.concat([x, tf.ones_like(x)], 1))(X)
    tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x + tf.cumsum(x, 1)), (0, X))[1]
"""
"""Expressions of `X`, which has a length that only run time knows."""

MISCOUNTED = (
    "tf.unique(X[0])",
    "tf.nn.avg_pool1d(tf.expand_dims(X, 2), 2, 2, 'SAME')",
    "tf.math.in_top_k([0, 1, 0], X, 2)",
    "tf.raw_ops.DiagPart(input=tf.transpose(X) @ X)",
    "tf.raw_ops.AvgPool3DGrad(orig_input_shape=[1, 1, 3, 6, 1], grad=tf.reshape(X, [1, 1, 3, -1, 1]), ksize=[1] * 5,"
    " strides=[1] * 5, padding='VALID')",
    "tf.raw_ops.MirrorPadGrad(input=X, paddings=[[0, 0], [0, 1]], mode='SYMMETRIC')",
)
"""Those for which XLA's numbers would be wrong."""

IN_A_LOOP = "tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, tf.function(lambda y: y + 1.0)(x)), (0, X))[1]"
"""A call that isn't inlined, for which XLA forgets the length."""


def opened(expression: str, length: int) -> Case:
    """Returns a case in which a fed number is the length of `X`."""
    values = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    operands = Operand(values, True), Operand(np.int32(length), True)  # type: ignore[arg-type]
    return Case("open", expression.replace("X", "{0}[:, :{1}]"), operands, sums=True, rtol=1e-5)


class BreadthTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls) -> None:
        harness.warm()

    def test_registry(self) -> None:
        """A new TensorFlow brings no unexamined op: each has a recipe, or a reason for having none."""
        from tensorflow.python.framework import kernels
        from tensorflow.python.util import pywrap_xla_ops

        ops_with_recipes = {*recipes.RECIPES, *(op for ops in recipes.LEFT_OUT.values() for op in ops.split())}
        compared = {
            op
            for op in pywrap_xla_ops.get_cpu_kernel_names()
            if any(kernel.device_type == "CPU" for kernel in kernels.get_registered_kernels_for_op(op).kernel)
        }
        self.assertEqual(sorted(compared - ops_with_recipes), [])

    def test_round(self) -> None:
        """The first round of what docs/measured/numerics.md counts: nothing breaks, and no difference is undocumented."""
        failures = []

        def each(outcome: engine.Outcome) -> None:
            what = breadth.kind(outcome)
            if what not in breadth.COLUMNS:
                failures.append(f"{what}: {outcome.case.text}\n{outcome.details[-1000:]}")

        breadth.run(list(breadth.cases(0)), each)
        self.assertEqual("\n\n".join(failures), "")

    def test_open_sizes(self) -> None:
        """Sizes that only run time knows: results are TensorFlow's, or the build names the line where they would not be."""
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        runner = engine.Engine(folder, flags=("-O0",))
        cases = [opened(text.strip(), length) for text in OPEN.strip().splitlines() for length in LENGTHS]
        outcomes = [outcome for group in engine.chunks(cases) for outcome in runner.outcomes(group)]
        wrong = [
            f"{outcome.kind}: {outcome.case.text}\n{outcome.details[-1000:]}"
            for outcome in outcomes
            if outcome.kind != engine.PASSES
        ]
        self.assertEqual("\n\n".join(wrong), "")
        for text in MISCOUNTED:
            (outcome,) = runner.outcomes([opened(text, 4)])
            self.assertEqual(outcome.kind, engine.REFUSED)
            self.assertRegex(
                outcome.details, r"XLA computes wrong results for \w+ where[^\n]*\n\n    \w+ '[\w/]+' at model.py:\d+\n"
            )
        (outcome,) = runner.outcomes([opened(IN_A_LOOP, 4)])
        self.assertIn("XLA computes wrong results for calls in loops and branches where a size", outcome.details)

    def test_passes(self) -> None:
        """No pass raises an exception on any op or structure, in another round: it would end a user's build, or be left out."""
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        drawn = list(breadth.cases(1))
        failed, passed = isolate.run_isolated(lambda: engine.failed_passes(drawn, folder), what="applying passes")
        self.assertEqual("\n".join(failed), "")
        self.assertGreater(passed, len(drawn) * 0.8)

    def test_names(self) -> None:
        """Outputs aren't mixed up if their names could confuse C++, the generated class, or the compiler."""
        value = np.arange(3, dtype=np.float32)
        named = [
            Case("Mul", f"{{0}} * {number}", (Operand(value, True),), name=name)
            for number, name in enumerate(structures.NAMES)
        ]
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        kinds = {outcome.case.name: outcome.kind for outcome in engine.Engine(folder, flags=("-O0",)).outcomes(named)}
        self.assertEqual(kinds, dict.fromkeys(structures.NAMES, engine.PASSES))

    def test_a_wrong_number_shows(self) -> None:
        """The comparison detects a value, a NaN, a sign of zero, a shape, and a dtype that differ from TensorFlow's."""
        case = Case("Mul", "", ())
        want = np.array([1, np.nan, 0.0, np.inf], np.float32)
        self.assertIsNone(engine.difference(case, want, want.copy()))
        for index, wrong in ((0, 1.0001), (1, 1.0), (2, -0.0), (2, 1e-6), (3, 3e38), (3, -np.inf), (0, np.nan)):
            got = want.copy()
            got[index] = wrong
            difference = engine.difference(case, want, got)
            assert difference is not None
            self.assertEqual(difference.theirs.shape, (1,), msg=f"{index}: {wrong}")
        self.assertIsNotNone(engine.difference(case, want, want[:3]))
        self.assertIsNotNone(engine.difference(case, want, want.astype(np.float64)))
        self.assertIsNotNone(engine.difference(case, np.array([7]), np.array([8])))


if __name__ == "__main__":
    unittest.main()
