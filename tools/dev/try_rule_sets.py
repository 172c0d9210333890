"""Tries the rules with rule sets from folders, in the place of those that Bazel would use, and says what passes.

    ./bazelw run //tools/dev:try_rule_sets -- ~/rule_sets/rules_cc-0.2.18 ~/rule_sets/rules_python-1.9.0 [--targets …]

Each folder holds a module, as a release's archive or a tag of its repository has it. The report calls it by the folder's name,
so that should have the version. Modules that these name, and that can't be reached, become empty ones. By default, the
command runs the rules' tests, the repositories of users in `e2e/`, and `--config=next` on all targets.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.bazelw import cache, redirect

_TARGETS = ("//tests/rules/...", "//tests/packages/...", "//tests/e2e:smoke_test", "//tests/e2e:monorepo_test")
_NAME = re.compile(r'^module\(\s*name\s*=\s*"([^"]+)"', re.MULTILINE)
# What the documentation of rules_python names of protobuf, which Bazel from Debian doesn't have.
_PROTOBUF = 'filegroup(name = "bzl_srcs", srcs = ["empty.bzl"], visibility = ["//visibility:public"])\n'
_MISSING = re.compile(r"module ([\w.-]+)@\S+ not found in registries")
VARIABLE = "TFAOT_RULE_SETS"
"""Names the bazelrc for tests that run Bazel themselves (tests/e2e/inner.py)."""


@dataclass(frozen=True)
class Outcome:
    """What a command of Bazel did."""

    command: str
    passed: bool
    said: str


def modules(folders: Sequence[Path]) -> dict[str, Path]:
    """Returns the folders by the names of their modules.

    Raises:
      ValueError: a folder has no module, or is where actions can't see it.
    """
    named: dict[str, Path] = {}
    for folder in folders:
        file = folder / "MODULE.bazel"
        name = _NAME.search(file.read_text(encoding="utf-8")) if file.is_file() else None
        if not name:
            raise ValueError(
                f"{folder} has no MODULE.bazel with a module's name: give the folder of an unpacked release"
            )
        if folder.is_relative_to("/tmp"):
            raise ValueError(
                f"{folder} is under /tmp, which Bazel's sandbox hides from every action: move it elsewhere"
            )
        named[name[1]] = folder
    return named


def rc_text(named: Mapping[str, Path]) -> str:
    """Returns the lines of a bazelrc that has Bazel take modules from folders."""
    lines = ["# Written by tools/dev/try_rule_sets.py.", "common --lockfile_mode=off"]
    return "\n".join(lines + [f"common --override_module={name}={path}" for name, path in sorted(named.items())]) + "\n"


def report(named: Mapping[str, Path], version: str, outcomes: Sequence[Outcome]) -> str:
    """Returns the report in Markdown."""
    lines = [f"{version}, with {', '.join(sorted(path.name for path in named.values()))}:", ""]
    lines += [
        f"- `{outcome.command}`: {'passed' if outcome.passed else 'FAILED'}{outcome.said}" for outcome in outcomes
    ]
    return "\n".join(lines) + "\n"


class Trial:
    """A checkout with other rule sets."""

    def __init__(self, repository: Path, folder: Path, named: Mapping[str, Path]) -> None:
        """Writes a bazelrc and empty modules into `folder`, which it makes."""
        self._repository, self._folder, self._rc = repository, folder, folder / "rule_sets.bazelrc"
        self._modules = dict(named)
        if "protobuf" not in named and (folder.parent / "ready/debian.json").exists():
            self._modules["protobuf"] = self._stub("protobuf", _PROTOBUF)
        while True:
            cache.write_text(self._rc, rc_text(self._modules))
            done = self._bazel("query", "//rules:toolchain_type", quiet=True)
            if not done.returncode:
                break
            missing = _MISSING.search(done.stderr)
            if not missing or missing[1] in self._modules:
                sys.exit(f"try_rule_sets: Bazel doesn't load the rules with these rule sets:\n{done.stderr[-4000:]}")
            self._modules[missing[1]] = self._stub(missing[1])

    def _stub(self, name: str, build: str = "") -> Path:
        stub = self._folder / "stubs" / name
        cache.write_text(stub / "MODULE.bazel", redirect.module_text(name, []))
        cache.write_text(stub / "BUILD", build)
        cache.write_text(stub / "empty.bzl", "")
        return stub

    def _bazel(self, *arguments: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._repository / "bazelw"), f"--bazelrc={self._rc}", *arguments],
            cwd=self._repository,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
        )

    def version(self) -> str:
        """Returns Bazel's name and version."""
        return self._bazel("--version", quiet=True).stdout.strip()

    def run(self, *arguments: str) -> Outcome:
        """Runs a command of Bazel, whose messages appear as they come."""
        environment = [f"--test_env={VARIABLE}={self._rc}"] if arguments[0] == "test" else []
        done = self._bazel(arguments[0], "--keep_going", *environment, *arguments[1:])
        sys.stderr.write(done.stdout)
        executed = re.search(r"^Executed \d+ out of .*$", done.stdout, re.MULTILINE)
        return Outcome(" ".join(arguments), not done.returncode, f" ({executed[0]})" if executed else "")


def main() -> None:
    """Parses the flags, and prints the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of rule sets")
    parser.add_argument("--targets", nargs="+", default=_TARGETS, help="tests to run")
    flags = parser.parse_args()
    root = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not root:
        sys.exit("try_rule_sets: run it in a checkout, with ./bazelw run //tools/dev:try_rule_sets -- FOLDER…")
    start = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    try:
        named = modules([(start / folder).resolve() for folder in flags.folders])
    except ValueError as error:
        sys.exit(f"try_rule_sets: {error}")
    trial = Trial(Path(root), cache.usable(os.environ) / "rule_sets", named)
    outcomes = [
        trial.run("build", "--nobuild", "--config=next", "//..."),
        trial.run("test", "--config=full", *flags.targets),
    ]
    print(report(named, trial.version(), outcomes))
    sys.exit(not all(outcome.passed for outcome in outcomes))


if __name__ == "__main__":
    main()
