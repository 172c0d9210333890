#!/usr/bin/env python3
"""Times builds: the first, cold, after an edit, with nothing to do, at several CPU levels, beside saved_model_cli, of a monorepo.

`tests/scale/builds.py [--only first loop levels peer monorepo …]` prints the tables of docs/measured/build-speed.md, and
`levels` compares CPU levels. It runs Bazel in output bases of its own, below the cache folder of `bazelw`, without a disk cache,
and removes them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_WAYS = {"workers": [], "no workers": ["--spawn_strategy=sandboxed"]}
_BUILD = """\
load("//rules:defs.bzl", "tf_aot_library", "tf_model")

[tf_model(name = name + ".model", signature = {{"x": "float32[8]"}}, source = name + ".py") for name in {names}]

[tf_aot_library(name = name, cpp_class = "{package}::" + name, model = name + ".model") for name in {names}]
"""
_LEVELS_BUILD = """\
load("//rules:defs.bzl", "tf_aot_library", "tf_model")

tf_model(name = "model", dims = {dims}, source = "model.py")

[
    tf_aot_library(name = name, cpp_class = "levels::" + name, cpu = cpu, gen_test = False, model = ":model")
    for name, cpu in {{"one": "x86-64-v3", "both": None}}.items()
]
"""
_EDITS = (("fc", "(0.01)", "(0.01{})"), ("mobilenet_v2", "classes=1000", "classes=99{}"))
"""Examples, a text of their models, and what to put there, given a digit."""
_DIMS = {"fc": "{}", "mobilenet_v2": '{"input_layer": [1, None, None, None]}'}
_MODEL = """\
import tensorflow as tf

weights = tf.Variable(tf.fill([8, 8], {number}.0), name="weights")


@tf.function
def model(x):
    return tf.nn.relu(tf.linalg.matvec(weights, x) + {number}.0)
"""

_SAVED = """\
import sys

import tensorflow as tf

module = tf.Module()
module.w1, module.w2 = (tf.Variable(tf.fill([64, 64], 1 / float(size))) for size in (64, 65))
module.f = tf.function(
    lambda x: tf.matmul(tf.nn.relu(tf.matmul(x, module.w1)), module.w2), input_signature=[tf.TensorSpec([8, 64])]
)
tf.saved_model.save(module, sys.argv[1], signatures={"serving_default": module.f})
"""
_SAVED_BUILD = """\
load("//rules:defs.bzl", "tf_aot_library", "tf_model")

[
    tf_model(
        name = "f%d" % number,
        entry_points = {"Run": "serving_default"},
        source = glob(["s%d.saved/**" % number]),
    )
    for number in range(10)
]

[tf_aot_library(name = "s%d" % number, cpp_class = "s::S%d" % number, model = ":f%d" % number) for number in range(10)]
"""


@dataclass(frozen=True)
class Measured:
    """What a Bazel command took."""

    seconds: float
    actions: int
    """How many actions Bazel created, whether it ran them or not."""
    ran: dict[str, int]
    """How many actions ran in which way."""
    analysis: float
    """Seconds of loading and analysis."""
    heap: str
    """The Bazel server's heap after the build, `123MB` for example."""


