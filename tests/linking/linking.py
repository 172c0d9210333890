"""Links and loads two models of one class in every way, and shows whether each gives its own numbers, or the linker refuses both.

    bazel build //tests/linking/...
    python3 tests/linking/linking.py gcc=bazel-bin/tests/linking [--compiler NAME=COMMAND…] [--sanitizers] [--page FILE]

`tests/linking/run` gets clang, and makes the whole table.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).absolute().parent
FOLDER = "tests/linking"
CLASS = "trigger::Anomaly"
EXPECTED = {"first": 3, "second": 5, "wide": 32, "fed": 3, "refed": 9}
"""What each model gives for ones."""
PAIRS = (("first", "second"), ("first", "wide"), ("fed", "refed"))
SANITIZERS = {
    "": (),
    "asan, ubsan": ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "tsan": ("-g", "-fsanitize=thread"),
}
REFUSED = re.compile(r"tfaot::a_program_contains_two_(models|weights)_of_one_class::trigger::Anomaly")
"""What a linker says about two models of one class."""
_LIBRARY = re.compile(r"_ZT?[ISV]?Z?N?K?(St|9__gnu_cxx)")
"""The start of a mangled name of the C++ library."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to have two models in a process, and what came out."""

    form: str
    pair: tuple[str, str]
    wrong: str
    """Empty, or what came out instead."""


@dataclasses.dataclass(frozen=True)
class Table:
    """All ways, with one compiler for programs and plug-ins."""

    built: Path
    """What Bazel built of `tests/linking`."""
    folder: Path
    """Where to write."""
    compiler: tuple[str, ...]
    flags: tuple[str, ...] = ()
    """Flags of a sanitizer."""

    def rows(self) -> Iterator[Row]:
        """Tries everything."""
        self.folder.mkdir()
        for name in EXPECTED:
            with tarfile.open(self.built / f"{name}.package.tar.gz") as archive:
                archive.extractall(self.folder / "packages", filter="data")
        self._run("-I", self._package("first") / "include", HERE / "load.cc", "-ldl", "-o", self.folder / "load")
        for pair in PAIRS:
            for form, wrong in self._tried(*pair):
                yield Row(form, pair, wrong)
        for name in sorted(path.stem for path in self.built.glob("line_*.params")):
            one, other = name.removeprefix("line_").split("-")
            yield Row("program, as Bazel links it", (one, other), self._refused([f"@{self._line(name)}"], [one]))

    def _tried(self, one: str, other: str) -> Iterator[tuple[str, str]]:
        """Tries all ways of a pair of models."""
        both = self.folder / f"{one}_{other}.cc"
        both.write_text(f'#include "{FOLDER}/{one}.h"\n#include "{FOLDER}/{other}.h"\n')
        includes = [f"-I{self._package(name) / 'include'}" for name in (one, other)]
        done = self._try(*includes, "-c", both, "-o", os.devnull)
        said = "#error" in done.stderr and f"two models have the class {CLASS}" in done.stderr
        yield "one source, both headers", "" if done.returncode and said else done.stderr or "it compiled"
        for released in (False, True):
            later = self._released(other, one) if released else other
            archives = [str(self._package(name) / "lib" / f"lib{name}.a") for name in (one, later)]
            sources = [self._object(one, "Score1"), self._object(later, "Score2", header=one if released else later)]
            form = "two releases of one package" if released else "two packages"
            for kind, more in (("program", [HERE / "both.cc"]), ("shared library", ["-shared"])):
                runs = [
                    self._refused([*more, *parts, *libraries], [])
                    for parts in (sources, sources[::-1])
                    for libraries in (archives, archives[::-1])
                ]
                yield f"{kind} of {form}", next(filter(None, runs), "")
            shared = [self._shared(name, entry) for name, entry in ((one, "Score1"), (other, "Score2"))]
            if released:
                continue
            numbers = [str(EXPECTED[name]) for name in (one, other)]
            for order in (shared, shared[::-1]):
                program = self.folder / "linked"
                self._run(HERE / "both.cc", *order, f"-Wl,-rpath,{self.folder}", "-o", program)
                yield "program and two shared libraries", self._ran(program, *numbers)
            program = self.folder / "mixed"
            self._run(
                HERE / "both.cc",
                sources[0],
                archives[0],
                shared[1],
                "-rdynamic",
                f"-Wl,-rpath,{self.folder}",
                "-o",
                program,
            )
            yield "program with a model, and a shared library", self._ran(program, *numbers)
        for form, libraries in (
            ("plug-ins of packages", [self._shared(name, "Score") for name in (one, other)]),
            ("plug-ins, as Bazel links them", [self.built / f"lib{name}_plugin.so" for name in (one, other)]),
            ("shared libraries of packages", [self._package(n) / "lib" / f"lib{n}_shared.so" for n in (one, other)]),
            ("shared libraries, as Bazel links them", [self.built / f"lib{name}_shared.so" for name in (one, other)]),
        ):
            words = [[str(path), str(EXPECTED[name])] for path, name in zip(libraries, (one, other), strict=True)]
            for mode in ("local", "global"):
                runs = [self._ran(self.folder / "load", mode, *a, *b) for a, b in (words, words[::-1])]
                yield f"{form}, RTLD_{mode.upper()}", next(filter(None, runs), "")
            yield f"{form}, exported symbols", self._exported(libraries)

    def _package(self, name: str) -> Path:
        return self.folder / "packages" / name

    def _released(self, name: str, as_name: str) -> str:
        """Makes a copy of a package whose header has another's path, as if it were its later release."""
        copy = f"{name}_as_{as_name}"
        if not self._package(copy).exists():
            shutil.copytree(self._package(name), self._package(copy))
            headers = [self._package(package) / f"include/{FOLDER}/{package}.h" for package in (name, as_name)]
            guards = [re.findall(r"#define (TFAOT_GENERATED_\w+)", path.read_text())[1] for path in headers]
            folder = self._package(copy) / f"include/{FOLDER}"
            (folder / f"{name}.h").unlink()
            (folder / f"{as_name}.h").write_text(headers[0].read_text().replace(*guards))
            (self._package(copy) / f"lib/lib{name}.a").rename(self._package(copy) / f"lib/lib{copy}.a")
        return copy

    def _object(self, name: str, entry: str, header: str = "") -> str:
        """Compiles `plugin.cc` for a package. Returns the object."""
        out = self.folder / f"{name}.{entry}.o"
        if not out.exists():
            define = f'-DHEADER="{FOLDER}/{header or name}.h"'
            flags = ("-fPIC", "-fvisibility=hidden", f"-I{self._package(name) / 'include'}", define, f"-DENTRY={entry}")
            self._run(*flags, "-c", HERE / "plugin.cc", "-o", out)
        return str(out)

    def _shared(self, name: str, entry: str) -> Path:
        """Links `plugin.cc` and a package. Returns the shared library."""
        out = self.folder / f"lib{name}.{entry}.so"
        if not out.exists():
            self._run(
                "-shared", self._object(name, entry), self._package(name) / f"lib/lib{name}.a", "-pthread", "-o", out
            )
        return out

    def _line(self, name: str) -> Path:
        """Returns Bazel's arguments for a linker, with paths from here."""
        words = (self.built / f"{name}.params").read_text().splitlines()
        root = self.built.parent.parent
        out = self.folder / f"{name}.params"
        out.write_text("\n".join(word if word.startswith("-") else str(root / word) for word in words))
        return out

    def _refused(self, words: Sequence[str | Path], parts: Sequence[str]) -> str:
        """Links, and returns what is wrong: nothing if the linker refuses, and says why."""
        sources = [self.folder / "nothing.cc"] if parts else []
        (self.folder / "nothing.cc").write_text("int main() {}\n")
        done = self._try(*sources, *words, "-pthread", "-o", self.folder / "refused")
        if done.returncode and REFUSED.search(done.stderr):
            return ""
        return done.stderr if done.returncode else "it linked"

    def _exported(self, libraries: Sequence[Path]) -> str:
        """Returns what shared libraries export besides their own function.

        What Bazel linked also exports functions of the C++ library with its types, as every object does that uses them.
        """
        for library in libraries:
            done = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
            for line in done.stdout.splitlines():
                _, kind, name = line.split()
                foreign = library.parent == self.built and kind in "WV" and _LIBRARY.match(name) and "tfaot" not in name
                foreign = foreign or (
                    "undefined" in str(self.flags) and re.match("_ZT[IS]F", name)
                )  # of clang's, in plugin.cc
                if name not in ("Score", "tfaot_get_api", "_edata", "_end", "__bss_start") and not foreign:
                    return f"{library.name}: {line}"
        return ""

    def _ran(self, program: Path, *words: str) -> str:
        """Runs a program, and returns what it says if it fails."""
        done = subprocess.run([program, *words], check=False, capture_output=True, text=True)
        return f"{done.stdout}{done.stderr}status {done.returncode}" if done.returncode else ""

    def _try(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [*self.compiler, "-std=c++17", *self.flags, *map(str, words)]
        return subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})

    def _run(self, *words: str | Path) -> None:
        done = self._try(*words)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(done.args)}\n{done.stderr}")


