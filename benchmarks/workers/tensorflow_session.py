"""TensorFlow as a peer: the exported graph in a session, called through a reused callable."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.workers.worker import THREADS, Array, Case, serve

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf

from tfaot.core import safetensors
from tfaot.core.manifest import Manifest


class Session:
    """The graph with initialized variables. Each call is one step."""

    version = tf.__version__

    def __init__(self, case: Case) -> None:
        with open(case.files["manifest"], encoding="utf-8") as file:
            entry = Manifest.from_json(file.read()).entry_points[0]
        definition = tf.compat.v1.GraphDef()
        with open(case.files["graph"], "rb") as binary:
            definition.ParseFromString(binary.read())
        values = safetensors.read(case.files["variables"])
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(definition, name="")
            initialize = []
            for operation in graph.get_operations():
                if operation.type == "VarHandleOp":
                    name = operation.get_attr("shared_name").decode()
                    value = tf.constant(values[name], operation.get_attr("dtype"))
                    initialize.append(tf.raw_ops.AssignVariableOp(resource=operation.outputs[0], value=value))
            config = tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=THREADS, inter_op_parallelism_threads=THREADS
            )
            session = tf.compat.v1.Session(config=config)
            session.run(initialize)
        self._call = session.make_callable([output.name for output in entry.outputs], [i.name for i in entry.inputs])
        self._inputs = case.arrays()
        self._outputs: list[Any] = []

    def run(self) -> None:
        """Makes one `Session.run` call."""
        self._outputs = self._call(*self._inputs)

    def outputs(self) -> list[Array]:
        """Returns the fetches."""
        return self._outputs


if __name__ == "__main__":
    serve(Session)
