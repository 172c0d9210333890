"""Tries the rules with another version of TensorFlow: what changed in the wheel, and which tests pass.

    ./bazelw run //tools/dev:try_tensorflow -- 2.20.0 --require 'protobuf<7' [--targets //examples/fc/...] [--out report.md]
    ./bazelw run //tools/dev:try_tensorflow -- tf-nightly-cpu==2.22.0.dev20260905

The command locks the packages for that version, installs them, and runs tests in a workspace below the cache folder of
`bazelw`. It needs a checkout with its tests, and changes nothing in it. The report compares with the version that the rules
use: flags of XLA, ops and their signatures, arguments of the compiler, headers that it writes, and how often passes apply.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.dev import places

_STAGES = ("graph", "export", "tfcompile", "compile", "render", "verify", "hlo", "breadth")
_TARGETS = (*(f"//tests/{stage}/..." for stage in _STAGES), "//examples/...")
_TAG = 'tfaot.tensorflow(requirements_lock = "//:try.lock")\n'

# Runs with a wheel's packages, and prints its ops and the compiler's signature.
_FACTS = """
import json, sys
from google.protobuf import text_format
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python import _pywrap_tfcompile
from tensorflow.python.client import pywrap_tf_session
ops = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
for op in ops.op:
    op.summary = op.description = ""
json.dump({
    "ops": {op.name: text_format.MessageToString(op) for op in ops.op},
    "functions": {"Compile": _pywrap_tfcompile.Compile.__doc__},
}, sys.stdout)
"""
# Prints the header of a function that has every kind of thunk.
HEADER = """
import os, sys, tempfile
from tfaot.core import environment
environment.prepare()
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.compiler.tf2xla import tf2xla_pb2
from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_call_module
from tensorflow.python import _pywrap_tfcompile
# XLA keeps no other calls.
module = '''module {
  func.func private @f(%x: tensor<256xf32>) -> tensor<256xf32> {
    return %x : tensor<256xf32>
  }
  func.func @main(%x: tensor<256xf32>) -> tensor<256xf32> {
    %y = func.call @f(%x) {mhlo.frontend_attributes = {inlineable = "false"}} : (tensor<256xf32>) -> tensor<256xf32>
    return %y : tensor<256xf32>
  }
}'''
with tf.Graph().as_default() as graph:
    x = tf.compat.v1.placeholder(tf.float32, [1, 8, 8, 4], "x")
    w = tf.fill([16, 16], 0.1)
    y = tf.nn.conv2d(x, tf.fill([3, 3, 4, 8], 0.5), 1, "SAME") + tf.random.uniform([8])
    y = tf.sort(tf.matmul(tf.reshape(y, [64, 8]), tf.fill([8, 16], 0.1)))
    y = tf.while_loop(lambda y: tf.reduce_sum(y) < 1000, lambda y: [y + tf.matmul(y, w)], [y])[0]
    y = tf.while_loop(lambda i, _: i < 9, lambda i, y: [i + 1, tf.matmul(y, w)], [0, y])[1]
    y = tf.cond(y[0, 0] > 0, lambda: tf.matmul(y, w), lambda: tf.tanh(y))
    tf.identity(tf.math.top_k(y, 4)[0], "y")
    z = tf.argsort(tf.reshape(x, [256]), direction="DESCENDING", stable=True)
    z = tf.cast(z, tf.float32)
    tf.identity(xla_call_module([z], version=9, module=module, Sout=[[256]], Tout=[tf.float32], platforms=["CPU"])[0], "z")
config = tf2xla_pb2.Config()
feed = config.feed.add()
feed.id.node_name = "x"
feed.shape.CopyFrom(tf.TensorShape([1, 8, 8, 4]).as_proto())
for name in ("y", "z"):
    config.fetch.add().id.node_name = name
with tempfile.TemporaryDirectory() as folder:
    file = lambda name: os.path.join(folder, name)
    open(file("graph.pb"), "wb").write(graph.as_graph_def().SerializeToString())
    open(file("config.pbtxt"), "w").write(text_format.MessageToString(config))
    _pywrap_tfcompile.Compile(
        graph=file("graph.pb"), config=file("config.pbtxt"), target_triple="x86_64-pc-linux", target_cpu="x86-64-v3",
        target_features="", entry_point="f", cpp_class="a::B", out_function_object=file("f.o"),
        out_metadata_object=file("m.o"), out_header=file("f.h"), out_session_module=file("f.hlo"),
        out_constant_buffers_object=file("c.o"), mlir_components="", gen_name_to_index=False, gen_program_shape=False,
    )
    sys.stdout.write(open(file("f.h")).read())
