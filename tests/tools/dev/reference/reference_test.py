"""docs/reference: what the sources say is what the pages say, and nothing is missing."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from tests.core.manifest_test import MANIFEST
from tests.tools.dev.reference.json_schema import invalid
from tfaot import starlark
from tfaot.core import names
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import Manifest
from tfaot.preflight import report
from tools.dev.reference import class_, errors, pages, passes, rules, schema
from tools.dev.reference.markdown import COMMAND

ROOT = Path(__file__).absolute().parents[4]
REAL = [Path(path) for path in os.environ.get("TFAOT_MANIFESTS", "").split() if path.endswith(".model.json")]

_RULES = '''
def _impl(_ctx):
    return []

made = rule(implementation = _impl, doc = "Makes.", attrs = {"_private": attr.label()} | {"size": attr.int(%s)})

def macro(*, name, size = 3):
    """Declares.

    Args:
      name: (str) the name
      %s
    """
'''


class PagesTest(unittest.TestCase):
    """The pages, and the command that writes them."""

    def test_pages(self) -> None:
        """Protects readers: each page is what the sources say now."""
        for name, text in pages.pages(ROOT).items():
            with self.subTest(page=name):
                self.assertEqual((ROOT / name).read_text(encoding="utf-8"), text, f"to do: {COMMAND}")

    def test_program(self) -> None:
        """Protects the command: outside of a checkout, where runfiles are all that it has, it still finds the sources."""
        program = ROOT / "tools/dev/reference/reference"
        if program.exists():  # under Bazel
            done = subprocess.run([program, "--help"], capture_output=True, check=False, text=True)
            self.assertEqual((done.returncode, done.stdout[:17]), (0, "usage: reference "), done.stderr)

    def test_undocumented(self) -> None:
        """Protects users: an attribute or an argument without documentation is an error, not a gap on the page."""
        for attribute, argument, what in [
            ('doc = "Size."', "size: (int) the size", None),
            ("default = 3", "size: (int) the size", "the attribute size has no doc"),
            ('doc = "Size."', "", "its docstring has ['name']"),
            ('doc = "Size."', "sizes: (int) the size", "its docstring has ['name', 'sizes']"),
            ('doc = "Size."', "size: the size", "isn't 'name: (type) meaning'"),
        ]:
            with self.subTest(what), tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "private.bzl").write_text(_RULES % (attribute, argument), encoding="utf-8")
                (Path(folder) / "public.bzl").write_text(
                    'load(":private.bzl", _made = "made", _macro = "macro")\nmade = _made\nmacro = _macro\n',
                    encoding="utf-8",
                )
                tree = starlark.Tree(Path(folder))
                if what:
                    with self.assertRaisesRegex(starlark.Undocumented, re.escape(what)):
                        tree.symbols("public.bzl")
                else:
                    made, macro = tree.symbols("public.bzl")
                    self.assertEqual(made.fields, (starlark.Field("size", "int", "0", "Size."),))
                    self.assertEqual(macro.fields[1], starlark.Field("size", "int", "3", "the size"))

    def test_described_elsewhere(self) -> None:
        """Protects readers of the page and of the command's help: `as in` another macro is replaced with what that says."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "rules").mkdir()
            public = Path(folder) / "rules/defs.bzl"
            public.with_name("private.bzl").write_text(
                _RULES % ('doc = "As in `macro`."', "size: (int) the size")
                + _RULES.replace("macro", "other").replace("made", "as_in")
                % ('doc = "As in `made`."', "size: (int) as in `none`"),
                encoding="utf-8",
            )
            load = 'load(":private.bzl", _{0} = "{0}")\n{0} = _{0}\n'
            public.write_text(load.format("macro") + load.format("made") + load.format("as_in"), encoding="utf-8")
            tree = starlark.Tree(Path(folder))
            doc_of = {symbol.name: symbol.fields[-1].doc for symbol in tree.symbols("rules/defs.bzl")}
            self.assertEqual({*doc_of.values()}, {"the size"})
            public.write_text(load.format("other"), encoding="utf-8")
            with self.assertRaisesRegex(starlark.Undocumented, "none doesn't describe size"):
                starlark.Tree(Path(folder)).symbols("rules/defs.bzl")

    def test_other_arguments(self) -> None:
        """Protects macros that pass on what they don't name: the page has all kinds of arguments, in their order."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "macro.bzl").write_text(
                'def _macro(name, size = 3, *, tag = None, **kwargs):\n    """D.\n\n    Args:\n      name: (str) n\n'
                '      size: (int) s\n      tag: (str) t\n      **kwargs: others\n    """\n\nmacro = _macro\n',
                encoding="utf-8",
            )
            (macro,) = starlark.Tree(Path(folder)).symbols("macro.bzl")
        self.assertEqual(
            [(field.name, field.type, field.default) for field in macro.fields],
            [("name", "str", ""), ("size", "int", "3"), ("tag", "str", "None"), ("**kwargs", "", "")],
        )

    def test_same_arguments(self) -> None:
        """Protects users of both macros: what they have in common has the same type and, but for C++, the same default."""
        fields_of = {symbol.name: symbol.fields for symbol in starlark.Tree(ROOT).symbols("rules/defs.bzl")}
        library = {field.name: field for field in fields_of["tf_aot_library"]}
        for field in fields_of["tf_aot_hlo"]:
            self.assertEqual(field.type, library[field.name].type, field.name)
            if field.name not in ("cpu", "frozen"):
                self.assertEqual(field.default, library[field.name].default, field.name)

    def test_few_arguments(self) -> None:
        """Protects readers: a macro has at most 20 arguments besides those of most rules, and a model, with all sources, 24."""
        names = {
            symbol.name: [field.name for field in symbol.fields if "*" not in field.name]
            for file in ("defs", "tf_library")
            for symbol in starlark.Tree(ROOT).symbols(f"rules/{file}.bzl")
            if symbol.kind == "macro"
        }
        common = {"name", "data", "deps", "tags", "testonly", "visibility"}
        for macro, arguments in names.items():
            self.assertLessEqual(len({*arguments} - common), 24 if macro == "tf_model" else 20, (macro, arguments))
        files, kinds = (starlark.execute(ROOT, f"rules/private/{name}.bzl") for name in ("files", "kinds"))
        moved = [*files["MODEL"], *files["MODEL_EXPORT"], *kinds["OTHERS"]]
        self.assertEqual(sorted(["name", *moved]), sorted(names["tf_model"]), "other macros say where these are")

    def test_public_files(self) -> None:
        """Protects the list of pages: each public file of the rules, but one for this repository alone, is on some page."""
        text = "".join(rules.pages(ROOT).values())
        for file in (ROOT / "rules").glob("*.bzl"):
            self.assertEqual(f"//rules:{file.name}" in text, file.name not in ("dev.bzl", "python.bzl"), file.name)


