"""The render stage: generates C++ sources from the manifest."""

load(":files.bzl", "COMPILE", "RENDER", "functions_of")
load(":providers.bzl", "TfaotGraphInfo", "TfaotSourcesInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "declare", "graph_attrs", "read", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_render_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    stem = ctx.attr.stem or ctx.label.name
    folder = ctx.label.package + "/" if ctx.label.package else ""
    outputs = declare(ctx, stem, RENDER)
    run_stage(
        ctx,
        mnemonic = "TfaotRender",
        progress_message = "Rendering the C++ class of %{label}",
        request = read(graph, "render") | {
            "header": folder + stem + RENDER["header"],
            "functions": [
                "{}={}={}={}".format(
                    function.entry_point,
                    function.batch,
                    ",".join([str(bucket) for bucket in function.buckets]),
                    folder + function.stem + COMPILE["header"],
                )
                for function in functions_of(graph.entry_points, graph.batch_sizes, graph.buckets, stem)
            ],
            "headers": None if graph.entry_points else folder + stem + ".headers",
            "embed_variables": ctx.attr.embed_variables,
            "flush_denormals": ctx.attr.flush_denormals,
            "sources": graph.sources if ctx.attr.show_sources else None,
        },
        outputs = outputs,
    )
    return [
        DefaultInfo(files = depset(outputs.values())),
        OutputGroupInfo(
            test = depset([outputs["test"]]),
            benchmark = depset([outputs["benchmark"]]),
            stub_header = depset([outputs["header"]]),
            stub_source = depset([outputs["stub"]]),
        ),
        TfaotSourcesInfo(
            label = ctx.label,
            embed = ctx.attr.embed_variables,
            **outputs
        ),
    ]

tf_aot_render = rule(
    implementation = _tf_aot_render_impl,
    doc = "Renders the C++ class of an exported model, its test, and its benchmark, without waiting for the compiler.",
    attrs = {
        "embed_variables": attr.bool(
            doc = "As in `tf_aot_library`.",
            default = True,
        ),
        "flush_denormals": attr.bool(
            doc = "As in `tf_aot_library`.",
            default = True,
        ),
        "show_sources": attr.bool(
            doc = "Whether the test names the line of the user's code that created an output.",
        ),
    } | graph_attrs() | stage_attrs("//tools:render.py", "//py/tfaot/render"),
    provides = [TfaotSourcesInfo],
    toolchains = [TOOLCHAIN_TYPE],
)
