"""Open sizes whose bucket is 1. A size is at least 1, so their inputs need no cut, which XLA can't always compile."""

from __future__ import annotations

from tfaot.graph.names import tensor_name
from tfaot.graph.ops import OPEN_SIZE
from tfaot.graph.program import Program


def for_xla(program: Program) -> int:
    """Takes such dimensions out of the cuts of inputs, and returns how many cuts changed."""
    count = 0
    for node in program.graph.node:
        if OPEN_SIZE not in node.attr:
            continue
        ends = program.nodes()[tensor_name(node.input[2])[0]].input
        shape = (program.feeds[program.feed_of(node.input[0])].shape or ())[: len(ends)]
        whole = node.attr["end_mask"].i
        for axis, size in enumerate(shape):
            whole |= (size == 1) << axis
        if whole != node.attr["end_mask"].i:
            node.attr["end_mask"].i = whole
            count += 1
        if whole == (1 << len(shape)) - 1:
            del node.attr[OPEN_SIZE]
    return count