class Client:
    """A workspace with an output base of its own."""

    def __init__(self, workspace: Path, folder: Path, flags: Sequence[str], *, cache: Path | None = None) -> None:
        """Starts with an empty folder.

        Args:
          workspace: where to run Bazel.
          folder: for the output base.
          flags: flags of every build.
          cache: the cache folder of `bazelw`; by default, the user's.
        """
        self._workspace, self._folder, self._flags = workspace, folder, flags
        self._environment = {**os.environ, **({"RULES_TFAOT_CACHE": str(cache)} if cache else {})}
        folder.mkdir(parents=True)

    def bazel(self, *arguments: str) -> Measured:
        """Runs a Bazel command.

        Raises:
          SystemExit: it failed.
        """
        events, log = self._folder / "events.json", self._folder / "log"
        command = [
            *self._start(),
            arguments[0],
            "--symlink_prefix=/",
            "--disk_cache=",
            f"--build_event_json_file={events}",
            *self._flags,
        ]
        start = time.monotonic()
        with log.open("wb") as stderr:
            status = subprocess.run(
                [*command, *arguments[1:]],
                cwd=self._workspace,
                env=self._environment,
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            ).returncode
        seconds = time.monotonic() - start
        if status != 0:
            sys.exit(
                f"bazel {' '.join(arguments)} failed with status {status}:\n{log.read_text(encoding='utf-8')[-3000:]}"
            )
        metrics = next(
            event["buildMetrics"]
            for event in map(json.loads, events.read_text(encoding="utf-8").splitlines())
            if "buildMetrics" in event
        )
        summary = metrics["actionSummary"]
        return Measured(
            seconds,
            int(summary.get("actionsCreated", 0)),
            {runner["name"]: int(runner.get("count", 0)) for runner in summary.get("runnerCount", ())},
            int(metrics["timingMetrics"].get("analysisPhaseTimeInMs", 0)) / 1000,
            self._heap(),
        )

    @property
    def base(self) -> Path:
        """The output base."""
        return self._folder / "base"

    def close(self) -> None:
        """Stops Bazel, and removes the output base."""
        subprocess.run(
            [*self._start(), "shutdown"],
            cwd=self._workspace,
            env=self._environment,
            check=False,
            stderr=subprocess.DEVNULL,
        )
        _remove(self._folder)

    def _heap(self) -> str:
        """Returns the memory of the Bazel server after it collected garbage."""
        info = [*self._start(), "info", "used-heap-size-after-gc"]
        return subprocess.run(
            info, cwd=self._workspace, env=self._environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()

    def _start(self) -> list[str]:
        return [str(_ROOT / "bazelw"), f"--output_base={self.base}", "--max_idle_secs=300"]


def first(folder: Path) -> list[list[str]]:
    """Times the README's first command in a new clone of the last commit, with empty caches."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(clone)], check=True)
    one = Client(clone, folder / "client", [], cache=folder / "cache")
    before = _received()
    measured = one.bazel("build", "//examples/fc:fc_aot")
    received = _received() - before
    one.close()
    return [
        ["", "time", "received", "actions that ran"],
        ["build `//examples/fc:fc_aot`", f"{measured.seconds:.0f} s", f"{received / 1e6:.0f} MB", _ran(measured)],
    ]


def loop(client: Callable[[Path], Client], *, workspace: Path) -> list[list[str]]:
    """Times the build and the test of two models after each of several edits, and with nothing to do."""
    _link_repository(workspace)
    rows = []
    for example, edited, number in _EDITS:
        shutil.copytree(_ROOT / "examples" / example, workspace / "examples" / example)
        model = workspace / "examples" / example / "model.py"
        text = model.read_text(encoding="utf-8")
        for name, flags in _WAYS.items():
            one = client(workspace)
            command = ["test", *flags, f"//examples/{example}:{example}_aot_test"]
            one.bazel(*command)
            edits = []
            for edit in range(1, 6):
                model.write_text(text.replace(edited, number.format(edit)), encoding="utf-8")
                edits.append(one.bazel(*command).seconds)
            nothing = [one.bazel(*command).seconds for _ in range(5)]
            one.close()
            rows.append([example, name, f"{statistics.median(edits):.1f} s", f"{statistics.median(nothing):.2f} s"])
    return [["model", "", "edit, build, and verify", "nothing to do"], *rows]


def levels(client: Callable[[Path], Client], *, workspace: Path) -> list[list[str]]:
    """Times builds of two models for one CPU level, and for the two of the default, after edits, and compares programs' sizes."""
    _link_repository(workspace)
    rows = []
    stripped = workspace / "stripped"
    for example, edited, number in _EDITS:
        package = workspace / "levels" / example
        package.mkdir(parents=True)
        (package / "BUILD").write_text(_LEVELS_BUILD.format(dims=_DIMS[example]), encoding="utf-8")
        text = (_ROOT / "examples" / example / "model.py").read_text(encoding="utf-8")
        (package / "model.py").write_text(text, encoding="utf-8")
        one = client(workspace)
        programs = [f"{name}_benchmark" for name in ("one", "both")]
        one.bazel("build", "-c", "opt", *(f"//levels/{example}:{program}" for program in programs))
        sizes = []
        for program in programs:
            (built,) = one.base.glob(f"execroot/*/bazel-out/*-opt/bin/levels/{example}/{program}")
            subprocess.run(["strip", "-o", stripped, built], check=True)
            sizes.append(stripped.stat().st_size)
        one.bazel("build", f"//levels/{example}:one", f"//levels/{example}:both")
        medians = []
        for name in ("one", "both"):
            edits = []
            for edit in range(1, 6):
                (package / "model.py").write_text(text.replace(edited, number.format(edit)), encoding="utf-8")
                edits.append(one.bazel("build", f"//levels/{example}:{name}").seconds)
            medians.append(statistics.median(edits))
        one.close()
        rows.append([example, f"{sizes[1] - sizes[0]:,}", *(f"{seconds:.1f} s" for seconds in medians)])
    return [["model", "x86-64-v4 adds, bytes", "build for x86-64-v3", "and x86-64-v4"], *rows]


def monorepo(client: Callable[[Path], Client], *, workspace: Path, count: int = 1000) -> list[list[str]]:
    """Times a workspace of 100 packages with 10 models each, of which it exports all and compiles 10."""
    _link_repository(workspace)
    for number in range(count // 10):
        package = workspace / "models" / f"p{number}"
        package.mkdir(parents=True)
        names = [f"m{number}_{index}" for index in range(10)]
        (package / "BUILD").write_text(_BUILD.format(package=f"p{number}", names=json.dumps(names)), encoding="utf-8")
        for index, name in enumerate(names):
            (package / f"{name}.py").write_text(_MODEL.format(number=number * 10 + index), encoding="utf-8")
    one = client(workspace)
    everything = "//models/..."
    cache = workspace.parent / "cache"
    rows = []

    def row(what: str, measured: Measured) -> None:
        rows.append(
            [
                what,
                f"{measured.seconds:.1f} s",
                f"{measured.analysis:.1f} s",
                f"{measured.actions:,}" if measured.actions else "",
                _ran(measured),
                measured.heap,
            ]
        )

    row(
        f"load and analyze {count:,} models, with tests",
        one.bazel("build", "--nobuild", "--build_tests_only", everything),
    )
    graphs = [
        "build",
        "--output_groups=graph",
        *(f"//models/p{n}:m{n}_{i}" for n in range(count // 10) for i in range(10)),
    ]
    row(f"export {count:,} models", one.bazel(*graphs))
    row("nothing to do", one.bazel(*graphs))
    (workspace / "models/p7/m7_3.py").write_text(_MODEL.format(number=5000), encoding="utf-8")
    row("one model edited", one.bazel(*graphs))
    row("compile 10 models", one.bazel("build", f"--disk_cache={cache}", "//models/p7:all"))
    size = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    rows.append(["disk cache of these 10 models, whole", f"{size / 1e6:.1f} MB", "", "", "", ""])
    one.close()
    return [["", "time", "of which loading and analysis", "new actions", "ran", "server's heap"], *rows]


def peer(client: Callable[[Path], Client], *, workspace: Path, wheel: Path) -> list[list[str]]:
    """Times 10 SavedModels of two layers, compiled by the rules and by TensorFlow's own command, and including a header of each."""
    _link_repository(workspace)
    package = workspace / "models"
    package.mkdir()
    (package / "BUILD").write_text(_SAVED_BUILD, encoding="utf-8")
    (workspace / "save.py").write_text(_SAVED, encoding="utf-8")
    one = client(workspace)
    repository = wheel / "site-packages"
    (python,) = wheel.glob("python/bin/python3.*")
    environment = {**os.environ, "PYTHONPATH": str(repository), "TF_CPP_MIN_LOG_LEVEL": "3"}

    def run(*arguments: str) -> float:
        start = time.monotonic()
        subprocess.run(
            [str(python), "-s", "-S", *arguments],
            cwd=workspace,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return time.monotonic() - start

    for number in range(10):
        run("save.py", f"models/s{number}.saved")
    command = (
        "-m",
        "tensorflow.python.tools.saved_model_cli",
        "aot_compile_cpu",
        "--tag_set=serve",
        "--signature_def_key=serving_default",
    )
    theirs = sum(
        run(*command, f"--dir=models/s{n}.saved", f"--output_prefix={workspace}/cli{n}", f"--cpp_class=s::S{n}")
        for n in range(10)
    )
    ours = one.bazel("build", *(f"//models:s{number}" for number in range(10)))
    (generated,) = one.base.glob("execroot/*/bazel-out/*-fastbuild/bin")
    includes = {
        "the rules": [f"-I{generated}", f"-I{workspace}", f"-I{workspace}/runtime"],
        "saved_model_cli": [f"-I{workspace}", f"-I{repository}/tensorflow/include"],
    }
    headers = {"the rules": "models/s0.h", "saved_model_cli": "cli0.h"}
    rows = []
    for name, seconds in (("the rules", ours.seconds), ("saved_model_cli", theirs)):
        times = []
        for _ in range(5):
            start = time.monotonic()
            subprocess.run(
                ["g++", "-std=c++17", "-fsyntax-only", "-w", *includes[name], "-x", "c++", "-"],
                input=f'#include "{headers[name]}"\n'.encode(),
                check=True,
            )
            times.append(time.monotonic() - start)
        rows.append([name, f"{seconds:.1f} s", f"{statistics.median(times):.2f} s"])
    one.close()
    return [["", "10 SavedModels", "compile a file that includes the header"], *rows]


def _link_repository(workspace: Path) -> None:
    """Makes a folder a workspace that has the rules."""
    for entry in _ROOT.iterdir():
        if entry.name not in (".git", "examples", "tests", "benchmarks") and not entry.name.startswith("bazel-"):
            (workspace / entry.name).symlink_to(entry)


def _installed() -> tuple[str, Path]:
    """Returns the repository with TensorFlow, by canonical name and by folder. Installing it for each client would time pip."""

    def said(*arguments: str) -> str:
        command = [str(_ROOT / "bazelw"), *arguments]
        return subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()

    # external/NAME/site-packages; how Bazel makes the name depends on its version.
    name = said("cquery", "--output=files", "@tfaot_tensorflow//:site_packages").split("/")[1]
    return name, Path(said("info", "output_base"), "external", name)


def _remove(folder: Path) -> None:
    # Bazel takes the right to write from outputs.
    subprocess.run(["chmod", "-R", "u+w", str(folder)], check=False)
    shutil.rmtree(folder)


def _received() -> int:
    """Returns how many bytes this machine has received over networks."""
    lines = Path("/proc/net/dev").read_text(encoding="utf-8").splitlines()[2:]
    return sum(int(line.split(":")[1].split()[0]) for line in lines if not line.strip().startswith("lo:"))


def _ran(measured: Measured) -> str:
    return ", ".join(f"{count} {name}" for name, count in measured.ran.items() if name not in ("total", "internal"))


def _table(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def main() -> None:
    """Parses the flags, and prints the tables."""
    names = ("first", "loop", "levels", "peer", "monorepo")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, help="what to measure; by default, all")
    chosen = parser.parse_args().only or names
    cache = Path(os.environ.get("RULES_TFAOT_CACHE") or Path.home() / ".cache/rules_tfaot")
    folder = cache / f"builds-{os.getpid()}"
    count = 0

    repository, wheel = _installed()

    # The timed clients reuse that installation.
    def client(workspace: Path = _ROOT) -> Client:
        nonlocal count
        count += 1
        return Client(workspace, folder / str(count), [f"--override_repository={repository}={wheel}"])

    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    print(f"{len(os.sched_getaffinity(0))} cores, {cpu[1] if cpu else 'unknown CPU'}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    measures: dict[str, Callable[[Path], list[list[str]]]] = {
        "first": first,
        "loop": lambda workspace: loop(client, workspace=workspace),
        "levels": lambda workspace: levels(client, workspace=workspace),
        "peer": lambda workspace: peer(client, workspace=workspace, wheel=wheel),
        "monorepo": lambda workspace: monorepo(client, workspace=workspace),
    }
    try:
        for name in chosen:
            print(f"measuring {name} …", file=sys.stderr)
            workspace = folder / name
            workspace.mkdir(parents=True)
            print("\n" + _table(measures[name](workspace)), flush=True)
    finally:
        if folder.exists():
            _remove(folder)


if __name__ == "__main__":
    main()
