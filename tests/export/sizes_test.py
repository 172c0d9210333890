"""Sizes that differ from call to call: what the export stage makes of them, and what it refuses."""

from __future__ import annotations

import itertools
import json
import unittest
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.stages import harness
from tests.stages.harness import Exported, StageTest, warm
from tfaot.core import buckets as sizes_to_verify
from tfaot.core.functions import stem
from tfaot.core.manifest import Axis, OpenSize, Requirement
from tfaot.export.sources.model import Model
from tfaot.graph.ops import OPEN_SIZE

MODEL = """\
import numpy as np
import tensorflow as tf

w = tf.Variable(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), name="w")


def model(x, mask, scale):
    weights = tf.nn.softmax(tf.reduce_sum(x, 2) * scale)
    return {
        "backward": tf.reverse(x @ w, [1]),
        "mean": tf.reduce_mean(x, 1) * scale,
        "middle": x[:, 1:],
        "square": mask[:, :, None] * mask[:, None, :],
        "weights": weights,
    }
"""
"""A model in which padding would change every result."""

TWO = """\
import tensorflow as tf


def model(query, key, mask):
    weights = tf.nn.softmax(tf.einsum("bqd,bkd->bqk", query, key) + mask)
    return {"weights": weights, "mixed": weights @ key, "most": tf.reduce_max(weights @ key, 1)}
"""
"""A model of two sequences, whose lengths have nothing to do with each other."""
SHAPES = {"query": (2, 5, 3), "key": (2, 7, 3), "mask": (5, 7)}

KERAS = """\
import {keras} as keras


def model():
    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    embedding = keras.layers.Embedding(20, 6, mask_zero=True)
    read = keras.layers.Bidirectional(keras.layers.LSTM(3, return_sequences=True))(embedding(source))
    x = keras.layers.Attention()([embedding(target), read])
    return keras.Model([source, target], [x, keras.layers.GlobalAveragePooling1D()(x)])
"""
"""A model of two sequences, whose masks its layers use."""

SIGNATURE = {"x": "float32[None, None, 3]", "mask": "float32[None, None]", "scale": "float32"}
DIMS: dict[str, tuple[int | str | None, ...]] = {"x": (None, "time", None), "mask": (None, "time")}


