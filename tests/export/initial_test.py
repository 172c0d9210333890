"""Initial values from a file instead of the model: which are used, and what is wrong with those that don't fit."""

from __future__ import annotations

import hashlib
import unittest
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.stages.harness import StageTest
from tfaot.core import dtypes

BFLOAT16 = dtypes.BY_NAME["bfloat16"].numpy()

MODEL = """\
import tensorflow as tf

kernel = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], name="dense/kernel")
keep = tf.Variable([True, False], name="keep")
scale = tf.Variable(tf.constant(0.5, tf.bfloat16), name="scale")
steps = tf.Variable(0, dtype=tf.int64, name="steps")


@tf.function(input_signature=[tf.TensorSpec((3,), name="x")])
def model(x):
    steps.assign_add(1)
    y = tf.linalg.matvec(kernel, x, transpose_a=True) * tf.cast(scale, tf.float32)
    return {"noise": tf.random.uniform((2,)), "y": tf.where(keep, y, -y)}
"""
"""Writes a variable, so all are fed. Also draws random numbers, so there is another variable, the random state."""

READING = MODEL.replace("    steps.assign_add(1)\n", "").replace('"noise": tf.random.uniform((2,)), ', "")
"""Writes none, so all are frozen."""

FILE: dict[str, npt.NDArray[Any]] = {
    "dense/kernel": np.arange(6, dtype=np.float32).reshape(3, 2) - 2,
    "keep": np.array([False, True]),
    "scale": np.array(-1.5, BFLOAT16),
    "steps": np.array(7, np.int64),
}


class InitialTest(StageTest):
    """Each test exports a model with a weights file."""

    def check(self, variables: dict[str, npt.NDArray[Any]], wanted: dict[str, npt.NDArray[Any]]) -> None:
        """Compares variables with the expected ones."""
        self.assertEqual(set(variables), set(wanted))
        for name, value in wanted.items():
            self.assertEqual((variables[name].dtype, variables[name].shape), (value.dtype, value.shape), name)
            self.assertEqual(variables[name].tobytes(), value.tobytes(), name)

    def test_values_of_the_file(self) -> None:
        """Protects the attribute: every value comes from the file, bit by bit, including scalars, bools, and bfloat16."""
        state = {"tfaot/random_state": np.zeros(3, np.int64)}
        exported = self.export(MODEL, weights=FILE)
        self.check(exported.variables, FILE | state)
        own = self.export(MODEL)
        self.assertEqual(own.variables["dense/kernel"].tolist(), [[1, 2], [3, 4], [5, 6]])
        # Nothing else depends on them, or new weights would recompile the model.
        for output in ("graph", "config", "manifest", "golden_inputs", "sources"):
            with open(exported.path(output), "rb") as one, open(own.path(output), "rb") as other:
                self.assertEqual(one.read(), other.read(), output)

    def test_a_file_with_more(self) -> None:
        """Protects files for whole models, of which an entry point uses a part. A state that `Save` wrote is accepted."""
        state = {"tfaot/random_state": np.array([4, 5, 6], np.int64)}
        exported = self.export(MODEL, weights=FILE | state | {"optimizer/m": np.zeros((3, 2), np.float32)})
        self.check(exported.variables, FILE | state)

    def test_frozen_values_of_the_file(self) -> None:
        """Protects constants: their values also come from the file, and the manifest identifies them."""
        exported, own = self.export(READING, weights=FILE), self.export(READING)
        manifest = exported.manifest
        used = {name: value for name, value in FILE.items() if name != "steps"}
        self.assertEqual(
            {frozen.name: frozen.sha256 for frozen in manifest.frozen},
            {
                name: hashlib.sha256(f"{value.dtype}{list(value.shape)}\0".encode() + value.tobytes()).hexdigest()
                for name, value in used.items()
            },
        )
        self.assertEqual(exported.variables, {})
        self.assertNotEqual(manifest.fingerprints.frozen, own.manifest.fingerprints.frozen)
        self.assertNotEqual(manifest.fingerprints.constants, own.manifest.fingerprints.constants)
        self.assertEqual(manifest.fingerprints.config, own.manifest.fingerprints.config)

    def test_every_mismatch(self) -> None:
        """A file that misfits in every way is one error with all names, dtypes, and shapes, and what could be meant."""
        wrong = {
            "kernel": FILE["dense/kernel"],
            "keep": np.array([0, 1], np.uint8),
            "scale": np.array([-1.5], BFLOAT16),
            "steps": np.array(7, np.int32),
            "tfaot/random_state": np.zeros(3, np.uint64),
        }
        self.assert_error(
            self.error_of(self.export, MODEL, weights=wrong),
            """
            weights.safetensors doesn't fit the model: 5 of 5 variable(s)

                tfaot/random_state: uint64[3]; the model has int64[3]
                steps: int32[]; the model has int64[]
                dense/kernel: missing; the model has float32[3, 2]
                scale: bfloat16[1]; the model has bfloat16[]
                keep: uint8[2]; the model has bool[2]

              found: also in the file: kernel
              to do: write a file with every variable of the model, under its name in model.json
            """,
        )

    def test_one_mismatch(self) -> None:
        """If nothing is missing, names that the model doesn't have don't matter and aren't listed."""
        wrong = FILE | {"dense/kernel": FILE["dense/kernel"].T.copy(), "more": np.zeros(1, np.float32)}
        self.assert_error(
            self.error_of(self.export, MODEL, weights=wrong),
            """
            weights.safetensors doesn't fit the model: 1 of 5 variable(s)

                dense/kernel: float32[2, 3]; the model has float32[3, 2]

              to do: write a file with every variable of the model, under its name in model.json
            """,
        )

    def test_bools_that_are_none(self) -> None:
        """Bytes other than 0 and 1 are refused: C++ code that reads them as bool has undefined behavior."""
        wrong = FILE | {"keep": np.array([2, 1], np.uint8).view(np.bool_)}
        self.assert_error(
            self.error_of(self.export, MODEL, weights=wrong),
            """
            weights.safetensors doesn't fit the model: 1 of 5 variable(s)

                keep: bool[2] with values other than 0 and 1

              to do: write a file with every variable of the model, under its name in model.json
            """,
        )


if __name__ == "__main__":
    unittest.main()
