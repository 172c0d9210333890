"""Expected results, and how far they can be missed: TensorFlow's numbers and the tolerances derived from them."""

from __future__ import annotations

import math
import re
import struct
import unittest
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from tests.stages import cases
from tests.stages.harness import ROOT, Exported, StageTest
from tfaot.core import drawn, dtypes, isolate
from tfaot.export.sources.model import Model

Array = npt.NDArray[Any]

HEAD = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return {"b": v1.placeholder(tf.float32, [3], "b"), "a": v1.placeholder(tf.int32, [], "a")}, v1.placeholder(
        tf.float32, [3], "c"
    )


"""


SEVERAL = """\
import numpy as np
import tensorflow as tf


class Model(tf.Module):
    def __init__(self):
        self.w = tf.Variable([1.0, 2.0], name="w")

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def train(self, x):
        y = self.w * x
        self.w.assign_add(x)
        return y

    @tf.function(input_signature=[])
    def look(self):
        return self.w.read_value()


model = Model()


def golden_fn(step, rng, entry_point):
    return np.array([2.0 + step, -4.0]) if entry_point == "train" else ()
"""
"""A step that writes a variable, and a function that reads it."""


def spacing(value: float) -> float:
    """Returns one unit in the last place of a float32."""
    return float(np.spacing(np.float32(value)))


class GoldensTest(StageTest):
    """The stage as a whole, on small models."""

    def rendered_test(self, exported: Exported) -> str:
        """Returns the generated test's source."""
        from tfaot.render.render import Compiled, Request, render

        out = {f"out_{kind}": exported.path(kind) for kind in ("header", "source", "test", "benchmark")}
        render(
            Request(
                manifest=exported.path("manifest"),
                header="m.h",
                functions=tuple(
                    Compiled(entry.name, *variant, f"m{index}.executor.h")
                    for index, entry in enumerate(exported.manifest.entry_points)
                    for variant in entry.variants
                ),
                embed_variables=True,
                flush_denormals=True,
                out_variables=exported.path("S"),
                **out,
            )
        )
        return Path(exported.path("test")).read_text()

    def read_by(self, exported: Exported) -> list[str]:
        """Returns what the generated test reads, in order, by the goldens' names, without what accompanies a value."""
        source = self.rendered_test(exported)
        read = re.findall(r"verifier\.Initial\(.*?initial\.(\w+)\(\)\);", source)
        names = [f"initial/{name}" for name in read]
        bodies = {
            name: [
                member + ("/free" if kind == "CheckFree" else "")
                for kind, member in re.findall(
                    r"verifier\.(Feed|Check|CheckFree)\(.*?(?:model|free)\.(\w+)\(\)(?:, .*)?\);", body
                )
            ]
            for name, body in re.findall(r"void Verify_(\w+)\((.*?\n)}\n", source, re.DOTALL)
        }
        main = source[source.index("int Verify(const char* isa") :]
        before: list[str] = []
        for restored, name, step in re.findall(
            r"\n  (?:verifier\.Feed\(model\.(\w+)\(\)\)|Verify_(\w+)\(verifier, model, (?:free, )?(\d+))", main
        ):
            if restored:
                before.append(restored.removeprefix("mutable_"))  # of a variable that the model only reads
                continue
            names += [f"step{step}/{member}/before" for member in before]
            names += [f"step{step}/{member}" for member in bodies[name]]
            before = []
        return names

    def assert_read_in_order(self, exported: Exported, goldens: dict[str, Array]) -> None:
        """Checks that the generated test reads the file's contents by position."""
        values = [
            name
            for name in goldens
            if name.rpartition("/")[2] not in ("drawn", "tolerance", "sees", "shape", "blocks", "size", "unverified")
        ]
        self.assertEqual(self.read_by(exported), values)

    def check_case(self, case: cases.Case) -> None:
        """Checks a case of `goldens.txt`: a model, options of `export` and `goldens`, and facts or the error of `goldens`."""
        options = eval(f"dict({case.extra})")
        choices = {name: options.pop(name) for name in ("strict", "unseen") if name in options}
        exported = self.export(case.text, **options)
        if case.wanted.startswith("t::Model:"):
            self.assert_error(self.error_of(exported.goldens, **choices), case.wanted)
            return
        goldens = exported.goldens(**choices)
        cases.check_facts(
            self,
            case.wanted,
            {
                "allowed": lambda name: goldens[f"step0/{name}/tolerance"],
                "assert_read_in_order": lambda: self.assert_read_in_order(exported, goldens) is None,
                "computed": lambda: self.computed(exported),
                "drawn": drawn,
                "entry": exported.manifest.entry_points[0],
                "exported": exported,
                "goldens": goldens,
                "logistic": _logistic,
                "manifest": exported.manifest,
                "math": math,
                "np": np,
                "spacing": spacing,
                "struct": struct,
                "zlib": zlib,
            },
        )

    def test_order_is_that_of_the_generated_test(self) -> None:
        """Protects against comparing different tensors: the file is read without names."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    w = v1.get_variable("w/kernel", initializer=[1.0, 2.0, 3.0])
    r = v1.get_variable("read", initializer=[0.5, 0.5, 0.5])
    y = w * features["b"] + labels + r
    with tf.control_dependencies([y]), tf.control_dependencies([w.assign_add(labels)]):
        return {"z": tf.identity(features["a"]), "y": tf.identity(y)}
""",
            golden_steps=2,
        )
        goldens = exported.goldens()
        entry = exported.manifest.entry_points[0]
        inputs = [tensor.cpp_name for tensor in entry.inputs]
        self.assertEqual(sorted(inputs), ["a", "b", "c"])

        def comparison(name: str) -> list[str]:
            return [name, name + "/tolerance", name + "/sees"]

        def fed(name: str) -> list[str]:
            return [name + "/drawn", name]

        step = [name for tensor in inputs for name in fed(tensor)]
        step += [*comparison("y"), *comparison("y/free"), *comparison("z"), *comparison("z/free")]
        step += comparison("w_kernel")
        self.assertEqual(
            list(goldens),
            [f"initial/{v.cpp_name}" for v in exported.manifest.variables]
            + [f"step0/{n}" for n in step]
            + [f"step1/{n}" for n in [*fed("w_kernel/before"), *step]]
            + ["unverified/size", "unverified"],
        )
        self.assert_read_in_order(exported, goldens)

    def computed(self, exported: Exported) -> list[list[Array]]:
        """Returns TensorFlow's own results."""

        def work() -> list[list[Array]]:
            from tensorflow.core.framework import graph_pb2

            from tfaot.verify.runner import Runner

            manifest, inputs = exported.manifest, exported.golden_inputs
            calls = [
                (entry, [inputs[f"step{step}/{tensor.cpp_name}"] for tensor in entry.inputs])
                for step, entry in enumerate(manifest.entry_point(call.entry_point) for call in manifest.calls)
            ]
            graph = graph_pb2.GraphDef.FromString(Path(exported.path("graph")).read_bytes())
            with Runner(manifest, graph) as runner:
                return runner(exported.variables.items(), calls)

        return isolate.run_isolated(work, what="running TensorFlow")

    def test_variables_are_assigned_together(self) -> None:
        """Protects models of 10,000 variables: each new set of ops that runs makes the session look at the whole graph."""
        exported = self.export(
            "import tensorflow as tf\n\n\n"
            "w = [tf.Variable(tf.fill([2], float(i)), name=f'w{i}') for i in range(40)]\n\n\n"
            "def model(x):\n    return x + tf.add_n(w)\n",
            frozen=(),
            signature={"x": "float32[2]"},
        )

        def work() -> tuple[list[int], float]:
            import tensorflow as tf
            from tensorflow.core.framework import graph_pb2

            from tfaot.verify import runner as runners

            graph = graph_pb2.GraphDef.FromString(Path(exported.path("graph")).read_bytes())
            sets = []
            run = tf.compat.v1.Session.run

            def counted(session: Any, fetches: Any, feeds: Any = None) -> Any:
                sets.append(len(fetches))
                return run(session, fetches, feeds)

            with (
                mock.patch.object(tf.compat.v1.Session, "run", counted),
                mock.patch.object(runners, "_TOGETHER", 10 * 8),
                runners.Runner(exported.manifest, graph) as runner,
            ):
                runner.assign(exported.variables.items())
                assigned, sets[:] = list(sets), []
                (result,) = runner.call(exported.manifest.entry_points[0], [np.zeros(2, np.float32)])
            return assigned, float(result[0])

        self.assertEqual(isolate.run_isolated(work, what="assigning"), ([10, 10, 10, 10], sum(range(40))))

    def test_variables_too_large_to_be_restored(self) -> None:
        """Protects large models: steps continue from each other, but each comparison's sight is still measured."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    w = v1.get_variable("w", initializer=[1.0, 2.0, 3.0])
    with tf.control_dependencies([w.assign_add(labels * 0.1)]):
        return {"y": w * features["b"]}
""",
            golden_steps=2,
        )
        with mock.patch("tfaot.core.manifest.RESTORED", 0):
            goldens = exported.goldens()
            self.assert_read_in_order(exported, goldens)
        self.assertFalse([name for name in goldens if "before" in name or "free" in name])
        for name in ("step0/y", "step1/y", "step0/w", "step1/w"):
            self.assertGreater(float(goldens[f"{name}/sees"][0]), 1000, name)
            self.assertEqual(goldens[f"{name}/sees"][1], 3, name)

    def graph(self, graph: str, config: str) -> Model:
        """Writes a GraphDef and its config as text."""
        (self.folder / "graph.pbtxt").write_text(graph)
        (self.folder / "config.pbtxt").write_text(config)
        return Model(graph=str(self.folder / "graph.pbtxt"), config=str(self.folder / "config.pbtxt"))

    def test_variables_that_callers_set(self) -> None:
        """Protects models without values of their variables: each call gets drawn ones, because zeros would hide most faults."""
        variable = """
            node {{ name: "{0}" op: "VarHandleOp" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }}
                   attr {{ key: "shape" value {{ shape {{ dim {{ size: 3 }} }} }} }}
                   attr {{ key: "shared_name" value {{ s: "{0}" }} }} }}
            node {{ name: "{0}/read" op: "ReadVariableOp" input: "{0}" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }}
            """
        model = self.graph(
            variable.format("gain")
            + variable.format("sum")
            + """
            node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
            node { name: "scaled" op: "Mul" input: "x" input: "gain/read" attr { key: "T" value { type: DT_FLOAT } } }
            node { name: "add" op: "AssignAddVariableOp" input: "sum" input: "scaled" input: "^sum/read"
                   attr { key: "dtype" value { type: DT_FLOAT } } }
            node { name: "y" op: "Mul" input: "scaled" input: "sum/read" input: "^add" attr { key: "T" value { type: DT_FLOAT } } }
            versions { producer: 1882 }
            """,
            'feed { id { node_name: "x" } shape { dim { size: 3 } } } fetch { id { node_name: "y" } } '
            'variable { node_name: "gain" readonly: true } variable { node_name: "sum" }',
        )
        exported = self.export(model, golden_steps=2)
        goldens = exported.goldens()
        self.assert_read_in_order(exported, goldens)
        for name in ("gain", "sum"):
            self.assertEqual(goldens[f"initial/{name}"], zlib.crc32(bytes(12)))
            self.assertGreater(np.abs(goldens[f"step0/{name}/before"]).min(), 1e-4)
        np.testing.assert_array_equal(goldens["step0/gain/before"], goldens["step1/gain/before"])
        first = goldens["step0/x"] * goldens["step0/gain/before"]
        np.testing.assert_allclose(goldens["step0/y"], first * goldens["step0/sum/before"], rtol=1e-5)
        np.testing.assert_allclose(goldens["step0/sum"], first + goldens["step0/sum/before"], rtol=1e-5)
        np.testing.assert_allclose(goldens["step1/sum/before"], goldens["step0/sum"], rtol=1e-6)
        np.testing.assert_allclose(goldens["step1/y/free"], goldens["step1/y"], rtol=1e-4)
        test = self.rendered_test(exported)
        self.assertIn("::tfaot::Copy(model.mutable_gain(), free.mutable_gain());\n  gain_crc = ::tfaot::Crc32(", test)
        self.assertEqual(test.count("::tfaot::Copy(model.sum(), free.sum());"), 1)

    def test_integers(self) -> None:
        """Protects models from inputs that say nothing: integers are those that the graph accepts, and reach all of them."""
        text = """\
import numpy as np
import tensorflow as tf

table = tf.Variable(np.random.default_rng(1).standard_normal((50, 8)).astype(np.float32), name="table")


def model(big, branch, bucket, label, length, number, pair, seed, token):
    rows = tf.nn.embedding_lookup(table, token - 1)
    mask = tf.sequence_mask(length, 12, tf.float32)
    logits = (rows * mask[:, :, None]) @ tf.eye(8, 7)
    return {
        "big": tf.reduce_sum(tf.nn.embedding_lookup(table, big), 0),
        "branch": tf.switch_case(branch, [lambda: rows * 2, lambda: rows + 1, lambda: rows - 3]),
        "bucket": tf.gather([[0.5, 2.0], [3.0, 4.0], [7.0, 1.0]], tf.searchsorted([20, 45], bucket)),
        "loss": tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(label, [-1, 12]), logits),
        "noise": tf.random.stateless_normal([4], seed),
        "number": tf.cast(number, tf.float32) / 3.0,
        "pair": tf.gather_nd(table, pair),
        "top": tf.math.top_k(number, 3)[0],
    }
"""
        wanted = {
            "big": ("int32[20000]", 0, 49),
            "branch": ("int32[]", 0, 2),
            "bucket": ("int32[60]", -1, 46),
            "label": ("int64[4, 12]", 0, 6),
            "length": ("int32[4]", -1, 12),
            "number": ("int32[30]", -100, 99),
            "pair": ("int32[40, 2]", 0, 7),
            "seed": ("int32[2]", -(2**31), 2**31 - 1),
            "token": ("int32[4, 12]", 1, 50),
        }
        signature = {name: shape for name, (shape, _, _) in wanted.items()}
        exported = self.export(text, golden_steps=3, signature=signature)
        goldens = drawn.filled(exported.manifest, exported.goldens())
        for name, (_, least, most) in wanted.items():
            values = np.concatenate([goldens[f"step{step}/{name}"].reshape(-1) for step in range(3)])
            self.assertTrue(least <= values.min() and values.max() <= most, (name, values))
            self.assertGreater(np.ptp(values.astype(np.int64)), 0.3 * (most - least), name)
        self.assertEqual({int(goldens[f"step{step}/branch"]) for step in range(3)} & {0, 2}, {0, 2})
        self.assertLess(min(goldens[f"step{step}/seed"].min() for step in range(3)), 0)

    def test_constants(self) -> None:
        """Protects what depends on nothing, such as a flag, or a counter that is set to 0: any other value shows."""
        exported = self.export(
            SEVERAL.replace(
                "        return y\n",
                "        self.steps.assign_add(1)\n        return y\n\n"
                "    @tf.function(input_signature=[])\n    def reset(self):\n        self.steps.assign(0)\n"
                "        self.w.assign(tf.abs(self.w))\n        return {'done': True, 'two': tf.constant(2.0)}\n",
            ).replace("        self.w =", "        self.steps = tf.Variable(0, name='steps')\n        self.w ="),
            entry_points=(("Reset", "reset"), ("Train", "train")),
            golden_calls=("Reset", "Train", "Reset"),
            golden_steps=3,
        )
        goldens = exported.goldens()
        seen = {name: float(goldens[f"step2/{name}/sees"][0]) for name in ("Reset_done", "steps", "Reset_two", "w")}
        self.assertEqual((seen["Reset_done"], seen["steps"]), (math.inf, math.inf))
        self.assertTrue(all(1e4 < seen[name] < 1e9 for name in ("Reset_two", "w")), seen)

    def test_errors_of_xla(self) -> None:
        """Protects right programs from alarms, near zeros above all, where values are differences of larger ones."""
        exported = self.export(
            """\
import numpy as np
import tensorflow as tf

D = tf.float64


@tf.function(
    input_signature=[tf.TensorSpec([4096]), tf.TensorSpec([2, 12, 12, 3]), tf.TensorSpec([64]), tf.TensorSpec([16, 8])]
)
def model(x, image, large, loop):
    wide = tf.cast(x, D)
    rows = tf.reshape(x, [-1, 16])
    voxels = tf.reshape(x[: 4 * 6 * 6 * 2], [1, 4, 6, 6, 2])
    square = tf.reshape(x[:144], [12, 12])
    return {
        "accumulated": tf.while_loop(lambda i, q: i < 100, lambda i, q: (i + 1, q + 0.1), (0, loop))[1],
        "added": tf.add_n([x, -2.0 * x, x[::-1], x]),
        "averaged": tf.nn.avg_pool3d(voxels, 3, 1, "SAME"),
        "clse": tf.math.cumulative_logsumexp(rows - 1.0, 1),
        "cosh": tf.cosh(large),
        "enlarged": tf.image.resize(image, (31, 29)),
        "lgamma": tf.math.lgamma(tf.abs(wide) + 0.3),
        "log1p": tf.math.log1p(wide / 3.6),
        "log_softmax": tf.nn.log_softmax(5.0 * rows),
        "ndtri": tf.math.ndtri(tf.nn.sigmoid(-2.0 * tf.abs(x))),
        "nested": tf.cond(
            x[0] < 9.0,
            lambda: tf.while_loop(lambda i, q: i < 100, lambda i, q: (i + 1, q * 0.99 + 0.01 * tf.sin(3.0 * q)), (0, loop))[1],
            lambda: loop,
        ),
        "resized": tf.image.resize(image, (6, 5)),
        "selu": tf.nn.selu(wide),
        "sinh": tf.sinh(large),
        "svd": tf.linalg.svd(square, compute_uv=False),
    }


def golden_fn(step, rng):
    f = lambda *shape: np.clip(rng.standard_normal(shape), -3.5, 3.5)
    return f(4096), f(2, 12, 12, 3), rng.uniform(60, 88, 64), f(16, 8)
""",
            golden_steps=2,
        )
        goldens = exported.goldens(unseen=("*",))
        entry = exported.manifest.entry_points[0]

        def work() -> list[list[Array]]:
            import tensorflow as tf
            from tensorflow.core.framework import graph_pb2

            graph = graph_pb2.GraphDef.FromString(Path(exported.path("graph")).read_bytes())
            imported = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph, name=""), [])
            edges = [
                [imported.graph.get_tensor_by_name(edge.name) for edge in edges]
                for edges in (entry.inputs, entry.outputs)
            ]
            compiled = tf.function(imported.prune(*edges), jit_compile=True)
            steps = [[tf.constant(goldens[f"step{step}/{edge.cpp_name}"]) for edge in entry.inputs] for step in (0, 1)]
            return [[np.asarray(value) for value in compiled(*values)] for values in steps]

        shares: dict[str, float] = {}
        for step, values in enumerate(isolate.run_isolated(work, what="running XLA")):
            for output, value in zip(entry.outputs, values, strict=True):
                want, allowed = (goldens[f"step{step}/{output.cpp_name}{part}"] for part in ("", "/tolerance"))
                share = np.abs(value.astype(np.float64) - want) / allowed
                shares[output.cpp_name] = max(shares.get(output.cpp_name, 0.0), float(share.max()))
                self.assertLess(np.median(allowed / (np.abs(want) + np.std(want))), 1e-4, output.cpp_name)
        self.assertEqual({name: share for name, share in shares.items() if not 0.01 < share < 0.95}, {})

    def test_batch_norm(self) -> None:
        """Protects the reference for fused batch normalization, which has no float64 kernel: forward and gradient."""
        for training in ("True", "False"):
            exported = self.export(
                f"""\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def model(x):
    scale, offset = tf.constant([0.5, 2.0, 1.0]), tf.constant([0.1, 0.2, 0.3])
    moments = [] if {training} else [tf.constant([0.1, -0.2, 0.3]), tf.constant([1.5, 0.5, 1.0])]
    with tf.GradientTape() as tape:
        tape.watch([x, scale, offset])
        y, mean, variance = v1.nn.fused_batch_norm(x, scale, offset, *moments, is_training={training})
        loss = tf.reduce_sum(y * y * y)
    return {{"y": y, "mean": mean, "variance": variance, **dict(zip("abc", tape.gradient(loss, [x, scale, offset])))}}
""",
                golden_steps=2,
                signature={"x": "float32[2, 4, 4, 3]"},
            )
            goldens = exported.goldens(unseen=() if training == "True" else ("*",))
            entry = exported.manifest.entry_points[0]
            for tensor, value in zip(entry.outputs, self.computed(exported)[0], strict=True):
                want, allowed = (goldens[f"step0/{tensor.cpp_name}{part}"] for part in ("", "/tolerance"))
                self.assertTrue(np.all(np.abs(want - value) <= allowed), tensor.name)
                self.assertLess(np.max(allowed), 1e-4 * max(1.0, float(np.max(np.abs(want)))), tensor.name)

    def test_calls(self) -> None:
        """Protects models with several functions: consecutive calls, on variables from earlier calls."""
        exported = self.export(
            SEVERAL,
            golden_calls=("Train", "Look", "Train"),
            entry_points=(("Train", "train"), ("Look", "look")),
            golden_steps=2,
        )
        goldens = exported.goldens()
        self.assert_read_in_order(exported, goldens)
        w = np.array([1, 2], np.float32)
        for step in range(6):
            if step % 3 == 1:
                np.testing.assert_array_equal(goldens[f"step{step}/Look_output"], w)
                self.assertNotIn(f"step{step}/w", goldens)
                continue
            x = goldens[f"step{step}/Train_x"]
            np.testing.assert_array_equal(goldens[f"step{step}/Train_output"], w * x)
            w = w + x
            np.testing.assert_array_equal(goldens[f"step{step}/w"], w)

    def test_calls_before_a_write(self) -> None:
        """Protects models whose first call only reads: until a call has written, each call is compared from the initial values."""
        for calls in (("Look", "Train"), ("Look", "Look", "Train"), ("Train", "Look")):
            goldens = self.export(
                SEVERAL.replace("assign_add(x)", "assign_add(0.1 * x)"),
                golden_calls=calls,
                entry_points=(("Train", "train"), ("Look", "look")),
                golden_steps=2,
            ).goldens()
            w = np.array([1, 2], np.float64)
            for step, call in enumerate(2 * calls):
                name = f"step{step}/Look_output"
                if call == "Train":
                    w += np.float64(0.1) * goldens[f"step{step}/Train_x"]
                    name = f"step{step}/w"
                np.testing.assert_allclose(goldens[name], w, rtol=1e-6)
                self.assertLess(goldens[f"{name}/tolerance"].max(), 1e-5, name)

    def test_every_dtype(self) -> None:
        """Protects every dtype at the edge, scalars and empty tensors: all can be fed, computed, stored, and kept."""
        exported = self.export(
            """\
import tensorflow as tf

v1 = tf.compat.v1
DTYPES = %r


def input_fn():
    return {name: v1.placeholder(name, [4, 4], "in_" + name) for name in DTYPES}, v1.placeholder(tf.float32, [3], "c")


def model_fn(features, labels):
    outputs, writes = {}, []
    for name in DTYPES:
        v = v1.get_variable("v_" + name, initializer=tf.zeros([4, 4], name))
        outputs["out_" + name] = tf.identity(features[name])
        writes.append(v.assign(features[name]))
    with tf.control_dependencies(writes):
        outputs = {name: tf.identity(value) for name, value in outputs.items()}
    return {**outputs, "scalar": tf.reduce_sum(labels), "empty": labels[:0]}
"""
            % [dtype.name for dtype in dtypes.ALL]
        )
        goldens = exported.goldens()
        self.assert_read_in_order(exported, goldens)
        for dtype in dtypes.ALL:
            value = goldens[f"step0/in_{dtype.name}"]
            self.assertEqual((value.dtype, value.shape), (dtype.numpy(), (4, 4)))
            self.assertTrue(np.any(value != value.reshape(-1)[0]), dtype.name)
            # Complex numbers are compared as pairs.
            pairs = np.stack([value.real, value.imag], -1) if dtype.name.startswith("complex") else value
            for name in (f"out_{dtype.name}", f"v_{dtype.name}"):
                self.assertEqual(goldens[f"step0/{name}"].dtype, pairs.dtype)
                np.testing.assert_array_equal(goldens[f"step0/{name}"], pairs)
                allowed = goldens[f"step0/{name}/tolerance"]
                self.assertEqual(bool(np.all(allowed > 0)), dtype.floating, name)
                self.assertLess(np.max(allowed), 1.0, name)
            self.assertEqual(goldens[f"initial/v_{dtype.name}"], zlib.crc32(bytes(16 * dtype.bytes)))
        self.assertEqual(goldens["step0/scalar"].shape, ())
        self.assertEqual((goldens["step0/empty"].shape, goldens["step0/empty/tolerance"].shape), ((0,), (0,)))


