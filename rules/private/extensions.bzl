"""The module extension: one TensorFlow for the whole build, set up by the root module."""

load(":repositories.bzl", "DEFAULT_LOCK", "declare_tensorflow")

visibility("//rules/...")

_tensorflow = tag_class(
    doc = "Which Python and packages to use. Only the root module's tag counts.",
    attrs = {
        "python_interpreter": attr.label(doc = "Python 3.10 to 3.13; default $TFAOT_PYTHON, then python3 on PATH."),
        "requirements_lock": attr.label(default = DEFAULT_LOCK, doc = "A hash-locked requirements file."),
    },
)

def _tfaot_impl(module_ctx):
    tags = [tag for module in module_ctx.modules if module.is_root for tag in module.tags.tensorflow]
    if len(tags) > 1:
        fail("tfaot.tensorflow() is declared {} times in the root module: the whole build uses one TensorFlow, so keep only one".format(
            len(tags),
        ))
    if not tags:
        declare_tensorflow()
        return
    tag = tags[0]
    declare_tensorflow(
        python_interpreter = tag.python_interpreter,
        requirements_lock = tag.requirements_lock,
    )

tfaot = module_extension(
    implementation = _tfaot_impl,
    doc = "Declares the repositories `tfaot_tensorflow` and `tfaot_graphviz`.",
    tag_classes = {"tensorflow": _tensorflow},
)
