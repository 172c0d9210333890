"""The compile stage, for each CPU level: passes on an exported graph, tfcompile, and passes on its output."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tfaot.compile import open_sizes, program_shape
from tfaot.compile.program import cost, steps
from tfaot.compile.program.codegen import executor
from tfaot.compile.program.objects import constants
from tfaot.compile.program.thunks import collectives, header, schedule
from tfaot.compile.program.thunks.compiled import Compiled, described
from tfaot.compile.program.thunks.kinds import CompiledFunction, Kernel, walk
from tfaot.compile.program.thunks.marked import placed
from tfaot.compile.program.values.instructions import kernels
from tfaot.core import elf, environment, fingerprint, isolate, pass_names, refusals, requests
from tfaot.core.errors import TfaotError, listed
from tfaot.core.functions import function
from tfaot.core.isa import check_isa
from tfaot.core.manifest import Manifest
from tfaot.tfcompile import compiler, crash, inputs
from tfaot.tfcompile.inputs import Inputs
from tfaot.xla import module as xla


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphRequest:
    """What is the same for all functions of a model."""

    manifest: str
    graph: str
    sources: str
    """JSON of `file:line` by node, from the export stage; only errors read it."""
    cpu: tuple[str, ...]
    """CPU levels to compile for: some of `CPU_LEVELS`, lowest first."""
    target_triple: str = ""
    """What LLVM calls the target platform. Empty for Linux on the CPU levels' architecture."""
    xla_flags: tuple[str, ...] = ()
    """More XLA flags."""
    passes: tuple[str, ...] = ()
    """Patterns of `tfaot.compile.table` that select passes. Without any, the graph stays unchanged."""
    tolerant: bool = False
    """Whether the build goes on without a pass that raises an exception. Otherwise, that is an error, as in our own tests."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(GraphRequest):
    """What to compile, and where to write it."""

    config: str
    """The entry point's config."""
    entry_point: str = ""
    """The entry point's name in the manifest; empty for the only one."""
    batch: int = 0
    """One of the entry point's batch sizes; 0 if it has no batches."""
    buckets: tuple[int, ...] = ()
    """A bucket of each of the entry point's open sizes."""
    out_objects: tuple[str, ...]
    """The kernels, for each level."""
    out_constants: str
    """The constants of all levels, in one object file."""
    out_header: str
    """C++ that declares the class named by `Function.internal_class`."""
    out_sources: tuple[str, ...]
    """C++ that runs the class, for each level. The link stage compiles it for that level."""
    out_hlo: str
    """An `xla.HloSnapshot`, before optimization."""
    out_fingerprint: str
    """JSON of a `tfaot.core.fingerprint.Stamp`: what identifies the build. The same for all functions of a class."""
    out_fingerprint_source: str
    """Assembler code that defines the fingerprint. A library needs it once."""
    out_passes: str = ""
    """JSON, which docs/reference/passes.md describes. Empty for no such file."""
    out_program: str = ""
    """JSON: the steps of a run at the highest level (`program/steps.py`). Only the report reads it. Empty for no such file."""


def compile_graph(request: Request) -> None:
    """Compiles like `compile_one`, and warns of passes that raised an exception."""
    warn(compile_one(request))


def warn(failed: Mapping[str, str]) -> None:
    """Says which passes raised an exception, given what they said."""
    for name, text in failed.items():
        sys.stderr.write(
            f"warning: the pass {name} failed, and the model is compiled without it: {text}\n"
            "  to do: report it to rules_tfaot, please. It changes no number, only speed\n"
        )


