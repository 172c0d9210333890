"""The render stage: generates C++ sources from the manifest."""

load(":providers.bzl", "TfaotGraphInfo", "TfaotSourcesInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "functions_of", "graph_attrs", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_render_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    manifest = graph.manifest
    stem = ctx.attr.stem or ctx.label.name
    folder = ctx.label.package + "/" if ctx.label.package else ""
    header = ctx.actions.declare_file(stem + ".h")
    source = ctx.actions.declare_file(stem + ".cc")
    variables = ctx.actions.declare_file(stem + ".variables.S")
    test = ctx.actions.declare_file(stem + "_test.cc")
    benchmark = ctx.actions.declare_file(stem + "_benchmark.cc")
    stub = ctx.actions.declare_file(stem + ".stub.cc")

    flags = ctx.actions.args()
    flags.add(manifest, format = "--manifest=%s")
    flags.add(folder + stem + ".h", format = "--header=%s")
    for function in functions_of(graph, stem):
        flags.add_all([
            "--function",
            function.entry_point,
            str(function.batch),
            folder + function.stem + ".executor.h",
        ])
    if not graph.entry_points:
        flags.add(folder + stem + ".headers", format = "--headers=%s")
    if ctx.attr.embed_variables:
        flags.add("--embed")
    if not ctx.attr.flush_denormals:
        flags.add("--keep_denormals")
    inputs = [manifest]
    if ctx.attr.show_sources:
        flags.add(graph.sources, format = "--sources=%s")
        inputs.append(graph.sources)
    flags.add(header, format = "--out_header=%s")
    flags.add(source, format = "--out_source=%s")
    flags.add(variables, format = "--out_variables=%s")
    flags.add(test, format = "--out_test=%s")
    flags.add(benchmark, format = "--out_benchmark=%s")
    flags.add(stub, format = "--out_stub=%s")
    outputs = [header, source, variables, test, benchmark, stub]
    run_stage(
        ctx,
        mnemonic = "TfaotRender",
        progress_message = "Rendering the C++ class of %{label}",
        flags = flags,
        inputs = inputs,
        outputs = outputs,
    )
    return [
        DefaultInfo(files = depset(outputs)),
        OutputGroupInfo(test = depset([test]), benchmark = depset([benchmark]), stub_header = depset([header]), stub_source = depset([stub])),
        TfaotSourcesInfo(
            label = ctx.label,
            header = header,
            source = source,
            variables = variables,
            embed = ctx.attr.embed_variables,
            test = test,
            benchmark = benchmark,
            stub = stub,
        ),
    ]

tf_aot_render = rule(
    implementation = _tf_aot_render_impl,
    doc = "Renders the C++ class of an exported model, its test, and its benchmark, without waiting for the compiler.",
    attrs = {
        "embed_variables": attr.bool(
            doc = "Whether the library contains the variables' initial values. If False, the program loads them from a file.",
            default = True,
        ),
        "flush_denormals": attr.bool(
            doc = "Whether a run treats denormal floats as zero, as TensorFlow does. If False, the caller's mode applies.",
            default = True,
        ),
        "show_sources": attr.bool(
            doc = "Whether the test names the line of the user's code that created an output.",
        ),
    } | graph_attrs() | stage_attrs("//tools:render.py", "//py/tfaot/render"),
    provides = [TfaotSourcesInfo],
    toolchains = [TOOLCHAIN_TYPE],
)
