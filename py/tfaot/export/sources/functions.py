"""Turns a ConcreteFunction into a graph with feeds and fetches, and names the variables that it captures."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import inspect
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.core import caller, knowledge
from tfaot.core.errors import TfaotError
from tfaot.core.user_code import MODULE
from tfaot.export.rewrites.freeze import LIMIT
from tfaot.export.sources import tables
from tfaot.export.sources.inline import inlined
from tfaot.export.sources.subgraph import add_done, unused_name
from tfaot.export.traced import Array, Edge, Function
from tfaot.graph.attributes import shape_of
from tfaot.graph.names import take

Place = Callable[[Iterable[Any]], str]
"""Maps a traceback's frames to `file:line` in the user's code, or to an empty string."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One value in a nest, with the name that a user would give it."""

    keys: tuple[str, ...]
    value: Any


def leaves_of(nest: Any, keys: tuple[str, ...] = ()) -> list[Leaf]:
    """Flattens a nest in TensorFlow's order (dicts by sorted key), with the keys, fields, and indices on the path."""
    if isinstance(nest, Mapping):
        return [leaf for key in sorted(nest) for leaf in leaves_of(nest[key], (*keys, str(key)))]
    if hasattr(nest, "_fields"):
        return [leaf for key in nest._fields for leaf in leaves_of(getattr(nest, key), (*keys, key))]
    if isinstance(nest, (tuple, list)):
        return [leaf for index, item in enumerate(nest) for leaf in leaves_of(item, (*keys, str(index)))]
    if hasattr(nest, "__tf_flatten__") and not isinstance(nest, type):
        # A class that itself defines its components and their order.
        names = {id(value): name for name, value in vars(nest).items()} if hasattr(nest, "__dict__") else {}
        return [
            leaf
            for index, item in enumerate(nest.__tf_flatten__()[1])
            for leaf in leaves_of(item, (*keys, names.get(id(item), str(index))))
        ]
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        return [
            leaf
            for field in dataclasses.fields(nest)
            for leaf in leaves_of(getattr(nest, field.name), (*keys, field.name))
        ]
    return [Leaf(keys, nest)]


class VariableNames:
    """The variables' names: the same in every function of a model, and all different.

    Keras 3 has paths for its variables. TensorFlow names the others, and doesn't care whether names differ. Variables that
    share a name are told apart by their location in the object that owns them, as in a checkpoint, or else by a number.
    """

    def __init__(self, root: Any = None, others: Mapping[str, Any] | None = None) -> None:
        """`root` is the object that owns the variables, if any. `others` own more variables, under their names."""
        self._root = root
        self._others = dict(others or {})
        self._by_handle: dict[int, tuple[str, Any]] = {}
        self._taken: set[str] = set()
        self.look()

    def look(self) -> None:
        """Names the objects' current variables, since more may have been created."""
        self._add_all(_held_by([("", self._root), *self._others.items()]))

    def names_of(self, variables: Sequence[Any]) -> list[str]:
        """Returns the variables' names. Ask for all at once, because naming new ones walks over all live objects."""
        self._add_all([(variable, "") for variable in variables if id(variable.handle) not in self._by_handle])
        return [self._by_handle[id(variable.handle)][0] for variable in variables]

    def values(self, names: Iterable[str]) -> dict[str, Array]:
        """Returns the variables' current values by name. Doesn't copy them, as `Variable.numpy()` would."""
        held = dict(self._by_handle.values())
        read = {name: held[name].read_value() for name in names}
        # NumPy can't convert a bfloat16 scalar this way.
        return {name: np.asarray(value if value.shape.rank else value.numpy()) for name, value in read.items()}

    def _add_all(self, variables: Sequence[tuple[Any, str]]) -> None:
        keras = _keras_paths() if variables else {}
        plain = [keras.get(id(variable.handle)) or variable.name.partition(":")[0] for variable, _ in variables]
        count = Counter(plain)
        for (variable, path), name in zip(variables, plain, strict=True):
            if id(variable.handle) in self._by_handle:
                continue
            candidate = path if path and (count[name] > 1 or not name) else name or "variable"
            self._by_handle[id(variable.handle)] = (take(candidate, self._taken), variable)


