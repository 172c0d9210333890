"""Models as StableHLO, the program that `jax.export` and other frameworks write.

A program becomes a graph of TensorFlow's own ops, so all later stages treat it like any other model: passes find its matrix
products and convolutions, and the verify stage measures how far rounding can move each value. TensorFlow's converter does most
of it (`tf-legalize-hlo`). Each operation that it doesn't know, or doesn't convert exactly, becomes a node of its own that keeps
the operation as StableHLO (`XlaCallModule`).
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import op_def_library, op_def_registry

from tfaot.core import caller, stablehlo_text
from tfaot.core.errors import TfaotError, listed
from tfaot.core.programs import Program
from tfaot.export.sources import lapack, locations, mlir, open_operations, open_sizes, shards
from tfaot.export.sources.mlir import MlirError, Signature, Statement, Type
from tfaot.export.sources.size_arithmetic import Arithmetic
from tfaot.export.sources.subgraph import add_done
from tfaot.export.traced import Array, Dims, Edge, Function
from tfaot.graph import lowering
from tfaot.graph.attributes import complete
from tfaot.graph.ops import SUMMED, runs_on_cpu

ENTRY_POINT = "main"
"""The function that a program starts at."""

_ARTIFACT = re.compile(rb"ML\xefR.StableHLO_v([\d.]+)\0", re.DOTALL)
_SHARDY = re.compile(rb", sdy\.sharding_rule = #sdy\.op_sharding_rule<(?:->|[^>-])*>")
"""In a text, the attributes of Shardy that JAX gives calls of LAPACK, and that TensorFlow doesn't know."""
_PREFIX = "tfaot_kept_"
"""The names of functions that stand for operations that aren't converted."""
_CONSTANT = "tfaot_constant_"
"""The names of functions that stand for large constants."""
_WRAPPED = "_wrapped_jax_export_main"
"""The function with the names of arguments, if main only computes sizes for it."""
_ROUNDS = 20
_CALL_VERSION = 9
"""The version of XlaCallModule's conventions."""

_KEPT = shards.OPERATIONS | frozenset(
    f"stablehlo.{name}"
    for name in (
        "remainder",
        "round_nearest_afz",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
    )
)
"""Operations that TensorFlow's converter takes for others: its shifts know no large counts, for example."""


_VOLUMES = re.compile(r"stablehlo\.convolution.*dim_numbers = \[[^\]]*2")
"""Convolutions in three dimensions, whose shapes its converter loses."""


class StablehloSource:
    """A program from a file."""

    entry_points = (ENTRY_POINT,)
    default_entry_point = ENTRY_POINT

    def __init__(self, path: str, program: Program | None = None) -> None:
        """Reads the program.

        Args:
          path: StableHLO, as a portable artifact or as text.
          program: a program with names for its arguments and results, and variables among them. The path then only names its file.

        Raises:
          TfaotError: it isn't StableHLO, or the wheel can't read it.
        """
        self._path = path
        self._program = program
        if program is None:
            with open(path, "rb") as file:
                data = file.read()
        else:
            data = program.text.encode()
        data = stablehlo_text.readable(data)
        self._text = self._read(data)
        self._signature = self._main()

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Converts the program to a graph; see `traced.Source`."""
        if entry_point != ENTRY_POINT:
            raise TfaotError(
                f"{self._path} has no entry point {entry_point!r}",
                exists=f"StableHLO has a single entry point, {ENTRY_POINT}",
                do=f"remove {caller.option('entry_points')}, and compile each program by itself",
            )
        edges = dims.fix(self._path, self._signature.edges)
        names = open_sizes.names(edges, dims.named)
        try:
            if not names:
                return _graph(self._converted(edges), edges, self._signature, name=entry_point)
            sizes = self._sizes(names, edges, dims)
            samples = [dict(zip(names, map(int, sample), strict=True)) for sample in sizes.samples]
            programs = [self._converted(open_sizes.sized(edges, dims.named, sample)) for sample in samples]
            return dataclasses.replace(
                _graph(_opened(programs, sizes), edges, self._signature, name=entry_point),
                requirements=sizes.requirements,
            )
        except MlirError as error:
            raise TfaotError(
                f"{self._path}: TensorFlow can't convert this program",
                details=str(error),
                do=f"compute it in another way, or fix the size with a number in {caller.option('dims')}"
                if names
                else "leave out what the message names, or report it to rules_tfaot",
            ) from None

    @property
    def variables(self) -> dict[str, Type]:
        """The variables among the arguments and the results."""
        main = self._signature
        pairs = zip((*main.variables, *main.written), (*main.takes, *main.types), strict=False)
        return {name: type_ for name, type_ in pairs if name}

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """Returns nothing, because a program has no variables; see `traced.Source`."""
        assert not names
        return {}

    def golden(
        self, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
    ) -> Sequence[Array] | None:
        """Returns None, because a program says nothing about its inputs' values."""
        return None

    def _sizes(self, names: Sequence[str], edges: Sequence[Edge], dims: Dims) -> open_sizes.Sizes:
        """Returns the open sizes, and the numbers that the program is converted for."""

        def size_of(argument: int, axis: int) -> int | None:
            edge = edges[argument]
            if (edge.shape or ())[axis] is not None:
                return None
            return names.index(dims.named.get(edge.label, {}).get(axis, open_sizes.BATCH))

        return open_sizes.Sizes(names, Arithmetic.of(self._text, size_of), self._path)

    def _converted(self, edges: Sequence[Edge]) -> _Converted:
        """Converts the program for sizes of its inputs."""
        closed = all(None not in (edge.shape or ()) for edge in self._signature.edges)
        return _converted(self._text if closed else self._refined(edges), what=self._path)

    def _read(self, data: bytes) -> str:
        """Returns the program as text with locations, which have the names of arguments."""
        try:
            if artifact := _ARTIFACT.match(data):
                try:
                    data = mlir.deserialize(data)
                except MlirError as error:
                    if "sdy" in str(error):
                        raise
                    raise self._unreadable(error, artifact[1].decode()) from None
            text = stablehlo_text.decomposed(mlir.run(_SHARDY.sub(b"", data), "symbol-dce", locations=True))
            return shards.of_one(text, self._path)
        except MlirError as error:
            if "sdy" in str(error):
                raise TfaotError(
                    f"{self._path} has operations or attributes of Shardy, which TensorFlow doesn't know",
                    details=str(error),
                    exists="JAX writes them for inputs that are keys of random numbers, and for calls of LAPACK",
                    do='export after jax.config.update("jax_use_shardy_partitioner", False), and as text, exported.mlir_module(), '
                    "whose errors name the lines of such calls",
                ) from None
            raise TfaotError(
                f"{self._path} isn't StableHLO that TensorFlow {tf.__version__} can read",
                details=str(error),
                do="use what jax.export gives: exported.mlir_module(), as text, or exported.mlir_module_serialized",
            ) from None

    def _refined(self, edges: Sequence[Edge]) -> str:
        """Returns the program with all shapes known. XLA computes them from those of inputs, as it does when it compiles."""
        with tf.Graph().as_default() as graph:
            arguments = [
                tf.compat.v1.placeholder(tf.as_dtype(edge.dtype), edge.shape, name=edge.name.removesuffix(":0"))
                for edge in edges
            ]
            module = locations.named(self._text, self._path)
            results = _module_node(module, arguments, self._signature.types, name="program")
        try:
            text = lowering.lower(
                graph.as_graph_def(),
                [lowering.Argument(edge.name, tf.as_dtype(edge.dtype), complete(edge.shape) or ()) for edge in edges],
                [],
                [result.name for result in results],
                stage="stablehlo",
            )
        except Exception as error:  # its types say nothing, so use its text
            raise TfaotError(
                f"{self._path}: XLA refuses the program with these sizes",
                details="\n".join(line[:300] for line in str(error).splitlines()[:8]),
                do="use sizes that the export allows",
            ) from None
        return stablehlo_text.plain(str(text))

    def _unreadable(self, error: MlirError, version: str) -> TfaotError:
        from tensorflow.compiler.mlir.stablehlo import stablehlo

        own = stablehlo.get_current_version()
        return TfaotError(
            f"{self._path}: TensorFlow {tf.__version__} can't read this StableHLO",
            details=str(error),
            exists=f"the file has version {version}, and TensorFlow has {own}",
            do=f"write it for version {own} or an earlier one; or as text, exported.mlir_module(), which has no version",
        )

    def _main(self) -> _Main:
        lines = self._text.splitlines()
        signatures = {s.name: s for s in map(Signature.of, lines) if s is not None}
        main = signatures.get(ENTRY_POINT)
        if main is None:
            raise TfaotError(
                f"{self._path} has no function main",
                exists=listed(list(signatures)),
                do="call the function that the program starts at main",
            )
        named = locations.aliases(lines)
        if self._program is not None:
            return _Main.of(main, [value.label for value in self._program.arguments], self._path).named(self._program)
        names = [_named(argument.location, named) for argument in main.arguments]
        if (inner := signatures.get(_WRAPPED)) and not any(names):
            own = [argument for argument in inner.arguments if "jax.global_constant" not in argument.attributes]
            if len(own) == len(names):
                names = [_named(argument.location, named) for argument in own]
        return _Main.of(main, names, self._path)


