"""What a target says about the size that differs from call to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed

EXAMPLE = (16, 64, 256)
"""Buckets that messages show."""


def check(dims: Mapping[str, Sequence[int | str | None]], sizes: Mapping[str, Sequence[int | str | None]]) -> None:
    """Checks what a target says about open sizes.

    Raises:
      TfaotError: a size has no buckets or no dimension, buckets aren't in order, or there is more than one size.
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
            do=f"name it where inputs have it: {caller.setting('dims', {'tokens': (None, unused_names[0])})}",
        )
    if len(sizes) > 1:
        raise TfaotError(
            f"{caller.option('sizes')} has {len(sizes)} sizes: {listed(sorted(sizes))}",
            exists=f"a class has one open size, besides its rows, which are {caller.option('batch_sizes')}",
            do="keep the one that differs most, and fix the others with numbers",
        )
    for name, buckets in sizes.items():
        numbers = [bucket for bucket in buckets if isinstance(bucket, int) and bucket > 0]
        if not buckets or numbers != sorted({*numbers}) or len(numbers) != len(buckets):
            raise TfaotError(
                caller.setting("sizes", {name: buckets}),
                do=f"use sizes of at least 1, in ascending order: {caller.setting('sizes', {name: sorted({*numbers}) or EXAMPLE})}",
            )
