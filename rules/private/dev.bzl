"""Dependencies of this repository's own tests. Users of the rules neither load nor download them."""

load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")
load("@bazel_tools//tools/build_defs/repo:utils.bzl", "maybe")
load(":repositories.bzl", "PACKAGES_BUILD", "PIP_ENVIRONMENT", "packages_attrs", "pip_download", "pip_install")

visibility(["//rules/..."])

def _tfaot_jax_repository_impl(rctx):
    pip_install(rctx, package = "jax", size = "about 130 MB to download, 400 MB on disk", title = "JAX")
    rctx.file("BUILD", PACKAGES_BUILD.format(name = "jax"), executable = False)

tfaot_jax_repository = repository_rule(
    implementation = _tfaot_jax_repository_impl,
    doc = "Installs JAX with pip: a compiler other than tfcompile, to replay HLO with.",
    attrs = packages_attrs(Label("//tools/python:jax_requirements.lock")),
    environ = PIP_ENVIRONMENT,
)

def _tfaot_jax_libraries_repository_impl(rctx):
    pip_install(rctx, package = "flax", size = "about 180 MB to download, 600 MB on disk", title = "Flax, Optax, Diffrax, and NumPyro")
    rctx.file("BUILD", PACKAGES_BUILD.format(name = "libraries"), executable = False)

tfaot_jax_libraries_repository = repository_rule(
    implementation = _tfaot_jax_libraries_repository_impl,
    doc = "Installs JAX and libraries of its users with pip, for examples.",
    attrs = packages_attrs(Label("//tools/python:jax_libraries_requirements.lock")),
    environ = PIP_ENVIRONMENT,
)

def _tfaot_command_repository_impl(rctx):
    pip_install(
        rctx,
        package = "click",
        programs = ["ninja"],
        size = "about 33 MB to download, 100 MB on disk",
        title = "CMake, Ninja, pkgconf, and click",
    )
    rctx.file("BUILD", PACKAGES_BUILD.format(name = "packages"), executable = False)

tfaot_command_repository = repository_rule(
    implementation = _tfaot_command_repository_impl,
    doc = "Installs what tests of the command `tfaot` need with pip: its own packages, CMake, and pkgconf.",
    attrs = packages_attrs(Label("//tools/python:command_requirements.lock")),
    environ = PIP_ENVIRONMENT,
)

_MPI_BUILD = """\
load("@rules_cc//cc:cc_import.bzl", "cc_import")
load("@rules_cc//cc:cc_library.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_import(
    name = "library",
    shared_library = "data/lib/libmpi.so.12",
)

cc_library(
    name = "mpi",
    hdrs = glob(["data/include/*.h"]),
    includes = ["data/include"],
    deps = [":library"],
)

filegroup(
    name = "files",
    srcs = glob(["data/bin/*", "data/lib/**"]),
)

exports_files(["data/bin/mpiexec.hydra"])
"""

def _tfaot_mpi_repository_impl(rctx):
    pip_download(rctx, title = "MPICH", size = "13 MB to download, 36 MB on disk")
    data = [path.get_child("data") for path in rctx.path(".").readdir() if path.basename.endswith(".data")][0]
    rctx.symlink(data, "data")
    for program in data.get_child("bin").readdir():
        rctx.execute(["chmod", "+x", str(program)])
    rctx.file("BUILD", _MPI_BUILD, executable = False)

tfaot_mpi_repository = repository_rule(
    implementation = _tfaot_mpi_repository_impl,
    doc = "Downloads MPICH with pip: a library of MPI, and what starts its processes.",
    attrs = packages_attrs(Label("//tools/python:mpi_requirements.lock")),
    environ = PIP_ENVIRONMENT,
)

# Runs tools/bazelw/cross.py.
_CROSS = """
import os, sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
from tools.bazelw import cross
sys.exit(cross.main(os.environ))
"""

# By the name of the rules' repository in this one, so that the folder suits every workspace.
_CROSS_BUILD = """\
load("@rules_tfaot//rules/private:cross.bzl", "aarch64_targets")

aarch64_targets(
    folder = "{bin}",
    includes = {includes},
    version = "{version}",
)
"""