@dataclasses.dataclass(frozen=True)
class _Main:
    """What a program takes and gives."""

    edges: tuple[Edge, ...]
    """The inputs, named by their position."""
    labels: tuple[str, ...]
    """Names of the outputs."""
    takes: tuple[Type, ...]
    """Types of the inputs."""
    types: tuple[Type, ...]
    """Types of the outputs."""
    variables: tuple[str, ...] = ()
    """For each input, the variable that it is, or nothing. Empty if there are none."""
    written: tuple[str, ...] = ()
    """For each output, the variable whose new value it is, or nothing. Empty if there are none."""

    def named(self, program: Program) -> _Main:
        """Returns the same with the names and the variables of a program."""
        return dataclasses.replace(
            self,
            edges=tuple(
                dataclasses.replace(edge, label=value.label)
                for edge, value in zip(self.edges, program.arguments, strict=True)
            ),
            labels=tuple(value.label for value in program.results),
            variables=tuple(value.label if value.variable else "" for value in program.arguments),
            written=tuple(value.label if value.variable else "" for value in program.results),
        )

    @classmethod
    def of(cls, main: Signature, names: Sequence[str], path: str) -> _Main:
        edges = []
        for index, argument in enumerate(main.arguments):
            if "_platform_index" in argument.attributes:
                raise TfaotError(
                    f"{path} is for several platforms",
                    exists="an argument that chooses one of them, and no record of their order",
                    do='export for one: jax.export.export(f, platforms=["cpu"])',
                )
            dtype = _dtype(argument.type, path)
            label = _label(names[index]) or f"input_{index}"
            edges.append(Edge(f"input_{index}:0", label, dtype, argument.type.shape))
        labels = []
        for index, result in enumerate(main.results):
            _dtype(result.type, path)
            info = re.search(rf"jax\.result_info = ({mlir.STRING})", result.attributes)
            default = "output" if len(main.results) == 1 else f"output_{index}"
            labels.append(_output_label(_unquoted(info[1]) if info else "") or default)
        takes, types = (tuple(value.type for value in values) for values in (main.arguments, main.results))
        return cls(tuple(edges), tuple(labels), takes, types)


def _dtype(type_: Type, path: str) -> int:
    dtype = mlir.DTYPES.get(type_.element)
    if dtype is None:
        raise TfaotError(
            f"{path}: an input or output is {type_}",
            exists=f"TensorFlow has {listed(sorted(mlir.DTYPES), limit=20)}",
            do="convert it inside the program",
        )
    return int(tf.as_dtype(dtype).as_datatype_enum)


