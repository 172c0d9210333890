"""The stages' mains, which share a folder."""

import sys
import unittest
from pathlib import Path

TOOLS = Path(__file__).absolute().parents[2] / "tools"


class MainsTest(unittest.TestCase):
    """How Python sees the folder."""

    def test_names(self) -> None:
        """Protects Python's own modules: without `-P`, which Python 3.10 lacks, it searches a main's folder first."""
        names = {path.stem for path in TOOLS.glob("*.py")}
        self.assertIn("export", names)
        self.assertEqual(names & sys.stdlib_module_names, set())


if __name__ == "__main__":
    unittest.main()
