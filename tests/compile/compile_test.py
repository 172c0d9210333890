"""The compile stage with the real compiler: its errors, its loops, its names, and that its outputs are reproducible."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from tests.stages import harness
from tests.stages.harness import PREAMBLE, Exported, StageTest, run_main
from tfaot.compile import compile as compiler
from tfaot.compile.program import cost
from tfaot.core import fingerprint, isolate
from tfaot.core.errors import TfaotError
from tfaot.core.fingerprint import Stamp
from tfaot.core.functions import functions
from tfaot.export.sources.model import Model
from tfaot.xla import module

if TYPE_CHECKING:
    pass

OUTPUTS = ("object", "constants", "fingerprint", "fingerprint_source", "header", "source", "hlo", "passes")

PLUS_ONE = PREAMBLE + "def model_fn(x, n):\n    return x + 1\n"

STEP = """\
    with tf.control_dependencies([v1.train.GradientDescentOptimizer(0.1).minimize(loss)]):
        return tf.identity(loss)
"""
"""Ends a `model_fn` with a training step."""

LOOPS = (
    PREAMBLE
    + """\
def model_fn(x, n):
    w = v1.get_variable("w", [2])
    y = tf.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, tf.tanh(v * w)), (0, x), maximum_iterations=3)[1]
    y = tf.while_loop(
        lambda i, v: i < n,
        lambda i, v: (i + 1, tf.tanh(v * w)),
        (0, y),
        # here
    )[1]
    loss = tf.reduce_sum(y)
"""
    + STEP
)
"""Two loops with gradients. The second, at line 13, has no bound."""

RECURRENT = (
    """\
import tensorflow as tf

v1 = tf.compat.v1
tanh = tf.tanh


def input_fn():
    return v1.placeholder(tf.float32, [2, 4, 3], "x"), v1.placeholder(tf.int32, [2], "lengths")


def model_fn(x, lengths):
    w = v1.get_variable("w", [3])
    cell = v1.nn.rnn_cell.GRUCell
    loss = tf.reduce_sum(%s)
"""
    + STEP
)

AWKWARD = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    names = ("data", "class", "Run", "a.b/c-1", "1st")
    return [v1.placeholder(tf.float32, [2], name) for name in names], ()


def model_fn(xs, _):
    w = v1.get_variable("layer.1/w-2/3", [2])
    v = v1.get_variable("0/data", [2])
    with tf.control_dependencies([w.assign_add(xs[0] * v)]):
        return {"operator": xs[1] + w, "result/0": xs[2] * xs[3] * xs[4]}
"""

FLAGS = (
    PREAMBLE
    + """\
def model_fn(x, n):
    a = v1.get_variable("variable1", [2])
    b = v1.get_variable("layer/b.c-1", [2])
    with tf.control_dependencies([a.assign_add(x)]):
        return x * b
"""
)
"""A variable that is written and has the compile stage's name for another one, and a variable that isn't written."""


SEVERAL = """\
import tensorflow as tf


class Model(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.ones([256, 128]), name="Run")

    @tf.function(input_signature=[tf.TensorSpec([None, 256], tf.float32, name="forward")])
    def forward(self, x):
        return {"forward": tf.nn.relu(tf.matmul(x, self.w)), "class": x}

    @tf.function(input_signature=[tf.TensorSpec([None, 128], tf.float32, name="1st")])
    def scale(self, x):
        return x * self.w[0]


model = Model()
"""
"""Two entry points that share a variable, with names that aren't C++ identifiers."""

WEIGHTS = """\
import tensorflow as tf

weights = tf.random.stateless_normal((256, 128), seed=(1, 2))


@tf.function(input_signature=[tf.TensorSpec((8, 256), tf.float32, "x")])
def model(x):
    return tf.nn.relu(tf.matmul(x, weights))
"""
"""A product with a constant."""


class CompileTest(StageTest):
    """Calls the stages on one model after another."""

    def refused(self, exported: Exported, **options: object) -> str:
        """Compiles what can't be compiled, and returns the error. Nothing may be left behind."""
        before = sorted(os.listdir(exported.folder))
        with self.assertRaises(TfaotError) as raised:
            self.compile(exported, **options)  # type: ignore[arg-type]
        self.assertEqual(sorted(os.listdir(exported.folder)), before, "a failed compilation wrote something")
        return str(raised.exception)

    def compiled(self, model: str) -> Exported:
        """Exports and compiles. Returns where the outputs are."""
        exported = self.export(model)
        self.compile(exported)
        for output in OUTPUTS:
            self.assertGreater(os.path.getsize(exported.path(output)), 0, output)
        return exported


