"""Opens dimensions of drawn cases: a size, or two, that differs from run to run, as `sizes` has it.

TensorFlow says which dimensions can be open, and which sizes an op takes: it runs the case for inputs of each.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.breadth import engine
from tests.breadth.engine import Case
from tfaot.core import dtypes, isolate
from tfaot.core.errors import TfaotError

_LARGEST = 67
"""The largest size. Cumulative sums take time that grows with its square."""
_RUNS = 4

Axes = Mapping[tuple[int, int], int]


def opened(cases: Sequence[Case], seed: Sequence[int], folder: Path) -> list[Case]:
    """Returns cases with open dimensions, chosen at random, without those for which TensorFlow takes only one size."""
    result = []
    for group in engine.chunks(cases):
        try:
            result += isolate.run_isolated(lambda group=group: _opened(group, seed, folder), what="TensorFlow")
        except TfaotError:  # TensorFlow ends the process
            for case in group:
                try:
                    result += isolate.run_isolated(lambda case=case: _opened([case], seed, folder), what="TensorFlow")
                except TfaotError:
                    continue
    return result


def _opened(cases: Sequence[Case], seed: Sequence[int], folder: Path) -> list[Case]:
    found = (_first(case, np.random.default_rng([*seed, *case.op.encode()]), folder) for case in cases)
    return [case for case in found if case is not None]


def _first(case: Case, rng: np.random.Generator, folder: Path) -> Case | None:
    """Returns the case with the first of its candidates that TensorFlow runs with other sizes."""
    # An operand that is a constant in the graph would have one size.
    operands = [
        dataclasses.replace(one, fed=one.fed or dtypes.BY_NAME[str(one.value.dtype)].floating) for one in case.operands
    ]
    case = dataclasses.replace(case, operands=tuple(operands))
    for axes in _candidates(case, rng):
        open_case = dataclasses.replace(case, axes=axes)
        runs = _taken(open_case, _sizes(open_case.largest, rng), folder)
        if any(run != open_case.largest for run in runs):
            return dataclasses.replace(open_case, runs=tuple(runs))
    return None


def _candidates(case: Case, rng: np.random.Generator) -> Iterator[Axes]:
    """Yields open dimensions: all of a size, at one place of all operands, or one of one operand; and two of different sizes."""
    places = [
        (number, axis, size, axis - operand.value.ndim)
        for number, operand in enumerate(case.operands)
        if operand.fed and operand.value.size  # XLA forgets the true sizes of what has no values
        for axis, size in enumerate(operand.value.shape)
        if 2 < size <= _LARGEST
    ]
    if not places:
        return
    groups: list[frozenset[tuple[int, int]]] = []
    for key in (lambda p: p[2], lambda p: (p[2], p[1]), lambda p: (p[2], p[3]), lambda p: p[:2]):
        by_key: dict[object, set[tuple[int, int]]] = {}
        for place in places:
            by_key.setdefault(key(place), set()).add(place[:2])
        sets = [*map(frozenset, by_key.values())]
        groups += [sets[index] for index in rng.permutation(len(sets))]
    groups = [*dict.fromkeys(groups)]
    if len(groups) > 1 and rng.random() < 0.4:
        for first in groups[:3]:
            for second in groups[:3]:
                if not first & second:
                    yield {**dict.fromkeys(sorted(first), 0), **dict.fromkeys(sorted(second), 1)}
    for group in groups[:8]:
        yield dict.fromkeys(sorted(group), 0)


def _sizes(largest: Sequence[int], rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Returns sizes to run: the largest, its neighbor, 1, and random ones."""
    runs = [tuple(largest), tuple(n - 1 for n in largest), tuple(1 for _ in largest)]
    runs += [tuple(int(rng.integers(1, n + 1)) for n in largest) for _ in range(2 * _RUNS)]
    return [*dict.fromkeys(runs)]


def _taken(case: Case, runs: Sequence[tuple[int, ...]], folder: Path) -> list[tuple[int, ...]]:
    """Returns the sizes that TensorFlow takes, in the order in which to run them."""
    import tensorflow as tf

    taken: list[tuple[int, ...]] = []
    with tempfile.TemporaryDirectory(dir=folder) as name:
        (Path(name) / "model.py").write_text(engine.model_text([case])[0])
        try:
            with engine.session(Path(name)) as (session, placeholders, results):
                initial = tf.compat.v1.global_variables_initializer()
                for run in runs:
                    feeds = [part for _, part, _ in dataclasses.replace(case, runs=(run,)).fed(0)]
                    try:
                        session.run(initial)
                        session.run(results, dict(zip(placeholders, feeds, strict=True)))
                        taken.append(run)
                    except tf.errors.OpError:
                        continue
        except Exception as error:  # what TensorFlow says of the dimensions while it traces the model
            del error
    taken = [run for run in taken if run == taken[0] or not _repeats(run, taken)]
    taken = [run for run in taken if _fits(case, run, folder)]
    return taken[1:_RUNS] + taken[:1]


def _fits(case: Case, run: tuple[int, ...], folder: Path) -> bool:
    """Returns whether TensorFlow's shape functions take a size, too: kernels take more than these, and the class doesn't."""
    parts = {number: part for number, part, _ in dataclasses.replace(case, runs=(run,)).fed(0)}
    operands = [
        dataclasses.replace(one, value=parts.get(number, one.value)) for number, one in enumerate(case.operands)
    ]
    fixed = dataclasses.replace(case, operands=tuple(operands), axes={}, runs=((),))
    with tempfile.TemporaryDirectory(dir=folder) as name:
        (Path(name) / "model.py").write_text(engine.model_text([fixed])[0])
        try:
            with engine.session(Path(name)):
                return True
        except Exception as error:  # of any type, while it traces the model
            del error
    return False


def _repeats(run: Sequence[int], taken: Sequence[Sequence[int]]) -> bool:
    """Returns whether TensorFlow may take sizes only because one of them is 1, and then repeats values: the class refuses these."""
    for index, size in enumerate(run):
        others = [other for other in taken if other[index] not in (1, taken[0][index])]
        free = any(len({*other}) == len(other) for other in others)
        if size == 1 and (not others or (len({*run}) > 1 and not free)):
            return True
    return False
