"""How often each pass applies to the examples and the benchmarks, and how many of XLA's kernels remain: reads and compares it.

    ./bazelw run //tools/dev:places [-- //examples/fc:fc_aot …] [--missing] [--totals]

Without options, the command compiles the libraries, all by default, and writes their rows of `places.bzl`. With `--missing`, it
fails if a library has no row, and compiles nothing. With `--totals`, it adds up rows for a table of versions, and writes nothing.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

Row = Mapping[str, int]
"""How many places each pass changed, without those that changed none, and how many kernels remain at each CPU level."""

TABLE = "tests/places/places.bzl"
RENEW = "./bazelw run //tools/dev:places"
_PATTERNS = ("//examples/...", "//benchmarks/...")
LIBRARIES = "filter('^[^.]*$', kind('tf_aot_link rule', {}))"
"""A query for libraries, without those that only tests have, such as `NAME.taps`."""
_REFUSED = ("//examples/argmax:any_axis_aot",)
"""Libraries that show an error: they don't compile."""
_ENDING = ".passes.json"
_LARGE = ("bert_base", "convnext", "efficientnet_b0", "mobilenet_v2", "resnet18", "resnet50", "unet", "wavenet")
"""Nets that take minutes, unless a tier builds them anyway."""
_HEAD = '''\
"""How often each pass applies to a model, and how many of XLA's kernels remain. {renew} made it.

Several functions of a model have a row each. The levels have the kernels that remain, and passes without places are left out.
"""

visibility(["//tests/places/..."])
'''
_TIERS = {
    "DEFAULT": "What the default tier builds.",
    "FULL": "What only the tier `full` builds.",
    "MANUAL": "What no tier builds: nets that take minutes.",
}


def labels(rows: Iterable[str]) -> list[str]:
    """Returns the libraries of rows, each once."""
    return list(dict.fromkeys(row.partition(" ")[0] for row in rows))


def parsed(text: str) -> dict[str, dict[str, Row]]:
    """Reads places.bzl: rows by library and function, by tier."""
    return {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }


def rendered(tiers: Mapping[str, Mapping[str, Row]]) -> str:
    """Returns the text of places.bzl."""
    parts = [_HEAD.format(renew=RENEW)]
    for tier, doc in _TIERS.items():
        rows = sorted(tiers.get(tier, {}).items())
        lines = [
            f'    "{name}": {{{", ".join(f"{json.dumps(key)}: {row[key]}" for key in row)}}},' for name, row in rows
        ]
        parts.append("\n".join([f"# {doc}", f"{tier} = {{", *lines, "}"]) + "\n")
    return "\n".join(parts)


def row(passes: Mapping[str, object]) -> Row:
    """Returns the row of a function, from its `NAME.passes.json`."""
    remaining = passes["remaining"]
    assert isinstance(remaining, dict)
    return {name: places for name, places in passes.items() if isinstance(places, int) and places} | remaining


def read(root: Path, files: Iterable[str], libraries: Collection[str]) -> dict[str, Row]:
    """Reads the rows of libraries.

    Args:
      root: the folder of the paths.
      files: paths of files and folders below it, of which others than `NAME.passes.json` are skipped.
      libraries: the labels of all libraries that the files may be of.
    """
    rows = {}
    for path in files:
        inside = (root / path).rglob("*" + _ENDING) if (root / path).is_dir() else [root / path]
        for file in (path_inside for path_inside in inside if path_inside.name.endswith(_ENDING)):
            # Bazel's folder for outputs comes before the package.
            package, name = os.path.split(path.partition("/bin/")[2] or path)
            owners = (label for label in libraries if label.startswith(f"//{package}:"))
            owner = max((label for label in owners if name.startswith(f"{_stem(label)}.")), key=len)
            stem = file.name if file.name != name else name.removeprefix(_stem(owner))
            function = stem.removesuffix(_ENDING).strip("._")
            rows[f"{owner} {function}".strip()] = row(json.loads(file.read_text(encoding="utf-8")))
    return rows


