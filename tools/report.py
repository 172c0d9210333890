"""Runs the report stage: `report.py --model model.py … --out_text report.txt …`, or `report.py @params`."""

from __future__ import annotations

import argparse

from tfaot.core import environment, isolate
from tfaot.export import flags as flag


def main() -> None:
    """Parses the flags, checks the model in a child process, and writes the report. A bad model isn't an error here."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    flag.add_model(parser)
    for output in ("text", "json", "html"):
        parser.add_argument(f"--out_{output}", required=True, help="output file")
    flags = parser.parse_args()
    source = flag.model_of(flags)
    environment.need_keras(legacy=source.legacy_keras)

    def work() -> None:
        environment.prepare(legacy_keras=source.legacy_keras)
        from tfaot.preflight import run
        from tfaot.preflight.check import Request

        request = Request(
            model=source,
            entry_points=tuple(own for _, own in flags.entry_point or ()),
            dims=flag.dims_of(flags.dims),
            batch_sizes=tuple(flags.batch_size or ()),
            frozen=flag.frozen_of(flags),
        )
        run.write(run.isolated(request), text=flags.out_text, json=flags.out_json, html=flags.out_html)

    isolate.run_isolated(work, what=f"checking {source.path}")


if __name__ == "__main__":
    isolate.main(main)
