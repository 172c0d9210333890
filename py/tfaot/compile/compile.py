"""The compile stage: tfcompile, from the wheel, on an exported graph."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from tfaot.compile import program_shape
from tfaot.compile.program import constants, cost, epilogues, executor, prepack, thunks
from tfaot.core import environment, isolate, refusals
from tfaot.core.errors import TfaotError, listed
from tfaot.core.functions import Function, functions
from tfaot.core.isa import TARGET_TRIPLE, check_isa
from tfaot.core.manifest import Manifest


@dataclasses.dataclass(frozen=True)
class Request:
    """What to compile, and where to."""

    manifest: str
    graph: str
    config: str
    """The entry point's."""
    sources: str
    """JSON of `file:line` by node, from the export stage; only errors read it."""
    isa: tuple[str, ...]
    """CPU levels to compile for: some of `CPU_LEVELS`, lowest first."""
    xla_flags: tuple[str, ...]
    """Further flags of XLA."""
    out_objects: tuple[str, ...]
    """Kernels, of each level."""
    out_constants: str
    """What the kernels of all levels read."""
    out_header: str
    """C++ that declares the class which `Function.internal_class` names."""
    out_sources: tuple[str, ...]
    """C++ that runs it, of each level, for the link stage to compile for that level."""
    out_hlo: str
    """An `xla.HloSnapshot`, before optimization."""
    entry_point: str = ""
    """Its name in the manifest; empty for the only one."""
    batch: int = 0
    """One of the entry point's batch sizes; 0 if it has none."""
    passes: tuple[str, ...] = ()
    """Patterns of `tfaot.compile.passes` to apply; none leaves the graph as it is."""
    out_passes: str = ""
    """JSON: how many places each pass changed, null for one that is off, and which constants were packed; empty for no
    such file."""


def _function(request: Request, manifest: Manifest) -> Function:
    found = functions(manifest)
    return next(
        function
        for function in found
        if request.entry_point in ("", function.entry_point.name) and function.batch == request.batch
    )


def compile_graph(request: Request) -> None:
    """Compiles in a child process, and writes all outputs or none.

    Raises:
      TfaotError: the CPU or a flag is unknown, or the compiler refuses the graph.
    """
    check_isa(request.isa)
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest)

    # The compiler writes one output after another, and may die or refuse the graph in between.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(request.out_header)) as folder:
        complete: dict[str, Any] = {
            output: os.path.join(folder, output)
            for output in ("out_constants", "out_header", "out_hlo", "out_passes")
            if getattr(request, output)
        }
        for output in ("out_objects", "out_sources"):
            complete[output] = tuple(os.path.join(folder, f"{output}.{isa}") for isa in request.isa)
        inside = dataclasses.replace(request, **complete)
        isolate.run_isolated(
            lambda: _compile(inside, manifest),
            what=f"compiling {manifest.cpp_class}",
            crashed=_crashed(request, manifest, request.isa),
        )
        for output, path in complete.items():
            wanted = getattr(request, output)
            for source, target in zip(path, wanted, strict=True) if isinstance(path, tuple) else [(path, wanted)]:
                os.replace(source, target)


_FAULTS = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV")
"""Signals that say that the compiler is at fault, and not the machine."""


def _crashed(
    request: Request, manifest: Manifest, isa: Sequence[str], find: Callable[[], list[str]] | None = None
) -> Callable[[str, str], TfaotError]:
    """Makes the error for a child that compiles for some levels and dies; `find` names the nodes that it died of."""

    def crashed(how: str, log: str) -> TfaotError:
        if unknown := re.search(r"Unknown flags? in XLA_FLAGS: (.+)", log):
            return TfaotError(
                f"compiling {manifest.cpp_class}: XLA does not know {listed(unknown[1].split())}",
                exists="xla_flags = " + listed(request.xla_flags),
                do="mend or remove it in the target's xla_flags; the flags are those of the TensorFlow wheel's XLA",
            )
        last_words = "\n".join(isolate.last_words(log))
        if find is not None and how.endswith(_FAULTS) and (places := find()):
            return TfaotError(
                f"compiling {manifest.cpp_class} for {listed(isa)}: the compiler {how}, by {places[0]}",
                details=last_words,
                exists="without it, what comes before it compiles"
                + (f"; or it is one of {listed(places[1:])}" if places[1:] else ""),
                do="write in another way what the model computes there, and report the model: a compiler should not die",
            )
        return TfaotError(
            f"compiling {manifest.cpp_class} for {listed(isa)}: the compiler {how}",
            details=last_words,
            exists="XLA flags: " + listed(request.xla_flags),
            do="look for an unknown flag or an op that XLA cannot take; the last lines above are the compiler's own",
        )

    return crashed


