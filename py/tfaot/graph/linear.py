"""Rewrites linear algebra for XLA: each op becomes the marks of calls of the runtime (`tfaot.xla.marks`).

A call works in place. Its operands are one row of values for each batch item, and so are its results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.core.framework import node_def_pb2

from tfaot.core.errors import TfaotError
from tfaot.graph.attributes import Shape
from tfaot.graph.program import Program
from tfaot.graph.splice import Target, operands, rewrite_nodes, splice
from tfaot.xla import marks
from tfaot.xla.linear import Linear

SCHUR = "_tfaot_schur"
"""An attribute of an Eig whose vectors are only used for the Schur decomposition, which the unitary matrix's own columns give."""
Orders = dict[str, Any]
"""The orders of marks, by the names of their functions."""


def for_xla(program: Program) -> int:
    """Rewrites all ops, also in functions, and returns how many there were.

    Raises:
      TfaotError: the size of a matrix isn't known, and XLA has no kernel for the op.
    """
    orders: Orders = {}

    def rewrite(
        target: Target,
        node: node_def_pb2.NodeDef,
        nodes: Mapping[str, node_def_pb2.NodeDef],
        shape: Callable[[str], Shape],
    ) -> None:
        import tensorflow as tf

        shapes = [shape(name) for name in operands(node)]
        for sizes in shapes:
            if sizes is None or None in sizes:
                if node.op not in _ONLY_HERE:
                    return
                raise TfaotError(
                    f"{node.name}: {node.op} of a size that is known only at run time",
                    exists=f"an operand of shape {list(sizes) if sizes is not None else 'of unknown rank'}",
                    do="give the model fixed sizes",
                )
        dtype = tf.as_dtype(node.attr["T"].type)
        specs = [tf.TensorSpec(sizes, dtype) for sizes in shapes]
        if node.op == "MatrixSolveLs":
            specs[2] = tf.TensorSpec((), tf.float64)
        wide = tf.float32 if dtype.size < 4 else dtype
        # The factor of a matrix that was transposed, as JAX's by default, is mostly transposed, too.
        name = operands(node)[0].partition(":")[0]
        calls = Calls(orders, transposed=name in nodes and nodes[name].op in ("Transpose", "ConjugateTranspose"))

        def build(*tensors: Any) -> Any:
            results = OPS[node.op](calls, node, *(tf.cast(x, wide) if x.dtype == dtype else x for x in tensors))
            if isinstance(results, tuple):
                return tuple(tf.cast(result, dtype) if result.dtype == wide else result for result in results)
            return tf.cast(results, dtype)

        splice(target, node, specs, build)

    count = rewrite_nodes(program, lambda op: op in OPS, rewrite)
    program.graph.library.function.extend(orders[name] for name in sorted(orders))
    return count


class Calls:
    """Makes marks."""

    def __init__(self, orders: Orders, *, transposed: bool = False) -> None:
        self._orders = orders
        self.transposed = transposed
        """Whether the operand was transposed."""

    def run(self, call: Linear, *tensors: Any) -> tuple[Any, ...]:
        """Returns the results of a call for each batch item of its operands, all of which have the same batch."""
        import tensorflow as tf
        from tensorflow.compiler.tf2xla.ops import gen_xla_ops

        matrix = tensors[0]
        batch = [*matrix.shape[:-2]]
        count, dtype = math.prod(batch), matrix.dtype
        if count == 0 or call.row == 0 or 0 in (call.rows, call.columns):
            return tuple(tf.zeros([*batch, *shape], dtype) for shape in call.results)
        rows = tf.concat([tf.reshape(tensor, [count, -1]) for tensor in tensors], -1)
        # One value isn't sorted.
        length = 2 if count == call.row == 1 else call.row
        rows = tf.pad(rows, [(0, 0), (0, length - rows.shape[1])])
        numbers = (marks.LINEAR, *call.numbers())
        name = "_".join(["tfaot_linear", dtype.name, *map(str, numbers[1:])])
        if name not in self._orders:
            with tf.init_scope():
                self._orders[name] = marks.order(name, numbers, dtype)
        # XLA sorts constants itself.
        (rows,) = gen_xla_ops.xla_optimization_barrier([rows])
        (rows,) = gen_xla_ops.xla_variadic_sort([rows], int(length > 1), comparator=name, is_stable=False)
        results, at = [], 0
        for shape in call.results:
            size = math.prod(shape)
            results.append(tf.reshape(rows[:, at : at + size], [*batch, *shape]))
            at += size
        return tuple(results)


