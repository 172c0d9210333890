"""model.json is read strictly."""

from __future__ import annotations

import copy
import json
import unittest
from typing import Any

from tfaot.errors import TfaotError
from tfaot.manifest import EntryPoint, Fingerprints, Manifest, Tensor, Variable

MANIFEST = Manifest(
    format=1,
    tensorflow="2.21.0",
    cpp_class="a::B",
    entry_points=(
        EntryPoint(
            "Run",
            (Tensor("x:0", "x", "float32", (2, 3)), Tensor("n:0", "n", "int64", ())),
            (Tensor("loss:0", "loss", "float64", ()),),
        ),
    ),
    variables=(
        Variable("w", "w", "float32", (3,), written=True, offset=0),
        Variable('größe "q"', "gr_e", "bool", (0, 4), written=False, offset=12),
    ),
    golden_steps=3,
    fingerprints=Fingerprints("0" * 64, "1" * 64),
)

_DO = "\n  to do: build the target again with one version of rules_tfaot; the export stage writes this file"


class ManifestTest(unittest.TestCase):
    def changed(self, *path: str | int, to: Any = None, drop: bool = False) -> str:
        """Returns the message for a manifest with one field changed."""
        data = json.loads(MANIFEST.to_json())
        place: Any = data
        for key in path[:-1]:
            place = place[key]
        if drop:
            del place[path[-1]]
        else:
            place[path[-1]] = copy.deepcopy(to)
        with self.assertRaises(TfaotError) as raised:
            Manifest.from_json(json.dumps(data), path="m.json")
        return str(raised.exception)

    def test_round_trip(self) -> None:
        """Protects every field on its way between stages: what is read is what was written."""
        text = MANIFEST.to_json()
        self.assertEqual(Manifest.from_json(text), MANIFEST)
        self.assertEqual(Manifest.from_json(text).to_json(), text)
        self.assertTrue(text.isascii() and text.endswith("}\n"))

    def test_derived_values(self) -> None:
        """Protects sizes of scalars, of empty tensors, and the written variables, which later stages derive."""
        x, n = MANIFEST.entry_points[0].inputs
        self.assertEqual((x.count, x.bytes, n.count, n.bytes), (6, 24, 1, 8))
        self.assertEqual((MANIFEST.variables[1].count, MANIFEST.variables[1].bytes), (0, 0))
        self.assertEqual([variable.name for variable in MANIFEST.written], ["w"])

    def test_unknown_field(self) -> None:
        """Protects from half understanding a newer manifest: a field too many is an error that names it."""
        self.assertEqual(self.changed("extra", to=1), "m.json: manifest has unknown fields ['extra']" + _DO)
        self.assertEqual(
            self.changed("variables", 0, "sharding", to=1),
            "m.json: manifest.variables[0] has unknown fields ['sharding']" + _DO,
        )

    def test_missing_field(self) -> None:
        """Protects from defaults that nobody chose: a field too few is an error that names it."""
        self.assertEqual(
            self.changed("golden_steps", drop=True), "m.json: manifest lacks the fields ['golden_steps']" + _DO
        )
        self.assertEqual(
            self.changed("entry_points", 0, "inputs", 1, "dtype", drop=True),
            "m.json: manifest.entry_points[0].inputs[1] lacks the fields ['dtype']" + _DO,
        )

    def test_mistyped_field(self) -> None:
        """Protects from numbers as text, and from true where a number is meant: types are exact."""
        self.assertEqual(
            self.changed("golden_steps", to="3"), "m.json: manifest.golden_steps is '3', not of type int" + _DO
        )
        self.assertEqual(
            self.changed("golden_steps", to=True), "m.json: manifest.golden_steps is True, not of type int" + _DO
        )
        self.assertEqual(
            self.changed("variables", 0, "written", to=1),
            "m.json: manifest.variables[0].written is 1, not of type bool" + _DO,
        )
        self.assertEqual(
            self.changed("variables", 0, "shape", to=[3, 1.5]),
            "m.json: manifest.variables[0].shape[1] is 1.5, not of type int" + _DO,
        )
        self.assertEqual(self.changed("variables", to={}), "m.json: manifest.variables is no list" + _DO)
        self.assertEqual(self.changed("fingerprints", to=[]), "m.json: manifest.fingerprints is no object" + _DO)

    def test_other_format(self) -> None:
        """Protects from a manifest whose fields mean something else: the format's number is compared first."""
        self.assertEqual(
            self.changed("format", to=2), "m.json has format 2\n  found: this version reads format 1" + _DO
        )
        self.assertEqual(
            self.changed("format", drop=True), "m.json has format None\n  found: this version reads format 1" + _DO
        )

    def test_no_manifest_at_all(self) -> None:
        """Protects from a traceback for a file that is empty, cut short, or something else."""
        for text, message in (
            ("", "m.json is not a manifest: Expecting value: line 1 column 1 (char 0)"),
            (MANIFEST.to_json()[:-3], "m.json is not a manifest: "),
            ("[]", "m.json: manifest is no object"),
            ("1", "m.json: manifest is no object"),
        ):
            with self.subTest(text[:9]), self.assertRaises(TfaotError) as raised:
                Manifest.from_json(text, path="m.json")
            self.assertTrue(str(raised.exception).startswith(message), str(raised.exception))
            self.assertTrue(str(raised.exception).endswith(_DO))


if __name__ == "__main__":
    unittest.main()
