"""Runs a cut model in TensorFlow, and compares it with the model as it was."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot.cluster.host_model import SIGNATURE, Running, Whole
from tfaot.core import safetensors
from tfaot.core.errors import TfaotError
from tfaot.export.traced import Array, Edge

_PRECISION: Mapping[str, float] = {"bfloat16": 0.05, "float16": 0.01, "float64": 1e-9, "complex128": 1e-9}
"""How far a value may be from TensorFlow's, relative to the largest of its tensor. NAME_test is stricter: it knows by how much
rounding moves each value of a cluster."""

_DEFAULT_PRECISION = 2e-4


@dataclasses.dataclass(frozen=True)
class Files:
    """What the stages made."""

    library: str
    saved_model: str
    plan: str
    inputs: str
    uncut: str


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What was compared."""

    lines: tuple[str, ...]
    """Text, a line for each step, or for each tensor that differs."""
    differs: bool


class Loaded:
    """Both forms of a model, with the library loaded."""

    def __init__(self, files: Files) -> None:
        """Loads the library and the graphs.

        Raises:
          TfaotError: TensorFlow refuses the library.
        """
        try:
            tf.load_op_library(os.path.abspath(files.library))
        except tf.errors.OpError as error:
            raise TfaotError(
                f"TensorFlow {tf.__version__} can't load {files.library}",
                details=str(error),
                do="build the library with the rules' toolchain for this TensorFlow, and load only one of each class",
            ) from None
        with open(files.plan, encoding="utf-8") as file:
            self.plan: dict[str, Any] = json.load(file)
        graph = graph_pb2.GraphDef()
        with open(files.uncut, "rb") as uncut:
            graph.ParseFromString(uncut.read())
        inputs = _edges(self.plan["inputs"])
        prefix = os.path.join(files.saved_model, "variables", "variables")
        values: dict[str, Array] = {}
        if os.path.exists(prefix + ".index"):
            reader = tf.train.load_checkpoint(prefix)
            values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        self.uncut = Whole(graph, inputs, _edges(self.plan["outputs"]), values)
        self.cut = Whole(_graph(files.saved_model), inputs, _edges(self.plan["cut_outputs"]), values)
        self.steps = _steps(files.inputs, len(inputs))


def compare(files: Files) -> Comparison:
    """Runs both for all steps, and compares outputs and variables after each."""
    loaded = Loaded(files)
    theirs, ours = Running(loaded.uncut), Running(loaded.cut)
    lines, differs = [], False
    for step, values in enumerate(loaded.steps):
        labels = [edge.label for edge in loaded.uncut.outputs]
        expected = dict(zip(labels, theirs.step(values), strict=True)) | theirs.variables()
        actual = dict(zip(labels, ours.step(values), strict=True)) | ours.variables()
        wrong = [line for name in expected if (line := difference(name, expected[name], actual[name]))]
        differs |= bool(wrong)
        lines += [f"step {step}: {line}" for line in wrong] or [f"step {step}: {len(expected)} tensors agree"]
    served = _served(files.saved_model, loaded)
    expected = dict(
        zip([edge.label for edge in loaded.uncut.outputs], Running(loaded.uncut).step(loaded.steps[0]), strict=True)
    )
    wrong = [line for name in expected if (line := difference(name, expected[name], served[name]))]
    lines += [f"the SavedModel: {line}" for line in wrong] or [f"the SavedModel: {len(served)} outputs agree"]
    return Comparison(tuple(lines), differs or bool(wrong))


def difference(name: str, expected: Array, actual: Array) -> str:
    """Returns how a tensor differs from TensorFlow's; empty if it doesn't, but for rounding."""
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return (
            f"{name} is {actual.dtype}{list(actual.shape)}, and TensorFlow's is {expected.dtype}{list(expected.shape)}"
        )
    if expected.dtype.kind in "OSUbiu" or not expected.size:
        return "" if (expected == actual).all() else f"{name} differs"
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = expected.astype(wide), actual.astype(wide)
    if not (np.isfinite(a) == np.isfinite(b)).all():
        return f"{name} has infinities or NaN where TensorFlow has none, or the reverse"
    a, b = np.where(np.isfinite(a), a, 0), np.where(np.isfinite(b), b, 0)
    limit = allowed(expected)
    worst = float(np.abs(a - b).max())
    return f"{name} is off by {worst:.3g}, and {limit:.3g} is allowed" if worst > limit else ""


def allowed(expected: Array) -> float:
    """Returns how far values of a tensor may be from TensorFlow's."""
    wide = np.abs(expected.astype(np.complex128 if expected.dtype.kind == "c" else np.float64))
    largest = float(np.max(wide, where=np.isfinite(wide), initial=1e-30))
    return _PRECISION.get(expected.dtype.name, _DEFAULT_PRECISION) * largest


def _served(folder: str, loaded: Loaded) -> dict[str, Array]:
    """Runs the SavedModel's signature once, as servers do."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        signature = meta.signature_def[SIGNATURE]
        feeds = {
            signature.inputs[edge.label].name: value
            for edge, value in zip(loaded.cut.inputs, loaded.steps[0], strict=True)
        }
        values: dict[str, Array] = session.run({key: info.name for key, info in signature.outputs.items()}, feeds)
        return values


def _edges(described: Sequence[Mapping[str, Any]]) -> tuple[Edge, ...]:
    return tuple(
        Edge(
            entry["tensor"],
            entry["label"],
            tf.as_dtype(entry["dtype"]).as_datatype_enum,
            None if entry["shape"] is None else tuple(entry["shape"]),
        )
        for entry in described
    )


def _graph(folder: str) -> graph_pb2.GraphDef:
    from tensorflow.python.saved_model import loader_impl

    return loader_impl.parse_saved_model(folder).meta_graphs[0].graph_def


def _steps(path: str, inputs: int) -> list[list[Array]]:
    serialized = safetensors.read(path)
    count = len({name.partition("/")[0] for name in serialized}) if inputs else 1
    return [[_parsed(serialized[f"{step}/{index}"].tobytes()) for index in range(inputs)] for step in range(count)]


def _parsed(serialized: bytes) -> Array:
    from tensorflow.core.framework import tensor_pb2

    value: Array = tf.make_ndarray(tensor_pb2.TensorProto.FromString(serialized))
    return value
