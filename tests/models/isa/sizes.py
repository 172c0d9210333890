"""Prints the sizes of stripped programs by their models' CPU levels: the table of docs/guide/cpu_levels.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile


def main() -> None:
    """Strips copies of the programs, given as `MODEL:LEVELS:PATH`, with fewer levels of a model first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="+", metavar="MODEL:LEVELS:PATH", help="what bazel run passes")
    programs = parser.parse_args().programs
    print("| model | levels | program, bytes | more |\n|---|---|---|---|")
    before: dict[str, int] = {}
    for argument in programs:
        model, levels, program = argument.split(":")
        with tempfile.TemporaryDirectory() as folder:
            stripped = os.path.join(folder, "program")
            subprocess.run(["strip", "-o", stripped, program], check=True)
            size = os.path.getsize(stripped)
        more = f"{size - before[model]:,}" if model in before else ""
        print(f"| {model} | {levels.replace(',', ', ')} | {size:,} | {more} |")
        before[model] = size


if __name__ == "__main__":
    main()
