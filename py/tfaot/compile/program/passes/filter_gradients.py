"""The pass `filter_gradients`: gradients of a convolution by its kernel read their operands where they lie.

XLA writes such a gradient as a convolution whose channels are the images of the batch, and first copies both operands in
another order. The pass finds a convolution of two copies, and calls the runtime with the originals
(`runtime/tfaot/kernels/filter_gradient.h`): a tile has the sums of up to 12 adjacent values of the kernel for two vectors of
filters, and each step multiplies broadcast values of the input by the filters' vectors. With 4 or 8 filters, a vector has those
of several outputs. Threads share the taps of the kernel, and filters.

Applies to float32 convolutions in one group and without dilation, with any stride and padding, outside of loops. Filters are a
multiple of 16, or they are 4 or 8 and the stride times the channels is less than 8. Doesn't apply if XLA computes something as
it copies, such as the gradient of a batch norm.

conv + fc's gradient (2 × 2, 3 channels, 4 filters, 64 images of 28 × 28) takes 57 instead of 148 µs, and a CNN's (3 × 3, 32
channels, 64 filters, 32 images of 16 × 16) 1,053 instead of 1,190, at the core's peak.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tfaot.compile.program.thunks.accesses import is_needed, overlap
from tfaot.compile.program.thunks.compiled import Compiled, Missed, unnoted
from tfaot.compile.program.thunks.kinds import (
    SIZES,
    CompiledFunction,
    Convolution,
    FilterGradient,
    Kernel,
    Place,
    Thunk,
)
from tfaot.compile.program.values.copies import copies, order
from tfaot.xla.module import Computation

_VECTOR = 16
"""Values in the widest vector."""
_FEW = (4, 8)
"""Filters of which a vector can have those of several outputs."""
_MOST_STEP = 8
"""With few filters, a vector must have the input of several outputs, which are this far apart at most."""


def filter_gradients(compiled: Compiled) -> int:
    """Replaces convolutions at all CPU levels.

    Returns:
      The number of gradients at the level with the most.
    """
    known = compiled.kernels(copies)
    compiled.change(lambda function: replace(function, known, compiled.missed))
    return compiled.most(lambda each: isinstance(each, FilterGradient))


def replace(function: CompiledFunction, known: dict[str, Computation], missed: Missed = unnoted) -> CompiledFunction:
    """Replaces convolutions of two copies by gradients of their originals, and removes copies that nothing else reads.

    Loops stay: what a step writes, the next one may read.

    Args:
      function: the function from tfcompile's header.
      known: the result of `copies` for its kernels.
      missed: is told of convolutions of one copy that stay.
    """
    temporary = function.temporary
    sequence = list(function.thunks)
    made: set[int] = set()
    """The indices of copies that a gradient no longer reads."""
    for index, thunk in enumerate(sequence):
        if not isinstance(thunk, Convolution) or not _is_gradient(thunk):
            continue
        _, image, kernel = thunk.places
        batch, (x, y), channels = thunk.input_channels, thunk.input_size, thunk.batch
        input_copy = _copy(sequence, index, image, (batch, x, y, channels), (3, 1, 2, 0), known)
        gradient_copy = _copy(sequence, index, kernel, (batch, *thunk.kernel_size, thunk.filters), (1, 2, 0, 3), known)
        if input_copy is None or gradient_copy is None:
            if input_copy is not gradient_copy:
                operand = "input" if input_copy is None else "gradient"
                missed(thunk, f"its {operand} isn't a copy that XLA only made in another order, or has changed since")
            continue
        gradient = FilterGradient(
            out=thunk.out,
            input=sequence[input_copy].places[0][0],
            gradient=sequence[gradient_copy].places[0][0],
            batch=batch,
            input_size=thunk.input_size,
            channels=channels,
            kernel_size=thunk.output_size,
            filters=thunk.filters,
            output_size=thunk.kernel_size,
            stride=thunk.kernel_dilation,
            padding=thunk.padding_before,
        )
        result, *operands = gradient.places
        if not any(overlap(result, each) for each in operands):
            sequence[index] = gradient
            made |= {input_copy, gradient_copy}
        else:
            missed(thunk, "its result is where the originals of its operands are")
    for index in sorted(made, reverse=True):
        if not is_needed(sequence[index].places[1], sequence[index + 1 :], temporary):
            del sequence[index]
    return dataclasses.replace(function, thunks=tuple(sequence))


def _is_gradient(convolution: Convolution) -> bool:
    """Returns whether a convolution can be a gradient that the runtime computes, if its operands are copies."""
    c = convolution
    step = c.kernel_dilation[1] * c.batch
    return (
        c.dtype == "float"
        and c.groups == 1
        and c.epilogue is None
        and c.packing == "none"
        and c.stride == (1, 1)
        and c.input_dilation == (1, 1)
        and (c.filters % _VECTOR == 0 or (c.filters in _FEW and step < _MOST_STEP))
    )


def _copy(
    sequence: list[Thunk],
    index: int,
    copied: Place,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    known: dict[str, Computation],
) -> int | None:
    """Returns the index of the thunk that makes an operand, as a transpose of floats that are still there at the end.

    Args:
      sequence: thunks.
      index: that of the thunk that reads the operand.
      copied: the operand.
      shape: of the original.
      axes: the original's axes in the order in which the operand has them.
      known: as in `replace`.
    """
    written: list[Place] = []
    for before in reversed(range(index)):
        thunk = sequence[before]
        copy = known.get(thunk.symbol) if isinstance(thunk, Kernel) else None
        if isinstance(thunk, Kernel) and copy is not None and len(thunk.args) == 2 and thunk.places[1] == copied:
            original = thunk.places[0]
            if any(overlap(original, each) for each in (copied, *written)):
                return None
            indices = np.arange(np.prod(shape)).reshape(shape).transpose(axes).ravel()
            same = original[1] == copied[1] == SIZES["float"] * indices.size
            return before if same and np.array_equal(order(copy), indices) else None
        written += thunk.uses().changes
        if any(overlap(copied, each) for each in thunk.uses().changes):
            return None
    return None
