"""The page of error messages: every `TfaotError` of the stages, every `fail` of the rules, and every error of the runtime."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfaot.core import caller, knowledge
from tools.dev.reference.markdown import notice, table

PAGE = "docs/reference/errors.md"
_GAP = "…"


@dataclasses.dataclass(frozen=True)
class Message:
    """A message, with `…` for what depends on the case."""

    asked: str
    exists: str
    do: str


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part of the page: the sources of its messages, as globs, and when they occur."""

    title: str
    when: str
    sources: tuple[str, ...]


_STAGE = "While Bazel runs an action `{}`, so `bazel build` and `bazel test` fail."
_PARTS = (
    _Part(
        "Setup",
        "While Bazel fetches the repository `tfaot_tensorflow`, before the first model is built.",
        ("rules/private/python_version.bzl", "rules/private/repositories.bzl", "rules/private/extensions.bzl"),
    ),
    _Part("Targets", "While Bazel analyzes a target, before any action runs.", ("rules/**/*.bzl",)),
    _Part("Export", _STAGE.format("TfaotExport"), ("py/tfaot/export/**/*.py", "py/tfaot/calibrate.py")),
    _Part("Compile", _STAGE.format("TfaotCompile"), ("py/tfaot/compile/**/*.py",)),
    _Part("Render", _STAGE.format("TfaotRender"), ("py/tfaot/render/**/*.py",)),
    _Part("Verify", _STAGE.format("TfaotVerify"), ("py/tfaot/verify/**/*.py",)),
    _Part(
        "HLO, StableHLO, and bundles",
        "While Bazel runs an action `TfaotHlo`, `TfaotStablehlo`, or `TfaotBundle`, which it does on request only.",
        ("py/tfaot/hlo/**/*.py",),
    ),
    _Part(
        "Packages",
        "While Bazel runs an action `TfaotPackage`, which it does on request only, and in the command `tfaot`.",
        ("py/tfaot/pack/**/*.py",),
    ),
    _Part("The command", "In the command `tfaot`, besides the errors of its stages.", ("py/tfaot/command/**/*.py",)),
    _Part(
        "Several stages",
        "In each stage that runs the compiler, forks a child, or reads what an earlier stage wrote.",
        ("py/tfaot/**/*.py",),
    ),
    _Part(
        "The program",
        "In a program with a compiled model. Members that return false say it in `error()`, and others in a `tfaot::Status`.",
        ("py/tfaot/render/templates/class.cc.jinja", "runtime/tfaot/*.cc", "runtime/tfaot/c_api_*.h"),
    ),
    _Part("Generated tests", "While a generated test or benchmark reads its goldens.", ("runtime/tfaot/goldens.h",)),
    _Part("bazel run //tools:explain", "While the tool compares builds.", ("tools/explain.py",)),
)


def pages(root: Path) -> dict[str, str]:
    """Returns the page by path."""
    parts = [
        notice("the sources"),
        "# Error messages\n\n",
        "This page has every error of the rules, in the order of a build. `…` stands for what depends on the case: names, "
        "numbers, and paths; `/` separates alternatives. To find an error, search for words of its first line. [Troubleshooting]"
        "(../guide/troubleshooting.md) has more about those that you are most likely to meet.\n\n"
        "An error has up to four parts: what was asked for, details, `found:`, which says what exists, and `to do:`. "
        "In place of attributes, the command `tfaot` names its options: `--batch-sizes 8` for `batch_sizes = [8]`.\n",
    ]
    seen: set[str] = set()
    for part in _PARTS:
        rows: dict[tuple[str, str], dict[str, None]] = {}
        for file in sorted({str(path.relative_to(root)) for glob in part.sources for path in root.glob(glob)}):
            if file not in seen:
                seen.add(file)
                for error in messages(file, (root / file).read_text("utf-8")):
                    asked, exists, do = map(_shown, (error.asked, error.exists, error.do))
                    if re.search(r"\w", asked + exists + do) and asked != _GAP:
                        rows.setdefault((exists, do or asked), {})[asked] = None
        parts.append(f"\n## {part.title}\n\n{part.when}\n\n")
        lines = [(" / ".join(asked), exists, "" if do in asked else do) for (exists, do), asked in rows.items()]
        parts.append(table(["message", "found", "to do"], lines))
    return {PAGE: "".join(parts)}


