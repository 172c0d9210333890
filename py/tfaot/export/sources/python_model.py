"""Models as Python objects: a function, a `tf.function`, a `tf.Module`, or a Keras model, found in the user's file.

The file's `model` is the object, or a function without parameters that returns it. An entry point is the object itself,
one of its methods, or a function in the file. Its signature comes from the first of these that is present: the target's
`signature`, its own `input_signature` or Keras inputs, or the file's `input_fn()`.
"""

from __future__ import annotations

import collections
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tfaot.core import caller, dtypes
from tfaot.core.errors import TfaotError, listed
from tfaot.export.sources import golden_inputs, keras_masks
from tfaot.export.sources.functions import VariableNames, check_dense, function_of, leaves_of
from tfaot.export.sources.user_code import UserCode, seed_everything
from tfaot.export.sources.xla_context import xla_context
from tfaot.export.traced import Array, Dims, Edge, Function, shown
from tfaot.graph.attributes import shape_of

_CALL = "call"
"""The entry point that is the object itself."""

_FILE_FUNCTIONS = frozenset({"golden_fn", "input_fn", "model"})
"""Functions in a file that the rules call, which aren't entry points by default."""


class PythonSource:
    """A model's Python file that defines no `model_fn`."""

    def __init__(self, path: str, *, signature: Mapping[str, str] | None = None, replicas: int = 0) -> None:
        """Runs the file.

        Args:
          path: relative to the working directory.
          signature: the target's specs for parameters of its entry points: `float32[64, None]` by parameter.
          replicas: how many replicas a strategy has; 0 if the target doesn't say.

        Raises:
          TfaotError: the user's code raised an exception, or a signature is invalid.
        """
        self._signature = {name: parse_spec(name, text) for name, text in (signature or {}).items()}
        seed_everything()
        with xla_context():
            self._user = UserCode(path, replicas)
            self._root = self._find_root()
            held = {key: value for key, value in vars(self._user.module).items() if not key.startswith("__")}
            self._names = VariableNames(self._root, held)

    @property
    def entry_points(self) -> tuple[str, ...]:
        """The object itself, its methods, and functions in the file: `tf.function`s, and those that the file defines."""
        names = [_CALL] if callable(self._root) else []
        if _is_keras(self._root):
            names += ["train_step", "test_step"]
        if self._root is not None and not inspect.isroutine(self._root) and not _is_tf_function(self._root):
            names += [
                key for key in dir(self._root) if self._is_offered(key, inspect.getattr_static(self._root, key, None))
            ]
        called_by_us = _FILE_FUNCTIONS if self._root is not None else ()
        for key, value in vars(self._user.module).items():
            if value is not self._root and key not in called_by_us and self._is_offered(key, value):
                names.append(key)
        return tuple(dict.fromkeys(names))

    def _is_offered(self, key: str, value: Any) -> bool:
        """Returns whether a message lists it among the entry points."""
        mine = inspect.isfunction(value) and value.__module__ == self._user.module.__name__
        return not key.startswith("_") and (mine or _is_tf_function(value))

    @property
    def default_entry_point(self) -> str:
        """The object itself."""
        return _CALL

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Traces one entry point; see `traced.Source`."""
        path = self._user.path
        with xla_context():
            called, argument = self._find(entry_point)
            with keras_masks.watched(self._user.lost_mask):
                concrete = self._user.run(
                    f"tracing {entry_point}", lambda: self._concrete(called, argument, entry_point, dims)
                )
            self._names.look()
            function = function_of(concrete, name=entry_point, names=self._names, place=self._user.place)
        named = [edge.label for edge in function.inputs if edge.label in self._signature]
        if concrete is called and named:
            takes = [f"{edge.label} {dtypes.BY_ENUM[edge.dtype].name}{shown(edge.shape)}" for edge in function.inputs]
            raise TfaotError(
                f"{path}: {caller.option('signature')} names {listed(named)} of {entry_point}, which is a ConcreteFunction",
                exists=listed(takes),
                do=f"remove {caller.option('signature')}, because the function is already traced; use "
                f"{caller.option('dims')} to fix dimensions that it leaves open",
            )
        # A function that was traced before can leave dimensions open.
        return dataclasses.replace(function, inputs=dims.fix(path, function.inputs))

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """Returns the variables' values after the file ran; see `traced.Source`."""
        return self._names.values(names)

    def golden(
        self, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
    ) -> Sequence[Array] | None:
        """Returns the flattened result of the file's `golden_fn(step, rng)` or `golden_fn(step, rng, entry_point)`."""
        if getattr(self._user.module, "golden_fn", None) is None:
            return None
        return golden_inputs.called(self._user, entry_point, inputs, step, rng)

    def _find_root(self) -> Any:
        root = getattr(self._user.module, "model", None)
        if root is not None and (
            (inspect.isfunction(root) and not _parameters(root))
            or (inspect.isclass(root) and _misfit(root, (), {}) is None)
        ):
            root = self._user.run("model()", root)
            if root is None or tf.is_tensor(root) or isinstance(root, (Mapping, list, tuple)):
                raise TfaotError(
                    f"{self._user.path}: model() returned {'None' if root is None else type(root).__name__}",
                    do="return a Keras model, a tf.Module, a tf.function, or a function; if you want to compile model() "
                    "itself, decorate it with @tf.function",
                )
        return root

    def _find(self, entry_point: str) -> tuple[Any, Any]:
        """Returns an entry point's callable, and its own nest of specs or None."""
        root, module = self._root, self._user.module
        if entry_point == _CALL and root is not None:
            if _is_keras(root):
                return _keras_call(root)
            if callable(root):
                own = inspect.getattr_static(root, "__call__", None)
                return (root.__call__ if _is_tf_function(own) else root), None
        if _is_keras(root) and entry_point in ("train_step", "test_step"):
            return _keras_step(root, entry_point, self._user.path), None
        for owner in (root, module):
            value = self._user.run(f"looking up {entry_point}", _attribute, owner, entry_point)
            if value is not None and callable(value) and not inspect.isclass(value):
                return _keras_call(value) if _is_keras(value) else (value, None)
        raise TfaotError(
            f"{self._user.path} has no entry point {entry_point!r}"
            if entry_point != _CALL or root is not None
            else f"{self._user.path} defines neither model_fn(features, labels) nor model",
            exists=listed(self.entry_points),
            do=f"name one of these in {caller.the('entry_points')}, or define model: a function, a tf.function, "
            "a tf.Module, a Keras model, or a function without parameters that returns one",
        )

    def _concrete(self, called: Any, argument: Any, entry_point: str, dims: Dims) -> Any:
        if hasattr(called, "structured_input_signature"):
            return called  # a ConcreteFunction
        args, kwargs = self._specs(called, argument, entry_point)
        autograph = getattr(called, "_autograph", not _is_ours(called))
        if any(_is_plain(leaf) for leaf in tf.nest.flatten(args)):
            called, args = _over_records(_python_function(called), args), _recorded(args)
        elif getattr(called, "input_signature", None) is not None:
            called = called.python_function  # otherwise, TensorFlow would trace its own signature
        if not _is_tf_function(called):
            called = tf.function(called, autograph=autograph)
        labelled = _labelled(called, args, kwargs)
        check_dense(labelled, entry_point)
        specs = [self._signature.get(label, spec) for label, spec in labelled]
        edges = [
            Edge("", label, spec.dtype.as_datatype_enum, shape_of(spec.shape))
            for (label, _), spec in zip(labelled, specs, strict=True)
        ]
        fixed = iter(zip(dims.fix(self._user.path, edges), specs, strict=True))

        def fix(own: tf.TensorSpec) -> tf.TensorSpec:
            edge, spec = next(fixed)
            return tf.TensorSpec(edge.shape, spec.dtype, own.name)

        args, kwargs = tf.nest.map_structure(fix, (args, kwargs))
        return called.get_concrete_function(*args, **kwargs)

    def _specs(self, called: Any, argument: Any, entry_point: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns positional and keyword specs for an entry point, with changes from the target's signature."""
        parameters = _parameters(called)
        mine = {name: spec for name, spec in self._signature.items() if name in parameters or "**" in parameters}
        if mine and _misfit(called, (), mine) is None:
            return (), mine
        if argument is not None:
            return (argument,), {}
        own = getattr(called, "input_signature", None)
        if own is not None:
            return tuple(own), {}
        asked = f"{entry_point}({', '.join(parameters)})"
        if getattr(self._user.module, "input_fn", None) is None:
            if _misfit(called, (), {}) is None:
                return (), {}
            raise TfaotError(
                f"{self._user.path}: the inputs of {entry_point} aren't specified",
                exists=asked + (f", and a signature of {listed(list(self._signature))}" if self._signature else ""),
                do=f"set its input_signature, or {caller.its('signature', {'x': 'float32[64, 3]'})}, or define an input_fn() "
                "that returns a tf.TensorSpec for each parameter",
            )
        nest = tf.nest.map_structure(_as_spec, self._user.call_with("input_fn", [], entry_point))
        args = nest if isinstance(nest, tuple) and not hasattr(nest, "_fields") else (nest,)
        if wrong := [leaf for leaf in leaves_of(args) if not isinstance(leaf.value, tf.TensorSpec)]:
            raise TfaotError(
                f"{self._user.path}: input_fn() returned something other than a tf.TensorSpec",
                exists=listed([repr(leaf.value)[:80] for leaf in wrong]),
                do="return a tf.TensorSpec for each input, in the nest in which the function takes them",
            )
        if misfit := _misfit(called, args, {}):
            raise TfaotError(
                f"{self._user.path}: input_fn() returned {len(args)} argument(s) for {entry_point}: {misfit}",
                exists=asked,
                do="return a tuple with one item for each parameter, or the item itself if there is only one; if input_fn "
                "takes a parameter entry_point, it gets the entry point's name",
            )
        return args, {}


def parse_spec(name: str, text: str) -> tf.TensorSpec:
    """Parses `float32[64, None, 3]`, or `int32` for a scalar.

    Raises:
      TfaotError: the text is neither.
    """
    match = re.fullmatch(r"\s*(\w+)\s*(?:\[([^\]]*)\])?\s*", text)
    try:
        if match is None:
            raise ValueError("no dtype and shape")
        sizes = [part.strip() for part in (match[2] or "").split(",") if part.strip()]
        return tf.TensorSpec(
            [None if size in ("None", "?") else int(size) for size in sizes], tf.as_dtype(match[1]), name
        )
    except (TypeError, ValueError) as error:
        raise TfaotError(
            f"signature says {text!r} for {name}: {error}",
            do='write a dtype and a shape, for example "float32[64, None, 3]"',
        ) from None


def _as_spec(leaf: Any) -> Any:
    """Returns the spec of a tensor or an array, and anything else as it is."""
    if isinstance(leaf, (tf.TypeSpec, tf.__internal__.CompositeTensor)):
        return leaf
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return tf.TensorSpec(leaf.shape, leaf.dtype)
    return leaf


def _attribute(owner: Any, path: str) -> Any:
    """Returns what a dotted path leads to, or None."""
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def _labelled(called: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, tf.TensorSpec]]:
    """Returns each spec with the label that `functions.function_of` will give it."""
    parameters = [name for name in _parameters(called) if not name.startswith("*")]
    parameters += [f"args_{index}" for index in range(len(parameters), len(args))]
    leaves = [
        leaf
        for name, nest in (*zip(parameters, args, strict=False), *sorted(kwargs.items()))
        for leaf in leaves_of(nest, (name,))
    ]
    lone = len({leaf.keys[0] for leaf in leaves}) == 1 and len(leaves[0].keys) > 1 if leaves else False
    return [("/".join(leaf.keys[1:] if lone else leaf.keys), leaf.value) for leaf in leaves]


