"""Names the class of an exported model, so that one export serves several classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tfaot.core import caller, fingerprint, names
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import Manifest


@dataclasses.dataclass(frozen=True)
class Request:
    """What to name, and where to write it."""

    manifest: str
    """Of a model whose class has no name."""
    weights: str
    """The digits of the fingerprint of its variables' values."""
    cpp_class: str
    out_manifest: str
    out_weights: str
    """Assembler code that defines the fingerprint."""


def name(request: Request) -> None:
    """Writes the manifest and the fingerprint with the class's name.

    Raises:
      TfaotError: the class can't have this name.
    """
    with open(request.manifest, encoding="utf-8") as file:
        result = named(Manifest.from_json(file.read(), path=request.manifest), request.cpp_class)
    with open(request.weights, encoding="ascii") as file:
        weights = file.read().strip()
    with open(request.out_manifest, "w", encoding="utf-8") as file:
        file.write(result.to_json())
    with open(request.out_weights, "w", encoding="utf-8") as file:
        file.write(fingerprint.weights_assembly(result.cpp_class, weights))


def named(manifest: Manifest, cpp_class: str) -> Manifest:
    """Returns a model's manifest with the name of its class.

    Raises:
      TfaotError: the name isn't one of a class, or is also a member's.
    """
    _, class_name = names.split_class(cpp_class)
    if members := [what for what, member in _members(manifest) if member == class_name]:
        raise TfaotError(
            f"{caller.setting('cpp_class', cpp_class)}: a member of a class can't have the class's name",
            exists=f"{members[0]} of the model, which is named {class_name}",
            do="choose another name for the class: " + caller.setting("cpp_class", cpp_class + "Model"),
        )
    result = dataclasses.replace(manifest, cpp_class=cpp_class.removeprefix("::"))
    prints = dataclasses.replace(result.fingerprints, config=fingerprint.config(result))
    return dataclasses.replace(result, fingerprints=prints)


def _members(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yields what each member of the class is, and its name."""
    for entry in manifest.entry_points:
        yield f"the entry point {entry.name}", entry.cpp_name
        yield from ((f"the input {tensor.name}", tensor.cpp_name) for tensor in entry.inputs)
        yield from ((f"the output {tensor.name}", tensor.cpp_name) for tensor in entry.outputs)
    yield from ((f"the variable {variable.name}", variable.cpp_name) for variable in manifest.variables)
