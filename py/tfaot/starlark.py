"""Reads Starlark files: what they define, and what its docstrings and `doc` arguments say. Starlark parses as Python."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import textwrap
import types
from pathlib import Path
from typing import Any

_KINDS = {
    "rule": "rule",
    "repository_rule": "repository rule",
    "module_extension": "module extension",
    "tag_class": "tag",
    "provider": "provider",
}
_ARGUMENT = re.compile(r"^(\*{0,2}\w+): (?:\((.*?)\) )?(.*)$", re.DOTALL)
_AS_IN = re.compile(r"[Aa]s in `(\w+)`\.?")
"""The documentation of an attribute that another public symbol describes."""
_PUBLIC = "rules/defs.bzl"
_TYPES = {
    "bool": "bool",
    "int": "int",
    "int_list": "list[int]",
    "label": "Label",
    "label_list": "list[Label]",
    "string": "str",
    "string_dict": "dict[str, str]",
    "string_list": "list[str]",
    "string_list_dict": "dict[str, list[str]]",
}


@dataclasses.dataclass(frozen=True)
class Field:
    """An argument of a macro, an attribute of a rule or tag, or a field of a provider."""

    name: str
    type: str
    default: str
    """As Starlark. Empty if the field is mandatory, or has no default because it belongs to a provider."""
    doc: str


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A name that users load."""

    name: str
    kind: str
    doc: str
    fields: tuple[Field, ...]
    targets: tuple[tuple[str, str], ...] = ()
    """What a macro declares: names of targets, and what they are."""
    provides: tuple[str, ...] = ()


class Undocumented(Exception):
    """Something that users can set has no documentation."""


class Tree:
    """The Starlark files below a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, ast.Module] = {}

    def symbols(self, file: str, *, only: str | None = None) -> list[Symbol]:
        """Returns the public names that a file re-exports, in its order, or one of them."""
        names = []
        for node in self._module(file).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Name)
                and only in (None, node.targets[0].id)
            ):
                where, value = self._resolve(file, node.value.id)
                names.append(self._symbol(where, node.targets[0].id, value))
        return names

    def doc(self, file: str) -> str:
        """Returns a file's docstring."""
        return ast.get_docstring(self._module(file)) or ""

    def _documented(self, field: Field) -> Field:
        """Returns a field with its documentation, which can be that of another symbol's field."""
        if not (match := _AS_IN.fullmatch(field.doc)):
            return field
        for symbol in self.symbols(_PUBLIC, only=match[1]):
            for other in symbol.fields:
                if other.name == field.name:
                    return dataclasses.replace(field, doc=other.doc)
        raise Undocumented(f"{match[1]} doesn't describe {field.name}")

    def _module(self, file: str) -> ast.Module:
        if file not in self._modules:
            self._modules[file] = ast.parse((self._root / file).read_text(encoding="utf-8"), file)
        return self._modules[file]

    def _resolve(self, file: str, name: str) -> tuple[str, ast.AST]:
        """Returns the file that defines a name, and the function or the expression."""
        for node in self._module(file).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return file, node
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
                return file, node.value
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _called(node.value) == "load":
                label, *names = node.value.args
                loaded = {ast.literal_eval(name): ast.literal_eval(name) for name in names}
                loaded |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.value.keywords}
                if name in loaded:
                    return self._resolve(_path(ast.literal_eval(label), file), loaded[name])
        raise KeyError(f"{file} defines no {name}")

    def _symbol(self, file: str, name: str, value: ast.AST) -> Symbol:
        if isinstance(value, ast.FunctionDef):
            return self._macro(file, name, value)
        assert isinstance(value, ast.Call), name
        kind = _KINDS[_called(value)]
        arguments = {str(keyword.arg): keyword.value for keyword in value.keywords}
        doc = _text(arguments["doc"])
        if kind == "provider":
            fields = ast.literal_eval(arguments["fields"])
            return Symbol(name, kind, doc, tuple(_field(f"{field}: {text}", "") for field, text in fields.items()))
        if kind == "module extension":
            tags = arguments["tag_classes"]
            assert isinstance(tags, ast.Dict)
            attributes = []
            for key, tag in zip(tags.keys, tags.values, strict=True):
                assert key is not None and isinstance(tag, ast.Name)
                where, made = self._resolve(file, tag.id)
                inner = self._symbol(where, ast.literal_eval(key), made)
                attributes += [
                    dataclasses.replace(field, name=f"{name}.{inner.name}({field.name})") for field in inner.fields
                ]
                doc += f" The tag `{name}.{inner.name}`: {inner.doc[0].lower()}{inner.doc[1:]}"
            return Symbol(name, kind, doc, tuple(attributes))
        attributes = sorted(
            self._attributes(file, arguments["attrs"]), key=lambda field: (bool(field.default), field.name)
        )
        provides = arguments.get("provides", ast.List([]))
        assert isinstance(provides, ast.List)
        return Symbol(
            name, kind, doc, tuple(attributes), provides=tuple(ast.unparse(element) for element in provides.elts)
        )

    def _attributes(self, file: str, value: ast.expr) -> list[Field]:
        """Returns the public attributes in an expression: a dict, a call of a function that returns one, or a union."""
        if isinstance(value, ast.BinOp):
            return self._attributes(file, value.left) + self._attributes(file, value.right)
        if isinstance(value, ast.Call):
            where, function = self._resolve(file, _called(value))
            assert isinstance(function, ast.FunctionDef)
            returned = function.body[-1]
            assert isinstance(returned, ast.Return) and returned.value is not None
            return self._attributes(where, returned.value)
        assert isinstance(value, ast.Dict), ast.unparse(value)
        macros = []
        for key, made in zip(value.keys, value.values, strict=True):
            assert key is not None and isinstance(made, ast.Call)
            name = ast.literal_eval(key)
            if not name.startswith("_"):
                macros.append(self._attribute(file, name, made))
        return macros

    def _attribute(self, file: str, name: str, made: ast.Call) -> Field:
        kind = _TYPES[_called(made)]
        arguments = {str(keyword.arg): keyword.value for keyword in made.keywords}
        if "doc" not in arguments:
            raise Undocumented(f"{file}: the attribute {name} has no doc")
        empty = {"bool": "False", "int": "0", "Label": "None", "str": '""'}
        default = empty.get(kind, "{}" if kind.startswith("dict") else "[]")
        if "default" in arguments:
            default = self._starlark(file, arguments["default"])
        if "mandatory" in arguments and ast.literal_eval(arguments["mandatory"]):
            default = ""
        return self._documented(Field(name, kind, default, _text(arguments["doc"])))

    def _macro(self, file: str, name: str, function: ast.FunctionDef) -> Symbol:
        doc = ast.get_docstring(function) or ""
        body, *parts = re.split(r"^(Args|Targets|Returns):\n", doc, flags=re.MULTILINE)
        sections = dict(zip(parts[::2], parts[1::2], strict=True))
        documented = {field.name: field for field in (_field(item, "") for item in _items(sections.get("Args", "")))}
        names, defaults = [], {}
        positional = [None] * (len(function.args.args) - len(function.args.defaults)) + function.args.defaults
        parameters = [*zip(function.args.args, positional, strict=True)]
        parameters += zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        for argument, default in parameters:
            names.append(argument.arg)
            defaults[argument.arg] = self._starlark(file, default) if default is not None else ""
        names += ["**" + function.args.kwarg.arg] if function.args.kwarg else []
        if names != list(documented):
            raise Undocumented(f"{file}: {name} takes {names}, and its docstring has {list(documented)}")
        fields = [
            self._documented(dataclasses.replace(documented[name], default=defaults.get(name, ""))) for name in names
        ]
        targets = [item.partition(": ")[::2] for item in _items(sections.get("Targets", ""))]
        return Symbol(name, "macro", body.strip(), tuple(fields), tuple(targets))

    def _starlark(self, file: str, value: ast.expr) -> str:
        """Returns an expression as Starlark, with the values of constants in place of their names."""
        if isinstance(value, ast.Name):
            where, defined = self._resolve(file, value.id)
            assert isinstance(defined, ast.expr)
            return self._starlark(where, defined)
        if isinstance(value, ast.Call):
            return ast.unparse(value).replace("'", '"')
        if isinstance(value, ast.List):
            return f"[{', '.join(self._starlark(file, element) for element in value.elts)}]"
        constant = ast.literal_eval(value)
        return json.dumps(constant) if isinstance(constant, (str, list, dict)) else repr(constant)


