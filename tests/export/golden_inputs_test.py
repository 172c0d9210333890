"""Inputs to verify that the target names, for models from every source; and one error for each file that doesn't fit."""

from __future__ import annotations

import dataclasses
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.stages.harness import Exported, StageTest
from tfaot.core import isolate, safetensors
from tfaot.export.sources.model import Model

PYTHON = """\
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="x"), tf.TensorSpec([1], tf.int32, name="n")])
def model(x, n):
    return x * tf.cast(n, tf.float32)


def golden_fn(step, rng):
    raise AssertionError("the target names another file")
"""

MODEL_FN = """\
import tensorflow as tf


def input_fn():
    return tf.compat.v1.placeholder(tf.float32, [2], "x"), tf.compat.v1.placeholder(tf.int32, [1], "n")


def model_fn(features, labels):
    return features * tf.cast(labels, tf.float32)
"""

GRAPH = """\
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: 2 } } } } }
node { name: "n" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "shape" value { shape { dim { size: 1 } } } } }
node { name: "cast" op: "Cast" input: "n" attr { key: "SrcT" value { type: DT_INT32 } }
  attr { key: "DstT" value { type: DT_FLOAT } } }
node { name: "y" op: "Mul" input: "x" input: "cast" attr { key: "T" value { type: DT_FLOAT } } }
"""

STABLEHLO = """\
func.func public @main(%arg0: tensor<2xf32> loc("x"), %arg1: tensor<1xi32> loc("n")) -> tensor<2xf32> {
  %0 = stablehlo.convert %arg1 : (tensor<1xi32>) -> tensor<1xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<1xf32>) -> tensor<2xf32>
  %2 = stablehlo.multiply %arg0, %1 : tensor<2xf32>
  return %2 : tensor<2xf32>
}
"""

GOLDEN_FN = """\
import numpy as np


def golden_fn(step, rng):
    return {"x": np.array([step, 0.5]), "n": np.array([7])}
"""

ARRAYS: dict[str, Any] = {
    "n": np.array([7], np.int32),
    "step0/x": np.array([0, 0.5], "f4"),
    "step1/x": np.array([1, 0.5], "f4"),
}