def _named(location: str, named: Mapping[str, str]) -> str:
    """Returns the name in a location, or nothing if it has none."""
    location = location.strip()
    if alias := re.fullmatch(r"loc\((#loc\d*)\)", location):
        location = named.get(alias[1], "")
    match = re.match(rf"loc\(({mlir.STRING})(?![:\w])", location)
    return _unquoted(match[1]) if match else ""


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _label(path: str) -> str:
    """Returns a path in JAX's notation in the rules' own: `v['params'].kernel[0]` as `v/params/kernel/0`."""
    parts = re.findall(r"\['([^']*)'\]|\[(\d+)\]|\.?([^.\[\]]+)", path)
    return "/".join("".join(part) for part in parts)


def _output_label(path: str) -> str:
    """Returns an output's label: `output` for the only one, `output_0` for the first of several, or its key."""
    label = _label(path)
    first, _, rest = label.partition("/")
    if first not in ("result", ""):
        return label
    if not rest:
        return "output" if first else ""
    return f"output_{rest}" if rest[0].isdigit() else rest


@dataclasses.dataclass(frozen=True)
class _Kept:
    """An operation that stays as it is."""

    statement: Statement
    operands: tuple[Type, ...]
    constants: tuple[str, ...]
    """Lines that define constants for its regions, which see no values from outside. None of them is an operand."""
    samples: tuple[Statement, ...] = ()
    """The operation for each sample of open sizes, if its values have one besides the batch."""

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it takes."""
        head = mlir.operands(self.statement.text.splitlines()[0])
        inner = {line.split()[0] for line in self.constants}
        return tuple(value for value in self.statement.operands if value in head or value not in inner)

    @property
    def summed(self) -> int:
        """How many terms each value of the results sums, roughly; 0 if it isn't a sum."""
        text, operation = self.statement.text, self.statement.operation.removeprefix("stablehlo.")
        sizes = [type_.size for type_ in self.operands]
        if operation == "convolution":
            return sizes[1] // min(size or 1 for size in self.operands[1].shape)
        if operation == "dot_general":
            return max(size or 1 for size in self.operands[0].shape)
        if not re.search(r"stablehlo\.(add|multiply)\b", text):
            return 0
        if window := re.search(r"window_dimensions = array<i64: ([\d, ]+)>", text):
            return int(np.prod([int(size) for size in window[1].split(",")]))
        if operation == "scatter":
            return 1 + sizes[-1] // max(1, sizes[0])
        return sizes[0] // max(1, self.statement.result_types[0].size) if operation == "reduce" else 0

    @property
    def module(self) -> str:
        """A program of this operation only."""
        names = {value: f"%operand{index}" for index, value in enumerate(self.values)}
        first, *regions = self.statement.text.splitlines()
        text = _renamed(first, names)
        if regions:
            inner = {line.split()[0] for line in self.constants}
            rest = _renamed("\n".join(regions), {value: name for value, name in names.items() if value not in inner})
            # A region starts with its block's arguments.
            starts = re.compile(r"^ *(?:\^.*|reducer\(.*)$", re.MULTILINE)
            text += "\n" + starts.sub(lambda match: "\n".join([match[0], *self.constants]), rest)
        takes = ", ".join(f"{names[v]}: {t}" for v, t in zip(self.values, self.operands, strict=True))
        types = ", ".join(map(str, self.statement.result_types))
        gives = ", ".join(self.statement.results)
        # XLA computes the shapes of programs that say so.
        return (
            "module attributes {jax.uses_shape_polymorphism = true} {\n"
            f"  func.func public @main({takes}) -> ({types}) {{\n{text}\n"
            f"    return {gives} : {types}\n  }}\n}}\n"
        )


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Replaces names of values."""
    return re.sub(rf"{mlir.STRING}|{mlir.VALUE}(?:#\d+)?", lambda match: names.get(match[0], match[0]), text)


@dataclasses.dataclass(frozen=True)
class _Converted:
    """A program in TensorFlow's ops."""

    lines: Sequence[str]
    places: Sequence[str]
    """The line of user code for each of these: `file:line`, or nothing."""
    kept: Mapping[str, _Kept]
    """The operations that stay as they are, by the functions that the text calls instead."""
    constants: Mapping[str, str]
    """The text of large constants, by the functions that the text calls instead: all that reads lines would read them again."""
    replicas: int = 1
    """How many devices the program is for."""
    variants: Sequence[Sequence[str]] = ()
    """For open sizes, each line for each sample of them."""
    sizes: open_sizes.Sizes | None = None


def _opened(programs: Sequence[_Converted], sizes: open_sizes.Sizes) -> _Converted:
    """Returns a program for any sizes from those for samples of them.

    Raises:
      MlirError: they differ in more than their sizes.
    """
    first, *others = programs
    counts = [len(program.lines) for program in programs]
    if other := next((index for index, count in enumerate(counts) if count != counts[0]), None):
        at = open_sizes.differs(first.lines, programs[other].lines)
        place = next((place for place in first.places[at:] if place), "")
        raise MlirError(
            f"error: the program has other operations for {sizes.shown(other)} than for {sizes.shown(0)}; "
            "a constraint can exclude some of them, as n >= 10 in jax.export.symbolic_shape does for x[:10]"
            + (f", at {place}" if place else "")
        )
    lines = open_sizes.merge([program.lines for program in programs], first.places)
    if any(program.kept.keys() != first.kept.keys() or program.constants != first.constants for program in others):
        raise MlirError("error: the operations or their large constants depend on open sizes")
    calls = {
        match[1]: first.places[number] for number, line in enumerate(first.lines) if (match := _KEPT_CALL.search(line))
    }
    kept = {}
    for name, one in first.kept.items():
        all_ = [program.kept[name] for program in programs]
        operands = zip(*(operation.operands for operation in all_), strict=True)
        opened = tuple(open_sizes.opened(types) for types in operands)
        open_ = sizes.beyond_batch([(*own.operands, *own.statement.result_types) for own in all_])
        statements = tuple(operation.statement for operation in all_) if open_ else ()
        if open_ and one.statement.operation == "stablehlo.reduce_window":
            kept[name] = dataclasses.replace(one, operands=opened, samples=statements)
            continue
        places = [calls.get(name, "")] * len(one.statement.text.splitlines())
        texts = [operation.statement.text.splitlines() for operation in all_]
        kept[name] = _Kept(
            dataclasses.replace(one.statement, text="\n".join(open_sizes.merge(texts, places).merged)),
            opened,
            open_sizes.merge([operation.constants for operation in all_]).merged,
            statements,
        )
    return dataclasses.replace(first, lines=lines.merged, kept=kept, variants=lines.variants, sizes=sizes)


