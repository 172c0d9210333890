"""Runs the command `tfaot` in tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(
    *words: str, cwd: Path, env: dict[str, str] | None = None, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Runs the command as its users do, in a process of its own."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
        "TMPDIR": str(cwd),
        **(env or {}),
    }
    command = [sys.executable, "-s", "-B", "-m", "tfaot.command.cli", *words]
    return subprocess.run(
        command, check=False, cwd=cwd, env=variables, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
