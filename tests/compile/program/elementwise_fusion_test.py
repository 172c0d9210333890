"""Which kernels are computed in one pass, and which must not be."""

from __future__ import annotations

import json
import unittest
from pathlib import Path

from tests.compile.program import changed
from tests.stages.harness import StageTest
from tests.xla.hlo import kernels
from tfaot.compile.program.passes.elementwise_fusion import elementwise_fusion
from tfaot.compile.program.thunks.kinds import (
    Buffer,
    CompiledFunction,
    For,
    Kernel,
    Slice,
    Sweep,
    Thunk,
)
from tfaot.compile.program.values.formulas import Operation

READ = Operation("array", place=0)


def array(count: int) -> str:
    """Returns a shape."""
    return f"f32[{count}]{{0}}"


def of_one(opcode: str, count: int) -> tuple[list[str], list[str], str]:
    """Returns a kernel that applies a function."""
    return [array(count)], [f"r = {array(count)} {opcode}(%p0)"], array(count)


HLO = kernels(
    {
        "root": of_one("sqrt", 8),
        "product": ([array(8)] * 2, [f"r = {array(8)} multiply(%p0, %p1)"], array(8)),
        "scaled": (
            [array(8), "f32[]"],
            [f"b = {array(8)} broadcast(%p1), dimensions={{}}", f"r = {array(8)} multiply(%p0, %b)"],
            array(8),
        ),
        "longer": of_one("sqrt", 16),
        "large": of_one("sqrt", 65536),
        "function": of_one("exponential", 8192),
        "smaller_function": of_one("tanh", 8191),
        "smaller": of_one("sqrt", 65535),
        "other": of_one("sine", 8),
    }
)


def kernel(symbol: str, *offsets: int, size: int = 32) -> Kernel:
    """Returns a call whose arguments are this many bytes at these offsets of buffer 0."""
    args = tuple((Slice(0, at), size) for at in offsets)
    return Kernel(f"m_{symbol}", args, (1, 1, 1), single=symbol != "unknown")


def scaled(array: int, scalar: int, out: int) -> Kernel:
    """Returns a call that multiplies an array by a single value."""
    args = [(Slice(0, at), size) for at, size in ((array, 32), (scalar, 4), (out, 32))]
    return Kernel("m_scaled", tuple(args), (1, 1, 1), single=True)


def merged(*thunks: Thunk, kind: str = "parameter") -> tuple[Thunk, ...]:
    """Returns the result for thunks."""
    function = CompiledFunction((Buffer(4096, kind, 0, None),), (0,), (), (), (), thunks)
    return changed.thunks(elementwise_fusion, HLO, function)


