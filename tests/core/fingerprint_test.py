"""What identifies a build: one component for each thing that it is made from."""

from __future__ import annotations

import dataclasses
import json
import unittest
from typing import Any
from unittest import mock

import numpy as np

from tests.core.manifest_test import MANIFEST
from tfaot.core import dtypes, fingerprint, version
from tfaot.core.errors import TfaotError
from tfaot.core.fingerprint import Components, Stamp
from tfaot.core.manifest import Manifest, Variable


def stamp(manifest: Manifest = MANIFEST, **changes: Any) -> Stamp:
    """Returns the stamp of a build."""
    stage: dict[str, Any] = {"isa": ("x86-64-v3",), "xla_flags": ("--a=1", "--b"), "passes": {"one", "two"}}
    return fingerprint.stamp(manifest, **stage | changes)


class ComponentsTest(unittest.TestCase):
    """Which components a change shows in."""

    def assert_changes(self, component: str, other: Stamp) -> None:
        """Checks that one component, and the combined fingerprint, differ from the first build's."""
        one, two = (dataclasses.asdict(stamped.components) for stamped in (stamp(), other))
        self.assertEqual([name for name in one if one[name] != two[name]], [component])
        self.assertNotEqual(stamp().fingerprint, other.fingerprint)

    def test_platform(self) -> None:
        """A library for macOS isn't one for Linux, though both have the same CPU level."""
        self.assert_changes("isa", stamp(target_triple="x86_64-apple-macosx11.0.0"))

    def test_flags(self) -> None:
        """XLA's flags count in their order, and passes as a set."""
        self.assert_changes("flags", stamp(xla_flags=("--a=2", "--b")))
        self.assert_changes("flags", stamp(xla_flags=("--b", "--a=1")))
        self.assert_changes("flags", stamp(passes={"one"}))
        self.assert_changes("flags", stamp(passes={"one", "two", "--b"}, xla_flags=("--a=1",)))
        self.assertEqual(stamp(), stamp(passes=["two", "one"]))

    def test_isa(self) -> None:
        """Each CPU level counts."""
        self.assert_changes("isa", stamp(isa=("x86-64-v2",)))
        self.assert_changes("isa", stamp(isa=("x86-64-v2", "x86-64-v3")))

    def test_compiler(self) -> None:
        """Both versions count."""
        self.assert_changes("compiler", stamp(dataclasses.replace(MANIFEST, tensorflow="2.21.1")))
        with mock.patch.object(version, "RULES", "99"):
            other = stamp()
        self.assert_changes("compiler", other)

    def test_what_export_knows(self) -> None:
        """The manifest's components are the build's, and the hash of frozen weights, which are constants, is none."""
        prints = MANIFEST.fingerprints
        for name in ("graph", "shapes", "constants", "config"):
            changed = dataclasses.replace(prints, **{name: "f" * 16})
            self.assert_changes(name, stamp(dataclasses.replace(MANIFEST, fingerprints=changed)))
        same = dataclasses.replace(MANIFEST, fingerprints=dataclasses.replace(prints, frozen="f" * 64))
        self.assertEqual(stamp(same), stamp())

    def test_all_components_are_combined(self) -> None:
        """Components that swap their values are another build."""
        names = [field.name for field in dataclasses.fields(Components)]
        first = Components(*(str(index) * 16 for index in range(len(names))))
        prints = {first.combined}
        for index, name in enumerate(names):
            other = names[index - 1]
            prints.add(dataclasses.replace(first, **{name: getattr(first, other)}).combined)
            prints.add(
                dataclasses.replace(first, **{name: getattr(first, other), other: getattr(first, name)}).combined
            )
        self.assertEqual(len(prints), 1 + 2 * len(names))
        self.assertRegex(first.combined, "^[0-9a-f]{16}$")

    def test_shapes(self) -> None:
        """Each field of the manifest that has a size, a dtype, or a batch shows in shapes, and not in config."""
        entry = MANIFEST.entry_points[1]
        (z,), (h, where) = entry.inputs, entry.outputs
        variable = MANIFEST.variables[0]
        for changed in (
            _entry(inputs=(dataclasses.replace(z, shape=(64, 6)),)),
            _entry(inputs=(dataclasses.replace(z, dtype="complex128"),)),
            _entry(inputs=(dataclasses.replace(z, stored="complex64"),)),
            _entry(inputs=(dataclasses.replace(z, batched=False),)),
            _entry(outputs=(dataclasses.replace(h, shape=(64, 8)), where)),
            _entry(outputs=(h, dataclasses.replace(where, size=""))),
            _entry(batch_sizes=(1, 16)),
            dataclasses.replace(MANIFEST, max_batch=65),
            _variable(shape=(4,)),
            _variable(dtype="float64"),
        ):
            self.assertNotEqual(fingerprint.shapes(changed, "0"), fingerprint.shapes(MANIFEST, "0"))
            self.assertEqual(fingerprint.config(changed), fingerprint.config(MANIFEST))
        self.assertNotEqual(fingerprint.shapes(MANIFEST, "1"), fingerprint.shapes(MANIFEST, "0"))
        self.assertEqual(fingerprint.shapes(_variable(offset=64), "0"), fingerprint.shapes(MANIFEST, "0"))
        self.assertEqual(variable, MANIFEST.variables[0])

    def test_config(self) -> None:
        """Each field of the manifest that names something in C++ or in weight files shows in config, and not in shapes."""
        entry = MANIFEST.entry_points[1]
        (z,), (h, where) = entry.inputs, entry.outputs
        for changed in (
            dataclasses.replace(MANIFEST, cpp_class="a::C"),
            dataclasses.replace(MANIFEST, random_state="w"),
            _entry(name="See"),
            _entry(cpp_name="See"),
            _entry(inputs=(dataclasses.replace(z, cpp_name="zz"),)),
            _entry(outputs=(h, dataclasses.replace(where, cpp_name="here"))),
            _entry(variables=entry.variables[::-1]),
            _entry(variables=(entry.variables[0], dataclasses.replace(entry.variables[1], written=True))),
            _variable(name="v"),
            _variable(cpp_name="v"),
            _variable(written=False),
        ):
            self.assertNotEqual(fingerprint.config(changed), fingerprint.config(MANIFEST))
            self.assertEqual(fingerprint.shapes(changed, "0"), fingerprint.shapes(MANIFEST, "0"))
        node = _entry(inputs=(dataclasses.replace(z, name="other:0"),))
        self.assertEqual(fingerprint.config(node), fingerprint.config(MANIFEST))


