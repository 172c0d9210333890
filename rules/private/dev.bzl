"""What only this repository's own tests need. Nobody who uses the rules loads or downloads it."""

load(":repositories.bzl", "pip_install")

visibility(["//rules/..."])

_BUILD = """\
load("@rules_python//python:defs.bzl", "py_library")

py_library(
    name = "jax",
    data = ["site-packages"],
    imports = ["site-packages"],
    visibility = ["//visibility:public"],
)
"""

def _tfaot_jax_repository_impl(rctx):
    pip_install(rctx, package = "jax", size = "about 130 MB to download, 400 MB on disk", title = "JAX")
    rctx.file("BUILD", _BUILD, executable = False)

tfaot_jax_repository = repository_rule(
    implementation = _tfaot_jax_repository_impl,
    doc = "Installs JAX with pip: a compiler other than tfcompile, to replay HLO with.",
    attrs = {
        "python_interpreter": attr.label(
            allow_single_file = True,
            doc = "Python 3.10 to 3.13; default $TFAOT_PYTHON, then python3 on PATH.",
        ),
        "requirements_lock": attr.label(
            allow_single_file = True,
            default = Label("//tools/python:jax_requirements.lock"),
            doc = "A hash-locked requirements file.",
        ),
    },
    environ = ["TFAOT_PYTHON"],
)

def tfaot_dev_dependencies():
    """Declares the repository `tfaot_jax`."""
    tfaot_jax_repository(name = "tfaot_jax")

def _tfaot_dev_impl(_module_ctx):
    tfaot_dev_dependencies()

tfaot_dev = module_extension(
    implementation = _tfaot_dev_impl,
    doc = "Declares the repository `tfaot_jax`.",
)
