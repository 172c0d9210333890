"""CPU levels and the compiler's target."""

from __future__ import annotations

from collections.abc import Sequence

from tfaot.core.errors import TfaotError, listed

CPU_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
"""The levels of the x86-64 psABI. Models target a level, not a CPU and never `native`, because machines share caches."""

TARGET_TRIPLE = "x86_64-pc-linux"


def check_isa(isa: Sequence[str]) -> None:
    """Checks the CPU levels that a request names.

    Raises:
      TfaotError: a level is unknown, appears twice, or comes before a lower one; or the list is empty.
    """
    for level in isa:
        if level not in CPU_LEVELS:
            raise TfaotError(
                f"{level!r} isn't a CPU level that the rules can compile for",
                exists=listed(CPU_LEVELS),
                do="name one or more of these",
            )
    if not isa or list(isa) != [level for level in CPU_LEVELS if level in isa]:
        raise TfaotError(
            f"isa = {list(isa)} isn't a valid list of CPU levels",
            exists=listed(CPU_LEVELS),
            do="name at least one, each only once, lowest first",
        )
