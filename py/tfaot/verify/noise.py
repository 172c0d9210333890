"""Adds rounding errors of a chosen size to a model: Monte Carlo arithmetic on a GraphDef.

How far may a compiler's result deviate from TensorFlow's? As far as correctly rounded float32 arithmetic can move it: another
order of sums, a fused multiply-add, another approximation of `exp`. `noisy` builds a graph that measures this. After every
operation that rounds, it multiplies by `1 + amplitude * scale * r`, where `r` is random with mean 0 and variance 1, and `scale` is
the operation's standard error in units of its dtype's rounding error. With amplitude 0, the factor is exactly 1, and the graph is a
reference. With amplitude 1, each run is a sample of the possible results of float32 arithmetic.
The method is due to D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997.

A sum of k terms, added one after another, has two kinds of errors (N. J. Higham, "Accuracy and Stability of Numerical
Algorithms", 2nd ed., 2002, section 4.2). If partial sums grow like the sum itself, the standard deviation is
`u |y| sqrt(k / 3)`. If terms have random signs, it is `u sqrt(k / 2) sqrt(sum of squares)`. `u` is the standard deviation of one
rounding. The first kind is a factor on the result. The second is equivalent to factors on the terms, so it is injected into one
operand of a product. A sum in which no partial sum needs to be rounded, such as a count, has no errors.

In a precise graph, all floating-point values are float64, so the reference is far more exact than anything it is compared with.
Operations without a float64 kernel run in their own dtype between two casts. A graph that isn't precise keeps its dtypes. That
works for any model, but needs an amplitude well above 1.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, graph_pb2, node_def_pb2, op_def_pb2, types_pb2

from tfaot.graph.attributes import write_attributes
from tfaot.graph.edits import Scope
from tfaot.graph.ops import SUMMED, definition, dtypes_of, fill_in_defaults, results, runs_on_cpu
from tfaot.verify.helpers import contracted, trace_batch_norm, trace_count, trace_noise, trace_rounds
from tfaot.verify.roundings import (
    APPLIED,
    APPROXIMATE,
    CANCELS,
    DIGITS,
    EXACT,
    GRIDS,
    ROUNDED_ONCE,
    ROUNDED_OPERAND,
    SHIFTED_OPERAND,
    SPREAD,
    STEEP,
    STEEP64,
    UNITS,
    UPDATES,
    sums,
    terms,
)

_WIDE = {
    types_pb2.DT_BFLOAT16: types_pb2.DT_DOUBLE,
    types_pb2.DT_HALF: types_pb2.DT_DOUBLE,
    types_pb2.DT_FLOAT: types_pb2.DT_DOUBLE,
    types_pb2.DT_COMPLEX64: types_pb2.DT_COMPLEX128,
}

_KEPT = frozenset(
    """
    Bitcast Const FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars
    FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient LinSpace
    NextAfter Range XlaCallModule
    """.split()  # noqa: SIM905
)
"""Operations that keep their dtype, because their meaning depends on it: the bits of a value, the number of values, or a program.
Constants keep theirs because a GraphDef has at most 2 GB."""


_STREAM = 11
"""The second seed of all random ops. The first tells them apart."""


@dataclasses.dataclass(frozen=True)
class Noisy:
    """A graph with noise."""

    graph: graph_pb2.GraphDef
    tensors: Mapping[str, str]
    """Where the main graph's tensors have moved, `node:port` by `node:port`. Other tensors stay where they were."""

    def tensor(self, name: str) -> str:
        """Returns the new name of the original graph's tensor `name`."""
        return self.tensors.get(name, name)


def other_stream(noisy: Noisy) -> Noisy:
    """Returns the same graph with other random numbers, independent of the first graph's."""
    graph = graph_pb2.GraphDef()
    graph.CopyFrom(noisy.graph)
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if node.op == "RandomUniform" and node.attr["seed2"].i == _STREAM:
                node.attr["seed2"].i = _STREAM + 1
    return Noisy(graph, noisy.tensors)


class UnsupportedError(Exception):
    """The graph contains something that can't be widened to float64."""


def noisy(graph: graph_pb2.GraphDef, *, precise: bool) -> Noisy:
    """Returns the graph with noise after each operation that rounds.

    Args:
      graph: it isn't modified.
      precise: whether floating values become float64; placeholders and variables too.

    Raises:
      UnsupportedError: the graph can't be made precise.
    """
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph)
    pass_ = _Pass(result, precise)
    tensors = pass_.main()
    return Noisy(result, tensors)


