"""Which kernels become part of the preceding product, and which must not."""

from __future__ import annotations

import dataclasses
import json
import math
import unittest
from pathlib import Path

from tests.compile.program.changed import convolution
from tests.stages.harness import StageTest
from tests.xla.hlo import kernels, parsed
from tfaot.compile.program.passes.epilogues import epilogues
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import (
    Buffer,
    CompiledFunction,
    Convolution,
    Dot,
    Epilogue,
    For,
    Kernel,
    Slice,
    Thunk,
    walk,
)


def dot(*, left: int, out: int, rows: int = 4, depth: int = 2, columns: int = 8) -> Dot:
    """Returns a product whose operands and result are at these bytes of buffer 0. Weights are in buffer 1."""
    return Dot(
        dtype="float",
        batch=1,
        out=Slice(0, out),
        lhs=Slice(1, 0),
        rhs=Slice(0, left),
        strides=(rows * columns, depth * columns, rows * depth),
        m=columns,
        n=rows,
        k=depth,
        transpose_lhs=False,
        transpose_rhs=False,
    )


def kernel(symbol: str, *args: tuple[int, int, int]) -> Kernel:
    """Returns a call with arguments (buffer, offset, size)."""
    places = tuple((Slice(buffer, at), size) for buffer, at, size in args)
    return Kernel(f"m_{symbol}", places, (1, 1, 1), single=symbol != "unknown")


def hlo(name: str, size: int) -> tuple[list[str], list[str], str]:
    """Returns what a kernel computes, if its result has some bytes."""
    columns = {"narrow": 4, "five": 5}.get(name, 8)
    shape, half = f"f32[{size // 4 // columns},{columns}]{{1,0}}", "h = f32[] constant(0.5)"
    if name == "residual":
        return [shape] * 2, [f"r = {shape} add(%p0, %p1)"], shape
    if name == "sgd":
        lines = [half, f"s = {shape} multiply(%p1, %h)", f"r = {shape} subtract(%p0, %s)"]
        return [shape] * 2, [lines[0], f"hs = {shape} broadcast(%h), dimensions={{}}", *lines[1:]], shape
    bias, zero = f"b = {shape} broadcast(%p1), dimensions={{1}}", "z = f32[] constant(0)"
    lines = [bias, zero, f"s = {shape} add(%p0, %b)", f"r = {shape} maximum(%s, %z)"]
    return [shape, f"f32[{columns}]{{0}}"], lines, shape


B = (2, 0, 32)
"""An argument that is a bias for 8 columns."""


def attached(*thunks: Thunk, kind: str = "temp") -> CompiledFunction:
    """Returns the result for thunks that use 4096 bytes of a buffer of this kind, a constant, and an argument."""
    return compiled(*thunks, kind=kind).functions["x86-64-v3"]


def compiled(*thunks: Thunk, kind: str = "temp") -> Compiled:
    """Returns the same, with its near misses."""
    buffers = (
        Buffer(4096, kind, 1 if kind == "parameter" else None, None),
        Buffer(64, "constant", None, None),
        Buffer(32, "parameter", 0, None),
    )
    function = CompiledFunction(buffers, (2,), (), ("c",), (), thunks)
    known = {
        name: hlo(name, each.args[-1][1])
        for each in walk(thunks)
        if isinstance(each, Kernel) and (name := each.symbol[2:]) not in ("other", "unknown")
    }
    text = kernels(known or {"biased": hlo("biased", 128)})
    result = Compiled({"x86-64-v3": function}, {}, (parsed(text),))
    epilogues(result)
    return result


