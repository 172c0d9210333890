"""Runs MLIR passes of the wheel, and reads what they print."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tfaot.core.stablehlo_text import STRING as STRING
from tfaot.core.stablehlo_text import VALUE as VALUE
from tfaot.core.stablehlo_text import tokens

Array = npt.NDArray[Any]

LOOP = "stablehlo.while"
REDUCTION = "stablehlo.reduce"
_REGIONS_LAST = {LOOP: "cond {", REDUCTION: "reducer("}
"""Operations that print their regions after their types, and how the first region starts."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    "i1": np.dtype(np.bool_),
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i4": np.dtype(ml_dtypes.int4),
    "ui4": np.dtype(ml_dtypes.uint4),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "complex<f32>": np.dtype(np.complex64),
    "complex<f64>": np.dtype(np.complex128),
}
"""The element types that TensorFlow has, too."""


_LARGEST = 2**31
"""The most bytes of a constant: a graph has less than 2 GiB."""


class MlirError(Exception):
    """The wheel's MLIR refuses a module. The message is what its parser, verifier, or pass says."""

    def __init__(self, message: str, lines: frozenset[int] = frozenset()) -> None:
        super().__init__(message)
        self.lines = lines
        """Numbers of the lines that errors name, from 0, if the module has no locations of its own."""


@dataclasses.dataclass(frozen=True)
class Type:
    """A tensor's type."""

    element: str
    """As MLIR writes it: `f32`."""
    shape: tuple[int | None, ...]

    @classmethod
    def of(cls, text: str) -> Type:
        """Reads `tensor<8x?xf32>`.

        Raises:
          MlirError: it isn't a tensor of known rank without an encoding.
        """
        match = re.fullmatch(r"tensor<((?:(?:\d+|\?)x)*)([a-z][\w]*(?:<\w+>)?)>", text.strip())
        if match is None:
            raise MlirError(f"{text.strip()} isn't a tensor of known rank")
        sizes = match[1].split("x")[:-1]
        return cls(match[2], tuple(None if size == "?" else int(size) for size in sizes))

    @property
    def size(self) -> int:
        """The number of values, if all sizes are known."""
        return math.prod(size or 0 for size in self.shape)

    def __str__(self) -> str:
        """Formats the type as MLIR does."""
        sizes = ["?" if size is None else str(size) for size in self.shape]
        return f"tensor<{'x'.join([*sizes, self.element])}>"


def run(module: str | bytes, passes: str, *, locations: bool = False) -> str:
    """Returns a module, text or bytecode, as text after a pipeline of passes.

    Raises:
      MlirError: MLIR refuses it.
    """
    from tensorflow.python import pywrap_mlir

    data = module.encode() if isinstance(module, str) else module
    with _diagnosed():
        return str(pywrap_mlir.ExperimentalRunPassPipeline(data, passes.encode(), locations))


def deserialize(artifact: bytes) -> bytes:
    """Returns the bytecode of a portable artifact of StableHLO.

    Raises:
      MlirError: the wheel can't read this version.
    """
    from tensorflow.compiler.mlir.stablehlo import stablehlo

    with _diagnosed():
        return bytes(stablehlo.deserialize_portable_artifact_str(artifact))


@contextlib.contextmanager
def _diagnosed() -> Iterator[None]:
    """Turns any exception into an MlirError with the diagnostics, which MLIR writes to the standard error stream only."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log, contextlib.ExitStack() as stack:
        kept = os.dup(2)
        stack.callback(os.close, kept)
        stack.callback(os.dup2, kept, 2)
        os.dup2(log.fileno(), 2)
        try:
            yield
        except Exception as error:  # its types say nothing, so use its text
            log.seek(0)
            said = log.read().decode(errors="replace").splitlines()
            lines = [line for line in [*said, *str(error).splitlines()] if "error:" in line] or str(error).splitlines()
            places = (re.match(r"-:(\d+):\d+: error:", line) for line in str(error).splitlines())
            raise MlirError(
                "\n".join(dict.fromkeys(_short(line) for line in lines)),
                frozenset(int(place[1]) - 1 for place in places if place),
            ) from None


def _short(line: str) -> str:
    """Drops a diagnostic's locations, which name files of another machine, and cuts what is too long to read."""
    text = line[line.find("error:") :] if "error:" in line else line
    return text if len(text) <= 300 else text[:300] + " …"


