"""Each bad input to the export stage ends in one error that says what was asked, what exists, and what to do."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import unittest
from collections.abc import Iterator
from unittest import mock

from tests.stages.harness import EXPORTED, PREAMBLE, ROOT, StageTest, run_main
from tfaot.core import caller, dtypes
from tfaot.export.sources.model import Model


class ErrorsTest(StageTest):
    """Complete messages, as a user reads them."""

    def refused(self, model: str, wanted: str, **request: object) -> None:
        """Exports a model that must be refused with exactly this message."""
        self.assert_error(self.error_of(self.export, model, **request), wanted)

    def test_missing_model_fn(self) -> None:
        """A model without model_fn names the functions that the file does have."""
        self.refused(
            PREAMBLE + "def mdoel_fn(features, labels):\n    return features\n",
            """
            model.py defines neither model_fn(features, labels) nor model
              found: input_fn, mdoel_fn
              to do: name one of these in the target's entry_points, or define model: a function, a tf.function, a tf.Module, a Keras model, or a function without parameters that returns one
            """,  # noqa: E501
        )

    def test_missing_input_fn(self) -> None:
        """A model_fn without inputs says what to define."""
        self.refused(
            "def model_fn(features, labels):\n    return features\n",
            """
            model.py has no function input_fn()
              found: model_fn
              to do: define input_fn() in model.py
            """,
        )

    def test_wrong_signature(self) -> None:
        """A model_fn with other parameters is shown with the expected ones."""
        self.refused(
            PREAMBLE + "def model_fn(features, labels, mode):\n    return features\n",
            """
            model.py:10: model_fn can't be called as model_fn(features, labels): missing a required argument: 'mode'
              found: model_fn(features, labels, mode)
              to do: define it with the parameters (features, labels)
            """,
        )

    def test_input_fn_returns_no_pair(self) -> None:
        """An input_fn that returns only one placeholder is told to return a pair."""
        message = self.error_of(
            self.export,
            "import tensorflow as tf\n\n\ndef input_fn():\n    return tf.compat.v1.placeholder(tf.float32, [2], 'x')\n"
            "\n\ndef model_fn(features, labels):\n    return features\n",
        )
        self.assertTrue(message.startswith("model.py: input_fn() returned "), message)
        self.assertIn(
            "to do: return the pair (features, labels), each a placeholder or a nest of placeholders", message
        )

    def test_no_placeholder(self) -> None:
        """A constant instead of a placeholder is named with its op."""
        self.refused(
            "import tensorflow as tf\n\n\ndef input_fn():\n    return tf.constant(1.0, name='one'), tf.constant(2.0)\n"
            "\n\ndef model_fn(features, labels):\n    return features\n",
            """
            model.py: input_fn() returned something other than a placeholder
              found: 'one:0', the result of a Const
              to do: make each input with tf.compat.v1.placeholder(dtype, shape, name)
            """,
        )

    def test_exception_in_user_code(self) -> None:
        """An exception has the user's own frames, file and line, and none of ours or TensorFlow's."""
        self.refused(
            PREAMBLE
            + "def layer(values):\n    raise ValueError('no such layer')\n\n\n"
            + "def model_fn(features, labels):\n    return layer(features)\n",
            """
            model.py: model_fn(features, labels) raised ValueError at model.py:11

                model.py:15, in model_fn
                    return layer(features)
                model.py:11, in layer
                    raise ValueError('no such layer')
                ValueError: no such layer

              to do: fix model.py:11
            """,
        )

    def test_exception_in_an_extension_module(self) -> None:
        """An extension module names the source that it was compiled from, which isn't a file that the user can fix."""
        message = self.error_of(
            self.export, PREAMBLE + "def model_fn(features, labels):\n    import h5py\n\n    h5py.File('gone.h5')\n"
        )
        self.assertIn("raised FileNotFoundError at model.py:13\n", message)
        self.assertNotIn(".pyx:", message)

    def test_missing_file(self) -> None:
        """For a missing file, the error suggests data, and how to get one that a rule generates."""
        message = self.error_of(self.export, "weights = open('models/weights.txt').read()\n")
        self.assertEqual(
            message.splitlines()[-1],
            "  to do: add the file to the target's data, and open it by its path in the workspace, or fix model.py:1; "
            'a file that a rule generates is at importlib.resources.files("its.package") / "its_name"',
        )

    def test_not_python(self) -> None:
        """A model in a file of another kind is refused by its name, before anything imports it."""
        from tfaot.export.sources.user_code import UserCode

        folder = self.write("")
        (folder / "model.txt").write_text("")
        wanted = f"{folder}/model.txt isn't a Python file\n  to do: name a file that ends in .py"
        self.assertEqual(self.error_of(UserCode, str(folder / "model.txt")), wanted)

    def test_missing_package(self) -> None:
        """For a missing package, the error suggests deps."""
        message = self.error_of(self.export, "import os\nimport no_such_package.part\n")
        self.assertEqual(
            message.splitlines()[-1],
            "  to do: add the library that provides no_such_package to the target's deps, or fix model.py:2",
        )

    def test_syntax_error(self) -> None:
        """A file that doesn't parse names the line."""
        message = self.error_of(self.export, PREAMBLE + "def model_fn(features, labels:\n    return features\n")
        self.assertTrue(message.startswith("model.py: importing it raised SyntaxError at model.py:10\n"), message)
        self.assertIn('File "model.py", line 10', message)
        self.assertTrue(message.endswith("to do: fix model.py:10"), message)

    def test_exit_in_user_code(self) -> None:
        """A model that calls sys.exit, even with 0, doesn't look like a success, and its line is named."""
        for call, shown in (
            ("sys.exit(3)", "SystemExit: 3"),
            ("sys.exit()", "SystemExit"),
            ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ):
            self.refused(
                PREAMBLE + f"import sys\n\n\ndef model_fn(features, labels):\n    {call}\n",
                f"""
                model.py: model_fn(features, labels) raised {shown.partition(":")[0]} at model.py:14

                    model.py:14, in model_fn
                        {call}
                    {shown}

                  to do: fix model.py:14
                """,
            )

    def test_end_without_an_answer(self) -> None:
        """A model that ends the process as if all were well is an error, too."""
        text = self.error_of(self.export, PREAMBLE + "import os\n\nprint('bye', flush=True)\nos._exit(0)\n")
        self.assertRegex(text, r"^exporting model.py: the process exited with status 0\n\n    [^$]*bye\n")

    def test_pipe(self) -> None:
        """A model that is a pipe doesn't wait for a writer that never comes."""
        os.mkfifo(self.folder / "pipe")
        for kind in ("model", "saved_model", "graph", "stablehlo"):
            self.assert_error(
                self.error_of(Model(**{kind: str(self.folder / "pipe")}).open).replace(str(self.folder) + "/", ""),
                """
                pipe can't be a model
                  found: neither a file nor a folder
                  to do: write it to a file first
                """,
            )

    def test_reductions_that_are_lost(self) -> None:
        """A step for several replicas, traced for one, has no all-reduce. That isn't an error, but it isn't silent either."""
        for strategy, warned in (
            ('tf.distribute.MirroredStrategy(["CPU:0"])', "MirroredStrategy"),
            ('tf.distribute.OneDeviceStrategy("CPU:0")', "OneDeviceStrategy"),
            ("tf.distribute.get_strategy()", ""),
        ):
            with self.subTest(strategy), contextlib.redirect_stderr(io.StringIO()) as printed:
                self.export(
                    f"""\
import tensorflow as tf

strategy = {strategy}


def step(x):
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, x * 2.0)


@tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
def model(x):
    return strategy.run(step, (x,))
"""
                )
            found = printed.getvalue()
            if warned:
                self.assertRegex(
                    found,
                    rf"^warning: model.py: tf.distribute.s {warned} has one replica here, .* at model.py:7; .*replicas = 4\n$",
                )
            else:
                self.assertEqual(found, "")

    def test_abort_in_user_code(self) -> None:
        """A crash below Python is reported with its signal and the line that caused it, and leaves no output behind."""
        folder = self.write(PREAMBLE + "import os\n\n\ndef model_fn(features, labels):\n    os.abort()\n")
        result = run_main(
            "export",
            "--model=model.py",
            "--cpp_class=a::B",
            *(f"--out_{name}={name}" for name in EXPORTED),
            cwd=folder,
        )
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: exporting model.py: the process was killed by SIGABRT", result.stderr)
        self.assertIn('model.py", line 14 in model_fn', result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(sorted(os.listdir(folder)), ["model.py"])

    def test_unknown_output_shape(self) -> None:
        """An output whose size has no bound is named with its line and the compiler's reason."""
        self.refused(
            PREAMBLE + "def model_fn(features, labels):\n    return tf.range(labels)\n",
            """
            model.py: the compiler can't determine the size of 1 output(s) of Run

                Input 1 to node `range` with op Range must be a compile-time constant.

                XLA compilation requires that operator arguments that represent shapes or dimensions be evaluated to concrete values at compile time. This error means that a shape or dimension argument could not be evaluated at compile time, usually because the value of the argument depends on a parameter to the computation, on a variable, or on a stateful operation such as a random number generator.

                \t [[range]]
                'range' at model.py:11

              found: loss [None] at model.py:11
              to do: make sizes depend only on constants and the inputs' shapes, not on values that are known later
            """,  # noqa: E501
        )

    def test_dtypes_at_the_edge(self) -> None:
        """Inputs and outputs of dtypes that no compiler accepts are listed together, each with its line and alternatives."""
        todo = "cast to one of " + ", ".join(dtype.name for dtype in dtypes.ALL)
        self.refused(
            "import tensorflow as tf\n\nv1 = tf.compat.v1\n\n\ndef input_fn():\n"
            "    return v1.placeholder(tf.string, [2], 'x'), v1.placeholder(tf.string, [], 's')\n"
            "\n\ndef model_fn(features, labels):\n    return features\n",
            f"""
            model.py: 2 input(s) have a dtype that the generated class doesn't support
              found: x [2] at model.py:7 is DT_STRING; s [] at model.py:7 is DT_STRING
              to do: {todo}
            """,
        )
        self.refused(
            PREAMBLE + "def model_fn(features, labels):\n    return tf.strings.as_string(features)\n",
            f"""
            model.py: 1 output(s) have a dtype that the generated class doesn't support
              found: loss [2] at model.py:11 is DT_STRING
              to do: {todo}
            """,
        )

    def test_dtype_of_a_variable(self) -> None:
        """A variable of a dtype that no compiler accepts is named."""
        todo = "use one of " + ", ".join(dtype.name for dtype in dtypes.ALL) + ", and cast the value after you read it"
        self.refused(
            PREAMBLE
            + "def model_fn(features, labels):\n    v = v1.get_variable('v', initializer=['a', 'b'])\n"
            + "    return tf.where(tf.equal(v, 'a'), features, 0 * features)\n",
            f"""
            model.py: the variable v is DT_STRING, which the generated class doesn't support
              to do: {todo}
            """,
            frozen=(),
        )

    def test_old_variable(self) -> None:
        """A variable of TensorFlow 1's first kind, which no compiler accepts, is named with its line."""
        self.refused(
            PREAMBLE
            + "def model_fn(features, labels):\n"
            + "    return features * v1.Variable([1.0, 2.0], use_resource=False, name='w')\n",
            """
            model.py: 1 variable(s) aren't resource variables, the only kind that can be compiled
              found: w at model.py:11
              to do: remove use_resource=False; if importing the file creates variables, remove tf.compat.v1.disable_v2_behavior() \
and disable_resource_variables()
            """,
        )

    def test_behavior_of_tensorflow_1(self) -> None:
        """A file that starts with disable_v2_behavior(), as usual in TensorFlow 1, still has resource variables."""
        exported = self.export(
            PREAMBLE.replace("v1 = tf.compat.v1\n", "v1 = tf.compat.v1\nv1.disable_v2_behavior()\n")
            + "def model_fn(features, labels):\n"
            + "    w = v1.get_variable('w', [features.shape[0].value])\n"
            + "    step = lambda i, x: (i + 1, x * w)\n"
            + "    return tf.while_loop(lambda i, x: i < labels, step, (0, features), maximum_iterations=3)[1]\n",
            frozen=(),
        )
        self.assertEqual(exported.written, {"w": False})
        self.compile(exported)

    def test_item_assignment(self) -> None:
        """For an assignment to a part of a tensor, which Python rejects, the error says what to write instead."""
        self.refused(
            PREAMBLE + "def model_fn(features, labels):\n    features[labels] = 0.0\n    return features\n",
            """
            model.py: model_fn(features, labels) raised TypeError at model.py:11

                model.py:11, in model_fn
                    features[labels] = 0.0
                TypeError: 'SymbolicTensor' object does not support item assignment

              to do: don't assign to a part of a tensor at model.py:11: use tensor = tf.tensor_scatter_nd_update(tensor, [[i]], \
[row]), or keep a tf.Variable and call variable.scatter_nd_update([[i]], [row])
            """,
        )

    def test_variable_without_initial_value(self) -> None:
        """A variable that is in no collection has no initial value to ship, and is named."""
        self.refused(
            PREAMBLE
            + "def model_fn(features, labels):\n"
            + "    return features * v1.Variable([1.0, 2.0], collections=[], name='w')\n",
            """
            model.py: 1 variable(s) have no initial value in the graph
              found: w
              to do: create them while model_fn runs, in the collection of global or local variables
            """,
        )

    def test_initializer_that_fails(self) -> None:
        """A failure in TensorFlow's session names the user's line, without TensorFlow's own traceback."""
        self.refused(
            PREAMBLE
            + "def bad():\n    return tf.debugging.check_numerics(tf.constant([1.0, 2.0]) / 0.0, 'bad')\n\n\n"
            + "def model_fn(features, labels):\n    return features * v1.get_variable('w', initializer=bad)\n",
            """
            model.py: initializing its variables raised InvalidArgumentError at model.py:11

                'w/Initializer/CheckNumerics'
                bad : Tensor had Inf values
                \t [[{{node w/Initializer/CheckNumerics}}]]

              to do: fix model.py:11
            """,
        )

    def test_no_outputs(self) -> None:
        """A model_fn that forgets to return gets told what to return."""
        self.refused(
            PREAMBLE + "def model_fn(features, labels):\n    tf.identity(features)\n",
            """
            model.py: model_fn(features, labels) returned NoneType
              found: None
              to do: return the loss as a tensor, or a dict, tuple, or named tuple of tensors, which depends on the train op
            """,
        )

    def test_keyword_as_class(self) -> None:
        """A keyword in cpp_class is found before the C++ compiler finds it, with a valid name as a suggestion."""
        self.refused(
            PREAMBLE + "def model_fn(features, labels):\n    return features\n",
            """
            cpp_class = "a::class": 'class' is a C++ keyword
              to do: write namespaces and a class name with letters, digits, and single underscores, for example cpp_class = "a::class_"
            """,  # noqa: E501
            cpp_class="a::class",
        )

    def test_golden_fn_of_another_shape(self) -> None:
        """A golden input with the wrong shape is shown with the input's shape."""
        self.refused(
            PREAMBLE
            + "def model_fn(features, labels):\n    return features\n\n\n"
            + "def golden_fn(step, rng):\n    return rng.standard_normal(3), 0\n",
            """
            model.py: golden_fn(step, rng) returned float64[3] for x
              found: the input is float32[2]
              to do: give an array of the input's dtype and shape
            """,
        )

    def test_golden_fn_of_another_dtype(self) -> None:
        """A golden input that would lose its fraction is refused."""
        self.refused(
            PREAMBLE
            + "def model_fn(features, labels):\n    return features\n\n\n"
            + "def golden_fn(step, rng):\n    return rng.standard_normal(2), 1.5\n",
            """
            model.py: golden_fn(step, rng) returned float64[] for n
              found: the input is int32[]
              to do: give an array of the input's dtype and shape
            """,
        )

    def test_golden_fn_that_fails(self) -> None:
        """A golden_fn that raises, or takes other arguments, is reported like any user code."""
        model = PREAMBLE + "def model_fn(features, labels):\n    return features\n\n\n"
        self.refused(
            model + "def golden_fn(step, rng):\n    return 1 / step, 0\n",
            """
            model.py: golden_fn(step, rng) raised ZeroDivisionError at model.py:15

                model.py:15, in golden_fn
                    return 1 / step, 0
                ZeroDivisionError: division by zero

              to do: fix model.py:15
            """,
        )
        self.refused(
            model + "def golden_fn(step):\n    return 0, 0\n",
            """
            model.py:14: golden_fn can't be called as golden_fn(step, rng): too many positional arguments
              found: golden_fn(step)
              to do: define it with the parameters (step, rng)
            """,
        )

    def test_golden_fn_of_another_structure(self) -> None:
        """Golden inputs must have the same nest as the placeholders."""
        message = self.error_of(
            self.export,
            PREAMBLE
            + "def model_fn(features, labels):\n    return features\n\n\n"
            + "def golden_fn(step, rng):\n    return {'x': rng.standard_normal(2)}\n",
        )
        self.assertTrue(
            message.startswith("model.py: golden_fn(step, rng) and input_fn() returned different structures"), message
        )

    def test_variable_without_static_shape(self) -> None:
        """A variable whose shape is open is named."""
        self.refused(
            PREAMBLE
            + "def model_fn(features, labels):\n"
            + "    v = tf.Variable([1.0, 2.0], shape=[None], name='v')\n"
            + "    return tf.reduce_sum(features) + tf.reduce_sum(v)\n",
            """
            model.py: the shape of the variable v isn't known at build time
              found: (-1,)
              to do: create it with a fixed shape
            """,
            frozen=(),
        )

    def test_no_steps(self) -> None:
        """A test that verifies nothing is refused."""
        self.refused(
            PREAMBLE,
            """
            golden_steps = 0
              to do: verify at least one step
            """,
            golden_steps=0,
        )


class AttributesTest(StageTest):
    """Attributes of the target that contradict each other, the model, or the weights file."""

    OPEN = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return {"x": v1.placeholder(tf.float32, [None, 3], "x"), "y": v1.placeholder(tf.float32, [None, None], "y")}, ()


def model_fn(features, labels):
    w = v1.get_variable("w", [3, 2])
    v1.get_variable("unused", [1])
    return {"out": tf.matmul(features["x"], w) + v1.get_variable("b", [2])}
"""

    refused = ErrorsTest.refused

    def test_batch_sizes(self) -> None:
        """Batch sizes that don't ascend, or aren't sizes, are refused with the intended ones."""
        for given, shown, meant in (
            ((8, 1), "[8, 1]", "[1, 8]"),
            ((0, 4), "[0, 4]", "[1, 4]"),
            ((2, 2), "[2, 2]", "[2]"),
        ):
            with self.subTest(given):
                self.refused(
                    "",
                    f"""
                    batch_sizes = {shown}
                      to do: use sizes of at least 1, in ascending order: {meant}
                    """,
                    batch_sizes=given,
                )

    def test_max_batch_alone(self) -> None:
        """A largest batch without sizes to compile for isn't a batch family."""
        self.refused(
            "",
            """
            max_batch = 64 without batch_sizes
              to do: set the sizes to compile for: batch_sizes = [1, 8, 64]
            """,
            max_batch=64,
        )

    def test_entry_point_twice(self) -> None:
        """Two entry points with the same C++ name are refused before they become one function."""
        self.refused(
            "",
            """
            entry_points names Step more than once
              to do: give each entry point its own name
            """,
            entry_points=(("Step", "train"), ("Read", "read"), ("Step", "init")),
        )

    def test_unknown_call(self) -> None:
        """A call to verify must name an entry point of the target."""
        self.refused(
            "",
            """
            golden_calls names train, which isn't an entry point
              found: Init, Train
              to do: name some of the target's entry_points
            """,
            entry_points=(("Init", "init"), ("Train", "train")),
            golden_calls=("Init", "train"),
        )
        self.refused(
            "",
            """
            golden_calls names Step, which isn't an entry point
              found: Run
              to do: name some of the target's entry_points
            """,
            golden_calls=("Step",),
        )

    def test_entry_points_of_model_fn(self) -> None:
        """A model_fn is one function. The error says how to write several."""
        self.refused(
            self.OPEN,
            """
            model.py has no entry point 'train'
              found: it defines model_fn, which is its only entry point
              to do: remove entry_points, or write the model as a tf.Module with a method for each
            """,
            entry_points=(("Train", "train"),),
        )

    def test_dims_left_open(self) -> None:
        """In a batch family, the batch can stay open, and other dimensions are listed."""
        self.refused(
            self.OPEN,
            """
            model.py: 1 input(s) have dimensions that aren't known at build time
              found: y [None, None] at model.py:8
              to do: fix them in the model, or with dims = {"y": [None, 1]}, with your sizes in place of 1; \
a length can be an input (docs/guide/shapes.md#open-lengths)
            """,
            batch_sizes=(1, 4),
        )


class CallerTest(StageTest):
    """What stages say when the command runs them."""

    def test_options(self) -> None:
        """Protects users of the command, who have no target and write no Starlark: errors name options."""
        tanh = PREAMBLE + "def model_fn(features, labels):\n    return tf.tanh(features + v1.get_variable('w', [2]))\n"
        spec = 'input_signature=[tf.TensorSpec([None, 3], name="audio")]'
        no_size = f"import tensorflow as tf\n\n\n@tf.function({spec})\ndef model(audio):\n    return audio\n"
        with mock.patch.dict(os.environ, {caller.VARIABLE: "1"}):
            for model, request, wanted in (
                (
                    no_size,
                    {},
                    "or with --dims audio=1,3, with your sizes in place of 1; any number of rows is --batch-sizes; ",
                ),
                (no_size, {"dims": {"audio": (1, 4)}}, "model.py: --dims contradicts the shape of 1 input(s)"),
                (
                    no_size,
                    {"dims": {"audio": (1, 3), "sound": ()}},
                    "model.py: --dims names sound, which isn't an input",
                ),
                ("import nowhere\n", {}, "add the folder that contains nowhere to --deps, or fix model.py:1"),
                (tanh, {"frozen": ("v", "!w")}, "--frozen v --frozen '!w': \"v\" matches no variable"),
                (tanh, {"batch_sizes": (8, 1)}, "--batch-sizes 8 --batch-sizes 1\n"),
                (
                    tanh,
                    {"max_batch": 4},
                    "set the sizes to compile for: --batch-sizes 1 --batch-sizes 8 --batch-sizes 64",
                ),
                (tanh, {"golden_calls": ("Step",)}, "do: name some of --entry-points"),
                (tanh, {"weights_dtype": "int2"}, "--weights dtype=int2: weights can't be stored in this dtype"),
                (tanh, {"cpp_class": "a::class"}, "for example --cpp-class a::class_"),
            ):
                with self.subTest(wanted):
                    error = self.error_of(self.export, model, **request)
                    self.assertIn(wanted, error)
                    self.assertNotIn("target", error)

    def test_all_messages(self) -> None:
        """Protects the same in errors that no test makes: no text of a stage has an attribute's name, or the word target."""
        names = ["batch_sizes", "cpp_class", "dims", "entry_points", "golden_(?:calls|inputs|steps)", "max_batch"]
        names += ["rows_independent", "saved_model_tags", "xla_flags"]
        wrong = re.compile(
            rf"\b(?:{'|'.join(names)})\b|\b(?:cpu|frozen|isa|outputs|passes|signature|weights) =|the target's"
        )
        for package in ("compile", "core", "export", "hlo", "pack", "render", "tfcompile", "verify"):
            for file in sorted((ROOT / "py/tfaot" / package).rglob("*.py")):
                for line, text in _said(ast.parse(file.read_text(encoding="utf-8"))):
                    self.assertIsNone(wrong.search(text), f"{file}:{line}: {text!r}: use tfaot.core.caller")


def _said(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the constant texts in errors, with their lines, but what only Bazel says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "TfaotError":
            named = {
                id(part) for call in ast.walk(node) if isinstance(call, ast.Call) for part in call.args if call != node
            }
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and id(part) not in named:
                    yield part.lineno, part.value


class PythonModelTest(StageTest):
    """Python files that define `model`."""

    refused = ErrorsTest.refused

    MODULE = """\
import tensorflow as tf


class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def forward(self, x):
        return x + 1

    def plain(self, x):
        return x

    def nothing(self):
        pass


model = Model()
"""

    def test_unknown_entry_point(self) -> None:
        """An entry point that the model lacks is refused with the available ones."""
        do = (
            "name one of these in the target's entry_points, or define model: a function, a tf.function, a tf.Module, "
            "a Keras model, or a function without parameters that returns one"
        )
        for asked, name in (((("Train", "train"),), "train"), ((), "call")):
            with self.subTest(name):
                self.refused(
                    self.MODULE,
                    f"""
                    model.py has no entry point {name!r}
                      found: forward, nothing, plain
                      to do: {do}
                    """,
                    entry_points=asked,
                )

    def test_model_that_is_none(self) -> None:
        """A function that forgets to return the model gets told so."""
        self.refused(
            "def model():\n    pass\n",
            """
            model.py: model() returned None
              to do: return a Keras model, a tf.Module, a tf.function, or a function; if you want to compile model() itself, decorate it with @tf.function
            """,  # noqa: E501
        )

    def test_unknown_inputs(self) -> None:
        """A function without a known signature is shown with its parameters, and the three ways to specify one."""
        self.refused(
            self.MODULE,
            """
            model.py: the inputs of plain aren't specified
              found: plain(x)
              to do: set its input_signature, or the target\'s signature = {"x": "float32[64, 3]"}, or define an input_fn() that returns a tf.TensorSpec for each parameter
            """,  # noqa: E501
            entry_points=(("Plain", "plain"),),
        )

    def test_signature_of_other_parameters(self) -> None:
        """A signature that names anything but parameters is refused with a list of these."""
        self.refused(
            self.MODULE,
            """
            model.py: signature names y, z, but no entry point has a parameter with this name
              found: x
              to do: name parameters, or inputs by the names listed here
            """,
            entry_points=(("Plain", "plain"),),
            signature={"z": "float32", "y": "float32", "x": "int32[2]"},
        )

    def test_signature_that_is_none(self) -> None:
        """A signature that can't be parsed is shown with a valid one."""
        for text, why in (
            ("float32(2)", "no dtype and shape"),
            ("float33[2]", "Cannot convert the argument `type_value`: 'float33' to a TensorFlow DType."),
            ("float32[a]", "invalid literal for int() with base 10: 'a'"),
        ):
            with self.subTest(text):
                self.refused(
                    self.MODULE,
                    f"""
                    signature says {text!r} for x: {why}
                      to do: write a dtype and a shape, for example "float32[64, None, 3]"
                    """,
                    signature={"x": text},
                )

    def test_input_fn_of_no_specs(self) -> None:
        """A return value of input_fn that isn't a tf.TensorSpec is shown."""
        self.refused(
            "def model(x):\n    return x\n\n\ndef input_fn():\n    return {'a': 'float32'}\n",
            """
            model.py: input_fn() returned something other than a tf.TensorSpec
              found: 'float32'
              to do: return a tf.TensorSpec for each input, in the nest in which the function takes them
            """,
        )

    def test_tracing_that_fails(self) -> None:
        """An exception during tracing shows only the user's own lines."""
        self.refused(
            "def model(x):\n    raise ValueError('no such layer')\n",
            """
            model.py: tracing call raised ValueError at model.py:2

                model.py:2, in model
                    raise ValueError('no such layer')
                ValueError: no such layer

              to do: fix model.py:2
            """,
            signature={"x": "float32[2]"},
        )

    def test_nothing_to_compute(self) -> None:
        """A function that neither returns nor writes has nothing to compile."""
        self.refused(
            self.MODULE,
            """
            nothing: the function returns nothing and writes nothing
              to do: return a tensor
            """,
            entry_points=(("Nothing", "nothing"),),
        )

    def test_inputs_that_are_not_dense(self) -> None:
        """Ragged and sparse inputs aren't possible in compiled code, and are listed."""
        self.refused(
            "import tensorflow as tf\n\n\n@tf.function(input_signature=[tf.RaggedTensorSpec([2, None], tf.float32)])\n"
            "def model(x):\n    return x.values\n",
            """
            call: 1 input(s) aren't dense tensors
              found: x is a RaggedTensorSpec
              to do: take a dense tensor that is padded to one size, and the lengths as another input, and mask the rest
            """,
        )

    def test_tables(self) -> None:
        """A lookup table isn't a variable, and is refused with a suggestion."""
        self.refused(
            "import tensorflow as tf\n\n"
            "table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)\n\n\n"
            "def model(x):\n    return table.lookup(x)\n",
            """
            call: the function uses 1 resource(s) other than variables
              found: None_Lookup/LookupTableFindV2/table_handle at model.py:7
              to do: look up values where you prepare its inputs; or leave tables to TensorFlow: tf_aot_clusters compiles the rest
            """,
            signature={"x": "int32[2]"},
        )

    def test_golden_fn_of_another_count(self) -> None:
        """Too few golden inputs are refused with the inputs' names."""
        self.refused(
            self.MODULE + "\n\ndef golden_fn(step, rng):\n    return ()\n",
            """
            model.py: golden_fn returned 0 array(s) for forward
              found: it takes x
              to do: return one array for each input, in the nest in which the function takes them
            """,
            entry_points=(("Forward", "forward"),),
        )

    def test_keras_that_was_not_compiled(self) -> None:
        """A training step needs an optimizer, and the message says how to set one."""
        self.refused(
            "import keras\n\nmodel = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])\n",
            """
            model.py: train_step needs a compiled Keras model
              to do: call model.compile(optimizer=…, loss=…) in the file
            """,
            entry_points=(("Train", "train_step"),),
        )


class ConfigTest(StageTest):
    """A user's partial config is merged field by field; its mistakes are named."""

    MODEL = PREAMBLE + (
        "def model_fn(features, labels):\n"
        "    v = v1.get_variable('a/v', initializer=[1.0, 2.0])\n"
        "    return {'y': features + v}\n"
    )

    def refused(self, user_config: str, wanted: str) -> None:
        """Exports with a config that must be refused with exactly this message."""
        self.assert_error(self.error_of(self.export, self.MODEL, frozen=(), user_config=user_config), wanted)

    def test_one_field(self) -> None:
        """A renamed variable keeps its inferred type and shape, and the C++ class follows."""
        exported = self.export(self.MODEL, frozen=(), user_config='variable { node_name: "a/v" name: "weights" }')
        self.assertEqual(exported.cpp_names["a/v"], "weights")
        self.assertEqual(exported.manifest.variables[0].shape, (2,))
        self.assertIn('name: "weights"', exported.config)
        self.assertIn("readonly: true", exported.config)

    def test_unknown_node(self) -> None:
        """A config entry for something that the model doesn't have lists what it has."""
        self.refused(
            'variable { node_name: "v" }',
            """
            user.pbtxt configures the variable 'v', which the model doesn't have
              found: a/v
              to do: name one of these, or remove the entry: missing entries are inferred
            """,
        )

    def test_other_shape(self) -> None:
        """A config that contradicts the model's shape is refused before the compiler sees it."""
        self.refused(
            'feed { id { node_name: "x" } shape { dim { size: 3 } } }',
            """
            user.pbtxt: x:0 is configured as float32[3]
              found: the model has float32[2]
              to do: change the model, or remove type and shape, which are inferred
            """,
        )

    def test_other_dtype(self) -> None:
        """A config that contradicts the model's dtype is refused before the compiler sees it."""
        self.refused(
            'variable { node_name: "a/v" type: DT_DOUBLE }',
            """
            user.pbtxt: a/v is configured as float64[2]
              found: the model has float32[2]
              to do: change the model, or remove type and shape, which are inferred
            """,
        )

    def test_each_field_alone(self) -> None:
        """Every entry changes only its own fields, and the rest stays as inferred."""
        plain = self.export(self.MODEL, frozen=()).config
        changed = self.export(
            self.MODEL,
            frozen=(),
            user_config='feed { id { node_name: "x" } name: "input" } fetch { id { node_name: "add" } name: "output" }'
            ' variable { node_name: "a/v" readonly: false }',
        )
        wanted = plain.replace('name: "x"\n  type', 'name: "input"\n  type').replace('name: "y"', 'name: "output"')
        self.assertEqual(changed.config, wanted.replace("  readonly: true\n", ""))
        self.assertEqual(changed.written, {"a/v": True})

    def test_keyword(self) -> None:
        """A name that can't be a member is refused with one that can."""
        self.refused(
            'feed { id { node_name: "x" } name: "class" }',
            """
            user.pbtxt: x:0 is named 'class', which isn't a valid member name for Model
              to do: use an identifier, for example 'class_'
            """,
        )

    def test_clash(self) -> None:
        """Two tensors with the same name are both listed."""
        self.refused(
            'feed { id { node_name: "x" } name: "same" } feed { id { node_name: "n" } name: "same" }',
            """
            user.pbtxt: 2 tensors have the same name 'same'
              found: x:0, n:0
              to do: give each a different name, or remove the names: inferred names don't collide
            """,
        )

    def test_syntax(self) -> None:
        """A file that isn't a valid config says where parsing fails."""
        message = self.error_of(self.export, self.MODEL, user_config="feed { nonsense: 1 }")
        self.assertTrue(message.startswith("user.pbtxt isn't a tf2xla config: 1:8"), message)


if __name__ == "__main__":
    unittest.main()
