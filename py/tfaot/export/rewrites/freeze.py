"""Variables that become constants in the compiled code: how to choose and freeze them. Pure.

TensorFlow's own `convert_to_constants` isn't sufficient. It takes values only from a session or a ConcreteFunction,
doesn't convert gathers inside functions, and breaks a function that is called with a frozen variable and with another
one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy.typing as npt
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed
from tfaot.graph.edits import Scope, become
from tfaot.graph.handles import Rewrite
from tfaot.graph.names import producer

Array = npt.NDArray[Any]

LIMIT = 2**31 - 1
"""The maximum size of a GraphDef in bytes: protobuf's limit for any message."""


def chosen(
    names: Sequence[str], written: Collection[str], patterns: Sequence[str] | None, *, default_frozen: bool
) -> frozenset[str]:
    """Returns which variables to freeze.

    Args:
      names: all of the model's variables, by shared name.
      written: the variables that some run assigns.
      patterns: globs for whole names, whose `*` also matches `/`. Later ones win: a glob after a `!` removes what the
        earlier ones chose. None selects the default.
      default_frozen: whether to freeze every variable that nothing writes if there are no patterns.

    Raises:
      TfaotError: a pattern has no effect, or the patterns choose a variable that is written.
    """
    if patterns is None:
        return frozenset(names) - frozenset(written) if default_frozen else frozenset()
    asked = caller.setting("frozen", patterns)
    taken: dict[str, None] = {}  # an ordered set, in the variables' order
    for pattern in patterns:
        glob = pattern.removeprefix("!")
        matching = [name for name in names if fnmatch.fnmatchcase(name, glob)]
        if not matching:
            raise TfaotError(
                f'{asked}: "{pattern}" matches no variable',
                exists=listed(names),
                do='use a full name, or a pattern such as "dense/*"',
            )
        if pattern == glob:
            taken |= dict.fromkeys(matching)
            continue
        if not taken.keys() & set(matching):
            raise TfaotError(
                f'{asked}: "{pattern}" excludes {listed(matching)}, which no earlier pattern selected',
                exists=f"earlier patterns select {listed(list(taken))}",
                do="first list what to freeze; all variables except those of the head are "
                + caller.setting("frozen", ["*", "!head/*"]),
            )
        taken = {name: None for name in taken if name not in matching}
    if refused := [name for name in taken if name in written]:
        raise TfaotError(
            f"{asked}: {len(refused)} of the selected variables are written, so they can't be constants",
            exists=listed(refused),
            do="exclude them: " + listed([f'"!{name}"' for name in refused]),
        )
    return frozenset(taken)


def freeze(
    graph: graph_pb2.GraphDef, values: Mapping[str, Array], sources: Mapping[str, str] | None = None
) -> graph_pb2.GraphDef:
    """Replaces variables with constants, wherever their handles go. What was a handle becomes the value itself.

    Args:
      graph: a pruned graph.
      values: values by shared name, with the variable's dtype and shape. Names that the graph lacks are ignored.
      sources: `file:line` by node name, or `function/node` inside functions, for messages.

    Returns:
      A new graph without VarHandleOps for these variables; the given one if it has none. All nodes and functions keep
      their names. If calls pass a function a frozen variable in one place and another variable in the same place
      elsewhere, the function becomes several, and the first one keeps the name.

    Raises:
      TfaotError: the values don't fit into a GraphDef, or something is done to a variable that isn't possible with a constant.
    """
    freezing = _Freezing(values)
    handles = [node for node in graph.node if node.op == "VarHandleOp"]
    handles += [node for f in graph.library.function for node in f.node_def if node.op == "VarHandleOp"]
    names = {node.attr["shared_name"].s.decode() for node in handles} & values.keys()
    if not names:
        return graph
    size = sum(values[name].nbytes for name in names)
    if size > LIMIT or size + graph.ByteSize() + 1024 * len(names) > LIMIT:
        largest = sorted(names, key=lambda name: (-values[name].nbytes, name))
        raise TfaotError(
            f"freezing {len(names)} variable(s) makes {size:,} bytes of constants, which exceeds a GraphDef's limit",
            exists=f"{LIMIT:,} bytes at most; the largest are "
            + listed([f"{name} ({values[name].nbytes:,})" for name in largest], limit=3),
            do=f"freeze fewer: {caller.setting('frozen', [])} keeps all variables in a file beside the code, and "
            "a pattern freezes only some",
        )
    result, refused = freezing.apply(graph)
    if refused:
        raise TfaotError(
            f"{len(refused)} op(s) use a variable in a way that doesn't work with a constant",
            details="\n".join(use.shown(sources or {}) for use in refused),
            exists="a frozen variable can only be read, gathered from, and passed to functions, and an op that can get "
            "several variables works only if all of them are frozen",
            do="feed these variables: exclude them from frozen",
        )
    return result


