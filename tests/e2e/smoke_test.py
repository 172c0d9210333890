"""The smallest repository of a user: e2e/smoke, with MODULE.bazel and with WORKSPACE."""

from __future__ import annotations

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

    def test_both_modes(self) -> None:
        """Protects new users: what the install instructions show is enough, and Bazel prints no warning about it."""
        with self.subTest("MODULE.bazel"):
            results, said = self.bazel.run("test", "//...")
            self.assertIn("2 tests pass", results)
            self.assertNotIn("WARNING", said)
            self.check_program()
        with self.subTest("WORKSPACE"):
            self.check_program("--config=workspace")


if __name__ == "__main__":
    unittest.main()
