"""Programs of JAX of many kinds: their graphs compute what JAX does, and errors have advice that works."""

from __future__ import annotations

import json
import os
import tempfile
import unittest
import zipfile
from pathlib import Path

from tests.breadth import jax_breadth
from tests.stages import harness
from tfaot.core import isolate

PROGRAMS = Path(os.environ.get("JAX_PROGRAMS", harness.ROOT / "tests/breadth/programs.zip"))
"""What jax_programs.py writes. Bazel makes it; by hand, run that file in a Python with JAX, and set the variable."""


class JaxProgramsTest(unittest.TestCase):
    maxDiff = None

    def test_programs(self) -> None:
        """Protects JAX's users: all programs are right, but those of the page's exceptions, whose errors have advice that works."""
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(PROGRAMS) as archive:
            advice = json.loads(archive.read("index.json"))["advice"]
            results = isolate.run_isolated(lambda: jax_breadth.results(archive, Path(folder)), what="converting")
        self.assertGreaterEqual(len(results), 183)
        wrong = [
            f"{family}, {name}: {said}"
            for family, name, said in results
            if family != jax_breadth.REFUSED and said != "right"
        ]
        self.assertEqual("\n".join(wrong), "")
        for family, name, said in results:
            if family == jax_breadth.REFUSED:
                with self.subTest(name):
                    self.assertIn(advice[name], said)


if __name__ == "__main__":
    unittest.main()
