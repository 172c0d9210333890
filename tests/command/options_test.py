"""The command `tfaot`: its options, and the objects that calls share."""

from __future__ import annotations

import concurrent.futures
import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from running import MODEL, CommandCase, FolderTest, write

from tfaot.command import cxx, objects, options
from tfaot.command.files import RULES


class OptionsTest(unittest.TestCase):
    """The options are the rule's attributes."""

    def test_every_attribute_is_used(self) -> None:
        """Protects users from an option that nothing reads: each attribute is named in what runs the stages."""
        files = [f"py/tfaot/command/{name}.py" for name in ("build", "cli", "options")] + ["rules/private/files.bzl"]
        code = "".join((RULES / name).read_text() for name in files)
        words = set(re.findall(r"[\"'](\w+)[\"']", code))
        fields = [*options.attributes("tf_aot_library"), *options.attributes("tf_aot_hlo")]
        unused = sorted({field.name for field in fields} - words)
        self.assertEqual(unused, [])

    def test_kinds(self) -> None:
        """Protects the translation of Starlark's types and defaults to those of a command line."""
        made = {option.field.name: option for option in options.options()}
        self.assertEqual(made["saved_model_tags"].flag, "--saved-model-tags")
        self.assertEqual(made["cpu"].read(("x86-64-v3", "x86-64-v2")), ["x86-64-v3", "x86-64-v2"])
        self.assertEqual(made["batch_sizes"].read(("8", "16")), [8, 16])
        self.assertEqual(made["passes"].read(()), ["*"])
        self.assertIsNone(made["frozen"].read(()))
        self.assertEqual(made["dims"].read(("x=32,?",)), {"x": "32,?"})
        self.assertEqual(made["entry_points"].read(("a.b", "Train=train")), {"a_b": "a.b", "Train": "train"})
        self.assertEqual(made["weights"].read(("w.safetensors",)), {"file": "w.safetensors"})
        self.assertEqual(made["weights"].read(("dtype=int8", "file=w")), {"dtype": "int8", "file": "w"})
        self.assertTrue(made["embed_variables"].default)
        self.assertNotIn("tags", made)


def compile_shared(where: Path | None, folder: Path, compiler: str, level: str) -> tuple[bool, bytes]:
    """Makes an object as a call of the command does; returns whether it ran the compiler, and the object."""
    flags = (level, "-isystem", str(folder / "runtime"), "-isystem", str(folder / "system"))
    with tempfile.TemporaryDirectory(dir=folder) as call:
        source = cxx.Source(str(folder / "runtime/tfaot/a.cc"), f"{call}/a.o", flags, shared=True)
        earlier = objects.Objects(where, [compiler], folder / "runtime")
        if not (recalled := earlier.recall(source)):
            cxx.compile_all([compiler], [source])
            earlier.keep([source])
        return not recalled, Path(source.out).read_bytes()


class ObjectsTest(FolderTest):
    """Objects that calls share."""

    def setUp(self) -> None:
        super().setUp()
        write("runtime/tfaot/a.h", "#pragma once\n")
        write("runtime/tfaot/a.cc", '#include "tfaot/a.h"\n#include <system.h>\nint a() { return system_value; }\n')
        write("system/system.h", "inline constexpr int system_value = 1;\n")
        self.compiler = shutil.which("c++") or "c++"
        self.where: Path | None = self.folder / "objects"
        self.level = "-O1"

    def compiled(self) -> bool:
        """Makes the object, and returns whether the compiler ran."""
        ran, self.last = compile_shared(self.where, self.folder, self.compiler, self.level)
        return ran

    def object(self) -> Path:
        """The object of the last call in the folder that calls share."""
        return max(self.folder.glob("objects/*.o"), key=lambda path: path.stat().st_mtime_ns)

    def test_what_compiles_again(self) -> None:
        """Protects programs from objects of another compiler, flag, or header: only what would be the same is used again."""
        self.assertTrue(self.compiled())
        first = self.last
        self.assertFalse(self.compiled())
        self.assertEqual(self.last, first)
        with self.subTest("another flag"):
            self.level = "-O2"
            self.assertTrue(self.compiled())
            self.level = "-O1"
            self.assertFalse(self.compiled())
        with self.subTest("a source of the runtime"):
            write("runtime/tfaot/a.h", "#pragma once\n#define CHANGED\n")
            self.assertTrue(self.compiled())
        with self.subTest("a header of the system"):
            write("system/system.h", "inline constexpr int system_value = 23;\n")
            self.assertTrue(self.compiled())
            self.assertNotEqual(self.last, first)
            self.assertFalse(self.compiled())
        with self.subTest("a damaged object"):
            self.object().write_bytes(b"damaged")
            self.assertTrue(self.compiled())
            self.assertFalse(self.compiled())
        with self.subTest("another compiler"):
            write("compiler", f'#!/bin/sh\nexec {self.compiler} "$@"\n')
            os.chmod("compiler", 0o755)
            self.compiler = str(self.folder / "compiler")
            self.assertTrue(self.compiled())
            self.assertFalse(self.compiled())

    def test_the_folder(self) -> None:
        """Protects disks and locked-down machines: the folder stays below its limit, and without one the command works."""
        with mock.patch.object(objects, "LIMIT", 0):
            self.assertTrue(self.compiled())
            self.assertEqual([*self.folder.glob("objects/*")], [])
            self.assertTrue(self.compiled())
        write("file")
        for where in (None, self.folder / "file/objects"):
            self.where = where
            self.assertTrue(self.compiled())
        self.assertEqual(objects.kept_in({"HOME": "/home/a"}), Path("/home/a/.cache/rules_tfaot/objects"))
        self.assertEqual(objects.kept_in({"HOME": "/h", "RULES_TFAOT_CACHE": "/c"}), Path("/c/objects"))
        self.assertIsNone(objects.kept_in({}))

    def test_at_once(self) -> None:
        """Protects calls at the same time: each gets a whole object, and nothing that isn't one stays."""
        levels = [f"-O{number % 3}" for number in range(24)]
        with concurrent.futures.ProcessPoolExecutor(4) as pool:
            calls = [pool.submit(compile_shared, self.where, self.folder, self.compiler, level) for level in levels]
            made = [call.result()[1] for call in calls]
        for level, content in zip(levels, made, strict=True):
            self.level = level
            self.assertFalse(self.compiled())
            self.assertEqual(self.last, content)
        self.assertEqual(len([*self.folder.glob("objects/*")]) + len([*self.folder.glob("objects/.*")]), 6)


