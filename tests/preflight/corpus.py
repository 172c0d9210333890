"""Small graphs of every op that TensorFlow registers, and what the compiler and the check say about each.

An instance is one op with its operands. Ops of `tests/breadth` come from its recipes, with every dtype that the op's definition
allows, and with each constant operand fed instead. Other ops come from their definitions: placeholders of several shapes, and
the first attributes with which TensorFlow accepts the node.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import linecache
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla import tf2xla_pb2
from tensorflow.core.framework import graph_pb2, node_def_pb2, op_def_pb2, types_pb2
from tensorflow.python.framework import op_def_registry

from tests.breadth import recipes
from tests.breadth.draw import Draw
from tfaot.compile import table
from tfaot.core import dtypes, isolate
from tfaot.core.errors import TfaotError
from tfaot.export import verdict
from tfaot.export.rewrites import edges, lists
from tfaot.export.traced import Edge, Function
from tfaot.graph.attributes import dtype_shown
from tfaot.graph.names import tensor_name
from tfaot.graph.prune import prune
from tfaot.graph.variables import name_variables, variable_uses
from tfaot.preflight import kernels
from tfaot.preflight.check import Checker
from tfaot.preflight.report import BLOCKER, EntryPoint
from tfaot.tfcompile.inputs import to_lower

TOGETHER = 30
"""How many instances that should compile share a graph."""

Built = tuple[list[Any], list[Any]]
"""Placeholders, and what the op returns: tensors, or operations without results."""


@dataclasses.dataclass(frozen=True)
class Instance:
    """One op with its operands."""

    op: str
    variant: str
    """Tells it apart from the op's other instances."""
    build: Callable[[str], Built]
    """Adds it to the default graph under a prefix. Raises any exception if TensorFlow doesn't accept it."""
    others: tuple[Instance, ...] = ()
    """What else to try if the compiler doesn't accept its operands, which TensorFlow didn't check."""

    @property
    def text(self) -> str:
        """Names the instance."""
        return f"{self.op} ({self.variant})"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the compiler and the check say about one instance."""

    op: str
    variant: str
    refused: str
    """The compiler's message; empty if it compiles."""
    blockers: tuple[tuple[str, str], ...]
    """Kind and op of each blocker that the check finds."""

    @property
    def agree(self) -> bool:
        """Whether both give the same answer."""
        return bool(self.refused) == bool(self.blockers)


def function(instances: Sequence[Instance]) -> tuple[Function, list[str]]:
    """Builds one graph of instances.

    Raises:
      Exception: of any type, if TensorFlow doesn't accept one of them.
    """
    graph = tf.Graph()
    inputs, outputs = [], []
    with graph.as_default():
        for index, instance in enumerate(instances):
            feeds, results = instance.build(f"c{index}")
            inputs += feeds
            tensors = [result for result in results if isinstance(result, tf.Tensor)]
            nodes = [result if isinstance(result, tf.Operation) else result.op for result in results]
            waits = [node for node in nodes if node.type != "Placeholder"]
            kept = [tensor for tensor in tensors if tensor.dtype.as_datatype_enum in dtypes.BY_ENUM]
            with tf.control_dependencies(waits):
                outputs += [tf.identity(tensor, name=f"c{index}_result") for tensor in kept]
                if not kept:
                    outputs.append(tf.identity(tf.constant(True), name=f"c{index}_done"))
    proto = graph.as_graph_def()
    name_variables(proto)
    edge = lambda t: Edge(  # noqa: E731
        t.name, t.op.name, t.dtype.as_datatype_enum, tuple(t.shape.as_list()) if t.shape.rank is not None else None
    )
    made = Function("Run", proto, tuple(map(edge, inputs)), tuple(map(edge, outputs)))
    return made, [tensor.op.name for tensor in inputs]


