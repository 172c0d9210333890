"""Runs peers side by side: compares outputs first, then runs interleaved rounds, each peer in its own process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import summary
from benchmarks.process import Failed, Process

OURS = "ours"
"""The name of the compiled model among its peers."""
TRAINING_STEPS = 5
"""How many consecutive losses to compare. The first one says nothing about the updates."""
TOLERANCE = 1e-4
TRAINING_TOLERANCE = 2e-3
"""Fractions of the largest magnitude. Training compares later steps, and Adam divides by gradients that are nearly zero."""
PAUSE = 0.1
"""Seconds before a peer's turn, if peers have several threads. Those of ONNX Runtime look for more work for up to 50 ms after a
call, and would take a core from the next peer."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """How to start a peer for one model."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    binary: str = ""
    """If it is a standalone program, the file whose stripped size counts."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """One peer on one model."""

    version: str
    difference: summary.Difference
    cold_start: float
    """Seconds from the process's start to the first result, the minimum of several starts."""
    resident: int
    """Bytes of the whole process after the first result."""
    size: int
    """Bytes of the stripped binary, or 0 if there is none."""
    rounds: tuple[tuple[float, ...], ...]
    """Microseconds per call, by round and batch."""

    @property
    def times(self) -> summary.Times:
        """The rounds' summary."""
        return summary.times(self.rounds)


@dataclasses.dataclass(frozen=True)
class Result:
    """The measurements of one model."""

    model: str
    reference: str
    """The peer whose outputs are the reference for the others."""
    measured: dict[str, Measured]
    missing: dict[str, str]
    """Peers that don't run it, and why."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long and where to measure."""

    rounds: int = 10
    batches: int = 5
    batch_nanoseconds: float = 10e6
    cold_starts: int = 3
    cpus: tuple[int, ...] | None = None
    """The cores that each peer is pinned to, and has one thread for. None for one thread on any core."""
    limit: float = 600
    tolerance: float | None = None
    """The largest difference of outputs, relative to their largest value. None for the suite's own."""


def last_cpus(count: int = 1) -> tuple[int, ...]:
    """Returns the cores to pin peers to: the last ones that this process can use, because others prefer the first.

    Raises:
      ValueError: it can't use so many, or none are asked for.
    """
    usable = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(usable):
        raise ValueError(f"{count} threads need {count} cores, and this process can use {len(usable)}")
    return tuple(usable[-count:])


def compare(
    model: str, peers: Sequence[Peer], *, training: bool, reference: str, plan: Plan, missing: Mapping[str, str]
) -> Result:
    """Runs one model on all peers.

    If a peer's outputs differ from the reference's beyond the tolerance, it isn't timed and counts as missing.

    Args:
      model: its name.
      peers: started in this order, and timed in this order in each round.
      training: whether calls change variables.
      reference: name of the peer to compare outputs with. If it is missing, the first one that runs.
      plan: rounds and cores.
      missing: peers that couldn't even be set up, and why.
    """
    gone = dict(missing)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        running: dict[str, Process] = {}
        outputs: dict[str, list[float]] = {}
        cold: dict[str, list[float]] = {}
        for peer in peers:
            say(f"{model}: starting {peer.name}")
            try:
                for _ in range(plan.cold_starts - 1):
                    with _start(peer, plan, folder) as process:
                        cold.setdefault(peer.name, []).append(process.cold_start)
                process = _start(peer, plan, folder)
                stack.enter_context(process)
                cold.setdefault(peer.name, []).append(process.cold_start)
                outputs[peer.name] = list(process.outputs())
                for _ in range(TRAINING_STEPS - 1 if training else 0):
                    process.run()
                    outputs[peer.name] += process.outputs()
                running[peer.name] = process
            except Failed as error:
                gone[peer.name] = str(error)
                outputs.pop(peer.name, None)
        if not running:
            return Result(model, reference, {}, gone)
        if reference not in running:
            reference = next(iter(running))
        tolerance = plan.tolerance or (TRAINING_TOLERANCE if training else TOLERANCE)
        differences = {n: summary.difference(outputs[n], outputs[reference], tolerance) for n in running}
        for name, difference in differences.items():
            if not difference.tolerated:
                gone[name] = (
                    f"its outputs are {difference.largest:.2g} off {reference}'s, and {tolerance:g} is tolerated"
                )
                del running[name]
        rounds = _rounds(model, running, plan, gone)
        measured = {
            peer.name: Measured(
                version=running[peer.name].version,
                difference=differences[peer.name],
                cold_start=min(cold[peer.name]),
                resident=running[peer.name].resident,
                size=stripped_size(peer.binary, folder) if peer.binary else 0,
                rounds=tuple(tuple(batches) for batches in rounds[peer.name]),
            )
            for peer in peers
            if peer.name in rounds
        }
    return Result(model, reference, measured, gone)


