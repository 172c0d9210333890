"""Measures how far rounding errors move each value: a reference, and runs with noise around it.

The runs go through one or two lanes at the same time. A lane has a session of its own, and makes its runs one after another. So
every run's noise is the same on every machine, whichever lane is faster.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot.core import caller
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import EntryPoint, Manifest
from tfaot.verify import noise
from tfaot.verify.calls import OwnRun
from tfaot.verify.digest import Array, digest
from tfaot.verify.runner import Runner, two_fit
from tfaot.verify.tolerance import EXCESS, EXCURSIONS, SAMPLES, Spread

LARGE = 1 << 30
"""A model with more bytes of variables isn't made precise, because that would double them."""
COARSE = 16.0
"""Noise in a graph that isn't precise, in rounding errors. It is well above the graph's own rounding errors."""
FREE = 8
"""The number of free runs with noise."""

Parts = list[list[dict[str, Array]]]
"""Kept parts, by their suffix, for each call and result."""
Spreads = list[list[dict[str, Spread]]]


@dataclasses.dataclass(frozen=True)
class Measured:
    """A reference, and spreads of runs with noise around it."""

    noise: float
    """How many times larger than rounding errors the noise was."""
    exact: Parts
    spreads: Spreads
    free_exact: Parts
    """Empty if no free run differs."""
    free_spreads: Spreads


@dataclasses.dataclass(frozen=True)
class _Sample:
    """A run with noise."""

    seed: int
    times: float
    """How many times as large as in other runs the noise is."""
    free: bool
    """Whether a free run continues from its first call."""


@dataclasses.dataclass(frozen=True)
class _Results:
    """Results of each call in a run."""

    restored: list[list[Array]]
    """Outputs and written variables. Each call starts from variables as TensorFlow has them."""
    free: list[list[Array]]
    """Outputs only. Each call starts from variables as the previous call left them. Empty if there is no free run."""


def measure(manifest: Manifest, graph: graph_pb2.GraphDef, run: OwnRun) -> Measured:
    """Measures on a precise graph, or if that is impossible, on the graph as it is.

    Raises:
      TfaotError: rounding decides the size of a result.
    """
    if sum(value.nbytes for value in run.initial.values()) <= LARGE:
        try:
            measured = _measure(manifest, graph, run, precise=True)
        except (noise.UnsupportedError, tf.errors.OpError, ValueError, TypeError):
            measured = None  # an operation without a kernel for float64, which wasn't known before
        if measured is not None:
            return measured
    coarse = _measure(manifest, graph, run, precise=False)
    assert coarse is not None
    return coarse


def _measure(manifest: Manifest, graph: graph_pb2.GraphDef, run: OwnRun, *, precise: bool) -> Measured | None:
    """Runs the reference, and runs with noise.

    Returns:
      None if the precise graph has no number where TensorFlow has one, because then it doesn't compute the same function.
    """
    noisy = noise.noisy(graph, precise=precise)
    samples = [
        _Sample(seed, EXCESS if precise and seed >= SAMPLES else 1.0, free=run.free and seed < FREE)
        for seed in range(SAMPLES + EXCURSIONS)
    ]
    with contextlib.ExitStack() as stack:

        def lane(graph: noise.Noisy) -> _Lane:
            return _Lane(manifest, stack.enter_context(Runner(manifest, graph)), run, precise=precise)

        lanes = [lane(noisy)]
        reference = lanes[0].run(free=run.free)
        exact, free_exact = _parts(reference.restored), _parts(reference.free)
        if precise and not _same_numbers(_parts(run.results), exact):
            return None
        measured = Measured(lanes[0].noise, exact, _spreads(exact), free_exact, _spreads(free_exact))
        if two_fit(graph, run.initial.values()):
            lanes.append(lane(noise.other_stream(noisy)))
        with ThreadPoolExecutor(len(lanes)) as pool:
            futures = [
                pool.submit(one.spreads, samples[index :: len(lanes)], measured) for index, one in enumerate(lanes)
            ]
        for future in futures:
            spreads, free_spreads = future.result()
            _merge(measured.spreads, spreads)
            _merge(measured.free_spreads, free_spreads)
        return measured