class AttachTest(unittest.TestCase):
    """Attaching a kernel to the preceding product."""

    def unchanged(self, *thunks: Thunk) -> None:
        """Checks that nothing is attached."""
        self.assertEqual(attached(*thunks).thunks, thunks)

    def test_in_place(self) -> None:
        """Protects the common case: the kernel's result takes the product's place, and the kernel is gone."""
        product = dot(left=0, out=512)
        got = attached(product, kernel("biased", (0, 512, 128), B, (0, 512, 128)))
        epilogue = Epilogue(Slice(2, 0), None, None, Slice(0, 512), 0.0, math.inf)
        self.assertEqual(got.thunks, (dataclasses.replace(product, epilogue=epilogue),))
        self.assertEqual(len(got.buffers), 3)

    def test_narrow(self) -> None:
        """Protects speed: many rows narrower than a vector are finished by a kernel over all rows, and few rows aren't."""
        for rows, left in ((64, 0), (65, 1)):
            product, size = dot(left=0, out=1024, rows=rows, columns=4), rows * 16
            got = attached(product, kernel("narrow", (0, 1024, size), (2, 0, 16), (0, 1024, size))).thunks
            self.assertEqual(len(got), 1 + left)

    def test_few_filters(self) -> None:
        """Protects speed: convolutions of few filters finish what they compute in vectors, and those in tiles don't."""
        few = convolution(out=Slice(0, 2048), image=(9, 9), channels=3, taps=(1, 1), filters=4, pixels=(9, 9))
        finish = kernel("narrow", (0, 2048, 1296), (2, 0, 16), (0, 2048, 1296))
        self.assertEqual(len(attached(few, finish).thunks), 1)
        for other in (
            dataclasses.replace(few, input_channels=6, groups=2),
            dataclasses.replace(few, input_channels=16, kernel_channels=16, input_size=(1, 9), stride=(1, 0)),
            dataclasses.replace(few, stride=(1, 3)),
            dataclasses.replace(few, input_dilation=(1, 2)),
            dataclasses.replace(few, kernel_dilation=(1, 2)),
            dataclasses.replace(few, kernel_size=(43, 1)),
        ):
            self.assertEqual(len(attached(other, finish).thunks), 2)
        five = dataclasses.replace(few, filters=5)
        finish = kernel("five", (0, 2048, 1620), (2, 0, 20), (0, 2048, 1620))
        self.assertEqual(len(attached(five, finish).thunks), 2)

    def test_near_misses(self) -> None:
        """Protects who looks for a slow kernel: one that finishes a product but stays says why, and others say nothing."""
        product, finish = dot(left=0, out=512), kernel("biased", (0, 512, 128), B, (0, 512, 128))
        many = kernel("narrow", (0, 1024, 1040), (2, 0, 16), (0, 1024, 1040))
        reads = kernel("other", (0, 512, 4), (0, 2048, 4))
        for thunks, wanted in (
            ((product, finish), ()),
            ((product, kernel("biased", (0, 1024, 128), B, (0, 1024, 128))), ()),
            ((product, finish, finish), ("the product has another epilogue",)),
            ((product, reads, finish), ("m_other in between uses what it stores",)),
            ((dot(left=0, out=1024, rows=65, columns=4), many), ("more than 64 rows have fewer than 8 columns",)),
            ((dataclasses.replace(product, dtype="int32_t"), finish), ("the product is in int32_t",)),
            ((product, kernel("biased", (0, 512, 128), B, (2, 0, 128))), ("its result is where it still reads",)),
        ):
            with self.subTest(wanted):
                self.assertEqual((*compiled(*thunks).reasons.values(),), wanted)

    def test_elsewhere(self) -> None:
        """Protects memory traffic and readers: the product goes where the result does, unless it is read later."""
        product = dot(left=0, out=512)
        finish = kernel("biased", (0, 512, 128), B, (0, 1024, 128))
        (alone,) = attached(product, finish).thunks
        assert isinstance(alone, Dot)
        self.assertEqual((alone.out, alone.epilogue and alone.epilogue.out), (Slice(0, 1024), Slice(0, 1024)))
        reads = kernel("unknown", (0, 600, 4), (0, 2048, 4))
        for name, after, place in (
            ("read", (reads,), 512),
            ("overwritten, then read", (kernel("other", B, (0, 512, 128)), reads), 1024),
            ("overwritten in part", (kernel("other", B, (0, 512, 64)), reads), 512),
            ("overwritten in two parts", (kernel("other", B, (0, 512, 64)), dot(left=0, out=576), reads), 1024),
            ("read in a loop", (For(2, (reads,)),), 512),
        ):
            with self.subTest(name):
                first = attached(product, finish, *after).thunks[0]
                self.assertEqual(first.places[0], (Slice(0, place), 128))
        argument = attached(product, finish, kind="parameter").thunks[0]
        self.assertEqual(argument.places[0], (Slice(0, 512), 128))

    def test_addend(self) -> None:
        """Protects in-place sums with another value: the product must not overwrite it."""
        product = dot(left=0, out=512)
        (got,) = attached(product, kernel("residual", (0, 512, 128), (0, 1024, 128), (0, 1024, 128))).thunks
        assert isinstance(got, Dot)
        self.assertEqual(got.out, Slice(0, 512))
        wanted = Epilogue(None, Slice(0, 1024), None, Slice(0, 1024), -math.inf, math.inf, scratch=True)
        self.assertEqual(got.epilogue, wanted)

    def test_sgd(self) -> None:
        """Protects SGD as an epilogue: it keeps the gradient only for who reads it, and waits for who reads the variable."""
        gradient = dot(left=0, out=512)
        update = kernel("sgd", (0, 1024, 128), (0, 512, 128), (0, 1024, 128))
        variable = Slice(0, 1024)
        wanted = Epilogue(None, variable, None, variable, -math.inf, math.inf, scale=-0.5, scratch=True)
        (got,) = attached(gradient, update).thunks
        self.assertEqual(got, dataclasses.replace(gradient, epilogue=wanted))
        reader = kernel("unknown", (0, 512, 4), (0, 2048, 4))
        kept = dataclasses.replace(gradient, epilogue=dataclasses.replace(wanted, scratch=False))
        self.assertEqual(attached(gradient, update, reader).thunks, (kept, reader))
        before = kernel("unknown", (0, 1024, 4), (0, 2048, 4))
        self.assertEqual(attached(gradient, before, update).thunks, (before, got))

    def test_large_steps(self) -> None:
        """Protects speed: a variable that caches don't hold is updated in a pass of its own."""
        for rows, left in ((1 << 17, 0), ((1 << 17) + 1, 1)):
            size = 32 * rows
            first, second = 1 << 23, 1 << 24
            gradient = dot(left=0, out=first, rows=rows)
            update = kernel("sgd", (0, second, size), (0, first, size), (0, second, size))
            self.assertEqual(len(attached(gradient, update).thunks), 1 + left)

    def test_overlaps(self) -> None:
        """Protects operands: if a result overlaps what is still read, its kernel stays."""
        product = dot(left=0, out=512)
        for name, finish in {
            "the left side": kernel("biased", (0, 512, 128), B, (0, 16, 128)),
            "the bias": kernel("biased", (0, 512, 128), (0, 1024, 32), (0, 1024, 128)),
            "a part of the addend": kernel("residual", (0, 512, 128), (0, 1024, 128), (0, 1088, 128)),
            "another value": kernel("biased", (0, 1024, 128), B, (0, 1024, 128)),
            "another size": kernel("biased", (0, 512, 64), B, (0, 512, 64)),
            "a smaller bias": kernel("biased", (0, 512, 128), (2, 0, 16), (0, 512, 128)),
            "no epilogue": kernel("other", (0, 512, 128), B, (0, 512, 128)),
            "unknown": kernel("unknown", (0, 512, 128), B, (0, 512, 128)),
        }.items():
            with self.subTest(name):
                self.unchanged(product, finish)

    def test_thunks_between(self) -> None:
        """Protects schedules that interleave independent layers: a kernel is attached only across unrelated thunks."""
        product = dot(left=0, out=512)
        for name, between, finish, moves in (
            ("independent", dot(left=1024, out=2048), kernel("biased", (0, 512, 128), B, (0, 512, 128)), True),
            (
                "reads beside",
                kernel("other", (0, 512, 4), (0, 2048, 4)),
                kernel("biased", (0, 512, 128), B, (0, 1024, 128)),
                True,
            ),
            (
                "reads",
                kernel("other", (0, 512, 4), (0, 2048, 4)),
                kernel("biased", (0, 512, 128), B, (0, 512, 128)),
                False,
            ),
            ("reads its place", dot(left=1024, out=2048), kernel("biased", (0, 512, 128), B, (0, 1024, 128)), True),
            ("may write", kernel("unknown", (0, 512, 4)), kernel("biased", (0, 512, 128), B, (0, 1024, 128)), False),
            ("makes the bias", kernel("other", (2, 0, 4)), kernel("biased", (0, 512, 128), B, (0, 512, 128)), True),
            (
                "makes the bias of what it reads",
                kernel("other", (0, 512, 4), (2, 0, 4)),
                kernel("biased", (0, 512, 128), B, (0, 512, 128)),
                False,
            ),
        ):
            with self.subTest(name):
                self.assertEqual(len(attached(product, between, finish).thunks), 2 if moves else 3)

    def test_staging(self) -> None:
        """Protects wide layers after narrow ones: the result overwrites the input, so the input gets its own buffer."""
        first = dot(left=0, out=512, columns=8)
        finish = kernel("biased", (0, 512, 128), B, (0, 1024, 128))
        second = dataclasses.replace(dot(left=1024, out=2048, depth=8), lhs=Slice(1, 0))
        over = kernel("biased", (0, 2048, 128), B, (0, 1088, 128))
        got = attached(first, finish, second, over)
        one, two = got.thunks
        assert isinstance(one, Dot) and isinstance(two, Dot) and one.epilogue
        self.assertEqual(got.buffers[3], Buffer(128, "temp", None, None))
        self.assertEqual((one.epilogue.out, two.rhs, two.out), (Slice(3, 0), Slice(3, 0), Slice(0, 1088)))
        # The kernel also reads the input, so it must stay.
        residual = kernel("residual", (0, 2048, 128), (0, 1024, 128), (0, 1024, 128))
        self.assertEqual(attached(first, finish, second, residual).thunks[2], residual)

    def test_convolutions_and_loops(self) -> None:
        """Protects images, whose columns are filters, and the bodies of loops."""
        layer = convolution(out=Slice(0, 512), image=(2, 2), channels=2, taps=(1, 1), filters=8, pixels=(2, 2))
        (loop,) = attached(For(3, (layer, kernel("biased", (0, 512, 128), B, (0, 512, 128))))).thunks
        assert isinstance(loop, For)
        (got,) = loop.body
        assert isinstance(got, Convolution) and got.epilogue
        self.assertEqual(got.epilogue.bias, Slice(2, 0))