class ErrorsTest(CompileTest):
    """Complete messages: what was asked, what was found, what to do."""

    def test_unknown_cpu(self) -> None:
        """A CPU that would kill the compiler, above all `native`, is refused with the levels that exist."""
        self.assert_error(
            self.refused(self.export(PLUS_ONE), isa=("x86-64-v2", "native")),
            """
            'native' isn't a CPU level that the rules can compile for
              found: x86-64, x86-64-v2, x86-64-v3, x86-64-v4, armv8-a, armv8.2-a+dotprod+fp16
              to do: name one or more of these
            """,
        )

    def test_no_list_of_levels(self) -> None:
        """A list of levels names each once, lowest first, as the class that chooses among them expects."""
        exported = self.export(PLUS_ONE)
        for isa in ((), ("x86-64-v2", "x86-64-v2"), ("x86-64-v3", "x86-64"), ("x86-64", "armv8-a")):
            self.assert_error(
                self.refused(exported, isa=isa),
                f"""
                cpu = {json.dumps(isa)} isn't a valid list of CPU levels
                  found: x86-64, x86-64-v2, x86-64-v3, x86-64-v4, armv8-a, armv8.2-a+dotprod+fp16
                  to do: name at least one, each only once, lowest first, all of one architecture
                """,
            )

    def test_unknown_flag(self) -> None:
        """A flag that XLA doesn't know kills its process, but is still one clear error without leftovers."""
        self.assert_error(
            self.refused(self.export(PLUS_ONE), xla_flags=("--xla_cpu_use_fusion_emitters=true", "--xla_typo=1")),
            """
            compiling t::Model: XLA doesn't know --xla_typo=1
              found: xla_flags: --xla_cpu_use_fusion_emitters=true, --xla_typo=1
              to do: correct or remove it in the target's xla_flags; the XLA in the TensorFlow wheel defines the flags
            """,
        )

    def test_dump_elsewhere(self) -> None:
        """Users can dump where they want, and no module, which would switch all passes off, is an error and not slow code."""
        exported = self.export(PLUS_ONE)
        self.compile(exported)
        before = Path(exported.path("source")).read_bytes(), Path(exported.path("program")).read_bytes()
        for each in (self.export(PLUS_ONE, cpp_class="t::Other"), exported, exported):  # beside earlier dumps
            self.compile(each, xla_flags=(f'--xla_dump_to="{self.folder}/a dump"',))
        after = Path(exported.path("source")).read_bytes(), Path(exported.path("program")).read_bytes()
        self.assertEqual(after, before)
        self.assert_error(
            self.refused(exported, xla_flags=("--xla_dump_hlo_module_re=none",)),
            f"""
            t::Model: the compiler dumped 0 modules cpu_after_optimizations instead of one
              found: looked for *.cpu_after_optimizations.hlo.pb or *.cpu_aot_after_optimizations.hlo.pb, as TensorFlow {exported.manifest.tensorflow} should write
              to do: remove --xla_dump_… from the target's xla_flags, except --xla_dump_to; if there is none, use a TensorFlow that docs/reference/tensorflow_versions.md names
            """,  # noqa: E501
        )

    def test_other_output(self) -> None:
        """Another TensorFlow, whose module doesn't have the header's kernels, is an error and not slow code."""
        from tensorflow.compiler.xla.service import hlo_pb2

        exported = self.export(PLUS_ONE)
        read = module.without_arrays

        def renamed(data: bytes) -> bytes:
            proto = hlo_pb2.HloProto.FromString(read(data))
            proto.hlo_module.name = "other"
            return proto.SerializeToString()

        with mock.patch.object(module, "without_arrays", renamed):  # the compiler's child inherits it
            first, found, _ = self.refused(exported).splitlines()
        self.assertEqual(first, "t::Model: the optimized module doesn't have 1 kernels that tfcompile's header calls")
        self.assertIn("looked for ", found)
        self.assertIn(f"_fusion in other, by TensorFlow {exported.manifest.tensorflow}", found)

    def test_main_prints_one_message(self) -> None:
        """The stage's program exits with status 1 and prints only the message: no traceback, no TensorFlow log."""
        exported = self.export(PLUS_ONE)
        flags = [f"--{name}={exported.path(name)}" for name in ("manifest", "graph", "config", "sources")]
        several = {"object": "objects", "source": "sources"}
        flags += [f"--out_{several.get(name, name)}={exported.path(name)}" for name in OUTPUTS]
        result = run_main("compile", *flags, "--cpu=x86-64-v3", "--xla_flags=--xla_typo=1")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertEqual(
            result.stderr.splitlines()[0], "error: compiling t::Model: XLA doesn't know --xla_typo=1", result.stderr
        )
        self.assertEqual(len(result.stderr.splitlines()), 3, result.stderr)

    def test_unsupported_op(self) -> None:
        """An op that XLA lacks is named with its node and the user's line, also where TensorFlow names only its type."""
        plain = "def model_fn(x, n):\n    text = tf.strings.as_string(x)\n    return tf.strings.to_number(text)\n"
        function = """\
def model_fn(x, n):
    @tf.function
    def inner(values):
        values = values * 2
        return tf.strings.to_number(tf.strings.as_string(values))

    return inner(x)
"""
        loop = """\
def model_fn(x, n):
    def body(i, v):
        return i + 1, tf.strings.to_number(tf.strings.as_string(v))

    return tf.while_loop(lambda i, v: i < n, body, (0, x))[1]
"""
        for body, scope, line in ((plain, "", 11), (function, "__inference_inner_N/", 14), (loop, "while_body_N/", 12)):
            text = self.refused(self.export(PREAMBLE + body))
            with self.subTest(scope):
                self.assert_error(
                    re.sub(r"(inner|while_body)_\d+", r"\1_N", text),
                    f"""
                    t::Model: XLA can't compile AsString

                        AsString '{scope}AsString' at model.py:{line}

                      found: it computes on strings
                      to do: handle strings where you prepare the inputs, and feed numbers; the check lists all that doesn't \
compile, and tf_aot_clusters compiles the rest (docs/guide/diagnostics.md)
                    """,
                )

    def test_unsupported_dtype(self) -> None:
        """An op that XLA supports only for other dtypes is named with the dtype, and with only the nodes of this dtype."""
        model = """\
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([2, 2], tf.uint8, "x")])
def model(x):
    square = tf.matmul(tf.cast(x, tf.float32), tf.ones([2, 2]))
    return square + tf.cast(tf.matmul(x, x), tf.float32)
"""
        self.assert_error(
            self.refused(self.export(model)),
            """
            t::Model: XLA can't compile MatMul of uint8

                MatMul 'MatMul_1' at model.py:7

              to do: cast its operands to a dtype that XLA supports, such as float32 or int32; the check lists \
all that doesn't compile, and tf_aot_clusters compiles the rest (docs/guide/diagnostics.md)
            """,
        )

    SLICES = """\
import tensorflow as tf


class Model(tf.Module):
    def __init__(self):
        self.v = tf.Variable(tf.ones([4, 2]))

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "i"), tf.TensorSpec([2], tf.float32, "row")])
    def call(self, i, row):
        %s
        return self.v.read_value()


model = Model()
"""

    def test_slice_assigned_at_a_traced_index(self) -> None:
        """A slice assignment at a run-time index is refused with rewrites, all of which compile."""
        exported = self.export(self.SLICES % "self.v[i].assign(row)", entry_points=(("Run", "call"),))
        self.assert_error(
            self.refused(exported),
            """
            t::Model: the index of a slice assignment is known only at run time

                'strided_slice/_assign' at model.py:10

              to do: write rows by index: variable.scatter_nd_update([[i]], [row]), or tf.tensor_scatter_nd_update(tensor, [[i]], \
[row]); for n rows starting at i, the indices are (i + tf.range(n))[:, None]
            """,
        )
        for rewrite in (
            "self.v.scatter_nd_update([[i]], [row])",
            "self.v.assign(tf.tensor_scatter_nd_update(self.v, [[i]], [row]))",
            "self.v.scatter_nd_update((i + tf.range(2))[:, None], [row, row])",
        ):
            with self.subTest(rewrite):
                self.compile(self.export(self.SLICES % rewrite, entry_points=(("Run", "call"),)))

    def test_argument_that_must_be_constant(self) -> None:
        """An argument that is computed from an input is named with its op and line, and what it can be computed from."""
        body = (
            "def model_fn(x, n):\n    return tf.reduce_sum(tf.one_hot(n, 3, axis=0) * tf.reverse(tf.range(3.0), [n]))\n"
        )
        self.assert_error(
            self.refused(self.export(PREAMBLE + body)),
            """
            t::Model: argument 1 of ReverseV2 'ReverseV2' must be known at build time

                'ReverseV2' at model.py:11

              to do: compute it from Python numbers, constants, and shapes, not from inputs, variables, or random values
            """,
        )

    def test_unsupported_thunk(self) -> None:
        """An op that XLA refuses only after it has written the object is named with its line, and no object stays."""
        body = "from tensorflow.compiler.tf2xla.ops import gen_xla_ops\n\n\n"
        body += "def model_fn(x, n):\n    return x + gen_xla_ops.xla_recv(tf.float32, 'a', [2])\n"
        self.assert_error(
            self.refused(self.export(PREAMBLE + body)),
            """
            t::Model: XLA can't compile recv ahead of time

                XlaRecv 'XlaRecv' at model.py:14

              found: XLA's ahead-of-time compiler has no code for talking to other devices
              to do: exchange values by an op that compiles (docs/guide/distributed.md), such as those of tf.distribute, \
or between two entry points; the check lists all that doesn't compile, and tf_aot_clusters compiles the rest \
(docs/guide/diagnostics.md)
            """,
        )

    def test_unbounded_loop(self) -> None:
        """A gradient through an unbounded loop names this loop's line, not the bounded one's, and the fix."""
        text = self.refused(self.export(LOOPS))
        self.assert_error(
            text,
            """
            t::Model: the gradient of a loop needs the loop's maximum number of iterations

                While 'while_1' at model.py:13

              to do: pass maximum_iterations to the tf.while_loop, and a size to each tf.TensorArray, as a Python integer or \
from a static shape
            """,
        )


