"""Builds the nodes that replace a random op, in a graph or in a function. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from tensorflow.core.framework import attr_value_pb2, node_def_pb2
from tensorflow.python.framework import tensor_util

from tfaot.core import dtypes
from tfaot.export.rewrites.random.control_flow import Anchor
from tfaot.graph.attributes import type_attribute, types_attribute, write_attributes
from tfaot.graph.edits import Scope
from tfaot.graph.names import canonical, producer
from tfaot.graph.ops import definition, fill_in_defaults, results

_SHARED = "tfaot/random"
"""A prefix for nodes that don't belong to a single random op."""


class Builder:
    """Builds the nodes that replace random ops in one body. The caller adds them to the body."""

    def __init__(self, scope: Scope) -> None:
        """Takes the body's scope, which provides free names and knows how to write edges."""
        self.scope = scope
        """The body's scope, which records outputs that are renamed."""
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._prefix = _SHARED
        self._anchor = ""
        self.constants: list[node_def_pb2.NodeDef] = []
        """Constants that all random ops of the body share."""
        self.nodes: list[node_def_pb2.NodeDef] = []
        """The nodes added since the last `begin`."""

    def begin(self, site: node_def_pb2.NodeDef, anchor: Anchor | None = None) -> None:
        """Starts to replace a random op. Names start with its name, and constants go to its place in v1 control flow."""
        self._prefix = f"{site.name}/random"
        self._anchor = ""
        self.nodes = []
        if anchor is not None:
            # A control edge from a Switch doesn't identify the branch.
            inside = self.add("Identity", anchor.operand, T=anchor.dtype) if anchor.dtype else anchor.operand
            self._anchor = f"^{producer(inside)}"

    def outputs(self, op: str, *inputs: str, **attrs: Any) -> tuple[str, ...]:
        """Adds a node, and returns references to its outputs. Missing attributes get their defaults."""
        defined = definition(op)
        assert defined is not None, op
        node = node_def_pb2.NodeDef(name=self.scope.take(f"{self._prefix}/{op}"), op=op, input=inputs)
        write_attributes(node, attrs, defined)
        fill_in_defaults(node, defined)
        self.nodes.append(node)
        made = self.scope.outputs(node, results(node, defined))
        return tuple(made if self.scope.name else map(canonical, made))

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Adds a node, and returns its first output."""
        return self.outputs(op, *inputs, **attrs)[0]

    def constant(self, value: Any, dtype: int, *, outside: bool = False) -> str:
        """Adds a constant of a `tensorflow.DataType`, next to the random op or outside of v1 control flow."""
        array = np.asarray(value, dtypes.BY_ENUM[dtype].numpy())
        key = (str(array.dtype), array.shape, array.tobytes())
        if self._anchor and not outside:
            return self.add("Const", self._anchor, dtype=dtype, value=tensor_util.make_tensor_proto(array))
        if key not in self._constants:
            made, prefix, self.nodes, self._prefix = self.nodes, self._prefix, self.constants, "random"
            self._constants[key] = self.add("Const", dtype=dtype, value=tensor_util.make_tensor_proto(array))
            self.nodes, self._prefix = made, prefix
        return self._constants[key]

    def cast(self, value: str, before: int, after: int) -> str:
        """Casts a value, unless it already has the dtype."""
        return value if before == after else self.add("Cast", value, SrcT=before, DstT=after)

    def finish(self, site: node_def_pb2.NodeDef, value: str, dtype: int) -> list[node_def_pb2.NodeDef]:
        """Returns all nodes since `begin`, and one that replaces the random op."""
        return self._finish(site, "Identity", [value], type_attribute(dtype))

    def finish_all(self, site: node_def_pb2.NodeDef, values: Mapping[str, str]) -> list[node_def_pb2.NodeDef]:
        """Like `finish`, for an op of several results: values by output. Functions then need `edits.use_renamed`."""
        defined = definition(site.op)
        assert defined is not None, site.op
        types = {result.output: result.dtype for result in results(site, defined)}
        for index, output in enumerate(values):
            self.scope.rename_output(site, output, "output", index)
        return self._finish(site, "IdentityN", values.values(), types_attribute(types[output] for output in values))

    def _finish(
        self, site: node_def_pb2.NodeDef, op: str, values: Iterable[str], types: attr_value_pb2.AttrValue
    ) -> list[node_def_pb2.NodeDef]:
        result = node_def_pb2.NodeDef(name=site.name, op=op, device=site.device, input=values)
        result.input.extend(operand for operand in site.input if operand.startswith("^"))
        for key, attr in site.attr.items():
            if key.startswith("_"):
                result.attr[key].CopyFrom(attr)
        result.attr["T"].CopyFrom(types)
        if site.HasField("experimental_debug_info"):
            result.experimental_debug_info.CopyFrom(site.experimental_debug_info)
        return [*self.nodes, result]