def _held_by(roots: Iterable[tuple[str, Any]]) -> list[tuple[Any, str]]:
    """Returns the variables that objects own, each with its shortest path, nearest first."""
    variables: list[tuple[Any, str]] = []
    seen: set[int] = set()
    queue = deque(roots)
    while queue:
        path, item = queue.popleft()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, tf.Variable):
            variables.append((item, path))
            continue
        prefix = f"{path}/" if path else ""
        queue += ((prefix + name.strip("_"), child) for name, child in _children(item))
    return variables


def _children(item: Any) -> Iterator[tuple[str, Any]]:
    """Yields an object's children with names: items of containers, tracked objects, and what a function closes over.

    Includes objects of the user's own classes.
    """
    if isinstance(item, Mapping):
        yield from ((str(key), value) for key, value in item.items())
    elif isinstance(item, (list, tuple)):
        yield from ((str(index), value) for index, value in enumerate(item))
    elif inspect.isfunction(item) or inspect.ismethod(item):
        function = inspect.unwrap(item)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # still empty
                yield name, cell.cell_contents
    elif hasattr(item, "python_function"):  # a tf.function
        yield from _children(item.python_function)
    elif isinstance(item, tf.__internal__.tracking.Trackable):
        yield from item._trackable_children().items()
    elif type(item).__module__ == MODULE:
        yield from vars(item).items()


def _keras_paths() -> dict[int, str]:
    """Returns the paths of all live Keras 3 variables, by the handle of the TensorFlow variable inside."""
    if "keras" not in sys.modules:
        return {}
    kind = getattr(sys.modules["keras"], "Variable", None)
    if not isinstance(kind, type):
        return {}
    return {
        id(item.value.handle): item.path
        for item in gc.get_objects()
        if issubclass(type(item), kind) and getattr(item, "_value", None) is not None
    }


def function_of(concrete: Any, *, name: str, names: VariableNames, place: Place = lambda frames: "") -> Function:
    """Turns a ConcreteFunction into a self-contained graph.

    Captured variables become VarHandleOps, and other captures become constants. Every output gets an Identity that waits for
    the function's side effects, because an assignment isn't an ancestor of the returned values.

    Args:
      concrete: traced by TensorFlow, or loaded from a SavedModel. The model that owns its variables must be alive.
      name: the entry point's name.
      names: names of the variables, shared by all functions of the model.
      place: finds lines in the user's code.

    Raises:
      TfaotError: it takes or returns anything but dense tensors.
    """
    graph = concrete.graph.as_graph_def()
    nodes = {node.name: node for node in graph.node}
    captured = list(concrete.captured_inputs)
    arguments = list(concrete.inputs[: len(concrete.inputs) - len(captured)])
    resources = _bind_captures(graph, nodes, concrete, captured, names, name, place)
    inputs = tuple(
        Edge(
            tensor.name, label, tensor.dtype.as_datatype_enum, shape_of(tensor.shape), place(tensor.op.traceback or ())
        )
        for label, tensor in zip(_input_labels(concrete, arguments, name), arguments, strict=True)
    )
    outputs = _outputs(graph, nodes, concrete, name, place)
    sources = sources_of(concrete.graph, graph, place)
    edges = [edge.name.partition(":")[0] for edge in (*inputs, *outputs)]
    return Function(name, inlined(graph, [*edges, *resources]), inputs, outputs, sources, resources)