def compile_one(request: Request) -> dict[str, str]:
    """Compiles in a child process, and writes all outputs or none.

    Returns:
      What each pass said that raised an exception, by its name.

    Raises:
      TfaotError: the CPU or a flag is unknown, or the compiler refuses the graph.
    """
    check_isa(request.cpu)
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest)

    # The compiler writes its outputs one by one, and may die or refuse the graph in between.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(request.out_header)) as folder:
        complete: dict[str, Any] = {}
        for output in (name for name in requests.names(Request) if name.startswith("out_") and getattr(request, name)):
            by_level = tuple(os.path.join(folder, f"{output}.{isa}") for isa in request.cpu)
            complete[output] = by_level if output in ("out_objects", "out_sources") else os.path.join(folder, output)
        inside = dataclasses.replace(request, **complete)
        failed = isolate.run_isolated(
            lambda: _compile(inside, manifest),
            what=f"compiling {manifest.cpp_class}",
            crashed=crash.error(manifest.cpp_class, request.cpu, request.xla_flags),
        )
        for output, path in complete.items():
            wanted = getattr(request, output)
            for source, target in zip(path, wanted, strict=True) if isinstance(path, tuple) else [(path, wanted)]:
                os.replace(source, target)
    return failed


def _compile(request: Request, manifest: Manifest) -> dict[str, str]:
    """Runs the whole stage, like `compile_one`. Its process must be separate, because this function imports TensorFlow."""
    environment.prepare(xla_flags=request.xla_flags)
    # Imported here once, for all child processes.
    from tensorflow.compiler.xla.service import hlo_pb2
    from tensorflow.python import _pywrap_tfcompile

    from tfaot.compile import table

    del _pywrap_tfcompile
    names = pass_names.chosen(request.passes)
    stamp = fingerprint.stamp(
        manifest, isa=request.cpu, target_triple=request.target_triple, xla_flags=request.xla_flags, passes=names
    )
    wanted = function(manifest, request.entry_point, request.batch, request.buckets)
    with tempfile.TemporaryDirectory() as folder:
        config = inputs.positional(request.config, wanted, folder)
        exported = Inputs(
            manifest, wanted, request.graph, config, request.sources, request.xla_flags, request.target_triple
        )
        # Building a graph starts threads, and a process with running threads must not fork.
        rewritten, places, missed, failed = isolate.run_isolated(
            functools.partial(_rewritten, exported, names, folder, tolerant=request.tolerant),
            what=f"applying passes to {manifest.cpp_class}",
            crashed=crash.error(manifest.cpp_class, request.cpu, request.xla_flags),
        )
        made, objects = _compiled(request, rewritten, folder)
        module = xla.read(hlo_pb2.HloSnapshot.FromString(Path(request.out_hlo).read_bytes()).hlo.hlo_module)
        sources = refusals.sources_of(rewritten)
        open_sizes.check(module, rewritten.read_graph, sources, manifest.cpp_class)
        program_shape.check(module, manifest, wanted, sources)
    modules = {isa: xla.read(hlo_pb2.HloProto.FromString(output.hlo).hlo_module) for isa, output in made.items()}
    functions = {isa: _function(output.header, modules[isa], manifest) for isa, output in made.items()}
    roots = dict[str, bytes]()
    for isa in functions:
        functions[isa], tables = placed(functions[isa], modules[isa], isa)
        roots |= tables
    collectives.check(functions.values(), manifest.cpp_class)
    before = Compiled(
        functions=functions,
        values={symbol: value for data in objects for symbol, value in constants.values(data).items()}
        | {symbol: memoryview(table) for symbol, table in roots.items()},
        weights=manifest.weights.rounded_to,
        modules=[*modules.values()],
    )

    def improved(names: Collection[str]) -> tuple[Compiled, dict[str, int | None]]:
        compiled = dataclasses.replace(
            before, functions={**before.functions}, replaced={}, added={**roots}, packed={}, reasons={}
        )
        return compiled, table.run(compiled, names)

    compiled, after = table.without_failures(improved, names, failed) if request.tolerant else improved(names)
    places |= after
    compiled.functions = schedule.scheduled(compiled.functions, manifest.cpp_class)
    rendered = executor.render(
        compiled.functions, cpp_class=wanted.internal_class, cost=cost.of(module), tensorflow=manifest.tensorflow
    )
    Path(request.out_constants).write_bytes(elf.hidden(constants.merged(objects, compiled.replaced, compiled.added)))
    texts = dict(zip((request.out_header, *request.out_sources), (rendered.header, *rendered.sources), strict=True))
    texts[request.out_fingerprint] = stamp.to_json()
    texts[request.out_fingerprint_source] = fingerprint.assembly(manifest.cpp_class, stamp.fingerprint)
    if request.out_passes:
        in_order = {pass_.name: places.get(pass_.name) for pass_ in table.PASSES}
        packed = [dataclasses.asdict(constant) for _, constant in sorted(compiled.packed.items())]
        others = {
            "failed": failed,
            "packed": packed,
            "kernels": rendered.kernels,
            "remaining": compiled.remaining,
            "missed": missed + compiled.near_misses,
        }
        texts[request.out_passes] = json.dumps(in_order | others, indent=2) + "\n"
    if request.out_program:
        entry, level = wanted.entry_point, request.cpu[-1]
        arguments = [*entry.feeds, *(manifest.variables[use.variable].name for use in entry.variables)]
        texts[request.out_program] = steps.describe(compiled.functions[level], modules[level], arguments)
    for path, text in texts.items():
        Path(path).write_text(text, encoding="utf-8")
    return failed


