"""Draws inputs for the calls that the generated test makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tfaot.core import dtypes, manifest
from tfaot.core.errors import TfaotError
from tfaot.export.sources.user_code import SEED
from tfaot.export.traced import Array, Edge, Function, Source, shown


def batches(calls: Sequence[str], largest: int) -> tuple[int, ...]:
    """Returns batch sizes to verify: for each entry point the smallest, the largest, and then random ones in between.

    An entry point that is called only once gets the largest.
    """
    rng = np.random.default_rng(SEED)
    count = Counter(calls)
    done: Counter[str] = Counter()
    result = []
    for call in calls:
        sizes = (1, largest) if count[call] > 1 else (largest,)
        step = done[call]
        result.append(sizes[step] if step < len(sizes) else int(rng.integers(1, largest + 1)))
        done[call] += 1
    return tuple(result)


def drawn(
    source: Source,
    functions: Sequence[Function],
    own_names: Mapping[str, str],
    *,
    what: str,
    steps: int,
    calls: Sequence[str],
    largest: int,
) -> tuple[list[tuple[Array, ...]], tuple[manifest.Call, ...]]:
    """Draws inputs for each call to verify.

    Args:
      source: the model, which can have its own inputs.
      functions: the entry points, by their C++ names.
      own_names: the model's names for them.
      what: the model's file or folder, for messages.
      steps: the number of rounds of calls.
      calls: the entry points of one round; empty for all.
      largest: the largest batch; 0 if there is none.

    Returns:
      Values of the inputs for each call, and the calls.

    Raises:
      TfaotError: the user's inputs don't fit the model's.
    """
    by_name = {function.name: function for function in functions}
    rounds = [name for _ in range(steps) for name in (calls or tuple(by_name))]
    sizes = batches(rounds, largest) if largest else (0,) * len(rounds)
    drawing = Inputs(source, what)
    values: list[tuple[Array, ...]] = []
    made: list[manifest.Call] = []
    for step, (name, size) in enumerate(zip(rounds, sizes, strict=True)):
        inputs = by_name[name].inputs
        arrays = drawing.draw(own_names[name], inputs, step, size)
        rows = {array.shape[0] for edge, array in zip(inputs, arrays, strict=True) if None in (edge.shape or ())}
        if len(rows) > 1 or (rows and not 1 <= max(rows) <= largest):
            raise TfaotError(
                f"{what}: golden_fn returned batches of {sorted(rows)} rows for one call",
                exists=f"the class takes 1 to {largest} rows, the same in every input",
                do="return the same number of rows for every input of a call",
            )
        values.append(arrays)
        made.append(manifest.Call(name, rows.pop() if rows else 0))
    return values, tuple(made)


class Inputs:
    """Draws inputs, the user's or ours: normally distributed floats, and zeros and ones for integers."""

    def __init__(self, source: Source, what: str) -> None:
        """`what` names the model's file, for messages."""
        self._source = source
        self._what = what
        self._rng = np.random.default_rng(SEED)

    def draw(self, entry_point: str, inputs: Sequence[Edge], step: int, batch: int) -> tuple[Array, ...]:
        """Returns values for one call, in the order of `inputs`. `batch` fills open dimensions.

        Raises:
          TfaotError: the user's inputs don't fit the model's.
        """
        given = self._source.golden(entry_point, inputs, step, self._rng)
        if given is None:
            return tuple(self._default(edge, batch) for edge in inputs)
        values = []
        for edge, value in zip(inputs, given, strict=True):
            dtype = dtypes.BY_ENUM[edge.dtype].numpy()
            array = np.asarray(value)
            if not _fits(array.shape, edge) or not np.can_cast(array.dtype, dtype, "same_kind"):
                raise TfaotError(
                    f"{self._what}: golden_fn(step, rng) returned {array.dtype}{list(array.shape)} for {edge.label}",
                    exists=f"the input is {dtype}{shown(edge.shape)}",
                    do="return an array of the input's dtype and shape",
                )
            values.append(np.ascontiguousarray(array.astype(dtype)).reshape(array.shape))
        return tuple(values)

    def _default(self, edge: Edge, batch: int) -> Array:
        dtype = dtypes.BY_ENUM[edge.dtype]
        assert edge.shape is not None
        shape = tuple(batch if size is None else size for size in edge.shape)
        if dtype.name.startswith("complex"):
            return (self._rng.standard_normal(shape) + 1j * self._rng.standard_normal(shape)).astype(dtype.numpy())
        if dtype.floating:
            return self._rng.standard_normal(shape).astype(dtype.numpy())
        return self._rng.integers(0, 2, shape).astype(dtype.numpy())


def _fits(shape: tuple[int, ...], edge: Edge) -> bool:
    assert edge.shape is not None
    return len(shape) == len(edge.shape) and all(b is None or a == b for a, b in zip(shape, edge.shape, strict=True))
