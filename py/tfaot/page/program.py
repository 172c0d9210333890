"""Reads what the compile stage made: the steps of a program, and the sections of object files. Pure."""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tfaot.core.errors import TfaotError
from tfaot.page.measured import plain


@dataclasses.dataclass(frozen=True)
class Touched:
    """Memory that a step reads or writes."""

    buffer: str
    """`argument 0`, `memory 2`, or `constant 1`."""
    offset: int
    bytes: int | None
    """None for the rules' own kernels, whose calls don't say it."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One kernel's call."""

    kernel: str
    touched: tuple[Touched, ...]
    flops: int | None = None
    """Arithmetic operations; None if they aren't known."""
    bytes: int | None = None
    """Read and written; None if they aren't known."""
    origin: str = ""
    """The TensorFlow op that it comes from."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled function."""

    steps: tuple[Step, ...]
    memory: int
    """Bytes of working memory."""


_STEP = re.compile(r'^  if \(!step\("([^"]+)"\)\) return false;$', re.MULTILINE)
_CALL = re.compile(r"\(calls \+ (\d+)\)")
_PLACE = re.compile(r"\bb\[(\d+)\](?: \+ (\d+))?")
_COUNTS = ("args", "memory", "constants", "results", "kernel_args", "calls", "rng")


def program(source: str, path: str) -> Program:
    """Reads the source of an executor, which the compile stage renders.

    Raises:
      TfaotError: the source isn't one.
    """
    found = re.search(r"Program \w+_program = \{\n    &Run<false>,\n    &Run<true>,\n((?: *\d+u,\n)+)", source)
    numbers = [int(number) for number in re.findall(r"(\d+)u", found[1])] if found else []
    if len(numbers) < len(_COUNTS) + 2:
        raise TfaotError(
            f"{path} isn't the source of an executor that this version of rules_tfaot can read",
            do="build the model again; the compile stage writes this file",
        )
    counts = dict(zip(_COUNTS, numbers, strict=False))
    arguments = [
        tuple(map(int, each)) for each in re.findall(r"\{(\d+)u, (\d+)u, (\d+)u\},", _table(source, "kKernelArgs"))
    ]
    widths = [int(width) for width in re.findall(r"\}, (\d+)u\},", _table(source, "kCalls"))]
    firsts = [sum(widths[:index]) for index in range(len(widths))]
    parts = _STEP.split(source[: source.index("}  // namespace")])
    steps = []
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        text = text.partition("\n  }\n")[0].partition("return true;")[0]
        touched = []
        for call in map(int, _CALL.findall(text)):
            for offset, size, buffer in arguments[firsts[call] : firsts[call] + widths[call]]:
                touched.append(Touched(_buffer(buffer, counts), offset, size))
        for buffer_, offset_ in _PLACE.findall(text):
            place = Touched(_buffer(int(buffer_), counts), int(offset_ or 0), None)
            if place not in touched:
                touched.append(place)
        steps.append(Step(plain(name), tuple(touched)))
    return Program(tuple(steps), numbers[len(_COUNTS)])


def _table(source: str, name: str) -> str:
    found = re.search(rf" {name}\[\] = \{{\n(.*?)^\}};", source, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def _buffer(index: int, counts: dict[str, int]) -> str:
    for kind, count in (("argument", counts["args"]), ("memory", counts["memory"]), ("constant", counts["constants"])):
        if index < count:
            return f"{kind} {index}"
        index -= count
    return f"buffer {index}"


def joined(made: Program, plan: Mapping[str, Any]) -> Program:
    """Adds arithmetic, traffic, and origins, as the compiler planned them, to the steps.

    Both are in the order of the program. The passes drop steps of the plan, and the bodies of loops aren't in it.
    """
    planned, at, steps = plan["steps"], 0, []
    for step in made.steps:
        found = next((index for index in range(at, len(planned)) if _same(step, planned[index])), None)
        if found is not None:
            each, at = planned[found], found + 1
            step = dataclasses.replace(step, flops=each["flops"], bytes=each["bytes"], origin=each["origin"])
        steps.append(step)
    return dataclasses.replace(made, steps=tuple(steps))


def _same(step: Step, planned: Mapping[str, Any]) -> bool:
    """Returns whether an instruction became a step: a product of the same size, or a kernel with its name."""
    if sizes := re.fullmatch(r"dot (\d+)x(\d+)x(\d+)x(\d+)", step.kernel):
        return bool(planned["opcode"] == "dot" and planned["flops"] == 2 * math.prod(map(int, sizes.groups())))
    if step.kernel.startswith("conv"):
        return bool(planned["opcode"] == "convolution")
    # Equal kernels have the name of the first one.
    names = [re.sub(r"(_\d+)?$", "", re.sub(r"[.-]", "_", name)) for name in (step.kernel, planned["name"])]
    return names[0] == names[1] and planned["opcode"] not in ("dot", "convolution")


def sections(data: bytes) -> dict[str, int]:
    """Returns the bytes that an object file adds to a program, by kind of section; nothing if it isn't ELF with 64 bits.

    Source of the file's structure: System V ABI, chapter 4.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return {}
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    table = [struct.unpack_from("<IIQQQQ", data, start + index * size) for index in range(count)]
    found: Counter[str] = Counter()
    for name, kind, flags, _, _, length in table:
        if flags & 2 and length:  # it is in memory when the program runs
            at = table[names][4] + name
            full = data[at : data.index(b"\0", at)].decode()
            found[_kind(full, kind)] += length
    return dict(found)


def _kind(name: str, kind: int) -> str:
    for known in (".text", ".rodata", ".data.rel.ro", ".data", ".eh_frame"):
        if name == known or name.startswith((known + ".", known + "_")):
            return known
    return ".bss" if kind == 8 else ".rodata" if name.startswith((".lrodata", ".tfaot_constants")) else name
