"""Compiles a model in several ways, each with its own driver, using the stages' mains and a C++ compiler without Bazel."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

from benchmarks import bind, catalog
from benchmarks.harness import Peer, say
from tfaot import starlark

_CPU = "x86-64-v3"
_LEVEL = (f"-march={_CPU}", "-fno-math-errno")
OPTIMIZED = "-O3"
"""How the drivers' own C++ is compiled."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to compile."""

    name: str
    xla_flags: tuple[str, ...] = ()
    """In addition to the rules' own flags, which they override."""
    passes: tuple[str, ...] = ("*",)
    """Patterns, as in `tf_aot_library`."""


class NotBuilt(Exception):
    """Why a variant can't be built: the end of the failed command's output."""


class Builder:
    """Builds drivers in its own folder."""

    def __init__(self, folder: pathlib.Path, packages: str) -> None:
        """Finds the C++ compiler.

        Args:
          folder: an existing folder for build outputs.
          packages: PYTHONPATH of TensorFlow's wheel and its dependencies.

        Raises:
          NotBuilt: there is no compiler.
        """
        self._folder = folder
        root = self._root = catalog.ROOT
        self._python_path = os.pathsep.join([str(root / "py"), packages])
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        if not compiler:
            raise NotBuilt("no C++ compiler on PATH: set CXX")
        self._compiler = [compiler, "-std=c++17", "-DNDEBUG", "-w", f"-I{root}/runtime", f"-I{root}"]
        self._runtime: list[str] = []

    def _out(self, library: str, variant: Variant) -> pathlib.Path:
        # Models in two packages can have the same name.
        package, name = pathlib.Path(library).parts[-2:]
        return self._folder / package / name / variant.name

    def compile(self, library: str, variant: Variant) -> None:
        """Runs the compile stage.

        Args:
          library: the path of the export stage's outputs without their extensions, `…/mlp_aot`.
          variant: how to compile.

        Raises:
          NotBuilt: the compiler refuses the model.
        """
        out = self._out(library, variant)
        out.mkdir(parents=True)
        say(f"{os.path.basename(library)}: building {variant.name}")
        self._stage(
            "compile",
            *(
                f"--{kind}={library}.{end}"
                for kind, end in (
                    ("manifest", "model.json"),
                    ("graph", "pb"),
                    ("config", "config.pbtxt"),
                    ("sources", "sources.json"),
                )
            ),
            f"--cpu={_CPU}",
            *(f"--xla_flags={flag}" for flag in variant.xla_flags),
            *(f"--passes={pattern}" for pattern in variant.passes),
            *(
                f"--out_{kind}={out}/{file}"
                for kind, file in (
                    ("objects", "kernels.o"),
                    ("constants", "constants.o"),
                    ("header", "executor.h"),
                    ("sources", "executor.cc"),
                    ("hlo", "hlo_snapshot.pb"),
                    ("passes", "passes.json"),
                    ("fingerprint", "fingerprint.json"),
                    ("fingerprint_source", "fingerprint.S"),
                )
            ),
        )

    def same_code(self, library: str, variant: Variant, other: Variant) -> bool:
        """Returns whether two compiled variants have the same kernels and the same program."""
        return all(
            (self._out(library, variant) / file).read_bytes() == (self._out(library, other) / file).read_bytes()
            for file in ("kernels.o", "executor.cc")
        )

    def driver(self, library: str, variant: Variant, inputs: Sequence[str]) -> Peer:
        """Links the output of `compile`.

        Args:
          library: as in `compile`.
          variant: as in `compile`.
          inputs: files with the first step's inputs.

        Raises:
          NotBuilt: a step failed.
        """
        out = self._out(library, variant)
        self._stage(
            "render",
            f"--manifest={library}.model.json",
            "--header=model.h",
            "--functions==0==executor.h",
            "--embed_variables",
            "--flush_denormals",
            *(
                f"--out_{kind}={out}/{file}"
                for kind, file in (
                    ("header", "model.h"),
                    ("source", "model.cc"),
                    ("variables", "variables.S"),
                    ("test", "test.cc"),
                    ("benchmark", "benchmark.cc"),
                )
            ),
        )
        with open(f"{library}.model.json", encoding="utf-8") as file:
            (out / "driver.cc").write_text(bind.source(json.load(file), "model.json", "model.h"), encoding="utf-8")
        self._compile(OPTIMIZED, *_LEVEL, "-c", f"{out}/executor.cc", f"-I{out}", at=out)
        self._compile(OPTIMIZED, "-c", f"{out}/model.cc", f"{out}/driver.cc", f"-I{out}", at=out)
        self._compile("-c", f'-DTFAOT_VARIABLES="{library}.variables.safetensors"', f"{out}/variables.S", at=out)
        self._compile("-c", f"{out}/fingerprint.S", os.path.abspath(f"{library}.weights.S"), at=out)
        objects = [str(path) for path in sorted(out.glob("*.o"))]
        self._compile(*objects, *self._shared(), "-Wl,--gc-sections", "-lm", "-pthread", "-o", f"{out}/driver", at=out)
        binary = str(out / "driver")
        return Peer(variant.name, (binary, *inputs), binary=binary)

    def _shared(self) -> list[str]:
        """Returns objects of the runtime, compiled once."""
        if not self._runtime:
            at = self._folder / "runtime"
            at.mkdir()
            package = starlark.execute(self._root, "runtime/package.bzl")
            for kind, flags in (("PACKAGE_SOURCES", ()), ("PACKAGE_KERNELS", _LEVEL)):
                sources = [str(self._root / "runtime" / path) for path in package[kind]]
                self._compile(OPTIMIZED, *flags, "-ffunction-sections", "-c", *sources, at=at)
            self._runtime = [str(path) for path in sorted(at.glob("*.o"))]
        return self._runtime

    def _stage(self, name: str, *flags: str) -> None:
        environment = {**os.environ, "PYTHONPATH": self._python_path, "PYTHONDONTWRITEBYTECODE": "1"}
        _run([sys.executable, str(self._root / "tools" / f"{name}.py"), *flags], environment)

    def _compile(self, *arguments: str, at: pathlib.Path) -> None:
        _run([*self._compiler, *arguments], dict(os.environ), at)


def _run(command: list[str], environment: dict[str, str], folder: pathlib.Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, check=False, cwd=folder, env=environment, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"ended with status {done.returncode}"]
        raise NotBuilt(lines[0][:300])