class SizesTest(StageTest):
    """An open size, with rows and without."""

    def sized(self, **changes: Any) -> Exported:
        """Exports the model with rows and an open size."""
        given = {"batch_sizes": (1, 3), "dims": DIMS, "signature": SIGNATURE, "sizes": {"time": (4, 9)}} | changes
        return self.export(MODEL, **given)

    def test_manifest(self) -> None:
        """Protects later stages: where inputs have the size, which input it is, and which results have bounds."""
        exported = self.sized(golden_steps=2, max_batch=7)
        (entry,) = exported.manifest.entry_points
        self.assertEqual(entry.sizes, (OpenSize("time", (4, 9)),))
        self.assertEqual(entry.variants, ((1, (4,)), (3, (4,)), (1, (9,)), (3, (9,))))
        self.assertEqual(
            {tensor.cpp_name: (tensor.shape, tensor.axes, tensor.batched) for tensor in entry.inputs},
            {
                "x": ((7, 9, 3), (Axis(1, 0),), True),
                "mask": ((7, 9), (Axis(1, 0),), True),
                "scale": ((), (), False),
                "time": ((), (), False),
            },
        )
        self.assertEqual(
            {output.cpp_name: (output.shape, bool(output.size)) for output in entry.outputs},
            {
                "backward": ((7, 9, 4), True),
                "mean": ((7, 3), False),
                "middle": ((7, 8, 3), True),
                "square": ((7, 9, 9), True),
                "weights": ((7, 9), True),
            },
        )
        for batch, buckets in entry.variants:
            self.compile(exported, batch=batch, buckets=buckets)

    def test_verified_sizes(self) -> None:
        """Protects what the generated test sees: 1, the largest, and both sides of each bucket, however few steps it makes."""
        calls = self.sized(golden_steps=1).manifest.calls
        self.assertEqual([call.sizes for call in calls], [(1,), (9,), (3,), (4,), (5,), (8,)])
        self.assertEqual([call.batch for call in calls[:2]], [1, 3])
        more = [size for call in self.sized(golden_steps=20).manifest.calls for size in call.sizes]
        self.assertEqual((len(more), min(more), max(more)), (20, 1, 9))

    def test_verified_products(self) -> None:
        """Protects each function of several sizes: a call for each product of buckets, and for both sides of each bucket."""
        sizes = ((1, 16, 64), (4, 9))
        calls = sizes_to_verify.calls(1, sizes)
        self.assertEqual(calls[:2], [(1, 1), (64, 9)])
        used = {tuple(min(b for b in own if b >= n) for own, n in zip(sizes, call, strict=True)) for call in calls}
        self.assertEqual(used, {*itertools.product(*sizes)})
        for own, drawn in zip(sizes, zip(*calls, strict=True), strict=True):
            edges = {size for bucket in own for size in (bucket - 1, bucket, bucket + 1) if 1 <= size <= own[-1]}
            self.assertEqual(edges - {*drawn}, set())

    def test_verified_requirements(self) -> None:
        """Protects models of many sizes: those that a model refuses are replaced, without a look at all products."""
        required = [
            Requirement("n", tuple(int(i == j) for j in range(20)), -2, equal=False, modulus=0) for i in range(20)
        ]
        required.append(Requirement("n == m", (1, -1, *[0] * 18), 0, equal=True, modulus=0))
        calls = sizes_to_verify.calls(3, [(9,)] * 20, required)
        self.assertEqual([call for call in calls if min(call) < 2 or call[0] != call[1]], [])
        self.assertEqual(calls[:2], [(2,) * 20, (9,) * 20])

    def test_cut(self) -> None:
        """Protects exactness: whatever is behind the size, results are those of the model itself for inputs of that size."""
        from tensorflow.core.framework import graph_pb2

        from tfaot.core import isolate
        from tfaot.verify.runner import Runner

        exported = self.sized()

        def work() -> list[str]:
            manifest = exported.manifest
            (entry,) = manifest.entry_points
            with open(exported.path("graph"), "rb") as file:
                graph = graph_pb2.GraphDef.FromString(file.read())
            run = Runner(manifest, graph)
            run.assign(exported.variables.items())
            namespace: dict[str, Any] = {}
            exec(MODEL, namespace)
            rng = np.random.default_rng(0)
            x, mask = rng.standard_normal((2, 9, 3), np.float32), rng.random((2, 9), np.float32)
            scale, wrong = np.float32(0.5), list[str]()
            for size in range(1, 10):
                eager = namespace["model"](x[:, :size], mask[:, :size], scale)
                want = [np.asarray(eager[output.cpp_name]) for output in entry.outputs]
                for behind in (np.nan, 3e38, 0):
                    longer = (
                        np.concatenate([value[:, :size], np.full_like(value[:, size:], behind)], 1)
                        for value in (x, mask)
                    )
                    got = run.outputs(entry, (*longer, np.asarray(scale), np.array(size, np.int32)))
                    wrong += [
                        f"{output.cpp_name} of {size}"
                        for output, a, b in zip(entry.outputs, got, want, strict=True)
                        if a.shape != b.shape or not np.allclose(a, b, rtol=0, atol=1e-6)
                    ]
            return wrong

        self.assertEqual(isolate.run_isolated(work, what="running"), [])

    def test_own_graph(self) -> None:
        """Protects the generated test: it expects what the model computes, even if the exported graph computes something else."""
        from tensorflow.core.framework import graph_pb2

        for text in (MODEL, MODEL.replace("x[:, 1:]", "tf.cumsum(x, 1)[:, -2:]")):
            exported = self.export(
                text, batch_sizes=(1, 3), dims=DIMS, golden_steps=4, signature=SIGNATURE, sizes={"time": (4, 9)}
            )
            wanted = exported.goldens()
            with open(exported.path("graph"), "rb") as file:
                graph = graph_pb2.GraphDef.FromString(file.read())
            for node in graph.node:
                if OPEN_SIZE in node.attr:
                    node.attr["shrink_axis_mask"].i = node.attr["begin_mask"].i = node.attr["end_mask"].i = 0
                    node.op, node.input[:] = "ZerosLike", node.input[:1]
            with open(exported.path("graph"), "wb") as file:
                file.write(graph.SerializeToString())
            goldens = exported.goldens()
            self.assertEqual([*goldens], [*wanted])
            for name, value in wanted.items():
                np.testing.assert_array_equal(goldens[name], value, name)

    def test_without_rows(self) -> None:
        """Protects models with a size and no batch: also one whose first dimension it is, and one that writes a variable."""
        exported = self.export(
            "import tensorflow as tf\n\n\ncount = tf.Variable(0, name='count')\n\n\ndef model(x):\n"
            "    count.assign_add(tf.shape(x)[0])\n    return tf.reduce_max(x) + x, count.read_value()\n",
            dims={"x": ("frames",)},
            signature={"x": "float32[None]"},
            sizes={"frames": (5,)},
        )
        (entry,) = exported.manifest.entry_points
        self.assertEqual(
            [(tensor.cpp_name, tensor.shape, tensor.axes) for tensor in entry.inputs],
            [("x", (5,), (Axis(0, 0),)), ("frames", (), ())],
        )
        self.compile(exported, buckets=(5,))

    def test_stored(self) -> None:
        """Protects inputs that cross the edge as other dtypes: they compile, also for a bucket of 1."""
        for dtype in ("bfloat16", "complex64"):
            exported = self.export(
                "import tensorflow as tf\n\n\ndef model(x):\n    return tf.square(x)\n",
                dims={"x": ("n", "m")},
                signature={"x": f"{dtype}[None, None]"},
                sizes={"n": (1, 5), "m": (3,)},
            )
            for buckets in ((1, 3), (5, 3)):
                self.compile(exported, buckets=buckets)
                with open(exported.path("passes" + stem("", 0, buckets)), encoding="utf-8") as file:
                    passes = json.load(file)
                    self.assertEqual((passes["padding"], passes["missed"]), (1, []), dtype)

    def test_several(self) -> None:
        """Protects models with several sizes: each input is cut to its own, and results are those of the model itself."""
        from tensorflow.core.framework import graph_pb2

        from tfaot.core import isolate
        from tfaot.verify.runner import Runner

        exported = self.export(
            TWO,
            batch_sizes=(1, 2),
            dims={"query": (None, "target", 3), "key": (None, "source", 3), "mask": ("target", "source")},
            signature={
                "query": "float32[None, None, 3]",
                "key": "float32[None, None, 3]",
                "mask": "float32[None, None]",
            },
            sizes={"source": (2, 7), "target": (3, 5)},
        )
        (entry,) = exported.manifest.entry_points
        self.assertEqual(entry.sizes, (OpenSize("source", (2, 7)), OpenSize("target", (3, 5))))
        self.assertEqual(
            {tensor.cpp_name: (tensor.shape, tensor.axes) for tensor in entry.inputs},
            {
                "query": ((2, 5, 3), (Axis(1, 1),)),
                "key": ((2, 7, 3), (Axis(1, 0),)),
                "mask": ((5, 7), (Axis(0, 1), Axis(1, 0))),
                "source": ((), ()),
                "target": ((), ()),
            },
        )
        self.assertEqual(
            {output.cpp_name: (output.shape, bool(output.size)) for output in entry.outputs},
            {"most": ((2, 3), False), "mixed": ((2, 5, 3), True), "weights": ((2, 5, 7), True)},
        )

        def work() -> list[str]:
            with open(exported.path("graph"), "rb") as file:
                run = Runner(exported.manifest, graph_pb2.GraphDef.FromString(file.read()))
            run.assign(exported.variables.items())
            namespace: dict[str, Any] = {}
            exec(TWO, namespace)
            rng = np.random.default_rng(0)
            whole = {name: rng.standard_normal(size, np.float32) for name, size in SHAPES.items()}
            wrong = list[str]()
            for source, target in itertools.product(range(1, 8), range(1, 6)):
                used = {"query": np.s_[:, :target], "key": np.s_[:, :source], "mask": np.s_[:target, :source]}
                padded = [np.full_like(value, np.nan) for value in whole.values()]
                for array, (name, part) in zip(padded, used.items(), strict=True):
                    array[part] = whole[name][part]
                want = namespace["model"](**{name: whole[name][part] for name, part in used.items()})
                got = run.outputs(entry, (*padded, np.array(source, np.int32), np.array(target, np.int32)))
                wrong += [
                    f"{output.cpp_name} of {source}, {target}"
                    for output, value in zip(entry.outputs, got, strict=True)
                    if not np.array_equal(value, np.asarray(want[output.cpp_name]))
                ]
            return wrong

        self.assertEqual(isolate.run_isolated(work, what="running"), [])
        self.compile(exported, batch=2, buckets=(7, 3))

    @harness.wide
    def test_three_operands(self) -> None:
        """Protects users from XLA's internal text: an einsum that it can't pad for two sizes has its line, and a way that works."""
        given: dict[str, Any] = {
            "dims": {"a": (2, "t", None), "b": (2, "s", None)},
            "signature": {"a": "float32[None, None, 4]", "b": "float32[None, None, 4]", "m": "float32[4, 5]"},
            "sizes": {"s": (4, 9), "t": (4, 9)},
        }
        start = "import tensorflow as tf\n\n\ndef model(a, b, m):\n    return "
        self.compile(self.export(start + 'tf.einsum("bti,bsi,ij->btsj", a, b, m)\n', **given), buckets=(9, 4))
        unproven = self.export(start + 'tf.einsum("bti,bsi,ij->btsj", a[:, -3:], b, m)\n', **given)
        self.assert_error(
            self.error_of(lambda: self.compile(unproven, buckets=(9, 4))),
            """
            t::Model: XLA can't compile Einsum of several sizes that differ from call to call

                Einsum 'einsum/Einsum_1' at model.py:5

              to do: multiply by a matrix with tf.tensordot(x, matrix, 1), which joins the axes of x, or fix all but one of these \
sizes in dims
            """,
        )
        exported = self.export(start + "tf.tensordot(a[:, -3:, None] * b[:, None], m, 1)\n", **given)
        self.compile(exported, buckets=(9, 4))

    def one(self, result: str, *, sizes: Sequence[int] = (3, 8), width: int = 4) -> Exported:
        """Exports a model of one input `x`, whose size is `n`."""
        text = f"import tensorflow as tf\n\n\ndef model(x):\n    n = tf.shape(x)[1]\n    return {result}, x * 2\n"
        return self.export(
            text,
            dims={"x": (2, "n", None)},
            golden_steps=1,
            signature={"x": f"float32[None, None, {width}]"},
            sizes={"n": tuple(sizes)},
        )

    @harness.wide
    def test_refused_by_xla(self) -> None:
        """Protects models whose sizes XLA refuses or forgets where they are known only at run time, and a proof follows."""
        for result, shape, bounded in (
            ("tf.squeeze(x[:, :1])", (2, 4), False),
            ("tf.broadcast_to(x[:, :1], [2, n, 4])", (2, 16, 4), True),
            ("tf.linspace(0.0, 1.0, n)", (16,), True),
            ("tf.pad(x, [[0, 0], [0, -n % 8], [0, 0]])", (2, 16, 4), True),
            ("tf.pad(x, [[0, 0], [1, 1], [0, 0]], 'SYMMETRIC')", (2, 18, 4), True),
            ("tf.split(x[:, :3], 3, 1)[1]", (2, 1, 4), False),
            ("tf.range(n - 1, -1, -1)", (16,), True),
            ("tf.linalg.diag_part(tf.matmul(x, x, transpose_b=True))", (2, 16), True),
            ("tf.nn.conv1d(x, tf.ones([3, 4, 5]), 4, 'SAME')", (2, 4, 5), True),
            ("x[:, 1::2]", (2, 8, 4), True),
            (
                "tf.raw_ops.SpaceToBatch(input=x[..., None], paddings=[[0, 0], [0, 0]], block_size=2)",
                (8, 8, 2, 1),
                True,
            ),
        ):
            with self.subTest(result):
                exported = self.one(result, sizes=(8, 16))
                (entry,) = exported.manifest.entry_points
                self.assertEqual((entry.outputs[0].shape, bool(entry.outputs[0].size)), (shape, bounded))
                for bucket in (8, 16):
                    with self.subTest(bucket=bucket):
                        self.compile(exported, buckets=(bucket,))

    def test_constant_places(self) -> None:
        """Protects from values behind the end: constant places along a size, and what TensorFlow refuses below it, are required."""
        for result, texts in (
            ("tf.gather(x, [5], axis=1)", ["n >= 6"]),
            ("tf.gather_nd(x, [[0, 6], [1, 2]])", ["n >= 7"]),
            ("tf.pad(x, [[0, 0], [3, 1], [0, 0]], 'REFLECT')", ["n >= 4"]),
            ("tf.stack(tf.split(x[:, :4], 2, 1))", ["n >= 4"]),
            ("tf.reshape(x, [2, -1, 8])", ["n >= 2", "n % 2 == 0"]),
            ("tf.gather(x, tf.range(1), axis=1)", []),
        ):
            with self.subTest(result):
                (entry,) = self.one(result).manifest.entry_points
                self.assertEqual([own.text for own in entry.requirements], texts)

    def test_repeated(self) -> None:
        """Protects from values behind the end: what TensorFlow repeats at size 1 only, a class must not take at size 1."""
        loop = "tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y + tf.ones([8, 1])), (0, {}))[1]"
        for result, texts in (
            ("x + tf.ones([8, 4])", ["n >= 8"]),
            ("tf.where(x > 0, tf.ones([2, 8, 4]), 0.0)", ["n >= 8"]),
            ("tf.broadcast_to(x, [2, 8, 4])", ["n >= 8"]),
            ("tf.matmul(x[..., None], tf.ones([8, 1, 3]))", ["n >= 8"]),
            ("tf.einsum('...i,...j->...ij', x, tf.ones([8, 4]))", ["n >= 8"]),
            (loop.format("x + tf.zeros([2, 1, 4])"), ["n >= 8"]),
            (f"tf.cond(x[0, 0, 0] > 0, lambda: x, lambda: {loop.format('x')})", ["n >= 8"]),
            ("tf.einsum('bni,bmi->bnm', x, x) + tf.ones([1, 1])", []),
            ("x[:, :1] + x", []),
            ("x + tf.ones([2, 1, 4])", []),
        ):
            with self.subTest(result):
                (entry,) = self.one(result).manifest.entry_points
                self.assertEqual([own.text for own in entry.requirements], texts)

    @harness.wide
    def test_repeated_of_two(self) -> None:
        """Protects models of two sizes: those that TensorFlow takes only together are required to be equal, or at one distance."""
        dims: dict[str, tuple[int | str | None, ...]] = {"x": ("n", 4), "y": ("m", 4)}
        signature = dict.fromkeys(dims, "float32[None, None]")
        for result, most, texts in (
            ("x * y", 8, ["n == m"]),
            ("x[2:] * y", 6, ["n == m + 2"]),
            ("tf.matmul(x, y, transpose_a=True)", 8, ["n == m"]),
            (
                "tf.reshape(x, [-1, 8]) * tf.reshape(y, [-1, 8])",
                8,
                ["n == m", "n >= 2", "n % 2 == 0", "m % 2 == 0"],
            ),
            ("x[:, None] * y", 8, []),
            ("tf.concat([x, y], 0)", 5, []),
            ("tf.concat([x, y], 0)[:5] + tf.ones([5, 1])", 8, ["n >= 8"]),
            ("tf.reshape(x, [-1, 2, 4]) * y[:, None]", 4, ["n >= 2", "n % 6 == 2", "m % 3 == 1", "n >= 8", "m >= 4"]),
        ):
            with self.subTest(result):
                text = f"import tensorflow as tf\n\n\ndef model(x, y):\n    return {result}, x * 2, y * 2\n"
                exported = self.export(text, dims=dims, signature=signature, sizes={"n": (8,), "m": (most,)})
                (entry,) = exported.manifest.entry_points
                self.assertEqual([own.text for own in entry.requirements], texts)

    def test_advice(self) -> None:
        """Protects users from XLA's internal text: what it can't compile has its line, and a way that works."""
        result = "tf.scatter_nd(tf.range(n)[:, None], tf.transpose(x, [1, 0, 2]), [n, 2, 4])"
        self.assert_error(
            self.error_of(lambda: self.compile(self.one(result), buckets=(8,))),
            """
            t::Model: XLA can't compile ScatterNd of a size that differs from call to call

                ScatterNd 'ScatterNd' at model.py:6

              to do: take n out of sizes, and give each a number in dims; or do without this op
            """,
        )
        self.assert_error(
            self.error_of(
                lambda: self.compile(self.one("tf.linalg.inv(tf.matmul(x, x, transpose_b=True))"), buckets=(8,))
            ),
            """
            t::Model: XLA can't compile MatrixInverse of a size that differs from call to call

                MatrixInverse 'MatrixInverse' at model.py:6

              to do: take n out of sizes, and give each a number in dims; or do without this op
            """,
        )

    @harness.wide
    def test_finished_models(self) -> None:
        """Protects other ways in: models of both Kerases with their masks, a SavedModel, and a GraphDef, with two sizes each."""
        from tfaot.core import isolate

        def save() -> None:
            import keras
            import tensorflow as tf

            namespace: dict[str, Any] = {}
            exec(KERAS.format(keras="keras"), namespace)
            assert keras.__version__ > "3"
            namespace["model"]().export(str(self.folder / "saved"))
            with tf.Graph().as_default() as graph:
                source = tf.compat.v1.placeholder(tf.float32, [None, None, 4], "source")
                target = tf.compat.v1.placeholder(tf.float32, [None, None, 4], "target")
                fits = tf.nn.softmax(tf.matmul(target, source, transpose_b=True))
                tf.nn.conv1d(tf.matmul(fits, source), tf.ones([3, 4, 5]), 2, "SAME", name="most")
            tf.io.write_graph(graph, str(self.folder), "graph.pb", as_text=False)

        isolate.run_isolated(save, what="saving")
        dims: dict[str, tuple[int | str | None, ...]] = {"source": (None, "read"), "target": (None, "written")}
        of_frames = {name: (*shape, None) for name, shape in dims.items()}
        for model, own in (
            (Model(saved_model=str(self.folder / "saved")), dims),
            (Model(graph=str(self.folder / "graph.pb")), of_frames),
            (KERAS.format(keras="keras"), dims),
            (KERAS.format(keras="tf_keras"), dims),
        ):
            with self.subTest(model):
                sizes = {"read": (3, 6), "written": (3, 5)}
                exported = self.export(model, batch_sizes=(2,), dims=own, sizes=sizes)
                (entry,) = exported.manifest.entry_points
                self.assertEqual(entry.sizes, tuple(OpenSize(name, buckets) for name, buckets in sizes.items()))
                self.assertEqual(isolate.run_isolated(lambda e=exported: self.wrong(e), what="running"), [])
                self.compile(exported, batch=2, buckets=(6, 3))

    def wrong(self, exported: Exported) -> list[str]:
        """Runs a graph for all pairs of sizes. Returns those for which results aren't the model's own for inputs of these sizes."""
        from tensorflow.core.framework import graph_pb2

        from tfaot.core import safetensors
        from tfaot.core.manifest import OWN_GRAPH
        from tfaot.verify.runner import Runner

        manifest = exported.manifest
        (entry,) = manifest.entry_points
        with open(exported.path("graph"), "rb") as file:
            graph = graph_pb2.GraphDef.FromString(file.read())
        held = safetensors.read(exported.path("golden_inputs"))
        own_graph = graph_pb2.GraphDef.FromString(held[OWN_GRAPH].tobytes())
        rng = np.random.default_rng(0)
        result = []
        for sizes in itertools.product(*(range(1, size.buckets[-1] + 1) for size in entry.sizes)):
            values, padded = list[Any](), list[Any]()
            for tensor in entry.inputs[: len(entry.inputs) - len(sizes)]:
                shape = tensor.at(2, sizes)
                floats = tensor.dtype == "float32"
                value = rng.standard_normal(shape, np.float32) if floats else rng.integers(0, 4, shape, np.int32)
                values.append(value)
                padded.append(np.full(tensor.shape, np.nan if floats else 19, value.dtype))
                padded[-1][tuple(map(slice, shape))] = value
            lengths = [np.array(size, np.int32) for size in sizes]
            outputs = []
            for whole, arrays in ((own_graph, values), (graph, padded)):
                with Runner(manifest, whole) as run:
                    run.assign(exported.variables.items())
                    outputs.append([np.asarray(value) for value in run.outputs(entry, (*arrays, *lengths))])
            result += [
                f"{output.cpp_name} of {sizes}"
                for output, want, got in zip(entry.outputs, *outputs, strict=True)
                if want.shape != got.shape or not np.allclose(want, got, 1e-5, 1e-6, equal_nan=True)
            ]
        return result

    def refused(self, message: str, **changes: Any) -> None:
        """Asserts that an export fails with a message, given without the model's name."""
        self.assert_error(self.error_of(self.sized, **changes), message)

    def test_errors(self) -> None:
        """Protects users who mistype a size or a bucket: each gets what to write."""
        self.refused(
            """
            dims names time, and sizes doesn't say what to compile for
              found: no sizes
              to do: add sizes = {"time": [16, 64, 256]}, with your sizes
            """,
            sizes={},
        )
        self.refused(
            """
            sizes has length, which no dimension has
              found: x [None, time, None], mask [None, time]
              to do: remove it from sizes, or name it in dims, in the place of a number or None of each input that has it
            """,
            sizes={"time": (4,), "length": (4,)},
        )
        self.refused(
            """
            sizes makes 80 functions of each entry point
              found: 8 of time × 5 of words × 2 of batch_sizes, and a class has at most 64
              to do: list fewer buckets, far from each other: each run uses one that has room
            """,
            sizes={"time": tuple(range(1, 9)), "words": tuple(range(1, 6))},
            dims={"x": (None, "time", None), "mask": (None, "words")},
        )
        for buckets in ((9, 4), (0, 9, 4), (4, "9x", 9)):
            self.refused(
                f"""
                sizes = {{"time": [{", ".join('"9x"' if bucket == "9x" else str(bucket) for bucket in buckets)}]}}
                  to do: use sizes of at least 1, in ascending order: sizes = {{"time": [4, 9]}}
                """,
                sizes={"time": buckets},
            )
        self.refused(
            """
            model.py: dims contradicts the shape of 1 input(s)
              found: x is [None, None, 3], but dims has [None, None, time]
              to do: use None to keep the model's own size, and list a size for every dimension
            """,
            dims={"x": (None, None, "time"), "mask": (None, "time")},
        )
        self.refused(
            """
            model.py: Run has an input called scale, like the size
              found: x [None, None, 3]; mask [None, None]; scale []
              to do: give the size another name in dims and sizes
            """,
            dims={"x": (None, "scale", None), "mask": (None, "scale")},
            sizes={"scale": (4,)},
        )
        self.refused(
            """
            model.py: 1 input(s) have dimensions that aren't known at build time
              found: mask [None, None]
              to do: fix them in the model, or with dims = {"mask": [None, 1]}, with your sizes in place of 1; a length that \
differs from call to call is dims = {"mask": [None, "length"]}, sizes = {"length": [16, 64, 256]} (docs/guide/sizes.md)
            """,
            dims={"x": (None, "time", None)},
        )

    def test_single(self) -> None:
        """Protects a bucket of 1, whose bounded dimension XLA refuses to repeat."""
        exported = self.export(
            "import tensorflow as tf\n\n\ndef model(x):\n    return tf.repeat(tf.roll(x, 1, 1), 2, 1)\n",
            dims={"x": (None, "time")},
            signature={"x": "float32[2, None]"},
            sizes={"time": (1, 8)},
        )
        for bucket in (1, 8):
            self.compile(exported, buckets=(bucket,))

    def test_least(self) -> None:
        """Protects from reading what isn't there: the class requires the sizes that TensorFlow accepts."""
        exported = self.export(
            """
import tensorflow as tf

def model(x, y):
    pairs = tf.reshape(x, [-1, 2, 3])
    return tf.reduce_sum(pairs, 1), tf.math.top_k(tf.reduce_sum(x, 1), 3)[0], tf.nn.conv1d(y, tf.ones([5, 3, 3]), 1, "VALID")
""",
            dims={"x": ("rows", 3), "y": (1, "time", 3)},
            signature={"x": "float32[None, 3]", "y": "float32[1, None, 3]"},
            sizes={"rows": (4, 20), "time": (8,)},
        )
        (entry,) = exported.manifest.entry_points
        self.assertEqual([own.text for own in entry.requirements], ["rows >= 4", "rows % 2 == 0", "time >= 5"])
        for rows, time in itertools.product(range(1, 21), range(1, 9)):
            accepted = all(own.holds([rows, time]) for own in entry.requirements)
            self.assertEqual(accepted, rows % 2 == 0 and rows >= 4 and time >= 5, (rows, time))
        for call in exported.manifest.calls:
            self.assertTrue(all(own.holds(call.sizes) for own in entry.requirements), call)

    def test_impossible_ops(self) -> None:
        """Protects from wrong numbers: an op that XLA computes wrongly for such a size ends the build with its name."""
        exported = self.export(
            "import tensorflow as tf\n\n\ndef model(x):\n    return tf.unique(x)[0]\n",
            dims={"x": ("time",)},
            signature={"x": "float32[None]"},
            sizes={"time": (8,)},
        )
        self.assertIn("XLA computes wrong results for Unique", self.error_of(self.compile, exported, buckets=(8,)))


if __name__ == "__main__":
    warm()
    unittest.main()
