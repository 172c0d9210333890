"""Runs a pass on a program that a test gives as thunks, and as the HLO of their kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from tests.xla.hlo import parsed
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import CompiledFunction, Thunk

_parsed = functools.lru_cache(1)(parsed)
NOTHING: Mapping[str, bytes] = {}


def changed(
    run: Callable[[Compiled], int], hlo: str, function: CompiledFunction, constants: Mapping[str, bytes] = NOTHING
) -> CompiledFunction:
    """Returns what a pass makes of a function.

    Args:
      run: the pass.
      hlo: the module of the function's kernels.
      function: the function.
      constants: contents of its constants, by symbol.
    """
    values = {symbol: memoryview(content) for symbol, content in constants.items()}
    compiled = Compiled({"x86-64-v3": function}, values, (_parsed(hlo),))
    run(compiled)
    return compiled.functions["x86-64-v3"]


def thunks(run: Callable[[Compiled], int], hlo: str, function: CompiledFunction) -> tuple[Thunk, ...]:
    """Returns the thunks that a pass makes of a function without constants."""
    return changed(run, hlo, function).thunks
