"""Explains a TensorFlow run that fails, for example on inputs that a model doesn't accept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tfaot.core import caller, drawn, refusals, safetensors
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import Manifest
from tfaot.verify.request import Request

if TYPE_CHECKING:
    import tensorflow as tf

_SHOWN = 8
"""How many values of an input a message shows."""


def explained(
    error: tf.errors.OpError,
    manifest: Manifest,
    *,
    golden_inputs: Mapping[str, npt.NDArray[Any]] | None = None,
    sources: Mapping[str, str] | None = None,
) -> TfaotError:
    """Turns an operation's error into one that names the operation, its line, the inputs, and what to do.

    Args:
      error: the error that a session raised when it ran the exported graph.
      manifest: the model's manifest.
      golden_inputs: the inputs of all calls.
      sources: `file:line` by node, from the export stage.
    """
    message = error.message.partition("\n\nOriginal stack trace for")[0]
    nodes = [f"{{{{node {error.node_def.name}}}}}"] if error.node_def is not None else []
    reason = re.sub(r"^(Graph execution error:\s*|Detected at node .*\n|Node: .*\n)+", "", message.lstrip())
    reason = re.sub(r"\n?\s*\[\[.*?\]\]", "", reason).strip()
    places = refusals.mentioned("\n".join([*nodes, message]), sources or {})
    what = f" in {error.node_def.op} {error.node_def.name!r}" if error.node_def is not None else ""
    inputs = []
    for entry in manifest.entry_points:
        for tensor in entry.inputs:
            shown = f"{tensor.cpp_name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
            value = next((v for k, v in (golden_inputs or {}).items() if k.partition("/")[2] == tensor.cpp_name), None)
            if value is not None and 0 < value.size <= _SHOWN:
                shown += f" = {value.tolist()}"
            inputs.append(shown)
    return TfaotError(
        f"{manifest.cpp_class}: TensorFlow itself can't run the model on the test inputs: {type(error).__name__}{what}",
        details="\n".join([reason, *places]),
        exists=f"inputs {'; '.join(inputs)}" if inputs else "",
        do=f"give the model inputs that it accepts: {caller.setting('golden_inputs', 'inputs.py')}, a file that defines "
        "golden_fn(step, rng); without them, floats are normally distributed, and integers are in the range of their uses",
    )


def explained_in_files(error: tf.errors.OpError, request: Request) -> TfaotError:
    """Calls `explained` with the contents of a request's files."""
    with open(request.manifest, encoding="utf-8") as file:
        model = Manifest.from_json(file.read(), path=request.manifest)
    lines: dict[str, str] = {}
    if request.sources is not None:
        with open(request.sources, encoding="utf-8") as file:
            lines = json.load(file)
    inputs = drawn.inputs(model, safetensors.read(request.golden_inputs))
    return explained(error, model, golden_inputs=inputs, sources=lines)
