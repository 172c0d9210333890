"""Finds the modules that XLA dumps while tfcompile runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from tfaot.core import caller
from tfaot.core.errors import TfaotError

FLAGS = ("--xla_dump_hlo_as_proto",)

BEFORE = "before_optimizations"
AFTER = "cpu_after_optimizations"

_ENDINGS = {
    BEFORE: (".before_optimizations.hlo.pb",),
    AFTER: (".cpu_after_optimizations.hlo.pb", ".cpu_aot_after_optimizations.hlo.pb"),  # the second in TensorFlow 2.20
}


def folder() -> str:
    """Returns the folder that this process's flags name. Later flags win, so it can be the user's."""
    flags = shlex.split(os.environ["XLA_FLAGS"])
    return [flag.partition("=")[2] for flag in flags if flag.startswith("--xla_dump_to=")][-1]


def state(path: str) -> Mapping[str, int]:
    """Returns when each file in a folder was written, to recognize dumps of earlier runs."""
    if not os.path.isdir(path):
        return {}
    return {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(path)}


def find(path: str, stage: str, *, what: str, tensorflow: str, earlier: Mapping[str, int] | None = None) -> str:
    """Returns the path of the one module, an `xla.HloProto`, that XLA dumped.

    Args:
      path: the folder.
      stage: `BEFORE` or `AFTER`.
      what: names the model.
      tensorflow: the version, for the error.
      earlier: the folder's `state` before.

    Raises:
      TfaotError: there isn't one.
    """
    written = {name for name, time in state(path).items() if (earlier or {}).get(name) != time}
    dumped = sorted(name for name in written if name.endswith(_ENDINGS[stage]))
    if len(dumped) != 1:
        endings = " or ".join("*" + ending for ending in _ENDINGS[stage])
        raise TfaotError(
            f"{what}: the compiler dumped {len(dumped)} modules {stage} instead of one",
            exists=f"looked for {endings}, as TensorFlow {tensorflow} should write",
            do=f"remove --xla_dump_… from {caller.the('xla_flags')}, except --xla_dump_to; if there is none, use a TensorFlow that "
            "docs/reference/tensorflow_versions.md names",
        )
    return os.path.join(path, dumped[0])
