"""model.json is read strictly."""

from __future__ import annotations

import copy
import dataclasses
import json
import unittest
from typing import Any

from tfaot.core.errors import TfaotError
from tfaot.core.manifest import Call, EntryPoint, Fingerprints, Frozen, Input, Manifest, Output, Use, Variable

MANIFEST = Manifest(
    format=5,
    tensorflow="2.21.0",
    cpp_class="a::B",
    entry_points=(
        EntryPoint(
            "Train",
            "Train",
            (
                Input("Train/x:0", "x", "float32", (2, 3), "float32", batched=False),
                Input("Train/n:0", "n", "int64", (), "int64", batched=False),
            ),
            (Output("Train/loss:0", "loss", "float64", (), "float64", batched=False, size=""),),
            (Use(0, written=True), Use(1, written=False)),
            (),
        ),
        EntryPoint(
            "Look",
            "Look",
            (Input("Look/z/stored:0", "Look_z", "complex64", (64, 5), "float32", batched=True),),
            (
                Output("Look/h/stored:0", "h", "bfloat16", (64, 7), "uint16", batched=True, size=""),
                Output(
                    "Look/w/stored:0", "where", "complex128", (9, 2), "float64", batched=False, size="Look/w/size:0"
                ),
            ),
            (Use(2, written=False), Use(0, written=False)),
            (1, 8),
        ),
    ),
    variables=(
        Variable("w", "w", "float32", (3,), "float32", written=True, offset=0),
        Variable('größe "q"', "gr_e", "bool", (0, 4), "bool", written=False, offset=12),
        Variable("c", "c", "complex64", (2,), "float32", written=False, offset=12),
    ),
    frozen=(Frozen("f", "float16", (1, 2), "2" * 64),),
    random_state="",
    max_batch=64,
    calls=(Call("Train", 0), Call("Look", 5), Call("Train", 0)),
    fingerprints=Fingerprints("0" * 16, "1" * 16, "2" * 16, "3" * 16, "4" * 64),
)

