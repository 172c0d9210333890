"""Gives eigenvectors and singular vectors signs, and eigenvalues an order, that don't depend on how they are computed. Pure.

A vector times -1, or a complex number of size 1, is as good as the vector, so libraries differ. Here, the sum of a vector's values
times cos(0), cos(1), … is positive. Singular vectors that have no value come from a QR decomposition of the others. Eigenvalues of
matrices that aren't symmetric ascend by their real parts plus cos(1) times their imaginary parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.functions import EditableFunction
from tfaot.graph.linear import SCHUR
from tfaot.graph.program import Program
from tfaot.graph.splice import FunctionTarget, GraphTarget, Target, any_node, splice

_VECTORS = {"Eig": "compute_v", "SelfAdjointEigV2": "compute_v", "Svd": "compute_uv"}
"""The ops, and the attribute that says whether they return vectors."""
_ORDERED = "Eig"
"""The op whose values may have any order."""


def give_signs(graph: graph_pb2.GraphDef) -> None:
    """Rewrites a graph and its functions in place, except in TensorFlow 1's loops, into which constants can't be put."""
    if not any_node(graph, _VECTORS.__contains__) or any_node(graph, "Enter".__eq__):
        return
    library = {function.signature.name: function for function in graph.library.function}
    for function in graph.library.function:
        if any(node.op in _VECTORS for node in function.node_def):
            body = EditableFunction(function, library)
            _rewrite(FunctionTarget(body))
            body.write(function)
    program = Program(graph_pb2.GraphDef(), {}, ())
    program.graph.CopyFrom(graph)
    _rewrite(GraphTarget(program))
    graph.CopyFrom(program.graph)


def _rewrite(target: Target) -> None:
    for node in [*target.nodes()]:
        wanted = node.attr[_VECTORS[node.op]] if node.op in _VECTORS else None
        if wanted is not None and (node.op == _ORDERED or wanted.b or wanted.WhichOneof("value") is None):
            splice(target, node, [tf.TensorSpec(None, node.attr["T"].type)], _built(node))


def _built(node: node_def_pb2.NodeDef) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that computes the same as a node."""

    def eigen(x: Any) -> tuple[Any, ...]:
        values, vectors = tf.raw_ops.SelfAdjointEigV2(input=x, compute_v=True)
        return values, vectors * _signs(vectors)

    def singular(x: Any) -> tuple[Any, ...]:
        values, left, right = tf.raw_ops.Svd(input=x, compute_uv=True, full_matrices=False)
        signs = _signs(left)
        sides = left * signs, right * signs
        return values, *(map(_completed, sides) if full else sides)

    def general(x: Any) -> tuple[Any, ...]:
        wanted = node.attr["compute_v"].b
        values, vectors = tf.raw_ops.Eig(input=x, Tout=tf.as_dtype(node.attr["Tout"].type), compute_v=wanted)
        if SCHUR in node.attr:
            values.op._set_attr(SCHUR, node.attr[SCHUR])
            return values, vectors
        shapes = tf.shape(values), tf.shape(x)
        flat = tf.reshape(values, [-1, shapes[0][-1]])
        order = tf.argsort(tf.math.real(flat) + math.cos(1) * tf.math.imag(flat), stable=True)
        values = tf.reshape(tf.gather(flat, order, batch_dims=1), shapes[0])
        if not wanted:
            return values, vectors
        flat = tf.gather(tf.reshape(vectors, [-1, shapes[1][-1], shapes[1][-1]]), order, axis=2, batch_dims=1)
        vectors = tf.reshape(flat, shapes[1])
        return values, vectors * _signs(vectors)

    full = node.attr["full_matrices"].b
    return {"Eig": general, "SelfAdjointEigV2": eigen, "Svd": singular}[node.op]


def _signs(vectors: Any) -> Any:
    dtype = vectors.dtype
    weights = tf.cos(tf.cast(tf.range(tf.shape(vectors)[-2]), dtype.real_dtype))
    sums = tf.reduce_sum(vectors * tf.cast(weights[:, None], dtype), -2, keepdims=True)
    size = tf.abs(sums)
    ones = tf.ones_like(sums)
    return (
        tf.where(size > 0, tf.math.conj(sums) / tf.cast(size, dtype), ones)
        if dtype.is_complex
        else tf.where(sums < 0, -ones, ones)
    )


def _completed(vectors: Any) -> Any:
    (basis, _) = tf.raw_ops.Qr(input=vectors, full_matrices=True)
    return tf.concat([vectors, basis[..., tf.shape(vectors)[-1] :]], -1)
