"""Pages about what users load: rules and macros, providers, and the toolchain."""

from __future__ import annotations

from pathlib import Path

from tfaot.starlark import Symbol, Tree
from tools.dev.reference.markdown import code, linked, notice, once, sentence, table

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
    shown: dict[tuple[str, ...], str] = {}
    providers = [(file, symbol) for file in files for symbol in tree.symbols(file) if symbol.kind == "provider"]
    return {
        "docs/reference/rules.md": notice("rules/")
        + "# Rules and macros\n\n"
        + f"{_LOAD} "
        + "Macros take keywords only, except `tf_library`, which takes what TensorFlow's takes. "
        + "[Targets and output groups](targets.md) describes what they declare, and "
        + "[providers](providers.md) what the targets provide.\n"
        + "".join(_symbols(tree, file, ("macro", "rule"), shown) for file in rules),
        "docs/reference/providers.md": notice("rules/private/providers.bzl and rules/private/toolchain.bzl")
        + f"# Providers\n\n{_LOAD}\n"
        + "".join(_symbol(file, symbol, {}) for file, symbol in providers),
        "docs/reference/toolchain.md": notice(", ".join(_TOOLCHAIN))
        + "# Toolchain and setup\n\n"
        + "[Choose Python and TensorFlow](../guide/toolchain.md) shows how to use them.\n"
        + "".join(
            _symbols(tree, file, ("macro", "rule", "module extension", "repository rule"), {}) for file in _TOOLCHAIN
        ),
    }


def _symbols(tree: Tree, file: str, kinds: tuple[str, ...], shown: dict[tuple[str, ...], str]) -> str:
    return "".join(_symbol(file, symbol, shown) for symbol in tree.symbols(file) if symbol.kind in kinds)


def _symbol(file: str, symbol: Symbol, shown: dict[tuple[str, ...], str]) -> str:
    call = "use_extension" if symbol.kind == "module extension" else "load"
    label = f"@rules_tfaot//{_label(file)}"
    loaded = "" if label == _DEFS else f': `{call}("{label}", "{symbol.name}")`'
    provides = f", which provides {', '.join(f'`{name}`' for name in symbol.provides)}" if symbol.provides else ""
    kind = f"A {symbol.kind}{loaded}{provides}. " if loaded or symbol.kind != "provider" else ""
    parts = [f"\n## {symbol.name}\n\n", f"{kind}{linked(symbol.doc)}\n\n"]
    if symbol.targets:
        targets = [
            (", ".join(f"`{target}`" for target in name.split(", ")), sentence(linked(doc)))
            for name, doc in symbol.targets
        ]
        parts.append(table(["target", "what it is"], targets) + "\n")
    if symbol.kind == "provider":
        parts.append(table(["field", "type", "meaning"], [(code(f.name), code(f.type), f.doc) for f in symbol.fields]))
    elif symbol.name == "tf_library":
        parts.append("[Its guide](../guide/tf_library.md#attributes) has its attributes.\n")
    elif symbol.fields:
        fields = [
            (
                code(f.name),
                code(f.type),
                "" if f.name.startswith("**") else code(f.default) or "required",
                sentence(linked(f.doc)),
            )
            for f in symbol.fields
        ]
        what = "argument" if symbol.kind == "macro" else "attribute"
        here = f"[{symbol.name}](#{symbol.name})"
        parts.append(once([what, "type", "default", "meaning"], fields, shown, here))
    return "".join(parts).rstrip("\n") + "\n"


def _label(file: str) -> str:
    folder, _, name = file.rpartition("/")
    return f"{folder}:{name}"
