"""The list of models and their definitions, and the files that peers start with."""

import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import numpy as np

from benchmarks import bind, catalog, definitions, environments
from benchmarks.adapters import work_ops


class CatalogTest(unittest.TestCase):
    """What the harness knows without NumPy agrees with the definitions."""

    def test_definitions(self) -> None:
        """Every definition is in the suite under its title, and training steps are marked as such."""
        defined = {name: entry for name, entry in catalog.MODELS.items() if entry.defined}
        self.assertEqual(
            {name: entry.title for name, entry in defined.items()}, {n: m.title for n, m in definitions.MODELS.items()}
        )
        self.assertEqual(
            {n: e.training for n, e in defined.items()}, {n: bool(m.optimizer) for n, m in definitions.MODELS.items()}
        )

    def test_study(self) -> None:
        """All 14 training steps of the study are in the suite."""
        self.assertEqual(sum(name.startswith("study_") for name in catalog.MODELS), 14)

    def test_draw(self) -> None:
        """Weights are the same everywhere: these bits never change."""
        np.testing.assert_array_equal(definitions.draw("fc/hidden/kernel", (3,)), np.array(DRAWN, np.float32))
        many = definitions.draw("x", (100_000,))
        self.assertLess(abs(float(many.mean())), 0.01)
        self.assertTrue(many.min() >= -1 and many.max() < 1)

    def test_work(self) -> None:
        """The roofline counts the layers' arithmetic: two per multiply-add, no gradient for the model's own input."""
        flops = {name: work_ops.flops(model) for name, model in definitions.MODELS.items()}
        first, second = 2 * 64 * 784 * 256, 2 * 64 * 256 * 10
        self.assertEqual(flops["fc_b64"], first + second)
        self.assertEqual(flops["fc_bn_adam_train"], 2 * first + 3 * second)
        self.assertEqual(flops["lstm"], 2 * (50 * (64 + 128) * 512 + 128 * 10))
        # MobileNetV2's paper says 300 million multiply-adds, ResNet's 1.8 billion.
        self.assertEqual([round(flops[name] / 2e6, -2) for name in ("mobilenet_v2", "resnet18")], [300, 1800])

    def test_variable_bytes(self) -> None:
        """A model's weights count whether they are in a file or in the code, excluding sizes and bounds."""
        tensors = [("float32", [3, 4]), ("bool", [5]), ("bfloat16", []), ("int64", [2])]
        of = [{"dtype": dtype, "shape": shape} for dtype, shape in tensors]
        self.assertEqual(catalog.variable_bytes({"variables": of[:2], "frozen": of[2:]}), 48 + 5 + 2 + 16)

    def test_locks(self) -> None:
        """Every peer with its own environment has a lock with a hash for every package."""
        kinds = {peer.partition("_")[0] for peer in catalog.PEERS} - {"stock", "tensorflow"}
        self.assertEqual({path.stem for path in environments.LOCKS.glob("*.lock")}, kinds)
        for lock in environments.LOCKS.glob("*.lock"):
            packages = lock.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
            for line in (line for line in packages if "==" in line and not line.lstrip().startswith("#")):
                self.assertIn("--hash=sha256:", line, lock.name)

    def test_threads(self) -> None:
        """On several threads, ours has a pool, and peers that would still run on one are left out with the reason, unbuilt."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"RULES_TFAOT_CACHE": folder}):
            for threads, driver, asked in (
                (1, "fc_driver.stripped", ()),
                (2, "fc_threads_driver.stripped", ("--threads=2",)),
            ):
                build = catalog.Build([], [])
                binary = pathlib.Path(folder, "benchmarks", driver)
                with (
                    mock.patch.object(build, "output", lambda path: pathlib.Path(folder, path)),
                    mock.patch("subprocess.run") as run,
                ):
                    self.assertEqual([*build.models(["fc"], ["stock", "iree"], threads)], ["fc"])
                    self.assertEqual("//benchmarks:fc_stock.stripped" in run.call_args.args[0], threads == 1)
                    self.assertIn(f"//benchmarks:{driver}", run.call_args.args[0])
                    binary.parent.mkdir(exist_ok=True)
                    binary.touch()
                    runners, missing = build.peers("fc", ["stock"], threads)
                self.assertEqual([peer.command for peer in runners], [(str(binary), *asked)])
                self.assertEqual(
                    missing, {"stock": "it doesn't build" if threads == 1 else "the suite's driver gives it no threads"}
                )
            with mock.patch.object(catalog.Build, "output", lambda _, path: pathlib.Path(folder, path)):
                self.assertIn("iree", catalog.Build([], []).peers("fc", ["iree"], 2)[1])

    def test_inputs(self) -> None:
        """Inputs are the first step's raw values, in the model's order instead of the file's."""
        with tempfile.TemporaryDirectory() as folder:
            header = {
                "step0/x": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
                "step0/n": {"dtype": "I32", "shape": [], "data_offsets": [0, 4]},
            }
            text = json.dumps(header).encode()
            goldens, manifest = (
                os.path.join(folder, f"m.{end}") for end in ("golden_inputs.safetensors", "model.json")
            )
            with open(goldens, "wb") as file:
                file.write(
                    len(text).to_bytes(8, "little")
                    + text
                    + np.int32(7).tobytes()
                    + np.array([1, 2], np.float32).tobytes()
                )
            with open(manifest, "w", encoding="utf-8") as file:
                json.dump({"entry_points": [{"inputs": [{"cpp_name": "x"}, {"cpp_name": "n"}]}]}, file)
            inputs = catalog.write_inputs(os.path.join(folder, "m"), os.path.join(folder, "m"))
            self.assertEqual([(i["dtype"], i["shape"]) for i in inputs], [("float32", [2]), ("int32", [])])
            np.testing.assert_array_equal(np.fromfile(inputs[0]["path"], np.float32), [1, 2])

    def test_drawn_inputs(self) -> None:
        """Inputs of models that have none are drawn: floats around zero, and integers that are zero or one, of the first call."""
        with tempfile.TemporaryDirectory() as folder:
            goldens, manifest = (
                os.path.join(folder, f"m.{end}") for end in ("golden_inputs.safetensors", "model.json")
            )
            with open(goldens, "wb") as file:
                file.write((2).to_bytes(8, "little") + b"{}")
            with open(manifest, "w", encoding="utf-8") as file:
                x = {"cpp_name": "x", "dtype": "float32", "shape": [64, 40], "batched": True}
                n = {"cpp_name": "n", "dtype": "int32", "shape": [50], "batched": False}
                json.dump({"entry_points": [{"inputs": [x, n]}], "calls": [{"batch": 16}]}, file)
            inputs = catalog.write_inputs(os.path.join(folder, "m"), os.path.join(folder, "m"))
            self.assertEqual([(i["dtype"], i["shape"]) for i in inputs], [("float32", [16, 40]), ("int32", [50])])
            drawn = np.fromfile(inputs[0]["path"], np.float32)
            self.assertEqual(drawn.size, 640)
            self.assertLess(abs(np.std(drawn) - 1), 0.2)
            self.assertEqual(set(np.fromfile(inputs[1]["path"], np.int32).tolist()), {0, 1})

    def test_bind(self) -> None:
        """A driver's main visits the accessors of the first entry point in the manifest's order."""
        manifest = {
            "cpp_class": "a::B",
            "entry_points": [
                {
                    "cpp_name": "train",
                    "inputs": [{"cpp_name": "x"}, {"cpp_name": "y"}],
                    "outputs": [{"cpp_name": "loss"}],
                }
            ],
        }
        source = bind.source(manifest, "m.json", "a/b.h")
        self.assertLess(source.index("visit(model.x());"), source.index("visit(model.y());"))
        for part in ('#include "a/b.h"', "using Model = ::a::B;", "return model.train();", "visit(model.loss());"):
            self.assertIn(part, source)


DRAWN = (-0.5328903198242188, -0.4653877019882202, 0.7618726491928101)
"""Values of `fc/hidden/kernel`, exact in float32."""

if __name__ == "__main__":
    unittest.main()
