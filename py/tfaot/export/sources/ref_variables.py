"""Converts TensorFlow 1 reference variables to resource variables, the only ones that can be compiled.

A reference is an output of a variable, or of an op that forwards one or has just written it (`Assign`, `ApplyAdam`, …). Ops
that take its value get a ReadVariableOp. Ops that write through it become their equivalents that take a handle, and the
consumers of their results run after them.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Sequence

from tensorflow.core.framework import graph_pb2, node_def_pb2, op_def_pb2, types_pb2
from tensorflow.python.framework import op_def_registry

from tfaot.core.errors import TfaotError, listed
from tfaot.graph.names import take, tensor_name, underscored, unused
from tfaot.graph.ops import REFERENCE_FORMS

REFS = frozenset({"Variable", "VariableV2", "AutoReloadVariable"})
"""Ops whose result is a reference to a TensorFlow 1 variable."""

_WRITES = {
    "Assign": "AssignVariableOp",
    "AssignAdd": "AssignAddVariableOp",
    "AssignSub": "AssignSubVariableOp",
    "IsVariableInitialized": "VarIsInitializedOp",
}
"""Ops whose equivalents for handles have other names. The names of all others just get the prefix `Resource`."""


@dataclasses.dataclass(frozen=True)
class GraphVariable:
    """A variable in a graph, of either kind."""

    name: str
    """The `shared_name` that its handles have or will have. Unique among variables."""
    nodes: tuple[str, ...]
    """Its nodes, in the graph's order."""
    dtype: int
    """`tensorflow.DataType`."""
    shape: tuple[int, ...] | None
    """None if the rank is unknown. An unknown dimension is -1."""


def name_variables(graph: graph_pb2.GraphDef) -> dict[str, GraphVariable]:
    """Gives each variable one name, and writes it to all of its nodes as `shared_name`.

    The name is the one in the graph, or the node's. Nodes of the same kind that share a name within a container are a single
    variable, as in a session. A handle without a name is a separate variable.

    Args:
      graph: changed in place.

    Returns:
      The variables by name, in the graph's order.
    """
    nodes: dict[tuple[str, bytes, bytes], list[node_def_pb2.NodeDef]] = {}
    for node in graph.node:
        if node.op == "VarHandleOp" or node.op in REFS:
            shared = node.attr["shared_name"].s if "shared_name" in node.attr else b""
            container = node.attr["container"].s if "container" in node.attr else b""
            kind = "reference" if node.op in REFS else "handle" if shared else "unnamed handle"
            key = (kind, container, shared or node.name.encode())
            nodes.setdefault(key, []).append(node)
    result: dict[str, GraphVariable] = {}
    for (_, _, plain), same in nodes.items():
        name = unused(plain.decode(errors="replace"), result, underscored)
        for node in same:
            node.attr["shared_name"].s = name.encode()
            node.attr.pop("container", None)
        shape = same[0].attr["shape"].shape
        result[name] = GraphVariable(
            name,
            tuple(node.name for node in same),
            same[0].attr["dtype"].type,
            None if shape.unknown_rank else tuple(dim.size for dim in shape.dim),
        )
    return result


def to_resources(graph: graph_pb2.GraphDef, *, what: str) -> None:
    """Turns every reference variable into a resource variable, in place.

    Node names don't change, so control inputs stay valid. Call `name_variables` first.

    Raises:
      TfaotError: some ops have no equivalent for resource variables. The message lists all of them.
    """
    if not any(node.op in REFS for node in graph.node):
        return
    _Conversion(graph, what).run()


