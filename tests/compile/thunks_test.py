"""The program of a compiled function, against TensorFlow: every kind of thunk, and what a run must not do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from tests.stages.harness import ROOT, Exported, StageTest
from tfaot.compile.program import executor, thunks
from tfaot.core import isolate

Array = npt.NDArray[Any]

HEAD = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def inputs(**shapes):
    return [v1.placeholder(dtype, shape, name) for name, (dtype, *shape) in shapes.items()], ()


f32, f64, i32 = tf.float32, tf.float64, tf.int32
"""

MODELS: dict[str, str] = {
    # Copies of arguments, empty arrays, constants, an input that nothing reads, a result that is given twice.
    "edges": """
def input_fn():
    return inputs(a=(f32, 5), e=(f32, 0, 3), u=(f32,))

def model_fn(xs, _):
    a, e, _ = xs
    v, w = v1.get_variable("v", [5]), v1.get_variable("w", [5])
    with tf.control_dependencies([v.assign(a)]):
        return tf.identity(a), tf.identity(a), e, tf.constant([1.0, 2.0]), tf.reduce_sum(e), w.read_value(), tf.zeros([0, 4])
""",
    # Two variables that change places: each is read before the other is written.
    "swap": """
def input_fn():
    return inputs(a=(f32, 5))

def model_fn(xs, _):
    v, w = v1.get_variable("v", [5]), v1.get_variable("w", [5])
    x, y = v.read_value(), w.read_value()
    with tf.control_dependencies([x, y]):
        with tf.control_dependencies([v.assign(y), w.assign(x)]):
            return xs[0] + x
""",
    "products": """
def input_fn():
    return inputs(d=(f64, 33, 65), i=(i32, 40, 41), b=(f32, 7, 33, 65), h=(f32, 32, 48))

def model_fn(xs, _):
    d, i, b, h = xs
    half, c = tf.cast(h, tf.float16), tf.complex(h, h * 2.0 - 1.0)
    z = tf.complex(tf.cast(h, f64), tf.cast(h, f64) + 1.0)
    c, z = tf.matmul(c, c, transpose_b=True), tf.matmul(z, z, transpose_a=True)
    return (
        tf.matmul(d, d, transpose_a=True), tf.matmul(i, i, transpose_b=True), tf.matmul(b, b, transpose_b=True),
        tf.cast(tf.matmul(half, half, transpose_b=True), f32), tf.math.real(c), tf.math.imag(c), tf.math.real(z), tf.math.imag(z),
    )
""",
    "convolutions": """
def input_fn():
    return inputs(image=(f32, 2, 12, 12, 4), signal=(f32, 2, 30, 4))

def model_fn(xs, _):
    image, signal = xs
    k, d = v1.get_variable("k", [3, 3, 4, 8]), v1.get_variable("d", [3, 3, 4, 2])
    y = tf.nn.conv2d(image, k, 2, "SAME")
    z = tf.nn.depthwise_conv2d(image, d, [1, 1, 1, 1], "SAME")
    t = tf.nn.conv2d_transpose(y, k, [2, 12, 12, 4], 2)
    loss = tf.reduce_mean(y * y) + tf.reduce_mean(t * t)
    w = tf.nn.conv1d(signal, tf.reshape(tf.range(120, dtype=f32), [5, 4, 6]) / 120.0, 1, "SAME")
    with tf.control_dependencies([v1.assign_sub(k, 0.1 * tf.gradients(loss, k)[0])]):
        return tf.identity(loss), z, w, tf.nn.conv2d(image, tf.ones([3, 3, 4, 2]), 1, "VALID", dilations=2)
""",
    # What follows products and convolutions: biases, sums with other values, and bounds; in place or not.
    "epilogues": """
def input_fn():
    return inputs(image=(f32, 2, 12, 12, 8), x=(f32, 40, 300), d=(f64, 33, 65))

def model_fn(xs, _):
    image, x, d = xs
    rng = np.random.default_rng(3)

    def weights(*shape):
        return tf.constant(rng.standard_normal(shape).astype("float32"))

    def bias(y):
        return tf.nn.bias_add(y, weights(y.shape[-1]))

    first = tf.nn.relu6(bias(tf.nn.conv2d(image, weights(3, 3, 8, 20), 2, "SAME")))
    y = tf.nn.relu(bias(tf.nn.depthwise_conv2d(first, weights(3, 3, 20, 1), [1, 1, 1, 1], "SAME")))
    narrow = bias(tf.nn.conv2d(y, weights(1, 1, 20, 9), 1, "SAME"))
    wide = tf.nn.relu6(bias(tf.nn.conv2d(narrow, weights(1, 1, 9, 54), 1, "SAME")))
    again = bias(tf.nn.conv2d(wide, weights(1, 1, 54, 9), 1, "SAME")) + narrow
    z = tf.nn.relu(bias(tf.matmul(x, weights(300, 50))))
    u = bias(tf.matmul(z, weights(50, 300))) + x
    f = tf.nn.bias_add(tf.matmul(d, d, transpose_a=True), tf.constant(rng.standard_normal(65)))
    return again, tf.nn.relu(tf.nn.conv2d(again, weights(3, 3, 9, 9), 1, "SAME") + again), u, tf.minimum(f, 1.0)
""",
    # Constant right sides: of several rows or one, shared, read by others as well, transposed, and of other dtypes.
    "constants": """
def input_fn():
    return inputs(image=(f32, 2, 9, 9, 6), x=(f32, 7, 300), d=(f64, 33, 65), i=(i32, 40, 41))

def golden_fn(step, rng):
    return [*(rng.standard_normal(s).astype(t) for s, t in (((2, 9, 9, 6), "f4"), ((7, 300), "f4"), ((33, 65), "f8"))),
            rng.integers(-9, 9, [40, 41], "int32")], ()

def model_fn(xs, _):
    image, x, d, i = xs
    rng = np.random.default_rng(5)

    def weights(*shape, dtype="float32"):
        return tf.constant(rng.standard_normal(shape).astype(dtype))

    shared, seen = weights(300, 300), weights(300, 40)
    y = tf.tanh(tf.matmul(tf.tanh(tf.matmul(x, shared)), shared))
    z = tf.nn.relu(tf.matmul(y, weights(90, 300), transpose_b=True) + weights(90))
    c = tf.nn.conv2d(image, weights(3, 3, 6, 40), [1, 2, 1, 1], "SAME")
    c = tf.nn.relu(tf.nn.conv2d(c, weights(2, 3, 40, 100), 1, "VALID", dilations=2))
    t = tf.nn.conv2d_transpose(c, weights(3, 3, 24, 100), [2, 6, 10, 24], 2)
    return (
        z, t, tf.matmul(x, seen) * tf.gather(seen, tf.abs(i[0, 0])), tf.matmul(x[:1], weights(300, 64)),
        tf.matmul(x, weights(300, 10)), tf.matmul(d, weights(65, 44, dtype="float64")),
        tf.matmul(i, tf.constant(rng.integers(-9, 9, [41, 36], "int32"))),
    )
""",
    "sorts": """
def input_fn():
    return inputs(x=(f32, 3, 50, 4), m=(i32, 300))

def golden_fn(step, rng):
    x = rng.standard_normal([3, 50, 4]).astype("float32").round(1) + np.float32(0)
    return [x, rng.integers(0, 40, [300], "int32")], ()

def model_fn(xs, _):
    x, m = xs
    return (
        tf.sort(x, axis=1), tf.argsort(x, axis=1, stable=True), tf.argsort(m, direction="DESCENDING", stable=True),
        *tf.math.top_k(x, 2), *tf.math.top_k(tf.cast(m, f32), 300), *tf.math.top_k(m, 3), tf.sort(tf.cast(m, f64)),
    )
""",
    "conditionals": """
def input_fn():
    return inputs(x=(f32, 64, 64), n=(i32,))

def golden_fn(step, rng):  # the fourth step names no branch
    return [rng.standard_normal([64, 64]).astype("float32"), np.int32(step if step < 3 else -5)], ()

def model_fn(xs, _):
    x, n = xs
    y = tf.cond(n > 0, lambda: tf.matmul(x, x), lambda: tf.matmul(tf.sort(x), x) + 1.0)
    return y, tf.switch_case(n, [lambda: tf.matmul(x, x), lambda: tf.sort(x), lambda: tf.matmul(tf.sort(x), x) + 1.0])
""",
    # A NaN stays one in minima and maxima, also of several values.
    "nans": """
def input_fn():
    return inputs(x=(f32, 8, 4, 6))

def golden_fn(step, rng):
    x = rng.standard_normal([8, 4, 6]).astype("float32")
    x[step, 1, 2] = np.nan
    return [x], ()

def model_fn(xs, _):
    x, = xs
    found = (
        tf.reduce_max(x, 2), tf.reduce_min(x, [1, 2]), tf.reduce_max(x, 0), tf.nn.relu(x),
        tf.clip_by_value(x, -1.0, 1.0), tf.maximum(x, tf.roll(x, 1, 2)), tf.minimum(tf.roll(x, 1, 2), x),
        tf.nn.relu6(tf.matmul(tf.reshape(x, [32, 6]), tf.ones([6, 40])) + tf.range(40, dtype=f32)),
    )
    return tuple(tf.cast(tf.math.is_nan(y), tf.int32) for y in found)
""",
    "loops": """
def input_fn():
    return inputs(x=(f32, 64, 64), n=(i32,))

def golden_fn(step, rng):
    return [rng.standard_normal([64, 64]).astype("float32") * 0.1, np.int32(step)], ()

def model_fn(xs, _):
    x, n = xs

    def body(i, v):
        def inner(j, u):
            above = tf.reduce_sum(u) > 0.0
            return j + 1, tf.cond(above, lambda: tf.matmul(u, x) * 0.5, lambda: tf.matmul(x, u) * 0.2)

        return i + 1, tf.while_loop(lambda j, u: j < 5, inner, (0, tf.matmul(v, x)))[1]

    return tf.while_loop(lambda i, v: tf.logical_and(i < n, tf.reduce_max(tf.matmul(v, v)) < 1e9), body, (0, x))[1]
""",
    # Their compiled code calls functions of its own, and has sorts, loops, and products within one another.
    "algebra": """
def input_fn():
    return inputs(x=(f32, 24, 24))

def model_fn(xs, _):
    x = xs[0] + 4.0 * tf.eye(24)
    s = tf.matmul(x, x, transpose_b=True)
    return tf.linalg.cholesky(s), tf.abs(tf.linalg.qr(x)[1]), tf.linalg.svd(x, compute_uv=False), tf.linalg.inv(x)
""",
}
"""Between them they have every kind of thunk but for the state of random numbers, which the export stage replaces."""

