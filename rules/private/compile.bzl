"""The compile stage: tfcompile on an exported graph."""

load(":providers.bzl", "TfaotGraphInfo", "TfaotObjectInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "functions_of", "graph_attrs", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_compile_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    made = []
    for function in functions_of(graph, ctx.attr.stem or ctx.label.name):
        files = struct(
            object = ctx.actions.declare_file(function.stem + ".kernels.o"),
            constants = ctx.actions.declare_file(function.stem + ".constants.o"),
            header = ctx.actions.declare_file(function.stem + ".executor.h"),
            source = ctx.actions.declare_file(function.stem + ".executor.cc"),
            hlo = ctx.actions.declare_file(function.stem + ".hlo_snapshot.pb"),
        )
        flags = ctx.actions.args()
        flags.add(graph.manifest, format = "--manifest=%s")
        flags.add(graph.graph, format = "--graph=%s")
        flags.add(function.config, format = "--config=%s")
        flags.add(graph.sources, format = "--sources=%s")
        flags.add(function.entry_point, format = "--entry_point=%s")
        flags.add(function.batch, format = "--batch=%s")
        flags.add(ctx.attr.cpu, format = "--cpu=%s")
        flags.add_all(ctx.attr.xla_flags, format_each = "--xla_flags=%s")
        flags.add(files.object, format = "--out_object=%s")
        flags.add(files.constants, format = "--out_constants=%s")
        flags.add(files.header, format = "--out_header=%s")
        flags.add(files.source, format = "--out_source=%s")
        flags.add(files.hlo, format = "--out_hlo=%s")
        run_stage(
            ctx,
            mnemonic = "TfaotCompile",
            progress_message = "Compiling {} of %{{label}} for {}".format(function.entry_point, ctx.attr.cpu),
            flags = flags,
            inputs = [graph.manifest, graph.graph, function.config, graph.sources],
            outputs = [files.object, files.constants, files.header, files.source, files.hlo],
        )
        made.append(files)
    return [
        DefaultInfo(files = depset([file for f in made for file in (f.object, f.constants, f.header, f.source, f.hlo)])),
        TfaotObjectInfo(
            label = ctx.label,
            cpu = ctx.attr.cpu,
            objects = [files.object for files in made],
            constants = [files.constants for files in made],
            headers = [files.header for files in made],
            sources = [files.source for files in made],
            hlo = [files.hlo for files in made],
        ),
    ]

tf_aot_compile = rule(
    implementation = _tf_aot_compile_impl,
    doc = "Compiles an exported graph to object files: every entry point, for every size of batch.",
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
