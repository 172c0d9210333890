"""A model with switches for its faults: the stages' output, rewritten, compiled, and run."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from program import FLOATS, Argument, Mutant, Program, walk

from tfaot import starlark
from tfaot.compile.program.objects import constants
from tfaot.core.manifest import Manifest
from tfaot.pack import kernels

ROOT = Path(__file__).absolute().parents[2]
_HERE = Path(__file__).absolute().parent

CHANGED = 1e-4
"""A mutant changes a result by more than rounding if a value moves by more than this fraction of its tensor's largest."""

_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
_PACKAGE = starlark.execute(ROOT, "runtime/package.bzl")
_FLAGS = ("-std=c++17", "-DNDEBUG", "-w")


class Failed(Exception):
    """The C++ compiler or the driver failed. Says how."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The outcome of a mutant."""

    mutant: Mutant
    observed: str
    """How the run of the class ended: `ok`, `exit 1`, `signal 11`."""
    tested: str
    """How the generated test ended."""
    differs: bool
    """Whether any bit of a result differs."""
    change: float
    """The largest change beyond rounding, as a fraction of its tensor's largest value; 0 if there is none."""
    values: int
    """How many of the values that the test compares change by more than rounding."""
    noticed: int
    """How many of these the test doesn't tolerate."""
    call: int
    tensor: str

    @property
    def caught(self) -> bool:
        """Whether the generated test fails."""
        return self.tested != "ok"

    @property
    def changes(self) -> bool:
        """Whether a result changes by more than rounding, or there is no result at all."""
        return self.observed != "ok" or self.change > CHANGED

    @property
    def survives(self) -> bool:
        """Whether the generated test misses it."""
        return self.changes and not self.caught


class Toolchain:
    """The C++ compiler, and the code that all models link."""

    def __init__(self, folder: Path) -> None:
        """Prepares a folder.

        Args:
          folder: a folder for build outputs. Created if missing, and emptied.
        """
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        if not compiler:
            raise Failed("no C++ compiler on PATH: set CXX")
        self._compiler, self.folder = compiler, folder.resolve()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._kernels: dict[tuple[str, str], Path] = {}
        self._runtime: list[Path] = []

    def compile(self, source: Path, out: Path, *flags: str) -> Path:
        """Compiles one file.

        Raises:
          Failed: it doesn't compile.
        """
        self._run("-c", f"-I{ROOT}/runtime", f"-I{_HERE}", *_FLAGS, *flags, str(source), "-o", str(out))
        return out

    def link(self, objects: Sequence[Path], out: Path) -> Path:
        """Links a program.

        Raises:
          Failed: it doesn't link.
        """
        self._run(*map(str, objects), "-o", str(out), "-lpthread")
        return out

    def for_level(self, source: Path, out: Path, isa: str, *flags: str) -> Path:
        """Compiles one file like the executors in rules/private/link.bzl."""
        return self.compile(source, out, "-O3", f"-march={isa}", "-fno-math-errno", *flags)

    def kernels(self, source: str, isa: str) -> Path:
        """Returns products or convolutions for a level."""
        if (source, isa) not in self._kernels:
            out = self.folder / f"{Path(source).stem}.{isa}.o"
            self._kernels[source, isa] = self.for_level(ROOT / "runtime" / source, out, isa)
        return self._kernels[source, isa]

    @property
    def runtime(self) -> list[Path]:
        """Returns the code that models link, and the mutants' driver."""
        if not self._runtime:
            sources = [
                *(ROOT / "runtime" / path for path in _PACKAGE["PACKAGE_SOURCES"]),
                _HERE / "mutation.cc",
                _HERE / "driver.cc",
            ]
            self._runtime = [self.compile(path, self.folder / f"{path.stem}.o", "-O2") for path in sources]
        return self._runtime

    def _run(self, *arguments: str) -> None:
        result = subprocess.run([self._compiler, *arguments], capture_output=True, check=False, text=True)
        if result.returncode:
            raise Failed(result.stderr[-4000:])


