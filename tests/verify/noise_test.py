"""Graphs with noise, on protos made by hand."""

from __future__ import annotations

import unittest

from tfaot.core import environment

environment.prepare()

from tensorflow.core.framework import graph_pb2, types_pb2  # noqa: E402

from tfaot.verify.noise import noisy  # noqa: E402


class NoiseTest(unittest.TestCase):
    def test_every_result_of_a_function(self) -> None:
        """Protects tolerances: a function of many results returns all of them with noise."""
        graph = graph_pb2.GraphDef()
        function = graph.library.function.add()
        function.signature.name = "f"
        function.signature.input_arg.add(name="x", type=types_pb2.DT_FLOAT)
        for index in range(32):
            function.node_def.add(name=f"exp_{index}", op="Exp", input=["x"]).attr["T"].type = types_pb2.DT_FLOAT
            function.signature.output_arg.add(name=f"result_{index}", type=types_pb2.DT_FLOAT)
            function.ret[f"result_{index}"] = f"exp_{index}:y:0"
        (changed,) = [each for each in noisy(graph, precise=False).graph.library.function if each.signature.name == "f"]
        self.assertEqual({value.split("_")[:2] == ["tfaot", "noise"] for value in changed.ret.values()}, {True})


if __name__ == "__main__":
    unittest.main()