def split(text: str) -> list[str]:
    """Splits at commas outside of all brackets and strings."""
    places = [place for token, place, depth in tokens(text) if token == "," and depth == 0]
    parts = [text[start:end] for start, end in zip([0, *(place + 1 for place in places)], [*places, None], strict=True)]
    return [part.strip() for part in (parts if places or text.strip() else [])]


def closing(text: str, start: int) -> int:
    """Returns the position of the bracket that closes the one at `start`."""
    for token, place, depth in tokens(text, start):
        if token in (")", "]", "}", ">") and depth == 0:
            return place
    raise MlirError("a bracket isn't closed")


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument or a result of a function."""

    value: str
    """`%arg0`; empty for a result."""
    type: Type
    attributes: str
    """The text of its dictionary, with braces."""
    location: str
    """The text of its location, if the module was printed with locations."""


@dataclasses.dataclass(frozen=True)
class Signature:
    """The first line of a function."""

    name: str
    public: bool
    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]
    external: bool
    """Whether it is declared without a body."""

    @classmethod
    def of(cls, line: str) -> Signature | None:
        """Reads a line `func.func public @main(%arg0: tensor<f32>) -> tensor<f32> {`. None for any other line."""
        match = re.match(rf"\s*func\.func (public |private |nested )?@({STRING}|[\w$.-]+)\(", line)
        if match is None:
            return None
        end = closing(line, match.end() - 1)
        arguments = tuple(
            _argument(part, value=not part.startswith("tensor<")) for part in split(line[match.end() : end])
        )
        rest = line[end + 1 :]
        results: tuple[Argument, ...] = ()
        if rest.startswith(" -> ("):
            results = tuple(_argument(part, value=False) for part in split(rest[5 : closing(rest, 4)]))
        elif rest.startswith(" -> "):
            results = (_argument(rest[4 : closing(rest, rest.index("<")) + 1], value=False),)
        external = re.search(r"\{\s*(loc\(.*\))?\s*$", line) is None
        return cls(match[2].strip('"'), match[1] != "private ", arguments, results, external)


def _argument(text: str, *, value: bool) -> Argument:
    """Reads `%arg0: tensor<f32> {key = "value"} loc("x")`."""
    name = ""
    if value:
        name, _, text = text.partition(": ")
    type_end = closing(text, text.index("<")) + 1
    rest = text[type_end:].strip()
    attributes = ""
    if rest.startswith("{"):
        end = closing(rest, 0) + 1
        attributes, rest = rest[:end], rest[end:].strip()
    return Argument(name, Type.of(text[:type_end]), attributes, rest)


@dataclasses.dataclass(frozen=True)
class Statement:
    """An operation in a function, with its regions."""

    line: int
    """The number of its first line in the module's text, from 0."""
    text: str
    """All its lines."""
    operation: str
    """`stablehlo.add`, or `return`."""
    results: tuple[str, ...]
    """Names of its results: `%0`, or `%0#0` and `%0#1`."""
    operands: tuple[str, ...]
    """The values that it takes from outside of its regions, without repetition."""

    @property
    def types(self) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
        """The types of its operands and results. If it prints only the results', the operands' are empty."""
        lines = self.text.splitlines()
        types = _LOCATION.sub("", lines[0] if self.operation in _REGIONS_LAST else lines[-1]).rpartition(" : ")[2]
        halves = [
            tuple(Type.of(part) for part in split(half.strip().removeprefix("(").removesuffix(")")))
            for half in split_arrow(types)
        ]
        if len(halves) == 2:
            return halves[0], halves[1]
        # select prints the condition's type, and the type of all others
        return (), (halves[0] if len(halves[0]) == len(self.results) else halves[0][-1:] * len(self.results))

    @property
    def result_types(self) -> tuple[Type, ...]:
        """The types of its results."""
        return self.types[1] if self.results else ()


def split_arrow(text: str) -> list[str]:
    """Splits the type of a function: what it takes, and what it gives. One part if there is no arrow."""
    at = next((place for token, place, depth in tokens(text) if token == "->" and depth == 0), None)
    return [text] if at is None else [text[:at], text[at + 2 :]]


_LOCATION = re.compile(rf" loc\((?:#loc\d*|{STRING}(?:[^()]|\([^()]*\))*|[^()]*(?:\([^()]*\))*)\)$")
_DEPTH = re.compile(rf"{STRING}|[(){{}}\[\]]")
RESULTS = re.compile(rf"\s*((?:{VALUE}(?::\d+)?(?:, )?)+) = ")
"""The start of an operation with results, which may have a name for each."""
_OPERATION = re.compile(rf"\s*(?:{STRING}|[\w.]+)")
_USES = re.compile(rf"{STRING}|{VALUE}(?:#\d+)?")