class Model:
    """One target."""

    def __init__(self, stem: Path, generated: Path, toolchain: Toolchain) -> None:
        """Reads the stages' output.

        Args:
          stem: the path of the stages' outputs without their extensions, `…/bin/examples/fc/fc_aot`.
          generated: the folder that headers are included from, `…/bin`.
          toolchain: compiles it.

        Raises:
          Unknown: a program contains an unknown statement.
        """
        self.label = f"//{stem.parent.relative_to(generated)}:{stem.name}"
        self._stem, self._generated, self._toolchain = stem, generated, toolchain
        path = Path(f"{stem}.model.json")
        self.manifest = Manifest.from_json(path.read_text(), path=str(path))
        self._folder = toolchain.folder / stem.relative_to(generated)
        self._folder.mkdir(parents=True)
        self._programs: list[tuple[Program, str, Path]] = []
        self._kernels = set[tuple[str, str]]()
        self._objects: list[Path] = []
        self._assembled = [Path(f"{stem}.weights.S")]
        site = 0
        for entry in self.manifest.entry_points:
            name = f".{entry.name}" if len(self.manifest.entry_points) > 1 else ""
            for batch in entry.batch_sizes or (0,):
                function = f"{stem}{name}" + (f".b{batch}" if batch else "")
                held = constants.values(Path(f"{function}.constants.o").read_bytes()) if _is_object(function) else {}
                for isa in _LEVELS:
                    source = Path(f"{function}.{isa}.executor.cc")
                    if not source.exists():
                        continue
                    program = Program(
                        source.read_text(),
                        isa=isa,
                        name=f"{name[1:]}{f' of {batch}' if batch else ''}",
                        first_site=site,
                        arguments=_arguments(self.manifest, entry.name),
                        runs=sum((call.entry_point, call.batch) == (entry.name, batch) for call in self.manifest.calls),
                        constant_bytes={symbol: len(value) for symbol, value in held.items()},
                        is_float=lambda symbol, held=held: _is_float(bytes(held[symbol])),
                    )
                    site = program.sites
                    self._programs.append((program, isa, source))
                    self._objects.append(Path(f"{function}.{isa}.kernels.o"))
                    called = kernels.called(_PACKAGE["PACKAGE_KERNELS"], [f"{function}.passes.json"])
                    self._kernels |= {(path, isa) for path in called}
                self._objects.append(Path(f"{function}.constants.o"))
                if len(self._assembled) == 1:
                    self._assembled.append(Path(f"{function}.fingerprint.S"))  # the same for all functions

    @property
    def mutants(self) -> list[Mutant]:
        """Returns every possible fault. Those that depend on what operands hold are there after `build`."""
        return list(walk([program for program, _, _ in self._programs]))

    @property
    def isas(self) -> list[str]:
        """Returns the levels for which there is code."""
        return sorted({isa for _, isa, _ in self._programs})

    def build(self) -> Path:
        """Compiles and links the driver, and runs it to see what operands hold.

        Raises:
          Failed: something doesn't compile, or the driver failed.
        """
        tools, folder, stem = self._toolchain, self._folder, self._stem
        objects = [*self._objects, *(tools.kernels(path, isa) for path, isa in sorted(self._kernels))]
        for index, (program, isa, source) in enumerate(self._programs):
            mutated = folder / source.name
            mutated.write_text(program.mutated)
            objects.append(tools.for_level(mutated, folder / f"{index}.o", isa))
        (folder / "observe.cc").write_text(self._observer())
        include = f"-I{self._generated}"
        objects.append(tools.compile(Path(f"{stem}.cc"), folder / "class.o", "-O2", include))
        objects.append(tools.compile(folder / "observe.cc", folder / "observe.o", "-O1", include))
        test = Path(f"{stem}_test.cc")
        (folder / "tfaot").mkdir()
        (folder / "tfaot/verify.h").write_text(_counting((ROOT / "runtime/tfaot/verify.h").read_text()))
        quoted = f"-iquote{folder}"
        objects.append(tools.compile(test, folder / "test.o", "-O2", quoted, include, "-Dmain=GeneratedTest"))
        variables = f'-DTFAOT_VARIABLES="{stem}.variables.safetensors"'
        objects.append(tools.compile(Path(f"{stem}.variables.S"), folder / "variables.o", variables))
        objects += [tools.compile(source, folder / f"{source.name}.o") for source in self._assembled]
        driver = tools.link([*objects, *tools.runtime], folder / "driver")
        (folder / "inputs").write_bytes(self._inputs())
        held = {}
        for line in self._run(driver, "survey", *self.isas):
            site, operand, letter = line.split("\t")
            held[int(site), int(operand)] = letter
        for program, _, _ in self._programs:
            program.survey(held)
        return driver

    def run(self, driver: Path, mutants: Sequence[Mutant]) -> list[Verdict]:
        """Runs mutants, each in separate processes.

        Raises:
          Failed: the driver failed.
        """
        lines = self._folder / "mutants"
        lines.write_text("".join(mutant.line + "\n" for mutant in mutants))
        verdicts = []
        for mutant, answer in zip(mutants, self._run(driver, str(lines)), strict=True):
            observed, tested, differs, change, values, noticed, call, tensor = answer.split("\t")
            counts = int(values), int(noticed)
            verdicts.append(
                Verdict(mutant, observed, tested, differs == "1", float(change), *counts, int(call), tensor)
            )
        return verdicts

    def _run(self, driver: Path, *arguments: str) -> list[str]:
        files = [f"{self._stem}.{name}.safetensors" for name in ("goldens", "variables")]
        command = [str(driver), *files, f"{self._folder}/inputs", *arguments]
        result = subprocess.run(command, capture_output=True, check=False, text=True)
        if result.returncode:
            raise Failed(f"{self.label}: the driver ended with {result.returncode}: {result.stderr[-2000:]}")
        return result.stdout.splitlines()

    def _inputs(self) -> bytes:
        """Returns what the goldens have for all inputs, in the order of the calls: a seed and a limit, then values if any."""
        data = Path(f"{self._stem}.goldens.safetensors").read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        parts = []
        for step, call in enumerate(self.manifest.calls):
            for tensor in self.manifest.entry_point(call.entry_point).inputs:
                name = f"step{step}/{tensor.cpp_name}"
                places = [header[member]["data_offsets"] for member in (f"{name}/drawn", name) if member in header]
                parts += [data[8 + length + begin : 8 + length + end] for begin, end in places]
        return b"".join(parts)

    def _bits(self) -> int:
        """Returns the significant bits of the model's floats. An op has its dtype in its attribute `T`, and a cast in `DstT`."""
        graph = Path(f"{self._stem}.pb").read_bytes()
        return next((bits for code, bits in ((14, 8), (19, 11)) if b"T\x12\x02\x30" + bytes([code]) in graph), 24)

    def _observer(self) -> str:
        manifest = self.manifest
        lines = [
            f'#include "{self._stem.relative_to(self._generated)}.h"',
            '#include "observer.h"',
            f"const int tfaot::mutants::kBits = {self._bits()};",
            "void tfaot::mutants::Observe(const char* isa, const char* path, Observer& o) {",
            f"  ::{manifest.cpp_class} model(isa);",
            "  static_cast<void>(path);",
        ]
        if ".incbin" not in Path(f"{self._stem}.variables.S").read_text() and manifest.variables:
            lines.append("  if (!model.Load(path)) std::abort();")
        # Seeds are not numbers to round.
        lines += [f"  o.Start(model.{v.cpp_name}());" for v in manifest.variables if v.dtype in FLOATS]
        for call in manifest.calls:
            entry = manifest.entry_point(call.entry_point)
            rows = f", {call.batch}"
            lines += [f"  o.Feed(model.{t.cpp_name}(){rows if t.batched else ''});" for t in entry.inputs]
            lines.append(f"  o.Ran(model.{entry.cpp_name}({call.batch if entry.batch_sizes else ''}));")
            lines += [
                f"  o.Seen({json.dumps(t.name)}, model.{t.cpp_name}(){rows if t.batched else ''});"
                for t in entry.outputs
            ]
            lines += [f"  o.Seen({json.dumps(v.name)}, model.{v.cpp_name}());" for v in manifest.written_by(entry)]
        return "\n".join([*lines, "}", ""])


