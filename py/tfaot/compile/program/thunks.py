"""A compiled function: its buffers, and the thunks that a run executes one after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tfaot.compile.program.formulas import Formula, Operation


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


@dataclass(frozen=True)
class SizedSlice:
    """A kernel's argument."""

    slice: Slice
    size: int


@dataclass(frozen=True)
class Kernel:
    """A call of a function in the object file, once for each workgroup."""

    symbol: str
    args: tuple[SizedSlice, ...]
    workgroups: tuple[int, int, int]


@dataclass(frozen=True)
class Epilogue:
    """Finishes the result of a product or convolution: min(max((result + bias) + (addend + addend_bias), low), high).

    Or, without biases, `scale * result + addend` within these bounds. tfcompile's header has none. The pass `epilogues` makes
    them from kernels. The result without the epilogue is stored, too, unless its place is scratch.
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
class Dot:
    """`batch` products of matrices that are stored by columns: out[m][n] = lhs[m][k] * rhs[k][n]."""

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

    tfcompile's columns are. The pass `strided_products` sets these distances.
    """

    @property
    def stored(self) -> tuple[tuple[int, int], ...]:
        """The number of columns, and of values in each, as out, lhs, and rhs are stored."""
        lhs, rhs = (self.k, self.m), (self.n, self.k)
        return (self.n, self.m), lhs[::-1] if self.transpose_lhs else lhs, rhs[::-1] if self.transpose_rhs else rhs


@dataclass(frozen=True)
class Convolution:
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


@dataclass(frozen=True)
class Sweep:
    """Applies a formula to arrays of `count` values. An array can overlap what is written only if it is the same array.

    tfcompile's header has none. The pass `sweeps` makes them from kernels.
    """

    formula: Formula
    count: int
    arrays: tuple[Slice, ...]
    scalars: tuple[Slice, ...]
    """Single values."""

    @property
    def written(self) -> tuple[int, ...]:
        """The arrays that it writes."""
        return tuple(array for array, _ in self.formula.results)


@dataclass(frozen=True)
class RowFormula:
    """What happens to each row of some arrays.

    The opcodes of operations are those of a `Formula`, and more: `column` and `row` read the value of the column from `vectors` and
    that of the row from `values`, and `sum` adds up an operand's values of a row.
    """

    operations: tuple[Operation, ...]
    arrays: tuple[tuple[int, int], ...]
    """The arrays that are written, with the operations that compute their values. Each is written after a row's other reads."""
    values: tuple[tuple[int, int], ...]
    """The same for values of rows."""


@dataclass(frozen=True)
class RowSweep:
    """Applies a formula to the rows of arrays. An array can overlap what is written only if it is the same array.

    tfcompile's header has none. The pass `row_sweeps` makes them from kernels.
    """

    formula: RowFormula
    rows: int
    columns: int
    arrays: tuple[Slice, ...]
    vectors: tuple[Slice, ...]
    """One value for each column."""
    values: tuple[Slice, ...]
    """One value for each row."""
    scalars: tuple[Slice, ...]


@dataclass(frozen=True)
class Softmax:
    """The softmax of `scale` times each of `rows` rows of floats. `out` can be the input.

    tfcompile's header has none. The pass `softmax` makes them from kernels.
    """

    rows: int
    columns: int
    scale: float
    out: Slice
    input: Slice


@dataclass(frozen=True)
class ColumnSums:
    """Sums of the rows of `arrays` arrays of floats, in blocks: the first has `first` rows, others have `step` or fewer.

    tfcompile's header has none. The pass `column_sums` makes them from kernels.
    """

    arrays: int
    rows: int
    columns: int
    blocks: int
    """The number of sums for each array and column."""
    first: int
    step: int
    out: Slice
    input: Slice


@dataclass(frozen=True)
class RowCopies:
    """Copies rows of floats in another order: loops, outermost first, read rows and write them one after another.

    tfcompile's header has none. The pass `row_copies` makes them from kernels.
    """

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


@dataclass(frozen=True)
class FilterGradient:
    """The gradient of a convolution of images with channels last by its kernel, as out[channels][x][y][filters].

    tfcompile's header has none. The pass `filter_gradients` makes them from convolutions. Sizes are those of the convolution
    that it is the gradient of. In each pair, x is the slower axis. All values are floats.
    """

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


