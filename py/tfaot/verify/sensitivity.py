"""What each comparison sees of each value: how far it moves when the model gets other inputs or variables.

A value that nothing moves by more than rounding errors could isn't checked: the test would pass whatever the compiled code
computes.
Probes start with other inputs, and with variables changed by 1%. Where these don't show every value, others follow.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.core import fingerprint
from tfaot.core.manifest import Manifest, Tensor, Variable
from tfaot.verify.calls import Call
from tfaot.verify.digest import Array, digest
from tfaot.verify.runner import Runner, two_fit
from tfaot.verify.tolerance import Expected, distance

SEES = 4.0
"""A value is checked if a change moves it by at least this many tolerances."""
ENOUGH = 0.99
"""If a call's comparisons check this share of their values, no more probes follow."""
LIKE = 0.1
"""If probes show this share of a result's values, another one counts as checked if a change as large as theirs would show there."""
CHANGE = 0.01
ULPS = 16
"""In low-precision dtypes, 1% is a rounding error. There, the change is this many units in the last place."""
WORK = 1 << 29
"""How many values of variables to run a model with, to change read-only variables one by one. Above, some aren't judged."""

FEW = 8
"""With more candidates, two sessions share them."""


@dataclasses.dataclass
class Sight:
    """What one comparison sees of each value."""

    row: Expected
    moved: Array
    """The largest change of each value by any probe."""

    @classmethod
    def of(cls, row: Expected) -> Sight:
        """Returns the sight of no probes."""
        return cls(row, np.zeros(row.value.shape))

    def add(self, value: Array | None, base: Array) -> None:
        """Adds a probe's values of this part. None stands for values of another shape, of which all are visible."""
        if value is None:
            self.moved[...] = np.inf
            return
        off = distance(value, base)
        if value.dtype.kind not in "biu":
            # A probe that leaves no number shows little.
            off = np.where(np.isfinite(base.astype(np.float64)) & ~np.isfinite(value.astype(np.float64)), 0.0, off)
        np.maximum(self.moved, off, out=self.moved)

    def settle(self) -> None:
        """Counts values as checked that depend on nothing: a zero reveals any other value."""
        value = np.abs(self.row.value.astype(np.float64))
        self.moved = np.where(value == 0, np.inf, value)

    def in_tolerances(self) -> Array:
        """By how many tolerances each value has been moved."""
        return _in_tolerances(self.moved, self.row.tolerance)

    def checked(self) -> Array:
        """Whether each value is checked."""
        seen = self.in_tolerances() >= SEES
        if np.mean(seen) < LIKE if seen.size else True:
            return seen
        alike = np.median(self.moved[seen])
        both: Array = seen | (_in_tolerances(np.broadcast_to(alike, seen.shape), self.row.tolerance) >= SEES)
        return both

    def share(self) -> float:
        """The share of values that are checked; 1 if there are none."""
        return float(np.mean(self.checked())) if self.moved.size else 1.0

    def most(self) -> float:
        """By how many tolerances the value that moves most has been moved."""
        return float(np.max(self.in_tolerances(), initial=0.0)) if self.moved.size else np.inf

    def stored(self) -> Array:
        """Returns what goldens keep: the median in tolerances, and how many values are checked."""
        shares = self.in_tolerances()
        return np.array((np.median(shares) if shares.size else np.inf, np.count_nonzero(self.checked())), np.float64)


Sights = list[list[dict[str, Sight]]]
"""For each call, result, and part."""


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A read-only variable whose influence is judged."""

    name: str
    place: str
    """The variable's name, or the name of the constant that it became."""
    value: Array
    constant: bool


