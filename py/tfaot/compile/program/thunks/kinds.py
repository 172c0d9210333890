"""A compiled function: its buffers, and the thunks that a run executes one after another.

Passes make the kinds of thunks that tfcompile's header doesn't have, from kernels and other thunks.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tfaot.compile.program.values.formulas import Formula, Operation
from tfaot.core.errors import TfaotError

if TYPE_CHECKING:
    from tfaot.compile.program.codegen.emitter import Emitter


@dataclass(frozen=True)
class Buffer:
    """A block of memory that thunks work on."""

    size: int
    kind: str
    """`constant`, `temp`, `parameter`, or `thread_local`. A `thread_local` buffer has no memory of its own."""
    argument: int | None
    """The compiler's argument that it contains."""
    result: int | None
    """The compiler's result that it contains. If `argument` is set too, the result is written in place."""


@dataclass(frozen=True)
class Slice:
    """Where a value begins: an offset in a buffer, which is given by its index."""

    buffer: int
    offset: int


Place = tuple[Slice, int]
"""Where bytes are, and how many."""


@dataclass(frozen=True)
class Uses:
    """What a thunk reads and writes, as far as it is known."""

    reads: tuple[Place, ...]
    """What it may read."""
    writes: tuple[Place, ...]
    """What it writes whole."""

    @property
    def changes(self) -> tuple[Place, ...]:
        """What it may write: if its results are unknown, anything that it uses may be one."""
        return self.writes or self.reads


class Thunk(abc.ABC):
    """A step of a run. A kind of thunk is a class, and no other code knows all kinds."""

    @property
    @abc.abstractmethod
    def places(self) -> tuple[Place, ...]:
        """All that it uses itself, without the thunks in it. Results come first, if the class says nothing else."""

    @abc.abstractmethod
    def uses(self) -> Uses:
        """Returns what it reads and writes, with all thunks in it."""

    @abc.abstractmethod
    def emit(self, program: Emitter) -> list[str]:
        """Returns C++ that runs it."""

    def in_place(self, place: int) -> bool:
        """Returns whether a result can be in one of the `places`, given by its index, when it has finished."""
        return False

    shown: ClassVar[str] = ""
    """A format of its fields that says what it is; empty for the name of its class."""

    @property
    def title(self) -> str:
        """What hooks are told that it is; empty if they are told only of the thunks in it."""
        return "" if self.bodies else self.shown.format(**vars(self)) or type(self).__name__.lower()

    @property
    def operations(self) -> int | None:
        """Its arithmetic, without that of the thunks in it. None if HLO says it, or nothing does."""
        return None

    @property
    def bodies(self) -> tuple[tuple[Thunk, ...], ...]:
        """The sequences of thunks in it."""
        return ()

    def with_bodies(self, change: Callable[[tuple[Thunk, ...]], tuple[Thunk, ...]]) -> Thunk:
        """Returns the thunk with each of its `bodies` replaced by `change`, in order."""
        return self


class _Opaque(Thunk):
    """A thunk that may write anything that it uses, such as a loop, or may leave it as it is."""

    @property
    def places(self) -> tuple[Place, ...]:
        return ()

    def uses(self) -> Uses:
        return Uses(tuple(place for thunk in walk((self,)) for place in thunk.places), ())


class _Nested(_Opaque):
    """Runs other thunks, which some fields have."""

    inside: ClassVar[tuple[str, ...]] = ("body",)

    @property
    def bodies(self) -> tuple[tuple[Thunk, ...], ...]:
        return tuple(getattr(self, name) for name in self.inside)

    def with_bodies(self, change: Callable[[tuple[Thunk, ...]], tuple[Thunk, ...]]) -> Thunk:
        fields: Any = {name: change(getattr(self, name)) for name in self.inside}
        return replace(self, **fields)  # type: ignore[type-var]  # its classes are dataclasses


class _Result(Thunk):
    """A thunk whose first place is its only result."""

    def uses(self) -> Uses:
        out, *reads = self.places
        return Uses(tuple(reads), (out,))

    def in_place(self, place: int) -> bool:
        return place == 0