class ClaimsTest(CompileTest):
    """Shapes and dtypes that a model claims but doesn't have. The class would access memory out of bounds."""

    DO = (
        "correct the shape or dtype that the model declares: TensorFlow doesn't check tf.Tensor.set_shape and the signature of "
        "a SavedModel; it checks tf.ensure_shape and tf.reshape"
    )

    def test_set_shape(self) -> None:
        """A result that claims to be larger than it can be is refused, whatever its name."""
        model = """\
import tensorflow as tf

@tf.function(input_signature=[tf.TensorSpec([8], tf.float32, "x")])
def model(x):
    found = tf.where(x > 0)
    found.set_shape([1000, 1])
    return {"found": found, "x": x + 1}
"""
        self.assert_error(
            self.refused(self.export(model)),
            f"""
            t::Model::Run: the compiled function doesn't match the model: 1 difference(s)

                the result 'found:0' is int64[8, 1]; the model says int64[1000, 1]

              to do: {self.DO}
            """,
        )

    def test_attributes_of_a_graph(self) -> None:
        """A graph itself declares what its loops return, and its author can be wrong: XLA's shapes decide."""
        import tensorflow as tf
        from tensorflow.core.framework import graph_pb2

        path = self.folder / "graph.pb"

        def save() -> None:
            tf.compat.v1.enable_control_flow_v2()
            with tf.Graph().as_default() as graph:
                x = tf.compat.v1.placeholder(tf.float32, [4], "x")
                n = tf.compat.v1.placeholder(tf.int32, [], "n")
                y = tf.while_loop(lambda i, _: i < n, lambda i, v: (i + 1, v * 2), (0, x))[1]
                tf.identity(y, "y")
            path.write_bytes(graph.as_graph_def().SerializeToString())

        isolate.run_isolated(save, what="saving")
        graph = graph_pb2.GraphDef.FromString(path.read_bytes())
        (loop,) = (node for node in graph.node if node.op in ("While", "StatelessWhile"))
        for shape in loop.attr["output_shapes"].list.shape:
            if shape.dim:
                shape.dim[0].size = 1 << 20
        path.write_bytes(graph.SerializeToString())
        text = self.refused(self.export(Model(graph=str(path), inputs=("x", "n"), outputs=("y",))))
        self.assertIn("the result 'y:0' is float32[4]; the model says float32[1048576]", text)

    def test_every_value_is_compared(self) -> None:
        """Inputs, outputs, and variables, read and written, are compared by dtype and each size, at any batch size."""
        exported = self.export(FLAGS)
        path = Path(exported.path("manifest"))
        manifest = exported.manifest
        entry = manifest.entry_points[0]
        a, b = manifest.variables
        path.write_text(
            dataclasses.replace(
                manifest,
                entry_points=(
                    dataclasses.replace(
                        entry,
                        inputs=(dataclasses.replace(entry.inputs[0], shape=(3,)), entry.inputs[1]),
                        outputs=(dataclasses.replace(entry.outputs[0], dtype="int32", stored="int32"),),
                    ),
                ),
                variables=(dataclasses.replace(a, shape=(2, 1)), dataclasses.replace(b, dtype="bool", stored="bool")),
            ).to_json()
        )
        self.assert_error(
            self.refused(exported),
            f"""
            t::Model::Run: the compiled function doesn't match the model: 5 difference(s)

                the argument 'x:0' is float32[2]; the model says float32[3] at model.py:7
                the argument 'variable1' is float32[2]; the model says float32[2, 1] at model.py:11
                the argument 'layer/b.c-1' is float32[2]; the model says bool[2] at model.py:12
                the result 'mul:0' is float32[2]; the model says int32[2] at model.py:14
                the result 'variable1' is float32[2]; the model says float32[2, 1] at model.py:11

              to do: {self.DO}
            """,
        )
        batches = self.export(SEVERAL, batch_sizes=(1, 64), entry_points=(("forward", "forward"),))
        path = Path(batches.path("manifest"))
        manifest = batches.manifest
        entry = manifest.entry_points[0]
        relu, x = entry.outputs
        changed = dataclasses.replace(entry, outputs=(dataclasses.replace(relu, shape=(64, 129)), x))
        path.write_text(dataclasses.replace(manifest, entry_points=(changed,)).to_json())
        self.assertIn("is float32[1, 256]; the model says float32[1, 129]", self.refused(batches, batch=1))

    def test_missing_values(self) -> None:
        """A module whose number of arguments or results differs from the manifest is refused."""
        exported = self.export(FLAGS)
        entry = exported.manifest.entry_points[0]
        changed = dataclasses.replace(entry, outputs=(), variables=entry.variables[:1])
        Path(exported.path("manifest")).write_text(
            dataclasses.replace(exported.manifest, entry_points=(changed,)).to_json()
        )
        text = self.refused(exported)
        self.assertIn("4 arguments; the model has 3", text)
        self.assertIn("2 results; the model has 1", text)


