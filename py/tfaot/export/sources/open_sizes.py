"""Programs for any sizes: what a program's conversions for several of them have in common.

XLA computes all shapes of a program for numbers, and TensorFlow's converter writes them into its ops. Conversions for other sizes
have the same ops. Sizes in types that differ are open. Integer constants that differ become ops that compute them from the open
sizes, as the program itself does (`size_arithmetic.py`), or as polynomials if all that it computes from them are polynomials.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed
from tfaot.export.sources import mlir
from tfaot.export.sources.mlir import MlirError, Signature, Type
from tfaot.export.sources.size_arithmetic import OPERATIONS, Arithmetic, Numbers
from tfaot.export.traced import Edge, Requirement

BATCH = "the batch"
"""The name of the size that `batch_sizes` leaves open."""

_BATCHES = (12, 24, 36, 48, 60, 84, 72, 96)
"""Batches that a program is converted for: more than one row, and divisible by what programs divide batches by."""
_SMALLEST, _LARGEST = 12, 110
"""Sizes that a program is converted for: not so small that it has other ops, and not so large that constants take long."""
_POINTS = 3000
"""For how many combinations of sizes the program's arithmetic is evaluated."""
_MOST = 8192
"""The largest size in these."""
_DEGREE = 3
"""The most sizes whose product counts values."""
_PARTS_OF_ONE = (1, 2, 4, 8, 1024)
"""Of which parts of 1 a constant may be a multiple."""
_DIVISOR = 16
"""The largest number that a size is divided by, in a form whose bound XLA knows."""
_MODULUS = 256
"""The largest number by which a size must be divisible."""

_PARTS = re.compile(r"(dense<[^<>]*> : tensor<[^<>]*(?:<\w+>)?>|tensor<[^<>]*(?:<\w+>)?>)")
"""What can depend on sizes."""
_PADDING = re.compile(r'(?:explicit_paddings = \[[\d, ]*\]|padding = "\w+"), ')
"""Parts of a convolution. Its converter calls padding SAME where it is the same for a size."""
_CONSTANT = re.compile(r'\s*%\S+ = "?(?:tf\.Const|\w+\.constant)\b')

Array = npt.NDArray[Any]


def names(edges: Sequence[Edge], named: Mapping[str, Mapping[int, str]]) -> tuple[str, ...]:
    """Returns the open sizes of inputs, in the order in which these have them."""
    return tuple(
        dict.fromkeys(
            named.get(edge.label, {}).get(axis, BATCH)
            for edge in edges
            for axis, size in enumerate(edge.shape or ())
            if size is None
        )
    )


def sized(edges: Sequence[Edge], named: Mapping[str, Mapping[int, str]], values: Mapping[str, int]) -> list[Edge]:
    """Returns inputs with numbers in the place of open sizes."""
    return [
        dataclasses.replace(
            edge,
            shape=tuple(
                values[named.get(edge.label, {}).get(axis, BATCH)] if size is None else size
                for axis, size in enumerate(edge.shape or ())
            ),
        )
        for edge in edges
    ]


@dataclasses.dataclass(frozen=True)
class Polynomial:
    """A whole number for each product of sizes."""

    factors: Mapping[tuple[int, ...], int]
    """By the sizes' indices; the empty tuple is the number 1."""

    def at(self, points: Numbers) -> Numbers:
        """Returns the values for some sizes."""
        total = np.zeros(len(points), np.int64)
        for indices, factor in self.factors.items():
            total += factor * np.prod(points[:, list(indices)], axis=1, dtype=np.int64)
        return total


def _monomials(count: int, degree: int = _DEGREE) -> list[tuple[int, ...]]:
    """Returns all products of up to so many of the sizes."""
    return [m for d in range(degree + 1) for m in itertools.combinations_with_replacement(range(count), d)]


