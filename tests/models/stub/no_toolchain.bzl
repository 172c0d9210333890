"""What a stub's build consists of."""

visibility("private")

_FOLLOWED = ["header", "source", "sources", "srcs", "deps", "_runtime"]

_Inputs = provider(doc = "Collected by the aspect.", fields = {"bad": "(depset[str]) actions and files of the toolchain"})

def _inputs_impl(target, ctx):
    bad = [action.mnemonic for action in target.actions if action.mnemonic.startswith("Tfaot")]
    bad += [
        file.path
        for action in target.actions
        for file in action.inputs.to_list()
        if "tensorflow" in file.path
    ]
    deps = [
        dep[_Inputs].bad
        for name in _FOLLOWED
        for dep in _list(getattr(ctx.rule.attr, name, None))
        if _Inputs in dep
    ]
    return [_Inputs(bad = depset(bad, transitive = deps))]

def _list(value):
    return value if type(value) == "list" else [value] if value else []

_inputs = aspect(
    implementation = _inputs_impl,
    attr_aspects = _FOLLOWED,
    doc = "Collects what belongs to the toolchain.",
)

def _no_toolchain_test_impl(ctx):
    bad = depset(transitive = [target[_Inputs].bad for target in ctx.attr.targets]).to_list()
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    ctx.actions.write(script, "\n".join(["echo '{}'".format(line) for line in bad] + ["exit %d" % (1 if bad else 0)]), is_executable = True)
    return [DefaultInfo(executable = script)]

no_toolchain_test = rule(
    implementation = _no_toolchain_test_impl,
    doc = "Protects builds without a toolchain: nothing that the targets are made from runs a stage or needs TensorFlow.",
    attrs = {"targets": attr.label_list(aspects = [_inputs], doc = "What to check.")},
    test = True,
)
