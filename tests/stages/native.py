"""Objects of the C++ that models are linked with, as Bazel has compiled them. Tests link programs with them.

Without Bazel, `./bazelw build //tests/stages:native_objects` makes them first.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import tfaot

_ROOT = Path(tfaot.__file__).parents[2]
_PATHS = "tests/stages/native_objects.txt"
_KERNELS = "kernels_of_"
LEVELS = {"x86-64": "sse2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}
"""CPU levels, and the flag of a CPU that can run each."""


def runtime() -> tuple[str, ...]:
    """Returns the objects that every model is linked with, and those of the thread pool."""
    return tuple(path for path in _objects() if _KERNELS not in path)


def levels() -> list[str]:
    """Returns the CPU levels of `TFAOT_LEVELS`, or else all, that this machine can run."""
    wanted = os.environ.get("TFAOT_LEVELS", " ".join(LEVELS)).split()
    flags = Path("/proc/cpuinfo").read_text().split()
    return [level for level, flag in LEVELS.items() if level in wanted and flag in flags]


def kernels(cpu: str) -> tuple[str, ...]:
    """Returns the objects with all kernels of a CPU level: x86-64 or x86-64-v3."""
    return tuple(path for path in _objects() if f"/{_KERNELS}{cpu}/" in path)


def shim(folder: Path, level: str, text: str, sources: Sequence[str], *flags: str) -> ctypes.CDLL:
    """Returns a library of C functions that call a CPU level's kernels.

    Under Bazel, it links the objects that models are linked with. Otherwise, it compiles the sources, which may have changed.

    Args:
      folder: where to write it.
      level: the CPU level.
      text: C++ that includes `calls.h`, and defines the functions.
      sources: the files of `runtime/tfaot/kernels` that define what it calls.
      flags: flags for the C++ compiler.
    """
    built = "TEST_SRCDIR" in os.environ
    source, target = folder / f"{level}.cc", folder / f"{level}.so"
    source.write_text("".join(f'#include "tfaot/kernels/{name}"\n' for name in sources if not built) + text)
    options = [
        "-std=c++17",
        "-O1",
        "-ffp-contract=off",
        f"-march={level}",
        *flags,
        "-shared",
        "-fPIC",
        f"-I{_ROOT}/runtime",
    ]
    objects = kernels(level) if built else ()
    subprocess.check_call([os.environ.get("CXX", "c++"), *options, str(source), *objects, "-o", str(target)])
    return ctypes.CDLL(str(target))


def _objects() -> tuple[str, ...]:
    """Returns the objects that Bazel has compiled.

    Raises:
      FileNotFoundError: It hasn't.
    """
    for base in (_ROOT, _ROOT / "bazel-bin"):
        if (base / _PATHS).exists():
            return tuple(str(base / path) for path in (base / _PATHS).read_text().split())
    raise FileNotFoundError("no objects of //runtime: ./bazelw build //tests/stages:native_objects")
