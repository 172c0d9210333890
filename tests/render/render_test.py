"""The generated C++, character by character, and through a real compiler."""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import jinja2
import numpy as np

from tests.stages import native
from tests.stages.harness import ROOT
from tfaot.core import dtypes, fingerprint, names, safetensors
from tfaot.core.errors import TfaotError
from tfaot.core.functions import stem
from tfaot.core.manifest import (
    Axis,
    Call,
    EntryPoint,
    Fingerprints,
    Input,
    Manifest,
    OpenSize,
    Output,
    Requirement,
    Tensor,
    Use,
    Variable,
)
from tfaot.render import render as stage

UPDATE = "bazel run //tests/render:render_test -- --update"
KINDS = {
    "header": "{}.h",
    "source": "{}.cc",
    "test": "{}_test.cc",
    "benchmark": "{}_benchmark.cc",
    "stub": "{}.stub.cc",
    "variables": "{}.variables.S",
}


def entry(name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], **changes: Any) -> EntryPoint:
    """Returns an entry point whose tensors have no batch and cross the edge as they are."""
    return EntryPoint(
        name,
        name,
        tuple(Input(**dataclasses.asdict(tensor), batched=False) for tensor in inputs),
        tuple(Output(**dataclasses.asdict(tensor), batched=False, size="") for tensor in outputs),
        **{"variables": (), "batch_sizes": (), **changes},
    )


