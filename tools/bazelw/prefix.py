"""Makes programs from unpacked Debian packages run from their own folder, with a libc of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from .errors import WayFailed
from .progress import Progress

BAZEL_DATA = Path("usr/share/bazel")
_CLASSPATH = BAZEL_DATA / "bazel_classpath_debian_depends.txt"
# The package omits this jar. Without it, the server starts but never answers.
_FORGOTTEN_JARS = ("/usr/share/java/perfmark-api.jar",)


def unpack(packages: Sequence[Path], into: Path, progress: Progress) -> None:
    """Unpacks each .deb into the folder `into`. Runs none of the packages' scripts."""
    for number, package in enumerate(packages, 1):
        progress.move(f"unpacking package {number} of {len(packages)}: {package.name}")
        run(["dpkg-deb", "--extract", str(package), str(into)])


def adapt(tree: Path, final: Path) -> str:
    """Prepares the unpacked `tree` to be renamed to `final`. Returns the Java folder's path relative to it.

    Raises WayFailed if the tree lacks something that Bazel's packages are known to contain.
    """
    relink(tree, final)
    java = one(tree, "usr/lib/jvm/java-*-openjdk-*/bin/java").parents[1].relative_to(tree)
    programs, shared = elf_files(tree, java)
    patch(tree, final, programs, shared, [java / "lib", java / "lib/server"])
    listed = tree / _CLASSPATH
    text = classpath(listed.read_text(encoding="utf-8"), tree, final)
    listed.write_text(f"{text}{final / label(tree)}\n", encoding="utf-8")
    return str(java)


def patch(
    tree: Path, final: Path, programs: Sequence[Path], shared: Sequence[Path], libraries: Sequence[Path] = ()
) -> None:
    """Points programs and shared libraries at the loader and the libraries in `final`, with the tree's own patchelf.

    Args:
      tree: The unpacked packages, including libc6 and patchelf.
      final: The place that `tree` is renamed to.
      programs: Executables in `tree`.
      shared: Shared libraries in `tree`.
      libraries: Folders with more libraries, relative to `tree`.
    """
    main = one(tree, "usr/lib/*/libc.so.6").parent.relative_to(tree)
    loader = one(tree, f"{main}/ld-linux-*.so.*").relative_to(tree)
    rpath = ":".join(str(final / part) for part in (main, *libraries))
    patchelf = [str(tree / loader), "--library-path", str(tree / main), str(tree / "usr/bin/patchelf")]
    # An old-style rpath, not a runpath, because it must also apply to the libraries' own dependencies.
    run([*patchelf, "--force-rpath", "--set-rpath", rpath, *map(str, [*programs, *shared])])
    run([*patchelf, "--set-interpreter", str(final / loader), *map(str, programs)])


def label(tree: Path) -> Path:
    """Makes the resource that tells the server its version. Returns its class path entry, relative to `tree`.

    Debian's build omits it. Without it, `native.bazel_version` is empty, and rules assume the newest Bazel.
    """
    version = one(tree, f"{BAZEL_DATA}/build-label.txt").read_text(encoding="utf-8").strip()
    folder = BAZEL_DATA / "version"
    (tree / folder).mkdir(exist_ok=True)
    (tree / folder / "build-data.properties").write_text(f"build.label={version}\n", encoding="utf-8")
    return folder


def relink(tree: Path, final: Path) -> None:
    """Redirects each absolute symbolic link in `tree` to a place below `final`."""
    for folder, folders, files in os.walk(tree):
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                target = os.readlink(path)
                if target.startswith("/") and not Path(target).is_relative_to(final):
                    os.unlink(path)
                    os.symlink(str(final) + target, path)


def classpath(text: str, tree: Path, final: Path) -> str:
    """Returns Bazel's list of jars, one per line, each at its place below `final`, plus the omitted ones.

    A jar that no dependency of the package provides is left out. It is missing on a Debian system too.
    """
    jars = dict.fromkeys([*text.split(), *_FORGOTTEN_JARS])
    return "".join(f"{final}{jar}\n" for jar in jars if os.path.lexists(f"{tree}{jar}"))


def elf_files(tree: Path, java: Path) -> tuple[list[Path], list[Path]]:
    """Returns the programs and the shared libraries that must find the prefix's libc, as regular files."""
    data = tree / BAZEL_DATA
    programs = [
        tree / "usr/bin/bazel",
        *(data / name for name in ("process-wrapper", "linux-sandbox", "build-runfiles", "daemonize")),
        tree / java / "bin/java",
        tree / java / "lib/jspawnhelper",
    ]
    shared = [
        *data.glob("*.so"),
        *(tree / java / "lib").glob("*.so"),
        *(tree / java / "lib/server").glob("*.so"),
        *(tree / "usr/lib").glob("*/jni/*.so"),
        *(tree / "usr/lib/jni").glob("*.so"),
    ]
    return _regular(programs, tree), _regular(shared, tree)


def _regular(paths: Iterable[Path], tree: Path) -> list[Path]:
    """Returns the files in `tree` behind `paths`, each once. Several paths are links."""
    real = {Path(os.path.realpath(path)) for path in paths}
    return sorted(path for path in real if path.is_file() and path.is_relative_to(os.path.realpath(tree)))


def one(tree: Path, pattern: str) -> Path:
    """Returns the first file in `tree` that matches. Raises WayFailed if there is none."""
    for path in sorted(tree.glob(pattern)):
        if path.is_file():
            return path
    raise WayFailed(f"the Debian packages don't contain {pattern}")


def remove(folder: Path) -> None:
    """Removes a folder if it exists."""
    if os.path.lexists(folder):
        shutil.rmtree(folder)


def run(command: Sequence[str], environ: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Runs a command quietly and returns its output. If it fails, raises WayFailed with the end of the output."""
    done = subprocess.run(
        command,
        env=environ,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise WayFailed(f"{os.path.basename(command[0])} failed: {last_words(done.stderr or done.stdout)}")
    return done.stdout


def last_words(text: str) -> str:
    """Returns the line of a failed command's output that most likely says why it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "Err:", "error", "ERROR"))]
    if errors:
        # What follows the first error is often only a consequence.
        return errors[0].rstrip(".")
    return lines[-1].rstrip(".") if lines else "it printed nothing"
