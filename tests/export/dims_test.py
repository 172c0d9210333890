"""Unknown dimensions, which the target fixes by name, in the same way for every source of models."""

from __future__ import annotations

import unittest
from typing import Any

from tests.export.sources.eager import EagerTest
from tests.stages.harness import Exported
from tfaot.core import isolate
from tfaot.export.sources.model import Model

HEAD = "import tensorflow as tf\n\nSpec = tf.TensorSpec\n\n\n"

OPEN = (
    HEAD
    + """\
def first(nest, x):
    return {"a": nest["a"] * 2, "b": tf.reduce_sum(nest["b"]), "flat": tf.reshape(x, [-1])}


def second(x):
    return x[:, 0]


def input_fn(entry_point):
    x = Spec([None, None, 4], tf.int32)
    return ({"a": Spec([2, None]), "b": Spec(None)}, x) if entry_point == "first" else x
"""
)


def save(folder: str) -> None:
    """Saves the same open function as a SavedModel and as a GraphDef."""
    import tensorflow as tf

    module = tf.Module()
    module.f = tf.function(
        lambda a, b, x: {"a": a * 2, "b": tf.reduce_sum(b), "flat": tf.reshape(x, [-1])},
        input_signature=[
            tf.TensorSpec([2, None], tf.float32, "a"),
            tf.TensorSpec(None, tf.float32, "b"),
            tf.TensorSpec([None, None, 4], tf.int32, "x"),
        ],
    )
    tf.saved_model.save(module, f"{folder}/saved", signatures=module.f)
    with tf.Graph().as_default() as graph:
        a = tf.compat.v1.placeholder(tf.float32, [2, None], "a")
        b = tf.compat.v1.placeholder(tf.float32, None, "b")
        x = tf.compat.v1.placeholder(tf.int32, [None, None, 4], "x")
        tf.identity(a * 2, "out_a")
        tf.reduce_sum(b, name="out_b")
        tf.reshape(x, [-1], name="flat")
    tf.io.write_graph(graph, folder, "graph.pb", as_text=False)


class DimsTest(EagerTest):
    """What `dims` does, and what it refuses."""

    ENTRY_POINTS = (("first", "first"), ("second", "second"))

    def refused(self, model: str | Model, wanted: str, **attributes: Any) -> None:
        """Exports a model that must be refused with exactly this message."""
        text = self.error_of(self.export, model, **attributes)
        self.assert_error(text.replace(f"{self.folder}/", ""), wanted)

    def finished(self) -> dict[str, Model]:
        """Returns the open function as a SavedModel and as a GraphDef."""
        folder = str(self.folder)
        isolate.run_isolated(lambda: save(folder), what="saving")
        return {
            "saved": Model(saved_model=f"{folder}/saved"),
            "graph.pb": Model(graph=f"{folder}/graph.pb", outputs=("out_a", "out_b", "flat")),
        }

    def shapes(self, exported: Exported) -> list[dict[str, tuple[int, ...]]]:
        """Returns the shapes of inputs and outputs, by C++ name, for each entry point."""
        return [
            {tensor.cpp_name: tensor.shape for tensor in (*entry.inputs, *entry.outputs)}
            for entry in exported.manifest.entry_points
        ]

    def test_fixed(self) -> None:
        """Protects sizes that the target sets: None keeps the model's own, and a name applies to every entry point."""
        exported = self.agree(
            OPEN,
            dims={"nest/a": (None, 3), "nest/b": (2, 2), "x": (5, 2, None)},
            eager=lambda module, name, inputs: (
                module.first({"a": inputs[0], "b": inputs[1]}, inputs[2]) if name == "first" else module.second(*inputs)
            ),
            entry_points=self.ENTRY_POINTS,
        )
        self.assertEqual(
            self.shapes(exported),
            [
                {
                    "first_nest_a": (2, 3),
                    "first_nest_b": (2, 2),
                    "first_x": (5, 2, 4),
                    "first_a": (2, 3),
                    "first_b": (),
                    "first_flat": (40,),
                },
                {"second_x": (5, 2, 4), "second_output": (5, 4)},
            ],
        )

    def test_fixed_in_finished_models(self) -> None:
        """Protects the same in a SavedModel and in a GraphDef, whose graphs were built with open dimensions."""
        for name, model in self.finished().items():
            with self.subTest(name):
                exported = self.export(model, dims={"a": (None, 3), "b": (2, 2), "x": (5, 2, None)})
                self.compile(exported)
                (shapes,) = self.shapes(exported)
                self.assertEqual([shapes[input_] for input_ in "abx"], [(2, 3), (2, 2), (5, 2, 4)])
                self.assertEqual(sorted(shapes.values()), sorted([(2, 3), (2, 2), (5, 2, 4), (2, 3), (), (40,)]))

    def test_left_open(self) -> None:
        """Everything that is still open is listed together, with a sufficient `dims`."""
        self.refused(
            OPEN,
            """
            model.py: 3 input(s) have dimensions that aren't known at build time
              found: nest/a [2, None]; nest/b (unknown rank); x [None, 2, 4]
              to do: fix them in the model, or with dims = {"nest/a": [2, 1], "nest/b": [], "x": [1, 2, 4]}, with your sizes \
in place of 1; of an unknown rank, write a size for each dimension, or [] for a scalar; \
any number of rows is batch_sizes; \
a length that differs from call to call is dims = {"nest/a": [2, "length"]}, sizes = {"length": [16, 64, 256]} (docs/guide/sizes.md)
            """,
            dims={"x": (None, 2, None)},
            entry_points=self.ENTRY_POINTS,
        )

    def test_contradictions(self) -> None:
        """A different rank and a different size are listed together, each with both shapes."""
        self.refused(
            OPEN,
            """
            model.py: dims contradicts the shape of 2 input(s)
              found: nest/a has 2 dimensions, [2, None], but dims has [2, 2, 2]; x is [None, None, 4], but dims has [1, 2, 3]
              to do: use None to keep the model's own size, and list a size for every dimension
            """,
            dims={"nest/a": (2, 2, 2), "nest/b": (7,), "x": (1, 2, 3)},
            entry_points=self.ENTRY_POINTS,
        )
        for name, model in self.finished().items():
            function = ", serving_default" if model.saved_model else ""
            self.refused(
                model,
                f"""
                {name}{function}: dims contradicts the shape of 2 input(s)
                  found: a is [2, None], but dims has [3, 1]; x has 3 dimensions, [None, None, 4], but dims has [4]
                  to do: use None to keep the model's own size, and list a size for every dimension
                """,
                dims={"a": (3, 1), "b": (7,), "x": (4,)},
            )

    def test_unknown_names(self) -> None:
        """A name that isn't an input of any entry point is refused with a list of all inputs."""
        fixed: dict[str, tuple[int | None, ...]] = {"nest/a": (2, 3), "nest/b": (2,), "x": (5, 2, 4)}
        self.refused(
            OPEN,
            """
            model.py: dims names a, output, which isn't an input of the model
              found: nest/a, nest/b, x
              to do: use the names listed here
            """,
            dims=fixed | {"a": (2, 3), "output": (1,)},
            entry_points=self.ENTRY_POINTS,
        )


if __name__ == "__main__":
    unittest.main()