class _Lane:
    """Makes runs in a session of its own."""

    def __init__(self, manifest: Manifest, runner: Runner, run: OwnRun, *, precise: bool) -> None:
        self.noise = 1.0 if precise else COARSE
        self._manifest = manifest
        self._runner = runner
        self._run = run
        self._precise = precise
        written = {variable.name for variable in manifest.written}
        runner.amplitude(0.0)
        runner.assign((name, value) for name, value in run.initial.items() if name not in written)

    def run(self, sample: _Sample | None = None, *, free: bool) -> _Results:
        """Returns the results of all calls, with a sample's noise, or without any.

        The first call starts from the same variables in both kinds of run, so they share it.
        """
        amplitude = self.noise * sample.times if sample else 0.0
        rng = np.random.default_rng(sample.seed) if sample else None
        moves = amplitude if self._precise else 0.0

        def assign(values: Mapping[str, Array]) -> None:
            self._runner.assign((name, _moved(value, rng, moves)) for name, value in values.items())

        first, *others = self._run.calls
        initial = {variable.name: self._run.initial[variable.name] for variable in self._manifest.written}
        self._runner.amplitude(amplitude)
        assign(initial)
        restored = [self._runner.call(first.entry, first.inputs)]
        continued = []
        if free:
            continued = [restored[0][: len(first.entry.outputs)]]
            continued += [self._runner.outputs(call.entry, call.inputs) for call in others]
            if not self._manifest.written_by(first.entry):
                assign(initial)  # until a call has written variables, no call restores any
        for call, state in zip(others, self._run.states[1:], strict=True):
            assign(state)
            restored.append(self._runner.call(call.entry, call.inputs))
        return _Results(restored, continued)

    def spreads(self, samples: Sequence[_Sample], around: Measured) -> tuple[Spreads, Spreads]:
        """Makes runs. Returns their spreads around the reference: of those that restore variables, and of free runs."""
        spreads, free_spreads = _spreads(around.exact), _spreads(around.free_exact)
        for sample in samples:
            results = self.run(sample, free=sample.free)
            if sample.free:
                _add(free_spreads, _parts(results.free), around.free_exact)
            for call, restored, want in zip(self._run.calls, results.restored, self._run.results, strict=True):
                for index, (value, other) in enumerate(zip(restored, want, strict=True)):
                    if value.shape != other.shape and sample.times == 1:
                        raise _wavering(self._manifest, call.entry, index)
            _add(spreads, _parts(results.restored), around.exact, times=sample.times)
        return spreads, free_spreads


def _parts(results: list[list[Array]]) -> Parts:
    return [[digest(result) for result in of_call] for of_call in results]


def _spreads(exact: Parts) -> Spreads:
    return [[{part: Spread.of(value) for part, value in parts.items()} for parts in results] for results in exact]


def _add(spreads: Spreads, values: Parts, exact: Parts, *, times: float = 1.0) -> None:
    """Adds a run to the spreads, except results whose size differs from the reference's."""
    for call in range(len(spreads)):
        for result, parts in enumerate(spreads[call]):
            for part, spread in parts.items():
                value, reference = values[call][result][part], exact[call][result][part]
                if value.shape == reference.shape:
                    spread.add(value, reference, times=times)


def _merge(spreads: Spreads, others: Spreads) -> None:
    """Adds another lane's runs."""
    for results, other_results in zip(spreads, others, strict=True):
        for parts, other in zip(results, other_results, strict=True):
            for part, spread in parts.items():
                spread.merge(other[part])


def _same_numbers(wanted: list[list[dict[str, Array]]], exact: list[list[dict[str, Array]]]) -> bool:
    """Returns whether a reference has the shapes of TensorFlow's results, and numbers wherever they have numbers."""
    for want, have in zip(wanted, exact, strict=True):
        for a, b in zip(want, have, strict=True):
            for part, value in a.items():
                if part not in b or value.shape != b[part].shape:
                    return False
                if value.dtype.kind not in "biu" and np.any(
                    np.isfinite(value.astype(np.float64)) & ~np.isfinite(b[part].astype(np.float64))
                ):
                    return False
    return True


def _moved(value: Array, rng: np.random.Generator | None, size: float) -> Array:
    """Adds a relative error of one rounding to each value of a variable, as precisely as possible. Keeps whole numbers."""
    if rng is None or not size or value.dtype.kind in "biu":
        return value
    epsilon = float(ml_dtypes.finfo(value.dtype).eps) / 4
    if value.dtype.itemsize < 4:
        return value  # fed as bits
    error = rng.random(value.shape)
    error -= 0.5
    error *= size * epsilon * 12**0.5
    error += 1
    wide: Array = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
    wide *= np.where(wide == np.rint(wide), 1.0, error)
    return wide if value.dtype.kind == "f" else wide.astype(value.dtype)


def _wavering(manifest: Manifest, entry: EntryPoint, index: int) -> TfaotError:
    """Returns the error for an output whose size depends on rounding, so no size could be expected of a compiler."""
    return TfaotError(
        f"{manifest.cpp_class}: rounding errors change the size of {entry.outputs[index].name}",
        exists="the test inputs are at a decision boundary of the model, like 1.0 for tf.where(x >= 1.0)",
        do=f"give the model {caller.option('golden_inputs')} that are away from it",
    )
