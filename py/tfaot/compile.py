"""The compile stage: tfcompile, from the wheel, on an exported graph."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tfaot import constants, cost, environment, epilogues, executor, isolate, names, prepack, program_shape, thunks
from tfaot.errors import TfaotError, listed
from tfaot.manifest import EntryPoint, Manifest

CPU_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
"""The levels of the x86-64 psABI, as in runtime/copts.bzl. A level, not a CPU and never `native`: caches are shared between
machines."""

TARGET_TRIPLE = "x86_64-pc-linux"


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
    """Patterns of `tfaot.passes` to apply; none leaves the graph as it is."""
    out_passes: str = ""
    """JSON: how many places each pass changed, null for one that is off, and which constants were packed; empty for no
    such file."""


@dataclasses.dataclass(frozen=True)
class Function:
    """What one run of the compiler makes: an entry point, for one size of batch."""

    entry_point: EntryPoint
    batch: int
    """0 if the entry point has none."""
    symbol: str
    """Of no other function in a program."""

    @property
    def internal_class(self) -> str:
        """The class that the private header declares: unique to the public one, down to its C symbols."""
        return f"tfaot_internal::{self.symbol}"

    @property
    def cost(self) -> str:
        """The constant in the private header that says what a run costs, beside what other sizes of batch do."""
        return f"tfaot_internal::{self.symbol}_cost"


def functions(manifest: Manifest) -> tuple[Function, ...]:
    """All functions of a model, in the order in which the stages name their files."""
    symbol = names.symbol(manifest.cpp_class)
    result = []
    for index, entry in enumerate(manifest.entry_points):
        for batch in entry.batch_sizes or (0,):
            part = f"_{index}" if len(manifest.entry_points) > 1 else ""
            result.append(Function(entry, batch, symbol + part + (f"_b{batch}" if batch else "")))
    return tuple(result)


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


def check_isa(isa: Sequence[str]) -> None:
    """Checks what a request asks for.

    Raises:
      TfaotError: a level is unknown, is named twice, comes before a lower one, or there is none.
    """
    for level in isa:
        if level not in CPU_LEVELS:
            raise TfaotError(
                f"{level!r} is no CPU level that can be compiled for",
                exists=listed(CPU_LEVELS),
                do="name one of these, or several",
            )
    if not isa or list(isa) != [level for level in CPU_LEVELS if level in isa]:
        raise TfaotError(
            f"isa = {list(isa)} is no list of CPU levels to compile for",
            exists=listed(CPU_LEVELS),
            do="name at least one, each once, the lowest first",
        )


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
        program_shape.check(shape, manifest, entry_point, function.batch, _sources(request))
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
            raise explain(str(error), request, manifest) from None
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

    from tfaot import crash
    from tfaot.passes.calls import inline_calls
    from tfaot.passes.program import Program

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

    sources = _sources(request)
    graph = graph_pb2.GraphDef.FromString(_read(request.graph))
    # A call's name says little; but what is in it may do no harm in the caller.
    for prepare in (inline_calls, Program.prune):
        program = Program.of(graph, config)
        prepare(program)
        if found := crash.find(program.graph, config, dies):
            nodes = program.nodes()
            sources |= {node: sources[origin] for node, origin in program.origins.items() if origin in sources}
            return [_place("", nodes[name], sources) for name in (found.node, *found.others)]
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

    from tfaot import convolutions
    from tfaot.passes import passes

    names_ = passes.chosen(request.passes)
    places: dict[str, int | None] = dict.fromkeys(each.name for each in passes.PASSES)
    result = request
    with open(request.graph, "rb") as file:
        graph = graph_pb2.GraphDef.FromString(file.read())
    if names_ or convolutions.any_by_kernel(graph):
        applied = passes.apply(graph, config, names_)
        places = applied.places
        if applied.lowered or any(places.values()):
            sources = _sources(request)
            sources |= {node: sources[origin] for node, origin in applied.origins.items() if origin in sources}
            result = dataclasses.replace(
                request, graph=os.path.join(folder, "graph.pb"), sources=os.path.join(folder, "sources.json")
            )
            with open(result.graph, "wb") as file:
                file.write(applied.graph.SerializeToString(deterministic=True))
            with open(result.sources, "w", encoding="utf-8") as file_:
                json.dump(sources, file_)
    return result, places


def without_trace(message: str) -> str:
    """The compiler's message without what it knows of Python, which is made up; ours comes from the export stage."""
    return re.sub(r"\s*Stack trace for op definition:\s*\n(?:dummy_file_name\S*\n)*", "\n", message)


