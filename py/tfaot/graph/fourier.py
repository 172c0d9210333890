"""Rewrites Fourier transforms for XLA: each becomes the mark of a call of the runtime (`tfaot.xla.marks`).

A call transforms its rows in place. A row of real values is stored in the place of its transform's complex values, which are one
or two values more.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.core.framework import node_def_pb2

from tfaot.core.errors import TfaotError
from tfaot.graph.attributes import Shape
from tfaot.graph.constants import value_of
from tfaot.graph.program import Program
from tfaot.graph.splice import Target, operands, rewrite_nodes, splice
from tfaot.xla import marks

OP = re.compile(r"(I?)(R?)FFT(|2D|3D)")
"""The ops: inverse, of real values, and the number of axes."""
_RANKS = {"": 1, "2D": 2, "3D": 3}


def for_xla(program: Program) -> int:
    """Rewrites all transforms, also in functions, and returns how many there were.

    Raises:
      TfaotError: a transform's size isn't known.
    """
    orders: dict[str, Any] = {}

    def rewrite(
        target: Target,
        node: node_def_pb2.NodeDef,
        nodes: Mapping[str, node_def_pb2.NodeDef],
        shape: Callable[[str], Shape],
    ) -> None:
        import tensorflow as tf

        match = OP.fullmatch(node.op)
        assert match
        data, *lengths = operands(node)
        sizes = shape(data)
        values = [value_of(nodes, name) for name in lengths]
        rank = _RANKS[match[3]]
        if sizes is None or None in sizes[-rank:] or any(value is None for value in values):
            raise TfaotError(
                f"{node.name}: {node.op} along a size that is known only at run time",
                exists="an input " + (f"of shape {list(sizes)}" if sizes is not None else "whose rank isn't known"),
                do=f"give the input a fixed size along {'its last axis' if rank == 1 else f'its last {rank} axes'}, "
                "and the transform a constant fft_length",
            )
        constants = [[int(size) for size in value.ravel()] for value in values if value is not None]
        transform = _Transform.of(match, [size or 0 for size in sizes], constants)
        dtype = node.attr["Treal" if transform.kind == "RealToComplex" else "Tcomplex"].type
        specs = [tf.TensorSpec(sizes, dtype), *(tf.TensorSpec(None, tf.int32) for _ in lengths)]
        splice(target, node, specs, lambda x, *_: transform.built(x, orders))

    count = rewrite_nodes(program, OP.fullmatch, rewrite)
    program.graph.library.function.extend(orders[name] for name in sorted(orders))
    return count


@dataclasses.dataclass(frozen=True)
class _Transform:
    """A transform along the last axes."""

    kind: str
    inverse: bool
    lengths: tuple[int, ...]
    """The number of values along each axis: of a real transform, those of its real side."""

    @staticmethod
    def of(match: re.Match[str], sizes: list[int], constants: list[list[int]]) -> _Transform:
        """Reads an op, given its input's shape and the values of its other operands."""
        inverse, real, suffix = match.groups()
        lengths = tuple(constants[0]) if constants else tuple(sizes[-_RANKS[suffix] :])
        kind = marks.KINDS[(2 if inverse else 1) if real else 0]
        return _Transform(kind, bool(inverse), lengths)

    def built(self, x: Any, orders: dict[str, Any]) -> Any:
        """Returns the transform in terms of its input, and adds the orders of its marks to `orders`."""
        import tensorflow as tf

        # The sizes of other axes may be known only at run time.
        outer = [size or tf.shape(x)[axis] for axis, size in enumerate(x.shape[: -len(self.lengths)])]
        x = self._sized(x)
        row = self.lengths[-1] // 2 + 1
        rows = [*outer, *x.shape[len(outer) : -1]]
        if self.kind == "RealToComplex":
            # Complex values are padded in half of the time of real ones.
            x = _longer(x, self.lengths[-1] % 2)
            pairs = tf.reshape(x, [*rows, x.shape[-1] // 2, 2])
            x = tf.complex(pairs[..., 0], pairs[..., 1])
            x = _longer(x, row - x.shape[-1])
        if 0 not in x.shape:
            x = self._marked(x, orders)
        if self.kind == "ComplexToReal":
            pairs = tf.stack([tf.math.real(x), tf.math.imag(x)], -1)
            x = tf.reshape(pairs, [*rows, 2 * row])[..., : self.lengths[-1]]
        return x

    def _sized(self, x: Any) -> Any:
        """Cuts off or adds zeros, so that the axes have their lengths."""
        import tensorflow as tf

        wanted = [*self.lengths]
        if self.kind == "ComplexToReal":
            wanted[-1] = self.lengths[-1] // 2 + 1
        part: Any = (..., *map(slice, wanted))
        x = x[part]
        missing = [(0, size - has) for size, has in zip(wanted, x.shape[-len(wanted) :], strict=True)]
        return tf.pad(x, [(0, 0)] * (x.shape.rank - len(wanted)) + missing)

    def _marked(self, x: Any, orders: dict[str, Any]) -> Any:
        import tensorflow as tf
        from tensorflow.compiler.tf2xla.ops import gen_xla_ops

        if math.prod(self.lengths) == 1:
            return tf.identity(x)
        axis = max(axis for axis, size in enumerate(x.shape) if size is not None and size > 1)  # one of the transform's
        numbers = (marks.FOURIER, marks.KINDS.index(self.kind), int(self.inverse), *self.lengths)
        name = "_".join(["tfaot_fourier", x.dtype.name, *map(str, numbers[1:])])
        if name not in orders:
            with tf.init_scope():
                orders[name] = marks.order(name, numbers, x.dtype)
        # XLA sorts constants itself. A barrier can't have an axis of an unknown size, so what is behind it is added: nothing.
        if None in x.shape:
            (nothing,) = gen_xla_ops.xla_optimization_barrier([tf.constant(complex(-0.0, -0.0), x.dtype)])
            x += nothing
        else:
            (x,) = gen_xla_ops.xla_optimization_barrier([x])
        (result,) = gen_xla_ops.xla_variadic_sort([x], axis, comparator=name, is_stable=False)
        return result


def _longer(x: Any, count: int) -> Any:
    """Adds zeros to the last axis."""
    import tensorflow as tf

    return tf.pad(x, [(0, 0)] * (x.shape.rank - 1) + [(0, count)])
