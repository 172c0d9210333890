"""What a file of JAX can define, and the one error for what it gets wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import tfaot
from tfaot.core import programs
from tfaot.core.programs import Programs

MAIN = Path(tfaot.__file__).parents[2] / "tools/jax_export.py"
START = """\
import jax
import jax.numpy as jnp
import numpy as np


"""
"""The first lines of each file, so that a test's own start at line 6."""
MODEL = """\
def model(params, x):
    return {"params": params * 2, "y": [x @ params]}

def input_fn():
    return np.ones((3, 2), np.float32), jax.ShapeDtypeStruct((4, 3), jnp.float32)
"""


class JaxFileTest(unittest.TestCase):
    """Files, in processes as the stage has them."""

    maxDiff = None

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_stage(self, text: str, *flags: str, name: str = "model.py") -> subprocess.CompletedProcess[str]:
        """Exports a file."""
        (self.folder / name).write_text(START + text)
        command = [sys.executable, "-s", "-B", str(MAIN), f"--model={name}", "--out_programs=model.jax", *flags]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}
        return subprocess.run(command, cwd=self.folder, env=variables, check=False, capture_output=True, text=True)

    def exported(self, text: str, *flags: str) -> Programs:
        """Returns what a file gives."""
        done = self.run_stage(text, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return programs.read(str(self.folder / "model.jax"))

    def refused(self, text: str, *flags: str) -> str:
        """Returns the error for a file."""
        done = self.run_stage(text, *flags)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr[done.stderr.index("error: ") :].strip()

    def assert_error(self, text: str, wanted: str) -> None:
        """Compares a message with text that is indented in the test."""
        self.assertEqual(text, textwrap.dedent(wanted).strip("\n"))

    def test_names_and_state(self) -> None:
        """Arguments and results have their paths as names, and those of the state are variables with their initial values."""
        held = self.exported(MODEL, "--state=params=params")
        (program,) = held.programs
        self.assertEqual([(v.label, v.variable) for v in program.arguments], [("params", True), ("x", False)])
        self.assertEqual([(v.label, v.variable) for v in program.results], [("params", True), ("y/0", False)])
        self.assertEqual(held.values["params"].shape, (3, 2))

    def test_same_bytes(self) -> None:
        """Two exports are the same bytes, and have no path of this machine, so caches of builds can share them."""
        self.exported(MODEL)
        first = (self.folder / "model.jax").read_bytes()
        self.exported(MODEL)
        self.assertEqual(first, (self.folder / "model.jax").read_bytes())
        self.assertNotIn(str(self.folder).encode(), first)
        self.assertIn(b"model.py", first)

    def test_golden_inputs(self) -> None:
        """golden_fn gives inputs for each call, by entry point, and for all that the test makes of sizes that differ."""
        golden = "def golden_fn(step, rng, entry_point):\n    return {'x': np.full((4, 3), step), 'n': entry_point == 'call'}\n"
        self.assertEqual(len(self.exported(MODEL + golden, "--sizes=t=4,9").golden), 12)
        held = self.exported(MODEL + golden, "--golden_steps=2")
        self.assertEqual(list(held.golden), ["step0/n", "step0/x", "step1/n", "step1/x"])
        self.assertEqual((held.golden["step1/x"][0, 0], held.golden["step1/n"]), (1, True))

    def test_state_that_is_not_there(self) -> None:
        """A path of the state that nothing has lists what there is."""
        self.assert_error(
            self.refused(MODEL, "--state=params=weights"),
            """
            error: model.py: state names weights
              found: arguments params, x; results params, y/0
              to do: name an argument and the result with its new value, or a path that starts both: {"params": "params"}; \
an argument that is only read is {"params": ""}
            """,
        )

    def test_state_of_another_shape(self) -> None:
        """A new value that doesn't fit its variable names both."""
        self.assert_error(
            self.refused(MODEL, "--state=params=y/0"),
            """
            error: call: 1 new value(s) don't fit the state
              found: the result y/0 is float32[4, 2], and the argument params float32[3, 2]
              to do: return each part of the state under the path that it has in its argument, with its shape and dtype
            """,
        )

    def test_entry_points(self) -> None:
        """A function that the file doesn't have lists those that it has."""
        self.assert_error(
            self.refused(MODEL.replace("model(", "apply("), "--entry_points=Run=predict"),
            """
            error: model.py has no function predict
              found: apply
              to do: define model, or name one of these in the target's entry_points
            """,
        )

    def test_no_shapes(self) -> None:
        """A file without input_fn says what it returns."""
        self.assert_error(
            self.refused("def model(x):\n    return x\n"),
            """
            error: model.py: the arguments of call aren't specified
              found: no input_fn()
              to do: define input_fn(), which returns a jax.ShapeDtypeStruct or an array for each argument, in a tuple
            """,
        )

    def test_other_arguments(self) -> None:
        """An argument that is no array says how to bind it."""
        self.assertRegex(
            self.refused("def model(x):\n    return 1\n\ndef input_fn():\n    return ('relu',)\n"),
            r"^error: the argument x is str, 'relu'\n  found: arguments of compiled code are arrays\n"
            r"  to do: bind other values before the export: functools\.partial",
        )

    def test_line_of_an_exception(self) -> None:
        """An exception in the user's code has the line, and no frames of packages."""
        text = self.refused("def model(x):\n    return x @ jnp.ones(7)\n\ndef input_fn():\n    return (jnp.ones(3),)\n")
        self.assertRegex(text, r"^error: model\.py: exporting call raised \w+Error at model\.py:7\n")
        self.assertNotIn("site-packages", text)

    def test_callbacks(self) -> None:
        """A callback is one error, with its line and what to do instead."""
        text = self.refused(
            "def model(x):\n    jax.debug.print('{}', x)\n    return x\n\ndef input_fn():\n    return (jnp.ones(3),)\n"
        )
        self.assertRegex(
            text,
            r"^error: call calls Python as it runs, at model\.py:7\n(.|\n)*  to do: compute it in JAX, or return what you want to "
            r"print",
        )


if __name__ == "__main__":
    unittest.main()
