"""Which constants are packed, and what is stored in their place."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt

from tests.compile.program.changed import convolution
from tests.stages.harness import PREAMBLE, ROOT, StageTest
from tfaot.compile.program.codegen import emitter, executor
from tfaot.compile.program.objects import constants
from tfaot.compile.program.packing import layouts as packing
from tfaot.compile.program.packing.prepack import prepack
from tfaot.compile.program.packing.winograd import transformed, winograd
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import (
    Buffer,
    CompiledFunction,
    Convolution,
    Copy,
    Dot,
    Slice,
    Sort,
    Thunk,
)


def dot(rows: int = 4, depth: int = 3, columns: int = 32, *, right: int = 1, dtype: str = "float", at: int = 0) -> Dot:
    """Returns a product of the start of buffer 0 with the weights in a buffer, written to byte `at` of buffer 0."""
    return Dot(
        dtype=dtype,
        batch=1,
        out=Slice(0, 2048 + at),
        lhs=Slice(right, 0),
        rhs=Slice(0, 0),
        strides=(rows * columns, depth * columns, rows * depth),
        m=columns,
        n=rows,
        k=depth,
        transpose_lhs=False,
        transpose_rhs=False,
    )


def layer(taps: tuple[int, int] = (3, 1), channels: int = 2, filters: int = 32) -> Convolution:
    """Returns a convolution of the start of buffer 0 with the kernel in buffer 1."""
    return convolution(out=Slice(0, 2048), image=(5, 5), channels=channels, taps=taps, filters=filters, pixels=(3, 5))


def function(*thunks: Thunk, sizes: tuple[int, ...] = (384,), results: tuple[int, ...] = (0,)) -> CompiledFunction:
    """Returns a function with an argument, buffer 0, and constants of these sizes in bytes, with symbols `c1`, `c2`, …."""
    buffers = (Buffer(1 << 20, "parameter", 0, None), *(Buffer(size, "constant", None, None) for size in sizes))
    return CompiledFunction(buffers, (0,), results, tuple(f"c{i}" for i in range(1, len(buffers))), (), thunks)


def values(*sizes: int) -> dict[str, memoryview]:
    """Returns distinct constants of these sizes."""
    return {
        f"c{i}": memoryview(np.random.default_rng(i).standard_normal(size // 4).astype("float32").tobytes())
        for i, size in enumerate(sizes, 1)
    }


def panels(matrix: npt.NDArray[np.float32]) -> bytes:
    """Returns panels by definition: values of 16 columns, row by row, then those of the next 16."""
    depth, columns = matrix.shape
    padded = np.zeros((depth, -(-columns // 16) * 16), "float32")
    padded[:, :columns] = matrix
    return b"".join(padded[:, at : at + 16].tobytes() for at in range(0, padded.shape[1], 16))


def packed(functions: dict[str, CompiledFunction], constants: dict[str, memoryview]) -> Compiled:
    """Returns the pass's result for a function."""
    compiled = Compiled(functions, constants)
    count = prepack(compiled)
    assert count == len(compiled.packed)
    return compiled


