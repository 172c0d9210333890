"""Models in the study's form: `input_fn()` returns placeholders, and `model_fn(features, labels)` the loss.

They use TensorFlow 1: importing the file and calling its functions builds everything in a single graph.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed
from tfaot.core.session import session_config
from tfaot.core.user_code import SEED
from tfaot.export.sources.functions import sources_of
from tfaot.export.sources.ref_variables import REFS
from tfaot.export.sources.user_code import UserCode, seed_everything
from tfaot.export.sources.xla_context import xla_context
from tfaot.export.traced import Array, Dims, Edge, Function
from tfaot.graph.attributes import shape_of
from tfaot.graph.prune import prune

v1 = tf.compat.v1

ENTRY_POINT = "model_fn"


def _enable_what_compiles() -> None:
    """Enables the only kinds of variables and control flow that can be compiled."""
    v1.enable_resource_variables()
    v1.enable_control_flow_v2()


class ModelFnSource:
    """A model's Python file that defines `input_fn` and `model_fn`, and optionally `golden_fn`."""

    entry_points = (ENTRY_POINT,)
    default_entry_point = ENTRY_POINT

    def __init__(self, path: str, *, replicas: int = 0) -> None:
        """Imports the file, relative to the working directory. A strategy has `replicas`; 0 if the target doesn't say.

        Raises:
          TfaotError: it raised an exception, or lacks a function.
        """
        v1.disable_eager_execution()
        _enable_what_compiles()
        seed_everything()
        self._graph = tf.Graph()
        with self._graph.as_default(), xla_context():
            v1.set_random_seed(SEED)
            self._user = UserCode(path, replicas)
            _enable_what_compiles()  # in case the file called tf.compat.v1.disable_v2_behavior()
            input_fn = self._user.function("input_fn", [])
            model_fn = self._user.function("model_fn", ["features", "labels"])
            self._golden_fn = self._user.function("golden_fn", ["step", "rng"], optional=True)
        assert input_fn is not None and model_fn is not None
        self._input_fn, self._model_fn = input_fn, model_fn
        self._given: Any = None

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Runs `input_fn` and `model_fn`; see `traced.Source`."""
        user, path = self._user, self._user.path
        if entry_point != ENTRY_POINT:
            raise TfaotError(
                f"{path} has no entry point {entry_point!r}",
                exists=f"it defines {ENTRY_POINT}, which is its only entry point",
                do=f"remove {caller.option('entry_points')}, or write the model as a tf.Module with a method for each",
            )
        with self._graph.as_default(), xla_context():
            self._given = user.run("input_fn()", self._input_fn)
            if not isinstance(self._given, tuple) or len(self._given) != 2:
                raise TfaotError(
                    f"{path}: input_fn() returned {type(self._given).__name__}",
                    exists=repr(self._given)[:200],
                    do="return the pair (features, labels), each a placeholder or a nest of placeholders",
                )
            placeholders = [_placeholder(path, leaf) for leaf in tf.nest.flatten(self._given)]
            # Before model_fn can fail because of them.
            inputs = dims.fix(path, [self._edge(tensor, tensor.op.name) for tensor in placeholders])
            for tensor, edge in zip(placeholders, inputs, strict=True):
                tensor.set_shape(edge.shape)
            returned = user.run("model_fn(features, labels)", self._model_fn, *self._given)
            outputs = _outputs(path, returned)
        graph = self._graph.as_graph_def()
        self._refuse_references(graph, [tensor.op.name for _, tensor in outputs])
        return Function(
            name=entry_point,
            graph=graph,
            inputs=inputs,
            outputs=tuple(self._edge(tensor, label) for label, tensor in outputs),
            sources=sources_of(self._graph, graph, user.place),
        )

    def _refuse_references(self, graph: graph_pb2.GraphDef, fetches: Sequence[str]) -> None:
        """Refuses variables of TensorFlow 1's first kind, which come only from code that asks for them."""
        if not any(node.op in REFS for node in graph.node):
            return
        if old := [node.name for node in prune(graph, fetches).node if node.op in REFS]:
            places = [self._user.place(self._graph.get_operation_by_name(name).traceback or ()) for name in old]
            raise TfaotError(
                f"{self._user.path}: {len(old)} variable(s) aren't resource variables, the only kind that can be compiled",
                exists=listed(
                    [f"{name} at {place}" if place else name for name, place in zip(old, places, strict=True)]
                ),
                do="remove use_resource=False; if importing the file creates variables, remove "
                "tf.compat.v1.disable_v2_behavior() and disable_resource_variables()",
            )

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """Runs the initializers in a session; see `traced.Source`."""
        with self._graph.as_default():
            variables = [
                variable for variable in (*v1.global_variables(), *v1.local_variables()) if hasattr(variable, "handle")
            ]
            by_name = {}
            for variable in variables:
                operation = variable.handle.op
                by_name[operation.get_attr("shared_name").decode() or operation.name] = variable
            if missing := [name for name in names if name not in by_name]:
                raise TfaotError(
                    f"{self._user.path}: {len(missing)} variable(s) have no initial value in the graph",
                    exists=listed(missing),
                    do="create them while model_fn runs, in the collection of global or local variables",
                )
            wanted = [by_name[name] for name in names]
            with v1.Session(graph=self._graph, config=session_config()) as session:
                self._user.run("initializing its variables", session.run, v1.variables_initializer(variables))
                values = session.run([variable.read_value() for variable in wanted])
        return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}

    def golden(
        self, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
    ) -> Sequence[Array] | None:
        """Returns the result of `golden_fn(step, rng)`; see `traced.Source`."""
        if self._golden_fn is None:
            return None
        nest = self._user.run("golden_fn(step, rng)", self._golden_fn, step, rng)
        try:
            tf.nest.assert_same_structure(self._given, nest)
        except (ValueError, TypeError) as error:
            raise TfaotError(
                f"{self._user.path}: golden_fn(step, rng) and input_fn() returned different structures",
                details=str(error),
                do="return NumPy arrays in the same nest as input_fn()'s placeholders",
            ) from None
        return [np.asarray(value) for value in tf.nest.flatten(nest)]

    def _edge(self, tensor: Any, label: str) -> Edge:
        shape = shape_of(tensor.shape)
        return Edge(
            tensor.name, label, tensor.dtype.as_datatype_enum, shape, self._user.place(tensor.op.traceback or ())
        )


