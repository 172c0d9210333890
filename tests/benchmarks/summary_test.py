"""The summary of raw times, and when outputs count as equal."""

import math
import unittest

from benchmarks import summary


class SummaryTest(unittest.TestCase):
    """Numbers in, numbers out."""

    def test_times(self) -> None:
        """The minimum is over all batches, the median over rounds' medians, and the variation over rounds' minima."""
        times = summary.times([[2.0, 3.0, 9.0], [2.5, 4.0, 5.0]])
        self.assertEqual(times, summary.Times(minimum=2.0, median=3.5, variation=0.25, rounds=2))

    def test_nothing_to_summarize(self) -> None:
        """A round without a batch is an error, not a time of zero."""
        for rounds in ([], [[1.0], []]):
            with self.assertRaisesRegex(ValueError, "^there is nothing to summarize: a round without a batch$"):
                summary.times(rounds)

    def test_ratio(self) -> None:
        """Ours is compared with the peer that has the smallest minimum, and each round with that peer's same round."""
        ratio = summary.best_ratio([[2.0], [4.0]], {"slow": [[9.0], [9.0]], "quick": [[3.0, 8.0], [5.0]]})
        assert ratio
        self.assertEqual((ratio.peer, ratio.value), ("quick", 1.5))
        self.assertEqual((ratio.low, ratio.high), (1.25, 1.5))

    def test_ratio_of_nothing(self) -> None:
        """Without a peer, there is no ratio."""
        self.assertIsNone(summary.best_ratio([[1.0]], {}))

    def test_rounds_must_pair(self) -> None:
        """A peer that lost a round isn't paired with other rounds."""
        with self.assertRaises(ValueError):
            summary.best_ratio([[1.0], [1.0]], {"peer": [[1.0]]})

    def test_calls(self) -> None:
        """A batch is long enough to be timed, and has at least one call."""
        self.assertEqual(summary.calls_for(250, 1e6), 4000)
        self.assertEqual(summary.calls_for(3e6, 1e6), 1)
        self.assertEqual(summary.calls_for(0, 1e6), 1_000_000)

    def test_difference(self) -> None:
        """Errors are relative to the largest value, so an output near zero counts for little."""
        difference = summary.difference([10.0, 0.001], [10.0, 0.0], 1e-3)
        self.assertAlmostEqual(difference.largest, 1e-4)
        self.assertTrue(difference.tolerated)
        self.assertFalse(summary.difference([10.0, 0.02], [10.0, 0.0], 1e-3).tolerated)

    def test_what_never_agrees(self) -> None:
        """NaNs, infinities, and a different number of values are never tolerated, whatever the tolerance."""
        for got, want in (([math.nan], [1.0]), ([math.inf], [math.inf]), ([1.0], [1.0, 2.0]), ([1.0], [math.nan])):
            with self.subTest(got=got, want=want):
                self.assertFalse(summary.difference(got, want, 1e9).tolerated)

    def test_geometric_mean(self) -> None:
        """Half as fast and twice as fast cancel out."""
        self.assertAlmostEqual(summary.geometric_mean([0.5, 2.0]), 1.0)
        self.assertEqual(summary.geometric_mean([]), 1.0)


if __name__ == "__main__":
    unittest.main()
