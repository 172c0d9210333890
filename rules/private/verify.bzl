"""The verify stage: computes TensorFlow's own numbers for an exported graph."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load(":providers.bzl", "TfaotGoldensInfo", "TfaotGraphInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "graph_attrs", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_verify_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    goldens = ctx.actions.declare_file((ctx.attr.stem or ctx.label.name) + ".goldens.safetensors")
    flags = ctx.actions.args()
    flags.add(graph.manifest, format = "--manifest=%s")
    flags.add(graph.graph, format = "--graph=%s")
    flags.add(graph.variables, format = "--variables=%s")
    flags.add(graph.golden_inputs, format = "--golden_inputs=%s")
    flags.add(graph.sources, format = "--sources=%s")
    inputs = [graph.manifest, graph.graph, graph.variables, graph.golden_inputs]
    if graph.program:
        flags.add(graph.program, format = "--program=%s")
        inputs.append(graph.program)
    flags.add(goldens, format = "--out_goldens=%s")
    flags.add_all(ctx.attr.unseen, format_each = "--unseen=%s")
    if ctx.attr.strict or ctx.attr._strict[BuildSettingInfo].value:
        flags.add("--strict")
    run_stage(
        ctx,
        mnemonic = "TfaotVerify",
        progress_message = "Running %{label} in TensorFlow",
        flags = flags,
        inputs = inputs,
        for_errors = [graph.sources],
        outputs = [goldens],
    )
    return [
        DefaultInfo(files = depset([goldens])),
        TfaotGoldensInfo(label = ctx.label, goldens = goldens),
    ]

tf_aot_verify = rule(
    implementation = _tf_aot_verify_impl,
    doc = "Runs an exported graph in a TensorFlow session, and records the expected values and their tolerances.",
    attrs = graph_attrs() | stage_attrs("//tools:verify.py", "//py/tfaot/verify") | {
        "strict": attr.bool(
            doc = "Whether it is an error, and not a warning, if no comparison would notice that most values of an output or a " +
                  "variable are wrong.",
        ),
        "unseen": attr.string_list(
            doc = "Patterns of outputs and variables, by their TensorFlow names, that no comparison needs to see. They cause no " +
                  "warning, and with `strict` no error.",
        ),
        "_strict": attr.label(default = "//rules:strict", providers = [BuildSettingInfo]),
    },
    provides = [TfaotGoldensInfo],
    toolchains = [TOOLCHAIN_TYPE],
)