@dataclass(frozen=True)
class Dense:
    """A layer on one row: out = clamp(row[depth] * matrix[depth, columns] + bias). All values are floats."""

    out: Slice
    row: Slice
    matrix: Slice
    bias: Slice | None
    depth: int
    columns: int
    transposed: bool
    """Whether the matrix is stored as [columns, depth]."""
    low: float
    high: float


@dataclass(frozen=True)
class DenseNet:
    """Layers, one after another.

    tfcompile's header has none. The pass `dense_nets` makes them from kernels.
    """

    layers: tuple[Dense, ...]


@dataclass(frozen=True)
class Copy:
    """A copy of bytes that don't overlap."""

    out: Slice
    input: Slice
    size: int


@dataclass(frozen=True)
class Pack:
    """Packs a product's right side into the panels of `prepack`.

    tfcompile's header has none. The pass `pack_loops` puts them before loops.
    """

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


@dataclass(frozen=True)
class Sort:
    """Sorts `shape[0] * shape[2]` vectors of `shape[1]` values in place. All buffers get the same order."""

    comparator: str
    """The symbol of a function in the object file."""
    values: tuple[Slice, ...]
    value_sizes: tuple[int, ...]
    """The bytes per value in each buffer."""
    shape: tuple[int, int, int]
    stable: bool


@dataclass(frozen=True)
class TopK:
    """The `k` largest values and their indices in each of `batch` rows of `size` floats, largest first."""

    batch: int
    size: int
    k: int
    values: Slice
    out_values: Slice
    out_indices: Slice


@dataclass(frozen=True)
class Rng:
    """Writes a state of 16 bytes, and advances it by its delta."""

    state: int
    out: Slice


@dataclass(frozen=True)
class Call:
    """Runs other thunks once."""

    body: tuple[Thunk, ...]


@dataclass(frozen=True)
class For:
    """Runs other thunks a fixed number of times."""

    trips: int
    body: tuple[Thunk, ...]


@dataclass(frozen=True)
class While:
    """Runs other thunks while a boolean is true. `condition` computes it before each round."""

    flag: Slice
    condition: tuple[Thunk, ...]
    body: tuple[Thunk, ...]


@dataclass(frozen=True)
class Conditional:
    """Runs one of several bodies, chosen by an int32 or by a boolean. True chooses the first."""

    index: Slice
    boolean: bool
    branches: tuple[tuple[Thunk, ...], ...]


Thunk = (
    Kernel
    | Dot
    | Convolution
    | Sweep
    | RowSweep
    | Softmax
    | ColumnSums
    | RowCopies
    | FilterGradient
    | DenseNet
    | Copy
    | Pack
    | Sort
    | TopK
    | Rng
    | Call
    | For
    | While
    | Conditional
)


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
        for body in bodies(thunk):
            yield from walk(body)


def bodies(thunk: Thunk) -> tuple[tuple[Thunk, ...], ...]:
    """Returns the sequences of thunks in a thunk."""
    if isinstance(thunk, Call | For):
        return (thunk.body,)
    if isinstance(thunk, While):
        return thunk.condition, thunk.body
    return thunk.branches if isinstance(thunk, Conditional) else ()


def with_bodies(thunk: Thunk, change: Callable[[tuple[Thunk, ...]], tuple[Thunk, ...]]) -> Thunk:
    """Returns a thunk with each of its `bodies` replaced by `change`, in order."""
    if isinstance(thunk, Call | For):
        return replace(thunk, body=change(thunk.body))
    if isinstance(thunk, While):
        return replace(thunk, condition=change(thunk.condition), body=change(thunk.body))
    if isinstance(thunk, Conditional):
        return replace(thunk, branches=tuple(map(change, thunk.branches)))
    return thunk


