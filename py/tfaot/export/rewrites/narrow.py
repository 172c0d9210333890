"""Weights in fewer bits: rounds constants that only products read to values of a narrower dtype. Pure.

The graph still computes in float32, with the rounded values. So all later stages see the same weights: TensorFlow's
numbers are exact for them, and the compile stage only stores them in fewer bytes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import TOLERANCE, WEIGHT_DTYPES
from tfaot.graph.attributes import literal
from tfaot.graph.bodies import Body
from tfaot.graph.constants import constants, set_value
from tfaot.graph.flow import Labels, Walk
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import ROUNDED
from tfaot.graph.variables import VariableUse

Array = npt.NDArray[Any]

SMALLEST = 4096
"""The fewest values of a weight that is rounded. The compile stage has the same number."""
COLUMNS = 17
"""The fewest columns. Kernels read whole panels, so fewer columns take as many bytes as in float32."""

_SHAPES = frozenset({"Rank", "Shape", "ShapeN", "Size"})
"""Ops that don't read the values."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a target says about the weights' dtype."""

    dtype: str
    """`bfloat16` or `int8`."""
    tolerance: float
    """How much outputs may differ from those with float32 weights, relative to an output's largest value."""


@dataclasses.dataclass(frozen=True)
class Rounded:
    """A graph with rounded weights."""

    graph: graph_pb2.GraphDef
    before: Mapping[str, Array]
    """The values before rounding, by constant: `node`, or `function/node` inside functions."""


def wanted(dtype: str, tolerance: str) -> Wanted | None:
    """Reads the target's attributes, as text. Without a dtype, weights keep theirs.

    Raises:
      TfaotError: the dtype isn't supported, or the tolerance isn't a positive number.
    """
    if not dtype:
        if tolerance:
            raise TfaotError(
                caller.setting("weights", {"tolerance": tolerance}) + " without a dtype",
                exists="weights in float32, which have no tolerance of their own",
                do="remove the tolerance, or add a dtype: " + listed(list(WEIGHT_DTYPES)),
            )
        return None
    if dtype not in WEIGHT_DTYPES:
        raise TfaotError(
            caller.setting("weights", {"dtype": dtype}) + ": weights can't be stored in this dtype",
            exists=listed(list(WEIGHT_DTYPES)),
            do="use one of these, or remove the dtype, which keeps float32",
        )
    try:
        number = float(tolerance or TOLERANCE)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise TfaotError(
            caller.setting("weights", {"dtype": dtype, "tolerance": tolerance})
            + ": the tolerance isn't a positive number",
            do='write the largest difference that you accept, relative to an output\'s largest value: "0.02" is 2 %',
        )
    return Wanted(dtype, number)


def narrowed(
    graph: graph_pb2.GraphDef,
    fetches: Sequence[str],
    dtype: str,
    uses: Sequence[Sequence[VariableUse]],
    frozen: Mapping[str, Array],
    what: str,
) -> Rounded:
    """Rounds the constants that products read as matrices, and that nothing else reads.

    Args:
      graph: the graph, with frozen variables as constants; stays unchanged.
      fetches: tensors that runs return.
      dtype: `bfloat16` or `int8`.
      uses: the variables of each entry point, for the error.
      frozen: those that have become constants, with their values, for the error.
      what: the model, for the error.

    Raises:
      TfaotError: no weight qualifies.
    """
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph)
    walk = _Reads(result)
    _, flow = walk.main()
    for fetch in fetches:
        walk.returned(flow.edges.get(tensor_name(fetch)))
    before: dict[str, Array] = {}
    refused: list[str] = []
    for name, node in constants(result):
        shape = tuple(dim.size for dim in node.attr["value"].tensor.tensor_shape.dim)
        if node.attr["dtype"].type != types_pb2.DT_FLOAT or len(shape) < 2 or math.prod(shape) < SMALLEST:
            continue
        axes = walk.axes(name, shape)
        why = walk.why(name)
        if axes is None and why is None and dtype == "bfloat16" and len(shape) > 2:
            axes = ()  # rounding doesn't depend on axes
        elif axes is None:
            refused.append(f"{_shown(node, frozen)} ({why or 'products read it along several or unknown axes'})")
            continue
        if axes and math.prod(size for axis, size in enumerate(shape) if axis not in axes) < COLUMNS:
            refused.append(f"{_shown(node, frozen)} (fewer than {COLUMNS} columns)")
            continue
        value = literal(node)
        rounded = to_bfloat16(value) if dtype == "bfloat16" else to_int8(value, axes)
        if rounded is None:
            refused.append(f"{_shown(node, frozen)} (values aren't finite)")
            continue
        before[name] = value
        set_value(node, rounded)
        node.attr[ROUNDED].s = dtype.encode()
    if not before:
        raise _none(dtype, uses, refused, graph, what)
    return Rounded(result, before)


