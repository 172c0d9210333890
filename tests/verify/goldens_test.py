"""What must come out, and how far it may be missed: TensorFlow's numbers and the tolerances derived from them."""

from __future__ import annotations

import math
import re
import struct
import unittest
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.stages.harness import ROOT, Exported, StageTest
from tfaot import dtypes, isolate, safetensors
from tfaot.manifest import EntryPoint, Fingerprints, Manifest, Output, Use, Variable

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
"""A step that writes a variable, and a look at it."""


def spacing(value: float) -> float:
    """One unit in the last place of a float32."""
    return float(np.spacing(np.float32(value)))


class GoldensTest(StageTest):
    """The stage as a whole, on small models."""

    def goldens(self, exported: Exported, name: str = "goldens") -> dict[str, Array]:
        """Runs the verify stage in a child, and reads what it wrote."""

        def work() -> None:
            from tfaot.verify import Request, compute_goldens

            compute_goldens(
                Request(
                    manifest=exported.path("manifest"),
                    graph=exported.path("graph"),
                    variables=exported.path("variables"),
                    golden_inputs=exported.path("golden_inputs"),
                    out_goldens=exported.path(name),
                )
            )

        isolate.run_isolated(work, what="computing goldens")
        return safetensors.read(exported.path(name))

    def rendered_test(self, exported: Exported) -> str:
        """The generated test's source."""
        from tfaot.render import Request, render

        out = {f"out_{kind}": exported.path(kind) for kind in ("header", "source", "test", "benchmark")}
        render(
            Request(
                exported.path("manifest"),
                "m.h",
                ("m.executor.h",),
                embed=True,
                keep_denormals=False,
                out_variables=exported.path("S"),
                **out,
            )
        )
        return Path(exported.path("test")).read_text()

    def read_by(self, exported: Exported) -> list[str]:
        """What the generated test reads, in order, as the goldens call it, without what `Check` reads beside the value."""
        source = self.rendered_test(exported)
        read = re.findall(r"verifier\.Initial\(.*?initial\.(\w+)\(\)\);", source)
        found = [f"initial/{name}" for name in read]
        bodies = {
            name: re.findall(r"verifier\.(?:Feed|Check)\(.*?model\.(\w+)\(\)(?:, batch)?\);", body)
            for name, body in re.findall(r"void Verify_(\w+)\((.*?\n)}\n", source, re.DOTALL)
        }
        for name, step in re.findall(r"\n  Verify_(\w+)\(verifier, model, (\d+)", source):
            found += [f"step{step}/{member}" for member in bodies[name]]
        return found

    def assert_read_in_order(self, exported: Exported, goldens: dict[str, Array]) -> None:
        """The generated test reads by position what the file holds."""
        values = [name for name in goldens if name.rpartition("/")[2] not in ("tolerance", "shape", "blocks")]
        self.assertEqual(self.read_by(exported), values)

    def test_order_is_that_of_the_generated_test(self) -> None:
        """Protects the comparison from comparing one tensor with another: the file is read without names."""
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
        goldens = self.goldens(exported)
        step = ["b", "a", "c", "y", "y/tolerance", "z", "z/tolerance", "w_kernel", "w_kernel/tolerance"]
        entry = exported.manifest.entry_points[0]
        inputs = [tensor.cpp_name for tensor in entry.inputs]
        self.assertEqual(sorted(inputs), ["a", "b", "c"])
        step[:3] = inputs
        self.assertEqual(
            list(goldens),
            [f"initial/{v.cpp_name}" for v in exported.manifest.variables]
            + [f"step{s}/{n}" for s in (0, 1) for n in step],
        )
        self.assert_read_in_order(exported, goldens)

    def test_numbers_are_those_of_the_model(self) -> None:
        """Protects the truth itself: each step sees the variables that the step before left, and its own inputs."""
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
        goldens = self.goldens(exported)
        w = np.array([1, 2, 3], np.float32)
        for step in range(3):
            np.testing.assert_array_equal(goldens[f"step{step}/b"], np.full(3, 2.0 + step))
            np.testing.assert_array_equal(goldens[f"step{step}/y"], w * (2 + step))
            self.assertEqual(goldens[f"step{step}/n"], 10 * step + 1)
            self.assertEqual(goldens[f"step{step}/n/tolerance"], 0)
            w += np.array([1, 2, 4], np.float32)
            np.testing.assert_array_equal(goldens[f"step{step}/w"], w)
        self.assertEqual(goldens["initial/w"], zlib.crc32(struct.pack("<3f", 1, 2, 3)))

    def test_tolerance_grows_with_what_a_moved_input_moves(self) -> None:
        """Protects both ways: an exact result gets a few units, an ill-conditioned one as much as it needs."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    b = features["b"]
    return {
        "same": tf.identity(b),
        "steep": b + 1000.0 * (b - labels),
        "steeper": b + 100000.0 * (b - labels),
        "flat": tf.ones_like(b) + 0.0 * b,
        "whole": tf.cast(b * 100.0, tf.int32),
    }


def golden_fn(step, rng):
    return {"b": np.full(3, 1.5), "a": 0}, np.full(3, 1.25)
""",
        )
        goldens = self.goldens(exported)
        allowed = {
            name: float(goldens[f"step0/{name}/tolerance"]) for name in ("same", "steep", "steeper", "flat", "whole")
        }
        from tfaot import verify

        self.assertEqual(allowed["flat"], verify.FLOOR_ULP * spacing(1))
        self.assertEqual(allowed["same"], (verify.FACTOR + verify.FLOOR_ULP) * spacing(1.5))
        self.assertGreater(allowed["steep"], 100 * allowed["same"])
        self.assertGreater(allowed["steeper"], 50 * allowed["steep"])
        self.assertLess(allowed["steep"], 0.01)
        self.assertEqual(allowed["whole"], 0)

    def test_nan_and_infinity(self) -> None:
        """Protects models that do divide by zero: what TensorFlow gives is expected, and the rest keeps a tolerance."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    return {"y": labels / features["b"]}


def golden_fn(step, rng):
    return {"b": np.array([0.0, 0.0, 2.0]), "a": 0}, np.array([0.0, -1.0, 3.0])
""",
        )
        goldens = self.goldens(exported)
        y = goldens["step0/y"]
        self.assertTrue(math.isnan(y[0]) and y[1] == -math.inf and y[2] == 1.5, y)
        tolerance = float(goldens["step0/y/tolerance"])
        self.assertTrue(0 < tolerance < 1e-4, tolerance)

    def test_calls(self) -> None:
        """Protects models of several functions: calls in a row, over variables that the calls before left."""
        exported = self.export(
            SEVERAL,
            calls=("Train", "Look", "Train"),
            entry_points=(("Train", "train"), ("Look", "look")),
            golden_steps=2,
        )
        goldens = self.goldens(exported)
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

    def test_batches(self) -> None:
        """Protects batch families: the smallest batch, the largest, and others, each with as many rows as it has."""
        exported = self.export(
            "def model(x, y):\n    return {'sum': x + y, 'x': x * 2}\n",
            batch_sizes=(1, 4),
            golden_steps=4,
            max_batch=9,
            signature={"x": "float32[None, 2]", "y": "float32[None, 1]"},
        )
        goldens = self.goldens(exported)
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
            signature={"x": "float32[None, 2]"},
        )
        self.assert_error(
            self.error_of(self.goldens, exported),
            """
            t::Model: rows of a batch change each other's results: 1 output(s) of Run
              found: mixed:0
              to do: leave batch_sizes out, and fix the batch with dims; or compute each row by itself \
(batch norm with training=False, no mean over the batch)
            """,
        )

    def test_sizes_of_results(self) -> None:
        """Protects results of no fixed size: what is expected comes with its true shape, in each step another."""
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
        goldens = self.goldens(exported)
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
        """Protects from a class with room for less than there is: a shape that the user set is held against TensorFlow's."""
        exported = self.export(
            "import numpy as np\nimport tensorflow as tf\n\n\n"
            "def model(x):\n    found = tf.where(x > 0)\n    found.set_shape([2, 1])\n    return found\n\n\n"
            "def golden_fn(step, rng):\n    return np.array([1.0, 2.0, 3.0 * (step - 1)])\n",
            golden_steps=3,
            signature={"x": "float32[3]"},
        )
        self.assert_error(
            self.error_of(self.goldens, exported),
            """
            t::Model: output:0 is [3, 1] in TensorFlow, and [2, 1] when compiled
              to do: look at what sets its size: the compiler takes shapes for granted that TensorFlow infers or is told, \
as by set_shape
            """,
        )

    def test_sizes_that_rounding_decides(self) -> None:
        """Protects from an expectation that no compiler can be held to: a size that one unit in the last place changes."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    return {"where": tf.where(features["b"] >= 1.0)}


def golden_fn(step, rng):
    return {"b": np.array([1.0, 2.0, 3.0]), "a": 0}, np.zeros(3)
""",
        )
        self.assert_error(
            self.error_of(self.goldens, exported),
            """
            t::Model: the size of Where:0 changes when inputs move by a rounding error
              found: inputs that are verified lie where the model decides, as 1.0 does for tf.where(x >= 1.0)
              to do: define golden_fn(step, rng), and return inputs that lie off it
            """,
        )

    def test_every_dtype(self) -> None:
        """Protects every dtype of the edge, scalars and empty tensors: all can be fed, computed, held, and kept."""
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
            % [dtype.name for dtype in dtypes.ALL],
        )
        goldens = self.goldens(exported)
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
                allowed = float(goldens[f"step0/{name}/tolerance"])
                self.assertEqual(allowed > 0, dtype.floating, name)
                self.assertLess(allowed, 1.0, name)
            self.assertEqual(goldens[f"initial/v_{dtype.name}"], zlib.crc32(bytes(16 * dtype.bytes)))
        self.assertEqual(goldens["step0/scalar"].shape, ())
        self.assertEqual((goldens["step0/empty"].shape, float(goldens["step0/empty/tolerance"])), ((0,), 0.0))

    def test_large_result_is_kept_compactly(self) -> None:
        """Protects the size of goldens: of a large variable there are samples and sums, and each has a tolerance."""
        exported = self.export(
            HEAD
            + """\
def model_fn(features, labels):
    w = v1.get_variable("w", [200, 100])
    with tf.control_dependencies([w.assign_sub(0.1 * w * features["b"][0])]):
        return tf.reduce_sum(labels)
""",
        )
        goldens = self.goldens(exported)
        self.assertEqual(goldens["step0/w"].shape, (1024,))
        self.assertEqual(goldens["step0/w/blocks"].shape, (313,))
        self.assertEqual(goldens["step0/w/blocks"].dtype, np.float64)
        allowed = [float(goldens[f"step0/w{part}/tolerance"]) for part in ("", "/blocks")]
        self.assertTrue(0 < allowed[0] < allowed[1] < 1e-3, allowed)

    def test_same_bytes_twice(self) -> None:
        """Protects caches: the moved inputs are drawn from fixed seeds."""
        exported = self.export(HEAD + "def model_fn(features, labels):\n    return tf.exp(features['b']) * labels\n")
        self.goldens(exported, "one")
        self.goldens(exported, "two")
        self.assertEqual((exported.folder / "one").read_bytes(), (exported.folder / "two").read_bytes())


