"""The table of passes, and the code that runs them on the graph before the compiler and on its output."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from tensorflow.core.framework import graph_pb2

from tfaot.compile.passes.batch_norm import fold_batch_norm
from tfaot.compile.passes.batch_weight_gradients import batch_weight_gradients
from tfaot.compile.passes.conv1d import conv1d
from tfaot.compile.passes.erfc import erfc
from tfaot.compile.passes.gemv_layout import gemv_layout
from tfaot.compile.passes.hoist_projections import hoist_projections
from tfaot.compile.passes.loop_invariants import loop_invariants
from tfaot.compile.passes.max_pools import max_pools
from tfaot.compile.passes.padding.padding import padding
from tfaot.compile.passes.pool_gradients import pool_gradients
from tfaot.compile.passes.prevent_duplication import prevent_duplication
from tfaot.compile.passes.reduce_as_matmul import reduce_as_matmul
from tfaot.compile.passes.row_sums import row_sums
from tfaot.compile.passes.split_kv_matmul import split_kv_matmul
from tfaot.compile.passes.unroll_loops import unroll_loops
from tfaot.compile.program.packing.gemv_packing import gemv_packing
from tfaot.compile.program.packing.loops import pack_loops
from tfaot.compile.program.packing.narrow import narrow
from tfaot.compile.program.packing.prepack import prepack
from tfaot.compile.program.packing.winograd import winograd
from tfaot.compile.program.passes.column_reduction import column_reduction
from tfaot.compile.program.passes.elementwise_fusion import elementwise_fusion
from tfaot.compile.program.passes.epilogues import epilogues
from tfaot.compile.program.passes.filter_gradients import filter_gradients
from tfaot.compile.program.passes.mlp_fusion import mlp_fusion
from tfaot.compile.program.passes.row_fusion import row_fusion
from tfaot.compile.program.passes.transpose_folding import transpose_folding
from tfaot.compile.program.passes.transposes import transposes
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.core.errors import TfaotError
from tfaot.graph.order import Order
from tfaot.graph.program import Program
from tfaot.tfcompile.inputs import program_for_xla

Subject = TypeVar("Subject", Program, Compiled)
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Pass(Generic[Subject]):
    """One rewrite, of a graph or of a compiled function."""

    name: str
    """Its name in attributes and in `NAME.passes.json`."""
    on: type[Subject]
    """What it rewrites: a `Program` is an entry point's graph, a `Compiled` is the compiler's output for it."""
    run: Callable[[Subject], int]
    """Rewrites the subject in place, and returns how many places it changed."""

    def rewrite(self, subject: Program | Compiled) -> int | None:
        """Runs the pass. Returns None if the pass is for another kind of subject."""
        return self.run(subject) if isinstance(subject, self.on) else None


PASSES: tuple[Pass[Program] | Pass[Compiled], ...] = (
    Pass("padding", Program, padding),
    Pass("conv1d", Program, conv1d),
    Pass("fold_batch_norm", Program, fold_batch_norm),
    Pass("loop_invariants", Program, loop_invariants),
    Pass("hoist_projections", Program, hoist_projections),
    Pass("batch_weight_gradients", Program, batch_weight_gradients),
    Pass("unroll_loops", Program, unroll_loops),
    Pass("erfc", Program, erfc),
    Pass("narrow", Compiled, narrow),
    Pass("gemv_packing", Compiled, gemv_packing),
    Pass("mlp_fusion", Compiled, mlp_fusion),
    Pass("epilogues", Compiled, epilogues),
    Pass("transpose_folding", Compiled, transpose_folding),
    Pass("row_fusion", Compiled, row_fusion),
    Pass("column_reduction", Compiled, column_reduction),
    Pass("filter_gradients", Compiled, filter_gradients),
    Pass("transposes", Compiled, transposes),
    Pass("elementwise_fusion", Compiled, elementwise_fusion),
    Pass("row_sums", Program, row_sums),
    Pass("reduce_as_matmul", Program, reduce_as_matmul),
    Pass("gemv_layout", Program, gemv_layout),
    Pass("split_kv_matmul", Program, split_kv_matmul),
    Pass("max_pools", Program, max_pools),
    Pass("pool_gradients", Program, pool_gradients),
    Pass("prevent_duplication", Program, prevent_duplication),
    Pass("winograd", Compiled, winograd),
    Pass("prepack", Compiled, prepack),
    Pass("pack_loops", Compiled, pack_loops),
)
"""All passes, in order. Those on graphs run before the compiler, and those on compiled functions run after it.

The docstring of a pass's module says what the pass does, when it applies, and what it gains. docs/reference/passes.md shows it.
"""


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
    missed: list[dict[str, str]]
    """Near misses, as in `NAME.passes.json`."""


def apply(graph: graph_pb2.GraphDef, config: Any, names: Collection[str]) -> Applied:
    """Applies passes to the part of a graph, which stays unchanged, that the entry point of a `tf2xla.Config` needs."""
    program, lowered = program_for_xla(graph, config)
    places = run(program, names)
    missed = [
        {"pass": name, "what": node, "origin": node, "reason": reason}
        for (name, node), reason in program.reasons.items()
    ]
    return Applied(program.graph, places, lowered, program.origins, missed)


def run(subject: Program | Compiled, names: Collection[str]) -> dict[str, int | None]:
    """Runs those of some passes that rewrite this kind of subject, which changes.

    Returns:
      How many places each pass changed, by its name; None for a pass that is off.

    Raises:
      PassError: a pass raised something other than an error for users.
    """
    places: dict[str, int | None] = {}
    order = Order(subject) if isinstance(subject, Program) else None
    for pass_ in PASSES:
        if isinstance(subject, pass_.on):
            subject.running = pass_.name
            try:
                places[pass_.name] = pass_.rewrite(subject) if pass_.name in names else None
            except TfaotError:
                raise
            except Exception as error:
                raise PassError(pass_.name) from error
            if places[pass_.name] and isinstance(subject, Program) and order:
                order.keep()
                subject.prune()
    return places


def without_failures(
    work: Callable[[Collection[str]], Result], names: Collection[str], failed: dict[str, str]
) -> Result:
    """Runs passes without those that raise an exception, of which `failed` then has what they said."""
    while True:
        try:
            return work([name for name in names if name not in failed])
        except PassError as error:
            failed[error.name] = "".join(traceback.format_exception_only(error.__cause__)).strip()
