"""Linear algebra of StableHLO in TensorFlow's ops: its own operations, and the calls of LAPACK that JAX exports for CPUs.

Where both use the same algorithm, results agree to the sign. Of a call, `info` is always 0: without a result, values are NaN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tfaot.export.sources import mlir
from tfaot.export.sources.mlir import MlirError, Signature, Type
from tfaot.graph.linear import SCHUR

CALL = re.compile(r"stablehlo\.custom_call @lapack_[sdcz](\w+?)(?:_ffi)?\(")
"""A call, and the routine without the letter of its dtype."""
_ROOT = re.compile(r"^(?P<head>  func\.func private @_sqrtm(?:_\d+)?\(.*)\n(?P<body>(?:    .*\n)+)", re.MULTILINE)
"""A function with the name of JAX's square root of a matrix."""
_STEPS = "_schur _sqrtm_triu dot_general transpose real imag negate complex dot_general"
"""What JAX's function computes: a factor's root between the unitary matrix and its adjoint."""
_LOWER, _LEFT, _UNIT, _NONE, _ALL = (ord(letter) for letter in "LLUNA")
_REFLECTED = "_tfaot_reflected"
"""An attribute of the node with reflectors' factors: the name of the matrix that they come from."""


def results(text: str, operands: Sequence[Any], types: Sequence[Type]) -> list[Any] | None:
    """Returns the results of an operation, or None if it is another one.

    Raises:
      MlirError: there is nothing for a call in TensorFlow's ops.
    """
    text = text.partition("\n")[0]
    if match := re.search(r"stablehlo\.(cholesky|triangular_solve)\b", text):
        return [_cholesky(text, *operands) if match[1] == "cholesky" else _triangular_solve(text, *operands)]
    call = CALL.search(text)
    if call is None:
        return None
    config = {name: int(value) for name, value in re.findall(r"(\w+) = (\d+) : ui8", text)}
    made = _CALLS[call[1]](config, types, *operands)
    info = types[len(made) :]
    return [*made, *(_zeros(type_, operands[0]) for type_ in info)]


def _zeros(type_: Type, matrix: Any) -> Any:
    """Returns zeros of a type, whose open sizes are those of a matrix."""
    shape = [tf.shape(matrix)[axis] if size is None else size for axis, size in enumerate(type_.shape)]
    return tf.zeros(shape, tf.as_dtype(mlir.dtype_of(type_)))


def branches(module: str) -> list[str]:
    """Returns the programs of a choice's branches, given one of the choice only, which takes everything that they use.

    They are empty if a branch has no linear algebra, or isn't one of a choice.
    """
    lines = module.splitlines()
    choice = re.search(r'"stablehlo\.(case|if)"\(', lines[2])
    if not choice or not re.search(r"@lapack_|stablehlo\.(cholesky|triangular_solve)\b", module):
        return []
    head, body, last = lines[:2], lines[3:-4], lines[-4]
    indent = last[: len(last) - len(last.lstrip())]
    regions = "\n".join(body).split(f"\n{indent}}}, {{\n")
    done = re.compile(rf"^{indent}  stablehlo\.return\b", re.MULTILINE)
    return ["\n".join([*head, done.sub("    return", region), "  }", "}", ""]) for region in regions]


def with_roots(module: str) -> str:
    """Makes calls of JAX's square roots of matrices, which are a Schur decomposition and a loop over single values."""

    def call(match: re.Match[str]) -> str:
        signature = Signature.of(match["head"])
        steps = re.findall(r"(?:\bcall @|\bstablehlo\.)([\w$.-]+?)(?:_\d+)?(?=[( ])", match["body"])
        called = re.findall(r"\bcall @([\w$.-]+)\(", match["body"])
        if signature is None or " ".join(steps) != _STEPS:
            return match[0]
        # A batch can be any of the argument's dimensions. The function that is called first moves it.
        schur, triangle = (bodies.get(name, "") for name in called)
        if (
            "stablehlo.transpose" in schur
            or "@lapack_" not in schur
            or not re.search(r"\.sqrt .*\.while\(", triangle, re.DOTALL)
        ):
            return match[0]
        (argument,), (result,) = signature.arguments, signature.results
        lines = match["body"].splitlines()
        location = re.search(r" loc\(.*\)$", lines[0])
        types = f"({argument.type}) -> {result.type}{location[0] if location else ''}"
        body = f"    %0 = stablehlo.custom_call @lapack_csqrtm({argument.value}) : {types}"
        return "\n".join([match["head"], body, *[""] * (len(lines) - 2), f"    return %0 : {result.type}", ""])

    functions = re.finditer(r"^  func\.func private @([\w$.-]+)\(.*\n((?:    .*\n)+)", module, re.MULTILINE)
    bodies = {function[1]: function[2] for function in functions}
    return _ROOT.sub(call, module)


