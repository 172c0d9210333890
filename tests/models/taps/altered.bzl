"""An exported model with another graph, to change only the compiler's input on purpose."""

load("//rules:defs.bzl", "TfaotGraphInfo")

def _with_graph_impl(ctx):
    exported = ctx.attr.exported[TfaotGraphInfo]
    return [
        DefaultInfo(files = depset([ctx.file.graph])),
        TfaotGraphInfo(
            label = ctx.label,
            batch_sizes = exported.batch_sizes,
            configs = exported.configs,
            entry_points = exported.entry_points,
            golden_inputs = exported.golden_inputs,
            graph = ctx.file.graph,
            manifest = exported.manifest,
            sources = exported.sources,
            variables = exported.variables,
        ),
    ]

with_graph = rule(
    implementation = _with_graph_impl,
    doc = "Passes an exported model on, with another graph.",
    attrs = {
        "exported": attr.label(providers = [TfaotGraphInfo], doc = "The exported model."),
        "graph": attr.label(allow_single_file = True, doc = "The graph to use instead."),
    },
)
