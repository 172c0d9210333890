"""The main that measures flags: builds a model in several ways, reports what can't be built, and writes tables to a page."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from benchmarks import catalog, flags, harness, summary, variants
from benchmarks.variants import Builder, NotBuilt, Variant
from tests.stages.harness import ROOT

EXPORTED = "benchmarks"
PACKAGES = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)


class FlagsTest(unittest.TestCase):
    """Real compilers on a small network, and one runtime for all tests. No assertion depends on timings."""

    folders: pathlib.Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        cls.folders = pathlib.Path(folder.name)
        # The files that the test declares, and drivers that take a quarter of the time to compile.
        for patch in (mock.patch.object(catalog, "ROOT", ROOT), mock.patch.object(variants, "OPTIMIZED", "-O0")):
            patch.start()
            cls.addClassCleanup(patch.stop)
        runtime = Builder(cls.folders, PACKAGES)._shared()
        shared = mock.patch.object(Builder, "_shared", lambda builder: runtime)
        shared.start()
        cls.addClassCleanup(shared.stop)

    def setUp(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.folders))

    def test_variants(self) -> None:
        """A variant that differs is timed and compared. One with the same code or refused by XLA is named with the reason."""
        wanted = [
            Variant("width_128", ("--xla_cpu_prefer_vector_width=128",)),
            Variant("without_fold_batch_norm", passes=("*", "!fold_batch_norm")),
            Variant("typo", ("--xla_typo=1",)),
        ]
        plan = harness.Plan(rounds=2, batches=2, batch_nanoseconds=1e5, cold_starts=1, cpus=harness.last_cpus())
        model = flags.measure(
            "mlp", f"{EXPORTED}/mlp_aot", Builder(self.folder, PACKAGES), wanted, plan, self.folder, starts=2
        )
        self.assertGreater(model.microseconds, 0)
        self.assertEqual([*model.effects], ["width_128"])
        self.assertLess(model.effects["width_128"].difference, 1e-5)
        self.assertGreater(model.effects["width_128"].size, 10_000)
        self.assertEqual(
            model.missing,
            {
                "without_fold_batch_norm": "it compiles to the same code",
                "typo": "error: compiling benchmarks::Mlp: XLA doesn't know --xla_typo=1",
            },
        )

    def test_main(self) -> None:
        """The main measures a set, and replaces only its own previous text in a page."""
        page = self.folder / "page.md"
        page.write_text(
            "# Flags\n\n<!-- begin: benchmarks/flags.py -->\nOld.\n<!-- end: benchmarks/flags.py -->\n",
            encoding="utf-8",
        )
        words = ["flags.py", "--models", "mlp", "--sets", "width_128", "ynn", "--rounds", "1", "--starts", "1"]
        words += ["--batch_ms", "0.1", "--exported", EXPORTED, "--packages", PACKAGES, "--page", str(page)]
        with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()):
            flags.main()
        lines = page.read_text(encoding="utf-8").splitlines()
        self.assertEqual(
            lines[:4],
            [
                "# Flags",
                "",
                "<!-- begin: benchmarks/flags.py -->",
                "    python3 benchmarks/flags.py --models mlp --sets width_128 ynn --rounds 1 --starts 1",
            ],
        )
        self.assertNotIn("Old.", lines)
        self.assertEqual(sum(line.startswith("| width_128") for line in lines), 2)

    def test_page(self) -> None:
        """Times, what a flag does, differences, and what couldn't be measured each have a table."""
        result = flags.Effect(summary.Ratio("default", 0.5, 0.4, 0.625), 1.5e-7, 1000)
        models = [
            flags.Model("mlp", 0.25, {"fast_math": result}, {"ynn": "it is off"}),
            flags.Model("fc", 12.0, {}, {}),
        ]
        text = flags.page(models, flags.variants(["fast_math", "ynn"], []), "flags.py", "A machine.")
        self.assertEqual(
            text.splitlines(),
            [
                "    flags.py",
                "",
                "A machine.",
                "",
                "### Time of the default, divided by that of the variant",
                "",
                "Ratio of the smallest batches, and the smallest and largest ratio of one round. Above 1 means that the variant "
                "is faster.",
                "",
                "| variant | 10-64-64-1 net, batch 1 | fc 784-256-10, batch 1 |",
                "|---|---|---|",
                "| default, µs | 0.250 | 12.0 |",
                "| fast_math | 0.50 (0.40 to 0.62) | – |",
                "",
                "### Largest difference from the default's results, as a share of the largest value",
                "",
                "| variant | flags | what it does | IEEE results | 10-64-64-1 net, batch 1 | fc 784-256-10, batch 1 |",
                "|---|---|---|---|---|---|",
                "| fast_math | `--xla_cpu_enable_fast_math=true` | sums in any order; NaN, infinity, division, and functions as "
                "they are | no | 1.5e-07 | – |",
                "",
                "### Not measured",
                "",
                "| variant | why | models |",
                "|---|---|---|",
                "| ynn | it is off | mlp |",
            ],
        )

    def test_passes_left_out(self) -> None:
        """Each pass is left out alone, and several are also left out together."""
        self.assertEqual([variant.passes for variant in flags.variants([], ["a"])], [("*", "!a")])
        self.assertEqual(
            [variant.passes for variant in flags.variants([], ["a", "b"])], [("*", "!a"), ("*", "!b"), ("*", "!*")]
        )

    def test_no_compiler(self) -> None:
        """Without a C++ compiler, the main says what to set."""
        with mock.patch.dict(os.environ, {"PATH": str(self.folder)}):
            os.environ.pop("CXX", None)
            with self.assertRaisesRegex(NotBuilt, "^no C\\+\\+ compiler on PATH: set CXX$"):
                Builder(self.folder, PACKAGES)


if __name__ == "__main__":
    unittest.main()
