"""Compiled models in Python: `tfaot.load`, without TensorFlow."""

from __future__ import annotations

import copy
import ctypes
import html.parser
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np

import tfaot
from tfaot.core.errors import TfaotError
from tfaot.run import library

AFFINE = "tests/models/link/libone_aot_shared.so"
LENGTHS = "examples/lengths/liblengths_aot_shared.so"
BATCHES = "examples/batch_family/libbatch_family_aot_shared.so"
DROPOUT = "examples/dropout/libdropout_aot_shared.so"
EDGES = "examples/bf16/libbf16_aot_shared.so"
ENTRY_POINTS = "examples/entry_points/libentry_points_aot_shared.so"
HEADER = "runtime/tfaot/c_api.h"

X = np.array([1, 2, 3, 4], np.float32)
GIVEN: Mapping[str, Any] = {"x": X, "unused": 0}


class RunTest(unittest.TestCase):
    """A model whose numbers are checked by hand: y = w x + b, after which w grows by one."""

    def setUp(self) -> None:
        self.model = tfaot.load(AFFINE)

    def test_without_tensorflow(self) -> None:
        """Protects programs that run a model from importing what built it."""
        self.model.run(GIVEN)
        self.assertNotIn("tensorflow", sys.modules)

    def test_run(self) -> None:
        """Protects the numbers, and that results survive the next run."""
        first = self.model.run(GIVEN)
        second = self.model.run({"x:0": X, "unused": 0})
        np.testing.assert_array_equal(first.y, [1.5, 4.5, 9.5, 16.5])
        np.testing.assert_array_equal(second["y"], [2.5, 6.5, 12.5, 20.5])

    def test_results(self) -> None:
        """Protects what a run returns: TensorFlow's names find outputs, and copies and pickles are the same."""
        out = self.model.run(GIVEN)
        name = self.model.run.signature.outputs[0].name
        self.assertNotEqual(name, "y")
        for same in (out, copy.copy(out), copy.deepcopy(out), pickle.loads(pickle.dumps(out))):
            np.testing.assert_array_equal(same[name], [1.5, 4.5, 9.5, 16.5])
            np.testing.assert_array_equal(same.y, same[name])

    def test_variables(self) -> None:
        """Protects reading and writing: a view follows the model, and assignment reaches it, also if the model only reads."""
        w = self.model.variables.w
        self.model.run(GIVEN)
        np.testing.assert_array_equal(w, [2, 3, 4, 5])
        w[:] = 0
        self.model.variables["b"] = [1, 2, 3, 4]
        np.testing.assert_array_equal(self.model.run(GIVEN).y, [1, 2, 3, 4])
        self.assertFalse(self.model.variables["b"].flags.writeable)
        np.testing.assert_array_equal(self.model.variables.b, [1, 2, 3, 4])

    def test_views(self) -> None:
        """Protects zero-copy use: inputs are filled in place, and outputs show the latest run."""
        x, y = self.model.inputs.x, self.model.outputs.y
        x[:] = X
        self.model.run()
        np.testing.assert_array_equal(y, [1.5, 4.5, 9.5, 16.5])
        self.assertFalse(y.flags.writeable)
        self.assertEqual(x.ctypes.data % 64, 0)

    def test_views_outlive_the_model(self) -> None:
        """Protects against dangling arrays: memory stays while a view of a view refers to it, and goes away after that."""
        with tfaot.load(AFFINE) as model:
            model.run(GIVEN)
            part = model.variables.w[1:][::2]
            instance = weakref.ref(model._state.instance)
        del model
        np.testing.assert_array_equal(part, [3, 5])
        self.assertIsNotNone(instance())
        del part
        self.assertIsNone(instance())

    def test_closed(self) -> None:
        """Protects users of a closed model, who get an error and no crash."""
        self.model.close()
        with self.assertRaisesRegex(tfaot.ModelError, "the model is closed"):
            self.model.run(GIVEN)
        self.assertIn("closed", repr(self.model))

    def test_weights(self) -> None:
        """Protects weights on disk: they return as they were, and a file for another model changes nothing."""
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, folder)
        path = Path(folder) / "w.safetensors"
        self.model.variables["w"] = [5, 6, 7, 8]
        self.model.save(path)
        other = tfaot.load(AFFINE)
        other.load(path)
        np.testing.assert_array_equal(other.variables.w, [5, 6, 7, 8])
        (Path(folder) / "bad").write_bytes(b"no weights")
        with self.assertRaisesRegex(tfaot.ModelError, "safetensors"):
            other.load(Path(folder) / "bad")
        np.testing.assert_array_equal(other.variables.w, [5, 6, 7, 8])

    def test_load_under_views(self) -> None:
        """Protects views of variables: the memory that a load would take away can't be in use."""
        view = self.model.variables.w[1:]
        with self.assertRaisesRegex(BufferError, "1 views"):
            self.model.load("any")
        del view
        with self.assertRaisesRegex(tfaot.ModelError, "any"):
            self.model.load("any")

    def test_wrong_inputs(self) -> None:
        """Protects callers from silent conversions: each error names the input, and what it takes."""
        for inputs, text in (
            (
                {**GIVEN, "x": np.zeros(3, np.float32)},
                r"'x' can't have the shape \[3\]\n  found: it is x: float32\[4\]",
            ),
            ({**GIVEN, "x": np.zeros(4, np.complex64)}, r"'x' can't be complex64\[4\]"),
            ({**GIVEN, "x": np.zeros(4, np.int64)}, r"'x' can't be int64\[4\].*value.astype\(\"float32\"\)"),
            ({"x": X, "z": X}, "there is no input 'z'"),
            ({"z": X}, "there is no input 'z'"),
        ):
            with self.subTest(text), self.assertRaisesRegex(TfaotError, re.compile(text, re.DOTALL)):
                self.model.run(inputs)
        np.testing.assert_array_equal(self.model.run(x=[1, 2, 3, 4], unused=0).y, [1.5, 4.5, 9.5, 16.5])
        with self.assertRaisesRegex(TfaotError, "takes no batch"):
            self.model.run(GIVEN, batch=2)
        with self.assertRaisesRegex(
            TfaotError,
            r"Run\(\) got ndarray without a name\n  found: it takes x: float32\[4\], unused: float32\[\]\n"
            r"  to do: name inputs: x=…, or pass a dict",
        ):
            self.model.run(X)  # type: ignore[arg-type]

    def test_unknown_inputs(self) -> None:
        """Protects pipelines that offer the same inputs to different models: the rest is ignored, with a note."""
        model = tfaot.load(AFFINE, unknown_inputs="ignore")
        np.testing.assert_array_equal(model.run(GIVEN, age=[[3]]).y, [1.5, 4.5, 9.5, 16.5])
        self.assertEqual(model.notes, {"age": "Run() ignored 'age', which isn't an input"})
        with self.assertRaisesRegex(TfaotError, "got no value for x, unused"):
            model.run(age=3)
        with self.assertRaisesRegex(TfaotError, 'the values are "error" and "ignore"'):
            tfaot.load(AFFINE, unknown_inputs="drop")

    def test_shown(self) -> None:
        """Protects what people see in a terminal and in a notebook: the signature, in balanced HTML."""
        self.assertIn(
            "a::b_c\n  Run(x: float32[4], unused: float32[]) -> y: float32[4]\n  2 variables, 32 bytes;",
            repr(self.model),
        )
        self.assertEqual(repr(self.model.variables), "w: float32[4]\nb: float32[4]")
        open_tags: list[str] = []
        parser = html.parser.HTMLParser()
        with (
            mock.patch.object(parser, "handle_starttag", lambda tag, _: open_tags.append(tag) if tag != "br" else None),
            mock.patch.object(parser, "handle_endtag", lambda tag: self.assertEqual(open_tags.pop(), tag)),
        ):
            parser.feed(self.model._repr_html_())
        self.assertFalse(open_tags)
        self.assertIn("<td>float32[4]</td>", self.model._repr_html_())

    def test_names(self) -> None:
        """Protects lookup: what doesn't exist is an error that lists what does."""
        self.assertEqual([*self.model.variables], ["w", "b"])
        self.assertIn("w", dir(self.model.variables))
        with self.assertRaisesRegex(KeyError, "no variable is called 'v'; there is w, b"):
            self.model.variables["v"]
        with self.assertRaisesRegex(AttributeError, "no input is called 'v'; there is x, unused"):
            _ = self.model.inputs.v
        with self.assertRaisesRegex(AttributeError, "no output is called 'z'; there is y"):
            _ = self.model.run(GIVEN).z
        with self.assertRaisesRegex(AttributeError, "its entry points are Run"):
            _ = self.model.Train
        with self.assertRaises(AttributeError):
            _ = tfaot.nothing

    def test_identity(self) -> None:
        """Protects the embedded manifest and fingerprint, with which a program says which model it runs."""
        self.assertEqual(self.model.manifest["cpp_class"], "a::b_c")
        self.assertEqual([entry["name"] for entry in self.model.manifest["variables"]], ["w", "b"])
        self.assertRegex(self.model.fingerprint, "^[0-9a-f]{16}$")
        self.assertNotEqual(self.model.fingerprint, tfaot.load(BATCHES).fingerprint)

    def test_level(self) -> None:
        """Protects the choice of a CPU level, and the library's own words if there is none."""
        self.assertEqual(tfaot.load(AFFINE, isa=self.model.isa).isa, self.model.isa)
        with self.assertRaisesRegex(tfaot.ModelError, "a::b_c.*x86-64-v9"):
            tfaot.load(AFFINE, isa="x86-64-v9")

    def test_not_a_model(self) -> None:
        """Protects users who pass another file: the error says what it isn't."""
        with self.assertRaisesRegex(tfaot.ModelError, "isn't a model's shared library"):
            tfaot.load(HEADER)
        with self.assertRaisesRegex(tfaot.ModelError, "there is no model 'nowhere.so'"):
            tfaot.load("nowhere.so")
        with (
            mock.patch.object(library, "VERSION", 1000),
            self.assertRaisesRegex(tfaot.ModelError, "is older than this package"),
        ):
            tfaot.load(AFFINE)

    def test_runfiles(self) -> None:
        """Protects programs under Bazel that run in another folder."""
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir("/")
        self.assertEqual(tfaot.load(AFFINE).name, "a::b_c")

    def test_too_many_threads(self) -> None:
        """Protects processes with limits: threads that can't start are an error that says so, and the model still runs."""
        program = (
            "import resource, tfaot\n"
            f"model = tfaot.load({AFFINE!r})\n"
            "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
            "resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)\n"
            "try:\n    model.set_threads(1000)\n"
            "except tfaot.ModelError as error:\n    print(error)\n"
            "model.set_threads(2)\n"
            "print(*model.run(x=[1, 2, 3, 4], unused=0).y)"
        )
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        self.assertRegex(
            ran.stdout,
            "a::b_c: set_threads: can't start 1000 threads\n  found: .+\n  to do: use fewer, or raise the limits of this "
            r"process \(ulimit -u and -v\)\n1.5 4.5 9.5 16.5\n",
        )

    def test_threads(self) -> None:
        """Protects one instance a thread: runs at the same time don't mix."""
        wrong: list[int] = []

        def work(seed: int) -> None:
            model = tfaot.load(AFFINE)
            for step in range(200):
                x = np.full(4, seed, np.float32)
                if not np.array_equal(model.run(x=x, unused=0).y, (np.arange(1, 5) + step) * seed + 0.5):
                    wrong.append(seed)

        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(wrong, [])


