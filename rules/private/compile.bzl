"""The compile stage: tfcompile on an exported graph."""

load(":providers.bzl", "TfaotGraphInfo", "TfaotObjectInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "graph_attrs", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_compile_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    stem = ctx.attr.stem or ctx.label.name
    object = ctx.actions.declare_file(stem + ".kernels.o")
    constants = ctx.actions.declare_file(stem + ".constants.o")
    header = ctx.actions.declare_file(stem + ".tfcompile.h")
    hlo = ctx.actions.declare_file(stem + ".hlo_snapshot.pb")

    flags = ctx.actions.args()
    flags.add(graph.manifest, format = "--manifest=%s")
    flags.add(graph.graph, format = "--graph=%s")
    flags.add(graph.config, format = "--config=%s")
    flags.add(graph.sources, format = "--sources=%s")
    flags.add(ctx.attr.cpu, format = "--cpu=%s")
    flags.add_all(ctx.attr.xla_flags, format_each = "--xla_flags=%s")
    flags.add(object, format = "--out_object=%s")
    flags.add(constants, format = "--out_constants=%s")
    flags.add(header, format = "--out_header=%s")
    flags.add(hlo, format = "--out_hlo=%s")
    outputs = [object, constants, header, hlo]
    run_stage(
        ctx,
        mnemonic = "TfaotCompile",
        progress_message = "Compiling the graph of %{label} for " + ctx.attr.cpu,
        flags = flags,
        inputs = [graph.manifest, graph.graph, graph.config, graph.sources],
        outputs = outputs,
    )
    return [
        DefaultInfo(files = depset(outputs)),
        TfaotObjectInfo(
            label = ctx.label,
            cpu = ctx.attr.cpu,
            object = object,
            constants = constants,
            header = header,
            hlo = hlo,
        ),
    ]

tf_aot_compile = rule(
    implementation = _tf_aot_compile_impl,
    doc = "Compiles an exported graph to object files.",
    attrs = {
        "cpu": attr.string(
            doc = "x86-64 psABI level to compile for: x86-64, x86-64-v2, x86-64-v3, or x86-64-v4. Never the building " +
                  "machine's own CPU: caches are shared.",
            default = "x86-64-v3",
        ),
        "xla_flags": attr.string_list(
            doc = "Further flags of XLA, `--xla_…=…`.",
        ),
    } | graph_attrs() | stage_attrs("//tools:compile.py"),
    provides = [TfaotObjectInfo],
    toolchains = [TOOLCHAIN_TYPE],
)