def tensor(name: str, cpp_name: str, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Returns a tensor that crosses the edge in the dtype that `dtypes` says."""
    return Tensor(name, cpp_name, dtype, shape, dtypes.BY_NAME[dtype].stored)


SMALL = Manifest(
    format=5,
    tensorflow="2.21.0",
    cpp_class="a::b::Small",
    entry_points=(
        entry(
            "Run",
            (tensor("x:0", "x", "float32", (2, 3)), tensor("in/n:0", "in_n", "int32", ())),
            (tensor("loss:0", "loss", "float32", ()), tensor("Cast:0", "class_", "int64", (2,))),
            variables=(Use(0, written=True), Use(1, written=False), Use(2, written=True)),
        ),
    ),
    variables=(
        Variable("scope/w", "scope_w", "float32", (3, 4), "float32", written=True, offset=0),
        Variable("moving_mean", "moving_mean", "float64", (4,), "float64", written=False, offset=48),
        Variable("step", "step", "int64", (), "int64", written=True, offset=80),
    ),
    frozen=(),
    random_state="",
    max_batch=0,
    calls=(Call("Run", 0),) * 3,
    fingerprints=Fingerprints("0" * 16, "1" * 16, "2" * 16, "3" * 16, ""),
)
"""The common case: one function, and one variable of each kind in the library."""

FAMILY = Manifest(
    format=5,
    tensorflow="2.21.0",
    cpp_class="a::Family",
    entry_points=(
        EntryPoint(
            "Train",
            "Train",
            (Input("Train/x:0", "x", "float32", (2, 3), "float32", batched=False),),
            (
                Output("Train/loss:0", "loss", "float32", (), "float32", batched=False, size=""),
                Output("Train/Where:0", "where", "int64", (6, 2), "int64", batched=False, size="Train/Where/size:0"),
            ),
            (Use(1, written=True), Use(2, written=True)),
            (),
        ),
        EntryPoint(
            "Embed",
            "Embed",
            (
                Input("Embed/rows/stored:0", "rows", "bfloat16", (12, 4), "uint16", batched=True),
                Input("Embed/scale:0", "scale", "float32", (), "float32", batched=False),
            ),
            (Output("Embed/sum/stored:0", "sum", "complex64", (12, 4), "float32", batched=True, size=""),),
            (Use(0, written=False),),
            (1, 8),
        ),
        EntryPoint(
            "Tag",
            "Tag",
            (
                Input("Tag/words:0", "words", "int32", (12, 16), "int32", batched=True, axes=(Axis(1, 0),)),
                Input("Tag/length:0", "length", "int32", (), "int32", batched=False),
            ),
            (
                Output("Tag/tags:0", "tags", "float32", (12, 16, 3), "float32", batched=True, size="Tag/tags/size:0"),
                Output("Tag/mean:0", "mean", "float32", (12, 3), "float32", batched=True, size=""),
            ),
            (Use(0, written=False),),
            (1, 8),
            (OpenSize("length", (4, 16)),),
        ),
        EntryPoint(
            "Count",
            "Count",
            (
                Input(
                    "Count/frames:0",
                    "frames",
                    "float32",
                    (16, 3),
                    "float32",
                    batched=False,
                    axes=(Axis(0, 0), Axis(1, 1)),
                ),
                Input("Count/time:0", "time", "int32", (), "int32", batched=False),
                Input("Count/width:0", "width", "int32", (), "int32", batched=False),
            ),
            (
                Output("Count/kept:0", "kept", "float32", (16,), "float32", batched=False, size="Count/kept/size:0"),
                Output("Count/sum:0", "total", "float32", (), "float32", batched=False, size=""),
            ),
            (Use(2, written=True),),
            (),
            (OpenSize("time", (16,)), OpenSize("width", (1, 3))),
            (Requirement("time + width <= 18", (-1, -1), 18, equal=False, modulus=0),),
        ),
    ),
    variables=(
        Variable("table", "table", "float16", (8, 4), "uint16", written=False, offset=0),
        Variable("scope/w", "scope_w", "float32", (2, 3), "float32", written=True, offset=64),
        Variable("state", "state", "int64", (3,), "int64", written=True, offset=88),
    ),
    frozen=(),
    random_state="state",
    max_batch=12,
    calls=(
        *(Call("Train", 0), Call("Embed", 1), Call("Embed", 12), Call("Train", 0)),
        *(Call("Tag", 1, (1,)), Call("Tag", 12, (16,)), Call("Count", 0, (5, 2))),
    ),
    fingerprints=Fingerprints("0" * 16, "1" * 16, "2" * 16, "3" * 16, ""),
)
"""Everything less common: several functions, a batch family, open sizes, a result without a fixed size, our own dtypes, random
numbers, and variables in a file."""


def compiled(manifest: Manifest, name: str) -> tuple[stage.Compiled, ...]:
    """Returns a model's functions with the rules' names."""
    keys = [(entry.name, *variant) for entry in manifest.entry_points for variant in entry.variants]
    return tuple(
        stage.Compiled(
            entry,
            batch,
            buckets,
            f"p/{name}.{entry}.b{batch}{stem('', 0, buckets)}.executor.h" if len(keys) > 1 else f"p/{name}.executor.h",
        )
        for entry, batch, buckets in keys
    )


def without_variables(manifest: Manifest, **changes: Any) -> Manifest:
    """Returns the same model, except for variables and these changes."""
    entries = tuple(dataclasses.replace(entry, variables=()) for entry in manifest.entry_points)
    return dataclasses.replace(manifest, **{"entry_points": entries, "random_state": "", "variables": (), **changes})


class RenderTest(unittest.TestCase):
    """Renders manifests to a separate folder."""

    maxDiff = None

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)

    def render(
        self, manifest: Manifest = SMALL, name: str = "small", *, embed: bool = True, keep: bool = False
    ) -> dict[str, str]:
        """Renders all sources and returns their texts by kind."""
        (self.folder / "model.json").write_text(manifest.to_json())
        kinds = {kind: pattern.format(name) for kind, pattern in KINDS.items()}
        stage.render(
            stage.Request(
                manifest=str(self.folder / "model.json"),
                header=f"p/{name}.h",
                functions=compiled(manifest, name),
                embed_variables=embed,
                flush_denormals=not keep,
                **{f"out_{kind}": str(self.folder / file) for kind, file in kinds.items()},
            )
        )
        return {kind: (self.folder / file).read_text() for kind, file in kinds.items()}

    def compiler(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs the C++ compiler with the rules' headers, and the rendered ones as `p/…`."""
        if not (self.folder / "p").exists():
            (self.folder / "p").symlink_to(self.folder)
        found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        assert found, "no C++ compiler on PATH"
        return subprocess.run(
            [found, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", ".", "-I", str(ROOT / "runtime"), *arguments],
            capture_output=True,
            check=False,
            cwd=self.folder,
            text=True,
        )

    def compiles(self, text: str, *flags: str) -> None:
        """Asserts that a program compiles, without a warning."""
        (self.folder / "program.cc").write_text(text)
        result = self.compiler("-fsyntax-only", *flags, "program.cc")
        self.assertEqual(result.returncode, 0, result.stderr)


class GoldenTest(RenderTest):
    """The generated text itself."""

    def golden(self, name: str) -> Path:
        """Returns the location of a golden: in the sources for updates, otherwise among the test's files."""
        root = os.environ.get("BUILD_WORKSPACE_DIRECTORY") if "--update" in ARGUMENTS else None
        return Path(root or ROOT) / "tests/render/goldens" / (name + ".golden")

    def test_goldens(self) -> None:
        """Protects what users read and debug: a change to the templates shows in full, and is intended.

        Of the large class, two functions are enough, and all but its source, whose parts the small one has: other tests compile and
        run it. The small one's source is kept as its difference from its stub.
        """
        family = dataclasses.replace(FAMILY, entry_points=FAMILY.entry_points[2:3], calls=FAMILY.calls[4:6])
        for name, manifest, embed in (("small", SMALL, True), ("family", family, False)):
            texts = self.render(manifest, name, embed=embed)
            if name == "small":
                before, after = (texts[kind].splitlines(True) for kind in ("stub", "source"))
                texts["source"] = "".join(difflib.unified_diff(before, after, "stub", "source", n=1))
            else:
                del texts["stub"], texts["source"]
            for kind, text in texts.items():
                golden = self.golden(KINDS[kind].format(name))
                if "--update" in ARGUMENTS:
                    golden.write_text(text)
                with self.subTest(name, kind=kind):
                    wanted = golden.read_text() if golden.exists() else ""
                    self.assertEqual(text, wanted, f"\nif the new text is meant: {UPDATE}")

    def test_same_text_twice(self) -> None:
        """Protects caches: the text depends only on the manifest and the names of the headers."""
        for manifest in (SMALL, FAMILY):
            self.assertEqual(self.render(manifest), self.render(manifest))

    def test_no_line_is_left_blank_by_the_templates(self) -> None:
        """Protects readers: the templates' conditions and loops leave no trace, with or without members."""
        for manifest in (
            SMALL,
            without_variables(SMALL),
            without_variables(SMALL, cpp_class="Small"),
            FAMILY,
            without_variables(FAMILY),
            dataclasses.replace(FAMILY, random_state=""),
        ):
            for embed in (True, False):
                for kind, text in self.render(manifest, embed=embed).items():
                    with self.subTest(
                        kind, cpp_class=manifest.cpp_class, variables=len(manifest.variables), embed=embed
                    ):
                        self.assertNotIn("\n\n\n", text)
                        self.assertNotIn(" \n", text)
                        self.assertTrue(text.endswith("\n") and not text.endswith("\n\n"))

    def test_undefined_variable_fails(self) -> None:
        """Protects against text that silently lacks a name: an undefined variable in a template is an error."""
        shutil.copytree(ROOT / "py/tfaot/render/templates", self.folder / "templates")
        (self.folder / "templates/test.cc.jinja").write_text("{{ no_such_thing }}")
        with (
            mock.patch.object(stage, "_TEMPLATES", str(self.folder / "templates")),
            self.assertRaisesRegex(jinja2.UndefinedError, "no_such_thing"),
        ):
            self.render()

    def test_other_functions(self) -> None:
        """Protects the linker: the rules compiled the same functions that the manifest's class calls."""
        every = compiled(FAMILY, "family")
        functions = every[:3]
        named_by_all = (
            "Train, Embed for batches of 1, Embed for batches of 8, Tag for batches of 1 for sizes up to 4, Tag for batches of 8 "
            "for sizes up to 4, Tag for batches of 1 for sizes up to 16, Tag for batches of 8 for sizes up to 16, Count for "
            "sizes up to 16 and 1, Count for sizes up to 16 and 3"
        )
        for named, shown in (
            (functions[1:], "Embed for batches of 1, Embed for batches of 8"),
            ((*functions, functions[0]), "Train, Embed for batches of 1, Embed for batches of 8, Train"),
            ((dataclasses.replace(functions[0], entry_point=""),), "the only entry point"),
        ):
            with self.assertRaises(TfaotError) as raised:
                stage.context_of(FAMILY, header="h", compiled=named, embed=False)
            self.assertEqual(
                str(raised.exception),
                f"a::Family: the stage got the wrong functions: {shown}\n"
                f"  found: the manifest has {named_by_all}\n"
                "  to do: name each function of the manifest once: an entry point with one of its batch sizes, or 0 if it has "
                "none, and a bucket of each of its open sizes",
            )
        alone = stage.context_of(SMALL, header="h", compiled=[stage.Compiled("", 0, (), "x.h")], embed=True)
        self.assertEqual(alone["private_headers"], ["x.h"], "the only entry point may go without its name")
        reverse = stage.context_of(FAMILY, header="h", compiled=every[::-1], embed=False)
        self.assertEqual(
            [f.type for f in reverse["functions"]],
            [
                f"::tfaot_internal::M1a6Family{end}"
                for end in [
                    "_0",
                    "_1_b1",
                    "_1_b8",
                    "_2_b1_n4",
                    "_2_b8_n4",
                    "_2_b1_n16",
                    "_2_b8_n16",
                    "_3_n16x1",
                    "_3_n16x3",
                ]
            ],
        )

    def test_memory(self) -> None:
        """Protects against overlapping tensors: each has its own place, aligned for the compiler's code."""
        context = stage.context_of(FAMILY, header="h", compiled=compiled(FAMILY, "family"), embed=False)
        embed = context["entries"][1]
        places = [(0, 24), (64, 96), (192, 4)]  # x, rows, scale
        self.assertEqual([m.own for m in embed.inputs], ["impl.arena + 64", "impl.arena + 192"])
        places += [(256, 12 * fetch.row_bytes) for fetch in embed.functions[0].fetches]
        self.assertEqual([m.own for m in embed.outputs], ["impl.arena + 256"])
        places += [(feed.padded, feed.row_bytes * f.batch) for f in embed.functions for feed in f.feeds]
        self.assertEqual({feed.place for f in embed.functions for feed in f.feeds}, {embed.inputs[0].place})
        places.sort()
        for (begin, size), (following, _) in zip(places, [*places[1:], (context["arena_bytes"], 0)], strict=True):
            self.assertEqual(begin % stage.ALIGNMENT, 0)
            self.assertLessEqual(begin + size, following)

    def test_too_large_to_embed(self) -> None:
        """Protects against a linker error about relocations: variables that code can't reach stay in a file."""
        large = Variable("w", "w", "float32", (500_000_000,), "float32", written=False, offset=0)
        manifest = dataclasses.replace(SMALL, entry_points=SMALL.entry_points, variables=(large,) * 3)
        with self.assertRaises(TfaotError) as raised:
            self.render(manifest)
        self.assertEqual(
            str(raised.exception),
            "a::b::Small: its variables take 6,000,000,000 bytes, too many to embed in a C++ library\n"
            "  found: code can address data within 2 GB; a library can contain 1,900,000,000 bytes of variables\n"
            "  to do: keep them in a file: embed_variables = False, and call Load(path) in the program",
        )
        self.assertIn(
            "6000000000", self.render(manifest, embed=False)["source"].replace("2000000000u, 0u", "6000000000")
        )


class CompilerTest(RenderTest):
    """What a C++ compiler says."""

    def test_header_stands_alone(self) -> None:
        """Protects users: the header needs only view.h and the standard library, in any standard since C++17."""
        self.render()
        for standard in ("c++17", "gnu++17", "c++20"):
            self.compiles(
                '#include "p/small.h"\n#include "p/small.h"\nvoid F(a::b::Small& m) { *m.loss() = m.x()(1, 2); }\n',
                f"-std={standard}",
                "-Wconversion",
                "-Wshadow",
                "-Wpedantic",
            )
        result = self.compiler("-M", "program.cc")
        ours = [name for name in result.stdout.split() if not name.startswith("/usr") and name.endswith(".h")]
        self.assertEqual(
            sorted(os.path.basename(name) for name in ours),
            ["options.h", "small.h", "status.h", "unshared.h", "view.h", "weights.h"],
        )

    def test_family_header_stands_alone(self) -> None:
        """Protects users of every feature: the header needs only our views and 16-bit floats."""
        self.render(FAMILY, "family", embed=False)
        self.compiles(
            '#include "p/family.h"\n#include "p/family.h"\nvoid F(a::Family& m) {\n'
            "  m.rows()(0, 1) = tfaot::BFloat16(1.5f);\n  *m.loss() = m.where().dim(0) + m.sum()(3, 2).real();\n}\n",
            "-Wshadow",
            "-Wpedantic",
        )
        result = self.compiler("-M", "program.cc")
        self.assertEqual(self.compiler("-fsyntax-only", "family.stub.cc").stderr, "")
        ours = [name for name in result.stdout.split() if not name.startswith("/usr") and name.endswith(".h")]
        self.assertEqual(
            sorted(os.path.basename(name) for name in ours),
            ["bounded_view.h", "family.h", "half.h", "options.h", "status.h", "unshared.h", "view.h", "weights.h"],
        )

    def test_every_dtype(self) -> None:
        """Protects the types that users see: each dtype's view has the C++ type of its values."""
        inputs = tuple(tensor(f"{dtype.name}:0", f"in_{dtype.name}", dtype.name, (2,)) for dtype in dtypes.ALL)
        outputs = tuple(tensor(f"o{dtype.name}:0", f"out_{dtype.name}", dtype.name, ()) for dtype in dtypes.ALL)
        self.render(without_variables(SMALL, entry_points=(entry("Run", inputs, outputs),)))
        wanted = {
            "float32": "float",
            "float64": "double",
            "bool": "bool",
            "float16": "tfaot::Float16",
            "bfloat16": "tfaot::BFloat16",
            "complex64": "std::complex<float>",
            "complex128": "std::complex<double>",
            **{f"{sign}int{bits}": f"std::{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
        }
        self.assertEqual({dtype.name for dtype in dtypes.ALL}, set(wanted))
        checks = "".join(
            f"static_assert(std::is_same_v<decltype(*std::declval<a::b::Small&>().out_{name}()), {cpp}&>);\n"
            f"static_assert(std::is_same_v<decltype(std::declval<const a::b::Small&>().in_{name}()[0]), "
            f"const {cpp}&>);\n"
            f"static_assert(decltype(std::declval<a::b::Small&>().in_{name}())::size_bytes() == "
            f"{2 * dtypes.BY_NAME[name].bytes});\n"
            for name, cpp in wanted.items()
        )
        self.compiles('#include <type_traits>\n#include <utility>\n#include "p/small.h"\n' + checks)

    def test_misuse_does_not_compile(self) -> None:
        """Protects against mistakes that a compiler can detect: shapes, constness, copies, and scalars."""
        self.render()
        start = '#include "p/small.h"\nvoid F(a::b::Small& m, const a::b::Small& c) {\n  (void)m;\n  (void)c;\n'
        self.compiles(start + "}\n")
        for line in (
            "m.x()(1);",  # two dimensions
            "*m.x() = 1;",  # not a scalar
            "*c.loss() = 1;",  # read-only
            "a::b::Small copy(m);",
            "tfaot::View<float, 3, 2> other = m.x();",
            "tfaot::View<double, 2, 3> other = m.x();",
        ):
            with self.subTest(line):
                (self.folder / "program.cc").write_text(start + line + "\n}\n")
                self.assertNotEqual(self.compiler("-fsyntax-only", "program.cc").returncode, 0)

    def test_names_of_any_text(self) -> None:
        """Protects against TensorFlow's names, which can contain anything: literals and comments quote them."""
        wild = [
            'say "hi"',
            "back\\slash",
            "ends with \\",
            "größe/重み",
            "tab\tand\nline",
            "??/ trigraph */ %s %d",
            "\\x41\\101 7",
            "\0zero",
        ]
        unique = names.unique_identifiers(wild)
        size = dtypes.BY_NAME["float32"].bytes
        variables = tuple(
            Variable(name, cpp, "float32", (), "float32", written=index % 2 == 0, offset=size * index)
            for index, (name, cpp) in enumerate(zip(wild, unique, strict=True))
        )
        uses = tuple(Use(index, variable.written) for index, variable in enumerate(variables))
        entries = (dataclasses.replace(SMALL.entry_points[0], variables=uses),)
        self.render(dataclasses.replace(SMALL, entry_points=entries, variables=variables))
        for program in ("small_test.cc", "small_benchmark.cc"):
            self.compiles(f'#include "p/{program}"\n', "-Wtrigraphs", "-Wcomment", "-Wformat=2")
        # The literals are the names themselves, up to a null character.
        text = (self.folder / "small_test.cc").read_text()
        literals = [
            line.split(".Initial(", 1)[1].rsplit(", initial.", 1)[0]
            for line in text.splitlines()
            if ".Initial(" in line
        ]
        checks = "".join(
            f"static_assert(std::string_view({literal}, sizeof({literal}) - 1) == "
            f"std::string_view({bytes_of(name)}));\n"
            for literal, name in zip(literals, wild, strict=True)
        )
        self.compiles("#include <string_view>\n" + checks)

    def test_names_that_macros_have(self) -> None:
        """Protects programs that include the C library first, and the GNU dialect, where `linux` is 1."""
        wild = [
            "linux",
            "unix",
            "assert",
            "errno",
            "NULL",
            "stdin",
            "major",
            "offsetof",
            "new",
            "register",
            "data",
            "size",
        ]
        unique = names.unique_identifiers(wild)
        inputs = tuple(tensor(f"{name}:0", cpp, "float32", (2,)) for name, cpp in zip(wild, unique, strict=True))
        self.render(without_variables(SMALL, entry_points=(entry("Run", inputs, ()),)))
        self.compiles(
            "#include <sys/sysmacros.h>\n#include <cassert>\n#include <cerrno>\n#include <cmath>\n#include <cstdio>\n"
            '#include "p/small.h"\n',
            "-std=gnu++17",
        )

    def test_class_without_namespace(self) -> None:
        """Protects a class in the global namespace, and one next to a namespace with its members' names."""
        self.render(without_variables(SMALL, cpp_class="Small"))
        self.compiles('#include "p/small.h"\nvoid F(Small& m) { *m.loss() = 1; }\n')
        self.compiles('#include "p/small_test.cc"\n')
        self.render(dataclasses.replace(SMALL, cpp_class="model::step::Verifier"))
        self.compiles('#include "p/small_test.cc"\n')
        self.compiles('#include "p/small_benchmark.cc"\n')


FAKE = """\
#include <cstdint>
#include <cstring>
#include <string>
#ifndef FAKE
#define FAKE
// What compiled functions' classes have in common.
struct Fake {
  // Any machine runs the first, and none the second.
  static constexpr const char* kIsas[] = {"x86-64", "x86-64-v9", nullptr};
  static std::size_t MemoryBytes(std::size_t) { return 100; }
  Fake(std::size_t, void*) {}
  void set_thread_pool(::tfaot::ThreadPool*) {}
  void set_hooks(::tfaot::Hooks*) {}
  bool cancelled() const { return false; }
  // Keeps its results where they are.
  bool PlaceResult(std::size_t, void*) { return false; }
  void set_arg_data(std::size_t index, const void* data) { args_[index] = const_cast<void*>(data); }
  void* result_data(std::size_t index) { return results_[index]; }
  template <typename T>
  T* arg(int index) { return static_cast<T*>(args_[index]); }
  template <typename T>
  T* result(int index) { return reinterpret_cast<T*>(results_[index]); }
  void* args_[8] = {};
  alignas(64) char results_[8][2048] = {};
};
#endif
"""
"""A stand-in for what the compile stage's headers include."""


class ClassTest(RenderTest):
    """The class around a stand-in for the compiler's code: how it handles arguments, results, and errors."""

    SMALL = """\
extern "C" {{
extern const std::uint64_t tfaot_{symbol}_fingerprint;
const std::uint64_t tfaot_{symbol}_fingerprint = 0xfedcba9876543210u;
}}
namespace tfaot_internal {{
// Adds one to each variable: `scope_w` in place, `step` not. Fails on demand.
struct {symbol} : Fake {{
  using Fake::Fake;
  static constexpr int kNumArgs = {args};
  static constexpr int kNumResults = {results};
  static constexpr std::size_t kArgBytes[] = {{24, 4, {w_bytes}, 32, 8, 0}};
  static constexpr std::size_t kResultBytes[] = {{{loss_bytes}, 16, 48, 8, 0}};
  static constexpr std::size_t kResultRoom[] = {{4, 16, 48, 8, 0}};
  bool Run() {{
    if (*arg<int>(1) < 0) return false;
    arg<float>(2)[0] += 1;
    *result<float>(0) = arg<float>(0)[5];
    *result<std::int64_t>(3) = *arg<std::int64_t>(4) + 1;
    return true;
  }}
  void* result_data(std::size_t i) {{ return i == 2 ? args_[2] : Fake::result_data(i); }}
}};
}}
"""

    SMALL_PROGRAM = """\
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include "p/small.h"
#define CHECK(...) if (!(__VA_ARGS__)) { std::printf("line %d: %s\\n", __LINE__, #__VA_ARGS__); failed = 1; }
int main() {
  int failed = 0;
  a::b::Small m;
  CHECK(!std::strcmp(m.isa(), "x86-64") && !std::strcmp(a::b::Small::isas()[1], "x86-64-v9") && !a::b::Small::isas()[2]);
  CHECK(m.x()(1, 2) == 0 && *m.loss() == 0);
  CHECK(m.scope_w()(0, 0) == 0 && m.scope_w()(2, 3) == 11 && m.moving_mean()(3) == 0.5 && *m.step() == 41);
  m.x()(1, 2) = 8;
  CHECK(m.Run() && *m.error() == 0 && *m.loss() == 8);
  CHECK(m.scope_w()(0, 0) == 1 && *m.step() == 42);
  *m.in_n() = -1;
  CHECK(!m.Run() && !std::strcmp(m.error(), "a::b::Small::Run(): a compiled kernel reported an error"));
  CHECK(*m.step() == 42);
  *m.in_n() = 0;
  CHECK(m.Run() && *m.error() == 0 && *m.step() == 43);
  a::b::Small moved(std::move(m));
  CHECK(*moved.step() == 43 && moved.Run() && *moved.step() == 44);
  a::b::Small other;
  CHECK(*other.step() == 41);
  const a::b::Small& read = moved;
  CHECK(read.scope_w()(0, 0) == 3 && read.error()[0] == 0);
  // Inputs and outputs in the caller's memory.
  alignas(64) float mine[32] = {0, 0, 0, 0, 0, 6.5f};
  CHECK(!moved.set_x_data(mine + 1) && moved.error_code() == tfaot::Code::kInvalidArgument);
  CHECK(!std::strcmp(moved.error(), "a::b::Small::set_x_data() got an address that isn't aligned\\n"
                                    "  found: an address 4 bytes after a multiple of 64\\n"
                                    "  to do: allocate the memory with std::aligned_alloc(64, bytes), or declare it alignas(64)"));
  CHECK(moved.x().data() != mine + 1 && moved.x()(1, 2) == 8);
  CHECK(moved.set_x_data(mine) && moved.x().data() == mine && moved.set_loss_data(mine + 16) && moved.Run());
  CHECK(mine[16] == 6.5f && moved.loss().data() == mine + 16 && read.loss().data() == mine + 16 && *moved.step() == 45);
  CHECK(!moved.set_loss_data(mine + 17) && moved.loss().data() == mine + 16);
  CHECK(moved.set_x_data(nullptr) && moved.set_loss_data(nullptr) && moved.x()(1, 2) == 8 && moved.Run() && *moved.loss() == 8);
  CHECK(mine[16] == 6.5f && *moved.step() == 46);
  // Of what is only read, a caller may change its own copy.
  moved.mutable_moving_mean()(1) = 2;
  CHECK(read.moving_mean()(1) == 2 && read.moving_mean()(0) == 0.5 && other.moving_mean()(1) == 0.5);
  // Without a level that can run: all may be looked at, and nothing runs.
  a::b::Small none("x86-64-v9");
  const std::string why = "a::b::Small: the caller asked for \\"x86-64-v9\\", which this CPU can't run\\n"
      "  found: code for x86-64, x86-64-v9; this CPU and its operating system run x86-64";
  CHECK(!std::strncmp(none.error(), why.c_str(), why.size()) && !*none.isa());
  none.x()(1, 2) = 8;
  CHECK(!none.Run() && *none.loss() == 0 && none.scope_w()(0, 0) == 0 && *none.step() == 41);
  CHECK(std::strstr(none.Save("/dev/null/file").message(), "/dev/null/file"));
  CHECK(!none.Run() && !std::strncmp(none.error(), why.c_str(), why.size()));
  // Files can be loaded and saved there, which changes nothing of that.
  CHECK(none.Save("saved") && !std::strncmp(none.error(), why.c_str(), why.size()));
  CHECK(none.Load("saved") && !std::strncmp(none.error(), why.c_str(), why.size()));
  none = a::b::Small("x86-64");
  CHECK(none.Run() && !std::strcmp(none.isa(), "x86-64"));
  setenv("TFAOT_ISA", "avx2", 1);
  const a::b::Small unknown;
  CHECK(!std::strcmp(unknown.error(), "a::b::Small: the environment variable TFAOT_ISA asks for \\"avx2\\"\\n"
                                      "  found: code for x86-64, x86-64-v9\\n"
                                      "  to do: set it to one of these, or unset it"));
  CHECK(a::b::Small("x86-64").Run());
  // Without exceptions, an empty instance says what a constructor's does.
  tfaot::Status status;
  const a::b::Small empty = a::b::Small::Create(tfaot::Options(), &status);
  CHECK(!empty && status.code() == tfaot::Code::kUnsupportedCpu && !std::strcmp(status.message(), unknown.error()));
  tfaot::Options options;
  options.isa = "x86-64";
  tfaot::Weights weights;
  options.weights = &weights;
  CHECK(!a::b::Small::Create(options, &status) && status.code() == tfaot::Code::kMismatch);
  CHECK(!std::strcmp(a::b::Small(options).error(), status.message()) && a::b::Small(options).isa() == a::b::Small::isas()[0]);
  weights = other.CurrentWeights();
  a::b::Small shared = a::b::Small::Create(options);
  CHECK(shared && shared.Run() && *shared.step() == 42 && shared.moving_mean().data() == other.moving_mean().data());
  CHECK(a::b::Small::fingerprint() == 0xfedcba9876543210u && a::b::Small::weights_fingerprint() == 0x0123456789abcdefu);
  return failed;
}
"""

    FAMILY = (
        FAKE
        + """\
extern "C" {
extern const std::uint64_t tfaot_M1a6Family_fingerprint;
const std::uint64_t tfaot_M1a6Family_fingerprint = 7;
}
namespace tfaot_internal {
// Finds what is above zero in x, and moves the variables: `state` in place, `scope_w` not.
struct M1a6Family_0 : Fake {
  using Fake::Fake;
  static constexpr int kNumArgs = 3;
  static constexpr int kNumResults = 5;
  static constexpr std::size_t kArgBytes[] = {24, 24, 24, 0};
  static constexpr std::size_t kResultBytes[] = {4, 96 + 8, 8, 24, 24, 0};
  static constexpr std::size_t kResultRoom[] = {4, 96 + 8, 8, 24, 24, 0};
  bool Run() {
    const float* x = arg<float>(0);
    std::int32_t found = 0;
    for (int i = 0; i < 6; ++i) {
      result<float>(3)[i] = arg<float>(1)[i] + x[i];
      if (x[i] <= 0) continue;
      result<std::int64_t>(1)[2 * found] = i / 3;
      result<std::int64_t>(1)[2 * found++ + 1] = i % 3;
    }
    *result<float>(0) = x[5];
    result<std::int32_t>(2)[0] = found;
    result<std::int32_t>(2)[1] = 2;
    ++*arg<std::int64_t>(2);
    return true;
  }
  void* result_data(std::size_t i) { return i == 4 ? args_[2] : Fake::result_data(i); }
};
inline int runs[2] = {0, 0};
inline int padded = 0;
template <int kRows>
struct Embed : Fake {
  using Fake::Fake;
  static constexpr int kNumArgs = 3;
  static constexpr int kNumResults = 1;
  static constexpr std::size_t kArgBytes[] = {kRows * 8, 4, 64, 0};
  static constexpr std::size_t kResultBytes[] = {kRows * 32, 0};
  bool Run() {
    ++runs[kRows > 1];
    for (int i = 0; i < 3; ++i) {
      if (reinterpret_cast<std::uintptr_t>(args_[i]) % 64 != 0) return false;
    }
    const std::uint16_t* rows = arg<std::uint16_t>(0);
    for (int i = 0; i < kRows * 4; ++i) {
      if (rows[i] == 0) ++padded;
      const std::uint32_t bits = std::uint32_t{rows[i]} << 16;
      std::memcpy(&result<float>(0)[2 * i], &bits, sizeof(bits));
      result<float>(0)[2 * i + 1] = *arg<float>(1) * arg<std::uint16_t>(2)[1];
    }
    return *arg<float>(1) >= 0;
  }
};
using M1a6Family_1_b1 = Embed<1>;
using M1a6Family_1_b8 = Embed<8>;
inline constexpr double M1a6Family_1_b1_cost = 1;
inline constexpr double M1a6Family_1_b8_cost = 2.5;
// Numbers the tags of each word, and sums them.
template <int kRows, int kSize>
struct Tag : Fake {
  using Fake::Fake;
  static constexpr int kNumArgs = 3;
  static constexpr int kNumResults = 3;
  static constexpr std::size_t kArgBytes[] = {kRows * kSize * 4, 4, 64, 0};
  static constexpr std::size_t kResultBytes[] = {kRows * kSize * 12 + 12, kRows * 12, 12, 0};
  bool Run() {
    const std::int32_t size = *arg<std::int32_t>(1);
    for (int row = 0; row < kRows; ++row) {
      for (int tag = 0; tag < 3; ++tag) {
        float& sum = result<float>(1)[row * 3 + tag] = 0;
        for (int i = 0; i < size; ++i) {
          const auto value = static_cast<float>(arg<std::int32_t>(0)[row * kSize + i] + 1000 * tag);
          sum += result<float>(0)[(row * size + i) * 3 + tag] = value;
        }
      }
    }
    const std::int32_t dims[] = {kRows, size, 3};
    std::memcpy(result<std::int32_t>(2), dims, sizeof(dims));
    return size <= kSize && reinterpret_cast<std::uintptr_t>(args_[0]) % 64 == 0;
  }
};
using M1a6Family_2_b1_n4 = Tag<1, 4>;
using M1a6Family_2_b8_n4 = Tag<8, 4>;
using M1a6Family_2_b1_n16 = Tag<1, 16>;
using M1a6Family_2_b8_n16 = Tag<8, 16>;
inline constexpr double M1a6Family_2_b1_n4_cost = 1;
inline constexpr double M1a6Family_2_b8_n4_cost = 2.5;
inline constexpr double M1a6Family_2_b1_n16_cost = 1;
inline constexpr double M1a6Family_2_b8_n16_cost = 4.5;
// Keeps the last value of every second frame, and counts them in a variable that isn't in place.
inline int counts[2] = {0, 0};
template <int kWidth>
struct Count : Fake {
  using Fake::Fake;
  static constexpr int kNumArgs = 4;
  static constexpr int kNumResults = 4;
  static constexpr std::size_t kArgBytes[] = {64 * kWidth, 4, 4, 24, 0};
  static constexpr std::size_t kResultBytes[] = {64 + 4, 4, 4, 24, 0};
  bool Run() {
    const std::int32_t kept = (*arg<std::int32_t>(1) + 1) / 2, width = *arg<std::int32_t>(2);
    ++counts[kWidth > 1];
    *result<float>(1) = 0;
    for (int i = 0; i < kept; ++i) {
      *result<float>(1) += result<float>(0)[i] = arg<float>(0)[2 * kWidth * i + width - 1];
    }
    *result<std::int32_t>(2) = kept;
    for (int i = 0; i < 3; ++i) result<std::int64_t>(3)[i] = arg<std::int64_t>(3)[i] + kept;
    return width <= kWidth;
  }
};
using M1a6Family_3_n16x1 = Count<1>;
using M1a6Family_3_n16x3 = Count<3>;
inline constexpr double M1a6Family_3_n16x1_cost = 1;
inline constexpr double M1a6Family_3_n16x3_cost = 1;
}
"""
    )

    FAMILY_PROGRAM = """\
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include "p/family.h"
namespace tfaot_internal { extern int runs[2], padded, counts[2]; }
#define CHECK(...) if (!(__VA_ARGS__)) { std::printf("line %d: %s\\n", __LINE__, #__VA_ARGS__); failed = 1; }
int main(int, char** argv) {
  int failed = 0;
  static_assert(a::Family::kMaxBatch == 12);
  CHECK(a::Family::fingerprint() == 7);
  a::Family m;
  CHECK(!m.Train());
  CHECK(!std::strcmp(m.error(), "a::Family::Train(): the variables have no values\\n  to do: call Load(path) first"));
  CHECK(!m.Embed(1) && std::strstr(m.error(), "a::Family::Embed(): the variables have no values"));
  CHECK(!m.Load("/nonexistent") && std::strstr(m.error(), "/nonexistent"));
  CHECK(m.Load(argv[1]) && !*m.error());
  CHECK(m.scope_w()(1, 2) == 5 && m.table()(0, 1).bits() == 3 && m.state()(2) == 0);
  CHECK(m.where().empty() && m.where().dim(1) == 0);

  for (int i = 0; i < 6; ++i) m.x()[i] = i % 2 ? 1.5f : -1;
  CHECK(m.Train() && !*m.error() && *m.loss() == 1.5f);
  CHECK(m.scope_w()(0, 0) == -1 && m.scope_w()(1, 2) == 6.5f);
  CHECK(m.where().dim(0) == 3 && m.where().dim(1) == 2 && m.where().size() == 6);
  CHECK(m.where()(0, 1) == 1 && m.where()(1, 0) == 1 && m.where()(1, 1) == 0 && m.where()(2, 1) == 2);
  CHECK(m.state()(0) == 1);
  m.Seed(7);
  CHECK(m.state()(0) == 0 && m.state()(1) == 0 && m.state()(2) == 7);

  *m.scale() = 2;
  for (int batch = 1; batch <= 12; ++batch) {
    for (int i = 0; i < 48; ++i) {
      m.rows()[i] = tfaot::BFloat16(static_cast<float>(i + batch));
      m.sum()[i] = -1;
    }
    auto& runs = tfaot_internal::runs;
    runs[0] = runs[1] = tfaot_internal::padded = 0;
    CHECK(m.Embed(batch));
    for (int i = 0; i < 48; ++i) {
      const std::complex<float> want(static_cast<float>(i + batch), 6);
      CHECK(m.sum()[i] == (i < batch * 4 ? want : std::complex<float>(-1)));
    }
    // A run of 8 costs 2.5 runs of one: as many as three rows are padded.
    const int rest = batch % 8;
    CHECK(runs[1] == batch / 8 + (rest > 2) && runs[0] == (rest > 2 ? 0 : rest));
    CHECK(tfaot_internal::padded == (rest > 2 ? (8 - rest) * 4 : 0));
  }
  CHECK(m.Embed() && m.sum()(11, 3).real() == 59);
  for (const int batch : {0, -1, 13}) {
    CHECK(!m.Embed(batch));
    CHECK(m.error() == "a::Family::Embed(): a batch of " + std::to_string(batch) +
                           " rows\\n  found: this class takes 1 to 12\\n"
                           "  to do: split it, or raise the target's max_batch");
  }
  *m.scale() = -1;
  CHECK(!m.Embed(3) && !std::strcmp(m.error(), "a::Family::Embed(): a compiled kernel reported an error"));

  m.Seed(7);
  *m.scale() = 2;
  CHECK(*m.length() == 16 && m.tags().size() == 0);
  for (int size = 1; size <= 16; ++size) {
    for (int batch = 1; batch <= 12; ++batch) {
      for (int row = 0; row < 12; ++row) {
        for (int i = 0; i < 16; ++i) m.words()(row, i) = row < batch && i < size ? 16 * row + i : -7777;
      }
      *m.length() = size;
      CHECK(size % 2 ? m.Tag(batch) : m.Tag(batch, size));
      CHECK(m.tags().dim(0) == batch && m.tags().dim(1) == size && m.tags().dim(2) == 3);
      for (int row = 0; row < batch; ++row) {
        float sum = 0;
        for (int i = 0; i < size; ++i) {
          CHECK(m.tags()(row, i, 0) == 16 * row + i && m.tags()(row, i, 2) == 16 * row + i + 2000);
          sum += static_cast<float>(16 * row + i);
        }
        CHECK(m.mean()(row, 0) == sum);
      }
    }
    for (int width = 1; width <= 3; ++width) {
      if (size + width > 18) {
        CHECK(!m.Count(size, width) && std::strstr(m.error(), "time, width of 16, 3\\n  found: the model requires time + width"));
        continue;
      }
      for (int i = 0; i < 48; ++i) m.frames()[i] = i / 3 < size && i % 3 < width ? static_cast<float>(i) : -7777;
      const std::int64_t before = m.state()(0);
      const int kept = (size + 1) / 2, narrow = tfaot_internal::counts[0], wide = tfaot_internal::counts[1];
      CHECK(m.Count(size, width) && *m.time() == size && *m.width() == width && m.kept().dim(0) == kept);
      CHECK(m.kept()[kept - 1] == 6 * (kept - 1) + width - 1);
      CHECK(*m.total() == kept * (3 * (kept - 1) + width - 1) && m.state()(0) == before + kept);
      CHECK(tfaot_internal::counts[0] - narrow == (width == 1) && tfaot_internal::counts[1] - wide == (width > 1));
    }
  }
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{17}, std::int64_t{1} << 32}) {
    CHECK(!m.Count(size, 1));
    CHECK(m.error() == "a::Family::Count(): time is " + std::to_string(*m.time()) + "\\n  found: this class takes 1 to 16\\n"
                       "  to do: pass a part of the values, or add a larger bucket to the target's sizes");
  }
  CHECK(!m.Count(4, 4) && std::strstr(m.error(), "width is 4\\n  found: this class takes 1 to 3\\n"));
  CHECK(!m.Tag(13, 4) && !m.Tag(1, 17) && m.Tag(1, 4));
  alignas(64) float kept[16] = {};
  CHECK(m.set_kept_data(kept) && m.Count(3, 1) && kept[1] == 6 && m.kept().data() == kept);

  m.Seed(7);
  a::Family moved(std::move(m));
  CHECK(moved.Save(argv[2]).ok());
  a::Family other;
  CHECK(other.Load(argv[2]) && other.scope_w()(1, 2) == 6.5f && other.state()(2) == 7);
  CHECK(std::strstr(other.Save("/dev/null/file").message(), "/dev/null/file"));
  return failed;
}
"""

    def link(self, *sources: str, flags: tuple[str, ...] = ()) -> None:
        """Builds `program` from sources and the runtime."""
        result = self.compiler(*flags, *sources, *native.runtime(), "-o", "program")
        self.assertEqual(result.returncode, 0, result.stderr)

    def ran(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `program`."""
        return subprocess.run(
            [self.folder / "program", *arguments], capture_output=True, cwd=self.folder, check=False, text=True
        )

    def variables(self, tensors: dict[str, Any]) -> tuple[str, ...]:
        """Writes a variables file and its fingerprint like the export stage. Returns the arguments that embed them."""
        with open(self.folder / "variables.safetensors", "wb") as file:
            safetensors.write(file, tensors, aligned=True)
        text = fingerprint.weights_assembly("a::b::Small", "0123456789abcdef")
        (self.folder / "weights.S").write_text(text)
        return f'-DTFAOT_VARIABLES="{self.folder / "variables.safetensors"}"', "weights.S"

    def fake(self, **changes: Any) -> str:
        """Returns the stand-in for `SMALL`."""
        sizes = {"args": 5, "results": 4, "w_bytes": 48, "loss_bytes": 4}
        return FAKE + self.SMALL.format(symbol=names.symbol("a::b::Small"), **{**sizes, **changes})

    def test_runs(self) -> None:
        """Protects the class itself: initial values, copied-back results, failures, errors, and moving."""
        self.render()
        (self.folder / "small.executor.h").write_text(self.fake())
        (self.folder / "main.cc").write_text(self.SMALL_PROGRAM)
        flags = self.variables(
            {
                "scope/w": np.arange(12, dtype=np.float32).reshape(3, 4),
                "moving_mean": np.full(4, 0.5),
                "step": np.array(41, np.int64),
            }
        )
        self.link("main.cc", "small.cc", "small.variables.S", flags=flags)
        ran = self.ran()
        self.assertEqual((ran.returncode, ran.stdout), (0, ""))

    def test_family_runs(self) -> None:
        """Protects the rest: any batch, split and padded at the lowest cost, sizes of results, seeds, and variables in files."""
        self.render(FAMILY, "family", embed=False)
        self.write_family()
        (self.folder / "main.cc").write_text(self.FAMILY_PROGRAM)
        table, w = (
            np.array(range(32), np.uint16).view(np.float16).reshape(8, 4),
            np.arange(6, dtype=np.float32).reshape(2, 3),
        )
        table.view(np.uint16)[0, 1] = 3
        self.variables({"table": table, "scope/w": w})  # without the random state, which keeps its value
        self.link("main.cc", "family.cc", "family.variables.S")
        ran = self.ran("variables.safetensors", "saved.safetensors")
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "", ""))
        saved = safetensors.read(str(self.folder / "saved.safetensors"))
        self.assertEqual(list(saved), ["table", "scope/w", "state"])
        np.testing.assert_array_equal(saved["table"].view(np.uint16), table.view(np.uint16))
        np.testing.assert_array_equal(saved["scope/w"] - w, [[-1, 1.5, -1], [1.5, -1, 1.5]])
        self.assertEqual(saved["state"].tolist(), [0, 0, 7])

    def write_family(self, text: str | None = None) -> None:
        """Writes the stand-ins for `FAMILY`. The first header contains all of them."""
        self.write_headers("family")
        (self.folder / "family.Train.b0.executor.h").write_text(self.FAMILY if text is None else text)

    def write_headers(self, name: str) -> None:
        for function in compiled(FAMILY, name):
            (self.folder / Path(function.header).name).write_text("")

    def test_names_that_the_source_uses_itself(self) -> None:
        """Protects tensors with the same names as what the generated source declares inside its functions."""
        edges = "impl batch rows plan0 state path bucket size plans next plan2 BucketOf fits0 from sizes kept ok seed"
        wild = iter(edges.split())

        def renamed(item: Any) -> Any:
            return dataclasses.replace(item, cpp_name=next(wild))

        entries = [
            dataclasses.replace(e, inputs=tuple(map(renamed, e.inputs)), outputs=tuple(map(renamed, e.outputs)))
            for e in FAMILY.entry_points
        ]
        entries = [
            dataclasses.replace(
                entry,
                sizes=tuple(
                    dataclasses.replace(size, name=tensor.cpp_name)
                    for size, tensor in zip(entry.sizes, entry.inputs[-len(entry.sizes) :], strict=False)
                ),
            )
            for entry in entries
        ]
        variables = tuple(
            dataclasses.replace(variable, cpp_name=name)
            for variable, name in zip(FAMILY.variables, ("row", "impl_arena", "state_"), strict=True)
        )
        variables = (*variables[:2], dataclasses.replace(variables[2], cpp_name=next(wild)))
        self.render(
            dataclasses.replace(FAMILY, entry_points=tuple(entries), variables=variables), "family", embed=False
        )
        self.write_family()
        for program in ("family.cc", "family_test.cc", "family_benchmark.cc"):
            result = self.compiler("-fsyntax-only", program)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_classes_of_any_name(self) -> None:
        """Protects hostile names of classes and namespaces: each is refused with an alternative, or really compiles."""
        c_headers = (
            "ctype fcntl math poll pthread semaphore signal stdio stdlib string strings sys/socket sys/stat time unistd"
        )
        includes = "".join(f"#include <{header}.h>\n" for header in c_headers.split())
        accepted = [
            "Verify",
            "Model::Model",
            "a::std::B",
            "a::tfaot::B::Class",
            "a::time::X",
            "a::index::log",
            "a::size_t",
            "b::int64_t",
            "a::a::a",
            "model::Verifier",
            "Verifier::View",
            "failed::argv",
            "c::unique_ptr",
            "std_::kernels",
            "rows::batch",
            "models::time::X",
            "d::string::string",
        ]
        program = includes
        for index, cpp_class in enumerate(accepted):
            name = f"family{index}"
            self.render(dataclasses.replace(FAMILY, cpp_class=cpp_class), name, embed=False)
            self.write_headers(name)
            # All are in one program here, so names in one generated file must not clash with another's.
            code = self.FAMILY.replace("M1a6Family", names.symbol(cpp_class))
            (self.folder / f"{name}.Train.b0.executor.h").write_text(f"#include <cmath>\n{code}")
            program += f'#define tfaot_internal internal{index}\n#include "p/{name}.cc"\n'
            program += f'#define main benchmark{index}\n#include "p/{name}_benchmark.cc"\n#undef main\n'
            program += f'#define main test{index}\n#include "p/{name}_test.cc"\n#undef main\n#undef tfaot_internal\n'
        program += "#include <thread>\nusing namespace std;\n"
        for index, cpp_class in enumerate(accepted):
            program += f"bool F{index}(::{cpp_class}& m) {{ return m.Embed(3); }}\n"
        self.compiles(program)
        refused = "time::X index::X log size_t main main::X FILE::X tm link::Model sqrtf32 lgamma_r exp10l::X a::errno"
        body = ""
        for cpp_class in refused.split():
            with self.subTest(cpp_class):
                self.assertRaises(TfaotError, names.split_class, cpp_class)
            opened = [f"namespace {name} {{" for name in cpp_class.split("::")[:-1]]
            body += " ".join([*opened, f"class {cpp_class.split('::')[-1]} {{}}; ", "}" * len(opened)])
            body += f" {cpp_class} *instance;\n"
        (self.folder / "program.cc").write_text(f'{includes}int main() {{ return 0; }}\n#line 1 "refused"\n{body}')
        result = self.compiler("-std=gnu++17", "-fsyntax-only", "program.cc")
        for line, cpp_class in enumerate(refused.split(), 1):
            with self.subTest(cpp_class, refused="without need"):
                self.assertIn(f"refused:{line}:", result.stderr)

    def test_alignment(self) -> None:
        """Protects inputs and outputs in memory: the C++ compiler rejects an alignment that was changed on only one side."""
        (self.folder / "small.executor.h").write_text(self.fake())
        with mock.patch.object(stage, "ALIGNMENT", 32):
            self.render()
        result = self.compiler("-fsyntax-only", "small.cc")
        self.assertIn("static assertion failed: the layout of inputs and outputs depends on it", result.stderr)

    def test_large_batches_take_no_lock(self) -> None:
        """Protects real-time use: whatever the largest batch, a run builds no table, on the stack or under a lock."""
        self.render(dataclasses.replace(FAMILY, max_batch=1_200_000), "family")
        self.write_family()
        for flags in ("-O2", "-Wframe-larger-than=4096", "-Werror"), ("-O0",):
            result = self.compiler("-c", "-o", "family.o", "family.cc", *flags)
            self.assertEqual(result.returncode, 0, result.stderr)
            symbols = subprocess.run(
                ["nm", "-C", "family.o"], capture_output=True, check=True, cwd=self.folder, text=True
            )
            self.assertIn("Embed(long)", symbols.stdout)
            self.assertNotIn("guard", symbols.stdout)

    def test_generated_test_says_why_a_run_failed(self) -> None:
        """Protects readers of a failed test: the error is this run's, not an earlier one's."""
        self.render()
        (self.folder / "small.executor.h").write_text(self.fake())
        flags = self.variables(
            {"scope/w": np.zeros((3, 4), np.float32), "moving_mean": np.zeros(4), "step": np.int64(0)}
        )
        (self.folder / "goldens").write_bytes(no_goldens(SMALL, struct.pack("<2Q6f2Qi", 0, 0, *range(6), 0, 0, -1)))
        self.link("small_test.cc", "small.cc", "small.variables.S", flags=flags)
        ran = self.ran("goldens")
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assertIn("a::b::Small, x86-64, against TensorFlow\n", ran.stdout)
        self.assertIn("a::b::Small, x86-64-v9: NOT RUN, because this machine can't run it\n", ran.stdout)
        for number in range(3):
            failed = "Run() failed: a::b::Small::Run(): a compiled kernel reported an error  FAILED"
            self.assertIn(f"{number}     {failed}", ran.stdout)

    def test_generated_test_loads_variables(self) -> None:
        """Protects models with variables in a file: their test loads it, and reports failure to do so."""
        self.render(FAMILY, "family", embed=False)
        self.write_family()
        self.link("family_test.cc", "family.cc")
        (self.folder / "goldens").write_bytes(no_goldens(FAMILY))
        ran = self.ran("goldens", "missing.safetensors")
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assertIn("-1    Run() failed: missing.safetensors", ran.stdout)

    def test_other_counts_and_sizes_do_not_compile(self) -> None:
        """Protects against a manifest and an object that don't match: the compiler detects it."""
        self.render()
        for change, message in (
            ({"args": 6}, "the compiler's arguments are the manifest's inputs and variables"),
            ({"results": 3}, "the compiler's results are the manifest's outputs, their sizes, and written variables"),
            ({"w_bytes": 52}, "the compiler's argument 2 has the manifest's size"),
            ({"w_bytes": 44}, "the compiler's argument 2 has the manifest's size"),
            ({"loss_bytes": 3}, "the compiler's result 0 has room for the manifest's size"),
        ):
            (self.folder / "small.executor.h").write_text(self.fake(**change))
            result = self.compiler("-fsyntax-only", "small.cc")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(message, result.stderr)


def no_goldens(manifest: Manifest, inputs: bytes = b"") -> bytes:
    """Returns a goldens file of the right size with only zeros, except for the inputs of each call."""
    data = bytes(4 * len(manifest.variables))
    restored = manifest.restored()
    for call, before in zip(manifest.calls, restored, strict=True):
        entry = manifest.entry_point(call.entry_point)

        def count(tensor: Tensor, call: Call = call) -> int:
            if isinstance(tensor, Output) and tensor.size:
                return 0
            if isinstance(tensor, Input):
                return math.prod(tensor.at(call.batch, call.sizes))
            batched = isinstance(tensor, Output) and tensor.batched
            return tensor.count // tensor.shape[0] * call.batch if batched else tensor.count

        # Two numbers that say that what follows isn't drawn from a seed.
        data += bytes(sum(16 + variable.bytes for variable in before))
        data += inputs or bytes(sum(16 + count(tensor) * dtypes.BY_NAME[tensor.dtype].bytes for tensor in entry.inputs))
        for tensor in (*entry.outputs, *manifest.written_by(entry)):
            dtype = dtypes.BY_NAME[tensor.dtype]
            one = count(tensor) * (dtype.bytes + 4 * dtype.parts) + 16
            sized = isinstance(tensor, Output) and bool(tensor.size)
            free = any(restored) and isinstance(tensor, Output) and not sized
            data += bytes((4 * len(tensor.shape) if sized else 0) + one * (2 if free else 1))
    nothing_unverified = bytes(8)
    return struct.pack("<Q", 2) + b"{}" + data + nothing_unverified


def bytes_of(text: str) -> str:
    """Returns a string literal and its length, formatted differently from the templates."""
    data = text.encode()
    return '"' + "".join(f"\\{byte:03o}" for byte in data) + f'", {len(data)}'


if __name__ == "__main__":
    ARGUMENTS = sys.argv[1:]
    unittest.main(argv=[argument for argument in sys.argv if argument != "--update"])
else:
    ARGUMENTS = []
