"""Rewriting HLO and MLIR text, line by line."""

from __future__ import annotations

import textwrap
import unittest

from tfaot.core.errors import TfaotError
from tfaot.hlo import drawing, hlo, stablehlo


class CleanTextTest(unittest.TestCase):
    """HLO text loses only references to files and counters."""

    def test_source(self) -> None:
        """References to source files go, wherever they are in the metadata."""
        for line, wanted in [
            (
                '  a = f32[] dot(b), metadata={op_type="MatMul" op_name="d" source_file="/x/y.py" source_line=10}',
                '  a = f32[] dot(b), metadata={op_type="MatMul" op_name="d"}',
            ),
            ('  a = f32[] copy(b), metadata={source_file="f" source_line=1}', "  a = f32[] copy(b)"),
            (
                '  a = f32[] copy(b), metadata={source_line=1 op_name="d"}',
                '  a = f32[] copy(b), metadata={op_name="d"}',
            ),
            (
                '  a = f32[] copy(b), metadata={op_name="d" stack_frame_id=7}',
                '  a = f32[] copy(b), metadata={op_name="d"}',
            ),
        ]:
            with self.subTest(line):
                self.assertEqual(wanted, hlo.clean_text(line, "m"))

    def test_names_stay(self) -> None:
        """A user's op can have a name that looks like a reference to a source file: strings don't change."""
        line = r'  a = f32[] copy(b), metadata={op_name="x source_line=3 \" source_file=\"y" source_line=4}'
        wanted = r'  a = f32[] copy(b), metadata={op_name="x source_line=3 \" source_file=\"y"}'
        self.assertEqual(wanted, hlo.clean_text(line, "m"))

    def test_module(self) -> None:
        """The module's name, which counts modules in a process, becomes the model's."""
        self.assertEqual(
            "HloModule m, is_scheduled=true\n", hlo.clean_text("HloModule tf.12_M1a, is_scheduled=true\n", "m")
        )


class DrawingTest(unittest.TestCase):
    """XLA's drawings in Graphviz's language."""

    def test_bounds(self) -> None:
        """Protects reports on models with open sizes: a bound in a label, escaped or not, is text and no tag."""
        drawn = drawing.clean("digraph G {\nn1 [label=<<b>x</b><br/>f32[1,<=8]{1,0} (f32[&lt;=8])>];\n}", "t", [], [])
        self.assertIn("n1 [label=<<b>x</b><br/>f32[1,≤8]{1,0} (f32[≤8])>];", drawn)

    def test_attributes_at_the_end(self) -> None:
        """Protects reports: an attribute that ends a label takes nothing of the next line with it."""
        lines = "label = <kLoop<br/>frontend_attributes={a=b}>;\nn1 [label=<x<br/>sizes={1,64}<br/>f32[2]>];\n"
        self.assertIn("n1 [label=<x<br/>sizes={1,64}<br/>f32[2]>];", drawing.clean(lines, "t", [], []))


