"""The verify stage: what TensorFlow itself computes, and how far it may be missed.

The exported graph, not the user's code, runs in a session on one thread, for several steps in a row. Then it runs again
with every floating input and every floating value of a variable, before each step, moved by one unit in the last
place, up or down at random. How far that moves a result is how well the result is determined at all: a compiler that
adds in another order has the right to miss by as much. The tolerance of a tensor is `FACTOR` times its largest
movement, plus `FLOOR_ULP` units in the last place of its largest value.

Where a gradient is zero but for rounding, an optimizer that divides by its size, as Adam does, makes whole steps of it,
in a direction that rounding decides. Such values move seldom and far, and a few repetitions may miss it. So a variable
that moved by more than `UNDETERMINED` of the way that its steps took it holds some of them, and may be off by twice
that way: by having gone in the other direction.

A result of more than `FULL` values is not kept whole: weights would make goldens of hundreds of megabytes. Kept are
`SAMPLES` values, evenly spread, and for every `BLOCK` values in a row their sum with fixed, seemingly random signs,
each with a tolerance that is derived in the same way. Rounding errors in a block mostly cancel, so that its sum shows
any single value that is off by about eight times what would be tolerated of the value alone, at a thirty-second of
the space.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot import convolutions, dtypes, safetensors
from tfaot.errors import TfaotError, listed
from tfaot.manifest import EntryPoint, Manifest, Output, Tensor
from tfaot.session import session_config

v1 = tf.compat.v1

PERTURBATIONS = 16
"""How many times the run is repeated with moved inputs."""
LARGE, FEW = 1 << 30, 4
"""Beyond so many bytes of variables, moving them takes longer than all else: the run is repeated fewer times."""
FACTOR = 16.0
"""A maximum of a few samples underestimates the spread, and inputs moved once stand for rounding in every layer."""
UNDETERMINED = 1 / 128
"""Share of a variable's way."""
SAME = 1e-4
"""Largest difference, relative to the largest value, of results that are the same but for the size of the batch."""
FLOOR_ULP = 8.0
"""Allowed even where nothing moved, in units in the last place of the tensor's largest value."""

PART = 1 << 20
"""How many values are moved at a time: what is needed in between is several times as large as they are."""
FULL = 16384
"""Results of up to this many values are kept whole. tools/runtime/tfaot/verify.h has the same numbers."""
SAMPLES = 1024
BLOCK = 64

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Request:
    """What to compute, and where to write it."""

    manifest: str
    graph: str
    variables: str
    golden_inputs: str
    out_goldens: str


def compute_goldens(request: Request) -> None:
    """Writes the goldens in the order in which the generated test reads them.

    First `initial/VARIABLE` for each variable: the CRC-32 of its initial value's bytes. Then for each call the inputs; and
    for each output, then each variable that the entry point writes, what `kept` keeps of the expected value, each part
    followed by its tolerance, a float64. Before an output whose size is known only at run time comes its true shape, int32.
    """
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest)
    graph = graph_pb2.GraphDef()
    with open(request.graph, "rb") as file_:
        graph.ParseFromString(file_.read())
    graph = convolutions.for_tensorflow(graph)
    initial = safetensors.read(request.variables)
    inputs = safetensors.read(request.golden_inputs)
    calls = [
        (entry, [inputs[f"step{step}/{tensor.cpp_name}"] for tensor in entry.inputs])
        for step, entry in enumerate(manifest.entry_point(call.entry_point) for call in manifest.calls)
    ]
    run = Runner(manifest, graph)
    expected = [[kept(result) for result in results] for results in run(initial.items(), calls)]
    _check_shapes(manifest, run)
    _check_rows(manifest, run, initial, calls)
    moved = [[[0.0] * len(parts) for parts in results] for results in expected]
    large = sum(value.nbytes for value in initial.values()) > LARGE
    for seed in range(FEW if large else PERTURBATIONS):
        rng = np.random.default_rng(seed)
        # Made when they are fed, or there would be a second copy of all weights.
        near = ((name, one_ulp_away(value, rng)) for name, value in initial.items())
        near_calls = ((entry, [one_ulp_away(value, rng) for value in values]) for entry, values in calls)
        for step, results in enumerate(run(near, near_calls, rng)):
            for index, result in enumerate(results):
                if result.shape != run.shapes[step][index]:
                    raise _wavering(manifest, calls[step][0], index)
                for part, value in enumerate(kept(result).values()):
                    want = list(expected[step][index].values())[part]
                    moved[step][index][part] = max(moved[step][index][part], movement(value, want))

    ways = travelled(manifest, initial, [entry for entry, _ in calls], expected)

    tensors: dict[str, Array] = {
        f"initial/{variable.cpp_name}": np.array(
            zlib.crc32(np.ascontiguousarray(initial[variable.name]).reshape(-1).view(np.uint8).data), np.uint32
        )
        for variable in manifest.variables
    }
    for step, (entry, values) in enumerate(calls):
        tensors |= {f"step{step}/{t.cpp_name}": value for t, value in zip(entry.inputs, values, strict=True)}
        for index, tensor in enumerate((*entry.outputs, *manifest.written_by(entry))):
            if isinstance(tensor, Output) and tensor.size:
                tensors[f"step{step}/{tensor.cpp_name}/shape"] = np.array(run.shapes[step][index], np.int32)
            floating = dtypes.BY_NAME[tensor.dtype].floating
            first = next(iter(expected[step][index].values()))
            undetermined = any(
                move > UNDETERMINED * way for move, way in zip(moved[step][index], ways[step][index], strict=True)
            )
            for part, (suffix, value) in enumerate(expected[step][index].items()):
                move, way = moved[step][index][part], ways[step][index][part]
                if undetermined:
                    move = max(move, 2 * way / FACTOR)
                allowed = tolerance(first, move, block=suffix != "") if floating else 0.0
                tensors[f"step{step}/{tensor.cpp_name}{suffix}"] = value
                tensors[f"step{step}/{tensor.cpp_name}{suffix}/tolerance"] = np.array(allowed, np.float64)
    with open(request.out_goldens, "wb") as out:
        safetensors.write(out, tensors)


