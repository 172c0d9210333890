"""Fingerprints: 64 bits for each thing that a compiled class is made from, and for all of them together.

The export stage knows the first four, and writes them to `model.json`. The compile stage adds the others, and puts the
combined value into the code. Names of nodes, lines, comments, and folders don't count. Neither do the values of
variables, which have a fingerprint of their own: a library can get others without being compiled again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core import assembly as data
from tfaot.core import names, version
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import Input, Manifest, Mismatch, Output, Tensor, read_fields

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Components:
    """The fingerprint of each thing that a class is made from: 64 bits as 16 hexadecimal digits."""

    graph: str
    """Ops, attributes, and edges."""
    shapes: str
    """Dtypes and shapes of inputs, outputs, and variables; sizes of batches; and shapes in attributes of nodes."""
    constants: str
    """Values of constants, frozen variables among them."""
    config: str
    """Names of the class, its functions, and their inputs, outputs, and variables; and which variables are written."""
    flags: str
    """XLA's flags, and the passes that are on."""
    compiler: str
    """The versions of TensorFlow and of the rules."""
    isa: str
    """CPU levels, and the platform if it isn't Linux."""

    @property
    def combined(self) -> str:
        """The fingerprint of all of them."""
        return digest(*(f"{name} {value}" for name, value in dataclasses.asdict(self).items()))


@dataclasses.dataclass(frozen=True)
class Stamp:
    """What the compile stage says about a build, for people and for `//tools:explain`: `NAME.fingerprint.json`."""

    fingerprint: str
    components: Components
    tensorflow: str
    rules: str
    """The rules' own version."""
    isa: tuple[str, ...]
    xla_flags: tuple[str, ...]
    passes: tuple[str, ...]
    """The passes that are on, sorted."""

    def to_json(self) -> str:
        """Serializes to the text of `NAME.fingerprint.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, *, path: str) -> Stamp:
        """Reads the output of `to_json`.

        Raises:
          TfaotError: the text is something else.
        """
        try:
            stamp = read_fields(cls, json.loads(text), "stamp")
        except (json.JSONDecodeError, Mismatch) as error:
            raise TfaotError(
                f"{path} isn't a fingerprint that this version of rules_tfaot can read: {error}",
                do="build the model again; the compile stage writes this file",
            ) from None
        assert isinstance(stamp, cls)
        return stamp


def digest(*parts: str | bytes) -> str:
    """Returns 64 bits, as 16 hexadecimal digits, that depend on each part and on where one ends and the next starts."""
    hasher = hashlib.blake2b(digest_size=8)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()


def shapes(manifest: Manifest, inside: str) -> str:
    """Returns the fingerprint of a model's shapes.

    Args:
      manifest: the model's manifest.
      inside: the digest of shapes inside its graph.
    """
    lines = [inside, str(manifest.max_batch)]
    for entry in manifest.entry_points:
        lines.append(f"entry point {list(entry.batch_sizes)} {[list(size.buckets) for size in entry.sizes]}")
        lines += [f"input {_shape(tensor)}" for tensor in entry.inputs]
        lines += [f"output {_shape(tensor)}" for tensor in entry.outputs]
    lines += [f"variable {_shape(tensor)}" for tensor in manifest.variables]
    return digest(*lines)


def _shape(tensor: Tensor) -> str:
    batched = isinstance(tensor, Input | Output) and tensor.batched
    bounded = isinstance(tensor, Output) and bool(tensor.size)
    axes = [(axis.dim, axis.size) for axis in tensor.axes] if isinstance(tensor, Input) else []
    return f"{tensor.dtype} {list(tensor.shape)} {tensor.stored} {batched} {bounded} {axes}"


def config(manifest: Manifest) -> str:
    """Returns the fingerprint of names, and of what is written. Names of nodes count only as names of members."""
    lines = [manifest.cpp_class, manifest.random_state]
    for entry in manifest.entry_points:
        lines += ["entry point", entry.name, entry.cpp_name]
        lines += [f"input {tensor.cpp_name}" for tensor in entry.inputs]
        lines += [f"output {tensor.cpp_name}" for tensor in entry.outputs]
        lines += [f"use {use.variable} {use.written}" for use in entry.variables]
    for variable in manifest.variables:
        lines += ["variable", variable.name, variable.cpp_name, str(variable.written)]
    return digest(*lines)


def stamp(
    manifest: Manifest,
    *,
    isa: Sequence[str],
    xla_flags: Sequence[str],
    passes: Collection[str],
    target_triple: str = "",
) -> Stamp:
    """Returns what identifies a build of a model.

    Args:
      manifest: the model's manifest.
      isa: the CPU levels that it is compiled for.
      xla_flags: XLA's flags, in order: later ones win.
      passes: the names of the passes that are on.
      target_triple: what LLVM calls the platform, if it isn't Linux.
    """
    ordered = sorted(passes)
    prints = manifest.fingerprints
    components = Components(
        graph=prints.graph,
        shapes=prints.shapes,
        constants=prints.constants,
        config=prints.config,
        flags=digest(*(f"flag {flag}" for flag in xla_flags), *(f"pass {name}" for name in ordered)),
        compiler=digest(f"tensorflow {manifest.tensorflow}", f"rules {version.RULES}"),
        isa=digest(*isa, *([target_triple] if target_triple else [])),
    )
    return Stamp(
        fingerprint=components.combined,
        components=components,
        tensorflow=manifest.tensorflow,
        rules=version.RULES,
        isa=tuple(isa),
        xla_flags=tuple(xla_flags),
        passes=tuple(ordered),
    )


def of_value(value: Array) -> str:
    """Returns the SHA-256 of a variable's dtype, shape, and values in hexadecimal. Its name doesn't count."""
    hasher = hashlib.sha256(f"{value.dtype}{list(value.shape)}\0".encode())
    hasher.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data if value.size else b"")
    return hasher.hexdigest()


def of_values(values: Mapping[str, str]) -> str:
    """Returns the SHA-256 of all variables together.

    Args:
      values: the result of `of_value`, by the variables' names. The mapping's order doesn't count.
    """
    lines = "".join(f"{values[name]} {name}\0" for name in sorted(values))
    return hashlib.sha256(lines.encode()).hexdigest()


def symbol(cpp_class: str) -> str:
    """Returns the C symbol of a class's fingerprint. Another symbol of the same place ends in the value."""
    return f"tfaot_{names.symbol(cpp_class)}_fingerprint"


