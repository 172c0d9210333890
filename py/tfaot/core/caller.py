"""Who runs a stage: Bazel, or the command `tfaot`. Messages speak of what the caller can set, in its own words.

In Bazel, a setting is an attribute of a target: `dims = {"audio": [1, 1, 1]}`. In the command, it is an option:
`--dims audio=1,1,1`.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from typing import Any

VARIABLE = "TFAOT_COMMAND"
"""The environment variable that the command sets for its stages. Bazel sets the whole environment of an action."""


def in_bazel() -> bool:
    """Returns whether the caller is Bazel."""
    return VARIABLE not in os.environ


def option(name: str) -> str:
    """Returns the name of a setting: `dims` or `--dims`."""
    return name if in_bazel() else "--" + name.replace("_", "-")


def the(name: str) -> str:
    """Returns a setting in a sentence: `the target's dims` or `--dims`."""
    return f"the target's {name}" if in_bazel() else option(name)


def setting(name: str, value: Any) -> str:
    """Returns what sets an attribute to a value. A dictionary's values are strings, or lists of sizes."""
    if in_bazel():
        return f"{name} = {_starlark(value)}"
    flag = option(name)
    if isinstance(value, bool):
        return flag if value else f"--no-{name.replace('_', '-')}"
    if isinstance(value, Mapping):
        words = [f"{key}={_sizes(entry)}" for key, entry in value.items()]
    elif isinstance(value, list | tuple):
        words = [str(element) for element in value]
    else:
        words = [str(value)]
    return " ".join(f"{flag} {shlex.quote(word)}" for word in words) or f"{flag}="


def its(name: str, value: Any) -> str:
    """Returns the same in a sentence: `the target's dims = …` or `--dims …`."""
    return ("the target's " if in_bazel() else "") + setting(name, value)


def product(name: str) -> str:
    """Returns where a model's other form is: an output group or a command."""
    return f"the output group {name}" if in_bazel() else f"tfaot {name}"


def _sizes(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ",".join("?" if size is None else str(size) for size in value)


def _starlark(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_starlark(key)}: {_starlark(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_starlark, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