def _entry(**changes: Any) -> Manifest:
    first, second = MANIFEST.entry_points
    return dataclasses.replace(MANIFEST, entry_points=(first, dataclasses.replace(second, **changes)))


def _variable(**changes: Any) -> Manifest:
    first, *others = MANIFEST.variables
    variable: Variable = dataclasses.replace(first, **changes)
    return dataclasses.replace(MANIFEST, variables=(variable, *others))


class WeightsTest(unittest.TestCase):
    """What identifies a model's weights."""

    def test_says_all(self) -> None:
        """Protects against confusing weights: value, dtype, and shape always count, and names among all weights."""
        one = fingerprint.of_value(np.array([1, 2], np.float32))
        self.assertEqual(one, "e8c1cb12acd25edd29c0b2c67bccf91ff67ac4f940047a973e59d7951db5bc89")
        for other in (
            np.array([1, 3], np.float32),
            np.array([1, 2], np.int32),
            np.array([[1, 2]], np.float32),
            np.array([[1], [2]], np.float32),
        ):
            self.assertNotEqual(fingerprint.of_value(other), one)
        both = fingerprint.of_values({"v": one})
        self.assertEqual(both, "00c2312353af77c6a37e498dc525a105049301f0d637da67039950568c6a5550")
        self.assertNotEqual(fingerprint.of_values({"w": one}), both)
        self.assertNotEqual(fingerprint.of_values({"v": fingerprint.of_value(np.array([1, 3], np.float32))}), both)

    def test_order_and_layout(self) -> None:
        """Protects rebuilds: neither the order of variables nor their memory layout in NumPy counts."""
        value = np.arange(6.0).reshape(2, 3)
        self.assertEqual(fingerprint.of_value(value), fingerprint.of_value(np.asfortranarray(value)))
        empty = fingerprint.of_value(np.zeros((0, 2), dtypes.BY_NAME["bfloat16"].numpy()))
        self.assertEqual(fingerprint.of_values({"a": "1", "b": empty}), fingerprint.of_values({"b": empty, "a": "1"}))


class StampTest(unittest.TestCase):
    """`NAME.fingerprint.json`."""

    def test_round_trip(self) -> None:
        """What is read is what was written."""
        self.assertEqual(Stamp.from_json(stamp().to_json(), path="s.json"), stamp())

    def test_other_files(self) -> None:
        """Anything else is an error that says what to do, as for a manifest."""
        data = json.loads(stamp().to_json())
        for text, why in (
            ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
            (json.dumps(data | {"more": 1}), "stamp has unknown fields ['more']"),
            (json.dumps(data | {"isa": "x"}), "stamp.isa isn't a list"),
        ):
            with self.assertRaises(TfaotError) as raised:
                Stamp.from_json(text, path="s.json")
            self.assertEqual(
                str(raised.exception),
                f"s.json isn't a fingerprint that this version of rules_tfaot can read: {why}\n"
                "  to do: build the model again; the compile stage writes this file",
            )


if __name__ == "__main__":
    unittest.main()
