"""The toolchain: a Python with TensorFlow, for the export and compile stages."""

load("@rules_python//python:defs.bzl", "PyInfo", "PyRuntimeInfo")

visibility("//rules/...")

TfaotToolchainInfo = provider(
    doc = "What the stages need from the build machine: Python and TensorFlow.",
    fields = {
        "imports": "(depset[str]) entries of PYTHONPATH for `packages`, relative to the execution root",
        "interpreter": "(File or None) Python's interpreter, if it is a file that Bazel knows",
        "interpreter_files": "(depset[File]) what the interpreter needs to run; empty with `interpreter_path`",
        "interpreter_path": "(str or None) absolute path of Python's interpreter, if `interpreter` is None",
        "label": "(Label) the toolchain's target, to simplify debugging",
        "packages": "(depset[File]) files or directories that hold the Python packages",
        "stamps": "(depset[File]) a few files that change when `packages` does; a persistent worker restarts when they change",
        "tensorflow_version": "(str) version of the TensorFlow in `packages`, such as '2.21.0'",
    },
)

def exec_path(import_path, workspace_name):
    """Turns an entry of PyInfo.imports, which starts with a repository name, into an entry of PYTHONPATH for actions.

    Args:
      import_path: (str) the entry
      workspace_name: (str) ctx.workspace_name

    Returns:
      (str) its path below the execution root
    """
    repository, _, path = import_path.partition("/")
    if repository in (workspace_name, "_main", ""):
        return path or "."
    return "external/" + import_path

def _tfaot_toolchain_impl(ctx):
    runtime = ctx.attr.python_runtime[PyRuntimeInfo]
    packages = []
    imports = []
    for target in ctx.attr.python_packages:
        packages.append(target[DefaultInfo].files)
        if PyInfo in target:
            packages.append(target[DefaultInfo].default_runfiles.files)
            packages.append(target[PyInfo].transitive_sources)
            imports.extend([exec_path(path, ctx.workspace_name) for path in target[PyInfo].imports.to_list()])
            continue
        files = target[DefaultInfo].files.to_list()
        if len(files) != 1 or not files[0].is_directory and files[0].extension == "py":
            fail(("{}: python_packages takes Python libraries, or targets of one directory; {} is neither ({} files). A py_library " +
                  "must be loaded from @rules_python//python:defs.bzl").format(
                ctx.label,
                target.label,
                len(files),
            ))
        imports.append(files[0].path)

    return [platform_common.ToolchainInfo(
        tfaot = TfaotToolchainInfo(
            label = ctx.label,
            interpreter = runtime.interpreter,
            interpreter_path = runtime.interpreter_path,
            interpreter_files = runtime.files or depset(),
            packages = depset(transitive = packages),
            imports = depset(imports),
            stamps = depset(ctx.files.stamps + [
                file
                for file in depset(transitive = packages).to_list()
                # rules_python leaves out RECORD, because it can depend on the machine.
                if file.basename in ("METADATA", "RECORD") and file.dirname.endswith(".dist-info")
            ]),
            tensorflow_version = ctx.attr.tensorflow_version,
        ),
    )]

tfaot_toolchain = rule(
    implementation = _tfaot_toolchain_impl,
    doc = "Declares a toolchain for `//rules:toolchain_type`; read as `ctx.toolchains[...].tfaot`, a `TfaotToolchainInfo`.",
    attrs = {
        "python_packages": attr.label_list(
            doc = "Python libraries (PyInfo) or single directories of packages. Together they must contain all packages that " +
                  "tools/python/requirements.in names.",
            allow_files = True,
            mandatory = True,
            cfg = "exec",
        ),
        "python_runtime": attr.label(
            doc = "A py_runtime for Python 3.10 to 3.13.",
            mandatory = True,
            providers = [PyRuntimeInfo],
            cfg = "exec",
        ),
        "stamps": attr.label_list(
            doc = "Files that change whenever a directory in `python_packages` does. Libraries need none: each wheel's " +
                  "`METADATA` and `RECORD` serve.",
            allow_files = True,
            cfg = "exec",
        ),
        "tensorflow_version": attr.string(
            doc = "Version of the TensorFlow in `python_packages`.",
            mandatory = True,
        ),
    },
)
