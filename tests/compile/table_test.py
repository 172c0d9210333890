"""Choosing passes, what the output says about them, and which lines errors name."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import re
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from tests.stages.harness import PREAMBLE, StageTest
from tfaot.core.errors import TfaotError

NET = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
rng = np.random.default_rng(1)


def input_fn():
    return v1.placeholder(tf.float32, [1, 6, 6, 3], "x"), ()


def model_fn(x, _):
    y = tf.nn.conv2d(x, rng.standard_normal([3, 3, 3, 4]).astype("float32"), 1, "SAME") * [1.0, 2.0, 3.0, 4.0]
    return %s
"""
"""A convolution at line 13, with a factor to fold into it. `y` is used at line 14."""


class TableTest(StageTest):
    """The compile stage with passes."""

    def test_unknown_pass(self) -> None:
        """A pass that doesn't exist is one error that names those that do."""
        from tfaot.compile import table

        exported = self.export(PREAMBLE + "def model_fn(x, n):\n    return x + 1\n")
        self.assert_error(
            self.error_of(self.compile, exported, passes=("*", "!fold_batchnorm")),
            f"""
            passes = ["*", "!fold_batchnorm"]: "!fold_batchnorm" matches no pass
              found: {", ".join(each.name for each in table.PASSES)}
              to do: use one of these names, or a pattern; all passes except NAME are passes = ["*", "!NAME"]
            """,
        )

    def test_renamed_pass(self) -> None:
        """Protects users of an old name: the error gives the new one, and following it works, with a `!` too."""
        from tfaot.core import pass_names

        for pattern, renamed in (("sweeps", "elementwise_fusion"), ("!head_products", "!split_kv_matmul")):
            with self.assertRaisesRegex(TfaotError, f'write "{renamed}"'):
                pass_names.chosen(["*", pattern])
            self.assertEqual(len(pass_names.chosen(["*", renamed])), len(pass_names.NAMES) - renamed.startswith("!"))
        self.assertFalse(pass_names.RENAMED.keys() & pass_names.chosen(["*"]))
        self.assertLessEqual({*pass_names.RENAMED.values()}, pass_names.chosen(["*"]))

    def test_nothing_to_take_away(self) -> None:
        """Protects users who leave out one pass: without a `*` before it, a pattern with `!` would turn all passes off."""
        from tfaot.core import pass_names

        with self.assertRaisesRegex(TfaotError, r'write \* before it: passes = \["\*", "!winograd"\]'):
            pass_names.chosen(["!winograd"])
        self.assertEqual(pass_names.chosen(["*", "!winograd"]), {*pass_names.NAMES} - {"winograd"})

    def test_patterns(self) -> None:
        """Later patterns take precedence, as in `frozen`, and no patterns means no pass."""
        from tfaot.compile import table
        from tfaot.core import pass_names

        names = {*pass_names.NAMES}
        self.assertEqual(pass_names.NAMES, tuple(each.name for each in table.PASSES))
        self.assertEqual(pass_names.chosen(["*"]), names)
        self.assertEqual(pass_names.chosen([]), frozenset())
        self.assertEqual(pass_names.chosen(["*", "!fold_*"]), {name for name in names if not name.startswith("fold_")})
        self.assertEqual(pass_names.chosen(["*", "!*", "fold_batch_norm"]), {"fold_batch_norm"})
        with self.assertRaises(TfaotError):
            pass_names.chosen(["fold_batch_norm/"])

    def test_what_is_written(self) -> None:
        """The file says how many places each pass changed, 0 if it found none, and null if it is off, and what is left."""
        from tfaot.compile import table

        exported = self.export(NET % "y")
        for patterns, want in ((("*",), 1), ((), None), (("*", "!fold_batch_norm"), None)):
            self.compile(exported, passes=patterns)
            written = json.loads(Path(exported.path("passes")).read_text())
            self.assertEqual(
                [*written],
                [*(each.name for each in table.PASSES), "failed", "packed", "kernels", "remaining", "missed"],
            )
            self.assertEqual(written["fold_batch_norm"], want)
            self.assertEqual(written["kernels"], ["tfaot/kernels/convolution_f32.cc"])
        exported = self.export(PREAMBLE + "def model_fn(x, n):\n    return x + 1\n")
        self.compile(exported)
        self.assertEqual(
            json.loads(Path(exported.path("passes")).read_text()),
            {each.name: 0 for each in table.PASSES}
            | {"failed": {}, "packed": [], "kernels": [], "remaining": {"x86-64-v3": 1}, "missed": []},
        )

    def test_near_misses(self) -> None:
        """Protects who looks for lost speed: what passes almost replaced has its node and a reason, unless another pass has it."""
        exported = self.export(NET % "tf.reduce_sum(tf.reshape(tf.nn.max_pool2d(y, 3, 1, 'VALID'), [16, 4]), 0), y")
        self.compile(exported)
        written = json.loads(Path(exported.path("passes")).read_text())
        called = set(re.findall(r"tfcompile_xla_generated_\w+", Path(exported.path("source")).read_text()))
        self.assertEqual(written["remaining"], {"x86-64-v3": len(called)})
        found = {miss["pass"]: miss for miss in written["missed"]}
        self.assertEqual(found["max_pools"]["origin"], "MaxPool2d")
        self.assertEqual(
            found["max_pools"]["reason"], "its windows have more than 25 values, or the image fewer than 8 channels"
        )
        self.compile(exported, passes=("*", "!max_pools"))
        written = json.loads(Path(exported.path("passes")).read_text())
        self.assertNotIn("max_pools", {miss["pass"] for miss in written["missed"]})

    def test_passes_that_raise(self) -> None:
        """A pass that raises an exception ends no user's build: it changes nothing, and the build warns of it once."""
        from tfaot.compile import table

        broken = ("fold_batch_norm", "prepack")

        def raising(each: table.Pass[Any], subject: Any) -> int:
            each.run(subject)  # what it has changed doesn't stay
            raise ValueError(f"in {each.name}")

        passes = tuple(
            dataclasses.replace(each, run=functools.partial(raising, each)) if each.name in broken else each
            for each in table.PASSES
        )
        exported = self.export(NET % "tf.matmul(tf.reshape(y, [6, 24]), np.ones([24, 40], 'float32'))")
        outputs = ("object", "constants", "source")
        self.compile(exported, passes=("*", *(f"!{name}" for name in broken)))
        want = [Path(exported.path(output)).read_bytes() for output in outputs]
        self.compile(exported)
        self.assertNotEqual([Path(exported.path(output)).read_bytes() for output in outputs], want)
        printed = io.StringIO()
        # The compiler's child inherits the passes.
        with mock.patch.object(table, "PASSES", passes), contextlib.redirect_stderr(printed):
            self.compile(exported, tolerant=True)
            with self.assertRaisesRegex(RuntimeError, "the pass fold_batch_norm raised"):
                self.compile(exported)
        self.assertEqual([Path(exported.path(output)).read_bytes() for output in outputs], want)
        written = json.loads(Path(exported.path("passes")).read_text())
        self.assertEqual(written["failed"], {name: f"ValueError: in {name}" for name in broken})
        self.assertEqual([written[name] for name in broken], [None, None])
        for name in broken:
            self.assertEqual(printed.getvalue().count(f"warning: the pass {name} failed"), 1)

    def test_nothing_to_do(self) -> None:
        """A graph without matches for any pass compiles to the same bytes as without passes."""
        exported = self.export(PREAMBLE + "def model_fn(x, n):\n    return tf.tanh(x) * 2.0\n")
        outputs = ("object", "constants", "header", "source", "hlo")
        found = []
        for patterns in (("*",), ()):
            self.compile(exported, passes=patterns)
            found.append([Path(exported.path(output)).read_bytes() for output in outputs])
        self.assertEqual(*found)

    def test_stages_beside(self) -> None:
        """The exported graph is the same file after passes: HLO and TensorFlow's own numbers come from it."""
        exported = self.export(NET % "y")
        before = Path(exported.path("graph")).read_bytes()
        self.compile(exported)
        self.assertEqual(Path(exported.path("graph")).read_bytes(), before)

    def test_errors_name_lines(self) -> None:
        """What the compiler refuses in a graph that passes changed is reported with the user's line."""
        exported = self.export(NET % "tf.strings.to_number(tf.strings.as_string(y))")
        self.assert_error(
            self.error_of(self.compile, exported),
            """
            t::Model: XLA can't compile AsString

                AsString 'AsString' at model.py:14

              found: it computes on strings
              to do: handle strings where you prepare the inputs, and feed numbers; the check lists all that doesn't compile, and \
tf_aot_clusters compiles the rest (docs/guide/diagnostics.md)
            """,
        )

    def test_two_kinds(self) -> None:
        """Passes on graphs and passes on compiled functions don't affect each other, and keep the table's order."""
        from tfaot.compile import table
        from tfaot.compile.program.thunks.compiled import Compiled
        from tfaot.compile.program.thunks.kinds import CompiledFunction
        from tfaot.graph.program import Program

        compiled = Compiled({"x86-64": CompiledFunction((), (), (), (), (), ())}, {})
        kinds = [[each.name for each in table.PASSES if each.on is kind] for kind in (Compiled, Program)]
        self.assertEqual(len(kinds[0]) + len(kinds[1]), len(table.PASSES))
        self.assertEqual([*table.run(compiled, [kinds[1][0]]).items()], [(name, None) for name in kinds[0]])
        self.assertEqual([*table.run(compiled, kinds[0]).items()], [(name, 0) for name in kinds[0]])
        self.assertEqual(
            [each.rewrite(compiled) for each in table.PASSES if each.name in kinds[1]], [None] * len(kinds[1])
        )


if __name__ == "__main__":
    unittest.main()