class _Pass:
    """One rewrite of a graph and its functions."""

    def __init__(self, graph: graph_pb2.GraphDef, precise: bool) -> None:
        self.graph = graph
        self.precise = precise
        self.signatures = {function.signature.name: function.signature for function in graph.library.function}
        self.sites = 0
        self._helpers: dict[tuple[Any, ...], str] = {}

    def main(self) -> dict[str, str]:
        """Rewrites everything. Returns the new locations of the main graph's tensors."""
        functions = list(self.graph.library.function)
        # Bodies are rewritten with reference to signatures, so these must not change before the end.
        self.signatures = {name: _copy(signature) for name, signature in self.signatures.items()}
        for function in functions:
            if any(attr.type in ("type", "list(type)") for attr in function.signature.attr):
                raise UnsupportedError(f"function {function.signature.name} is generic")
            self.function(function)
        return _Rewriting(self, Scope.graph(self.graph), None).rewrite()

    def function(self, function: function_pb2.FunctionDef, *, as_type: int | None = None) -> None:
        """Rewrites a function's body, and widens its signature."""
        rewriting = _Rewriting(self, Scope.function(function), _copy(function.signature), as_type=as_type)
        places = rewriting.rewrite()
        for name in [*function.control_ret]:
            function.control_ret[name] = rewriting.after.get(function.control_ret[name], function.control_ret[name])
        for name in [*function.ret]:  # a proto's map must not be written while it is iterated over
            function.ret[name] = places.get(function.ret[name], function.ret[name])
        for arg in (*function.signature.input_arg, *function.signature.output_arg):
            arg.type = self.wide(arg.type)
        for attrs in function.arg_attr.values():
            for name in ("_handle_dtypes", "_handle_shapes"):
                if name in attrs.attr:
                    del attrs.attr[name]

    def wide(self, dtype: int) -> int:
        """Returns the dtype that replaces another in this graph."""
        return _WIDE.get(dtype, dtype) if self.precise else dtype

    def helper(self, key: tuple[Any, ...], trace: Callable[[], Any], *, as_type: int | None = None) -> str:
        """Adds the ConcreteFunction that `trace` builds to the library, once. Returns its name."""
        if key not in self._helpers:
            with tf.Graph().as_default():
                concrete = trace()
            library = concrete.graph.as_graph_def().library
            own = function_pb2.FunctionDef()
            own.CopyFrom(concrete.function_def)
            own.signature.name = name = f"tfaot_{key[0]}_{len(self._helpers)}"
            if library.function:
                raise AssertionError(f"{key} calls functions")
            self.signatures[name] = _copy(own.signature)
            self._helpers[key] = name
            if as_type is not None:
                self.function(own, as_type=as_type)
            self.graph.library.function.append(own)
        return self._helpers[key]