def _over_records(function: Any, args: tuple[Any, ...]) -> Any:
    """Wraps a function to take named tuples instead of plain dataclasses, which TensorFlow doesn't look into."""
    unrecorded = tf.autograph.experimental.do_not_convert(_unrecorded)

    def run(*positional: Any, **named: Any) -> Any:
        return function(*unrecorded(args, positional[: len(args)]), *positional[len(args) :], **named)

    run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return run


def _is_plain(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "__tf_flatten__")


def _recorded(nest: Any) -> Any:
    """Returns the nest with a named tuple for each plain dataclass."""

    def record(leaf: Any) -> Any:
        if not _is_plain(leaf):
            return leaf
        fields = [field.name for field in dataclasses.fields(leaf)]
        kind: Any = collections.namedtuple(type(leaf).__name__, fields)  # type: ignore[misc]
        return kind(*(_recorded(getattr(leaf, name)) for name in fields))

    return tf.nest.map_structure(record, nest)


def _unrecorded(nest: Any, recorded: Any) -> Any:
    """Returns the nest with the leaves of `_recorded`'s result for it, or for a similar nest."""
    leaves = iter(tf.nest.flatten(recorded))

    def fill(nest: Any) -> Any:
        return tf.nest.map_structure(leaf_of, nest)

    def leaf_of(leaf: Any) -> Any:
        if not _is_plain(leaf):
            return next(leaves)
        return dataclasses.replace(leaf, **{f.name: fill(getattr(leaf, f.name)) for f in dataclasses.fields(leaf)})

    return fill(nest)


