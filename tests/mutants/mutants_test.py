"""Measures the measurement of the generated test: it detects faults, and it detects a blind test."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import unittest
from pathlib import Path

import mutate
import report
from model import Model, Toolchain, Verdict
from program import Argument, Mutant, Program, Unknown


class MutantsTest(unittest.TestCase):
    """One model, compiled once. Each test runs mutants of it."""

    model: Model
    driver: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        cls.model = Model(GENERATED / "tests/mutants/small_aot", GENERATED, Toolchain(Path(folder.name)))
        cls.driver = cls.model.build()

    def run_mutants(self, mutants: list[Mutant]) -> list[Verdict]:
        """Runs mutants after the original."""
        verdicts = self.model.run(self.driver, [*mutate.originals(self.model), *mutants])
        self.assertEqual([v.tested for v in verdicts[:4]], ["ok"] * 4, "the original alarms")
        return verdicts[4:]

    def test_classes(self) -> None:
        """Every class of fault that the model has room for is found in its program, and one of each is caught, value by value."""
        by_name: dict[str, list[Mutant]] = {}
        for mutant in self.model.mutants:
            by_name.setdefault(mutant.name, []).append(mutant)
        self.assertEqual(
            sorted(by_name),
            [
                "a float count off by one",
                "a wrong seed word",
                "an index off by one",
                "drop a bias",
                "exchange two variables",
                "flip an integer",
                "reduce over n - 1",
                "round a weight to 8 bits",
                "scale a kernel by 1.001",
                "shift padding by one",
                "skip an update",
                "skip another call",
                "swap two filters",
                "transpose a weight",
                "use a masked element",
                "wrong epilogue bound",
                "wrong state at a step",
            ],
        )
        for verdict in self.run_mutants([places[-1] for places in by_name.values()]):
            with self.subTest(verdict.mutant.name):
                self.assertTrue(verdict.changes and verdict.caught, verdict)
                self.assertFalse(verdict.survives)
                self.assertGreater(verdict.values, 0)
                self.assertGreaterEqual(verdict.noticed, report.AIM * verdict.values)

    def test_no_fault(self) -> None:
        """A fault that changes no bit doesn't count as one that a test misses."""
        scaled = next(m for m in self.model.mutants if m.name == "scale a kernel by 1.001")
        (verdict,) = self.run_mutants([dataclasses.replace(scaled, value=1.0)])
        self.assertEqual((verdict.differs, verdict.changes, verdict.values), (False, False, 0))

    def test_rounding(self) -> None:
        """A change that rounding could have caused counts as different, but not as a changed result."""
        scaled = next(m for m in self.model.mutants if m.name == "scale a kernel by 1.001")
        (verdict,) = self.run_mutants([dataclasses.replace(scaled, value=1 + 2.0**-23)])
        self.assertEqual((verdict.differs, verdict.changes, verdict.values), (True, False, 0), verdict)

    def test_steps(self) -> None:
        """A wrong state at a step changes nothing in the steps before it, and in none if the program doesn't run so often."""
        first = next(m for m in self.model.mutants if m.kind == "state" and m.b == 0)
        steps = self.run_mutants([dataclasses.replace(first, b=step) for step in range(3)])
        self.assertEqual([(v.changes, v.call if v.changes else -1) for v in steps], [(True, 0), (True, 1), (False, -1)])
        self.assertGreater(steps[0].values, 0)

    def test_ended(self) -> None:
        """A mutant that a signal ends, like one that never ends by itself, changes a result and counts as caught."""
        ended = Verdict(Mutant("a", "", "x86-64-v3", "skip", 1), "signal 24", "signal 24", False, 0.0, 0, 0, 0, "")
        self.assertTrue(ended.changes and ended.caught)

    def test_survivors_show(self) -> None:
        """A page lists what was missed. A run that misses too much, raises false alarms, or detects nothing fails."""
        fault = Mutant("drop a bias", "products 3", "x86-64-v3", "bias", 4)
        fine = Mutant("unmutated", "", "x86-64-v3", "none", -1)
        caught = Verdict(fault, "ok", "exit 1", True, 0.5, 7, 7, 0, "loss:0")
        missed = dataclasses.replace(caught, tested="ok", noticed=0)
        passed = Verdict(fine, "ok", "ok", False, 0.0, 0, 0, 0, "")
        self.assertTrue(report.summary({"//a": [passed, caught]}).reached)
        self.assertFalse(report.summary({"//a": [passed, caught, missed]}).reached)
        self.assertFalse(report.summary({"//a": [dataclasses.replace(passed, tested="exit 1"), caught]}).reached)
        seen = report.summary({"//a": [passed, dataclasses.replace(caught, noticed=6)]})
        self.assertFalse(seen.reached, "one of seven wrong values is tolerated")
        self.assertIn("They compare 7 values that change, and notice 6 of these, 85.71 %.", seen.text)
        dead = report.summary({"//a": [passed, caught], "//b": [passed, dataclasses.replace(missed, change=0.0)]})
        self.assertFalse(dead.reached)
        self.assertIn("No mutant changes a result of 1 model(s): //b.", dead.text)
        self.assertIn(
            "| //a | x86-64-v3 | drop a bias | products 3 | 0.5 | `loss:0`, call 0 |",
            report.page({"//a": [passed, caught, missed]}, 7),
        )

    def test_unknown(self) -> None:
        """An unknown statement is an error, because it couldn't get faults."""
        text = "template <bool kHooked>\nbool Run(const ::tfaot::Instance& instance) {\n  Surprise(b[0] + 0);\n  return true;\n}\n"
        with self.assertRaisesRegex(Unknown, r"unknown statement: Surprise\(b\[0\] \+ 0\);"):
            Program(
                text,
                isa="x86-64-v3",
                name="",
                first_site=0,
                arguments=[Argument("x", "float32", (2,), 8, False, False)],
                runs=1,
                constant_bytes={},
                is_float=lambda symbol: False,
            )

    def test_choice(self) -> None:
        """A selection of mutants depends only on the seed, alternates models and classes, and has no more than exist."""
        mutants = {
            label: [Mutant(name, str(index), "x86-64-v3", "skip", index) for name in names for index in range(5)]
            for label, names in (("//a", "mn"), ("//b", "m"))
        }
        first = mutate.choose(mutants, 6, 1)
        self.assertEqual(first, mutate.choose(mutants, 6, 1))
        self.assertEqual([m.name for m in first["//a"]], ["m", "n", "m"])
        self.assertEqual(len(first["//b"]), 3)
        self.assertEqual(sum(map(len, mutate.choose(mutants, 100, 1).values())), 15)


if __name__ == "__main__":
    GENERATED = Path(sys.argv[1]).absolute().parents[2]
    unittest.main(argv=sys.argv[:1])
