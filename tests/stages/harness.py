"""Runs the stages on models that tests write: each run in a forked child, as the stages' mains do.

TensorFlow is imported once a test, by the parent, which builds no graph: a child gives what a
fresh process would.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

from tfaot import environment, isolate
from tfaot.errors import TfaotError
from tfaot.manifest import Manifest

ROOT = Path(isolate.__file__).parents[2]
"""The repository, or its copy among a test's runfiles."""

PREAMBLE = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return v1.placeholder(tf.float32, [2], "x"), v1.placeholder(tf.int32, [], "n")


"""
"""What most models of tests start with, so that their `model_fn` starts at line 10."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """What the export stage wrote."""

    folder: Path

    def path(self, output: str) -> str:
        """Where the output of a stage is."""
        return str(self.folder / output)

    @property
    def manifest(self) -> Manifest:
        """The manifest."""
        return Manifest.from_json((self.folder / "manifest").read_text())

    @property
    def config(self) -> str:
        """The config's text."""
        return (self.folder / "config").read_text()

    @property
    def written(self) -> dict[str, bool]:
        """Whether each variable is written, by its TensorFlow name."""
        return {variable.name: variable.written for variable in self.manifest.variables}

    @property
    def cpp_names(self) -> dict[str, str]:
        """C++ names by TensorFlow names."""
        entry = self.manifest.entry_points[0]
        return {item.name: item.cpp_name for item in (*entry.inputs, *entry.outputs, *self.manifest.variables)}


class StageTest(unittest.TestCase):
    """A test with a folder of its own, and the stages as functions on it."""

    maxDiff = None

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)

    @classmethod
    def setUpClass(cls) -> None:
        environment.prepare()
        import tensorflow as tf

        assert tf.__version__

    def write(self, model: str, *, user_config: str | None = None) -> Path:
        """Writes `model.py`, and perhaps a config, to a new folder."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "model.py").write_text(model)
        if user_config is not None:
            (folder / "user.pbtxt").write_text(user_config)
        return folder

    def export(
        self,
        model: str,
        *,
        cpp_class: str = "t::Model",
        edge: str = "cpp",
        golden_steps: int = 1,
        user_config: str | None = None,
    ) -> Exported:
        """Exports a model, given as text, from a folder of its own, in a child."""
        folder = self.write(model, user_config=user_config)

        def work() -> None:
            os.chdir(folder)  # where Bazel's execution root would be
            sys.dont_write_bytecode = True  # as the rules call the mains
            from tfaot.export.export import Request, export

            export(
                Request(
                    model="model.py",
                    cpp_class=cpp_class,
                    golden_steps=golden_steps,
                    user_config=None if user_config is None else "user.pbtxt",
                    out_graph="graph",
                    out_config="config",
                    out_manifest="manifest",
                    out_variables="variables",
                    out_golden_inputs="golden_inputs",
                    out_sources="sources",
                    edge=edge,
                )
            )

        isolate.run_isolated(work, what="exporting model.py")
        return Exported(folder)

    def compile(self, exported: Exported, *, cpu: str = "x86-64-v3", xla_flags: tuple[str, ...] = ()) -> None:
        """Compiles an exported model beside its other outputs; `compile_graph` makes its own child."""
        from tfaot.compile import Request, compile_graph

        compile_graph(
            Request(
                manifest=exported.path("manifest"),
                graph=exported.path("graph"),
                config=exported.path("config"),
                sources=exported.path("sources"),
                cpu=cpu,
                xla_flags=xla_flags,
                out_object=exported.path("object"),
                out_constants=exported.path("constants"),
                out_header=exported.path("header"),
                out_hlo=exported.path("hlo"),
            )
        )

    def error_of(self, work: object, *args: object, **kwargs: object) -> str:
        """Calls something that must end in one of our errors, and returns its text."""
        assert callable(work)
        with self.assertRaises(TfaotError) as raised:
            work(*args, **kwargs)
        return str(raised.exception)

    def assert_error(self, text: str, wanted: str) -> None:
        """Compares a complete message with a text that is indented in the test."""
        self.assertEqual(text, textwrap.dedent(wanted).strip("\n"))


def run_main(
    name: str, *flags: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `tools/NAME.py` as the rules do: a process of its own, with this one's packages."""
    variables = {
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
        **(env or {}),
    }
    return subprocess.run(
        [sys.executable, "-s", str(ROOT / "tools" / f"{name}.py"), *flags],
        capture_output=True,
        check=False,
        cwd=cwd,
        env=variables,
        text=True,
    )
