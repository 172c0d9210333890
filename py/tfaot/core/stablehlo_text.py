"""Programs in StableHLO as text that TensorFlow's MLIR can read, whatever version of JAX wrote them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
"""A string, in which a bracket or a comma means nothing."""
VALUE = r"%[\w$.-]+"
"""A value's name."""
_TOKEN = re.compile(rf"{STRING}|->|[(\[{{<>}}\]),]")
_BYTES_FOR_BITS = re.compile(r'dense<"0x([0-9A-Fa-f]+)"> : tensor<((?:\d+x)*)i1>')
_COMPOSITE = re.compile(
    rf"stablehlo\.composite {STRING} ((?:{VALUE}(?:#\d+)?(?:, )?)*) "
    rf"\{{.*?decomposition = @({STRING}|[\w$.-]+).*\}} : "
)

_SHAPE = re.compile(rf"(?:, )?xla_shape = {STRING}")
_TYPE = r"tensor<[^<>]*(?:<[^<>]*>)?>"
_TUPLE = re.compile(rf"^( *{VALUE})( = stablehlo\.custom_call .* -> )tuple<({_TYPE}(?:, {_TYPE})*)>", re.MULTILINE)
_ELEMENT = re.compile(rf"(stablehlo\.)get_tuple_element ({VALUE})\[(\d+)\] .*?: \(tuple<.*>\) -> ({_TYPE})")
_TOP = re.compile(
    rf"({VALUE}), ({VALUE}) = mhlo\.topk\(({VALUE}(?:#\d+)?), k = (\d+)\) : "
    r"tensor<((?:\d+x)+(\w+))> -> \(tensor<[^<>]*>, tensor<(?:\d+x)+(\w+)>\)(.*)"
)


def tokens(text: str, start: int = 0) -> Iterator[tuple[str, int, int]]:
    """Yields the brackets, commas, and arrows outside of strings: each with its position, and the brackets open around it.

    A bracket that closes one from before `start` has a negative number.
    """
    depth = 0
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        depth -= token in ")]}>"
        if token[0] != '"':
            yield token, match.start(), depth
        depth += token in "([{<"


def readable(program: bytes) -> bytes:
    """Returns a program that TensorFlow's MLIR reads. A portable artifact stays as it is."""
    if program.startswith(b"ML\xefR") or (b"i1>" not in program and b"stablehlo.composite" not in program):
        return program
    return decomposed(_with_packed_bits(program.decode(errors="surrogateescape"))).encode(errors="surrogateescape")


def decomposed(text: str) -> str:
    """Calls the functions that say what composite operations compute, such as chlo.erf: XLA computes no shapes in others."""
    return _COMPOSITE.sub(lambda match: f"func.call @{match[2]}({match[1]}) : ", text)


def plain(text: str) -> str:
    """Returns what XLA prints in what MLIR's passes take: without its shapes, tuples of calls' results, and `mhlo.topk`."""
    text = _TOP.sub(_sorted, _SHAPE.sub("", text))
    text = _TUPLE.sub(lambda match: f"{match[1]}:{match[3].count('tensor<')}{match[2]}({match[3]})", text)
    return _ELEMENT.sub(r"\1reshape \2#\3 : (\4) -> \4", text)


def _sorted(match: re.Match[str]) -> str:
    """Returns the first of sorted values, and their places."""
    values, places, operand, count, type_, element, place, end = match.groups()
    *sizes, _ = type_.split("x")
    indices = type_.replace(element, place)
    slices = ", ".join([*(f"0:{size}" for size in sizes[:-1]), f"0:{count}"])
    taken = "x".join([*sizes[:-1], count])
    first, second = (f"{values}_{name}: tensor<{element}>" for name in "ab")
    third, fourth = (f"{values}_{name}: tensor<{place}>" for name in "cd")
    return f"""{values}_own = stablehlo.iota dim = {len(sizes) - 1} : tensor<{indices}>{end}
    {values}_all:2 = "stablehlo.sort"({operand}, {values}_own) <{{dimension = {len(sizes) - 1} : i64, is_stable = true}}> ({{
    ^bb0({first}, {second}, {third}, {fourth}):
      {values}_p = stablehlo.compare  GT, {values}_a, {values}_b,  TOTALORDER : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
      stablehlo.return {values}_p : tensor<i1>
    }}) : (tensor<{type_}>, tensor<{indices}>) -> (tensor<{type_}>, tensor<{indices}>){end}
    {values} = stablehlo.slice {values}_all#0 [{slices}] : (tensor<{type_}>) -> tensor<{taken}x{element}>{end}
    {places} = stablehlo.slice {values}_all#1 [{slices}] : (tensor<{indices}>) -> tensor<{taken}x{place}>{end}"""


def _with_packed_bits(text: str) -> str:
    """Packs constants that have a byte for each boolean. JAX's MLIR writes them so, and that of TensorFlow reads only bits."""

    def packed(match: re.Match[str]) -> str:
        values = np.frombuffer(bytes.fromhex(match[1]), np.uint8)
        if len(values) == 1 or len(values) != math.prod(int(size) for size in match[2].split("x")[:-1]):
            return match[0]
        bits = np.packbits(values != 0, bitorder="little").tobytes().hex().upper()
        return f'dense<"0x{bits}"> : tensor<{match[2]}i1>'

    return _BYTES_FOR_BITS.sub(packed, text)
