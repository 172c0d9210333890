"""What the check finds in models, and how it says so."""

from __future__ import annotations

import dataclasses
import json

from tests.stages.harness import StageTest
from tfaot.core import isolate
from tfaot.preflight import run

WORDS = """\
import tensorflow as tf


class Words(tf.Module):
    @tf.function
    def words(self, x):
        return tf.cast(tf.strings.length(tf.as_string(x)), tf.float32)

    @tf.function
    def inner(self, x):
        return self.words(x) + tf.math.segment_sum(x, tf.constant([0, 0, 1, 1]))[0]

    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32, "x")])
    def outer(self, x):
        for _ in tf.range(3):
            x = self.inner(x) * 0.5
        return {"y": self.inner(x)}
"""
"""Three ops without kernels, in functions that a loop and a function call."""


class CheckTest(StageTest):
    """Checks of models in files."""

    def saved(self, code: str, function: str = "") -> str:
        """Saves the module that code defines, with lines of its file. Returns the folder."""
        folder = self.write(code)
        name = code.partition("class ")[2].partition("(")[0]

        def save() -> None:
            import importlib.util

            import tensorflow as tf

            spec = importlib.util.spec_from_file_location("saved_words", folder / "model.py")
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            model = getattr(module, name)()
            tf.saved_model.save(
                model,
                str(folder / "saved"),
                signatures=getattr(model, function) if function else None,
                options=tf.saved_model.SaveOptions(save_debug_info=True),
            )

        isolate.run_isolated(save, what="saving")
        return str(folder / "saved")

    def test_saved_model(self) -> None:
        """Protects users with a SavedModel and no BUILD file: all unsupported ops in nested functions, with lines and counts."""
        path = self.saved(WORDS, "outer")
        report = run.of_path(path, shown="saved")
        (entry,) = report.entry_points
        self.assertFalse(report.compiles)
        found = {finding.op: finding for finding in entry.findings}
        self.assertEqual(sorted(found), ["AsString", "SegmentSum", "StringLength"])
        for op, line, depth in (("AsString", 7, 5), ("StringLength", 7, 5), ("SegmentSum", 11, 4)):
            finding = found[op]
            self.assertEqual((finding.kind, finding.severity, finding.count), ("unsupported_op", "blocker", 2))
            (place,) = finding.places
            self.assertTrue(place.source.endswith(f"model.py:{line}"), place.source)
            self.assertIn(len(place.nesting), (depth, depth - 1), place.nesting)
        self.assertIn("tf.math.unsorted_segment_sum", found["SegmentSum"].rewrite)
        text = report.to_text()
        self.assertIn("saved: does not compile; 3 blockers, 0 hazards in 1 entry point", text)
        self.assertIn("BLOCKER: XLA can't compile AsString: it computes on strings", text)
        self.assertIn("model.py:7, in call > ", text)
        self.assertIn("2 times", text)
        self.assertEqual(json.loads(report.to_json()), json.loads(json.dumps(dataclasses.asdict(report))))


if __name__ == "__main__":
    import unittest

    unittest.main()
