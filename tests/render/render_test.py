"""The generated C++, letter by letter, and through a real compiler."""

from __future__ import annotations

import dataclasses
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

from tests.stages.harness import ROOT
from tfaot import dtypes, names, safetensors
from tfaot import render as stage
from tfaot.manifest import EntryPoint, Fingerprints, Manifest, Tensor, Variable

UPDATE = "bazel run //tests/render:render_test -- --update"
KINDS = {
    "header": "small.h",
    "source": "small.cc",
    "test": "small_test.cc",
    "benchmark": "small_benchmark.cc",
    "variables": "small.variables.S",
}

SMALL = Manifest(
    format=1,
    tensorflow="2.21.0",
    cpp_class="a::b::Small",
    entry_points=(
        EntryPoint(
            "Run",
            (Tensor("x:0", "x", "float32", (2, 3)), Tensor("in/n:0", "in_n", "int32", ())),
            (Tensor("loss:0", "loss", "float32", ()), Tensor("Cast:0", "class_", "int64", (2,))),
        ),
    ),
    variables=(
        Variable("scope/w", "scope_w", "float32", (3, 4), written=True, offset=0),
        Variable("moving_mean", "moving_mean", "float64", (4,), written=False, offset=48),
        Variable("step", "step", "int64", (), written=True, offset=80),
    ),
    golden_steps=3,
    fingerprints=Fingerprints("0" * 64, "1" * 64),
)


def without_variables(manifest: Manifest, **changes: Any) -> Manifest:
    """The same model, but for variables and these changes."""
    return dataclasses.replace(manifest, variables=(), **changes)