def to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Rounds to the nearest value of bfloat16; of two that are equally near, to the one whose last bit is 0."""
    with np.errstate(over="ignore"):
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def to_int8(values: npt.NDArray[np.float32], axes: Sequence[int]) -> npt.NDArray[np.float32] | None:
    """Rounds to the nearest multiple, from -127 to 127, of a factor for each channel. Returns None if a value isn't finite.

    A factor has 16 significant bits, so multiples of it are exact in float32.

    Args:
      values: the weight.
      axes: the axes along which products add up. All other axes are channels.
    """
    if not np.isfinite(values).all():
        return None
    wide = values.astype(np.float64)
    largest = np.abs(wide).max(axis=tuple(axes), keepdims=True, initial=0)
    mantissa, exponent = np.frexp(largest / 127)
    factor = np.ldexp(np.ceil(mantissa * 65536) / 65536, exponent)
    # Multiples of a smaller factor would be denormal.
    factor = np.where(factor < np.finfo(np.float32).tiny, 1.0, factor)
    integers = np.clip(np.rint(wide / factor), -127, 127)
    rounded: npt.NDArray[np.float32] = (integers * factor).astype(np.float32)
    return rounded


def _shown(node: node_def_pb2.NodeDef, frozen: Mapping[str, Array]) -> str:
    """Returns the name of the variable that a constant was, or the constant's own."""
    value = literal(node)
    same = (name for name, other in frozen.items() if other.shape == value.shape and other.tobytes() == value.tobytes())
    return next(same, node.name)


def _none(
    dtype: str, uses: Sequence[Sequence[VariableUse]], refused: Sequence[str], graph: graph_pb2.GraphDef, what: str
) -> TfaotError:
    """Returns the error that no weight qualifies, with the reason for each candidate."""
    fed = {node.attr["shared_name"].s.decode() for node in graph.node if node.op == "VarHandleOp"}
    fed_uses = {use.shared_name: use for entry_uses in uses for use in entry_uses if use.shared_name in fed}
    large = [use for use in fed_uses.values() if len(use.shape or ()) > 1 and math.prod(use.shape or ()) >= SMALLEST]
    reasons = [f"{use.shared_name} ({'the model writes it' if use.written else 'not frozen'})" for use in large]
    frozen = any(not use.written for use in large)
    return TfaotError(
        f"{what}: {caller.setting('weights', {'dtype': dtype})}, but no weight qualifies",
        exists=listed([*reasons, *refused])
        if reasons or refused
        else f"no float32 matrix of {SMALLEST} values or more",
        do=("freeze weights, " + caller.setting("frozen", ["*"]) if frozen else "remove the dtype")
        + f"; a weight qualifies if it is frozen, has at least {SMALLEST} values, and only matrix products read it",
    )


_View = tuple[str, tuple[int, ...] | None]
"""A constant, and the shape that a Reshape gives it: None for its own, and () for an unknown one."""


