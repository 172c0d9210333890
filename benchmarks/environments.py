"""Where peers are installed: a virtual environment each, below the project's cache folder, from a lock with hashes."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

LOCKS = pathlib.Path(__file__).parent / "peers"


class NotInstalled(Exception):
    """Why a peer is not there: pip's last words."""


def cache() -> pathlib.Path:
    """The project's cache folder, as `bazelw` finds it, and the benchmark's part of it."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    root = os.environ.get("RULES_TFAOT_CACHE") or os.path.join(home, "rules_tfaot")
    return pathlib.Path(root) / "benchmarks"


def python(name: str) -> str:
    """Installs what `peers/NAME.lock` names, unless it is there, and returns the environment's interpreter.

    pip runs as the machine has it set up: which index it asks, no file of this project says.

    Raises:
      NotInstalled: pip could not install it; nothing is left behind, and the next call tries again.
    """
    lock = LOCKS / f"{name}.lock"
    folder = cache() / "peers" / name
    stamp = folder / "stamp"
    wanted = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    interpreter = str(folder / "bin" / "python")
    if stamp.exists() and stamp.read_text() == wanted:
        return interpreter
    print(f"compare: installing {name} into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    pip += ["--require-hashes", "--only-binary=:all:", "--requirement", str(lock)]
    for command in ([sys.executable, "-m", "venv", str(folder)], pip):
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise NotInstalled("not installed: " + (errors or done.stderr.splitlines() or ["no message"])[-1][:300])
    stamp.write_text(wanted)
    return interpreter
