"""Compiles random nets with passes on and off, and compares each value with TensorFlow's in float32 and float64.

A group of nets shares a model, because each model takes time. Each net has inputs of 15 kinds. A value is a fault if it is
neither near TensorFlow's nor near that of float64, where "near" is what rounding errors can do, measured by runs in float64
in which each sum is off by as much as one in float32 can be.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tfaot
from tests.nets import grammar
from tests.stages import harness, native
from tfaot import starlark
from tfaot.core import isolate
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import Manifest

Array = npt.NDArray[Any]

ROOT = Path(tfaot.__file__).parents[2]
"""The repository, or its copy in a test's runfiles."""

LEVELS = ("x86-64-v3", "x86-64-v4")
THREADS = (1, 2, 3, 4)
NOISY_RUNS = 8
NOISE = 2.0**-22
"""What a sum of a few hundred terms is off by in float32, relative to the sum of their absolute values."""
EPS = float(np.finfo(np.float32).eps)
TINY = float(np.finfo(np.float32).tiny)


def _special(draw: np.random.Generator, shape: tuple[int, ...], value: float, share: float) -> Array:
    result = draw.normal(size=shape)
    return np.where(draw.random(shape) < share, value, result)


def _rows(draw: np.random.Generator, shape: tuple[int, ...], value: float) -> Array:
    """Some rows have this value everywhere, and others at some places."""
    whole = draw.random((*shape[:-1], 1)) < 0.3
    return np.where(whole | (draw.random(shape) < 0.3), value, draw.normal(size=shape))


KINDS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "normal": lambda draw, shape: draw.normal(size=shape),
    "zeros": lambda draw, shape: np.zeros(shape),
    "equal": lambda draw, shape: np.full(shape, 0.7),
    "equal rows": lambda draw, shape: np.broadcast_to(draw.normal(size=(*shape[:-1], 1)), shape),
    "large": lambda draw, shape: draw.normal(size=shape) * 1e4,
    "huge": lambda draw, shape: draw.normal(size=shape) * 1e30,
    "tiny": lambda draw, shape: draw.normal(size=shape) * 1e-20,
    "denormal": lambda draw, shape: draw.normal(size=shape) * 1e-40,
    "zeros of both signs": lambda draw, shape: np.copysign(0.0, draw.normal(size=shape)),
    "of all sizes": lambda draw, shape: draw.normal(size=shape) * 10.0 ** draw.uniform(-8, 8, shape),
    "NaN": lambda draw, shape: _special(draw, shape, np.nan, 0.05),
    "infinite": lambda draw, shape: _special(draw, shape, np.inf, 0.05),
    "rows of -1e9": lambda draw, shape: _rows(draw, shape, -1e9),
    "rows of -1e30": lambda draw, shape: _rows(draw, shape, -1e30),
    "rows of -inf": lambda draw, shape: _rows(draw, shape, -np.inf),
}
"""Inputs, by what they are called."""


def inputs(nets: Sequence[grammar.Net], kind: str) -> dict[str, Array]:
    """Draws the inputs of nets, by name."""
    result = {}
    for net in nets:
        draw = np.random.default_rng([net.number, *kind.encode()])
        for tensor in net.inputs:
            if tensor.kind == "ids":
                result[tensor.name] = draw.integers(0, tensor.bound, tensor.shape).astype(np.int32)
            elif tensor.kind == "mask":
                mask = np.ones(tensor.shape) if kind == "equal" else draw.random(tensor.shape) < 0.6
                mask = np.zeros(tensor.shape) if kind == "zeros" else mask
                # Sequences that end, among them empty ones.
                ends = np.arange(tensor.shape[-1]) < draw.integers(0, tensor.shape[-1] + 1, (*tensor.shape[:-1], 1))
                result[tensor.name] = np.asarray(ends if kind == "large" else mask, np.float32)
            else:
                with np.errstate(over="ignore"):
                    result[tensor.name] = np.asarray(KINDS[kind](draw, tensor.shape), np.float32)
    return result


