"""Pages about what users load: rules and macros, providers, and the toolchain."""

from __future__ import annotations

from pathlib import Path

from tfaot.starlark import Symbol, Tree
from tools.dev.reference.markdown import Group, Shown, code, grouped, linked, notice, once, sentence, table

_TOOLCHAIN = ("rules/toolchain.bzl", "rules/extensions.bzl", "rules/repositories.bzl")
_DEFS = "@rules_tfaot//rules:defs.bzl"
_LOAD = f"Load them from `{_DEFS}`, unless a section names another file."
_OURS_ALONE = ("rules/dev.bzl", "rules/python.bzl")


def pages(root: Path) -> dict[str, str]:
    """Returns the pages by path."""
    tree = Tree(root)
    in_rules = sorted(str(path.relative_to(root)) for path in (root / "rules").glob("*.bzl"))
    files = [file for file in in_rules if file not in _OURS_ALONE]
    rules = [file for file in files if file not in _TOOLCHAIN]
    shown = Shown()
    described = [(file, symbol) for file in rules for symbol in tree.symbols(file)]
    providers = [
        Group(code(symbol.name), _meaning(file, symbol), [(code(f.name), code(f.type), f.doc) for f in symbol.fields])
        for file in files
        for symbol in tree.symbols(file)
        if symbol.kind == "provider"
    ]
    return {
        "docs/reference/rules.md": notice("rules/")
        + "# Rules and macros\n\n"
        + f"{_LOAD} "
        + "Macros take keywords only, except `tf_library`, which takes what TensorFlow's takes. "
        + "[Targets and output groups](targets.md) describes what they declare, and "
        + "[providers](providers.md) what the targets provide.\n"
        + "".join(_section(file, symbol, shown) for file, symbol in described if symbol.kind == "macro")
        + "\n## Rules of stages\n\nThe macros declare these. Load one if you need only a part of what they do.\n\n"
        + grouped(
            ["attribute", "type", "default", "meaning"],
            [
                Group(code(symbol.name), _meaning(file, symbol), _fields(symbol))
                for file, symbol in described
                if symbol.kind == "rule"
            ],
            shown,
        ),
        "docs/reference/providers.md": notice("rules/private/providers.bzl and rules/private/toolchain.bzl")
        + f"# Providers\n\n{_LOAD.replace('section', 'row')}\n\n"
        + grouped(["field", "type", "meaning"], providers, {}),
        "docs/reference/toolchain.md": notice(", ".join(_TOOLCHAIN))
        + "# Toolchain and setup\n\n"
        + "[Choose Python and TensorFlow](../guide/toolchain.md) shows how to use them.\n"
        + "\n"
        + grouped(
            ["attribute", "type", "default", "meaning"],
            [
                Group(code(symbol.name), _meaning(file, symbol), _fields(symbol))
                for file in _TOOLCHAIN
                for symbol in tree.symbols(file)
                if symbol.kind in ("macro", "rule", "module extension", "repository rule")
            ],
            {},
        ),
    }


def _meaning(file: str, symbol: Symbol) -> str:
    call = "use_extension" if symbol.kind == "module extension" else "load"
    label = f"@rules_tfaot//{_label(file)}"
    loaded = "" if label == _DEFS else f': `{call}("{label}", "{symbol.name}")`'
    provides = f", which provides {', '.join(f'`{name}`' for name in symbol.provides)}" if symbol.provides else ""
    kind = f"A {symbol.kind}{loaded}{provides}. " if loaded or symbol.kind != "provider" else ""
    return kind + linked(symbol.doc)


def _fields(symbol: Symbol) -> list[tuple[str, ...]]:
    return [
        (
            code(f.name),
            code(f.type),
            "" if f.name.startswith("**") else code(f.default) or "required",
            sentence(linked(f.doc)),
        )
        for f in symbol.fields
    ]


def _section(file: str, symbol: Symbol, shown: Shown) -> str:
    parts = [f"\n## {symbol.name}\n\n", f"{_meaning(file, symbol)}\n\n"]
    if symbol.targets:
        targets = [
            (", ".join(f"`{target}`" for target in name.split(", ")), sentence(linked(doc)))
            for name, doc in symbol.targets
        ]
        parts.append(table(["target", "what it is"], targets) + "\n")
    if symbol.name == "tf_library":
        parts.append("[Its guide](../guide/tf_library.md#attributes) has its attributes.\n")
    elif symbol.fields:
        here = f"[{symbol.name}](#{symbol.name})"
        parts.append(once(["argument", "type", "default", "meaning"], _fields(symbol), shown, here))
    return "".join(parts).rstrip("\n") + "\n"


def _label(file: str) -> str:
    folder, _, name = file.rpartition("/")
    return f"{folder}:{name}"
