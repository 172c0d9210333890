"""Errors for a compiler that crashes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tfaot.core import caller, isolate, refusals
from tfaot.core.errors import TfaotError, listed
from tfaot.tfcompile.inputs import Inputs

_FAULTS = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV")
"""Signals that point to the compiler, not the machine, as the cause."""


def error(
    what: str, isa: Sequence[str], xla_flags: Sequence[str], find: Callable[[], list[str]] | None = None
) -> Callable[[str, str], TfaotError]:
    """Returns the argument `crashed` of `isolate.run_isolated` for a child that compiles.

    Args:
      what: names the model.
      isa: the CPU levels.
      xla_flags: the target's own flags.
      find: returns the `suspects` of the graph. Without it, the error names no node.
    """

    def crashed(how: str, log: str) -> TfaotError:
        if unknown := re.search(r"Unknown flags? in XLA_FLAGS: (.+)", log):
            return TfaotError(
                f"compiling {what}: XLA doesn't know {listed(unknown[1].split())}",
                exists=f"{caller.option('xla_flags')}: {listed(xla_flags)}",
                do=f"correct or remove it in {caller.the('xla_flags')}; the XLA in the TensorFlow wheel defines the flags",
            )
        last_words = "\n".join(isolate.last_words(log))
        if find is not None and how.endswith(_FAULTS) and (places := find()):
            return TfaotError(
                f"compiling {what} for {listed(isa)}: the compiler {how} on {places[0]}",
                details=last_words,
                exists="everything before it compiles"
                + (f"; the cause may also be {listed(places[1:])}" if places[1:] else ""),
                do="rewrite what the model computes there, and report the model: a compiler shouldn't crash",
            )
        return TfaotError(
            f"compiling {what} for {listed(isa)}: the compiler {how}",
            details=last_words,
            exists="XLA flags: " + listed(xla_flags),
            do="look for an unknown flag, or for an op that XLA can't compile, in the compiler's last lines above",
        )

    return crashed


def suspects(inputs: Inputs, dies: Callable[[Inputs, Any, Any], bool]) -> list[str]:
    """Returns the nodes that may have crashed the compiler, with their source lines, the likeliest first.

    Args:
      inputs: what crashed the compiler.
      dies: returns whether the same inputs with another graph and another config crash it too.
    """
    from tfaot.graph.calls import inline_calls
    from tfaot.graph.program import Program
    from tfaot.tfcompile import search

    sources = refusals.sources_of(inputs)
    graph, config = inputs.read_graph(), inputs.read_config()
    # A call's name says little, so try inlined calls first. With inlined calls, the graph may also compile.
    for prepare in (inline_calls, Program.prune):
        program = Program.of(graph, config)
        prepare(program)
        if blamed := search.find(program.graph, config, lambda part, asked: dies(inputs, part, asked)):
            nodes = program.nodes()
            sources |= {node: sources[origin] for node, origin in program.origins.items() if origin in sources}
            return [refusals.place("", nodes[name], sources) for name in (blamed.node, *blamed.others)]
    return []
