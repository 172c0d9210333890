"""Keras models that take seconds to trace and compile, in either version; keras_test.py has the others."""

from __future__ import annotations

import unittest

from tests.export.sources.eager import EagerTest
from tests.export.sources.keras_test import BOTH, HEAD, KERAS, call


class LayersTest(EagerTest):
    """Inference and training, compared with Keras's own results."""

    def test_layers_with_loops(self) -> None:
        """Protects default recurrent layers, and a convolution with batch norm, in both versions of Keras, and training."""
        for keras in KERAS:
            with self.subTest(keras):
                self.agree(
                    (
                        HEAD
                        + """\
model = K.Sequential(
    [
        K.layers.Input((3, 4), name="x"),
        K.layers.Bidirectional(K.layers.LSTM(3, return_sequences=True)),
        K.layers.Conv1D(4, 3, padding="same", use_bias=False),
        K.layers.BatchNormalization(),
        K.layers.GRU(4),
        K.layers.Dense(2),
    ]
)
model.compile(optimizer=K.optimizers.SGD(0.1), loss="mse")


def input_fn():
    return Spec((8, 3, 4)), Spec((8, 2))
"""
                    ).replace("KERAS", keras),
                    dims={"x": (8, None, None)},
                    eager=call,
                    entry_points=BOTH,
                    golden_steps=2,
                    near=1e-3,
                )

    NOISY = (
        HEAD
        + """\
K.mixed_precision.set_global_policy("mixed_bfloat16")
model = K.Sequential(
    [K.layers.Input((4,), name="x"), K.layers.Dense(6), K.layers.Dropout(0.5), K.layers.Dense(2)]
)
model.compile(optimizer="adam", loss="mse")


def input_fn():
    return Spec((8, 4)), Spec((8, 2))
"""
    )

    def test_dropout_and_mixed_precision(self) -> None:
        """Protects both: dropout draws from a state that each run advances, and computes in bfloat16 without bfloat16 weights."""
        for keras in KERAS:
            with self.subTest(keras):
                text = self.NOISY.replace("KERAS", keras)
                exported = self.export(text, dims={"x": (8, None)}, entry_points=BOTH)
                for name, _ in BOTH:
                    self.compile(exported, entry_point=name)
                manifest = exported.manifest
                self.assertEqual(manifest.entry_point("Call").outputs[0].dtype, "bfloat16")
                kernels = [variable.dtype for variable in manifest.variables if variable.name.endswith("/kernel")]
                self.assertEqual(set(kernels), {"float32"})
                train = manifest.entry_point("Train")
                states = [v.name for v in manifest.written_by(train) if "state" in v.name]
                self.assertEqual(
                    states, [manifest.random_state or "seed_generator/seed_generator_state"], "nothing draws anew"
                )
                # Without dropout, everything is as in Keras.
                plain = text.replace("K.layers.Dropout(0.5), ", "")
                self.agree(
                    plain,
                    compiled=False,
                    dims={"x": (8, None)},
                    eager=call,
                    entry_points=BOTH,
                    golden_steps=2,
                    near=0.05,
                )


if __name__ == "__main__":
    unittest.main()