def messages(file: str, text: str) -> list[Message]:
    """Returns the messages that a source file can give, in its order."""
    if file.endswith((".py", ".bzl")):
        return _python(file, ast.parse(text, file))
    return list(_cpp(file, text))


def _shown(text: str) -> str:
    """Escapes what Markdown would read in a message, which is plain text."""
    text = re.sub(rf"{_GAP}(?:[\s,;]*{_GAP})+", _GAP, " ".join(text.split()))
    return re.sub(r"([\\<*])", r"\\\1", text)


# Python and Starlark.


def _python(file: str, tree: ast.Module) -> list[Message]:
    errors = []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            # The innermost function, where names in the message are assigned.
            around = [
                function for function in functions if function.lineno <= node.lineno <= (function.end_lineno or 0)
            ]
            scope = max(around, key=lambda function: function.lineno, default=tree)
            keywords = {str(keyword.arg): keyword.value for keyword in node.keywords}
            if node.func.id == "TfaotError" and node.args and not isinstance(node.args[0], ast.Attribute):
                text = [
                    _texts(part, scope) if part else [""]
                    for part in (node.args[0], keywords.get("exists"), keywords["do"])
                ]
                errors += [(node.lineno, Message(asked, " / ".join(text[1]), " / ".join(text[2]))) for asked in text[0]]
            elif node.func.id == "fail" and node.args:
                errors += [
                    (node.lineno, _split(call_text)) for call_text in _texts(node.args[0], scope) if call_text != _GAP
                ]
    for function in functions:  # of rules/private/python_version.bzl, which return what others fail with
        if file.endswith(".bzl") and function.name.endswith("_error"):
            returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
            texts = itertools.chain.from_iterable(_texts(value, function) for value in returned)
            errors += [(function.lineno, Message(said, "", "")) for said in texts if said and said != "None"]
    return [message for _, message in sorted(errors, key=lambda numbered: numbered[0])]


def _split(text: str) -> Message:
    """Returns the parts of an error of the rules, which Bazel shows on one line."""
    asked, _, do = text.removeprefix(f"{_GAP}: ").partition(" To do: ")
    return Message(asked, "", do)


def _texts(value: ast.expr, scope: ast.AST) -> list[str]:
    """Returns every text that an expression can have, with a gap for each part that isn't constant."""
    match value:
        case ast.Constant(value=constant):
            return [str(constant)]
        case ast.JoinedStr(values=values):
            return ["".join(pieces) for pieces in itertools.product(*(_texts(part, scope) for part in values))]
        case ast.FormattedValue(value=ast.IfExp() | ast.Name() | ast.Attribute() | ast.Call() as choice):
            return _texts(choice, scope)
        case ast.Attribute(value=ast.Name(id="knowledge"), attr=name):
            return [getattr(knowledge, name)]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="caller"), attr=name), args=args):
            return [getattr(caller, name)(*map(_value, args)).replace(f'"{_GAP}"', _GAP)]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return [a + b for a in _texts(left, scope) for b in _texts(right, scope)]
        case ast.BoolOp(op=ast.Or(), values=values):
            return list(dict.fromkeys(text for part in values for text in _texts(part, scope)))
        case ast.IfExp(test=ast.Call(func=ast.Attribute(attr="in_bazel")), body=body):
            return _texts(body, scope)
        case ast.IfExp(body=body, orelse=orelse):
            return list(dict.fromkeys([*_texts(body, scope), *_texts(orelse, scope)]))
        case ast.Call(func=ast.Attribute(value=template, attr="format")):
            return [re.sub(r"\{\w*\}", _GAP, text) for text in _texts(template, scope)]
        case ast.Name(id=name):
            return _assigned(name, scope) or [_GAP]
        case _:
            return [_GAP]


def _value(value: ast.expr) -> Any:
    """Returns what an expression is, with gaps for what isn't constant."""
    match value:
        case ast.Constant(value=constant):
            return constant
        case ast.List(elts=elements):
            return [_value(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            return {_value(key): _value(entry) for key, entry in zip(keys, values, strict=True) if key}
        case _:
            return _GAP


def _assigned(name: str, scope: ast.AST) -> list[str]:
    """Returns the texts that a function assigns to a name, if all of them are expressions that have text."""
    texts: list[str] = []
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == name for target in node.targets
        ):
            if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node.value)):
                return []
            texts += _texts(node.value, scope)
    return [] if _GAP in texts else list(dict.fromkeys(texts))


