"""What the HLO and StableHLO stages write for models that are awkward in one way each."""

from __future__ import annotations

import os
import re
import resource
import unittest
from pathlib import Path
from typing import Any

from tests.stages.harness import PREAMBLE, Exported, StageTest
from tfaot import hlo, stablehlo

ORDER = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return {"b": v1.placeholder(tf.float32, [2], "b"), "a": v1.placeholder(tf.float32, [3], "a")}, ()


def model_fn(features, labels):
    last = v1.get_variable("last", [7])
    first = v1.get_variable("first", [5])
    read = v1.get_variable("read", [6])
    unused = tf.reduce_sum(read)
    # Written in another order than made.
    with tf.control_dependencies([first.assign_add(tf.ones([5]) * unused), last.assign_add(tf.ones([7]))]):
        return {"z": features["a"] * 2, "y": features["b"] * tf.reduce_sum(last)}
"""
"""Every tensor has a shape of its own."""

WIDE = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return v1.placeholder(tf.float32, [8, 16], "x"), v1.placeholder(tf.int32, [8], "n")


def model_fn(x, n):
    w = v1.get_variable("w", [16, 16])
    h = tf.matmul(x, w)
    picture = tf.reshape(h, [1, 8, 16, 1])
    loop = tf.while_loop(lambda i, a: i < n[0], lambda i, a: (i + 1, tf.math.erf(a)), (0, h), maximum_iterations=9)
    outputs = {
        "erf": tf.math.erf(h),
        "top": tf.math.top_k(h, 4)[0],
        "sort": tf.sort(h),
        "loop": loop[1],
        "cond": tf.cond(n[0] > 0, lambda: tf.math.erf(h), lambda: h * 2),
        "scatter": tf.tensor_scatter_nd_update(h, n[:, None], h),
        "pool": tf.nn.max_pool2d(picture, 2, 2, "SAME"),
        "conv": tf.nn.conv2d(picture, tf.reshape(w, [4, 4, 1, 16]), 1, "SAME"),
        "chol": tf.linalg.cholesky(tf.matmul(h, h, transpose_b=True) + tf.eye(8)),
        "tan": tf.tan(h),
        "gamma": tf.math.lgamma(h),
        "random": tf.random.stateless_normal([4], n[:2]),
    }
    loss = tf.reduce_sum(outputs["erf"]) + tf.reduce_sum(outputs["pool"])
    step = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    with tf.control_dependencies([step]):
        return {key: tf.identity(value) for key, value in outputs.items()}
"""
"""Of most kinds of HLO operations one."""

EDGES = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return v1.placeholder(tf.bfloat16, [8, 16], "x"), v1.placeholder(tf.complex64, [8, 4], "wave")


def model_fn(x, wave):
    w = v1.get_variable("w", [16, 4], tf.float16)
    y = tf.matmul(x, tf.cast(w, tf.bfloat16))
    return {"y": y, "wave": wave * tf.cast(y, tf.complex64)}
"""

FFT = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return v1.placeholder(tf.float32, [8, 16], "x"), ()


def model_fn(x, _):
    return tf.abs(tf.signal.rfft(x))
"""


SUM = (
    PREAMBLE
    + """\
def model_fn(x, n):
    return x * tf.reduce_sum(v1.get_variable("w", [777]))
"""
)