def _placeholder(path: str, leaf: Any) -> Any:
    if not tf.is_tensor(leaf) or leaf.op.type != "Placeholder":
        shown = f"{leaf.name!r}, the result of a {leaf.op.type}" if tf.is_tensor(leaf) else repr(leaf)[:200]
        raise TfaotError(
            f"{path}: input_fn() returned something other than a placeholder",
            exists=shown,
            do="make each input with tf.compat.v1.placeholder(dtype, shape, name)",
        )
    return leaf


def _outputs(path: str, returned: Any) -> list[tuple[str, Any]]:
    """Names what `model_fn` returned: by dict keys and fields, or `loss` for a single tensor."""
    operations = [leaf for leaf in tf.nest.flatten(returned) if isinstance(leaf, tf.Operation)]
    leaves = [
        (keys, leaf) for keys, leaf in _flatten_with_keys(returned) if leaf is not None and leaf not in operations
    ]
    if not leaves or not all(tf.is_tensor(leaf) or isinstance(leaf, tf.Variable) for _, leaf in leaves):
        raise TfaotError(
            f"{path}: model_fn(features, labels) returned {type(returned).__name__}",
            exists=repr(returned)[:200],
            do="return the loss as a tensor, or a dict, tuple, or named tuple of tensors, which depends on the train op",
        )
    outputs: list[tuple[str, Any]] = []
    seen: set[str] = set()
    for keys, leaf in leaves:
        tensor = tf.convert_to_tensor(leaf)
        # A fetch needs its own node: not a feed, not another fetch of the same tensor, and after every operation.
        if operations or tensor.op.type == "Placeholder" or tensor.name in seen or leaf is not tensor:
            with tf.control_dependencies(operations):
                tensor = tf.identity(tensor)
        seen.add(tensor.name)
        label = "/".join(keys) if keys else "loss" if len(leaves) == 1 else tensor.op.name
        outputs.append((label, tensor))
    return outputs


def _flatten_with_keys(nest: Any, keys: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Like `functions.leaves_of`, but an index counts only below a key. At the top, nodes' names say more."""
    if isinstance(nest, dict):
        return [pair for key in sorted(nest) for pair in _flatten_with_keys(nest[key], (*keys, str(key)))]
    if hasattr(nest, "_fields"):
        return [pair for key in nest._fields for pair in _flatten_with_keys(getattr(nest, key), (*keys, key))]
    if isinstance(nest, (tuple, list)):
        below = [_flatten_with_keys(item, (*keys, str(index)) if keys else ()) for index, item in enumerate(nest)]
        return [pair for pairs in below for pair in pairs]
    return [(keys, nest)]
