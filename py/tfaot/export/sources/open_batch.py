"""Programs for any batch: what a program's conversions for several sizes have in common.

XLA computes all shapes of a program for one size, and TensorFlow's converter writes them into its ops. Conversions for other sizes
have the same ops. Sizes in types that differ are open. Integer constants that differ are linear in the batch, and become ops that
compute them from it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfaot.export.sources import mlir
from tfaot.export.sources.mlir import MlirError, Signature, Type

SIZES = (12, 24, 36)
"""The batches that a program is converted for: more than one row, and divisible by what programs divide batches by."""

_PARTS = re.compile(r"(dense<[^<>]*> : tensor<[^<>]*(?:<\w+>)?>|tensor<[^<>]*(?:<\w+>)?>)")
"""What can depend on the batch."""
_CONSTANT = re.compile(r'\s*%\S+ = "?(?:tf\.Const|\w+\.constant)\b')


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines of a program with open sizes."""

    merged: tuple[str, ...]
    variants: tuple[tuple[str, ...], ...]
    """For each line, the same line for each of `SIZES`."""


def merge(programs: Sequence[Sequence[str]]) -> Lines:
    """Returns what the lines of a program for each size have in common.

    Raises:
      MlirError: they differ in more than sizes and constants.
    """
    if len({len(lines) for lines in programs}) > 1:
        raise MlirError("error: the operations depend on the batch, and not only their sizes")
    variants = tuple(zip(*programs, strict=True))
    return Lines(
        tuple(
            lines[0] if len({*lines}) == 1 or lines[0].startswith("module ") else _merged(lines) for lines in variants
        ),
        variants,
    )


def _merged(lines: Sequence[str]) -> str:
    parts = [_PARTS.split(line) for line in lines]
    values = "dense<" in lines[0] and not _CONSTANT.match(lines[0])
    if values or len({len(part) for part in parts}) > 1 or len({tuple(part[::2]) for part in parts}) > 1:
        raise MlirError(f"error: an operation depends on the batch in more than its sizes: {lines[0].strip()[:120]}")
    merged = list(parts[0])
    for index in range(1, len(merged), 2):
        texts = [part[index] for part in parts]
        if len({*texts}) > 1:
            dense = texts[0].startswith("dense")  # `constant` reads its variants
            merged[index] = texts[0] if dense else str(opened([Type.of(text) for text in texts]))
    return "".join(merged)


def opened(types: Sequence[Type]) -> Type:
    """Returns a type with the sizes open that differ."""
    if len({len(type_.shape) for type_ in types}) > 1:
        raise MlirError(f"error: the rank of {types[0]} depends on the batch")
    shapes = zip(*(type_.shape for type_ in types), strict=True)
    return Type(types[0].element, tuple(sizes[0] if len({*sizes}) == 1 else None for sizes in shapes))


def batch_of(variants: Sequence[str], arguments: Sequence[Any]) -> Any:
    """Returns the batch inside of a function, from the arguments that have it as a size; None if there is none.

    Args:
      variants: the function's first line, for each of `SIZES`.
      arguments: the tensors that it takes.
    """
    signatures = [Signature.of(line) for line in variants]
    for index, argument in enumerate(arguments):
        shapes = [signature.arguments[index].type.shape for signature in signatures if signature is not None]
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            if sizes == SIZES:
                return tf.shape(argument)[axis]
    return None


def constant(texts: Sequence[str], batch: Any) -> Any:
    """Returns a constant that depends on the batch, as ops.

    Args:
      texts: `dense<…> : tensor<…>` for each of `SIZES`.
      batch: the batch, or None.

    Raises:
      MlirError: it isn't linear in the batch.
    """
    what = f"error: the constant {texts[0][:80]} depends on the batch"
    if batch is None:
        raise MlirError(what + ", in a function that doesn't have it")
    values = [mlir.constant(text) for text in texts]
    if len({value.shape for value in values}) == 1:
        if values[0].dtype.kind not in "iu":
            raise MlirError(what + ": rows affect each other, as in a mean over the batch")
        return tf.cast(_linear([value.astype(np.int64) for value in values], batch, what), values[0].dtype)
    first = {value.flat[0].tobytes() for value in values}
    if len(first) > 1 or any((value != value.flat[0]).any() for value in values):
        raise MlirError(what + " in its values")
    shapes = [np.array(value.shape, np.int64) for value in values]
    return tf.fill(_linear(shapes, batch, what), tf.constant(values[0].flat[0]))


def _linear(values: Sequence[np.ndarray[Any, Any]], batch: Any, what: str) -> Any:
    slope = (values[1] - values[0]) // (SIZES[1] - SIZES[0])
    start = values[0] - slope * SIZES[0]
    if any((start + slope * size != value).any() for size, value in zip(SIZES, values, strict=True)):
        raise MlirError(what + ", and isn't linear in it")
    # Sizes of shapes stay known if only some of them depend on the batch.
    flat = [
        tf.cast(batch, tf.int64) * int(a) + int(b) if a else tf.constant(int(b), tf.int64)
        for a, b in zip(slope.flat, start.flat, strict=True)
    ]
    return tf.reshape(tf.stack(flat), values[0].shape)
