"""The package: an archive with a model for programs that Bazel doesn't build."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//runtime:copts.bzl", "LEVELS")
load(
    "//runtime:package.bzl",
    "INTERFACE",
    "PACKAGE_HEADERS",
    "PACKAGE_INTERFACE",
    "PACKAGE_KERNELS",
    "PACKAGE_LINK",
    "PACKAGE_SOURCES",
    "interface_copts",
    "package_copts",
    "package_object",
    "package_objects",
)
load(":cxx.bzl", "code_attrs", "cxx_of", "expanded")
load(":files.bzl", "COMPILE", "EXPORT", "functions_of")
load(":providers.bzl", "TfaotGraphInfo", "TfaotObjectInfo", "TfaotSourcesInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "run_stage", "stage_attrs")

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
    (source,) = [file for file in ctx.files._runtime if file.path.endswith("runtime/" + path)]
    return source

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

def _package_runtime_impl(ctx):
    if CcInfo not in ctx.attr._support:
        return [TfaotPackageRuntimeInfo(kernels = {}, objects = {})]
    compile = _compiler(ctx)
    headers = _headers(ctx)
    return [TfaotPackageRuntimeInfo(
        kernels = {
            level: {
                path: compile(package_object(path, level), _runtime(ctx, path), package_copts(level = level), hdrs = headers)
                for path in PACKAGE_KERNELS
            }
            for level in LEVELS
        },
        objects = {
            package_object(path): compile(package_object(path), _runtime(ctx, path), package_copts(), hdrs = headers)
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
      (dict[str, File]) all objects, by their names in the library, and `INTERFACE`, which isn't a part of the static one
    """
    graph = ctx.attr.graph[TfaotGraphInfo]
    compiled = ctx.attr.compiled[TfaotObjectInfo]
    sources = ctx.attr.sources[TfaotSourcesInfo]
    stem = ctx.attr.stem
    functions = functions_of(graph.entry_points, graph.batch_sizes, graph.buckets, stem)
    if "TFAOT_CBLAS" in ctx.attr._support[CcInfo].compilation_context.defines.to_list():
        fail(("{}: this build uses another library for matrix products, which a package doesn't contain. " +
              "To do: build the package without --@rules_tfaot//rules:cblas.").format(ctx.label))
    compile = _compiler(ctx)
    one = {
        "fingerprint": compiled.fingerprint_source,
        "source": sources.source,
        "variables": sources.variables,
        "weights": graph.weights,
    }
    hdrs = {"executor": compiled.headers, "source": [sources.header] + compiled.headers}
    embedded = {"variables": [graph.variables]} if sources.embed else {}

    def compile_part(name, kind, flags, function = None, level = None):
        file = one[kind] if function == None else compiled.sources[level][functions.index(function)]
        return compile(name, file, flags, hdrs = hdrs.get(kind, []), files = embedded.get(kind, []))

    def made(function, level = None):
        index = functions.index(function)
        return compiled.constants[index] if level == None else compiled.objects[index * len(compiled.isa) + compiled.isa.index(level)]

    objects = package_objects(
        stem = stem,
        functions = functions,
        levels = compiled.isa,
        embed_variables = sources.embed,
        copts = expanded(ctx, "copts"),
        variables = graph.variables.path,
        compile = compile_part,
        made = made,
    )
    objects[INTERFACE] = compile(
        INTERFACE,
        _runtime(ctx, PACKAGE_INTERFACE),
        interface_copts(graph.cpp_class, header),
        hdrs = _headers(ctx) + [sources.header],
    )
    return objects | ctx.attr._package_runtime[TfaotPackageRuntimeInfo].objects

def _tf_aot_package_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    compiled = ctx.attr.compiled[TfaotObjectInfo]
    sources = ctx.attr.sources[TfaotSourcesInfo]
    stem = ctx.attr.stem
    cc_toolchain, features = cxx_of(ctx)
    kernels = ctx.attr._package_runtime[TfaotPackageRuntimeInfo].kernels
    archive = ctx.actions.declare_file(stem + ".package.tar.gz")
    header = (ctx.label.package + "/" if ctx.label.package else "") + stem + ".h"
    files = {"model.json": graph.manifest, stem + EXPORT["variables"]: graph.variables}
    for index, function in enumerate(functions_of(graph.entry_points, graph.batch_sizes, graph.buckets, stem)):
        files[function.stem + COMPILE["fingerprint"]] = compiled.fingerprints[index]
        files[function.stem + COMPILE["passes"]] = compiled.passes[index]
    headers = {header: sources.header}
    for path in PACKAGE_HEADERS:
        headers[path] = _runtime(ctx, path)
    objects = _objects(ctx, header)
    interface = objects.pop(INTERFACE)
    linker = cc_common.get_tool_for_action(
        action_name = ACTION_NAMES.cpp_link_dynamic_library,
        feature_configuration = features,
    )
    sysroot = ["--sysroot=" + cc_toolchain.sysroot] if cc_toolchain.sysroot else []
    run_stage(
        ctx,
        mnemonic = "TfaotPackage",
        progress_message = "Packing %{label}",
        request = {
            "name": stem,
            "header": header,
            "headers": headers,
            "objects": objects,
            "kernels": {
                "{}={}".format(path, package_object(path, level)): file
                for level in compiled.isa
                for path, file in kernels[level].items()
            },
            "files": files,
            "notices": {file.basename: file for file in ctx.files._notices},
            "interface": interface,
            "link": [linker] + PACKAGE_LINK + sysroot,
            "linkopts": expanded(ctx, "linkopts"),
            "ar": cc_common.get_tool_for_action(
                action_name = ACTION_NAMES.cpp_link_static_library,
                feature_configuration = features,
            ),
        },
        outputs = {"archive": archive},
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