def _wavering(manifest: Manifest, entry: EntryPoint, index: int) -> TfaotError:
    """An output whose very size rounding decides: no size could be expected of a compiler."""
    return TfaotError(
        f"{manifest.cpp_class}: the size of {entry.outputs[index].name} changes when inputs move by a rounding error",
        exists="inputs that are verified lie where the model decides, as 1.0 does for tf.where(x >= 1.0)",
        do="define golden_fn(step, rng), and return inputs that lie off it",
    )


def _check_shapes(manifest: Manifest, run: Runner) -> None:
    """What TensorFlow computes must have the size for which the class has room.

    Raises:
      TfaotError: the compiler takes another size for granted.
    """
    for call, shapes in zip(manifest.calls, run.shapes, strict=True):
        for output, shape in zip(manifest.entry_point(call.entry_point).outputs, shapes, strict=False):
            wanted = (call.batch, *output.shape[1:]) if output.batched else output.shape
            if not output.size and shape != wanted:
                raise TfaotError(
                    f"{manifest.cpp_class}: {output.name} is {list(shape)} in TensorFlow, and {list(wanted)} when compiled",
                    do="look at what sets its size: the compiler takes shapes for granted that TensorFlow infers or is told, "
                    "as by set_shape",
                )


def _check_rows(
    manifest: Manifest, run: Runner, initial: Mapping[str, Array], calls: Sequence[tuple[EntryPoint, Sequence[Array]]]
) -> None:
    """Rows of a batch must not see each other: what a class splits and pads would differ from the whole.

    Raises:
      TfaotError: results of a batch are not those of its first row and of the others, each run alone.
    """
    first: dict[str, tuple[EntryPoint, Sequence[Array]]] = {}
    for (entry, values), call in zip(calls, manifest.calls, strict=True):
        if call.batch > 1:
            first.setdefault(entry.name, (entry, values))
    for entry, values in first.values():
        parts = [
            [value[rows] if tensor.batched else value for tensor, value in zip(entry.inputs, values, strict=True)]
            for rows in (slice(None, 1), slice(1, None))
        ]
        (whole,) = run(initial.items(), [(entry, values)])
        one, others = (run(initial.items(), [(entry, part)])[0] for part in parts)
        mixed = [
            output.name
            for output, together, *apart in zip(entry.outputs, whole, one, others, strict=True)
            if not _same(together, np.concatenate(apart))
        ]
        if mixed:
            raise TfaotError(
                f"{manifest.cpp_class}: rows of a batch change each other's results: {len(mixed)} output(s) of {entry.name}",
                exists=listed(mixed),
                do="leave batch_sizes out, and fix the batch with dims; or compute each row by itself (batch norm with "
                "training=False, no mean over the batch)",
            )


