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

import numpy as np

from tfaot.compile.program.thunks.accesses import Body
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import SIZES, Convolution, FilterGradient, Place
from tfaot.compile.program.values.copies import order, original
from tfaot.compile.program.values.graph import Graph, Value

_VECTOR = 16
"""Values in the widest vector."""
_FEW = (4, 8)
"""Filters of which a vector can have those of several outputs."""
_MOST_STEP = 8
"""With few filters, a vector must have the input of several outputs, which are this far apart at most."""


def filter_gradients(compiled: Compiled) -> int:
    """Replaces convolutions at all CPU levels, and returns the number of gradients at the level with the most."""
    compiled.rewrite(lambda body: _replace(compiled, body))
    return compiled.most(lambda thunk: isinstance(thunk, FilterGradient))


def _replace(compiled: Compiled, body: Body) -> None:
    """Replaces convolutions of two copies by gradients of their originals, and removes copies that nothing else reads."""
    copies: set[int] = set()
    """The indices of copies that a gradient no longer reads."""
    for index, thunk in enumerate(body.thunks):
        if not isinstance(thunk, Convolution) or not _is_gradient(thunk):
            continue
        _, image, kernel = thunk.places
        batch, (x, y), channels = thunk.input_channels, thunk.input_size, thunk.batch
        input_copy = _copy(body.graph, index, image, (batch, x, y, channels), (3, 1, 2, 0))
        gradient_copy = _copy(body.graph, index, kernel, (batch, *thunk.kernel_size, thunk.filters), (1, 2, 0, 3))
        if input_copy is None or gradient_copy is None:
            if input_copy is not gradient_copy:
                operand = "input" if input_copy is None else "gradient"
                compiled.missed(thunk, f"its {operand} isn't a copy that XLA only made in another order")
            continue
        originals = [(array.since, array.place) for array in map(original, (input_copy, gradient_copy)) if array]
        inputs = [(since, place) for since, place in originals if place]
        gradient = FilterGradient(
            out=thunk.out,
            input=inputs[0][1][0],
            gradient=inputs[1][1][0],
            batch=batch,
            input_size=thunk.input_size,
            channels=channels,
            kernel_size=thunk.output_size,
            filters=thunk.filters,
            output_size=thunk.kernel_size,
            stride=thunk.kernel_dilation,
            padding=thunk.padding_before,
        )
        if reason := body.merge({index}, inputs, gradient, index):
            compiled.missed(thunk, reason)
        else:
            copies |= {input_copy.since, gradient_copy.since}
    for index in sorted(copies, reverse=True):
        copy = body.thunks[index]
        if copy and not body.is_used(copy.places[-1], index):
            body.thunks[index] = None


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


def _copy(graph: Graph, index: int, copied: Place, shape: tuple[int, ...], axes: tuple[int, ...]) -> Value | None:
    """Returns the copy that an operand of a thunk is, if it is floats of some shape, whose axes it has in this order."""
    stored = graph.stored(copied, index)
    array = original(stored) if stored else None
    if stored is None or array is None or array.place is None:
        return None
    indices = np.arange(np.prod(shape)).reshape(shape).transpose(axes).ravel()
    same = array.place[1] == copied[1] == SIZES["float"] * indices.size
    return stored if same and np.array_equal(order(stored), indices) else None