def _stem(label: str) -> str:
    """Returns what the names of a library's files begin with. That of clusters is the ops'."""
    return label.partition(":")[2].removesuffix("_library")


def differences(old: Mapping[str, Row], new: Mapping[str, Row]) -> tuple[list[str], list[str]]:
    """Compares rows. Returns lines that say what is worse, and what is better or otherwise new."""
    worse: list[str] = []
    better: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        if name not in new or name not in old:
            (worse if name in old else better).append(f"{name}: {'compiled no more' if name in old else 'has no row'}")
            continue
        for key in sorted(old[name].keys() | new[name].keys()):
            before, after = old[name].get(key, 0), new[name].get(key, 0)
            kernels = key.startswith(("x86-64", "armv"))
            compiled_for = not kernels or key in new[name]
            if before != after and compiled_for:
                what = f"{name}: {'kernels that remain at ' if kernels else 'places of '}{key}: {before} -> {after}"
                (worse if (after > before) == kernels else better).append(what)
    return worse, better


def totals(rows: Iterable[Row]) -> Row:
    """Adds up rows."""
    sums: dict[str, int] = {}
    for row in rows:
        for key, count in row.items():
            sums[key] = sums.get(key, 0) + count
    return dict(sorted(sums.items()))


def compiled(libraries: Sequence[str], bazel: Callable[..., str]) -> dict[str, Row]:
    """Compiles libraries, and returns the rows of those that compile.

    Args:
      libraries: their labels.
      bazel: runs a Bazel command with arguments, and returns its output.
    """
    group = "--output_groups=manifest"
    bazel("build", "--keep_going", group, *libraries)
    listed = bazel("cquery", "--noshow_progress", "--output=files", group, f"set({' '.join(libraries)})").split()
    root = Path(bazel("info", "execution_root").strip())
    return read(root, [file for file in listed if (root / file).exists()], libraries)


def _bazel(*arguments: str) -> str:
    done = subprocess.run(["./bazelw", *arguments], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"places: bazel {arguments[0]} failed; see above")
    return done.stdout


def _queried(expression: str) -> list[str]:
    return _bazel("query", "--noshow_progress", expression).split()


def main() -> None:
    """Parses the flags, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=_PATTERNS, help="labels and patterns of libraries")
    parser.add_argument("--missing", action="store_true", help="only fail if a library has no row")
    parser.add_argument("--totals", action="store_true", help="only print sums of the rows")
    flags = parser.parse_args()
    os.chdir(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    queried = _queried(LIBRARIES.format(" + ".join(flags.patterns)))
    libraries = [label for label in queried if label not in _REFUSED]
    old = parsed(Path(TABLE).read_text(encoding="utf-8"))
    if flags.missing:
        missing = {*libraries} - {*labels(name for rows in old.values() for name in rows)}
        sys.exit(f"no row in {TABLE}: {', '.join(sorted(missing))}; run {RENEW}" if missing else 0)
    rows = compiled(libraries, _bazel)
    if flags.totals:
        print(json.dumps(totals(rows.values()), indent=1))
        return
    later = {*_queried(f"attr(tags, '\\bfull\\b|manual', set({' '.join(libraries)}))")}
    everything = {name: row for tier in old.values() for name, row in tier.items()}
    worse, better = differences({name: everything[name] for name in rows if name in everything}, rows)
    print(*worse, *better, sep="\n")
    tiers: dict[str, dict[str, Row]] = {
        tier: {name: row for name, row in there.items() if name.partition(" ")[0] not in libraries}
        for tier, there in old.items()
    }
    for name, row in rows.items():
        label = name.partition(" ")[0]
        large = label.partition(":")[2].startswith(_LARGE)
        tier = ("MANUAL" if large else "FULL") if label in later else "DEFAULT"
        tiers.setdefault(tier, {})[name] = row
    Path(TABLE).write_text(rendered(tiers), encoding="utf-8")


if __name__ == "__main__":
    main()
