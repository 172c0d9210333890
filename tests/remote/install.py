"""Installs BuildGrid, PostgreSQL, buildbox, and nginx below the cache folder, and changes nothing else on the machine.

BuildGrid comes from pip into a virtual environment. The other programs come from Debian's packages into a private
prefix, in the way in which bazelw gets Bazel (docs/internals/bazelw.md).
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.bazelw import debian, lock, packages, prefix
from tools.bazelw.progress import Progress, megabytes

_ROOTS = ("buildbox", "nginx", "postgresql-18", "patchelf")
# Dependencies of installation scripts, which don't run here, and data that the machine has.
_LEFT_OUT = re.compile("debconf|init-system-helpers|iproute2|locales|passwd|perl.*|postgresql-common|ssl-cert|tzdata")
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
# Increment when the layout of the installed folder changes.
_RECIPE = 1


@dataclass(frozen=True)
class Installed:
    """Folders with programs that are ready to run."""

    # Contains usr/bin and usr/sbin.
    prefix: Path
    # PostgreSQL's own programs.
    postgres: Path
    # Programs of the virtual environment.
    venv: Path


def install(folder: Path, progress: Progress) -> Installed:
    """Installs what is missing below `folder`, the cache folder. Without anything missing, it uses no network."""
    home = folder / "remote"
    text = f"{_RECIPE} {sys.version} {_ROOTS} {_LEFT_OUT.pattern} {_REQUIREMENTS.read_text(encoding='utf-8')}"
    final = home / f"programs-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    with lock.held(home, progress):
        if not final.exists():
            for old in home.glob("programs-*"):
                prefix.remove(old)
            _fill(home, final, progress)
    return Installed(final, prefix.one(final, "usr/lib/postgresql/*/bin/initdb").parent, home / "venv/bin")


def _fill(home: Path, final: Path, progress: Progress) -> None:
    apt = debian.lists(home, progress)
    chosen = packages.closure(apt.available(), _ROOTS, _LEFT_OUT)
    progress.say(f"installing {', '.join(_ROOTS[:-1])} below {home}: {megabytes(sum(one.size for one in chosen))}")
    part = home / "programs.part"
    prefix.remove(part)
    part.mkdir(parents=True)
    prefix.unpack(debian.download(apt, chosen, progress), part, progress)
    prefix.relink(part, final)
    programs = [part / "usr/sbin/nginx", *part.glob("usr/bin/buildbox-*"), part / "usr/bin/bwrap"]
    programs += [path for path in part.glob("usr/lib/postgresql/*/bin/*") if path.name in ("initdb", "postgres")]
    prefix.patch(part, final, programs, sorted(part.glob("usr/lib/postgresql/*/lib/*.so")))

    progress.say("installing BuildGrid with pip")
    # A virtual environment contains its own path, so it is made in place. The folder `final` says that it is whole.
    prefix.remove(home / "venv")
    prefix.run([sys.executable, "-m", "venv", str(home / "venv")])
    pip = [str(home / "venv/bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
    prefix.run([*pip, "--requirement", str(_REQUIREMENTS)])
    part.rename(final)