class _Conversion:
    def __init__(self, graph: graph_pb2.GraphDef, what: str) -> None:
        self._graph = graph
        self._what = what
        self._names = {node.name for node in graph.node}
        # The original graph: nodes change while others still look up what their inputs were.
        self._op = {node.name: node.op for node in graph.node}
        self._first = {node.name: node.input[0] if node.input else "" for node in graph.node}
        self._refs = self._references()
        self._reads: dict[tuple[str, ...], str] = {}

    def run(self) -> None:
        """Changes the graph."""
        self._check()
        for node in list(self._graph.node):
            if node.op in REFS:
                node.op = "VarHandleOp"
                _keep_attributes(node, ("dtype", "shape", "shared_name"))
                continue
            takes = [index for index, operand in enumerate(node.input) if self._is_reference(operand)]
            if not takes:
                continue
            wants = _reference_inputs(node)
            for index in takes:
                if index not in wants and node.op != "Identity":
                    node.input[index] = self._read(node, index)
            if node.op == "Identity":
                dtype = node.attr["T"].type
                node.op = "ReadVariableOp"
                self._hand_handles(node, takes)
                _keep_attributes(node, ())
                node.attr["dtype"].type = dtype
            elif wants:
                self._hand_handles(node, [index for index in takes if index in wants])
                self._rename(node)

    def _references(self) -> dict[str, int]:
        """Returns the dtypes of nodes whose first output (both, for RefSwitch) is a reference, by name."""
        users: dict[str, list[node_def_pb2.NodeDef]] = defaultdict(list)
        for node in self._graph.node:
            definition = op_def_registry.get(node.op)
            if definition is not None and definition.output_arg and definition.output_arg[0].is_ref:
                for index in _reference_inputs(node):
                    users[tensor_name(node.input[index])[0]].append(node)
        pending = [node for node in self._graph.node if node.op in REFS]
        dtypes: dict[str, int] = {}
        while pending:
            node = pending.pop()
            if node.name not in dtypes:
                dtypes[node.name] = node.attr["dtype" if node.op in REFS else "T"].type
                pending += users[node.name]
        return dtypes

    def _is_reference(self, operand: str) -> bool:
        name, port = tensor_name(operand)
        return name in self._refs and (port == 0 or (port == 1 and self._op[name] == "RefSwitch"))

    def _check(self) -> None:
        strange = [
            f"{node.name} ({node.op})"
            for node in self._graph.node
            if node.op not in REFERENCE_FORMS
            and any(self._is_reference(node.input[index]) for index in _reference_inputs(node))
            and _equivalent(node) is None
        ]
        if strange:
            raise TfaotError(
                f"{self._what}: {len(strange)} op(s) use TensorFlow 1 variables in ways that resource variables don't support",
                exists=listed(strange),
                do="remove them from what the outputs need, or build the graph with resource variables "
                "(tf.compat.v1.enable_resource_variables())",
            )

    def _handle(self, operand: str) -> tuple[str, list[str]]:
        """Returns the handle behind a reference, and the control input of the write that it must follow, if any."""
        after: list[str] = []
        name, _ = tensor_name(operand)
        while self._op[name] not in REFS and self._op[name] not in REFERENCE_FORMS:
            after = after or [f"^{name}"]
            operand = self._first[name]
            name, _ = tensor_name(operand)
        return operand, after

    def _hand_handles(self, node: node_def_pb2.NodeDef, takes: Sequence[int]) -> None:
        for index in takes:
            node.input[index], after = self._handle(node.input[index])
            node.input.extend(control for control in after if control not in node.input)

    def _rename(self, node: node_def_pb2.NodeDef) -> None:
        """Makes an op on references the same on handles."""
        if node.op in REFERENCE_FORMS:
            node.op = REFERENCE_FORMS[node.op]
            node.attr["T"].type = types_pb2.DT_RESOURCE
            return
        definition = _equivalent(node)
        assert definition is not None, "_check has seen them all"
        dtype = node.attr["T"].type
        node.op = definition.name
        _keep_attributes(node, [attr.name for attr in definition.attr])
        if any(attr.name == "dtype" for attr in definition.attr):
            node.attr["dtype"].type = dtype

    def _read(self, node: node_def_pb2.NodeDef, index: int) -> str:
        """Adds a read of a reference's value at the time when the node runs, and returns its name."""
        dtype = self._refs[tensor_name(node.input[index])[0]]
        handle, after = self._handle(node.input[index])
        # The read runs when all of the node's inputs are ready. Only for a Merge, it runs with the first of them.
        others = [] if node.op == "Merge" else [o for i, o in enumerate(node.input) if i != index]
        controls = sorted({f"^{tensor_name(o)[0]}" for o in others if not self._is_reference(o)} | set(after))
        key = (handle, *controls)
        if key not in self._reads:
            name = self._reads[key] = take(f"{tensor_name(handle)[0]}/value", self._names)
            self._graph.node.add(name=name, op="ReadVariableOp", input=key).attr["dtype"].type = dtype
        return self._reads[key]


def _keep_attributes(node: node_def_pb2.NodeDef, names: Collection[str]) -> None:
    for name in [name for name in node.attr if name not in names]:
        del node.attr[name]


def _reference_inputs(node: node_def_pb2.NodeDef) -> list[int]:
    """Returns the indices of inputs that the op takes by reference."""
    definition = op_def_registry.get(node.op)
    if definition is None or not any(arg.is_ref for arg in definition.input_arg):
        return []
    indices: list[int] = []
    index = 0
    for arg in definition.input_arg:
        count = node.attr[arg.number_attr].i if arg.number_attr else 1
        if arg.is_ref:
            indices += range(index, index + count)
        index += count
    return indices


def _equivalent(node: node_def_pb2.NodeDef) -> op_def_pb2.OpDef | None:
    """Returns the equivalent op on handles, or None."""
    theirs = op_def_registry.get(node.op)
    ours = op_def_registry.get(_WRITES.get(node.op, f"Resource{node.op}"))
    if theirs is None or ours is None or len(theirs.input_arg) != len(ours.input_arg):
        return None
    same = all(
        (b.type == types_pb2.DT_RESOURCE) == a.is_ref for a, b in zip(theirs.input_arg, ours.input_arg, strict=True)
    )
    return ours if same else None
