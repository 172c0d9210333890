"""The verify stage as a whole: computes what each call must return, and how exactly.

Every call is computed from TensorFlow's own variables at that point, so no call's error widens the tolerance of the next. For a
model that is trained, the outputs of a free run are also compared.
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot.core import caller, drawn, dtypes, safetensors
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import OWN_GRAPH, Manifest, Output
from tfaot.graph import convolutions
from tfaot.verify import program, replicas, rounded, sensitivity
from tfaot.verify.accepted import ANY, ranges
from tfaot.verify.calls import Call, OwnRun, calls_of, unset
from tfaot.verify.digest import FULL, Array, digest, reals
from tfaot.verify.measure import Measured, measure
from tfaot.verify.request import Request
from tfaot.verify.runner import Runner
from tfaot.verify.tolerance import Expected, digest_units, expected

VERIFIED = 0.9
"""An output or a variable is verified if a call's comparisons check this share of its values."""
SAME = 1e-4
"""Largest difference, relative to the largest value, between results that should differ only by the batch size."""


def compute_goldens(request: Request) -> TfaotError | None:
    """Writes the goldens in the order in which the generated test reads them.

    First, `initial/VARIABLE` for each variable: the CRC-32 of its initial value's bytes. Then, for each call:

    - `VARIABLE/before` for the restored variables, and the inputs. Unset variables are among them. Each is preceded by
      `drawn.DRAWN`. If a tensor is drawn and large, there is nothing else, and the test draws it.
    - For each output, then each variable that the entry point writes, the parts of the expected value that `digest` returns. Each
      part is followed by its tolerances, float32 with the same shape, and by its sight: two float64, by how many tolerances the
      median value moves, and how many values are checked. An output whose size is known only at run time is preceded by its
      true shape, int32.
    - If there is a free run, `OUTPUT/free` after each output, in the same form.

    Then, if weights have been rounded, `deviation` for each floating-point output: the largest change, relative to its
    largest value, and what the target tolerates. At the end, `unverified/size` and `unverified`: lines of text.

    Returns:
      What the test doesn't verify, as an error that hasn't been raised, or None.

    Raises:
      TfaotError: TensorFlow's results don't have the manifest's shapes, rows of a batch depend on each other, rounding decides
        the size of a result, or if it is strict, no comparison sees an output or a variable.
    """
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest)
    with open(request.graph, "rb") as file_:
        exported = convolutions.for_tensorflow(graph_pb2.GraphDef.FromString(file_.read()))
    initial = safetensors.read(request.variables)
    stored = dict(safetensors.read(request.golden_inputs))
    own_graph = stored.pop(OWN_GRAPH, None)
    graph = exported
    if own_graph is not None:  # what export does for open sizes must not be in what the test expects
        graph = convolutions.for_tensorflow(graph_pb2.GraphDef.FromString(own_graph.tobytes()))
    if manifest.replicas > 1:
        replicas.check(manifest)
        request = dataclasses.replace(request, unseen=replicas.patterns(request.unseen), program=None)
        initial = replicas.joined_values(manifest, initial)
        stored = replicas.joined_inputs(stored)
        manifest, graph = replicas.joined(manifest, graph)
    with Runner(manifest, graph) as runner:
        goldens = functools.partial(_goldens, request, manifest, exported, graph, runner, initial, stored)
        made: _Goldens | None = None
        tries = _several_calls(manifest, graph, stored)
        for calls in tries:
            try:
                other = goldens(calls)
            except (TfaotError, tf.errors.OpError):
                if made is None and calls is tries[-1]:
                    raise
                continue  # the model doesn't accept what is drawn
            made = other if made is None or len(other.unverified) < len(made.unverified) else made
            if not made.unverified:
                break
    assert made is not None
    blind = _blind(manifest, made.unverified) if made.unverified else None
    if blind is not None and request.strict:
        raise blind
    with open(request.out_goldens, "wb") as out:
        safetensors.write(out, made.tensors)
    return blind


