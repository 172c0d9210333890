"""Lookup tables that functions capture, as nodes that fill them. TensorFlow runs these nodes; the compiler can't.

A function's graph has the contents of its tables, as it has the values of other captured tensors. Whatever uses a table's handle
waits until the table is filled. Only the first run fills it, and later runs see that it is full.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from tfaot.core.errors import TfaotError
from tfaot.export.traced import Array
from tfaot.graph.names import producer, take
from tfaot.graph.prune import prune

TABLES = frozenset(
    {
        "AnonymousHashTable",
        "HashTableV2",
        "MutableDenseHashTableV2",
        "MutableHashTableOfTensorsV2",
        "MutableHashTableV2",
    }
)
"""Ops that make a table."""

_FILLS = frozenset({"InitializeTableFromTextFileV2", "InitializeTableV2", "LookupTableImportV2"})
_READS = frozenset({"LookupTableExportV2", "LookupTableFindV2", "LookupTableSizeV2"})


@dataclasses.dataclass(frozen=True)
class Contents:
    """A table's keys, in increasing order, and their values."""

    keys: Array
    values: Array

    @staticmethod
    def of(keys: Array, values: Array) -> Contents | None:
        """Returns a table's contents from what TensorFlow exports, in any order; None if a key has a tensor of values."""
        if keys.ndim != 1 or values.ndim != 1:
            return None
        order = sorted(range(len(keys)), key=keys.__getitem__)
        return Contents(keys[order], values[order])


def exported(handle: object, graph: graph_pb2.GraphDef) -> Contents | None:
    """Returns the contents of a table that is in memory.

    Args:
      handle: the table's handle, or that of another resource.
      graph: what uses it.

    Returns:
      None if it isn't a table, or the graph could change it.
    """
    lookups = [node for node in _nodes(graph) if node.op.startswith("LookupTable")]
    if any(node.op not in _READS for node in lookups):
        return None
    dtypes = [(node.attr["Tin"].type, node.attr["Tout"].type) for node in lookups if node.op == "LookupTableFindV2"]
    for keys, values in dict.fromkeys(dtypes):
        with tf.init_scope():
            try:
                # TensorFlow dies of an export of other dtypes, and refuses a lookup.
                none, default = tf.zeros([0], keys), tf.zeros([], values)
                tf.raw_ops.LookupTableFindV2(table_handle=handle, keys=none, default_value=default)
            except tf.errors.OpError:
                continue
            made = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=keys, Tvalues=values)
            return Contents.of(made.keys.numpy(), made.values.numpy())
    return None


def fill_all(graph: graph_pb2.GraphDef, whole: graph_pb2.GraphDef, files: Mapping[str, str], what: str) -> list[str]:
    """Turns the tables of TensorFlow 1 into tables that are filled, in place.

    Args:
      graph: what a run needs.
      whole: also has the operations that fill its tables, which a session runs before.
      files: paths, by the tensors that stand for them.
      what: the model, for messages.

    Returns:
      The nodes of all tables, also of those that stay as they are, because nothing fills them, or they can change.

    Raises:
      TfaotError: TensorFlow can't fill one of them.
    """
    tables = [node for node in graph.node if node.op in TABLES]
    for table in tables:
        fills = [node for node in whole.node if node.op in _FILLS and producer(node.input[0]) == table.name]
        if table.op == "HashTableV2" and len(fills) == 1:
            work = prune(whole, [fills[0].name])
            names = {node.name for node in work.node}
            feeds = {tensor: path for tensor, path in files.items() if producer(tensor) in names}
            contents = _run(
                work, table, table.name, fills[0].name, feeds, f"{what}: TensorFlow can't fill the table {table.name}"
            )
            if contents is not None:
                fill(graph, table, contents)
    return [table.name for table in tables]


def saved(
    library: Mapping[str, function_pb2.FunctionDef],
    creator: str,
    initializer: str,
    captures: Iterable[node_def_pb2.NodeDef | None],
    what: str,
) -> Contents | None:
    """Returns the contents of a table in a SavedModel, which its own functions create and fill.

    Args:
      library: the SavedModel's functions.
      creator: the function that creates the table.
      initializer: the function that fills it.
      captures: the initializer's arguments: constants, and None for the table's handle.
      what: the table, for messages.

    Returns:
      None if it isn't a table that is filled this way, and never again.

    Raises:
      TfaotError: TensorFlow can't fill it.
    """
    tables = [node for node in library[creator].node_def if node.op in ("AnonymousHashTable", "HashTableV2")]
    if len(tables) != 1:
        return None
    graph = graph_pb2.GraphDef(library=function_pb2.FunctionDefLibrary(function=library.values()))
    _call(graph, "table", library[creator], [])
    operands = []
    for number, capture in enumerate(captures):
        operands.append("table" if capture is None else f"capture_{number}")
        if capture is not None:
            graph.node.add().CopyFrom(capture)
            graph.node[-1].name = operands[-1]
    _call(graph, "fill", library[initializer], operands)
    return _run(graph, tables[0], "table", "fill", {}, f"TensorFlow can't fill the table {what}")


