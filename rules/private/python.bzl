"""Python libraries, programs, and tests that need no Python toolchain.

Rules of rules_python ask for its toolchains, so Bazel would download a second Python from a code host for each user of the rules.
Programs run on the Python that TensorFlow was installed for, whose packages other Pythons can't import.
"""

load("@bazel_skylib//lib:paths.bzl", "paths")
load("@rules_python//python:defs.bzl", "PyInfo")
load(":toolchain.bzl", "exec_path")

# Called from @tfaot_tensorflow, and from packages with examples.
visibility("public")

_TOOLCHAIN_TYPE = "//rules:toolchain_type"

_ATTRS = {
    "data": attr.label_list(doc = "Files that the code reads.", allow_files = True),
    "deps": attr.label_list(doc = "Libraries that it imports.", providers = [PyInfo]),
    "imports": attr.string_list(doc = "Folders for sys.path, relative to the package."),
    "srcs": attr.label_list(doc = "Python files.", allow_files = [".py"]),
}

def _py_info(ctx):
    repository = ctx.label.repo_name or ctx.workspace_name
    return PyInfo(
        imports = depset(
            [paths.normalize(paths.join(repository, ctx.label.package, path)) for path in ctx.attr.imports],
            transitive = [dep[PyInfo].imports for dep in ctx.attr.deps],
        ),
        transitive_sources = depset(
            ctx.files.srcs,
            transitive = [dep[PyInfo].transitive_sources for dep in ctx.attr.deps],
        ),
    )

def _runfiles(ctx, info):
    return ctx.runfiles(ctx.files.data, transitive_files = info.transitive_sources).merge_all([
        target[DefaultInfo].default_runfiles
        for target in ctx.attr.srcs + ctx.attr.data + ctx.attr.deps
    ])

def _py_library_impl(ctx):
    info = _py_info(ctx)
    return [
        DefaultInfo(files = depset(ctx.files.srcs), runfiles = _runfiles(ctx, info)),
        coverage_common.instrumented_files_info(ctx, dependency_attributes = ["data", "deps"], source_attributes = ["srcs"]),
        info,
    ]

py_library = rule(
    implementation = _py_library_impl,
    doc = "As in rules_python, but without toolchains.",
    attrs = _ATTRS,
    provides = [PyInfo],
)

# In PYTHONPATH, and not in the user's, is all that the program declares. Nothing of the user's own Python is loaded.
_START = """\
#!/bin/sh
runfiles=$0.runfiles
[ -d "$runfiles" ] || runfiles=$RUNFILES_DIR
case $runfiles in
  /*) ;;
  *) runfiles=$PWD/$runfiles ;;
esac
export RUNFILES_DIR="$runfiles" PYTHONPATH="{path}" PYTHONSAFEPATH=1
exec "{interpreter}" -s -S -B "{main}" "$@"
"""

def _in_runfiles(ctx, path):
    """Maps a path below the execution root to one in the start script."""
    if path.startswith("bazel-out/"):
        path = path.split("/", 3)[3]
    return "$runfiles/" + (path.removeprefix("external/") if path.startswith("external/") else ctx.workspace_name + "/" + path)

def _program_impl(ctx):
    info = _py_info(ctx)
    toolchain = ctx.toolchains[_TOOLCHAIN_TYPE].tfaot
    imports = [exec_path(path, ctx.workspace_name) for path in info.imports.to_list()] + toolchain.imports.to_list()
    main = ctx.file.main or ctx.files.srcs[0]
    start = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(start, is_executable = True, content = _START.format(
        interpreter = toolchain.interpreter_path or _in_runfiles(ctx, toolchain.interpreter.path),
        main = _in_runfiles(ctx, main.path),
        path = ":".join([_in_runfiles(ctx, path) for path in imports]),
    ))
    python = depset(
        [toolchain.interpreter] if toolchain.interpreter else [],
        transitive = [toolchain.interpreter_files, toolchain.packages],
    )
    runfiles = _runfiles(ctx, info).merge(ctx.runfiles([main], transitive_files = python))
    return [DefaultInfo(executable = start, runfiles = runfiles), info]

_PROGRAM = {
    "attrs": _ATTRS | {"main": attr.label(doc = "The file to run; by default, the first of `srcs`.", allow_single_file = [".py"])},
    "implementation": _program_impl,
    "toolchains": [_TOOLCHAIN_TYPE],
}

py_binary = rule(doc = "A program that runs on the Python of TensorFlow, with TensorFlow.", executable = True, **_PROGRAM)

py_test = rule(doc = "A test that runs on the Python of TensorFlow, with TensorFlow.", test = True, **_PROGRAM)
