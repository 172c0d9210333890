"""The benchmark of CPU levels, without its processes."""

import unittest

from benchmarks import harness, levels, summary


def result(low: list[float], high: list[float] | None) -> harness.Result:
    """Returns the harness's result for a model's rounds at both levels, of one batch each."""
    measured = {
        level: harness.Measured(
            version="",
            difference=summary.Difference(0.0, 1e-4),
            cold_start=0.1,
            resident=1,
            size=0,
            rounds=tuple((batch,) for batch in batches),
        )
        for level, batches in zip(levels.LEVELS, (low, high), strict=True)
        if batches
    }
    missing = {} if high else {levels.LEVELS[1]: "this CPU doesn't have it"}
    return harness.Result("fc_b64", levels.LEVELS[0], measured, missing)


class LevelsTest(unittest.TestCase):
    """The table."""

    def test_ratio(self) -> None:
        """Protects the direction of the ratio: above 1, the higher level is faster."""
        lines = levels.page([result([200.0, 210.0], [100.0, 140.0]), result([100.0], [125.0])]).splitlines()
        self.assertEqual(lines[2], "| fc 784-256-10, batch 64 | 200 | 100 | **2.00** | 1.50 to 2.00 |")
        self.assertEqual(lines[-1], "Geometric mean: 1.26. Smallest: 0.80.")

    def test_missing(self) -> None:
        """Protects against a table of one level: a model that didn't run at both is an error with the reason."""
        with self.assertRaises(ValueError) as raised:
            levels.page([result([200.0], None)])
        self.assertEqual(str(raised.exception), "fc_b64: x86-64-v4: this CPU doesn't have it")


if __name__ == "__main__":
    unittest.main()
