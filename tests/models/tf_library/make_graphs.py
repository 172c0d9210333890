"""Makes graphs of the kinds that TensorFlow tests its own `tf_library` with: `make_graphs FOLDER` writes all of them.

Each kind is `KIND.pb`, a GraphDef, and `KIND.config.pbtxt`, a tf2xla config as people write it by hand. Two kinds also have a
checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saver_pb2

v1 = tf.compat.v1

Kind = Callable[[], tuple[str, ...]]


def feed(node: str, *sizes: int, name: str = "") -> str:
    """Returns a config's entry for an input."""
    shape = " ".join(f"dim {{ size: {size} }}" for size in sizes)
    return f'feed {{ id {{ node_name: "{node}" }} shape {{ {shape} }} {_named(name)}}}'


def fetch(node: str, name: str = "") -> str:
    """Returns a config's entry for an output."""
    return f'fetch {{ id {{ node_name: "{node}" }} {_named(name)}}}'


def variable(node: str, rest: str = "") -> str:
    """Returns a config's entry for a variable."""
    return f'variable {{ node_name: "{node}" type: DT_FLOAT {rest} }}'


def _named(name: str) -> str:
    return f'name: "{name}" ' if name else ""


def add() -> tuple[str, ...]:
    """Feeds replace constants."""
    tf.add(tf.constant([3], name="left"), tf.constant([4], name="right"), name="total")
    return feed("left", 1), feed("right", 1), fetch("total")


def saved() -> tuple[str, ...]:
    """A reference variable, whose value is in a checkpoint."""
    x = v1.placeholder(tf.int32, name="x")
    offset = v1.get_variable("offset", initializer=tf.constant([0]), use_resource=False)
    tf.add(x, offset, name="total")
    return feed("x", 1), fetch("total")


def dense() -> tuple[str, ...]:
    """Resource variables, whose values are in a checkpoint of several files. The config also names one of them."""
    x = v1.placeholder(tf.float32, name="x")
    kernel = v1.get_variable("dense/kernel", [3, 2], use_resource=True)
    bias = v1.get_variable("dense/bias", [2], use_resource=True)
    tf.nn.relu(tf.matmul(x, kernel) + bias, name="y")
    return feed("x", 5, 3), fetch("y"), variable("dense/bias", "readonly: true")


def assertion() -> tuple[str, ...]:
    """An assertion, which compiled code doesn't make."""
    x, y = (v1.placeholder(tf.int32, name=name) for name in "xy")
    v1.Assert(tf.equal(x, y), ["x isn't y"], name="same").mark_used()
    tf.subtract(x, y, name="difference")
    return feed("x"), feed("y"), fetch("difference")


def branch() -> tuple[str, ...]:
    """A branch that an input chooses."""
    chosen = v1.placeholder(tf.bool, name="chosen")
    x, y = (v1.placeholder(tf.int32, name=name) for name in "xy")
    tf.identity(v1.cond(chosen, lambda: x * 3, lambda: y - 2), name="result")
    return feed("chosen"), feed("x"), feed("y"), fetch("result")


def function() -> tuple[str, ...]:
    """A function in the graph's library."""

    @tf.function(autograph=False)
    def scaled(x: Any, y: Any) -> Any:
        return 2 * x + y

    x, y = (v1.placeholder(tf.float32, [3], name=name) for name in "xy")
    tf.identity(scaled(x, y), name="result")
    return feed("x", 3), feed("y", 3), fetch("result")


def gather() -> tuple[str, ...]:
    """Rows of a table."""
    table = v1.placeholder(tf.float32, name="table")
    rows = v1.placeholder(tf.int32, name="rows")
    tf.gather(table, rows, name="found")
    return feed("table", 4, 3), feed("rows", 2), fetch("found")


def scatter() -> tuple[str, ...]:
    """Values that go to rows, and add up where rows repeat."""
    rows = v1.placeholder(tf.int32, name="rows")
    values = v1.placeholder(tf.float32, name="values")
    tf.scatter_nd(rows, values, [6], name="new")
    tf.tensor_scatter_nd_add(tf.fill([6], 1.5), rows, values, name="sum")
    return feed("rows", 4, 1), feed("values", 4), fetch("new"), fetch("sum")


def matmul() -> tuple[str, ...]:
    """A product and a sum of the same inputs, all with names."""
    x, y = (v1.placeholder(tf.float32, name=name) for name in ("in/x", "in/y"))
    tf.matmul(x, y, name="product")
    tf.add(x, y, name="sum")
    return (
        feed("in/x", 2, 2, name="x"),
        feed("in/y", 2, 2, name="y"),
        fetch("product", "x_y_prod"),
        fetch("sum", "x_y_sum"),
    )


