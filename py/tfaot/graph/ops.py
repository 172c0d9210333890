"""Sets of ops that treat their operands alike, and lookups in TensorFlow's op registry. Pure."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping

from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2, op_def_pb2
from tensorflow.python.framework import kernels, op_def_registry

from tfaot.core.refusals import BOUNDED as BOUNDED
from tfaot.core.refusals import OPEN_SIZE as OPEN_SIZE

IDENTITIES = frozenset({"Identity", "PreventGradient", "Snapshot", "StopGradient"})
"""Ops with one operand, which return it unchanged."""

SUMMED = "_tfaot_summed"
"""An attribute of nodes that keep a program of their own: how many terms the values of their results sum."""

ROUNDED = "_tfaot_rounded"
"""An attribute of constants whose values are rounded, so that they can be stored in the dtype that it names."""

LEAST_SIZES = "_tfaot_least_sizes"
"""An attribute of these nodes: the least size of each dimension; 1 where it isn't open."""

FORWARDS = frozenset({"Enter", "Exit", "Identity", "IdentityN", "NextIteration", "StopGradient"})
"""Ops that pass handles on: output i is input i. The attribute `T` is its dtype, or a list of all dtypes."""

REFERENCE_FORMS: Mapping[str, str] = {
    f"Ref{op}": op for op in ("Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch")
}
"""Ops that pass on references to TensorFlow 1 variables, each with the op that does the same for a handle or value."""

CONTROL_FLOW_V1 = frozenset({*REFERENCE_FORMS, *REFERENCE_FORMS.values(), "LoopCond"}) - {"Identity", "RefIdentity"}
"""Ops of TensorFlow 1's loops and branches."""

BRANCHING = frozenset({"Merge", "Switch"})
"""The other v1 control flow ops that pass handles on. `T` is the dtype of all operands but a predicate or index."""


@dataclasses.dataclass(frozen=True)
class Call:
    """How an op passes its operands to functions, and returns their results."""

    functions: tuple[str, ...]
    """Attributes that name the functions."""
    types: str
    """The attribute with the operands' dtypes."""
    results: str
    """The attribute with the results' dtypes."""
    stateful: str
    """The op that does the same for functions with effects; possibly the same op."""
    first: int = 0
    """The index of the first operand that the functions get."""

    @property
    def is_loop(self) -> bool:
        """Whether a step's results are the next step's operands."""
        return self.types == self.results


CALLS: Mapping[str, Call] = {
    "PartitionedCall": Call(("f",), "Tin", "Tout", "StatefulPartitionedCall"),
    "StatefulPartitionedCall": Call(("f",), "Tin", "Tout", "StatefulPartitionedCall"),
    "RemoteCall": Call(("f",), "Tin", "Tout", "RemoteCall", first=1),
    "If": Call(("then_branch", "else_branch"), "Tin", "Tout", "If", first=1),
    "StatelessIf": Call(("then_branch", "else_branch"), "Tin", "Tout", "If", first=1),
    "Case": Call(("branches",), "Tin", "Tout", "Case", first=1),
    "StatelessCase": Call(("branches",), "Tin", "Tout", "Case", first=1),
    "While": Call(("cond", "body"), "T", "T", "While"),
    "StatelessWhile": Call(("cond", "body"), "T", "T", "While"),
}
"""Ops that call functions with their operands. Other ops that name functions are opaque."""

WHILES = frozenset(op for op, call in CALLS.items() if call.is_loop)
"""Loops of control flow v2."""

Library = Mapping[str, function_pb2.FunctionDef]
"""A graph's functions, by name."""


def functions_of(node: node_def_pb2.NodeDef) -> Iterator[tuple[str, attr_value_pb2.NameAttrList]]:
    """Yields the functions that a node's attributes name, as (attribute, function). Callers may modify the function."""
    for key in sorted(node.attr):  # the order of a proto's map isn't stable
        value = node.attr[key]
        kind = value.WhichOneof("value")
        if kind == "func":
            yield key, value.func
        elif kind == "list":
            yield from ((key, function) for function in value.list.func)


def called(node: node_def_pb2.NodeDef) -> Iterator[str]:
    """Yields names of functions that a node may call: its op, which may not be a function, and those in attributes."""
    yield node.op
    yield from (function.name for _, function in functions_of(node))


def definition(op: str, library: Library | None = None) -> op_def_pb2.OpDef | None:
    """Returns an op's definition, or the signature of a function called as an op; None if there is neither."""
    if library and op in library:
        return library[op].signature
    defined: op_def_pb2.OpDef | None = op_def_registry.get(op)
    return defined


def has_effects(op: str) -> bool:
    """Returns whether an op may have side effects. Functions and unknown ops count as having them."""
    defined = definition(op)
    return defined is None or bool(defined.is_stateful)


def attribute_of(node: node_def_pb2.NodeDef, key: str, defined: op_def_pb2.OpDef) -> attr_value_pb2.AttrValue:
    """Returns a node's attribute, or its default if the node doesn't set it."""
    if key in node.attr:
        return node.attr[key]
    defaults = (attr.default_value for attr in defined.attr if attr.name == key)
    return next(defaults, attr_value_pb2.AttrValue())


def type_of(node: node_def_pb2.NodeDef, key: str) -> int:
    """Returns a dtype from the attributes of a node whose op TensorFlow knows."""
    defined = definition(node.op)
    assert defined is not None, node.op
    return int(attribute_of(node, key, defined).type)


def dtypes_of(node: node_def_pb2.NodeDef, arg: op_def_pb2.OpDef.ArgDef, defined: op_def_pb2.OpDef) -> list[int]:
    """Returns the dtypes of an argument or output in an op's definition, which may stand for any number of tensors."""
    if arg.type_list_attr:
        return list(attribute_of(node, arg.type_list_attr, defined).list.type)
    dtype = attribute_of(node, arg.type_attr, defined).type if arg.type_attr else arg.type
    return [dtype] * (attribute_of(node, arg.number_attr, defined).i if arg.number_attr else 1)


@dataclasses.dataclass(frozen=True)
class Result:
    """One result of a node."""

    output: str
    """Its name in the op's definition."""
    index: int
    """Its index among the results with this name."""
    dtype: int
    """`tensorflow.DataType`."""


def results(node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef) -> list[Result]:
    """Returns a node's results. Positions in the list are ports."""
    return [
        Result(output.name, index, dtype)
        for output in defined.output_arg
        for index, dtype in enumerate(dtypes_of(node, output, defined))
    ]


def fill_in_defaults(node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef) -> None:
    """Writes out the attributes that a node leaves at their defaults, as nodes in a SavedModel's functions do."""
    for attr in defined.attr:
        if attr.HasField("default_value") and (
            attr.name not in node.attr or node.attr[attr.name].WhichOneof("value") is None
        ):
            node.attr[attr.name].CopyFrom(attr.default_value)


@functools.cache
def runs_on_cpu(op: str, types: tuple[tuple[str, int], ...]) -> bool:
    """Returns whether TensorFlow has a kernel for an op with these dtypes, given by attribute, on CPUs or on any device."""
    for attr in op_def_registry.get(op).attr:
        wanted = dict(types).get(attr.name)
        if wanted and attr.allowed_values.list.type and wanted not in attr.allowed_values.list.type:
            return False
    registered = [k for k in kernels.get_registered_kernels_for_op(op).kernel if k.device_type in ("CPU", "DEFAULT")]
    for kernel in registered:
        allowed = {constraint.name: constraint.allowed_values.list.type for constraint in kernel.constraint}
        if all(not allowed.get(name) or dtype in allowed[name] for name, dtype in types):
            return True
    return False
