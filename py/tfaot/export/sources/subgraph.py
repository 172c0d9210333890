"""Extracts a function from a finished graph, with feeds and fetches at any of its tensors."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.core import caller, refusals
from tfaot.core.errors import TfaotError, listed
from tfaot.export.sources import tables
from tfaot.export.sources.ref_variables import to_resources
from tfaot.export.traced import Dims, Edge, Function, Shape
from tfaot.graph.attributes import dtype_shown, shape_of, shape_proto
from tfaot.graph.names import canonical, take, tensor_name
from tfaot.graph.prune import prune, reached
from tfaot.graph.wellformed import is_tensor_name, problems, unreadable_operands

PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
"""Ops whose value can come from outside."""


@dataclasses.dataclass(frozen=True)
class Feed:
    """A tensor whose value comes from outside."""

    tensor: str
    """`node:port`."""
    label: str
    dtype: int = types_pb2.DT_INVALID
    """`tensorflow.DataType`, or DT_INVALID for the graph's dtype."""
    shape: Shape | None = None
    """Overrides the graph's shape. None for the graph's shape."""


@dataclasses.dataclass(frozen=True)
class Fetch:
    """A tensor to compute, or an operation to run before any tensor is ready."""

    tensor: str
    """`node:port`, or `node` for its first output, or for the operation itself if it has no output."""
    label: str
    dtype: int = types_pb2.DT_INVALID
    """`tensorflow.DataType` if known. It must match the graph's."""


def function_of_graph(
    graph: graph_pb2.GraphDef,
    feeds: Sequence[Feed],
    fetches: Sequence[Fetch],
    *,
    name: str,
    what: str,
    dims: Dims,
    sources: Mapping[str, str],
    files: Mapping[str, str] | None = None,
) -> Function:
    """Extracts the nodes that the fetches need, given the feeds.

    A fed tensor becomes a Placeholder, whatever computed it. Nodes that nothing else needs are dropped. TensorFlow 1
    variables become resource variables.

    Args:
      graph: doesn't change. Its variables have names (`ref_variables.name_variables`).
      feeds: the inputs.
      fetches: the outputs, and operations that must also run.
      name: the entry point's name.
      what: the model, for messages.
      dims: fixes the inputs' unknown dimensions.
      sources: `file:line` by node name.
      files: paths of files that fill tables, by tensor.

    Raises:
      TfaotError: a tensor doesn't exist, is fed twice, or has another dtype than specified; a needed tensor isn't fed; the
        graph is invalid; or dimensions don't fit.
    """
    _check(graph, feeds, fetches, what)
    feeds = _with_types(graph, feeds, what, sources)
    inputs = dims.fix(what, [Edge(f.tensor, f.label, f.dtype, f.shape, _place(sources, f.tensor)) for f in feeds])
    work = prune(graph, _nodes_of(feeds, fetches))
    check_form(work, what)
    inputs, fed = _feed(work, inputs, [fetch.tensor for fetch in fetches])

    used = {node.name for node in work.node}
    effects, tensors = _found(imported(work, what, sources), fetches, fed, what)
    placeholders = {tensor_name(edge.name)[0] for edge in inputs}
    outputs = _add_outputs(work, tensors, effects, placeholders, used, sources)
    if not tensors:
        outputs.append(add_done(work, effects, used))

    cut = prune(work, [tensor_name(edge.name)[0] for edge in outputs], placeholders)
    if unfed := [n.name for n in cut.node if n.op in ("Placeholder", "PlaceholderV2") and n.name not in placeholders]:
        raise TfaotError(
            f"{what}: the outputs need {len(unfed)} placeholder(s) that aren't inputs",
            exists=listed([f"{n} at {sources[n]}" if n in sources else n for n in unfed])
            + f"; the inputs are {listed([feed.label for feed in feeds])}",
            do="make them inputs too, or name other outputs",
        )
    to_resources(cut, what=what)
    for node in cut.node:
        # tfcompile substitutes inputs for placeholders, but not for placeholders that are only waited for.
        for waited in [taken for taken in node.input if taken.startswith("^") and taken[1:] in placeholders]:
            node.input.remove(waited)
    filled = tables.fill_all(cut, graph, files or {}, what)
    resources = {table: table + (f" at {sources[table]}" if table in sources else "") for table in filled}
    return Function(name, cut, inputs, tuple(outputs), _kept(sources, cut), resources)


