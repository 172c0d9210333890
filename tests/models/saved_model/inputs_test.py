"""The inputs that a target names reach the generated test of a model that has no Python file."""

from __future__ import annotations

import sys
import unittest

from tfaot.core import safetensors


class InputsTest(unittest.TestCase):
    """The goldens of //tests/models/saved_model:files_aot."""

    goldens: str

    def test_values(self) -> None:
        """Protects users of golden_inputs: what the generated test feeds is what the file returned, for each step."""
        goldens = safetensors.read(self.goldens)
        for step in range(3):
            self.assertEqual([int(value) // 1000 for value in goldens[f"step{step}/x"]], [step + 1] * 4)


if __name__ == "__main__":
    InputsTest.goldens = sys.argv.pop()
    unittest.main()