class PortableTest(unittest.TestCase):
    """TensorFlow's MLIR becomes pure StableHLO."""

    def portable(self, body: str) -> str:
        """Rewrites a function's lines, and returns them."""
        lines = textwrap.indent(textwrap.dedent(body), "    ")
        text = stablehlo.portable(
            f'#loc1 = loc("x")\nmodule @a.12 attributes {{mhlo.is_dynamic = false}} {{\n'
            f"  func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {{\n{lines}  }}\n}}\n",
            "m",
        )
        self.assertTrue(text.startswith('#loc1 = loc("x")\nmodule @m {\n'), text)
        return textwrap.dedent(text.split("-> tensor<2xf32> {\n", 1)[1].split("\n  }", 1)[0])

    def test_copy(self) -> None:
        """A copy goes, and its uses become uses of what it copied, including in regions, until the copy's region ends."""
        wanted = """\
            %1:2 = stablehlo.while(%iterArg = %0) : tensor<2xf32>
            do {
              %9 = stablehlo.add %0, %iterArg : tensor<2xf32>
              stablehlo.return %9 : tensor<2xf32>
            } do {
              %5 = stablehlo.add %0, %iterArg : tensor<2xf32>
              stablehlo.return %5 : tensor<2xf32>
            }
            return %1#1 : tensor<2xf32>"""
        got = self.portable("""\
            %10 = mhlo.copy %0 : tensor<2xf32> loc(#loc1)
            %1:2 = stablehlo.while(%iterArg = %10) : tensor<2xf32>
            do {
              %5 = mhlo.copy %10 : tensor<2xf32> loc(#loc1)
              %9 = stablehlo.add %5, %iterArg : tensor<2xf32>
              stablehlo.return %9 : tensor<2xf32>
            } do {
              %5 = stablehlo.add %10, %iterArg : tensor<2xf32>
              stablehlo.return %5 : tensor<2xf32>
            }
            %11 = mhlo.copy %1#1 : tensor<2xf32>
            return %11 : tensor<2xf32>
            """)
        self.assertEqual(textwrap.dedent(wanted), got)

    def test_copied_copy(self) -> None:
        """A copy of a copy is the first value."""
        got = self.portable("""\
            %1 = mhlo.copy %arg0 : tensor<2xf32>
            %2 = mhlo.copy %1 : tensor<2xf32>
            return %2 : tensor<2xf32>
            """)
        self.assertEqual("return %arg0 : tensor<2xf32>", got)

    def test_erf(self) -> None:
        """Erf becomes a call, and a function for each shape and dtype."""
        text = stablehlo.portable(
            "module @a {\n  func.func @main(%arg0: tensor<2x3xbf16>) -> tensor<2x3xbf16> {\n"
            "    %0 = mhlo.erf %arg0 : tensor<2x3xbf16>\n    %1 = mhlo.erf %0 : tensor<2x3xbf16>\n"
            "    return %1 : tensor<2x3xbf16>\n  }\n}\n",
            "m",
        )
        self.assertEqual(2, text.count("func.call @erf.2.3.bf16("))
        self.assertEqual(1, text.count("func.func private @erf.2.3.bf16(%x: tensor<2x3xbf16>) -> tensor<2x3xbf16> {"))
        self.assertNotIn("mhlo", text)

    def test_foreign(self) -> None:
        """An operation without an equivalent is named, instead of passing on what vendors can't parse."""
        with self.assertRaises(TfaotError) as raised:
            self.portable("""\
                %1 = "mhlo.topk"(%arg0) {k = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
                %2 = chlo.lgamma %1 : tensor<2xf32> -> tensor<2xf32>
                return %2 : tensor<2xf32>
                """)
        self.assertEqual(
            "m: chlo.lgamma, mhlo.topk can't be written as StableHLO\n"
            "  to do: replace the ops that they come from; the output group hlo gives HLO, which contains all of them",
            str(raised.exception),
        )

    def test_quoted(self) -> None:
        """A string that looks like an operation or a value doesn't change."""
        call = (
            '%1 = stablehlo.custom_call @f(%arg0) {backend_config = "mhlo.topk(%2)"} : (tensor<2xf32>) -> tensor<2xf32>'
        )
        self.assertEqual(call, self.portable(f"%2 = mhlo.copy %arg0 : tensor<2xf32>\n{call}\n"))

    def test_attributes(self) -> None:
        """Attributes of mhlo go, whatever their values. If there are others, these and the dictionary stay."""
        for line, wanted in [
            ('dot %0 {mhlo.frontend_attributes = {a = "}", b = [1]}} : t', "dot %0 : t"),
            ("dot %0 {mhlo.a = 1 : i64, b = 2} : t", "dot %0 {b = 2} : t"),
            ("dot %0 {b = 2, mhlo.a = #mhlo.x<y, z>} : t", "dot %0 {b = 2} : t"),
            ("dot %0 {b = 2, mhlo.a = (i32) -> i32, c = 3} : t", "dot %0 {b = 2, c = 3} : t"),
            ("dot %0 {mhlo.a, mhlo.c = 3} : t", "dot %0 : t"),
            ("dot %0 {mhlo.a, b = 2, mhlo.c} : t", "dot %0 {b = 2} : t"),
            ('f(%arg0: t {mhlo.sharding = "x"}, %arg1: t {mhlo.sharding = "y"}) -> t', "f(%arg0: t, %arg1: t) -> t"),
            ('dot %0 {b = "{mhlo.a = 1}"} : t', 'dot %0 {b = "{mhlo.a = 1}"} : t'),
        ]:
            with self.subTest(line):
                self.assertEqual(wanted, stablehlo.without_attributes(line))


if __name__ == "__main__":
    unittest.main()