"""
# XLA parses its flags on first use, and lists all of them when it meets one that it doesn't know.
_USE = "import tensorflow as tf; tf.function(lambda x: x + 1, jit_compile=True)(1.0)"
_FLAG = re.compile(r"^\t--(xla_\w+)=(\S*)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """The result of a test."""

    label: str
    status: str
    """As Bazel's build events say it, `PASSED` for example, or `NO STATUS` if the test wasn't built."""


@dataclass(frozen=True)
class Requirement:
    """A TensorFlow to try."""

    package: str
    version: str
    python: str = "{}.{}".format(*sys.version_info)
    """The Python that the packages are locked for: this one, which Bazel chose."""

    @property
    def series(self) -> str:
        """The version's first two numbers."""
        return ".".join(self.version.split(".")[:2])

    @property
    def nightly(self) -> bool:
        """Whether it is a nightly build, whose Keras is one, too."""
        return self.package.startswith("tf-nightly")

    @property
    def beyond_pins(self) -> bool:
        """Whether the Python is newer than the wheels of NumPy and h5py that requirements.in and TensorFlow name."""
        return tuple(map(int, self.python.split("."))) >= (3, 14)

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"


def requirement(text: str) -> Requirement:
    """Reads a version of tensorflow-cpu, or a requirement of any package that is TensorFlow.

    Raises:
      ValueError: the text is neither.
    """
    match = re.fullmatch(r"(?:(tensorflow(?:-cpu)?|tf-nightly(?:-cpu)?)==)?(\d+\.\d+\.\d+\S*)", text)
    if not match:
        raise ValueError(
            f"{text!r} is no version of TensorFlow; give one like 2.20.0, or a requirement like tf-nightly-cpu==2.22.0.dev20260905"
        )
    return Requirement(match[1] or "tensorflow-cpu", match[2])


def lock_input(text: str, wanted: Requirement, extra: Sequence[str]) -> str:
    """Returns the text of requirements.in for another TensorFlow.

    Args:
      text: the file's text.
      wanted: the TensorFlow.
      extra: more requirements.
    """
    keras = f"tf-keras-nightly=={wanted.series}.*" if wanted.nightly else f"tf-keras=={wanted.series}.*"
    text = re.sub(r"^tensorflow-cpu==.*$", str(wanted), text, flags=re.MULTILINE)
    text = re.sub(r"^tf-keras==.*$", keras, text, flags=re.MULTILINE)
    if wanted.beyond_pins:
        text = re.sub(r"^numpy==.*$", "numpy", text, flags=re.MULTILINE)
    return text + "".join(f"{requirement}\n" for requirement in extra)


def lock_settings(text: str, wanted: Requirement) -> str:
    """Returns the text of uv's settings for another TensorFlow: one Python, and no second TensorFlow for a nightly Keras."""
    text = text.replace("python_version < '3.14'", f"python_version == '{wanted.python}'")
    text = text.replace('python-version = "3.10"', f'python-version = "{wanted.python}"')
    other = [] if wanted.package == "tf-nightly" else ["tf-nightly"]
    overrides = [f"{package} ; python_version < '0'" for package in (*other, "tb-nightly")]
    overrides += ["h5py>=3.15"] if wanted.beyond_pins else []
    lines = "".join(f'    "{override}",\n' for override in overrides)
    return text.replace("override-dependencies = [\n", "override-dependencies = [\n" + lines)


def module_text(text: str) -> str:
    """Returns the text of MODULE.bazel with the packages of try.lock.

    Raises:
      ValueError: the file doesn't use the extension in the way that this expects.
    """
    changed, count = re.subn(
        r'^(tfaot = use_extension\("//rules:extensions.bzl".*\)\n)', rf"\1{_TAG}", text, flags=re.MULTILINE
    )
    if count != 1:
        raise ValueError(
            "MODULE.bazel has no line 'tfaot = use_extension(\"//rules:extensions.bzl\", …)' to add the lock to"
        )
    return changed


