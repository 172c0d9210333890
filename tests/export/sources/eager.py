"""Runs a Python file's model twice: as the exported graph in a session, and as the user's own code, eagerly."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.stages.harness import Exported, StageTest
from tfaot.core import environment, isolate

Eager = Callable[[Any, str, Sequence[Any]], Any]
"""Calls the user's code with the module, an entry point's own name, and its inputs in order."""


def call(module: Any, entry_point: str, inputs: Sequence[Any]) -> Any:
    """Calls `model`, a method of it, or a function of the file, as a user would."""
    model = module.model
    if entry_point == "call":
        return model(*inputs)
    callee = model if hasattr(model, entry_point.partition(".")[0]) else module
    for part in entry_point.split("."):
        callee = getattr(callee, part)
    return callee(*inputs)


class EagerTest(StageTest):
    """A test of models as Python files."""

    def agree(
        self,
        model: str,
        *,
        compiled: bool = True,
        eager: Eager = call,
        entry_points: tuple[tuple[str, str], ...] = (),
        near: float = 1e-5,
        signature: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> Exported:
        """Exports a model, and compares every golden call, and the variables after it, with the user's code.

        Args:
          model: text of the file.
          compiled: whether tfcompile must accept every function in it.
          eager: how the user would call it.
          entry_points: as in `StageTest.export`.
          near: largest difference, relative to the largest value.
          signature: as in `StageTest.export`.
          **attributes: additional ones of `StageTest.export`.
        """
        exported = self.export(model, entry_points=entry_points, signature=signature, **attributes)
        own = dict(entry_points) or {"Run": "call"}

        def work() -> list[str]:
            os.chdir(exported.folder)
            sys.dont_write_bytecode = True
            environment.prepare()
            return _differences(exported, own, eager, dict(signature or {}), dict(attributes.get("dims") or {}), near)

        self.assertEqual(isolate.run_isolated(work, what="comparing"), [])
        if compiled:
            for entry in exported.manifest.entry_points:
                for batch in entry.batch_sizes or (0,):
                    name = entry.name if len(exported.manifest.entry_points) > 1 else ""
                    self.compile(exported, batch=batch, entry_point=name)
        return exported


def _differences(
    exported: Exported,
    own: Mapping[str, str],
    eager: Eager,
    signature: Mapping[str, str],
    dims: Mapping[str, tuple[int | None, ...]],
    near: float,
) -> list[str]:
    """Returns the differences, one per line."""
    import tensorflow as tf
    from tensorflow.core.framework import graph_pb2

    from tfaot.export.sources.functions import leaves_of
    from tfaot.export.sources.python_model import PythonSource
    from tfaot.export.traced import Dims
    from tfaot.verify.runner import Runner

    manifest = exported.manifest
    golden = exported.golden_inputs
    calls = [
        (entry, [golden[f"step{step}/{tensor.cpp_name}"] for tensor in entry.inputs])
        for step, entry in enumerate(manifest.entry_point(call.entry_point) for call in manifest.calls)
    ]
    with open("graph", "rb") as file:
        graph = graph_pb2.GraphDef.FromString(file.read())
    results = Runner(manifest, graph)(exported.variables.items(), calls)

    source = PythonSource("model.py", signature=signature)
    vars(source._user.module)["model"] = source._root  # for a function that returns the model, its result
    for path in own.values():
        source.function(path, Dims(dims, batched=manifest.max_batch > 0))
    wrong = []
    for step, ((entry, values), result) in enumerate(zip(calls, results, strict=True)):
        nest = eager(source._user.module, own[entry.name], [tf.constant(value) for value in values])
        wanted = [leaf.value for leaf in leaves_of(nest) if leaf.value is not None]
        written = manifest.written_by(entry)
        held = source.initial([variable.name for variable in written])
        wanted += [held[variable.name] for variable in written]
        labels = [tensor.cpp_name for tensor in (*entry.outputs, *written)]
        if len(wanted) == len(result) - 1 and labels[0].endswith("done"):
            labels, result = labels[1:], result[1:]
        if len(wanted) != len(result):
            wrong.append(f"step {step} gives {labels}, and eagerly {len(wanted)} values")
            continue
        for label, got, want in zip(labels, result, wanted, strict=True):
            want = np.asarray(want)
            if got.shape != want.shape or got.dtype != want.dtype:
                wrong.append(f"step {step}: {label} is {got.dtype}{got.shape}, eagerly {want.dtype}{want.shape}")
            elif not np.allclose(
                got, want, rtol=0, atol=near * max(1e-30, np.max(np.abs(want), initial=0)), equal_nan=True
            ):
                wrong.append(f"step {step}: {label} is {got}, eagerly {want}")
    return wrong
