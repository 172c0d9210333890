"""The benchmark of weights in fewer bits, without its processes."""

import unittest

from benchmarks import harness, narrow, summary


def measured(*rounds: float) -> harness.Measured:
    """Returns measurements of one batch each."""
    return harness.Measured(
        version="1",
        difference=summary.Difference(0.002, 0.1),
        cold_start=0.1,
        resident=1,
        size=0,
        rounds=tuple((batch,) for batch in rounds),
    )


class NarrowTest(unittest.TestCase):
    """What the page shows."""

    def test_page(self) -> None:
        """Protects readers: a ratio above 1 is faster than ours in float32, and what wasn't timed has its reason."""
        found = {
            "float32": measured(80.0, 60.0),
            "bfloat16": measured(40.0, 50.0),
            "litert_int8": measured(120.0, 150.0),
        }
        result = harness.Result("fc", "float32", found, {"litert": "it isn't installed"})
        sizes = {("fc", "float32"): 800000, ("fc", "bfloat16"): 413000}
        text = narrow.page([result], sizes, "words")
        self.assertIn("| ours, float32 | 60.0 | 70.0 | **1.00** (1.00 to 1.00) | 0.8 | 0.002 |", text)
        self.assertIn("| ours, bfloat16 | 40.0 | 45.0 | **1.50** (1.20 to 2.00) | 0.413 | 0.002 |", text)
        self.assertIn("| litert, int8 | 120 | 135 | **0.50** (0.40 to 0.67) |  | 0.002 |", text)
        self.assertIn("litert: it isn't installed", text)


if __name__ == "__main__":
    unittest.main()
