"""The command that tries another TensorFlow: what it locks, which module it makes, and what its report says."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import unittest
from pathlib import Path

from tools.dev import try_tensorflow
from tools.dev.try_tensorflow import Outcome

TOOL = str(Path(try_tensorflow.__file__))


class TryTensorflowTest(unittest.TestCase):
    def test_lock_input(self) -> None:
        """Only TensorFlow and the Keras of its series change, and requirements are added. A nightly's Keras is a nightly."""
        text = "# tensorflow-cpu==\ntensorflow-cpu==2.21.0\ntf-keras==2.21.0\nnumpy==2.2.6\n"
        for wanted, expected in (
            ("2.20.0", "tensorflow-cpu==2.20.0\ntf-keras==2.20.*\n"),
            ("tensorflow==2.20.1", "tensorflow==2.20.1\ntf-keras==2.20.*\n"),
            ("tf-nightly-cpu==2.22.0.dev2", "tf-nightly-cpu==2.22.0.dev2\ntf-keras-nightly==2.22.*\n"),
        ):
            self.assertEqual(
                f"# tensorflow-cpu==\n{expected}numpy==2.2.6\nprotobuf<7\n",
                try_tensorflow.lock_input(text, try_tensorflow.requirement(wanted), ["protobuf<7"]),
            )

    def test_lock_settings(self) -> None:
        """The packages are locked for this Python alone, and the nightly Keras brings no second TensorFlow."""
        text = (Path(__file__).parents[3] / "tools/python/pyproject.toml").read_text(encoding="utf-8")
        for wanted, dropped in (("tf-nightly-cpu==2.22.0.dev2", True), ("tf-nightly==2.22.0.dev2", False)):
            changed = try_tensorflow.lock_settings(text, try_tensorflow.requirement(wanted))
            self.assertNotIn("3.10", changed)
            self.assertEqual(dropped, "\"tf-nightly ; python_version < '0'\"" in changed)

    def test_new_python(self) -> None:
        """A Python that the pinned NumPy and h5py have no wheels for gets later ones."""
        for python, pinned in (("3.13", True), ("3.14", False)):
            wanted = dataclasses.replace(try_tensorflow.requirement("2.22.0"), python=python)
            self.assertEqual(pinned, "numpy==2.2.6" in try_tensorflow.lock_input("numpy==2.2.6\n", wanted, []))
            changed = try_tensorflow.lock_settings("override-dependencies = [\n]\n", wanted)
            self.assertEqual(pinned, '"h5py>=3.15"' not in changed)

    def test_module(self) -> None:
        """The copy of this repository's MODULE.bazel installs the lock, and only its own extension changes."""
        text = (Path(__file__).parents[3] / "MODULE.bazel").read_text(encoding="utf-8")
        changed = try_tensorflow.module_text(text)
        self.assertEqual(text, changed.replace('tfaot.tensorflow(requirements_lock = "//:try.lock")\n', ""))
        self.assertNotEqual(text, changed)
        with self.assertRaisesRegex(ValueError, "has no line 'tfaot = use_extension"):
            try_tensorflow.module_text("module()\n")

    def test_changes(self) -> None:
        """What is new, gone, or different is named, and nothing else."""
        self.assertEqual(["The ops are the same."], try_tensorflow.changes("ops", {"A": "1"}, {"A": "1"}))
        self.assertEqual(
            ["New ops (1): `C`.", "Gone ops (1): `B`.", "`A` differs:", "", "    -1", "    +2", ""],
            try_tensorflow.changes("ops", {"A": "0\n1", "B": ""}, {"A": "0\n2", "C": ""}),
        )

    def test_outcomes(self) -> None:
        """A test that wasn't built counts, too."""
        events = [
            {"id": {"targetConfigured": {"label": "//:a"}}, "configured": {"testSize": "SMALL"}},
            {"id": {"targetConfigured": {"label": "//:b"}}, "configured": {"testSize": "SMALL"}},
            {"id": {"targetConfigured": {"label": "//:c"}}, "configured": {}},
            {"id": {"testSummary": {"label": "//:b"}}, "testSummary": {"overallStatus": "PASSED"}},
        ]
        self.assertEqual(
            [Outcome("//:a", "NO STATUS"), Outcome("//:b", "PASSED")], try_tensorflow.outcomes(map(json.dumps, events))
        )

    def test_report(self) -> None:
        """The report names each test that didn't pass."""
        self.assertEqual(
            "# TensorFlow 2.20.0, beside 2.21.0\n\n## Ops\n\nThe ops are the same.\n\n## Tests\n\n1 of 2 passed.\n\n"
            "- `//:a`: FAILED\n",
            try_tensorflow.report(
                version="2.20.0",
                used="2.21.0",
                sections={"Ops": ["The ops are the same."]},
                tests=[Outcome("//:a", "FAILED"), Outcome("//:b", "PASSED")],
            ),
        )

    def test_bad_version(self) -> None:
        """A word that is no version is refused before anything is downloaded."""
        result = subprocess.run(
            [sys.executable, TOOL, "nightly", "--require=protobuf<7"], check=False, capture_output=True, text=True
        )
        self.assertEqual(1, result.returncode)
        self.assertEqual(
            "try_tensorflow: 'nightly' is no version of TensorFlow; give one like 2.20.0, or a requirement like "
            "tf-nightly-cpu==2.22.0.dev20260905\n",
            result.stderr,
        )


if __name__ == "__main__":
    unittest.main()
