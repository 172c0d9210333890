"""The archives of a release. The same commit gives the same bytes on every machine with the same zlib."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from .errors import ReleaseError


def source(repository: Path, commit: str, *, prefix: str) -> bytes:
    """Returns a tar.gz of a commit, without what .gitattributes excludes with `export-ignore`.

    Args:
      repository: the checkout.
      commit: what to archive. Files get the time of the commit.
      prefix: the folder inside the archive.

    Raises:
      ReleaseError: git can't read the commit.
    """
    # The user's git configuration could change modes and line endings.
    command = ["git", "-c", "tar.umask=0022", "-c", "core.autocrlf=false", "archive", "--format=tar"]
    result = subprocess.run([*command, f"--prefix={prefix}/", commit], cwd=repository, check=False, capture_output=True)
    if result.returncode != 0:
        raise ReleaseError(f"git can't archive {commit!r}: {result.stderr.decode().strip()}; name a commit or a tag")
    return _compressed(result.stdout)


def files(contents: Mapping[str, bytes]) -> bytes:
    """Returns a tar.gz of files, by path, in alphabetical order and without times and owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(contents):
            entry = tarfile.TarInfo(path)
            entry.size = len(contents[path])
            tar.addfile(entry, io.BytesIO(contents[path]))
    return _compressed(buffer.getvalue())


def integrity(archive: bytes) -> str:
    """Returns the checksum of an archive as registries want it: https://www.w3.org/TR/SRI/."""
    return "sha256-" + base64.b64encode(hashlib.sha256(archive).digest()).decode()


def _compressed(tar: bytes) -> bytes:
    return gzip.compress(tar, 9, mtime=0)
