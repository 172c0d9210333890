"""docs/guide/weights.md: what its Python lines write is a file for `weights` of a tf_model."""

from __future__ import annotations

import subprocess
import sys
import unittest

import numpy as np

from tests.stages.harness import ROOT, StageTest
from tfaot.core import safetensors

_MODEL = "model = KERAS.Sequential([KERAS.Input((4,)), KERAS.layers.Dense(3), KERAS.layers.Dense(2)])"


class KerasWeightsTest(StageTest):
    """The page's lines, run as they are."""

    def test_page(self) -> None:
        """Protects who copies them: for either Keras, the file has all variables of the model under their names, and its values."""
        page = (ROOT / "docs" / "guide" / "weights.md").read_text()
        lines = page.partition("```python\nimport numpy as np\n")[2].partition("```")[0].splitlines()
        imports, saves = [line for line in lines if "import" in line], [line for line in lines if "save_file(" in line]
        self.assertEqual(["Keras 3" in saves[0], "tf-keras" in saves[1], len(saves)], [True, True, 2])
        for keras, save in zip(("keras", "tf_keras"), saves, strict=True):
            with self.subTest(keras):
                model = f"import {keras}\n" + _MODEL.replace("KERAS", keras)
                program = "\n".join(["import numpy as np", *imports, model, save])
                folder = self.write("")
                subprocess.run([sys.executable, "-c", program], check=True, cwd=folder, capture_output=True)
                weights = dict(safetensors.read(str(folder / "weights.safetensors")))
                exported = self.export(model, batch_sizes=(1,), frozen=(), weights=weights)
                self.assertEqual(exported.variables.keys(), weights.keys())
                for name, value in exported.variables.items():
                    np.testing.assert_array_equal(value, weights[name])


if __name__ == "__main__":
    unittest.main()
