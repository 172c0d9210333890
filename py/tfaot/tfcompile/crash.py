"""What to say when the compiler dies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tfaot.core import isolate, refusals
from tfaot.core.errors import TfaotError, listed
from tfaot.tfcompile.inputs import Inputs

_FAULTS = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV")
"""Signals for which the compiler is to blame, and not the machine."""


def error(
    what: str, isa: Sequence[str], xla_flags: Sequence[str], find: Callable[[], list[str]] | None = None
) -> Callable[[str, str], TfaotError]:
    """Returns what makes the error for a child that died while it compiled, as `isolate.run_isolated` takes it.

    Args:
      what: names the model.
      isa: the CPU levels.
      xla_flags: the target's own.
      find: `suspects` of the graph; nobody is blamed without it.
    """

    def crashed(how: str, log: str) -> TfaotError:
        if unknown := re.search(r"Unknown flags? in XLA_FLAGS: (.+)", log):
            return TfaotError(
                f"compiling {what}: XLA does not know {listed(unknown[1].split())}",
                exists="xla_flags = " + listed(xla_flags),
                do="mend or remove it in the target's xla_flags; the flags are those of the TensorFlow wheel's XLA",
            )
        last_words = "\n".join(isolate.last_words(log))
        if find is not None and how.endswith(_FAULTS) and (places := find()):
            return TfaotError(
                f"compiling {what} for {listed(isa)}: the compiler {how}, by {places[0]}",
                details=last_words,
                exists="without it, what comes before it compiles"
                + (f"; or it is one of {listed(places[1:])}" if places[1:] else ""),
                do="write in another way what the model computes there, and report the model: a compiler should not die",
            )
        return TfaotError(
            f"compiling {what} for {listed(isa)}: the compiler {how}",
            details=last_words,
            exists="XLA flags: " + listed(xla_flags),
            do="look for an unknown flag or an op that XLA cannot take; the last lines above are the compiler's own",
        )

    return crashed


def suspects(given: Inputs, dies: Callable[[Inputs, Any, Any], bool]) -> list[str]:
    """The nodes that the compiler may have died of, with their source lines, the likeliest first; none if nobody knows.

    Args:
      given: what the compiler died of.
      dies: whether it dies of a part: of the same inputs with another graph and another config.
    """
    from tfaot.graph.calls import inline_calls
    from tfaot.graph.program import Program
    from tfaot.tfcompile import search

    sources = refusals.sources_of(given)
    graph, config = given.read_graph(), given.read_config()
    # A call's name says little; but what is in it may do no harm in the caller.
    for prepare in (inline_calls, Program.prune):
        program = Program.of(graph, config)
        prepare(program)
        if found := search.find(program.graph, config, lambda part, asked: dies(given, part, asked)):
            nodes = program.nodes()
            sources |= {node: sources[origin] for node, origin in program.origins.items() if origin in sources}
            return [refusals.place("", nodes[name], sources) for name in (found.node, *found.others)]
    return []
