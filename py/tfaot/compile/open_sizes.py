"""Refuses ops whose operands have sizes that are known only at run time, where XLA returns wrong sizes or values.

XLA has memory for the largest size, and counts how much of it is used. For these ops, it miscounts. The export stage replaces
others, which have a form that XLA computes correctly (`export/rewrites/bounded.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfaot.core.errors import TfaotError, listed
from tfaot.xla.module import Module

_FROM_AXIS: Mapping[str, int] = {
    "AdjustContrastv2": -3,
    "AvgPool3DGrad": 0,
    "BatchToSpace": 0,
    "BatchToSpaceND": 0,
    "Cholesky": -2,
    "DataFormatVecPermute": 0,
    "Diag": 0,
    "DiagPart": 0,
    "InTopK": 1,
    "InTopKV2": 1,
    "InvertPermutation": 0,
    "MatrixDiag": 0,
    "MatrixDiagPartV2": 0,
    "MatrixDiagPartV3": 0,
    "MatrixDiagV2": 0,
    "MatrixDiagV3": 0,
    "MirrorPad": 0,
    "MirrorPadGrad": 0,
    "Qr": 0,
    "ResizeBilinear": 0,
    "ResizeBilinearGrad": 0,
    "ResizeNearestNeighbor": 0,
    "ReverseSequence": 0,
    "Roll": 0,
    "SpaceToBatch": 0,
    "SpaceToBatchND": 0,
    "Svd": 0,
    "TridiagonalSolve": -2,
    "Unique": 0,
    "UniqueV2": 0,
    "Where": 1,  # it computes the indices from the sizes of all axes but the first
}
"""Ops, and the first axis of an operand whose size must be known at build time."""

_WINDOWS = frozenset({"AvgPool", "Cumprod", "Cumsum", "CumulativeLogsumexp"})
"""Ops that are windows with padding; for `AvgPool`, those with padding `SAME` that skip values."""


def check(module: Module, graph: Callable[[], Any], sources: Mapping[str, str], what: str) -> None:
    """Checks a whole program.

    Args:
      module: the module before optimization.
      graph: reads the graph that it was made from.
      sources: `file:line` by node.
      what: names the model.

    Raises:
      TfaotError: it has such an op.
    """
    wrong: dict[str, str] = {}
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            metadata = instruction.attributes.metadata
            op = metadata.op_type
            operands = [computation.instructions[name].type.dynamic for name in instruction.operands]
            miscounted = op in _FROM_AXIS and any(any(dynamic[_FROM_AXIS[op] :]) for dynamic in operands)
            if op in _WINDOWS and instruction.opcode == "reduce-window":
                axes = zip(operands[0], instruction.attributes.window.dimensions, strict=False)
                least = 1 if op == "AvgPool" else 0  # what the export stage doesn't replace
                miscounted = any(dynamic and axis.size > 1 and axis.stride > least for dynamic, axis in axes)
            if instruction.opcode == "batch-norm-training":  # it scales the variance for the largest size
                miscounted = any(operands[0])
            # XLA forgets sizes where it compiles a call. The export stage inlines those that it can.
            if instruction.opcode == "call":
                pairs = zip(module.computations[instruction.called[0]].parameters, operands, strict=True)
                miscounted = any(any(sizes) and parameter.dynamic != sizes for parameter, sizes in pairs)
            if miscounted:
                wrong.setdefault(metadata.op_name or instruction.name, op or "calls in loops and branches")
    if "AvgPool" in wrong.values():
        padded = {node.name for node in graph().node if node.op == "AvgPool" and node.attr["padding"].s == b"SAME"}
        wrong = {name: op for name, op in wrong.items() if op != "AvgPool" or name in padded}
    if wrong:
        places = [f"{op} {name!r}" + (f" at {sources[name]}" if name in sources else "") for name, op in wrong.items()]
        raise TfaotError(
            f"{what}: XLA computes wrong results for {listed(sorted({*wrong.values()}))} where a size is known only at run time",
            details="\n".join(places),
            do='average with padding="VALID", or with strides of 1'
            if {*wrong.values()} == {"AvgPool"}
            else "apply these ops before the size becomes unknown, for example to the whole tensor and with a mask instead of "
            "after x[:n], tf.where, or tf.boolean_mask, or move them out of the model",
        )
