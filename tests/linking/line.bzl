"""What Bazel gives a linker for a program."""

load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _link_line_impl(ctx):
    words = []
    files = []
    for dep in ctx.attr.deps:
        for linked in dep[CcInfo].linking_context.linker_inputs.to_list():
            for library in linked.libraries:
                file = library.pic_static_library or library.static_library
                if file in files:
                    continue
                files.append(file)
                words += ["-Wl,--whole-archive", file.short_path, "-Wl,--no-whole-archive"] if library.alwayslink else [file.short_path]
            words += [flag for flag in linked.user_link_flags if flag not in words]
    line = ctx.actions.declare_file(ctx.label.name + ".params")
    ctx.actions.write(line, "\n".join(words) + "\n")
    return [DefaultInfo(files = depset([line]), runfiles = ctx.runfiles(files + [line]))]

link_line = rule(
    implementation = _link_line_impl,
    doc = "Writes NAME.params: the static libraries of its dependencies, in their order, as a linker's arguments.",
    attrs = {"deps": attr.label_list(mandatory = True, providers = [CcInfo])},
)
