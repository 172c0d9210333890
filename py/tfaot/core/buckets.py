"""What a target says about sizes that differ from call to call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import Requirement
from tfaot.core.user_code import SEED

EXAMPLE = (16, 64, 256)
"""Buckets that messages show."""


_FAR = 70
"""How much sizes to verify may differ from those that the model doesn't take."""
MOST = 64
"""How many functions the products of buckets and batch sizes can give an entry point."""


def check(
    dims: Mapping[str, Sequence[int | str | None]],
    sizes: Mapping[str, Sequence[int | str | None]],
    batch_sizes: Sequence[int],
) -> None:
    """Checks what a target says about open sizes.

    Raises:
      TfaotError: a size has no buckets or no dimension, buckets aren't in order, or there are too many.
    """
    named = {size for shape in dims.values() for size in shape if isinstance(size, str)}
    if missing := sorted(named - set(sizes)):
        raise TfaotError(
            f"{caller.option('dims')} names {listed(missing)}, and {caller.option('sizes')} doesn't say what to compile for",
            exists=listed(sorted(sizes)) if sizes else f"no {caller.option('sizes')}",
            do=f"add {caller.setting('sizes', dict.fromkeys(missing, EXAMPLE))}, with your sizes",
        )
    if unused_names := sorted(set(sizes) - named):
        raise TfaotError(
            f"{caller.option('sizes')} has {listed(unused_names)}, which no dimension has",
            exists=", ".join(f"{label} [{', '.join(map(str, shape))}]" for label, shape in dims.items())
            or f"no {caller.option('dims')}",
            do=f"remove it from {caller.option('sizes')}, or name it in {caller.option('dims')}, in the place of a number or "
            f"{'None' if caller.in_bazel() else '?'} of each input that has it",
        )
    for name, buckets in sizes.items():
        numbers = [bucket for bucket in buckets if isinstance(bucket, int) and bucket > 0]
        if not buckets or numbers != sorted({*numbers}) or len(numbers) != len(buckets):
            raise TfaotError(
                caller.setting("sizes", {name: buckets}),
                do=f"use sizes of at least 1, in ascending order: {caller.setting('sizes', {name: sorted({*numbers}) or EXAMPLE})}",
            )
    counts = {name: len(buckets) for name, buckets in sizes.items()}
    if batch_sizes:
        counts[caller.option("batch_sizes")] = len(batch_sizes)
    if sizes and math.prod(counts.values()) > MOST:
        raise TfaotError(
            f"{caller.option('sizes')} makes {math.prod(counts.values())} functions of each entry point",
            exists=" × ".join(f"{count} of {name}" for name, count in counts.items())
            + f", and a class has at most {MOST}",
            do="list fewer buckets, far from each other: each run uses one that has room",
        )


def calls(count: int, buckets: Sequence[Sequence[int]], required: Sequence[Requirement] = ()) -> list[tuple[int, ...]]:
    """Returns open sizes to verify, `count` calls or more: 1, the largest, both sides of each bucket, and then random ones.

    Of several sizes, each product of their buckets has a call, too, and what one size is says nothing about the others.

    Args:
      count: the least number of calls.
      buckets: those of each size.
      required: what the model requires of sizes. If they don't fulfill it, a call has the nearest ones that do.
    """
    rng = np.random.default_rng(SEED)
    edges = [
        sorted({size for bucket in own for size in (bucket - 1, bucket, bucket + 1) if 1 < size < own[-1]})
        for own in buckets
    ]
    if len(buckets) > 1:
        edges = [[int(size) for size in rng.permutation(own)] for own in edges]

    def take(index: int, least: int, most: int) -> int:
        """Returns an edge that no call has yet, or a random size."""
        size = next((size for size in edges[index] if least <= size <= most), None)
        if size is None:
            return int(rng.integers(least, most + 1))
        edges[index].remove(size)
        return size

    made = list(dict.fromkeys((tuple(1 for _ in buckets), tuple(own[-1] for own in buckets))))
    ranges = [[(least + 1, most) for least, most in itertools.pairwise((0, *own))] for own in buckets]
    for product in itertools.product(*ranges):
        if not any(all(low <= n <= high for n, (low, high) in zip(call, product, strict=True)) for call in made):
            made.append(tuple(take(index, *span) for index, span in enumerate(product)))
    while any(edges) or (buckets and len(made) < count):
        made.append(tuple(take(index, 1, own[-1]) for index, own in enumerate(buckets)))
    if required:
        near = [_near(call, buckets, required) for call in made]
        made = list(dict.fromkeys(call for call in near if call is not None))
        made += [made[index % len(made)] for index in range(count - len(made))]
    return made + [()] * (count - len(made))


def _near(
    sizes: Sequence[int], buckets: Sequence[Sequence[int]], required: Sequence[Requirement]
) -> tuple[int, ...] | None:
    """Returns the sizes nearest to these that the model takes, or None if they all differ much."""
    # Sizes that no requirement has in common are independent of each other.
    groups: list[set[int]] = []
    for own in required:
        together = {index for index, factor in enumerate(own.factors) if factor}
        together |= {index for group in groups if group & together for index in group}
        groups = [*(group for group in groups if not group & together), together]
    result = list(sizes)
    for group in map(sorted, groups):
        ranges = [[*range(max(1, sizes[i] - _FAR), min(sizes[i] + _FAR, buckets[i][-1]) + 1)] for i in group]
        if len(ranges) > 2:
            ranges = [
                [r[0], *(n for n in r if abs(n - sizes[i]) < 3), r[-1]] for r, i in zip(ranges, group, strict=True)
            ]
        own_required = [own for own in required if any(own.factors[index] for index in group)]
        fitting = []
        for numbers in itertools.product(*ranges):
            other = list(result)
            for index, number in zip(group, numbers, strict=True):
                other[index] = number
            if all(own.holds(other) for own in own_required):
                fitting.append(other)
        if not fitting:
            return None
        result = min(fitting, key=lambda other: sum(abs(a - b) for a, b in zip(other, sizes, strict=True)))
    return tuple(result)
