"""Random programs before and after passes that merge thunks: what anything can see in memory after a run stays the same.

Thunks meet in few places of few buffers, so kernels compute in place, overwrite each other's results, and overlap in parts.
Numbers are integers modulo a prime, so that sums are the same in any order.
"""

from __future__ import annotations

import itertools
import math
import random
import unittest
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.compile.program import dense_nets, epilogues, row_sweeps, softmax, sweeps
from tfaot.compile.program.accesses import accesses, overlap
from tfaot.compile.program.finishes import Finish
from tfaot.compile.program.formulas import Elementwise, Formula, Operation
from tfaot.compile.program.row_formulas import RowKernel
from tfaot.compile.program.softmax import EXPONENTIALS, LARGEST, QUOTIENT, SCALED, SUM, Part
from tfaot.compile.program.thunks import (
    Buffer,
    CompiledFunction,
    Copy,
    DenseNet,
    Dot,
    Kernel,
    RowSweep,
    SizedSlice,
    Slice,
    Softmax,
    Sweep,
    Thunk,
    slices,
)
from tfaot.compile.program.vectors import VectorProduct

Cells = npt.NDArray[np.int64]
Meaning = Callable[[Sequence[Cells]], Cells]
"""What a kernel computes of its arguments but the last, which is the result."""

PRIME = 2**31 - 1

UNKNOWN = "unknown"
"""A kernel that isn't known to have one result. It writes its first argument."""


def function(name: str, *operands: Cells) -> Cells:
    """Returns something that depends on a name and on all operands."""
    result: Any = zlib.crc32(name.encode()) % PRIME
    for operand in operands:
        result = (result * 48271 + operand) % PRIME
    return np.asarray(result)


def evaluate(operations: Sequence[Operation], leaf: Callable[[Operation], Cells]) -> list[Cells]:
    """Returns what the operations of a formula compute, given what those compute that read memory."""
    values: list[Cells] = []
    exact: dict[str, Callable[..., Cells]] = {
        "add": lambda a, b: a + b,
        "multiply": lambda a, b: a * b,
        "subtract": lambda a, b: a - b,
        "sum": lambda a: a.sum(1, keepdims=True),
    }
    for each in operations:
        operands = [values[index] for index in each.operands]
        if each.opcode in ("array", "column", "row", "scalar"):
            value = leaf(each)
        elif each.opcode in exact:
            value = exact[each.opcode](*operands)
        else:
            value = function(each.opcode + each.text, *operands)
        values.append(value % PRIME)
    return values


