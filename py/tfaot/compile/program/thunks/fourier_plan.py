"""Plans of Fourier transforms: how `runtime/tfaot/kernels/fourier.h` computes each of them, and all roots of unity."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tfaot.xla.marks import Kind

Method = Literal["Direct", "One", "Line", "Across", "Chirp", "ChirpAcross"]
Array = npt.NDArray[Any]

_ODD_RADICES = (9, 3, 5, 7, 11, 13)
_LEAST_NINE = 144
"""From this length on, one stage of 9 takes the place of two of 3."""
_LONGEST_DIRECT = 32
"""Up to this length, the definition takes fewer vectors than a convolution."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How to transform along one axis."""

    kind: Kind
    inverse: bool
    outer: int
    length: int
    inner: int
    scale: float
    widest: int
    """The values of a vector of the CPU level."""
    itemsize: int
    """The bytes of a real value."""

    @property
    def size(self) -> int:
        """The length of the complex transform that does the work."""
        return self.length // 2 if self.kind != "Complex" and self.length % 2 == 0 else self.length

    @functools.cached_property
    def method(self) -> Method:
        """The way that takes the least time."""
        radices = _radices(self.size)
        if self.inner > 1:
            return "ChirpAcross" if radices is None else "Across"
        many = self.outer >= self.widest
        if radices is None:
            return "Direct" if self.size <= _LONGEST_DIRECT else "Chirp"
        if self._narrowed and not (many and self.size < 4 * self.widest):
            return "One"
        if many and radices:
            return "Across"
        return "Line" if radices and self.size >= max(radices) * self._half else "Direct"

    @property
    def lanes(self) -> int:
        """The values of a vector that the runtime uses: all, or half of them."""
        if self.method == "Line":
            return self.widest if self.size >= max(self.radices) * self.widest else self._half
        return self._narrowed if self.method == "One" else self.widest

    @property
    def _half(self) -> int:
        """The values of half a vector."""
        return max(self.widest // 2, 16 // self.itemsize)

    @functools.cached_property
    def _narrowed(self) -> int:
        """The values of vectors that the length fills, or 0. There are whole groups of vectors, or many of them."""
        for lanes in (self.widest, self._half):
            parts, rest = divmod(self.size, lanes)
            if (
                not rest
                and (parts % lanes == 0 or parts >= 4 * lanes or lanes == self._half)
                and _radices(parts)
                and parts > 1
            ):
                return lanes
        return 0

    @functools.cached_property
    def padded(self) -> int:
        """The length of the convolution, or that of the transform."""
        if self.method not in ("Chirp", "ChirpAcross"):
            return self.size
        grain = self.lanes if self.method == "Chirp" else 1
        parts = -(-(2 * self.size - 1) // grain)
        return grain * next(n for n in range(parts, 2 * parts + 1) if _smooth(n))

    @property
    def radices(self) -> tuple[int, ...]:
        """The radix of each of Stockham's stages."""
        if self.method == "Direct":
            return ()
        within = self.method in ("One", "Chirp")
        radices = _radices(self.padded // self.lanes if within else self.padded)
        assert radices is not None
        return tuple(sorted(radices, reverse=True)) if self.method == "Line" else radices

    @property
    def values(self) -> int:
        """The number of complex values in memory."""
        return self.outer * self.inner * (self.length if self.kind == "Complex" else self.length // 2 + 1)

    @property
    def scratch(self) -> int:
        """The values of memory that a thread works in, a multiple of 64 bytes."""
        rows = min(self.widest, self.outer)
        count = {
            "Direct": 2 * self.size,
            "One": 4 * self.size,
            "Line": 4 * self.size,
            "Across": 4 * self.size * self.lanes,
            "Chirp": 6 * self.padded,
            "ChirpAcross": 4 * self.padded * self.lanes,
        }[self.method]
        if self.kind != "Complex" and self.length % 2:
            count += 2 * self.length * rows + self.widest
        return -(-count // 16) * 16

    @property
    def slots(self) -> int:
        """How many threads can work at once, in up to 4 MiB."""
        across = self.inner > 1 or self.method in ("Across", "ChirpAcross")
        width = self.widest if across else 1
        parts = self.outer * -(-self.inner // width) if self.inner > 1 else -(-self.outer // width)
        return max(1, min(parts, 16, (4 << 20) // (self.scratch * self.itemsize)))

    def roots(self) -> Array:
        """Returns what the runtime calls `roots`, in float64: pairs of real and imaginary parts, or vectors of both."""
        return np.concatenate([np.ravel(part) for part in self._roots()] or [np.zeros(0)])

    def _roots(self) -> Iterator[Array]:
        if self.kind != "Complex" and self.length % 2 == 0:
            yield _pairs(_unity(self.length, np.arange(self.size // 2 + self.widest)))
        if self.method == "Direct":
            index = np.arange(self.size)
            matrix = _unity(self.size, np.outer(index, index) % self.size)
            yield _vectors(_filled(matrix, self.lanes), self.lanes)
            return
        if self.method in ("Chirp", "ChirpAcross"):
            squares = np.array([n * n % (2 * self.size) for n in range(self.size)])
            chirp = _unity(2 * self.size, squares)
            kernel = np.zeros(self.padded, np.complex128)
            kernel[: self.size] = chirp.conj()
            kernel[self.padded - self.size + 1 :] = chirp[:0:-1].conj()
            yield _pairs(_filled(chirp, self.lanes if self.method == "Chirp" else 1))
            yield _pairs(np.fft.fft(kernel) / self.padded)
        left = math.prod(self.radices)
        for radix in self.radices:
            parts = left // radix
            roots = _pairs(_unity(left, np.outer(np.arange(parts), np.arange(1, radix))))
            first = self.method == "Line" and left == self.size
            yield roots.transpose(1, 2, 0) if first else roots
            left = parts
        if self.method in ("One", "Chirp"):
            # For each group of results, the roots of each lane but the first.
            parts = self.padded // self.lanes
            places = np.arange(-(-parts // self.lanes) * self.lanes).reshape(-1, 1, self.lanes)
            lanes = np.arange(1, self.lanes).reshape(1, -1, 1)
            yield _vectors(_unity(self.padded, places * lanes), self.lanes)


def along(kind: Kind, inverse: bool, batch: int, lengths: Sequence[int], lanes: int, itemsize: int) -> tuple[Plan, ...]:
    """Returns the transforms along one axis each that make up a transform in several dimensions.

    Args:
      kind: what to do with the last axis. The others are complex.
      inverse: whether it is an inverse transform, which divides by the number of values.
      batch: how many transforms there are.
      lengths: the sizes of the axes.
      lanes: the values of a vector of the CPU level.
      itemsize: the bytes of a real value.
    """
    row = lengths[-1] if kind == "Complex" else lengths[-1] // 2 + 1
    rows = batch * math.prod(lengths[:-1])
    plans = [Plan(kind, inverse, rows, lengths[-1], 1, 1 / lengths[-1] if inverse else 1.0, lanes, itemsize)]
    for axis in reversed(range(len(lengths) - 1)):
        inner = row * math.prod(lengths[axis + 1 : -1])
        outer = batch * math.prod(lengths[:axis])
        scale = 1 / lengths[axis] if inverse else 1.0
        plans.append(Plan("Complex", inverse, outer, lengths[axis], inner, scale, lanes, itemsize))
    return tuple(
        plan
        for plan in (plans[::-1] if kind == "ComplexToReal" else plans)
        if plan.length > 1 or plan.kind != "Complex"
    )


def _smooth(number: int) -> bool:
    for prime in (2, 3, 5):
        while number % prime == 0:
            number //= prime
    return number == 1


@functools.cache
def _radices(length: int) -> tuple[int, ...] | None:
    """Returns the radices of a length's stages, or None if it has another prime factor."""
    radices, odd = [], _ODD_RADICES if length >= _LEAST_NINE else _ODD_RADICES[1:]
    twos = (length & -length).bit_length() - 1
    length >>= twos
    while twos:
        bits = 2 if twos in (2, 4) else min(3, twos)
        radices.append(1 << bits)
        twos -= bits
    for radix in odd:
        while length % radix == 0:
            radices.append(radix)
            length //= radix
    return tuple(radices) if length == 1 else None


def _unity(order: int, powers: Array) -> Array:
    """Returns exp(-2πi · power / order), with errors below those of float64's sine."""
    turns = np.remainder(powers, order) / order
    eighth = np.rint(8 * turns)
    rest = 2 * np.pi * (turns - eighth / 8)
    base = np.exp(-1j * rest)
    half = np.sqrt(0.5)
    eighths = np.array([1, half - half * 1j, -1j, -half - half * 1j, -1, -half + half * 1j, 1j, half + half * 1j])
    rotated: Array = base * eighths[eighth.astype(int) % 8]
    return rotated


def _pairs(values: Array) -> Array:
    return np.stack([values.real, values.imag], -1)


def _vectors(values: Array, lanes: int) -> Array:
    """Returns vectors of real parts and of imaginary parts in turns."""
    parts = values.reshape(*values.shape[:-1], -1, 1, lanes)
    return np.concatenate([parts.real, parts.imag], -2)


def _filled(values: Array, lanes: int) -> Array:
    """Fills up the last axis with zeros to whole vectors."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % lanes)])