def _fitted(values: Numbers, points: Numbers, monomials: Sequence[tuple[int, ...]]) -> Polynomial | None:
    """Returns the polynomial with whole factors that has these values, or None."""
    columns = np.stack([np.prod(points[:, list(m)], axis=1, dtype=np.float64) for m in monomials], 1)
    scale = np.maximum(abs(columns).max(0), 1)
    solution = np.linalg.lstsq(columns / scale, values.astype(np.float64), rcond=None)[0] / scale
    factors = {m: round(float(x)) for m, x in zip(monomials, solution, strict=True) if round(float(x))}
    made = Polynomial(factors)
    return made if (made.at(points) == values).all() else None


class Sizes:
    """The open sizes of a program, and the numbers that it is converted for."""

    def __init__(self, names: Sequence[str], arithmetic: Arithmetic, what: str) -> None:
        """Chooses numbers that fulfill what the program asserts, and that tell apart all that it computes from sizes.

        Args:
          names: the sizes.
          arithmetic: what the program computes from them.
          what: the program's file, for messages.

        Raises:
          TfaotError: no sizes fulfill what it asserts.
        """
        self.names = tuple(names)
        self._what = what
        self._arithmetic = arithmetic
        every = _points(len(names), BATCH in names and self.names.index(BATCH))
        values = arithmetic.values(every)
        asserted = [(a, values[a.condition] != 0) for a in arithmetic.assertions]
        holds = np.logical_and.reduce([np.ones(len(every), bool), *(fulfilled for _, fulfilled in asserted)])
        if holds.sum() < 2 * len(names) + 4:
            never = [a.message for a, fulfilled in asserted if fulfilled.mean() < 0.05]
            raise TfaotError(
                f"{what}: hardly any {listed(sorted(names))} fulfill what the program requires",
                exists=listed(never or [a.message for a, fulfilled in asserted if not fulfilled.all()]),
                do=f"give dimensions that must be equal one name in {caller.option('dims')}, or compile for fixed sizes",
            )
        self.requirements = tuple(
            self._requirement(a.condition, a.message, values, every) for a, fulfilled in asserted if not fulfilled.all()
        )
        self._domain = every[holds]
        self._values = {name: vector[holds] for name, vector in values.items()}
        monomials = _monomials(len(names))
        self._polynomials: dict[str, Polynomial] = {}
        self._hard: dict[str, Numbers] = {}
        fits: dict[bytes, Polynomial | None] = {}
        for name, vector in self._values.items():
            key = vector.tobytes()
            if key not in fits:
                fits[key] = _fitted(vector, self._domain, monomials)
                if fits[key] is None:
                    self._hard[name] = vector
            if (polynomial := fits[key]) is not None:
                self._polynomials[name] = polynomial
        self.samples = self._chosen()

    def _chosen(self) -> Numbers:
        """Returns the numbers to convert the program for."""
        if self.names == (BATCH,) and not self._hard:
            return np.array([(batch,) for batch in _BATCHES[:3]], np.int64)
        domain = self._domain
        middle = ((domain >= _SMALLEST) & (domain <= _LARGEST)).all(1)
        distinct = np.array([len({*point}) == len(point) for point in domain.tolist()])
        if BATCH in self.names:
            middle &= np.isin(domain[:, self.names.index(BATCH)], _BATCHES)
        size = domain.max(1)
        order = np.lexsort((size, ~distinct, ~middle))
        best = int((middle & distinct).sum())
        order[:best] = np.random.default_rng(0).permutation(order[:best])
        count = 2 * len(self.names) + 3
        picked = [int(index) for index in order[:count]]
        if BATCH in self.names and best:  # two points that differ in the batch alone, see `_moves_with_batch`
            apart = np.delete(domain[order[:best]], self.names.index(BATCH), 1)
            _, group, members = np.unique(apart, axis=0, return_inverse=True, return_counts=True)
            group = group.ravel()
            same = group == group[np.argmax(members[group] > 1)]
            picked += [int(index) for index in order[:best][same][:2]]
        # A convolution's padding can be SAME for all sizes of one remainder.
        for size, modulus in itertools.product(range(len(self.names)), range(2, 9)):
            rest = domain[:, size] % modulus
            others = [int(index) for index in order[:best] if rest[index] != rest[picked[0]]]
            if len({*rest[picked]}) == 1 and self.names[size] != BATCH:
                picked += others[:1]
        # Nothing that the program computes is like something else at the chosen numbers, and differs at others.
        while True:
            another = next(self._unlike(picked, order), None)
            if another is None:
                return np.asarray(domain[picked])
            picked.append(another)

    def _unlike(self, picked: Sequence[int], order: Numbers) -> Iterator[int]:
        """Yields a point that tells apart what is alike at the chosen ones: two numbers, or a number and a constant."""
        sizes = [self._domain[:, index] for index in range(len(self.names))]
        different = [*{vector.tobytes(): vector for vector in (*sizes, *self._values.values())}.values()]
        for hard in {vector.tobytes(): vector for vector in self._hard.values()}.values():
            if not np.ptp(hard[picked]):
                yield int(order[np.argmax((hard != hard[picked[0]])[order])])
            for other in different:
                alike = None if other is hard else _affine(hard[picked], other[picked])
                if alike is not None and (wrong := hard != alike[0] * other + alike[1]).any():
                    yield int(order[np.argmax(wrong[order])])

    def _requirement(self, condition: str, message: str, values: Mapping[str, Numbers], points: Numbers) -> Requirement:
        """Returns an assertion as a comparison of sizes.

        Raises:
          TfaotError: it isn't linear, and not a remainder of one size.
        """
        step = self._arithmetic.steps[condition]
        batch = self.names.index(BATCH) if BATCH in self.names else None
        if step.operation == "compare" and step.direction in ("EQ", "GE", "GT", "LE", "LT"):
            left, right = (values[operand] for operand in step.operands)
            difference = left - right if step.direction[0] in "EG" else right - left
            difference = difference - (step.direction in ("GT", "LT"))
            linear = _fitted(difference, points, _monomials(len(self.names), 1))
            if linear is not None and (batch is None or (batch,) not in linear.factors):
                return self._required(message, linear.factors, equal=step.direction == "EQ")
        fulfilled = values[condition] != 0
        for index in range(len(self.names)):
            size = points[:, index]
            for modulus in range(2, _MODULUS + 1):
                rest = int(size[np.argmax(fulfilled)]) % modulus
                if index != batch and ((size % modulus == rest) == fulfilled).all():
                    return self._required(message, {(index,): 1, (): -rest}, modulus=modulus)
        raise TfaotError(
            f"{self._what}: the program requires {message}",
            exists="a class checks sums of sizes, and whether a size is a multiple of a number, in each run"
            + (", and no batch" if batch is not None else ""),
            do="write the constraint in such a form, or compile for fixed sizes",
        )

    def _required(
        self, message: str, factors: Mapping[tuple[int, ...], int], *, equal: bool = False, modulus: int = 0
    ) -> Requirement:
        own = {self.names[indices[0]]: factor for indices, factor in factors.items() if indices}
        if equal and sorted(own.values()) == [-1, 1] and not factors.get(()):
            raise TfaotError(
                f"{self._what}: the program requires {' and '.join(own)} to be equal",
                exists=message,
                do=f"give both one name in {caller.option('dims')}, or {caller.option('batch_sizes')} if they are the batch",
            )
        return Requirement(message, own, factors.get((), 0), equal=equal, modulus=modulus)

    @property
    def only_batch(self) -> bool:
        """Whether the only open size is the batch, which the compile stage fixes."""
        return self.names == (BATCH,)

    def beyond_batch(self, types: Sequence[Sequence[Type]]) -> bool:
        """Returns whether types have another open size than the batch.

        Args:
          types: for each of the samples.
        """
        shapes = np.array([[size for type_ in own for size in type_.shape] for own in types], np.int64)
        batch = self.samples[:, self.names.index(BATCH)] if BATCH in self.names else None
        return not self.only_batch and any(
            np.ptp(column) and (batch is None or _affine(column, batch) is None) for column in shapes.T
        )

    def inside(self, variants: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        """Returns the sizes inside of a function, from the arguments that have them; None for those that none has.

        Args:
          variants: the function's first line, for each of the samples.
          arguments: the tensors that it takes.
        """
        signatures = [signature for signature in map(Signature.of, variants) if signature is not None]
        result: list[Any] = [None] * len(self.names)
        for index, argument in enumerate(arguments):
            shapes = [signature.arguments[index].type.shape for signature in signatures]
            for axis, sizes in enumerate(zip(*shapes, strict=True)):
                for size in range(len(self.names)):
                    if result[size] is None and [*sizes] == self.samples[:, size].tolist():
                        result[size] = tf.shape(argument)[axis]
        return result

    def constant(self, texts: Sequence[str], sizes: Sequence[Any]) -> Any:
        """Returns a constant that depends on sizes, as ops.

        Args:
          texts: `dense<…> : tensor<…>` for each of the samples.
          sizes: the sizes, or None.

        Raises:
          MlirError: it isn't what the program computes from sizes.
        """
        what = f"error: the constant {texts[0][:80]} depends on {self._label}"
        values = [mlir.constant(text) for text in texts]
        dtype = values[0].dtype
        if len({value.shape for value in values}) == 1 and dtype != np.bool_:
            numbers = np.array([np.ravel(value).astype(np.float64) for value in values])
            if dtype.kind not in "iu" and (BATCH in self.names and self._moves_with_batch(numbers)):
                raise MlirError(what + ": rows affect each other, as in a mean over the batch")
            if dtype.kind in "iu":
                flat = [self._made(column.astype(np.int64), sizes, what) for column in numbers.T]
            else:
                flat = [self._real(column, dtype, sizes, what) for column in numbers.T]
            made = tf.stack(flat) if values[0].ndim == 1 else tf.reshape(tf.stack(flat), values[0].shape)
            return tf.cast(made, dtype)
        shapes = np.array([value.shape for value in values], np.int64)
        if any((value != value.flat[0]).any() for value in values):
            raise MlirError(what + " in its values")
        shape = tf.stack([self._made(column, sizes, what) for column in shapes.T])
        first = [np.asarray(value.flat[0]) for value in values]
        if len({value.tobytes() for value in first}) == 1:
            return tf.fill(shape, tf.constant(first[0]))
        if dtype == np.bool_:
            raise MlirError(what + " in its values")
        scalar = f"tensor<{Type.of(texts[0].rpartition(' : ')[2]).element}>"
        return tf.fill(shape, self.constant([f"dense<{_text(value)}> : {scalar}" for value in first], sizes))

    def shown(self, sample: int) -> str:
        """Returns the sizes of a sample, for messages."""
        return ", ".join(f"{name} {size}" for name, size in zip(self.names, self.samples[sample], strict=True))

    @property
    def _label(self) -> str:
        return self.names[0] if len(self.names) == 1 else f"{', '.join(self.names[:-1])}, or {self.names[-1]}"

    def _real(self, values: Array, dtype: Any, sizes: Sequence[Any], what: str) -> Any:
        """Returns a float that depends on sizes, rounded as the program's own arithmetic rounds it."""
        exact = values.astype(dtype)
        for parts in _PARTS_OF_ONE:
            if (values * parts == np.rint(values * parts)).all():
                made = tf.cast(self._made((values * parts).astype(np.int64), sizes, what), dtype)
                return made if parts == 1 else made / parts
        if values.all():
            for parts in _PARTS_OF_ONE:
                whole = np.rint(parts / values)
                if (np.asarray(parts, dtype) / whole.astype(dtype) == exact).all():
                    return tf.constant(parts, dtype) / tf.cast(self._made(whole.astype(np.int64), sizes, what), dtype)
        for vector in (*self.samples.T, *self._at_samples().values()):
            largest = int(np.argmax(abs(vector)))
            near = np.asarray(values[largest] / vector[largest], dtype)
            for factor in (near, *(np.nextafter(near, np.asarray(way, dtype)) for way in (-np.inf, np.inf))):
                if (vector.astype(dtype) * factor == exact).all():
                    return tf.cast(self._made(vector, sizes, what), dtype) * factor
        raise MlirError(
            what
            + ", and isn't a whole number of 1/1024, a part of one, or a multiple of what the program computes from sizes"
        )

    def _moves_with_batch(self, numbers: Array) -> bool:
        """Returns whether numbers differ for batches alone."""
        others = np.delete(self.samples, self.names.index(BATCH), 1)
        pairs = [
            alike for alike in ((others == own).all(1) for own in others) if np.ptp(self.samples[alike], axis=0).any()
        ]
        return not pairs or any(bool(np.ptp(numbers[alike], axis=0).any()) for alike in pairs)

    def number(self, values: Sequence[int], sizes: Sequence[Any], what: str) -> Any:
        """Returns an int32 that has these values for the samples, as ops.

        Raises:
          MlirError: it isn't what the program computes from sizes.
        """
        return self._made(np.array(values, np.int64), sizes, what)

    def _made(self, values: Numbers, sizes: Sequence[Any], what: str) -> Any:
        """Returns an int32 that depends on sizes."""
        if (values == values[0]).all():
            return tf.constant(int(values[0]))
        points = self.samples
        count = len(self.names)
        for index in range(count):
            if alike := _affine(values, points[:, index]):
                return self._polynomial(Polynomial({(index,): alike[0], (): alike[1]}), sizes, what)
        chosen = self._at_samples()
        for exact in (True, False):
            for name, vector in chosen.items():
                alike = _affine(values, vector)
                if alike and (alike == (1, 0) or not exact):
                    if quotient := _quotient(self._values[name] * alike[0] + alike[1], self._domain):
                        return self._divided(quotient, sizes, what)
                    return self._emitted(name, sizes, what, {}) * alike[0] + alike[1]
        linear = _monomials(count, 1)
        for monomials in (linear, *([m, ()] for m in _monomials(count)[len(linear) :])):
            if len(points) > len(monomials) + 1 and (polynomial := _fitted(values, points, monomials)):
                return self._polynomial(polynomial, sizes, what)
        if quotient := _quotient(values, points):  # as many as windows with strides have
            return self._divided(quotient, sizes, what)
        raise MlirError(what + ", and isn't what the program computes from sizes")

    def _at_samples(self) -> dict[str, Numbers]:
        return {name: vector for name, vector in self._arithmetic.values(self.samples).items() if np.ptp(vector)}

    def _polynomial(self, polynomial: Polynomial, sizes: Sequence[Any], what: str) -> Any:
        total: Any = None
        for indices, factor in polynomial.factors.items():
            if not factor:
                continue
            term: Any = None if indices else tf.constant(factor)
            for index in indices:
                if sizes[index] is None:
                    raise MlirError(what + ", in a function that doesn't have it")
                size = sizes[index]
                term = (size if factor == 1 else size * factor) if term is None else term * size
            total = term if total is None else total + term
        return tf.constant(0) if total is None else total

    def _divided(self, quotient: tuple[int, int, int], sizes: Sequence[Any], what: str) -> Any:
        index, add, divisor = quotient
        return tf.truncatediv(self._polynomial(Polynomial({(index,): 1, (): add}), sizes, what), divisor)

    def _emitted(self, name: str, sizes: Sequence[Any], what: str, done: dict[str, Any]) -> Any:
        """Returns an integer of the program, as ops."""
        if name in done:
            return done[name]
        step = self._arithmetic.steps[name]

        def operand(index: int) -> Any:
            return self._emitted(step.operands[index], sizes, what, done)

        if name in self._polynomials:
            made = self._polynomial(self._polynomials[name], sizes, what)
        elif quotient := _quotient(self._values[name], self._domain):
            made = self._divided(quotient, sizes, what)
        elif step.operation == "select":
            condition = self._values[step.operands[0]]
            if (condition == condition[0]).all():
                made = operand(1 if condition[0] else 2)
            else:
                made = tf.where(tf.not_equal(operand(0), 0), operand(1), operand(2))
        elif step.operation == "compare":
            made = tf.cast(_TF_COMPARISONS[step.direction](operand(0), operand(1)), tf.int32)
        else:
            assert step.operation in OPERATIONS, step
            made = _TF[step.operation](*(operand(index) for index in range(len(step.operands))))
        done[name] = made
        return made


_TF: Mapping[str, Callable[..., Any]] = {
    "abs": tf.abs,
    "add": tf.add,
    "and": tf.minimum,
    "clamp": lambda least, x, most: tf.minimum(tf.maximum(x, least), most),
    "convert": tf.identity,
    "divide": tf.truncatediv,
    "maximum": tf.maximum,
    "minimum": tf.minimum,
    "multiply": tf.multiply,
    "negate": tf.negative,
    "not": lambda x: 1 - x,
    "or": tf.maximum,
    "remainder": tf.truncatemod,
    "reshape": tf.identity,
    "sign": tf.sign,
    "subtract": tf.subtract,
    "xor": lambda a, b: tf.abs(a - b),
}
"""The operations on integers in TensorFlow. Logic is only for booleans, which are 0 and 1."""
_TF_COMPARISONS: Mapping[str, Callable[..., Any]] = {
    "EQ": tf.equal,
    "GE": tf.greater_equal,
    "GT": tf.greater,
    "LE": tf.less_equal,
    "LT": tf.less,
    "NE": tf.not_equal,
}


def _quotient(values: Numbers, points: Numbers) -> tuple[int, int, int] | None:
    """Returns the form `(size + add) // divisor` of numbers, of which XLA knows a bound, or None: size, add, divisor."""
    for index in range(points.shape[1]):
        size = points[:, index]
        for divisor in range(2, _DIVISOR + 1):
            add = int((values * divisor - size).max())
            if (size + add >= 0).all() and (values == (size + add) // divisor).all():
                return index, add, divisor
    return None


def _affine(values: Numbers, of: Numbers) -> tuple[int, int] | None:
    """Returns the whole numbers a and b with `values = a * of + b`, or None."""
    first, last = int(np.argmin(of)), int(np.argmax(of))
    run = int(of[last] - of[first])
    slope = int(values[last] - values[first]) // run if run else 0
    start = int(values[first]) - slope * int(of[first])
    return (slope, start) if slope and (values == slope * of + start).all() else None


def _text(value: Array) -> str:
    return repr(float(value)) if value.dtype.kind not in "iu" else str(int(value))


def _points(count: int, batch: int | bool) -> Numbers:
    """Returns combinations of sizes: small and large ones, independent and multiples of each other."""
    rng = np.random.default_rng(0)
    wide = np.rint(np.exp2(rng.uniform(0, np.log2(_MOST), (_POINTS, count)))).astype(np.int64)
    near = rng.integers(1, _LARGEST + 1, (_POINTS, count))
    base = rng.integers(1, _LARGEST // 2, (_POINTS, 1))
    related = base * rng.integers(1, 5, (_POINTS, count)) + rng.integers(-1, 2, (_POINTS, count)) * rng.integers(
        0, 2, (_POINTS, 1)
    )
    whole = 8 * rng.integers(1, _LARGEST // 8, (_POINTS, count))
    points = np.maximum(np.concatenate([np.ones((1, count), np.int64), near, wide, related, whole]), 1)
    if batch is not False:
        fixed = rng.permutation(len(points))[: len(points) // 2]
        points[fixed, batch] = rng.choice(_BATCHES, len(fixed))
        twins = points[fixed[: len(fixed) // 4]]
        twins[:, batch] = rng.choice(_BATCHES, len(twins))
        points = np.concatenate([points, twins])
    return np.asarray(points)


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines of a program with open sizes."""

    merged: tuple[str, ...]
    variants: tuple[tuple[str, ...], ...]
    """For each line, the same line for each of the samples."""


def differs(lines: Sequence[str], others: Sequence[str]) -> int:
    """Returns the number of the first line that differs from the other's in more than sizes and constants."""
    pairs = enumerate(zip(lines, others, strict=False))
    return next((number for number, (a, b) in pairs if _PARTS.sub("", a) != _PARTS.sub("", b)), len(lines) - 1)


def merge(programs: Sequence[Sequence[str]], places: Sequence[str] = ()) -> Lines:
    """Returns what the lines of a program for each sample have in common.

    Args:
      programs: the lines, for each sample.
      places: the user's line of each line, or nothing.

    Raises:
      MlirError: they differ in more than sizes and constants.
    """
    if len({len(lines) for lines in programs}) > 1:
        raise MlirError("error: the operations depend on open sizes, and not only their shapes")
    variants = tuple(zip(*programs, strict=True))
    return Lines(
        tuple(
            lines[0] if len({*lines}) == 1 or lines[0].startswith("module ") else _merged(lines, place)
            for lines, place in itertools.zip_longest(variants, places[: len(variants)], fillvalue="")
        ),
        variants,
    )


def _with_equal_padding(lines: Sequence[str]) -> Sequence[str]:
    """Returns convolutions with the largest of their paddings, if that changes no result: what follows the last window differs."""
    if "tf.Conv2D" not in lines[0] or len({match[0] for line in lines for match in _PADDING.finditer(line)}) < 3:
        return lines
    shapes = []
    for line in lines:
        (values, kernel), (result,) = mlir.statement([line], 0).types
        steps, dilations, pads = (
            [int(number) for number in re.findall(rf"{name} = \[([\d, ]*)\]", line)[0].split(",") if number]
            for name in ("strides", "dilations", "explicit_paddings")
        )
        for axis in (1, 2):
            size, count = values.shape[axis] or 0, result.shape[axis] or 0
            reach = ((kernel.shape[axis - 1] or 0) - 1) * dilations[axis] + 1
            same = max((count - 1) * steps[axis] + reach - size, 0) if '"SAME"' in line else 0
            before, after = pads[2 * axis : 2 * axis + 2] or (same // 2, same - same // 2)
            shapes.append((axis, size, count, steps[axis], reach, before, after))
    pads = [0] * 8
    for axis in (1, 2):
        own = [shape[1:] for shape in shapes if shape[0] == axis]
        before, after = own[0][4], max(shape[5] for shape in own)
        if any(
            shape[4] != before or (shape[0] + before + after - shape[3]) // shape[2] + 1 != shape[1] for shape in own
        ):
            return lines
        pads[2 * axis : 2 * axis + 2] = before, after
    text = f'explicit_paddings = {pads}, padding = "EXPLICIT"'
    return [_PADDING.sub("", line).replace("<{", "<{" + text + ", ", 1) for line in lines]


def _merged(lines: Sequence[str], place: str) -> str:
    lines = _with_equal_padding(lines)
    parts = [_PARTS.split(line) for line in lines]
    if len({len(part) for part in parts}) > 1 or len({tuple(part[::2]) for part in parts}) > 1:
        raise _more(lines[0], place)
    merged = list(parts[0])
    for index in range(1, len(merged), 2):
        texts = [part[index] for part in parts]
        if len({*texts}) > 1 and not texts[0].startswith("dense"):
            merged[index] = str(opened([Type.of(text) for text in texts]))
        elif len({*texts}) > 1 and not _CONSTANT.match(lines[0]):  # `constant` reads the variants of one
            raise _more(lines[0], place)
    return "".join(merged)


def _more(line: str, place: str) -> MlirError:
    what = f"error: an operation depends on open sizes in more than its shapes: {line.strip()[:120]}"
    return MlirError(what + (f", at {place}" if place else ""))


def opened(types: Sequence[Type]) -> Type:
    """Returns a type with the sizes open that differ."""
    if len({len(type_.shape) for type_ in types}) > 1:
        raise MlirError(f"error: the rank of {types[0]} depends on open sizes")
    shapes = zip(*(type_.shape for type_ in types), strict=True)
    return Type(types[0].element, tuple(sizes[0] if len({*sizes}) == 1 else None for sizes in shapes))