class _Move(_Result):
    """A thunk that copies values."""

    @property
    def operations(self) -> int:
        return 0


class _Product(Thunk):
    """A product or a convolution. Its places are the result, both operands, and what `_epilogue_places` has."""

    epilogue: Epilogue | None
    sides: ClassVar[tuple[str, str]]
    """The fields of the left and the right side of a product of rows, or of what a convolution amounts to."""
    right: ClassVar[int]
    """The index of the right side in `places`."""

    @property
    @abc.abstractmethod
    def matrix(self) -> tuple[int, ...]:
        """The sizes of the right side. The last one are its columns."""

    @property
    def depth(self) -> int:
        """The values that a result adds up."""
        return math.prod(self.matrix[:-1])

    @property
    def columns(self) -> int:
        """The columns of the right side, and of the result."""
        return self.matrix[-1]

    def uses(self) -> Uses:
        out, left, right, *rest = self.places
        return Uses((left, right, *rest[1:]), tuple(dict.fromkeys((out, *rest[:1]))))

    def in_place(self, place: int) -> bool:
        # The epilogue's result can also take the place of its addend.
        over = self.epilogue is not None and self.epilogue.addend == self.epilogue.out
        return place in (0, 3) or (over and place == len(self.places) - 1)

    def _epilogue_places(self, size: int, bias_size: int) -> tuple[Place, ...]:
        if self.epilogue is None:
            return ()
        biases = ((place, bias_size) for place in (self.epilogue.bias, self.epilogue.addend_bias) if place)
        addend = ((self.epilogue.addend, size),) if self.epilogue.addend else ()
        return (self.epilogue.out, size), *biases, *addend


class InPlace(Thunk):
    """A thunk that reads its places, and writes the first one."""

    def uses(self) -> Uses:
        return Uses(self.places, self.places[:1])


@dataclass(frozen=True)
class Kernel(Thunk):
    """A call of a function in the object file, once for each workgroup."""

    shown = "{symbol}"

    symbol: str
    args: tuple[Place, ...]
    workgroups: tuple[int, int, int]

    single: bool = False
    """Whether it has one result, the last argument. Otherwise, any argument may be one."""

    @property
    def places(self) -> tuple[Place, ...]:
        return self.args

    def uses(self) -> Uses:
        return Uses(self.places[:-1], self.places[-1:]) if self.single else Uses(self.places, ())

    def emit(self, program: Emitter) -> list[str]:
        call = len(program.calls)
        program.symbols.add(self.symbol)
        program.kernel_args += [(at.offset, size, program.number[at.buffer]) for at, size in self.args]
        program.calls.append(f"{{{{{', '.join(f'{count}u' for count in self.workgroups)}}}, {len(self.args)}u}}")
        if self.workgroups == (1, 1, 1):
            return [f"if ({self.symbol}(calls + {call}) != nullptr) return false;"]
        return [f"if (!::tfaot::RunWorkgroups(&{self.symbol}, calls[{call}])) return false;"]


@dataclass(frozen=True)
class Epilogue:
    """Finishes the result of a product or convolution: min(max((result + bias) + (addend + addend_bias), low), high).

    Or, without biases, `scale * result + addend` within these bounds. The result without the epilogue is stored, too, unless its
    place is scratch.
    """

    bias: Slice | None
    """One value for each column or filter, like `addend_bias`."""
    addend: Slice | None
    """As many values as the result."""
    addend_bias: Slice | None
    out: Slice
    low: float
    high: float
    scale: float = 1.0
    scratch: bool = False
    """Whether nothing reads the result without the epilogue, so that its place is memory to work in."""


