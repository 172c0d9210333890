"""A library in a build whose flags would change its numbers, or use instructions that its CPU lacks."""

def _flags_impl(settings, attr):
    name = "//command_line_option:copt"
    return {name: settings[name] + attr.copts}

_flags = transition(
    implementation = _flags_impl,
    inputs = ["//command_line_option:copt"],
    outputs = ["//command_line_option:copt"],
)

def _built_with_impl(ctx):
    files = [file for file in ctx.attr.library[0][DefaultInfo].files.to_list() if file.extension == "a"]
    archive = ctx.actions.declare_file(ctx.label.name + ".a")
    ctx.actions.symlink(output = archive, target_file = files[0])
    return [DefaultInfo(files = depset([archive]))]

built_with = rule(
    implementation = _built_with_impl,
    doc = "The archive of a library, in a build of these flags.",
    attrs = {
        "copts": attr.string_list(doc = "What is added to --copt."),
        "library": attr.label(cfg = _flags, doc = "The library."),
        "_allowlist_function_transition": attr.label(default = "@bazel_tools//tools/allowlists/function_transition_allowlist"),
    },
)
