"""Runs the cluster stage: `cluster.py --model model.py … --out_graph graph.pb …`, or `cluster.py @params`."""

from __future__ import annotations

import argparse

from tfaot.core import environment, isolate
from tfaot.export import flags as flag

_OUTPUTS = (
    "graph",
    "configs",
    "manifest",
    "variables",
    "golden_inputs",
    "sources",
    "weights",
    "saved_model",
    "uncut",
    "inputs",
    "plan",
)


_PIPELINE = ("header", "library_header", "out_header", "out_test", "out_initial", "out_values", "out_goldens")
"""The fields of `tfaot.cluster.cluster.PipelineFiles`."""


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.cluster.cluster.Request`, and cuts the model in a child process."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    flag.add_model(parser)
    parser.add_argument("--cpp_class", required=True, help="the generated class with its namespaces, a::b::Class")
    parser.add_argument("--golden_steps", type=int, default=3, help="the number of steps that the tests verify")
    parser.add_argument("--min_ops", type=int, default=3, help="the smallest number of ops that compute in a cluster")
    for output in _OUTPUTS:
        parser.add_argument(f"--out_{output}", required=True, help="output file or folder")
    for field in _PIPELINE:
        parser.add_argument(f"--pipeline_{field}", help="the same for the pipeline; all of these flags, or none")
    flags = parser.parse_args()

    source = flag.model_of(flags)
    environment.need_keras(legacy=source.legacy_keras)

    def work() -> None:
        environment.prepare(legacy_keras=source.legacy_keras)
        from tfaot.cluster.cluster import PipelineFiles, Request, cluster

        pipeline = {field: getattr(flags, f"pipeline_{field}") for field in _PIPELINE}
        cluster(
            Request(
                model=source,
                cpp_class=flags.cpp_class,
                golden_steps=flags.golden_steps,
                least=flags.min_ops,
                entry_points=tuple(own for _, own in flags.entry_point or ()),
                dims=flag.dims_of(flags.dims),
                batch_sizes=tuple(flags.batch_size or ()),
                frozen=flag.frozen_of(flags),
                pipeline=PipelineFiles(**pipeline) if flags.pipeline_header else None,
                **{f"out_{output}": getattr(flags, f"out_{output}") for output in _OUTPUTS},
            )
        )

    isolate.run_isolated(work, what=f"finding the clusters of {source.path}")


if __name__ == "__main__":
    isolate.main(main)