class MergeTest(unittest.TestCase):
    """Merging kernels."""

    def sweep(self, *thunks: Thunk) -> Sweep:
        """Returns the only thunk that is left."""
        (got,) = merged(*thunks)
        assert isinstance(got, Sweep)
        return got

    def unchanged(self, *thunks: Thunk) -> None:
        """Checks that nothing is merged."""
        self.assertEqual(merged(*thunks), thunks)

    def test_shared_operand(self) -> None:
        """Protects memory traffic: two kernels that read an array are one, and read it once."""
        got = self.sweep(kernel("root", 0, 64), kernel("product", 0, 128, 192))
        self.assertEqual([at.offset for at in got.arrays], [0, 64, 128, 192])
        self.assertEqual([at.offset for at in got.arrays if got.arrays.index(at) in got.written], [64, 192])
        self.assertEqual([each.place for each in got.formula.operations if each.opcode == "array"], [0, 0, 2])

    def test_result_of_the_first(self) -> None:
        """Protects chains: the second kernel takes the first one's result as it is stored, and doesn't read it again."""
        got = self.sweep(kernel("root", 0, 64), kernel("product", 64, 128, 192))
        self.assertEqual(
            got.formula.operations,
            (
                READ,
                Operation("sqrt", (0,)),
                Operation("array", place=2),
                Operation("multiply", (1, 2)),
            ),
        )

    def test_temporary(self) -> None:
        """Protects memory traffic: what only the sweep reads isn't stored."""
        (got,) = merged(kernel("root", 0, 64), kernel("product", 64, 128, 192), kind="temp")
        assert isinstance(got, Sweep)
        self.assertEqual([at.offset for at in got.arrays], [0, 128, 192])

    def test_in_place(self) -> None:
        """Protects variables: what is written in place is one array, and only its last value is stored."""
        got = self.sweep(kernel("root", 0, 0), kernel("product", 0, 64, 0))
        self.assertEqual((got.arrays, got.written), ((Slice(0, 0), Slice(0, 64)), (0,)))
        self.assertEqual(got.formula.arrays, ((0, len(got.formula.operations) - 1),))

    def test_scalars(self) -> None:
        """Protects learning rates: kernels share a single value, and one that a kernel writes over isn't read later."""
        got = self.sweep(scaled(0, 2048, 64), scaled(0, 2048, 128))
        self.assertEqual(got.scalars, (Slice(0, 2048),))
        self.unchanged(kernel("root", 0, 64), scaled(0, 64, 128))
        self.unchanged(scaled(0, 64, 128), kernel("root", 0, 64))

    def test_no_gain(self) -> None:
        """Protects caches: kernels without a common array, or of another size, stay apart."""
        self.unchanged(kernel("root", 0, 64), kernel("root", 128, 192))
        self.unchanged(kernel("root", 0, 64), kernel("longer", 0, 128, size=64))

    def test_other_index(self) -> None:
        """Protects numbers: a kernel that uses a part of what another writes comes after the whole of it."""
        self.unchanged(kernel("root", 0, 64), kernel("product", 0, 80, 192))
        self.unchanged(kernel("product", 0, 80, 192), kernel("root", 0, 64))
        self.unchanged(kernel("root", 0, 16))

    def test_thunks_between(self) -> None:
        """Protects dependencies: a kernel joins an earlier one only across thunks that have nothing to do with it."""
        first, second = kernel("root", 0, 64), kernel("product", 0, 128, 192)
        for name, between, moves in (
            ("elsewhere", kernel("other", 1024, 1088), True),
            ("reads an operand too", kernel("other", 128, 1088), True),
            ("writes an operand", kernel("other", 1024, 128), False),
            ("reads the result's old value", kernel("other", 192, 1088), False),
            ("writes the result", kernel("other", 1024, 192), False),
            ("may write an operand", kernel("unknown", 128), False),
            ("a loop that may", For(2, (kernel("other", 1024, 128),)), False),
        ):
            with self.subTest(name):
                got = merged(first, between, second)
                self.assertEqual(
                    [*map(type, got)], [Sweep, type(between)] if moves else [Kernel, type(between), Kernel]
                )

    def test_alone(self) -> None:
        """Protects threads: they share a large kernel, even if it has no array in common with another.

        A function of fewer values is a call, too, because it is faster.
        """
        for large, smaller, size in (("large", "smaller", 1 << 18), ("function", "smaller_function", 1 << 15)):
            (got,) = merged(kernel(large, 0, 1 << 20, size=size))
            self.assertIsInstance(got, Sweep)
            self.unchanged(kernel(smaller, 0, 1 << 20, size=size - 4))

    def test_loops(self) -> None:
        """Protects steps in loops: kernels in a body are merged, and not with those outside."""
        body = (kernel("root", 0, 64), kernel("product", 0, 128, 192))
        before, loop = merged(kernel("root", 0, 256), For(3, body))
        assert isinstance(loop, For)
        self.assertEqual(([*map(type, loop.body)], type(before)), ([Sweep], Kernel))

    def test_many_arrays(self) -> None:
        """Protects prefetchers: a sweep has a limited number of arrays, and another one follows."""
        got = merged(*(kernel("root", 0, 64 * index) for index in range(1, 15)))
        self.assertEqual([len(each.places) for each in got], [12, 4])

    def test_arguments(self) -> None:
        """Protects calls that differ from the HLO: a kernel with other arguments stays."""
        self.unchanged(kernel("root", 0, 64, size=64), kernel("product", 0, 128, 192, size=64))
        self.unchanged(kernel("root", 0, 32, 64), kernel("product", 0, 128, 192))


ADAM = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return v1.placeholder(tf.float32, [8, 20], "x"), ()


def model_fn(x, _):
    w = v1.get_variable("w", [20, 30])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
    with tf.control_dependencies([v1.train.AdamOptimizer().minimize(loss)]):
        return tf.identity(loss)
"""


class SwitchTest(StageTest):
    """The compile stage with and without sweeps."""

    def test_switch(self) -> None:
        """Protects the switch: Adam's update of a variable is one sweep, or three kernels."""
        exported = self.export(ADAM)
        kernels = {}
        for patterns, places in ((("*",), 1), (("*", "!elementwise_fusion"), None)):
            self.compile(exported, passes=patterns)
            self.assertEqual(json.loads(Path(exported.path("passes")).read_text())["elementwise_fusion"], places)
            source = Path(exported.path("source")).read_text()
            self.assertEqual(source.count("RunSweep<"), places or 0)
            kernels[places] = source.count(") != nullptr) return false;")
        self.assertEqual(kernels[None] - kernels[1], 3)


if __name__ == "__main__":
    unittest.main()
