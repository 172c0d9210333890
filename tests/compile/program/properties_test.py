"""Random programs before and after each pass on programs: what anything can see in memory after a run stays the same.

Thunks meet in few places of few buffers, so kernels compute in place, overwrite each other's results, and overlap in parts.
Some are in loops and branches. Numbers are integers modulo a prime, so that sums are the same in any order.

`TFAOT_DRAWS=10` in the environment draws ten times as many programs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import random
import unittest
from collections.abc import Callable, Mapping, Sequence
from unittest import mock

import numpy as np
import numpy.typing as npt

from tests.compile.program import column_reduction_test, narrow_test, transposes_test
from tests.compile.program.cells import PRIME, Cells, Meaning, constant, evaluate, function, times
from tests.compile.program.cells import meanings as of_hlo
from tests.compile.program.changed import NO_KERNELS, changed, with_products
from tests.xla.hlo import kernels, parsed
from tfaot.compile.program.packing import gemv_packing, loops, narrow, prepack, winograd
from tfaot.compile.program.packing import layouts as packing
from tfaot.compile.program.passes import (
    column_reduction,
    elementwise_fusion,
    epilogues,
    filter_gradients,
    mlp_fusion,
    row_fusion,
    transpose_folding,
    transposes,
)
from tfaot.compile.program.thunks.accesses import overlap
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import (
    SIZES,
    Buffer,
    Call,
    ColumnSums,
    CompiledFunction,
    Conditional,
    Convolution,
    Copy,
    DenseNet,
    Dot,
    Epilogue,
    FilterGradient,
    For,
    Kernel,
    Pack,
    Place,
    RowCopies,
    Slice,
    Sweep,
    Thunk,
    While,
)
from tfaot.compile.program.values.formulas import Operation
from tfaot.compile.program.values.stages import stages

DRAWS = float(os.environ.get("TFAOT_DRAWS", "1"))
"""How many times as many programs to draw."""

UNKNOWN = "unknown"
"""A kernel that isn't known to have one result. It writes its first argument."""


