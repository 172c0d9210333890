"""Counts the tests in Bazel's event files: `summary.py FAILED_STEPS FILE…` names what failed and prints `N passed, N failed`."""

import json
import sys
from pathlib import Path


def main() -> None:
    """A target that failed to build counts as failed; so does, as one, a step that failed without naming a test."""
    steps, *files = sys.argv[1:]
    passed = failed = 0
    for file in files:
        configured, summarized = set(), {}
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                event = json.loads(line)
                ids = event.get("id", {})
                if "testSummary" in ids:
                    summarized[ids["testSummary"]["label"]] = event["testSummary"]["overallStatus"] == "PASSED"
                elif event.get("configured", {}).get("testSize"):
                    configured.add(ids["targetConfigured"]["label"])
        passed += sum(summarized.values())
        wrong = sorted(label for label in configured | set(summarized) if not summarized.get(label))
        for label in wrong:
            print(f"failed: {label} ({Path(file).stem})")
        failed += len(wrong)
    if steps:
        print(f"failed steps: {steps}")
    if steps or passed == 0:
        failed = max(failed, 1)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
