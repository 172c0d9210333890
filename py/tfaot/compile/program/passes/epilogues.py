"""The pass `epilogues`: merges bias, bounds, sums with another value, and SGD into the product or convolution before them.

XLA computes these in a separate kernel, which goes over all values once more. After a convolution with few operations per
value, that takes up to a sixth of the convolution's time. Our products and convolutions do the same to their sums, in the same
order, while the sums are in a register or in the nearest cache (docs/internals/kernels.md). SGD is variable - rate * gradient,
if a product computes the gradient.

Applies to float32 and float64 products and convolutions that call the runtime. SGD needs a constant rate, and a variable of up
to 4 MB. `finishes.py` reads what a kernel computes from the optimized HLO, strictly. The result can be written while operands
are still read: an input that the compiler has placed under the result gets its own buffer. Calls in between have nothing to do
with what the kernel reads and writes. Results under 8 columns and over 64 rows are excluded, except where a vector has several
outputs.

XLA's kernels in MobileNetV2 take 198 instead of 1,205 of 7,947 µs (Zen 3, AVX2). Activations with exponentials, such as swish
and GELU, gain nothing as epilogues: their arithmetic is the bound.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tfaot.compile.program.thunks.accesses import is_needed, overlap
from tfaot.compile.program.thunks.compiled import Compiled, Missed, unnoted
from tfaot.compile.program.thunks.kinds import (
    SIZES,
    Buffer,
    CompiledFunction,
    Convolution,
    Dot,
    Epilogue,
    Kernel,
    SizedSlice,
    Slice,
    Thunk,
)
from tfaot.compile.program.values.finishes import Finish

_NARROW, _ROWS = 8, 64
"""With fewer columns than fill a vector, and more rows than this, finishing each row costs more than a kernel over all."""

_LARGEST_STEP = 1 << 22
"""The most bytes of a variable that a product's epilogue changes. Tiles go through it in another order than memory's, which takes
longer than a pass of its own if the caches don't hold it."""

_FEW = 4
"""Half of a vector of 32 bytes."""


def epilogues(compiled: Compiled) -> int:
    """Attaches kernels at all CPU levels.

    Returns:
      The number of products and convolutions that have an epilogue at the level with the most.
    """
    compiled.change(lambda function: attach(function, compiled.finishes, compiled.missed))
    return compiled.most(lambda each: isinstance(each, Dot | Convolution) and each.epilogue is not None)


def attach(
    function: CompiledFunction, known: Mapping[str, tuple[Finish, ...]], missed: Missed = unnoted
) -> CompiledFunction:
    """Merges kernels into the products and convolutions that they finish.

    Args:
      function: the function from tfcompile's header.
      known: the result of `finishes` for its kernels.
      missed: is told of kernels that finish a product but stay.

    Returns:
      A function with the same results. It may have one more buffer.
    """
    attacher = _Attacher(len(function.buffers), known, missed)
    sequence = attacher.sequence(function.thunks)
    staging = (Buffer(attacher.bytes, "temp", None, None),) if attacher.bytes else ()
    temporary = function.temporary
    in_place = tuple(_in_place(thunk, sequence[index + 1 :], temporary) for index, thunk in enumerate(sequence))
    return dataclasses.replace(function, buffers=function.buffers + staging, thunks=in_place)


def _in_place(thunk: Thunk, after: tuple[Thunk, ...], temporary: set[int]) -> Thunk:
    """Writes a product directly to its epilogue's result if nothing needs the product without the epilogue.

    If the epilogue needs what is there, the product keeps its place to work in.
    """
    if not isinstance(thunk, Dot | Convolution) or not thunk.epilogue:
        return thunk
    if is_needed(thunk.places[0], after, temporary):
        return thunk
    to = thunk.epilogue.out
    if thunk.epilogue.addend == to:
        return dataclasses.replace(thunk, epilogue=dataclasses.replace(thunk.epilogue, scratch=True))
    return dataclasses.replace(thunk, out=to)


def _may_move(kernel: Kernel, thunk: Thunk) -> bool:
    """Returns whether a kernel with one result may move before a thunk that it follows."""
    *reads, result = kernel.places
    uses = thunk.uses()
    return not any(overlap(result, each) for each in (*uses.reads, *uses.writes)) and not any(
        overlap(read, each) for read in reads for each in uses.changes
    )


def _shares_vectors(product: Dot | Convolution) -> bool:
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


