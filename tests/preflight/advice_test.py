"""Follows the advice of errors: each refused model, changed as its error says, builds, and computes the same."""

from __future__ import annotations

import ast
import dataclasses
import re
import unittest
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.stages import cases, harness
from tfaot.core import isolate, knowledge
from tfaot.export.sources.model import Model
from tools.dev.reference import errors

_X = "x: (3, 4) float32"

CASES = {name: (advice, case) for name, advice, case in cases.read(Path(__file__).with_name("advice.txt"))}
"""By what is refused: what the error says, in part, and the case.

The file has the function's body, whose last line is what it returns, its inputs as `NAME: SHAPE DTYPE`, separated by semicolons,
whether the advised body computes other numbers, and that body.
"""


ELSEWHERE = {
    "build the graph for a CPU": "needs a TPU",
    "fetch only what the model computes": "of GraphDefs whose fetches save files",
    "let TensorFlow look them up, and compile the rest with tf_aot_clusters; or turn keys into indices where you prepare the "
    "inputs, and use tf.gather on a tensor": "of the check, for what the export stage refuses as a table",
    "use another implementation of the trees": "TensorFlow has removed these ops",
    "use the layer's implementation in plain ops": "needs an NVIDIA GPU",
    "use resource variables, as TensorFlow 2 does": "of graphs of TensorFlow 1, whose variables the export stage converts",
    "replace it by a product with a constant matrix": "of transforms that no function of TensorFlow's makes",
    "use a tf.TensorArray of a fixed size": "as for a growing list",
}
"""Advice on what these models can't contain, and why."""


def text(body: str, inputs: str) -> str:
    """Returns a Python file with a model of this body."""
    signature = []
    for part in inputs.split("; "):
        name, _, spec = part.partition(": ")
        shape, _, dtype = spec.rpartition(" ")
        signature.append((name, f"tf.TensorSpec({shape}, tf.{dtype}, name={name!r})"))
    *lines, last = body.splitlines()
    return "\n".join(
        [
            "import tensorflow as tf",
            "KEPT = {}",
            f"@tf.function(input_signature=[{', '.join(spec for _, spec in signature)}])",
            f"def model({', '.join(name for name, _ in signature)}):",
            *("    " + line for line in [*lines, f"return {last}"]),
            "",
        ]
    )


def results(files: Sequence[Path]) -> list[npt.NDArray[Any]]:
    """Returns what the models of files compute from drawn inputs, in a child, because it builds graphs."""

    def computed(path: Path) -> npt.NDArray[Any]:
        names: dict[str, Any] = {}
        exec(compile(path.read_text(), path, "exec"), names)
        rng = np.random.default_rng(3)
        inputs = [
            np.asarray(rng.uniform(0.1, 2, spec.shape), np.float32)
            if spec.dtype.is_floating
            else np.sort(np.arange(np.prod(spec.shape)) % 4).reshape(spec.shape).astype(spec.dtype.as_numpy_dtype)
            for spec in names["model"].input_signature
        ]
        return np.asarray(names["model"](*inputs))

    return isolate.run_isolated(lambda: [*map(computed, files)], what="running the models")


