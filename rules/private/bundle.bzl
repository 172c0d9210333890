"""The bundle: one archive with a model as HLO and everything that a vendor needs to test a compiler on it."""

load(":files.bzl", "BUNDLE")
load(":providers.bzl", "TfaotGoldensInfo", "TfaotGraphInfo", "TfaotHloInfo", "TfaotStablehloInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "declare", "read", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_bundle_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    if len(graph.entry_points) > 1 or graph.batch_sizes or graph.buckets:
        fail(("{}: a bundle contains one program, but {} has several: {}. " +
              "To do: bundle a target with one of its entry points, without batch_sizes and sizes.").format(
            ctx.label,
            graph.label,
            ", ".join(graph.entry_points + ["batch %d" % size for size in graph.batch_sizes] + ["size %d" % size for own in graph.buckets for size in own]),
        ))
    hlo = ctx.attr.hlo[TfaotHloInfo]
    stablehlo = ctx.attr.stablehlo[TfaotStablehloInfo]
    stem = ctx.attr.stem or ctx.label.name
    outputs = declare(ctx, stem, BUNDLE)
    run_stage(
        ctx,
        mnemonic = "TfaotBundle",
        progress_message = "Bundling %{label}",
        request = read(graph, "bundle") | {
            "name": stem,
            "goldens": ctx.attr.goldens[TfaotGoldensInfo].goldens,
            "hlo": hlo.hlo[0],
            "hlo_text": hlo.text[0],
            "optimized_hlo": hlo.optimized[0],
            "drawing": hlo.drawing[0],
            "text": stablehlo.text[0],
            "bytecode": stablehlo.bytecode[0],
            "replay": ctx.file._replay,
        },
        outputs = outputs,
    )
    return [DefaultInfo(files = depset(outputs.values()))]

tf_aot_bundle = rule(
    implementation = _tf_aot_bundle_impl,
    doc = "Packs HLO, StableHLO, TensorFlow's numbers, and a script that replays them into STEM.bundle.tar.gz.",
    attrs = {
        "goldens": attr.label(
            doc = "Target of the verify stage.",
            mandatory = True,
            providers = [TfaotGoldensInfo],
        ),
        "graph": attr.label(
            doc = "Target of the export stage.",
            mandatory = True,
            providers = [TfaotGraphInfo],
        ),
        "hlo": attr.label(
            doc = "Target of `tf_aot_lower`.",
            mandatory = True,
            providers = [TfaotHloInfo],
        ),
        "stablehlo": attr.label(
            doc = "Target of `tf_aot_stablehlo`.",
            mandatory = True,
            providers = [TfaotStablehloInfo],
        ),
        "stem": attr.string(
            doc = "The start of the archive's name, and the name of the folder in it. By default, the target's name.",
        ),
        "_replay": attr.label(default = "//py/tfaot/hlo:replay.py", allow_single_file = [".py"]),
    } | stage_attrs("//tools:bundle.py", "//py/tfaot/hlo"),
    toolchains = [TOOLCHAIN_TYPE],
)
