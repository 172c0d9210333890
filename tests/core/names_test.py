"""From TensorFlow's names to C++ identifiers."""

from __future__ import annotations

import itertools
import random
import unittest

from tfaot.core import names
from tfaot.core.errors import TfaotError


def unique(*wanted: str, class_name: str = "Model") -> list[str]:
    return names.unique_identifiers(wanted, class_name=class_name)


class NamesTest(unittest.TestCase):
    def test_legal_name_is_kept(self) -> None:
        """Protects what users type: a name that is valid in C++ is the member's name."""
        legal = ["x", "loss", "fc_kernel", "Dense2", "a_", "x1_y2"]
        self.assertEqual(unique(*legal), legal)

    def test_illegal_characters_become_one_underscore(self) -> None:
        """Protects readable members for TensorFlow's scopes, and avoids double underscores, which C++ reserves."""
        self.assertEqual(
            unique("fc/hidden0/kernel", "a-b.c", "a//b", "/a/", "a b\tc"),
            ["fc_hidden0_kernel", "a_b_c", "a_b", "a", "a_b_c_2"],
        )

    def test_legal_name_wins_over_mapped_ones(self) -> None:
        """Protects `a_b` next to `a/b`, in either order: the legal one keeps its spelling."""
        self.assertEqual(unique("a/b", "a_b"), ["a_b_2", "a_b"])
        self.assertEqual(unique("a_b", "a/b"), ["a_b", "a_b_2"])
        self.assertEqual(unique("a/b", "a.b", "a_b", "a_b_2"), ["a_b_3", "a_b_4", "a_b", "a_b_2"])

    def test_names_that_extend_others_stay(self) -> None:
        """Protects `x` next to `x_data`, which clash in tfcompile's own header but not in ours."""
        self.assertEqual(unique("x", "x_data", "arg_x", "x_size"), ["x", "x_data", "arg_x", "x_size"])

    def test_data_is_a_name_like_others(self) -> None:
        """Protects a feed called `data`, with which tfcompile's own header doesn't compile."""
        self.assertEqual(unique("data", "args", "results"), ["data", "args", "results"])

    def test_keyword_gets_an_underscore(self) -> None:
        """Protects against members called `class` or `xor`, which no compiler accepts."""
        self.assertEqual(unique("class", "xor", "co_await", "default"), ["class_", "xor_", "co_await_", "default_"])
        self.assertEqual(unique("class", "class_"), ["class_2", "class_"])
        for keyword in sorted(names.KEYWORDS):
            self.assertTrue(names.is_identifier(names.to_identifier(keyword)), keyword)

    def test_macro_gets_an_underscore(self) -> None:
        """Protects against members that the preprocessor replaces: `linux` is 1 in GNU C++, and `assert` is a macro."""
        self.assertEqual(unique("linux", "assert", "NULL", "a/NULL"), ["linux_", "assert_", "NULL_", "a_NULL"])

    def test_leading_digit_gets_a_letter(self) -> None:
        """Protects names like `1x1_conv`, which are valid in TensorFlow but not in C++."""
        self.assertEqual(unique("1x1_conv", "0", "t0"), ["t1x1_conv", "t0_2", "t0"])

    def test_reserved_spellings_are_mapped(self) -> None:
        """Protects against `__x`, `x__y`, and `_X`, which the C++ standard reserves."""
        self.assertEqual(unique("__x", "x__y", "_X", "_", "__"), ["x", "x_y", "X", "unnamed", "unnamed_2"])

    def test_members_are_taken(self) -> None:
        """Protects the generated class's own members and its constructor against tensors with the same name."""
        self.assertEqual(unique("Run", "error", "Impl", "Model"), ["Run_2", "error_2", "Impl_2", "Model_2"])
        for member in names.MEMBERS:
            self.assertNotEqual(unique(member), [member])

    def test_unicode_names(self) -> None:
        """Protects shared names, which can contain any text: they map to ASCII and stay different."""
        self.assertEqual(unique("größe", "gewicht/β", "β", "γ"), ["gr_e", "gewicht", "unnamed", "unnamed_2"])

    def test_equal_names_are_told_apart(self) -> None:
        """Protects against one member for two tensors: an input and an output can share a name."""
        self.assertEqual(unique("x", "x", "x"), ["x", "x_2", "x_3"])
        self.assertEqual(unique("x", "x_2", "x"), ["x", "x_2", "x_3"])

    def test_any_names_give_legal_different_identifiers(self) -> None:
        """Protects reversibility: whatever the names, each gets its own valid C++ identifier."""
        rng = random.Random(1)
        pool = ["".join(p) for n in (1, 2, 3) for p in itertools.product("aB_/1.é", repeat=n)] + sorted(names.KEYWORDS)
        for _ in range(200):
            originals = rng.choices(pool, k=40)
            result = unique(*originals)
            self.assertEqual(len(set(result)), len(originals))
            for identifier in result:
                self.assertTrue(names.is_identifier(identifier), identifier)
                self.assertNotIn(identifier, names.MEMBERS)

    def test_result_depends_on_the_names_alone(self) -> None:
        """Protects reproducible headers: the same names in the same order give the same identifiers."""
        originals = ["a/b", "a_b", "a.b", "class", "Run", "é", "é/", "1"]
        self.assertEqual(unique(*originals), unique(*originals))
        self.assertEqual(unique(*originals), ["a_b_2", "a_b", "a_b_3", "class_", "Run_2", "unnamed", "unnamed_2", "t1"])


