"""What errors of the export stage say, besides those in `refusals.txt`: parts of messages, and what happens around them."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tests.stages.harness import EXPORTED, PREAMBLE, ROOT, StageTest, run_main
from tfaot.core import caller, isolate
from tfaot.export.sources.model import Model


class ErrorsTest(StageTest):
    """Messages that are partly TensorFlow's, and ends of the process."""

    def refused(self, model: str, wanted: str, **request: object) -> None:
        """Exports a model that must be refused with exactly this message."""
        self.assert_error(self.error_of(self.export, model, **request), wanted)

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
        opened = self.error_of(
            lambda: isolate.run_isolated(lambda: UserCode(str(folder / "model.txt")), what="opening")
        )
        self.assertEqual(opened, wanted)

    def test_elsewhere(self) -> None:
        """A model outside the working directory, as the command takes it, has lines, too."""
        from tfaot.export.sources.user_code import UserCode

        model = self.write("import os\nraise ValueError(os.name)\n") / "model.py"

        def opened() -> None:
            os.chdir(self.write(""))
            UserCode(str(model))

        message = self.error_of(lambda: isolate.run_isolated(opened, what="opening"))
        self.assertIn(f"raised ValueError at {model}:2\n", message)

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
            files: dict[str, Any] = {kind: str(self.folder / "pipe")}
            self.assert_error(
                self.error_of(Model(**files).open).replace(str(self.folder) + "/", ""),
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
            text = printed.getvalue()
            if warned:
                self.assertRegex(
                    text,
                    rf"^warning: model.py: tf.distribute.s {warned} has one replica here, .* at model.py:7; .*replicas = 4\n$",
                )
            else:
                self.assertEqual(text, "")

    def test_abort_in_user_code(self) -> None:
        """A crash below Python is reported with its signal and the line that caused it, and leaves no output behind."""
        folder = self.write(PREAMBLE + "import os\n\n\ndef model_fn(features, labels):\n    os.abort()\n")
        result = run_main(
            "export", "--model=model.py", "--cpp_class=a::B", *(f"--out_{name}={name}" for name in EXPORTED), cwd=folder
        )
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: exporting model.py: the process was killed by SIGABRT", result.stderr)
        self.assertIn('model.py", line 14 in model_fn', result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(sorted(os.listdir(folder)), ["model.py"])

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

    def test_batch_sizes(self) -> None:
        """Batch sizes that don't ascend, or aren't sizes, are refused with the intended ones."""
        for sizes, meant in (([8, 1], [1, 8]), ([0, 4], [1, 4]), ([2, 2], [2])):
            error = f"batch_sizes = {sizes}\n  to do: use sizes of at least 1, in ascending order: {meant}"
            self.refused("", error, batch_sizes=tuple(sizes))

    def test_signature_that_is_none(self) -> None:
        """A signature that can't be parsed is shown with a valid one."""
        for text, why in (
            ("float32(2)", "no dtype and shape"),
            ("float33[2]", "Cannot convert the argument `type_value`: 'float33' to a TensorFlow DType."),
            ("float32[a]", "invalid literal for int() with base 10: 'a'"),
        ):
            do = 'write a dtype and a shape, for example "float32[64, None, 3]"'
            error = f"signature says {text!r} for x: {why}\n  to do: {do}"
            self.refused("def model(x):\n    return x\n", error, signature={"x": text})


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
                    "or with --dims audio=1,3, with your sizes in place of 1; any number of rows is --batch-sizes",
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


class ConfigTest(StageTest):
    """A user's partial config is merged field by field; its mistakes are named."""

    MODEL = PREAMBLE + (
        "def model_fn(features, labels):\n"
        "    v = v1.get_variable('a/v', initializer=[1.0, 2.0])\n"
        "    return {'y': features + v}\n"
    )

    def test_one_field(self) -> None:
        """A renamed variable keeps its inferred type and shape, and the C++ class follows."""
        exported = self.export(self.MODEL, frozen=(), user_config='variable { node_name: "a/v" name: "weights" }')
        self.assertEqual(exported.cpp_names["a/v"], "weights")
        self.assertEqual(exported.manifest.variables[0].shape, (2,))
        self.assertIn('name: "weights"', exported.config)
        self.assertIn("readonly: true", exported.config)

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


if __name__ == "__main__":
    unittest.main()
