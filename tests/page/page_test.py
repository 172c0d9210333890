"""Tests of the report on a compiled model: on a real one, and on what isn't one."""

import re
import sys
import unittest
from html.parser import HTMLParser
from pathlib import Path

from tfaot.core.errors import TfaotError
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
    page: str

    def test_structure(self) -> None:
        """Tags match, links lead to sections, and nothing comes from elsewhere or runs."""
        page = _Page(self.page)
        self.assertEqual(page.wrong, [])
        ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
        links = [attrs["href"] or "" for tag, attrs in page.tags if tag == "a" and "href" in attrs]
        self.assertGreaterEqual(len(links), 7)
        self.assertEqual([link for link in links if link[:1] != "#"], [])
        self.assertLessEqual({link.removeprefix("#") for link in links}, ids)
        self.assertFalse(
            [tag for tag, attrs in page.tags if tag in ("script", "link", "img", "iframe") or "src" in attrs]
        )
        self.assertNotIn("@import", self.page)
        self.assertNotRegex(self.page, r"url\((?!#)")

    def test_contents(self) -> None:
        """It shows the class, each variable under both names, kernels of HLO with their memory, both forms of HLO, and sizes."""
        text = "".join(_Page(self.page).text)
        for wanted in (
            "examples::fc::Fc",
            "fc/hidden0/kernel",
            "fc_hidden0_kernel()",
            "ENTRY",
            "fusion",
            ".text",
            ".rodata",
        ):
            self.assertIn(wanted, text)
        steps = re.search(r"(\d+) kernel calls, ([\d,]+) bytes of working memory", text)
        assert steps is not None
        self.assertGreater(int(steps[1]), 3)
        self.assertGreater(int(steps[2].replace(",", "")), 0)
        self.assertRegex(text, r"memory \d+ at [\d,]+, [\d,]+ bytes")
        self.assertRegex(text, r"all[0-9a-f]{16}")


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


if __name__ == "__main__":
    PageTest.page = Path(sys.argv.pop(1)).read_text(encoding="utf-8")
    unittest.main()
