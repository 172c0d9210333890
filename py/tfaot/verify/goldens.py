"""The verify stage as a whole: computes what each call must return, and how exactly.

Every call is computed from TensorFlow's own variables at that point, so no call's error widens the tolerance of the next. For a
model that is trained, the outputs of a free run are also compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot.core import drawn, dtypes, safetensors
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import EntryPoint, Manifest, Output, Tensor, Variable
from tfaot.graph import convolutions
from tfaot.verify import noise, program, sight
from tfaot.verify.kept import Array, kept, reals
from tfaot.verify.runner import Runner
from tfaot.verify.tolerance import EXCESS, EXCURSIONS, SAMPLES, Expected, Spread, expected, kept_units

LARGE = 1 << 30
"""A model with more bytes of variables isn't made precise, because that would double them."""
COARSE = 16.0
"""Noise in a graph that isn't precise, in rounding errors. It is well above the graph's own rounding errors."""
FREE = 8
"""The number of free runs with noise."""
SAME = 1e-4
"""Largest difference, relative to the largest value, between results that should differ only by the batch size."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What to compute, and where to write it."""

    manifest: str
    graph: str
    variables: str
    golden_inputs: str
    out_goldens: str
    unseen: tuple[str, ...] = ()
    """Patterns of outputs and variables that no comparison needs to see."""
    program: str | None = None
    """The program that the graph was converted from, if it was: StableHLO."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A call to verify."""

    entry: EntryPoint
    inputs: tuple[Array, ...]
    restored: tuple[Variable, ...]
    """Variables that are set to TensorFlow's values before the call."""
    tensors: tuple[Tensor, ...]
    """Its results: outputs, then written variables."""


def compute_goldens(request: Request) -> None:
    """Writes the goldens in the order in which the generated test reads them.

    First, `initial/VARIABLE` for each variable: the CRC-32 of its initial value's bytes. Then, for each call:

    - `VARIABLE/before` for the restored variables, and the inputs. Unset variables are among them.
    - For each output, then each variable that the entry point writes, the parts of the expected value that `kept` returns. Each
      part is followed by its tolerances, float32 with the same shape, and by its sight, a float64. An output whose size is known
      only at run time is preceded by its true shape, int32.
    - If there is a free run, `OUTPUT/free` after each output, in the same form.

    Raises:
      TfaotError: TensorFlow's results don't have the manifest's shapes, rows of a batch depend on each other, rounding decides
        the size of a result, or no comparison sees an output or a variable.
    """
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest)
    graph = graph_pb2.GraphDef()
    with open(request.graph, "rb") as file_:
        graph.ParseFromString(file_.read())
    graph = convolutions.for_tensorflow(graph)
    initial = safetensors.read(request.variables)
    stored = safetensors.read(request.golden_inputs)
    inputs = drawn.inputs(manifest, stored)
    with Runner(manifest, graph) as runner:
        goldens = functools.partial(_goldens, request, manifest, graph, runner, initial)
        tensors = goldens(_calls(manifest, inputs))
        if isinstance(tensors, TfaotError):
            # Zeros and ones suit every use of integers, but say little: the largest of five is nearly always one.
            wide = drawn.inputs(manifest, stored, wide=True)
            blind = tensors
            if any(not np.array_equal(value, wide[name]) for name, value in inputs.items() if value.dtype.kind in "iu"):
                with contextlib.suppress(TfaotError, tf.errors.OpError):
                    tensors = goldens(_calls(manifest, wide))
            if isinstance(tensors, TfaotError):
                raise blind
    with open(request.out_goldens, "wb") as out:
        safetensors.write(out, tensors)


def _calls(manifest: Manifest, inputs: Mapping[str, Array]) -> list[Call]:
    """Returns the calls to verify with these inputs."""
    return [
        Call(
            entry,
            tuple(inputs[f"step{step}/{tensor.cpp_name}"] for tensor in entry.inputs),
            restored,
            (*entry.outputs, *manifest.written_by(entry)),
        )
        for step, (entry, restored) in enumerate(
            zip((manifest.entry_point(call.entry_point) for call in manifest.calls), manifest.restored(), strict=True)
        )
    ]


def _goldens(
    request: Request,
    manifest: Manifest,
    graph: graph_pb2.GraphDef,
    runner: Runner,
    initial: Mapping[str, Array],
    calls: Sequence[Call],
) -> dict[str, Array] | TfaotError:
    """Returns the contents of the goldens for these calls, or an error if a comparison with them could not fail.

    Raises:
      TfaotError: any other error of `compute_goldens`.
    """
    start = dict(initial) | _set(calls)
    run = _Run(manifest, runner, start, calls)
    _check_shapes(manifest, run.results)
    _check_rows(manifest, runner, start, calls)
    measured = _measured(manifest, graph, run)
    rows = _rows(calls, run, measured)
    if request.program is not None:
        program.check(
            request.program,
            manifest.entry_points[0],
            [call.inputs for call in calls],
            rows,
            what=manifest.cpp_class,
        )
    seen = sight.Probe(manifest, graph, runner, start, run.before, run.results, calls, rows)
    sights = seen.sights()
    blind = _blind(manifest, calls, sights, seen.unseen_variables(), request.unseen)
    return blind or dict(_tensors(manifest, initial, calls, run, rows, sights, measured))