def _adjoint(x: Any) -> Any:
    import tensorflow as tf

    return tf.linalg.matrix_transpose(x, conjugate=x.dtype.is_complex)


def _square(call: str, x: Any, *, others: int = 0, **flags: bool) -> Linear:
    size = x.shape[-1]
    return Linear(call, size, size, others, **flags)  # type: ignore[arg-type]


def _cholesky(calls: Calls, _: node_def_pb2.NodeDef, x: Any) -> Any:
    if calls.transposed:
        return _adjoint(calls.run(_square("Cholesky", x, lower=False), _adjoint(x))[0])
    return calls.run(_square("Cholesky", x), x)[0]


def _triangular_solve(calls: Calls, node: node_def_pb2.NodeDef, matrix: Any, rhs: Any) -> Any:
    import tensorflow as tf

    batch = tf.broadcast_static_shape(matrix.shape[:-2], rhs.shape[:-2])
    matrix = tf.broadcast_to(matrix, [*batch, *matrix.shape[-2:]])
    rhs = tf.broadcast_to(rhs, [*batch, *rhs.shape[-2:]])
    call = _square("Triangle", matrix, others=rhs.shape[-1], lower=node.attr["lower"].b, adjoint=node.attr["adjoint"].b)
    return calls.run(call, matrix, rhs)[1]


def _solve(calls: Calls, node: node_def_pb2.NodeDef, matrix: Any, rhs: Any) -> Any:
    if node.attr["adjoint"].b:
        matrix = _adjoint(matrix)
    return calls.run(_square("Solve", matrix, others=rhs.shape[-1]), matrix, rhs)[1]


def _inverse(calls: Calls, node: node_def_pb2.NodeDef, x: Any) -> Any:
    import tensorflow as tf

    return _solve(calls, node, x, tf.eye(x.shape[-1], batch_shape=x.shape[:-2], dtype=x.dtype))


def _lu(calls: Calls, node: node_def_pb2.NodeDef, x: Any) -> Any:
    import tensorflow as tf

    factors, order, _, _ = calls.run(_square("Lu", x), x)
    return factors, tf.cast(_real(order), node.attr["output_idx_type"].type)


def _real(x: Any) -> Any:
    import tensorflow as tf

    return tf.math.real(x) if x.dtype.is_complex else x


def _determinant(calls: Calls, _: node_def_pb2.NodeDef, x: Any) -> Any:
    import tensorflow as tf

    if x.shape[-1] == 0:
        return tf.ones(x.shape[:-2], x.dtype)
    factors, _, _, sign = calls.run(_square("Lu", x), x)
    return tf.reduce_prod(tf.linalg.diag_part(factors), -1) * sign[..., 0]


def _log_determinant(calls: Calls, _: node_def_pb2.NodeDef, x: Any) -> Any:
    import tensorflow as tf

    factors, _, _, sign = calls.run(_square("Lu", x), x)
    if x.shape[-1] == 0:
        return tf.ones(x.shape[:-2], x.dtype), tf.zeros(x.shape[:-2], x.dtype)
    diagonal = tf.linalg.diag_part(factors)
    size = tf.abs(diagonal)
    signs = diagonal / tf.cast(size, x.dtype) if x.dtype.is_complex else tf.sign(diagonal)
    signs = tf.where(size == 0, tf.zeros_like(signs), signs)
    return tf.reduce_prod(signs, -1) * sign[..., 0], tf.cast(tf.reduce_sum(tf.math.log(size), -1), x.dtype)


