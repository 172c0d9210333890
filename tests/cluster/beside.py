"""Clusters beside those that TensorFlow finds: how many, how large, how much of a graph, and the time of a step.

    ./bazelw run -c opt //tests/cluster:beside -- --page

Each model runs in three processes: TensorFlow, TensorFlow with TF_XLA_FLAGS=--tf_xla_auto_jit=2, and TensorFlow with the
compiled clusters. They take turns, so that other programs on the machine slow all of them alike. Where a process's memory
and threads lie changes its times for as long as it lives, so each way starts several times, and the page has the spread.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it imports TensorFlow
    from tfaot.cluster.compare import Files

PAGE = "docs/measured/clusters.md"
MODELS = {
    "classifier": "examples/clusters",
    "branches": "examples/clusters",
    "orders": "examples/clusters",
    "words": "tests/cluster",
    "recommender": "tests/cluster",
    "speaker": "tests/cluster",
}
"""The folder of each model."""
WAYS = ("TensorFlow", "auto_jit", "clusters")


@dataclasses.dataclass(frozen=True)
class Found:
    """The clusters of one way."""

    sizes: tuple[int, ...]
    """The ops in each that compute."""
    share: float
    """How much of the graph that is."""
    fixed: float | None
    """The same for ops whose sizes are known; None if there are none."""


def counted(plan: Mapping[str, Any], clusters: Sequence[Sequence[str]]) -> Found:
    """Returns what counts of clusters of nodes, given a plan of the same graph."""
    fixed, every = set(plan["computing"]["fixed"]), {*plan["computing"]["fixed"], *plan["computing"]["open"]}
    sizes = sorted((len(every & set(cluster)) for cluster in clusters), reverse=True)
    inside = {name for cluster in clusters for name in cluster}
    return Found(
        tuple(size for size in sizes if size),
        len(every & inside) / max(1, len(every)),
        len(fixed & inside) / len(fixed) if fixed else None,
    )


def files_of(model: str) -> Files:
    """Returns a model's files."""
    from tfaot.cluster.compare import Files

    folder = Path(__file__).parents[2] / MODELS[model]
    stem = str(folder / model)
    return Files(
        str(folder / f"lib{model}.so"),
        f"{stem}.saved_model",
        f"{stem}.plan.json",
        f"{stem}.inputs.safetensors",
        f"{stem}.uncut.pb",
    )


def work(model: str, way: str) -> None:
    """Is one of the processes: answers each line of its input, a time in seconds, with the microseconds of a step."""
    import tensorflow as tf

    from tfaot.cluster.compare import Loaded
    from tfaot.cluster.host_model import Running

    loaded = Loaded(files_of(model))
    config = tf.compat.v1.ConfigProto()
    if way == "auto_jit":
        config.graph_options.optimizer_options.global_jit_level = tf.compat.v1.OptimizerOptions.ON_2
    if way == "auto_jit" and "TF_DUMP_GRAPH_PREFIX" in os.environ:
        # So that nodes keep their names.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
    running = Running(loaded.cut if way == "clusters" else loaded.uncut, config)
    step = running.prepared(loaded.steps)
    for _ in range(20):  # compiles, and warms caches
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        until = time.perf_counter() + float(line)
        count, start = 0, time.perf_counter()
        while time.perf_counter() < until or count < 5:
            step()
            count += 1
        print((time.perf_counter() - start) / count * 1e6, flush=True)


@dataclasses.dataclass(frozen=True)
class Spread:
    """A figure of several starts of the processes."""

    values: tuple[float, ...]
    """One of each start."""

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    def shown(self) -> str:
        """Returns the median, and the least and greatest."""
        return f"{self.median:.2f} ({min(self.values):.2f}–{max(self.values):.2f})"


