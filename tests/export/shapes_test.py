"""Sizes at a model's edge: those that the target fixes, the batch, and those that only the compiler or a run knows."""

from __future__ import annotations

import ctypes
import unittest
from pathlib import Path

import numpy as np

from tests.stages.harness import PREAMBLE, Exported, StageTest
from tfaot.core import safetensors
from tfaot.core.manifest import Output

OPEN = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return {
        "image": v1.placeholder(tf.float32, [None, None, 3], "image"),
        "any": v1.placeholder(tf.int32, None, "any"),
        "fixed": v1.placeholder(tf.float32, [None, 2], "fixed"),
    }, ()


def model_fn(features, labels):
    return {
        "image": features["image"] * 2,
        "any": features["any"] + 1,
        "fixed": tf.matmul(features["fixed"], v1.get_variable("w", [2, 5])),
    }
"""


def model_fn(body: str) -> str:
    """Returns a model of two floats `x` and a scalar integer `n`."""
    return PREAMBLE + "def model_fn(x, n):\n" + body


class ShapesTest(StageTest):
    def outputs(self, exported: Exported) -> dict[str, Output]:
        """Returns the outputs of the first entry point, by C++ name."""
        return {output.cpp_name: output for output in exported.manifest.entry_points[0].outputs}

    def test_dims(self) -> None:
        """Protects models with open dimensions: the target's sizes apply to inputs, results, and golden inputs."""
        exported = self.export(OPEN, dims={"image": (4, 5, None), "any": (2, 2), "fixed": (7, None)})
        wanted = {"image": (4, 5, 3), "any": (2, 2), "fixed": (7, 2)}
        inputs = {tensor.name.partition(":")[0]: tensor for tensor in exported.manifest.entry_points[0].inputs}
        self.assertEqual({name: tensor.shape for name, tensor in inputs.items()}, wanted)
        golden = exported.golden_inputs
        self.assertEqual({n: golden[f"step0/{t.cpp_name}"].shape for n, t in inputs.items()}, wanted)
        self.assertEqual(
            [output.shape for output in exported.manifest.entry_points[0].outputs], [(2, 2), (7, 5), (4, 5, 3)]
        )
        self.compile(exported)

    def test_batch(self) -> None:
        """Protects batch families: the class has the largest batch, and the compiler gets the largest compiled size."""
        exported = self.export(
            "import tensorflow as tf\n\n\n"
            "def model(x, scale):\n    return {'scaled': x * scale, 'class': tf.argmax(x, -1)}\n",
            batch_sizes=(2, 16),
            golden_steps=5,
            max_batch=100,
            signature={"x": "float32[None, 3]", "scale": "float32[3]"},
        )
        (entry,) = exported.manifest.entry_points
        self.assertEqual((exported.manifest.max_batch, entry.batch_sizes), (100, (2, 16)))
        self.assertEqual(
            [(t.cpp_name, t.shape, t.batched) for t in entry.inputs], [("x", (100, 3), True), ("scale", (3,), False)]
        )
        self.assertEqual(
            [(t.shape, t.batched, t.size) for t in entry.outputs], [((100,), True, ""), ((100, 3), True, "")]
        )
        self.assertEqual(exported.config.count("size: 16"), 3)
        self.assertNotIn("size: 100", exported.config)
        batches = [call.batch for call in exported.manifest.calls]
        self.assertEqual((len(batches), batches[:2]), (5, [1, 100]))
        self.assertTrue(all(1 < batch <= 100 for batch in batches[2:]), batches)
        for step, batch in enumerate(batches):
            self.assertEqual(exported.golden_inputs[f"step{step}/x"].shape, (batch, 3))
            self.assertEqual(exported.golden_inputs[f"step{step}/scale"].shape, (3,))

    def test_largest_batch_by_default(self) -> None:
        """Protects the simple case: without `max_batch`, the class takes what the largest code does."""
        exported = self.export("def model(x):\n    return x\n", batch_sizes=(1, 8), signature={"x": "float32[None]"})
        self.assertEqual((exported.manifest.max_batch, exported.manifest.entry_points[0].inputs[0].shape), (8, (8,)))

    def test_sizes_that_only_the_compiler_knows(self) -> None:
        """Protects results whose shape TensorFlow can't infer, but is fixed in XLA: they are ordinary results."""
        exported = self.export(
            model_fn(
                "    free = tf.TensorShape([None])\n"
                "    loop = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), (0, x), (tf.TensorShape([]), free))\n"
                "    return {'loop': loop[1], 'plain': x}\n"
            )
        )
        outputs = self.outputs(exported)
        self.assertEqual((outputs["loop"].shape, outputs["loop"].size), ((2,), ""))
        self.assertEqual((outputs["plain"].shape, outputs["plain"].size), ((2,), ""))

    def test_bounds(self) -> None:
        """Protects results without a fixed size: the shape has the bounds, and a separate fetch returns the true one."""
        exported = self.export(
            model_fn(
                """\
    boxes = tf.reshape(tf.tile(x, [8]), [4, 4])
    return {
        "where": tf.where(boxes > 0),
        "mask": tf.boolean_mask(boxes, boxes[:, 0] > 0),
        "unique": tf.unique(tf.cast(x, tf.int32))[0],
        "nms": tf.image.non_max_suppression(boxes, boxes[0], 3),
        "half": tf.boolean_mask(tf.cast(x, tf.bfloat16), x > 0),
        "wave": tf.boolean_mask(tf.complex(x, x), x > 0),
        "plain": x,
    }
"""
            )
        )
        outputs = self.outputs(exported)
        self.assertEqual(
            {name: (output.dtype, output.stored, output.shape) for name, output in outputs.items()},
            {
                "where": ("int64", "int64", (16, 2)),
                "mask": ("float32", "float32", (4, 4)),
                "unique": ("int32", "int32", (2,)),
                "nms": ("int32", "int32", (3,)),
                "half": ("bfloat16", "uint16", (2,)),
                "wave": ("complex64", "float32", (2,)),
                "plain": ("float32", "float32", (2,)),
            },
        )
        sizes = [output.size for output in outputs.values()]
        self.assertEqual([name for name, output in outputs.items() if not output.size], ["plain"])
        self.assertEqual(len(set(sizes)), len(sizes))
        self.compile(exported)
        header = Path(exported.path("header")).read_text()
        self.assertIn("kNumResults = 13;", header, "seven outputs and six sizes")

    def test_memory_that_nothing_has_written(self) -> None:
        """To bound a result, XLA reads sizes that nobody wrote. The build must not depend on what is in that memory."""
        model = """\
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec((3, 2), name="scores"), tf.TensorSpec((3, 2, 4), name="boxes")])
def model(scores, boxes):
    where = tf.where(scores > 0.3)
    return tf.image.non_max_suppression(tf.gather_nd(boxes, where), tf.gather_nd(scores, where), 3)
"""
        perturb = -6  # M_PERTURB: new memory has the complement of the value
        mallopt = ctypes.CDLL(None).mallopt
        self.addCleanup(mallopt, perturb, 0)
        for fill in (127, 254):
            mallopt(perturb, fill)
            exported = self.export(model)
            (output,) = exported.manifest.entry_points[0].outputs
            self.assertEqual((output.shape, bool(output.size)), ((3,), True))
            self.compile(exported)

    def test_default_golden_inputs(self) -> None:
        """Protects tests of models without inputs: values of every kind, the same in each export, different in each step."""
        text = (
            "import tensorflow as tf\n\n\n"
            "def model(f, h, i, b, c):\n    return {'f': f, 'h': h, 'i': i, 'b': b, 'c': c}\n"
        )
        signature = {
            name: f"{dtype}[50]"
            for name, dtype in zip("fhibc", ("float32", "bfloat16", "int8", "bool", "complex64"), strict=True)
        }
        first = self.export(text, golden_steps=2, signature=signature)
        second = self.export(text, golden_steps=2, signature=signature)
        self.assertEqual((first.folder / "golden_inputs").read_bytes(), (second.folder / "golden_inputs").read_bytes())
        # The verify stage draws them, so a build without tests stores none.
        self.assertEqual(safetensors.read(first.path("golden_inputs")), {})
        golden = first.golden_inputs
        for step in (0, 1):
            for name in ("f", "h"):
                self.assertLess(0.5, np.std(golden[f"step{step}/{name}"].astype(np.float32)))
            self.assertEqual(set(golden[f"step{step}/i"].tolist()), {0, 1})
            self.assertEqual(set(golden[f"step{step}/b"].tolist()), {False, True})
            self.assertLess(0.5, np.std(golden[f"step{step}/c"].imag))
        self.assertTrue(np.all(golden["step0/f"] != golden["step1/f"]))

    def test_config_of_several_entry_points(self) -> None:
        """Protects a user's config for a variable that several functions use: all their configs, and the class, follow."""
        exported = self.export(
            """\
import tensorflow as tf


class Model(tf.Module):
    def __init__(self):
        self.v = tf.Variable([1.0], name="v")

    @tf.function(input_signature=[tf.TensorSpec([1], tf.float32)])
    def forward(self, x):
        return x * self.v

    @tf.function(input_signature=[])
    def read(self):
        return self.v.read_value()


model = Model()
""",
            entry_points=(("Forward", "forward"), ("Read", "read")),
            user_config='variable { node_name: "v" name: "weights" } feed { id { node_name: "Forward/x" } name: "in" }',
        )
        self.assertEqual(exported.cpp_names["v"], "weights")
        self.assertEqual(exported.cpp_names["Forward/x:0"], "in")
        for text in exported.configs.values():
            self.assertIn('name: "weights"', text)
        self.assertEqual(['name: "in"' in text for text in exported.configs.values()], [True, False])
        for name in ("Forward", "Read"):
            self.compile(exported, entry_point=name)


if __name__ == "__main__":
    unittest.main()