class _Rewriting:
    """The nodes of the main graph or of a function during the rewrite."""

    def __init__(
        self, owner: _Pass, scope: Scope, signature: op_def_pb2.OpDef | None, *, as_type: int | None = None
    ) -> None:
        self._pass = owner
        self._scope = scope
        self._signature = signature
        self._as_type = as_type
        """In a body that is float64 throughout, the dtype whose rounding errors it has."""
        self._added: list[node_def_pb2.NodeDef] = []
        self._counts: list[node_def_pb2.NodeDef] = []
        """Added nodes whose operands are old references."""
        self._counted: dict[str, str] = {}
        """The numbers of terms, by node."""
        self.after: dict[str, str] = {}
        """Nodes to wait for instead of an operation that changes variables."""
        self._changed: dict[str, int] = {}
        """The dtypes that operations which change variables have in the original graph."""
        self._types: dict[str, int] = {}

    def rewrite(self) -> dict[str, str]:
        """Rewrites all nodes in place. Returns new references to values by old ones."""
        for arg in self._signature.input_arg if self._signature else ():
            self._types[arg.name] = arg.type
        originals = list(self._scope.nodes)
        outputs = {}
        for node in originals:
            fill_in_defaults(node, self._op_def(node))
            outputs[node.name] = self._outputs(node, self._op_def(node))
            self._types |= dict(outputs[node.name])
        places: dict[str, str] = {}
        inserted: list[tuple[node_def_pb2.NodeDef, list[tuple[int, str]]]] = []
        for node in originals:
            inserted.append((node, self._prepare(node)))
            places |= self._finish(node, outputs[node.name])
        for node, edits in inserted:
            count = self._count(node) if any(kind.startswith("terms") for _, kind in edits) else ""
            for index, ref in enumerate(node.input):
                node.input[index] = places.get(self._key(ref), ref)
            for index, kind in edits:
                node.input[index] = self._edit(node, index, kind, count)
        for node in self._counts:
            node.input[:] = [places.get(self._key(ref), ref) for ref in node.input]
        for node in originals:
            if node.op.startswith(APPLIED):
                self._applied(node, [*originals, *self._added])
        for node in originals:
            for name in ("_handle_dtypes", "_handle_shapes", "_output_shapes"):
                if name in node.attr:
                    del node.attr[name]
        self._scope.nodes.extend(self._added)
        return {self._tensor(old): self._tensor(new) for old, new in places.items()} if not self._signature else places

    # Reading the graph.

    def _op_def(self, node: node_def_pb2.NodeDef) -> op_def_pb2.OpDef:
        defined = self._pass.signatures.get(node.op) or definition(node.op)
        if defined is None:
            raise UnsupportedError(f"unknown operation {node.op}")
        return defined

    def _outputs(self, node: node_def_pb2.NodeDef, op_def: op_def_pb2.OpDef) -> list[tuple[str, int]]:
        """Yields references to a node's outputs, as consumers name them, and their dtypes."""
        own = results(node, op_def)
        return list(zip(self._scope.outputs(node, own), [result.dtype for result in own], strict=True))

    def _key(self, ref: str) -> str:
        """Returns a reference in the canonical form of this body's maps."""
        return ref if self._signature else ref.removesuffix(":0")

    @staticmethod
    def _tensor(ref: str) -> str:
        return ref if ":" in ref else ref + ":0"

    # Changing nodes.

    def _prepare(self, node: node_def_pb2.NodeDef) -> list[tuple[int, str]]:
        """Widens a node's attributes. Returns the inputs that need a cast (`cast:DTYPE`) or noise (`terms`)."""
        op_def = self._op_def(node)
        before = [dtype for arg in op_def.input_arg for dtype in dtypes_of(node, arg, op_def)]
        if node.op.startswith(APPLIED):
            self._changed[node.name] = node.attr["T" if "T" in node.attr else "dtype"].type
        if self._pass.precise and not self._is_batch_norm(node):
            self._widen(node, op_def)
        edits = []
        own_function = node.op in self._pass.signatures
        after = [dtype for arg in op_def.input_arg for dtype in dtypes_of(node, arg, op_def)]
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            have = self._pass.wide(old)
            if self._is_batch_norm(node):
                continue  # replaced with a float64 function
            if have != new and not own_function:
                edits.append((index, f"cast:{have}:{new}"))
        if (summed := terms(node)) is not None:
            for index in summed.operands:
                if before[index] in UNITS:
                    edits.append((index, f"terms:{before[index]}:{after[index]}"))
        if node.op in (ROUNDED_OPERAND | SHIFTED_OPERAND) and before[0] in UNITS:
            edits.append((0, f"once:{before[0]}:{after[0]}"))
        if node.op in UPDATES and before[1] in UNITS:
            edits.append((1, f"update:{before[1]}:{after[1]}"))
        return edits

    def _widen(self, node: node_def_pb2.NodeDef, op_def: op_def_pb2.OpDef) -> None:
        """Replaces dtypes among a node's attributes if it has a kernel for the wider ones."""
        kinds = {attr.name: attr.type for attr in op_def.attr}
        changed = {}
        for name, kind in kinds.items():
            if name not in node.attr:
                continue
            value = attr_value_pb2.AttrValue()
            value.CopyFrom(node.attr[name])
            if kind == "type":
                value.type = self._pass.wide(value.type)
            elif kind == "list(type)":
                value.list.type[:] = [self._pass.wide(dtype) for dtype in value.list.type]
            else:
                continue
            if value != node.attr[name]:
                changed[name] = value
        if not changed or node.op in _KEPT or "Random" in node.op:
            return
        types = tuple(sorted((name, value.type) for name, value in changed.items() if value.type))
        if not types or runs_on_cpu(node.op, types):
            for name, value in changed.items():
                node.attr[name].CopyFrom(value)

    def _finish(self, node: node_def_pb2.NodeDef, before: Sequence[tuple[str, int]]) -> dict[str, str]:
        """Adds casts and noise after a node. Returns new references to its outputs."""
        if self._is_batch_norm(node):
            self._replace_batch_norm(node)
            # A function's results have different names from the operation's.
            places = {ref: f"{node.name}:output:{i}" if self._signature else ref for i, (ref, _) in enumerate(before)}
            ref, dtype = before[0]
            if (
                dtype != types_pb2.DT_FLOAT
            ):  # statistics inside are float32, and only the result is rounded to fewer bits
                kind = tf.as_dtype(dtype).name
                places[ref] = self._noise(places[ref], self._pass.wide(dtype), UNITS[dtype], kind=kind)
            return places
        op_def = self._op_def(node)
        own_function = node.op in self._pass.signatures
        after = self._outputs(node, op_def)
        places = {}
        for index, ((ref, old), (_, new)) in enumerate(zip(before, after, strict=True)):
            place = ref
            wide = self._pass.wide(old)
            if new != wide and not own_function:
                place = self._cast(place, new, wide)
            scale = self._scale(node, index, old)
            if scale:
                dtype = self._as_type or old
                if cancelled := CANCELS.get(node.op):
                    place = self._noise(place, wide, cancelled * UNITS[dtype], kind="absolute")
                if summed := node.attr[SUMMED].i if SUMMED in node.attr else 0:
                    # Terms of random signs: the sum is as large as its error, times the root of twice the number of roundings.
                    place = self._noise(
                        place, wide, UNITS[sums(dtype)], count=self._mean_square(place, wide), kind="absolute"
                    )
                    place = self._noise(place, wide, UNITS[sums(dtype)] * (summed / 3) ** 0.5)
                summed_terms = terms(node)
                if summed_terms is not None:
                    count = self._count(node)
                    kind = "row" if SPREAD.fullmatch(node.op) else "relative"
                    place = self._noise(place, wide, UNITS[sums(dtype)] * 3**-0.5, count=count, kind=kind)
                if summed_terms is None or summed_terms.rounded or sums(dtype) != dtype:
                    # Correctly rounded results are exact if they are representable. Results in 16 bits always round correctly.
                    right = node.op in ROUNDED_ONCE or summed_terms is not None or sums(dtype) != dtype
                    once = self._pass.precise and dtype in GRIDS and right
                    kind = tf.as_dtype(dtype).name if once else "relative"
                    place = self._noise(place, wide, scale * UNITS[dtype], kind=kind)
            if place != ref:
                places[ref] = place
        return places

    def _scale(self, node: node_def_pb2.NodeDef, index: int, dtype: int) -> float:
        """Returns the standard error of an output, in roundings; 0 if it is exact."""
        if dtype not in UNITS or node.op in EXACT or node.op in self._pass.signatures or "Random" in node.op:
            return 0.0
        if node.op == "Eig" and index == 1 and not node.attr["compute_v"].b:  # it isn't a matrix then
            return 0.0
        if node.op == "Cast":
            source = self._types.get(self._key(node.input[0]), types_pb2.DT_INVALID)
            return 1.0 if UNITS[dtype] > UNITS.get(source, 0.0) else 0.0
        if node.op in ROUNDED_ONCE or terms(node) is not None:
            return 1.0
        steep = STEEP64 | STEEP if UNITS[dtype] == UNITS[types_pb2.DT_DOUBLE] else STEEP
        return steep.get(node.op, APPROXIMATE)

    def _edit(self, node: node_def_pb2.NodeDef, index: int, kind: str, count: str) -> str:
        """Casts an operand, or adds noise to it. Returns the new reference."""
        what, old, new = kind.split(":")
        ref = node.input[index]
        if what == "cast":
            return self._cast(ref, int(old), int(new))
        dtype = self._as_type or int(old)
        if what == "update":
            return self._updated(node, ref, dtype, int(new))
        if what == "terms":
            return self._noise(ref, int(new), UNITS[sums(dtype)] * 0.5**0.5, count=count)
        return self._noise(ref, int(new), UNITS[dtype], kind="absolute" if node.op in SHIFTED_OPERAND else "relative")

    def _updated(self, node: node_def_pb2.NodeDef, ref: str, dtype: int, new: int) -> str:
        """Returns what to add to a variable, or to subtract, so that its new value has noise: the update has no result."""
        read = self._add("ReadVariableOp", [node.input[0]], {"dtype": new})
        self._added[-1].input.extend(self._waits(node))
        op = UPDATES[node.op]
        value = self._add(op, [read, ref], {"T": new})
        kind = tf.as_dtype(dtype).name if self._pass.precise and dtype in GRIDS else "relative"
        error = self._add("Sub", [self._noise(value, new, UNITS[dtype], kind=kind), value], {"T": new})
        return self._add(op, [ref, error], {"T": new})

    def _waits(self, node: node_def_pb2.NodeDef) -> list[str]:
        """Returns control inputs for what must run after all that a node waits for, but before the node."""
        names = {ref.removeprefix("^").partition(":")[0] for ref in node.input[1:]}
        arguments = {arg.name for arg in self._signature.input_arg} if self._signature else set()
        return [f"^{name}" for name in sorted(names - arguments)]

    def _applied(self, node: node_def_pb2.NodeDef, others: Sequence[node_def_pb2.NodeDef]) -> None:
        """Adds noise to the variables that a node changes: to their new values, and to how much they change."""
        op_def = self._op_def(node)
        new = node.attr["T" if "T" in node.attr else "dtype"].type
        dtype = self._changed[node.name]
        if dtype not in UNITS:
            return
        handles = [
            ref for ref, arg in zip(node.input, op_def.input_arg, strict=False) if arg.type == types_pb2.DT_RESOURCE
        ]
        waits = self._waits(node)
        done = self._node("NoOp")
        for other in others:
            other.input[:] = [f"^{done.name}" if ref == f"^{node.name}" else ref for ref in other.input]
        self.after[node.name] = done.name
        for handle in handles:
            before = self._add("ReadVariableOp", [handle], {"dtype": new})
            self._added[-1].input.extend(waits)
            node.input.append(f"^{self._added[-1].name}")
            after = self._add("ReadVariableOp", [handle], {"dtype": new})
            self._added[-1].input.append(f"^{node.name}")
            change = self._add("Sub", [after, before], {"T": new})
            kind = tf.as_dtype(dtype).name if self._pass.precise and dtype in GRIDS else "relative"
            errors = [
                self._add("Sub", [self._noise(value, new, scale * UNITS[dtype], kind=how), value], {"T": new})
                for value, scale, how in ((after, 1.0, kind), (change, APPROXIMATE, "relative"))
            ]
            error = self._add("AddV2", errors, {"T": new})
            update = self._node("AssignAddVariableOp")
            update.input.extend([handle, error])
            update.attr["dtype"].type = new
            done.input.append(f"^{update.name}")

    def _count(self, node: node_def_pb2.NodeDef) -> str:
        """Returns a reference to the number of terms in each value of a node's result, float64; to 0 if the sum is exact."""
        if node.name in self._counted:
            return self._counted[node.name]
        summed_terms = terms(node)
        assert summed_terms is not None
        how = summed_terms.count
        if how == "pool":
            product = 1
            for size in node.attr["ksize"].list.i:
                product *= size
            how = f"fixed:{product}"
        if how in ("adj_x", "transpose_a"):
            how = "second_last" if node.attr[how].b else "last"
        if how == "einsum":
            how = contracted(node.attr["equation"].s.decode())
        if how.startswith("fixed:"):
            count = self._const(float(how.removeprefix("fixed:")))
        else:
            refs = [node.input[index] for index in summed_terms.shapes]
            types = self._wide_types(refs)
            name = self._pass.helper(("count_" + how, *types), functools.partial(trace_count, how, types))
            count = self._call(name, refs, types, [types_pb2.DT_DOUBLE], "count")
            self._counts.append(self._added[-1])
        refs = [node.input[index] for factor in summed_terms.factors for index in factor]
        dtypes = {self._types[self._key(ref)] for ref in refs}
        if refs and dtypes <= DIGITS.keys():
            digits = min(DIGITS[sums(self._as_type or dtype)] for dtype in dtypes)
            settings = (tuple(map(len, summed_terms.factors)), self._wide_types(refs), digits, "Prod" in node.op)
            name = self._pass.helper(("rounds", *settings), functools.partial(trace_rounds, *settings))
            types = (types_pb2.DT_DOUBLE, *self._wide_types(refs))
            count = self._call(name, [count, *refs], types, [types_pb2.DT_DOUBLE], "rounds")
            self._counts.append(self._added[-1])
        self._counted[node.name] = count
        return count

    def _wide_types(self, refs: Sequence[str]) -> tuple[int, ...]:
        return tuple(self._pass.wide(self._types[self._key(ref)]) for ref in refs)

    # Fused batch normalization, which has no float64 kernel.

    def _is_batch_norm(self, node: node_def_pb2.NodeDef) -> bool:
        return (
            self._pass.precise
            and node.op.startswith("FusedBatchNorm")
            and node.op.rstrip("V123") in ("FusedBatchNorm", "FusedBatchNormGrad")
        )

    def _replace_batch_norm(self, node: node_def_pb2.NodeDef) -> None:
        op_def = self._op_def(node)
        inputs = [self._pass.wide(dtype) for arg in op_def.input_arg for dtype in dtypes_of(node, arg, op_def)]
        outputs = [self._pass.wide(dtype) for arg in op_def.output_arg for dtype in dtypes_of(node, arg, op_def)]
        settings = (
            node.op.startswith("FusedBatchNormGrad"),
            node.attr["is_training"].b if "is_training" in node.attr else True,
            node.attr["data_format"].s.decode() or "NHWC",
            node.attr["epsilon"].f if "epsilon" in node.attr else 1e-4,
            node.attr["exponential_avg_factor"].f if "exponential_avg_factor" in node.attr else 1.0,
            len(inputs),
            len(outputs),
        )
        name = self._pass.helper(
            ("batch_norm", *settings), functools.partial(trace_batch_norm, *settings), as_type=types_pb2.DT_FLOAT
        )
        operands = list(node.input)
        node.op = "StatefulPartitionedCall"
        node.attr.clear()
        _set_call(node, name, inputs, outputs)
        node.input[:] = operands

    # Adding nodes.

    def _noise(self, ref: str, dtype: int, scale: float, *, count: str = "", kind: str = "relative") -> str:
        """Adds noise to a value: relative, or with standard deviation `scale`, times sqrt(`count`). See `trace_noise`."""
        self._pass.sites += 1
        shape = self._add("Shape", [ref], {"T": dtype, "out_type": types_pb2.DT_INT32})
        random = self._add(
            "RandomUniform",
            [shape],
            {"T": types_pb2.DT_INT32, "dtype": types_pb2.DT_FLOAT, "seed": self._pass.sites, "seed2": _STREAM},
        )
        name = self._pass.helper(("noise", dtype, kind), functools.partial(trace_noise, tf.as_dtype(dtype), kind))
        operands = [ref, random, self._const(scale), count or self._const(1.0)]
        return self._call(
            name, operands, [dtype, types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_DOUBLE], [dtype], "noise"
        )

    def _mean_square(self, ref: str, dtype: int) -> str:
        """Returns a reference to the mean of a value's squares, float64."""
        square = self._add("Square", [ref], {"T": dtype})
        rank = self._add("Rank", [square], {"T": dtype})
        zero, one = (self._int(value) for value in (0, 1))
        axes = self._add("Range", [zero, rank, one], {"Tidx": types_pb2.DT_INT32})
        mean = self._add("Mean", [square, axes], {"T": dtype, "Tidx": types_pb2.DT_INT32})
        return mean if dtype == types_pb2.DT_DOUBLE else self._cast(mean, dtype, types_pb2.DT_DOUBLE)

    def _int(self, value: int) -> str:
        node = self._node("Const")
        node.attr["dtype"].type = types_pb2.DT_INT32
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
        return self._scope.output(node, "output")

    def _cast(self, ref: str, source: int, target: int) -> str:
        return self._add("Cast", [ref], {"SrcT": source, "DstT": target})

    def _const(self, value: float) -> str:
        node = self._node("Const")
        node.attr["dtype"].type = types_pb2.DT_DOUBLE
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.float64))
        return self._scope.output(node, "output")

    def _add(self, op: str, inputs: Sequence[str], attrs: Mapping[str, int]) -> str:
        node = self._node(op)
        node.input.extend(inputs)
        op_def = self._op_def(node)
        write_attributes(node, attrs, op_def)
        return self._scope.output(node, op_def.output_arg[0].name)

    def _call(self, name: str, operands: Sequence[str], types: Sequence[int], results: Sequence[int], what: str) -> str:
        node = self._node(what)
        node.op = "StatefulPartitionedCall"
        node.input.extend(operands)
        _set_call(node, name, types, results)
        return self._scope.output(node, "output")

    def _node(self, op: str) -> node_def_pb2.NodeDef:
        node = node_def_pb2.NodeDef(op=op, name=self._scope.number(f"tfaot_{op.lower()}", len(self._added)))
        self._added.append(node)
        return node


def _copy(message: op_def_pb2.OpDef) -> op_def_pb2.OpDef:
    copy = op_def_pb2.OpDef()
    copy.CopyFrom(message)
    return copy


def _set_call(node: node_def_pb2.NodeDef, name: str, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    node.attr["f"].func.name = name
    node.attr["Tin"].list.type.extend(inputs)
    node.attr["Tout"].list.type.extend(outputs)
