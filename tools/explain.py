"""Says in words why two builds of a model differ, and what a build is specialized to without need.

    bazel run //tools:explain -- //my:model_aot                        what one build is specialized to
    bazel run //tools:explain -- OLD NEW                               why NEW isn't OLD: labels, or paths of NAME.model.json
    bazel run //tools:explain -- --commits main HEAD //my:model_aot    why a target isn't what it was

In your own repository, run `bazel run @rules_tfaot//tools:explain`. Flags after a second `--` go to `bazel build`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tfaot.core import environment, isolate
from tfaot.core.errors import TfaotError


def main() -> None:
    """Parses the flags, builds what they name, and prints the explanation."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", metavar="BUILD", help="a tf_aot_library, or a NAME.model.json; one or two")
    parser.add_argument("--commits", nargs=2, metavar=("OLD", "NEW"), help="two commits to build one target at")
    parser.add_argument("--changes", action="append", default=[], help="a pattern of variables whose values change")
    options = parser.parse_args(words[:at])
    if len(options.builds) > (1 if options.commits else 2):
        raise TfaotError(
            f"explain is given {len(options.builds)} builds" + (" and two commits" if options.commits else ""),
            exists=", ".join(options.builds),
            do="name one build or two, or two commits and one target",
        )
    environment.prepare()
    # Later, because it imports TensorFlow.
    from tfaot.explain import bazel, build, difference, specialized

    workspace = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    here = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    builds = []
    with tempfile.TemporaryDirectory() as folder:
        if options.commits:
            target = options.builds[0]
            with bazel.worktree(workspace) as tree:
                for index, commit in enumerate(options.commits):
                    name = f"{target} at {tree.show(commit)}"
                    copy = Path(folder) / str(index)
                    copy.mkdir()
                    print(f"explain: building {name}", file=sys.stderr)
                    builds.append(
                        bazel.built(target, tree.workspace, copy, name=name, bazel=tree.bazel, flags=words[at + 1 :])
                    )
        else:
            for index, name in enumerate(options.builds):
                if bazel.is_label(name):
                    copy = Path(folder) / str(index)
                    copy.mkdir()
                    print(f"explain: building {name}", file=sys.stderr)
                    command = bazel.command(workspace)
                    builds.append(bazel.built(name, workspace, copy, name=name, bazel=command, flags=words[at + 1 :]))
                else:
                    builds.append(build.read(str(here / name), name))
        if len(builds) == 1:
            print(specialized.text(builds[0], changes=options.changes), end="")
            return
        old, new = builds
        print(difference.text(old, new), end="")
        if specialized.findings(new, changes=options.changes, before=old):
            print("\n" + specialized.text(new, changes=options.changes, before=old), end="")


if __name__ == "__main__":
    isolate.main(main)