NET = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
rng = np.random.default_rng(1)


def kernel(*shape):
    return rng.standard_normal(shape).astype("float32")


def input_fn():
    return v1.placeholder(tf.float32, [2, 8, 8, 3], "x"), ()


def model_fn(x, _):
    x = tf.nn.relu6(tf.nn.conv2d(x, kernel(3, 3, 3, 16), 1, "SAME") + kernel(16))
    x = tf.reshape(x, [128, 16])
    return tf.nn.relu(tf.matmul(x, kernel(16, 64)) + kernel(64))
"""
"""A convolution and a product, each with bias and bounds."""


RESIDUALS = (
    NET.partition("def model_fn")[0]
    + """\
def model_fn(x, _):
    x = tf.matmul(tf.reshape(x, [16, 24]), kernel(24, 128))
    for block in range(4):
        y = tf.nn.relu(tf.matmul(x, kernel(128, 64)) + kernel(64))
        x = tf.nn.relu(tf.matmul(y, kernel(64, 128)) + kernel(128) + x)
    return x
"""
)
"""Four residual blocks, each two products with a bias."""


MEAN = (
    NET.partition("def model_fn")[0]
    + """\
def model_fn(x, _):
    x = tf.nn.relu6(tf.matmul(tf.reshape(x, [24, 16]), kernel(16, 64)) + kernel(64))
    return tf.reduce_mean(tf.reshape(x, [1, 4, 6, 64]), [1, 2])