class AdviceTest(harness.StageTest):
    """Errors of models that don't compile."""

    def test_followed(self) -> None:
        """Protects users who do what an error says: its advice names a way that compiles, and computes what was meant."""
        same: dict[str, list[Path]] = {}
        for name, (advice, case) in CASES.items():
            inputs, _, other = case.extra.partition(" (other numbers")
            with self.subTest(name):
                refused, advised = (text(body, inputs) for body in (case.text, case.wanted))
                self.assertIn(advice, self.error_of(self.build, refused))
                self.build(advised)
                if not other:
                    same[name] = [self.write(model) / "model.py" for model in (refused, advised)]
        wanted, got = (results(files) for files in zip(*same.values(), strict=True))
        for name, actual, desired in zip(same, got, wanted, strict=True):
            with self.subTest(name):
                np.testing.assert_allclose(actual, desired, rtol=1e-3, atol=1e-4)

    def test_all(self) -> None:
        """Protects new advice, which needs a case here."""
        self.assertLessEqual(knowledge.REWRITES.keys(), CASES.keys())
        followed = [advice for advice, _ in CASES.values()]
        every = {advice for _, (_, advice) in knowledge.FAMILIES} | {
            *knowledge.COMPONENTS.values(),
            knowledge.NO_PFOR,
            knowledge.MOVE,
        }
        every |= {knowledge.fixed_list(""), knowledge.constant(""), knowledge.other_dtype({})}
        for advice in every - ELSEWHERE.keys():
            with self.subTest(advice):
                self.assertTrue(any(part in advice for part in followed), followed)

    def test_hazards(self) -> None:
        """Protects the check's advice on what compiles, and behaves unlike TensorFlow: the changed models build."""
        bodies = {
            "return the condition as an output": "x, tf.reduce_all(x > 0)",
            "return tf.reduce_all(tf.math.is_finite(…)) as an output": "x, tf.reduce_all(tf.math.is_finite(tf.math.log(x)))",
            "clip them in the model": "tf.gather(x, tf.clip_by_value(i, 0, 2))",
        }
        for advice in {advice for _, advice in {**knowledge.CHECKS, **knowledge.CLAMPED}.values()}:
            with self.subTest(advice):
                (body,) = [body for part, body in bodies.items() if part in advice]
                self.build(text(body, f"{_X}; i: (2,) int32"))

    def test_inputs(self) -> None:
        """Protects the advice on inputs that aren't dense tensors: what it names builds."""
        for spec, body, advice, advised in (
            (
                "tf.RaggedTensorSpec((3, None), tf.float32)",
                "tf.reduce_sum(x, 1)",
                "take a dense tensor that is padded to one size, and the lengths as another input, and mask the rest",
                text("tf.reduce_sum(tf.where(tf.sequence_mask(n, 4), x, 0.0), 1)", "x: (3, 4) float32; n: (3,) int32"),
            ),
            (
                "tf.SparseTensorSpec((3, 4), tf.float32)",
                "tf.sparse.reduce_sum(x, 1)",
                "take dense tensors",
                text("tf.reduce_sum(x, 1)", _X),
            ),
        ):
            with self.subTest(spec):
                refused = f"import tensorflow as tf\n@tf.function(input_signature=[{spec}])\ndef model(x):\n    return {body}\n"
                self.assertIn(advice, self.error_of(self.build, refused))
                self.build(advised)

    def test_sizes(self) -> None:
        """Protects the advice on open sizes and ranks, which a batch changes: what it prints builds."""
        shapes = [("None", (), "[]"), ("(None, 3)", (), "[1, 3]"), ("(None, None, 3)", (1, 4), "[None, 1, 3]")]
        for shape, batch_sizes, advice in shapes:
            model = (
                f"import tensorflow as tf\n@tf.function(input_signature=[tf.TensorSpec({shape}, name='x')])\n"
                "def model(x):\n    return tf.sin(x)\n"
            )
            with self.subTest(shape):
                message = self.error_of(self.export, model, batch_sizes=batch_sizes)
                self.assertIn(f'dims = {{"x": {advice}}}', message)
                self.export(model, batch_sizes=batch_sizes, dims={"x": tuple(eval(advice))})

    def build(self, model: str) -> None:
        self.compile(self.export(model))


FOLLOWED = Path(__file__).with_name("followed.txt")
"""Whole models: text, the request, and what changes as the error says, text, request, or both.

A changed text stands there whole, or its changes do: `OLD ~> NEW` replaces a part that is there once. A case has the message, as in
`refusals.txt`, or behind its name, a part of the advice. Texts of GraphDefs and SavedModels are what writes them.
"""
REFUSALS = Path(__file__).parents[1] / "export" / "refusals.txt"
"""Models whose refusal `refusals_test` checks. Behind the message, many cases have what changes."""


def advised(file: Path, text: str, changes: str) -> str:
    """Returns a text after changes: lines `OLD ~> NEW`, or the whole new text, which can begin with a start of the file."""
    if " ~>" not in changes.partition("\n")[0]:
        starts = dict(re.findall(r"^=== @(\w+)\n((?:(?!=== ).*\n)*)", file.read_text(), re.MULTILINE))
        starts["PREAMBLE"] = harness.PREAMBLE
        return re.sub(r"\A@(\w+)(\n|\Z)", lambda match: starts[match[1]], changes) or text
    for change in changes.splitlines():
        old, new = change.split(" ~>", 1)
        assert text.count(old) == 1, f"{change}: the text has this {text.count(old)} times:\n{text}"
        text = text.replace(old, new.removeprefix(" ").replace("\\n", "\n"))
    return text


