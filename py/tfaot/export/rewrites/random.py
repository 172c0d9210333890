"""Random ops: one state per instance, and the same numbers in TensorFlow and in XLA. Pure: protos in, protos out.

Compiled ahead of time, TensorFlow's stateful random ops start from one fixed state in each instance, and their floating
numbers are XLA's own. Here each of them takes its numbers from a variable with the state of a `tf.random.Generator`
that uses Philox, int64[3]: it reserves counters with `RngReadAndSkip`, as the Generator does, and computes on integers
drawn from these, which are bit for bit the same in both. Floating numbers are made from the integers by nodes of ours;
XLA's kernels for them take other bits than TensorFlow's. The stateless ops are made the same way, from their own keys.

The variable's handle goes into functions as one more argument, the last. In each body the draws are chained by control
edges, in the order of the nodes in it, so that TensorFlow's executor and XLA's draw in the same order.

The size of a rewritten graph, and the time it takes, are linear in the size of the graph.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, op_def_pb2, types_pb2
from tensorflow.python.framework import op_def_registry, tensor_util

from tfaot.core import dtypes
from tfaot.core.errors import TfaotError, listed

Array = npt.NDArray[np.int64]

VARIABLE = "tfaot/random_state"
"""The state's `shared_name`, if no other variable has it."""

_ARGUMENT = "tfaot_random_state"
_SHARED = "tfaot/random"
"""Where the constants of a body are named that all its sites share."""
_PHILOX = 1
"""`tf.random.Algorithm.PHILOX`; chosen here, since a device that chooses for itself may choose another."""