def _start(peer: Peer, plan: Plan, folder: str) -> Process:
    return Process(peer.command, cpus=plan.cpus, environment=peer.environment, folder=folder, limit=plan.limit)


def _rounds(
    model: str, running: Mapping[str, Process], plan: Plan, gone: dict[str, str]
) -> dict[str, list[list[float]]]:
    """Returns microseconds per call by peer, round, and batch. Adds a peer that fails on the way to `gone`."""
    calls: dict[str, int] = {}
    rounds: dict[str, list[list[float]]] = {name: [] for name in running}
    for index in range(-1, plan.rounds):  # the first round warms up and determines the number of calls in a batch
        say(f"{model}: round {index + 1} of {plan.rounds}")
        for name, process in running.items():
            if name in gone:
                continue
            if len(plan.cpus or ()) > 1:
                time.sleep(PAUSE)
            try:
                if index < 0:
                    calls[name] = summary.calls_for(min(process.time(3, 1)), plan.batch_nanoseconds)
                    calls[name] = summary.calls_for(min(process.time(1, calls[name])), plan.batch_nanoseconds)
                else:
                    rounds[name].append([ns / 1000 for ns in process.time(plan.batches, calls[name])])
            except Failed as error:
                gone[name] = str(error)
    return {name: times for name, times in rounds.items() if name not in gone and times}


def converge(model: str, peers: Sequence[Peer], plan: Plan, steps: int) -> dict[str, Any]:
    """Runs consecutive steps on one batch, from the start, because denormals slow down only late steps.

    Returns:
      The model, the number of steps, and for each peer that ran them, medians in microseconds: of all steps, of the first tenth,
      and of the last.
    """
    times: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        running: dict[str, Process] = {}
        for peer in peers:
            try:
                running[peer.name] = stack.enter_context(_start(peer, plan, folder))
            except Failed as error:
                say(f"{model}: {peer.name}: {error}")
        # A hundredth at a time, so a slow phase of the machine affects all peers.
        parts = min(100, steps)
        for part in range(parts):
            say(f"{model}: {steps * part // parts:,} of {steps:,} steps")
            for name, process in running.items():
                count = steps * (part + 1) // parts - steps * part // parts
                times.setdefault(name, []).extend(ns / 1000 for ns in process.time(count, 1))
    tenth = max(1, steps // 10)
    medians = {
        name: [sorted(part)[len(part) // 2] for part in (values, values[:tenth], values[-tenth:])]
        for name, values in times.items()
    }
    return {"model": model, "steps": steps, "medians": medians}


def stripped_size(path: str, folder: str) -> int:
    """Returns the bytes of a binary without symbols."""
    copy = os.path.join(folder, "stripped")
    shutil.copyfile(path, copy)
    os.chmod(copy, 0o700)
    subprocess.run(["strip", copy], check=True)
    return os.path.getsize(copy)


def say(line: str) -> None:
    """Prints progress."""
    print(f"compare: {line}", file=sys.stderr, flush=True)


def as_json(result: Result) -> dict[str, Any]:
    """Converts a result for a file: raw times, their summaries, and how the best peer compares with ours."""
    value = dataclasses.asdict(result)
    for name, measured in result.measured.items():
        value["measured"][name]["times"] = dataclasses.asdict(measured.times)
    peers = {name: measured.rounds for name, measured in result.measured.items() if name != OURS}
    ratio = summary.best_ratio(result.measured[OURS].rounds, peers) if OURS in result.measured else None
    return value | {"ratio": dataclasses.asdict(ratio) if ratio else None}
