"""The pass `epilogues`: merges bias, bounds, sums with another value, and SGD into the product or convolution before them.

XLA computes these in a separate kernel, which goes over all values once more. After a convolution with few operations per
value, that takes up to a sixth of the convolution's time. Our products and convolutions do the same to their sums, in the same
order, while the sums are in a register or in the nearest cache (docs/internals/kernels.md). SGD is variable - rate * gradient,
if a product computes the gradient.

Applies to float32 and float64 products and convolutions that call the runtime. SGD needs a constant rate, and a variable of up
to 4 MB. The result can be written while operands
are still read: an input that the compiler has placed under the result gets its own buffer. Calls in between have nothing to do
with what the kernel reads and writes. Results under 8 columns and over 64 rows are excluded, except where a vector has several
outputs.

XLA's kernels in MobileNetV2 take 198 instead of 1,205 of 7,947 µs (Zen 3, AVX2). Activations with exponentials, such as swish
and GELU, gain nothing as epilogues: their arithmetic is the bound.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from tfaot.compile.program.thunks.accesses import Body
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import SIZES, Buffer, Convolution, Epilogue, Place, Product, Slice
from tfaot.compile.program.values.graph import Value
from tfaot.compile.program.values.pattern import Columns, Const, Op, Stored, Var

_NARROW, _ROWS = 8, 64
"""With fewer columns than fill a vector, and more rows than this, finishing each row costs more than a kernel over all."""

_LARGEST_STEP = 1 << 22
"""The most bytes of a variable that a product's epilogue changes. Tiles go through it in another order than memory's, which takes
longer than a pass of its own if the caches don't hold it."""

_FEW = 4
"""Half of a vector of 32 bytes."""


_SUM = Stored("sum")
_BIASED = Op("add", _SUM, Columns(Stored("bias")))
_ADDEND = Op("add", Stored("addend"), Columns(Stored("addend_bias"))) | Stored("addend")
_JOINED = (
    Op("add", _BIASED | _SUM, _ADDEND)
    | _BIASED
    | Op("add", Op("multiply", _SUM, Const("scale")), Stored("addend"))
    | Op("subtract", Stored("addend"), Op("multiply", _SUM, Const("minus")))
)
_VALUE = _JOINED | _SUM
_LOW, _HIGH = Const("low"), Const("high")
PATTERN = (
    Op("clamp", _LOW, _VALUE, _HIGH)
    | Op("minimum", Op("maximum", _VALUE, _LOW), _HIGH)
    | Op("maximum", _VALUE, _LOW)
    | Op("minimum", _VALUE, _HIGH)
    # As the pass `prevent_duplication` writes a ReLU.
    | Op("select", Op("compare LT", Var("value", _VALUE), _LOW), _LOW, Var("value"))
    | _JOINED
)
"""What an epilogue does to a sum. The order of additions is that of the kernel, because rounding depends on it."""


@dataclasses.dataclass(frozen=True)
class Finish:
    """A way to read a kernel, or several, as an epilogue."""

    sum: Value
    columns: int | None
    """The length of rows, if it matters."""
    places: dict[str, Place]
    """Where it reads `bias`, `addend`, and `addend_bias`, as far as there are any."""
    epilogue: Epilogue
    inputs: tuple[Value, ...]
    """What it reads besides the sum."""


def finishes(stored: Value) -> Iterator[Finish]:
    """Iterates over the ways to read what a kernel stores as an epilogue."""
    assert stored.place
    for bound in PATTERN.matches(stored, {}):
        low, high = bound.get("low", -math.inf), bound.get("high", math.inf)
        operands: dict[str, Value] = {name: bound[name] for name in ("bias", "addend", "addend_bias") if name in bound}
        if low > high or any(operand.same == bound["sum"].same for operand in operands.values()):
            continue
        places = {name: operand.place for name, operand in operands.items() if operand.place}
        bias, addend, addend_bias = (
            places[name][0] if name in places else None for name in ("bias", "addend", "addend_bias")
        )
        scale = bound.get("scale", -bound.get("minus", -1.0))
        epilogue = Epilogue(bias, addend, addend_bias, stored.place[0], low, high, scale)
        yield Finish(bound["sum"], bound.get("columns"), places, epilogue, tuple(operands.values()))


def epilogues(compiled: Compiled) -> int:
    """Attaches kernels at all CPU levels.

    Returns:
      The number of products and convolutions that have an epilogue at the level with the most.
    """
    compiled.rewrite(lambda body: _attach(compiled, body), loops=True)
    return compiled.most(lambda thunk: isinstance(thunk, Product) and thunk.epilogue is not None)


def _shares_vectors(product: Product) -> bool:
    """Returns whether several results of few filters share a vector at every CPU level with AVX2: `FewOutputs` in convolution.h.

    At lower levels, few filters fill a vector.
    """
    return (
        isinstance(product, Convolution)
        and product.dtype == "float"
        and product.filters <= _FEW
        and product.groups == 1
        and product.input_channels < 16
        and product.stride[1] * product.input_channels < 2 * _FEW
        and product.input_dilation == (1, 1)
        and product.kernel_dilation[1] == 1
        and product.kernel_size[0] * product.kernel_size[1] * product.input_channels <= 128
    )