_DRAWS = frozenset(
    {"Multinomial", "RandomShuffle", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal"}
)
"""Stateful ops that XLA compiles and that this file can express, which take all of XLA's but one."""

_LEFT = frozenset({"ParameterizedTruncatedNormal"})
"""Stateful ops that XLA compiles, and that stay with XLA's fixed state."""

_STATELESS = frozenset(
    {
        "StatelessMultinomial",
        "StatelessRandomNormal",
        "StatelessRandomNormalV2",
        "StatelessRandomUniform",
        "StatelessRandomUniformV2",
        "StatelessTruncatedNormal",
        "StatelessTruncatedNormalV2",
    }
)
"""Stateless ops of which XLA makes other numbers than TensorFlow; of those that give integers it makes the same."""

_STATEFUL = {
    "PartitionedCall": "StatefulPartitionedCall",
    "StatelessCase": "Case",
    "StatelessIf": "If",
    "StatelessWhile": "While",
}
"""What an op becomes whose function draws."""

_CONDITION = "it is in a while loop's condition"

_V1_ENTRIES = frozenset({"Enter", "RefEnter", "RefSwitch", "Switch", "_SwitchN"})

_RESERVED = 1 << 40
"""How many numbers a draw reserves whose size may be known only inside a branch: more than a tensor has."""

_TOP = ""
"""Stands for the graph itself among functions' names."""

_SEVERAL = -1
"""In place of a run's number."""

_UNIT = {
    types_pb2.DT_HALF: (types_pb2.DT_INT32, 10),
    types_pb2.DT_BFLOAT16: (types_pb2.DT_INT32, 7),
    types_pb2.DT_FLOAT: (types_pb2.DT_INT32, 23),
    types_pb2.DT_DOUBLE: (types_pb2.DT_INT64, 52),
}
"""The integers that a number in [0, 1) is made from, and how many of their bits TensorFlow takes: a mantissa's."""


@dataclasses.dataclass(frozen=True, order=True)
class Left:
    """A stateful random op that still has XLA's fixed state."""

    name: str
    """`node`, or `function/node` inside functions, as in the map of source lines."""
    op: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Seeded:
    """A graph whose random ops follow a variable."""

    graph: graph_pb2.GraphDef
    variable: str | None
    """`shared_name` of the state, int64[3], which is written; None if nothing draws from it."""
    left: tuple[Left, ...]


def state_of(seed: int) -> Array:
    """The state that a seed starts: int64[3], two words of counter and one of key, `{0, 0, seed}`.

    It is that of `tf.random.Generator.from_key_counter(key=seed, counter=[0, 0], alg="philox")`, and of `from_seed` for
    a NumPy integer. Of a Python integer, `from_seed` makes the counter: seeds 1 and 2 then give one stream, which they
    enter four numbers apart.

    Raises:
      OverflowError: the seed is negative or has more than 64 bits.
    """
    return np.array([0, 0, seed], np.uint64).view(np.int64)


def seeded(graph: graph_pb2.GraphDef, runs: Sequence[Collection[str]] = ()) -> Seeded:
    """Lets all random ops that the graph can reach draw from one variable.

    Args:
      graph: a whole graph; it stays as it is. Only functions that its nodes reach are looked at.
      runs: for each run that the graph is made for, the nodes that it fetches; one run for all if not given. Draws of
        one run are not chained to another's, which would have to run, too. No two may need the same random op.

    Returns:
      A new graph. Rewritten nodes and functions keep their names, and what a node needed is named `NODE/random/…`;
      functions without random ops keep their bytes. What stands in the attributes `seed` and `seed2` means nothing.

    Raises:
      ValueError: two runs need the same random op.
    """
    return _Rewriter(graph, runs).run()


def refusal(what: str, left: Sequence[Left], sources: Mapping[str, str]) -> TfaotError:
    """The error of a graph in which not all stateful random ops could be given the state.

    Args:
      what: names the model.
      left: not empty.
      sources: `file:line` by names as in `Left`.
    """
    places = [f"{site.op} {sources.get(site.name, site.name)} ({site.reason})" for site in left]
    return TfaotError(
        f"{what}: {len(left)} random op(s) cannot follow a seed",
        exists=listed(places),
        do="draw in the loop's body and not in its condition, build loops with tf.compat.v1.enable_control_flow_v2(), or "
        "draw with tf.random.stateless_uniform and its like, which take their seed as an input",
    )


@functools.cache
def _definition(op: str) -> op_def_pb2.OpDef:
    definition = op_def_registry.get(op)
    assert definition is not None, op
    return definition


class _Scope:
    """Makes nodes for one body, with names that are free in it, and inputs in its notation."""

    def __init__(self, nodes: Iterable[node_def_pb2.NodeDef], reserved: Iterable[str], *, function: bool) -> None:
        self._used = {*reserved, *(node.name for node in nodes)}
        self._function = function
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._prefix = _SHARED
        self._anchor = ""
        self.constants: list[node_def_pb2.NodeDef] = []
        """Those that all sites of the body share."""
        self.nodes: list[node_def_pb2.NodeDef] = []
        """Made since the last `begin`."""

    def begin(self, site: node_def_pb2.NodeDef, anchor: _Anchor | None = None) -> None:
        """Nodes are named below this one from now on; constants are made where it is in v1 control flow."""
        self._prefix = f"{site.name}/random"
        self._anchor = ""
        self.nodes = []
        if anchor is not None:
            # A control edge from a Switch would not say which branch is meant.
            inside = self.add("Identity", anchor.operand, T=anchor.dtype) if anchor.dtype else anchor.operand
            self._anchor = f"^{_producer(inside)}"

    def outputs(self, op: str, *inputs: str, **attrs: Any) -> tuple[str, ...]:
        """Adds a node, and returns its outputs as inputs for others. Attributes that are not given have defaults."""
        node = node_def_pb2.NodeDef(name=_unused(f"{self._prefix}/{op}", self._used), op=op, input=inputs)
        self._used.add(node.name)
        definition = _definition(op)
        for attr in definition.attr:
            value = attrs.get(attr.name)
            if value is None:
                node.attr[attr.name].CopyFrom(attr.default_value)
            elif attr.type == "type":
                node.attr[attr.name].type = value
            elif attr.type == "shape":
                node.attr[attr.name].shape.SetInParent()
                for size in value:
                    node.attr[attr.name].shape.dim.add(size=size)
            elif attr.type == "tensor":
                node.attr[attr.name].tensor.CopyFrom(value)
            elif attr.type == "string":
                node.attr[attr.name].s = value.encode()
            else:
                node.attr[attr.name].i = value
        self.nodes.append(node)
        counts = [(arg.name, attrs[arg.number_attr] if arg.number_attr else 1) for arg in definition.output_arg]
        if self._function:
            return tuple(f"{node.name}:{arg}:{i}" for arg, count in counts for i in range(count))
        return tuple(f"{node.name}:{i}" for i in range(sum(count for _, count in counts)))

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Adds a node, and returns its first output."""
        return self.outputs(op, *inputs, **attrs)[0]

    def constant(self, value: Any, dtype: int, *, outside: bool = False) -> str:
        """A constant of a `tensorflow.DataType`, at the site or outside of v1 control flow."""
        array = np.asarray(value, dtypes.BY_ENUM[dtype].numpy())
        key = (str(array.dtype), array.shape, array.tobytes())
        if self._anchor and not outside:
            return self.add("Const", self._anchor, dtype=dtype, value=tensor_util.make_tensor_proto(array))
        if key not in self._constants:
            made, prefix, self.nodes, self._prefix = self.nodes, self._prefix, self.constants, "random"
            self._constants[key] = self.add("Const", dtype=dtype, value=tensor_util.make_tensor_proto(array))
            self.nodes, self._prefix = made, prefix
        return self._constants[key]

    def cast(self, value: str, before: int, after: int) -> str:
        """A value of another dtype; itself if it has that already."""
        return value if before == after else self.add("Cast", value, SrcT=before, DstT=after)

    def finish(self, site: node_def_pb2.NodeDef, value: str, dtype: int) -> list[node_def_pb2.NodeDef]:
        """All nodes since `begin`, and one that takes the site's place."""
        result = node_def_pb2.NodeDef(name=site.name, op="Identity", device=site.device, input=[value])
        result.input.extend(operand for operand in site.input if operand.startswith("^"))
        for key, attr in site.attr.items():
            if key.startswith("_"):
                result.attr[key].CopyFrom(attr)
        result.attr["T"].type = dtype
        if site.HasField("experimental_debug_info"):
            result.experimental_debug_info.CopyFrom(site.experimental_debug_info)
        return [*self.nodes, result]


@dataclasses.dataclass(frozen=True)
class _Key:
    """Where random integers come from: inputs of stateless ops, uint64[1] and uint64[2], and the algorithm."""

    key: str
    counter: str
    algorithm: str


def _integers(scope: _Scope, key: _Key, shape: str, shape_type: int, dtype: int) -> str:
    """Integers of all bits."""
    return scope.add(
        "StatelessRandomUniformFullIntV2", shape, key.key, key.counter, key.algorithm, dtype=dtype, Tshape=shape_type
    )


def _uniform(scope: _Scope, key: _Key, shape: str, shape_type: int, dtype: int) -> str:
    """Numbers in [0, 1), those that TensorFlow makes."""
    integer, bits = _UNIT[dtype]
    drawn = _integers(scope, key, shape, shape_type, integer)
    if dtype == types_pb2.DT_DOUBLE:
        # TensorFlow takes the first of two words as the upper one here, and as the lower one of an integer.
        word = scope.constant(32, integer)
        upper = scope.add("BitwiseAnd", drawn, scope.constant((1 << 20) - 1, integer), T=integer)
        upper = scope.add("LeftShift", upper, word, T=integer)
        lower = scope.add("RightShift", drawn, word, T=integer)
        lower = scope.add("BitwiseAnd", lower, scope.constant((1 << 32) - 1, integer), T=integer)
        mantissa = scope.add("BitwiseOr", upper, lower, T=integer)
    else:
        mantissa = scope.add("BitwiseAnd", drawn, scope.constant((1 << bits) - 1, integer), T=integer)
    return scope.add("Mul", scope.cast(mantissa, integer, dtype), scope.constant(2.0**-bits, dtype), T=dtype)


def _doubles(scope: _Scope, key: _Key, shape: str, shape_type: int, dtype: int) -> str:
    """Numbers in [0, 1) for results of this dtype, but as doubles.

    TensorFlow and XLA miss logarithms and the like by different last bits. Rounded from double to float, the difference
    is gone, all but once in a hundred million times.
    """
    unit = types_pb2.DT_DOUBLE if dtype == types_pb2.DT_DOUBLE else types_pb2.DT_FLOAT
    return scope.cast(_uniform(scope, key, shape, shape_type, unit), unit, types_pb2.DT_DOUBLE)


def _rounded(scope: _Scope, value: str, dtype: int) -> str:
    """A double as another dtype, narrow ones by way of float as in TensorFlow."""
    if dtype == types_pb2.DT_DOUBLE:
        return value
    value = scope.cast(value, types_pb2.DT_DOUBLE, types_pb2.DT_FLOAT)
    return scope.cast(value, types_pb2.DT_FLOAT, dtype)


def _normal(scope: _Scope, key: _Key, shape: str, shape_type: int, dtype: int) -> str:
    """Box-Muller, in pairs, with TensorFlow's bound below the logarithm."""
    index, double = shape_type, types_pb2.DT_DOUBLE
    one, two = scope.constant(1, index), scope.constant(2, index)
    size = scope.add("Prod", shape, scope.constant([0], types_pb2.DT_INT32), T=index)
    pairs = scope.add("FloorDiv", scope.add("AddV2", size, one, T=index), two, T=index)
    drawn = _doubles(scope, key, scope.add("Pack", pairs, two, N=2, T=index), index, dtype)
    radius, angle = scope.outputs("Unpack", drawn, num=2, T=double, axis=1)
    radius = scope.add("Maximum", radius, scope.constant(1e-7, double), T=double)
    radius = scope.add("Mul", scope.add("Log", radius, T=double), scope.constant(-2.0, double), T=double)
    radius = scope.add("Sqrt", radius, T=double)
    angle = scope.add("Mul", angle, scope.constant(2 * math.pi, double), T=double)
    parts = [scope.add("Mul", scope.add(op, angle, T=double), radius, T=double) for op in ("Sin", "Cos")]
    flat = scope.add("Pack", *parts, N=2, T=double, axis=1)
    flat = scope.add("Reshape", flat, scope.constant([-1], index), T=double, Tshape=index)
    size = scope.add("Reshape", size, scope.constant([1], index), T=index, Tshape=index)
    flat = scope.add("Slice", flat, scope.constant([0], index), size, T=double, Index=index)
    return _rounded(scope, scope.add("Reshape", flat, shape, T=double, Tshape=index), dtype)


def _truncated_normal(scope: _Scope, key: _Key, shape: str, shape_type: int, dtype: int) -> str:
    """The inverse of the normal distribution between -2 and 2. TensorFlow draws again until a number fits, XLA cannot."""
    double, inside = types_pb2.DT_DOUBLE, math.erf(math.sqrt(2.0))
    drawn = _doubles(scope, key, shape, shape_type, dtype)
    drawn = scope.add("Mul", drawn, scope.constant(2 * inside, double), T=double)
    drawn = scope.add("Sub", drawn, scope.constant(inside, double), T=double)
    drawn = scope.add("Erfinv", drawn, T=double)
    return _rounded(scope, scope.add("Mul", drawn, scope.constant(math.sqrt(2.0), double), T=double), dtype)


def _sample_shape(scope: _Scope, logits: str, logits_type: int, samples: str) -> str:
    """Of logits [batch, classes], the shape int32[3] `[batch, samples, classes]`."""
    index = types_pb2.DT_INT32
    shape = scope.add("Shape", logits, T=logits_type, out_type=index)
    batch, classes = scope.outputs("Unpack", shape, num=2, T=index, axis=0)
    return scope.add("Pack", batch, samples, classes, N=3, T=index)


def _categorical(scope: _Scope, key: _Key, logits: str, logits_type: int, shape: str, output: int) -> str:
    """The class with the largest sum of its logit and a number from Gumbel's distribution, as XLA does it."""
    index = types_pb2.DT_INT32
    dtype = types_pb2.DT_DOUBLE if logits_type == types_pb2.DT_DOUBLE else types_pb2.DT_FLOAT
    drawn = _uniform(scope, key, shape, index, dtype)
    # Of zero, the logarithm would be as low as that of a class that must never be drawn.
    noise = scope.add("Maximum", drawn, scope.constant(1e-30, dtype), T=dtype)
    for _ in range(2):
        noise = scope.add("Neg", scope.add("Log", noise, T=dtype), T=dtype)
    logits = scope.cast(logits, logits_type, dtype)
    logits = scope.add("ExpandDims", logits, scope.constant(1, index), T=dtype, Tdim=index)
    total = scope.add("AddV2", logits, noise, T=dtype)
    return scope.add("ArgMax", total, scope.constant(2, index), T=dtype, Tidx=index, output_type=output)


def _reserve(
    scope: _Scope, state: str, last: str, shape: str, shape_type: int, place: _Place | None
) -> tuple[_Key, str]:
    """Takes counters from the state for a tensor of this shape, as a Generator does.

    A branch of a v1 conditional may not run, and nothing may wait for what does not run. For one inside, counters are
    taken before it, for more numbers than its shape can have, and led in.

    Returns:
      The key, and the name of the node that moved the state.
    """
    unsigned, index = types_pb2.DT_UINT64, types_pb2.DT_INT32
    if place is not None:
        size = scope.constant(_RESERVED, unsigned, outside=True)
    else:
        size = scope.cast(shape, shape_type, unsigned)
        size = scope.add("Prod", size, scope.constant([0], index), T=unsigned, Tidx=index)
    algorithm = scope.constant(_PHILOX, index, outside=True)
    before = scope.add("RngReadAndSkip", state, algorithm, size, *([f"^{last}"] if last else []))
    words = scope.add("Bitcast", before, T=types_pb2.DT_INT64, type=unsigned)
    branches = []
    while place is not None:
        assert place.branch is not None
        branches.append(place.branch)
        place = place.outer
    for predicate, port in reversed(branches):
        words = scope.outputs("Switch", words, predicate, T=unsigned)[port]
    sizes, axis = scope.constant([2, 1], index), scope.constant(0, index)
    counter, key = scope.outputs("SplitV", words, sizes, axis, num_split=2, T=unsigned, Tlen=index)
    return _Key(key, counter, scope.constant(_PHILOX, index)), _producer(before)


_FLOATING: Mapping[str, Callable[[_Scope, _Key, str, int, int], str]] = {
    "RandomStandardNormal": _normal,
    "RandomUniform": _uniform,
    "StatelessRandomNormal": _normal,
    "StatelessRandomNormalV2": _normal,
    "StatelessRandomUniform": _uniform,
    "StatelessRandomUniformV2": _uniform,
    "StatelessTruncatedNormal": _truncated_normal,
    "StatelessTruncatedNormalV2": _truncated_normal,
    "TruncatedNormal": _truncated_normal,
}
"""Ops that give floating numbers of a shape, their first input, and how these are made."""


def _drawn(
    scope: _Scope, node: node_def_pb2.NodeDef, state: str, last: str, anchor: _Anchor | None
) -> tuple[list[node_def_pb2.NodeDef], str]:
    """What takes the place of a stateful op, and the name of the node that moves the state.

    Args:
      scope: makes the nodes.
      node: one of `_DRAWS`.
      state: the variable's handle.
      last: the node that moves the state before, or empty.
      anchor: says in which v1 conditional the node is, if it is in one.
    """
    scope.begin(node, anchor)
    place = anchor.place if anchor is not None else None
    index = types_pb2.DT_INT32
    if node.op == "RandomShuffle":
        dtype, long = _type(node, "T"), types_pb2.DT_INT64
        shape = scope.add("Shape", node.input[0], T=dtype, out_type=index)
        shape = scope.add("Slice", shape, scope.constant([0], index), scope.constant([1], index), T=index, Index=index)
        key, last = _reserve(scope, state, last, shape, index, place)
        drawn = _integers(scope, key, shape, index, long)
        rows = scope.add("Reshape", shape, scope.constant([], index), T=index, Tshape=index)
        _, order = scope.outputs("TopKV2", drawn, rows, T=long, Tk=index, index_type=index)
        axis = scope.constant(0, index)
        result = scope.add("GatherV2", node.input[0], order, axis, Tparams=dtype, Tindices=index, Taxis=index)
    elif node.op == "Multinomial":
        dtype = _type(node, "output_dtype")
        logits, samples = node.input[:2]
        shape = _sample_shape(scope, logits, _type(node, "T"), samples)
        key, last = _reserve(scope, state, last, shape, index, place)
        result = _categorical(scope, key, logits, _type(node, "T"), shape, dtype)
    else:
        shape, shape_type = node.input[0], _type(node, "T")
        key, last = _reserve(scope, state, last, shape, shape_type, place)
        if node.op == "RandomUniformInt":
            dtype = _type(node, "Tout")
            result = scope.add(
                "StatelessRandomUniformIntV2",
                shape,
                key.key,
                key.counter,
                key.algorithm,
                *node.input[1:3],
                dtype=dtype,
                Tshape=shape_type,
            )
        else:
            dtype = _type(node, "dtype")
            result = _FLOATING[node.op](scope, key, shape, shape_type, dtype)
    return scope.finish(node, result, dtype), last


def _stateless(scope: _Scope, node: node_def_pb2.NodeDef, anchor: _Anchor | None) -> list[node_def_pb2.NodeDef]:
    """What takes the place of one of `_STATELESS`: TensorFlow's numbers, except where it draws again."""
    scope.begin(node, anchor)
    if node.op.endswith("V2"):
        shape_type, key = _type(node, "Tshape"), _Key(*node.input[1:4])
    else:
        shape_type = _type(node, "T")
        seed = node.input[2 if node.op == "StatelessMultinomial" else 1]
        word, counter = scope.outputs("StatelessRandomGetKeyCounter", seed, Tseed=_type(node, "Tseed"))
        key = _Key(word, counter, scope.constant(_PHILOX, types_pb2.DT_INT32))
    if node.op == "StatelessMultinomial":
        dtype = _type(node, "output_dtype")
        shape = _sample_shape(scope, node.input[0], _type(node, "T"), node.input[1])
        result = _categorical(scope, key, node.input[0], _type(node, "T"), shape, dtype)
    else:
        dtype = _type(node, "dtype")
        result = _FLOATING[node.op](scope, key, node.input[0], shape_type, dtype)
    return scope.finish(node, result, dtype)


def _type(node: node_def_pb2.NodeDef, key: str) -> int:
    """A dtype among a node's attributes; one that is its op's default may be left out."""
    if key in node.attr:
        return int(node.attr[key].type)
    return next(int(attr.default_value.type) for attr in _definition(node.op).attr if attr.name == key)


def _producer(operand: str) -> str:
    """The node, or the argument, that an input names; in a GraphDef's notation or in a function's."""
    return operand.removeprefix("^").partition(":")[0]


def _unused(name: str, used: Collection[str]) -> str:
    """The name, or the first of its variations that is free."""
    if name not in used:
        return name
    return next(other for other in (f"{name}_{i}" for i in itertools.count(1)) if other not in used)


def _order(nodes: Sequence[node_def_pb2.NodeDef]) -> list[int]:
    """Indices in the order of the nodes, each after those that it needs. What closes a v1 loop is not followed."""
    index = {node.name: i for i, node in enumerate(nodes)}
    entered = [False] * len(nodes)
    left = [False] * len(nodes)
    order: list[int] = []
    for root in range(len(nodes)):
        stack = [root]
        while stack:
            i = stack[-1]
            if not entered[i]:
                entered[i] = True
                needed = [index.get(_producer(operand)) for operand in reversed(nodes[i].input)]
                stack += (j for j in needed if j is not None and not entered[j] and nodes[j].op != "NextIteration")
                continue
            stack.pop()
            if not left[i]:
                left[i] = True
                order.append(i)
    return order


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a node is in v1 control flow: inside a branch or a loop, which may be inside another."""

    outer: _Place | None
    branch: tuple[str, int] | None
    """The predicate and the Switch's port; None for a loop."""
    depth: int
    looped: bool
    """Whether this or one around it is a loop, which nothing enters but through its `Enter`."""

    @staticmethod
    def inside(outer: _Place | None, branch: tuple[str, int] | None) -> _Place:
        """One deeper."""
        depth, looped = (outer.depth, outer.looped) if outer else (0, False)
        return _Place(outer, branch, depth + 1, looped or branch is None)


@dataclasses.dataclass(frozen=True)
class _Anchor:
    """Where a node is, and the input by which it is there."""

    place: _Place
    operand: str
    dtype: int
    """Of the operand if it comes from a Switch, which is itself outside; else 0."""


def _port(operand: str) -> int:
    """The port of a Switch that an input takes."""
    _, _, port = operand.partition(":")
    return int(port in ("1", "output_true:0"))


def _anchors(nodes: Sequence[node_def_pb2.NodeDef], order: Sequence[int]) -> dict[str, _Anchor]:
    """Finds the nodes that are inside v1 control flow."""
    anchors: dict[str, _Anchor] = {}
    if not any(node.op in _V1_ENTRIES for node in nodes):
        return anchors
    by_name = {node.name: node for node in nodes}
    for i in order:
        node = nodes[i]
        place, anchor, dtype = None, "", 0
        closes_loop = False
        for operand in node.input:
            name = _producer(operand)
            producer = by_name.get(name)
            found = anchors[name].place if name in anchors else None
            found_type = 0
            if producer is not None and not operand.startswith("^"):
                closes_loop |= producer.op == "NextIteration"
                if producer.op in ("Switch", "RefSwitch"):
                    found = _Place.inside(found, (producer.input[1], _port(operand)))
                    found_type = _type(producer, "T")
                elif producer.op == "_SwitchN":
                    found = _Place.inside(found, None)  # as little to be entered as a loop
                    found_type = _type(producer, "T")
            if found is not None and (place is None or found.depth > place.depth):
                place, anchor, dtype = found, operand, found_type
        if node.op in ("Enter", "RefEnter"):
            place, anchor = _Place.inside(place, None), anchor or node.input[0]
        elif node.op in ("Exit", "RefExit"):
            while place is not None and place.branch is not None:
                place = place.outer
            place = place.outer if place is not None else None
        elif node.op in ("Merge", "RefMerge") and not closes_loop:
            place = place.outer if place is not None else None
        if place is not None:
            anchors[node.name] = _Anchor(place, anchor if dtype else f"^{_producer(anchor)}", dtype)
    return anchors


class _Form(enum.IntEnum):
    """What a function does with the state."""

    PLAIN = 0
    """It knows nothing of it."""
    IGNORES = 1
    """It has the handle as its last argument, and leaves it alone: XLA's loops have no effects in their conditions."""
    TAKES = 2
    """It has the handle as its last argument, and draws."""
    RETURNS = 3
    """And has it as its last result: a loop's body."""


_CALLEES: Mapping[str, Sequence[tuple[str, _Form]]] = {
    "PartitionedCall": [("f", _Form.TAKES)],
    "StatefulPartitionedCall": [("f", _Form.TAKES)],
    "If": [("then_branch", _Form.TAKES), ("else_branch", _Form.TAKES)],
    "StatelessIf": [("then_branch", _Form.TAKES), ("else_branch", _Form.TAKES)],
    "Case": [("branches", _Form.TAKES)],
    "StatelessCase": [("branches", _Form.TAKES)],
    "While": [("cond", _Form.IGNORES), ("body", _Form.RETURNS)],
    "StatelessWhile": [("cond", _Form.IGNORES), ("body", _Form.RETURNS)],
}
"""The functions of ops that can hand on one more argument, by their attributes."""


def _mentioned(node: node_def_pb2.NodeDef) -> Iterator[tuple[str, Any]]:
    """All functions in a node's attributes, each with the attribute's name and as a `NameAttrList`."""
    for key in sorted(node.attr):  # a proto's map has no order that lasts
        value = node.attr[key]
        if value.HasField("func"):
            yield key, value.func
        elif value.HasField("list"):
            for func in value.list.func:
                yield key, func


@dataclasses.dataclass(frozen=True)
class _Body:
    """What there is to do in the top graph, or in a function's body; nodes by name."""

    sites: tuple[str, ...]
    """Draws and calls, in the order in which they run."""
    draws: frozenset[str]
    calls: Mapping[str, tuple[tuple[str, _Form], ...]]
    """Of each node that can hand on the state, the functions that would get it."""
    barred: Mapping[str, str]
    """Functions that cannot get it from here, and why."""
    stateless: tuple[str, ...]
    anchors: Mapping[str, _Anchor]
    """Those of either that are inside v1 control flow."""
    left: tuple[Left, ...]


def _runs_of(graph: graph_pb2.GraphDef, runs: Sequence[Collection[str]]) -> dict[str, int]:
    """Numbers nodes by the run that needs them, if there are several runs."""
    result: dict[str, int] = {}
    if len(runs) < 2:
        return result
    nodes = {node.name: node for node in graph.node}
    for run, fetches in enumerate(runs):
        seen: set[str] = set()
        pending = list(fetches)
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                result[name] = run if name not in result else _SEVERAL
                pending += (_producer(operand) for operand in nodes[name].input)
    return result


class _Rewriter:
    """Looks at each body that is reached, finds those that draw, and writes them anew."""

    def __init__(self, graph: graph_pb2.GraphDef, runs: Sequence[Collection[str]]) -> None:
        self._graph = graph
        self._runs = _runs_of(graph, runs)
        """Of each node of the graph, the run that needs it."""
        self._library = {function.signature.name: function for function in graph.library.function}
        self._bodies: dict[str, _Body] = {}
        self._drawing: set[str] = set()
        self._names: dict[tuple[str, _Form], str] = {}
        """Names of the functions to write, by their names before."""
        variables = {
            node.attr["shared_name"].s.decode()
            for node in graph.node
            if node.op == "VarHandleOp" and "shared_name" in node.attr
        }
        self._variable = _unused(VARIABLE, {*variables, *(node.name for node in graph.node)})

    def run(self) -> Seeded:
        """Does all of it, once."""
        pending = [_TOP]
        while pending:
            name = pending.pop()
            if name not in self._bodies:
                body = self._bodies[name] = self._look(name)
                pending += [callee for callees in body.calls.values() for callee, _ in callees]
                pending += body.barred
        self._find_drawing()
        reasons = self._choose_forms()
        left = [site for body in self._bodies.values() for site in body.left]
        for (name, form), reason in reasons.items():
            if form < _Form.TAKES and (kept := self._bodies[name].draws):
                sites = [node for node in self._nodes(name) if node.name in kept]
                left += [Left(_qualified(name, node.name), node.op, reason) for node in sites]
        draws = _TOP in self._drawing
        nodes, _ = self._write(_TOP, _Form.TAKES if draws else _Form.PLAIN, self._variable)
        result = graph_pb2.GraphDef()
        result.CopyFrom(self._graph)
        del result.node[:]
        result.node.extend([_handle(self._variable), *nodes] if draws else nodes)
        del result.library.function[:]
        for function in self._graph.library.function:
            forms = [form for form in _Form if (function.signature.name, form) in self._names]
            result.library.function.extend(self._function(function, form) for form in forms or [_Form.PLAIN])
        return Seeded(result, self._variable if draws else None, tuple(sorted(set(left))))

    def _nodes(self, name: str) -> Sequence[node_def_pb2.NodeDef]:
        nodes: Sequence[node_def_pb2.NodeDef] = self._graph.node if name == _TOP else self._library[name].node_def
        return nodes

    def _callees(self, node: node_def_pb2.NodeDef) -> tuple[tuple[str, _Form], ...]:
        """The functions that would get the state through a node, in the form that they need."""
        if node.op in self._library:
            return ((node.op, _Form.TAKES),)
        forms = dict(_CALLEES.get(node.op, ()))
        return tuple((func.name, forms[key]) for key, func in _mentioned(node) if key in forms)

    def _look(self, name: str) -> _Body:
        """Sorts the nodes of a body into those that must be rewritten, and those that are left."""
        nodes = self._nodes(name)
        interesting = [
            node
            for node in nodes
            if node.op in _DRAWS
            or node.op in _LEFT
            or node.op in _STATELESS
            or node.op in self._library
            or any(func.name in self._library for _, func in _mentioned(node))
        ]
        if not interesting:
            return _Body((), frozenset(), {}, {}, (), {}, ())
        order = _order(nodes)
        anchors = _anchors(nodes, order)
        draws: set[str] = set()
        calls: dict[str, tuple[tuple[str, _Form], ...]] = {}
        barred: dict[str, str] = {}
        left: list[Left] = []
        for node in interesting:
            if node.op in _LEFT:
                left.append(
                    Left(_qualified(name, node.name), node.op, "TensorFlow and XLA have no way of drawing it in common")
                )
            elif node.op in _DRAWS and node.name in anchors and anchors[node.name].place.looped:
                left.append(Left(_qualified(name, node.name), node.op, "it is in a while loop of TensorFlow 1"))
            elif node.op in _DRAWS:
                draws.add(node.name)
            callees = self._callees(node)
            if callees and node.name not in anchors:
                calls[node.name] = callees
            elif callees:
                barred |= {callee: "its caller is in TensorFlow 1 control flow" for callee, _ in callees}
            handed = {callee for callee, _ in callees}
            for _, func in _mentioned(node):
                if func.name in self._library and func.name not in handed:
                    barred[func.name] = f"{node.op} calls its function"
        stateless = tuple(node.name for node in interesting if node.op in _STATELESS)
        return _Body(
            tuple(nodes[i].name for i in order if nodes[i].name in draws or nodes[i].name in calls),
            frozenset(draws),
            calls,
            barred,
            stateless,
            {name: anchors[name] for name in (*draws, *stateless) if name in anchors},
            tuple(left),
        )

    def _find_drawing(self) -> None:
        """Fills `_drawing` with the bodies that draw, themselves or through calls."""
        callers: dict[str, list[str]] = defaultdict(list)
        for name, body in self._bodies.items():
            for callees in body.calls.values():
                for callee, form in callees:
                    if form != _Form.IGNORES:
                        callers[callee].append(name)
        pending = [name for name, body in self._bodies.items() if body.draws]
        while pending:
            name = pending.pop()
            if name not in self._drawing:
                self._drawing.add(name)
                pending += callers[name]

    def _hands_on(self, callees: Sequence[tuple[str, _Form]]) -> bool:
        return any(callee in self._drawing for callee, form in callees if form != _Form.IGNORES)

    def _choose_forms(self) -> dict[tuple[str, _Form], str]:
        """Fills `_names`; returns in which forms each body is needed, and why if that is without the state."""
        reasons: dict[tuple[str, _Form], str] = {}
        todo = [(_TOP, _Form.TAKES if _TOP in self._drawing else _Form.PLAIN, "")]
        while todo:
            name, form, reason = todo.pop()
            if (name, form) in reasons:
                continue
            reasons[name, form] = reason
            body = self._bodies[name]
            todo += [(callee, _Form.PLAIN, why) for callee, why in body.barred.items()]
            for callees in body.calls.values():
                handed = form >= _Form.TAKES and self._hands_on(callees)
                for callee, wanted in callees:
                    why = reason or (_CONDITION if wanted == _Form.IGNORES else "")
                    todo.append((callee, wanted if handed else _Form.PLAIN, why))
        used = set(self._library)
        for name, form in sorted(reasons):
            if name != _TOP:
                # The form that comes first keeps the name, and so the functions that call it their bytes.
                first = not any((name, other) in self._names for other in _Form)
                self._names[name, form] = name if first else _unused(f"{name}_random", used)
                used.add(self._names[name, form])
        return reasons

    def _write(self, name: str, form: _Form, state: str) -> tuple[Sequence[node_def_pb2.NodeDef], str]:
        """The nodes of a body that has the state's handle as `state`, and the name of the last node that draws."""
        nodes, body = self._nodes(name), self._bodies[name]
        by_name = {node.name: node for node in nodes}
        arguments = () if name == _TOP else (arg.name for arg in self._library[name].signature.input_arg)
        scope = _Scope(nodes, (*arguments, state), function=name != _TOP)
        written: dict[str, list[node_def_pb2.NodeDef]] = {}
        last: dict[int, str] = defaultdict(str)
        for site in body.sites if form >= _Form.TAKES else ():
            node = by_name[site]
            run = self._runs.get(site, 0) if name == _TOP else 0
            if run == _SEVERAL and (site in body.draws or self._hands_on(body.calls[site])):
                raise ValueError(f"{site} draws for two runs")
            if site in body.draws:
                written[site], last[run] = _drawn(scope, node, state, last[run], body.anchors.get(site))
            elif self._hands_on(body.calls[site]):
                written[site] = [self._handing_on(node, state, last[run])]
                last[run] = site
        for site in body.stateless:
            written[site] = _stateless(scope, by_name[site], body.anchors.get(site))
        if not written:
            return nodes, ""
        result = [new for node in nodes for new in written.get(node.name, [node])]
        return [*scope.constants, *result], last[0]

    def _handing_on(self, node: node_def_pb2.NodeDef, state: str, last: str) -> node_def_pb2.NodeDef:
        """A call, loop, or conditional with one more operand, after the draw before it."""
        result = node_def_pb2.NodeDef()
        result.CopyFrom(node)
        data = sum(not operand.startswith("^") for operand in node.input)
        controls = list(node.input[data:])
        del result.input[data:]
        result.input.extend([state, *controls])
        if last and f"^{last}" not in controls:
            result.input.append(f"^{last}")
        if node.op in self._library:
            result.op = self._names[node.op, _Form.TAKES]
            return result
        forms = dict(_CALLEES[node.op])
        for key, func in _mentioned(result):
            if key in forms:
                func.name = self._names[func.name, forms[key]]
        result.op = _STATEFUL.get(node.op, node.op)
        loop = result.op == "While"
        result.attr["T" if loop else "Tin"].list.type.append(types_pb2.DT_RESOURCE)
        for key in ("output_shapes", "_output_shapes"):
            if loop and key in result.attr and result.attr[key].list.shape:
                result.attr[key].list.shape.add()
        return result

    def _function(self, function: function_pb2.FunctionDef, form: _Form) -> function_pb2.FunctionDef:
        """A function in one of the forms that it is needed in."""
        name = function.signature.name
        if (name, form) not in self._names or (form == _Form.PLAIN and not self._bodies[name].stateless):
            return function
        signature = function.signature
        outputs = {arg.name for arg in signature.output_arg}
        used = {arg.name for arg in signature.input_arg} | outputs | {node.name for node in function.node_def}
        argument = _unused(_ARGUMENT, used)
        nodes, last = self._write(name, form, argument)
        result = function_pb2.FunctionDef()
        result.CopyFrom(function)
        result.signature.name = self._names[name, form]
        del result.node_def[:]
        result.node_def.extend(nodes)
        if form == _Form.PLAIN:
            return result
        result.signature.input_arg.add(name=argument, type=types_pb2.DT_RESOURCE)
        if "_input_shapes" in result.attr:
            result.attr["_input_shapes"].list.shape.add()
        if last:
            result.signature.is_stateful = True
            # Nothing that a function returns needs its last draw; without this it might not run, or run too late.
            effect = _unused(_ARGUMENT, signature.control_output)
            result.signature.control_output.append(effect)
            result.control_ret[effect] = last
        if form == _Form.RETURNS:
            output = _unused(f"{argument}_out", used)
            result.signature.output_arg.add(name=output, type=types_pb2.DT_RESOURCE)
            result.ret[output] = argument
            if last:
                # The next round gets the handle after this one's last draw, however the loop is run.
                scope = _Scope(result.node_def, {*used, argument}, function=True)
                result.ret[output] = scope.add("Identity", argument, f"^{last}", T=types_pb2.DT_RESOURCE)
                result.node_def.extend(scope.nodes)
        return result


def _handle(name: str) -> node_def_pb2.NodeDef:
    """The state's variable."""
    scope = _Scope((), (), function=False)
    scope.add("VarHandleOp", dtype=types_pb2.DT_INT64, shape=(3,), shared_name=name)
    scope.nodes[0].name = name
    return scope.nodes[0]


def _qualified(function: str, node: str) -> str:
    return f"{function}/{node}" if function != _TOP else node