@dataclass(frozen=True)
class Dot(_Product):
    """`batch` products of matrices that are stored by columns: out[m][n] = lhs[m][k] * rhs[k][n]."""

    shown = "dot {batch}x{n}x{k}x{m}"

    dtype: str
    """The C++ name of the dtype of all three."""
    batch: int
    out: Slice
    lhs: Slice
    rhs: Slice
    strides: tuple[int, int, int]
    """The number of values from one product to the next, for out, lhs, and rhs."""
    m: int
    n: int
    k: int
    transpose_lhs: bool
    transpose_rhs: bool
    epilogue: Epilogue | None = None
    packing: str = "none"
    """The layout of `lhs`, the right side of the product of rows: as above, or a packing's name in `prepack`."""
    columns_apart: tuple[int, int, int] = (0, 0, 0)
    """The number of values from one stored column to the next, for out, lhs, and rhs. Zero means that columns are adjacent.

    tfcompile's columns are. The pass `transpose_folding` sets these distances.
    """

    # Products of columns are products of rows with the sides exchanged.
    sides = "rhs", "lhs"
    right = 1

    @property
    def matrix(self) -> tuple[int, ...]:
        return self.k, self.m

    @property
    def stored(self) -> tuple[tuple[int, int], ...]:
        """The number of columns, and of values in each, as out, lhs, and rhs are stored."""
        lhs, rhs = (self.k, self.m), (self.n, self.k)
        return (self.n, self.m), lhs[::-1] if self.transpose_lhs else lhs, rhs[::-1] if self.transpose_rhs else rhs

    @property
    def places(self) -> tuple[Place, ...]:
        size = SIZES[self.dtype]
        out, lhs, rhs = (
            (at, size * _span(self.batch, step, apart, *shape))
            for at, step, apart, shape in zip(
                (self.out, self.lhs, self.rhs), self.strides, self.columns_apart, self.stored, strict=True
            )
        )
        return out, lhs, rhs, *self._epilogue_places(out[1], size * self.m)

    @property
    def operations(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    def emit(self, program: Emitter) -> list[str]:
        # A matrix by columns is its transpose by rows. The transpose of a product is the product of the transposes in
        # reverse order.
        out_step, right_step, left_step = self.strides
        transposed = [str(flag).lower() for flag in (self.transpose_rhs, self.transpose_lhs)]
        sizes = self.batch, self.n, self.m, self.k, *transposed, left_step, right_step, out_step
        apart = "".join(f", {distance}" for distance in reversed(self.columns_apart)) if any(self.columns_apart) else ""
        return _call(
            program, "Products", self, program.product(sizes, self.packing, apart), self.rhs, self.lhs, self.out
        )


@dataclass(frozen=True)
class Convolution(_Product):
    """A convolution of images with channels last. In each pair, x is the slower axis."""

    dtype: str
    """The C++ name of the dtype of all three."""
    out: Slice
    input: Slice
    kernel: Slice
    batch: int
    input_size: tuple[int, int]
    input_channels: int
    kernel_size: tuple[int, int]
    kernel_channels: int
    filters: int
    output_size: tuple[int, int]
    stride: tuple[int, int]
    padding_before: tuple[int, int]
    padding_after: tuple[int, int]
    input_dilation: tuple[int, int]
    kernel_dilation: tuple[int, int]
    groups: int
    epilogue: Epilogue | None = None
    packing: str = "none"
    """The layout of `kernel`; see `Dot.packing`."""

    sides = "input", "kernel"
    right = 2

    @property
    def matrix(self) -> tuple[int, ...]:
        return *self.kernel_size, self.kernel_channels, self.filters

    @property
    def places(self) -> tuple[Place, ...]:
        size = SIZES[self.dtype]
        out_size = size * self.batch * _area(self.output_size) * self.filters
        return (
            (self.out, out_size),
            (self.input, size * self.batch * _area(self.input_size) * self.input_channels),
            (self.kernel, size * _area(self.kernel_size) * self.kernel_channels * self.filters),
            *self._epilogue_places(out_size, size * self.filters),
        )

    @property
    def operations(self) -> int:
        return 2 * self.batch * _area(self.output_size) * self.filters * _area(self.kernel_size) * self.kernel_channels

    def emit(self, program: Emitter) -> list[str]:
        pairs = (
            self.input_size,
            self.kernel_size,
            self.output_size,
            self.stride,
            self.padding_before,
            self.input_dilation,
            self.kernel_dilation,
        )
        counts = self.batch, self.input_channels, self.kernel_channels, self.filters, self.groups
        sizes, what = program.image(counts, pairs, self.packing), "Convolution"
        if self.packing == "winograd":
            program.needs.add("winograd")
            program.scratch[f"kernels::WinogradScratchBytes({sizes})"] = None
            what = "Winograd"
        return _call(program, what, self, sizes, self.input, self.kernel, self.out)


Product = Dot | Convolution


@dataclass(frozen=True)
class Sweep(Thunk):
    """Applies a formula to arrays. An array can overlap what is written only if it is the same array."""

    formula: Formula
    rows: int
    columns: int
    """All values, as one row, if the formula isn't of rows."""
    arrays: tuple[Slice, ...]
    vectors: tuple[Slice, ...] = ()
    values: tuple[Slice, ...] = ()
    """One value for each row."""
    scalars: tuple[Slice, ...] = ()
    """Single values."""

    @property
    def title(self) -> str:
        return f"row_sweep {self.rows}x{self.columns}" if self.formula.of_rows else f"sweep {self.columns}"

    @property
    def places(self) -> tuple[Place, ...]:
        size, operations = SIZES[self.formula.dtype], self.formula.operations
        booleans = {one.place for one in operations if (one.opcode, one.text) == ("array", "pred")}
        widths = (1 if index in booleans else size for index in range(len(self.arrays)))
        arrays = ((at, width * self.rows * self.columns) for at, width in zip(self.arrays, widths, strict=True))
        vectors = (vector.bytes(self.rows, self.columns) for vector in self.formula.vectors)
        values, scalars = ((at, size * self.rows) for at in self.values), ((at, size) for at in self.scalars)
        return *arrays, *zip(self.vectors, vectors, strict=True), *values, *scalars

    @property
    def written(self) -> tuple[int, ...]:
        """The arrays and the values for rows that it writes, by their index in `places`."""
        first = len(self.arrays) + len(self.vectors)
        return *(place for place, _ in self.formula.arrays), *(first + place for place, _ in self.formula.values)

    def uses(self) -> Uses:
        read = {(operation.opcode, operation.place) for operation in self.formula.operations}
        kinds = ("array", self.arrays), ("column", self.vectors), ("row", self.values), ("scalar", self.scalars)
        numbers = [(opcode, place) for opcode, slices in kinds for place in range(len(slices))]
        places = self.places
        reads = (place for number, place in zip(numbers, places, strict=True) if number in read)
        return Uses(tuple(reads), tuple(places[place] for place in self.written))

    def in_place(self, place: int) -> bool:
        first = len(self.arrays) + len(self.vectors)
        return place < len(self.arrays) or first <= place < first + len(self.values)

    @property
    def operations(self) -> int:
        return self.rows * self.columns * _arithmetic(self.formula.operations)

    def emit(self, program: Emitter) -> list[str]:
        if self.formula.of_rows:
            index = program.row_formulas.setdefault((self.formula, self.columns), len(program.row_formulas))
            places = ", ".join(map(program.all_at, (self.arrays, self.vectors, self.values, self.scalars)))
            return [f"kernels::RunRowSweep<RowFormula{index}>({self.rows}, {places}, instance.threads);"]
        index = program.formulas.setdefault(self.formula, len(program.formulas))
        places = ", ".join(map(program.all_at, (self.arrays, self.scalars)))
        return [f"kernels::RunSweep<Formula{index}>({self.columns}, {places}, instance.threads);"]


@dataclass(frozen=True)
class ColumnSums(_Result):
    """Sums of the rows of `arrays` arrays of floats, in blocks: the first has `first` rows, others have `step` or fewer."""

    shown = "column_reduction {arrays}x{rows}x{columns}"

    arrays: int
    rows: int
    columns: int
    blocks: int
    """The number of sums for each array and column."""
    first: int
    step: int
    out: Slice
    input: Slice

    @property
    def places(self) -> tuple[Place, ...]:
        size = SIZES["float"] * self.arrays * self.columns
        return (self.out, size * self.blocks), (self.input, size * self.rows)

    @property
    def operations(self) -> int:
        return self.arrays * self.rows * self.columns

    def emit(self, program: Emitter) -> list[str]:
        sizes = ", ".join(map(str, (self.arrays, self.rows, self.columns, self.blocks, self.first, self.step)))
        return _level(program, "column_sums_f32", f"RunColumnSums<float>({{{sizes}}}", self.input, self.out)


@dataclass(frozen=True)
class RowCopies(_Move):
    """Copies rows of floats in another order: loops, outermost first, read rows and write them one after another."""

    first: int
    """The index of the first value that is read."""
    loops: tuple[tuple[int, int], ...]
    """For each loop, its count and the distance of the rows that it reads, in values."""
    row: int
    """The number of values in a row."""
    out: Slice
    input: Slice
    input_size: int
    """In bytes; more than are read if it copies a part."""

    @property
    def size(self) -> int:
        """The bytes of the result."""
        return SIZES["float"] * self.row * math.prod(count for count, _ in self.loops)

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.out, self.size), (self.input, self.input_size)

    @property
    def title(self) -> str:
        return f"transposes {self.size // 4 // self.row}x{self.row}"

    def emit(self, program: Emitter) -> list[str]:
        program.facts[f"::tfaot::kernels::RowOrder::kLoops == {len(self.loops)}"] = None
        loops = ", ".join(f"{{{count}, {step}}}" for count, step in self.loops)
        order = f"{{{self.first}, {{{loops}}}, {self.row}}}"
        return _level(program, "row_copies_f32", f"RunRowCopies<float>({order}", self.input, self.out)