def parts(case: cases.Case) -> tuple[str, str, str]:
    """Returns the message that a case has, and behind it, another request and changes of the text, if there are any."""
    message, _, rest = case.wanted.partition("\n---")
    other, _, changes = rest.partition("\n")
    return message, other.strip(), changes


def advice_of(case: cases.Case) -> str:
    """Returns the advice in a case's message."""
    return parts(case)[0].rpartition("to do: ")[2]


class ModelsTest(harness.StageTest):
    """Errors of all stages that are about models and their descriptions."""

    def built(self, text: str, request: Mapping[str, Any]) -> None:
        """Exports and compiles a model, and with `verify`, computes its goldens."""
        options = dict(request)
        source, verify = options.pop("source", "model"), options.pop("verify", False)
        unseen = options.pop("unseen", ())
        if "weights" in options:
            options["weights"] = {name: np.asarray(value, np.float32) for name, value in options["weights"].items()}
        if source == "cluster":
            isolate.run_isolated(lambda: _cluster(self.write(text), options), what="cutting a model")
            return
        model: str | Model = text
        if source != "model":
            folder = self.write("")
            path = folder / {"graph": "graph.pb", "saved_model": "saved", "stablehlo": "program.mlir"}[source]
            if source == "stablehlo":
                path.write_text(text)
            else:
                isolate.run_isolated(lambda: _run(text, folder), what="writing a model")
            fields = {field.name for field in dataclasses.fields(Model)} & options.keys()
            own: dict[str, Any] = {name: options.pop(name) for name in fields}
            own |= {name: str(folder / own[name]) for name in ("checkpoint", "config", "saver") if name in own}
            model = Model(**own | {source: str(path)})
        exported = self.export(model, **options)
        entry_points = exported.manifest.entry_points
        for entry in entry_points:
            batch, buckets = entry.variants[0]
            name = entry.name if len(entry_points) > 1 else ""
            self.compile(exported, entry_point=name, batch=batch, buckets=buckets)
        if verify:
            exported.goldens(unseen=unseen)

    def message(self, case: cases.Case) -> str:
        """Returns the error for a case's text, without folders of the test."""
        request = ast.literal_eval(case.extra or "{}")
        return re.sub(re.escape(f"{self.folder}/") + r"[^/\s]+/", "", self.error_of(self.built, case.text, request))

    def check(self, case: cases.Case, advice: str) -> None:
        """Checks a case of the file."""
        if "\n  to do: " in case.wanted:
            wanted, other, changes = parts(case)
            self.assertEqual(self.message(case), wanted)
        else:
            changes, _, other = ("\n" + case.wanted).partition("\n--- ")
            self.assertIn(advice, self.message(case))
        self.built(advised(FOLLOWED, case.text, changes.strip("\n")), ast.literal_eval(other or case.extra or "{}"))

    def test_all(self) -> None:
        """Protects new advice of any stage, which needs a case in one of the tables, or a test elsewhere that follows it."""
        followed = [advice or advice_of(case) for _, advice, case in cases.read(FOLLOWED)]
        followed += [advice for advice, _ in CASES.values()]
        followed += [advice for others in OTHER_TESTS.values() for advice in others]
        followed += [advice_of(case) for case in CHANGED]
        root = harness.ROOT / "py" / "tfaot"
        for file in sorted(path for part in _PARTS for path in [root / part, *(root / part).rglob("*")]):
            if file.suffix != ".py":
                continue
            for message in errors.messages(str(file.relative_to(harness.ROOT)), file.read_text(encoding="utf-8")):
                advice = message.do.partition(" / ")[0]
                pattern = ".*".join(map(re.escape, advice.split("…")))
                with self.subTest(advice, file=file.name):
                    self.assertTrue(
                        advice.startswith("…")  # from tfaot.core.knowledge, of which AdviceTest knows
                        or any(part in message.do for part in (*followed, *NOT_ABOUT_MODELS))
                        or any(re.match(pattern, part) for part in followed),
                        "no test follows this advice",
                    )
        for file_name in OTHER_TESTS:  # the test's own folder has no others under Bazel
            self.assertTrue((harness.ROOT / file_name).exists() or not (harness.ROOT / ".git").exists(), file_name)


_PARTS = (
    "cluster",
    "compile",
    "core/buckets.py",
    "core/refusals.py",
    "core/user_code.py",
    "export",
    "graph",
    "jax",
    "verify",
)

