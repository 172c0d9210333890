"""Runs a pass on a program that a test gives as thunks, and as the HLO of their kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from tests.xla.hlo import parsed
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import CompiledFunction, Convolution, Kernel, Slice, Thunk
from tfaot.compile.program.values.graph import Graph, Value
from tfaot.compile.program.values.instructions import fusions

_parsed = functools.lru_cache(1)(parsed)
NOTHING: Mapping[str, bytes] = {}
NO_KERNELS = "HloModule m, is_scheduled=true\n\nENTRY %main () -> f32[] {\n  ROOT %z = f32[] constant(0)\n}\n"
"""A module."""


def compiled(
    run: Callable[[Compiled], int], hlo: str, function: CompiledFunction, constants: Mapping[str, bytes] = NOTHING
) -> Compiled:
    """Returns what a pass makes of a function, with its near misses.

    Args:
      run: the pass.
      hlo: the module of the function's kernels.
      function: the function.
      constants: contents of its constants, by symbol.
    """
    values = {symbol: memoryview(content) for symbol, content in constants.items()}
    result = Compiled({"x86-64-v3": function}, values, (_parsed(hlo),))
    run(result)
    return result


def changed(
    run: Callable[[Compiled], int], hlo: str, function: CompiledFunction, constants: Mapping[str, bytes] = NOTHING
) -> CompiledFunction:
    """Returns what a pass makes of a function, like `compiled`."""
    return compiled(run, hlo, function, constants).functions["x86-64-v3"]


def thunks(run: Callable[[Compiled], int], hlo: str, function: CompiledFunction) -> tuple[Thunk, ...]:
    """Returns the thunks that a pass makes of a function without constants."""
    return changed(run, hlo, function).thunks


def kernel(hlo: str, symbol: str) -> Kernel | None:
    """Returns a call of a module's kernel, if it is known what it computes. Each argument has a buffer of its own."""
    fusion = fusions(_parsed(hlo)).get(symbol)
    if fusion is None:
        return None
    types = {instruction.name: instruction.type for instruction in fusion.instructions}
    sizes = {number: types[name].bytes for name, number in fusion.parameters.items()}
    sizes[fusion.arguments - 1] = types[fusion.root].bytes
    args = tuple((Slice(number, 0), sizes.get(number, 4)) for number in range(fusion.arguments))
    return Kernel(symbol, args, (1, 1, 1), single=True)


def stored(hlo: str, symbol: str) -> Value | None:
    """Returns what a module's kernel stores, if anything is known of it."""
    call = kernel(hlo, symbol)
    return Graph([call], fusions(_parsed(hlo)), {}).results[0] if call else None


def with_products(hlo: str, products: Mapping[str, tuple[int, int, bool, bool]], batch: int = 1) -> str:
    """Returns a module with more kernels, which multiply a row by a matrix, and may add another row.

    Args:
      hlo: a module with the name `m`.
      products: by name, the depth, the columns, whether the matrix is stored by columns, and whether a kernel adds a row.
      batch: how many products a kernel computes.
    """
    outer, dims = ("", "0") if batch == 1 else (f"{batch},", "1")
    axes = "" if batch == 1 else "lhs_batch_dims={0}, rhs_batch_dims={0}, "
    entry, bodies = "", ""
    for name, (depth, columns, by_columns, adds) in products.items():
        order = ("1,2,0" if by_columns else "2,1,0") if outer else "0,1" if by_columns else "1,0"
        row, result = (f"f32[{outer}{size}]{{{'1,0' if outer else '0'}}}" for size in (depth, columns))
        shapes = [row, f"f32[{outer}{depth},{columns}]{{{order}}}", *([result] if adds else [])]
        body = [f"  %p{index} = {shape} parameter({index})" for index, shape in enumerate(shapes)]
        root = "ROOT " if not adds else ""
        sides = f"dot(%p0, %p1), {axes}lhs_contracting_dims={{{dims}}}, rhs_contracting_dims={{{dims}}}"
        body.append(f"  {root}%product = {result} {sides}")
        body += [f"  ROOT %sum = {result} add(%product, %p2)"] * adds
        bodies += "\n".join([f"%of_{name} () -> f32[] {{", *body, "}\n"])
        entry += "".join(f"  %{name}.{index} = {shape} parameter({index})\n" for index, shape in enumerate(shapes))
        passed = ", ".join(f"%{name}.{index}" for index in range(len(shapes)))
        entry += f"  %{name} = {result} fusion({passed}), kind=kOutput, calls=%of_{name}\n"
    return f"{hlo.rstrip().removesuffix('}')}{entry}}}\n{bodies}"


def convolution(
    *, out: Slice, image: tuple[int, int], channels: int, taps: tuple[int, int], filters: int, pixels: tuple[int, int]
) -> Convolution:
    """Returns a convolution of buffer 0 with the kernel in buffer 1: one image, no stride, padding, dilations, or groups.

    Args:
      out: where the result is.
      image: the input's height and width.
      channels: the input's channels.
      taps: the kernel's height and width.
      filters: how many it has.
      pixels: the result's height and width.
    """
    return Convolution(
        dtype="float",
        out=out,
        input=Slice(0, 0),
        kernel=Slice(1, 0),
        batch=1,
        input_size=image,
        input_channels=channels,
        kernel_size=taps,
        kernel_channels=channels,
        filters=filters,
        output_size=pixels,
        stride=(1, 1),
        padding_before=(0, 0),
        padding_after=(0, 0),
        input_dilation=(1, 1),
        kernel_dilation=(1, 1),
        groups=1,
    )