def _bind_captures(
    graph: graph_pb2.GraphDef,
    nodes: Mapping[str, node_def_pb2.NodeDef],
    concrete: Any,
    captured: Sequence[Any],
    names: VariableNames,
    name: str,
    place: Place,
) -> dict[str, str]:
    """Replaces the placeholders of captures, which are the last inputs, in place. Returns resources; see `Function`."""
    variables = {id(variable.handle): variable for variable in concrete.graph.variables}
    resources = [value for value in captured if value.dtype == tf.resource]
    if unnoted := [handle for handle in resources if id(handle) not in variables]:
        variables |= _holders(unnoted)
    used = [variables[id(handle)] for handle in resources if id(handle) in variables]
    shared_names = dict(zip(map(id, used), names.names_of(used), strict=True))
    inside = concrete.inputs[len(concrete.inputs) - len(captured) :]
    strange: list[tuple[Any, Any]] = []
    constants = [value for value in captured if value.dtype not in (tf.resource, tf.variant)]
    size = sum(value.shape.num_elements() * value.dtype.size for value in constants)
    if size > LIMIT:
        raise TfaotError(
            f"{name}: the function captures {size:,} bytes of constants, which exceeds a GraphDef's limit",
            exists=f"{LIMIT:,} bytes at most",
            do=f"keep large values in variables, and feed these with {caller.setting('frozen', [])}",
        )
    for tensor, value in zip(inside, captured, strict=True):
        node = nodes[tensor.op.name]
        if value.dtype == tf.resource:
            variable = variables.get(id(value))
            if variable is None:
                strange.append((tensor, value))
                continue
            node.Clear()
            node.name, node.op = tensor.op.name, "VarHandleOp"
            node.attr["dtype"].type = variable.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
            node.attr["shared_name"].s = shared_names[id(variable)].encode()
        elif value.dtype == tf.variant:
            strange.append((tensor, value))
        else:
            node.Clear()
            node.name, node.op = tensor.op.name, "Const"
            node.attr["dtype"].type = value.dtype.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value.numpy(), dtype=value.dtype))
    handles: dict[str, str] = {}
    for tensor, value in strange:
        contents = tables.exported(value, graph) if value.dtype == tf.resource else None
        if contents is not None:
            tables.fill(graph, nodes[tensor.op.name], contents)
        line = place(tensor.op.traceback or ())
        handles[tensor.op.name] = tensor.op.name + (f" at {line}" if line else "")
    return handles


def _holders(handles: Sequence[Any]) -> dict[int, Any]:
    """Finds variables whose handles were used directly, which TensorFlow doesn't record, by the handles' ids."""
    wanted = set(map(id, handles))
    variables = (item for item in gc.get_objects() if issubclass(type(item), tf.Variable))
    return {id(item.handle): item for item in reversed(list(variables)) if id(item.handle) in wanted}


def _input_labels(concrete: Any, arguments: Sequence[Any], name: str) -> list[str]:
    """Returns a label for each argument: its parameter, then keys and indices. A single parameter is omitted."""
    positional, keywords = concrete.structured_input_signature
    parameters = list(concrete.function_type.parameters)
    nests = [*zip(parameters, positional, strict=False), *sorted(keywords.items())]
    leaves = [leaf for parameter, nest in nests for leaf in leaves_of(nest, (parameter,)) if _is_type(leaf.value)]
    check_dense([("/".join(leaf.keys), leaf.value) for leaf in leaves], name)
    if len(leaves) != len(arguments):  # loaded from a file that describes fewer arguments than it takes
        return [tensor.op.name for tensor in arguments]
    lone = len({leaf.keys[0] for leaf in leaves}) == 1 and len(leaves[0].keys) > 1 if leaves else False
    return ["/".join(leaf.keys[1:] if lone else leaf.keys) for leaf in leaves]


def check_dense(inputs: Iterable[tuple[str, Any]], name: str) -> None:
    """Checks that inputs are dense tensors, because compiled code takes no others.

    Args:
      inputs: labels and type specs.
      name: the entry point's name.

    Raises:
      TfaotError: some inputs aren't dense tensors.
      TfaotError: some are something else.
    """
    if strange := [(label, spec) for label, spec in inputs if not isinstance(spec, tf.TensorSpec)]:
        raise TfaotError(
            f"{name}: {len(strange)} input(s) aren't dense tensors",
            exists="; ".join(f"{label} is a {type(spec).__name__}" for label, spec in strange),
            do=_advice(knowledge.composite_input, (spec for _, spec in strange)),
        )


def _advice(of: Callable[[str], str], values: Iterable[Any]) -> str:
    return "; ".join(dict.fromkeys(of(type(value).__name__) for value in values))


def _is_type(value: Any) -> bool:
    return isinstance(value, tf.TypeSpec)


