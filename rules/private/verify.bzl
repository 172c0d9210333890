"""The verify stage: computes TensorFlow's own numbers for an exported graph."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load(":files.bzl", "VERIFY")
load(":providers.bzl", "TfaotGoldensInfo", "TfaotGraphInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "declare", "graph_attrs", "read", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_verify_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    outputs = declare(ctx, ctx.attr.stem or ctx.label.name, VERIFY)
    run_stage(
        ctx,
        mnemonic = "TfaotVerify",
        progress_message = "Running %{label} in TensorFlow",
        request = read(graph, "verify") | {
            "entry_points": graph.own_names,
            "program": graph.program,
            "unseen": ctx.attr.unseen,
            "strict": ctx.attr.strict or ctx.attr._strict[BuildSettingInfo].value,
        },
        for_errors = [graph.sources],
        outputs = outputs,
    )
    return [
        DefaultInfo(files = depset(outputs.values())),
        TfaotGoldensInfo(label = ctx.label, goldens = outputs["goldens"]),
    ]

tf_aot_verify = rule(
    implementation = _tf_aot_verify_impl,
    doc = "Runs an exported graph in a TensorFlow session, and records the expected values and their tolerances.",
    attrs = graph_attrs() | stage_attrs("//tools:verify.py", "//py/tfaot/verify") | {
        "strict": attr.bool(
            doc = "As in `tf_aot_library`.",
        ),
        "unseen": attr.string_list(
            doc = "As in `tf_aot_library`.",
        ),
        "_strict": attr.label(default = "//rules:strict", providers = [BuildSettingInfo]),
    },
    provides = [TfaotGoldensInfo],
    toolchains = [TOOLCHAIN_TYPE],
)