def weights_symbol(cpp_class: str) -> str:
    """Returns the C symbol of the fingerprint of the weights that a class's library holds, as `symbol` does."""
    return f"tfaot_{names.symbol(cpp_class)}_weights"


MODELS = "a_program_contains_two_models_of_one_class"
_WEIGHTS = "a_program_contains_two_weights_of_one_class"


def _only(cpp_class: str, reason: str) -> str:
    """Returns a symbol that no program can contain twice. Linkers show it as `tfaot::REASON::CLASS`."""
    namespaces, name = names.split_class(cpp_class)
    parts = ("tfaot", reason, *namespaces, name)
    return f"_ZN{''.join(f'{len(part)}{part}' for part in parts)}E"


def assembly(cpp_class: str, value: str) -> str:
    """Returns assembler code that defines the fingerprint of a class.

    Another class of the same name, in the same program, doesn't link, because both define the same symbols.
    """
    name = symbol(cpp_class)
    return _note((_only(cpp_class, MODELS), name, f"{name}_{value}"), value)


def weights_assembly(cpp_class: str, value: str) -> str:
    """Returns assembler code that defines the fingerprint of a class's weights, as `assembly` does."""
    name = weights_symbol(cpp_class)
    return _note((_only(cpp_class, _WEIGHTS), name, f"{name}_{value}"), value)


def _note(symbols: tuple[str, ...], value: str) -> str:
    """Returns assembler code that defines a fingerprint, and its symbols.

    In ELF, it is a note, because linkers keep notes that nothing refers to, and stripped programs still have them. The owner's
    name has a length with which the value is aligned, however a reader aligns notes.
    """
    return data.source(
        symbols, (f".quad 0x{value}",), alignment=8, before=(".long 12, 8, 1", '.asciz "rules_tfaot"'), note=True
    )
