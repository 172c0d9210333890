"""The compile stage: runs tfcompile on an exported graph."""

load(":isa.bzl", "check_platform", "isa_attrs", "isa_of", "platform_attrs")
load(":providers.bzl", "TfaotGraphInfo", "TfaotObjectInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "functions_of", "graph_attrs", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

# A pass that raises an exception ends no user's build. In this repository, it is an error.
_TOLERANT = ["--tolerant"] if Label("//rules").workspace_name else []

def _tf_aot_compile_impl(ctx):
    platform = check_platform(ctx)
    graph = ctx.attr.graph[TfaotGraphInfo]
    isa = isa_of(ctx, platform)
    if not graph.entry_points:
        return _compile_all(ctx, graph, isa, platform)
    made = []
    all_outputs = []
    for function in functions_of(graph, ctx.attr.stem or ctx.label.name):
        files = struct(
            objects = [ctx.actions.declare_file("{}.{}.kernels.o".format(function.stem, level)) for level in isa],
            sources = [ctx.actions.declare_file("{}.{}.executor.cc".format(function.stem, level)) for level in isa],
            constants = ctx.actions.declare_file(function.stem + ".constants.o"),
            header = ctx.actions.declare_file(function.stem + ".executor.h"),
            fingerprint = ctx.actions.declare_file(function.stem + ".fingerprint.json"),
            fingerprint_source = ctx.actions.declare_file(function.stem + ".fingerprint.S"),
            hlo = ctx.actions.declare_file(function.stem + ".hlo_snapshot.pb"),
            passes = ctx.actions.declare_file(function.stem + ".passes.json"),
            plan = ctx.actions.declare_file(function.stem + ".program.json"),
        )
        outputs = files.objects + files.sources + [
            files.constants,
            files.fingerprint,
            files.fingerprint_source,
            files.header,
            files.hlo,
            files.passes,
            files.plan,
        ]
        flags = ctx.actions.args()
        flags.add(graph.manifest, format = "--manifest=%s")
        flags.add(graph.graph, format = "--graph=%s")
        flags.add(function.config, format = "--config=%s")
        flags.add(graph.sources, format = "--sources=%s")
        flags.add(function.entry_point, format = "--entry_point=%s")
        flags.add(function.batch, format = "--batch=%s")
        flags.add_all(isa, format_each = "--isa=%s")
        flags.add_all([platform.triple] if platform.triple else [], format_each = "--target_triple=%s")
        flags.add_all(ctx.attr.xla_flags, format_each = "--xla_flags=%s")
        flags.add_all(ctx.attr.passes, format_each = "--passes=%s")
        flags.add_all(_TOLERANT)
        flags.add_all(files.objects, format_each = "--out_objects=%s")
        flags.add(files.constants, format = "--out_constants=%s")
        flags.add(files.header, format = "--out_header=%s")
        flags.add_all(files.sources, format_each = "--out_sources=%s")
        flags.add(files.hlo, format = "--out_hlo=%s")
        flags.add(files.fingerprint, format = "--out_fingerprint=%s")
        flags.add(files.fingerprint_source, format = "--out_fingerprint_source=%s")
        flags.add(files.passes, format = "--out_passes=%s")
        flags.add(files.plan, format = "--out_plan=%s")
        run_stage(
            ctx,
            mnemonic = "TfaotCompile",
            progress_message = "Compiling {} of %{{label}} for {}".format(function.entry_point, ", ".join(isa)),
            flags = flags,
            inputs = [graph.manifest, graph.graph, function.config],
            for_errors = [graph.sources],
            outputs = outputs,
        )
        made.append(files)
        all_outputs += outputs
    return [
        DefaultInfo(files = depset(all_outputs)),
        TfaotObjectInfo(
            label = ctx.label,
            isa = isa,
            objects = [file for files in made for file in files.objects],
            constants = [files.constants for files in made],
            headers = [files.header for files in made],
            sources = {level: [files.sources[index] for files in made] for index, level in enumerate(isa)},
            hlo = [files.hlo for files in made],
            fingerprint_source = made[0].fingerprint_source,
            fingerprints = [files.fingerprint for files in made],
            passes = [files.passes for files in made],
            plans = [files.plan for files in made],
        ),
    ]

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
    objects = ctx.actions.declare_directory(stem + ".functions.o")
    headers = ctx.actions.declare_directory(stem + ".headers")
    sources = {level: ctx.actions.declare_directory("{}.{}.executors".format(stem, level)) for level in isa}
    descriptions = ctx.actions.declare_directory(stem + ".descriptions")
    fingerprint_source = ctx.actions.declare_file(stem + ".fingerprint.S")
    (configs,) = graph.configs
    flags = ctx.actions.args()
    flags.add(graph.manifest, format = "--manifest=%s")
    flags.add(graph.graph, format = "--graph=%s")
    flags.add_all([configs], format_each = "--configs=%s", expand_directories = False)
    flags.add(graph.sources, format = "--sources=%s")
    flags.add_all(isa, format_each = "--isa=%s")
    flags.add_all([platform.triple] if platform.triple else [], format_each = "--target_triple=%s")
    flags.add_all(ctx.attr.xla_flags, format_each = "--xla_flags=%s")
    flags.add_all(ctx.attr.passes, format_each = "--passes=%s")
    flags.add_all(_TOLERANT)
    flags.add_all([objects], format_each = "--out_objects=%s", expand_directories = False)
    flags.add_all([headers], format_each = "--out_headers=%s", expand_directories = False)
    flags.add_all(sources.values(), format_each = "--out_sources=%s", expand_directories = False)
    flags.add_all([descriptions], format_each = "--out_descriptions=%s", expand_directories = False)
    flags.add(fingerprint_source, format = "--out_fingerprint_source=%s")
    outputs = [objects, headers, descriptions, fingerprint_source] + sources.values()
    run_stage(
        ctx,
        mnemonic = "TfaotCompile",
        progress_message = "Compiling the clusters of %{{label}} for {}".format(", ".join(isa)),
        flags = flags,
        inputs = [graph.manifest, graph.graph, configs],
        for_errors = [graph.sources],
        main = ctx.file._all,
        outputs = outputs,
    )
    return [
        DefaultInfo(files = depset(outputs)),
        TfaotObjectInfo(
            label = ctx.label,
            isa = isa,
            objects = [objects],
            constants = [],
            headers = [headers],
            sources = {level: [folder] for level, folder in sources.items()},
            hlo = [],
            fingerprint_source = fingerprint_source,
            fingerprints = [],
            passes = [descriptions],
            plans = [],
        ),
    ]

tf_aot_compile = rule(
    implementation = _tf_aot_compile_impl,
    doc = "Compiles an exported graph to object files: every entry point, for every batch size and every CPU level.",
    attrs = {
        "passes": attr.string_list(
            doc = "Patterns of the passes that make the code faster (docs/reference/passes.md); `!pattern` excludes some again.",
            default = ["*"],
        ),
        "xla_flags": attr.string_list(
            doc = "Additional XLA flags, `--xla_…=…`.",
        ),
        "_all": attr.label(default = "//tools:compile_all.py", allow_single_file = [".py"], cfg = "exec"),
    } | platform_attrs() | isa_attrs() | graph_attrs() | stage_attrs("//tools:compile.py", "//py/tfaot/compile"),
    fragments = ["platform"],
    provides = [TfaotObjectInfo],
    toolchains = [TOOLCHAIN_TYPE],
)
