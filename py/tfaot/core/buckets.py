"""What a target says about sizes that differ from call to call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed

EXAMPLE = (16, 64, 256)
"""Buckets that messages show."""


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
