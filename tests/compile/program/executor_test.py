"""A compiled function's program compared with TensorFlow: every kind of thunk, and what a run must not do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.compile.program.models import HEAD, MODELS, keeping_header
from tests.stages import harness, native
from tests.stages.harness import ROOT, Exported, StageTest
from tfaot.compile.program.codegen import executor
from tfaot.compile.program.thunks import header
from tfaot.compile.program.thunks import kinds as thunks
from tfaot.core import isolate

Array = npt.NDArray[Any]

OWN_TESTS = ("columns", "dense", "descent", "filters", "heads", "long_rows", "norms", "orders", "softmax", "updates")
"""Models that a test below compares with TensorFlow at both levels."""

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
  const auto room = [](std::size_t bytes) { return ::operator new(bytes + 64, std::align_val_t{64}); };
  void* const memory = room(CLASS::MemoryBytes(0));
  const long before = allocations;
  CLASS model(0, memory);
  if (allocations != before) return std::printf("made with %ld allocations", allocations - before);
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
    """Runs the C++ compiler in a folder, with our headers as the rules provide them."""
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
    """Compiles `m.cc` to `m.o` like the link stage, without warnings."""
    compiler(
        folder,
        "-O3",
        f"-march={cpu}",
        "-fno-math-errno",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
        "-c",
        "m.cc",
        "-o",
        "m.o",
    )


class ExecutorTest(StageTest):
    """Models through the stages, and their programs alone."""

    def setUp(self) -> None:
        super().setUp()
        self.want: dict[Path, Sequence[Sequence[Array]]] = {}

    def sources(
        self, model: str, cpu: str = "x86-64-v3", steps: int = 4, passes: tuple[str, ...] = ("*",), **kwargs: Any
    ) -> Exported:
        """Exports and compiles a model. Leaves `m.h`, `m.cc`, and tfcompile's own header `tfcompile.h`."""
        exported = self.export(HEAD + model, golden_steps=steps, **kwargs)
        self.compile_sources(exported, cpu, passes)
        return exported

    def compile_sources(self, exported: Exported, cpu: str, passes: tuple[str, ...] = ("*",)) -> None:
        """Compiles an exported model, with what `sources` leaves."""
        with keeping_header(exported):
            self.compile(exported, isa=(cpu,), passes=passes)
        os.rename(exported.path("header"), exported.path("m.h"))
        os.rename(exported.path("source"), exported.path("m.cc"))

    def program(self, model: str, cpu: str = "x86-64-v3", **kwargs: Any) -> Exported:
        """Like `sources`, and leaves `m.o`."""
        exported = self.sources(model, cpu, **kwargs)
        compile_program(exported.folder, cpu)
        return exported

    def programs(self, model: str) -> Iterator[tuple[str, Exported]]:
        """Exports a model, and leaves its program at the lowest CPU level, and at the next."""
        exported = self.export(HEAD + model, golden_steps=4)
        for cpu in ("x86-64", "x86-64-v3"):
            self.compile_sources(exported, cpu)
            compile_program(exported.folder, cpu)
            yield cpu, exported

    def parsed(self, exported: Exported) -> thunks.CompiledFunction:
        """Returns the contents of tfcompile's header."""
        return header.parse(Path(exported.path("tfcompile.h")).read_text())

    def assert_like_tensorflow(self, exported: Exported, steps: int = 4, cpu: str = "x86-64-v3") -> None:
        """Compares runs of the program with TensorFlow."""
        if exported.folder not in self.want:
            self.want[exported.folder] = isolate.run_isolated(lambda: expected(exported), what="running TensorFlow")
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
        objects = ["m.o", "object", "constants", *native.kernels(cpu), *native.runtime()]
        compiler(exported.folder, "-O1", "driver.cc", *objects, "-lm", "-o", "driver")
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
        for step, values in enumerate(self.want[exported.folder]):
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
        """Protects every model's numbers: each kind of thunk, over several steps, with moving arguments, without allocation."""
        kinds: set[type] = set()
        for name, model in MODELS.items():
            if name in OWN_TESTS:
                continue
            with self.subTest(name):
                exported = self.program(model, cpp_class=f"t::M{name}")
                kinds |= {type(thunk) for thunk in thunks.walk(self.parsed(exported).thunks)}
                self.assert_like_tensorflow(exported)
        # Without Call: XLA calls what it expands itself, such as decompositions, which are the runtime's.
        self.assertEqual(
            {kind.__name__ for kind in kinds},
            {"Conditional", "Convolution", "Copy", "Dot", "For", "Kernel", "Sort", "TopK", "While"},
        )

    def test_constants(self) -> None:
        """Protects packed weights, including at the lowest level, whose strips are half a panel, and other reads of them."""
        exported = self.program(MODELS["constants"], cpu="x86-64")
        source = Path(exported.path("m.cc")).read_text()
        self.assertEqual([source.count(f"Packing::{name}") for name in ("kPanels", "kNone")], [8, 2])
        self.assert_like_tensorflow(exported, cpu="x86-64")

    def test_recurrent(self) -> None:
        """Protects weights of loops: those that no step changes are packed before the first, also at the lowest level."""
        exported = self.program(MODELS["recurrent"], cpu="x86-64")
        source = Path(exported.path("m.cc")).read_text()
        packs = re.findall(r"RunPack<(\w+)>\((\d+, \d+, \w+),", source)
        self.assertCountEqual(
            packs, [("float", "40, 56, false"), ("float", "56, 40, true"), ("double", "28, 28, false")]
        )
        self.assertEqual([source.count(f"Packing::{name}") for name in ("kPanels", "kNone")], [3, 1])
        self.assert_like_tensorflow(exported, cpu="x86-64")

    def test_epilogues(self) -> None:
        """Protects fast layers: what only finishes a product is part of it, without a kernel call."""
        exported = self.sources(MODELS["epilogues"])
        source = Path(exported.path("m.cc")).read_text()
        calls = [line for line in source.splitlines() if "TFAOT_ISA::Run" in line or "(calls + " in line]
        self.assertEqual([line.endswith("});") for line in calls], [True] * 9, calls)

    @harness.wide
    def test_descent(self) -> None:
        """Protects SGD: it is a part of products that compute gradients, with TensorFlow's numbers, also at the lowest level."""
        for cpu, exported in self.programs(MODELS["descent"]):
            self.assert_like_tensorflow(exported, cpu=cpu)
            ends = re.findall(r"INFINITY, INFINITY, (-[\d.]+), (\w+)\}\);", Path(exported.path("m.cc")).read_text())
            self.assertCountEqual(ends, [("-0.25", "true"), ("-0.5", "true"), ("-0.01", "true"), ("-0.125", "false")])

    @harness.wide
    def test_heads(self) -> None:
        """Protects fast attention: its products read and write heads where they lie, without copies, also at the lowest level."""
        for cpu, exported in self.programs(MODELS["heads"]):
            self.assert_like_tensorflow(exported, cpu=cpu)
            passes = json.loads(Path(exported.path("passes")).read_text())
            self.assertEqual([passes[name] for name in ("split_kv_matmul", "transpose_folding")], [4, 6])

    def test_softmax(self) -> None:
        """Protects attention and classifiers: a softmax is one call, and has TensorFlow's numbers, also at the lowest level."""
        for cpu, exported in self.programs(MODELS["softmax"]):
            self.assert_like_tensorflow(exported, cpu=cpu)
            calls = re.findall(r"RunRowSweep<RowFormula\d>\((\d+),", Path(exported.path("m.cc")).read_text())
            self.assertCountEqual(calls, ["42", "42", "1", "5"])

    @harness.wide
    def test_long_rows(self) -> None:
        """Protects long contexts and large layers: rows of any length are one call, and have TensorFlow's numbers."""
        for cpu, exported in self.programs(MODELS["long_rows"]):
            self.assert_like_tensorflow(exported, cpu=cpu)
            source = Path(exported.path("m.cc")).read_text()
            calls = re.findall(r"RunRowSweep<RowFormula\d>\((\d+),", source)
            self.assertCountEqual(calls, ["33", "26", "8", "8", "3", "10"])
            self.assertNotIn(") != nullptr) return false;", source)

    def test_row_fusion(self) -> None:
        """Protects layer norms and activations: each is one call, and has TensorFlow's numbers, also at the lowest level."""
        for cpu, exported in self.programs(MODELS["norms"]):
            self.assert_like_tensorflow(exported, cpu=cpu)
            source = Path(exported.path("m.cc")).read_text()
            calls = re.findall(r"RunRowSweep<RowFormula\d>\((\d+),", source)
            self.assertCountEqual(calls, ["360", "360", "70", "70", "101", "101"])
            # Threads can't share a kernel of XLA's, so functions of many values are calls, and those of the same array one call.
            self.assertEqual(re.findall(r"RunSweep<Formula\d>\((65650),", source), ["65650"])
            self.assertEqual(
                [source.count(f"kernels::{each}") for each in ("Exp(", "FromInteger<", "Tanh(")], [2, 2, 1]
            )

    def test_column_reduction(self) -> None:
        """Protects gradients of biases: sums of rows are calls, and have TensorFlow's numbers, also at the lowest level."""
        for cpu, exported in self.programs(MODELS["columns"]):
            self.assert_like_tensorflow(exported, cpu=cpu)
            calls = re.findall(r"RunColumnSums<float>\(\{(.*?)\},", Path(exported.path("m.cc")).read_text())
            self.assertCountEqual(calls, ["1, 6561, 4, 3, 2025, 2592", "1, 8, 2000, 1, 8, 8", "1, 400, 3, 13, 24, 32"])

    def test_filter_gradients(self) -> None:
        """Protects training of images: gradients by kernels are calls, and have TensorFlow's numbers, also at the lowest level."""
        for cpu, exported in self.programs(MODELS["filters"]):
            self.assert_like_tensorflow(exported, cpu=cpu)
            self.assertEqual(json.loads(Path(exported.path("passes")).read_text())["filter_gradients"], 2)
            source = Path(exported.path("m.cc")).read_text()
            self.assertEqual(
                [source.count(f"Run{call}<float>(k") for call in ("FilterGradient", "Convolution")], [2, 1]
            )

    def test_mlp_fusion(self) -> None:
        """Protects small nets: layers on one row are calls with TensorFlow's numbers, also in loops and at the lowest level."""
        for cpu, exported in self.programs(MODELS["dense"]):
            self.assert_like_tensorflow(exported, cpu=cpu)
            source = Path(exported.path("m.cc")).read_text()
            layers = re.findall(r"Dense<(\d+, \d+, \w+)>", source)
            self.assertCountEqual(
                layers,
                [
                    "10, 64, false",
                    "64, 64, false",
                    "64, 64, false",
                    "64, 1, true",
                    "64, 3, true",
                    "13, 37, false",
                    "16, 16, false",
                ],
            )

    def test_transposes(self) -> None:
        """Protects attention and gradients: copies of rows are calls, and copy every value, also at the lowest level."""
        for cpu, exported in self.programs(MODELS["orders"]):
            self.assert_like_tensorflow(exported, cpu=cpu)
            calls = re.findall(r"RunRowCopies<float>\(\{0, (.*)\}, b", Path(exported.path("m.cc")).read_text())
            self.assertCountEqual(
                calls,
                [
                    "{{1, 0}, {10, 468}, {13, 3}, {12, 39}}, 3",
                    "{{1, 0}, {1, 0}, {30, 4}, {20, 120}}, 4",
                    "{{1, 0}, {1, 0}, {29, 4}, {18, 116}}, 4",
                ],
            )

    @harness.wide
    def test_sweeps(self) -> None:
        """Protects every bit of updates: kernels in one pass give what they give one by one, with and without fused sums."""
        for cpu in ("x86-64", "x86-64-v3"):
            results, sources = [], []
            for passes in (("*",), ("*", "!elementwise_fusion")):
                exported = self.program(MODELS["updates"], cpu=cpu, passes=passes)
                self.assert_like_tensorflow(exported, cpu=cpu)
                results.append((exported.folder / "results").read_bytes())
                sources.append(Path(exported.path("m.cc")).read_text())
            self.assertEqual([source.count("RunSweep<") for source in sources], [2, 0])
            for part in (
                "Abs(",
                "Maximum(",
                "Minimum(",
                "MultiplyAdd(",
                "Sqrt(",
                " / ",
                " > ",
                " ? ",
                "s0)",
                " * ",
                "= -v",
            ):
                self.assertIn(part, sources[0])
            self.assertEqual(results[0], results[1])

    def test_random_state(self) -> None:
        """Protects graphs whose random ops the export stage doesn't replace: states match XLA's, one by one."""
        folder = self.folder
        isolate.run_isolated(lambda: compile_random(folder), what="compiling")
        parsed = header.parse((folder / "tfcompile.h").read_text())
        self.assertIn(thunks.Rng, {type(thunk) for thunk in thunks.walk(parsed.thunks)})
        rendered = executor.render({"x86-64-v3": parsed}, cpp_class="r::Random", cost=1.0, tensorflow="2.21.0")
        (folder / "m.h").write_text(rendered.header)
        (folder / "m.cc").write_text(*rendered.sources)
        (folder / "main.cc").write_text(RANDOM)
        compile_program(folder)
        compiler(folder, "-O1", "main.cc", "m.o", "object", "constants", *native.runtime(), "-lm", "-o", "main")
        printed = subprocess.run([folder / "main"], capture_output=True, check=True, text=True).stdout
        values = np.array(printed.split(), np.float32).reshape(2, 2, 1000)
        self.assertTrue(np.array_equal(values[0], values[1]), "instances start alike")
        self.assertFalse(np.isin(values[0, 0], values[0, 1]).all(), "each run has numbers of its own")
        self.assertTrue(((values >= 0) & (values < 1)).all())
        self.assertLess(abs(float(values[0].mean()) - 0.5), 0.05)

    @harness.wide
    def test_levels_share_no_code(self) -> None:
        """Protects programs with models for different CPUs: the linker must not mix their instructions."""
        weak: dict[str, set[str]] = {}
        for cpu in ("x86-64", "x86-64-v3"):
            for model in ("products", "convolutions"):
                exported = self.program(MODELS[model], cpu=cpu, cpp_class=f"t::M{model}")
                for program in ("m.o", "object", "constants", *native.kernels(cpu)):
                    listed = subprocess.run(
                        ["nm", "-P", program], capture_output=True, check=True, cwd=exported.folder, text=True
                    ).stdout
                    symbols = [line.split()[:2] for line in listed.splitlines()]
                    # DW.ref.… is a pointer to a function in the C++ runtime, the same at every level.
                    found = {name for name, kind in symbols if kind in "VWuC" and not name.startswith("DW.ref.")}
                    self.assertTrue(program not in ("object", "constants") or not found, found)
                    weak.setdefault(cpu, set()).update(found)
        self.assertTrue(all(weak.values()), "products and convolutions of models of one level are the same code")
        self.assertEqual(weak["x86-64"] & weak["x86-64-v3"], set())

    def test_new_kind(self) -> None:
        """Protects numbers: a kind of thunk that doesn't say what it uses can't exist, and so no analysis passes it over."""

        class New(thunks.Thunk):
            """A kind that says nothing."""

        with self.assertRaisesRegex(
            TypeError, "abstract methods '?emit'?, '?places'?,? and '?uses'?|emit.*places.*uses"
        ):
            New()  # type: ignore[abstract]

    def test_uses(self) -> None:
        """Protects numbers: what may be written is known, or all that a thunk uses. A loop has what is in it."""
        x, out = thunks.Slice(0, 0), thunks.Slice(1, 8)
        args = ((x, 8), (out, 4))
        copy, sort = thunks.Copy(out, x, 4), thunks.Sort("less", (x,), (4,), (1, 2, 3), True)
        epilogue = thunks.Epilogue(x, None, None, thunks.Slice(2, 0), 0, 1)
        dot = thunks.Dot("float", 1, out, x, x, (0, 0, 0), 2, 3, 4, False, False, epilogue)
        for thunk, reads, writes in (
            (thunks.Kernel("k", args, (1, 1, 1)), ((x, 8), (out, 4)), ()),
            (thunks.Kernel("k", args, (1, 1, 1), single=True), ((x, 8),), ((out, 4),)),
            (copy, ((x, 4),), ((out, 4),)),
            (sort, ((x, 24),), ()),
            (dot, ((x, 32), (x, 48), (x, 8)), ((out, 24), (thunks.Slice(2, 0), 24))),
            (thunks.While(x, (sort,), (thunks.Call((copy,)),)), ((x, 1), (x, 24), (out, 4), (x, 4)), ()),
            (thunks.Conditional(x, False, ((copy,), ())), ((x, 4), (out, 4), (x, 4)), ()),
        ):
            with self.subTest(thunk):
                uses = thunk.uses()
                self.assertEqual((uses.reads, uses.writes, uses.changes), (reads, writes, writes or reads))

    def test_too_many_sorted(self) -> None:
        """Protects the runtime's stack: a sort that is too large for it is refused at build time."""
        buffers = tuple(thunks.Buffer(64, "temp", None, None) for _ in range(65))
        sort = thunks.Sort("less", tuple(thunks.Slice(i, 0) for i in range(65)), (4,) * 65, (1, 16, 1), True)
        function = thunks.CompiledFunction(buffers, (), (), (), (), (sort,))
        self.assert_error(
            self.error_of(executor.render, {"x86-64": function}, cpp_class="a::B", cost=1.0, tensorflow="2"),
            """
            the model sorts 65 arrays together
              found: the limit is 64
              to do: sort their indices instead, and gather each array by the sorted indices
            """,
        )


RANDOM = """\
#include <cstdio>
#include <cstdlib>
#include "m.h"
int main() {
  for (int instance = 0; instance < 2; ++instance) {
    void* const memory = std::aligned_alloc(64, r::Random::MemoryBytes(0) + 64 & ~std::size_t{63});
    r::Random random(0, memory);
    for (int run = 0; run < 2; ++run) {
      if (!random.Run()) return 1;
      for (int i = 0; i < 1000; ++i) std::printf("%.9g ", static_cast<const float*>(random.result_data(0))[i]);
    }
  }
}
"""


def compile_random(folder: Path) -> None:
    """Runs only tfcompile, on a graph with 1000 random numbers."""
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
    """Returns TensorFlow's results for each step: outputs, then written variables."""
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
