"""Runs a stage: a Python main on the toolchain's interpreter."""

load("@rules_python//python:defs.bzl", "PyInfo")
load(":files.bzl", "READS")
load(":providers.bzl", "TfaotGraphInfo")
load(":toolchain.bzl", "exec_path")

visibility(["//rules/..."])

TOOLCHAIN_TYPE = Label("//rules:toolchain_type")

# What Bazel sets aside for a local action of each stage, in MB: the peak of the stage and the processes that it forks, for a
# network of 3.5 million parameters. Small models need a half. For larger ones, a tag says more. Bazel takes only top-level
# functions.

def _export_resources(_os, _inputs):
    return {"cpu": 1, "memory": 1300}

def _cluster_resources(_os, _inputs):
    return {"cpu": 1, "memory": 1900}

def _compile_resources(_os, _inputs):
    return {"cpu": 1, "memory": 1000}

def _jax_resources(_os, _inputs):
    return {"cpu": 1, "memory": 1300}

def _name_resources(_os, _inputs):
    return {"cpu": 1, "memory": 100}

def _render_resources(_os, _inputs):
    return {"cpu": 1, "memory": 100}

def _verify_resources(_os, _inputs):
    return {"cpu": 1, "memory": 2400}

def _hlo_resources(_os, _inputs):
    return {"cpu": 1, "memory": 700}

def _stablehlo_resources(_os, _inputs):
    return {"cpu": 1, "memory": 1900}

def _report_resources(_os, _inputs):
    return {"cpu": 1, "memory": 1300}

def _bundle_resources(_os, _inputs):
    return {"cpu": 1, "memory": 100}

def _package_resources(_os, _inputs):
    return {"cpu": 1, "memory": 100}

def _page_resources(_os, _inputs):
    return {"cpu": 1, "memory": 700}

_RESOURCES = {
    "TfaotBundle": _bundle_resources,
    "TfaotCluster": _cluster_resources,
    "TfaotCompile": _compile_resources,
    "TfaotExport": _export_resources,
    "TfaotHlo": _hlo_resources,
    "TfaotJax": _jax_resources,
    "TfaotName": _name_resources,
    "TfaotPackage": _package_resources,
    "TfaotPage": _page_resources,
    "TfaotRender": _render_resources,
    "TfaotReport": _report_resources,
    "TfaotStablehlo": _stablehlo_resources,
    "TfaotVerify": _verify_resources,
}

def _resources_4(_os, _inputs):
    return {"cpu": 1, "memory": 4000}

def _resources_8(_os, _inputs):
    return {"cpu": 1, "memory": 8000}

def _resources_16(_os, _inputs):
    return {"cpu": 1, "memory": 16000}

def _resources_32(_os, _inputs):
    return {"cpu": 1, "memory": 32000}

def _resources_64(_os, _inputs):
    return {"cpu": 1, "memory": 64000}

_LARGE = {
    4000: _resources_4,
    8000: _resources_8,
    16000: _resources_16,
    32000: _resources_32,
    64000: _resources_64,
}

# Bazel reads it for tests, too.
_MEMORY_TAG = "resources:memory:"

def _resources(mnemonic, tags):
    """Returns the `resource_set` of a stage: the next size above what a target's tag says, or the stage's own."""
    sizes = [tag[len(_MEMORY_TAG):] for tag in tags if tag.startswith(_MEMORY_TAG)]
    wrong = [value for value in sizes if not value.isdigit()]
    if wrong:
        fail("{0}{1} in tags has no number of megabytes. To do: write {0}8000, for example".format(_MEMORY_TAG, wrong[0]))
    if not sizes:
        return _RESOURCES[mnemonic]
    for memory, resources in _LARGE.items():
        if int(sizes[0]) <= memory:
            return resources
    return _resources_64

def stage_attrs(main, library):
    """Returns the attributes of a rule that calls `run_stage`.

    Args:
      main: (str) label of the stage's main
      library: (str) label of the stage's Python package

    Returns:
      (dict[str, Attribute]) private attributes
    """
    return {
        "_main": attr.label(default = main, allow_single_file = [".py"], cfg = "exec"),
        "_library": attr.label(default = library, providers = [PyInfo], cfg = "exec"),
        "_start": attr.label(default = "//tools:stage.py", allow_single_file = True, cfg = "exec"),
        "_worker": attr.label(default = "//py/tfaot/worker", providers = [PyInfo], cfg = "exec"),
    }