def compiled(made: Function) -> str:
    """Runs tfcompile on a function. Returns its message, or nothing if it compiles."""
    graph = prune(
        made.graph, [tensor_name(e.name)[0] for e in made.outputs], [tensor_name(e.name)[0] for e in made.inputs]
    )
    name_variables(graph)
    reached = {node.name for node in graph.node}
    try:
        lists.check(graph, {}, "the graph")  # tfcompile accepts what grows, and loses values
    except TfaotError as error:
        return str(error)
    graph, feeds, fetches = edges.stored(
        graph, [e for e in made.inputs if tensor_name(e.name)[0] in reached], made.outputs
    )
    config = tf2xla_pb2.Config()
    nodes = {node.name: node for node in graph.node}
    for index, feed in enumerate(feeds):
        entry = config.feed.add(name=f"i{index}")
        entry.id.node_name, entry.id.output_index = tensor_name(feed.name)
        node = nodes[entry.id.node_name]
        entry.type = node.attr["dtype"].type
        entry.shape.CopyFrom(node.attr["shape"].shape)
    for index, fetch in enumerate(fetches):
        entry = config.fetch.add(name=f"o{index}")
        entry.id.node_name, entry.id.output_index = tensor_name(fetch.name)
    for index, use in enumerate(variable_uses(graph)):
        variable = config.variable.add(
            node_name=use.shared_name, name=f"v{index}", type=use.dtype, readonly=not use.written
        )
        for size in use.shape or ():
            variable.shape.dim.add(size=size)
        variable.shape.SetInParent()
    if to_lower(graph):  # the compile stage writes these in other ops, whichever passes are on
        graph = table.apply(graph, config, ()).graph
    while True:
        message = _tfcompile(graph, config)
        wrong = [v for v in config.variable if f'Variable "{v.node_name}" is marked as not readonly' in message]
        if not wrong:
            return message
        wrong[0].readonly = True


def _tfcompile(graph: graph_pb2.GraphDef, config: tf2xla_pb2.Config) -> str:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        return verdict.complaint(folder, graph.SerializeToString(), config)


def _blockers(entry: EntryPoint) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({(finding.kind, finding.op) for finding in entry.of(BLOCKER)}))


def _checked(instances: Sequence[Instance]) -> list[tuple[tuple[str, str], ...] | None]:
    """Returns the blockers of each instance, or None if TensorFlow doesn't accept it."""
    verdicts: list[tuple[tuple[str, str], ...] | None] = []
    for instance in instances:
        try:
            made, _ = function([instance])
        except Exception:
            verdicts.append(None)
        else:
            verdicts.append(_blockers(Checker(made).entry_point()))
    return verdicts


def _compiled(instances: Sequence[Instance]) -> str:
    try:
        return isolate.run_isolated(lambda: compiled(function(instances)[0]), what="tfcompile")
    except (TfaotError, RuntimeError) as error:
        return f"died: {error}"


def answers(instances: Sequence[Instance]) -> Iterator[Answer]:
    """Yields an answer for each instance that TensorFlow accepts.

    Those that should compile share graphs, which are halved until those that don't are alone.
    """
    for group in _chunks(instances, 200):
        checked = isolate.run_isolated(lambda group=group: _checked(group), what="the check")
        accepted = [(i, blockers) for i, blockers in zip(group, checked, strict=True) if blockers is not None]
        good = [instance for instance, blockers in accepted if not blockers]
        bad = [(instance, blockers) for instance, blockers in accepted if blockers]
        for chunk in _chunks(good, TOGETHER):
            yield from _good(chunk)
        for many in _chunks(bad, 100):
            messages = _separately([instance for instance, _ in many])
            for (instance, blockers), message in zip(many, messages, strict=True):
                yield Answer(instance.op, instance.variant, message, blockers)


def _separately(instances: Sequence[Instance]) -> list[str]:
    """Compiles each instance by itself, in one child if none kills it."""
    try:
        return isolate.run_isolated(
            lambda: [compiled(function([instance])[0]) for instance in instances], what="tfcompile"
        )
    except (TfaotError, RuntimeError):
        if len(instances) == 1:
            return [_compiled(instances)]
        half = len(instances) // 2
        return [*_separately(instances[:half]), *_separately(instances[half:])]


def _good(instances: Sequence[Instance]) -> Iterator[Answer]:
    message = _compiled(instances)
    if message and len(instances) == 1:
        for other in instances[0].others:
            if isolate.run_isolated(lambda other=other: _checked([other]), what="the check") == [()] and not _compiled(
                [other]
            ):
                yield Answer(other.op, other.variant, "", ())
                return
    if not message or len(instances) == 1:
        for instance in instances:
            yield Answer(instance.op, instance.variant, message, ())
        return
    half = len(instances) // 2
    yield from _good(instances[:half])
    yield from _good(instances[half:])