_KEPT_CALL = re.compile(rf"call @({_PREFIX}\d+)\(")
_LARGE = re.compile(r'stablehlo\.constant (dense<"0x[0-9A-Fa-f]{65536,}"> : (tensor<[^<>]*(?:<f\d+>)?>))')


def _without_large(text: str) -> tuple[str, dict[str, str]]:
    """Replaces large constants by calls. Returns the text, and the constants by the function that it calls."""
    constants: dict[str, str] = {}
    types: list[str] = []

    def call(match: re.Match[str]) -> str:
        name = f"{_CONSTANT}{len(constants)}"
        constants[name] = match[1]
        types.append(match[2])
        return f"func.call @{name}() : () -> {match[2]}"

    text = _LARGE.sub(call, text)
    ending = re.search(r"^}", text, re.MULTILINE)
    assert ending is not None
    declared = [f"  func.func private @{name}() -> {type_}\n" for name, type_ in zip(constants, types, strict=True)]
    return text[: ending.start()] + "".join(declared) + text[ending.start() :], constants


def _converted(text: str, *, what: str) -> _Converted:
    """Converts a program. Repeats it without the operations that aren't converted, until none is left.

    Raises:
      MlirError: MLIR refuses it.
    """
    # Without locations, each operation's is the line that it is on.
    text, constants = _without_large(lapack.with_roots(text))
    whole = mlir.run(text, "inline{default-pipeline=},symbol-dce", locations=True)
    lines, ends = locations.split(whole)
    places = locations.places(whole, ends, what)
    _check_calls(lines, places, what)
    kept: dict[int, _Kept] = {}
    definitions, owners = _Definitions(lines), _owners(lines)
    for number, line in enumerate(lines):
        if (match := _ANY.match(line)) and (match["operation"] in _KEPT or _VOLUMES.search(line)):
            kept[number] = _keep(lines, number, definitions)
    for _ in range(_ROUNDS):
        source = _without(lines, kept)
        try:
            foreign = _foreign(mlir.run(source.text, "stablehlo-legalize-to-hlo,tf-legalize-hlo", locations=True))
        except MlirError as error:  # it makes an op that TensorFlow's own checks refuse
            if not error.lines:
                raise
            foreign = set(error.lines)
        more = {owners[source.line(number)] for number in foreign} - kept.keys()
        if not more:
            break
        kept |= {number: _keep(lines, number, definitions) for number in sorted(more)}
    done = mlir.run(
        source.text,
        "stablehlo-legalize-to-hlo,tf-legalize-hlo,tf-region-control-flow-to-functional,symbol-dce",
        locations=True,
    )
    named = locations.aliases(done.splitlines())
    bare, made = locations.split(done)
    starts = [_line(location, named) for location in made]
    for number, operation in kept.items():  # the location is behind the regions
        places[number] = places[number] or places[number + len(operation.statement.text.splitlines()) - 1]
    return _Converted(
        bare,
        ["" if start is None or source.line(start) < 0 else places[source.line(start)] for start in starts],
        {f"{_PREFIX}{number}": operation for number, operation in kept.items()},
        constants,
        shards.devices(whole),
    )


_CALL = re.compile(rf"stablehlo\.custom_call @({mlir.STRING}|[\w$.-]+)\(")


def _check_calls(lines: Sequence[str], places: Sequence[str], what: str) -> None:
    """Checks that a program needs no code but its own.

    Raises:
      TfaotError: it calls functions of a library.
    """
    matches = ((_CALL.search(line), place) for line, place in zip(lines, places, strict=True))
    calls = [(match[1].strip('"'), place) for match, place in matches if match]
    strange = {
        target + (f" at {place}" if place else "") + (f" ({why})" if (why := lapack.refused(target)) else "")
        for target, place in calls
        if target not in _HINTS
        and (lapack.refused(target) or not lapack.CALL.search(f"stablehlo.custom_call @{target}("))
    }
    if strange:
        raise TfaotError(
            f"{what} calls functions that aren't part of it",
            exists=listed(sorted(strange)),
            do="compute it in another way",
        )


