"""The inputs of tfcompile: a graph that XLA can compile, and a config with our own names."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfaot.core import refusals
from tfaot.core.functions import Function
from tfaot.core.manifest import Manifest

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tfaot.graph.program import Program


@dataclasses.dataclass(frozen=True)
class Inputs:
    """A function for tfcompile, as files."""

    manifest: Manifest
    function: Function
    graph: str
    """A serialized GraphDef."""
    config: str
    """The text of a `tf2xla.Config`, with names by position."""
    sources: str
    """JSON of `file:line` by node, from the export stage; only errors read it."""
    xla_flags: tuple[str, ...]
    """The target's own XLA flags. Only errors read them."""
    target_triple: str = ""
    """What LLVM calls the target platform. Empty for Linux on the CPU level's architecture."""

    def read_graph(self) -> graph_pb2.GraphDef:
        """Reads the graph."""
        from tensorflow.core.framework import graph_pb2

        with open(self.graph, "rb") as file:
            return graph_pb2.GraphDef.FromString(file.read())

    def weights(self) -> int:
        """Returns the bytes of the constants and variables that the function uses."""
        from tensorflow.python.framework import dtypes, tensor_shape

        graph = self.read_graph()
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        tensors = [node.attr["value"].tensor for node in nodes if node.op == "Const"]
        shapes = [(tensor.dtype, tensor.tensor_shape) for tensor in tensors]
        shapes += [(variable.type, variable.shape) for variable in self.read_config().variable]
        sizes = (
            (tensor_shape.TensorShape(shape).num_elements() or 0) * dtypes.as_dtype(dtype).size
            for dtype, shape in shapes
        )
        return int(sum(sizes))

    def read_config(self) -> Any:
        """Reads the config, a `tf2xla.Config`."""
        return _parsed(self.config)


def to_lower(graph: graph_pb2.GraphDef) -> bool:
    """Returns whether a graph has ops that `program_for_xla` may have to rewrite."""
    from tfaot.graph import collectives, convolutions, convolutions_3d, fourier, linear
    from tfaot.graph.ops import OPEN_SIZE
    from tfaot.graph.splice import any_node

    ops = {*convolutions_3d.OPS, *collectives.OPS, *linear.OPS}
    return (
        any(OPEN_SIZE in node.attr for node in graph.node)
        or convolutions.any_by_kernel(graph)
        or any_node(graph, lambda op: op in ops or fourier.OP.fullmatch(op))
    )


def positional(config: str, function: Function, folder: str) -> str:
    """Writes a config in which batches and open sizes have the function's size, and names are made from positions.

    tfcompile's header is only used by position. Its own names only have to be valid and distinct.

    Args:
      config: path of the entry point's config, from the export stage.
      function: the function to compile.
      folder: where to write.

    Returns:
      The path of the new config.
    """
    from google.protobuf import text_format

    message = _parsed(config)
    for feed, tensor in zip(message.feed, function.entry_point.inputs, strict=True):
        sizes = tensor.at(function.batch, function.buckets)
        for axis in {*(axis.dim for axis in tensor.axes), *([0] if tensor.batched else [])}:
            feed.shape.dim[axis].size = sizes[axis]
    # A config lists the sizes of bounded outputs after all others. They have no batch.
    for fetch, output in zip(message.fetch, function.entry_point.outputs, strict=False):
        if output.batched:
            fetch.shape.dim[0].size = function.batch
    for kind in ("feed", "fetch", "variable"):
        for index, entry in enumerate(getattr(message, kind)):
            entry.name = f"{kind}{index}"
    path = os.path.join(folder, "config.pbtxt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text_format.MessageToString(message))
    return path


def program_for_xla(graph: graph_pb2.GraphDef, config: Any, *, gradients_only: bool = False) -> tuple[Program, int]:
    """Returns the part of a graph that an entry point needs, with calls inlined and without the ops that tfcompile refuses.

    It builds graphs, which starts threads. A process that calls this function must not fork afterwards.

    Args:
      graph: the graph of all entry points; stays unchanged.
      config: the `tf2xla.Config` of one entry point, with its batch size filled in.
      gradients_only: whether to leave what XLA has code for, and only its ahead-of-time compiler refuses.

    Returns:
      The program, and how many nodes had to be rewritten in other ops.
    """
    from tfaot.graph import collectives, convolutions, convolutions_3d, fourier, linear, single_sizes
    from tfaot.graph.calls import inline_calls
    from tfaot.graph.program import Program

    program = Program.of(graph, config)
    inline_calls(program)
    rewrites = () if gradients_only else (single_sizes, convolutions_3d, fourier, linear, collectives)
    lowered = sum(rewrite.for_xla(program) for rewrite in rewrites)
    lowered += convolutions.for_xla(program)
    program.prune()
    return program, lowered


def lowered(original: Inputs, folder: str) -> Inputs:
    """Rewrites only the gradients that XLA lacks, in other ops. Like `program_for_xla`, it starts threads."""
    from tfaot.graph import convolutions

    graph = original.read_graph()
    if not convolutions.any_by_kernel(graph):
        return original
    program, count = program_for_xla(graph, original.read_config(), gradients_only=True)
    return rewritten(original, program.graph, program.origins, folder) if count else original


def rewritten(original: Inputs, graph: graph_pb2.GraphDef, origins: Mapping[str, str], folder: str) -> Inputs:
    """Returns the same function with another graph, which it writes to a folder with the source lines of its nodes.

    Args:
      original: the inputs, with the graph before the rewrite.
      graph: the rewritten graph.
      origins: for each new node, the node of the former graph that it replaces.
      folder: where to write.
    """
    sources = refusals.sources_of(original)
    sources |= {node: sources[origin] for node, origin in origins.items() if origin in sources}
    result = dataclasses.replace(
        original, graph=os.path.join(folder, "graph.pb"), sources=os.path.join(folder, "sources.json")
    )
    with open(result.graph, "wb") as file:
        file.write(graph.SerializeToString(deterministic=True))
    with open(result.sources, "w", encoding="utf-8") as text:
        json.dump(sources, text)
    return result


def _parsed(path: str) -> Any:
    from google.protobuf import text_format
    from tensorflow.compiler.tf2xla import tf2xla_pb2

    with open(path, encoding="utf-8") as file:
        return text_format.Parse(file.read(), tf2xla_pb2.Config())