def check_operands(graph: graph_pb2.GraphDef, what: str) -> None:
    """Checks that all operands of a graph's nodes have the form of one.

    Raises:
      TfaotError: the graph's file was changed or damaged.
    """
    if wrong := unreadable_operands(graph):
        raise _contradiction(wrong, what)


def check_form(graph: graph_pb2.GraphDef, what: str) -> None:
    """Checks what TensorFlow doesn't check before it runs a graph.

    Raises:
      TfaotError: the graph's file was changed or damaged.
    """
    if wrong := problems(graph):
        raise _contradiction(wrong, what)


def _contradiction(wrong: Sequence[str], what: str) -> TfaotError:
    return TfaotError(
        f"{what}: the graph contradicts itself",
        exists=listed(wrong, limit=5),
        do="write the file again with TensorFlow; no version of it writes such a graph",
    )


def _found(
    typed: tf.Graph, fetches: Sequence[Fetch], fed: Mapping[str, str], what: str
) -> tuple[list[str], list[tuple[Fetch, tf.Tensor]]]:
    """Finds what is fetched: control inputs that wait for operations, and tensors.

    Args:
      typed: the graph, with dtypes.
      fetches: all of them.
      fed: the tensor that now stands for a fed one, by that.
      what: the model, for messages.

    Raises:
      TfaotError: there is no such tensor, or it has another dtype than is said.
    """
    effects: list[str] = []
    tensors: list[tuple[Fetch, tf.Tensor]] = []
    for fetch in fetches:
        node, port = tensor_name(fed.get(canonical(fetch.tensor), fetch.tensor))
        operation = typed.get_operation_by_name(node)
        if not operation.outputs:
            effects.append(f"^{node}")
            continue
        if port >= len(operation.outputs):
            raise TfaotError(
                f"{what}: the output {fetch.label} is {fetch.tensor}, which isn't in the graph",
                exists=f"{node} ({operation.type}) has {len(operation.outputs)} output(s)",
                do=f"name {node}:0 to {node}:{len(operation.outputs) - 1}",
            )
        tensor = operation.outputs[port]
        if fetch.dtype not in (types_pb2.DT_INVALID, tensor.dtype.base_dtype.as_datatype_enum):
            raise TfaotError(
                f"{what}: the output {fetch.label} has the wrong dtype {dtype_shown(fetch.dtype)}",
                exists=f"{fetch.tensor} is {tensor.dtype.base_dtype.name} in the graph",
                do="use the graph's dtype, or remove the dtype",
            )
        tensors.append((fetch, tensor))
    return effects, tensors


def _add_outputs(
    graph: graph_pb2.GraphDef,
    tensors: Sequence[tuple[Fetch, tf.Tensor]],
    effects: Sequence[str],
    placeholders: Collection[str],
    used: set[str],
    sources: Mapping[str, str],
) -> list[Edge]:
    """Gives each output a separate node that runs after all effects: an Identity if the tensor's own node isn't suitable."""
    outputs: list[Edge] = []
    seen = set(placeholders)
    for fetch, tensor in tensors:
        dtype = tensor.dtype.base_dtype
        fetched = tensor.op.name
        # A tensor whose dtype is not its base is a reference.
        if effects or tensor.value_index != 0 or fetched in seen or tensor.dtype != dtype:
            fetched = unused_name(fetch.label, used)
            identity = graph.node.add(name=fetched, op="Identity", input=[operand(tensor.name), *effects])
            identity.attr["T"].type = dtype.as_datatype_enum
        seen.add(fetched)
        shape = shape_of(tensor.shape)
        outputs.append(Edge(f"{fetched}:0", fetch.label, dtype.as_datatype_enum, shape, _place(sources, tensor.name)))
    return outputs


