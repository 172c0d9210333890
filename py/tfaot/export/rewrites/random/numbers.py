"""Makes random numbers from integers that TensorFlow and XLA draw identically. Pure.

Our own nodes compute floating-point numbers from the integers, because XLA's kernels use different bits than TensorFlow's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from tensorflow.core.framework import node_def_pb2, types_pb2

from tfaot.export.rewrites.random.builder import Builder
from tfaot.export.rewrites.random.control_flow import Anchor, Place
from tfaot.graph.names import producer
from tfaot.graph.ops import type_of

_PHILOX = 1
"""`tf.random.Algorithm.PHILOX`. It is fixed here, because a device that chooses for itself may choose another one."""

DRAWS = frozenset(
    {"Multinomial", "RandomShuffle", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal"}
)
"""Stateful ops that XLA compiles and that this file can express: all of XLA's but one."""

STATELESS = frozenset(
    {
        "StatelessMultinomial",
        "StatelessRandomGetKeyCounter",
        "StatelessRandomGetKeyCounterAlg",
        "StatelessRandomNormal",
        "StatelessRandomNormalV2",
        "StatelessRandomUniform",
        "StatelessRandomUniformFullInt",
        "StatelessRandomUniformInt",
        "StatelessRandomUniformV2",
        "StatelessTruncatedNormal",
        "StatelessTruncatedNormalV2",
    }
)
"""Stateless ops for which XLA makes other numbers than TensorFlow: all that take a seed, and those of floating-point numbers.

From a key and a counter, both make the same integers. From a seed, XLA uses the low 32 bits only.
"""

_GETS_KEY: Mapping[str, tuple[str, ...]] = {
    "StatelessRandomGetKeyCounter": ("key", "counter"),
    "StatelessRandomGetKeyCounterAlg": ("key", "counter", "alg"),
}
"""The outputs of ops that only make a key from a seed."""

_SCRAMBLE = 0x02461E293EC8F720
"""The key with which TensorFlow draws a key and a counter from a seed."""

_RESERVED = 1 << 40
"""How many numbers a draw inside a branch reserves if its size is unknown: more than any tensor has."""

_UNIT = {
    types_pb2.DT_HALF: (types_pb2.DT_INT32, 10),
    types_pb2.DT_BFLOAT16: (types_pb2.DT_INT32, 7),
    types_pb2.DT_FLOAT: (types_pb2.DT_INT32, 23),
    types_pb2.DT_DOUBLE: (types_pb2.DT_INT64, 52),
}
"""The integers from which to make a number in [0, 1), and how many of their bits TensorFlow uses: a mantissa's."""


@dataclasses.dataclass(frozen=True)
class Key:
    """The source of random integers: inputs of stateless ops, uint64[1] and uint64[2], and the algorithm."""

    key: str
    counter: str
    algorithm: str


def _key_of(build: Builder, seed: str, seed_type: int) -> Key:
    """Makes a key and a counter from a seed of two integers of up to 64 bits, as TensorFlow's kernels do."""
    unsigned, long, index = types_pb2.DT_UINT64, types_pb2.DT_INT64, types_pb2.DT_INT32
    words = build.add("Bitcast", build.cast(seed, seed_type, long), T=long, type=unsigned)
    source = Key(build.constant([_SCRAMBLE], unsigned), words, build.constant(_PHILOX, index))
    drawn = _integers(build, source, build.constant([2], index), index, unsigned)
    key, upper = build.outputs(
        "SplitV", drawn, build.constant([1, 1], index), build.constant(0, index), num_split=2, T=unsigned, Tlen=index
    )
    counter = build.add("ConcatV2", build.constant([0], unsigned), upper, build.constant(0, index), N=2, T=unsigned)
    return Key(key, counter, source.algorithm)


def _integers(build: Builder, key: Key, shape: str, shape_type: int, dtype: int) -> str:
    """Draws integers with all bits random."""
    return build.add(
        "StatelessRandomUniformFullIntV2", shape, key.key, key.counter, key.algorithm, dtype=dtype, Tshape=shape_type
    )


