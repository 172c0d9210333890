"""The pass `prepack`: packs constant weights into the order in which products and convolutions read them, as one stream.

Panels have as many columns as fill a cache line. docs/internals/kernels.md has the measurements.

Applies to right sides of products of several rows, and kernels of convolutions without groups and without dilated inputs,
unless a right side has up to 12 columns, or more than a quarter of the panels would be empty. If something else reads the
weights, too, the original stays, and only weights of up to 16 MiB are packed.
"""

from __future__ import annotations

import math

from tfaot.compile.program.packing import layouts as packing
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import SIZES, Dot, Product

_LARGEST_COPY = 1 << 24
"""The most bytes of a constant that is stored twice, because something else reads it in its own order. Where a table of 0.5 MB
also scores words, a step of `tests/cluster/speaker.py` took 31 µs instead of 37 µs (AMD EPYC, Zen 5, AVX-512)."""


def prepack(compiled: Compiled) -> int:
    """Packs constants that no other pass has packed, and returns how many."""
    return packing.pack(compiled, "panels", has_panels, _panels, largest_copy=_LARGEST_COPY)


def has_panels(product: Product) -> bool:
    """Returns whether panels are faster: several rows, more columns than the kernels' narrow case, and no panel mostly empty."""
    depth, columns = product.depth, product.columns
    width = packing.PANEL_BYTES // SIZES[product.dtype]
    if 5 * columns <= 4 * width or 3 * -(-columns // width) * width > 4 * columns or not depth:
        return False
    if isinstance(product, Dot):
        if product.columns_apart[1]:
            return False
        return product.dtype in ("float", "double", "int32_t") and product.batch == 1 and product.n > 1
    return (
        product.dtype == "float"
        and product.groups == 1
        and product.input_dilation == (1, 1)
        and product.batch * math.prod(product.output_size) > 1
    )


def _panels(values: memoryview, product: Product) -> bytes:
    """Packs panels of as many columns as fill a cache line."""
    size = SIZES[product.dtype]
    return packing.panels(packing.values(values, product, f"u{size}"), packing.PANEL_BYTES // size)