@dataclass(frozen=True)
class FilterGradient(_Result):
    """The gradient of a convolution of images with channels last by its kernel, as out[channels][x][y][filters].

    Sizes are those of the convolution that it is the gradient of. In each pair, x is the slower axis. All values are floats.
    """

    shown = "filter_gradient {kernel_size[0]}x{kernel_size[1]}x{channels}x{filters}"

    out: Slice
    input: Slice
    gradient: Slice
    """The gradient by the convolution's result."""
    batch: int
    input_size: tuple[int, int]
    channels: int
    kernel_size: tuple[int, int]
    filters: int
    output_size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    """Before the first pixel. It can be negative."""

    @property
    def places(self) -> tuple[Place, ...]:
        size = SIZES["float"]
        return (
            (self.out, size * _area(self.kernel_size) * self.channels * self.filters),
            (self.input, size * self.batch * _area(self.input_size) * self.channels),
            (self.gradient, size * self.batch * _area(self.output_size) * self.filters),
        )

    @property
    def operations(self) -> int:
        return 2 * self.batch * _area(self.output_size) * _area(self.kernel_size) * self.channels * self.filters

    def emit(self, program: Emitter) -> list[str]:
        pairs = (self.input_size, self.kernel_size, self.output_size, self.stride, self.padding, (1, 1), (1, 1))
        images = program.image((self.batch, self.channels, self.channels, self.filters, 1), pairs, "none")
        call = f"RunFilterGradient<float>({images}"
        return _level(program, "filter_gradient_f32", call, self.input, self.gradient, self.out)