def _attach(compiled: Compiled, body: Body) -> None:
    """Merges kernels into the products and convolutions that they finish."""
    for thunk, stored in zip([*body.thunks], body.graph.results, strict=True):
        if thunk and stored is not None and (reason := _attached(body, stored)):
            compiled.missed(thunk, reason)


def _attached(body: Body, stored: Value) -> str:
    """Merges a kernel into the nearest product before it. If it finishes one and that isn't possible, says why."""
    reason = ""
    for way in sorted(finishes(stored), key=lambda way: -way.sum.since):
        here = way.sum.since
        product = body.thunks[here] if here >= 0 else None
        if (here >= 0 and product is None) or (isinstance(product, Product) and product.epilogue):
            reason = reason or "the product has another epilogue"
            continue
        if way.sum.op != "memory" or not isinstance(product, Product) or product.places[0] != way.sum.place:
            continue
        if unfit := _unfit(product, stored, way):
            reason = reason or unfit
            continue
        members = body.graph.between(stored, way.sum, *way.inputs) | {here}
        for at in (here, stored.since):
            if not (illegal := _finish(body, members, product, way, at)):
                return ""
            reason = reason or illegal
        if _staged(body, members, product, way):
            return ""
    return reason


def _staged(body: Body, members: set[int], product: Product, way: Finish) -> bool:
    """Moves the input of a product to a buffer of its own, if that lets the product have an epilogue.

    The compiler lets the epilogue's result overlap the input if nothing reads the input after the kernel starts. The input can move
    if another product computes it right before.
    """
    here = way.sum.since
    index = next((position for position in reversed(range(here)) if body.thunks[position]), here)
    before = body.thunks[index]
    if not isinstance(before, Product) or before.epilogue is None:
        return False
    moved = before.epilogue.out, before.places[0][1]
    own = Slice(len(body.function.buffers), 0)
    if getattr(product, product.sides[0]) != moved[0] or moved not in product.places[1:]:
        return False
    if any(at.buffer == own.buffer for at, _ in before.places):
        return False
    left: dict[str, Any] = {product.sides[0]: own}
    changed = dataclasses.replace(body, thunks=[*body.thunks])
    if _finish(changed, members, dataclasses.replace(product, **left), way, here) or changed.is_used(moved, index):
        return False
    body.added[:] = [Buffer(max(moved[1], *(buffer.size for buffer in body.added), 0), "temp", None, None)]
    epilogue = dataclasses.replace(before.epilogue, out=own)
    out = own if before.out == before.epilogue.out else before.out
    changed.thunks[index] = dataclasses.replace(before, out=out, epilogue=epilogue)
    body.thunks[:] = changed.thunks
    return True


def _finish(body: Body, members: set[int], product: Product, way: Finish, at: int) -> str:
    """Puts a product with an epilogue in the place of a member, or returns why that isn't legal."""
    here, last = way.sum.since, max(members)

    def call(stored: Sequence[int]) -> Product | None:
        if not {*stored} <= {here, last}:
            return None
        epilogue = way.epilogue
        if here in stored:
            return dataclasses.replace(product, epilogue=epilogue)
        if epilogue.addend == epilogue.out:  # the product keeps its place to work in
            return dataclasses.replace(product, epilogue=dataclasses.replace(epilogue, scratch=True))
        return dataclasses.replace(product, out=epilogue.out, epilogue=epilogue)

    _, *reads = product.places
    inputs = [(body.since(place, here), place) for place in reads]
    inputs += [(value.since, value.place) for value in way.inputs if value.place]
    return body.merge(members, inputs, call, at)


def _unfit(product: Product, stored: Value, way: Finish) -> str:
    """Returns why a product can't have an epilogue, or why it wouldn't be faster."""
    _, size = product.places[0]
    if product.dtype not in ("float", "double"):
        return f"the product is in {product.dtype}"
    if stored.type.dtype != {"float": "f32", "double": "f64"}[product.dtype]:
        return f"it is in {stored.type.dtype}"
    width = SIZES[product.dtype]
    columns = product.columns
    if columns < _NARROW and size > width * columns * _ROWS and not _shares_vectors(product):
        return f"more than {_ROWS} rows have fewer than {_NARROW} columns"
    sizes = {"bias": width * columns, "addend": size, "addend_bias": width * columns}
    if stored.place is None or stored.place[1] != size or way.columns not in (None, columns):
        return "it has other columns than the product"
    if any(place[1] != sizes[name] for name, place in way.places.items()):
        return "it has other columns than the product"
    if way.epilogue.scale != 1 and size > _LARGEST_STEP:
        return f"the variable has more than {_LARGEST_STEP} bytes"
    return ""
