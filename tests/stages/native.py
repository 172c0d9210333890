"""Objects of the C++ that models are linked with, as Bazel has compiled them. Tests link programs with them.

Without Bazel, `./bazelw build //tests/stages:native_objects` makes them first.
"""

from __future__ import annotations

from pathlib import Path

import tfaot

_ROOT = Path(tfaot.__file__).parents[2]
_KERNELS = "kernels_of_"


def runtime() -> tuple[str, ...]:
    """Returns the objects that every model is linked with, and those of the thread pool."""
    return tuple(path for path in _objects("*") if _KERNELS not in path)


def kernels(cpu: str) -> tuple[str, ...]:
    """Returns the objects with all kernels of a CPU level: x86-64 or x86-64-v3."""
    return _objects(_KERNELS + cpu)


def _objects(library: str) -> tuple[str, ...]:
    """Returns the objects of a library in `runtime/BUILD`, whose name can be a pattern.

    Raises:
      FileNotFoundError: Bazel hasn't compiled them.
    """
    for base in (_ROOT, _ROOT / "bazel-bin"):
        found = base.glob(f"runtime/_objs/{library}/*.pic.o")
        # The same sources, with symbols that shared libraries export.
        if once := sorted(str(path) for path in found if path.parent.suffix != ".visible"):
            return tuple(once)
    raise FileNotFoundError(f"no objects of //runtime:{library}: ./bazelw build //tests/stages:native_objects")
