"""Packs a compiled model for programs that Bazel doesn't build: a folder, or an archive of it.

The content depends on the files alone: no times, no owners, and the same order everywhere.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tfaot.core import templates, version
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import Manifest


@dataclasses.dataclass(frozen=True)
class Request:
    """What to pack, and where to write it."""

    name: str
    """The package's name, and so that of its library."""
    header: str
    """The path by which programs include the class's header."""
    headers: tuple[tuple[str, str], ...]
    """All headers: the paths by which programs include them, and their files."""
    objects: tuple[tuple[str, str], ...]
    """Names in the static library, and object files."""
    files: tuple[tuple[str, str], ...]
    """Files for the folder `share/NAME`: their names there, and their files. `model.json` is among them."""
    notices: tuple[tuple[str, str], ...]
    """Licences: names in `share/doc/NAME`, and files."""
    linkopts: tuple[str, ...] = ()
    """Additional flags for programs."""
    ar: str = "ar"
    out_folder: str | None = None
    """A folder that doesn't exist."""
    out_archive: str | None = None
    """A tar.gz with one folder, NAME."""


def pack(request: Request) -> None:
    """Writes the folder or the archive, or both.

    Raises:
      TfaotError: the archiver fails.
    """
    contents = {}
    for folder, files in (
        ("include", request.headers),
        (f"share/{request.name}", request.files),
        (f"share/doc/{request.name}", request.notices),
    ):
        contents.update({f"{folder}/{name}": Path(path).read_bytes() for name, path in files})
    contents[f"lib/lib{request.name}.a"] = _library(request)
    contents.update(_described(request))
    if request.out_folder is not None:
        for name, data in contents.items():
            path = Path(request.out_folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    if request.out_archive is not None:
        Path(request.out_archive).write_bytes(_archive(request.name, contents))


def _library(request: Request) -> bytes:
    """Returns the static library."""
    with tempfile.TemporaryDirectory() as folder:
        members = []
        for name, path in sorted(request.objects):
            shutil.copyfile(path, Path(folder, name))
            members.append(name)
        library = f"lib{request.name}.a"
        # D: without times, owners, and modes.
        command = [os.path.abspath(request.ar) if "/" in request.ar else request.ar, "rcsD", library, *members]
        try:
            done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        except OSError as error:
            raise TfaotError(
                f"packing {request.name}: can't run the archiver {request.ar!r}: {error.strerror}",
                exists="a static library is made with `ar` of binutils or LLVM",
                do="install it, or name it in the environment variable AR",
            ) from None
        if done.returncode:
            raise TfaotError(
                f"packing {request.name}: the archiver {request.ar!r} exited with status {done.returncode}",
                details=done.stderr,
                do="see its message above; `ar` of binutils and of LLVM are known to work",
            )
        return Path(folder, library).read_bytes()


def _described(request: Request) -> dict[str, bytes]:
    """Returns the files that say to build systems and readers what the package is."""
    paths = dict(request.files)
    manifest = Manifest.from_json(Path(paths["model.json"]).read_text(encoding="utf-8"), path=paths["model.json"])
    environment = templates.environment(str(Path(__file__).parent / "templates"))
    values = {
        "name": request.name,
        "header": request.header,
        "cpp_class": manifest.cpp_class,
        "linkopts": list(request.linkopts),
        "rules": version.RULES,
        "tensorflow": manifest.tensorflow,
        "weights": f"{request.name}.variables.safetensors" if manifest.variables else "",
    }
    cmake = f"lib/cmake/{request.name}/{request.name}"
    made = {
        f"{cmake}-config.cmake": "config.cmake.jinja",
        f"{cmake}-config-version.cmake": "config-version.cmake.jinja",
        f"lib/pkgconfig/{request.name}.pc": "package.pc.jinja",
        "README.md": "README.md.jinja",
    }
    return {path: environment.get_template(template).render(values).encode() for path, template in made.items()}


def _archive(name: str, contents: Mapping[str, bytes]) -> bytes:
    """Returns a tar.gz with one folder."""
    out = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", 6, out, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, data in sorted(contents.items()):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(data)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()
