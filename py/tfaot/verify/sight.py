"""What each comparison sees: how far expected values change, in tolerances, when the model gets other inputs or variables.

A comparison is blind if other inputs, and changes of variables by 1%, move values by no more than rounding errors could. It would
pass whatever the compiled code computes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.core import fingerprint
from tfaot.core.manifest import Manifest, Tensor, Variable
from tfaot.verify.calls import Call
from tfaot.verify.kept import Array, kept
from tfaot.verify.runner import Runner, two_fit
from tfaot.verify.tolerance import Expected, distance

SEES = 4.0
"""A comparison is blind if a change moves it by less than this many tolerances."""
CHANGE = 0.01
ULPS = 16
"""In low-precision dtypes, 1% is a rounding error. There, the change is this many units in the last place."""
SECONDS = 20.0
"""Time limit for changing read-only variables one by one. Variables for which no time is left aren't judged."""

FEW = 8
"""With more candidates, two sessions share them."""


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

    def sights(self) -> list[list[dict[str, float]]]:
        """Returns the largest change in tolerances, for each call, result, and part."""
        sights = []
        for step, call in enumerate(self._calls):
            best = [dict.fromkeys(parts, 0.0) for parts in self._rows[step]]
            self._look(best, step, self._other_inputs(step), {}, {})
            rng = np.random.default_rng(step)
            variables = {} if self._large else self._changed(step, rng)
            constants = {name: changed(value, rng) for name, value in self._constants.items()}
            self._look(best, step, call.inputs, variables, constants)
            for index in self._settled(call):
                best[index] = {part: _any_other(row) for part, row in self._rows[step][index].items()}
            sights.append(best)
        return sights

    def _settled(self, call: Call) -> list[int]:
        """Returns results of a call that depend on no input or variable, such as a flag, or a counter that is set to 0."""
        writers = self._writers(output.name for output in call.entry.outputs)

        def settled(tensor: Tensor) -> bool:
            if not isinstance(tensor, Variable):
                return self._constant(tensor.name)
            found = writers.get(tensor.name, [])
            return bool(found) and all(
                node.op == "AssignVariableOp" and self._constant(node.input[1]) for node in found
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
        found: dict[str, list[node_def_pb2.NodeDef]] = {}
        for node in (self._nodes[name] for name in reached):
            if node.op != "ReadVariableOp":
                for name in {ref.partition(":")[0] for ref in node.input}:
                    if (handle := self._nodes.get(name)) is not None and handle.op == "VarHandleOp":
                        found.setdefault(handle.attr["shared_name"].s.decode(), []).append(node)
        return found

    def unseen_variables(self) -> list[str]:
        """Returns read-only variables, including frozen ones, whose influence is too small for any comparison to see.

        A variable that moves nothing even when it changes by 100% has no influence at all, such as the bias of an attention layer's
        keys. Whatever is computed with it is right.
        """
        first: dict[str, int] = {}
        for step, call in enumerate(self._calls):
            first.setdefault(call.entry.name, step)
        names: dict[str, list[str]] = {}
        for each in self._manifest.frozen:
            names.setdefault(each.sha256, []).append(each.name)
        candidates: list[_Candidate] = []
        for variable in self._manifest.variables:
            value = self._initial[variable.name]
            if not variable.written and not self._large and value.size:
                candidates.append(_Candidate(variable.name, variable.name, value, constant=False))
        for node, value in self._constants.items():
            if found := names.get(fingerprint.of_value(value)):
                # The node's name tells variables with equal values, such as zeros, apart.
                candidates.append(_Candidate(found[0] if len(found) == 1 else node, node, value, constant=True))
        deadline = time.monotonic() + SECONDS
        steps = list(first.values())

        def judge(runner: Runner, share: Iterable[_Candidate]) -> set[str]:
            found = set()
            for each in share:
                if time.monotonic() > deadline:
                    break
                small = self._influence(runner, each, CHANGE, steps)
                if small < 1.0 and self._influence(runner, each, 1.0, steps) >= SEES:
                    found.add(each.name)
            return found

        with contextlib.ExitStack() as stack:
            runners = [self._runner]
            if len(candidates) > FEW and two_fit(self._graph, self._initial.values()):
                runners.append(stack.enter_context(self._runner.twin()))
                runners[-1].assign(self._initial.items())
            pool = stack.enter_context(ThreadPoolExecutor(len(runners)))
            shares = [candidates[index :: len(runners)] for index in range(len(runners))]
            unseen = set().union(*pool.map(judge, runners, shares))
        return [each.name for each in candidates if each.name in unseen]

    def _influence(self, runner: Runner, candidate: _Candidate, change: float, steps: Sequence[int]) -> float:
        """Returns how far a change to a candidate moves anything in these calls, in tolerances."""
        new = {candidate.place: changed(candidate.value, np.random.default_rng(0), change)}
        variables, constants = ({}, new) if candidate.constant else (new, {})
        most = 0.0
        for step in steps:
            best = [dict.fromkeys(parts, 0.0) for parts in self._rows[step]]
            self._look(best, step, self._calls[step].inputs, variables, constants, runner=runner)
            most = max([most, *(value for parts in best for value in parts.values())])
        return most

    def _look(
        self,
        best: list[dict[str, float]],
        step: int,
        inputs: Sequence[Array],
        variables: Mapping[str, Array],
        constants: Mapping[str, Array],
        *,
        runner: Runner | None = None,
    ) -> None:
        """Runs a call with changes, and records what moved."""
        runner = runner or self._runner
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
        for result, value in enumerate(results):
            parts = kept(value)
            for part, row in self._rows[step][result].items():
                base = kept(self._results[step][result])[part]
                if part not in parts or parts[part].shape != base.shape:
                    best[result] = dict.fromkeys(best[result], np.inf)  # a different size is always visible
                    break
                best[result][part] = max(best[result][part], _in_tolerances(parts[part], base, row.tolerance))

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

    def _changed(self, step: int, rng: np.random.Generator) -> dict[str, Array]:
        values = dict(self._initial) | dict(self._states[step])
        used = self._calls[step].entry.variables
        names = [self._manifest.variables[use.variable].name for use in used]
        return {name: changed(values[name], rng) for name in names}


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


def _any_other(row: Expected) -> float:
    """Returns the sight of a comparison with a constant: its largest value, in tolerances. A zero reveals any change."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(row.value == 0, np.inf, np.abs(row.value.astype(np.float64)) / row.tolerance)
    return float(np.nanmax(shares, initial=0.0)) if row.value.size else float("inf")


def _in_tolerances(value: Array, base: Array, tolerance: Array) -> float:
    """Returns the largest change, in tolerances."""
    if not value.size:
        return float("inf")  # nothing can be wrong
    moved = distance(value, base)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(moved == 0, 0.0, moved / tolerance)
    return float(np.max(np.where(np.isnan(shares), 0.0, shares), initial=0.0))


def _constants(graph: graph_pb2.GraphDef) -> Iterator[tuple[str, Array]]:
    """Yields constants of the main graph that could be weights: floats, with more than one value."""
    for node in graph.node:
        if node.op == "Const" and tf.as_dtype(node.attr["dtype"].type).is_floating:
            value = tf.make_ndarray(node.attr["value"].tensor)
            if value.size > 1:
                yield node.name, value
