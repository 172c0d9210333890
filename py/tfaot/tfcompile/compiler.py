"""Calls tfcompile in a child process, which it may crash."""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
from typing import Any

from tfaot.core import environment, isolate, refusals
from tfaot.core.errors import TfaotError
from tfaot.core.functions import for_isa
from tfaot.core.isa import TARGETS
from tfaot.graph.lowering import zeroed_memory
from tfaot.tfcompile import crash, dumps
from tfaot.tfcompile.inputs import Inputs
from tfaot.xla import module

_MANY_WEIGHTS = 40_000
"""From this many bytes of weights on, a model gains from the widest vectors of its level. The whole step of a smaller one is
a few vectors, and rows that don't fill one take longer (docs/reference/xla_flags.md)."""


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Where tfcompile writes to."""

    objects: str
    """The kernels."""
    constants: str
    """The constants that the kernels read, in an object file."""
    hlo: str
    """An `xla.HloSnapshot`, before optimization. It is the same for every CPU level, except for the module's name."""


@dataclasses.dataclass(frozen=True)
class Made:
    """The rest of tfcompile's output."""

    header: str
    """C++ for XLA's own runtime."""
    hlo: bytes
    """An `xla.HloProto`: the module that it generated code from, without the values of arrays, and their places in memory."""


def compile_for(isa: str, inputs: Inputs, outputs: Outputs) -> Made:
    """Compiles for a CPU level in a child process.

    The compiler numbers what it makes in a process. A separate process gives the same output for a level, regardless of
    other levels. Call `environment.prepare` first, for the flags.

    Raises:
      TfaotError: the compiler refuses the graph or dies. If possible, the error names the node that it died of.
    """
    what = inputs.manifest.cpp_class
    return isolate.run_isolated(
        functools.partial(run, isa, inputs, outputs),
        what=f"compiling {what} for {isa}",
        crashed=crash.error(
            what, [isa], inputs.xla_flags, lambda: crash.suspects(inputs, functools.partial(_dies, isa))
        ),
    )


def run(isa: str, inputs: Inputs, outputs: Outputs) -> Made:
    """Compiles in this process, which must not have used XLA before, because XLA reads its flags on first use.

    Raises:
      TfaotError: the compiler refuses the graph.
    """
    from tensorflow.python import _pywrap_tfcompile

    with tempfile.TemporaryDirectory() as folder:
        header = os.path.join(folder, "header.h")
        # Later flags win. The target's own flags come last.
        ours = [environment.xla_flag("xla_dump_to", folder), *dumps.FLAGS]
        if TARGETS[isa].vectors and inputs.weights() > _MANY_WEIGHTS:
            ours.append(f"--xla_cpu_prefer_vector_width={TARGETS[isa].vectors}")
        os.environ["XLA_FLAGS"] = " ".join([*ours, os.environ["XLA_FLAGS"]])
        dumped = dumps.folder()
        earlier = dumps.state(dumped)
        try:
            with zeroed_memory():
                _pywrap_tfcompile.Compile(
                    graph=inputs.graph,
                    config=inputs.config,
                    target_triple=inputs.target_triple or TARGETS[isa].triple,
                    target_cpu=TARGETS[isa].cpu,
                    target_features=TARGETS[isa].features,
                    entry_point=inputs.function.symbol,
                    cpp_class=for_isa(inputs.function.internal_class, isa),
                    out_function_object=outputs.objects,
                    out_metadata_object=os.path.join(
                        folder, "metadata.o"
                    ),  # differs from run to run, and nothing uses it
                    out_header=header,
                    out_session_module=outputs.hlo,
                    out_constant_buffers_object=outputs.constants,
                    mlir_components="",
                    gen_name_to_index=False,
                    gen_program_shape=False,
                )
        except Exception as error:  # its types say nothing, so use its text
            raise refusals.explain(str(error), inputs, inputs.manifest) from None
        path = dumps.find(
            dumped, dumps.AFTER, what=inputs.manifest.cpp_class, tensorflow=inputs.manifest.tensorflow, earlier=earlier
        )
        return Made(_read(header).decode(), module.without_arrays(_read(path)))


class _Died(TfaotError):
    """The compiler died of a part of a graph."""


def _dies(isa: str, inputs: Inputs, graph: Any, config: Any) -> bool:
    """Returns whether the compiler dies of a part of a graph. A graph that it refuses doesn't count."""
    from google.protobuf import text_format

    with tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.join(folder, name) for name in ("graph", "config.pbtxt", "objects", "constants", "hlo")}
        with open(paths["graph"], "wb") as file:
            file.write(graph.SerializeToString())
        with open(paths["config.pbtxt"], "w", encoding="utf-8") as text:
            text.write(text_format.MessageToString(config))
        part = dataclasses.replace(inputs, graph=paths["graph"], config=paths["config.pbtxt"])
        outputs = Outputs(paths["objects"], paths["constants"], paths["hlo"])

        def work() -> None:
            # Later flags win. A part's HLO must not go where the target's own flags dump the whole.
            os.environ["XLA_FLAGS"] += " " + environment.xla_flag("xla_dump_to", folder)
            run(isa, part, outputs)

        try:
            isolate.run_isolated(work, what="compiling a part", crashed=lambda how, log: _Died(how, do=log))
        except TfaotError as error:
            return isinstance(error, _Died)
    return False


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
