"""Runs small models with many op instances through all stages, and compares each result with TensorFlow's.

A case is one op with its operands. Many cases share a model, because each model takes time: an export, a compilation, and a
C++ compiler run, about a second each. If a model fails, it is halved until the responsible case is alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib.util
import os
import pickle
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tfaot
from tests.stages import harness, native
from tfaot.core import dtypes, isolate
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import Manifest

Array = npt.NDArray[Any]

ROOT = Path(tfaot.__file__).parents[2]
"""The repository, or its copy in a test's runfiles."""

_CPU = "x86-64-v3"
_LEVEL = (f"-march={_CPU}", "-fno-math-errno")
TOGETHER = 40
"""How many cases share a model."""


@dataclasses.dataclass(frozen=True)
class Operand:
    """A value that a case takes."""

    value: Array
    fed: bool
    """Whether it is an input of the model. Otherwise, it is a constant in the graph, which the compiler can fold."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One op with its operands."""

    op: str
    """Its name in TensorFlow's registry, or the name of a structure."""
    expression: str
    """Python in which `{0}` stands for the first operand. Returns a tensor, or several in any nest."""
    operands: tuple[Operand, ...]
    sums: bool = False
    """Whether a result is a sum whose terms can cancel. Then it is only as exact as its largest neighbor."""
    rtol: float = 0.0
    """Allowed relative error; 0 for the dtype's usual one."""
    atol: float = 0.0
    """Allowed absolute error in 32 bits and less, where TensorFlow itself loses digits."""
    setup: str = ""
    """Python that precedes the model's function, in which `{n}` stands for a number that is unique to this case."""

    name: str = ""
    """The name of its only output."""
    axes: Mapping[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    """Open dimensions, by operand and dimension, and which of the case's sizes they have."""
    runs: tuple[tuple[int, ...], ...] = ((),)
    """The open sizes in consecutive runs. The largest possible ones are those of the operands."""

    @property
    def largest(self) -> tuple[int, ...]:
        """The largest open sizes."""
        places = {size: place for place, size in self.axes.items()}
        return tuple(self.operands[places[size][0]].value.shape[places[size][1]] for size in sorted(places))

    def shape(self, operand: int) -> list[int | None]:
        """Returns the shape of an operand, with None for open dimensions."""
        sizes = enumerate(self.operands[operand].value.shape)
        return [None if (operand, axis) in self.axes else size for axis, size in sizes]

    def fed(self, run: int) -> Iterator[tuple[int, Array, Array]]:
        """Yields each fed operand for a run: its number, what TensorFlow gets, and what compiled code gets.

        The latter has NaN or other values that would show behind the end.
        """
        sizes = self.runs[run % len(self.runs)]
        for number, operand in enumerate(self.operands):
            whole = operand.value
            if operand.fed:
                part = whole[
                    tuple(
                        slice(sizes[self.axes[number, axis]] if (number, axis) in self.axes else None)
                        for axis in range(whole.ndim)
                    )
                ]
                behind = np.full_like(whole, _behind(whole.dtype, run))
                behind[tuple(map(slice, part.shape))] = part
                yield number, np.array(part), behind

    @property
    def text(self) -> str:
        """Describes the case in one line."""
        shown = []
        for operand in self.operands:
            value = operand.value
            few = not operand.fed and value.size <= 8
            what = f"{value.dtype}{value.tolist() if few else list(value.shape)}"
            shown.append(what if few else f"{'fed' if operand.fed else 'constant'} {what}")
        places = [f", dimension {axis} of operand {number} open" for number, axis in self.axes]
        return self.expression.format(*shown, n="") + "".join(places) + (f", sizes {self.runs}" if self.axes else "")


def _behind(dtype: Any, run: int) -> Any:
    """Returns what is behind the end of an operand."""
    if dtype == np.bool_:
        return run % 2 == 0
    if dtypes.BY_NAME[str(dtype)].floating:
        return (np.nan, 3e4, -np.inf)[run % 3]
    return (np.iinfo(dtype).max, np.iinfo(dtype).min)[run % 2]


PASSES = "passes"
REFUSED = "refused"
DIFFERS = "differs"
NO_REFERENCE = "TensorFlow refuses"
BROKEN = "broken"


@dataclasses.dataclass(frozen=True)
class Difference:
    """Values of one result that differ, in order."""

    theirs: Array
    ours: Array
    operands: tuple[Array, ...]
    """Values of operands that have the result's shape, at the same positions."""

    def __str__(self) -> str:
        if self.theirs.dtype != self.ours.dtype or self.theirs.shape != self.ours.shape:
            return f"{self.theirs.dtype}{list(self.theirs.shape)} is {self.ours.dtype}{list(self.ours.shape)} here"
        rows = list(zip(self.theirs, self.ours, *self.operands, strict=True))
        shown = [
            f"{a!s} is {b!s} here" + (f" of {', '.join(map(str, rest))}" if rest else "") for a, b, *rest in rows[:4]
        ]
        return f"{len(rows)} differ: " + "; ".join(shown)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    case: Case
    kind: str
    """One of the above. `REFUSED` is an error of ours that names the line of the model; `BROKEN` is any other "
    "failure."""
    details: str = ""
    differences: tuple[Difference, ...] = ()
    results: tuple[tuple[Array, Array], ...] = ()
    """TensorFlow's value and ours for each result."""


_PREAMBLE = """\
import numpy as np
import tensorflow as tf


def value(dtype, shape, bits):
    return np.frombuffer(bytes.fromhex(bits), tf.as_dtype(dtype).as_numpy_dtype).reshape(shape)


"""


def model_text(cases: Sequence[Case]) -> tuple[str, dict[int, int]]:
    """Returns a Python file that has no other input, and the cases by line number.

    It is a model of all cases, whose outputs are `c{case}_{output}`, or the case's name for its only output.
    """
    setups, specs, body, golden = [], [], [], []
    for index, case in enumerate(cases):
        names = []
        for number, operand in enumerate(case.operands):
            name, shape, whole = f"x{index}_{number}", case.shape(number), list(operand.value.shape)
            bits = f'value("{operand.value.dtype}", {whole}, "{np.ascontiguousarray(operand.value).tobytes().hex()}")'
            if operand.fed:
                specs.append(f'    tf.TensorSpec({shape}, "{operand.value.dtype}", "{name}"),')
                golden.append(f'        "{name}": {bits},')
            else:
                body.append(f"    {name} = tf.constant({bits})")
            names.append(name)
        if case.setup:
            lines = case.setup.replace("{n}", str(index)).splitlines()
            setups += [f"{line}  # case {index}" if line else "" for line in lines] + [""]
        expression = case.expression.format(*names, n=index)
        body.append(f"    put({index}, {expression}{f', {case.name!r}' if case.name else ''})  # case {index}")
    inputs = [name for spec in specs for name in re.findall(r'"(x\d+_\d+)"', spec)]
    text = "\n".join(
        [
            _PREAMBLE,
            *setups,
            "@tf.function(input_signature=[",
            *specs,
            "], autograph=True)",
            f"def model({', '.join(inputs)}):",
            "    result = {}",
            "    def put(case, tensors, name=''):",
            "        for index, tensor in enumerate(tf.nest.flatten(tensors, expand_composites=True)):",
            '            result[name or f"c{case}_{index}"] = tf.identity(tensor)',
            *body,
            "    return result",
            "",
            "",
            "def golden_fn(step, rng):",
            "    return {",
            *golden,
            "    }",
            "",
        ]
    )
    calls = {line: re.search(r"  # case (\d+)$", content) for line, content in enumerate(text.split("\n"), 1)}
    return text, {line: int(match[1]) for line, match in calls.items() if match}


class Engine:
    """Runs the stages on cases. TensorFlow must be imported, and this process must not have built a graph."""

    def __init__(self, folder: Path, *, flags: Sequence[str] = ("-O1",)) -> None:
        """Prepares a folder.

        Args:
          folder: a folder for everything that is written.
          flags: flags for the C++ compiler.
        """
        self._folder = folder
        self._compiler = shlex.split(os.environ.get("CXX", "g++"))
        runtime = ROOT / "runtime"
        self._flags = ["-std=c++17", "-DNDEBUG", "-w", "-fPIC", *flags, "-I", str(runtime)]
        self._runtime = (*native.runtime(), *native.kernels(_CPU))

    def _run(self, flags: Sequence[str]) -> None:
        done = subprocess.run([*self._compiler, *flags], capture_output=True, check=False, text=True)
        if done.returncode:
            raise RuntimeError(f"{shlex.join([*self._compiler, *flags])}\n{done.stderr[:4000]}")

    def outcomes(self, cases: Sequence[Case]) -> list[Outcome]:
        """Returns the outcome of each case, in order. Cases of one model must be few enough to share it."""
        if not cases:
            return []
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            folder = Path(name)
            text, lines = model_text(cases)
            (folder / "model.py").write_text(text)
            kind, error = NO_REFERENCE, ""
            try:
                with silent(folder / "log"):
                    isolate.run_isolated(lambda: _reference(cases, folder), what="TensorFlow")
                    kind = BROKEN
                    self._stages(cases, folder)
            except TfaotError as raised:
                error = str(raised)
                raw = "was killed|exited with" + (_RAW if any(case.axes for case in cases) else "")
                if kind == BROKEN and "model.py:" in error and not re.search(raw, error):
                    kind = REFUSED
            except RuntimeError as raised:
                error = str(raised)
            if not error:
                return _compared(cases, folder)
        if len(cases) == 1:
            return [Outcome(cases[0], kind, error)]
        # Usually, the error names the line. Otherwise, try both halves.
        blamed = {lines[int(line)] for line in _LINE.findall(error) if int(line) in lines}
        if not blamed or len(blamed) == len(cases):
            half = len(cases) // 2
            return [*self.outcomes(cases[:half]), *self.outcomes(cases[half:])]
        alone = {index: self.outcomes([cases[index]])[0] for index in sorted(blamed)}
        others = iter(self.outcomes([case for index, case in enumerate(cases) if index not in blamed]))
        return [alone[index] if index in blamed else next(others) for index in range(len(cases))]

    def compiled(self, cases: Sequence[Case]) -> list[Array]:
        """Returns the result of compiled code for each case, with one output each, whatever TensorFlow does.

        Raises:
          TfaotError: a stage refuses the model.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            folder = Path(name)
            (folder / "model.py").write_text(model_text(cases)[0])
            self._stages(cases, folder)
            names = sorted(f"c{index}_0" for index in range(len(cases)))
            results_by_name = dict(zip(names, _load(folder / "ours"), strict=True))
            return [results_by_name[f"c{index}_0"] for index in range(len(cases))]

    def _stages(self, cases: Sequence[Case], folder: Path) -> None:
        """Exports, compiles, renders, runs the C++ compiler, and runs the program, which writes results to `ours.npz`."""
        sizes = {f"n{index}_{own}": (n,) for index, case in enumerate(cases) for own, n in enumerate(case.largest)}
        dims = {
            f"x{index}_{number}": tuple(
                f"n{index}_{case.axes[number, axis]}" if size is None else None
                for axis, size in enumerate(case.shape(number))
            )
            for index, case in enumerate(cases)
            for number in {operand for operand, _ in case.axes}
        }
        buckets = tuple(largest for (largest,) in sizes.values())
        isolate.run_isolated(
            lambda: harness.export_here(folder, "breadth::Model", dims=dims, sizes=sizes), what="exporting model.py"
        )
        manifest = self.library(folder, buckets)
        isolate.run_isolated(lambda: _run_compiled(cases, folder, manifest), what="running the compiled model")

    def library(self, folder: Path, buckets: tuple[int, ...] = ()) -> Manifest:
        """Compiles, renders, and runs the C++ compiler: makes `model.so` of what the export stage wrote to a folder.

        Raises:
          TfaotError: a stage refuses the model.
        """
        from tfaot.compile import compile as compiler
        from tfaot.render import render

        compiler.compile_graph(
            compiler.Request(
                manifest=str(folder / "manifest"),
                graph=str(folder / "graph"),
                config=str(folder / "config"),
                sources=str(folder / "sources"),
                cpu=(_CPU,),
                buckets=buckets,
                out_objects=(str(folder / "kernels.o"),),
                out_constants=str(folder / "constants.o"),
                out_header=str(folder / "executor.h"),
                out_sources=(str(folder / "executor.cc"),),
                out_hlo=str(folder / "hlo"),
                out_fingerprint=str(folder / "fingerprint"),
                out_fingerprint_source=str(folder / "fingerprint.S"),
                passes=("*",),
            )
        )
        render.render(
            render.Request(
                manifest=str(folder / "manifest"),
                header="model.h",
                functions=(render.Compiled("", 0, buckets, "executor.h"),),
                embed_variables=True,
                flush_denormals=True,
                out_header=str(folder / "model.h"),
                out_source=str(folder / "model.cc"),
                out_variables=str(folder / "variables.S"),
                out_test=str(folder / "test.cc"),
                out_benchmark=str(folder / "benchmark.cc"),
            )
        )
        manifest = Manifest.from_json((folder / "manifest").read_text())
        (folder / "whole.cc").write_text('#include "model.cc"\n#include "executor.cc"\n' + shim(manifest))
        extra = [str(folder / "fingerprint.S")]
        if manifest.variables:
            sources = [str(folder / name) for name in ("variables.S", "weights.S")]
            extra += [*sources, f'-DTFAOT_VARIABLES="{folder / "variables"}"']
        self._run(
            [
                *(*self._flags, "-I", str(folder), *_LEVEL, "-shared"),
                *(str(folder / "whole.cc"), *extra, str(folder / "kernels.o"), str(folder / "constants.o")),
                *(*self._runtime, "-lm", "-Wl,--no-undefined", "-o", str(folder / "model.so")),
            ]
        )
        return manifest


_RAW = r"|_ARGUMENT: |INTERNAL: |RET_CHECK|Check failed|\.cc:\d"
"""Parts of errors that aren't ours, besides those of processes that end."""

_LINE = re.compile(r"model\.py(?::|\", line )(\d+)")
"""How our errors and Python's name a line of the model."""


class silent:  # noqa: N801
    """Suppresses the output of children, because the outcome contains their errors."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._kept = os.dup(2)
        null = os.open(self._path, os.O_WRONLY | os.O_CREAT)
        os.dup2(null, 2)
        os.close(null)

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._kept, 2)
        os.close(self._kept)


def shim(manifest: Manifest) -> str:
    """Returns C functions through which Python calls a compiled model: tensors by number, inputs before outputs."""
    (entry,) = manifest.entry_points
    tensors = [*entry.inputs, *entry.outputs]
    data = [f"    case {i}: return m.{tensor.cpp_name}().data();" for i, tensor in enumerate(tensors)]
    dims = [
        f"    case {i}: return m.{tensor.cpp_name}().dim(d);"
        for i, tensor in enumerate(tensors)
        if getattr(tensor, "size", "")
    ]
    name = "::" + manifest.cpp_class.removeprefix("::")
    return "\n".join(
        [
            'extern "C" {',
            f"void* model_new() {{ return new {name}; }}",
            f"int model_run(void* p) {{ return static_cast<{name}*>(p)->{entry.cpp_name}() ? 1 : 0; }}",
            f"void* model_data(void* p, int i) {{ auto& m = *static_cast<{name}*>(p); switch (i) {{",
            *data,
            "  } return nullptr; }",
            f"long long model_dim(void* p, int i, int d) {{ auto& m = *static_cast<{name}*>(p); switch (i) {{",
            *dims,
            "  } return -1; }",
            "}",
            "",
        ]
    )


def _run_compiled(cases: Sequence[Case], folder: Path, manifest: Manifest) -> None:
    results = []
    for run in range(_runs(cases)):
        values = {f"x{index}_{number}": value for index, case in enumerate(cases) for number, _, value in case.fed(run)}
        for index, case in enumerate(cases):
            for own, size in enumerate(case.runs[run % len(case.runs)]):
                values[f"n{index}_{own}"] = np.array(size, np.int32)
        results += called(folder, manifest, values)
    _save(folder / "ours", [(str(array.dtype), list(array.shape), array.tobytes()) for array in results])


def called(folder: Path, manifest: Manifest, values: Mapping[str, Array]) -> list[Array]:
    """Runs a new instance of the class in `model.so`. Returns its outputs."""
    (entry,) = manifest.entry_points
    library = ctypes.CDLL(str(folder / "model.so"))
    library.model_new.restype = library.model_data.restype = ctypes.c_void_p
    library.model_data.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.model_run.argtypes = [ctypes.c_void_p]
    library.model_dim.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    library.model_dim.restype = ctypes.c_longlong
    model = library.model_new()
    for index, tensor in enumerate(entry.inputs):
        value = np.ascontiguousarray(values[tensor.cpp_name])
        ctypes.memmove(library.model_data(model, index), value.ctypes.data, value.nbytes)
    if not library.model_run(model):
        raise RuntimeError("Run() failed")
    results = []
    for number, output in enumerate(entry.outputs):
        index = len(entry.inputs) + number
        shape = list(output.shape)
        if output.size:
            shape = [library.model_dim(model, index, axis) for axis in range(len(shape))]
        dtype = dtypes.BY_NAME[output.dtype].numpy()
        count = int(np.prod(shape)) * dtype.itemsize
        data = ctypes.string_at(library.model_data(model, index), count) if count else b""
        results.append(np.frombuffer(data, dtype).reshape(shape))
    return results


def _runs(cases: Sequence[Case]) -> int:
    return max(len(case.runs) for case in cases)


_Stored = list[tuple[str, list[int], bytes]]


def _save(path: Path, results: _Stored) -> None:
    path.write_bytes(pickle.dumps(results))


def _load(path: Path) -> list[Array]:
    stored: _Stored = pickle.loads(path.read_bytes())
    return [np.frombuffer(data, dtypes.BY_NAME[dtype].numpy()).reshape(shape) for dtype, shape, data in stored]


def failed_passes(cases: Sequence[Case], folder: Path) -> tuple[list[str], int]:
    """Applies all passes on graphs to each case's graph. Returns what raised an exception, and the number of other graphs.

    It builds graphs in this process, which must not fork afterward.
    """
    import tensorflow as tf

    from tests.compile.passes.graphs import config_of
    from tfaot.compile import table

    failed, passed = [], 0
    for case in cases:
        (folder / "model.py").write_text(model_text([case])[0])
        with tf.Graph().as_default() as graph:
            try:
                placeholders, feeds, results = _graph(folder)
                fetches = [tensor.name for tensor in results.values()]
                config = config_of([placeholder.name for placeholder in placeholders], feeds, fetches)
                table.apply(graph.as_graph_def(), config, [one.name for one in table.PASSES])
                passed += 1
            except table.PassError as error:
                failed.append(f"{error}: {error.__cause__!r}: {case.text}")
            except Exception as error:  # what TensorFlow refuses, and what nothing but the export stage replaces
                del error
    return failed, passed


def _graph(folder: Path) -> tuple[list[Any], list[Array], dict[str, Any]]:
    """Adds the file to the default graph. Returns placeholders, their values, and results."""
    import tensorflow as tf

    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    feeds = [*module.golden_fn(0, None).values()]
    specs = module.model.input_signature
    placeholders = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
    return placeholders, feeds, module.model(*placeholders)


@contextlib.contextmanager
def session(folder: Path) -> Iterator[tuple[Any, list[Any], dict[str, Any]]]:
    """Yields a session with the file's graph, its placeholders, and its results."""
    import tensorflow as tf

    from tfaot.core.session import session_config

    with tf.compat.v1.Session(graph=tf.Graph(), config=session_config()) as made, made.graph.as_default():
        placeholders, _, results = _graph(folder)
        yield made, placeholders, results


def _reference(cases: Sequence[Case], folder: Path) -> None:
    """Computes the file itself in TensorFlow, so that the export's rewrites are also compared."""
    import tensorflow as tf

    with session(folder) as (running, placeholders, results):
        # In the order of `tf.nest` for a dict, which is the order of the compiled model's outputs.
        names = sorted(results)
        initial = tf.compat.v1.global_variables_initializer()
        arrays = []
        for run in range(_runs(cases)):
            running.run(initial)
            feeds = [part for case in cases for _, part, _ in case.fed(run)]
            arrays += running.run([results[name] for name in names], dict(zip(placeholders, feeds, strict=True)))
    _save(folder / "theirs", [(str(array.dtype), list(array.shape), array.tobytes()) for array in arrays])
    (folder / "names").write_bytes(pickle.dumps(names * _runs(cases)))


def _compared(cases: Sequence[Case], folder: Path) -> list[Outcome]:
    names: list[str] = pickle.loads((folder / "names").read_bytes())
    results = list(zip(names, _load(folder / "theirs"), _load(folder / "ours"), strict=True))
    result = []
    for index, case in enumerate(cases):
        pairs = tuple(
            (want, got)
            for name, want, got in results
            if name == case.name or (not case.name and name.startswith(f"c{index}_"))
        )
        differences = [difference(case, want, got) for want, got in pairs]
        differing = tuple(item for item in differences if item is not None)
        kind = DIFFERS if differing else PASSES
        result.append(Outcome(case, kind, "; ".join(map(str, differing)), differing, pairs))
    return result


def difference(case: Case, want: Array, got: Array) -> Difference | None:
    """Returns how a result differs from TensorFlow's by more than a compiler may, or None if it doesn't.

    A float can be off by its dtype's relative error. NaN, infinities, and the sign of zero are exact. A denormal counts as zero.
    """
    if want.dtype != got.dtype or want.shape != got.shape:
        return Difference(want, got, ())
    wrong = _wrong(case, want, got)
    if not wrong.any():
        return None
    operands = tuple(operand.value[wrong] for operand in case.operands if operand.value.shape == want.shape)
    return Difference(want[wrong], got[wrong], operands)


def _wrong(case: Case, want: Array, got: Array) -> Array:
    numeric = dtypes.BY_NAME[str(want.dtype)]
    if not numeric.floating:
        return np.asarray(want != got)
    info = ml_dtypes.finfo(want.dtype)
    eps, tiny = float(info.eps), float(info.smallest_normal)
    rtol = max(case.rtol, 100 * eps if info.bits > 16 else 4 * eps)
    wide = want.astype(np.complex128 if want.dtype.kind == "c" else np.float64)
    own = got.astype(wide.dtype)
    scale = np.where(np.isfinite(wide), np.abs(wide), 0.0)
    if case.sums and scale.size:
        scale = np.full_like(scale, np.max(scale, initial=0.0))
    if info.bits == 16:
        scale = scale + 1  # intermediate steps round to 16 bits, too
    limit = rtol * scale + 2 * tiny + (case.atol if info.bits <= 32 else case.atol * 1e-8)
    parts = [(wide.real, own.real), (wide.imag, own.imag)] if want.dtype.kind == "c" else [(wide, own)]
    result = np.zeros(want.shape, np.bool_)
    for a, b in parts:
        finite = np.isfinite(a) & np.isfinite(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        zeros = (
            (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)) & np.bool_(not case.sums and want.dtype.kind != "c")
        )
        with np.errstate(invalid="ignore", over="ignore"):
            close = np.abs(a - b) <= limit
        result |= np.where(finite, ~close | zeros, ~same)
    return result


def chunks(cases: Iterable[Case], size: int = TOGETHER) -> list[list[Case]]:
    """Splits cases into groups that share a model."""
    listed = list(cases)
    return [listed[i : i + size] for i in range(0, len(listed), size)]