def _compile(request: Request, manifest: Manifest) -> None:
    environment.prepare(xla_flags=request.xla_flags)
    from google.protobuf import text_format
    from tensorflow.compiler.tf2xla import tf2xla_pb2
    from tensorflow.python import _pywrap_tfcompile  # for the children

    del _pywrap_tfcompile
    with open(request.config, encoding="utf-8") as file:
        config = text_format.Parse(file.read(), tf2xla_pb2.Config())
    function = _function(request, manifest)
    if function.batch:
        batched = [tensor.batched for tensor in function.entry_point.inputs]
        batched += [tensor.batched for tensor in function.entry_point.outputs]
        for entry, is_batched in zip((*config.feed, *config.fetch), batched, strict=False):
            if is_batched:
                entry.shape.dim[0].size = function.batch
    # tfcompile's header is used by position only. Its own names must then be legal and different, and no more.
    for kind in ("feed", "fetch", "variable"):
        for index, entry in enumerate(getattr(config, kind)):
            entry.name = f"{kind}{index}"
    with tempfile.TemporaryDirectory() as folder:
        positional = os.path.join(folder, "config.pbtxt")
        with open(positional, "w", encoding="utf-8") as file:
            file.write(text_format.MessageToString(config))
        # A graph starts threads, and a process that runs any must not fork.
        request, places = isolate.run_isolated(
            functools.partial(_with_passes, request, config, folder),
            what=f"applying passes to {manifest.cpp_class}",
            crashed=_crashed(request, manifest, request.isa),
        )
        headers: dict[str, str] = {}
        finishes: dict[str, tuple[epilogues.Finish, ...]] = {}
        for isa, out_object in zip(request.isa, request.out_objects, strict=True):
            # The compiler numbers what it makes in a process: of each level it is then the same, whatever others there are.
            headers[isa], found = isolate.run_isolated(
                functools.partial(
                    _compile_for, isa, request, manifest, function, positional, out_object, os.path.join(folder, isa)
                ),
                what=f"compiling {manifest.cpp_class} for {isa}",
                crashed=_crashed(
                    request,
                    manifest,
                    [isa],
                    functools.partial(_fatal, isa, request, manifest, function, config, folder),
                ),
            )
            finishes |= found
        objects = [_read(os.path.join(folder, isa)) for isa in request.isa]
        module = _module(request.out_hlo)
        entry_point, shape = function.entry_point.name, module.host_program_shape
        program_shape.check(shape, manifest, entry_point, function.batch, refusals.sources_of(request))
    programs = {isa: thunks.parse(header) for isa, header in headers.items()}
    if places["epilogues"] is not None:
        programs = {isa: epilogues.attach(program, finishes) for isa, program in programs.items()}
        places["epilogues"] = max(map(epilogues.count, programs.values()))
    packed = prepack.Prepacked(programs, {}, ())
    kinds = [each for each in prepack.PACKINGS if places[each.switch] is not None]
    if kinds:
        values = {symbol: value for data in objects for symbol, value in constants.values(data).items()}
        packed = prepack.prepack(programs, values, kinds)
        for each in kinds:
            places[each.switch] = sum(constant.packing == each.name for constant in packed.constants)
    with open(request.out_constants, "wb") as file_:
        file_.write(constants.merged(objects, packed.values))
    if request.out_passes:
        with open(request.out_passes, "w", encoding="utf-8") as file:
            json.dump(places | {"packed": [dataclasses.asdict(each) for each in packed.constants]}, file, indent=2)
            file.write("\n")
    rendered = executor.render(
        packed.functions,
        cpp_class=function.internal_class,
        cost=cost.of(module),
        tensorflow=manifest.tensorflow,
    )
    texts = zip((request.out_header, *request.out_sources), (rendered.header, *rendered.sources), strict=True)
    for path, text in texts:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def _module(path: str) -> Any:
    """The `xla.HloModuleProto` of an `xla.HloSnapshot`."""
    from tensorflow.compiler.xla.service import hlo_pb2

    return hlo_pb2.HloSnapshot.FromString(_read(path)).hlo.hlo_module


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _compile_for(
    isa: str, request: Request, manifest: Manifest, function: Function, config: str, out_object: str, out_constants: str
) -> tuple[str, dict[str, tuple[epilogues.Finish, ...]]]:
    """Compiles for a level: writes the kernels, the constants, and the HLO.

    Returns:
      tfcompile's header, and which of the kernels only finish what comes before them.

    Args:
      isa: one of `CPU_LEVELS`.
      request: with the graph that the compiler is given.
      manifest: the model's.
      function: what is compiled.
      config: path of the config that the compiler is given.
      out_object: where the kernels go.
      out_constants: where the constants go, as the compiler writes them.
    """
    from tensorflow.python import _pywrap_tfcompile

    with tempfile.TemporaryDirectory() as folder:
        header = os.path.join(folder, "header.h")
        # XLA reads its flags at its first use, which is in this process. Later ones win: the target's own.
        os.environ["XLA_FLAGS"] = " ".join([*epilogues.flags(folder), os.environ["XLA_FLAGS"]])
        try:
            _pywrap_tfcompile.Compile(
                graph=request.graph,
                config=config,
                target_triple=TARGET_TRIPLE,
                target_cpu=isa,
                target_features="",
                entry_point=function.symbol,
                cpp_class=executor.for_isa(function.internal_class, isa),
                out_function_object=out_object,
                out_metadata_object=os.path.join(folder, "metadata.o"),  # differs from run to run, and nothing uses it
                out_header=header,
                out_session_module=request.out_hlo,  # the same for each level, but for the module's name
                out_constant_buffers_object=out_constants,
                mlir_components="",
                gen_name_to_index=False,
                gen_program_shape=False,
            )
        except Exception as error:
            raise refusals.explain(str(error), request, manifest) from None
        with open(header, encoding="utf-8") as file:
            return file.read(), epilogues.read(folder)


