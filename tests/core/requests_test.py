"""The flags of stages, which are the fields of their requests."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import unittest
from collections.abc import Mapping
from unittest import mock

from tfaot.core import caller, requests
from tfaot.core.errors import TfaotError


@dataclasses.dataclass(frozen=True)
class Part:
    """An element of several parts."""

    name: str
    count: int
    path: str


@dataclasses.dataclass(frozen=True)
class Nested:
    """Fields that are flags of the request, too."""

    source: str
    """Where it is."""
    signature: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base:
    """What requests share."""

    nested: Nested
    dims: Mapping[str, tuple[int | str | None, ...]] = dataclasses.field(default_factory=dict)
    """100 % of the sizes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(Base):
    """A request with a field of each kind."""

    out_file: str
    """What to write."""
    strict: bool
    batch: int = 0
    config: str | None = None
    levels: tuple[str, ...] = ("one",)
    sizes: tuple[int, ...] = ()
    frozen: tuple[str, ...] | None = None
    parts: tuple[Part, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()


LEAST = Request(nested=Nested("model.py"), out_file="out", strict=False)
MOST = Request(
    nested=Nested("a=b", {"x": "float32[64, None]", "y": "int32[]"}),
    dims={"x": (32, None, 3), "scalar": ()},
    out_file="--out file",
    strict=True,
    batch=-3,
    config="",
    levels=("two words", "*"),
    sizes=(1, 8),
    frozen=("*", "!head/*"),
    parts=(Part("", 0, "a=b.h"), Part("Run", 8, "r.h")),
    pairs=(("Run", "serve=1"),),
)


class RequestsTest(unittest.TestCase):
    """A request becomes flags, and flags become the request."""

    def test_round_trip(self) -> None:
        """Protects stages from other values than the caller set: each field arrives as it was."""
        for request in (LEAST, MOST, dataclasses.replace(LEAST, frozen=(), levels=())):
            self.assertEqual(requests.parse(Request, flags=requests.flags_of(vars(request))), request)

    def test_form(self) -> None:
        """Protects the agreement with `run_stage` in `rules/private/stage.bzl`, which writes the same flags."""
        fields = {
            "strict": False,
            "sizes": [1, 8],
            "frozen": [],
            "dims": {"x": "32,?"},
            "config": None,
            "pairs": [("a", "b")],
        }
        wanted = ["--no-strict", "--sizes=1", "--sizes=8", "--frozen=", "--dims=x=32,?", "--pairs=a=b"]
        self.assertEqual(requests.flags_of(fields), wanted)

    def refused(self, *flags: str) -> str:
        """Returns what is printed about a bad command line."""
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed), self.assertRaises(SystemExit):
            requests.parse(Request, description="Tests.", flags=flags)
        return " ".join(printed.getvalue().split())

    def test_refused(self) -> None:
        """Protects from a name that only one side has: a flag without a field, and a field without a flag, are errors."""
        least = requests.flags_of(vars(LEAST))
        self.assertIn("unrecognized arguments: --outfile=x", self.refused(*least, "--outfile=x"))
        self.assertIn("unrecognized arguments: --bat=1", self.refused(*least, "--bat=1"))
        self.assertIn("the following arguments are required: --source, --out_file, --strict", self.refused())
        self.assertIn("'x' isn't a whole number", self.refused(*least, "--batch=x"))
        self.assertIn("'Run=1' doesn't have 3 parts, separated by '='", self.refused(*least, "--parts=Run=1"))

    def test_sizes(self) -> None:
        """Protects users who mistype a size: one error in the words of the caller."""
        flags = [*requests.flags_of(vars(LEAST)), "--dims=x=1,-5,2a,time"]
        for variables, wanted in (
            ({}, ("dims", " (None in a BUILD file)", "sizes")),
            ({caller.VARIABLE: "1"}, ("--dims", "", "--sizes")),
        ):
            with mock.patch.dict(os.environ, variables), self.assertRaises(TfaotError) as raised:
                requests.parse(Request, flags=flags)
            self.assertEqual(
                str(raised.exception),
                f"{wanted[0]} has a size of x that isn't one\n  found: -5, 2a\n"
                f"  to do: give a number of 0 or more for each dimension, or ?{wanted[1]} for the model's own size, "
                f"or a name of {wanted[2]}",
            )

    def test_help(self) -> None:
        """Protects who runs a main by hand: its help has the fields' documentation."""
        shown = self.refused("--help")
        for text in ("Where it is.", "100 % of the sizes.", "What to write."):
            self.assertIn(text, shown)


class CallerTest(unittest.TestCase):
    """Messages name what the caller can set."""

    def test_settings(self) -> None:
        """Protects users of the command from Starlark, and those of Bazel from options."""
        for name, value, in_bazel, in_command in (
            ("dims", {"audio": [1, 1, 1]}, 'dims = {"audio": [1, 1, 1]}', "--dims audio=1,1,1"),
            ("dims", {"a": (None, 3), "b": ()}, 'dims = {"a": [None, 3], "b": []}', "--dims 'a=?,3' --dims b="),
            ("weights", {"dtype": "int8"}, 'weights = {"dtype": "int8"}', "--weights dtype=int8"),
            ("batch_sizes", (1, 8), "batch_sizes = [1, 8]", "--batch-sizes 1 --batch-sizes 8"),
            ("frozen", ["*", "!a"], 'frozen = ["*", "!a"]', "--frozen '*' --frozen '!a'"),
            ("frozen", [], "frozen = []", "--frozen="),
            ("embed_variables", False, "embed_variables = False", "--no-embed-variables"),
            ("rows_independent", True, "rows_independent = True", "--rows-independent"),
            ("golden_steps", 0, "golden_steps = 0", "--golden-steps 0"),
            ("golden_inputs", "inputs.py", 'golden_inputs = "inputs.py"', "--golden-inputs inputs.py"),
        ):
            with self.subTest(name):
                self.assertEqual(caller.setting(name, value), in_bazel)
                with mock.patch.dict(os.environ, {caller.VARIABLE: "1"}):
                    self.assertEqual(caller.setting(name, value), in_command)

    def test_names(self) -> None:
        """Protects the same where a message names no value."""
        self.assertEqual((caller.option("max_batch"), caller.the("deps")), ("max_batch", "the target's deps"))
        with mock.patch.dict(os.environ, {caller.VARIABLE: "1"}):
            self.assertEqual((caller.option("max_batch"), caller.the("deps")), ("--max-batch", "--deps"))


if __name__ == "__main__":
    unittest.main()
