"""Exchanges weights between C++ and TensorFlow, in both directions, as safetensors files."""

import os
import subprocess
import tempfile
import unittest

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from examples.entry_points import model

TRAIN = os.path.join(os.path.dirname(__file__), "train")


class ExchangeTest(unittest.TestCase):
    """Compares the class's files with the safetensors library's, and its numbers with TensorFlow's."""

    def setUp(self) -> None:
        """Makes a folder, and finds TensorFlow's variables."""
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.variables = {variable.name[:-2]: variable for variable in model.model.variables}
        self.x = 0.01 * np.arange(model.BATCH * model.FEATURES, dtype=np.float32).reshape(model.BATCH, -1)

    def run_train(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Runs the C++ program."""
        return subprocess.run([TRAIN, *args], capture_output=True, check=False, text=True)

    def predictions(self, stdout: str) -> np.ndarray:
        """Returns the predictions of the C++ program."""
        line = next(line for line in stdout.splitlines() if line.startswith("predictions:"))
        return np.array([float(value) for value in line.split()[1:]])

    def test_trained_weights_evaluate_in_tensorflow(self) -> None:
        """A model that was trained in C++ and saved makes the same predictions in TensorFlow, and they are good."""
        path = os.path.join(self.folder, "trained.safetensors")
        done = self.run_train(path)
        self.assertEqual(done.returncode, 0, done.stderr)
        weights = load_file(path)
        self.assertEqual(sorted(weights), sorted(self.variables))
        for name, value in weights.items():
            self.variables[name].assign(value)
        predicted = model.model.forward(self.x)["y"].numpy()
        np.testing.assert_allclose(self.predictions(done.stdout), predicted, rtol=1e-5, atol=1e-6)
        self.assertEqual(self.variables["steps"].numpy(), 200)
        rng = np.random.default_rng(0)
        x = rng.standard_normal((model.BATCH, model.FEATURES)).astype(np.float32)
        loss = np.mean((model.model.forward(x)["y"].numpy() - x.sum(axis=1)) ** 2)
        self.assertLess(loss, 0.5)

    def test_weights_of_tensorflow_load(self) -> None:
        """With weights of TensorFlow's variables, written by the safetensors library, C++ computes TensorFlow's numbers."""
        model.model.init([5, 6])
        path, out = (os.path.join(self.folder, name) for name in ("from_tf.safetensors", "out.safetensors"))
        save_file({name: np.asarray(variable) for name, variable in self.variables.items()}, path)
        done = self.run_train(out, "0", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        predicted = model.model.forward(self.x)["y"].numpy()
        np.testing.assert_allclose(self.predictions(done.stdout), predicted, rtol=1e-5, atol=1e-6)
        for name, value in load_file(out).items():
            np.testing.assert_array_equal(value, self.variables[name].numpy())

    def test_every_mismatch_is_listed(self) -> None:
        """A file that doesn't fit changes nothing, and one message lists everything that is wrong with it."""
        values = {name: np.asarray(variable) for name, variable in self.variables.items()}
        values["kernel"] = values.pop("out/kernel")
        values["steps"] = np.asarray(values["steps"].astype(np.int32))
        values["hidden/kernel"] = values["hidden/kernel"].T.copy()
        path = os.path.join(self.folder, "wrong.safetensors")
        save_file(values, path)
        done = self.run_train(os.path.join(self.folder, "out.safetensors"), "0", path)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stderr,
            f"""loading: {path} doesn't fit the model: 3 of 5 variable(s)

    hidden/kernel: float32[16, 4]; the model has float32[4, 16]
    out/kernel: missing; the model has float32[16, 1]
    steps: int32[]; the model has int64[]

  found: also in the file: kernel float32[16, 1]
  to do: write a file with every variable of the model, under its name and with its dtype and shape
""",
        )
        self.assertFalse(os.path.exists(os.path.join(self.folder, "out.safetensors")))


if __name__ == "__main__":
    tf.config.set_visible_devices([], "GPU")
    unittest.main()
