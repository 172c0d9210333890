"""The command that tries other rule sets: which folders it takes, and what its bazelrc and its report say."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

from tools.dev import try_rule_sets
from tools.dev.try_rule_sets import Outcome


class TryRuleSetsTest(unittest.TestCase):
    def test_modules(self) -> None:
        """Protects people who name a folder that isn't a rule set, or where Bazel's actions wouldn't see it."""
        here = Path(os.environ["TEST_TMPDIR"], "rules_x-1.2")
        here.mkdir()
        with self.assertRaisesRegex(
            ValueError, r"rules_x-1\.2 has no MODULE\.bazel with a module's name: give the folder"
        ):
            try_rule_sets.modules([here])
        (here / "MODULE.bazel").write_text(
            'module(\n    name = "rules_x",\n)\nbazel_dep(name = "y")\n', encoding="utf-8"
        )
        if here.is_relative_to("/tmp"):
            with self.assertRaisesRegex(ValueError, "is under /tmp, which Bazel's sandbox hides"):
                try_rule_sets.modules([here])
        else:
            self.assertEqual({"rules_x": here}, try_rule_sets.modules([here]))

    def test_texts(self) -> None:
        """The bazelrc overrides each module, and the report names each folder, each command, and what failed."""
        named = {"b": Path("/sets/b-2"), "a": Path("/sets/a-1")}
        lines = ["common --override_module=a=/sets/a-1", "common --override_module=b=/sets/b-2"]
        self.assertEqual(lines, try_rule_sets.rc_text(named).splitlines()[-2:])
        report = try_rule_sets.report(
            named, "bazel 7.7.1", [Outcome("build //...", True, ""), Outcome("test //a", False, " (1)")]
        )
        self.assertEqual("bazel 7.7.1, with a-1, b-2:\n\n- `build //...`: passed\n- `test //a`: FAILED (1)\n", report)

    def test_needs_a_checkout(self) -> None:
        """Outside `bazel run`, the command says how to start it."""
        environment = {key: value for key, value in os.environ.items() if key != "BUILD_WORKSPACE_DIRECTORY"}
        done = subprocess.run(
            [sys.executable, "-m", "tools.dev.try_rule_sets", "x"],
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=False,
            text=True,
        )
        self.assertIn(
            "try_rule_sets: run it in a checkout, with ./bazelw run //tools/dev:try_rule_sets -- FOLDER", done.stderr
        )


if __name__ == "__main__":
    unittest.main()
