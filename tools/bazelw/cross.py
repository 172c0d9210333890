"""A C++ compiler and an emulator for 64-bit ARM, in a private folder, without root and without touching the system.

The packages are those of the machine's own Debian release, from the mirror that its apt uses, checked as in `debian.py`.
Packages that the machine already has aren't downloaded. Compilers find all parts by paths relative to their own, so no
program needs a change; only libraries are found by way of LD_LIBRARY_PATH.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from . import cache, debian, lock, prefix
from .errors import BazelwError, WayFailed
from .progress import Progress, megabytes

# Increment when the folder's content changes. Earlier ones are then replaced.
_RECIPE = 1
_TRIPLE = "aarch64-linux-gnu"
_ROOTS = (f"g++-{_TRIPLE}", "qemu-user")
_TOOLS = ("ar", "gcc", "g++", "cpp", "gcov", "ld", "nm", "objcopy", "objdump", "strip")

# Programs in target tests that are for this machine, such as Python's, run as they are.
_RUN = """\
#!/bin/sh
# Runs a program for 64-bit ARM in the emulator, and any other directly. $TFAOT_QEMU_CPU names the CPU.
if [ "$(od -An -j18 -N1 -tx1 "$1" | tr -d ' ')" != b7 ] || [ "$(head -c 4 "$1" | tail -c 3)" != ELF ]; then
  exec "$@"
fi
export LD_LIBRARY_PATH={libraries}
exec {qemu} -cpu "${{TFAOT_QEMU_CPU:-max}}" -U LD_LIBRARY_PATH -L {root} "$@"
"""
_TOOL = """\
#!/bin/sh
export LD_LIBRARY_PATH={libraries}
exec {program}{flags} "$@"
"""


def main(environ: Mapping[str, str]) -> int:
    """Prints the folder, after setting it up, as JSON."""
    try:
        print(json.dumps(describe(set_up(cache.usable(environ), Progress()))))
    except BazelwError as failure:
        print(f"can't set up a C++ compiler for 64-bit ARM: {failure}", file=sys.stderr)
        return 1
    return 0


def set_up(folder: Path, progress: Progress) -> Path:
    """Returns the folder with the compiler and the emulator. Downloads them if no earlier call has.

    Raises BazelwError if this machine isn't Debian on x86-64, or its mirror lacks what is needed.
    """
    home = folder / "aarch64"
    final = home / f"cross-{_RECIPE}"
    if (final / "made.json").exists():
        return final
    suite = _suite()
    with lock.held(folder, progress):
        # Another call may have set it up while this one waited.
        if (final / "made.json").exists():
            return final
        started = time.monotonic()
        apt = debian.lists(home, progress, suite)
        available = apt.available()
        # What the machine has counts as installed, so apt chooses only what is missing.
        plan = apt.run(
            *(
                "apt-get",
                "-o",
                "Dir::State::status=/var/lib/dpkg/status",
                "--simulate",
                "--no-remove",
                "install",
                *_ROOTS,
            )
        )
        chosen = [available[name] for name in missing(plan) if name in available]
        debs = debian.download(apt, chosen, progress)
        part = home / "cross.part"
        prefix.remove(part)
        (part / "prefix").mkdir(parents=True)
        prefix.unpack(debs, part / "prefix", progress)
        _programs(part, final)
        size = sum(package.size for package in chosen)
        cache.write_json(
            part / "made.json",
            {"download_bytes": size, "packages": {package.name: package.version for package in chosen}},
        )
        for old in home.glob("cross-*"):
            prefix.remove(old)
        part.rename(final)
        prefix.remove(apt.home)
    progress.say(f"ready after {time.monotonic() - started:.0f} s: {len(chosen)} packages, {megabytes(size)}")
    return final


def missing(plan: str) -> list[str]:
    """Returns the packages that `apt-get --simulate install` would install, sorted."""
    return sorted({match[1] for match in re.finditer(r"^Inst ([^ :]+)", plan, re.MULTILINE)})


def describe(final: Path) -> dict[str, str | list[str]]:
    """Returns what Bazel's C++ toolchain needs: the programs' folder, and the folders of the compiler's own headers."""
    version = next((final / "prefix/usr/lib/gcc-cross" / _TRIPLE).iterdir())
    root = final / "prefix/usr" / _TRIPLE
    return {
        "bin": str(final / "bin"),
        "version": version.name,
        "includes": [str(version / "include"), str(version / "include-fixed"), str(root / "include")],
    }


def _suite() -> str:
    """Returns the code name of this machine's Debian.

    Raises WayFailed if this isn't Debian on x86-64.
    """
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    suite = release.get("VERSION_CODENAME", "")
    if release.get("ID") != "debian" or not suite or platform.machine() != "x86_64":
        raise WayFailed(
            f"this machine is {release.get('PRETTY_NAME', platform.system())} on {platform.machine()}, and the packages are "
            "for Debian on x86-64; declare a C++ toolchain of your own for the platform (docs/guide/arm.md)"
        )
    return suite


def _programs(part: Path, final: Path) -> None:
    """Writes scripts that run the programs in `part`, for the time when it has become `final`."""
    tree = final / "prefix"
    libraries = shlex.quote(str(tree / "usr/lib/x86_64-linux-gnu"))
    scripts = {
        "run": _RUN.format(
            libraries=libraries,
            qemu=shlex.quote(str(tree / "usr/bin/qemu-aarch64")),
            root=shlex.quote(str(tree / "usr" / _TRIPLE)),
        )
    }
    for tool in _TOOLS:
        program = f"usr/bin/{_TRIPLE}-{tool}"
        if not (part / "prefix" / program).exists():
            raise WayFailed(f"the Debian packages don't contain {program}")
        # Programs are compiled with the headers and libraries of the packages only, never with the machine's.
        flags = f" --sysroot={shlex.quote(str(tree))} -no-canonical-prefixes" if tool in ("gcc", "g++", "cpp") else ""
        scripts[tool] = _TOOL.format(libraries=libraries, program=shlex.quote(str(tree / program)), flags=flags)
    (part / "bin").mkdir()
    for name, text in scripts.items():
        path = part / "bin" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main(os.environ))