def _chunks(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


# Instances from recipes.


class _Forced(Draw):
    """Draws an op's operands with one dtype, if the op's definition allows it."""

    def __init__(self, seed: Sequence[int], dtype: str) -> None:
        super().__init__(seed, special=False)
        self._forced = dtype

    def dtype(self, op: str, attribute: str = "T", among: Any = None) -> str:
        (allowed,) = [definition for definition in op_def_registry.get(op).attr if definition.name == attribute]
        limits = allowed.allowed_values.list.type
        if limits and dtypes.BY_NAME[self._forced].enum not in limits:
            raise LookupError(self._forced)
        return self._forced


class _Uses(Exception):
    """A recipe asks for a dtype."""


class _Asks(Draw):
    def dtype(self, op: str, attribute: str = "T", among: Any = None) -> str:
        raise _Uses


def _value(dtype: str, shape: Sequence[int], bits: str) -> Any:
    return np.frombuffer(bytes.fromhex(bits), dtypes.BY_NAME[dtype].numpy()).reshape(shape)


def _execute(source: str, names: dict[str, Any]) -> None:
    """Executes source that AutoGraph can read."""
    file = f"<case {zlib.crc32(source.encode())}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)


def recipe_build(recipe: recipes.Recipe, seed: Sequence[int], dtype: str, fed: int) -> Callable[[str], Built]:
    """Returns what builds a recipe's case for a seed, with a dtype if it isn't empty, and the operand `fed` fed if it isn't -1."""

    def build(prefix: str) -> Built:
        draw = _Forced(seed, dtype) if dtype else Draw(seed, special=False)
        expression = recipe.make(draw)
        names = {"tf": tf, "np": np, "value": _value}
        feeds, arguments = [], []
        with tf.name_scope(prefix):
            if draw.setup:
                _execute(draw.setup.replace("{n}", prefix), names)
            for index, operand in enumerate(draw.operands):
                if operand.fed or index == fed:
                    feed = tf.compat.v1.placeholder(operand.value.dtype, operand.value.shape, f"x{index}")
                    feeds.append(feed)
                    names[f"x{index}"] = feed
                else:
                    names[f"x{index}"] = tf.constant(operand.value)
                arguments.append(f"x{index}")
            result = eval(expression.format(*arguments, n=prefix), names)
        flat = [tensor for tensor in tf.nest.flatten(result, expand_composites=True) if tensor is not None]
        return feeds, flat

    return build


def of_recipes(ops: Sequence[str], *, seed: int = 0) -> Iterator[Instance]:
    """Yields instances of ops that have a recipe: of each dtype, and with each constant operand fed instead."""
    for op in ops:
        recipe = recipes.RECIPES[op]
        start = [seed, *op.encode()]
        try:
            recipe.make(_Asks(start))
            variants = [""]
        except _Uses:
            variants = [dtype.name for dtype in dtypes.ALL]
        except LookupError:
            variants = [""]
        for dtype in variants:
            draw = _Forced(start, dtype) if dtype else Draw(start, special=False)
            operands: Sequence[Any] = ()
            if dtype in ("", "float32"):
                with contextlib.suppress(Exception):
                    recipe.make(draw)
                    operands = draw.operands
            for fed in (-1, *(index for index, operand in enumerate(operands) if not operand.fed)):
                fed_text = f"operand {fed} fed" if fed >= 0 else ""
                variant = ", ".join(part for part in (dtype, fed_text, f"seed {seed}") if part)
                yield Instance(op, variant, recipe_build(recipe, start, dtype, fed))


# Instances from definitions.

_SHAPES: tuple[tuple[int, ...], ...] = ((), (4,), (4, 4), (1, 4, 4, 1), (1, 4, 4, 4, 1), (2, 3, 4), (1,), (2,), (0,))
_FIRST = (
    types_pb2.DT_FLOAT,
    types_pb2.DT_INT32,
    types_pb2.DT_INT64,
    types_pb2.DT_BOOL,
    types_pb2.DT_STRING,
    types_pb2.DT_COMPLEX64,
    types_pb2.DT_QUINT8,
)


def _attribute(node: node_def_pb2.NodeDef, attr: op_def_pb2.OpDef.AttrDef, function_name: str) -> None:
    """Gives an attribute without a default its first value."""
    value = node.attr[attr.name]
    allowed = attr.allowed_values.list
    least = max(1, attr.minimum)
    kind = attr.type
    first = next((t for t in _FIRST if not allowed.type or t in allowed.type), allowed.type[0] if allowed.type else 1)
    text = allowed.s[0] if allowed.s else b""
    if kind == "type":
        value.type = first
    elif kind == "list(type)":
        value.list.type.extend([first] * least)
    elif kind == "int":
        value.i = least
    elif kind == "list(int)":
        value.list.i.extend([1] * max(least, attr.minimum))
    elif kind == "float":
        value.f = 1.0
    elif kind == "list(float)":
        value.list.f.extend([1.0] * least)
    elif kind == "bool":
        value.b = False
    elif kind == "string":
        value.s = text
    elif kind == "list(string)":
        value.list.s.extend([text or b"a"] * least)
    elif kind == "shape":
        value.shape.SetInParent()
    elif kind == "list(shape)":
        for _ in range(least):
            value.list.shape.add()
    elif kind == "tensor":
        value.tensor.CopyFrom(tf.make_tensor_proto(1.0))
    elif kind == "func":
        value.func.name = function_name
    else:
        value.list.func.add(name=function_name)


def _definition_build(op: op_def_pb2.OpDef, shapes: Sequence[tuple[int, ...]], dtype: int) -> Callable[[str], Built]:
    def build(prefix: str) -> Built:
        function_name = _some_function() if any("func" in attr.type for attr in op.attr) else ""
        node = node_def_pb2.NodeDef(name=f"{prefix}/op", op=op.name)
        for attr in op.attr:
            if attr.HasField("default_value"):
                node.attr[attr.name].CopyFrom(attr.default_value)
            else:
                _attribute(node, attr, function_name)
        types = [attr for attr in op.attr if attr.type == "type"]
        if dtype and types:
            node.attr[types[0].name].type = dtype
        feeds, inputs = [], []
        position = itertools.count()
        for arg in op.input_arg:
            if arg.is_ref:
                raise LookupError("it takes references")
            if arg.type_list_attr:
                wanted = list(node.attr[arg.type_list_attr].list.type)
            else:
                one = node.attr[arg.type_attr].type if arg.type_attr else arg.type
                wanted = [one] * (node.attr[arg.number_attr].i if arg.number_attr else 1)
            group = []
            for enum in wanted:
                index = next(position)
                shape = shapes[index % len(shapes)]
                group.append(_operand(enum, shape, f"{prefix}/x{index}", feeds))
            many = bool(arg.type_list_attr or arg.number_attr)
            inputs.append(group if many else group[0])
        for taken in inputs:
            node.input.extend(
                tensor.name.removesuffix(":0") for tensor in (taken if isinstance(taken, list) else [taken])
            )
        flat = [tensor for taken in inputs for tensor in (taken if isinstance(taken, list) else [taken])]
        made = graph_pb2.GraphDef(node=[node])
        made.versions.producer = tf.version.GRAPH_DEF_VERSION
        (operation,) = tf.import_graph_def(
            made, {tensor.name: tensor for tensor in flat}, return_elements=[node.name], name=prefix + "_"
        )
        return feeds, list(operation.outputs) or [operation]

    return build


def _some_function() -> str:
    """Adds a function to the default graph, and returns its name."""

    @tf.function(autograph=False)
    def same(x: Any) -> Any:
        return tf.identity(x)

    made = same.get_concrete_function(tf.TensorSpec([], tf.float32))
    made.add_to_graph(tf.compat.v1.get_default_graph())
    name = made.name
    return name.decode() if isinstance(name, bytes) else str(name)


def _operand(enum: int, shape: tuple[int, ...], name: str, feeds: list[Any]) -> Any:
    if enum in dtypes.BY_ENUM:
        feed = tf.compat.v1.placeholder(tf.as_dtype(enum), shape, name)
        feeds.append(feed)
        return feed
    if enum == types_pb2.DT_RESOURCE:
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=shape, shared_name=name, name=name)
    if enum == types_pb2.DT_VARIANT:
        return tf.raw_ops.EmptyTensorList(
            element_shape=tf.constant([2]), max_num_elements=4, element_dtype=tf.float32, name=name
        )
    if enum == types_pb2.DT_STRING:
        return tf.constant("a", shape=shape, name=name)
    return tf.cast(tf.constant(1.0, shape=shape), tf.as_dtype(enum), name=name)


