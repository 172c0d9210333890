"""The lint check for pages: it finds each kind of stale link, name, and copy, and accepts good pages."""

import tempfile
import unittest
from pathlib import Path

from tools.lint import pages

GUIDE = "docs" + "/guide"  # in two parts, because the check would also look for this test's pages
MAP = "docs/README.md"
PAGE = f"{GUIDE}/a.md"
GOOD = {
    MAP: "# Map\n\n[A](guide/a.md#one-two), [models](guide/models.md)\n",
    PAGE: "# A\n\n## One, `two`\n\n[above](#one-two)\n\n```sh\n# [no link](nowhere.md)\n```\n",
    f"{GUIDE}/models.md": "| a function | [a.md](b.md) |\n\nWhat holds for all",
    f"{GUIDE}/b.md": '# B\n\n`examples/x/BUILD`:\n```starlark\nx(name = "y")\n```\n`//examples/x:y`\n',
    "examples/x/BUILD": 'x(name = "y")\n',
}


class PagesTest(unittest.TestCase):
    def faults(self, **changed: str) -> list[str]:
        """Returns what is wrong with the good pages after these changes, by path."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = Path(folder.name)
        texts = {**GOOD, MAP: GOOD[MAP] + "[B](guide/b.md)\n", **changed}
        for name, text in texts.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return pages.faults(root, texts)

    def test_good(self) -> None:
        """Good pages have no faults: anchors drop punctuation, and code isn't a link."""
        self.assertEqual(self.faults(), [])

    def test_links(self) -> None:
        """A link needs a file, and an anchor needs a heading, including on the same page."""
        text = "# A\n\n[x](nowhere.md) [y](b.md#two) [z](#three)\n"
        self.assertEqual(
            self.faults(**{PAGE: text, MAP: "[A](guide/a.md) [B](guide/b.md) [m](guide/models.md)"}),
            [
                f"{PAGE}: links to nowhere.md, which doesn't exist",
                f"{PAGE}: links to b.md#two, but that page has no such heading",
                f"{PAGE}: links to #three, but that page has no such heading",
            ],
        )

    def test_same_heading_twice(self) -> None:
        """The second heading with the same name gets a number, as in viewers."""
        self.assertEqual(pages.anchors("# Same\n\n## Same\n\n## [Li](x.md) nk\n"), {"same", "same-1", "li-nk"})

    def test_names(self) -> None:
        """Files, targets, and packages that a page names must exist, except placeholders in capitals."""
        text = (
            GOOD[PAGE]
            + "`py/gone.py` `rules/private/STAGE.bzl` `//examples/x:z` `//examples/x:y_old_test` `//tests/gone`\n"
        )
        self.assertEqual(
            self.faults(**{PAGE: text}),
            [
                f"{PAGE}: names py/gone.py, which doesn't exist",
                f"{PAGE}: names //examples/x:z, which isn't in its BUILD",
                f"{PAGE}: names //examples/x:y_old_test, which isn't in its BUILD",
                f"{PAGE}: names //tests/gone, which isn't a package",
            ],
        )

    def test_targets_of_macros_and_comprehensions(self) -> None:
        """A library's test, and targets that a comprehension names, exist."""
        build = (
            GOOD["examples/x/BUILD"]
            + '[t(name = "{}_at_{}".format(a, b)) for a in c]\n[t(name = a + "_z") for a in ["w"]]\n'
        )
        text = GOOD[PAGE] + "`//examples/x:y_test` `//examples/x:s_at_t` `//examples/x:w_z`\n"
        self.assertEqual(self.faults(**{PAGE: text, "examples/x/BUILD": build}), [])

    def test_parts_of_files(self) -> None:
        """What a page shows of a file is what the file marks, and the fix copies it."""
        part = "<!-- begin: MODULE.bazel -->\n```starlark\n{}```\n<!-- end: MODULE.bazel -->\n"
        module = 'module(name = "x")\n\n# begin: install\nbazel_dep(name = "y")\n# end: install\n'
        old, new = (GOOD[PAGE] + part.format(text) for text in ("", 'bazel_dep(name = "y")\n'))
        stale = [f"{PAGE}: shows parts of files as they were; run tools/lint/run --fix"]
        self.assertEqual(self.faults(**{PAGE: new, "MODULE.bazel": module}), [])
        self.assertEqual(self.faults(**{PAGE: old, "MODULE.bazel": module}), stale)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "MODULE.bazel").write_text(module, encoding="utf-8")
            self.assertEqual(pages.with_parts(Path(folder), old), new)
        none = [f"{PAGE}: shows a part of MODULE.bazel, which marks none"]
        self.assertEqual(self.faults(**{PAGE: old, "MODULE.bazel": 'module(name = "x")\n'}), none)
        self.assertEqual(self.faults(**{PAGE: old}), none)

    def test_code_names_a_page(self) -> None:
        """A comment that names a page that has moved is stale."""
        gone = "docs/" + "gone.md"
        self.assertEqual(self.faults(**{"a.py": f"# see {gone}\n"}), [f"a.py: names {gone}, which doesn't exist"])

    def test_blocks(self) -> None:
        """What a page shows from a file is in that file, and each source of models shows a target."""
        stale = GOOD[f"{GUIDE}/b.md"].replace('"y"', '"w"', 1)
        self.assertIn(
            f"{GUIDE}/b.md: a block under examples/x/BUILD isn't in that file; copy it from there",
            self.faults(**{f"{GUIDE}/b.md": stale}),
        )
        self.assertEqual(
            self.faults(**{f"{GUIDE}/b.md": "# B\n"}),
            [f"{GUIDE}/models.md: b.md shows no target of a file, after a line with the file's name"],
        )

    def test_loads(self) -> None:
        """A newcomer's first BUILD file works with Bazel 9: what a page shows of C++ and Python has its load."""
        rule = '```starlark\n{}cc_binary(\n    name = "x",\n)\n```\n'
        load = 'load("@rules_cc//cc:defs.bzl", "cc_binary")\n'
        fault = (
            f"{PAGE}: shows cc_binary without a load, which Bazel 9 needs; add it to the block, or to the page's text"
        )
        for text, faults in (
            (rule.format(""), [fault]),
            (rule.format(load) + rule.format(""), [fault]),
            (rule.format(load), []),
            (f"`{load.strip()}`\n\n" + rule.format(""), []),
        ):
            with self.subTest(text):
                self.assertEqual(self.faults(**{PAGE: f"# A\n\n## One, `two`\n\n{text}"}), faults)

    def test_map(self) -> None:
        """A new page must be on the map."""
        self.assertEqual(
            self.faults(**{f"{GUIDE}/c.md": "# C\n"}), [f"{MAP}: doesn't link to {GUIDE}/c.md; add it to the map"]
        )


if __name__ == "__main__":
    unittest.main()
