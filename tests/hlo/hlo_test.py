"""What the HLO and StableHLO stages write for models that are difficult in one way each."""

from __future__ import annotations

import os
import re
import resource
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from tests.stages.harness import PREAMBLE, Exported, StageTest
from tfaot.hlo import hlo, stablehlo

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
"""Every tensor has a different shape."""

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
"""One of most kinds of HLO operations."""

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


SEVERAL = """\
import tensorflow as tf


class Model(tf.Module):
    def __init__(self):
        self.bias = tf.Variable([1.0, 2.0, 3.0], name="bias")
        self.factor = tf.Variable(2.0, name="factor")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def add(self, x):
        return x + self.bias

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def scale(self, x):
        return x * self.factor


model = Model()
"""


class HloTest(StageTest):
    """Each test lowers its own model."""

    def lower(
        self,
        exported: Exported,
        *,
        entry_point: str = "",
        name: str = "model",
        folder: Path | None = None,
        xla_flags: tuple[str, ...] = (),
    ) -> Path:
        """Runs both stages, and returns their output folder."""
        into = folder or exported.folder / ("lowered" + entry_point)
        into.mkdir(parents=True)
        hlo.extract(
            hlo.Request(
                manifest=exported.path("manifest"),
                graph=exported.path("graph"),
                config=exported.config_path(entry_point or exported.manifest.entry_points[0].name),
                sources=exported.path("sources"),
                name=name,
                cpu="x86-64-v3",
                xla_flags=xla_flags,
                out_hlo=str(into / "hlo.pb"),
                out_hlo_text=str(into / "hlo.txt"),
                out_optimized_hlo=str(into / "optimized_hlo.txt"),
                out_drawing=str(into / "hlo.dot"),
                entry_point=entry_point,
            )
        )
        self.translate(exported, into, entry_point=entry_point, name=name)
        return into

    def translate(self, exported: Exported, into: Path, *, entry_point: str = "", name: str = "model") -> None:
        stablehlo.translate(
            stablehlo.Request(
                manifest=exported.path("manifest"),
                graph=exported.path("graph"),
                sources=exported.path("sources"),
                name=name,
                out_text=str(into / "stablehlo.mlir"),
                out_bytecode=str(into / "stablehlo.mlirbc"),
                entry_point=entry_point,
            )
        )

    def module(self, folder: Path) -> Any:
        from tensorflow.compiler.xla.service import hlo_pb2

        return hlo_pb2.HloModuleProto.FromString((folder / "hlo.pb").read_bytes())

    def test_order(self) -> None:
        """The manifest says which parameter and result is which: inputs or outputs, then variables, in its order."""
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
        # And the comment at the top says the same.
        for index, tensor in enumerate((*entry.inputs, *manifest.variables)):
            self.assertIn(f"// parameter {index}: float32{list(tensor.shape)} {tensor.name} (", text)

    def test_stablehlo_is_portable(self) -> None:
        """No operation, attribute, or type from another dialect, and no location, gets into what vendors parse."""
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
        """No output says where it was made: neither folders nor source files."""
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
        """bfloat16, float16, and complex numbers cross the edge of HLO, although C++ has no such types."""
        exported = self.export(EDGES, edge="hlo", frozen=())
        folder = self.lower(exported)
        text = (folder / "hlo.txt").read_text()
        self.assertIn("(bf16[8,16]{1,0}, c64[8,4]{1,0}, f16[16,4]{1,0})->(c64[8,4]{1,0}, bf16[8,4]{1,0})", text)
        signature = (folder / "stablehlo.mlir").read_text()
        self.assertIn("%arg0: tensor<8x16xbf16>, %arg1: tensor<8x4xcomplex<f32>>, %arg2: tensor<16x4xf16>", signature)

    def test_edges_of_cpp(self) -> None:
        """As a C++ library, the same model has what C++ has at its edge: bits, and pairs of reals."""
        exported = self.export(EDGES, frozen=())
        folder = self.lower(exported)
        text = (folder / "hlo.txt").read_text()
        self.assertIn("(u16[8,16]{1,0}, f32[8,4,2]{2,1,0}, u16[16,4]{1,0})->(f32[8,4,2]{2,1,0}, u16[8,4]{1,0})", text)
        signature = (folder / "stablehlo.mlir").read_text()
        self.assertIn("%arg0: tensor<8x16xui16>, %arg1: tensor<8x4x2xf32>, %arg2: tensor<16x4xui16>", signature)

    def test_entry_points(self) -> None:
        """Each entry point is a separate program with its own variables. A batch has the largest size."""
        exported = self.export(
            SEVERAL, batch_sizes=(2, 8), edge="hlo", entry_points=(("Add", "add"), ("Scale", "scale")), max_batch=32
        )
        for name, variable, shape in (("", "bias", "[3]"), ("Add", "bias", "[3]"), ("Scale", "factor", "[]")):
            folder = self.lower(exported, entry_point=name)
            text = (folder / "hlo.txt").read_text()
            self.assertIn(f"// parameter 0: float32[8, 3] {name or 'Add'}/x:0 (input)\n", text)
            self.assertIn(f"// parameter 1: float32{shape} {variable} (variable, only read)\n", text)
            self.assertIn("// result 0: float32[8, 3] ", text)
            module = self.module(folder)
            parameters = [list(parameter.dimensions) for parameter in module.host_program_shape.parameters]
            self.assertEqual([[8, 3], [3] if shape == "[3]" else []], parameters)
            signature = (folder / "stablehlo.mlir").read_text()
            kind = "tensor<3xf32>" if shape == "[3]" else "tensor<f32>"
            self.assertIn(f"@main(%arg0: tensor<8x3xf32>, %arg1: {kind}) -> tensor<8x3xf32>", signature)

    def test_runtime_calls(self) -> None:
        """Protects accelerators: what the compile stage takes out of the graph for the runtime is itself in HLO."""
        exported = self.export(FFT, edge="hlo")
        folder = self.lower(exported)
        self.assertIn(" fft(", (folder / "hlo.txt").read_text())
        self.assertIn("stablehlo.fft", (folder / "stablehlo.mlir").read_text())

    def test_not_lowerable(self) -> None:
        """Both stages name an op that XLA doesn't know with its line, like the compile stage."""
        exported = self.export(
            PREAMBLE + "def model_fn(x, n):\n    return tf.strings.to_number(tf.strings.as_string(x))\n", edge="hlo"
        )
        wanted = "'AsString' at model.py:11"
        self.assertIn(wanted, self.error_of(self.lower, exported))
        self.assertIn(wanted, self.error_of(self.translate, exported, exported.folder))

    def test_flags_that_hide_the_modules(self) -> None:
        """Protects users of XLA's own dumps: the stage says which flags take its modules away."""
        exported = self.export(ORDER, edge="hlo")
        text = self.error_of(self.lower, exported, xla_flags=("--xla_dump_hlo_module_re=none",))
        self.assertIn("the compiler dumped 0 modules cpu_after_optimizations instead of one", text)
        self.assertIn("to do: remove --xla_dump_… from the target's xla_flags", text)

    def test_broken_translation(self) -> None:
        """Protects users from a crash of the translator, and from a result that it can't write: an error, and no file."""
        exported = self.export(ORDER, edge="hlo")
        with mock.patch.object(stablehlo, "lower", lambda *_: os.abort()):
            error = self.error_of(self.translate, exported, exported.folder)
        self.assertRegex(
            error, r"translating model to StableHLO: the compiler .*SIGABRT(.|\n)*\n  to do: look for an op"
        )
        with mock.patch(
            "tensorflow.compiler.mlir.stablehlo.stablehlo.serialize_portable_artifact_str",
            side_effect=ValueError("an operation without a version"),
        ):
            error = self.error_of(self.translate, exported, exported.folder)
        self.assert_error(
            error,
            """
            model: can't serialize the StableHLO: an operation without a version
              to do: replace what the compiler's log names above; the output group hlo gives the HLO itself
            """,
        )
        self.assertFalse((exported.folder / "stablehlo.mlir").exists())

    def test_any_name(self) -> None:
        """A target's name doesn't have to be an identifier, and becomes one in the module."""
        exported = self.export(ORDER, edge="hlo")
        folder = self.lower(exported, name="a/b.c-1")
        self.assertIn("HloModule a_b_c_1,", (folder / "hlo.txt").read_text())
        self.assertIn("HloModule a_b_c_1,", (folder / "optimized_hlo.txt").read_text())
        self.assertEqual("a_b_c_1", self.module(folder).name)
        self.assertIn("module @a_b_c_1 {", (folder / "stablehlo.mlir").read_text())

    def test_size(self) -> None:
        """A variable of 6 GB takes no memory: the stages look only at its shape."""
        exported = self.export(SUM, edge="hlo", frozen=())
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
        """A constant is written in full, because the text is also the program."""
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
