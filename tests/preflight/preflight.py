"""Compares the check with the compiler, for every op that TensorFlow registers, and writes the figures to a page.

./bazelw run //tests/preflight -- --page, or the same in a Python with the packages.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import pages
from tests.breadth import recipes
from tests.stages import harness

PAGE = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", harness.ROOT)) / "docs" / "guide" / "diagnostics.md"


def page(
    version: str,
    registered: int,
    kernels: int,
    counted: Counter[str],
    ops: set[str],
    left: Counter[str],
    kinds: Counter[str],
    seeds: int,
    seconds: float,
) -> str:
    """Returns what the page says."""

    def counts(of: Counter[str], word: str) -> str:
        return ", ".join(
            f"{word.format(key)} {count:,}" for key, count in sorted(of.items(), key=lambda item: (-item[1], item[0]))
        )

    lines = [
        f"    ./bazelw run //tests/preflight -- --seeds={seeds} --page",
        "",
        "`tests/preflight` makes small graphs of every op that TensorFlow registers. It asks the check whether each compiles, and "
        "then tfcompile. The two must agree. Ops with a recipe in `tests/breadth` have an instance of each dtype that the op's "
        "definition allows, and one for each operand that is a constant, in which it is fed instead. Other ops come from their "
        "definitions. More instances are small models: loops, branches, lists, slices, and sizes that depend on values. The graphs "
        "are rewritten as the export and compile stages do it. "
        f"The command took {seconds:,.0f} s of CPU time on an AMD EPYC (Zen 4), with TensorFlow {version}. CI runs a sample.",
        "",
        *pages.table(
            [
                "ops registered",
                "with a kernel for CPUs",
                "ops tried",
                "instances",
                "both say yes",
                "both say no",
                "they disagree",
            ],
            [
                [
                    f"{count:,}"
                    for count in (
                        registered,
                        kernels,
                        len(ops),
                        sum(counted.values()),
                        counted["compiles"],
                        counted["refused"],
                        counted["disagree"],
                    )
                ]
            ],
        ),
        f"Findings: {counts(kinds, '`{}`')}. Ops without an instance, by reason: {counts(left, '{}:')}.",
    ]
    return "\n".join(lines) + "\n"


def missing(ops: Iterable[str]) -> Counter[str]:
    """Returns why ops have no instance, with how many they are."""
    from tensorflow.python.framework import op_def_registry

    from tests.preflight import corpus

    counts: Counter[str] = Counter()
    for op in ops:
        definition = op_def_registry.get(op)
        if op in corpus.NOT_BY_DEFINITION:
            counts[corpus.NOT_BY_DEFINITION[op]] += 1
        elif definition is not None and any(arg.is_ref for arg in definition.input_arg):
            counts["it takes references of TensorFlow 1, which the rules convert to resources before the check"] += 1
        else:
            counts["TensorFlow accepts none of the operands and attributes that are tried"] += 1
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    """Compares, prints disagreements, and writes the page on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how often to draw the operands of ops with recipes")
    parser.add_argument("--ops", nargs="*", default=(), help="only these ops")
    parser.add_argument("--page", action="store_true", help="put the figures into docs/guide/diagnostics.md")
    flags = parser.parse_args(arguments)
    harness.warm()
    import tensorflow as tf

    from tests.preflight import cases, corpus
    from tfaot.preflight import kernels

    before = time.process_time()
    registered = corpus.every_op()
    wanted = set(flags.ops or registered)
    instances = [
        *corpus.of_definitions([op for op in registered if op in wanted and op not in recipes.RECIPES]),
        *(
            instance
            for seed in range(flags.seeds)
            for instance in corpus.of_recipes([op for op in recipes.RECIPES if op in wanted], seed=seed)
        ),
        *([] if flags.ops else cases.instances()),
    ]
    counted: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    ops: set[str] = set()
    for number, answer in enumerate(corpus.answers(instances), 1):
        outcome = "disagree" if not answer.agree else "refused" if answer.refused else "compiles"
        counted[outcome] += 1
        ops.add(answer.op)
        if outcome == "refused":
            kinds.update({kind for kind, _ in answer.blockers})
        if outcome == "disagree":
            print(
                f"\n## {answer.op} ({answer.variant})\ncheck: {answer.blockers}\ntfcompile: {answer.refused}",
                flush=True,
            )
        if number % 500 == 0:
            print(f"{number} of at most {len(instances)}: {dict(counted)}", flush=True)
    ops &= set(registered)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() - before + children.ru_utime + children.ru_stime
    print(f"{len(ops)} ops: {dict(counted)}; {seconds:.0f} s of CPU time")
    if flags.page:
        left = missing(op for op in registered if op not in ops)
        with_kernel = len(set(kernels.table()) & set(registered))
        text = page(tf.__version__, len(registered), with_kernel, counted, ops, left, kinds, flags.seeds, seconds)
        pages.put(PAGE, "tests/preflight/preflight.py", text)
    if counted["disagree"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
