"""The table of passes, and the code that runs them on the graph before the compiler and on its output."""

from __future__ import annotations

import dataclasses
import fnmatch
import traceback
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, TypeVar

from tensorflow.core.framework import graph_pb2

from tfaot.compile.passes.batch_norm import fold_batch_norm
from tfaot.compile.passes.channel_sums import channel_sums
from tfaot.compile.passes.conv1d import conv1d
from tfaot.compile.passes.erfc import erfc
from tfaot.compile.passes.gather_gradients import gather_gradients
from tfaot.compile.passes.head_products import head_products
from tfaot.compile.passes.hoist_projections import hoist_projections
from tfaot.compile.passes.loop_invariants import loop_invariants
from tfaot.compile.passes.max_pools import max_pools
from tfaot.compile.passes.pool_gradients import pool_gradients
from tfaot.compile.passes.residuals import residuals
from tfaot.compile.passes.row_sums import row_sums
from tfaot.compile.passes.short_products import short_products
from tfaot.compile.passes.unroll_loops import unroll_loops
from tfaot.compile.program.column_sums import column_sums
from tfaot.compile.program.compiled import Compiled
from tfaot.compile.program.dense_nets import dense_nets
from tfaot.compile.program.epilogues import epilogues
from tfaot.compile.program.filter_gradients import filter_gradients
from tfaot.compile.program.loops import pack_loops
from tfaot.compile.program.narrow import narrow
from tfaot.compile.program.prepack import prepack
from tfaot.compile.program.row_copies import row_copies
from tfaot.compile.program.row_products import row_products
from tfaot.compile.program.row_sweeps import row_sweeps
from tfaot.compile.program.softmax import softmax
from tfaot.compile.program.strided_products import strided_products
from tfaot.compile.program.sweeps import sweeps
from tfaot.compile.program.winograd import winograd
from tfaot.core.errors import TfaotError
from tfaot.graph.program import Program
from tfaot.tfcompile.inputs import program_for_xla

Subject = TypeVar("Subject", Program, Compiled)
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Pass(Generic[Subject]):
    """One rewrite, of a graph or of a compiled function."""

    name: str
    """Its name in attributes and in `NAME.passes.json`."""
    gain: str
    """One sentence: what it does, and why that is faster."""
    on: type[Subject]
    """What it rewrites: a `Program` is an entry point's graph, a `Compiled` is the compiler's output for it."""
    run: Callable[[Subject], int]
    """Rewrites the subject in place, and returns how many places it changed."""

    def rewrite(self, subject: Program | Compiled) -> int | None:
        """Runs the pass. Returns None if the pass is for another kind of subject."""
        return self.run(subject) if isinstance(subject, self.on) else None


PASSES: tuple[Pass[Program] | Pass[Compiled], ...] = (
    Pass(
        "conv1d",
        "A Conv1D reads its input in place, with any padding and dilation, instead of a padded copy in another order.",
        Program,
        conv1d,
    ),
    Pass(
        "fold_batch_norm",
        "Folds batch norm in inference mode into the kernel of the convolution or matrix product before it. Only one of its "
        "five operations on every value remains, an addition.",
        Program,
        fold_batch_norm,
    ),
    Pass(
        "loop_invariants",
        "Loops read variables before their first step. They pass weights, indices, and list items to their gradients directly, "
        "instead of through a stack with one copy per step.",
        Program,
        loop_invariants,
    ),
    Pass(
        "hoist_projections",
        "Multiplies a loop's inputs by their weight before the loop, for all steps at once, so that the weight is read only once.",
        Program,
        hoist_projections,
    ),
    Pass(
        "gather_gradients",
        "The steps of a gradient loop store the factors of a weight's gradient, and one product after the loop multiplies and "
        "adds them.",
        Program,
        gather_gradients,
    ),
    Pass(
        "unroll_loops",
        "Replaces loops of at most eight steps with straight-line code, without conditions, counters, and copies.",
        Program,
        unroll_loops,
    ),
    Pass(
        "erfc",
        "Computes the complementary error function, which GELU uses, with one quotient and one polynomial instead of two of each.",
        Program,
        erfc,
    ),
    Pass(
        "narrow",
        "Stores the weights that the target wants in bfloat16 or int8 in that dtype, so that a product of few rows reads half or "
        "a quarter of the bytes.",
        Compiled,
        narrow,
    ),
    Pass(
        "row_products",
        "Stores a constant matrix of at least 1 MB, which only products of one row read, in the order in which they read it, as "
        "one stream. Threads can share such a product.",
        Compiled,
        row_products,
    ),
    Pass(
        "dense_nets",
        "Computes small layers on one row, with bias and bounds, in one call, and keeps a layer's sums in registers, where XLA "
        "writes and reads them for every eight rows of the matrix.",
        Compiled,
        dense_nets,
    ),
    Pass(
        "epilogues",
        "The product or convolution also adds the bias and another value, moves a variable by a constant times its sums, as SGD "
        "does, and applies bounds, while the sums are still in a register or in the nearest cache.",
        Compiled,
        epilogues,
    ),
    Pass(
        "strided_products",
        "Products read and write rows at any distance, such as those of attention's heads, so that XLA's copies in another order "
        "are gone.",
        Compiled,
        strided_products,
    ),
    Pass(
        "softmax",
        "Computes the softmax of rows in one call instead of four to seven kernels. Threads can share it.",
        Compiled,
        softmax,
    ),
    Pass(
        "row_sweeps",
        "Computes sums of rows, and what needs them, such as a layer norm, in one call instead of three or four kernels. Threads "
        "can share it.",
        Compiled,
        row_sweeps,
    ),
    Pass(
        "column_sums",
        "Adds up rows of arrays in vectors, where XLA adds a value at a time. Threads can share the work.",
        Compiled,
        column_sums,
    ),
    Pass(
        "filter_gradients",
        "Computes the gradient of a convolution by its kernel from operands where they lie, instead of copies in another order.",
        Compiled,
        filter_gradients,
    ),
    Pass(
        "row_copies",
        "Copies short rows in another order as vectors, where XLA copies a value at a time. Threads can share the work.",
        Compiled,
        row_copies,
    ),
    Pass(
        "sweeps",
        "Computes kernels over the same arrays, such as the three that update a variable with Adam, in one pass over memory. "
        "Threads can share it.",
        Compiled,
        sweeps,
    ),
    Pass(
        "row_sums",
        "Computes sums and means along rows, as in layer norms, by adding vectors, inside the kernels around them.",
        Program,
        row_sums,
    ),
    Pass(
        "channel_sums",
        "Computes sums and means over the pixels of images, or over a whole batch as in batch norm, by adding vectors of channels.",
        Program,
        channel_sums,
    ),
    Pass(
        "short_products",
        "Multiplies a row by a constant matrix of few rows by adding these rows as vectors, instead of summing each column.",
        Program,
        short_products,
    ),
    Pass(
        "head_products",
        "Multiplies one query by a cache and by new rows apart, so that XLA doesn't copy the cache to add a row to it.",
        Program,
        head_products,
    ),
    Pass(
        "max_pools",
        "Computes max pooling as maxima of shifted images, a vector of channels at a time, instead of one value at a time.",
        Program,
        max_pools,
    ),
    Pass(
        "pool_gradients",
        "Computes gradients of max pooling as comparisons with the maximum, a vector of channels at a time, instead of one value "
        "at a time.",
        Program,
        pool_gradients,
    ),
    Pass(
        "residuals",
        "Computes the sum of a residual connection and its ReLU once, instead of once more in every block after it.",
        Program,
        residuals,
    ),
    Pass(
        "winograd",
        "Computes 3x3 convolutions with constant kernels by Winograd's minimal filtering, with 16 products instead of 36. They "
        "round differently.",
        Compiled,
        winograd,
    ),
    Pass(
        "prepack",
        "Stores constant weights in the order in which products and convolutions read them, as one stream.",
        Compiled,
        prepack,
    ),
    Pass(
        "pack_loops",
        "Packs weights that aren't constant once before a loop whose steps multiply by them, in the order in which products "
        "read them.",
        Compiled,
        pack_loops,
    ),
)
"""All passes, in order. Those on graphs run before the compiler, and those on compiled functions run after it."""


