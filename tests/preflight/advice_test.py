"""Follows the advice of errors: each refused model, changed as its error says, builds, and computes the same."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import unittest

from tests.stages import harness
from tfaot.core import knowledge

_X = "x: (3, 4) float32"


@dataclasses.dataclass(frozen=True)
class Case:
    """A model that is refused, and what becomes of it."""

    refused: str
    """The function's body; its last line is what it returns."""
    advice: str
    """What the error says, in part."""
    advised: str
    """The body, changed as the error says."""
    inputs: str = _X
    """Inputs as `NAME: SHAPE DTYPE`, separated by semicolons."""
    same: bool = True
    """Whether the two bodies compute the same."""


SQUARE = "x: (3, 3) float32"
BOXES = "b: (8, 4) float32; s: (8,) float32"
IMAGE = "x: (1, 6, 6, 2) float32"
IDS = "x: (6, 2) float32; i: (6,) int32"
SCORES = "x: (7, 2, 5) float32"
LOGITS = SCORES + "; l: (2, 3) int32"
ROWS = "tf.math.unsorted_segment_%s(x, i, 4)"
CASES = {
    "batch_jacobian": Case(
        """
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.scan(lambda a, b: a * 0.9 + b, tf.transpose(x))
            y = tf.transpose(y)
        tape.batch_jacobian(y, x)""",
        "pass experimental_use_pfor=False to jacobian and batch_jacobian",
        """
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.scan(lambda a, b: a * 0.9 + b, tf.transpose(x))
            y = tf.transpose(y)
        tape.batch_jacobian(y, x, experimental_use_pfor=False)""",
    ),
    "vectorized_map": Case(
        "tf.vectorized_map(lambda row: tf.scan(lambda a, b: a * 0.9 + b, row), x)",
        "use tf.map_fn in place of tf.vectorized_map",
        "tf.map_fn(lambda row: tf.scan(lambda a, b: a * 0.9 + b, row), x)",
    ),
    "IndexedSlices": Case(
        """
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.gather(x, [1, 2]))
        tape.gradient(y, x)""",
        "return tf.convert_to_tensor(value)",
        """
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.gather(x, [1, 2]))
        tf.convert_to_tensor(tape.gradient(y, x))""",
        same=False,
    ),
    "RaggedTensor": Case(
        "tf.RaggedTensor.from_row_lengths(x, [1, 2]) * 2.0",
        "return value.flat_values and value.row_splits",
        "(tf.RaggedTensor.from_row_lengths(x, [1, 2]) * 2.0).flat_values",
        same=False,
    ),
    "FFTND": Case(
        "tf.math.real(tf.signal.fftnd(tf.cast(x, tf.complex64), axes=[1]))",
        "use tf.signal.fft, fft2d, or fft3d",
        "tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64)))",
        same=False,  # TensorFlow can't run the first
    ),
    "ragged rows": Case(
        "tf.reduce_sum(tf.RaggedTensor.from_row_lengths(x, [1, 2]), 1)",
        "take a dense tensor that is padded to one size, and the lengths as another input, and mask the rest",
        "tf.reduce_sum(tf.where(tf.sequence_mask([1, 2, 4], 4), x, 0.0), 1)",
        same=False,
    ),
    "CTCGreedyDecoder": Case(
        "tf.nn.ctc_greedy_decoder(x, [7, 7])[1]",
        "return tf.argmax(logits, -1) or the logits",
        "tf.argmax(x, -1)",
        SCORES,
        same=False,
    ),
    "CTCLoss": Case(
        "tf.compat.v1.nn.ctc_loss(tf.sparse.from_dense(l), tf.roll(x, -1, 2), [7, 7])",
        "use tf.nn.ctc_loss with dense labels, logit_length, and label_length",
        "tf.nn.ctc_loss(l, x, [3, 3], [7, 7])",
        LOGITS,
        same=False,
    ),
    "SegmentSum": Case("tf.math.segment_sum(x, i)", "use tf.math.unsorted_segment_sum", ROWS % "sum", IDS),
    "SegmentMax": Case("tf.math.segment_max(x, i)", "use tf.math.unsorted_segment_max", ROWS % "max", IDS),
    "SegmentMin": Case("tf.math.segment_min(x, i)", "use tf.math.unsorted_segment_min", ROWS % "min", IDS),
    "SegmentProd": Case("tf.math.segment_prod(x, i)", "use tf.math.unsorted_segment_prod", ROWS % "prod", IDS),
    "SegmentMean": Case(
        "tf.math.segment_mean(x, i)",
        "use tf.math.unsorted_segment_sum, and divide by the counts",
        ROWS % "sum" + " / tf.math.unsorted_segment_sum(tf.ones(6), i, 4)[:, None]",
        IDS,
    ),
    "AudioSpectrogram": Case(
        "tf.raw_ops.AudioSpectrogram(input=x, window_size=64, stride=32)[0]",
        "use tf.signal.stft, and take the absolute value",
        "tf.abs(tf.signal.stft(x[:, 0], 64, 32))",
        "x: (160, 1) float32",
    ),
    "FractionalMaxPool": Case(
        "tf.nn.fractional_max_pool(x, 1.5, seed=3)[0]",
        "use tf.nn.max_pool2d",
        "tf.nn.max_pool2d(x, 2, 2, 'SAME')",
        IMAGE,
        same=False,
    ),
    "HistogramFixedWidth": Case(
        "tf.histogram_fixed_width(x, [0.0, 2.0], 5)",
        "use tf.math.unsorted_segment_sum of ones, by the values' bins as integers",
        "tf.math.unsorted_segment_sum(tf.ones((3, 4), tf.int32), tf.clip_by_value(tf.cast(x * 2.5, tf.int32), 0, 4), 5)",
    ),
    "MaxPoolWithArgmax": Case(
        "tf.cast(tf.nn.max_pool_with_argmax(x, 2, 2, 'VALID')[0], tf.float32)",
        "use tf.image.extract_patches, tf.reduce_max, and tf.argmax",
        """
        patches = tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID")
        patches = tf.reshape(patches, (1, 3, 3, 4, 2))
        tf.reduce_max(patches, 3) + 0.0 * tf.cast(tf.argmax(patches, 3), tf.float32)""",
        IMAGE,
    ),
    "TridiagonalSolve": Case(
        "tf.linalg.tridiagonal_solve((0.1 * x[0], x[1] + 9.0, 0.2 * x[2]), x[0], 'sequence')",
        "pass partial_pivoting=False to tf.linalg.tridiagonal_solve",
        "tf.linalg.tridiagonal_solve((0.1 * x[0], x[1] + 9.0, 0.2 * x[2]), x[0], 'sequence', partial_pivoting=False)",
    ),
    "NthElement": Case("tf.raw_ops.NthElement(input=x, n=1)", "use tf.sort, and take the element", "tf.sort(x)[:, 1]"),
    "Dilation2D": Case(
        """tf.nn.dilation2d(x, tf.zeros((3, 3, 2)), [1, 1, 1, 1], "VALID", "NHWC", [1, 1, 1, 1])""",
        "use tf.image.extract_patches, and take the maximum",
        """
        patches = tf.image.extract_patches(x, [1, 3, 3, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID")
        tf.reduce_max(tf.reshape(patches, (1, 4, 4, 9, 2)), 3)""",
        IMAGE,
    ),
    "CropAndResize": Case(
        "tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0]], [0], (3, 3))",
        "crop with tf.gather, and resize with tf.image.resize",
        "tf.image.resize(tf.gather(tf.gather(x, range(6), axis=1), range(6), axis=2), (3, 3))",
        IMAGE,
        same=False,
    ),
    "ResizeBicubic": Case(
        """tf.image.resize(x, (3, 3), "bicubic")""",
        """use tf.image.resize with method = "bilinear\"""",
        """tf.image.resize(x, (3, 3), "bilinear")""",
        IMAGE,
        same=False,
    ),
    "ResizeArea": Case(
        """tf.image.resize(x, (3, 3), "area")""",
        """use tf.image.resize with method = "bilinear\"""",
        """tf.image.resize(x, (3, 3), "bilinear")""",
        IMAGE,
        same=False,
    ),
    "MatrixLogarithm": Case(
        """
        a = x @ tf.transpose(x) + tf.eye(3)
        tf.math.real(tf.linalg.logm(tf.cast(a, tf.complex64)))""",
        "compute it from tf.linalg.eig: vectors * tf.math.log(values)[..., None, :] @ tf.linalg.inv(vectors)",
        """
        values, vectors = tf.linalg.eig(x @ tf.transpose(x) + tf.eye(3))
        tf.math.real(vectors * tf.math.log(values)[..., None, :] @ tf.linalg.inv(vectors))""",
        SQUARE,
    ),
    "UniqueWithCounts": Case(
        "tf.unique_with_counts(i)[1]",
        "use tf.unique, and count with tf.math.unsorted_segment_sum",
        "tf.unique(i)[1]",
        "i: (6,) int32",
    ),
    "NonMaxSuppressionV2": Case(
        "tf.raw_ops.NonMaxSuppressionV2(boxes=b, scores=s, max_output_size=3, iou_threshold=0.5)",
        "use tf.image.non_max_suppression_padded with pad_to_max_output_size=True",
        "tf.image.non_max_suppression_padded(b, s, 3, 0.5, pad_to_max_output_size=True)[0]",
        BOXES,
        same=False,
    ),
    "NonMaxSuppressionV5": Case(
        "tf.image.non_max_suppression_with_scores(b, s, 3)[0]",
        "use tf.image.non_max_suppression_padded with pad_to_max_output_size=True",
        "tf.image.non_max_suppression_padded(b, s, 3, pad_to_max_output_size=True)[0]",
        BOXES,
        same=False,
    ),
    "CombinedNonMaxSuppression": Case(
        "tf.image.combined_non_max_suppression(b[None, :, None], s[None, :, None], 3, 3)[1]",
        "use tf.image.non_max_suppression_padded with pad_to_max_output_size=True for each class",
        "tf.gather(s, tf.image.non_max_suppression_padded(b, s, 3, pad_to_max_output_size=True)[0])",
        BOXES,
        same=False,
    ),
    "MatMul of uint8": Case(
        "tf.raw_ops.MatMul(a=x, b=x)",
        "cast its operands to a dtype that XLA supports, such as float32 or int32",
        "tf.cast(tf.cast(x, tf.int32) @ tf.cast(x, tf.int32), tf.uint8)",
        "x: (3, 3) uint8",
        same=False,
    ),
    "StringFormat": Case(
        """
        tf.print(x)
        x + 1.0""",
        "remove tf.print, or return the value as an output",
        "x + 1.0",
    ),
    "strings": Case(
        "tf.strings.length(tf.strings.as_string(x))",
        "handle strings where you prepare the inputs, and feed numbers",
        "i",
        _X + "; i: (3, 4) int32",
        same=False,
    ),
    "collective": Case(
        "tf.raw_ops.CollectiveBcastRecvV2(T=tf.float32, group_size=2, group_key=1, instance_key=1, shape=[3, 4])",
        "build it as replica 0, where CollectiveBcastSendV2 gives all replicas its value",
        "tf.raw_ops.CollectiveBcastSendV2(input=x, group_size=2, group_key=1, instance_key=1)",
        same=False,
    ),
    "collective of other libraries": Case(
        "tf.raw_ops.NcclBroadcast(input=x, shape=[3, 4])",
        "exchange values by an op that compiles",
        "tf.raw_ops.CollectiveGatherV2(input=x, group_size=2, group_key=1, instance_key=1, ordering_token=[])",
        same=False,
    ),
    "dynamic slice assignment": Case(
        """
        v = tf.Variable(tf.zeros((3, 4))) if "v" not in KEPT else KEPT["v"]
        KEPT["v"] = v
        v[i[0]].assign(x[0])
        v.read_value()""",
        "write rows by index: variable.scatter_nd_update([[i]], [row])",
        """
        v = tf.Variable(tf.zeros((3, 4))) if "v" not in KEPT else KEPT["v"]
        KEPT["v"] = v
        v.scatter_nd_update([[i[0]]], [x[0]])
        v.read_value()""",
        _X + "; i: (1,) int32",
        same=False,
    ),
    "py_function": Case(
        "tf.ensure_shape(tf.numpy_function(lambda a: a + 1, [x], tf.float32), (3, 4))",
        "write it in TensorFlow ops",
        "x + 1.0",
    ),
    "table": Case(
        """
        if "t" not in KEPT:
            with tf.init_scope():
                KEPT["t"] = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1, 2, 3], [5, 6, 7, 8]), -1)
        KEPT["t"].lookup(i)""",
        "look up values where you prepare its inputs",
        "tf.gather([5, 6, 7, 8], i)",
        "i: (6,) int32",
        same=False,
    ),
    "sparse": Case(
        "tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(x), x)",
        "use dense tensors, or tf.gather and tf.math.unsorted_segment_sum",
        "x @ x",
        SQUARE,
    ),
    "SparseTensor": Case(
        "tf.sparse.from_dense(x)", "return value.indices and value.values", "tf.sparse.from_dense(x).values", same=False
    ),
    "TensorArray": Case(
        "tf.TensorArray(tf.float32, 3).unstack(x)",
        "return value.stack()",
        "tf.TensorArray(tf.float32, 3).unstack(x).stack()",
        same=False,
    ),
    "unbounded loop": Case(
        """
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda k, a: k < i[0], lambda k, a: (k + 1, a * a), (0, x))[1]
        tape.gradient(y, x)""",
        "pass maximum_iterations to the tf.while_loop",
        """
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda k, a: k < i[0], lambda k, a: (k + 1, a * a), (0, x), maximum_iterations=3)[1]
        tape.gradient(y, x)""",
        _X + "; i: (1,) int32",
    ),
    "growing list": Case(
        """
        array = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        for k in tf.range(3):
            array = array.write(k, x[k])
        array.stack()""",
        "set the size of each tf.TensorArray, and remove dynamic_size",
        """
        array = tf.TensorArray(tf.float32, 3)
        for k in tf.range(3):
            array = array.write(k, x[k])
        array.stack()""",
    ),
    "argument": Case(
        "tf.reduce_sum(tf.reverse(x, i))",
        "compute it from Python numbers, constants, and shapes, not from inputs",
        "tf.reduce_sum(tf.reverse(x, [0]))",
        _X + "; i: (1,) int32",
    ),
    "Print": Case("tf.compat.v1.Print(x, [x])", "remove tf.print and the like, or return the value as an output", "x"),
    "quantized": Case(
        "tf.raw_ops.QuantizeV2(input=x, min_range=0.0, max_range=2.0, T=tf.quint8)[1]",
        "convert the model without quantization, or use fake quantization",
        "tf.quantization.fake_quant_with_min_max_args(x, 0.0, 2.0)",
        same=False,
    ),
    "decoded": Case(
        "tf.io.decode_raw(tf.constant('abcd'), tf.uint8) + i",
        "decode where you prepare the inputs, and feed the numbers",
        "i",
        "i: (4,) uint8",
        same=False,
    ),
    "candidates": Case(
        "tf.random.uniform_candidate_sampler(i, 1, 3, True, 9)[0]",
        "move it out of the model to where you prepare its inputs",
        "i",
        "i: (6, 1) int64",
        same=False,
    ),
}
"""Advice by what is refused."""


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
    *lines, last = body.strip("\n").splitlines()
    indent = last[: len(last) - len(last.lstrip())] if lines else "        "
    shown = [line[len(indent) :] for line in lines] + [f"return {last.strip()}"]
    return "\n".join(
        [
            "import tensorflow as tf",
            "KEPT = {}",
            f"@tf.function(input_signature=[{', '.join(spec for _, spec in signature)}])",
            f"def model({', '.join(name for name, _ in signature)}):",
            *("    " + line for line in shown),
            "",
        ]
    )