@dataclasses.dataclass(frozen=True)
class Reference:
    """What TensorFlow computes for one kind of inputs: values by output."""

    single: dict[str, Array]
    """In float32."""
    double: dict[str, Array]
    """In float64."""
    spread: dict[str, Array]
    """How far runs in float64 with noise are from the one without; NaN where one isn't finite."""

    def wrong(self, name: str, got: Array, *, near: Array | None = None) -> Array:
        """Returns which values of an output can't be the result of rounding.

        Args:
          name: the output.
          got: its values.
          near: more values that are right, such as those of the program without passes.
        """
        single, double, spread = self.single[name], self.double[name], self.spread[name]
        got = got.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            finite = np.isfinite(single) & np.isfinite(double)
            size = np.abs(np.where(finite, double, 0.0))
            row = np.max(size, -1, keepdims=True, initial=0.0) if size.ndim else size
            limit = 16 * spread + EPS * (64 * size + 16 * row) + 3 * np.abs(single - double) + 2 * TINY
            close = (np.abs(got - single) <= limit) | (np.abs(got - double) <= limit)
            if near is not None:
                close |= np.abs(got - near.astype(np.float64)) <= limit
            same = (got == single) | (np.isnan(got) & np.isnan(single))
            # Overflow in float32 only, or rounding that decides whether a value is finite.
            unclear = (np.isfinite(double) != np.isfinite(single)) | ~np.isfinite(spread)
            unclear |= np.abs(single) > 1e37
        return np.asarray(np.where(finite, ~(close | unclear), ~(same | unclear)))


def _module(folder: Path, dtype: str, noise: float) -> dict[str, Any]:
    text = (folder / "model.py").read_text()
    for before, after in (("D = tf.float32\n", f"D = tf.{dtype}\n"), ("NOISE = 0.0\n", f"NOISE = {noise}\n")):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    module: dict[str, Any] = {}
    exec(compile(text, str(folder / f"{dtype}.py"), "exec"), module)
    return module


def _runs(folder: Path, nets: Sequence[grammar.Net], dtype: str, noise: float, times: int) -> dict[str, list[Any]]:
    """Returns TensorFlow's results by kind of inputs. Runs with noise differ."""
    import tensorflow as tf

    from tfaot.core.session import session_config

    with tf.Graph().as_default() as graph:
        tf.compat.v1.set_random_seed(1)
        module = _module(folder, dtype, noise)
        placeholders = {
            tensor.name: tf.compat.v1.placeholder(tf.int32 if tensor.kind == "ids" else dtype, tensor.shape)
            for net in nets
            for tensor in net.inputs
        }
        outputs = module["model"](*placeholders.values())
        initializer = tf.compat.v1.global_variables_initializer()
    results: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    with tf.compat.v1.Session(graph=graph, config=session_config()) as session:
        for kind, runs in results.items():
            feeds = {placeholders[name]: value for name, value in inputs(nets, kind).items()}
            for _ in range(times):
                session.run(initializer)
                runs.append(session.run(outputs, feeds))
    return results


def reference(folder: Path, nets: Sequence[grammar.Net]) -> None:
    """Writes the reference for each kind of inputs. Runs in a child, because it builds graphs."""
    single, double = (_runs(folder, nets, dtype, 0.0, 1) for dtype in ("float32", "float64"))
    noisy = _runs(folder, nets, "float64", NOISE, NOISY_RUNS)
    references = {}
    for kind in KINDS:
        spread = {}
        for name, value in double[kind][0].items():
            with np.errstate(invalid="ignore", over="ignore"):
                errors = [np.abs(run[name] - value) for run in noisy[kind]]
                apart = np.where(np.isfinite(value), np.max(errors, 0), 0.0)
                # Few runs may leave a value alone that noise turns over in the rest of its row.
                spread[name] = np.maximum(apart, np.mean(apart, -1, keepdims=True)) if apart.ndim else apart
        references[kind] = Reference(single[kind][0], double[kind][0], spread)
    (folder / "reference").write_bytes(pickle.dumps(references))