class Machine:
    """Memory of one word for each four bytes."""

    def __init__(self, sizes: Sequence[int], meanings: Mapping[str, Meaning], seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.buffers = [rng.integers(0, PRIME, size // 4) for size in sizes]
        self._meanings = meanings

    def at(self, place: Slice, size: int) -> Cells:
        """Returns a view of a place, given its bytes."""
        return self.buffers[place.buffer][place.offset // 4 :][: size // 4]

    def run(self, thunks: Sequence[Thunk]) -> list[Cells]:
        """Runs thunks, and returns the memory."""
        for thunk in thunks:
            # Calls of the runtime write while they read. The layers of a net run one after another.
            for each in [DenseNet((layer,)) for layer in thunk.layers] if isinstance(thunk, DenseNet) else [thunk]:
                for place, other in itertools.product(accesses(each, ())[1], slices(each)):
                    assert place == other or not overlap(place, other), f"a result overlaps a part of something: {each}"
            if isinstance(thunk, Kernel):
                args = [self.at(each.slice, each.size) for each in thunk.args]
                if thunk.symbol == UNKNOWN:
                    args[0][:] = function(UNKNOWN, args[0], args[-1].sum())
                else:
                    args[-1][:] = self._meanings[thunk.symbol]([each.copy() for each in args[:-1]]).ravel()
            elif isinstance(thunk, Copy):
                self.at(thunk.out, thunk.size)[:] = self.at(thunk.input, thunk.size)
            elif isinstance(thunk, Sweep):
                self._sweep(thunk)
            elif isinstance(thunk, RowSweep):
                self._row_sweep(thunk)
            elif isinstance(thunk, Dot):
                self._dot(thunk)
            elif isinstance(thunk, DenseNet):
                for layer in thunk.layers:
                    row, bias = (
                        self.at(layer.row, 4 * layer.depth),
                        layer.bias and self.at(layer.bias, 4 * layer.columns),
                    )
                    result = product(row, self.at(layer.matrix, 4 * layer.depth * layer.columns), layer.columns)
                    self.at(layer.out, 4 * layer.columns)[:] = finished(result, bias, None, layer.low, layer.high)
            else:
                assert isinstance(thunk, Softmax)
                size = 4 * thunk.rows * thunk.columns
                self.at(thunk.out, size)[:] = shares(self.at(thunk.input, size), thunk.rows, thunk.scale).ravel()
        return self.buffers

    def _dot(self, thunk: Dot) -> None:
        (out, size), *operands = slices(thunk)[:3]
        lhs, rhs = (self.at(*each) for each in operands)
        result = product(rhs, lhs, size // 4)
        written = [(out, size)]
        self.at(out, size)[:] = result
        if epilogue := thunk.epilogue:
            written.append((epilogue.out, size))
            operands += [(epilogue.bias, 4 * thunk.m)] if epilogue.bias else []
            # The result with the epilogue may take the addend's place.
            assert epilogue.addend is None or not overlap((epilogue.addend, size), (out, size)), thunk
            bias = epilogue.bias and self.at(epilogue.bias, 4 * thunk.m)
            addend = epilogue.addend and self.at(epilogue.addend, size)
            if epilogue.scratch:
                self.at(out, size)[:] = function("anything", result)
            self.at(epilogue.out, size)[:] = finished(result, bias, addend, epilogue.low, epilogue.high, epilogue.scale)
        assert not any(overlap(a, b) for a in written for b in operands), f"a result overlaps an operand: {thunk}"

    def _sweep(self, thunk: Sweep) -> None:
        arrays = [self.at(each, 4 * thunk.count) for each in thunk.arrays]

        def leaf(operation: Operation) -> Cells:
            found = arrays if operation.opcode == "array" else [self.at(each, 4) for each in thunk.scalars]
            return found[operation.place].copy()

        values = evaluate(thunk.formula.operations, leaf)
        for array, value in thunk.formula.results:
            arrays[array][:] = values[value]

    def _row_sweep(self, thunk: RowSweep) -> None:
        shape = thunk.rows, thunk.columns
        arrays = [self.at(each, 4 * shape[0] * shape[1]) for each in thunk.arrays]
        rows = [self.at(each, 4 * shape[0]) for each in thunk.values]

        def leaf(operation: Operation) -> Cells:
            at = operation.place
            if operation.opcode == "array":
                return arrays[at].reshape(shape).copy()
            if operation.opcode == "row":
                return rows[at].reshape(-1, 1).copy()
            return (
                self.at(thunk.vectors[at], 4 * shape[1])
                if operation.opcode == "column"
                else self.at(thunk.scalars[at], 4)
            )

        values = evaluate(thunk.formula.operations, leaf)
        for written, places in ((thunk.formula.arrays, arrays), (thunk.formula.values, rows)):
            for place, value in written:
                places[place][:] = np.broadcast_to(values[value], (shape[0], places[place].size // shape[0])).ravel()


def product(row: Cells, matrix: Cells, count: int) -> Cells:
    """Returns something that depends on both operands of a product."""
    weights = np.arange(1, 1 + max(row.size, matrix.size))
    return function(
        "product", np.arange(count), row @ weights[: row.size] % PRIME, matrix @ weights[: matrix.size] % PRIME
    )


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
    return values % PRIME if (low, high) == (-math.inf, math.inf) else function(f"{low} {high}", values % PRIME)


def times(values: Cells, scale: float) -> Cells:
    """Returns scaled values."""
    return values * int(scale * 1024) % PRIME


def shares(scores: Cells, rows: int, scale: float) -> Cells:
    """Returns what the kernels of a softmax compute together."""
    scaled = times(scores.reshape(rows, -1), scale)
    powers = function(EXPONENTIALS, scaled, scaled.max(1, keepdims=True))
    return function(QUOTIENT, powers, powers.sum(1, keepdims=True) % PRIME)


class Draw:
    """A random program over buffers, the last two of which are kept after a run."""

    COUNT = 5
    SIZE = 3
    """In arrays."""

    def __init__(self, seed: int, array: int) -> None:
        self.random = random.Random(seed)
        self._array = array
        self._written: dict[int, list[Slice]] = {}
        self.sizes = [self.SIZE * array] * self.COUNT
        kinds = ["temp"] * (self.COUNT - 2) + ["parameter"] * 2
        self._buffers = tuple(Buffer(size, kind, None, None) for size, kind in zip(self.sizes, kinds, strict=True))

    def place(self, size: int) -> Slice:
        """Returns where some bytes are, often those that were written last."""
        written = self._written.get(size, [])
        if written and self.random.random() < 0.6:
            return self.random.choice(written[-3:])
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
                return Kernel(symbol, tuple(SizedSlice(*each) for each in (*operands, out)), (1, 1, 1))

    def other(self) -> Thunk:
        """Returns a thunk that no pass merges."""
        size = self.random.choice([self._array, self._array // 2])
        if self.random.random() < 0.2:
            return self.kernel(UNKNOWN, (size, size))
        while True:
            out, given = self.place(size), self.place(size)
            if not overlap((out, size), (given, size)):
                return Copy(out, given, size)

    def function(self, thunks: Sequence[Thunk]) -> CompiledFunction:
        """Returns a function of thunks."""
        return CompiledFunction(self._buffers, (), (), (), (), tuple(thunks))


class PropertiesTest(unittest.TestCase):
    """Passes on random programs."""

    def compare(
        self,
        seeds: int,
        array: int,
        draw: Callable[[Draw], list[Thunk]],
        merge: Callable[[CompiledFunction], CompiledFunction],
        meanings: Mapping[str, Meaning],
    ) -> int:
        """Compares what is kept after runs before and after a pass. Returns how many thunks the pass has merged."""
        merged = 0
        for seed in range(seeds):
            drawn = Draw(seed, array)
            before = drawn.function(draw(drawn))
            after = merge(before)
            merged += len(before.thunks) - len(after.thunks)
            want, got = (
                Machine([each.size for each in one.buffers], meanings, seed).run(one.thunks) for one in (before, after)
            )
            for index in range(Draw.COUNT):
                if index not in before.temporary and not np.array_equal(want[index], got[index]):
                    self.fail(
                        f"seed {seed}: buffer {index} differs:\n"
                        + "\n".join(map(str, (*before.thunks, "", *after.thunks)))
                    )
        return merged

    def test_sweeps(self) -> None:
        """Protects numbers: merged kernels leave what they left one after another, whatever they overwrite and read between."""
        array, scalar = Operation("array", place=0), Operation("scalar", place=0)
        formulas = {
            "root": (1, 0, (array, Operation("sqrt", (0,)))),
            "sum": (2, 0, (array, Operation("array", place=1), Operation("add", (0, 1)))),
            "product": (
                2,
                0,
                (array, Operation("array", place=1), Operation("multiply", (0, 1)), Operation("negate", (2,))),
            ),
            "scaled": (1, 1, (array, scalar, Operation("multiply", (0, 1)), Operation("subtract", (2, 0)))),
        }
        known = {
            name: Elementwise(
                Formula("float", operations, ((arrays, len(operations) - 1),)),
                8,
                (*range(arrays), arrays + scalars),
                (*range(arrays, arrays + scalars),),
                arrays + scalars + 1,
            )
            for name, (arrays, scalars, operations) in formulas.items()
        }

        def meaning(arrays: int, operations: Sequence[Operation]) -> Meaning:
            return lambda args: evaluate(
                operations, lambda each: args[each.place + (arrays if each.opcode == "scalar" else 0)]
            )[-1]

        meanings = {name: meaning(arrays, operations) for name, (arrays, _, operations) in formulas.items()}

        def draw(drawn: Draw) -> list[Thunk]:
            thunks: list[Thunk] = []
            for _ in range(drawn.random.randint(2, 7)):
                name = drawn.random.choice([*formulas])
                arrays, scalars, _ = formulas[name]
                sizes = (*[32] * arrays, *[4] * scalars, 32)
                thunks.append(
                    drawn.other() if drawn.random.random() < 0.2 else drawn.kernel(name, sizes, in_place=range(arrays))
                )
            return thunks

        merged = self.compare(2000, 32, draw, lambda function: sweeps.merge(function, known), meanings)
        self.assertGreater(merged, 1000)

    def test_row_sweeps(self) -> None:
        """Protects numbers: merged kernels of rows write what is read later, the last writer's value, and nothing else."""
        rows, columns = 512, 64
        array, row = Operation("array", place=0), Operation("row", place=1)
        kinds = {"array": 4 * rows * columns, "row": 4 * rows, "column": 4 * columns, "scalar": 4}
        kernels: dict[str, tuple[str, int, tuple[Operation, ...]]] = {
            "add": ("array", 0, (array, Operation("array", place=1), Operation("add", (0, 1)))),
            "root": ("array", 0, (array, Operation("sqrt", (0,)))),
            "by_row": ("array", columns, (array, row, Operation("rsqrt", (1,)), Operation("multiply", (0, 2)))),
            "bias": ("array", columns, (array, Operation("column", place=1), Operation("add", (0, 1)))),
            "scaled": ("array", 0, (array, Operation("scalar", place=1), Operation("multiply", (0, 1)))),
            "total": ("row", columns, (array, Operation("sum", (0,)))),
            "squares": (
                "row",
                columns,
                (
                    array,
                    row,
                    Operation("subtract", (0, 1)),
                    Operation("multiply", (2, 2)),
                    Operation("sum", (3,)),
                    Operation("sqrt", (4,)),
                ),
            ),
        }

        def reads(operations: Sequence[Operation]) -> list[Operation]:
            return sorted((each for each in operations if each.opcode in kinds), key=lambda each: each.place)

        known = {
            name: RowKernel(operations, rows * columns, width, result == "row", len(reads(operations)) + 1)
            for name, (result, width, operations) in kernels.items()
        }
        shapes = {"array": (rows, columns), "row": (rows, 1), "column": (1, columns), "scalar": (1, 1)}

        def meaning(operations: Sequence[Operation]) -> Meaning:
            return lambda args: evaluate(operations, lambda each: args[each.place].reshape(shapes[each.opcode]))[-1]

        meanings = {name: meaning(operations) for name, (_, _, operations) in kernels.items()}

        def draw(drawn: Draw) -> list[Thunk]:
            thunks: list[Thunk] = []
            for _ in range(drawn.random.randint(3, 9)):
                if drawn.random.random() < 0.15:
                    thunks.append(drawn.other())
                    continue
                name = drawn.random.choice([*kernels])
                result, _, operations = kernels[name]
                read = reads(operations)
                sizes = [kinds[each.opcode] for each in read] + [kinds[result]]
                in_place = [each.place for each in read if each.opcode == result == "array"]
                thunks.append(drawn.kernel(name, sizes, in_place=in_place))
            return thunks

        merged = self.compare(
            400, kinds["array"], draw, lambda function: row_sweeps.merge(function, known, {*known}), meanings
        )
        self.assertGreater(merged, 200)

    def test_softmax(self) -> None:
        """Protects numbers: a call takes the place of a softmax's kernels only if nothing else sees what they compute."""
        rows, columns, pieces = 4, 40, 2
        all_, by_row, some = 4 * rows * columns, 4 * rows, 4 * rows * pieces
        known = {
            "scaled": Part(SCALED, 1, rows * columns, 0, None, 0.25, 2),
            "peak_pieces": Part(LARGEST, rows, columns, 0, None, 1.0, 2, pieces),
            "peak": Part(LARGEST, rows, pieces, 0, None, 1.0, 2),
            "power": Part(EXPONENTIALS, rows, columns, 1, 0, 0.25, 3),
            "sum_pieces": Part(SUM, rows, columns, 0, None, 1.0, 2, pieces),
            "sum": Part(SUM, rows, pieces, 0, None, 1.0, 2),
            "share": Part(QUOTIENT, rows, columns, 0, 1, 1.0, 3),
        }

        def in_pieces(values: Cells) -> Cells:
            return values.reshape(rows, pieces, -1)

        meanings: dict[str, Meaning] = {
            "scaled": lambda args: times(args[0], 0.25),
            "peak_pieces": lambda args: in_pieces(args[0]).max(2),
            "peak": lambda args: args[0].reshape(rows, pieces).max(1),
            "power": lambda args: function(
                EXPONENTIALS, times(args[1], 0.25).reshape(rows, columns), args[0].reshape(rows, 1)
            ),
            "sum_pieces": lambda args: in_pieces(args[0]).sum(2) % PRIME,
            "sum": lambda args: args[0].reshape(rows, pieces).sum(1) % PRIME,
            "share": lambda args: function(QUOTIENT, args[0].reshape(rows, columns), args[1].reshape(rows, 1)),
        }

        def chain(drawn: Draw) -> list[Thunk]:
            """Returns the kernels of a softmax in random places, which may not work out."""
            x, out = (drawn.place(all_), all_), (drawn.place(all_), all_)
            scaled, peaks, peak, powers, sums, total = (
                (drawn.temporary(size), size) for size in (all_, some, by_row, all_, some, by_row)
            )
            if drawn.random.random() < 0.5:
                out = drawn.random.choice([x, powers])
            thunks = []
            for name, *args in (
                ("scaled", x, scaled),
                ("peak_pieces", scaled, peaks),
                ("peak", peaks, peak),
                ("power", peak, x, powers),
                ("sum_pieces", powers, sums),
                ("sum", sums, total),
                ("share", powers, total, out),
            ):
                valid = all(
                    not overlap(each, args[-1]) or (each == args[-1] and name in ("power", "share"))
                    for each in args[:-1]
                )
                if not valid:
                    return chain(drawn)
                thunks.append(Kernel(name, tuple(SizedSlice(*each) for each in args), (1, 1, 1)))
            return thunks

        def draw(drawn: Draw) -> list[Thunk]:
            thunks = chain(drawn)
            if drawn.random.random() < 0.3:
                thunks += chain(drawn)
            for _ in range(drawn.random.choice([0, 0, 1, 2])):
                thunks.insert(drawn.random.randint(0, len(thunks)), drawn.other())
            return thunks

        merged = self.compare(1500, all_, draw, lambda function: softmax.merge(function, known, {*known}), meanings)
        self.assertGreater(merged, 1000)

    def finishes(self, columns: int) -> tuple[dict[str, Finish], dict[str, Meaning]]:
        """Returns kernels that finish the result of a product, and what they compute."""
        known = {
            "biased": Finish(0, 1, None, None, -math.inf, math.inf, columns, 3),
            "bounded": Finish(0, None, None, None, 0.0, 6.0, columns, 2),
            "joined": Finish(0, None, 1, None, -math.inf, math.inf, columns, 3),
            "everything": Finish(1, 2, 0, None, 0.0, math.inf, columns, 4),
            "descended": Finish(1, None, 0, None, -math.inf, math.inf, columns, 3, scale=-0.5),
        }

        def meaning(way: Finish) -> Meaning:
            return lambda args: finished(
                args[way.value],
                None if way.bias is None else args[way.bias],
                None if way.addend is None else args[way.addend],
                way.low,
                way.high,
                way.scale,
            )

        return known, {name: meaning(way) for name, way in known.items()}

    def finish(self, drawn: Draw, known: Mapping[str, Finish], size: int, columns: int) -> Thunk:
        """Returns a kernel that may finish a product."""
        name = drawn.random.choice([*known])
        way = known[name]
        sizes = [4 * columns if index == way.bias else size for index in range(way.arguments)]
        return drawn.kernel(name, sizes, in_place=[index for index in (way.value, way.addend) if index is not None])

    def test_epilogues(self) -> None:
        """Protects numbers: a product finishes its result only where nothing else needs what is there, before or after."""
        count, size = 4, 64
        known, meanings = self.finishes(count)

        def multiplied(kernel: Kernel) -> Dot:
            lhs, rhs, out = (each.slice for each in kernel.args)
            return Dot("float", 1, out, lhs, rhs, (0, 0, 0), count, count, count, False, False)

        def two(drawn: Draw) -> list[Thunk]:
            """Returns two products, the second of which reads the first, and whose final result may take its place."""
            first = drawn.kernel("", (size, size, size))
            (lhs, _, out), weights = first.args, SizedSlice(drawn.place(size), size)
            there = SizedSlice(drawn.place(size), size)
            second, addend = SizedSlice(drawn.place(size), size), drawn.random.choice([lhs, weights, there])
            if any(
                overlap((a.slice, size), (b.slice, size))
                for a, b in ((out, there), (second, weights), (second, there), (weights, there), (lhs, there))
            ):
                return two(drawn)
            return [
                multiplied(first),
                Kernel("bounded", (out, there), (1, 1, 1)),
                multiplied(Kernel("", (weights, there, second), (1, 1, 1))),
                Kernel("joined", (second, addend, there), (1, 1, 1)),
            ]

        def draw(drawn: Draw) -> list[Thunk]:
            thunks: list[Thunk] = two(drawn) if drawn.random.random() < 0.2 else []
            for _ in range(drawn.random.randint(2, 7)):
                chosen = drawn.random.random()
                if chosen < 0.15:
                    thunks.append(drawn.other())
                elif chosen < 0.55:
                    thunks.append(self.finish(drawn, known, size, count))
                else:
                    thunks.append(multiplied(drawn.kernel("", (size, size, size))))
            return thunks

        ways = {name: (way,) for name, way in known.items()}
        merged = self.compare(4000, size, draw, lambda function: epilogues.attach(function, ways), meanings)
        self.assertGreater(merged, 500)

    def test_dense_nets(self) -> None:
        """Protects numbers: layers of a net read what the kernels before them wrote, and keep their bias and bounds."""
        count, row, matrix = 4, 16, 64
        known, meanings = self.finishes(count)
        layers = {
            "plain": VectorProduct(0, 1, None, count, count, False, 3),
            "added": VectorProduct(0, 1, 2, count, count, True, 4),
        }
        meanings["plain"] = lambda args: product(args[0], args[1], count)
        meanings["added"] = lambda args: (product(args[0], args[1], count) + args[2]) % PRIME

        def draw(drawn: Draw) -> list[Thunk]:
            thunks: list[Thunk] = []
            for _ in range(drawn.random.randint(2, 7)):
                chosen = drawn.random.random()
                if chosen < 0.15:
                    thunks.append(drawn.other())
                elif chosen < 0.5:
                    thunks.append(self.finish(drawn, known, row, count))
                elif chosen < 0.75:
                    thunks.append(drawn.kernel("plain", (row, matrix, row)))
                else:
                    thunks.append(drawn.kernel("added", (row, matrix, row, row), in_place=[2]))
            return thunks

        ways = {name: (way,) for name, way in known.items()}
        merged = self.compare(3000, matrix, draw, lambda function: dense_nets.join(function, layers, ways), meanings)
        self.assertGreater(merged, 500)


if __name__ == "__main__":
    unittest.main()
