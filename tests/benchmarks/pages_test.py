"""What the benchmarks' pages show, and what their processes are fed, without these processes."""

import array
import pathlib
import tempfile
import unittest

from benchmarks import harness, levels, narrow, stablehlo, summary, threads


def measured(*rounds: float, difference: float = 0.0) -> harness.Measured:
    """Returns measurements of one batch in each round."""
    return harness.Measured(
        version="1",
        difference=summary.Difference(difference, 1e-4),
        cold_start=0.1,
        resident=1,
        size=0,
        rounds=tuple((batch,) for batch in rounds),
    )


def of_levels(low: list[float], high: list[float] | None) -> harness.Result:
    """Returns the harness's result for a model's rounds at both levels."""
    rounds = {level: batches for level, batches in zip(levels.LEVELS, (low, high), strict=True) if batches}
    missing = {} if high else {levels.LEVELS[1]: "this CPU doesn't have it"}
    return harness.Result("fc_b64", levels.LEVELS[0], {level: measured(*rounds[level]) for level in rounds}, missing)


def of_threads(
    model: str, rounds: dict[str, list[float]], *, difference: float = 0.0, missing: dict[str, str] | None = None
) -> harness.Result:
    """Returns the harness's result for these rounds. The last number of threads differs from the first."""
    last = [*rounds][-1]
    results = {n: measured(*rounds[n], difference=difference if n == last else 0.0) for n in rounds}
    return harness.Result(model, "1", results, missing or {})


FC = of_threads("fc_b64", {"1": [300.0, 310.0], "2": [150.0, 200.0], "4": [100.0, 90.0]})


class LevelsTest(unittest.TestCase):
    """CPU levels."""

    def test_ratio(self) -> None:
        """Protects the direction of the ratio: above 1, the higher level is faster."""
        lines = levels.page([of_levels([200.0, 210.0], [100.0, 140.0]), of_levels([100.0], [125.0])]).splitlines()
        self.assertEqual(lines[2], "| fc 784-256-10, batch 64 | 200 | 100 | **2.00** | 1.50 to 2.00 |")
        self.assertEqual(lines[-1], "Geometric mean: 1.26. Smallest: 0.80.")

    def test_missing(self) -> None:
        """Protects against a table of one level: a model that didn't run at both is an error with the reason."""
        with self.assertRaises(ValueError) as raised:
            levels.page([of_levels([200.0], None)])
        self.assertEqual(str(raised.exception), "fc_b64: x86-64-v4: this CPU doesn't have it")


class NarrowTest(unittest.TestCase):
    """Weights in fewer bits."""

    def test_page(self) -> None:
        """Protects readers: a ratio above 1 is faster than ours in float32, and what wasn't timed has its reason."""
        variants = {
            "float32": measured(80.0, 60.0, difference=0.002),
            "bfloat16": measured(40.0, 50.0, difference=0.002),
            "litert_int8": measured(120.0, 150.0, difference=0.002),
        }
        result = harness.Result("fc", "float32", variants, {"litert": "it isn't installed"})
        sizes = {("fc", "float32"): 800000, ("fc", "bfloat16"): 413000}
        text = narrow.page([result], sizes, "words")
        self.assertIn("| ours, float32 | 60.0 | 70.0 | **1.00** (1.00 to 1.00) | 0.8 | 0.002 |", text)
        self.assertIn("| ours, bfloat16 | 40.0 | 45.0 | **1.50** (1.20 to 2.00) | 0.413 | 0.002 |", text)
        self.assertIn("| litert, int8 | 120 | 135 | **0.50** (0.40 to 0.67) |  | 0.002 |", text)
        self.assertIn("litert: it isn't installed", text)


class StablehloTest(unittest.TestCase):
    """StableHLO and JAX."""

    def test_page(self) -> None:
        """Protects readers: ratios are of minima, with those by round, and what wasn't timed has its reason."""
        results = [
            harness.Result(
                "classifier",
                "jax",
                {"ours": measured(60.0, 50.0, difference=2e-7), "jax": measured(200.0, 210.0, difference=2e-7)},
                {},
            ),
            harness.Result("decoder", "jax", {"ours": measured(1.0)}, {"jax": "it isn't installed"}),
        ]
        lines = stablehlo.page(results, "words").splitlines()
        self.assertEqual(lines[0], "words")
        self.assertIn("| 50.0 | 200 | **4.00** (3.33 to 4.20) | 2e-07 |", lines[4])
        self.assertIn("| jax: it isn't installed |", lines[5])

    def test_inputs_without_signs(self) -> None:
        """Protects Adam's roots: floats of all widths become positive, and integers stay."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "values")
            for dtype, code, values, wanted in (
                ("float32", "f", (-1.5, 2.0), [1.5, 2.0]),
                ("bfloat16", "H", (0xBF80, 0x4000), [0x3F80, 0x4000]),
                ("int32", "i", (-1, 1), [-1, 1]),
            ):
                with self.subTest(dtype):
                    path.write_bytes(array.array(code, values).tobytes())
                    stablehlo.without_signs(str(path), dtype)
                    self.assertEqual(array.array(code, path.read_bytes()).tolist(), wanted)


class ThreadsTest(unittest.TestCase):
    """Threads."""

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

    def test_outputs_that_differ_are_no_of_threads(self) -> None:
        """No speedup is reported for a run with different results, even by one bit."""
        with self.assertRaises(ValueError) as raised:
            threads.speedups(of_threads("fc_b64", {"1": [1.0], "2": [1.0]}, difference=1e-9))
        self.assertEqual(str(raised.exception), "fc_b64: outputs on 2 threads are not those on one, bit by bit")

    def test_what_did_not_run_is_no_result(self) -> None:
        """A process that died is named with its last words."""
        with self.assertRaises(ValueError) as raised:
            threads.speedups(of_threads("fc_b64", {"1": [1.0]}, missing={"2": "ended with status 1"}))
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
