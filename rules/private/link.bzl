"""The link stage: object files and generated sources become a C++ library like any other."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain", "use_cpp_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load(":hlo.bzl", "hlo_groups")
load(
    ":providers.bzl",
    "TfaotGoldensInfo",
    "TfaotGraphInfo",
    "TfaotHloInfo",
    "TfaotObjectInfo",
    "TfaotSourcesInfo",
    "TfaotStablehloInfo",
)
load(":stage.bzl", "TOOLCHAIN_TYPE", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _runtime_sources(ctx, compiled):
    """Declares the folder of sources that include the parts of XLA's runtime that the compiled model calls.

    What it calls is known only after the compiler ran; a folder may hold any number of files, so that no part is
    built in vain. Each model compiles its parts itself, for its own CPU level.
    """
    folder = ctx.actions.declare_directory((ctx.attr.stem or ctx.label.name) + ".runtime")
    flags = ctx.actions.args()
    flags.add(compiled.header, format = "--header=%s")
    flags.add(folder.path, format = "--out_folder=%s")
    run_stage(
        ctx,
        mnemonic = "TfaotLink",
        progress_message = "Choosing the runtime of %{label}",
        flags = flags,
        inputs = [compiled.header],
        outputs = [folder],
    )
    return folder

def _tf_aot_link_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    compiled = ctx.attr.compiled[TfaotObjectInfo]
    sources = ctx.attr.sources[TfaotSourcesInfo]
    runtime = ctx.toolchains[TOOLCHAIN_TYPE].tfaot.runtime
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    support = [dep[CcInfo] for dep in ctx.attr._support]
    runtime_sources = _runtime_sources(ctx, compiled)
    contexts = [dep.compilation_context for dep in support]

    # The same level as the kernels: at the compiler's default, matrix products are four to five times slower.
    flags = [
        "-O3",
        "-march=" + compiled.cpu,
        "-std=c++17",
        "-DNDEBUG",
        "-fno-math-errno",
        "-w",  # the sources are XLA's, Eigen's, and tfcompile's
    ]
    _, built = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        srcs = [sources.source, runtime_sources],
        private_hdrs = [sources.header, compiled.header],
        compilation_contexts = contexts + [runtime.compilation_context],
        user_compile_flags = flags,
    )
    _, variables = cc_common.compile(
        name = ctx.label.name + ".variables",
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        srcs = [sources.variables],
        additional_inputs = [graph.variables],
        user_compile_flags = ["-DTFAOT_VARIABLES=\"{}\"".format(graph.variables.path)],
    )
    objects = depset([compiled.object, compiled.constants])
    outputs = cc_common.merge_compilation_outputs(compilation_outputs = [
        built,
        variables,
        cc_common.create_compilation_outputs(objects = objects, pic_objects = objects),
    ])
    linking_context, linked = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        compilation_outputs = outputs,
        linking_contexts = [runtime.linking_context] + [dep.linking_context for dep in support],
        disallow_dynamic_library = True,
    )
    public, _ = cc_common.compile(
        name = ctx.label.name + ".public",
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        public_hdrs = [sources.header],
        compilation_contexts = contexts,
    )
    library = linked.library_to_link
    files = [file for file in (library.static_library, library.pic_static_library) if file]
    groups = {
        "config": [graph.config],
        "graph": [graph.graph],
        "header": [sources.header],
        "manifest": [graph.manifest],
        "object": [compiled.object, compiled.constants],
        "sources": [sources.header, sources.source, sources.variables, sources.test, sources.benchmark],
        "variables": [graph.variables],
    }
    if ctx.attr.goldens:
        groups["goldens"] = [ctx.attr.goldens[TfaotGoldensInfo].goldens]
    if ctx.attr.hlo and ctx.attr.stablehlo:
        groups |= hlo_groups(hlo = ctx.attr.hlo[TfaotHloInfo], stablehlo = ctx.attr.stablehlo[TfaotStablehloInfo])
    return [
        DefaultInfo(files = depset(files + [sources.header])),
        CcInfo(compilation_context = public, linking_context = linking_context),
        OutputGroupInfo(**{name: depset(group) for name, group in groups.items()}),
        graph,
        compiled,
        sources,
    ]

tf_aot_link = rule(
    implementation = _tf_aot_link_impl,
    doc = "Makes a C++ library of a compiled model. It provides CcInfo: depend on it as on any cc_library.",
    attrs = {
        "compiled": attr.label(
            doc = "Target of the compile stage.",
            mandatory = True,
            providers = [TfaotObjectInfo],
        ),
        "goldens": attr.label(
            doc = "Target of the verify stage, for the output group of this name.",
            providers = [TfaotGoldensInfo],
        ),
        "graph": attr.label(
            doc = "Target of the export stage; its variables' file is shipped in the library.",
            mandatory = True,
            providers = [TfaotGraphInfo],
        ),
        "hlo": attr.label(
            doc = "Target of `tf_aot_lower`, for the output groups hlo, optimized_hlo, and hlo_graph.",
            providers = [TfaotHloInfo],
        ),
        "sources": attr.label(
            doc = "Target of the render stage.",
            mandatory = True,
            providers = [TfaotSourcesInfo],
        ),
        "stablehlo": attr.label(
            doc = "Target of `tf_aot_stablehlo`, for the output group of this name.",
            providers = [TfaotStablehloInfo],
        ),
        "stem": attr.string(
            doc = "How output files' names start; the target's name by default.",
        ),
        "_support": attr.label_list(default = [
            "//tools/runtime/tfaot:flush_denormals",
            "//tools/runtime/tfaot:view",
        ]),
    } | stage_attrs("//tools:link.py"),
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = [TOOLCHAIN_TYPE] + use_cpp_toolchain(),
)
