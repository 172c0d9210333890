"""Damaged models end in an error that names the cause: what the fuzzer found, and one input for each kind of damage."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2

from tests.fuzz import readers
from tests.stages import harness
from tests.stages.harness import StageTest
from tfaot.core import isolate
from tfaot.core.errors import TfaotError

RECURSIVE = """
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: 2 } } } } }
node { name: "y" op: "f" input: "x" }
library { function {
  signature { name: "f" input_arg { name: "a" type: DT_FLOAT } output_arg { name: "r" type: DT_FLOAT } }
  node_def { name: "n" op: "f" input: "a" }
  ret { key: "r" value: "n:r:0" }
} }
"""


class ReadersTest(StageTest):
    """Inputs of the fuzzer, read as the tool reads them."""

    def message(self, data: bytes) -> str:
        """Exports an input in a child, and returns the error, which names its cause."""
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(TfaotError) as raised:
            isolate.run_isolated(lambda: readers.read_again(data, Path(folder)), what="exporting the input")
        return str(raised.exception)

    def changed(self, *changes: tuple[str, str]) -> str:
        """Returns the error for the fixed graph, after changes of its text."""
        graph = graph_pb2.GraphDef.FromString(readers.fixed_graph())
        text = text_format.MessageToString(graph)
        for before, after in changes:
            self.assertIn(before, text)
            text = text.replace(before, after, 1)
        return self.message(b"\3" + text.encode())

    def test_whole(self) -> None:
        """The inputs that the fuzzer starts from can be read, so that it starts beyond the first error."""

        def work() -> list[str]:
            with tempfile.TemporaryDirectory() as folder:
                inputs = [b"\3" + readers.fixed_graph()]
                inputs += [b"\2" + form + text.encode() for form, text in readers.CONFIGS]
                return [readers.read(data, Path(folder)) for data in inputs]

        self.assertEqual(isolate.run_isolated(work, what="reading"), ["exported"] * 5)

    def test_truncated(self) -> None:
        """Half a file is an error that says that it isn't a graph."""
        self.assertIn("isn't a graph", self.message(b"\3" + readers.fixed_graph()[:-7]))

    def test_flipped(self) -> None:
        """A file with a flipped bit in an operand names the operand."""
        data = readers.fixed_graph()
        at = data.rindex(b"sum")
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        self.assertIn("takes rum", self.message(b"\3" + flipped))

    def test_damaged(self) -> None:
        """Cycles, names and operands without form, huge shapes, and unknown dtypes are named in the error."""
        self.assertIn("waits for itself", self.changed(('input: "x"', 'input: "sum"')))
        self.assertIn("'x:y', which isn't a tensor's name", self.changed(('input: "x"', 'input: "x:y"')))
        self.assertIn("a node is named 'a:b'", self.changed(('name: "y"', 'name: "a:b"')))
        self.assertIn("enum: 99", self.changed(("type: DT_FLOAT", "type: 99")))
        huge = self.changed(("size: 2", "size: 4611686018427387904"))
        self.assertRegex(huge, "4611686018427387904|too large|too many|negative|overflow|isn't|cannot")

    def test_functions(self) -> None:
        """A function that calls itself, and one that is missing, are named in the error."""
        self.assertIn("f", self.message(b"\3" + RECURSIVE.encode()))
        missing = RECURSIVE.partition("library")[0].replace(
            'op: "f" input: "x"',
            'op: "PartitionedCall" input: "x" '
            'attr { key: "Tin" value { list { type: DT_FLOAT } } } attr { key: "Tout" value { list { type: DT_FLOAT } } } '
            'attr { key: "f" value { func { name: "g" } } }',
        )
        self.assertIn("g", self.message(b"\3" + missing.encode()))

    def test_configs(self) -> None:
        """Configs that aren't text are errors that name the file, whether they are whole or to be merged."""
        for form in (b"c", b"p"):
            self.assertIn("config.pbtxt isn't a tf2xla config", self.message(b"\2" + form + b"\xff\xfe"))

    def test_saved_models(self) -> None:
        """A SavedModel whose objects refer to others that aren't there is an error that names one."""
        from tensorflow.core.protobuf import saved_model_pb2

        saved = saved_model_pb2.SavedModel.FromString(readers.saved_models()[0])
        saved.meta_graphs[0].object_graph_def.nodes[0].children[0].node_id = 12345
        self.assertIn("it lacks object 12345", self.message(b"\1" + saved.SerializeToString()))

    def test_entry_points(self) -> None:
        """A function of a SavedModel whose argument could have any dtype is an error that names both."""
        from tensorflow.core.protobuf import saved_model_pb2

        saved = saved_model_pb2.SavedModel.FromString(readers.saved_models()[0])
        (meta_graph,) = saved.meta_graphs
        for function in meta_graph.graph_def.library.function:
            if function.signature.name in meta_graph.object_graph_def.concrete_functions:
                argument = function.signature.input_arg[0]
                argument.type, argument.type_attr = 0, "T"
        message = self.message(b"\1" + saved.SerializeToString())
        self.assertRegex(message, "x of the function .*, which .* calls, has no dtype")

    def test_signatures(self) -> None:
        """A signature of TensorFlow 1 whose dtype doesn't exist is an error with its number and the graph's dtype."""
        from tensorflow.core.protobuf import saved_model_pb2

        saved = saved_model_pb2.SavedModel.FromString(readers.saved_models()[1])
        (signature,) = saved.meta_graphs[0].signature_def.values()
        for edges in signature.inputs, signature.outputs:
            (edge,) = edges.values()
            right, edge.dtype = edge.dtype, 3329
            message = self.message(b"\1" + saved.SerializeToString())
            self.assertRegex(message, "has the wrong dtype 3329\n +found: .* is float32 in the graph")
            edge.dtype = right

    def test_mutants(self) -> None:
        """A few hundred changed inputs, the same ones every time, end as they should."""
        seeds = [data for data in readers.seeds() if len(data) < 3000]
        faults = isolate.run_isolated(lambda: _faults(seeds), what="reading mutants")
        self.assertEqual(faults, [])


def _faults(seeds: list[bytes]) -> list[str]:
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(200):
            data = readers.mutate(seeds[number % len(seeds)], number, lambda part: part[: len(part) // 2])
            try:
                readers.read(data, Path(folder))
            except Exception as error:
                verdicts.append(f"{number}: {error!r}")
    return verdicts


if __name__ == "__main__":
    harness.warm()
    unittest.main()