def candidates(name: str, dtype: int = 0) -> list[Instance]:
    """Returns instances of an op to try in order, with a dtype for its first attribute that is one."""
    op = op_def_registry.get(name)
    if op is None:
        return []
    count = len(op.input_arg)
    tries: list[Sequence[tuple[int, ...]]] = [(shape,) for shape in _SHAPES]
    if count > 1:
        tries += [(a, b) for a in _SHAPES[:5] for b in _SHAPES[:4] if a != b]
    if count > 2:
        tries += [(a, *[b] * (count - 1)) for a in _SHAPES[:5] for b in _SHAPES[:3] if a != b]
    shown = dtype_shown(dtype) + ", " if dtype else ""
    return [
        Instance(name, f"{shown}operands {list(operands)}", _definition_build(op, operands, dtype))
        for operands in tries
    ]


def of_definitions(ops: Sequence[str]) -> list[Instance]:
    """Returns an instance of each op that TensorFlow accepts, with the first operands that it accepts.

    Ops that the compiler has kernels for have an instance of each dtype.
    """
    wanted = [
        (op, dtype)
        for op in ops
        if op not in NOT_BY_DEFINITION
        for dtype in (*(_dtypes(op) if op in kernels.table() else ()), 0)
    ]
    instances: list[Instance] = []
    for group in _chunks(wanted, 100):
        for candidate, chosen in zip(group, _chosen(group), strict=True):
            if chosen:
                first, *others = (candidates(*candidate)[index] for index in chosen)
                instances.append(dataclasses.replace(first, others=tuple(others)))
    return instances


