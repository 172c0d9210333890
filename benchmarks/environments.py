"""Installs peers: each in its own virtual environment below the project's cache folder, from a lock with hashes."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

LOCKS = pathlib.Path(__file__).parent / "peers"


class NotInstalled(Exception):
    """Why a peer isn't installed: the end of pip's output."""


def cache() -> pathlib.Path:
    """Returns the benchmark's folder in the project's cache folder, which it finds like `bazelw`."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    root = os.environ.get("RULES_TFAOT_CACHE") or os.path.join(home, "rules_tfaot")
    return pathlib.Path(root) / "benchmarks"


def python(name: str) -> str:
    """Installs the packages in `peers/NAME.lock`, unless they are there, and returns the environment's interpreter.

    pip uses the machine's own configuration. No file in this project names an index.

    Raises:
      NotInstalled: pip failed to install it. Nothing is left behind, and the next call tries again.
    """
    lock = LOCKS / f"{name}.lock"
    folder = cache() / "peers" / name
    stamp = folder / "stamp"
    wanted = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    interpreter = str(folder / "bin" / "python")
    # Its Python is a link, perhaps into an output base that is gone.
    if stamp.exists() and stamp.read_text() == wanted and pathlib.Path(interpreter).exists():
        return interpreter
    print(f"compare: installing {name} into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    pip += ["--require-hashes", "--only-binary=:all:", "--requirement", str(lock)]
    variables = {**os.environ, "PYTHONPATH": ""}  # whose packages pip would take for its own
    for command in ([sys.executable, "-m", "venv", str(folder)], pip):
        done = subprocess.run(command, capture_output=True, check=False, text=True, env=variables)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise NotInstalled("not installed: " + (errors or done.stderr.splitlines() or ["no message"])[-1][:300])
    stamp.write_text(wanted)
    return interpreter