def _run(
    graph: graph_pb2.GraphDef,
    table: node_def_pb2.NodeDef,
    handle: str,
    filling: str,
    feeds: Mapping[str, str],
    asked: str,
) -> Contents | None:
    """Returns the contents of a table, by its node and that of its handle, after a node has filled it."""
    contents = graph.node.add(name="tfaot_contents", op="LookupTableExportV2", input=[handle, f"^{filling}"])
    contents.attr["Tkeys"].type, contents.attr["Tvalues"].type = (
        table.attr["key_dtype"].type,
        table.attr["value_dtype"].type,
    )
    with tf.Graph().as_default() as imported, tf.compat.v1.Session(graph=imported) as session:
        tf.import_graph_def(graph, name="")
        try:
            return Contents.of(*session.run(["tfaot_contents:0", "tfaot_contents:1"], dict(feeds)))
        except tf.errors.OpError as error:
            raise TfaotError(
                asked,
                details="\n".join(error.message.strip().splitlines()[-2:]),  # without frames of this file
                do="check the files that it is made from; save the model again, with its assets/",
            ) from None


def fill(graph: graph_pb2.GraphDef, node: node_def_pb2.NodeDef, contents: Contents) -> None:
    """Turns a node into the handle of a table that has been filled, in place. The graph gets more nodes."""
    taken = {other.name for other in graph.node}
    names = {part: take(f"{node.name}/{part}", taken) for part in ("table", "keys", "values", "fill")}
    dtypes = [tf.as_dtype(part.dtype) for part in (contents.keys, contents.values)]
    # Programs share tables of one name. With this one, they have the same contents.
    identity = hashlib.sha256(repr((dtypes, contents.keys.tolist(), contents.values.tolist())).encode()).hexdigest()
    table = graph.node.add(name=names["table"], op="HashTableV2")
    table.attr["shared_name"].s = f"tfaot_{identity[:32]}".encode()
    filling = graph.node.add(
        name=names["fill"], op="InitializeTableV2", input=[names["table"], names["keys"], names["values"]]
    )
    for part, values, dtype in zip(("key", "value"), (contents.keys, contents.values), dtypes, strict=True):
        table.attr[f"{part}_dtype"].type = dtype.as_datatype_enum
        filling.attr[f"T{part[:3]}"].type = dtype.as_datatype_enum
        constant = graph.node.add(name=names[f"{part}s"], op="Const")
        constant.attr["dtype"].type = dtype.as_datatype_enum
        constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values, dtype))
    name = node.name
    node.Clear()
    node.name, node.op = name, "Identity"
    node.input.extend([names["table"], f"^{names['fill']}"])
    node.attr["T"].type = tf.resource.as_datatype_enum


def filled(graph: graph_pb2.GraphDef) -> frozenset[str]:
    """Returns the nodes of tables and of their contents."""
    nodes = {node.name: node for node in graph.node}
    tables = set[str]()
    for node in graph.node:
        if node.op == "InitializeTableV2":
            tables |= {node.name, *map(producer, node.input)}
    return frozenset(name for name in tables if name in nodes)


def words(graph: graph_pb2.GraphDef) -> list[bytes]:
    """Returns the strings that a graph looks up in tables, and one that it may not have; nothing without such tables."""
    nodes = {node.name: node for node in graph.node}
    keys_of = [tf.make_ndarray(nodes[name].attr["value"].tensor) for name in _keys(graph)]
    strings = [word for keys in keys_of if keys.dtype == object for word in keys.tolist()]
    return [*dict.fromkeys(strings), b"tfaot"] if strings else []


def _nodes(graph: graph_pb2.GraphDef) -> Iterator[node_def_pb2.NodeDef]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _keys(graph: graph_pb2.GraphDef) -> list[str]:
    """Returns the constants with the keys of tables."""
    nodes = {node.name: node for node in graph.node}
    keys = [producer(node.input[1]) for node in graph.node if node.op == "InitializeTableV2"]
    return [name for name in keys if nodes[name].op == "Const"]


def _call(graph: graph_pb2.GraphDef, name: str, function: function_pb2.FunctionDef, operands: list[str]) -> None:
    call = graph.node.add(name=name, op="StatefulPartitionedCall", input=operands)
    call.attr["f"].func.name = function.signature.name
    call.attr["Tin"].list.type.extend(arg.type for arg in function.signature.input_arg)
    call.attr["Tout"].list.type.extend(arg.type for arg in function.signature.output_arg)
