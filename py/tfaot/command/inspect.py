"""Says what a package contains."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tfaot.core.errors import TfaotError
from tfaot.core.manifest import Manifest, Tensor


def lines(path: str) -> list[str]:
    """Returns a description of a package's folder or archive, or of a manifest.

    Raises:
      TfaotError: it is none of these.
    """
    files = _read(Path(path))
    (where, text) = next((file for file in files.items() if file[0].endswith("model.json")), ("", ""))
    if not where:
        raise TfaotError(
            f"{path} isn't a package",
            exists="no model.json in it, or no archive" if Path(path).exists() else "nothing at this path",
            do="name the folder that tfaot compile wrote, an archive of NAME_package, or a model.json",
        )
    manifest = Manifest.from_json(text, path=where)
    lines = [f"{manifest.cpp_class}, made with TensorFlow {manifest.tensorflow}"]
    for entry in manifest.entry_points:
        lines.append(f"{entry.cpp_name}()")
        lines += _table("input", entry.inputs) + _table("output", entry.outputs)
        if entry.batch_sizes:
            lines.append(f"  compiled for batches of {', '.join(map(str, entry.batch_sizes))}")
        lines += [
            f"  {size.name} is 1 to {size.buckets[-1]}, compiled for {', '.join(map(str, size.buckets))}"
            for size in entry.sizes
        ]
    size = sum(variable.bytes for variable in manifest.variables)
    written = sum(variable.written for variable in manifest.variables)
    lines.append(f"{len(manifest.variables)} variables of {size:,} bytes, {written} of them written")
    lines.append(f"{len(manifest.frozen)} variables are constants of the code")
    builds = [json.loads(text) for name, text in sorted(files.items()) if name.endswith(".fingerprint.json")]
    for build in builds[:1]:
        lines.append(f"rules_tfaot {build['rules']}, for {', '.join(build['isa'])}, fingerprint {build['fingerprint']}")
    return lines


def _table(what: str, tensors: Iterable[Tensor]) -> list[str]:
    return [f"  {what} {tensor.cpp_name}: {tensor.dtype}{list(tensor.shape)} ({tensor.name})" for tensor in tensors]


def _read(path: Path) -> dict[str, str]:
    """Returns the JSON files of a package, by name."""
    try:
        if path.is_dir():
            paths = [*path.glob("share/*/*.json"), *path.glob("*.model.json")]
            return {file.name: file.read_text(encoding="utf-8") for file in paths}
        if path.name.endswith(".json"):
            return {"model.json": path.read_text(encoding="utf-8")}
        if path.is_file():
            with tarfile.open(path) as archive:
                members = [member for member in archive if member.isfile() and member.name.endswith(".json")]
                read = [(PurePosixPath(member.name).name, archive.extractfile(member)) for member in members]
                return {name: file.read().decode() for name, file in read if file is not None}
    except (tarfile.TarError, UnicodeDecodeError):
        pass
    except OSError as error:
        raise TfaotError(f"can't read {path}: {error.strerror}", do="check the file's permissions") from None
    return {}