@dataclass(frozen=True)
class DenseNet(Thunk):
    """Layers, one after another: products of a row and a matrix of floats, whose epilogues have an addend and bounds."""

    layers: tuple[Dot, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        reads = list[Place]()
        for layer in self.layers:
            matrix, row, *bias = layer.uses().reads
            reads += [row, matrix, *bias]
        return *(layer.places[0] for layer in self.layers), *reads

    def uses(self) -> Uses:
        return Uses(self.places[len(self.layers) :], self.places[: len(self.layers)])

    @property
    def title(self) -> str:
        return f"dense_net {self.layers[0].k}" + "".join(f"x{layer.m}" for layer in self.layers)

    @property
    def operations(self) -> int:
        return sum(layer.operations for layer in self.layers)

    def emit(self, program: Emitter) -> list[str]:
        program.needs |= {"bounds", "mlp_fusion"}
        layers = []
        for layer in self.layers:
            end = layer.epilogue or Epilogue(None, None, None, layer.out, -math.inf, math.inf)
            bias = "nullptr" if end.addend is None else program.at(end.addend)
            places = program.at(layer.rhs), program.at(layer.lhs), bias, program.at(layer.out)
            sizes = f"{layer.k}, {layer.m}, {str(layer.transpose_lhs).lower()}"
            layers.append(f"kernels::Dense<{sizes}>{{{', '.join((*places, *_bounds(end.low, end.high)))}}}")
        *others, last = layers
        return ["kernels::RunDenseNet(", *(f"    {layer}," for layer in others), f"    {last});"]


@dataclass(frozen=True)
class Copy(_Move):
    """A copy of bytes that don't overlap."""

    out: Slice
    input: Slice
    size: int

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.out, self.size), (self.input, self.size)

    def emit(self, program: Emitter) -> list[str]:
        return [f"std::memcpy({program.at(self.out)}, {program.at(self.input)}, {self.size});"]