def _tfaot_aarch64_repository_impl(rctx):
    rctx.report_progress("Setting up g++ and qemu for 64-bit ARM (69 MB to download, 330 MB on disk)")
    script = rctx.path(Label("//tools/bazelw:cross.py"))
    rctx.watch(script)
    root = script.dirname.dirname.dirname
    result = rctx.execute(["python3", "-I", "-S", "-c", _CROSS, str(root)], quiet = False, timeout = 3600)
    if result.return_code != 0:
        error = result.stderr.strip().splitlines()[-1]
        fail(error)
    found = json.decode(result.stdout)
    rctx.file("BUILD", _CROSS_BUILD.format(**found), executable = False)
    rctx.symlink(found["bin"] + "/run", "run")

tfaot_aarch64_repository = repository_rule(
    implementation = _tfaot_aarch64_repository_impl,
    doc = "A C++ toolchain and an emulator for 64-bit ARM, from Debian's packages, in the cache folder that bazelw uses.",
    environ = ["HOME", "RULES_TFAOT_CACHE", "XDG_CACHE_HOME"],
)

# Rules of rules_python that this repository's tests use also ask for tools, which no test needs.
_TOOLS_BUILD = """\
load("@rules_python//python:py_exec_tools_toolchain.bzl", "py_exec_tools_toolchain")

package(default_visibility = ["//visibility:public"])

py_exec_tools_toolchain(
    name = "none",
    exec_interpreter = "@rules_python//python:none",
)

toolchain(
    name = "toolchain",
    toolchain = ":none",
    toolchain_type = "@rules_python//python:exec_tools_toolchain_type",
)
"""

def _tfaot_python_tools_repository_impl(rctx):
    package = rctx.path(Label("@rules_python//python:defs.bzl")).dirname
    rctx.watch(package.get_child("defs.bzl"))
    new = package.get_child("py_exec_tools_toolchain.bzl").exists
    rctx.file("BUILD", _TOOLS_BUILD if new else "", executable = False)

tfaot_python_tools_repository = repository_rule(
    implementation = _tfaot_python_tools_repository_impl,
    doc = "A toolchain without tools, in the place of one that downloads a Python from a code host. Early rules_python has neither.",
)

def tfaot_dev_dependencies():
    """Declares the repositories `tfaot_jax`, `tfaot_jax_libraries`, `tfaot_command`, `tfaot_mpi`, `tfaot_aarch64`, and `tfaot_python_tools`, and abseil."""
    tfaot_python_tools_repository(name = "tfaot_python_tools")
    tfaot_aarch64_repository(name = "tfaot_aarch64")
    tfaot_jax_repository(name = "tfaot_jax")
    tfaot_jax_libraries_repository(name = "tfaot_jax_libraries")
    tfaot_command_repository(name = "tfaot_command")
    tfaot_mpi_repository(name = "tfaot_mpi")

    # XLA's own runtime, a peer in the benchmarks, needs it in the version that TensorFlow 2.21's headers were built with.
    maybe(
        http_archive,
        name = "abseil-cpp",
        sha256 = "1692f77d1739bacf3f94337188b78583cf09bab7e420d2dc6c5605a4f86785a1",
        strip_prefix = "abseil-cpp-20250814.1",
        url = "https://github.com/abseil/abseil-cpp/releases/download/20250814.1/abseil-cpp-20250814.1.tar.gz",
    )

def _tfaot_dev_impl(_module_ctx):
    tfaot_python_tools_repository(name = "tfaot_python_tools")
    tfaot_aarch64_repository(name = "tfaot_aarch64")
    tfaot_jax_repository(name = "tfaot_jax")
    tfaot_jax_libraries_repository(name = "tfaot_jax_libraries")
    tfaot_command_repository(name = "tfaot_command")
    tfaot_mpi_repository(name = "tfaot_mpi")

tfaot_dev = module_extension(
    implementation = _tfaot_dev_impl,
    doc = "Declares the repositories `tfaot_aarch64`, `tfaot_command`, `tfaot_jax`, `tfaot_jax_libraries`, `tfaot_mpi`, and `tfaot_python_tools`.",
)
