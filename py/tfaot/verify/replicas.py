"""Joins all replicas of a model in one graph, so that TensorFlow runs them in one session, and collectives are plain ops in it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from tfaot.core.errors import TfaotError
from tfaot.core.manifest import EntryPoint, Manifest, Tensor, Use
from tfaot.graph import collectives
from tfaot.graph.attributes import types_attribute
from tfaot.graph.calls import inlined
from tfaot.graph.edits import replace
from tfaot.graph.functions import EditableFunction
from tfaot.graph.ops import CALLS, functions_of
from tfaot.graph.program import Program
from tfaot.graph.splice import FunctionTarget, GraphTarget, Target, operands, splice
from tfaot.verify.digest import Array

MOST = 8
"""The most replicas that a test runs at the same time."""

_T = TypeVar("_T", bound=Tensor)
_Add = Callable[[node_def_pb2.NodeDef], node_def_pb2.NodeDef]
_OPS = {"Add": tf.add, "Mul": tf.multiply, "Min": tf.minimum, "Max": tf.maximum}


def check(manifest: Manifest) -> None:
    """Checks that there aren't too many replicas for a test.

    Raises:
      TfaotError: there are.
    """
    if manifest.replicas > MOST:
        raise TfaotError(
            f"{manifest.cpp_class}: a test of {manifest.replicas} replicas",
            exists=f"the generated test runs all replicas as threads, up to {MOST}",
            do="test the same model with fewer replicas, in a target of its own",
        )


def joined(manifest: Manifest, graph: graph_pb2.GraphDef) -> tuple[Manifest, graph_pb2.GraphDef]:
    """Returns the manifest and the graph of all replicas together: each has its own inputs, outputs, and variables."""
    entries = manifest.entry_points
    program = inlined(
        graph,
        (name for entry in entries for name in entry.feeds),
        (name for entry in entries for name in entry.fetches),
    )
    result = Program(graph_pb2.GraphDef(versions=graph.versions, library=graph.library), {}, ())
    joining = _Joining(manifest.replicas, collectives.all_in(program), result.graph.library)
    joining.fill(GraphTarget(result), program.graph.node, result.copied)
    replaced = dataclasses.replace(
        manifest,
        entry_points=tuple(_entry(entry, manifest) for entry in entries),
        variables=tuple(_of(variable, rank) for rank in range(manifest.replicas) for variable in manifest.variables),
        replicas=1,
    )
    return replaced, result.graph


def joined_values(manifest: Manifest, initial: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the initial values of all replicas' variables, which are the same."""
    return {prefixed(name, rank): value for rank in range(manifest.replicas) for name, value in initial.items()}


