"""Validates JSON by a JSON Schema, as far as our own schemas go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def invalid(value: Any, by: Mapping[str, Any], top: Mapping[str, Any], where: str = "manifest") -> list[str]:
    """Returns where a value isn't valid by a JSON Schema.

    No registry package is worth its five dependencies here: this knows only the keywords that the schema uses, and fails on
    any other.
    """
    by = {key: rule for key, rule in by.items() if not key.startswith("$") or key == "$ref"}
    if "$ref" in by:
        return invalid(value, top["$defs"][by["$ref"].removeprefix("#/$defs/")], top, where)
    keywords = {
        "additionalProperties",
        "const",
        "description",
        "enum",
        "items",
        "properties",
        "required",
        "title",
        "type",
    }
    assert by.keys() <= keywords, by.keys() - keywords
    kinds: dict[str, tuple[type, ...]] = {
        "array": (list,),
        "boolean": (bool,),
        "integer": (int,),
        "number": (int, float),
        "object": (dict,),
        "string": (str,),
    }
    if type(value) not in kinds[by["type"]]:
        return [where]
    if ("const" in by and value != by["const"]) or ("enum" in by and value not in by["enum"]):
        return [where]
    if by["type"] == "array":
        return [at for i, item in enumerate(value) for at in invalid(item, by["items"], top, f"{where}[{i}]")]
    if by["type"] != "object":
        return []
    assert by["additionalProperties"] is False
    wrong = [f"{where}.{name}" for name in by["required"] if name not in value]
    for name, item in value.items():
        wrong += (
            invalid(item, by["properties"][name], top, f"{where}.{name}")
            if name in by["properties"]
            else [f"{where}.{name}"]
        )
    return wrong
