"""Runs the stages on models in tests: each run in a forked child, like the stages' mains.

The parent imports TensorFlow once per test and builds no graph, so a child gives the same results as a fresh process.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt

import tfaot
from tfaot.core import drawn, environment, isolate, safetensors, templates
from tfaot.core.errors import TfaotError
from tfaot.core.functions import stem
from tfaot.core.manifest import Manifest
from tfaot.export.sources.model import Model

ROOT = Path(tfaot.__file__).parents[2]
"""The repository, or its copy in a test's runfiles."""

EXPORTED = ("graph", "configs", "manifest", "variables", "weights", "golden_inputs", "sources")
"""What the export stage writes, by flag: `--out_graph` and so on."""

Test = TypeVar("Test")

_MODULES = (
    "jinja2",
    "keras",
    "numpy.random",
    "tensorflow",
    "tensorflow.compiler.tf2xla.tf2xla_pb2",
    "tensorflow.python._pywrap_tfcompile",
    "tf_keras",
    "tfaot.compile.compile",
    "tfaot.compile.table",
    "tfaot.export.export",
    "tfaot.export.sources.model_fn",
    "tfaot.export.sources.python_model",
    "tfaot.graph.convolutions",
    "tfaot.render.render",
    "tfaot.verify.goldens",
)

PREAMBLE = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return v1.placeholder(tf.float32, [2], "x"), v1.placeholder(tf.int32, [], "n")


"""
"""The first lines of most test models, so that their `model_fn` starts at line 10."""


def wide(test: Test) -> Test:
    """Marks a test, or a class of tests, that takes long and has the further cases of a matrix: it runs in the tier `full` only."""
    test.wide = True  # type: ignore[attr-defined]
    return test


@dataclasses.dataclass(frozen=True)
class Exported:
    """The output of the export stage."""

    folder: Path

    def path(self, output: str) -> str:
        """Returns the path of a stage's output."""
        return str(self.folder / output)

    @property
    def manifest(self) -> Manifest:
        """The manifest."""
        return Manifest.from_json((self.folder / "manifest").read_text())

    @property
    def config(self) -> str:
        """The config's text, if there is one entry point."""
        (text,) = self.configs.values()
        return text

    @property
    def configs(self) -> dict[str, str]:
        """The configs' text, by entry point name."""
        entries = self.manifest.entry_points
        return {entry.name: Path(self.config_path(entry.name)).read_text() for entry in entries}

    def config_path(self, entry_point: str = "") -> str:
        """Returns the path of an entry point's config. The name is optional if there is only one."""
        return self.path(f"config.{entry_point}" if len(self.manifest.entry_points) > 1 else "config")

    @property
    def written(self) -> dict[str, bool]:
        """Whether each variable is written, by its TensorFlow name."""
        return {variable.name: variable.written for variable in self.manifest.variables}

    @property
    def cpp_names(self) -> dict[str, str]:
        """C++ names by TensorFlow names, for all entry points."""
        manifest = self.manifest
        edges = [tensor for entry in manifest.entry_points for tensor in (*entry.inputs, *entry.outputs)]
        return {item.name: item.cpp_name for item in (*edges, *manifest.variables)}

    @property
    def variables(self) -> dict[str, npt.NDArray[Any]]:
        """The contents of the variables file."""
        return dict(safetensors.read(self.path("variables")))

    @property
    def golden_inputs(self) -> dict[str, npt.NDArray[Any]]:
        """The inputs to verify."""
        return drawn.inputs(self.manifest, safetensors.read(self.path("golden_inputs")))

    def goldens(
        self,
        name: str = "goldens",
        *,
        unseen: tuple[str, ...] = (),
        program: Path | None = None,
        entry_points: tuple[tuple[str, str], ...] = (),
        strict: bool = True,
    ) -> dict[str, npt.NDArray[Any]]:
        """Runs the verify stage in a child, because this process forks and so must not have threads. Reads its output `name`."""

        def work() -> None:
            import tensorflow as tf

            from tfaot.verify import failed_run
            from tfaot.verify.goldens import compute_goldens
            from tfaot.verify.request import Request

            request = Request(
                manifest=self.path("manifest"),
                graph=self.path("graph"),
                variables=self.path("variables"),
                golden_inputs=self.path("golden_inputs"),
                sources=self.path("sources"),
                out_goldens=self.path(name),
                unseen=unseen,
                program=None if program is None else str(program),
                entry_points=entry_points,
                strict=strict,
            )
            try:
                compute_goldens(request)
            except tf.errors.OpError as error:
                raise failed_run.explained_in_files(error, request) from None

        isolate.run_isolated(work, what="computing goldens")
        return dict(safetensors.read(self.path(name)))


