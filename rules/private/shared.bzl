"""A compiled model as a shared library with a C interface, for programs that load models and for other languages."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//runtime:copts.bzl", "CXX")
load(":cxx.bzl", "cxx_of")
load(":providers.bzl", "TfaotGraphInfo", "TfaotSourcesInfo")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_shared_impl(ctx):
    library = ctx.attr.library
    class_ = library[TfaotGraphInfo].cpp_class.removeprefix("::")
    header = library[TfaotSourcesInfo].header
    stem = ctx.attr.stem or ctx.label.name
    cc_toolchain, features = cxx_of(ctx)
    parts = [library[CcInfo], ctx.attr._interface[CcInfo]]
    include = header.short_path

    # The path below the repository, as programs include it.
    if include.startswith("../"):
        include = include.split("/", 2)[2]
    _, interface = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        srcs = [ctx.file._source],
        compilation_contexts = [part.compilation_context for part in parts],
        local_defines = [
            "TFAOT_CLASS=" + class_,
            "TFAOT_CLASS_HEADER=\"{}\"".format(include),
            "TFAOT_GET_API=" + ctx.attr.symbol,
        ],
        user_compile_flags = CXX + ["-Os", "-w"],
    )

    # All other symbols are local. Calls within the library therefore never reach another library, whatever it was built from.
    script = ctx.actions.declare_file(stem + ".lds")
    ctx.actions.write(script, "{ global: %s; local: *; };\n" % ctx.attr.symbol)
    linked = cc_common.link(
        name = stem,
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        additional_inputs = [script],
        compilation_outputs = interface,
        linking_contexts = [part.linking_context for part in parts],
        output_type = "dynamic_library",
        user_link_flags = ["-Wl,--version-script=" + script.path, "-Wl,--no-undefined", "-Wl,--gc-sections"],
    )
    dynamic = linked.library_to_link.resolved_symlink_dynamic_library or linked.library_to_link.dynamic_library
    return [
        DefaultInfo(
            files = depset([dynamic]),
            runfiles = ctx.runfiles([dynamic]).merge(library[DefaultInfo].default_runfiles),
        ),
        CcInfo(
            compilation_context = ctx.attr._header[CcInfo].compilation_context,
            linking_context = cc_common.create_linking_context(
                linker_inputs = depset([cc_common.create_linker_input(
                    owner = ctx.label,
                    libraries = depset([linked.library_to_link]),
                )]),
            ),
        ),
    ]

tf_aot_shared = rule(
    implementation = _tf_aot_shared_impl,
    doc = "Links a compiled model into libNAME.so, whose one symbol returns a table of C functions (runtime/tfaot/c_api.h). " +
          "A program can load it, or depend on the target.",
    attrs = {
        "library": attr.label(
            doc = "The compiled model: a `tf_aot_library`, or a target of the link stage.",
            mandatory = True,
            providers = [CcInfo, TfaotGraphInfo, TfaotSourcesInfo],
        ),
        "stem": attr.string(
            doc = "The library's name, without `lib` and `.so`. By default, the target's name.",
        ),
        "symbol": attr.string(
            doc = "The symbol that the library exports. Programs that load libraries expect the default. A program that links " +
                  "several libraries needs a different symbol for each.",
            default = "tfaot_get_api",
        ),
        "_header": attr.label(default = "//runtime:c_api", providers = [CcInfo]),
        "_interface": attr.label(default = "//runtime:interface", providers = [CcInfo]),
        "_source": attr.label(default = "//runtime:tfaot/c_api.cc", allow_single_file = [".cc"]),
    },
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)