@dataclasses.dataclass(frozen=True)
class Program:
    """A shared library of a group's model."""

    library: Path
    levels: tuple[str, ...]
    passes: dict[str, int]
    """How many places each pass changed, without those that changed none."""


class Group:
    """A model of some nets, in a folder of its own. TensorFlow must be imported, and this process must not have built a graph."""

    def __init__(self, folder: Path, nets: Sequence[grammar.Net]) -> None:
        """Exports the model, and computes TensorFlow's numbers.

        Raises:
          TfaotError: a stage refuses the model.
        """
        self.nets = nets
        self._folder = folder
        self._rules = starlark.execute(ROOT, "runtime/package.bzl")
        self._compiler = shlex.split(os.environ.get("CXX", "g++"))
        (folder / "model.py").write_text(grammar.model_text(nets))
        isolate.run_isolated(lambda: reference(folder, nets), what="computing TensorFlow's numbers")
        self.reference: dict[str, Reference] = pickle.loads((folder / "reference").read_bytes())
        isolate.run_isolated(lambda: harness.export_here(folder, "nets::Model"), what="exporting model.py")
        self._manifest = Manifest.from_json((folder / "manifest").read_text())
        self._class = list[str]()

    def program(self, passes: Sequence[str], levels: Sequence[str], *, optimize: str = "-O3") -> Program:
        """Compiles the model with passes for CPU levels. `optimize` is for the generated code; kernels always have -O3."""
        from tfaot.compile import compile as compiler

        folder = self._folder
        sources = [folder / f"executor.{level}.cc" for level in levels]
        compiler.compile_graph(
            compiler.Request(
                manifest=str(folder / "manifest"),
                graph=str(folder / "graph"),
                config=str(folder / "config"),
                sources=str(folder / "sources"),
                cpu=tuple(levels),
                out_objects=tuple(str(folder / f"kernels.{level}.o") for level in levels),
                out_constants=str(folder / "constants.o"),
                out_header=str(folder / "executor.h"),
                out_sources=tuple(map(str, sources)),
                out_hlo=str(folder / "hlo"),
                out_fingerprint=str(folder / "fingerprint"),
                out_fingerprint_source=str(folder / "fingerprint.S"),
                passes=tuple(passes),
                out_passes=str(folder / "passes.json"),
            )
        )
        objects = [*self._class_objects(), str(folder / "constants.o")]
        for level, source in zip(levels, sources, strict=True):
            flags = [*self._rules["package_copts"]([], level), optimize]
            objects += [self._object(source, *flags), str(folder / f"kernels.{level}.o"), *native.kernels(level)]
        library = folder / "model.so"
        self._run(*self._rules["PACKAGE_LINK"], *objects, *native.runtime(), "-lm", "-o", str(library))
        places = json.loads((folder / "passes.json").read_text())
        return Program(library, tuple(levels), {name: n for name, n in places.items() if isinstance(n, int) and n})

    def _class_objects(self) -> list[str]:
        """Compiles the class and its interface once. They name the levels, but no pass changes them."""
        from tfaot.render import render

        folder = self._folder
        if not self._class:
            render.render(
                render.Request(
                    manifest=str(folder / "manifest"),
                    header="model.h",
                    functions=(render.Compiled("", 0, (), "executor.h"),),
                    embed_variables=True,
                    flush_denormals=True,
                    out_header=str(folder / "model.h"),
                    out_source=str(folder / "model.cc"),
                    out_variables=str(folder / "variables.S"),
                    out_test=str(folder / "test.cc"),
                    out_benchmark=str(folder / "benchmark.cc"),
                )
            )
            plain = [*self._rules["package_copts"](), "-O0"]
            self._class = [
                self._object(folder / "variables.S", f'-DTFAOT_VARIABLES="{folder / "variables"}"'),
                self._object(folder / "weights.S"),
                self._object(folder / "fingerprint.S"),
            ]
            interface = self._rules["interface_copts"](self._manifest.cpp_class, "model.h")
            source = ROOT / "runtime" / self._rules["PACKAGE_INTERFACE"]
            self._class.append(self._object(source, *interface, "-O0", out=folder / "interface.o"))
            self._plain = plain
        # The class names the levels that the program has.
        return [*self._class, self._object(folder / "model.cc", *self._plain)]

    def _object(self, source: Path, *flags: str, out: Path | None = None) -> str:
        path = str(out or source.with_suffix(".o"))
        include = ("-I", str(self._folder), "-I", str(ROOT / "runtime"))
        self._run(*flags, *include, "-fPIC", "-c", str(source), "-o", path)
        return path

    def _run(self, *flags: str) -> None:
        command = [*self._compiler, *flags]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)}\n{done.stderr[:4000]}")

    def results(self, program: Program, threads: Sequence[int]) -> dict[tuple[str, str, int], dict[str, Array]]:
        """Runs a program in a child, and returns its outputs by kind of inputs, level, and threads."""
        path = self._folder / "results"

        def work() -> None:
            from tfaot.run import load

            results = {}
            for kind in KINDS:
                fed = inputs(self.nets, kind)
                for level in program.levels:
                    for count in threads:
                        with load(str(program.library), isa=level, threads=count) as model:
                            results[kind, level, count] = {
                                name: np.array(value) for name, value in model.run(fed).items()
                            }
            path.write_bytes(pickle.dumps(results))

        isolate.run_isolated(work, what="running the compiled nets")
        loaded: dict[tuple[str, str, int], dict[str, Array]] = pickle.loads(path.read_bytes())
        return loaded