class _Attacher:
    """Attaches a function's kernels. If a kernel's result overlaps an input, moves the input to a buffer of its own.

    The compiler lets them overlap if nothing reads the input after the kernel starts. The input can move if one of our
    products computes it right before.
    """

    def __init__(self, staging: int, known: Mapping[str, tuple[Finish, ...]], missed: Missed) -> None:
        self._staging = Slice(staging, 0)
        self._known = known
        self._missed = missed
        self.bytes = 0

    def sequence(self, sequence: tuple[Thunk, ...]) -> tuple[Thunk, ...]:
        result: list[Thunk] = []
        for thunk in sequence:
            if not (isinstance(thunk, Kernel) and self._known.get(thunk.symbol) and self._attach(thunk, result)):
                result.append(thunk.with_bodies(self.sequence))
        return tuple(result)

    def _attach(self, kernel: Kernel, result: list[Thunk]) -> bool:
        """Merges a kernel into one of the products before it, if possible. Returns whether it did."""
        reason = ""
        for index in reversed(range(len(result))):
            product = result[index]
            if isinstance(product, Dot | Convolution) and not product.epilogue:
                epilogue = self._epilogue(product, kernel)
                if isinstance(epilogue, Epilogue):
                    result[index] = dataclasses.replace(product, epilogue=epilogue)
                    return True
                reason = reason or epilogue
                # Other thunks in between may read the input.
                before = result[index - 1] if index and product is result[-1] else None
                if isinstance(before, Dot | Convolution) and (both := self._staged(before, product, kernel)):
                    result[index - 1 : index + 1] = both
                    return True
            if not _may_move(kernel, product):
                if self._may_finish(kernel, product):
                    reason = reason or "the product has another epilogue"
                elif any(self._may_finish(kernel, each) for each in result[:index]):
                    reason = f"{product.title or 'a loop'} in between uses what it reads or writes"
                break
        if reason:
            self._missed(kernel, reason)
        return False

    def _may_finish(self, kernel: Kernel, product: Thunk) -> bool:
        """Returns whether a kernel may read a product's result as what it finishes."""
        if not isinstance(product, Dot | Convolution):
            return False
        place, size = product.places[0]
        result = SizedSlice(product.epilogue.out if product.epilogue else place, size)
        ways = self._known[kernel.symbol]
        return any(len(kernel.args) == way.arguments and kernel.args[way.value] == result for way in ways)

    def _staged(
        self, before: Dot | Convolution, product: Dot | Convolution, kernel: Kernel
    ) -> tuple[Dot | Convolution, Dot | Convolution] | None:
        _, *reads = product.places
        # A product of columns has the rows on its right side.
        place = product.rhs if isinstance(product, Dot) else product.input
        inputs = [each for each in reads if each[0] == place]
        if before.epilogue is None or inputs != [(before.epilogue.out, before.places[0][1])]:
            return None
        (moved,) = inputs
        others = [each for each in reads if each[0] != place]
        others += [(arg.slice, arg.size) for arg in kernel.args[:-1]]
        if any(overlap(moved, other) for other in others):
            return None
        if any(at.buffer == self._staging.buffer for at, _ in before.places):
            return None
        there: Dot | Convolution
        if isinstance(product, Dot):
            there = dataclasses.replace(product, rhs=self._staging)
        else:
            there = dataclasses.replace(product, input=self._staging)
        epilogue = self._epilogue(there, kernel)
        if not isinstance(epilogue, Epilogue):
            return None
        self.bytes = max(self.bytes, moved[1])
        to_staging = dataclasses.replace(before.epilogue, out=self._staging)
        return dataclasses.replace(before, epilogue=to_staging), dataclasses.replace(there, epilogue=epilogue)

    def _epilogue(self, product: Dot | Convolution, kernel: Kernel) -> Epilogue | str:
        """Returns what a kernel does to a product's result, or why our code can't do it too; nothing if it does something else."""
        if not self._may_finish(kernel, product):
            return ""
        if product.dtype not in ("float", "double"):
            return f"the product is in {product.dtype}"
        (out, size), *operands = product.places
        columns = product.m if isinstance(product, Dot) else product.filters
        if columns < _NARROW and size > SIZES[product.dtype] * columns * _ROWS and not _shares_vectors(product):
            return f"more than {_ROWS} rows have fewer than {_NARROW} columns"
        args, reason = kernel.args, "it has other columns than the product"
        for way in self._known.get(kernel.symbol, ()):
            to = args[-1].slice
            biases = [args[index] for index in (way.bias, way.addend_bias) if index is not None]
            addends = [args[index] for index in (way.addend,) if index is not None]
            if (
                len(args) != way.arguments
                or args[way.value] != SizedSlice(out, size)
                or any(each.size != size for each in (*addends, args[-1]))
                or way.columns != columns
                or any(each.size != SIZES[product.dtype] * columns for each in biases)
            ):
                continue
            if way.scale != 1 and size > _LARGEST_STEP:
                reason = f"the variable has more than {_LARGEST_STEP} bytes"
                continue
            # Values are finished while others are still being computed. What an epilogue reads must not be overwritten before.
            written = [(out, size)] if to == out else [(out, size), (to, size)]
            read = [*operands, *((each.slice, each.size) for each in (*biases, *addends) if each.slice != to)]
            reason = "its result is where the product still reads"
            if any(overlap(a, b) for a in written for b in read) or (len(written) == 2 and overlap(*written)):
                continue
            if any(each.slice == to for each in biases) or any(each.slice == out for each in addends):
                continue

            def at(index: int | None) -> Slice | None:
                return None if index is None else args[index].slice

            return Epilogue(at(way.bias), at(way.addend), at(way.addend_bias), to, way.low, way.high, way.scale)
        return reason
