"""Counts the tests in Bazel's event files: `summary.py FAILED_STEPS TESTS FILE…` names what failed and prints `N passed, N failed`.

TESTS is a file with the labels of all tests that the repository declares.
"""

import json
import sys
from pathlib import Path

LEFT_OUT = {
    "//benchmarks:": "the benchmark compares its models with TensorFlow before it times them",
    **dict.fromkeys(
        (
            f"//examples/architectures:{net}_aot_"
            for net in ("convnext", "efficientnet_b0", "resnet50", "unet_training")
        ),
        "minutes a net; docs/measured/numerics.md has them",
    ),
    "//examples/distributed:gloo_test": "needs Debian's libgloo-dev",
    "//tests/models/cblas:calls": "a subject of another test",
    "//tests/models/variables:large_": "5 GB of weights; docs/measured/large_models.md has it",
    "//tests/page:small_aot": "a subject of another test",
    "//tests/places:manual_test": "compiles eleven large nets",
    "//tests/rules:": "subjects of analysis tests",
}
"""Why no step runs tests whose labels start so."""


def main() -> None:
    """A target that failed to build counts as failed; so does, as one, a step that failed without naming a test.

    A step skips a test that its platform can't run; a test that every step skips counts as failed. So does one that is in
    no step.
    """
    steps, declared, *files = sys.argv[1:]
    passed = 0
    failed, skipped, ran, seen = [], set(), set(), set()
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
        seen |= configured | set(summarized)
        skipped |= skips & configured
        wrong = (configured | set(summarized)) - skips
        failed += [f"{label} ({Path(file).stem})" for label in sorted(wrong) if not summarized.get(label)]
    failed += [f"{label} (every step skips it)" for label in sorted(skipped - ran)]
    no_step = set(Path(declared).read_text(encoding="utf-8").split()) - seen
    failed += [f"{label} (in no step)" for label in sorted(no_step) if not label.startswith(tuple(LEFT_OUT))]
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
