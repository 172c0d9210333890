"""Installs packages for the Python that runs this program, once for all workspaces of a machine.

    python3 -I -S install.py REQUEST

The repository rules call it. REQUEST is a `Request` as JSON. The packages are below the cache folder that bazelw uses, by the
lock and the Python that they are for; or in the current folder if there is no such folder, or TFAOT_SHARE is 0. Prints a line
if it installs something, and writes an `Outcome` as JSON to `outcome.json` in the current folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.dont_write_bytecode = True

from tools.bazelw import cache, errors, lock, progress  # noqa: E402 - found by the path above

# Increment when the same lock gives other files.
_RECIPE = 1


@dataclass(frozen=True)
class Request:
    """What to install."""

    name: str
    """The start of the folder's name."""
    title: str
    """What is installed, and its size, for people."""
    lock: str
    """Path of a hash-locked requirements file."""
    package: str
    """An importable package that must exist afterwards."""
    programs: tuple[str, ...]
    """Files to keep in site-packages/bin."""


@dataclass(frozen=True)
class Outcome:
    """Where the packages are, or what failed."""

    folder: str = ""
    """The folder with `site-packages`."""
    shared: bool = False
    """Whether the folder is outside the repository."""
    failed: str = ""
    """`pip` or `compileall`."""
    said: str = ""
    """What that printed."""


def install(request: Request) -> Outcome:
    """Installs the packages, unless an earlier call has."""
    made = _made(request)
    try:
        if made is None:
            return _unshared(request)
        if outcome := _recalled(made):
            return outcome
        with lock.held(made.parent, progress.Progress()):
            # Another workspace may have installed them while this one waited.
            return _recalled(made) or _shared(request, made)
    except PermissionError:
        # A home folder that can't be written to, as on some build servers.
        return _unshared(request)


def _made(request: Request) -> Path | None:
    """Returns the file that names the folder of workspaces with the same lock and the same Python; None if they share none."""
    if os.environ.get("TFAOT_SHARE") == "0":
        return None
    try:
        folder = cache.usable(os.environ)
    except errors.BazelwError:
        return None
    text = Path(request.lock).read_text(encoding="utf-8")
    key = json.dumps([_RECIPE, text, request.package, request.programs, sys.version, platform.machine()])
    return folder / "packages" / f"{request.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def _recalled(made: Path) -> Outcome | None:
    """Returns what an earlier call has installed, if it is still there."""
    folder = made.parent / cache.read_json(made).get("folder", "missing")
    return Outcome(folder=str(folder), shared=True) if folder.is_dir() else None


def _unshared(request: Request) -> Outcome:
    _say(f"installing {request.title} for this workspace")
    return _installed(request, Path.cwd())


def _say(text: str) -> None:
    print(f"rules_tfaot: {text}", file=sys.stderr, flush=True)


def _shared(request: Request, made: Path) -> Outcome:
    for old in made.parent.glob(f"{made.stem}-*"):
        shutil.rmtree(old)  # what an interrupted call has left
    # A new name each time: Bazel doesn't look again, in the same build, for a folder that it has missed.
    folder = made.with_name(f"{made.stem}-{time.time_ns():x}")
    folder.mkdir()
    _say(f"installing {request.title} once, for all workspaces of this machine, below {made.parent}")
    outcome = _installed(request, folder)
    if outcome.failed:
        shutil.rmtree(folder)
        return outcome
    cache.write_json(made, {"folder": folder.name, "lock": request.lock, "python": sys.version})
    return replace(outcome, shared=True)


def _installed(request: Request, folder: Path) -> Outcome:
    target = folder / "site-packages"

    # --no-deps: the lock is complete, and tf-keras would pull in a second TensorFlow. The machine's own pip configuration applies,
    # except for settings that conflict with --target.
    options = [
        f"--target={target}",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--no-compile",
        "--no-input",
    ]
    options += ["--no-user", "--disable-pip-version-check", "--progress-bar=off", f"--requirement={request.lock}"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options],
        env={**os.environ, "PIP_REQUIRE_VIRTUALENV": "0", "PIP_ROOT_USER_ACTION": "ignore"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        return Outcome(failed="pip", said=done.stderr.strip()[-4000:])

    # Scripts begin with the path of this machine's interpreter, and nothing calls them. Lists of files have their hashes.
    scripts = target / "bin"
    for script in [*scripts.glob("*")]:
        if script.name not in request.programs:
            script.unlink()
    if scripts.exists() and not request.programs:
        scripts.rmdir()
    for record in target.glob("*.dist-info/RECORD"):
        lines = record.read_bytes().splitlines(keepends=True)
        record.write_bytes(b"".join(line for line in lines if not line.startswith(b"../../bin/")))

    # Without .pyc files, each import of TensorFlow compiles 5,000 files. The usual ones contain the source's modification time:
    # two machines would have different inputs to every action, and a copy of the files would count as stale.
    options = ["-q", "-j0", "-s", "site-packages", "--invalidation-mode=unchecked-hash"]
    done = subprocess.run(
        [sys.executable, "-m", "compileall", *options, "site-packages"],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    # A few files of other packages are templates that aren't valid Python, so the exit status says nothing.
    if not (target / request.package / "__pycache__").exists():
        return Outcome(failed="compileall", said=(done.stderr or done.stdout).strip()[-4000:])
    return Outcome(folder=str(folder))


def main() -> None:
    """Reads the request, and writes the outcome."""
    read = json.loads(sys.argv[1])
    outcome = install(Request(**{**read, "programs": tuple(read["programs"])}))
    Path("outcome.json").write_text(json.dumps(asdict(outcome)), encoding="utf-8")


if __name__ == "__main__":
    main()
