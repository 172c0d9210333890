"""What XLA fuses in the example of a vector sum's mean."""

from __future__ import annotations

import re
import unittest

from tests.stages.harness import ROOT

HLO = ROOT / "examples/vector_mean/vector_mean_aot.optimized_hlo.txt"


class FusedTest(unittest.TestCase):
    """The optimized program of //examples/vector_mean."""

    def test_one_kernel(self) -> None:
        """Protects the example's claim: the sum of two vectors and its mean are one kernel, which stores no vector."""
        functions = dict(re.findall(r"^(?:ENTRY )?%(\S+) \(.*?\{\n(.*?)^\}", HLO.read_text(), re.DOTALL | re.MULTILINE))
        (entry,) = [body for body in functions.values() if "XLA_Retvals" in body]
        found = re.findall(r"= \S+ ([a-z-]+)\(", entry)
        self.assertEqual(found, ["parameter", "parameter", "fusion", "tuple"])
        (called,) = re.findall(r"calls=%(\S+?),", entry)
        inside = re.findall(r"= \S+ ([a-z-]+)\(", functions[called])
        self.assertEqual(sorted(set(inside) - {"constant", "parameter"}), ["add", "multiply", "reduce"])


if __name__ == "__main__":
    unittest.main()