_COUNTED = {
    '#include "tfaot/bounded_view.h"\n': '#include "mutation.h"\n',
    "    const Errors errors = [&] {\n": "    mutants::Tensor(name.find(kFree) == std::string::npos);\n",
    "    if (got[i] == want[i]) continue;\n": "    mutants::Value(double(got[i]), !std::is_floating_point_v<T>);\n",
    "    if (!tolerated) errors.tolerated = false;\n": "    if (!tolerated) mutants::Off();\n",
}


def _counting(header: str) -> str:
    """Returns verify.h whose `Compare` also tells mutation.h about each value."""
    for line, more in _COUNTED.items():
        if header.count(line) != 1:
            raise Failed(f"runtime/tfaot/verify.h doesn't have one line {line!r}")
        header = header.replace(line, more + line)
    return header


def _is_object(function: str) -> bool:
    return bool(re.search(r"kConstants\[\]", "".join(p.read_text() for p in _executors(function))))


def _executors(function: str) -> list[Path]:
    return [path for path in (Path(f"{function}.{isa}.executor.cc") for isa in _LEVELS) if path.exists()]


def _arguments(manifest: Manifest, entry_point: str) -> list[Argument]:
    only = manifest.only(entry_point)
    return [
        *(Argument(t.name, t.dtype, t.shape, t.bytes, False, False) for t in only.entry_points[0].inputs),
        *(Argument(t.name, t.dtype, t.shape, t.bytes, True, t.written) for t in only.variables),
    ]


def _is_float(values: bytes) -> bool:
    """Returns whether bytes look like weights: floats of ordinary size that aren't all the same."""
    if len(values) % 4:
        return False
    floats = struct.unpack(f"<{len(values) // 4}f", values)
    return len(set(floats)) > 1 and all(
        value == 0 or 1e-12 < abs(value) < 1e12 for value in floats if not math.isnan(value)
    )
