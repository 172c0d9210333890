"""Kernels of XLA's that only finish what a product or a convolution has computed: bias, sum with another value, bounds.

Such a kernel goes over all values once more, which for a convolution's few operations a value costs as much as a sixth of it.
Our products and convolutions do the same to their sums while these are in the nearest cache. What a kernel computes is in the
compiler's optimized HLO, under the name that its symbol is made of. It is read strictly: whatever is not exactly what a
`Finish` stands for remains a kernel.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterator, Mapping

from tfaot.compile.program.thunks import (
    SIZES,
    Buffer,
    Call,
    CompiledFunction,
    Conditional,
    Convolution,
    Dot,
    Epilogue,
    For,
    Kernel,
    SizedSlice,
    Slice,
    Thunk,
    While,
    slices,
    walk,
)
from tfaot.core import environment

_NARROW, _ROWS = 8, 64
"""Of fewer columns than a vector has values, and more rows than these, each row's finish costs more than a kernel over all."""
_SUFFIX = ".cpu_after_optimizations.txt"
"""How the name of the file ends to which XLA writes the optimized HLO."""


@dataclasses.dataclass(frozen=True)
class Finish:
    """What a kernel does to each value, as `thunks.Epilogue` says. Arguments are given by their indices."""

    value: int
    bias: int | None
    """Has a value for each column, the last dimension, as `addend_bias`."""
    addend: int | None
    """Has as many values as the result."""
    addend_bias: int | None
    low: float
    high: float
    columns: int
    arguments: int
    """How many there are; the last is the result."""


_COMPUTATION = re.compile(r"^(?:ENTRY )?%(\S+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(
    r"^  (?P<root>ROOT )?%(?P<name>\S+) = f(?:32|64)\[(?P<shape>[\d,]*)\](?:\{(?P<layout>[\d,]*)\})? "
    r"(?P<opcode>[\w-]+)\((?P<operands>[^()]*)\)(?P<rest>.*)$"
)
_MODULE = re.compile(r"^HloModule ([^\s,]+)")
_CALLS = re.compile(r", kind=kLoop, calls=%([^\s,]+)")
_DIMENSIONS = re.compile(r"^, dimensions=\{([\d,]*)\}")
_SKIPPED = frozenset({"metadata", "frontend_attributes", "backend_config"})


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    shape: tuple[int, ...]
    opcode: str
    operands: tuple[str, ...]
    """Names; of a parameter its number, of a constant its value."""
    rest: str

    @property
    def count(self) -> int:
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class _Computation:
    instructions: Mapping[str, _Instruction]
    root: str
    complete: bool
    """Whether every line was an instruction that is known here."""


# What an instruction of a kernel is, as far as it can be a part of an epilogue.
@dataclasses.dataclass(frozen=True)
class _Scalar:
    value: float


@dataclasses.dataclass(frozen=True)
class _Row:
    """A parameter with a value for each column."""

    parameter: int


@dataclasses.dataclass(frozen=True)
class _Full:
    """A parameter of the result's size, or a sum of two and their biases.

    `ways` are those to see it as (value + bias) + (addend + addend_bias).
    """

    ways: tuple[tuple[int, int | None, int | None, int | None], ...]
    low: float = -math.inf
    high: float = math.inf

    @property
    def bounded(self) -> bool:
        return self.low != -math.inf or self.high != math.inf


_Value = _Scalar | _Row | _Full


def flags(folder: str) -> tuple[str, ...]:
    """Flags for XLA to write the optimized HLO to a folder, without the constants' values."""
    return environment.xla_flag("xla_dump_to", folder), "--xla_dump_hlo_as_text"


def read(folder: str) -> dict[str, tuple[Finish, ...]]:
    """What `finishes` says of the HLO in a folder; nothing where XLA was told to write it elsewhere."""
    found: dict[str, tuple[Finish, ...]] = {}
    for name in os.listdir(folder):
        if name.endswith(_SUFFIX):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found |= finishes(file.read())
    return found


def finishes(hlo: str) -> dict[str, tuple[Finish, ...]]:
    """The kernels of a module that have one result, their last argument, and the ways in which each finishes a value, if any.

    Args:
      hlo: the text of a module after XLA's optimizations.

    Returns:
      Ways by the kernel's symbol. Other kernels may have any number of results.
    """
    module = _MODULE.match(hlo)
    computations = _computations(hlo)
    found: dict[str, tuple[Finish, ...]] = {}
    twice = set()
    for computation in computations.values():
        for instruction in computation.instructions.values():
            called = _CALLS.match(instruction.rest) if instruction.opcode == "fusion" else None
            if not module or not called:
                continue
            symbol = re.sub(r"\W", "_", f"{module[1]}_{instruction.name}")
            if symbol in found:
                twice.add(symbol)  # two names became one
            found[symbol] = _finishes(computations[called[1]])
    return {symbol: ways for symbol, ways in found.items() if symbol not in twice}


