"""Keras 3 and tf-keras models, for inference and training, compared with Keras's own results."""

from __future__ import annotations

import subprocess
import sys
import unittest
from collections.abc import Sequence
from typing import Any

from tests.export.sources.eager import EagerTest
from tests.stages import harness
from tests.stages.harness import EXPORTED, ROOT, run_main
from tfaot.export.sources.model import Model

KERAS = ("keras", "tf_keras")

HEAD = """\
import KERAS as K
import tensorflow as tf

Spec = tf.TensorSpec
K.utils.set_random_seed(3)


"""

FORMS = (
    HEAD
    + """\
class Own(K.Model):
    def __init__(self):
        super().__init__()
        self.dense = K.layers.Dense(3)
        self.norm = K.layers.BatchNormalization()

    def call(self, x, training=None):
        return {"y": self.norm(self.dense(x), training=training)}


class Plain(K.Model):
    def __init__(self):
        super().__init__()
        self.dense = K.layers.Dense(3)

    def call(self, x):
        return self.dense(x)


a, b, c = K.Input((4,), name="a"), K.Input((2,), name="b"), K.Input((), name="c", dtype="int32")
sequential = K.Sequential([K.layers.Input((4,)), K.layers.Dense(3, activation="relu"), K.layers.Dense(2)])
by_key = K.Model({"z": a, "b": b, "c": c}, {"s": K.layers.Dense(2)(a) + b, "m": K.layers.Embedding(4, 2)(c), "a": a})
by_place = K.Model([b, a], [K.layers.Dense(2)(a) + b, b])
own = Own()
plain = Plain()
layer = K.layers.Dense(3)


def input_fn(entry_point):
    return Spec((3, 4))
"""
)


def call_form(module: Any, entry_point: str, inputs: Sequence[Any]) -> Any:
    """Calls a model of `FORMS`."""
    form = getattr(module, entry_point)
    if entry_point == "by_key":
        b, c, a = inputs
        return form({"z": a, "b": b, "c": c}, training=False)
    if entry_point == "by_place":
        return form(list(inputs), training=False)
    return form(*inputs) if entry_point == "layer" else form(*inputs, training=False)


def call(module: Any, entry_point: str, inputs: Sequence[Any]) -> Any:
    """Calls a model, or one of its steps."""
    if entry_point == "call":
        return module.model(*inputs, training=False)
    return getattr(module.model, entry_point)(tuple(inputs))


BOTH = (("Call", "call"), ("Train", "train_step"))


class KerasTest(EagerTest):
    """Both versions of Keras, with each model written for either."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        # Once, for all children.
        import keras
        import tf_keras

        assert keras.__version__ > tf_keras.__version__

    def test_forms(self) -> None:
        """Protects inference with every kind of model: inputs and outputs by key, by position, or single; and weight names."""
        names = ["sequential", "by_key", "by_place", "own", "plain", "layer"]
        for keras, first in zip(KERAS, ("input_layer", "input_1"), strict=True):
            with self.subTest(keras):
                text = FORMS.replace("KERAS", keras)
                points = tuple((f"f{index}", name) for index, name in enumerate(names))
                dims: Any = {"a": (3, None), "b": (3, None), "c": (3,), first: (3, None)}
                exported = self.agree(text, dims=dims, eager=call_form, entry_points=points)
                entries = exported.manifest.entry_points
                self.assertEqual(
                    [[tensor.cpp_name.partition("_")[2] for tensor in entry.inputs] for entry in entries],
                    [[first], ["b", "c", "a"], ["b", "a"], ["inputs"], ["inputs"], ["inputs"]],
                )
                self.assertEqual(
                    [[tensor.cpp_name.partition("_")[2] for tensor in entry.outputs] for entry in entries],
                    [["output"], ["a_2", "m", "s"], ["output_0", "output_1"], ["y"], ["output"], ["output"]],
                )
                variables = {variable.name for variable in exported.manifest.variables}
                self.assertIn("own/batch_normalization/moving_mean", variables)
                self.assertEqual(len(variables), 4 + 3 + 2 + 6 + 2 + 2)
                again = self.export(text, dims=dims, entry_points=points)
                for output in ("graph", "manifest", "variables"):
                    with open(exported.path(output), "rb") as one, open(again.path(output), "rb") as other:
                        self.assertEqual(one.read(), other.read(), f"{output} differs between two exports")

    TRAINED = (
        HEAD
        + """\
model = K.Sequential(
    [
        K.layers.Input((4,), name="x"),
        K.layers.Dense(3, use_bias=False),
        K.layers.BatchNormalization(),
        K.layers.Dense(2),
    ]
)
model.compile(
    optimizer=K.optimizers.Adam(0.01),
    loss=K.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)


def input_fn():
    return Spec((8, 4)), Spec((8,), tf.int32)