XLA = "XLA"
"""What a fault is called that a program without passes has, too."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something that a net shows."""

    net: int
    variant: str
    """The passes that were on."""
    what: str
    """`value`, `threads`, `XLA` (without passes), or an error's text."""
    inputs: str = ""
    """Their kind."""
    where: str = ""
    """The level, the output, and a value."""


@dataclasses.dataclass
class Count:
    """What a family of nets has been compared on."""

    nets: int = 0
    values: int = 0
    blind: int = 0
    """Values that may be off by a tenth of their output's largest, because rounding decides them or they overflow."""


@dataclasses.dataclass
class Tally:
    """What a campaign has seen."""

    counts: dict[str, Count] = dataclasses.field(default_factory=dict)
    """By family of nets."""
    places: dict[str, int] = dataclasses.field(default_factory=dict)
    """How many places each pass has changed."""
    variants: dict[str, int] = dataclasses.field(default_factory=dict)
    """How many programs had a pass alone or left out."""
    faults: list[Fault] = dataclasses.field(default_factory=list)

    @property
    def nets(self) -> int:
        """How many nets were compared."""
        return sum(count.nets for count in self.counts.values())

    def count(self, net: grammar.Net) -> Count:
        """Returns the count of a net's family, to which it is added."""
        count = self.counts.setdefault(net.family, Count())
        count.nets += 1
        return count