def _logistic(steps: int) -> np.float32:
    """Returns the logistic map in float32, as TensorFlow computes it."""
    value = np.float32(0.4)
    for _ in range(steps):
        value = np.float32(np.float32(4) * value) * np.float32(np.float32(1) - value)
    return value


class DerivationTest(unittest.TestCase):
    """The pure functions that tolerances are derived with."""

    @classmethod
    def setUpClass(cls) -> None:
        from tfaot.core import environment

        environment.prepare()

    def test_distance(self) -> None:
        """Protects NaNs and infinities: they equal themselves, and are infinitely far from everything else."""
        from tfaot.verify.tolerance import distance

        a = np.array([1, np.nan, np.inf, np.nan, 4, -np.inf], np.float32)
        b = np.array([1.5, np.nan, np.inf, 2, np.inf, np.inf], np.float32)
        self.assertEqual(distance(a, b).tolist(), [0.5, 0, 0, np.inf, np.inf, np.inf])
        self.assertEqual(distance(np.array([True, False]), np.array([True, True])).tolist(), [0, 1])

    def test_rounded_up(self) -> None:
        """Protects goldens from a machine's last bits, and tolerances from shrinking."""
        from tfaot.verify.tolerance import rounded_up

        for value in np.random.default_rng(0).lognormal(0, 20, 1000):
            up = float(rounded_up(np.array([value]))[0])
            self.assertTrue(value <= up <= value * 1.126, (value, up))
        self.assertEqual(rounded_up(np.array([0.0, np.inf])).tolist(), [0, np.inf])

    def test_expected(self) -> None:
        """Protects the rule: the reference is expected, TensorFlow's value is accepted, and special values are exact."""
        from tfaot.verify.tolerance import Spread, expected

        result = np.array([1, 1, np.inf, np.nan], np.float32)
        exact = np.array([1 + 1e-9, 1.5, np.inf, np.nan])
        spread = Spread.of(exact)
        for off in (1e-6, -1e-6):
            spread.add(exact + off, exact)
        row = expected(result, exact, spread, np.full(4, 1e-7), dtype="float32", noise=1.0)
        np.testing.assert_array_equal(row.value, np.array([1, 1.25, np.inf, np.nan], np.float32))
        self.assertTrue(8.2e-6 <= row.tolerance[0] <= 9.3e-6, row.tolerance)
        self.assertTrue(0.25 <= row.tolerance[1] <= 0.3, row.tolerance)
        self.assertEqual(row.tolerance[2:].tolist(), [0, 0])

    def test_excursions(self) -> None:
        """Protects against decisions that rounding makes: what large noise moves is accepted as it is."""
        from tfaot.verify.tolerance import Spread, expected

        exact = np.zeros(2)
        spread = Spread.of(exact)
        spread.add(exact, exact)
        spread.add(np.array([0.0, 3.0]), exact, times=8)
        row = expected(exact.astype(np.float32), exact, spread, np.full(2, 1e-7), dtype="float32", noise=1.0)
        self.assertTrue(row.tolerance[0] < 1e-6 and 3 <= row.tolerance[1] < 3.5, row.tolerance)
        self.assertEqual(spread.deviation()[1], 3 / 8 / 2**0.5)

    def test_whole_numbers(self) -> None:
        """Protects indices: they are exact, unless runs with noise gave others."""
        from tfaot.verify.tolerance import Spread, expected

        exact = np.array([3, 4])
        spread = Spread.of(exact)
        spread.add(np.array([3, 6]), exact)
        row = expected(exact, exact, spread, np.zeros(2), dtype="int64", noise=1.0)
        self.assertEqual((row.value.tolist(), row.tolerance.tolist()), ([3, 4], [0, 2]))

    def test_sight(self) -> None:
        """Protects the measure of blindness: a change counts in tolerances, and any change to an exact value counts fully."""
        from tfaot.verify.sensitivity import changed

        rng = np.random.default_rng(0)
        moved = changed(np.array([100, 0, -1], np.float32), rng)
        np.testing.assert_allclose(np.abs(moved - [100, 0, -1]), [1, 0.01, 0.01], rtol=1e-4)
        self.assertEqual(changed(np.array([3, 255], np.uint8), rng).tolist(), [4, 0])
        self.assertEqual(changed(np.array([True]), rng).tolist(), [False])

    def test_checked(self) -> None:
        """Protects the count of values: one that moves doesn't hide others, and a mask's zeros count if a leak would show."""
        from tfaot.verify.sensitivity import Sight
        from tfaot.verify.tolerance import Expected

        def checked(tolerance: list[float], *probes: list[float]) -> list[bool]:
            base = np.zeros(len(tolerance))
            sight = Sight.of(Expected(base, np.array(tolerance, np.float32)))
            for probe in probes:
                sight.add(np.array(probe), base)
            return [bool(value) for value in sight.checked()]

        self.assertEqual(checked([1, 1, 1], [3, 0, 3]), [False] * 3)
        self.assertEqual(checked([1, 1, 1], [3, 0, 3], [0, -4, 0]), [True] * 3)
        self.assertEqual(checked([1, 1e-3, 9], [8, 0, 8]), [True, True, False])
        self.assertEqual(checked([math.inf, 0, 0], [1, 0, 5]), [False, True, True])
        self.assertEqual(checked([1.0] * 20, [9.0] + [0.0] * 19), [True] + [False] * 19)
        # What isn't a number is no value that a wrong program would have.
        self.assertEqual(checked([1, 1], [math.nan, math.inf]), [False, False])

    def test_digest(self) -> None:
        """Protects the comparison of large results: evenly spaced samples, and sums that reveal every single value."""
        from tfaot.verify import digest as verify

        small = np.arange(verify.FULL, dtype=np.float32).reshape(2, -1)
        self.assertEqual(list(verify.digest(small)), [""])
        self.assertIs(verify.digest(small)[""], small)
        large = np.zeros(verify.FULL + 1, np.float32)
        parts = verify.digest(large)
        self.assertEqual([(name, part.size) for name, part in parts.items()], [("", 1024), ("/blocks", 257)])
        for index in (0, 1, 63, 64, 9999, verify.FULL):
            changed = large.copy()
            changed[index] = 1
            (block,) = np.flatnonzero(verify.digest(changed)["/blocks"])
            self.assertEqual(block, index // 64)
            self.assertEqual(abs(verify.digest(changed)["/blocks"][block]), 1)

    def test_block_sums_are_those_of_the_generated_test(self) -> None:
        """Protects Python and C++ from drifting apart: tests/runtime/verify_test.cc has the same numbers."""
        from tfaot.verify import digest as verify

        sums = verify.block_sums(np.arange(130, dtype=np.float32) / 8)
        self.assertEqual(sums.tolist(), [-4.5, 22.5, -0.125])
        header = (ROOT / "runtime/tfaot/verify.h").read_text()
        constants = dict(re.findall(r"inline constexpr std::size_t (k\w+) = (\d+);", header))
        self.assertEqual(
            constants, {"kFull": str(verify.FULL), "kSamples": str(verify.SAMPLES), "kBlock": str(verify.BLOCK)}
        )

    def test_complex_results_are_pairs(self) -> None:
        """Protects models that stop at HLO: complex results are compared as reals."""
        from tfaot.verify.digest import digest

        value = np.array([[1 + 2j, 3 - 4j]], np.complex64)
        self.assertEqual(digest(value)[""].tolist(), [[[1, 2], [3, -4]]])


cases.declare(GoldensTest, Path(__file__).with_name("goldens.txt"), GoldensTest.check_case)

if __name__ == "__main__":
    unittest.main()