class WeightsTest(unittest.TestCase):
    """Values that models share and exchange. The model writes w, and only reads b."""

    def setUp(self) -> None:
        self.model = tfaot.load(AFFINE)
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def saved(self, value: float) -> Path:
        """Saves weights with this value in b."""
        path = self.folder / f"{value}.safetensors"
        tfaot.load(AFFINE, weights=self.model.weights.update(b=np.full(4, float(value)))).save(path)
        return path

    def test_shared(self) -> None:
        """Protects memory: models share the values that they read, which outlive their first user."""
        fives = self.model.weights.update({"b": [5, 5, 5, 5]})
        self.assertNotEqual(fives.version, self.model.weights.version)
        one, two = tfaot.load(AFFINE, weights=fives), tfaot.load(AFFINE)
        two.run(GIVEN)
        two.weights = fives
        self.assertEqual(one.variables.b.ctypes.data, two.variables.b.ctypes.data)
        self.assertEqual(two.weights.version, fives.version)
        np.testing.assert_array_equal(two.variables.w, [2, 3, 4, 5])  # what the model writes stays
        del one, fives
        np.testing.assert_array_equal(two.run(x=np.zeros(4), unused=0).y, [5, 5, 5, 5])
        np.testing.assert_array_equal(self.model.variables.b, [0.5] * 4)

    def test_files(self) -> None:
        """Protects weights from files, mapped and read, and the library's error if one doesn't fit."""
        path = self.saved(7)
        for copied in (False, True):
            model = tfaot.load(AFFINE, weights=self.model.weights.load(path, copied=copied))
            np.testing.assert_array_equal(model.variables.b, [7] * 4)
        with self.assertRaisesRegex(tfaot.ModelError, "nowhere"):
            self.model.weights.load("nowhere")

    def test_live(self) -> None:
        """Protects a swap under running threads: each run sees one version whole, and the last one arrives."""
        live = tfaot.LiveWeights(self.model.weights.update(b=np.zeros(4)))
        files = [self.saved(0.25), self.saved(0.75)]
        last = 300
        wrong: list[object] = []

        def work() -> None:
            model, seen = tfaot.load(AFFINE, weights=live), 0.0
            while seen < last:
                y = model.run(x=np.zeros(4), unused=0).y
                if np.ptp(y) or (y[0] < seen and y[0] >= 1):
                    wrong.append(y)
                seen = max(seen, y[0])

        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for version in range(1, last + 1):
            live.update(b=np.full(4, float(version)))
            if version % 10 == 0:
                before = live.current
                live.load(files[version // 10 % 2], copied=version % 3 == 0)
                live.swap(before)
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertIn(f"now version {live.current.version}", repr(live))

    def test_following(self) -> None:
        """Protects arrays from memory that a run releases: while a model follows, variables that it reads are copies."""
        live = tfaot.LiveWeights(self.model.weights)
        view = self.model.variables.b
        with self.assertRaisesRegex(BufferError, "can't follow live weights while arrays view"):
            self.model.follow(live)
        with self.assertRaisesRegex(BufferError, "can't take other weights while arrays view"):
            self.model.weights = self.model.weights
        del view
        self.model.follow(live)
        b, w = self.model.variables.b, self.model.variables.w
        live.update(b=[9, 9, 9, 9])
        np.testing.assert_array_equal(self.model.run(x=np.zeros(4), unused=0).y, [9] * 4)
        np.testing.assert_array_equal(b, [0.5] * 4)
        np.testing.assert_array_equal(w, [2, 3, 4, 5])
        self.assertFalse(b.flags.writeable)
        del w
        self.model.follow(None)
        live.update(b=[1, 1, 1, 1])
        del live  # nobody follows
        np.testing.assert_array_equal(self.model.run(x=np.zeros(4), unused=0).y, [9] * 4)
        self.assertTrue(np.shares_memory(self.model.variables.b, self.model.variables.b))

    def test_misfits(self) -> None:
        """Protects models from values of others: names, shapes, and libraries must fit."""
        weights = self.model.weights
        for values, text in (
            ({"c": [1]}, r"there is no variable 'c'\n  found: it has w, b"),
            ({"b": [1, 2]}, r"'b' can't have the shape \[2\]"),
            ({"b": np.zeros(4, complex)}, r"'b' can't be complex128"),
        ):
            with self.subTest(text):
                with self.assertRaisesRegex(TfaotError, text):
                    weights.update(values)
                with self.assertRaisesRegex(TfaotError, text):
                    tfaot.LiveWeights(weights).update(values)
        other = tfaot.load(ENTRY_POINTS)
        with self.assertRaisesRegex(tfaot.ModelError, "a handle of another library"):
            other.weights = weights
        with self.assertRaisesRegex(tfaot.ModelError, "a handle of another library"):
            other.follow(tfaot.LiveWeights(weights))
        with self.assertRaisesRegex(tfaot.ModelError, "a handle of another library"):
            tfaot.load(ENTRY_POINTS, weights=weights)
        with self.assertRaisesRegex(tfaot.ModelError, "a handle of another library"):
            tfaot.LiveWeights(other.weights).swap(weights)

    def test_cancel(self) -> None:
        """Protects programs with a deadline: another thread ends a run, and the next run works again."""
        with self.assertRaisesRegex(TfaotError, "load it with cancellable=True"):
            self.model.cancel()
        model = tfaot.load(AFFINE, cancellable=True)
        model.run(GIVEN)
        threading.Timer(0.01, model.cancel).start()
        with self.assertRaisesRegex(tfaot.RunCancelled, r"a::b_c::Run\(\): hooks ended the run"):
            while True:
                model.run(GIVEN)
        model.run(GIVEN)


class PlacesTest(unittest.TestCase):
    """Inputs and outputs in the caller's arrays."""

    def test_placed(self) -> None:
        """Protects zero-copy use: runs read and write the caller's arrays, which live as long as they are used."""
        model = tfaot.load(AFFINE)
        x, y = tfaot.aligned_empty(4), tfaot.aligned_empty((4,), "float32")
        x[:] = X
        own = model.outputs.y
        model.inputs.place("x", x)
        model.outputs.place("y", y)
        model.run()
        np.testing.assert_array_equal(y, [1.5, 4.5, 9.5, 16.5])
        np.testing.assert_array_equal(own, [0] * 4)
        self.assertTrue(np.shares_memory(model.inputs.x, x) and np.shares_memory(model.outputs.y, y))
        self.assertFalse(model.outputs.y.flags.writeable)
        self.assertEqual(model.run(x=[0, 0, 0, 0], unused=0).y[3], 0.5)
        np.testing.assert_array_equal(x, [0] * 4)
        kept = weakref.ref(y)
        del y
        self.assertIsNotNone(kept())
        model.outputs.place("y", None)
        self.assertIsNone(kept())
        model.inputs.place("x", None)
        x[:] = 100
        self.assertEqual(model.run()["y"][3], 0.5)

    def test_read_only_input(self) -> None:
        """Protects arrays that nobody may write, such as mapped files: a run reads them, and a copy into them fails."""
        model = tfaot.load(AFFINE)
        x = tfaot.aligned_empty(4)
        x[:] = X
        x.flags.writeable = False
        model.inputs.place("x", x)
        np.testing.assert_array_equal(model.run().y, [1.5, 4.5, 9.5, 16.5])
        with self.assertRaisesRegex(ValueError, "read-only"):
            model.run(GIVEN)

    def test_misfits(self) -> None:
        """Protects memory beside an array: one that doesn't fit is an error that says why, and changes nothing."""
        model = tfaot.load(AFFINE)
        fixed = tfaot.aligned_empty(4)
        fixed.flags.writeable = False
        for array, text in (
            (tfaot.aligned_empty(4, "float64"), "the dtype float64"),
            (tfaot.aligned_empty(3), r"the shape \[3\]"),
            (tfaot.aligned_empty(8)[::2], "gaps between its values"),
            (tfaot.aligned_empty(5)[1:], "an address that isn't a multiple of 64"),
            (fixed, "values that can't be written"),
        ):
            with (
                self.subTest(text),
                self.assertRaisesRegex(
                    TfaotError,
                    f"the output 'y' can't be in this array\n  found: the array has {text}; the tensor is y: ",
                ),
            ):
                model.outputs.place("y", array)
        self.assertEqual(model.run(GIVEN).y[0], 1.5)
        with self.assertRaisesRegex(KeyError, "no input is called 'z'"):
            model.inputs.place("z", None)

    def test_results_of_unknown_size(self) -> None:
        """Protects results whose size a run decides: in the caller's array, they have their true size."""
        model = tfaot.load(EDGES)
        tensor = model.outputs.tensor("large")
        array = tfaot.aligned_empty(tensor.shape, tensor.numpy())
        inputs = {"x": (np.arange(32).reshape(8, 4) / 8).astype(ml_dtypes.bfloat16), "signal": np.zeros(8)}
        wanted = model.run(inputs).large
        model.outputs.place("large", array)
        np.testing.assert_array_equal(model.run(inputs).large, wanted)
        self.assertLess(len(wanted), len(array))
        np.testing.assert_array_equal(array.reshape(-1)[: wanted.size].reshape(wanted.shape), wanted)


class OtherModelsTest(unittest.TestCase):
    """Models with batches, other dtypes, several functions, and random numbers."""

    def test_open_size(self) -> None:
        """Protects sequences: the size is that of the arrays, and what is behind it changes nothing."""
        model = tfaot.load(LENGTHS)
        rng = np.random.default_rng(0)
        tokens = rng.integers(0, 1000, (3, 64)).astype(np.int32)
        mask = np.ones((3, 64), np.float32)
        for size in (1, 16, 17, 64):
            short = model.run(tokens=tokens[:, :size], mask=mask[:, :size])
            self.assertEqual(short["states"].shape, (3, size, 64))
            whole = model.run(tokens=tokens, mask=np.where(np.arange(64) < size, mask, np.nan), length=size)
            np.testing.assert_array_equal(whole.sentence, short.sentence)
        self.assertIn("tokens: int32[≤8, ≤64]", str(model.run))
        with self.assertRaisesRegex(TfaotError, "mask has 6, tokens has 5"):
            model.run(tokens=tokens[:, :5], mask=mask[:, :6])
        with self.assertRaisesRegex(TfaotError, r"can't have the shape \[3, 65\]"):
            model.run(tokens=np.zeros((3, 65), np.int32), mask=mask)
        with self.assertRaisesRegex(tfaot.ModelError, "length is 65\n  found: this class takes 1 to 64"):
            model.run(tokens=tokens, mask=mask, length=65)

    def test_batches(self) -> None:
        """Protects batches: rows in give rows out, and a row's result doesn't depend on the others."""
        model = tfaot.load(BATCHES)
        x = np.random.default_rng(0).standard_normal((200, 20))
        whole = model.run(x=x).output
        self.assertEqual(whole.shape, (200, 10))
        np.testing.assert_allclose(whole.sum(axis=1), 1, rtol=1e-5)
        self.assertEqual(model.run(x=x[:7]).output.shape, (7, 10))
        np.testing.assert_allclose(model.run(x=x[:7]).output, whole[:7], rtol=1e-5)
        np.testing.assert_array_equal(model.outputs.output[:7], model.run(batch=7).output)
        self.assertIn("Run(x: float32[≤200, 20]) -> output: float32[≤200, 10]", repr(model))
        for arguments, text in (
            ({"x": x[:0]}, "a batch of 0 rows\n  found: Run"),
            ({"x": np.zeros((201, 20))}, "takes 1 to 200"),
            ({"x": x, "batch": 3}, "x has 200, batch has 3"),
            ({"x": x[0]}, r"can't have the shape \[20\]"),
        ):
            with self.subTest(text), self.assertRaisesRegex(TfaotError, text):
                model.run(**arguments)

    def test_threads_change_no_bit(self) -> None:
        """Protects set_threads: the model's own threads give the same bits."""
        x = np.random.default_rng(0).standard_normal((200, 20))
        one, two = tfaot.load(BATCHES), tfaot.load(BATCHES, threads=2)
        np.testing.assert_array_equal(one.run(x=x).output, two.run(x=x).output)
        with self.assertRaisesRegex(tfaot.ModelError, "-1 threads"):
            one.set_threads(-1)

    def test_dtypes(self) -> None:
        """Protects dtypes that C lacks, and results whose size a run decides."""
        model = tfaot.load(EDGES)
        x = np.arange(32).reshape(8, 4) / 8
        signal = np.arange(8) * (1 + 2j)
        out = model.run(x=x.astype(ml_dtypes.bfloat16), signal=signal)
        scale = np.array([0.5, 1.5, -2, 3])
        self.assertEqual(out.scaled.dtype, ml_dtypes.bfloat16)
        np.testing.assert_array_equal(out.scaled.astype(float), x * scale)
        np.testing.assert_array_equal(out.large, np.argwhere(x * scale > 1))
        np.testing.assert_array_equal(out.turned, signal * 1j)

    def test_dtype_that_numpy_lacks(self) -> None:
        """Protects users without ml_dtypes: the error says what to install, and other tensors still work."""
        model = tfaot.load(EDGES)
        tensor = model.inputs.tensor("x")
        with (
            mock.patch("numpy.dtype", side_effect=TypeError),
            mock.patch.dict(sys.modules, {"ml_dtypes": None}),
            self.assertRaisesRegex(TfaotError, "pip install ml_dtypes"),
        ):
            tensor.numpy()
        self.assertEqual(model.inputs.signal.dtype, np.complex64)

    def test_entry_points(self) -> None:
        """Protects functions over one set of variables: training by one function shows in another's results."""
        model = tfaot.load(ENTRY_POINTS)
        self.assertEqual([*model.entry_points], ["init", "forward", "train", "read"])
        model.init(seed=[1, 2])
        x = np.random.default_rng(0).standard_normal((32, 4))
        before = model.forward(x=x).y
        for _ in range(50):
            model.train(x=x, y=x.sum(axis=1))
        after = model.forward({"forward_x": x})["forward_y"]
        self.assertLess(np.abs(after - x.sum(axis=1)).mean(), 0.5 * np.abs(before - x.sum(axis=1)).mean())
        self.assertEqual(model.read().steps, 50)
        self.assertEqual(model.train.inputs.x.shape, (32, 4))

    def test_seed(self) -> None:
        """Protects reproducible random numbers, and the error of a model that draws none."""
        model = tfaot.load(DROPOUT)
        inputs = {t.member: np.ones(t.shape) for t in model.run.signature.inputs}
        hidden = []
        for seed in (1, 1, 2):
            model = tfaot.load(DROPOUT)
            model.seed(seed)
            hidden.append(model.run(inputs).hidden)
        np.testing.assert_array_equal(hidden[0], hidden[1])
        self.assertFalse(np.array_equal(hidden[0], hidden[2]))
        with self.assertRaisesRegex(tfaot.ModelError, "seed isn't a function of this model"):
            tfaot.load(AFFINE).seed(1)


class HeaderTest(unittest.TestCase):
    """The structs in Python are those of the header."""

    def test_layout(self) -> None:
        """Protects the table from a field that only one side has, or has elsewhere."""
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, folder)
        structs: dict[str, type[ctypes.Structure]] = {
            "tfaot_api": library.Api,
            "tfaot_description": library.CDescription,
            "tfaot_entry_point": library.CEntryPoint,
            "tfaot_source": library.CSource,
            "tfaot_tensor": library.CTensor,
            "tfaot_value": library.CValue,
        }
        lines = ['#include "c_api.h"', "#include <stdio.h>", "int main(void) {"]
        expected = []
        for name, struct in structs.items():
            for field, *_ in struct._fields_:
                place = getattr(struct, field)
                lines.append(f'printf("%d %d\\n", (int)offsetof({name}, {field}), (int)sizeof((({name}*)0)->{field}));')
                expected.append(f"{place.offset} {place.size}")
            lines.append(f'printf("%d\\n", (int)sizeof({name}));')
            expected.append(str(ctypes.sizeof(struct)))
        lines.append('printf("%d %d\\n", TFAOT_API_VERSION, TFAOT_CANCELLED); return 0; }')
        expected.append(f"{library.VERSION} {library.CANCELLED}")
        source = Path(folder) / "layout.c"
        source.write_text("\n".join(lines))
        command = ["gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{Path(HEADER).parent}"]
        subprocess.run([*command, source, "-o", source.with_suffix("")], check=True)
        done = subprocess.run([source.with_suffix("")], check=True, capture_output=True, text=True)
        self.assertEqual(done.stdout.splitlines(), expected)


if __name__ == "__main__":
    unittest.main()