def _several_calls(manifest: Manifest, graph: graph_pb2.GraphDef, stored: Mapping[str, Array]) -> list[Sequence[Call]]:
    """Returns calls with what is drawn for integers, the most telling first, and those last that every model accepts."""
    accepted = ranges(graph, manifest)
    several: list[dict[str, drawn.Range]] = [
        {name: span or other for name, span in accepted.items()} for other in (drawn.Range(0, ANY), drawn.BITS)
    ]
    different: list[list[Call]] = []
    for spans in (*several, {}):
        calls = calls_of(manifest, stored, spans)
        if all([call.draws for call in calls] != [call.draws for call in other] for other in different):
            different.append(calls)
    return [*different]


@dataclasses.dataclass(frozen=True)
class _Goldens:
    """The contents of the goldens."""

    tensors: dict[str, Array]
    unverified: tuple[str, ...]
    """The outputs and variables that no comparison sees, as messages show them."""


def _goldens(
    request: Request,
    manifest: Manifest,
    exported: graph_pb2.GraphDef,
    graph: graph_pb2.GraphDef,
    runner: Runner,
    initial: Mapping[str, Array],
    stored: Mapping[str, Array],
    calls: Sequence[Call],
) -> _Goldens:
    """Returns the contents of the goldens for these calls.

    TensorFlow runs `graph`: the exported one, or the model's own.

    Raises:
      TfaotError: an error of `compute_goldens`.
    """
    start = dict(initial) | unset(manifest)
    run = OwnRun(manifest, runner, start, calls)
    _check_shapes(manifest, run.results)
    _check_rows(manifest, runner, start, calls)
    measured = measure(manifest, graph, run)
    rows = _rows(calls, run, measured)
    if request.program is not None:
        program.check(request.program, dict(request.entry_points), manifest, run, rows)
    seen = sensitivity.Probe(manifest, graph, runner, start, run.before, run.results, calls, rows)
    sights = seen.sights()
    unverified = _unverified(calls, sights, seen.unseen_variables(), request.unseen)
    tensors = dict(_tensors(manifest, initial, calls, run, rows, sights, measured))
    for name, largest in rounded.deviations(manifest, exported, stored, start, calls, run.results).items():
        tensors[f"{name}/deviation"] = np.array((largest, manifest.weights.tolerance), np.float64)
    text = np.frombuffer("\n".join(unverified).encode(), np.uint8)
    tensors["unverified/size"] = np.array(text.size, np.uint64)
    tensors["unverified"] = text
    return _Goldens(tensors, unverified)


def _rows(calls: Sequence[Call], run: OwnRun, measured: Measured) -> list[list[dict[str, Expected]]]:
    """Returns what is expected of each call, result, and part."""
    return [
        [
            {
                part: expected(
                    digest(result)[part], exact[part], spreads[part], unit, dtype=tensor.dtype, noise=measured.noise
                )
                for part, unit in digest_units(result, tensor.dtype).items()
            }
            for tensor, result, exact, spreads in zip(call.tensors, results, exacts, all_spreads, strict=True)
        ]
        for call, results, exacts, all_spreads in zip(calls, run.results, measured.exact, measured.spreads, strict=True)
    ]


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
                do=f"remove {caller.option('batch_sizes')}, and fix the batch with {caller.option('dims')}; or compute each "
                "row independently (batch norm with "
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


def _unverified(
    calls: Sequence[Call], sights: sensitivity.Sights, unseen_variables: Sequence[str], patterns: Sequence[str]
) -> tuple[str, ...]:
    """Returns outputs and variables for which the test would pass whatever most of their values were."""
    best: dict[str, float] = {}
    names: dict[str, set[str]] = {name: {name} for name in unseen_variables}
    for call, results in zip(calls, sights, strict=True):
        for tensor, parts in zip(call.tensors, results, strict=True):
            shown = tensor.cpp_name if isinstance(tensor, Output) else tensor.name
            best[shown] = max(best.get(shown, 0.0), *(part.share() for part in parts.values()))
            names[shown] = {tensor.name, tensor.name.removesuffix(":0"), tensor.cpp_name}
    blind = {name: f"{name} ({most:.0%} of its values)" for name, most in best.items() if most < VERIFIED}
    blind |= {name: name for name in unseen_variables if name not in blind}
    return tuple(
        shown
        for name, shown in blind.items()
        if not any(fnmatchcase(alias, pattern) for pattern in patterns for alias in names[name])
    )


