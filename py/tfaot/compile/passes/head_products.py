"""Speeds up attention with one query, as in a decoder with a cache: multiplies keys and values where they are."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import node_def_pb2

from tfaot.graph.attributes import FLOATS, complete, constant_of, numpy_dtype, type_attribute
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import IDENTITIES
from tfaot.graph.program import Program, Tensor

_HEADS = 32
"""The most heads. The products do this many times the arithmetic."""
_POSITIONS = 16
"""The fewest positions, that is, rows of the keys."""
_VALUES = 8192
"""The fewest keys or values. A copy of fewer takes about as long as the pass's small kernels."""

_Nodes = Mapping[str, node_def_pb2.NodeDef]
_Axes = dict[str, int]
"""The size of each axis that a tensor has, by its letter, in order. Axes of size 1 are left out."""


@dataclasses.dataclass(frozen=True)
class _Operand:
    """An operand of a product, before transpositions."""

    tensor: str
    axes: _Axes


@dataclasses.dataclass(frozen=True)
class _Product:
    """A product of each head's part of the cache with that head's row."""

    row: _Operand
    """The query, or the probabilities."""
    cache: _Operand
    """The keys or values: position, head, channel."""
    result: str
    """The letters of the result's axes."""
    shape: tuple[int, ...]


def head_products(program: Program) -> int:
    """Rewrites products of one query with keys, and of its probabilities with values, so that nothing is transposed.

    A cache has rows of all heads' channels. For a product in batches, XLA first copies it head by head, which takes many
    times longer than the product. As one matrix, it's multiplied in place: the keys by a matrix with a column for each
    head, which is zero outside the head's channels; the values by all heads' probabilities, and of the result, only each
    head's channels are taken.

    Returns:
      The number of products.
    """
    nodes = program.nodes()
    found = [
        node for node in nodes.values() if node.op in ("BatchMatMulV2", "Einsum") and node.attr["T"].type in FLOATS
    ]
    tensors = program.tensors() if found else {}
    count = 0
    for node in found:
        product = _product(program, nodes, tensors, node)
        if product is not None:
            _write(program, node, product)
            count += 1
    return count


def _product(
    program: Program, nodes: _Nodes, tensors: Mapping[str, Tensor], node: node_def_pb2.NodeDef
) -> _Product | None:
    """Returns what a node computes if the pass changes it, otherwise None."""
    shapes = [complete(tensors[_full(name)].shape) for name in (*node.input[:2], node.name)]
    letters = _letters(node, [len(shape or ()) for shape in shapes])
    if letters is None or None in shapes:
        return None
    left, right, result = (
        dict(zip(axes, shape or (), strict=True)) for axes, shape in zip(letters, shapes, strict=True)
    )
    if any(left[each] != right[each] for each in left.keys() & right.keys()):
        return None
    operands = [
        _origin(program, nodes, tensor, axes, sizes)
        for tensor, axes, sizes in zip(node.input, letters[:2], (left, right), strict=True)
    ]
    out = "".join(each for each, size in result.items() if size != 1)
    for row, cache in (operands, operands[::-1]):
        if len(cache.axes) != 3:
            continue
        (position, positions), (head, heads), (channel, channels) = cache.axes.items()
        if (
            {*row.axes, *out} != {position, head, channel}
            or {*row.axes} & {*out} != {head}
            or len(row.axes) != 2
            or len(out) != 2
        ):
            continue
        large = positions >= _POSITIONS and 1 < heads <= _HEADS and positions * heads * channels >= _VALUES
        if large and _joined(program, nodes, cache.tensor):
            return _Product(row, cache, out, shapes[2] or ())
    return None


def _full(tensor: str) -> str:
    name, port = tensor_name(tensor)
    return f"{name}:{port}"