@dataclasses.dataclass(frozen=True)
class _Read:
    """How a product reads a constant."""

    axis: int = 0
    """For a matrix, the axis along which the product adds up: -1 or -2."""
    shape: tuple[int, ...] | None = None
    """The matrix's shape, as in `_View`."""
    labels: str = ""
    """For an Einsum, the constant's own labels instead, and the result's."""
    result: str = ""

    def axes(self, own: tuple[int, ...]) -> tuple[int, ...] | None:
        """Returns the axes of a constant of this shape along which the product adds up, or None if they are unknown."""
        if self.labels:
            if "." in self.labels or len(set(self.labels)) != len(own) or self.shape is not None:
                return None
            return tuple(axis for axis, label in enumerate(self.labels) if label not in self.result) or None
        shape = own if self.shape is None else self.shape
        if len(shape) != 2:
            return None
        # The matrix's rows are some of the first axes, and its columns are the others. A Reshape may leave one size open.
        for split in range(1, len(own)):
            sizes = math.prod(own[:split]), math.prod(own[split:])
            if all(size in (-1, wanted) for size, wanted in zip(shape, sizes, strict=True)):
                return tuple(range(split)) if self.axis == -2 else tuple(range(split, len(own)))
        return None


class _Reads(Walk[frozenset[_View]]):
    """Follows constants to the ops that read them."""

    starts = frozenset({"Const"})

    def __init__(self, graph: graph_pb2.GraphDef) -> None:
        super().__init__(graph)
        self.products: dict[str, set[_Read]] = {}
        """For each constant, how products read it."""
        self._others: dict[str, str] = {}
        """For each constant that another op reads, one such op."""

    def label(self, handle: node_def_pb2.NodeDef, body: Body) -> frozenset[_View] | None:
        if handle.attr["dtype"].type != types_pb2.DT_FLOAT:
            return None
        return frozenset({(f"{body.name}/{handle.name}" if body.name else handle.name, None)})

    def joined(self, before: frozenset[_View], after: frozenset[_View]) -> frozenset[_View]:
        return before | after

    def returned(self, label: frozenset[_View] | None) -> None:
        """Notes that a run returns what an edge carries."""
        for name, _ in label or ():
            self._others[name] = "an output"

    def why(self, name: str) -> str | None:
        """Returns why a constant can't be rounded, or None."""
        if name in self._others:
            return f"read by {self._others[name]}"
        return None if name in self.products else "no product reads it"

    def axes(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Returns the axes along which all products add up a constant's values, or None if they differ or are unknown."""
        if self.why(name) is not None:
            return None
        choices = {read.axes(shape) for read in self.products[name]}
        return choices.pop() if len(choices) == 1 else None

    def outputs(
        self, body: Body, node: node_def_pb2.NodeDef, ins: Labels[frozenset[_View]]
    ) -> Labels[frozenset[_View]]:
        if node.op != "Reshape" or not ins[0]:
            return super().outputs(body, node, ins)
        shape = body.by_name.get(body.edge(node.input[1])[0])
        sizes = tuple(literal(shape).tolist()) if shape is not None and shape.op == "Const" else ()
        return (frozenset((name, sizes) for name, _ in ins[0]),)

    def other(self, node: node_def_pb2.NodeDef, ins: Labels[frozenset[_View]]) -> Labels[frozenset[_View]]:
        super().other(node, ins)
        for operand, label in enumerate(ins):
            for name, shape in label or ():
                if node.op in ("MatMul", "BatchMatMul", "BatchMatMulV2"):
                    flags = ("transpose_a", "transpose_b") if node.op == "MatMul" else ("adj_x", "adj_y")
                    transposed = flags[operand] in node.attr and node.attr[flags[operand]].b
                    # The left side adds up along its last axis, and the right side along the one before.
                    last = (operand == 0) != transposed
                    self.products.setdefault(name, set()).add(_Read(-1 if last else -2, shape))
                elif node.op == "Einsum":
                    terms, _, result = node.attr["equation"].s.decode().replace(" ", "").partition("->")
                    read = _Read(shape=shape, labels=terms.split(",")[operand], result=result)
                    self.products.setdefault(name, set()).add(read)
                elif node.op not in _SHAPES:
                    self._others.setdefault(name, node.op)
        return ()
