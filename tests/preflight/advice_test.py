"""Follows the advice of errors: each refused model, changed as its error says, builds, and computes the same."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.stages import cases, harness
from tfaot.core import isolate, knowledge

_X = "x: (3, 4) float32"

CASES = {name: (advice, case) for name, advice, case in cases.read(Path(__file__).with_name("advice.txt"))}
"""By what is refused: what the error says, in part, and the case.

The file has the function's body, whose last line is what it returns, its inputs as `NAME: SHAPE DTYPE`, separated by semicolons,
whether the advised body computes other numbers, and that body.
"""


ELSEWHERE = {
    "build the graph for a CPU": "needs a TPU",
    "fetch only what the model computes": "of GraphDefs whose fetches save files",
    "let TensorFlow look them up, and compile the rest with tf_aot_clusters; or turn keys into indices where you prepare the "
    "inputs, and use tf.gather on a tensor": "of the check, for what the export stage refuses as a table",
    "use another implementation of the trees": "TensorFlow has removed these ops",
    "use the layer's implementation in plain ops": "needs an NVIDIA GPU",
    "use resource variables, as TensorFlow 2 does": "of graphs of TensorFlow 1, whose variables the export stage converts",
    "replace it by a product with a constant matrix": "of transforms that no function of TensorFlow's makes",
    "use a tf.TensorArray of a fixed size": "as for a growing list",
}
"""Advice on what these models can't contain, and why."""


def text(body: str, inputs: str) -> str:
    """Returns a Python file with a model of this body."""
    signature = []
    for part in inputs.split("; "):
        name, _, spec = part.partition(": ")
        shape, _, dtype = spec.rpartition(" ")
        signature.append((name, f"tf.TensorSpec({shape}, tf.{dtype}, name={name!r})"))
    *lines, last = body.splitlines()
    return "\n".join(
        [
            "import tensorflow as tf",
            "KEPT = {}",
            f"@tf.function(input_signature=[{', '.join(spec for _, spec in signature)}])",
            f"def model({', '.join(name for name, _ in signature)}):",
            *("    " + line for line in [*lines, f"return {last}"]),
            "",
        ]
    )


def results(path: Path) -> npt.NDArray[Any]:
    """Returns what a file's model computes from drawn inputs, in a child, because it builds graphs."""

    def work() -> npt.NDArray[Any]:
        names: dict[str, Any] = {}
        exec(compile(path.read_text(), path, "exec"), names)
        rng = np.random.default_rng(3)
        inputs = [
            np.asarray(rng.uniform(0.1, 2, spec.shape), np.float32)
            if spec.dtype.is_floating
            else np.sort(np.arange(np.prod(spec.shape)) % 4).reshape(spec.shape).astype(spec.dtype.as_numpy_dtype)
            for spec in names["model"].input_signature
        ]
        return np.asarray(names["model"](*inputs))

    return isolate.run_isolated(work, what="running the model")


class AdviceTest(harness.StageTest):
    """Errors of models that don't compile."""

    def test_followed(self) -> None:
        """Protects users who do what an error says: its advice names a way that compiles, and computes what was meant."""
        for name, (advice, case) in CASES.items():
            inputs, _, other = case.extra.partition(" (other numbers")
            with self.subTest(name):
                refused, advised = (text(body, inputs) for body in (case.text, case.wanted))
                self.assertIn(advice, self.error_of(self.build, refused))
                self.build(advised)
                if not other:
                    wanted, got = (results(self.write(model) / "model.py") for model in (refused, advised))
                    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)

    def test_all(self) -> None:
        """Protects new advice, which needs a case here."""
        self.assertLessEqual(knowledge.REWRITES.keys(), CASES.keys())
        followed = [advice for advice, _ in CASES.values()]
        for advice in {advice for _, (_, advice) in knowledge.FAMILIES} - ELSEWHERE.keys():
            with self.subTest(advice):
                self.assertTrue(any(part in advice for part in followed), followed)

    def test_inputs(self) -> None:
        """Protects the advice on inputs that aren't dense tensors: what it names builds."""
        for spec, body, advice, advised in (
            (
                "tf.RaggedTensorSpec((3, None), tf.float32)",
                "tf.reduce_sum(x, 1)",
                "take a dense tensor that is padded to one size, and the lengths as another input, and mask the rest",
                text("tf.reduce_sum(tf.where(tf.sequence_mask(n, 4), x, 0.0), 1)", "x: (3, 4) float32; n: (3,) int32"),
            ),
            (
                "tf.SparseTensorSpec((3, 4), tf.float32)",
                "tf.sparse.reduce_sum(x, 1)",
                "take dense tensors",
                text("tf.reduce_sum(x, 1)", _X),
            ),
        ):
            with self.subTest(spec):
                refused = f"import tensorflow as tf\n@tf.function(input_signature=[{spec}])\ndef model(x):\n    return {body}\n"
                self.assertIn(advice, self.error_of(self.build, refused))
                self.build(advised)

    def test_sizes(self) -> None:
        """Protects the advice on open sizes and ranks, which a batch changes: what it prints builds."""
        shapes = [("None", (), "[]"), ("(None, 3)", (), "[1, 3]"), ("(None, None, 3)", (1, 4), "[None, 1, 3]")]
        for shape, batch_sizes, advice in shapes:
            model = (
                f"import tensorflow as tf\n@tf.function(input_signature=[tf.TensorSpec({shape}, name='x')])\n"
                "def model(x):\n    return tf.sin(x)\n"
            )
            with self.subTest(shape):
                message = self.error_of(self.export, model, batch_sizes=batch_sizes)
                self.assertIn(f'dims = {{"x": {advice}}}', message)
                self.export(model, batch_sizes=batch_sizes, dims={"x": tuple(eval(advice))})

    def build(self, model: str) -> None:
        self.compile(self.export(model))


if __name__ == "__main__":
    unittest.main()
