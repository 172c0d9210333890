"""Renders the program of a compiled function: C++ that runs its thunks, with as much as possible computed ahead of time.

tfcompile's own header does the same through XLA's runtime, which needs abseil and Eigen, and allocates memory during a
run. Here, a run calls the kernels directly, and creating an instance fills in where their arguments are.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfaot.compile.program import formula_code, packing, row_formula_code, thunks
from tfaot.compile.program.formulas import Formula
from tfaot.compile.program.thunks import CompiledFunction, Epilogue, Slice, Thunk
from tfaot.core import templates
from tfaot.core.errors import TfaotError
from tfaot.core.functions import for_isa

_TEMPLATES = os.path.join(os.path.dirname(__file__), "templates")

ALIGNMENT = 64
"""The alignment in bytes of every buffer in an instance's memory, as XLA's kernels expect it. Generated programs assert that the
runtime has the same number for this and the following constants."""

MAX_SORTED = 64
"""The most arrays that can be sorted together: `kMaxSorted` in runtime/tfaot/sort.h."""

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


@dataclass(frozen=True)
class Rendered:
    """C++ code of a compiled function."""

    header: str
    """Declares the class that is a member of the public class."""
    sources: tuple[str, ...]
    """Its programs, one for each CPU level, to compile for that level."""
    kernels: tuple[str, ...]
    """The runtime's sources that programs call, each compiled for the program's level: `tfaot/kernels/products_f32.cc`."""


def render(functions: Mapping[str, CompiledFunction], *, cpp_class: str, cost: float, tensorflow: str) -> Rendered:
    """Renders a compiled function.

    Args:
      functions: from tfcompile's headers, by CPU level, lowest first. Each was compiled as `functions.for_isa(cpp_class, …)`.
      cpp_class: the class to declare, `namespace::name`, unique in a program.
      cost: the cost of a run, in any unit.
      tensorflow: the TensorFlow version that compiled it.

    Raises:
      TfaotError: the function sorts more arrays together than the runtime can.
    """
    namespace, _, name = cpp_class.rpartition("::")
    shared = {
        "arg_bytes": _bytes(min, [[f.buffers[b].size for b in f.arguments] for f in functions.values()]),
        "cost": f"{cost:.6g}",
        "function": next(iter(functions.values())),
        "guard": "TFAOT_GENERATED_" + name + "_EXECUTOR_H_",
        "name": name,
        "namespace": namespace,
        "result_bytes": _bytes(min, [[f.buffers[b].size for b in f.results] for f in functions.values()]),
        "result_room": _bytes(max, [[f.buffers[b].size for b in f.results] for f in functions.values()]),
        "programs": {isa: for_isa(name, isa) + "_program" for isa in functions},
        "tensorflow": tensorflow,
    }
    environment = templates.environment(_TEMPLATES)
    source = environment.get_template("executor.cc.jinja")
    plans = {isa: _Plan(function) for isa, function in functions.items()}
    return Rendered(
        environment.get_template("executor.h.jinja").render(shared),
        tuple(source.render(shared, **plan.context(), function=functions[isa], isa=isa) for isa, plan in plans.items()),
        tuple(sorted({path for plan in plans.values() for path in plan.kernels})),
    )


def _bytes(choose: Callable[..., int], sizes: Sequence[Sequence[int]]) -> str:
    """Lists, in C++, the fewest or most bytes of each argument or result at any CPU level. A zero ends the list."""
    return ", ".join(f"{size}u" for size in (*map(choose, zip(*sizes, strict=True)), 0))


class _Plan:
    """Renumbers and places the buffers, and writes the run.

    The new order is: arguments, buffers in an instance's memory, constants. A buffer gets no number if no thunk uses it
    and it contains no result.
    """

    def __init__(self, function: CompiledFunction) -> None:
        self._function = function
        self._kernel_args: list[tuple[int, int, int]] = []
        self._calls: list[str] = []
        self._products: list[str] = []
        self._images: list[str] = []
        self._formulas: dict[Formula, int] = {}
        self._row_formulas: dict[tuple[thunks.RowFormula, int], int] = {}
        self.kernels = set[str]()
        """As `Rendered.kernels`."""
        self._scratch: list[str] = []
        self._facts = {f"::tfaot::Executor::kAlignment == {ALIGNMENT}": None}
        used = {at.buffer for thunk in thunks.walk(function.thunks) for at, _ in thunks.slices(thunk)}
        used |= set(function.results)
        self._new = {buffer: index for index, buffer in enumerate(function.arguments)}
        self._memory: list[int] = []
        self._memory_bytes = 0
        constants = [
            index for index, buffer in enumerate(function.buffers) if buffer.kind == "constant" and buffer.size
        ]
        for index in sorted(used - set(self._new) - set(constants)):
            self._new[index] = len(self._new)
            self._memory.append(self._memory_bytes)
            self._memory_bytes += _aligned(function.buffers[index].size)
        self._constants = []
        for index, symbol in zip(constants, function.constants, strict=True):
            if index in used:
                self._new[index] = len(self._new)
                self._constants.append(symbol)
        self._run = self._sequence(function.thunks, 1)

    def context(self) -> dict[str, Any]:
        """Returns the names that the templates use."""
        function = self._function
        all_thunks = tuple(thunks.walk(function.thunks))
        products = [thunk for thunk in all_thunks if isinstance(thunk, thunks.Dot | thunks.Convolution)]
        dtypes = {thunk.dtype for thunk in products}
        uses: list[int] = []
        first_use = [0]
        for argument in range(len(function.arguments)):
            uses += [index for index, (_, _, buffer) in enumerate(self._kernel_args) if buffer == argument]
            first_use.append(len(uses))
        dense_nets = any(isinstance(thunk, thunks.DenseNet) for thunk in all_thunks)
        return {
            "calls": self._calls,
            "comparators": sorted({thunk.comparator for thunk in all_thunks if isinstance(thunk, thunks.Sort)}),
            "constant_data": [f"{symbol} + 64" for symbol in self._constants],
            "constants": self._constants,
            "facts": [*self._facts],
            "first_use": first_use,
            "formulas": [*map(formula_code.code, self._formulas)],
            "images": self._images,
            "kernel_args": [f"{{{offset}u, {size}u, {buffer}u}}" for offset, size, buffer in self._kernel_args],
            "kernels": sorted({thunk.symbol for thunk in all_thunks if isinstance(thunk, thunks.Kernel)}),
            "memory": [f"{offset}u" for offset in self._memory],
            "memory_bytes": self._memory_bytes,
            "products": self._products,
            "row_formulas": [*itertools.starmap(row_formula_code.code, self._row_formulas)],
            "results": [f"{self._new[buffer]}u" for buffer in function.results],
            "run": self._run,
            "scratch": list(dict.fromkeys(self._scratch)),
            "uses": uses,
            "uses_calls": bool(dtypes or self.kernels),
            "uses_bounds": dense_nets or any(thunk.epilogue for thunk in products),
            "uses_complex": any("complex" in dtype for dtype in dtypes),
            "uses_dense_nets": dense_nets,
            "uses_half": "Eigen::half" in dtypes,
            "uses_sort": any(isinstance(thunk, thunks.Sort | thunks.TopK) for thunk in all_thunks),
            "uses_winograd": any(thunk.packing == "winograd" for thunk in products),
        }

    def _at(self, place: Slice) -> str:
        return f"b[{self._new[place.buffer]}] + {place.offset}"

    def _sequence(self, sequence: Sequence[Thunk], depth: int) -> list[str]:
        return [line for thunk in sequence for line in self._thunk(thunk, depth)]

    def _thunk(self, thunk: Thunk, depth: int) -> list[str]:
        code = self._code(thunk, depth)
        if isinstance(thunk, thunks.Call | thunks.For | thunks.While | thunks.Conditional):
            return code
        return [f'{"  " * depth}if (!step("{_title(thunk)}")) return false;', *code]

    def _code(self, thunk: Thunk, depth: int) -> list[str]:
        indent = "  " * depth
        if isinstance(thunk, thunks.Kernel):
            return [indent + self._kernel(thunk)]
        if isinstance(thunk, thunks.Dot):
            return [indent + self._dot(thunk)]
        if isinstance(thunk, thunks.Convolution):
            return [indent + self._convolution(thunk)]
        if isinstance(thunk, thunks.Sweep):
            return [indent + self._sweep(thunk)]
        if isinstance(thunk, thunks.RowSweep):
            return [indent + self._row_sweep(thunk)]
        if isinstance(thunk, thunks.Softmax):
            return [indent + self._softmax(thunk)]
        if isinstance(thunk, thunks.ColumnSums):
            return [indent + self._column_sums(thunk)]
        if isinstance(thunk, thunks.RowCopies):
            return [indent + self._row_copies(thunk)]
        if isinstance(thunk, thunks.FilterGradient):
            return [indent + self._filter_gradient(thunk)]
        if isinstance(thunk, thunks.DenseNet):
            return self._dense_net(thunk, indent)
        if isinstance(thunk, thunks.Copy):
            return [f"{indent}std::memcpy({self._at(thunk.out)}, {self._at(thunk.input)}, {thunk.size});"]
        if isinstance(thunk, thunks.Pack):
            return [indent + self._pack(thunk)]
        if isinstance(thunk, thunks.Sort):
            return [indent + line for line in self._sort(thunk)]
        if isinstance(thunk, thunks.TopK):
            return [indent + self._top_k(thunk)]
        if isinstance(thunk, thunks.Rng):
            return [f"{indent}::tfaot::NextRngState(instance.rng[{thunk.state}], {self._at(thunk.out)});"]
        if isinstance(thunk, thunks.Call):
            return self._sequence(thunk.body, depth)
        if isinstance(thunk, thunks.For):
            return [
                f"{indent}for (std::int64_t i = 0; i < {thunk.trips}; ++i) {{",
                *self._sequence(thunk.body, depth + 1),
                indent + "}",
            ]
        if isinstance(thunk, thunks.While):
            return [
                indent + "for (;;) {",
                *self._sequence(thunk.condition, depth + 1),
                f"{indent}  if (*({self._at(thunk.flag)}) == 0) break;",
                *self._sequence(thunk.body, depth + 1),
                indent + "}",
            ]
        return self._conditional(thunk, depth)

    def _kernel(self, kernel: thunks.Kernel) -> str:
        call = len(self._calls)
        self._kernel_args += [(arg.slice.offset, arg.size, self._new[arg.slice.buffer]) for arg in kernel.args]
        self._calls.append(f"{{{{{', '.join(f'{count}u' for count in kernel.workgroups)}}}, {len(kernel.args)}u}}")
        if kernel.workgroups == (1, 1, 1):
            return f"if ({kernel.symbol}(calls + {call}) != nullptr) return false;"
        return f"if (!::tfaot::RunWorkgroups(&{kernel.symbol}, calls[{call}])) return false;"

    def _sweep(self, sweep: thunks.Sweep) -> str:
        index = self._formulas.setdefault(sweep.formula, len(self._formulas))
        arrays, scalars = (", ".join(map(self._at, places)) for places in (sweep.arrays, sweep.scalars))
        return f"kernels::RunSweep<Formula{index}>({sweep.count}, {{{arrays}}}, {{{scalars}}}, instance.threads);"

    def _row_sweep(self, sweep: thunks.RowSweep) -> str:
        index = self._row_formulas.setdefault((sweep.formula, sweep.columns), len(self._row_formulas))
        places = (
            "{" + ", ".join(map(self._at, each)) + "}"
            for each in (sweep.arrays, sweep.vectors, sweep.values, sweep.scalars)
        )
        return f"kernels::RunRowSweep<RowFormula{index}>({sweep.rows}, {', '.join(places)}, instance.threads);"

    def _softmax(self, softmax: thunks.Softmax) -> str:
        self.kernels.add("tfaot/kernels/softmax_f32.cc")
        sizes = f"{softmax.rows}, {softmax.columns}, {softmax.scale!r}f"
        places = f"{self._at(softmax.input)}, {self._at(softmax.out)}"
        return f"kernels::TFAOT_ISA::RunSoftmax<float>({sizes}, {places}, instance.threads);"

    def _column_sums(self, sums: thunks.ColumnSums) -> str:
        self.kernels.add("tfaot/kernels/column_sums_f32.cc")
        sizes = ", ".join(map(str, (sums.arrays, sums.rows, sums.columns, sums.blocks, sums.first, sums.step)))
        places = f"{self._at(sums.input)}, {self._at(sums.out)}"
        return f"kernels::TFAOT_ISA::RunColumnSums<float>({{{sizes}}}, {places}, instance.threads);"

    def _row_copies(self, copies: thunks.RowCopies) -> str:
        self.kernels.add("tfaot/kernels/row_copies_f32.cc")
        self._facts[f"::tfaot::kernels::RowOrder::kLoops == {len(copies.loops)}"] = None
        loops = ", ".join(f"{{{count}, {step}}}" for count, step in copies.loops)
        order = f"{{{copies.first}, {{{loops}}}, {copies.row}}}"
        places = f"{self._at(copies.input)}, {self._at(copies.out)}"
        return f"kernels::TFAOT_ISA::RunRowCopies<float>({order}, {places}, instance.threads);"

    def _filter_gradient(self, gradient: thunks.FilterGradient) -> str:
        self.kernels.add("tfaot/kernels/filter_gradient_f32.cc")
        sizes = gradient.batch, gradient.channels, gradient.channels, gradient.filters, 1
        pairs = (
            gradient.input_size,
            gradient.kernel_size,
            gradient.output_size,
            gradient.stride,
            gradient.padding,
            (1, 1),
            (1, 1),
        )
        places = ", ".join(map(self._at, (gradient.input, gradient.gradient, gradient.out)))
        images = self._image(sizes, pairs, "kernels::Packing::kNone")
        return f"kernels::TFAOT_ISA::RunFilterGradient<float>({images}, {places}, instance.threads);"

    def _dense_net(self, net: thunks.DenseNet, indent: str) -> list[str]:
        layers = [
            f"kernels::Dense<{layer.depth}, {layer.columns}, {str(layer.transposed).lower()}>{{"
            + ", ".join(
                (
                    self._at(layer.row),
                    self._at(layer.matrix),
                    "nullptr" if layer.bias is None else self._at(layer.bias),
                    self._at(layer.out),
                    *_bounds(layer.low, layer.high),
                )
            )
            + "}"
            for layer in net.layers
        ]
        *others, last = layers
        return [
            f"{indent}kernels::RunDenseNet(",
            *(f"{indent}    {layer}," for layer in others),
            f"{indent}    {last});",
        ]

    def _image(self, sizes: Sequence[int], pairs: Sequence[tuple[int, int]], packing: str) -> str:
        """Adds an entry of the table of convolutions, and returns its name. `pairs` have what each axis has."""
        axes = ", ".join(f"{{{', '.join(str(pair[axis]) for pair in pairs)}}}" for axis in (0, 1))
        self._images.append(f"{{{', '.join(map(str, sizes))}, {axes}, {packing}}}")
        return f"kImages[{len(self._images) - 1}]"

    def _dot(self, dot: thunks.Dot) -> str:
        # A matrix by columns is its transpose by rows. The transpose of a product is the product of the transposes in
        # reverse order.
        out_step, right_step, left_step = dot.strides
        transposed = [str(flag).lower() for flag in (dot.transpose_rhs, dot.transpose_lhs)]
        index = len(self._products)
        sizes = ", ".join(map(str, (dot.batch, dot.n, dot.m, dot.k, *transposed, left_step, right_step, out_step)))
        apart = "".join(f", {distance}" for distance in reversed(dot.columns_apart)) if any(dot.columns_apart) else ""
        self._products.append(f"{{{sizes}, {_packing(dot)}{apart}}}")
        return self._call("Products", dot, f"kProducts[{index}]", dot.rhs, dot.lhs, dot.out)

    def _convolution(self, c: thunks.Convolution) -> str:
        pairs = (
            c.input_size,
            c.kernel_size,
            c.output_size,
            c.stride,
            c.padding_before,
            c.input_dilation,
            c.kernel_dilation,
        )
        sizes = self._image((c.batch, c.input_channels, c.kernel_channels, c.filters, c.groups), pairs, _packing(c))
        if c.packing == "winograd":
            self._scratch.append(f"kernels::WinogradScratchBytes({sizes})")
            return self._call("Winograd", c, sizes, c.input, c.kernel, c.out)
        return self._call("Convolution", c, sizes, c.input, c.kernel, c.out)

    def _pack(self, pack: thunks.Pack) -> str:
        self._facts.update(dict.fromkeys(packing.facts("panels")))
        self.kernels.add(f"tfaot/kernels/products_{_SOURCES[pack.dtype]}.cc")
        transposed = str(pack.transposed).lower()
        sides = f"{self._at(pack.input)}, {self._at(pack.out)}"
        return f"kernels::TFAOT_ISA::RunPack<{_CPP[pack.dtype]}>({pack.depth}, {pack.columns}, {transposed}, {sides});"

    def _call(self, what: str, thunk: thunks.Dot | thunks.Convolution, sizes: str, *places: Slice) -> str:
        """Returns a call of the CPU level's fast code, which supports threads and epilogues, or of plain loops."""
        dtype = thunk.dtype
        self._facts.update(dict.fromkeys(packing.facts(thunk.packing)))
        operands = ", ".join((sizes, *map(self._at, places)))
        if thunk.packing in packing.STREAMS:
            self.kernels.add("tfaot/kernels/stream_f32.cc")
            return (
                f"kernels::TFAOT_ISA::RunStream<float>({operands}, instance.threads{self._epilogue(thunk.epilogue)});"
            )
        if dtype in _SOURCES if what == "Products" else dtype == "float":
            self.kernels.add(f"tfaot/kernels/{what.lower()}_{_SOURCES[dtype]}.cc")
            if what == "Winograd":
                operands += ", instance.scratch"
            return f"kernels::TFAOT_ISA::Run{what}<{_CPP[dtype]}>({operands}, instance.threads{self._epilogue(thunk.epilogue)});"
        return f"kernels::RunPlain{what}<{_CPP[dtype]}>({operands});"

    def _epilogue(self, epilogue: Epilogue | None) -> str:
        if epilogue is None:
            return ""
        places = [
            place and self._at(place) for place in (epilogue.bias, epilogue.addend, epilogue.addend_bias, epilogue.out)
        ]
        numbers = [*_bounds(epilogue.low, epilogue.high)]
        if epilogue.scratch or epilogue.scale != 1:
            numbers += [repr(epilogue.scale), str(epilogue.scratch).lower()]
        return ", {" + ", ".join([*(place or "nullptr" for place in places), *numbers]) + "}"

    def _sort(self, sort: thunks.Sort) -> list[str]:
        if len(sort.values) > MAX_SORTED:
            raise TfaotError(
                f"the model sorts {len(sort.values)} arrays together",
                exists=f"the limit is {MAX_SORTED}",
                do="sort their indices instead, and gather each array by the sorted indices",
            )
        outer, length, inner = sort.shape
        self._facts[f"::tfaot::kMaxSorted == {MAX_SORTED}"] = None
        self._scratch.append(f"::tfaot::SortScratchBytes({length}, {max(sort.value_sizes)})")
        return [
            "{",
            f"  unsigned char* const values[] = {{{', '.join(map(self._at, sort.values))}}};",
            f"  static constexpr std::size_t kSizes[] = {{{', '.join(map(str, sort.value_sizes))}}};",
            f"  ::tfaot::Sort({{{outer}, {length}, {inner}}}, &{sort.comparator}, {len(sort.values)}, values, kSizes,",
            "                instance.scratch);",
            "}",
        ]

    def _top_k(self, top: thunks.TopK) -> str:
        values = f"reinterpret_cast<const float*>({self._at(top.values)})"
        out_values = f"reinterpret_cast<float*>({self._at(top.out_values)})"
        out_indices = f"reinterpret_cast<std::int32_t*>({self._at(top.out_indices)})"
        return f"::tfaot::TopK({top.batch}, {top.size}, {top.k}, {values}, {out_values}, {out_indices});"

    def _conditional(self, conditional: thunks.Conditional, depth: int) -> list[str]:
        indent = "  " * depth
        at = self._at(conditional.index)
        # An index out of range selects the last branch, in XLA as in TensorFlow.
        index = f"*({at}) != 0 ? 0 : 1" if conditional.boolean else f"*reinterpret_cast<const std::int32_t*>({at})"
        lines = [f"{indent}switch ({index}) {{"]
        for branch, body in enumerate(conditional.branches):
            last = branch + 1 == len(conditional.branches)
            lines += [
                f"{indent}  {'default' if last else f'case {branch}'}: {{",
                *self._sequence(body, depth + 2),
                f"{indent}    break;",
                indent + "  }",
            ]
        return [*lines, indent + "}"]


