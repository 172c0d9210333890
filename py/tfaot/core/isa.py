"""CPU levels and the compiler's targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed

TARGET_TRIPLE = "x86_64-pc-linux"
_ARM_TRIPLE = "aarch64-none-linux-gnu"
# LLVM uses them for copies that transpose. On Zen 4, single loads and stores are faster (docs/internals/kernels.md).
_NO_GATHERS = "+prefer-no-gather,+prefer-no-scatter"


@dataclasses.dataclass(frozen=True)
class Target:
    """What LLVM calls a CPU level."""

    triple: str
    cpu: str
    features: str = ""
    """In addition to those of the CPU."""
    vectors: int = 0
    """Bits of the vectors that XLA's kernels of larger models use; 0 is XLA's own choice for the CPU."""
    vector_bytes: int = 16
    """The size of the vectors of the runtime's kernels: `kVectorBytes` in runtime/tfaot/kernels/lanes.h."""


TARGETS = {
    **{level: Target(TARGET_TRIPLE, level) for level in ("x86-64", "x86-64-v2")},
    "x86-64-v3": Target(TARGET_TRIPLE, "x86-64-v3", vector_bytes=32),
    "x86-64-v4": Target(TARGET_TRIPLE, "x86-64-v4", _NO_GATHERS, vectors=512, vector_bytes=64),
    "armv8-a": Target(_ARM_TRIPLE, "generic", "+neon"),
    "armv8.2-a+dotprod+fp16": Target(_ARM_TRIPLE, "generic", "+neon,+crc,+lse,+rdm,+fullfp16,+dotprod"),
}
"""Models target a level, not a CPU and never `native`, because machines share caches. Each triple's levels, lowest first."""

CPU_LEVELS = tuple(TARGETS)


def check_isa(isa: Sequence[str]) -> None:
    """Checks the CPU levels that a request names.

    Raises:
      TfaotError: a level is unknown, appears twice, comes before a lower one, or is for another architecture than the
        first; or the list is empty.
    """
    for level in isa:
        if level not in CPU_LEVELS:
            raise TfaotError(
                f"{level!r} isn't a CPU level that the rules can compile for",
                exists=listed(CPU_LEVELS),
                do="name one or more of these",
            )
    triples = {TARGETS[level].triple for level in isa}
    if len(triples) != 1 or list(isa) != [level for level in CPU_LEVELS if level in isa]:
        raise TfaotError(
            f"{caller.setting('cpu', isa)} isn't a valid list of CPU levels",
            exists=listed(CPU_LEVELS),
            do="name at least one, each only once, lowest first, all of one architecture",
        )
