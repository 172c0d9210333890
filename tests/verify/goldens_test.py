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
        found = [f"initial/{name}" for name in read]
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
            found += [f"step{step}/{member}/before" for member in before]
            found += [f"step{step}/{member}" for member in bodies[name]]
            before = []
        return found

    def assert_read_in_order(self, exported: Exported, goldens: dict[str, Array]) -> None:
        """Checks that the generated test reads the file's contents by position."""
        values = [
            name
            for name in goldens
            if name.rpartition("/")[2] not in ("drawn", "tolerance", "sees", "shape", "blocks", "size", "unverified")
        ]
        self.assertEqual(self.read_by(exported), values)

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

        step = [name for each in inputs for name in fed(each)]
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

    def test_numbers_are_those_of_the_model(self) -> None:
        """Protects the expected values: each step has its own inputs and sees the variables of the step before."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    w = v1.get_variable("w", initializer=[1.0, 2.0, 3.0])
    y = w * features["b"]
    with tf.control_dependencies([y]), tf.control_dependencies([w.assign_add(labels)]):
        return {"y": tf.identity(y), "n": features["a"] + 1}


def golden_fn(step, rng):
    return {"b": np.full(3, 2.0 + step), "a": 10 * step}, np.array([1, 2, 4])
""",
            golden_steps=3,
        )
        goldens = exported.goldens()
        w = np.array([1, 2, 3], np.float32)
        for step in range(3):
            np.testing.assert_array_equal(goldens[f"step{step}/b"], np.full(3, 2.0 + step))
            np.testing.assert_array_equal(goldens[f"step{step}/y"], w * (2 + step))
            self.assertEqual(goldens[f"step{step}/n"], 10 * step + 1)
            self.assertEqual(goldens[f"step{step}/n/tolerance"], 0)
            w += np.array([1, 2, 4], np.float32)
            np.testing.assert_array_equal(goldens[f"step{step}/w"], w)
        self.assertEqual(goldens["initial/w"], zlib.crc32(struct.pack("<3f", 1, 2, 3)))

    def test_implementations_stay(self) -> None:
        """Protects samplers with an implementation for each device: Grappler's choice must not replace the compiled one."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    def implementation(device, offset):
        attributes = {"api_implements": "sampler", "api_preferred_device": device}
        return tf.function(lambda x: x + offset, autograph=False, experimental_attributes=attributes)

    return {"cpu": implementation("CPU", 1.0)(labels), "gpu": implementation("GPU", 2.0)(labels)}


def golden_fn(step, rng):
    return {"a": 0, "b": np.zeros(3)}, np.ones(3)
"""
        )
        goldens = exported.goldens()
        names = exported.cpp_names
        outputs = [output.name for output in exported.manifest.entry_points[0].outputs]
        self.assertEqual([goldens[f"step0/{names[name]}"].tolist() for name in outputs], [[2.0] * 3, [3.0] * 3])

    def test_tolerance_follows_the_condition(self) -> None:
        """Protects both ways: an exact result gets a few units, and an ill-conditioned one as much as it needs."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    b = features["b"]
    return {
        "same": tf.identity(b),
        "steep": 1000.0 * (b * 1.1 - labels),
        "steeper": 100000.0 * (b * 1.1 - labels),
        "whole": tf.cast(b * 100.0, tf.int32),
    }


def golden_fn(step, rng):
    return {"b": np.full(3, 1.5 + step), "a": 0}, np.full(3, 1.25)
""",
            golden_steps=2,
        )
        goldens = exported.goldens()
        allowed = {n: float(goldens[f"step0/{n}/tolerance"][0]) for n in ("same", "steep", "steeper", "whole")}
        self.assertLessEqual(allowed["same"], 2.2 * spacing(1.5))
        self.assertGreater(allowed["steep"], 100 * allowed["same"])
        self.assertGreater(allowed["steeper"], 50 * allowed["steep"])
        self.assertLess(allowed["steep"], 0.01)
        self.assertEqual(allowed["whole"], 0)

    def test_each_value_has_a_tolerance_of_its_own(self) -> None:
        """Protects small values next to a mask: -1e9 and the largest float widen only their own tolerance."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    return {"y": tf.exp(features["b"]) + labels}


def golden_fn(step, rng):
    return {"b": np.array([0.5, 0.25, 0.125]) + step, "a": 0}, np.array([-1e9, 3.4e38, 0.0])
""",
            golden_steps=2,
        )
        goldens = exported.goldens()
        allowed = goldens["step0/y/tolerance"]
        self.assertTrue(np.all(np.isfinite(allowed)), allowed)
        self.assertTrue(1 < allowed[0] < 1000 and allowed[1] < 1e33 and allowed[2] < 1e-5, allowed)

    def test_frozen_weights_and_whole_inputs_have_rounding_errors_too(self) -> None:
        """Protects deep models with frozen weights from false alarms: what no input moves still rounds."""
        exported = self.export(
            "import numpy as np\nimport tensorflow as tf\n\n"
            "table = tf.Variable(np.random.default_rng(0).standard_normal((50, 64)).astype(np.float32))\n"
            "weights = [np.random.default_rng(i).standard_normal((64, 64)).astype(np.float32) for i in range(6)]\n\n\n"
            "def model(i):\n"
            "    x = tf.gather(table, i)\n"
            "    for w in weights:\n"
            "        x = tf.tanh(x @ tf.constant(w))\n"
            "    return x\n\n\n"
            "def golden_fn(step, rng):\n    return rng.integers(0, 50, 4)\n",
            golden_steps=2,
            signature={"i": "int32[4]"},
        )
        goldens = exported.goldens()
        value, allowed = goldens["step0/output"], goldens["step0/output/tolerance"]
        off = np.abs(value - self.computed(exported)[0][0])
        # With only a few units in the last place, TensorFlow itself would fail.
        self.assertGreater(np.max(off), 8 * spacing(0.5))
        self.assertTrue(np.all(off <= allowed), np.max(off / allowed))
        self.assertLess(np.max(allowed), 1e-2)

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

    def test_reference_is_more_exact_than_tensorflow(self) -> None:
        """Protects compiled code that is right where TensorFlow's float32 isn't: both are accepted, and nothing beyond."""
        exported = self.export(
            "import numpy as np\nimport tensorflow as tf\n\n\n"
            "def model(x):\n    return tf.reduce_sum(x)\n\n\n"
            "def golden_fn(step, rng):\n    return np.full([1 << 20], 0.1 + step)\n",
            golden_steps=2,
            signature={"x": "float32[1048576]"},
        )
        goldens = exported.goldens()
        value, allowed = float(goldens["step0/output"]), float(goldens["step0/output/tolerance"])
        exact = (1 << 20) * float(np.float32(0.1))
        self.assertLessEqual(abs(value - exact), allowed)
        self.assertLessEqual(abs(value - float(self.computed(exported)[0][0])), allowed)
        self.assertLess(allowed, 0.01 * exact)

    def test_each_call_starts_from_tensorflows_variables(self) -> None:
        """Protects training from chaos: one step's error doesn't widen the next step's tolerances."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    w = v1.get_variable("w", initializer=[0.4])
    with tf.control_dependencies([w.assign(4.0 * w * (1.0 - w))]):
        return {"y": w + labels[0]}
""",
            golden_steps=30,
        )
        goldens = exported.goldens()
        for step in (1, 29):
            np.testing.assert_array_equal(
                goldens[f"step{step}/w/before"], np.array([_logistic(step)], np.float32).reshape(1)
            )
            self.assertLess(float(goldens[f"step{step}/w/tolerance"][0]), 1e-5)
        # The free run is chaotic, and so reports that it no longer sees anything.
        self.assertLess(float(goldens["step0/y/free/tolerance"][0]), 1e-5)
        self.assertGreater(float(goldens["step29/y/free/tolerance"][0]), 0.1)
        for step in range(30):  # a step's own rounding errors are part of a free run's
            free = goldens[f"step{step}/y/free/tolerance"]
            self.assertTrue(np.all(free >= goldens[f"step{step}/y/tolerance"]), step)

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
    known = tf.nn.embedding_lookup(table, token - 1)
    mask = tf.sequence_mask(length, 12, tf.float32)
    logits = (known * mask[:, :, None]) @ tf.eye(8, 7)
    return {
        "big": tf.reduce_sum(tf.nn.embedding_lookup(table, big), 0),
        "branch": tf.switch_case(branch, [lambda: known * 2, lambda: known + 1, lambda: known - 3]),
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

    def test_integers_that_a_model_rejects(self) -> None:
        """Protects models whose uses of integers aren't known: zeros and ones follow where others are errors."""
        goldens = self.export(
            "import tensorflow as tf\n\n\n"
            "def model(x, i):\n"
            "    start = (0, tf.gather(x, 2 * i))\n"
            "    return tf.while_loop(lambda n, y: n < 3, lambda n, y: (n + 1, y + tf.gather(x, i)), start)[1]\n",
            golden_steps=2,
            signature={"x": "float32[4, 5]", "i": "int32[6]"},
        ).goldens()
        self.assertEqual(sorted(set(goldens["step0/i"].tolist())), [0, 1])

    def test_blind_outputs(self) -> None:
        """Protects against a test that can't fail: the goldens say what nothing moves, and with `strict` it is an error."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    w = v1.get_variable("w", initializer=[1e-12])
    return {"dead": tf.sigmoid(50.0 + w * features["b"]), "alive": features["b"] * labels}
""",
            golden_steps=2,
        )
        self.assert_error(
            self.error_of(exported.goldens),
            """
            t::Model: the generated test is blind to 1 output(s) or variable(s)
              found: dead (0% of its values): neither other inputs nor other values of variables move them by more than rounding \
errors could
              to do: verify with inputs that matter (golden_inputs) and with weights that are trained or calibrated \
(weights); or accept it with unseen = ["PATTERN"]
            """,
        )
        goldens = exported.goldens(strict=False)
        self.assertEqual(bytes(goldens["unverified"]), b"dead (0% of its values)")
        self.assertEqual(goldens["unverified/size"], goldens["unverified"].size)
        self.assertEqual((goldens["step0/dead/sees"][1], goldens["step0/alive/sees"][1]), (0, 3))

    def test_probes_grow(self) -> None:
        """Protects models from being called blind: where small changes or one row show nothing, larger ones or more rows follow."""
        text = """\
import numpy as np
import tensorflow as tf

w = tf.Variable(np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32), name="w")
scale = tf.Variable([0.6, 0.7, 0.8], name="scale")
small = tf.Variable([0.5, 0.9, 1.1], name="small")


def model(b, x, y):
    return {
        "all": tf.reduce_all(b, 1),
        "best": tf.argmax(x @ w, 1),
        "equal": x == y,
        "far": tf.nn.relu(x[:, :3] * scale - 3.0),
        "quantized": tf.quantization.fake_quant_with_min_max_args(x @ w, -6.0, 6.0, 2),
        "rounded": tf.round(0.1 * x),
        "single": 1.0 + small * y[:, :3],
    }


def golden_fn(step, rng):
    rows = [1, 4, 3][step]
    x = np.clip(rng.standard_normal((rows, 8)), -1.5, 1.5) * (1 if rows == 1 else 4)
    y = np.full((1, 8), 1e-6) if rows == 1 else rng.standard_normal((rows, 8))
    return rng.integers(0, 2, (rows, 30)).astype(bool), x, y
"""
        signature = {"b": "bool[None, 30]", "x": "float32[None, 8]", "y": "float32[None, 8]"}
        goldens = self.export(
            text, batch_sizes=(1, 4), frozen=("w", "scale", "small"), golden_steps=3, max_batch=4, signature=signature
        ).goldens()
        checked: dict[str, list[float]] = {}
        for name, value in goldens.items():
            if name.endswith("/sees"):
                checked.setdefault(name.split("/")[1], []).append(value[1] / goldens[name.removesuffix("/sees")].size)
        self.assertEqual({name: shares for name, shares in checked.items() if max(shares) < 0.99}, {})

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

    def test_blindness_that_is_accepted(self) -> None:
        """Protects `unseen`: what it names isn't an error or listed, and the comparison still reports its sight."""
        exported = self.export(
            HEAD + "def model_fn(features, labels):\n    return {'dead': tf.sigmoid(50.0 + features['b'])}\n",
            golden_steps=2,
        )
        goldens = exported.goldens(unseen=("de*",))
        self.assertEqual((goldens["step0/dead/sees"][1], bytes(goldens["unverified"])), (0, b""))

    def test_low_precision(self) -> None:
        """Protects mixed precision: a compiler can omit roundings to bfloat16, which is many units of the result."""
        exported = self.export(
            "import numpy as np\nimport tensorflow as tf\n\n"
            "w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)\n\n\n"
            "def model(x):\n"
            "    y = tf.cast(x, tf.bfloat16) @ tf.constant(w, tf.bfloat16)\n"
            "    return tf.cast(tf.nn.relu(y) @ tf.constant(w, tf.bfloat16), tf.float32)\n",
            golden_steps=2,
            signature={"x": "float32[4, 64]"},
        )
        goldens = exported.goldens()
        value, allowed = goldens["step0/output"], goldens["step0/output/tolerance"]
        self.assertTrue(0.005 < np.median(allowed) / np.std(value) < 0.2, np.median(allowed) / np.std(value))
        self.assertTrue(np.all(np.abs(value - self.computed(exported)[0][0]) <= allowed))

    def test_reference_rounds_to_16_bits(self) -> None:
        """Protects decisions in low precision: they depend on rounded values, and the reference decides the same way."""
        for dtype in ("bfloat16", "float16"):
            with self.subTest(dtype):
                exported = self.export(
                    f"import numpy as np\nimport tensorflow as tf\n\n\n"
                    "def model(x):\n"
                    f"    return tf.cast(tf.nn.relu(tf.cast(x, tf.{dtype}) - 1.0), tf.float32)\n\n\n"
                    "def golden_fn(step, rng):\n"
                    "    return np.concatenate([1 + 4e-4 * rng.random(8), 3 * rng.random(8)])\n",
                    signature={"x": "float32[16]"},
                )
                value = exported.goldens()["step0/output"]
                self.assertEqual(value.tolist(), self.computed(exported)[0][0].tolist())
                self.assertEqual(value[:8].tolist(), [0] * 8)

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

    def test_exact_sums(self) -> None:
        """Protects counts, masks, and positions in floats: their sums are exact, so nothing that they decide gets a tolerance."""
        text = """\
import numpy as np
import tensorflow as tf

table = tf.Variable(np.arange(12, dtype=np.float32).reshape(3, 4) % 2, name="table")


def whole(x):
    return tf.cast(x, tf.int32)


def model(mask, halves, tenths):
    votes = tf.one_hot(whole(2.0 * halves), 3)
    return {
        "all": tf.reduce_all(tf.equal(mask @ tf.transpose(mask), tf.transpose(mask @ tf.transpose(mask))), 1),
        "convolved": whole(tf.nn.conv2d(mask[None, :, :, None], tf.ones([2, 2, 1, 2]), 1, "SAME")),
        "einsum": whole(tf.einsum("ab,cb,b->ac", mask, mask, halves[:12])),
        "halves": whole(2.0 * tf.reduce_sum(halves)),
        "kept": whole(votes @ table),
        "last": whole(tf.reduce_sum(mask, 1)) - 1,
        "mean": whole(12.0 * tf.reduce_mean(tf.cumsum(mask, 1), 1) // 4.0),
        "norm": whole(tf.norm(tf.stack([3.0 * mask, 4.0 * mask]), axis=0)),
        "position": whole(tf.cumsum(mask, 1)) * whole(mask),
        "segments": whole(tf.math.unsorted_segment_sum(mask, [0, 1, 0, 1], 2)),
        "scattered": whole(tf.tensor_scatter_nd_add(mask, [[0], [0]], mask[:2])),
        "one": whole(tf.reduce_sum(tenths)),
        "vote": tf.argmax(tf.reduce_sum(votes, 0)),
    }


def golden_fn(step, rng):
    mask = np.arange(12)[None] < rng.integers(2, 13, (4, 1))
    return mask, rng.integers(0, 3, 16) / 2, np.full(10, 0.1 * (step + 1))
"""
        signature = {"mask": "float32[4, 12]", "halves": "float32[16]", "tenths": "float32[10]"}
        goldens = self.export(text, golden_steps=2, signature=signature, frozen=()).goldens(unseen=("*",))
        widest = {
            name.split("/")[1]: float(np.max(value)) for name, value in goldens.items() if name.endswith("/tolerance")
        }
        # Rounding does decide whether ten times a tenth is 1.
        self.assertEqual({name: most for name, most in widest.items() if most}, {"one": 1.0})

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
    given = [] if {training} else [tf.constant([0.1, -0.2, 0.3]), tf.constant([1.5, 0.5, 1.0])]
    with tf.GradientTape() as tape:
        tape.watch([x, scale, offset])
        y, mean, variance = v1.nn.fused_batch_norm(x, scale, offset, *given, is_training={training})
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

    def test_nan_and_infinity(self) -> None:
        """Protects models that divide by zero: TensorFlow's result is expected, and the rest keeps a tolerance."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    return {"y": labels / features["b"]}


def golden_fn(step, rng):
    return {"b": np.array([0.0, 0.0, 2.0 + step]), "a": 0}, np.array([0.0, -1.0, 3.0])
"""
        )
        goldens = exported.goldens()
        y = goldens["step0/y"]
        self.assertTrue(math.isnan(y[0]) and y[1] == -math.inf and y[2] == 1.5, y)
        allowed = goldens["step0/y/tolerance"]
        self.assertTrue(allowed[0] == allowed[1] == 0 and 0 < allowed[2] < 1e-6, allowed)

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

    def test_batches(self) -> None:
        """Protects batch families: the smallest batch, the largest, and others, each with its own number of rows."""
        exported = self.export(
            "def model(x, y):\n    return {'sum': x + y, 'x': x * 2}\n",
            batch_sizes=(1, 4),
            golden_steps=4,
            max_batch=9,
            signature={"x": "float32[None, 2]", "y": "float32[None, 1]"},
        )
        goldens = exported.goldens()
        self.assert_read_in_order(exported, goldens)
        rows = [call.batch for call in exported.manifest.calls]
        self.assertEqual(rows[:2], [1, 9])
        for step, size in enumerate(rows):
            self.assertTrue(1 <= size <= 9, rows)
            x, y = goldens[f"step{step}/x"], goldens[f"step{step}/y"]
            self.assertEqual((x.shape, y.shape), ((size, 2), (size, 1)))
            np.testing.assert_array_equal(goldens[f"step{step}/sum"], x + y)
            np.testing.assert_array_equal(goldens[f"step{step}/x_2"], x * 2)

    def test_rows_that_see_each_other(self) -> None:
        """Protects batch families from models whose results depend on how a batch is split."""
        exported = self.export(
            "import tensorflow as tf\n\n\n"
            "def model(x):\n    return {'own': x + 1, 'mixed': x - tf.reduce_mean(x, 0)}\n",
            batch_sizes=(1, 4),
            golden_steps=2,
            rows_independent=True,  # otherwise, export would refuse it
            signature={"x": "float32[None, 2]"},
        )
        self.assert_error(
            self.error_of(exported.goldens),
            """
            t::Model: rows of a batch affect each other's results: 1 output(s) of Run
              found: mixed:0
              to do: remove batch_sizes, and fix the batch with dims; or compute each row independently (batch norm with \
training=False, no mean over the batch)
            """,
        )

    def test_sizes_of_results(self) -> None:
        """Protects results without a fixed size: expected values have their true shape, which differs in each step."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    return {"where": tf.where(labels > 1.0), "taken": tf.boolean_mask(features["b"], labels > 1.0)}


def golden_fn(step, rng):
    return {"b": np.array([1.0, 2.0, 3.0]), "a": 0}, np.array([2.0, 0.0, 2.0 * step])
""",
            golden_steps=2,
        )
        goldens = exported.goldens()
        self.assertEqual([output.shape for output in exported.manifest.entry_points[0].outputs], [(3,), (3, 1)])
        for step, found in enumerate(([0], [0, 2])):
            self.assertEqual(goldens[f"step{step}/where/shape"].tolist(), [len(found), 1])
            self.assertEqual(goldens[f"step{step}/where"].tolist(), [[index] for index in found])
            self.assertEqual(goldens[f"step{step}/taken/shape"].tolist(), [len(found)])
            self.assertEqual(goldens[f"step{step}/taken"].tolist(), [index + 1 for index in found])
        names = list(goldens)
        self.assertEqual(names.index("step0/where") - 1, names.index("step0/where/shape"))
        self.assertEqual(goldens["step0/where/shape"].dtype, np.int32)

    def test_sizes_that_are_claimed(self) -> None:
        """Protects against a class with too little room: a shape that the user set is compared with TensorFlow's."""
        exported = self.export(
            "import numpy as np\nimport tensorflow as tf\n\n\n"
            "def model(x):\n    found = tf.where(x > 0)\n    found.set_shape([2, 1])\n    return found\n\n\n"
            "def golden_fn(step, rng):\n    return np.array([1.0, 2.0, 3.0 * (step - 1)])\n",
            golden_steps=3,
            signature={"x": "float32[3]"},
        )
        self.assert_error(
            self.error_of(exported.goldens),
            """
            t::Model: output:0 is [3, 1] in TensorFlow, and [2, 1] when compiled
              to do: check what sets its size: the compiler trusts shapes that TensorFlow infers or that you set, for example with \
set_shape
            """,
        )

    def test_sizes_that_rounding_decides(self) -> None:
        """Protects against an unreasonable expectation: a size that one unit in the last place changes."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    return {"where": tf.where(features["b"] + 0.1 >= 1.1)}


def golden_fn(step, rng):
    return {"b": np.array([1.0, 2.0, 3.0]), "a": 0}, np.zeros(3)
"""
        )
        self.assert_error(
            self.error_of(exported.goldens),
            """
            t::Model: rounding errors change the size of Where:0
              found: the test inputs are at a decision boundary of the model, like 1.0 for tf.where(x >= 1.0)
              to do: give the model golden_inputs that are away from it
            """,
        )

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

    def test_large_result_is_kept_compactly(self) -> None:
        """Protects the size of goldens: a large variable has samples and sums, each with a tolerance."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    w = v1.get_variable("w", [200, 100])
    with tf.control_dependencies([w.assign_sub(0.1 * w * features["b"][0])]):
        return tf.reduce_sum(labels)
"""
        )
        goldens = exported.goldens()
        self.assertEqual(goldens["step0/w"].shape, (1024,))
        self.assertEqual(goldens["step0/w/blocks"].shape, (313,))
        self.assertEqual(goldens["step0/w/blocks"].dtype, np.float64)
        for part in ("", "/blocks"):
            allowed = goldens[f"step0/w{part}/tolerance"]
            self.assertEqual(allowed.shape, goldens[f"step0/w{part}"].shape)
            self.assertTrue(np.all(allowed > 0) and np.max(allowed) < 1e-5, part)

    def test_large_inputs_are_drawn_by_the_test(self) -> None:
        """Protects the size of goldens: a large input is a seed, unless the user gives it, and its values are those of drawn.py."""
        text = """\
import numpy as np
import tensorflow as tf

def model_fn(features, labels):
    return {"total": tf.reduce_sum(features * labels, axis=0)}

def input_fn():
    return tf.compat.v1.placeholder(tf.float32, [300, 100], "x"), tf.compat.v1.placeholder(tf.float32, [300, 1], "y")

"""
        goldens = self.export(text).goldens()
        self.assertNotIn("step0/x", goldens)
        self.assertEqual(list(goldens["step0/y/drawn"]), [0, 0])
        seed, limit = (int(each) for each in goldens["step0/x/drawn"])
        x = drawn.values("float32", (300, 100), drawn.Draw(seed, limit))
        np.testing.assert_allclose(goldens["step0/total"], (x * goldens["step0/y"]).sum(axis=0), rtol=1e-4, atol=1e-4)
        given = "def golden_fn(step, rng):\n    return np.full((300, 100), 0.5), np.ones((300, 1))\n"
        goldens = self.export(text + given).goldens()
        self.assertEqual(list(goldens["step0/x/drawn"]), [0, 0])
        self.assertEqual(goldens["step0/x"].min(), 0.5)

    def test_same_bytes_twice(self) -> None:
        """Protects caches: noise comes from fixed seeds."""
        exported = self.export(HEAD + "def model_fn(features, labels):\n    return tf.exp(features['b']) * labels\n")
        exported.goldens("one")
        exported.goldens("two")
        self.assertEqual((exported.folder / "one").read_bytes(), (exported.folder / "two").read_bytes())


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


if __name__ == "__main__":
    unittest.main()
