"""Estimates how well the runtime's kernels use an ARM core, without one: the inner loop of each kernel, in llvm-mca.

    PYTHONPATH=py:. python3 tools/dev/mca.py [--cpu CPU]… [--level LEVEL]… [--llvm-mca PROGRAM]

It compiles the kernels with the cross compiler of `--config=aarch64`, takes the innermost loop of each that computes most, and
compares the cycles that llvm-mca estimates for it with those that its arithmetic alone takes. Prints the tables of
docs/guide/arm.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tfaot import starlark
from tools.bazelw import cache, cross
from tools.bazelw.progress import Progress

ROOT = Path(__file__).absolute().parents[2]

_VECTOR = re.compile(r"\bv\d+\.\d+[bhsd]\b")
_MULTIPLY_ADD = ("fmla", "fmls", "mla", "mls")
_ARITHMETIC = re.compile(r"f?(ml[as]|mul|add|sub|neg|maxnm|minnm|max|min|cm\w\w|div)|bsl|bif|bit")
_LEAST = 3
"""Instructions that compute, in a loop that counts."""
_BRANCH = re.compile(r"(b(\.?\w\w)?|cbn?z|tbn?z)\s.*?(\.L\w+)$")


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop of a function that contains no other loop."""

    function: str
    body: tuple[str, ...]
    """Its instructions."""
    straight: bool
    """Whether it has no branch but the last."""

    @property
    def name(self) -> str:
        """The function's, without namespaces and parameters: `Tile<float, 6, 4>`."""
        inner = re.sub(r"^.*?kernels::(\(anonymous namespace\)|\w+)::", "", self.function)
        return re.sub(r"^(\w+(<[^>]*>)?).*", r"\1", inner)

    @property
    def arithmetic(self) -> tuple[str, ...]:
        """Those that compute with vectors."""
        return tuple(line for line in self.body if _ARITHMETIC.fullmatch(line.split()[0]) and _VECTOR.search(line))

    @property
    def multiply_adds(self) -> int:
        """How many multiply and add at once."""
        return sum(line.split()[0] in _MULTIPLY_ADD for line in self.arithmetic)


