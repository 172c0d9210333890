"""The class of an exported model gets its name later, so that one export serves several classes."""

from __future__ import annotations

import dataclasses
import textwrap
import unittest

from tests.core.manifest_test import MANIFEST
from tfaot.core import fingerprint
from tfaot.core.errors import TfaotError
from tfaot.core.naming import named

UNNAMED = dataclasses.replace(MANIFEST, cpp_class="")


class NamingTest(unittest.TestCase):
    """The manifest of a named class."""

    def test_names(self) -> None:
        """Protects what a name changes: the class, and the part of the fingerprint that depends on names, and nothing else."""
        one, other = named(UNNAMED, "::a::B"), named(UNNAMED, "a::C")
        self.assertEqual((one.cpp_class, other.cpp_class), ("a::B", "a::C"))
        self.assertEqual(one.fingerprints.config, fingerprint.config(one))
        self.assertNotEqual(one.fingerprints.config, other.fingerprints.config)
        prints = dataclasses.replace(one.fingerprints, config=UNNAMED.fingerprints.config)
        self.assertEqual(dataclasses.replace(one, cpp_class="", fingerprints=prints), UNNAMED)

    def test_name_of_a_member(self) -> None:
        """Protects C++ that compiles: a class can't have a member of its own name, and the error says which one it is."""
        for cpp_class, what in (
            ("a::Train", "the entry point Train"),
            ("a::x", "the input Train/x:0"),
            ("a::where", "the output Look/w/stored:0"),
            (f"a::{MANIFEST.variables[0].cpp_name}", f"the variable {MANIFEST.variables[0].name}"),
        ):
            with self.subTest(cpp_class), self.assertRaises(TfaotError) as raised:
                named(UNNAMED, cpp_class)
            name = cpp_class.removeprefix("a::")
            wanted = f"""
                cpp_class = "{cpp_class}": a member of a class can't have the class's name
                  found: {what} of the model, which is named {name}
                  to do: choose another name for the class: cpp_class = "{cpp_class}Model"
                """
            self.assertEqual(str(raised.exception), textwrap.dedent(wanted).strip())

    def test_illegal_names(self) -> None:
        """Protects C++ that compiles: a name that isn't one of a class is refused."""
        with self.assertRaisesRegex(TfaotError, "'1b' isn't a C\\+\\+ identifier"):
            named(UNNAMED, "1b")


if __name__ == "__main__":
    unittest.main()
