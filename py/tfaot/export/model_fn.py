"""Models as the study wrote them: `input_fn()` gives placeholders, `model_fn(features, labels)` the loss."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import os
import random
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot import dtypes
from tfaot.errors import TfaotError, listed
from tfaot.export import graph as graphs
from tfaot.export.xla_context import xla_context
from tfaot.session import session_config

v1 = tf.compat.v1

SEED = 1
"""Seed of the graph, NumPy, and `random` while user code runs: two exports give the same initial values."""

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Edge:
    """A tensor that crosses the model's edge, before it has a C++ name."""

    name: str
    """TensorFlow's, `node:port`."""
    label: str
    """What the user calls it: a dict's key, a field, or the node's name."""
    dtype: int
    shape: tuple[int | None, ...] | None
    source: str
    """`file:line` in the user's code, or empty."""


@dataclasses.dataclass(frozen=True)
class Built:
    """What running the user's code gave."""

    graph: graph_pb2.GraphDef
    """Pruned to what the outputs need."""
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    variables: tuple[graphs.VariableUse, ...]
    initial: dict[str, Array]
    """Initial values by shared name."""
    steps: tuple[tuple[Array, ...], ...]
    """Golden inputs: for each step a value for each input."""
    sources: dict[str, str]
    """`file:line` in the user's code, by node name, or `function/node` inside functions."""


