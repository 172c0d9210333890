"""Runs the export stage: `export.py --model model.py … --out_graph graph.pb …`, or `export.py @params`."""

from __future__ import annotations

import argparse

from tfaot import dtypes, environment, isolate


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.export.export.Request`, and exports in a child process."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--model", required=True, help="the model's Python file")
    parser.add_argument("--cpp_class", required=True, help="the generated class with its namespaces, a::b::Class")
    parser.add_argument("--edge", choices=dtypes.EDGES, default="cpp", help="what the model's edge is met by")
    parser.add_argument("--golden_steps", type=int, default=3, help="how many steps the test verifies")
    parser.add_argument("--user_config", help="a partial tf2xla config, merged into the inferred one")
    for output in ("graph", "config", "manifest", "variables", "golden_inputs", "sources"):
        parser.add_argument(f"--out_{output}", required=True, help="output file")
    flags = parser.parse_args()

    def work() -> None:
        environment.prepare()
        from tfaot.export.export import Request, export

        export(Request(**vars(flags)))

    isolate.run_isolated(work, what=f"exporting {flags.model}")


if __name__ == "__main__":
    isolate.main(main)
