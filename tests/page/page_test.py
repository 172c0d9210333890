"""Tests of the report on a compiled model: on a real one, and on what isn't one."""

import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tensorflow.core.framework import graph_pb2

from tfaot.core.errors import TfaotError
from tfaot.page import graph, graphviz, measured, page, plots
from tfaot.page.sections import sections

_VOID = {"meta", "br", "hr", "img", "link", "input"}

_PRINTED = """\
a::B, x86-64-v3, against TensorFlow
step  tensor                                          max abs    max ulp  tolerance       sees  checked
0     a b:0 at f.py:3                                1.01e-06   2.78e+03      17.4%   6.88e+05     100%
0     c:0                                                 inf        inf       inf%        100    66.7%  FAILED
      at index 3: got 1, expected 2 +- 0.1
0     d (free run)                                          0          0         0%          1       0%  BLIND
      d (0% of its values)                         NOT VERIFIED
a::B, x86-64-v3: 1 of 2 comparisons failed; 1 more are blind; 20 of 30 values are checked; 1 not verified
first to diverge: c:0, step 0
"""


class _Page(HTMLParser):
    """Collects text, and checks that tags match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


class PageTest(unittest.TestCase):
    """Reports that the rules wrote: on an example, on a model that was measured, and on a graph that was cut into clusters."""

    pages: dict[str, str]

    def page(self, name: str) -> str:
        """Returns a page's text."""
        return "".join(_Page(self.pages[name]).text)

    def test_structure(self) -> None:
        """Tags match, links lead to sections, identifiers are unique, and nothing comes from elsewhere or runs."""
        for name, text in self.pages.items():
            with self.subTest(page=name):
                page = _Page(text)
                self.assertEqual(page.wrong, [])
                ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
                self.assertEqual(len(ids), len(set(ids)))
                links = [attrs["href"] or "" for tag, attrs in page.tags if tag == "a" and "href" in attrs]
                self.assertGreaterEqual(len(links), 3)
                self.assertEqual([link for link in links if link[:1] != "#"], [])
                self.assertLessEqual({link.removeprefix("#") for link in links}, set(ids))
                foreign = [attrs for tag, attrs in page.tags if tag == "link" and attrs.get("href") != "data:,"]
                self.assertEqual(foreign, [])
                self.assertFalse(
                    [tag for tag, attrs in page.tags if tag in ("script", "img", "iframe") or "src" in attrs]
                )
                self.assertNotIn("@import", text)
                self.assertNotRegex(text, r"url\((?!#)")

    def test_contents(self) -> None:
        """It shows the class, each variable under both names, steps with their memory, both forms of HLO, and sizes."""
        text = self.page("fc")
        for wanted in (
            "examples::fc::Fc",
            "fc/hidden0/kernel",
            "fc_hidden0_kernel()",
            "ENTRY",
            "fusion",
            ".text",
            ".rodata",
            "HLO before optimization",
            "HLO after optimization",
            "New values of the 10 variables that aren't frozen compile nothing again.",
        ):
            self.assertIn(wanted, text)
        self.assertRegex(text, r"fc/hidden0/kernel at 0, 802,816 bytes; x:0 at 0, [\d,]+ bytes")
        self.assertRegex(text, r"all[0-9a-f]{16}")

    def test_graph(self) -> None:
        """The graph is drawn by scopes, with what the check found; a graph that was cut shows its clusters and blockers."""
        self.assertRegex(self.page("fc"), r"\d+ nodes in \d+ boxes")
        self.assertIn("fc/hidden1/MatMul", self.page("fc"))
        self.assertIn("The whole graph is compiled, as one cluster.", self.page("fc"))
        self.assertRegex(self.page("small"), "hazard: GatherV2")
        text = self.page("clusters")
        self.assertIn("that compute", text)
        self.assertRegex(text, r"cluster \d")

    def test_names(self) -> None:
        """XLA's drawings have the user's names of inputs, variables, and results, and load nothing."""
        text = self.page("fc")
        for wanted in (r"Parameter 0\s+x:0", r"Parameter 3\s+fc/hidden0/bias", "result 0: fc/loss:0"):
            self.assertRegex(text, wanted)
        self.assertNotIn("fonts.", text)

    def test_memory(self) -> None:
        """Protects from numbers that contradict each other: a run needs no more than there is, also in loops, as the plot shows."""
        for name in ("fc", "small", "rnn"):
            with self.subTest(page=name):
                match = re.search(
                    r"([\d,]+) steps, and ([\d,]+) bytes of working memory. ([\d,]+) bytes are in use", self.page(name)
                )
                assert match is not None
                steps, size, used = (int(number.replace(",", "")) for number in match.groups())
                self.assertGreater(steps, 3)
                self.assertLessEqual(used, size)
                self.assertGreater(used, size // 2)
                plot = re.search(r"<title>Working memory over a run</title>.*?</svg>", self.pages[name], re.DOTALL)
                assert plot is not None
                values = re.findall(r'x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', plot[0])
                self.assertGreater(len(values), 3)
                for x, y, width, height in (map(float, value) for value in values):
                    self.assertLess(x + width, 1001)
                    self.assertLess(y + height, 1003)

    def test_phone(self) -> None:
        """Plots have no width of their own, and no text that would shrink, so they fit a phone."""
        for text in self.pages.values():
            for head, inside in re.findall(r'<svg class="plot"([^>]*)>(.*?)</svg>', text, re.DOTALL):
                self.assertNotRegex(head, "width|height")
                self.assertNotIn("<text", inside)
            self.assertNotIn("min-width: 34rem", text)

    def test_not_measured(self) -> None:
        """Without measurements, the page says how to get them, and shows what the compiler knows."""
        text = self.page("fc")
        self.assertIn("bazel run @rules_tfaot//tools:measure -- //examples/fc:fc_aot --out=fc_aot.measured.json", text)
        count = re.search(r"([\d,]+) arithmetic operations in a run", text)
        assert count is not None
        products = 6 * 64 * (784 * 256 + 3 * 256 * 256 + 256 * 10) - 2 * 64 * 784 * 256
        self.assertGreater(int(count[1].replace(",", "")), products)  # the input has no gradient
        self.assertNotIn("Roofline", text)

    def test_measured(self) -> None:
        """With them, it shows a roofline, each kernel's time, and each tensor that the tests and the taps' test compare."""
        text, source = self.page("small"), self.pages["small"]
        self.assertIn("Roofline", text)
        self.assertGreaterEqual(source.count('<path class="point"'), 1)
        self.assertIn("dot 1x8x16x16", text)
        self.assertIn("small_aot_taps_test", text)
        self.assertIn("layer0/product", text)
        self.assertRegex(text, r"\d+ comparisons, 0 failed. None diverges")
        self.assertIn("The measured model has the fingerprint 0000000000000000", text)


class MeasuredTest(unittest.TestCase):
    """What programs print about numbers."""

    def test_diverges(self) -> None:
        """Failed comparisons are read with their errors, and the first to diverge by its name."""
        (test,) = measured.tested("a_test", _PRINTED)
        self.assertEqual(test.isa, "x86-64-v3")
        self.assertEqual(
            [comparison.tensor for comparison in test.comparisons], ["a b:0 at f.py:3", "c:0", "d (free run)"]
        )
        self.assertEqual([comparison.verdict for comparison in test.comparisons], ["", "FAILED", "BLIND"])
        self.assertEqual(test.comparisons[1].share, float("inf"))
        self.assertEqual([comparison.checked for comparison in test.comparisons], [1.0, 0.667, 0.0])
        self.assertEqual((test.first, test.unverified), ("c:0, step 0", ("d (0% of its values)",)))

    def test_shown(self) -> None:
        """The page warns of what diverges, with the tensor's name."""
        result = _measured(tested=measured.tested("a_test", _PRINTED))
        again = measured.Measured.from_json(result.to_json(), path="f.json")
        self.assertEqual(again, result)

    def test_another_file(self) -> None:
        """A file that isn't a measurement, or is one of another version, is an error that says how to measure."""
        for text in ("[]", "{", '{"format": 99}', '{"format": 1, "profiles": [], "tested": []}'):
            with self.subTest(text=text), self.assertRaises(TfaotError) as raised:
                measured.Measured.from_json(text, path="f.json")
            self.assertIn("f.json isn't what //tools:measure of this version writes", raised.exception.asked)


def _measured(**kwargs: Any) -> measured.Measured:
    peaks = {"flops": 1e11, "memory": 1e10, "cache": 1e11}
    return measured.Measured("//a:b", "0", "a CPU", "2026-01-01", peaks, (), **kwargs)


class GraphTest(unittest.TestCase):
    """Drawings of graphs."""

    def draw(
        self, *nodes: str, marks: Mapping[str, str] | None = None, clusters: Mapping[str, int] | None = None
    ) -> str:
        """Returns the drawing of nodes, `op name operands`, of which `out` is an output, in Graphviz's language."""
        made = graph_pb2.GraphDef()
        for op, name, *operands in map(str.split, nodes):
            made.node.add(op=op, name=name, input=operands)
        drawn = graph.draw(made, marks or {}, clusters or {}, {"out"})
        self.assertIn("<svg ", graphviz.draw(drawn.dot))
        self.assertEqual(drawn.boxes, drawn.dot.count(" [label="))
        return drawn.dot

    def test_edge(self) -> None:
        """Inputs and outputs have boxes of their own, and variables are named in the boxes that use them, without edges."""
        dot = self.draw(
            "Placeholder x",
            "VarHandleOp w",
            "ReadVariableOp read w",
            "MatMul y x read",
            "Identity out y",
            "AssignVariableOp a w y",
        )
        self.assertRegex(dot, r"<b>x</b><br/>input>")
        self.assertRegex(dot, r"<b>out</b><br/>output>")
        self.assertIn("<i>variable w</i>", dot)
        self.assertNotIn("VarHandleOp", dot)
        self.assertEqual(dot.count("->"), 2)

    def test_large(self) -> None:
        """A graph of thousands of nodes has few boxes, all of its nodes are in one, and a loop in it doesn't matter."""
        nodes = [
            f"Add s{i % 70}/t{i % 7}/n{i} s{(i - 1) % 7000 % 70}/t{(i - 1) % 7000 % 7}/n{(i - 1) % 7000}"
            for i in range(7000)
        ]
        dot = self.draw(*nodes, marks={"s3/t3/n3": "blocker"}, clusters={"s1/t1/n1": 2})
        boxes = dot.count(" [label=")
        self.assertLessEqual(boxes, graph.MOST)
        self.assertGreater(boxes, graph.MOST // 3)
        self.assertEqual(sum(map(int, re.findall(r"<br/>(\d+) nodes", dot))), 7000)
        self.assertIn("blocker: Add", dot)
        self.assertIn("cluster 2", dot)

    def test_names(self) -> None:
        """Any name can be drawn."""
        self.draw('Add "<&\\>/é Add', 'Add "<&\\> "<&\\>/é')

    def test_too_large(self) -> None:
        """Protects pages of large models: what has more instructions isn't drawn, and the page says so."""
        text = page._drawing("digraph { " + "n [label=n];" * (page.INSTRUCTIONS + 1) + "}", "x", "HLO")
        self.assertIn("It has 1,501 instructions, and at most 1,500 are drawn. The text below has them.", text)
        self.assertNotIn("<svg", text)

    def test_same_everywhere(self) -> None:
        """Text's size doesn't depend on a machine's fonts: Graphviz estimates it."""
        svg = graphviz.draw('digraph { n [label="iiiiiiiiii WWWWWWWWWW" fontname="Helvetica"]; }')
        self.assertIn('width="261pt"', svg)


class MemoryTest(unittest.TestCase):
    """Values in working memory."""

    def values(
        self, *steps: tuple[list[int], list[int]], loops: tuple[tuple[int, int], ...] = ()
    ) -> list[tuple[int, ...]]:
        """Returns the place, the first, and the last step of each value, given the places that steps read and write."""

        def places(numbers: list[int]) -> list[dict[str, Any]]:
            return [{"of": "memory", "offset": 10 * number, "bytes": 10} for number in numbers]

        made = [{"kernel": "k", "reads": places(reads), "writes": places(writes)} for reads, writes in steps]
        values = plots.values({"steps": made, "loops": loops, "results": places([9])})
        return [(value.start // 10, value.first, value.last) for value in values]

    def test_lives(self) -> None:
        """A value lives from the step that writes it to the last one that reads it, and results live until the end."""
        self.assertEqual(
            self.values(([], [0]), ([0], [9]), ([], [0]), ([0], [0])), [(0, 0, 1), (9, 1, 3), (0, 2, 2), (0, 3, 3)]
        )

    def test_loops(self) -> None:
        """What a loop needs from before it lives until the loop ends, or until the loop writes over it."""
        self.assertEqual(
            self.values(([], [0]), ([], [1]), ([0, 1], [2]), ([2], [1]), loops=((2, 3),)),
            [(0, 0, 3), (1, 1, 2), (2, 2, 3), (1, 3, 3)],
        )


class SectionsTest(unittest.TestCase):
    """Sections of object files."""

    def test_sections(self) -> None:
        """A program's own file has code, and another file has no sections."""
        parts = sections(Path(sys.executable).read_bytes())
        self.assertGreater(parts[".text"], 100)
        self.assertEqual(sections(b"text"), {})

    def test_sections_of_weights(self) -> None:
        """Weights count as constants, although many of them have a section of their own."""
        text = '.section .tfaot_constants, "a"\n.zero 100\n'
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "weights.o"
            subprocess.run(["cc", "-xassembler", "-c", "-", "-o", str(made)], check=True, input=text, text=True)
            self.assertEqual(sections(made.read_bytes()), {".rodata": 100})


if __name__ == "__main__":
    PageTest.pages = {
        name: Path(sys.argv.pop(1)).read_text(encoding="utf-8") for name in ("fc", "small", "clusters", "rnn")
    }
    unittest.main()
