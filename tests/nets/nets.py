"""Compares random nets with TensorFlow, with passes on and off, and writes docs/measured/nets.md.

./bazelw run //tests/nets -- --nets=1000, or the same in a Python with the packages.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.nets import campaign, grammar
from tests.stages import harness

PAGE = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", campaign.ROOT)) / "docs" / "measured" / "nets.md"

TOGETHER = 18
"""How many nets share a model."""


def groups(first: int, count: int) -> list[range]:
    """Splits the numbers of nets into groups that share a model."""
    end = first + count
    return [range(begin, min(begin + TOGETHER, end)) for begin in range(first, end, TOGETHER)]


def run(numbers: range, *, each_pass: bool) -> campaign.Tally:
    """Checks the nets of a group."""
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    tally = campaign.Tally()
    try:
        campaign.check(folder, [grammar.net(number) for number in numbers], tally, each_pass=each_pass)
    finally:
        shutil.rmtree(folder)
    return tally


def run_all(numbers: Sequence[range], jobs: int, folder: Path) -> None:
    """Checks groups in forked children, which write a tally for each group to a folder. Groups that are there aren't run."""
    children = []
    for job in range(jobs):
        child = os.fork()
        if child:
            children.append(child)
            continue
        try:
            for group in numbers[job::jobs]:
                path = folder / f"{group.start}-{group.stop}"
                if path.exists():
                    continue
                tally = run(group, each_pass=True)
                path.with_suffix(".part").write_bytes(pickle.dumps(tally))
                path.with_suffix(".part").rename(path)
                print(f"nets {group.start} to {group.stop - 1}: {len(summary(tally.faults))} faults", flush=True)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    if failed:
        sys.exit(f"{len(failed)} of {jobs} processes failed")


def summary(faults: Sequence[campaign.Fault]) -> list[campaign.Fault]:
    """Returns the first fault of each net, variant, and kind of fault."""
    first: dict[tuple[int, str, str], campaign.Fault] = {}
    for fault in faults:
        first.setdefault((fault.net, fault.variant, fault.what), fault)
    return list(first.values())


def merged(tallies: Sequence[campaign.Tally]) -> campaign.Tally:
    """Adds up tallies."""
    result = campaign.Tally()
    for tally in tallies:
        for family, count in tally.counts.items():
            total = result.counts.setdefault(family, campaign.Count())
            total.nets += count.nets
            total.values += count.values
            total.blind += count.blind
        result.places = dict(Counter(result.places) + Counter(tally.places))
        result.variants = dict(Counter(result.variants) + Counter(tally.variants))
        result.faults += tally.faults
    return result


CUT_ELSEWHERE = {
    983: "With `row_sums`, XLA computes the same norm in another kernel, in which it fuses a product with a sum, so rows of "
    "-1e9 are that product's rounding error."
}
"""Nets in which XLA differs from TensorFlow only where a pass has changed how it cuts the program into kernels, and why."""


def page(tally: campaign.Tally) -> str:
    """Returns the page."""
    faults = summary([fault for fault in tally.faults if fault.what != campaign.XLA and fault.net not in CUT_ELSEWHERE])
    differences = {fault.net: fault for fault in tally.faults if fault.what == campaign.XLA}
    kinds = Counter(fault.inputs for fault in differences.values())
    by_family = Counter(grammar.net(fault.net).family for fault in faults)
    by_pass = Counter(name for fault in faults for name in tally.places if name in fault.variant)
    counts = ", ".join(f"`{name}` {number}" for name, number in sorted(by_pass.items()))
    lines = [
        "# Random nets: passes beside TensorFlow",
        "",
        "`tests/nets` draws nets, compiles them with passes on and off, and compares each value with TensorFlow's, in float32 and "
        "float64. Each net runs on inputs of 15 kinds: " + ", ".join(campaign.KINDS) + ".",
        "",
        "```sh",
        f"./bazelw run //tests/nets -- --nets={tally.nets} --jobs=2 --page",
        "```",
        "",
        f"This run was on {cpu()}, at {' and '.join(campaign.LEVELS)}. The suite runs the first 18 nets, "
        "and 18 of linear algebra and Fourier transforms (from --first=1000000 on).",
        "",
        "- All passes, at both levels, on 1 to 4 threads: results of several threads have the same bits as those of one.",
        "- For each group of nets, a quarter of the passes that apply there are tried alone, and a quarter are left out, in turns.",
        "- A value is a fault if it is neither near TensorFlow's nor near that of float64. How near depends on what noise of "
        "float32's size does to it in eight runs in float64, in which all sums and approximations are off.",
        "",
        "## Nets",
        "| family | nets | values compared | of them sharply | faults |",
        "|---|---|---|---|---|",
    ]
    for family, count in tally.counts.items():
        sharp = 1 - count.blind / max(count.values, 1)
        lines.append(f"| {family} | {count.nets} | {count.values:,} | {sharp:.1%} | {by_family[family]} |")
    lines += [
        "",
        "A comparison is sharp where an error of a tenth of the output's largest value is a fault. The others are values that "
        "rounding decides, such as those of infinite inputs.",
        "",
        "## Passes",
        f"{len(tally.places)} passes apply at {sum(tally.places.values()):,} places, and in "
        f"{sum(tally.variants.values()):,} programs alone or left out. "
        + (f"By pass, faults: {counts}." if counts else "None has a fault."),
    ]
    lines += [
        "",
        "## Where XLA differs from TensorFlow",
        f"In {len(differences)} nets, a program without any pass has outputs with values that rounding doesn't explain: "
        "gradients of ReLU and maxima at NaN, products of large values that cancel, and sums and squares near the limits of "
        "float32 ([differences](../reference/differences.md)). In such an output, what each value is depends on how XLA cuts "
        "the program into kernels, and so on passes. By the kind of inputs that showed it last:",
        "",
        "| inputs | nets |",
        "|---|---|",
        *(f"| {kind} | {number} |" for kind, number in kinds.most_common()),
        *(f"\nNet {number}: {why}" for number, why in CUT_ELSEWHERE.items()),
    ]
    return "\n".join(lines) + "\n"


def cpu() -> str:
    """Returns the name of this machine's CPU."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return names[0] if names else "an unnamed CPU"


def main() -> None:
    """Draws and runs nets, prints faults, and writes the page on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", type=int, default=90, help="how many nets")
    parser.add_argument("--first", type=int, default=0, help="the number of the first net")
    parser.add_argument("--jobs", type=int, default=1, help="how many groups of nets run at once")
    parser.add_argument(
        "--folder", help="where to keep what groups have found; a run that was stopped goes on from there"
    )
    parser.add_argument("--show", action="store_true", help="print the nets of these numbers, and end")
    parser.add_argument("--page", action="store_true", help="write the page of measured results")
    flags = parser.parse_args()
    if flags.show:
        print(grammar.model_text([grammar.net(flags.first + number) for number in range(flags.nets)]))
        return
    harness.warm()
    folder = Path(flags.folder or tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    numbers = groups(flags.first, flags.nets)
    run_all(numbers, flags.jobs, folder)
    tally = merged([pickle.loads((folder / f"{group.start}-{group.stop}").read_bytes()) for group in numbers])
    for fault in summary(tally.faults):
        family = grammar.net(fault.net).family
        print(f"\n## net {fault.net} ({family}), {fault.variant}: {fault.what}\n{fault.inputs}: {fault.where}")
    print(f"{tally.nets} nets, {len(summary(tally.faults))} faults")
    if flags.page:
        PAGE.write_text(page(tally))
    if not flags.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
