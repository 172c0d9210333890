"""The HLO stage: extracts the HLO that tfcompile makes from an exported graph before it generates machine code.

tfcompile runs with its dumps on, and the dumps are the product. It writes them before XLA generates code and before it
writes its own header. A graph that only these two steps refuse still gives its HLO: bfloat16 and complex numbers at the
edge, FFTs, convolutions in three dimensions.

Nothing in the outputs differs from run to run or from machine to machine. The module gets the model's name instead of
one with a counter, and references to source files are removed.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from typing import TYPE_CHECKING

from tfaot.core import environment, isolate, names
from tfaot.core.errors import TfaotError
from tfaot.core.functions import function
from tfaot.core.isa import check_isa
from tfaot.core.manifest import Manifest, Tensor
from tfaot.hlo import drawing
from tfaot.tfcompile import compiler, crash, dumps, inputs

if TYPE_CHECKING:
    from tensorflow.compiler.xla.service import hlo_pb2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What to extract, and where to write it."""

    manifest: str
    graph: str
    config: str
    sources: str
    """JSON of `file:line` by node, from the export stage; only errors read it."""
    name: str
    """The HLO module's name. Characters that HLO doesn't accept are replaced."""
    cpu: str
    """One of `isa.CPU_LEVELS`. Only the optimized HLO depends on it."""
    xla_flags: tuple[str, ...] = ()
    """More XLA flags."""
    out_hlo: str
    """An `xla.HloModuleProto`, before optimization."""
    out_hlo_text: str
    """The same module as text, with constants written out."""
    out_optimized_hlo: str
    """Text, as the code generator sees it, scheduled and fused for `cpu`."""
    out_drawing: str
    """XLA's drawing of the HLO before optimization, in Graphviz's language."""
    entry_point: str = ""
    """The entry point's name in the manifest; empty for the first."""
    out_optimized_drawing: str = ""
    """The same of the optimized HLO; empty for none."""


def extract(request: Request) -> None:
    """Runs tfcompile in a child process, and writes all outputs or none.

    Raises:
      TfaotError: the CPU or a flag is unknown, or the graph can't be lowered to HLO.
    """
    check_isa([request.cpu])
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest)
    isolate.run_isolated(lambda: _extract(request, manifest), what=f"extracting the HLO of {request.name}")


def _extract(request: Request, full: Manifest) -> None:
    manifest = full.only(request.entry_point)
    with tempfile.TemporaryDirectory() as folder:
        before, after = _dump(request, full, folder)
        from tensorflow.compiler.xla.service import hlo_pb2

        with open(before, "rb") as file:
            module = hlo_pb2.HloProto.FromString(file.read()).hlo_module
        name = names.to_identifier(request.name)
        clean_module(module, name)
        with open(request.out_hlo, "wb") as file:
            file.write(module.SerializeToString(deterministic=True))
        comment = describe(manifest)
        for dump, output in ((before, request.out_hlo_text), (after, request.out_optimized_hlo)):
            with (
                open(dump.removesuffix(".hlo.pb") + ".txt", encoding="utf-8") as source,
                open(output, "w", encoding="utf-8") as target,
            ):
                target.write(comment)
                target.writelines(clean_text(line, name) for line in source)
        for dump, output, when in (
            (before, request.out_drawing, "before"),
            (after, request.out_optimized_drawing, "after"),
        ):
            if output:
                _write_drawing(dump, output, f"{request.name}: HLO {when} optimization", manifest)


def _write_drawing(dump: str, output: str, title: str, manifest: Manifest) -> None:
    names = ([tensor.name for _, tensor in side] for side in (parameters(manifest), results(manifest)))
    with open(dump.removesuffix(".hlo.pb") + ".dot", encoding="utf-8") as source:
        drawn = drawing.clean(source.read(), title, *names)
    with open(output, "w", encoding="utf-8") as target:
        target.write(drawn)