def _title(thunk: Thunk) -> str:
    """Returns what hooks are told that a thunk is."""
    if isinstance(thunk, thunks.Kernel):
        return thunk.symbol
    if isinstance(thunk, thunks.Sweep):
        return f"sweep {thunk.count}"
    if isinstance(thunk, thunks.RowSweep):
        return f"row_sweep {thunk.rows}x{thunk.columns}"
    if isinstance(thunk, thunks.Softmax):
        return f"softmax {thunk.rows}x{thunk.columns}"
    if isinstance(thunk, thunks.ColumnSums):
        return f"column_sums {thunk.arrays}x{thunk.rows}x{thunk.columns}"
    if isinstance(thunk, thunks.RowCopies):
        return f"row_copies {thunk.size // 4 // thunk.row}x{thunk.row}"
    if isinstance(thunk, thunks.FilterGradient):
        return "filter_gradient {}x{}x{}x{}".format(*thunk.kernel_size, thunk.channels, thunk.filters)
    if isinstance(thunk, thunks.DenseNet):
        return f"dense_net {thunk.layers[0].depth}" + "".join(f"x{layer.columns}" for layer in thunk.layers)
    if isinstance(thunk, thunks.Dot):
        return f"dot {thunk.batch}x{thunk.n}x{thunk.k}x{thunk.m}"
    return type(thunk).__name__.lower()


def _bounds(low: float, high: float) -> tuple[str, str]:
    """Returns bounds as C++. repr() returns a float's shortest text, which parses to the same value; an infinity's isn't C++."""
    return repr(low).replace("inf", "INFINITY"), repr(high).replace("inf", "INFINITY")


def _packing(thunk: thunks.Dot | thunks.Convolution) -> str:
    return f"kernels::Packing::k{thunk.packing.capitalize()}"


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
