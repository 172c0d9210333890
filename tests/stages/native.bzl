"""Objects of the C++ that models are linked with, for tests that link programs themselves."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

visibility("//tests/stages")

def _native_objects_impl(ctx):
    objects = []
    levels = ctx.attr._cpu[BuildSettingInfo].value
    kernels = [target for target, level in ctx.attr.kernels.items() if level in levels or not levels]
    for dep in ctx.attr.deps + kernels:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            for library in linker_input.libraries:
                objects += library.pic_objects or library.objects
    objects = depset(objects)
    paths = ctx.actions.declare_file(ctx.label.name + ".txt")
    ctx.actions.write(output = paths, content = "".join([file.short_path + "\n" for file in objects.to_list()]))
    objects = depset([paths], transitive = [objects])
    return [DefaultInfo(files = objects, runfiles = ctx.runfiles(transitive_files = objects))]

native_objects = rule(
    implementation = _native_objects_impl,
    doc = "The objects of libraries and of all that they depend on, and NAME.txt with their paths, which `native.py` reads.",
    attrs = {
        "deps": attr.label_list(mandatory = True, providers = [CcInfo], doc = "The libraries."),
        "kernels": attr.label_keyed_string_dict(
            providers = [CcInfo],
            doc = "Libraries of CPU levels. Of these, those that models of the build have by default.",
        ),
        "_cpu": attr.label(default = "//rules:cpu"),
    },
)
