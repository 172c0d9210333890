"""What the compiler itself says of a graph, where looking at it cannot tell.

Whether a run changes a variable is for tfcompile to say: it compares what the variable holds at the end with what it
held at the start, after constants are folded and functions are inlined. `a.assign(a.read_value())` changes nothing, nor
does a value that is put back, nor a branch of a Case that is never taken. And only it knows how large a result can be
whose size depends on values, as `tf.where`'s does.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile

from tensorflow.compiler.tf2xla import tf2xla_pb2
from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.python import _pywrap_tfcompile

from tfaot.graph.names import unused


@dataclasses.dataclass(frozen=True)
class Result:
    """What the compiler finds of a result."""

    shape: tuple[int, ...]
    """Sizes, or their bounds."""
    bounded: bool
    """Whether a true size is known only at run time."""


def _compile(folder: str, graph: bytes, config: tf2xla_pb2.Config) -> str:
    """Compiles into a folder; returns the compiler's complaint, or nothing."""

    def path(name: str) -> str:
        return os.path.join(folder, name)

    with open(path("graph.pb"), "wb") as file:
        file.write(graph)
    with open(path("config.pb"), "wb") as file:
        file.write(config.SerializeToString())
    try:
        _pywrap_tfcompile.Compile(
            graph=path("graph.pb"),
            config=path("config.pb"),
            target_triple="x86_64-pc-linux",
            target_cpu="x86-64",
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
    except Exception as error:  # its types say nothing; its text is all there is
        return str(error)
    return ""


def results(graph: graph_pb2.GraphDef, config: tf2xla_pb2.Config) -> tuple[Result, ...] | str:
    """Returns what the compiler finds of each of the config's fetches, or its complaint."""
    from tensorflow.compiler.xla.service import hlo_pb2

    with tempfile.TemporaryDirectory() as folder:
        if complaint := _compile(folder, graph.SerializeToString(), config):
            return complaint
        with open(os.path.join(folder, "hlo"), "rb") as file:
            module = hlo_pb2.HloSnapshot.FromString(file.read()).hlo.hlo_module
    shape = module.host_program_shape.result
    parts = shape.tuple_shapes if shape.tuple_shapes else [shape]
    return tuple(Result(tuple(part.dimensions), any(part.is_dynamic_dimension)) for part in parts[: len(config.fetch)])


def unchanged(graph: graph_pb2.GraphDef, config: tf2xla_pb2.Config, doubtful: set[str]) -> set[str]:
    """Returns which of the doubtful variables, marked as written in the config, no run changes.

    The compiler refuses a wrong flag, one variable at a time and in the config's order, before it generates code. A
    variable that is wrong on purpose, the last one, stops it there. A graph that it refuses for other reasons is for
    the compile stage to report.
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
    # Two messages one behind the other are one, with the nodes of both.
    both = graph.SerializeToString() + more.SerializeToString()

    found: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        while True:
            message = _compile(folder, both, asked)
            wrong = [
                variable
                for variable in asked.variable
                if variable.node_name in doubtful - found
                and f'Variable "{variable.node_name}" is marked as not readonly' in message
            ]
            if not wrong:
                return found
            wrong[0].readonly = True
            found.add(wrong[0].node_name)
