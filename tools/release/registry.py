"""An entry of a Bazel registry, in the layout that https://bazel.build/external/registry describes."""

from __future__ import annotations

import json
from pathlib import Path

from .archive import integrity
from .release import NAME


def write(registry: Path, *, version: str, archive: bytes, prefix: str, url: str, module: str, metadata: str) -> None:
    """Adds a version to a registry, which is created if it doesn't exist.

    Args:
      registry: the registry's folder.
      version: the version to add.
      archive: the source archive.
      prefix: the folder inside the archive.
      url: where Bazel gets the archive, `file://` included.
      module: the text of MODULE.bazel in the archive.
      metadata: the text of .bcr/metadata.template.json, for a registry that doesn't have the module.
    """
    module_folder = registry / "modules" / NAME
    folder = module_folder / version
    folder.mkdir(parents=True, exist_ok=True)
    if not (registry / "bazel_registry.json").exists():
        _json(registry / "bazel_registry.json", {})
    kept = module_folder / "metadata.json"
    entry = json.loads(kept.read_text(encoding="utf-8") if kept.exists() else metadata)
    if version not in entry["versions"]:
        entry["versions"].append(version)
    _json(kept, entry)
    _json(folder / "source.json", {"url": url, "integrity": integrity(archive), "strip_prefix": prefix})
    (folder / "MODULE.bazel").write_text(module, encoding="utf-8")


def _json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=4) + "\n", encoding="utf-8")
