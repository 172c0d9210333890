"""Lowers an exported graph to XLA's program, in any form that XLA prints. It needs only the wheel."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tfaot.graph.names import producer

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

_LARGE = 1 << 14
"""A larger constant, in bytes, becomes a parameter if its value doesn't matter."""
_FLOATS = frozenset({1, 2, 14, 19})
"""`DT_FLOAT`, `DT_DOUBLE`, `DT_BFLOAT16`, `DT_HALF`."""

_runs = itertools.count()


_PERTURB = -6
"""glibc's `M_PERTURB`: new memory gets the complement of the value's lowest byte."""


@contextlib.contextmanager
def zeroed_memory() -> Iterator[None]:
    """Lets `malloc` return zeros while XLA lowers a graph.

    To find bounds of sizes, XLA evaluates parts of the graph on values that it doesn't know. Of a tensor with such a size, it
    reads the size from memory that nothing has written, and dies if that is negative. It doesn't use the result. Blocks that
    glibc keeps for each thread stay as they are, so the process must start with `glibc.malloc.tcache_count=0`.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda option, value: None)
    mallopt(_PERTURB, 255)
    try:
        yield
    finally:
        mallopt(_PERTURB, 0)


@dataclasses.dataclass(frozen=True)
class Argument:
    """An input of the program, or a variable that it reads."""

    name: str
    """An input's `node:port`, or a variable's `shared_name`."""
    dtype: Any
    shape: tuple[int, ...]


def lower(
    graph: graph_pb2.GraphDef,
    inputs: Sequence[Argument],
    variables: Sequence[Argument],
    outputs: Sequence[str],
    *,
    stage: str,
    for_shapes: bool = False,
) -> Any:
    """Returns what TensorFlow prints at a stage of its compiler, as bytes or text.

    Parameters are the inputs, then large constants if `for_shapes` is set, then the variables. Results are the outputs,
    then the written variables. Each group is in the given order. Variables are created without touching their memory,
    because the compiler reads only their shapes.

    Args:
      graph: the whole graph.
      inputs: the graph's placeholders, with the shapes that the program is for.
      variables: all variables that the graph may contain.
      outputs: `node:port` of each output.
      stage: a stage of `experimental_get_compiler_ir`.
      for_shapes: whether the caller only inspects the program, possibly in a process that already knows the graph's
        functions. Names of functions and values of large constants then don't matter.

    Raises:
      Exception: from TensorFlow, of any type; XLA refuses the graph.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    from tfaot.graph.prune import prune

    graph = prune(graph, [producer(name) for name in outputs], [producer(argument.name) for argument in inputs])
    if for_shapes:
        rename_functions(graph, f"tfaot_{next(_runs)}_")
        inputs = [*inputs, *_large(graph)]
    handle_nodes = {node.name: node.attr["shared_name"].s.decode() for node in graph.node if node.op == "VarHandleOp"}
    body, used = _without_edges(graph, {producer(argument.name) for argument in inputs} | handle_nodes.keys())
    handles = {variable.name: _handle(variable) for variable in variables}
    # The function's own graph has the library, but the code that prints the program asks the eager context.
    for function in graph.library.function:
        context.context().add_function_def(function)

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def main(*arguments: Any) -> Any:
        into = tf.compat.v1.get_default_graph()
        captures = {name: into.capture(handle) for name, handle in handles.items()}
        mapping = {argument.name: value for argument, value in zip(inputs, arguments, strict=True)}
        mapping |= {node + ":0": captures[name] for node, name in handle_nodes.items()}
        return tf.import_graph_def(
            body,
            input_map={name: value for name, value in mapping.items() if name in used},
            return_elements=list(outputs),
            name="",
        )

    specs = [tf.TensorSpec(argument.shape, argument.dtype) for argument in inputs]
    with zeroed_memory():
        return main.experimental_get_compiler_ir(*specs)(stage=stage, platform_name="CPU")


def _without_edges(graph: graph_pb2.GraphDef, outside: Collection[str]) -> tuple[graph_pb2.GraphDef, set[str]]:
    """Removes the nodes whose values come from outside, and control inputs that wait for them.

    Returns:
      The graph, and the tensors that its nodes take, `node:port`.
    """
    from tensorflow.core.framework import graph_pb2

    result = graph_pb2.GraphDef(versions=graph.versions, library=graph.library)
    kept = [node for node in graph.node if node.name not in outside]
    used: set[str] = set()
    for node in kept:
        operands = [name for name in node.input if not (name[0] == "^" and name[1:] in outside)]
        if len(operands) < len(node.input):
            node.input[:] = operands
        used.update(name if ":" in name else name + ":0" for name in operands)
    result.node.extend(kept)
    return result, used


def _handle(variable: Argument) -> Any:
    """Creates a variable with an uninitialized value."""
    import tensorflow as tf

    handle = tf.raw_ops.VarHandleOp(dtype=variable.dtype, shape=variable.shape, shared_name=f"tfaot/{variable.name}")
    if max(variable.shape, default=0) < 2**31:
        value = tf.raw_ops.Empty(shape=variable.shape, dtype=variable.dtype)
    else:  # Empty doesn't accept larger dimensions
        value = tf.zeros(tf.constant(variable.shape, tf.int64), variable.dtype)
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return handle


def _large(graph: graph_pb2.GraphDef) -> list[Argument]:
    """Returns large floating-point constants as arguments."""
    return [
        Argument(node.name + ":0", node.attr["dtype"].type, tuple(d.size for d in tensor.tensor_shape.dim))
        for node in graph.node
        if node.op == "Const"
        and (tensor := node.attr["value"].tensor)
        and node.attr["dtype"].type in _FLOATS
        and len(tensor.tensor_content) > _LARGE
    ]


def rename_functions(graph: graph_pb2.GraphDef, prefix: str) -> None:
    """Renames all functions of a graph in place, because a process may know other functions by the old names."""
    from tfaot.graph.ops import functions_of

    names = {function.signature.name: prefix + function.signature.name for function in graph.library.function}
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            node.op = names.get(node.op, node.op)
            for _, called in functions_of(node):
                called.name = names.get(called.name, called.name)
    for function in graph.library.function:
        function.signature.name = names[function.signature.name]
    for gradient in graph.library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)
