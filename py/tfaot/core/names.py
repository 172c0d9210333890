"""Maps any name that TensorFlow accepts to a C++ identifier. The manifest maps it back."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tfaot.core import caller, reserved
from tfaot.core.errors import TfaotError

KEYWORDS = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "and_eq",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "char16_t",
        "char32_t",
        "char8_t",
        "class",
        "co_await",
        "co_return",
        "co_yield",
        "compl",
        "concept",
        "const",
        "const_cast",
        "consteval",
        "constexpr",
        "constinit",
        "continue",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "nullptr",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "register",
        "reinterpret_cast",
        "requires",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "thread_local",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "while",
        "xor",
        "xor_eq",
    ]
)
"""C++ keywords up to C++20, and alternative tokens. None of them can name a member."""

MEMBERS = frozenset(
    {
        "CallEntryPoint",
        "ConstValuesOf",
        "Create",
        "CurrentWeights",
        "Delete",
        "DimsOf",
        "Follow",
        "Impl",
        "Info",
        "InitialWeights",
        "Load",
        "LoadWeights",
        "Run",
        "RunCompiled",
        "Save",
        "Seed",
        "SetWeights",
        "ValuesOf",
        "error",
        "error_code",
        "fingerprint",
        "impl_",
        "isa",
        "isas",
        "kDims",
        "kEntryPoints",
        "kInfo",
        "kIsas",
        "kMaxBatch",
        "kTensors",
        "kVariables",
        "set_collectives",
        "set_hooks",
        "set_thread_pool",
        "std",
        "tfaot",
        "weights_fingerprint",
    }
)
"""Names that the generated class declares or uses itself."""

_NAMESPACES = ("std", "tfaot", "tfaot_internal")

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*_?")


def is_identifier(name: str) -> bool:
    """Returns whether `name` can be a member as it is: an identifier, not a keyword or macro, and not reserved."""
    return bool(_IDENTIFIER.fullmatch(name)) and name not in KEYWORDS and name not in reserved.MACROS


def to_identifier(name: str) -> str:
    """Maps a TensorFlow name to a legal C++ identifier, which might not be unique yet.

    Every run of underscores (C++ reserves two in a row) and of characters that C++ doesn't allow becomes one underscore. A
    leading digit gets the prefix `t`. Keywords and macros get the suffix `_`. A legal name doesn't change.
    """
    if is_identifier(name):
        return name
    identifier = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "unnamed"
    if identifier[0].isdigit():
        identifier = "t" + identifier
    return identifier + "_" if identifier in KEYWORDS or identifier in reserved.MACROS else identifier


def unique_identifiers(names: Iterable[str], *, taken: Iterable[str] = MEMBERS, class_name: str = "") -> list[str]:
    """Returns one identifier for each name, in order, all different and none of them in `taken`.

    A name that is already legal keeps its spelling, whatever other names map to. Among the rest, the first keeps the
    plain mapping and later ones get `_2`, `_3`, and so on. The result depends only on the arguments.
    """
    names = list(names)
    used = {*taken, class_name, "~" + class_name}
    result: dict[int, str] = {}
    for exact in (True, False):
        for index, name in enumerate(names):
            if index in result or (exact and (not is_identifier(name) or name in used)):
                continue
            base = to_identifier(name)
            candidate, number = base, 1
            while candidate in used:
                number += 1
                candidate = f"{base.rstrip('_')}_{number}"
            used.add(candidate)
            result[index] = candidate
    return [result[index] for index in range(len(names))]


def split_class(cpp_class: str) -> tuple[tuple[str, ...], str]:
    """Splits `a::b::Class` into its namespaces and its name.

    Raises:
      TfaotError: a part isn't an identifier, is a keyword, or is reserved by the C++ standard; or the generated code or the C
        library already uses the name.
    """
    parts = cpp_class.removeprefix("::").split("::")
    for part in parts:
        if not is_identifier(part):
            why = (
                "is a C++ keyword"
                if part in KEYWORDS
                else "is a macro of the C library"
                if part in reserved.MACROS
                else "isn't a C++ identifier that a program may use"
            )
            raise TfaotError(
                f"{caller.setting('cpp_class', cpp_class)}: {part!r} {why}",
                do="write namespaces and a class name with letters, digits, and single underscores, for example "
                + caller.setting("cpp_class", "::".join(to_identifier(p) for p in parts)),
            )
    if parts[0] in _NAMESPACES or parts[-1] in MEMBERS:
        raise TfaotError(
            f"{caller.setting('cpp_class', cpp_class)} is reserved for the generated code",
            do=f"choose a class name other than {listed_members()}, outside the namespaces {', '.join(_NAMESPACES)}",
        )
    if parts[0] == "main" or reserved.is_global(parts[0]):
        what = "namespace" if len(parts) > 1 else "class"
        raise TfaotError(
            f"{caller.setting('cpp_class', cpp_class)}: a global {what} can't be named {parts[0]!r}",
            exists="the C library, parts of which every C++ header includes, already declares this name",
            do="put it in your own namespace, for example "
            + caller.setting("cpp_class", "::".join(["models", *parts])),
        )
    return tuple(parts[:-1]), parts[-1]


def listed_members() -> str:
    """Returns the names that a generated class reserves for itself, for messages."""
    return ", ".join(sorted(MEMBERS))


def symbol(cpp_class: str) -> str:
    """Returns an identifier that is unique to the class: `a::b_c` gives `M1a3b_c`, `a_b::c` gives `M3a_b1c`.

    Each part is preceded by its length, as in the Itanium C++ ABI (5.1.5), so no two classes share C symbols.
    """
    namespaces, name = split_class(cpp_class)
    return "M" + "".join(f"{len(part)}{part}" for part in (*namespaces, name))