def attach(function: CompiledFunction, known: Mapping[str, tuple[Finish, ...]]) -> CompiledFunction:
    """Makes kernels a part of the products and convolutions that they follow at once.

    Args:
      function: as tfcompile's header has it
      known: what `finishes` says of its kernels

    Returns:
      A function with the same results; it may have one buffer more.
    """
    attacher = _Attacher(len(function.buffers), known)
    sequence = attacher.sequence(function.thunks)
    staging = (Buffer(attacher.bytes, "temp", None, None),) if attacher.bytes else ()
    temporary = {
        index
        for index, buffer in enumerate(function.buffers)
        if buffer.kind == "temp" and index not in function.results
    }
    in_place = tuple(_in_place(thunk, sequence[index + 1 :], known, temporary) for index, thunk in enumerate(sequence))
    return dataclasses.replace(function, buffers=function.buffers + staging, thunks=in_place)


def count(function: CompiledFunction) -> int:
    """How many products and convolutions have an epilogue."""
    return sum(isinstance(each, Dot | Convolution) and each.epilogue is not None for each in walk(function.thunks))


def _in_place(
    thunk: Thunk, after: tuple[Thunk, ...], known: Mapping[str, tuple[Finish, ...]], temporary: set[int]
) -> Thunk:
    """Lets a product be written to where its epilogue's result goes, if nobody reads it without the epilogue."""
    if not isinstance(thunk, Dot | Convolution) or not thunk.epilogue or thunk.out.buffer not in temporary:
        return thunk
    to = thunk.epilogue.out
    if thunk.epilogue.addend == to or _is_read(slices(thunk)[0], after, known):
        return thunk
    return dataclasses.replace(thunk, out=to)


def _is_read(place: tuple[Slice, int], after: tuple[Thunk, ...], known: Mapping[str, tuple[Finish, ...]]) -> bool:
    """Whether what is written at a place may be read before it is all overwritten."""
    rest = [place]
    for thunk in after:
        reads, writes = _accesses(thunk, known)
        if any(_overlap(each, read) for each in rest for read in reads):
            return True
        rest = [part for each in rest for part in _without(each, writes)]
        if not rest:
            return False
    return False


def _accesses(
    thunk: Thunk, known: Mapping[str, tuple[Finish, ...]]
) -> tuple[list[tuple[Slice, int]], list[tuple[Slice, int]]]:
    """What a thunk may read, and all that it writes if that is known; else the latter is empty, and the former has all."""
    reads = [each for inner in walk((thunk,)) for each in slices(inner)]
    if isinstance(thunk, Dot | Convolution):
        writes = [reads.pop(0)]
        if thunk.epilogue:
            writes.append(reads.pop(2))  # after the operands
        return reads, writes
    if isinstance(thunk, Kernel) and thunk.symbol in known:
        return reads[:-1], reads[-1:]
    return reads, []


def _may_move(kernel: Kernel, thunk: Thunk, known: Mapping[str, tuple[Finish, ...]]) -> bool:
    """Whether a kernel with one result may run before a thunk that it follows."""
    *reads, result = ((arg.slice, arg.size) for arg in kernel.args)
    others, writes = _accesses(thunk, known)
    # Of a thunk whose results are not known, all that it uses may be one.
    written = writes or others
    return not any(_overlap(result, each) for each in (*others, *writes)) and not any(
        _overlap(read, each) for read in reads for each in written
    )


def _without(place: tuple[Slice, int], writes: list[tuple[Slice, int]]) -> list[tuple[Slice, int]]:
    """What is left of a place."""
    left = [place]
    for written in writes:
        parts = []
        for at, size in left:
            if not _overlap((at, size), written):
                parts.append((at, size))
                continue
            first, last = written[0].offset, written[0].offset + written[1]
            parts += [(at, first - at.offset), (Slice(at.buffer, last), at.offset + size - last)]
        left = [(at, size) for at, size in parts if size > 0]
    return left


