"""Counts the tests in Bazel's build event files: `summary.py STATUS FILE…`; prints `N passed, N failed` and exits."""

import json
import sys


def main() -> None:
    """A target that failed to build counts as failed; so does, as one, a step that failed without naming a test."""
    status, *files = sys.argv[1:]
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
        failed += len(configured | set(summarized)) - sum(summarized.values())
    if status != "0" or passed == 0:
        failed = max(failed, 1)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
