"""The link stage: builds an ordinary C++ library from object files and generated sources."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//runtime:copts.bzl", "CXX", "EXACT", "FAST", "GCC", "HIDDEN", "LEVELS", "SMALL", "level_copts")
load("//runtime:exported.bzl", "either")
load(":cxx.bzl", "code_attrs", "cxx_of", "expanded")
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

visibility(["//rules/...", "//tests/..."])

def _tf_aot_link_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    compiled = ctx.attr.compiled[TfaotObjectInfo]
    sources = ctx.attr.sources[TfaotSourcesInfo]
    cc_toolchain, features = cxx_of(ctx)
    support = ctx.attr._support[CcInfo]
    kernels = {level: target[CcInfo] for level, target in zip(LEVELS, ctx.attr._kernels)}
    contexts = [support.compilation_context]

    # Optimized in every build mode. Our tests have already checked generated code for warnings.
    # The user's flags come before those that numbers depend on.
    copts = expanded(ctx, "copts")
    linkopts = expanded(ctx, "linkopts")
    hidden = HIDDEN + (GCC if cc_toolchain.compiler == "gcc" else [])
    class_, visible = [
        cc_common.compile(
            name = ctx.label.name + suffix,
            actions = ctx.actions,
            cc_toolchain = cc_toolchain,
            feature_configuration = features,
            srcs = [sources.source],
            private_hdrs = [sources.header] + compiled.headers,
            compilation_contexts = contexts,
            user_compile_flags = CXX + hidden + SMALL + copts + EXACT + more,
        )[1]
        for suffix, more in [("", []), (".visible", ["-fvisibility=default"])]
    ]

    # Only these use instructions of the kernels' own levels, where matrix products are four to five times faster. A program can
    # contain models for other CPUs, and code that it includes from elsewhere must run on all of them.
    executors = [
        cc_common.compile(
            name = "{}.{}".format(ctx.label.name, level),
            actions = ctx.actions,
            cc_toolchain = cc_toolchain,
            feature_configuration = features,
            srcs = files,
            compilation_contexts = contexts,
            user_compile_flags = CXX + hidden + FAST + copts + EXACT + level_copts(level),
        )[1]
        for level, files in compiled.sources.items()
    ]
    _, variables = cc_common.compile(
        name = ctx.label.name + ".variables",
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        srcs = [sources.variables] + ([graph.weights] if sources.embed else []),
        additional_inputs = [graph.variables] if sources.embed else [],
        user_compile_flags = ["-DTFAOT_VARIABLES=\"{}\"".format(graph.variables.path)] if sources.embed else [],
    )

    # Apart from the variables, so that new values don't assemble it.
    _, fingerprint = cc_common.compile(
        name = ctx.label.name + ".fingerprint",
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        srcs = [compiled.fingerprint_source],
    )
    objects = depset(compiled.objects + compiled.constants)
    rest = executors + [variables, cc_common.create_compilation_outputs(objects = objects, pic_objects = objects)]
    needs = [kernels[level].linking_context for level in compiled.isa] + [support.linking_context]
    common = {
        "actions": ctx.actions,
        "cc_toolchain": cc_toolchain,
        "feature_configuration": features,
    }
    _, linked = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name,
        compilation_outputs = cc_common.merge_compilation_outputs(compilation_outputs = [class_] + rest),
        disallow_dynamic_library = True,
        linking_contexts = needs,
        user_link_flags = linkopts,
        **common
    )
    library = linked.library_to_link
    files = [file for file in (library.static_library, library.pic_static_library) if file]

    # Programs contain it even if they call nothing, so that two models of one class don't link (py/tfaot/core/fingerprint.py).
    mark, marked = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name + ".fingerprint",
        alwayslink = True,
        compilation_outputs = fingerprint,
        disallow_dynamic_library = True,
        **common
    )
    mark_library = marked.library_to_link
    files += [file for file in (mark_library.static_library, mark_library.pic_static_library) if file]
    if cc_common.is_enabled(feature_configuration = features, feature_name = "supports_dynamic_linker"):
        shared = cc_common.link(
            name = ctx.label.name,
            compilation_outputs = cc_common.merge_compilation_outputs(compilation_outputs = [visible, fingerprint] + rest),
            link_deps_statically = False,
            linking_contexts = needs,
            output_type = "dynamic_library",
            user_link_flags = linkopts,
            **common
        ).library_to_link
        library = either(ctx, cc_toolchain, features, library, shared)
    own = cc_common.create_linker_input(
        libraries = depset([library]),
        owner = ctx.label,
        user_link_flags = linkopts,
    )
    linking_context = cc_common.create_linking_context(linker_inputs = depset(
        [own],
        order = "topological",
        transitive = [context.linker_inputs for context in [mark] + needs],
    ))
    public, _ = cc_common.compile(
        name = ctx.label.name + ".public",
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        public_hdrs = [sources.header],
        compilation_contexts = contexts,
    )
    groups = {
        "config": graph.configs,
        "graph": [graph.graph],
        "header": [sources.header],
        "explain": [graph.manifest, graph.graph, graph.sources, graph.variables] + compiled.fingerprints,
        "manifest": [graph.manifest] + compiled.passes + compiled.fingerprints,
        "object": compiled.objects + compiled.constants,
        "report": graph.report,
        "sources": [sources.header, sources.source, sources.variables, sources.test, sources.benchmark],
        "variables": [graph.variables],
    }
    if ctx.attr.goldens:
        groups["goldens"] = [ctx.attr.goldens[TfaotGoldensInfo].goldens]
    if ctx.attr.hlo and ctx.attr.stablehlo:
        groups |= hlo_groups(hlo = ctx.attr.hlo[TfaotHloInfo], stablehlo = ctx.attr.stablehlo[TfaotStablehloInfo])
    return [
        DefaultInfo(
            files = depset(files + [sources.header]),
            runfiles = ctx.runfiles([] if sources.embed else [graph.variables]),
        ),
        CcInfo(compilation_context = public, linking_context = linking_context),
        OutputGroupInfo(**{name: depset(group) for name, group in groups.items()}),
        graph,
        compiled,
        sources,
    ]

tf_aot_link = rule(
    implementation = _tf_aot_link_impl,
    doc = "Makes a C++ library of a compiled model. It provides CcInfo: depend on it as on any cc_library.",
    attrs = code_attrs() | {
        "goldens": attr.label(
            doc = "Target of the verify stage, for the output group of this name.",
            providers = [TfaotGoldensInfo],
        ),
        "hlo": attr.label(
            doc = "Target of `tf_aot_lower`, for the output groups hlo, optimized_hlo, and hlo_graph.",
            providers = [TfaotHloInfo],
        ),
        "stablehlo": attr.label(
            doc = "Target of `tf_aot_stablehlo`, for the output group of this name.",
            providers = [TfaotStablehloInfo],
        ),
        "_kernels": attr.label_list(default = ["//runtime:kernels_" + level for level in LEVELS]),
        "stem": attr.string(
            doc = "How output files' names start; the target's name by default.",
        ),
    },
    fragments = ["cpp", "platform"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)
