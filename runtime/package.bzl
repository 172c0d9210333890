"""How a package's library is compiled: its sources, its headers, and the compiler's flags.

Bazel's targets NAME_package load this file, and so does the command `tfaot`, which reads it as Python (`py/tfaot/starlark.py`).
Flags that toolchains of Bazel or a build's mode would set are all here, so both make the same bytes with the same compiler.
"""

load("//runtime:copts.bzl", "CXX", "EXACT", "FAST", "HIDDEN", "SMALL", "level_copts")

visibility(["//rules/...", "//tests/...", "//runtime/..."])

# The sources that every model is linked with, and those of the thread pool that programs can use. Paths below `runtime`.
PACKAGE_SOURCES = [
    "tfaot/bfloat16.cc",
    "tfaot/cgroup.cc",
    "tfaot/executor.cc",
    "tfaot/files.cc",
    "tfaot/files_windows.cc",
    "tfaot/instance.cc",
    "tfaot/isa.cc",
    "tfaot/kernels/plain.cc",
    "tfaot/mapped_file.cc",
    "tfaot/safetensors.cc",
    "tfaot/sort.cc",
    "tfaot/threads.cc",
    "tfaot/variables.cc",
    "tfaot/weight_set.cc",
]

# The sources with the kernels of a CPU level, compiled for each level. A package has those that its model calls.
PACKAGE_KERNELS = [
    "tfaot/kernels/column_sums_f32.cc",
    "tfaot/kernels/convolution_f32.cc",
    "tfaot/kernels/filter_gradient_f32.cc",
    "tfaot/kernels/fourier_f32.cc",
    "tfaot/kernels/fourier_f64.cc",
    "tfaot/kernels/linear_f32.cc",
    "tfaot/kernels/linear_f64.cc",
    "tfaot/kernels/products_f32.cc",
    "tfaot/kernels/products_f64.cc",
    "tfaot/kernels/products_s32.cc",
    "tfaot/kernels/row_copies_f32.cc",
    "tfaot/kernels/stream_f32.cc",
    "tfaot/kernels/winograd_f32.cc",
]

# The headers that programs include, directly or through a class.
PACKAGE_HEADERS = [
    "tfaot/bounded_view.h",
    "tfaot/c_api.h",
    "tfaot/collectives.h",
    "tfaot/gloo_replicas.h",
    "tfaot/gradients.h",
    "tfaot/half.h",
    "tfaot/hooks.h",
    "tfaot/info.h",
    "tfaot/mpi_replicas.h",
    "tfaot/options.h",
    "tfaot/status.h",
    "tfaot/thread_pool.h",
    "tfaot/thread_replicas.h",
    "tfaot/threads.h",
    "tfaot/unshared.h",
    "tfaot/view.h",
    "tfaot/weights.h",
]

# The source of the shared library's C interface. It isn't part of the static library.
PACKAGE_INTERFACE = "tfaot/c_api.cc"

# How the objects become a shared library. Only the interface's one symbol is visible, so the library depends on no symbol of
# the program, and of the objects it keeps only what the interface calls.
PACKAGE_LINK = [
    "-shared",
    "-pthread",
    "-Wl,--build-id=none",
    "-Wl,--gc-sections",
    "-Wl,--no-undefined",
]

_EVERYWHERE = [
    # Objects also go into shared libraries.
    "-fPIC",
    # The paths of a machine.
    "-g0",
    # What Bazel's own toolchains set, or set in some modes.
    "-U_FORTIFY_SOURCE",
    "-fno-omit-frame-pointer",
    "-fstack-protector",
    # A program drops what it doesn't call.
    "-fdata-sections",
    "-ffunction-sections",
]

# The object of `PACKAGE_INTERFACE`.
INTERFACE = "interface.o"

def package_object(path, level = None):
    """Returns the name of the object of one of the runtime's sources.

    Args:
      path: (str) the source's path below `runtime`
      level: (str) the CPU level that it is compiled for, if it has kernels

    Returns:
      (str) a file's name
    """
    return path.removesuffix(".cc").replace("/", ".") + (".{}.o".format(level) if level else ".o")

def package_copts(copts = [], level = None, optimization = FAST):
    """Returns the flags for a source of a package.

    Args:
      copts: (list[str]) the user's
      level: (str) the CPU level of an executor or of kernels; None for all other sources
      optimization: (list[str]) `FAST` or `SMALL`

    Returns:
      (list[str]) flags of gcc and clang
    """
    flags = CXX + HIDDEN + optimization + _EVERYWHERE + copts + EXACT
    return flags + (level_copts(level) if level else [])

def interface_copts(cpp_class, header):
    """Returns the flags for `PACKAGE_INTERFACE`.

    Args:
      cpp_class: (str) the model's class with its namespaces
      header: (str) the path by which programs include its header

    Returns:
      (list[str]) flags of gcc and clang
    """
    return package_copts() + [
        "-DTFAOT_CLASS=" + cpp_class.removeprefix("::"),
        "-DTFAOT_CLASS_HEADER=\"%s\"" % header,
        "-DTFAOT_GET_API=tfaot_get_api",
    ]

def package_objects(*, stem, functions, levels, embed_variables, copts, variables, compile, made):
    """Compiles the C++ that was generated for a package.

    Args:
      stem: (str) the package's name
      functions: (list[struct]) from `functions_of` in `rules/private/files.bzl`
      levels: (list[str]) CPU levels
      embed_variables: (bool) whether the library contains the variables' values
      copts: (list[str]) the user's
      variables: (str) the path of the file with these values
      compile: (function) compile(name, kind, flags, function, level) compiles a source into an object of this name: `source`,
        `executor` of a function for a level, `variables`, `weights`, or `fingerprint`
      made: (function) made(function, level) returns an object of the compile stage: the kernels of a level, or without one, the
        constants

    Returns:
      (dict) objects by their names in the library
    """
    plain = package_copts(copts, optimization = SMALL)
    objects = {stem + ".o": compile(stem + ".o", "source", plain)}
    for level in levels:
        for function in functions:
            name = "{}.{}.executor.o".format(function.stem, level)
            objects[name] = compile(name, "executor", package_copts(copts, level), function, level)
    define = ["-DTFAOT_VARIABLES=\"%s\"" % variables] if embed_variables else []
    objects[stem + ".variables.o"] = compile(stem + ".variables.o", "variables", plain + define)
    for kind in (["weights"] if embed_variables else []) + ["fingerprint"]:
        objects["{}.{}.o".format(stem, kind)] = compile("{}.{}.o".format(stem, kind), kind, plain)
    for function in functions:
        objects[function.stem + ".constants.o"] = made(function)
        for level in levels:
            objects["{}.{}.kernels.o".format(function.stem, level)] = made(function, level)
    return objects