def warm() -> None:
    """Imports what stages import, once for all children. None of it starts a thread or builds a graph."""
    environment.prepare()
    for name in _MODULES:
        importlib.import_module(name)
    for folder in ("compile/program/codegen", "render"):
        loaded = templates.environment(str(Path(tfaot.__file__).parent / folder / "templates"))
        for name in loaded.list_templates():
            loaded.get_template(name)


def export_here(
    folder: Path,
    cpp_class: str,
    *,
    dims: Mapping[str, tuple[int | str | None, ...]] | None = None,
    sizes: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Exports the `model.py` of a folder to it, in this process."""
    os.chdir(folder)
    sys.dont_write_bytecode = True
    from tfaot.export.export import export
    from tfaot.export.request import Request

    export(
        Request(
            model=Model(model="model.py"),
            cpp_class=cpp_class,
            dims=dict(dims or {}),
            sizes=dict(sizes or {}),
            golden_steps=1,
            out_graph="graph",
            out_configs=("config",),
            out_manifest="manifest",
            out_variables="variables",
            out_golden_inputs="golden_inputs",
            out_sources="sources",
            out_weights="weights.S",
        )
    )


class StageTest(unittest.TestCase):
    """A test with its own folder, and the stages as functions on it."""

    maxDiff = None

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)

    @classmethod
    def setUpClass(cls) -> None:
        warm()

    def write(self, model: str, *, user_config: str | None = None) -> Path:
        """Writes `model.py`, and optionally a config, to a new folder."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "model.py").write_text(model)
        if user_config is not None:
            (folder / "user.pbtxt").write_text(user_config)
        return folder

    def export(
        self,
        model: str | Model,
        *,
        batch_sizes: tuple[int, ...] = (),
        cpp_class: str = "t::Model",
        dims: Mapping[str, tuple[int | str | None, ...]] | None = None,
        edge: str = "cpp",
        entry_points: tuple[tuple[str, str], ...] = (),
        frozen: tuple[str, ...] | None = None,
        golden_calls: tuple[str, ...] = (),
        golden_steps: int = 1,
        max_batch: int = 0,
        replicas: int = 0,
        rows_independent: bool = False,
        signature: Mapping[str, str] | None = None,
        sizes: Mapping[str, tuple[int | str | None, ...]] | None = None,
        taps: tuple[str, ...] = (),
        user_config: str | None = None,
        weights: Mapping[str, npt.NDArray[Any]] | None = None,
        weights_dtype: str = "",
        weights_tolerance: str = "",
    ) -> Exported:
        """Exports a model, the text of a Python file or another source, from its own folder, in a child.

        Other arguments are those of `tfaot.export.export.Request`, except that a config is its text, and a weights file is its
        contents.
        """
        folder = self.write(model if isinstance(model, str) else "", user_config=user_config)
        if weights is not None:
            with open(folder / "weights.safetensors", "wb") as file:
                safetensors.write(file, weights)
        source = (
            Model(model="model.py", signature=dict(signature or {}), replicas=replicas)
            if isinstance(model, str)
            else model
        )
        if user_config is not None:
            source = dataclasses.replace(source, config="user.pbtxt")
        configs = tuple(f"config.{name}" for name, _ in entry_points) if len(entry_points) > 1 else ("config",)

        def work() -> None:
            os.chdir(folder)  # stands for Bazel's execution root
            sys.dont_write_bytecode = True  # like the rules' calls of the mains
            environment.prepare(legacy_keras=source.legacy_keras)
            from tfaot.export.export import export
            from tfaot.export.request import Request

            export(
                Request(
                    model=source,
                    cpp_class=cpp_class,
                    golden_steps=golden_steps,
                    out_graph="graph",
                    out_configs=configs,
                    out_manifest="manifest",
                    out_variables="variables",
                    out_golden_inputs="golden_inputs",
                    out_sources="sources",
                    out_weights="weights",
                    entry_points=entry_points,
                    dims=dict(dims or {}),
                    sizes=dict(sizes or {}),
                    batch_sizes=batch_sizes,
                    max_batch=max_batch,
                    rows_independent=rows_independent,
                    frozen=frozen,
                    weights=None if weights is None else "weights.safetensors",
                    weights_dtype=weights_dtype,
                    weights_tolerance=weights_tolerance,
                    golden_calls=golden_calls,
                    edge=edge,
                    taps=taps,
                )
            )

        isolate.run_isolated(work, what=f"exporting {source.path}")
        return Exported(folder)

    def compile(
        self,
        exported: Exported,
        *,
        batch: int = 0,
        buckets: tuple[int, ...] = (),
        entry_point: str = "",
        isa: tuple[str, ...] = ("x86-64-v3",),
        passes: tuple[str, ...] = ("*",),
        target_triple: str = "",
        tolerant: bool = False,
        xla_flags: tuple[str, ...] = (),
    ) -> None:
        """Compiles an exported model next to its other outputs. `compile_graph` forks its own child.

        If an entry point, a batch size, or buckets are specified, outputs have the suffixes `.NAME`, `.bBATCH`, and `.nBUCKETS`.
        With several CPU levels, they have `.LEVEL`.
        """
        from tfaot.compile.compile import Request, compile_graph

        suffix = (f".{entry_point}" if entry_point else "") + stem("", batch, buckets)
        levels = [f".{level}" for level in isa] if len(isa) > 1 else [""]
        compile_graph(
            Request(
                manifest=exported.path("manifest"),
                graph=exported.path("graph"),
                config=exported.config_path(entry_point),
                sources=exported.path("sources"),
                cpu=isa,
                xla_flags=xla_flags,
                out_objects=tuple(exported.path("object" + suffix + level) for level in levels),
                out_constants=exported.path("constants" + suffix),
                out_header=exported.path("header" + suffix),
                out_sources=tuple(exported.path("source" + suffix + level) for level in levels),
                out_hlo=exported.path("hlo" + suffix),
                out_fingerprint=exported.path("fingerprint" + suffix),
                out_fingerprint_source=exported.path("fingerprint_source" + suffix),
                entry_point=entry_point,
                batch=batch,
                buckets=buckets,
                target_triple=target_triple,
                tolerant=tolerant,
                passes=passes,
                out_passes=exported.path("passes" + suffix),
                out_program=exported.path("program" + suffix),
            )
        )

    def error_of(self, work: object, *args: object, **kwargs: object) -> str:
        """Calls something that must fail with one of our errors, and returns its text."""
        assert callable(work)
        with self.assertRaises(TfaotError) as raised:
            work(*args, **kwargs)
        return str(raised.exception)

    def assert_error(self, text: str, wanted: str) -> None:
        """Compares a complete message with text that is indented in the test."""
        self.assertEqual(text, textwrap.dedent(wanted).strip("\n"))


def run_main(
    name: str, *flags: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `tools/NAME.py` like the rules: in a separate process, with this one's packages."""
    variables = {
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
        "PYTHONSAFEPATH": "1",
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
