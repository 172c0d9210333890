"""The compile stage: runs tfcompile on an exported graph."""

load(":files.bzl", "COMPILE", "COMPILE_LEVEL", "entries_of", "functions_of")
load(":isa.bzl", "check_platform", "isa_attrs", "isa_of", "platform_attrs")
load(":providers.bzl", "TfaotGraphInfo", "TfaotObjectInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "declare", "graph_attrs", "read", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

# A pass that raises an exception ends no user's build. In this repository, it is an error.
_TOLERANT = bool(Label("//rules").workspace_name)

def _tf_aot_compile_impl(ctx):
    platform = check_platform(ctx)
    graph = ctx.attr.graph[TfaotGraphInfo]
    isa = isa_of(ctx, platform)
    if not graph.entry_points:
        return _compile_all(ctx, graph, isa, platform)
    made = []
    stem = ctx.attr.stem or ctx.label.name
    configs = {entry.entry_point: config for entry, config in zip(entries_of(graph.entry_points, stem), graph.configs)}
    for function in functions_of(graph.entry_points, graph.batch_sizes, graph.buckets, stem):
        levels = [declare(ctx, "{}.{}".format(function.stem, level), COMPILE_LEVEL) for level in isa]
        files = declare(ctx, function.stem, COMPILE) | {name: [files[name] for files in levels] for name in COMPILE_LEVEL}
        run_stage(
            ctx,
            mnemonic = "TfaotCompile",
            progress_message = "Compiling {} of %{{label}} for {}".format(function.entry_point, ", ".join(isa)),
            request = _request(ctx, graph, isa, platform) | {
                "config": configs[function.entry_point],
                "entry_point": function.entry_point,
                "batch": function.batch,
                "buckets": function.buckets,
            },
            for_errors = [graph.sources],
            outputs = files,
        )
        made.append(files)
    return [
        DefaultInfo(files = depset(
            [file for files in made for name in COMPILE for file in [files[name]]] +
            [file for files in made for name in COMPILE_LEVEL for file in files[name]],
        )),
        TfaotObjectInfo(
            label = ctx.label,
            isa = isa,
            objects = [file for files in made for file in files["objects"]],
            constants = [files["constants"] for files in made],
            headers = [files["header"] for files in made],
            sources = {level: [files["sources"][index] for files in made] for index, level in enumerate(isa)},
            hlo = [files["hlo"] for files in made],
            fingerprint_source = made[0]["fingerprint_source"],
            fingerprints = [files["fingerprint"] for files in made],
            passes = [files["passes"] for files in made],
            programs = [files["program"] for files in made],
        ),
    ]

def _request(ctx, graph, isa, platform):
    """Returns the request of all functions."""
    return read(graph, "compile") | {
        "cpu": isa,
        "target_triple": platform.triple,
        "xla_flags": ctx.attr.xla_flags,
        "passes": ctx.attr.passes,
        "tolerant": _TOLERANT,
    }

def _compile_all(ctx, graph, isa, platform):
    """Compiles the functions of a graph whose entry points only its manifest names, in one action, into folders.

    Args:
      ctx: the rule's context
      graph: (TfaotGraphInfo) output of the cluster stage
      isa: (list[str]) CPU levels
      platform: (struct) the entry of `PLATFORMS`

    Returns:
      (list[Provider]) of the rule
    """
    stem = ctx.attr.stem or ctx.label.name

    # Bazel's functions for C++ tell what a folder contains by its extension.
    folders = declare(ctx, stem, {"descriptions": ".descriptions", "headers": ".headers", "objects": ".functions.o"}, folder = True)
    sources = declare(ctx, stem, {level: ".{}.executors".format(level) for level in isa}, folder = True)
    fingerprint_source = ctx.actions.declare_file(stem + COMPILE["fingerprint_source"])
    run_stage(
        ctx,
        mnemonic = "TfaotCompile",
        progress_message = "Compiling the clusters of %{{label}} for {}".format(", ".join(isa)),
        request = _request(ctx, graph, isa, platform) | {"configs": graph.configs[0]},
        for_errors = [graph.sources],
        main = ctx.file._all,
        outputs = folders | {"fingerprint_source": fingerprint_source, "sources": sources.values()},
    )
    return [
        DefaultInfo(files = depset(folders.values() + sources.values() + [fingerprint_source])),
        TfaotObjectInfo(
            label = ctx.label,
            isa = isa,
            objects = [folders["objects"]],
            constants = [],
            headers = [folders["headers"]],
            sources = {level: [folder] for level, folder in sources.items()},
            hlo = [],
            fingerprint_source = fingerprint_source,
            fingerprints = [],
            passes = [folders["descriptions"]],
            programs = [],
        ),
    ]

tf_aot_compile = rule(
    implementation = _tf_aot_compile_impl,
    doc = "Compiles an exported graph to object files: every entry point, for every batch size, bucket, and CPU level.",
    attrs = {
        "passes": attr.string_list(
            doc = "As in `tf_aot_library`.",
            default = ["*"],
        ),
        "xla_flags": attr.string_list(
            doc = "As in `tf_aot_library`.",
        ),
        "_all": attr.label(default = "//tools:compile_all.py", allow_single_file = [".py"], cfg = "exec"),
    } | platform_attrs() | isa_attrs() | graph_attrs() | stage_attrs("//tools:compile.py", "//py/tfaot/compile"),
    fragments = ["platform"],
    provides = [TfaotObjectInfo],
    toolchains = [TOOLCHAIN_TYPE],
)