def refused(target: str) -> str:
    """Returns why there is nothing for a call, given what it calls; nothing if there is."""
    if target == "ApproxTopK":
        return "use jax.lax.top_k"
    match = CALL.search(f"stablehlo.custom_call @{target}(")
    if match is None:
        return ""
    if re.match(r"lapack_[sd]gees", target):
        return 'the real Schur form, which funm takes, too; use jax.scipy.linalg.schur(a, output="complex") or jax.numpy.linalg.eig'
    return "" if match[1] in _CALLS else "TensorFlow has no op for it"


def _cholesky(text: str, matrix: Any) -> Any:
    return _factor(matrix, lower="lower = true" in text)


def _factor(matrix: Any, *, lower: bool) -> Any:
    factor = tf.linalg.cholesky(matrix if lower else _adjoint(matrix))
    return factor if lower else _adjoint(factor)


def _triangular_solve(text: str, matrix: Any, rhs: Any) -> Any:
    match = re.search(r"(NO_TRANSPOSE|TRANSPOSE|ADJOINT)", text)
    turned = {"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}[match[1] if match else "NO_TRANSPOSE"]
    flags = [f"{name} = true" in text for name in ("left_side", "lower", "unit_diagonal")]
    return _solved(matrix, rhs, turned, *flags)


def _solved(matrix: Any, rhs: Any, turned: str, left: bool, lower: bool, unit: bool) -> Any:
    """Solves op(matrix) * x = rhs, or x * op(matrix) = rhs."""
    if unit:
        matrix = tf.linalg.set_diag(matrix, tf.ones_like(matrix[..., 0]))
    if not left:
        # The transposed system: what is transposed then, wasn't before.
        rhs = tf.linalg.matrix_transpose(rhs)
        if turned == "C":
            matrix = tf.math.conj(matrix)
        turned = "T" if turned == "N" else "N"
    if turned == "T":
        matrix = tf.math.conj(matrix)
    x = tf.linalg.triangular_solve(matrix, rhs, lower=lower, adjoint=turned != "N")
    return x if left else tf.linalg.matrix_transpose(x)


def _adjoint(x: Any) -> Any:
    return tf.linalg.matrix_transpose(x, conjugate=x.dtype.is_complex)


Config = Mapping[str, int]


def _potrf(config: Config, _types: Sequence[Type], matrix: Any) -> list[Any]:
    return [_factor(matrix, lower=config["uplo"] == _LOWER)]


def _trsm(config: Config, _types: Sequence[Type], matrix: Any, rhs: Any) -> list[Any]:
    flags = config["side"] == _LEFT, config["uplo"] == _LOWER, config["diag"] == _UNIT
    return [_solved(matrix, rhs, chr(config["trans_x"]), *flags)]


def _getrf(_config: Config, types: Sequence[Type], matrix: Any) -> list[Any]:
    rows, columns = matrix.shape[-2:]
    if rows > columns:
        factors, swaps = tf.function(_tall, autograph=False)(
            matrix
        )  # a loop in the graph itself would be TensorFlow 1's
        return [factors, tf.cast(swaps + 1, mlir.dtype_of(types[1]))]
    factors, order = tf.linalg.lu(matrix[..., :rows])
    if columns > rows:
        rest = tf.gather(matrix[..., rows:], order, batch_dims=matrix.shape.rank - 2)
        unit = tf.linalg.set_diag(factors, tf.ones_like(factors[..., 0]))
        factors = tf.concat([factors, tf.linalg.triangular_solve(unit, rest)], -1)
    return [factors, tf.cast(_swaps(order) + 1, mlir.dtype_of(types[1]))]


def _tall(matrix: Any) -> tuple[Any, Any]:
    """Returns the LU decomposition of a matrix with more rows than columns, and the row that each row was swapped with."""
    rows, columns = matrix.shape[-2:]
    batch = matrix.shape.rank - 2
    below, behind = tf.range(rows), tf.range(columns)

    def step(k: Any, a: Any, swaps: Any) -> tuple[Any, Any, Any]:
        size = tf.abs(tf.math.real(a[..., k])) + tf.abs(tf.math.imag(a[..., k]))
        pivot = tf.argmax(tf.where(below < k, -tf.ones_like(size), size), -1, tf.int32)[..., None]
        unmoved = tf.zeros_like(a[..., 0], tf.int32) + below
        order = tf.where(tf.equal(below, k), pivot, tf.where(tf.equal(below, pivot), k, unmoved))
        a = tf.gather(a, order, axis=-2, batch_dims=batch)
        row, column, this = a[..., k, :], a[..., k], tf.equal(behind, k)
        by = tf.where(tf.equal(column[..., k, None], 0), column, column / column[..., k, None])
        left = tf.where(below > k, by, tf.zeros_like(by))
        a = tf.where((below[:, None] > k) & this, left[..., None], a)
        right = tf.where(behind > k, row, tf.zeros_like(row))
        return k + 1, a - left[..., None] * right[..., None, :], tf.where(this, pivot, swaps)

    start = tf.constant(0), matrix, tf.zeros_like(matrix[..., 0, :], tf.int32)
    _, factors, swaps = tf.while_loop(lambda k, *_: k < columns, step, start, maximum_iterations=columns)
    return factors, swaps


def _swaps(order: Any) -> Any:
    """Returns the row that each row was swapped with, one after another, given the resulting order.

    Before row i is swapped, row order[i] is where it was at first, or if that is before i, where the row is that took its place
    there, and so on: at the first of order[i], order[order[i]], … that isn't less than i. Steps are doubled to find it.
    """
    batch = order.shape.rank - 1
    index = tf.zeros_like(order) + tf.range(order.shape[-1], dtype=order.dtype)
    jumps, most = [order], [order]
    while 2 ** len(jumps) < order.shape[-1]:
        jumps.append(tf.gather(jumps[-1], jumps[-1], batch_dims=batch))
        most.append(tf.maximum(most[-1], tf.gather(most[-1], jumps[-2], batch_dims=batch)))
    at = index
    for jump, largest in zip(reversed(jumps), reversed(most), strict=True):
        less = tf.gather(largest, at, batch_dims=batch) < index
        at = tf.where(less, tf.gather(jump, at, batch_dims=batch), at)
    return tf.gather(order, at, batch_dims=batch)


def _geqrf(_config: Config, _types: Sequence[Type], matrix: Any) -> list[Any]:
    """Returns R, and NaN in the places of reflectors: `_orgqr` knows what they come from, and nothing else can use them."""
    rows, columns = matrix.shape[-2:]
    _, upper = tf.linalg.qr(matrix)
    upper = tf.concat([upper, tf.zeros_like(matrix)[..., upper.shape[-2] :, :]], -2)
    nan = tf.cast(float("nan"), matrix.dtype)
    below = tf.range(rows)[:, None] > tf.range(columns)
    tau = tf.fill(tf.shape(matrix[..., : min(rows, columns), 0]), nan)
    tau.op._set_attr(_REFLECTED, attr_value_pb2.AttrValue(s=matrix.name.encode()))
    return [tf.where(below, nan, upper), tau]


def _orgqr(_config: Config, types: Sequence[Type], _reflectors: Any, tau: Any) -> list[Any]:
    try:
        matrix = tau.graph.get_tensor_by_name(tau.op.get_attr(_REFLECTED).decode())
    except ValueError:
        raise MlirError(
            "error: a product of Householder reflectors that don't come from the QR decomposition before it; use jnp.linalg.qr"
        ) from None
    columns = types[0].shape[-1]
    orthogonal, _ = tf.linalg.qr(matrix, full_matrices=columns > min(matrix.shape[-2:]))
    return [orthogonal[..., :columns]]


def _gesdd(config: Config, types: Sequence[Type], matrix: Any) -> list[Any]:
    if config["mode"] == _NONE:
        values = tf.linalg.svd(matrix, compute_uv=False)
        empty = [_zeros(type_, matrix) for type_ in types[2:4]]
        return [matrix, values, *empty]
    values, left, right = tf.linalg.svd(matrix, full_matrices=config["mode"] == _ALL)
    return [matrix, values, left, _adjoint(right)]


def _syevd(config: Config, _types: Sequence[Type], matrix: Any) -> list[Any]:
    if config["uplo"] != _LOWER:
        matrix = _adjoint(matrix)
    if config["mode"] == _NONE:
        values = tf.linalg.eigvalsh(matrix)
        return [matrix, _real(values)]
    values, vectors = tf.linalg.eigh(matrix)
    return [vectors, _real(values)]


def _geev(config: Config, types: Sequence[Type], matrix: Any) -> list[Any]:
    dtype = tf.as_dtype(mlir.dtype_of(types[-2]))
    wanted = config["compute_left"] != _NONE, config["compute_right"] != _NONE
    if any(wanted):
        values, right = tf.linalg.eig(matrix)
        right = _largest_real(right)
        left = _largest_real(_adjoint(tf.linalg.inv(right))) if wanted[0] else right
    else:
        values = tf.linalg.eigvals(matrix)
        left = right = tf.zeros_like(matrix, dtype)
    return [*([values] if matrix.dtype.is_complex else [tf.math.real(values), tf.math.imag(values)]), left, right]


def _largest_real(vectors: Any) -> Any:
    """Returns vectors of length 1 whose largest value is real, as LAPACK's."""
    vectors /= tf.cast(tf.linalg.norm(vectors, axis=-2, keepdims=True), vectors.dtype)
    largest = tf.argmax(tf.abs(vectors), -2, tf.int32)[..., None]
    values = tf.gather(tf.linalg.matrix_transpose(vectors), largest, axis=-1, batch_dims=vectors.shape.rank - 1)
    factors = tf.math.conj(values) / tf.cast(tf.abs(values), vectors.dtype)
    return vectors * tf.linalg.matrix_transpose(factors)


def _gees(config: Config, types: Sequence[Type], matrix: Any) -> list[Any]:
    """Returns the Schur decomposition as the QR decomposition of eigenvectors, which the runtime computes in another way."""
    values, vectors = tf.linalg.eig(matrix)
    values.op._set_attr(SCHUR, attr_value_pb2.AttrValue(b=True))
    unitary, _ = tf.linalg.qr(vectors)
    upper = tf.linalg.band_part(_adjoint(unitary) @ matrix @ unitary, 0, -1)
    if config["mode"] == _NONE:
        unitary = tf.zeros_like(matrix)
    return [upper, unitary, tf.linalg.diag_part(upper)]


def _sqrtm(_config: Config, types: Sequence[Type], matrix: Any) -> list[Any]:
    return [tf.linalg.sqrtm(tf.cast(matrix, mlir.dtype_of(types[0])))]


def _real(values: Any) -> Any:
    return tf.math.real(values) if values.dtype.is_complex else values


def _gtsv(_config: Config, _types: Sequence[Type], low: Any, middle: Any, high: Any, rhs: Any) -> list[Any]:
    x = tf.linalg.tridiagonal_solve((high, middle, low), rhs, diagonals_format="sequence", partial_pivoting=False)
    return [low, middle, high, x]


_CALLS: Mapping[str, Callable[..., list[Any]]] = {
    "gees": _gees,
    "geev": _geev,
    "geqrf": _geqrf,
    "gesdd": _gesdd,
    "gesvd": _gesdd,
    "getrf": _getrf,
    "gtsv": _gtsv,
    "heevd": _syevd,
    "orgqr": _orgqr,
    "potrf": _potrf,
    "sqrtm": _sqrtm,  # of `with_roots`, not LAPACK's
    "syevd": _syevd,
    "trsm": _trsm,
    "ungqr": _orgqr,
}