def _path(label: str, file: str) -> str:
    """Returns the path of the file that a label in a file of ours names."""
    if label.startswith(":"):
        return str(Path(file).parent / label[1:])
    return label.removeprefix("//").replace(":", "/")


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def _text(value: ast.expr) -> str:
    """Returns a string constant, or a sum of them."""
    if isinstance(value, ast.BinOp):
        return _text(value.left) + _text(value.right)
    text = ast.literal_eval(value)
    assert isinstance(text, str)
    return text


def _items(section: str) -> list[str]:
    """Returns the items of a docstring's section. A deeper indent continues an item."""
    found_names: list[str] = []
    for line in textwrap.dedent(section).splitlines():
        if line.startswith(" "):
            found_names[-1] += " " + line.strip()
        elif line:
            found_names.append(line)
    return found_names


def _field(item: str, default: str) -> Field:
    """Returns the field that `name: (type) doc` documents."""
    match = _ARGUMENT.match(item)
    if not match or not (match[2] or match[1].startswith("**")):
        raise Undocumented(f"{item!r} isn't 'name: (type) meaning'")
    return Field(match[1], match[2] or "", default, match[3])


def execute(root: Path, file: str) -> dict[str, Any]:
    """Returns what a file defines after running it as Python. It can load others, and use what both languages have.

    Args:
      root: the folder of the workspace.
      file: a path below it, of a file of these rules.
    """
    scope: dict[str, Any] = {"struct": types.SimpleNamespace, "visibility": lambda _: None}

    def load(label: str, *names: str, **renamed: str) -> None:
        others = execute(root, _path(label, file))
        scope.update({name: others[name] for name in names}, **{to: others[name] for to, name in renamed.items()})

    scope["load"] = load
    exec(compile((root / file).read_text(encoding="utf-8"), file, "exec"), scope)
    return scope