class _Attacher:
    """Where a kernel's result overlaps the product's input, the input is put into a buffer of its own.

    The compiler lets it overlap if nothing reads the input any more once the kernel runs. It can be put elsewhere if what comes
    just before the product is of ours, too, and makes the input.
    """

    def __init__(self, staging: int, known: Mapping[str, tuple[Finish, ...]]) -> None:
        self._staging = Slice(staging, 0)
        self._known = known
        self.bytes = 0

    def sequence(self, sequence: tuple[Thunk, ...]) -> tuple[Thunk, ...]:
        result: list[Thunk] = []
        for thunk in sequence:
            if not (isinstance(thunk, Kernel) and self._known.get(thunk.symbol) and self._attach(thunk, result)):
                result.append(self._within(thunk))
        return tuple(result)

    def _attach(self, kernel: Kernel, result: list[Thunk]) -> bool:
        """Makes a kernel a part of a product among those that come before it, if it can be."""
        for index in reversed(range(len(result))):
            product = result[index]
            if isinstance(product, Dot | Convolution) and not product.epilogue:
                if epilogue := self._epilogue(product, kernel):
                    result[index] = dataclasses.replace(product, epilogue=epilogue)
                    return True
                # Others in between may read the input.
                before = result[index - 1] if index and product is result[-1] else None
                if isinstance(before, Dot | Convolution) and (both := self._staged(before, product, kernel)):
                    result[index - 1 : index + 1] = both
                    return True
            if not _may_move(kernel, product, self._known):
                return False
        return False

    def _within(self, thunk: Thunk) -> Thunk:
        if isinstance(thunk, Call | For):
            return dataclasses.replace(thunk, body=self.sequence(thunk.body))
        if isinstance(thunk, While):
            return dataclasses.replace(thunk, condition=self.sequence(thunk.condition), body=self.sequence(thunk.body))
        if isinstance(thunk, Conditional):
            return dataclasses.replace(thunk, branches=tuple(map(self.sequence, thunk.branches)))
        return thunk

    def _staged(
        self, before: Dot | Convolution, product: Dot | Convolution, kernel: Kernel
    ) -> tuple[Dot | Convolution, Dot | Convolution] | None:
        _, *reads = slices(product)
        # A product of columns has the rows on its right side.
        place = product.rhs if isinstance(product, Dot) else product.input
        inputs = [each for each in reads if each[0] == place]
        if before.epilogue is None or inputs != [(before.epilogue.out, slices(before)[0][1])]:
            return None
        (moved,) = inputs
        others = [each for each in reads if each[0] != place]
        others += [(arg.slice, arg.size) for arg in kernel.args[:-1]]
        if any(_overlap(moved, other) for other in others):
            return None
        if any(at.buffer == self._staging.buffer for at, _ in slices(before)):
            return None
        there: Dot | Convolution
        if isinstance(product, Dot):
            there = dataclasses.replace(product, rhs=self._staging)
        else:
            there = dataclasses.replace(product, input=self._staging)
        epilogue = self._epilogue(there, kernel)
        if epilogue is None:
            return None
        self.bytes = max(self.bytes, moved[1])
        to_staging = dataclasses.replace(before.epilogue, out=self._staging)
        return dataclasses.replace(before, epilogue=to_staging), dataclasses.replace(there, epilogue=epilogue)

    def _epilogue(self, product: Dot | Convolution, kernel: Kernel) -> Epilogue | None:
        """What a kernel does to the result of the product just before it, if our code can do it as well."""
        if product.dtype not in ("float", "double"):
            return None
        (out, size), *operands = slices(product)
        columns = product.m if isinstance(product, Dot) else product.filters
        if columns < _NARROW and size > SIZES[product.dtype] * columns * _ROWS:
            return None
        args = kernel.args
        for way in self._known.get(kernel.symbol, ()):
            to = args[-1].slice
            biases = [args[index] for index in (way.bias, way.addend_bias) if index is not None]
            addends = [args[index] for index in (way.addend,) if index is not None]
            if (
                len(args) != way.arguments
                or args[way.value] != SizedSlice(out, size)
                or any(each.size != size for each in (*addends, args[-1]))
                or way.columns != columns
                or any(each.size != SIZES[product.dtype] * columns for each in biases)
            ):
                continue
            # Values are finished while others are still computed: what is read must not be written before.
            written = [(out, size)] if to == out else [(out, size), (to, size)]
            read = [*operands, *((each.slice, each.size) for each in (*biases, *addends) if each.slice != to)]
            if any(_overlap(a, b) for a in written for b in read) or (len(written) == 2 and _overlap(*written)):
                continue
            if any(each.slice == to for each in biases) or any(each.slice == out for each in addends):
                continue

            def at(index: int | None) -> Slice | None:
                return None if index is None else args[index].slice

            return Epilogue(at(way.bias), at(way.addend), at(way.addend_bias), to, way.low, way.high)
        return None


def _overlap(a: tuple[Slice, int], b: tuple[Slice, int]) -> bool:
    (one, size), (other, other_size) = a, b
    return one.buffer == other.buffer and one.offset < other.offset + other_size and other.offset < one.offset + size


