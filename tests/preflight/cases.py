"""Small models of what a single op doesn't show: values that must be constants, loops, lists, branches, and indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from tests.breadth import structures
from tests.preflight.corpus import Built, Instance, recipe_build

v1 = tf.compat.v1

_Spec = tuple[Any, list[int]]
_X: _Spec = (tf.float32, [6, 5])
_I: _Spec = (tf.int32, [])


def _written(x: Any, count: Any, **keywords: Any) -> Any:
    array = tf.TensorArray(tf.float32, count, element_shape=[5], **keywords)
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.write(i, x[i])), (0, array))[1].stack()


def _gradient(x: Any, n: Any, **keywords: Any) -> Any:
    @tf.function(autograph=False)
    def power(y: Any) -> Any:
        return tf.while_loop(lambda i, z: i < n, lambda i, z: (i + 1, tf.sin(z)), (0, y), **keywords)[1]

    return tf.gradients(power(x), x)


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Traces the model in a function, which has control flow v2."""
    return lambda *inputs: tf.function(function, autograph=False)(*inputs)


def _branches(x: Any, i: Any, first: Sequence[int], second: Sequence[int]) -> Any:
    return tf.reshape(x, tf.cond(i > 0, lambda: tf.constant(first), lambda: tf.constant(second)))


def _twice(x: Any, i: Any) -> Any:
    reshape = tf.function(tf.reshape, autograph=False)
    return reshape(x, tf.constant([30])), reshape(x, tf.stack([i, 5]))


def _growing_v1(x: Any) -> Any:
    array = v1.TensorArray(tf.float32, 0, dynamic_size=True)
    return v1.while_loop(lambda k, y: k < 3, lambda k, y: (k + 1, y.write(k, x[k])), (0, array))[1].stack()


def _written_v1(x: Any, count: Any) -> Any:
    array = v1.TensorArray(tf.float32, count)
    return v1.while_loop(lambda k, y: k < 3, lambda k, y: (k + 1, y.write(k, x[k])), (0, array))[1].stack()


def _collective(x: Any) -> Any:
    return tf.raw_ops.CollectiveReduceV2(
        input=x, group_size=2, group_key=1, instance_key=1, ordering_token=[], merge_op="Add", final_op="Id"
    )


