"""A compiled program as text: what can be broken in it, and the same program with a switch for each fault.

It parses `executor.cc` as `tfaot.compile.program.codegen.executor` writes it. An unknown statement is an error: an impossible
fault must not look like one that was caught.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

KINDS = (
    "none",
    "rounding",
    "skip",
    "bias",
    "addend",
    "bound",
    "padding",
    "scale",
    "zero",
    "transpose",
    "swap_rows",
    "swap_columns",
    "swap_results",
    "exchange",
    "trips",
    "narrow",
    "drop_row",
    "drop_column",
    "unmask",
    "off_by_one",
    "state",
    "flip",
)
"""Numbered like `Kind` in mutation.h."""

SCALE = 1.001
FLOATS = {"float32": "f", "float64": "d"}
_DTYPES = {"float": "f", "double": "d"}
_BYTES = {"f": 4, "d": 8}

_PLACE = re.compile(r"b\[(\d+)\] \+ (\d+)")
_KERNEL = re.compile(r"^if \((\w+)\(calls \+ (\d+)\) != nullptr\) return false;$")
_WORKGROUPS = re.compile(r"^if \(!::tfaot::RunWorkgroups\(&(\w+), calls\[(\d+)\]\)\) return false;$")
_SWEEP = re.compile(
    r"^kernels::Run(?:Row)?Sweep<((?:Row)?Formula\d+)>\(\d+, \{([^}]*)\}, (?:\{[^}]*\}, )+instance\.threads\);$"
)
_FORMULA = re.compile(r"^struct ((?:Row)?Formula\d+) \{\n(.*?)^\};", re.DOTALL | re.MULTILINE)
_PUT = re.compile(r"kernels::Put<\w+>\(arrays\[(\d+)\]")
_FIXED = re.compile(
    r"^kernels::TFAOT_ISA::Run(Softmax|RowCopies|FilterGradient|Pack|Fourier|Linear)<(?:float|double)>\(.*\);$"
)
_COPY = re.compile(r"^std::memcpy\((b\[.*), (b\[.*), (\d+)\);$")
_FOR = re.compile(r"^for \(std::int64_t i = 0; i < (\d+); \+\+i\) \{$")
_PRODUCT = re.compile(
    r"^(kernels::[\w:]*Run(?:Plain)?(Products|Convolution|Winograd|Stream)<([\w:<>]+)>)\((k\w+)\[(\d+)\], (.*)\);$"
)
_SUMS = re.compile(r"^(kernels::TFAOT_ISA::RunColumnSums<float>\(\{(\d+), (\d+), (\d+), [^}]*\}, )([^,]*)(, .*)$")
_OTHER = re.compile(
    r"^(\}|\{|for \(;;\) \{|if \(\*\(b\[\d+\] \+ \d+\) == 0\) break;|break;|switch \(.*\) \{|(case \d+|default): \{|return true;"
    r"|unsigned char\* const values\[\] = \{.*\};|static constexpr std::size_t kSizes\[\] = \{.*\};"
    r"|::tfaot::(Sort|TopK|NextRngState)\(.*|instance\.scratch\);"
    r"|kernels::RunDenseNet\(|kernels::Dense<.*\}[,)];?"
    r"|unsigned char\* const\* const b = instance\.buffers;|const ::tfaot::KernelCall\* const calls = instance\.calls;"
    r"|static_cast<void>\((b|calls)\);|)$"
)


_HOOK = re.compile(r'^(::tfaot::Step<kHooked> step\(instance\);|if \(!step\(".*"\)\) return false;|step\.Finish\(\);)$')


class Unknown(Exception):
    """Text that py/tfaot/compile/program/codegen/executor.py doesn't write."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of the program: an input or a variable."""

    name: str
    dtype: str
    """As the compiler sees it."""
    shape: tuple[int, ...]
    bytes: int
    variable: bool
    written: bool


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One fault."""

    name: str
    """The class that it counts for."""
    where: str
    """For people: the statement, and what else distinguishes it."""
    isa: str
    kind: str
    site: int
    operand: int = -1
    dtype: str = "f"
    count: int = 0
    rows: int = 0
    columns: int = 0
    a: int = 0
    b: int = 0
    value: float = 0.0

    @property
    def line(self) -> str:
        """Returns the driver's input line."""
        numbers = (self.count, self.rows, self.columns, self.a, self.b)
        # iostreams can neither write nor read an infinity. For a bound of floats, the largest value is equivalent.
        value = max(-1e300, min(1e300, self.value))
        return f"{self.isa} {KINDS.index(self.kind)} {self.site} {self.operand} {self.dtype} " + " ".join(
            map(str, (*numbers, repr(value)))
        )