# C++.

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[(){}\[\],;]|//[^\n]*|[^"\'(){}\[\],;/]+|/')
_CONSTANT = re.compile(r'const char\* const (\w+) =\s+"((?:[^"\\]|\\.)*)";')
_GOLDENS = "build the target's goldens again, or pass their path as the first argument"
"""What runtime/tfaot/goldens.h adds to each of its messages."""
_FAILS = {"runtime/tfaot/weight_set.cc": f"{_GAP} can't be saved", "runtime/tfaot/mapped_file.cc": None}
"""What a file's own function `fail` puts first, or None if its first argument is that."""


def _cpp(file: str, text: str) -> Iterator[Message]:
    for match in re.finditer(
        r"\b(Message|fail)\(|::Status\(::tfaot::Code::\w+, (?=::std::string\(name\)|\")|\bFail\((?=\")", text
    ):
        arguments = _arguments(text, match.end())
        if match[1] == "Message" and len(arguments) >= 3 and "const " not in text[match.end() : match.end() + 6]:
            asked, exists, do = arguments[:3]
            if asked.strip(_GAP):
                yield Message(asked, exists if exists != _GAP else _GAP, do)
        elif match[1] == "fail" and len(arguments) >= 2 and file in _FAILS:
            first = _FAILS[file]
            if first is None and len(arguments) >= 3:
                yield Message(_GAP + arguments[0], arguments[1], arguments[2])
            elif first:
                yield Message(first, arguments[0], arguments[1])
        elif match[0].startswith("::Status("):
            yield _lines(arguments[0])
        elif match[0] == "Fail(" and file.endswith("goldens.h"):
            yield Message(f"{_GAP} {arguments[0]}: {_GOLDENS}", "", "")
    if file.endswith("isa.cc"):
        yield from _choices(text)


def _lines(text: str) -> Message:
    """Returns the parts of a message that the source has as one text."""
    asked, _, do = text.partition("\n  to do: ")
    asked, _, exists = asked.partition("\n  found: ")
    return Message(asked, exists, do)


def _choices(text: str) -> Iterator[Message]:
    """Returns what ChooseIsa says if no CPU level can run: it builds its messages piece by piece."""
    pieces = re.findall(r'"((?:[^"\\]|\\.)*)"', text[text.index("std::string error = model;") :])
    none, lower, caller, variable, cannot, _, pass_, set_, level, one, or_pass, or_set, code, runs = pieces[:14]
    exists = _unescaped(code).partition("found: ")[2] + _GAP
    yield Message(_GAP + none, exists + runs + _GAP, lower)
    for asks, to_do, otherwise in ((caller, pass_, or_pass), (variable, set_, or_set)):
        yield Message(
            f"{_GAP}{_unescaped(asks)}{_GAP}{_unescaped(cannot)}", exists + runs + _GAP, to_do + level + otherwise
        )
        yield Message(f'{_GAP}{_unescaped(asks)}{_GAP}"', exists, to_do + one + otherwise)


def _arguments(text: str, start: int) -> list[str]:
    """Returns a call's arguments from the place after its parenthesis: their string literals, and gaps."""
    constants = {name: _unescaped(literal) for name, literal in _CONSTANT.findall(text)}
    depth, arguments = 0, [""]
    for token in _TOKEN.findall(text[start:]):
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        if depth < 0 or (token == ";" and depth == 0):
            break
        if token == "," and depth == 0:
            arguments.append("")
        elif token.startswith('"'):
            arguments[-1] += re.sub(r"\{\{.*?\}\}", _GAP, _unescaped(token[1:-1]))
        elif token.strip() in constants:
            arguments[-1] += constants[token.strip()]
        elif token.strip() == ":" and not arguments[-1].endswith(_GAP):
            arguments[-1] += " /"  # the other value of a conditional
        elif re.search(r"\w", token) and not token.startswith("//") and not arguments[-1].endswith(_GAP):
            arguments[-1] += "" if token.strip() in ("std::string", "+ std::string") else _GAP
    return arguments


def _unescaped(literal: str) -> str:
    return literal.replace("\\n", "\n").replace('\\"', '"')