def _rewritten(
    exported: Inputs, names: Collection[str], folder: str, *, tolerant: bool
) -> tuple[Inputs, dict[str, int | None], list[dict[str, str]], dict[str, str]]:
    """Applies the graph passes, and replaces what XLA can't compile with other ops.

    Args:
      exported: the inputs, with the exported graph.
      names: the names of the passes that are on.
      folder: where to write the new graph and the source lines of its nodes.
      tolerant: as in `Request`.

    Returns:
      The compiler's input, how many places each pass changed, near misses, and what each pass said that raised an exception.
      Passes that had nothing to inspect are left out.
    """
    from tfaot.compile import table

    graph = exported.read_graph()
    if not names and not inputs.to_lower(graph):
        return exported, {}, [], {}
    config, failed = exported.read_config(), dict[str, str]()

    def work(names: Collection[str]) -> table.Applied:
        return table.apply(graph, config, names)

    applied = table.without_failures(work, names, failed) if tolerant else work(names)
    changed = applied.lowered or any(applied.places.values())
    rewritten = inputs.rewritten(exported, applied.graph, applied.origins, folder) if changed else exported
    return rewritten, applied.places, applied.missed, failed


def _compiled(request: Request, rewritten: Inputs, folder: str) -> tuple[dict[str, compiler.Made], list[bytes]]:
    """Compiles for every level, and writes the kernels and the HLO. Returns the rest, and objects of constants."""
    made: dict[str, compiler.Made] = {}
    objects = []
    for isa, out_objects in zip(request.cpu, request.out_objects, strict=True):
        out_constants = os.path.join(folder, isa)
        made[isa] = compiler.compile_for(isa, rewritten, compiler.Outputs(out_objects, out_constants, request.out_hlo))
        objects.append(Path(out_constants).read_bytes())
        Path(out_objects).write_bytes(elf.hidden(Path(out_objects).read_bytes()))
    return made, objects


def _function(text: str, module: xla.Module, manifest: Manifest) -> CompiledFunction:
    """Reads tfcompile's header.

    Raises:
      TfaotError: it calls a kernel of which the optimized module says nothing.
    """
    compiled = header.parse(text)
    called = {thunk.symbol for thunk in walk(compiled.thunks) if isinstance(thunk, Kernel)}
    if unknown := called - {symbol for symbol, _ in kernels(module)}:
        raise TfaotError(
            f"{manifest.cpp_class}: the optimized module doesn't have {len(unknown)} kernels that tfcompile's header calls",
            exists=f"looked for {listed(sorted(unknown), limit=3)} in {module.name}, by TensorFlow {manifest.tensorflow}",
            do="use a TensorFlow that docs/reference/tensorflow_versions.md names; if it is one, this is a bug of rules_tfaot",
        )
    return described(compiled, module)