class ClassTest(unittest.TestCase):
    def message(self, cpp_class: str) -> str:
        with self.assertRaises(TfaotError) as raised:
            names.split_class(cpp_class)
        return str(raised.exception)

    def test_namespaces_are_split(self) -> None:
        """Protects every depth of namespaces, including none, and a leading `::`."""
        self.assertEqual(names.split_class("a::b::C"), (("a", "b"), "C"))
        self.assertEqual(names.split_class("::a::C"), (("a",), "C"))
        self.assertEqual(names.split_class("C"), ((), "C"))

    def test_keyword_is_refused(self) -> None:
        """Protects against tfcompile accepting a keyword on which the C++ compiler then fails."""
        self.assertEqual(
            self.message("a::class::B"),
            "cpp_class = \"a::class::B\": 'class' is a C++ keyword\n"
            "  to do: write namespaces and a class name with letters, digits, and single underscores, for example "
            'cpp_class = "a::class_::B"',
        )

    def test_illegal_names_are_refused_with_a_legal_one(self) -> None:
        """Protects against names that C++ rejects or reserves. The message proposes one that works."""
        for wrong, part, proposed in (
            ("a.b", "a.b", "a_b"),
            ("a::b-c::D", "b-c", "a::b_c::D"),
            ("a::1D", "1D", "a::t1D"),
            ("a::::B", "", "a::unnamed::B"),
            ("", "", "unnamed"),
            ("a::__B", "__B", "a::B"),
            ("a::_B", "_B", "a::B"),
            ("a::B ", "B ", "a::B"),
        ):
            with self.subTest(wrong):
                self.assertEqual(
                    self.message(wrong),
                    f'cpp_class = "{wrong}": {part!r} isn\'t a C++ identifier that a program may use\n'
                    "  to do: write namespaces and a class name with letters, digits, and single underscores, "
                    f'for example cpp_class = "{proposed}"',
                )
                names.split_class(proposed)

    def test_our_own_names_are_refused(self) -> None:
        """Protects the generated code's own names: a class named like one of its members, or inside our namespace."""
        for wrong in ("a::Run", "a::error", "std::Model", "tfaot::Model", "tfaot_internal::Model", "a::kDims"):
            with self.subTest(wrong):
                self.assertEqual(
                    self.message(wrong),
                    f'cpp_class = "{wrong}" is reserved for the generated code\n'
                    f"  to do: choose a class name other than {names.listed_members()}, "
                    "outside the namespaces std, tfaot, tfaot_internal",
                )

    def test_names_of_the_c_library_are_refused(self) -> None:
        """Protects against a class that only the C++ compiler would reject. In a user's namespace, it can have any name."""
        for wrong, what in (("time::X", "namespace"), ("index::X", "namespace"), ("log", "class"), ("expf", "class")):
            with self.subTest(wrong):
                first = wrong.partition("::")[0]
                self.assertEqual(
                    self.message(wrong),
                    f'cpp_class = "{wrong}": a global {what} can\'t be named {first!r}\n'
                    "  found: the C library, parts of which every C++ header includes, already declares this name\n"
                    f'  to do: put it in your own namespace, for example cpp_class = "models::{wrong}"',
                )
                names.split_class(f"models::{wrong}")
        self.assertEqual(
            self.message("a::INT_MAX"),
            "cpp_class = \"a::INT_MAX\": 'INT_MAX' is a macro of the C library\n"
            "  to do: write namespaces and a class name with letters, digits, and single underscores, for example "
            'cpp_class = "a::INT_MAX_"',
        )

    def test_symbols_differ_when_classes_do(self) -> None:
        """Protects linking `a::b_c` and `a_b::c` into one program. In tfcompile, their C symbols would be the same."""
        classes = ["a::b_c", "a_b::c", "a_b_c", "a::b::c", "a1::b", "a::M1b", "a::b1c", "::x::y", "x_y"]
        self.assertEqual(len({names.symbol(c) for c in classes}), len(classes))
        self.assertEqual(names.symbol("a::b_c"), "M1a3b_c")
        self.assertEqual(names.symbol("a_b::c"), "M3a_b1c")
        self.assertEqual(names.symbol("::a::B"), names.symbol("a::B"))

    def test_symbols_are_identifiers(self) -> None:
        """Protects the assembler and the linker: a symbol is a plain identifier."""
        for cpp_class in ("a::b_c", "C", "a_::b_"):
            self.assertRegex(names.symbol(cpp_class), r"^[A-Za-z][A-Za-z0-9_]*$")


if __name__ == "__main__":
    unittest.main()