class _Definitions:
    """Where the values of a program are defined, and their types."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._types: dict[str, list[Type]] = {}
        for number, line in enumerate(lines):
            if signature := Signature.of(line):
                self._add(number, ((argument.value, argument.type) for argument in signature.arguments))
            elif block := re.match(r"\s*\^\w+\((.*)\):", line):
                parts = (part.partition(": ") for part in mlir.split(block[1]))
                self._add(number, ((name, Type.of(type_)) for name, _, type_ in parts))
            elif mlir.RESULTS.match(line):
                statement = mlir.statement(lines, number)
                self._add(number, zip(statement.results, statement.result_types, strict=True))
                if statement.operation == mlir.LOOP:
                    self._add(number, zip(mlir.carried(line), statement.result_types, strict=True))

    def _add(self, number: int, pairs: Iterable[tuple[str, Type]]) -> None:
        for name, type_ in pairs:
            self._numbers.setdefault(name, []).append(number)
            self._types.setdefault(name, []).append(type_)

    def _index(self, name: str, number: int) -> int:
        """Names are free again after a region, but never hide outer ones, so the last definition before a line counts."""
        return bisect.bisect_left(self._numbers[name], number) - 1

    def type_of(self, name: str, number: int) -> Type:
        """Returns the type of a value that a line uses."""
        return self._types[name][self._index(name, number)]

    def line_of(self, name: str, number: int) -> int:
        """Returns the line that defines a value that a line uses."""
        return self._numbers[name][self._index(name, number)]


_HINTS = frozenset({"Sharding", "shape_assertion"})
"""Custom calls that compute nothing."""
_CONTROL_FLOW = frozenset({mlir.LOOP, "stablehlo.case", "stablehlo.if"})


def _owners(lines: Sequence[str]) -> list[int]:
    """Returns the line of the operation to keep for each line: what its region belongs to, unless that is control flow."""
    owners = [*range(len(lines))]
    number = 0
    while number < len(lines):
        end = number + 1
        regions = "({" in lines[number] or (end < len(lines) and lines[end].lstrip().startswith("reducer("))
        if regions and (match := _ANY.match(lines[number])) and match["operation"] not in _CONTROL_FLOW:
            end = number + len(mlir.statement(lines, number).text.splitlines())
            owners[number:end] = [number] * (end - number)
        number = end
    return owners


def _keep(lines: Sequence[str], number: int, definitions: _Definitions) -> _Kept:
    statement = mlir.statement(lines, number)
    inner: list[str] = []
    if statement.operation not in _CONTROL_FLOW:
        inside = {*mlir.operands("\n".join(statement.text.splitlines()[1:]))}
        defined = [lines[definitions.line_of(value, number)] for value in statement.operands if value in inside]
        inner = [line for line in defined if " = stablehlo.constant " in line]
    kept = _Kept(statement, (), tuple(inner))
    return dataclasses.replace(kept, operands=tuple(definitions.type_of(value, number) for value in kept.values))


@dataclasses.dataclass(frozen=True)
class _Source:
    """A program with calls in place of some operations."""

    text: str
    origins: tuple[int, ...]
    """The line of the original for each line."""

    def line(self, number: int) -> int:
        return self.origins[number]


def _without(lines: Sequence[str], kept: Mapping[int, _Kept]) -> _Source:
    result: list[str] = []
    origins: list[int] = []
    number = 0
    while number < len(lines):
        operation = kept.get(number)
        if operation is None:
            result.append(lines[number])
            origins.append(number)
            number += 1
            continue
        names, types = ", ".join(operation.values), ", ".join(map(str, operation.operands))
        match = mlir.RESULTS.match(operation.statement.text)
        left = match[0].lstrip() if match else ""
        results = ", ".join(map(str, operation.statement.result_types))
        result.append(f"    {left}func.call @{_PREFIX}{number}({names}) : ({types}) -> ({results})")
        origins.append(number)
        number += len(operation.statement.text.splitlines())
    end = max(index for index, line in enumerate(result) if line.startswith("}"))
    for number, operation in kept.items():
        types = ", ".join(map(str, operation.operands))
        results = ", ".join(map(str, operation.statement.result_types))
        result.insert(end, f"  func.func private @{_PREFIX}{number}({types}) -> ({results})")
        origins.insert(end, -1)
    return _Source("\n".join(result) + "\n", tuple(origins))


_WRONG = frozenset({"tf.Conv2DBackpropInput"})
"""Ops that TensorFlow's converter makes with padding that TensorFlow doesn't accept."""
_ANY = re.compile(rf"(?:{mlir.RESULTS.pattern}|\s*)\"?(?P<operation>(?:mhlo|stablehlo|chlo|tf)\.\w+)")
_CONSTANTS = frozenset({"mhlo.constant", "stablehlo.constant", "arith.constant", "tf.Const"})


def _foreign(text: str) -> set[int]:
    """Returns the lines, in the text that was converted, of the operations that TensorFlow doesn't have or can't run."""
    lines = text.splitlines()
    named = locations.aliases(lines)
    foreign: set[int] = set()
    number = 0
    while number < len(lines):
        match = _ANY.match(lines[number])
        if match is None or match["operation"] in _CONSTANTS:
            number += 1
            continue
        statement = mlir.statement(lines, number)
        if match["operation"].startswith("tf.") and match["operation"] not in _WRONG and _runs(statement):
            number += 1
            continue
        foreign.add(_place(statement, named))
        number += len(statement.text.splitlines())
    return foreign


def _place(statement: Statement, named: Mapping[str, str]) -> int:
    """Returns the line that an operation was on before it was converted."""
    number = _line(statement.text, named)
    if number is not None:
        return number
    raise MlirError(f"error: {statement.operation} isn't converted, and its place is unknown")


def _line(text: str, named: Mapping[str, str]) -> int | None:
    """Returns the line that text at the end of an operation gives as its location, from 0."""
    location = re.search(r"loc\((#loc\d*|.*)\)$", text)
    place = named.get(location[1], location[0]) if location else ""
    at = re.search(r'"[^"]*":(\d+):\d+', place)
    return int(at[1]) - 1 if at else None


def _runs(statement: Statement) -> bool:
    """Returns whether TensorFlow has a kernel for an operation that is one of its ops, or one that holds others."""
    definition = op_def_registry.get(statement.operation.removeprefix("tf."))
    if definition is None or statement.operation == "tf.While":
        return True
    operands, results = statement.types
    if statement.operation == "tf.Cast" and any(type_.element in ("i4", "ui4") for type_ in (*operands, *results)):
        return False  # it has a kernel for 4 bits, but not to and from each dtype
    types: dict[str, int] = {}
    if len(operands) == len(definition.input_arg):
        pairs = [*zip(definition.input_arg, operands, strict=True)]
        if len(results) == len(definition.output_arg):
            pairs += zip(definition.output_arg, results, strict=True)
        for argument, type_ in pairs:
            if argument.type_attr and type_.element in mlir.DTYPES:
                types[argument.type_attr] = int(tf.as_dtype(mlir.dtype_of(type_)).as_datatype_enum)
    return runs_on_cpu(definition.name, tuple(types.items()))


def _graph(converted: _Converted, edges: Sequence[Edge], main: _Main, *, name: str) -> Function:
    """Builds the graph of a converted program."""
    lines = converted.lines
    starts = {s.name: (s, number) for number, s in enumerate(map(Signature.of, lines)) if s is not None}
    variables = main.variables or ("",) * len(edges)
    written = main.written or ("",) * len(main.labels)
    inputs = [edge for edge, variable in zip(edges, variables, strict=True) if not variable]
    with tf.Graph().as_default() as graph:
        builder = _Builder(converted, starts)
        handles: dict[str, Any] = {}
        arguments = []
        for edge, variable in zip(edges, variables, strict=True):
            dtype = tf.as_dtype(edge.dtype)
            if variable:
                handles[variable] = _handle(variable, dtype, edge.shape)
                arguments.append(tf.raw_ops.ReadVariableOp(resource=handles[variable], dtype=dtype))
            else:
                arguments.append(tf.compat.v1.placeholder(dtype, edge.shape, name=edge.name.removesuffix(":0")))
        results = list(zip(main.labels, written, builder.call(ENTRY_POINT, arguments), strict=True))
        effects = []
        with tf.control_dependencies([value for value in arguments if value.op.type == "ReadVariableOp"]):
            for _, variable, value in results:
                if variable:
                    handle = handles.get(variable)
                    if handle is None:
                        handle = _handle(variable, value.dtype, value.shape)
                    effects.append(tf.raw_ops.AssignVariableOp(resource=handle, value=value))
        with tf.control_dependencies(effects):
            outputs = [
                (label, tf.identity(value, name=f"output_{index}"))
                for index, (label, variable, value) in enumerate(results)
                if not variable
            ]
    graph_def = graph.as_graph_def()
    edges_out = [
        Edge(value.name, label, value.dtype.as_datatype_enum, tuple(value.shape.as_list())) for label, value in outputs
    ]
    if not outputs:
        edges_out = [add_done(graph_def, [f"^{effect.name}" for effect in effects], {n.name for n in graph_def.node})]
    return Function(
        name=name, graph=graph_def, sources=builder.sources(), inputs=tuple(inputs), outputs=tuple(edges_out)
    )


def _handle(variable: str, dtype: Any, shape: Any) -> Any:
    return tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=variable, name="variable")


class _Builder:
    """Makes nodes of the operations in a converted program."""

    def __init__(self, program: _Converted, starts: Mapping[str, tuple[Signature, int]]) -> None:
        self._lines = program.lines
        self._places = program.places
        self._starts = starts
        self._kept = program.kept
        self._replicas = program.replicas
        self._constants = program.constants
        self._variants = program.variants
        self._open = program.sizes
        self._sizes: Sequence[Any] = ()  # in the function whose nodes are added
        self._functions: dict[str, Any] = {}
        self._made: list[tuple[Any, str, str]] = []  # graph, node, place

    def sources(self) -> dict[str, str]:
        """Returns the line of user code by node, `function/node` inside functions."""
        functions = {id(made.graph): made.name.decode() + "/" for made in self._functions.values()}
        return {functions.get(id(graph), "") + node: place for graph, node, place in self._made}

    def call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Adds the nodes of a function to the current graph. Returns its results."""
        if name in self._kept:
            return self._call_module(self._kept[name], arguments)
        if name in self._constants:
            return [tf.constant(mlir.constant(self._constants[name]))]
        signature, start = self._starts[name]
        if self._variants:
            outer, self._sizes = self._sizes, self._sizes_in(start, arguments)
            try:
                return self._call(signature, start, arguments)
            finally:
                self._sizes = outer
        return self._call(signature, start, arguments)

    def _sizes_in(self, start: int, arguments: Sequence[Any]) -> list[Any]:
        """Returns the open sizes in a function, or None for those that it doesn't have."""
        assert self._open is not None
        graph = tf.compat.v1.get_default_graph()
        outer = self._sizes or [None] * len(self._open.names)
        inherited = [size if size is not None and size.graph is graph else None for size in outer]
        own = self._open.inside(self._variants[start], arguments)
        return [size if made is None else made for made, size in zip(own, inherited, strict=True)]

    def _call(self, signature: Signature, start: int, arguments: Sequence[Any]) -> list[Any]:
        values: dict[str, Any] = dict(zip((argument.value for argument in signature.arguments), arguments, strict=True))
        for number in range(start + 1, len(self._lines)):
            statement = mlir.statement(self._lines, number)
            operands = [values[value] for value in _operands(statement)]
            refused = next((value for value in operands if isinstance(value, MlirError)), None)
            if statement.operation == "return":
                if refused is not None:
                    raise refused
                return operands
            place = self._places[number]
            try:
                if refused is not None:
                    raise refused
                made = self._nodes(statement, operands, self._variants[number] if self._variants else ())
            except MlirError as error:
                if place and ", at " not in str(error):
                    error = MlirError(f"{error}, at {place}")
                made = [error] * len(statement.results)  # without a line, it has that of its use
                if ", at " in str(error) or not made:
                    raise error from None
            values |= zip(statement.results, made, strict=True)
            taken = {id(value) for value in operands}
            self._made += ((v.graph, v.op.name, place) for v in made if place and id(v) not in taken)
        raise AssertionError(f"{signature.name} has no end")

    def _nodes(self, statement: Statement, operands: Sequence[Any], variants: Sequence[str]) -> list[Any]:
        operation = statement.operation
        if operation.endswith(".constant") or operation == "tf.Const":
            if len({*variants}) > 1:
                assert self._open is not None
                return [self._open.constant([_dense(text) for text in variants], self._sizes)]
            return [tf.constant(mlir.constant(_dense(statement.text)))]
        if operation in ("call", "func.call"):
            match = re.search(rf"call @({mlir.STRING}|[\w$.-]+)\(", statement.text)
            assert match is not None
            return self.call(match[1].strip('"'), operands)
        if not operation.startswith("tf."):
            raise MlirError(f"error: {operation} isn't converted")
        name = operation.removeprefix("tf.")
        definition = op_def_registry.get(name)
        if definition is None:
            raise MlirError(f"error: TensorFlow has no op {name}")
        keywords: dict[str, Any] = {}
        rest = list(operands)
        for index, argument in enumerate(definition.input_arg):
            many = bool(argument.number_attr or argument.type_list_attr)
            count = len(rest) - (len(definition.input_arg) - index - 1) if many else 1
            keywords[argument.name] = rest[:count] if many else rest[0]
            rest = rest[count:]
        if name in _SHAPED:
            _narrow(keywords, definition)
        if name == "StridedSlice" and statement.result_types:
            _gather_few(keywords, statement.result_types[0].shape)
        kinds = {attr.name: attr.type for attr in definition.attr}
        for key, value in _attributes(statement.text).items():
            if key in kinds:
                keywords[key] = self._attribute(value, kinds[key])
        outputs = [argument.type_attr for argument in definition.output_arg]
        for attr, type_ in zip(outputs, statement.result_types, strict=False):
            inferred = {argument.type_attr for argument in definition.input_arg}
            if attr and attr not in inferred and attr not in keywords and kinds[attr] == "type":
                keywords[attr] = tf.as_dtype(mlir.dtype_of(type_))
        if name in ("If", "StatelessIf", "Case", "StatelessCase"):
            keywords["Tout"] = [tf.as_dtype(mlir.dtype_of(type_)) for type_ in statement.result_types]
        if "output_shapes" in kinds:
            keywords["output_shapes"] = [tf.TensorShape(type_.shape) for type_ in statement.result_types]
        _repair(name, keywords)
        if (
            self._open is not None
            and not self._open.only_batch
            and name == "Conv2D"
            and keywords.get("padding") == "EXPLICIT"
        ):
            # XLA pads windows over open sizes only as VALID and SAME do.
            keywords["input"] = tf.pad(keywords["input"], np.reshape(keywords["explicit_paddings"], (-1, 2)))
            keywords |= {"explicit_paddings": [], "padding": "VALID"}
        made = op_def_library.apply_op(name, **keywords)
        if isinstance(made, tf.Operation):
            return list(made.outputs)
        results = list(made) if isinstance(made, list | tuple) else [made]
        for value, type_ in zip(results, statement.result_types, strict=True):
            value.set_shape(type_.shape)
        return results

    def _attribute(self, text: str, kind: str) -> Any:
        """Returns the value of an attribute, as MLIR prints it, in the form that an op takes it in."""
        if kind == "func":
            return self._function(text.removeprefix("@").strip('"'))
        if text.startswith("["):
            return [self._attribute(part, kind[5:-1]) for part in mlir.split(text[1:-1])]
        if text.startswith('"'):
            return _unquoted(text)
        if text in ("true", "false"):
            return text == "true"
        if kind == "type":
            return tf.as_dtype(mlir.dtype_of(Type(text, ())))
        number = text.partition(" :")[0]
        return float(number) if kind == "float" else int(number)

    def _function(self, name: str) -> Any:
        """Returns a function of the program for an op that calls it."""
        if name not in self._functions:
            signature, _ = self._starts[name]
            specs = [
                tf.TensorSpec(argument.type.shape, tf.as_dtype(mlir.dtype_of(argument.type)))
                for argument in signature.arguments
            ]
            traced = tf.function(lambda *arguments: self.call(name, arguments), autograph=False)
            self._functions[name] = traced.get_concrete_function(*specs)
        return self._functions[name]

    def _call_module(self, kept: _Kept, operands: Sequence[Any]) -> list[Any]:
        """Adds a node with an operation that stays as it is."""
        name = kept.statement.operation.rpartition(".")[2]
        if kept.statement.operation in shards.OPERATIONS:
            return shards.results(kept.statement.text, operands, self._replicas)
        if any(re.search(rf"{re.escape(operation)}\b", kept.module) for operation in shards.OPERATIONS):
            raise MlirError(f"error: {name} decides whether replicas exchange values; all must do so equally often")
        if name == "fft":
            return [_fourier(kept.statement.text, operands[0])]
        named = mlir.operands(kept.statement.text.splitlines()[0].partition(" = ")[2])
        repeated = [operands[kept.values.index(value)] for value in named if value in kept.values]
        if (made := lapack.results(kept.statement.text, repeated, kept.statement.result_types)) is not None:
            return made
        if branches := lapack.branches(kept.module):
            return self._choice(kept, branches, operands)
        if name == "convolution" and (kept.samples or _VOLUMES.search(kept.statement.text)):
            made = open_operations.convolution(kept.statement, *repeated)
            if made is not None:
                return [made]
        if kept.samples:
            return self._opened(kept, name, repeated)
        results = _module_node(kept.module, operands, kept.statement.result_types, name=name)
        if kept.summed > 1:
            results[0].op._set_attr(SUMMED, attr_value_pb2.AttrValue(i=kept.summed))
        return results

    def _opened(self, kept: _Kept, name: str, operands: Sequence[Any]) -> list[Any]:
        """Adds nodes for an operation on values with open sizes, which XLA would forget in a program of its own."""

        def number(values: Sequence[int]) -> Any:
            assert self._open is not None
            return self._open.number(values, self._sizes, "error: a window depends on open sizes")

        made: Any = None
        if name == "reduce_window":
            made = open_operations.reduced(kept.samples, operands[0], operands[1], number)
        elif name == "scatter" and len(operands) == 3:
            made = open_operations.scattered(kept.statement, *operands)
        elif name == "sort":
            made = open_operations.sorted_(kept.statement, operands)
        else:
            made = open_operations.by_value(name, *operands)
        if made is None:
            raise MlirError(f"error: {name} of a value with an open size isn't converted")
        return list(made) if isinstance(made, list) else [made]

    def _choice(self, kept: _Kept, branches: Sequence[str], operands: Sequence[Any]) -> list[Any]:
        """Adds a node that runs one of several programs, all of which take all operands."""
        (value,) = _operands(kept.statement)[:1]
        index = operands[kept.values.index(value)]
        specs = [tf.TensorSpec(operand.shape, operand.dtype) for operand in operands]
        functions = []
        for branch in branches:
            part = _converted(branch, what=ENTRY_POINT)
            starts = {s.name: (s, number) for number, s in enumerate(map(Signature.of, part.lines)) if s is not None}
            builder = _Builder(part, starts)
            traced = tf.function(lambda *values, builder=builder: builder.call(ENTRY_POINT, values), autograph=False)
            functions.append(traced.get_concrete_function(*specs))
        if index.dtype == tf.bool:  # the first is for what is true
            index = tf.cast(tf.logical_not(index), tf.int32)
        types = [tf.as_dtype(mlir.dtype_of(type_)) for type_ in kept.statement.result_types]
        results = tf.raw_ops.StatelessCase(branch_index=index, input=list(operands), Tout=types, branches=functions)
        for result, type_ in zip(results, kept.statement.result_types, strict=True):
            result.set_shape(type_.shape)
        return list(results)