_DO = "\n  to do: build the model again with one version of rules_tfaot; the export stage writes this file"


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
        """Protects every field between stages: what is read is what was written."""
        text = MANIFEST.to_json()
        self.assertEqual(Manifest.from_json(text), MANIFEST)
        self.assertEqual(Manifest.from_json(text).to_json(), text)
        self.assertTrue(text.isascii() and text.endswith("}\n"))

    def test_derived_values(self) -> None:
        """Protects what later stages derive: sizes of scalars and of empty tensors, and the written variables."""
        x, n = MANIFEST.entry_points[0].inputs
        self.assertEqual((x.count, x.bytes, n.count, n.bytes), (6, 24, 1, 8))
        self.assertEqual((MANIFEST.variables[1].count, MANIFEST.variables[1].bytes), (0, 0))
        self.assertEqual([variable.name for variable in MANIFEST.written], ["w"])

    def test_values_as_the_compiler_sees_them(self) -> None:
        """Protects dtypes that cross the edge as others: complex numbers get another dimension, bits don't."""
        (z,), (h, _) = MANIFEST.entry_points[1].inputs, MANIFEST.entry_points[1].outputs
        self.assertEqual((z.bytes, z.stored_shape), (64 * 5 * 8, (64, 5, 2)))
        self.assertEqual((h.bytes, h.stored_shape), (64 * 7 * 2, (64, 7)))
        plain = dataclasses.replace(z, stored="complex64")
        self.assertEqual((plain.bytes, plain.stored_shape), (64 * 5 * 8, (64, 5)))

    def test_entry_points(self) -> None:
        """Protects what each function of the class takes and writes, independent of other functions."""
        train, look = MANIFEST.entry_points
        self.assertEqual((MANIFEST.entry_point("Train"), MANIFEST.entry_point("Look")), (train, look))
        self.assertEqual([[v.name for v in MANIFEST.written_by(entry)] for entry in (train, look)], [["w"], []])
        self.assertEqual((train.feeds, train.fetches), (("Train/x:0", "Train/n:0"), ("Train/loss:0",)))
        self.assertEqual(look.fetches, ("Look/h/stored:0", "Look/w/stored:0", "Look/w/size:0"))
        self.assertEqual([[output.cpp_name for output in entry.sized] for entry in (train, look)], [[], ["where"]])

    def test_one_entry_point(self) -> None:
        """Protects HLO and StableHLO: one function as a separate program, with its edge as the compiler sees it."""
        look = MANIFEST.only("Look")
        (entry,) = look.entry_points
        self.assertEqual(
            [(t.name, t.dtype, t.shape) for t in entry.inputs], [("Look/z/stored:0", "float32", (8, 5, 2))]
        )
        self.assertEqual(
            [(t.name, t.dtype, t.shape, t.size) for t in entry.outputs],
            [
                ("Look/h/stored:0", "uint16", (8, 7), ""),
                ("Look/w/stored:0", "float64", (9, 2, 2), ""),
                ("Look/w/size:0", "int32", (2,), ""),
            ],
        )
        self.assertEqual(
            [(v.name, v.dtype, v.shape, v.written) for v in look.variables],
            [("c", "float32", (2, 2), False), ("w", "float32", (3,), False)],
        )
        self.assertEqual([(use.variable, use.written) for use in entry.variables], [(0, False), (1, False)])
        self.assertEqual(look.calls, (Call("Look", 5),))
        train = MANIFEST.only("")
        self.assertEqual([entry.name for entry in train.entry_points], ["Train"])
        self.assertEqual([variable.name for variable in train.written], ["w"])

    def test_unknown_field(self) -> None:
        """Protects against half understanding a newer manifest: an extra field is an error that names it."""
        self.assertEqual(self.changed("extra", to=1), "m.json: manifest has unknown fields ['extra']" + _DO)
        self.assertEqual(
            self.changed("variables", 0, "sharding", to=1),
            "m.json: manifest.variables[0] has unknown fields ['sharding']" + _DO,
        )

    def test_missing_field(self) -> None:
        """Protects against defaults that nobody chose: a missing field is an error that names it."""
        self.assertEqual(
            self.changed("max_batch", drop=True), "m.json: manifest doesn't have the fields ['max_batch']" + _DO
        )
        self.assertEqual(
            self.changed("entry_points", 0, "inputs", 1, "dtype", drop=True),
            "m.json: manifest.entry_points[0].inputs[1] doesn't have the fields ['dtype']" + _DO,
        )

    def test_mistyped_field(self) -> None:
        """Protects against numbers as text, and true instead of a number: types are exact."""
        self.assertEqual(self.changed("max_batch", to="3"), "m.json: manifest.max_batch is '3', not of type int" + _DO)
        self.assertEqual(
            self.changed("max_batch", to=True), "m.json: manifest.max_batch is True, not of type int" + _DO
        )
        self.assertEqual(
            self.changed("variables", 0, "written", to=1),
            "m.json: manifest.variables[0].written is 1, not of type bool" + _DO,
        )
        self.assertEqual(
            self.changed("variables", 0, "shape", to=[3, 1.5]),
            "m.json: manifest.variables[0].shape[1] is 1.5, not of type int" + _DO,
        )
        self.assertEqual(self.changed("variables", to={}), "m.json: manifest.variables isn't a list" + _DO)
        self.assertEqual(self.changed("fingerprints", to=[]), "m.json: manifest.fingerprints isn't an object" + _DO)

    def test_other_format(self) -> None:
        """Protects against a manifest whose fields have other meanings: the format's number is compared first."""
        self.assertEqual(
            self.changed("format", to=1), "m.json has format 1\n  found: this version reads format 5" + _DO
        )
        self.assertEqual(
            self.changed("format", drop=True), "m.json has format None\n  found: this version reads format 5" + _DO
        )

    def test_no_manifest_at_all(self) -> None:
        """Protects against a traceback for a file that is empty, truncated, or something else."""
        for text, message in (
            ("", "m.json isn't a manifest: Expecting value: line 1 column 1 (char 0)"),
            (MANIFEST.to_json()[:-3], "m.json isn't a manifest: "),
            ("[]", "m.json: manifest isn't an object"),
            ("1", "m.json: manifest isn't an object"),
        ):
            with self.subTest(text[:9]), self.assertRaises(TfaotError) as raised:
                Manifest.from_json(text, path="m.json")
            self.assertTrue(str(raised.exception).startswith(message), str(raised.exception))
            self.assertTrue(str(raised.exception).endswith(_DO))


if __name__ == "__main__":
    unittest.main()
