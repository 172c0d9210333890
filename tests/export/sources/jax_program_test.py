"""Models that `tfaot.jax` exported: variables, keys, open batches, and large constants, compared with JAX's own results."""

from __future__ import annotations

import io
import os
import unittest
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.stages.harness import ROOT, Exported, StageTest
from tfaot.core import isolate, programs
from tfaot.core.manifest import Requirement
from tfaot.core.programs import Program, Programs, Value
from tfaot.export.sources.model import Model

Array = npt.NDArray[Any]
OPERATIONS = Path(os.environ.get("JAX_OPERATIONS", ROOT / "tests/export/sources/operations.zip"))
"""What jax_operations.py writes; see stablehlo_test.py."""


class JaxProgramTest(StageTest):
    """The models in the archive."""

    def model(self, name: str) -> Model:
        """Writes a model."""
        with zipfile.ZipFile(OPERATIONS) as archive:
            return Model(jax=archive.extract(f"{name}.jax", self.folder))

    def arrays(self, name: str) -> dict[str, Array]:
        """Returns inputs and results of a model."""
        with zipfile.ZipFile(OPERATIONS) as archive:
            return dict(np.load(io.BytesIO(archive.read(f"{name}.models"))))

    def run_calls(self, exported: Exported, calls: Sequence[tuple[str, Mapping[str, Array]]]) -> list[dict[str, Array]]:
        """Calls entry points in TensorFlow, one after another. Returns the outputs and the written variables of each."""

        def work() -> list[dict[str, Array]]:
            from tensorflow.core.framework import graph_pb2

            from tfaot.verify import replicas
            from tfaot.verify.runner import Runner

            graph = graph_pb2.GraphDef.FromString(Path(exported.path("graph")).read_bytes())
            manifest, variables, done = exported.manifest, exported.variables, []
            if manifest.replicas > 1:
                variables = replicas.joined_values(manifest, variables)
                manifest, graph = replicas.joined(manifest, graph)
            with Runner(manifest, graph) as runner:
                runner.assign(variables.items())
                for name, values in calls:
                    entry = manifest.entry_point(name)
                    results = runner.call(entry, [values[tensor.cpp_name] for tensor in entry.inputs])
                    tensors = (*entry.outputs, *manifest.written_by(entry))
                    done.append({t.cpp_name: np.array(v) for t, v in zip(tensors, results, strict=True)})
            return done

        return isolate.run_isolated(work, what="running the graph")

    def assert_close(self, found: Mapping[str, Array], wanted: Mapping[str, Array], *names: str) -> None:
        """Compares arrays by name."""
        for name in names:
            self.assertEqual(found[name].dtype, wanted[name].dtype, name)
            np.testing.assert_allclose(found[name], wanted[name], 1e-5, 1e-6, err_msg=name)

    def test_state(self) -> None:
        """Arguments that are named as state are variables, which two calls of a step write, and another entry point reads."""
        exported = self.export(self.model("step"), entry_points=(("Step", "step"), ("Predict", "predict")))
        manifest = exported.manifest
        self.assertEqual(
            exported.written,
            {"weights/dense/0": True, "weights/dense/1": True, "weights/scale": True, "count": True},
        )
        self.assertEqual(
            [[t.cpp_name for t in entry.inputs] for entry in manifest.entry_points], [["Step_x"], ["Predict_x"]]
        )
        wanted = self.arrays("step")
        calls = [("Step", {"Step_x": wanted["x"]})] * 2 + [("Predict", {"Predict_x": wanted["y"]})]
        results = self.run_calls(exported, calls)
        self.assert_close(results[1], {"Step_output_1_loss": wanted["loss"]}, "Step_output_1_loss")
        self.assertEqual(results[1]["count"], 2)
        self.assert_close(results[2], {"Predict_output": wanted["output"]}, "Predict_output")

    def test_shards(self) -> None:
        """A class is one of the replicas of shard_map: it has a part of what is split, and together they compute what JAX does."""
        exported = self.export(self.model("shards"))
        self.assertEqual(exported.manifest.replicas, 2)
        wanted = self.arrays("shards")
        (result,) = self.run_calls(
            exported, [("Run", {f"x (replica {rank})": wanted["x"][4 * rank :][:4] for rank in range(2)})]
        )
        for key, value in wanted.items():
            if key == "x":
                continue
            whole = key in ("weights", "loss")
            parts = [value] * 2 if whole else np.split(value, 2, axis=int(key == "scatter_columns"))
            name = {"weights": "weights", "loss": "output_2"}.get(key, f"output_1_{key}")
            for rank, part in enumerate(parts):
                self.assert_close(result, {f"{name} (replica {rank})": part}, f"{name} (replica {rank})")
        exported.goldens(program=Path(self.model("shards").jax or ""), strict=False)
        self.compile(exported)

    def test_mesh(self) -> None:
        """Replicas in a mesh exchange values along one axis of it, also in loops of so many rounds, and compute what JAX does."""
        exported = self.export(self.model("mesh"))
        self.assertEqual(exported.manifest.replicas, 4)
        wanted = self.arrays("mesh")
        x = wanted.pop("x")
        parts = {
            f"x (replica {2 * row + column})": x[4 * row :][:4, 3 * column :][:, :3] for row, column in np.ndindex(2, 2)
        }
        (result,) = self.run_calls(exported, [("Run", parts)])
        for key, value in wanted.items():
            for rank, part in enumerate(np.split(value, 4)):
                self.assert_close(result, {f"{key} (replica {rank})": part}, f"{key} (replica {rank})")
        self.compile(exported)

    def test_data_decides(self) -> None:
        """A loop that runs until data says so can't exchange values, which is an error with the line of the exchange."""
        self.assertRegex(
            self.error_of(self.export, self.model("until")),
            r"^until\.py: CollectiveReduceV2 '\w+' at \S*jax_operations\.py:\d+ is in a loop whose number of rounds depends on "
            r"data\n.*\n  to do: make the number of rounds a constant",
        )

    def test_outside_of_shards(self) -> None:
        """Arithmetic with what is split over replicas, outside of shard_map, is an error with its line."""
        self.assertRegex(
            self.error_of(self.export, self.model("outside")),
            r"outside.py computes with values that are split over devices outside of jax.shard_map, at \S*jax_operations.py:\d+\n"
            r"  found: .*stablehlo.multiply.*\n  to do: compute it inside of the function that you give jax.shard_map",
        )

    def test_state_is_verified(self) -> None:
        """The verify stage compares new values of variables with those of the program, whose entry points have other names."""
        model = self.model("step")
        exported = self.export(model, entry_points=(("Read", "predict"), ("Step", "step")))
        names = (("Read", "predict"), ("Step", "step"))
        exported.goldens(program=Path(model.jax or ""), entry_points=names, strict=False)
        held = programs.read(model.jax or "")
        text = held.programs[0].text
        self.assertIn("stablehlo.subtract", text)
        wrong = Program("step", text.replace("stablehlo.subtract", "stablehlo.add"), *_values(held.programs[0]))
        path = self.folder / "wrong.jax"
        programs.write(path, Programs("step.py", (wrong, held.programs[1]), held.values))
        self.assertRegex(
            self.error_of(exported.goldens, program=path, entry_points=names),
            r"the graph doesn't compute what \S*wrong\.jax does: \d output\(s\) differ\n  found: .*weights_dense_0: value",
        )

    def test_keys(self) -> None:
        """Typed keys are the integers that they consist of, of both generators, as inputs and as state."""
        wanted = self.arrays("keys")
        exported = self.export(self.model("keys"))
        self.assertEqual(exported.written, {"key": True})
        (found,) = self.run_calls(exported, [("Run", {"fast": np.array([0, 8, 0, 8], np.uint32), "n": wanted["n"]})])
        self.assert_close(found, wanted, "x", "key", "bits")

    def test_narrow_dtypes(self) -> None:
        """Floats of 8 bits and integers of 4 compile inside a program: casts, constants, and products."""
        wanted = self.arrays("narrow")
        exported = self.export(self.model("narrow"))
        (found,) = self.run_calls(exported, [("Run", wanted)])
        self.assert_close(found, wanted, "eight", "four", "dot", "weights")
        self.compile(exported, tolerant=True)

    def test_batches(self) -> None:
        """A symbolic size is the batch: loops, sorts, convolutions, and pooling have JAX's results for rows that no size is of."""
        model, wanted = self.model("rows"), self.arrays("rows")
        exported = self.export(model, batch_sizes=(1, 4), max_batch=9)
        (entry,) = exported.manifest.entry_points
        self.assertEqual([tensor.batched for tensor in entry.inputs], [True, True, False])
        (found,) = self.run_calls(exported, [("Run", wanted)])
        self.assert_close(found, wanted, "all", "best", "pooled")
        exported.goldens(program=Path(model.jax or ""), strict=False)

    def assert_sizes(
        self, name: str, sizes: Mapping[str, tuple[int, ...]], dims: Any, batch_sizes: tuple[int, ...] = (2,)
    ) -> Exported:
        """Exports a model with open sizes. Checks that it has JAX's results for each call, whatever is behind the sizes."""
        model, wanted = self.model(name), self.arrays(name)
        exported = self.export(model, batch_sizes=batch_sizes, dims=dims, sizes=sizes)
        (entry,) = exported.manifest.entry_points
        rng = np.random.default_rng(0)
        calls, numbers = [], range(1 + max(int(key.partition("/")[0]) for key in wanted))
        for number in numbers:
            values: dict[str, Array] = {}
            for tensor in entry.inputs[: len(dims)]:
                array = wanted[f"{number}/{tensor.cpp_name}"]
                whole = rng.integers(0, 19, tensor.shape).astype(array.dtype)
                whole[:, : array.shape[1]] = array
                values[tensor.cpp_name] = whole
                values[dims[tensor.cpp_name][1]] = np.array(array.shape[1], np.int32)
            calls.append(("Run", values))
        for number, results in zip(numbers, self.run_calls(exported, calls), strict=True):
            own = {key.partition("/")[2]: value for key, value in wanted.items() if key.startswith(f"{number}/")}
            self.assert_close(results, own, *(output.cpp_name for output in entry.outputs))
        exported.goldens(program=Path(model.jax or ""), strict=False)
        return exported

    def test_several_open_sizes(self) -> None:
        """Several symbolic sizes give JAX's results for inputs of exactly these sizes, and a constraint is the class's."""
        sizes = {"s": (4, 9), "t": (4, 9)}
        exported = self.assert_sizes("translate", sizes, {"source": (None, "s"), "target": (None, "t")})
        (entry,) = exported.manifest.entry_points
        self.assertEqual(entry.requirements, (Requirement("t <= s", (1, -1), 0, equal=False, modulus=0),))
        self.assertEqual([call.sizes for call in exported.manifest.calls if call.sizes[1] > call.sizes[0]], [])
        for buckets in entry.buckets:
            self.compile(exported, batch=2, buckets=buckets)

    def test_multiples(self) -> None:
        """A size that must be a multiple of a number, and that the program divides, is checked in each run."""
        exported = self.assert_sizes("groups", {"t": (8, 16)}, {"x": (None, "t", None)})
        (entry,) = exported.manifest.entry_points
        self.assertEqual({(own.factors, own.modulus) for own in entry.requirements}, {((1,), 4)})
        self.assertEqual({call.sizes[0] % 4 for call in exported.manifest.calls}, {0})

    def test_other_operations(self) -> None:
        """A program whose operations depend on a size is an error that names two sizes, not code for one of them."""
        self.assertRegex(
            self.error_of(
                self.export, self.model("front"), batch_sizes=(2,), dims={"x": (None, "t", 2)}, sizes={"t": (8, 64)}
            ),
            r"other operations for the batch \d+, t \d+ than for the batch \d+, t \d+; .*, at .*jax_operations.py:\d+\n",
        )

    def test_least_size(self) -> None:
        """What is the larger of a size and a number is computed so; places count along the run's size."""
        self.assert_sizes("longest", {"t": (8, 40)}, {"x": (None, "t", 2)})

    def test_windows(self) -> None:
        """Protects what looks at several places: windows, sorts, updates, and loops over a part have JAX's results, and compile."""
        exported = self.assert_sizes("windows", {"t": (4, 9)}, {"x": (None, "t", 2)}, batch_sizes=())
        for buckets in ((4,), (9,)):
            self.compile(exported, buckets=buckets)

    def test_one_size_with_two_names(self) -> None:
        """Two names for dimensions that the program requires to be equal are an error that says so."""
        self.assertRegex(
            self.error_of(
                self.export,
                self.model("translate"),
                dims={"source": ("rows", "s"), "target": ("others", "t")},
                sizes={"s": (9,), "t": (9,), "rows": (2,), "others": (2,)},
            ),
            r"requires rows and others to be equal\n.*\n  to do: give both one name in dims",
        )

    def test_advice_on_constraints(self) -> None:
        """Constraints that the largest buckets break, and those that a class can't check, are errors whose advice works."""
        dims = {"source": (2, "s"), "target": (2, "t")}
        self.assertRegex(
            self.error_of(self.export, self.model("translate"), dims=dims, sizes={"s": (4,), "t": (9,)}),
            r"requires t <= s\n.*\n  to do: list buckets in sizes whose largest ones fulfill it",
        )
        self.export(self.model("translate"), dims=dims, sizes={"s": (9,), "t": (9,)})
        self.assertRegex(
            self.error_of(self.export, self.model("many"), dims={"x": ("t",)}, sizes={"t": (1994,)}),
            r"hardly any .*\n.*\n  to do: give dimensions that must be equal one name in dims, or compile for fixed sizes",
        )
        self.export(self.model("many"), dims={"x": (1994,)})
        product: dict[str, Any] = {"dims": {"x": ("r", "c")}, "sizes": {"r": (9,), "c": (9,)}}
        self.assertRegex(
            self.error_of(self.export, self.model("matrix"), **product),
            r"requires r\*c >= 8\n.*\n  to do: write the constraint in such a form, or compile for fixed sizes",
        )
        self.export(self.model("matrix"), dims={"x": (9, 9)})

    def test_rows_that_affect_each_other(self) -> None:
        """A mean over the batch, whose divisor is a constant of each size, names the line that computes it."""
        self.assertRegex(
            self.error_of(self.export, self.model("mean"), batch_sizes=(1, 4)),
            r"^mean\.py: TensorFlow can't convert this program\n\n"
            r"    error: the constant dense<1\.2\S+ : tensor<\S+> depends on the batch: rows affect each other, as in a mean over "
            r"the batch, at \S*jax_operations\.py:\d+\n",
        )

    def test_large_constant(self) -> None:
        """A large constant isn't read as text again and again, so the time of an export grows with its size only."""
        (found,) = self.run_calls(self.export(self.model("large")), [("Run", self.arrays("large"))])
        self.assertEqual(found["output"].shape, (2, 300))

    def test_entry_points(self) -> None:
        """A function that isn't there lists those that are."""
        self.assert_error(
            self.error_of(self.export, self.model("step"), entry_points=(("Run", "train"),)),
            """
            step.py has no entry point 'train'
              found: step, predict
              to do: name one of these in the target's entry_points
            """,
        )

    def test_other_file(self) -> None:
        """A file that isn't such an archive, or is of another release, is one error."""
        path = self.folder / "other.jax"
        path.write_text("module {}")
        self.assert_error(
            self.error_of(self.export, Model(jax=str(path))).replace(str(path), "other.jax"),
            """
            other.jax isn't a program that tfaot.jax.export of this release wrote
              found: BadZipFile: File is not a zip file
              to do: export it again
            """,
        )


def _values(program: Program) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    return program.arguments, program.results


if __name__ == "__main__":
    unittest.main()