def _qr(calls: Calls, node: node_def_pb2.NodeDef, x: Any) -> Any:
    import tensorflow as tf

    rows, columns = x.shape[-2:]
    least = min(rows, columns)
    wanted = rows if node.attr["full_matrices"].b else least
    packed, tau = calls.run(Linear("Reflectors", rows, columns), x)
    upper = tf.linalg.band_part(packed[..., :wanted, :], 0, -1)
    if 0 in x.shape:
        return tf.eye(rows, wanted, x.shape[:-2], x.dtype), upper
    (orthogonal,) = calls.run(Linear("Orthogonal", rows, least, wanted), packed[..., :least], tau[..., None])
    return orthogonal, upper


def _eigen(calls: Calls, node: node_def_pb2.NodeDef, x: Any) -> Any:
    vectors, values = calls.run(_square("Eigen", x, vectors=node.attr["compute_v"].b), x)
    return values, vectors


def _general(calls: Calls, node: node_def_pb2.NodeDef, x: Any) -> Any:
    """Returns eigenvalues and eigenvectors, or, of a node with SCHUR, the unitary matrix of the Schur decomposition."""
    import tensorflow as tf

    call = _square("General", x, others=int(node.attr[SCHUR].b), vectors=node.attr["compute_v"].b)
    vectors, values = calls.run(call, tf.cast(x, node.attr["Tout"].type))
    return values, vectors


def _square_root(calls: Calls, _: node_def_pb2.NodeDef, x: Any) -> Any:
    import tensorflow as tf

    wide = tf.complex128 if x.dtype.real_dtype == tf.float64 else tf.complex64
    (root,) = calls.run(_square("Root", x), tf.cast(x, wide))
    if x.dtype.is_complex:
        return root
    # That of a matrix with negative eigenvalues isn't real.
    real, imaginary = (tf.reduce_sum(part(root) ** 2, [-2, -1], keepdims=True) for part in (tf.math.real, tf.math.imag))
    is_real = imaginary <= _epsilon(x.dtype) * real
    return tf.where(is_real, tf.math.real(root), tf.constant(float("nan"), x.dtype))


def _singular(calls: Calls, node: node_def_pb2.NodeDef, x: Any) -> Any:
    rows, columns = x.shape[-2:]
    call = Linear("Singular", rows, columns, int(node.attr["full_matrices"].b), vectors=node.attr["compute_uv"].b)
    left, values, right = calls.run(call, x)
    return values, left, _adjoint(right)


def _least_squares(calls: Calls, _: node_def_pb2.NodeDef, matrix: Any, rhs: Any, _regularizer: Any) -> Any:
    import tensorflow as tf

    rows, columns = matrix.shape[-2:]
    left, values, right = calls.run(Linear("Singular", rows, columns), matrix)
    values = _real(values)
    least = values[..., :1] * max(rows, columns) * values.dtype.as_numpy_dtype(_epsilon(values.dtype))
    inverse = tf.where(values > least, 1 / values, tf.zeros_like(values))
    return _adjoint(right) @ (tf.cast(inverse, rhs.dtype)[..., None] * (_adjoint(left) @ rhs))


def _epsilon(dtype: Any) -> float:
    import numpy as np

    return float(np.finfo(dtype.as_numpy_dtype).eps)


OPS: Mapping[str, Callable[..., Any]] = {
    "Cholesky": _cholesky,
    "Eig": _general,
    "LogMatrixDeterminant": _log_determinant,
    "Lu": _lu,
    "MatrixDeterminant": _determinant,
    "MatrixInverse": _inverse,
    "MatrixSolve": _solve,
    "MatrixSolveLs": _least_squares,
    "MatrixSquareRoot": _square_root,
    "MatrixTriangularSolve": _triangular_solve,
    "Qr": _qr,
    "SelfAdjointEigV2": _eigen,
    "Svd": _singular,
}
"""What builds each op of its operands, as one tensor or a tuple of them."""

_ONLY_HERE = frozenset({"Eig", "LogMatrixDeterminant", "Lu", "MatrixDeterminant", "MatrixSolveLs", "MatrixSquareRoot"})
"""Those of which XLA has none for sizes that are known only at run time."""