class TablesTest(unittest.TestCase):
    """Pages that people write, with a table of what the sources have."""

    def named(self, page: str, heading: str) -> list[str]:
        """Returns the names in the first column of the table with this heading."""
        text = (ROOT / page).read_text(encoding="utf-8").partition(f"| {heading} |")[2].partition("\n\n")[0]
        return [name for row in text.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]

    def test_output_groups(self) -> None:
        """Protects users of output groups: the page has every group of a library."""
        link, hlo = ((ROOT / f"rules/private/{name}.bzl").read_text(encoding="utf-8") for name in ("link", "hlo"))
        groups = (
            link.partition("    groups = {")[2].partition("}")[0] + hlo.partition("def hlo_groups")[2].partition("}")[0]
        )
        made = [*re.findall(r'^        "(\w+)": ', groups, re.MULTILINE), "goldens"]
        self.assertGreater(len(made), 10)
        self.assertEqual(sorted(self.named("docs/reference/targets.md", "output group")), sorted(made))


class PassesTest(unittest.TestCase):
    """The page of passes, from the docstrings of their modules."""

    def test_every_pass(self) -> None:
        """Protects users of `passes`: each pass of the table says when it applies, beside its code."""
        said = passes.passes(ROOT)
        self.assertEqual(
            len(said), (ROOT / "py/tfaot/compile/table.py").read_text(encoding="utf-8").count('    Pass("')
        )
        self.assertEqual([name for name, text in said.items() if "\n\nApplies" not in text], [])


class SchemaTest(unittest.TestCase):
    """The JSON Schema, and the reader in py/tfaot/core/manifest.py, agree."""

    def test_accepts(self) -> None:
        """Protects users of the schema: it accepts what the export stage writes."""
        made = schema.schema()
        texts = [MANIFEST.to_json(), *(path.read_text(encoding="utf-8") for path in REAL)]
        self.assertEqual(len(REAL), 2 if "TEST_SRCDIR" in os.environ else 0)
        for text in texts:
            self.assertEqual(invalid(json.loads(text), made, made), [])
            Manifest.from_json(text)

    def test_rejects(self) -> None:
        """Protects users of the schema: it rejects what the stages reject, at the same place."""
        made = schema.schema()
        for path, to in [
            (("extra",), 1),
            (("format",), 2),
            (("max_batch",), "3"),
            (("max_batch",), True),
            (("calls",), {}),
            (("calls", 0, "batch"), None),
            (("entry_points", 0, "inputs", 1, "shape"), 3),
            (("entry_points", 0, "inputs", 1, "shape"), ["3"]),
            (("variables", 0, "sharding"), 1),
            (("variables", 0, "written"), 1),
            (("fingerprints", "graph"), 7),
        ]:
            with self.subTest(path=path, to=to):
                data = copy.deepcopy(json.loads(MANIFEST.to_json()))
                place = data
                for key in path[:-1]:
                    place = place[key]
                place[path[-1]] = to
                self.assertEqual(len(invalid(data, made, made)), 1)
                with self.assertRaises(TfaotError):
                    Manifest.from_json(json.dumps(data))
        for name in json.loads(MANIFEST.to_json()):
            data = json.loads(MANIFEST.to_json())
            del data[name]
            self.assertEqual(invalid(data, made, made), [f"manifest.{name}"])


