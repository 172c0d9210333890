"""Runs thousands of cases, and writes their outcomes to a page.

./bazelw run //tests/breadth -- --rounds=8, or the same in a Python with the packages. A round is one case of each op.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tests.breadth import differences, engine, recipes, structures
from tests.stages import harness

PAGE = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", engine.ROOT)) / "docs" / "measured" / "breadth.md"

DOCUMENTED = "differs as documented"
COLUMNS = (engine.PASSES, engine.REFUSED, DOCUMENTED)
"""Acceptable outcomes of a case. Everything else is a failure."""


def kind(outcome: engine.Outcome) -> str:
    """Returns the outcome's kind, except for differences that the page of differences documents."""
    if outcome.kind == engine.DIFFERS and not any(
        differences.undocumented(outcome.case, each) for each in outcome.differences
    ):
        return DOCUMENTED
    return outcome.kind


def cases(seed: int, ops: Iterable[str] = ()) -> Iterator[engine.Case]:
    """Yields one round: a case of every op that TensorFlow can compute, or of some ops, and of every structure."""
    for name in ops or (*recipes.RECIPES, *structures.STRUCTURES):
        try:
            yield recipes.drawn(recipes.RECIPES.get(name) or structures.STRUCTURES[name], [seed, *name.encode()])
        except LookupError:
            continue


def run(drawn: Sequence[engine.Case], each: Callable[[engine.Outcome], None]) -> None:
    """Calls `each` with the outcome of each case."""
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    try:
        runner = engine.Engine(folder, flags=("-O0",))
        # Cases that are refused would cause recompilation of all others in their model.
        refused = recipes.REFUSED | recipes.OFTEN_REFUSED
        for group in [
            *engine.chunks(case for case in drawn if case.op not in refused),
            *([case] for case in drawn if case.op in refused),
        ]:
            for outcome in runner.outcomes(group):
                each(outcome)
    finally:
        shutil.rmtree(folder)


def page(rounds: int, counts: dict[str, Counter[str]], seconds: float) -> str:
    """Returns the page, with counts by op and kind."""
    total: Counter[str] = sum(counts.values(), Counter())
    lines = [
        "# Breadth: every op of XLA's registry, in small models",
        "",
        "`tests/breadth` draws small models for every op that TensorFlow's XLA bridge has for CPUs. They have odd shapes "
        "and dtypes, NaN, infinities, denormals, and the largest values, hostile names, and nested functions, loops, and "
        "branches. Each model goes through export, compile, render, and the C++ compiler. The test compares each result "
        "with TensorFlow's, element by element.",
        "",
        "```sh",
        f"./bazelw run //tests/breadth -- --rounds={rounds} --page",
        "```",
        "",
        f"This command draws {rounds} case(s) for each of {len(recipes.RECIPES) + len(structures.STRUCTURES)} ops and structures. "
        f"This page has {sum(total.values()):,} cases of {len(counts)} of them. They took {seconds:,.0f} s of CPU time on an "
        "AMD EPYC (Zen 4). CI runs the first round.",
        "",
        "| outcome | cases |",
        "|---|---|",
        *[f"| {name} | {total[name]:,} |" for name in (*COLUMNS, *sorted(set(total) - {*COLUMNS}))],
        "",
        "- **passes**: the shape and dtype are TensorFlow's, and every value differs by rounding at most.",
        "- **refused**: the build fails with an error that names the op and the line of the model.",
        "- **differs as documented**: [Differences](../reference/differences.md) has the reason.",
        "",
        "## By op",
        "| op | passes | refused | differs as documented |",
        "|---|---|---|---|",
    ]
    for op in counts:
        lines.append(f"| {op} | " + " | ".join(str(counts[op][name] or "") for name in COLUMNS) + " |")
    lines += ["", "## Ops that have no case"]
    for reason, ops in recipes.LEFT_OUT.items():
        lines.append(f"- {reason[0].upper() + reason[1:]}: {', '.join(ops.split())}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Draws and runs cases, prints failures, and writes the page on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how many cases of each op")
    parser.add_argument("--first", type=int, default=0, help="the number of the first round")
    parser.add_argument("--ops", nargs="*", default=(), help="only these ops or structures")
    parser.add_argument("--page", action="store_true", help="write docs/measured/breadth.md")
    flags = parser.parse_args()
    harness.warm()
    counts: dict[str, Counter[str]] = defaultdict(Counter)

    def each(outcome: engine.Outcome) -> None:
        what = kind(outcome)
        counts[outcome.case.op][what] += 1
        if what not in COLUMNS:
            print(f"\n## {what}: {outcome.case.text[:1000]}\n{outcome.details[-2000:]}", flush=True)

    begin = time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    for number in range(flags.first, flags.first + flags.rounds):
        run(list(cases(number, flags.ops)), each)
        print(f"round {number}:", dict(sum(counts.values(), Counter())), flush=True)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + children.ru_utime + children.ru_stime - begin
    print(f"{seconds:.0f} s of CPU time")
    if flags.page:
        if flags.ops and PAGE.exists():  # update only their rows
            rows, before = rows_of(PAGE.read_text())
            counts, seconds = {**rows, **counts}, seconds + before
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(flags.rounds, dict(sorted(counts.items())), seconds))


def rows_of(text: str) -> tuple[dict[str, Counter[str]], float]:
    """Returns what a page says about each op, and the seconds that it took."""
    rows = {}
    for line in re.findall(r"(?m)^\| (.+) \|$", text.partition("## By op")[2]):
        op, *numbers = (cell.strip() for cell in f"{line} ".split("|"))
        if len(numbers) == len(COLUMNS) and all(number.isdecimal() or not number for number in numbers):
            rows[op] = Counter({name: int(number or 0) for name, number in zip(COLUMNS, numbers, strict=True)})
    (seconds,) = re.findall(r"took ([\d,]+) s of", text)
    return rows, float(seconds.replace(",", ""))


if __name__ == "__main__":
    main()