class Origin(Protocol):
    """Where a graph comes from, for messages."""

    @property
    def graph(self) -> str:
        """A serialized GraphDef."""
        ...

    @property
    def sources(self) -> str:
        """JSON of `file:line` by node."""
        ...


def explain(message: str, request: Origin, manifest: Manifest) -> TfaotError:
    """Turns the compiler's message into an error that names nodes, source lines, and what to do."""
    if known := explain_known(message, request, manifest.cpp_class):
        return known
    if constant := _not_constant(message):
        return TfaotError(
            f"{manifest.cpp_class}: argument {constant['argument']} of {constant['op']} {constant['node']!r} must be known "
            "when the model is built",
            details="\n".join(mentioned(message, _sources(request))),
            do="make it of Python numbers, constants, and shapes; not of inputs, variables, or random values",
        )
    return TfaotError(
        f"{manifest.cpp_class}: the compiler refuses the graph",
        details=explain_unknown(message, request),
        do="change the model at the lines named above; --xla_dump_to among the target's xla_flags shows more",
    )


def explain_unknown(message: str, request: Origin) -> str:
    """The compiler's message, and the source lines of the nodes that it names."""
    message = without_trace(message)
    return "\n".join([message, *mentioned(message, _sources(request))])


def explain_known(message: str, request: Origin, what: str) -> TfaotError | None:
    """An error for a message whose cause is known, or None.

    Args:
      message: the compiler's.
      request: the graph.
      what: names the model.
    """
    message = without_trace(message)
    if re.search(r"requires a fixed (tensor list|stack) size", message):
        loops = _loops_of(_named(message), request)
        return TfaotError(
            f"{what}: the gradient of a loop needs to know how often the loop runs at most",
            details="\n".join(loops or [message]),
            do="pass maximum_iterations=… to the tf.while_loop at the line named above; one that a Python integer or a "
            "shape gives, not a tensor",
        )
    if unsupported := _unsupported(message):
        shown = {op + (" of " + ", ".join(sorted({*dtypes.values()})) if dtypes else "") for op, dtypes in unsupported}
        convert = "convert what they take to a dtype that XLA has them for, such as float32 or int32, "
        return TfaotError(
            f"{what}: XLA cannot compile {listed(sorted(shown))}",
            details="\n".join(_nodes_of(lambda node: any(_is(node, *each) for each in unsupported), request)),
            do=f"replace these ops, {convert if any(d for _, d in unsupported) else ''}"
            "or move them out of the model to where its inputs are made",
        )
    if (constant := _not_constant(message)) and constant["op"] in _SLICE_ASSIGNMENTS:
        return TfaotError(
            f"{what}: a slice is assigned at an index that is known only at run time",
            details="\n".join(mentioned(message, _sources(request))),
            do="write rows by their index: variable.scatter_nd_update([[i]], [row]), or "
            "tf.tensor_scatter_nd_update(tensor, [[i]], [row]); of n rows from i on, the indices are "
            "(i + tf.range(n))[:, None]",
        )
    if "3D convolution is not implemented" in message:
        # XLA makes such convolutions of some gradients by the kernel, too.
        nodes = _nodes_of(lambda node: node.op.startswith("Conv3D"), request)
        nodes = nodes or _nodes_of(lambda node: "Conv2D" in node.op, request)
        return TfaotError(
            f"{what}: XLA cannot compile convolutions of three dimensions ahead of time",
            details="\n".join(nodes or [message]),
            do="replace these ops, or move them out of the model to where its inputs are made",
        )
    if empty := re.search(
        r"Missing xla_context \d+-th output from (\S+)", message
    ):  # a slice of nothing that is assigned
        sources = _sources(request)
        nodes = [_place(prefix, node, sources) for prefix, node in _all_nodes(request) if node.name == empty[1]]
        return TfaotError(
            f"{what}: XLA finds no result for an op",
            details="\n".join(nodes or [message]),
            do="leave this op out if its operands are empty, or replace it",
        )
    if thunk := re.search(r"Unsupported thunk type: ([\w-]+)", message):
        kind = thunk[1].replace("-", "")
        return TfaotError(
            f"{what}: XLA cannot compile {kind} ahead of time",
            details="\n".join(_nodes_of(lambda node: kind in node.op.lower(), request)),
            do="replace these ops, or move them out of the model to where its inputs are made",
        )
    if flag := re.search(r'Variable "([^"]*)" is marked as (not )?readonly', message):
        name = flag[1]  # the node's, not the config's
        actual = "true" if flag[2] else "false"
        return TfaotError(
            f"{what}: the config says of the variable {name} what the compiler finds wrong",
            details=message,
            do=f'write variable {{ node_name: "{name}" readonly: {actual} }} into the target\'s config',
        )
    return None


