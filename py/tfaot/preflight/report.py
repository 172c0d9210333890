"""What a preflight check finds: a report as data, JSON, and text. Pure, and without TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence

FORMAT = 1
"""The JSON's format. It changes whenever the meaning of a field does."""

BLOCKER = "blocker"
NEEDED = "needed"
HAZARD = "hazard"
SEVERITIES = {
    BLOCKER: "the build fails",
    NEEDED: "you must say what the model leaves open",
    HAZARD: "the build succeeds, and the compiled model may behave unlike TensorFlow",
}
"""What a finding means."""

KINDS = {
    "unreadable": "the model or an entry point can't be read",
    "unsupported_op": "XLA has no kernel for an op",
    "unsupported_dtype": "XLA has no kernel for an op's dtypes",
    "not_ahead_of_time": "XLA has a kernel, and its ahead-of-time compiler can't lower it",
    "edge_dtype": "an input or output has a dtype that can't cross the model's edge",
    "unknown_size": "the model leaves the size of an input open",
    "lost_shape": "TensorFlow doesn't know the shape of an output; this op is the first to lose it",
    "not_constant": "an argument must be a compile-time constant, and depends on something that isn't",
    "unbounded_loop": "the gradient of a loop needs a bound for the number of iterations",
    "growing_list": "a TensorArray or tensor list grows at run time",
    "missing_function": "the graph lacks a function that a node calls",
    "recursion": "a function calls itself",
    "random": "a random op can't use the class's seed",
    "fixed_seed": "a random op draws the same numbers in every run",
    "dropped_check": "XLA drops a check",
    "clamped_index": "an index out of range is no error in compiled code",
    "dynamic_size": "the size of a result depends on values",
}
"""All kinds of findings, each with its meaning."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A node that a finding is about."""

    node: str
    """The node's name, or the label of an input or output."""
    function: str
    """The function that contains the node; empty for the graph itself."""
    nesting: tuple[str, ...]
    """The nodes that lead to the function, from the outside in: calls, loops, and branches."""
    count: int
    """How often the entry point contains the node: once for each way in which it calls the function."""
    source: str
    """`file:line` in the user's code, or empty if the model has no debug information."""
    because: str
    """What is specific to this node, such as the input that an argument depends on. Can be empty."""

    @property
    def text(self) -> str:
        """The place in one line."""
        inside = f", in {' > '.join(self.nesting)}" if self.nesting else ""
        return (
            repr(self.node)
            + (f" at {self.source}" if self.source else "")
            + inside
            + (f", {self.count} times" if self.count > 1 else "")
            + (f": {self.because}" if self.because else "")
        )


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that stands in the way, or that behaves otherwise than in TensorFlow, at all its places."""

    kind: str
    """One of the kinds below."""
    severity: str
    """`blocker`, `needed`, or `hazard`."""
    op: str
    """The op of all the nodes; empty if the finding isn't about an op."""
    what: str
    """The finding in one sentence."""
    rewrite: str
    """What to do about it."""
    count: int
    """How many nodes it concerns, counting a node once for each way in which its function is called."""
    places: tuple[Place, ...]
    """The nodes."""


@dataclasses.dataclass(frozen=True)
class EntryPoint:
    """The findings in one function of the model."""

    name: str
    """Its name in the model."""
    nodes: int
    """How many nodes it has, with those of its functions."""
    functions: int
    """How many functions it calls, directly or not."""
    findings: tuple[Finding, ...]
    """Blockers first."""

    def of(self, severity: str) -> list[Finding]:
        """Returns the findings of a severity."""
        return [finding for finding in self.findings if finding.severity == severity]


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything that a check found."""

    format: int
    """The version of this format."""
    tensorflow: str
    """The version of TensorFlow whose compiler the report is about."""
    model: str
    """The model's path."""
    compiles: bool
    """Whether the report has no blocker."""
    entry_points: tuple[EntryPoint, ...]
    """What was checked."""

    @classmethod
    def of(cls, tensorflow: str, model: str, entry_points: Iterable[EntryPoint]) -> Report:
        """Makes a report of entry points, sorting their findings."""
        order = {severity: number for number, severity in enumerate(SEVERITIES)}
        kinds = {kind: number for number, kind in enumerate(KINDS)}
        ordered = tuple(
            dataclasses.replace(
                entry,
                findings=tuple(
                    sorted(
                        entry.findings,
                        key=lambda finding: (order[finding.severity], kinds[finding.kind], finding.op, finding.what),
                    )
                ),
            )
            for entry in entry_points
        )
        return cls(FORMAT, tensorflow, model, not any(entry.of(BLOCKER) for entry in ordered), ordered)

    def to_json(self) -> str:
        """Returns the report as JSON; docs/reference/report.schema.json describes it."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    @property
    def summary(self) -> str:
        """The result in one line."""
        count = {severity: sum(len(entry.of(severity)) for entry in self.entry_points) for severity in SEVERITIES}
        severities = [_counted(count[BLOCKER], "blocker"), _counted(count[HAZARD], "hazard")]
        if count[NEEDED]:
            severities.insert(1, f"{count[NEEDED]} to fill in")
        verdict = "nothing stands in the way" if self.compiles else "does not compile"
        return f"{self.model}: {verdict}; {', '.join(severities)} in {_counted(len(self.entry_points), 'entry point')}"

    def to_text(self, *, limit: int = 8) -> str:
        """Returns the report for a terminal.

        Args:
          limit: the most places to list for a finding. The other forms of the report list all.
        """
        lines = [self.summary, f"  checked against the compiler of TensorFlow {self.tensorflow}"]
        for entry in self.entry_points:
            lines += ["", f"{entry.name}: {_counted(entry.nodes, 'node')}, {_counted(entry.functions, 'function')}"]
            if not entry.findings:
                lines.append("  no findings")
            for finding in entry.findings:
                lines += ["", f"  {finding.severity.upper()}: {finding.what}", *_places(finding.places, limit)]
                lines.append(f"    to do: {finding.rewrite}")
        blockers = [finding for entry in self.entry_points for finding in entry.of(BLOCKER)]
        if any(finding.op for finding in blockers) and all(
            finding.op or finding.kind == "edge_dtype" for finding in blockers
        ):
            lines += [
                "",
                "tf_aot_clusters compiles what has no blocker, and TensorFlow or your program runs the rest "
                "(docs/guide/clusters.md)",
            ]
        return "\n".join(lines) + "\n"


def _places(places: Sequence[Place], limit: int) -> list[str]:
    lines = [f"      {place.text}" for place in places[:limit]]
    if more := len(places) - limit:
        lines += [f"      and {_counted(more, 'more node')}"] if more > 0 else []
    return lines


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
