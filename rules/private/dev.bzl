"""Dependencies of this repository's own tests. Users of the rules neither load nor download them."""

load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")
load("@bazel_tools//tools/build_defs/repo:utils.bzl", "maybe")
load(":repositories.bzl", "pip_install")

visibility(["//rules/..."])

_BUILD = """\
load("@rules_python//python:defs.bzl", "py_library")

py_library(
    name = "{name}",
    data = ["site-packages"],
    imports = ["site-packages"],
    visibility = ["//visibility:public"],
)
"""

def _packages_attrs(lock):
    return {
        "python_interpreter": attr.label(
            allow_single_file = True,
            doc = "Python 3.10 to 3.13; default $TFAOT_PYTHON, then python3 on PATH.",
        ),
        "requirements_lock": attr.label(
            allow_single_file = True,
            default = lock,
            doc = "A hash-locked requirements file.",
        ),
    }

def _tfaot_jax_repository_impl(rctx):
    pip_install(rctx, package = "jax", size = "about 130 MB to download, 400 MB on disk", title = "JAX")
    rctx.file("BUILD", _BUILD.format(name = "jax"), executable = False)

tfaot_jax_repository = repository_rule(
    implementation = _tfaot_jax_repository_impl,
    doc = "Installs JAX with pip: a compiler other than tfcompile, to replay HLO with.",
    attrs = _packages_attrs(Label("//tools/python:jax_requirements.lock")),
    environ = ["TFAOT_PYTHON"],
)

def _tfaot_command_repository_impl(rctx):
    pip_install(
        rctx,
        package = "click",
        programs = ["ninja"],
        size = "about 33 MB to download, 100 MB on disk",
        title = "CMake, Ninja, pkgconf, and click",
    )
    rctx.file("BUILD", _BUILD.format(name = "packages"), executable = False)

tfaot_command_repository = repository_rule(
    implementation = _tfaot_command_repository_impl,
    doc = "Installs what tests of the command `tfaot` need with pip: its own packages, CMake, and pkgconf.",
    attrs = _packages_attrs(Label("//tools/python:command_requirements.lock")),
    environ = ["TFAOT_PYTHON"],
)

def tfaot_dev_dependencies():
    """Declares the repositories `tfaot_jax` and `tfaot_command`, and abseil, for WORKSPACE."""
    tfaot_jax_repository(name = "tfaot_jax")
    tfaot_command_repository(name = "tfaot_command")

    # XLA's own runtime, a peer in the benchmarks, needs it in the version that TensorFlow 2.21's headers were built with.
    maybe(
        http_archive,
        name = "abseil-cpp",
        sha256 = "1692f77d1739bacf3f94337188b78583cf09bab7e420d2dc6c5605a4f86785a1",
        strip_prefix = "abseil-cpp-20250814.1",
        url = "https://github.com/abseil/abseil-cpp/releases/download/20250814.1/abseil-cpp-20250814.1.tar.gz",
    )

def _tfaot_dev_impl(_module_ctx):
    tfaot_jax_repository(name = "tfaot_jax")
    tfaot_command_repository(name = "tfaot_command")

tfaot_dev = module_extension(
    implementation = _tfaot_dev_impl,
    doc = "Declares the repositories `tfaot_jax` and `tfaot_command`.",
)