class ReportSchemaTest(unittest.TestCase):
    """The JSON Schema of the report, which //tests/preflight holds against real ones."""

    def test_accepts_and_rejects(self) -> None:
        """Protects users of the schema: it has each field and value of a report, and no others."""
        made = schema.report_schema()
        place = report.Place("n", "f", ("call",), 2, "model.py:3", "")
        finding = report.Finding("unsupported_op", "blocker", "AsString", "what", "rewrite", 2, (place,))
        whole = report.Report.of("2.21.0", "model", [report.EntryPoint("Run", 3, 1, (finding,))])
        data = json.loads(whole.to_json())
        self.assertEqual(invalid(data, made, made, "report"), [])
        data["entry_points"][0]["findings"][0]["kind"] = "other"
        data["entry_points"][0]["findings"][0]["severity"] = "error"
        data["entry_points"][0]["nodes"] = "3"
        self.assertEqual(len(invalid(data, made, made)), 3)


class ErrorsTest(unittest.TestCase):
    """The page of errors has all of them."""

    def test_every_source(self) -> None:
        """Protects readers who search for an error: each place that raises one is read, counted in another way."""
        counted = 0
        for pattern, call in [
            ("py/tfaot/**/*.py", r"(?<!class )\bTfaotError\((?!self|Exception)"),
            ("rules/**/*.bzl", r"(?<!_)\bfail\((?!error\)|no_)"),
            ("tools/*.py", r"\bTfaotError\("),
            ("runtime/tfaot/*.cc", r"\bMessage\("),
        ]:
            for path in ROOT.glob(pattern):
                text = path.read_text(encoding="utf-8")
                calls = len(re.findall(call, text))
                messages = errors.messages(str(path.relative_to(ROOT)), text)
                self.assertGreaterEqual(len(messages), calls, path)
                counted += calls
        self.assertGreater(counted, 150)

    def test_real(self) -> None:
        """Protects the search for a message as it is shown: its fixed words are on the page, in one line."""
        page = (ROOT / errors.PAGE).read_text(encoding="utf-8").splitlines()
        for cause, words in [
            (lambda: names.split_class("a::class"), ["is a C++ keyword", "write namespaces and a class name"]),
            (lambda: Manifest.from_json('{"format": 1}'), ["has format", "this version reads format"]),
        ]:
            with self.assertRaises(TfaotError) as raised:
                cause()
            for word in words:
                self.assertIn(word, str(raised.exception))
            self.assertTrue([line for line in page if all(word in line for word in words)], words)

    def test_parts(self) -> None:
        """Protects messages that are put together: alternatives, sums, names, formats, and C++ literals."""
        python = (
            "def f(x):\n"
            "    why = 'a' if x else 'b'\n"
            "    raise TfaotError(f'{x}: it is {why}', exists='e' + str(x), do=f'd {3 if x else 4}')\n"
            "def g(y):\n"
            "    fail('{}: bad {}. To do: mend.'.format(y, y))\n"
        )
        self.assertEqual(
            errors.messages("py/x.py", python),
            [
                errors.Message("…: it is a", "e…", "d 3 / d 4"),
                errors.Message("…: it is b", "e…", "d 3 / d 4"),
                errors.Message("bad ….", "", "mend."),
            ],
        )
        cpp = (
            'const char* const again = "write it again";\n'
            'x = Message(path + std::string(" isn\'t " "good"), a ? " is" : " was", again);\n'
        )
        self.assertEqual(
            errors.messages("runtime/tfaot/x.cc", cpp), [errors.Message("… isn't good", "… is / was", "write it again")]
        )


class ClassTest(unittest.TestCase):
    """The page about the generated class."""

    def test_every_member(self) -> None:
        """Protects readers: each declaration in the public part of a header is on the page, except those of other names."""
        page = (ROOT / class_.PAGE).read_text(encoding="utf-8")
        for _, manifest, flags in class_._CASES:
            header = class_.header(manifest, **flags)
            public = header.partition(" public:\n")[2].partition(" private:")[0]
            declared = [
                line.strip() for line in public.splitlines() if line.strip() and not line.strip().startswith("//")
            ]
            self.assertGreater(len(declared), 12)
            for line in declared:
                self.assertIn(line.partition("> ")[2] if "View<" in line else line, page)

    def test_members_of(self) -> None:
        """Protects names.md: the names that a class reserves are those that its header declares, and its internals'."""
        declared = {
            member.name for _, m, flags in class_._CASES for member in class_.members(class_.header(m, **flags))[1]
        }
        tensors = {"x", "y", "kernel", "scale", "mutable_scale", "state"}
        own = {name for name in declared - tensors - {"Model"} if " " not in name}
        self.assertLessEqual(own, names.MEMBERS)


if __name__ == "__main__":
    unittest.main()