OTHER_TESTS = {
    "tests/cluster/op_test.py": ("load only one of each class",),
    "tests/cluster/pipeline_test.py": ("keep pipeline = False", "write the constant itself"),
    "tests/cluster/stage_test.py": ("give the model inputs to verify: golden_inputs",),
    "tests/compile/program/executor_test.py": ("sort their indices instead",),
    "tests/export/errors_test.py": ("name a file that ends in .py",),
    "tests/export/golden_inputs_test.py": (
        "add an array",
        "define golden_fn(step, rng) in it",
        "name each array as its input",
        "raise golden_steps",
        "return one array for each input",
        "write it with numpy.savez",
    ),
    "tests/export/rewrites/freeze_test.py": ("freeze fewer", "feed these variables"),
    "tests/export/sources/graph_def_test.py": (
        "list all files of the checkpoint",
        "name a checkpoint's prefix",
        "name the whole folder",
        "use a GraphDef, binary",
        "use a tensorflow.",
        "use the file that TensorFlow wrote",
    ),
    "tests/export/sources/jax_program_test.py": (
        "compute it inside of the function that you give jax.shard_map",
        "compute with it inside of the function",
        "give it one shape and one dtype",
        "give both one name in dims",
        "give dimensions that must be equal one name in dims, or compile for fixed sizes",
        "give only its shape, jax.ShapeDtypeStruct",
        "leave one open, and fix the others",
        "list buckets in sizes whose largest ones fulfill it",
        "write the constraint in such a form, or compile for fixed sizes",
    ),
    "tests/export/sizes_test.py": (
        "and give each a number in dims; or do without",
        "multiply by a matrix with tf.tensordot",
    ),
    "tests/export/sources/saved_model_test.py": (
        "check the files that it is made from",
        "if the file is in Git LFS",
        "use the folder that",
    ),
    "tests/export/sources/stablehlo_test.py": (
        "export after jax.config.update",
        "export for one: jax.export",
        "or as text, exported.mlir_module()",
        "use sizes that the export allows",
        "use what jax.export gives",
    ),
    "tests/jax/file_test.py": (
        "bind other values before the export",
        "define input_fn(), which returns a jax.ShapeDtypeStruct",
        "give export another name for each",
        "name an argument and the result",
        "return each part of the state",
    ),
    "tests/verify/goldens_test.py": ("check what sets its size",),
}
"""Advice on files, on values, and on programs of JAX, by the test of what it names."""

NOT_ABOUT_MODELS = (
    "change the model at the lines above",
    "check the path",
    "fix …",
    "no version of TensorFlow writes such a file",
    "no version of it writes such a graph",
    "report it to rules_tfaot",
    "requirements.lock names",
    "tensorflow_versions.md names",
    "whose seed is yours, or use TensorFlow 2.21",
    "write it to a file first",
)
"""Parts of advice on damaged files, other versions of TensorFlow, and faults of ours."""


def _cluster(folder: Path, options: Mapping[str, Any]) -> None:
    from tfaot.cluster import cluster
    from tfaot.cluster.request import Request

    names = [field.name for field in dataclasses.fields(Request)]
    fields: dict[str, Any] = {"min_ops": 2, "golden_steps": 1, **options}
    fields |= {name: str(folder / name) for name in names if name.startswith("out_")}
    cluster.cluster(Request(model=Model(model=str(folder / "model.py")), cpp_class="a::B", **fields))


def _run(text: str, folder: Path) -> None:
    import os

    import tensorflow as tf

    os.chdir(folder)
    exec(compile(text, "model.py", "exec"), {"tf": tf, "v1": tf.compat.v1})


for _name, _advice, _case in cases.read(FOLLOWED):

    def _test(self: ModelsTest, case: cases.Case = _case, advice: str = _advice) -> None:
        self.check(case, advice)

    setattr(ModelsTest, "test_" + re.sub(r"\W+", "_", _name), _test)

CHANGED = list[cases.Case]()
"""Refusals whose advice tests follow."""
for _name, _, _case in cases.read(REFUSALS, {"PREAMBLE": harness.PREAMBLE}):
    _, _other, _changes = parts(_case)
    if not (_other or _changes):
        continue
    CHANGED.append(_case)

    def _follow(
        self: ModelsTest, case: cases.Case = _case, changes: str = _changes, request: str = _other or _case.extra
    ) -> None:
        self.built(advised(REFUSALS, case.text, changes), ast.literal_eval(request or "{}"))

    setattr(ModelsTest, f"test_{_name}", _follow)


if __name__ == "__main__":
    unittest.main()
