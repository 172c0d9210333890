"""Two models of one class in a process: a part of the table that `tests/linking/run` makes."""

import os
import shlex
import tempfile
import unittest
from pathlib import Path

from tests.linking.linking import FOLDER, SANITIZERS, Table

COMPILERS = ["c++", *([os.environ["TFAOT_CLANG"]] if "TFAOT_CLANG" in os.environ else [])]
"""The machine's compiler; and clang, with --test_env=TFAOT_CLANG=COMMAND."""


class LinkingTest(unittest.TestCase):
    """All ways to link and load."""

    maxDiff = None

    def test_table(self) -> None:
        """Protects programs and plug-ins: each model gives its own numbers, or the linker says why it doesn't."""
        for compiler in COMPILERS:
            for sanitizer in ("", "asan, ubsan"):
                folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))) / "work"
                built = Path(FOLDER).absolute()
                table = Table(built, folder, tuple(shlex.split(compiler)), SANITIZERS[sanitizer])
                rows = list(table.rows())
                self.assertGreater(len(rows), 50)
                for row in rows:
                    with self.subTest(compiler=compiler, sanitizer=sanitizer, form=row.form, pair=row.pair):
                        self.assertEqual(row.wrong, "")


if __name__ == "__main__":
    unittest.main()