def _set(calls: Sequence[Call]) -> dict[str, Array]:
    """Returns values for the unset variables, like those of inputs. Zeros would hide many faults."""
    unset = {variable.name: variable for call in calls for variable in call.restored if variable.unset}
    rng = np.random.default_rng(drawn.SEED)
    return {name: drawn.values(variable.dtype, variable.shape, rng) for name, variable in unset.items()}


class _Run:
    """TensorFlow's own run: results of each call, and the variables before each."""

    def __init__(self, manifest: Manifest, runner: Runner, initial: dict[str, Array], calls: Sequence[Call]) -> None:
        self.initial = initial
        self.calls = calls
        self.free = manifest.free_run
        """Whether a free run differs from this run."""
        self.states: list[dict[str, Array]] = []
        """Values of the written variables that are restored before each call."""
        self.before: list[dict[str, Array]] = []
        """Values of all variables that each call uses and any call writes."""
        self.results: list[list[Array]] = []
        state = {variable.name: initial[variable.name] for variable in manifest.written}
        runner.assign(initial.items())
        for call in calls:
            self.states.append({variable.name: state[variable.name] for variable in call.restored if variable.written})
            used = (manifest.variables[use.variable].name for use in call.entry.variables)
            self.before.append({name: state[name] for name in used if name in state})
            results = runner.call(call.entry, call.inputs)
            self.results.append(results)
            for tensor, value in zip(call.tensors, results, strict=True):
                if isinstance(tensor, Variable):
                    state[tensor.name] = value


@dataclasses.dataclass
class _Measured:
    """Results of a reference and of runs with noise, for each call, result, and part."""

    noise: float
    """How many times larger than rounding errors the noise was."""
    exact: list[list[dict[str, Array]]]
    spreads: list[list[dict[str, Spread]]]
    free_exact: list[list[dict[str, Array]]]
    free_spreads: list[list[dict[str, Spread]]]


def _rows(calls: Sequence[Call], run: _Run, measured: _Measured) -> list[list[dict[str, Expected]]]:
    """Returns what is expected of each call, result, and part."""
    return [
        [
            {
                part: expected(
                    kept(result)[part], exact[part], spreads[part], unit, dtype=tensor.dtype, noise=measured.noise
                )
                for part, unit in kept_units(result, tensor.dtype).items()
            }
            for tensor, result, exact, spreads in zip(call.tensors, results, exacts, all_spreads, strict=True)
        ]
        for call, results, exacts, all_spreads in zip(calls, run.results, measured.exact, measured.spreads, strict=True)
    ]


def _measured(manifest: Manifest, graph: graph_pb2.GraphDef, run: _Run) -> _Measured:
    """Measures on a precise graph, or if that is impossible, on the graph as it is."""
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


def _measure(manifest: Manifest, graph: graph_pb2.GraphDef, run: _Run, *, precise: bool) -> _Measured | None:
    """Runs the reference, and runs with noise.

    Returns:
      None if the precise graph has no number where TensorFlow has one, because then it doesn't compute the same function.
    """
    written = {variable.name for variable in manifest.written}
    start = {name: value for name, value in run.initial.items() if name in written}
    amplitude = 1.0 if precise else COARSE

    def once(size: float, rng: np.random.Generator | None, *, free: bool) -> list[list[Array]]:
        runner.amplitude(size)
        runner.assign((name, _moved(value, rng, size if precise else 0.0)) for name, value in start.items())
        results = []
        for call, state in zip(run.calls, run.states, strict=True):
            if not free:
                runner.assign((name, _moved(value, rng, size if precise else 0.0)) for name, value in state.items())
            results.append(runner.call(call.entry, call.inputs))
        return results

    def parts(results: list[list[Array]]) -> list[list[dict[str, Array]]]:
        return [[kept(result) for result in each] for each in results]

    with Runner(manifest, graph, precise=precise) as runner:
        runner.amplitude(0.0)
        runner.assign((name, value) for name, value in run.initial.items() if name not in written)
        exact = parts(once(0.0, None, free=False))
        wanted = parts(run.results)
        if precise and not _same_numbers(wanted, exact):
            return None
        spreads = _spreads(exact)
        for seed in range(SAMPLES + EXCURSIONS):
            times = EXCESS if precise and seed >= SAMPLES else 1.0
            results = once(amplitude * times, np.random.default_rng(seed), free=False)
            for call, each, want in zip(run.calls, results, run.results, strict=True):
                for index, (value, other) in enumerate(zip(each, want, strict=True)):
                    if value.shape != other.shape and times == 1:
                        raise _wavering(manifest, call.entry, index)
            _add(spreads, parts(results), exact, times=times)
        measured = _Measured(amplitude, exact, spreads, [], [])
        if run.free:
            measured.free_exact = parts(once(0.0, None, free=True))
            measured.free_spreads = _spreads(measured.free_exact)
            for seed in range(FREE):
                free = once(amplitude, np.random.default_rng(seed), free=True)
                _add(measured.free_spreads, parts(free), measured.free_exact)
        return measured