"""
    )

    def test_keras_file(self) -> None:
        """Protects the first lines of docs/guide/keras.md: a file that Keras saved becomes a model for any batch."""
        page = (ROOT / "docs" / "guide" / "keras.md").read_text()
        folder = self.write(page.partition("```python\n")[2].partition("```")[0])
        save = "import keras, sys; keras.Sequential([keras.Input((4,), name='x'), keras.layers.Dense(3)]).save(sys.argv[1])"
        subprocess.run([sys.executable, "-c", save, str(folder / "net.keras")], check=True, capture_output=True)
        entry = self.export(Model(model=str(folder / "model.py")), batch_sizes=(1, 32)).manifest.entry_points[0]
        self.assertEqual([edge.shape for edge in (*entry.inputs, *entry.outputs)], [(32, 4), (32, 3)])

    @harness.wide
    def test_training(self) -> None:
        """Protects inference, training, and evaluation in one target: metrics accumulate, and batch norm's averages move."""
        for keras in KERAS:
            with self.subTest(keras):
                exported = self.agree(
                    self.TRAINED.replace("KERAS", keras),
                    golden_calls=("Train", "Train", "Test", "Call"),
                    dims={"x": (8, None)},
                    eager=call,
                    entry_points=(*BOTH, ("Test", "test_step")),
                    golden_steps=2,
                    near=1e-3,
                )
                written = {
                    entry.name: {exported.manifest.variables[u.variable].name for u in entry.variables if u.written}
                    for entry in exported.manifest.entry_points
                }
                self.assertEqual(written["Call"], set())
                self.assertTrue({name for name in written["Train"] if "moving_mean" in name}, written)
                self.assertTrue(written["Test"] and written["Test"] < written["Train"], written)
                train = exported.manifest.entry_point("Train")
                self.assertEqual([output.cpp_name for output in train.outputs], ["Train_accuracy", "Train_loss"])

    @harness.wide
    def test_sample_weights(self) -> None:
        """Protects the third argument of a training step, which the target's signature declares."""
        for keras in KERAS:
            with self.subTest(keras):
                exported = self.agree(
                    self.TRAINED.replace("KERAS", keras).partition("def input_fn")[0],
                    compiled=False,
                    eager=call,
                    entry_points=(("Train", "train_step"),),
                    near=1e-3,
                    signature={"x": "float32[8, 4]", "y": "int32[8]", "sample_weight": "float32[8]"},
                )
                inputs = exported.manifest.entry_points[0].inputs
                self.assertEqual([tensor.cpp_name for tensor in inputs], ["x", "y", "sample_weight"])

    def test_step_of_ones_own(self) -> None:
        """Protects models with a custom training step, which Keras need not have compiled."""
        self.agree(
            HEAD.replace("KERAS", "keras")
            + """\
class Model(K.Model):
    def __init__(self):
        super().__init__()
        self.dense = K.layers.Dense(2)
        self.sgd = K.optimizers.SGD(0.1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(data[0]) - data[1]) ** 2)
        weights = self.dense.trainable_weights
        self.sgd.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"my_loss": loss}


model = Model()


def input_fn():
    return Spec((8, 4)), Spec((8, 2))
""",
            compiled=False,
            eager=call,
            entry_points=(("Train", "train_step"),),
            golden_steps=2,
            near=1e-4,
        )

    def test_the_keras_of_tensorflow(self) -> None:
        """Protects files that use `tf.keras`: without a model_fn, it is Keras 3."""
        exported = self.agree(
            "import tensorflow as tf\n\n"
            "assert tf.keras.__version__.startswith('3'), tf.keras.__version__\n"
            "model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)])\n",
            compiled=False,
            eager=call,
            signature={"input_layer": "float32[5, 3]"},
        )
        self.assertEqual(exported.manifest.entry_points[0].inputs[0].shape, (5, 3))

    def refused(self, model: str, wanted: str, entry_point: str) -> None:
        """Exports an entry point that must be refused with exactly this message, in either Keras."""
        for keras in KERAS:
            with self.subTest(keras):
                text = HEAD.replace("KERAS", keras) + model
                self.assert_error(self.error_of(self.export, text, entry_points=(("Point", entry_point),)), wanted)

    @harness.wide
    def test_the_keras_that_the_file_chooses(self) -> None:
        """TF_USE_LEGACY_KERAS in the model's file has its usual effect, although TensorFlow is imported before it."""
        for text, wanted in (
            ('os.environ["TF_USE_LEGACY_KERAS"] = "1"', True),
            ("os.environ.setdefault('TF_USE_LEGACY_KERAS', 'true')", True),
            ('os.environ.update({"A": "0", "TF_USE_LEGACY_KERAS": "True"})', True),
            ('os.environ["TF_USE_LEGACY_KERAS"] = "1"\nos.environ["TF_USE_LEGACY_KERAS"] = "0"', False),
            ('os.environ["TF_USE_LEGACY_KERAS"] = "0"\ndef model_fn(features, labels): pass', False),
            ("def model_fn(features, labels): pass", True),
            ('"TF_USE_LEGACY_KERAS"', False),
            ("if", False),
        ):
            with self.subTest(text):
                path = self.write(text) / "model.py"
                self.assertEqual(Model(model=str(path)).legacy_keras, wanted)
        for value, name in (("1", "tf_keras"), ("0", "keras")):
            folder = self.write(
                f'import os\n\nos.environ["TF_USE_LEGACY_KERAS"] = "{value}"\n'
                "import tensorflow as tf\n\n"
                f'assert tf.keras.layers.Layer.__module__.startswith("{name}."), tf.keras\n\n\n'
                "def model(x):\n    return x * 2\n"
            )
            flags = ["--model=model.py", "--signature=x=float32[2, 3]", "--cpp_class=t::Model"]
            result = run_main("export", *flags, *(f"--out_{output}={output}" for output in EXPORTED), cwd=folder)
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    @harness.wide
    def test_lost_masks(self) -> None:
        """Protects from padding that is taken for values: a layer, or a function, that drops a mask is named; no other one is."""
        model = """\
class Scale(K.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = KEEPS

    def call(self, x):
        return x * 3


class Mean(K.layers.Layer):
    def call(self, x, mask=None):
        return tf.reduce_mean(x if mask is None else x * tf.cast(mask, x.dtype)[..., None], 1)


words = K.Input((None,), dtype="int32", name="words")
x = K.layers.Embedding(20, 6, mask_zero=True)(words)
x = K.Sequential([K.layers.Dense(6), K.layers.Dropout(0.1)])(x)
x = Scale(name="own")(x)
x = K.layers.GRU(4, return_sequences=True)(x TIMES)
model = K.Model(words, K.layers.Dense(2)(Mean()(x)))
"""
        for keras, keeps, times, layer in (
            ("keras", True, "", None),
            ("keras", False, "", "own (Scale)"),
            ("keras", True, "* 2", "multiply (Multiply)"),
            ("tf_keras", True, "", None),
            ("tf_keras", False, "", "own (Scale)"),
            ("tf_keras", True, "* 2", "tf.math.multiply (TFOpLambda)"),
        ):
            with self.subTest(keras=keras, keeps=keeps, times=times):
                text = (HEAD + model).replace("KERAS", keras).replace("KEEPS", str(keeps)).replace("TIMES", times)
                flags = ["--model=model.py", "--cpp_class=t::Model", "--dims=words=2,5"]
                result = run_main(
                    "export", *flags, *(f"--out_{kind}={kind}" for kind in EXPORTED), cwd=self.write(text)
                )
                warning = (
                    f"warning: model.py: the Keras layer {layer} drops the mask of its input, so later layers take padding for "
                    "values; if it keeps values in their places, set supports_masking = True in it; otherwise, give it "
                    "call(self, inputs, mask=None), and compute_mask, or pass the mask to later layers yourself\n"
                )
                self.assertEqual((result.returncode, result.stderr), (0, warning if layer else ""))

    def test_unknown_entry_point(self) -> None:
        """A Keras model's entry points are listed without evaluating it: some properties raise until it is built."""
        self.refused(
            "class Model(K.Model):\n    def call(self, x):\n        return x\n\n"
            "    def encode(self, x):\n        return x\n\n\nmodel = Model()\n",
            """
            model.py has no entry point 'encoed'
              found: call, train_step, test_step, encode
              to do: name one of these in the target's entry_points, or define model: a function, a tf.function, a tf.Module, a Keras model, or a function without parameters that returns one
            """,  # noqa: E501
            "encoed",
        )

    def test_unknown_data(self) -> None:
        """Only the user can say what a training step takes."""
        self.refused(
            "model = K.Sequential([K.Input((2,)), K.layers.Dense(1)])\nmodel.compile(loss='mse')\n",
            """
            model.py: the inputs of train_step aren't specified
              found: train_step(x, y, sample_weight)
              to do: set its input_signature, or the target\'s signature = {"x": "float32[64, 3]"}, or define an input_fn() that returns a tf.TensorSpec for each parameter
            """,  # noqa: E501
            "train_step",
        )

    def test_open_batch(self) -> None:
        """For a model with an open batch, as usual in Keras, the error says how to fix it."""
        self.refused(
            "model = K.Sequential([K.Input((None, 2), name='x'), K.layers.Dense(1)])\n",
            """
            model.py: 1 input(s) have dimensions that aren't known at build time
              found: x [None, None, 2]
              to do: fix them in the model, or with dims = {"x": [1, 1, 2]}, with your sizes in place of 1; \
any number of rows is batch_sizes; \
a length that differs from call to call is dims = {"x": [1, "length", 2]}, sizes = {"length": [16, 64, 256]} (docs/guide/sizes.md)
            """,
            "call",
        )


if __name__ == "__main__":
    unittest.main()