def _blind(manifest: Manifest, unverified: Sequence[str]) -> TfaotError:
    return TfaotError(
        f"{manifest.cpp_class}: the generated test is blind to {len(unverified)} output(s) or variable(s)",
        exists=listed(unverified)
        + ": neither other inputs nor other values of variables move them by more than rounding errors could",
        do=f"verify with inputs that matter ({caller.option('golden_inputs')}) and with weights that are trained or calibrated "
        f"({caller.option('weights')}); or accept it with {caller.setting('unseen', ['PATTERN'])}",
    )


def _tensors(
    manifest: Manifest,
    initial: Mapping[str, Array],
    calls: Sequence[Call],
    run: OwnRun,
    rows: Sequence[Sequence[Mapping[str, Expected]]],
    sights: sensitivity.Sights,
    measured: Measured,
) -> Iterator[tuple[str, Array]]:
    """Yields the contents of the goldens, in order."""
    draws = drawn.variables(manifest)
    for variable in manifest.variables:
        values = np.ascontiguousarray(initial[variable.name]).reshape(-1)
        yield f"initial/{variable.cpp_name}", np.array(zlib.crc32(values.view(np.uint8).data), np.uint32)
    for step, (call, results) in enumerate(zip(calls, run.results, strict=True)):
        for variable in call.restored:
            value = (run.initial | run.states[step])[variable.name]
            draw = draws.get(variable.name) if value is run.initial[variable.name] else None
            yield from _fed(f"step{step}/{variable.cpp_name}/before", value, draw)
        for input_, value, draw in zip(call.entry.inputs, call.inputs, call.draws, strict=True):
            yield from _fed(f"step{step}/{input_.cpp_name}", value, draw)
        for index, (tensor, result) in enumerate(zip(call.tensors, results, strict=True)):
            name = f"step{step}/{tensor.cpp_name}"
            if isinstance(tensor, Output) and tensor.size:
                yield f"{name}/shape", np.array(result.shape, np.int32)
            for part, row in rows[step][index].items():
                yield from _comparison(name + part, row, sights[step][index][part])
            if run.free and isinstance(tensor, Output) and not tensor.size:
                for part, unit in digest_units(result, tensor.dtype).items():
                    exact, spread = measured.free_exact[step][index][part], measured.free_spreads[step][index][part]
                    row = expected(digest(result)[part], exact, spread, unit, dtype=tensor.dtype, noise=measured.noise)
                    # Rounding in this call is part of a free run's error, and has been measured more often.
                    row = dataclasses.replace(
                        row, tolerance=np.maximum(row.tolerance, rows[step][index][part].tolerance)
                    )
                    free = sensitivity.Sight.of(row)
                    free.settle()  # by its size, because no probe makes a free run
                    yield from _comparison(f"{name}/free{part}", row, free)


def _fed(name: str, value: Array, draw: drawn.Draw | None) -> Iterator[tuple[str, Array]]:
    """Yields what the test feeds: how it is drawn, or the values."""
    if draw and value.size > FULL and not draw.low:
        yield name + drawn.DRAWN, np.array((draw.seed, draw.limit), np.uint64)
    else:
        yield name + drawn.DRAWN, np.zeros(2, np.uint64)
        yield name, value


def _comparison(name: str, row: Expected, seen: sensitivity.Sight) -> Iterator[tuple[str, Array]]:
    yield name, row.value
    yield f"{name}/tolerance", row.tolerance
    yield f"{name}/sees", seen.stored()
