"""Runs the export stage: `export.py --model model.py … --out_graph graph.pb …`, or `export.py @params`."""

from __future__ import annotations

import argparse

from tfaot.core import dtypes, environment, isolate


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.export.export.Request`, and exports the model in a child process.

    It is long because each flag takes a line.
    """
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model", help="the model's Python file")
    model.add_argument("--saved_model", help="the model's folder")
    model.add_argument("--graph", help="the model's GraphDef, .pb or .pbtxt")
    model.add_argument("--stablehlo", help="the model's StableHLO")
    parser.add_argument("--signature", action="append", type=_pair, help="PARAMETER=dtype[sizes] of a Python file")
    parser.add_argument("--saved_model_tag", action="append", help="a tag of the meta graph in a SavedModel")
    parser.add_argument("--graph_config", help="a complete tf2xla config of --graph")
    parser.add_argument("--input", action="append", help="a feed of --graph")
    parser.add_argument("--output", action="append", help="a fetch of --graph")
    parser.add_argument("--checkpoint", help="values of the variables of --graph")
    parser.add_argument("--saver", help="a SaverDef that describes how to restore --checkpoint")
    parser.add_argument("--debug_info", help="a GraphDebugInfo of --graph")
    parser.add_argument("--entry_point", action="append", type=_pair, help="C++ name=the model's own name")
    parser.add_argument(
        "--dims", action="append", type=_pair, help="INPUT=32,?,3: sizes for the dimensions that the model leaves open"
    )
    parser.add_argument("--batch_size", action="append", type=int, help="a batch size to compile for")
    parser.add_argument("--max_batch", type=int, default=0, help="the largest batch that the class takes")
    parser.add_argument(
        "--rows_independent", action="store_true", help="no row of a batch affects another row's results"
    )
    parser.add_argument("--freeze", choices=("default", "listed"), default="default", help="what --frozen means")
    parser.add_argument("--frozen", action="append", help="a pattern of variables that become constants")
    parser.add_argument("--weights", help="a safetensors file with values of all variables")
    parser.add_argument("--call", action="append", help="an entry point, in the order in which the test calls them")
    parser.add_argument("--cpp_class", required=True, help="the generated class with its namespaces, a::b::Class")
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

    from tfaot.export.sources.model import Model

    source = Model(
        model=flags.model,
        signature=dict(flags.signature or ()),
        saved_model=flags.saved_model,
        saved_model_tags=tuple(flags.saved_model_tag or ("serve",)),
        graph=flags.graph,
        graph_config=flags.graph_config,
        inputs=tuple(flags.input or ()),
        outputs=tuple(flags.output or ()),
        checkpoint=flags.checkpoint,
        saver=flags.saver,
        debug_info=flags.debug_info,
        stablehlo=flags.stablehlo,
    )

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
                dims={
                    name: tuple(_size(size) for size in sizes.split(",") if size) for name, sizes in flags.dims or ()
                },
                batch_sizes=tuple(flags.batch_size or ()),
                max_batch=flags.max_batch,
                rows_independent=flags.rows_independent,
                frozen=None if flags.freeze == "default" else tuple(flags.frozen or ()),
                weights=flags.weights,
                calls=tuple(flags.call or ()),
                user_config=flags.user_config,
                edge=flags.edge,
                taps=tuple(flags.tap or ()),
            )
        )

    isolate.run_isolated(work, what=f"exporting {source.path}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} isn't NAME=VALUE")
    return name, value


def _size(text: str) -> int | None:
    return None if text == "?" else int(text)


if __name__ == "__main__":
    isolate.main(main)
