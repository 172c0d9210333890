"""Which passes there are, and applying them to a graph."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tensorflow.core.framework import graph_pb2

from tfaot.compile.passes.batch_norm import fold_batch_norm
from tfaot.compile.passes.erfc import erfc
from tfaot.compile.passes.gather_gradients import gather_gradients
from tfaot.compile.passes.hoist_projections import hoist_projections
from tfaot.compile.passes.loop_invariants import loop_invariants
from tfaot.compile.passes.row_sums import row_sums
from tfaot.compile.passes.short_products import short_products
from tfaot.compile.passes.unroll_loops import unroll_loops
from tfaot.core.errors import TfaotError, listed
from tfaot.graph.calls import inline_calls
from tfaot.graph.convolutions import for_xla
from tfaot.graph.program import Program


@dataclasses.dataclass(frozen=True)
class Pass:
    """One rewrite of a graph."""

    name: str
    """As attributes and `NAME.passes.json` call it."""
    gain: str
    """What it does, and why that is faster; one sentence."""
    run: Callable[[Program], int] | None
    """Rewrites the program, and returns how many places it changed; None for what is done to the compiled program."""


PASSES: tuple[Pass, ...] = (
    Pass(
        "fold_batch_norm",
        "Batch norm of inference goes into the kernel of the convolution or matrix product before it: "
        "a sum is left of its five operations on every value.",
        fold_batch_norm,
    ),
    Pass(
        "loop_invariants",
        "Loops read variables before their first step, and give their gradients weights, indices, and items of lists as they "
        "are instead of a stack with a copy a step.",
        loop_invariants,
    ),
    Pass(
        "hoist_projections",
        "A loop's inputs are multiplied by their weight for all steps before it, which reads the weight once.",
        hoist_projections,
    ),
    Pass(
        "gather_gradients",
        "A gradient loop's steps write down what they would multiply and add to a weight's gradient; one product after it does.",
        gather_gradients,
    ),
    Pass(
        "unroll_loops",
        "Loops of at most eight steps become straight code, without conditions, counters, and copies.",
        unroll_loops,
    ),
    Pass(
        "erfc",
        "The complement of the error function, which GELU has, is one quotient and one polynomial instead of two of each.",
        erfc,
    ),
    Pass(
        "epilogues",
        "Bias, bounds, and the sum with another value are formed by the product or convolution before them, on sums that are "
        "still in a register or the nearest cache.",
        None,
    ),
    Pass(
        "row_sums",
        "Sums and means along rows, which layer norms have, add up vectors, in the kernels around them.",
        row_sums,
    ),
    Pass(
        "short_products",
        "A row times a constant matrix of few rows adds up these rows, which are vectors, and not along each column.",
        short_products,
    ),
    Pass(
        "winograd",
        "3x3 convolutions with constant kernels form 16 products where 36 are otherwise, by Winograd's minimal filtering; "
        "they round differently.",
        None,
    ),
    Pass(
        "prepack",
        "Constant weights lie in the order in which products and convolutions read them, which then read one stream.",
        None,
    ),
)
"""All of them, in the order in which they run. Those without `run` are a part of the compile stage, after the compiler."""


@dataclasses.dataclass(frozen=True)
class Applied:
    """What passes made of a graph."""

    graph: graph_pb2.GraphDef
    """Of one entry point."""
    places: dict[str, int | None]
    """How many places each pass changed, by its name; None for one that is off."""
    lowered: int
    """How many nodes had to be written in other ops, which XLA can compile, whichever passes there are."""
    origins: dict[str, str]
    """The exported graph's node that a new one stands for."""


def chosen(patterns: Sequence[str]) -> frozenset[str]:
    """Returns the names of the passes that a target wants.

    Args:
      patterns: globs for names, later ones win; one after a `!` takes out again what those before it chose.

    Raises:
      TfaotError: a pattern matches no pass.
    """
    names = [each.name for each in PASSES]
    taken: set[str] = set()
    for pattern in patterns:
        glob = pattern.removeprefix("!")
        matching = {name for name in names if fnmatch.fnmatchcase(name, glob)}
        if not matching:
            raise TfaotError(
                "passes = [" + ", ".join(f'"{each}"' for each in patterns) + f']: "{pattern}" is no pass',
                exists=listed(names),
                do='name one of these, or a pattern: ["*", "!NAME"] is all but NAME',
            )
        taken = taken | matching if glob == pattern else taken - matching
    return frozenset(taken)


def apply(graph: graph_pb2.GraphDef, config: Any, names: Collection[str]) -> Applied:
    """Applies passes to the part of a graph that an entry point needs.

    Args:
      graph: of all entry points; stays as it is.
      config: `tf2xla.Config` of one of them, with the size of batch put in.
      names: of the passes to apply.
    """
    program = Program.of(graph, config)
    inline_calls(program)
    lowered = for_xla(program)
    program.prune()
    places: dict[str, int | None] = {}
    for each in PASSES:
        places[each.name] = None
        if each.name in names:
            places[each.name] = each.run(program) if each.run else 0
            if places[each.name]:
                program.prune()
    return Applied(program.graph, places, lowered, program.origins)
