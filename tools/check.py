"""Lists all that stands in the way of compiling a model, without a BUILD file and without compiling.

    bazel run //tools:check -- saved_model/
    bazel run //tools:check -- --ops
    bazel run //tools:check -- graph.pb --dims x=32,10 --json report.json --html report.html

In your own repository, run `bazel run @rules_tfaot//tools:check`. It exits with 0 if nothing stands in the way, with 1 if
something does.
"""

from __future__ import annotations

from tfaot.core import isolate
from tfaot.preflight import command


def main() -> None:
    """Runs the command."""
    command.main(description=__doc__)


if __name__ == "__main__":
    isolate.main(main)