def check(folder: Path, nets: Sequence[grammar.Net], tally: Tally, *, each_pass: bool) -> None:
    """Compares nets in all variants, and adds what it finds to a tally.

    Args:
      folder: an empty folder.
      nets: the nets, which share a model. If a stage fails, each gets a model of its own.
      tally: changed in place.
      each_pass: whether to try each pass that applies alone, and all others without it.
    """
    try:
        group = Group(folder, nets)
        plain = group.program((), LEVELS[:1], optimize="-O1")
        without = group.results(plain, (1,))
        program = group.program(("*",), LEVELS)
        results = group.results(program, THREADS)
    except (TfaotError, RuntimeError) as error:
        if len(nets) == 1:
            tally.count(nets[0])
            tally.faults.append(Fault(nets[0].number, "*", str(error)[-1500:]))
            return
        for net in nets:
            alone = folder / str(net.number)
            alone.mkdir()
            check(alone, [net], tally, each_pass=each_pass)
        return
    for name, places in program.passes.items():
        tally.places[name] = tally.places.get(name, 0) + places
    if any(_compared(group, "*", results, without)):
        # What the compiler itself does at the other levels.
        others = group.results(group.program((), LEVELS[1:], optimize="-O1"), (1,))
        without = {**without, **others}
    tally.faults += _xla(group, without)
    tally.faults += _compared(group, "*", results, without)
    tally.faults += _bits(results)
    _count(group, tally)
    if not each_pass:
        return
    for index, name in enumerate(program.passes):
        # In turns: tried in every group, all passes would take ten times as long as the rest.
        passes = {0: (name,), 2: ("*", f"!{name}")}.get((index + nets[0].number // len(nets)) % 4)
        if passes is None:
            continue
        variant = " ".join(passes)
        try:
            results = group.results(group.program(passes, LEVELS[:1], optimize="-O1"), (1, 3))
        except (TfaotError, RuntimeError) as error:
            tally.faults.append(Fault(nets[0].number, variant, str(error)[-1500:]))
            continue
        tally.variants[name] = tally.variants.get(name, 0) + 1
        tally.faults += _compared(group, variant, results, without)
        tally.faults += [dataclasses.replace(fault, variant=variant) for fault in _bits(results)]


def _count(group: Group, tally: Tally) -> None:
    counts = {net.number: tally.count(net) for net in group.nets}
    for reference in group.reference.values():
        for name, single in reference.single.items():
            count = counts[_net(name)]
            count.values += single.size
            size = np.max(np.where(np.isfinite(single), np.abs(single), 0.0), initial=0.0)
            count.blind += int(np.sum(~reference.wrong(name, single + np.float32(max(0.1 * size, 1e-30)))))


Results = Mapping[tuple[str, str, int], Mapping[str, Array]]


def _net(output: str) -> int:
    return int(output[1:].partition("_")[0])


def _xla(group: Group, results: Results) -> Iterator[Fault]:
    """Yields values of the program without passes that differ from TensorFlow's."""
    for (kind, level, _), outputs in results.items():
        for name, got in outputs.items():
            wrong = group.reference[kind].wrong(name, got)
            if wrong.any():
                yield Fault(_net(name), "no pass", XLA, kind, _shown(group, kind, level, name, got, wrong))


def _compared(group: Group, variant: str, results: Results, without: Results) -> Iterator[Fault]:
    """Yields values that are wrong only with passes.

    Where the program without them is wrong, too, what the values are depends on how XLA cuts the program into kernels.
    """
    for (kind, level, threads), outputs in results.items():
        if threads != 1:
            continue
        for name, got in outputs.items():
            plain = without.get((kind, level, 1), without[kind, LEVELS[0], 1])[name]
            wrong = group.reference[kind].wrong(name, got, near=plain)
            if wrong.any() and not group.reference[kind].wrong(name, plain).any():
                yield Fault(_net(name), variant, "value", kind, _shown(group, kind, level, name, got, wrong))


def _bits(results: Results) -> Iterator[Fault]:
    """Yields values that depend on the number of threads."""
    for (kind, level, threads), outputs in results.items():
        for name, got in outputs.items():
            alone = results[kind, level, 1][name]
            apart = (got.view(np.int32) != alone.view(np.int32)) & ~(np.isnan(got) & np.isnan(alone))
            if apart.any():
                at = np.argwhere(apart)[0].tolist()
                where = f"{level}, {name}{at}: {alone[apart][0]!r}, and with {threads} threads {got[apart][0]!r}"
                yield Fault(_net(name), "*", "threads", kind, f"{int(apart.sum())} values: {where}")


def _shown(group: Group, kind: str, level: str, name: str, got: Array, wrong: Array) -> str:
    reference = group.reference[kind]
    index = tuple(np.argwhere(wrong)[0].tolist())
    return (
        f"{int(wrong.sum())} of {wrong.size}: {level}, {name}{list(index)}: {got[index]!r}, TensorFlow "
        f"{reference.single[name][index]!r}, in float64 {reference.double[name][index]!r} ± {reference.spread[name][index]:.2g}"
    )