def changes(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Returns lines that say which entries of a table are new, gone, or different.

    Args:
      name: what the entries are, in the plural.
      old: the entries of the version that the rules use.
      new: the entries of the version on trial.
    """
    lines = []
    for what, keys in (("New", new.keys() - old.keys()), ("Gone", old.keys() - new.keys())):
        if keys:
            lines.append(f"{what} {name} ({len(keys)}): {', '.join(f'`{key}`' for key in sorted(keys))}.")
    for key in sorted(old.keys() & new.keys()):
        if old[key] != new[key]:
            lines += [f"`{key}` differs:", "", *_difference(old[key], new[key])]
    return lines or [f"The {name} are the same."]


def _difference(old: str, new: str) -> list[str]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    return ["    " + line for line in lines if not line.startswith(("---", "+++", "@@"))] + [""]


def outcomes(events: Iterable[str]) -> list[Outcome]:
    """Returns the results of all tests in Bazel's build events, one JSON object a line."""
    status, tests = {}, set()
    for event in map(json.loads, events):
        name = event.get("id", {})
        if "testSummary" in name:
            status[name["testSummary"]["label"]] = event["testSummary"]["overallStatus"]
        elif event.get("configured", {}).get("testSize"):
            tests.add(name["targetConfigured"]["label"])
    return [Outcome(label, status.get(label, "NO STATUS")) for label in sorted(tests | status.keys())]


def report(*, version: str, used: str, sections: Mapping[str, Sequence[str]], tests: Sequence[Outcome]) -> str:
    """Returns the report in Markdown."""
    lines = [f"# TensorFlow {version}, beside {used}", ""]
    for title, text in sections.items():
        lines += [f"## {title}", "", *text, ""]
    failed = [test for test in tests if test.status not in ("PASSED", "FLAKY")]
    lines += ["## Tests", "", f"{len(tests) - len(failed)} of {len(tests)} passed.", ""]
    lines += [f"- `{test.label}`: {test.status}" for test in failed]
    return "\n".join(lines).rstrip() + "\n"


class Trial:
    """A workspace with the rules and another TensorFlow."""

    def __init__(self, repository: Path, folder: Path, wanted: Requirement, extra: Sequence[str]) -> None:
        """Copies the checkout, so that it can change while tests run, and locks the packages."""
        self._repository, self._folder = repository, folder
        self.workspace = folder / "workspace"
        shutil.rmtree(self.workspace, ignore_errors=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(listed, cwd=repository, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
        for file in filter(lambda file: file and (repository / file).is_file(), [*files, "user.bazelrc"]):
            copy = self.workspace / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / file, copy)
        module = self.workspace / "MODULE.bazel"
        module.write_text(module_text(module.read_text(encoding="utf-8")), encoding="utf-8")
        (self.workspace / "try.lock").write_text(self._locked(wanted, extra), encoding="utf-8")

    def _locked(self, wanted: Requirement, extra: Sequence[str]) -> str:
        # The toolchain's Python, which runs this, has no pip. -I: Bazel's variables are for that Python.
        pip = ["python3", "-I", "-m", "pip"]
        tools = self._folder / "uv"
        _run([*pip, "install", "--quiet", f"--target={tools}", "uv"])
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            folder = Path(scratch)
            packages = self._repository / "tools/python"
            settings = (packages / "pyproject.toml").read_text(encoding="utf-8")
            (folder / "pyproject.toml").write_text(lock_settings(settings, wanted), encoding="utf-8")
            text = lock_input((packages / "requirements.in").read_text(encoding="utf-8"), wanted, extra)
            (folder / "requirements.in").write_text(text, encoding="utf-8")
            index = subprocess.run(
                [*pip, "config", "get", "global.index-url"], check=False, capture_output=True, text=True
            ).stdout.strip()
            chosen = [f"--default-index={index}"] if index else []
            _run(
                [str(tools / "bin/uv"), "pip", "compile", "--quiet", *chosen, "requirements.in", "-o", "lock"],
                cwd=folder,
            )
            return (folder / "lock").read_text(encoding="utf-8")

    def bazel(self, command: str, *arguments: str, trial: bool = True, check: bool = True) -> str:
        """Runs a Bazel command with the version on trial or, if `trial` is false, with the one that the rules use."""
        start = [str(self._repository / "bazelw")]
        if trial:
            start += [f"--output_base={self._folder / 'base'}", "--max_idle_secs=60"]
        result = subprocess.run(
            [*start, command, *(["--symlink_prefix=/"] if trial and command in ("build", "test") else []), *arguments],
            cwd=self.workspace if trial else self._repository,
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        )
        if check and result.returncode != 0:
            sys.exit(
                f"try_tensorflow: '{command} {' '.join(arguments)}' failed with status {result.returncode}; see above"
            )
        return result.stdout

    def facts(self, *, trial: bool) -> dict[str, dict[str, str]]:
        """Returns what a wheel has: tables of text, by name."""
        # external/NAME/site-packages; how Bazel makes the name depends on its version.
        files = self.bazel("cquery", "--output=files", "@tfaot_tensorflow//:site_packages", trial=trial)
        base = Path(self.bazel("info", "output_base", trial=trial).strip())
        wheel = base / "external" / files.split("/")[1]
        packages = os.pathsep.join([str(wheel / "site-packages"), str(self._repository / "py")])
        environment = {**os.environ, "PYTHONPATH": packages, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [str(next(wheel.glob("python/bin/python3.*"), sys.executable)), "-s", "-c"]

        def printed(code: str) -> str:
            return subprocess.run(
                [*command, code], env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        usage = subprocess.run(
            [*command, _USE], env=environment | {"XLA_FLAGS": "--help"}, check=False, stderr=subprocess.PIPE, text=True
        ).stderr
        # The compiler is the CPU's.
        cpu = {name: default for name, default in _FLAG.findall(usage) if not name.startswith("xla_gpu")}
        return {**json.loads(printed(_FACTS)), "flags": cpu, "headers": {"header": printed(HEADER)}}

    def places(self, targets: Sequence[str]) -> list[str]:
        """Returns how often passes apply to libraries, beside the version that the rules use: what is worse, then the rest."""
        queried = self.bazel("query", "--noshow_progress", places.LIBRARIES.format(" + ".join(targets))).split()
        table = places.parsed((self.workspace / places.TABLE).read_text(encoding="utf-8"))["DEFAULT"]
        libraries = [label for label in places.labels(table) if label in queried]
        if not libraries:
            return ["No library of the table is among the targets."]
        rows = places.compiled(libraries, lambda *arguments: self.bazel(*arguments, check=False))
        used = {name: row for name, row in table.items() if name.partition(" ")[0] in libraries}
        worse, better = places.differences(used, rows)
        return [f"- `{line}`" for line in (*worse, *better)] or ["All passes apply where they did."]

    def test(self, targets: Sequence[str]) -> list[Outcome]:
        """Runs tests."""
        events = self._folder / "events.json"
        self.bazel("test", "--config=full", "--keep_going", f"--build_event_json_file={events}", *targets, check=False)
        return outcomes(events.read_text(encoding="utf-8").splitlines())


def _run(command: Sequence[str], cwd: Path | None = None) -> None:
    if subprocess.run(command, cwd=cwd, check=False, stdout=sys.stderr).returncode != 0:
        sys.exit(f"try_tensorflow: '{Path(command[0]).name} {' '.join(command[1:])}' failed; see its message above")


def main() -> None:
    """Parses the flags, and prints the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirement", help="like 2.20.0, for tensorflow-cpu, or tf-nightly-cpu==2.22.0.dev20260905")
    parser.add_argument(
        "--require", action="append", default=[], help="one more requirement of the packages: 'protobuf<7'"
    )
    parser.add_argument(
        "--targets", nargs="+", default=_TARGETS, help="tests to run; by default, the stages' and the examples'"
    )
    parser.add_argument("--out", type=Path, help="where to write the report, which is also printed")
    flags = parser.parse_args()
    try:
        wanted = requirement(flags.requirement)
    except ValueError as error:
        sys.exit(f"try_tensorflow: {error}")
    root = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not root:
        sys.exit("try_tensorflow: run it in a checkout, with ./bazelw run //tools/dev:try_tensorflow -- REQUIREMENT")
    repository = Path(root)
    cache = Path(os.environ.get("RULES_TFAOT_CACHE") or Path.home() / ".cache/rules_tfaot")
    out = flags.out and Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), flags.out)
    trial = Trial(repository, cache / "try" / wanted.version, wanted, flags.require)
    used = re.search(
        r"^tensorflow-cpu==(\S+)", (repository / "tools/python/requirements.lock").read_text(), re.MULTILINE
    )
    assert used
    old, new = (trial.facts(trial=which) for which in (False, True))
    sections = {
        "Flags of XLA": changes("flags", old["flags"], new["flags"]),
        "Ops": changes("ops", old["ops"], new["ops"]),
        "The compiler's interface": changes("functions", old["functions"], new["functions"]),
        "Headers": changes("headers", old["headers"], new["headers"]),
    }
    tests = trial.test(flags.targets)
    sections["Passes"] = trial.places(flags.targets)
    text = report(version=str(wanted), used=used[1], sections=sections, tests=tests)
    trial.bazel("shutdown")
    if out:
        out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
