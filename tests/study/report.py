"""Writes the section on the study in docs/measured/numerics.md from the logs of the examples' tests.

./bazelw test --config=full //examples/... //tests/study/... && python3 -m tests.study.report

Every number of ours on the page comes from a test's log. The study's two columns contain what it reported.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import platform
import re
import sys

from benchmarks import pages
from tests.stages.logs import rows

ROOT = pathlib.Path(__file__).resolve().parents[2]

STUDY = {
    # name: compiled with TensorFlow 1.14, and with 2.0
    "fc": ("yes", "yes"),
    "fc_adam": ("yes", "yes"),
    "fc_batchnorm": ("yes", "yes"),
    "fc_batchnorm_adam": ("yes", "yes"),
    "fc_kerasbatchnorm": ("yes", "yes"),
    "conv_fc": ("yes", "yes"),
    "conv_fc_adam": ("yes", "yes"),
    "conv_fc_batchnorm": ("yes", "yes"),
    "conv_fc_batchnorm_adam": ("yes", "yes"),
    "dynamic_rnn": ("no: fixed stack size", "no"),
    "keras_rnn": ("no: fixed stack size", "no"),
    "rnn_seq_length": ("no: fixed stack size", "no"),
    "fc_batchnorm_notrain": ("yes", "no: read-only variables"),
    "conv_fc_batchnorm_notrain": ("yes", "no: read-only variables"),
}


@dataclasses.dataclass(frozen=True)
class Verified:
    """The contents of a log of a comparison with TensorFlow."""

    steps: int
    comparisons: int
    output_ulp: float
    """Largest error of an output, in units in the last place."""
    share: float
    """Largest error of anything, as a fraction of its tolerance."""
    failed: int


def read(log: pathlib.Path, outputs: str) -> Verified:
    """Summarizes a log."""
    measured = rows(log)
    return Verified(
        steps=max(row.step for row in measured) + 1,
        comparisons=len(measured),
        output_ulp=max((row.ulp for row in measured if re.search(outputs, row.name)), default=0.0),
        share=max(row.share for row in measured),
        failed=sum(row.verdict == "FAILED" for row in measured),
    )


def main() -> None:
    """Writes the page."""
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=raw).parse_args()
    logs = ROOT / "bazel-testlogs"
    lines = [
        "    ./bazelw test --config=full //examples/... //tests/study/... && python3 -m tests.study.report",
        "",
        "The project grew out of a study of 14 training steps, each with forward, backward, and the optimizer in one compiled "
        "function. The study compiled them with configs written by hand. Here, each is a target in `//examples/study`, except for "
        "`//examples/fc:fc_aot`. A second test of each runs its HLO in jaxlib's client for CPUs, a compiler that isn't tfcompile, "
        f"and compares in the same way. On {platform.system()} {platform.machine()}:",
        "",
        "| model | TF 1.14 (study) | TF 2.0 (study) | compiled | verified steps | comparisons | loss off by, ULP "
        "| largest error / tolerance | HLO replayed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (first, second) in STUDY.items():
        folder = "fc" if name == "fc" else "study"
        ours = read(logs / "examples" / folder / f"{name}_aot_test" / "test.log", r"loss")
        replay = read(logs / "tests" / "study" / f"{name}_replay_test" / "test.log", r"loss")
        lines.append(
            f"| `{name}` | {first} | {second} | yes | {ours.steps} | {ours.comparisons} | {ours.output_ulp:g} "
            f"| {ours.share:.1%} | {'yes' if not replay.failed else 'no'}: "
            f"largest error {replay.share:.1%} of tolerance |"
        )
        if ours.failed:
            sys.exit(f"{name}: {ours.failed} comparisons failed; no page is written")
    pages.put(ROOT / "docs" / "measured" / "numerics.md", "tests/study/report.py", "\n".join(lines))


if __name__ == "__main__":
    main()