class KilledTest(CompileTest):
    """Children that die: from user code in the export stage, and from the compiler in this one."""

    def test_compiler_killed(self) -> None:
        """A compiler that is killed halfway, for example for lack of memory, is reported with the signal and leaves nothing."""

        def die(request: compiler.Request, manifest: object) -> None:
            del manifest
            Path(request.out_objects[0]).write_text("half")
            os.write(2, b"last words\n")
            os.kill(os.getpid(), signal.SIGKILL)

        with mock.patch.object(compiler, "_compile", die):
            text = self.refused(self.export(PLUS_ONE), xla_flags=("--xla_cpu_use_fusion_emitters=true",))
        self.assert_error(
            text,
            """
            compiling t::Model for x86-64-v3: the compiler was killed by SIGKILL

                last words

              found: XLA flags: --xla_cpu_use_fusion_emitters=true
              to do: look for an unknown flag, or for an op that XLA can't compile, in the compiler's last lines above
            """,
        )

    def test_temporary_folder_of_any_name(self) -> None:
        """Protects builds whose TMPDIR contains spaces or quotes: XLA gets folders through an environment variable."""
        folder = self.folder / "a b \"c\" 'd' \\e"
        folder.mkdir()
        exported = self.export(WEIGHTS)
        with mock.patch.object(tempfile, "tempdir", str(folder)):
            self.compile(exported)
        self.assertEqual(json.loads(Path(exported.path("passes")).read_text())["epilogues"], 1)

    def test_earlier_outputs_stay(self) -> None:
        """A failed compilation doesn't touch an earlier one's outputs, or a cache would contain a mixture."""
        exported = self.compiled(PLUS_ONE)
        before = {output: Path(exported.path(output)).read_bytes() for output in OUTPUTS}
        self.refused(exported, xla_flags=("--xla_typo=1",))
        self.assertEqual(before, {output: Path(exported.path(output)).read_bytes() for output in OUTPUTS})

    def test_user_code_killed(self) -> None:
        """User code that is killed is reported with the signal, and no output is written."""
        text = self.error_of(self.export, "import os\n\nos.kill(os.getpid(), 9)\n")
        self.assert_error(
            text,
            """
            exporting model.py: the process was killed by SIGKILL
              to do: see the end of its output above; a model that ends the process (sys.exit, os._exit, os.abort, out of \
memory) can't be exported
            """,
        )
        self.assertEqual([path.name for path in self.folder.glob("*/*")], ["model.py"])

    def test_user_code_aborts(self) -> None:
        """User code that aborts is reported with the signal and the responsible Python line."""
        text = self.error_of(self.export, PREAMBLE + "def model_fn(x, n):\n    import os\n\n    os.abort()\n")
        self.assertTrue(text.startswith("exporting model.py: the process was killed by SIGABRT\n"), text)
        self.assertIn('model.py", line 13 in model_fn\n', text)
        self.assertEqual([path.name for path in self.folder.glob("*/*")], ["model.py"])


