"""The pass `row_fusion`: computes what belongs to the rows of arrays, such as a softmax or a layer norm, in one call.

XLA on CPUs has three or four kernels for a layer norm: the sum of each row, the squares of the differences from its mean, their
sum, and the results. Each of them reads the rows again, and computes again what comes before, such as the sum of a residual
connection. For rows of more than 32 values, a sum is two kernels or three. The pass merges them into one formula, which the
program applies to four rows at once (`runtime/tfaot/kernels/row_sweep.h`): a stage for each sum or extremum that needs another
one, and the results. Nothing in it is special to layer norms: softmaxes, their logarithms, RMS norms, and gradients that sum up
rows are formulas, too. What takes long is computed once, such as the exponentials of a softmax. The call also writes what
something else reads later, such as the sum for the next residual connection. The order of additions, and so rounding, differs
from XLA's. Threads share rows.

Applies to the arithmetic of `elementwise_fusion` in float32 along the last axis, outside of loops, with values for each column,
such as a bias, and for each row. A mask can be repeated for heads or queries, be booleans, or be computed from numbers of rows
and columns, as that of causal attention. A softmax or its logarithm can have any size. Its exponentials are multiplied by the
sum's reciprocal, so a result is rounded once more than a quotient. Other rows have 16 values or more. All have at least 4,096
values, or 500 if a row isn't a multiple of 8 values, or doesn't consist of up to 32 equal pieces of up to 32 values: for fewer,
XLA's kernels, which have constant sizes, are faster. A kernel alone has 65,536, or 8,192 with exponentials or tanh. Doesn't apply
if something else reads a value in between before the last kernel has run, or writes what a kernel reads.

The 25 layer norms of BERT-base take 360 instead of 613 µs, of 84,400 (469 instead of 671 at x86-64-v3), and a softmax of 1,536
rows of 128 37 instead of 231 (67 instead of 137). A log-softmax of 128 rows of 1,024 takes 68 instead of 214 µs (71 instead of
123; an Intel Xeon beside other work).
"""

from __future__ import annotations

from tfaot.compile.program.thunks.accesses import Body
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import Sweep
from tfaot.compile.program.values.formulas import SLOW, least_alone
from tfaot.compile.program.values.graph import Value, in_order, reduction
from tfaot.compile.program.values.reader import Reader, Unreadable
from tfaot.compile.program.values.stages import repeats

_SHORTEST = 16
"""The shortest rows that gain: a vector at the highest level."""

_LEAST = 4096
"""The least number of values for which several kernels become a call: with fewer, XLA's are faster."""
_LEAST_UNEVEN = 500
"""The same for rows that aren't whole vectors, or that `row_sums` can't cut: XLA's kernels take up to five times as long."""


def row_fusion(compiled: Compiled) -> int:
    """Merges kernels at all CPU levels, and returns the number of calls at the level with the most."""
    compiled.rewrite(lambda body: merge(compiled, body))
    return compiled.most(lambda thunk: isinstance(thunk, Sweep) and thunk.formula.of_rows)


def merge(compiled: Compiled, body: Body) -> None:
    """Merges kernels. The last one, which needs all the others, comes first."""
    for last in reversed(range(len(body.thunks))):
        root, kernel = body.graph.results[last], body.thunks[last]
        if root is not None and kernel and (shape := _shape(root)):
            chain = _Chain(body, root, shape)
            if call := chain.merged():
                members = [thunk for member in chain.members if (thunk := body.thunks[member])]
                for index in chain.members:
                    body.thunks[index] = None
                body.thunks[last] = call
                body.remove_unused(last, [place for thunk in members for place in thunk.uses().reads])
            elif chain.reason:
                compiled.missed(kernel, chain.reason)


