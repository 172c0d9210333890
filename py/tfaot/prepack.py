"""Constant operands packed once, as the program is compiled, in the order in which the kernels read them.

The right side of a product and the kernel of a convolution are often constants: frozen variables. As TensorFlow has them, a
kernel reads a few values of each row, and copies them beside each other; it does so in every run. Here the constant's object
file gets the values in the order of their use, in place of the original. A packing depends on no CPU level: what several
levels have in common is stored once.

A constant is packed if all that uses it are products and convolutions that read it, whole, as such an operand, and if the
same bytes do for all of them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tfaot import winograd
from tfaot.thunks import (
    SIZES,
    Call,
    CompiledFunction,
    Conditional,
    Convolution,
    Dot,
    For,
    Thunk,
    While,
    slices,
    walk,
)

Product = Dot | Convolution


@dataclasses.dataclass(frozen=True)
class Packing:
    """A way to pack, which kernels know by its name: `enum class Packing` in runtime/tfaot/kernels/packing.h."""

    name: str
    """`panels` is `Packing::kPanels`."""
    switch: str
    """The pass that turns it on or off."""
    applies: Callable[[Product], bool]
    """Whether it gains for a product or convolution."""
    pack: Callable[[memoryview, Product], bytes]
    """What is stored in place of the values of its right side, maybe more; what `applies` is false for is not asked."""


def _has_panels(product: Product) -> bool:
    """Whether panels gain: several rows meet a matrix of more columns than kernels take for narrow, with no panel mostly empty."""
    depth, columns = _matrix(product)
    width = winograd.PANEL_BYTES // SIZES[product.dtype]
    if 5 * columns <= 4 * width or 3 * -(-columns // width) * width > 4 * columns or not depth:
        return False
    if isinstance(product, Dot):
        return product.dtype in ("float", "double", "int32_t") and product.batch == 1 and product.n > 1
    return (
        product.dtype == "float"
        and product.groups == 1
        and product.input_dilation == (1, 1)
        and product.batch * math.prod(product.output_size) > 1
    )


def _panels(values: memoryview, product: Product) -> bytes:
    """Panels of as many columns as fill a cache line, each with its rows one after another; zeros where the last has no column."""
    depth, columns = _matrix(product)
    size = SIZES[product.dtype]
    width = winograd.PANEL_BYTES // size
    transposed = isinstance(product, Dot) and product.transpose_lhs
    matrix = np.frombuffer(values, f"u{size}").reshape((columns, depth) if transposed else (depth, columns))
    panels = np.zeros((-(-columns // width), depth, width), matrix.dtype)
    for index, panel in enumerate(panels):
        part = (matrix.T if transposed else matrix)[:, index * width : (index + 1) * width]
        panel[:, : part.shape[1]] = part
    return panels.tobytes()


def _matrix(product: Product) -> tuple[int, int]:
    """The inner dimension and the columns of a product, also of one that a convolution is."""
    if isinstance(product, Dot):
        return product.k, product.m
    return math.prod(product.kernel_size) * product.kernel_channels, product.filters


def _is_winograd(product: Product) -> bool:
    return isinstance(product, Convolution) and winograd.applies(product)


def _winograd(values: memoryview, product: Product) -> bytes:
    assert isinstance(product, Convolution)
    return winograd.transformed(values, product)


PACKINGS: tuple[Packing, ...] = (
    Packing("winograd", "winograd", _is_winograd, _winograd),
    Packing("panels", "prepack", _has_panels, _panels),
)
"""All of them; the first that is on and applies is used."""


def facts(packing: str) -> tuple[str, ...]:
    """What a program must assert of the kernels that read a packing, in C++: they know the same numbers."""
    panels = f"::tfaot::kernels::kPanelBytes == {winograd.PANEL_BYTES}"
    block = f"::tfaot::kernels::kWinogradFilters == {winograd.BLOCK}"
    return {"none": (), "panels": (panels,), "winograd": (panels, block)}[packing]


@dataclasses.dataclass(frozen=True)
class Packed:
    """A constant that was packed."""

    packing: str
    shape: tuple[int, ...]
    """Of a product's right side: inner dimension and columns; of a kernel: x, y, channels, filters."""
    before: int
    """Its size in bytes, and that of what is stored in its place."""
    after: int