CASES: dict[str, tuple[Callable[..., Any], tuple[_Spec, ...]]] = {
    "an index": (lambda x, i: x[i], (_X, _I)),
    "an index of the last dimension": (lambda x, i: x[..., i], (_X, _I)),
    "an index and a slice": (lambda x, i: x[i, 1:3], (_X, _I)),
    "an index and a new dimension": (lambda x, i: x[i, None], (_X, _I)),
    "a slice from a start": (lambda x, i: x[i:], (_X, _I)),
    "a slice to an end": (lambda x, i: x[:i], (_X, _I)),
    "a slice to an end from the back": (lambda x, i: x[:-i], (_X, _I)),
    "a slice of fixed size": (lambda x, i: x[i : i + 2], (_X, _I)),
    "a slice from start to end": (lambda x, i, j: x[i:j], (_X, _I, _I)),
    "a slice with a step": (lambda x, i, j: x[i:j:2], (_X, _I, _I)),
    "a slice with a fed step": (lambda x, i: x[::i], (_X, _I)),
    "a fed axis": (lambda x, i: tf.argmax(x, i), (_X, _I)),
    "a fed limit": (lambda i: tf.range(i), (_I,)),
    "a fed depth": (lambda i: tf.one_hot(i, i), (_I,)),
    "a fed count": (lambda x, i: tf.tile(x, [i, 1]), (_X, _I)),
    "a fed size with a bound": (lambda x, i: tf.zeros([tf.minimum(i, 4)]), (_X, _I)),
    "a random size": (lambda x: tf.zeros([tf.random.uniform([], 1, 5, tf.int32)]), (_X,)),
    "a size from the input's shape": (lambda x: tf.zeros(tf.shape(x) * 2), (_X,)),
    "a size from a result's size": (lambda x: tf.zeros(tf.shape(tf.where(x > 0))), (_X,)),
    "a reshaped result of unknown size": (lambda x: tf.reshape(tf.where(x > 0), [-1]), (_X,)),
    "boolean_mask": (lambda x: tf.boolean_mask(x, x > 0), (_X,)),
    "unique": (lambda x: tf.unique(tf.cast(tf.reshape(x, [-1]), tf.int32)), (_X,)),
    "a shape from branches that agree": (_called(lambda x, i: _branches(x, i, [30, 1], [30, 1])), (_X, _I)),
    "a shape from branches that differ": (_called(lambda x, i: _branches(x, i, [30, 1], [5, 6])), (_X, _I)),
    "a function called with a constant and with an input": (_twice, (_X, _I)),
    "a size that a loop changes": (
        _called(
            lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + tf.reduce_sum(tf.zeros([i]))), (0, x))
        ),
        (_X,),
    ),
    "a size that a loop passes on": (
        _called(
            lambda x: tf.while_loop(
                lambda i, y, n: i < 3, lambda i, y, n: (i + 1, y + tf.reduce_sum(tf.zeros([n])), n), (0, x, 4)
            )
        ),
        (_X,),
    ),
    "a size that a loop computes": (
        _called(lambda x: tf.zeros([tf.while_loop(lambda i: i < 3, lambda i: (i + 1,), (0,))[0]])),
        (_X,),
    ),
    "a list of constant size": (_called(lambda x: _written(x, 4)), (_X,)),
    "a list of fed size": (_called(_written), (_X, _I)),
    "a list that grows": (_called(lambda x: _written(x, 0, dynamic_size=True)), (_X,)),
    "the gradient of a loop without a bound": (_called(_gradient), (_X, _I)),
    "the gradient of a loop with a bound": (_called(lambda x, n: _gradient(x, n, maximum_iterations=7)), (_X, _I)),
    "a TensorFlow 1 branch": (lambda x, i: v1.cond(i > 0, lambda: x * 2, lambda: x), (_X, _I)),
    "a TensorFlow 1 loop": (
        lambda x, i: v1.while_loop(lambda k, y: k < i, lambda k, y: (k + 1, y * 2), (0, x)),
        (_X, _I),
    ),
    "a size that a TensorFlow 1 loop changes": (
        lambda x: v1.while_loop(lambda k, y: k < 3, lambda k, y: (k + 1, y + tf.reduce_sum(tf.zeros([k]))), (0, x)),
        (_X,),
    ),
    "a TensorFlow 1 list of constant size": (lambda x: _written_v1(x, 4), (_X,)),
    "a TensorFlow 1 list of fed size": (_written_v1, (_X, _I)),
    "a TensorFlow 1 list that grows": (_growing_v1, (_X,)),
    "the gradient of a TensorFlow 1 loop without a bound": (
        lambda x, i: tf.gradients(v1.while_loop(lambda k, y: k < i, lambda k, y: (k + 1, tf.sin(y)), (0, x))[1], x),
        (_X, _I),
    ),
    "a collective": (_collective, (_X,)),
    "a collective of XLA": (lambda x: gen_xla_ops.xla_all_reduce(x, [[0]], "Add", "CrossReplica"), (_X,)),
    "a reduction that XLA scatters": (lambda x: gen_xla_ops.xla_reduce_scatter(x, [[0]], 0, "Add"), (_X,)),
    "tf.print": (lambda x: (tf.print(x), x), (_X,)),
    "py_function": (lambda x: tf.py_function(lambda y: y, [x], tf.float32), (_X,)),
    "a string that is fed": (tf.strings.length, ((tf.string, [3]),)),
}
"""Models by what is special about them, with the dtypes and shapes of their inputs."""


def instances() -> list[Instance]:
    """Returns all cases, and the structures of `tests/breadth`."""
    return [
        *(Instance(name, "a model", _build(*case)) for name, case in CASES.items()),
        *(
            Instance(name, "a structure", recipe_build(recipe, [0, *name.encode()], "", -1))
            for name, recipe in structures.STRUCTURES.items()
        ),
    ]


def _build(function: Callable[..., Any], specs: Sequence[_Spec]) -> Callable[[str], Built]:
    def build(prefix: str) -> Built:
        v2 = tf.compat.v1.control_flow_v2_enabled()
        v1.disable_control_flow_v2()  # in the graph itself; functions have v2 in any case
        try:
            with tf.name_scope(prefix):
                inputs = [v1.placeholder(dtype, shape, f"x{index}") for index, (dtype, shape) in enumerate(specs)]
                return inputs, tf.nest.flatten(function(*inputs))
        finally:
            if v2:
                v1.enable_control_flow_v2()

    return build