@dataclass(frozen=True)
class Pack(_Move):
    """Packs a product's right side into the panels of `prepack`."""

    dtype: str
    """The C++ name of the values' dtype."""
    out: Slice
    input: Slice
    depth: int
    columns: int
    transposed: bool
    """Whether the input has the shape [columns, depth]."""
    size: int
    """The bytes of the panels. The last one may be partly empty."""

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.out, self.size), (self.input, SIZES[self.dtype] * self.depth * self.columns)

    def emit(self, program: Emitter) -> list[str]:
        program.packed("panels")
        program.sources.add(f"tfaot/kernels/products_{_SOURCES[self.dtype]}.cc")
        sizes = f"{self.depth}, {self.columns}, {str(self.transposed).lower()}"
        sides = f"{program.at(self.input)}, {program.at(self.out)}"
        return [f"kernels::TFAOT_ISA::RunPack<{_CPP[self.dtype]}>({sizes}, {sides});"]


@dataclass(frozen=True)
class Sort(_Opaque):
    """Sorts `shape[0] * shape[2]` vectors of `shape[1]` values in place. All buffers get the same order."""

    comparator: str
    """The symbol of a function in the object file."""
    values: tuple[Slice, ...]
    value_sizes: tuple[int, ...]
    """The bytes per value in each buffer."""
    shape: tuple[int, int, int]
    stable: bool

    @property
    def places(self) -> tuple[Place, ...]:
        count = math.prod(self.shape)
        return tuple((at, size * count) for at, size in zip(self.values, self.value_sizes, strict=True))

    def emit(self, program: Emitter) -> list[str]:
        """Sorts with the comparator of the object file.

        Raises:
          TfaotError: there are more buffers than the runtime can sort together.
        """
        if len(self.values) > program.most_sorted:
            raise TfaotError(
                f"the model sorts {len(self.values)} arrays together",
                exists=f"the limit is {program.most_sorted}",
                do="sort their indices instead, and gather each array by the sorted indices",
            )
        outer, length, inner = self.shape
        program.needs.add("sort")
        program.comparators.add(self.comparator)
        program.scratch[f"::tfaot::SortScratchBytes({length}, {max(self.value_sizes)})"] = None
        return [
            "{",
            f"  unsigned char* const values[] = {program.all_at(self.values)};",
            f"  static constexpr std::size_t kSizes[] = {{{', '.join(map(str, self.value_sizes))}}};",
            f"  ::tfaot::Sort({{{outer}, {length}, {inner}}}, &{self.comparator}, {len(self.values)}, values, kSizes,",
            "                instance.scratch);",
            "}",
        ]


@dataclass(frozen=True)
class TopK(_Opaque):
    """The `k` largest values and their indices in each of `batch` rows of `size` floats, largest first."""

    batch: int
    size: int
    k: int
    values: Slice
    out_values: Slice
    out_indices: Slice

    @property
    def places(self) -> tuple[Place, ...]:
        results = 4 * self.batch * self.k
        return (self.values, 4 * self.batch * self.size), (self.out_values, results), (self.out_indices, results)

    def emit(self, program: Emitter) -> list[str]:
        program.needs.add("sort")
        values = f"reinterpret_cast<const float*>({program.at(self.values)})"
        out_values = f"reinterpret_cast<float*>({program.at(self.out_values)})"
        out_indices = f"reinterpret_cast<std::int32_t*>({program.at(self.out_indices)})"
        return [f"::tfaot::TopK({self.batch}, {self.size}, {self.k}, {values}, {out_values}, {out_indices});"]


