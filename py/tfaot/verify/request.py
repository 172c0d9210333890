"""What the verify stage is told. Without TensorFlow, which its main imports in a child process."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Request:
    """What to compute, and where to write it."""

    manifest: str
    graph: str
    variables: str
    golden_inputs: str
    out_goldens: str
    unseen: tuple[str, ...] = ()
    """Patterns of outputs and variables that no comparison needs to see."""
    strict: bool = False
    """Whether it is an error if no comparison sees an output or a variable."""
    sources: str | None = None
    """JSON of `file:line` by node, from the export stage; only errors read it."""
    program: str | None = None
    """The program that the graph was converted from, if it was: StableHLO, or programs that JAX exported."""
    entry_points: tuple[tuple[str, str], ...] = ()
    """Pairs of an entry point's C++ name and the program's own. By default, the first program."""
