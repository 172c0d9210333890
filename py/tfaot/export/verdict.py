"""What the compiler itself says about a graph, where inspecting the graph isn't enough.

tfcompile decides whether a run changes a variable: it compares the variable's value at the end with its value at the start, after
constant folding and inlining. `a.assign(a.read_value())` changes nothing, nor does a value that is restored, nor a branch of a Case
that never runs. And only tfcompile knows how large a result can be if its size depends on values, as with `tf.where`.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile

from tensorflow.compiler.tf2xla import tf2xla_pb2
from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.python import _pywrap_tfcompile

from tfaot.core.isa import CPU_LEVELS, TARGET_TRIPLE
from tfaot.graph.lowering import zeroed_memory
from tfaot.graph.names import unused
from tfaot.xla.module import read


@dataclasses.dataclass(frozen=True)
class Result:
    """The compiler's verdict on a result."""

    shape: tuple[int, ...]
    """Sizes, or their bounds."""
    bounded: bool
    """Whether any true size is known only at run time."""


def complaint(folder: str, graph: bytes, config: tf2xla_pb2.Config) -> str:
    """Compiles into a folder. Returns the compiler's error, or nothing."""

    def path(name: str) -> str:
        return os.path.join(folder, name)

    with open(path("graph.pb"), "wb") as file:
        file.write(graph)
    with open(path("config.pb"), "wb") as file:
        file.write(config.SerializeToString())
    try:
        with zeroed_memory():
            _pywrap_tfcompile.Compile(
                graph=path("graph.pb"),
                config=path("config.pb"),
                target_triple=TARGET_TRIPLE,
                target_cpu=CPU_LEVELS[0],
                target_features="",
                entry_point="entry",
                cpp_class="Class",
                out_function_object=path("object"),
                out_metadata_object=path("metadata"),
                out_header=path("header"),
                out_session_module=path("hlo"),
                out_constant_buffers_object=path("constants"),
                mlir_components="",
                gen_name_to_index=False,
                gen_program_shape=False,
            )
    except Exception as error:  # its types say nothing, so only its text is useful
        return str(error) or repr(error)
    return ""


def results(graph: graph_pb2.GraphDef, config: tf2xla_pb2.Config) -> tuple[Result, ...] | str:
    """Returns the compiler's verdict on each of the config's fetches, or its error."""
    from tensorflow.compiler.xla.service import hlo_pb2

    with tempfile.TemporaryDirectory() as folder:
        if error := complaint(folder, graph.SerializeToString(), config):
            return error
        with open(os.path.join(folder, "hlo"), "rb") as file:
            module = read(hlo_pb2.HloSnapshot.FromString(file.read()).hlo.hlo_module)
    parts = module.result.parts or (module.result,)
    return tuple(Result(part.dims, any(part.dynamic)) for part in parts[: len(config.fetch)])


def unchanged(graph: graph_pb2.GraphDef, config: tf2xla_pb2.Config, doubtful: set[str]) -> set[str]:
    """Returns the doubtful variables, marked as written in the config, that no run changes.

    The compiler refuses wrong flags one variable at a time, in the config's order, before it generates code. A last variable
    that is wrong on purpose stops it there. If it refuses the graph for other reasons, the compile stage reports them.
    """
    asked = tf2xla_pb2.Config()
    asked.CopyFrom(config)
    taken = {node.name for node in graph.node} | {variable.node_name for variable in config.variable}
    last = unused("tfaot_last", taken)
    asked.variable.add(node_name=last, name=last, type=types_pb2.DT_FLOAT).shape.SetInParent()
    more = graph_pb2.GraphDef()
    node = more.node.add(name=last, op="VarHandleOp")
    node.attr["dtype"].type = types_pb2.DT_FLOAT
    node.attr["shape"].shape.SetInParent()
    node.attr["shared_name"].s = last.encode()
    # Two concatenated messages are one, with the nodes of both.
    both = graph.SerializeToString() + more.SerializeToString()

    written: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        while True:
            message = complaint(folder, both, asked)
            wrong = [
                variable
                for variable in asked.variable
                if variable.node_name in doubtful - written
                and f'Variable "{variable.node_name}" is marked as not readonly' in message
            ]
            if not wrong:
                return written
            wrong[0].readonly = True
            written.add(wrong[0].node_name)