def _letters(node: node_def_pb2.NodeDef, ranks: list[int]) -> list[str] | None:
    """Returns a letter for each axis of both operands and of the result, or None if an axis can't have one."""
    if node.op == "Einsum":
        equation = node.attr["equation"].s.decode().replace(" ", "")
        operands, _, result = equation.partition("->")
        letters = [*operands.split(","), result]
        simple = all(len({*each}) == len(each) and "." not in each for each in letters)
        return letters if simple and [len(each) for each in letters] == ranks else None
    if len({*ranks}) > 1:
        return None
    batch, (m, k, n) = string.ascii_lowercase[: ranks[0] - 2], "MKN"
    left, right = (k + m if node.attr["adj_x"].b else m + k), (n + k if node.attr["adj_y"].b else k + n)
    return [batch + left, batch + right, batch + m + n]


def _origin(program: Program, nodes: _Nodes, tensor: str, letters: str, sizes: Mapping[str, int]) -> _Operand:
    """Returns the tensor that an operand is a transposition of, or the operand itself."""
    while _full(tensor) not in program.feeds:
        node = nodes[tensor_name(tensor)[0]]
        if node.op == "Transpose":
            order = constant_of(nodes, node.input[1], program.feeds)
            if order is None:
                break
            letters = "".join(letters[place] for place in np.argsort(order % len(letters)))
        elif node.op not in IDENTITIES:
            break
        tensor = node.input[0]
    return _Operand(tensor, {each: sizes[each] for each in letters if sizes[each] != 1})


def _joined(program: Program, nodes: _Nodes, tensor: str) -> bool:
    """Returns whether a tensor is a concatenation. XLA copies one to another order one value at a time, and others faster."""
    while _full(tensor) not in program.feeds:
        node = nodes[tensor_name(tensor)[0]]
        if node.op == "ConcatV2":
            return True
        if node.op not in IDENTITIES | {"Reshape"}:
            break
        tensor = node.input[0]
    return False


def _write(program: Program, node: node_def_pb2.NodeDef, product: _Product) -> None:
    dtype, int32 = type_attribute(node.attr["T"].type), np.dtype("int32")

    def constant(value: npt.ArrayLike, kind: npt.DTypeLike = np.int32) -> str:
        added: str = program.constant(f"{node.name}/constant", np.array(value, kind), origin=node.name).name
        return added

    def add(op: str, *operands: str, **attributes: object) -> str:
        added: str = program.add(op, f"{node.name}/{op}", operands, origin=node.name, T=dtype, **attributes).name
        return added

    def reshaped(tensor: str, *shape: int) -> str:
        return add("Reshape", tensor, constant(shape), Tshape=int32)

    def ordered(tensor: str, axes: str, wanted: str) -> str:
        return tensor if axes == wanted else add("Transpose", tensor, constant([1, 0]), Tperm=int32)

    (position, positions), (head, heads), (channel, channels) = product.cache.axes.items()
    cache = reshaped(product.cache.tensor, positions, heads * channels)
    row, axes = reshaped(product.row.tensor, *product.row.axes.values()), "".join(product.row.axes)
    if channel in product.row.axes:
        own = constant(np.eye(heads).reshape(heads, 1, heads), np.bool_)
        query = reshaped(ordered(row, axes, head + channel), heads, channels, 1)
        zero = constant(0, numpy_dtype(node.attr["T"].type))
        columns = reshaped(add("SelectV2", own, query, zero), heads * channels, heads)
        result = add("MatMul", cache, columns, transpose_a=False, transpose_b=False)
        axes = position + head
    else:
        mixed = add("MatMul", ordered(row, axes, head + position), cache, transpose_a=False, transpose_b=False)
        result = add(
            "StridedSlice",
            reshaped(mixed, heads * heads, channels),
            constant([0, 0]),
            constant([heads * heads, channels]),
            constant([heads + 1, 1]),
            Index=int32,
            begin_mask=0,
            end_mask=0,
            ellipsis_mask=0,
            new_axis_mask=0,
            shrink_axis_mask=0,
        )
        axes = head + channel
    result = ordered(result, axes, product.result)
    program.become(node, "Reshape", (result, constant(product.shape)), T=dtype, Tshape=int32)