_SAME = """
import sys
import numpy as np
models = []
for path in sys.argv[1:]:
    names = {}
    exec(compile(open(path).read(), path, "exec"), names)
    models.append(names["model"])
rng = np.random.default_rng(3)
inputs = [
    np.asarray(rng.uniform(0.1, 2, spec.shape), np.float32) if spec.dtype.is_floating
    else np.sort(np.arange(np.prod(spec.shape)) % 4).reshape(spec.shape).astype(spec.dtype.as_numpy_dtype)
    for spec in models[0].input_signature
]
refused, advised = ([np.asarray(value)] for value in (model(*inputs) for model in models))
np.testing.assert_allclose(refused[0], advised[0], rtol=1e-3, atol=1e-4)
"""


class AdviceTest(harness.StageTest):
    """Errors of models that don't compile."""

    def test_followed(self) -> None:
        """Protects users who do what an error says: its advice names a way that compiles, and computes what was meant."""
        for name, case in CASES.items():
            with self.subTest(name):
                refused, advised = (text(body, case.inputs) for body in (case.refused, case.advised))
                self.assertIn(case.advice, self.error_of(self.build, refused))
                self.build(advised)
                if case.same:
                    paths = [str(self.write(model) / "model.py") for model in (refused, advised)]
                    run = subprocess.run(
                        [sys.executable, "-c", _SAME, *paths], check=False, capture_output=True, text=True
                    )
                    self.assertEqual(run.returncode, 0, run.stderr)

    def test_all(self) -> None:
        """Protects new advice, which needs a case here."""
        self.assertLessEqual(knowledge.REWRITES.keys(), CASES.keys())
        followed = "\n".join(case.advice for case in CASES.values())
        for advice in {advice for _, (_, advice) in knowledge.FAMILIES} - ELSEWHERE.keys():
            with self.subTest(advice):
                self.assertTrue(any(case.advice in advice for case in CASES.values()), followed)

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
        cases = [("None", (), "[]"), ("(None, 3)", (), "[1, 3]"), ("(None, None, 3)", (1, 4), "[None, 1, 3]")]
        for shape, batch_sizes, advice in cases:
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
