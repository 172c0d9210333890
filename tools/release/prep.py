#!/usr/bin/env python3
"""Prepares a release: writes its archives, and prints its notes.

    tools/release/prep.py v1.2.3 [--out FOLDER] [--home OWNER/NAME] [--registry FOLDER]

The tag must exist. .github/workflows/release.yaml runs this on GitHub. With --registry, the release is also added to a Bazel
registry in a folder, so that you can try it before you publish it: bazel build --registry=file://FOLDER …
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

# Run as a file, the script's folder is on the path instead of the repository's.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.release import archive, notes, registry, release
from tools.release.errors import ReleaseError

_ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Parses the flags, and exits with one line if the release isn't ready."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", help="the release's tag, like v1.2.3")
    parser.add_argument("--out", type=Path, default=Path(), help="where to write the archives; by default, this folder")
    parser.add_argument(
        "--home",
        default=os.environ.get("GITHUB_REPOSITORY"),
        help="the repository on GitHub; by default, $GITHUB_REPOSITORY",
    )
    parser.add_argument("--registry", type=Path, help="a registry's folder to add the release to")
    flags = parser.parse_args()
    try:
        print(prepare(flags.tag, out=flags.out, home=flags.home, into=flags.registry))
    except ReleaseError as error:
        sys.exit(f"prep: {error}")


def prepare(tag: str, *, out: Path, home: str | None, into: Path | None) -> str:
    """Writes the archives, and returns the notes.

    Args:
      tag: the release's tag.
      out: where to write the archives.
      home: `owner/name` on GitHub.
      into: a registry's folder to add the release to.

    Raises:
      ReleaseError: the release isn't ready.
    """
    if not home:
        raise ReleaseError(
            "the notes contain the archive's address; say with --home=OWNER/NAME which repository has it"
        )
    this, changes = release.read(_ROOT, tag=tag, commit=tag, home=home)
    release.check_checkout(_ROOT, tag)
    source = archive.source(_ROOT, tag, prefix=this.prefix)
    out.mkdir(parents=True, exist_ok=True)
    (out / this.archive).write_bytes(source)
    (out / this.docs).write_bytes(archive.files(_described()))
    if into:
        module, metadata = (release.shown(_ROOT, tag, path) for path in ("MODULE.bazel", ".bcr/metadata.template.json"))
        registry.write(
            into,
            version=this.version,
            archive=source,
            prefix=this.prefix,
            url=(out / this.archive).resolve().as_uri(),
            module=module,
            metadata=metadata,
        )
    return notes.text(
        this,
        changes=changes,
        archive=source,
        integrity=archive.integrity(source),
        workspace=release.setup(release.shown(_ROOT, tag, "e2e/smoke/WORKSPACE")),
    )


def _described() -> dict[str, bytes]:
    """Returns the API's description by path, as registries show it: https://bazel.build/external/registry."""
    labels = _bazel("query", "--output=label", 'kind("starlark_doc_extract rule", //...)').split()
    _bazel("build", *labels)
    folder = Path(_bazel("info", "bazel-bin").strip())
    paths = [label.removeprefix("//").replace(":", "/") + ".binaryproto" for label in labels]
    return {path: (folder / path).read_bytes() for path in paths}


def _bazel(command: str, *arguments: str) -> str:
    """Runs a Bazel command, and returns what it prints."""
    bazel = [str(_ROOT / "bazelw"), command, *arguments]
    result = subprocess.run(bazel, cwd=_ROOT, check=False, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise ReleaseError(
            f"'{command} {' '.join(arguments)}' failed with status {result.returncode}; see its messages above"
        )
    return result.stdout


if __name__ == "__main__":
    main()