DRIVER = """\
// Runs a program some times: arguments from a file, then results to another, the arguments' bytes last.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>
#include "m.h"

long allocations = 0;
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void* malloc(std::size_t n) { ++allocations; return __libc_malloc(n); }
void* calloc(std::size_t n, std::size_t m) { ++allocations; return __libc_calloc(n, m); }
void* realloc(void* p, std::size_t n) { ++allocations; return __libc_realloc(p, n); }
void* memalign(std::size_t a, std::size_t n) { ++allocations; return __libc_memalign(a, n); }
void* aligned_alloc(std::size_t a, std::size_t n) { ++allocations; return __libc_memalign(a, n); }
int posix_memalign(void** p, std::size_t a, std::size_t n) { ++allocations; *p = __libc_memalign(a, n); return *p == nullptr; }
}

int main(int, char** argv) {
  const std::size_t arg_bytes[] = {ARG_BYTES 0};
  const std::size_t result_bytes[] = {RESULT_BYTES 0};
  const int inputs = INPUTS;
  std::FILE* in = std::fopen(argv[1], "rb");
  std::FILE* out = std::fopen(argv[2], "wb");
  const long before = allocations;
  CLASS model(0);
  if (allocations != before + 1) return std::printf("made with %ld allocations", allocations - before);
  const auto room = [](std::size_t bytes) { return ::operator new(bytes + 64, std::align_val_t{64}); };
  std::vector<void*> args(CLASS::kNumArgs);
  for (std::size_t i = 0; i < args.size(); ++i) args[i] = room(arg_bytes[i]);
  const auto read = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (std::fread(args[i], 1, arg_bytes[i], in) != arg_bytes[i]) std::abort();
    }
  };
  read(inputs, args.size());
  for (int step = 0; step < std::atoi(argv[3]); ++step) {
    read(0, inputs);
    if (step == 2) {  // Everything may move between runs.
      for (std::size_t i = 0; i < args.size(); ++i) {
        void* moved = room(arg_bytes[i]);
        std::memcpy(moved, args[i], arg_bytes[i]);
        std::memset(args[i], 0x7f, arg_bytes[i]);
        args[i] = moved;
      }
    }
    const long start = allocations;
    for (std::size_t i = 0; i < args.size(); ++i) model.set_arg_data(i, args[i]);
    if (!model.Run()) return std::printf("step %d failed", step);
    if (allocations != start) return std::printf("a run made %ld allocations", allocations - start);
    for (std::size_t i = 0; i < CLASS::kNumResults; ++i) std::fwrite(model.result_data(i), 1, result_bytes[i], out);
    // As the public class does: a variable whose result is elsewhere is copied back.
    const std::size_t written[] = {WRITTEN 0};
    for (std::size_t i = 0; i + 1 < sizeof(written) / sizeof(written[0]); i += 2) {
      void* const from = model.result_data(written[i + 1]);
      void* const to = args[written[i]];
      if (from != to) std::memcpy(to, from, arg_bytes[written[i]]);
    }
  }
  return std::fclose(out);
}
"""