class HloTest(StageTest):
    """Each test lowers a model of its own."""

    def lower(self, exported: Exported, *, name: str = "model", folder: Path | None = None) -> Path:
        """Runs both stages, and returns the folder that they wrote to."""
        into = folder or exported.folder / "lowered"
        into.mkdir(parents=True)
        hlo.extract(
            hlo.Request(
                manifest=exported.path("manifest"),
                graph=exported.path("graph"),
                config=exported.path("config"),
                sources=exported.path("sources"),
                name=name,
                cpu="x86-64-v3",
                xla_flags=(),
                out_hlo=str(into / "hlo.pb"),
                out_hlo_text=str(into / "hlo.txt"),
                out_optimized_hlo=str(into / "optimized_hlo.txt"),
                out_picture=str(into / "hlo.svg"),
            )
        )
        self.translate(exported, into, name=name)
        return into

    def translate(self, exported: Exported, into: Path, *, name: str = "model") -> None:
        stablehlo.translate(
            stablehlo.Request(
                manifest=exported.path("manifest"),
                graph=exported.path("graph"),
                sources=exported.path("sources"),
                name=name,
                out_text=str(into / "stablehlo.mlir"),
                out_bytecode=str(into / "stablehlo.mlirbc"),
            )
        )

    def module(self, folder: Path) -> Any:
        from tensorflow.compiler.xla.service import hlo_pb2

        return hlo_pb2.HloModuleProto.FromString((folder / "hlo.pb").read_bytes())

    def test_order(self) -> None:
        """A vendor finds parameter and result i by the manifest: inputs or outputs, then variables, in its order."""
        exported = self.export(ORDER, edge="hlo")
        folder = self.lower(exported)
        manifest = exported.manifest
        self.assertEqual([False, True, True], sorted(variable.written for variable in manifest.variables))
        entry = manifest.entry_points[0]
        parameters = [tensor.shape for tensor in (*entry.inputs, *manifest.variables)]
        results = [tensor.shape for tensor in (*entry.outputs, *manifest.written)]
        shape = self.module(folder).host_program_shape
        self.assertEqual(parameters, [tuple(parameter.dimensions) for parameter in shape.parameters])
        self.assertEqual(results, [tuple(result.dimensions) for result in shape.result.tuple_shapes])

        text = (folder / "stablehlo.mlir").read_text()
        signature = re.search(r"func\.func @main\((.*)\) -> \((.*)\) \{", text)
        assert signature is not None
        self.assertEqual([f"tensor<{s[0]}xf32>" for s in parameters], re.findall(r"tensor<[^>]*>", signature[1]))
        self.assertEqual([f"tensor<{s[0]}xf32>" for s in results], re.findall(r"tensor<[^>]*>", signature[2]))
        # And the comment on top says the same.
        for index, tensor in enumerate((*entry.inputs, *manifest.variables)):
            self.assertIn(f"// parameter {index}: float32{list(tensor.shape)} {tensor.name} (", text)

    def test_stablehlo_is_portable(self) -> None:
        """No operation, attribute, or type of another dialect, and no location, gets into what vendors parse."""
        folder = self.lower(self.export(WIDE, edge="hlo"))
        text = (folder / "stablehlo.mlir").read_text()
        code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', re.sub(r"^//.*\n", "", text, flags=re.MULTILINE))
        self.assertEqual({"func", "stablehlo"}, set(re.findall(r"(?<![\w@%.])([a-z]\w*)\.[a-z_]+", code)))
        self.assertNotIn("loc(", code)
        self.assertIn("call @erf.8.16.f32(", code)

        from tensorflow.compiler.mlir.stablehlo import stablehlo as serializer

        artifact = (folder / "stablehlo.mlirbc").read_bytes()
        self.assertTrue(artifact.startswith(b"ML\xefR\x0dStableHLO_v"))
        self.assertTrue(serializer.deserialize_portable_artifact_str(artifact))

    def test_no_path(self) -> None:
        """Nothing in any output tells where it was made: neither folders nor source files."""
        exported = self.export(WIDE, edge="hlo")
        folder = self.lower(exported)
        for path in sorted(folder.iterdir()):
            data = path.read_bytes()
            for leak in (
                os.fsencode(exported.folder),
                os.fsencode(Path.cwd()),
                b"/tmp/",
                b"dummy_file_name",
                b"model.py",
            ):
                self.assertNotIn(leak, data, path.name)
        self.assertNotIn("source_line", (folder / "hlo.txt").read_text())

    def test_deterministic(self) -> None:
        """Caches are shared: two runs in two folders write the same bytes."""
        exported = self.export(WIDE, edge="hlo")
        first = self.lower(exported)
        second = self.lower(self.export(WIDE, edge="hlo"), folder=self.folder / "a" / "deeper" / "folder")
        names = sorted(path.name for path in first.iterdir())
        self.assertEqual(6, len(names))
        for name in names:
            self.assertEqual((first / name).read_bytes(), (second / name).read_bytes(), name)

    def test_edges(self) -> None:
        """bfloat16, float16, and complex numbers cross the edge of HLO, although no C++ type has them."""
        exported = self.export(EDGES, edge="hlo")
        folder = self.lower(exported)
        text = (folder / "hlo.txt").read_text()
        self.assertIn("(bf16[8,16]{1,0}, c64[8,4]{1,0}, f16[16,4]{1,0})->(c64[8,4]{1,0}, bf16[8,4]{1,0})", text)
        signature = (folder / "stablehlo.mlir").read_text()
        self.assertIn("%arg0: tensor<8x16xbf16>, %arg1: tensor<8x4xcomplex<f32>>, %arg2: tensor<16x4xf16>", signature)

    def test_edges_of_cpp(self) -> None:
        """The same model is refused as a C++ library, and the message names the rule that takes it."""
        message = self.error_of(self.export, EDGES)
        self.assertIn("2 input(s) have a dtype that cannot cross a compiled model's edge", message)
        self.assertIn("complex64, and complex128 are for tf_aot_hlo", message)

    def test_not_compilable(self) -> None:
        """What XLA cannot compile ahead of time, such as an FFT, still has HLO to give."""
        exported = self.export(FFT, edge="hlo")
        self.assertIn("cannot compile fft ahead of time", self.error_of(self.compile, exported))
        folder = self.lower(exported)
        self.assertIn(" fft(", (folder / "hlo.txt").read_text())
        self.assertIn("stablehlo.fft", (folder / "stablehlo.mlir").read_text())

    def test_not_lowerable(self) -> None:
        """An op that XLA does not know is named with its line, by both stages, as by the compile stage."""
        exported = self.export(
            PREAMBLE + "def model_fn(x, n):\n    return tf.strings.to_number(tf.strings.as_string(x))\n", edge="hlo"
        )
        wanted = "'AsString' at model.py:11"
        self.assertIn(wanted, self.error_of(self.lower, exported))
        self.assertIn(wanted, self.error_of(self.translate, exported, exported.folder))

    def test_any_name(self) -> None:
        """A target's name is no identifier, and becomes one in the module."""
        exported = self.export(ORDER, edge="hlo")
        folder = self.lower(exported, name="a/b.c-1")
        self.assertIn("HloModule a_b_c_1,", (folder / "hlo.txt").read_text())
        self.assertIn("HloModule a_b_c_1,", (folder / "optimized_hlo.txt").read_text())
        self.assertEqual("a_b_c_1", self.module(folder).name)
        self.assertIn("module @a_b_c_1 {", (folder / "stablehlo.mlir").read_text())

    def test_size(self) -> None:
        """A variable of 6 GB takes no memory: the stages look at its shape only."""
        exported = self.export(SUM, edge="hlo")
        from tensorflow.core.framework import graph_pb2

        size = 1_500_000_000
        path = Path(exported.path("graph"))
        graph = graph_pb2.GraphDef.FromString(path.read_bytes())
        for node in graph.node:
            if node.op == "VarHandleOp":
                node.attr["shape"].shape.dim[0].size = size
        path.write_bytes(graph.SerializeToString())
        for name in ("manifest", "config"):
            path = Path(exported.path(name))
            path.write_text(path.read_text().replace("777", str(size)))
        folder = self.lower(exported)
        self.assertIn(f"f32[{size}]", (folder / "hlo.txt").read_text())
        self.assertIn(f"tensor<{size}xf32>", (folder / "stablehlo.mlir").read_text())
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 2**21, "KiB")

    def test_constants(self) -> None:
        """A constant is written out, not cut: the text is the program too."""
        exported = self.export(
            PREAMBLE + "def model_fn(x, n):\n"
            "    table = tf.reshape(tf.cast(tf.constant(list(range(1000, 1400))), tf.float32), [2, 200])\n"
            "    return tf.linalg.matvec(table, x, transpose_a=True)\n",
            edge="hlo",
        )
        folder = self.lower(exported)
        self.assertNotIn("{...}", (folder / "hlo.txt").read_text())
        self.assertIn("1399", (folder / "hlo.txt").read_text())


if __name__ == "__main__":
    unittest.main()
