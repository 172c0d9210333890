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

NEVER_REFUSED = 3
"""How many of `recipes.REFUSED` the test compiles. Each is a separate model."""


class BreadthTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls) -> None:
        harness.warm()

    def test_registry(self) -> None:
        """A new TensorFlow brings no unexamined op: each has a recipe, or a reason for having none."""
        from tensorflow.python.framework import kernels
        from tensorflow.python.util import pywrap_xla_ops

        known = {*recipes.RECIPES, *(op for ops in recipes.LEFT_OUT.values() for op in ops.split())}
        compared = {
            op
            for op in pywrap_xla_ops.get_cpu_kernel_names()
            if any(kernel.device_type == "CPU" for kernel in kernels.get_registered_kernels_for_op(op).kernel)
        }
        self.assertEqual(sorted(compared - known), [])

    def test_round(self) -> None:
        """The first round of what docs/measured/breadth.md counts: nothing breaks, and no difference is undocumented."""
        drawn = list(breadth.cases(0))
        some = sorted(recipes.REFUSED)[:NEVER_REFUSED]
        failures = []

        def each(outcome: engine.Outcome) -> None:
            what = breadth.kind(outcome)
            wanted = (engine.REFUSED,) if outcome.case.op in recipes.REFUSED else breadth.COLUMNS
            if what not in wanted:
                failures.append(f"{what}: {outcome.case.text}\n{outcome.details[-1000:]}")

        breadth.run([case for case in drawn if case.op not in recipes.REFUSED or case.op in some], each)
        self.assertEqual("\n\n".join(failures), "")

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
            found = engine.difference(case, want, got)
            assert found is not None
            self.assertEqual(found.theirs.shape, (1,), msg=f"{index}: {wrong}")
        self.assertIsNotNone(engine.difference(case, want, want[:3]))
        self.assertIsNotNone(engine.difference(case, want, want.astype(np.float64)))
        self.assertIsNotNone(engine.difference(case, np.array([7]), np.array([8])))


if __name__ == "__main__":
    unittest.main()
