"""The pass `prevent_duplication`: computes the sum of a residual connection with its ReLU once.

XLA copies an operation of one value into all its users. So the ReLU of a residual sum goes into the next block's sum, with the
sum before it: the kernel of the fourth block in a row reads the results of four products and adds them up again, and is no
epilogue. The pass writes `max(x, 0)` as a selection between 0 and x. A selection reads two values, so XLA doesn't copy it.

Applies to the ReLU of a sum that several ops use, in float32 and float64. ResNet-50 keeps 6 of 27 kernels of XLA's, and gains
2.5 % (Zen 4, AVX2).
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorflow.core.framework import node_def_pb2

from tfaot.compile.passes.writer import Writer
from tfaot.graph.attributes import FLOATS
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import IDENTITIES
from tfaot.graph.program import Program

_SUMS = frozenset({"Add", "AddV2"})
_THROUGH = frozenset({"BiasAdd"}) | IDENTITIES


def prevent_duplication(program: Program) -> int:
    """Rewrites ReLUs, and returns how many."""
    nodes, users = program.nodes(), program.users()
    count = 0
    for node in nodes.values():
        if node.op != "Relu" or node.attr["T"].type not in FLOATS or f"{node.name}:0" in program.feeds:
            continue
        if len({user.node.name for user in users[node.name] if user.port >= 0}) > 1 and _is_sum(nodes, node.input[0]):
            _write(Writer(program, node))
            count += 1
    return count


def _is_sum(nodes: Mapping[str, node_def_pb2.NodeDef], tensor: str) -> bool:
    """Returns whether a tensor is a sum of values, possibly with a bias."""
    node = nodes.get(tensor_name(tensor)[0])
    while node is not None and node.op in _THROUGH:
        node = nodes.get(tensor_name(node.input[0])[0])
    return node is not None and node.op in _SUMS


def _write(writer: Writer) -> None:
    total, zero = writer.node.input[0], writer.number(0)
    writer.become("SelectV2", writer.add("Less", total, zero), zero, total)