def _python_function(called: Any) -> Any:
    """Returns the function inside a `tf.function`, or the callable itself."""
    return getattr(called, "python_function", called)


def _parameters(called: Any) -> list[str]:
    """Returns the names of a function's parameters. Variadic parameters are `*` and `**`."""
    try:
        parameters = inspect.signature(_python_function(called)).parameters
    except (TypeError, ValueError):
        return ["**"]
    stars: dict[Any, str] = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    return [stars.get(p.kind, name) for name, p in parameters.items()]


def _misfit(called: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Returns why a function can't be called with these arguments, or None. None also if it isn't a Python function."""
    try:
        inspect.signature(_python_function(called)).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    except ValueError:
        return None
    return None


def _is_tf_function(value: Any) -> bool:
    return hasattr(value, "get_concrete_function") or hasattr(value, "structured_input_signature")


def _is_ours(called: Any) -> bool:
    """Returns whether this is our own function around Keras, which must not go through AutoGraph."""
    return getattr(called, "__module__", "") == __name__


def _is_keras(value: Any) -> bool:
    """Returns whether this is a Keras 3 or tf-keras model or layer."""
    for name in ("keras", "tf_keras"):
        layers = getattr(sys.modules.get(name), "layers", None)
        if layers is not None and isinstance(value, layers.Layer):
            return True
    return False


def _keras_call(model: Any) -> tuple[Callable[..., Any], Any]:
    """Returns inference, and the specs that a functional or built model takes, under the names of its inputs."""
    nest = _keras_inputs(model)
    if nest is None:  # subclassed: nothing specifies its inputs

        def run(inputs: Any) -> Any:
            return model(inputs, training=False)

        return run, None
    tensors = tf.nest.flatten(nest)
    fields = [re.sub(r"\W", "_", _input_name(tensor)) for tensor in tensors]
    specs = [
        tf.TensorSpec(tensor.shape, tf.as_dtype(tensor.dtype), field)
        for tensor, field in zip(tensors, fields, strict=True)
    ]
    record: Any = collections.namedtuple("Inputs", fields, rename=True)  # type: ignore[misc]

    def run_named(inputs: Any) -> Any:
        return model(tf.nest.pack_sequence_as(nest, list(inputs)), training=False)

    return run_named, record(*specs)


def _keras_inputs(model: Any) -> Any:
    """Returns the nest of symbolic tensors that a functional or sequential model takes, or None."""
    try:
        return model.input
    except (AttributeError, ValueError):
        inputs = getattr(model, "inputs", None)
        return inputs[0] if inputs and len(inputs) == 1 else inputs or None


def _input_name(tensor: Any) -> str:
    """Returns the input layer's name, as in `model.summary()`. An unnamed Keras 3 tensor is `keras_tensor_7`."""
    layer = getattr(getattr(tensor, "_keras_history", None), "operation", None)
    return str(getattr(layer, "name", None) or tensor.name.partition(":")[0])


def _keras_step(model: Any, name: str, path: str) -> Callable[..., Any]:
    """Returns `train_step` or `test_step` of a compiled model, as a function of its data."""
    own = getattr(type(model), name, None)
    if own is None:
        raise TfaotError(
            f"{path}: {name} needs a model, but {type(model).__name__} is a layer",
            do="put it in a keras.Sequential or a keras.Model, and compile that",
        )
    compiled = getattr(model, "compiled", None) or getattr(model, "_is_compiled", False)
    # A step that the user wrote might not need it.
    if not compiled and own.__module__.partition(".")[0] in ("keras", "tf_keras"):
        raise TfaotError(
            f"{path}: {name} needs a compiled Keras model", do="call model.compile(optimizer=…, loss=…) in the file"
        )
    step = getattr(model, name)

    def run(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        data = (x,) if y is None else (x, y) if sample_weight is None else (x, y, sample_weight)
        return step(data)

    return cast("Callable[..., Any]", run)