def graph_attrs():
    """Returns the attributes of a stage that follows export.

    Returns:
      (dict[str, Attribute]) `graph` and `stem`
    """
    return {
        "graph": attr.label(
            doc = "Target of `tf_aot_export`.",
            mandatory = True,
            providers = [TfaotGraphInfo],
        ),
        "stem": attr.string(
            doc = "The start of the output files' names, and the name of their content. By default, the target's name.",
        ),
    }

def declare(ctx, stem, endings, folder = False):
    """Declares a stage's outputs.

    Args:
      ctx: the rule's context
      stem: (str) the start of the files' names
      endings: (dict[str, str]) a table of `files.bzl`
      folder: (bool) whether they are folders

    Returns:
      (dict[str, File]) for `run_stage`
    """
    make = ctx.actions.declare_directory if folder else ctx.actions.declare_file
    return {name: make(stem + ending) for name, ending in endings.items()}

def read(graph, stage):
    """Returns the files of export that a stage reads.

    Args:
      graph: (TfaotGraphInfo) output of the export stage
      stage: (str) a key of `READS` in `files.bzl`

    Returns:
      (dict[str, File]) fields of its request
    """
    return {name: getattr(graph, name) for name in READS[stage]}

def _flags(ctx, fields):
    """Returns the flags for fields of a request, as `flags_of` in `py/tfaot/core/requests.py` does."""
    flags = ctx.actions.args()
    for name, value in fields.items():
        if type(value) == "bool":
            flags.add("--" + ("" if value else "no-") + name)
        elif type(value) == "dict":
            for key, part in value.items():
                part = ",".join(part) if type(part) == "list" else part
                flags.add_all([part], format_each = "--{}={}=%s".format(name, key.replace("%", "%%")))
        elif type(value) == "list":
            flags.add_all(value or [""], format_each = "--" + name + "=%s", expand_directories = False)
        elif value != None:
            flags.add_all([value], format_each = "--" + name + "=%s", expand_directories = False)
    return flags

def _files(fields):
    """Returns the files among the fields of a request."""
    files = []
    for value in fields.values():
        for part in value.values() if type(value) == "dict" else value if type(value) == "list" else [value]:
            files += [part] if type(part) == "File" else []
    return files