class UserCode:
    """A model's Python file, and how to run it so that its errors point into it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._root = os.getcwd() + os.sep
        self._packages = os.path.dirname(os.path.dirname(os.path.abspath(tf.__file__))) + os.sep
        self._ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
        self._shown: dict[str, str] = {}
        self.module = self._load()

    def place(self, frames: Iterable[Any]) -> str:
        """`file:line` of the innermost frame in the user's code, relative to the workspace, or an empty string."""
        place = ""
        for frame in frames:
            shown = self._shown.get(frame.filename)
            if shown is None:
                shown = self._shown[frame.filename] = self._show(frame.filename)
            if shown:
                place = f"{shown}:{frame.lineno}"
        return place

    def _show(self, filename: str) -> str:
        if filename.startswith("<"):  # no file: `<string>`, `<frozen importlib._bootstrap>`
            return ""
        path = os.path.abspath(filename)
        if path.startswith((self._packages, self._ours)) or not path.startswith(self._root):
            return ""
        return path[len(self._root) :]

    def run(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Calls user code; its exception becomes an error with the part of the traceback that is the user's.

        Raises:
          TfaotError: the user's code raised.
        """
        try:
            return function(*args)
        except TfaotError:
            raise
        except (Exception, SystemExit) as error:
            raise self.error(what, error) from None

    def error(self, what: str, error: BaseException) -> TfaotError:
        """One error for an exception of the user's code."""
        frames = traceback.extract_tb(error.__traceback__)
        mine = [frame for frame in frames if self._show(frame.filename)]
        if isinstance(error, tf.errors.OpError) and error.op is not None:
            # Raised by a session: what counts is where the op was made, and TensorFlow's text is its traceback, twice.
            text = error.message.rpartition("\nNode: ")[2].partition("\n\nOriginal stack trace")[0]
            place = self.place(error.op.traceback) or self.path
            return TfaotError(
                f"{self.path}: {what} raised {type(error).__name__} at {place}", details=text, do=f"mend {place}"
            )
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{self._show(error.filename) or error.filename}:{error.lineno}"
        else:
            place = self.place(mine) or self.path
        shown = [
            line
            for frame in mine
            for line in (f"{self._show(frame.filename)}:{frame.lineno}, in {frame.name}", f"    {frame.line}")
        ]
        text = "".join(traceback.format_exception_only(type(error), error))
        shown += text.replace(self._root, "").splitlines()
        return TfaotError(
            f"{self.path}: {what} raised {type(error).__name__} at {place}",
            details="\n".join(shown),
            do=f"mend {place}",
        )

    def _load(self) -> types.ModuleType:
        spec = importlib.util.spec_from_file_location("tfaot_user_model", os.path.abspath(self.path))
        if spec is None or spec.loader is None:
            raise TfaotError(f"{self.path} is no Python file", do="name a file that ends in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        self.run("importing it", spec.loader.exec_module, module)
        return module

    def function(self, name: str, parameters: Sequence[str], *, optional: bool = False) -> Callable[..., Any] | None:
        """Looks up a function of the model.

        Raises:
          TfaotError: it is missing, or cannot be called with these positional arguments.
        """
        function: Any = getattr(self.module, name, None)
        wanted = f"{name}({', '.join(parameters)})"
        if function is None and optional:
            return None
        if not callable(function):
            public = [
                key
                for key, value in vars(self.module).items()
                if inspect.isfunction(value) and value.__module__ == self.module.__name__
            ]
            raise TfaotError(
                f"{self.path} has no function {wanted}",
                exists=listed(public),
                do=f"define {wanted} in {self.path}",
            )
        try:
            inspect.signature(function).bind(*parameters)
        except TypeError as error:
            line = function.__code__.co_firstlineno if inspect.isfunction(function) else 1
            raise TfaotError(
                f"{self.path}:{line}: {name} cannot be called as {wanted}: {error}",
                exists=f"{name}{inspect.signature(function)}",
                do=f"give it the parameters ({', '.join(parameters)})",
            ) from None
        return cast("Callable[..., Any]", function)


def build(path: str, *, steps: int, edge: str = "cpp") -> Built:
    """Runs a model's `input_fn` and `model_fn`, and what belongs to them.

    Args:
      path: the model's file, relative to the working directory.
      steps: how many golden steps to make inputs for.
      edge: one of `dtypes.EDGES`.

    Raises:
      TfaotError: the user's code raised or returned something else than the contract says, or a shape or dtype cannot
        be compiled.
    """
    v1.disable_eager_execution()
    v1.enable_resource_variables()
    v1.enable_control_flow_v2()
    random.seed(SEED)
    np.random.seed(SEED)
    graph = tf.Graph()
    with graph.as_default(), xla_context():
        v1.set_random_seed(SEED)
        user = UserCode(path)
        input_fn = user.function("input_fn", [])
        model_fn = user.function("model_fn", ["features", "labels"])
        golden_fn = user.function("golden_fn", ["step", "rng"], optional=True)
        assert input_fn is not None and model_fn is not None
        given = user.run("input_fn()", input_fn)
        if not isinstance(given, tuple) or len(given) != 2:
            raise TfaotError(
                f"{path}: input_fn() returned {type(given).__name__}",
                exists=repr(given)[:200],
                do="return the pair (features, labels), each a placeholder or a nest of placeholders",
            )
        placeholders = [_placeholder(path, leaf) for leaf in tf.nest.flatten(given)]

        def crossing(tensor: Any, label: str) -> Edge:
            shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
            return Edge(tensor.name, label, tensor.dtype.as_datatype_enum, shape, user.place(tensor.op.traceback))

        # Before model_fn may stumble over them.
        allowed = dtypes.crossing(edge)
        inputs = tuple(crossing(tensor, tensor.op.name) for tensor in placeholders)
        _check_edges(path, "input", inputs, allowed, "set every dimension in input_fn()")
        returned = user.run("model_fn(features, labels)", model_fn, *given)
        outputs = _outputs(path, returned)

    edges = tuple(crossing(tensor, label) for label, tensor in outputs)
    _check_edges(path, "output", edges, allowed, "give it a shape that TensorFlow can infer, or call set_shape on it")
    pruned = graphs.prune(
        graph.as_graph_def(), [tensor.op.name for _, tensor in outputs], [tensor.op.name for tensor in placeholders]
    )
    if old := [node.name for node in pruned.node if node.op in ("Variable", "VariableV2")]:
        places = [user.place(graph.get_operation_by_name(name).traceback) for name in old]
        raise TfaotError(
            f"{path}: {len(old)} variable(s) are no resource variables, which alone can be compiled",
            exists=listed([f"{name} at {place}" if place else name for name, place in zip(old, places, strict=True)]),
            do="leave out use_resource=False, and tf.compat.v1.disable_resource_variables()",
        )
    graphs.name_variables(pruned)
    variables = graphs.variable_uses(pruned)
    _check_variables(path, variables, allowed)
    return Built(
        graph=pruned,
        inputs=inputs,
        outputs=edges,
        variables=variables,
        initial=_initial_values(user, graph, variables),
        steps=_golden_inputs(user, golden_fn, given, inputs, steps),
        sources=_sources(user, graph, pruned),
    )


def _placeholder(path: str, leaf: Any) -> Any:
    if not tf.is_tensor(leaf) or leaf.op.type != "Placeholder":
        found = f"{leaf.name!r}, the result of a {leaf.op.type}" if tf.is_tensor(leaf) else repr(leaf)[:200]
        raise TfaotError(
            f"{path}: input_fn() returned something else than a placeholder",
            exists=found,
            do="make each input with tf.compat.v1.placeholder(dtype, shape, name)",
        )
    return leaf


def _outputs(path: str, returned: Any) -> list[tuple[str, Any]]:
    """Names what `model_fn` returned: dict keys and fields by themselves, a lone tensor `loss`."""
    operations = [leaf for leaf in tf.nest.flatten(returned) if isinstance(leaf, tf.Operation)]
    leaves = [
        (keys, leaf) for keys, leaf in _flatten_with_keys(returned) if leaf is not None and leaf not in operations
    ]
    if not leaves or not all(tf.is_tensor(leaf) or isinstance(leaf, tf.Variable) for _, leaf in leaves):
        raise TfaotError(
            f"{path}: model_fn(features, labels) returned {type(returned).__name__}",
            exists=repr(returned)[:200],
            do="return the loss as a tensor, or a dict, tuple, or named tuple of tensors; let it depend on the train op",
        )
    outputs: list[tuple[str, Any]] = []
    seen: set[str] = set()
    for keys, leaf in leaves:
        tensor = tf.convert_to_tensor(leaf)
        # A fetch must be a node of its own: no feed, no second fetch of the same tensor, and after every operation.
        if operations or tensor.op.type == "Placeholder" or tensor.name in seen or leaf is not tensor:
            with tf.control_dependencies(operations):
                tensor = tf.identity(tensor)
        seen.add(tensor.name)
        label = "/".join(keys) if keys else "loss" if len(leaves) == 1 else tensor.op.name
        outputs.append((label, tensor))
    return outputs


def _flatten_with_keys(nest: Any, keys: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(nest, dict):
        return [pair for key in sorted(nest) for pair in _flatten_with_keys(nest[key], (*keys, str(key)))]
    if hasattr(nest, "_fields"):
        return [pair for key in nest._fields for pair in _flatten_with_keys(getattr(nest, key), (*keys, key))]
    if isinstance(nest, (tuple, list)):
        below = [_flatten_with_keys(item, (*keys, str(index)) if keys else ()) for index, item in enumerate(nest)]
        return [pair for pairs in below for pair in pairs]
    return [(keys, nest)]


def _check_edges(path: str, kind: str, edges: Sequence[Edge], allowed: Mapping[int, dtypes.DType], how: str) -> None:
    def at(edge: Edge) -> str:
        return f"{edge.label} {edge.shape if edge.shape is not None else '(unknown rank)'}" + (
            f" at {edge.source}" if edge.source else ""
        )

    unknown = [edge for edge in edges if edge.shape is None or None in edge.shape]
    if unknown:
        raise TfaotError(
            f"{path}: {len(unknown)} {kind}(s) have dimensions that are not known before running",
            exists="; ".join(at(edge) for edge in unknown),
            do=f"{how}: the compiler needs all of them",
        )
    refused = [edge for edge in edges if edge.dtype not in allowed]
    if refused:
        raise TfaotError(
            f"{path}: {len(refused)} {kind}(s) have a dtype that cannot cross a compiled model's edge",
            exists="; ".join(f"{at(edge)} is {graphs.dtype_name(edge.dtype)}" for edge in refused),
            do="cast to one of " + ", ".join(dtype.name for dtype in allowed.values()) + _NOT_IN_CPP,
        )


_NOT_IN_CPP = "; bfloat16, float16, complex64, and complex128 are for tf_aot_hlo, which stops before C++"


def _check_variables(path: str, uses: Sequence[graphs.VariableUse], allowed: Mapping[int, dtypes.DType]) -> None:
    for use in uses:
        if use.shape is None or min(use.shape, default=0) < 0:
            raise TfaotError(
                f"{path}: the variable {use.shared_name} has a shape that is not known before running",
                exists=str(use.shape),
                do="create it with a fixed shape",
            )
        if use.dtype not in allowed:
            raise TfaotError(
                f"{path}: the variable {use.shared_name} is {graphs.dtype_name(use.dtype)}, "
                "which cannot cross a compiled model's edge",
                do="use one of "
                + ", ".join(dtype.name for dtype in allowed.values())
                + ", and cast where it is read"
                + _NOT_IN_CPP,
            )


def _initial_values(user: UserCode, graph: tf.Graph, uses: Sequence[graphs.VariableUse]) -> dict[str, Array]:
    with graph.as_default():
        known = {
            variable.handle.op.name: variable
            for variable in (*v1.global_variables(), *v1.local_variables())
            if hasattr(variable, "handle")
        }
        if missing := [use.shared_name for use in uses if use.node not in known]:
            raise TfaotError(
                f"{user.path}: {len(missing)} variable(s) have no initial value in the graph",
                exists=listed(missing),
                do="create them while model_fn runs, in the global or local variables' collection",
            )
        wanted = [known[use.node] for use in uses]
        with v1.Session(graph=graph, config=session_config()) as session:
            user.run("initializing its variables", session.run, v1.variables_initializer(list(known.values())))
            values = session.run([variable.read_value() for variable in wanted])
    return {use.shared_name: np.asarray(value) for use, value in zip(uses, values, strict=True)}


def _golden_inputs(
    user: UserCode, golden_fn: Callable[..., Any] | None, given: Any, inputs: Sequence[Edge], steps: int
) -> tuple[tuple[Array, ...], ...]:
    """Makes inputs for every step: the user's, or normal floats, and zeros and ones for integers."""
    rng = np.random.default_rng(SEED)
    result = []
    for step in range(steps):
        if golden_fn is None:
            values = [_default_input(rng, edge) for edge in inputs]
        else:
            nest = user.run("golden_fn(step, rng)", golden_fn, step, rng)
            try:
                tf.nest.assert_same_structure(given, nest)
            except (ValueError, TypeError) as error:
                raise TfaotError(
                    f"{user.path}: golden_fn(step, rng) returned another structure than input_fn()",
                    details=str(error),
                    do="return NumPy arrays in the same nest as input_fn() returns placeholders",
                ) from None
            values = tf.nest.flatten(nest)
        checked = []
        for edge, value in zip(inputs, values, strict=True):
            dtype = dtypes.BY_ENUM[edge.dtype].numpy()
            array = np.asarray(value)
            if array.shape != edge.shape or not np.can_cast(array.dtype, dtype, "same_kind"):
                raise TfaotError(
                    f"{user.path}: golden_fn(step, rng) returned {array.dtype}{list(array.shape)} for {edge.label}",
                    exists=f"the placeholder is {dtype}{list(edge.shape or ())}",
                    do="return an array of the placeholder's dtype and shape",
                )
            checked.append(np.ascontiguousarray(array.astype(dtype)).reshape(array.shape))
        result.append(tuple(checked))
    return tuple(result)


def _default_input(rng: np.random.Generator, edge: Edge) -> Array:
    dtype = dtypes.BY_ENUM[edge.dtype]
    assert edge.shape is not None
    shape = tuple(size or 0 for size in edge.shape)
    if dtype.name.startswith("complex"):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype.numpy())
    if dtype.floating:
        return rng.standard_normal(shape).astype(dtype.numpy())
    return rng.integers(0, 2, shape).astype(dtype.numpy())


def _sources(user: UserCode, graph: tf.Graph, pruned: graph_pb2.GraphDef) -> dict[str, str]:
    """Where in the user's code each kept node was made."""
    kept = {node.name for node in pruned.node}
    places = {op.name: user.place(op.traceback) for op in graph.get_operations() if op.name in kept}
    for function in pruned.library.function:
        name = function.signature.name
        body = getattr(graph._get_function(name), "graph", None)
        if body is None:
            continue
        names = {node.name for node in function.node_def}
        places |= {f"{name}/{op.name}": user.place(op.traceback) for op in body.get_operations() if op.name in names}
    return {name: place for name, place in places.items() if place}
