"""Runs the export stage: `export.py --model model.py … --out_graph graph.pb …`, or `export.py @params`."""

from __future__ import annotations

import argparse

from tfaot.core import dtypes, environment, isolate
from tfaot.export import flags as flag


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.export.export.Request`, and exports the model in a child process.

    It is long because each flag takes a line.
    """
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    flag.add_model(parser)
    parser.add_argument("--max_batch", type=int, default=0, help="the largest batch that the class takes")
    parser.add_argument(
        "--rows_independent", action="store_true", help="no row of a batch affects another row's results"
    )
    parser.add_argument("--weights", help="a safetensors file with values of all variables")
    parser.add_argument("--weights_dtype", default="", help="the dtype in which the weights of products are stored")
    parser.add_argument(
        "--weights_tolerance", default="", help="how much that may change outputs, relative to their largest value"
    )
    parser.add_argument("--call", action="append", help="an entry point, in the order in which the test calls them")
    parser.add_argument(
        "--cpp_class", default="", help="the generated class with its namespaces, if it isn't named later"
    )
    parser.add_argument(
        "--edge", choices=dtypes.EDGES, default="cpp", help="what uses the model: a C++ program, or another compiler"
    )
    parser.add_argument("--golden_steps", type=int, default=3, help="the number of steps that the test verifies")
    parser.add_argument("--tap", action="append", help="a pattern of nodes whose values become outputs")
    parser.add_argument("--user_config", help="a partial tf2xla config, merged into the inferred ones")
    parser.add_argument("--out_config", action="append", required=True, help="output file, one for each entry point")
    for output in ("graph", "manifest", "variables", "golden_inputs", "sources", "weights"):
        parser.add_argument(f"--out_{output}", required=True, help="output file")
    flags = parser.parse_args()

    source = flag.model_of(flags)
    environment.need_keras(legacy=source.legacy_keras)

    def work() -> None:
        environment.prepare(legacy_keras=source.legacy_keras)
        from tfaot.export.export import Request, export

        export(
            Request(
                model=source,
                cpp_class=flags.cpp_class,
                golden_steps=flags.golden_steps,
                out_graph=flags.out_graph,
                out_configs=tuple(flags.out_config),
                out_manifest=flags.out_manifest,
                out_variables=flags.out_variables,
                out_golden_inputs=flags.out_golden_inputs,
                out_sources=flags.out_sources,
                out_weights=flags.out_weights,
                entry_points=tuple(flags.entry_point or ()),
                dims=flag.dims_of(flags.dims),
                batch_sizes=tuple(flags.batch_size or ()),
                max_batch=flags.max_batch,
                rows_independent=flags.rows_independent,
                frozen=flag.frozen_of(flags),
                weights=flags.weights,
                weights_dtype=flags.weights_dtype,
                weights_tolerance=flags.weights_tolerance,
                calls=tuple(flags.call or ()),
                user_config=flags.user_config,
                edge=flags.edge,
                taps=tuple(flags.tap or ()),
            )
        )

    isolate.run_isolated(work, what=f"exporting {source.path}")


if __name__ == "__main__":
    isolate.main(main)