def run_stage(
        ctx,
        *,
        mnemonic,
        progress_message,
        request,
        outputs,
        code = None,
        for_errors = [],
        inputs = [],
        library = None,
        main = None,
        own_packages = False,
        programs = None):
    """Declares the action of a stage.

    Args:
      ctx: the rule's context; the rule has `stage_attrs` and uses `TOOLCHAIN_TYPE`
      mnemonic: (str) the stage's mnemonic, which never changes
      progress_message: (str) with %{label}
      request: (dict) fields of the stage's `Request` in Python, and their values: strings, numbers, files, lists, and dicts of these
      outputs: (dict) files that it writes, or lists of them: its fields without `out_`
      code: (struct) Python of the user that the stage runs, from `code_of`
      for_errors: (list[File]) files that only messages depend on, so a change in them doesn't run the stage again
      inputs: (list[File]) files that the main reads, besides those in its request
      library: (Target) the stage's Python package; by default, the one in `stage_attrs`
      main: (File) the stage's main; by default, the one in `stage_attrs`
      own_packages: (bool) whether packages of the user's code come before those of the toolchain
      programs: (depset[File]) files of programs that the main runs
    """
    flags = _flags(ctx, request | {"out_" + name: value for name, value in outputs.items()})
    inputs = inputs + [file for file in _files(request) if file not in for_errors]
    outputs = _files(outputs)
    code = code or code_of(ctx, [])
    library = library or ctx.attr._library
    main = main or ctx.file._main
    toolchain = ctx.toolchains[TOOLCHAIN_TYPE].tfaot

    # User code imports its neighbors by their path in the workspace. Generated modules are below bin_dir.
    roots = {root: None for root in code.roots}
    for root in code.roots:
        roots[ctx.bin_dir.path if root == "." else ctx.bin_dir.path + "/" + root] = None

    # Packages from other repositories, such as pip's, come after the toolchain's, so TensorFlow finds the versions that it was
    # locked with.
    imports = _imports(ctx, [library]) + code.imports
    others = [path for path in imports if path.startswith("external/")]
    own = [path for path in imports if path not in others]
    flags.add(main, format = "--stage_main=%s")
    packages = toolchain.imports.to_list()
    packages = others + packages if own_packages else packages + others
    flags.add_all(own + roots.keys() + packages, format_each = "--stage_path=%s")
    unused = []
    if for_errors:
        unused.append(ctx.actions.declare_file(outputs[0].basename + ".unused_inputs", sibling = outputs[0]))
        flags.add_all(for_errors, format_each = "--stage_for_errors=%s")
        flags.add(unused[0], format = "--stage_unused_inputs=%s")
    flags.add_all(outputs + unused, format_each = "--stage_outputs=%s", expand_directories = False)
    flags.use_param_file("@%s", use_always = True)
    flags.set_param_file_format("multiline")

    # No user or interpreter site-packages: all packages are declared. The command, the environment, and the tools are those of
    # every stage of every model, so one worker serves all of them.
    start = ctx.actions.args()
    start.add_all(["-s", "-S", "-B", ctx.file._start.path])
    ctx.actions.run(
        executable = toolchain.interpreter or toolchain.interpreter_path,
        arguments = [start, flags],
        env = {
            # `lowering.zeroed_memory` doesn't reach the blocks that malloc keeps for each thread.
            "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
            "HOME": "/nonexistent",
            "LANG": "C.UTF-8",
            "PATH": "/usr/bin:/bin",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": ":".join(_imports(ctx, [ctx.attr._worker]) + toolchain.imports.to_list()),
            # Don't search the main's folder for modules. This is like `-P`, which Python 3.10 doesn't know.
            "PYTHONSAFEPATH": "1",
            "TZ": "UTC",
        },
        execution_requirements = _REQUIREMENTS,
        inputs = depset(
            inputs + for_errors + [main],
            transitive = [toolchain.packages, toolchain.interpreter_files] +
                         ([programs] if programs else []) +
                         _sources([library]) + code.sources,
        ),
        outputs = outputs + unused,
        unused_inputs_list = unused[0] if unused else None,
        mnemonic = mnemonic,
        progress_message = progress_message,
        resource_set = _resources(mnemonic, ctx.attr.tags),
        toolchain = TOOLCHAIN_TYPE,
        tools = depset(
            [ctx.file._start] + ([toolchain.interpreter] if toolchain.interpreter else []),
            transitive = [toolchain.stamps, ctx.attr._worker[PyInfo].transitive_sources],
        ),
    )

def code_of(ctx, deps):
    """Returns what a stage needs to import Python libraries of the user.

    Args:
      ctx: the context of the rule whose target names them
      deps: (list[Target]) the libraries

    Returns:
      (struct) for `run_stage`
    """
    for dep in deps:
        if PyInfo not in dep:
            fail(("{} in deps is no Python library of rules_python. To do: if it is a py_library, load its rule in its BUILD file: " +
                  "load(\"@rules_python//python:defs.bzl\", \"py_library\"). Bazel 7 takes a rule of its own if nothing is loaded.").format(
                dep.label,
            ))
    return struct(
        imports = _imports(ctx, deps),
        roots = {target.label.workspace_root or ".": None for target in [ctx] + deps}.keys(),
        sources = _sources(deps),
    )

def _sources(libraries):
    return [library[DefaultInfo].default_runfiles.files for library in libraries] + [
        library[PyInfo].transitive_sources
        for library in libraries
    ]

def _imports(ctx, libraries):
    return [
        exec_path(path, ctx.workspace_name)
        for library in libraries
        for path in library[PyInfo].imports.to_list()
    ]

# How Bazel runs a stage; docs/internals/workers.md explains it. Bazel ignores what it doesn't use.
_REQUIREMENTS = {
    "block-network": "1",
    "requires-worker-protocol": "json",
    "supports-multiplex-sandboxing": "1",
    "supports-multiplex-workers": "1",
    "supports-worker-cancellation": "1",
    "supports-workers": "1",
    "worker-key-mnemonic": "Tfaot",
}
