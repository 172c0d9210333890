"""The verify stage: what TensorFlow itself computes, and how far it may be missed.

The exported graph, not the user's code, runs in a session on one thread, for several steps in a row. Then it runs again
with every floating input and every floating initial value moved by one unit in the last place, up or down at random.
How far that moves a result is how well the result is determined at all: a compiler that adds in another order has the
right to miss by as much. The tolerance of a tensor is
`FACTOR` times its largest movement, plus `FLOOR_ULP` units in the last place of its largest value.

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
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot import dtypes, safetensors
from tfaot.manifest import Manifest
from tfaot.session import session_config

v1 = tf.compat.v1

PERTURBATIONS = 8
"""How many times the run is repeated with moved inputs."""
FACTOR = 16.0
"""A maximum of a few samples underestimates the spread, and inputs moved once stand for rounding in every layer."""
UNDETERMINED = 1 / 128
"""Share of a variable's way."""
FLOOR_ULP = 8.0
"""Allowed even where nothing moved, in units in the last place of the tensor's largest value."""

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

    First `initial/VARIABLE` for each variable: the CRC-32 of its initial value's bytes. Then for each step the inputs,
    and for each output, then each written variable, what `kept` keeps of the expected value, each part followed by its
    tolerance, a float64.
    """
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest)
    graph = graph_pb2.GraphDef()
    with open(request.graph, "rb") as file_:
        graph.ParseFromString(file_.read())
    initial = safetensors.read(request.variables)
    inputs = safetensors.read(request.golden_inputs)
    entry = manifest.entry_points[0]
    steps = [
        [inputs[f"step{step}/{tensor.cpp_name}"] for tensor in entry.inputs] for step in range(manifest.golden_steps)
    ]
    run = Runner(manifest, graph)
    expected = [[kept(result) for result in results] for results in run(initial, steps)]
    moved = [[[0.0] * len(parts) for parts in results] for results in expected]
    for seed in range(PERTURBATIONS):
        rng = np.random.default_rng(seed)
        near = {name: one_ulp_away(value, rng) for name, value in initial.items()}
        for step, results in enumerate(run(near, [[one_ulp_away(v, rng) for v in values] for values in steps])):
            for index, result in enumerate(results):
                for part, value in enumerate(kept(result).values()):
                    want = list(expected[step][index].values())[part]
                    moved[step][index][part] = max(moved[step][index][part], movement(value, want))

    ways = travelled(manifest, initial, expected)

    tensors: dict[str, Array] = {
        f"initial/{variable.cpp_name}": np.array(
            zlib.crc32(np.ascontiguousarray(initial[variable.name]).reshape(-1).view(np.uint8).data), np.uint32
        )
        for variable in manifest.variables
    }
    for step, values in enumerate(steps):
        tensors |= {f"step{step}/{t.cpp_name}": value for t, value in zip(entry.inputs, values, strict=True)}
        for index, tensor in enumerate((*entry.outputs, *manifest.written)):
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


def reals(value: Array) -> Array:
    """The value itself; of complex numbers, pairs of reals along a new last dimension."""
    if value.dtype.kind != "c":
        return value
    return np.ascontiguousarray(value).reshape(-1).view(value.real.dtype).reshape((*value.shape, 2))


def travelled(
    manifest: Manifest, initial: Mapping[str, Array], expected: Sequence[Sequence[Mapping[str, Array]]]
) -> list[list[list[float]]]:
    """How far the steps up to each one took what is kept of each result: sums of largest changes; 0 for outputs."""
    outputs = len(manifest.entry_points[0].outputs)
    before = [kept(initial[variable.name]) for variable in manifest.written]
    ways = [[0.0] * len(parts) for parts in expected[0]]
    result = []
    for results in expected:
        for index, previous in enumerate(before, start=outputs):
            for part, suffix in enumerate(previous):
                ways[index][part] += movement(results[index][suffix], previous[suffix])
        before = [dict(parts) for parts in results[outputs:]]
        result.append([list(parts) for parts in ways])
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
    towards = np.where(rng.integers(0, 2, value.shape) == 0, -np.inf, np.inf).astype(value.dtype)
    return np.where((value == 0) | ~np.isfinite(value), value, np.nextafter(value, towards)).astype(value.dtype)


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
    """An exported graph in a session, from given initial values, for several steps."""

    def __init__(self, manifest: Manifest, graph: graph_pb2.GraphDef) -> None:
        self._manifest = manifest
        self._entry = manifest.entry_points[0]
        self._graph = tf.Graph()
        handles = {n.attr["shared_name"].s.decode(): n.name for n in graph.node if n.op == "VarHandleOp"}
        with self._graph.as_default():
            tf.import_graph_def(graph, name="")
            self._assign: dict[str, tuple[Any, Any]] = {}
            self._read: dict[str, Any] = {}
            for variable in manifest.variables:
                handle = self._graph.get_tensor_by_name(handles[variable.name] + ":0")
                value = v1.placeholder(variable.dtype, variable.shape)
                self._assign[variable.name] = (value, tf.raw_ops.AssignVariableOp(resource=handle, value=value))
                self._read[variable.name] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype)

    def __call__(self, initial: dict[str, Array], steps: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Returns for each step the outputs, then the written variables after it."""
        results: list[list[Array]] = []
        with v1.Session(graph=self._graph, config=session_config()) as session:
            for name, (placeholder, assign) in self._assign.items():
                session.run(assign, {placeholder: initial[name]})
            for values in steps:
                feeds = {tensor.name: value for tensor, value in zip(self._entry.inputs, values, strict=True)}
                outputs = session.run([tensor.name for tensor in self._entry.outputs], feeds)
                after = session.run([self._read[variable.name] for variable in self._manifest.written])
                results.append([np.asarray(value) for value in (*outputs, *after)])
        return results
