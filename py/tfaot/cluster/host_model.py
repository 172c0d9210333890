"""The whole of a model whose clusters are calls: a SavedModel, and how TensorFlow runs it."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2, saver_pb2

from tfaot.export.traced import Array, Edge
from tfaot.graph.attributes import shape_proto
from tfaot.graph.names import canonical

v1 = tf.compat.v1

SIGNATURE = "serving_default"
"""The SavedModel's one signature."""

_SAVE = "tfaot_save"
"""The scope of the nodes that save and restore variables."""


@dataclasses.dataclass(frozen=True)
class Whole:
    """A graph that TensorFlow runs."""

    graph: graph_pb2.GraphDef
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    variables: Mapping[str, Array]
    """Initial values, by shared name."""

    def handles(self) -> dict[str, str]:
        """Returns the first node of each variable."""
        first: dict[str, str] = {}
        for node in self.graph.node:
            if node.op == "VarHandleOp":
                first.setdefault(node.attr["shared_name"].s.decode(), node.name)
        return {name: first[name] for name in sorted(first) if name in self.variables}


class Running:
    """A graph in a session of its own, with variables at their initial values."""

    def __init__(self, whole: Whole, config: Any = None) -> None:
        """Imports the graph. All of its ops must be known."""
        self._whole = whole
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.import_graph_def(whole.graph, name="")
            self._reads = {}
            assigns, feeds = [], {}
            for name, node in whole.handles().items():
                handle = self.graph.get_tensor_by_name(f"{node}:0")
                value = whole.variables[name]
                fed = v1.placeholder(value.dtype, value.shape)
                assigns.append(tf.raw_ops.AssignVariableOp(resource=handle, value=fed))
                feeds[fed] = value
                self._reads[name] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype)
        self.session = v1.Session(graph=self.graph, config=config)
        self.session.run(assigns, feeds)

    def feeds(self, values: Sequence[Array]) -> dict[str, Array]:
        """Returns values of the inputs by tensor."""
        return {edge.name: value for edge, value in zip(self._whole.inputs, values, strict=True)}

    def step(self, values: Sequence[Array]) -> list[Array]:
        """Runs once. Returns the outputs."""
        fetched = [canonical(edge.name) for edge in self._whole.outputs]
        return list(self.session.run(fetched, self.feeds(values)))

    def prepared(self, steps: Sequence[Sequence[Array]]) -> Callable[[], None]:
        """Returns a function that runs one step after another, over and over, without what Python adds to each."""
        fetched = [self.graph.get_tensor_by_name(canonical(edge.name)) for edge in self._whole.outputs]
        fed = [self.graph.get_tensor_by_name(canonical(edge.name)) for edge in self._whole.inputs]
        run = self.session.make_callable(fetched, feed_list=fed)
        turn = itertools.cycle(steps)
        return lambda: run(*next(turn)) and None

    def inside(self, tensors: Sequence[str], values: Sequence[Array]) -> list[Array]:
        """Returns values inside the graph.

        Raises:
          tf.errors.OpError: one of them isn't computed in this run, because it is in another branch.
        """
        return list(self.session.run(list(tensors), self.feeds(values)))

    def variables(self) -> dict[str, Array]:
        """Returns the variables' values."""
        values: dict[str, Array] = self.session.run(self._reads)
        return values