@dataclasses.dataclass(frozen=True)
class Prepacked:
    """A compiled function, of all CPU levels, with constants packed."""

    functions: dict[str, CompiledFunction]
    values: dict[str, bytes]
    """What constants hold now, by symbol; without those that are as they were."""
    constants: tuple[Packed, ...]
    """Each that was packed, once."""


@dataclasses.dataclass
class _Constant:
    """A constant of all levels, and of one if it is there several times."""

    value: memoryview
    places: list[tuple[str, int, str]] = dataclasses.field(default_factory=list)
    """CPU levels, buffers, and symbols."""
    products: list[Product] = dataclasses.field(default_factory=list)
    """What reads it as a whole right side."""
    other: bool = False
    """Whether anything else reads it."""


def prepack(
    functions: Mapping[str, CompiledFunction], values: Mapping[str, memoryview], kinds: Sequence[Packing] = PACKINGS
) -> Prepacked:
    """Packs constants.

    Args:
      functions: what tfcompile's headers say of a function, by CPU level
      values: of its constants, by symbol
      kinds: the packings that are on
    """
    constants: dict[tuple[int, bytes], _Constant] = {}
    for isa, function in functions.items():
        found = {}
        for buffer, symbol in _buffers(function):
            value = values[symbol]
            key = len(value), hashlib.sha256(value).digest()
            found[buffer] = constants.setdefault(key, _Constant(value))
            found[buffer].places.append((isa, buffer, symbol))
        for buffer in {*function.results} & {*found}:
            found[buffer].other = True
        for thunk in walk(function.thunks):
            for index, (at, size) in enumerate(slices(thunk)):
                if constant := found.get(at.buffer):
                    if (
                        isinstance(thunk, Product)
                        and index == _right(thunk)
                        and (at.offset, size) == (0, len(constant.value))
                    ):
                        constant.products.append(thunk)
                    else:
                        constant.other = True
    packings: dict[str, dict[int, str]] = {isa: {} for isa in functions}
    new: dict[str, bytes] = {}
    packed: list[Packed] = []
    for constant in constants.values():
        name, contents = _choose(constant, kinds)
        if contents is None:
            continue
        for isa, buffer, symbol in constant.places:
            packings[isa][buffer] = name
            new[symbol] = contents
        packed.append(Packed(name, _shape(constant.products[0]), len(constant.value), len(contents)))
    return Prepacked(
        {
            isa: dataclasses.replace(function, thunks=tuple(_with(function.thunks, packings[isa])))
            for isa, function in functions.items()
        },
        new,
        tuple(packed),
    )


def _buffers(function: CompiledFunction) -> Iterator[tuple[int, str]]:
    """Buffers and symbols of the constants that have values."""
    filled = (index for index, buffer in enumerate(function.buffers) if buffer.kind == "constant" and buffer.size)
    return zip(filled, function.constants, strict=True)


def _right(product: Product) -> int:
    """Which of `slices` is the right side: products of columns are products of rows with their sides exchanged."""
    return 1 if isinstance(product, Dot) else 2


def _shape(product: Product) -> tuple[int, ...]:
    if isinstance(product, Dot):
        return product.k, product.m
    return *product.kernel_size, product.kernel_channels, product.filters


def _choose(constant: _Constant, kinds: Sequence[Packing]) -> tuple[str, bytes | None]:
    """How to pack a constant, and what it then holds; None if not."""
    if constant.products and not constant.other:
        for packing in kinds:
            if all(map(packing.applies, constant.products)):
                first, *rest = constant.products
                value = packing.pack(constant.value, first)
                if all(packing.pack(constant.value, each) == value for each in rest):
                    return packing.name, value
    return "none", None


def _with(sequence: tuple[Thunk, ...], packings: Mapping[int, str]) -> Iterator[Thunk]:
    """Thunks whose products say how their right sides are packed."""

    def within(body: tuple[Thunk, ...]) -> tuple[Thunk, ...]:
        return tuple(_with(body, packings))

    for thunk in sequence:
        if isinstance(thunk, Product):
            at, _ = slices(thunk)[_right(thunk)]
            yield dataclasses.replace(thunk, packing=packings.get(at.buffer, "none"))
        elif isinstance(thunk, Call | For):
            yield dataclasses.replace(thunk, body=within(thunk.body))
        elif isinstance(thunk, While):
            yield dataclasses.replace(thunk, condition=within(thunk.condition), body=within(thunk.body))
        elif isinstance(thunk, Conditional):
            yield dataclasses.replace(thunk, branches=tuple(map(within, thunk.branches)))
        else:
            yield thunk