def _spreads(exact: list[list[dict[str, Array]]]) -> list[list[dict[str, Spread]]]:
    return [[{part: Spread.of(value) for part, value in each.items()} for each in results] for results in exact]


def _add(
    spreads: list[list[dict[str, Spread]]],
    values: list[list[dict[str, Array]]],
    exact: list[list[dict[str, Array]]],
    *,
    times: float = 1.0,
) -> None:
    """Adds a run to the spreads, except results whose size differs from the reference's."""
    for call in range(len(spreads)):
        for result, each in enumerate(spreads[call]):
            for part, spread in each.items():
                value, reference = values[call][result][part], exact[call][result][part]
                if value.shape == reference.shape:
                    spread.add(value, reference, times=times)


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
    """Adds a relative error of one rounding to each value of a variable, as precisely as possible. Keeps integers."""
    if rng is None or not size or value.dtype.kind in "biu":
        return value
    epsilon = float(ml_dtypes.finfo(value.dtype).eps) / 4
    if value.dtype.itemsize < 4:
        return value  # fed as bits
    error = 1 + size * epsilon * 12**0.5 * (rng.random(value.shape) - 0.5)
    wide: Array = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64) * error
    return wide if value.dtype.kind == "f" else wide.astype(value.dtype)


def _wavering(manifest: Manifest, entry: EntryPoint, index: int) -> TfaotError:
    """Returns the error for an output whose size depends on rounding, so no size could be expected of a compiler."""
    return TfaotError(
        f"{manifest.cpp_class}: rounding errors change the size of {entry.outputs[index].name}",
        exists="the test inputs are at a decision boundary of the model, like 1.0 for tf.where(x >= 1.0)",
        do="define golden_fn(step, rng), and return inputs away from it",
    )


def _check_shapes(manifest: Manifest, results: Sequence[Sequence[Array]]) -> None:
    """Checks that TensorFlow's results have the size that the class has room for.

    Raises:
      TfaotError: the compiler assumes another size.
    """
    for call, values in zip(manifest.calls, results, strict=True):
        for output, value in zip(manifest.entry_point(call.entry_point).outputs, values, strict=False):
            wanted = (call.batch, *output.shape[1:]) if output.batched else output.shape
            if not output.size and value.shape != wanted:
                raise TfaotError(
                    f"{manifest.cpp_class}: {output.name} is {list(value.shape)} in TensorFlow, and {list(wanted)} "
                    "when compiled",
                    do="check what sets its size: the compiler trusts shapes that TensorFlow infers or that you set, for "
                    "example with set_shape",
                )


def _check_rows(manifest: Manifest, run: Runner, initial: Mapping[str, Array], calls: Sequence[Call]) -> None:
    """Checks that rows of a batch are independent. Otherwise, a batch that a class splits and pads has other results.

    Raises:
      TfaotError: a batch's results aren't those of its first row and of the other rows, run separately.
    """
    first: dict[str, Call] = {}
    for call, batch in zip(calls, (call.batch for call in manifest.calls), strict=True):
        if batch > 1:
            first.setdefault(call.entry.name, call)
    for call in first.values():
        entry = call.entry
        parts = [
            [value[rows] if tensor.batched else value for tensor, value in zip(entry.inputs, call.inputs, strict=True)]
            for rows in (slice(None, 1), slice(1, None))
        ]
        (whole,) = run(initial.items(), [(entry, call.inputs)])
        one, others = (run(initial.items(), [(entry, part)])[0] for part in parts)
        mixed = [
            output.name
            for output, together, *apart in zip(entry.outputs, whole, one, others, strict=True)
            if not _same(together, np.concatenate(apart))
        ]
        if mixed:
            raise TfaotError(
                f"{manifest.cpp_class}: rows of a batch affect each other's results: {len(mixed)} output(s) of {entry.name}",
                exists=listed(mixed),
                do="remove batch_sizes, and fix the batch with dims; or compute each row independently (batch norm with "
                "training=False, no mean over the batch)",
            )