@dataclasses.dataclass(frozen=True)
class _Place:
    buffer: int
    offset: int


@dataclasses.dataclass(frozen=True)
class _Read:
    """A kernel's operand. What can be broken depends on what it holds when the program runs."""

    where: str
    site: int
    operand: int
    bytes: int
    reduced: bool
    """Whether the kernel reduces it."""


class Program:
    """One `executor.cc`: the code of an entry point, for one batch size and one CPU level."""

    def __init__(
        self,
        text: str,
        *,
        isa: str,
        name: str,
        first_site: int,
        arguments: Sequence[Argument],
        runs: int,
        constant_bytes: Mapping[str, int],
        is_float: Callable[[str], bool],
    ) -> None:
        """Parses the text.

        Args:
          text: the file's text.
          isa: the level.
          name: the entry point and batch, for people; can be empty.
          first_site: the program's own number. Those of its statements follow.
          arguments: the program's arguments, in order.
          runs: how often the generated test calls it.
          constant_bytes: sizes of the constants, by symbol.
          is_float: whether a symbol's constant seems to contain floats.

        Raises:
          Unknown: the text contains an unknown statement.
        """
        self._text, self._isa, self._name = text, isa, name
        self._arguments, self._runs = arguments, runs
        self._constant_bytes, self._is_float = constant_bytes, is_float
        self._site = self._first_site = first_site
        self._products = [_numbers(line) for line in _table(text, "kProducts")]
        self._images = [_numbers(line) for line in _table(text, "kImages")]
        self._constants = [line.partition(" ")[0] for line in _table(text, "kConstants")]
        self._memory = len(_table(text, "kMemory"))
        self._args = [_numbers(line) for line in _table(text, "kKernelArgs")]
        counts = [_numbers(line)[3] for line in _table(text, "kCalls")]
        self._first_arg = [sum(counts[:index]) for index in range(len(counts) + 1)]
        self._formulas = {name: [*map(int, _PUT.findall(body))] for name, body in _FORMULA.findall(text)}
        """The arrays that each formula writes."""
        self._reads: list[_Read] = []
        self._mutants: list[Mutant] = []
        self.mutated = self._rewritten()
        """The text, with switches."""
        self._exchanges()
        self._starts()

    @property
    def sites(self) -> int:
        """Returns the first number without a statement."""
        return self._site + 1

    @property
    def mutants(self) -> Sequence[Mutant]:
        """Returns every possible fault."""
        return self._mutants

    def survey(self, held: Mapping[tuple[int, int], str]) -> None:
        """Adds the faults of operands whose contents are known, by site and operand. mutation.h lists the letters."""
        last = self._site
        for read in self._reads:
            letter, self._site = held.get((read.site, read.operand), "-"), read.site
            width = 1 if letter == "b" else 4
            where = f"{read.where}, operand {read.operand}"
            dtype = letter if letter in "bi" else "f"
            rest = {"operand": read.operand, "dtype": dtype, "count": read.bytes // width}
            drawn = random.Random(f"{where} {read.site}").randrange(1 << 16)
            if letter in "bm":
                self._add("use a masked element", where, "unmask", **rest, a=drawn)  # type: ignore[arg-type]
            if letter in "ic":
                name = {"i": "an index off by one", "c": "a float count off by one"}[letter]
                self._add(name, where, "off_by_one", **rest, a=drawn)  # type: ignore[arg-type]
            if letter in "mcf" and read.reduced and read.bytes > width:
                shape = {"rows": 1, "columns": read.bytes // width, "a": read.bytes // width - 1}
                self._add("reduce over n - 1", where, "drop_column", **rest, **shape)  # type: ignore[arg-type]
        self._site = last

    def _rewritten(self) -> str:
        head, body = self._text.split("template <bool kHooked>\nbool Run(const ::tfaot::Instance& instance) {\n", 1)
        body, tail = body.split("\n}\n", 1)
        lines = [self._line(line) for line in body.split("\n")]
        head = head.replace("\n#include", '\n#include "mutation.h"\n#include', 1)
        declared = re.search(r"^extern const ::tfaot::Program (\w+);\n", tail, re.MULTILINE)
        if declared is None or "    &Run<false>,\n    &Run<true>,\n" not in tail:
            raise Unknown("an executor without its Program")
        switch = (
            "static bool Switched(const ::tfaot::Instance& instance) {\n"
            f"  return ::tfaot::mutants::Run({self._first_site}, instance, {declared[1]}, &Run);\n}}\n"
        )
        tail = tail[: declared.end()] + switch + tail[declared.end() :]
        tail = tail.replace("    &Run<false>,\n    &Run<true>,\n", "    &Switched,\n    &Switched,\n")
        return (
            head + "namespace M = ::tfaot::mutants;\nbool Run(const ::tfaot::Instance& instance) {\n" + "\n".join(lines)
        ) + ("\n}\n" + tail)

    def _line(self, line: str) -> str:
        text = line.strip()
        if _HOOK.match(text):
            return ""
        if match := _KERNEL.match(text) or _WORKGROUPS.match(text):
            return self._kernel(text, match[1], int(match[2]))
        if match := _PRODUCT.match(text):
            return self._product(*match.groups())
        if match := _SWEEP.match(text):
            self._site += 1
            arrays = _split(match[2])
            self._skip(match[0], [_place(arrays[index]) for index in self._formulas[match[1]]])
            return f"if (M::Runs({self._site})) {text}"
        if match := _FIXED.match(text):
            self._site += 1
            self._skip(match[1], [_Place(*map(int, _PLACE.findall(text)[-1]))])
            return f"if (M::Runs({self._site})) {text}"
        if match := _COPY.match(text):
            self._site += 1
            self._skip(f"copy of {match[3]} bytes", [_place(match[1])])
            return f"if (M::Runs({self._site})) {text}"
        if match := _SUMS.match(text):
            self._site += 1
            count, rows, columns = map(int, match.groups()[1:4])
            matrices = {"operand": 0, "dtype": "f", "count": count * rows * columns}
            self._shorter(f"sums of {rows} rows", rows, columns, matrices, by_rows=True)
            return f"{match[1]}M::Operand({self._site}, 0, {match[5]}){match[6]}"
        if match := _FOR.match(text):
            self._site += 1
            trips = int(match[1])
            self._add("a turn of a loop fewer", f"loop of {trips}", "trips", a=trips - 1)
            return f"for (std::int64_t i = 0; i < M::Trips({self._site}, {trips}); ++i) {{"
        if _OTHER.match(text):
            return text
        raise Unknown(f"unknown statement: {text}")

    def _add(self, name: str, where: str, kind: str, **rest: float) -> None:
        place = f"{self._name}, {where}" if self._name else where
        self._mutants.append(Mutant(name, place, self._isa, kind, self._site, **rest))  # type: ignore[arg-type]

    def _skip(self, where: str, outs: Sequence[_Place]) -> None:
        written = [self._arguments[out.buffer].name for out in outs if self._is_written(out.buffer)]
        if written:
            self._add("skip an update", f"{where}, which writes {', '.join(written)}", "skip")
        else:
            self._add("skip another call", where, "skip")

    def _is_written(self, buffer: int) -> bool:
        return buffer < len(self._arguments) and self._arguments[buffer].written

    def _kernel(self, text: str, symbol: str, call: int) -> str:
        self._site += 1
        where = f"{symbol.rpartition('x86_64_v')[2][2:] or symbol}, call {call}"
        args = self._args[self._first_arg[call] : self._first_arg[call + 1]]
        places = [_Place(buffer, offset) for offset, _, buffer in args]
        # XLA's kernels have their results last. What is written in place is also among the operands.
        outs = [place for index, place in enumerate(places) if place in places[:index]] or places[-1:]
        self._skip(where, outs)
        for operand, (offset, size, buffer) in enumerate(args):
            place = places[operand]
            if place in places[:operand] or (place in outs and places.count(place) == 1):
                continue
            reduced = "reduce" in symbol and size > args[-1][1]
            self._reads.append(_Read(where, self._site, operand, size, reduced))
            if offset:
                continue
            if buffer < len(self._arguments) and self._arguments[buffer].variable:
                argument = self._arguments[buffer]
                if argument.dtype not in FLOATS:
                    continue
                self._weight(where, operand, argument.name, FLOATS[argument.dtype], argument.shape)
            elif (symbol_ := self._constant(buffer)) and self._is_float(symbol_):
                count = self._constant_bytes[symbol_] // 4
                if count >= 8:
                    self._inexact(f"{where}, constant {count}", {"operand": operand, "count": count})
        called = f"M::Call({self._site}, calls + {call})"
        if "RunWorkgroups" in text:
            return f"if (M::Runs({self._site}) && !::tfaot::RunWorkgroups(&{symbol}, *{called})) return false;"
        return f"if (M::Runs({self._site}) && {symbol}({called}) != nullptr) return false;"

    def _weight(self, where: str, operand: int, name: str, dtype: str, shape: Sequence[int]) -> None:
        """Adds faults for a variable that an XLA kernel reads."""
        where = f"{where}, {name}"
        count = 1
        for size in shape:
            count *= size
        columns = shape[-1] if shape else 1
        rest = {"operand": operand, "dtype": dtype, "count": count}
        if len(shape) == 1 and count > 1:
            self._add("drop a bias", where, "zero", **rest)  # type: ignore[arg-type]
        if len(shape) >= 2:
            self._matrix(where, count // columns, columns, rest)

    def _inexact(self, where: str, rest: Mapping[str, object]) -> None:
        scaled: dict[str, object] = {**rest, "value": SCALE}
        self._add("scale a kernel by 1.001", where, "scale", **scaled)  # type: ignore[arg-type]
        self._add("round a weight to 8 bits", where, "narrow", **rest)  # type: ignore[arg-type]

    def _matrix(
        self, where: str, rows: int, columns: int, rest: Mapping[str, object], transposed: bool = False
    ) -> None:
        """Adds faults for an operand of matrices. The filters are columns, or rows if it is transposed."""
        self._inexact(where, rest)
        shape: dict[str, object] = {**rest, "rows": rows, "columns": columns}
        if rows > 1 and columns > 1:
            self._add("transpose a weight", where, "transpose", **shape)  # type: ignore[arg-type]
        filters = rows if transposed else columns
        if filters > 1:
            kind = "swap_rows" if transposed else "swap_columns"
            for a, b in _pairs(filters, where):
                self._add("swap two filters", f"{where}, {a} and {b}", kind, **{**shape, "a": a, "b": b})  # type: ignore[arg-type]

    def _constant(self, buffer: int) -> str:
        index = buffer - len(self._arguments) - self._memory
        return self._constants[index] if index >= 0 else ""

    def _product(self, function: str, kind: str, cpp: str, table: str, index: str, rest: str) -> str:
        self._site += 1
        site, dtype = self._site, _DTYPES.get(cpp, "-")
        operands, epilogue = _split(rest), ""
        if operands[-1].startswith("{"):
            epilogue = operands.pop()
        places = [_place(operand) for operand in operands[:3]]
        where = f"{kind.lower()} {index}"
        numbers = (self._products if table == "kProducts" else self._images)[int(index)]
        finished = "nullptr"
        end = _split(epilogue[1:-1]) if epilogue else []
        if end:
            finished = end[3]
            self._finish(where, end)
        self._skip(where, [places[2], *([_place(finished)] if finished != "nullptr" else [])])
        if dtype in _BYTES:
            if table == "kProducts":
                self._product_operands(where, numbers, places, dtype)
            else:
                self._convolution(where, numbers, places, dtype)
        sizes = f"{table}[{index}]"
        argument = sizes if table == "kProducts" else f"M::Sizes({site}, {sizes})"
        calls = [f"M::Operand({site}, {i}, {operand})" for i, operand in enumerate(operands[:2])] + operands[2:]
        if epilogue:
            calls.append(f"M::Finish({site}, {epilogue})")
        return (
            f"if (M::Runs({site})) {{ {function}({', '.join([argument, *calls])}); "
            f"M::Written({site}, '{dtype}', {sizes}, {operands[2]}, {finished}); }}"
        )

    def _finish(self, where: str, end: Sequence[str]) -> None:
        bias, addend, _, _, low, high, *factor = end
        if bias != "nullptr":
            self._add("drop a bias", where, "bias")
        if addend != "nullptr":
            self._add("drop an addend", where, "addend")
        if factor:
            self._add("drop a gradient", where, "scale", operand=2, value=0.0)
        for operand, (bound, infinity) in enumerate(((low, "-INFINITY"), (high, "INFINITY"))):
            if bound != infinity:
                values = [float("-inf") if operand == 0 else float("inf"), float(bound) + 0.01]
            else:
                values = [0.0 if operand == 0 else 6.0]
            for value in values:
                text = f"{where}, {('low', 'high')[operand]} {bound} becomes {value}"
                self._add("wrong epilogue bound", text, "bound", operand=operand, value=value)

    def _product_operands(self, where: str, numbers: Sequence[int], places: Sequence[_Place], dtype: str) -> None:
        batch, rows, columns, depth, left, right, *steps = numbers
        packed, strides = numbers[9], [*numbers[10:12], 0, 0]
        shapes = ((depth, rows) if left else (rows, depth), (columns, depth) if right else (depth, columns))
        dropped = 0 if packed or strides[1] else 1
        for operand, (place, shape) in enumerate(zip(places[:2], shapes, strict=True)):
            # Nothing but whole matrices can be copied.
            if operand == 1 and packed:
                self._packed(where, place, columns, dtype, packed <= _WORDS["kFloat32"])
            elif not strides[operand]:
                side = f"{where}, {'left' if operand == 0 else 'right'}"
                count = (batch if steps[operand] else 1) * shape[0] * shape[1]
                rest: dict[str, object] = {"operand": operand, "dtype": dtype, "count": count}
                if operand == 1 or self._is_weight(place):
                    # A left operand's filters are its rows.
                    self._matrix(side, *shape, rest, not left if operand == 0 else bool(right))
                if operand == dropped:
                    self._shorter(side, *shape, rest, by_rows=bool(left) if operand == 0 else not right)

    def _shorter(self, where: str, rows: int, columns: int, rest: Mapping[str, object], by_rows: bool) -> None:
        """Adds the fault that an operand's last term of each sum is missing."""
        last = {"rows": rows, "columns": columns, "a": (rows if by_rows else columns) - 1}
        kind = "drop_row" if by_rows else "drop_column"
        self._add("reduce over n - 1", where, kind, **{**rest, **last})  # type: ignore[arg-type]

    def _is_weight(self, place: _Place) -> bool:
        return place.buffer >= len(self._arguments) + self._memory or (
            place.buffer < len(self._arguments) and self._arguments[place.buffer].variable
        )

    def _packed(self, where: str, place: _Place, columns: int, dtype: str, floats: bool = True) -> None:
        """Adds those faults of a packed constant that don't depend on its layout."""
        size = self._constant_bytes.get(self._constant(place.buffer), 0) // _BYTES[dtype]
        if size and floats:
            self._inexact(f"{where}, packed", {"operand": 1, "dtype": dtype, "count": size})
        for a, b in _pairs(columns, where):
            self._add("swap two filters", f"{where}, packed, {a} and {b}", "swap_results", a=a, b=b)

    def _convolution(self, where: str, numbers: Sequence[int], places: Sequence[_Place], dtype: str) -> None:
        images, channels, kernel_channels, filters, _ = numbers[:5]
        axes, packed = (numbers[5:12], numbers[12:19]), numbers[19]
        # Winograd's kernels support only padding 0 and 1.
        for operand, axis in enumerate(axes):
            for shift in (1, -1) if packed != 2 else (1 - 2 * min(1, axis[4]),):
                text = f"{where}, {'xy'[operand]} {axis[4]} becomes {axis[4] + shift}"
                self._add("shift padding by one", text, "padding", operand=operand, a=shift)
        if packed:
            self._packed(where, places[1], filters, dtype)
        else:
            rows = axes[0][1] * axes[1][1] * kernel_channels
            self._matrix(where, rows, filters, {"operand": 1, "dtype": dtype, "count": rows * filters})
        count = images * axes[0][0] * axes[1][0] * channels
        self._shorter(where, count // channels, channels, {"operand": 0, "dtype": dtype, "count": count}, by_rows=False)

    def _exchanges(self) -> None:
        self._site, last = self._first_site, self._site
        variables = [index for index, argument in enumerate(self._arguments) if argument.variable]
        for position, first in enumerate(variables):
            for second in variables[position + 1 :]:
                a, b = self._arguments[first], self._arguments[second]
                if a.bytes == b.bytes and a.dtype == b.dtype:
                    self._add("exchange two variables", f"{a.name} and {b.name}", "exchange", a=first, b=second)
        self._site = last

    def _starts(self) -> None:
        """Adds faults of what the program starts from."""
        self._site, last = self._first_site, self._site
        for index, argument in enumerate(self._arguments):
            rest = {"a": index, "count": argument.bytes, "rows": int(argument.variable and argument.written)}
            if rest["rows"]:
                for run in range(self._runs):
                    where = f"{argument.name}, run {run}"
                    dtype = FLOATS.get(argument.dtype, "i")
                    self._add("wrong state at a step", where, "state", **rest, b=run, dtype=dtype)  # type: ignore[arg-type]
            # The compiler sees 16-bit floats as uint16.
            if argument.bytes and re.fullmatch("bool|int.*|uint(8|32|64)", argument.dtype):
                seed = re.search("seed|random_state", argument.name) is not None
                width = argument.bytes // math.prod(argument.shape)
                byte = width * random.Random(argument.name).randrange(argument.bytes // width)
                name = "a wrong seed word" if seed else "flip an integer"
                self._add(name, f"{argument.name}, byte {byte}", "flip", **rest, b=byte, value=1)
        self._site = last


def _pairs(size: int, seed: str) -> list[tuple[int, int]]:
    """Returns a pair of neighbors and a random pair."""
    if size < 2:
        return []
    drawn = random.Random(seed).sample(range(size), 2)
    first = drawn[0] % (size - 1)
    return [(first, first + 1), (min(drawn), max(drawn))]


def _table(text: str, name: str) -> list[str]:
    array = re.search(rf"^constexpr .* {name}\[\] = \{{\n(.*?)^\}};$", text, re.MULTILINE | re.DOTALL)
    return [line.strip().rstrip(",") for line in array[1].splitlines() if line.strip()] if array else []


_WORDS = {"false": 0, "true": 1, "kNone": 0, "kPanels": 1, "kWinograd": 2, "kFloat32": 3, "kBfloat16": 4, "kInt8": 5}


def _numbers(line: str) -> list[int]:
    """Returns numbers, booleans, and packings in a nested initializer, flattened."""
    words = re.findall(r"-?\d+|\bfalse\b|\btrue\b|\bk[A-Z]\w+", line.replace("kernels::Packing::", ""))
    return [_WORDS[word] if word in _WORDS else int(word) for word in words]


def _place(text: str) -> _Place:
    place = _PLACE.fullmatch(text)
    if place is None:
        raise Unknown(f"no place: {text}")
    return _Place(int(place[1]), int(place[2]))


def _split(text: str) -> list[str]:
    """Splits at commas outside of braces."""
    return [part.strip() for part in re.findall(r"(?:\{[^{}]*\}|[^,{}])+", text)]


def walk(programs: Sequence[Program]) -> Iterator[Mutant]:
    """Yields the faults of all programs."""
    for program in programs:
        yield from program.mutants
