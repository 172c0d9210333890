"""Which of the runtime's kernels a model calls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path


def called(sources: Iterable[str], passes: Iterable[str]) -> list[str]:
    """Returns those of the kernels' sources that a model's functions call, in the same order.

    Args:
      sources: `PACKAGE_KERNELS` of `runtime/package.bzl`.
      passes: paths of the functions' files `NAME.passes.json`.
    """
    wanted = {path for file in passes for path in json.loads(Path(file).read_text())["kernels"]}
    return [path for path in sources if path in wanted]
