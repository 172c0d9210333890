"""The pass `batch_weight_gradients`: computes a weight's gradient as one product after the gradient's loop.

Applies to training of recurrent layers. The steps store the factors of the gradient, and one product after the loop multiplies
and adds them. With `hoist_projections` and `loop_invariants`, a training step of LSTM(128) takes 6.0 instead of 8.7 ms (Zen 3,
AVX2).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from tensorflow.core.framework import node_def_pb2, types_pb2

from tfaot.compile.passes.loops.loop import Loop
from tfaot.compile.passes.loops.loops import Loops, list_attributes
from tfaot.graph.attributes import complete, type_attribute
from tfaot.graph.program import Program, Tensor

_LARGEST = 1 << 26
"""The most bytes to gather for one product."""
_SUMS = frozenset({"Add", "AddN", "AddV2"})
_FLOATS = frozenset({types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE})


@dataclasses.dataclass(frozen=True)
class _AllSteps:
    """One value from every step, as one tensor of the graph."""

    tensor: str
    """[trips, …]"""
    backwards: bool
    """Whether the last step comes first."""


@dataclasses.dataclass
class _Sum:
    """A loop operand to which every step adds."""

    index: int
    """The operand's position."""
    terms: list[str]
    """What a step adds: tensors of the body."""


_Product = tuple[node_def_pb2.NodeDef, tuple[int, int], tuple[int, int]]
"""A step's xᵀ·dz: the MatMul, and the shapes of x and dz."""


def batch_weight_gradients(program: Program) -> int:
    """Moves sums over the steps out of loops: gradients of weights, and items of gradient lists.

    - Σₜ xₜᵀ·dzₜ with xₜ [B, m] and dzₜ [B, n] becomes Xᵀ·DZ with X [T·B, m] and DZ [T·B, n]. In a step, the sum is as
      large as the weight and is read and written whole, whereas each step's dz is written once. x is often available as a
      list or stack.
    - If a step adds a list that is zero except for one item, only that item is added.

    A bias gradient stays: each step sums it while dz is available.

    Returns:
      The number of changed sums.
    """
    loops = Loops(program)
    count = 0
    for loop in reversed(loops.loops.values()):
        changed = _add_items(loops, loop)
        if loop.steps.trips is not None and loop.steps.trips > 1:
            changed += _Gathering(loops, loop).run()
        if changed:
            loop.write()
        count += changed
    return count


def _sums(loop: Loop) -> list[_Sum]:
    """Returns the operands that steps only add to."""
    sums = []
    for index, (argument, result) in enumerate(zip(loop.body.arguments, loop.body.results, strict=True)):
        terms: list[str] = []
        pending = [result]
        while pending:
            tensor = loop.body.resolve(pending.pop())
            node = loop.body.producer(tensor)
            # A sum with other users must stay.
            if (
                node is not None
                and node.op in _SUMS
                and len(loop.body.users(tensor)) + len(loop.body.returned(tensor)) == 1
            ):
                pending += [operand for operand in node.input if not operand.startswith("^")]
            else:
                terms.append(tensor)
        used = len(loop.body.users(argument)) + len(loop.body.returned(argument))
        if terms.count(argument) == 1 and len(terms) > 1 and used == 1:
            terms.remove(argument)
            sums.append(_Sum(index, terms))
    return sums


def _add_items(loops: Loops, loop: Loop) -> int:
    """Adds to one item of a list where a step adds a whole list of zeros and that item."""
    count = 0
    for total in _sums(loop):
        if loop.body.types[total.index] != types_pb2.DT_VARIANT or len(total.terms) != 1:
            continue
        node = loop.body.producer(total.terms[0])
        if node is None or node.op != "TensorListSetItem" or node.attr["resize_if_index_out_of_bounds"].b:
            continue
        made = loop.body.producer(loop.body.resolve(node.input[0]))
        if made is None or made.op != "TensorListReserve" or len(loop.body.users(f"{node.name}:0")) != 1:
            continue
        dtype = node.attr["element_dtype"].type
        argument, place, item = loop.body.arguments[total.index], node.input[1], node.input[2]
        places = loop.steps.values(place)
        fresh = places is not None and len(np.unique(places)) == len(places) and loops.zero(loop.operands[total.index])
        if not fresh:
            shape = loop.add("Shape", f"{node.name}/shape", [item], dtype, out_type=np.dtype(np.int32))
            old = loop.add("TensorListGetItem", f"{node.name}/item", [argument, place, shape], dtype, "element_dtype")
            item = loop.add("AddV2", f"{node.name}/sum", [old, item], dtype)
        item_of = {"element_dtype": type_attribute(dtype), "resize_if_index_out_of_bounds": False}
        loop.body.become(node, "TensorListSetItem", [argument, place, item], **item_of)
        loop.body.results[total.index] = f"{node.name}:0"
        count += 1
    return count


