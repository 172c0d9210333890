"""Explains the compiler's refusals to the user. Its messages name nodes; these errors name source lines.

What to do comes from `knowledge`, which the check reads, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tfaot.core import caller, knowledge
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import Manifest


def without_trace(message: str) -> str:
    """Removes what the compiler says about Python code, which is made up. Our source lines come from the export stage."""
    return re.sub(r"\s*Stack trace for op definition:\s*\n(?:dummy_file_name\S*\n)*", "\n", message)


class Origin(Protocol):
    """A graph, and where it comes from."""

    @property
    def graph(self) -> str:
        """Path of a serialized GraphDef."""
        ...

    @property
    def sources(self) -> str:
        """Path of a JSON file that maps nodes to `file:line`."""
        ...


def explain(message: str, request: Origin, manifest: Manifest) -> TfaotError:
    """Turns the compiler's message into an error that names nodes and source lines, and says what to do."""
    if error := explained(message, request, manifest.cpp_class):
        return error
    if constant := _not_constant(message):
        return TfaotError(
            f"{manifest.cpp_class}: argument {constant['argument']} of {constant['op']} {constant['node']!r} must be known "
            "at build time",
            details="\n".join(mentioned(message, sources_of(request))),
            do=knowledge.constant(constant["node"]),
        )
    return TfaotError(
        f"{manifest.cpp_class}: the compiler refuses the graph",
        details=unknown(message, request),
        do="change the model at the lines above; for more details, add --xla_dump_to to " + caller.the("xla_flags"),
    )


def unknown(message: str, request: Origin) -> str:
    """Returns the compiler's message, and the source lines of the nodes that it names."""
    message = without_trace(message)
    return "\n".join([message, *mentioned(message, sources_of(request))])


def explained(message: str, request: Origin, what: str) -> TfaotError | None:
    """Returns an error for a message whose cause is known, or None.

    Args:
      message: the compiler's message.
      request: the graph.
      what: names the model.
    """
    message = without_trace(message)
    return next((error for cause in _CAUSES if (error := cause(message, request, what))), None)


def _pivoting(message: str, request: Origin, what: str) -> TfaotError | None:
    if "not yet support pivoting" not in message:
        return None
    return TfaotError(
        f"{what}: XLA solves tridiagonal systems without pivoting only",
        details="\n".join(mentioned(message, sources_of(request))),
        do=knowledge.PIVOTING,
    )


def _two_open_sizes(message: str, request: Origin, what: str) -> TfaotError | None:
    """Explains an op that XLA pads for one open size, and not for several."""
    op = re.search(
        r'Dynamic input unexpectedly found for unsupported instruction.*op_type="(\w+)" op_name="([^"]+)"', message
    )
    if op is None:
        return None
    sources = sources_of(request)
    nodes = [place(prefix, node, sources) for prefix, node in _all_nodes(request) if node.name == op[2]]
    return TfaotError(
        f"{what}: XLA can't compile {op[1]} of several sizes that differ from call to call",
        details="\n".join(nodes or [op[2]]),
        do=f"multiply by a matrix with tf.tensordot(x, matrix, 1), which joins the axes of x, or fix all but one of these sizes in "
        f"{caller.option('dims')}",
    )


def _open_size(message: str, request: Origin, what: str) -> TfaotError | None:
    """Explains what XLA can't compile of a size that is known only at run time."""
    names = {
        node.attr[key].s.decode(): key
        for _, node in _all_nodes(request)
        for key in (OPEN_SIZE, BOUNDED)
        if key in node.attr
    }
    if not names:
        return None
    sources, nodes = sources_of(request), {node.name: (prefix, node) for prefix, node in _all_nodes(request)}
    names_of_nodes = [*_named(message), *re.findall(r'op_name="([^"]+)"', message)]
    named = [nodes[name] for name in dict.fromkeys(names_of_nodes) if name in nodes]
    if not named and "dynamic_dimension_inference.cc" in message:
        named = [one for one in nodes.values() if one[1].op in _AS_LOOPS]
    ops = listed(sorted({node.op for _, node in named})) if named else "an op"
    return TfaotError(
        f"{what}: XLA can't compile {ops} of a size that differs from call to call",
        details="\n".join(place(*one, sources) for one in named) or without_trace(message),
        do=f"take {' and '.join(names)} out of {caller.option('sizes')}, and give each a number in {caller.option('dims')}; or do "
        "without this op",
    )


_AS_LOOPS = frozenset({"MatrixInverse", "MatrixTriangularSolve"})
"""Ops that XLA computes in a loop, of which its messages don't say whose it is."""


