"""The page that is written from a run."""

import dataclasses
import json
import pathlib
import sys
import tempfile
import unittest
from xml.etree import ElementTree

from benchmarks import harness, report, summary

HERE = pathlib.Path(__file__).parent


def measured(*rounds: tuple[float, ...], version: str = "", size: int = 0) -> harness.Measured:
    """Returns times, with fixed other figures."""
    return harness.Measured(version, summary.Difference(1e-6, 1e-4), 0.0025, 4_000_000, size, rounds)


def on_two_cores() -> dict[str, object]:
    """Returns the same run with two threads. It has no limits of one core, and no stock tfcompile."""
    run = json.loads(json.dumps(document()))
    run |= {"threads": 2, "converge": [], "work": {}}
    run["machine"]["pinned_to"] = "0, 1"
    run["results"][0]["measured"].pop("stock")
    run["results"][0]["missing"]["stock"] = "the suite's driver gives it no threads"
    run.pop("roofline")
    return dict(run)


def document() -> dict[str, object]:
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
            "lstm_train",
            "jax",
            {"jax": measured((5000.0,), (5100.0,), version="0.10.2")},
            {"ours": "it doesn't build"},
        ),
    ]
    return {
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


class ReportTest(unittest.TestCase):
    """From results.json to a page."""

    def test_page(self) -> None:
        """The pages for a small run match the reviewed ones. The page of two cores claims nothing about one core's limits."""
        for golden, run in (("page.md.golden", document()), ("page_two_cores.md.golden", on_two_cores())):
            with self.subTest(golden):
                got = report.page(json.loads(json.dumps(run)), {"A plot": "page/a.svg"})
                file = HERE / golden
                if not file.exists() or got != file.read_text(encoding="utf-8"):
                    path = pathlib.Path(tempfile.gettempdir()) / golden
                    path.write_text(got, encoding="utf-8")
                    self.fail(f"The page changed. To accept it: cp {path} tests/benchmarks/{golden}")

    def test_earlier_results(self) -> None:
        """Protects results from before runs had a number of threads: they had one."""
        self.assertNotIn("threads", document())
        self.assertEqual([report.threads_of(run) for run in (document(), on_two_cores())], [1, 2])

    def test_json_round_trip(self) -> None:
        """A result that is written to a file is the same when read back."""
        for result in json.loads(json.dumps(document()))["results"]:
            self.assertEqual(harness.as_json(harness.from_json(result)), harness.as_json(harness.from_json(result)))
            self.assertEqual(json.loads(json.dumps(harness.as_json(harness.from_json(result)))), result)

    def test_write(self) -> None:
        """The page's plots are where it says, and are well-formed SVG with a bar for each value."""
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            report.write(json.loads(json.dumps(document())), page)
            self.assertIn("](page/inference.svg)", page.read_text(encoding="utf-8"))
            tree = ElementTree.parse(page.parent / "page" / "inference.svg")
            bars = [r for r in tree.iter("{http://www.w3.org/2000/svg}rect") if r.get("x")]
            self.assertEqual(len(bars), 3)

    def test_write_two_cores(self) -> None:
        """Protects the page of several cores from plots of what it doesn't show."""
        with tempfile.TemporaryDirectory() as folder:
            report.write(on_two_cores(), pathlib.Path(folder) / "page.md")
            plots = sorted(path.name for path in pathlib.Path(folder, "page").iterdir())
            self.assertEqual(plots, ["inference.svg", "training.svg"])

    def test_number(self) -> None:
        """Numbers have three digits, whatever their size."""
        self.assertEqual(
            [report.number(v) for v in (0.108, 5.634, 573.4, 19287.4, 0.0)], ["0.108", "5.63", "573", "19,287", "0"]
        )


if __name__ == "__main__":
    sys.exit(unittest.main())
