"""Chooses the calls that the generated test makes, and gets the user's own inputs for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tfaot.core import buckets as core_buckets
from tfaot.core import caller, dtypes, manifest
from tfaot.core.errors import TfaotError, listed
from tfaot.core.user_code import SEED
from tfaot.export.rewrites import open_size
from tfaot.export.sources.golden_inputs import GivenInputs
from tfaot.export.sources.jax_program import JaxSource
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


def inputs_and_calls(
    source: Source,
    functions: Sequence[Function],
    own_names: Mapping[str, str],
    *,
    what: str,
    steps: int,
    calls: Sequence[str],
    largest: int,
    buckets: Mapping[str, Sequence[int]],
) -> tuple[list[tuple[Array, ...] | None], tuple[manifest.Call, ...]]:
    """Returns the calls to verify, and the user's inputs for them.

    The verify stage draws all others (`tfaot.core.drawn`), so that a build without tests doesn't make or store them.

    Args:
      source: the model, which can have its own inputs.
      functions: the entry points, by their C++ names.
      own_names: the model's names for them.
      what: the model's file or folder, for messages.
      steps: the number of rounds of calls.
      calls: the entry points of one round; empty for all.
      largest: the largest batch; 0 if there is none.
      buckets: those of open sizes, by name. There are enough rounds for all of their edges.

    Returns:
      Values of the inputs for each call, None for those to draw, and the calls.

    Raises:
      TfaotError: the user's inputs don't fit the model's.
    """
    by_name = {function.name: function for function in functions}
    required = [own for function in functions for own in open_size.requirements(function, [*buckets])]
    drawn = core_buckets.calls(
        steps,
        [*buckets.values()],
        required,
    )
    rounds = [name for _ in drawn for name in (calls or tuple(by_name))]
    open_ = [lengths for lengths in drawn for _ in (calls or tuple(by_name))]
    sizes = batches(rounds, largest) if largest else (0,) * len(rounds)
    user = User(source, what)
    values: list[tuple[Array, ...] | None] = []
    made: list[manifest.Call] = []
    for step, (name, size, lengths) in enumerate(zip(rounds, sizes, open_, strict=True)):
        inputs = tuple(edge for edge in by_name[name].inputs if not edge.open_size)
        arrays = user.inputs(own_names[name], inputs, step)
        if arrays is None:
            open_batch = any(None in (edge.shape or ()) for edge in inputs)
            values.append(None)
            made.append(manifest.Call(name, size if open_batch else 0, lengths))
            continue
        own_sizes = list[int]()
        for index, (label, own) in enumerate(buckets.items()):
            lengths_of = {
                array.shape[axis.dim]
                for edge, array in zip(inputs, arrays, strict=True)
                for axis in edge.axes
                if axis.size == index
            }
            if len(lengths_of) > 1 or not 1 <= max(lengths_of) <= own[-1]:
                raise TfaotError(
                    f"{what}: {said(source)} {label} of {sorted(lengths_of)} for one call",
                    exists=f"the class takes 1 to {own[-1]}, the same in every input",
                    do="give the same size for every input of a call",
                )
            own_sizes.append(max(lengths_of))
        if broken := [own.text for own in required if not own.holds(own_sizes)]:
            raise TfaotError(
                f"{what}: {said(source)} {', '.join(f'{label} of {n}' for label, n in zip(buckets, own_sizes, strict=True))}",
                exists=f"the model requires {listed(broken)}",
                do="give inputs that fulfill it",
            )
        rows = {array.shape[0] for edge, array in zip(inputs, arrays, strict=True) if None in (edge.shape or ())}
        if len(rows) > 1 or (rows and not 1 <= max(rows) <= largest):
            raise TfaotError(
                f"{what}: {said(source)} batches of {sorted(rows)} rows for one call",
                exists=f"the class takes 1 to {largest} rows, the same in every input",
                do="give the same number of rows for every input of a call",
            )
        values.append((*arrays, *(np.array(size, np.int32) for size in own_sizes)))
        made.append(manifest.Call(name, rows.pop() if rows else 0, tuple(own_sizes)))
    check_steps(source, len(rounds))
    return values, tuple(made)


def of_others(
    source: Source,
    functions: Sequence[Function],
    own_names: Mapping[str, str],
    *,
    what: str,
    calls: Sequence[manifest.Call],
    replicas: int,
) -> dict[str, list[tuple[Array, ...] | None]]:
    """Returns the user's inputs for each call of the other replicas, after the first one, by `/replica1` and so on."""
    by_name = {function.name: function for function in functions}
    return {
        f"/replica{rank}": [
            user.inputs(own_names[call.entry_point], by_name[call.entry_point].inputs, step)
            for step, call in enumerate(calls)
        ]
        for rank in range(1, replicas)
        for own in [source.of_replica(rank) if isinstance(source, JaxSource) else source]
        for user in [User(own, what, SEED + rank)]
    }


def said(source: Source) -> str:
    """Returns what gave inputs to verify, for messages."""
    path = source.path if isinstance(source, GivenInputs) else ".py"
    return "golden_fn(step, rng) returned" if path.endswith(".py") else f"{caller.the('golden_inputs')}, {path}, have"


def check_steps(source: Source, count: int) -> None:
    """Checks that a target's file of inputs has none for steps that nothing verifies; see `GivenInputs.check_steps`."""
    if isinstance(source, GivenInputs):
        source.check_steps(count)


class User:
    """The user's inputs."""

    def __init__(self, source: Source, what: str, seed: int = SEED) -> None:
        """`what` names the model's file, for messages, and `seed` is that of its random numbers."""
        self._source = source
        self._what = what
        self._rng = np.random.default_rng(seed)

    def inputs(self, entry_point: str, inputs: Sequence[Edge], step: int) -> tuple[Array, ...] | None:
        """Returns values for one call, in the order of `inputs`, or None if the user has none.

        Raises:
          TfaotError: the user's inputs don't fit the model's.
        """
        arrays = self._source.golden(entry_point, inputs, step, self._rng)
        if arrays is None:
            return None
        values = []
        for edge, value in zip(inputs, arrays, strict=True):
            # Strings, which only clusters take, are objects.
            dtype = dtypes.BY_ENUM[edge.dtype].numpy() if edge.dtype in dtypes.BY_ENUM else np.dtype(object)
            array = np.asarray(value)
            if not _fits(array.shape, edge) or not np.can_cast(array.dtype, dtype, "same_kind"):
                raise TfaotError(
                    f"{self._what}: {said(self._source)} {array.dtype}{list(array.shape)} for {edge.label}",
                    exists=f"the input is {'string' if dtype.kind == 'O' else dtype}{shown(edge.shape)}",
                    do="give an array of the input's dtype and shape",
                )
            values.append(np.ascontiguousarray(array.astype(dtype)).reshape(array.shape))
        return tuple(values)


def _fits(shape: tuple[int, ...], edge: Edge) -> bool:
    if edge.shape is None:
        return True
    return len(shape) == len(edge.shape) and all(
        b is None or a == b or axis in edge.open_dims for axis, (a, b) in enumerate(zip(shape, edge.shape, strict=True))
    )
