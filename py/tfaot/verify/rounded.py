"""Measures what rounded weights change: TensorFlow's outputs with them, beside those with the model's own weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2

from tfaot.core import dtypes
from tfaot.core.manifest import UNROUNDED, Manifest, Output
from tfaot.graph.constants import with_values
from tfaot.verify.calls import Call, OwnRun
from tfaot.verify.digest import Array, reals
from tfaot.verify.runner import Runner


def deviations(
    manifest: Manifest,
    graph: graph_pb2.GraphDef,
    stored: Mapping[str, Array],
    start: dict[str, Array],
    calls: Sequence[Call],
    results: Sequence[Sequence[Array]],
) -> dict[str, float]:
    """Returns the largest difference of each floating-point output, relative to the output's largest value.

    Args:
      manifest: the model's manifest.
      graph: the exported graph, with rounded weights.
      stored: the golden inputs, which have the weights before rounding.
      start: initial values of the variables.
      calls: the calls to verify.
      results: TensorFlow's results with rounded weights, for each call.

    Returns:
      The largest difference in any call, by `ENTRY_POINT/OUTPUT`. Empty if no weights are rounded.
    """
    if not manifest.weights.names:
        return {}
    own = with_values(graph, {name: stored[UNROUNDED + name] for name in manifest.weights.names})
    with Runner(manifest, own) as runner:
        exact = OwnRun(manifest, runner, start, calls).results
    largest: dict[str, float] = {}
    for call, rounded_results, exact_results in zip(calls, results, exact, strict=True):
        for tensor, rounded, unrounded in zip(call.tensors, rounded_results, exact_results, strict=True):
            if isinstance(tensor, Output) and dtypes.BY_NAME[tensor.dtype].floating:
                name = f"{call.entry.name}/{tensor.cpp_name}"
                largest[name] = max(largest.get(name, 0.0), _difference(rounded, unrounded))
    return largest


def _difference(rounded: Array, exact: Array) -> float:
    """Returns the largest difference relative to the largest value; infinity if results can't be compared."""
    if rounded.shape != exact.shape:
        return float("inf")
    a, b = reals(rounded).astype(np.float64), reals(exact).astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        difference = float(np.max(np.abs(a - b), where=~same, initial=0.0))
    largest = float(np.max(np.abs(b), where=np.isfinite(b), initial=0.0))
    if difference == 0:
        return 0.0
    return difference / largest if largest and np.isfinite(difference) else float("inf")
