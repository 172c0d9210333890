"""The benchmark of StableHLO and JAX, without its processes."""

import array
import pathlib
import tempfile
import unittest

from benchmarks import harness, stablehlo, summary


def measured(*rounds: float) -> harness.Measured:
    """Returns measurements of one batch each."""
    return harness.Measured(
        version="1",
        difference=summary.Difference(2e-7, 1e-4),
        cold_start=0.1,
        resident=1,
        size=0,
        rounds=tuple((batch,) for batch in rounds),
    )


class StablehloTest(unittest.TestCase):
    """What the page shows, and what both sides are fed."""

    def test_page(self) -> None:
        """Protects readers: ratios are of minima, with those by round, and what wasn't timed has its reason."""
        results = [
            harness.Result("classifier", "jax", {"ours": measured(60.0, 50.0), "jax": measured(200.0, 210.0)}, {}),
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
            for dtype, code, given, wanted in (
                ("float32", "f", (-1.5, 2.0), [1.5, 2.0]),
                ("bfloat16", "H", (0xBF80, 0x4000), [0x3F80, 0x4000]),
                ("int32", "i", (-1, 1), [-1, 1]),
            ):
                with self.subTest(dtype):
                    path.write_bytes(array.array(code, given).tobytes())
                    stablehlo.without_signs(str(path), dtype)
                    self.assertEqual(array.array(code, path.read_bytes()).tolist(), wanted)


if __name__ == "__main__":
    unittest.main()
