"""Runs the command `tfaot` in tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("TEST_TMPDIR") or tempfile.gettempdir()) / "tfaot-cache"
"""Where the command keeps what calls share."""


def started(
    *words: str,
    cwd: Path,
    env: dict[str, str] | None = None,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Starts the command as its users do, in a process of its own."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
        "TMPDIR": str(cwd),
        "RULES_TFAOT_CACHE": str(CACHE),
        **(env or {}),
    }
    command = [sys.executable, "-s", "-B", "-m", "tfaot.command.cli", *words]
    return subprocess.Popen(command, cwd=cwd, env=variables, stdout=stdout, stderr=stderr, text=True)


def run(
    *words: str, cwd: Path, env: dict[str, str] | None = None, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    process = started(*words, cwd=cwd, env=env, stderr=stderr)
    printed, errors = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, printed, errors)
