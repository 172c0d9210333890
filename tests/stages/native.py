"""Objects of the C++ that models are linked with, as Bazel has compiled them. Tests link programs with them.

Without Bazel, `./bazelw build //tests/stages:native_objects` makes them first.
"""

from __future__ import annotations

from pathlib import Path

import tfaot

_ROOT = Path(tfaot.__file__).parents[2]
_PATHS = "tests/stages/native_objects.txt"
_KERNELS = "kernels_of_"


def runtime() -> tuple[str, ...]:
    """Returns the objects that every model is linked with, and those of the thread pool."""
    return tuple(path for path in _objects() if _KERNELS not in path)


def kernels(cpu: str) -> tuple[str, ...]:
    """Returns the objects with all kernels of a CPU level: x86-64 or x86-64-v3."""
    return tuple(path for path in _objects() if f"/{_KERNELS}{cpu}/" in path)


def _objects() -> tuple[str, ...]:
    """Returns the objects that Bazel has compiled.

    Raises:
      FileNotFoundError: It hasn't.
    """
    for base in (_ROOT, _ROOT / "bazel-bin"):
        if (base / _PATHS).exists():
            return tuple(str(base / path) for path in (base / _PATHS).read_text().split())
    raise FileNotFoundError("no objects of //runtime: ./bazelw build //tests/stages:native_objects")