def _dense(text: str) -> str:
    """Returns the value of a constant, and its type, from its operation."""
    text = text[text.index("dense<") :]
    return text[: text.index("}>")] if "}>" in text else text


def _fourier(text: str, operand: Any) -> Any:
    """Returns a Fourier transform in TensorFlow's own op."""
    kind = re.search(r"\b(I?R?FFT)\b", text)
    length = re.search(r"(?:length = \[|array<i64: )([\d, ]+)", text)
    assert kind and length, text
    sizes = [int(size) for size in length[1].split(",")]
    suffix = ("", "2d", "3d")[len(sizes) - 1]
    transform = getattr(tf.signal, kind[1].lower() + suffix)
    return transform(operand, sizes) if "R" in kind[1] else transform(operand)


def _module_node(module: str | bytes, operands: Sequence[Any], types: Sequence[Type], *, name: str) -> list[Any]:
    """Adds a node that runs a program in XLA. Returns its results."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    results = gen_xla_ops.xla_call_module(
        args=list(operands),
        version=_CALL_VERSION,
        module=module,
        Sout=[tf.TensorShape(type_.shape) for type_ in types],
        Tout=[tf.as_dtype(mlir.dtype_of(type_)) for type_ in types],
        platforms=["CPU"],
        name=name,
    )
    return list(results)


def _repair(name: str, operands: dict[str, Any]) -> None:
    """Mends what TensorFlow's converter gets wrong, or leaves to XLA."""
    if name == "Slice":  # it makes a begin of int32 and a size of int64
        operands["size"] = tf.cast(operands["size"], operands["begin"].dtype)
    elif name in ("ArgMax", "ArgMin"):  # its axis is a vector
        operands["dimension"] = tf.reshape(operands["dimension"], [])
    elif name == "GatherNd":  # StableHLO's indices stop at the edges, and TensorFlow's kernel fails there
        depth = operands["indices"].shape[-1]
        _clamp(operands, slice(depth))
    elif name == "GatherV2":
        axis = int(tf.get_static_value(operands["axis"]))
        _clamp(operands, axis)