def imported(graph: graph_pb2.GraphDef, what: str, sources: Mapping[str, str] | None = None) -> tf.Graph:
    """Imports the graph into TensorFlow, which infers dtypes and shapes.

    Args:
      graph: doesn't change.
      what: the model, for messages.
      sources: `file:line` by node name, for messages.

    Raises:
      TfaotError: TensorFlow rejects the graph.
    """
    result = tf.Graph()
    try:
        with result.as_default():
            tf.import_graph_def(graph, name="")
    except (ValueError, tf.errors.OpError) as error:
        raise TfaotError(
            f"{what}: TensorFlow {tf.__version__} rejects this graph",
            details="\n".join([str(error), *refusals.mentioned(str(error), sources or {})]),
            do="fix the node that it names; if it doesn't know an op, remove it from what the outputs need; "
            f"if shapes don't fit, check {caller.option('dims')} or the config",
        ) from None
    return result


def operand(tensor: str) -> str:
    """Formats a tensor as a node's input. A GraphDef omits port 0."""
    return tensor.removesuffix(":0")


def unused_name(label: str, used: set[str]) -> str:
    """Makes a node name from a label: legal in TensorFlow, unique, and added to `used`."""
    base = "".join(c if c.isascii() and (c.isalnum() or c in "_./-") else "_" for c in label)
    if not base or not (base[0].isalnum() or base[0] == "."):
        base = "t" + base
    return take(base, used)


def add_done(graph: graph_pb2.GraphDef, effects: Sequence[str], used: set[str]) -> Edge:
    """Adds the output of a function that returns nothing: a bool that is ready after its side effects.

    Args:
      graph: changed in place.
      effects: control inputs, `^node`.
      used: names of the graph's nodes. The new ones are added.
    """
    constant = graph.node.add(name=unused_name("done", used), op="Const", input=effects)
    constant.attr["dtype"].type = types_pb2.DT_BOOL
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(True))
    # tfcompile drops control inputs of constants, but keeps those of an Identity.
    done = graph.node.add(name=unused_name("done", used), op="Identity", input=[constant.name, *effects])
    done.attr["T"].type = types_pb2.DT_BOOL
    return Edge(f"{done.name}:0", "done", types_pb2.DT_BOOL, ())


def add_placeholder(graph: graph_pb2.GraphDef, name: str, dtype: int, shape: Shape | None) -> None:
    """Adds an input."""
    _to_placeholder(graph.node.add(name=name), dtype, shape)


def _to_placeholder(node: node_def_pb2.NodeDef, dtype: int, shape: Shape | None) -> None:
    name = node.name
    node.Clear()
    node.name, node.op = name, "Placeholder"
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(shape_proto(shape))


def _nodes_of(feeds: Sequence[Feed], fetches: Sequence[Fetch]) -> list[str]:
    items: list[Feed | Fetch] = [*feeds, *fetches]
    return [tensor_name(item.tensor)[0] for item in items]


def _place(sources: Mapping[str, str], tensor: str) -> str:
    return sources.get(tensor_name(tensor)[0], "")


def _kept(sources: Mapping[str, str], graph: graph_pb2.GraphDef) -> dict[str, str]:
    """Returns the entries of nodes that are left."""
    names = {node.name for node in graph.node}
    names |= {f"{f.signature.name}/{node.name}" for f in graph.library.function for node in f.node_def}
    return {name: place for name, place in sources.items() if name in names}


def _check(graph: graph_pb2.GraphDef, feeds: Sequence[Feed], fetches: Sequence[Fetch], what: str) -> None:
    """Checks that everything that is named exists and is fed only once."""
    check_operands(graph, what)
    names = {node.name for node in graph.node}
    items: list[tuple[str, Feed | Fetch]] = [*(("input", f) for f in feeds), *(("output", f) for f in fetches)]
    if unreadable := [(kind, item) for kind, item in items if not is_tensor_name(item.tensor)]:
        raise TfaotError(
            f"{what}: " + listed([f"the {kind} {item.tensor!r} isn't a tensor's name" for kind, item in unreadable]),
            exists=f"{len(names)} nodes",
            do="name nodes of the graph, or node:output",
        )
    if missing := [(kind, item) for kind, item in items if tensor_name(item.tensor)[0] not in names]:
        wanted = {name.rpartition("/")[2].lower() for name in (tensor_name(i.tensor)[0] for _, i in missing)}
        near = [name for name in sorted(names) if name.rpartition("/")[2].lower() in wanted]
        similar = near or [node.name for node in graph.node if node.op in PLACEHOLDERS]
        raise TfaotError(
            f"{what}: the graph doesn't have " + listed([f"the {kind} {item.tensor}" for kind, item in missing]),
            exists=f"{len(names)} nodes, among them {listed(similar)}" if similar else f"{len(names)} nodes",
            do="name nodes of the graph, or node:output",
        )
    if twice := [tensor for tensor, count in Counter(canonical(feed.tensor) for feed in feeds).items() if count > 1]:
        raise TfaotError(
            f"{what}: {listed(twice)} is fed more than once",
            exists=listed([f"{feed.label} is {feed.tensor}" for feed in feeds if canonical(feed.tensor) in twice]),
            do="name each input once",
        )
    needed = reached({node.name: node for node in graph.node}, _nodes_of(feeds, fetches))
    if torn := [
        f"{node.name} takes {taken}"
        for node in graph.node
        if node.name in needed
        for taken in node.input
        if tensor_name(taken)[0] not in names
    ]:
        raise TfaotError(
            f"{what}: the graph is incomplete",
            exists=listed(torn),
            do="save the whole graph: tf.compat.v1.graph_util.extract_sub_graph keeps what the outputs need",
        )