def _within(build: Builder, key: Key, shape: str, shape_type: int, limits: Sequence[str], dtype: int) -> str:
    """Draws integers in a range."""
    return build.add(
        "StatelessRandomUniformIntV2",
        shape,
        key.key,
        key.counter,
        key.algorithm,
        *limits,
        dtype=dtype,
        Tshape=shape_type,
    )


def _uniform(build: Builder, key: Key, shape: str, shape_type: int, dtype: int) -> str:
    """Draws numbers in [0, 1), the same as TensorFlow."""
    integer, bits = _UNIT[dtype]
    drawn = _integers(build, key, shape, shape_type, integer)
    if dtype == types_pb2.DT_DOUBLE:
        # Of two words, TensorFlow takes the first as the upper one here, but as the lower one in an integer.
        word = build.constant(32, integer)
        upper = build.add("BitwiseAnd", drawn, build.constant((1 << 20) - 1, integer), T=integer)
        upper = build.add("LeftShift", upper, word, T=integer)
        lower = build.add("RightShift", drawn, word, T=integer)
        lower = build.add("BitwiseAnd", lower, build.constant((1 << 32) - 1, integer), T=integer)
        mantissa = build.add("BitwiseOr", upper, lower, T=integer)
    else:
        mantissa = build.add("BitwiseAnd", drawn, build.constant((1 << bits) - 1, integer), T=integer)
    return build.add("Mul", build.cast(mantissa, integer, dtype), build.constant(2.0**-bits, dtype), T=dtype)


def _doubles(build: Builder, key: Key, shape: str, shape_type: int, dtype: int) -> str:
    """Draws numbers in [0, 1) for results of this dtype, but as doubles.

    TensorFlow and XLA have different errors in the last bits of logarithms and similar functions. Rounding from double
    to float removes the difference, except about once in a hundred million times.
    """
    unit = types_pb2.DT_DOUBLE if dtype == types_pb2.DT_DOUBLE else types_pb2.DT_FLOAT
    return build.cast(_uniform(build, key, shape, shape_type, unit), unit, types_pb2.DT_DOUBLE)


def _rounded(build: Builder, value: str, dtype: int) -> str:
    """Rounds a double to another dtype. Narrow ones go through float, as in TensorFlow."""
    if dtype == types_pb2.DT_DOUBLE:
        return value
    value = build.cast(value, types_pb2.DT_DOUBLE, types_pb2.DT_FLOAT)
    return build.cast(value, types_pb2.DT_FLOAT, dtype)


def _normal(build: Builder, key: Key, shape: str, shape_type: int, dtype: int) -> str:
    """Applies the Box-Muller transform in pairs, with TensorFlow's lower bound for the logarithm."""
    index, double = shape_type, types_pb2.DT_DOUBLE
    one, two = build.constant(1, index), build.constant(2, index)
    size = build.add("Prod", shape, build.constant([0], types_pb2.DT_INT32), T=index)
    pairs = build.add("FloorDiv", build.add("AddV2", size, one, T=index), two, T=index)
    drawn = _doubles(build, key, build.add("Pack", pairs, two, N=2, T=index), index, dtype)
    radius, angle = build.outputs("Unpack", drawn, num=2, T=double, axis=1)
    radius = build.add("Maximum", radius, build.constant(1e-7, double), T=double)
    radius = build.add("Mul", build.add("Log", radius, T=double), build.constant(-2.0, double), T=double)
    radius = build.add("Sqrt", radius, T=double)
    angle = build.add("Mul", angle, build.constant(2 * math.pi, double), T=double)
    parts = [build.add("Mul", build.add(op, angle, T=double), radius, T=double) for op in ("Sin", "Cos")]
    flat = build.add("Pack", *parts, N=2, T=double, axis=1)
    flat = build.add("Reshape", flat, build.constant([-1], index), T=double, Tshape=index)
    size = build.add("Reshape", size, build.constant([1], index), T=index, Tshape=index)
    flat = build.add("Slice", flat, build.constant([0], index), size, T=double, Index=index)
    return _rounded(build, build.add("Reshape", flat, shape, T=double, Tshape=index), dtype)


