"""Lists the values that a generated test wrote with `--values=FILE`, in the order of execution, or compares two such files.

    bazel run //my:model_aot_taps_test -- --values=/tmp/new.safetensors
    bazel run //tools:values -- /tmp/new.safetensors
    bazel run //tools:values -- /tmp/new.safetensors /tmp/old.safetensors

In your own repository, run `bazel run @rules_tfaot//tools:values`. A comparison exits with 1 if a tensor diverges.
"""

from __future__ import annotations

from tfaot import values
from tfaot.core import isolate


def main() -> None:
    """Runs the command."""
    values.main(description=__doc__)


if __name__ == "__main__":
    isolate.main(main)