class ErrorsTest(CommandCase):
    """Runs of the command that fail."""

    def test_errors_before_a_stage(self) -> None:
        """Protects users who give wrong options: one error says what to do, and nothing is written."""
        (self.folder / "model.py").write_text(MODEL)
        (self.folder / "full").mkdir()
        (self.folder / "full/file").touch()
        one = ("--cpp-class", "a::B", "--out", "out")
        for words, wanted in (
            (("compile", *one), "error: Missing argument 'MODEL'."),
            (("compile", "full/file", *one), "error: full/file: the name doesn't say what kind of model this is\n"),
            (("compile", "absent.py", *one), "error: there is no model 'absent.py'\n"),
            (
                ("compile", "model.py", "--saver=s", *one),
                "error: --saver applies only to a GraphDef\n  found: the model is a Python file\n",
            ),
            (("compile", "model.py", "--cpu=z80", *one), "error: z80 isn't a CPU level\n"),
            (
                ("compile", "model.py", "--platform=linux_x86_64", "--cpu=armv8-a", *one),
                "error: armv8-a isn't a CPU level of Linux on x86-64\n  found: x86-64, x86-64-v2, x86-64-v3, x86-64-v4\n"
                "  to do: name one or more of these, or give --platform linux_aarch64",
            ),
            (
                ("compile", "model.py", "--platform=macos_aarch64", *one),
                "error: models would be compiled for macOS on 64-bit ARM, where nobody has run one yet\n  found: tested are "
                "linux_x86_64, linux_aarch64\n  to do: give one of these, or try it with --untested-platforms",
            ),
            (
                ("compile", "model.py", "--platform=vax", *one),
                "error: models can't be compiled for the platform vax\n  found: linux_x86_64 (Linux on x86-64), linux_aarch64 "
                "(Linux on 64-bit ARM)\n  to do: give one of these: --platform linux_x86_64",
            ),
            (("compile", "model.py", "--weights=bits=8", *one), "error: --weights bits=8: weights has no bits\n"),
            (
                ("compile", "model.py", "--batch-sizes=1,8", *one),
                "error: --batch-sizes 1,8: not a number\n  to do: give one number, and repeat the option for more: --batch-sizes 1 "
                "--batch-sizes 8",
            ),
            (("compile", "model.py", "--dims=x", *one), "error: --dims x: the value isn't NAME=VALUE\n"),
            (
                ("compile", "model.py", "--dims=x=1,2a", *one),
                "error: --dims has a size of x that isn't one\n  found: 2a\n",
            ),
            (
                ("compile", "model.py", "--dims=x=-5,1", *one),
                "error: --dims has a size of x that isn't one\n  found: -5\n",
            ),
            (
                ("compile", "model.py", "--dims=x=1,a", *one),
                "error: --dims names a, and --sizes doesn't say what to compile for\n",
            ),
            (
                ("compile", "model.py", "--dims=x=1,a", "--sizes=a=8,4", *one),
                "error: --sizes a=8,4\n  to do: use sizes of at least 1",
            ),
            (("compile", "model.py", "--weights=absent", *one), "error: --weights absent: there is no such file\n"),
            (("compile", "model.py", "--config=absent", *one), "error: --config absent: there is no such file\n"),
            (("compile", "model.py", "--deps=absent", *one), "error: --deps absent: there is no such file\n"),
            (("compile", "model.py", "--golden-steps=0", *one), "error: --golden-steps 0: the number is less than 1\n"),
            (("compile", "model.py", "--batch-sizes=-1", *one), "error: --batch-sizes -1: the number is less than 1\n"),
            (("compile", "model.py", "--out=out"), "error: Missing option '--cpp-class'"),
            (("compile", "model.py", "--nothing", *one), "error: No such option"),
            (
                ("compile", "model.py", "--cpp-class=1b", "--out=out"),
                "error: --cpp-class 1b: '1b' isn't a C++ identifier",
            ),
            (("compile", "model.py", "--cpp-class=a::B", "--out=full"), "error: --out full: this isn't something that"),
            (
                ("compile", "model.py", "--cpp-class=a::B", "--out=/proc/none/out"),
                "error: --out /proc/none/out: can't write there: No such file or directory\n",
            ),
        ):
            with self.subTest(words=words):
                error = self.error(*words)
                self.assertIn(wanted, error)
                self.assertIn("\n  to do: ", error)
                self.assertEqual({path.name for path in self.folder.iterdir()}, {"full", "model.py"})


if __name__ == "__main__":
    unittest.main()
