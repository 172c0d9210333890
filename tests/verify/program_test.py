"""A graph that was converted from a program, compared with XLA's run of that program."""

from __future__ import annotations

import unittest
from pathlib import Path

from tests.stages.harness import Exported, StageTest
from tfaot.core import isolate, safetensors
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


class ProgramTest(StageTest):
    """The comparison with the program."""

    def exported(self) -> Exported:
        """Exports the program."""
        path = self.folder / "program.mlir"
        path.write_text(PROGRAM)
        return self.export(Model(stablehlo=str(path)), golden_steps=2)

    def goldens(self, exported: Exported, program: Path) -> set[str]:
        """Runs the verify stage with a program in a child. Returns what it wrote."""

        def work() -> None:
            from tfaot.verify.goldens import Request, compute_goldens

            compute_goldens(
                Request(
                    manifest=exported.path("manifest"),
                    graph=exported.path("graph"),
                    variables=exported.path("variables"),
                    golden_inputs=exported.path("golden_inputs"),
                    out_goldens=exported.path("goldens"),
                    program=str(program),
                )
            )

        isolate.run_isolated(work, what="computing goldens")
        return set(safetensors.read(exported.path("goldens")))

    def test_same(self) -> None:
        """The graph of a program passes, with dtypes that C++ lacks too."""
        written = self.goldens(self.exported(), self.folder / "program.mlir")
        self.assertLessEqual({"step0/output_0", "step1/output_1", "step1/output_2"}, written)

    def test_different(self) -> None:
        """A graph that computes something else than the program never gives goldens. The error shows a value of each."""
        exported = self.exported()
        other = self.folder / "other.mlir"
        other.write_text(PROGRAM.replace("[0.5, 0.25, -0.5, 2.0]", "[0.5, 0.25, -0.5, 2.1]"))
        text = self.error_of(self.goldens, exported, other).replace(str(self.folder) + "/", "")
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
