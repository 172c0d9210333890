"""The package: an archive with a model for programs that Bazel doesn't build."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//runtime:package.bzl", "PACKAGE_HEADERS", "PACKAGE_SOURCES", "package_copts")
load(":providers.bzl", "TfaotGraphInfo", "TfaotObjectInfo", "TfaotSourcesInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "functions_of", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _objects(ctx, cc_toolchain, features):
    """Compiles the C++ of a package.

    Args:
      ctx: the rule's context
      cc_toolchain: (CcToolchainInfo) the C++ toolchain
      features: (FeatureConfiguration) of the toolchain

    Returns:
      (dict[str, File]) all objects, by their names in the library. `py/tfaot/command/build.py` gives them the same names.
    """
    graph = ctx.attr.graph[TfaotGraphInfo]
    compiled = ctx.attr.compiled[TfaotObjectInfo]
    sources = ctx.attr.sources[TfaotSourcesInfo]
    stem = ctx.attr.stem
    functions = functions_of(graph, stem)
    support = ctx.attr._support[CcInfo].compilation_context
    if "TFAOT_CBLAS" in support.defines.to_list():
        fail(("{}: this build uses another library for matrix products, which a package doesn't contain. " +
              "To do: build the package without --@rules_tfaot//rules:cblas.").format(ctx.label))
    headers = [file for file in ctx.files._runtime if file.extension == "h"]
    copts = [ctx.expand_make_variables("copts", flag, {}) for flag in ctx.attr.copts]
    plain = package_copts(copts)
    made = {}

    def add(name, source, flags, hdrs = [], files = []):
        _, outputs = cc_common.compile(
            name = "{}.{}".format(ctx.label.name, name.removesuffix(".o")),
            actions = ctx.actions,
            additional_inputs = files,
            cc_toolchain = cc_toolchain,
            compilation_contexts = [support],
            disallow_nopic_outputs = True,
            feature_configuration = features,
            private_hdrs = hdrs,
            srcs = [source],
            user_compile_flags = flags,
        )
        made[name] = (outputs.pic_objects + outputs.objects)[0]

    add(stem + ".o", sources.source, plain, hdrs = [sources.header] + compiled.headers)
    for level, files in compiled.sources.items():
        for function, file in zip(functions, files):
            add("{}.{}.executor.o".format(function.stem, level), file, package_copts(copts, level), hdrs = compiled.headers)
    variables = ["-DTFAOT_VARIABLES=\"{}\"".format(graph.variables.path)] if sources.embed else []
    add(stem + ".variables.o", sources.variables, plain + variables, files = [graph.variables] if sources.embed else [])
    if sources.embed:
        add(stem + ".weights.o", graph.weights, plain)
    add(stem + ".fingerprint.o", compiled.fingerprint_source, plain)
    for path in PACKAGE_SOURCES:
        (source,) = [file for file in ctx.files._runtime if file.path.endswith("runtime/" + path)]
        add(path.removesuffix(".cc").replace("/", ".") + ".o", source, package_copts(), hdrs = headers)
    for index, function in enumerate(functions):
        made[function.stem + ".constants.o"] = compiled.constants[index]
        for position, level in enumerate(compiled.isa):
            made["{}.{}.kernels.o".format(function.stem, level)] = compiled.objects[index * len(compiled.isa) + position]
    return made

def _tf_aot_package_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    compiled = ctx.attr.compiled[TfaotObjectInfo]
    sources = ctx.attr.sources[TfaotSourcesInfo]
    stem = ctx.attr.stem
    cc_toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    archive = ctx.actions.declare_file(stem + ".package.tar.gz")
    header = (ctx.label.package + "/" if ctx.label.package else "") + stem + ".h"
    files = {"model.json": graph.manifest, stem + ".variables.safetensors": graph.variables}
    for index, function in enumerate(functions_of(graph, stem)):
        files[function.stem + ".fingerprint.json"] = compiled.fingerprints[index]
        files[function.stem + ".passes.json"] = compiled.passes[index]
    headers = {header: sources.header}
    for path in PACKAGE_HEADERS:
        (headers[path],) = [file for file in ctx.files._runtime if file.path.endswith("runtime/" + path)]
    groups = {
        "include": headers,
        "object": _objects(ctx, cc_toolchain, features),
        "file": files,
        "notice": {file.basename: file for file in ctx.files._notices},
    }
    flags = ctx.actions.args()
    flags.add(stem, format = "--name=%s")
    flags.add(header, format = "--header=%s")
    for group, named in groups.items():
        for name, file in named.items():
            flags.add(file, format = "--{}={}=%s".format(group, name))
    flags.add_all([ctx.expand_make_variables("linkopts", flag, {}) for flag in ctx.attr.linkopts], format_each = "--linkopt=%s")
    flags.add(
        cc_common.get_tool_for_action(
            action_name = ACTION_NAMES.cpp_link_static_library,
            feature_configuration = features,
        ),
        format = "--ar=%s",
    )
    flags.add(archive, format = "--out_archive=%s")
    run_stage(
        ctx,
        mnemonic = "TfaotPackage",
        progress_message = "Packing %{label}",
        flags = flags,
        inputs = [file for named in groups.values() for file in named.values()],
        outputs = [archive],
        programs = cc_toolchain.all_files,
    )
    return [DefaultInfo(files = depset([archive]))]

tf_aot_package = rule(
    implementation = _tf_aot_package_impl,
    doc = "Packs a model for programs that Bazel doesn't build: headers, a static library, weights, and descriptions for CMake and " +
          "pkg-config, in STEM.package.tar.gz.",
    attrs = {
        "compiled": attr.label(
            doc = "Target of the compile stage.",
            mandatory = True,
            providers = [TfaotObjectInfo],
        ),
        "copts": attr.string_list(
            doc = "Additional flags for the C++ sources. Make variables are expanded. The flags that guarantee numbers and CPU " +
                  "levels come later.",
        ),
        "graph": attr.label(
            doc = "Target of the export stage.",
            mandatory = True,
            providers = [TfaotGraphInfo],
        ),
        "linkopts": attr.string_list(
            doc = "Flags for linking programs that use the package. Make variables are expanded.",
        ),
        "sources": attr.label(
            doc = "Target of the render stage.",
            mandatory = True,
            providers = [TfaotSourcesInfo],
        ),
        "stem": attr.string(
            doc = "The package's name, with which the archive's name starts.",
            mandatory = True,
        ),
        "_notices": attr.label_list(default = ["//:LICENSE", "//:NOTICE"], allow_files = True),
        "_runtime": attr.label(default = "//runtime:files"),
        "_support": attr.label(default = "//runtime:model"),
    } | stage_attrs("//tools:package.py", "//py/tfaot/pack"),
    fragments = ["cpp", "platform"],
    toolchains = [TOOLCHAIN_TYPE] + use_cc_toolchain(),
)