def _dtypes(name: str) -> list[int]:
    """Returns the dtypes of an op's first attribute that is one, but the first."""
    op = op_def_registry.get(name)
    attrs = [attr for attr in op.attr if attr.type == "type"] if op is not None else []
    if not attrs:
        return []
    allowed = list(attrs[0].allowed_values.list.type) or list(dtypes.BY_ENUM)
    return [dtype for dtype in allowed if dtype in dtypes.BY_ENUM]


def _chosen(wanted: Sequence[tuple[str, int]]) -> list[list[int]]:
    """Returns which candidates TensorFlow accepts. Some ops kill it when it infers their shapes; it accepts none of those."""

    def choose() -> list[list[int]]:
        return [
            accepted(candidates(*op_and_dtype), 5 if op_and_dtype[0] in kernels.table() else 1)
            for op_and_dtype in wanted
        ]

    try:
        return isolate.run_isolated(choose, what="TensorFlow")
    except (TfaotError, RuntimeError):
        if len(wanted) == 1:
            return [[]]
        half = len(wanted) // 2
        return [*_chosen(wanted[:half]), *_chosen(wanted[half:])]


def accepted(tries: Sequence[Instance], count: int) -> list[int]:
    """Returns the numbers of the first instances that TensorFlow accepts."""
    indices: list[int] = []
    for index, instance in enumerate(tries):
        if len(indices) == count:
            break
        with contextlib.suppress(Exception):
            function([instance])
            indices.append(index)
    return indices


_REASONS = {
    "it takes what a definition doesn't describe, such as a function of a certain signature, a module, or a handle": (
        "AssignVariableXlaConcatND ReadVariableXlaSplitND StackPopV2 StackPushV2 SymbolicGradient XlaCallModule XlaIf XlaReduce "
        "XlaScatter XlaSelectAndScatter XlaVariadicReduce XlaVariadicReduceV2 XlaWhile"
    ),
    "TensorFlow doesn't check its operands and attributes, and the first ones aren't valid": (
        "RngReadAndSkip RngSkip XlaDequantize XlaDynamicUpdateSlice XlaSort _ArrayToList _ListToArray _UnaryOpsComposition"
    ),
    "the compiler itself makes or replaces it": (
        "Enter Exit LoopCond Merge NextIteration Placeholder Switch _Arg _Retval _SwitchN _XlaAotOnlyVarHandleOp _XlaMerge"
    ),
}
NOT_BY_DEFINITION: Mapping[str, str] = {op: why for why, ops in _REASONS.items() for op in ops.split()}
"""Ops that aren't tried, since their definition isn't enough to make a valid node. `cases` has some of them."""


def every_op() -> list[str]:
    """Returns the names of all ops that TensorFlow registers."""
    from tensorflow.python.client import pywrap_tf_session

    data = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    return sorted(op.name for op in op_def_pb2.OpList.FromString(data).op)
