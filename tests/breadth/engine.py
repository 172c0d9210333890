"""Runs small models of many op instances through all stages, and compares each result with TensorFlow's.

A case is one op with its operands. Many cases are put into one model, since what costs time is a model: an export, a
compilation, a C++ compiler, each about a second. If a model does not get through, it is halved until the case that is to
blame stands alone.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tfaot import dtypes, isolate
from tfaot.errors import TfaotError
from tfaot.manifest import Manifest

Array = npt.NDArray[Any]

ROOT = Path(isolate.__file__).parents[2]
"""The repository, or its copy among a test's runfiles."""

TOGETHER = 24
"""How many cases share a model."""


@dataclasses.dataclass(frozen=True)
class Operand:
    """A value that a case takes."""

    value: Array
    fed: bool
    """An input of the model; else a constant of its graph, which the compiler may fold."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One op with its operands."""

    op: str
    """Its name in TensorFlow's registry, or that of a structure."""
    expression: str
    """Python, in which `{0}` stands for the first operand. It gives a tensor, or several in any nest."""
    operands: tuple[Operand, ...]
    sums: bool = False
    """Whether a result is a sum of terms that may cancel: it is then only as exact as its largest neighbour."""
    rtol: float = 0.0
    """Allowed relative error; 0 for the dtype's usual one."""
    setup: str = ""
    """Python that comes before the model's function, in which `{n}` stands for a number of this case alone."""

    @property
    def text(self) -> str:
        """What it is, in a line."""
        shown = [
            f"{'fed' if operand.fed else 'constant'} {operand.value.dtype}{list(operand.value.shape)}"
            for operand in self.operands
        ]
        return self.expression.format(*shown, n="")


PASSES = "passes"
REFUSED = "refused"
DIFFERS = "differs"
NO_REFERENCE = "TensorFlow refuses"
BROKEN = "broken"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    case: Case
    kind: str
    """One of the above. `REFUSED` is an error of ours that names the line of the model; `BROKEN` is all else that ends."""
    details: str = ""
    where: tuple[tuple[Any, ...], ...] = ()
    """Of what differs: a few triples of TensorFlow's value, ours, and the operands' values there if they are elementwise."""


_PREAMBLE = """\
import numpy as np
import tensorflow as tf


def value(dtype, shape, bits):
    return np.frombuffer(bytes.fromhex(bits), tf.as_dtype(dtype).as_numpy_dtype).reshape(shape)


"""


