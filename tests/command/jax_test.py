"""The command `tfaot` with models of JAX."""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
from pathlib import Path

from running import run

ROOT = Path(__file__).parents[2]
PACKAGES = Path(os.environ.get("JAX_PACKAGES") or next(ROOT.parent.glob("*tfaot_jax/site-packages"), ""))
"""The folder of JAX's packages. Bazel brings it; by hand, set the variable."""


class JaxTest(unittest.TestCase):
    def test_compiled(self) -> None:
        """Protects JAX's users without Bazel: the command exports with JAX of a folder, and verifies a class that trains."""
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as name:
            folder = Path(name)
            shutil.copy(ROOT / "examples/jax/mlp.py", folder)
            words = ["--framework=jax", f"--deps={PACKAGES}", "--state=params=params", "--state=momentum=momentum"]
            words += ["--entry-points=train", "--entry-points=predict", "--cpp-class=me::Mlp", "--out=out"]
            done = run("compile", "mlp.py", *words, cwd=folder)
            self.assertEqual((done.returncode, done.stdout), (0, "wrote out\n"), done.stderr)
            self.assertIn("\nrunning the test: ", done.stderr)
            header = next((folder / "out").rglob("mlp.h"))
            for part in ("train_x()", "predict_y()", "Save("):
                self.assertIn(part, header.read_text())
            model = folder / "mlp.py"
            model.write_text(model.read_text().replace("    return {", "    jax.debug.print('{}', x)\n    return {", 1))
            done = run("compile", "mlp.py", *words, cwd=folder)
            self.assertRegex(done.stderr, r"error: \w+ calls Python as it runs, at mlp\.py:11\n  found: a callback: ")


if __name__ == "__main__":
    unittest.main()
