"""What the installed TensorFlow's compiler has kernels for, from its own registry."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from tensorflow.core.framework import node_def_pb2, op_def_pb2, types_pb2
from tensorflow.python.framework import kernels
from tensorflow.python.util import pywrap_xla_ops

from tfaot.core import knowledge
from tfaot.graph import collectives, linear
from tfaot.graph.attributes import dtype_shown
from tfaot.graph.ops import attribute_of

DEVICE = "XLA_CPU_JIT"
"""The device whose kernels tfcompile uses."""

_CONTROL_FLOW = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"})

SUBSTITUTED = frozenset(
    {
        "Placeholder",
        "PlaceholderV2",
        "PlaceholderWithDefault",
        "VarHandleOp",
        *_CONTROL_FLOW,
        *collectives.OPS,
        *collectives.GROUPS,
    }
)
"""Ops without a kernel that tfcompile or our own code replaces: the model's inputs and variables, TensorFlow 1's control flow, and
collectives."""

Constraints = Mapping[str, frozenset[int]]
"""By attribute, the dtypes (`tensorflow.DataType`) that it may have. An attribute that is missing may have any."""

_LINEAR: Constraints = {
    "T": frozenset(
        (types_pb2.DT_HALF, types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_COMPLEX64, types_pb2.DT_COMPLEX128)
    )
}
"""Those of the ops that the runtime computes instead of XLA."""


@dataclasses.dataclass(frozen=True)
class Missing:
    """Why there is no kernel for a node."""

    dtypes: Mapping[str, tuple[str, tuple[str, ...]]]
    """By attribute, the node's dtype that no kernel has, and those that kernels have. Empty if the op has no kernel."""


@functools.cache
def table() -> Mapping[str, tuple[Constraints, ...]]:
    """Returns the dtypes of each op's kernels. A node needs one kernel that has all its dtypes."""
    pywrap_xla_ops.get_cpu_kernel_names()  # adds XLA's kernels to the registry
    by_op: dict[str, list[Constraints]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == DEVICE:
            by_op.setdefault(kernel.op, []).append(
                {constraint.name: frozenset(constraint.allowed_values.list.type) for constraint in kernel.constraint}
            )
    by_op |= {op: [_LINEAR] for op in linear.OPS}
    return {op: tuple(by_op[op]) for op in sorted(by_op)}


def missing(node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef | None) -> Missing | None:
    """Returns why the compiler has no kernel for a node, or None if it has one.

    Args:
      node: isn't a call of a function by its name.
      defined: the op's definition, or None if TensorFlow doesn't know the op.
    """
    if node.op in SUBSTITUTED:
        return None
    registered = table().get(node.op)
    if registered is None or defined is None:
        return Missing({})
    refused = knowledge.REFUSED_DTYPES.get(node.op, {})
    lacking = [_lacking(node, defined, constraints, refused) for constraints in registered]
    return None if any(not lack for lack in lacking) else Missing(min(lacking, key=len))


def compiled_dtypes(op: str) -> tuple[Mapping[str, tuple[str, ...]], ...]:
    """Returns the dtypes that compile, by attribute, for each of an op's kernels."""
    refused = knowledge.REFUSED_DTYPES.get(op, {})
    return tuple(
        {name: _without(allowed, refused.get(name, "")) for name, allowed in constraints.items()}
        for constraints in table().get(op, ())
    )


def _without(allowed: frozenset[int], refused: str) -> tuple[str, ...]:
    return tuple(name for dtype in sorted(allowed) if (name := dtype_shown(dtype)) not in refused.split())


def _lacking(
    node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef, constraints: Constraints, refused: Mapping[str, str]
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Returns the attributes whose dtypes a kernel doesn't have."""
    result = {}
    for name, allowed in constraints.items():
        value = attribute_of(node, name, defined)
        enums = list(value.list.type) if value.WhichOneof("value") == "list" else [value.type]
        compiled = _without(allowed, refused.get(name, ""))
        if wrong := [dtype for dtype in map(dtype_shown, enums) if dtype not in compiled]:
            result[name] = (wrong[0], compiled)
    return result
