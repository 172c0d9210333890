"""An exported model with other files, to break one link of the chain on purpose."""

load("//rules:defs.bzl", "TfaotGraphInfo")

visibility("//tests/models/...")

def _with_files_impl(ctx):
    exported = ctx.attr.exported[TfaotGraphInfo]
    return [
        DefaultInfo(files = depset(ctx.files.graph + ctx.files.variables)),
        TfaotGraphInfo(
            label = ctx.label,
            batch_sizes = exported.batch_sizes,
            buckets = exported.buckets,
            configs = exported.configs,
            cpp_class = exported.cpp_class,
            entry_points = exported.entry_points,
            golden_inputs = exported.golden_inputs,
            graph = ctx.file.graph or exported.graph,
            manifest = exported.manifest,
            own_names = exported.own_names,
            program = exported.program,
            report = exported.report,
            sources = exported.sources,
            variables = ctx.file.variables or exported.variables,
            weights = exported.weights,
        ),
    ]

with_files = rule(
    implementation = _with_files_impl,
    doc = "Passes an exported model on, with other files.",
    attrs = {
        "exported": attr.label(providers = [TfaotGraphInfo], doc = "The exported model."),
        "graph": attr.label(allow_single_file = True, doc = "The graph to use instead."),
        "variables": attr.label(allow_single_file = True, doc = "The initial values to use instead."),
    },
)
