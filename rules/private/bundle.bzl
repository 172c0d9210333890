"""The bundle: one archive with a model as HLO and everything that a vendor needs to test a compiler on it."""

load(":providers.bzl", "TfaotGoldensInfo", "TfaotGraphInfo", "TfaotHloInfo", "TfaotStablehloInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_bundle_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    if len(graph.entry_points) > 1 or graph.batch_sizes:
        fail(("{}: a bundle contains one program, but {} has several: {}. " +
              "To do: bundle a target with one of its entry points, without batch_sizes.").format(
            ctx.label,
            graph.label,
            ", ".join(graph.entry_points + ["batch %d" % size for size in graph.batch_sizes]),
        ))
    hlo = ctx.attr.hlo[TfaotHloInfo]
    stablehlo = ctx.attr.stablehlo[TfaotStablehloInfo]
    stem = ctx.attr.stem or ctx.label.name
    archive = ctx.actions.declare_file(stem + ".bundle.tar.gz")
    files = {
        "goldens.safetensors": ctx.attr.goldens[TfaotGoldensInfo].goldens,
        "model.json": graph.manifest,
        "module.hlo.pb": hlo.hlo[0],
        "module.hlo.dot": hlo.drawing[0],
        "module.hlo.txt": hlo.text[0],
        "module.optimized_hlo.txt": hlo.optimized[0],
        "module.stablehlo.mlir": stablehlo.text[0],
        "module.stablehlo.mlirbc": stablehlo.bytecode[0],
        "replay.py": ctx.file._replay,
        "variables.safetensors": graph.variables,
    }
    flags = ctx.actions.args()
    flags.add(stem, format = "--name=%s")
    for name, file in files.items():
        flags.add(file, format = "--file=" + name + "=%s")
    flags.add(archive, format = "--out_archive=%s")
    run_stage(
        ctx,
        mnemonic = "TfaotBundle",
        progress_message = "Bundling %{label}",
        flags = flags,
        inputs = files.values(),
        outputs = [archive],
    )
    return [DefaultInfo(files = depset([archive]))]

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