def _with_types(graph: graph_pb2.GraphDef, feeds: Sequence[Feed], what: str, sources: Mapping[str, str]) -> list[Feed]:
    """Fills in missing dtypes and shapes.

    Raises:
      TfaotError: a specified dtype isn't the graph's.
    """
    typed = imported(prune(graph, [tensor_name(feed.tensor)[0] for feed in feeds]), what, sources)
    result = []
    for feed in feeds:
        node, port = tensor_name(feed.tensor)
        outputs = typed.get_operation_by_name(node).outputs
        if port >= len(outputs):
            raise TfaotError(
                f"{what}: the input {feed.label} is {feed.tensor}, which isn't in the graph",
                exists=f"{node} ({typed.get_operation_by_name(node).type}) has {len(outputs)} output(s)",
                do="feed a tensor, node:output",
            )
        dtype = outputs[port].dtype.base_dtype
        if feed.dtype not in (types_pb2.DT_INVALID, dtype.as_datatype_enum):
            raise TfaotError(
                f"{what}: the input {feed.label} has the wrong dtype {dtype_shown(feed.dtype)}",
                exists=f"{feed.tensor} is {dtype.name} in the graph",
                do="use the graph's dtype, or remove the dtype",
            )
        shape = feed.shape
        if shape is None and outputs[port].shape.rank is not None:
            shape = tuple(outputs[port].shape.as_list())
        result.append(dataclasses.replace(feed, dtype=dtype.as_datatype_enum, shape=shape))
    return result


def _feed(
    graph: graph_pb2.GraphDef, inputs: Sequence[Edge], fetches: Sequence[str]
) -> tuple[tuple[Edge, ...], dict[str, str]]:
    """Replaces each fed tensor with a placeholder.

    Args:
      graph: changed in place.
      inputs: their names are the fed tensors.
      fetches: what else is needed from the graph.

    Returns:
      The inputs under the placeholders' names, and these names by the fed tensors.
    """
    fed: dict[str, str] = {}
    nodes = {node.name: node for node in graph.node}
    used = set(nodes)
    tensors = {canonical(edge.name) for edge in inputs}
    needed = {
        tensor_name(taken)[0]
        for taken in (*fetches, *(taken for node in graph.node for taken in node.input))
        if taken.startswith("^") or canonical(taken) not in tensors
    }
    for edge in inputs:
        name, port = tensor_name(edge.name)
        node = nodes[name]
        # A control input waits for the node, which a feed doesn't stop. A placeholder stands for the value.
        if port == 0 and (node.op in PLACEHOLDERS or name not in needed):
            _to_placeholder(node, edge.dtype, edge.shape)
            fed[canonical(edge.name)] = f"{name}:0"
        else:
            new = unused_name(f"{name}/fed_{port}", used)
            add_placeholder(graph, new, edge.dtype, edge.shape)
            fed[canonical(edge.name)] = f"{new}:0"
    for node in graph.node:
        for index, taken in enumerate(node.input):
            if not taken.startswith("^") and canonical(taken) in fed:
                node.input[index] = operand(fed[canonical(taken)])
    return tuple(dataclasses.replace(edge, name=fed[canonical(edge.name)]) for edge in inputs), fed