def _truncated_normal(build: Builder, key: Key, shape: str, shape_type: int, dtype: int) -> str:
    """Inverts the normal distribution between -2 and 2. TensorFlow draws again until a number fits; XLA can't."""
    double, inside = types_pb2.DT_DOUBLE, math.erf(math.sqrt(2.0))
    drawn = _doubles(build, key, shape, shape_type, dtype)
    drawn = build.add("Mul", drawn, build.constant(2 * inside, double), T=double)
    drawn = build.add("Sub", drawn, build.constant(inside, double), T=double)
    drawn = build.add("Erfinv", drawn, T=double)
    return _rounded(build, build.add("Mul", drawn, build.constant(math.sqrt(2.0), double), T=double), dtype)


def _sample_shape(build: Builder, logits: str, logits_type: int, samples: str) -> str:
    """Returns the shape int32[3] `[batch, samples, classes]` for logits [batch, classes]."""
    index = types_pb2.DT_INT32
    shape = build.add("Shape", logits, T=logits_type, out_type=index)
    batch, classes = build.outputs("Unpack", shape, num=2, T=index, axis=0)
    return build.add("Pack", batch, samples, classes, N=3, T=index)


def _categorical(build: Builder, key: Key, logits: str, logits_type: int, shape: str, output: int) -> str:
    """Returns the class with the largest sum of its logit and a number from Gumbel's distribution, as XLA does."""
    index = types_pb2.DT_INT32
    dtype = types_pb2.DT_DOUBLE if logits_type == types_pb2.DT_DOUBLE else types_pb2.DT_FLOAT
    drawn = _uniform(build, key, shape, index, dtype)
    # The logarithm of zero would be as low as that of a class that must never be drawn.
    noise = build.add("Maximum", drawn, build.constant(1e-30, dtype), T=dtype)
    for _ in range(2):
        noise = build.add("Neg", build.add("Log", noise, T=dtype), T=dtype)
    logits = build.cast(logits, logits_type, dtype)
    logits = build.add("ExpandDims", logits, build.constant(1, index), T=dtype, Tdim=index)
    total = build.add("AddV2", logits, noise, T=dtype)
    return build.add("ArgMax", total, build.constant(2, index), T=dtype, Tidx=index, output_type=output)


def _reserve(
    build: Builder, state: str, last: str, shape: str, shape_type: int, place: Place | None
) -> tuple[Key, str]:
    """Reserves counters from the state for a tensor of this shape, as a Generator does.

    A branch of a v1 conditional may not run, and nothing may wait for something that doesn't run. For a draw inside a
    branch, counters are reserved before the branch, for more numbers than its shape can have, and passed in.

    Returns:
      The key, and the name of the node that advances the state.
    """
    unsigned, index = types_pb2.DT_UINT64, types_pb2.DT_INT32
    if place is not None:
        size = build.constant(_RESERVED, unsigned, outside=True)
    else:
        size = build.cast(shape, shape_type, unsigned)
        size = build.add("Prod", size, build.constant([0], index), T=unsigned, Tidx=index)
    algorithm = build.constant(_PHILOX, index, outside=True)
    before = build.add("RngReadAndSkip", state, algorithm, size, *([f"^{last}"] if last else []))
    words = build.add("Bitcast", before, T=types_pb2.DT_INT64, type=unsigned)
    branches = []
    while place is not None:
        assert place.branch is not None
        branches.append(place.branch)
        place = place.outer
    for predicate, port in reversed(branches):
        words = build.outputs("Switch", words, predicate, T=unsigned)[port]
    sizes, axis = build.constant([2, 1], index), build.constant(0, index)
    counter, key = build.outputs("SplitV", words, sizes, axis, num_split=2, T=unsigned, Tlen=index)
    return Key(key, counter, build.constant(_PHILOX, index)), producer(before)