def compiler(folder: Path, *arguments: str) -> None:
    """Runs the C++ compiler in a folder, with our headers as the rules give them."""
    headers = folder / "include"
    if not headers.exists():
        headers.mkdir()
        (headers / "tfaot").symlink_to(ROOT / "runtime/tfaot")
    found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    assert found, "no C++ compiler on PATH"
    result = subprocess.run(
        [found, "-std=c++17", "-DNDEBUG", "-I", "include", "-I", ".", *arguments],
        capture_output=True,
        check=False,
        cwd=folder,
        text=True,
    )
    assert result.returncode == 0, result.stderr


def compile_program(folder: Path, cpu: str = "x86-64-v3") -> None:
    """Compiles `m.cc` as the link stage does, to `m.o`, without a warning."""
    compiler(
        folder,
        "-O3",
        f"-march={cpu}",
        "-fno-math-errno",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
        "-c",
        "m.cc",
        "-o",
        "m.o",
    )


RUNTIME = tuple(f"include/tfaot/{name}.cc" for name in ("executor", "sort", "kernels/plain"))


class ThunksTest(StageTest):
    """Models through the stages, and the program alone."""

    def program(self, model: str, cpu: str = "x86-64-v3", steps: int = 4, **kwargs: Any) -> Exported:
        """Exports and compiles a model, and leaves `m.h`, `m.cc`, and `m.o` beside, and in `tfcompile.h` what tfcompile wrote."""
        exported = self.export(HEAD + model, golden_steps=steps, **kwargs)
        read = thunks.parse

        def keep(header: str) -> thunks.CompiledFunction:
            (exported.folder / "tfcompile.h").write_text(header)
            return read(header)

        with mock.patch.object(thunks, "parse", keep):  # the compiler's child takes it along
            self.compile(exported, isa=(cpu,))
        os.rename(exported.path("header"), exported.path("m.h"))
        os.rename(exported.path("source"), exported.path("m.cc"))
        compile_program(exported.folder, cpu)
        return exported

    def parsed(self, exported: Exported) -> thunks.CompiledFunction:
        """What tfcompile's header says."""
        return thunks.parse(Path(exported.path("tfcompile.h")).read_text())

    def assert_like_tensorflow(self, exported: Exported, steps: int = 4) -> None:
        """Runs the program and TensorFlow."""
        want = isolate.run_isolated(lambda: expected(exported), what="running TensorFlow")
        entry = exported.manifest.entry_points[0]
        variables = [exported.manifest.variables[use.variable] for use in entry.variables]
        inputs = exported.golden_inputs
        with open(exported.folder / "args", "wb") as file:
            for variable in variables:
                file.write(exported.variables[variable.name].tobytes())
            for step in range(steps):
                for tensor in entry.inputs:
                    file.write(inputs[f"step{step}/{tensor.cpp_name}"].tobytes())
        args = [tensor.bytes for tensor in (*entry.inputs, *variables)]
        written = [
            index for index, use in enumerate(entry.variables) if use.written
        ]  # their results follow the outputs, in this order
        pairs = [(len(entry.inputs) + index, len(entry.outputs) + place) for place, index in enumerate(written)]
        results = [tensor.bytes for tensor in entry.outputs] + [variables[index].bytes for index in written]
        name = re.search(r"class (\w+) :", (exported.folder / "m.h").read_text())
        assert name
        driver = (
            DRIVER.replace("ARG_BYTES", "".join(f"{size}, " for size in args))
            .replace("RESULT_BYTES", "".join(f"{size}, " for size in results))
            .replace("WRITTEN", "".join(f"{arg}, {result}, " for arg, result in pairs))
            .replace("INPUTS", str(len(entry.inputs)))
            .replace("CLASS", f"tfaot_internal::{name[1]}")
        )
        (exported.folder / "driver.cc").write_text(driver)
        compiler(exported.folder, "-O1", "driver.cc", "m.o", "object", "constants", *RUNTIME, "-lm", "-o", "driver")
        ran = subprocess.run(
            [exported.folder / "driver", "args", "results", str(steps)],
            capture_output=True,
            check=False,
            cwd=exported.folder,
            text=True,
        )
        self.assertEqual((ran.returncode, ran.stdout), (0, ""))
        data = (exported.folder / "results").read_bytes()
        at = 0
        for step, values in enumerate(want):
            for index, value in enumerate(values):
                got = np.frombuffer(data[at : at + value.nbytes], value.dtype).reshape(value.shape)
                at += value.nbytes
                with self.subTest(step=step, result=index):
                    if value.dtype.kind == "f":
                        scale = float(np.abs(value).max(initial=1e-30))
                        np.testing.assert_allclose(got, value, rtol=2e-3, atol=2e-5 * scale)
                    else:
                        np.testing.assert_array_equal(got, value)
        self.assertEqual(at, len(data))

    def test_every_kind_of_thunk(self) -> None:
        """Protects the numbers of every model: each kind of thunk, in steps, with arguments that move, and no allocation."""
        kinds: set[type] = set()
        for name, model in MODELS.items():
            with self.subTest(name):
                exported = self.program(model, cpp_class=f"t::M{name}")
                kinds |= {type(thunk) for thunk in thunks.walk(self.parsed(exported).thunks)}
                self.assert_like_tensorflow(exported)
        self.assertEqual(
            {kind.__name__ for kind in kinds},
            {"Call", "Conditional", "Convolution", "Copy", "Dot", "For", "Kernel", "Sort", "TopK", "While"},
        )

    def test_constants(self) -> None:
        """Protects packed weights at the lowest level, too, whose strips are half a panel; and what is read in other ways."""
        exported = self.program(MODELS["constants"], cpu="x86-64")
        source = Path(exported.path("m.cc")).read_text()
        self.assertEqual([source.count(f"Packing::{name}") for name in ("kPanels", "kNone")], [7, 3])
        self.assert_like_tensorflow(exported)

    def test_epilogues(self) -> None:
        """Protects what makes layers quick: what only finishes a product is a part of it, and no kernel is called for it."""
        exported = self.program(MODELS["epilogues"])
        source = Path(exported.path("m.cc")).read_text()
        calls = [line for line in source.splitlines() if "TFAOT_ISA::Run" in line or "(calls + " in line]
        self.assertEqual([line.endswith("});") for line in calls], [True] * 9, calls)

    def test_random_state(self) -> None:
        """Protects graphs whose random ops the export stage does not replace: states are XLA's, one by one."""
        folder = self.folder
        isolate.run_isolated(lambda: compile_random(folder), what="compiling")
        parsed = thunks.parse((folder / "tfcompile.h").read_text())
        self.assertIn(thunks.Rng, {type(thunk) for thunk in thunks.walk(parsed.thunks)})
        rendered = executor.render({"x86-64-v3": parsed}, cpp_class="r::Random", cost=1.0, tensorflow="2.21.0")
        (folder / "m.h").write_text(rendered.header)
        (folder / "m.cc").write_text(*rendered.sources)
        (folder / "main.cc").write_text(RANDOM)
        compile_program(folder)
        compiler(folder, "-O1", "main.cc", "m.o", "object", "constants", *RUNTIME, "-lm", "-o", "main")
        printed = subprocess.run([folder / "main"], capture_output=True, check=True, text=True).stdout
        values = np.array(printed.split(), np.float32).reshape(2, 2, 1000)
        self.assertTrue(np.array_equal(values[0], values[1]), "instances start alike")
        self.assertFalse(np.isin(values[0, 0], values[0, 1]).all(), "each run has numbers of its own")
        self.assertTrue(((values >= 0) & (values < 1)).all())
        self.assertLess(abs(float(values[0].mean()) - 0.5), 0.05)

    def test_levels_share_no_code(self) -> None:
        """Protects programs with models for different CPUs: the linker must not give one the other's instructions."""
        weak: dict[str, set[str]] = {}
        for cpu in ("x86-64", "x86-64-v3"):
            for model in ("products", "convolutions"):
                exported = self.program(MODELS[model], cpu=cpu, cpp_class=f"t::M{model}")
                for program in ("m.o", "object", "constants"):
                    listed = subprocess.run(
                        ["nm", "-P", program], capture_output=True, check=True, cwd=exported.folder, text=True
                    ).stdout
                    symbols = [line.split()[:2] for line in listed.splitlines()]
                    # DW.ref.… is a pointer to a function of the C++ runtime's, the same whatever the level.
                    found = {name for name, kind in symbols if kind in "VWuC" and not name.startswith("DW.ref.")}
                    self.assertTrue(program == "m.o" or not found, found)
                    weak.setdefault(cpu, set()).update(found)
        self.assertTrue(all(weak.values()), "products and convolutions of models of one level are the same code")
        self.assertEqual(weak["x86-64"] & weak["x86-64-v3"], set())


