"""A graph that was converted from a program, compared with XLA's run of that program."""

from __future__ import annotations

import unittest
from pathlib import Path

import numpy as np

from tests.stages.harness import Exported, StageTest
from tfaot.export.sources.model import Model

PROGRAM = """\
module {
  func.func @main(%x: tensor<4xf32> loc("x"), %on: tensor<4xi1> loc("on")) -> (tensor<4xf32>, tensor<4xbf16>, tensor<4xi32>) {
    %half = stablehlo.constant dense<[0.5, 0.25, -0.5, 2.0]> : tensor<4xf32>
    %scaled = stablehlo.multiply %x, %half : tensor<4xf32>
    %chosen = stablehlo.select %on, %scaled, %x : tensor<4xi1>, tensor<4xf32>
    %short = stablehlo.convert %chosen : (tensor<4xf32>) -> tensor<4xbf16>
    %whole = stablehlo.convert %on : (tensor<4xi1>) -> tensor<4xi32>
    return %chosen, %short, %whole : tensor<4xf32>, tensor<4xbf16>, tensor<4xi32>
  }
}
"""


SUMS = """\
module {
  func.func @main(%x: tensor<64x64xf32>) -> tensor<62x64xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %sums = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 3, 1>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %sum = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %sum : tensor<f32>
    }) : (tensor<64x64xf32>, tensor<f32>) -> tensor<62x64xf32>
    return %sums : tensor<62x64xf32>
  }
}
"""
"""An operation that isn't converted, and that sums inputs without errors."""


class ProgramTest(StageTest):
    """The comparison with the program."""

    def exported(self, program: str = PROGRAM) -> Exported:
        """Exports the program."""
        path = self.folder / "program.mlir"
        path.write_text(program)
        return self.export(Model(stablehlo=str(path)), golden_steps=2)

    def test_same(self) -> None:
        """The graph of a program passes, with dtypes that C++ lacks too."""
        written = self.exported().goldens(program=self.folder / "program.mlir")
        self.assertLessEqual({"step0/output_0", "step1/output_1", "step1/output_2"}, set(written))

    def test_sums(self) -> None:
        """The tolerance of a sum doesn't shrink where terms cancel, also if the sum isn't one of TensorFlow's ops."""
        exported = self.exported(SUMS)
        self.assertIn(b"XlaCallModule", Path(exported.path("graph")).read_bytes())
        goldens = exported.goldens(program=self.folder / "program.mlir")
        value, tolerance = goldens["step0/output"], goldens["step0/output/tolerance"]
        largest = float(np.abs(value).max())
        self.assertLess(float(np.abs(value).min()), 1e-3 * largest)
        self.assertGreater(float(tolerance.min()), 1e-8 * largest)
        self.assertLess(float(tolerance.max()), 1e-5 * largest)

    def test_different(self) -> None:
        """A graph that computes something else than the program never gives goldens. The error shows a value of each."""
        exported = self.exported()
        other = self.folder / "other.mlir"
        other.write_text(PROGRAM.replace("[0.5, 0.25, -0.5, 2.0]", "[0.5, 0.25, -0.5, 2.1]"))
        text = self.error_of(exported.goldens, program=other).replace(str(self.folder) + "/", "")
        self.assertRegex(
            text,
            r"^t::Model: the graph doesn't compute what other.mlir does: 2 output\(s\) differ\n"
            r"  found: output_0: value 3 is \S+ in the program, and \S+ in the graph, output_1: value 3 is \S+ in the program, "
            r"and \S+ in the graph\n"
            r"  to do: report it to rules_tfaot, with the program$",
        )
        self.assertFalse(Path(exported.path("goldens")).exists())


if __name__ == "__main__":
    unittest.main()
