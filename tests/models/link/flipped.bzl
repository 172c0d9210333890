"""An exported graph with another variables file, to break a model on purpose."""

load("//rules:defs.bzl", "TfaotGraphInfo")

def _with_variables_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    return [
        DefaultInfo(files = depset([ctx.file.variables])),
        TfaotGraphInfo(
            label = ctx.label,
            batch_sizes = graph.batch_sizes,
            configs = graph.configs,
            entry_points = graph.entry_points,
            golden_inputs = graph.golden_inputs,
            graph = graph.graph,
            manifest = graph.manifest,
            sources = graph.sources,
            variables = ctx.file.variables,
        ),
    ]

with_variables = rule(
    implementation = _with_variables_impl,
    doc = "Passes an exported graph on, with another file of initial values.",
    attrs = {
        "graph": attr.label(providers = [TfaotGraphInfo], doc = "The exported graph."),
        "variables": attr.label(allow_single_file = True, doc = "The file to use instead."),
    },
)