def joined_inputs(stored: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the user's inputs with the names of the joined manifest, given those with the names of the export stage."""
    result: dict[str, Array] = {}
    for name, value in stored.items():
        step, _, own = name.partition("/")
        tensor, _, rank = own.partition("/replica")
        result[f"{step}/{shown(tensor, int(rank or 0))}"] = value
    return result


def patterns(unseen: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the target's patterns of names, for those of the joined manifest."""
    return tuple(pattern for name in unseen for pattern in (f"replica*/{name}", shown(name, "?")))


def prefixed(name: str, rank: int) -> str:
    """Returns the name of a replica's node or variable."""
    return f"replica{rank}/{name}"


def shown(name: str, rank: int | str) -> str:
    """Returns how messages show a replica's tensor, given its C++ name."""
    return f"{name} (replica {rank})"


def _of(tensor: _T, rank: int) -> _T:
    return dataclasses.replace(tensor, name=prefixed(tensor.name, rank), cpp_name=shown(tensor.cpp_name, rank))


def _entry(entry: EntryPoint, manifest: Manifest) -> EntryPoint:
    ranks = range(manifest.replicas)
    return dataclasses.replace(
        entry,
        inputs=tuple(_of(tensor, rank) for rank in ranks for tensor in entry.inputs),
        outputs=tuple(
            dataclasses.replace(_of(tensor, rank), size=prefixed(tensor.size, rank) if tensor.size else "")
            for rank in ranks
            for tensor in entry.outputs
        ),
        variables=tuple(
            Use(rank * len(manifest.variables) + use.variable, use.written) for rank in ranks for use in entry.variables
        ),
    )


class _Joining:
    """Makes nodes of all replicas from those of one."""

    def __init__(
        self,
        replicas: int,
        exchanges: Mapping[tuple[str, str], collectives.Collective],
        library: function_pb2.FunctionDefLibrary,
    ) -> None:
        """Adds functions of all replicas to `library`, given the collectives of one."""
        self._ranks, self._exchanges, self._library = range(replicas), exchanges, library
        self._functions = {function.signature.name: function for function in library.function}
        self._together = {function for function, _ in exchanges}
        """The functions that all replicas run together, because there are collectives in them."""
        while more := {name for name, function in self._functions.items() if self._calls(function)} - self._together:
            self._together |= more

    def _calls(self, function: function_pb2.FunctionDef) -> bool:
        return any(call.name in self._together for node in function.node_def for _, call in functions_of(node))

    def fill(self, target: Target, nodes: Iterable[node_def_pb2.NodeDef], add: _Add, function: str = "") -> None:
        """Adds the nodes of all replicas to a target, given those of one, in the graph or in a function."""
        for node in nodes:
            copies = [_copied(node, rank) for rank in self._ranks]
            exchange = self._exchanges.get((function, node.name))
            if exchange is not None:
                for rank, copy in enumerate(copies):
                    _exchange(target, add(copy), node, exchange, rank)
            elif any(call.name in self._together for _, call in functions_of(node)):
                call = add(self._joint_call(node, copies))
                dtypes = node.attr[CALLS[node.op].results].list.type
                for rank, copy in enumerate(copies):
                    own = [f"{call.name}:{rank * len(dtypes) + port}" for port in range(len(dtypes))]
                    become = {"T": types_attribute(dtypes)} if own else {}
                    copy.input[:] = [f"^{call.name}"]
                    replace(copy, "IdentityN" if own else "NoOp", own, become)
                    add(copy)
            else:
                for copy in copies:
                    add(copy)

    def _joint_call(self, node: node_def_pb2.NodeDef, copies: Sequence[node_def_pb2.NodeDef]) -> node_def_pb2.NodeDef:
        """Returns a call of functions of all replicas."""
        call = node_def_pb2.NodeDef()
        call.CopyFrom(copies[0])
        call.name = f"replicas/{node.name}"
        call.input[:] = [operand for copy in copies for operand in operands(copy)]
        call.input.extend(operand for copy in copies for operand in copy.input if operand.startswith("^"))
        for key in ("T", "Tin", "Tout", "output_shapes"):
            if key in node.attr:
                for _ in self._ranks[1:]:
                    call.attr[key].list.MergeFrom(node.attr[key].list)
        for key, function in functions_of(call):
            function.name = self._joint_function(function.name, 1 if key == "cond" else len(self._ranks))
        return call

    def _joint_function(self, name: str, results: int) -> str:
        """Adds a function of all replicas, which returns the results of the first `results` of them, and returns its name."""
        joint = f"replicas/{name}"
        if joint in self._functions:
            return joint
        body = EditableFunction(self._functions[name], self._functions)
        nodes, arguments, types = [*body.nodes.values()], body.arguments, body.types
        body.nodes = {}
        body.arguments = [_operand(argument, rank) for rank in self._ranks for argument in arguments]
        body.types = types * len(self._ranks)
        body.results = [_operand(result, rank) for rank in range(results) for result in body.results]
        body.result_types = body.result_types * results

        def add(node: node_def_pb2.NodeDef) -> node_def_pb2.NodeDef:
            return body.nodes.setdefault(node.name, node)

        self.fill(FunctionTarget(body), nodes, add, name)
        function = body.function(joint)
        for effect, node in sorted(self._functions[name].control_ret.items()):
            for rank in self._ranks:
                function.signature.control_output.append(prefixed(effect, rank))
                function.control_ret[prefixed(effect, rank)] = prefixed(node, rank)
        self._library.function.append(function)
        self._functions[joint] = function
        return joint


def _copied(node: node_def_pb2.NodeDef, rank: int) -> node_def_pb2.NodeDef:
    """Returns a replica's copy of a node."""
    copy = node_def_pb2.NodeDef()
    copy.CopyFrom(node)
    copy.name = prefixed(node.name, rank)
    copy.input[:] = [_operand(name, rank) for name in node.input]
    copy.attr.pop("_class", None)  # names other nodes
    if node.op == "VarHandleOp":
        copy.attr["shared_name"].s = prefixed(node.attr["shared_name"].s.decode(), rank).encode()
    return copy


def _operand(name: str, rank: int) -> str:
    return f"^{prefixed(name[1:], rank)}" if name.startswith("^") else prefixed(name, rank)


def _exchange(
    target: Target,
    copy: node_def_pb2.NodeDef,
    node: node_def_pb2.NodeDef,
    collective: collectives.Collective,
    rank: int,
) -> None:
    """Makes a replica's copy of a collective what the replica gets from it."""
    dtype = node.attr["T"].type
    group = (rank,) if collective.replicas == 1 else collective.group(rank)
    own = [_operand(operand, other) for operand in operands(node)[: collective.kind != "rank"] for other in group]
    copy.input[:] = [*own, *(operand for operand in copy.input if operand.startswith("^"))]
    specs = [tf.TensorSpec(None, dtype) for _ in own]
    splice(target, copy, specs, lambda *values: _result(collective, values, group.index(rank)))


def _result(collective: collectives.Collective, values: Sequence[Any], rank: int) -> Any:
    """Returns what the replica of a rank gets from the values of its group."""

    def part(value: Any) -> Any:
        return tf.split(value, len(values), collective.split)[rank]

    match collective.kind:
        case "all_gather":
            return tf.concat(values, 0)
        case "all_to_all":
            return tf.concat([part(value) for value in values], collective.concat)
        case "broadcast":
            return tf.identity(values[0])
        case "permute":
            sources = {target: source for source, target in collective.pairs}
            return tf.identity(values[sources[rank]]) if rank in sources else tf.zeros_like(values[rank])
        case "rank":
            return tf.constant(rank)
    # In the order of ranks.
    total = functools.reduce(_OPS[collective.reduction], values)
    total = total / tf.cast(collective.replicas, total.dtype) if collective.mean else total
    return tf.split(total, len(values), collective.split)[rank] if collective.kind == "reduce_scatter" else total