def model_text(cases: Sequence[Case]) -> str:
    """A Python file that has no other input: a model of all cases, whose outputs are `c{case}_{output}`."""
    setups, specs, body, golden = [], [], [], []
    for index, case in enumerate(cases):
        names = []
        for number, operand in enumerate(case.operands):
            name, shape = f"x{index}_{number}", list(operand.value.shape)
            bits = f'value("{operand.value.dtype}", {shape}, "{np.ascontiguousarray(operand.value).tobytes().hex()}")'
            if operand.fed:
                specs.append(f'    tf.TensorSpec({shape}, "{operand.value.dtype}", "{name}"),')
                golden.append(f'        "{name}": {bits},')
            else:
                body.append(f"    {name} = tf.constant({bits})")
            names.append(name)
        if case.setup:
            setups.append(case.setup.replace("{n}", str(index)) + "\n\n")
        expression = case.expression.format(*names, n=index)
        body.append(f"    put({index}, {expression})  # {case.op}")
    inputs = [name for spec in specs for name in re.findall(r'"(x\d+_\d+)"', spec)]
    return "\n".join(
        [
            _PREAMBLE,
            *setups,
            "@tf.function(input_signature=[",
            *specs,
            "], autograph=True)",
            f"def model({', '.join(inputs)}):",
            "    result = {}",
            "    def put(case, tensors):",
            "        for index, tensor in enumerate(tf.nest.flatten(tensors, expand_composites=True)):",
            '            result[f"c{case}_{index}"] = tf.identity(tensor)',
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


class Engine:
    """The stages on cases. TensorFlow must be imported; nothing in this process may have built a graph."""

    def __init__(self, folder: Path, *, flags: Sequence[str] = ("-O1",)) -> None:
        """Compiles the runtime, once.

        Args:
          folder: for whatever is written.
          flags: of the C++ compiler.
        """
        self._folder = folder
        self._compiler = shlex.split(os.environ.get("CXX", "g++"))
        include = folder / "include"
        runtime = ROOT / "tools" / "runtime"
        (include / "tfaot" / "kernels").mkdir(parents=True)
        for source, target in ((runtime / "tfaot", "tfaot"), (runtime / "kernels", "tfaot/kernels")):
            for file in source.iterdir():
                (include / target / file.name).symlink_to(file.resolve())
        self._flags = ["-std=c++17", "-DNDEBUG", "-w", "-fPIC", *flags, "-I", str(include)]
        self._runtime = [str(folder / f"{name}.o") for name in ("executor", "isa", "sort", "variables", "plain")]
        for target in self._runtime:
            name = Path(target).stem
            source = runtime / ("kernels" if name == "plain" else "tfaot") / f"{name}.cc"
            self._run([*self._flags, "-I", str(runtime), "-c", str(source), "-o", target])

    def _run(self, flags: Sequence[str]) -> None:
        done = subprocess.run([*self._compiler, *flags], capture_output=True, check=False, text=True)
        if done.returncode:
            raise RuntimeError(f"{shlex.join([*self._compiler, *flags])}\n{done.stderr[:4000]}")

    def outcomes(self, cases: Sequence[Case]) -> list[Outcome]:
        """What becomes of each case, in order. Cases of one model must be few enough to share it."""
        result = self._together(cases)
        if result is not None:
            return result
        if len(cases) == 1:
            return [self._alone(cases[0])]
        half = len(cases) // 2
        return [*self.outcomes(cases[:half]), *self.outcomes(cases[half:])]

    def _alone(self, case: Case) -> Outcome:
        """Says what is wrong with a case that does not get through by itself."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            folder = Path(name)
            (folder / "model.py").write_text(model_text([case]))
            try:
                isolate.run_isolated(lambda: _reference(folder), what="TensorFlow")
            except (RuntimeError, TfaotError) as error:
                return Outcome(case, NO_REFERENCE, str(error))
            try:
                self._stages(folder)
            except TfaotError as error:
                text = str(error)
                clear = "model.py:" in text and "was killed" not in text and "exited with" not in text
                return Outcome(case, REFUSED if clear else BROKEN, text)
            except RuntimeError as error:
                return Outcome(case, BROKEN, str(error))
            return _compared([case], folder)[0]

    def _together(self, cases: Sequence[Case]) -> list[Outcome] | None:
        """The outcomes, or None if something in the model does not get through."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name, _silent():
            folder = Path(name)
            (folder / "model.py").write_text(model_text(cases))
            try:
                self._stages(folder)
                isolate.run_isolated(lambda: _reference(folder), what="TensorFlow")
            except (RuntimeError, TfaotError):
                return None
            return _compared(cases, folder)

    def _stages(self, folder: Path) -> None:
        """Export, compile, render, the C++ compiler, and a run, whose results are in `ours.npz`."""
        isolate.run_isolated(lambda: _export(folder), what="exporting model.py")
        from tfaot import compile as compiler
        from tfaot import render

        compiler.compile_graph(
            compiler.Request(
                manifest=str(folder / "manifest"),
                graph=str(folder / "graph"),
                config=str(folder / "config"),
                sources=str(folder / "sources"),
                isa=("x86-64-v3",),
                xla_flags=(),
                out_objects=(str(folder / "kernels.o"),),
                out_constants=str(folder / "constants.o"),
                out_header=str(folder / "executor.h"),
                out_sources=(str(folder / "executor.cc"),),
                out_hlo=str(folder / "hlo"),
                passes=("*",),
            )
        )
        render.render(
            render.Request(
                manifest=str(folder / "manifest"),
                header="model.h",
                private_headers=("executor.h",),
                embed=True,
                keep_denormals=False,
                out_header=str(folder / "model.h"),
                out_source=str(folder / "model.cc"),
                out_variables=str(folder / "variables.S"),
                out_test=str(folder / "test.cc"),
                out_benchmark=str(folder / "benchmark.cc"),
            )
        )
        manifest = Manifest.from_json((folder / "manifest").read_text())
        (folder / "whole.cc").write_text('#include "model.cc"\n#include "executor.cc"\n' + shim(manifest))
        extra = []
        if manifest.variables:
            extra = [str(folder / "variables.S"), f'-DTFAOT_VARIABLES="{folder / "variables"}"']
        self._run(
            [*self._flags, "-I", str(folder), "-march=x86-64-v3", "-fno-math-errno", "-shared"]
            + [str(folder / "whole.cc"), *extra, str(folder / "kernels.o"), str(folder / "constants.o")]
            + [*self._runtime, "-lm", "-Wl,--no-undefined", "-o", str(folder / "model.so")]
        )
        isolate.run_isolated(lambda: _run_compiled(folder, manifest), what="running the compiled model")


class _silent:  # noqa: N801
    """Keeps back what children print: halving says it again for the one case."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._kept = os.dup(2)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._kept, 2)
        os.close(self._kept)


def shim(manifest: Manifest) -> str:
    """C functions for a compiled model, by which Python reaches it: tensors by number, inputs before outputs."""
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


def _export(folder: Path) -> None:
    os.chdir(folder)
    sys.dont_write_bytecode = True
    from tfaot.export.export import Request, export
    from tfaot.export.sources.model import Model

    export(
        Request(
            model=Model(model="model.py"),
            cpp_class="breadth::Model",
            golden_steps=1,
            out_graph="graph",
            out_configs=("config",),
            out_manifest="manifest",
            out_variables="variables",
            out_golden_inputs="golden_inputs",
            out_sources="sources",
        )
    )


def _run_compiled(folder: Path, manifest: Manifest) -> None:
    from tfaot import safetensors

    (entry,) = manifest.entry_points
    values = safetensors.read(str(folder / "golden_inputs"))
    library = ctypes.CDLL(str(folder / "model.so"))
    library.model_new.restype = library.model_data.restype = ctypes.c_void_p
    library.model_data.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.model_run.argtypes = [ctypes.c_void_p]
    library.model_dim.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    library.model_dim.restype = ctypes.c_longlong
    model = library.model_new()
    for index, tensor in enumerate(entry.inputs):
        value = np.ascontiguousarray(values[f"step0/{tensor.cpp_name}"])
        ctypes.memmove(library.model_data(model, index), value.ctypes.data, value.nbytes)
    if not library.model_run(model):
        raise RuntimeError("Run() failed")
    results = {}
    for number, output in enumerate(entry.outputs):
        index = len(entry.inputs) + number
        shape = list(output.shape)
        if output.size:
            shape = [library.model_dim(model, index, axis) for axis in range(len(shape))]
        dtype = dtypes.BY_NAME[output.dtype].numpy()
        count = int(np.prod(shape)) * dtype.itemsize
        data = ctypes.string_at(library.model_data(model, index), count) if count else b""
        results[output.cpp_name] = (str(dtype), shape, data)
    _save(folder / "ours", results)


def _save(path: Path, results: dict[str, tuple[str, list[int], bytes]]) -> None:
    import pickle

    path.write_bytes(pickle.dumps(results))


def _load(path: Path) -> dict[str, Array]:
    import pickle

    return {
        name: np.frombuffer(data, dtypes.BY_NAME[dtype].numpy()).reshape(shape)
        for name, (dtype, shape, data) in pickle.loads(path.read_bytes()).items()
    }


def _reference(folder: Path) -> None:
    """What TensorFlow computes of the file itself, so that the export's rewrites are compared too."""
    import tensorflow as tf

    from tfaot.session import session_config

    scope: dict[str, Any] = {"__file__": str(folder / "model.py"), "__name__": "model"}
    import importlib.util

    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    scope.update(vars(module))
    feeds = module.golden_fn(0, None)
    with tf.compat.v1.Session(graph=tf.Graph(), config=session_config()) as session, session.graph.as_default():
        given = {name: tf.compat.v1.placeholder(value.dtype, value.shape) for name, value in feeds.items()}
        results = module.model.python_function(*given.values()) if False else module.model(*given.values())
        session.run(tf.compat.v1.global_variables_initializer())
        values = session.run(results, {given[name]: value for name, value in feeds.items()})
    _save(
        folder / "theirs",
        {name: (str(value.dtype), list(value.shape), np.ascontiguousarray(value).tobytes()) for name, value in values.items()},
    )


def _compared(cases: Sequence[Case], folder: Path) -> list[Outcome]:
    ours, theirs = _load(folder / "ours"), _load(folder / "theirs")
    result = []
    for index, case in enumerate(cases):
        texts, where = [], []
        for name, want in theirs.items():
            if name.startswith(f"c{index}_"):
                text, places = difference(case, want, ours[name])
                texts += [text] if text else []
                where += places
        result.append(Outcome(case, DIFFERS if texts else PASSES, "; ".join(texts), tuple(where)))
    return result


def difference(case: Case, want: Array, got: Array) -> tuple[str, list[tuple[Any, ...]]]:
    """How a result differs from TensorFlow's by more than a compiler may, and where; an empty text if it does not.

    A float may miss by its dtype's relative error. NaN, infinities, and the sign of zero are exact; a denormal is a zero.
    """
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"TensorFlow gives {want.dtype}{list(want.shape)}, we give {got.dtype}{list(got.shape)}", []
    if not want.size:
        return "", []
    wrong = _wrong(case, want, got)
    if not wrong.any():
        return "", []
    places = np.argwhere(wrong)
    shown = []
    for place in places[:4]:
        at = tuple(int(i) for i in place)
        operands = [o.value[at] for o in case.operands if o.value.shape == want.shape]
        shown.append((want[at], got[at], *operands))
    first = ", ".join(
        f"{a!s} is {b!s} here" + (f" at {', '.join(map(str, rest))}" if rest else "") for a, b, *rest in shown
    )
    return f"{len(places)} of {want.size} differ: {first}", shown


def _wrong(case: Case, want: Array, got: Array) -> Array:
    if want.dtype.kind == "c":
        return _wrong(case, want.real, got.real) | _wrong(case, want.imag, got.imag)
    if not dtypes.BY_NAME[str(want.dtype)].floating:
        return np.asarray(want != got)
    info = ml_dtypes.finfo(want.dtype)
    rtol = case.rtol or max(1e-5 if info.bits == 32 else 1e-12, 4 * float(info.eps))
    wide, own = want.astype(np.float64), got.astype(np.float64)
    tiny = float(info.smallest_normal)
    wide = np.where(np.abs(wide) < tiny, np.copysign(0.0, wide), wide)
    own = np.where(np.abs(own) < tiny, np.copysign(0.0, own), own)
    finite = np.isfinite(wide) & np.isfinite(own)
    scale = np.abs(wide)
    if case.sums:
        scale = np.maximum(scale, np.max(scale, where=np.isfinite(wide), initial=0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(wide - own) <= rtol * scale + tiny
        same = (wide == own) & ((np.signbit(wide) == np.signbit(own)) | case.sums) | (np.isnan(wide) & np.isnan(own))
    zero = (wide == 0) & (own == 0)
    return np.asarray(np.where(finite & ~zero, ~close, ~same))


def chunks(cases: Iterable[Case], size: int = TOGETHER) -> list[list[Case]]:
    """Cases in groups that share a model."""
    listed = list(cases)
    return [listed[i : i + size] for i in range(0, len(listed), size)]


def run_all(cases: Sequence[Case], *, flags: Sequence[str] = ("-O1",), each: Callable[[Outcome], None]) -> None:
    """Calls `each` with the outcome of every case."""
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    try:
        engine = Engine(folder, flags=flags)
        for group in chunks(cases):
            for outcome in engine.outcomes(group):
                each(outcome)
    finally:
        shutil.rmtree(folder)