def _is_composite(value: Any) -> bool:
    """Returns whether a value consists of several tensors, or is a type of such values: ragged, sparse, a TensorArray."""
    if isinstance(value, tf.TypeSpec):
        return not isinstance(value, tf.TensorSpec)
    return isinstance(value, (tf.__internal__.CompositeTensor, tf.TensorArray)) and not isinstance(value, tf.Variable)


def _outputs(
    graph: graph_pb2.GraphDef, nodes: Mapping[str, node_def_pb2.NodeDef], concrete: Any, name: str, place: Place
) -> tuple[Edge, ...]:
    structure = concrete.structured_outputs
    leaves = [
        leaf for leaf in leaves_of(structure) if leaf.value is not None and not isinstance(leaf.value, tf.Operation)
    ]
    tensors = list(concrete.outputs)
    if strange := [leaf for leaf in leaves if _is_composite(leaf.value)]:
        raise TfaotError(
            f"{name}: {len(strange)} output(s) aren't dense tensors",
            exists="; ".join(f"{output_label(leaf.keys)} is a {type(leaf.value).__name__}" for leaf in strange),
            do=_advice(knowledge.composite_output, (leaf.value for leaf in strange)),
        )
    if any(not (tf.is_tensor(leaf.value) or isinstance(leaf.value, tf.TensorSpec)) for leaf in leaves) or len(
        leaves
    ) != len(tensors):
        leaves = [Leaf((str(index),), tensor) for index, tensor in enumerate(tensors)]
    # TensorFlow gets them from a set, whose order differs between runs. Here they are in the graph's order.
    controls = {operation.name for operation in concrete.graph.control_outputs}
    effects = [f"^{name}" for name in nodes if name in controls]
    if not tensors:
        # A function that only writes still needs a fetch.
        if not effects:
            raise TfaotError(f"{name}: the function returns nothing and writes nothing", do="return a tensor")
        return (add_done(graph, effects, set(nodes)),)
    edges = []
    used = set(nodes)
    for leaf, tensor in zip(leaves, tensors, strict=True):
        label = output_label(leaf.keys)
        node_name = unused_name(label, used)
        node = graph.node.add(name=node_name, op="Identity")
        node.input.append(tensor.name)
        node.input.extend(effects)
        node.attr["T"].type = tensor.dtype.as_datatype_enum
        shape = shape_of(tensor.shape)
        edges.append(Edge(f"{node_name}:0", label, tensor.dtype.as_datatype_enum, shape, _made_at(tensor, place)))
    return tuple(edges)


def _made_at(tensor: Any, place: Place) -> str:
    """Returns the line that made an output, skipping the identities that TensorFlow adds around returned values."""
    operation = tensor.op
    while not (line := place(operation.traceback or ())) and operation.type == "Identity":
        operation = operation.inputs[0].op
    return line


def output_label(keys: Sequence[str]) -> str:
    """Returns the label of an output: `output` for a single tensor, `output_0`, … for a tuple, else its keys and fields."""
    if not keys:
        return "output"
    label = "/".join(keys)
    return "output_" + label if keys[0].isdigit() else label


def sources_of(graph: Any, kept: graph_pb2.GraphDef, place: Place) -> dict[str, str]:
    """Returns where in the user's code each node was made, in a graph and in the functions that it calls.

    Args:
      graph: a `tf.Graph` or FuncGraph that still has its operations' tracebacks.
      kept: the GraphDef made from it. Only its nodes are looked up.
      place: finds lines in the user's code.
    """
    names = {node.name for node in kept.node}
    places = {op.name: place(op.traceback or ()) for op in graph.get_operations() if op.name in names}
    for function in kept.library.function:
        name = function.signature.name
        try:
            body = getattr(graph._get_function(name), "graph", None)
        except (ValueError, KeyError):
            body = None
        if body is None or not hasattr(body, "get_operations"):
            continue
        inside = {node.name for node in function.node_def}
        places |= {f"{name}/{op.name}": place(op.traceback or ()) for op in body.get_operations() if op.name in inside}
    return {name: line for name, line in places.items() if line}
