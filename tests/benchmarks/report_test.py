"""The page that is written from a run."""

import dataclasses
import json
import pathlib
import tempfile
import unittest
from typing import Any

from benchmarks import harness, pages, report, summary
from benchmarks.catalog import ROOT

HERE = pathlib.Path(__file__).parent


def measured(*rounds: tuple[float, ...], version: str = "", size: int = 0) -> harness.Measured:
    """Returns times, with fixed other figures."""
    return harness.Measured(version, summary.Difference(1e-6, 1e-4), 0.0025, 4_000_000, size, rounds)


def document() -> dict[str, Any]:
    """Returns a run with two models: one without a peer, and one that ours doesn't run."""
    results = [
        harness.Result(
            "mlp",
            "tensorflow_session",
            {
                "ours": measured((0.25, 0.3), (0.26, 0.28), size=350_000),
                "stock": measured((0.35, 0.36), (0.34, 0.4), size=900_000),
                "tensorflow_session": measured((80.0, 90.0), (85.0, 86.0), version="2.21.0"),
            },
            {"torch_eager": "not installed: no | wheel"},
        ),
        harness.Result(
            "lstm_train", "jax", {"jax": measured((5000.0,), (5100.0,), version="0.10.2")}, {"ours": "it doesn't build"}
        ),
    ]
    return {
        "title": "A CPU, one core",
        "threads": 1,
        "date": "2026-01-02",
        "command": "python3 benchmarks/compare.py --models mlp lstm_train",
        "note": "Smoke run.",
        "machine": {
            "cpu": "A CPU",
            "cores": 2,
            "pinned_to": "1",
            "kernel": "6.1",
            "python": "3.11",
            "compiler": "gcc 12",
            "load_before": 0.1,
            "load_after": 0.2,
        },
        "plan": dataclasses.asdict(harness.Plan(rounds=2, batches=2, cpus=(1,))),
        "roofline": {"gflops": 103.7, "bandwidth": [{"kib": 16, "gb_per_s": 102.7}, {"kib": 2048, "gb_per_s": 75.94}]},
        "results": [harness.as_json(result) for result in results],
        "converge": [
            {"model": "lstm_train", "steps": 20, "medians": {"ours": [2.0, 1.0, 2.0], "stock": [4.0, 4.0, 5.0]}},
            {"model": "fc_bn_adam_train", "steps": 20, "medians": {"ours": [1.0, 1.0, 1.0]}},
        ],
        "work": {"mlp": {"flops": 9_600, "variables": 20_000}},
    }


def on_two_cores() -> dict[str, Any]:
    """Returns the same run with two threads. It has no limits of one core, and no stock tfcompile."""
    run: dict[str, Any] = json.loads(json.dumps(document()))
    run |= {"title": "A CPU, two cores", "threads": 2, "converge": [], "work": {}}
    run["machine"]["pinned_to"] = "0, 1"
    run["results"][0]["measured"].pop("stock")
    run["results"][0]["ratio"] = {"peer": "tensorflow_session", "value": 320.0, "low": 320.0, "high": 326.9}
    run.pop("roofline")
    return run


class ReportTest(unittest.TestCase):
    """From runs to the page."""

    def test_page(self) -> None:
        """The page has each run once, and claims nothing about one core's limits where a run has two."""
        got = report.page(json.loads(json.dumps({"a.json": document(), "b.json": on_two_cores()})))
        golden = HERE / "page.md.golden"
        if not golden.exists() or got != golden.read_text(encoding="utf-8"):
            path = pathlib.Path(tempfile.gettempdir()) / golden.name
            path.write_text(got, encoding="utf-8")
            self.fail(f"The page changed. To accept it: cp {path} tests/benchmarks/{golden.name}")

    def test_measured_pages(self) -> None:
        """The page in docs, and the table in README.md, are those of the runs."""
        runs = report.runs_in(report.RUNS)
        for path, text in ((report.PAGE, report.page(runs)), (ROOT / "README.md", report.overview(runs))):
            self.assertTrue(text in path.read_text(encoding="utf-8"), f"{path}: to do: python3 -m benchmarks.report")

    def test_put(self) -> None:
        """A measurement replaces the previous one, and nothing else on its page; a page without a place for it is an error."""
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text("# A\n\n<!-- begin: x -->\nold\n<!-- end: x -->\n\nText.\n", encoding="utf-8")
            pages.put(page, "x", "new\n\n")
            self.assertEqual(
                page.read_text(encoding="utf-8"), "# A\n\n<!-- begin: x -->\nnew\n<!-- end: x -->\n\nText.\n"
            )
            with self.assertRaisesRegex(
                ValueError, "page.md has no lines <!-- begin: y --> and <!-- end: y -->; add them"
            ):
                pages.put(page, "y", "new")

    def test_number(self) -> None:
        """Numbers have three digits, whatever their size."""
        self.assertEqual(
            [pages.number(v) for v in (0.108, 5.634, 573.4, 19287.4, 0.0)], ["0.108", "5.63", "573", "19,287", "0"]
        )


if __name__ == "__main__":
    unittest.main()
