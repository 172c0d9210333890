"""Packs a compiled model for programs that Bazel doesn't build: a folder, or an archive of it.

The content depends on the files alone: no times, no owners, and the same order everywhere.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tfaot.core import elf, templates, version
from tfaot.core.errors import TfaotError
from tfaot.core.fingerprint import Stamp
from tfaot.core.isa import TARGETS
from tfaot.core.manifest import Manifest
from tfaot.pack import kernels


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What to pack, and where to write it."""

    name: str
    """The package's name, and so that of its library."""
    header: str
    """The path by which programs include the class's header."""
    headers: tuple[tuple[str, str], ...] = ()
    """All headers: the paths by which programs include them, and their files."""
    objects: tuple[tuple[str, str], ...] = ()
    """Names in the static library, and object files."""
    interface: str
    """The object file of the shared library's C interface."""
    link: tuple[str, ...] = ()
    """The command that links a shared library, without objects and output. Empty for no shared library."""
    files: tuple[tuple[str, str], ...] = ()
    """Files for the folder `share/NAME`: their names there, and their files. `model.json` is among them."""
    notices: tuple[tuple[str, str], ...] = ()
    """Licences: names in `share/doc/NAME`, and files."""
    kernels: tuple[tuple[str, str, str], ...] = ()
    """More objects, for the library if a file NAME.passes.json lists their sources: sources, names, and object files."""
    system: str = "Linux"
    """The operating system that it is for."""
    linkopts: tuple[str, ...] = ()
    """Additional flags for programs."""
    ar: str = "ar"
    out_folder: str | None = None
    """A folder that doesn't exist."""
    out_archive: str | None = None
    """A tar.gz with one folder, NAME."""


_PROCESSORS = {"x86_64": ("x86-64", "x86_64|amd64|AMD64"), "aarch64": ("64-bit ARM", "aarch64|arm64|ARM64")}
"""What each architecture is called, and what CMake calls its processors."""


_FINGERPRINT = re.compile(rb"tfaot_M\w+_(?:fingerprint|weights)_[0-9a-f]{16}(?=\0)")
"""The symbols of fingerprints that end in their values (`tfaot.core.fingerprint`)."""


def pack(request: Request) -> None:
    """Writes the folder or the archive, or both.

    Raises:
      TfaotError: the archiver fails.
    """
    passes = [path for name, path in request.files if name.endswith(".passes.json")]
    sources = kernels.called([source for source, _, _ in request.kernels], passes)
    objects = tuple((name, path) for source, name, path in request.kernels if source in sources)
    request = dataclasses.replace(request, objects=request.objects + objects)
    contents = {}
    for folder, files in (
        ("include", request.headers),
        (f"share/{request.name}", request.files),
        (f"share/doc/{request.name}", request.notices),
    ):
        contents.update({f"{folder}/{name}": Path(path).read_bytes() for name, path in files})
    header = f"include/{request.header}"
    identified = [path for name, path in request.objects if name.endswith((".fingerprint.o", ".weights.o"))]
    contents[header] = _bound(contents[header], [Path(path).read_bytes() for path in identified])
    contents |= _libraries(request)
    contents.update(_described(request))
    if request.out_folder is not None:
        for name, data in contents.items():
            path = Path(request.out_folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    if request.out_archive is not None:
        Path(request.out_archive).write_bytes(_archive(request.name, contents))


def _bound(header: bytes, objects: Iterable[bytes]) -> bytes:
    """Returns a header with which programs link only with this package's library.

    It refers to the library's fingerprints, by the names that no other library has. The members of the archive that define
    these also define others, which the library of every model of the class has. So whatever the order, two don't link.
    """
    names = sorted({name for data in objects for name in _FINGERPRINT.findall(data)})
    own = names[0].rpartition(b"_")[0].rpartition(b"_")[0] + b"_package"
    lines = (
        b"// What this package's library was made from. A program that links packages of two",
        b"// models of this class has an error here: give one of them another cpp_class, or",
        b"// put each into a shared library of its own.",
        b'extern "C" {',
        *(b"extern const unsigned char %s[];" % name for name in names),
        b"}",
        b"namespace {",
        b"__attribute__((used)) const unsigned char* const %s[] = {%s};" % (own, b", ".join(names)),
        b"}  // namespace",
    )
    body, end, rest = header.rpartition(b"\n#elif ")
    return body + b"\n" + b"\n".join(lines) + b"\n" + end + rest


def _libraries(request: Request) -> dict[str, bytes]:
    """Returns the static library, and the shared one if there is a command for it."""
    static, shared = f"lib{request.name}.a", f"lib{request.name}_shared.so"
    with tempfile.TemporaryDirectory() as folder:
        members = []
        for name, path in sorted(request.objects):
            Path(folder, name).write_bytes(elf.hidden(Path(path).read_bytes()))
            members.append(name)
        # D: without times, owners, and modes.
        _run(
            [request.ar, "rcsD", static, *members], folder, what=f"packing {request.name}: the archiver", variable="AR"
        )
        if not request.link:
            return {f"lib/{static}": Path(folder, static).read_bytes()}
        shutil.copyfile(request.interface, Path(folder, "interface.o"))
        Path(folder, "symbols.lds").write_text("{ global: tfaot_get_api; local: *; };\n")
        own = ["-Wl,--version-script=symbols.lds", f"-Wl,-soname,{shared}", "-o", shared, "interface.o"]
        # Named, because Bazel's toolchains link C++ with the C compiler.
        libraries = ["-Wl,--as-needed", "-lstdc++", "-lm"]
        command = [*request.link, *own, *members, *request.linkopts, *libraries]
        _run(command, folder, what=f"linking {shared}: the compiler", variable="CXX")
        return {f"lib/{name}": Path(folder, name).read_bytes() for name in (static, shared)}


def _run(command: list[str], folder: str, *, what: str, variable: str) -> None:
    """Runs a program in a folder."""
    program = os.path.abspath(command[0]) if "/" in command[0] else command[0]
    try:
        done = subprocess.run([program, *command[1:]], cwd=folder, check=False, capture_output=True, text=True)
    except OSError as error:
        raise TfaotError(
            f"{what} {command[0]!r} can't run: {error.strerror}",
            exists=f"a package is made with `ar` and a C++ compiler, which {variable} can name",
            do=f"install it, or set the environment variable {variable}",
        ) from None
    if done.returncode:
        raise TfaotError(
            f"{what} {command[0]!r} exited with status {done.returncode}",
            details=done.stderr,
            do="see its message above; binutils and gcc, and those of LLVM, are known to work",
        )


def _described(request: Request) -> dict[str, bytes]:
    """Returns the files that say to build systems and readers what the package is."""
    paths = dict(request.files)
    manifest = Manifest.from_json(Path(paths["model.json"]).read_text(encoding="utf-8"), path=paths["model.json"])
    isa = next(
        Stamp.from_json(Path(path).read_text(encoding="utf-8"), path=path).isa
        for name, path in request.files
        if name.endswith(".fingerprint.json")
    )
    architecture, processors = _PROCESSORS[TARGETS[isa[0]].triple.partition("-")[0]]
    environment = templates.environment(str(Path(__file__).parent / "templates"))
    values = {
        "name": request.name,
        "header": request.header,
        "architecture": architecture,
        "cpp_class": manifest.cpp_class,
        "isa": isa,
        "linkopts": list(request.linkopts),
        "processors": processors,
        "rules": version.RULES,
        "shared": bool(request.link),
        "system": request.system,
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