def _computations(hlo: str) -> dict[str, _Computation]:
    found = {}
    lines = iter(hlo.splitlines())
    for line in lines:
        if match := _COMPUTATION.match(line):
            found[match[1]] = _computation(lines)
    return found


def _computation(lines: Iterator[str]) -> _Computation:
    instructions: dict[str, _Instruction] = {}
    root, complete = "", True
    for line in lines:
        if line == "}":
            break
        match = _INSTRUCTION.match(line)
        # Only the default layout, whose last index is adjacent in memory.
        shape = _numbers(match["shape"]) if match else ()
        if not match or (match["layout"] or "") != ",".join(map(str, reversed(range(len(shape))))):
            complete = False
            continue
        operands = tuple(operand.strip().removeprefix("%") for operand in match["operands"].split(","))
        instruction = _Instruction(match["name"], shape, match["opcode"], operands, match["rest"])
        instructions[instruction.name] = instruction
        if match["root"]:
            root = instruction.name
    return _Computation(instructions, root, complete)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _finishes(computation: _Computation) -> tuple[Finish, ...]:
    """The ways to see a kernel's computation as a `Finish`; none if it is something else."""
    root = computation.instructions.get(computation.root)
    # Another shape of what is in rows already, as a flattening is: columns are those before it.
    while root is not None and root.opcode == "bitcast":
        root = computation.instructions.get(root.operands[0])
    if not computation.complete or root is None or not root.shape:
        return ()
    columns, count = root.shape[-1], root.count
    values: dict[str, _Value | None] = {}
    for instruction in computation.instructions.values():
        operands = [values.get(operand) for operand in instruction.operands]
        values[instruction.name] = _value(instruction, operands, columns, count)
    result = values[root.name]
    if not isinstance(result, _Full) or not result.low <= result.high:
        return ()
    arguments = sum(each.opcode == "parameter" for each in computation.instructions.values()) + 1
    return tuple(Finish(*way, result.low, result.high, columns, arguments) for way in result.ways)


def _value(instruction: _Instruction, operands: list[_Value | None], columns: int, count: int) -> _Value | None:
    """What an instruction is, for a result of so many columns and values; None for what is not known here."""
    shape = instruction.shape
    whole = bool(shape) and shape[-1] == columns and instruction.count == count
    first = operands[0]
    if instruction.opcode == "parameter":
        number = int(instruction.operands[0])
        if whole:
            return _Full(((number, None, None, None),))
        return _Row(number) if instruction.count == columns else None
    if instruction.opcode == "constant" and not shape:
        constant = float(instruction.operands[0])
        return None if math.isnan(constant) else _Scalar(constant)
    if instruction.opcode == "bitcast":
        fits = (isinstance(first, _Full) and whole) or (isinstance(first, _Row) and instruction.count == columns)
        return first if fits else None
    if instruction.opcode == "broadcast":
        dimensions = _DIMENSIONS.match(instruction.rest)
        if isinstance(first, _Scalar):
            return first
        along_columns = dimensions and _numbers(dimensions[1]) == (len(shape) - 1,)
        return first if isinstance(first, _Row) and whole and along_columns else None
    if not whole:
        return None
    if instruction.opcode == "add":
        return _sum(first, operands[1])
    if instruction.opcode == "clamp":
        return _bounded(operands[1], first, operands[2])
    if instruction.opcode in ("maximum", "minimum"):
        value, bound = (operands[1], first) if isinstance(first, _Scalar) else (first, operands[1])
        if instruction.opcode == "maximum":
            return _bounded(value, bound, _Scalar(math.inf))
        return _bounded(value, _Scalar(-math.inf), bound)
    return None


def _sum(a: _Value | None, b: _Value | None) -> _Value | None:
    if isinstance(a, _Row):
        a, b = b, a
    if not isinstance(a, _Full) or a.bounded:
        return None
    ways: list[tuple[int, int | None, int | None, int | None]]
    # Two terms may change places; of more, the order is kept, since rounding depends on it.
    if isinstance(b, _Row):
        ways = [(value, b.parameter, None, None) for value, bias, addend, _ in a.ways if bias is addend is None]
    elif isinstance(b, _Full) and not b.bounded:
        ways = [
            (value, bias, other, other_bias)
            for one, two in ((a, b), (b, a))
            for value, bias, addend, _ in one.ways
            for other, other_bias, other_addend, _ in two.ways
            if addend is other_addend is None and value != other
        ]
    else:
        return None
    return _Full(tuple(ways)) if ways else None


def _bounded(value: _Value | None, low: _Value | None, high: _Value | None) -> _Value | None:
    if not isinstance(value, _Full) or not isinstance(low, _Scalar) or not isinstance(high, _Scalar):
        return None
    return _Full(value.ways, low.value, high.value) if not value.bounded else None
