"""`model.json` and the report's JSON: a JSON Schema from the data model, and a page from the schema."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import typing
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tfaot.core import dtypes, manifest
from tfaot.preflight import report
from tools.dev.reference.markdown import Group, code, grouped, linked, notice, sentence, table

SCHEMA = "docs/reference/model.schema.json"
PAGE = "docs/reference/model_json.md"
_SOURCE = "py/tfaot/core/manifest.py"
REPORT_SCHEMA = "docs/reference/report.schema.json"
REPORT_PAGE = "docs/reference/report_json.md"
_REPORT_SOURCE = "py/tfaot/preflight/report.py"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


def pages() -> dict[str, str]:
    """Returns the schemas and the pages by path."""
    made, made_of_report = schema(), report_schema()
    return {
        SCHEMA: json.dumps(made, indent=2, ensure_ascii=False) + "\n",
        PAGE: _page(made),
        REPORT_SCHEMA: json.dumps(made_of_report, indent=2, ensure_ascii=False) + "\n",
        REPORT_PAGE: _report_page(made_of_report),
    }


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of `model.json`, draft 2020-12."""
    names = [dtype.name for dtype in dtypes.ALL]
    return _schema(manifest, manifest.Manifest, "model.json of rules_tfaot", {"dtype": names, "stored": names})


def report_schema() -> dict[str, Any]:
    """Returns the JSON Schema of the preflight report, draft 2020-12."""
    values = {"kind": list(report.KINDS), "severity": list(report.SEVERITIES)}
    return _schema(report, report.Report, "The preflight report of rules_tfaot", values)


def _schema(module: Any, whole: type, title: str, values: Mapping[str, list[str]]) -> dict[str, Any]:
    """Returns the JSON Schema of a module's data class.

    Args:
      module: has the format's version, `FORMAT`.
      whole: the data class of the whole file.
      title: the schema's title.
      values: by a field's name, its possible values.
    """
    docs = _docs(module)
    definitions: dict[str, Any] = {}

    def of(kind: Any) -> dict[str, Any]:
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}
        if typing.get_origin(kind) is tuple:
            return {"type": "array", "items": of(typing.get_args(kind)[0])}
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # keeps its place
            hints = typing.get_type_hints(kind)
            fields = [field.name for field in dataclasses.fields(kind)]
            properties = {name: of(hints[name]) for name in fields}
            for name in fields:
                if name in values:
                    properties[name]["enum"] = values[name]
                if doc := docs.field(kind, name):
                    properties[name]["description"] = doc
            definitions[kind.__name__] = {
                "description": docs.classes[kind.__name__],
                "type": "object",
                "properties": properties,
                "required": fields,
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{kind.__name__}"}

    of(whole)
    top = definitions.pop(whole.__name__)
    top["properties"]["format"]["const"] = module.FORMAT
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **top, "$defs": definitions}


@dataclasses.dataclass(frozen=True)
class _Docs:
    classes: dict[str, str]
    fields: dict[tuple[str, str], str]

    def field(self, kind: type, name: str) -> str:
        """Returns what the class, or a class that it inherits the field from, says about a field."""
        return next(
            (
                self.fields[ancestor.__name__, name]
                for ancestor in kind.__mro__
                if (ancestor.__name__, name) in self.fields
            ),
            "",
        )


def _docs(module: ModuleType) -> _Docs:
    """Returns the docstrings of a module's classes, and the strings below their fields."""
    classes: dict[str, str] = {}
    fields: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        classes[node.name] = _flat(ast.get_docstring(node) or "")
        for before, after in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(before, ast.AnnAssign)
                and isinstance(after, ast.Expr)
                and isinstance(before.target, ast.Name)
            ):
                fields[node.name, before.target.id] = _flat(ast.literal_eval(after.value))
    return _Docs(classes, fields)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _page(made: dict[str, Any]) -> str:
    parts = [
        notice(_SOURCE),
        "# model.json\n\n",
        "The export stage writes `NAME.model.json`, and every later stage reads it. It is in the output group `manifest` "
        "and in [bundles](../guide/hlo.md). Read it to learn the names, dtypes, shapes, and positions of a model's "
        "inputs, outputs, and variables.\n\n"
        "[model.schema.json](model.schema.json) is its JSON Schema, draft 2020-12. All fields are required, and "
        f"no others are allowed. This version reads and writes format {manifest.FORMAT}; the number changes "
        "whenever the meaning of a field does.\n",
    ]
    return "".join(parts) + _tables(made)


def _report_page(made: dict[str, Any]) -> str:
    parts = [
        notice(_REPORT_SOURCE),
        "# The report's JSON\n\n",
        "The output group `report` has `NAME.report.json`, and `//tools:check` writes the same with `--json` "
        "([guide](../guide/diagnostics.md)).\n\n"
        "[report.schema.json](report.schema.json) is its JSON Schema, draft 2020-12. All fields are required, and "
        f"no others are allowed. This version writes format {report.FORMAT}; the number changes whenever the meaning of "
        "a field does.\n",
    ]
    kinds = table(["kind", "meaning"], [(code(name), text) for name, text in report.KINDS.items()])
    return "".join(parts) + _tables(made) + "\n" + kinds


def _tables(made: dict[str, Any]) -> str:
    groups = []
    for name, definition in {"": made, **made["$defs"]}.items():
        rows = [
            (code(field), _type(of), linked(sentence(of["description"])) if "description" in of else "")
            for field, of in definition["properties"].items()
        ]
        groups.append(Group(code(name) or "The file", definition["description"], rows))
    return "\n" + grouped(["field", "type", "meaning"], groups, {})


def _type(of: dict[str, Any]) -> str:
    if "$ref" in of:
        return code(of["$ref"].rpartition("/")[2])
    return "array of " + _type(of["items"]) if of["type"] == "array" else str(of["type"])