def _dump(request: Request, manifest: Manifest, folder: str) -> tuple[str, str]:
    """Compiles into a folder and returns the dumps before and after optimization: protos, with texts beside them.

    Raises:
      TfaotError: the compiler's own error, if it came before the dumps.
    """

    def path(name: str) -> str:
        return os.path.join(folder, name)

    dumped = path("dumps")
    xla_flags = (
        *request.xla_flags,
        environment.xla_flag("xla_dump_to", dumped),
        *dumps.FLAGS,
        "--xla_dump_hlo_as_dot",
        "--xla_dump_hlo_as_text",
        "--xla_dump_large_constants",
    )
    environment.prepare(xla_flags=xla_flags)
    from tensorflow.python import _pywrap_tfcompile  # for the children

    del _pywrap_tfcompile
    entry = manifest.entry_point(request.entry_point) if request.entry_point else manifest.entry_points[0]
    wanted = function(manifest, entry.name, entry.batch_sizes[-1] if entry.batch_sizes else 0)
    config = inputs.positional(request.config, wanted, folder)
    prepared = inputs.Inputs(manifest, wanted, request.graph, config, request.sources, xla_flags)
    # Building a graph starts threads, and a process with running threads must not fork.
    prepared = isolate.run_isolated(
        lambda: inputs.lowered(prepared, folder),
        what=f"preparing {manifest.cpp_class} for XLA",
        crashed=crash.error(manifest.cpp_class, [request.cpu], xla_flags),
    )
    refused = None
    try:
        compiler.compile_for(
            request.cpu, prepared, compiler.Outputs(path("objects"), path("constants"), path("snapshot"))
        )
    except TfaotError as error:
        refused = error
    try:
        before, after = (
            dumps.find(dumped, stage, what=request.name, tensorflow=manifest.tensorflow)
            for stage in (dumps.BEFORE, dumps.AFTER)
        )
    except TfaotError as error:
        raise refused or error from None
    return before, after


def parameters(manifest: Manifest) -> list[tuple[str, Tensor]]:
    """Returns the program's parameters in order, each with its role: the inputs, then the variables."""
    return [
        *(("input", tensor) for tensor in manifest.entry_points[0].inputs),
        *(("variable, written" if v.written else "variable, only read", v) for v in manifest.variables),
    ]


def results(manifest: Manifest) -> list[tuple[str, Tensor]]:
    """Returns the program's results in order, each with its role: the outputs, then the written variables."""
    return [
        *(("output", tensor) for tensor in manifest.entry_points[0].outputs),
        *(("written variable", variable) for variable in manifest.written),
    ]


def describe(manifest: Manifest) -> str:
    """Returns comment lines that name each parameter and result. HLO and MLIR both accept `//`."""
    lines = [f"// TensorFlow {manifest.tensorflow}, graph {manifest.fingerprints.graph}"]
    for kind, tensors in (("parameter", parameters(manifest)), ("result", results(manifest))):
        for index, (role, tensor) in enumerate(tensors):
            name = tensor.name.encode("unicode_escape").decode()
            lines.append(f"// {kind} {index}: {tensor.dtype}{list(tensor.shape)} {name} ({role})")
    return "\n".join(lines) + "\n\n"


_MODULE = re.compile(r"HloModule [^\s,]+")
_STRING = r'"(?:[^"\\]|\\.)*"'
_SOURCE = re.compile(
    rf"({_STRING})| ?\bsource_file={_STRING}| ?\b(?:source_(?:line|end_line|column|end_column)|stack_frame_id)=\d+"
)
"""Matches a reference to a source file, or a string, which may contain what looks like one."""


def clean_text(line: str, name: str) -> str:
    """Returns a line of HLO text with the module's name replaced, and without references to source files."""
    if line.startswith("HloModule "):
        return _MODULE.sub(f"HloModule {name}", line, count=1)
    if "metadata={" not in line or not ("source_" in line or "stack_frame_id" in line):
        return line
    line = _SOURCE.sub(lambda match: match[1] or "", line)
    return line.replace(", metadata={}", "").replace("metadata={ ", "metadata={")


def clean_module(module: hlo_pb2.HloModuleProto, name: str) -> None:
    """Does the same to a module's message, in place."""
    module.name = name
    module.id = 0
    module.ClearField("stack_frame_index")
    for computation in module.computations:
        for instruction in computation.instructions:
            for field in _SOURCE_FIELDS:
                if field in instruction.metadata.DESCRIPTOR.fields_by_name:
                    instruction.metadata.ClearField(field)


# TensorFlow 2.20 has only some of them.
_SOURCE_FIELDS = (
    "source_file",
    "source_line",
    "source_end_line",
    "source_column",
    "source_end_column",
    "stack_frame_id",
)
