"""Tests of the report on a compiled model: on a real one, and on what isn't one."""

import itertools
import re
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tensorflow.core.framework import graph_pb2

from tfaot.core.errors import TfaotError
from tfaot.page import graph, measured
from tfaot.page.program import Touched, program, sections

_VOID = {"meta", "br", "hr", "img", "link", "input"}

_SOURCE = """
template <bool kHooked>
bool Run(const ::tfaot::Instance& instance) {
  if (!step("tfcompile_xla_generated_tfcompile_5_tfaot_internal__M1a1B_x86_64_v3_add_fusion")) return false;
  if (tfcompile_x_add_fusion(calls + 0) != nullptr) return false;
  if (!step("product")) return false;
  kernels::TFAOT_ISA::Multiply(b[2] + 64, b[1], b[3] + 0);
  return true;
}
constexpr ::tfaot::KernelArgPlace kKernelArgs[] = {
    {0u, 256u, 0u},
    {64u, 128u, 2u},
};
constexpr ::tfaot::KernelCallPlace kCalls[] = {
    {{1u, 1u, 1u}, 2u},
};
}  // namespace
const ::tfaot::Program M1a1B_x86_64_v3_program = {
    &Run<false>,
    &Run<true>,
    2u,
    1u,
    1u,
    1u,
    2u,
    1u,
    0u,
    640u,
    0u,
    kMemory,
};
"""


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
        """It shows the class, each variable under both names, kernels of HLO with their memory, both forms of HLO, and sizes."""
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
        steps = re.search(r"(\d+) kernel calls, ([\d,]+) bytes of working memory", text)
        assert steps is not None
        self.assertGreater(int(steps[1]), 3)
        self.assertGreater(int(steps[2].replace(",", "")), 0)
        self.assertRegex(text, r"memory \d+ at [\d,]+, [\d,]+ bytes")
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

    def test_memory(self) -> None:
        """The plot of memory has a rectangle for each value of the buffer assignment, below its top."""
        plot = re.search(r"<title>Working memory over a run</title>.*?</svg>", self.pages["fc"], re.DOTALL)
        assert plot is not None
        values = re.findall(r'<rect class="value\d" x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', plot[0])
        self.assertGreater(len(values), 10)
        self.assertLess(max(float(y) + float(height) for y, height in values), 321)
        self.assertEqual(min(float(y) for y, _ in values), 0)

    def test_not_measured(self) -> None:
        """Without measurements, the page says how to get them, and shows what the compiler knows."""
        text = self.page("fc")
        self.assertIn("bazel run @rules_tfaot//tools:measure -- //examples/fc:fc_aot --out=fc_aot.measured.json", text)
        self.assertIn("arithmetic operations in a run", text)
        self.assertNotIn("Roofline", text)

    def test_measured(self) -> None:
        """With them, it shows a roofline, each kernel's time, and each tensor that the tests and the taps' test compare."""
        text, source = self.page("small"), self.pages["small"]
        self.assertIn("Roofline", text)
        self.assertGreaterEqual(source.count('<circle class="point"'), 1)
        self.assertIn("dot 1x8x16x16", text)
        self.assertIn("small_aot_taps_test", text)
        self.assertIn("layer0/product", text)
        self.assertRegex(text, r"\d+ comparisons, 0 failed. None diverges")
        self.assertIn("The measured model has the fingerprint 0000000000000000", text)


class MeasuredTest(unittest.TestCase):
    """What programs print about numbers."""

    def test_diverges(self) -> None:
        """Failed comparisons are read with their errors, and the first to diverge by its name."""
        (found,) = measured.tested("a_test", _PRINTED)
        self.assertEqual(found.isa, "x86-64-v3")
        self.assertEqual([each.tensor for each in found.comparisons], ["a b:0 at f.py:3", "c:0", "d (free run)"])
        self.assertEqual([each.verdict for each in found.comparisons], ["", "FAILED", "BLIND"])
        self.assertEqual(found.comparisons[1].share, float("inf"))
        self.assertEqual([each.checked for each in found.comparisons], [1.0, 0.667, 0.0])
        self.assertEqual((found.first, found.unverified), ("c:0, step 0", ("d (0% of its values)",)))

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

    def test_large(self) -> None:
        """A graph of thousands of nodes has few boxes, all of its nodes are in one, and a loop in it doesn't matter."""
        nodes = [graph_pb2.GraphDef().node.add(name=f"s{i % 70}/t{i % 7}/n{i}", op="Add") for i in range(7000)]
        for before, node in itertools.pairwise(nodes):
            node.input.append(before.name)
        nodes[0].input.append(nodes[-1].name)
        drawn = graph.draw(graph_pb2.GraphDef(node=nodes), {"s3/t3/n3": "blocker"}, {"s1/t1/n1": 2})
        self.assertEqual(drawn.nodes, 7000)
        self.assertLessEqual(drawn.boxes, graph.MOST)
        self.assertGreater(drawn.boxes, graph.MOST // 3)
        self.assertGreater(drawn.hidden, 0)
        self.assertIn("blocker: Add", drawn.svg)
        self.assertIn("cluster 2", drawn.svg)
        self.assertIn("100 edges that lead back to an earlier box", graph.text(drawn))


class ProgramTest(unittest.TestCase):
    def test_program(self) -> None:
        """Each step has its kernel and its memory: from the tables for XLA's kernels, from the call for the rules' own."""
        found = program(_SOURCE, "f.cc")
        self.assertEqual(found.memory, 640)
        self.assertEqual([step.kernel for step in found.steps], ["add_fusion", "product"])
        self.assertEqual(found.steps[0].touched, (Touched("argument 0", 0, 256), Touched("memory 0", 64, 128)))
        self.assertEqual(
            found.steps[1].touched,
            (Touched("memory 0", 64, None), Touched("argument 1", 0, None), Touched("constant 0", 0, None)),
        )

    def test_another_file(self) -> None:
        """A file that isn't an executor's source is an error that names it."""
        with self.assertRaises(TfaotError) as raised:
            program("int main() {}", "f.cc")
        self.assertIn("f.cc isn't the source of an executor", raised.exception.asked)

    def test_sections(self) -> None:
        """A program's own file has code, and another file has no sections."""
        found = sections(Path(sys.executable).read_bytes())
        self.assertGreater(found[".text"], 100)
        self.assertEqual(sections(b"text"), {})

    def test_sections_of_weights(self) -> None:
        """Weights count as constants, although many of them have a section of their own."""
        text = '.section .tfaot_constants, "a"\n.zero 100\n'
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "weights.o"
            subprocess.run(["cc", "-xassembler", "-c", "-", "-o", str(made)], check=True, input=text, text=True)
            self.assertEqual(sections(made.read_bytes()), {".rodata": 100})


if __name__ == "__main__":
    PageTest.pages = {name: Path(sys.argv.pop(1)).read_text(encoding="utf-8") for name in ("fc", "small", "clusters")}
    unittest.main()
