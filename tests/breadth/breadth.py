"""Runs thousands of cases, and writes their outcomes to a page.

./bazelw run //tests/breadth -- --rounds=8, or the same in a Python with the packages. A round is one case of each op. With --open,
a dimension of each case, or two, has a size that differs from run to run.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks import pages
from tests.breadth import differences, engine, open_axes, recipes, structures
from tests.stages import harness

PAGE = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", engine.ROOT)) / "docs" / "measured" / "numerics.md"

DOCUMENTED = "differs as documented"
MEANINGS = {
    engine.PASSES: "the shape and dtype are TensorFlow's, and every value differs by rounding at most",
    engine.REFUSED: "the build fails with an error that names the op and the line of the model",
    DOCUMENTED: "[Differences](../reference/differences.md) has the reason",
}
COLUMNS = tuple(MEANINGS)
"""Acceptable outcomes of a case. Everything else is a failure."""


def kind(outcome: engine.Outcome) -> str:
    """Returns the outcome's kind, except for differences that the page of differences documents."""
    if outcome.kind == engine.DIFFERS and not any(
        differences.undocumented(outcome.case, difference) for difference in outcome.differences
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


def opened(drawn: Sequence[engine.Case], seed: int) -> list[engine.Case]:
    """Returns cases with open dimensions, of those that can have them."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        return open_axes.opened(drawn, [seed], Path(folder))


def run(
    drawn: Sequence[engine.Case], after: Callable[[engine.Outcome], None], *, together: int = engine.TOGETHER
) -> None:
    """Calls `after` with the outcome of each case."""
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    try:
        runner = engine.Engine(folder, flags=("-O0",))
        # Cases that are refused would cause recompilation of all others in their model.
        refused = recipes.OFTEN_REFUSED
        for group in [
            *engine.chunks((case for case in drawn if case.op not in refused), together),
            *([case] for case in drawn if case.op in refused),
        ]:
            for outcome in runner.outcomes(group):
                after(outcome)
    finally:
        shutil.rmtree(folder)


def page(rounds: int, counts: dict[str, Counter[str]], seconds: float) -> str:
    """Returns the page's section, with counts by kind, and by op for those that don't always pass."""
    total: Counter[str] = sum(counts.values(), Counter())
    others: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for op, count in counts.items():
        if count[engine.PASSES] < sum(count.values()):
            others[tuple(str(count[name] or "") for name in COLUMNS)].append(op)
    lines = [
        f"    ./bazelw run //tests/breadth -- --rounds={rounds} --page",
        "",
        "`tests/breadth` draws small models for every op that TensorFlow's XLA bridge has for CPUs, and for structures such as "
        "nested loops. They have odd shapes and dtypes, NaN, infinities, denormals, the largest values, and hostile names. Each "
        "model goes through export, compile, render, and the C++ compiler. The test compares each result with TensorFlow's, "
        "element by element.",
        "",
        f"The command draws {rounds} case(s) for each of {len(recipes.RECIPES) + len(structures.STRUCTURES)} ops and structures: "
        f"{sum(total.values()):,} cases of {len(counts)} of them, in {seconds:,.0f} s of CPU time on an AMD EPYC (Zen 4). CI runs "
        "the first round.",
        "",
        *pages.table(
            ["outcome", "cases", "what it means"],
            [
                [name, f"{total[name]:,}", MEANINGS.get(name, "a failure")]
                for name in (*COLUMNS, *sorted(set(total) - {*COLUMNS}))
            ],
        ),
        f"All cases of {len(counts) - sum(map(len, others.values()))} ops and structures pass. The others:",
        "",
        *pages.table([*COLUMNS, "ops"], [[*kinds, ", ".join(ops)] for kinds, ops in sorted(others.items())]),
        "Ops that have no case:",
        "",
        *(f"- {reason[0].upper() + reason[1:]}: {', '.join(ops.split())}." for reason, ops in recipes.LEFT_OUT.items()),
    ]
    return "\n".join(lines)


def main() -> None:
    """Draws and runs cases, prints failures, and writes the page on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how many cases of each op")
    parser.add_argument("--first", type=int, default=0, help="the number of the first round")
    parser.add_argument("--ops", nargs="*", default=(), help="only these ops or structures")
    parser.add_argument("--open", action="store_true", help="open dimensions of each case, with sizes for them")
    parser.add_argument("--together", type=int, default=engine.TOGETHER, help="how many cases share a model")
    parser.add_argument("--page", action="store_true", help="put the counts into docs/measured/numerics.md")
    flags = parser.parse_args()
    if flags.page and (flags.ops or flags.open):
        parser.error("--page is for all ops with fixed sizes; leave out --ops and --open")
    harness.warm()
    counts: dict[str, Counter[str]] = defaultdict(Counter)

    def each(outcome: engine.Outcome) -> None:
        what = kind(outcome)
        counts[outcome.case.op][what] += 1
        if what not in COLUMNS or (flags.open and what != engine.PASSES):
            print(f"\n## {what}: {outcome.case.text[:1000]}\n{outcome.details[-2000:]}", flush=True)

    begin = time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    for number in range(flags.first, flags.first + flags.rounds):
        drawn = list(cases(number, flags.ops))
        run(opened(drawn, number) if flags.open else drawn, each, together=flags.together)
        print(f"round {number}:", dict(sum(counts.values(), Counter())), flush=True)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + children.ru_utime + children.ru_stime - begin
    print(f"{seconds:.0f} s of CPU time")
    if flags.page:
        pages.put(PAGE, "tests/breadth/breadth.py", page(flags.rounds, dict(sorted(counts.items())), seconds))


if __name__ == "__main__":
    main()
