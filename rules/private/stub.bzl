"""A class without its model, for builds that have no toolchain."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//runtime:copts.bzl", "CXX")
load(":cxx.bzl", "cxx_of")
load(":providers.bzl", "TfaotSourcesInfo")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_stub_impl(ctx):
    copies = [ctx.file.header, ctx.file.source, ctx.attr.include]
    if ctx.attr.sources and not any(copies):
        rendered = ctx.attr.sources[TfaotSourcesInfo]
        header, source, folder = rendered.header, rendered.stub, None
    elif not ctx.attr.sources and all(copies):
        # Where the compiler finds it by the path of the generated header.
        folder = ctx.label.name + ".include"
        header = ctx.actions.declare_file("{}/{}".format(folder, ctx.attr.include))
        ctx.actions.symlink(output = header, target_file = ctx.file.header)
        source, folder = ctx.file.source, header.path.removesuffix("/" + ctx.attr.include)
    else:
        fail("{}: a stub is made from the render stage or from copies of what it wrote. ".format(ctx.label) +
             "To do: set either sources, or all of header, source, and include.")
    cc_toolchain, features = cxx_of(ctx)
    runtime = ctx.attr._runtime[CcInfo]
    compiled, outputs = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        srcs = [source],
        public_hdrs = [header],
        quote_includes = [folder] if folder else [],
        compilation_contexts = [runtime.compilation_context],
        user_compile_flags = CXX + ["-w"],
    )
    linking_context, linked = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        # Also without calls, so that a program with the model, too, doesn't link.
        alwayslink = True,
        compilation_outputs = outputs,
        linking_contexts = [runtime.linking_context],
        disallow_dynamic_library = True,
    )
    library = linked.library_to_link
    files = [file for file in (library.static_library, library.pic_static_library) if file]
    return [
        DefaultInfo(files = depset(files + [header])),
        CcInfo(compilation_context = compiled, linking_context = linking_context),
    ]

tf_aot_stub = rule(
    implementation = _tf_aot_stub_impl,
    doc = "Makes a C++ library with the class of a model and without the model: programs build, and every run fails with an " +
          "error that says so. From copies of what the render stage wrote, it needs neither TensorFlow nor the toolchain.",
    attrs = {
        "header": attr.label(
            doc = "A copy of the class's header.",
            allow_single_file = [".h"],
        ),
        "include": attr.string(
            doc = "The path by which programs include the header, `PACKAGE/NAME.h`.",
        ),
        "source": attr.label(
            doc = "A copy of the stub's source, NAME.stub.cc.",
            allow_single_file = [".cc"],
        ),
        "sources": attr.label(
            doc = "Target of the render stage. It needs the toolchain to export the model, and compiles nothing of it.",
            providers = [TfaotSourcesInfo],
        ),
        "_runtime": attr.label(default = "//runtime:stub", providers = [CcInfo]),
    },
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)