def slices(thunk: Thunk) -> tuple[tuple[Slice, int], ...]:
    """Returns what a thunk itself reads and writes, with sizes in bytes. Products and convolutions have their result first."""
    if isinstance(thunk, Kernel):
        return tuple((arg.slice, arg.size) for arg in thunk.args)
    if isinstance(thunk, Dot):
        size = SIZES[thunk.dtype]
        out, lhs, rhs = (
            (at, size * _span(thunk.batch, step, apart, *shape))
            for at, step, apart, shape in zip(
                (thunk.out, thunk.lhs, thunk.rhs), thunk.strides, thunk.columns_apart, thunk.stored, strict=True
            )
        )
        return out, lhs, rhs, *_epilogue_slices(thunk.epilogue, out[1], size * thunk.m)
    if isinstance(thunk, Convolution):
        size = SIZES[thunk.dtype]
        out_size = size * thunk.batch * _area(thunk.output_size) * thunk.filters
        return (
            (thunk.out, out_size),
            (thunk.input, size * thunk.batch * _area(thunk.input_size) * thunk.input_channels),
            (thunk.kernel, size * _area(thunk.kernel_size) * thunk.kernel_channels * thunk.filters),
            *_epilogue_slices(thunk.epilogue, out_size, size * thunk.filters),
        )
    if isinstance(thunk, Sweep):
        size = SIZES[thunk.formula.dtype]
        return (*((at, size * thunk.count) for at in thunk.arrays), *((at, size) for at in thunk.scalars))
    if isinstance(thunk, RowSweep):
        size = SIZES["float"]
        return (
            *((at, size * thunk.rows * thunk.columns) for at in thunk.arrays),
            *((at, size * thunk.columns) for at in thunk.vectors),
            *((at, size * thunk.rows) for at in thunk.values),
            *((at, size) for at in thunk.scalars),
        )
    if isinstance(thunk, Softmax):
        size = SIZES["float"] * thunk.rows * thunk.columns
        return (thunk.out, size), (thunk.input, size)
    if isinstance(thunk, ColumnSums):
        size = SIZES["float"] * thunk.arrays * thunk.columns
        return (thunk.out, size * thunk.blocks), (thunk.input, size * thunk.rows)
    if isinstance(thunk, RowCopies):
        return (thunk.out, thunk.size), (thunk.input, thunk.input_size)
    if isinstance(thunk, FilterGradient):
        size = SIZES["float"]
        return (
            (thunk.out, size * _area(thunk.kernel_size) * thunk.channels * thunk.filters),
            (thunk.input, size * thunk.batch * _area(thunk.input_size) * thunk.channels),
            (thunk.gradient, size * thunk.batch * _area(thunk.output_size) * thunk.filters),
        )
    if isinstance(thunk, DenseNet):
        return (*((each.out, SIZES["float"] * each.columns) for each in thunk.layers), *_dense_operands(thunk))
    if isinstance(thunk, Copy):
        return (thunk.out, thunk.size), (thunk.input, thunk.size)
    if isinstance(thunk, Pack):
        return (thunk.out, thunk.size), (thunk.input, SIZES[thunk.dtype] * thunk.depth * thunk.columns)
    if isinstance(thunk, Sort):
        count = thunk.shape[0] * thunk.shape[1] * thunk.shape[2]
        return tuple((at, size * count) for at, size in zip(thunk.values, thunk.value_sizes, strict=True))
    if isinstance(thunk, TopK):
        found = 4 * thunk.batch * thunk.k
        return (thunk.values, 4 * thunk.batch * thunk.size), (thunk.out_values, found), (thunk.out_indices, found)
    if isinstance(thunk, Rng):
        return ((thunk.out, 16),)
    if isinstance(thunk, While):
        return ((thunk.flag, 1),)
    return ((thunk.index, 1 if thunk.boolean else 4),) if isinstance(thunk, Conditional) else ()


def _dense_operands(net: DenseNet) -> Iterator[tuple[Slice, int]]:
    size = SIZES["float"]
    for layer in net.layers:
        yield layer.row, size * layer.depth
        yield layer.matrix, size * layer.depth * layer.columns
        if layer.bias:
            yield layer.bias, size * layer.columns


def _epilogue_slices(epilogue: Epilogue | None, size: int, bias_size: int) -> tuple[tuple[Slice, int], ...]:
    if epilogue is None:
        return ()
    biases = ((place, bias_size) for place in (epilogue.bias, epilogue.addend_bias) if place)
    addend = ((epilogue.addend, size),) if epilogue.addend else ()
    return (epilogue.out, size), *biases, *addend


def _span(batch: int, step: int, apart: int, columns: int, values: int) -> int:
    """Returns the number of values from the first to the last of some matrices, including those in between."""
    if not batch * columns * values:
        return 0
    return step * (batch - 1) + (apart or values) * (columns - 1) + values


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
