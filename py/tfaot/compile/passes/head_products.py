"""Speeds up attention with one query, as in a decoder with a cache: copies keys in the order that is fast."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import node_def_pb2

from tfaot.graph.attributes import FLOATS, complete, constant_of, type_attribute
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import IDENTITIES
from tfaot.graph.program import Program, Tensor

_POSITIONS = 16
"""The fewest positions, that is, rows of the keys."""
_VALUES = 8192
"""The fewest keys. A copy of fewer takes little time."""

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
    """A product of each head's keys with that head's query."""

    query: _Operand
    keys: _Operand
    """Position, head, channel."""
    result: str
    """The letters of the result's axes."""
    shape: tuple[int, ...]


def head_products(program: Program) -> int:
    """Rewrites products of one query with keys, so that the keys' copy has each head's rows, and not its columns.

    A cache has rows of all heads' channels. For a product in batches, XLA copies it head by head. If a product wants each
    head's channels one after another, that copy is a transposition, one value at a time, and takes many times longer than
    the product. The product of the query with rows of channels is as fast.

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
    first, second = (
        _origin(program, nodes, tensor, axes, sizes)
        for tensor, axes, sizes in zip(node.input, letters[:2], (left, right), strict=True)
    )
    out = "".join(each for each, size in result.items() if size != 1)
    for query, keys, given in ((first, second, letters[1]), (second, first, letters[0])):
        if len(keys.axes) != 3:
            continue
        (position, positions), (head, heads), (channel, channels) = keys.axes.items()
        if {*query.axes} != {head, channel} or {*out} != {position, head} or len(query.axes) != 2 or len(out) != 2:
            continue
        # XLA makes an Einsum a product of columns.
        columns = node.op == "Einsum" or given[-1] == position
        large = positions >= _POSITIONS and positions * heads * channels >= _VALUES
        if columns and large and _joined(program, nodes, keys.tensor):
            return _Product(query, keys, out, shapes[2] or ())
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
    """Returns whether a tensor is a concatenation. XLA transposes one together with it, and others faster."""
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

    (position, positions), (head, heads), (channel, channels) = product.keys.axes.items()
    query = reshaped(product.query.tensor, *product.query.axes.values())
    query = reshaped(ordered(query, "".join(product.query.axes), head + channel), heads, 1, channels)
    keys = reshaped(product.keys.tensor, positions, heads, channels)
    keys = add("Transpose", keys, constant([1, 0, 2]), Tperm=int32)
    scores = reshaped(add("BatchMatMulV2", query, keys, adj_x=False, adj_y=True), heads, positions)
    scores = ordered(scores, head + position, product.result)
    program.become(node, "Reshape", (scores, constant(product.shape)), T=dtype, Tshape=int32)