def _unbounded_loop(message: str, request: Origin, what: str) -> TfaotError | None:
    if not re.search(r"requires a fixed (tensor list|stack) size", message):
        return None
    return TfaotError(
        f"{what}: the gradient of a loop needs the loop's maximum number of iterations",
        details="\n".join(_loops_of(_named(message), request) or [message]),
        do=knowledge.BOUNDED_LOOP,
    )


def _unsupported_ops(message: str, request: Origin, what: str) -> TfaotError | None:
    if not (unsupported := _unsupported(message)):
        return None
    shown = {op + (" of " + ", ".join(sorted({*dtypes.values()})) if dtypes else "") for op, dtypes in unsupported}
    advice = {
        op: ("", knowledge.other_dtype(dtypes)) if dtypes else knowledge.why_missing(op, _definition(op))
        for op, dtypes in unsupported
    }
    return TfaotError(
        f"{what}: XLA can't compile {listed(sorted(shown))}",
        details="\n".join(_nodes_of(lambda node: any(_is(node, *op) for op in unsupported), request)),
        exists=_by_op({op: reason for op, (reason, _) in advice.items() if reason}),
        do=f"{_by_op({op: rewrite for op, (_, rewrite) in advice.items()})}; {knowledge.OTHER_WAYS}",
    )


def _slice_assignment(message: str, request: Origin, what: str) -> TfaotError | None:
    constant = _not_constant(message)
    if not constant or constant["op"] not in _SLICE_ASSIGNMENTS:
        return None
    return TfaotError(
        f"{what}: the index of a slice assignment is known only at run time",
        details="\n".join(mentioned(message, sources_of(request))),
        do=knowledge.SLICE_ASSIGNMENT,
    )


def _no_result(message: str, request: Origin, what: str) -> TfaotError | None:
    """Explains, for example, an assignment to an empty slice."""
    if not (empty := re.search(r"Missing xla_context \d+-th output from (\S+)", message)):
        return None
    sources = sources_of(request)
    nodes = [place(prefix, node, sources) for prefix, node in _all_nodes(request) if node.name == empty[1]]
    return TfaotError(
        f"{what}: XLA can't compute the result of an op",
        details="\n".join(nodes or [message]),
        do=knowledge.EMPTY_SLICE,
    )


def _unsupported_thunk(message: str, request: Origin, what: str) -> TfaotError | None:
    if not (thunk := re.search(r"(?:Unsupported thunk type: |HLO opcode `)([\w-]+)(?:` is not supported)?", message)):
        return None
    kind = thunk[1].replace("-", "")
    sources = sources_of(request)
    nodes, ops = list[str](), set[str]()
    for prefix, node in _all_nodes(request):
        # A node that keeps an operation of StableHLO has its name: replica_id, as that of XlaReplicaId.
        kept = node.op == "XlaCallModule"
        if kept and re.fullmatch(rf"(.*/)?{thunk[1].replace('-', '_')}(_\d+)?", node.name):
            nodes.append(place(prefix, node, sources))
            ops.add("Xla" + thunk[1].title().replace("-", ""))
        elif not kept and kind in node.op.lower():
            nodes.append(place(prefix, node, sources))
            ops.add(node.op)
    known_ops = sorted(ops & knowledge.NOT_AHEAD_OF_TIME.keys())
    return TfaotError(
        f"{what}: XLA can't compile {kind} ahead of time",
        details="\n".join(nodes),
        exists=_by_op({op: knowledge.NOT_AHEAD_OF_TIME[op] for op in known_ops}),
        do=f"{_by_op({op: knowledge.lowered_otherwise(op) for op in known_ops}) or knowledge.MOVE}; {knowledge.OTHER_WAYS}",
    )


def _wrong_flag(message: str, request: Origin, what: str) -> TfaotError | None:
    del request
    if not (flag := re.search(r'Variable "([^"]*)" is marked as (not )?readonly', message)):
        return None
    name = flag[1]  # the node's name, not the one in the config
    actual = "true" if flag[2] else "false"
    return TfaotError(
        f"{what}: the config's entry for the variable {name} is wrong according to the compiler",
        details=message,
        do=f'write variable {{ node_name: "{name}" readonly: {actual} }} into {caller.the("config")}',
    )


def _definition(op: str) -> Any:
    """Returns the definition of an op, or None if TensorFlow doesn't know it."""
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op)


def _by_op(texts: Mapping[str, str]) -> str:
    """Returns the texts, each once, with the ops that it is for if there are several texts."""
    ops: dict[str, list[str]] = {}
    for op, text in sorted(texts.items()):
        ops.setdefault(text, []).append(op)
    return "; ".join(f"{', '.join(names)}: {text}" if len(ops) > 1 else text for text, names in ops.items())