def loops(assembly: str) -> list[Loop]:
    """Returns the loops of all functions in gcc's output, with mangled names."""
    inner_loops = list[Loop]()
    for part in re.split(r"^\t\.type\t", assembly, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition(",")
        if rest.lstrip().startswith("%function"):
            inner_loops += _of_function(name, rest.partition("\t.size\t")[0].splitlines()[1:])
    return inner_loops


def _of_function(name: str, text: Sequence[str]) -> list[Loop]:
    labels, lines, spans = dict[str, int](), list[str](), set[tuple[int, int]]()
    for line in text:
        code = line.partition("//")[0].strip().replace("\t", " ")
        if code.endswith(":"):
            labels[code[:-1]] = len(lines)
        elif code and not code.startswith("."):
            lines.append(code)
            branch = _BRANCH.fullmatch(code)
            if branch and branch[3] in labels:
                spans.add((labels[branch[3]], len(lines)))
    inner = [
        (start, end)
        for start, end in sorted(spans)
        if not any((start, end) != other and start <= other[0] and other[1] <= end for other in spans)
    ]
    return [
        Loop(name, tuple(lines[start:end]), not any(map(_BRANCH.fullmatch, lines[start : end - 1])))
        for start, end in inner
    ]


def hottest(candidates: Sequence[Loop]) -> list[Loop]:
    """Returns the loop that computes most, of each template and first type, in the order of names.

    A straight loop counts more than others, because those can hold code that seldom runs, and then multiplications with addition.
    """
    best = dict[str, Loop]()
    for loop in candidates:
        key = re.sub(r"^(\w+(<[a-z ]+)?).*", r"\1", loop.name)
        if len(loop.arithmetic) >= _LEAST and (key not in best or _work(best[key]) < _work(loop)):
            best[key] = loop
    return [best[key] for key in sorted(best)]


def _work(loop: Loop) -> tuple[bool, int, int, int]:
    return loop.straight, loop.multiply_adds, len(loop.arithmetic), -len(loop.body)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What llvm-mca says about instructions."""

    cycles: float
    """For one iteration, in a sequence of a hundred."""
    throughput: float
    """Cycles of one iteration if nothing had to wait for results."""


def estimate(program: str, cpu: str, body: Sequence[str]) -> Estimate:
    """Runs llvm-mca on a loop's instructions."""
    command = [program, "-mtriple=aarch64-linux-gnu", f"-mcpu={cpu}", "-iterations=100", "-instruction-info=false"]
    done = subprocess.run(
        [*command, "-resource-pressure=false"], input="\n".join(body) + "\n", capture_output=True, check=True, text=True
    )
    values = dict(re.findall(r"^([A-Z][\w ]+):\s+([\d.]+)$", done.stdout, re.MULTILINE))
    return Estimate(float(values["Total Cycles"]) / 100, float(values["Block RThroughput"]))


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="append", help="a CPU; by default, cortex-a72 and neoverse-n1")
    parser.add_argument("--level", action="append", help="a CPU level; by default, the first")
    parser.add_argument(
        "--llvm-mca", default="llvm-mca", help="the program; LLVM 16 is the first that knows neoverse-n1"
    )
    flags = parser.parse_args()
    cpus = flags.cpu or ["cortex-a72", "neoverse-n1"]
    rules = starlark.execute(ROOT, "runtime/package.bzl")
    levels = flags.level or starlark.execute(ROOT, "runtime/copts.bzl")["ARM_LEVELS"][:1]
    programs = cross.set_up(cache.usable(os.environ), Progress()) / "bin"

    def compiled(path: str, level: str) -> tuple[list[Loop], str]:
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/out"
            command = [
                f"{programs}/gcc",
                *rules["package_copts"]([], level),
                f"-I{ROOT}/runtime",
                f"{ROOT}/runtime/{path}",
            ]
            subprocess.run([*command, "-S", "-o", out], check=True)
            subprocess.run([*command, "-c", "-o", f"{out}.o"], check=True)
            of_source = loops(Path(out).read_text())
            mangled = "\n".join(loop.function for loop in of_source)
            names = subprocess.run(["c++filt"], input=mangled, capture_output=True, check=True, text=True).stdout
            of_source = [
                dataclasses.replace(loop, function=name)
                for loop, name in zip(of_source, names.splitlines(), strict=True)
            ]
            sections = subprocess.run(
                [f"{programs}/objdump", "-h", f"{out}.o"], capture_output=True, check=True, text=True
            )
            code = sum(int(size, 16) for size in re.findall(r" \.text\S*\s+([0-9a-f]+) ", sections.stdout))
            return of_source, f"{code:,}"

    for level in levels:
        made = {Path(path).stem: compiled(path, level) for path in rules["PACKAGE_KERNELS"]}
        print(f"{level}:\n")
        print("| source | kernel | instructions | arithmetic | multiply and add | " + " | ".join(cpus) + " |")
        print("|---|---|---|---|---|" + "---|" * len(cpus))
        for source, (of_source, _) in made.items():
            for loop in hottest(of_source):
                cells = [source, f"`{loop.name}`"]
                cells += [str(number) for number in (len(loop.body), len(loop.arithmetic), loop.multiply_adds)]
                for cpu in cpus:
                    whole = estimate(flags.llvm_mca, cpu, loop.body)
                    alone = estimate(flags.llvm_mca, cpu, loop.arithmetic)
                    cells.append(f"{whole.cycles:.1f} cycles, {alone.throughput / whole.cycles:.0%}")
                print(f"| {' | '.join(cells)} |")
        print("\n| source | bytes of code |\n|---|---|")
        for source, (_, code) in made.items():
            print(f"| {source} | {code} |")
        print()


if __name__ == "__main__":
    main()
