"""Programs in StableHLO: what JAX exports, compared with JAX's own results, and one error for each file that can't be used."""

from __future__ import annotations

import io
import json
import os
import unittest
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.stages.harness import ROOT, Exported, StageTest
from tfaot.core import isolate
from tfaot.export.sources.model import Model

OPERATIONS = Path(os.environ.get("JAX_OPERATIONS", ROOT / "tests/export/sources/operations.zip"))
"""What jax_operations.py writes. Bazel makes it; by hand, run that file in a Python with JAX, and set the variable."""

LOW = {"bfloat16": 2e-2, "float16": 1e-2}
"""Relative differences to accept for dtypes with few bits. XLA may keep more of them inside a program."""


def line_of(code: str) -> int:
    """Returns the number of the first line of jax_operations.py that contains this code."""
    lines = (ROOT / "tests/export/sources/jax_operations.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if code in line)


def convert(program: bytes, folder: Path) -> Any:
    """Converts a program to a graph."""
    from tfaot.export.sources.stablehlo import StablehloSource
    from tfaot.export.traced import Dims

    path = folder / "program.mlir"
    path.write_bytes(program)
    return StablehloSource(str(path)).function("main", Dims({}))


def different(function: Any, wanted: dict[str, Any]) -> str:
    """Runs a graph in a session. Returns what isn't as wanted."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        tf.import_graph_def(function.graph, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            feeds = {edge.name: wanted[f"input_{index}"] for index, edge in enumerate(function.inputs)}
            results = session.run([edge.name for edge in function.outputs], feeds)
    if len(results) != sum(name.startswith("output_") for name in wanted):
        return f"{len(results)} results"
    for index, result in enumerate(results):
        value, want = np.asarray(result), wanted[f"output_{index}"]
        close = LOW.get(str(value.dtype), 1e-4)
        if str(value.dtype) != "bfloat16" and value.dtype != want.dtype:
            return f"result {index} is {value.dtype}, not {want.dtype}"
        if not np.allclose(value.astype(want.dtype), want, rtol=close, atol=close, equal_nan=True):
            return f"result {index} is\n{value}\nand not\n{want}"
    return ""


class JaxTest(StageTest):
    """Programs that JAX wrote."""

    def test_operations_compute_what_jax_computes(self) -> None:
        """A converted program has JAX's results, also at values where TensorFlow's ops of the same names have others."""

        def work() -> dict[str, str]:
            wrong: dict[str, str] = {}
            with zipfile.ZipFile(OPERATIONS) as programs:
                names = [name.removesuffix(".npz") for name in programs.namelist() if name.endswith(".npz")]
                for name in names:
                    wanted = dict(np.load(io.BytesIO(programs.read(f"{name}.npz"))))
                    if found := different(convert(programs.read(f"{name}.mlir"), self.folder), wanted):
                        wrong[name] = found
            assert len(names) > 40, names
            return wrong

        self.assertEqual(isolate.run_isolated(work, what="running programs"), {})

    def test_square_root(self) -> None:
        """JAX's square root of a matrix is one op if the batch comes first, and not its loop; a function of its name isn't."""
        with zipfile.ZipFile(OPERATIONS) as programs:
            program = programs.read("square_roots.mlir")

        def work() -> list[str]:
            graph = convert(program, self.folder).graph
            nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
            return [node.op for node in nodes if node.op in ("MatrixSquareRoot", "Eig")]

        ops = ["Eig"] * 2 + ["MatrixSquareRoot"] * 2
        self.assertEqual(sorted(isolate.run_isolated(work, what="converting a program")), ops)

    def unpacked(self, name: str) -> Model:
        """Writes one of the programs in the archive."""
        with zipfile.ZipFile(OPERATIONS) as programs:
            return Model(stablehlo=programs.extract(name, self.folder))

    def exported(self, name: str) -> Exported:
        """Exports one of the programs in the archive."""
        return self.export(self.unpacked(name))

    def refused(self, name: str, **options: Any) -> str:
        """Returns the error for one of the programs in the archive."""
        return self.error_of(self.export, self.unpacked(name), **options).replace(str(self.folder / name), name)

    def test_newer_version(self) -> None:
        """A portable artifact with an operation that the wheel doesn't have yet names both versions, and the way out."""
        text = self.refused("newer.mlirbc")
        self.assertRegex(
            text,
            r"^newer.mlirbc: TensorFlow 2.* can't read this StableHLO\n\n    error: unregistered operation 'vhlo\.\w+'[\s\S]*"
            r"  found: the file has version 1\.\d+\.\d+, and TensorFlow has 1\.\d+\.\d+\n"
            r"  to do: write it for version 1\.\d+\.\d+ or an earlier one; or as text, exported.mlir_module\(\), which has no "
            r"version$",
        )

    def test_lapack(self) -> None:
        """A call of LAPACK for which TensorFlow has nothing is refused with the reason and the line of JAX code."""
        line = line_of('schur(x, "real")')
        self.assertRegex(
            self.refused("library.mlir"),
            r"^library.mlir calls functions that aren't part of it\n"
            rf"  found: lapack_sgees_ffi at \S*jax_operations\.py:{line} \(the real Schur form, which "
            r'funm takes, too; use jax\.scipy\.linalg\.schur\(a, output="complex"\) or jax\.numpy\.linalg\.eig\)\n'
            r"  to do: compute it in another way$",
        )
        self.exported("no_library.mlir")

    def test_shardy(self) -> None:
        """A key as an input, whose program TensorFlow can't read, names the option of JAX with which it can."""
        self.assertRegex(
            self.refused("key.mlir"),
            r"^key\.mlir has operations or attributes of Shardy, which TensorFlow doesn't know\n(.|\n)*"
            r'  to do: export after jax\.config\.update\("jax_use_shardy_partitioner", False\), ',
        )
        self.exported("key_without_shardy.mlir")

    def test_lines(self) -> None:
        """Nodes have the line of JAX code that they come from, which later errors show, in both forms and inside a loop."""
        for name in ("transformed.mlir", "transformed.mlirbc", "transformed_loop.mlir"):
            with self.subTest(name):
                sources = json.loads(Path(self.exported(name).path("sources")).read_text())
                (line,) = {place for node, place in sources.items() if node.rpartition("/")[2] == "rfft"}
                self.assertRegex(line, rf"jax_operations\.py:{line_of('spectrum = jnp.fft.rfft')}$")

    def test_platforms(self) -> None:
        """A program for several platforms doesn't say which branch is whose."""
        self.assert_error(
            self.refused("both.mlir"),
            """
            both.mlir is for several platforms
              found: an argument that chooses one of them, and no record of their order
              to do: export for one: jax.export.export(f, platforms=["cpu"])
            """,
        )

    def test_dims(self) -> None:
        """Sizes that an export leaves open come from dims, by the argument's name; without them, the error shows the line."""
        self.assert_error(
            self.refused("opened.mlirbc"),
            """
            opened.mlirbc: 1 input(s) have dimensions that aren't known at build time
              found: x [None]
              to do: fix them in the model, or with dims = {"x": [1]}, with your sizes in place of 1; \
any number of rows is batch_sizes
            """,
        )
        path = self.folder / "opened.mlirbc"
        exported = self.export(Model(stablehlo=str(path)), dims={"x": (7,)})
        (entry,) = exported.manifest.entry_points
        self.assertEqual([tensor.shape for tensor in (*entry.inputs, *entry.outputs)], [(7,), (7,)])
        self.assertRegex(
            self.error_of(self.export, Model(stablehlo=str(path)), dims={"x": (0,)}),
            r"XLA refuses the program with these sizes\n\n[\s\S]*Expected value >= 1 for dimension variable 'size'[\s\S]*"
            r"  to do: use sizes that the export allows$",
        )


class TextTest(StageTest):
    """Handwritten programs."""

    def program(self, text: str) -> Model:
        """Writes a program."""
        path = self.folder / "program.mlir"
        path.write_text(text)
        return Model(stablehlo=str(path))

    def refused(self, text: str, **options: Any) -> str:
        """Returns the error for a program."""
        return self.error_of(self.export, self.program(text), **options).replace(str(self.folder) + "/", "")

    def exported(self, text: str) -> Exported:
        """Exports a program."""
        return self.export(self.program(text))

    def test_names(self) -> None:
        """Inputs and outputs have the names that JAX writes, as other sources have them; others are numbered."""
        exported = self.exported(
            """
            func.func @main(%0: tensor<2xf32> loc("state['w'][0].scale"), %1: tensor<i32>, %2: tensor<ui8> loc("x"("f.py":1:2)))
                -> (tensor<2xf32> {jax.result_info = "result['a'].b[1]"},
                    tensor<i32> {jax.result_info = "result[1]"}, tensor<ui8>) {
              return %0, %1, %2 : tensor<2xf32>, tensor<i32>, tensor<ui8>
            }
            """
        )
        (entry,) = exported.manifest.entry_points
        self.assertEqual([tensor.cpp_name for tensor in entry.inputs], ["state_w_0_scale", "input_1", "x"])
        self.assertEqual([tensor.cpp_name for tensor in entry.outputs], ["a_b_1", "output_1", "output_2"])
        self.assertEqual([tensor.dtype for tensor in entry.outputs], ["float32", "int32", "uint8"])

    def test_not_stablehlo(self) -> None:
        """A file of another kind shows what MLIR says of it."""
        self.assertRegex(
            self.refused("HloModule m\n"),
            r"^program.mlir isn't StableHLO that TensorFlow 2\S* can read\n\n    \S*error: [\s\S]*"
            r"to do: use what jax.export gives: exported.mlir_module\(\), as text, or exported.mlir_module_serialized$",
        )

    def test_constants_of_booleans(self) -> None:
        """A mask of JAX has a byte for each boolean, and TensorFlow's MLIR reads bits. Both the graph and the check of it work."""
        mask = np.tri(11, dtype=np.bool_)
        exported = self.exported(
            f"""
            func.func @main(%x: tensor<11x11xf32>) -> tensor<11x11xf32> {{
              %c = stablehlo.constant dense<"0x{mask.tobytes().hex()}"> : tensor<11x11xi1>
              %z = stablehlo.constant dense<0.0> : tensor<11x11xf32>
              %r = stablehlo.select %c, %x, %z : tensor<11x11xi1>, tensor<11x11xf32>
              return %r : tensor<11x11xf32>
            }}
            """
        )
        goldens = exported.goldens(program=self.folder / "program.mlir")
        np.testing.assert_array_equal(goldens["step0/output"] != 0, mask)

    def test_results_with_names(self) -> None:
        """An operation that is kept may name each of its results, as JAX's `rbg` generator does."""
        exported = self.exported(
            """
            func.func @main(%key: tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui32>) {
              %output_state, %output = stablehlo.rng_bit_generator %key, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui32>)
              %c = stablehlo.constant dense<1> : tensor<3xui32>
              %sum = stablehlo.add %output, %c : tensor<3xui32>
              return %output_state, %sum : tensor<2xui64>, tensor<3xui32>
            }
            """  # noqa: E501
        )
        self.compile(exported)
        exported.goldens(program=self.folder / "program.mlir", unseen=("*",))

    def test_computed_places(self) -> None:
        """A slice compiles at a place that a kept operation computes, as JAX's argmax of booleans: XLA would die of it."""
        exported = self.exported(
            """
            func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x3xf32>, tensor<1x3xf32>) {
              %rows = stablehlo.fft %x, type = RFFT, length = [8] : (tensor<4x8xf32>) -> tensor<4x5xcomplex<f32>>
              %size = stablehlo.abs %rows : (tensor<4x5xcomplex<f32>>) -> tensor<4x5xf32>
              %first = stablehlo.slice %size [0:1, 0:5] : (tensor<4x5xf32>) -> tensor<1x5xf32>
              %line = stablehlo.reshape %first : (tensor<1x5xf32>) -> tensor<5xf32>
              %two = stablehlo.constant dense<2.0> : tensor<5xf32>
              %high = stablehlo.compare GT, %line, %two : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xi1>
              %places = stablehlo.iota dim = 0 : tensor<5xi32>
              %none = stablehlo.constant dense<false> : tensor<i1>
              %zero = stablehlo.constant dense<0> : tensor<i32>
              %r:2 = stablehlo.reduce(%high init: %none), (%places init: %zero) across dimensions = [0] : (tensor<5xi1>, tensor<5xi32>, tensor<i1>, tensor<i32>) -> (tensor<i1>, tensor<i32>)
                reducer(%a: tensor<i1>, %b: tensor<i1>) (%i: tensor<i32>, %j: tensor<i32>) {
                  %value = stablehlo.or %a, %b : tensor<i1>
                  %place = stablehlo.select %a, %i, %j : tensor<i1>, tensor<i32>
                  stablehlo.return %value, %place : tensor<i1>, tensor<i32>
              }
              %before = stablehlo.subtract %r#1, %zero : tensor<i32>
              %part = stablehlo.dynamic_slice %size, %zero, %before, sizes = [4, 3] : (tensor<4x5xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
              %row = stablehlo.dynamic_slice %size, %before, %before, sizes = [1, 3] : (tensor<4x5xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
              return %part, %row : tensor<4x3xf32>, tensor<1x3xf32>
            }
            """  # noqa: E501
        )
        self.compile(exported)
        exported.goldens(program=self.folder / "program.mlir")

    def test_types_inside(self) -> None:
        """A dtype that TensorFlow has no kernels for is an error wherever it is, and so is a constant that is too large."""
        constant = "%0 = stablehlo.constant dense<{}> : tensor<{}>\n"
        convert = "%1 = stablehlo.convert %0 : (tensor<4x{0}>) -> tensor<4xf32>\n"
        narrow = "%0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xf8E4M3FNUZ>\n"
        large = "%1 = stablehlo.slice %0 [0:4] : (tensor<1099511627776xf32>) -> tensor<4xf32>\n"
        for lines, wanted in (
            (narrow + convert.format("f8E4M3FNUZ"), "no dtype for tensor<4xf8E4M3FNUZ>"),
            (constant.format("1.0", "1099511627776xf32") + large, "has more than 2 GiB"),
        ):
            with self.subTest(wanted):
                text = f"func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n{lines}return %1 : tensor<4xf32>\n}}\n"
                found = self.refused(text)
                self.assertTrue(
                    found.startswith("program.mlir: TensorFlow can't convert this program\n\n    error: "), found
                )
                self.assertIn(wanted, found)

    def test_one_device(self) -> None:
        """In a program of one device, ranks are zero, and collectives give back what they take."""
        exported = self.exported(
            """
            module attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
              func.func public @main(%0: tensor<4xf32>) -> (tensor<4xf32>, tensor<ui32>) {
                %1 = "stablehlo.all_gather"(%0) <{all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>}>
                  : (tensor<4xf32>) -> tensor<4xf32>
                %2 = stablehlo.partition_id : tensor<ui32>
                %3 = stablehlo.replica_id : tensor<ui32>
                %4 = stablehlo.add %2, %3 : tensor<ui32>
                return %1, %4 : tensor<4xf32>, tensor<ui32>
              }
            }
            """
        )
        self.assertEqual(exported.manifest.replicas, 1)
        goldens = exported.goldens(strict=False)
        (given,) = exported.golden_inputs.values()
        np.testing.assert_array_equal(goldens["step0/output_0"], given)
        self.assertEqual(goldens["step0/output_1"], 0)

    def test_groups(self) -> None:
        """Groups in which not every device is are an error with the line."""
        text = self.refused(
            """
            module attributes {mhlo.num_partitions = 4 : i32} {
              func.func public @main(%0: tensor<4xf32>) -> tensor<8xf32> {
                %1 = "stablehlo.all_gather"(%0) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]>
                  : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<8xf32> loc("net.py":7:3)
                return %1 : tensor<8xf32>
              }
            }
            """
        )
        self.assertIn(
            "error: all_gather in the groups [[0, 1]], in which not each of 4 replicas is once, at net.py:7", text
        )

    def test_collective_in_a_case(self) -> None:
        """A branch that replicas don't all take can't exchange values with them."""
        text = self.refused(
            """
            module attributes {mhlo.num_partitions = 2 : i32} {
              func.func public @main(%0: tensor<4xf32>, %1: tensor<i32>) -> tensor<4xf32> {
                %2 = "stablehlo.case"(%1) ({
                  %3 = "stablehlo.collective_permute"(%0) <{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}>
                    : (tensor<4xf32>) -> tensor<4xf32>
                  stablehlo.return %3 : tensor<4xf32>
                }, {
                  stablehlo.return %0 : tensor<4xf32>
                }) : (tensor<i32>) -> tensor<4xf32> loc("net.py":7:3)
                return %2 : tensor<4xf32>
              }
            }
            """
        )
        self.assertIn("error: case decides whether replicas exchange values; all must do so equally often", text)

    def test_line_of_a_refusal(self) -> None:
        """A refusal has the line in the program's locations: the innermost that isn't in a package."""
        text = self.refused(
            """
            #call = loc("main.py":30:1)
            module attributes {mhlo.num_partitions = 2 : i32} {
              func.func public @main(%0: tensor<4xf32>, %1: tensor<i1>) -> tensor<4xf32> {
                %2 = "stablehlo.if"(%1) ({
                  %3 = "stablehlo.collective_permute"(%0) <{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}>
                    : (tensor<4xf32>) -> tensor<4xf32>
                    loc("axis"(callsite("f"("/lib/site-packages/jax/a.py":1:2) at callsite("g"("net.py":7:3 to :9) at #call))))
                  stablehlo.return %3 : tensor<4xf32>
                }, {
                  stablehlo.return %0 : tensor<4xf32>
                }) : (tensor<i1>) -> tensor<4xf32>
                return %2 : tensor<4xf32>
              }
            }
            """
        )
        self.assertRegex(text, r"CollectivePermute '\w+' at net\.py:7 is under a condition\n")

    def test_ill_formed(self) -> None:
        """An operation on values of other types shows MLIR's own message."""
        self.assertIn(
            "error: ",
            self.refused("func.func @main(%0: tensor<f32>) -> tensor<2xf32> {\n  return %0 : tensor<f32>\n}\n"),
        )


if __name__ == "__main__":
    unittest.main()