class _Gathering:
    """Moves sums out of one loop."""

    def __init__(self, loops: Loops, loop: Loop) -> None:
        self._loops = loops
        self._loop = loop
        self._trips = loop.steps.trips or 0
        self._shapes: dict[str, Tensor] = {}
        self._gathered: dict[str, tuple[int, bool]] = {}
        """Operands that gather a tensor of the body, and whether they contain the last step first."""

    def run(self) -> int:
        """Rewrites the loop's body and the graph, but doesn't write the loop. Returns how many sums changed."""
        totals = [total for total in _sums(self._loop) if self._loop.body.types[total.index] in _FLOATS]
        if not totals or self._loops.fetched(self._loop.name):
            return 0
        steps = np.arange(self._trips)
        if any(self._loop.scalar(order, "step") is None for order in (steps, steps[::-1])):
            return 0
        self._shapes = self._loop.shapes()
        products = [(total, term, self._product(term)) for total in totals for term in total.terms]
        return sum(self._gather(total, term, product) for total, term, product in products if product is not None)

    def _product(self, term: str) -> _Product | None:
        """Returns a term as a product xᵀ·dz that is cheaper outside the loop, or None."""
        node = self._loop.body.producer(term)
        if node is None or node.op != "MatMul" or not node.attr["transpose_a"].b or node.attr["transpose_b"].b:
            return None
        if len(self._loop.body.users(term)) != 1 or self._loop.body.returned(term):
            return None
        x, dz = (self._shape(operand) for operand in node.input[:2])
        if x is None or dz is None or len(x) != 2 or len(dz) != 2:
            return None
        # A step either reads and writes the sum, or writes the values to gather, which are read once later.
        if x[0] * (x[1] + dz[1]) > 2 * x[1] * dz[1]:
            return None
        if 4 * self._trips * x[0] * (x[1] + dz[1]) > _LARGEST:
            return None
        return node, (x[0], x[1]), (dz[0], dz[1])

    def _shape(self, tensor: str) -> tuple[int, ...] | None:
        described = self._shapes.get(self._loop.body.resolve(tensor)) or self._shapes.get(tensor)
        return complete(described.shape) if described else None

    def _gather(self, total: _Sum, term: str, product: _Product) -> int:
        """Moves a product out of the loop, and returns 1."""
        node, x_shape, dz_shape = product
        dtype = node.attr["T"].type
        x = self._at_hand(node.input[0], x_shape)
        dz = self._at_hand(node.input[1], dz_shape)
        if x is not None and dz is not None and x.backwards != dz.backwards:
            dz = None
        backwards = (x or dz or _AllSteps("", False)).backwards
        x = x or self._collect(node.input[0], x_shape, dtype, backwards)
        dz = dz or self._collect(node.input[1], dz_shape, dtype, backwards)
        operands = [
            self._loop.reshaped_before(f"{node.name}/{side}", values.tensor, (self._trips * rows, columns), dtype)
            for side, values, (rows, columns) in (("x", x, x_shape), ("dz", dz, dz_shape))
        ]
        shape = (x_shape[1], dz_shape[1])
        kinds = {"T": type_attribute(dtype), "transpose_a": True, "transpose_b": False}
        gathered = self._loop.before("MatMul", node.name, operands, shape, dtype, **kinds)
        self._take_out(total, term, gathered, shape, dtype)
        return 1

    def _at_hand(self, tensor: str, shape: tuple[int, ...]) -> _AllSteps | None:
        """Finds every step's value if the graph already has it, as a list that the loop reads or a stack that it pops."""
        loop, loops = self._loop, self._loops
        resolved = loop.body.resolve(tensor)
        if resolved in self._gathered:
            index, backwards = self._gathered[resolved]
            dtype = self._shapes[resolved].dtype
            return _AllSteps(self._stack(f"{self._loop.name}:{index}", shape, dtype), backwards)
        item = loop.item(tensor)
        if item is not None:
            made = loops.producer(loop.operands[item.index])
            forwards = np.arange(self._trips)
            if made is None or made.op != "TensorListFromTensor" or loops.shape(made.input[0]) != (self._trips, *shape):
                return None
            for indices, backwards in ((forwards, False), (forwards[::-1], True)):
                if np.array_equal(item.indices, indices):
                    return _AllSteps(made.input[0], backwards)
        popped = loop.popped(tensor)
        if popped is None:
            return None
        made = loops.producer(popped.loop.operands[popped.index])
        room = loops.constant(made.input[1]) if made is not None else None
        # XLA's list keeps the full size that it was created with.
        if room is None or int(room) != self._trips:
            return None
        dtype = self._shapes[resolved].dtype
        return _AllSteps(self._stack(f"{popped.loop.name}:{popped.index}", shape, dtype), backwards=True)

    def _collect(self, tensor: str, shape: tuple[int, ...], dtype: int, backwards: bool) -> _AllSteps:
        """Makes steps write a value of the body to a new list."""
        loop = self._loop
        resolved = loop.body.resolve(tensor)
        name = resolved.partition(":")[0]
        operands = [
            loop.constant_before(f"{name}/element_shape", shape),
            loop.constant_before(f"{name}/count", self._trips),
        ]
        made = loop.before(
            "TensorListReserve", f"{name}/list", operands, (), types_pb2.DT_VARIANT, **list_attributes(dtype)
        )
        argument = loop.give(made, types_pb2.DT_VARIANT, f"{name}/list")
        index = len(loop.operands) - 1
        places = np.arange(self._trips)
        place = loop.scalar(places[::-1] if backwards else places, f"{name}/place")
        operands = [argument, place or "", resolved]
        loop.body.results[index] = loop.add(
            "TensorListSetItem", f"{name}/write", operands, dtype, "element_dtype", resize_if_index_out_of_bounds=False
        )
        self._gathered[resolved] = (index, backwards)
        return _AllSteps(self._stack(f"{self._loop.name}:{index}", shape, dtype), backwards)

    def _stack(self, handle: str, shape: tuple[int, ...], dtype: int) -> str:
        """Returns a list of a loop after its last step, as a tensor."""
        name = handle.replace(":", "/")
        return self._loop.before(
            "TensorListStack",
            f"{name}/stack",
            [handle, self._loop.constant_before(f"{name}/stack/shape", shape)],
            (self._trips, *shape),
            dtype,
            element_dtype=type_attribute(dtype),
            num_elements=self._trips,
        )

    def _take_out(self, total: _Sum, term: str, value: str, shape: tuple[int, ...], dtype: int) -> None:
        """Adds a value to a loop's sum after the loop, in place of a term in the loop."""
        loop, loops = self._loop, self._loops
        total.terms.remove(term)
        argument = loop.body.arguments[total.index]
        after = f"{loop.name}:{total.index}"
        kinds = {"T": type_attribute(dtype)}
        if total.terms:
            terms = [argument, *total.terms]
            rest = loop.add("AddN", f"{term.partition(':')[0]}/rest", terms, dtype, N=len(terms))
            loop.body.results[total.index] = rest
            before = after
        else:
            loop.body.results[total.index] = argument
            before = loop.operands[total.index]
        if before != after and loops.zero(before):
            loops.replace(after, value)
            return
        summed = loop.before("AddV2", f"{term.partition(':')[0]}/sum", [before, value], shape, dtype, **kinds)
        loops.replace(after, summed, besides=summed)