@dataclass(frozen=True)
class Rng(_Opaque):
    """Writes a state of 16 bytes, and advances it by its delta."""

    state: int
    out: Slice

    @property
    def places(self) -> tuple[Place, ...]:
        return ((self.out, 16),)

    def emit(self, program: Emitter) -> list[str]:
        return [f"::tfaot::NextRngState(instance.rng[{self.state}], {program.at(self.out)});"]


@dataclass(frozen=True)
class Call(_Nested):
    """Runs other thunks once."""

    body: tuple[Thunk, ...]

    def emit(self, program: Emitter) -> list[str]:
        return program.sequence(self.body)


@dataclass(frozen=True)
class For(_Nested):
    """Runs other thunks a fixed number of times."""

    trips: int
    body: tuple[Thunk, ...]

    def emit(self, program: Emitter) -> list[str]:
        loop = f"for (std::int64_t i = 0; i < {self.trips}; ++i) {{"
        return [loop, *program.sequence(self.body, 1), "}"]


@dataclass(frozen=True)
class While(_Nested):
    """Runs other thunks while a boolean is true. `condition` computes it before each round."""

    inside = "condition", "body"

    flag: Slice
    condition: tuple[Thunk, ...]
    body: tuple[Thunk, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        return ((self.flag, 1),)

    def emit(self, program: Emitter) -> list[str]:
        condition = program.sequence(self.condition, 1)
        end = f"  if (*({program.at(self.flag)}) == 0) break;"
        return ["for (;;) {", *condition, end, *program.sequence(self.body, 1), "}"]


@dataclass(frozen=True)
class Conditional(_Opaque):
    """Runs one of several bodies, chosen by an int32 or by a boolean. True chooses the first."""

    index: Slice
    boolean: bool
    branches: tuple[tuple[Thunk, ...], ...]

    @property
    def places(self) -> tuple[Place, ...]:
        return ((self.index, 1 if self.boolean else 4),)

    @property
    def bodies(self) -> tuple[tuple[Thunk, ...], ...]:
        return self.branches

    def with_bodies(self, change: Callable[[tuple[Thunk, ...]], tuple[Thunk, ...]]) -> Thunk:
        return replace(self, branches=tuple(map(change, self.branches)))

    def emit(self, program: Emitter) -> list[str]:
        at = program.at(self.index)
        index = f"*({at}) != 0 ? 0 : 1" if self.boolean else f"*reinterpret_cast<const std::int32_t*>({at})"
        lines = [f"switch ({index}) {{"]
        for branch, body in enumerate(self.branches):
            last = branch + 1 == len(self.branches)
            lines += [
                f"  {'default' if last else f'case {branch}'}: {{",
                *program.sequence(body, 2),
                "    break;",
                "  }",
            ]
        return [*lines, "}"]


@dataclass(frozen=True)
class CompiledFunction:
    """A compiled function: everything that running it needs, apart from the object files."""

    buffers: tuple[Buffer, ...]
    arguments: tuple[int, ...]
    """The buffers of the compiler's arguments."""
    results: tuple[int, ...]
    """The buffers of the compiler's results."""
    constants: tuple[str, ...]
    """Symbols of the data for the nonempty constant buffers, in order. The data starts 64 bytes in."""
    rng_deltas: tuple[int, ...]
    thunks: tuple[Thunk, ...]

    @property
    def temporary(self) -> set[int]:
        """The buffers that nobody has after a run."""
        return {
            index for index, buffer in enumerate(self.buffers) if buffer.kind == "temp" and index not in self.results
        }


def walk(thunks: tuple[Thunk, ...]) -> Iterator[Thunk]:
    """Iterates over all thunks, each before the thunks in it."""
    for thunk in thunks:
        yield thunk
        for body in thunk.bodies:
            yield from walk(body)


def mapped(thunks: tuple[Thunk, ...], change: Callable[[Thunk], Thunk]) -> tuple[Thunk, ...]:
    """Returns thunks, and those in them, as a function changes each of them."""
    return tuple(change(thunk).with_bodies(lambda body: mapped(body, change)) for thunk in thunks)


_SOURCES = {"float": "f32", "double": "f64", "int32_t": "s32"}
"""The suffix of a product's source file, for dtypes that have fast code."""

_CPP = {
    "float": "float",
    "double": "double",
    "int32_t": "std::uint32_t",
    "Eigen::half": "::tfaot::Float16",
    "std::complex<float>": "std::complex<float>",
    "std::complex<double>": "std::complex<double>",
}
"""Our runtime's names for tfcompile's dtypes."""


def _level(program: Emitter, source: str, call: str, *places: Slice) -> list[str]:
    """Returns a call of a CPU level's code, which threads share, given its begin."""
    program.sources.add(f"tfaot/kernels/{source}.cc")
    return [f"kernels::TFAOT_ISA::{call}, {', '.join(map(program.at, places))}, instance.threads);"]


def _call(program: Emitter, what: str, product: Product, sizes: str, *places: Slice) -> list[str]:
    """Returns a call of the CPU level's fast code, which supports threads and epilogues, or of plain loops."""
    dtype = product.dtype
    program.needs |= {"calls"} | {need for need in ("complex", "half") if need in dtype}
    if product.epilogue:
        program.needs.add("bounds")
    operands = ", ".join((sizes, *map(program.at, places)))
    end = f", instance.threads{_epilogue(program, product.epilogue)});"
    if program.packed(product.packing):
        program.sources.add("tfaot/kernels/stream_f32.cc")
        return [f"kernels::TFAOT_ISA::RunStream<float>({operands}{end}"]
    if dtype in _SOURCES if what == "Products" else dtype == "float":
        program.sources.add(f"tfaot/kernels/{what.lower()}_{_SOURCES[dtype]}.cc")
        scratch = ", instance.scratch" if what == "Winograd" else ""
        return [f"kernels::TFAOT_ISA::Run{what}<{_CPP[dtype]}>({operands}{scratch}{end}"]
    return [f"kernels::RunPlain{what}<{_CPP[dtype]}>({operands});"]


def _epilogue(program: Emitter, epilogue: Epilogue | None) -> str:
    if epilogue is None:
        return ""
    places = (epilogue.bias, epilogue.addend, epilogue.addend_bias, epilogue.out)
    numbers = [*_bounds(epilogue.low, epilogue.high)]
    if epilogue.scratch or epilogue.scale != 1:
        numbers += [repr(epilogue.scale), str(epilogue.scratch).lower()]
    return ", {" + ", ".join([*(program.at(place) if place else "nullptr" for place in places), *numbers]) + "}"


def _bounds(low: float, high: float) -> tuple[str, str]:
    """Returns bounds as C++. repr() returns a float's shortest text, which parses to the same value; an infinity's isn't C++."""
    return repr(low).replace("inf", "INFINITY"), repr(high).replace("inf", "INFINITY")


def _span(batch: int, step: int, apart: int, columns: int, values: int) -> int:
    """Returns the number of values from the first to the last of some matrices, including those in between."""
    if not batch * columns * values:
        return 0
    return step * (batch - 1) + (apart or values) * (columns - 1) + values


def _arithmetic(operations: tuple[Operation, ...]) -> int:
    """Returns the arithmetic of a formula for each value."""
    reads = ("array", "column", "constant", "integer", "row", "scalar")
    return sum(1 + ("_" in operation.opcode) for operation in operations if operation.opcode not in reads)


def _area(size: tuple[int, int]) -> int:
    return size[0] * size[1]


SIZES: Mapping[str, int] = {
    "Eigen::half": 2,
    "float": 4,
    "double": 8,
    "int32_t": 4,
    "std::complex<float>": 8,
    "std::complex<double>": 16,
}
"""The bytes of a value, for each dtype of products and convolutions."""
