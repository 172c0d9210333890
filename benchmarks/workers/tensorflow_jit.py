"""TensorFlow as a peer: the exported graph in a `tf.function(jit_compile=True)`, on reused tensors."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.workers.worker import THREADS, Array, Case, serve

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf
from tensorflow.python.eager import context

from tfaot.core import safetensors
from tfaot.core.manifest import Manifest

tf.config.threading.set_intra_op_parallelism_threads(THREADS)
tf.config.threading.set_inter_op_parallelism_threads(THREADS)


class Jit:
    """The graph's body as a function. Variables are `tf.Variable`s that it captures."""

    version = tf.__version__

    def __init__(self, case: Case) -> None:
        with open(case.files["manifest"], encoding="utf-8") as file:
            entry = Manifest.from_json(file.read()).entry_points[0]
        graph = tf.compat.v1.GraphDef()
        with open(case.files["graph"], "rb") as binary:
            graph.ParseFromString(binary.read())
        values = safetensors.read(case.files["variables"])
        handles = {node.name: node.attr["shared_name"].s.decode() for node in graph.node if node.op == "VarHandleOp"}
        fed = {tensor.name.rpartition(":")[0] for tensor in entry.inputs}
        replaced = fed | handles.keys()
        body = tf.compat.v1.GraphDef(versions=graph.versions, library=graph.library)
        body.node.extend(node for node in graph.node if node.name not in replaced)
        used: set[str] = set()
        for node in body.node:
            node.input[:] = [name for name in node.input if name.lstrip("^") not in replaced or name[0] != "^"]
            used.update(name if ":" in name else name + ":0" for name in node.input)
        for function in graph.library.function:
            context.context().add_function_def(function)
        self._variables = {name: tf.Variable(values[name]) for name in handles.values()}

        @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
        def call(*arguments: Any) -> Any:
            mapping = {tensor.name: value for tensor, value in zip(entry.inputs, arguments, strict=True)}
            into = tf.compat.v1.get_default_graph()
            captured = {name: into.capture(variable.handle) for name, variable in self._variables.items()}
            mapping |= {node + ":0": captured[name] for node, name in handles.items()}
            return tf.import_graph_def(
                body,
                input_map={name: value for name, value in mapping.items() if name in used},
                return_elements=[tensor.name for tensor in entry.outputs],
                name="",
            )

        self._inputs = [tf.constant(value) for value in case.arrays()]
        self._call = call.get_concrete_function(*self._inputs)
        self._outputs: list[Any] = []

    def run(self) -> None:
        """Makes one call. On a CPU, the results are ready when it returns."""
        self._outputs = self._call(*self._inputs)

    def outputs(self) -> list[Array]:
        """Returns the results."""
        return [value.numpy() for value in self._outputs]


if __name__ == "__main__":
    serve(Jit)
