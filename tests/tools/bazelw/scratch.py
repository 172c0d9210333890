"""Shared by several of these tests."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import unittest
from pathlib import Path

from tools.bazelw.progress import Progress


class ScratchTest(unittest.TestCase):
    """A test with its own folder, `self.folder`, which isn't under /tmp because bazelw refuses a cache there."""

    folder: Path

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR", "/var/tmp"))).resolve()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.heard = io.StringIO()
        self.progress = Progress(self.heard)

    def program(self, path: str, script: str) -> Path:
        """Makes an executable shell script at `path` below the test's folder."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return file
