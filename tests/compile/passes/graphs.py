"""Handwritten graphs, rewritten by a pass and run by TensorFlow before and after."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core import environment

Array = npt.NDArray[Any]
Build = Callable[..., Any]
"""Takes placeholders; returns the fetches."""


class PassTest(unittest.TestCase):
    """Builds graphs, applies one pass, and compares."""

    @classmethod
    def setUpClass(cls) -> None:
        environment.prepare()
        import tensorflow as tf

        assert tf.__version__

    def rewritten(self, name: str, build: Build, *feeds: Array, jit: bool = False, rtol: float = 1e-5) -> int:
        """Applies a pass to a graph, compares its results before and after, and returns how many places changed.

        Args:
          name: the pass's name.
          build: makes the graph, given a placeholder for each feed.
          *feeds: values to compare with.
          jit: whether XLA runs it, if TensorFlow's own kernels can't.
          rtol: tolerated difference, as a fraction of each output's largest magnitude.
        """
        import tensorflow as tf

        from tfaot.compile import table

        with tf.Graph().as_default() as graph:
            inputs = [tf.compat.v1.placeholder(feed.dtype, feed.shape, f"x{i}") for i, feed in enumerate(feeds)]
            built = build(*inputs)
            fetches = [fetch.name for fetch in (built if isinstance(built, (list, tuple)) else [built])]
        config = config_of([f"x{i}:0" for i in range(len(feeds))], feeds, fetches)
        before = graph.as_graph_def()
        untouched = before.SerializeToString(deterministic=True)
        applied = table.apply(before, config, [name])
        self.assertEqual(before.SerializeToString(deterministic=True), untouched, "the exported graph changed")
        self.assertLessEqual(effects(before), effects(applied.graph), "something no longer waits")
        for want, got in zip(run(before, fetches, feeds, jit), run(applied.graph, fetches, feeds, jit), strict=True):
            self.assertEqual((want.dtype, want.shape), (got.dtype, got.shape))
            scale = np.abs(want[np.isfinite(want)]).max(initial=1e-30)
            np.testing.assert_allclose(got, want, rtol=0, atol=rtol * scale)
        places = applied.places[name]
        assert places is not None
        if not places:
            self.assertEqual(
                {node.name for node in applied.graph.node if node.op != "NoOp"} - {n.name for n in before.node}, set()
            )
        return places

    def assert_typed(self, graph: Any) -> None:
        """Checks dtypes of loops' functions, because sessions accept mismatches that the compiler refuses."""
        import tensorflow as tf

        library = {function.signature.name: function.signature for function in graph.library.function}
        for node in graph.node:
            if node.op in ("While", "StatelessWhile"):
                cond, body = (library[node.attr[key].func.name] for key in ("cond", "body"))
                self.assertEqual([arg.type for arg in cond.output_arg], [tf.bool.as_datatype_enum])
                for arguments in (cond.input_arg, body.input_arg, body.output_arg):
                    self.assertEqual([arg.type for arg in arguments], [*node.attr["T"].list.type])


def effects(graph: Any) -> set[tuple[str, str]]:
    """Returns pairs of nodes that read or write variables, the second of which waits for the first."""
    nodes = {node.name: node for node in graph.node}
    before: dict[str, set[str]] = {}

    def ancestors(name: str) -> set[str]:
        if name not in before:
            operands = [operand.removeprefix("^").partition(":")[0] for operand in nodes[name].input]
            before[name] = {*operands}.union(*map(ancestors, operands))
        return before[name]

    found = [name for name, node in nodes.items() if node.op in ("AssignVariableOp", "ReadVariableOp")]
    return {(first, second) for second in found for first in found if first in ancestors(second)}


def config_of(names: Sequence[str], feeds: Sequence[Array], fetches: Sequence[str]) -> Any:
    """Returns a `tf2xla.Config` for names of tensors, with ports."""
    import tensorflow as tf
    from tensorflow.compiler.tf2xla import tf2xla_pb2

    config = tf2xla_pb2.Config()
    for name, value in zip(names, feeds, strict=True):
        node, _, port = name.partition(":")
        feed = config.feed.add(type=tf.as_dtype(value.dtype).as_datatype_enum)
        feed.id.node_name, feed.id.output_index = node, int(port)
        feed.shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
    for name in fetches:
        node, _, port = name.partition(":")
        fetch = config.fetch.add()
        fetch.id.node_name, fetch.id.output_index = node, int(port)
    return config


def compiled(graph: Any, fetches: Sequence[str]) -> Callable[..., list[Array]]:
    """Returns a GraphDef whose placeholders are x0, x1, … as a function of their values, which XLA compiles."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    for function in graph.library.function:  # register functions that a pass wrote
        if not context.context().has_function(function.signature.name):
            context.context().add_function_def(function)
    function = tf.function(_importer(graph, fetches), jit_compile=True, autograph=False)
    return lambda *feeds: [value.numpy() for value in function(*(tf.constant(feed) for feed in feeds))]


def _importer(graph: Any, fetches: Sequence[str]) -> Callable[..., list[Any]]:
    import tensorflow as tf
    from tensorflow.core.framework import graph_pb2

    inner = graph_pb2.GraphDef(library=graph.library, versions=graph.versions)
    inner.node.extend(node for node in graph.node if node.op != "Placeholder")

    def imported(*values: Any) -> list[Any]:
        names = {f"x{index}:0": value for index, value in enumerate(values)}
        results: list[Any] = tf.import_graph_def(inner, input_map=names, return_elements=list(fetches), name="")
        return results

    return imported


def run(graph: Any, fetches: Sequence[str], feeds: Sequence[Array], jit: bool = False) -> list[Array]:
    """Runs a GraphDef whose placeholders are x0, x1, ….

    Args:
      graph: the GraphDef.
      fetches: names of tensors.
      feeds: the placeholders' values.
      jit: whether XLA runs it.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2

    if jit:
        return compiled(graph, fetches)(*feeds)
    with tf.Graph().as_default():
        placeholders = [tf.compat.v1.placeholder(feed.dtype, feed.shape) for feed in feeds]
        results = _importer(graph, fetches)(*placeholders)
        config = config_pb2.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True  # it also folds factors into kernels
        with tf.compat.v1.Session(config=config) as session:
            values: list[Array] = session.run(results, dict(zip(placeholders, feeds, strict=True)))
            return values