class Probe:
    """Runs TensorFlow with other inputs and variables."""

    def __init__(
        self,
        manifest: Manifest,
        graph: graph_pb2.GraphDef,
        runner: Runner,
        initial: Mapping[str, Array],
        states: Sequence[Mapping[str, Array]],
        results: Sequence[Sequence[Array]],
        calls: Sequence[Call],
        rows: Sequence[Sequence[Mapping[str, Expected]]],
    ) -> None:
        self._manifest = manifest
        self._runner = runner
        self._initial = initial
        self._states = states
        self._results = results
        self._calls = calls
        self._rows = rows
        self._graph = graph
        self._nodes = {node.name: node for node in graph.node}
        self._constants = dict(_constants(graph))
        self._large = sum(value.nbytes for value in initial.values()) > 1 << 30

    def sights(self) -> Sights:
        """Returns what is seen of each call, result, and part."""
        sights = []
        for step, call in enumerate(self._calls):
            seen = self._none(step)
            settled = self._settled(call)
            for index in settled:
                for sight in seen[index].values():
                    sight.settle()
            for tried, (inputs, variables, constants) in enumerate(self._probes(step)):
                if tried >= 2 and all(sight.share() >= ENOUGH for parts in seen for sight in parts.values()):
                    break
                self._look(seen, step, inputs, variables, constants)
            sights.append(seen)
        return sights

    def _none(self, step: int) -> list[dict[str, Sight]]:
        return [{part: Sight.of(row) for part, row in parts.items()} for parts in self._rows[step]]

    def _probes(self, step: int) -> Iterator[tuple[Sequence[Array], Mapping[str, Array], Mapping[str, Array]]]:
        """Yields inputs, and values that replace those of variables and constants, from small and usual changes to large ones."""
        inputs = self._calls[step].inputs

        def weights(how: Callable[[Array], Array]) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
            used = self._calls[step].entry.variables
            values = dict(self._initial) | dict(self._states[step])
            names = [] if self._large else [self._manifest.variables[use.variable].name for use in used]
            return {n: how(values[n]) for n in names}, {n: how(value) for n, value in self._constants.items()}

        rng = np.random.default_rng(step)
        yield self._other_inputs(step), {}, {}
        yield inputs, *weights(lambda value: changed(value, rng))
        for how in (_doubled, _negated, lambda value: _shuffled(value, rng), np.zeros_like, np.ones_like):
            yield [how(value) for value in inputs], {}, {}
        for how in (lambda value: changed(value, rng, 1.0), _negated):
            yield inputs, *weights(how)

    def _settled(self, call: Call) -> list[int]:
        """Returns results of a call that depend on no input or variable, such as a flag, or a counter that is set to 0."""
        writers = self._writers(output.name for output in call.entry.outputs)

        def settled(tensor: Tensor) -> bool:
            if not isinstance(tensor, Variable):
                return self._constant(tensor.name)
            nodes = writers.get(tensor.name, [])
            return bool(nodes) and all(
                node.op == "AssignVariableOp" and self._constant(node.input[1]) for node in nodes
            )

        return [index for index, tensor in enumerate(call.tensors) if settled(tensor)]

    def _constant(self, tensor: str) -> bool:
        """Returns whether a tensor of the main graph, `node:port`, depends on no input or variable."""
        reached = {tensor.partition(":")[0]}
        left = list(reached)
        while left:
            node = self._nodes[left.pop()]
            if node.op in ("Placeholder", "PlaceholderWithDefault", "VarHandleOp") or node.name in self._constants:
                return False
            new = {name.partition(":")[0] for name in node.input if not name.startswith("^")} - reached
            reached |= new
            left += new
        return True

    def _writers(self, fetched: Iterable[str]) -> dict[str, list[node_def_pb2.NodeDef]]:
        """Returns nodes that computing `fetched`, tensors of the main graph, runs, and that write a variable, by variable."""
        reached = {name.partition(":")[0] for name in fetched}
        left = list(reached)
        while left:
            new = {name.removeprefix("^").partition(":")[0] for name in self._nodes[left.pop()].input} - reached
            reached |= new
            left += new
        users: dict[str, list[node_def_pb2.NodeDef]] = {}
        for node in (self._nodes[name] for name in reached):
            if node.op != "ReadVariableOp":
                for name in {ref.partition(":")[0] for ref in node.input}:
                    if (handle := self._nodes.get(name)) is not None and handle.op == "VarHandleOp":
                        users.setdefault(handle.attr["shared_name"].s.decode(), []).append(node)
        return users

    def unseen_variables(self) -> list[str]:
        """Returns read-only variables, including frozen ones, whose influence is too small for any comparison to see.

        A variable that moves nothing, even if it changes by 100%, has no influence at all, such as the bias of an attention layer's
        keys. Whatever is computed with it is right.
        """
        largest: dict[str, int] = {}
        for step, (call, made) in enumerate(zip(self._calls, self._manifest.calls, strict=True)):
            best = largest.setdefault(call.entry.name, step)
            if made.batch > self._manifest.calls[best].batch:
                largest[call.entry.name] = step
        names: dict[str, list[str]] = {}
        for frozen in self._manifest.frozen:
            names.setdefault(frozen.sha256, []).append(frozen.name)
        candidates: list[_Candidate] = []
        for variable in self._manifest.variables:
            value = self._initial[variable.name]
            if not variable.written and not self._large and value.size:
                candidates.append(_Candidate(variable.name, variable.name, value, constant=False))
        for node, value in self._constants.items():
            if equal := names.get(fingerprint.of_value(value)):
                # The node's name tells variables with equal values, such as zeros, apart.
                candidates.append(_Candidate(equal[0] if len(equal) == 1 else node, node, value, constant=True))
        values = [*self._initial.values(), *self._constants.values()]
        most = max(FEW, WORK // max(1, sum(value.size for value in values)))
        if len(candidates) > most:
            candidates = [candidates[index * len(candidates) // most] for index in range(most)]
        steps = list(largest.values())

        def judge(runner: Runner, share: Iterable[_Candidate]) -> set[str]:
            return {candidate.name for candidate in share if 1.0 <= self._influence(runner, candidate, steps) < SEES}

        with contextlib.ExitStack() as stack:
            runners = [self._runner]
            if len(candidates) > FEW and two_fit(self._graph, self._initial.values()):
                runners.append(stack.enter_context(self._runner.twin()))
                runners[-1].assign(self._initial.items())
            pool = stack.enter_context(ThreadPoolExecutor(len(runners)))
            shares = [candidates[index :: len(runners)] for index in range(len(runners))]
            unseen = set().union(*pool.map(judge, runners, shares))
        return [candidate.name for candidate in candidates if candidate.name in unseen]

    def _influence(self, runner: Runner, candidate: _Candidate, steps: Sequence[int]) -> float:
        """Returns how far changes to a candidate move anything in these calls, in tolerances. Stops at `SEES`."""
        most = 0.0
        for how in (
            changed,
            lambda value, rng: changed(value, rng, 1.0),
            _shuffled,
            lambda value, rng: _negated(value),
        ):
            new = {candidate.place: how(candidate.value, np.random.default_rng(0))}
            variables, constants = ({}, new) if candidate.constant else (new, {})
            for step in steps:
                seen = self._none(step)
                self._look(seen, step, self._calls[step].inputs, variables, constants, runner=runner)
                most = max([most, *(sight.most() for parts in seen for sight in parts.values() if sight.moved.size)])
                if most >= SEES:
                    return most
        return most

    def _look(
        self,
        seen: list[dict[str, Sight]],
        step: int,
        inputs: Sequence[Array],
        variables: Mapping[str, Array],
        constants: Mapping[str, Array],
        *,
        runner: Runner | None = None,
    ) -> None:
        """Runs a call with changes, and records what moved."""
        runner = runner or self._runner
        call = self._calls[step]
        tensors = zip(call.entry.inputs, call.inputs, inputs, strict=True)
        # Other open sizes would give results of another shape.
        inputs = [value if call.entry.open_size(tensor) is None else own for tensor, own, value in tensors]
        # Except for the changed ones, all variables have their values from this call.
        written = {variable.name: self._initial[variable.name] for variable in self._manifest.written}
        runner.assign((written | dict(self._states[step]) | dict(variables)).items())
        try:
            # Every call feeds all constants, because the session looks at the whole graph for each new set of feeds.
            results = runner.call(self._calls[step].entry, inputs, self._constants | dict(constants))
        except tf.errors.OpError:
            return  # inputs that the model rejects, such as an index out of range
        finally:
            runner.assign((name, self._initial[name]) for name in variables)
        for parts, value, base in zip(seen, results, self._results[step], strict=True):
            same = value.shape == base.shape
            new, old = digest(value), digest(base)
            for part, sight in parts.items():
                sight.add(new[part] if same else None, old[part])

    def _other_inputs(self, step: int) -> list[Array]:
        """Returns inputs of another call of the same entry point, or if there is none, the same values in another order."""
        call = self._calls[step]
        for other in (*self._calls[step + 1 :], *self._calls[:step]):
            if other.entry.name == call.entry.name and any(
                a.shape == b.shape and not np.array_equal(a, b) for a, b in zip(call.inputs, other.inputs, strict=True)
            ):
                return [
                    b if a.shape == b.shape else changed(a, np.random.default_rng(step))
                    for a, b in zip(call.inputs, other.inputs, strict=True)
                ]
        rng = np.random.default_rng(step)
        return [_shuffled(value, rng) for value in call.inputs]


def changed(value: Array, rng: np.random.Generator, change: float = CHANGE) -> Array:
    """Changes values by 1%, or by `ULPS` if that is more, and zeros by 0.01. Adds 1 to integers."""
    moved: Array
    if value.dtype.kind in "biu":
        moved = ~value if value.dtype == bool else value + np.array(1, value.dtype)
        return moved
    change = max(change, ULPS * float(ml_dtypes.finfo(value.dtype).eps))
    signs = rng.integers(0, 2, value.shape) * 2 - 1
    wide = np.complex128 if value.dtype.kind == "c" else np.float64
    moved = np.where(value == 0, change * signs, value.astype(wide) * (1 + change * signs)).astype(value.dtype)
    return moved


def _shuffled(value: Array, rng: np.random.Generator) -> Array:
    """Returns the same values in another order. Also shrinks floats by up to half, so that sums change."""
    shuffled: Array = rng.permutation(value.reshape(-1)).reshape(value.shape)
    if value.dtype.kind in "biu":
        return shuffled
    smaller: Array = (shuffled * (1 - 0.5 * rng.random(value.shape))).astype(value.dtype)
    return smaller


def _doubled(value: Array) -> Array:
    """Returns values that are twice as large. Keeps integers."""
    doubled: Array = value if value.dtype.kind in "biu" else (value * 2).astype(value.dtype)
    return doubled


def _negated(value: Array) -> Array:
    """Returns the negative values, or integers in reverse: the largest for the smallest."""
    if not value.size:
        return value
    if value.dtype == bool:
        return ~value
    negative: Array = value.max() + value.min() - value if value.dtype.kind in "iu" else -value
    return negative.astype(value.dtype)


def _in_tolerances(moved: Array, tolerance: Array) -> Array:
    """Returns changes in tolerances; none where the tolerance is infinite."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = np.where(moved == 0, 0.0, moved / tolerance.astype(np.float64))
    result: Array = np.where(np.isnan(shares), 0.0, shares)
    return result


def _constants(graph: graph_pb2.GraphDef) -> Iterator[tuple[str, Array]]:
    """Yields constants of the main graph that could be weights: floats, with more than one value."""
    for node in graph.node:
        if node.op == "Const" and tf.as_dtype(node.attr["dtype"].type).is_floating:
            value = tf.make_ndarray(node.attr["value"].tensor)
            if value.size > 1:
                yield node.name, value
