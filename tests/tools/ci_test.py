"""How CI counts the tests of its steps from Bazel's event files."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SUMMARY = Path(__file__).absolute().parents[2] / ".ci/summary.py"


def events(**tests: str) -> str:
    """Bazel's events for tests with these statuses: one of its test statuses, `SKIPPED`, or `` for one that didn't build."""
    lines: list[dict[str, object]] = []
    for name, status in tests.items():
        label = f"//:{name}"
        lines.append(
            {
                "id": {"targetConfigured": {"label": label}},
                "configured": {"targetKind": "cc_test rule", "testSize": "SMALL"},
            }
        )
        if status == "SKIPPED":
            lines.append({"id": {"targetCompleted": {"label": label}}, "aborted": {"reason": "SKIPPED"}})
        elif status:
            lines.append({"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}})
    lines.append({"id": {"targetConfigured": {"label": "//:library"}}, "configured": {"targetKind": "cc_library rule"}})
    return "".join(json.dumps(line) + "\n" for line in lines)


class SummaryTest(unittest.TestCase):
    """The last lines and the exit status."""

    def summarize(self, steps: str = "", declared: str = "", **files: str) -> tuple[int, list[str]]:
        folder = Path(tempfile.mkdtemp())
        (folder / "tests").write_text(declared)
        paths = [folder / f"{name}.json" for name in files]
        for path, text in zip(paths, files.values(), strict=True):
            path.write_text(text)
        run = subprocess.run(
            [sys.executable, SUMMARY, steps, folder / "tests", *paths], capture_output=True, text=True, check=False
        )
        self.assertEqual(run.stderr, "")
        return run.returncode, run.stdout.splitlines()

    def test_passed(self) -> None:
        """Protects green: tests count once for each step that ran them; a target that is no test doesn't count."""
        answer = self.summarize(modules=events(a="PASSED", b="PASSED"), asan=events(a="PASSED"))
        self.assertEqual(answer, (0, ["3 passed, 0 failed"]))

    def test_failed(self) -> None:
        """Protects the names of tests that failed, that timed out, and that didn't build."""
        answer = self.summarize(modules=events(a="FAILED", b="PASSED"), asan=events(a="TIMEOUT", b=""))
        lines = ["failed: //:a (modules)", "failed: //:a (asan)", "failed: //:b (asan)", "1 passed, 3 failed"]
        self.assertEqual(answer, (1, lines))

    def test_skipped(self) -> None:
        """Protects tests of another platform: one step may skip what another runs, but every test runs somewhere."""
        answer = self.summarize(modules=events(a="PASSED", arm="SKIPPED"), aarch64=events(arm="PASSED"))
        self.assertEqual(answer, (0, ["2 passed, 0 failed"]))
        answer = self.summarize(modules=events(a="PASSED", arm="SKIPPED"), asan=events(arm="SKIPPED"))
        self.assertEqual(answer, (1, ["failed: //:arm (every step skips it)", "1 passed, 1 failed"]))

    def test_in_no_step(self) -> None:
        """Protects tests that no step names, but those that the summary says why it leaves out."""
        declared = "//:a\n//:b\n//benchmarks:fc_aot_test\n"
        answer = self.summarize(declared=declared, modules=events(a="PASSED"))
        self.assertEqual(answer, (1, ["failed: //:b (in no step)", "1 passed, 1 failed"]))

    def test_steps(self) -> None:
        """Protects steps that fail without a test, such as the linters, and runs in which no test ran."""
        self.assertEqual(
            self.summarize("lint", modules=events(a="PASSED")), (1, ["failed steps: lint", "1 passed, 1 failed"])
        )
        self.assertEqual(self.summarize(modules=events()), (1, ["0 passed, 1 failed"]))


if __name__ == "__main__":
    unittest.main()
