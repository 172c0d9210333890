"""A large repository: e2e/monorepo, with its own Python, packages, platforms, and abseil, and a model in another repository."""

from __future__ import annotations

import sys
import unittest

import inner


class MonorepoTest(unittest.TestCase):
    """One server for everything."""

    def test_monorepo(self) -> None:
        """Protects teams whose repository has a setup of its own: all of it builds, and what the rules refuse has one error."""
        _, site_packages = inner.tensorflow()
        bazel = inner.Bazel(
            "monorepo",
            f"--repo_env=MONOREPO_SITE_PACKAGES={site_packages / 'site-packages'}",
            f"--repo_env=TFAOT_PYTHON={sys.executable}",
            # Otherwise, rules_python 1.0 and later download a Python for tools. Earlier ones don't know the flag.
            *(["--@rules_python//python/config_settings:exec_tools_toolchain=disabled"] if inner.RULE_SETS else []),
        )
        self.addCleanup(bazel.remove)
        with self.subTest("tests of C++ and Python programs, and of the model"):
            results, said = bazel.run("test", "//...")
            self.assertIn("4 tests pass", results)
            self.assertNotIn("WARNING", said)
        with self.subTest("packages of its own"):
            self.assertFalse(bazel.fetched("tfaot_tensorflow"))
        with self.subTest("visibility"):
            self.assertIn("not visible from", bazel.refused("build", "--nobuild", "//outside:intruder"))
        with self.subTest("another platform"):
            # Not the library itself: for that, some rule sets say first that they have no compiler.
            said = bazel.refused("build", "--nobuild", "--platforms=//platforms:board", "//models:ranker_aot.compile")
            self.assertIn(
                "//models:ranker_aot.compile would be compiled for the platform @@//platforms:board, "
                "which lacks @platforms//cpu:x86_64, or @platforms//cpu:aarch64. ",
                said,
            )
            self.assertEqual(said.count("Error in fail"), 1, said)


if __name__ == "__main__":
    unittest.main()