class DerivationTest(unittest.TestCase):
    """The pure functions that tolerances are made of."""

    @classmethod
    def setUpClass(cls) -> None:
        from tfaot import environment

        environment.prepare()

    def test_one_ulp_away(self) -> None:
        """Protects the measure: every finite value moves to a neighbour, and nothing else moves."""
        from tfaot.verify import one_ulp_away

        rng = np.random.default_rng(0)
        for dtype in (np.float32, np.float64):
            value = np.linspace(-3, 3, 1001).astype(dtype)
            moved = one_ulp_away(value, rng)
            self.assertEqual(moved.dtype, value.dtype)
            up, down = np.nextafter(value, np.array(9, dtype)), np.nextafter(value, np.array(-9, dtype))
            zero = value == 0
            self.assertTrue(np.all((moved == up) | (moved == down) | zero))
            self.assertTrue(100 < np.sum(moved == up) < 900)
            self.assertTrue(np.all(moved[zero] == 0))
        special = np.array([0, -0.0, np.nan, np.inf, -np.inf], np.float32)
        self.assertEqual(one_ulp_away(special, rng).tobytes(), special.tobytes())
        whole = np.arange(5)
        self.assertTrue(np.array_equal(one_ulp_away(whole, rng), whole))
        pair = one_ulp_away(np.array([1 + 2j], np.complex64), rng)
        self.assertTrue(pair.dtype == np.complex64 and pair.real != 1 and pair.imag != 2)

    def test_one_ulp_away_in_parts(self) -> None:
        """Protects the memory of large models: what is moved part by part moves as if it were moved at once."""
        from tfaot import verify

        value = np.linspace(-3, 3, 2 * (verify.PART + 3), dtype=np.float32).reshape(2, -1).T
        up = np.random.default_rng(0).integers(0, 2, value.shape) != 0
        wanted = np.nextafter(value, np.where(up, np.float32(9), np.float32(-9)))
        moved = verify.one_ulp_away(value, np.random.default_rng(0))
        np.testing.assert_array_equal(moved, wanted)
        self.assertEqual(moved.ctypes.data % 64, 0)  # a session would copy it
        self.assertEqual(verify.one_ulp_away(value[:0], np.random.default_rng(0)).shape, (0, 2))

    def test_movement(self) -> None:
        """Protects tolerances from becoming infinite, and integers from getting any."""
        from tfaot.verify import movement

        want = np.array([1, np.nan, np.inf, 4], np.float32)
        self.assertEqual(movement(np.array([1.5, 2, 3, np.nan], np.float32), want), 0.5)
        self.assertEqual(movement(np.array([1, 2]), np.array([5, 2])), 0)
        self.assertEqual(movement(np.zeros(0, np.float32), np.zeros(0, np.float32)), 0)

    def test_tolerance(self) -> None:
        """Protects from a tolerance of nothing: there is a floor, in units of the largest finite value."""
        from tfaot import verify

        value = np.array([0.5, -1.5, np.inf, np.nan], np.float32)
        floor = verify.FLOOR_ULP * spacing(1.5)
        self.assertEqual(verify.tolerance(value, 0.0), floor)
        self.assertEqual(verify.tolerance(value, 0.25), floor + 0.25 * verify.FACTOR)
        self.assertEqual(verify.tolerance(value, 0.0, block=True), floor * verify.BLOCK**0.5)
        self.assertEqual(verify.tolerance(np.zeros(0, np.float32), 1.0), 0)
        tiny = verify.tolerance(np.zeros(3, np.float32), 0.0)
        self.assertTrue(0 < tiny < 1e-40)
        self.assertTrue(verify.tolerance(np.ones(1), 0.0) < verify.tolerance(np.ones(1, np.float32), 0.0))

    def test_kept(self) -> None:
        """Protects what large results are compared by: evenly spread samples, and sums that no single value escapes."""
        from tfaot import verify

        small = np.arange(verify.FULL, dtype=np.float32).reshape(2, -1)
        self.assertEqual(list(verify.kept(small)), [""])
        self.assertIs(verify.kept(small)[""], small)
        large = np.zeros(verify.FULL + 1, np.float32)
        parts = verify.kept(large)
        self.assertEqual([(name, part.size) for name, part in parts.items()], [("", 1024), ("/blocks", 257)])
        for index in (0, 1, 63, 64, 9999, verify.FULL):
            changed = large.copy()
            changed[index] = 1
            (block,) = np.flatnonzero(verify.kept(changed)["/blocks"])
            self.assertEqual(block, index // 64)
            self.assertEqual(abs(verify.kept(changed)["/blocks"][block]), 1)

    def test_block_sums_are_those_of_the_generated_test(self) -> None:
        """Protects Python and C++ from drifting apart: verify_h_test.cc has the same numbers."""
        from tfaot import verify

        sums = verify.block_sums(np.arange(130, dtype=np.float32) / 8)
        self.assertEqual(sums.tolist(), [-4.5, 22.5, -0.125])
        header = (ROOT / "tools/runtime/tfaot/verify.h").read_text()
        constants = dict(re.findall(r"inline constexpr std::size_t (k\w+) = (\d+);", header))
        self.assertEqual(
            constants, {"kFull": str(verify.FULL), "kSamples": str(verify.SAMPLES), "kBlock": str(verify.BLOCK)}
        )

    def test_complex_results_are_pairs(self) -> None:
        """Protects models that stop at HLO: complex results are compared as reals."""
        from tfaot.verify import kept

        value = np.array([[1 + 2j, 3 - 4j]], np.complex64)
        self.assertEqual(kept(value)[""].tolist(), [[[1, 2], [3, -4]]])

    def test_ways(self) -> None:
        """Protects the bound of results that rounding decides: how far a variable went is summed over the steps."""
        from tfaot.verify import travelled

        step = EntryPoint(
            "Step",
            "Step",
            (),
            (Output("y", "y", "float32", (), "float32", batched=False, size=""),),
            (Use(0, True),),
            (),
        )
        look = EntryPoint("Look", "Look", (), (), (Use(0, False), Use(1, False)), ())
        manifest = Manifest(
            2,
            "2.21.0",
            "a::B",
            (step, look),
            (
                Variable("w", "w", "float32", (2,), "float32", written=True, offset=0),
                Variable("r", "r", "float32", (2,), "float32", written=False, offset=8),
            ),
            (),
            "",
            0,
            (),
            Fingerprints("", "", ""),
        )

        def values(*numbers: float) -> Mapping[str, Array]:
            return {"": np.array(numbers, np.float32)}

        initial = {"w": np.array([1, 1], np.float32), "r": np.zeros(2, np.float32)}
        results = [[values(5), values(1.5, 1.25)], [], [values(9), values(1.5, 0.25)]]
        self.assertEqual(
            travelled(manifest, initial, [step, look, step], results), [[[0.0], [0.5]], [], [[0.0], [1.5]]]
        )


if __name__ == "__main__":
    unittest.main()