class Machine:
    """Memory of one word for each four bytes."""

    def __init__(
        self, function: CompiledFunction, meanings: Mapping[str, Meaning], seed: int, contents: Mapping[str, bytes]
    ) -> None:
        rng = np.random.default_rng(seed)
        self.buffers = [rng.integers(0, PRIME, buffer.size // 4) for buffer in function.buffers]
        self._meanings = meanings
        self._contents = {}
        filled = (index for index, buffer in enumerate(function.buffers) if buffer.kind == "constant")
        for index, symbol in zip(filled, function.constants, strict=True):
            self._contents[index] = contents[symbol]
            self.buffers[index] = words(np.frombuffer(contents[symbol], np.float32))

    def at(self, place: Slice, size: int) -> Cells:
        """Returns a view of a place, given its bytes."""
        return self.buffers[place.buffer][place.offset // 4 :][: size // 4]

    def run(self, thunks: Sequence[Thunk]) -> list[Cells]:
        """Runs thunks, and returns the memory. Loops end after three rounds."""
        for thunk in thunks:
            if isinstance(thunk, Call):
                self.run(thunk.body)
            elif isinstance(thunk, For):
                for _ in range(min(thunk.trips, 3)):
                    self.run(thunk.body)
            elif isinstance(thunk, While):
                for _ in range(3):
                    self.run(thunk.condition)
                    if self.at(thunk.flag, 4)[0] % 4 == 0:
                        break
                    self.run(thunk.body)
            elif isinstance(thunk, Conditional):
                self.run(thunk.branches[self.at(thunk.index, 4)[0] % len(thunk.branches)])
            else:
                self._step(thunk)
        return self.buffers

    def _step(self, thunk: Thunk) -> None:
        # Calls of the runtime write while they read. The layers of a net run one after another.
        for each in [DenseNet((layer,)) for layer in thunk.layers] if isinstance(thunk, DenseNet) else [thunk]:
            for place, other in itertools.product(each.uses().writes, each.places):
                assert place == other or not overlap(place, other), f"a result overlaps a part of something: {each}"
        if isinstance(thunk, Kernel):
            args = [self.at(*place) for place in thunk.args]
            if thunk.symbol == UNKNOWN:
                args[0][:] = function(UNKNOWN, args[0], args[-1].sum())
            else:
                args[-1][:] = self._meanings[thunk.symbol]([each.copy() for each in args[:-1]]).ravel()
        elif isinstance(thunk, Copy):
            self.at(thunk.out, thunk.size)[:] = self.at(thunk.input, thunk.size)
        elif isinstance(thunk, Sweep):
            self._sweep(thunk)
        elif isinstance(thunk, Dot):
            self._dot(thunk)
        elif isinstance(thunk, DenseNet):
            for layer in thunk.layers:
                end = layer.epilogue or Epilogue(None, None, None, layer.out, -math.inf, math.inf)
                result = product(self.at(*layer.places[2]), self.at(*layer.places[1]), layer.m)
                bias = self.at(end.addend, 4 * layer.m) if end.addend else None
                self.at(*layer.places[0])[:] = finished(result, bias, None, end.low, end.high)
        elif isinstance(thunk, RowCopies):
            index = transposes_test.of(thunk.first, (*thunk.loops, (thunk.row, 1)))
            self.at(thunk.out, thunk.size)[:] = self.at(thunk.input, thunk.input_size)[index]
        elif isinstance(thunk, ColumnSums):
            (out, out_size), given = thunk.places
            values = self.at(*given).reshape(thunk.arrays, thunk.rows, thunk.columns)
            ends = [0, *(thunk.first + thunk.step * block for block in range(thunk.blocks))]
            sums = [values[:, begin:end].sum(1) for begin, end in itertools.pairwise(ends)]
            self.at(out, out_size)[:] = np.stack(sums, 1).ravel() % PRIME
        elif isinstance(thunk, Pack):
            out, given = thunk.places
            shape = (thunk.columns, thunk.depth) if thunk.transposed else (thunk.depth, thunk.columns)
            values = self.at(*given).reshape(*shape, -1)
            rows = (values.swapaxes(0, 1) if thunk.transposed else values).reshape(thunk.depth, -1)
            rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 16)))
            self.at(*out)[:] = rows.reshape(thunk.depth, -1, 16).transpose(1, 0, 2).ravel()
        else:
            assert isinstance(thunk, Convolution | FilterGradient)
            self._convolve(thunk)

    def _convolve(self, thunk: Convolution | FilterGradient) -> None:
        out, image, other = thunk.places
        pixels = self.at(*image).reshape(thunk.batch, *thunk.input_size, -1)
        result = np.zeros((*thunk.output_size, thunk.batch, thunk.filters), np.int64)
        taps = itertools.product(*map(range, thunk.kernel_size))
        if isinstance(thunk, FilterGradient):
            gradient = self.at(*other).reshape(1, -1, thunk.filters)
            result = np.zeros((thunk.channels, *thunk.kernel_size, thunk.filters), np.int64)
            for x, y in taps:
                starts = x - thunk.padding[0], y - thunk.padding[1]
                patch = moved(pixels, starts, thunk.stride, thunk.output_size).reshape(1, -1, thunk.channels)
                result[:, x, y] = product_of(patch.swapaxes(1, 2), gradient)[0]
            self.at(*out)[:] = result.ravel()
            return
        assert (thunk.groups, thunk.input_dilation) == (1, (1, 1))
        simple = thunk.kernel_size == (3, 3) and thunk.stride == thunk.kernel_dilation == (1, 1)
        assert thunk.packing != "winograd" or simple, thunk
        depth = math.prod(thunk.kernel_size) * thunk.kernel_channels
        kernel = self.right(thunk.kernel, thunk.packing, thunk.dtype, depth, thunk.filters)
        kernel = kernel.reshape(*thunk.kernel_size, thunk.kernel_channels, thunk.filters)
        result = np.zeros((thunk.batch * math.prod(thunk.output_size), thunk.filters), np.int64)
        for tap in taps:
            starts = [
                at * dilation - before
                for at, dilation, before in zip(tap, thunk.kernel_dilation, thunk.padding_before, strict=True)
            ]
            patch = moved(pixels, starts, thunk.stride, thunk.output_size).reshape(1, -1, thunk.input_channels)
            result = (result + product_of(patch, kernel[tap][None])[0]) % PRIME
        self.at(*out)[:] = result.ravel()

    def right(self, at: Slice, packed: str, dtype: str, depth: int, columns: int) -> Cells:
        """Returns a right side [depth, columns], by the definition of its packing."""
        width = SIZES[dtype] // 4
        if packed in ("none", "panels", "float32"):
            panel = {"none": width * columns, "panels": 16, "float32": 32}[packed]
            panels = -(-columns * width // panel)
            stored = self.at(at, 4 * panels * depth * panel).reshape(panels, depth, panel)
            rows = stored.swapaxes(0, 1).reshape(depth, -1)[:, : columns * width]
            return whole(rows.reshape(depth, columns, width))
        contents = self._contents[at.buffer]
        if packed == "winograd":
            return words(untransformed(np.frombuffer(contents, np.float32), depth // 9, columns))
        return words(narrow_test.unpacked(packed, contents, depth, columns))

    def _matrices(self, thunk: Dot, number: int) -> tuple[Cells, Cells]:
        """Returns memory, and in it the words at which values of a result (0), left (1), or right side (2) begin."""
        at = (thunk.out, thunk.lhs, thunk.rhs)[number]
        columns, values = thunk.stored[number]
        steps = thunk.strides[number], thunk.columns_apart[number] or values, 1
        index = sum(
            step * numbers for step, numbers in zip(steps, np.ogrid[: thunk.batch, :columns, :values], strict=True)
        )
        return self.buffers[at.buffer], at.offset // 4 + SIZES[thunk.dtype] // 4 * np.asarray(index)

    def _dot(self, thunk: Dot) -> None:
        (_, size), *operands = thunk.places[:3]
        width = SIZES[thunk.dtype] // 4
        sides = []
        for number, transposed in ((1, thunk.transpose_lhs), (2, thunk.transpose_rhs)):
            if number == 1 and thunk.packing != "none":
                sides.append(self.right(thunk.lhs, thunk.packing, thunk.dtype, thunk.k, thunk.m)[None])
                continue
            memory, index = self._matrices(thunk, number)
            values = whole(memory[index[..., None] + np.arange(width)])
            sides.append(values.swapaxes(1, 2) if transposed else values)
        result = product_of(sides[1], sides[0])
        memory, index = self._matrices(thunk, 0)
        memory[index] = result
        memory[index + width - 1] = result
        if epilogue := thunk.epilogue:
            assert len(result) == 1 or not thunk.columns_apart[0], thunk
            size = 4 * result.size
            written = [(thunk.out, size), (epilogue.out, size)]
            operands += [(epilogue.bias, 4 * thunk.m)] if epilogue.bias else []
            # The result with the epilogue may take the addend's place.
            assert epilogue.addend is None or not overlap((epilogue.addend, size), (thunk.out, size)), thunk
            bias = self.at(epilogue.bias, 4 * thunk.m) if epilogue.bias else None
            addend = None if epilogue.addend is None else self.at(epilogue.addend, size)
            if addend is not None and epilogue.addend_bias:
                addend = addend + np.tile(self.at(epilogue.addend_bias, 4 * thunk.m), result.size // thunk.m)
            final = finished(result.ravel(), bias, addend, epilogue.low, epilogue.high, epilogue.scale)
            if epilogue.scratch:
                self.at(thunk.out, size)[:] = function("anything", result.ravel())
            self.at(epilogue.out, size)[:] = final
        else:
            written = [thunk.places[0]]
        if thunk.packing not in packing.STREAMS:
            assert not any(overlap(a, b) for a in written for b in operands), f"a result overlaps an operand: {thunk}"

    def _sweep(self, thunk: Sweep) -> None:
        shape = thunk.rows, thunk.columns
        arrays = [self.at(each, 4 * shape[0] * shape[1]) for each in thunk.arrays]
        rows = [self.at(each, 4 * shape[0]) for each in thunk.values]

        def leaf(operation: Operation) -> Cells:
            at = operation.place
            if operation.opcode == "array":
                return arrays[at].reshape(shape).copy()
            if operation.opcode == "row":
                return rows[at].reshape(-1, 1).copy()
            if operation.opcode == "scalar":
                return self.at(thunk.scalars[at], 4)
            vector, numbers = thunk.formula.vectors[at], np.arange(shape[0])
            values = self.at(thunk.vectors[at], vector.bytes(*shape)).reshape(-1, 1 if vector.single else shape[1])
            return values[numbers // (vector.group or shape[0]) * vector.period + numbers % vector.period]

        reduced: dict[int, Cells] = {}
        for stage in stages(thunk.formula):
            values = evaluate(stage.operations, leaf, reduced)
            reduced |= {index: values[index] for index in stage.reductions}
            for place, index in stage.keeps:
                arrays[place][:] = values[index].ravel()
        for written, places in ((thunk.formula.arrays, arrays), (thunk.formula.values, rows)):
            for place, value in written:
                places[place][:] = np.broadcast_to(values[value], (shape[0], places[place].size // shape[0])).ravel()


def words(values: npt.NDArray[np.float32]) -> Cells:
    """Returns floats as words. Zeros of both signs are one."""
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.int64)
    return np.where(bits == 1 << 31, 0, bits) % PRIME


def whole(values: Cells) -> Cells:
    """Returns a number for each value, given its words along the last axis."""
    return values[..., 0] if values.shape[-1] == 1 else (values[..., 0] + 48271 * values[..., 1]) % PRIME


def product_of(lhs: Cells, rhs: Cells) -> Cells:
    """Returns products of matrices [batch, row, depth] and [batch, depth, column]."""
    result = np.zeros((*lhs.shape[:-1], rhs.shape[-1]), np.int64)
    for k in range(lhs.shape[-1]):
        result = (result + lhs[..., k, None] * rhs[..., None, k, :]) % PRIME
    return result


def product(row: Cells, matrix: Cells, columns: int) -> Cells:
    """Returns the product of a row and a matrix."""
    return product_of(row.reshape(1, 1, -1), matrix.reshape(1, -1, columns)).ravel()


def moved(image: Cells, starts: Sequence[int], steps: Sequence[int], counts: Sequence[int]) -> Cells:
    """Returns every few pixels of images [batch, x, y, channel] from a place on, with zeros outside."""
    for axis, (start, step, count) in enumerate(zip(starts, steps, counts, strict=True), 1):
        at = start + step * np.arange(count)
        inside = ((at >= 0) & (at < image.shape[axis])).reshape(-1, *[1] * (3 - axis))
        image = np.where(inside, image.take(at, axis, mode="clip"), 0)
    return image


def untransformed(points: npt.NDArray[np.float32], channels: int, filters: int) -> npt.NDArray[np.float32]:
    """Returns the kernel [9 * channel, filter] of which G g G^T are the transformed values, if none was rounded."""
    blocks = [points[at : at + 1024 * channels] for at in range(0, points.size, 1024 * channels)]
    parts = [block.reshape(16, -1, channels, 16).swapaxes(1, 2).reshape(16, channels, -1) for block in blocks]
    inverse = np.array([[1, 0, 0, 0], [0, 1, -1, 0], [0, 0, 0, 1]])
    values = np.concatenate(parts, 2)[..., :filters].reshape(4, 4, channels, filters).astype(np.float64)
    return np.einsum("xi,yj,ijcf->xycf", inverse, inverse, values).astype(np.float32).reshape(-1, filters)


def finished(
    values: Cells, bias: Cells | None, addend: Cells | None, low: float, high: float, scale: float = 1.0
) -> Cells:
    """Returns final values, as in `thunks.Epilogue`."""
    if scale != 1:
        values = times(values, scale)
    if bias is not None:
        values = values + np.tile(bias, values.size // bias.size)
    if addend is not None:
        values = values + addend
    values = values % PRIME
    values = values if low == -math.inf else np.maximum(values, constant(low))
    return values if high == math.inf else np.minimum(values, constant(high))


class Draw:
    """A random program over buffers, the last two of which are kept after a run."""

    COUNT = 5
    SIZE = 3
    """In arrays."""

    def __init__(self, seed: int, array: int) -> None:
        self.random = random.Random(seed)
        self._array = array
        self._written: dict[int, list[Slice]] = {}
        self._last: tuple[Place, ...] = ()
        self.constants: dict[str, int] = {}
        """Sizes of constants, by symbol. Their buffers come after the others."""
        self.sizes = [self.SIZE * array] * self.COUNT
        kinds = ["temp"] * (self.COUNT - 2) + ["parameter"] * 2
        self._buffers = tuple(Buffer(size, kind, None, None) for size, kind in zip(self.sizes, kinds, strict=True))

    def place(self, size: int) -> Slice:
        """Returns where some bytes are, often those that were written last."""
        written = self._written.get(size, [])
        if written and self.random.random() < 0.6:
            return self.random.choice([*written[-3:], written[-1]])
        step = self.random.choice([self._array, self._array, self._array // 2])
        return Slice(
            self.random.randrange(self.COUNT),
            step * self.random.randrange((self.SIZE * self._array - size) // step + 1),
        )

    def temporary(self, size: int) -> Slice:
        """Returns where some bytes are, mostly in a buffer that nobody has after a run."""
        place = self.place(size)
        return self.temporary(size) if place.buffer >= self.COUNT - 2 and self.random.random() < 0.8 else place

    def kernel(self, symbol: str, sizes: Sequence[int], *, in_place: Sequence[int] = ()) -> Kernel:
        """Returns a kernel whose result is an argument in whose place it may be, or overlaps none.

        Args:
          symbol: its symbol.
          sizes: the bytes of its arguments, the result last.
          in_place: arguments in whose place the result may be.
        """
        while True:
            *operands, out = [(self.place(size), size) for size in sizes]
            if self.random.random() < 0.3 and in_place:
                out = operands[self.random.choice([*in_place])]
            same = [index for index, each in enumerate(operands) if each == out]
            if all(index in in_place or not overlap(each, out) for index, each in enumerate(operands)) and all(
                index in same or not overlap(each, out) for index, each in enumerate(operands)
            ):
                self._written.setdefault(out[1], []).append(out[0])
                self._last = (*operands, out)
                return Kernel(symbol, self._last, (1, 1, 1), single=symbol != UNKNOWN)

    def dot(self, depth: int, columns: int, right: Slice | None = None) -> Dot:
        """Returns a product of a few rows of some dtype, which may read any place as its right side, by rows or by columns."""
        dtype = self.random.choice(["float", "float", "float", "int32_t", "double"])
        width = SIZES[dtype] // 4
        if right is not None and columns % width:
            return self.dot(depth, columns, right)
        rows, columns = self.random.choice([1, 2, 3]), columns // width if right else columns
        sizes = [SIZES[dtype] * each for each in (depth * columns, rows * depth, rows * columns)]
        *sides, (rhs, out) = self.place(sizes[0]), (at for at, _ in self.kernel("", sizes[1:]).args)
        lhs = right or sides[0]
        if overlap((lhs, sizes[0]), (out, sizes[2])):
            return self.dot(depth, columns * width if right else columns, right)
        strides = rows * columns, depth * columns, rows * depth
        transposed = self.random.random() < 0.4, self.random.random() < 0.4
        return Dot(dtype, 1, out, lhs, rhs, strides, columns, rows, depth, *transposed)

    def over(self) -> Thunk:
        """Returns something that writes, or may write, some bytes of an argument of the last kernel."""
        at, room = self.random.choice(self._last)
        size = 4 * self.random.randint(1, room // 4)
        out = Slice(at.buffer, at.offset + 4 * self.random.randint(0, (room - size) // 4))
        given = self.place(size)
        if overlap((given, size), (out, size)):
            return self.over()
        if self.random.random() < 0.2:
            return Kernel(UNKNOWN, ((given, size), (out, size)), (1, 1, 1))
        return Copy(out, given, size)

    def other(self) -> Thunk:
        """Returns a thunk that no pass merges."""
        size = self.random.choice([self._array, self._array // 2])
        if self.random.random() < 0.2:
            return self.kernel(UNKNOWN, (size, size))
        while True:
            out, given = self.place(size), self.place(size)
            if not overlap((out, size), (given, size)):
                return Copy(out, given, size)

    def nested(self, thunks: list[Thunk]) -> list[Thunk]:
        """Returns thunks of which some may be in a loop or in branches."""
        if self.random.random() < 0.75:
            return thunks
        first, last = sorted(self.random.choices(range(len(thunks) + 1), k=2))
        body, flag = tuple(thunks[first:last]), self.place(4)
        nested = self.random.choice(
            [Call(body), For(8, body), While(flag, body[:1], body), Conditional(flag, False, (body, body[1:]))]
        )
        return [*thunks[:first], nested, *thunks[last:]]

    def function(self, thunks: Sequence[Thunk]) -> CompiledFunction:
        """Returns a function of thunks, which may have one of the buffers as its result."""
        constants = tuple(Buffer(size, "constant", None, None) for size in self.constants.values())
        results = (0,) if self.random.random() < 0.2 else ()
        return CompiledFunction((*self._buffers, *constants), (), results, tuple(self.constants), (), tuple(thunks))


def copying(kernels: Mapping[str, tuple[Sequence[int], int, Sequence[int]]], more: str = "") -> str:
    """Returns a module whose kernels copy arrays in another order: by their name, the shape, the first row, and the axes' order.

    Args:
      kernels: what each copies.
      more: more instructions of the entry computation.
    """

    def array(shape: Sequence[int]) -> str:
        return f"f32[{','.join(map(str, shape))}]{{{','.join(map(str, reversed(range(len(shape)))))}}}"

    text, entry = "HloModule m, is_scheduled=true\n", "ENTRY %main (x: f32[]) -> f32[] {\n"
    for index, (name, (shape, first, axes)) in enumerate(kernels.items()):
        cut = (shape[0] - first, *shape[1:])
        result = array([cut[axis] for axis in axes])
        ranges = ", ".join(f"[{begin}:{end}]" for begin, end in zip((first, *[0] * len(cut)), shape, strict=False))
        text += f"""
%of_{name} (p: f32[]) -> f32[] {{
  %p = {array(shape)} parameter(0)
  %part = {array(cut)} slice(%p), slice={{{ranges}}}
  %turned = {result} transpose(%part), dimensions={{{",".join(map(str, axes))}}}
  ROOT %copied = {result} copy(%turned)
}}
"""
        entry += f"  %x{index} = {array(shape)} parameter({index})\n"
        entry += f"  %{name} = {result} fusion(%x{index}), kind=kLoop, calls=%of_{name}\n"
    return f"{text}\n{entry}{more}}}\n"


def copied(shape: Sequence[int], first: int, axes: Sequence[int]) -> Meaning:
    """Returns what such a kernel computes."""
    return lambda args: args[0].reshape(shape)[first:].transpose(axes)


class PropertiesTest(unittest.TestCase):
    """Passes on random programs."""

    def compare(
        self,
        seeds: int,
        array: int,
        draw: Callable[[Draw], list[Thunk]],
        change: Callable[[CompiledFunction], CompiledFunction],
        meanings: Mapping[str, Meaning],
        *,
        share: float,
        contents: Mapping[str, bytes] | None = None,
    ) -> None:
        """Compares what is kept after runs before and after a pass.

        Args:
          seeds: how many programs to draw.
          array: the usual bytes of an array.
          draw: draws a program.
          change: runs the pass.
          meanings: what kernels compute, by symbol. Drawing may change it.
          share: the least share of programs that the pass must change.
          contents: constants, by symbol. Drawing and the pass may change it.
        """
        changed, count = 0, int(seeds * DRAWS)
        for seed in range(count):
            drawn = Draw(seed, array)
            before = drawn.function(drawn.nested(draw(drawn)))
            want = Machine(before, meanings, seed, contents or {}).run(before.thunks)
            after = change(before)
            changed += before.thunks != after.thunks
            got = Machine(after, meanings, seed, contents or {}).run(after.thunks)
            for index in range(Draw.COUNT):
                if index not in before.temporary and not np.array_equal(want[index], got[index]):
                    self.fail(
                        f"seed {seed}: buffer {index} differs:\n"
                        + "\n".join(map(str, (*before.thunks, "", *after.thunks)))
                    )
        self.assertGreater(changed, share * count)

    def test_sweeps(self) -> None:
        """Protects numbers: merged kernels leave what they left one after another, whatever they overwrite and read between."""
        shape = "f32[8]{0}"
        scale = f"b = {shape} broadcast(%p1), dimensions={{}}"
        formulas = {
            "root": ([shape], [f"r = {shape} sqrt(%p0)"]),
            "sum": ([shape] * 2, [f"r = {shape} add(%p0, %p1)"]),
            "product": ([shape] * 2, [f"a = {shape} multiply(%p0, %p1)", f"r = {shape} negate(%a)"]),
            "squares": ([shape] * 2, [f"a = {shape} multiply(%p0, %p0)", f"r = {shape} add(%p1, %a)"]),
            "scaled": ([shape, "f32[]"], [scale, f"a = {shape} multiply(%p0, %b)", f"r = {shape} subtract(%a, %p0)"]),
        }
        hlo = kernels({name: (*each, shape) for name, each in formulas.items()})

        def draw(drawn: Draw) -> list[Thunk]:
            thunks: list[Thunk] = []
            for _ in range(drawn.random.randint(2, 7)):
                name = drawn.random.choice([*formulas])
                sizes = [32 if each == shape else 4 for each in formulas[name][0]]
                in_place = [index for index, size in enumerate(sizes) if size == 32]
                thunks.append(
                    drawn.other()
                    if drawn.random.random() < 0.2
                    else drawn.kernel(f"m_{name}", (*sizes, 32), in_place=in_place)
                )
            return thunks

        run = elementwise_fusion.elementwise_fusion
        self.compare(2000, 32, draw, lambda function: changed(run, hlo, function), of_hlo(hlo), share=0.2)

    def test_row_fusion(self) -> None:
        """Protects numbers: merged kernels of rows write what is read later, the last writer's value, and nothing else."""
        for rows, columns, share in ((512, 64, 0.2), (16, 2080, 0.2), (1, 2080, 0.2)):
            with self.subTest(rows=rows):
                self._rows(rows, columns, share)

    def _rows(self, rows: int, columns: int, share: float) -> None:
        array, row, column = f"f32[{rows},{columns}]{{1,0}}", f"f32[{rows}]{{0}}", f"f32[{columns}]{{0}}"
        half, few = columns // 2, -(-columns // 32)
        pieces, zero = f"f32[{rows},{few}]{{1,0}}", "z = f32[] constant(0)"
        by_row = f"b = {array} broadcast(%p1), dimensions={{0}}"
        halves = f"f32[{rows},{half}]{{1,0}}"
        kinds: dict[str, tuple[list[str], list[str], str]] = {
            "add": ([array] * 2, [f"r = {array} add(%p0, %p1)"], array),
            "root": ([array], [f"r = {array} sqrt(%p0)"], array),
            "by_row": (
                [array, row],
                [f"q = {row} rsqrt(%p1)", by_row.replace("%p1", "%q"), f"r = {array} multiply(%p0, %b)"],
                array,
            ),
            "bias": ([array, column], [by_row.replace("={0}", "={1}"), f"r = {array} add(%p0, %b)"], array),
            "scaled": ([array, "f32[]"], [by_row.replace("={0}", "={}"), f"r = {array} multiply(%p0, %b)"], array),
            "total": ([array], [zero, f"r = {row} reduce(%p0, %z), dimensions={{1}}, to_apply=%sum"], row),
            "halves": (
                [array],
                [
                    zero,
                    f"a = {halves} slice(%p0), slice={{[0:{rows}], [0:{half}]}}",
                    f"b = {halves} slice(%p0), slice={{[0:{rows}], [{half}:{columns}]}}",
                    f"c = {halves} add(%a, %b)",
                    f"r = {row} reduce(%c, %z), dimensions={{1}}, to_apply=%sum",
                ],
                row,
            ),
            "pieces": (
                [array],
                [
                    zero,
                    f"r = {pieces} reduce-window(%p0, %z), window={{size=1x32 stride=1x32 pad=0_0x{few * 32 - columns}_0}}, "
                    "to_apply=%sum",
                ],
                pieces,
            ),
            "of_pieces": ([pieces], [zero, f"r = {row} reduce(%p0, %z), dimensions={{1}}, to_apply=%sum"], row),
            "squares": (
                [array, row],
                [
                    zero,
                    by_row,
                    f"s = {array} subtract(%p0, %b)",
                    f"t = {array} multiply(%s, %s)",
                    f"u = {row} reduce(%t, %z), dimensions={{1}}, to_apply=%sum",
                    f"r = {row} sqrt(%u)",
                ],
                row,
            ),
        }
        hlo = kernels(kinds)
        size = {array: 4 * rows * columns, row: 4 * rows, column: 4 * columns, "f32[]": 4, pieces: 4 * rows * few}
        run = row_fusion.row_fusion
        merged = 0

        def draw(drawn: Draw) -> list[Thunk]:
            thunks: list[Thunk] = []
            for _ in range(drawn.random.randint(3, 9)):
                if drawn.random.random() < 0.15:
                    thunks.append(drawn.other())
                    continue
                name = drawn.random.choice([*kinds])
                read, _, result = kinds[name]
                in_place = [index for index, each in enumerate(read) if each == result == array]
                thunks.append(drawn.kernel(f"m_{name}", [size[each] for each in (*read, result)], in_place=in_place))
                if name == "pieces" and drawn.random.random() < 0.8:
                    thunks.append(drawn.kernel("m_of_pieces", [size[pieces], size[row]]))
            return thunks

        def change(before: CompiledFunction) -> CompiledFunction:
            nonlocal merged
            after = changed(run, hlo, before)
            symbols = [each.symbol for each in after.thunks if isinstance(each, Kernel)]
            was = [each.symbol for each in before.thunks if isinstance(each, Kernel)]
            merged += symbols.count("m_of_pieces") < was.count("m_of_pieces")
            return after

        self.compare(400, size[array], draw, change, of_hlo(hlo), share=share)
        self.assertGreater(merged, 10 * DRAWS)

    def test_softmax(self) -> None:
        """Protects numbers: a call takes the place of a softmax's kernels only if nothing else sees what they compute."""
        for rows, columns, steps in ((4, 30, 0), (4, 40, 1), (3, 2080, 2)):
            with self.subTest(columns=columns):
                self._softmax(rows, columns, steps)

    def _softmax(self, rows: int, columns: int, steps: int) -> None:
        def shape(count: int) -> str:
            return f"f32[{rows},{count}]{{1,0}}"

        row, array = f"f32[{rows}]{{0}}", shape(columns)
        scale = ["k = f32[] constant(0.25)", f"ks = {array} broadcast(%k), dimensions={{}}"]
        scaled = [*scale, f"s = {array} multiply(%p0, %ks)"]
        by_row = f"b = {array} broadcast(%p1), dimensions={{0}}"
        counts = [columns]
        for _ in range(steps):
            counts.append(-(-counts[-1] // 32))

        def reduced(name: str, region: str, start: str) -> dict[str, tuple[list[str], list[str], str]]:
            first = f"z = f32[] constant({start})"
            kinds = {}
            for step, (count, fewer) in enumerate(itertools.pairwise(counts)):
                pad = f"pad=0_0x{(32 * fewer - count) // 2}_{32 * fewer - count - (32 * fewer - count) // 2}"
                window = f"window={{size=1x32 stride=1x32 {pad}}}, to_apply=%{region}"
                kinds[f"{name}{step}"] = (
                    [shape(count)],
                    [first, f"r = {shape(fewer)} reduce-window(%p0, %z), {window}"],
                    shape(fewer),
                )
            last = [first, f"r = {row} reduce(%p0, %z), dimensions={{1}}, to_apply=%{region}"]
            return {**kinds, f"{name}{steps}": ([shape(counts[-1])], last, row)}

        one = ["i = f32[] constant(1)", f"is = {row} broadcast(%i), dimensions={{}}", f"j = {row} divide(%is, %p1)"]
        kinds = {
            "scaled": ([array], [*scaled[:2], f"r = {array} multiply(%ks, %p0)"], array),
            **reduced("peak", "largest", "-inf"),
            "power": (
                [array, row],
                [*scaled, by_row, f"d = {array} subtract(%s, %b)", f"r = {array} exponential(%d)"],
                array,
            ),
            "limited": (
                [array, row],
                [
                    *scaled,
                    by_row,
                    f"l = {array} minimum(%b, %s)",
                    f"d = {array} subtract(%l, %b)",
                    f"r = {array} exponential(%d)",
                ],
                array,
            ),
            **reduced("sum", "sum", "0"),
            "share": ([array, row], [by_row, f"r = {array} divide(%p0, %b)"], array),
            "part": ([array, row], [*one, by_row.replace("%p1", "%j"), f"r = {array} multiply(%b, %p0)"], array),
        }
        hlo = kernels(kinds)
        size = {shape(count): 4 * rows * count for count in counts} | {row: 4 * rows}

        def chain(drawn: Draw) -> list[Thunk]:
            """Returns the kernels of a softmax in random places, which may not work out."""
            x, out = drawn.place(size[array]), drawn.place(size[array])
            scores, powers = drawn.temporary(size[array]), drawn.temporary(size[array])
            results = {name: drawn.temporary(size[root]) for name, (_, _, root) in kinds.items()}
            if drawn.random.random() < 0.5:
                out = drawn.random.choice([x, powers])
            reads = {"scaled": [x], "peak0": [scores], "sum0": [powers]}
            reads |= {
                f"{name}{step + 1}": [results[f"{name}{step}"]] for name in ("peak", "sum") for step in range(steps)
            }
            power, share = drawn.random.choice(["power", "limited"]), drawn.random.choice(["share", "part"])
            reads |= {power: [x, results[f"peak{steps}"]], share: [powers, results[f"sum{steps}"]]}
            results |= {"scaled": scores, power: powers, share: out}
            thunks: list[Thunk] = []
            for name in kinds:
                if name in reads:
                    sizes = [size[each] for each in (*kinds[name][0], kinds[name][2])]
                    places = [*zip((*reads[name], results[name]), sizes, strict=True)]
                    valid = all(
                        not overlap(each, places[-1]) or (each == places[-1] and name in (power, share))
                        for each in places[:-1]
                    )
                    if not valid:
                        return chain(drawn)
                    thunks.append(Kernel(f"m_{name}", tuple(places), (1, 1, 1), single=True))
            return thunks

        def draw(drawn: Draw) -> list[Thunk]:
            thunks = chain(drawn)
            if drawn.random.random() < 0.3:
                thunks += chain(drawn)
            for _ in range(drawn.random.choice([0, 0, 1, 2])):
                thunks.insert(drawn.random.randint(0, len(thunks)), drawn.other())
            return thunks

        run = row_fusion.row_fusion
        self.compare(500, size[array], draw, lambda function: changed(run, hlo, function), of_hlo(hlo), share=0.15)

    def finishes(self, rows: int, columns: int) -> dict[str, tuple[list[str], list[str], str]]:
        """Returns kernels that finish the result of a product."""
        shape, row = f"f32[{rows},{columns}]{{1,0}}", f"f32[{columns}]{{0}}"
        low, high = "l = f32[] constant(268435456)", "h = f32[] constant(1073741824)"
        bias = f"b = {shape} broadcast(%p1), dimensions={{1}}"
        return {
            "biased": ([shape, row], [bias, f"r = {shape} add(%p0, %b)"], shape),
            "bounded": ([shape], [low, high, f"r = {shape} clamp(%l, %p0, %h)"], shape),
            "joined": ([shape] * 2, [f"r = {shape} add(%p0, %p1)"], shape),
            "everything": (
                [shape, row, shape],
                [low, bias, f"s = {shape} add(%p0, %b)", f"t = {shape} add(%s, %p2)", f"r = {shape} maximum(%t, %l)"],
                shape,
            ),
            "descended": (
                [shape] * 2,
                ["k = f32[] constant(0.5)", f"s = {shape} multiply(%p1, %k)", f"r = {shape} subtract(%p0, %s)"],
                shape,
            ),
        }

    def finish(self, drawn: Draw, known: Mapping[str, tuple[list[str], list[str], str]], size: int, row: int) -> Thunk:
        """Returns a kernel that may finish a product."""
        name = drawn.random.choice([*known])
        shapes, _, result = known[name]
        sizes = [size if each == result else row for each in (*shapes, result)]
        in_place = [index for index, each in enumerate(shapes) if each == result]
        return drawn.kernel(f"m_{name}", sizes, in_place=in_place)

    def test_epilogues(self) -> None:
        """Protects numbers: a product finishes its result only where nothing else needs what is there, before or after."""
        count, size = 4, 64
        known = self.finishes(count, count)
        hlo = kernels(known)

        def multiplied(kernel: Kernel) -> Dot:
            lhs, rhs, out = (at for at, _ in kernel.args)
            return Dot("float", 1, out, lhs, rhs, (0, 0, 0), count, count, count, False, False)

        def two(drawn: Draw) -> list[Thunk]:
            """Returns two products, the second of which reads the first, and whose final result may take its place."""
            first = drawn.kernel("", (size, size, size))
            (lhs, _, out), weights = first.args, (drawn.place(size), size)
            there = drawn.place(size), size
            second, addend = (drawn.place(size), size), drawn.random.choice([lhs, weights, there])
            if any(
                overlap(a, b)
                for a, b in ((out, there), (second, weights), (second, there), (weights, there), (lhs, there))
            ):
                return two(drawn)
            return [
                multiplied(first),
                Kernel("m_bounded", (out, there), (1, 1, 1), single=True),
                multiplied(Kernel("", (weights, there, second), (1, 1, 1))),
                Kernel("m_joined", (second, addend, there), (1, 1, 1), single=True),
            ]

        def draw(drawn: Draw) -> list[Thunk]:
            thunks: list[Thunk] = two(drawn) if drawn.random.random() < 0.2 else []
            for _ in range(drawn.random.randint(2, 7)):
                chosen = drawn.random.random()
                if chosen < 0.15:
                    thunks.append(drawn.other())
                elif chosen < 0.55:
                    thunks.append(self.finish(drawn, known, size, 4 * count))
                else:
                    thunks.append(multiplied(drawn.kernel("", (size, size, size))))
            return thunks

        run = epilogues.epilogues
        self.compare(4000, size, draw, lambda function: changed(run, hlo, function), of_hlo(hlo), share=0.2)

    def test_mlp_fusion(self) -> None:
        """Protects numbers: layers of a net read what the kernels before them wrote, and keep their bias and bounds."""
        count, row, matrix = 4, 16, 64
        known = self.finishes(1, count)
        hlo = kernels(known)
        meanings = of_hlo(hlo)
        hlo = with_products(hlo, {"plain": (count, count, False, False), "added": (count, count, True, True)})
        meanings["m_plain"] = lambda args: product(args[0], args[1], count)
        meanings["m_added"] = lambda args: (product(args[0], args[1], count) + args[2]) % PRIME

        def draw(drawn: Draw) -> list[Thunk]:
            thunks: list[Thunk] = []
            for _ in range(drawn.random.randint(2, 7)):
                chosen = drawn.random.random()
                if chosen < 0.15:
                    thunks.append(drawn.other())
                elif chosen < 0.5:
                    thunks.append(self.finish(drawn, known, row, row))
                elif chosen < 0.75:
                    thunks.append(drawn.kernel("m_plain", (row, matrix, row)))
                else:
                    thunks.append(drawn.kernel("m_added", (row, matrix, row, row), in_place=[2]))
            return thunks

        run = mlp_fusion.mlp_fusion
        self.compare(3000, matrix, draw, lambda function: changed(run, hlo, function), meanings, share=0.2)

    def test_transposes(self) -> None:
        """Protects numbers: copies of arrays of any shape, in any order, and of a part keep each value's place, also in loops."""
        meanings: dict[str, Meaning] = {}
        hlo, most = "", 2048

        def draw(drawn: Draw) -> list[Thunk]:
            nonlocal hlo
            r, kernels = drawn.random, dict[str, tuple[list[int], int, list[int]]]()
            for index in range(3):
                shape = [r.choice([1, 2, 3, 4, 7]) for _ in range(r.randint(1, 3))] + [r.choice([1, 2, 5, 16, 63, 64])]
                shape = shape if math.prod(shape) <= most else shape[-1:]
                shape.insert(r.randrange(len(shape)), r.randint(1, most // math.prod(shape)))
                axes = r.sample(range(len(shape)), len(shape))
                axes = axes if r.random() < 0.3 else [each for each in axes if each != len(axes) - 1] + [len(axes) - 1]
                kernels[f"k{index}"] = shape, r.randrange(min(2, shape[0])), axes
                meanings[f"m_k{index}"] = copied(*kernels[f"k{index}"])
            hlo = copying(kernels)
            thunks: list[Thunk] = []
            for _ in range(r.randint(1, 4)):
                name = r.choice([*kernels])
                shape, first, _ = kernels[name]
                sizes = [4 * (shape[0] - rows) * math.prod(shape[1:]) for rows in (0, first)]
                thunks.append(drawn.other() if r.random() < 0.2 else drawn.kernel(f"m_{name}", sizes))
            return thunks

        run = transposes.transposes
        self.compare(800, 4 * most, draw, lambda function: changed(run, hlo, function), meanings, share=0.15)

    def test_column_reduction(self) -> None:
        """Protects numbers: sums over any axes, and over windows of any size and padding, are those of the right rows."""
        meanings: dict[str, Meaning] = {}
        hlo, most = "", 4096

        def draw(drawn: Draw) -> list[Thunk]:
            nonlocal hlo
            r = drawn.random
            shape = [r.choice([1, 2, 3, 5, 8, 9]) for _ in range(r.randint(1, 3))]
            shape.insert(r.randrange(len(shape)), r.randint(1, most // math.prod(shape)))
            begin, end = sorted(r.sample(range(len(shape) + 1), 2))
            axes = [*range(begin, end)] if r.random() < 0.8 else sorted(r.sample(range(len(shape)), r.randint(1, 2)))
            if r.random() < 0.4:
                result = [size for axis, size in enumerate(shape) if axis not in axes]
                operation = f"reduce(%p, %q), dimensions={{{','.join(map(str, axes))}}}"
                sums: Meaning = lambda args: args[0].reshape(shape).sum((*axes,)) % PRIME  # noqa: E731
            else:
                sizes = [
                    (size if r.random() < 0.9 else r.randint(1, size)) if axis in axes else 1
                    for axis, size in enumerate(shape)
                ]
                pads = [(0, 0)] * len(shape)
                cut = axes[0] if r.random() < 0.9 else axes[-1]
                sizes[cut] = r.randint(1, shape[cut])
                before = r.randrange(sizes[cut] + 1)
                pads[cut] = before, -(before + shape[cut]) % sizes[cut]
                result = [(sum(pad) + n) // size for n, size, pad in zip(shape, sizes, pads, strict=True)]
                by = "x".join(map(str, sizes))
                padding = f" pad={'x'.join(f'{a}_{b}' for a, b in pads)}" if any(map(any, pads)) else ""
                operation = f"reduce-window(%p, %q), window={{size={by} stride={by}{padding}}}"

                def sums(args: Sequence[Cells]) -> Cells:
                    values = np.pad(args[0].reshape(shape), pads)[
                        tuple(slice(a * b) for a, b in zip(result, sizes, strict=True))
                    ]
                    windows = values.reshape([*itertools.chain(*zip(result, sizes, strict=True))])
                    return np.asarray(windows.sum((*range(1, 2 * len(shape), 2),)) % PRIME)

            hlo = column_reduction_test.module(*(",".join(map(str, each)) for each in (shape, result)), operation)
            meanings["m_total"] = sums
            places = [4 * math.prod(shape), 4 * math.prod(result)]
            return [
                drawn.other() if r.random() < 0.2 else drawn.kernel("m_total", places) for _ in range(r.randint(1, 4))
            ]

        run = column_reduction.column_reduction
        self.compare(800, 4 * most, draw, lambda function: changed(run, hlo, function), meanings, share=0.2)

    def test_transpose_folding(self) -> None:
        """Protects numbers: a product reads originals that are still there, and writes early what nothing else uses before."""
        meanings: dict[str, Meaning] = {"m_known": lambda args: function("known", args[0])}
        hlo = ""

        def draw(drawn: Draw) -> list[Thunk]:
            nonlocal hlo
            r = drawn.random
            heads, rows, channels, first = r.randint(1, 3), r.randint(1, 4), r.randint(1, 5), r.randint(0, 1)
            kernels = {
                "split": ((rows + first, heads, channels), first, (1, 0, 2)),
                "turn": ((rows, heads, channels), 0, (1, 2, 0)),
                "back": ((heads, rows, channels), 0, (1, 0, 2)),
                "other": ((heads, rows, channels), 0, (2, 1, 0)),
            }
            transposed = r.random() < 0.5
            matrix = f"[{heads},{rows},{channels}]{{{'1,2,0' if transposed else '2,1,0'}}}"
            hlo = copying(
                kernels,
                f"  %q = f32[{heads},{channels}]{{1,0}} parameter(8)\n"
                f"  %matrix = f32{matrix} parameter(9)\n"
                f"  %dot.1 = f32[{heads},{rows}]{{1,0}} dot(%q, %matrix), lhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, "
                "rhs_batch_dims={0}, rhs_contracting_dims={2}\n"
                f"  %known = f32[{heads},{rows},{channels}]{{2,1,0}} negate(%matrix)\n",
            )

            def scores(args: Sequence[Cells]) -> Cells:
                keys = args[1].reshape((heads, channels, rows) if transposed else (heads, rows, channels))
                return product_of(args[0].reshape(heads, 1, channels), keys if transposed else keys.swapaxes(1, 2))

            meanings["m_dot_1_kernel"] = scores
            meanings.update((f"m_{name}", copied(*each)) for name, each in kernels.items())
            count = 4 * heads * rows * channels

            def dot() -> Thunk:
                batch = heads if r.random() < 0.9 else 1
                m, k = r.choice([(rows, channels), (channels, rows)])
                k, n = k * heads // batch, r.choice([1, rows, channels])
                sizes = [4 * batch * each for each in (m * k, k * n, n * m, n * m)]
                lhs, rhs, *more = (at for at, _ in drawn.kernel("", sizes[: r.choice([3, 3, 3, 4])]).args)
                ways = r.random() < 0.5, r.random() < 0.5
                made = Dot("float", batch, more[-1], lhs, rhs, (m * n, m * k, k * n), m, n, k, *ways)
                epilogue = Epilogue(None, more[0], None, more[-1], 0, 1) if more[1:] else None
                return dataclasses.replace(made, dtype=r.choice(["float", "float", "int32_t"]), epilogue=epilogue)

            thunks = list[Thunk]()
            for _ in range(r.randint(2, 6)):
                name = r.choice([*kernels])
                sizes = [4 * heads * channels, count, 4 * heads * rows]
                thunk: Callable[[], Thunk] = r.choice(
                    [
                        *[lambda name=name: drawn.kernel(f"m_{name}", [4 * math.prod(kernels[name][0]), count])] * 6,
                        *[dot] * 6,
                        lambda sizes=sizes: drawn.kernel("m_dot_1_kernel", sizes),
                        lambda: drawn.kernel("m_known", [count, count]),
                    ]
                )
                thunks += [thunk(), drawn.over()][: r.choice([1, 1, 1, 2])]
            return thunks

        run = transpose_folding.transpose_folding
        self.compare(4000, 480, draw, lambda function: changed(run, hlo, function), meanings, share=0.05)

    def test_filter_gradients(self) -> None:
        """Protects numbers: a gradient reads originals that are still there, and copies stay that something else reads."""
        meanings: dict[str, Meaning] = {"m_known": lambda args: function("known", args[0])}
        hlo = ""

        def draw(drawn: Draw) -> list[Thunk]:
            nonlocal hlo
            r = drawn.random
            batch, channels, filters = r.randint(1, 3), r.randint(1, 3), r.choice([4, 8, 12, 16, 16, 32])
            size, kernel, out, stride, padding = (
                (r.randint(*ends), r.randint(*ends)) for ends in ((2, 5), (1, 3), (1, 4), (1, 2), (-1, 1))
            )
            kernels = {
                "images": ((batch, *size, channels), 0, (3, 1, 2, 0)),
                "gradients": ((batch, *out, filters), 0, (1, 2, 0, 3)),
                "wrong": ((batch, *size, channels), 0, (3, 2, 1, 0)),
            }
            hlo = copying(kernels, "  %known = f32[4]{0} negate(%x0)\n")
            meanings.update((f"m_{name}", copied(*each)) for name, each in kernels.items())
            image, gradient = (4 * math.prod(kernels[name][0]) for name in ("images", "gradients"))
            result = 4 * channels * math.prod(kernel) * filters
            thunks: list[Thunk] = []
            for _ in range(r.randint(1, 2)):
                a, b = drawn.temporary(image), drawn.temporary(gradient)
                thunks += [
                    self.into(drawn, r.choice(["m_images"] * 5 + ["m_wrong"]), image, a),
                    self.into(drawn, "m_gradients", gradient, b),
                ]
                c = drawn.place(result)
                while overlap((c, result), (a, image)) or overlap((c, result), (b, gradient)):
                    c = drawn.place(result)
                layer = Convolution(
                    "float", c, a, b, channels, size, batch, out, batch, filters, kernel, (1, 1), padding, (0, 0), (1, 1), stride, 1
                )  # fmt: skip
                thunks.append(layer)
            for _ in range(r.choice([0, 1, 1, 2])):
                known = drawn.kernel("m_known", [r.choice([image, gradient])] * 2)
                thunks.insert(r.randint(0, len(thunks)), known if r.random() < 0.5 else drawn.other())
            return thunks

        run = filter_gradients.filter_gradients
        self.compare(800, 4 * 1536, draw, lambda function: changed(run, hlo, function), meanings, share=0.2)

    def into(self, drawn: Draw, symbol: str, size: int, out: Slice) -> Kernel:
        """Returns a kernel that reads as many bytes as it writes in a place."""
        given = drawn.place(size)
        while overlap((given, size), (out, size)):
            given = drawn.place(size)
        return Kernel(symbol, ((given, size), (out, size)), (1, 1, 1), single=symbol != UNKNOWN)

    def test_pack_loops(self) -> None:
        """Protects numbers: a right side is packed after what writes it, for loops that don't change it."""
        meanings: dict[str, Meaning] = {"known": lambda args: function("known", args[0])}

        def draw(drawn: Draw) -> list[Thunk]:
            r = drawn.random

            def body(depth: int) -> list[Thunk]:
                thunks: list[Thunk] = []
                for _ in range(r.randint(1, 4)):
                    chosen = r.random()
                    if chosen < 0.25 and depth < 2:
                        inner = (*body(depth + 1),)
                        loops = [
                            For(r.choice([7, 8, 9]), inner),
                            While(drawn.place(4), (*body(2),), inner),
                            Call(inner),
                        ]
                        thunks.append(r.choice(loops))
                    elif chosen < 0.65:
                        thunks.append(drawn.dot(r.choice([1, 2, 3]), r.choice([12, 16, 24, 32])))
                    else:
                        thunks.append(drawn.kernel("known", (96, 96)) if r.random() < 0.7 else drawn.other())
                return thunks

            return body(0)

        self.compare(
            1000, 768, draw, lambda function: changed(loops.pack_loops, NO_KERNELS, function), meanings, share=0.2
        )

    def test_packed_constants(self) -> None:
        """Protects numbers: each value of a packed constant is where its readers look for it, and others read the original."""
        contents: dict[str, bytes] = {}
        meanings: dict[str, Meaning] = {"m_known": lambda args: function("known", args[0])}
        hlo, weights, chosen = "", "", [winograd.winograd]
        changed = dict.fromkeys((narrow.narrow, gemv_packing.gemv_packing, winograd.winograd, prepack.prepack), 0)

        def values(r: random.Random, shape: tuple[int, int]) -> npt.NDArray[np.float32]:
            """Returns values that a narrower dtype may not have, and a transform only where its numbers are exact."""
            exact = shape[0] == 9 * 32
            result = np.random.default_rng(r.getrandbits(32)).integers(-99, 100, shape).astype(np.float32)
            result *= np.float32(r.choice([1, 1, 2.0**-140, 2.0**100, 2.0**121, 0, 1 if exact else 0.3]))
            for special in (math.nan, math.inf) if exact else (math.nan, math.inf, 3e38, -1e9, 1e-40):
                if r.random() < 0.06:
                    result[r.randrange(shape[0]), r.randrange(shape[1])] = special
            return result

        def draw(drawn: Draw) -> list[Thunk]:
            nonlocal hlo, weights, chosen
            r = drawn.random
            weights = r.choice(["bfloat16", "int8"])
            chosen = [each for each in changed if r.random() < 0.5] or [r.choice([*changed])]
            contents.clear()
            shapes = [(9 * 32, r.choice([16, 24, 80]))] * (r.random() < 0.3)
            shapes += [(r.randint(1, 6), r.choice([8, 13, 16, 24, 31, 32, 62])) for _ in range(2)]
            for index, shape in enumerate(shapes):
                contents[f"c{index}"] = values(r, shape).tobytes()
            if r.random() < 0.3:  # the same value twice
                contents["again"], shapes = contents[f"c{len(shapes) - 1}"], [*shapes, shapes[-1]]
            drawn.constants = {name: len(value) for name, value in contents.items()}
            depth, columns = shapes[-1]
            hlo = copying(
                {},
                f"  %x = f32[{depth}]{{0}} parameter(0)\n  %m = f32[{depth},{columns}]{{1,0}} constant({{...}})\n"
                f"  %dot.1 = f32[{columns}]{{0}} dot(%x, %m), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}\n"
                f"  %known = f32[{columns}]{{0}} negate(%x)\n",
            )
            meanings["m_dot_1_kernel"] = lambda args: product(args[0], args[1], columns)
            thunks: list[Thunk] = []
            for _ in range(r.randint(1, 5)):
                index = r.randrange(len(shapes))
                constant, (depth_of, columns_of) = Slice(Draw.COUNT + index, 0), shapes[index]
                size = 4 * depth_of * columns_of
                kind = r.random()
                if depth_of == 9 * 32 and kind < 0.8:
                    made = [at for at, _ in drawn.kernel("", (4 * 64 * 32, 4 * 36 * columns_of)).args]
                    taps = r.choice([(3, 3), (3, 3), (3, 3), (9, 1)])
                    steps = [r.choice([(1, 1), (1, 1), (1, 1), (1, 2)]) for _ in range(2)]
                    thunk = Convolution(
                        "float", made[1], made[0], constant, 1, (8, 8), 32, taps, 32, columns_of, (6, 6), steps[0], (1, 0), (0, 1),
                        (1, 1), steps[1], 1,
                    )  # fmt: skip
                    thunks.append(thunk)
                elif kind < 0.7:
                    if depth_of % 2 == 0 and r.random() < 0.2:
                        depth_of, columns_of = depth_of // 2, columns_of * 2
                    elif depth_of > 1 and r.random() < 0.15:  # a part
                        depth_of, constant = depth_of - 1, Slice(constant.buffer, r.choice([0, 4 * columns_of]))
                    thunks.append(drawn.dot(depth_of, columns_of, constant))
                elif kind < 0.85 and index == len(shapes) - 1:
                    (x, _), (out, _) = drawn.kernel("", (4 * depth, 4 * columns)).args
                    sides = (x, 4 * depth), (constant, size), (out, 4 * columns)
                    thunks.append(Kernel("m_dot_1_kernel", sides, (1, 1, 1), single=True))
                else:
                    part = r.choice([size, 4 * columns_of]) if size <= 8192 else 4 * columns_of
                    reader = (constant, part), (drawn.place(part), part)
                    thunks.append(Kernel("m_known", reader, (1, 1, 1), single=True))
            return thunks

        def change(function: CompiledFunction) -> CompiledFunction:
            # Another level reads the same constants, maybe as something else.
            other = dataclasses.replace(function, thunks=function.thunks[:: len(contents) - 1])
            stored = {name: memoryview(value) for name, value in contents.items()}
            compiled = Compiled({"x86-64-v3": other, "x86-64-v4": function}, stored, (parsed(hlo),), weights)
            for each in chosen:
                changed[each] += each(compiled) > 0
            contents.update(compiled.replaced | compiled.added)
            return compiled.functions["x86-64-v4"]

        smallest = ((narrow, "SMALLEST"), (gemv_packing, "SMALLEST"), (gemv_packing, "SMALLEST_IN_LOOP"))
        with contextlib.ExitStack() as stack:
            for module, name in smallest:
                stack.enter_context(mock.patch.object(module, name, 64))
            self.compare(1000, 8192, draw, change, meanings, share=0.2, contents=contents)
        for each, count in changed.items():
            self.assertGreater(count, 8 * DRAWS, each)


if __name__ == "__main__":
    unittest.main()
