"""Joins several functions into one graph, each under its own prefix, over one set of variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tensorflow.core.framework import graph_pb2

from tfaot.export.rewrites import bounded, vectors
from tfaot.export.rewrites.lower import lowered
from tfaot.export.traced import Edge, Function
from tfaot.graph.names import tensor_name
from tfaot.graph.prune import prune
from tfaot.graph.variables import name_variables


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry point in the whole graph."""

    name: str
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]

    @property
    def feeds(self) -> list[str]:
        """Returns the nodes of the inputs."""
        return [tensor_name(edge.name)[0] for edge in self.inputs]

    @property
    def fetches(self) -> list[str]:
        """Returns the nodes of the outputs."""
        return [tensor_name(edge.name)[0] for edge in self.outputs]


@dataclasses.dataclass(frozen=True)
class Whole:
    """A model: its graph, and what its entry points take and return."""

    graph: graph_pb2.GraphDef
    entries: tuple[Entry, ...]
    sources: dict[str, str]
    """`file:line` in the user's code, by node name, or `function/node` inside functions."""

    def of(self, entry: Entry) -> graph_pb2.GraphDef:
        """Returns the part of the graph that an entry point needs, or the graph itself if there is only one."""
        return self.graph if len(self.entries) == 1 else prune(self.graph, entry.fetches, entry.feeds)


def assemble(functions: Sequence[Function], *, spell_out: bool = True) -> Whole:
    """Prunes each function to what its outputs need, and joins all into one graph.

    If there are several entry points, node names get theirs as a prefix. Functions that they call keep their names, which
    differ within one process. The inputs' placeholders get the shapes that were fixed. With `spell_out`, XLA can compile
    the graph for sizes that are known only at run time.
    """
    whole = graph_pb2.GraphDef()
    entries: list[Entry] = []
    sources: dict[str, str] = {}
    library: set[str] = set()
    for function in functions:
        prefix = f"{function.name}/" if len(functions) > 1 else ""
        entry = Entry(function.name, function.inputs, function.outputs)
        pruned = lowered(prune(function.graph, entry.fetches, entry.feeds), entry.feeds)
        _set_shapes(pruned, function.inputs)
        feeds, fetches = ([edge.name for edge in edges] for edges in (function.inputs, function.outputs))
        inlined = bounded.spell_out(pruned, feeds, fetches) if spell_out else {}
        own = dict(function.sources) | {
            node: function.sources[origin] for node, origin in inlined.items() if origin in function.sources
        }
        _interpret(pruned)
        vectors.give_signs(pruned)
        name_variables(pruned)
        if prefix:
            for node in pruned.node:
                node.name = prefix + node.name
                operands = [f"^{prefix}{name[1:]}" if name.startswith("^") else prefix + name for name in node.input]
                node.ClearField("input")
                node.input.extend(operands)
        whole.node.extend(pruned.node)
        whole.library.function.extend(f for f in pruned.library.function if f.signature.name not in library)
        whole.library.gradient.extend(g for g in pruned.library.gradient if g.function_name not in library)
        library |= {f.signature.name for f in pruned.library.function}
        whole.versions.CopyFrom(pruned.versions)
        entries.append(
            Entry(
                function.name,
                tuple(dataclasses.replace(edge, name=prefix + edge.name) for edge in function.inputs),
                tuple(dataclasses.replace(edge, name=prefix + edge.name) for edge in function.outputs),
            )
        )
        kept = {node.name for node in pruned.node} | library
        sources |= {
            prefix + node if prefix + node in kept else node: place
            for node, place in own.items()
            if prefix + node in kept or node.partition("/")[0] in library
        }
    return Whole(whole, tuple(entries), sources)


def _set_shapes(graph: graph_pb2.GraphDef, inputs: Sequence[Edge]) -> None:
    edges = {tensor_name(edge.name)[0]: edge for edge in inputs}
    for node in graph.node:
        edge = edges.get(node.name)
        if edge is not None and edge.shape is not None:
            node.attr["shape"].shape.Clear()
            for axis, size in enumerate(edge.shape):
                node.attr["shape"].shape.dim.add(size=-1 if size is None or axis in edge.open_dims else size)
        # Shapes that were inferred before the inputs' shapes were fixed are less specific.
        node.attr.pop("_output_shapes", None)


def _interpret(graph: graph_pb2.GraphDef) -> None:
    """Removes requests to compile calls with XLA, because expected values must come from TensorFlow's own kernels.

    Also removes those not to inline calls: XLA dies of a slice at a place that a call computes.
    """
    for attributes in (
        *(node.attr for node in graph.node),
        *(function.attr for function in graph.library.function),
        *(node.attr for function in graph.library.function for node in function.node_def),
    ):
        attributes.pop("_XlaMustCompile", None)
        attributes.pop("_noinline", None)
