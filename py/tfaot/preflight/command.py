"""The command that checks a model: `main` with its arguments. It imports TensorFlow only once it needs it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tfaot.core import environment
from tfaot.export.sources.model import Model


def parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Returns the command's flags."""
    result = argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("path", metavar="PATH", nargs="?", help="a SavedModel's folder, a GraphDef, or a Python file")
    result.add_argument(
        "--entry-point", "--entry_point", action="append", default=[], help="check only this one; may be repeated"
    )
    result.add_argument(
        "--dims", action="append", default=[], metavar="INPUT=32,?,3", help="sizes that inputs leave open"
    )
    result.add_argument(
        "--tag", action="append", default=[], help="a tag of the SavedModel's meta graph; serve by default"
    )
    result.add_argument("--input", action="append", default=[], help="a feed of a GraphDef")
    result.add_argument("--output", action="append", default=[], help="a fetch of a GraphDef")
    result.add_argument("--ops", action="store_true", help="print which ops compile, as Markdown")
    result.add_argument("--json", metavar="FILE", help="also write the report as JSON")
    result.add_argument("--html", metavar="FILE", help="also write the report as a page")
    return result


def main(arguments: Sequence[str] | None = None, *, prog: str = "check", description: str | None = None) -> None:
    """Parses the flags, checks the model, and prints the report. Exits with 1 if something stands in the way.

    Args:
      arguments: the command's; by default, those of this process.
      prog: the command's name, for its help.
      description: the text of its help.
    """
    flags = parser(prog, description).parse_args(arguments)
    if bool(flags.path) == flags.ops:
        parser(prog, description).error("name one model, or --ops")
    here = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    model = str(here / (flags.path or ""))
    legacy_keras = model.endswith(".py") and os.path.exists(model) and Model(model=model).legacy_keras
    environment.prepare(legacy_keras=legacy_keras)
    # Later, because it imports TensorFlow.
    from tfaot.preflight import page, run

    if flags.ops:
        print(run.ops_page(), end="")
        if flags.json:
            (here / flags.json).write_text(run.ops_json(), encoding="utf-8")
        return
    report = run.of_path(
        model,
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
