"""The pass `narrow`: stores the weights that the export stage has rounded in the bits that they need.

The weights of a product of few rows come from memory once for every run, so half the bytes take half the time. The kernels
widen values in registers, and compute in float32. Because values don't change here, a product only rounds its sums
otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tfaot.compile.program import packing
from tfaot.compile.program.accesses import overlap
from tfaot.compile.program.compiled import Compiled
from tfaot.compile.program.thunks import Dot, Epilogue, Kernel, Thunk, with_bodies
from tfaot.compile.program.vectors import VectorProduct, vector_products

SMALLEST = 4096
"""The fewest values of a matrix that is stored in fewer bits. Smaller ones are in a cache."""
_LARGEST = 127
"""The largest integer of int8 that has a negative."""
_UNIT = 2.0**-24
"""What the kernels' integers are multiples of, inverted: they have the value in the upper byte."""


def narrow(compiled: Compiled) -> int:
    """Stores the constants that have the values of a narrower dtype in that dtype, and returns how many.

    XLA's own kernels for a product of one row become calls of the runtime, if their matrix is such a constant.
    """
    if not compiled.weights:
        return 0
    known: dict[str, VectorProduct] = {}
    for text in compiled.optimized_hlo:
        known |= vector_products(text)
    # Equal products of several levels have kernels of their own.
    kernels: dict[str, dict[Thunk, Kernel]] = {isa: {} for isa in compiled.functions}
    compiled.functions = {
        isa: dataclasses.replace(function, thunks=_products(function.thunks, known, kernels[isa]))
        for isa, function in compiled.functions.items()
    }
    packed = {"bfloat16": _bfloat16, "int8": _int8}[compiled.weights]
    count = packing.pack(compiled, compiled.weights, _applies, packed)
    # The others stay as XLA made them.
    compiled.functions = {
        isa: dataclasses.replace(function, thunks=_kernels(function.thunks, kernels[isa]))
        for isa, function in compiled.functions.items()
    }
    return count


def bfloat16_of(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16] | None:
    """Returns the upper 16 bits of values if the others are zero, otherwise None."""
    bits = np.ascontiguousarray(matrix).view(np.uint32)
    return None if (bits & 0xFFFF).any() else (bits >> 16).astype(np.uint16)


def int8_of(matrix: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]] | None:
    """Returns integers and a factor for each column whose products are exactly a matrix's values, or None.

    Args:
      matrix: float32[depth, columns].
    """
    if not np.isfinite(matrix).all():
        return None
    largest = np.abs(matrix).max(axis=0, initial=0)
    factors = np.ones(matrix.shape[1], np.float32)
    left = np.flatnonzero(largest)
    # The largest integer of a column is 127, unless the column is a part of the one that was rounded.
    for integer in range(_LARGEST, 0, -1):
        if not left.size:
            break
        factor = (largest[left] / np.float32(integer)).astype(np.float32)
        part = matrix[:, left]
        with np.errstate(all="ignore"):
            exact = (np.rint(part / factor) * factor == part).all(axis=0)
        factors[left[exact]] = factor[exact]
        left = left[~exact]
    if left.size:
        return None
    return np.rint(matrix / factors).astype(np.int8), factors


def _applies(product: packing.Product) -> bool:
    return (
        isinstance(product, Dot)
        and product.dtype == "float"
        and product.batch == 1
        and product.k * product.m >= SMALLEST
    )


def _bfloat16(values: memoryview, product: packing.Product) -> bytes | None:
    """Packs blocks of one row: word j of 16 has column j in its lower half, and column j + 16 in its upper half."""
    matrix = packing.values(values, product, np.float32)
    halves = bfloat16_of(matrix)
    if halves is None:
        return None
    padded = _padded(halves, 1)
    depth, columns = padded.shape
    blocks = padded.reshape(depth, columns // packing.NARROW, 2, 16).transpose(1, 0, 3, 2)
    return _smaller(blocks.tobytes(), values)


def _int8(values: memoryview, product: packing.Product) -> bytes | None:
    """Packs factors, and blocks of two rows: word j of 16 has columns j and j + 16 of the first row, and of the second."""
    matrix = packing.values(values, product, np.float32)
    found = int8_of(matrix)
    if found is None:
        return None
    integers, factors = found
    padded = _padded(integers, 2)
    depth, columns = padded.shape
    blocks = padded.reshape(depth // 2, 2, columns // packing.NARROW, 2, 16).transpose(2, 0, 4, 1, 3)
    scale = np.zeros(columns, np.float32)
    scale[: len(factors)] = factors * np.float32(_UNIT)
    return _smaller(scale.tobytes() + blocks.tobytes(), values)


def _padded(matrix: npt.NDArray[np.generic], rows: int) -> npt.NDArray[np.generic]:
    """Adds zeros: columns up to a whole panel, and rows up to a whole block."""
    depth, columns = matrix.shape
    return np.pad(matrix, ((0, -depth % rows), (0, -columns % packing.NARROW)))


def _smaller(contents: bytes, values: memoryview) -> bytes | None:
    """Returns None if the last panel is so empty that nothing is saved."""
    return contents if len(contents) < len(values) else None


def _products(
    sequence: tuple[Thunk, ...], known: Mapping[str, VectorProduct], kernels: dict[Thunk, Kernel]
) -> tuple[Thunk, ...]:
    """Returns thunks with products in place of the kernels that are known. Adds to `kernels` what each one replaces."""

    def changed(thunk: Thunk) -> Thunk:
        if not isinstance(thunk, Kernel):
            return with_bodies(thunk, lambda body: _products(body, known, kernels))
        product = known.get(thunk.symbol)
        dot = None if product is None else _dot(thunk, product)
        if dot is None:
            return thunk
        kernels[dot] = thunk
        return dot

    return tuple(map(changed, sequence))


def _dot(kernel: Kernel, product: VectorProduct) -> Dot | None:
    """Returns the product that a kernel computes, or None if the runtime can't compute it in place."""
    args = kernel.args
    depth, columns = product.depth, product.columns
    if len(args) != product.arguments:
        return None
    out = args[-1].slice
    addend = None if product.addend is None else args[product.addend]
    sizes = {product.row: depth, product.matrix: depth * columns, len(args) - 1: columns}
    if addend is not None:
        sizes[product.addend or 0] = columns
    if any(args[index].size != 4 * size for index, size in sizes.items()):
        return None
    read = [args[product.row], args[product.matrix]]
    if addend is not None and addend.slice != out:
        read.append(addend)
    if any(overlap((out, args[-1].size), (each.slice, each.size)) for each in read):
        return None
    epilogue = None
    if addend is not None:
        epilogue = Epilogue(None, addend.slice, None, out, float("-inf"), float("inf"))
    return Dot(
        dtype="float",
        batch=1,
        out=out,
        lhs=args[product.matrix].slice,
        rhs=args[product.row].slice,
        strides=(columns, depth * columns, depth),
        m=columns,
        n=1,
        k=depth,
        transpose_lhs=product.transposed,
        transpose_rhs=False,
        epilogue=epilogue,
    )


def _kernels(sequence: tuple[Thunk, ...], kernels: Mapping[Thunk, Kernel]) -> tuple[Thunk, ...]:
    """Returns thunks with the original kernels in place of products that aren't packed."""

    def changed(thunk: Thunk) -> Thunk:
        return kernels.get(thunk) or with_bodies(thunk, lambda body: _kernels(body, kernels))

    return tuple(map(changed, sequence))