class HeaderTest(StageTest):
    """How strictly the header is read."""

    header: str

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        test = ThunksTest("test_every_kind_of_thunk")
        test.setUp()
        exported = test.program(MODELS["conditionals"], cpp_class="t::M")
        cls.header = Path(exported.path("tfcompile.h")).read_text()
        test.doCleanups()

    def changed(self, old: str, new: str, count: int = 1) -> str:
        """The error for the header with a part replaced."""
        self.assertIn(old, self.header)
        return self.error_of(thunks.parse, self.header.replace(old, new, count))

    def test_unknown_text(self) -> None:
        """Protects from a TensorFlow that writes something else: no part of a thunk may be passed over."""
        self.assert_error(
            self.changed("// Conditional Thunk", "// Custom Thunk").replace(self._conditional(), "…"),
            """
            tfcompile's header has something in it that is not known here

                // Custom Thunk …

              to do: use the TensorFlow that tools/python/requirements.lock names, or teach tfaot/compile/program what it means
            """,
        )
        for old, new in (
            ("(*comparator)(&result, nullptr, data,", "(*comparator)(&result, &done, data,"),
            ("for (uint64_t x = 0;", "for (uint64_t x = 1;"),
            ("return false;", "return true;"),
            ("TypedMatMul<float, float, float>", "TypedMatMul<int8_t, int8_t, int32_t>"),
            ("run_options->intra_op_thread_pool()", "nullptr"),
            ("done.Wait();", ""),
            ("XLA_CPU_KernelArg{reinterpret_cast<std::byte*>(buffer_table[", "XLA_CPU_KernelArg{(buffer_table["),
            ("? 0 : 1;", "? 1 : 0;"),
            ("case 1: {", "case 1: { ++buffer_table;"),
            ("buffer + 64};", "buffer + 32};"),
            ("EncodedBufferAllocationInfo{", "EncodedBufferAllocationInfo{1ULL + "),
        ):
            with self.subTest(old):
                self.assertIn("has something in it that is not known here", self.changed(old, new))

    def _conditional(self) -> str:
        text = " ".join(self.header.split())
        begin = text.index("// Conditional Thunk") + len("// Conditional Thunk ")
        return text[begin : begin + 200 - len("// Custom Thunk ")] + "…"

    def test_contradictions(self) -> None:
        """Protects from misreading: what the header says twice must agree, and no thunk may leave its buffers."""
        self.assert_error(
            self.changed("kNumResults = 2;", "kNumResults = 3;"),
            """
            tfcompile's header contradicts itself: kNumResults is 3, but 2 are listed
              to do: use the TensorFlow that tools/python/requirements.lock names; if it is that one, this is a bug of rules_tfaot
            """,
        )
        large = re.search(r"\+ \d+, 16384\}", self.header)
        assert large
        for old, new, wanted in (
            ("kNumBuffers = ", "kNumBuffers = 1", "are listed"),
            (large[0], "+ 0, 163840}", "a Kernel uses bytes 0 to 163840 of buffer"),
            ("case 1: {", "case 2: {", "branch 1 of a conditional is missing"),
            ("std::array<XLA_CPU_KernelArg, 2>", "std::array<XLA_CPU_KernelArg, 3>", "has 2 arguments and wants 3"),
        ):
            with self.subTest(wanted):
                self.assertIn(wanted, self.changed(old, new))
        index = re.search(r"kArgIndexToBufferIndex\[kNumArgs\] = \{\s*(\d+), (\d+)", self.header)
        assert index
        swapped = index[0].replace(f"{index[1]}, {index[2]}", f"{index[2]}, {index[1]}")
        self.assertIn("which holds argument 1", self.changed(index[0], swapped))

    def test_other_files(self) -> None:
        """Protects the reader of an error: a file that is no such header is said to be none."""
        self.assert_error(
            self.error_of(thunks.parse, "int main() {}"),
            """
            the text is no header that tfcompile wrote: it has 0 of kNumArgs
              to do: pass the file that tfcompile, of the TensorFlow that tools/python/requirements.lock names, wrote as out_header
            """,
        )

    def test_too_many_sorted(self) -> None:
        """Protects the runtime's stack: what it cannot sort is refused when the model is built."""
        buffers = tuple(thunks.Buffer(64, "temp", None, None) for _ in range(65))
        sort = thunks.Sort("less", tuple(thunks.Slice(i, 0) for i in range(65)), (4,) * 65, (1, 16, 1), True)
        function = thunks.CompiledFunction(buffers, (), (), (), (), (sort,))
        self.assert_error(
            self.error_of(executor.render, {"x86-64": function}, cpp_class="a::B", cost=1.0, tensorflow="2"),
            """
            the model sorts 65 arrays together
              found: at most 64 can be
              to do: sort the indices, and gather by them
            """,
        )


