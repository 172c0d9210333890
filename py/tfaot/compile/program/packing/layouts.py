"""Packs constant operands at compile time, in the order in which the kernels read them.

The right side of a product and the kernel of a convolution are often constants: frozen variables. In TensorFlow's
order, a kernel reads a few values of each row and copies them side by side, again in every run. Here, the constant's
object file contains the values in the order of their use, in place of the original. A packing doesn't depend on the CPU
level, so levels still share what they have in common.

A constant is packed if it is read whole, as the right side of products or the kernel of convolutions, and if all of these
need the same bytes. If something else reads it, too, as a gather reads an embedding whose transpose scores the words, the
packed values are another constant, and it stays.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.compile.program.thunks.compiled import Compiled, Packed
from tfaot.compile.program.thunks.kinds import Buffer, Dot, Place, Product, Slice, Thunk, mapped, walk

PANEL_BYTES = 64
"""The bytes in a panel's row: `kPanelBytes` in runtime/tfaot/kernels/packing.h. Generated programs assert the same number."""
BLOCK = 64
"""The filters in a block: `kWinogradFilters`, asserted in the same way."""
STREAM = 32
"""The columns in a panel of a matrix that a product of few rows reads: `kStreamColumns`, asserted in the same way."""
STREAMS = ("float32", "bfloat16", "int8")
"""The packings for such products, by the dtype that they store."""


@dataclasses.dataclass
class _Uses:
    """The readers of a constant."""

    products: list[Product] = dataclasses.field(default_factory=list)
    """Those that read it as a whole right side."""
    other: bool = False
    """Whether anything else reads it."""


def pack(
    compiled: Compiled,
    packing: str,
    applies: Callable[[Product], bool],
    packed: Callable[[memoryview, Product], bytes | None],
    *,
    largest_copy: int = 0,
) -> int:
    """Packs the constants that aren't packed yet, where that is faster. Returns how many it packed.

    Args:
      compiled: changed in place.
      packing: the packing's name in the kernels: `panels` is `Packing::kPanels` in runtime/tfaot/kernels/packing.h.
      applies: whether the packing is faster for a product or convolution.
      packed: returns the bytes to store in place of a right side's values, possibly more, or None to leave it as it is.
        Only called where `applies` is true.
      largest_copy: the most bytes of a constant that is packed though something else reads it, too, and has to stay.
    """
    moves: dict[str, dict[Place, Slice]] = {isa: {} for isa in compiled.functions}
    """Where packed values are, by where the constant is."""
    count = 0
    for index, (constant, uses) in enumerate(zip(compiled.constants, _uses(compiled), strict=True)):
        products = [product for product in uses.products if applies(product)]
        stays = uses.other or len(products) < len(uses.products)
        if index in compiled.packed or not products:
            continue
        symbol = constant.places[0][2]
        if stays and len(constant.value) > largest_copy:
            compiled.missed(symbol, f"something else reads it, too, and it has {len(constant.value)} bytes")
            continue
        first, *rest = products
        contents = packed(constant.value, first)
        if contents is None:
            compiled.missed(symbol, "the packing can't store its values, or saves nothing")
            continue
        if any(packed(constant.value, layout) != contents for layout in rest):
            compiled.missed(symbol, "its products read it in different orders")
            continue
        for isa, buffer, symbol in constant.places:
            target = buffer
            if stays:
                function, added = compiled.functions[isa], f"{symbol}_{packing}"
                target = len(function.buffers)
                compiled.functions[isa] = dataclasses.replace(
                    function,
                    buffers=(*function.buffers, Buffer(len(contents), "constant", None, None)),
                    constants=(*function.constants, added),
                )
                compiled.added[added] = contents
            else:
                compiled.replaced[symbol] = contents
            moves[isa][Slice(buffer, 0), len(constant.value)] = Slice(target, 0)
        compiled.packed[index] = Packed(packing, first.matrix, len(constant.value), len(contents))
        count += 1

    def reads(thunk: Thunk, moved: Mapping[Place, Slice]) -> Thunk:
        """Returns a product that reads a packed constant, and names the packing."""
        if not isinstance(thunk, Product) or thunk.places[thunk.right] not in moved or not applies(thunk):
            return thunk
        right: dict[str, Any] = {thunk.sides[1]: moved[thunk.places[thunk.right]]}
        return dataclasses.replace(thunk, packing=packing, **right)

    if count:
        compiled.functions = {
            isa: dataclasses.replace(
                function, thunks=mapped(function.thunks, functools.partial(reads, moved=moves[isa]))
            )
            for isa, function in compiled.functions.items()
        }
    return count


def facts(packing: str) -> tuple[str, ...]:
    """Returns what a program must assert about the kernels that read a packing, in C++: that they use the same numbers."""
    panels = f"::tfaot::kernels::kPanelBytes == {PANEL_BYTES}"
    block = f"::tfaot::kernels::kWinogradFilters == {BLOCK}"
    stream = (f"::tfaot::kernels::kStreamColumns == {STREAM}",)
    blocks = {"none": (), "panels": (panels,), "winograd": (panels, block)}
    return stream if packing in STREAMS else blocks[packing]


def panels(matrix: npt.NDArray[Any], width: int) -> bytes:
    """Returns panels of some columns, each row by row, with zeros where the last panel has no column."""
    depth, columns = matrix.shape
    whole = np.pad(matrix, ((0, 0), (0, -columns % width)))
    return whole.reshape(depth, -1, width).transpose(1, 0, 2).tobytes()


def values(data: memoryview, product: Product, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns the right side of a product, or of the product that a convolution amounts to: [depth, columns]."""
    depth, columns = product.depth, product.columns
    transposed = isinstance(product, Dot) and product.transpose_lhs
    stored = np.frombuffer(data, dtype).reshape((columns, depth) if transposed else (depth, columns))
    return stored.T if transposed else stored


def _uses(compiled: Compiled) -> list[_Uses]:
    """Finds the readers of each constant."""
    uses = [_Uses() for _ in compiled.constants]
    for isa, function in compiled.functions.items():
        in_buffer = {
            buffer: (constant, use)
            for constant, use in zip(compiled.constants, uses, strict=True)
            for level, buffer, _ in constant.places
            if level == isa
        }
        for buffer in {*function.results} & {*in_buffer}:
            in_buffer[buffer][1].other = True
        for thunk in walk(function.thunks):
            for index, (at, size) in enumerate(thunk.places):
                if at.buffer in in_buffer:
                    constant, use = in_buffer[at.buffer]
                    whole = (at.offset, size) == (0, len(constant.value))
                    if isinstance(thunk, Product) and index == thunk.right and whole:
                        use.products.append(thunk)
                    else:
                        use.other = True
    return uses