def statement(lines: Sequence[str], line: int) -> Statement:
    """Reads the operation that starts on a line."""
    depth, end = 0, line
    while True:
        for match in _DEPTH.finditer(lines[end]):
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(match[0], 0)
        end += 1
        if depth <= 0 and not (end < len(lines) and lines[end].lstrip().startswith(tuple(_REGIONS_LAST.values()))):
            break
    text = "\n".join(lines[line:end])
    results: list[str] = []
    start = 0
    if named := RESULTS.match(text):
        start = named.end()
        for name in named[1].split(", "):
            value, _, count = name.partition(":")
            results += [f"{value}#{index}" for index in range(int(count))] if count else [value]
    operation = _OPERATION.match(text, start)
    assert operation is not None, text[:200]
    own = set()
    uses: dict[str, None] = {}
    for number, text_line in enumerate(text.splitlines()):
        if number and (inner := RESULTS.match(text_line)):
            own |= {name.partition(":")[0] for name in inner[1].split(", ")}
        if text_line.lstrip().startswith(("^", "reducer(")):
            own |= {match[0] for match in _USES.finditer(text_line)}
        own |= set(carried(text_line))
        body = text_line[start:] if number == 0 else text_line
        uses |= dict.fromkeys(match[0] for match in _USES.finditer(body) if match[0][0] == "%")
    operands = tuple(name for name in uses if name.partition("#")[0] not in own)
    return Statement(line, text, operation[0].strip().strip('"'), tuple(results), operands)


def operands(text: str) -> list[str]:
    """Returns the values that a text names, in order, with repetitions."""
    return [match[0] for match in _USES.finditer(text) if match[0][0] == "%"]


def carried(line: str) -> list[str]:
    """Returns the names that a loop's regions have for the values that it carries, from its first line."""
    start = line.find(LOOP + "(")
    return re.findall(rf"({VALUE}) = ", line[start:]) if start >= 0 else []


def dtype_of(type_: Type) -> np.dtype[Any]:
    """Returns a type's dtype.

    Raises:
      MlirError: TensorFlow and the rules don't have it.
    """
    dtype = DTYPES.get(type_.element)
    if dtype is None:
        raise MlirError(f"error: TensorFlow has no dtype for {type_}, or no kernels for it")
    return dtype


def constant(text: str) -> Array:
    """Returns the value of `dense<…> : tensor<…>`.

    Raises:
      MlirError: it isn't such a constant, or NumPy has no such dtype.
    """
    match = re.match(r"\s*dense<(.*)> : (tensor<[^:]*>)\s*$", text, re.DOTALL)
    if match is None:
        raise MlirError(f"{text.strip()[:80]} isn't a constant that can be read")
    type_ = Type.of(match[2])
    dtype = dtype_of(type_)
    shape = tuple(size or 0 for size in type_.shape)
    if type_.size * dtype.itemsize > _LARGEST:
        raise MlirError(f"error: the constant {text.strip()[:80]} has more than 2 GiB")
    body = match[1].strip()
    if body.startswith('"0x'):
        return _of_bytes(bytes.fromhex(body[3:-1]), dtype, shape)
    if not body:
        return np.zeros(shape, dtype)
    if dtype.kind == "c":
        pairs = re.findall(r"\(([^,()]+),\s*([^,()]+)\)", body)
        part = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
        numbers = [complex(_number(a, part), _number(b, part)) for a, b in pairs]
    else:
        numbers = [_number(number, dtype) for number in re.split(r"[\[\], ]+", body) if number]
    values = np.array(numbers, dtype)
    return np.broadcast_to(values[0], shape).copy() if len(values) == 1 else values.reshape(shape)


def _of_bytes(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == np.bool_ and len(data) != count:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return bits[:count].astype(np.bool_).reshape(shape)
    values = np.frombuffer(data, dtype)
    return np.broadcast_to(values[0], shape).copy() if len(values) == 1 else values.reshape(shape).copy()


def _number(text: str, dtype: np.dtype[Any]) -> Any:
    """Reads a number as MLIR prints it: a float may be its bits in hexadecimal."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if dtype.kind in "iu":
        return int(text)
    if text.startswith("0x"):
        return np.array(int(text, 16), f"u{dtype.itemsize}").view(dtype)[()]
    return float(text)