RANDOM = """\
#include <cstdio>
#include "m.h"
int main() {
  for (int instance = 0; instance < 2; ++instance) {
    r::Random random(0);
    for (int run = 0; run < 2; ++run) {
      if (!random.Run()) return 1;
      for (int i = 0; i < 1000; ++i) std::printf("%.9g ", static_cast<const float*>(random.result_data(0))[i]);
    }
  }
}
"""


def compile_random(folder: Path) -> None:
    """Runs tfcompile alone on a graph of 1000 random numbers."""
    import tensorflow as tf
    from tensorflow.python import _pywrap_tfcompile

    with tf.Graph().as_default() as graph:
        tf.raw_ops.RandomUniform(shape=[1000], dtype=tf.float32, name="numbers")
    (folder / "graph").write_bytes(graph.as_graph_def().SerializeToString())
    (folder / "config.pbtxt").write_text('fetch { id { node_name: "numbers" } name: "numbers" }')
    _pywrap_tfcompile.Compile(
        graph=str(folder / "graph"),
        config=str(folder / "config.pbtxt"),
        target_triple="x86_64-pc-linux",
        target_cpu="x86-64-v3",
        target_features="",
        entry_point="random",
        cpp_class="r::Random",
        out_function_object=str(folder / "object"),
        out_metadata_object=str(folder / "metadata"),
        out_header=str(folder / "tfcompile.h"),
        out_session_module=str(folder / "hlo"),
        out_constant_buffers_object=str(folder / "constants"),
        mlir_components="",
        gen_name_to_index=False,
        gen_program_shape=False,
    )


def expected(exported: Exported) -> Sequence[Sequence[Array]]:
    """What TensorFlow computes: results of each step, outputs and then written variables."""
    from tensorflow.core.framework import graph_pb2

    from tfaot.verify.runner import Runner

    graph = graph_pb2.GraphDef()
    graph.ParseFromString(Path(exported.path("graph")).read_bytes())
    manifest = exported.manifest
    inputs = exported.golden_inputs
    entry = manifest.entry_points[0]
    calls = [
        (entry, [inputs[f"step{step}/{tensor.cpp_name}"] for tensor in entry.inputs])
        for step in range(len(manifest.calls))
    ]
    return [list(results) for results in Runner(manifest, graph)(exported.variables.items(), calls)]


if __name__ == "__main__":
    unittest.main()