def _same(together: Array, apart: Array) -> bool:
    """Returns whether results are the same except for rounding, which depends on the batch size."""
    if together.shape != apart.shape:
        return False
    if not dtypes.BY_NAME[str(together.dtype)].floating:
        return bool(np.mean(together != apart) <= 0.01 if together.size else True)  # a rounding error can flip one
    limit = max(SAME, 8 * float(ml_dtypes.finfo(together.dtype).eps))
    a, b = reals(together).astype(np.float64), reals(apart).astype(np.float64)
    largest = float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
    return bool(np.allclose(a, b, rtol=0, atol=limit * largest, equal_nan=True))


def _blind(
    manifest: Manifest,
    calls: Sequence[Call],
    sights: Sequence[Sequence[Mapping[str, float]]],
    unseen_variables: Sequence[str],
    patterns: Sequence[str],
) -> TfaotError | None:
    """Returns an error if the test would pass whatever value an output or a variable had."""
    best: dict[str, float] = {}
    names: dict[str, set[str]] = {name: {name} for name in unseen_variables}
    for call, results in zip(calls, sights, strict=True):
        for tensor, parts in zip(call.tensors, results, strict=True):
            shown = tensor.cpp_name if isinstance(tensor, Output) else tensor.name
            best[shown] = max(best.get(shown, 0.0), *parts.values())
            names[shown] = {tensor.name, tensor.name.removesuffix(":0"), tensor.cpp_name}
    blind = [name for name, most in best.items() if most < sight.SEES]
    blind += [name for name in unseen_variables if name not in blind]
    blind = [
        name for name in blind if not any(fnmatchcase(each, pattern) for pattern in patterns for each in names[name])
    ]
    if not blind:
        return None
    return TfaotError(
        f"{manifest.cpp_class}: the generated test is blind to {len(blind)} output(s) or variable(s)",
        exists=listed(blind)
        + ": neither other inputs nor variables changed by 1 % move anything by more than rounding errors could",
        do="verify with inputs that matter (define golden_fn) and with weights that are trained or calibrated (weights=); "
        'or accept it with unseen = ["pattern", ...] on the target',
    )


def _tensors(
    manifest: Manifest,
    initial: Mapping[str, Array],
    calls: Sequence[Call],
    run: _Run,
    rows: Sequence[Sequence[Mapping[str, Expected]]],
    sights: Sequence[Sequence[Mapping[str, float]]],
    measured: _Measured,
) -> Iterator[tuple[str, Array]]:
    """Yields the contents of the goldens, in order."""
    for variable in manifest.variables:
        values = np.ascontiguousarray(initial[variable.name]).reshape(-1)
        yield f"initial/{variable.cpp_name}", np.array(zlib.crc32(values.view(np.uint8).data), np.uint32)
    for step, (call, results) in enumerate(zip(calls, run.results, strict=True)):
        for variable in call.restored:
            yield f"step{step}/{variable.cpp_name}/before", (run.initial | run.states[step])[variable.name]
        for input_, given in zip(call.entry.inputs, call.inputs, strict=True):
            yield f"step{step}/{input_.cpp_name}", given
        for index, (tensor, result) in enumerate(zip(call.tensors, results, strict=True)):
            name = f"step{step}/{tensor.cpp_name}"
            if isinstance(tensor, Output) and tensor.size:
                yield f"{name}/shape", np.array(result.shape, np.int32)
            for part, row in rows[step][index].items():
                yield from _comparison(name + part, row, sights[step][index][part])
            if run.free and isinstance(tensor, Output) and not tensor.size:
                for part, unit in kept_units(result, tensor.dtype).items():
                    exact, spread = measured.free_exact[step][index][part], measured.free_spreads[step][index][part]
                    row = expected(kept(result)[part], exact, spread, unit, dtype=tensor.dtype, noise=measured.noise)
                    # Rounding in this call is part of a free run's error, and has been measured more often.
                    row = dataclasses.replace(
                        row, tolerance=np.maximum(row.tolerance, rows[step][index][part].tolerance)
                    )
                    yield from _comparison(f"{name}/free{part}", row, _free_sight(row))


def _free_sight(row: Expected) -> float:
    """Returns the sight of a free run's comparison: its largest value, in tolerances."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.abs(row.value.astype(np.float64)) / row.tolerance
    return float(np.max(shares, where=np.isfinite(shares), initial=0.0)) if row.tolerance.any() else np.inf


def _comparison(name: str, row: Expected, sees: float) -> Iterator[tuple[str, Array]]:
    yield name, row.value
    yield f"{name}/tolerance", row.tolerance
    yield f"{name}/sees", np.array(sees, np.float64)