class PassError(Exception):
    """A pass raised an exception, which is the cause of this one. What the pass rewrites isn't usable any more."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the pass {name} raised an exception")
        self.name = name


@dataclasses.dataclass(frozen=True)
class Applied:
    """The result of passes on a graph."""

    graph: graph_pb2.GraphDef
    """The graph of one entry point."""
    places: dict[str, int | None]
    """What `run` returned."""
    lowered: int
    """How many nodes had to be rewritten in ops that XLA can compile, regardless of the passes."""
    origins: dict[str, str]
    """The exported graph's node that a new one replaces."""


def chosen(patterns: Sequence[str]) -> frozenset[str]:
    """Returns the names of the passes that a target wants.

    Args:
      patterns: globs for names. Later ones win: a glob after a `!` removes what the earlier ones chose.

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
                "passes = [" + ", ".join(f'"{each}"' for each in patterns) + f']: "{pattern}" matches no pass',
                exists=", ".join(names),
                do='use one of these names, or a pattern: ["*", "!NAME"] means all passes except NAME',
            )
        taken = taken | matching if glob == pattern else taken - matching
    return frozenset(taken)


def apply(graph: graph_pb2.GraphDef, config: Any, names: Collection[str]) -> Applied:
    """Applies passes to the part of a graph that an entry point needs.

    Args:
      graph: the graph of all entry points; stays unchanged.
      config: the `tf2xla.Config` of one entry point, with its batch size filled in.
      names: the names of the passes to apply. Those on compiled functions are ignored.
    """
    program, lowered = program_for_xla(graph, config)
    places = run(program, names)
    return Applied(program.graph, places, lowered, program.origins)


def run(subject: Program | Compiled, names: Collection[str]) -> dict[str, int | None]:
    """Runs the passes that rewrite this kind of subject, one after another.

    Args:
      subject: changed in place.
      names: the names of the passes that are on.

    Returns:
      How many places each pass changed, by its name; None for a pass that is off.

    Raises:
      PassError: a pass raised something other than an error for users.
    """
    places: dict[str, int | None] = {}
    for each in PASSES:
        if isinstance(subject, each.on):
            try:
                places[each.name] = each.rewrite(subject) if each.name in names else None
            except TfaotError:
                raise
            except Exception as error:
                raise PassError(each.name) from error
            if places[each.name] and isinstance(subject, Program):
                subject.prune()
    return places


def without_failures(
    work: Callable[[Collection[str]], Result], names: Collection[str], failed: dict[str, str]
) -> Result:
    """Runs passes without those that raise an exception.

    Args:
      work: runs the passes that it is given. It starts over at each call.
      names: the names of the passes that are on.
      failed: gets what each pass that raises said, by its name. Such passes are left out.
    """
    while True:
        try:
            return work([name for name in names if name not in failed])
        except PassError as error:
            failed[error.name] = "".join(traceback.format_exception_only(error.__cause__)).strip()