_SHAPED = frozenset({"BroadcastTo", "Fill", "Pad", "PadV2", "Reshape", "Slice", "StridedSlice", "Tile"})
"""Ops that take sizes, which XLA knows bounds of only if they are int32."""


def _narrow(operands: dict[str, Any], definition: Any) -> None:
    """Converts operands of int64 that depend on open sizes, and those of the same type, to int32."""
    kinds = {argument.name: argument.type_attr for argument in definition.input_arg}
    open_kinds = {
        kinds[name]
        for name, value in operands.items()
        if value.dtype == tf.int64 and value.op.type == "Cast" and value.op.inputs[0].dtype == tf.int32
    }
    for name, value in operands.items():
        if kinds[name] in open_kinds:
            open_ = value.op.type == "Cast" and value.op.inputs[0].dtype == tf.int32
            operands[name] = value.op.inputs[0] if open_ else tf.cast(value, tf.int32)


def _gather_few(operands: dict[str, Any], shape: Sequence[int | None]) -> None:
    """Gathers along axes where a slice takes so many values from a place that depends on open sizes: XLA knows that number."""
    begin, end = operands["begin"], operands["end"]
    if begin.op.type != "Pack":
        return
    begins, ends = ([*value.op.inputs] if value.op.type == "Pack" else tf.unstack(value) for value in (begin, end))
    for axis, (first, size) in enumerate(zip(begins, shape, strict=True)):
        if size is not None and tf.get_static_value(first) is None:
            operands["input"] = tf.gather(operands["input"], first + tf.range(size), axis=axis)
            begins[axis], ends[axis] = tf.constant(0), tf.constant(size)
    operands |= {"begin": tf.stack(begins), "end": tf.stack(ends)}


def _clamp(operands: dict[str, Any], axes: int | slice) -> None:
    """Stops indices into these axes at the edges."""
    indices, params = operands["indices"], operands["params"]
    sizes = params.shape.as_list()[axes]
    last = tf.cast((tf.shape(params)[axes] if None in np.ravel(sizes) else tf.constant(sizes)) - 1, indices.dtype)
    operands["indices"] = tf.maximum(tf.minimum(indices, last), tf.zeros([], indices.dtype))


def _operands(statement: Statement) -> list[str]:
    """Returns the operands of an operation without regions, in order, with repetitions."""
    text = statement.text.strip()
    if statement.operation == "return":
        return mlir.operands(text.partition(" : ")[0])
    text = text.partition(" = ")[2] if statement.results else text
    start = text.find("(")
    return mlir.operands(text[start : mlir.closing(text, start)]) if start >= 0 else []


def _attributes(text: str) -> dict[str, str]:
    """Returns the attributes of an operation in generic form, as text."""
    start = text.find("<{")
    if start < 0:
        return {}
    inside = text[start + 2 : mlir.closing(text, start + 1)]
    pairs = (part.partition(" = ") for part in mlir.split(inside))
    return {name.strip('"'): value if equals else "true" for name, equals, value in pairs}
