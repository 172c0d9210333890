"""The package: an archive with a model for programs that Bazel doesn't build."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//runtime:package.bzl", "PACKAGE_HEADERS", "PACKAGE_INTERFACE", "PACKAGE_LINK", "PACKAGE_SOURCES", "interface_copts", "package_copts")
load(":cxx.bzl", "code_attrs", "cxx_of", "expanded")
load(":providers.bzl", "TfaotGraphInfo", "TfaotObjectInfo", "TfaotSourcesInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "functions_of", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _runtime(ctx, path):
    """Returns a file of the runtime."""
    (found,) = [file for file in ctx.files._runtime if file.path.endswith("runtime/" + path)]
    return found

def _objects(ctx, header, cc_toolchain, features):
    """Compiles the C++ of a package.

    Args:
      ctx: the rule's context
      header: (str) the path by which programs include the class's header
      cc_toolchain: (CcToolchainInfo) the C++ toolchain
      features: (FeatureConfiguration) of the toolchain

    Returns:
      (dict[str, File]) all objects, by their names in the library, and `interface.o`, which isn't a part of the static one.
        `py/tfaot/command/build.py` gives them the same names.
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
    copts = expanded(ctx, "copts")
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
    add(
        "interface.o",
        _runtime(ctx, PACKAGE_INTERFACE),
        interface_copts(graph.cpp_class, header),
        hdrs = headers + [sources.header],
    )
    for path in PACKAGE_SOURCES:
        source = _runtime(ctx, path)
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
    cc_toolchain, features = cxx_of(ctx)
    archive = ctx.actions.declare_file(stem + ".package.tar.gz")
    header = (ctx.label.package + "/" if ctx.label.package else "") + stem + ".h"
    files = {"model.json": graph.manifest, stem + ".variables.safetensors": graph.variables}
    for index, function in enumerate(functions_of(graph, stem)):
        files[function.stem + ".fingerprint.json"] = compiled.fingerprints[index]
        files[function.stem + ".passes.json"] = compiled.passes[index]
    headers = {header: sources.header}
    for path in PACKAGE_HEADERS:
        headers[path] = _runtime(ctx, path)
    objects = _objects(ctx, header, cc_toolchain, features)
    interface = objects.pop("interface.o")
    groups = {
        "include": headers,
        "object": objects,
        "file": files,
        "notice": {file.basename: file for file in ctx.files._notices},
    }
    flags = ctx.actions.args()
    flags.add(stem, format = "--name=%s")
    flags.add(header, format = "--header=%s")
    for group, named in groups.items():
        for name, file in named.items():
            flags.add(file, format = "--{}={}=%s".format(group, name))
    flags.add_all(expanded(ctx, "linkopts"), format_each = "--linkopt=%s")
    flags.add(
        cc_common.get_tool_for_action(
            action_name = ACTION_NAMES.cpp_link_static_library,
            feature_configuration = features,
        ),
        format = "--ar=%s",
    )
    linker = cc_common.get_tool_for_action(
        action_name = ACTION_NAMES.cpp_link_dynamic_library,
        feature_configuration = features,
    )
    sysroot = ["--sysroot=" + cc_toolchain.sysroot] if cc_toolchain.sysroot else []
    flags.add(interface, format = "--interface=%s")
    flags.add_all([linker] + PACKAGE_LINK + sysroot, format_each = "--link=%s")
    flags.add(archive, format = "--out_archive=%s")
    run_stage(
        ctx,
        mnemonic = "TfaotPackage",
        progress_message = "Packing %{label}",
        flags = flags,
        inputs = [interface] + [file for named in groups.values() for file in named.values()],
        outputs = [archive],
        programs = cc_toolchain.all_files,
    )
    return [DefaultInfo(files = depset([archive]))]

tf_aot_package = rule(
    implementation = _tf_aot_package_impl,
    doc = "Packs a model for programs that Bazel doesn't build: headers, a static library, weights, and descriptions for CMake and " +
          "pkg-config, in STEM.package.tar.gz.",
    attrs = {
        "stem": attr.string(
            doc = "The package's name, with which the archive's name starts.",
            mandatory = True,
        ),
        "_notices": attr.label_list(default = ["//:LICENSE", "//:NOTICE"], allow_files = True),
        "_runtime": attr.label(default = "//runtime:files"),
    } | code_attrs() | stage_attrs("//tools:package.py", "//py/tfaot/pack"),
    fragments = ["cpp", "platform"],
    toolchains = [TOOLCHAIN_TYPE] + use_cc_toolchain(),
)
