"""A rule that makes a SavedModel, as a training pipeline would: its output is a folder."""

def _made_saved_model_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run(
        executable = ctx.executable.tool,
        arguments = [folder.path],
        env = {"TF_CPP_MIN_LOG_LEVEL": "2"},
        outputs = [folder],
        mnemonic = "MakeSavedModel",
        progress_message = "Saving %{label}",
    )
    return [DefaultInfo(files = depset([folder]))]

made_saved_model = rule(
    implementation = _made_saved_model_impl,
    doc = "Runs a program with the path of a new folder, which it fills.",
    attrs = {
        "tool": attr.label(
            cfg = "exec",
            doc = "The program.",
            executable = True,
            mandatory = True,
        ),
    },
)
