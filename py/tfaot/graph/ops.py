"""Sets of ops that treat their operands alike, and lookups in TensorFlow's op registry. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2, op_def_pb2
from tensorflow.python.framework import op_def_registry

IDENTITIES = frozenset({"Identity", "PreventGradient", "Snapshot", "StopGradient"})
"""Ops of one operand, whose result is that operand."""

FORWARDS = frozenset({"Enter", "Exit", "Identity", "IdentityN", "NextIteration", "StopGradient"})
"""Ops that pass handles on: output i is input i, and the attribute `T` is its dtype, or all dtypes."""

REFERENCE_FORMS: Mapping[str, str] = {
    f"Ref{op}": op for op in ("Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch")
}
"""Ops that pass on references to variables of TensorFlow 1, and the op that does the same with a handle or a value."""

CONTROL_FLOW_V1 = frozenset({*REFERENCE_FORMS, *REFERENCE_FORMS.values(), "LoopCond"}) - {"Identity", "RefIdentity"}
"""Ops of TensorFlow 1's loops and branches."""

BRANCHING = frozenset({"Merge", "Switch"})
"""The other ops of control flow v1 that pass handles on; their `T` is the dtype of all but a predicate or an index."""


@dataclasses.dataclass(frozen=True)
class Call:
    """How an op calls functions with its operands, and returns what they return."""

    functions: tuple[str, ...]
    """Attributes that name them."""
    types: str
    """Attribute with the operands' dtypes."""
    results: str
    """Attribute with the results' dtypes."""
    stateful: str
    """The op that does the same with functions that have effects; it may be this one."""
    first: int = 0
    """Index of the first operand that the functions get."""

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
    """The functions that a node's attributes name, as (attribute, function); the function can be changed."""
    for key in sorted(node.attr):  # a proto's map has no order that lasts
        value = node.attr[key]
        kind = value.WhichOneof("value")
        if kind == "func":
            yield key, value.func
        elif kind == "list":
            yield from ((key, function) for function in value.list.func)


def called(node: node_def_pb2.NodeDef) -> Iterator[str]:
    """Names of the functions that a node may call: its op, which may be none, and those that its attributes name."""
    yield node.op
    yield from (function.name for _, function in functions_of(node))


def definition(op: str, library: Library | None = None) -> op_def_pb2.OpDef | None:
    """The definition of an op, or the signature of a function that is called as one; None if it is neither."""
    if library and op in library:
        return library[op].signature
    found: op_def_pb2.OpDef | None = op_def_registry.get(op)
    return found


def has_effects(op: str) -> bool:
    """Whether an op may have side effects. Functions and unknown ops count as having some."""
    found = definition(op)
    return found is None or bool(found.is_stateful)


def attribute_of(node: node_def_pb2.NodeDef, key: str, defined: op_def_pb2.OpDef) -> attr_value_pb2.AttrValue:
    """A node's attribute, or its default where the node leaves it out."""
    if key in node.attr:
        return node.attr[key]
    defaults = (attr.default_value for attr in defined.attr if attr.name == key)
    return next(defaults, attr_value_pb2.AttrValue())


def type_of(node: node_def_pb2.NodeDef, key: str) -> int:
    """A dtype among the attributes of a node, whose op TensorFlow must know."""
    defined = definition(node.op)
    assert defined is not None, node.op
    return int(attribute_of(node, key, defined).type)


def dtypes_of(node: node_def_pb2.NodeDef, arg: op_def_pb2.OpDef.ArgDef, defined: op_def_pb2.OpDef) -> list[int]:
    """The dtypes of an argument or output in an op's definition, which stands for any number of tensors."""
    if arg.type_list_attr:
        return list(attribute_of(node, arg.type_list_attr, defined).list.type)
    dtype = attribute_of(node, arg.type_attr, defined).type if arg.type_attr else arg.type
    return [dtype] * (attribute_of(node, arg.number_attr, defined).i if arg.number_attr else 1)


@dataclasses.dataclass(frozen=True)
class Result:
    """One result of a node."""

    output: str
    """What its op's definition calls it."""
    index: int
    """Which of the results of this name it is."""
    dtype: int
    """`tensorflow.DataType`."""


def results(node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef) -> list[Result]:
    """A node's results; positions in the list are ports."""
    return [
        Result(output.name, index, dtype)
        for output in defined.output_arg
        for index, dtype in enumerate(dtypes_of(node, output, defined))
    ]


def fill_in_defaults(node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef) -> None:
    """Writes down the attributes that a node leaves at their defaults: functions of a SavedModel do."""
    for each in defined.attr:
        if each.HasField("default_value") and (
            each.name not in node.attr or node.attr[each.name].WhichOneof("value") is None
        ):
            node.attr[each.name].CopyFrom(each.default_value)
