"""The package: an archive with a model for programs that Bazel doesn't build."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//runtime:copts.bzl", "LEVELS")
load(
    "//runtime:package.bzl",
    "PACKAGE_HEADERS",
    "PACKAGE_INTERFACE",
    "PACKAGE_KERNELS",
    "PACKAGE_LINK",
    "PACKAGE_SOURCES",
    "interface_copts",
    "package_copts",
)
load(":cxx.bzl", "code_attrs", "cxx_of", "expanded")
load(":providers.bzl", "TfaotGraphInfo", "TfaotObjectInfo", "TfaotSourcesInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "functions_of", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

TfaotPackageRuntimeInfo = provider(
    doc = "Objects that the packages of all models share.",
    fields = {
        "kernels": "(dict[str, dict[str, File]]) by CPU level, those of `PACKAGE_KERNELS`, by their sources' paths",
        "objects": "(dict[str, File]) those of `PACKAGE_SOURCES`, by their names in a package's library",
    },
)

def _runtime(ctx, path):
    """Returns a file of the runtime."""
    (found,) = [file for file in ctx.files._runtime if file.path.endswith("runtime/" + path)]
    return found

def _compiler(ctx):
    """Returns a function that compiles one source of a package: compile(name, source, flags, hdrs, files) -> File."""
    cc_toolchain, features = cxx_of(ctx)
    support = ctx.attr._support[CcInfo].compilation_context

    def compile(name, source, flags, hdrs = [], files = []):
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
        return (outputs.pic_objects + outputs.objects)[0]

    return compile

def _headers(ctx):
    return [file for file in ctx.files._runtime if file.extension == "h"]

def _object(path, level = None):
    """Returns the name of a source's object. `py/tfaot/command/build.py` gives it the same."""
    return path.removesuffix(".cc").replace("/", ".") + (".{}.o".format(level) if level else ".o")

def _package_runtime_impl(ctx):
    if CcInfo not in ctx.attr._support:
        return [TfaotPackageRuntimeInfo(kernels = {}, objects = {})]
    compile = _compiler(ctx)
    headers = _headers(ctx)
    return [TfaotPackageRuntimeInfo(
        kernels = {
            level: {
                path: compile(_object(path, level), _runtime(ctx, path), package_copts(level = level), hdrs = headers)
                for path in PACKAGE_KERNELS
            }
            for level in LEVELS
        },
        objects = {
            _object(path): compile(_object(path), _runtime(ctx, path), package_copts(), hdrs = headers)
            for path in PACKAGE_SOURCES
        },
    )]

def _runtime_attrs():
    """Returns the attributes of a rule that compiles sources of the runtime."""
    return {
        "_runtime": attr.label(default = "//runtime:files"),
        "_support": attr.label(default = "//runtime:model"),
    }

package_runtime = rule(
    implementation = _package_runtime_impl,
    doc = "Compiles the runtime for packages, as far as they need it.",
    attrs = _runtime_attrs(),
    fragments = ["cpp"],
    provides = [TfaotPackageRuntimeInfo],
    toolchains = use_cc_toolchain(),
)

def _objects(ctx, header):
    """Compiles the C++ of a package.

    Args:
      ctx: the rule's context
      header: (str) the path by which programs include the class's header

    Returns:
      (dict[str, File]) all objects, by their names in the library, and `interface.o`, which isn't a part of the static one.
        `py/tfaot/command/build.py` gives them the same names.
    """
    graph = ctx.attr.graph[TfaotGraphInfo]
    compiled = ctx.attr.compiled[TfaotObjectInfo]
    sources = ctx.attr.sources[TfaotSourcesInfo]
    stem = ctx.attr.stem
    functions = functions_of(graph, stem)
    if "TFAOT_CBLAS" in ctx.attr._support[CcInfo].compilation_context.defines.to_list():
        fail(("{}: this build uses another library for matrix products, which a package doesn't contain. " +
              "To do: build the package without --@rules_tfaot//rules:cblas.").format(ctx.label))
    compile = _compiler(ctx)
    copts = expanded(ctx, "copts")
    plain = package_copts(copts)
    made = {}

    def add(name, source, flags, **files):
        made[name] = compile(name, source, flags, **files)

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
        hdrs = _headers(ctx) + [sources.header],
    )
    for index, function in enumerate(functions):
        made[function.stem + ".constants.o"] = compiled.constants[index]
        for position, level in enumerate(compiled.isa):
            made["{}.{}.kernels.o".format(function.stem, level)] = compiled.objects[index * len(compiled.isa) + position]
    return made | ctx.attr._package_runtime[TfaotPackageRuntimeInfo].objects

def _tf_aot_package_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    compiled = ctx.attr.compiled[TfaotObjectInfo]
    sources = ctx.attr.sources[TfaotSourcesInfo]
    stem = ctx.attr.stem
    cc_toolchain, features = cxx_of(ctx)
    kernels = ctx.attr._package_runtime[TfaotPackageRuntimeInfo].kernels
    archive = ctx.actions.declare_file(stem + ".package.tar.gz")
    header = (ctx.label.package + "/" if ctx.label.package else "") + stem + ".h"
    files = {"model.json": graph.manifest, stem + ".variables.safetensors": graph.variables}
    for index, function in enumerate(functions_of(graph, stem)):
        files[function.stem + ".fingerprint.json"] = compiled.fingerprints[index]
        files[function.stem + ".passes.json"] = compiled.passes[index]
    headers = {header: sources.header}
    for path in PACKAGE_HEADERS:
        headers[path] = _runtime(ctx, path)
    objects = _objects(ctx, header)
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
    for level in compiled.isa:
        for path, file in kernels[level].items():
            flags.add_all(["--kernel", path, _object(path, level), file])
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
        inputs = [interface] + [file for named in groups.values() + [kernels[level] for level in compiled.isa] for file in named.values()],
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
        "_package_runtime": attr.label(default = "//rules/private:package_runtime", providers = [TfaotPackageRuntimeInfo]),
    } | _runtime_attrs() | code_attrs() | stage_attrs("//tools:package.py", "//py/tfaot/pack"),
    fragments = ["cpp", "platform"],
    toolchains = [TOOLCHAIN_TYPE] + use_cc_toolchain(),
)
