"""Lists all that stands in the way of compiling a model, without a BUILD file and without compiling.

    bazel run //tools:check -- saved_model/
    bazel run //tools:check -- graph.pb --dims x=32,10 --json report.json --html report.html

In your own repository, run `bazel run @rules_tfaot//tools:check`. It exits with 0 if nothing stands in the way, with 1 if
something does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tfaot.core import environment, isolate


def parser() -> argparse.ArgumentParser:
    """Returns the command's flags."""
    result = argparse.ArgumentParser(
        prog="check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("path", metavar="PATH", help="a SavedModel's folder, a GraphDef, or a Python file")
    result.add_argument("--entry_point", action="append", default=[], help="check only this one; may be repeated")
    result.add_argument(
        "--dims", action="append", default=[], metavar="INPUT=32,?,3", help="sizes that inputs leave open"
    )
    result.add_argument(
        "--tag", action="append", default=[], help="a tag of the SavedModel's meta graph; serve by default"
    )
    result.add_argument("--input", action="append", default=[], help="a feed of a GraphDef")
    result.add_argument("--output", action="append", default=[], help="a fetch of a GraphDef")
    result.add_argument("--json", metavar="FILE", help="also write the report as JSON")
    result.add_argument("--html", metavar="FILE", help="also write the report as a page")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the flags, checks the model, and prints the report. Exits with 1 if something stands in the way."""
    flags = parser().parse_args(arguments)
    here = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    environment.prepare()
    # Later, because it imports TensorFlow.
    from tfaot.preflight import page, run

    report = run.of_path(
        str(here / flags.path),
        shown=flags.path,
        tags=tuple(flags.tag) or ("serve",),
        inputs=tuple(flags.input),
        outputs=tuple(flags.output),
        entry_points=tuple(flags.entry_point),
        dims=run.parsed_dims(flags.dims),
    )
    print(report.to_text(), end="")
    if flags.json:
        (here / flags.json).write_text(report.to_json(), encoding="utf-8")
    if flags.html:
        (here / flags.html).write_text(page.html(report), encoding="utf-8")
    if not report.compiles:
        sys.exit(1)


if __name__ == "__main__":
    isolate.main(main)
