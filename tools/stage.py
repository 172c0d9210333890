"""Starts a stage: `stage.py @flags`, or with `--persistent_worker`, one for each request that Bazel sends."""

from __future__ import annotations

import sys

from tfaot.worker import dispatch, stage


def main() -> int:
    """Runs a stage, whose flag file is the last argument, or serves requests."""
    if "--persistent_worker" in sys.argv:
        dispatch.serve()
        return 0
    return stage.run(stage.Stage.of(stage.read_flag_file(sys.argv[-1].removeprefix("@"))))


if __name__ == "__main__":
    sys.exit(main())