def _shape(root: Value) -> tuple[int, int] | None:
    """Returns the numbers of rows and columns of a kernel, if it has rows and all agree about them."""
    shapes = set[tuple[int, int]]()
    for value in in_order(root.operands[0]):
        if value.op == "reduce" and (reduced := reduction(value)) and reduced.rows.count:
            shapes.add((reduced.rows.count // reduced.columns, reduced.columns))
        elif value.op == "broadcast" and value.operands[0].count not in (1, value.count):
            shapes.add((value.count // max(value.shape[-1], 1), value.shape[-1]))
    if not shapes:  # what an only row repeats is a single value
        reductions = (reduction(value.bare) for value in in_order(root.operands[0]) if value.count == 1)
        shapes |= {(1, reduction.columns) for reduction in reductions if reduction and reduction.columns == root.count}
    most = max((rows * columns for rows, columns in shapes), default=0)
    whole = [shape for shape in shapes if shape[0] * shape[1] == most]
    return whole[0] if len(whole) == 1 else None


class _Chain:
    """A kernel, and those before it that become a part of it."""

    def __init__(self, body: Body, root: Value, shape: tuple[int, int]) -> None:
        self._body, self._root, self._shape = body, root, shape
        self.members = {root.since}
        self.reason = ""
        """Why it stays as it is, if a formula can have it."""

    def merged(self) -> Sweep | None:
        """Returns what replaces the last kernel, and sets `members` to the kernels that are a part of it."""
        whole = self._call(self.members)
        tried = set[int]()
        # The nearest first: others are needed until what reads them is a part of this.
        while whole and (others := self._writers(whole[1]) - tried - self.members):
            tried.add(max(others))
            whole = self._grown({*self.members, max(others)}) or whole
        if whole is None:
            return None
        call, formula = whole
        if formula.adds_powers and len(self.members) > 1:
            return call
        if call.columns < _SHORTEST:
            return None
        pieces = any(call.columns % size == 0 for size in range(-(-call.columns // 32), 33))
        several = _LEAST if call.columns % 8 == 0 and pieces else _LEAST_UNEVEN
        least = several if len(self.members) > 1 else least_alone(formula.operations)
        if call.rows * call.columns >= least:
            return call
        if formula.reduces:
            self.reason = f"it has {call.rows} rows of {call.columns} values, fewer than {least} in all"
        return None

    def _grown(self, members: set[int]) -> tuple[Sweep, Reader] | None:
        """Adds to the members, with those before them that they need for this. Without success, adds none."""
        while True:
            before, newest = self.members, min(members - self.members)
            if whole := self._call(members):
                return whole
            self.members = before
            # What the kernel reads may be overwritten since, but not what another one computes this from.
            try:
                formula = Reader(self._root, self._shape, members)
            except Unreadable:
                return None
            others = {writer for writer in self._writers(formula) - members if writer < newest}
            if not others:
                return None
            members = {*members, max(others)}

    def _call(self, members: set[int]) -> tuple[Sweep, Reader] | None:
        """Returns the call for some members, which it sets with those that a reduction needs, if nothing prevents it."""
        try:
            formula = Reader(self._root, self._shape, members)
        except Unreadable:
            return None
        members = members | formula.through
        call = self._body.merged(members, formula.inputs, formula.call, max(members))
        if not isinstance(call, Sweep):
            self.reason = str(call)
            return None
        slow = any(_is_slow(self._body.graph.results[writer]) for writer in members - {self._root.since})
        if slow and repeats(call.formula):
            return None
        self.members = members
        return call, formula

    def _writers(self, formula: Reader) -> set[int]:
        """Returns the kernels whose results a formula reads, if they can be a part of the whole."""
        return {
            value.since
            for kind, value in formula.read
            if value.op == "stored"
            and value.type.dtype == "f32"
            and (kind == "row" or (kind == "array" and formula.reduces))
        }


def _is_slow(stored: Value | None) -> bool:
    """Returns whether a kernel computes anything for each value that takes as long as moving it."""
    return stored is not None and any(
        value.op in SLOW and value.count == stored.count for value in in_order(stored.operands[0])
    )
