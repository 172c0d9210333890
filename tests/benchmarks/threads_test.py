"""The threads benchmark, without its processes."""

import unittest

from benchmarks import harness, summary, threads


def result(
    model: str, rounds: dict[str, list[float]], *, difference: float = 0, missing: dict[str, str] | None = None
) -> harness.Result:
    """Returns the harness's result for these rounds of one batch each. The last number of threads differs from the first."""
    measured = {
        count: harness.Measured(
            version="",
            difference=summary.Difference(difference if count == [*rounds][-1] else 0.0, 1e-4),
            cold_start=0.1,
            resident=1,
            size=0,
            rounds=tuple((batch,) for batch in batches),
        )
        for count, batches in rounds.items()
    }
    return harness.Result(model, "1", measured, missing or {})


FC = result("fc_b64", {"1": [300.0, 310.0], "2": [150.0, 200.0], "4": [100.0, 90.0]})


class ThreadsTest(unittest.TestCase):
    """Counts, commands, ratios, and how the page shows them."""

    def test_counts_reach_the_machines_cores(self) -> None:
        """Powers of two, and all cores, whatever their number."""
        self.assertEqual(
            [threads.counts_up_to(cores) for cores in (1, 2, 6, 8)], [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]
        )

    def test_one_thread_has_no_pool(self) -> None:
        """The baseline is the model without threads."""
        self.assertEqual(
            [(peer.name, peer.command) for peer in threads.peers("d", ["a"], [1, 2])],
            [("1", ("d", "a")), ("2", ("d", "--threads=2", "a"))],
        )

    def test_speed_ups_are_of_minima_and_by_round(self) -> None:
        """The speedup is the ratio of the smallest batches, with the smallest and largest ratio within a round."""
        two = threads.speedups(FC)[2]
        self.assertEqual((two.value, two.low, two.high), (2.0, 1.55, 2.0))

    def test_outputs_that_differ_are_no_result(self) -> None:
        """No speedup is reported for a run with different results, even by one bit."""
        with self.assertRaises(ValueError) as raised:
            threads.speedups(result("fc_b64", {"1": [1.0], "2": [1.0]}, difference=1e-9))
        self.assertEqual(str(raised.exception), "fc_b64: outputs on 2 threads are not those on one, bit by bit")

    def test_what_did_not_run_is_no_result(self) -> None:
        """A process that died is named with its last words."""
        with self.assertRaises(ValueError) as raised:
            threads.speedups(result("fc_b64", {"1": [1.0]}, missing={"2": "ended with status 1"}))
        self.assertEqual(str(raised.exception), "fc_b64: 2 threads: ended with status 1")

    def test_page(self) -> None:
        """The table has each number of threads, with the time on it and the speedup."""
        self.assertEqual(
            threads.page([FC], "Words."),
            "Words.\n\n"
            "| model | 1 thread, µs | 2 threads, µs: speed-up (by round) | 4 threads, µs: speed-up (by round) |\n"
            "|---|---|---|---|\n"
            "| fc 784-256-10, batch 64 | 300 | 150: **2.00** (1.55 to 2.00) | 90.0: **3.33** (3.00 to 3.44) |\n",
        )


if __name__ == "__main__":
    unittest.main()
