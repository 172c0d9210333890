"""Models as Python files: what the file can define, what its functions take, return, write, and capture, and their names."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.export.sources.eager import EagerTest, call
from tests.stages import cases


def call_nests(module: Any, entry_point: str, inputs: Sequence[Any]) -> Any:
    """Calls a function of the case `nests`."""
    arguments: dict[str, Any] = {
        "dicts": lambda a, x, y: [{"a": a, "b": {"x": x, "y": y}}],
        "tuples": lambda y, x0, x1: [y, (x0, x1)],
        "named": lambda u, t: [module.Pair(u, t)],
        "plain": lambda u, t, second: [module.Plain({"in": u}, t), second],
        "flat": lambda t, u: [module.Flat(u, t)],
        "signed": lambda a, b: [{"a": a, "b": b}],
    }
    return getattr(module, entry_point)(*arguments[entry_point](*inputs))


def call_keywords(module: Any, entry_point: str, inputs: Sequence[Any]) -> Any:
    """Calls a function of the case `parameters_of_all_kinds`."""
    names = {"any_number": (), "by_keyword": ("y",), "any_keyword": ("x", "y")}[entry_point]
    placed = len(inputs) - len(names)
    return getattr(module, entry_point)(*inputs[:placed], **dict(zip(names, inputs[placed:], strict=True)))


def call_named(module: Any, entry_point: str, inputs: Sequence[Any]) -> Any:
    """Calls a function of the case `golden_fn`."""
    return module.named(*inputs) if entry_point == "named" else module.placed(dict(zip("ab", inputs, strict=True)))


def call_numbers(module: Any, entry_point: str, inputs: Sequence[Any]) -> Any:
    """Calls a function of the case `returned_nests`, one of which returns a number of NumPy's default dtype."""
    if entry_point == "numbers":
        return {1: inputs[0], 0: np.int32(3), 2: inputs[0] > 0}
    return call(module, entry_point, inputs)


def points(*names: str) -> tuple[tuple[str, str], ...]:
    """Returns entry points for functions in the file, numbered in C++ so that output names are short."""
    return tuple((f"f{index}", name) for index, name in enumerate(names))


def same(*names: str) -> tuple[tuple[str, str], ...]:
    """Returns entry points that have the same name in C++ as in the file."""
    return tuple((name, name) for name in names)


class PythonModelTest(EagerTest):
    """Exported graphs against the user's own code."""

    def check_case(self, case: cases.Case) -> None:
        """Checks a case of `python_models.txt`: a file, arguments of `agree`, and facts."""
        exported = self.agree(case.text, **eval(f"dict({case.extra})", globals()))
        manifest = exported.manifest
        entries = manifest.entry_points
        scope: dict[str, Any] = {
            "exported": exported,
            "graph": Path(exported.path("graph")).read_bytes(),
            "inputs": {entry.name: [(x.cpp_name, x.dtype, x.shape) for x in entry.inputs] for entry in entries},
            "manifest": manifest,
            "names": {variable.name for held in (manifest.variables, manifest.frozen) for variable in held},
            "outputs": {entry.name: [(x.cpp_name, x.shape) for x in entry.outputs] for entry in entries},
            "uses": {
                entry.name: [(manifest.variables[use.variable].name, use.written) for use in entry.variables]
                for entry in entries
            },
            "written": exported.written,
        }
        cases.check_facts(self, case.wanted, scope)

    def test_strings(self) -> None:
        """Strings can't be computed. Each op is named with its line."""
        for body, op, advice in (
            (
                "tf.strings.length(tf.strings.as_string(y))",
                "AsString",
                "handle strings where you prepare the inputs, and feed numbers",
            ),
            ("(tf.print(y), None)[1]", "StringFormat", "remove tf.print, or return the value as an output"),
        ):
            model = f"import tensorflow as tf\n\n\ndef model(y):\n    x = {body}\n    return y if x is None else x\n"
            self.assert_error(
                self.error_of(lambda model=model: self.compile(self.export(model, signature={"y": "float32"}))),
                f"""
                t::Model: XLA can't compile {op}

                    {op} '{op}' at model.py:5

                  found: it computes on strings
                  to do: {advice}; the check lists all that doesn't compile, and \
tf_aot_clusters compiles the rest (docs/guide/diagnostics.md)
                """,
            )


cases.declare(PythonModelTest, Path(__file__).with_name("python_models.txt"), PythonModelTest.check_case)

if __name__ == "__main__":
    unittest.main()