class _Died(TfaotError):
    """The compiler died of a part of a graph."""


def _fatal(isa: str, request: Request, manifest: Manifest, function: Function, config: Any, folder: str) -> list[str]:
    """The nodes that the compiler may have died of, with their source lines, the likeliest first; none if nobody knows.

    Args:
      isa: one of `CPU_LEVELS`.
      request: with the graph that the compiler died of.
      manifest: the model's.
      function: what was compiled.
      config: what the compiler was given.
      folder: for parts of the graph.
    """
    from google.protobuf import text_format
    from tensorflow.core.framework import graph_pb2

    from tfaot.compile import crash
    from tfaot.graph.calls import inline_calls
    from tfaot.graph.program import Program

    parts = {
        "graph": "crash.pb",
        "config": "crash.pbtxt",
        "object": "crash.o",
        "constants": "crash.c",
        "hlo": "crash.hlo",
    }
    paths = {name: os.path.join(folder, file) for name, file in parts.items()}

    def dies(graph: Any, part: Any) -> bool:
        with open(paths["graph"], "wb") as file:
            file.write(graph.SerializeToString())
        with open(paths["config"], "w", encoding="utf-8") as file_:
            file_.write(text_format.MessageToString(part))
        asked = dataclasses.replace(request, graph=paths["graph"], out_hlo=paths["hlo"])
        try:
            isolate.run_isolated(
                lambda: _compile_for(
                    isa, asked, manifest, function, paths["config"], paths["object"], paths["constants"]
                )[0],
                what="compiling a part",
                crashed=lambda how, log: _Died(how, do=log),
            )
        except TfaotError as error:
            return isinstance(error, _Died)
        return False

    sources = refusals.sources_of(request)
    graph = graph_pb2.GraphDef.FromString(_read(request.graph))
    # A call's name says little; but what is in it may do no harm in the caller.
    for prepare in (inline_calls, Program.prune):
        program = Program.of(graph, config)
        prepare(program)
        if found := crash.find(program.graph, config, dies):
            nodes = program.nodes()
            sources |= {node: sources[origin] for node, origin in program.origins.items() if origin in sources}
            return [refusals.place("", nodes[name], sources) for name in (found.node, *found.others)]
    return []


def _with_passes(request: Request, config: Any, folder: str) -> tuple[Request, dict[str, int | None]]:
    """Applies passes to the graph, and writes in other ops what XLA cannot compile.

    Returns:
      A request for the graph that they made of it, and how many places each changed, None for one that is off.

    Args:
      request: with the exported graph.
      config: `tf2xla.Config` of the function.
      folder: for the new graph, and for the source lines of its nodes.
    """
    from tensorflow.core.framework import graph_pb2

    from tfaot.compile.passes import passes
    from tfaot.graph import convolutions

    names_ = passes.chosen(request.passes)
    places: dict[str, int | None] = dict.fromkeys(each.name for each in passes.PASSES)
    result = request
    with open(request.graph, "rb") as file:
        graph = graph_pb2.GraphDef.FromString(file.read())
    if names_ or convolutions.any_by_kernel(graph):
        applied = passes.apply(graph, config, names_)
        places = applied.places
        if applied.lowered or any(places.values()):
            sources = refusals.sources_of(request)
            sources |= {node: sources[origin] for node, origin in applied.origins.items() if origin in sources}
            result = dataclasses.replace(
                request, graph=os.path.join(folder, "graph.pb"), sources=os.path.join(folder, "sources.json")
            )
            with open(result.graph, "wb") as file:
                file.write(applied.graph.SerializeToString(deterministic=True))
            with open(result.sources, "w", encoding="utf-8") as file_:
                json.dump(sources, file_)
    return result, places
