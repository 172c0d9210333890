"""Finds what makes a graph from a file impossible: operands that name nothing, and nodes that wait for themselves. Pure.

TensorFlow checks a graph's own nodes when it imports them, and the bodies of functions only when it runs them, if at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, types_pb2
from tensorflow.python.framework import dtypes

from tfaot.graph.names import producer
from tfaot.graph.ops import Library, definition

_GRAPH_OPERAND = re.compile(r"\^?[^:^]+|[^:^]+:\d{1,9}")
_FUNCTION_OPERAND = re.compile(r"\^?[^:^]+|[^:^]+:\d{1,9}|[^:^]+:[^:^]+:\d{1,9}")


LARGEST = 1 << 31
"""Bytes that no constant has, because a proto has fewer. A small proto can claim more, and repeats its last value."""

_DTYPES = frozenset(types_pb2.DataType.values())


def is_tensor_name(text: str) -> bool:
    """Returns whether text has the form `node` or `node:port`."""
    return _GRAPH_OPERAND.fullmatch(text) is not None


def unreadable_operands(graph: graph_pb2.GraphDef) -> list[str]:
    """Returns a sentence for each operand of the graph's own nodes, and each name, that doesn't have the form of one."""
    named = [f"a node is named {node.name!r}" for node in graph.node if not node.name or set(node.name) & set(":^")]
    return [*named, *_unreadable(graph.node, "", _GRAPH_OPERAND)]


def problems(graph: graph_pb2.GraphDef) -> list[str]:
    """Returns a sentence for each problem. Functions that are missing and ops that nobody knows aren't among them."""
    library = {function.signature.name: function for function in graph.library.function}
    sentences = [*_of_body(graph.node, "", ()), *_of_attributes(graph.node, "", library)]
    for function in graph.library.function:
        where = f" of the function {function.signature.name}"
        arguments = [arg.name for arg in function.signature.input_arg]
        sentences += _of_body(function.node_def, where, arguments)
        sentences += _of_attributes(function.node_def, where, library)
        for arg in (*function.signature.input_arg, *function.signature.output_arg):
            if arg.type not in _DTYPES or not (arg.type or arg.type_attr or arg.type_list_attr):
                sentences.append(f"the argument {arg.name!r}{where} has no dtype")
        sentences += _of_operands(function, where, library)
    if len(library) < len(graph.library.function):
        sentences.append("two functions have the same name")
    return sentences


def _of_body(nodes: Sequence[node_def_pb2.NodeDef], where: str, arguments: Collection[str]) -> Iterator[str]:
    yield from _unreadable(nodes, where, _FUNCTION_OPERAND if where else _GRAPH_OPERAND)
    by_name = {node.name: node for node in nodes}
    if len(by_name) < len(nodes):
        seen: set[str] = set()
        twice = next(node.name for node in nodes if node.name in seen or seen.add(node.name))  # type: ignore[func-returns-value]
        yield f"two nodes{where} are named {twice!r}"
    for node in nodes:
        if not node.name or not node.op:
            yield f"a node{where} has no {'op' if node.name else 'name'}"
        for operand in node.input:
            name = producer(operand)
            if name not in by_name and name not in arguments:
                yield f"the node {node.name!r}{where} takes {operand!r}, which doesn't exist"
        for key, value in node.attr.items():
            named = [value.type] if value.WhichOneof("value") == "type" else value.list.type
            if unknown := sorted(set(named) - _DTYPES):
                yield f"the attribute {key!r} of the node {node.name!r}{where} is the dtype {unknown[0]}, which doesn't exist"
        if node.op == "Const":
            yield from _of_constant(node, where)
    yield from _cycles(by_name, where)


def _of_attributes(nodes: Sequence[node_def_pb2.NodeDef], where: str, library: Library) -> Iterator[str]:
    """Checks that nodes have the attributes and as many operands as their ops define."""
    for node in nodes:
        defined = definition(node.op, library)
        if defined is None:
            continue
        what = f"the node {node.name!r}{where}"
        attributes = {attr.name: attr.default_value for attr in defined.attr if attr.HasField("default_value")}
        attributes.update((key, value) for key, value in node.attr.items() if value.WhichOneof("value") is not None)
        if lacking := [attr.name for attr in defined.attr if attr.name not in attributes]:
            yield f"{what} lacks the attribute {lacking[0]!r} of {node.op}"
            continue
        wanted = 0
        for arg in defined.input_arg:
            if arg.type_list_attr:
                wanted += len(attributes[arg.type_list_attr].list.type)
            else:
                wanted += attributes[arg.number_attr].i if arg.number_attr else 1
        tensors = sum(not operand.startswith("^") for operand in node.input)
        if tensors != wanted:
            yield f"{what} takes {tensors} tensors, and {node.op} takes {wanted}"


