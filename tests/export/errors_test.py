"""Each bad input to the export stage ends in one error that says what was asked, what exists, and what to do."""

from __future__ import annotations

import os
import unittest

from tests.stages.harness import PREAMBLE, StageTest, run_main


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
            model.py has no function model_fn(features, labels)
              found: input_fn, mdoel_fn
              to do: define model_fn(features, labels) in model.py
            """,
        )

    def test_missing_input_fn(self) -> None:
        """An empty file says what to define."""
        self.refused(
            "",
            """
            model.py has no function input_fn()
              found: nothing
              to do: define input_fn() in model.py
            """,
        )

    def test_wrong_signature(self) -> None:
        """A model_fn with other parameters is shown beside what is wanted."""
        self.refused(
            PREAMBLE + "def model_fn(features, labels, mode):\n    return features\n",
            """
            model.py:10: model_fn cannot be called as model_fn(features, labels): missing a required argument: 'mode'
              found: model_fn(features, labels, mode)
              to do: give it the parameters (features, labels)
            """,
        )

    def test_input_fn_returns_no_pair(self) -> None:
        """An input_fn that returns one placeholder is told of the pair."""
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
        """A constant in place of a placeholder is named with its op."""
        self.refused(
            "import tensorflow as tf\n\n\ndef input_fn():\n    return tf.constant(1.0, name='one'), tf.constant(2.0)\n"
            "\n\ndef model_fn(features, labels):\n    return features\n",
            """
            model.py: input_fn() returned something else than a placeholder
              found: 'one:0', the result of a Const
              to do: make each input with tf.compat.v1.placeholder(dtype, shape, name)
            """,
        )

    def test_exception_in_user_code(self) -> None:
        """An exception comes with the user's own frames, file and line, and none of ours or TensorFlow's."""
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

              to do: mend model.py:11
            """,
        )

    def test_syntax_error(self) -> None:
        """A file that does not parse names the line."""
        message = self.error_of(self.export, PREAMBLE + "def model_fn(features, labels:\n    return features\n")
        self.assertTrue(message.startswith("model.py: importing it raised SyntaxError at model.py:10\n"), message)
        self.assertIn('File "model.py", line 10', message)
        self.assertTrue(message.endswith("to do: mend model.py:10"), message)

    def test_exit_in_user_code(self) -> None:
        """A model that calls sys.exit, even with 0, does not look like a success, and its line is named."""
        for call, shown in (("sys.exit(3)", "SystemExit: 3"), ("sys.exit()", "SystemExit")):
            self.refused(
                PREAMBLE + f"import sys\n\n\ndef model_fn(features, labels):\n    {call}\n",
                f"""
                model.py: model_fn(features, labels) raised SystemExit at model.py:14

                    model.py:14, in model_fn
                        {call}
                    {shown}

                  to do: mend model.py:14
                """,
            )

    def test_abort_in_user_code(self) -> None:
        """A crash below Python is reported with its signal and the line that caused it, and leaves no output behind."""
        folder = self.write(PREAMBLE + "import os\n\n\ndef model_fn(features, labels):\n    os.abort()\n")
        outputs = ("graph", "config", "manifest", "variables", "golden_inputs", "sources")
        result = run_main(
            "export",
            "--model=model.py",
            "--cpp_class=a::B",
            *(f"--out_{name}={name}" for name in outputs),
            cwd=folder,
        )
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: exporting model.py: the process was killed by SIGABRT", result.stderr)
        self.assertIn('model.py", line 14 in model_fn', result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(sorted(os.listdir(folder)), ["model.py"])

    def test_unknown_dimensions(self) -> None:
        """All inputs with unknown dimensions are listed together, each with its line."""
        self.refused(
            "import tensorflow as tf\n\nv1 = tf.compat.v1\n\n\ndef input_fn():\n"
            "    return v1.placeholder(tf.float32, [None, 3], 'x'), v1.placeholder(tf.int32, None, 'y')\n"
            "\n\ndef model_fn(features, labels):\n    return features\n",
            """
            model.py: 2 input(s) have dimensions that are not known before running
              found: x (None, 3) at model.py:7; y (unknown rank) at model.py:7
              to do: set every dimension in input_fn(): the compiler needs all of them
            """,
        )

    def test_unknown_output_shape(self) -> None:
        """An output whose shape depends on values is named with the line that made it."""
        self.refused(
            PREAMBLE + "def model_fn(features, labels):\n    return tf.reshape(tf.where(features > 0), [-1])\n",
            """
            model.py: 1 output(s) have dimensions that are not known before running
              found: loss (None,) at model.py:11
              to do: give it a shape that TensorFlow can infer, or call set_shape on it: the compiler needs all of them
            """,
        )

    def test_dtype_at_the_edge(self) -> None:
        """A dtype that C++ has no type for is refused at the edge, with what would do."""
        message = self.error_of(
            self.export, PREAMBLE + "def model_fn(features, labels):\n    return tf.cast(features, tf.bfloat16)\n"
        )
        self.assertIn("1 output(s) have a dtype that cannot cross a compiled model's edge", message)
        self.assertIn("found: loss (2,) at model.py:11 is DT_BFLOAT16", message)
        self.assertIn("to do: cast to one of float32, float64, ", message)

    def test_dtype_of_inputs(self) -> None:
        """Inputs of dtypes that C++ has no type for are listed together, each with its line."""
        self.refused(
            "import tensorflow as tf\n\nv1 = tf.compat.v1\n\n\ndef input_fn():\n"
            "    return v1.placeholder(tf.float16, [2], 'x'), v1.placeholder(tf.string, [], 's')\n"
            "\n\ndef model_fn(features, labels):\n    return features\n",
            """
            model.py: 2 input(s) have a dtype that cannot cross a compiled model's edge
              found: x (2,) at model.py:7 is DT_HALF; s () at model.py:7 is DT_STRING
              to do: cast to one of float32, float64, int32, uint8, int16, int8, int64, bool, uint16, uint32, uint64; bfloat16, float16, complex64, and complex128 are for tf_aot_hlo, which stops before C++
            """,  # noqa: E501
        )

    def test_old_variable(self) -> None:
        """A variable of TensorFlow 1's first kind, which no compiler takes, is named with its line."""
        self.refused(
            PREAMBLE
            + "def model_fn(features, labels):\n"
            + "    return features * v1.Variable([1.0, 2.0], use_resource=False, name='w')\n",
            """
            model.py: 1 variable(s) are no resource variables, which alone can be compiled
              found: w at model.py:11
              to do: leave out use_resource=False, and tf.compat.v1.disable_resource_variables()
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
              to do: create them while model_fn runs, in the global or local variables' collection
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

              to do: mend model.py:11
            """,
        )

    def test_no_outputs(self) -> None:
        """A model_fn that forgets to return is told what to return."""
        self.refused(
            PREAMBLE + "def model_fn(features, labels):\n    tf.identity(features)\n",
            """
            model.py: model_fn(features, labels) returned NoneType
              found: None
              to do: return the loss as a tensor, or a dict, tuple, or named tuple of tensors; let it depend on the train op
            """,
        )

    def test_keyword_as_class(self) -> None:
        """A keyword in cpp_class is found before the C++ compiler finds it, with a name that would do."""
        self.refused(
            PREAMBLE + "def model_fn(features, labels):\n    return features\n",
            """
            cpp_class = 'a::class': 'class' is a C++ keyword
              to do: write namespaces and a class name with letters, digits, and single underscores, for instance cpp_class = "a::class_"
            """,  # noqa: E501
            cpp_class="a::class",
        )

    def test_illegal_class(self) -> None:
        """A cpp_class that is no C++ name is refused."""
        message = self.error_of(self.export, PREAMBLE, cpp_class="a::my-model")
        self.assertIn("'my-model' is not a C++ identifier that a program may use", message)
        self.assertIn('cpp_class = "a::my_model"', message)

    def test_reserved_class(self) -> None:
        """A class in namespace std would collide with the library's own."""
        self.assertIn(
            "is a name that the generated code needs itself", self.error_of(self.export, "", cpp_class="std::A")
        )

    def test_golden_fn_of_another_shape(self) -> None:
        """A golden input of the wrong shape is shown beside the placeholder's."""
        self.refused(
            PREAMBLE
            + "def model_fn(features, labels):\n    return features\n\n\n"
            + "def golden_fn(step, rng):\n    return rng.standard_normal(3), 0\n",
            """
            model.py: golden_fn(step, rng) returned float64[3] for x
              found: the placeholder is float32[2]
              to do: return an array of the placeholder's dtype and shape
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
              found: the placeholder is int32[]
              to do: return an array of the placeholder's dtype and shape
            """,
        )

    def test_golden_fn_that_fails(self) -> None:
        """A golden_fn that raises, or takes something else, is reported like any user code."""
        model = PREAMBLE + "def model_fn(features, labels):\n    return features\n\n\n"
        self.refused(
            model + "def golden_fn(step, rng):\n    return 1 / step, 0\n",
            """
            model.py: golden_fn(step, rng) raised ZeroDivisionError at model.py:15

                model.py:15, in golden_fn
                    return 1 / step, 0
                ZeroDivisionError: division by zero

              to do: mend model.py:15
            """,
        )
        self.refused(
            model + "def golden_fn(step):\n    return 0, 0\n",
            """
            model.py:14: golden_fn cannot be called as golden_fn(step, rng): too many positional arguments
              found: golden_fn(step)
              to do: give it the parameters (step, rng)
            """,
        )

    def test_golden_fn_of_another_structure(self) -> None:
        """Golden inputs must come in the nest of the placeholders."""
        message = self.error_of(
            self.export,
            PREAMBLE
            + "def model_fn(features, labels):\n    return features\n\n\n"
            + "def golden_fn(step, rng):\n    return {'x': rng.standard_normal(2)}\n",
        )
        self.assertTrue(
            message.startswith("model.py: golden_fn(step, rng) returned another structure than input_fn()"), message
        )

    def test_variable_without_static_shape(self) -> None:
        """A variable whose shape is open is named."""
        self.refused(
            PREAMBLE
            + "def model_fn(features, labels):\n"
            + "    v = tf.Variable([1.0, 2.0], shape=[None], name='v')\n"
            + "    return tf.reduce_sum(features) + tf.reduce_sum(v)\n",
            """
            model.py: the variable v has a shape that is not known before running
              found: (-1,)
              to do: create it with a fixed shape
            """,
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


class ConfigTest(StageTest):
    """A user's partial config is merged field by field; its mistakes are named."""

    MODEL = PREAMBLE + (
        "def model_fn(features, labels):\n"
        "    v = v1.get_variable('a/v', initializer=[1.0, 2.0])\n"
        "    return {'y': features + v}\n"
    )

    def refused(self, user_config: str, wanted: str) -> None:
        """Exports with a config that must be refused with exactly this message."""
        self.assert_error(self.error_of(self.export, self.MODEL, user_config=user_config), wanted)

    def test_one_field(self) -> None:
        """A renamed variable keeps its inferred type and shape, and the C++ class follows."""
        exported = self.export(self.MODEL, user_config='variable { node_name: "a/v" name: "weights" }')
        self.assertEqual(exported.cpp_names["a/v"], "weights")
        self.assertEqual(exported.manifest.variables[0].shape, (2,))
        self.assertIn('name: "weights"', exported.config)
        self.assertIn("readonly: true", exported.config)

    def test_unknown_node(self) -> None:
        """A config entry for something that the model does not have lists what it has."""
        self.refused(
            'variable { node_name: "v" }',
            """
            user.pbtxt configures the variable 'v', which the model does not have
              found: a/v
              to do: name one of these, or leave the entry out: what is not written is inferred
            """,
        )

    def test_other_shape(self) -> None:
        """A config that contradicts the model's shape is refused before the compiler sees it."""
        self.refused(
            'feed { id { node_name: "x" } shape { dim { size: 3 } } }',
            """
            user.pbtxt: x:0 is configured as float32[3]
              found: the model has float32[2]
              to do: change the model, or leave type and shape out: they are inferred
            """,
        )

    def test_other_dtype(self) -> None:
        """A config that contradicts the model's dtype is refused before the compiler sees it."""
        self.refused(
            'variable { node_name: "a/v" type: DT_DOUBLE }',
            """
            user.pbtxt: a/v is configured as float64[2]
              found: the model has float32[2]
              to do: change the model, or leave type and shape out: they are inferred
            """,
        )

    def test_each_field_alone(self) -> None:
        """Every entry that is written changes its own fields and nothing else: the rest stays as inferred."""
        plain = self.export(self.MODEL).config
        changed = self.export(
            self.MODEL,
            user_config='feed { id { node_name: "x" } name: "input" } fetch { id { node_name: "add" } name: "output" }'
            ' variable { node_name: "a/v" readonly: false }',
        )
        wanted = plain.replace('name: "x"\n  type', 'name: "input"\n  type').replace('name: "y"', 'name: "output"')
        self.assertEqual(changed.config, wanted.replace("  readonly: true\n", ""))
        self.assertEqual(changed.written, {"a/v": True})

    def test_keyword(self) -> None:
        """A name that cannot be a member is refused, with one that can."""
        self.refused(
            'feed { id { node_name: "x" } name: "class" }',
            """
            user.pbtxt: x:0 is named 'class', which cannot name a member of Model
              to do: write an identifier, for instance 'class_'
            """,
        )

    def test_clash(self) -> None:
        """Two tensors of one name are both listed."""
        self.refused(
            'feed { id { node_name: "x" } name: "same" } feed { id { node_name: "n" } name: "same" }',
            """
            user.pbtxt: the name 'same' is given to 2 tensors
              found: x:0, n:0
              to do: give each a name of its own, or leave names out: they are inferred without collisions
            """,
        )

    def test_syntax(self) -> None:
        """A file that is no config says where it stops being one."""
        message = self.error_of(self.export, self.MODEL, user_config="feed { nonsense: 1 }")
        self.assertTrue(message.startswith("user.pbtxt is no tf2xla config: 1:8"), message)


if __name__ == "__main__":
    unittest.main()