def _same(together: Array, apart: Array) -> bool:
    """Whether results are the same but for rounding, which differs with the size of a batch."""
    if together.shape != apart.shape:
        return False
    if not dtypes.BY_NAME[str(together.dtype)].floating:
        return bool(np.mean(together != apart) <= 0.01 if together.size else True)  # a rounding error may flip one
    limit = max(SAME, 8 * float(ml_dtypes.finfo(together.dtype).eps))
    a, b = reals(together).astype(np.float64), reals(apart).astype(np.float64)
    largest = float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
    return bool(np.allclose(a, b, rtol=0, atol=limit * largest, equal_nan=True))


def reals(value: Array) -> Array:
    """The value itself; of complex numbers, pairs of reals along a new last dimension."""
    if value.dtype.kind != "c":
        return value
    return np.ascontiguousarray(value).reshape(-1).view(value.real.dtype).reshape((*value.shape, 2))


def travelled(
    manifest: Manifest,
    initial: Mapping[str, Array],
    entries: Sequence[EntryPoint],
    expected: Sequence[Sequence[Mapping[str, Array]]],
) -> list[list[list[float]]]:
    """How far the calls up to each one took what is kept of each result: sums of largest changes; 0 for outputs."""
    before = {variable.name: dict(kept(initial[variable.name])) for variable in manifest.written}
    ways = {name: [0.0] * len(parts) for name, parts in before.items()}
    result = []
    for entry, results in zip(entries, expected, strict=True):
        outputs = len(entry.outputs)
        step = [[0.0] * len(parts) for parts in results[:outputs]]
        for variable, parts in zip(manifest.written_by(entry), results[outputs:], strict=True):
            way, previous = ways[variable.name], before[variable.name]
            for part, suffix in enumerate(previous):
                way[part] += movement(parts[suffix], previous[suffix])
            before[variable.name] = dict(parts)
            step.append(list(way))
        result.append(step)
    return result