def _of_constant(node: node_def_pb2.NodeDef, where: str) -> Iterator[str]:
    what = f"the constant {node.name!r}{where}"
    if "value" not in node.attr or "dtype" not in node.attr:
        yield f"{what} has no {'dtype' if 'value' in node.attr else 'value'}"
        return
    value, dtype = node.attr["value"].tensor, node.attr["dtype"].type
    if value.dtype != dtype or dtype not in _DTYPES or not dtype:
        yield f"{what} has the dtype {dtype}, and its value has the dtype {value.dtype}"
        return
    sizes = [dim.size for dim in value.tensor_shape.dim]
    count = math.prod(sizes)
    if value.tensor_shape.unknown_rank or min(sizes, default=0) < 0:
        yield f"{what} has no shape"
        return
    if dtypes.as_dtype(dtype) == dtypes.string:
        if count > LARGEST // 8 or count < len(value.string_val):
            yield f"{what} has {count:,} values in its shape {sizes}, and {len(value.string_val):,} in its value"
        return
    try:
        bytes_ = count * dtypes.as_dtype(dtype).size
    except TypeError:
        bytes_ = 0
    fields = [field for field in value.DESCRIPTOR.fields if field.name.endswith("_val")]
    longest = max(len(getattr(value, field.name)) for field in fields)
    half = 2 if dtypes.as_dtype(dtype).is_complex else 1
    if bytes_ > LARGEST:
        yield f"{what} has {bytes_:,} bytes in its shape {sizes}"
    elif value.tensor_content and len(value.tensor_content) != bytes_:
        yield f"{what} has {bytes_:,} bytes in its shape {sizes}, and {len(value.tensor_content):,} in its value"
    elif not value.tensor_content and (longest > count * half or longest % half):
        yield f"{what} has {count:,} values in its shape {sizes}, and {longest:,} in its value"


def _unreadable(nodes: Sequence[node_def_pb2.NodeDef], where: str, form: re.Pattern[str]) -> Iterator[str]:
    for node in nodes:
        for operand in node.input:
            if not form.fullmatch(operand):
                yield f"the node {node.name!r}{where} takes {operand!r}, which isn't a tensor's name"


def _of_operands(function: function_pb2.FunctionDef, where: str, library: Library) -> Iterator[str]:
    """Checks that operands and results name outputs that the ops have."""
    ops = {node.name: node.op for node in function.node_def}
    for arg in function.signature.output_arg:
        if arg.name not in function.ret:
            yield f"the result {arg.name!r}{where} has no value"
    for name, operand in sorted(function.ret.items()):
        if operand.startswith("^") or not _FUNCTION_OPERAND.fullmatch(operand):
            yield f"the result {name!r}{where} is {operand!r}, which isn't a tensor's name"
    references = [
        (f"the node {node.name!r}{where} takes", operand) for node in function.node_def for operand in node.input
    ]
    references += [(f"the result {name!r}{where} is", operand) for name, operand in sorted(function.ret.items())]
    arguments = {arg.name for arg in function.signature.input_arg}
    for what, operand in references:
        name, _, output = operand.partition(":")
        if name.removeprefix("^") not in ops and name not in arguments:
            yield f"{what} {operand!r}, which doesn't exist"
        elif name in ops and output.count(":") == 1:
            defined = definition(ops[name], library)
            if defined is not None and output.partition(":")[0] not in [result.name for result in defined.output_arg]:
                yield f"{what} {operand!r}, which {ops[name]} doesn't have"


def _cycles(by_name: Mapping[str, node_def_pb2.NodeDef], where: str) -> Iterator[str]:
    """Finds a node that waits for itself. Loops of TensorFlow 1 are closed by a NextIteration, which doesn't wait."""
    done: set[str] = set()
    for start in by_name:
        path: dict[str, Iterator[str]] = {}
        stack = [start] if start not in done else []
        while stack:
            name = stack[-1]
            if name not in path:
                node = by_name[name]
                path[name] = iter(
                    [] if node.op.endswith("NextIteration") else [producer(operand) for operand in node.input]
                )
            for operand in path[name]:
                if operand in path:
                    yield f"the node {operand!r}{where} waits for itself"
                    return
                if operand in by_name and operand not in done:
                    stack.append(operand)
                    break
            else:
                done.add(name)
                del path[name]
                stack.pop()