def _table(results: Sequence[tuple[str, str, str, Row]]) -> str:
    """Returns the table as a part of a page.

    Args:
      results: the compiler of the models, that of the programs, the sanitizer, and the row.
    """
    cases = Counter(row.form for *_, row in results)
    wrong = Counter(row.form for *_, row in results if row.wrong)
    lines = [
        f"`tests/linking/run` tries {len(results):,} cases with gcc and clang, with and without sanitizers: pairs of models that",
        "differ in numbers, in shapes, or only in the weights that their libraries hold, in both orders. They are in programs,",
        "shared libraries, and plug-ins, of packages and as Bazel links them. "
        + (", ".join(f"{form}: {wrong[form]} wrong" for form in cases if wrong[form]) or "None is wrong."),
    ]
    return "\n".join(lines) + "\n"


def _named(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, command = text.partition("=")
    return name, tuple(shlex.split(command or name))


def main() -> int:
    """Makes the table. Returns how many cases are wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("built", nargs="+", type=_named, help="NAME=FOLDER: a compiler, and what Bazel built with it")
    parser.add_argument("--compiler", action="append", type=_named, help="NAME=COMMAND of programs; c++ by default")
    parser.add_argument("--sanitizers", action="store_true", help="also with each sanitizer")
    parser.add_argument("--page", help="a page with marks for the table")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for built, (path, *_) in options.built:
            for compiler, command in options.compiler or [_named("c++")]:
                for sanitizer in SANITIZERS if options.sanitizers else [""]:
                    work = Path(folder, f"{len(results)}")
                    table = Table(Path(path).absolute(), work, command, SANITIZERS[sanitizer])
                    for row in table.rows():
                        results.append((built, compiler, sanitizer, row))
                        if row.wrong:
                            print(built, compiler, sanitizer, row.form, *row.pair, row.wrong, sep="\n  ")
                    shutil.rmtree(work)
    if options.page:
        from benchmarks import pages

        pages.put(Path(options.page), "tests/linking/run", _table(results))
    wrong = sum(bool(row.wrong) for *_, row in results)
    print(f"{len(results):,} cases, {wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