class LoopsTest(CompileTest):
    """Loops and their gradients, which TensorFlow builds differently for XLA."""

    def test_bounded_loop(self) -> None:
        """The loop of `test_unbounded_loop` compiles with what its message advises."""
        self.compiled(LOOPS.replace("# here", "maximum_iterations=5,"))

    def test_map_fn(self) -> None:
        """The gradient of tf.map_fn compiles."""
        self.compiled(RECURRENT % "tf.map_fn(lambda row: tf.reduce_sum(row * w), x[0])")

    def test_scan(self) -> None:
        """The gradient of tf.scan compiles."""
        self.compiled(RECURRENT % "tf.scan(lambda state, row: tanh(state * w + row), x[0])")

    @harness.wide
    def test_bidirectional(self) -> None:
        """A bidirectional RNN with fed sequence lengths compiles with its gradient."""
        rnn = "v1.nn.bidirectional_dynamic_rnn(cell(2), cell(2), x, lengths, dtype=tf.float32)[0]"
        self.compiled(RECURRENT % rnn)

    def test_fed_sequence_length(self) -> None:
        """A dynamic RNN with fed sequence lengths compiles with its gradient."""
        self.compiled(RECURRENT % "v1.nn.dynamic_rnn(cell(2), x, sequence_length=lengths, dtype=tf.float32)[0]")

    def test_context_is_restored(self) -> None:
        """TensorFlow assumes an XLA context only while the graph is built, even if building it fails."""

        def work() -> list[bool]:
            from tensorflow.python.ops import control_flow_util as tensorflows
            from tf_keras.src.utils import control_flow_util as kerass

            from tfaot.export.sources.xla_context import xla_context

            before = [module.GraphOrParentsInXlaContext for module in (tensorflows, kerass)]
            inside: list[bool] = []
            try:
                with xla_context():
                    inside += [module.GraphOrParentsInXlaContext(None) for module in (tensorflows, kerass)]
                    raise KeyError
            except KeyError:
                after = [module.GraphOrParentsInXlaContext for module in (tensorflows, kerass)]
            return [*inside, before == after]

        self.assertEqual(isolate.run_isolated(work, what="entering the context"), [True, True, True])