class PrepackTest(unittest.TestCase):
    """The pass on thunks."""

    def packings(self, *thunks: Thunk, sizes: tuple[int, ...] = (384,), results: tuple[int, ...] = (0,)) -> list[str]:
        """Returns how the right sides of products are packed."""
        got = packed({"v3": function(*thunks, sizes=sizes, results=results)}, values(*sizes))
        self.assertEqual(len(got.packed), len(got.replaced) + len(got.added))
        return [
            getattr(thunk, "packing", None)
            for thunk in got.functions["v3"].thunks
            if isinstance(thunk, Dot | Convolution)
        ]

    def test_values(self) -> None:
        """Protects numbers: each value is where the kernels look for it, and missing columns are zero."""
        matrix = np.random.default_rng(1).standard_normal((3, 40)).astype("float32")
        for name, thunk, given in (
            ("product", dot(columns=40), matrix),
            ("transposed", dataclasses.replace(dot(columns=40), transpose_lhs=True), matrix.T),
            ("convolution", layer(taps=(1, 3), channels=1, filters=40), matrix),
        ):
            with self.subTest(name):
                got = packed({"v3": function(thunk, sizes=(480,))}, {"c1": memoryview(given.tobytes())})
                self.assertEqual(got.replaced, {"c1": panels(matrix)})
                self.assertEqual([getattr(thunk, "packing", None) for thunk in got.functions["v3"].thunks], ["panels"])
                (constant,) = got.packed.values()
                self.assertEqual((constant.packing, constant.before, constant.after), ("panels", 480, 3 * 48 * 4))

    def test_dtypes(self) -> None:
        """Protects products of doubles and integers: a row of a panel is one cache line of them, too."""
        matrix = np.random.default_rng(1).standard_normal((3, 16))
        got = packed({"v3": function(dot(columns=16, dtype="double"))}, {"c1": memoryview(matrix.tobytes())})
        self.assertEqual(got.replaced["c1"], matrix[:, :8].tobytes() + matrix[:, 8:].tobytes())
        self.assertEqual(self.packings(dot(dtype="int32_t")), ["panels"])
        self.assertEqual(self.packings(dot(columns=16, dtype="std::complex<float>")), ["none"])

    def test_where_it_gains(self) -> None:
        """Protects speed: a single row is best read in place, and mostly empty panels only take space."""
        self.assertEqual(self.packings(dot()), ["panels"])
        self.assertEqual(self.packings(dot(rows=1)), ["none"])
        for columns, want in ((12, "none"), (13, "panels"), (17, "none"), (24, "panels")):
            self.assertEqual(self.packings(dot(columns=columns), sizes=(12 * columns,)), [want])
        self.assertEqual(self.packings(dataclasses.replace(dot(columns=16), batch=2)), ["none"])
        self.assertEqual(self.packings(layer(), sizes=(768,)), ["panels"])
        for other in (
            {"groups": 2, "kernel_channels": 1, "kernel_size": (3, 2)},
            {"input_dilation": (2, 1)},
            {"output_size": (1, 1)},
        ):
            self.assertEqual(self.packings(dataclasses.replace(layer(), **other), sizes=(768,)), ["none"])

    def test_large_constants_stay_single(self) -> None:
        """Protects memory: a large constant that something else reads isn't stored twice."""
        thunks = (dot(), Copy(Slice(0, 4096), Slice(1, 0), 4))
        with mock.patch("tfaot.compile.program.packing.prepack._LARGEST_COPY", 383):
            self.assertEqual(self.packings(*thunks), ["none"])
            self.assertEqual(self.packings(dot()), ["panels"])
        with mock.patch("tfaot.compile.program.packing.prepack._LARGEST_COPY", 384):
            self.assertEqual(self.packings(*thunks), ["panels"])

    def test_beside_winograd(self) -> None:
        """Protects what the pass before packed, and the manifest, which lists constants in the function's order."""
        wide = dataclasses.replace(
            layer(taps=(3, 3), channels=32, filters=16), kernel=Slice(2, 0), input_size=(8, 8), output_size=(6, 6)
        )
        constants = values(384, 4 * 9 * 32 * 16)
        compiled = Compiled({"v3": function(dot(), wide, sizes=(384, 4 * 9 * 32 * 16))}, constants)
        self.assertEqual((winograd(compiled), prepack(compiled)), (1, 1))
        self.assertEqual([constant.packing for _, constant in sorted(compiled.packed.items())], ["panels", "winograd"])
        self.assertEqual(
            [getattr(thunk, "packing", None) for thunk in compiled.functions["v3"].thunks], ["panels", "winograd"]
        )
        self.assertEqual(compiled.replaced["c2"], transformed(constants["c2"], wide))

    def test_levels_and_copies(self) -> None:
        """Protects size: a value that occurs several times is packed everywhere or nowhere."""
        same = values(384)["c1"]
        both = {"v2": function(dot()), "v3": dataclasses.replace(function(dot()), constants=("d1",))}
        got = packed(both, {"c1": same, "d1": same})
        self.assertEqual(got.replaced["c1"], got.replaced["d1"])
        self.assertEqual(len(got.packed), 1)
        both["v2"] = function(dot(rows=1))
        with mock.patch("tfaot.compile.program.packing.prepack._LARGEST_COPY", 0):
            got = packed(both, {"c1": same, "d1": same})
            self.assertEqual((got.replaced, got.functions), ({}, both))
            twice = function(dot(), dot(right=2, rows=1), sizes=(384, 384))
            got = packed({"v3": twice}, {"c1": same, "c2": same})
            self.assertEqual((got.replaced, got.functions), ({}, {"v3": twice}))