def kept(value: Array) -> dict[str, Array]:
    """What goldens hold of a result, by suffix of its name: the value itself, or samples and block sums."""
    value = reals(value)
    if value.size <= FULL:
        return {"": value}
    flat = value.reshape(-1)
    return {"": flat[(np.arange(SAMPLES) * flat.size) // SAMPLES].copy(), "/blocks": block_sums(flat)}


def block_sums(flat: Array) -> Array:
    """Sums of `BLOCK` values in a row, float64; value i counts negatively if the top bit of i times 2^64/phi is set."""
    blocks = -(-flat.size // BLOCK)
    signs = np.where(
        (np.arange(flat.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(63), -1.0, 1.0
    )
    padded = np.zeros(blocks * BLOCK)
    np.multiply(flat, signs, out=padded[: flat.size])
    # One after another, as the generated test adds: where 64-bit integers round, the order shows.
    sums: Array = padded.reshape(blocks, BLOCK).cumsum(axis=1)[:, -1]
    return sums


def one_ulp_away(value: Array, rng: np.random.Generator) -> Array:
    """Moves every finite, nonzero floating value to a neighbour; zeros stay, for their neighbours are denormal."""
    if value.dtype.kind == "c":
        moved: Array = one_ulp_away(reals(value), rng).reshape(-1).view(value.dtype).reshape(value.shape)
        return moved
    if not dtypes.BY_NAME[str(value.dtype)].floating:
        return value
    flat = np.ascontiguousarray(value).reshape(-1)
    near = _aligned(flat.size, flat.dtype)
    for begin in range(0, flat.size, PART):
        part = flat[begin : begin + PART]
        towards = np.where(rng.integers(0, 2, part.size) == 0, -np.inf, np.inf).astype(value.dtype)
        near[begin : begin + PART] = np.where((part == 0) | ~np.isfinite(part), part, np.nextafter(part, towards))
    return near.reshape(value.shape)


def _aligned(count: int, dtype: np.dtype[Any]) -> Array:
    """Memory that a session takes as it is. What does not start at a multiple of 64 bytes it copies."""
    memory = np.empty(count * dtype.itemsize + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + count * dtype.itemsize].view(dtype)


def movement(result: Array, expected: Array) -> float:
    """The largest finite difference between two runs' results."""
    if not dtypes.BY_NAME[str(expected.dtype)].floating or not expected.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        difference = np.abs(result.astype(np.float64) - expected.astype(np.float64))
    return float(np.max(difference, where=np.isfinite(difference), initial=0.0))


def tolerance(expected: Array, moved: float, *, block: bool = False) -> float:
    """The largest absolute difference that the generated test accepts of a float, or of a sum over a block."""
    if not expected.size:
        return 0.0
    tiny = ml_dtypes.finfo(expected.dtype).smallest_normal
    largest = np.max(np.abs(expected), where=np.isfinite(expected), initial=tiny)
    floor = FLOOR_ULP * float(np.spacing(largest.astype(expected.dtype)))
    return FACTOR * moved + floor * (BLOCK**0.5 if block else 1.0)


class Runner:
    """An exported graph in a session, from given initial values, for several calls."""

    def __init__(self, manifest: Manifest, graph: graph_pb2.GraphDef) -> None:
        self._manifest = manifest
        self._variables = {variable.name: variable for variable in manifest.variables}
        self._graph = tf.Graph()
        self.shapes: list[list[tuple[int, ...]]] = []
        """True shapes of the outputs of each call of the first run."""
        handles = {n.attr["shared_name"].s.decode(): n.name for n in graph.node if n.op == "VarHandleOp"}
        with self._graph.as_default():
            tf.import_graph_def(graph, name="")
            self._assign: dict[str, tuple[Any, Any]] = {}
            self._read: dict[str, Any] = {}
            for variable in manifest.variables:
                handle = self._graph.get_tensor_by_name(handles[variable.name] + ":0")
                value = v1.placeholder(variable.stored, variable.stored_shape)
                self._assign[variable.name] = (value, tf.raw_ops.AssignVariableOp(resource=handle, value=value))
                self._read[variable.name] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype)

    def __call__(
        self,
        initial: Iterable[tuple[str, Array]],
        calls: Iterable[tuple[EntryPoint, Sequence[Array]]],
        rng: np.random.Generator | None = None,
    ) -> list[list[Array]]:
        """Returns for each call the outputs, then the variables that the entry point writes, after it.

        All variables must be given, by name; each value is let go before the next one is asked for. With `rng`, what a call
        wrote is moved by one unit in the last place as well: every step rounds anew.
        """
        results: list[list[Array]] = []
        shapes: list[list[tuple[int, ...]]] = []
        with v1.Session(graph=self._graph, config=session_config()) as session:
            for name, value in initial:
                placeholder, assign = self._assign[name]
                session.run(assign, {placeholder: to_stored(value, self._variables[name])})
                del value
            for entry, values in calls:
                feeds = {t.name: to_stored(value, t) for t, value in zip(entry.inputs, values, strict=True)}
                outputs = session.run([tensor.name for tensor in entry.outputs], feeds)
                written = self._manifest.written_by(entry)
                after = session.run([self._read[variable.name] for variable in written])
                tensors = (*entry.outputs, *written)
                result = [
                    from_stored(np.asarray(value), tensor)
                    for tensor, value in zip(tensors, (*outputs, *after), strict=True)
                ]
                shapes.append([value.shape for value in result])
                results.append(result)
                if rng is not None:
                    for variable, value in zip(written, result[len(entry.outputs) :], strict=True):
                        placeholder, assign = self._assign[variable.name]
                        session.run(assign, {placeholder: to_stored(one_ulp_away(value, rng), variable)})
        self.shapes = self.shapes or shapes
        return results


def to_stored(value: Array, tensor: Tensor) -> Array:
    """The bits of a value as the compiled graph takes them at its edge."""
    if tensor.stored == tensor.dtype:
        return value
    stored = dtypes.BY_NAME[tensor.stored].numpy()
    parts = dtypes.BY_NAME[tensor.dtype].parts
    return (
        np.ascontiguousarray(value).reshape(-1).view(stored).reshape((*value.shape, parts)[: None if parts > 1 else -1])
    )


def from_stored(value: Array, tensor: Tensor) -> Array:
    """The value whose bits the compiled graph gives at its edge."""
    if tensor.stored == tensor.dtype:
        return value
    shape = value.shape[:-1] if dtypes.BY_NAME[tensor.dtype].parts > 1 else value.shape
    return np.ascontiguousarray(value).reshape(-1).view(dtypes.BY_NAME[tensor.dtype].numpy()).reshape(shape)