class GoldenInputsTest(StageTest):
    """The attribute golden_inputs."""

    def path(self, name: str) -> str:
        """Returns a file's path. Each export runs in a folder of its own."""
        return str(self.folder / name)

    def exported(self, model: Model, inputs: str) -> Exported:
        """Exports a model with inputs of this name."""
        return self.export(dataclasses.replace(model, golden_inputs=self.path(inputs)), golden_steps=2)

    def refused(self, inputs: str) -> str:
        """Returns the error for inputs that don't fit."""
        return self.error_of(self.exported, Model(graph=self.path("graph.pbtxt")), inputs).replace(
            f"{self.folder}/", ""
        )

    def sources(self) -> dict[str, Model]:
        """Writes one model in every form."""
        (self.folder / "python.py").write_text(PYTHON)
        (self.folder / "model_fn.py").write_text(MODEL_FN)
        (self.folder / "graph.pbtxt").write_text(GRAPH)
        (self.folder / "program.mlir").write_text(STABLEHLO)

        def save() -> None:
            import tensorflow as tf

            module = tf.Module()
            specs = [tf.TensorSpec([2], tf.float32, name="x"), tf.TensorSpec([1], tf.int32, name="n")]
            module.run = tf.function(lambda x, n: x * tf.cast(n, tf.float32), input_signature=specs)
            tf.saved_model.save(module, str(self.folder / "saved"))

        isolate.run_isolated(save, what="saving")
        return {
            "a Python file": Model(model=self.path("python.py")),
            "model_fn": Model(model=self.path("model_fn.py")),
            "a SavedModel": Model(saved_model=self.path("saved")),
            "a GraphDef": Model(graph=self.path("graph.pbtxt")),
            "StableHLO": Model(stablehlo=self.path("program.mlir")),
        }

    def inputs(self) -> dict[str, Callable[[], object]]:
        """Returns what writes the same inputs in every form."""

        def write() -> None:
            with open(self.folder / "inputs.safetensors", "wb") as file:
                safetensors.write(file, ARRAYS)

        return {
            "inputs.py": lambda: (self.folder / "inputs.py").write_text(GOLDEN_FN),
            "inputs.npz": lambda: np.savez(self.folder / "inputs.npz", **ARRAYS),
            "inputs.safetensors": write,
        }

    def test_every_source(self) -> None:
        """Protects users whose model has no Python file: its test gets their inputs, from whatever form they have them in."""
        sources = self.sources()
        for path, write in self.inputs().items():
            write()
            for name, model in sources.items():
                with self.subTest(path=path, model=name):
                    exported = self.exported(model, path)
                    inputs = {key: value.tolist() for key, value in exported.golden_inputs.items()}
                    self.assertEqual(inputs, {"step0/x": [0, 0.5], "step0/n": [7], "step1/x": [1, 0.5], "step1/n": [7]})

    def test_steps_without_arrays(self) -> None:
        """Protects users who care about one step: the others get random inputs, as without a file."""
        (self.folder / "graph.pbtxt").write_text(GRAPH)
        arrays: dict[str, Any] = {"step1/x": np.ones(2, "f4"), "step1/n": np.array([2], np.int32)}
        np.savez(self.folder / "inputs.npz", **arrays)
        inputs = self.exported(Model(graph=self.path("graph.pbtxt")), "inputs.npz").golden_inputs
        self.assertEqual(inputs["step1/x"].tolist(), [1, 1])
        self.assertNotEqual(inputs["step0/x"].tolist(), [1, 1])

    def test_wrong_files(self) -> None:
        """Protects readers of an error: it names the file, says what is in it and what was needed, and what to do."""
        (self.folder / "graph.pbtxt").write_text(GRAPH)
        x, n = np.ones(2, "f4"), np.array([2], np.int32)
        for arrays, wanted in (
            (
                {"x": x, "m": n},
                """
                inputs.npz: 1 array(s) of the target's golden_inputs aren't named as inputs: m
                  found: the inputs are n, x
                  to do: name each array as its input, for all steps, or stepN/INPUT, for one
                """,
            ),
            (
                {"step0/x": x},
                """
                inputs.npz: the target's golden_inputs lack n in step 0, which runs graph
                  found: x
                  to do: add an array n, or step0/n; a step of which the file has no array gets random ones
                """,
            ),
            (
                {"x": x, "n": n, "step2/x": x},
                """
                inputs.npz: the target's golden_inputs have arrays for steps that nothing verifies: step2/x
                  found: 2 step(s), from step0 to step1
                  to do: raise golden_steps, or remove these arrays
                """,
            ),
            (
                {"x": np.ones(3), "n": n},
                """
                graph.pbtxt: the target's golden_inputs, inputs.npz, have float64[3] for x
                  found: the input is float32[2]
                  to do: give an array of the input's dtype and shape
                """,
            ),
            (
                {"x": np.array([None, None]), "n": n},
                """
                inputs.npz is the target's golden_inputs, and can't be read: Object arrays cannot be loaded when allow_pickle=False
                  found: something other than arrays of NumPy
                  to do: write it with numpy.savez(path, **{"step0/x": array}), without arrays of objects, or as a safetensors file
                """,
            ),
        ):
            np.savez(self.folder / "inputs.npz", **arrays)
            with self.subTest(arrays=arrays):
                self.assert_error(self.refused("inputs.npz"), wanted)
        (self.folder / "inputs.py").write_text("def golden(step, rng):\n    return {}\n")
        self.assert_error(
            self.refused("inputs.py"),
            """
            inputs.py is the target's golden_inputs, and defines no golden_fn(step, rng)
              found: golden
              to do: define golden_fn(step, rng) in it: it returns a dict from inputs to arrays
            """,
        )
        self.assert_error(
            self.refused("none.safetensors"),
            """
            golden_inputs = "none.safetensors"
              found: nothing at this path
              to do: check the path
            """,
        )
        (self.folder / "inputs.npz").write_text("text")
        self.assertIn("inputs.npz is the target's golden_inputs, and can't be read: ", self.refused("inputs.npz"))


if __name__ == "__main__":
    unittest.main()
