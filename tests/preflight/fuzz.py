"""Checks broken graphs: whatever is in the file, the check ends with a report.

./bazelw run //tests/preflight:fuzz -- --count=1000, or the same in a Python with the packages.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.stages import harness
from tfaot.core import isolate
from tfaot.core.errors import TfaotError

Mutate = Callable[[random.Random, bytes], bytes]


def originals() -> list[bytes]:
    """Returns serialized graphs of models with functions, loops, branches, lists, and variables."""
    from tests.preflight import cases, corpus

    def build() -> list[bytes]:
        result = []
        for instance in cases.instances():
            try:
                made, _ = corpus.function([instance])
            except Exception:
                continue
            result.append(made.graph.SerializeToString())
        return result

    return isolate.run_isolated(build, what="building graphs")


def mutant(seed: int, graphs: Sequence[bytes]) -> bytes:
    """Returns a broken graph: a few changes to one of the graphs, or to its bytes."""
    draw = random.Random(seed)
    data = draw.choice(graphs)
    if draw.random() < 0.2:
        return _bytes(draw, data)
    return _nodes(draw, data)


def _bytes(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    if draw.random() < 0.3:
        return bytes(changed[: draw.randrange(len(changed))])
    for _ in range(draw.randint(1, 8)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _nodes(draw: random.Random, data: bytes) -> bytes:
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef.FromString(data)
    for _ in range(draw.randint(1, 4)):
        bodies = [graph.node, *(function.node_def for function in graph.library.function)]
        nodes = draw.choice([body for body in bodies if body] or [graph.node])
        if not nodes:
            break
        node, other = draw.choice(nodes), draw.choice(nodes)
        what = draw.randrange(10)
        if what == 0:
            node.op = draw.choice([other.op, "NoSuchOp", "PartitionedCall", "Where", "TensorListReserve", ""])
        elif what == 1 and node.input:
            node.input[draw.randrange(len(node.input))] = draw.choice(
                [other.name, f"{other.name}:7", "nothing", "^", ""]
            )
        elif what == 2:
            node.input.append(draw.choice([other.name, f"^{other.name}", f"{node.name}:0"]))
        elif what == 3 and node.input:
            del node.input[draw.randrange(len(node.input))]
        elif what == 4 and node.attr:
            del node.attr[draw.choice(sorted(node.attr))]
        elif what == 5 and node.attr:
            key = draw.choice(sorted(node.attr))
            node.attr[key].CopyFrom(
                draw.choice(sorted(other.attr.items(), key=lambda item: item[0]) or [("", node.attr[key])])[1]
            )
        elif what == 6:
            nodes.remove(node)
        elif what == 7:
            node.name = other.name
        elif what == 8 and graph.library.function:
            function = draw.choice(graph.library.function)
            if draw.random() < 0.5:
                graph.library.function.remove(function)
            else:
                function.signature.name = draw.choice(graph.library.function).signature.name
        elif what == 9:
            for value in node.attr.values():
                if value.WhichOneof("value") == "func":
                    value.func.name = draw.choice([f.signature.name for f in graph.library.function] or ["nothing"])
                elif value.WhichOneof("value") == "shape":
                    value.shape.dim.add(size=draw.choice([-1, 0, 2**40, -7]))
    return graph.SerializeToString()


def outcome(path: str) -> str:
    """Checks a graph in this process. Returns what kind of report it gets."""
    from tfaot.export.request import ModelRequest
    from tfaot.export.sources.model import Model
    from tfaot.preflight import check

    report = check.check(ModelRequest(model=Model(graph=path)))
    report.to_text()
    report.to_json()
    kinds = {finding.kind for entry in report.entry_points for finding in entry.findings}
    return "unreadable" if "unreadable" in kinds else "compiles" if report.compiles else "blocked"


def run(count: int, *, first: int = 0, idle_seconds: float = 30.0) -> tuple[Counter[str], list[str]]:
    """Checks mutants. Returns how many got which kind of report, and what went wrong.

    A mutant that kills TensorFlow counts as killed: the check runs in a child, and then reports that.
    """
    graphs = originals()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        path = str(Path(folder) / "graph.pb")

        def one(seed: int) -> str:
            Path(path).write_bytes(mutant(seed, graphs))
            try:
                return outcome(path)
            except Exception as error:
                import traceback

                return f"seed {seed}: {error!r}\n{''.join(traceback.format_exception(error)[-3:])}"

        def each(seeds: range) -> None:
            try:
                verdicts = isolate.run_isolated(
                    lambda: [one(seed) for seed in seeds], what="the check", idle_seconds=idle_seconds
                )
            except TfaotError as error:
                if len(seeds) == 1:
                    counts["killed"] += 1
                    if "hung" in str(error):
                        wrong.append(f"seed {seeds[0]}: {error}")
                    return
                half = len(seeds) // 2
                each(seeds[:half])
                each(seeds[half:])
                return
            for result in verdicts:
                if result.startswith("seed"):
                    wrong.append(result)
                else:
                    counts[result] += 1

        for start in range(first, first + count, 50):
            each(range(start, min(start + 50, first + count)))
    return counts, wrong


def main() -> None:
    """Checks mutants, and prints what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many mutants to check")
    parser.add_argument("--first", type=int, default=0, help="the first mutant's seed")
    flags = parser.parse_args()
    harness.warm()
    counts, wrong = run(flags.count, first=flags.first)
    print("\n".join(wrong))
    print(dict(counts), len(wrong), "wrong")
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