OPEN_SIZE = "_tfaot_open_size"
"""An attribute of nodes that cut an input to an open size, and that size's name."""
BOUNDED = "_tfaot_bounded"
"""The same for nodes that cut an operand of an op whose size XLA bounds, where the rest of the program has a bucket's."""

_CAUSES = (
    _pivoting,
    _two_open_sizes,
    _unbounded_loop,
    _unsupported_ops,
    _slice_assignment,
    _no_result,
    _unsupported_thunk,
    _wrong_flag,
    _open_size,
)
"""Known causes. Each returns an error, or None if the message is about something else."""


_SLICE_ASSIGNMENTS = ("ResourceStridedSliceAssign", "StridedSliceAssign", "TensorStridedSliceUpdate")


def _not_constant(message: str) -> re.Match[str] | None:
    """Finds the argument, node, and op in a message about a value that must be known at build time."""
    return re.search(
        r"Input (?P<argument>\d+) to node `(?P<node>[^`]+)` with op (?P<op>\w+) must be a compile-time", message
    )


def _unsupported(message: str) -> list[tuple[str, dict[str, str]]]:
    """Returns the ops for which XLA's message says it has no kernel, each with the unsupported dtypes by attribute."""
    from tensorflow.core.framework import types_pb2
    from tensorflow.dtypes import as_dtype

    unsupported: list[tuple[str, dict[str, str]]] = []
    kernels = r"[,:] (\w+) \(No registered '\w+' OpKernel[^()]*(?:\(OpKernel was found[^()]*\) Requested Attributes: ([^()]*))?"
    for op, attributes in re.findall(kernels, message):
        dtypes = {
            name: as_dtype(types_pb2.DataType.Value(dtype)).name
            for name, dtype in re.findall(r"(\w+)=(DT_\w+)", attributes)
        }
        if (op, dtypes) not in unsupported:
            unsupported.append((op, dtypes))
    return unsupported


def _is(node: Any, op: str, dtypes: Mapping[str, str]) -> bool:
    from tensorflow.dtypes import as_dtype

    return node.op == op and all(
        node.attr[name].type == as_dtype(dtype).as_datatype_enum for name, dtype in dtypes.items()
    )


def _nodes_of(wanted: Callable[[Any], bool], request: Origin) -> list[str]:
    """Returns `op 'node' at file:line` for every wanted node in the graph and its functions."""
    sources = sources_of(request)
    return [place(prefix, node, sources) for prefix, node in _all_nodes(request) if wanted(node)]


def _loops_of(names_: list[str], request: Origin) -> list[str]:
    """Returns the loops that take one of the named nodes, where their gradients keep what they need; else all loops."""
    sources = sources_of(request)
    loops = [(prefix, node) for prefix, node in _all_nodes(request) if node.op in ("While", "StatelessWhile")]
    concerned = [
        (prefix, node) for prefix, node in loops if {operand.partition(":")[0] for operand in node.input} & {*names_}
    ]
    return [place(prefix, node, sources) for prefix, node in concerned or loops]


def _all_nodes(request: Origin) -> list[tuple[str, Any]]:
    """Returns the nodes of the graph and of its functions. The latter have `function/` as a prefix."""
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef()
    with open(request.graph, "rb") as file:
        graph.ParseFromString(file.read())
    return [("", node) for node in graph.node] + [
        (function.signature.name + "/", node) for function in graph.library.function for node in function.node_def
    ]


def place(prefix: str, node: Any, sources: Mapping[str, str]) -> str:
    """Returns `op 'node' at file:line`.

    Args:
      prefix: `function/` for a node in a function, or empty.
      node: a NodeDef.
      sources: `file:line` by node, `function/node` inside functions.
    """
    name = prefix + node.name
    return f"{node.op} {name!r}" + (f" at {sources[name]}" if name in sources else "")


def _named(message: str) -> list[str]:
    """Returns the nodes that XLA's message names, as `{{node NAME}}` or `[[NAME]]`."""
    return list(dict.fromkeys(re.findall(r"(?:\{\{node |\[\[)([\w./>\\-]+)(?:\}\}|\]\])", message)))


def mentioned(message: str, sources: Mapping[str, str]) -> list[str]:
    """Returns the source lines of the nodes that a message of TensorFlow or XLA names.

    Args:
      message: names nodes as `{{node NAME}}` or `[[NAME]]`.
      sources: `file:line` by node, `function/node` inside functions.
    """
    located = []
    for name in _named(message):
        places = {place for node, place in sources.items() if node == name or node.endswith("/" + name)}
        located += [f"{name!r} at {place}" for place in sorted(places)]
    return located


def sources_of(request: Origin) -> dict[str, str]:
    """Reads the map from nodes to `file:line`."""
    with open(request.sources, encoding="utf-8") as file:
        sources: dict[str, str] = json.load(file)
    return sources
