"""Runs what sources of finished models return in a session, as the rest of the rules would compile it."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import tempfile
import unittest
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.stages.harness import StageTest
from tfaot.core import isolate

Arrays = Mapping[str, Any]

_MADE: dict[Any, tuple[str, Any]] = {}
"""By a function and its arguments, where it has saved something, and its result."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """An entry point's description and the results of its runs."""

    inputs: list[tuple[str, tuple[int | None, ...] | None]]
    """Labels and shapes."""
    outputs: list[tuple[str, tuple[int | None, ...] | None]]
    results: list[dict[str, Any]]
    """For each run, the outputs by label."""
    variables: dict[str, Any]
    """Variables after the runs, by name."""
    sources: dict[str, str]
    nodes: dict[str, str]
    """Ops by node."""


class FinishedTest(StageTest):
    """A test that saves a model in one child and reads it in another, as a build would."""

    def make(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Calls a function that saves something to the folder, its first argument, and returns its result."""
        return isolate.run_isolated(lambda: function(str(self.folder), *arguments, **options), what="saving")

    def make_once(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Does what `make` does, but runs a function with the same arguments once for all tests, and copies what it saves."""
        key = (function, arguments, tuple(options.items()))
        if key not in _MADE:
            folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
            unittest.addModuleCleanup(shutil.rmtree, folder)
            unittest.addModuleCleanup(_MADE.pop, key)
            _MADE[key] = folder, isolate.run_isolated(lambda: function(folder, *arguments, **options), what="saving")
        folder, result = _MADE[key]
        shutil.copytree(folder, self.folder, dirs_exist_ok=True)
        return result

    def ran(
        self,
        open_source: Callable[[], Any],
        entry_point: str,
        runs: Sequence[Arrays],
        *,
        dims: Mapping[str, tuple[int | None, ...]] | None = None,
    ) -> Ran:
        """Runs an entry point on inputs by label, several times in a row, starting from the saved variables."""
        return isolate.run_isolated(lambda: _run(open_source(), entry_point, runs, dims or {}), what="running")

    def refused(self, work: Callable[[], Any], wanted: str) -> None:
        """Work must fail with exactly this message. A line that ends in a backslash continues on the next."""
        text = self.error_of(isolate.run_isolated, work, what="refusing")
        self.assert_error(text.replace(f"{self.folder}/", ""), re.sub(r"\\\n\s*", "", wanted))

    def assert_near(self, result: Any, wanted: Any) -> None:
        """Compares arrays, one of which TensorFlow might have computed in another order."""
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def _run(source: Any, entry_point: str, runs: Sequence[Arrays], dims: Mapping[str, tuple[int | None, ...]]) -> Ran:
    import tensorflow as tf

    from tfaot.export.traced import Dims
    from tfaot.graph.names import tensor_name
    from tfaot.graph.prune import prune
    from tfaot.graph.variables import variable_uses

    function = source.function(entry_point, Dims(dims))
    fetches = [tensor_name(edge.name)[0] for edge in function.outputs]
    pruned = prune(function.graph, fetches, [tensor_name(edge.name)[0] for edge in function.inputs])
    nodes = {node.name: node for node in pruned.node}
    assert len(set(fetches)) == len(fetches), "two outputs are one node"
    assert not any(nodes[fetch].op == "Placeholder" for fetch in fetches), "an output is an input"
    assert all(nodes[tensor_name(edge.name)[0]].op == "Placeholder" for edge in function.inputs)
    uses = variable_uses(pruned)
    values = source.initial([use.shared_name for use in uses])
    assert set(values) == {use.shared_name for use in uses}
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(pruned, name="")
        handles = {use.shared_name: graph.get_tensor_by_name(f"{use.node}:0") for use in uses}
        dtypes = {use.shared_name: tf.as_dtype(use.dtype) for use in uses}
        assign = [tf.raw_ops.AssignVariableOp(resource=handles[name], value=value) for name, value in values.items()]
        read = {name: tf.raw_ops.ReadVariableOp(resource=handles[name], dtype=dtypes[name]) for name in handles}
        with tf.compat.v1.Session(graph=graph) as session:
            session.run(assign)
            names = {edge.label: edge.name for edge in function.inputs}
            results = []
            for run in runs:
                got = session.run(
                    [edge.name for edge in function.outputs], {names[label]: value for label, value in run.items()}
                )
                results.append({edge.label: value for edge, value in zip(function.outputs, got, strict=True)})
            after = session.run(read)
    return Ran(
        [(edge.label, edge.shape) for edge in function.inputs],
        [(edge.label, edge.shape) for edge in function.outputs],
        results,
        after,
        dict(function.sources),
        {node.name: node.op for node in pruned.node},
    )
