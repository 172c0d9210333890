"""The smallest repository of a user: e2e/smoke, with MODULE.bazel and with WORKSPACE."""

from __future__ import annotations

import re
import unittest

import inner


class SmokeTest(unittest.TestCase):
    """One server for both modes, because most of a short build is Bazel's start."""

    def setUp(self) -> None:
        self.bazel = inner.Bazel("smoke", *inner.installed())
        self.addCleanup(self.bazel.remove)

    def check_program(self, *mode: str) -> None:
        """Runs the program that embeds the model."""
        scores, said = self.bazel.run("run", *mode, "//:score")
        self.assertEqual(scores.split(), ["1.5", "6"])
        self.assertNotIn("WARNING", said)

    def check_tolerant(self, *mode: str) -> None:
        """Checks that a pass that raises an exception would end no build here (tests/compile/table_test.py raises one)."""
        actions, _ = self.bazel.run(
            "aquery", *mode, "--include_param_files", "mnemonic(TfaotCompile, deps(//:scorer_aot))"
        )
        self.assertIn("--tolerant", actions)

    def test_both_modes(self) -> None:
        """Protects new users: what the install instructions show is enough, and Bazel prints no warning about it."""
        with self.subTest("MODULE.bazel"):
            results, said = self.bazel.run("test", "//...")
            self.assertIn("2 tests pass", results)
            self.assertNotIn("WARNING", said)
            self.check_program()
            self.check_tolerant()
            self.assertFalse(self.bazel.fetched("tfaot_graphviz"), "only reports need it")
        with self.subTest("no Python toolchain"):
            # With rules_python, the toolchain would be a second Python from a code host.
            ours = "//:scorer_aot + @rules_tfaot//tools:check + @rules_tfaot//py/tfaot/run"
            rules, _ = self.bazel.run(
                "cquery", "--output=build", f'kind("py_(library|binary|test) rule", deps({ours}))'
            )
            defined = re.findall(r"^# Rule py_\w+ defined at .*\n#   (\S+?):", rules, re.MULTILINE)
            self.assertGreater(len(defined), 10)
            for file in defined:
                self.assertEqual("rules/private/python.bzl", "/".join(file.split("/")[-3:]))
        with self.subTest("a tool"):
            said, _ = self.bazel.run("run", "@rules_tfaot//tools:check", "--", "scorer.py")
            self.assertIn("scorer.py: nothing stands in the way", said)
        with self.subTest("WORKSPACE"):
            self.check_program("--config=workspace")
            self.check_tolerant("--config=workspace")


if __name__ == "__main__":
    unittest.main()