def constant() -> tuple[str, ...]:
    """A product with a large constant."""
    x = v1.placeholder(tf.float32, name="x")
    weights = tf.reshape(tf.cos(tf.range(64 * 48, dtype=tf.float32)), [64, 48])
    value = v1.Session().run(weights)
    tf.matmul(x, tf.constant(value, name="weights"), name="product")
    return feed("x", 16, 64), fetch("product")


def splits() -> tuple[str, ...]:
    """Halves that are exchanged and multiplied, several times."""
    x, y = (v1.placeholder(tf.float32, [2, 2], name=name) for name in "xy")
    for _ in range(3):
        (upper, lower), (top, bottom) = tf.split(x, 2), tf.split(y, 2)
        x, y = tf.matmul(tf.concat([upper + 0.5, bottom], 0), tf.concat([top + 0.5, lower], 0)), x + tf.matmul(x, y)
    tf.identity(y, name="result")
    return feed("x", 2, 2), feed("y", 2, 2), fetch("result")


def top_k() -> tuple[str, ...]:
    """Two outputs of one node."""
    x = v1.placeholder(tf.int32, [7], name="x")
    tf.identity(tf.math.top_k(x, 3, name="largest").indices, name="places")
    return feed("x", 7), fetch("largest"), fetch("places")


def random() -> tuple[str, ...]:
    """Random numbers."""
    x = v1.placeholder(tf.float32, name="x")
    tf.add(x, v1.random_uniform([5], seed=3), name="noisy")
    return feed("x", 5), fetch("noisy")


def variables() -> tuple[str, ...]:
    """A variable that is read, assigned, and read again."""
    x = v1.get_variable("x", [1], use_resource=True)
    before = x.read_value()
    with tf.control_dependencies([before]):
        after = x.assign_add([42.0], read_value=True)
    tf.stack([before, after], name="result")
    return fetch("result"), variable("x", "shape { dim { size: 1 } }")


def read_only() -> tuple[str, ...]:
    """A variable that is only read, and one that nothing needs."""
    x, _ = (v1.get_variable(name, [], use_resource=True) for name in "xy")
    tf.add(x.read_value(), 42.0, name="result")
    return fetch("result"), variable("x", "shape { } readonly: true"), variable("y", "readonly: true")


def updates() -> tuple[str, ...]:
    """Several assignments of one variable, one after another, with another one that is only read."""
    x, y = (v1.get_variable(name, [], use_resource=True) for name in "xy")
    update: Any = tf.no_op()
    for _ in range(3):
        with tf.control_dependencies([update]):
            update = x.assign_sub(0.1 * (x.read_value() + y.read_value()), read_value=True)
    tf.identity(update, name="result")
    return fetch("result"), variable("x"), variable("y", "readonly: true")


KINDS: tuple[Kind, ...] = (
    *(add, saved, dense, assertion, branch, function, gather, scatter, matmul, constant, splits, top_k, random),
    *(variables, read_only, updates),
)


def save(kind: Kind, folder: Path) -> None:
    """Writes the current graph's variables: in TensorFlow's first format, also by a saver that renames them, or in the second."""
    variables = v1.global_variables()
    values = [tf.reshape(tf.range(40, 40 + variable.shape.num_elements()), variable.shape) for variable in variables]
    assign = [
        v1.assign(variable, tf.cast(value, variable.dtype.base_dtype))
        for variable, value in zip(variables, values, strict=True)
    ]
    with v1.Session() as session:
        session.run(assign)
        if kind is dense:
            v1.train.Saver().save(session, str(folder / "dense.ckpt"))
            return
        other = {f"other/{variable.op.name}": variable for variable in variables}
        for name, names in (("saved", None), ("renamed", other)):
            saver = v1.train.Saver(names, name=name, write_version=saver_pb2.SaverDef.V1)
            saver.save(session, str(folder / f"{name}.ckpt"), write_meta_graph=False)
            (folder / f"{name}.saver").write_bytes(saver.as_saver_def().SerializeToString())


def main() -> None:
    """Writes all kinds."""
    folder = Path(sys.argv[1])
    v1.disable_eager_execution()
    v1.enable_control_flow_v2()
    for kind in KINDS:
        with tf.Graph().as_default() as graph:
            entries = kind()
            if kind in (saved, dense):
                save(kind, folder)
            if kind is not dense:  # its checkpoint has the graph
                (folder / f"{kind.__name__}.pb").write_bytes(graph.as_graph_def().SerializeToString())
            (folder / f"{kind.__name__}.config.pbtxt").write_text("\n".join(entries) + "\n")


if __name__ == "__main__":
    main()