def save(whole: Whole, folder: str, *, version: str) -> None:
    """Writes a SavedModel that any TensorFlow reads once the clusters' op is loaded.

    Args:
      whole: the cut graph.
      folder: where to write it.
      version: TensorFlow's.
    """
    handles = whole.handles()
    meta = meta_graph_pb2.MetaGraphDef(graph_def=whole.graph)
    meta.meta_info_def.tags.append("serve")
    meta.meta_info_def.tensorflow_version = version
    signature = meta.signature_def[SIGNATURE]
    signature.method_name = "tensorflow/serving/predict"
    for edges, infos in ((whole.inputs, signature.inputs), (whole.outputs, signature.outputs)):
        for edge in edges:
            infos[edge.label].name = canonical(edge.name)
            infos[edge.label].dtype = edge.dtype
            infos[edge.label].tensor_shape.CopyFrom(shape_proto(edge.shape))
    os.makedirs(os.path.join(folder, "variables"))
    if handles:
        _add_saver(meta, whole, handles)
        values = {name: np.asarray(whole.variables[name]) for name in handles}
        with tf.Graph().as_default(), v1.Session() as session:
            fed = {name: v1.placeholder(value.dtype, value.shape) for name, value in values.items()}
            saving = tf.raw_ops.SaveV2(
                prefix=os.path.join(folder, "variables", "variables"),
                tensor_names=list(values),
                shape_and_slices=[""] * len(values),
                tensors=list(fed.values()),
            )
            session.run(saving, {fed[name]: value for name, value in values.items()})
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1, meta_graphs=[meta])
    with open(os.path.join(folder, "saved_model.pb"), "wb") as file:
        file.write(saved.SerializeToString(deterministic=True))


def _add_saver(meta: Any, whole: Whole, handles: Mapping[str, str]) -> None:
    """Adds what restores variables, and the collection that lists them."""
    nodes = {node.name: node for node in whole.graph.node}
    names = list(handles)
    values = [np.asarray(whole.variables[name]) for name in names]
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_pb2.GraphDef(node=[_alone(nodes[node]) for node in handles.values()]), name="")
        resources = [graph.get_tensor_by_name(f"{node}:0") for node in handles.values()]
        with tf.name_scope(_SAVE):
            filename = v1.placeholder_with_default("model", [], name="filename")
            reads = [
                tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype, name=f"read_{index}")
                for index, (handle, value) in enumerate(zip(resources, values, strict=True))
            ]
            slices = [""] * len(names)
            saving = tf.raw_ops.SaveV2(
                prefix=filename, tensor_names=names, shape_and_slices=slices, tensors=reads, name="save"
            )
            with tf.control_dependencies([saving]):
                tf.identity(filename, name="saved")
            restored = tf.raw_ops.RestoreV2(
                prefix=filename,
                tensor_names=names,
                shape_and_slices=slices,
                dtypes=[value.dtype for value in values],
                name="restore",
            )
            assigns = [
                tf.raw_ops.AssignVariableOp(resource=handle, value=value, name=f"assign_{index}")
                for index, (handle, value) in enumerate(zip(resources, restored, strict=True))
            ]
            for index, (handle, value) in enumerate(zip(resources, values, strict=True)):
                zeros = tf.zeros(value.shape, value.dtype, name=f"zeros_{index}")
                tf.raw_ops.AssignVariableOp(resource=handle, value=zeros, name=f"initialize_{index}")
            tf.group(*assigns, name="restore_all")
    meta.graph_def.node.extend(node for node in graph.as_graph_def().node if node.name not in nodes)
    meta.saver_def.CopyFrom(
        saver_pb2.SaverDef(
            filename_tensor_name=f"{_SAVE}/filename:0",
            save_tensor_name=f"{_SAVE}/saved:0",
            restore_op_name=f"{_SAVE}/restore_all",
            max_to_keep=1,
            version=saver_pb2.SaverDef.V2,
        )
    )
    for index, node in enumerate(handles.values()):
        meta.collection_def["variables"].bytes_list.value.append(
            variable_pb2.VariableDef(
                variable_name=f"{node}:0",
                initializer_name=f"{_SAVE}/initialize_{index}",
                initial_value_name=f"{_SAVE}/zeros_{index}:0",
                snapshot_name=f"{_SAVE}/read_{index}:0",
                is_resource=True,
                trainable=False,
            ).SerializeToString(deterministic=True)
        )


def _alone(node: Any) -> Any:
    """Returns a node without control inputs."""
    copy = type(node)()
    copy.CopyFrom(node)
    del copy.input[:]
    return copy