_FLOATING: Mapping[str, Callable[[Builder, Key, str, int, int], str]] = {
    "RandomStandardNormal": _normal,
    "RandomUniform": _uniform,
    "StatelessRandomNormal": _normal,
    "StatelessRandomUniform": _uniform,
    "StatelessTruncatedNormal": _truncated_normal,
    "TruncatedNormal": _truncated_normal,
}
"""Ops that return floating-point numbers with the shape in their first input, and the functions that make the numbers."""


def drawn(
    build: Builder, node: node_def_pb2.NodeDef, state: str, last: str, anchor: Anchor | None
) -> tuple[list[node_def_pb2.NodeDef], str]:
    """Builds the replacement of a stateful op. Also returns the name of the node that advances the state.

    Args:
      build: makes the nodes.
      node: one of `DRAWS`.
      state: the variable's handle.
      last: the node that last advanced the state, or empty.
      anchor: the v1 conditional that contains the node, if any.
    """
    build.begin(node, anchor)
    place = anchor.place if anchor is not None else None
    index = types_pb2.DT_INT32
    if node.op == "RandomShuffle":
        dtype, long = type_of(node, "T"), types_pb2.DT_INT64
        shape = build.add("Shape", node.input[0], T=dtype, out_type=index)
        shape = build.add("Slice", shape, build.constant([0], index), build.constant([1], index), T=index, Index=index)
        key, last = _reserve(build, state, last, shape, index, place)
        drawn = _integers(build, key, shape, index, long)
        rows = build.add("Reshape", shape, build.constant([], index), T=index, Tshape=index)
        _, order = build.outputs("TopKV2", drawn, rows, T=long, Tk=index, index_type=index)
        axis = build.constant(0, index)
        result = build.add("GatherV2", node.input[0], order, axis, Tparams=dtype, Tindices=index, Taxis=index)
    elif node.op == "Multinomial":
        dtype = type_of(node, "output_dtype")
        logits, samples = node.input[:2]
        shape = _sample_shape(build, logits, type_of(node, "T"), samples)
        key, last = _reserve(build, state, last, shape, index, place)
        result = _categorical(build, key, logits, type_of(node, "T"), shape, dtype)
    else:
        shape, shape_type = node.input[0], type_of(node, "T")
        key, last = _reserve(build, state, last, shape, shape_type, place)
        if node.op == "RandomUniformInt":
            dtype = type_of(node, "Tout")
            result = _within(build, key, shape, shape_type, node.input[1:3], dtype)
        else:
            dtype = type_of(node, "dtype")
            result = _FLOATING[node.op](build, key, shape, shape_type, dtype)
    return build.finish(node, result, dtype), last


def stateless(build: Builder, node: node_def_pb2.NodeDef, anchor: Anchor | None) -> list[node_def_pb2.NodeDef]:
    """Builds the replacement of one of `STATELESS`. It gives TensorFlow's numbers, except where TensorFlow draws again."""
    build.begin(node, anchor)
    op, inputs = node.op.removesuffix("V2"), node.input
    if op in _GETS_KEY:
        key = _key_of(build, inputs[0], type_of(node, "Tseed"))
        return build.finish_all(node, dict(zip(_GETS_KEY[op], dataclasses.astuple(key), strict=False)))
    if op != node.op:
        shape_type, key = type_of(node, "Tshape"), Key(*inputs[1:4])
    else:
        shape_type = type_of(node, "T")
        key = _key_of(build, inputs[2 if op == "StatelessMultinomial" else 1], type_of(node, "Tseed"))
    dtype = type_of(node, "output_dtype" if op == "StatelessMultinomial" else "dtype")
    if op == "StatelessMultinomial":
        shape = _sample_shape(build, inputs[0], shape_type, inputs[1])
        result = _categorical(build, key, inputs[0], shape_type, shape, dtype)
    elif op == "StatelessRandomUniformFullInt":
        result = _integers(build, key, inputs[0], shape_type, dtype)
    elif op == "StatelessRandomUniformInt":
        result = _within(build, key, inputs[0], shape_type, inputs[2:4], dtype)
    else:
        result = _FLOATING[op](build, key, inputs[0], shape_type, dtype)
    return build.finish(node, result, dtype)