class Worker:
    """One of the processes."""

    def __init__(self, model: str, way: str, **environment: str) -> None:
        """Starts it. Its first answer says that it is warm."""
        flags = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"} if way == "auto_jit" else {}
        if "TF_DUMP_GRAPH_PREFIX" in environment:
            flags["TF_XLA_FLAGS"] += " --tf_xla_clustering_debug"
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--work", model, way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | flags | environment,
        )

    def ready(self) -> None:
        """Waits until it is warm."""
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process died; run it with --work to see why")
        return line.strip()

    def microseconds(self, seconds: float) -> float:
        """Returns the time of a step."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def end(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def jit_clusters(model: str) -> list[list[str]]:
    """Returns the nodes of each cluster that TensorFlow finds."""
    from google.protobuf import text_format
    from tensorflow.core.framework import graph_pb2

    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(model, "auto_jit", TF_DUMP_GRAPH_PREFIX=folder)
        worker.ready()
        worker.end()
        answers: dict[str, list[str]] = {}
        for path in sorted(Path(folder).glob("mark_for_compilation_annotated*.pbtxt")):
            for node in text_format.Parse(path.read_text(), graph_pb2.GraphDef()).node:
                cluster = node.attr["_XlaCluster"].s.decode()
                if cluster:  # the dump adds it to the names
                    answers.setdefault(f"{path.stem}/{cluster}", []).append(node.name.removeprefix(f"{cluster}/"))
    return list(answers.values())


def started(model: str, rounds: int, seconds: float) -> dict[str, float]:
    """Starts a process for each way, and measures them in turns.

    Returns the median time of a step in TensorFlow, in microseconds, and the median of the others' ratios to it.
    """
    workers = {way: Worker(model, way) for way in WAYS}
    for worker in workers.values():
        worker.ready()
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, worker in workers.items():
            times[way].append(worker.microseconds(seconds))
    for worker in workers.values():
        worker.end()
    theirs = times["TensorFlow"]
    ratios = {way: [own / their for own, their in zip(times[way], theirs, strict=True)] for way in WAYS[1:]}
    return {"TensorFlow": statistics.median(theirs)} | {
        way: statistics.median(numbers) for way, numbers in ratios.items()
    }


def measured(model: str, starts: int, rounds: int, seconds: float) -> dict[str, Spread]:
    """Returns what `started` returns, from several starts."""
    runs = []
    for number in range(starts):
        runs.append(started(model, rounds, seconds))
        print(f"{model}, start {number + 1} of {starts}: {runs[-1]}", file=sys.stderr, flush=True)
    return {way: Spread(tuple(run[way] for run in runs)) for way in WAYS}


def row(model: str, starts: int, rounds: int, seconds: float) -> str:
    """Measures one model. Returns a row of the table."""
    with open(files_of(model).plan, encoding="utf-8") as file:
        plan = json.load(file)
    theirs = counted(plan, jit_clusters(model))
    ours = counted(plan, [cluster["nodes"] for cluster in plan["clusters"]])
    times = measured(model, starts, rounds, seconds)

    def shown(spread: Found) -> str:
        fixed = "–" if spread.fixed is None else f"{spread.fixed:.0%}"
        return f"{len(spread.sizes)} ({', '.join(map(str, spread.sizes))}) | {spread.share:.0%} | {fixed}"

    cells = [
        f"`{model}`",
        str(sum(map(len, plan["computing"].values()))),
        shown(theirs),
        shown(ours),
        f"{times['TensorFlow'].median:.0f}",
        times["auto_jit"].shown(),
        times["clusters"].shown(),
    ]
    return "| " + " | ".join(cells) + " |"


def page(rows: Sequence[str], starts: int) -> str:
    """Returns the page."""
    return f"""\
# Clusters beside TensorFlow's own

`./bazelw run -c opt //tests/cluster:beside -- --page` measures this, and writes the page.

TensorFlow finds clusters at run time if `TF_XLA_FLAGS` has `--tf_xla_auto_jit=2`, and on CPUs `--tf_xla_cpu_global_jit`. The
table compares them with those of [`tf_aot_clusters`](../guide/clusters.md) on the same graphs. An op counts if it computes:
constants, plain reads and writes of variables, and ops that only move data don't. `2 (9, 5)` means two clusters of nine and
five such ops. An update by an optimizer is one op.

The first share is of all such ops in the graph, and the second of those whose operands and results have known sizes. Of
both, `tf_aot_clusters` takes at least as many as TensorFlow, which compiles a cluster again, at run time, for each new size. Ahead
of time, an open size can be that of a batch: `orders` has `batch_sizes`, and all of its ops but the parser are compiled, as in
TensorFlow's clusters. It can also be an image's: `classifier` resizes one, and its cluster takes
[the pixels that the resize reads](../guide/clusters.md#images-of-any-size). `recommender` has gradients of as many items as
`tf.unique` finds; [its updates of rows](../guide/clusters.md#updates-of-variables) become updates of whole variables, and compile.

The loop of `speaker` appends text. Two scalar additions that count its steps stay, though TensorFlow's cluster has them. In the
cluster that computes a step, they would be done when all of it is, and the next step's condition would wait. Outside, it is known
at once. The three ops of that condition are a cluster of their own, which TensorFlow doesn't make.

Times are a whole step in TensorFlow, and ratios are to TensorFlow without clusters, with its graph optimizations and all
its threads: below 1 is faster.

| model | ops | TensorFlow's clusters | share | known sizes | \
ours | share | known sizes | TensorFlow, µs | auto_jit | ours |
|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

{_machine()}. Three processes take turns, one for each way, and a ratio is the median of each round's ratio. They
start {starts} times, because where memory and threads lie changes the times of a process for as long as it lives: figures are
medians of the starts, with the least and the greatest. {_priority()}
"""


def _priority() -> str:
    if os.sched_getscheduler(0) == os.SCHED_FIFO:
        busy = "Other programs kept the machine busy, so the processes had a real-time priority (`chrt -f 5`)."
        return f"{busy}\nCompare ratios, not microseconds."
    return "No process had a priority."


def _machine() -> str:
    said = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = re.findall(r"^model name\s*: (.*)$", said, re.MULTILINE)
    vectors = "AVX-512" if "avx512f" in said else "AVX2" if "avx2" in said else "neither AVX2 nor AVX-512"
    return f"{names[0] if names else platform.machine()} with {vectors}, {os.cpu_count()} cores"


def main() -> None:
    """Parses the flags, and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help=f"write {PAGE}")
    parser.add_argument("--starts", type=int, default=9, help="how many times the processes start")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each process")
    parser.add_argument("--seconds", type=float, default=0.3, help="the length of a turn")
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    parser.add_argument("--work", nargs=2, metavar=("MODEL", "WAY"), help="be one of the processes")
    flags = parser.parse_args()
    if flags.work:
        work(*flags.work)
        return
    rows = []
    for model in flags.model or MODELS:
        rows.append(row(model, flags.starts, flags.rounds, flags.seconds))
        print(rows[-1], flush=True)
    if flags.page:
        (Path(os.environ["BUILD_WORKSPACE_DIRECTORY"]) / PAGE).write_text(page(rows, flags.starts), encoding="utf-8")


if __name__ == "__main__":
    main()