"""
)
"""A product with bias and bounds, and the mean of the pixels of an image."""


class SwitchTest(StageTest):
    """The compile stage with and without epilogues."""

    def test_residuals(self) -> None:
        """Protects residual blocks: every product has an epilogue, and no kernel computes earlier blocks again."""
        exported = self.export(RESIDUALS)
        for patterns, places in ((("*",), 8), (("*", "!prevent_duplication"), 5)):
            self.compile(exported, passes=patterns)
            self.assertEqual(json.loads(Path(exported.path("passes")).read_text())["epilogues"], places)

    def test_mean(self) -> None:
        """Protects means: the runtime computes one, so that bias and bounds before it are an epilogue, at every level."""
        exported = self.export(MEAN)
        for cpu in ("x86-64-v3", "x86-64-v4"):
            self.compile(exported, isa=(cpu,))
            self.assertEqual(json.loads(Path(exported.path("passes")).read_text())["epilogues"], 1)
            self.assertIn("dot 1x2x24x64", Path(exported.path("source")).read_text())

    def test_switch(self) -> None:
        """Protects the switch: without epilogues, the kernels stay, and the output says so."""
        exported = self.export(NET)
        for patterns, places in ((("*",), 2), (("epilogues",), 2), (("*", "!epilogues"), None), ((), None)):
            self.compile(exported, passes=patterns)
            self.assertEqual(json.loads(Path(exported.path("passes")).read_text())["epilogues"], places)
            source = Path(exported.path("source")).read_text()
            self.assertEqual(source.count("instance.threads, {"), places or 0)
            self.assertEqual(source.count(") != nullptr) return false;"), 0 if places else 2)


if __name__ == "__main__":
    unittest.main()
