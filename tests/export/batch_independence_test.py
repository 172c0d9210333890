"""Tests of `tfaot.export.batch_independence`: which models can run in parts, and which can't."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

from tests.stages.harness import StageTest
from tfaot.core import environment, isolate

HEAD = "import keras\nimport numpy as np\nimport tensorflow as tf\nfrom keras import layers\n\n\n"


def independent() -> dict[str, Callable[[dict[str, Any]], Any]]:
    """Returns functions of `inputs()` that compute each row by itself."""
    import tensorflow as tf

    def counted(x: Any) -> Any:
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), (0, x))[1]

    def halved(row: Any) -> Any:
        return tf.while_loop(lambda y: tf.reduce_max(y) > 4, lambda y: (y / 2,), (row,))[0]

    free = tf.constant([[1.0, 2.0, 3.0, 4.0, 5.0]] * 3)
    return {
        "argmax": lambda v: tf.argmax(v["x"], -1),
        "atrous": lambda v: tf.nn.atrous_conv2d(v["image"], tf.ones((3, 3, 4, 2)), 2, "SAME"),
        "average": lambda v: tf.nn.avg_pool2d(v["image"], 2, 2, "SAME"),
        "band": lambda v: tf.linalg.band_part(v["time"], 1, 0),
        "batch_gather": lambda v: tf.gather(v["x"], v["i"], batch_dims=1),
        "bits": lambda v: tf.bitcast(tf.cast(v["x"], tf.bfloat16), tf.uint16),
        "broadcast": lambda v: v["x"] + tf.broadcast_to(free[:, 0], tf.shape(v["x"])),
        "cholesky": lambda v: tf.linalg.cholesky(tf.matmul(v["time"], v["time"], transpose_b=True)),
        "cond": lambda v: tf.cond(tf.reduce_sum(free) > 0, lambda: v["x"] * 2, lambda: v["x"] + 1),
        "conv": lambda v: tf.nn.conv2d(v["image"], tf.ones((3, 3, 4, 6)), 1, "SAME"),
        "conv_transposed": lambda v: tf.nn.conv2d_transpose(
            v["image"], tf.ones((2, 2, 3, 4)), [tf.shape(v["image"])[0], 16, 16, 3], 2
        ),
        "cumsum": lambda v: tf.cumsum(v["x"], 1),
        "depth_to_space": lambda v: tf.nn.depth_to_space(v["image"], 2),
        "depthwise": lambda v: tf.nn.depthwise_conv2d(v["image"], tf.ones((3, 3, 4, 2)), [1, 1, 1, 1], "SAME"),
        "diagonal": lambda v: tf.linalg.diag(v["x"]),
        "einsum": lambda v: tf.einsum("btd,bsd->bts", v["time"], v["time"]),
        "extended": lambda v: tf.concat([v["x"], tf.ones([tf.shape(v["x"])[0], 2])], 1),
        "first_token": lambda v: tf.concat([tf.tile(free[None, :1, :3], [tf.shape(v["x"])[0], 1, 1]), v["time"]], 1),
        "gather": lambda v: tf.gather(free, v["i"]),
        "gather_columns": lambda v: tf.gather(v["x"], [2, 0, 1], axis=1),
        "gather_nd": lambda v: tf.gather_nd(v["x"], tf.stack([tf.range(tf.shape(v["x"])[0]), v["i"]], 1)),
        "loop": lambda v: counted(v["x"]),
        "map": lambda v: tf.map_fn(tf.reduce_sum, v["x"]),
        "map_of_loops": lambda v: tf.map_fn(halved, v["x"]),
        "map_of_products": lambda v: tf.map_fn(lambda row: tf.matmul(row, free), v["time"]),
        "maximum": lambda v: tf.nn.max_pool2d(v["image"], 2, 2, "SAME"),
        "merged": lambda v: tf.reshape(tf.reshape(v["time"], [-1, 3]) @ free, [tf.shape(v["time"])[0], -1]),
        "mirrored": lambda v: tf.pad(v["time"], [[0, 0], [1, 1], [0, 2]], "REFLECT"),
        "moments": lambda v: v["x"] - tf.nn.moments(v["x"], [1], keepdims=True)[0],
        "one_hot": lambda v: tf.one_hot(v["i"], 4),
        "padded": lambda v: tf.pad(v["x"], [[0, 0], [1, 1]]),
        "patches": lambda v: tf.image.extract_patches(v["image"], [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"),
        "product": lambda v: tf.nn.softmax(tf.matmul(v["x"], free)),
        "repeated": lambda v: tf.repeat(v["x"], 2, axis=1),
        "resized": lambda v: tf.image.resize(v["image"], (5, 5)),
        "reversed": lambda v: v["x"][:, ::-1],
        "reversed_sequence": lambda v: tf.reverse_sequence(v["time"], v["i"], 1, 0),
        "rolled": lambda v: tf.roll(v["x"], 1, 1),
        "scan": lambda v: tf.transpose(tf.scan(lambda a, r: a + r, tf.transpose(v["time"], [1, 0, 2])), [1, 0, 2]),
        "segments": lambda v: tf.transpose(tf.math.unsorted_segment_sum(tf.transpose(v["x"]), [0, 1, 0], 2)),
        "sequence_mask": lambda v: tf.sequence_mask(v["i"], 5),
        "sizes": lambda v: v["x"] * tf.cast(tf.shape(v["x"])[1], tf.float32),
        "sorted": lambda v: tf.sort(v["x"], -1),
        "tensordot": lambda v: tf.tensordot(v["time"], free, 1),
        "top_k": lambda v: tf.math.top_k(v["x"], 2)[1],
        "triangular": lambda v: tf.linalg.triangular_solve(v["time"][:, :3], v["time"][:, :3]),
        "updated": lambda v: tf.transpose(
            tf.tensor_scatter_nd_update(tf.transpose(v["x"]), [[0]], tf.zeros([1, tf.shape(v["x"])[0]]))
        ),
        "vectorized_map": lambda v: tf.vectorized_map(lambda row: tf.reduce_sum(row) * row, v["x"]),
        "zeros": lambda v: tf.zeros([tf.shape(v["x"])[0], 2]),
    }


def dependent() -> dict[str, tuple[str, str, Callable[[dict[str, Any]], Any]]]:
    """Returns functions whose rows affect each other's results, with the responsible op and the reason."""
    import tensorflow as tf

    def rows(x: Any) -> Any:
        return tf.shape(x)[0]

    def written(limit: Callable[[Any], Any], step: Callable[[Any, Any], Any]) -> Callable[[dict[str, Any]], Any]:
        def run(v: dict[str, Any]) -> Any:
            x = v["x"]
            update = lambda i, o: (i + 1, tf.tensor_scatter_nd_update(o, [[i]], [step(x, i)]))  # noqa: E731
            return tf.while_loop(lambda i, o: i < limit(rows(x)), update, (0, x))[1]

        return run

    def carried(v: dict[str, Any]) -> Any:
        x = v["x"]
        return tf.while_loop(lambda i, s, o: i < rows(x), lambda i, s, o: (i + 1, s + o, o), (0, x, x))[1]

    together, counts = "combines rows", "uses the number of rows"
    place, unknown = "uses a row's position in the batch", "might not keep rows apart"
    return {
        "any": ("Any", together, lambda v: tf.where(tf.reduce_any(v["x"] > 3), v["x"], -v["x"])),
        "backwards": (
            "TensorListFromTensor",
            place,
            lambda v: tf.map_fn(
                lambda i: v["x"][i] * 2.0, tf.range(rows(v["x"]) - 1, -1, -1), fn_output_signature=tf.float32
            ),
        ),
        "batch_norm": (
            "Mean",
            together,
            lambda v: tf.nn.batch_normalization(v["x"], *tf.nn.moments(v["x"], [0]), None, None, 1e-3),
        ),
        "carried": ("StatelessWhile", counts, carried),
        "clipped_count": ("Mul", counts, lambda v: v["x"] * tf.cast(tf.minimum(rows(v["x"]), 4), tf.float32)),
        "cond": ("Sum", together, lambda v: tf.cond(tf.reduce_sum(v["x"]) > 0, lambda: v["x"] * 2, lambda: v["x"])),
        "count": ("RealDiv", counts, lambda v: v["x"] / tf.cast(rows(v["x"]), tf.float32)),
        "cumsum": ("Cumsum", counts, lambda v: tf.cumsum(v["x"], 0)),
        "first": ("StridedSlice", place, lambda v: v["x"] - v["x"][:1]),
        "gram": ("MatMul", together, lambda v: v["x"] @ tf.transpose(v["x"]) @ v["x"]),
        "half": ("StatelessWhile", counts, written(lambda n: n // 2, lambda x, i: x[i] * 2.0)),
        "loop": (
            "Max",
            together,
            lambda v: tf.while_loop(lambda y: tf.reduce_max(y) > 4, lambda y: (y / 2,), (v["x"],))[0],
        ),
        "looked_up": ("GatherV2", together, lambda v: tf.gather(v["x"], v["i"])),
        "loop_of_rows": (
            "StatelessWhile",
            counts,
            lambda v: tf.while_loop(lambda i, y: i < rows(v["x"]), lambda i, y: (i + 1, y * 2.0), (0, v["x"]))[1],
        ),
        "mean": ("Mean", together, lambda v: v["x"] - 0.01 * tf.reduce_mean(v["x"], 0)),
        "mean_of_all": ("Mean", together, lambda v: v["x"] - tf.reduce_mean(v["x"])),
        "mirrored": ("MirrorPad", place, lambda v: tf.pad(v["x"], [[1, 0], [0, 0]], "SYMMETRIC")[:-1]),
        "mixed_up": ("Reshape", together, lambda v: tf.reshape(tf.transpose(v["x"]), tf.shape(v["x"]))),
        "norm": ("L2Loss", together, lambda v: tf.clip_by_global_norm([v["x"]], 1.0)[0][0]),
        "pairs": (
            "StatelessWhile",
            together,
            lambda v: tf.map_fn(lambda a: tf.reduce_sum(tf.map_fn(lambda b: tf.reduce_sum(a * b), v["x"])), v["x"]),
        ),
        "random": (
            "StatelessRandomUniformV2",
            unknown,
            lambda v: tf.random.stateless_uniform(tf.shape(v["x"]), (1, 2)),
        ),
        "range": ("AddV2", place, lambda v: v["x"] + tf.cast(tf.range(rows(v["x"])), tf.float32)[:, None]),
        "reversed": ("ReverseV2", place, lambda v: tf.reverse(v["x"], [0])),
        "rolled": ("Roll", together, lambda v: tf.roll(v["x"], 1, 0)),
        "scan": ("TensorListGetItem", place, lambda v: tf.scan(lambda a, r: a + r, v["x"])),
        "scattered": (
            "TensorScatterAdd",
            together,
            lambda v: tf.tensor_scatter_nd_add(v["x"], v["i"][:, None], v["x"]),
        ),
        "segments": (
            "UnsortedSegmentSum",
            together,
            lambda v: tf.gather(tf.math.unsorted_segment_sum(v["x"], v["i"], 4), v["i"]),
        ),
        "shifted_write": ("StridedSlice", place, written(lambda n: n, lambda x, i: x[i - 1])),
        "softmax": ("Softmax", together, lambda v: tf.nn.softmax(v["x"], axis=0)),
        "sorted": ("TopKV2", place, lambda v: tf.sort(v["x"], 0)),
        "unit": ("MatMul", counts, lambda v: tf.matmul(tf.eye(rows(v["x"])), v["x"])),
    }


def verdicts(functions: dict[str, Callable[[dict[str, Any]], Any]]) -> dict[str, Any]:
    """Returns the analysis's verdict on each function's result: None, or an op and a reason."""
    import tensorflow as tf
    from tensorflow.compiler.xla.service import hlo_pb2

    from tfaot.export.batch_independence.hlo import SIZES
    from tfaot.export.batch_independence.walk import mixed_results

    shapes = {
        "x": ((3,), tf.float32),
        "i": ((), tf.int32),
        "time": ((4, 3), tf.float32),
        "image": ((8, 8, 4), tf.float32),
    }
    modules = []
    for size in SIZES:

        @tf.function(jit_compile=True, autograph=False)
        def all_of_them(*values: Any) -> Any:
            inputs = dict(zip(shapes, values, strict=True))
            return [tf.identity(function(inputs)) for function in functions.values()]

        specs = [tf.TensorSpec((size, *row), dtype) for row, dtype in shapes.values()]
        text = all_of_them.experimental_get_compiler_ir(*specs)(stage="hlo_serialized", platform_name="CPU")
        modules.append(hlo_pb2.HloModuleProto.FromString(text))
    causes = mixed_results(modules[0], modules[1], [True] * len(shapes))
    return {
        name: None if cause is None else (cause.op, cause.why) for name, cause in zip(functions, causes, strict=True)
    }


class TableTest(StageTest):
    """TensorFlow functions, one for each rule."""

    def test_independent_rows(self) -> None:
        """Protects models that can run in parts: whatever computes each row by itself is recognized."""

        def work() -> dict[str, Any]:
            environment.prepare()
            return verdicts(independent())

        verdict_by_name: dict[str, Any] = isolate.run_isolated(work, what="analyzing")
        self.assertEqual({name: verdict for name, verdict in verdict_by_name.items() if verdict is not None}, {})
        self.assertGreater(len(verdict_by_name), 40)

    def test_dependent_rows(self) -> None:
        """Protects against wrong numbers: whatever lets rows affect each other is found, and the responsible op is named."""

        def work() -> tuple[dict[str, Any], dict[str, Any]]:
            environment.prepare()
            table = dependent()
            return verdicts({name: row[2] for name, row in table.items()}), {k: row[:2] for k, row in table.items()}

        got, wanted = isolate.run_isolated(work, what="analyzing")
        self.assertEqual(got, wanted)


class ModelTest(StageTest):
    """Whole models as users write them."""

    LOOP = HEAD + (
        "def model(x):\n"
        "    while tf.reduce_max(x) > 4:\n"
        "        x = x / 2\n"
        "    return {'halved': x, 'given': x + 0, 'other': tf.nn.relu(x)}\n"
    )

    def test_loop_that_ends_for_all_rows(self) -> None:
        """Protects against wrong numbers that no sample shows: the largest row decides how often the loop runs."""
        attributes: dict[str, Any] = {"batch_sizes": (1, 4), "signature": {"x": "float32[None, 3]"}}
        text = self.error_of(self.export, self.LOOP, **attributes)
        self.assert_error(
            text,
            """
            model.py: the rules can't show that Run computes each row of a batch independently

                Max 'while/Max' at model.py:8 combines rows

              found: batch_sizes = [1, 4]: a batch runs in parts, with padding; that op affects given, halved, other
              to do: compute each row independently, with batch norm in inference mode and no sums over the batch; or remove batch_sizes; or, if no row affects another row's results, declare it: rows_independent = True
            """,  # noqa: E501
        )
        self.export(self.LOOP, rows_independent=True, **attributes)

    def test_models(self) -> None:
        """Protects common families: what Keras makes from layers, with frozen or fed weights, is recognized."""
        for model in (
            "model = keras.Sequential([keras.Input((16, 16, 3), name='x'), layers.Conv2D(8, 3, padding='same'),"
            " layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D(), layers.SeparableConv2D(8, 3, dilation_rate=2),"
            " layers.DepthwiseConv2D(3), layers.UpSampling2D(), layers.GlobalAveragePooling2D(), layers.Dropout(0.5),"
            " layers.Dense(4, activation='softmax')])\n",
            "model = keras.Sequential([keras.Input((6,), dtype='int32', name='x'), layers.Embedding(20, 6, mask_zero=True),"
            " layers.Bidirectional(layers.LSTM(8, return_sequences=True)), layers.GRU(8), layers.Dense(2)])\n",
            "i = keras.Input((8,), dtype='int32', name='x')\n"
            "x = layers.Embedding(20, 16, mask_zero=True)(i) + layers.Embedding(8, 16)(keras.ops.arange(8))\n"
            "x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True))\n"
            "model = keras.Model(i, layers.Dense(3, activation='gelu')(x))\n",
        ):
            with self.subTest(model):
                self.export(HEAD + model, batch_sizes=(1, 4), frozen=("*",), max_batch=9)

    def test_calls(self) -> None:
        """Protects names in messages: an op within nested function calls has the innermost function's line."""
        text = self.error_of(
            self.export,
            HEAD
            + "@tf.function\ndef inner(x):\n    return x - tf.reduce_mean(x)\n\n\n"
            + "@tf.function\ndef outer(x):\n    return inner(x * 2)\n\n\n"
            + "def model(x):\n    return outer(x + 1)\n",
            batch_sizes=(1, 4),
            signature={"x": "float32[None, 3]"},
        )
        self.assertRegex(text, r"Mean '[\w/]*Mean' at model.py:9 combines rows")


if __name__ == "__main__":
    unittest.main()