_SLICE_ASSIGNMENTS = ("ResourceStridedSliceAssign", "StridedSliceAssign", "TensorStridedSliceUpdate")


def _not_constant(message: str) -> re.Match[str] | None:
    """The argument, node, and op in a message about what must be known when the model is built."""
    return re.search(
        r"Input (?P<argument>\d+) to node `(?P<node>[^`]+)` with op (?P<op>\w+) must be a compile-time", message
    )


def _unsupported(message: str) -> list[tuple[str, dict[str, str]]]:
    """The ops that XLA's message says it has no kernel for, each with the dtypes, by attribute, that none is for."""
    from tensorflow.core.framework import types_pb2
    from tensorflow.dtypes import as_dtype

    found: list[tuple[str, dict[str, str]]] = []
    kernels = r"[,:] (\w+) \(No registered '\w+' OpKernel[^()]*(?:\(OpKernel was found[^()]*\) Requested Attributes: ([^()]*))?"
    for op, attributes in re.findall(kernels, message):
        dtypes = {
            name: as_dtype(types_pb2.DataType.Value(dtype)).name
            for name, dtype in re.findall(r"(\w+)=(DT_\w+)", attributes)
        }
        if (op, dtypes) not in found:
            found.append((op, dtypes))
    return found


def _is(node: Any, op: str, dtypes: Mapping[str, str]) -> bool:
    from tensorflow.dtypes import as_dtype

    return node.op == op and all(
        node.attr[name].type == as_dtype(dtype).as_datatype_enum for name, dtype in dtypes.items()
    )


def _nodes_of(wanted: Callable[[Any], bool], request: Origin) -> list[str]:
    """`op 'node' at file:line` for every node that is wanted, in the graph and in its functions."""
    sources = _sources(request)
    return [_place(prefix, node, sources) for prefix, node in _all_nodes(request) if wanted(node)]


def _loops_of(names_: list[str], request: Origin) -> list[str]:
    """The loops that take one of the named nodes, where their gradients keep what they need; or else all loops."""
    sources = _sources(request)
    loops = [(prefix, node) for prefix, node in _all_nodes(request) if node.op in ("While", "StatelessWhile")]
    concerned = [
        (prefix, node) for prefix, node in loops if {operand.partition(":")[0] for operand in node.input} & {*names_}
    ]
    return [_place(prefix, node, sources) for prefix, node in concerned or loops]


def _all_nodes(request: Origin) -> list[tuple[str, Any]]:
    """The nodes of the graph and of its functions, the latter with `function/` before them."""
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef()
    with open(request.graph, "rb") as file:
        graph.ParseFromString(file.read())
    return [("", node) for node in graph.node] + [
        (function.signature.name + "/", node) for function in graph.library.function for node in function.node_def
    ]


def _place(prefix: str, node: Any, sources: dict[str, str]) -> str:
    name = prefix + node.name
    return f"{node.op} {name!r}" + (f" at {sources[name]}" if name in sources else "")


def _named(message: str) -> list[str]:
    """The nodes that XLA's message names, as `{{node NAME}}` or `[[NAME]]`."""
    return list(dict.fromkeys(re.findall(r"(?:\{\{node |\[\[)([\w./>\\-]+)(?:\}\}|\]\])", message)))


def mentioned(message: str, sources: Mapping[str, str]) -> list[str]:
    """Source lines of the nodes that a message of TensorFlow or XLA names.

    Args:
      message: names nodes as `{{node NAME}}` or `[[NAME]]`.
      sources: `file:line` by node, `function/node` inside functions.
    """
    found = []
    for name in _named(message):
        places = {place for node, place in sources.items() if node == name or node.endswith("/" + name)}
        found += [f"{name!r} at {place}" for place in sorted(places)]
    return found


def _sources(request: Origin) -> dict[str, str]:
    with open(request.sources, encoding="utf-8") as file:
        sources: dict[str, str] = json.load(file)
    return sources