class CompiledTest(StageTest):
    """The pass in the compile stage."""

    MODEL = (
        "import numpy as np\n" + PREAMBLE.replace("[2]", "[6, 50]") + "def model_fn(x, n):\n"
        '    w = np.random.default_rng(1).standard_normal([50, 96]).astype("float32")\n'
        "    return tf.matmul(x, w)\n"
    )

    def test_stored_once(self) -> None:
        """Protects size: packed weights replace the original, once for all CPU levels, and the manifest says so."""
        weights = np.random.default_rng(1).standard_normal([50, 96]).astype("float32")
        exported = self.export(self.MODEL)
        self.compile(exported, isa=("x86-64-v2", "x86-64-v3"))
        stored = Path(exported.path("constants")).read_bytes()
        self.assertEqual({bytes(value) for value in constants.values(stored).values()}, {panels(weights)})
        self.assertEqual(stored.count(weights[7, 32:48].tobytes()), 1)
        self.assertNotIn(weights[7].tobytes(), stored)
        for level in ("x86-64-v2", "x86-64-v3"):
            self.assertIn("kernels::Packing::kPanels", Path(exported.path(f"source.{level}")).read_text())
        written = json.loads(Path(exported.path("passes")).read_text())
        self.assertEqual(written["prepack"], 1)
        self.assertEqual(
            written["packed"], [{"packing": "panels", "shape": [50, 96], "before": 50 * 96 * 4, "after": 50 * 96 * 4}]
        )

    def test_stored_twice(self) -> None:
        """Protects tables that are gathered from and whose transpose scores: both forms are stored, once for all CPU levels."""
        table = np.random.default_rng(1).standard_normal([96, 50]).astype("float32")
        exported = self.export(
            "import numpy as np\n" + PREAMBLE.replace("[2]", "[6, 50]") + "def model_fn(x, n):\n"
            '    w = tf.constant(np.random.default_rng(1).standard_normal([96, 50]).astype("float32"))\n'
            "    best = tf.argmax(tf.matmul(x, w, transpose_b=True), -1)\n"
            "    return tf.gather(w, best)\n"
        )
        self.compile(exported, isa=("x86-64-v2", "x86-64-v3"))
        stored = Path(exported.path("constants")).read_bytes()
        held = [bytes(value) for value in constants.values(stored).values()]
        self.assertEqual((held.count(table.tobytes()), held.count(panels(table.T))), (2, 2))
        self.assertEqual((stored.count(table.tobytes()), stored.count(panels(table.T))), (1, 1))
        for level in ("x86-64-v2", "x86-64-v3"):
            self.assertIn("kernels::Packing::kPanels", Path(exported.path(f"source.{level}")).read_text())

    def test_off(self) -> None:
        """Without the pass, constants are as the compiler wrote them."""
        weights = np.random.default_rng(1).standard_normal([50, 96]).astype("float32")
        exported = self.export(self.MODEL)
        self.compile(exported, passes=("*", "!prepack"))
        self.assertIn(weights.tobytes(), Path(exported.path("constants")).read_bytes())
        self.assertNotIn("kPanels", Path(exported.path("source")).read_text())
        written = json.loads(Path(exported.path("passes")).read_text())
        self.assertEqual((written["prepack"], written["packed"]), (None, []))


class FactsTest(unittest.TestCase):
    """Numbers that Python uses for packing and planning, and that C++ also has."""

    def compiled(self) -> str:
        """Returns the C++ compiler's errors, with lines, for a program with a packed product, a Winograd kernel, and a sort."""
        rendered = executor.render(
            {
                "x86-64": function(
                    dataclasses.replace(dot(), packing="panels"),
                    dataclasses.replace(layer(taps=(3, 3)), packing="winograd"),
                    Sort("less", (Slice(0, 0),), (4,), (1, 16, 1), True),
                )
            },
            cpp_class="a::B",
            cost=1.0,
            tensorflow="2",
        )
        found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        assert found, "no C++ compiler on PATH"
        done = subprocess.run(
            [found, "-std=c++17", "-I", str(ROOT / "runtime"), "-fsyntax-only", "-x", "c++", "-"],
            capture_output=True,
            check=False,
            input=rendered.sources[0],
            text=True,
        )
        lines = rendered.sources[0].splitlines()
        return re.sub(r"<stdin>:(\d+)", lambda found: lines[int(found[1]) - 1], done.stderr)

    def test_facts(self) -> None:
        """Protects constants in memory: the C++ compiler rejects a number that was changed on only one side."""
        self.assertEqual(self.compiled(), "")
        for module, name, condition in (
            (packing, "PANEL_BYTES", "kPanelBytes == 32"),
            (packing, "BLOCK", "kWinogradFilters == 32"),
            (emitter, "ALIGNMENT", "kAlignment == 32"),
            (emitter, "MAX_SORTED", "kMaxSorted == 32"),
        ):
            with self.subTest(name), mock.patch.object(module, name, 32):
                errors = self.compiled()
                self.assertIn(
                    "static assertion failed: the compile stage and the runtime disagree on this number", errors
                )
                self.assertIn(condition, errors)


if __name__ == "__main__":
    unittest.main()