class OutputsTest(CompileTest):
    """The stage's outputs."""

    def test_vectors(self) -> None:
        """At x86-64-v4, XLA's kernels use vectors of 64 bytes if there are many weights, and of 32 bytes otherwise."""
        for size, wide in ((4096, False), (16384, True)):
            exported = self.export(
                PREAMBLE + f"def model_fn(x, n):\n    return x[0] * tf.constant([i % 7.0 for i in range({size})])\n"
            )
            self.compile(exported, isa=("x86-64-v4",))
            code = subprocess.run(
                ["objdump", "-d", exported.path("object")], check=True, stdout=subprocess.PIPE, text=True
            ).stdout
            self.assertEqual("%zmm" in code, wide, size)

    def test_gathers(self) -> None:
        """At x86-64-v4, no instruction reads or writes several places: on AMD's CPUs, it takes longer than single ones."""
        exported = self.export(
            PREAMBLE
            + """\
def model_fn(x, n):
    rows = tf.constant([i % 7.0 for i in range(256 * 512)], shape=[256, 8, 64]) * tf.reshape(x[0], [1, 1, 1])
    return tf.transpose(tf.concat([rows, rows[:1] + 1.0], 0), [1, 2, 0]) * 2.0
"""
        )
        self.compile(exported, isa=("x86-64-v4",))
        code = subprocess.run(
            ["objdump", "-d", exported.path("object")], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        self.assertIn("%ymm", code)
        self.assertNotRegex(code, "vp?(gather|scatter)")

    def test_names(self) -> None:
        """Keywords, member names, `/ . -`, and digits compile in names of inputs, outputs, and variables."""
        exported = self.compiled(AWKWARD)
        self.assertEqual(
            exported.cpp_names,
            {
                "data:0": "data",
                "class:0": "class_",
                "Run:0": "Run_2",
                "a.b/c-1:0": "a_b_c_1",
                "1st:0": "t1st",
                **{output.name: output.cpp_name for output in exported.manifest.entry_points[0].outputs},
                "layer.1/w-2/3": "layer_1_w_2_3",
                "0/data": "t0_data",
            },
        )
        outputs = [output.cpp_name for output in exported.manifest.entry_points[0].outputs]
        self.assertEqual(outputs, ["operator_", "result_0"])
        header = Path(exported.path("header")).read_text()
        self.assertIn("class M1t5Model", header, "the private class, unique to the public one")
        self.assertIn("kNumArgs = 7;", header)

    @harness.wide
    def test_several_functions(self) -> None:
        """Each entry point, and each batch size, is a separate function with its own symbols."""
        entry_points = (("forward", "forward"), ("class", "scale"), ("Run", "scale"))
        exported = self.export(SEVERAL, batch_sizes=(1, 64), entry_points=entry_points)
        named = [(name, batch, ()) for name, _ in entry_points for batch in (1, 64)]
        found = functions(exported.manifest, named)
        self.assertEqual(
            [(function.entry_point.name, function.batch, function.symbol) for function in found],
            [
                (name, batch, f"M1t5Model_{index}_b{batch}")
                for index, (name, _) in enumerate(entry_points)
                for batch in (1, 64)
            ],
        )
        self.assertEqual([entry.cpp_name for entry in exported.manifest.entry_points], ["forward", "class_", "Run"])
        self.assertEqual(
            exported.cpp_names,
            {
                "forward/forward:0": "forward_x",
                "forward/class:0": "forward_class",
                "forward/forward_1:0": "forward_forward",
                "class/1st:0": "class_x",
                "class/output:0": "class_output",
                "Run/1st:0": "Run_x",
                "Run/output:0": "Run_output",
                "Run": "Run_2",
            },
        )
        for function in found:
            name, batch = function.entry_point.name, function.batch
            self.compile(exported, batch=batch, entry_point=name)
            header = Path(exported.path(f"header.{name}.b{batch}")).read_text()
            self.assertIn(f"class {function.symbol} ", header)
            self.assertIn(f"inline constexpr double {function.symbol}_cost = ", header)
            columns = 256 if name == "forward" else 128
            source = Path(exported.path(f"source.{name}.b{batch}")).read_text()
            self.assertIn(f"Program {function.symbol}_x86_64_v3_program = {{", source)
            self.assertRegex(source, rf"\{{1, {batch}, \d+, \d+, |, {4 * batch * columns}u, 0u\}}")

    def test_other_function(self) -> None:
        """A function that isn't in the manifest is refused: the rules, which name files, and the manifest disagree."""
        exported = self.export(PLUS_ONE)
        self.assert_error(
            self.error_of(self.compile, exported, batch=4),
            """
            t::Model: the stage got the wrong functions: the only entry point for batches of 4
              found: the manifest has Run
              to do: name each function of the manifest once: an entry point with one of its batch sizes, or 0 if \
it has none, and a bucket of each of its open sizes
            """,
        )

    def test_fingerprint(self) -> None:
        """The class's fingerprint is a symbol, and a note that stays in programs, also if they don't ask for it or are stripped."""
        from tfaot.core import pass_names

        exported = self.export(SEVERAL, batch_sizes=(1, 64), entry_points=(("forward", "forward"), ("class", "scale")))
        isa = ("x86-64", "x86-64-v3")
        for name, batch in (("class", 1), ("forward", 64), ("forward", 1)):
            self.compile(exported, batch=batch, entry_point=name, isa=isa)
        named = [f"{name}.b{batch}" for name, batch in (("class", 1), ("forward", 64), ("forward", 1))]
        stamps = {Stamp.from_json(Path(exported.path(f"fingerprint.{name}")).read_text(), path=name) for name in named}
        (stamp,) = stamps
        self.assertEqual(
            stamp, fingerprint.stamp(exported.manifest, isa=isa, xla_flags=(), passes=pass_names.chosen(["*"]))
        )
        (source,) = {Path(exported.path(f"fingerprint_source.{name}")).read_text() for name in named}
        symbol = f"tfaot_M1t5Model_fingerprint_{stamp.fingerprint}"
        program = exported.path("program")
        Path(program + ".S").write_text(source)
        Path(program + ".cc").write_text("int main() { return 0; }\n")
        subprocess.run(["c++", "-Wl,--gc-sections", "-o", program, program + ".cc", program + ".S"], check=True)
        listed = subprocess.run(["nm", program], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertRegex(listed, rf"(?m)^[0-9a-f]+ [rR] {symbol}$")
        subprocess.run(["strip", program], check=True)
        notes = subprocess.run(
            ["readelf", "--notes", "--wide", program], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        value = bytes.fromhex(stamp.fingerprint)[::-1].hex(" ")
        self.assertRegex(
            notes, rf"rules_tfaot +0x00000008\t.*description data: {value} *\n", "the value, as it is in memory"
        )

    def test_levels(self) -> None:
        """Each level has its own kernels and program. One header and one object with constants serve all."""
        several = self.export(WEIGHTS)
        isa = ("x86-64", "x86-64-v3", "x86-64-v4")
        self.compile(several, isa=isa)
        alone = self.export(WEIGHTS)
        for level in isa:
            name = f"M1t5Model_{level.replace('-', '_')}"
            self.compile(alone, isa=(level,))
            for output in ("object", "source"):
                found = Path(several.path(f"{output}.{level}")).read_bytes()
                self.assertEqual(found, Path(alone.path(output)).read_bytes(), "other compilations don't matter")
                self.assertIn(name.encode(), found)
            self.assertIn(f"extern const ::tfaot::Program {name}_program;", Path(several.path("header")).read_text())
        self.assertIn(
            'kIsas[] = {"x86-64", "x86-64-v3", "x86-64-v4", nullptr};', Path(several.path("header")).read_text()
        )
        weights = 4 * 256 * 128
        for exported in (several, alone):
            self.assertGreater(os.path.getsize(exported.path("constants")), weights)
            self.assertLess(os.path.getsize(exported.path("constants")), weights + 2000)

    def test_cost(self) -> None:
        """The header estimates a run's cost, which decides how to split a batch: more rows cost more, but less per row."""
        exported = self.export(SEVERAL, batch_sizes=(1, 64), entry_points=(("forward", "forward"),))
        costs = []
        for batch in (1, 64):
            self.compile(exported, batch=batch)
            found = re.search(r"_cost = ([-.e\d]+);", Path(exported.path(f"header.b{batch}")).read_text())
            assert found is not None
            costs.append(float(found[1]))
        self.assertLess(costs[0], costs[1])
        self.assertLess(costs[1] / 64, costs[0] / 4)
        # Reading the weights bounds one row, and arithmetic bounds 64.
        self.assertAlmostEqual(costs[0], cost.CALL + 4 * 256 * 128 / cost.BYTES, delta=costs[0] / 10)
        self.assertAlmostEqual(costs[1], cost.CALL + 2 * 64 * 256 * 128 / cost.FLOPS, delta=costs[1] / 10)

    def test_mean_of_a_sum_is_one_kernel(self) -> None:
        """The compiler fuses the sum of two vectors with its mean. XLA sums many values in parts, in more kernels."""
        source = """
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([SIZE]), tf.TensorSpec([SIZE])])
def model(x, y):
    return tf.reduce_mean(x + y)
"""
        kernels = []
        for size in ("32", "1000"):
            exported = self.export(source.replace("SIZE", size), entry_points=(("Run", "call"),))
            self.compile(exported, passes=())
            calls = re.search(r" kCalls\[\] = \{\n(.*?)\};", Path(exported.path("source")).read_text(), re.DOTALL)
            assert calls is not None
            kernels.append(calls[1].count("\n"))
        self.assertEqual(kernels[0], 1)
        self.assertGreater(kernels[1], 1)

    @harness.wide
    def test_reproducible(self) -> None:
        """Two processes with different hash seeds and folders write the same bytes, in all outputs of both stages."""
        code = """
import sys
from pathlib import Path
from tests.stages.harness import StageTest
StageTest.setUpClass()
test = StageTest()
test.folder = Path(sys.argv[1])
exported = test.export(sys.stdin.read())
test.compile(exported)
print(exported.folder)
"""
        model = RECURRENT % (
            "v1.nn.dynamic_rnn(cell(2), x, lengths, dtype=tf.float32)[0]) + "
            "tf.reduce_sum(tf.map_fn(lambda row: tf.reduce_sum(row * w), x[0]))"
            " + tf.reduce_sum(tf.matmul(tf.reshape(x, [1, 24]), tf.ones([24, 8]))"
        )
        here = self.export(model)
        self.compile(here)
        folder = self.folder / "another/and/longer"
        folder.mkdir(parents=True)
        result = subprocess.run(
            [sys.executable, "-s", "-c", code, str(folder)],
            capture_output=True,
            check=False,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONHASHSEED": "1",  # this process has any other
                "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
            },
            input=model,
            text=True,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        files, others = (
            {path.name: path.read_bytes() for path in written.iterdir()}
            for written in (here.folder, Path(result.stdout.strip()))
        )
        self.assertLessEqual({*OUTPUTS, "graph", "config", "manifest", "variables", "sources"}, files.keys())
        self.assertEqual(sorted(files), sorted(others))
        self.assertEqual([name for name in files if files[name] != others[name]], [])


if __name__ == "__main__":
    unittest.main()
