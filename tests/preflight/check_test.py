"""What the check finds in models, and how it says so."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import unittest
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.stages.harness import ROOT, StageTest
from tests.tools.dev.reference.json_schema import invalid
from tfaot.core import isolate
from tfaot.core.errors import TfaotError
from tfaot.export.sources.model import Model
from tfaot.preflight import command as command_line
from tfaot.preflight import page, run
from tfaot.preflight.report import EntryPoint, Finding, Report

WORDS = """\
import tensorflow as tf


class Words(tf.Module):
    @tf.function
    def words(self, x):
        return tf.cast(tf.strings.length(tf.as_string(x)), tf.float32)

    @tf.function
    def inner(self, x):
        return self.words(x) + tf.math.segment_sum(x, tf.constant([0, 0, 1, 1]))[0]

    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32, "x")])
    def outer(self, x):
        for _ in tf.range(3):
            x = self.inner(x) * 0.5
        return {"y": self.inner(x)}
"""
"""Three ops without kernels, in functions that a loop and a function call."""

SCHEMA = ROOT / "docs/reference/report.schema.json"


def found(report: Report, entry_point: int = 0) -> dict[tuple[str, str], Finding]:
    """Returns the findings of an entry point by kind and op."""
    return {(finding.kind, finding.op): finding for finding in report.entry_points[entry_point].findings}


class CheckTest(StageTest):
    """Checks of models in files."""

    def saved(self, code: str, function: str = "") -> str:
        """Saves the module that code defines, with lines of its file. Returns the folder."""
        folder = self.write(code)
        name = code.partition("class ")[2].partition("(")[0]

        def save() -> None:
            import tensorflow as tf

            spec = importlib.util.spec_from_file_location("saved_words", folder / "model.py")
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            model = getattr(module, name)()
            tf.saved_model.save(
                model,
                str(folder / "saved"),
                signatures=getattr(model, function) if function else None,
                options=tf.saved_model.SaveOptions(save_debug_info=True),
            )

        isolate.run_isolated(save, what="saving")
        return str(folder / "saved")

    def graph(self, build: Callable[[Any], Any]) -> str:
        """Writes the graph that a function builds in TensorFlow 1 style. Returns its path."""
        path = self.folder / f"graph{len(list(self.folder.iterdir()))}.pb"

        def write() -> None:
            import tensorflow as tf

            with tf.Graph().as_default() as graph:
                tf.identity(build(tf.compat.v1.placeholder), name="result")
            path.write_bytes(graph.as_graph_def().SerializeToString())

        isolate.run_isolated(write, what="writing")
        return str(path)

    def model(self, body: str, *, signature: str = "x=float32[4, 3], i=int32[]") -> Report:
        """Checks a Python file with a function of this body, whose first line is line 5."""
        folder = self.write("import tensorflow as tf\n\n\ndef model(x, i):\n" + body)
        specs = dict(part.strip().split("=") for part in signature.replace("], ", "]; ").split(";"))
        from tfaot.export.request import ModelRequest

        model = Model(model=str(folder / "model.py"), signature=specs)
        report = run.isolated(ModelRequest(model=model), root=str(folder))
        self.assert_valid(report)
        return report

    def assert_valid(self, report: Report) -> None:
        """Asserts that a report's JSON has the documented form, and that its page is whole."""
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        self.assertEqual(invalid(json.loads(report.to_json()), schema, schema, "report"), [])
        reader = _Page()
        reader.feed(page.html(report))
        self.assertEqual(reader.open, [])
        self.assertEqual(reader.links, [])
        text = " ".join("".join(reader.text).split())
        for entry in report.entry_points:
            for finding in entry.findings:
                self.assertIn(" ".join(finding.what.split()), text)

    def test_saved_model(self) -> None:
        """Protects users with a SavedModel and no BUILD file: all unsupported ops in nested functions, with lines and counts."""
        report = run.of_path(self.saved(WORDS, "outer"), shown="saved")
        self.assert_valid(report)
        self.assertFalse(report.compiles)
        by_op = {op: finding for (_, op), finding in found(report).items()}
        self.assertEqual(sorted(by_op), ["AsString", "SegmentSum", "StringLength"])
        for op, line, own in (("AsString", 7, "words"), ("StringLength", 7, "words"), ("SegmentSum", 11, "inner")):
            finding = by_op[op]
            self.assertEqual((finding.kind, finding.severity, finding.count), ("unsupported_op", "blocker", 2))
            (place,) = finding.places
            self.assertTrue(place.source.endswith(f"model.py:{line}"), place.source)
            self.assertTrue(place.nesting[-1].endswith(f"({own})"), place.nesting)
        self.assertIn("tf.math.unsorted_segment_sum", by_op["SegmentSum"].rewrite)
        text = report.to_text()
        self.assertIn("saved: does not compile; 3 blockers, 0 hazards in 1 entry point", text)
        self.assertIn("BLOCKER: XLA can't compile AsString: it computes on strings", text)
        self.assertIn("(words), 2 times", text)

    def test_tables(self) -> None:
        """Protects users with tables and other resources: the report goes on behind them, and names what can compile the rest."""
        head = "values = tf.lookup.KeyValueTensorInitializer(tf.range(2), ['cat', 'dog'])\n"
        head += "table = tf.lookup.StaticHashTable(values, '?')\ndata = tf.data.Dataset.range(3)\n\n\n"
        head += "@tf.function(input_signature=[tf.TensorSpec((), tf.string, name='png')])\ndef model(png):\n"
        for body, ops, clusters in (
            ("tf.cast(tf.io.decode_png(png)[0, 0, 0], tf.int32)", {"DecodePng", "Identity", "LookupTableFindV2"}, True),
            (
                "data.reduce(tf.strings.length(png), lambda x, _: x)",
                {"LookupTableFindV2", "ReduceDataset", "StringLength"},
                False,
            ),
        ):
            folder = self.write(f"import tensorflow as tf\n\n{head}    return table.lookup({body})\n")
            report = run.of_path(str(folder / "model.py"), shown="model.py")
            self.assert_valid(report)
            self.assertEqual({op for _, op in found(report) if op} & ops, ops, report.to_text())
            self.assertNotIn("InitializeTableV2", report.to_text())
            resource = (
                "the function uses a resource other than variables\n      'ReduceDataset/input_dataset at model.py:10'"
            )
            self.assertEqual(resource in report.to_text(), not clusters, report.to_text())
            self.assertEqual("\ntf_aot_clusters compiles what has no blocker" in report.to_text(), clusters)

    def test_graph(self) -> None:
        """Protects users with a GraphDef: an op, a dtype, and an op that only the ahead-of-time compiler lacks."""

        def build(placeholder: Any) -> Any:
            import tensorflow as tf
            from tensorflow.compiler.tf2xla.ops import gen_xla_ops

            x = placeholder(tf.float32, [4], "x")
            received = gen_xla_ops.xla_recv(tf.float32, "a", [4])
            return received + tf.cast(tf.cumsum(tf.cast(x, tf.uint8)), tf.float32)

        report = run.of_path(self.graph(build), shown="graph.pb")
        self.assert_valid(report)
        findings = found(report)
        self.assertEqual(sorted(findings), [("not_ahead_of_time", "XlaRecv"), ("unsupported_dtype", "Cumsum")])
        self.assertIn("float32", findings["unsupported_dtype", "Cumsum"].rewrite)
        self.assertIn("uint8", findings["unsupported_dtype", "Cumsum"].what)

    def test_constant(self) -> None:
        """Protects users whose axis or size is computed: the report says what it depends on, through functions."""
        report = self.model(
            "    f = tf.function(lambda v, a: tf.argmax(v, a))\n"
            "    y = f(x, i * 2)\n"
            "    return y, tf.reshape(x, tf.stack([tf.size(x)])), x[i], x[:i]\n"
        )
        findings = found(report)
        self.assertEqual([key for key in findings if key[0] == "not_constant"], [("not_constant", "ArgMax")])
        (place,) = findings["not_constant", "ArgMax"].places
        self.assertEqual(place.because, "it depends on the input 'i'")
        self.assertIn("model.py:5", place.source)
        self.assertIn("dimension", findings["not_constant", "ArgMax"].what)
        self.assertIn(("dynamic_size", "StridedSlice"), findings)

    def test_loop(self) -> None:
        """Protects users of loops: a gradient without a bound, and a list that grows, with the loop's dependence."""
        report = self.model(
            "    def power(y):\n"
            "        return tf.while_loop(lambda k, z: k < i, lambda k, z: (k + 1, tf.sin(z)), (0, y))[1]\n"
            "    array = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[3])\n"
            "    array = tf.while_loop(lambda k, a: k < 3, lambda k, a: (k + 1, a.write(k, x[0])), (0, array))[1]\n"
            "    return tf.gradients(power(x), x)[0], array.stack()\n"
        )
        kinds = {kind for kind, _ in found(report)}
        self.assertLessEqual({"unbounded_loop", "growing_list"}, kinds)
        text = report.to_text()
        self.assertIn("pass maximum_iterations to the tf.while_loop", text)
        self.assertIn("remove dynamic_size", text)

    def test_hazards(self) -> None:
        """Protects users of models that compile: checks that XLA drops, indices, fixed seeds, and sizes are named."""
        report = self.model(
            "    with tf.control_dependencies([tf.debugging.Assert(i > 0, [i])]):\n"
            "        y = tf.debugging.check_numerics(x, 'no')\n"
            "    noise = tf.random.stateless_uniform([3], seed=[1, 2])\n"
            "    return y + noise, tf.gather(x, i), tf.where(x > 0), tf.gather(x, [0, 1])\n"
        )
        self.assertTrue(report.compiles)
        findings = found(report)
        self.assertEqual({finding.severity for finding in findings.values()}, {"hazard"})
        want = [
            ("clamped_index", "GatherV2"),
            ("dropped_check", "Assert"),
            ("dropped_check", "CheckNumerics"),
            ("dynamic_size", "Where"),
            ("fixed_seed", "StatelessRandomGetKeyCounter"),
        ]
        self.assertEqual(sorted(findings), want)
        self.assertEqual(findings["clamped_index", "GatherV2"].count, 1)  # constant indices are in range
        for finding in findings.values():
            self.assertIn("model.py:", finding.places[0].source)
            self.assertTrue(finding.rewrite)

    def test_every_kind(self) -> None:
        """Protects users of any of these ops: one report names each with its line, how bad it is, and what to write instead."""
        from tests.preflight.lines import LINES

        body = "".join(f"    v{index} = {line.code}\n" for index, line in enumerate(LINES))
        report = self.model(f"{body}    return [{', '.join(f'v{index}' for index in range(len(LINES)))}]\n")
        findings = found(report)
        for index, line in enumerate(LINES):
            with self.subTest(line.code):
                finding = findings[line.kind, line.op]
                self.assertEqual(finding.severity, line.severity)
                self.assertIn(line.rewrite, finding.rewrite)
                (place,) = [place for place in finding.places if place.source.endswith(f"model.py:{index + 5}")]
                self.assertEqual(place.because, line.because)
        self.assertLessEqual(
            set(findings), {(line.kind, line.op) for line in LINES} | {("unsupported_op", "StringFormat")}
        )

    def test_open_sizes(self) -> None:
        """Protects users of models with an open batch: it is to fill in, not a blocker, and the rest is still checked."""

        def build(placeholder: Any) -> Any:
            import tensorflow as tf

            return tf.matmul(placeholder(tf.float32, [None, 3], "x"), tf.ones([3, 2])) + tf.math.segment_sum(
                tf.ones([2, 2]), [0, 1]
            )

        path = self.graph(build)
        report = run.of_path(path, shown="graph.pb")
        self.assert_valid(report)
        findings = found(report)
        needed = findings["unknown_size", ""]
        self.assertEqual(needed.severity, "needed")
        self.assertIn('dims = {"x": [2, 3]}, or serve any batch: batch_sizes', needed.rewrite)
        self.assertEqual(needed.places[0].because, "it is [None, 3]; the check assumes [2, 3]")
        self.assertIn(("unsupported_op", "SegmentSum"), findings)
        self.assertIn("1 blocker, 1 to fill in, 0 hazards", report.summary)
        given = run.of_path(path, shown="graph.pb", dims={"x": (8, 3)})
        self.assertNotIn(("unknown_size", ""), found(given))
        other = found(run.of_path(path, shown="graph.pb", dims={"y": (8, 3)}))
        self.assertIn("names y, which isn't an input of the model; x", other["unreadable", ""].what)

    def test_lost_shape(self) -> None:
        """Protects users with an output of unknown size: the report names the first op that lost it, inside its function."""
        report = self.model(
            "    f = tf.function(lambda v: tf.sqrt(tf.io.parse_tensor(tf.io.serialize_tensor(v), tf.float32)))\n"
            "    return tf.abs(f(x))\n"
        )
        self.assertIn(("unsupported_op", "ParseTensor"), found(report))
        fine = self.model(
            "    size = tf.cond(i > 0, lambda: [2, 3], lambda: [2, 3])\n"
            "    return tf.raw_ops.Empty(shape=size, dtype=tf.float32) + x[0]\n"
        )
        finding = found(fine)["lost_shape", "Empty"]
        self.assertEqual(finding.severity, "hazard")
        self.assertIn("model.py:6", finding.places[0].source)

    def test_random(self) -> None:
        """Protects users of dropout in a loop's condition: the seed can't reach it."""
        report = self.model(
            "    return tf.while_loop(lambda y: tf.random.uniform([]) < 0.5, lambda y: (y * 2,), (x,))[0]\n"
        )
        self.assertEqual(list(found(report)), [("random", "RandomUniform")])

    def test_recursion(self) -> None:
        """Protects the check from endless walks: a function that calls itself is a finding."""

        def write() -> None:
            import tensorflow as tf

            with tf.Graph().as_default() as graph:
                x = tf.compat.v1.placeholder(tf.float32, [], "x")
                function = tf.function(lambda y: tf.sin(y), autograph=False)
                tf.identity(function(x), name="result")
            proto = graph.as_graph_def()
            (definition,) = proto.library.function
            (node,) = [node for node in definition.node_def if node.op == "Sin"]
            node.op, node.attr["f"].func.name = "PartitionedCall", definition.signature.name
            node.attr["Tin"].list.type.append(1)
            node.attr["Tout"].list.type.append(1)
            del node.attr["T"]
            for user in definition.node_def:
                user.input[:] = [name.replace("Sin:y:0", "Sin:output:0") for name in user.input]
            Path(path).write_bytes(proto.SerializeToString())

        path = str(self.folder / "recursive.pb")
        isolate.run_isolated(write, what="writing")
        report = run.of_path(path, shown="recursive.pb")
        self.assert_valid(report)
        self.assertEqual(list(found(report)), [("recursion", "PartitionedCall")])

    def test_unreadable(self) -> None:
        """Protects the stage, which never fails because of the model: what can't be read is a finding."""
        empty = self.folder / "empty.pb"
        empty.write_bytes(b"")
        crash = self.write("import os\n\nos.abort()\n") / "model.py"
        wrong = self.write("def model(x):\n    raise ValueError('no')\n") / "model.py"
        for path, words in (
            (str(empty), "isn't a graph"),
            (str(crash), "was killed by SIGABRT"),
            (str(wrong), "model.py"),
        ):
            with self.subTest(path=path):
                report = run.of_path(path, shown=path)
                self.assert_valid(report)
                self.assertFalse(report.compiles)
                self.assertEqual([kind for kind, _ in found(report)], ["unreadable"])
                self.assertIn(words, report.to_text())
        with self.assertRaisesRegex(TfaotError, "missing doesn't exist"):
            run.of_path(str(self.folder / "missing"), shown="missing")

    def test_dims_flag(self) -> None:
        """Protects users of --dims: what isn't a size is an error that says how to write it."""
        self.assertEqual(run.parsed_dims(["x=3,?"]), {"x": (3, None)})
        errors = (
            "isn't an input with its sizes|has a size of x that isn't one|names time\n  found: a check is for one size"
        )
        for flag in ("x", "x=-1", "x=?,time"):
            with self.assertRaisesRegex(TfaotError, errors):
                run.parsed_dims([flag])

    def test_command(self) -> None:
        """Protects the command: it prints the report, writes both files, and its status says whether anything blocks."""
        model = self.write(
            "import tensorflow as tf\n\n\n"
            "@tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])\n"
            "def model(x):\n    return x + 1\n"
        )
        files = [str(self.folder / name) for name in ("report.json", "report.html")]
        command = [sys.executable, str(ROOT / "tools/check.py")]
        done = subprocess.run(
            [*command, str(model / "model.py"), "--json", files[0], "--html", files[1]],
            check=False,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": ":".join(sys.path), "HOME": str(self.folder)},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nothing stands in the way", done.stdout)
        self.assertTrue(json.loads(Path(files[0]).read_text())["compiles"])
        self.assertIn("<h1>Preflight</h1>", Path(files[1]).read_text())
        nothing = subprocess.run(
            command, check=False, capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
        )
        self.assertEqual(nothing.returncode, 2)
        self.assertIn("name one model, or --ops", nothing.stderr)
        spelled = command_line.parser("check", None).parse_args(["--entry-point=a", "--entry_point=b"])
        self.assertEqual(spelled.entry_point, ["a", "b"])


class ReportTest(unittest.TestCase):
    """The report's forms."""

    def test_escaped(self) -> None:
        """Protects readers: names from a model can't become part of the page."""
        finding = Finding("unsupported_op", "blocker", "<b>", "<script>&", "x", 1, ())
        report = Report.of("2.21.0", "<model>", [EntryPoint("<name>", 1, 0, (finding,))])
        text = page.html(report)
        self.assertNotIn("<script", text)
        self.assertIn("&lt;script&gt;&amp;", text)


class _Page(HTMLParser):
    """Reads a page: which tags are open at the end, what it loads, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "script":
            self.links.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise AssertionError(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


if __name__ == "__main__":
    unittest.main()
