"""Counts the tests in Bazel's event files: `summary.py FAILED_STEPS FILE…` names what failed and prints `N passed, N failed`."""

import json
import sys
from pathlib import Path


def main() -> None:
    """A target that failed to build counts as failed; so does, as one, a step that failed without naming a test.

    A step skips a test that its platform can't run; a test that every step skips counts as failed.
    """
    steps, *files = sys.argv[1:]
    passed = 0
    failed, skipped, ran = [], set(), set()
    for file in files:
        configured, skips, summarized = set(), set(), {}
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                event = json.loads(line)
                ids = event.get("id", {})
                if "testSummary" in ids:
                    summarized[ids["testSummary"]["label"]] = event["testSummary"]["overallStatus"] == "PASSED"
                elif event.get("configured", {}).get("testSize"):
                    configured.add(ids["targetConfigured"]["label"])
                elif event.get("aborted", {}).get("reason") == "SKIPPED" and "targetCompleted" in ids:
                    skips.add(ids["targetCompleted"]["label"])
        passed += sum(summarized.values())
        ran |= set(summarized)
        skipped |= skips & configured
        wrong = (configured | set(summarized)) - skips
        failed += [f"{label} ({Path(file).stem})" for label in sorted(wrong) if not summarized.get(label)]
    failed += [f"{label} (every step skips it)" for label in sorted(skipped - ran)]
    for test in failed:
        print(f"failed: {test}")
    if steps:
        print(f"failed steps: {steps}")
    count = len(failed)
    if steps or passed == 0:
        count = max(count, 1)
    print(f"{passed} passed, {count} failed")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