class _Freezing(Rewrite):
    """Replaces handles with constants, and ops on variables with ops on values."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._values = values
        self._constants: dict[tuple[Scope, str], str] = {}
        """The constant for a variable if it waits for nothing. Several handles of one variable share it."""

    def changes(self, handle: node_def_pb2.NodeDef) -> bool:
        return handle.attr["shared_name"].s.decode() in self._values

    def carried(self, dtype: int) -> int:
        return dtype

    def declare(self, handle: node_def_pb2.NodeDef, scope: Scope) -> None:
        name = handle.attr["shared_name"].s.decode()
        dtype = handle.attr["dtype"].type
        scope.rename_output(handle, "resource", "output")
        handle.attr.pop("_output_shapes", None)
        first = self._constants.get((scope, name))
        if first is not None and not handle.input:
            handle.input.append(first)
            become(handle, "Identity", {"T": dtype})
            return
        become(handle, "Const", {"dtype": dtype})
        value = self._values[name]
        tensor = handle.attr["value"].tensor
        tensor.dtype = dtype
        tensor.tensor_shape.SetInParent()
        for size in value.shape:
            tensor.tensor_shape.dim.add(size=size)
        tensor.tensor_content = value.tobytes()
        if not handle.input:
            self._constants[scope, name] = scope.output(handle, "output")

    def use(self, node: node_def_pb2.NodeDef, dtype: int, scope: Scope) -> bool:
        attributes = node.attr
        if node.op == "ReadVariableOp":
            become(node, "Identity", {"T": dtype})
            scope.rename_output(node, "value", "output")
        elif node.op == "ResourceGather":
            axis = attributes["batch_dims"].i
            indices = attributes["Tindices"].type
            become(
                node, "GatherV2", {"Tparams": dtype, "Tindices": indices, "Taxis": types_pb2.DT_INT32}, batch_dims=axis
            )
            node.input.insert(2, scope.output(_axis(node, axis, scope), "output"))
        elif node.op == "ResourceGatherNd":
            become(node, "GatherNd", {"Tparams": dtype, "Tindices": attributes["Tindices"].type})
        elif node.op == "VariableShape":
            become(node, "Shape", {"T": dtype, "out_type": attributes["out_type"].type or types_pb2.DT_INT32})
        elif node.op == "VarIsInitializedOp":
            _wait(node)
            become(node, "Const", {"dtype": types_pb2.DT_BOOL})
            _scalar(node, types_pb2.DT_BOOL).bool_val.append(True)
            scope.rename_output(node, "is_initialized", "output")
        elif node.op == "DisableCopyOnRead":
            _wait(node)
            become(node, "NoOp", {})
        else:
            return False
        return True


def _wait(node: node_def_pb2.NodeDef) -> None:
    """Turns all inputs of a node into control inputs."""
    waits = dict.fromkeys("^" + producer(operand) for operand in node.input)
    node.ClearField("input")
    node.input.extend(waits)


def _axis(gather: node_def_pb2.NodeDef, axis: int, scope: Scope) -> node_def_pb2.NodeDef:
    """Returns a gather's axis as a constant. It waits for the indices, which puts it in the same round of a loop."""
    node = scope.add(f"{gather.name}/axis", "Const", scope.wait_for(gather.input[1]), {"dtype": types_pb2.DT_INT32})
    _scalar(node, types_pb2.DT_INT32).int_val.append(axis)
    return node


def _scalar(constant: node_def_pb2.NodeDef, dtype: int) -> Any:
    """Turns a constant's tensor into a scalar without a value, and returns it."""
    tensor = constant.attr["value"].tensor
    tensor.dtype = dtype
    tensor.tensor_shape.SetInParent()
    return tensor