class RenderTest(unittest.TestCase):
    """Renders manifests to a folder of its own."""

    maxDiff = None

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)

    def render(self, manifest: Manifest = SMALL) -> dict[str, str]:
        """Renders all sources and returns their texts by kind."""
        (self.folder / "model.json").write_text(manifest.to_json())
        stage.render(
            stage.Request(
                manifest=str(self.folder / "model.json"),
                header="p/small.h",
                private_header="p/small.tfcompile.h",
                **{f"out_{kind}": str(self.folder / name) for kind, name in KINDS.items()},
            )
        )
        return {kind: (self.folder / name).read_text() for kind, name in KINDS.items()}

    def compiler(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs the C++ compiler with the headers that the rules give it, and the rendered ones as `p/…`."""
        if not (self.folder / "p").exists():
            (self.folder / "p").symlink_to(self.folder)
        found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        assert found, "no C++ compiler on PATH"
        return subprocess.run(
            [
                found,
                "-std=c++17",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-I",
                ".",
                "-I",
                str(ROOT / "tools/runtime"),
                *arguments,
            ],
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
    """The texts themselves."""

    def golden(self, name: str) -> Path:
        """Where a golden is: in the sources when updating, or among the test's files."""
        root = os.environ.get("BUILD_WORKSPACE_DIRECTORY") if "--update" in ARGUMENTS else None
        return Path(root or ROOT) / "tests/render/goldens" / (name + ".golden")

    def test_goldens(self) -> None:
        """Protects what users read and debug: a change to the templates shows in full, and is meant."""
        for kind, text in self.render().items():
            golden = self.golden(KINDS[kind])
            if "--update" in ARGUMENTS:
                golden.write_text(text)
            with self.subTest(kind):
                wanted = golden.read_text() if golden.exists() else ""
                self.assertEqual(text, wanted, f"\nif the new text is meant: {UPDATE}")

    def test_same_text_twice(self) -> None:
        """Protects caches: nothing but the manifest and the names of the headers is in the text."""
        self.assertEqual(self.render(), self.render())

    def test_no_line_is_left_blank_by_the_templates(self) -> None:
        """Protects readers: conditions and loops of the templates leave no trace, with or without members."""
        for manifest in (SMALL, without_variables(SMALL), without_variables(SMALL, cpp_class="Small")):
            for kind, text in self.render(manifest).items():
                with self.subTest(kind, cpp_class=manifest.cpp_class, variables=len(manifest.variables)):
                    self.assertNotIn("\n\n\n", text)
                    self.assertNotIn(" \n", text)
                    self.assertTrue(text.endswith("\n") and not text.endswith("\n\n"))

    def test_undefined_variable_fails(self) -> None:
        """Protects from text that silently lacks a name: a template that asks for what is not there is an error."""
        shutil.copytree(ROOT / "py/tfaot/templates", self.folder / "templates")
        (self.folder / "templates/test.cc.jinja").write_text("{{ no_such_thing }}")
        with (
            mock.patch.object(stage, "_TEMPLATES", str(self.folder / "templates")),
            self.assertRaisesRegex(jinja2.UndefinedError, "no_such_thing"),
        ):
            self.render()

    def test_arguments_and_results(self) -> None:
        """Protects the order that tfcompile gives: inputs, then variables; outputs, then written variables."""
        context = stage.context_of(SMALL, header="h", private_header="p")
        self.assertEqual([(m.cpp_name, m.arg, m.result) for m in context["inputs"]], [("x", 0, -1), ("in_n", 1, -1)])
        self.assertEqual(
            [(m.cpp_name, m.arg, m.result) for m in context["outputs"]], [("loss", -1, 0), ("class_", -1, 1)]
        )
        self.assertEqual(
            [(m.cpp_name, m.arg, m.result, m.offset, m.bytes) for m in context["variables"]],
            [("scope_w", 2, 2, 0, 48), ("moving_mean", 3, -1, 48, 32), ("step", 4, 3, 80, 8)],
        )
        self.assertEqual((context["num_args"], context["num_results"]), (5, 4))


class CompilerTest(RenderTest):
    """What a C++ compiler says."""

    def test_header_stands_alone(self) -> None:
        """Protects users: the header needs nothing but view.h and the standard library, in any standard since C++17."""
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
        self.assertEqual(sorted(os.path.basename(name) for name in ours), ["small.h", "view.h"])

    def test_every_dtype(self) -> None:
        """Protects the types that users see: each dtype's view has the C++ type of its values."""
        crossing = list(dtypes.crossing("cpp").values())
        inputs = tuple(Tensor(f"{dtype.name}:0", f"in_{dtype.name}", dtype.name, (2,)) for dtype in crossing)
        outputs = tuple(Tensor(f"o{dtype.name}:0", f"out_{dtype.name}", dtype.name, ()) for dtype in crossing)
        self.render(without_variables(SMALL, entry_points=(EntryPoint("Run", inputs, outputs),)))
        wanted = {
            "float32": "float",
            "float64": "double",
            "bool": "bool",
            **{f"{sign}int{bits}": f"std::{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
        }
        self.assertEqual({dtype.name for dtype in crossing}, set(wanted))
        checks = "".join(
            f"static_assert(std::is_same_v<decltype(*std::declval<a::b::Small&>().out_{name}()), {cpp}&>);\n"
            f"static_assert(std::is_same_v<decltype(std::declval<const a::b::Small&>().in_{name}()[0]), "
            f"const {cpp}&>);\n"
            f"static_assert(decltype(std::declval<a::b::Small&>().in_{name}())::size_bytes() == {2 * dtype.bytes});\n"
            for name, cpp in wanted.items()
            for dtype in crossing
            if dtype.name == name
        )
        self.compiles('#include <type_traits>\n#include <utility>\n#include "p/small.h"\n' + checks)

    def test_misuse_does_not_compile(self) -> None:
        """Protects from mistakes that a compiler can see: shapes, constness, copies, and scalars."""
        self.render()
        start = '#include "p/small.h"\nvoid F(a::b::Small& m, const a::b::Small& c) {\n  (void)m;\n  (void)c;\n'
        self.compiles(start + "}\n")
        for line in (
            "m.x()(1);",  # two dimensions
            "*m.x() = 1;",  # no scalar
            "*c.loss() = 1;",  # only to be read
            "a::b::Small copy(m);",
            "tfaot::View<float, 3, 2> other = m.x();",
            "tfaot::View<double, 2, 3> other = m.x();",
        ):
            with self.subTest(line):
                (self.folder / "program.cc").write_text(start + line + "\n}\n")
                self.assertNotEqual(self.compiler("-fsyntax-only", "program.cc").returncode, 0)

    def test_names_of_any_text(self) -> None:
        """Protects from TensorFlow's names, which may hold anything: they are quoted in literals and comments."""
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
            Variable(name, cpp, "float32", (), written=index % 2 == 0, offset=size * index)
            for index, (name, cpp) in enumerate(zip(wild, unique, strict=True))
        )
        self.render(dataclasses.replace(SMALL, variables=variables))
        for program in ("small_test.cc", "small_benchmark.cc"):
            self.compiles(f'#include "p/{program}"\n', "-Wtrigraphs", "-Wcomment", "-Wformat=2")
        # The literals are the names themselves, up to a zero.
        text = (self.folder / "small_test.cc").read_text()
        literals = [line.split("(", 1)[1].rsplit(", model.", 1)[0] for line in text.splitlines() if ".Initial(" in line]
        checks = "".join(
            f"static_assert(std::string_view({literal}, sizeof({literal}) - 1) == "
            f"std::string_view({bytes_of(name)}));\n"
            for literal, name in zip(literals, wild, strict=True)
        )
        self.compiles("#include <string_view>\n" + checks)

    def test_names_that_macros_have(self) -> None:
        """Protects programs that include the C library first, and GNU's dialect, where `linux` is 1."""
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
        inputs = tuple(Tensor(f"{name}:0", cpp, "float32", (2,)) for name, cpp in zip(wild, unique, strict=True))
        self.render(without_variables(SMALL, entry_points=(EntryPoint("Run", inputs, ()),)))
        self.compiles(
            "#include <sys/sysmacros.h>\n#include <cassert>\n#include <cerrno>\n#include <cmath>\n#include <cstdio>\n"
            '#include "p/small.h"\n',
            "-std=gnu++17",
        )

    def test_class_without_namespace(self) -> None:
        """Protects a class in the global namespace, and one beside a namespace of its members' names."""
        self.render(without_variables(SMALL, cpp_class="Small"))
        self.compiles('#include "p/small.h"\nvoid F(Small& m) { *m.loss() = 1; }\n')
        self.compiles('#include "p/small_test.cc"\n')
        self.render(dataclasses.replace(SMALL, cpp_class="model::step::Verifier"))
        self.compiles('#include "p/small_test.cc"\n')
        self.compiles('#include "p/small_benchmark.cc"\n')


class ClassTest(RenderTest):
    """The class around a stand-in for the compiler's code: what it does with arguments, results, and errors."""

    FAKE = """\
#include <cstring>
#include <string>
namespace tfaot_internal {{
// Adds one to each variable: `scope_w` in place, `step` not. Fails on demand.
class {symbol} {{
 public:
  static constexpr int kNumArgs = {args};
  static constexpr int kNumResults = {results};
  bool Run() {{
    if (*static_cast<int*>(arg_data(1)) < 0) return false;
    static_cast<float*>(arg_data(2))[0] += 1;
    *static_cast<float*>(result_data(0)) = static_cast<float*>(arg_data(0))[5];
    std::int64_t next = 0;
    std::memcpy(&next, arg_data(4), sizeof(next));
    ++next;
    std::memcpy(result_data(3), &next, sizeof(next));
    return true;
  }}
  std::string error_msg() const {{ return *static_cast<const int*>(arg_data(1)) == -1 ? "no luck" : ""; }}
  void* arg_data(int i) {{ return args_[i]; }}
  const void* arg_data(int i) const {{ return args_[i]; }}
  void* result_data(int i) {{ return i == 2 ? args_[2] : results_[i]; }}
  const void* result_data(int i) const {{ return i == 2 ? args_[2] : results_[i]; }}
 private:
  alignas(64) char args_[5][64] = {{}};
  alignas(64) char results_[4][64] = {{}};
}};
}}
"""

    PROGRAM = """\
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>
#include "p/small.h"
#define CHECK(...) if (!(__VA_ARGS__)) { std::printf("line %d: %s\\n", __LINE__, #__VA_ARGS__); failed = 1; }
int main() {
  int failed = 0;
  a::b::Small m;
  CHECK(m.x()(1, 2) == 0 && *m.loss() == 0);
  CHECK(m.scope_w()(0, 0) == 0 && m.scope_w()(2, 3) == 11 && m.moving_mean()(3) == 0.5 && *m.step() == 41);
  m.x()(1, 2) = 8;
  CHECK(m.Run() && *m.error() == 0 && *m.loss() == 8);
  CHECK(m.scope_w()(0, 0) == 1 && *m.step() == 42);
  *m.in_n() = -1;
  CHECK(!m.Run() && !std::strcmp(m.error(), "no luck") && *m.step() == 42);
  *m.in_n() = -2;
  CHECK(!m.Run() && !std::strcmp(m.error(), "a::b::Small::Run(): a compiled kernel reported an error"));
  *m.in_n() = 0;
  CHECK(m.Run() && *m.error() == 0 && *m.step() == 43);
  a::b::Small moved(std::move(m));
  CHECK(*moved.step() == 43 && moved.Run() && *moved.step() == 44);
  a::b::Small other;
  CHECK(*other.step() == 41);
  const a::b::Small& read = moved;
  CHECK(read.scope_w()(0, 0) == 3 && read.error()[0] == 0);
  return failed;
}
"""

    def test_runs(self) -> None:
        """Protects the class itself: initial values, results that are copied back, failures, errors, and moving."""
        self.render()
        (self.folder / "small.tfcompile.h").write_text(
            self.FAKE.format(symbol=names.symbol("a::b::Small"), args=5, results=4)
        )
        (self.folder / "main.cc").write_text(self.PROGRAM)
        with open(self.folder / "variables.safetensors", "wb") as file:
            safetensors.write(
                file,
                {
                    "scope/w": np.arange(12, dtype=np.float32).reshape(3, 4),
                    "moving_mean": np.full(4, 0.5),
                    "step": np.array(41, np.int64),
                },
            )
        sources = ["main.cc", "small.cc", "small.variables.S"]
        path = f'-DTFAOT_VARIABLES="{self.folder / "variables.safetensors"}"'
        result = self.compiler(path, "-g", "-O1", *sources, "-o", "program")
        self.assertEqual(result.returncode, 0, result.stderr)
        ran = subprocess.run([self.folder / "program"], capture_output=True, check=False, text=True)
        self.assertEqual((ran.returncode, ran.stdout), (0, ""))

    def test_generated_test_says_why_a_run_failed(self) -> None:
        """Protects the reader of a failed test: the error is that of the run, not of the one before."""
        self.render()
        fake = self.FAKE.format(symbol=names.symbol("a::b::Small"), args=5, results=4)
        (self.folder / "small.tfcompile.h").write_text(fake.replace("no luck", "a reason too long to be kept in place"))
        with open(self.folder / "variables.safetensors", "wb") as file:
            safetensors.write(file, {"all": np.zeros(88, np.uint8)})
        step = struct.pack("<6fi", *range(6), -1) + bytes((4 + 8) + (16 + 8) + (48 + 8) + (8 + 8))
        (self.folder / "goldens").write_bytes(struct.pack("<Q", 2) + b"{}" + bytes(12) + 3 * step)
        path = f'-DTFAOT_VARIABLES="{self.folder / "variables.safetensors"}"'
        result = self.compiler(path, "-O1", "small_test.cc", "small.cc", "small.variables.S", "-o", "program")
        self.assertEqual(result.returncode, 0, result.stderr)
        ran = subprocess.run(
            [self.folder / "program", "goldens"], capture_output=True, cwd=self.folder, check=False, text=True
        )
        self.assertEqual(ran.returncode, 1, ran.stderr)
        for number in range(3):
            self.assertIn(f"{number}     Run() failed: a reason too long to be kept in place  FAILED", ran.stdout)

    def test_other_counts_do_not_compile(self) -> None:
        """Protects from a manifest and an object that do not belong together: the compiler sees it."""
        self.render()
        for args, results, message in (
            (6, 4, "the compiler's arguments are the manifest's inputs and variables"),
            (5, 3, "the compiler's results are the manifest's outputs and written variables"),
        ):
            fake = self.FAKE.format(symbol=names.symbol("a::b::Small"), args=args, results=results)
            (self.folder / "small.tfcompile.h").write_text(fake)
            result = self.compiler("-fsyntax-only", "small.cc")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(message, result.stderr)


def bytes_of(text: str) -> str:
    """A string literal and its length, spelled in another way than the templates do."""
    data = text.encode()
    return '"' + "".join(f"\\{byte:03o}" for byte in data) + f'", {len(data)}'


if __name__ == "__main__":
    ARGUMENTS = sys.argv[1:]
    unittest.main(argv=[argument for argument in sys.argv if argument != "--update"])
else:
    ARGUMENTS = []
