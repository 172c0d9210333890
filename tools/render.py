"""Runs the render stage: `render.py --manifest model.json … --out_header model.h …`, or `render.py @params`."""

from __future__ import annotations

import argparse

from tfaot.core import isolate
from tfaot.render.render import Compiled, Request, all_in, render


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.render.render.Request`, and renders the sources."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--manifest", required=True, help="an output of the export stage")
    parser.add_argument("--header", required=True, help="the path that #include uses for the public header")
    parser.add_argument(
        "--function",
        action="append",
        nargs=3,
        default=[],
        metavar=("ENTRY_POINT", "BATCH", "HEADER"),
        help="a compiled function: its entry point, its batch size or 0, and the path that #include uses for its header",
    )
    parser.add_argument("--headers", help="the path of the folder of all functions' headers, instead of --function")
    parser.add_argument("--embed", action="store_true", help="the library contains the variables' initial values")
    parser.add_argument("--keep_denormals", action="store_true", help="a run doesn't treat denormal floats as zero")
    parser.add_argument("--sources", help="an output of the export stage: the source line of each output")
    for output in ("header", "source", "variables", "test", "benchmark"):
        parser.add_argument(f"--out_{output}", required=True, help="output file")
    parser.add_argument("--out_stub", help="output file: the class without its model")
    flags = vars(parser.parse_args())
    functions = tuple(Compiled(entry_point, int(batch), path) for entry_point, batch, path in flags.pop("function"))
    headers = flags.pop("headers")
    render(Request(functions=all_in(flags["manifest"], headers) if headers else functions, **flags))


if __name__ == "__main__":
    isolate.main(main)
